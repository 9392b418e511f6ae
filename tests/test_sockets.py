"""Sockets, process numbers and pipes that somebody removed or closed behind a server or a command."""

import os
import shutil
import subprocess
import time

import pytest
from conftest import PENSTOCK, penstock


def pids(deployment):
    """Server to process number, as the locks of the stores say."""
    stores = sorted([deployment / "meta", *(path.parent for path in deployment.glob("data-*/lock"))])
    return {store.name: int((store / "lock").read_text()) for store in stores}


def runs(pid):
    try:
        return os.readlink(f"/proc/{pid}/exe") == str(PENSTOCK)
    except OSError:
        return False


def test_a_removed_socket_is_made_again(deployment):
    before = pids(deployment)
    for name in ("meta", "data-1"):
        (deployment / "run" / f"{name}.sock").unlink()
    told = penstock("ls", "-d", deployment, "penstock:/")
    assert told.out == "", "the client waits for the socket"
    end = time.monotonic() + 20
    while penstock("status", deployment, check=False).code != 0:
        assert time.monotonic() < end
        time.sleep(0.1)
    assert pids(deployment) == before


def test_servers_without_sockets_and_pid_files_are_named_found_and_ended(deployment):
    before = pids(deployment)
    shutil.rmtree(deployment / "run")
    status = penstock("status", deployment, check=False)
    socket = deployment / "run" / "meta.sock"
    assert status.code == 1
    assert f"process {before['meta']}" in status.out and f"socket {socket} was removed" in status.out
    told = penstock("ls", "-d", deployment, check=False)
    assert told.code == 1 and str(socket) in told.err and "its socket was removed" in told.err
    # They are not started a second time: they make their sockets again as soon as there is a directory for them.
    assert "all servers run already" in penstock("up", deployment).out
    assert pids(deployment) == before
    penstock("status", deployment)
    shutil.rmtree(deployment / "run")
    assert f"{len(before)} servers ended" in penstock("down", deployment).out
    assert not any(runs(pid) for pid in before.values())
    assert "no servers ran" in penstock("down", deployment).out


def test_a_server_of_a_removed_deployment_makes_nothing(short_dir):
    deployment = short_dir / "fs"
    penstock("up", deployment, "--servers", 1)
    before = pids(deployment)
    moved = short_dir / "moved"
    try:
        deployment.rename(moved)
        time.sleep(2.5)
        assert not deployment.exists()
    finally:
        moved.rename(deployment)
        penstock("down", deployment)
    assert not any(runs(pid) for pid in before.values())


@pytest.mark.parametrize("which", ["stdout", "stderr", "both"])
def test_a_closed_pipe_ends_no_command(deployment, which):
    def run(*args):
        reading, writing = os.pipe()
        os.close(reading)
        out = subprocess.PIPE if which == "stderr" else writing
        err = subprocess.PIPE if which == "stdout" else writing
        done = subprocess.run([PENSTOCK, *args], stdout=out, stderr=err, timeout=120, check=False)
        os.close(writing)
        assert b"panicked" not in (done.stdout or b"") + (done.stderr or b"")
        return done.returncode

    before = pids(deployment)
    assert run("mkdir", "-d", deployment, "penstock:/d") == 0
    for args in (
        ["up", deployment],
        ["status", deployment],
        ["status", deployment, "--json"],
        ["ls", "-d", deployment, "penstock:/"],
        ["stat", "-d", deployment, "penstock:/d"],
        ["tune", deployment],
        ["check", "-d", deployment],
        ["run", "-n", "1", "-d", deployment, "--", "/bin/sh", "-c", "exit 0"],
        ["--help"],
        ["up", "--help"],
    ):
        assert run(*args) == penstock(*args, check=False).code, args
    assert pids(deployment) == before and all(runs(pid) for pid in before.values())
    assert run("ls", "-d", deployment, "penstock:/missing") == 1
    assert run("nonsense") == 2
    assert run("down", deployment) == 0
    assert run("up", deployment) == 0
    penstock("status", deployment)
