"""`penstock report`: summaries of runs that are over."""

import json
import stat

import pytest
from conftest import penstock


@pytest.fixture
def reports(tmp_path):
    """A directory for reports that does not exist yet, and the environment that names it."""
    directory = tmp_path / "state" / "reports"
    return directory, {"PENSTOCK_REPORTS": str(directory)}


def test_runs_are_listed_and_shown_again(examples, reports):
    directory, environment = reports
    empty = penstock("report", env=environment)
    assert empty.out == "" and "no runs yet" in empty.err
    program = [examples("tile"), "penstock:/tile", "--scale", "0.05"]
    first = penstock("run", "-n", 2, "--", *program, env=environment)
    # Kept, whether it is shown or not; with the exit code of a program that fails.
    failed = penstock("run", "-n", 1, "-q", "--", examples("tile"), "penstock:/gone/tile", env=environment, check=False)
    assert failed.code != 0
    listed = penstock("report", env=environment).out.splitlines()
    assert [line.split()[0] for line in listed] == ["run", "2", "1"]
    assert "penstock:/gone/tile" in listed[1] and "penstock:/tile --scale 0.05" in listed[2]
    objects = penstock("report", "--json", env=environment).json()
    assert [(o["number"], o["exit_code"]) for o in objects] == [(2, failed.code), (1, 0)]
    assert objects[1]["command"] == [str(word) for word in program] and objects[1]["summary"]["ranks"] == 2

    shown = penstock("report", 1, env=environment).out
    # The summary as it was, line by line.
    summary = [line for line in first.err.splitlines() if not line.startswith("penstock: 2 ranks on")]
    assert summary and shown.splitlines()[-len(summary) :] == summary
    assert penstock("report", "1", "--json", env=environment).json() == [objects[1]]
    assert "exit code" in penstock("report", "latest", env=environment).out
    missing = penstock("report", "17", env=environment, check=False)
    assert missing.code == 1 and "no run `17`" in missing.err and "latest" in missing.err

    for path in directory.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600 and json.loads(path.read_text())
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700


def test_a_damaged_report_is_named_and_hides_no_other(examples, reports):
    directory, environment = reports
    penstock("run", "-n", 1, "-q", "--", examples("tile"), "penstock:/tile", "--scale", "0.05", env=environment)
    (directory / "000002.json").write_text('{"half":')
    listed = penstock("report", env=environment)
    assert [line.split()[0] for line in listed.out.splitlines()] == ["run", "1"] and "000002.json" in listed.err
    damaged = penstock("report", "latest", env=environment, check=False)
    assert damaged.code == 1 and "000002.json" in damaged.err


def test_a_run_is_what_it_was_where_nothing_can_be_kept(examples, tmp_path):
    program = [examples("tile"), "penstock:/tile", "--scale", "0.05"]
    (tmp_path / "file").write_text("in the way")
    done = penstock("run", "-n", 1, "--", *program, env={"PENSTOCK_REPORTS": str(tmp_path / "file")})
    assert "`penstock report` will not have this run" in done.err and "/tile" in done.err
    home = {"PENSTOCK_REPORTS": "none", "HOME": str(tmp_path / "home")}
    penstock("run", "-n", 1, "--", *program, env=home)
    assert not (tmp_path / "home").exists()
    refused = penstock("report", env=home, check=False)
    assert refused.code == 1 and "no summaries are kept here" in refused.err


def test_reports_lie_in_the_users_state_directory(examples, tmp_path):
    program = [examples("tile"), "penstock:/tile", "--scale", "0.05"]
    for variables, place in [
        ({"HOME": str(tmp_path), "XDG_STATE_HOME": ""}, ".local/state"),
        ({"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "other")}, "other"),
    ]:
        penstock("run", "-n", 1, "-q", "--", *program, env={"PENSTOCK_REPORTS": "", **variables})
        assert [p.name for p in (tmp_path / place / "penstock/reports").iterdir()] == ["000001.json"]
