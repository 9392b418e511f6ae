"""Scheduling algorithms on real data servers beside the same servers simulated (docs/scheduling.md).

    .venv/bin/python experiments/scheduling/algorithms_real.py [--device graphene] [--repetitions 3] [--situation TEXT]

Four data servers keep their bytes on modelled disks that answer in real time. `pattern.c` writes or reads a file or more of
them under each algorithm (`penstock tune sched=`), and `penstock sim` plays the same. Shown are the makespans in seconds
(real: the median of the repetitions), and how well the orders agree: over all pairs of algorithms whose simulated makespans
are more than 10% apart, the share that the real ones order the same way, and how far the algorithm that the simulation
calls best is from the really best. Run it while the machine does nothing else.
"""

import argparse
import itertools
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
ALGORITHMS = ["noop", "to", "to-agg", "sjf", "mlf", "aioli"]
SERVERS = 4
APART = 0.1  # differences below that are none
SEEDS = 3
PROGRAM_MIB = 2  # of each process

# Situations: operation, programs, files, order, bytes of a request, processes of a program.
SITUATIONS = [
    ("read", 1, "shared", "contiguous", 16 << 10, 8),
    ("read", 1, "shared", "strided", 16 << 10, 8),
    ("read", 1, "own", "contiguous", 256 << 10, 8),
    ("read", 4, "shared", "contiguous", 256 << 10, 8),
    ("write", 1, "shared", "contiguous", 16 << 10, 8),
    ("write", 1, "shared", "strided", 16 << 10, 8),
    ("write", 1, "own", "contiguous", 16 << 10, 8),
    ("write", 4, "shared", "strided", 256 << 10, 8),
]

# As experiments/makespan.toml, which says why.
SCENARIO = """
seed = {seed}
name = "one situation"
about = "one situation"
[cluster]
servers = {servers}
ranks_per_node = 64
[network]
latency = "10us"
rate = "6000MB/s"
memory = "6000MB/s"
header = "200B"
[client]
operation = "15us"
region = "20ns"
jitter = "10us"
[server]
request = "10us"
wake = "10us"
region = "100ns"
window = 1
runs = "in-turn"
processes = "rank"
scheduler = "{algorithm}"
depth = {depth}
[device]
model = "{device}"
[[program]]
benchmark = "mpi-io-test"
ranks = {ranks}
instances = {programs}
method = "posix"
op = "{op}"
parameters = {{ segment = "{kib}KiB", file_size = "{mib}MiB", {layout} }}
"""


def name(situation):
    """A situation in words."""
    op, programs, files, order, size, ranks = situation
    return f"{op} x{programs} {files} {order} {size >> 10} KiB, {ranks} processes"


def simulated(situation, algorithm, device):
    """The makespan in seconds, the median of a few seeds."""
    op, programs, files, order, size, ranks = situation
    own = files == "own"
    layout = 'files = "per-process"' if own else f'layout = "{"segmented" if order == "contiguous" else "strided"}"'
    makespans = []
    for seed in range(1, SEEDS + 1):
        text = SCENARIO.format(
            seed=seed,
            servers=SERVERS,
            algorithm=algorithm,
            # Without a scheduler nothing bounds what is at the store.
            depth=1000 if algorithm == "noop" else 4,
            device=device,
            ranks=ranks,
            programs=programs,
            op=op,
            kib=size >> 10,
            mib=PROGRAM_MIB * (1 if own else ranks),
            layout=layout,
        )
        with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
            file.write(text)
            file.flush()
            command = [PENSTOCK, "sim", "--json", file.name]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{name(situation)}: penstock sim: {done.stderr}")
        makespans.append(json.loads(done.stdout)["cases"][0]["report"]["makespan"] / 1e9)
    return statistics.median(makespans)


def penstock(*words):
    """Runs a command to its end."""
    done = subprocess.run([str(PENSTOCK), *map(str, words)], capture_output=True, text=True, timeout=300, check=False)
    if done.returncode:
        sys.exit(f"penstock {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def real(situation, algorithm, binary, directory):
    """The makespan in seconds of one run: from the first access of the first program to the last end of the last."""
    op, programs, files, order, size, ranks = situation
    penstock("tune", f"sched={algorithm}", "-d", directory)
    calls = (PROGRAM_MIB << 20) // size
    running = []
    for number in range(programs):
        command = [PENSTOCK, "run", "--quiet", "-d", directory, "--method", "posix", "-n", ranks, "--", binary]
        command += [f"penstock:/f{number}", op, files, order, size, calls, 0]
        running.append(subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE))
    times = []
    for program in running:
        out, said = program.communicate(timeout=300)
        if program.returncode:
            sys.exit(f"{name(situation)}, {algorithm}: {said.decode()}")
        times.append([float(word) for word in out.split()])
    names = penstock("ls", "penstock:/", "-d", directory).split()
    penstock("rm", *[f"penstock:/{file}" for file in names], "-d", directory)
    return max(end for _, end in times) - min(start for start, _ in times)


def compare(expected, found):
    """Pairs that are apart in the simulation, those of them ordered alike, and what its best choice costs."""
    pairs = alike = 0
    for a, b in itertools.combinations(ALGORITHMS, 2):
        if abs(expected[a] / expected[b] - 1) > APART:
            pairs += 1
            alike += (expected[a] < expected[b]) == (found[a] < found[b])
    best = min(ALGORITHMS, key=expected.get)
    return pairs, alike, found[best] / min(found.values()) - 1


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="graphene", help="modelled device (default: graphene)")
    parser.add_argument("--repetitions", type=int, default=3, help="real runs of each (default: 3)")
    parser.add_argument("--situation", default="", help="only situations whose name contains this")
    args = parser.parse_args()
    totals = [0, 0]
    began = time.monotonic()
    print(f"{'situation':<48}{'':>6}" + "".join(f"{a:>8}" for a in ALGORITHMS) + "  alike   best costs")
    with tempfile.TemporaryDirectory(prefix="pst-") as place:
        binary, directory = Path(place) / "pattern", Path(place) / "fs"
        source = Path(__file__).with_name("pattern.c")
        subprocess.run([ROOT / ".venv" / "bin" / "mpicc", "-O2", "-o", binary, source], check=True)
        penstock("up", directory, "--servers", SERVERS, "--device", args.device)
        try:
            for situation in SITUATIONS:
                if args.situation not in name(situation):
                    continue
                expected = {a: simulated(situation, a, args.device) for a in ALGORITHMS}
                runs = {a: [] for a in ALGORITHMS}
                for _ in range(args.repetitions):
                    for a in ALGORITHMS:
                        runs[a].append(real(situation, a, binary, directory))
                found = {a: statistics.median(times) for a, times in runs.items()}
                pairs, alike, costs = compare(expected, found)
                totals = [totals[0] + pairs, totals[1] + alike]
                print(f"{name(situation):<48}{'sim':>6}" + "".join(f"{expected[a]:>8.2f}" for a in ALGORITHMS))
                print(f"{'':<48}{'real':>6}" + "".join(f"{found[a]:>8.2f}" for a in ALGORITHMS), end="")
                print(f"  {alike}/{pairs:<4}   {costs:+.0%}", flush=True)
        finally:
            penstock("down", directory)
    print(f"{totals[1]} of {totals[0]} pairs that are more than {APART:.0%} apart are in the same order")
    print(f"({time.monotonic() - began:.0f} s)", file=sys.stderr)


if __name__ == "__main__":
    main()
