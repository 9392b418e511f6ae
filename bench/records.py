"""The records of `make bench`: what each measures, and what it is to reach.

`kind` names the method of `bench.Bench` that measures a record; the other keys are its parameters. Names are explained in bench.py.
"""

import statistics


class Goal:
    """What a record is to reach: in words, and as a test of its result (and of all results of its kind)."""

    def __init__(self, words, met):
        self.words, self.met = words, met


def at_least(ratio, peer=""):
    return Goal(f">= {ratio:g}x{peer}", lambda r, _: r["ratio"]["median"] >= ratio)


def rate_of(least, unit="/s"):
    return Goal(f">= {least:,.0f}{unit}", lambda r, _: r["penstock"] >= least)


REPORTED = Goal("reported", lambda r, _: None)


def io_case(case, op, ranks, goal, coll=1, shortcut=None, **keys):
    """An access pattern of bench/io.c, by collective calls or independent ones, by descriptors or requests alone."""
    return {
        "kind": "io",
        "coll": coll,
        "shortcut": shortcut,
        "case": case,
        "op": op,
        "ranks": ranks,
        "keys": keys,
        "goal": goal,
    }


TWICE = Goal("min(2x ROMIO, 0.7x memcpy)", lambda r, _: r["ratio"]["median"] >= 2 or r["of_memcpy"] >= 0.7)
RECORDS = {
    "tile/read": io_case("tile", "read", 6, TWICE),
    "block/read": io_case("block", "read", 8, TWICE, n=600),
    "block/write": io_case("block", "write", 8, TWICE, n=600),
    "flash/read": io_case("flash", "read", 4, TWICE),
    "flash/write": io_case("flash", "write", 4, TWICE),
    "contig/1MiB/write": io_case("contig", "write", 4, at_least(0.9), piece=1 << 20, total=256 << 20, sync=1),
    "contig/1MiB/read": io_case("contig", "read", 4, at_least(0.9), piece=1 << 20, total=256 << 20),
    "contig/4MiB/write": io_case("contig", "write", 4, at_least(0.9), piece=4 << 20, total=256 << 20, sync=1),
    "contig/4MiB/read": io_case("contig", "read", 4, at_least(0.9), piece=4 << 20, total=256 << 20),
    "hard/write": io_case("hard", "write", 4, at_least(1), total=128 << 20),
    "hard/read": io_case("hard", "read", 4, at_least(1), total=128 << 20),
    "view/vector-64M": {
        "kind": "view",
        "goal": Goal("< 1 ms, < 1 MiB", lambda r, _: r["penstock"] > 1000 and r["memory_kib"]["penstock"] < 1024),
    },
}
for label, size in (("256B", 256), ("4KiB", 4096), ("64KiB", 65536)):
    for op in ("write", "read"):
        RECORDS[f"noncontig/{label}/{op}"] = io_case("noncontig", op, 4, TWICE, piece=size, total=64 << 20)
# The same by independent calls; those with holes between the regions of a rank are the hardest.
for base in [name for name, record in RECORDS.items() if record["kind"] == "io"]:
    RECORDS[f"independent/{base}"] = {**RECORDS[base], "coll": 0}
RECORDS["independent/noncontig/256B/write"]["goal"] = at_least(1.2)
# With the servers in the path.
for base, goal in (
    ("hard/write", rate_of(1.5e9, " B/s")),
    ("hard/read", rate_of(1.35e9, " B/s")),
    ("noncontig/4KiB/write", at_least(0.7)),
    ("noncontig/4KiB/read", at_least(0.7)),
    ("block/read", at_least(0.8)),
    ("block/write", at_least(0.8)),
    ("tile/read", at_least(0.8)),
    ("contig/1MiB/write", at_least(0.8)),
    ("independent/noncontig/256B/write", at_least(1.2)),
):
    RECORDS[f"server/{base}"] = {**RECORDS[base], "shortcut": "disable", "goal": goal}
for op in ("write", "read"):
    RECORDS[f"shared/{op}"] = {
        **io_case("shared", op, 4, None, piece=64, total=64 * 4 * 500),
        "kind": "shared",
        "goal": Goal("<= 60 us a call", lambda r, _: r["us_per_call"]["penstock"] <= 60),
    }
for name, base in (
    ("auto/tile", "tile/read"),
    ("auto/block-read", "block/read"),
    ("auto/block-write", "block/write"),
    ("auto/flash-write", "flash/write"),
    ("auto/flash-read", "flash/read"),
    ("auto/noncontig-4KiB-write", "noncontig/4KiB/write"),
    ("auto/noncontig-4KiB-read", "noncontig/4KiB/read"),
    ("auto/noncontig-256B-write", "noncontig/256B/write"),
    ("auto/noncontig-256B-read", "noncontig/256B/read"),
    ("auto/noncontig-64KiB-write", "noncontig/64KiB/write"),
    ("auto/noncontig-64KiB-read", "noncontig/64KiB/read"),
    ("auto/contig-1MiB-write", "contig/1MiB/write"),
    ("auto/contig-1MiB-read", "contig/1MiB/read"),
    ("auto/contig-4MiB-write", "contig/4MiB/write"),
    ("auto/contig-4MiB-read", "contig/4MiB/read"),
    ("auto/hard-write", "hard/write"),
    ("auto/hard-read", "hard/read"),
):
    RECORDS[name] = {**RECORDS[base], "kind": "auto", "goal": at_least(0.95, " best method")}
    # By requests on both sides.
    RECORDS[name.replace("/", "/server/")] = {**RECORDS[name], "shortcut": "disable"}
PACK = Goal(
    ">= 1x, mean >= 1.5x",
    lambda r, all_of_it: r["ratio"]["median"] >= 1 and statistics.mean(o["ratio"]["median"] for o in all_of_it) >= 1.5,
)
for shape in (
    "contig",
    "vector-8B",
    "vector-64B",
    "vector-4KiB",
    "subarray-3d",
    "indexed",
    "struct",
    "flash",
):
    for op in ("pack", "unpack"):
        for mpi in ("mpich", "openmpi"):
            RECORDS[f"{op}/{shape}/{mpi}"] = {
                "kind": "pack",
                "op": op,
                "shape": shape,
                "mpi": mpi,
                "goal": PACK,
            }
for op in ("create", "stat", "open"):
    RECORDS[f"meta/{op}"] = {"kind": "meta", "op": op, "figure": f"{op}/depth 1", "goal": rate_of(25_000)}
    RECORDS[f"meta/{op}-batch"] = {"kind": "meta", "op": op, "figure": f"{op}/batch 1000", "goal": rate_of(100_000)}
WITHIN = Goal("within 25 us", lambda r, _: r["us_per_call"] - r["us_per_call_of_peer"] <= 25)
for op in ("create", "stat", "open"):
    RECORDS[f"mount/small/{op}"] = {"kind": "small", "op": op, "servers": 4, "goal": REPORTED}
for op in ("read", "write"):
    # Striped files go through the daemon; files of one server are the kernel's.
    for files, servers in (("", 2), ("whole/", 1)):
        shared = {"kind": "mount", "op": op, "servers": servers}
        RECORDS[f"mount/{files}1MiB/{op}"] = {**shared, "piece": 1 << 20, "goal": at_least(0.8)}
        RECORDS[f"mount/{files}4KiB/{op}"] = {**shared, "piece": 4096, "goal": WITHIN}
RECORDS["meta/create-durable"] = {
    "kind": "meta",
    "op": "create",
    "figure": "create and sync/64 connections",
    "goal": REPORTED,
}
for algorithm in ("noop", "to", "to-agg", "sjf", "mlf", "aioli", "sw", "twins", "wfq", "srtf"):
    for files in (1, 16, 10_000):
        RECORDS[f"sched/{algorithm}/{files}-files"] = {
            "kind": "sched",
            "algorithm": algorithm,
            "files": files,
            "goal": Goal(
                ">= 300,000/s, median <= 1 us", lambda r, _: r["ratio"]["median"] >= 1 and r["p50_ns"] <= 1000
            ),
        }
for op in ("write", "read"):
    for label, piece in (("4KiB", 4096), ("256KiB", 256 << 10)):
        RECORDS[f"sched/server/{label}/{op}"] = {
            "kind": "sched_server",
            "op": op,
            "piece": piece,
            "total": 64 << 20 if piece < 65536 else 512 << 20,
            "words": ("sched=to", "sched=noop"),
            "peer": "no scheduler",
            "goal": at_least(0.97, " without a scheduler"),
        }
        RECORDS[f"sched/trace/{label}/{op}"] = {
            **RECORDS[f"sched/server/{label}/{op}"],
            "words": ("trace=on", "trace=off"),
            "peer": "no trace",
            "goal": at_least(0.97, " without a trace"),
        }
RECORDS["sched/decisions/4KiB/write"] = {
    "kind": "sched_decisions",
    "op": "write",
    "piece": 4096,
    "total": 64 << 20,
    "goal": REPORTED,
}
for op in ("write", "read"):
    RECORDS[f"tcp/encrypted/{op}"] = {
        "kind": "transport",
        "op": op,
        "goal": Goal(
            ">= 0.5x, <= 1.2 CPU-s/GB more",
            lambda r, _: r["ratio"]["median"] >= 0.5 and r["cpu_s_per_gb_more"] <= 1.2,
        ),
    }
    for label, message in (("256KiB", 256 << 10), ("1MiB", 1 << 20)):
        RECORDS[f"tcp/plain/{label}/{op}"] = {"kind": "sockets", "op": op, "message": message, "goal": at_least(0.6)}
RECORDS["security/hostile"] = {"kind": "hostile", "goal": at_least(0.5)}
# One user against another, both at the usual priority.
RECORDS |= {f"security/{how}": {"kind": "stranger", "how": how, "goal": at_least(0.5)} for how in ("takes", "disturbs")}
for label, piece in (("64KiB", 64 << 10), ("1MiB", 1 << 20)):
    RECORDS[f"security/others-file/{label}"] = {"kind": "others_file", "piece": piece, "goal": REPORTED}
RECORDS["memory/64-clients"] = {
    "kind": "memory",
    "goal": Goal("<= 256 MiB", lambda r, _: r["penstock"] <= 256),
}
# By plain files and with servers in the path; the goal of a call counts one layer.
NO_SLOWER = at_least(0.97)
A_CALL = Goal("<= 120 ns a call", lambda r, _: r["ns_a_call"]["median"] <= 120)
for label, path, keys in (
    ("files/64KiB", "files", {"piece": 64 << 10, "calls": 8192, "goal": NO_SLOWER}),
    ("files/call", "files", {"piece": 1, "calls": 500_000, "goal": A_CALL}),
    ("descriptors/64KiB", "descriptors", {"piece": 64 << 10, "total": 64 << 20, "goal": NO_SLOWER}),
    ("servers/4KiB", "servers", {"piece": 4 << 10, "total": 32 << 20, "goal": NO_SLOWER}),
):
    RECORDS[f"trace/{label}"] = {"kind": "traced", "path": path, **keys}
