"""Makes the tree `own` out of the experiment's figures: what each algorithm gave of the best one, situation by situation.

cargo run --release -p penstock-sched --example selection -- --cases > cases.txt
.venv/bin/python experiments/scheduling/learn_own.py cases.txt > crates/sched/src/select/measured.rs
"""

import sys
from collections import defaultdict

# Sequential / random throughput at 8 KiB, read and write: see `cluster.rs`.
RATIOS = {"pastel": (38.91, 21.29), "graphene": (40.68, 15.12), "suno": (25.46, 8.17), "edel": (2.37, 0.66)}
ALGORITHMS = 5  # to, to-agg, sjf, mlf, aioli, after noop


def rows(lines):
    """(write, contiguous, large, files, ratio) with the parts of the best rate, averaged over what looks alike."""
    alike = defaultdict(list)
    for line in lines:
        words = line.split()
        if len(words) < 14 or words[0] not in RATIOS:
            continue
        device, op, programs, files, place, size, processes = words[:7]
        write = op == "write"
        count = int(programs[1:]) * (int(processes) if files == "N-N" else 1)
        rates = [float(w) for w in words[8 : 8 + ALGORITHMS]]
        key = (write, place == "contig", size == "large", count, RATIOS[device][write])
        alike[key].append([rate / max(rates) for rate in rates])
    for key, parts in sorted(alike.items()):
        yield key, [sum(column) / len(parts) for column in zip(*parts, strict=True)]


print("//! Made by `experiments/scheduling/learn_own.py`; do not edit.")
print("use super::own::Row;")
print()
print("/// What to, to-agg, sjf, mlf and aioli gave of the best, by operation, order, size, files and ratio.")
with open(sys.argv[1]) as cases:
    table = list(rows(cases))
print("#[rustfmt::skip]")
print(f"pub(super) static ROWS: [Row; {len(table)}] = [")
for (write, contiguous, large, files, ratio), parts in table:
    flags = ", ".join(str(f).lower() for f in (write, contiguous, large))
    print(f"    Row::new({flags}, {files}, {ratio:.2f}, [{', '.join(f'{p:.2f}' for p in parts)}]),")
print("];")
