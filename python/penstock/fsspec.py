"""``penstock://`` for fsspec, and so for pandas, xarray, zarr, dask and pyarrow.

    pandas.read_parquet("penstock:///in/t.parquet", storage_options={"deployment": "/data/fs"})

The URL carries the path only; the deployment comes from the option ``deployment`` or from ``$PENSTOCK_DEPLOYMENT``.
Files are written into directories that are made when they are missing.
Errors are those of `penstock`: `OSError`s with errno, path and what to do.
"""

from __future__ import annotations

import io
import os
import secrets
from datetime import UTC, datetime
from typing import Any

from fsspec.callbacks import DEFAULT_CALLBACK
from fsspec.spec import AbstractBufferedFile, AbstractFileSystem
from fsspec.utils import isfilelike

import penstock
from penstock._files import File, FileSystem, Stat, _path

#: Bytes that reading ahead takes at once, and that writing collects (overridden by ``block_size``).
BLOCK = 1 << 20
#: Bytes of a piece when whole files are moved.
PIECE = 4 << 20


class PenstockFileSystem(AbstractFileSystem):
    """The files of a deployment under fsspec's names.

    deployment: directory or ``deployment.toml``; `None` takes ``$PENSTOCK_DEPLOYMENT``.
    shortcuts, timeout (seconds), connections: as for `penstock.connect`.
    """

    protocol = "penstock"
    root_marker = "/"

    def __init__(
        self,
        deployment: str | os.PathLike[str] | None = None,
        *,
        shortcuts: bool = True,
        timeout: float = 30.0,
        connections: int = 4,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        # Names may change at any time and by anybody: nothing of them is kept.
        self.fs: FileSystem = penstock.connect(
            deployment, shortcuts=shortcuts, timeout=timeout, connections=connections
        )

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(p) for p in path]
        return _path(path)

    def unstrip_protocol(self, name: str) -> str:
        return f"penstock://{_path(name)}"

    @property
    def fsid(self) -> str:
        return f"penstock-{self.fs.deployment}"

    # ---- names ----

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        return _info(self.fs.stat(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        path = self._strip_protocol(path)
        stat = self.fs.stat(path)
        if not stat.is_dir:
            return [_info(stat)] if detail else [path]
        if detail:
            return [_info(entry) for entry in self.fs.scan(path)]
        return [f"{path.rstrip('/')}/{name}" for name in self.fs.ls(path)]

    def exists(self, path: str, **kwargs: Any) -> bool:
        return self.fs.exists(path)

    def mkdir(self, path: str, create_parents: bool = True, **kwargs: Any) -> None:
        self.fs.mkdir(path, parents=create_parents)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        if self._strip_protocol(path) != "/":
            self.fs.mkdir(path, parents=True, exist_ok=exist_ok)

    def rmdir(self, path: str) -> None:
        self.fs._client.rmdir(self._strip_protocol(path))

    def rm_file(self, path: str) -> None:
        self.fs._client.unlink(self._strip_protocol(path))

    _rm = rm_file

    def rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None) -> None:
        for one in [path] if isinstance(path, str | os.PathLike) else path:
            if maxdepth is not None or any(c in str(one) for c in "*?["):
                super().rm(one, recursive, maxdepth)
            else:
                self.fs.rm(one, recursive=recursive)

    def mv(self, path1: str, path2: str, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any) -> None:
        if isinstance(path1, str) and not any(c in path1 for c in "*?["):
            target = _path(path2)
            if path2.endswith("/") or (self.isdir(target) and not self.isdir(path1)):
                target = f"{target.rstrip('/')}/{_path(path1).rsplit('/', 1)[1]}"
            self.fs.rename(path1, target)
        else:
            super().mv(path1, path2, recursive=recursive, maxdepth=maxdepth, **kwargs)

    mv_file = mv

    def touch(self, path: str, truncate: bool = True, **kwargs: Any) -> None:
        """An empty file, or with ``truncate=False`` one that is there as it is; its directory is made if it is missing."""
        self._make(_path(path), "wb" if truncate else "ab").close()

    def created(self, path: str) -> datetime:
        return _time(self.fs.stat(path).ctime_ns)

    def modified(self, path: str) -> datetime:
        return _time(self.fs.stat(path).mtime_ns)

    def chmod(self, path: str, mode: int) -> None:
        self.fs.chmod(path, mode)

    def ukey(self, path: str) -> str:
        stat = self.fs.stat(path)
        return f"{stat.id:x}-{stat.size:x}-{stat.mtime_ns:x}"

    # ---- bytes ----

    def _open(
        self,
        path: str,
        mode: str = "rb",
        block_size: int | None = None,
        autocommit: bool = True,
        cache_options: dict[str, Any] | None = None,
        cache_type: str = "readahead",
        **kwargs: Any,
    ) -> Any:
        size = block_size or BLOCK
        if mode == "rb":
            return Reader(
                self, path, mode, size, cache_type=cache_type, cache_options=cache_options, autocommit=autocommit
            )
        return _writer(self, _path(path), mode, size, autocommit, kwargs)

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any) -> bytes:
        with self.fs.open(path) as f:
            if not start and end is None:
                return f.read()
            first, last = _range(start, end, f)
            return f.pread(last - first, first)

    def cat_ranges(
        self,
        paths: list[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[Any]:
        """Byte ranges of files; those of one file are asked for together and are all in flight at once."""
        if max_gap is not None:
            raise NotImplementedError("max_gap: nothing is gained by reading what lies between ranges")
        if not isinstance(paths, list):
            raise TypeError("paths is a list")
        starts = starts if isinstance(starts, list) else [starts] * len(paths)
        ends = ends if isinstance(ends, list) else [ends] * len(paths)
        if len(starts) != len(paths) or len(ends) != len(paths):
            raise ValueError(f"{len(paths)} paths, {len(starts)} starts and {len(ends)} ends: one of each per range")
        wanted: dict[str, list[int]] = {}
        for place, path in enumerate(paths):
            wanted.setdefault(self._strip_protocol(path), []).append(place)
        out: list[Any] = [None] * len(paths)
        for path, places in wanted.items():
            try:
                with self.fs.open(path) as f:
                    bounds = [_range(starts[place], ends[place], f) for place in places]
                    parts: list[Any] = f.pread_ranges([(first, last - first) for first, last in bounds])
            except Exception as e:
                if on_error == "raise":
                    raise
                parts = [e] * len(places)
            for place, part in zip(places, parts, strict=True):
                out[place] = part
        return out

    def pipe_file(self, path: str, value: Any, mode: str = "overwrite", **kwargs: Any) -> None:
        """Bytes as a whole file, which has its name when it is complete."""
        path = _path(path)
        if mode == "create":
            with self._make(path, "xb") as f:
                f.write(value)
            return
        part = _beside(path)
        try:
            with self._make(part, "xb") as f:
                f.write(value)
            self.fs.rename(part, path)
        except BaseException:
            self._forget(part)
            raise

    def put_file(
        self, lpath: Any, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **kwargs: Any
    ) -> None:
        """A local file in; it has its name when it is complete."""
        if not isfilelike(lpath) and os.path.isdir(lpath):
            self.makedirs(rpath, exist_ok=True)
            return
        rpath = _path(rpath)
        if mode == "create" and self.exists(rpath):
            raise FileExistsError(17, "it exists; mode='overwrite' replaces it", rpath)
        part = _beside(rpath)
        source = lpath if isfilelike(lpath) else open(lpath, "rb")  # noqa: SIM115
        try:
            callback.set_size(source.seek(0, io.SEEK_END))
            source.seek(0)
            with self._make(part, "xb") as f:
                while piece := source.read(PIECE):
                    f.write(piece)
                    callback.relative_update(len(piece))
            self.fs.rename(part, rpath)
        except BaseException:
            self._forget(part)
            raise
        finally:
            if source is not lpath:
                source.close()

    def get_file(self, rpath: str, lpath: Any, callback: Any = DEFAULT_CALLBACK, **kwargs: Any) -> None:
        """A file out; it has its name when it is complete."""
        if isfilelike(lpath):
            with self.fs.open(rpath) as f:
                _copy(f, lpath, callback)
            return
        if self.isdir(rpath):
            os.makedirs(lpath, exist_ok=True)
            return
        lpath = os.fspath(lpath)
        os.makedirs(os.path.dirname(lpath) or ".", exist_ok=True)
        part = _beside(lpath)
        with self.fs.open(rpath) as f:
            try:
                with open(part, "xb") as target:
                    _copy(f, target, callback)
                os.replace(part, lpath)
            except BaseException:
                if os.path.exists(part):
                    os.unlink(part)
                raise

    def cp_file(self, path1: str, path2: str, **kwargs: Any) -> None:
        """A copy inside; it has its name when it is complete."""
        if self.isdir(path1):
            self.makedirs(path2, exist_ok=True)
            return
        path2 = _path(path2)
        part = _beside(path2)
        try:
            with self.fs.open(path1) as f, self._make(part, "xb") as target:
                _copy(f, target, DEFAULT_CALLBACK)
            self.fs.rename(part, path2)
        except BaseException:
            self._forget(part)
            raise

    def _make(self, path: str, mode: str, **layout: Any) -> File:
        """Opens a file to be written, in a directory that is made if it is missing, as users of object stores expect."""
        try:
            return self.fs.open(path, mode, **layout)
        except FileNotFoundError:
            if "r" in mode:
                raise
            self.makedirs(self._parent(path), exist_ok=True)
            return self.fs.open(path, mode, **layout)

    def _forget(self, path: str) -> None:
        """Removes what was not completed."""
        if self.fs.exists(path):
            self.fs.rm(path)


class Reader(AbstractBufferedFile):
    """A file opened for reading, with fsspec's caches (``cache_type``, ``block_size``, ``cache_options``).

    The default reads one block ahead: 1 MiB where calls are sequential. A single larger call reads no more than it asks
    for.
    """

    def __init__(self, fs: PenstockFileSystem, path: str, *args: Any, **kwargs: Any) -> None:
        self.raw: File = fs.fs.open(path)
        super().__init__(fs, path, *args, size=self.raw.size(), **kwargs)

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.raw.pread(end - start, start)

    def readinto(self, b: Any) -> int:
        # Large reads go to the caller's memory at once.
        view = memoryview(b).cast("B")
        if len(view) < self.blocksize:
            return super().readinto(b)
        got = self.raw.preadinto(view[: max(self.size - self.loc, 0)], self.loc)
        self.loc += got
        return got

    def close(self) -> None:
        super().close()
        self.raw.close()


class _Commit:
    """What a file opened for writing adds: the name that it gets when it is complete."""

    fs: PenstockFileSystem
    path: str
    part: str | None

    def _begin(self, fs: PenstockFileSystem, path: str, part: str | None) -> None:
        self.fs, self.path, self.part = fs, path, part

    def commit(self) -> None:
        """Gives the file its name; called at the end of a transaction."""
        self.close()  # type: ignore[attr-defined]
        if self.part is not None:
            self.fs.fs.rename(self.part, self.path)
            self.part = None

    def discard(self) -> None:
        """Forgets the file."""
        self.close()  # type: ignore[attr-defined]
        if self.part is not None:
            self.fs._forget(self.part)
            self.part = None

    @property
    def full_name(self) -> str:
        return self.fs.unstrip_protocol(self.path)


class Writer(_Commit, io.BufferedWriter):
    """A file opened for writing: 1 MiB is collected before it goes out."""


class Updater(_Commit, io.BufferedRandom):
    """A file opened for reading and writing."""


def _writer(
    fs: PenstockFileSystem, path: str, mode: str, size: int, autocommit: bool, layout: dict[str, Any]
) -> Writer | Updater:
    keys = ("permissions", "stripe_unit", "stripe_count", "start_server")
    layout = {key: layout[key] for key in keys if key in layout}
    part = None
    if not autocommit and "r" not in mode:
        part = _beside(path)
        if "x" in mode and fs.exists(path):
            raise FileExistsError(17, "it exists; mode 'wb' replaces it", path)
        if "a" in mode and fs.exists(path):
            fs.cp_file(path, part)
    raw = fs._make(part or path, mode, **layout)
    file = Updater(raw, size) if "+" in mode else Writer(raw, size)
    file._begin(fs, path, part)
    return file


def _beside(path: str) -> str:
    """A name in the same directory that nobody else uses."""
    directory, name = os.path.split(path)
    return os.path.join(directory, f".{name[:200]}.part-{secrets.token_hex(6)}")


def _copy(source: File, target: Any, callback: Any) -> None:
    callback.set_size(source.size())
    piece = bytearray(PIECE)
    with memoryview(piece) as view:
        while got := source.readinto(view):
            target.write(view[:got])
            callback.relative_update(got)


def _range(start: int | None, end: int | None, file: File) -> tuple[int, int]:
    """First and last byte (exclusive); negative ones count from the end, as in a slice."""
    if (start is None or start >= 0) and end is not None and end >= 0:
        first = start or 0
        return first, max(end, first)
    first, last, _ = slice(start, end).indices(file.size())
    return first, max(last, first)


def _info(stat: Stat) -> dict[str, Any]:
    kind = {"symlink": "link"}.get(stat.kind, stat.kind)
    return {
        "name": stat.path,
        "size": stat.size if stat.is_file else None if kind == "link" else 0,
        "type": kind,
        "mode": stat.mode,
        "uid": stat.uid,
        "gid": stat.gid,
        "nlink": stat.nlink,
        "ino": stat.id,
        "created": stat.ctime_ns / 1e9,
        "mtime": stat.mtime_ns / 1e9,
        "stripe_unit": stat.stripe_unit,
        "servers": stat.servers,
    }


def _time(ns: int) -> datetime:
    return datetime.fromtimestamp(ns / 1e9, UTC)
