"""Parallel loop nests with affine references: what the layout is computed from.

A nest runs its innermost statements once for each point of its domain, in lexicographic order. A parallel loop's
iterations are shared out among threads: in blocks (OpenMP's `static`), or in chunks dealt in turn (`static, c`).
"""

from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from .errors import LayoutError

#: Points of one nest that are enumerated at most; closed forms need none of them.
MOST_POINTS = 1 << 27
MOST_DEPTH = 8
MOST_THREADS = 4096


@dataclass(frozen=True)
class Affine:
    """`constant` + the sum of `terms[name]` times the loop of that name."""

    constant: int = 0
    terms: dict = field(default_factory=dict)

    def __add__(self, other):
        names = {**self.terms, **other.terms}
        terms = {n: self.terms.get(n, 0) + other.terms.get(n, 0) for n in names}
        return Affine(self.constant + other.constant, {n: c for n, c in terms.items() if c})

    def times(self, factor):
        """Each coefficient times an integer."""
        return Affine(self.constant * factor, {n: c * factor for n, c in self.terms.items() if c * factor})

    def at(self, values):
        """The value where loops have `values` (integers or arrays)."""
        return sum((c * values[n] for n, c in self.terms.items()), self.constant)

    def range(self, ranges):
        """Least and greatest value over a box of (first, last) per loop."""
        low = high = self.constant
        for name, c in self.terms.items():
            ends = [c * v for v in ranges[name]]
            low, high = low + min(ends), high + max(ends)
        return low, high


@dataclass(frozen=True)
class Array:
    """An array on disk, alone in its file, C order in the description."""

    name: str
    shape: tuple
    item: int
    place: str = ""

    @property
    def elements(self):
        """Number of elements."""
        return int(np.prod([int(n) for n in self.shape], dtype=object))


@dataclass(frozen=True)
class Loop:
    """`for (name = lower; name < upper; name += step)`; parallel if `threads` > 1, `chunk` 0 means blocks."""

    name: str
    lower: Affine
    upper: Affine
    step: int = 1
    threads: int = 1
    chunk: int = 0
    place: str = ""


@dataclass(frozen=True)
class Reference:
    """One access to an array element by each point of the nest."""

    array: Array
    subscripts: tuple
    write: bool = False
    place: str = ""


@dataclass(frozen=True)
class Nest:
    """Loops from the outermost to the innermost, and what their innermost statements access."""

    name: str
    loops: tuple
    references: tuple
    repeat: int = 1
    place: str = ""

    def check(self):
        """Refuses what has no iterations, is too deep, or leaves an array."""
        if len(self.loops) > MOST_DEPTH:
            raise LayoutError(
                f"{self.place}: {len(self.loops)} nested loops; at most {MOST_DEPTH} are analysed",
                "split the nest",
            )
        ranges = self.ranges
        for ref in self.references:
            for d, (s, n) in enumerate(zip(ref.subscripts, ref.array.shape, strict=True)):
                low, high = s.range(ranges)
                if (low < 0 or high >= n) and any(x.lower.terms or x.upper.terms for x in self.loops):
                    low, high = self.reach(s)
                if low < 0 or high >= n:
                    raise LayoutError(
                        f"{ref.place}: subscript {d + 1} of {ref.array.name} reaches from {low} to {high}; "
                        f"the dimension has 0 to {n - 1}",
                        "correct the loop's bounds, the subscript or the declaration",
                    )

    def reach(self, subscript):
        """Least and greatest value of a subscript over the domain itself, by counting."""
        parts = [subscript.at(self.iterations(thread)) for thread in range(self.threads)]
        parts = [(int(np.min(p)), int(np.max(p))) for p in parts if np.size(p)]
        if not parts:
            raise LayoutError(f"{self.place}: nest {self.name} has no iteration", "correct the loops' bounds")
        return min(low for low, _ in parts), max(high for _, high in parts)

    @cached_property
    def ranges(self):
        """First and last value of each loop, over the smallest box that holds the domain."""
        ranges = {}
        for loop in self.loops:
            for bound in (loop.lower, loop.upper):
                unknown = [n for n in bound.terms if n not in ranges]
                if unknown:
                    raise LayoutError(
                        f"{loop.place}: the bound of loop {loop.name} uses {unknown[0]}, which is no outer loop",
                        "use constants and outer loops in bounds",
                    )
            low, high = loop.lower.range(ranges)[0], loop.upper.range(ranges)[1]
            if high <= low:
                raise LayoutError(
                    f"{loop.place}: loop {loop.name} runs from {low} to before {high}: no iteration",
                    "give the loop iterations, or leave it out",
                )
            if loop.threads > 1 and (loop.lower.terms or loop.upper.terms):
                raise LayoutError(
                    f"{loop.place}: the parallel loop {loop.name} has bounds that depend on other loops",
                    "make an outer loop with constant bounds the parallel one",
                )
            ranges[loop.name] = (low, low + (high - 1 - low) // loop.step * loop.step)
        return ranges

    def trips(self, loop):
        """Iterations of a loop in the box."""
        low, high = self.ranges[loop.name]
        return (high - low) // loop.step + 1

    @property
    def box(self):
        """Points of the box around the domain."""
        return int(np.prod([self.trips(loop) for loop in self.loops], dtype=object))

    @property
    def parallel(self):
        """The loops that threads share out, the outermost first."""
        return tuple(loop for loop in self.loops if loop.threads > 1)

    @property
    def threads(self):
        """Number of threads."""
        return int(np.prod([loop.threads for loop in self.parallel], dtype=object))

    def part(self, loop, k):
        """Which of a parallel loop's threads runs iteration `k` (counted from 0; an array)."""
        if loop.chunk:
            return k // loop.chunk % loop.threads
        # Thread p has the iterations floor(p n / T) to floor((p + 1) n / T).
        return ((k + 1) * loop.threads - 1) // self.trips(loop)

    def iterations(self, thread):
        """The loops' values at the points of one thread, in its order: a dictionary of arrays."""
        if self.box > MOST_POINTS:
            raise LayoutError(
                f"{self.place}: nest {self.name} has up to {self.box} points; at most {MOST_POINTS} are counted",
                "count a smaller instance; the closed form needs no counting",
            )
        parts, rest = {}, thread
        for loop in reversed(self.parallel):
            parts[loop.name], rest = rest % loop.threads, rest // loop.threads
        axes = []
        for loop in self.loops:
            low, high = self.ranges[loop.name]
            axis = np.arange(low, high + 1, loop.step, dtype=np.int64)
            if loop.threads > 1:
                axis = axis[self.part(loop, np.arange(len(axis))) == parts[loop.name]]
            axes.append(axis)
        grids = np.meshgrid(*axes, indexing="ij", copy=False)
        values = {loop.name: g.ravel() for loop, g in zip(self.loops, grids, strict=True)}
        inside = None
        for loop in self.loops:
            if not loop.lower.terms and not loop.upper.terms:
                continue
            v = values[loop.name]
            low = loop.lower.at(values)
            here = (v >= low) & (v < loop.upper.at(values)) & ((v - low) % loop.step == 0)
            inside = here if inside is None else inside & here
        return values if inside is None else {n: v[inside] for n, v in values.items()}


@dataclass(frozen=True)
class Program:
    """Arrays and nests; the nests run one after the other, `repeat` times."""

    arrays: tuple
    nests: tuple
    threads: int
    repeat: int = 1
    name: str = ""

    def check(self):
        """Refuses contradictions between the nests."""
        if not self.nests:
            raise LayoutError(f"{self.name}: no loop nest with references to an array", "add one")
        if self.threads > MOST_THREADS:
            raise LayoutError(f"{self.name}: {self.threads} threads; at most {MOST_THREADS} are analysed", "use fewer")
        for nest in self.nests:
            nest.check()
            if nest.threads not in (1, self.threads):
                raise LayoutError(
                    f"{nest.place}: nest {nest.name} has {nest.threads} threads, another one has {self.threads}",
                    "give all nests the same number of threads, or none",
                )
