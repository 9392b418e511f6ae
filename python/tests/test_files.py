"""Files, names, buffers and errors of the package, against a running deployment."""

import concurrent.futures
import errno
import io
import multiprocessing
import os
import pickle
import threading

import numpy as np
import penstock
import pytest
from conftest import command

DATA = bytes(range(251)) * 500  # no stripe unit divides it


def test_bytes_through_every_call(fs, top):
    with fs.open(f"{top}/a", "w+b") as f:
        assert (f.write(DATA), f.tell(), f.size()) == (len(DATA), len(DATA), len(DATA))
        assert f.seek(100) == 100
        assert f.read(50) == DATA[100:150] and f.tell() == 150
        assert f.read() == DATA[150:] and f.read(10) == b""
        assert f.seek(-10, io.SEEK_END) == len(DATA) - 10 and f.read(100) == DATA[-10:]
        assert f.seek(0) == 0 and f.seek(5, io.SEEK_CUR) == 5
        into = bytearray(30)
        assert f.readinto(into) == 30 and into == DATA[5:35] and f.tell() == 35
        assert f.pwrite(b"xyz", 1) == 3 and f.pread(5, 0) == DATA[:1] + b"xyz" + DATA[4:5] and f.tell() == 35
        # Fewer bytes at the end, and the rest of the buffer is left alone.
        into = bytearray(b"?" * 20)
        assert f.preadinto(into, len(DATA) - 5) == 5 and into == DATA[-5:] + b"?" * 15
        assert f.pread(1 << 60, len(DATA) - 5) == DATA[-5:]
        assert f.pread(10, len(DATA) + 7) == b""
        ranges = [(0, 4), (4000, 200), (len(DATA) - 2, 10), (10**9, 5), (7, 0)]
        assert f.pread_ranges(ranges) == [f.pread(n, at) for at, n in ranges]
        assert f.truncate(10) == 10 and f.size() == 10
        assert f.truncate(20) == 20 and f.pread(20, 10) == bytes(10)
        f.sync()
    assert f.closed
    with pytest.raises(ValueError, match="closed file"):
        f.read(1)
    f.close()


def test_a_file_is_what_the_command_sees(fs, top, deployment, tmp_path):
    with fs.open(f"{top}/a", "wb") as f:
        f.write(DATA)
    command("cp", f"penstock:{top}/a", tmp_path / "a", "-d", deployment)
    assert (tmp_path / "a").read_bytes() == DATA
    command("cp", tmp_path / "a", f"penstock:{top}/b", "-d", deployment)
    assert fs.open(f"penstock:{top}/b").read() == DATA


def test_modes(fs, top):
    path = f"{top}/a"
    with fs.open(path, "xb") as f:
        f.write(b"one")
        assert f.writable() and not f.readable()
        with pytest.raises(io.UnsupportedOperation, match="reading"):
            f.read()
    with pytest.raises(FileExistsError):
        fs.open(path, "xb")
    with fs.open(path, "ab") as f:
        f.write(b"two")
    with fs.open(path, "r+b") as f:
        f.write(b"ONE")
        assert f.read() == b"two"
    with fs.open(path) as f:
        assert f.read() == b"ONEtwo"
        with pytest.raises(io.UnsupportedOperation, match="writing"):
            f.write(b"x")
    with fs.open(path, "wb"):
        pass
    assert fs.stat(path).size == 0
    with fs.open(path, "w", encoding="utf-8") as f:
        f.write("süß\nzwei\n")
    with fs.open(path, "r", encoding="utf-8") as f:
        assert f.readlines() == ["süß\n", "zwei\n"]
    with fs.open(path, "rb", buffering=-1) as f:
        assert isinstance(f, io.BufferedReader) and list(f) == ["süß\n".encode(), b"zwei\n"]
    for bad in ("q", "rw", "rbt", "", "b"):
        with pytest.raises(ValueError, match="mode is"):
            fs.open(path, bad)


def test_striping_is_chosen_and_seen(fs, top):
    with fs.open(f"{top}/a", "wb", stripe_unit=8192, stripe_count=2, start_server=1, permissions=0o600) as f:
        assert f.layout[0] == 8192 and len(f.layout[1]) == 2 and f.layout[1][0] == 1
    stat = fs.stat(f"{top}/a")
    assert stat.stripe_unit == 8192 and stat.servers[0] == 1 and stat.mode & 0o777 == 0o600


def test_names(fs, top):
    fs.mkdir(f"{top}/a/b", parents=True)
    fs.mkdir(f"{top}/a", exist_ok=True)
    fs.create(f"{top}/a/x")
    fs.create(f"{top}/a/x", exist_ok=True)
    assert fs.ls(f"{top}/a") == ["b", "x"]
    assert [(s.path, s.kind, s.size) for s in fs.scan(f"{top}/a")] == [
        (f"{top}/a/b", "directory", 0),
        (f"{top}/a/x", "file", 0),
    ]
    fs.rename(f"{top}/a/x", f"{top}/a/new\nline")
    assert fs.exists(f"{top}/a/new\nline") and not fs.exists(f"{top}/a/x") and not fs.exists(f"{top}/a/x/y")
    fs.chmod(f"{top}/a/new\nline", 0o640)
    fs.set_times(f"{top}/a/new\nline", mtime_ns=1_700_000_000_123_456_789)
    stat = fs.stat(f"{top}/a/new\nline")
    assert stat.is_file and stat.mode & 0o777 == 0o640 and stat.mtime_ns == 1_700_000_000_123_456_789
    with pytest.raises(OSError, match="a") as e:
        fs.rm(f"{top}/a")
    assert e.value.errno == errno.ENOTEMPTY
    fs.rm(f"{top}/a", recursive=True)
    assert fs.ls(top) == []
    fs.sync()


@pytest.mark.parametrize(
    ("call", "kind", "code"),
    [
        (lambda fs, top: fs.open(f"{top}/none"), FileNotFoundError, errno.ENOENT),
        (lambda fs, top: fs.stat(f"{top}/none"), FileNotFoundError, errno.ENOENT),
        (lambda fs, top: fs.ls(f"{top}/none"), FileNotFoundError, errno.ENOENT),
        (lambda fs, top: fs.mkdir(top), FileExistsError, errno.EEXIST),
        (lambda fs, top: fs.mkdir(f"{top}/x/y"), FileNotFoundError, errno.ENOENT),
        (lambda fs, top: fs.open(top), IsADirectoryError, errno.EISDIR),
        (lambda fs, top: fs.open(top, "wb"), IsADirectoryError, errno.EISDIR),
        (lambda fs, top: fs.open(f"{top}/a", "wb").seek(-1), OSError, errno.EINVAL),
        (lambda fs, top: fs.open(f"{top}/a", "wb", stripe_unit=0), OSError, errno.EINVAL),
        (lambda fs, top: fs.rm("/", recursive=True), PermissionError, errno.EPERM),
    ],
)
def test_errors_are_those_of_the_system(fs, top, call, kind, code):
    with pytest.raises(kind) as e:
        call(fs, top)
    assert e.value.errno == code and len(str(e.value)) > 20


def test_a_deployment_that_is_not_there_or_not_up(tmp_path, monkeypatch, deployment):
    monkeypatch.delenv("PENSTOCK_DEPLOYMENT", raising=False)
    with pytest.raises(FileNotFoundError, match="PENSTOCK_DEPLOYMENT"):
        penstock.connect()
    with pytest.raises(FileNotFoundError, match="penstock up"):
        penstock.connect(tmp_path / "none")
    copy = tmp_path / "fs"
    copy.mkdir()
    text = (deployment / "deployment.toml").read_text().replace(str(deployment / "run"), str(tmp_path / "gone"))
    (copy / "deployment.toml").write_text(text)
    (copy / "client.key").write_text((deployment / "client.key").read_text())
    (copy / "client.key").chmod(0o600)
    for line in text.splitlines():
        if "unix" in line:
            (copy / "deployment.toml").write_text(text.replace('unix = "run', 'unix = "gone'))
    with pytest.raises(OSError, match="penstock up") as e:
        penstock.connect(copy, timeout=0)
    assert e.value.errno == errno.EHOSTUNREACH
    monkeypatch.setenv("PENSTOCK_DEPLOYMENT", str(deployment))
    assert len(penstock.connect().servers) == 4


def test_buffers_of_any_shape_move_without_copies(fs, top):
    grid = np.arange(2 * 300 * 50, dtype="i4").reshape(2, 300, 50)
    with fs.open(f"{top}/a", "w+b") as f:
        for memory in (grid, grid[:, ::3, ::-2], grid.T, np.asfortranarray(grid), memoryview(grid)):
            plain = np.ascontiguousarray(memory).tobytes()
            assert f.pwrite(memory, 7) == len(plain)
            assert f.pread(len(plain), 7) == plain
        into = np.zeros((600, 100), "i4")
        f.pwrite(grid, 0)
        assert f.preadinto(into[::2, 1::2], 0) == 300 * 50 * 4
        assert np.array_equal(into[::2, 1::2], grid[0]) and not into[1::2].any() and not into[:, ::2].any()
        with pytest.raises(BufferError, match="read-only"):
            f.preadinto(b"bytes", 0)
        with pytest.raises(TypeError):
            f.pwrite("text", 0)


def test_the_interpreter_goes_on_during_io(fs, top):
    """While one thread writes, others run Python code."""
    data = np.zeros(64 << 20, "u1")
    went_on, stop = [0], threading.Event()

    def count():
        while not stop.is_set():
            went_on[0] += 1

    with fs.open(f"{top}/a", "wb") as f:
        f.write(b"x")
        thread = threading.Thread(target=count)
        thread.start()
        before = went_on[0]
        # One call: with the lock held, nothing could be counted before it returns.
        f.write(data)
        during = went_on[0] - before
        stop.set()
        thread.join()
    assert during > 1000


def test_threads_share_a_file(fs, top):
    pieces = [bytes([k]) * 10_007 for k in range(32)]
    with fs.open(f"{top}/a", "w+b") as f, concurrent.futures.ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda k: f.pwrite(pieces[k], k * 10_007), range(32)))
        assert f.read() == b"".join(pieces)
        assert list(pool.map(lambda k: f.pread(10_007, k * 10_007), range(32))) == pieces


def _in_a_child(fs, path, results):
    results.put(fs.open(path).read())


def _child_of_a_file(file, results):
    try:
        results.put(file.pread(1, 0))
    except OSError as e:
        results.put(str(e))


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_processes(fs, top, method):
    with fs.open(f"{top}/a", "w+b") as f:
        f.write(DATA)
        context = multiprocessing.get_context(method)
        results = context.Queue()
        child = context.Process(target=_in_a_child, args=(fs, f"{top}/a", results))
        child.start()
        assert results.get(timeout=60) == DATA
        child.join()
        if method == "fork":
            child = context.Process(target=_child_of_a_file, args=(f, results))
            child.start()
            assert "forked" in results.get(timeout=60)
            child.join()
        # The parent's connections have not noticed.
        assert f.pread(5, 0) == DATA[:5]
    assert pickle.loads(pickle.dumps(fs)).stat(f"{top}/a").size == len(DATA)


def test_types_and_docs():
    package = os.path.dirname(penstock.__file__)
    assert {"py.typed", "_penstock.pyi"} <= set(os.listdir(package))
    for thing in (penstock, penstock.connect, penstock.FileSystem, penstock.File, penstock.ArrayView):
        for name, member in [("", thing), *(vars(thing).items() if isinstance(thing, type) else [])]:
            own = callable(member) and not name.startswith("_") and getattr(io.RawIOBase, name, None) is None
            assert not own or member.__doc__, name
