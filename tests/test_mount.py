"""The mount: calls on files and their attributes, locks."""

import errno
import fcntl
import os
import stat
import subprocess
import sys
import time

import pytest
from conftest import penstock
from mounted import fails, mode_of, needs_fuse, write

pytestmark = needs_fuse


@pytest.mark.parametrize("flags", ["", "EXCL", "TRUNC", "APPEND"])
def test_open_flags(d, flags):
    path = d / "f"
    how = os.O_RDWR | os.O_CREAT | (getattr(os, f"O_{flags}") if flags else 0)
    os.close(os.open(path, how, 0o640))
    assert mode_of(path) == 0o640 & ~os_umask()
    path.write_bytes(b"0123456789")
    if flags == "EXCL":
        fails(errno.EEXIST, os.open, path, how)
        return
    fd = os.open(path, how)
    os.write(fd, b"ab")
    os.close(fd)
    expected = {"": b"ab23456789", "TRUNC": b"ab", "APPEND": b"0123456789ab"}[flags]
    assert path.read_bytes() == expected and path.stat().st_size == len(expected)


def os_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


@pytest.mark.parametrize("mask", [0, 0o022, 0o077])
def test_umask(d, mask):
    old = os.umask(mask)
    try:
        os.close(os.open(d / "f", os.O_CREAT, 0o666))
        os.mkdir(d / "d", 0o777)
    finally:
        os.umask(old)
    assert mode_of(d / "f") == 0o666 & ~mask and mode_of(d / "d") == 0o777 & ~mask


@pytest.mark.parametrize("size", [0, 1, 4096, 65536, 200_001, 3 << 20])
@pytest.mark.parametrize("offset", [0, 5, 65535])
def test_bytes_come_back(d, size, offset):
    data = os.urandom(size)
    fd = os.open(d / "f", os.O_RDWR | os.O_CREAT)
    at = 0
    while at < size:
        at += os.pwrite(fd, data[at:], offset + at)
    back = b""
    while piece := os.pread(fd, 1 << 20, offset + len(back)):
        back += piece
    assert back == data
    if size and offset:
        assert os.pread(fd, offset, 0) == bytes(offset), "a hole reads as zeros"
    assert os.fstat(fd).st_size == (offset + size if size else 0)
    os.close(fd)


def test_bad_calls_on_files(d):
    write(d / "f")
    fails(errno.ENOENT, os.open, d / "none", os.O_RDONLY)
    fails(errno.ENOTDIR, os.open, d / "f" / "x", os.O_RDONLY)
    fails(errno.EISDIR, os.open, d, os.O_WRONLY)
    fails(errno.ENAMETOOLONG, os.open, d / ("n" * 256), os.O_CREAT)
    os.close(os.open(d / ("n" * 255), os.O_CREAT))
    fd = os.open(d / "f", os.O_RDONLY)
    fails(errno.EBADF, os.write, fd, b"x")
    os.close(fd)
    fails(errno.EPERM, os.mkfifo, d / "pipe")
    os.mknod(d / "plain", 0o600 | stat.S_IFREG)
    assert (d / "plain").stat().st_size == 0


def test_append_from_many(place, d):
    two = place[2] / d.name
    program = "import os,sys\nf=os.open(sys.argv[1],os.O_WRONLY|os.O_CREAT|os.O_APPEND)\n"
    program += "for k in range(40): os.write(f, (sys.argv[2]*99+'\\n').encode())\n"
    writers = [
        subprocess.Popen([sys.executable, "-c", program, str((d, two)[k % 2] / "log"), "abcd"[k]]) for k in range(4)
    ]
    assert all(w.wait(timeout=60) == 0 for w in writers)
    lines = (d / "log").read_text().splitlines()
    assert sorted(lines) == sorted(c * 99 for c in "abcd" for _ in range(40))


@pytest.mark.parametrize("by", ["path", "descriptor"])
def test_truncate(d, by):
    path = d / "f"
    path.write_bytes(os.urandom(300_000))
    begin = path.read_bytes()[:100_001]
    fd = os.open(path, os.O_RDWR)
    cut = (lambda n: os.truncate(path, n)) if by == "path" else (lambda n: os.ftruncate(fd, n))
    cut(100_001)
    assert path.stat().st_size == 100_001 and path.read_bytes() == begin
    cut(200_000)
    assert path.read_bytes() == begin + bytes(99_999)
    cut(0)
    assert path.read_bytes() == b"" and os.fstat(fd).st_size == 0
    os.close(fd)


def test_fallocate_statfs_lseek_and_copy(d):
    fd = os.open(d / "f", os.O_RDWR | os.O_CREAT)
    os.posix_fallocate(fd, 0, 150_000)
    assert os.fstat(fd).st_size == 150_000 and os.pread(fd, 5, 149_995) == bytes(5)
    os.pwrite(fd, b"data" * 50_000, 0)
    assert os.lseek(fd, 0, os.SEEK_END) == 200_000
    assert os.lseek(fd, 10, os.SEEK_DATA) == 10 and os.lseek(fd, 10, os.SEEK_HOLE) == 200_000
    out = os.open(d / "g", os.O_RDWR | os.O_CREAT)
    copied = 0
    while n := os.copy_file_range(fd, out, 1 << 20, copied, copied):
        copied += n
    os.fsync(out)
    os.fdatasync(out)
    assert (d / "g").read_bytes() == b"data" * 50_000
    os.close(fd)
    os.close(out)
    space = os.statvfs(d)
    below = os.statvfs("/tmp")
    assert 0 < space.f_bavail <= space.f_blocks and space.f_namemax == 255
    assert space.f_blocks * space.f_frsize <= below.f_blocks * below.f_frsize * 1.01, "one disk counts once"


@pytest.mark.parametrize("flag", [os.O_SYNC, os.O_DSYNC])
def test_synchronous_writes(place, d, flag):
    """Each write of a new file is synced, its name too: so each takes a commit of the metadata server's."""

    def commits():
        (status,) = penstock("status", "-d", place[0], "--json").json()
        return status["meta"]["commits"]

    before = commits()
    for k in range(20):
        write(d / f"f{k}", b"x" * 100_000, os.O_WRONLY | os.O_CREAT | flag)
    assert commits() - before >= 20
    assert {(d / f"f{k}").read_bytes() for k in range(20)} == {b"x" * 100_000}


def test_mapped_memory(d):
    import mmap

    (d / "f").write_bytes(b"a" * 10_000)
    with open(d / "f", "r+b") as f, mmap.mmap(f.fileno(), 0) as view:
        assert view[9_999:] == b"a"
        view[5_000:5_003] = b"xyz"
        view.flush()
    assert (d / "f").read_bytes()[4_999:5_004] == b"axyza"


def test_programs_run_from_it(d):
    (d / "script").write_text("#!/bin/sh\necho $((6*7))\n")
    fails(errno.EACCES, os.execv, d / "script", ["script"])
    (d / "script").chmod(0o755)
    assert subprocess.check_output([d / "script"]) == b"42\n"


# ---- attributes ----


def test_modes_and_times(d):
    path = d / "f"
    write(path)
    for mode in (0o600, 0o777, 0o000, 0o4755, 0o1644):
        path.chmod(mode)
        assert mode_of(path) == mode
    os.utime(path, ns=(1_000_000_001, 2_000_000_002))
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (1_000_000_001, 2_000_000_002)
    os.utime(path, ns=(-5_000_000_000, -7_000_000_000))
    assert (path.stat().st_atime_ns, path.stat().st_mtime_ns) == (-5_000_000_000, -7_000_000_000)
    before = time.time_ns()
    time.sleep(0.02)
    write(path, b"more")
    assert before < path.stat().st_mtime_ns <= time.time_ns(), "a write counts after a set time"
    assert path.stat().st_ctime_ns >= before
    path.read_bytes()
    assert path.stat().st_atime_ns == -5_000_000_000, "reading leaves no trace"
    os.utime(path)
    assert abs(path.stat().st_mtime_ns - time.time_ns()) < 5_000_000_000
    folder = d / "sub"
    folder.mkdir()
    made = folder.stat().st_mtime_ns
    time.sleep(0.01)
    write(folder / "x")
    assert folder.stat().st_mtime_ns > made


def test_extended_attributes(d):
    path = d / "f"
    write(path)
    os.setxattr(path, "user.a", b"\0\xff value")
    os.setxattr(path, "user.b", b"")
    assert os.getxattr(path, "user.a") == b"\0\xff value" and os.getxattr(path, "user.b") == b""
    assert sorted(os.listxattr(path)) == ["user.a", "user.b", "user.penstock.layout"]
    fails(errno.EEXIST, os.setxattr, path, "user.a", b"", os.XATTR_CREATE)
    fails(errno.ENODATA, os.setxattr, path, "user.c", b"", os.XATTR_REPLACE)
    os.removexattr(path, "user.a")
    fails(errno.ENODATA, os.getxattr, path, "user.a")
    fails(errno.ENODATA, os.removexattr, path, "user.a")
    fails(errno.EOPNOTSUPP, os.setxattr, path, "system.posix_acl_access", b"x" * 28)
    os.setxattr(path, "user.full", b"x" * 4096)
    fails(errno.ENOSPC, os.setxattr, path, "user.much", b"x" * 4097)
    with pytest.raises(OSError, match="space"):
        for k in range(9):
            os.setxattr(path, f"user.{k}", b"x" * 4000)
    os.link(path, d / "g")
    assert os.getxattr(d / "g", "user.full") == b"x" * 4096


def layout(path):
    text = os.getxattr(path, "user.penstock.layout").decode()
    return dict(part.split("=") for part in text.split())


def test_striping(place, d):
    write(d / "plain", b"")
    assert layout(d / "plain")["count"] == "3"
    os.setxattr(d, "user.penstock.layout", b"unit=1MiB count=2 start=1")
    write(d / "new", b"")
    assert layout(d / "new") == {"unit": "1048576", "count": "2", "start": "1", "servers": "1,2"}
    (d / "sub").mkdir()
    write(d / "sub" / "inherits", b"")
    assert layout(d / "sub" / "inherits")["unit"] == "1048576"
    fd = os.open(d / "own", os.O_RDWR | os.O_CREAT)
    os.setxattr(fd, "user.penstock.layout", b"unit=128KiB,count=1,start=2")
    os.write(fd, b"z" * 400_000)
    os.close(fd)
    assert layout(d / "own") == {"unit": "131072", "count": "1", "start": "2", "servers": "2"}
    assert (d / "own").read_bytes() == b"z" * 400_000
    shown = penstock("stat", f"/{d.name}/own", "-d", place[0], "--json").json()[0]
    assert shown["servers"] == [2] and shown["stripe_unit"] == 131072
    fails(errno.EBUSY, os.setxattr, d / "own", "user.penstock.layout", b"count=2")
    fails(errno.EINVAL, os.setxattr, d, "user.penstock.layout", b"count=99")
    fails(errno.EINVAL, os.setxattr, d, "user.penstock.layout", b"colour=red")
    os.removexattr(d, "user.penstock.layout")
    write(d / "default", b"")
    assert layout(d / "default")["unit"] == "65536"


@pytest.mark.parametrize("how", ["flock", "fcntl"])
def test_advisory_locks_on_one_mount(d, how):
    write(d / "f")
    take = fcntl.flock if how == "flock" else fcntl.lockf
    fd = os.open(d / "f", os.O_RDWR)
    take(fd, fcntl.LOCK_EX)
    program = f"""if 1:
        import fcntl, os, sys
        fd = os.open(sys.argv[1], os.O_RDWR)
        try:
            fcntl.{take.__name__}(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            sys.exit(7)
    """
    other = [sys.executable, "-c", program, str(d / "f")]
    assert subprocess.run(other, check=False).returncode == 7
    take(fd, fcntl.LOCK_UN)
    assert subprocess.run(other, check=False).returncode == 0
    os.close(fd)
