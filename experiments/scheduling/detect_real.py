"""Access pattern detection on traces that real data servers wrote (docs/understand/detection.md).

    .venv/bin/python experiments/scheduling/detect_real.py --windows real.csv       two stores, 128 runs: 4 minutes
    .venv/bin/python experiments/scheduling/detect_real.py --read real.csv          the report again
    .venv/bin/python experiments/scheduling/detect_real.py --sched tree             servers that look at files themselves, too

Runs `pattern.c` under MPI over {read, write} x {one file, a file per process} x {contiguous, strided, random} x {small,
large}. This is crossed with the numbers of processes and with 1 and 4 programs. Each case runs once on a store in
memory and once on a modelled disk, with each of the numbers of data servers. Sizes and barriers are random. The
running servers are traced (`penstock tune trace=on`), and a case labels all windows of its traces.

Reports:

    the delivered tree      trained on simulated traces only
    a tree of these traces  cross-validated with all windows of a run in one fold
    with `--sched`          what servers that choose their algorithm report of each file when its programs have just ended
                            (`penstock status`), from its last 256 requests
"""

import argparse
import csv
import itertools
import json
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support

ROOT = Path(__file__).resolve().parent.parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
sys.path.append(str(ROOT / "python" / "learn"))
import patterns

STORES = {"memory": ["--memory"], "disk": ["--device", "graphene,scale=50"]}
SMALL = [4, 8, 12, 16, 24, 32, 40, 48]  # KiB; the stripe unit is 64
LARGE = [256, 320, 512, 1024, 2048, 4096]  # KiB; a stripe of four servers is 256, a slice on one server too
CALLS = {"small": (64, 128), "large": (20, 32)}  # large: of up to 1 MiB; of more as many bytes
REMEMBERED = 5.5  # seconds; then servers have forgotten the requests of the case before
WINDOWS_PER_RUN = 24  # as in simulated training data
GOAL = 0.95  # of each class


def penstock(*words, directory=None):
    """Runs a command to its end; its output."""
    command = [str(PENSTOCK), *map(str, words), *(["-d", str(directory)] if directory else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def cases(processes, programs):
    """The cross-product; what a line of the report names it by."""
    for op, own, order, size, ranks, count in itertools.product(
        ("read", "write"), (0, 1), ("contiguous", "strided", "random"), ("small", "large"), processes, programs
    ):
        yield {
            "op": op,
            "many_files": own,
            "pattern": f"{order}_{size}",
            "processes": ranks,
            "programs": count,
        }


def run(case, binary, directory, draw):
    """Runs the programs of a case at the same time, and takes their files away."""
    order, size = case["pattern"].split("_")
    programs = []
    for number in range(case["programs"]):
        own = "own" if case["many_files"] else "shared"
        kib = draw.choice(SMALL if size == "small" else LARGE)
        calls, barrier = draw.randint(*CALLS[size]) * 1024 // max(kib, 1024), int(draw.random() < 1 / 3)
        command = [PENSTOCK, "run", "--quiet", "-d", directory, "-n", case["processes"], "--", binary]
        command += [f"penstock:/f{number}", case["op"], own, order, kib << 10, calls, barrier]
        programs.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE))
    failed = []
    try:
        for program in programs:
            _, said = program.communicate(timeout=300)
            if program.returncode:
                failed.append(said.decode())
    finally:
        for program in programs:
            if program.poll() is None:
                program.terminate()
    if failed:
        sys.exit(f"{case}: {failed[0]}")


def files(directory):
    """The names of all files."""
    return [f"penstock:/{name}" for name in penstock("ls", "penstock:/", directory=directory).split()]


def windows(case, number, directory, draw):
    """The windows of the traces of the case that has just run, a sample of them, labelled."""
    traces = max((directory / "traces").iterdir(), key=lambda p: int(p.name))
    table = traces / "windows.csv"
    penstock("trace", "detect", "--json", "--windows", table, *sorted(traces.glob("*.trace")))
    with open(table, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["op"] == case["op"]]
    shutil.rmtree(traces)
    for row in draw.sample(rows, min(len(rows), WINDOWS_PER_RUN)):
        yield {**row, **case, "run": number}


def online(case, directory, known):
    """The case's pattern, and what each server says of each file it has just served. Files with too few requests
    are left out: a program may end before a server has looked at what it does. So are files of earlier cases
    (`known`)."""
    status = json.loads(penstock("status", "--json", directory=directory))
    new = {file["file"] for server in status["servers"] for file in server["sched"]["choice"]["busiest"]} - known
    known |= new
    for server in status["servers"]:
        for file in server["sched"]["choice"]["busiest"]:
            if file["file"] in new and file["op"] == case["op"] and file["pattern"]:
                yield case["pattern"], file["pattern"]


def gather(args, path):
    """Runs all cases on all stores; writes the labelled windows. What was said online."""
    draw = random.Random(args.seed)
    writer, number, said = None, 0, []
    with tempfile.TemporaryDirectory(prefix="pst-") as place, open(path, "w", newline="") as file:
        binary = Path(place) / "pattern"
        source = Path(__file__).with_name("pattern.c")
        subprocess.run([ROOT / ".venv" / "bin" / "mpicc", "-O2", "-o", binary, source], check=True)
        for servers, (store, options) in itertools.product(args.servers, STORES.items()):
            directory, known = Path(place) / f"{store}-{servers}", set()
            penstock(
                "up",
                directory,
                "--servers",
                servers,
                *options,
                *(["--tune", f"sched={args.sched}"] if args.sched else []),
            )
            try:
                for case in cases(args.processes, args.programs):
                    if args.sched:
                        time.sleep(REMEMBERED)
                    penstock("tune", "trace=on", directory=directory)
                    run(case, binary, directory, draw)
                    if args.sched:
                        said.extend(online(case, directory, known))
                    penstock("tune", "trace=off", directory=directory)
                    names = files(directory)
                    penstock("rm", *names, directory=directory)
                    for row in windows(case, number, directory, draw):
                        row["store"], row["servers"] = store, servers
                        if writer is None:
                            writer = csv.DictWriter(file, row.keys())
                            writer.writeheader()
                        writer.writerow(row)
                    number += 1
                    if sys.stderr.isatty():
                        print(f"\r{number} runs", end="", file=sys.stderr, flush=True)
            finally:
                penstock("down", directory)
    return said


def delivered(y, rows):
    """How well the delivered tree does on these windows: the smallest share of a class and number of servers."""
    guessed = np.array([patterns.ANSWERS.index(row["detected"]) for row in rows])
    print("delivered tree: ", end="")
    worst = patterns.by_class(y, guessed, rows)
    for label in ("op", "many_files", "processes", "programs", "store"):
        values = np.array([row[label] for row in rows])
        shares = [f"{value} {(guessed == y)[values == value].mean():.3f}" for value in sorted(set(values))]
        print(f"{label:>12}: {', '.join(shares)}")
    return worst


def held_out(simulated, features, x, y, rows):
    """Real windows with a number of processes by a tree that is learnt from simulated ones with all other numbers."""
    names, simulated_x, simulated_y, simulated_rows = patterns.load(simulated)
    if names != features:
        sys.exit(f"{simulated}: other figures than the traces': make both with the same penstock")
    known = np.array([int(row["processes"]) for row in simulated_rows])
    here = np.array([int(row["processes"]) for row in rows])
    for count in sorted(set(here)):
        tree = patterns.learner(leaf=20).fit(simulated_x[known != count], simulated_y[known != count])
        right = (tree.predict(x[here == count]) == y[here == count]).mean()
        print(f"{right:.3f} of windows with {count} processes, learnt from simulated ones with other numbers")


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--windows", metavar="FILE", help="keep the labelled windows, as CSV")
    parser.add_argument("--read", metavar="FILE", help="run nothing: report on windows that were kept")
    parser.add_argument("--simulated", metavar="FILE", help="training data that penstock made: held-out process counts")
    parser.add_argument("--processes", type=int, nargs="+", default=[8, 16], help="(default: 8 16)")
    parser.add_argument("--programs", type=int, nargs="+", default=[1, 4], help="(default: 1 4)")
    parser.add_argument(
        "--sched", choices=["tree", "online"], help="servers choose, and what they say of files is judged"
    )
    parser.add_argument("--servers", type=int, nargs="+", default=[1, 2, 4], help="data servers (default: 1 2 4)")
    parser.add_argument("--seed", type=int, default=1, help="of sizes, barriers and samples (default: 1)")
    args = parser.parse_args()
    with tempfile.NamedTemporaryFile(suffix=".csv") as temporary:
        path = args.read or args.windows or temporary.name
        said = [] if args.read else gather(args, path)
        features, x, y, rows = patterns.load(path)
    right = delivered(y, rows)
    if args.simulated:
        held_out(args.simulated, features, x, y, rows)
    print("\nlearnt from these traces:")
    patterns.show(patterns.report(features, x, y, rows, leaf=5))
    if said:
        truth, guessed = (
            np.array([patterns.ANSWERS.index(name) for name in names]) for names in zip(*said, strict=True)
        )
        classes, answers = range(len(patterns.CLASSES)), range(len(patterns.ANSWERS))
        precision, recall, _, _ = precision_recall_fscore_support(truth, guessed, labels=classes, zero_division=0)
        print(f"\nonline: {(guessed == truth).mean():.3f} of {len(said)} answers of servers about a file")
        patterns.table(confusion_matrix(truth, guessed, labels=answers)[: len(classes)], precision, recall)
    if right < GOAL:
        sys.exit(f"less than {GOAL} of the windows of a class are right")


if __name__ == "__main__":
    main()
