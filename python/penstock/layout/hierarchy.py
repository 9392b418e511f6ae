"""The hierarchy of storage caches: levels, how many caches, capacities, block sizes, and who shares which.

An example of the file, in TOML:

    threads = 16
    [[level]]                    # the caches nearest to the threads first
    name = "I/O node"
    caches = 4                   # each shared by 4 threads in a row; or shared = [[0, 1, 2, 3], ...]
    capacity = "64KiB"           # of each
    block = "4KiB"
    [[level]]
    name = "storage node"
    caches = 2
    striped = true               # blocks are dealt to the caches in turn, and all below share all of them
    capacity = "256KiB"
    block = "4KiB"
"""

import re
from dataclasses import dataclass

from .errors import LayoutError
from .program import MOST_THREADS
from .source import known, load_toml, read_text, tables, whole

MOST_LEVELS = 8
UNITS = {"": 1, "B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40,
         "kB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}  # fmt: skip


def size(value, where):
    """Bytes: a number, or text such as 64KiB."""
    found = re.fullmatch(r"\s*(\d+)\s*([A-Za-z]*)\s*", str(value)) if isinstance(value, (str, int)) else None
    if isinstance(value, bool) or not found or found.group(2) not in UNITS:
        raise LayoutError(f"{where} = {value!r} is no size", "write bytes, or for example 64KiB")
    bytes_ = int(found.group(1)) * UNITS[found.group(2)]
    if not 0 < bytes_ < 1 << 62:
        raise LayoutError(f"{where} = {value!r} is not between 1 byte and 4 EiB", "correct the size")
    return bytes_


@dataclass(frozen=True)
class Level:
    """Caches of one kind. `groups[c]` are the threads (of the first level) or caches below that cache c serves."""

    name: str
    capacity: int
    block: int
    groups: tuple
    striped: int = 0

    @property
    def caches(self):
        """Caches of this level."""
        return self.striped or len(self.groups)

    @property
    def shared(self):
        """Bytes that one group shares."""
        return self.capacity * max(1, self.striped)


@dataclass(frozen=True)
class Hierarchy:
    """Levels from the threads upwards."""

    threads: int
    levels: tuple
    name: str = ""

    def paths(self):
        """For each thread the group that serves it at each level."""
        paths = [[None] * len(self.levels) for _ in range(self.threads)]
        below = [[t] for t in range(self.threads)]
        for k, level in enumerate(self.levels):
            above = []
            for g, members in enumerate(level.groups):
                threads = [t for m in members for t in below[m]]
                above.append(threads)
                for t in threads:
                    paths[t][k] = g
            below = above
        return paths


def read(path, threads=None):
    """The hierarchy in a TOML file; `threads` are those of the program that it has to serve."""
    return parse(read_text(path), str(path), threads)


def parse(text, name, threads=None):
    """As `read`, from text."""
    top = load_toml(text, name)
    known(top, ("threads", "level"), name)
    count = whole(top, "threads", name, threads)
    if threads is not None and count != threads:
        raise LayoutError(
            f"{name}: a hierarchy for {count} threads; the program has {threads}", "make threads and num_threads agree"
        )
    if count > MOST_THREADS:
        raise LayoutError(f"{name}: {count} threads; at most {MOST_THREADS} are analysed", "use fewer")
    rows = tables(top, "level", name)
    if not 1 <= len(rows) <= MOST_LEVELS:
        raise LayoutError(f"{name}: {len(rows)} levels; 1 to {MOST_LEVELS} are possible", "add [[level]]")
    levels, below, kind = [], count, "thread"
    for k, row in enumerate(rows):
        where = f"{name}: level {k + 1}"
        known(row, ("name", "caches", "capacity", "block", "shared", "striped"), where)
        title = str(row.get("name", f"level {k + 1}"))
        for key in ("capacity", "block"):
            if key not in row:
                raise LayoutError(f"{where} ({title}): {key} is missing", f'add {key} = "64KiB"')
        capacity, block = size(row["capacity"], f"{where}: capacity"), size(row["block"], f"{where}: block")
        if capacity % block:
            raise LayoutError(
                f"{where} ({title}): the capacity of {capacity} bytes is no multiple of the block of {block}",
                "make it one",
            )
        striped = row.get("striped", False)
        if not isinstance(striped, bool):
            raise LayoutError(f"{where}: striped = {striped!r}", "write true or false")
        caches = whole(row, "caches", where, len(row["shared"]) if isinstance(row.get("shared"), list) else None)
        if striped:
            if "shared" in row:
                raise LayoutError(
                    f"{where} ({title}): striped and shared contradict each other",
                    "leave one of them out: behind striped caches all share all",
                )
            groups = (tuple(range(below)),)
        elif "shared" in row:
            groups = _shared(row["shared"], caches, below, kind, f"{where} ({title})")
        else:
            if caches > below:
                raise LayoutError(
                    f"{where} ({title}): {caches} caches for {below} {kind}s: some serve none",
                    "give fewer caches, or striped = true",
                )
            groups = tuple(tuple(range(c * below // caches, (c + 1) * below // caches)) for c in range(caches))
        level = Level(title, capacity, block, groups, caches if striped else 0)
        most = max(len(g) for g in groups)
        if level.shared // most < block:
            raise LayoutError(
                f"{where} ({title}): {most} {kind}s share {level.shared} bytes: less than one block of {block} each",
                "give more capacity, smaller blocks or more caches",
            )
        levels.append(level)
        below, kind = len(groups), "cache"
    return Hierarchy(count, tuple(levels), name)


def _shared(groups, caches, below, kind, where):
    fine = isinstance(groups, list) and all(
        isinstance(g, list) and g and all(isinstance(m, int) and not isinstance(m, bool) for m in g) for g in groups
    )
    if not fine:
        raise LayoutError(f"{where}: shared is no list of lists of numbers", "write shared = [[0, 1], [2, 3]]")
    if len(groups) != caches:
        raise LayoutError(f"{where}: {caches} caches, but shared names {len(groups)}", "make them agree")
    members = [m for g in groups for m in g]
    twice = next((m for m in members if members.count(m) > 1), None)
    if twice is not None:
        raise LayoutError(f"{where}: {kind} {twice} is served by two caches", "name it once; or striped = true")
    wrong = next((m for m in members if not 0 <= m < below), None)
    if wrong is not None:
        raise LayoutError(f"{where}: there is no {kind} {wrong}", f"{kind}s are 0 to {below - 1}")
    if len(members) != below:
        missing = next(m for m in range(below) if m not in members)
        raise LayoutError(f"{where}: {kind} {missing} is served by no cache", "name each of them once")
    return tuple(tuple(g) for g in groups)
