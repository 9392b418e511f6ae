"""Servers that root starts run as another user, and leave no core behind (docs/administer/security.md)."""

import os
import signal
import subprocess
import time

import pytest
from conftest import PENSTOCK, free_ports, penstock

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")

SERVICE = 61010


@pytest.fixture
def deployment(short_dir):
    short_dir.chmod(0o755)
    where = short_dir / "fs"
    penstock("up", where, "--servers", 2, "--tcp", f"localhost:{free_ports(3)}", "--service-user", SERVICE)
    yield where
    penstock("down", where, check=False)


def processes(deployment):
    return [int(p.read_text().split()[0]) for p in (deployment / "run").glob("*.pid")]


def status(pid):
    with open(f"/proc/{pid}/status") as lines:
        return {key: value.split() for key, _, value in (line.partition(":") for line in lines)}


def check(deployment):
    pids = processes(deployment)
    assert len(pids) == 3
    for pid in pids:
        found = status(pid)
        assert found["Uid"] == [str(SERVICE)] * 4, found["Uid"]
        assert "0" not in found["Gid"] + found["Groups"], found
        assert int(found["CapEff"][0], 16) == int(found["CapPrm"][0], 16) == 0, found
        with open(f"/proc/{pid}/limits") as limits:
            core = next(line for line in limits if line.startswith("Max core file size"))
        assert core.split()[4:6] == ["1", "1"], core


def owners(deployment):
    """Files that the service user does not own."""
    walked = (os.path.join(at, name) for at, dirs, files in os.walk(deployment) for name in dirs + files)
    return [path for path in walked if os.lstat(path).st_uid != SERVICE]


def test_servers_of_root_run_as_the_service_user(deployment, tmp_path):
    check(deployment)
    source, back = tmp_path / "source", tmp_path / "back"
    source.write_bytes(os.urandom(3_000_000))
    penstock("cp", source, "penstock:/f", "-d", deployment)
    # Root starts them again, after changes of its own.
    penstock("keys", "--rotate", "-d", deployment)
    penstock("tune", "--save", "depth=2", "-d", deployment)
    penstock("down", deployment)
    (deployment / "log" / "data-0.log").unlink()
    penstock("up", deployment)
    check(deployment)
    penstock("cp", "penstock:/f", back, "-d", deployment)
    assert back.read_bytes() == source.read_bytes()
    assert penstock("check", "-d", deployment).code == 0
    assert owners(deployment) == []
    refused = penstock("up", deployment, "--service-user", SERVICE + 1, check=False)
    assert refused.code != 0 and "chown" in refused.err, refused.err


def test_links_of_the_service_user_lead_root_nowhere(deployment, tmp_path):
    """Who has taken the service user over puts links where root writes."""
    target, made = tmp_path / "roots", tmp_path / "made"
    target.write_text("root's")
    target.chmod(0o600)
    penstock("down", deployment)
    for name in ("log/data-0.log", "log/audit-authority.jsonl", "run/meta.pid"):
        path = deployment / name
        path.unlink(missing_ok=True)
        path.symlink_to(target)
        os.lchown(path, SERVICE, SERVICE)
    (deployment / "client-2.key").symlink_to(made)
    acts = (
        ("up", deployment),
        ("credential", "--user", SERVICE, "--output", tmp_path / "credential", "-d", deployment),
        ("keys", "--rotate", "-d", deployment),
        ("down", deployment),
    )
    for act in acts:
        penstock(*act, check=False)
    assert target.read_text() == "root's" and target.stat().st_uid == 0 and not made.exists()
    # With the links gone everything works again.
    for path in [*deployment.glob("log/*"), *deployment.glob("run/*.pid"), deployment / "client-2.key"]:
        if path.is_symlink():
            path.unlink()
    penstock("up", deployment)
    penstock("keys", "--rotate", "-d", deployment)
    check(deployment)
    assert owners(deployment) == []


def test_only_root_names_a_service_user(short_dir, tmp_path):
    short_dir.chmod(0o777)
    program = short_dir / "penstock"
    program.write_bytes(PENSTOCK.read_bytes())
    program.chmod(0o755)
    told = subprocess.run(
        [program, "up", short_dir / "own", "--service-user", str(SERVICE)],
        user=SERVICE + 1,
        group=SERVICE + 1,
        extra_groups=[],
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode != 0 and "only root" in told.stderr, told.stderr


def dumps_core(*command, cwd):
    """Whether a process that is aborted leaves a core, where cores are allowed."""
    # The wait status tells of the core, which Popen does not keep.
    allowed = ["sh", "-c", 'ulimit -c unlimited; exec "$@"', "sh", *command]
    with subprocess.Popen(allowed, cwd=cwd, stderr=subprocess.DEVNULL) as process:
        time.sleep(1)
        process.send_signal(signal.SIGABRT)
        _, ended = os.waitpid(process.pid, 0)
        process.returncode = 0
    assert os.WTERMSIG(ended) == signal.SIGABRT
    return os.WCOREDUMP(ended)


def test_servers_leave_no_core(short_dir, tmp_path):
    if not dumps_core("sleep", "60", cwd=tmp_path):
        pytest.skip("this system writes no cores")
    where = short_dir / "fs"
    penstock("up", where, "--servers", 1)
    penstock("down", where)
    assert not dumps_core(str(PENSTOCK), "serve", "-d", str(where), cwd=tmp_path)
