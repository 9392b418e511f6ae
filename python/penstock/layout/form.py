"""A layout in closed form: where each element of an array lies in its file, and which element lies at a position.

Four steps lead from an element x to its position (all in whole numbers, without a table of elements):

    shear    y = x, but y[d] = (x[d] + sum of s[e] x[e]) mod n[d]: skewed shares become slabs
    split    y[d] in a share's interval (cuts), or in its chunks dealt in turn (cyclic): the share, and z within it
    order    z in tiles: rank r of the element within its share; tiles and shares may be ragged
    pattern  chunks of c elements of each share, nested by cache: with q = r div c the position is
             r + sum over other shares p of min(L[p], c[p] W[p] (q div W + [p stands before]))
             where L is a share's length and W the chunks that one pattern of the first common cache holds of a share

The pattern is the source's: SC1 = <P1, P2> of size S1, SC2 = SC1 repeated to S2 / 2, then the next one, and so on.
The top pattern repeats over the file. A share that has ended is left out of later patterns, so files have no gaps.
"""

import itertools
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .errors import LayoutError
from .source import known, load_toml, read_text, tables

FORMAT = 1
MOST_SHARES = 4096
#: Chunks that an inverse is looked up in.
MOST_CHUNKS = 1 << 26


@dataclass(frozen=True)
class Cuts:
    """Share p has y[dim] from cuts[p] to before cuts[p + 1]; with `stride` it counts in the number of the share."""

    dim: int
    cuts: tuple
    stride: int
    order: tuple = ()

    @property
    def parts(self):
        """Number of intervals."""
        return len(self.cuts) - 1

    def split(self, y):
        """Part and coordinate within it."""
        k = np.searchsorted(np.asarray(self.cuts[1:-1], dtype=np.int64), y, side="right")
        return np.asarray(self.order, dtype=np.int64)[k], y - np.asarray(self.cuts, dtype=np.int64)[k]

    def join(self, part, z):
        """The y of a coordinate within a part."""
        k = np.argsort(np.asarray(self.order))[part]
        return z + np.asarray(self.cuts, dtype=np.int64)[k]

    def length(self, part):
        """Coordinates of a part."""
        k = self.order.index(part)
        return self.cuts[k + 1] - self.cuts[k]


@dataclass(frozen=True)
class Cyclic:
    """Chunks of y[dim], dealt to `parts` shares in turn; `start` (0 or more) is added to y first."""

    dim: int
    chunk: int
    parts: int
    start: int
    stride: int
    extent: int

    def before(self, part, value):
        """Coordinates below `value` (with `start` added) that belong to `part`."""
        turn = self.chunk * self.parts
        return value // turn * self.chunk + np.clip(value % turn - part * self.chunk, 0, self.chunk)

    def split(self, y):
        """Part and coordinate within it."""
        value = y + self.start
        part = value // self.chunk % self.parts
        return part, self.before(part, value) - self.before(part, self.start)

    def join(self, part, z):
        """The y of a coordinate within a part."""
        z = z + self.before(part, self.start)
        return z // self.chunk * self.chunk * self.parts + part * self.chunk + z % self.chunk - self.start

    def length(self, part):
        """Coordinates of a part."""
        return int(self.before(part, self.extent + self.start) - self.before(part, self.start))


@dataclass(frozen=True)
class Layout:
    """A closed-form layout of one array.

    `outer` and `inner` are the orders of tiles and of elements in a tile, the slowest first.

    Each share has `chunk` elements. `nodes` names the cache that serves it at each level, the whole last. `chunks`
    is W at each level, `rank` its place from left to right in the pattern.
    """

    array: str
    shape: tuple
    item: int
    shear: tuple = ()
    splits: tuple = ()
    tiles: tuple = ()
    outer: tuple = ()
    inner: tuple = ()
    chunk: tuple = ()
    nodes: tuple = ((0,),)
    chunks: tuple = ((1,),)
    rank: tuple = (0,)
    threads: tuple = field(default=((0,),))

    @property
    def elements(self):
        """Elements of the array, and of the file."""
        return int(np.prod([int(n) for n in self.shape], dtype=object))

    @property
    def bytes(self):
        """Bytes of the file."""
        return self.elements * self.item

    @property
    def shares(self):
        """Number of shares."""
        return len(self.chunk)

    @cached_property
    def extents(self):
        """Extent of each share in each dimension."""
        rows = []
        for share in range(self.shares):
            row = list(self.shape)
            for split in self.splits:
                row[split.dim] = split.length(share // split.stride % split.parts)
            rows.append(tuple(row))
        return rows

    @cached_property
    def lengths(self):
        """Elements of each share."""
        return [int(np.prod([int(n) for n in row], dtype=object)) for row in self.extents]

    def owner(self, index):
        """The share of elements: `index` is an array of whole numbers per dimension."""
        return self._locate(index)[0]

    def position(self, index):
        """The positions of elements in the file, in elements."""
        share, z = self._locate(index)
        return self._place(share, self._order(share, z))

    def index(self, position):
        """The elements at positions: an array per dimension. The inverse of `position`."""
        position = np.asarray(position, dtype=np.int64)
        starts, owners, ranks = self._chunk_table
        k = np.searchsorted(starts, position, side="right") - 1
        share = owners[k]
        return self._element(share, self._unorder(share, ranks[k] + position - starts[k]))

    # The steps, and their inverses.

    def _locate(self, index):
        y = [np.asarray(i, dtype=np.int64) for i in index]
        if self.shear:
            d, factors = self.shear
            y[d] = sum((s * y[e] for e, s in enumerate(factors) if s), np.int64(0)) % self.shape[d]
        share = np.zeros(np.broadcast_shapes(*(v.shape for v in y)), dtype=np.int64)
        for split in self.splits:
            part, y[split.dim] = split.split(y[split.dim])
            share = share + part * split.stride
        return share, y

    def _element(self, share, z):
        x = list(z)
        for split in self.splits:
            x[split.dim] = split.join(share // split.stride % split.parts, x[split.dim])
        if self.shear:
            d, factors = self.shear
            others = sum((s * x[e] for e, s in enumerate(factors) if s and e != d), np.int64(0))
            # The own factor is 1 or -1, so it is its own inverse.
            x[d] = factors[d] * (x[d] - others) % self.shape[d]
        return x

    def _extents_of(self, share):
        table = np.asarray(self.extents, dtype=np.int64)
        return [table[:, d][share] if self._split_dim(d) else np.int64(n) for d, n in enumerate(self.shape)]

    def _split_dim(self, d):
        return any(split.dim == d for split in self.splits)

    def _order(self, share, z):
        m = self._extents_of(share)
        rank = np.zeros(share.shape, dtype=np.int64)
        e, rest = [], []
        for d, t in enumerate(self.tiles):
            first = z[d] // t * t
            e.append(np.minimum(t, m[d] - first))
            rest.append(z[d] - first)
        unit = self._after(self.outer, m)
        done = np.int64(1)
        for d in self.outer:
            rank += (z[d] - rest[d]) * done * unit[d]
            done = done * e[d]
        unit = self._after(self.inner, e)
        for d in self.inner:
            rank += rest[d] * unit[d]
        return rank

    def _unorder(self, share, rank):
        m = self._extents_of(share)
        e, z = [None] * len(m), [None] * len(m)
        unit = self._after(self.outer, m)
        done = np.int64(1)
        for d in self.outer:
            tile = rank // (done * unit[d] * self.tiles[d])
            z[d] = tile * self.tiles[d]
            rank = rank - z[d] * done * unit[d]
            e[d] = np.minimum(self.tiles[d], m[d] - z[d])
            done = done * e[d]
        unit = self._after(self.inner, e)
        for d in self.inner:
            step = rank // unit[d]
            rank = rank - step * unit[d]
            z[d] = z[d] + step
        return z

    @staticmethod
    def _after(order, extents):
        """For each dimension the product of the extents that come after it in `order`."""
        unit, product = {}, np.int64(1)
        for d in reversed(order):
            unit[d] = product
            product = product * extents[d]
        return unit

    @cached_property
    def _others(self):
        """For each share and level: of the shares that part from it there, how many have the same (before, step, length)."""
        table = []
        for p in range(self.shares):
            row = {}
            for o in range(self.shares):
                if o == p or not self.lengths[o]:
                    continue
                level = next(k for k, (a, b) in enumerate(zip(self.nodes[p], self.nodes[o], strict=True)) if a == b)
                key = (level, self.rank[o] < self.rank[p], self.chunk[o] * self.chunks[o][level], self.lengths[o])
                row[key] = row.get(key, 0) + 1
            table.append(row)
        return table

    def _place(self, share, rank):
        if self.shares == 1:
            return rank
        place = rank.copy() if isinstance(rank, np.ndarray) else np.array(rank)
        for p in np.unique(share):
            here = share == p
            mine = rank[here]
            q, total = mine // self.chunk[p], mine.copy()
            for (level, before, step, length), count in self._others[p].items():
                total += count * np.minimum(length, (q // self.chunks[p][level] + before) * step)
            place[here] = total
        return place

    @cached_property
    def _chunk_table(self):
        """Of all chunks, in the order of the file: first position, share, rank of the first element."""
        if sum(-(-n // c) for n, c in zip(self.lengths, self.chunk, strict=True)) > MOST_CHUNKS:
            raise LayoutError(f"{self.array}: more than {MOST_CHUNKS} chunks", "use larger caches or blocks")
        ranks = [np.arange(0, n, c, dtype=np.int64) for n, c in zip(self.lengths, self.chunk, strict=True)]
        owners = np.repeat(np.arange(self.shares), [len(r) for r in ranks])
        ranks = np.concatenate(ranks)
        starts = self._place(owners, ranks)
        order = np.argsort(starts, kind="stable")
        return starts[order], owners[order], ranks[order]

    def check(self, where):
        """Refuses a layout that does not cover the array exactly once."""
        dims = len(self.shape)
        fail = lambda what, step: LayoutError(f"{where}: {what}", step)
        if not dims or any(n <= 0 for n in self.shape) or self.item <= 0:
            raise fail(f"shape {list(self.shape)} with items of {self.item} bytes", "give sizes above 0")
        if self.bytes >= 1 << 62:
            raise fail(f"{self.bytes} bytes, more than a file holds", "correct the shape")
        for name in ("outer", "inner"):
            if sorted(getattr(self, name)) != list(range(dims)):
                raise fail(f"{name} = {list(getattr(self, name))} does not name each of {dims} dimensions once",
                           "the layout would not cover the array; plan it anew")  # fmt: skip
        if len(self.tiles) != dims or any(t <= 0 for t in self.tiles):
            raise fail(f"tiles = {list(self.tiles)}", f"give {dims} sizes above 0")
        if self.shear:
            d, factors = self.shear
            if not 0 <= d < dims or len(factors) != dims or factors[d] not in (1, -1):
                raise fail(f"shear = {self.shear}", "the factor of the sheared dimension has to be 1 or -1")
        shares, seen = 1, set()
        for split in self.splits:
            if not 0 <= split.dim < dims or split.dim in seen:
                raise fail(f"a split of dimension {split.dim}", f"split each of 0 to {dims - 1} at most once")
            seen.add(split.dim)
            n = self.shape[split.dim]
            if isinstance(split, Cuts):
                cuts = split.cuts
                if len(cuts) < 2 or cuts[0] != 0 or cuts[-1] != n or any(a > b for a, b in itertools.pairwise(cuts)):
                    raise fail(f"cuts {list(cuts)} do not cover 0 to {n} of dimension {split.dim}",
                               "they have to rise from 0 to the dimension's size")  # fmt: skip
                if sorted(split.order) != list(range(split.parts)):
                    raise fail(f"order {list(split.order)}", f"name each of {split.parts} parts once")
            elif split.chunk <= 0 or split.parts <= 0 or split.start < 0 or split.extent != n:
                raise fail(f"cyclic chunks of {split.chunk} for {split.parts} parts from {split.start}",
                           "chunk and parts have to be above 0, start not below")  # fmt: skip
            shares *= split.parts
        if shares > MOST_SHARES:
            raise fail(f"{shares} shares", f"at most {MOST_SHARES} are possible")
        stride = 1
        for split in sorted(self.splits, key=lambda s: (s.stride, s.parts)):
            if split.stride != stride:
                raise fail(
                    f"stride {split.stride} of dimension {split.dim}", f"it has to be {stride}: shares would collide"
                )
            stride *= split.parts
        if self.shares != shares:
            raise fail(f"{self.shares} shares in the pattern, {shares} in the splits", "plan the layout anew")
        for name in ("nodes", "chunks", "rank", "threads"):
            if len(getattr(self, name)) != shares:
                raise fail(f"{name} has {len(getattr(self, name))} entries", f"give one for each of {shares} shares")
        if sorted(self.rank) != list(range(shares)) or any(c <= 0 for c in self.chunk):
            raise fail("rank or chunk", "ranks are 0 to shares - 1, each once; chunks above 0")
        if any(c * w >= 1 << 61 for c, row in zip(self.chunk, self.chunks, strict=True) for w in row):
            raise fail("a pattern of more than 2^61 elements", "correct chunk and chunks")
        depth = len(self.nodes[0])
        if any(len(r) != depth for r in (*self.nodes, *self.chunks)) or len({r[-1] for r in self.nodes}) != 1:
            raise fail("nodes or chunks have rows of different lengths, or no common last node", "plan the layout anew")
        _check_pattern(self, fail)


def _check_pattern(layout, fail):
    """The pattern is a tree: each cache's shares stand side by side, below one cache of the next level."""
    order = sorted(range(layout.shares), key=lambda p: layout.rank[p])
    for level in range(len(layout.nodes[0])):
        runs = [layout.nodes[p][level] for p in order]
        if sum(a != b for a, b in itertools.pairwise(runs)) + 1 != len(set(runs)):
            raise fail(f"the shares of a cache of level {level + 1} do not stand side by side", "plan the layout anew")
    for p in range(layout.shares):
        row = layout.chunks[p]
        if row[0] != 1 or any(a <= 0 or b % a for a, b in itertools.pairwise(row)):
            raise fail(f"chunks {list(row)} of share {p}", "each level holds whole patterns of the one below, from 1")
    for level in range(1, len(layout.nodes[0])):
        for p, o in itertools.pairwise(order):
            if layout.nodes[p][level - 1] != layout.nodes[o][level - 1]:
                continue
            if layout.nodes[p][level] != layout.nodes[o][level]:
                raise fail(f"shares {p} and {o} share a cache, but not the one above", "plan the layout anew")
            if (
                layout.chunks[p][level] * layout.chunks[o][level - 1]
                != layout.chunks[o][level] * layout.chunks[p][level - 1]
            ):
                raise fail(f"shares {p} and {o} of one cache are repeated differently", "plan the layout anew")


def tiled(array, outer=None, tiles=None, inner=None):
    """One share, in tiles; without arguments the C order."""
    dims = tuple(range(len(array.shape)))
    outer = tuple(dims if outer is None else outer)
    tiles = tuple(array.shape if tiles is None else tiles)
    return Layout(array.name, tuple(array.shape), array.item, tiles=tiles, outer=outer,
                  inner=tuple(outer if inner is None else inner), chunk=(array.elements,))  # fmt: skip


# The file.


def dump(layouts):
    """Layouts as TOML."""
    lines = ["# File layouts, made by `penstock layout plan` (docs/use/layout.md).", f"format = {FORMAT}"]
    for layout in layouts:
        rows = lambda table: "[" + ", ".join(str(list(row)) for row in table) + "]"
        lines += [
            "", "[[layout]]", f'array = "{layout.array}"', f"shape = {list(layout.shape)}", f"item = {layout.item}",
            f"tiles = {list(layout.tiles)}", f"outer = {list(layout.outer)}", f"inner = {list(layout.inner)}",
        ]  # fmt: skip
        if layout.shear:
            lines.append(f"shear = {{ dim = {layout.shear[0]}, factors = {list(layout.shear[1])} }}")
        lines += [f"chunk = {list(layout.chunk)}", f"rank = {list(layout.rank)}", f"nodes = {rows(layout.nodes)}",
                  f"chunks = {rows(layout.chunks)}", f"threads = {rows(layout.threads)}"]  # fmt: skip
        for split in layout.splits:
            lines += ["", "[[layout.split]]", f"dim = {split.dim}", f"stride = {split.stride}"]
            if isinstance(split, Cuts):
                lines += [f"cuts = {list(split.cuts)}", f"order = {list(split.order)}"]
            else:
                lines += [f"chunk = {split.chunk}", f"parts = {split.parts}", f"start = {split.start}"]
    return "\n".join(lines) + "\n"


def load(path):
    """The layouts in a file, each checked to cover its array."""
    return parse(read_text(path), str(path))


def parse(text, name):
    """As `load`, from text."""
    top = load_toml(text, name)
    known(top, ("format", "layout"), name)
    if top.get("format") != FORMAT:
        raise LayoutError(f"{name}: format = {top.get('format')!r}; this version reads {FORMAT}",
                          "name a file that `penstock layout plan` wrote")  # fmt: skip
    layouts = []
    for k, row in enumerate(tables(top, "layout", name)):
        where = f"{name}: layout {k + 1}"
        keys = (
            "array",
            "shape",
            "item",
            "tiles",
            "outer",
            "inner",
            "shear",
            "chunk",
            "rank",
            "nodes",
            "chunks",
            "threads",
        )
        known(row, (*keys, "split"), where)
        missing = next((key for key in keys if key not in row and key != "shear"), None)
        if missing:
            raise LayoutError(f"{where}: {missing} is missing", "plan the layout anew")
        if not isinstance(row["array"], str) or not row["array"].isidentifier():
            raise LayoutError(f"{where}: array = {row['array']!r} is no name", 'write array = "A"')
        try:
            layout = _layout(row)
        except (TypeError, KeyError, ValueError, AttributeError) as e:
            raise LayoutError(f"{where}: not of the form that plan writes: {e}", "plan the layout anew") from e
        layout.check(where)
        layouts.append(layout)
    if not layouts:
        raise LayoutError(f"{name}: no [[layout]]", "name a file that `penstock layout plan` wrote")
    return layouts


def _number(value):
    if not isinstance(value, int) or isinstance(value, bool) or abs(value) >= 1 << 62:
        raise ValueError(f"{value!r} is no whole number below 2^62")
    return value


def _numbers(row):
    return tuple(_number(v) for v in row)


def _layout(row):
    shape = _numbers(row["shape"])
    splits = []
    for s in row.get("split", []):
        if "cuts" in s:
            splits.append(Cuts(_number(s["dim"]), _numbers(s["cuts"]), _number(s["stride"]), _numbers(s["order"])))
        else:
            dim = _number(s["dim"])
            extent = shape[dim] if 0 <= dim < len(shape) else 0
            splits.append(Cyclic(dim, _number(s["chunk"]), _number(s["parts"]), _number(s["start"]),
                                 _number(s["stride"]), extent))  # fmt: skip
    shear = row.get("shear", ())
    if shear:
        shear = (_number(shear["dim"]), _numbers(shear["factors"]))
    return Layout(
        row["array"], shape, _number(row["item"]), shear, tuple(splits), _numbers(row["tiles"]),
        _numbers(row["outer"]), _numbers(row["inner"]), _numbers(row["chunk"]),
        tuple(_numbers(r) for r in row["nodes"]), tuple(_numbers(r) for r in row["chunks"]), _numbers(row["rank"]),
        tuple(_numbers(r) for r in row["threads"]),
    )  # fmt: skip


def pick(layouts, name, path):
    """The layout of the array `name`; without a name the only one."""
    if name is None and len(layouts) == 1:
        return layouts[0]
    found = [layout for layout in layouts if layout.array == name]
    if not found:
        names = ", ".join(layout.array for layout in layouts)
        what = "several arrays" if name is None else f"no layout of {name}"
        raise LayoutError(f"{path}: {what}; it has {names}", "choose one with --array")
    return found[0]
