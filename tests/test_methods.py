"""Correctness where programs meet: every method, through servers and in direct mode, by one unmodified MPI program.

Disjoint writers lose no byte, and one rank's mistake is an error of all. Also tested: shared pointers under
contention, accesses of nothing, and memory types with holes, overlap and negative bounds. The last are accesses at
and past the end of the file.
"""

import sys

import pytest
from conftest import crossed, penstock

METHODS = ("posix", "sieve", "two-phase", "list", "datatype", "node-exchange", "resonant", "auto")
RANKS = 4

PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
prefix = sys.argv[1]


def opened(name, comm=comm, mode=MPI.MODE_CREATE | MPI.MODE_RDWR):
    return MPI.File.Open(comm, prefix + name, mode)


def contents(f, n):
    whole = np.empty(n, dtype=np.uint8)
    status = MPI.Status()
    f.Set_view(0, MPI.BYTE, MPI.BYTE)
    f.Read_at(0, whole, status)
    assert status.Get_count(MPI.BYTE) == n
    return whole


def failed(call):
    try:
        call()
    except MPI.Exception as why:
        assert len(why.Get_error_string()) > 20
        return True
    return False


def disjoint_writers(rounds=20, n=200, piece=37):
    # Two ranks write strided pieces, independently; the others the pieces between, one call each or in runs.
    f = opened("disjoint")
    alone = opened("disjoint", MPI.COMM_SELF)
    t = MPI.BYTE.Create_vector(n, piece, size * piece).Commit()
    if rank < 2:
        alone.Set_view(rank * piece, MPI.BYTE, t)
    for k in range(rounds):
        mark = 1 + (k * size + rank) % 250
        if rank < 2:
            alone.Write_at(0, np.full(n * piece, mark, dtype=np.uint8))
        elif rank == 2:
            for i in range(n):
                alone.Write_at((i * size + rank) * piece, np.full(piece, mark, dtype=np.uint8))
        else:
            part = n // 2
            for first in (0, part):
                alone.Set_view((first * size + rank) * piece, MPI.BYTE, t)
                alone.Write_at(0, np.full(part * piece, mark, dtype=np.uint8))
        comm.Barrier()
        whole = contents(f, n * size * piece).reshape(n, size, piece)
        for r in range(size):
            assert (whole[:, r] == 1 + (k * size + r) % 250).all(), f"round {k}: bytes of rank {r} were lost"
        comm.Barrier()
    alone.Close()
    # The same collectively, beside a file handle of its own that writes what lies after.
    f.Set_view(rank * piece, MPI.BYTE, t)
    f.Write_at_all(0, np.full(n * piece, 251 + rank, dtype=np.uint8))
    whole = contents(f, n * size * piece).reshape(n, size, piece)
    assert all((whole[:, r] == 251 + r).all() for r in range(size))
    t.Free()
    f.Close()


def one_rank_fails():
    # A rank whose arguments are bad: all hear of it, none waits for ever, and the file goes on.
    f = opened("fails")
    t = MPI.BYTE.Create_vector(50, 10, 10 * size).Commit()
    f.Set_view(10 * rank, MPI.BYTE, t)
    data = np.full(500, 1 + rank, dtype=np.uint8)
    uncommitted = MPI.BYTE.Create_resized(0, 2**60)
    huge = uncommitted.Create_vector(2**20, 1, 2**20).Commit()

    def heard(call):
        # By all in this call, or by the others in the next one in which ranks meet.
        mine = failed(call)
        ranks = comm.allreduce(int(mine))
        assert mine or rank != bad
        assert ranks in (1, size)
        assert failed(lambda: f.Set_atomicity(False)) == (ranks < size)

    for bad in range(size):
        count = [data, 1, huge] if rank == bad else data
        heard(lambda: f.Write_at_all(0, count))
        at = -1 if rank == bad else 0
        heard(lambda: f.Read_at_all(at, np.empty_like(data)))
        heard(lambda: f.Iwrite_at_all(at, data).Wait())
    f.Write_at_all(0, data)
    assert (contents(f, 500 * size).reshape(50, size, 10) == np.arange(1, size + 1)[:, None]).all()
    f.Close()
    f = opened("fails", mode=MPI.MODE_RDONLY)
    assert failed(lambda: f.Write_at_all(0, data))
    f.Close()
    # An open that one rank gets wrong.
    name = "fails" if rank else "none/such"
    assert failed(lambda: opened(name, mode=MPI.MODE_RDWR if rank else MPI.MODE_RDONLY))
    for t in (t, huge, uncommitted):
        t.Free()


def shared_pointers(rounds=25):
    f = opened("shared")
    record = np.empty(100, dtype=np.uint8)
    for k in range(rounds):
        record[:] = 1 + rank
        record[0] = k
        f.Write_shared(record)
    comm.Barrier()
    assert f.Get_position_shared() == rounds * size * 100
    whole = contents(f, rounds * size * 100).reshape(-1, 100)
    for r in range(size):
        mine = whole[whole[:, 1] == 1 + r]
        assert (mine[:, 1:] == 1 + r).all(), "records are mixed"
        assert mine[:, 0].tolist() == list(range(rounds)), "records are lost or out of order"
    comm.Barrier()
    # Read shared: every record goes to exactly one rank.
    f.Seek_shared(0)
    seen = []
    while True:
        status = MPI.Status()
        f.Read_shared(record, status)
        if status.Get_count(MPI.BYTE) == 0:
            break
        seen.append((int(record[1]), int(record[0])))
    seen = sum(comm.allgather(seen), [])
    assert sorted(seen) == [(1 + r, k) for r in range(size) for k in range(rounds)]
    f.Seek_shared(0)
    f.Write_ordered(np.full(10 + rank, 101 + rank, dtype=np.uint8))
    head = contents(f, sum(10 + r for r in range(size)))
    assert head.tolist() == sum(([101 + r] * (10 + r) for r in range(size)), [])
    f.Close()


def nothing():
    f = opened("nothing")
    status = MPI.Status()
    none = np.empty(0, dtype=np.uint8)
    empty = MPI.BYTE.Create_contiguous(0).Commit()
    some = np.full(10, 7, dtype=np.uint8)
    for write in (f.Write_at, f.Write_at_all):
        write(5, none, status)
        assert status.Get_count(MPI.BYTE) == 0
        write(5, [some, 3, empty], status)
    assert f.Get_size() == 0
    # Some ranks have nothing, in the middle of those who do.
    t = MPI.BYTE.Create_vector(20, 5, 5 * size).Commit()
    f.Set_view(5 * rank, MPI.BYTE, t)
    data = np.full(100 if rank % 2 else 0, 1 + rank, dtype=np.uint8)
    f.Write_at_all(0, data, status)
    assert status.Get_count(MPI.BYTE) == len(data)
    back = np.zeros(len(data), dtype=np.uint8)
    f.Read_at_all(0, back, status)
    assert status.Get_count(MPI.BYTE) == len(data) and (back == data).all()
    comm.Barrier()
    last = size - 1 - (size - 1) % 2 + (1 if (size - 1) % 2 else -1)
    assert f.Get_size() == 19 * 5 * size + 5 * (last + 1)
    whole = contents(f, f.Get_size())
    assert set(np.unique(whole).tolist()) == {0} | {1 + r for r in range(1, size, 2)}
    t.Free()
    empty.Free()
    f.Close()


def memory_types():
    f = opened("memory")
    t = MPI.BYTE.Create_vector(60, 4, 4 * size).Commit()
    base = np.arange(2000, dtype=np.uint16).astype(np.uint8) + rank
    # Name, type, count, its bytes in order: holes; parts before the address; one byte again and again.
    holes = MPI.BYTE.Create_indexed([3, 1, 8], [2, 7, 20]).Create_resized(0, 31)
    negative = MPI.BYTE.Create_hindexed([5, 2, 5], [-40, 0, -20]).Create_resized(-45, 70)
    again = MPI.BYTE.Create_hvector(6, 8, 2)
    for name, m, count, places in (
        ("holes", holes, 20, [31 * i + o for i in range(20) for o in (2, 3, 4, 7, *range(20, 28))]),
        ("negative", negative, 20, [70 * i + o for i in range(20) for b, n in ((-40, 5), (0, 2), (-20, 5)) for o in range(b, b + n)]),
        ("overlap", again, 5, [18 * i + 2 * j + o for i in range(5) for j in range(6) for o in range(8)]),
    ):  # fmt: skip
        m.Commit()
        origin = 50
        expected = base[[origin + p for p in places]]
        assert len(expected) == 240
        for write, read in ((f.Write_at, f.Read_at), (f.Write_at_all, f.Read_at_all)):
            f.Set_view(0, MPI.BYTE, MPI.BYTE)
            f.Set_size(0)
            f.Set_view(4 * rank, MPI.BYTE, t)
            write(0, [MPI.memory.fromaddress(base.ctypes.data + origin, 0), count, m])
            comm.Barrier()
            back = np.zeros(240, dtype=np.uint8)
            read(0, back)
            assert (back == expected).all(), name
            if name != "overlap":
                into = np.full(2000, 99, dtype=np.uint8)
                status = MPI.Status()
                read(0, [MPI.memory.fromaddress(into.ctypes.data + origin, 0), count, m], status)
                assert status.Get_count(m) == count
                wanted = np.full(2000, 99, dtype=np.uint8)
                wanted[[origin + p for p in places]] = expected
                assert (into == wanted).all(), f"{name}: memory beside the type was changed"
            comm.Barrier()
        m.Free()
    t.Free()
    f.Close()


def end_of_file():
    f = opened("end")
    status = MPI.Status()
    if rank == 0:
        f.Write_at(0, np.full(1003, 5, dtype=np.uint8))
    comm.Barrier()
    t = MPI.BYTE.Create_vector(100, 10, 10 * size).Commit()
    f.Set_view(10 * rank, MPI.BYTE, t)
    mine = sum(max(0, min(10, 1003 - 10 * (i * size + rank))) for i in range(100))
    for read in (f.Read_at, f.Read_at_all):
        for first in (0, 7, mine - 1, mine, mine + 1, 1000):
            buffer = np.full(1000 - first, 99, dtype=np.uint8)
            read(first, buffer, status)
            got = max(0, mine - first)
            assert status.Get_count(MPI.BYTE) == got, (status.Get_count(MPI.BYTE), got)
            assert (buffer[:got] == 5).all() and (buffer[got:] == 99).all()
    assert f.Get_size() == 1003
    f.Set_view(0, MPI.BYTE, MPI.BYTE)
    f.Read_at_all(2**40, np.empty(5, dtype=np.uint8), status)
    assert status.Get_count(MPI.BYTE) == 0
    t.Free()
    f.Close()


def atomic_mode():
    f = opened("atomic")
    f.Set_atomicity(True)
    t = MPI.BYTE.Create_vector(300, 7, 13).Commit()
    f.Set_view(0, MPI.BYTE, t)
    for write in (f.Write_at, f.Write_at_all):
        write(0, np.full(2100, 1 + rank, dtype=np.uint8))
        comm.Barrier()
        seen = np.empty(2100, dtype=np.uint8)
        f.Read_at(0, seen)
        assert len(np.unique(seen)) == 1, "two writers' bytes are mixed"
        comm.Barrier()
    t.Free()
    f.Close()


for part in (disjoint_writers, one_rank_fails, shared_pointers, nothing, memory_types, end_of_file, atomic_mode):
    try:
        part()
    except BaseException:
        print(f"rank {rank}, {part.__name__}:", file=sys.stderr, flush=True)
        raise
print("done", flush=True)
"""


@pytest.mark.parametrize(("mode", "method"), crossed(["servers", "shortcut", "direct"], METHODS))
def test_one_program(short_dir, tmp_path, method, mode):
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    where = {
        "servers": ("--store", short_dir, "--shortcut", "disable"),
        "shortcut": ("--store", short_dir, "--shortcut", "enable"),
        "direct": ("--direct",),
    }[mode]
    prefix = f"{tmp_path}/" if mode == "direct" else "penstock:/"
    done = penstock(
        "run", "-n", RANKS, "--method", method, "--stripe-unit", "4KiB", "--quiet", *where,
        "--", sys.executable, "-m", "mpi4py", script, prefix,
        check=False,
        env={"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )  # fmt: skip
    assert done.code == 0 and done.out.count("done") == RANKS, f"{done.out}\n{done.err}"
