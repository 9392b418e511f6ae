"""Learns the selection trees T1, T2 and T4 from the source's table of best choices (TS table 3.8) as Rust data.

The source prints T3 only. T3 chooses as the table does in all 192 cases (TS table 6.3), so its rules stand for the
table. The text has lost the table's merged cells. The other trees see other attributes: T1 all, T2 no memory, T4
neither bytes per file nor the number of files.

    .venv/bin/python experiments/scheduling/learn_trees.py > crates/sched/src/select/learnt.rs
"""

import itertools

from sklearn.tree import DecisionTreeClassifier

# Sequential / random throughput for 8 KiB, write and read (TS table 3.4), and memory in GB (TS table 3.3).
CLUSTERS = {
    "pastel": (21.29, 38.91, 8),
    "graphene": (15.12, 40.68, 16),
    "suno": (8.17, 25.46, 32),
    "edel": (0.66, 2.37, 24),
}
# What no tree splits by has no variant in `tree.rs`; add it there when one does.
ATTRIBUTES = ("write", "files", "bytes_per_file", "contiguous", "large", "ratio", "memory")
TREES = {
    "T1": (("write", "files", "large", "ratio", "memory"), 20),
    "T2": (("write", "files", "bytes_per_file", "contiguous", "large", "ratio"), 27),
    "T4": (("write", "contiguous", "large", "ratio"), 9),
}


def t3(write, files, contiguous, large, ratio):
    """The rules that the source prints."""
    if ratio <= 8.17:
        if write:
            if files <= 1:
                return "Aioli" if large else "Sjf"
            return "ToAgg" if ratio <= 2.37 and 4 < files <= 16 else "Sjf"
        if 4 < files <= 16:
            return "ToAgg"
        if files > 16 or large:
            return "Aioli"
        return "Sjf" if files <= 1 else "ToAgg"
    if files <= 1:
        if write:
            return "Aioli" if large else ("Sjf" if ratio <= 15.12 else "Noop")
        return "Noop" if 25.46 < ratio <= 38.91 else "Sjf"
    if ratio <= 15.12:
        return "Mlf" if files <= 4 else "Sjf"
    if ratio <= 38.91:
        return "Sjf" if not write and ratio <= 25.46 else "Aioli"
    if files > 4:
        return "Sjf"
    return "Noop" if contiguous and not large else "Mlf"


def cases():
    """The source's 192 situations as the data servers see them."""
    shapes = [(apps, own) for apps in (1, 4) for own in (False, True)]
    for (apps, own), large, write, processes in itertools.product(shapes, (0, 1), (0, 1), (8, 16)):
        for contiguous in (1,) if own else (0, 1):
            files = apps * (processes if own else 1)
            megabytes = (1024 if apps == 1 else 512) if own else 64 * processes
            for w, r, memory in CLUSTERS.values():
                ratio = w if write else r
                best = t3(write, files, contiguous, large, ratio)
                yield (write, files, megabytes << 20, contiguous, large, ratio, memory << 30), best


def emit(tree, names, node, depth):
    """One node as a Rust expression."""
    inner, pad = tree.tree_, "    " * depth
    if inner.children_left[node] < 0:
        return f"{pad}Leaf({tree.classes_[inner.value[node][0].argmax()]})"
    name, threshold = names[inner.feature[node]], inner.threshold[node]
    low = emit(tree, names, inner.children_left[node], depth + 1)
    high = emit(tree, names, inner.children_right[node], depth + 1)
    camel = "".join(part.capitalize() for part in name.split("_"))
    return f"{pad}Split({camel}, {threshold:.4f}, &\n{low}, &\n{high})"


def main():
    rows = list(cases())
    best = [b for _, b in rows]
    print("//! Selection trees as data; made by experiments/scheduling/learn_trees.py from the source's table.")
    print("//! The source prints T3 only (see `tree`); these see other attributes and are as small as its own.")
    print("use super::nodes::Attribute::*;\nuse super::nodes::Node::{self, Leaf, Split};\nuse crate::Algorithm::*;\n")
    for name, (names, leaves) in TREES.items():
        table = [[row[ATTRIBUTES.index(n)] for n in names] for row, _ in rows]
        tree = DecisionTreeClassifier(criterion="entropy", max_leaf_nodes=leaves, random_state=0).fit(table, best)
        right = sum(p == b for p, b in zip(tree.predict(table), best, strict=True))
        print(f"/// {tree.get_n_leaves()} leaves; chooses as the table does in {right} of {len(rows)} cases.")
        print(f"pub(super) const {name}: Node =\n{emit(tree, names, 0, 1)};\n")


if __name__ == "__main__":
    main()
