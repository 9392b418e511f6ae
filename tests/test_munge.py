"""Users over TCP whom MUNGE vouches for (docs/decisions/0027). The tests run a munged of their own, as an ordinary user.

Users here see a deployment as those of another host do, and have no credential. crates/client/examples/newcomer.rs is the attacker.
"""

import json
import os
import shutil
import subprocess
import time

import pytest
from conftest import PENSTOCK, free_ports, penstock
from test_credentials import NOBODY, STRANGER, USER, deployed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become others")

MUNGED = 61003
NEWCOMER = PENSTOCK.parent / "examples" / "newcomer"


class Munged:
    """A munged of an ordinary user, with a key of its own."""

    def __init__(self, directory):
        self.directory = directory
        directory.mkdir(mode=0o755)
        key = directory / "key"
        key.write_bytes(os.urandom(128))
        key.chmod(0o600)
        for path in (directory, key):
            os.chown(path, MUNGED, MUNGED)
        self.socket = directory / "socket"
        self.process = None

    def start(self):
        options = [f"--{name}-file={self.directory / name}" for name in ("key", "pid", "log", "seed")]
        self.process = subprocess.Popen(
            [shutil.which("munged", path="/usr/sbin:/usr/bin"), "--foreground", f"--socket={self.socket}", *options],
            user=MUNGED,
            group=MUNGED,
            extra_groups=[],
            stderr=subprocess.PIPE,
            text=True,
        )
        deadline = time.monotonic() + 20
        while not self.socket.exists():
            assert self.process.poll() is None, self.process.stderr.read()
            assert time.monotonic() < deadline, "munged does not start"
            time.sleep(0.02)

    def stop(self):
        if self.process:
            self.process.terminate()
            self.process.communicate(timeout=20)
            self.process = None


@pytest.fixture
def munged(short_dir):
    short_dir.chmod(0o755)
    munged = Munged(short_dir / "munge")
    munged.start()
    yield munged
    munged.stop()


@pytest.fixture
def host(munged, short_dir, tmp_path):
    with deployed(short_dir, tmp_path, f"--munge={munged.socket}") as host:
        yield host


def given(host):
    """What the metadata server's audit log says of the credentials that it gave."""
    return audited(host, "issue")


def audited(host, event):
    time.sleep(0.2)
    found = penstock("audit", "--json", "-d", host.deployment).json()
    return [e for e in found if e["event"] == event and e["server"] == "meta"]


def newcomer(host, uid, act, *arguments, **options):
    """The attacker's program, started as a user of that host."""
    program = host.directory / "newcomer"
    if not program.exists():
        shutil.copy(NEWCOMER, program)
        program.chmod(0o755)
    return subprocess.Popen(
        [str(a) for a in (program, act, host.home(uid), *arguments)],
        user=uid,
        group=uid,
        extra_groups=[],
        cwd="/",
        env={"HOME": str(host.home(uid)), "PATH": os.environ["PATH"]},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **options,
    )


def outcome(process, timeout=60):
    out, err = process.communicate(timeout=timeout)
    assert process.returncode == 0, err
    return json.loads(out.splitlines()[-1])


def test_a_user_needs_no_file(host):
    source = host.home(USER) / "tree"
    source.mkdir()
    for n in range(20):
        (source / f"f{n}").write_bytes(os.urandom(50_000))
        (source / f"f{n}").chmod(0o600)
    for path in (source, *source.iterdir()):
        os.chown(path, USER, USER)
    host.run(USER, "cp", "-r", source, "penstock:/open/tree")
    # One process, eight connections to each of three servers: munged was asked once.
    records = given(host)
    assert [(r["user"], r["role"], r["outcome"]) for r in records] == [(USER, "user", "done")], records
    assert len(records[0]["credential"]) == 32, records
    host.run(USER, "cp", "-r", "penstock:/open/tree", host.home(USER) / "back")
    for file in source.iterdir():
        assert (host.home(USER) / "back" / file.name).read_bytes() == file.read_bytes()
    stat = penstock("stat", "--json", "penstock:/open/tree/f0", "-d", host.deployment).json()[0]
    assert (stat["uid"], stat["gid"], stat["mode"]) == (USER, NOBODY, "0600"), stat
    # Nobody has more rights than are his own.
    for uid, refused in (
        (USER, ["ls", "penstock:/closed"]),
        (STRANGER, ["cp", "penstock:/open/tree/f0", host.home(STRANGER) / "stolen"]),
        (STRANGER, ["rm", "penstock:/open/tree/f0"]),
    ):
        told = host.run(uid, *refused, check=False)
        assert told.code != 0 and f"user {uid} may not" in told.err, (refused, told.err)
    told = host.run(0, "ls", "penstock:/closed", check=False)
    assert told.code != 0 and f"user {NOBODY} may not" in told.err, told.err
    told = host.run(0, "tune", "sched=to", check=False)
    assert told.code != 0 and "is not an administrator" in told.err, told.err
    point = host.directory / "mnt"
    point.mkdir()
    told = host.run(0, "mount", point, check=False)
    assert told.code != 0 and "--speaks-for" in told.err, told.err
    told = host.run(NOBODY, "ls", check=False)
    assert told.code != 0 and f"user {NOBODY} is nobody" in told.err, told.err


def test_a_credential_of_ones_own_comes_first(host, munged):
    file = host.credential(USER)
    munged.stop()
    host.run(USER, "ls", credential=file)
    assert not [r for r in given(host) if r["role"] == "user"]


def test_a_relayed_munge_credential_is_refused(host):
    """Whoever gets hold of it can't use it, for himself or for the user, and the user can still."""
    victim = newcomer(host, USER, "offer")
    text = victim.stdout.readline().strip()
    assert text.startswith("MUNGE:"), text
    told = outcome(newcomer(host, STRANGER, "show", text))
    assert f"user {USER} has made it for another connection" in told["refused"], told
    told = outcome(newcomer(host, USER, "again"))
    assert f"user {USER} has made it for another connection" in told["refused"], told
    victim.communicate(timeout=60)
    records = [r for r in audited(host, "credential") if r["outcome"] == "refused"]
    assert any("another connection" in r["reason"] for r in records), records
    # What was made for its own connection is good.
    honest = newcomer(host, USER, "offer")
    honest.stdout.readline()
    assert outcome(honest) == {"user": USER}


def test_a_replayed_or_foreign_munge_credential_is_refused(host, short_dir):
    told = outcome(newcomer(host, USER, "replay"))
    assert "Replayed credential" in told["refused"], told
    # munged of another site, which says what root there wants it to.
    foreign = Munged(short_dir / "foreign")
    foreign.start()
    try:
        file = host.home(USER) / "deployment.toml"
        file.write_text(file.read_text().replace(f"{short_dir}/munge/", f"{short_dir}/foreign/"))
        told = host.run(USER, "ls", check=False)
        assert told.code != 0 and "refuses the MUNGE credential" in told.err and "keys" in told.err, told.err
    finally:
        foreign.stop()


def test_newcomers_can_do_nothing_else(host):
    assert outcome(newcomer(host, USER, "stray")) == {"served": False}
    crowd = newcomer(host, STRANGER, "crowd", 150)
    assert int(crowd.stdout.readline()) > 100
    begun = time.monotonic()
    host.run(USER, "ls")
    assert time.monotonic() - begun < 10
    crowd.communicate(timeout=60)


def test_without_munged(host, munged):
    munged.stop()
    told = host.run(USER, "ls", check=False)
    for words in ("munged of this host makes none", "systemctl start munge", f"penstock credential --user {USER}"):
        assert told.code != 0 and words in told.err, told.err
    # Those whom the kernel knows notice nothing; a metadata server does not start without it.
    penstock("ls", "-d", host.deployment)
    penstock("down", host.deployment)
    told = penstock("up", host.deployment, check=False)
    assert told.code != 0 and "munged of this host does not answer" in told.err, told.err
    munged.start()
    penstock("up", host.deployment)
    host.run(USER, "ls")


def test_a_munged_that_hangs_holds_nobody_up(host, munged):
    file = host.credential(STRANGER)
    waiting = [newcomer(host, USER, "offer") for _ in range(6)]
    for process in waiting:
        process.stdout.readline()
    munged.process.send_signal(19)
    try:
        for process in waiting:
            process.stdin.close()
        begun = time.monotonic()
        host.run(STRANGER, "ls", credential=file)
        assert time.monotonic() - begun < 5
        told = [json.loads(process.stdout.readline())["refused"] for process in waiting]
        assert all("is slow" in t and "try again" in t for t in told), told
    finally:
        munged.process.send_signal(18)
        for process in waiting:
            process.wait(timeout=60)
    host.run(USER, "ls")


def limited(host, seconds):
    """Starts the servers again: what they give lasts so long. The deployment file."""
    penstock("down", host.deployment)
    file = host.deployment / "deployment.toml"
    file.write_text(file.read_text().replace("[munge]\n", f"[munge]\nlifetime_s = {seconds}\n"))
    penstock("up", host.deployment)
    return file


def test_what_was_given_is_renewed(host):
    """A program outlives what it was given, and notices nothing."""
    file = limited(host, 2)
    told = outcome(newcomer(host, USER, "work", 9))
    assert told["rounds"] > 50, told
    renewed = [r for r in given(host) if r["user"] == USER]
    assert 3 <= len(renewed) <= 12, renewed
    # It can't be for longer than an hour, and not without TLS.
    for change, words in (
        (("lifetime_s = 2", "lifetime_s = 3601"), "1 to 3600"),
        (("stripe_unit", 'transport = "plain-trusted-network"\nstripe_unit'), 'transport = "tls"'),
    ):
        text = file.read_text()
        file.write_text(text.replace(*change))
        told = penstock("status", host.deployment, check=False)
        assert told.code != 0 and words in told.err, told.err
        file.write_text(text)


def test_munged_may_be_away_when_something_is_renewed(host, munged):
    """A program waits for it as it does for servers."""
    limited(host, 2)
    working = newcomer(host, USER, "work", 10)
    time.sleep(1)
    munged.stop()
    time.sleep(5)
    before = len(given(host))
    munged.start()
    told = outcome(working)
    assert told["rounds"] > 50 and len(given(host)) > before, (told, before)


def test_ranks_of_an_unmodified_program(host, examples):
    """Each process asks once."""
    library, program = host.directory / "libpenstock.so", host.directory / "hard"
    shutil.copy(PENSTOCK.parent / library.name, library)
    shutil.copy(examples("hard", "mpich-debian"), program)
    preload = ["env", f"LD_PRELOAD={library}", f"PENSTOCK_DEPLOYMENT={host.home(USER)}"]
    done = subprocess.run(
        ["mpiexec.mpich", "-n", "3", *preload, program, "penstock:/open/hard", "--verify", "--scale", "0.05"],
        user=USER,
        group=USER,
        extra_groups=[],
        cwd="/",
        env={"HOME": str(host.home(USER)), "PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and '"verified":true' in done.stdout, (done.stdout, done.stderr)
    assert [r["user"] for r in given(host)] == [USER] * 3


def test_what_was_given_is_taken_back(host):
    """By user and by serial number; a program that goes on gets a new one as long as MUNGE knows its user."""
    working = newcomer(host, USER, "work", 30)
    time.sleep(1)
    serial = given(host)[-1]["credential"]
    penstock("credential", "--revoke", serial, "-d", host.deployment)
    _, err = working.communicate(timeout=60)
    assert working.returncode != 0 and "revoked by an administrator" in err, err
    host.run(USER, "ls")
    penstock("credential", "--revoke-user", USER, "-d", host.deployment)
    time.sleep(0.1)
    host.run(USER, "ls")


def test_up_says_what_munge_needs(short_dir):
    told = penstock("up", short_dir / "a", "--munge", check=False)
    assert told.code != 0 and "--tcp" in told.err, told.err
    missing = f"--munge={short_dir}/no-munged"
    told = penstock("up", short_dir / "b", "--servers", 1, "--tcp", f"localhost:{free_ports(2)}", missing, check=False)
    assert told.code != 0 and "munged of this host does not answer" in told.err, told.err
