"""The mount: every call on it, users, two mounts of one deployment, MPI-IO beside it, and daemons that are killed."""

import errno
import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import time
import traceback
from pathlib import Path

import pytest
from conftest import COMPILERS, PENSTOCK, penstock

NO_FUSE = None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "mount tests skipped: /dev/fuse is missing or closed"
NO_ROOT = None if os.geteuid() == 0 else "users are not changed: only root can; own permission bits are tested"
pytestmark = pytest.mark.skipif(NO_FUSE is not None, reason=NO_FUSE or "")
as_root = pytest.mark.skipif(NO_ROOT is not None, reason=NO_ROOT or "")

ALICE, BOB, TEAM, MEMBERS = 61001, 61002, 61010, 61020


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A deployment, open to a group, and two mounts of it."""
    import shutil
    import tempfile

    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    directory.chmod(0o755)
    deployment, one, two = directory / "fs", directory / "one", directory / "two"
    penstock("up", deployment, "--servers", 3, "--group", MEMBERS if NO_ROOT is None else os.getgid())
    for point in (one, two):
        point.mkdir()
        penstock("mount", point, "-d", deployment)
    yield deployment, one, two
    for point in (one, two):
        penstock("umount", "--lazy", point, check=False)
    penstock("down", deployment, check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def d(place, request):
    """A fresh directory in the first mount, which anybody may use."""
    name = request.node.name.replace("/", "-").replace("[", "-").replace("]", "")
    path = place[1] / name[:100]
    path.mkdir()
    path.chmod(0o777)
    return path


def fails(code, call, *args, **kwargs):
    """The call must fail with this errno."""
    with pytest.raises(OSError) as raised:
        call(*args, **kwargs)
    assert errno.errorcode[raised.value.errno] == errno.errorcode[code]


def as_user(uid, gid, groups, call):
    """Runs `call` in a child process as another user; what it asserts and returns comes back."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setgroups(groups)
            os.setgid(gid)
            os.setuid(uid)
            result = {"value": call()}
            code = 0
        except OSError as e:
            result = {"errno": e.errno}
            code = 0
        except (AssertionError, AttributeError, LookupError, TypeError, ValueError):
            result = {"error": traceback.format_exc()}
        os.write(write, json.dumps(result).encode()[:60_000])
        os._exit(code)
    os.close(write)
    with os.fdopen(read) as pipe:
        result = json.loads(pipe.read() or '{"error": "the child ended without a word"}')
    os.waitpid(child, 0)
    assert "error" not in result, result["error"]
    if "errno" in result:
        raise OSError(result["errno"], os.strerror(result["errno"]))
    return result["value"]


def write(path, data=b"x", flags=os.O_WRONLY | os.O_CREAT, mode=0o644):
    fd = os.open(path, flags, mode)
    try:
        return os.write(fd, data)
    finally:
        os.close(fd)


def mode_of(path):
    return stat.S_IMODE(os.lstat(path).st_mode)


# ---- opening, reading, writing ----


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


# ---- names ----


def test_directories(d):
    (d / "a").mkdir()
    fails(errno.EEXIST, os.mkdir, d / "a")
    fails(errno.ENOENT, os.mkdir, d / "x" / "y")
    assert (d / "a").stat().st_nlink == 2
    (d / "a" / "b").mkdir()
    assert (d / "a").stat().st_nlink == 3
    fails(errno.ENOTEMPTY, os.rmdir, d / "a")
    fails(errno.EISDIR, os.unlink, d / "a")
    write(d / "f")
    fails(errno.ENOTDIR, os.rmdir, d / "f")
    os.rmdir(d / "a" / "b")
    os.rmdir(d / "a")
    fails(errno.ENOENT, os.rmdir, d / "a")


@pytest.mark.parametrize("count", [0, 3, 2500])
def test_listings(place, d, count):
    for k in range(count):
        os.close(os.open(d / f"f{k:04d}", os.O_CREAT | os.O_WRONLY))
    if count == 3:
        (d / "f0001").write_bytes(b"xyz")
    names = [f"f{k:04d}" for k in range(count)]
    assert sorted(os.listdir(d)) == names
    with os.scandir(place[2] / d.name) as entries:
        sizes = {e.name: e.stat().st_size for e in entries}
    assert sorted(sizes) == names
    assert all(size == (3 if count == 3 and name == "f0001" else 0) for name, size in sizes.items())
    for name in names:
        os.unlink(d / name)
    assert os.listdir(d) == []


def make(path, kind):
    if kind == "file":
        write(path, b"file")
    elif kind == "directory":
        path.mkdir()
    elif kind == "full directory":
        path.mkdir()
        (path / "in").mkdir()
    elif kind == "link":
        path.symlink_to("nowhere")


KINDS = ["nothing", "file", "directory", "full directory", "link"]


@pytest.mark.parametrize("source", KINDS)
@pytest.mark.parametrize("target", KINDS)
def test_rename(d, source, target):
    make(d / "a", source)
    make(d / "b", target)
    directory = "directory" in source
    if source == "nothing":
        return fails(errno.ENOENT, os.rename, d / "a", d / "b")
    if target == "full directory" and directory:
        return fails(errno.ENOTEMPTY, os.rename, d / "a", d / "b")
    if "directory" in target and not directory:
        return fails(errno.EISDIR, os.rename, d / "a", d / "b")
    if directory and target in ("file", "link"):
        return fails(errno.ENOTDIR, os.rename, d / "a", d / "b")
    before = os.lstat(d / "a")
    os.rename(d / "a", d / "b")
    assert os.lstat(d / "b").st_ino == before.st_ino and os.listdir(d) == ["b"]


def test_rename_of_directories(d):
    (d / "a" / "b").mkdir(parents=True)
    (d / "c").mkdir()
    fails(errno.EINVAL, os.rename, d / "a", d / "a" / "b" / "c")
    os.rename(d / "a" / "b", d / "c" / "b")
    assert (d / "a").stat().st_nlink == 2 and (d / "c").stat().st_nlink == 3


def test_rename_of_open_files(d):
    (d / "old").write_bytes(b"old")
    fd = os.open(d / "old", os.O_RDWR)
    (d / "new").write_bytes(b"new")
    os.rename(d / "new", d / "old")
    assert (d / "old").read_bytes() == b"new"
    assert os.pread(fd, 9, 0) == b"old", "replaced while open"
    assert os.fstat(fd).st_nlink == 0
    os.close(fd)


def test_open_files_outlive_their_names(d):
    fd = os.open(d / "f", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"early")
    os.unlink(d / "f")
    fails(errno.ENOENT, os.stat, d / "f")
    assert os.fstat(fd).st_nlink == 0
    os.pwrite(fd, b"late" * 60_000, 5)
    assert os.pread(fd, 9, 0) == b"earlylate" and os.fstat(fd).st_size == 240_005
    os.ftruncate(fd, 7)
    os.fsync(fd)
    assert os.pread(fd, 99, 0) == b"earlyla"
    os.rmdir(d)
    os.close(fd)


def test_no_bytes_are_left_of_removed_files(place, d):
    fd = os.open(d / "kept", os.O_RDWR | os.O_CREAT)
    os.write(fd, b"x" * 300_000)
    os.unlink(d / "kept")
    (d / "f").write_bytes(b"y" * 300_000)
    os.unlink(d / "f")
    assert "removed, still open" not in penstock("check", "-d", place[0]).out
    os.close(fd)
    time.sleep(0.2)
    report = penstock("check", "-d", place[0], "--json", check=False)
    assert report.code == 0, report.out


def test_hard_links(d):
    (d / "a").write_bytes(b"one")
    (d / "sub").mkdir()
    os.link(d / "a", d / "b")
    os.link(d / "b", d / "sub" / "c")
    assert {p.stat().st_ino for p in (d / "a", d / "b", d / "sub" / "c")} == {(d / "a").stat().st_ino}
    assert (d / "a").stat().st_nlink == 3
    (d / "b").write_bytes(b"two")
    assert (d / "sub" / "c").read_bytes() == b"two"
    fails(errno.EEXIST, os.link, d / "a", d / "b")
    fails(errno.EPERM, os.link, d / "sub", d / "dir")
    os.rename(d / "a", d / "b")
    assert sorted(os.listdir(d)) == ["a", "b", "sub"], "two names of one file: nothing happens"
    os.unlink(d / "a")
    os.rename(d / "sub" / "c", d / "moved")
    os.unlink(d / "b")
    assert (d / "moved").read_bytes() == b"two" and (d / "moved").stat().st_nlink == 1


def test_symbolic_links(place, d):
    (d / "dir").mkdir()
    (d / "dir" / "f").write_bytes(b"there")
    os.symlink("dir/f", d / "rel")
    os.symlink(d / "dir", d / "abs")
    os.symlink("loop", d / "loop")
    os.symlink("gone", d / "dangling")
    assert os.readlink(d / "rel") == "dir/f" and os.lstat(d / "rel").st_size == 5
    assert (d / "rel").read_bytes() == b"there" == (d / "abs" / "f").read_bytes()
    fails(errno.ELOOP, os.open, d / "loop", os.O_RDONLY)
    fails(errno.ENOENT, os.open, d / "dangling", os.O_RDONLY)
    (d / "dangling").write_bytes(b"made")
    assert (d / "gone").read_bytes() == b"made"
    fails(errno.EEXIST, os.symlink, "x", d / "rel")
    fails(errno.EINVAL, os.readlink, d / "dir")
    long = "/".join(["n" * 200] * 20)
    os.symlink(long, d / "long")
    assert os.readlink(d / "long") == long
    # By path, without the mount: the servers follow relative links.
    out = penstock("stat", f"penstock:/{d.name}/dir/f", "-d", place[0], "--json").json()[0]
    assert out["size"] == 5
    os.unlink(d / "rel")
    assert (d / "dir" / "f").exists()


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


# ---- users ----


def touch(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


@as_root
@pytest.mark.parametrize("bits", range(8))
@pytest.mark.parametrize("who", ["owner", "group", "supplementary", "other"])
def test_permission_bits(d, bits, who):
    user = {
        "owner": (ALICE, TEAM, []),
        "group": (BOB, TEAM, []),
        "supplementary": (BOB, 9, [5, TEAM]),
        "other": (BOB, 9, [5]),
    }[who]
    shift = {"owner": 6, "group": 3, "supplementary": 3, "other": 0}[who]
    f, folder = d / "f", d / "dir"
    write(f, b"data")
    folder.mkdir()
    write(folder / "in")
    for path in (f, folder):
        os.chown(path, ALICE, TEAM)
        # All that the others have is what must not count.
        path.chmod(0o777 & ~(7 << shift) | bits << shift)
    may = {4: bits & 4, 2: bits & 2, 1: bits & 1}

    def check(allowed, call):
        if allowed:
            as_user(*user, call)
        else:
            fails(errno.EACCES, as_user, *user, call)

    check(may[4], lambda: os.close(os.open(f, os.O_RDONLY)))
    check(may[2], lambda: os.close(os.open(f, os.O_WRONLY)))
    check(may[2], lambda: os.truncate(f, 2))
    check(may[4], lambda: os.listdir(folder))
    check(may[1], lambda: os.stat(folder / "in") and None)
    check(may[1] and may[2], lambda: touch(folder / "new"))
    check(may[1] and may[2], lambda: os.unlink(folder / "in"))
    assert as_user(*user, lambda: [os.access(f, os.R_OK), os.access(f, os.W_OK), os.access(f, os.X_OK)]) == [
        bool(may[4]),
        bool(may[2]),
        bool(may[1]),
    ]


@as_root
def test_owners(d):
    f = d / "f"
    as_user(ALICE, TEAM, [7], lambda: touch(f))
    assert (f.stat().st_uid, f.stat().st_gid) == (ALICE, TEAM)
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.chmod(f, 0o777))
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.utime(f, ns=(1, 1)))
    fails(errno.EACCES, as_user, BOB, TEAM, [], lambda: os.utime(f))
    fails(errno.EPERM, as_user, ALICE, TEAM, [], lambda: os.chown(f, BOB, -1))
    fails(errno.EPERM, as_user, ALICE, TEAM, [], lambda: os.chown(f, -1, 99))
    as_user(ALICE, TEAM, [7], lambda: os.chown(f, -1, 7))
    assert f.stat().st_gid == 7
    as_user(ALICE, TEAM, [], lambda: os.chmod(f, 0o666))
    as_user(BOB, 9, [], lambda: os.utime(f))
    f.chmod(0o6755)
    os.chown(f, BOB, -1)
    assert mode_of(f) == 0o755 and f.stat().st_uid == BOB
    f.chmod(0o4777)
    as_user(ALICE, TEAM, [], lambda: write(f, b"changed") and None)
    time.sleep(0.15)
    assert mode_of(f) == 0o777, "who may not keep the bit takes it away by writing"
    os.setxattr(f, "trusted.t", b"root's")
    assert "trusted.t" not in as_user(ALICE, TEAM, [], lambda: os.listxattr(f))
    fails(errno.EPERM, as_user, ALICE, TEAM, [], lambda: os.setxattr(f, "trusted.u", b""))


@as_root
def test_sticky_and_set_group_directories(d):
    sticky, group = d / "sticky", d / "group"
    sticky.mkdir()
    sticky.chmod(0o1777)
    as_user(ALICE, TEAM, [], lambda: touch(sticky / "hers"))
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.unlink(sticky / "hers"))
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.rename(sticky / "hers", sticky / "his"))
    as_user(ALICE, TEAM, [], lambda: os.unlink(sticky / "hers"))
    group.mkdir()
    os.chown(group, ALICE, TEAM)
    group.chmod(0o2777)
    as_user(BOB, 9, [], lambda: touch(group / "f"))
    as_user(BOB, 9, [], lambda: os.mkdir(group / "sub"))
    assert (group / "f").stat().st_gid == TEAM == (group / "sub").stat().st_gid
    assert mode_of(group / "sub") & 0o2000


def test_own_bits_hold_without_root(d):
    """What can be tested as any user: the owner's own bits, unless that is root."""
    f = d / "f"
    write(f)
    f.chmod(0o000)
    if os.geteuid() == 0:
        os.chown(f, ALICE, TEAM)
        fails(errno.EACCES, as_user, ALICE, TEAM, [], lambda: os.close(os.open(f, os.O_RDONLY)))
    else:
        fails(errno.EACCES, os.open, f, os.O_RDONLY)


MPI_OPEN = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int i = 1; i + 1 < argc; i += 2) {
        int mode = argv[i][0] == 'r' ? MPI_MODE_RDONLY : MPI_MODE_WRONLY, class = 0;
        if (argv[i][0] == 'c')
            mode |= MPI_MODE_CREATE;
        MPI_File f;
        int code = MPI_File_open(MPI_COMM_SELF, argv[i + 1], mode, MPI_INFO_NULL, &f);
        if (code == MPI_SUCCESS)
            MPI_File_close(&f);
        else
            MPI_Error_class(code, &class);
        puts(code == MPI_SUCCESS ? "ok" : class == MPI_ERR_ACCESS ? "access" : "other");
    }
    return MPI_Finalize();
}
"""


def direct_user(deployment, uid, gid, groups, arguments):
    """`penstock` as another user, without a mount."""

    def become():
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)

    return subprocess.run(
        [str(PENSTOCK), *map(str, arguments)],
        preexec_fn=become,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": "/tmp", "PENSTOCK_DEPLOYMENT": str(deployment)},
        cwd="/",
    )


@as_root
def test_client_library_and_mpi_io_give_the_same_rights(place, d):
    deployment = place[0]
    opener = deployment.parent / "opener"
    opener.with_suffix(".c").write_text(MPI_OPEN)
    subprocess.run([COMPILERS["mpich"], "-o", opener, opener.with_suffix(".c")], check=True)
    if (
        not os.access("/", os.X_OK)
        or subprocess.run(
            ["setpriv", f"--reuid={BOB}", "--clear-groups", "ls", str(PENSTOCK), str(COMPILERS["mpich"].resolve())],
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode
    ):
        pytest.skip("users are not changed: others cannot reach the built command and MPI here")
    write(d / "open", b"all")
    write(d / "closed", b"mine")
    write(d / "hers", b"hers")
    (d / "open").chmod(0o644)
    (d / "closed").chmod(0o600)
    os.chown(d / "hers", ALICE, TEAM)
    (d / "hers").chmod(0o640)
    names = {name: f"penstock:/{d.name}/{name}" for name in ("open", "closed", "hers")}
    user = (BOB, 9, [MEMBERS])

    def run(*arguments):
        return direct_user(deployment, *user, arguments)

    assert run("cp", names["open"], "/dev/fd/1").returncode in (0, 1)
    refused = run("cp", names["closed"], "/tmp/never")
    assert refused.returncode == 1 and "may not read" in refused.stderr
    assert run("rm", names["hers"]).returncode == 0, "the directory is open to all"
    removed = run("rm", f"/{d.name}")
    assert removed.returncode == 1
    stranger = direct_user(deployment, BOB, 9, [], ["ls", "/"])
    assert stranger.returncode == 1, "who is not in the group is kept out altogether"
    write(d / "hers", b"hers")
    os.chown(d / "hers", ALICE, TEAM)
    (d / "hers").chmod(0o640)
    asked = ["r", names["open"], "w", names["open"], "r", names["closed"], "r", names["hers"]]
    asked += ["c", f"penstock:/{d.name}/new"]
    done = run("run", "-n", 1, "--quiet", "--", opener, *asked)
    assert done.stdout.split() == ["ok", "access", "access", "access", "ok"], done.stdout + done.stderr
    assert (d / "new").stat().st_uid == BOB
    # A member of hers's group reads what the group may.
    user = (BOB, 9, [MEMBERS, TEAM])
    done = run("run", "-n", 1, "--quiet", "--", opener, "r", names["hers"], "w", names["hers"])
    assert done.stdout.split() == ["ok", "access"], done.stdout + done.stderr


@as_root
def test_only_root_and_the_owner_mount(place, short_dir):
    short_dir.chmod(0o777)
    point = short_dir / "mnt"
    point.mkdir()
    os.chown(point, BOB, 9)
    if subprocess.run(
        ["setpriv", f"--reuid={BOB}", "--clear-groups", "test", "-x", str(PENSTOCK)], check=False
    ).returncode:
        pytest.skip("users are not changed: others cannot reach the built command here")
    done = direct_user(place[0], BOB, 9, [MEMBERS], ["mount", point, "--foreground"])
    assert done.returncode == 1 and "root or the owner" in done.stderr, done.stderr


# ---- two mounts, MPI-IO ----


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


def daemon_of(point):
    """The process that serves a mount."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"--foreground" in words and str(point).encode() in words:
            return int(process.name)
    return None


def dead_or_gone(point):
    return not any(f" {point} " in line for line in Path("/proc/self/mountinfo").read_text().splitlines())


def await_(condition):
    end = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def is_cut_off(call, *args):
    """The call must fail for want of a daemon."""
    with pytest.raises(OSError) as raised:
        call(*args)
    # While the kernel takes the connection apart it says the second.
    assert raised.value.errno in (errno.ENOTCONN, errno.ECONNABORTED)


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
    is_cut_off(os.close, fd)
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
