"""The program that test_crash.py kills: writes rounds of a known pattern and tells which are on stable storage.

Arguments: path of the file, directory for notes, seed. A round fills one slot of a ring in the file, interleaved
between the ranks; every fourth also makes a file of its own. After MPI_File_sync the round's number goes to
`acknowledged`. Ends when `stop` is there.
"""

import os
import sys
from pathlib import Path

PIECE = 3000  # no divisor of a stripe unit
PIECES = 24  # per rank and round
SLOTS = 8
KEPT = 4  # small files that stay


def pattern(np, seed, round_, offset, length):
    """The bytes that round `round_` puts at `offset`."""
    at = np.arange(offset, offset + length, dtype=np.uint64)
    return ((at * 31 + (at >> np.uint64(8)) * 7 + round_ * 97 + seed) % 251 + 1).astype(np.uint8)


def slot_bytes(ranks):
    return PIECE * PIECES * ranks


def main():
    import numpy as np
    from mpi4py import MPI

    path, notes, seed = sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])
    comm = MPI.COMM_WORLD
    (notes / f"pid-{comm.rank}").write_text(str(os.getpid()))
    whole = slot_bytes(comm.size)
    file = MPI.File.Open(comm, path, MPI.MODE_CREATE | MPI.MODE_RDWR)
    mine = MPI.BYTE.Create_vector(PIECES, PIECE, PIECE * comm.size).Commit()
    acknowledged = os.open(notes / "acknowledged", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    round_, stop = 0, False
    while not stop:
        start = (round_ % SLOTS) * whole
        data = pattern(np, seed, round_, start, whole).reshape(PIECES, comm.size, PIECE)[:, comm.rank, :].copy()
        file.Set_view(start + comm.rank * PIECE, MPI.BYTE, mine)
        if round_ % 2:
            file.Write_at(0, data)
        else:
            file.Write_at_all(0, data)
        if round_ % 4 == 0 and comm.rank == 0:
            small = MPI.File.Open(MPI.COMM_SELF, f"{path}-{round_}", MPI.MODE_CREATE | MPI.MODE_WRONLY)
            small.Write_at(0, pattern(np, seed, round_, 0, 100))
            small.Sync()
            small.Close()
            if round_ >= 4 * KEPT:
                MPI.File.Delete(f"{path}-{round_ - 4 * KEPT}")
        file.Sync()
        comm.Barrier()
        if comm.rank == 0:
            os.write(acknowledged, b"%d\n" % round_)
        stop = comm.bcast((notes / "stop").exists() if comm.rank == 0 else None)
        round_ += 1
    file.Close()


if __name__ == "__main__":
    main()
