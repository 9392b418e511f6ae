"""The audit log: what is refused and what administrators do is found there, whatever is done to it (docs/administer/security.md)."""

import contextlib
import json
import os
import re
import secrets
import shutil
import subprocess
import time

import pytest
from conftest import PENSTOCK, free_ports, penstock
from test_credentials import STRANGER, USER, Host

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become others")

FILE_LIMIT = 8 << 20
FIELDS = {
    *("time", "server", "event", "outcome", "user", "role", "peer", "job", "credential", "object", "reason", "count"),
}
# Refusals in a row, for the flood.
FLOOD = 10_000


def log(deployment, name="meta"):
    return deployment / "log" / f"audit-{name}.jsonl"


def records(deployment, *args):
    return penstock("audit", "--json", *args, "-d", deployment).json()


def awaited(deployment, wanted, *args):
    """The records, once one of them is `wanted`: they are written beside the service."""
    until = time.monotonic() + 20
    while True:
        shown = penstock("audit", "--json", *args, "-d", deployment, check=False)
        found = [r for r in shown.json() if wanted(r)]
        if found:
            return found
        assert time.monotonic() < until, (shown.out, shown.err)
        time.sleep(0.05)


def count(found):
    return sum(r.get("count", 1) for r in found)


@pytest.fixture
def fs(short_dir):
    """A deployment on TCP, with a directory that others may not read."""
    deployment = short_dir / "fs"
    penstock("up", deployment, "--servers", 2, "--tcp", f"localhost:{free_ports(3)}")
    (short_dir / "closed").mkdir(mode=0o700)
    penstock("cp", "-r", short_dir / "closed", "penstock:/closed", "-d", deployment)
    yield deployment
    penstock("down", deployment, check=False)


def test_refused_and_administrative_acts_are_found_with_all_that_is_known_of_them(fs, short_dir):
    host = Host(fs, short_dir)
    # A user without rights.
    mine = host.credential(USER, "--job", "4711")
    told = host.run(USER, "ls", "penstock:/closed", credential=mine, check=False)
    assert told.code != 0, told.out
    (refused, *_) = awaited(fs, lambda r: r["event"] == "permission", "--user", USER)
    assert refused["outcome"] == "refused" and refused["object"].startswith("/closed"), refused
    assert (refused["server"], refused["role"], refused["job"]) == ("meta", "user", "4711"), refused
    assert re.fullmatch(r"(127\.0\.0\.1|\[::1\]):\d+", refused["peer"]), refused
    shown = penstock("credential", "--show", mine, "--json").json()[0]
    assert refused["credential"] == shown["serial"], (refused, shown)
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", refused["time"]), refused
    # The credential itself.
    (made, *_) = awaited(fs, lambda r: r["event"] == "issue")
    assert (made["server"], made["user"], made["outcome"]) == ("authority", 0, "done"), made
    assert shown["serial"] in made["object"] and str(USER) in made["reason"], made
    # A wrong key: what he says of himself is not proven.
    others = host.credential(STRANGER)
    (host.home(STRANGER) / "client.key").write_text(secrets.token_hex(32))
    told = host.run(STRANGER, "ls", credential=others, check=False)
    assert told.code != 0 and "wrong key" in told.err, told.err
    (refused, *_) = awaited(fs, lambda r: r["event"] == "key")
    assert (refused["role"], refused["user"], refused["outcome"]) == ("stranger", STRANGER, "refused"), refused
    # Settings.
    penstock("tune", "depth=3", "-d", fs)
    (done, *_) = awaited(fs, lambda r: r["event"] == "tune")
    assert (done["outcome"], done["role"], done["user"], done["object"]) == ("done", "administrator", 0, "depth=3"), (
        done
    )
    assert {r["server"] for r in records(fs, "--event", "tune")} == {"data-0", "data-1"}
    # Listing and repair.
    penstock("check", "-d", fs)
    awaited(fs, lambda r: (r["event"], r["server"]) == ("list", "meta"))
    awaited(fs, lambda r: (r["event"], r["server"]) == ("verify", "data-1"))
    # Stores were new at the first start; each server began.
    assert count(awaited(fs, lambda r: r["event"] == "store")) >= 2
    starts = awaited(fs, lambda r: r["event"] == "start")
    assert {r["server"] for r in starts} == {"meta", "data-0", "data-1"}, starts
    found = records(fs)
    assert [r["time"] for r in found] == sorted(r["time"] for r in found)
    assert all(set(r) <= FIELDS for r in found), found
    # What people see.
    table = penstock("audit", "--event", "tune", "-d", fs).out
    assert "depth=3" in table and "administrator" in table and "permission" not in table, table
    assert "no such records" in penstock("audit", "--user", 12345, "-d", fs).out
    assert records(fs, "--since", "1h") and len(records(fs, "--last", 2)) == 2
    # The number of refusals is in the status, for people only if there were some.
    status = penstock("status", "--json", "-d", fs).json()[0]
    assert status["meta"]["audit"]["refused"] >= 2 and status["meta"]["audit"]["dropped"] == 0, status
    assert "requests were refused" in penstock("status", "-d", fs).out
    # Who may not read it is told so.
    for path in (fs / "log").glob("audit-*"):
        assert path.stat().st_mode & 0o777 == 0o600, path
    # The last word of a server.
    penstock("down", fs)
    stops = [r["server"] for r in records(fs, "--event", "stop")]
    assert sorted(stops) == ["data-0", "data-1", "meta"], stops


def test_a_connection_with_a_credential_that_ended_or_is_not_the_deployments_is_refused_by_serial(fs, short_dir):
    host = Host(fs, short_dir)
    good = host.credential(USER)
    # A client that does not look itself.
    file = host.home(USER) / "deployment.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("authority")))
    forged = host.home(USER) / "forged"
    forged.write_text(good.read_text().replace(f"uid = {USER}", f"uid = {STRANGER}"))
    forged.chmod(0o600)
    os.chown(forged, USER, USER)
    told = host.run(USER, "ls", credential=forged, check=False)
    assert told.code != 0 and "changed since" in told.err, told.err
    (refused, *_) = awaited(fs, lambda r: r["event"] == "credential")
    assert (refused["role"], refused["outcome"], refused["server"]) == ("stranger", "refused", "meta"), refused
    # What he said of himself: nothing of it is proven.
    assert refused["user"] == STRANGER, refused
    serial = penstock("credential", "--show", forged, "--json").json()[0]["serial"]
    assert refused["credential"] == serial and serial in refused["reason"], refused
    # One that has ended.
    ended = host.credential(USER, "--for", "1s", name="ended")
    time.sleep(1.2)
    assert host.run(USER, "ls", credential=ended, check=False).code != 0
    (refused, *_) = awaited(fs, lambda r: "it ended" in r["reason"])
    serial = penstock("credential", "--show", ended, "--json").json()[0]["serial"]
    assert (refused["event"], refused["user"], refused["credential"]) == ("credential", USER, serial), refused


def test_others_cannot_read_it_and_are_told_who_can(deployment, short_dir):
    short_dir.chmod(0o755)
    for path in (deployment, deployment / "log"):
        path.chmod(0o755)
    program = short_dir / "penstock"
    shutil.copy(PENSTOCK, program)
    program.chmod(0o755)
    completed = subprocess.run(
        [program, "audit", "-d", deployment],
        user=USER,
        group=USER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
    )
    assert completed.returncode != 0 and "owner and root" in completed.stderr, completed.stderr


def test_names_are_escaped(deployment, short_dir):
    """A name cannot forge a record, move the cursor, or hide what follows it."""
    os.chmod(short_dir, 0o755)
    closed = short_dir / "closed"
    closed.mkdir()
    name = 'a\n{"event":"tune"}\x1b[2J\u202e\\x'
    (closed / name).mkdir()
    closed.chmod(0o755)
    (closed / name).chmod(0o700)
    penstock("cp", "-r", closed, "penstock:/closed", "-d", deployment)
    penstock("down", deployment)
    penstock("up", deployment, "--group", USER)
    home = Host(deployment, short_dir)
    completed = subprocess.run(
        [home.program, "ls", f"penstock:/closed/{name}", "-d", deployment],
        user=USER,
        group=USER,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        cwd="/",
    )
    assert completed.returncode != 0 and "may not" in completed.stderr, completed.stderr
    (refused, *_) = awaited(deployment, lambda r: r["event"] == "permission")
    assert refused["user"] == USER
    assert refused["object"] == '/closed/a\\u{a}{"event":"tune"}\\u{1b}[2J\\u{202e}\\\\x', refused
    lines = log(deployment).read_bytes().splitlines()
    assert all(json.loads(line)["time"] for line in lines)
    table = penstock("audit", "-d", deployment).out
    assert "\x1b" not in table and "\u202e" not in table, table


def test_ten_thousand_refusals_leave_others_served_and_the_log_small(deployment, short_dir):
    """Each refusal is counted; the log grows by a few records."""
    short_dir.chmod(0o755)
    (short_dir / "closed").mkdir(mode=0o700)
    penstock("cp", "-r", short_dir / "closed", "penstock:/closed", "-d", deployment)
    penstock("up", deployment, "--group", USER)
    deployment_file = deployment / "deployment.toml"
    hostile = (
        "import os, socket, sys\n"
        f"os.setgroups([]); os.setgid({USER}); os.setuid({USER})\n"
        "path = sys.argv[1]\n"
        f"for _ in range({FLOOD}):\n"
        "    with socket.socket(socket.AF_UNIX) as s:\n"
        "        s.settimeout(20)\n"
        "        s.connect(path)\n"
        "        s.sendall(b'x' * 64)\n"
        "        try:\n"
        "            s.recv(1)\n"
        "        except OSError:\n"
        "            pass\n"
    )
    assert deployment_file.exists()
    for path in (deployment / "run").glob("*.sock"):
        path.chmod(0o666)
    (deployment / "run").chmod(0o755)
    deployment.chmod(0o755)
    attacker = subprocess.Popen(["python3", "-c", hostile, str(deployment / "run" / "meta.sock")])
    try:
        slowest = 0.0
        while attacker.poll() is None:
            began = time.monotonic()
            penstock("ls", "-d", deployment)
            slowest = max(slowest, time.monotonic() - began)
        assert attacker.returncode == 0
    finally:
        attacker.kill()
        attacker.wait()
    assert slowest < 10, slowest
    status = penstock("status", "--json", "-d", deployment).json()[0]["meta"]["audit"]
    assert status["refused"] >= FLOOD and status["dropped"] == 0, status
    penstock("down", deployment)
    found = records(deployment, "--event", "handshake", "--user", USER)
    assert count(found) == FLOOD, count(found)
    assert len(found) < 200, len(found)
    assert all(p.stat().st_size <= FILE_LIMIT for p in (deployment / "log").glob("audit-*"))


@pytest.mark.parametrize("how", ["unwritable", "full"])
def test_a_log_that_cannot_be_written_stops_nobody(short_dir, how):
    deployment = short_dir / "fs"
    penstock("up", deployment, "--servers", 1)
    penstock("down", deployment)
    logs = deployment / "log"
    if how == "full":
        mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", logs]
        if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
            pytest.skip("cannot mount a small file system")
    try:
        for name in ("meta", "data-0"):
            log(deployment, name).unlink(missing_ok=True)
            if how == "unwritable":
                log(deployment, name).mkdir()
            else:
                # `penstock up` cannot make it on a full disk.
                (logs / f"{name}.log").touch()
        if how == "full":
            filler = (logs / "filler").open("wb", buffering=0)
            with contextlib.suppress(OSError):
                while True:
                    filler.write(bytes(4096))
            filler.close()
        penstock("up", deployment)
        penstock("tune", "depth=2", "-d", deployment)
        penstock("mkdir", "penstock:/d", "-d", deployment)
        until = time.monotonic() + 20
        while True:
            status = penstock("status", "--json", "-d", deployment).json()[0]
            if all(s["audit"]["write_errors"] > 1 for s in (status["meta"], status["servers"][0])):
                break
            assert time.monotonic() < until, status
            time.sleep(0.2)
        if how == "unwritable":
            said = (logs / "data-0.log").read_text()
            assert said.count("cannot be written") == 1, said
        assert "writes of the audit log failed" in penstock("status", "-d", deployment).out
        # There is room again: what waited is written.
        if how == "full":
            (logs / "filler").unlink()
        else:
            for name in ("meta", "data-0"):
                log(deployment, name).rmdir()
        awaited(deployment, lambda r: r["event"] == "tune" and r["object"] == "depth=2")
    finally:
        penstock("down", deployment, check=False)
        if how == "full":
            subprocess.run(["umount", logs], check=False)
