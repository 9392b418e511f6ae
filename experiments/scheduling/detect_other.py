"""Access pattern detection on data servers of another kind than those it was learnt from (docs/understand/detection.md).

    .venv/bin/python experiments/scheduling/detect_other.py --seed 11 --windows other.csv
    .venv/bin/python experiments/scheduling/detect_other.py --read other.csv            the report again
    .venv/bin/python experiments/scheduling/detect_other.py --seed 11 --unlike           what nobody has taught the tree

`penstock trace generate` makes the training data: a server serves one slice at a time, in the order of arrival. Here

- a server has several threads, and its disk takes the nearest request first;
- writes are answered from a cache until that is full, reads that follow each other from what was read ahead;
- slices of a large request come two at a time;
- processes share the network of their node, and its delays have long tails (lognormal);
- programs compute together from time to time, and begin one after the other.

Traces are made as CSV, and `penstock trace detect` tells what it sees. The report is by class and number of data servers.
"""

import argparse
import bisect
import csv
import heapq
import itertools
import random
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
sys.path.append(str(ROOT / "python" / "learn"))
import patterns

UNIT = 64 << 10
SLICE = 256 << 10
IN_FLIGHT = 2  # slices of one request at a server
NODE = 4  # processes of a node
WINDOWS_PER_RUN = 24
COLUMNS = "at_ns,request,kind,op,file,offset,bytes,program,rank,mpi_call,client_call"
UNLIKE = ["backward", "hot", "laps", "zigzag"]
GOAL = 0.95  # of each class


def on_server(end, server, servers):
    """Bytes of the first `end` ones of a file that lie on a server."""
    whole, rest = divmod(end, servers * UNIT)
    return whole * UNIT + min(max(rest - server * UNIT, 0), UNIT)


class Disk:
    """Takes the nearest of the waiting slices first; answers some from memory."""

    def __init__(self, draw):
        self.seek = draw.choice([0.0, 1e-3, 4e-3])  # seconds for the longest way
        self.setup = draw.uniform(30e-6, 300e-6)
        self.rate = draw.uniform(80e6, 1.5e9)
        self.cache = draw.choice([1, 16, 64]) << 20
        self.ahead = draw.choice([0, 128, 1024]) << 10
        self.dirty, self.at, self.drained = 0.0, 0, 0.0
        self.streams = {}

    def time(self, now, write, place, size):
        """Of an access to a place of the disk."""
        if write:
            self.dirty = max(0.0, self.dirty - (now - self.drained) * self.rate * 0.5)
            self.drained = now
            if self.dirty + size <= self.cache:
                self.dirty += size
                return self.setup
        else:
            stream = place >> 34
            end = self.streams.get(stream)
            self.streams[stream] = place + size
            if end == place and self.ahead:
                return self.setup + size / self.rate
        way = abs(place - self.at)
        self.at = place + size
        return self.setup + self.seek * min(1.0, way / 1e9) ** 0.5 * (way > 0) + size / self.rate


class Server:
    """Threads that serve slices of a disk."""

    def __init__(self, draw):
        self.disk, self.idle = Disk(draw), draw.choice([2, 4, 16])
        self.waiting = []  # by place on the disk
        self.busy_until = 0.0

    def begin(self, now, write):
        """Slices that begin now, and when each is done."""
        while self.idle and self.waiting:
            at = bisect.bisect(self.waiting, (self.disk.at,)) % len(self.waiting)
            place, slice_ = self.waiting.pop(at)
            self.idle -= 1
            self.busy_until = max(self.busy_until, now) + self.disk.time(now, write, place, slice_[3] - slice_[2])
            yield self.busy_until, slice_


def offsets(pattern, own, rank, ranks, size, calls, draw, shared):
    """Where a process makes its accesses."""
    order = pattern.rpartition("_")[0] or pattern
    first, step = (0, size) if own else (rank * calls * size, size)
    if order == "contiguous":
        return [first + i * step for i in range(calls)]
    if order == "strided":
        gap = draw.choice([2, 3, 5, 8])
        return [(i * gap if own else i * ranks + rank) * size for i in range(calls)]
    if order == "random":
        return [draw.randrange(shared["places"]) * shared["grain"] for _ in range(calls)]
    if order == "backward":
        return [first + (calls - 1 - i) * size for i in range(calls)]
    if order == "hot":
        return [draw.randrange(3) * size for _ in range(calls)]
    if order == "laps":
        return [first + i % 12 * size for i in range(calls)]
    return [first + (i if i % 2 else calls - i) * size for i in range(calls)]


def simulate(case, draw):
    """What each server sees: (time, file, offset, bytes, program, rank)."""
    write, small = case["op"] == "write", not case["pattern"].endswith("large")
    servers = [Server(draw) for _ in range(case["servers"])]
    latency, tail, think = draw.uniform(20e-6, 150e-6), draw.uniform(0.2, 1.0), draw.uniform(5e-6, 500e-6)
    processes, events, order = [], [], itertools.count()
    seen = [[] for _ in servers]
    for program in range(case["programs"]):
        size = draw.choice([4, 6, 8, 16, 20, 32, 48, 60] if small else [256, 384, 512, 1000, 1536, 3072]) << 10
        size = max(size, 0 if small else len(servers) * UNIT)
        calls = draw.randint(80, 400) if small else draw.randint(24, 96)
        grain = draw.choice([size, 4096])
        spread = draw.uniform(1, 20) * (1 if case["many_files"] else case["processes"])
        shared = {"grain": grain, "places": max(1, int(calls * spread * size / grain))}
        phase = draw.choice([0, 0, 10, 25])
        for rank in range(case["processes"]):
            own = case["many_files"]
            places = offsets(case["pattern"], own, rank, case["processes"], size, calls, draw, shared)
            node = [0.0] if rank % NODE == 0 else processes[-1]["node"]
            processes.append(
                {
                    "file": program * 1000 + (rank if own else 0) + 1,
                    "size": size,
                    "places": places,
                    "done": 0,
                    "open": 0,
                }
                | {"program": program + 1, "rank": rank, "phase": phase, "node": node}
            )
            heapq.heappush(
                events, (program * 0.01 + rank * draw.uniform(0, 3e-4), next(order), "access", processes[-1])
            )

    def arrive(now, process, server, low, high):
        end = min(high, low + SLICE)
        seen[server].append((now, process["file"], low, end - low, process["program"], process["rank"]))
        bisect.insort(
            servers[server].waiting,
            ((process["file"] << 34) + low, (process, server, low, end, high)),
            key=lambda w: w[0],
        )

    while events:
        now, _, kind, what = heapq.heappop(events)
        if kind == "access":
            at = what["places"][what["done"]]
            for server in range(len(servers)):
                low, high = (on_server(e, server, len(servers)) for e in (at, at + what["size"]))
                if low < high:
                    what["open"] += 1
                    sent = max(now, what["node"][0]) + (high - low if write else 256) / 1e9
                    what["node"][0] = sent
                    way = latency * draw.lognormvariate(0, tail)
                    heapq.heappush(events, (sent + way, next(order), "request", (what, server, low, high)))
            continue
        if kind == "request":
            process, server, low, high = what
            # The first slices come together; each of the later ones when one before has been served.
            process.setdefault("next", {})[server] = min(high, low + IN_FLIGHT * SLICE)
            process.setdefault("left", {})[server] = -(-(high - low) // SLICE)
            for begin in range(low, min(high, low + IN_FLIGHT * SLICE), SLICE):
                arrive(now, process, server, begin, high)
        else:
            process, server, _, _, high = what
            servers[server].idle += 1
            process["left"][server] -= 1
            if process["next"][server] < high:
                begin = process["next"][server]
                process["next"][server] = min(high, begin + SLICE)
                arrive(now, process, server, begin, high)
            if process["left"][server] == 0:
                process["open"] -= 1
                if process["open"] == 0:
                    process["done"] += 1
                    if process["done"] < len(process["places"]):
                        rest = draw.gammavariate(2, think / 2)
                        if process["phase"] and process["done"] % process["phase"] == 0:
                            rest += 0.02
                        back = latency * draw.lognormvariate(0, tail)
                        heapq.heappush(events, (now + back + rest, next(order), "access", process))
        for end, slice_ in servers[server].begin(now, write):
            heapq.heappush(events, (end, next(order), "served", slice_))
    return seen


def cases(args):
    """The cross-product; of what nobody has taught the tree: small requests."""
    names = UNLIKE if args.unlike else patterns.CLASSES
    for op, own, pattern, ranks, count, servers in itertools.product(
        ("read", "write"), (0, 1), names, args.processes, args.programs, args.servers
    ):
        yield {
            "op": op,
            "many_files": own,
            "pattern": pattern,
            "processes": ranks,
            "programs": count,
            "servers": servers,
        }


def gather(args, path):
    """Simulates all cases, and writes the windows with their labels."""
    writer = None
    with tempfile.TemporaryDirectory(prefix="pst-") as place, open(path, "w", newline="") as out:
        for number, case in enumerate(cases(args)):
            draw = random.Random(f"{args.seed} {number}")
            traces = []
            for server, seen in enumerate(simulate(case, draw)):
                traces.append(Path(place) / f"data-{server}.csv")
                lines = [
                    f"{int(now * 1e9)},{i},arrival,{case['op']},{file},{offset},{size},{program},{rank},0,0"
                    for i, (now, file, offset, size, program, rank) in enumerate(seen)
                ]
                traces[-1].write_text("\n".join([COLUMNS, *lines]) + "\n")
            table = Path(place) / "windows.csv"
            command = [PENSTOCK, "trace", "detect", "--json", "--windows", table, *traces]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            with open(table, newline="") as found:
                rows = list(csv.DictReader(found))
            for row in draw.sample(rows, min(len(rows), WINDOWS_PER_RUN)):
                row = {**row, **case, "run": number, "store": "other"}
                row["pattern"] = patterns.UNKNOWN if args.unlike else case["pattern"]
                if writer is None:
                    writer = csv.DictWriter(out, row.keys())
                    writer.writeheader()
                writer.writerow(row)
            if sys.stderr.isatty():
                print(f"\r{number + 1} runs", end="", file=sys.stderr, flush=True)


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", metavar="FILE", help="keep the labelled windows, as CSV")
    parser.add_argument("--read", metavar="FILE", help="simulate nothing: report on windows that were kept")
    parser.add_argument("--unlike", action="store_true", help="accesses of kinds that were not taught: all are unknown")
    parser.add_argument("--processes", type=int, nargs="+", default=[8, 24], help="(default: 8 24)")
    parser.add_argument("--programs", type=int, nargs="+", default=[1, 3], help="(default: 1 3)")
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4], help="(default: 1 2 4)")
    parser.add_argument("--seed", type=int, default=11, help="everything random follows from it (default: 11)")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".csv") as temporary:
        path = args.read or args.windows or temporary.name
        if not args.read:
            gather(args, path)
        _, _, y, rows = patterns.load(path)
    worst = patterns.by_class(y, np.array([patterns.ANSWERS.index(row["detected"]) for row in rows]), rows)
    if worst < GOAL:
        sys.exit(f"less than {GOAL} of the windows of a class are right")


if __name__ == "__main__":
    main()
