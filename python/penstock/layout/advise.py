"""Chunk shapes for HDF5 and Zarr, and striping units, from a trace of what a program did to a plain array.

Cost of a chunk shape: the bytes that its chunks move when each rank repeats its calls through a cache of whole chunks.
The cache evicts the least recently used chunk. HDF5's cache is 1 MiB a data set by default, and larger chunks are not cached; Zarr has
none. A chunk at the array's edge has full size.

The search starts from shapes that the calls suggest (their boxes, whole rows, cubes). It also starts from the shapes that
are best without a cache and with an unbounded one, whose cost needs no simulation of a cache. From there it halves or doubles
dimensions as long as that saves bytes. It computes the cost of some tens of shapes, where there may be thousands.
"""

import csv
import io
import os
import re
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from itertools import product
from math import prod
from pathlib import Path

import numpy as np

from .errors import LayoutError

#: Bytes of a chunk: less costs requests, more costs memory.
LEAST_CHUNK, MOST_CHUNK = 16 << 10, 16 << 20
HDF5_CACHE = 1 << 20
LEAST_UNIT, MOST_UNIT = 64 << 10, 16 << 20
MOST_EVENTS = 20_000_000
#: Calls that shapes are priced with: the first ones of each rank.
MOST_CALLS = 4096
#: Shapes of each outlook that are priced, and how many of them are starts.
OUTLOOK, DESCENTS = 16, 4
COLUMNS = ("at_ns", "request", "kind", "op", "file", "offset", "bytes", "rank", "mpi_call", "client_call")


@dataclass(frozen=True)
class Call:
    """One call of one rank: boxes (first, past the last) of elements, and the longest contiguous bytes."""

    rank: int
    boxes: tuple
    run: int


def traces(path):
    """The trace files that `path` names: itself, or the data servers' in a directory."""
    path = Path(path)
    if path.is_dir():
        found = sorted(path.glob("data-*.trace")) or sorted(path.glob("*.csv"))
        if not found:
            raise LayoutError(f"{path}: no data-N.trace in it", "make one with `penstock run --trace DIR`")
        return found
    if not path.exists():
        raise LayoutError(f"{path}: no such trace", "make one with `penstock run --trace DIR`")
    return [path]


def events(path):
    """(server, servers, stripe unit or None, rows of a trace): CSV as `penstock trace show --csv` prints it, or the trace."""
    if path.suffix == ".csv":
        try:
            text = path.read_text()
        except (OSError, UnicodeDecodeError) as e:
            raise LayoutError(f"cannot read {path}: {e}") from e
        return 0, 1, None, _rows(text, path)
    command = os.environ.get("PENSTOCK_COMMAND", "penstock")
    answers = []
    for form in ("--json", "--csv"):
        try:
            done = subprocess.run([command, "trace", "show", form, path], capture_output=True, text=True, check=False)
        except OSError as e:
            raise LayoutError(f"cannot run {command}: {e.strerror}", "name the command with PENSTOCK_COMMAND") from e
        if done.returncode:
            raise LayoutError(f"{path}: {done.stderr.strip() or 'damaged or cut short'}",
                              "`penstock trace merge --partial` takes what is readable")  # fmt: skip
        answers.append(done.stdout)
    import json

    head = json.loads(answers[0])
    return head["server"], head["servers"], head["unit"], _rows(answers[1], path)


def _rows(text, path):
    reader = csv.reader(io.StringIO(text))
    head = next(reader, None)
    missing = [c for c in COLUMNS if c not in (head or ())]
    if missing:
        raise LayoutError(f"{path}: no column {missing[0]}", "name a trace, or what `penstock trace show --csv` prints")
    places = [head.index(c) for c in COLUMNS]
    rows = []
    for number, row in enumerate(reader, 2):
        if len(rows) >= MOST_EVENTS:
            raise LayoutError(f"{path}: more than {MOST_EVENTS} events", "trace a shorter run")
        if len(row) != len(head):
            raise LayoutError(f"{path}:{number}: {len(row)} fields in place of {len(head)}: cut short?", "trace again")
        picked = [row[p] for p in places]
        if picked[2] != "arrival":
            continue
        try:
            rows.append((int(picked[0]), picked[3], *map(int, picked[4:])))
        except ValueError as e:
            raise LayoutError(f"{path}:{number}: {e}", "trace again") from e
    return rows


def accesses(path, shape, item, file=None, begin=0, start=None, op=None):
    """(calls in order, operation, file number) of the accesses to an array of `shape` that begins at byte `begin`."""
    pieces, servers, unit = [], 1, None
    for trace in traces(path):
        server, servers, unit, rows = events(trace)
        pieces += [
            (at, o, f, server, offset, size, rank, mpi or client) for at, o, f, offset, size, rank, mpi, client in rows
        ]
    if not pieces:
        raise LayoutError(f"{path}: no requests in it", "trace a run that reads or writes")
    moved = defaultdict(int)
    for p in pieces:
        moved[p[2]] += p[5]
    file = max(moved, key=moved.get) if file is None else file
    if file not in moved:
        raise LayoutError(f"{path}: nothing about file {file}; it has {', '.join(map(str, sorted(moved)))}",
                          "choose one with --file")  # fmt: skip
    pieces = [p for p in pieces if p[2] == file]
    ops = {p[1] for p in pieces}
    op = op or ("read" if "read" in ops else "write")
    pieces = sorted(p for p in pieces if p[1] == op)
    if not pieces:
        raise LayoutError(f"{path}: file {file} has no {op}", "choose another --op")
    whole = prod(shape) * item
    runs = _in_file(pieces, servers, unit, whole, begin, start, path)
    calls = defaultdict(list)
    for (_, _, _, _, _, _, rank, call), spans in zip(pieces, runs, strict=True):
        calls[rank, call].extend(spans)
    result = []
    for (rank, _), spans in calls.items():
        spans = _joined(spans)
        result.append(Call(rank, boxes(spans, shape, item), max(b - a for a, b in spans)))
    return result, op, file


def _in_file(pieces, servers, unit, whole, begin, start, path):
    """The spans of bytes, from the array's begin, of each piece of an object."""
    if servers > 1 and start is None:
        # Where the file begins is not in the trace: the place from which all lies within the array and joins best.
        tries = {}
        for guess in range(servers):
            spans = [s for p in pieces[:5000] for s in _spans(p, servers, unit, guess, begin)]
            if all(0 <= a and b <= whole for a, b in spans):
                tries[guess] = len(_joined(spans))
        if not tries:
            raise LayoutError(f"{path}: accesses outside of an array of {whole} bytes at {begin}",
                              "correct --shape, --item and --begin, or choose another --file")  # fmt: skip
        start = min(tries, key=tries.get)
    result = []
    for p in pieces:
        spans = _spans(p, servers, unit, start or 0, begin)
        if any(a < 0 or b > whole for a, b in spans):
            raise LayoutError(f"{path}: an access to bytes {spans[0][0]} to {spans[-1][1]} of an array of {whole} bytes",
                              "correct --shape, --item and --begin, or choose another --file")  # fmt: skip
        result.append(spans)
    return result


def _spans(piece, servers, unit, start, begin):
    _, _, _, server, offset, size, _, _ = piece
    if servers == 1 or unit is None:
        return [(offset - begin, offset + size - begin)]
    place, spans = (server - start) % servers, []
    while size > 0:
        here = min(size, unit - offset % unit)
        first = (offset // unit * servers + place) * unit + offset % unit - begin
        spans.append((first, first + here))
        offset, size = offset + here, size - here
    return spans


def _joined(spans):
    joined = []
    for a, b in sorted(spans):
        if joined and a <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], b)
        else:
            joined.append([a, b])
    return joined


def boxes(spans, shape, item):
    """Spans of bytes as boxes of elements: one if they fill it, else one for each row that a span touches."""
    elements = [(a // item, -(-b // item)) for a, b in spans]
    first = np.unravel_index([a for a, _ in elements], shape)
    last = np.unravel_index([b - 1 for _, b in elements], shape)
    low, high = [], []
    for d in range(len(shape)):
        # A span that leaves its row passes over all of the dimensions below.
        passes = np.zeros(len(elements), dtype=bool)
        for e in range(d):
            passes |= first[e] != last[e]
        low.append(0 if passes.any() else int(min(first[d].min(), last[d].min())))
        high.append(shape[d] if passes.any() else int(max(first[d].max(), last[d].max())) + 1)
    if prod(h - lo for lo, h in zip(low, high, strict=True)) == sum(b - a for a, b in elements):
        return ((tuple(low), tuple(high)),)
    rows = []
    for a, b in elements:
        while a < b:
            row_end = min(b, (a // shape[-1] + 1) * shape[-1])
            index = tuple(int(v) for v in np.unravel_index(a, shape))
            rows.append((index, (*(v + 1 for v in index[:-1]), index[-1] + row_end - a)))
            a = row_end
    return tuple(rows)


def cost(calls, shape, item, chunk, cache):
    """Bytes of chunks moved, through a cache of `cache` bytes a rank."""
    size = prod(chunk) * item
    grid = [-(-n // c) for n, c in zip(shape, chunk, strict=True)]
    strides = [prod(grid[d + 1 :]) for d in range(len(grid))]
    room = cache // size
    total, caches = 0, defaultdict(dict)
    for call in calls:
        touched = [
            [range(lo // c, (h - 1) // c + 1) for lo, h, c in zip(low, high, chunk, strict=True)]
            for low, high in call.boxes
        ]
        if not room and len(touched) == 1:
            total += prod(map(len, touched[0]))
            continue
        # In the order of the file, each chunk once a call.
        keys = dict.fromkeys(
            sum(k * s for k, s in zip(key, strides, strict=True)) for box in touched for key in product(*box)
        )
        if not room:
            total += len(keys)
            continue
        held = caches[call.rank]
        for key in keys:
            if key in held:
                del held[key]
            else:
                total += 1
                if len(held) >= room:
                    del held[next(iter(held))]
            held[key] = None
    return total * size


def sizes(n):
    """Powers of two below n, and n."""
    return [*(1 << k for k in range(n.bit_length()) if 1 << k < n), n]


def allowed(shape, item):
    """Limits of a chunk's bytes: those of the module, at most a million chunks; an array may be smaller than one."""
    whole = prod(shape) * item
    least = min(max(LEAST_CHUNK, whole >> 20), whole)
    return least, max(MOST_CHUNK, least, item)


def brute_force(calls, shape, item, cache):
    """(bytes, chunk) of the best of all shapes of powers of two and whole dimensions."""
    least, most = allowed(shape, item)
    fits = (c for c in product(*map(sizes, shape)) if least <= prod(c) * item <= most)
    return min((cost(calls, shape, item, c, cache), -prod(c), c) for c in fits)[::2]


def chunk_for(calls, shape, item, cache):
    """(bytes, chunk) of a shape found by descent from several starts."""
    least, most = allowed(shape, item)
    steps = [sizes(n) for n in shape]
    calls = calls[:MOST_CALLS]
    priced = {}

    def price(at):
        if at not in priced:
            chunk = tuple(s[k] for s, k in zip(steps, at, strict=True))
            size = prod(chunk) * item
            # Equal bytes: fewer chunks are fewer requests.
            priced[at] = (cost(calls, shape, item, chunk, cache), -size) if least <= size <= most else None
        return priced[at]

    found = []
    starts = [at for at in dict.fromkeys(_starts(calls, shape, item, steps, least, most)) if price(at) is not None]
    outlook = [at for at in _outlook(calls, item, steps, least, most) if price(at) is not None]
    for at in dict.fromkeys([*starts, *sorted(outlook, key=price)[:DESCENTS]]):
        while True:
            better = [n for n in _neighbours(at, steps) if price(n) is not None and price(n) < price(at)]
            if not better:
                break
            at = min(better, key=price)
        found.append((price(at), at))
    (bytes_, _), at = min(found)
    return bytes_, tuple(s[k] for s, k in zip(steps, at, strict=True))


def _outlook(calls, item, steps, least, most):
    """Shapes that move the fewest bytes without a cache, and with one that keeps all; the better half of each first."""
    low = np.array([low for call in calls for low, _ in call.boxes])
    high = np.array([high for call in calls for _, high in call.boxes])
    ranks = np.array([call.rank for call in calls for _ in call.boxes])
    touched, distinct = [], []
    for d, row in enumerate(steps):
        first, last = [low[:, d] // c for c in row], [(high[:, d] - 1) // c for c in row]
        touched.append([b - a + 1 for a, b in zip(first, last, strict=True)])
        distinct.append([_distinct(a, b, ranks) for a, b in zip(first, last, strict=True)])
    without, boundless = [], []
    for at in product(*(range(len(row)) for row in steps)):
        size = prod(row[k] for row, k in zip(steps, at, strict=True)) * item
        if least <= size <= most:
            counts = prod(touched[d][k] for d, k in enumerate(at))
            without.append((int(np.sum(counts)) * size, at))
            boundless.append((int(np.sum(prod(distinct[d][k] for d, k in enumerate(at)))) * size, at))
    for prices in (without, boundless):
        yield from (at for _, at in sorted(prices)[:OUTLOOK])


def _distinct(first, last, ranks):
    """How many chunks of a dimension each rank touches: an array."""
    counts = []
    for rank in np.unique(ranks):
        order = np.argsort(first[ranks == rank], kind="stable")
        a, b = first[ranks == rank][order], np.maximum.accumulate(last[ranks == rank][order])
        counts.append(int(np.sum(np.maximum(0, b - np.maximum(a - 1, np.concatenate([[-1], b[:-1]]))))))
    return np.array(counts)


def _neighbours(at, steps):
    """One dimension halved or doubled, or one halved and another doubled."""
    dims = range(len(at))
    moves = [{d: s} for d in dims for s in (1, -1)]
    moves += [{d: 1, e: -1} for d in dims for e in dims if d != e]
    for move in moves:
        there = tuple(k + move.get(d, 0) for d, k in enumerate(at))
        if all(0 <= k < len(s) for k, s in zip(there, steps, strict=True)):
            yield there


def _starts(calls, shape, item, steps, least, most):
    """The median box of the calls, whole rows and columns, a cube; each brought between the limits."""
    dims = range(len(shape))
    spans = np.array([[h - lo for lo, h in zip(*box, strict=True)] for call in calls for box in call.boxes[:16]])
    wanted = [tuple(int(v) for v in np.median(spans, axis=0)), tuple(int(v) for v in spans.max(axis=0))]
    wanted += [tuple(n if d == e else 1 for e, n in enumerate(shape)) for d in dims]
    wanted.append((max(1, int(round((1 << 20) / item) ** (1 / len(shape)))),) * len(shape))
    for shape_wanted in dict.fromkeys(wanted):
        at = [max((k for k, v in enumerate(s) if v <= w), default=0) for s, w in zip(steps, shape_wanted, strict=True)]
        size = lambda: prod(s[k] for s, k in zip(steps, at, strict=True)) * item  # noqa: B023
        while size() > most:
            d = max(dims, key=lambda d: steps[d][at[d]])
            at[d] -= 1
        for d in reversed(dims):
            while size() < least and at[d] + 1 < len(steps[d]):
                at[d] += 1
        yield tuple(at)


def unit_for(calls, chunk_bytes=None):
    """A striping unit: the median contiguous bytes of a call (or a chunk) as the next power of two, within limits."""
    want = chunk_bytes or int(np.median([call.run for call in calls]))
    return min(MOST_UNIT, max(LEAST_UNIT, 1 << max(0, want - 1).bit_length()))


def dimensions(text):
    """A shape such as 512x512x64."""
    if not re.fullmatch(r"\d+(x\d+)*", text) or any(int(n) < 1 for n in text.split("x")):
        raise LayoutError(f"--shape {text}: no shape", "write the sizes of the dimensions, slowest first: 512x512x64")
    shape = tuple(int(n) for n in text.split("x"))
    if prod(shape) >= 1 << 58 or len(shape) > 8:
        raise LayoutError(f"--shape {text}: more than 2^58 elements or 8 dimensions", "correct the shape")
    return shape
