"""Files in Penstock, a parallel file system: bytes, sections of arrays, names.

    import penstock

    fs = penstock.connect("/data/fs")                 # or $PENSTOCK_DEPLOYMENT
    with fs.open("/out/field.bin", "w+b") as f:
        view = f.array((512, 512, 64), "f4")          # an array in the file; nothing is read
        view[::2, 5:90] = 1.0                         # one loop, one request per data server
        plane = view[:, :, 7]                         # a NumPy array

pandas, xarray, zarr, dask and pyarrow reach the same files as ``penstock:///out/...`` through fsspec
(`penstock.fsspec`). Offsets and lengths are bytes. Errors are `OSError`s with errno, the path, and what to do.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock._array import ArrayView
    from penstock._files import File, FileSystem, Stat, connect

__all__ = ["ArrayView", "File", "FileSystem", "Stat", "connect"]


def __getattr__(name):
    """Files and arrays are imported when they are first used: `penstock generate` works without the extension module."""
    if name not in __all__:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    from penstock import _array, _files

    return getattr(_array if name == "ArrayView" else _files, name)


def __dir__():
    return sorted([*globals(), *__all__])
