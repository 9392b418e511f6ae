"""What `make demo` prints and writes: four programs under six methods, on problems small enough for a test."""

import json
import re
import subprocess
import sys

from conftest import ROOT

RANKS = {"tile": 6, "block": 8, "flash": 4, "hard": 4}
METHODS = ["posix", "sieve", "two-phase", "list", "datatype", "auto"]
COUNTS = ("ops_per_client", "accessed_bytes_per_client", "resent_bytes_per_client", "region_bytes")


def demo(out, *options):
    command = [sys.executable, ROOT / "scripts" / "demo.py", "--out", out, *options]
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=200, check=False)


def test_the_table_is_whole(tmp_path):
    out = tmp_path / "table.json"
    done = demo(out, "--scale", 0.05, "--pairs", 1)
    assert done.returncode == 0, done.stderr
    records = json.loads(out.read_text())
    assert [(r["case"], r["method"]) for r in records] == [(c, m) for c in RANKS for m in METHODS]
    for r in records:
        assert r["ranks"] == RANKS[r["case"]] and r["verified"] is True and r["mb_per_s"] > 0, r
        assert all(r[count] >= 0 for count in COUNTS) and r["region_bytes"] > 0, r
        assert r["accessed_bytes_per_client"] > 0 and r["ops_per_client"] > 0, r
        assert re.search(rf"^{r['case']} ×{r['ranks']} +{r['method']} ", done.stdout, re.MULTILINE), done.stdout
        if r["method"] == "auto":
            # It may take the same-host shortcut, and says so; and what it chose, and why.
            assert r["chosen"] and r["reason"] in done.stdout
            assert not r["shortcut"] or "same-host shortcut" in done.stdout
        else:
            assert r["chosen"] == r["method"] and not r["shortcut"], r
            assert set(r["model"]) == set(COUNTS), r
    # What the source printed stands beside it where the problem is one of the source's, at any scale.
    assert all(r["paper"] for r in records if r["case"] == "block" and r["method"] != "auto")
    assert "every byte verified, 0 counts differ" in done.stdout
    for r in records:
        assert ("romio" in r) == (r["method"] == "auto")
        if "romio" in r:
            beside = r["romio"]
            assert beside["ratio"] == beside["penstock_mb_per_s"] / beside["romio_mb_per_s"] > 0
            assert re.search(rf"{r['case']} ×{r['ranks']} \w+: Penstock [\d,]+ MB/s, ROMIO [\d,]+ MB/s", done.stdout)
    last = done.stdout.splitlines()[-1]
    assert last.startswith("4 MPI programs, not changed, wrote and read") and "every byte was right" in last
    assert re.search(r"times as fast as MPICH's own MPI-IO \(ROMIO\)", last), last


def test_a_case_that_fails_is_told(tmp_path):
    done = demo(tmp_path / "table.json", "--only", "tile/datatype", "--scale", 0)
    assert done.returncode == 1 and "demo: failed: tile datatype" in done.stderr, done.stderr
