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

from penstock._array import ArrayView
from penstock._files import File, FileSystem, Stat, connect

__all__ = ["ArrayView", "File", "FileSystem", "Stat", "connect"]
