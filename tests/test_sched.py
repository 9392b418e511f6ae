"""Request scheduling as a user sees it: chosen, changed while programs run, shown."""

import re
import subprocess
import sys
import threading
import time

import pytest
from conftest import PENSTOCK, ROOT, penstock

ALGORITHMS = ("noop", "to", "to-agg", "sjf", "mlf", "aioli", "sw", "twins", "wfq", "srtf")

# Each rank writes and reads blocks of a file of all ranks and a file of its own, and compares every byte.
PROGRAM = """
import sys
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
name, rounds = sys.argv[1], int(sys.argv[2])
n, ranks, rank = 16, comm.size, comm.rank
shared = MPI.File.Open(comm, f"penstock:/{name}", MPI.MODE_CREATE | MPI.MODE_RDWR)
own = MPI.File.Open(MPI.COMM_SELF, f"penstock:/{name}.{rank}", MPI.MODE_CREATE | MPI.MODE_RDWR)
block = MPI.BYTE.Create_vector(n, 1000, 1000 * ranks).Commit()
for round in range(rounds):
    data = ((np.arange(n * 1000) * 7 + rank + round) % 251).astype(np.uint8)
    back = np.zeros_like(data)
    shared.Set_view(round * n * 1000 * ranks + rank * 1000, MPI.BYTE, block)
    shared.Write(data)
    shared.Set_view(round * n * 1000 * ranks + rank * 1000, MPI.BYTE, block)
    shared.Read(back)
    assert (data == back).all(), (round, rank)
    own.Write_at(round * 5000, data)
    back[:] = 0
    own.Read_at(round * 5000, back)
    assert (data == back).all(), (round, rank)
shared.Close()
own.Close()
"""


@pytest.fixture
def program(tmp_path):
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return path


def start(deployment, program, name, rounds=20):
    command = [PENSTOCK, "run", "-n", "2", "-q", "-d", deployment, "--", sys.executable, program, name, str(rounds)]
    return subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def finish(running):
    out, err = running.communicate(timeout=120)
    assert running.returncode == 0, out + err


def schedulers(deployment):
    (status,) = penstock("status", deployment, "--json").json()
    return [server["sched"] for server in status["servers"]]


def test_programs_run_under_every_algorithm_and_while_it_changes(deployment, program):
    one, two = start(deployment, program, "a", 60), start(deployment, program, "b", 60)
    seen = []
    while len(seen) < len(ALGORITHMS) or one.poll() is None or two.poll() is None:
        algorithm = ALGORITHMS[len(seen) % len(ALGORITHMS)]
        penstock("tune", f"sched={algorithm}", "depth=2", "-d", deployment)
        seen.append(algorithm)
        assert {s["algorithm"] for s in schedulers(deployment)} == {algorithm}
    finish(one)
    finish(two)
    penstock("check", "-d", deployment)


def test_programs_are_told_apart_whoever_starts_them(deployment, program):
    penstock("tune", "sched=to", "-d", deployment)
    preload = ["env", f"LD_PRELOAD={PENSTOCK.parent / 'libpenstock.so'}", f"PENSTOCK_DEPLOYMENT={deployment}"]
    for name, ranks in (("a", 2), ("b", 3)):
        command = [ROOT / ".venv" / "bin" / "mpiexec", "-n", ranks, *preload, sys.executable, program, name, 3]
        finish(subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    seen = {p["program"] for s in schedulers(deployment) for p in s["programs"]}
    assert len(seen) == 2 and 0 not in seen, seen


@pytest.mark.parametrize("algorithm", [a for a in ALGORITHMS if a != "noop"])
def test_an_algorithm_for_an_embedded_deployment(program, algorithm):
    done = penstock("run", "-n", 2, "--tune", f"sched={algorithm}", "-q", "--", sys.executable, program, "f", 5)
    assert done.code == 0


def test_status_shows_who_uses_the_servers(deployment, program):
    penstock("tune", "sched=aioli", "quantum=128KiB", "-d", deployment)
    one, two = start(deployment, program, "a"), start(deployment, program, "b")
    finish(one)
    finish(two)
    servers = schedulers(deployment)
    assert len(servers) == 4
    for s in servers:
        assert s["algorithm"] == "aioli" and s["quantum"] == 128 << 10
        assert s["arrived"] == s["completed"] > 0 and s["queued"] == s["serving"] == 0
        assert 0 < s["decisions"] <= s["dispatched"] == s["arrived"]
        assert sum(s["aggregations"]) == s["decisions"]
        assert len(s["programs"]) == 2
        assert abs(sum(p["share"] for p in s["programs"]) - 1) < 1e-3
        assert sum(p["bytes"] for p in s["programs"]) == s["bytes"]
        assert all(0 < p["p50_ns"] <= p["p99_ns"] for p in s["programs"])
    text = penstock("status", deployment).out
    for word in ("aioli", "decisions", "joined", "waits", "share", "p99"):
        assert word in text
    # One line for each program, over all servers.
    totals = {}
    for p in (p for s in servers for p in s["programs"]):
        totals[p["program"]] = totals.get(p["program"], 0) + p["requests"]
    (header,) = [at for at, line in enumerate(text.splitlines()) if line.split()[:2] == ["program", "servers"]]
    # Both have ended, and have their names; the figures stand behind them.
    shown = [line for line in text.splitlines()[header + 1 :] if line.strip()]
    figures = [re.search(r"@\S+ .* (\d+) +([\d,]+) +\S+ \S+ +\S+ % ", line) for line in shown]
    assert sorted(int(found[2].replace(",", "")) for found in figures) == sorted(totals.values()), text
    assert {found[1] for found in figures} == {"4"}, text
    penstock("tune", "sched=noop", "-d", deployment)
    assert {s["algorithm"] for s in schedulers(deployment)} == {"noop"}


def test_servers_choose_while_programs_run_and_say_why(deployment, program):
    followed = 0
    for mode, extra in (("tree", "tree=T3"), ("online", "objective=p99"), ("tree", "tree=own"), ("online", "tree=own")):
        one, two = start(deployment, program, f"{mode}a", 60), start(deployment, program, f"{mode}b", 60)
        penstock("tune", f"sched={mode}", extra, "ratio=38.9:21.3", "-d", deployment)
        finish(one)
        finish(two)
        name, _, value = extra.partition("=")
        says = f"{value.lower()} says so for "

        def chosen(s, mode=mode, says=says):
            choice = s["choice"]
            wanted = {p["wants"] for p in choice["patterns"]}
            if mode == "online":
                return choice["changes"]
            # The algorithm follows when two looks agree, and stays where the order is none that was learnt.
            unknown = (
                "knows no answer, so nothing changes" in choice["reason"] and "in no known order" in choice["reason"]
            )
            return unknown or (says in choice["reason"] and s["algorithm"] in wanted)

        # Data is right; now until every server has seen enough to choose.
        for _ in range(20):
            servers = schedulers(deployment)
            if all(chosen(s) for s in servers):
                break
            finish(start(deployment, program, f"{mode}c", 60))
        for s in servers:
            choice = s["choice"]
            assert choice["mode"] == mode and choice["ratio"] == {"read": 38.9, "write": 21.3}
            assert choice[name] == value.lower()
            assert s["algorithm"] in ALGORITHMS and s["arrived"] == s["completed"]
            assert choice["reason"] and choice["files"] >= 1
            assert sum(p["requests"] for p in choice["patterns"]) == choice["requests"] >= 16
            for p in choice["patterns"]:
                # Nothing is known to be better for what is random, or unlike all that was learnt.
                known = not p["pattern"].startswith(("random", "unknown"))
                assert p["wants"] in ALGORITHMS or (p["wants"] is None and not known), p
                assert p["op"] in ("read", "write") and p["request_bytes"] > 0
            assert choice["busiest"] and len(choice["busiest"]) <= 16
            assert all(f["runs"] in ALGORITHMS and f["requests"] > 0 for f in choice["busiest"])
            if mode == "tree":
                assert chosen(s) and ", 4 servers (" in choice["reason"], choice["reason"]
                followed += says in choice["reason"]
        text = penstock("status", deployment).out
        for word in (f"({mode} ", "reason", "wants", "pattern"):
            assert word in text
        shown = penstock("tune", "-d", deployment, "--json").json()[0]["servers"]
        assert {s["sched"] for s in shown} == {mode}
    assert followed > 0
    penstock("tune", "sched=to", "-d", deployment)
    assert all(s["choice"] is None and s["algorithm"] == "to" for s in schedulers(deployment))
    penstock("check", "-d", deployment)


# Two files at once until told to end: one written in large pieces, one read in small ones.
MIXED = """
import sys, pathlib
from mpi4py import MPI
rank, stop = MPI.COMM_WORLD.rank, pathlib.Path(sys.argv[1])
f = MPI.File.Open(MPI.COMM_SELF, f"penstock:/mixed.{rank}", MPI.MODE_CREATE | MPI.MODE_RDWR)
piece = bytearray((1 << 20) if rank == 0 else 4096)
if rank == 1:
    f.Write_at(0, bytearray(4 << 20))
at, ended = 0, False
while not ended:
    for _ in range(16):
        (f.Write_at if rank == 0 else f.Read_at)(at, piece)
        at = (at + len(piece)) % ((64 if rank == 0 else 4) << 20)
    ended = MPI.COMM_WORLD.allreduce(stop.exists(), op=MPI.LOR)
f.Close()
"""


def test_queues_are_seen_while_programs_wait(short_dir):
    """Two programs on a slow disk that takes one request at a time: their requests wait, and status says so."""
    directory, stop = short_dir / "fs", short_dir / "stop"
    (short_dir / "mixed.py").write_text(MIXED)
    penstock("up", directory, "--servers", 1, "--device", "hdd", "--tune", "sched=to", "--tune", "depth=1")
    run = [PENSTOCK, "run", "-n", "2", "-q", "-d", directory, "--", sys.executable, "-m", "mpi4py"]
    words = [str(word) for word in [*run, short_dir / "mixed.py", stop]]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        until = time.monotonic() + 60
        while True:
            (s,) = schedulers(directory)
            if s["queued"] > 0 and s["serving"] > 0 and len(s["programs"]) == 2:
                break
            assert time.monotonic() < until and all(r.poll() is None for r in running), s
        assert s["serving"] == 1 and s["peak_queued"] >= s["queued"] and s["waiting_p99_ns"] >= s["waiting_p50_ns"]
        assert s["arrived"] >= s["completed"] + s["queued"] + s["serving"]
    finally:
        stop.touch()
        for one in running:
            finish(one)
        penstock("down", directory)


@pytest.mark.parametrize("mode", ["tree", "online"])
def test_files_of_different_patterns_run_under_different_algorithms(short_dir, mode):
    directory, traces, stop = short_dir / "fs", short_dir / "t", short_dir / "stop"
    (short_dir / "mixed.py").write_text(MIXED)
    tune = ["--tune", f"sched={mode}", "--tune", "tree=t3", "--tune", "ratio=40.68:21.29"]
    penstock("up", directory, "--servers", 1, "--memory", *tune, "--trace", traces, "--journal")
    run = [PENSTOCK, "run", "-n", "2", "-q", "--shortcut", "disable", "-d", directory, "--"]
    run += [sys.executable, "-m", "mpi4py", short_dir / "mixed.py", stop]
    running = subprocess.Popen([str(c) for c in run], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        until = time.monotonic() + 60
        while True:
            (s,) = schedulers(directory)
            of = {(f["op"], f["runs"]) for f in s["choice"]["busiest"]}
            if len(s["algorithms"]) > 1 and len({runs for _, runs in of}) > 1:
                break
            assert time.monotonic() < until and running.poll() is None, s["choice"]
            time.sleep(0.05)
        text = penstock("status", directory).out
        assert "runs under" in text
        # Each rank has opened its file alone; a choice made anew has seen requests of both.
        while mode == "tree":
            penstock("tune", "sched=to", "-d", directory)
            penstock("tune", "sched=tree", "-d", directory)
            (s,) = schedulers(directory)
            if s["choice"] and ", 2 processes" in s["choice"]["reason"]:
                break
            assert time.monotonic() < until + 30, s["choice"] and s["choice"]["reason"]
            time.sleep(0.5)
    finally:
        stop.touch()
        finish(running)
        penstock("down", directory)
    record = traces / "data-0.decisions"
    assert any(line.startswith("group ") and "=" in line for line in record.read_text().splitlines())
    (replayed,) = penstock("sim", "--json", "--replay", record).json()
    assert replayed["identical"] and replayed["whole"] and replayed["choices"] > 0
    assert len(replayed["algorithms"]) > 1


def test_a_setting_is_kept_for_servers_started_later(short_dir):
    directory = short_dir / "fs"
    penstock("up", directory, "--servers", 2, "--tune", "sched=to")
    try:
        assert {s["algorithm"] for s in schedulers(directory)} == {"to"}
        penstock("tune", "sched=sjf", "--server", 1, "-d", directory)
        assert [s["algorithm"] for s in schedulers(directory)] == ["to", "sjf"]
        penstock("tune", "sched=mlf", "--save", "-d", directory)
        penstock("down", directory)
        penstock("up", directory)
        assert {s["algorithm"] for s in schedulers(directory)} == {"mlf"}
        shown = penstock("tune", "-d", directory, "--json").json()[0]["servers"]
        assert [s["sched"] for s in shown] == ["mlf", "mlf"]
    finally:
        penstock("down", directory, check=False)


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ("sched=cfq", "aioli"),
        ("quantum=0", "quantum"),
        ("quantum=5T", "quantum"),
        ("quantum=lots", "quantum"),
        ("twins_window=1000s", "twins_window"),
        ("depth=0", "depth"),
        ("color=red", "color"),
        ("aioli", "name=value"),
        ("sched=forest", "online"),
        ("tree=T5", "T1, T2, T3, T4 or own"),
        ("objective=speed", "fairness"),
        ("ratio=0", "0.01"),
        ("ratio=fast", "READ:WRITE"),
    ],
)
def test_what_cannot_be_set_is_refused(deployment, setting, word):
    before = schedulers(deployment)
    done = penstock("tune", setting, "-d", deployment, check=False)
    assert done.code == 1 and word in done.err and "tune --help" in done.err
    assert schedulers(deployment) == before
    done = penstock("up", deployment.parent / "new", "--tune", setting, check=False)
    assert done.code == 1 and word in done.err
    assert not (deployment.parent / "new").exists()


def test_a_deployment_file_with_a_bad_setting_is_refused_and_a_good_one_goes_on(short_dir):
    directory = short_dir / "fs"
    penstock("up", directory, "--servers", 1, "--tune", "sched=to")
    penstock("down", directory)
    file = directory / "deployment.toml"
    good = file.read_text()
    for bad, word in (("sched=cfq", "aioli"), ("quantum=0", "quantum"), ("sched", "name=value")):
        file.write_text(good.replace("sched=to", bad))
        assert file.read_text() != good
        refused = penstock("up", directory, check=False)
        assert refused.code == 1 and word in refused.err and str(file) in refused.err, refused.err
    file.write_text(good)
    penstock("up", directory)
    try:
        assert {s["algorithm"] for s in schedulers(directory)} == {"to"}
    finally:
        penstock("down", directory, check=False)


def test_programs_that_tune_at_once_disturb_nobody(deployment, program):
    running = start(deployment, program, "a", 30)
    threads = [
        threading.Thread(target=penstock, args=("tune", f"sched={a}", "-d", deployment)) for a in ("to", "mlf", "wfq")
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    finish(running)
