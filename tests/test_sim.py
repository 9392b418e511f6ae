"""`penstock sim` as a user sees it."""

import json
import subprocess
from pathlib import Path

import pytest

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


def test_people_get_a_summary_and_plots(scenario, tmp_path):
    code, out, err = sim("--plot", tmp_path / "plots", scenario)
    assert code == 0, err
    assert "makespan" in out and "mpi-io-test 0.1" in out
    for name in ["two-programs-throughput.svg", "two-programs-head.svg"]:
        svg = (tmp_path / "plots" / name).read_text()
        assert svg.startswith("<svg") and "seconds" in svg


def test_cases_stand_beside_what_was_published(scenario, tmp_path):
    scenario.write_text(SCENARIO + CASES)
    code, out, err = sim(scenario)
    assert code == 0, err
    assert "12.5" in out and "four over one" in out
    assert sim("--list", scenario)[1].splitlines() == ["one rank", "four ranks"]
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
    ],
)
def test_a_bad_scenario_is_explained(scenario, change, says):
    scenario.write_text(SCENARIO.replace(*change))
    code, out, err = sim(scenario)
    assert code == 1 and out == ""
    assert says in err and "Traceback" not in err


def test_the_experiments_that_come_with_penstock_are_sound():
    for path in sorted((PENSTOCK.parent.parent.parent / "experiments").glob("*.toml")):
        code, _, err = sim("--list", path)
        assert code == 0, err
