"""Simulated storage caches: the threads' accesses go through LRU caches at each level, then to a disk.

Threads take turns, one access each, until the nest ends; nests end together. Accesses of one reference that stay in a
block are one access. A miss brings the block into each cache on its way. Writes allocate like reads; what write-back
costs is left out. A thread waits for each access as long as the level that serves it takes; caches and disks serve any
number at once. All times are parameters.
"""

from dataclasses import dataclass, field

import numpy as np


@dataclass(frozen=True)
class Costs:
    """Milliseconds: a hit at each level (the nearest first; the last value for those above), and a disk access."""

    hits: tuple = (0.1, 0.4)
    disk: float = 4.0

    def of(self, level):
        """A hit at a level."""
        return self.hits[min(level, len(self.hits) - 1)]


@dataclass
class Outcome:
    """What a program's accesses cost: time of the slowest threads, and how many each level served (the disk last)."""

    milliseconds: float = 0.0
    served: list = field(default_factory=list)


def stream(nest, layouts, thread, block, numbers):
    """A thread's accesses in a nest, as numbers of blocks of `block` bytes; arrays lie far apart."""
    values = nest.iterations(thread)
    points = len(next(iter(values.values())))
    if not points:
        return np.empty(0, np.int64)
    seen, order = [], []
    for k, ref in enumerate(nest.references):
        layout = layouts[ref.array.name]
        index = [np.broadcast_to(s.at(values), points) for s in ref.subscripts]
        where = (layout.position(index) * layout.item) // block + (numbers[ref.array.name] << 40)
        new = np.concatenate([[True], where[1:] != where[:-1]])
        seen.append(where[new])
        order.append(np.flatnonzero(new) * len(nest.references) + k)
    merged = np.argsort(np.concatenate(order), kind="stable")
    return np.concatenate(seen)[merged]


def simulate(program, layouts, hierarchy, costs=None):
    """Runs a program with arrays in `layouts` (by name) through a hierarchy."""
    costs = costs or Costs()
    small = min(level.block for level in hierarchy.levels)
    numbers = {array.name: k for k, array in enumerate(program.arrays)}
    caches = [[{} for _ in range(level.caches)] for level in hierarchy.levels]
    rooms = [level.capacity // level.block for level in hierarchy.levels]
    paths = hierarchy.paths()
    outcome = Outcome(served=[0] * (len(hierarchy.levels) + 1))
    streams = {}
    for _ in range(program.repeat):
        for number, nest in enumerate(program.nests):
            if number not in streams:
                count = nest.threads
                streams[number] = [stream(nest, layouts, t, small, numbers).tolist() for t in range(count)]
            for _ in range(nest.repeat):
                outcome.milliseconds += _run(streams[number], hierarchy, caches, rooms, paths, small, costs, outcome)
    return outcome


def _run(streams, hierarchy, caches, rooms, paths, small, costs, outcome):
    """One nest; the time of its slowest thread."""
    levels = [
        (level.block // small if level.block % small == 0 else level.block / small, level.striped)
        for level in hierarchy.levels
    ]
    served, times = outcome.served, [0.0] * len(streams)
    prices = [costs.of(k) for k in range(len(levels))] + [costs.disk]
    depth = len(levels)
    ways = []
    for thread in range(len(streams)):
        ways.append([
            (k, levels[k][0], levels[k][1], None if levels[k][1] else caches[k][paths[thread][k]], caches[k], rooms[k])
            for k in range(depth)
        ])  # fmt: skip
    longest = max(map(len, streams), default=0)
    alive = list(range(len(streams)))
    for turn in range(longest):
        alive = [t for t in alive if turn < len(streams[t])]
        for thread in alive:
            address = streams[thread][turn]
            hit = depth
            for k, ratio, striped, own, all_of, room in ways[thread]:
                key = int(address // ratio)
                cache = all_of[key % striped] if striped else own
                if key in cache:
                    del cache[key]
                    cache[key] = None
                    hit = k
                    break
                if len(cache) >= room:
                    del cache[next(iter(cache))]
                cache[key] = None
            served[hit] += 1
            times[thread] += prices[hit]
    return max(times, default=0.0)
