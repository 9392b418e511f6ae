"""Learns the decision tree that detects access patterns (docs/understand/detection.md).

    penstock trace generate --training windows.csv --runs 20 --seed 1
    python python/learn/patterns.py windows.csv --export crates/sched/data/patterns.json

Prints the report: confusion matrix, precision and recall by 10-fold cross-validation in which all windows of one run
stay in one fold. Then accuracy on held-out numbers of processes, and with the source's two figures alone.
"""

import argparse
import csv
import json
import sys
from collections import Counter

import numpy as np
from sklearn.metrics import confusion_matrix, precision_recall_fscore_support
from sklearn.model_selection import GroupKFold
from sklearn.tree import DecisionTreeClassifier

CLASSES = [f"{order}_{size}" for order in ("contiguous", "strided", "random") for size in ("small", "large")]
# What a tree answers of a window that is unlike those that it was learnt from; a number beyond the classes'.
UNKNOWN = "unknown"
ANSWERS = [*CLASSES, UNKNOWN]
LABELS = ["run", "op", "many_files", "pattern", "processes", "programs", "server", "file", "requests"]
# Of real traces: what the delivered tree said, and what stored the bytes.
MORE_LABELS = ["detected", "store", "servers"]
FORMAT = 2
FOLDS = 10
# Answers of leaves with a smaller share of one class are unknown.
LEAST_SHARE = 0.7
# A leaf's windows lie between these figures; a tenth of what the figure ranges over in all windows is added on both sides.
MARGIN = 0.1


def load(path):
    """Figures, classes and the labels of all windows."""
    with open(path, newline="") as file:
        reader = csv.DictReader(file)
        missing = set(LABELS) - set(reader.fieldnames or [])
        if missing:
            sys.exit(
                f"{path}: no column {', '.join(sorted(missing))}; `penstock trace generate --training` makes the file"
            )
        features = [name for name in reader.fieldnames if name not in LABELS + MORE_LABELS]
        rows = list(reader)
    if not rows:
        sys.exit(f"{path}: no windows")
    x = np.array([[float(row[name]) for name in features] for row in rows])
    y = np.array([ANSWERS.index(row["pattern"]) for row in rows])
    return features, x, y, rows


class Tree:
    """A decision tree that knows between which figures the windows of each leaf lay: what lies outside is unknown to it."""

    def __init__(self, leaf):
        self.tree = DecisionTreeClassifier(max_depth=12, min_samples_leaf=leaf, random_state=1)

    def fit(self, x, y):
        """The same tree from the same data."""
        self.tree.fit(x, y)
        at = self.tree.apply(x)
        margin = MARGIN * (np.percentile(x, 99, axis=0) - np.percentile(x, 1, axis=0))
        self.ranges = {
            leaf: (x[at == leaf].min(axis=0) - margin, x[at == leaf].max(axis=0) + margin) for leaf in set(at)
        }
        return self

    def predict(self, x):
        """Numbers of answers."""
        at = self.tree.apply(x)
        low, high = (np.array([self.ranges[leaf][end] for leaf in at]) for end in (0, 1))
        shares = self.tree.predict_proba(x).max(axis=1)
        known = ((low <= x) & (x <= high)).all(axis=1) & (shares >= LEAST_SHARE)
        return np.where(known, self.tree.predict(x), len(CLASSES))


def learner(leaf):
    """The same tree from the same data."""
    return Tree(leaf)


def cross_validated(x, y, runs, leaf):
    """Each window's class by a tree that saw no window of its run."""
    guessed = np.empty_like(y)
    for train, test in GroupKFold(FOLDS).split(x, y, runs):
        guessed[test] = learner(leaf).fit(x[train], y[train]).predict(x[test])
    return guessed


def by_run(y, guessed, runs):
    """Share of runs whose most windows have the right class."""
    votes = {}
    for truth, guess, run in zip(y, guessed, runs, strict=True):
        votes.setdefault(run, (truth, Counter()))[1][guess] += 1
    right = sum(counter.most_common(1)[0][0] == truth for truth, counter in votes.values())
    return right / len(votes)


def report(features, x, y, rows, leaf):
    """Everything worth knowing of such a tree, as one object."""
    runs = np.array([int(row["run"]) for row in rows])
    processes = np.array([int(row["processes"]) for row in rows])
    guessed = cross_validated(x, y, runs, leaf)
    classes = range(len(CLASSES))
    precision, recall, _, _ = precision_recall_fscore_support(y, guessed, labels=classes, zero_division=0)
    held_out = {}
    for count in sorted(set(processes)):
        out = processes == count
        if out.all():
            continue
        tree = learner(leaf).fit(x[~out], y[~out])
        held_out[int(count)] = float((tree.predict(x[out]) == y[out]).mean())
    # The source's own figures: distance and spread.
    two = cross_validated(x[:, :2], y, runs, leaf)
    return {
        "windows": len(y),
        "runs": len(set(runs)),
        "accuracy": float((guessed == y).mean()),
        "accuracy_of_runs": by_run(y, guessed, runs),
        "order": float((guessed // 2 == y // 2).mean()),
        "unknown": float((guessed == len(CLASSES)).mean()),
        "small_or_large": float((guessed % 2 == y % 2).mean()),
        "precision": dict(zip(CLASSES, map(float, precision), strict=True)),
        "recall": dict(zip(CLASSES, map(float, recall), strict=True)),
        "confusion": confusion_matrix(y, guessed, labels=range(len(ANSWERS)))[: len(CLASSES)].tolist(),
        "held_out_processes": held_out,
        "accuracy_of_distance_and_spread": float((two == y).mean()),
        "importance": dict(zip(features, map(float, learner(leaf).fit(x, y).tree.feature_importances_), strict=True)),
    }


def table(confusion, precision, recall):
    """A confusion matrix with the precision and recall of each class."""
    print(f"{'':18}{'precision':>10}{'recall':>10}   classified as " + " ".join(f"{name:>16}" for name in ANSWERS))
    for name, row, p, r in zip(ANSWERS, confusion, precision, recall, strict=False):
        cells = " ".join(f"{cell:>16}" for cell in row)
        print(f"{name:18}{p:>10.3f}{r:>10.3f}{'':17}{cells}")


def show(result):
    """The report for people."""
    print(f"{result['windows']} windows of {result['runs']} runs, {FOLDS}-fold cross-validation by run")
    print(f"right: {result['accuracy']:.3f} of windows, {result['accuracy_of_runs']:.3f} of runs by majority")
    print(f"       {result['order']:.3f} order, {result['small_or_large']:.3f} size, {result['unknown']:.3f} unknown")
    print(f"       {result['accuracy_of_distance_and_spread']:.3f} with distance and spread alone")
    for count, accuracy in result["held_out_processes"].items():
        print(f"       {accuracy:.3f} of windows with {count} processes, learnt from the others")
    table(result["confusion"], result["precision"].values(), result["recall"].values())
    print("figures by importance: ", end="")
    ranked = sorted(result["importance"].items(), key=lambda item: -item[1])
    print(", ".join(f"{name} {share:.2f}" for name, share in ranked if share >= 0.005))


def by_class(y, guessed, rows):
    """Prints the answers by class, and the share of right ones by number of data servers; the smallest of these."""
    known = sorted(set(y))
    answers = range(len(ANSWERS))
    precision, recall, _, _ = precision_recall_fscore_support(y, guessed, labels=answers, zero_division=0)
    print(
        f"{(guessed == y).mean():.3f} of {len(y)} windows, {by_run(y, guessed, [row['run'] for row in rows]):.3f} of runs"
    )
    table(confusion_matrix(y, guessed, labels=answers), precision, recall)
    servers = np.array([int(row["servers"]) for row in rows])
    print("share of right windows, of runs in brackets")
    print(f"{'servers':>8}" + "".join(f"{ANSWERS[number]:>24}" for number in known))
    shares = []
    for count in sorted(set(servers)):
        line = f"{count:>8}"
        for number in known:
            of = (servers == count) & (y == number)
            runs = [row["run"] for row, here in zip(rows, of, strict=True) if here]
            shares.append((guessed == y)[of].mean() if of.any() else 1.0)
            line += f"{shares[-1]:>16.3f} ({by_run(y[of], guessed[of], runs):.3f})" if of.any() else f"{'-':>24}"
        print(line)
    return float(min(shares))


def export(tree, features, made_by):
    """The tree as the data that penstock reads: children after their parent."""
    inner = tree.tree.tree_
    order, number = [0], {0: 0}
    for node in order:
        for child in (inner.children_left[node], inner.children_right[node]):
            if child >= 0:
                number[child] = len(order)
                order.append(child)
    nodes = []
    for node in order:
        shares = inner.value[node][0] / inner.value[node][0].sum()
        below, above = inner.children_left[node], inner.children_right[node]
        if below < 0:
            best = int(np.argmax(shares))
            low, high = ([round(float(f), 6) for f in end] for end in tree.ranges[node])
            found = {"class": int(tree.tree.classes_[best]), "share": round(float(shares[best]), 4)}
            nodes.append({"leaf": {**found, "low": low, "high": high}})
        else:
            split = {"feature": int(inner.feature[node]), "threshold": float(inner.threshold[node])}
            nodes.append({"split": {**split, "below": number[below], "above": number[above]}})
    head = {"format": FORMAT, "made_by": made_by, "features": features, "classes": CLASSES, "least_share": LEAST_SHARE}
    lines = ",\n".join("  " + json.dumps(node) for node in nodes)
    return json.dumps(head)[:-1] + ', "nodes": [\n' + lines + "\n]}\n"


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("windows", help="CSV of `penstock trace generate --training`")
    parser.add_argument("--export", metavar="FILE", help="write the tree of all windows as JSON")
    parser.add_argument("--made-by", default="", help="what the tree says of its origin")
    parser.add_argument("--leaf", type=int, default=20, help="fewest windows of a leaf (default: 20)")
    parser.add_argument("--json", action="store_true", help="the report for programs")
    args = parser.parse_args()
    features, x, y, rows = load(args.windows)
    result = report(features, x, y, rows, args.leaf)
    if args.json:
        print(json.dumps(result))
    else:
        show(result)
    if args.export:
        made_by = args.made_by or f"patterns.py, {len(y)} windows of {result['runs']} runs"
        with open(args.export, "w") as file:
            file.write(export(learner(args.leaf).fit(x, y), features, made_by))


if __name__ == "__main__":
    main()
