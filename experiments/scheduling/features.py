"""How far a choice beforehand can get: by which inputs, by which learner, with what held out.

    .venv/bin/python experiments/scheduling/virtual.py --setup source --seeds 101-103 --out runs.csv
    .venv/bin/python experiments/scheduling/real.py means runs.csv > judge.csv
    .venv/bin/python experiments/scheduling/features.py experiments/scheduling/measured.csv judge.csv

Trained on the first file and judged on the second, whose runs had other seeds. A choice is right when its mean rate is within 5% of
the largest. Inputs: those of T3 (operation, files, order, size, ratio), the same without the order, and the same with the number
of processes. Servers do not see the last. Learners: the nearest situation (`own`), a regression tree and a forest
of the parts of the best rate. Held out: the seeds alone; a tenth of the situations; all of a device; all with 8 or
16 processes. Then the standard deviations of what is expected by how far the nearest situation is, of which
`select/own.rs` has the rounded values.
"""

import argparse
import csv
import sys

import numpy as np
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.tree import DecisionTreeRegressor

# Sequential / random throughput at 8 KiB, read and write: see situations.toml.
RATIOS = {"pastel": (38.91, 21.29), "graphene": (40.68, 15.12), "suno": (25.46, 8.17), "edel": (2.37, 0.66)}
T3 = ["write", "contiguous", "large", "files", "ratio"]
INPUTS = {
    "without order": ["write", "large", "files", "ratio"],
    "T3's": T3,
    "and processes": [*T3, "processes"],
}
TO = 0


def read(path):
    """Situations as dictionaries of figures, and the rates of to, to-agg, sjf, mlf and aioli."""
    cases, rates = [], []
    with open(path) as file:
        for row in csv.reader(line for line in file if not line.startswith("#")):
            if row[0] == "case":
                continue
            device, op, programs, files, order, size, processes = row[0].split()
            write = op == "write"
            count = int(programs[1:]) * (int(processes) if files == "N-N" else 1)
            cases.append(
                {
                    "device": list(RATIOS).index(device),
                    "write": float(write),
                    "contiguous": float(order == "contig"),
                    "large": float(size == "large"),
                    "files": np.log2(count),
                    "ratio": np.log2(RATIOS[device][write]),
                    "processes": np.log2(int(programs[1:]) * int(processes)),
                    "each": int(processes),
                }
            )
            rates.append([float(word) for word in row[1::2]])
    return cases, np.array(rates)


class Nearest:
    """Means of what is near, as `select/own.rs` has it; the first three inputs have to be equal."""

    def __init__(self, names):
        scale = {"files": 1.0, "ratio": 2.0, "processes": 1.0}
        self.scale = np.array([scale.get(name, 100.0) for name in names])

    def fit(self, figures, parts):
        """Keeps them."""
        self.figures, self.parts = figures, parts
        return self

    def predict(self, figures):
        """The weighted means."""
        found = []
        for one in figures:
            distance = (np.abs(self.figures - one) * self.scale).sum(axis=1)
            weights = np.exp(distance.min() - distance)
            found.append(weights @ self.parts / weights.sum())
        return np.array(found)


LEARNERS = {
    "nearest": Nearest,
    "tree": lambda names: DecisionTreeRegressor(min_samples_leaf=1, random_state=1),
    "forest": lambda names: ExtraTreesRegressor(200, random_state=1),
}


def held_out(cases):
    """Name and, for each situation, the number of the group that is left out when it is judged; none: nothing is."""
    rng = np.random.default_rng(1)
    folds = rng.permutation(len(cases)) % 10
    return {
        "seeds": None,
        "folds": folds,
        "devices": np.array([case["device"] for case in cases]),
        "processes": np.array([case["each"] for case in cases]),
    }


def predict(learner, names, cases, parts, groups):
    """What each situation is expected to give."""
    figures = np.array([[case[name] for name in names] for case in cases])
    if groups is None:
        return learner(names).fit(figures, parts).predict(figures)
    expected = np.empty_like(parts)
    for group in np.unique(groups):
        out = groups == group
        expected[out] = learner(names).fit(figures[~out], parts[~out]).predict(figures[out])
    return expected


def judge(choices, rates):
    """Right choices in per cent, share of the possible gain over TO, situations worse than TO by more than 10%."""
    found = rates[np.arange(len(rates)), choices]
    best = rates.max(axis=1)
    gain = (found / rates[:, TO] - 1).sum() / (best / rates[:, TO] - 1).sum()
    return (found >= 0.95 * best).mean() * 100, gain * 100, int((found < 0.9 * rates[:, TO]).sum())


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("learn", help="measurements to learn from")
    parser.add_argument("judge", help="measurements to judge by, of other seeds")
    args = parser.parse_args()
    cases, rates = read(args.learn)
    others, judged = read(args.judge)
    if cases != others:
        sys.exit(f"{args.learn} and {args.judge} are of different situations")
    parts = rates / rates.max(axis=1, keepdims=True)
    print(f"{'inputs':<15}{'learner':<10}" + "".join(f"{name:>22}" for name in held_out(cases)))
    print(f"{'known':<25}" + "  {:4.0f}% {:5.0f}% {:>3} worse".format(*judge(parts.argmax(axis=1), judged)))
    for inputs, names in INPUTS.items():
        for kind, learner in LEARNERS.items():
            line = f"{inputs:<15}{kind:<10}"
            for groups in held_out(cases).values():
                choices = predict(learner, names, cases, parts, groups).argmax(axis=1)
                line += "  {:4.0f}% {:5.0f}% {:>3} worse".format(*judge(choices, judged))
            print(line)
    print("\nstandard deviation of the logarithm of a part, by what was held out (T3's inputs, nearest):")
    found = np.log(judged / judged.max(axis=1, keepdims=True))
    for name, groups in held_out(cases).items():
        wrong = np.log(predict(Nearest, T3, cases, parts, groups)) - found
        wrong -= np.median(wrong, axis=1, keepdims=True)
        print(f"  {name:<12}{np.sqrt((wrong**2).mean()):.3f}  (median {np.median(np.abs(wrong)):.3f})")


if __name__ == "__main__":
    main()
