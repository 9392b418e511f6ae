"""Two mounts of one deployment, MPI-IO beside them, and daemons that are killed."""

import contextlib
import errno
import fcntl
import json
import os
import select
import signal
import stat
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest
from conftest import PENSTOCK, penstock
from mounted import as_root, await_, daemon_of, dead_or_gone, fails, needs_fuse, write

pytestmark = needs_fuse


def test_two_mounts_agree(place, d):
    other = place[2] / d.name
    (d / "f").write_bytes(b"from one")
    assert (other / "f").read_bytes() == b"from one"
    with open(other / "f", "r+b") as far, open(d / "f", "rb", buffering=0) as near:
        far.seek(100_000)
        far.write(b"end")
        far.flush()
        assert os.pread(near.fileno(), 3, 100_000) == b"end", "bytes at once"
    with open(d / "f", "rb") as near:
        assert os.fstat(near.fileno()).st_size == 100_003, "an open asks anew"
    os.rename(other / "f", other / "g")
    os.symlink("g", other / "link")
    time.sleep(1.1)
    assert sorted(os.listdir(d)) == ["g", "link"] and (d / "link").stat().st_size == 100_003
    assert not (d / "f").exists()


LOCKER = """
import fcntl, os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)  # Whoever started the tests may ignore it.
fd = os.open(sys.argv[1], os.O_RDWR)
print("begun", flush=True)
getattr(fcntl, sys.argv[2])(fd, fcntl.LOCK_EX)
print("locked", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def locker(path, how):
    """A process that takes a lock, and keeps it until its input ends."""
    command = [sys.executable, "-c", LOCKER, str(path), how]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout.readline() == "begun\n"
            yield process
        finally:
            process.kill()


def ended(process):
    """Lets it end."""
    rest, _ = process.communicate(timeout=60)
    return rest


@pytest.mark.parametrize("how", ["flock", "lockf"])
def test_locks_are_seen_by_other_mounts(place, d, how):
    write(d / "f", b"0" * 100)
    take = getattr(fcntl, how)
    near, far = os.open(d / "f", os.O_RDWR), os.open(place[2] / d.name / "f", os.O_RDWR)
    take(near, fcntl.LOCK_EX)
    with locker(place[2] / d.name / "f", how) as waits:
        fails(errno.EAGAIN, locked_elsewhere, place[2] / d.name / "f", how)
        assert select.select([waits.stdout], [], [], 0.3)[0] == [], "it waits"
        take(near, fcntl.LOCK_UN)
        assert waits.stdout.readline() == "locked\n"
        fails(errno.EAGAIN, take, near, fcntl.LOCK_EX | fcntl.LOCK_NB)
        ended(waits)
    # It ended, and its lock with it; the kernel may say so a moment later.
    take(near, fcntl.LOCK_EX)
    os.close(near)
    # Closed without unlocking.
    take(far, fcntl.LOCK_EX)
    os.close(far)


@as_root
def test_the_two_kinds_of_locks_do_not_meet(place, d):
    """As on a local file system: flock and fcntl locks are apart, in one mount and over two."""
    write(d / "f", b"0" * 100)
    far = place[2] / d.name / "f"
    fd = os.open(d / "f", os.O_RDWR)
    for held, other in (("flock", "lockf"), ("lockf", "flock")):
        getattr(fcntl, held)(fd, fcntl.LOCK_EX)
        for path in (d / "f", far):
            # Whoever had it before may have ended a moment ago.
            await_(lambda path=path, other=other: not refused(locked_elsewhere, path, other))
            fails(errno.EAGAIN, locked_elsewhere, path, held)
        # Both at once, as careful programs take them.
        getattr(fcntl, other)(fd, fcntl.LOCK_EX)
        for path in (d / "f", far):
            fails(errno.EAGAIN, locked_elsewhere, path, other)
        getattr(fcntl, held)(fd, fcntl.LOCK_UN)
        for path in (d / "f", far):
            await_(lambda path=path, held=held: not refused(locked_elsewhere, path, held))
            fails(errno.EAGAIN, locked_elsewhere, path, other)
        getattr(fcntl, other)(fd, fcntl.LOCK_UN)
    os.close(fd)


def locked_elsewhere(path, how):
    """Tries to lock in a process of its own."""
    program = (
        "import fcntl, os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\n"
        "try: getattr(fcntl, sys.argv[2])(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError as e: sys.exit(e.errno)\n"
    )
    code = subprocess.run([sys.executable, "-c", program, str(path), how], check=False).returncode
    if code:
        raise OSError(code, os.strerror(code))


def test_ranges_are_locked_between_mounts(place, d):
    write(d / "f", b"0" * 100)
    near, far = os.open(d / "f", os.O_RDWR), os.open(place[2] / d.name / "f", os.O_RDWR)
    fcntl.lockf(near, fcntl.LOCK_EX, 10, 20)
    fcntl.lockf(far, fcntl.LOCK_EX | fcntl.LOCK_NB, 20, 0)
    fcntl.lockf(far, fcntl.LOCK_SH | fcntl.LOCK_NB, 0, 30)
    fails(errno.EAGAIN, fcntl.lockf, far, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 29)
    # Who is in the way: bytes 20 to 29 of this process.
    asked = struct.pack("hhqqi4x", fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, start, length, pid = struct.unpack("hhqqi4x", fcntl.fcntl(far, fcntl.F_GETLK, asked))
    assert (kind, start, length, pid) == (fcntl.F_WRLCK, 20, 10, os.getpid())
    # The middle given up, both ends stay.
    fcntl.lockf(near, fcntl.LOCK_UN, 4, 23)
    fcntl.lockf(far, fcntl.LOCK_EX | fcntl.LOCK_NB, 4, 23)
    for start in (22, 27):
        fails(errno.EAGAIN, fcntl.lockf, far, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, start)
    fcntl.lockf(near, fcntl.LOCK_SH, 1, 22)
    fcntl.lockf(far, fcntl.LOCK_SH | fcntl.LOCK_NB, 1, 22)
    os.close(near)
    fcntl.lockf(far, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.close(far)


@pytest.mark.parametrize("how", ["flock", "lockf"])
@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL, signal.SIGINT])
def test_a_signal_ends_waiting_for_a_lock(place, d, how, sign):
    write(d / "f", b"0")
    fd = os.open(d / "f", os.O_RDWR)
    getattr(fcntl, how)(fd, fcntl.LOCK_EX)
    for path in (d / "f", place[2] / d.name / "f"):
        with locker(path, how) as waits:
            assert select.select([waits.stdout], [], [], 0.2)[0] == [], "it waits"
            waits.send_signal(sign)
            assert waits.wait(timeout=60) != 0
    os.close(fd)


def test_a_dead_mount_holds_no_locks(place, d, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", place[0])
    write(d / "f", b"0")
    fd = os.open(d / "f", os.O_RDWR)
    with locker(point / d.name / "f", "lockf") as holder:
        assert holder.stdout.readline() == "locked\n"
        fails(errno.EAGAIN, fcntl.lockf, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.kill(daemon_of(point), signal.SIGKILL)
        fcntl.lockf(fd, fcntl.LOCK_EX)
        holder.kill()
    os.close(fd)
    await_(lambda: dead_or_gone(point))


BOTH = """
import errno, fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
first, second = map(int, sys.argv[2:])
fcntl.lockf(fd, fcntl.LOCK_EX, 1, first)
print("one", flush=True)
sys.stdin.readline()
try:
    fcntl.lockf(fd, fcntl.LOCK_EX, 1, second)
    print("both", flush=True)
except OSError as e:
    print("a ring" if e.errno == errno.EDEADLK else e, flush=True)
"""


def test_whoever_would_wait_for_itself_is_told(place, d):
    """Each holds what the other wants; in three mounts' worth of processes it is a ring."""
    write(d / "f", b"0" * 10)
    paths = [d / "f", place[2] / d.name / "f", d / "f"]
    ring = [
        subprocess.Popen(
            [sys.executable, "-c", BOTH, str(path), str(k), str((k + 1) % 3)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for k, path in enumerate(paths)
    ]
    try:
        assert [p.stdout.readline() for p in ring] == ["one\n"] * 3
        for p in ring:
            p.stdin.write("go\n")
            p.stdin.flush()
        # Whoever comes last is refused and goes; so the others get what they want, one after the other.
        assert sorted(ended(p) for p in ring) == ["a ring\n", "both\n", "both\n"]
    finally:
        for p in ring:
            p.kill()
            p.wait()


def other_end(point, name, how="lockf"):
    """Tries to lock through this mount, from a process of its own."""
    return locked_elsewhere(point / name, how)


@pytest.fixture
def two_mounts(deployment, short_dir):
    points = [short_dir / "one", short_dir / "two"]
    for point in points:
        point.mkdir()
        penstock("mount", point, "-d", deployment)
    yield points
    for point in points:
        penstock("umount", "--lazy", point, check=False)


@pytest.mark.parametrize("how", ["down and up", "kill -9"])
def test_locks_outlive_the_metadata_server(deployment, two_mounts, how):
    one, two = two_mounts
    write(one / "f", b"0" * 100)
    fd = os.open(one / "f", os.O_RDWR)
    fcntl.lockf(fd, fcntl.LOCK_EX, 10, 20)
    flocked = os.open(one / "g", os.O_RDWR | os.O_CREAT)
    fcntl.flock(flocked, fcntl.LOCK_EX)
    if how == "kill -9":
        pid = int((deployment / "run" / "meta.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        await_(lambda: not Path(f"/proc/{pid}").exists())
    penstock("down", deployment, check=False)
    penstock("up", deployment)
    # Whoever is quicker than the mount that holds them waits until it has claimed them.
    fails(errno.EAGAIN, other_end, two, "f")
    fails(errno.EAGAIN, other_end, two, "g", "flock")
    far = os.open(two / "f", os.O_RDWR)
    fcntl.lockf(far, fcntl.LOCK_EX | fcntl.LOCK_NB, 10, 30)
    fails(errno.EAGAIN, fcntl.lockf, far, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 29)
    fcntl.lockf(far, fcntl.LOCK_UN)
    for held in (fd, flocked):
        os.close(held)
    os.close(far)
    other_end(two, "f")
    await_(lambda: not refused(other_end, two, "g", "flock"))


def refused(call, *args):
    try:
        call(*args)
    except OSError:
        return True
    return False


HOLDER = """
import errno, fcntl, os, sys
fd = os.open(sys.argv[1], os.O_RDWR)
fcntl.lockf(fd, fcntl.LOCK_EX)
print("locked", flush=True)
for line in sys.stdin:
    try:
        fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        print("locked", flush=True)
    except OSError as e:
        print(errno.errorcode[e.errno], flush=True)
"""


def test_a_lost_lock_is_reported(deployment, two_mounts):
    one, two = two_mounts
    write(two / "f", b"0" * 100)
    # Nobody else has anything open in the mount that is stopped: even to close it would have to wait.
    command = [sys.executable, "-c", HOLDER, str(one / "f")]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
    stopped = daemon_of(one)
    try:
        assert holder.stdout.readline() == "locked\n"
        os.kill(stopped, signal.SIGSTOP)
        penstock("down", deployment)
        penstock("up", deployment)
        # The mount that holds it does not claim it in time.
        far = os.open(two / "f", os.O_RDWR)
        fcntl.lockf(far, fcntl.LOCK_EX)
        os.kill(stopped, signal.SIGCONT)
        log = deployment / "log" / "mount.log"
        await_(lambda: "has lost its lock" in log.read_text())

        def again():
            holder.stdin.write("again\n")
            holder.stdin.flush()
            return holder.stdout.readline().strip()

        assert again() == "EIO"
        # It knows now, and begins anew.
        assert again() == "EAGAIN"
        os.close(far)
        await_(lambda: again() == "locked")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(stopped, signal.SIGCONT)
        holder.kill()
        holder.wait()
        holder.stdin.close()
        holder.stdout.close()


EXCHANGE = """
import os, sys
from mpi4py import MPI
import numpy as np
comm, out = MPI.COMM_WORLD, sys.argv[1]
# Plain paths, no prefix: one file through the mount, one through MPI-IO; each then the other way round.
if comm.rank == 0:
    with open(f"{out}/restart.txt", "w") as f:
        f.write("step 42\\n")
f = MPI.File.Open(comm, f"{out}/field.bin", MPI.MODE_CREATE | MPI.MODE_RDWR)
f.Write_at_all(comm.rank * 100_000, np.full(100_000, 65 + comm.rank, np.uint8))
f.Close()
comm.Barrier()
data = open(f"{out}/field.bin", "rb").read()
assert data == b"A" * 100_000 + b"B" * 100_000, len(data)
assert os.stat(f"{out}/field.bin").st_size == 200_000
back = np.zeros(8, np.uint8)
f = MPI.File.Open(comm, f"{out}/restart.txt", MPI.MODE_RDONLY)
assert f.Get_size() == 8
f.Read_at_all(0, back)
f.Close()
assert bytes(back) == b"step 42\\n"
comm.Barrier()
if comm.rank == 0:
    os.rename(f"{out}/field.bin", f"{out}/done.bin")
"""


@pytest.mark.parametrize("way", ["absolute", "relative", "through a link", "link in the mount"])
def test_one_program_uses_both(place, d, tmp_path, way):
    (d / "real").mkdir()
    os.symlink("real", d / "inner")
    os.symlink(d, tmp_path / "out")
    out, cwd = {
        "absolute": (str(d), "/"),
        "relative": (".", d),
        "through a link": ("out", tmp_path),
        "link in the mount": (str(d / "inner"), "/"),
    }[way]
    program = tmp_path / "program.py"
    program.write_text(EXCHANGE)
    done = penstock(
        "run", "-n", 2, "-d", place[0], "--mount", place[1], "--json", "--", sys.executable, program, out, cwd=cwd
    )
    where = d / "real" if "mount" in way else d
    assert sorted(p.name for p in where.iterdir() if p.name[0] in "dr" and p.is_file()) == ["done.bin", "restart.txt"]
    summary = done.json()[-1]
    assert "field.bin" in json.dumps(summary), "MPI-IO went to the servers, not through the mount"


def test_a_run_finds_the_mount_that_there_is(place, d, tmp_path):
    program = tmp_path / "program.py"
    program.write_text(EXCHANGE)
    for path in (place[1], place[2]):
        if (
            penstock("run", "-n", 2, "-d", place[0], "--", sys.executable, program, path / d.name, check=False).code
            == 0
        ):
            return
    raise AssertionError("neither of the mounts was found")


def test_a_run_makes_its_own_mount(short_dir, tmp_path):
    point = short_dir / "mnt"
    point.mkdir()
    program = tmp_path / "program.py"
    program.write_text(EXCHANGE)
    penstock("run", "-n", 2, "--mount", point, "--", sys.executable, program, point)
    assert not os.path.ismount(point) and os.listdir(point) == []


def test_sizes_and_times_agree_with_mpi_io(place, d):
    name = f"penstock:/{d.name}/f"
    before = time.time_ns()
    program = (
        "import sys\nfrom mpi4py import MPI\n"
        "f = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)\n"
        "f.Write_at(70_000, b'late')\nassert f.Get_size() == 70_004\nf.Close()\n"
    )
    time.sleep(0.02)
    penstock("run", "-n", 1, "--quiet", "-d", place[0], "--", sys.executable, "-c", program, name)
    mounted = (d / "f").stat()
    assert mounted.st_size == 70_004 and before < mounted.st_mtime_ns < time.time_ns()
    listed = penstock("stat", name, "-d", place[0], "--json").json()[0]
    assert listed["size"] == 70_004 and listed["mtime_ns"] == mounted.st_mtime_ns
    time.sleep(0.02)
    with open(d / "f", "ab") as f:
        f.write(b"er")
    assert (d / "f").stat().st_mtime_ns > mounted.st_mtime_ns
    grown = penstock("stat", name, "-d", place[0], "--json").json()[0]
    assert grown["size"] == 70_006 and grown["mtime_ns"] > listed["mtime_ns"]


# ---- daemons come and go ----


def is_cut_off(call, *args):
    """The call fails for want of a daemon: ENOTCONN, once the kernel has taken the connection apart."""

    def error():
        with pytest.raises(OSError) as raised:
            call(*args)
        return raised.value.errno

    await_(lambda: error() == errno.ENOTCONN, f"{errno.errorcode[error()]} instead of ENOTCONN")


def test_kill_9_leaves_no_dead_mount_point(deployment, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    (point / "f").write_bytes(b"kept")
    fd = os.open(point / "f", os.O_RDONLY)
    os.kill(daemon_of(point), signal.SIGKILL)
    await_(lambda: dead_or_gone(point))
    assert os.listdir(point) == [], "the empty directory is back"
    is_cut_off(os.pread, fd, 1, 0)
    # The descriptor is free, whatever close says.
    with contextlib.suppress(OSError):
        os.close(fd)
    penstock("mount", point, "-d", deployment)
    assert (point / "f").read_bytes() == b"kept"
    penstock("umount", point)


def test_a_dead_mount_point_is_recovered(deployment, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    daemon = daemon_of(point)
    children = Path(f"/proc/{daemon}/task/{daemon}/children").read_text().split()
    # Its guard first: as after a crash that took both.
    for pid in [*map(int, children), daemon]:
        os.kill(pid, signal.SIGKILL)
    await_(lambda: daemon_of(point) is None)
    is_cut_off(os.stat, point / "f")
    penstock("mount", point, "-d", deployment)
    (point / "f").write_bytes(b"again")
    penstock("umount", point)
    gone = penstock("umount", point, check=False)
    assert gone.code == 1 and "penstock mount" in gone.err


def test_servers_come_back_under_a_mount(deployment, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    (point / "f").write_bytes(b"before" * 40_000)
    fd = os.open(point / "f", os.O_RDWR)
    penstock("down", deployment)
    penstock("up", deployment)
    assert os.pread(fd, 6, 0) == b"before"
    assert os.pwrite(fd, b"after", 0) == 5 and (point / "f").read_bytes()[:7] == b"aftere" + b"b"
    os.close(fd)
    penstock("umount", point)
    await_(lambda: daemon_of(point) is None)


def test_a_listing_does_not_call_a_lost_file_empty(deployment, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    (point / "whole").write_bytes(b"kept")
    (point / "lost").write_bytes(b"kept")
    lost = os.stat(point / "lost").st_ino
    penstock("umount", point)
    penstock("down", deployment)
    (gone,) = deployment.glob(f"*/objects/*/{lost:016x}")
    gone.unlink()
    penstock("up", deployment)
    penstock("mount", point, "-d", deployment)
    # `ls -l`: the kernel learns what is in the directory, and of each file what it is asked for.
    listed = subprocess.run(["ls", "-l", point], capture_output=True, text=True, check=False)
    assert listed.returncode != 0 and "Bad message" in listed.stderr, listed
    assert os.stat(point / "whole").st_size == 4 and (point / "whole").read_bytes() == b"kept"
    fails(errno.EBADMSG, os.stat, point / "lost")
    fails(errno.EBADMSG, (point / "lost").read_bytes)
    penstock("umount", point)


def kill_servers(deployment):
    for file in (deployment / "run").glob("*.pid"):
        os.kill(int(file.read_text().split()[0]), signal.SIGKILL)


def test_unmounting_waits_for_no_server(deployment, short_dir):
    """Servers that are gone keep nobody."""
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    (point / "f").write_bytes(b"x")
    kill_servers(deployment)
    began = time.monotonic()
    penstock("umount", point)
    assert time.monotonic() - began < 10
    assert dead_or_gone(point)


def test_what_is_damaged_can_be_removed(deployment, short_dir):
    """By `rm` through a mount, and by `penstock rm`."""
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    names = ("by-name", "by-rm", "by-penstock", "below/it")
    (point / "below").mkdir()
    for name in names:
        (point / name).write_bytes(os.urandom(400_000))
        os.sync()
    penstock("umount", point)
    kill_servers(deployment)
    # The mark of a failed sync (decision 13).
    for path in (deployment / "data-1" / "objects").rglob("*"):
        if path.is_file():
            path.chmod(stat.S_IMODE(path.stat().st_mode) | stat.S_ISVTX)
    penstock("up", deployment)
    penstock("mount", point, "-d", deployment)
    for name in names:
        fails(errno.EBADMSG, os.stat, point / name)
        fails(errno.EBADMSG, (point / name).read_bytes)
    os.unlink(point / "by-name")
    subprocess.run(["rm", point / "by-rm"], check=True, stdin=subprocess.DEVNULL)
    penstock("rm", "/by-penstock", "-d", deployment)
    subprocess.run(["rm", "-r", point / "below"], check=True, stdin=subprocess.DEVNULL)
    assert os.listdir(point) == []
    penstock("umount", point)
    assert "nothing is wrong" in penstock("check", "-d", deployment).out


def test_unmounting_says_what_is_in_the_way(deployment, short_dir):
    point = short_dir / "mnt"
    missing = penstock("mount", point, "-d", deployment, check=False)
    assert missing.code == 1 and "mkdir" in missing.err
    point.mkdir()
    (point / "hidden").write_text("x")
    full = penstock("mount", point, "-d", deployment, check=False)
    assert full.code == 1 and "not empty" in full.err
    (point / "hidden").unlink()
    penstock("mount", point, "-d", deployment)
    again = penstock("mount", point, "-d", deployment, check=False)
    assert again.code == 1 and "already" in again.err
    with open(point / "f", "w"):
        busy = penstock("umount", point, check=False)
        assert busy.code == 1 and "--lazy" in busy.err
        penstock("umount", "--lazy", point)
    assert dead_or_gone(point)
    await_(lambda: daemon_of(point) is None)


def test_a_signal_ends_the_daemon_and_the_mount(deployment, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    daemon = subprocess.Popen(
        [str(PENSTOCK), "mount", str(point), "--foreground", "-d", str(deployment)], stderr=subprocess.PIPE, text=True
    )
    await_(lambda: os.path.ismount(point))
    (point / "f").write_bytes(b"x")
    daemon.send_signal(signal.SIGTERM)
    assert "is mounted on" in daemon.communicate(timeout=20)[1]
    assert daemon.returncode == 0 and dead_or_gone(point)
