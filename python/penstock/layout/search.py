"""Exhaustive search, to measure plans by: index permutations x power-of-two tiles of each array.

The cost is the time of the simulated caches (caches.py). The arrays of a program are searched one after the other, the
others in their planned layouts; for one array the search is exhaustive.
"""

from itertools import permutations, product

from .caches import simulate
from .form import tiled


def candidates(array):
    """All layouts of the search: an order of the dimensions, for tiles and within them, and a tile for each dimension."""
    tiles = []
    for n in array.shape:
        sizes = [1 << k for k in range(n.bit_length()) if 1 << k < n]
        tiles.append([*sizes, n])
    seen = set()
    for order in permutations(range(len(array.shape))):
        for sizes in product(*tiles):
            layout = tiled(array, order, sizes)
            # A tile of one element or of all is no tile.
            if layout not in seen:
                seen.add(layout)
                yield layout


def search(program, hierarchy, planned, costs=None, limit=None):
    """(ours, best, its layouts) in milliseconds. `planned` are layouts by name; `limit` bounds the candidates of an array."""
    ours = simulate(program, planned, hierarchy, costs).milliseconds
    best, chosen = ours, dict(planned)
    for array in program.arrays:
        for number, layout in enumerate(candidates(array)):
            if limit is not None and number >= limit:
                break
            cost = simulate(program, {**chosen, array.name: layout}, hierarchy, costs).milliseconds
            if cost < best:
                best, chosen = cost, {**chosen, array.name: layout}
    return ours, best, chosen
