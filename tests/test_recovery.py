"""`penstock up` beside a metadata server that recovers after a crash."""

import os
import signal
import subprocess

import pytest
from conftest import PENSTOCK, penstock


@pytest.mark.long
def test_up_waits_for_a_server_that_says_that_it_recovers(deployment):
    """The server is stopped here, so that it does not answer; a question to it takes `up` ten seconds."""
    pid = int((deployment / "meta" / "lock").read_text())
    os.kill(pid, signal.SIGSTOP)
    try:
        with (deployment / "log" / "meta.log").open("a") as log:
            log.write("namespace.redb: recovers: 256 of 900 MiB are on the disk\n")
        with subprocess.Popen([PENSTOCK, "up", deployment], stderr=subprocess.PIPE, text=True) as up:
            told = up.stderr.readline()
            assert told == "penstock: the metadata server recovers: 256 of 900 MiB are on the disk\n"
            assert up.poll() is None
            os.kill(pid, signal.SIGCONT)
            assert up.wait(60) == 0
    finally:
        os.kill(pid, signal.SIGCONT)
    penstock("status", deployment)
