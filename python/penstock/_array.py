"""An array that lies in a file, indexed as NumPy arrays are.

An index becomes an offset, a count and a stride per dimension, the same on the memory side. The extension module
turns both into loops. So what an access costs depends on its bytes and not on the number of its pieces.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, DTypeLike

    from penstock import _penstock


class Section(NamedTuple):
    """Which elements an index means. Offsets and strides in bytes."""

    offset: int
    #: Elements in each dimension of the result that the file has.
    counts: tuple[int, ...]
    #: Bytes from one to the next in the file.
    strides: tuple[int, ...]
    #: The result's shape: `counts` without the dimensions that an integer took, with those of `None`.
    shape: tuple[int, ...]


def select(index: Any, shape: tuple[int, ...], strides: tuple[int, ...], offset: int) -> Section:
    """The section of an array of `shape` and byte `strides` at `offset` that a NumPy basic index means."""
    index = index if isinstance(index, tuple) else (index,)
    for part in index:
        if not (part is None or part is Ellipsis or isinstance(part, slice)) and not _is_integer(part):
            raise IndexError(
                f"{type(part).__name__} in an index of an array in a file; use integers, slices, ... and None, "
                "or read a slice and index the result"
            )
    wanted = sum(part is not None and part is not Ellipsis for part in index)
    if sum(part is Ellipsis for part in index) > 1:
        raise IndexError("an index has one ... at most")
    if wanted > len(shape):
        raise IndexError(f"{wanted} indices for an array of {len(shape)} dimensions")
    if not any(part is Ellipsis for part in index):
        index = (*index, Ellipsis)
    counts: list[int] = []
    steps: list[int] = []
    result: list[int] = []
    at = 0

    def keep(count: int, stride: int) -> None:
        counts.append(count)
        steps.append(stride)
        result.append(count)

    for part in index:
        if part is None:
            result.append(1)
        elif part is Ellipsis:
            for _ in range(len(shape) - wanted):
                keep(shape[at], strides[at])
                at += 1
        elif isinstance(part, slice):
            start, stop, step = part.indices(shape[at])
            count = len(range(start, stop, step))
            offset += start * strides[at] if count else 0
            keep(count, step * strides[at])
            at += 1
        else:
            place = operator.index(part)
            if not -shape[at] <= place < shape[at]:
                raise IndexError(f"index {place} is outside dimension {at} of {shape[at]} elements")
            offset += place % shape[at] * strides[at]
            at += 1
    return Section(offset, tuple(counts), tuple(steps), tuple(result))


def _is_integer(part: Any) -> bool:
    return hasattr(part, "__index__") and not isinstance(part, (bool, np.bool_)) and np.ndim(part) == 0


class Holder(Protocol):
    """The file that an array lies in: what the array asks of it."""

    @property
    def name(self) -> str: ...

    def _sections(self, writing: bool) -> _penstock.File:
        """The open file, whose sections may be read, or written; raises an error if it isn't open for that."""
        ...


class ArrayView:
    """An array that lies in a file; made by `File.array`.

    ``view[i, 2:9:2, ...]`` reads a NumPy array and ``view[...] = x`` writes one (`x` broadcast and converted). Indices
    are NumPy's basic ones: integers, slices with any step, ``...`` and `None`. Each is one access: one loop, one
    request per data server. ``np.asarray(view)`` reads all of it, `dask.array.from_array` takes it as it is.
    """

    def __init__(self, file: Holder, shape: int | Sequence[int], dtype: DTypeLike, offset: int, order: str) -> None:
        dims = tuple(operator.index(n) for n in (shape if isinstance(shape, Sequence | np.ndarray) else (shape,)))
        self.file = file
        #: Elements in each dimension.
        self.shape = dims
        self.dtype = np.dtype(dtype)
        #: Bytes before the first element.
        self.offset = operator.index(offset)
        if any(n < 0 for n in dims):
            raise ValueError(f"shape is {dims}; a dimension has 0 or more elements")
        if self.offset < 0:
            raise ValueError(f"offset is {self.offset}; it is bytes from the start of the file")
        if order not in ("C", "F"):
            raise ValueError(f"order is {order!r}; it is 'C' (last dimension contiguous) or 'F' (first)")
        if self.dtype.hasobject or self.dtype.itemsize == 0:
            raise TypeError(f"{self.dtype} has no fixed bytes in a file; choose a dtype without objects")
        self.order = order
        strides, step = [], self.dtype.itemsize
        for n in dims if order == "F" else reversed(dims):
            strides.append(step)
            step *= n
        #: Bytes from one element to the next, in each dimension.
        self.strides = tuple(strides if order == "F" else reversed(strides))
        if self.offset + step >= 1 << 63:
            raise OverflowError(f"an array of {step} bytes at offset {self.offset} ends beyond 2^63 bytes")

    @property
    def ndim(self) -> int:
        """Dimensions."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """Elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.size * self.dtype.itemsize

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without dimensions has no length")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"<penstock.ArrayView {self.shape} {self.dtype} of {self.file.name!r} at {self.offset}>"

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if copy is False:
            raise ValueError("the array lies in a file: it can't be had without a copy")
        return np.asarray(self[...], dtype=dtype)

    def __getitem__(self, index: Any) -> Any:
        section = select(index, self.shape, self.strides, self.offset)
        out = np.empty(section.shape, self.dtype, order="F" if self.order == "F" else "C")
        self._read(section, out)
        return out if section.shape else out[()]

    def read(self, index: Any, out: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Reads what `index` means into `out`, an array of that shape and this dtype with any strides; returns it."""
        section = select(index, self.shape, self.strides, self.offset)
        if out.dtype != self.dtype or out.shape != section.shape:
            raise ValueError(f"out is {out.shape} {out.dtype}, the section {section.shape} {self.dtype}")
        self._read(section, out)
        return out

    def __setitem__(self, index: Any, value: ArrayLike) -> None:
        section = select(index, self.shape, self.strides, self.offset)
        values = np.broadcast_to(np.asarray(value, dtype=self.dtype), section.shape)
        handle = self.file._sections(writing=True)
        if values.size:
            memory, counts, strides = _memory(values, section)
            handle.write_section(section.offset, self.dtype.itemsize, counts, strides, memory)

    def _read(self, section: Section, out: np.ndarray[Any, Any]) -> None:
        handle = self.file._sections(writing=False)
        if not out.size:
            return
        memory, counts, strides = _memory(out, section)
        got = handle.read_section(section.offset, self.dtype.itemsize, counts, strides, memory)
        if got != out.nbytes:
            raise EOFError(
                f"{self.file.name} ends after {got} of the {out.nbytes} bytes of this section: "
                "check shape, dtype and offset, or extend the file with truncate"
            )


def _memory(array: np.ndarray[Any, Any], section: Section) -> tuple[Any, list[int], list[int]]:
    """The array's memory as plain bytes in the shape that the file side has."""
    plain = array.view(f"V{array.dtype.itemsize}")
    counts, strides = list(section.counts), list(section.strides)
    if not counts:
        counts, strides = [1], [array.dtype.itemsize]
    # Dimensions of one element come and go without a copy.
    return plain.reshape(counts), counts, strides
