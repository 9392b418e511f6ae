"""An order within shares that suits all references to an array (ours; the source follows the most significant nest alone).

Where references cross a share in different directions, square tiles of about a block serve each of them. The cost of
orders and tiles is the number of blocks that the nests load into a thread's part of its first cache. Per reference, the
largest inner part of the nest whose blocks fit there keeps them; the loops around it load them again.
"""

from itertools import combinations, permutations
from math import prod

#: Another order has to save this part of the blocks.
LEAST_GAIN = 0.02
#: All permutations up to this many dimensions; beyond, the ones that nests have.
PERMUTED = 3


def choose(array, extents, nests, block, room, start):
    """The best (tiles, outer, inner) for an array, at first `start`.

    `extents` are those of the array, `room` the blocks that a thread may keep. `nests` is a list of (weight, loops), where
    loops is a list of (trips, steps per dimension) from the outermost.
    """
    item = array.item
    best, least = start, price(start, extents, nests, item, block, room)
    for order in _candidates(extents, nests, item, block, start):
        cost = price(order, extents, nests, item, block, room)
        if cost < least * (1 - LEAST_GAIN):
            best, least = order, cost
    return best


def _candidates(extents, nests, item, block, start):
    dims = range(len(extents))
    orders = [start[1]]
    if len(extents) <= PERMUTED:
        orders += permutations(dims)
    for _, loops in nests:
        driver = {d: max((k for k, (_, steps) in enumerate(loops) if steps[d]), default=len(loops)) for d in dims}
        orders.append(tuple(sorted(dims, key=lambda d: driver[d])))
    full = tuple(max(1, n) for n in extents)
    targets = sorted({max(1, block // item) * k for k in (1, 4, 16)})
    for order in dict.fromkeys(map(tuple, orders)):
        yield full, order, order
        for target in targets:
            for pair in combinations(dims, 2):
                a = 2
                while a < target:
                    tiles = list(full)
                    for d, t in zip(pair, (a, target // a), strict=True):
                        tiles[d] = min(full[d], t)
                    for rest in (1, None):
                        # What is not of the pair stays whole, or is one element thick.
                        shape = tuple(t if d in pair or rest is None else 1 for d, t in enumerate(tiles))
                        if len(extents) > 2 or rest is None:
                            yield shape, order, order
                    a *= 2
            if len(extents) > 2:
                side = max(1, round(target ** (1 / len(extents))))
                yield tuple(min(n, side) for n in full), order, order


def price(order, extents, nests, item, block, room):
    """Blocks that the nests load with this order."""
    total = 0
    for weight, loops in nests:
        widths, loaded = [1] * len(extents), 1
        for k in range(len(loops) - 1, -1, -1):
            if loaded > room:
                # What is within this loop does not stay: each iteration loads it.
                loaded *= prod(trips for trips, _ in loops[: k + 1])
                break
            trips, steps = loops[k]
            widths = [min(n, w + s * (trips - 1)) for w, s, n in zip(widths, steps, extents, strict=True)]
            loaded = blocks(order, extents, widths, item, block)
        total += weight * loaded
    return total


def blocks(order, extents, widths, item, block):
    """About how many blocks a box of `widths` touches in a share."""
    tiles, outer, inner = order
    loops, unit = [], item
    for d in reversed(inner):
        loops.append((min(widths[d], tiles[d]), unit))
        unit *= min(tiles[d], extents[d])
    for j, d in enumerate(outer):
        before = prod(min(tiles[e], extents[e]) for e in outer[:j])
        after = prod(extents[e] for e in outer[j + 1 :])
        loops.append((-(-widths[d] // tiles[d]), item * before * after * tiles[d]))
    count, span = 1, item
    for n, stride in sorted(loops, key=lambda loop: loop[1]):
        if n > 1:
            span += (n - 1) * stride
            count = count * n if stride >= block else min(count * n, max(count, -(-span // block)))
    return count
