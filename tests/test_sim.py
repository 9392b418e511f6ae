"""`penstock sim` as a user sees it."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import penstock

PENSTOCK = Path(__file__).parent.parent / "target" / "release" / "penstock"

SCENARIO = """
name = "two programs"
[cluster]
servers = 4
[device]
model = "hdd,queue=noop"
[client]
jitter = "100us"
[[program]]
benchmark = "mpi-io-test"
ranks = 4
instances = 2
parameters = { segment = "64KiB", file_size = "16MiB" }
"""

CASES = """
[[case]]
name = "one rank"
set = { "program.0.ranks" = 1 }
published = 12.5
[[case]]
name = "four ranks"
[[compare]]
claim = "four over one"
this = "four ranks"
that = "one rank"
published = 2.0
"""


def sim(*arguments):
    done = subprocess.run(
        [PENSTOCK, "sim", *map(str, arguments)], check=False, capture_output=True, text=True, timeout=60
    )
    return done.returncode, done.stdout, done.stderr


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "two.toml"
    path.write_text(SCENARIO)
    return path


def test_one_scenario_gives_one_result_to_the_byte(scenario):
    first = sim("--json", scenario)
    assert first[0] == 0, first[2]
    assert first == sim("--json", scenario)
    report = json.loads(first[1])["cases"][0]["report"]
    assert report["bytes"] == 32 << 20
    assert [p["instance"] for p in report["programs"]] == [0, 1]


SCHEDULED = """
name = "eight readers of a disk"
[cluster]
servers = 2
[device]
model = "hdd"
[server]
scheduler = "noop"
[[program]]
benchmark = "mpi-io-test"
ranks = 8
parameters = { segment = "16KiB", file_size = "256MiB" }
"""


@pytest.mark.parametrize("scheduler, tune", [("tree", ["ratio=20"]), ("online", []), ("online", ["objective=p99"])])
def test_simulated_servers_choose_their_algorithm(scenario, scheduler, tune):
    scenario.write_text(SCHEDULED.replace('"noop"', f'"{scheduler}"\ntune = {json.dumps(tune)}'))
    first = sim("--json", scenario)
    assert first[0] == 0, first[2]
    assert first == sim("--json", scenario)
    report = json.loads(first[1])["cases"][0]["report"]
    assert report["bytes"] == 256 << 20 and report["choices"] > 0, report
    code, out, _ = sim(scenario)
    assert code == 0 and "algorithms changed" in out


def test_simulated_servers_wait_for_what_a_run_before_foretells(scenario):
    scenario.write_text(SCHEDULED.replace('"noop"', '"aioli"'))
    plain = json.loads(sim("--json", scenario)[1])["cases"][0]["report"]
    scenario.write_text(SCHEDULED.replace('"noop"', '"aioli"\npredict = true'))
    first = sim("--json", scenario)
    assert first[0] == 0 and first == sim("--json", scenario), first[2]
    report = json.loads(first[1])["cases"][0]["report"]
    assert "predicted_waits" not in plain and report["predicted_waits"] > 0, report
    assert report["bytes"] == plain["bytes"]


def test_people_get_a_summary_and_plots(scenario, tmp_path):
    code, out, err = sim("--plot", tmp_path / "plots", scenario)
    assert code == 0, err
    assert "makespan" in out and "mpi-io-test 0.1" in out
    for kind, axis in [("throughput", "MB/s"), ("head", "address, GB"), ("head-close", "address, GB")]:
        svg = (tmp_path / "plots" / f"two-programs-{kind}.svg").read_text()
        assert svg.startswith("<svg") and "seconds" in svg and axis in svg
        # A line, or a mark for each device request of the first server; the closer look has some of them.
        marks = svg.count("<circle")
        assert {"throughput": marks == 0, "head": marks == 128, "head-close": 0 < marks < 128}[kind], (kind, marks)
        assert "<polyline" in svg


def test_cases_stand_beside_what_was_published(scenario, tmp_path):
    scenario.write_text(SCENARIO + CASES)
    code, out, err = sim(scenario)
    assert code == 0, err
    assert "12.5" in out and "four over one" in out
    assert sim("--list", scenario)[1].splitlines() == ["one rank", "four ranks"]
    code, out, err = sim("--plot", tmp_path / "plots", scenario)
    assert code == 0, err
    # Each under its own name, and both in one picture.
    alone = (tmp_path / "plots" / "one-rank-throughput.svg").read_text()
    assert "one rank: throughput" in alone and "four ranks" not in alone
    (both,) = (tmp_path / "plots").glob("*-throughputs.svg")
    assert all(name in both.read_text() for name in ("one rank", "four ranks"))
    code, out, _ = sim("--json", "--case", "one rank", scenario)
    assert [c["case"] for c in json.loads(out)["cases"]] == ["one rank"]
    page = tmp_path / "page.md"
    page.write_text("# Kept\n\n<!-- results: made by `make reproduce` -->\nold\n")
    assert sim("--markdown", page, scenario)[0] == 0
    text = page.read_text()
    assert text.startswith("# Kept") and "| one rank | 12.5 |" in text and "old" not in text


@pytest.mark.parametrize(
    "change, says",
    [
        (("servers = 4", "servers = 0"), "cluster.servers: 0 is outside 1..=65536"),
        (("servers = 4", "severs = 4"), "unknown field `severs`"),
        (('"16MiB"', '"900TiB"'), "on each device"),
        (('"mpi-io-test"', '"mpi-test"'), "there are demo, mpi-io-test"),
        (("[client]", '[server]\nscheduler = "forest"\n[client]'), "server.scheduler"),
        (("[client]", '[server]\nscheduler = "tree"\ntune = ["tree=T9"]\n[client]'), "server.tune"),
    ],
)
def test_a_bad_scenario_is_explained(scenario, change, says):
    scenario.write_text(SCENARIO.replace(*change))
    code, out, err = sim(scenario)
    assert code == 1 and out == ""
    assert says in err and "Traceback" not in err


# Without cases, and too large to be run here whole: each has a test of its own.
LARGE = {"cohorts.toml", "scale.toml"}
EXPERIMENTS = Path(__file__).parent.parent / "experiments"
# What describes caches for `penstock layout` is no scenario.
SCENARIOS = sorted(path for path in EXPERIMENTS.glob("**/*.toml") if path.parent.name != "layout")


@pytest.mark.parametrize("path", SCENARIOS, ids=lambda path: path.stem)
def test_the_experiments_that_come_with_penstock_are_listed_and_their_first_case_runs(path):
    code, out, err = sim("--list", path)
    assert code == 0, err
    names = out.splitlines()
    assert len(set(names)) == len(names)
    if path.name in LARGE:
        return
    assert len(names) > 1
    code, out, err = sim("--json", "--case", names[0], path)
    assert code == 0, err
    (case,) = [case for case in json.loads(out)["cases"] if case["case"] == names[0]]
    report = case["report"]
    assert report["bytes"] > 0 and report["makespan"] > 0 and report["requests"] > 0
    # No more than the programs' bytes in the time that they took, and devices that moved something for them.
    assert report["throughput"] > 0 and report["device_bytes"] > 0
    ends = [program["end"] for program in report["programs"]]
    assert ends and max(ends) <= report["makespan"]


# What each algorithm gets to decide: strided and contiguous requests of several ranks, small and large, both ways.
WORK = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
for name, bytes in (("small", 3000), ("large", 100000)):
    f = MPI.File.Open(comm, f"penstock:/{sys.argv[1]}-{name}", MPI.MODE_CREATE | MPI.MODE_RDWR)
    column = MPI.BYTE.Create_vector(8, bytes, bytes * size).Commit()
    data = bytearray(bytes * 8)
    for round in range(int(sys.argv[2])):
        at = round * 8 * size * bytes
        f.Set_view(at + rank * bytes, MPI.BYTE, column)
        f.Write_at(0, data)
        f.Set_view(0)
        for i in range(8):
            f.Read_at(at + (i * size + rank) * bytes, bytearray(bytes))
    f.Close()
"""


def replay(*files):
    done = penstock("sim", "--json", "--replay", *files, check=False)
    return done, done.json()


@pytest.fixture
def work(tmp_path):
    path = tmp_path / "work.py"
    path.write_text(WORK)
    return path


def test_decisions_of_a_real_data_server_are_decided_again(short_dir, work):
    directory, traces = short_dir / "fs", short_dir / "t"
    penstock("up", directory, "--servers", 2, "--memory", "--tune", "depth=2", "--trace", traces, "--journal")
    algorithms = ["to", "to-agg", "sjf", "aioli", "mlf", "wfq", "srtf", "sw", "twins"]
    for i, algorithm in enumerate([*algorithms, "tree", "online"]):
        penstock("tune", f"sched={algorithm}", "ratio=38.9:21.3", "shift_wait=2ms", "-d", directory)
        run = ["run", "-n", 4, "-q", "-d", directory, "--", sys.executable, "-m", "mpi4py", work]
        penstock(*run, f"f{i}", 60 if algorithm == "online" else 4)
    penstock("down", directory)
    files = sorted(traces.glob("data-*.decisions"))
    assert len(files) == 2
    done, replayed = replay(*files)
    assert done.code == 0, done.err
    for server in replayed:
        assert server["identical"] and server["whole"] and server["lost"] == 0
        assert server["requests"] == server["dispatches"] + server["joined"] > 11 * 100
        assert set(algorithms) <= set(server["algorithms"])
        # The tree and the online selector have switched, and switch here at the same requests to the same algorithms.
        assert server["choices"] > 0
    assert "identical" in penstock("sim", "--replay", *files).out
    # The same decisions are what the trace of events tells.
    shown = penstock("trace", "show", "--json", traces / "data-0.trace").json()[0]
    assert shown["arrivals"] == replayed[0]["requests"]


def test_a_record_that_was_changed_is_noticed(short_dir, work):
    traces = short_dir / "t"
    run = ["run", "-n", 2, "-q", "--servers", 1, "--tune", "sched=aioli", "--trace", traces, "--journal"]
    penstock(*run, "--", sys.executable, "-m", "mpi4py", work, "f", 2)
    record = traces / "data-0.decisions"
    text = record.read_text()
    lines = text.splitlines()
    done, replayed = replay(record)
    assert done.code == 0 and replayed[0]["dispatches"] > 20
    # The checksum tells of any change ...
    record.write_text(text.replace(" serve ", " serve 0", 1))
    done, _ = replay(record)
    assert done.code == 1 and "checksum" in done.err
    # ... and where none is there, as after a crash, the decisions do.
    served = next(i for i, line in enumerate(lines) if " serve " in line)
    words = lines[served].split(" ")
    words[7] = str(int(words[7]) + 1)
    added = next(i for i, line in enumerate(lines) if line.startswith("add "))
    moved = lines[added].split(" ")
    moved[5], moved[6] = str(1 << 40), str((1 << 40) + int(moved[7]))
    for at, line in [(served, " ".join(words)), (added, " ".join(moved)), (served, "ask now serve something")]:
        changed = [*lines[:at], line, *lines[at + 1 : -1]]
        record.write_text("\n".join(changed) + "\n")
        done, replayed = replay(record)
        assert done.code == 1 and not replayed[0]["identical"] and not replayed[0]["whole"]
        assert "recorded `" in done.err or "no call" in done.err
    # A beginning is a record too.
    record.write_text("\n".join(lines[: len(lines) // 2]) + "\n")
    done, replayed = replay(record)
    assert done.code == 0 and replayed[0]["identical"] and not replayed[0]["whole"]
    assert "has no end" in done.err
    record.write_text("something else\n")
    assert "is no trace" in replay(record)[0].err


def measured(path):
    """A scenario's report, and the most memory that it took, in KiB."""
    with subprocess.Popen([PENSTOCK, "sim", "--json", path], stdout=subprocess.PIPE, text=True) as running:
        out = running.stdout.read()
        _, code, used = os.wait4(running.pid, 0)
        running.returncode = os.waitstatus_to_exitcode(code)
    assert running.returncode == 0
    return json.loads(out)["cases"][0]["report"], used.ru_maxrss


def test_ten_thousand_clients_fit_into_memory():
    report, most = measured(PENSTOCK.parent.parent.parent / "experiments" / "scale.toml")
    assert report["operations"] == report["requests"] == 1_000_000
    assert most < 2_000_000, "KiB"


def test_a_million_clients_run_as_cohorts(tmp_path):
    # The scenario that comes with Penstock; here each client makes one call, there ten.
    text = (PENSTOCK.parent.parent.parent / "experiments" / "cohorts.toml").read_text()
    assert "655360000000B" in text
    short = tmp_path / "cohorts.toml"
    short.write_text(text.replace("655360000000B", "65536000000B"))
    report, most = measured(short)
    assert report["operations"] == report["requests"] == 1_000_000
    assert report["bytes"] == 1_000_000 << 16
    assert most < 2_000_000, "KiB"


@pytest.mark.alone
def test_a_program_runs_in_real_time_as_it_is_simulated():
    """Devices are twice as slow, so that the machine adds less; the least of two runs counts, since it may add any time to one."""
    script = PENSTOCK.parent.parent.parent / "bench" / "makespan.py"
    command = [sys.executable, script, "--runs", "2", "--slow", "2", "--case", "hpio", "--json"]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=240)
    cases = [json.loads(line) for line in done.stdout.splitlines()]
    assert [case["case"] for case in cases] == ["hpio writes", "hpio writes, no write cache"], done
    ratios = [min(case["real"]) / case["simulated"] for case in cases]
    # On an idle machine -7 to 0% (docs/understand/simulator.md). The device's own time is the least that a run can take.
    assert all(0.85 < ratio < 1.5 for ratio in ratios), cases
    # What the write cache is worth, whatever the machine adds to both.
    assert 0.75 < ratios[1] / ratios[0] < 1.33, cases
