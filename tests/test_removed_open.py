"""Files that are removed while they are open, and servers that are killed meanwhile."""

import os
import signal
import subprocess
import sys
import threading

import pytest
from conftest import penstock
from mounted import ALICE, LAYOUTS, as_root, await_, daemon_of, mounted_servers, needs_fuse
from test_crash import kill, server_pid

pytestmark = needs_fuse


@pytest.fixture
def fs(short_dir):
    with mounted_servers(short_dir) as mounted:
        yield mounted


def objects(home):
    """How many objects the data servers have, and whether any has no file."""
    (report,) = penstock("check", "-d", home, "--json", check=False).json()
    assert report["complete"], report
    return report["objects"], report["orphans"]


def restart(home, name="meta"):
    kill([server_pid(home, name)])
    penstock("up", home)


def works(fd, size):
    """The file can be read, written, cut and synced, and others who open it by this descriptor see the same."""
    os.pwrite(fd, b"written", 100)
    os.pwrite(fd, b"end", size - 3)
    assert os.fstat(fd).st_size == size and os.fstat(fd).st_nlink == 0
    assert os.pread(fd, 7, 100) == b"written" and os.pread(fd, 10, size - 3) == b"end"
    os.fsync(fd)
    os.ftruncate(fd, size + 1000)
    assert os.fstat(fd).st_size == size + 1000
    os.ftruncate(fd, size)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_removed_open_files_outlive_the_metadata_server(fs, layout):
    home, point = fs
    os.setxattr(point, "user.penstock.layout", LAYOUTS[layout])
    size = 500_000
    for name in ("unlinked", "replaced", "new", "stays"):
        (point / name).write_bytes(name[:1].encode() * size)
    fds = {name: os.open(point / name, os.O_RDWR) for name in ("unlinked", "replaced", "stays")}
    os.unlink(point / "unlinked")
    os.rename(point / "new", point / "replaced")
    reader = os.open(f"/proc/self/fd/{fds['unlinked']}", os.O_RDONLY)
    before = objects(home)
    for _ in range(2):
        restart(home)
        assert sorted(os.listdir(point)) == ["replaced", "stays"]
        for name, fd in fds.items():
            assert name[:1].encode() * 1000 == os.pread(fd, 1000, 1000)
        works(fds["unlinked"], size)
        works(fds["replaced"], size)
        assert os.pread(reader, 7, 100) == b"written"
        assert (point / "replaced").read_bytes() == b"n" * size
        assert objects(home) == before
    os.close(fds["unlinked"])
    works(reader_to_writer(reader), size)
    for fd in (reader, fds["replaced"], fds["stays"]):
        os.close(fd)
    each = 3 if layout == "striped" else 1
    # The kernel tells of a last close a moment later.
    await_(lambda: objects(home) == (2 * each, 0), "their objects are freed")


def reader_to_writer(fd):
    """The same file, opened again by its descriptor."""
    again = os.open(f"/proc/self/fd/{fd}", os.O_RDWR)
    os.dup2(again, fd)
    os.close(again)
    return fd


def test_removing_waits_for_the_metadata_server(fs):
    home, point = fs
    (point / "f").write_bytes(b"f" * 200_000)
    (point / "g").write_bytes(b"g" * 200_000)
    fd = os.open(point / "f", os.O_RDWR)
    kill([server_pid(home, "meta")])
    removed = threading.Thread(target=lambda: os.unlink(point / "f"))
    replaced = threading.Thread(target=lambda: os.rename(point / "g", point / "h"))
    for thread in (removed, replaced):
        thread.start()
    assert os.pread(fd, 5, 0) == b"fffff", "bytes go on meanwhile"
    penstock("up", home)
    for thread in (removed, replaced):
        thread.join(60)
        assert not thread.is_alive()
    assert os.listdir(point) == ["h"]
    works(fd, 200_000)
    restart(home)
    works(fd, 200_000)
    os.close(fd)
    await_(lambda: objects(home) == (3, 0))


def test_removals_beside_kills_lose_nothing(fs):
    """Temporary files, removed as soon as they are open, as programs make them; the server is killed at any moment."""
    home, point = fs
    program = """if 1:
        import os, sys, time
        end = time.monotonic() + 4
        rounds = 0
        while time.monotonic() < end:
            files = []
            for k in range(8):
                path = f"{sys.argv[1]}/tmp-{os.getpid()}-{k}"
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                os.write(fd, bytes([k]) * 70_000)
                os.unlink(path)
                files.append(fd)
            for k, fd in enumerate(files):
                assert os.pread(fd, 70_001, 0) == bytes([k]) * 70_000
                assert os.fstat(fd).st_size == 70_000
                os.pwrite(fd, b"more", 70_000)
                os.fsync(fd)
            for k, fd in enumerate(files):
                assert os.pread(fd, 10, 69_999) == bytes([k]) + b"more"
                os.close(fd)
            rounds += 1
        print(rounds)
    """
    programs = [
        subprocess.Popen([sys.executable, "-c", program, str(point)], stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    while any(p.poll() is None for p in programs):
        restart(home)
    for p in programs:
        out, _ = p.communicate(timeout=120)
        assert p.returncode == 0 and int(out) > 0
    assert os.listdir(point) == []

    # Where the answer to a last close was lost with the server, the right to free the bytes was lost with it.
    def nothing_left():
        penstock("check", "-d", home, "--repair", check=False)
        (report,) = penstock("check", "-d", home, "--json", check=False).json()
        return report["files"] == report["objects"] == 0

    await_(nothing_left)


@as_root
def test_what_was_opened_stays_usable_whatever_becomes_of_its_mode(fs):
    """Open files are asked about anew after a restart: their mode counts for new opens alone."""
    home, point = fs
    point.chmod(0o777)
    program = """if 1:
        import os, sys
        os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[2]))
        fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o400)
        os.write(fd, b"a" * 200_000)
        print("open", flush=True)
        sys.stdin.readline()
        os.pwrite(fd, b"b" * 100_000, 150_000)
        assert os.fstat(fd).st_size == 250_000
        os.fsync(fd)
        print(os.pread(fd, 2, 149_999).decode(), flush=True)
    """
    command = [sys.executable, "-c", program, str(point / "hers"), str(ALICE)]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert writer.stdout.readline() == "open\n"
        restart(home)
        restart(home, "data-0")
        out, _ = writer.communicate("go\n", timeout=120)
        assert out == "ab\n"
    finally:
        writer.kill()
        writer.wait()


def test_a_killed_mount_leaves_what_the_check_frees(fs):
    home, point = fs
    (point / "f").write_bytes(b"f" * 200_000)
    fd = os.open(point / "f", os.O_RDWR)
    os.unlink(point / "f")
    assert objects(home) == (3, 0), "it is no orphan while it is open"
    os.kill(daemon_of(point), signal.SIGKILL)
    await_(lambda: daemon_of(point) is None)
    (report,) = penstock("check", "-d", home, "--repair", "--json").json()
    assert report["freed"] in (0, 3), "not before its holder has had time to come back"
    penstock("mount", point, "-d", home)
    assert os.listdir(point) == []
    try:
        os.close(fd)
    except OSError:
        pass
