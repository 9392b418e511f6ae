"""The demo: four unmodified MPI programs, each under five methods and Penstock's own choice, every byte checked.

Each run is `penstock run --method M -- EXAMPLE penstock:/NAME --verify`: a file system of its own in one process
(metadata and 4 data servers, 64 KiB stripe unit). Beside each measured count stand what the source's model gives
by arithmetic (scripts/model.py) and what the source printed. The table also goes to target/demo/table.json.

    demo.py [--paper] [--only REGEX] [--scale X] [--out FILE]
"""

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import model

ROOT = Path(__file__).resolve().parent.parent
PENSTOCK = Path(os.environ.get("PENSTOCK", ROOT / "target" / "release" / "penstock"))
EXAMPLES = ROOT / "target" / "examples"
OUT = ROOT / "target" / "demo" / "table.json"
METHODS = (*model.METHODS, "auto")
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


def plan(paper, scale):
    cases = [("tile", 6, scale), ("block", 8, scale), ("flash", 4, scale), ("hard", 4, scale)]
    if paper:
        # 27 and 64 blocks of a smaller array: counts scale with the number of rows of a block.
        cases += [("block", 27, scale * 0.5), ("block", 64, scale * 0.5)]
    return cases


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--paper", action="store_true", help="also the block at 27 and 64 ranks")
    parser.add_argument("--only", default="", help="cases and methods to run, as a regular expression on `case/method`")
    parser.add_argument("--scale", type=float, default=1.0, help="size of the problems; 1 is the published one")
    parser.add_argument("--out", type=Path, default=OUT, help="where the table goes as JSON (%(default)s)")
    args = parser.parse_args()
    start = time.monotonic()
    store = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    records = []
    try:
        for case, ranks, scale in plan(args.paper, args.scale):
            for method in METHODS:
                if not re.search(args.only, f"{case}/{method}"):
                    continue
                begun = time.monotonic()
                records.append(record(case, ranks, method, scale, store))
                print(f"{case} ×{ranks} {method}: verified, {time.monotonic() - begun:.1f} s", file=sys.stderr)
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
    differ = list(disagreements(records))
    for line in differ:
        print(f"  differs: {line}")
    seconds = time.monotonic() - start
    print(f"\ndemo: {len(records)} runs, every byte verified, {len(differ)} counts differ, {seconds:.0f} s; {args.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
