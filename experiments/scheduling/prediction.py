"""What predicted aggregations are worth to aIOLi (docs/administer/traces.md), beside the source's figures (TS 4.1.3).

    .venv/bin/python experiments/scheduling/prediction.py --seeds 1-3
    .venv/bin/python experiments/scheduling/prediction.py --real 3             real servers and programs, in real time

Runs prediction.toml in virtual time with each seed. Of each case: how many parts a decision joins, and MB/s; under plain aIOLi, and what predictions
add. The source's averages are over the three kinds of access that have room for larger aggregations: all but contiguous small
ones. `room` is what plain aIOLi joins of the most that it could. That is 2 parts of a small contiguous access, 8 of a large one, and 16
of strided ones, where it joins no more. A relation is within 15% if ours and the source's, both as factors, are.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
SCENARIO = Path(__file__).with_name("prediction.toml")
PART = 8 << 10  # bytes
MOST = {"contiguous small": 2, "contiguous large": 8, "strided small": 16, "strided large": 16}
PROGRAMS, RANKS, DEVICE = 4, 16, "pastel"
ACCESSES = {"small": (16 << 10, 128), "large": (256 << 10, 8)}  # bytes of one, and how many of a process
SOURCE = {"aggregations": 25.1, "write": 29.5, "read": 20.7}  # per cent
NEAR = 0.15


def simulate(scenario, seed):
    """Of each case and choice: MB/s, parts of a decision, predicted waits."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as seeded:
        seeded.write(f"seed = {seed}\n{scenario.read_text()}")
        seeded.flush()
        done = subprocess.run([PENSTOCK, "sim", "--json", seeded.name], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    for outcome in json.loads(done.stdout)["cases"]:
        *case, choice = outcome["case"].split(", ")
        report = outcome["report"]
        parts = report["bytes"] / PART / report["decisions"]
        yield tuple(case), choice, (report["throughput"] / 1e6, parts, report.get("predicted_waits", 0))


def simulated(scenario, seeds):
    """Means over the seeds."""
    first, _, last = seeds.partition("-")
    found = defaultdict(list)
    for seed in range(int(first), int(last or first) + 1):
        for case, choice, figures in simulate(scenario, seed):
            found[case, choice].append(figures)
    return {key: np.mean(runs, axis=0) for key, runs in found.items()}


def as_in_the_source(seeds):
    """The source's cross-product in virtual time."""
    means = simulated(SCENARIO, seeds)
    columns = f"{'to':>8}{'aioli':>8}{'predicted':>11}{'gain':>8}{'parts':>8}{'room':>7}{'predicted':>11}{'waits':>7}"
    print(f"{'':<44}{columns}")
    gains = defaultdict(list)
    for case in dict.fromkeys(case for case, _ in means):
        apart, op, order, size, _ = case
        (to, _, _), (plain, parts, _), (rate, more, waits) = (means[case, c] for c in ("to", "aioli", "predicted"))
        kind = f"{order} {size}"
        print(
            f"{', '.join(case):<44}{to:>8.1f}{plain:>8.1f}{rate:>11.1f}{(rate / plain - 1) * 100:>7.1f}%{parts:>8.2f}"
            f"{parts / MOST[kind] * 100:>6.0f}%{more:>11.2f}{waits:>7.0f}"
        )
        if kind != "contiguous small":
            gains[apart, op].append(rate / plain - 1)
            gains[apart, "aggregations"].append(more / parts - 1)
    for apart in dict.fromkeys(apart for apart, _ in gains):
        print(f"\n{apart}: mean of all but contiguous small")
        for what, published in SOURCE.items():
            ours = np.mean(gains[apart, what]) * 100
            near = "within 15%" if is_near(1 + ours / 100, 1 + published / 100) else "not within 15%"
            print(f"  {what:<14}{ours:>+7.1f}%   source {published:+.1f}%   {near}")


def is_near(ours, theirs):
    """Two factors are within 15% of each other."""
    return abs(ours / theirs - 1) <= NEAR


def penstock(*words):
    """Runs a command to its end; its output."""
    done = subprocess.run([PENSTOCK, *map(str, words)], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"penstock {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def programs(home, binary, op, order, size):
    """MB/s of all programs of a case at the same time, from the first access to the end of the last."""
    access, calls = ACCESSES[size]
    running = []
    for number in range(PROGRAMS):
        command = [PENSTOCK, "run", "--quiet", "-d", home, "-n", RANKS, "--shortcut", "disable", "--", binary]
        command += [f"penstock:/f{number}", op, "shared", order, access, calls, 0]
        running.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True))
    said = [program.communicate(timeout=300)[0] for program in running]
    if any(program.returncode for program in running):
        sys.exit(f"a program of {op}, {order}, {size} failed")
    times = [[float(word) for word in text.split()[-2:]] for text in said]
    seconds = max(end for _, end in times) - min(begin for begin, _ in times)
    return PROGRAMS * RANKS * access * calls / seconds / 1e6


def in_real_time(runs):
    """The same on real servers: MB/s under plain aIOLi, and what predictions add."""
    print(f"{'real time':<30}{'aioli':>8}{'predicted':>11}{'gain, median':>14}{'least':>8}{'most':>8}")
    gains = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="pst-") as place:
        binary, home = Path(place) / "pattern", Path(place) / "fs"
        source = Path(__file__).with_name("pattern.c")
        subprocess.run([ROOT / ".venv" / "bin" / "mpicc", "-O2", "-o", binary, source], check=True)
        penstock("up", home, "--servers", 4, "--stripe-unit", "32KiB", "--device", DEVICE, "--tune", "sched=aioli")
        try:
            for case in itertools.product(("write", "read"), ("contiguous", "strided"), ACCESSES):
                if case[0] == "read":
                    programs(home, binary, "write", *case[1:])
                traces = []
                for run in range(2):
                    traces.append(Path(place) / "-".join((*case, str(run))))
                    penstock("tune", f"trace={traces[-1]}", "-d", home)
                    programs(home, binary, *case)
                    penstock("tune", "trace=off", "-d", home)
                expected = Path(place) / "-".join((*case, "expected"))
                expected.mkdir()
                for server in range(4):
                    name = f"data-{server}.trace"
                    penstock("trace", "merge", *(trace / name for trace in traces), "-o", expected / name)
                pairs = []
                for _ in range(runs):
                    plain = programs(home, binary, *case)
                    penstock("tune", f"predict={expected}", "-d", home)
                    pairs.append((plain, programs(home, binary, *case)))
                    penstock("tune", "predict=off", "-d", home)
                ratios = [predicted / plain - 1 for plain, predicted in pairs]
                plain, predicted = (statistics.median(side) for side in zip(*pairs, strict=True))
                spread = "".join(f"{x * 100:>+7.1f}%" for x in (min(ratios), max(ratios)))
                print(
                    f"{', '.join(case):<30}{plain:>8.1f}{predicted:>11.1f}{statistics.median(ratios) * 100:>+13.1f}%{spread}",
                    flush=True,
                )
                if case[1:] != ("contiguous", "small"):
                    gains[case[0]].append(statistics.median(ratios))
        finally:
            penstock("down", home)
    for op, found in gains.items():
        ours = statistics.mean(found) * 100
        print(f"{op}s, mean of all but contiguous small: {ours:+.1f}%, source {SOURCE[op]:+.1f}%")


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", default="1-3", metavar="N-M", help="of simulated runs (default: 1-3)")
    parser.add_argument(
        "--real", type=int, metavar="N", help="pairs of runs on real servers, in place of simulated ones"
    )
    args = parser.parse_args()
    if args.real:
        in_real_time(args.real)
    else:
        as_in_the_source(args.seeds)


if __name__ == "__main__":
    main()
