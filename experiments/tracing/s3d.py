#!/usr/bin/env python3
"""IOPin's figures 7, 9 and 10 with S3D-IO (examples/libraries/s3d.c), as tables: experiments/tracing/s3d.py [--pairs N] …

Figure 7: time with and without tracing, in turn, as pairs. Figure 9: time by layer of each process. Figure 10: device accesses of
a call, and their throughput; calls of the store where no device accesses are recorded. Writes Markdown.
Source: S. J. Kim and others, IOPin (2012), section IV.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PENSTOCK = ROOT / "target" / "release" / "penstock"
S3D = ROOT / "target" / "examples" / "libraries" / "s3d-openmpi"


def run(args, interface, trace=None):
    """Seconds of writing, as the program says."""
    with tempfile.TemporaryDirectory(prefix="pst-") as directory:
        mount = Path(directory) / "m"
        mount.mkdir()
        path, more = (mount / "s3d", ["--mount", mount]) if interface != "mpiio" else ("penstock:/s3d", [])
        command = [PENSTOCK, "run", "-n", args.ranks, "--servers", args.servers, "--shortcut", args.shortcut]
        if args.device != "none":
            command += ["--device", args.device]
        command += more + (["--trace", trace] if trace else [])
        command += [
            "--",
            S3D,
            path,
            "--interface",
            interface,
            "--points",
            args.points,
            "--checkpoints",
            args.checkpoints,
        ]
        environment = {
            **os.environ,
            "OMPI_MCA_mpi_yield_when_idle": "1",
            "OMPI_ALLOW_RUN_AS_ROOT": "1",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
        }
        done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False, env=environment)
        if done.returncode:
            sys.exit(f"{done.stdout}\n{done.stderr}")
        (said,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith('{"case"')]
        assert said["values_wrong"] == 0, said
        return said["write_seconds"]


def ask(*words):
    told = subprocess.run([PENSTOCK, "trace", *map(str, words), "--json"], capture_output=True, text=True, check=True)
    return json.loads(told.stdout)["rows"]


def table(head, rows):
    print("| " + " | ".join(head) + " |\n| --- |" + " ---: |" * (len(head) - 1))
    for row in rows:
        print("| " + " | ".join(map(str, row)) + " |")
    print()


def figure_7(args, directory):
    rows = []
    for interface in args.interfaces:
        ratios, plain = [], []
        for pair in range(args.pairs + 1):
            times = {}
            # Which of the two comes first changes from pair to pair.
            for traced in (False, True) if pair % 2 else (True, False):
                place = directory / f"{interface}-{pair}" if traced else None
                times[traced] = run(args, interface, place)
            if pair:  # the first one warms up
                ratios.append(times[True] / times[False])
                plain.append(times[False])
        median = statistics.median(ratios)
        rows.append(
            [interface, f"{statistics.median(plain):.3f} s", f"{median:.3f}", f"{min(ratios):.3f} to {max(ratios):.3f}"]
        )
    print("Time to write with tracing, as a multiple of that without\n")
    table(["interface", "without", "ratio", "least to most"], rows)


def figure_9(place, interface):
    cells = {}
    for row in ask("breakdown", place, "--by", "rank"):
        cells.setdefault(row["rank"], {})[row["layer"]] = row["exclusive_ns"]
    layers = [layer for layer in ("pnetcdf", "mpiio", "client", "request", "server", "queue", "store", "device")
              if any(layer in of for of in cells.values())]  # fmt: skip
    print(f"Exclusive time by layer of each process, milliseconds ({interface})\n")
    table(["process", *layers], [[rank, *(f"{of.get(layer, 0) / 1e6:.1f}" for layer in layers)]
                                 for rank, of in sorted(cells.items()) if rank.isdigit()])  # fmt: skip


def figure_10(place, interface):
    layer = "pnetcdf" if interface != "mpiio" else "mpiio"
    word = "put_vara" if interface == "pnetcdf" else "wait_all" if layer == "pnetcdf" else "write_at_all"
    rows = []
    calls = [c for c in ask("list", place, "--first", 100_000, "--layer", layer) if word in c["operation"]]
    for call in sorted(calls, key=lambda c: (c["begin_ns"], c["key"])):
        followed = ask("follow", place, call["key"])
        devices = [r for r in followed if r["layer"] == "device"]
        accesses = devices or [r for r in followed if r["layer"] == "store"]
        busy, moved = sum(r["duration_ns"] for r in accesses), sum(r["bytes"] for r in accesses)
        rate = f"{moved / busy * 1e3:.1f} MB/s" if busy else "-"
        rows.append(
            [
                call["key"],
                f"{call['bytes']:,}",
                f"{call['duration_ns'] / 1e6:.1f} ms",
                len(accesses),
                f"{moved:,}",
                rate,
            ]
        )
    print(f"Accesses of each writing call to the servers' stores or devices ({interface})\n")
    table(["call", "bytes", "time", "accesses", "their bytes", "throughput"], rows)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--points", type=int, default=50)
    parser.add_argument("--checkpoints", type=int, default=1)
    parser.add_argument("--device", default="none", help="a model of `penstock run --device`, or none")
    parser.add_argument("--shortcut", default="disable", help="enable: bytes may go past the servers")
    parser.add_argument("--interfaces", nargs="+", default=["pnetcdf", "mpiio"])
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="s3d-") as directory:
        figure_7(args, Path(directory))
        for interface in args.interfaces:
            place = Path(directory) / f"{interface}-{args.pairs}"
            figure_9(place, interface)
            figure_10(place, interface)


if __name__ == "__main__":
    main()
