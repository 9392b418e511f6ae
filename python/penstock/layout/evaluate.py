"""The source's figure 20: how much faster 16 programs are in planned layouts, on simulated caches (IT section 4).

The source names three groups: no gain, 8 to 13%, 21 to 26%. It prints no sizes and no shares of I/O. So the
computing time of each program is chosen such that I/O in C order has the same share of the time in all. `swim` alone sets
that share: the middle of its group. What is compared is the group of each other program; the bounds lie halfway between the groups.
"""

from dataclasses import dataclass

from .caches import simulate
from .form import tiled
from .plan import plan

GROUPS = {
    "none": ("cc-ver-1", "s3asim", "twer"),
    "8 to 13%": ("bt", "cc-ver-2", "astro", "wupwise", "contour", "mgrid"),
    "21 to 26%": ("swim", "afores", "sar", "hf", "qio", "applu", "sp"),
}
#: Percent; up to the first: none, beyond the second: the third group.
BOUNDS = (4.0, 17.0)
REFERENCE, REFERENCE_GAIN = "swim", 23.5


@dataclass
class Row:
    """One program: I/O time in C order and in the planned layouts (ms), and the gain in execution time (percent)."""

    name: str
    before: float
    after: float
    gain: float = 0.0

    @property
    def saved(self):
        """The part of the I/O time that the layouts save."""
        return 1 - self.after / self.before if self.before else 0.0

    @property
    def group(self):
        """The group of the gain."""
        return list(GROUPS)[sum(self.gain > bound for bound in BOUNDS)]

    @property
    def published(self):
        """The source's group, None for other programs."""
        return next((group for group, names in GROUPS.items() if self.name in names), None)


def layouts_of(program, hierarchy, compromise=True):
    """The arrays in C order, and in planned layouts, by name."""
    planned = plan(program, hierarchy, compromise)
    return {a.name: tiled(a) for a in program.arrays}, {layout.array: layout for layout, _ in planned}


def measure(name, program, hierarchy, compromise=False, costs=None):
    """A program's I/O times; without `compromise` by the source's method."""
    both = layouts_of(program, hierarchy, compromise)
    before, after = (simulate(program, layouts, hierarchy, costs).milliseconds for layouts in both)
    return Row(name, before, after)


def gains(rows, share=None):
    """Fills in the gains; returns the share of I/O that all programs have in C order."""
    if share is None:
        reference = next((row for row in rows if row.name == REFERENCE), None)
        saved = reference.saved if reference else 0
        share = min(1.0, REFERENCE_GAIN / 100 / saved) if saved > 0 else 1.0
    for row in rows:
        row.gain = 100 * share * row.saved
    return share
