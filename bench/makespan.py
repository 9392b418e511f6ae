"""The simulator's makespans beside those of real servers on the same modelled devices.

    .venv/bin/python bench/makespan.py [--runs N] [--case TEXT] [--slow X] [--json]

Each case of experiments/makespan.toml is simulated, and run: ranks under MPI, data servers with `--device`, real time. The
programs are written here once more, from the papers' descriptions and with MPI datatypes, so the simulator's generators
are compared too. The median of N runs has to be within 15% of the median of the simulator's seeds 1 to 9. The disks' relative
rotation, and who comes first after a wait, is random in both. With `--slow X` the real devices are
X times as slow, and the measured times are divided by it. So the machine's own cost per access counts less. Run it on an
idle machine.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
SCENARIO = ROOT / "experiments" / "makespan.toml"
BOUND = 0.15
SEEDS = 9
UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def size(text):
    """Bytes of "64KiB"."""
    number, unit = re.fullmatch(r"(\d+)([KMG]i)?B", text).groups()
    return int(number) * UNITS[f"{unit or ''}B"]


def cases(scenario):
    """Name, scenario and program of each case."""
    for case in scenario["case"]:
        program = dict(scenario["program"][0])
        device = scenario["device"]["model"]
        for key, value in case.get("set", {}).items():
            if key == "device.model":
                device = value
            else:
                program[key.removeprefix("program.0.")] = value
        yield case["name"], device, program


# ---- the programs, in a rank: a view, and where in it each call begins and how long it is ----


def every(MPI, length, distance):
    """A file type: `length` bytes, the next ones `distance` behind their begin."""
    return MPI.BYTE.Create_contiguous(length).Create_resized(0, distance).Commit()


def mpi_io_test(MPI, rank, ranks, p):
    segment = size(p["segment"])
    calls = size(p["file_size"]) // (segment * ranks)
    return 0, MPI.BYTE, [((call * ranks + rank) * segment, segment) for call in range(calls)]


def ior_mpi_io(MPI, rank, ranks, p):
    transfer = size(p["transfer"])
    block = size(p["file_size"]) // (transfer * ranks)
    return 0, MPI.BYTE, [((rank * block + call) * transfer, transfer) for call in range(block)]


def noncontig(MPI, rank, ranks, p):
    width = p["elements"] * 4
    part = size(p["per_call"]) // (width * ranks) * width
    calls = size(p["file_size"]) // (part * ranks)
    return rank * width, every(MPI, width, width * ranks), [(call * part, part) for call in range(calls)]


def mpi_tile_io(MPI, rank, ranks, p):
    columns, rows, width, height, element = (p[k] for k in ("columns", "rows", "width", "height", "element"))
    step = [height - p["overlap_y"], width - p["overlap_x"]]
    frame = [rows * height - (rows - 1) * p["overlap_y"], columns * width - (columns - 1) * p["overlap_x"]]
    starts = [rank // columns * step[0], rank % columns * step[1]]
    pixel = MPI.BYTE.Create_contiguous(element)
    tile = pixel.Create_subarray(frame, [height, width], starts).Commit()
    length = height * width * element
    return 0, tile, [(number * length, length) for number in range(p["frames"])]


def hpio(MPI, rank, ranks, p):
    region = size(p["region_size"])
    pitch = region + size(p["region_spacing"])
    return rank * pitch, every(MPI, region, pitch * ranks), [(0, region * p["region_count"])]


PROGRAMS = {
    "mpi-io-test": mpi_io_test,
    "ior-mpi-io": ior_mpi_io,
    "noncontig": noncontig,
    "mpi-tile-io": mpi_tile_io,
    "hpio": hpio,
}


def rank_main(program):
    """One rank: goes through its calls; rank 0 prints the seconds of all and the bytes moved."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    begin, kind, calls = PROGRAMS[program["benchmark"]](MPI, comm.rank, comm.size, program["parameters"])
    write = program.get("op", "read") == "write"
    info = MPI.Info.Create()
    info.Set("penstock_method", program.get("method", "datatype"))
    f = MPI.File.Open(comm, "penstock:/f", MPI.MODE_CREATE | MPI.MODE_RDWR, info)
    if not write:
        # All reads lie within the file. It has no bytes yet; what reads of them cost is the device's affair.
        f.Set_size(1 << 30)
    f.Set_view(begin, MPI.BYTE, kind)
    buffer = bytearray(max(length for _, length in calls))
    comm.Barrier()
    began = time.monotonic()
    for at, length in calls:
        memory = [buffer, length, MPI.BYTE]
        if write:
            f.Write_at(at, memory)
        else:
            f.Read_at(at, memory)
    if write and program.get("sync"):
        f.Sync()
    took = comm.reduce(time.monotonic() - began, MPI.MAX)
    moved = comm.reduce(sum(length for _, length in calls), MPI.SUM)
    if comm.rank == 0:
        print(json.dumps({"seconds": took, "bytes": moved}))
    f.Close()


# ---- the comparison ----------------------------------------------------------


def simulated(name, scenario):
    """Makespan in seconds of a case, the median of its seeds, and its bytes."""
    makespans = []
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as seeded:
        for seed in range(1, SEEDS + 1):
            seeded.seek(0)
            seeded.truncate()
            seeded.write(f"seed = {seed}\n{scenario.read_text()}")
            seeded.flush()
            command = [PENSTOCK, "sim", "--json", "--case", name, seeded.name]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            report = json.loads(done.stdout)["cases"][0]["report"]
            makespans.append(report["makespan"] / 1e9)
    return statistics.median(makespans), report["bytes"]


def real(device, program, servers, slow):
    """Seconds and bytes of one run against real servers."""
    command = [PENSTOCK, "run", "-n", program["ranks"], "--servers", servers, "--quiet", "--device"]
    command += [
        f"{device},scale={1 / slow:g}",
        "--",
        sys.executable,
        "-m",
        "mpi4py",
        __file__,
        "--rank",
        json.dumps(program),
    ]
    done = subprocess.run([str(c) for c in command], check=True, capture_output=True, text=True, timeout=600)
    line = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return line["seconds"] / slow, line["bytes"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=3, help="real runs of each case (default 3)")
    parser.add_argument("--case", default="", help="only cases whose name contains this")
    parser.add_argument("--slow", type=float, default=1, help="real devices are so many times as slow (default 1)")
    parser.add_argument("--json", action="store_true", help="one line of JSON for each case")
    args = parser.parse_args()
    scenario = tomllib.loads(SCENARIO.read_text())
    servers = scenario["cluster"]["servers"]
    off = []
    if not args.json:
        print(f"{'case':<26} {'simulated s':>12} {'real s':>8} {'least':>8} {'greatest':>9} {'error':>7}")
    for name, device, program in cases(scenario):
        if args.case not in name:
            continue
        expected, expected_bytes = simulated(name, SCENARIO)
        times = []
        for _ in range(args.runs):
            seconds, moved = real(device, program, servers, args.slow)
            assert moved == expected_bytes, f"{name}: {moved} bytes, simulated {expected_bytes}"
            times.append(seconds)
        median = statistics.median(times)
        error = expected / median - 1
        if abs(error) > BOUND:
            off.append(name)
        if args.json:
            print(json.dumps({"case": name, "simulated": expected, "real": times, "error": error}))
        else:
            low, high = min(times), max(times)
            print(f"{name:<26} {expected:>12.3f} {median:>8.3f} {low:>8.3f} {high:>9.3f} {error:>+7.1%}")
        sys.stdout.flush()
    if off:
        sys.exit(f"more than {BOUND:.0%} apart: {', '.join(off)}")


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "--rank":
        rank_main(json.loads(sys.argv[2]))
    else:
        os.chdir(ROOT)
        main()
