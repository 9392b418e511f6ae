"""Servers, mounts and clients are killed with -9 while MPI programs, copies and programs on a mount go on.

One cycle of each kind runs with every change. `--cycles N` mixes N of them, `--soak SECONDS` goes on for that long. What
was acknowledged stands in a log outside of Penstock. On one boot a kill loses nothing acknowledged, synced or not.
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import penstock
from crash_mount_writer import BLOCK, BLOCKS, FILES, content
from mounted import daemon_of, needs_fuse
from test_crash import LONG_S, SERVERS, VICTIMS, check, copy_cycle, crash, kill, server_pid

WRITER = Path(__file__).with_name("crash_mount_writer.py")
MOUNT_VICTIMS = ("meta", "data", "servers", "daemon", "all")


class Log:
    """What the writer noted: `number -> (kind, file, block)`, and how each call ended."""

    def __init__(self, path):
        self.calls, self.ended = {}, {}
        lines = path.read_text().splitlines() if path.exists() else []
        for line in lines:
            word, number, *rest = line.split()
            if word == "begin":
                self.calls[int(number)] = rest
            else:
                self.ended[int(number)] = word

    def done(self):
        return sum(word == "done" for word in self.ended.values())

    def blocks(self):
        """(file, block) -> the writes whose bytes it may hold: the last acknowledged one, and what began after it."""
        held = {}
        for number, (kind, file, block) in sorted(self.calls.items()):
            if kind != "write":
                continue
            key = (int(file), int(block))
            if self.ended.get(number) == "done":
                held[key] = [number]
            else:
                held.setdefault(key, [0]).append(number)
        return held

    def small(self):
        return [n for n, (kind, *_) in self.calls.items() if kind == "small" and self.ended.get(n) == "done"]


def wait_for(log, calls, process):
    end = time.monotonic() + LONG_S
    while Log(log).done() < calls:
        assert process.poll() is None, f"the writer ended with {process.returncode}: {log.read_text()[-500:]}"
        assert time.monotonic() < end, f"stuck after {Log(log).done()} calls"
        time.sleep(0.01)


def verify(deployment, log, seed, notes, name):
    def back(path):
        copy = notes / "copy"
        penstock("cp", "--force", f"penstock:/{name}/{path}", copy, "-d", deployment)
        return copy.read_bytes()

    files = [back(f"file-{k}").ljust(BLOCK * BLOCKS, b"\0") for k in range(FILES)]
    for (file, block), writes in log.blocks().items():
        found = files[file][block * BLOCK : (block + 1) * BLOCK]
        allowed = [content(seed, n) if n else bytes(BLOCK) for n in writes]
        # A write that was cut off may have left a part of its bytes.
        assert all(b in {a[i] for a in allowed} for i, b in enumerate(found)), (
            f"file {file}, block {block}: not {writes}"
        )
    for number in log.small():
        assert back(f"small-{number}") == content(seed, number, 100), f"small-{number}"


def mount_cycle(deployment, seed, victim):
    """One program on a mount, one kill at a random moment, one restart."""
    choice = random.Random(seed)
    print(f"crash: --seed {seed}: {victim} killed beside a program on a mount", flush=True)
    name = f"mount-{seed}"
    notes = Path(tempfile.mkdtemp(prefix="pst-notes-"))
    point, log = notes / "mnt", notes / "log"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    (point / name).mkdir()
    process = subprocess.Popen([sys.executable, WRITER, point / name, notes, str(seed)])
    try:
        wait_for(log, choice.randrange(5, 60), process)
        time.sleep(choice.random() * 0.2)
        servers = {"meta": ["meta"], "data": [choice.choice(SERVERS[1:])], "daemon": []}.get(victim, list(SERVERS))
        victims = [server_pid(deployment, server) for server in servers]
        if victim in ("daemon", "all"):
            victims.append(daemon_of(point))
        kill(victims)
        time.sleep(choice.random() * 0.5)
        if servers:
            assert f"{len(servers)} servers started" in penstock("up", deployment).out
        if victim in ("daemon", "all"):
            assert process.wait(timeout=LONG_S) in (1, 3), "its mount has ended"
        else:
            wait_for(log, Log(log).done() + 20, process)
            (notes / "stop").touch()
            assert process.wait(timeout=LONG_S) == 0
        penstock("umount", "--lazy", point, check=False)
        verify(deployment, Log(log), seed, notes, name)
        check(deployment)
    finally:
        process.kill()
        process.wait()
        penstock("umount", "--lazy", point, check=False)
    penstock("rm", "-r", f"/{name}", "-d", deployment)
    shutil.rmtree(notes)


@pytest.fixture(scope="module")
def durable():
    """A deployment of separate server processes."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    penstock("up", directory / "fs", "--servers", len(SERVERS) - 1)
    yield directory / "fs"
    penstock("down", directory / "fs", check=False)
    shutil.rmtree(directory, ignore_errors=True)


@needs_fuse
@pytest.mark.parametrize("victim", MOUNT_VICTIMS)
def test_a_program_on_a_mount_loses_nothing_acknowledged(durable, victim, request):
    mount_cycle(durable, request.config.getoption("--seed"), victim)


def test_mixed_cycles(durable, request):
    """Each cycle on the same deployment, so that what one leaves behind meets the next."""
    seconds, cycles = request.config.getoption("--soak"), request.config.getoption("--cycles")
    if not seconds and not cycles:
        pytest.skip("a long run: pytest tests/test_crash_cycles.py --cycles N or --soak SECONDS")
    seed, end, ran = request.config.getoption("--seed"), time.monotonic() + seconds, 0
    fuse = os.access("/dev/fuse", os.R_OK | os.W_OK)
    while ran < cycles or time.monotonic() < end:
        seed, ran = seed + 1, ran + 1
        match seed % 3:
            case 0:
                crash(durable, seed, VICTIMS[seed // 3 % len(VICTIMS)])
            case 1 if fuse:
                mount_cycle(durable, seed, MOUNT_VICTIMS[seed // 3 % len(MOUNT_VICTIMS)])
            case _:
                copy_cycle(durable, seed, SERVERS[seed // 3 % len(SERVERS)])
    print(f"crash: {ran} cycles, nothing lost", flush=True)
