"""Both steps for all arrays of a program: owners (partition.py), order within a share, pattern by caches (step 2).

Defined here, because the source leaves it open:

    more than two threads a cache   k shares below a cache of capacity S have S / k each, rounded down to whole blocks
    deeper levels                   each of k caches' patterns is repeated while it fits into S / k, at least once
    unequal shares, ragged ends     a share that has ended is left out of the rest of the file; its last chunk is short
    threads without data            do not count in k
    caches side by side at the top  stand side by side in the pattern that is repeated over the file
"""

from .compromise import choose
from .form import Layout
from .partition import matrix, partition

#: Chunks larger than any file.
MOST_CHUNK = 1 << 56


def plan(program, hierarchy, compromise=True):
    """(layout, partition) for each array of the program. Without `compromise` as the source does it."""
    result = []
    for array in program.arrays:
        owners = partition(program, array)
        order = order_of(array, owners)
        layout = lay_out(array, owners, hierarchy, order)
        if compromise:
            better = compromised(program, array, owners, hierarchy, layout)
            if better != order:
                layout = lay_out(array, owners, hierarchy, better)
        result.append((layout, owners))
    return result


def lay_out(array, owners, hierarchy, order):
    """Step 2 for one array whose elements lie in `order` (tiles, outer, inner) within each share."""
    tiles, outer, inner = order
    shares = 1
    for split in owners.splits:
        shares *= split.parts
    threads = threads_of(owners, hierarchy.threads)
    bare = Layout(array.name, tuple(array.shape), array.item, owners.shear, owners.splits, tiles, outer, inner,
                  (1,) * shares, ((0,),) * shares, ((1,),) * shares, tuple(range(shares)), threads)  # fmt: skip
    chunk, nodes, chunks, rank = pattern(bare, hierarchy)
    layout = Layout(array.name, tuple(array.shape), array.item, owners.shear, owners.splits, tiles, outer, inner,
                    chunk, nodes, chunks, rank, threads)  # fmt: skip
    layout.check(f"array {array.name}")
    return layout


def threads_of(owners, count):
    """For each share the threads that own it."""
    loops = owners.nest.parallel
    shares = 1
    for split in owners.splits:
        shares *= split.parts
    rows = [[] for _ in range(shares)]
    for thread in range(owners.nest.threads if loops else 1):
        rest, share = thread, 0
        for loop, split in zip(reversed(loops), reversed(owners.owners), strict=True):
            if split is not None:
                share += rest % loop.threads * split.stride
            rest //= loop.threads
        rows[share].append(thread)
    return tuple(tuple(row) for row in rows) if loops else (tuple(range(count)),)


def order_of(array, owners):
    """Tiles and their orders: elements of a share lie in the order in which the nest reaches them.

    A dimension that two loops drive (A[T*ii + i]) is tiled by the outer one's factor. Dimensions stand in the order of the
    loops that drive them; those that no loop drives come last.
    """
    nest, rows = owners.nest, list(owners.matrix)
    if owners.shear:
        d, factors = owners.shear
        rows[d] = tuple(sum(factors[e] * rows[e][k] for e in range(len(rows))) for k in range(len(nest.loops)))
    steps = [loop.step for loop in nest.loops]
    drivers = [[(k, abs(v) * steps[k]) for k, v in enumerate(row) if v] for row in rows]
    last = len(nest.loops)
    tiles, slow, fast = [], [], []
    for d, found in enumerate(drivers):
        n = array.shape[d]
        slow.append(found[0][0] if found else last)
        fast.append(found[-1][0] if found else last)
        tile = n
        if len(found) > 1 and found[0][1] > found[-1][1]:
            tile = min(n, found[0][1])
        else:
            slow[d] = fast[d]
        tiles.append(tile)
    for d, found in enumerate(drivers):
        # Slower than another dimension's tiles: each of its values is a tile of its own.
        if tiles[d] == array.shape[d] and found and any(
            tiles[e] < array.shape[e] and slow[e] > fast[d] for e in range(len(tiles)) if e != d
        ):  # fmt: skip
            tiles[d] = 1
    dims = range(len(tiles))
    return tuple(tiles), tuple(sorted(dims, key=lambda d: slow[d])), tuple(sorted(dims, key=lambda d: fast[d]))


def compromised(program, array, owners, hierarchy, layout):
    """The order within shares that suits all nests (compromise.py)."""
    share = max(range(layout.shares), key=lambda s: layout.lengths[s])
    nests, directions = [], []
    for nest in program.nests:
        seen = set()
        for ref in nest.references:
            rows = matrix(ref, nest)
            if owners.shear and ref.array.name == array.name:
                d, factors = owners.shear
                skewed = tuple(sum(f * rows[e][k] for e, f in enumerate(factors)) for k in range(len(nest.loops)))
                rows = (*rows[:d], skewed, *rows[d + 1 :])
            seen.add((ref.array.name, tuple(tuple(map(abs, row)) for row in rows)))
        # References in one direction, up or down, find each other's blocks.
        directions.append(len(seen))
        for rows in sorted(rows for name, rows in seen if name == array.name):
            loops = [
                (-(-nest.trips(loop) // loop.threads), [row[k] * loop.step for row in rows])
                for k, loop in enumerate(nest.loops)
            ]
            nests.append((nest.repeat, loops))
    first = hierarchy.levels[0]
    # The directions in which a nest crosses its arrays share the thread's part of the cache.
    most = max(directions)
    room = max(1, layout.chunk[share] * array.item // first.block // most)
    order = (layout.tiles, layout.outer, layout.inner)
    # References of other shares walk through the whole array.
    return choose(array, array.shape, nests, first.block, room, order)


def pattern(layout, hierarchy):
    """Chunk, nodes, chunks per pattern, and rank for each share."""
    paths = hierarchy.paths()
    leaders = [row[0] for row in layout.threads]
    has_data = [n > 0 for n in layout.lengths]
    everyone = range(layout.shares)
    item = layout.item
    nodes = [[*paths[t], 0] for t in leaders]
    rank_of = sorted(everyone, key=lambda s: [*reversed(nodes[s]), leaders[s], s])
    rank = [0] * layout.shares
    for k, s in enumerate(rank_of):
        rank[s] = k
    # Level 1: the chunk of each share.
    first = hierarchy.levels[0]
    chunk = [0] * layout.shares
    for group in {nodes[s][0] for s in everyone}:
        members = [s for s in everyone if nodes[s][0] == group]
        k = max(1, sum(has_data[s] for s in members))
        part = max(first.block, first.shared // k // first.block * first.block)
        for s in members:
            chunk[s] = min(MOST_CHUNK, max(1, part // item))
    sizes = {}
    for s in everyone:
        sizes[nodes[s][0]] = sizes.get(nodes[s][0], 0) + (chunk[s] * item if has_data[s] else 0)
    # Above: how often the pattern of each cache is repeated in that of its own cache.
    chunks = [[1] for _ in everyone]
    for level in range(1, len(hierarchy.levels) + 1):
        upper = {}
        for s in everyone:
            upper.setdefault(nodes[s][level], set()).add(nodes[s][level - 1])
        repeat, above = {}, {}
        for node, children in upper.items():
            with_data = max(1, sum(sizes[c] > 0 for c in children))
            for child in children:
                times = 1
                if level < len(hierarchy.levels) and sizes[child]:
                    times = max(1, hierarchy.levels[level].shared // with_data // sizes[child])
                    times = min(times, max(1, MOST_CHUNK // sizes[child]))
                repeat[child] = times
                above[node] = above.get(node, 0) + times * sizes[child]
        for s in everyone:
            chunks[s].append(chunks[s][-1] * repeat[nodes[s][level - 1]])
        sizes = above
    rows = lambda table: tuple(map(tuple, table))
    return tuple(chunk), rows(nodes), rows(chunks), tuple(rank)
