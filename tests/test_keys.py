"""Keys are replaced while programs run (docs/decisions/0029): `penstock keys`."""

import os
import shutil
import signal
import subprocess
import time

import pytest
from conftest import penstock
from mounted import needs_fuse
from test_credentials import USER, host

pytestmark = [needs_fuse, pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become others")]
__all__ = ["host"]

# Connections by keys that are gone have ended by then.
LIMIT = 10


def generations(deployment):
    held = penstock("keys", "--json", "-d", deployment).json()[0]
    return held["current"], held["other"]


def rotate(deployment):
    return penstock("keys", "--rotate", "-d", deployment).out


class Writer:
    """A program that appends to a file of a mount and syncs it, ten times a second, by one descriptor."""

    CODE = """
import os, sys, time
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
while True:
    os.write(fd, b"0123456789abcdef")
    os.fsync(fd)
    print(flush=True)
    time.sleep(0.1)
"""

    def __init__(self, path):
        self.path = path
        self.process = subprocess.Popen(
            ["python3", "-c", self.CODE, path.relative_to(path.parent.parent)],
            user=USER,
            group=USER,
            extra_groups=[],
            cwd=path.parent.parent,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def goes_on(self, seconds=1.5):
        time.sleep(seconds)
        assert self.process.poll() is None, self.process.stderr.read()

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        out, _ = self.process.communicate(timeout=10)
        return out.count(b"\n")


@pytest.fixture
def writer(host):
    """By a mount of another host, which began with the first keys."""
    point = host.directory / "mnt"
    point.mkdir()
    file = host.credential(0, "--speaks-for", f"{USER}-{USER}")
    penstock("mount", point, "-d", host.home(0), env={"PENSTOCK_CREDENTIAL": str(file)})
    writer = Writer(point / "open" / "log")
    writer.goes_on(1)
    yield writer
    writer.process.kill()
    writer.process.communicate()
    penstock("umount", "--lazy", point, check=False)


def renewed(host, uid):
    """What a user is given after a rotation, as a host of its own."""
    home = host.home(uid)
    shutil.rmtree(home)
    named = penstock("keys", "-d", host.deployment).out
    key = next(
        word for line in named.splitlines() if "current" in line for word in line.split() if word.endswith(".key")
    )
    host.home(uid)
    (home / "client.key").unlink()
    shutil.copy(key, home / os.path.basename(key))
    os.chown(home / os.path.basename(key), uid, uid)
    (home / os.path.basename(key)).chmod(0o600)


def test_programs_go_on_while_keys_are_replaced(host, writer):
    old = host.credential(USER)
    assert generations(host.deployment) == (1, None)
    told = rotate(host.deployment)
    assert generations(host.deployment) == (2, 1) and "former" in told and "client-2.key" in told, told
    # The mount, whose keys and credential are the former ones, and commands of a host with those.
    writer.goes_on()
    host.run(USER, "ls", credential=old)
    # A user with the new files: his credential of before is good as well.
    kept = old.read_bytes()
    renewed(host, USER)
    old.write_bytes(kept)
    old.chmod(0o600)
    os.chown(old, USER, USER)
    host.run(USER, "ls", credential=old)
    new = host.credential(USER, name="new")
    host.run(USER, "ls", credential=new)
    # Servers that start again take both generations from the file.
    penstock("down", host.deployment)
    penstock("up", host.deployment)
    writer.goes_on(3)
    host.run(USER, "ls", credential=new)
    # Of the former authority there is no new credential; what the former generation has, ends with it.
    told = penstock("keys", "--end-former", "-d", host.deployment).out
    assert "authority.key" in told, told
    assert generations(host.deployment) == (2, None)
    refused = host.run(USER, "ls", credential=old, check=False)
    assert refused.code != 0 and "authority" in refused.err, refused.err
    host.run(USER, "ls", credential=new)
    begun = time.monotonic()
    while writer.process.poll() is None:
        assert time.monotonic() - begun < 60, "the mount is served by the former keys"
        time.sleep(0.2)
    # Nothing that was synced is gone.
    synced = writer.process.stdout.read().count(b"\n")
    size = penstock("stat", "--json", "penstock:/open/log", "-d", host.deployment).json()[0]["size"]
    assert size >= 16 * synced > 160, (size, synced)
    again = penstock("keys", "--end-former", "-d", host.deployment, check=False)
    assert again.code != 0 and "one generation" in again.err, again.err


def test_a_third_generation_ends_the_first(host):
    first = host.credential(USER)
    rotate(host.deployment)
    host.run(USER, "ls", credential=first)
    told = rotate(host.deployment)
    assert generations(host.deployment) == (3, 2)
    assert "no longer used" in told and f"{host.deployment}/client.key" in told, told
    refused = host.run(USER, "ls", credential=first, check=False)
    assert refused.code != 0 and "deployment file" in refused.err, refused.err
    penstock("ls", "-d", host.deployment)


def test_all_servers_must_have_the_keys(host):
    deployment = host.deployment
    # Nobody is told while one is away.
    pid = next(p for p in (deployment / "run").iterdir() if p.name.startswith("data-1") and p.suffix == ".pid")
    os.kill(int(pid.read_text().split()[0]), signal.SIGKILL)
    failed = penstock("keys", "--rotate", "-d", deployment, check=False)
    assert failed.code != 0 and "data server 1" in failed.err and generations(deployment) == (1, None), failed.err
    # One reads a copy of the deployment file, as on another host.
    copy = host.directory / "copy"
    copy.mkdir()
    names = ("deployment.toml", "client.key", "data-1.key")
    for name in names:
        shutil.copy2(deployment / name, copy / name)
    for name in ("run", "data-1", "log"):
        (copy / name).symlink_to(deployment / name)
    server = subprocess.Popen([str(host.program), "serve", "--server", "1", "-d", str(copy)], stderr=subprocess.PIPE)
    try:
        begun = time.monotonic()
        while (
            failed := penstock("keys", "--rotate", "-d", deployment, check=False)
        ).code == 0 or "another deployment file" not in failed.err:
            assert time.monotonic() - begun < 30, failed.err
            time.sleep(0.5)
        assert "data server 1" in failed.err and "NAME-2.key" in failed.err, failed.err
        # The next generation waits; the first is used.
        assert generations(deployment) == (1, 2)
        begun = penstock("keys", "--end-former", "-d", deployment, check=False)
        assert begun.code != 0 and "not finished" in begun.err and generations(deployment) == (1, 2), begun.err
        host.run(USER, "ls", credential=host.credential(USER))
        for name in ("deployment.toml", "client-2.key", "data-1-2.key"):
            shutil.copy2(deployment / name, copy / name)
        rotate(deployment)
        assert generations(deployment) == (2, 1)
        penstock("cp", __file__, "penstock:/open/f", "-d", deployment)
    finally:
        server.kill()
        server.communicate()


def test_only_where_the_deployment_was_made(host):
    administrator = host.credential(USER, "--administrator")
    told = host.run(USER, "keys", "--rotate", credential=administrator, check=False)
    assert told.code != 0 and "authority.key" in told.err and generations(host.deployment) == (1, None), told.err
    host.run(USER, "ls", credential=administrator)
    rotate(host.deployment)
    events = penstock("audit", "--json", "-d", host.deployment).json()
    assert {e["server"] for e in events if e["event"] == "keys"} == {"meta", "data-0", "data-1"}, events
