"""Makes the figures that `own` goes by out of the experiment's: what each algorithm gave of the best one, situation
by situation. In turn:

    .venv/bin/python experiments/scheduling/virtual.py --setup source --seeds 1-3 --out source.csv      (alone, four: the same)
    .venv/bin/python experiments/scheduling/real.py means source.csv > experiments/scheduling/measured.csv     (-alone, -four)
    .venv/bin/python experiments/scheduling/real.py means RESULTS > experiments/scheduling/measured-real.csv     (-2, -3, -4: other runs)
    .venv/bin/python experiments/scheduling/learn_own.py > crates/sched/data/measured.csv
    .venv/bin/python experiments/scheduling/learn_own.py --without measured-real-4.csv > ...     what is to be judged by that run
"""

import argparse
import csv
import itertools
from pathlib import Path

# Sequential / random throughput at 8 KiB, read and write: see situations.toml.
RATIOS = {"pastel": (38.91, 21.29), "graphene": (40.68, 15.12), "suno": (25.46, 8.17), "edel": (2.37, 0.66)}


# Servers, and KiB of a small and a large request as they reach one of them, by set-up (situations.toml).
SETUPS = {
    "measured.csv": (4, 8, 8),
    "measured-alone.csv": (1, 16, 256),
    "measured-four.csv": (4, 16, 64),
}
# What a real server gave in the same set-up, in several runs, stands in place of what virtual time says. Its windows are short:
# what the same situation gave with the other number of processes counts too, by this much.
REAL = {
    "measured-alone.csv": ["measured-real.csv", "measured-real-2.csv", "measured-real-3.csv", "measured-real-4.csv"]
}
OTHERS = 0.25


def read(name):
    """What algorithms gave of the best one, by situation."""
    with open(Path(__file__).with_name(name)) as figures:
        rows = csv.reader(line for line in figures if not line.startswith("#"))
        rates = {row[0]: [float(word) for word in row[1::2]] for row in rows if row[0] != "case"}
    return {case: parts(found) for case, found in rates.items()}


def parts(rates):
    """Of the best one."""
    return [rate / max(rates) for rate in rates]


def together(runs):
    """Of several runs: all count alike, whatever the machine's speed was."""
    sums = {}
    for case, rates in itertools.chain.from_iterable(run.items() for run in runs):
        sums[case] = [a + b for a, b in zip(rates, sums.get(case, [0.0] * len(rates)), strict=True)]
    return {case: parts(rates) for case, rates in sums.items()}


def smoothed(found):
    """The same with what each situation gave with the other number of processes."""
    other = {case: f"{case.rpartition(' ')[0]} {24 - int(case.split()[-1])}" for case in found}
    mixed = {
        case: [own + OTHERS * more for own, more in zip(rates, found[other[case]], strict=True)]
        for case, rates in found.items()
    }
    return {case: parts(rates) for case, rates in mixed.items()}


def key(case, setup):
    """(write, contiguous, large, files, processes, servers, bytes of a request, ratio) of a situation."""
    device, op, programs, files, order, size, each = case.split()
    servers, *sizes = setup
    write = op == "write"
    processes = int(programs[1:]) * int(each)
    count = processes if files == "N-N" else int(programs[1:])
    request = sizes[size == "large"] << 10
    return write, order == "contig", size == "large", count, processes, servers, request, RATIOS[device][write]


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--without", default=[], nargs="+", metavar="FILE", help="runs that are to judge what is learnt")
left_out = parser.parse_args().without
unknown = set(left_out) - set(itertools.chain.from_iterable(REAL.values()))
if unknown:
    parser.error(f"{', '.join(sorted(unknown))}: not among {REAL}")

table = []
for name, setup in SETUPS.items():
    found = read(name)
    if name in REAL:
        found |= smoothed(together(read(run) for run in REAL[name] if run not in left_out))
    table += [(key(case, setup), rates) for case, rates in found.items()]
table.sort()
print("write,contiguous,large,files,processes,servers,request_bytes,ratio,to,to-agg,sjf,mlf,aioli")
for (write, contiguous, large, files, processes, servers, request, ratio), rates in table:
    flags = ",".join(str(f).lower() for f in (write, contiguous, large))
    print(f"{flags},{files},{processes},{servers},{request},{ratio:.2f},{','.join(f'{p:.3f}' for p in rates)}")
