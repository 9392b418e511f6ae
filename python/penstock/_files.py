"""A deployment as a file system object, and its files."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from penstock import _penstock
from penstock._array import ArrayView

if TYPE_CHECKING:
    from numpy.typing import DTypeLike

#: Names a deployment for everything that isn't told which one to use.
VARIABLE = "PENSTOCK_DEPLOYMENT"
#: Reads up to this many bytes don't ask for the file's length first.
_SMALL = 1 << 20


class Stat(NamedTuple):
    """What is known of a name. Times are nanoseconds since the epoch."""

    path: str
    #: ``"file"``, ``"directory"`` or ``"symlink"``.
    kind: str
    #: Bytes; 0 for anything but a file.
    size: int
    #: Unique in the deployment for ever.
    id: int
    #: Permission bits.
    mode: int
    uid: int
    gid: int
    nlink: int
    ctime_ns: int
    mtime_ns: int
    atime_ns: int
    #: Bytes that one data server holds before the next one takes over; files only.
    stripe_unit: int | None = None
    #: Data servers in turn order; files only.
    servers: tuple[int, ...] | None = None

    @property
    def is_file(self) -> bool:
        return self.kind == "file"

    @property
    def is_dir(self) -> bool:
        return self.kind == "directory"


def _stat(found: dict[str, Any]) -> Stat:
    servers = found.pop("servers", None)
    return Stat(**found, servers=None if servers is None else tuple(servers))


def connect(
    deployment: str | os.PathLike[str] | None = None,
    *,
    shortcuts: bool = True,
    timeout: float = 30.0,
    connections: int = 4,
) -> FileSystem:
    """Connects to a deployment.

    deployment: its directory or its ``deployment.toml``; `None` takes ``$PENSTOCK_DEPLOYMENT``.
    shortcuts: on the servers' own host, data moves through passed descriptors where the servers allow it. `False`
        sends every access as requests.
    timeout: seconds that a server which is away is tried again before a call fails.
    connections: calls of this client that run at once over all threads.

    Raises `FileNotFoundError` if there is no such deployment, `OSError` if its servers don't answer.
    """
    if deployment is None:
        deployment = os.environ.get(VARIABLE) or None
    if deployment is None:
        raise FileNotFoundError(
            f"no deployment named: pass its directory, or set {VARIABLE}=DIR; `penstock up DIR` makes one"
        )
    return FileSystem(deployment, shortcuts=shortcuts, timeout=timeout, connections=connections)


class FileSystem:
    """The files of one deployment; made by `connect`.

    Usable by several threads at once. It can be pickled, and used after a fork: the other process makes its own
    connections. Paths are absolute, with or without a leading ``/`` or ``penstock:``.
    """

    def __init__(
        self,
        deployment: str | os.PathLike[str],
        *,
        shortcuts: bool = True,
        timeout: float = 30.0,
        connections: int = 4,
    ) -> None:
        self._deployment = os.path.abspath(os.fspath(deployment))
        self._options = {"shortcuts": shortcuts, "timeout": timeout, "connections": connections}
        self._lock = threading.Lock()
        self._connected: _penstock.Client | None = None
        self._client  # noqa: B018  A wrong key or address shows here, not at the first open.

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (self._deployment, self._options)

    def __repr__(self) -> str:
        return f"penstock.connect({self._deployment!r})"

    @property
    def _client(self) -> _penstock.Client:
        client = self._connected
        if client is None or not client.usable:
            # After a fork the lock may be another thread's that is not here.
            if client is not None:
                self._lock = threading.Lock()
            with self._lock:
                if self._connected is client:
                    self._connected = _penstock.Client(self._deployment, **self._options)
                client = self._connected
        assert client is not None
        return client

    @property
    def deployment(self) -> str:
        """The deployment's directory or file."""
        return self._deployment

    @property
    def servers(self) -> list[int]:
        """Numbers of its data servers."""
        return self._client.servers

    def open(
        self,
        path: str,
        mode: str = "rb",
        *,
        buffering: int = 0,
        encoding: str | None = None,
        errors: str | None = None,
        newline: str | None = None,
        permissions: int = 0o644,
        stripe_unit: int | None = None,
        stripe_count: int | None = None,
        start_server: int | None = None,
    ) -> Any:
        """Opens a file.

        mode: as for the built-in `open`: ``rb``, ``r+b``, ``wb``, ``w+b``, ``xb``, ``x+b``, ``ab``, ``a+b``;
            without ``b`` a text file. Appending begins at the end that the file has when it is opened.
        buffering: bytes of a buffer in this process. 0, the default of binary files: none, so that what has been
            written is visible to all clients when the call returns. -1: 1 MiB.
        permissions, stripe_unit (bytes), stripe_count, start_server: of a file that is created; `None` is the
            deployment's default.

        Returns a `File`, an `io.BufferedReader`, `io.BufferedWriter` or `io.BufferedRandom` around one, or an
        `io.TextIOWrapper`. Raises `FileNotFoundError`, `FileExistsError`, `IsADirectoryError`, `PermissionError`, …
        """
        text = "b" not in mode
        kind = "".join(sorted(mode.replace("b", "").replace("t", "")))
        if kind not in ("r", "+r", "w", "+w", "x", "+x", "a", "+a") or ("b" in mode and "t" in mode):
            raise ValueError(f"mode is {mode!r}; it is one of r, w, x, a, with + to update, and b for bytes")
        if not text and (encoding or errors or newline):
            raise ValueError("encoding, errors and newline are for text; leave out the b of the mode")
        update, first = "+" in kind, kind[-1]
        handle = self._client.open(
            _path(path),
            read=first == "r" or update,
            write=first != "r" or update,
            create=first != "r",
            exclusive=first == "x",
            mode=permissions,
            stripe_unit=stripe_unit,
            stripe_count=stripe_count,
            start_server=start_server,
        )
        if first == "w" and not handle.created:
            handle.set_len(0)
        file = File(handle, first, update)
        if buffering == 0 and not text:
            return file
        size = buffering if buffering > 1 else _SMALL
        if update:
            buffered: Any = io.BufferedRandom(file, size)
        else:
            buffered = (io.BufferedReader if first == "r" else io.BufferedWriter)(file, size)
        return io.TextIOWrapper(buffered, encoding, errors, newline, buffering == 1) if text else buffered

    def create(self, path: str, *, exist_ok: bool = False, **layout: Any) -> None:
        """Makes an empty file; `layout` as for `open`. One that exists is left alone if `exist_ok`."""
        self.open(path, "ab" if exist_ok else "xb", **layout).close()

    def ls(self, path: str = "/") -> list[str]:
        """Names in a directory, in order."""
        return self._client.names(_path(path))

    def scan(self, path: str = "/") -> list[Stat]:
        """The entries of a directory, in order of their names."""
        return [_stat(found) for found in self._client.entries(_path(path))]

    def stat(self, path: str) -> Stat:
        """What is known of a name. Raises `FileNotFoundError` if there is none."""
        path = _path(path)
        return _stat({**self._client.stat(path), "path": path})

    def exists(self, path: str) -> bool:
        """Whether there is something of this name."""
        try:
            self._client.stat(_path(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def mkdir(self, path: str, *, parents: bool = False, exist_ok: bool = False, permissions: int = 0o755) -> None:
        """Makes a directory; its parents too if `parents`. One that exists is no error if `exist_ok`."""
        path = _path(path)
        if parents:
            for above in list(_parents(path))[:-1]:
                self._make(above, permissions, exist_ok=True)
        self._make(path, permissions, exist_ok)

    def _make(self, path: str, permissions: int, exist_ok: bool) -> None:
        try:
            self._client.mkdir(path, permissions)
        except FileExistsError:
            if not exist_ok or self._client.stat(path)["kind"] == "file":
                raise

    def rm(self, path: str, *, recursive: bool = False) -> None:
        """Removes a file or an empty directory; a directory with all it holds if `recursive`.

        Raises `OSError` with ENOTEMPTY for a directory that is not empty.
        """
        path = _path(path)
        if self._client.stat(path)["kind"] != "directory":
            self._client.unlink(path)
            return
        if path == "/":
            raise PermissionError(1, "the root stays; name what is below it", path)
        if recursive:
            for entry in self._client.entries(path):
                if entry["kind"] == "directory":
                    self.rm(entry["path"], recursive=True)
                else:
                    self._client.unlink(entry["path"])
        self._client.rmdir(path)

    def rename(self, source: str, target: str) -> None:
        """Renames; a file that has the new name is replaced."""
        self._client.rename(_path(source), _path(target))

    def set_times(self, path: str, *, mtime_ns: int | None = None, atime_ns: int | None = None) -> None:
        """Sets times, in nanoseconds since the epoch."""
        self._client.set_attributes(_path(path), mode=None, uid=None, gid=None, mtime_ns=mtime_ns, atime_ns=atime_ns)

    def chmod(self, path: str, mode: int) -> None:
        """Sets permission bits."""
        self._client.set_attributes(_path(path), mode=mode, uid=None, gid=None, mtime_ns=None, atime_ns=None)

    def sync(self) -> None:
        """All names are on stable storage afterwards; for bytes, `File.sync`."""
        self._client.sync()

    def stats(self) -> dict[str, Any]:
        """What this client has done so far.

        ``contiguous``, ``list``, ``structured`` and ``shortcut`` are forms of access, each with ``operations``,
        ``requests`` (over all servers), ``bytes_read`` and ``bytes_written``. A loop is ``structured``: one request
        per data server. Beside them ``loops_sent``, ``shortcut_refused``, ``reconnections`` and ``locks``.
        """
        return self._client.stats()


def _again(deployment: str, options: dict[str, Any]) -> FileSystem:
    return FileSystem(deployment, **options)


def _path(path: str | os.PathLike[str]) -> str:
    """Absolute, without a prefix, empty names and a slash at the end."""
    path = os.fspath(path).removeprefix("penstock:")
    return "/" + "/".join(name for name in path.split("/") if name)


def _parents(path: str) -> Iterator[str]:
    """Each directory on the way to `path`, and `path`."""
    at = ""
    for name in path.split("/"):
        if name:
            at += f"/{name}"
            yield at


class File(io.RawIOBase):
    """An open file; made by `FileSystem.open`. Offsets and lengths are bytes.

    Each call is one access to the data servers. Calls with an offset may run in several threads at once; those that
    move the position are for one thread. Another process must open the file itself.
    """

    def __init__(self, handle: _penstock.File, kind: str, update: bool) -> None:
        super().__init__()
        self._handle = handle
        self._readable = kind == "r" or update
        self._writable = kind != "r" or update
        self._update = update
        self._position = handle.len() if kind == "a" else 0
        self.mode = ("r" if kind == "r" else kind) + ("+b" if update else "b")

    @property
    def name(self) -> str:
        """Its path at open."""
        return self._handle.path

    @property
    def layout(self) -> tuple[int, list[int]]:
        """Stripe unit in bytes, and the data servers in turn order."""
        return self._handle.layout

    def __repr__(self) -> str:
        return f"<penstock.File {self.name!r} {self.mode}{' closed' if self.closed else ''}>"

    def readable(self) -> bool:
        return self._readable

    def writable(self) -> bool:
        return self._writable

    def seekable(self) -> bool:
        self._open()
        return True

    def _open(self) -> _penstock.File:
        if self.closed:
            raise ValueError("I/O operation on closed file")
        return self._handle

    def size(self) -> int:
        """Length in bytes, as the data servers know it now."""
        return self._open().len()

    # ---- at the position ----

    def read(self, size: int | None = -1, /) -> bytes:
        """At most `size` bytes, fewer only at the end of the file; all that follow if it is negative or `None`."""
        self._check(self._readable, "reading")
        if size is None or size < 0 or size > _SMALL:
            left = max(self.size() - self._position, 0)
            size = left if size is None or size < 0 else min(size, left)
        data = self._handle.read(self._position, size)
        self._position += len(data)
        return data

    def readall(self) -> bytes:
        """All bytes that follow."""
        return self.read(-1)

    def readinto(self, buffer: Any, /) -> int:
        """Fills a writable buffer (any shape and strides, in C order); returns the bytes that were there."""
        self._check(self._readable, "reading")
        got = self._handle.read_into(self._position, buffer)
        self._position += got
        return got

    def write(self, data: Any, /) -> int:
        """Writes all bytes of a buffer (any shape and strides, in C order); returns how many."""
        self._check(self._writable, "writing")
        done = self._handle.write(self._position, data)
        self._position += done
        return done

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        """Moves the position; returns it."""
        self._open()
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: None}.get(whence, -1)
        if base == -1:
            raise ValueError(f"whence is {whence}; it is 0, 1 or 2")
        position = (self.size() if base is None else base) + offset
        if position < 0:
            raise OSError(22, f"position {position} is before the start of the file", self.name)
        self._position = position
        return position

    def tell(self) -> int:
        """The position."""
        self._open()
        return self._position

    # ---- at an offset ----

    def pread(self, size: int, offset: int) -> bytes:
        """At most `size` bytes from `offset` on; the position stays."""
        self._check(self._readable, "reading")
        if size > _SMALL:
            size = max(min(size, self.size() - offset), 0)
        return self._handle.read(offset, size)

    def preadinto(self, buffer: Any, offset: int) -> int:
        """Fills a writable buffer from `offset` on; returns the bytes that were there."""
        self._check(self._readable, "reading")
        return self._handle.read_into(offset, buffer)

    def pwrite(self, data: Any, offset: int) -> int:
        """Writes a buffer at `offset`; returns its bytes."""
        self._check(self._writable, "writing")
        return self._handle.write(offset, data)

    def pread_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """The bytes of (offset, size) ranges, all of them in flight at once. Ranges are cut at the end of the file."""
        self._check(self._readable, "reading")
        end = self.size()
        cut = [(offset, max(min(size, end - offset), 0)) for offset, size in ranges]
        whole = bytearray(sum(size for _, size in cut))
        if whole:
            self._handle.read_ranges(cut, whole)
        parts, at = [], 0
        with memoryview(whole) as view:
            for _, size in cut:
                parts.append(bytes(view[at : at + size]))
                at += size
        return parts

    def array(self, shape: int | Sequence[int], dtype: DTypeLike, offset: int = 0, order: str = "C") -> ArrayView:
        """An array that lies in the file from `offset` on: `shape` elements of a NumPy `dtype`.

        order: ``"C"``: the last dimension is contiguous; ``"F"``: the first one. Nothing is read until the view is
        indexed; see `ArrayView`..
        """
        self._open()
        return ArrayView(self, shape, dtype, offset, order)

    # ---- the whole file ----

    def truncate(self, size: int | None = None, /) -> int:
        """Cuts or extends (with a hole) to `size` bytes, or to the position; returns the new length."""
        self._check(self._writable, "writing")
        size = self._position if size is None else size
        if size < 0:
            raise OSError(22, f"a file can't have {size} bytes", self.name)
        self._handle.set_len(size)
        return size

    def sync(self) -> None:
        """Everything acknowledged so far is on stable storage afterwards, whoever wrote it."""
        self._open().sync()

    def stats(self) -> dict[str, Any]:
        """What was done through this file; as `FileSystem.stats`."""
        return self._open().stats()

    def close(self) -> None:
        """Closes the file. Written bytes are visible to all clients already; `sync` makes them durable."""
        if not self.closed:
            super().close()
            self._handle.close()

    def _sections(self, writing: bool) -> _penstock.File:
        self._check(self.writable() if writing else self.readable(), "writing" if writing else "reading")
        return self._handle

    def _check(self, allowed: bool, what: str) -> None:
        self._open()
        if not allowed:
            raise io.UnsupportedOperation(f"{self.name} is not open for {what}")
