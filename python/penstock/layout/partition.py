"""Step 1: which thread owns which elements of an array (IT section 4; the partition is the source's "best-effort" one).

The array's most significant nest decides: the one with the most accesses to it. Let Q be the matrix of a reference
(dimensions x loops) and u a parallel loop. Take a row h with h Q zero in all loops but u. It gives each element a
number v = h x that only u's iterations determine: v = c u + b. Elements of equal v belong to the thread that runs that iteration. Of
several references, those with the greatest weight decide h and c. b is the weighted median of theirs, so that the
halo of a stencil lies evenly on both sides. Without such a row the threads of u share the array.
"""

from collections import defaultdict
from dataclasses import dataclass
from fractions import Fraction
from math import gcd

from .form import Cuts, Cyclic

#: A factor of h beyond this comes from a skew that no program has.
MOST_FACTOR = 1 << 20


@dataclass(frozen=True)
class Partition:
    """What step 1 found for one array. `owners[u]` is the split of the parallel loop u, None where its threads share."""

    nest: object
    shear: tuple
    splits: tuple
    owners: tuple
    matrix: tuple
    weight: float

    @property
    def shared(self):
        """Names of parallel loops whose threads share the array."""
        return tuple(loop.name for loop, split in zip(self.nest.parallel, self.owners, strict=True) if split is None)


def weight_of(nest, array):
    """Accesses of a nest to an array (points of the box around its domain)."""
    return sum(ref.array.name == array.name for ref in nest.references) * nest.box * nest.repeat


def significant(program, array):
    """The nest that accesses the array most; the first of equal ones."""
    return max(program.nests, key=lambda nest: weight_of(nest, array))


def matrix(ref, nest):
    """Q: for each dimension the coefficients of the nest's loops."""
    return tuple(tuple(s.terms.get(loop.name, 0) for loop in nest.loops) for s in ref.subscripts)


def partition(program, array):
    """The best-effort partition of an array."""
    nest = significant(program, array)
    groups = defaultdict(list)
    for ref in nest.references:
        if ref.array.name == array.name:
            groups[matrix(ref, nest)].append(ref)
    # The heaviest matrix also orders the elements within a share.
    main = max(groups, key=lambda q: len(groups[q]))
    total = sum(map(len, groups.values()))
    shear, chosen, taken, best = (), [], set(), 0
    for loop in nest.parallel:
        u = nest.loops.index(loop)
        found = None
        for h in _rows(groups, u):
            lead = _lead(h, taken)
            # One shear only: two would have to be undone in each other's order.
            if lead is None or (_skewed(h) and (shear or any(s for s in chosen if s))):
                continue
            score = _score(groups, h, u)
            key = (score[0], not _skewed(h), -sum(map(abs, h)))
            if score[0] and (found is None or key > found[0]):
                found = (key, h, lead, score)
        if found is None:
            chosen.append(None)
            continue
        _, h, lead, (weight, c, b) = found
        best = max(best, weight)
        if _skewed(h) or h[lead] < 0:
            shear = (lead, h)
        taken.add(lead)
        chosen.append((loop, lead, c, b))
    splits, stride, owners = [], 1, []
    for item in reversed(chosen):
        split = None
        if item is not None:
            loop, lead, c, b = item
            split = _split(nest, loop, array.shape[lead], lead, c, b, stride)
            splits.insert(0, split)
            stride *= split.parts
        owners.insert(0, split)
    return Partition(nest, shear, tuple(splits), tuple(owners), main, best / total)


def _skewed(h):
    return sum(v != 0 for v in h) > 1


def _lead(h, taken):
    """The dimension that h becomes: one with factor 1 or -1 that no other loop has."""
    if not _skewed(h):
        d = next((d for d, v in enumerate(h) if v), None)
        return d if d is not None and d not in taken else None
    return next((d for d, v in enumerate(h) if abs(v) == 1 and d not in taken), None)


def _rows(groups, u):
    """Candidates for h: unit rows first, then what solves h Q = 0 in all loops but u."""
    seen = set()
    for q in sorted(groups, key=lambda q: -len(groups[q])):
        dims = len(q)
        units = [tuple(int(e == d) for e in range(dims)) for d in range(dims)]
        for h in [*units, *_null_rows([row[:u] + row[u + 1 :] for row in q])]:
            if h not in seen:
                seen.add(h)
                yield h


def _score(groups, h, u):
    """Weight of the references that h satisfies with one c, that c, and the median of their b."""
    by_c = defaultdict(list)
    for q, refs in groups.items():
        product = [sum(h[d] * q[d][k] for d in range(len(h))) for k in range(len(q[0]))]
        if product[u] and not any(v for k, v in enumerate(product) if k != u):
            for ref in refs:
                by_c[product[u]].append(sum(h[d] * s.constant for d, s in enumerate(ref.subscripts)))
    if not by_c:
        return (0, 0, 0)
    c = max(by_c, key=lambda c: len(by_c[c]))
    offsets = sorted(by_c[c])
    return len(offsets), c, offsets[(len(offsets) - 1) // 2]


def _null_rows(matrix):
    """Whole rows h with h M = 0: a basis, by elimination in fractions."""
    dims = len(matrix)
    rows = [[Fraction(v) for v in row] + [Fraction(int(i == k)) for i in range(dims)] for k, row in enumerate(matrix)]
    width = len(matrix[0]) if matrix else 0
    done = 0
    for col in range(width):
        pivot = next((r for r in range(done, dims) if rows[r][col]), None)
        if pivot is None:
            continue
        rows[done], rows[pivot] = rows[pivot], rows[done]
        for r in range(dims):
            if r != done and rows[r][col]:
                factor = rows[r][col] / rows[done][col]
                rows[r] = [a - factor * b for a, b in zip(rows[r], rows[done], strict=True)]
        done += 1
    for row in rows[done:]:
        h = row[width:]
        scale = 1
        for v in h:
            scale = scale * v.denominator // gcd(scale, v.denominator)
        whole = [int(v * scale) for v in h]
        common = 0
        for v in whole:
            common = gcd(common, v)
        whole = [v // common for v in whole]
        if next(v for v in whole if v) < 0:
            whole = [-v for v in whole]
        if max(map(abs, whole)) <= MOST_FACTOR:
            yield tuple(whole)


def _split(nest, loop, extent, dim, c, b, stride):
    """Intervals (or chunks in turn) of the values v = c (lower + step k) + b."""
    first, _ = nest.ranges[loop.name]
    trips, by, start = nest.trips(loop), c * loop.step, c * first + b
    if loop.chunk and by > 0:
        chunk = by * loop.chunk
        shift = -start % (chunk * loop.threads)
        return Cyclic(dim, chunk, loop.threads, shift, stride, extent)
    # Blocks. Chunks in turn that descend are owned as blocks would be.
    firsts = [p * trips // loop.threads for p in range(loop.threads)]
    order = list(range(loop.threads))
    if by > 0:
        cuts = [0, *(start + by * k for k in firsts[1:]), extent]
    else:
        # Part p ends after its first iteration's value, so the last part comes first.
        order.reverse()
        cuts = [0, *(start + by * k + 1 for k in reversed(firsts[1:])), extent]
    cuts = [min(max(v, 0), extent) for v in cuts]
    return Cuts(dim, tuple(cuts), stride, tuple(order))
