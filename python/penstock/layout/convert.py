"""Rewrites a file to a layout, or back: whole and verified, or not at all.

The new file is written beside its final name and synced. It is compared byte for byte with the source through the other
direction's formula, and only then renamed. A run that is killed leaves the source unchanged, and an unfinished file that
the next run continues. `user.penstock.layout` (an extended attribute, where the file system has them) tells a re-laid
file from a plain one.
"""

import contextlib
import fcntl
import hashlib
import os
import sys
import time
from pathlib import Path

import numpy as np

from .errors import LayoutError
from .form import dump

MARK = "user.penstock.layout"
#: Elements that are moved at a time.
SLAB = 1 << 19
#: Seconds before progress is shown, and between its lines.
QUIET, EACH = 2.0, 0.5


def digest(layout):
    """What the mark says of a file in this layout."""
    return hashlib.sha256(dump([layout]).encode()).hexdigest().encode()


def convert(layout, source, target, back=False, replace=False, progress=sys.stderr):
    """Converts `source` (C order, with `back` re-laid) to `target`, which may be `source`. Returns the bytes moved."""
    source, target = Path(source), Path(target)
    with _opened(source) as file:
        before = os.fstat(file.fileno())
        if before.st_size != layout.bytes:
            what = "cut short" if before.st_size < layout.bytes else "too long"
            raise LayoutError(
                f"{source}: {what}: {before.st_size} bytes; {layout.array} of shape {list(layout.shape)} with "
                f"{layout.item} bytes an element has {layout.bytes}",
                "name the file that the layout was planned for, or plan one for this shape",
            )
        _check_mark(layout, file, source, back)
        if target.exists() and not replace:
            raise LayoutError(
                f"{target} exists", "choose another name, or allow it with --force (--in-place for the source)"
            )
        unfinished = target.with_name(f".{target.name}.unfinished")
        with _taken(unfinished) as out:
            _write(layout, file, out, back, progress)
            with contextlib.suppress(OSError):
                os.fchmod(out.fileno(), before.st_mode & 0o7777)
                os.fchown(out.fileno(), before.st_uid, before.st_gid)
            if not back:
                with contextlib.suppress(OSError):
                    os.setxattr(out.fileno(), MARK, digest(layout))
            os.fsync(out.fileno())
            _verify(layout, file, out, back, progress)
            after = os.fstat(file.fileno())
            if (after.st_mtime_ns, after.st_size) != (before.st_mtime_ns, before.st_size):
                raise LayoutError(f"{source} changed while it was converted", "stop what writes it, then convert again")
            if replace:
                os.replace(unfinished, target)
            else:
                # A link fails where the name was taken meanwhile; a rename would replace it.
                try:
                    os.link(unfinished, target)
                except FileExistsError as e:
                    raise LayoutError(f"{target} exists now", "choose another name") from e
                os.unlink(unfinished)
            _sync_directory(target.parent)
    return layout.bytes


def _opened(path):
    try:
        return open(path, "rb")
    except OSError as e:
        raise LayoutError(f"cannot read {path}: {e.strerror}") from e


def _check_mark(layout, file, source, back):
    try:
        mark = os.getxattr(file.fileno(), MARK)
    except OSError:
        return
    if not back:
        raise LayoutError(f"{source} is in a layout already", "convert it back with --back and the layout it has")
    if mark != digest(layout):
        raise LayoutError(f"{source} is in another layout than that of {layout.array} here",
                          "name the layout file and the array that it was converted with")  # fmt: skip


@contextlib.contextmanager
def _taken(path):
    """The unfinished file, empty and locked; removed when something fails."""
    try:
        out = os.fdopen(os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600), "r+b")
    except OSError as e:
        raise LayoutError(f"cannot write {path}: {e.strerror}", "choose a directory that you may write to") from e
    with out:
        try:
            fcntl.flock(out, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            raise LayoutError(f"{path}: another conversion writes this file", "wait for it") from e
        try:
            # What a killed run left.
            os.ftruncate(out.fileno(), 0)
            yield out
        except BaseException as e:
            with contextlib.suppress(OSError):
                if os.stat(path).st_ino == os.fstat(out.fileno()).st_ino:
                    os.unlink(path)
            if isinstance(e, OSError):
                raise LayoutError(f"{path}: {e.strerror}", "make room, or choose another directory") from e
            raise


def _sync_directory(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def kind(item):
    """Elements as NumPy moves them fastest."""
    return np.dtype(f"u{item}") if item in (1, 2, 4, 8) else np.dtype(f"V{item}")


def _from(layout, first, last, back):
    """Where in the source the elements first..last of the target lie."""
    here = np.arange(first, last, dtype=np.int64)
    if back:
        return layout.position(np.unravel_index(here, layout.shape))
    return np.ravel_multi_index([np.broadcast_to(i, here.shape) for i in layout.index(here)], layout.shape)


def _write(layout, file, out, back, progress):
    source = np.memmap(file, dtype=kind(layout.item), mode="r")
    with _Progress(progress, "writing", layout.elements) as step:
        for first in range(0, layout.elements, SLAB):
            last = min(first + SLAB, layout.elements)
            out.write(source[_from(layout, first, last, back)].tobytes())
            step(last)
    out.flush()
    os.fsync(out.fileno())


def _verify(layout, file, out, back, progress):
    """Looks each element of the source up in the new file, by the formula of the other direction."""
    old = np.memmap(file, dtype=kind(layout.item), mode="r")
    new = np.memmap(out, dtype=kind(layout.item), mode="r")
    if len(new) != layout.elements:
        raise LayoutError(f"the new file has {len(new)} elements in place of {layout.elements}", "convert again")
    with _Progress(progress, "verifying", layout.elements) as step:
        for first in range(0, layout.elements, SLAB):
            last = min(first + SLAB, layout.elements)
            if not np.array_equal(new[_from(layout, first, last, not back)], old[first:last]):
                raise LayoutError(
                    f"elements {first} to {last} differ after conversion", "check the disk; convert again"
                )
            step(last)


class _Progress:
    """A line on a terminal or log, once the work has taken two seconds."""

    def __init__(self, stream, what, total):
        self.stream, self.what, self.total = stream, what, total
        self.begin = self.shown = time.monotonic()

    def __enter__(self):
        return self.step

    def __exit__(self, *_):
        if self.stream and self.shown != self.begin:
            self.stream.write("\n")

    def step(self, done):
        now = time.monotonic()
        if self.stream and now - self.begin > QUIET and (now - self.shown > EACH or done == self.total):
            self.shown = now
            left = (now - self.begin) * (self.total - done) / max(1, done)
            self.stream.write(f"\r{self.what}: {100 * done // self.total}%, {left:.0f} s left ")
            self.stream.flush()
