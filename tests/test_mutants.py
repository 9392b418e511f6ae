"""The list of mutants fits the code, and the script that runs them counts right. Nothing is built here."""

import importlib.util
import itertools
import sys

import pytest
from conftest import ROOT

spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
mutants = importlib.util.module_from_spec(spec)
sys.modules["mutants"] = mutants
spec.loader.exec_module(mutants)


def test_every_mutant_applies():
    found = mutants.load()
    assert mutants.check(found) == []
    assert len(found) >= 40
    assert {m.crate for m in found} >= {"store", "server", "meta", "client", "wire"}
    assert sum(bool(m.equivalent) for m in found) <= 4


def mutant(**changes):
    fields = {"name": "m", "file": "crates/x/a.rs", "old": "one", "new": "two", "what": "w"}
    return mutants.Mutant(**{**fields, **changes})


@pytest.mark.parametrize("text, times", [("nothing here", 0), ("one and one", 2)])
def test_a_mutant_that_does_not_apply_once_is_refused(tmp_path, text, times):
    path = tmp_path / "crates" / "x" / "a.rs"
    path.parent.mkdir(parents=True)
    path.write_text(text)
    [wrong] = mutants.check([mutant()], root=tmp_path)
    assert f"{times} times, not once" in wrong
    path.write_text("just one")
    assert mutants.check([mutant()], root=tmp_path) == []
    assert mutant().apply("just one") == "just two"
    assert "twice" in mutants.check([mutant(), mutant()], root=tmp_path)[0]
    assert "the same" in mutants.check([mutant(new="one")], root=tmp_path)[0]


def test_all_seeds_are_run_in_growing_batches():
    calls = list(mutants.batches(1000))
    assert calls[:2] == [(1, 16), (17, 48)]
    assert sum(n for _, n in calls) == 1000
    assert all(a + n == b for (a, n), (b, _) in itertools.pairwise(calls))
    assert list(mutants.batches(5)) == [(1, 5)]


def test_what_is_equivalent_or_does_not_build_does_not_count():
    results = [
        mutants.Result("a", "x", "w", seed=3, finding="locks"),
        mutants.Result("b", "x", "w", tests=["t"]),
        mutants.Result("c", "x", "w"),
        mutants.Result("d", "x", "w", equivalent="no effect"),
        mutants.Result("e", "x", "w", built=False),
    ]
    assert mutants.found_of(results) == (2, 3)
    text = mutants.table(results)
    assert "NOT FOUND" in text and "seed 3: locks" in text and "2 of 3 found" in text
