"""kill -9 of every role at random moments: everything acknowledged as synced is there afterwards, and check is clean.

`pytest tests/test_crash.py --soak SECONDS` goes on for that long; without it there are a few rounds. `--seed` repeats
a run's choices (what is killed, when, which contents); the machine's own timing differs.
"""

import hashlib
import os
import random
import signal
import subprocess
import threading
import time

import pytest
from conftest import PENSTOCK, penstock

ROUNDS = 4
SERVERS = ["meta", "data-0", "data-1", "data-2", "data-3"]
# A round's moments of death, seconds after the work began.
MOMENTS = (0.0, 0.6)


@pytest.fixture
def chance(request):
    seed = request.config.getoption("--seed")
    print(f"seed {seed}")
    return random.Random(seed)


def kill(deployment, name):
    """kill -9, and no sooner back than the process is gone."""
    pid = int((deployment / "run" / f"{name}.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rpartition(")")[2].split()[0] in "ZX":
                    return
        except FileNotFoundError:
            return
        time.sleep(0.005)
    raise AssertionError(f"{name} does not die")


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def attempt(deployment, *args):
    """A command that may fail because servers die under it, but not hang."""
    command = [str(a) for a in (PENSTOCK, *args, "-d", deployment)]
    return subprocess.run(command, capture_output=True, text=True, timeout=180, check=False)


def work(deployment, directory, names, chance, done):
    """Copies files in; those that were acknowledged go to `done` with their digest."""
    for name in names:
        source = directory / name
        source.write_bytes(chance.randbytes(chance.randrange(1, 3_000_000)))
        if attempt(deployment, "cp", source, f"penstock:/{name}").returncode == 0:
            done[name] = digest(source)
        source.unlink()


def verify(deployment, directory, done):
    for name, expected in done.items():
        target = directory / f"back-{name}"
        penstock("cp", f"penstock:/{name}", target, "-d", deployment)
        assert digest(target) == expected, name
        target.unlink()


def clean(deployment):
    """What a crash left over is found and freed, and then nothing is wrong."""
    penstock("check", "--repair", "-d", deployment)
    (report,) = penstock("check", "--json", "-d", deployment).json()
    assert report["clean"] and report["complete"] and not report["findings"], report


def test_synced_data_outlives_every_role(deployment, tmp_path, chance, request):
    end = time.monotonic() + request.config.getoption("--soak")
    done, round_number, acknowledged = {}, 0, 0
    while round_number < ROUNDS or time.monotonic() < end:
        victim = SERVERS[round_number % len(SERVERS)] if round_number < len(SERVERS) else chance.choice(SERVERS)
        names = [f"r{round_number}-{k}" for k in range(4)]
        worker = threading.Thread(target=work, args=(deployment, tmp_path, names, random.Random(chance.random()), done))
        worker.start()
        time.sleep(chance.uniform(*MOMENTS))
        kill(deployment, victim)
        penstock("up", deployment)
        worker.join()
        acknowledged += sum(name in done for name in names)
        verify(deployment, tmp_path, done)
        clean(deployment)
        round_number += 1
        # Room for more rounds: half of what is there goes.
        for name in chance.sample(sorted(done), len(done) // 2):
            penstock("rm", f"/{name}", "-d", deployment)
            del done[name]
    # Crashes that let nothing through would prove nothing.
    assert acknowledged >= round_number


def test_a_program_goes_on_after_a_servers_restart(deployment, examples, chance):
    """A data server dies while ranks write and read: the clients reconnect and every byte is right."""
    command = [PENSTOCK, "run", "-n", 2, "-d", deployment, "--json", "--method", "datatype", "--shortcut", "disable"]
    command += ["--", examples("hard"), "penstock:/hard", "--verify", "--repetitions", 40, "--sync"]
    process = subprocess.Popen([str(c) for c in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    while not penstock("ls", "-d", deployment).out:
        assert process.poll() is None, process.communicate()
    time.sleep(chance.uniform(*MOMENTS))
    kill(deployment, f"data-{chance.randrange(4)}")
    penstock("up", deployment)
    out, err = process.communicate(timeout=300)
    assert process.returncode == 0, out + err
    assert '"verified":true' in out
    clean(deployment)


def test_a_client_that_is_killed_leaves_nothing_half(deployment, tmp_path, chance):
    source = tmp_path / "source"
    source.write_bytes(chance.randbytes(40_000_000))
    for _ in range(3):
        process = subprocess.Popen([PENSTOCK, "cp", source, "penstock:/target", "-d", deployment])
        time.sleep(chance.uniform(0.0, 0.15))
        process.kill()
        process.wait()
        names = penstock("ls", "-d", deployment).out.split()
        if "target" in names:
            penstock("cp", "penstock:/target", tmp_path / "back", "-d", deployment, "--force")
            assert digest(tmp_path / "back") == digest(source)
        for name in names:
            penstock("rm", f"/{name}", "-d", deployment)
        clean(deployment)
