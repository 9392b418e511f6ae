"""A user who has stolen a data server's key, and an honest one beside him. crates/client/examples/thief.rs is the thief."""

import json
import os
import shutil
import subprocess
import threading
import time

import pytest
from conftest import PENSTOCK, penstock
from test_credentials import STRANGER, USER, deployed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become others")

ATTACK_S = 3
THIEF = PENSTOCK.parent / "examples" / "thief"
# What is tried where, and why it is refused.
META, DATA = {"metadata server"}, {"data server 0", "data server 1"}
REFUSED = {
    "open the file": (META, "Permission"),
    "open several": (META, "Permission"),
    "stat": (META, "Permission"),
    "renew a capability": (META, "Permission"),
    "act for the owner": (META, "Permission"),
    "unlink": (META, "Permission"),
    "list files": (META, "Permission"),
    "another's store": (META, "Permission"),
    "renew another's store": (META, "Permission"),
    "another's counts of bytes": (META, "Permission"),
    "list programs": (META, "Permission"),
    "read keys again": (META | DATA, "Permission"),
    "take credentials back": (META, "Permission"),
    "stop": (META | DATA, "Permission"),
    "another data server": (META, "BadKey"),
    "a server as a client": (DATA, "Permission"),
    "the owner, by a forged credential": (META | DATA, "Permission"),
    "an administrator, by a forged credential": (META | DATA, "Permission"),
    "an administrator": (META | DATA, "Permission"),
    "attach by a forged capability": ({"data server 1"}, "BadCapability"),
    "look by a forged capability": ({"data server 1"}, "BadCapability"),
    "remove by a forged capability": ({"data server 1"}, "BadCapability"),
    "attach by the owner's capability": (DATA, "BadCapability"),
    "list objects": (DATA, "Permission"),
    "remove an object": (DATA, "Permission"),
    "settings": (DATA, "Permission"),
}


@pytest.fixture
def host(short_dir, tmp_path):
    with deployed(short_dir, tmp_path) as host:
        yield host


class Honest:
    """Writes and reads back, over and over."""

    def __init__(self, host, credential):
        self.host, self.credential = host, credential
        self.rounds, self.failed = 0, []
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.work)

    def work(self):
        home = self.host.home(USER)
        source = home / "honest"
        source.write_bytes(os.urandom(1 << 20))
        source.chmod(0o644)
        while not self.over.is_set():
            back = home / f"back-{self.rounds}"
            for way in (("--force", source, "penstock:/open/honest"), ("penstock:/open/honest", back)):
                done = self.host.run(USER, "cp", *way, credential=self.credential, check=False)
                if done.code != 0:
                    self.failed.append(done.err)
            if not back.exists() or back.read_bytes() != source.read_bytes():
                self.failed.append(f"round {self.rounds}: other bytes")
            self.rounds += 1

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(timeout=60)


def events(host, outcome):
    """What the servers have noted: starts, stops, what administrators did, refusals."""
    records = penstock("audit", "--json", "-d", host.deployment).json()
    return [(r["time"], r["server"], r["event"]) for r in records if r["outcome"] == outcome]


def prepare(host, owners):
    """The thief's directory: a program, a key, and a credential of the owner, of which one capability is used."""
    home = host.home(STRANGER)
    for source, name in (
        (host.deployment / "data-0.key", "data-0.key"),
        (owners, "owners.credential"),
        (THIEF, "thief"),
    ):
        shutil.copy(source, home / name)
        os.chown(home / name, STRANGER, STRANGER)
    (home / "thief").chmod(0o755)
    return home


def steal(home, credential):
    """What the thief tried, and what came of it."""
    done = subprocess.run(
        [home / "thief", home, "0", "/open/secret", str(USER), home / "owners.credential"],
        user=STRANGER,
        group=STRANGER,
        extra_groups=[],
        cwd="/",
        env={"HOME": str(home), "PENSTOCK_CREDENTIAL": str(credential)},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, (done.stdout, done.stderr)
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_a_stolen_data_servers_key(host):
    mine, thiefs = host.credential(USER), host.credential(STRANGER)
    secret = host.home(USER) / "secret"
    secret.write_bytes(os.urandom(1 << 20))
    secret.chmod(0o600)
    os.chown(secret, USER, USER)
    host.run(USER, "cp", secret, "penstock:/open/secret", credential=mine)
    home = prepare(host, mine)
    before = events(host, "done")
    with Honest(host, mine) as honest:
        until = time.monotonic() + ATTACK_S
        while time.monotonic() < until:
            tried = steal(home, thiefs)
    assert honest.rounds > 1 and not honest.failed, (honest.rounds, honest.failed)
    # The key is good for what it is there for: its own server's objects, and the time.
    own = {(t["tried"], t["at"]): t["granted"] for t in tried if t["tried"].startswith("own: ")}
    assert own == {("own: time", "metadata server"): True, ("own: attach", "data server 0"): True}, own
    found = {}
    for t in tried:
        if not t["tried"].startswith("own: "):
            assert not t["granted"], t
            found.setdefault(t["tried"], []).append(t)
    assert found.keys() == REFUSED.keys()
    for what, (places, kind) in REFUSED.items():
        assert {t["at"] for t in found[what]} == places, found[what]
        assert {t["kind"] for t in found[what]} == {kind}, found[what]
    # Nothing has changed, and the servers have noted it.
    host.run(USER, "cp", "penstock:/open/secret", host.home(USER) / "again", credential=mine)
    assert (host.home(USER) / "again").read_bytes() == secret.read_bytes()
    host.run(USER, "ls", credential=mine)
    assert events(host, "done") == before
    refused = {(server, event) for _, server, event in events(host, "refused")}
    assert {("meta", "permission"), ("data-1", "capability"), ("data-1", "credential")} <= refused, refused
