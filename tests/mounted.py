"""What the tests of mounts share: users, errors, files."""

import errno
import json
import os
import stat
import time
import traceback
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import penstock

NO_FUSE = None if os.access("/dev/fuse", os.R_OK | os.W_OK) else "mount tests skipped: /dev/fuse is missing or closed"
NO_ROOT = None if os.geteuid() == 0 else "users are not changed: only root can; own permission bits are tested"
needs_fuse = pytest.mark.skipif(NO_FUSE is not None, reason=NO_FUSE or "")
as_root = pytest.mark.skipif(NO_ROOT is not None, reason=NO_ROOT or "")

LAYOUTS = {"striped": b"count=3 unit=64KiB", "whole": b"count=1"}

ALICE, BOB, TEAM, MEMBERS = 61001, 61002, 61010, 61020


@contextmanager
def mounted_servers(directory):
    """A deployment of three servers in `directory`, and its mount."""
    directory.chmod(0o755)
    home, point = directory / "fs", directory / "mnt"
    point.mkdir()
    penstock("up", home, "--servers", 3)
    penstock("mount", point, "-d", home)
    try:
        yield home, point
    finally:
        penstock("umount", "--lazy", point, check=False)
        penstock("down", home, check=False)


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


def touch(path):
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY))


def await_(condition, what="it did not come about"):
    """Waits for what comes about in its own time."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


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
