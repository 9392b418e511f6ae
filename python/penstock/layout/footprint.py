"""Block footprint: how many distinct blocks of each cache level hold a thread's share (IT section 4, figure 16).

In the file a share is a loop nest: rounds of the whole pattern, repetitions of each cache's pattern within, chunks. The
blocks that such a nest touches are counted without visiting its elements. The blocks of one level depend on its start modulo
the block, so starts repeat with a period. Rounds in which some share has ended already are counted chunk by chunk.
"""

from dataclasses import dataclass
from math import gcd

import numpy as np

from .errors import LayoutError
from .form import Cuts

#: Elements that are counted one by one at most.
MOST_COUNTED = 1 << 26


@dataclass(frozen=True)
class Runs:
    """Runs of `length` bytes at start + a stride per loop; loops as (count, stride), ascending without overlap."""

    start: int
    loops: tuple
    length: int

    @property
    def last(self):
        """The last byte."""
        return self.start + sum((n - 1) * s for n, s in self.loops) + self.length - 1


def blocks_of(runs, block):
    """Distinct blocks of `block` bytes that runs touch."""
    loops = [(n, s) for n, s in runs.loops if n > 1]
    ends = [runs.length - 1]
    for n, s in reversed(loops):
        ends.insert(0, ends[0] + (n - 1) * s)
    seen = {}

    def count(level, start):
        start %= block
        if level == len(loops):
            return (start + runs.length - 1) // block + 1
        if (level, start) in seen:
            return seen[level, start]
        n, stride = loops[level]
        period = block // gcd(stride, block)

        def each(k):
            return count(level + 1, start + k * stride)

        def joined(k):
            # The last block of one round is the first of the next.
            return (start + k * stride + ends[level + 1]) // block == (start + (k + 1) * stride) // block

        total = _periodic(each, n, period) - _periodic(joined, n - 1, period)
        seen[level, start] = total
        return total

    return count(0, runs.start)


def _periodic(value, n, period):
    """The sum of value(0) to value(n - 1), where value(k + period) = value(k)."""
    if n <= period:
        return sum(value(k) for k in range(n))
    rounds, rest = divmod(n, period)
    first = [value(k) for k in range(period)]
    return rounds * sum(first) + sum(first[:rest])


def share_runs(layout, share):
    """A share in its file: the regular part as one nest of loops (or None), the chunks after it as (starts, ends)."""
    if not layout.lengths[share]:
        return None, (np.empty(0, np.int64), np.empty(0, np.int64))
    item, c, held = layout.item, layout.chunk[share], layout.chunks[share]
    alive = [p for p in range(layout.shares) if layout.lengths[p]]
    rounds = min(layout.lengths[p] // (layout.chunk[p] * layout.chunks[p][-1]) for p in alive)
    regular = None
    if rounds:
        # Sizes of the patterns of the caches that serve the share, and where its own part begins in each.
        loops, start = [], 0
        for level in range(len(held) - 1, -1, -1):
            below = [p for p in alive if layout.nodes[p][level] == layout.nodes[share][level]]
            size = sum(layout.chunk[p] * layout.chunks[p][level] for p in below)
            times = rounds if level == len(held) - 1 else held[level + 1] // held[level]
            loops.append((times, size * item))
            for p in below:
                same = layout.nodes[p][level - 1] == layout.nodes[share][level - 1] if level else p == share
                if layout.rank[p] < layout.rank[share] and not same:
                    start += layout.chunk[p] * layout.chunks[p][level]
        regular = Runs(start * item, tuple(loops), c * item)
    first = rounds * c * held[-1]
    ranks = np.arange(first, layout.lengths[share], c, dtype=np.int64)
    starts = layout._place(np.full(len(ranks), share), ranks)
    ends = starts + np.minimum(c, layout.lengths[share] - ranks)
    return regular, (starts * item, ends * item)


def closed_form(layout, share, block):
    """Distinct blocks of a share in its file."""
    regular, (starts, ends) = share_runs(layout, share)
    total, last = 0, -1
    if regular is not None:
        total, last = blocks_of(regular, block), regular.last // block
    if len(starts):
        firsts, lasts = starts // block, (ends - 1) // block
        before = np.concatenate([[last], lasts[:-1]])
        total += int(np.sum(lasts - firsts + 1) - np.sum(firsts == before))
    return total


def plain_closed_form(layout, share, block):
    """The same for the array in C order; None where the share is no box of it (skewed, or dealt in turn)."""
    if layout.shear or not all(isinstance(s, Cuts) for s in layout.splits):
        return None
    if not layout.lengths[share]:
        return 0
    stride, loops, start, run = layout.item, [], 0, layout.item
    corner = {s.dim: s.cuts[s.order.index(share // s.stride % s.parts)] for s in layout.splits}
    for d in range(len(layout.shape) - 1, -1, -1):
        m = layout.extents[share][d]
        start += corner.get(d, 0) * stride
        if run == stride and not loops:
            run = stride * m
        else:
            loops.insert(0, (m, stride))
        stride *= layout.shape[d]
    return blocks_of(Runs(start, tuple(loops), run), block)


def counted(layout, block, plain=False):
    """Distinct blocks of each share, by looking at every element; `plain` counts the array in C order."""
    if layout.elements > MOST_COUNTED:
        raise LayoutError(f"{layout.array} has {layout.elements} elements; at most {MOST_COUNTED} are counted",
                          "count a smaller instance; the closed form needs no counting")  # fmt: skip
    here = np.arange(layout.elements, dtype=np.int64)
    index = np.unravel_index(here, layout.shape)
    owner = layout.owner(index)
    first = (here if plain else layout.position(index)) * layout.item
    # Elements that are larger than a block, or lie across its end.
    blocks = [(first + k) // block for k in range(0, layout.item, block)] + [(first + layout.item - 1) // block]
    return [len(np.unique(np.concatenate([b[owner == share] for b in blocks]))) for share in range(layout.shares)]


def table(layout, hierarchy, count=False):
    """Rows (level, share, blocks in C order or None, blocks in the layout); with `count` both are counted, and differ never."""
    rows = []
    for level in hierarchy.levels:
        for share in range(layout.shares):
            rows.append((level, share, plain_closed_form(layout, share, level.block),
                         closed_form(layout, share, level.block)))  # fmt: skip
    if count:
        per_block = {
            level.block: (counted(layout, level.block, True), counted(layout, level.block))
            for level in hierarchy.levels
        }
        for k, (level, share, before, after) in enumerate(rows):
            plain, laid = per_block[level.block][0][share], per_block[level.block][1][share]
            if after != laid or before not in (None, plain):
                raise LayoutError(f"{layout.array}, share {share}, blocks of {level.block}: the closed form says "
                                  f"{before} and {after}, counting {plain} and {laid}", "report this")  # fmt: skip
            rows[k] = (level, share, plain, laid)
    return rows
