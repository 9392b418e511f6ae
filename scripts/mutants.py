#!/usr/bin/env python3
"""Mutation test: does anything notice when the code breaks a promise?

Each mutant of `scripts/mutants.toml` is one wrong line or two in a store, a server, a client or the wire format. It is applied to a
copy of the tree and built. The fault simulator and the tests of its crate run until one of them finds it. A
mutant that nobody finds is a promise that nothing checks.

    make mutants                        # all of them, 1,000 seeds each: hours
    make mutants ONLY='fence|seal' SEEDS=200
    scripts/mutants.py --check          # does each still apply? Nothing is built
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
import tomllib
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LIST = ROOT / "scripts" / "mutants.toml"
WORK = ROOT / "target" / "mutants"
# Seeds of one call of the simulator: small at first, since most mutants are found soon.
BATCHES = [16, 48, 136, 300]
# Seeds before the tests of the crate; the others come after them.
EARLY = 200
# Of all mutants that are not equivalent to the code, as many must be found.
ENOUGH = 0.9


@dataclass
class Mutant:
    name: str
    file: str
    old: str
    new: str
    what: str
    # Listed as not found when the list was begun.
    known: bool = False
    # Why nothing can find it.
    equivalent: str = ""

    @property
    def crate(self):
        return self.file.split("/")[1]

    def apply(self, text):
        """The text with the mutant in it; an error if its old text is not there exactly once."""
        times = text.count(self.old)
        if times != 1:
            raise ValueError(f"{self.name}: its old text is in {self.file} {times} times, not once")
        if self.old == self.new:
            raise ValueError(f"{self.name}: old and new text are the same")
        return text.replace(self.old, self.new)


@dataclass
class Result:
    name: str
    crate: str
    what: str
    built: bool = True
    # The first seed that finds it, and what it says.
    seed: int | None = None
    finding: str = ""
    # Tests of its crate that fail.
    tests: list = field(default_factory=list)
    equivalent: str = ""
    seconds: float = 0

    @property
    def found(self):
        return self.seed is not None or bool(self.tests)


def load(path=LIST):
    with open(path, "rb") as f:
        return [Mutant(**m) for m in tomllib.load(f)["mutant"]]


def check(mutants, root=ROOT):
    """What is wrong with the list."""
    wrong = []
    names = [m.name for m in mutants]
    wrong += [f"{n}: the name is there twice" for n in sorted(set(names)) if names.count(n) > 1]
    for mutant in mutants:
        try:
            mutant.apply((root / mutant.file).read_text())
        except (OSError, ValueError) as e:
            wrong.append(str(e))
    return wrong


def batches(seeds, first=1):
    """(first seed, number) of each call, until there were so many."""
    done, at = 0, 0
    while done < seeds:
        n = min(BATCHES[min(at, len(BATCHES) - 1)], seeds - done)
        yield first + done, n
        done, at = done + n, at + 1


def found_of(results):
    """How many were found, and of how many that can be."""
    viable = [r for r in results if r.built and not r.equivalent]
    return sum(r.found for r in viable), len(viable)


def table(results):
    rows = []
    for r in results:
        if not r.built:
            how = "does not build"
        elif r.equivalent and not r.found:
            how = f"equivalent: {r.equivalent}"
        else:
            how = "NOT FOUND"
            if r.seed is not None:
                how = f"seed {r.seed}: {r.finding[:70]}"
            elif r.tests:
                how = f"{len(r.tests)} tests, {r.tests[0]}"
        rows.append((r.name, r.crate, f"{r.seconds:.0f} s", how))
    widths = [max(len(row[i]) for row in rows) for i in range(3)] if rows else [0] * 3
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(row, widths, strict=False)), row[3]]) for row in rows]
    found, of = found_of(results)
    return "\n".join([*lines, f"{found} of {of} found"])


class Tree:
    """A copy of the tree with a target directory of its own, so that each mutant rebuilds only what it changes."""

    def __init__(self, work=WORK):
        self.path = work / "tree"
        # Incremental: a mutant changes one line, and what is built is thrown away.
        self.env = {**os.environ, "CARGO_TARGET_DIR": str(work / "build"), "CARGO_INCREMENTAL": "1"}
        listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, check=True).stdout
        files = {name for name in listed.decode().split("\0") if name and (ROOT / name).is_file()}
        for name in files:
            self.copy(name)
        for old in self.path.rglob("*"):
            if old.is_file() and str(old.relative_to(self.path)) not in files:
                old.unlink()

    def copy(self, name):
        source, target = ROOT / name, self.path / name
        # What is the same keeps its time: cargo would build it again.
        if not target.is_file() or source.read_bytes() != target.read_bytes():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(source, target)
            shutil.copymode(source, target)

    def run(self, *command, limit):
        """(exit code, output); the code is None after the time limit."""
        process = subprocess.Popen(
            command,
            cwd=self.path,
            env=self.env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        try:
            out, err = process.communicate(timeout=limit)
            return process.returncode, out, err
        except subprocess.TimeoutExpired:
            # With all that it has started.
            os.killpg(process.pid, 9)
            out, err = process.communicate()
            return None, out, err

    def build(self):
        code, _, err = self.run("cargo", "build", "--release", "--bin", "penstock", limit=3600)
        return code == 0, err

    def seeds(self, first, seeds):
        """The first of so many seeds that finds something, and what."""
        penstock = str(Path(self.env["CARGO_TARGET_DIR"]) / "release" / "penstock")
        for at, n in batches(seeds, first):
            command = [penstock, "faults", "--json", "--seed", str(at), "--seeds", str(n)]
            code, out, err = self.run(*command, limit=600 + 10 * n)
            if code is None:
                return at, f"no end, seeds {at} to {at + n - 1}"
            try:
                failing = json.loads(out)["failing"]
            except (json.JSONDecodeError, KeyError):
                return at, f"no report: {err[-200:]}"
            if failing:
                return failing[0]["seed"], failing[0]["failures"][0]
        return None, ""

    def tests(self, crate):
        """Tests of a crate that fail."""
        code, out, err = self.run("cargo", "test", "--release", "-p", f"penstock-{crate}", "--no-fail-fast", limit=900)
        if code == 0:
            return []
        failed = re.findall(r"^test (\S+) \.\.\. FAILED$", out, re.MULTILINE)
        return failed or ["no end" if code is None else "they do not build or end: " + err[-200:]]


def try_one(tree, mutant, seeds):
    began = time.monotonic()
    result = Result(mutant.name, mutant.crate, mutant.what, equivalent=mutant.equivalent)
    target = tree.path / mutant.file
    text = target.read_text()
    target.write_text(mutant.apply(text))
    try:
        result.built, err = tree.build()
        if result.built:
            # The cheapest first: what is found needs no second finder.
            early = min(seeds, EARLY)
            result.seed, result.finding = tree.seeds(1, early)
            if not result.found:
                result.tests = tree.tests(mutant.crate)
            if not result.found and seeds > early:
                result.seed, result.finding = tree.seeds(1 + early, seeds - early)
        else:
            result.finding = err[-2000:]
    finally:
        target.write_text(text)
    result.seconds = time.monotonic() - began
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="only look whether each mutant applies")
    parser.add_argument("--only", metavar="REGEX", help="mutants whose name or file matches")
    parser.add_argument("--seeds", type=int, default=1000, help="of the simulator for each (default: 1000)")
    parser.add_argument("--json", action="store_true", help="print the results for programs")
    args = parser.parse_args()
    mutants = load()
    if wrong := check(mutants):
        sys.exit("\n".join(["mutants.toml does not fit the code:", *wrong]))
    if args.check:
        print(f"{len(mutants)} mutants apply")
        return
    if args.only:
        mutants = [m for m in mutants if re.search(args.only, f"{m.name} {m.file}")]
    if not mutants:
        sys.exit(f"no mutant matches {args.only!r}; their names are in {LIST}")
    os.nice(10)

    def say(text):
        print(text, file=sys.stderr, flush=True)

    tree = Tree()
    say("building without a mutant")
    built, err = tree.build()
    if not built:
        sys.exit(err)
    seed, finding = tree.seeds(1, min(args.seeds, sum(BATCHES[:2])))
    if seed is not None:
        sys.exit(f"seed {seed} finds something without a mutant: {finding}")
    results = []
    for n, mutant in enumerate(mutants, 1):
        say(f"{n}/{len(mutants)} {mutant.name}: {mutant.what}")
        results.append(try_one(tree, mutant, args.seeds))
        say(table(results[-1:]).splitlines()[0])
    if args.json:
        print(json.dumps([{**asdict(r), "found": r.found} for r in results], indent=2))
    else:
        print(table(results))
    found, of = found_of(results)
    sys.exit(0 if all(r.built for r in results) and found >= ENOUGH * of else 1)


if __name__ == "__main__":
    main()
