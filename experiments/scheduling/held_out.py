"""How good choices are in situations and on devices that nobody has measured: the table of measured cases beside trees and forests.

    .venv/bin/python experiments/scheduling/held_out.py

The data are those of `own` itself (`crates/sched/data/measured.csv`, made by learn_own.py): what each algorithm gave of the best one.
Learners: `nearest`, the rows that are nearest (as `select/own.rs` has it); a regression tree; forests. Held out are a tenth of the situations, in all set-ups and with all numbers of processes at once, with five seeds. Then one device
after the other. A choice is right when it gives at least 95% of what the best algorithm gives. `to` is chosen where nothing promises 1%
more.
"""

import csv
from pathlib import Path

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor, RandomForestRegressor
from sklearn.tree import DecisionTreeRegressor

ROOT = Path(__file__).resolve().parent.parent.parent
TABLE = ROOT / "crates" / "sched" / "data" / "measured.csv"
ALIKE = ["write", "contiguous", "large"]
INPUTS = [*ALIKE, "files", "processes", "servers", "request_bytes", "ratio"]
ALGORITHMS = ["to", "to-agg", "sjf", "mlf", "aioli"]
# Sequential / random throughput at 8 KiB, read and write: see situations.toml.
DEVICES = {"pastel": (38.91, 21.29), "graphene": (40.68, 15.12), "suno": (25.46, 8.17), "edel": (2.37, 0.66)}
WORTH = 0.01
SEEDS = range(2, 7)
FOLDS = 10
TREES, LEAVES = 16, 64


def load():
    """Inputs, parts of the best rate, the device and the situation of each row; files and the like as doublings."""
    with open(TABLE, newline="") as file:
        rows = list(csv.DictReader(file))
    x = np.array(
        [[row[n] == "true" if n in ALIKE else np.log2(float(row[n])) for n in INPUTS] for row in rows], dtype=float
    )
    parts = np.array([[float(row[a]) for a in ALGORITHMS] for row in rows])
    devices, situations, known = [], [], {}
    for row in rows:
        ratio = float(row["ratio"])
        devices.append(next(i for i, both in enumerate(DEVICES.values()) if ratio in both))
        programs = 4 if int(row["processes"]) > 16 else 1
        alone = row["files"] == row["processes"]
        key = (*(row[n] for n in ALIKE), alone, programs, ratio)
        situations.append(known.setdefault(key, len(known)))
    return x, parts, np.array(devices), np.array(situations)


class Nearest:
    """Means of the nearest rows, as `select/own.rs` has it; the first three inputs have to be equal."""

    weights = np.array([1.0, 1.0, 1.0, 1.0, 2.0])
    sharp = 30.0

    def fit(self, x, parts):
        """Keeps them."""
        self.x, self.parts = x, parts
        return self

    def predict(self, x):
        """The weighted means."""
        found = []
        for one in x:
            alike = (self.x[:, : len(ALIKE)] == one[: len(ALIKE)]).all(axis=1)
            ways = np.abs(self.x[alike][:, len(ALIKE) :] - one[len(ALIKE) :]) * self.weights
            weights = np.exp(self.sharp * (ways.sum(axis=1).min() - ways.sum(axis=1)))
            found.append(weights @ self.parts[alike] / weights.sum())
        return np.array(found)


LEARNERS = {
    "nearest": Nearest,
    "tree, 64 leaves": lambda: DecisionTreeRegressor(max_leaf_nodes=LEAVES, random_state=1),
    "16 random trees, 64 leaves": lambda: RandomForestRegressor(TREES, max_leaf_nodes=LEAVES, random_state=1),
    "16 extra trees, 64 leaves": lambda: ExtraTreesRegressor(TREES, max_leaf_nodes=LEAVES, random_state=1),
    "200 extra trees": lambda: ExtraTreesRegressor(200, random_state=1),
}


def held_out(learner, x, parts, groups):
    """What each row is expected to give by what was learnt without its group."""
    expected = np.empty_like(parts)
    for group in np.unique(groups):
        out = groups == group
        expected[out] = learner().fit(x[~out], parts[~out]).predict(x[out])
    return expected


def judge(expected, parts):
    """Share of right choices, share of the possible gain over TO, share of choices worse than TO by more than 10%."""
    best = expected.argmax(axis=1)
    choice = np.where(expected.max(axis=1) > expected[:, 0] * (1 + WORTH), best, 0)
    found, most, to = parts[np.arange(len(parts)), choice], parts.max(axis=1), parts[:, 0]
    return (found >= 0.95 * most).mean(), (found / to - 1).sum() / (most / to - 1).sum(), (found < 0.9 * to).mean()


def report(x, parts, devices, situations):
    """Prints how good each learner is on what was held out."""
    print(f"{len(x)} rows, {len(set(situations))} situations, {len(DEVICES)} devices")
    print(f"{'':<28}{'situations: right, gain, worse':>36}{'devices: right, gain, worse':>36}   right by device")
    for name, learner in LEARNERS.items():
        seeds = []
        for seed in SEEDS:
            folds = np.random.default_rng(seed).permutation(situations.max() + 1) % FOLDS
            seeds.append(judge(held_out(learner, x, parts, folds[situations]), parts))
        expected = held_out(learner, x, parts, devices)
        line = f"{name:<28}"
        for right, gain, worse in (np.mean(seeds, axis=0), judge(expected, parts)):
            line += f"{right * 100:>18.1f}% {gain * 100:>8.1f}% {worse * 100:>6.1f}%"
        each = (judge(expected[devices == i], parts[devices == i])[0] * 100 for i in range(len(DEVICES)))
        print(line + "   " + ", ".join(f"{n} {r:.0f}%" for n, r in zip(DEVICES, each, strict=True)))


if __name__ == "__main__":
    report(*load())
