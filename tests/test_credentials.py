"""Users over TCP: who they are is what their credential says (docs/decisions/0022).

Users here see a deployment as those of another host do: TCP addresses alone, the client key, no other key.
"""

import contextlib
import os
import shutil
import subprocess
import time

import pytest
from conftest import PENSTOCK, Done, free_ports, penstock

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become others")

USER, STRANGER, NOBODY = 61001, 61002, 65534
SERVERS = 2


class Host:
    """Another host, where users have directories of their own."""

    def __init__(self, deployment, directory):
        self.deployment = deployment
        self.directory = directory
        self.program = directory / "penstock"
        shutil.copy(PENSTOCK, self.program)
        self.program.chmod(0o755)
        directory.chmod(0o755)

    def home(self, uid):
        """A user's directory, with the deployment as he has it."""
        home = self.directory / f"of-{uid}"
        if home.exists():
            return home
        home.mkdir(mode=0o755)
        lines = (self.deployment / "deployment.toml").read_text().splitlines()
        (home / "deployment.toml").write_text("\n".join(line for line in lines if not line.startswith("unix = ")))
        shutil.copy(self.deployment / "client.key", home / "client.key")
        (home / "client.key").chmod(0o600)
        for path in (home, *home.iterdir()):
            os.chown(path, uid, uid)
        return home

    def credential(self, uid, *options, name="credential", check=True):
        """One for a user, made by the owner; its file."""
        file = self.home(uid) / name
        made = penstock("credential", "--user", uid, "--output", file, *options, "-d", self.deployment, check=check)
        return file if check else made

    def run(self, uid, *args, credential=None, check=True):
        """`penstock` as a user of that host."""
        env = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "XDG_"))}
        env["HOME"] = str(self.home(uid))
        if credential:
            env["PENSTOCK_CREDENTIAL"] = str(credential)
        completed = subprocess.run(
            [str(a) for a in (self.program, *args, "-d", self.home(uid))],
            user=uid,
            group=uid,
            extra_groups=[],
            cwd="/",
            env=env,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        done = Done(completed)
        assert not check or done.code == 0, (args, done.out, done.err)
        return done


@contextlib.contextmanager
def deployed(short_dir, tmp_path, *options):
    """A deployment with a directory for everybody and one for its owner, as another host sees it."""
    deployment = short_dir / "fs"
    penstock("up", deployment, "--servers", SERVERS, "--tcp", f"localhost:{free_ports(SERVERS + 1)}", *options)
    for name, mode in (("open", 0o777), ("closed", 0o700)):
        (tmp_path / name).mkdir()
        (tmp_path / name).chmod(mode)
        penstock("cp", "-r", tmp_path / name, f"penstock:/{name}", "-d", deployment)
    yield Host(deployment, short_dir)
    penstock("down", deployment, check=False)


@pytest.fixture
def host(short_dir, tmp_path):
    with deployed(short_dir, tmp_path) as host:
        yield host


def test_who_has_none_is_told_what_to_do(host):
    told = host.run(USER, "ls", check=False)
    assert told.code != 0
    usual = host.home(USER) / ".config" / "penstock"
    for words in ("no credential", f"penstock credential --user {USER}", "PENSTOCK_CREDENTIAL is not set", str(usual)):
        assert words in told.err, told.err
    # There it is found without being named.
    usual.mkdir(parents=True)
    name = next(usual.parent.parent.glob("deployment.toml")).read_text().split('id = "')[1][:32]
    host.credential(USER, name=f".config/penstock/{name}.credential")
    host.run(USER, "ls")


def test_the_owner_needs_no_file(host):
    home = host.home(0)
    shutil.copy(host.deployment / "authority.key", home / "authority.key")
    host.run(0, "mkdir", "penstock:/closed/by-root")
    host.run(0, "ls", "penstock:/closed")


def test_modes_and_owners_hold(host, tmp_path):
    mine, others = host.credential(USER), host.credential(STRANGER)
    source = host.home(USER) / "source"
    source.write_bytes(os.urandom(300_000))
    source.chmod(0o600)
    os.chown(source, USER, USER)
    host.run(USER, "mkdir", "penstock:/open/mine", credential=mine)
    host.run(USER, "cp", source, "penstock:/open/mine/f", credential=mine)
    stat = penstock("stat", "--json", "penstock:/open/mine/f", "-d", host.deployment).json()[0]
    assert (stat["uid"], stat["gid"], stat["mode"]) == (USER, NOBODY, "0600"), stat
    host.run(USER, "cp", "penstock:/open/mine/f", host.home(USER) / "back", credential=mine)
    assert (host.home(USER) / "back").read_bytes() == source.read_bytes()
    for uid, credential, refused in (
        (USER, mine, ["ls", "penstock:/closed"]),
        (STRANGER, others, ["cp", "penstock:/open/mine/f", host.home(STRANGER) / "stolen"]),
        (STRANGER, others, ["mkdir", "penstock:/open/mine/theirs"]),
        (STRANGER, others, ["rm", "penstock:/open/mine/f"]),
    ):
        told = host.run(uid, *refused, credential=credential, check=False)
        assert told.code != 0 and f"user {uid} may not" in told.err, (refused, told.err)
    # Root of another host is nobody, unless its credential says otherwise.
    told = host.run(0, "ls", "penstock:/closed", credential=host.credential(0), check=False)
    assert told.code != 0 and f"user {NOBODY} may not" in told.err, told.err
    granted = host.credential(0, "--root", name="granted")
    host.run(0, "ls", "penstock:/closed", credential=granted)
    # A credential is no client key.
    (host.home(STRANGER) / "client.key").write_text("00" * 32)
    told = host.run(STRANGER, "ls", credential=others, check=False)
    assert told.code != 0 and "key" in told.err, told.err


def test_administrators(host):
    acts = (["tune", "sched=to"], ["check"])
    user = host.credential(USER, "--speaks-for", f"0-{STRANGER}", "--root")
    for act in acts:
        told = host.run(USER, *act, credential=user, check=False)
        assert told.code != 0 and f"user {USER} is not an administrator" in told.err, (act, told.err)
    # Nor is another user of the servers' host, with the client key and by the Unix sockets.
    group = host.directory / "local"
    shutil.copytree(host.deployment, group, ignore=shutil.ignore_patterns("data-*", "meta*", "log", "authority.key"))
    sockets = host.deployment / "run"
    text = (group / "deployment.toml").read_text().replace('unix = "run/', f'unix = "{sockets}/')
    (group / "deployment.toml").write_text(text)
    for path in (group, *group.iterdir()):
        os.chown(path, STRANGER, STRANGER)
    for path in (host.deployment, sockets, group):
        path.chmod(0o755)
    for path in sockets.glob("*.sock"):
        path.chmod(0o666)
    command = [host.program, "tune", "sched=to", "-d", group]
    who = {"user": STRANGER, "group": STRANGER, "extra_groups": []}
    told = subprocess.run(command, **who, capture_output=True, text=True, check=False)
    assert told.returncode != 0 and f"user {STRANGER} is not an administrator" in told.stderr, told.stderr
    administrator = host.credential(USER, "--administrator", name="administrator")
    shown = penstock("credential", "--show", administrator, "--json").json()[0]
    assert shown["administrator"] is True and shown["root"] is False, shown
    for act in acts:
        host.run(USER, *act, credential=administrator)


def test_credentials_are_taken_back(host):
    """By serial number, file and user; open connections of a mount and of a program too, within ten seconds."""
    first, second = host.credential(USER), host.credential(USER, name="second")
    other = host.credential(STRANGER)
    for uid, file in ((USER, first), (USER, second), (STRANGER, other)):
        host.run(uid, "ls", credential=file)
    source = host.home(USER) / "large"
    source.write_bytes(bytes(1 << 20))
    source.chmod(0o644)
    told = penstock("credential", "--revoke", first, "-d", host.deployment).out
    assert "revoked" in told, told
    refused = host.run(USER, "ls", credential=first, check=False)
    assert refused.code != 0 and "revoked by an administrator" in refused.err, refused.err
    host.run(USER, "cp", source, "penstock:/open/f", credential=second)
    listed = penstock("credential", "--revoked", "--json", "-d", host.deployment).json()
    shown = penstock("credential", "--show", first, "--json").json()[0]
    assert [(e["serial"], e["until_ms"]) for e in listed] == [(shown["serial"], shown["end_ms"])], listed
    # A metadata server that is started again knows it still.
    penstock("down", host.deployment)
    penstock("up", host.deployment)
    assert host.run(USER, "ls", credential=first, check=False).code != 0
    # What goes on when it happens ends; the other user's goes on.
    command = f"while {host.program} cp --force penstock:/open/f {host.home(USER)}/out -d {host.home(USER)}; do :; done"
    env = {"PENSTOCK_CREDENTIAL": str(second), "HOME": str(host.home(USER)), "PATH": os.environ["PATH"]}
    with subprocess.Popen(
        ["sh", "-c", command], user=USER, group=USER, extra_groups=[], env=env, stderr=subprocess.PIPE, text=True
    ) as copies:
        time.sleep(1)
        assert copies.poll() is None
        penstock("credential", "--revoke-user", USER, "-d", host.deployment)
        _, said = copies.communicate(timeout=10)
    assert "revoked by an administrator" in said, said
    host.run(STRANGER, "ls", credential=other)
    # A newer one is good.
    time.sleep(0.1)
    host.run(USER, "ls", credential=host.credential(USER, name="third"))
    for act in (["--revoke", "4711"], ["--revoke-user", "no-such-user"]):
        wrong = penstock("credential", *act, "-d", host.deployment, check=False)
        assert wrong.code != 0 and "\n  " in wrong.err, wrong.err
    wrong = host.run(
        USER, "credential", "--revoke-user", STRANGER, credential=host.credential(USER, "--force"), check=False
    )
    assert wrong.code != 0 and "not an administrator" in wrong.err, wrong.err


def test_anothers_credential_is_refused(host):
    file = host.credential(USER)
    told = host.run(STRANGER, "ls", credential=file, check=False)
    assert told.code != 0 and "cannot read" in told.err, told.err
    file.chmod(0o640)
    told = host.run(USER, "ls", credential=file, check=False)
    assert told.code != 0 and "readable by others" in told.err, told.err
    file.chmod(0o600)
    os.chown(file, STRANGER, STRANGER)
    told = host.run(USER, "ls", credential=file, check=False)
    assert told.code != 0, told.out
    # Nor does it help to change one's own.
    own = host.credential(USER, name="own")
    own.write_text(own.read_text().replace(f"uid = {USER}", "uid = 0").replace("root = false", "root = true"))
    told = host.run(USER, "ls", credential=own, check=False)
    assert told.code != 0 and "changed since" in told.err, told.err


def test_a_credential_ends(host):
    file = host.credential(USER, "--for", "1s")
    time.sleep(1.2)
    told = host.run(USER, "ls", credential=file, check=False)
    assert told.code != 0 and "it ended" in told.err and "penstock credential" in told.err, told.err


def test_a_file_is_never_lost_by_mistake(host):
    file = host.credential(USER, "--job", "4711", "--for", "90m")
    assert (file.stat().st_mode & 0o777, file.stat().st_uid) == (0o600, USER)
    told = host.credential(USER, check=False)
    assert told.code != 0 and "--force" in told.err, told.err
    shown = penstock("credential", "--show", file, "--json", "-d", host.deployment).json()[0]
    assert (shown["uid"], shown["gid"], shown["job"], shown["signature"]) == (USER, NOBODY, "4711", "good"), shown
    assert shown["end_ms"] - shown["not_before_ms"] == 90 * 60_000
    host.credential(USER, "--force", "--speaks-for", "7-9", "--speaks-for", "11")
    newer = penstock("credential", "--show", file, "--json").json()[0]
    assert newer["serial"] != shown["serial"] and newer["speaks_for"] == ["7-9", "11-11"], newer
    table = penstock("credential", "--show", file).out
    assert f"user            {USER}" in table and "7-9 11-11" in table and "(in " in table, table
    # Only who has the authority's key makes any.
    told = host.run(USER, "credential", "--output", "-", check=False)
    assert told.code != 0 and "authority.key" in told.err, told.err
    told = penstock("credential", "--user", "no-such-user", "--output", "-", "-d", host.deployment, check=False)
    assert told.code != 0 and "no user no-such-user" in told.err, told.err


# Each line: a command for the shell of a user, and whether it succeeds.
MOUNTED = (
    (USER, "echo text > open/f && cat open/f", True),
    (USER, "echo more >> open/f && grep more open/f", True),
    (USER, "chmod 600 open/f && cat open/f", True),
    (STRANGER, "cat open/f", False),
    (STRANGER, "echo text > open/g", False),
    (STRANGER, "ls open", False),
    (0, "cat open/f", False),
    (0, "ls closed", False),
    (0, "echo text > open/roots", True),
)


def test_a_mount_acts_for_the_users_of_its_credential(host):
    file = host.credential(0, "--speaks-for", f"{USER}-{USER}", "--for", "10s")
    point = host.directory / "mnt"
    point.mkdir()
    environment = {"PENSTOCK_CREDENTIAL": str(file)}
    penstock("mount", point, "--staleness", 0, "-d", host.home(0), env=environment)
    try:
        began = time.monotonic()
        while time.monotonic() - began < 11:
            for uid, command, works in MOUNTED:
                done = subprocess.run(
                    ["sh", "-c", command],
                    user=uid,
                    group=uid,
                    extra_groups=[],
                    cwd=point,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                )
                assert (done.returncode == 0) == works, (uid, command, done.stdout, done.stderr)
            # The rounds go on past the end of the first credential: a newer one is there in time.
            host.credential(0, "--speaks-for", f"{USER}-{USER}", "--for", "60s", "--force")
            time.sleep(2.5)
        owner = penstock("stat", "--json", "penstock:/open/roots", "-d", host.deployment).json()[0]
        assert owner["uid"] == NOBODY, owner
    finally:
        penstock("umount", "--lazy", point, check=False)
