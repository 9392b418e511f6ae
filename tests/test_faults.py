"""`penstock faults` as a user sees it: runs agree, and planted bugs are found."""

import json
import subprocess

import pytest
from conftest import PENSTOCK


def faults(*args):
    done = subprocess.run([PENSTOCK, "faults", "--json", *args], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def test_two_runs_of_a_seed_agree_in_every_event():
    code, summary = faults("--twice", "--seeds", "8")
    assert code == 0, summary["failing"]
    assert summary["seeds"] == 8 and summary["events"] > 10_000


@pytest.mark.parametrize(
    "bug",
    [
        "lost-sync",
        "lost-name",
        "stale-read",
        "stopped-clock",
        "twice-delivered",
        "lost-wakeup",
        "no-fence",
        "same-bytes",
    ],
)
def test_a_planted_bug_is_found(bug):
    code, summary = faults("--plant", bug, "--seeds", "1000")
    assert code == 0 and summary["failing"], bug


def test_an_unknown_bug_is_named():
    done = subprocess.run([PENSTOCK, "faults", "--plant", "none"], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "none" in done.stderr
