"""The mount: directories, renaming, links."""

import errno
import os
import time

import pytest
from conftest import penstock
from mounted import fails, needs_fuse, write

pytestmark = needs_fuse


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
