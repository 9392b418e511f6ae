"""Which scheduling algorithm for which situation, on a real data server in real time (experiments/scheduling/real-time.md).

    .venv/bin/python experiments/scheduling/real.py measure --device graphene --out real.csv      48 situations, 15 minutes
    .venv/bin/python experiments/scheduling/real.py table experiments/scheduling/real.csv         what the choices would give
    .venv/bin/python experiments/scheduling/real.py table --cases real.csv                        each situation as well
    .venv/bin/python experiments/scheduling/real.py measure --learn --at-most 200 --device graphene --out learn.csv   only the
                                                                             algorithms, until it is sure which are right
    .venv/bin/python experiments/scheduling/real.py means learn.csv > measured-real.csv           for learn_own.py

The source's cross-product {write, read} x {1, 4 programs} x three kinds of files x {16, 256 KiB} x {8, 16 processes},
on one device. The kinds are one file contiguous, one file strided, a file per process. For each situation a
deployment with one data server is started, whose modelled device answers in real time. MPI programs (pattern.c) run
until they are told to stop.

Meanwhile the server's algorithm is changed again and again (`penstock tune sched=`). A round is a window under each algorithm,
in random order, so that drift affects all alike. The first seconds of the programs do not count, nor does the time just after a
change. Each round has `sched=tree` and `sched=online`, too; `online` starts afresh each time and runs longer, and all but its
first second counts. Rates are the server's own (`penstock status`): bytes by its clock.

With --at-most, further rounds follow while time is left. They have the algorithms of which it is uncertain whether they reach 95%
of the best (three standard errors).

Results are appended to a file situation by situation; a situation that is in the file is not measured again. Several situations
run side by side (--jobs and --small), since disks mostly make programs wait: the machine has to have processor time left. Their
order is random, so that those that need most processor time do not meet.
"""

import argparse
import csv
import itertools
import json
import math
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PENSTOCK = ROOT / "target" / "release" / "penstock"
ALGORITHMS = ["to", "to-agg", "sjf", "mlf", "aioli"]
TREES = ["t1", "t2", "t3", "t4", "own"]
# Sequential / random throughput for reads and writes, as the trees' source gives it (TS table 3.4).
RATIOS = {"pastel": "38.91:21.29", "graphene": "40.68:15.12", "suno": "25.46:8.17", "edel": "2.37:0.66"}
# Under CFQ each thread of the server has a queue of its own, which hinders any scheduler: see the README. Disks answer half as fast
# as they would, the two fastest devices a quarter as fast. Programs and servers of one machine would be slower than
# they are.
MODELS = {
    "pastel": "pastel,queue=deadline,scale=0.5",
    "graphene": "graphene,queue=deadline,scale=0.5",
    "suno": "suno,queue=deadline,scale=0.25",
    "edel": "edel,scale=0.25",
}
# How far apart parts of a shared file and files lie, and how much of all of it is used: memory keeps what is written.
SHARED_PART = 64 << 20
OWN_FILE = 512 << 20
USED = 1 << 30
FIELDS = ["situation", "choice", "round", "mb_per_s", "seconds", "queued", "ran"]
STARTED = 120  # seconds that programs may take to begin
NEAR, WORSE = 0.95, 0.9
SURE = 3.0  # standard errors
LEAST = 0.005  # a standard error of a few rounds may be small by chance


@dataclass(frozen=True)
class Situation:
    """One of the cross-product; its name is that of the same one on virtual time."""

    device: str
    op: str
    programs: int
    own: bool
    contiguous: bool
    large: bool
    processes: int

    @property
    def name(self):
        """In words."""
        files, order = "N-N" if self.own else "N-1", "contig" if self.contiguous else "strided"
        size = "large" if self.large else "small"
        return f"{self.device} {self.op} x{self.programs} {files} {order} {size} {self.processes}"

    @property
    def size(self):
        """Bytes of an access."""
        return (256 if self.large else 16) << 10

    @property
    def distance(self):
        """Bytes from the start of a file to the start of the next one on the device."""
        return OWN_FILE if self.own else SHARED_PART * self.processes

    def command(self, number, binary, directory, flag):
        """A program of it."""
        each = min(USED // (self.programs * self.processes), SHARED_PART)
        words = [PENSTOCK, "run", "--quiet", "-d", directory, "--method", "posix", "-n", self.processes, "--", binary]
        words += [f"penstock:/f{number}", self.op, "own" if self.own else "shared"]
        words += ["contiguous" if self.contiguous else "strided", self.size, each // self.size, 0, flag, SHARED_PART]
        return list(map(str, words))


def situations(device):
    """All 48, in the order of the experiment on virtual time."""
    files = [(False, True), (False, False), (True, True)]
    for op, programs, (own, contiguous), large, processes in itertools.product(
        ("write", "read"), (1, 4), files, (False, True), (8, 16)
    ):
        yield Situation(device, op, programs, own, contiguous, large, processes)


@dataclass(frozen=True)
class Plan:
    """How long what is measured; seconds."""

    rounds: int
    window: float
    dropped: float
    online: float
    warm_up: float
    learn: bool
    at_most: float
    online_dropped: float = 1.0

    def choices(self):
        """What a round is made of: each with the seconds that do not count and those that do."""
        fixed = {choice: (self.dropped, self.window) for choice in ALGORITHMS}
        if self.learn:
            return fixed
        live = {"tree": (self.dropped, self.window)}
        if self.online > self.online_dropped:
            live["online"] = (self.online_dropped, self.online - self.online_dropped)
        return fixed | live

    def seconds(self):
        """Of a situation at most, without starting its programs."""
        return max(self.at_most, self.warm_up + self.rounds * sum(map(sum, self.choices().values())))

    def goes_on(self, algorithms, spent):
        """There is time for a round of these."""
        return spent + len(algorithms) * (self.dropped + self.window) <= self.at_most


def penstock(*words):
    """Runs a command to its end; its output."""
    done = subprocess.run([str(PENSTOCK), *map(str, words)], capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"penstock {' '.join(map(str, words))}: exit code {done.returncode}\n{done.stderr}")
    return done.stdout


def counters(directory):
    """Bytes moved, by when (seconds of the servers' clocks), what is in the queues, and what runs."""
    servers = json.loads(penstock("status", "--json", "-d", directory))["servers"]
    moved = sum(s["bytes_read"] + s["bytes_written"] for s in servers)
    queued = sum(s["sched"]["queued"] + s["sched"]["serving"] for s in servers)
    ran = servers[0]["sched"]["algorithms"]
    return moved, statistics.mean(s["uptime_ms"] for s in servers) / 1e3, queued, "+".join(ran)


def window(directory, algorithm, dropped, seconds):
    """What an algorithm gives: MB/s, seconds, requests at the server, what ran at the end."""
    penstock("tune", f"sched={algorithm}", "-d", directory)
    time.sleep(dropped)
    moved, began, first, _ = counters(directory)
    time.sleep(seconds)
    more, ended, last, ran = counters(directory)
    return (more - moved) / (ended - began) / 1e6, ended - began, (first + last) / 2, ran


class Programs:
    """The programs of a situation; they go on until they are told."""

    def __init__(self, situation, binary, directory):
        self.flag = Path(directory) / "going"
        self.flag.write_bytes(b"0")
        self.running = [
            subprocess.Popen(
                situation.command(number, binary, Path(directory) / "fs", self.flag),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            for number in range(situation.programs)
        ]
        late = threading.Timer(STARTED, self.kill)
        late.start()
        try:
            for program in self.running:
                if program.stdout.readline() != "begun\n":
                    raise self.failed(program, "did not begin")
        except BaseException:
            self.kill()
            raise
        finally:
            late.cancel()

    def failed(self, program, what):
        """An error that says what a program said."""
        self.kill()
        _, said = program.communicate(timeout=STARTED)
        return RuntimeError(f"a program {what} (exit code {program.returncode}): {said.strip() or 'it said nothing'}")

    def check(self):
        """All are still running."""
        for program in self.running:
            if program.poll() is not None:
                raise self.failed(program, "ended early")

    def tell(self):
        """They end after the access that they are at."""
        # The programs have mapped it: it must not become shorter meanwhile.
        with open(self.flag, "r+b") as flag:
            flag.write(b"1")

    def stop(self):
        """Tells them, and waits until they have ended."""
        self.tell()
        for program in self.running:
            program.communicate(timeout=STARTED)
            if program.returncode:
                raise self.failed(program, "failed")

    def kill(self):
        """Ends them, whatever they do."""
        self.tell()
        for program in self.running:
            if program.poll() is None:
                program.terminate()


def measure(situation, plan, binary, model, seed):
    """The rows of a situation."""
    draw = random.Random(f"{seed} {situation.name}")
    rows = []
    with tempfile.TemporaryDirectory(prefix="pst-") as place:
        directory = Path(place) / "fs"
        device = f"{model or MODELS[situation.device]},distance={situation.distance}"
        penstock("up", directory, "--servers", 1, "--device", device, "--tune", f"ratio={RATIOS[situation.device]}")
        programs = None
        try:
            # Under the first algorithm programs begin; it is none of those that count.
            penstock("tune", "sched=to", "-d", directory)
            programs = Programs(situation, binary, place)
            began = time.monotonic()
            time.sleep(plan.warm_up)
            choices = plan.choices()
            for number in itertools.count():
                round_of = list(choices)
                if number >= plan.rounds:
                    going = unsure(rows)
                    round_of = [c for c in choices if c in going]
                    if not round_of or not plan.goes_on(round_of, time.monotonic() - began):
                        break
                for choice in draw.sample(round_of, len(round_of)):
                    rows.append([choice, number, *window(directory, choice, *choices[choice])])
            programs.check()
            programs.stop()
        finally:
            if programs:
                programs.kill()
            penstock("down", directory)
    return [
        [situation.name, choice, number, f"{rate:.3f}", f"{took:.2f}", f"{queued:g}", ran]
        for choice, number, rate, took, queued, ran in rows
    ]


def unsure(rows):
    """The algorithms that may be right, and `tree`; nothing if it is sure of each algorithm whether it is."""
    rates = {}
    for choice, _, rate, *_ in rows:
        rates.setdefault(choice, []).append(rate)
    means = {a: statistics.mean(rates[a]) for a in ALGORITHMS}
    top = max(means, key=means.get)
    if not means[top]:
        return []
    # What moved nothing in any round is surely not right.
    doubts = {a: max(LEAST, error(rates[a]) / means[a]) if means[a] else LEAST for a in ALGORITHMS}
    possible, open_ = [], False
    for algorithm, mean in means.items():
        part, doubt = mean / means[top], SURE * math.hypot(doubts[algorithm], doubts[top])
        if part * (1 + doubt) >= NEAR:
            possible.append(algorithm)
            open_ |= algorithm != top and part * (1 - doubt) < NEAR
    return [*possible, "tree"] if open_ else []


def measure_all(args):
    """The `measure` command."""
    wanted = [s for s in situations(args.device) if re.search(args.situations, s.name)]
    if not wanted:
        sys.exit(f"no situation's name has {args.situations} in it; one is `{next(situations(args.device)).name}`")
    out = Path(args.out)
    done = set()
    if out.exists():
        done = {row["situation"] for row in read(out)}
    left = [s for s in wanted if s.name not in done]
    random.Random(args.seed).shuffle(left)
    plan = Plan(args.rounds, args.seconds, args.dropped, args.online, args.warm_up, args.learn, args.at_most)
    print(
        f"{len(left)} of {len(wanted)} situations, up to {plan.seconds():.0f} s each, {args.jobs} + {args.small} at a time",
        file=sys.stderr,
    )
    writing, began, number = threading.Lock(), time.monotonic(), 0
    pools = {large: ThreadPoolExecutor(jobs) for large, jobs in ((False, args.small), (True, args.jobs))}
    with tempfile.TemporaryDirectory(prefix="pst-") as place, pools[False], pools[True]:
        binary = Path(place) / "pattern"
        source = Path(__file__).with_name("pattern.c")
        subprocess.run([ROOT / ".venv" / "bin" / "mpicc", "-O2", "-o", binary, source], check=True)

        def one(situation):
            nonlocal number
            rows = measure(situation, plan, binary, args.model, args.seed)
            with writing:
                new = not out.exists()
                with open(out, "a", newline="") as file:
                    writer = csv.writer(file)
                    if new:
                        writer.writerow(FIELDS)
                    writer.writerows(rows)
                number += 1
                text = " ".join(f"{c} {m:.1f}" for c, m in means(rows).items())
                print(
                    f"{number}/{len(left)} {time.monotonic() - began:.0f} s: {situation.name}: {text}", file=sys.stderr
                )

        failed = []
        for situation, future in [(s, pools[s.large].submit(one, s)) for s in left]:
            try:
                future.result()
            except (RuntimeError, subprocess.SubprocessError, OSError) as error:
                failed.append(situation.name)
                print(f"{situation.name}: {error}", file=sys.stderr)
    if failed:
        sys.exit(f"{len(failed)} situations could not be measured: the same command tries them again")


def means(rows):
    """The mean rate by choice."""
    rates = {}
    for _, choice, _, rate, *_ in rows:
        rates.setdefault(choice, []).append(float(rate))
    return {choice: statistics.mean(values) for choice, values in rates.items()}


def read(path):
    """The rows of a file of results."""
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


def load(paths):
    """Rates by situation and choice, by round. Runs are of machines or models of different speed. So in each
    situation all runs' rates are scaled to the mean of the runs. An algorithm then does not seem slow for having
    had more rounds in a slow run."""
    runs = []
    for path in paths:
        run = {}
        for row in read(path):
            rates = run.setdefault(row["situation"], {})
            rates.setdefault(row["choice"], []).append(float(row["mb_per_s"]))
        runs.append(run)
    found = {}
    for situation in dict.fromkeys(itertools.chain.from_iterable(runs)):
        of_it = [run[situation] for run in runs if situation in run]
        speeds = [statistics.mean(statistics.mean(rates[a]) for a in ALGORITHMS) for rates in of_it]
        together = found[situation] = {}
        for rates, speed in zip(of_it, speeds, strict=True):
            factor = statistics.mean(speeds) / speed if speed else 1.0
            for choice, values in rates.items():
                together.setdefault(choice, []).extend(rate * factor for rate in values)
    return found


def choices(setup):
    """What each tree says of each situation of a set-up, from the trees themselves."""
    command = [
        "cargo",
        "run",
        "--quiet",
        "--release",
        "-p",
        "penstock-sched",
        "--example",
        "choices",
        "--",
        setup,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit code {done.returncode}\n{done.stderr}")
    return {row["case"]: row for row in csv.DictReader(done.stdout.splitlines())}


def error(rates):
    """Standard error of the mean."""
    return statistics.stdev(rates) / len(rates) ** 0.5 if len(rates) > 1 else 0.0


def best(rates, of=slice(None)):
    """The algorithm with the largest mean, over the rounds `of`."""
    return max(ALGORITHMS, key=lambda a: statistics.mean(rates[a][of]))


def inputs(situation):
    """What T3 sees of a situation: without the number of processes, but for that of their files."""
    words = situation.split()
    return tuple(words if words[3] == "N-N" else words[:-1])


def alike(found, of=slice(None)):
    """The algorithm that gave the largest part of the best rate over all situations with the same inputs of T3."""
    sums = {}
    for situation, rates in found.items():
        given = {a: statistics.mean(rates[a][of]) for a in ALGORITHMS}
        parts = sums.setdefault(inputs(situation), dict.fromkeys(ALGORITHMS, 0.0))
        for algorithm, rate in given.items():
            parts[algorithm] += rate / max(given.values())
    return {key: max(parts, key=parts.get) for key, parts in sums.items()}


def judge(name, found, chosen, rounds=slice(None)):
    """A line of the table: what `chosen` gives in each situation, beside the oracle, over these rounds."""
    right = wrong = worse = 0
    gains, possible = [], []
    for situation, rates in found.items():
        given = {a: statistics.mean(rates[a][rounds]) for a in ALGORITHMS}
        top = max(ALGORITHMS, key=given.get)
        oracle = given[top]
        what = chosen(situation, rates)
        judged = rounds if what in given else slice(None)
        rate = statistics.mean(rates[what][judged])
        right += rate >= NEAR * oracle
        doubt = math.hypot(error(rates[what][judged]) / rate, error(rates[top][rounds]) / oracle)
        wrong += what != top and rate / oracle * (1 + 2 * doubt) < NEAR
        worse += rate < WORSE * given["to"]
        gains.append(rate / given["to"] - 1)
        possible.append(oracle / given["to"] - 1)
    share = sum(gains) / max(sum(possible), 1e-9)
    n = len(found)
    text = f"{name:<11} {right:>5} ({right / n:>4.0%}) {wrong:>11}"
    return f"{text} {statistics.median(gains):>12.1%} {share:>10.0%} {worse:>13}"


def table(found, trees):
    """The lines of the table."""
    yield f"{len(found)} situations, {min(len(r['to']) for r in found.values())} rounds"
    yield f"{'choice':<11} {'within 5%':>12} {'surely not':>11} {'median gain':>12} {'of oracle':>10} {'worse > 10%':>13}"
    for algorithm in ALGORITHMS:
        yield judge(algorithm, found, lambda s, r, a=algorithm: a)
    for tree in TREES if trees else []:
        # Straight through is time order where each request is seen.
        yield judge(tree, found, lambda s, r, t=tree: trees[s][t].replace("noop", "to"))
    for live in ("tree", "online"):
        if all(live in rates for rates in found.values()):
            yield judge("sched=tree" if live == "tree" else live, found, lambda s, r, c=live: c)
    if all(len(rates["to"]) > 1 for rates in found.values()):
        even, odd = slice(0, None, 2), slice(1, None, 2)
        yield judge("known", found, lambda s, r: best(r, even), odd)
        halves = alike(found, even)
        yield judge("inputs/half", found, lambda s, r: halves[inputs(s)], odd)
    whole = alike(found)
    yield judge("inputs", found, lambda s, r: whole[inputs(s)])
    yield judge("oracle", found, lambda s, r: best(r))
    errors = [error(rates[a]) / statistics.mean(rates[a]) for rates in found.values() for a in ALGORITHMS]
    many = sum(e > 0.025 for e in errors)
    yield f"standard error of a mean: median {statistics.median(errors):.1%}, above 2.5% in {many} of {len(errors)}"


def cases(found, trees):
    """A line for each situation."""
    shown = [*ALGORITHMS, "tree", "online"]
    yield f"{'MB/s':<44}" + "".join(f"{c:>15}" for c in shown) + "".join(f"{t:>8}" for t in TREES if trees)
    for situation, rates in found.items():
        text = f"{situation:<44}"
        for choice in shown:
            values = rates.get(choice, [0.0])
            text += f"{statistics.mean(values):>9.2f}±{error(values):<5.2f}"
        yield text + "".join(f"{trees[situation][t]:>8}" for t in TREES if trees)


def agreement(found, path):
    """How well the orders of the algorithms agree with those of measurements on virtual time."""
    with open(path, newline="") as file:
        simulated = {row["case"]: row for row in csv.DictReader(line for line in file if not line.startswith("#"))}
    pairs = alike = near = known = 0
    for situation, rates in found.items():
        if situation not in simulated:
            continue
        real = {a: statistics.mean(rates[a]) for a in ALGORITHMS}
        expected = {a: float(simulated[situation][a]) for a in ALGORITHMS}
        for a, b in itertools.combinations(ALGORITHMS, 2):
            if not 1 / 1.1 < expected[a] / expected[b] < 1.1:
                pairs += 1
                alike += (expected[a] < expected[b]) == (real[a] < real[b])
        known += 1
        near += real[max(ALGORITHMS, key=expected.get)] >= NEAR * max(real.values())
    if known:
        yield f"on virtual time ({path}): {alike} of {pairs} pairs that are 10% apart there are in the same order here,"
        yield f"and its best is within 5% of the best here in {near} of {known} situations"


def show(args):
    """The `table` command."""
    found = load(args.results)
    trees = None if args.no_trees else choices(args.setup)
    if args.cases:
        print("\n".join(cases(found, trees)), end="\n\n")
    print("\n".join(table(found, trees)))
    if args.virtual:
        print("\n".join(agreement(found, args.virtual)))


def mean_rates(args):
    """The `means` command: what `learn_own.py` reads."""
    print("# MB/s (real.py means), means over all rounds and their standard errors")
    print("case," + ",".join(f"{a},{a} error" for a in ALGORITHMS))
    for situation, rates in sorted(load(args.results).items()):
        figures = (f"{statistics.mean(rates[a]):.3f},{error(rates[a]):.3f}" for a in ALGORITHMS)
        print(f"{situation},{','.join(figures)}")


def main():
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True, metavar="measure | table | means")
    m = commands.add_parser("measure", help="run the situations, append to a file of results")
    m.add_argument("--device", default="graphene", choices=RATIOS, help="(default: graphene)")
    m.add_argument(
        "--model",
        help="with options: `graphene,queue=cfq` (default: disks have queue=deadline, suno and edel scale=0.25)",
    )
    m.add_argument("--situations", default="", metavar="REGEX", help="those whose name matches (default: all 48)")
    m.add_argument("--seconds", type=float, default=3.0, help="of a window that count (default: 3)")
    m.add_argument("--dropped", type=float, default=1.0, help="seconds after a change that don't (default: 1)")
    m.add_argument("--rounds", type=int, default=4, help="windows under each algorithm (default: 4)")
    m.add_argument(
        "--online", type=float, default=9.0, help="seconds under sched=online in a round; 0: none (default: 9)"
    )
    m.add_argument("--warm-up", type=float, default=5.0, help="seconds before the first round, under TO (default: 5)")
    m.add_argument("--learn", action="store_true", help="only the algorithms, for `means`: no `tree` and `online`")
    m.add_argument(
        "--at-most",
        type=float,
        default=0.0,
        metavar="SECONDS",
        help="go on for so long, if need be, with algorithms of which it is not sure whether they are right (default: 0)",
    )
    m.add_argument("--jobs", type=int, default=4, help="situations with large requests at a time (default: 4)")
    m.add_argument(
        "--small", type=int, default=4, help="those with small ones, which need more of the cores (default: 4)"
    )
    m.add_argument("--seed", type=int, default=1, help="of the orders in which algorithms run (default: 1)")
    m.add_argument(
        "--out", required=True, metavar="FILE", help="results, CSV; what it has already is not measured again"
    )
    m.set_defaults(run=measure_all)
    t = commands.add_parser("table", help="what the choices give, from files of results")
    t.add_argument("results", nargs="+", metavar="FILE")
    t.add_argument("--cases", action="store_true", help="show each situation, too")
    t.add_argument("--no-trees", action="store_true", help="leave the trees out (they are asked with cargo)")
    t.add_argument(
        "--setup", default="alone", choices=["source", "alone", "four"], help="of virtual.py's results (default: alone)"
    )
    t.add_argument("--virtual", metavar="FILE", help="compare with measurements on virtual time (measured.csv)")
    t.set_defaults(run=show)
    n = commands.add_parser("means", help="mean rates by situation, for learn_own.py")
    n.add_argument("results", nargs="+", metavar="FILE")
    n.set_defaults(run=mean_rates)
    args = parser.parse_args()
    if shutil.which("cargo") is None and not getattr(args, "no_trees", True):
        sys.exit("cargo is needed to ask the trees: install Rust, or use --no-trees")
    args.run(args)


if __name__ == "__main__":
    main()
