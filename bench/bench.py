"""The benchmarks of `make bench`: Penstock against a named peer on the same work.

Every record is a ratio, larger = better for Penstock, from runs interleaved pair by pair. The
peer for I/O is the same MPI's own ROMIO on the same disk, with the same kind of call. It has the best of its hint settings,
found by one probing run each. Goals stand beside the figures, and whether each is met.

Names of records say what is in the path; bench/README.md has the words.

    bench.py [--only REGEX] [--runs N] [--list]
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

import traced
from process import (
    EXAMPLES,
    OUT,
    PENSTOCK,
    ROOT,
    VENV,
    Failed,
    as_user,
    last_json,
    process_of,
    program_for_all,
    run,
    taken,
)
from records import RECORDS
from traced import interval

# ROMIO's settings worth trying; the best one is the peer. By default one rank of a node aggregates.
ROMIO = {
    "default": {},
    "ds-off": {"romio_ds_read": "disable", "romio_ds_write": "disable"},
    "cb-on": {"romio_cb_read": "enable", "romio_cb_write": "enable"},
    "cb-all": {
        "romio_cb_read": "enable",
        "romio_cb_write": "enable",
        "cb_nodes": "{ranks}",
        "cb_config_list": "*:*",
    },
    "cb-off": {"romio_cb_read": "disable", "romio_cb_write": "disable"},
}


PAIRS = 80  # of windows with and without a setting of a running server
WINDOW = 0.3  # seconds of each
WARM = 2  # repetitions that bench/io.c does not count


def figures(result):
    """(bytes per second, CPU seconds per GB) of one run of bench/io.c."""
    return result["bytes"] / result["seconds"], result["cpu_seconds"] / (result["bytes"] / 1e9)


class Bench:
    """Runs records and keeps what they need: directories, built programs, machine figures."""

    def __init__(self, runs, disk):
        self.runs = runs
        self.dir = Path(tempfile.mkdtemp(prefix="penstock-bench-", dir=disk))
        self.io = OUT / "io"
        self.server_cpu = None
        OUT.mkdir(parents=True, exist_ok=True)
        run([VENV / "bin" / "mpicc", "-O2", "-o", self.io, ROOT / "bench" / "io.c"])

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    # -- one run of each side ---------------------------------------------------------------

    def keys(self, record, **more):
        return [f"{k}={v}" for k, v in {**record["keys"], "coll": record["coll"], **more}.items()]

    def romio_command(self, record, setting, **more):
        hints = {f"hint:{k}": v.format(ranks=record["ranks"]) for k, v in ROMIO[setting].items()}
        command = [VENV / "bin" / "mpiexec", "-n", record["ranks"], self.io, record["case"], record["op"]]
        return [*command, self.dir / f"romio-{record['case']}", *self.keys(record, **hints, **more)]

    def romio(self, record, setting):
        return last_json(run(self.romio_command(record, setting))[0])

    def penstock_command(self, record, method="auto", shortcut=None, coll=None, **more):
        how = shortcut or record["shortcut"]
        command = [PENSTOCK, "run", "-n", record["ranks"], "--store", self.dir / "store", "--method", method]
        command += [*(["--shortcut", how] if how else []), "--", self.io, record["case"], record["op"]]
        if coll is not None:
            record = {**record, "coll": coll}
        return [*command, f"penstock:/bench-{record['case']}", *self.keys(record, **more)]

    def penstock(self, record, method="auto", shortcut=None, coll=None):
        stdout, whole = run(self.penstock_command(record, method, shortcut, coll))
        result = last_json(stdout)
        # What the ranks did not use, the servers (and the launcher) did: count the timed share of it.
        servers = max(0.0, whole - result["cpu_life"])
        result["cpu_seconds"] += servers * result["reps"] / (result["reps"] + WARM)
        return result

    def system_calls(self, command):
        """System calls per access of a command of bench/io.c, those of its servers with it: the difference of a longer
        and a shorter run. `None` where they cannot be counted."""
        if not shutil.which("strace"):
            return None
        counted = []
        for reps in (1, 3):
            table = self.dir / "strace"
            try:
                out, _ = run(["strace", "-f", "-c", "-o", table, *command(reps=reps)], timeout=300)
            except (Failed, subprocess.TimeoutExpired):
                return None
            total = re.search(r"^\s*100\.00\s+\S+\s+(?:\d+\s+)?(\d+)\s.*total$", table.read_text(), re.MULTILINE)
            if not total:
                return None
            counted.append((int(total[1]), last_json(out)["requests"]))
        (few, short), (many, long) = counted
        return (many - few) / (long - short)

    def memcpy(self, record, total):
        """What plain memcpy of the same bytes by the same ranks reaches here, bytes/s: as much in a call, to a buffer as
        large. Buffers beyond the caches are written at less than half the rate of small ones."""
        in_a_call = {"contig": record["keys"].get("piece"), "hard": 47008}
        piece = in_a_call.get(record["case"]) or total // record["ranks"]
        command = [
            VENV / "bin" / "mpiexec",
            "-n",
            record["ranks"],
            self.io,
            "memcpy",
            "read",
            "-",
            f"piece={piece}",
            f"total={total}",
        ]
        return figures(last_json(run(command)[0]))[0]

    # -- records ----------------------------------------------------------------------------

    def pairs(self, name, ours, theirs, unit, peer_name, goal, **more):
        """Interleaves `runs` pairs; each side returns (figure, CPU-s per GB or None); larger is better."""
        mine, peer = [], []
        for _ in range(self.runs):
            mine.append(ours())
            peer.append(theirs())
        ratios = [a[0] / b[0] for a, b in zip(mine, peer, strict=True)]

        def cpu(side):
            values = [c for _, c in side if c is not None]
            return statistics.median(values) if values else None

        return {
            "name": name,
            "unit": unit,
            "penstock": statistics.median(a for a, _ in mine),
            "peer": statistics.median(b for b, _ in peer),
            "peer_name": peer_name,
            "runs": self.runs,
            "ratio": {
                "min": min(ratios),
                "median": statistics.median(ratios),
                "max": max(ratios),
            },
            "cpu_s_per_gb": {"penstock": cpu(mine), "peer": cpu(peer)},
            "goal": goal,
            **more,
        }

    def best_romio(self, record):
        """The setting with which ROMIO is fastest at the same kind of call."""
        rates = {}
        for setting in ROMIO:
            if setting.startswith("cb") and not record["coll"]:
                continue  # collective buffering hints say nothing to independent calls
            try:
                rates[setting] = figures(self.romio(record, setting))[0]
            except (Failed, subprocess.TimeoutExpired):
                continue
        if not rates:
            raise Failed("no setting of ROMIO ran")
        return max(rates, key=lambda setting: rates[setting])

    def against_romio(self, name, record):
        """Pairs of runs, and what both sides cost beside time."""
        setting = self.best_romio(record)
        switches = {"penstock": [], "peer": []}

        def side(who, result):
            switches[who].append(result["switches"] / max(1, result["requests"]))
            return figures(result)

        out = self.pairs(
            name,
            lambda: side("penstock", self.penstock(record)),
            lambda: side("peer", self.romio(record, setting)),
            "B/s",
            f"ROMIO {setting}",
            record["goal"],
        )
        out["calls"] = "collective" if record["coll"] else "independent"
        # Of the ranks alone; system calls are those of the servers, too.
        out["switches_per_request"] = {who: statistics.median(seen) for who, seen in switches.items()}
        out["system_calls_per_request"] = {
            "penstock": self.system_calls(lambda **more: self.penstock_command(record, **more)),
            "peer": self.system_calls(lambda **more: self.romio_command(record, setting, **more)),
        }
        return out

    def record_io(self, name, record):
        out = self.against_romio(name, record)
        out["memcpy"] = self.memcpy(record, int(bytes_per_repetition(record)))
        out["of_memcpy"] = out["penstock"] / out["memcpy"]
        return out

    def record_shared(self, name, record):
        """Small accesses with the shared pointer, all ranks at once."""
        out = self.against_romio(name, record)
        us = {who: record["ranks"] * record["keys"]["piece"] / out[who] * 1e6 for who in ("penstock", "peer")}
        return {**out, "us_per_call": us}

    def record_auto(self, name, record):
        """The best named method with the same transport, whatever the kind of call."""
        shortcut = record["shortcut"] or "enable"
        rates = {}
        for method in ("posix", "sieve", "two-phase", "list", "datatype", "node-exchange"):
            if method == "posix" and record["case"] in ("flash", "block"):
                continue  # minutes per run, never the best
            for coll in (1, 0):
                if not coll and method in ("two-phase", "node-exchange"):
                    continue
                try:
                    rates[method, coll] = figures(self.penstock(record, method, shortcut, coll))[0]
                except (Failed, subprocess.TimeoutExpired) as why:
                    print(f"  {name}: {method}: {why}", file=sys.stderr)
        if not rates:
            raise Failed("no method ran")
        method, coll = max(rates, key=lambda way: rates[way])
        return self.pairs(
            name,
            lambda: figures(self.penstock(record, "auto", record["shortcut"])),
            lambda: figures(self.penstock(record, method, shortcut, coll)),
            "B/s",
            f"Penstock --method {method} --shortcut {shortcut}, {'collective' if coll else 'independent'}",
            record["goal"],
        )

    def record_view(self, name, record):
        command = [self.io, "view", "read"]

        def ours():
            got = last_json(
                run(
                    [
                        PENSTOCK,
                        "run",
                        "-n",
                        1,
                        "--store",
                        self.dir / "store",
                        "--",
                        *command,
                        "penstock:/v",
                    ]
                )[0]
            )
            return 1 / max(got["view_seconds"], 1e-9), None, got["view_kib"]

        def theirs():
            got = last_json(run([VENV / "bin" / "mpiexec", "-n", 1, *command, self.dir / "v"])[0])
            return 1 / got["view_seconds"], None, got["view_kib"]

        memory = {"penstock": ours()[2], "peer": theirs()[2]}
        return self.pairs(
            name,
            lambda: ours()[:2],
            lambda: theirs()[:2],
            "views/s",
            "ROMIO",
            record["goal"],
            memory_kib=memory,
        )

    def record_pack(self, name, record):
        peer_cc = VENV / "bin" / "mpicc" if record["mpi"] == "mpich" else "mpicc.openmpi"
        program = OUT / f"pack-{record['mpi']}"
        if not program.exists():
            run([peer_cc, "-O2", "-o", program, ROOT / "bench" / "pack.c"])
        mine = ROOT / "target" / "release" / "examples" / "pack"
        alone = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}

        def rate(command):
            for line in run([*command, record["shape"]], alone)[0].splitlines():
                got = json.loads(line) if line.startswith("{") else {}
                if got.get("name") == f"{record['op']}/{record['shape']}":
                    return got["bytes"] / got["seconds"], got["cpu_seconds"] / (got["bytes"] / 1e9)
            raise Failed(f"no figure for {record['op']}/{record['shape']}")

        peer = f"MPI_{record['op'].capitalize()} of {record['mpi']}"
        return self.pairs(
            name,
            lambda: rate([mine]),
            lambda: rate([program]),
            "B/s",
            peer,
            record["goal"],
        )

    def record_meta(self, name, record):
        program = OUT / "names"
        run(["cc", "-O2", "-o", program, ROOT / "bench" / "names.c"])
        rates = ROOT / "target" / "release" / "examples" / "rates"

        def figure(command, wanted):
            lines = [json.loads(line) for line in run(command)[0].splitlines() if line.startswith("{")]
            found = [line["per_s"] for line in lines if line["name"] == wanted]
            if not found:
                raise Failed(f"no figure {wanted!r} among {[line['name'] for line in lines]}")
            return found[0], None

        def local():
            where = Path(tempfile.mkdtemp(dir=self.dir))
            try:
                return figure([program, where, "0.4"], record["op"])
            finally:
                shutil.rmtree(where, ignore_errors=True)

        ours = [rates, "0.4", self.dir, record["figure"]]
        return self.pairs(
            name,
            lambda: figure(ours, record["figure"]),
            local,
            "1/s",
            "local file system, one call each",
            record["goal"],
        )

    def record_sched(self, name, record):
        """Requests per second of processor time through one algorithm with 100,000 queued; the peer is the goal."""
        program = ROOT / "target" / "release" / "examples" / "decisions"
        runs = []
        for _ in range(self.runs):
            out, _ = run([program, "--json", "--algorithm", record["algorithm"], "--files", record["files"]])
            runs.append(last_json(out))
        rates = [r["per_cpu_s"] for r in runs]
        return {
            "name": name,
            "unit": "1/s",
            "penstock": statistics.median(rates),
            "per_s_on_the_clock": statistics.median(r["per_s"] for r in runs),
            "peer": 3e5,
            "peer_name": "the goal",
            "runs": len(runs),
            "ratio": {"min": min(rates) / 3e5, "median": statistics.median(rates) / 3e5, "max": max(rates) / 3e5},
            "cpu_s_per_gb": None,
            "p50_ns": statistics.median(r["p50_ns"] for r in runs),
            "p99_ns": statistics.median(r["p99_ns"] for r in runs),
            "allocations_per_request": max(r["allocations"] for r in runs),
            "goal": record["goal"],
        }

    def record_sched_server(self, name, record):
        """The cost of a setting on a server, as throughput and processor seconds per request with it and without
        it. One program sends requests all the time. The setting is switched on and off between short windows, so
        disturbances of the machine affect both alike. A window ends when the setting is off, so deferred work is
        counted. The server has a processor of its own. The record says how busy it was, since below 1 the program
        bounds the rate too."""
        home = self.dir / "deployment"
        cpus = sorted(os.sched_getaffinity(0))
        own, rest = (["taskset", "-c", ",".join(map(str, some))] for some in (cpus[-1:], cpus[:-1] or cpus))
        run([*own, PENSTOCK, "up", home, "--servers", 1])
        server = process_of(home)
        path = "penstock:/sched"
        command = [*rest, PENSTOCK, "run", "-d", home, "-n", 4, "-q", "--shortcut", "disable", "--", self.io, "contig"]
        keys = ["coll=0", f"piece={record['piece']}", f"total={record['total']}"]
        on, off = record["words"]

        def tune(word):
            run([*rest, PENSTOCK, "tune", word, "-d", home])

        def window(word):
            """Requests per second of a window, and per processor second of the server; the processor's share."""
            before = taken(server)
            tune(word)
            time.sleep(WINDOW)
            tune(off)
            seconds, moved, busy = (after - b for after, b in zip(taken(server), before, strict=True))
            return moved / seconds, moved / busy, busy / seconds

        program = None
        try:
            run([*command, "write", path, *keys, "min=0.1"])
            endless = [str(c) for c in [*command, record["op"], path, *keys, "min=3600"]]
            program = subprocess.Popen(endless, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            began = taken(server)[1]
            deadline = time.monotonic() + 30
            while taken(server)[1] < began + 100:
                if program.poll() is not None or time.monotonic() > deadline:
                    raise Failed("the program under which the setting is to change does not come to the server")
                time.sleep(0.05)
            pairs = []
            for pair in range(PAIRS):
                # Each goes first in turn.
                turn = 1 if pair % 2 else -1
                pairs.append([window(word) for word in (on, off)[::turn]][::turn])
            if program.poll() is not None:
                raise Failed("the program under which the setting changes has ended")
        finally:
            if program:
                program.terminate()
                program.wait()
            run([PENSTOCK, "down", "-d", home])
            shutil.rmtree(home)
        rates, cpu, busy = ([[with_it[figure], without[figure]] for with_it, without in pairs] for figure in range(3))
        ratios = sorted(a / b for a, b in rates)
        us = [statistics.median(1e6 / side[k] for side in cpu) for k in (0, 1)]
        return {
            "name": name,
            "unit": "B/s",
            "penstock": statistics.median(a for a, _ in rates) * record["piece"],
            "peer": statistics.median(b for _, b in rates) * record["piece"],
            "peer_name": record["peer"],
            "runs": PAIRS,
            "ratio": {"min": ratios[0], "median": statistics.median(ratios), "max": ratios[-1]},
            "interval": interval(ratios),
            "cpu_ratio": {
                "median": statistics.median(a / b for a, b in cpu),
                "interval": interval(a / b for a, b in cpu),
            },
            "cpu_us_per_request": us,
            # Of its processor: below 1, the program bounds the rate too.
            "server_busy": statistics.median(share for pair in busy for share in pair),
            "cpu_s_per_gb": None,
            "goal": record["goal"],
        }

    def record_traced(self, name, record):
        """A program with a trace and without (traced.py)."""
        return traced.measure(self, name, record)

    def record_sched_decisions(self, name, record):
        """Servers started with --trace, which also write every decision, against those that only trace. Both get the
        same requests through the same queue (TO), run by run. Files of decisions end at 1 GiB, so runs are short."""
        homes = {"decisions": self.dir / "decided", "trace": self.dir / "traced"}
        run(
            [
                PENSTOCK,
                "up",
                homes["decisions"],
                "--servers",
                1,
                "--tune",
                "sched=to",
                "--trace",
                self.dir / "decided-t",
            ]
        )
        run([PENSTOCK, "up", homes["trace"], "--servers", 1, "--tune", "sched=to"])
        run([PENSTOCK, "tune", "trace=on", "-d", homes["trace"]])

        def rate(home):
            command = [PENSTOCK, "run", "-d", home, "-n", 4, "-q", "--shortcut", "disable", "--", self.io, "contig"]
            keys = ["coll=0", f"piece={record['piece']}", f"total={record['total']}", "min=0.5"]
            return figures(last_json(run([*command, record["op"], "penstock:/sched", *keys])[0]))[0], None

        try:
            return self.pairs(
                name,
                lambda: rate(homes["decisions"]),
                lambda: rate(homes["trace"]),
                "B/s",
                "a trace alone",
                record["goal"],
            )
        finally:
            for home in homes.values():
                run([PENSTOCK, "down", "-d", home])
                shutil.rmtree(home)

    def record_hostile(self, name, record):
        """A good client beside 200 hostile connections, against the same client alone. The hostile process runs at
        the lowest priority: on a host of its own it would take no processor time of ours."""
        home = self.dir / "besieged"
        driver = EXAMPLES / "hostile"
        seconds = 3
        run([PENSTOCK, "up", home])

        def good():
            told = last_json(run([driver, "good", home, seconds])[0])
            if told["errors"] or told["wrong_bytes"]:
                raise Failed(f"the good client was harmed: {told}")
            return told["mb_per_s"] * 1e6, None

        def besieged():
            command = ["nice", "-n", "19", driver, "attack", home, "200", str(seconds + 2), "1"]
            with subprocess.Popen(command, stdout=subprocess.DEVNULL) as attack:
                time.sleep(1)
                figure = good()
            if attack.returncode:
                raise Failed(f"the attack ended with exit {attack.returncode}")
            return figure

        try:
            return self.pairs(name, besieged, good, "B/s", "the same client alone", record["goal"])
        finally:
            run([PENSTOCK, "down", home])

    def record_stranger(self, name, record):
        """A good client beside another user of the same host. That user takes all connections, and shared locks on a file that
        he may read. Or he asks for descriptors, counters, and shared locks on all of that file, again and again. The good
        client uses another file, since a user who may read its file may delay it for a second at a time (needs root)."""
        home = self.dir / f"besieged-{record['how']}"
        uid, seconds = 61002, 3
        run([PENSTOCK, "up", home])
        view = self.let_in(home, uid)
        attacker = program_for_all(EXAMPLES / "stranger", view)

        def good():
            told = last_json(run([EXAMPLES / "hostile", "good", home, seconds])[0])
            if told["errors"] or told["wrong_bytes"]:
                raise Failed(f"the good client was harmed: {told}")
            return told["mb_per_s"] * 1e6, None

        def besieged():
            take = ["take"] if record["how"] == "takes" else []
            with subprocess.Popen(
                [attacker, *take, view, "/other", str(seconds + 2)],
                **as_user(uid),
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
            ) as attack:
                time.sleep(1)
                figure = good()
                attack.stdin.close()
            if attack.returncode:
                raise Failed(f"the attack ended with exit {attack.returncode}")
            return figure

        try:
            run([PENSTOCK, "cp", home / "deployment.toml", "penstock:/other", "-d", home])
            return self.pairs(name, besieged, good, "B/s", "the same client alone", record["goal"])
        finally:
            run([PENSTOCK, "down", home])

    def let_in(self, home, uid):
        """The deployment as another user of this host has it: sockets, the client key, no other key. The user's directory."""
        if os.geteuid() != 0:
            raise Failed("needs root to become another user")
        view = self.dir / f"{home.name}-of-{uid}"
        view.mkdir()
        text = (home / "deployment.toml").read_text()
        (view / "deployment.toml").write_text(text.replace('"run/', f'"{home}/run/'))
        shutil.copy(home / "client.key", view / "client.key")
        for path in (view / "client.key", view):
            os.chown(path, uid, uid)
        for path in (self.dir, home, home / "run"):
            path.chmod(0o755)
        for path in (home / "run").glob("*.sock"):
            path.chmod(0o666)
        return view

    def record_others_file(self, name, record):
        """Another user's reads of a file that everybody may read, which are requests, against the owner's reads of it, which go
        by descriptors. One program each, on the servers' host, bytes in the page cache (needs root)."""
        home = self.dir / f"users-{record['piece']}"
        owner, other, total, seconds = 61001, 61002, 64 << 20, 2
        run([PENSTOCK, "up", home])
        views = {uid: self.let_in(home, uid) for uid in (owner, other)}
        reader, command = (program_for_all(program, views[owner]) for program in (EXAMPLES / "reader", PENSTOCK))

        def rate(uid, by):
            told = last_json(run([reader, views[uid], "/open/file", record["piece"], seconds], user=uid)[0])
            if not told[by] or sum(told[key] for key in ("by_descriptors", "by_requests")) != told[by]:
                raise Failed(f"user {uid} read otherwise than {by}: {told}")
            return told["bytes_per_s"], None

        try:
            place, source = self.dir / "open", views[owner] / "bytes"
            place.mkdir(exist_ok=True)
            place.chmod(0o777)
            source.write_bytes(os.urandom(1 << 20) * (total >> 20))
            source.chmod(0o644)
            run([PENSTOCK, "cp", "-r", place, "penstock:/open", "-d", home])
            run([command, "cp", source, "penstock:/open/file", "-d", views[owner]], user=owner)
            return self.pairs(
                name,
                lambda: rate(other, "by_requests"),
                lambda: rate(owner, "by_descriptors"),
                "B/s",
                "the owner's reads",
                record["goal"],
            )
        finally:
            run([PENSTOCK, "down", home])

    def record_transport(self, name, record):
        """1 MiB accesses of one program to one data server over TCP: TLS against none. Bytes are in the server's memory."""

        def compare(side):
            found = self.pairs(
                name,
                lambda: side("tls", 1 << 20),
                lambda: side("plain-trusted-network", 1 << 20),
                "B/s",
                "plain TCP",
                record["goal"],
            )
            cpu = found["cpu_s_per_gb"]
            return {**found, "cpu_s_per_gb_more": cpu["penstock"] - cpu["peer"]}

        return self.over_tcp({"tls": 27411, "plain-trusted-network": 27421}, record["op"], compare)

    def record_sockets(self, name, record):
        """Accesses over plain TCP against two processes that copy memory over a connection in messages of the same size."""
        program, op, message = OUT / "sockets", record["op"], record["message"]
        run(["cc", "-O2", "-o", program, ROOT / "bench" / "sockets.c"])

        def copied():
            return figures(last_json(run([program, op, message, 256 << 20, 1])[0]))

        def compare(side):
            ours = lambda: side("plain-trusted-network", message)
            return self.pairs(name, ours, copied, "B/s", "the same bytes over a socket", record["goal"])

        return self.over_tcp({"plain-trusted-network": 27431}, op, compare)

    def over_tcp(self, ports, op, compare):
        """One data server for each transport at its port; `compare` gets a function that measures a transport and a size."""
        homes = {how: Path(tempfile.mkdtemp(dir=self.dir)) / "home" for how in ports}

        def start(how, port):
            home, remote = homes[how], homes[how] / "remote"
            address = f"127.0.0.1:{port}"
            run([PENSTOCK, "up", home, "--servers", 1, "--memory", "--tcp", address, "--transport", how])
            remote.mkdir()
            lines = (home / "deployment.toml").read_text().splitlines()
            (remote / "deployment.toml").write_text("\n".join(line for line in lines if not line.startswith("unix")))
            for key in home.glob("*.key"):
                shutil.copy(key, remote)

        def program(how, op, piece, *more):
            command = [PENSTOCK, "run", "-d", homes[how] / "remote", "-n", 1, "-q", "--", self.io, "contig", op]
            return run([*command, "penstock:/f", "coll=0", f"piece={piece}", f"total={256 << 20}", *more])[0]

        def side(how, piece):
            server = process_of(homes[how])
            before = taken(server)[2]
            result = last_json(program(how, op, piece))
            share = result["reps"] / (result["reps"] + WARM)
            result["cpu_seconds"] += (taken(server)[2] - before) * share
            return figures(result)

        try:
            for how, port in ports.items():
                start(how, port)
                program(how, "write", 1 << 20, "min=0")
            return compare(side)
        finally:
            for home in homes.values():
                run([PENSTOCK, "down", home])

    def mounted(self, record, measure):
        """Measures in a mount, beside the least that FUSE can do on the same disk: pairs of directories."""
        passthrough = EXAMPLES / "passthrough"
        home, plain = self.dir / f"mounted-{record['servers']}", self.dir / "plain"
        points = [self.dir / "mnt", self.dir / "passthrough"]
        for directory in (plain, *points):
            directory.mkdir(exist_ok=True)
        peer = None
        try:
            run([PENSTOCK, "up", home, "--servers", record["servers"]])
            run([PENSTOCK, "mount", points[0], "-d", home])
            peer = subprocess.Popen([passthrough, plain, points[1]])
            while not points[1].is_mount() and peer.poll() is None:
                time.sleep(0.01)
            return measure(*points)
        finally:
            run(["umount", "-l", points[1]])
            run([PENSTOCK, "umount", "--lazy", points[0]])
            run([PENSTOCK, "down", home])
            if peer:
                peer.wait(timeout=20)

    def record_mount(self, name, record):
        """One program at depth 1."""

        def rate(point):
            return calls(point / "file", record["op"], record["piece"]), None

        def measure(ours, theirs):
            peer = "trivial FUSE pass-through"
            return self.pairs(name, lambda: rate(ours), lambda: rate(theirs), "B/s", peer, record["goal"])

        found = self.mounted(record, measure)
        us = {who: record["piece"] / found[who] * 1e6 for who in ("penstock", "peer")}
        return {**found, "us_per_call": us["penstock"], "us_per_call_of_peer": us["peer"]}

    def record_small(self, name, record):
        """Names of files of no bytes, one call at a time."""
        program = OUT / "names"
        run(["cc", "-O2", "-o", program, ROOT / "bench" / "names.c"])

        def rate(point):
            where = Path(tempfile.mkdtemp(dir=point))
            lines = [json.loads(line) for line in run([program, where, "0.4"])[0].splitlines()]
            return next(line["per_s"] for line in lines if line["name"] == record["op"]), None

        def measure(ours, theirs):
            peer = "trivial FUSE pass-through"
            return self.pairs(name, lambda: rate(ours), lambda: rate(theirs), "1/s", peer, record["goal"])

        return self.mounted(record, measure)

    def record_memory(self, name, record):
        """Resident memory of the servers after 64 clients wrote 64 MiB each by requests."""
        home = self.dir / "deployment"
        run([PENSTOCK, "up", home])
        try:
            command = [PENSTOCK, "run", "-d", home, "-n", 64, "--shortcut", "disable", "--method", "datatype", "--"]
            command += [
                self.io,
                "contig",
                "write",
                "penstock:/many",
                "coll=0",
                "min=0",
                f"piece={4 << 20}",
                f"total={64 * (64 << 20)}",
            ]
            run(command)
            mib = 0.0
            for status in Path("/proc").glob("[0-9]*/status"):
                try:
                    if str(home).encode() not in (status.parent / "cmdline").read_bytes():
                        continue
                    fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
                except OSError:
                    continue
                mib += int(fields["VmHWM"].split()[0]) / 1024
        finally:
            run([PENSTOCK, "down", "-d", home])
        return {
            "name": name,
            "unit": "MiB",
            "penstock": mib,
            "peer": 256,
            "peer_name": "the goal",
            "runs": 1,
            "ratio": {"min": 256 / mib, "median": 256 / mib, "max": 256 / mib},
            "cpu_s_per_gb": None,
            "goal": record["goal"],
        }


def calls(path, op, piece):
    """Bytes per second of reads or writes of `piece` bytes, one after the other, over a file of 64 MiB."""
    total = 64 << 20
    fd = os.open(path, os.O_RDWR | os.O_CREAT)
    try:
        for at in range(0, total, 1 << 20):
            os.pwrite(fd, bytes(1 << 20), at)
        buffer = bytearray(piece)
        step = os.preadv if op == "read" else os.pwritev
        places = range(0, min(total, 4000 * piece), piece)
        best = 0.0
        for _ in range(3):
            start = time.perf_counter()
            for at in places:
                step(fd, [buffer], at)
            best = max(best, len(places) * piece / (time.perf_counter() - start))
        return best
    finally:
        os.close(fd)


def bytes_per_repetition(record):
    """Bytes all ranks move per repetition, for the memcpy of the same size."""
    keys = record["keys"]
    return {
        "tile": 6 * 1024 * 768 * 3,
        "block": 4 * keys.get("n", 300) ** 3,
        "flash": record["ranks"] * 80 * 512 * 24 * 8,
    }.get(record["case"], keys.get("total", 64 << 20))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="records whose name matches this regular expression")
    parser.add_argument("--runs", type=int, default=5, help="interleaved pairs per record (default 5)")
    parser.add_argument("--list", action="store_true", help="list the records and stop")
    parser.add_argument(
        "--disk",
        default=None,
        help="directory for the files of both sides (default: the temporary directory)",
    )
    args = parser.parse_args()
    wanted = {n: r for n, r in RECORDS.items() if re.search(args.only, n)}
    if args.list:
        print("\n".join(wanted))
        return 0
    if not wanted:
        print(
            f"bench: no record matches {args.only!r}; --list shows them",
            file=sys.stderr,
        )
        return 2
    bench = Bench(args.runs, args.disk)
    results, failed = [], []
    try:
        for k, (name, record) in enumerate(wanted.items()):
            started = time.monotonic()
            os.sync()  # what the record before has written is not written during this one
            try:
                result = getattr(bench, f"record_{record['kind']}")(name, record)
            except (Failed, subprocess.TimeoutExpired) as why:
                failed.append((name, str(why)))
                print(f"[{k + 1}/{len(wanted)}] {name}: FAILED: {why}", file=sys.stderr)
                continue
            result["goal"] = record["goal"].words
            results.append(result)
            ratio = result["ratio"]
            extra = f"  {result['of_memcpy']:.2f} of memcpy" if "of_memcpy" in result else ""
            if "cpu_s_per_gb_more" in result:
                extra += f"; {result['cpu_s_per_gb_more']:.2f} CPU-s/GB more"
            if "interval" in result:
                extra += "; 95%: {:.3f}-{:.3f}".format(*result["interval"])
            if "ns_a_call" in result:
                more = result["ns_a_call"]
                extra += "; {:.0f} ns more a call, 95%: {:.0f}-{:.0f}".format(more["median"], *more["interval"])
                extra += f"; {result['bytes_a_record']:.1f} bytes a record"
            if "cpu_ratio" in result:
                cpu, us = result["cpu_ratio"], result["cpu_us_per_request"]
                extra += "; by the server's processor time {:.3f}x, 95%: {:.3f}-{:.3f}".format(
                    cpu["median"], *cpu["interval"]
                )
                extra += ", {:.2f} us per call beside {:.2f}; server busy {:.2f}".format(*us, result["server_busy"])
            print(
                f"[{k + 1}/{len(wanted)}] {name:28} {ratio['median']:8.2f}x ({ratio['min']:.2f}-{ratio['max']:.2f}) "
                f"against {result['peer_name']}; goal {result['goal']}{extra}  [{time.monotonic() - started:.0f} s]",
                flush=True,
            )
    finally:
        bench.close()
    for result in results:
        record = RECORDS[result["name"]]
        alike = [other for other in results if RECORDS[other["name"]]["kind"] == record["kind"]]
        result["met"] = record["goal"].met(result, alike)
    (OUT / "summary.json").write_text(json.dumps(results, indent=1) + "\n")
    missed = [result["name"] for result in results if result["met"] is False]
    if missed:
        print(f"missed: {', '.join(missed)}")
    print(f"{len(results)} records in {OUT / 'summary.json'}" + (f", {len(failed)} failed" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
