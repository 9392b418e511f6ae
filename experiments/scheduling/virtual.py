"""Which scheduling algorithm for which situation, on virtual time: situations.toml by `penstock sim` (experiments/scheduling/README.md).

    .venv/bin/python experiments/scheduling/virtual.py --setup source --out source.csv          192 situations, three seeds
    .venv/bin/python experiments/scheduling/virtual.py --setup alone --device graphene --seeds 1-3 --out alone.csv
    .venv/bin/python experiments/scheduling/real.py table source.csv                            how good the choices are
    .venv/bin/python experiments/scheduling/real.py means source.csv > measured.csv             for learn_own.py

Results have the form of real.py's: a round is a seed. They are appended to the file device by device; what is in it already is
not simulated again.
"""

import argparse
import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
EXPERIMENT = Path(__file__).with_name("situations.toml")
DEVICES = ["pastel", "graphene", "suno", "edel"]
SETUPS = ["source", "alone", "four"]
FIELDS = ["situation", "choice", "round", "mb_per_s", "seconds", "queued", "ran"]
UNTIL = 'until = "16s"'
DROPPED = 1.0  # seconds


def seeds(text):
    """`3-5` or `3`."""
    first, _, last = text.partition("-")
    found = range(int(first), int(last or first) + 1)
    if not found:
        raise argparse.ArgumentTypeError("seeds are N or N-M, in ascending order")
    return found


def simulate(case, seed, seconds):
    """Rows of the cases whose names begin so."""
    text = EXPERIMENT.read_text()
    assert text.count(UNTIL) == 1
    text = text.replace(UNTIL, f'until = "{seconds}s"')
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as seeded:
        seeded.write(f"seed = {seed}\n{text}")
        seeded.flush()
        command = [PENSTOCK, "sim", "--json", "--case", case, seeded.name]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(done.stderr)
    for outcome in json.loads(done.stdout)["cases"]:
        _, *situation, choice = outcome["case"].split(", ")
        rate = outcome["report"]["throughput"] / 1e6
        yield [" ".join(situation), choice, seed, f"{rate:.3f}", seconds - DROPPED, "", choice]


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--setup", choices=SETUPS, default="source", help="(default: source)")
    parser.add_argument("--device", choices=DEVICES, help="(default: all)")
    parser.add_argument("--rest", default="", metavar="TEXT", help="of a case's name after the device: `read, x1`")
    parser.add_argument("--seeds", type=seeds, default=range(104, 107), help="N or N-M (default: 104-106)")
    parser.add_argument("--seconds", type=float, default=16.0, help="of virtual time (default: 16)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="results, CSV")
    args = parser.parse_args()
    if args.seconds <= DROPPED:
        parser.error(f"--seconds has to be more than {DROPPED:g}, as the first second does not count")
    known = set()
    if args.out.exists():
        with open(args.out, newline="") as file:
            known = {(row["situation"].split()[0], int(row["round"])) for row in csv.DictReader(file)}
    else:
        args.out.write_text(",".join(FIELDS) + "\n")
    for seed in args.seeds:
        for device in [args.device] if args.device else DEVICES:
            if (device, seed) in known:
                continue
            case = ", ".join(word for word in (args.setup, device, args.rest) if word)
            rows = list(simulate(case, seed, args.seconds))
            with open(args.out, "a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerows(rows)
            print(f"{args.setup} {device}, seed {seed}: {len(rows)} runs", file=sys.stderr)


if __name__ == "__main__":
    main()
