"""Makes the tree `own` out of the experiment's figures: what each algorithm gave of the best one, situation by situation.

cargo run --release -p penstock-sched --example selection -- --learn --seeds 1-3 > experiments/scheduling/measured.csv
... the same with --alone and --four into measured-alone.csv and measured-four.csv
.venv/bin/python experiments/scheduling/real.py means RESULTS > experiments/scheduling/measured-real.csv
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
}
# What a real server gave in the same set-up stands in place of what virtual time says. Its windows are short: what the same
# situation gave with the other number of processes counts too, by this much.
REAL = {"measured-alone.csv": "measured-real.csv"}
OTHERS = 0.5


def read(name):
    """What algorithms gave of the best one, by situation."""
    with open(Path(__file__).with_name(name)) as figures:
        rows = csv.reader(line for line in figures if not line.startswith("#"))
        rates = {row[0]: [float(word) for word in row[1::2]] for row in rows if row[0] != "case"}
    return {case: parts(found) for case, found in rates.items()}


def parts(rates):
    """Of the best one."""
    return [rate / max(rates) for rate in rates]


def smoothed(found):
    """The same with what each situation gave with the other number of processes."""
    other = {case: f"{case.rpartition(' ')[0]} {24 - int(case.split()[-1])}" for case in found}
    mixed = {
        case: [own + OTHERS * more for own, more in zip(rates, found[other[case]], strict=True)]
        for case, rates in found.items()
    }
    return {case: parts(rates) for case, rates in mixed.items()}


def key(case, sizes):
    """(write, contiguous, large, files, processes, bytes of a request, ratio) of a situation."""
    device, op, programs, files, order, size, each = case.split()
    write = op == "write"
    processes = int(programs[1:]) * int(each)
    count = processes if files == "N-N" else int(programs[1:])
    request = sizes[size == "large"] << 10
    return write, order == "contig", size == "large", count, processes, request, RATIOS[device][write]


print("//! Made by `experiments/scheduling/learn_own.py`; do not edit.")
print("use super::own::Row;")
print()
print(
    "/// What to, to-agg, sjf, mlf and aioli gave of the best, by operation, order, size, files, processes, request and ratio."
)
table = []
for name, sizes in SETUPS.items():
    found = read(name)
    if name in REAL:
        found |= smoothed(read(REAL[name]))
    table += [(key(case, sizes), rates) for case, rates in found.items()]
table.sort()
print("#[rustfmt::skip]")
print(f"pub(super) static ROWS: [Row; {len(table)}] = [")
for (write, contiguous, large, files, processes, request, ratio), rates in table:
    flags = ", ".join(str(f).lower() for f in (write, contiguous, large))
    print(
        f"    Row::new({flags}, {files}, {processes}, {request}, {ratio:.2f}, [{', '.join(f'{p:.3f}' for p in rates)}]),"
    )
print("];")
