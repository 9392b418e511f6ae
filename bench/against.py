"""Compares two built trees of this project: the ratio of their rates, by name of record, larger = better for NEW.

Runs of OLD and NEW are interleaved pair by pair, and which of them begins alternates. Records are those of `bench.py`
that are access patterns of `io.c` (the one beside this file runs on both), and `contig/1MiB/nosync`. Without `--only` it
runs ten of them. Beside the median ratio stands its interval at 95% confidence. Then what the disk of the stores got, from OLD and from NEW:
write requests of a repetition and KiB of a request. Other programs' requests to that disk count, too.

    against.py OLD NEW [--pairs N] [--only REGEX] [--disk DIR] [--json FILE]
"""

import argparse
import json
import os
import re
import shutil
import statistics
import sys
import tempfile
from pathlib import Path

import process

import bench

SYNCED = bench.RECORDS["contig/1MiB/write"]
UNSYNCED = {**SYNCED, "keys": {key: value for key, value in SYNCED["keys"].items() if key != "sync"}}
RECORDS = {name: record for name, record in bench.RECORDS.items() if record["kind"] in ("io", "shared")}
RECORDS["contig/1MiB/nosync"] = UNSYNCED
USUAL = [
    "hard/write",
    "hard/read",
    "contig/1MiB/write",
    "contig/1MiB/nosync",
    "contig/1MiB/read",
    "noncontig/4KiB/write",
    "noncontig/4KiB/read",
    "tile/read",
    "flash/write",
    "shared/write",
]


def written(disk):
    """(write requests, KiB written) of the device of a directory so far; zeros where it has none."""
    device = os.stat(disk).st_dev
    try:
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
    except FileNotFoundError:
        return 0, 0
    return int(fields[4]), int(fields[6]) / 2


class Trees:
    """Two trees and what their runs share: one build of io.c, a directory of stores."""

    def __init__(self, old, new, disk):
        self.trees = {"old": Path(old).resolve(), "new": Path(new).resolve()}
        for tree in self.trees.values():
            if not (tree / "target" / "release" / "penstock").exists():
                sys.exit(f"against: {tree} is not built; run 'make build' there")
        self.dir = Path(tempfile.mkdtemp(prefix="penstock-against-", dir=disk))
        self.io = self.dir / "io"
        process.run([process.VENV / "bin" / "mpicc", "-O2", "-o", self.io, process.ROOT / "bench" / "io.c"])

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def once(self, side, record):
        """One run: bytes per second, write requests of a repetition, KiB of a request."""
        command = [self.trees[side] / "target" / "release" / "penstock", "run", "-n", record["ranks"]]
        command += ["--store", self.dir / f"store-{side}"]
        command += ["--shortcut", record["shortcut"]] if record["shortcut"] else []
        keys = {**record["keys"], "coll": record["coll"]}
        command += ["--", self.io, record["case"], record["op"], f"penstock:/{record['case']}"]
        before = written(self.dir)
        result = process.last_json(process.run([*command, *(f"{k}={v}" for k, v in keys.items())])[0])
        requests, kib = (after - earlier for after, earlier in zip(written(self.dir), before, strict=True))
        return result["bytes"] / result["seconds"], requests / (result["reps"] + bench.WARM), kib / max(1, requests)

    def compare(self, name, record, pairs):
        """The ratio of both trees' rates in one record."""
        runs = {"old": [], "new": []}
        for pair in range(pairs):
            for side in ("old", "new") if pair % 2 else ("new", "old"):
                runs[side].append(self.once(side, record))
        ratios = [new[0] / old[0] for old, new in zip(runs["old"], runs["new"], strict=True)]

        def medians(column):
            return {side: statistics.median(run[column] for run in runs[side]) for side in runs}

        return {
            "name": name,
            "pairs": pairs,
            "ratio": {
                "median": statistics.median(ratios),
                "interval": bench.interval(ratios),
                "min": min(ratios),
                "max": max(ratios),
            },
            "bytes_per_second": medians(0),
            "write_requests": medians(1),
            "kib_per_write_request": medians(2),
            "load": os.getloadavg()[0],
        }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old", metavar="OLD", help="a built tree of the project")
    parser.add_argument("new", metavar="NEW", help="another one")
    parser.add_argument("--pairs", type=int, default=20, help="interleaved pairs per record (default 20)")
    parser.add_argument("--only", metavar="REGEX", help="records with these names (default: ten of them)")
    parser.add_argument("--disk", default=".", help="where stores are made (default: this directory)")
    parser.add_argument("--json", metavar="FILE", help="write all results there, too")
    args = parser.parse_args()
    names = [name for name in RECORDS if re.fullmatch(args.only, name)] if args.only else USUAL
    if not names:
        sys.exit(f"against: no record is named {args.only!r}; there are: {', '.join(RECORDS)}")
    if args.pairs < 1:
        sys.exit("against: --pairs: at least 1")
    trees = Trees(args.old, args.new, args.disk)
    results = []
    try:
        print(f"{'record':<34} ratio (95%; least-greatest)      MB/s old, new   write requests old, new   load")
        for name in names:
            try:
                result = trees.compare(name, RECORDS[name], args.pairs)
            except bench.Failed as why:
                print(f"{name:<34} failed: {why}", flush=True)
                results.append({"name": name, "failed": str(why)})
                continue
            results.append(result)
            ratio, rate = result["ratio"], result["bytes_per_second"]
            count, size = result["write_requests"], result["kib_per_write_request"]
            low, high = ratio["interval"]
            print(
                f"{name:<34} {ratio['median']:.3f} ({low:.3f}-{high:.3f}; {ratio['min']:.2f}-{ratio['max']:.2f})  "
                f"{rate['old'] / 1e6:.4g}, {rate['new'] / 1e6:.4g}   {count['old']:.0f} of {size['old']:.0f} KiB, "
                f"{count['new']:.0f} of {size['new']:.0f} KiB   {result['load']:.1f}",
                flush=True,
            )
    finally:
        trees.close()
    if args.json:
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    return any("failed" in result for result in results)


if __name__ == "__main__":
    sys.exit(main())
