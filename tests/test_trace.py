"""Traces through the command line: generate, show, merge, predict, detect; damaged files."""

import csv
import io
import subprocess
import sys

import pytest
from conftest import ROOT, penstock

PATTERNS = ["contiguous_small", "contiguous_large", "strided_small", "strided_large"]


def generated(directory, *options):
    """Traces of a generated run."""
    penstock("trace", "generate", "-o", directory, *options)
    return sorted(directory.glob("data-*.trace"))


def test_a_trace_is_shown_as_summary_and_as_csv(tmp_path):
    trace = generated(tmp_path / "a")[0]
    summary = penstock("trace", "show", "--json", trace).json()[0]
    assert summary["whole"] and summary["arrivals"] == summary["events"] > 100
    rows = list(csv.DictReader(io.StringIO(penstock("trace", "show", "--csv", trace).out)))
    assert len(rows) == summary["arrivals"]
    assert sum(int(row["bytes"]) for row in rows) == summary["write_bytes"]
    assert "arrivals" in penstock("trace", "show", trace).out


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("files", [[], ["--many-files"]])
def test_patterns_are_detected(tmp_path, pattern, files):
    traces = generated(tmp_path / "a", "--pattern", pattern, "--processes", 16, "--seed", 77, "--op", "read", *files)
    found = [o["majority"] for o in penstock("trace", "detect", "--json", *traces).json() if "majority" in o]
    seen = [name for name in found if name]
    assert len(found) == 4 and seen
    assert sum(name == pattern for name in seen) * 2 > len(seen), found


def test_repetitions_merge_and_predict(tmp_path):
    trace = generated(tmp_path / "a", "--pattern", "strided_small")[0]
    merged = tmp_path / "merged.trace"
    said = penstock("trace", "merge", "--json", trace, trace, trace, "-o", merged).json()[0]
    one = penstock("trace", "show", "--json", trace).json()[0]
    assert said["requests_read"] == 3 * one["arrivals"]
    assert said["requests"] == said["in_all"] == one["arrivals"]
    assert penstock("trace", "show", "--json", merged).json()[0]["repetitions"] == 3
    prediction = penstock("trace", "predict", "--json", merged).json()[0]
    assert prediction["requests"] == one["arrivals"]
    assert prediction["aggregations"] > 0 and prediction["mean_aggregation"] > 1


def test_traces_of_different_servers_are_not_merged(tmp_path):
    traces = generated(tmp_path / "a")
    done = penstock("trace", "merge", *traces[:2], "-o", tmp_path / "m", check=False)
    assert done.code == 1
    assert "server 0 of 4" in done.err and "server 1 of 4" in done.err and "next:" in done.err


def test_damaged_traces_are_read_up_to_the_damage(tmp_path):
    trace = generated(tmp_path / "a", "--processes", 64, "--programs", 8)[0]
    whole = trace.read_bytes()
    assert whole.count(b"BLCK") > 1
    cut = tmp_path / "cut.trace"
    cut.write_bytes(whole[: whole.rindex(b"BLCK") + 100])
    shown = penstock("trace", "show", "--json", cut, check=False)
    assert shown.code == 1 and "events before are whole" in shown.err
    assert shown.json()[0]["events"] % 16384 == 0 and shown.json()[0]["events"] > 0
    merged = tmp_path / "merged.trace"
    refused = penstock("trace", "merge", cut, "-o", merged, check=False)
    assert refused.code == 1 and "--partial" in refused.err
    assert not merged.exists()
    penstock("trace", "merge", "--partial", cut, "-o", merged)
    assert penstock("trace", "show", "--json", merged).json()[0]["whole"]


def test_what_is_no_trace_is_refused(tmp_path):
    trace = generated(tmp_path / "a")[0]
    other = bytearray(trace.read_bytes())
    other[8] = 9
    for name, content, why in [
        ("empty", b"", "is no trace"),
        ("text", b"hello, this is a text and not a trace", "is no trace"),
        ("version", bytes(other), "format 9"),
    ]:
        path = tmp_path / name
        path.write_bytes(content)
        for command in (["show"], ["detect"], ["predict"], ["merge", "-o", tmp_path / "m"]):
            done = penstock("trace", *command, path, check=False)
            assert done.code == 1, (name, command)
            assert why in done.err and str(path) in done.err


def test_a_tree_is_learnt_exported_and_used(tmp_path):
    windows, tree = tmp_path / "windows.csv", tmp_path / "tree.json"
    penstock("trace", "generate", "--training", windows, "--runs", 1, "--seed", 5)
    script = ROOT / "python" / "learn" / "patterns.py"
    learnt = subprocess.run(
        [sys.executable, script, windows, "--export", tree, "--json"], capture_output=True, text=True, check=True
    )
    assert '"accuracy":' in learnt.stdout and '"confusion":' in learnt.stdout
    trace = generated(tmp_path / "a", "--pattern", "strided_large", "--processes", 16)[0]
    found = penstock("trace", "detect", "--json", "--tree", tree, trace).json()[-1]
    assert found["majority"] == "strided_large"
    tree.write_text(tree.read_text().replace('"below": 1,', '"below": 0,'))
    refused = penstock("trace", "detect", "--tree", tree, trace, check=False)
    assert refused.code == 1 and "node 0 leads to a node" in refused.err
