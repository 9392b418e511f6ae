"""Traces through the command line: generate, show, merge, predict, detect; damaged files."""

import csv
import io
import os
import random
import signal
import struct
import subprocess
import sys
import time
import zlib

import pytest
from conftest import COMPILERS, ROOT, penstock

PATTERNS = [f"{order}_{size}" for order in ("contiguous", "strided", "random") for size in ("small", "large")]


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


def made(path, offset, size=8192, requests=2000):
    """A trace as CSV: where each request begins."""
    columns = "at_ns,request,kind,op,file,offset,bytes,program,rank,mpi_call,client_call"
    rows = [f"{i * 1_000_000},{i},arrival,write,1,{offset(i)},{size},1,0,0,0" for i in range(requests)]
    path.write_text("\n".join([columns, *rows]) + "\n")
    return path


def test_what_nobody_has_taught_is_unknown_and_random_is_no_order(tmp_path):
    draw = random.Random(7)
    for name, offset, pattern in [
        ("ahead", lambda i: i * 8192, "contiguous_small"),
        ("gaps", lambda i: i * 5 * 8192, "strided_small"),
        ("anywhere", lambda _: draw.randrange(1 << 16) * 8192, "random_small"),
        ("backward", lambda i: (5000 - i) * 8192, "unknown"),
        ("one place", lambda _: 8192, "unknown"),
        ("places in turn", lambda i: i % 4 * 1_000_000, "unknown"),
        ("laps", lambda i: i % 100 * 8192, "unknown"),
    ]:
        found = penstock("trace", "detect", "--json", made(tmp_path / f"{name}.csv", offset)).json()
        assert {f["pattern"] for f in found if "op" in f} == {pattern}, (name, found)
    # What `show` prints is what is read.
    trace = generated(tmp_path / "a", "--pattern", "strided_small", "--seed", 77)[0]
    text = tmp_path / "shown.csv"
    text.write_text(penstock("trace", "show", "--csv", trace).out)
    files = [[f for f in penstock("trace", "detect", "--json", t).json() if "op" in f] for t in (trace, text)]
    assert files[0] and [f["pattern"] for f in files[0]] == [f["pattern"] for f in files[1]]
    lines = text.read_text().splitlines()
    for bad, why in ((["other", *lines[1:]], "other columns"), ([*lines[:2], "1,2,3"], "line 3")):
        text.write_text("\n".join(bad) + "\n")
        refused = penstock("trace", "detect", text, check=False)
        assert refused.code == 1 and why in refused.err and str(text) in refused.err


def test_patterns_are_told_on_servers_of_another_kind(tmp_path):
    """The generator that the tree has not learnt from (docs/understand/detection.md); here a part of its cases."""
    script = ROOT / "experiments" / "scheduling" / "detect_other.py"
    few = ["--processes", "8", "--programs", "1", "--servers", "2", "--seed", "5"]
    windows = tmp_path / "windows.csv"
    subprocess.run([sys.executable, script, *few, "--windows", windows], capture_output=True, check=False, timeout=240)
    rows = list(csv.DictReader(io.StringIO(windows.read_text())))
    assert len(rows) > 200 and {row["pattern"] for row in rows} == set(PATTERNS)
    right = sum(row["pattern"] == row["detected"] for row in rows)
    assert right > 0.9 * len(rows), f"{right} of {len(rows)}"
    unlike = subprocess.run(
        [sys.executable, script, *few, "--unlike", "--windows", windows], capture_output=True, check=False, timeout=240
    )
    rows = list(csv.DictReader(io.StringIO(windows.read_text())))
    unknown = sum(row["detected"] == "unknown" for row in rows)
    assert len(rows) > 100 and unknown > 0.8 * len(rows), (unknown, len(rows), unlike)


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


def test_a_trace_of_the_first_version_is_converted(tmp_path):
    def checked(start, *parts):
        body = start + b"".join(parts)
        return body + struct.pack("<I", zlib.crc32(body))

    # An arrival with all that an event had, and one that follows it in the file.
    events = bytes([4, 10, 2, 0, 9, 0x80, 0x40, 0x80, 0x20, 3, 0x7C, 10, 2])
    old, new = tmp_path / "old.trace", tmp_path / "new.trace"
    old.write_bytes(
        checked(b"PSTTRACE", struct.pack("<IIIIQQI", 1, 28, 0, 1, 65536, 7, 1))
        + checked(b"BLCK", struct.pack("<II", 2, len(events)), events)
        + checked(b"DONE", struct.pack("<QQ", 2, 0))
    )
    assert "2 records" in penstock("trace", "convert", old, new).out
    before, after = (penstock("trace", "show", "--json", t).json()[0] for t in (old, new))
    assert before["arrivals"] == after["arrivals"] == 2 and before["write_bytes"] == after["write_bytes"] == 8192
    again = penstock("trace", "convert", old, new, check=False)
    assert again.code == 1 and "exists" in again.err
    today = penstock("trace", "convert", new, tmp_path / "x", check=False)
    assert today.code == 1 and "today" in today.err
    # What is readable of a trace that was cut is converted.
    old.write_bytes(old.read_bytes()[:-30])
    cut = penstock("trace", "convert", old, tmp_path / "part", check=False)
    assert cut.code == 1 and "ends at byte" in cut.err


def test_a_tree_is_learnt_exported_and_used(tmp_path):
    windows, tree = tmp_path / "windows.csv", tmp_path / "tree.json"
    penstock("trace", "generate", "--training", windows, "--runs", 1, "--seed", 5)
    script = ROOT / "python" / "learn" / "patterns.py"
    learnt = subprocess.run(
        [sys.executable, script, windows, "--export", tree, "--json"], capture_output=True, text=True, check=True
    )
    assert '"accuracy":' in learnt.stdout and '"confusion":' in learnt.stdout
    trace = generated(tmp_path / "a", "--pattern", "strided_small", "--processes", 16)[0]
    found = penstock("trace", "detect", "--json", "--tree", tree, trace).json()[-1]
    assert found["majority"] == "strided_small"
    tree.write_text(tree.read_text().replace('"below": 1,', '"below": 0,'))
    refused = penstock("trace", "detect", "--tree", tree, trace, check=False)
    assert refused.code == 1 and "node 0 leads to a node" in refused.err


def shown(directory):
    """Summaries of the traces of four data servers."""
    traces = sorted(directory.glob("data-*.trace"))
    assert [t.name for t in traces] == [f"data-{n}.trace" for n in range(4)]
    return [penstock("trace", "show", "--json", t, check=False).json()[0] for t in traces]


def moved(servers):
    """What each data server says it has moved."""
    return [(s["bytes_read"], s["bytes_written"]) for s in servers]


def test_a_running_deployment_writes_traces(short_dir):
    fs, traces = short_dir / "fs", short_dir / "traces"
    source = short_dir / "source"
    source.write_bytes(bytes(range(256)) * 8192)
    penstock("up", fs, "--trace", traces, "--tune", "sched=to")
    try:
        penstock("cp", source, "penstock:/in", "-d", fs)
        penstock("cp", "penstock:/in", short_dir / "back", "-d", fs)
        again = penstock("up", fs, "--trace", traces, check=False)
        assert again.code == 1 and "data-0 runs already" in again.err and "penstock down" in again.err
        servers = penstock("status", "--json", "-d", fs).json()[0]["servers"]
        assert all(s["sched"]["trace"] and not s["sched"]["observed"] for s in servers)
    finally:
        penstock("down", fs)
    assert (short_dir / "back").read_bytes() == source.read_bytes()
    summaries = shown(traces)
    assert [s["server"] for s in summaries] == [0, 1, 2, 3]
    assert all(s["whole"] and s["dropped"] == 0 for s in summaries)
    assert [(s["read_bytes"], s["write_bytes"]) for s in summaries] == moved(servers)
    assert sum(s["write_bytes"] for s in summaries) == 256 * 8192
    assert all(s["arrivals"] == s["dispatches"] == s["completions"] > 0 for s in summaries)
    refused = penstock("up", fs, "--trace", traces, check=False)
    penstock("down", fs)
    assert refused.code == 1 and "is there already" in refused.err


def test_an_mpi_program_is_traced(examples, short_dir):
    traces = short_dir / "traces"
    options = ["--verify", "--repetitions", 4, "--scale", "0.3"]
    run = ["run", "-n", 6, "--json", "--trace", traces, "--method", "list", "--"]
    done = penstock(*run, examples("tile"), "penstock:/tile", *options)
    ran, summary = done.json()[-2:]
    assert ran["verified"] is True
    summaries = shown(traces)
    assert all(s["whole"] and s["dropped"] == 0 and s["files"] == 1 for s in summaries)
    reads, writes = zip(*moved(summary["servers"]), strict=True)
    assert tuple(s["write_bytes"] for s in summaries) == writes and sum(writes) > 1 << 20
    assert tuple(s["read_bytes"] for s in summaries) == reads and sum(reads) > 1 << 20
    found = penstock("trace", "detect", "--json", *sorted(traces.glob("data-*.trace"))).json()
    assert {f["op"] for f in found if "op" in f} == {"read", "write"}
    callers = {}
    for trace in traces.glob("data-*.trace"):
        for e in csv.DictReader(io.StringIO(penstock("trace", "show", "--csv", trace).out)):
            who = tuple(int(e[name]) for name in ("program", "rank", "mpi_call", "client_call"))
            callers.setdefault((trace, e["request"]), set()).add(who)
    # Arrival, dispatch and completion name the same call, and each rank made several of one program.
    assert all(len(who) == 1 for who in callers.values())
    calls = set.union(*callers.values())
    assert len({program for program, *_ in calls}) == 1 and min(program for program, *_ in calls) > 0
    assert {rank for _, rank, *_ in calls} == set(range(6))
    assert min(min(mpi, client) for *_, mpi, client in calls) > 0
    assert len({(rank, mpi) for _, rank, mpi, _ in calls}) > 6


def test_a_trace_changes_no_method_and_no_path(examples, short_dir):
    """With and without one: the same methods, forms of access and bytes by descriptors; the queue stays off."""
    traces = short_dir / "traces"
    options = ["--verify", "--repetitions", 3, "--scale", "0.3"]

    def paths(*more):
        run = ["run", "-n", 4, "--json", "--method", "datatype", *more, "--"]
        ran, summary = penstock(*run, examples("tile"), "penstock:/tile", *options).json()[-2:]
        assert ran["verified"] is True
        seen = []
        for file in summary["files"]:
            for direction in ("read", "write"):
                counts = {k: v for k, v in file[direction].items() if isinstance(v, int)}
                seen.append((file["path"], direction, sorted(file[direction]["methods"]), counts))
        return seen, moved(summary["servers"])

    assert paths() == paths("--trace", traces)
    # The servers saw nothing of it, and everything is in the ranks' parts.
    parts = [t for t in traces.glob("*.trace") if not t.name.startswith("data-")]
    assert len(parts) == 4
    summaries = shown(traces)
    assert all(s["whole"] and s["dropped"] == 0 for s in summaries)
    assert sum(s["write_bytes"] for s in summaries) > 1 << 20
    assert not list(traces.glob("*.decisions"))
    for other in ("--journal",):
        refused = penstock("run", "-n", 1, other, "--", "true", check=False)
        assert refused.code == 2 and "--trace" in refused.err


def test_a_killed_server_leaves_a_readable_trace(short_dir):
    fs, traces = short_dir / "fs", short_dir / "traces"
    source = short_dir / "source"
    source.write_bytes(bytes(range(256)) * (8 << 12))
    penstock("up", fs, "--trace", traces, "--tune", "sched=to")
    try:
        penstock("cp", source, "penstock:/in", "-d", fs)
        trace = traces / "data-0.trace"
        # Events wait for a second at most.
        for _ in range(3000):
            before = penstock("trace", "show", "--json", trace, check=False).json()
            if before and before[0]["write_bytes"] >= 2 << 20:
                break
            time.sleep(0.01)
        os.kill(int((fs / "run" / "data-0.pid").read_text().split()[0]), signal.SIGKILL)
    finally:
        penstock("down", fs, check=False)
    killed, *others = shown(traces)
    assert killed["write_bytes"] == 2 << 20 and not killed["whole"]
    assert all(s["whole"] for s in others)
    merged = short_dir / "merged.trace"
    penstock("trace", "merge", "--partial", trace, "-o", merged)
    assert penstock("trace", "show", "--json", merged).json()[0]["write_bytes"] == 2 << 20


@pytest.fixture(scope="module")
def pattern_program(tmp_path_factory):
    """The program of experiments/scheduling/detect_real.py."""
    binary = tmp_path_factory.mktemp("pattern") / "pattern"
    source = ROOT / "experiments" / "scheduling" / "pattern.c"
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILERS["mpich"], *flags, "-o", binary, source], check=True)
    return binary


def test_patterns_of_programs_are_detected_in_traces_of_servers(pattern_program, deployment, tmp_path):
    """A file per process: what a server sees of each file does not depend on who is quicker. Windows come as CSV too."""
    calls = {"small": (16 << 10, 96), "large": (1 << 20, 20)}
    for number, name in enumerate(PATTERNS, 1):
        order, size = name.split("_")
        penstock("tune", "trace=on", "-d", deployment)
        # At random a server may get few of a file's requests.
        length, count = calls[size]
        words = ["penstock:/f", "write", "own", order, length, count * 2 if order == "random" else count, 0]
        penstock("run", "-n", 3, "-q", "--shortcut", "disable", "-d", deployment, "--", pattern_program, *words)
        penstock("tune", "trace=off", "-d", deployment)
        traces = sorted((deployment / "traces" / str(number)).glob("*.trace"))
        table = tmp_path / f"{name}.csv"
        found = penstock("trace", "detect", "--json", "--windows", table, *traces).json()
        files = [f for f in found if "op" in f]
        assert {f["op"] for f in files} == {"write"} and len({f["file"] for f in files}) == 3
        assert {f["pattern"] for f in files} == {name}
        windows = list(csv.DictReader(io.StringIO(table.read_text())))
        assert {w["detected"] for w in windows} == {name} and {w["server"] for w in windows} == set("0123")
        assert sum(int(w["requests"]) for w in windows) == sum(f["requests"] for f in files)
        assert all(float(w["size"]) == (-2 if size == "small" else 2) for w in windows)


def test_only_new_servers_can_be_traced(examples, deployment, short_dir):
    run = ["run", "-n", 1, "--trace", short_dir / "t"]
    done = penstock(*run, "--", examples("tile"), check=False, env={"PENSTOCK_DEPLOYMENT": str(deployment)})
    assert done.code == 1 and "--trace is for a new deployment" in done.err
    assert penstock(*run, "--direct", "--", examples("tile"), check=False).code == 2


def test_a_trace_is_switched_on_and_off_and_predicts_the_next_run(examples, deployment, tmp_path):
    """Programs are traced in running servers; the next run is known, aIOLi, SRTF and MLF are told, data stay right."""
    run = ["run", "-n", 4, "--json", "--method", "posix", "--shortcut", "disable", "-d", deployment, "--"]
    options = ["--verify", "--repetitions", 2, "--scale", "0.1"]
    source = tmp_path / "source"
    source.write_bytes(bytes(range(256)) * 8192)

    def schedulers():
        return [s["sched"] for s in penstock("status", "--json", "-d", deployment).json()[0]["servers"]]

    def tile(name):
        assert penstock(*run, examples("tile"), f"penstock:/{name}", *options).json()[-2]["verified"] is True

    def copy(name):
        penstock("cp", source, f"penstock:/{name}", "-d", deployment)
        penstock("cp", f"penstock:/{name}", tmp_path / name, "-d", deployment)
        assert (tmp_path / name).read_bytes() == source.read_bytes()

    assert all(s["trace"] is None for s in schedulers())
    for number, program in ((1, tile), (2, copy)):
        # A server sees what goes through its queue; descriptors go past it, traced or not.
        penstock("tune", "trace=on", "sched=to", "-d", deployment)
        program("traced")
        now = schedulers()
        assert sum(s["trace"]["events"] for s in now) > 0 and all(s["trace"]["dropped"] == 0 for s in now)
        assert "traces to" in penstock("status", "-d", deployment).out
        penstock("tune", "trace=off", "sched=noop", "-d", deployment)
        assert all(s["trace"] is None and not s["observed"] for s in schedulers())
        program("untraced")
        total = 0
        for summary, server in zip(shown(deployment / "traces" / str(number)), now, strict=True):
            # Each slice that is scheduled has a Queue, a Decision and a Store record.
            assert summary["whole"] and 3 * summary["arrivals"] <= server["trace"]["events"]
            total += summary["arrivals"]
        assert total > 0
        penstock("rm", "penstock:/traced", "penstock:/untraced", "-d", deployment)
    traces = deployment / "traces" / "2"
    for algorithm in ("aioli", "srtf", "mlf"):
        penstock("tune", f"sched={algorithm}", f"predict={traces}", "-d", deployment)
        copy(algorithm)
        found = [s["prediction"] for s in schedulers()]
        # Whatever the machine does meanwhile, the first request of each file comes as predicted.
        assert all(p["predicted"] > 0 and p["matched"] > 0 for p in found), found
        assert "predicts from" in penstock("status", "-d", deployment).out
        penstock("tune", "predict=off", "-d", deployment)
        assert all(s["prediction"] is None for s in schedulers())
    refused = penstock("tune", f"trace={traces}", "-d", deployment, check=False)
    assert refused.code == 1 and "is there already" in refused.err
    # The same directory is read again: what has become of its traces is noticed, and nothing changes where they are bad.
    penstock("tune", f"predict={traces}", "-d", deployment)
    first = traces / "data-0.trace"
    whole = first.read_bytes()
    for bad, why in ((whole[:60], "ends"), (whole[:8] + b"\x09" + whole[9:], "format 9")):
        first.write_bytes(bad)
        refused = penstock("tune", f"predict={traces}", "-d", deployment, check=False)
        assert refused.code == 1 and why in refused.err and str(first) in refused.err, refused.err
        assert schedulers()[0]["prediction"]["predicted"] > 0
    refused = penstock("tune", "predict=", "-d", deployment, check=False)
    assert refused.code == 1 and "or off" in refused.err
    penstock("tune", "predict=off", "-d", deployment)
    first.write_bytes(whole)
    copy("after")
    refused = penstock("tune", f"predict={deployment}", "-d", deployment, check=False)
    assert refused.code == 1 and "data-0.trace" in refused.err
    refused = penstock("tune", "trace=on", "--save", "-d", deployment, check=False)
    assert refused.code == 1 and "--trace" in refused.err


def test_predictions_reckon_with_the_times_of_a_profile_and_say_what_waits_were_used_for(deployment, tmp_path):
    profile, source = tmp_path / "disk.json", tmp_path / "source"
    profile.write_text(penstock("profile", "model:hdd", "-q", "--json").out)
    source.write_bytes(bytes(1 << 20))
    penstock("tune", "trace=on", "sched=to", "-d", deployment)
    penstock("cp", source, "penstock:/traced", "-d", deployment)
    penstock("tune", "trace=off", "-d", deployment)
    number = max(int(path.name) for path in (deployment / "traces").iterdir())
    words = ["sched=aioli", f"predict={deployment / 'traces' / str(number)}", f"times={profile}"]
    penstock("tune", *words, "-d", deployment)
    penstock("cp", source, "penstock:/again", "-d", deployment)
    found = [s["sched"]["prediction"] for s in penstock("status", "--json", "-d", deployment).json()[0]["servers"]]
    assert all(p["matched"] > 0 and 0 <= p["alpha"] <= 1 and p["seen"] <= p["waits"] for p in found), found
    assert "of their time used for others" in penstock("status", "-d", deployment).out
    for bad in ("times=fast", "times=1/2:3/4", f"times={source}"):
        assert penstock("tune", bad, "-d", deployment, check=False).code == 1, bad
    penstock("tune", "times=off", "predict=off", "-d", deployment)
