"""Makes the tree `own` out of the experiment's figures: what each algorithm gave of the best one, situation by situation.

cargo run --release -p penstock-sched --example selection -- --learn --seeds 1-3 > experiments/scheduling/measured.csv
... the same with --alone and --four into measured-alone.csv and measured-four.csv; measured-real.csv is a run of real.py
.venv/bin/python experiments/scheduling/learn_own.py > crates/sched/src/select/measured.rs
"""

import csv
from pathlib import Path

# Sequential / random throughput at 8 KiB, read and write: see `cluster.rs`.
RATIOS = {"pastel": (38.91, 21.29), "graphene": (40.68, 15.12), "suno": (25.46, 8.17), "edel": (2.37, 0.66)}


# KiB of a small and a large request as they reach a server, by set-up (`cluster.rs`).
SETUPS = {
    "measured.csv": (8, 8),
    "measured-alone.csv": (16, 256),
    "measured-four.csv": (16, 64),
    "measured-real.csv": (16, 256),
}


def rows(lines, sizes):
    """(write, contiguous, large, files, processes, bytes of a request, ratio) with the parts of the best rate."""
    for row in csv.reader(line for line in lines if not line.startswith("#")):
        if row[0] == "case":
            continue
        device, op, programs, files, order, size, each = row[0].split()
        write = op == "write"
        processes = int(programs[1:]) * int(each)
        count = processes if files == "N-N" else int(programs[1:])
        rates = [float(word) for word in row[1::2]]
        key = (write, order == "contig", size == "large", count, processes, sizes[size == "large"] << 10)
        key += (RATIOS[device][write],)
        yield key, [rate / max(rates) for rate in rates]


print("//! Made by `experiments/scheduling/learn_own.py`; do not edit.")
print("use super::own::Row;")
print()
print(
    "/// What to, to-agg, sjf, mlf and aioli gave of the best, by operation, order, size, files, processes, request and ratio."
)
table = []
for name, sizes in SETUPS.items():
    with open(Path(__file__).with_name(name)) as figures:
        table += rows(figures, sizes)
table.sort()
print("#[rustfmt::skip]")
print(f"pub(super) static ROWS: [Row; {len(table)}] = [")
for (write, contiguous, large, files, processes, request, ratio), parts in table:
    flags = ", ".join(str(f).lower() for f in (write, contiguous, large))
    print(
        f"    Row::new({flags}, {files}, {processes}, {request}, {ratio:.2f}, [{', '.join(f'{p:.3f}' for p in parts)}]),"
    )
print("];")
