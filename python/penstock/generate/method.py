"""Which method suits an access: the source's rule, as hints and calls with the reason.

Noncontiguous accesses (FLASH-IO in the source) go by datatype or sieving, contiguous ones (S3D-IO) by two-phase. An access
is noncontiguous where it leaves gaps in the file (a stride), or where its elements do not lie side by side in memory.
Reasons are guard cells, another order of dimensions, one of several values of a cell. Blocks of an array, side by
side in memory, are contiguous: the blocks of all ranks together fill the file.
"""

from dataclasses import dataclass

from penstock.generate.model import literal, same

# Hints of ROMIO and Penstock for each method. Penstock takes `datatype` where the last two contradict each other.
HINTS = {
    "two-phase": [("romio_cb_{}", "enable")],
    "sieving": [("romio_cb_{}", "disable"), ("romio_ds_{}", "enable")],
    "datatype": [("romio_cb_{}", "disable"), ("romio_ds_{}", "enable"), ("romio_pvfs2_dtype_{}", "enable")],
}


@dataclass
class Choice:
    """A method (None: the library's own) and why."""

    method: str | None
    noncontiguous: bool
    why: str


def dense(access):
    """Whether the elements lie side by side in memory, in the order of the file."""
    return not gaps(access)


def gaps(access):
    """Why they do not; empty where they do."""
    if access.memory is None:
        return []
    reasons = []
    order = [extent.of for extent in access.memory if extent.of is not None]
    if order != sorted(order):
        reasons.append("memory has another order of dimensions")
    if any(extent.of is None for extent in access.memory):
        reasons.append("memory holds several values of a cell")
    counts = access.count or [d.size for d in access.variable.dimensions]
    for extent in access.memory:
        if extent.of is not None and (
            (extent.guard and literal(extent.guard) != 0) or not same(extent.size, counts[extent.of])
        ):
            reasons.append("memory has guard cells")
            break
    return reasons


def strided(access):
    """Whether it leaves gaps in the file."""
    return bool(access.stride) and any(literal(one) != 1 for one in access.stride)


def choose(access):
    """The method of one access."""
    reasons = gaps(access) + (["the file is accessed with a stride"] if strided(access) else [])
    if access.method:
        return Choice(access.method, bool(reasons), "the annotation names it")
    if reasons:
        return Choice("datatype", True, "noncontiguous: " + ", ".join(reasons))
    if access.collective:
        return Choice("two-phase", False, "contiguous: blocks of an array, side by side in memory")
    return Choice(None, False, "contiguous and independent: one piece after the other, no exchange")


@dataclass
class FileHints:
    """Hints for a file, (key, value), and lines that say why."""

    hints: list
    why: list


def hints(file):
    """What the accesses to a file ask for together. Hints belong to files: accesses that disagree get none."""
    found, why = [], []
    for write, name in ((True, "write"), (False, "read")):
        choices = {}
        for access in file.accesses:
            if access.write == write:
                chosen = choose(access)
                choices.setdefault(chosen.method, []).append((access.variable.name, chosen.why))
        if not choices:
            continue
        if len(choices) > 1:
            said = "; ".join(
                f"{method or 'no exchange'} for {', '.join(v for v, _ in of)}" for method, of in choices.items()
            )
            why.append(f"{name}: left to the library, accesses differ ({said})")
            continue
        ((method, of),) = choices.items()
        why.append(f"{name}: {method or 'independent'}. {of[0][1]}")
        found += [(key.format(name), value) for key, value in HINTS.get(method, [])]
    return FileHints(found, why)
