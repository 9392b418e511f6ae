"""Reads h5py data sets with advised chunks, and with the best and the worst of all chunk shapes: do bytes predict times?

    PYTHONPATH=python .venv/bin/python experiments/layout/chunks.py --dir DIR [--runs 5] [--seeds 1 2 3]

The accesses are those of the random traces of python/tests/test_layout.py, on larger arrays; each read is cold.
"""

import argparse
import json
import os
import random
import statistics
import sys
import time
from itertools import product
from math import prod
from pathlib import Path

import h5py
import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "python"))
from penstock.layout import advise

SHAPE, ITEM = (3072, 3072), 8


def calls_of(seed):
    """Boxes that one rank reads in turn."""
    rng = random.Random(seed)
    box = [rng.choice([8, 48, 256, 3072]), rng.choice([8, 48, 256, 3072])]
    starts = [range(0, n - b + 1, max(b, n // 24)) for n, b in zip(SHAPE, box, strict=True)]
    points = list(product(*starts)) if rng.random() < 0.5 else [(a, b) for b in starts[1] for a in starts[0]]
    return [
        advise.Call(0, ((p, tuple(v + b for v, b in zip(p, box, strict=True))),), box[1] * ITEM) for p in points[:200]
    ]


def cold_read(path, calls):
    """Seconds to read all boxes from a file that is not in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(fd)
    begin = time.monotonic()
    with h5py.File(path, "r", rdcc_nbytes=advise.HDF5_CACHE) as file:
        for call in calls:
            (low, high) = call.boxes[0]
            file["A"][low[0] : high[0], low[1] : high[1]]
    return time.monotonic() - begin


def main():
    """One line of JSON for each seed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dir", default=".")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    args = parser.parse_args()
    data = np.zeros(SHAPE)
    for seed in args.seeds:
        calls = calls_of(seed)
        least, most = advise.allowed(SHAPE, ITEM)
        fits = [c for c in product(*map(advise.sizes, SHAPE)) if least <= prod(c) * ITEM <= most]
        priced = sorted((advise.cost(calls, SHAPE, ITEM, c, advise.HDF5_CACHE), -prod(c), c) for c in fits)
        bytes_, chunk = advise.chunk_for(calls, SHAPE, ITEM, advise.HDF5_CACHE)
        shapes = {"advised": chunk, "best": priced[0][2], "median": priced[len(priced) // 2][2]}
        paths = {}
        for name, shape in shapes.items():
            paths[name] = Path(args.dir) / f"chunks-{os.getpid()}-{name}.h5"
            with h5py.File(paths[name], "w") as file:
                file.create_dataset("A", data=data, chunks=shape)
        times = {name: [] for name in shapes}
        for _ in range(args.runs):
            for name in shapes:
                times[name].append(cold_read(paths[name], calls))
        for path in paths.values():
            path.unlink()
        row = {"seed": seed, "box": [h - lo for lo, h in zip(*calls[0].boxes[0], strict=True)], "MB": bytes_ / 1e6,
               "best MB": priced[0][0] / 1e6, "median MB": priced[len(priced) // 2][0] / 1e6}  # fmt: skip
        for name, shape in shapes.items():
            row[name] = {"chunk": shape, "s": round(statistics.median(times[name]), 4)}
        print(json.dumps(row), flush=True)


if __name__ == "__main__":
    main()
