"""A matrix that is written by rows and read by columns, larger than the memory allowed to it, without and with a layout.

    .venv/bin/python experiments/layout/cold.py --dir DIR [--runs 5] [--json]

Each measurement is a process of its own: MPI-IO of the MPI library alone (no Penstock), or h5py. Where a memory cgroup can be made, it runs in one that holds less than the matrix, page cache included. The file is dropped from
the page cache before it is read. What is compared is the time to read all columns, in panels; the two interleaved.
"""

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "python"))

N, PANEL, SLAB = 4096, 64, 128
LIMIT = 120 << 20
NEST = f"""
double A[{N}][{N}];
void read(void) {{
  for (int p = 0; p < {N // PANEL}; p++)
    for (int i = 0; i < {N}; i++)
      for (int j = 0; j < {PANEL}; j++)
        A[i][{PANEL}*p+j] = A[i][{PANEL}*p+j];
}}"""
CACHES = """threads = 1
[[level]]
caches = 1
capacity = "64MiB"
block = "1MiB"
"""


def rows(first):
    """A slab of rows: each element is its number."""
    import numpy as np

    return np.arange(first * N, (first + SLAB) * N, dtype="f8").reshape(SLAB, N)


def check(part, panel):
    """Whether a panel holds its elements."""
    assert part[1, 0] == N + panel * PANEL and part[-1, -1] == (N - 1) * N + (panel + 1) * PANEL - 1


def drop(path):
    """Writes the file back and takes it out of the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)


def mpi(path, laid):
    """Seconds to write by rows, and to read by columns, through MPI-IO."""
    import numpy as np
    from mpi4py import MPI
    from penstock.layout import hierarchy, plan, source, view

    ((layout, _),) = plan.plan(source.from_c(NEST, "nest"), hierarchy.parse(CACHES, "caches"))

    def types(start, count):
        if laid:
            return view.types(layout, start, count, MPI.DOUBLE)
        file = MPI.DOUBLE.Create_subarray([N, N], list(count), list(start)).Commit()
        return file, MPI.DOUBLE.Create_contiguous(count[0] * count[1]).Commit()

    # Slabs go through collective buffers: alone, ROMIO would sieve whole extents, or write a piece of 512 bytes at a time.
    info = MPI.Info.Create({"romio_cb_write": "enable"})
    file = MPI.File.Open(MPI.COMM_SELF, path, MPI.MODE_CREATE | MPI.MODE_RDWR, info)
    begin = time.monotonic()
    for first in range(0, N, SLAB):
        there, here = types((first, 0), (SLAB, N))
        file.Set_view(0, MPI.DOUBLE, there)
        file.Write_at_all(0, [rows(first), 1, here])
        there.Free(), here.Free()
    file.Sync()
    written = time.monotonic() - begin
    drop(path)
    # Datatypes are made beforehand.
    panels = [types((0, panel * PANEL), (N, PANEL)) for panel in range(N // PANEL)]
    begin = time.monotonic()
    part = np.empty((N, PANEL))
    for panel, (there, here) in enumerate(panels):
        file.Set_view(0, MPI.DOUBLE, there)
        file.Read_at(0, [part, 1, here])
        check(part, panel)
    read = time.monotonic() - begin
    file.Close()
    return written, read


def hdf5(path, laid):
    """The same through h5py: a contiguous data set, or the chunks that `advise` derives from these accesses."""
    import h5py
    from penstock.layout import advise

    chunks = None
    if laid:
        calls = [advise.Call(0, (((r, 0), (r + SLAB, N)),), SLAB * N * 8) for r in range(0, N, SLAB)]
        calls += [advise.Call(0, (((0, c), (N, c + PANEL)),), PANEL * 8) for c in range(0, N, PANEL)]
        _, chunks = advise.chunk_for(calls, (N, N), 8, advise.HDF5_CACHE)
    begin = time.monotonic()
    with h5py.File(path, "w") as file:
        data = file.create_dataset("A", (N, N), "f8", chunks=chunks)
        for first in range(0, N, SLAB):
            data[first : first + SLAB] = rows(first)
    drop(path)
    written = time.monotonic() - begin
    begin = time.monotonic()
    with h5py.File(path, "r") as file:
        for panel in range(N // PANEL):
            check(file["A"][:, panel * PANEL : (panel + 1) * PANEL], panel)
    return written, time.monotonic() - begin


@contextlib.contextmanager
def limited():
    """A command's prefix that runs it in a memory cgroup of LIMIT bytes (version 1 or 2); empty where none can be made."""
    for top, name in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        group = Path(top) / f"penstock-layout-{os.getpid()}"
        try:
            group.mkdir()
        except OSError:
            continue
        try:
            (group / name).write_text(str(LIMIT))
            yield ["sh", "-c", f'echo $$ > {group}/cgroup.procs && exec "$@"', "sh"]
            return
        except OSError:
            continue
        finally:
            group.rmdir()
    yield []


def main():
    """Runs all measurements, interleaved."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=".", help="on the disk that is measured")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--one", nargs=2, metavar=("HOW", "LAID"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    path = str(Path(args.dir) / f"cold-{os.getpid()}")
    if args.one:
        try:
            print(json.dumps({"mpi": mpi, "hdf5": hdf5}[args.one[0]](path, args.one[1] == "laid")))
        finally:
            Path(path).unlink(missing_ok=True)
        return
    times = {}
    with limited() as prefix:
        for _ in range(args.runs):
            for how in ("mpi", "hdf5"):
                for laid in ("plain", "laid"):
                    command = [*prefix, sys.executable, __file__, "--dir", args.dir, "--one", how, laid]
                    done = subprocess.run(command, check=True, capture_output=True, text=True)
                    times.setdefault((how, laid), []).append(json.loads(done.stdout.splitlines()[-1]))
                    written, read = times[how, laid][-1]
                    print(
                        f"{how} {laid}: written in {written:.2f} s, read in {read:.2f} s", file=sys.stderr, flush=True
                    )
        inside = bool(prefix)
    result = {"limit": LIMIT if inside else None, "matrix": N * N * 8}
    for how in ("mpi", "hdf5"):
        plain, laid = times[how, "plain"], times[how, "laid"]
        ratios = [p[1] / q[1] for p, q in zip(plain, laid, strict=True)]
        result[how] = {
            "read plain s": round(statistics.median(t[1] for t in plain), 3),
            "read laid s": round(statistics.median(t[1] for t in laid), 3),
            "ratio": round(statistics.median(ratios), 1), "least": round(min(ratios), 1), "most": round(max(ratios), 1),
            "write plain s": round(statistics.median(t[0] for t in plain), 3),
            "write laid s": round(statistics.median(t[0] for t in laid), 3),
        }  # fmt: skip
    print(json.dumps(result) if args.json else json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
