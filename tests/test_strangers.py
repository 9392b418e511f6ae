"""Users of one host who do not trust each other: who gets descriptors, and how long one keeps the other waiting.

crates/client/examples/stranger.rs is the attacker: it may read the file, and no more (docs/administer/security.md).
"""

import errno
import json
import os
import shutil
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import PENSTOCK, penstock
from mounted import daemon_of, needs_fuse
from test_bad_input import program

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become others")

OWNER, STRANGER = 61001, 61002
STRANGER_PROGRAM = PENSTOCK.parent / "examples" / "stranger"
# The metadata server has four times as many.
COUNTERS_OF_A_USER = 16384
ATTACK_S = 8
# What a server has of each, or less with few descriptors.
CONNECTIONS, LOCKS = 1536, 65536

# Each access of one data server waits at most a second for the stranger's locks. There are four of them.
OWNERS = """
os.setgroups([]); os.setgid(UID); os.setuid(UID)
f = opened("open/shared")
data = bytes(range(256)) * 1024
slowest = 0.0
def timed(call, *args):
    global slowest
    began = time.monotonic()
    call(*args)
    slowest = max(slowest, time.monotonic() - began)
f.Write_at(0, data)
f.Sync()
print("ready", flush=True)
Path(READY).touch()
until = time.monotonic() + SECONDS
rounds = 0
while time.monotonic() < until:
    timed(f.Write_at, 0, data)
    timed(f.Set_size, len(data) // 2)
    f.Set_atomicity(True)
    timed(f.Write_at, 0, data)
    f.Set_atomicity(False)
    timed(f.Write_shared, b"shared")
    back = bytearray(len(data) - 4096)
    f.Read_at(4096, back)
    assert back == data[4096:]
    rounds += 1
g = opened("open/second")
g.Write_shared(b"new counters")
g.Close()
f.Close()
Path(TOLD).write_text(f"{rounds} {slowest}")
"""


def view_of(deployment, directory, uid):
    """The deployment as a user has it that its owner let in: sockets, the client key, no other key."""
    view = directory / f"of-{uid}"
    view.mkdir()
    text = (deployment / "deployment.toml").read_text()
    (view / "deployment.toml").write_text(text.replace('"run/', f'"{deployment}/run/'))
    key = view / "client.key"
    key.write_text((deployment / "client.key").read_text())
    key.chmod(0o600)
    for path in (view, key):
        os.chown(path, uid, uid)
    return view


@pytest.fixture
def let_in(deployment, short_dir, tmp_path):
    """A deployment with a directory for all, and its views for two users."""
    source = tmp_path / "open"
    source.mkdir()
    source.chmod(0o777)
    penstock("cp", "-r", source, "penstock:/open", "-d", deployment)
    for path in (short_dir, deployment, deployment / "run"):
        path.chmod(0o755)
    for path in (deployment / "run").glob("*.sock"):
        path.chmod(0o666)
    return view_of(deployment, short_dir, OWNER), view_of(deployment, short_dir, STRANGER)


def test_planted_deployment_files_are_refused(deployment, short_dir):
    view = view_of(deployment, short_dir, 0)
    file = view / "deployment.toml"
    penstock("ls", "-d", view)
    file.chmod(0o666)
    told = penstock("ls", "-d", view, check=False)
    assert told.code != 0 and "others may write it" in told.err and "chmod go-w" in told.err, told.err
    file.chmod(0o644)
    view.chmod(0o777)
    told = penstock("ls", "-d", view, check=False)
    assert told.code != 0 and "others may replace it" in told.err, told.err
    # As in /tmp: everybody may put files there, and take away one's own alone.
    view.chmod(0o1777)
    penstock("ls", "-d", view)
    os.chown(file, STRANGER, STRANGER)
    for command in (["ls", "-d", view], ["cp", file, "penstock:/x", "-d", view], ["status", view]):
        told = penstock(*command, check=False)
        assert told.code != 0 and f"it belongs to user {STRANGER}" in told.err, (command, told.err)


def copied(program, directory):
    """Where every user may run it."""
    copy = directory / program.name
    shutil.copy(program, copy)
    copy.chmod(0o755)
    return copy


def stranger(view, directory, path, seconds, *how):
    """The attack, started."""
    copy = copied(STRANGER_PROGRAM, directory)
    return subprocess.Popen(
        [copy, *how, view, path, str(seconds)],
        **user(STRANGER),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def attack_when(ready, view, directory):
    """Attacks once the file is there. The attacker's process, with what it said."""
    deadline = time.monotonic() + 30
    while not ready.exists():
        assert time.monotonic() < deadline, "the writer did not begin"
        time.sleep(0.02)
    attack = stranger(view, directory, "/open/shared", ATTACK_S)
    return attack, *attack.communicate(timeout=60)


def test_a_reader_stops_no_writer(let_in, short_dir, tmp_path):
    owners, strangers = let_in
    said = short_dir / "said"
    said.mkdir()
    said.chmod(0o777)
    ready, told = said / "ready", said / "told"
    body = OWNERS.replace("UID", str(OWNER)).replace("SECONDS", str(ATTACK_S - 2))
    body = body.replace("READY", repr(str(ready))).replace("TOLD", repr(str(told)))
    with ThreadPoolExecutor() as pool:
        attacked = pool.submit(attack_when, ready, strangers, short_dir)
        program(tmp_path, owners, body)
        attack, out, err = attacked.result(timeout=60)
    assert attack.returncode == 0, err
    got = json.loads(out)
    assert got["descriptors"] == 0 and any("owner" in reason for reason in got["refusals"]), got
    assert 0 < got["counters"] <= COUNTERS_OF_A_USER, got
    # It had locks, and lost them to the writer.
    assert got["locks"] > 0 and got["lost_locks"] > 0, got
    rounds, slowest = told.read_text().split()
    assert int(rounds) >= 1 and float(slowest) < 20, (rounds, slowest)


@needs_fuse
def test_an_owner_who_cuts_by_a_descriptor_ends_nobody(let_in, deployment, short_dir):
    """Who reads the owner's file is told of an error at worst: a mount of root's, root's programs and other users' jobs."""
    owners, strangers = let_in
    point, data = short_dir / "mnt", short_dir / "data"
    command, reader = copied(PENSTOCK, short_dir), copied(STRANGER_PROGRAM.parent / "reader", short_dir)
    copied(STRANGER_PROGRAM, short_dir)
    data.write_bytes(bytes(range(256)) * 16_384)
    data.chmod(0o644)
    for name in ("cut", "whole"):
        as_owner(command, "cp", data, f"penstock:/open/{name}", "-d", owners)
    servers = {path: path.read_text() for path in (deployment / "run").glob("*.pid")}
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    try:
        daemon = daemon_of(point)
        attack = [short_dir / STRANGER_PROGRAM.name, "cut", owners, "/open/cut", str(ATTACK_S)]
        ended = []
        with subprocess.Popen(attack, **user(OWNER), stdout=subprocess.PIPE, text=True) as attacker:
            while attacker.poll() is None:
                for uid, view in ((STRANGER, strangers), (0, deployment)):
                    job = [reader, view, "/open/cut", "65536", "0.3"]
                    ended.append(subprocess.run(job, **user(uid), capture_output=True, check=False).returncode)
                try:
                    (point / "open" / "cut").read_bytes()
                except OSError as e:
                    assert e.errno in (errno.EIO, errno.EBADMSG), e
                assert (point / "open" / "whole").read_bytes() == data.read_bytes()
            got = json.loads(attacker.stdout.read())
        assert attacker.returncode == 0 and got["descriptors"] > 0 and got["cuts"] > 100, got
        # None ended by a signal; some had to be told of an error.
        assert len(ended) >= 4 and set(ended) <= {0, 1} and 1 in ended, ended
        assert daemon_of(point) == daemon
    finally:
        penstock("umount", "--lazy", point)
    assert {path: path.read_text() for path in (deployment / "run").glob("*.pid")} == servers
    assert penstock("status", "-d", deployment).out.count(" up ") >= 5


def user(uid):
    """How a program is run as another user."""
    return {"user": uid, "group": uid, "extra_groups": [], "cwd": "/", "env": {"PATH": os.environ["PATH"], "HOME": "/"}}


def as_owner(command, *args):
    """Runs the command as the owner, in a process with connections of its own. How long it took."""
    began = time.monotonic()
    done = subprocess.run(
        [command, *map(str, args)],
        **user(OWNER),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, (args, done.stdout, done.stderr)
    return time.monotonic() - began


def refusals_for_limits(deployment):
    """Records of the audit logs about the stranger and limits, by server."""
    found = {}
    for log in (deployment / "log").glob("audit-*.jsonl"):
        for line in log.read_text().splitlines():
            record = json.loads(line)
            if record["event"] == "limit" and record["user"] == STRANGER:
                found.setdefault(record["server"], []).append(record["reason"])
    return found


def test_who_takes_all_connections_and_locks_leaves_some(let_in, deployment, short_dir, tmp_path):
    owners, strangers = let_in
    command = copied(PENSTOCK, short_dir)
    data, back = short_dir / "data", short_dir / "back"
    data.write_bytes(bytes(range(256)) * 4096)
    data.chmod(0o644)
    back.mkdir()
    back.chmod(0o777)
    as_owner(command, "cp", "--force", data, "penstock:/open/taken", "-d", owners)
    with stranger(strangers, short_dir, "/open/taken", ATTACK_S, "take") as attack:
        # It says what it has, and keeps it until its input ends.
        took = json.loads(attack.stdout.readline() or attack.communicate()[1])
        slowest = max(
            as_owner(command, *way, "-d", owners)
            for i in range(3)
            for way in (
                ("cp", "--force", data, "penstock:/open/taken"),
                ("cp", "penstock:/open/taken", back / str(i)),
            )
        )
        status = penstock("status", "-d", deployment)
        _, err = attack.communicate(timeout=60)
    assert attack.returncode == 0, err
    assert all((back / str(i)).read_bytes() == data.read_bytes() for i in range(3))
    assert status.out.count(" up ") >= 5, status.out
    # Three quarters of each server's, as long as nobody else has any; then it is told whose share that is.
    assert len(took["connections"]) == 5
    assert all(100 < n <= CONNECTIONS * 3 // 4 for n in took["connections"]), took
    assert all(f"user {STRANGER} has " in said for said in took["refusals"]), took
    assert 0 < took["locks"] <= LOCKS * 3 // 4, took
    assert slowest < 20, slowest
    refused = refusals_for_limits(deployment)
    assert len(refused) == 5 and all("connections" in said[0] for said in refused.values()), refused
    # What it had is there for others again.
    as_owner(command, "cp", "--force", data, "penstock:/open/taken", "-d", owners)
