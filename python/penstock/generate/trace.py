"""Annotations proposed from traces of data servers (docs/administer/traces.md): `penstock generate --from-trace`.

A trace holds what servers were asked for: offsets in objects, bytes, ranks and calls. From it follow the file's ranges of
each rank, and from those a shape: rows that ranks hold whole, columns, or elements in turn. Names, types and files' paths
are not in a trace. So the proposal has `double` where all ranges are multiples of 8 bytes, and the user has to check it.
"""

import csv
import io
import itertools
import json
import os
import subprocess
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

# Requests that are looked at; a trace may hold more, which is said.
MOST_EVENTS = 2_000_000
SUFFIX = ".trace"


@dataclass
class Access:
    """One call of all ranks: the same loops for each, from bases of their own."""

    write: bool
    loops: list  # (count, stride in bytes), outermost first
    piece: int  # bytes in a row
    bases: dict  # rank: first byte

    @property
    def low(self):
        """First byte of all ranks."""
        return min(self.bases.values())

    @property
    def high(self):
        """Behind the last byte of all ranks."""
        return max(self.bases.values()) + sum((n - 1) * s for n, s in self.loops) + self.piece


class Unknown(Exception):
    """What keeps a file's accesses from having a shape."""


def paths(given, fail):
    """Traces, directories taken apart."""
    found = []
    for one in map(Path, given):
        if one.is_dir():
            inside = sorted(one.glob("data-*" + SUFFIX)) or sorted(one.glob("*" + SUFFIX))
            if not inside:
                fail(f"{one} holds no *{SUFFIX}; `penstock run --trace DIR` and `penstock up --trace DIR` make them")
            found += inside
        else:
            found.append(one)
    return found


def events(path, fail):
    """Header and arrivals of a trace, read by the command itself."""
    command = os.environ.get("PENSTOCK_COMMAND", "penstock")
    try:
        said = subprocess.run([command, "trace", "show", "--json", path], capture_output=True, text=True, check=False)
        shown = subprocess.run([command, "trace", "show", "--csv", path], capture_output=True, text=True, check=False)
    except OSError as e:
        fail(f"cannot run {command}: {e.strerror}; start this as `penstock generate`")
    for done in (said, shown):
        if done.returncode != 0:
            fail(f"{path}: {done.stderr.strip().removeprefix('penstock: ')}")
    rows = []
    for row in csv.DictReader(io.StringIO(shown.stdout)):
        if row["kind"] == "arrival":
            rows.append(row)
            if len(rows) > MOST_EVENTS:
                fail(f"{path}: more than {MOST_EVENTS} requests; trace fewer steps of the program")
    return json.loads(said.stdout), rows


def file_offset(offset, server, start, unit, servers):
    """Of a byte in an object, in the file; `start` is the server of the first stripe unit."""
    return (offset // unit * servers + (server - start) % servers) * unit + offset % unit


def joined(ranges):
    """Ranges in ascending order, touching ones as one."""
    whole = []
    for first, size in sorted(ranges):
        if whole and first < whole[-1][0] + whole[-1][1]:
            raise Unknown("one rank's requests overlap")
        if whole and first == whole[-1][0] + whole[-1][1]:
            whole[-1][1] += size
        else:
            whole.append([first, size])
    return whole


def loops_of(offsets):
    """Equally spaced offsets as loops, (count, stride), outermost first; None if they are not."""
    if len(offsets) == 1:
        return []
    stride = offsets[1] - offsets[0]
    inner = 2
    while inner < len(offsets) and offsets[inner] - offsets[inner - 1] == stride:
        inner += 1
    if len(offsets) % inner:
        return None
    heads = offsets[::inner]
    for k, head in enumerate(heads):
        if offsets[k * inner : (k + 1) * inner] != [head + i * stride for i in range(inner)]:
            return None
    outer = loops_of(heads)
    return None if outer is None else [*outer, (inner, stride)]


def access_of(write, ranges_by_rank):
    """The accesses of all ranks in one call, as one shape."""
    shapes, bases, taken = set(), {}, []
    for rank, ranges in ranges_by_rank.items():
        whole = joined(ranges)
        sizes = {size for _, size in whole}
        loops = loops_of([first for first, _ in whole]) if len(sizes) == 1 else None
        if loops is None:
            raise Unknown(f"rank {rank} has {len(whole)} pieces that are not equally long and equally far apart")
        shapes.add((tuple(loops), whole[0][1]))
        bases[rank] = whole[0][0]
        taken += whole
    taken.sort()
    if any(a[0] + a[1] > b[0] for a, b in itertools.pairwise(taken)):
        raise Unknown("ranges of ranks overlap, as those of structured requests do, whose patterns are not in a trace")
    if len(shapes) > 1:
        raise Unknown("ranks have different shapes")
    ((loops, piece),) = shapes
    return Access(write, list(loops), piece, bases)


def formula(values):
    """Numbers by rank as an expression of `rank`; None if it is none that people write."""
    ranks = sorted(values)
    first = values[ranks[0]]
    if all(values[r] == first for r in ranks):
        return str(first)
    for split in range(1, len(ranks) + 1):
        forms = [("rank", lambda r: r)] if split == 1 else []
        forms += (
            [(f"rank / {split}", lambda r, s=split: r // s), (f"rank % {split}", lambda r, s=split: r % s)]
            if split > 1
            else []
        )
        for text, part in forms:
            step = next(((values[r] - first) // part(r) for r in ranks if part(r)), 0)
            base = values[ranks[0]] - step * part(ranks[0])
            if step and all(values[r] == base + step * part(r) for r in ranks):
                text = f"({text})" if " " in text else text
                product = text if step == 1 else f"{text} * {step}"
                return product if base == 0 else f"{base} + {product}"
    return None


def records(accesses):
    """Calls of the same shape at equal distances are records of one variable: [(access, calls, distance)]."""
    found = []
    for access in accesses:
        for k, (first, calls, distance) in enumerate(found):
            same = (first.write, first.loops, first.piece) == (access.write, access.loops, access.piece)
            shift = {access.bases[r] - first.bases[r] for r in first.bases if r in access.bases}
            if not same or len(shift) != 1 or access.bases.keys() != first.bases.keys():
                continue
            (shift,) = shift
            if shift > 0 and (calls == 1 or shift == distance * calls):
                found[k] = (first, calls + 1, distance or shift)
                break
        else:
            found.append((access, 1, 0))
    return found


def variable(name, access, calls, distance, end):
    """Annotations of one variable: dimensions, the variable, the access."""
    strides = sorted({stride for n, stride in access.loops if n > 1}, reverse=True)
    numbers = [access.piece, *strides, *(base - access.low for base in access.bases.values())]
    element = 8 if all(n % 8 == 0 for n in numbers) else 4 if all(n % 4 == 0 for n in numbers) else 1
    kind = {8: "double", 4: "float", 1: "byte"}[element]
    # Where records begin is not known; they are taken to begin where the first access does.
    origin = access.low
    total = distance if calls > 1 else max(end, access.high) - origin
    sizes, outer = [], total
    for stride in strides:
        sizes.append((-(-outer // stride), stride))
        outer = stride
    if any(a[1] % b[1] for a, b in itertools.pairwise(sizes)):
        raise Unknown("strides are no multiples of each other")
    one = access.loops and access.piece == element and len(strides) == 1
    names, counts, starts, stride = [], [], [], None
    if one:
        names, counts = [(f"{name}_x", total // element)], [access.loops[-1][0]]
        starts = [{r: (b - origin) // element for r, b in access.bases.items()}]
        stride = strides[0] // element
    else:
        levels = [*sizes, (outer // element if sizes else total // element, element)]
        rest = {r: b - origin for r, b in access.bases.items()}
        for k, (size, step) in enumerate(levels):
            names.append((f"{name}_{'wvutzyx'[7 - len(levels) + k]}", size))
            counts.append(
                next((n for n, s in access.loops if s == step), access.piece // element if step == element else 1)
            )
            starts.append({r: v // step for r, v in rest.items()})
            rest = {r: v % step for r, v in rest.items()}
    texts = [formula(s) for s in starts]
    if None in texts:
        raise Unknown(
            "where ranks begin is no simple formula of the rank: " + ", ".join(map(str, access.bases.values()))
        )
    if calls > 1:
        names, counts, texts = [(f"{name}_step", None), *names], [1, *counts], ["step", *texts]
    return {
        "name": name,
        "type": kind,
        "offset": origin,
        "dimensions": {n: size for n, size in names},
        "access": "write" if access.write else "read",
        "start": texts,
        "count": counts,
        "stride": [*([1] if calls > 1 else []), stride] if stride else None,
        "ranks": len(access.bases),
        "calls": calls,
    }


def calls_of(rows, headers, start):
    """The file's ranges by call and rank; calls are those of each rank, in their order."""
    ranges, calls = defaultdict(lambda: defaultdict(list)), defaultdict(dict)
    for server, row in sorted(rows, key=lambda one: int(one[1]["at_ns"])):
        unit, servers = headers[server]["unit"], headers[server]["servers"]
        rank, call = int(row["rank"]), int(row["mpi_call"])
        number = calls[rank].setdefault(call, len(calls[rank]))
        offset, size = int(row["offset"]), int(row["bytes"])
        while size > 0:  # an object's neighbouring stripe units are not neighbours in the file
            part = min(size, unit - offset % unit)
            ranges[number, row["op"]][rank].append((file_offset(offset, server, start, unit, servers), part))
            offset, size = offset + part, size - part
    return ranges


def propose_file(number, rows, headers):
    """The variables of one file, or why there are none."""
    servers = next(iter(headers.values()))["servers"]
    best, why = None, None
    for start in range(servers):
        ranges = calls_of(rows, headers, start)
        try:
            accesses = [access_of(op == "write", by_rank) for (_, op), by_rank in sorted(ranges.items())]
        except Unknown as e:
            why = why or str(e)
            continue
        # The first stripe unit lies where the accesses make the fewest pieces, and as near to the beginning as can be.
        cost = (sum(max(1, sum(n for n, _ in a.loops)) for a in accesses), min(a.low for a in accesses))
        if best is None or cost < best[0]:
            best = (cost, accesses)
    if best is None:
        return {"file": number, "variables": [], "why": why}
    found = sorted(records(best[1]), key=lambda one: one[0].low)
    variables = []
    try:
        for k, (access, calls, distance) in enumerate(found):
            later = [other.low for other, _, _ in found if other.low >= access.high]
            end = access.high if not later else min(min(later), access.high)
            variables.append(variable(f"v{k}", access, calls, distance, end))
    except Unknown as e:
        return {"file": number, "variables": [], "why": str(e)}
    return {"file": number, "variables": variables, "why": None}


def shown(proposal, k):
    """Annotations of a file as text."""
    if proposal["why"]:
        lines = [f"// file {k}: no proposal: {proposal['why']}."]
        lines.append("// A trace under `penstock run --method posix --shortcut disable` has a request for each piece.")
        return lines
    variables = proposal["variables"]
    writes, reads = (any(v["access"] == way for v in variables) for way in ("write", "read"))
    mode = "update" if reads and writes else "create" if writes else "read"
    lines = ["#begin_file", f'file{k}: "file{k}.nc", {mode};', "#end_file", "#begin_dimensions"]
    for v in variables:
        lines += [f"{n}: {'unlimited' if size is None else size};" for n, size in v["dimensions"].items()]
    lines += ["#end_dimensions", "#begin_variables"]
    for v in variables:
        lines.append(f"// from byte {v['offset']} of the traced file; {v['ranks']} ranks, calls of each: {v['calls']}")
        lines.append(f"{v['name']}: {v['type']}, {len(v['dimensions'])}, {', '.join(v['dimensions'])};")
    lines += ["#end_variables"]
    for v in variables:
        stride = f", stride({', '.join(map(str, v['stride']))})" if v["stride"] else ""
        counts = ", ".join(map(str, v["count"]))
        lines += [
            "#begin_access",
            f"{v['name']}: {v['access']}, start({', '.join(v['start'])}), count({counts}){stride}, memory({v['name']});",
            "#end_access",
        ]
    return [*lines, f"#close_file file{k};"]


def propose(given, as_json, fail):
    """The command's `--from-trace`."""
    headers, files, partial = {}, defaultdict(list), []
    for path in paths(given, fail):
        header, rows = events(path, fail)
        server = header["server"]
        if server in headers:
            fail(f"{path}: a second trace of server {server}; give those of one run")
        headers[server] = header
        if header["dropped"] or not header["whole"]:
            partial.append(str(path))
        for row in rows:
            files[row["file"]].append((server, row))
    missing = next(iter(headers.values()))["servers"] - len(headers)
    proposals = [propose_file(number, rows, headers) for number, rows in sorted(files.items())]
    if as_json:
        print(json.dumps({"files": proposals, "missing_servers": missing, "partial": partial}))
        return
    lines = ["// Proposed by penstock generate from a trace, for C. Names and types are guesses: read them."]
    lines += [f"// {path}: events are missing in this trace." for path in partial]
    if missing > 0:
        lines.append(f"// Traces of {missing} servers are missing: the ranges have gaps that the program did not make.")
    for k, proposal in enumerate(proposals):
        lines += shown(proposal, k)
    if not proposals:
        fail(
            "no requests in these traces: trace the program with `penstock run --shortcut disable`, on a file of Penstock's"
        )
    print("\n".join(lines))
