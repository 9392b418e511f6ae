"""Parallel h5py: ranks write and read one HDF5 file together, and check what they read.

    mpiexec -n RANKS python h5py_fields.py FILE

h5py and mpi4py must be built for one MPI and its HDF5; Debian's python3-h5py-mpi is, for Open MPI;
scripts/h5py.sh builds them for Debian's MPICH.
"""

import json
import sys

import h5py
import numpy as np
from mpi4py import MPI

ROWS, COLUMNS, STEPS = 12, 30, 4
comm = MPI.COMM_WORLD


def field(first_row, rows, columns):
    """Values of rows [first_row, first_row + rows) of a field that wide: no two are the same."""
    return np.arange(first_row * columns, (first_row + rows) * columns, dtype="f8").reshape(rows, columns)


def write(path):
    mine = slice(comm.rank * ROWS, (comm.rank + 1) * ROWS)
    whole = (comm.size * ROWS, COLUMNS)
    with h5py.File(path, "w", driver="mpio", comm=comm) as file:
        file.attrs["title"] = "example"
        group = file.create_group("fields")
        group.attrs["origin"] = np.array([0.5, 1.5])
        rows = group.create_dataset("rows", whole, dtype="f8")
        with rows.collective:
            rows[mine] = field(mine.start, ROWS, COLUMNS)
        # Every size-th column, independent; big-endian in the file.
        striped = group.create_dataset("striped", (ROWS, COLUMNS * comm.size), dtype=">f4")
        striped[:, comm.rank :: comm.size] = field(0, ROWS, COLUMNS * comm.size)[:, comm.rank :: comm.size]
        steps = group.create_dataset("steps", (0, *whole), dtype="f8", chunks=(1, 7, 11), maxshape=(None, *whole))
        for step in range(STEPS):
            steps.resize(step + 1, axis=0)
            with steps.collective:
                steps[step, mine] = step * 1e6 + field(mine.start, ROWS, COLUMNS)
        squeezed = group.create_dataset("squeezed", whole, dtype="i8", chunks=(5, 30), compression="gzip", shuffle=True)
        with squeezed.collective:
            squeezed[mine] = field(mine.start, ROWS, COLUMNS).astype("i8")


def read(path):
    """How many values were not what they should be."""
    wrong = 0
    part = slice(comm.rank * COLUMNS // comm.size, (comm.rank + 1) * COLUMNS // comm.size)
    wanted = field(0, comm.size * ROWS, COLUMNS)[:, part]
    with h5py.File(path, "r", driver="mpio", comm=comm) as file:
        wrong += file.attrs["title"] != "example"
        wrong += (file["fields"].attrs["origin"] != [0.5, 1.5]).sum()
        for name in ("rows", "squeezed"):
            with file["fields"][name].collective:
                wrong += (file["fields"][name][:, part] != wanted).sum()
        for step in range(STEPS):  # independent
            wrong += (file["fields/steps"][step, :, part] != step * 1e6 + wanted).sum()
        wrong += (file["fields/striped"][...] != field(0, ROWS, COLUMNS * comm.size)).sum()
    return int(wrong)


if __name__ == "__main__":
    write(sys.argv[1])
    bad = comm.allreduce(read(sys.argv[1]))
    if comm.rank == 0:
        library = f"h5py {h5py.__version__}, HDF5 {h5py.version.hdf5_version}"
        print(json.dumps({"case": "h5py", "library": library, "ranks": comm.size, "values_wrong": bad}), flush=True)
    sys.exit(bad != 0)
