"""Files that are whole on one server of this host: the kernel reads and writes them by itself."""

import contextlib
import errno
import mmap
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import pytest
from conftest import penstock
from mounted import ALICE, TEAM, as_root, as_user, await_, daemon_of, dead_or_gone, fails, mode_of, needs_fuse

pytestmark = [needs_fuse, as_root]


def way(path):
    return os.getxattr(path, "user.penstock.way").decode()


@pytest.fixture(scope="module")
def site(request):
    """A deployment of two servers, its mount, a second one without passthrough; a store that suits."""
    # What lies on stacked file systems (containers) is not lent; memory is.
    for parent in (None, "/dev/shm"):
        directory = Path(tempfile.mkdtemp(prefix="pst-", dir=parent))
        request.addfinalizer(lambda directory=directory: shutil.rmtree(directory, ignore_errors=True))
        directory.chmod(0o755)
        fs, one, two = directory / "fs", directory / "one", directory / "two"
        penstock("up", fs, "--servers", 2, "--group", 61020)
        request.addfinalizer(lambda fs=fs: penstock("down", fs, check=False))
        one.mkdir()
        two.mkdir()
        penstock("mount", one, "-d", fs)
        request.addfinalizer(lambda one=one: penstock("umount", "--lazy", one, check=False))
        os.setxattr(one, "user.penstock.layout", b"count=1 start=0")
        with open(one / "probe", "w"):
            found = way(one / "probe")
        if found.startswith("passthrough"):
            penstock("mount", two, "-d", fs, "--no-passthrough")
            request.addfinalizer(lambda two=two: penstock("umount", "--lazy", two, check=False))
            return fs, one, two
        if "file system" not in found:
            break
    pytest.skip(f"passthrough is not tested: {found}")
    return None


@pytest.fixture
def p(site, request):
    """A fresh directory whose files are whole."""
    name = "".join(c if c.isalnum() else "-" for c in request.node.name)
    path = site[1] / name
    path.mkdir()
    path.chmod(0o777)
    return path


def closed(path):
    """The kernel tells of a close a moment later."""
    await_(lambda: way(path) == "closed", "it stays open")


def run(site, program, *args):
    return penstock("run", "-n", 1, "--quiet", "-d", site[0], "--", sys.executable, "-c", program, *args)


WRITE = (
    "import sys\nfrom mpi4py import MPI\n"
    "f = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)\n"
)


def test_which_files_the_kernel_has(site, p):
    path = p / "f"
    with open(path, "wb") as f:
        assert way(path) == "passthrough: reads and writes"
        assert way(site[2] / p.name / "f") == "closed", "in another mount"
        f.write(b"whole")
    closed(path)
    with open(path, "rb"):
        assert way(path) == "passthrough: reads"
    closed(path)
    with open(path, "ab"):
        assert way(path) == "daemon: opened to append"
    closed(path)
    with open(site[2] / p.name / "f", "rb") as f:
        assert f.read() == b"whole"
        assert way(f.fileno()) == "daemon: this mount has no passthrough"
    (p / "wide").touch()
    os.setxattr(p / "wide", "user.penstock.layout", b"count=2")
    with open(p / "wide", "wb"):
        assert way(p / "wide") == "daemon: striped over 2 servers"
    (p / "empty").touch()
    closed(p / "empty")
    assert "user.penstock.way" not in os.listxattr(path)


def test_sizes_times_and_bytes_agree_with_mpi_io(site, p):
    name = f"penstock:/{p.name}/f"
    data = os.urandom(300_000)
    before = time.time_ns() - 20_000_000
    with open(p / "f", "w+b", buffering=0) as f:
        assert f.write(data) == len(data)
        assert way(p / "f").startswith("passthrough")
        shown = penstock("stat", name, "-d", site[0], "--json").json()[0]
        mounted = os.fstat(f.fileno())
        assert shown["size"] == len(data) == mounted.st_size
        assert shown["mtime_ns"] == mounted.st_mtime_ns and before < mounted.st_mtime_ns < time.time_ns()
        # Reads what the kernel wrote, writes over it and beyond; seen at once through the open file.
        program = WRITE + (
            "b = bytearray(300_000)\nf.Read_at(0, b)\nassert bytes(b[-100:]).hex() == sys.argv[2]\n"
            "f.Write_at(100, b'from MPI-IO')\nf.Write_at(400_000, b'late')\nassert f.Get_size() == 400_004\nf.Close()\n"
        )
        time.sleep(0.02)
        run(site, program, name, data[-100:].hex())
        assert os.pread(f.fileno(), 11, 100) == b"from MPI-IO"
        assert os.pread(f.fileno(), 100, 399_998) == b"\0\0late", "a hole and the end"
        grown = os.fstat(f.fileno())
        assert grown.st_size == 400_004 and grown.st_mtime_ns > mounted.st_mtime_ns
        assert os.lseek(f.fileno(), 0, os.SEEK_END) == 400_004
        # Cut by others.
        run(site, WRITE + "f.Set_size(50)\nf.Close()\n", name)
        assert os.fstat(f.fileno()).st_size == 50 and os.pread(f.fileno(), 100, 40) == data[40:50]
        os.pwrite(f.fileno(), b"again", 1000)
        os.fsync(f.fileno())
    assert run(site, WRITE + "print(f.Get_size())\n", name).out.split() == ["1005"]
    os.utime(p / "f", ns=(1, 2_000_000_000))
    assert (p / "f").stat().st_mtime_ns == 2_000_000_000
    time.sleep(0.02)  # Their clock is coarse.
    with open(p / "f", "r+b") as f:
        f.write(b"x")
    assert (p / "f").stat().st_mtime_ns > before, "a write counts after a set time"


def test_cutting_extending_and_copying(p):
    path = p / "f"
    data = os.urandom(200_000)
    with open(path, "w+b", buffering=0) as f:
        f.write(data)
        fd = f.fileno()
        os.ftruncate(fd, 100_001)
        assert os.pread(fd, 1 << 20, 0) == data[:100_001]
        os.truncate(path, 150_000)
        assert os.fstat(fd).st_size == 150_000 and os.pread(fd, 5, 120_000) == bytes(5)
        os.posix_fallocate(fd, 0, 160_000)
        assert os.fstat(fd).st_size == 160_000
        os.pwrite(fd, b"far", 1 << 20)
        assert os.pread(fd, 10, (1 << 20) - 2) == b"\0\0far"
        with open(path, "wb"):
            assert os.fstat(fd).st_size == 0 and os.pread(fd, 10, 0) == b"", "O_TRUNC by another open"
        os.pwrite(fd, b"new", 0)
        assert path.read_bytes() == b"new"
    shutil.copyfile(path, p / "g")
    assert (p / "g").read_bytes() == b"new"


def test_appending_is_one_at_a_time_whoever_has_the_file(site, p):
    near, far = p / "log", site[2] / p.name / "log"
    program = "import os,sys\nf=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT|os.O_APPEND)\n"
    program += "for k in range(40): os.write(f, (sys.argv[2]*99+'\\n').encode())\n"
    with open(near, "w+b", buffering=0) as held:
        assert way(near) == "passthrough: reads and writes"
        writers = [
            subprocess.Popen([sys.executable, "-c", program, str((near, far)[k % 2]), "abcd"[k]]) for k in range(4)
        ]
        assert all(w.wait(timeout=60) == 0 for w in writers)
        lines = os.pread(held.fileno(), 1 << 20, 0).decode().splitlines()
    assert sorted(lines) == sorted(c * 99 for c in "abcd" for _ in range(40))


@pytest.mark.parametrize("first", ["r", "w"])
def test_readers_and_writers_beside_each_other(p, first):
    path = p / "f"
    path.write_bytes(b"0" * 10_000)
    closed(path)
    modes = ("rb", "r+b") if first == "r" else ("r+b", "rb")
    with open(path, modes[0], buffering=0) as a, open(path, modes[1], buffering=0) as b:
        reader, writer = (a, b) if first == "r" else (b, a)
        assert way(path) == {"r": "passthrough: reads", "w": "passthrough: reads and writes"}[first]
        for k in range(20):
            os.pwrite(writer.fileno(), b"%04d" % k, 400 * k)
            assert os.pread(reader.fileno(), 4, 400 * k) == b"%04d" % k
        # Mapped by both: the same memory, and the bytes that others write into the file.
        with mmap.mmap(writer.fileno(), 0) as w, mmap.mmap(reader.fileno(), 0, prot=mmap.PROT_READ) as r:
            w[5:8] = b"map"
            assert r[5:8] == b"map" == os.pread(reader.fileno(), 3, 5)
            os.pwrite(writer.fileno(), b"call", 9_000)
            assert r[9_000:9_004] == b"call" == w[9_000:9_004]
            w.flush()
    closed(path)


def test_names_may_change_while_it_is_open(site, p):
    with open(p / "f", "w+b", buffering=0) as f:
        f.write(b"first")
        os.rename(p / "f", p / "g")
        f.write(b" second")
        (p / "other").write_bytes(b"other")
        os.rename(p / "other", p / "g")
        assert (p / "g").read_bytes() == b"other"
        f.write(b" third")
        assert os.pread(f.fileno(), 100, 0) == b"first second third"
        assert os.fstat(f.fileno()).st_size == 18 and os.fstat(f.fileno()).st_nlink == 0
        os.unlink(p / "g")
        f.write(b" fourth")
        os.fsync(f.fileno())
        assert os.pread(f.fileno(), 100, 0) == b"first second third fourth"

    def objects():
        return penstock("check", "-d", site[0], check=False).code

    await_(lambda: objects() == 0, "nothing is left of it")


def test_range_locks_wait_for_writers(site, p):
    name = f"penstock:/{p.name}/f"
    (p / "f").write_bytes(bytes(100_000))
    closed(p / "f")
    # Two ranks read, change and write back whole blocks under range locks; the mount writes the bytes between.
    sieve = (
        "import sys\nfrom mpi4py import MPI\n"
        "f = MPI.File.Open(MPI.COMM_SELF, sys.argv[1], MPI.MODE_RDWR)\n"
        "t = MPI.BYTE.Create_vector(1000, 1, 100).Commit()\nf.Set_view(0, MPI.BYTE, t)\n"
        "print('open', flush=True)\nf.Write_at(0, b'm' * 1000)\nf.Close()\n"
    )
    command = ["run", "-n", 1, "--quiet", "-d", site[0], "--method", "sieve", "--", sys.executable, "-c", sieve, name]
    with open(p / "f", "r+b", buffering=0) as f:
        assert way(p / "f") == "passthrough: reads and writes"
        done = []
        thread = threading.Thread(target=lambda: done.append(penstock(*command)))
        thread.start()
        for k in range(1000):
            os.pwrite(f.fileno(), b"w" * 99, k * 100 + 1)
        time.sleep(0.3)
    thread.join(timeout=120)
    assert done, "the lock was had after the close"
    assert (p / "f").read_bytes() == (b"m" + b"w" * 99) * 1000


def test_locks_need_not_wait_for_readers(site, p):
    (p / "f").write_bytes(bytes(1000))
    closed(p / "f")
    with open(p / "f", "rb", buffering=0) as reader:
        assert way(p / "f") == "passthrough: reads"
        atomic = WRITE + "f.Set_atomicity(True)\nf.Write_at(0, b'atomic')\nf.Close()\n"
        run(site, atomic, f"penstock:/{p.name}/f")
        assert reader.read(6) == b"atomic"
    closed(p / "f")
    with open(p / "f", "r+b", buffering=0) as writer, open(p / "f", "rb", buffering=0) as reader:
        assert way(p / "f") == "passthrough: reads and writes"
        writer.close()
        await_(lambda: way(p / "f") == "passthrough: reads")
        run(site, atomic, f"penstock:/{p.name}/f")
        assert reader.read(6) == b"atomic"
        with open(p / "f", "r+b") as again:
            again.write(b"ATOMIC")
        assert os.pread(reader.fileno(), 6, 0) == b"ATOMIC"


def test_who_may_not_keep_it_takes_the_set_id_bit_away(p):
    path = p / "f"
    path.write_bytes(b"x")
    closed(path)
    for change in (lambda: path.write_bytes(b"y") and None, lambda: os.truncate(path, 1)):
        path.chmod(0o4777)
        as_user(ALICE, TEAM, [], change)
        await_(lambda: mode_of(path) == 0o777)
    path.chmod(0o600)
    fails(errno.EACCES, as_user, ALICE, TEAM, [], lambda: path.read_bytes() and None)
    path.chmod(0o755)
    path.write_text("#!/bin/sh\necho $((6*7))\n")
    assert subprocess.check_output([path]) == b"42\n"


# ---- servers and daemons come and go ----


@pytest.fixture
def own(site, short_dir):
    """A deployment of one server, where the test may do as it likes, on the file system of the others."""
    directory = Path(tempfile.mkdtemp(prefix="pst-", dir=site[0].parent.parent))
    fs, point = directory / "fs", directory / "mnt"
    penstock("up", fs, "--servers", 1)
    point.mkdir()
    penstock("mount", point, "-d", fs)
    yield fs, point
    penstock("umount", "--lazy", point, check=False)
    penstock("down", fs, check=False)
    shutil.rmtree(directory, ignore_errors=True)


def server_of(fs):
    """The process of the data server."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and b"--server" in words and any(str(fs).encode() in w for w in words):
            return int(process.name)
    return None


def test_kill_9_of_the_data_server(own):
    fs, point = own
    data = os.urandom(100_000)
    with open(point / "f", "w+b", buffering=0) as f:
        f.write(data)
        assert way(point / "f") == "passthrough: reads and writes"
        os.kill(server_of(fs), signal.SIGKILL)
        await_(lambda: server_of(fs) is None)
        assert os.pread(f.fileno(), 1 << 20, 0) == data, "the kernel needs no server"
        os.pwrite(f.fileno(), b"while it was away", 50_000)
        penstock("up", fs)
        os.pwrite(f.fileno(), b"and after", 100_000)
        assert os.fstat(f.fileno()).st_size == 100_009
        os.fsync(f.fileno())
        # The new server knows what the old one lent.
        atomic = WRITE + "f.Set_atomicity(True)\nf.Write_at(0, b'atomic')\nf.Close()\n"
        done = []
        thread = threading.Thread(target=lambda: done.append(run((fs,), atomic, "penstock:/f")))
        thread.start()
        thread.join(timeout=2)
        assert not done, "the range lock waits"
    thread.join(timeout=120)
    assert done
    expected = bytearray(data + b"and after")
    expected[50_000:50_017] = b"while it was away"
    expected[:6] = b"atomic"
    assert (point / "f").read_bytes() == expected
    penstock("check", "-d", fs)


def test_a_scheduler_that_is_switched_on(own):
    fs, point = own
    with open(point / "f", "w+b", buffering=0) as before:
        before.write(b"x" * 100)
        penstock("tune", "sched=aioli", "-d", fs)
        assert way(point / "f") == "passthrough: reads and writes", "until it is closed"
    closed(point / "f")
    with open(point / "f", "r+b", buffering=0) as after:
        assert way(point / "f") == "daemon: this server sees each request"
        assert after.read() == b"x" * 100
        penstock("tune", "sched=noop", "-d", fs)
        with open(point / "f", "rb"):
            assert way(point / "f").startswith("daemon"), "all that have it open are of one kind"
    closed(point / "f")
    with open(point / "f", "rb"):
        assert way(point / "f") == "passthrough: reads"


def test_a_daemon_that_is_killed(own):
    fs, point = own
    (point / "f").write_bytes(b"x" * 100)
    closed(point / "f")
    fd = os.open(point / "f", os.O_RDONLY)
    assert way(point / "f") == "passthrough: reads"
    os.kill(daemon_of(point), signal.SIGKILL)
    await_(lambda: dead_or_gone(point))
    assert os.pread(fd, 200, 0) == b"x" * 100, "the kernel has it until it is closed"
    # The descriptor is free, whatever close says.
    with contextlib.suppress(OSError):
        os.close(fd)
    penstock("mount", point, "-d", fs)
    assert (point / "f").read_bytes() == b"x" * 100
