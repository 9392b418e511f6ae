"""What tracing costs: pairs of runs of one program with a trace and without, and the size of the traces."""

import shutil
import statistics

from process import OUT, PENSTOCK, ROOT, last_json, run

PAIRS = 80


def interval(values):
    """Between these lies the true median, with 95% confidence: a sign test, nothing is assumed of their distribution."""
    values = sorted(values)
    outside = max(0, int((len(values) - 1.96 * len(values) ** 0.5) / 2) - 1)
    return [values[outside], values[-1 - outside]]


class Traced:
    """One record's two sides."""

    def __init__(self, bench, record):
        self.bench, self.record = bench, record
        self.trace = bench.dir / "trace"
        self.program = OUT / "traced"
        run(["cc", "-O2", "-Wall", "-Wextra", "-Werror", "-o", self.program, ROOT / "bench" / "traced.c"])

    def once(self, traced):
        """Seconds of a call."""
        shutil.rmtree(self.trace, ignore_errors=True)
        options = ["--trace", self.trace] if traced else []
        if self.record["path"] == "files":
            call = [self.program, self.bench.dir / "file", self.record["piece"], self.record["calls"]]
            command = [PENSTOCK, "run", "-q", *options, "--no-penstock", "--", *call] if traced else call
        else:
            keys = ["coll=0", f"piece={self.record['piece']}", f"total={self.record['total']}"]
            path = ["--shortcut", "disable"] if self.record["path"] == "servers" else []
            program = [self.bench.io, "contig", "write", "penstock:/traced", *keys]
            command = [
                PENSTOCK,
                "run",
                "-q",
                "-n",
                1,
                "--store",
                self.bench.dir / "store",
                *options,
                *path,
                "--",
                *program,
            ]
        result = last_json(run(command)[0])
        return result["seconds"] / (result.get("calls") or result["requests"])

    def bytes_of_a_record(self):
        """Of the last trace: bytes of its files by their records."""
        checked = last_json(run([PENSTOCK, "trace", "overview", self.trace, "--json"])[0])
        size = sum(part.stat().st_size for part in self.trace.glob("*.trace"))
        return size / checked["records"]


def measure(bench, name, record):
    """Ratios of the two sides' times, and nanoseconds that a call takes longer."""
    sides = Traced(bench, record)
    ratios, more = [], []
    for pair in range(PAIRS):
        # Either side is first as often as the other.
        order = (True, False) if pair % 2 else (False, True)
        times = {}
        for traced in order:
            times[traced] = sides.once(traced)
            if traced:
                size = sides.bytes_of_a_record()
        ratios.append(times[False] / times[True])
        more.append((times[True] - times[False]) * 1e9)
    return {
        "name": name,
        "unit": "ns more a call",
        "penstock": statistics.median(more),
        "peer": 0,
        "peer_name": "the same program without a trace",
        "runs": PAIRS,
        "ratio": {"min": min(ratios), "median": statistics.median(ratios), "max": max(ratios)},
        "interval": interval(ratios),
        "ns_a_call": {"median": statistics.median(more), "interval": interval(more)},
        "bytes_a_record": size,
        "cpu_s_per_gb": None,
        "goal": record["goal"],
    }
