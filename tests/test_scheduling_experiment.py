"""The experiment that compares scheduling algorithms on a real data server (experiments/scheduling/real.py)."""

import csv
import importlib.util
import os
import subprocess
import sys

import pytest
from conftest import ROOT

REAL = ROOT / "experiments" / "scheduling" / "real.py"
SITUATION = "graphene read x1 N-1 strided small 8"
FIXED = ["to", "to-agg", "sjf", "mlf", "aioli"]


def real(*words):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_DEPLOYMENT")}
    command = [sys.executable, REAL, *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False, env=environment)


def rows(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def test_a_situation_is_measured_and_never_twice(tmp_path):
    out = tmp_path / "real.csv"
    words = ["measure", "--situations", f"^{SITUATION}$", "--seconds", 0.4, "--dropped", 0.1, "--rounds", 2]
    words += ["--warm-up", 0.2, "--online", 1.5, "--out", out]
    done = real(*words)
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert {row["situation"] for row in found} == {SITUATION}
    ran = sorted((row["choice"], row["round"]) for row in found)
    assert ran == sorted((c, r) for c in [*FIXED, "tree", "online"] for r in "01")
    assert all(row["ran"] == row["choice"] for row in found if row["choice"] in FIXED)
    assert sum(float(row["mb_per_s"]) for row in found) > 0
    # What is in the file is not measured again.
    again = real(*words)
    assert again.returncode == 0 and "0 of 1 situations" in again.stderr, again.stderr
    assert rows(out) == found


def test_what_cannot_be_measured_is_told(tmp_path):
    done = real("measure", "--situations", "x17", "--out", tmp_path / "real.csv")
    assert done.returncode == 1 and "no situation's name has x17 in it" in done.stderr
    assert not (tmp_path / "real.csv").exists()


@pytest.fixture
def results(tmp_path):
    """Two situations: one in which mlf gives twice what to gives, one in which to is best."""
    path = tmp_path / "results.csv"
    lines = ["situation,choice,round,mb_per_s,seconds,queued,ran"]
    first = {"to": 10, "to-agg": 11, "sjf": 15, "mlf": 20, "aioli": 8, "tree": 20, "online": 18}
    second = {"to": 10, "to-agg": 9.9, "sjf": 5, "mlf": 8, "aioli": 8.5, "tree": 10, "online": 8.9}
    for name, rates in [(SITUATION, first), ("graphene read x1 N-N contig large 8", second)]:
        for choice, rate in rates.items():
            lines += [f"{name},{choice},{r},{rate * (1 + 0.01 * r)},2.0,4,{choice}" for r in (0, 1)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_table_counts_right_choices_gains_and_losses(results):
    done = real("table", "--no-trees", results)
    assert done.returncode == 0, done.stderr
    lines = {line.split()[0]: line.split() for line in done.stdout.splitlines()[2:]}
    # Within 5%, share, surely not, median gain, share of the oracle's gain, situations that are worse by more than 10%.
    assert lines["to"][1:] == ["1", "(", "50%)", "1", "0.0%", "0%", "0"]
    assert lines["mlf"][1:] == ["1", "(", "50%)", "1", "40.0%", "80%", "1"]
    assert lines["sched=tree"][1:] == ["2", "(100%)", "0", "50.0%", "100%", "0"]
    assert lines["online"][1:] == ["0", "(", "0%)", "2", "34.5%", "69%", "1"]
    assert lines["oracle"][1:] == ["2", "(100%)", "0", "50.0%", "100%", "0"]
    for row in ("inputs", "inputs/half"):
        assert lines[row][1:] == ["2", "(100%)", "0", "50.0%", "100%", "0"]
    assert "standard error of a mean: median" in done.stdout


def test_runs_of_machines_of_different_speed_are_judged_together(results, tmp_path):
    alone = real("table", "--no-trees", results).stdout.splitlines()
    # The same run on a machine that is ten times slower, where mlf has had more rounds.
    slow = tmp_path / "slow.csv"
    with open(slow, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(rows(results)[0])
        for row in rows(results):
            row["mb_per_s"] = float(row["mb_per_s"]) / 10
            writer.writerows([row.values()] * (3 if row["choice"] == "mlf" else 1))
    done = real("table", "--no-trees", results, slow)
    assert done.returncode == 0, done.stderr
    both = done.stdout.splitlines()

    def figures(lines):
        # The sign of a zero is rounding.
        return [[word.replace("-0.0%", "0.0%").replace("-0%", "0%") for word in line.split()] for line in lines[2:7]]

    assert figures(both) == figures(alone)


def test_only_the_algorithms_are_measured_to_learn_from_and_their_means_are_shown(results, tmp_path):
    out = tmp_path / "learn.csv"
    words = ["measure", "--learn", "--situations", f"^{SITUATION}$", "--seconds", 0.2, "--dropped", 0.1, "--rounds", 1]
    done = real(*words, "--warm-up", 0, "--out", out)
    assert done.returncode == 0, done.stderr
    assert sorted(row["choice"] for row in rows(out)) == sorted(FIXED)
    done = real("means", results)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    (row,) = [r for r in csv.DictReader(lines) if r["case"] == SITUATION]
    assert abs(float(row["mlf"]) - 20.1) < 1e-3 and abs(float(row["to error"]) - 0.05) < 1e-3


def test_situations_are_simulated_and_never_twice(tmp_path):
    out = tmp_path / "virtual.csv"
    command = [sys.executable, REAL.with_name("virtual.py"), "--setup", "alone", "--device", "edel", "--out", out]
    command += ["--rest", "read, x1, N-1 strided, large, 8", "--seconds", "1.2", "--seeds", "1-2"]
    for _ in range(2):
        done = subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)
        assert done.returncode == 0, done.stderr
        found = rows(out)
        expected = [(c, r) for r in "12" for c in [*FIXED, "tree", "online"]]
        assert [(row["choice"], row["round"]) for row in found] == expected
        assert {row["situation"] for row in found} == {"edel read x1 N-1 strided large 8"}
        assert all(float(row["mb_per_s"]) > 0 for row in found)
    table = real("table", "--no-trees", out)
    assert table.returncode == 0 and table.stdout.startswith("1 situations, 2 rounds"), table.stderr


def test_what_servers_choose_by_is_made_of_the_figures_kept_here():
    made = subprocess.run([sys.executable, REAL.with_name("learn_own.py")], capture_output=True, text=True, check=True)
    assert made.stdout == (ROOT / "crates" / "sched" / "data" / "measured.csv").read_text()


def test_rounds_go_on_only_where_it_is_not_sure_which_are_right(tmp_path):
    spec = importlib.util.spec_from_file_location("real", REAL)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)

    def unsure(**rates):
        names = {name: name.replace("_", "-") for name in rates}
        rows = [[names[n], i, rate] for n, given in rates.items() for i, rate in enumerate(given)]
        return module.unsure(rows)

    clear = {"to": [10, 10.1, 9.9], "to_agg": [10, 10, 10], "sjf": [20, 20.1, 19.9], "mlf": [12, 12, 12]}
    assert unsure(**clear, aioli=[5, 5, 5]) == []
    # Near the edge, and far from it but seen to be anything.
    assert unsure(**clear, aioli=[19, 19.1, 19]) == ["sjf", "aioli", "tree"]
    assert unsure(**clear, aioli=[5, 25, 8]) == ["sjf", "aioli", "tree"]
    # What moves nothing is wrong; where nothing moves there is nothing to tell.
    assert unsure(**clear, aioli=[0, 0, 0]) == []
    assert unsure(**{name: [0, 0, 0] for name in clear}, aioli=[0, 0, 0]) == []
    # All alike, and surely so: any is right.
    assert unsure(**{name: [10, 10, 10.01] for name in clear}, aioli=[10, 10, 10]) == []

    out = tmp_path / "real.csv"
    words = ["measure", "--situations", f"^{SITUATION}$", "--seconds", 0.2, "--dropped", 0.1, "--rounds", 2]
    words += ["--online", 0]
    done = real(*words, "--warm-up", 0.2, "--at-most", 8, "--out", out)
    assert done.returncode == 0, done.stderr
    found = rows(out)
    assert {row["choice"] for row in found} == {*FIXED, "tree"}
    for later in {row["round"] for row in found} - {"0", "1"}:
        ran = {row["choice"] for row in found if row["round"] == later}
        assert "tree" in ran and 3 <= len(ran) <= 6
