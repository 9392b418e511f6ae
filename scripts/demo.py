"""The demo: four unmodified MPI programs, each under five methods and Penstock's own choice, beside MPICH's ROMIO;
every byte checked.

Each run is `penstock run --method M -- EXAMPLE penstock:/NAME --verify`. It has a file system of its own in one process:
metadata and 4 data servers, 64 KiB stripe unit. Beside each measured count stand what the source's model gives
by arithmetic (scripts/model.py) and what the source printed. ROMIO is the same program under plain mpiexec, on an
ordinary file beside the servers' stores; it and Penstock's own choice run in turn. The table also goes to
target/demo/table.json. Problems are a quarter of the published ones, which takes a minute; --full has those.

    demo.py [--full] [--paper] [--only REGEX] [--scale X] [--pairs N] [--out FILE]
"""

import argparse
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import model

ROOT = Path(__file__).resolve().parent.parent
PENSTOCK = Path(os.environ.get("PENSTOCK", ROOT / "target" / "release" / "penstock"))
EXAMPLES = ROOT / "target" / "examples"
MPIEXEC = ROOT / ".venv" / "bin" / "mpiexec"
OUT = ROOT / "target" / "demo" / "table.json"
METHODS = (*model.METHODS, "auto")
# With more ranks than cores MPICH's must yield while they wait; `penstock run` sets the same.
YIELD = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16",
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
}
QUICK = 0.25
SERVERS, STRIPE_UNIT = 4, "64KiB"
# The direction that the source's table is about; the other one is measured too.
DIRECTION = {"tile": "read", "block": "read", "flash": "write", "hard": "write"}
# In the source every client is an aggregator.
AGGREGATORS = "cb_nodes"
TIMEOUT = 280
COUNTS = ("ops_per_client", "accessed_bytes_per_client", "resent_bytes_per_client", "region_bytes")


class Failed(Exception):
    """A run that did not do what it should."""


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def run(case, ranks, method, scale, store):
    """One run; returns what the program and what Penstock reported."""
    command = [PENSTOCK, "run", "-n", ranks, "--json", "--method", method, "--store", store]
    command += ["--servers", SERVERS, "--stripe-unit", STRIPE_UNIT]
    if method != "auto":
        # The source counts requests to servers; descriptors passed on the same host would bypass them.
        command += ["--shortcut", "disable"]
    command += ["--", EXAMPLES / case, f"penstock:/{case}", "--verify", "--scale", scale]
    command += ["--hint", f"{AGGREGATORS}={ranks}"]
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=TIMEOUT, check=False)
    lines = json_lines(done.stdout)
    if done.returncode != 0 or len(lines) < 2:
        raise Failed(f"{case} {method}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    program, summary = lines[-2], lines[-1]
    if program["verified"] is not True:
        raise Failed(f"{case} {method}: {program['wrong_bytes']} wrong bytes")
    return program, summary


def romio(case, ranks, scale, store):
    """The same program with MPICH's own MPI-IO, on an ordinary file; returns what the program reported."""
    file = store / f"romio-{case}"
    command = [MPIEXEC, "-n", ranks, EXAMPLES / case, file, "--verify", "--scale", scale]
    crowded = ranks > len(os.sched_getaffinity(0))
    environment = {**(YIELD if crowded else {}), **os.environ}
    done = subprocess.run(
        [str(c) for c in command], env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    file.unlink(missing_ok=True)
    lines = json_lines(done.stdout)
    if done.returncode != 0 or not lines or lines[-1]["verified"] is not True:
        raise Failed(f"{case} with ROMIO: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return lines[-1]


def beside_romio(case, ranks, scale, store, pairs):
    """MB/s of Penstock's own choice and of ROMIO, in turn; the order changes from pair to pair."""
    rates = {"penstock": [], "romio": []}
    key = f"{DIRECTION[case]}_mb_per_s"
    runs = {
        "penstock": lambda: run(case, ranks, "auto", scale, store)[0],
        "romio": lambda: romio(case, ranks, scale, store),
    }
    for pair in range(pairs):
        for who in sorted(runs, reverse=pair % 2 == 1):
            rates[who].append(runs[who]()[key])
    ratios = [a / b for a, b in zip(rates["penstock"], rates["romio"], strict=True)]
    return {
        **{f"{who}_mb_per_s": statistics.median(rates[who]) for who in rates},
        "ratio": statistics.median(ratios),
        "least_ratio": min(ratios),
        "most_ratio": max(ratios),
    }


def direction_counts(summary, direction, ranks):
    """What the clients did in one direction, per client."""
    (file,) = summary["files"]
    did = file[direction]
    counts = list(did["methods"].values())

    def per_client(key):
        return sum(c[key] for c in counts) / ranks

    return {
        "ops_per_client": round(per_client("operations"), 2),
        "accessed_bytes_per_client": round(per_client("accessed_bytes")),
        "resent_bytes_per_client": round(per_client("resent_bytes")),
        "region_bytes": max(c["region_bytes"] for c in counts),
        "chosen": " + ".join(did["methods"]),
        "reason": did["reason"],
        "shortcut": any(c["shortcut_calls"] for c in counts),
    }


def record(case, ranks, method, scale, store):
    program, summary = run(case, ranks, method, scale, store)
    pattern = model.CASES[case](ranks, scale)
    main = DIRECTION[case]
    counts = direction_counts(summary, main, ranks)
    out = {
        "case": case,
        "method": method,
        "ranks": ranks,
        "scale": scale,
        "direction": main,
        **{key: counts[key] for key in COUNTS},
        "mb_per_s": program[f"{main}_mb_per_s"],
        "verified": program["verified"],
        "model": pattern.model(method) if method in model.METHODS else {},
        "paper": pattern.paper.get(method, {}),
        "note": pattern.notes.get(method, ""),
        "chosen": counts["chosen"],
        "reason": counts["reason"],
        "shortcut": counts["shortcut"],
        "bytes_per_client": program["bytes_per_client"],
    }
    for direction in ("write", "read"):
        counts = direction_counts(summary, direction, ranks)
        out[direction] = {**counts, "mb_per_s": program[f"{direction}_mb_per_s"]}
    return out


def number(n):
    if n is None:
        return "–"
    return f"{n:,.0f}" if float(n).is_integer() else f"{n:,.1f}"


def mib(n):
    return "–" if not n else f"{n / model.MIB:.2f}"


def size(n):
    if not n:
        return "–"
    return f"{n / model.MIB:.2f} MB" if n >= model.MIB else f"{n:,.0f} B"


def table(records):
    """Measured | model | paper, for each count."""
    header = ["case", "method", "op", "ops/client", "model", "paper", "MB accessed", "model", "paper"]
    header += ["MB resent", "model", "paper", "region", "MB/s", ""]
    rows = []
    for r in records:
        row = [f"{r['case']} ×{r['ranks']}", r["method"], r["direction"]]
        for key, text in (("ops_per_client", number), ("accessed_bytes_per_client", mib)):
            row += [text(r[key]), text(r["model"].get(key)), text(r["paper"].get(key))]
        key = "resent_bytes_per_client"
        row += [mib(r[key]), mib(r["model"].get(key)), mib(r["paper"].get(key))]
        row += [size(r["region_bytes"]), f"{r['mb_per_s']:,.0f}"]
        row.append(f"{r['chosen']}{', same-host shortcut' if r['shortcut'] else ''}" if r["method"] == "auto" else "")
        rows.append(row)
    widths = [max(len(row[i]) for row in [header, *rows]) for i in range(len(header))]
    left = {0, 1, 2, len(header) - 1}
    lines = []
    previous = None
    for row in [header, *rows]:
        if previous not in (None, row[0]):
            lines.append("")
        previous = row[0]
        cells = [c.ljust(w) if i in left else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def remarks(records):
    """Where figures differ and why, and why `auto` chose what it chose."""
    for r in records:
        name = f"{r['case']} ×{r['ranks']} {r['method']}"
        if r["note"]:
            yield f"{name}: {r['note']}"
        if r["method"] == "auto":
            yield f"{name}: {r['reason']}"


def disagreements(records):
    """Counts that are not what the model gives. Two-phase domains follow stripes, so bytes may differ by a little."""
    for r in records:
        for key, expected in r["model"].items():
            if key == "region_bytes":
                continue
            got = r[key]
            if abs(got - expected) > 0.05 * max(expected, 1):
                yield f"{r['case']} ×{r['ranks']} {r['method']}: {key} is {number(got)}, the model gives {number(expected)}"


def times(records):
    """Penstock's own choice beside ROMIO, a line for each case."""
    for r in records:
        if "romio" in r:
            b = r["romio"]
            yield (
                f"{r['case']} ×{r['ranks']} {r['direction']}: Penstock {number(round(b['penstock_mb_per_s']))} MB/s, "
                f"ROMIO {number(round(b['romio_mb_per_s']))} MB/s; "
                f"ratio {b['ratio']:.2f} ({b['least_ratio']:.2f} to {b['most_ratio']:.2f})"
            )


def in_short(records, pairs):
    """What was shown, for somebody who does not know the methods."""
    runs = [r for r in records if r["method"] == "auto"]
    moved = sum(2 * r["ranks"] * r["bytes_per_client"] for r in records)
    programs = len({r["case"] for r in records})
    yield (
        f"{programs} MPI program{'s' if programs != 1 else ''}, not changed, wrote and read {moved / 1e6:,.0f} MB in "
        "Penstock's parallel file system; every byte was right."
    )
    plain = {(r["case"], r["ranks"]): r["ops_per_client"] for r in records if r["method"] == "posix"}
    known = [r for r in runs if (r["case"], r["ranks"]) in plain]
    if known:
        ours = sum(r["ops_per_client"] for r in known)
        theirs = sum(plain[r["case"], r["ranks"]] for r in known)
        yield (
            f"What takes {number(round(theirs))} operations per process as plain reads and writes "
            f"took {number(round(ours))} as Penstock chose."
        )
    beside = [r["romio"] for r in runs if "romio" in r]
    if beside:
        least, most = (f"{pick(b['ratio'] for b in beside):.1f}" for pick in (min, max))
        yield (
            f"It ran {least if least == most else f'{least} to {most}'} times as fast as MPICH's own MPI-IO (ROMIO) on an "
            f"ordinary file of this machine (medians of {pairs} pairs of runs; single pairs from "
            f"{min(b['least_ratio'] for b in beside):.1f} to {max(b['most_ratio'] for b in beside):.1f}; "
            "`make bench` measures more)."
        )
    yield "Next: `make install`, then `penstock run -n 4 -- ./your-program penstock:/file`."


def plan(paper, scale):
    cases = [("tile", 6, scale), ("block", 8, scale), ("flash", 4, scale), ("hard", 4, scale)]
    if paper:
        # 27 and 64 blocks of a smaller array: counts scale with the number of rows of a block.
        cases += [("block", 27, scale * 0.5), ("block", 64, scale * 0.5)]
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--full", action="store_true", help="the published sizes; 5 minutes")
    parser.add_argument("--paper", action="store_true", help="the same, and the block at 27 and 64 ranks")
    parser.add_argument("--only", default="", help="cases and methods to run, as a regular expression on `case/method`")
    parser.add_argument("--scale", type=float, help=f"size of the problems; 1 is the published one [{QUICK}]")
    parser.add_argument("--pairs", type=int, default=5, help="runs beside ROMIO; 0 leaves it out [5]")
    parser.add_argument("--out", type=Path, default=OUT, help="where the table goes as JSON (%(default)s)")
    args = parser.parse_args()
    asked = args.scale if args.scale is not None else 1.0 if args.full or args.paper else QUICK
    start = time.monotonic()
    store = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    records = []
    try:
        for case, ranks, scale in plan(args.paper, asked):
            for method in METHODS:
                if not re.search(args.only, f"{case}/{method}"):
                    continue
                begun = time.monotonic()
                records.append(record(case, ranks, method, scale, store))
                print(f"{case} ×{ranks} {method}: verified, {time.monotonic() - begun:.1f} s", file=sys.stderr)
                if method == "auto" and args.pairs > 0:
                    begun = time.monotonic()
                    records[-1]["romio"] = beside_romio(case, ranks, scale, store, args.pairs)
                    print(f"{case} ×{ranks} beside ROMIO: {time.monotonic() - begun:.1f} s", file=sys.stderr)
    except (Failed, subprocess.TimeoutExpired) as why:
        print(f"demo: failed: {why}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(store, ignore_errors=True)
        args.out.parent.mkdir(parents=True, exist_ok=True)
        args.out.write_text(json.dumps(records, indent=1) + "\n")
    print(table(records))
    print("\nMB here = 2^20 bytes, per client, as in the source; MB/s = 10^6 bytes of all clients.")
    print("model: table I of the source by arithmetic; paper: its tables II to IV.")
    for line in remarks(records):
        print(f"  {line}")
    print("\nPenstock's own choice beside MPICH's ROMIO on an ordinary file, in turn:")
    for line in times(records):
        print(f"  {line}")
    differ = list(disagreements(records))
    for line in differ:
        print(f"  differs: {line}")
    seconds = time.monotonic() - start
    print(f"\ndemo: {len(records)} runs, every byte verified, {len(differ)} counts differ, {seconds:.0f} s; {args.out}")
    print(f"\n{' '.join(in_short(records, args.pairs))}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
