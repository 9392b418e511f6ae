"""A sync after a power loss: what was not synced is reported once, by everything that syncs, and nothing else is."""

import errno
import os
import shutil
import tempfile
from pathlib import Path

import power
import pytest
from conftest import PENSTOCK, ROOT, penstock
from mounted import as_root, fails, needs_fuse
from test_bad_input import program
from test_passthrough import closed, way

pytestmark = [
    as_root,
    pytest.mark.skipif(
        not power.separable(), reason="no mount name space can be made here: power losses are not tested"
    ),
]

POWER = f"""
sys.path.insert(0, {str(ROOT / "tests")!r})
import power

def alone(call, *args):
    # By one rank, while the others wait.
    comm.Barrier()
    if rank == 0:
        call(deployment, *args)
    comm.Barrier()
"""


def test_mpi_file_sync(deployment, tmp_path):
    """Ranks 0 and 2 write to data server 1, rank 1 to none that loses anything."""
    program(
        tmp_path,
        deployment,
        POWER
        + """
import re
UNIT, ROUND = 65536, 4 * 65536
f = opened("x", start_iodevice="0", striping_factor="4", striping_unit=str(UNIT))
# Two stripes, on servers 1 and 2; rank 1 writes to servers 2 and 3.
at, n = rank * ROUND + (UNIT if rank != 1 else 2 * UNIT), 2 * UNIT
mine = np.empty(n, "B")

def write(value):
    mine[:] = value
    f.Write_at_all(at, mine)

def read():
    f.Read_at_all(at, mine)
    return mine.tolist()

def lost():
    why = []
    try:
        f.Sync()
    except MPI.Exception as e:
        assert e.Get_error_class() == MPI.ERR_IO, e.Get_error_string()
        why.append(e.Get_error_string())
    assert why, "no error"
    assert "data server 1" in why[0] and "data server 2" not in why[0], why
    # At least what one rank has lost, and no more than it wrote.
    most = int(re.search(r"up to (\\d+) bytes written since", why[0])[1])
    assert UNIT <= most <= n and "/x" in why[0], why

write(1)
f.Sync()
alone(power.save, "data-1")
# kill -9 and a restart on the same boot lose nothing.
write(2)
alone(power.kill, "data-1")
alone(power.up, command)
f.Sync()
assert read() == [2] * n
# A power loss loses what was not synced. It is told to every rank, once.
alone(power.save, "data-1")
write(3)
alone(power.lose, "data-1", command)
assert read() == ([2] * UNIT + [3] * UNIT if rank != 1 else [3] * n), "nothing was lost: this test tests nothing"
lost()
f.Sync()
write(4)
f.Sync()
assert read() == [4] * n
# What was synced is not lost.
alone(power.save, "data-1")
alone(power.lose, "data-1", command)
f.Sync()
assert read() == [4] * n
# Closing and opening again does not make up for it; nor does what others wrote.
write(5)
f.Close()
alone(power.lose, "data-1", command)
f = opened("x")
lost()
f.Sync()
f.Close()
# One rank of all has lost something, through individual writes.
f = opened("x")
f.Sync()
if rank == 2:
    f.Write_at(UNIT, b"6" * UNIT)
alone(power.lose, "data-1", command)
lost()
f.Sync()
f.Close()
""",
        ranks=3,
    )
    penstock("check", "-d", deployment)


def test_a_file_that_the_metadata_server_lost(deployment, tmp_path):
    """Its host loses power before a sync has covered the creation of a file."""
    program(
        tmp_path,
        deployment,
        POWER
        + """
f = opened("kept")
f.Write_at_all(rank, b"k")
f.Sync()
alone(power.save, "meta")
g = opened("lost")
g.Write_at_all(rank, b"l")
alone(power.lose, "meta", command)
f.Write_at_all(rank, b"K")
f.Sync()
refused(MPI.ERR_IO, ["/lost"], g.Sync)
g.Close()
f.Close()
refused(MPI.ERR_NO_SUCH_FILE, ["/lost"], opened, "lost", RDWR)
f = opened("kept", RDWR)
found = bytearray(comm.size)
f.Read_at_all(0, found)
assert bytes(found) == b"K" * comm.size
f.Close()
""",
        ranks=2,
    )


# ---- mounts ----


@pytest.fixture
def site(request):
    """A deployment of one server and its mount, on a file system that suits passthrough if there is one."""
    found = "there is no mount"
    for parent in (None, "/dev/shm"):
        directory = Path(tempfile.mkdtemp(prefix="pst-", dir=parent))
        request.addfinalizer(lambda directory=directory: shutil.rmtree(directory, ignore_errors=True))
        fs, point = directory / "fs", directory / "mnt"
        point.mkdir()
        penstock("up", fs, "--servers", 1)
        request.addfinalizer(lambda fs=fs: penstock("down", fs, check=False))
        penstock("mount", point, "-d", fs)
        request.addfinalizer(lambda point=point: penstock("umount", "--lazy", point, check=False))
        with open(point / "probe", "w"):
            found = way(point / "probe")
        if found.startswith("passthrough") or "file system" not in found:
            break
    return fs, point, found


WAYS = {"daemon": os.O_APPEND, "kernel": 0}


@needs_fuse
@pytest.mark.parametrize("by", WAYS)
def test_fsync_through_a_mount(site, by):
    """What the daemon writes, and what the kernel writes by itself, which tells nobody of a write."""
    fs, point, found = site
    if by == "kernel" and not found.startswith("passthrough"):
        pytest.skip(f"passthrough is not tested: {found}")
    path = point / by

    def opened():
        fd = os.open(path, os.O_RDWR | os.O_CREAT | WAYS[by])
        assert way(path).startswith({"daemon": "daemon: opened to append", "kernel": "passthrough"}[by])
        return fd

    def close(fd):
        os.close(fd)
        closed(path)

    fd = opened()
    os.write(fd, b"first")
    os.fsync(fd)
    power.save(fs, "data-0")
    # kill -9 and a restart on the same boot lose nothing.
    os.write(fd, b"second")
    power.kill(fs, "data-0")
    power.up(fs, PENSTOCK)
    os.fsync(fd)
    close(fd)
    assert path.read_bytes() == b"firstsecond"
    closed(path)
    # Lost while it is open: told once.
    power.save(fs, "data-0")
    fd = opened()
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"third")
    power.lose(fs, "data-0", PENSTOCK)
    fails(errno.EIO, os.fsync, fd)
    close(fd)
    assert path.read_bytes() == b"firstsecond", "nothing was lost: this test tests nothing"
    closed(path)
    fd = opened()
    os.fsync(fd)
    # Lost while it is closed: told once, to who opens it next.
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"third")
    close(fd)
    power.lose(fs, "data-0", PENSTOCK)
    fd = opened()
    fails(errno.EIO, os.fsync, fd)
    os.fsync(fd)
    os.lseek(fd, 0, os.SEEK_END)
    os.write(fd, b"again")
    os.fsync(fd)
    power.save(fs, "data-0")
    close(fd)
    power.lose(fs, "data-0", PENSTOCK)
    assert path.read_bytes() == b"firstsecondagain"
    closed(path)
    assert penstock("check", "-d", fs).code == 0
