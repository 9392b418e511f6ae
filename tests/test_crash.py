"""Processes of a running deployment are killed at random moments; no synced byte is lost and nobody has to be told.

test_crash_cycles.py mixes these crashes with others for a long time (`make soak`). Each case prints its seed, and
`--seed` repeats its choices: what is killed, when, which contents. The machine's own timing differs.
"""

import hashlib
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from conftest import PENSTOCK, penstock
from crash_writer import KEPT, SLOTS, pattern, slot_bytes

RANKS = 2
SERVERS = ("meta", "data-0", "data-1", "data-2")
METHODS = ("posix", "sieve", "two-phase", "list", "datatype", "node-exchange", "resonant", "auto")
# Who is killed. The program outlives servers that come back; a killed rank ends it.
VICTIMS = ("meta", "data", "servers", "rank", "all")
WRITER = Path(__file__).with_name("crash_writer.py")
# A bound against hanging on a crowded machine, not a measurement.
LONG_S = 120


class Writer:
    """The program, its acknowledged rounds and its processes."""

    def __init__(self, deployment, notes, name, seed, options):
        self.notes, self.name, self.seed = notes, name, seed
        program = [sys.executable, "-m", "mpi4py", WRITER, f"penstock:/{name}", notes, str(seed)]
        command = [PENSTOCK, "run", "-n", str(RANKS), "-d", deployment, "--quiet", *options, "--", *program]
        self.output = (notes / "output").open("w+")
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "PENSTOCK_PATIENCE": "100"}
        self.process = subprocess.Popen(command, stdout=self.output, stderr=subprocess.STDOUT, env=environment)

    def acknowledged(self):
        """The last round that was."""
        log = self.notes / "acknowledged"
        rounds = log.read_text().splitlines() if log.exists() else []
        return int(rounds[-1]) if rounds else -1

    def text(self):
        self.output.flush()
        return (self.notes / "output").read_text()

    def wait_for(self, round_):
        end = time.monotonic() + LONG_S
        while self.acknowledged() < round_:
            assert self.process.poll() is None, f"the program ended: {self.text()}"
            assert time.monotonic() < end, f"stuck at round {self.acknowledged()}: {self.text()}"
            time.sleep(0.01)

    def ranks(self):
        return [int((self.notes / f"pid-{rank}").read_text()) for rank in range(RANKS)]

    def finish(self):
        (self.notes / "stop").touch()
        code = self.process.wait(timeout=LONG_S)
        assert code == 0, self.text()

    def end(self):
        if self.process.poll() is None:
            self.process.terminate()
            self.process.wait(timeout=LONG_S)
        self.output.close()


def server_pid(deployment, name):
    return int((deployment / "run" / f"{name}.pid").read_text().split()[0])


def kill(pids):
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    end = time.monotonic() + LONG_S
    while any(Path(f"/proc/{pid}/fd").exists() and state(pid) != "Z" for pid in pids):
        assert time.monotonic() < end, f"{pids} do not die"
        time.sleep(0.005)


def state(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return "Z"


def verify(deployment, writer, acknowledged, directory):
    """Every byte of every acknowledged round; a round that was under way may be there in part."""
    copy = directory / "copy"
    penstock("cp", "--force", f"penstock:/{writer.name}", copy, "-d", deployment)
    found = np.fromfile(copy, dtype=np.uint8)
    whole = slot_bytes(RANKS)
    latest = {round_ % SLOTS: round_ for round_ in range(acknowledged + 1)}
    assert len(found) >= len(latest) * whole
    for slot, round_ in latest.items():
        at = slot * whole
        good = found[at : at + whole] == pattern(np, writer.seed, round_, at, whole)
        if slot == (acknowledged + 1) % SLOTS:
            good |= found[at : at + whole] == pattern(np, writer.seed, acknowledged + 1, at, whole)
        bad = np.flatnonzero(~good)
        assert len(bad) == 0, f"round {round_}: {len(bad)} bytes lost, the first at {at + bad[0]}"
    for round_ in [r for r in range(acknowledged + 1) if r % 4 == 0][-KEPT + 1 :]:
        penstock("cp", "--force", f"penstock:/{writer.name}-{round_}", copy, "-d", deployment)
        assert (np.fromfile(copy, dtype=np.uint8) == pattern(np, writer.seed, round_, 0, 100)).all()


def check(deployment):
    """Nothing is missing; what a killed program left behind is freed, and then nothing is wrong at all."""
    (report,) = penstock("check", "-d", deployment, "--repair", "--json").json()
    assert report["clean"] and report["complete"], report
    (report,) = penstock("check", "-d", deployment, "--json").json()
    assert report["clean"] and report["findings"] == [], report


def crash(deployment, seed, victim):
    """One program, one kill at a random moment, one restart."""
    choice = random.Random(seed)
    method = choice.choice(METHODS)
    shortcut = choice.choice(("enable", "disable"))
    print(f"crash: --seed {seed}: {victim} killed, {method}, shortcut {shortcut}d", flush=True)
    name = f"crash-{seed}"
    notes = Path(tempfile.mkdtemp(prefix="pst-notes-"))
    writer = Writer(deployment, notes, name, seed, ["--method", method, "--shortcut", shortcut])
    try:
        writer.wait_for(choice.randrange(1, 12))
        time.sleep(choice.random() * 0.2)
        servers = {
            "meta": ["meta"],
            "data": [choice.choice(SERVERS[1:])],
            "rank": [],
        }.get(victim, list(SERVERS))
        victims = [server_pid(deployment, server) for server in servers]
        if victim in ("rank", "all"):
            victims.append(choice.choice(writer.ranks()))
        kill(victims)
        time.sleep(choice.random() * 0.5)
        if servers:
            assert f"{len(servers)} servers started" in penstock("up", deployment).out
        if victim in ("rank", "all"):
            assert writer.process.wait(timeout=LONG_S) != 0
        else:
            writer.wait_for(writer.acknowledged() + 4)
            writer.finish()
        verify(deployment, writer, writer.acknowledged(), notes)
        check(deployment)
    finally:
        writer.end()
    names = [f"penstock:/{line}" for line in penstock("ls", "-d", deployment).out.split()]
    penstock("rm", *names, "-d", deployment)
    shutil.rmtree(notes)


@pytest.fixture(scope="module")
def durable():
    """A deployment of separate server processes."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    penstock("up", directory / "fs", "--servers", len(SERVERS) - 1)
    yield directory / "fs"
    penstock("down", directory / "fs", check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def seed(request):
    return request.config.getoption("--seed")


@pytest.mark.parametrize("victim", VICTIMS)
def test_a_program_goes_on_and_synced_data_stays(durable, seed, victim):
    crash(durable, seed, victim)


# ---- the same of `penstock cp`, whose client is one process ----


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def copy_in(deployment, directory, names, choice, done):
    """Copies files in, under servers that die; those that were acknowledged go to `done` with their digest."""
    for name in names:
        source = directory / name
        source.write_bytes(choice.randbytes(choice.randrange(1, 3_000_000)))
        if penstock("cp", source, f"penstock:/{name}", "-d", deployment, check=False, timeout=180).code == 0:
            done[name] = digest(source)


def copy_cycle(deployment, seed, server):
    """Four copies, one kill at a random moment, one restart."""
    choice = random.Random(seed)
    print(f"crash: --seed {seed}: {server} killed beside copies", flush=True)
    directory = Path(tempfile.mkdtemp(prefix="pst-notes-"))
    done, names = {}, [f"copy-{seed}-{k}" for k in range(4)]
    worker = threading.Thread(target=copy_in, args=(deployment, directory, names, random.Random(seed), done))
    worker.start()
    time.sleep(choice.random() * 0.3)
    kill([server_pid(deployment, server)])
    penstock("up", deployment)
    worker.join()
    assert sorted(done) == names
    for name in names:
        penstock("cp", "--force", f"penstock:/{name}", directory / "back", "-d", deployment)
        assert digest(directory / "back") == done[name]
        penstock("rm", f"/{name}", "-d", deployment)
    check(deployment)
    shutil.rmtree(directory)


@pytest.mark.parametrize("server", SERVERS[:2])
def test_copies_that_were_acknowledged_are_whole(durable, seed, server):
    copy_cycle(durable, seed, server)


def test_a_copy_that_is_killed_leaves_nothing_half(durable, tmp_path, seed):
    choice = random.Random(seed)
    source = tmp_path / "source"
    source.write_bytes(choice.randbytes(40_000_000))
    for _ in range(3):
        process = subprocess.Popen([PENSTOCK, "cp", source, "penstock:/target", "-d", durable])
        time.sleep(choice.uniform(0.0, 0.15))
        process.kill()
        process.wait()
        names = penstock("ls", "-d", durable).out.split()
        if "target" in names:
            penstock("cp", "penstock:/target", tmp_path / "back", "-d", durable, "--force")
            assert digest(tmp_path / "back") == digest(source)
        for name in names:
            penstock("rm", f"/{name}", "-d", durable)
        check(durable)
