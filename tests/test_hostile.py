"""200 connections that mean harm beside a client that does not; and who can see the keys.

crates/client/examples/hostile.rs is the driver; the share of its throughput that the good client keeps is measured by
`make bench ONLY=security`.
"""

import json
import os
import stat
import subprocess
import time
from pathlib import Path

from conftest import PENSTOCK, penstock

HOSTILE = PENSTOCK.parent / "examples" / "hostile"
CONNECTIONS = 200
ATTACK_S = 4
# A server's memory: its start, and a connection's buffers for each of the 40 connections to it.
MEMORY_MIB = 256
LOG_KIB = 256


def servers(deployment):
    """Process ids of the deployment's servers."""
    pids = []
    for proc in Path("/proc").glob("[0-9]*"):
        try:
            words = (proc / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if b"serve" in words and str(deployment).encode() in b" ".join(words):
            pids.append(int(proc.name))
    return pids


def resident_mib(pid):
    (line,) = [x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")]
    return int(line.split()[1]) / 1024


def good(deployment, seconds):
    done = subprocess.run([HOSTILE, "good", deployment, str(seconds)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["errors"] == 0 and told["wrong_bytes"] == 0, f"{told}\n{done.stderr}"
    return told


def test_200_hostile_connections(deployment):
    before = servers(deployment)
    assert len(before) == 5
    good(deployment, 0.5)
    # On its own host an attacker has a processor of its own; here it gets what the others leave.
    command = ["nice", "-n", "19", HOSTILE, "attack", deployment, str(CONNECTIONS), str(ATTACK_S), "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as attack:
        time.sleep(0.5)
        during = good(deployment, ATTACK_S - 2)
        status = penstock("status", "-d", deployment)
        memory = {pid: resident_mib(pid) for pid in before}
        out, err = attack.communicate(timeout=60)
    assert attack.returncode == 0, err
    told = json.loads(out)
    # It did what it was meant to do, and nothing that it must not be able to do.
    assert told["connections"] >= CONNECTIONS and told["refusals"] > 0 and told["requests"] > 1000, told
    assert told["breaches"] == 0, err
    assert during["rounds"] >= 3, during
    assert status.out.count(" up ") >= 5, status.out
    assert max(memory.values()) < MEMORY_MIB, memory
    # The same processes are there, nothing panicked, nothing is wrong with what they store.
    assert servers(deployment) == before
    for log in (deployment / "log").iterdir():
        text = log.read_text()
        assert "panicked" not in text and len(text) < LOG_KIB << 10, f"{log}: {text[-2000:]}"
    after = good(deployment, 0.5)
    assert after["rounds"] >= 3
    # A flipped bit may make a message into an unlink of the attacker's own file. This leaves objects behind, as any
    # client does that goes before it has freed them. Their space is lost until a repair, and nothing else.
    check = penstock("check", "-d", deployment, check=False)
    wrong = [line for line in check.out.splitlines() if " data server " in line]
    assert check.code == 0 or wrong and all("no file has it" in line for line in wrong), check.out
    penstock("check", "--repair", "-d", deployment, check=False)
    assert "nothing is wrong" in penstock("check", "-d", deployment).out


def attacked(deployment, way, connections, seconds):
    """An attack in one way, a client beside it that must notice nothing, and the servers' memory meanwhile."""
    command = ["nice", "-n", "19", HOSTILE, "attack", deployment, str(connections), str(seconds), "1", way]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as attack:
        time.sleep(seconds / 4)
        during = good(deployment, seconds / 2)
        memory = {pid: resident_mib(pid) for pid in servers(deployment)}
        out, err = attack.communicate(timeout=60)
    assert attack.returncode == 0, err
    told = json.loads(out)
    assert told["requests"] >= connections and during["rounds"] >= 1, (told, during)
    return memory


def threads(pid):
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_accesses_of_2_to_the_60_pieces_keep_no_thread(deployment):
    good(deployment, 0.2)
    before = {pid: threads(pid) for pid in servers(deployment)}
    attacked(deployment, "Endless", 20, 3)
    # Whoever asked has gone, and so has the thread that worked for it.
    deadline = time.monotonic() + 30
    while any(threads(pid) > before[pid] + 2 for pid in before):
        assert time.monotonic() < deadline, ({pid: threads(pid) for pid in before}, before)
        time.sleep(0.1)
    good(deployment, 0.2)


def test_what_is_announced_takes_no_memory(deployment):
    connections = 400
    good(deployment, 0.2)
    before = {pid: resident_mib(pid) for pid in servers(deployment)}
    during = attacked(deployment, "Announcer", connections, 3)
    # A server has 80 of the connections, each with its thread and a buffer of 32 KiB.
    assert set(during) == set(before)
    grown = {pid: during[pid] - before[pid] for pid in before}
    assert max(grown.values()) < 16, grown


def everything_visible():
    """What any user may read of the processes: their command lines and, of one's own, the environment."""
    for proc in Path("/proc").glob("[0-9]*"):
        for name in ("cmdline", "environ"):
            try:
                yield f"{proc}/{name}", (proc / name).read_bytes()
            except OSError:
                continue


def open_to_others(directory):
    """What of a directory the group or others may use."""
    for path in [directory, *directory.rglob("*")]:
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and stat.S_IMODE(mode) & 0o077:
            yield str(path), oct(stat.S_IMODE(mode))


def test_keys_are_seen_by_nobody(short_dir, examples):
    deployment = short_dir / "fs"
    umask = os.umask(0)  # the most careless user
    try:
        penstock("up", deployment)
    finally:
        os.umask(umask)
    try:
        keys = []
        for name in ("client.key", "authority.key", "meta.key", "data-0.key"):
            text = (deployment / name).read_bytes().strip()
            keys += [text, bytes.fromhex(text.decode())]
            assert stat.S_IMODE((deployment / name).stat().st_mode) == 0o600
        command = [PENSTOCK, "run", "-d", deployment, "-n", "2", "--", examples("hard"), "penstock:/f"]
        looks = 0
        with subprocess.Popen(
            [*command, "--repetitions", "3"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        ) as program:
            while program.poll() is None:
                for where, seen in everything_visible():
                    looks += 1
                    assert not any(key in seen for key in keys), where
        assert program.returncode == 0 and looks > 10
        assert list(open_to_others(deployment)) == [(str(deployment / "deployment.toml"), "0o644")]
        for path in [*(deployment / "log").iterdir(), deployment / "deployment.toml"]:
            assert not any(key in path.read_bytes() for key in keys), path
    finally:
        penstock("down", deployment, check=False)
