"""The metadata server after a crash: how soon it serves, what it finds damaged, and `penstock up` beside it.

crates/meta/examples/names.rs makes the names.
"""

import mmap
import os
import signal
import subprocess
import time

import pytest
from conftest import PENSTOCK, penstock

NAMES = PENSTOCK.parent / "examples" / "names"
# More than the metadata server reads through at its start (64 MiB).
LARGE = 600_000


def filled(directory, files):
    """A running deployment of so many files."""
    penstock("up", directory, "--servers", 2)
    penstock("down", directory)
    subprocess.run([NAMES, directory, str(files)], check=True, stdout=subprocess.DEVNULL)
    penstock("up", directory, timeout=300)


def metadata_server(directory):
    return int((directory / "meta" / "lock").read_text())


@pytest.mark.long
@pytest.mark.alone
def test_a_server_of_ten_million_names_serves_within_10_s_of_a_kill(short_dir):
    directory = short_dir / "fs"
    filled(directory, 10_000_000)
    try:
        load = short_dir / "load"
        load.mkdir()
        for i in range(3000):
            (load / f"f{i}").write_text(str(i))
        # Twice: soon after the start, and after more commits.
        for turn in range(2):
            target = f"penstock:/load{turn}"
            command = [PENSTOCK, "cp", "-r", load, target]
            environment = {**os.environ, "PENSTOCK_DEPLOYMENT": str(directory)}
            with subprocess.Popen(command, env=environment, stderr=subprocess.PIPE, text=True) as cp:
                while penstock("status", directory, "--json").json()[0]["meta"]["files"] < 10_000_100 + 3000 * turn:
                    assert cp.poll() is None, cp.stderr.read()
                os.kill(metadata_server(directory), signal.SIGKILL)
                start = time.monotonic()
                penstock("up", directory)
                status = penstock("status", directory, "--json").json()[0]["meta"]
                took = time.monotonic() - start
                assert cp.wait(120) == 0, cp.stderr.read()
            print(f"first answer {took:.2f} s after the kill, {status['files']} files")
            assert took <= 10
            assert status["files"] >= 10_000_100 + 3000 * turn
            assert status["damaged"] == 0
        assert penstock("status", directory, "--json").json()[0]["meta"]["files"] == 10_006_000
    finally:
        penstock("down", directory, check=False)


@pytest.mark.long
def test_damage_that_a_start_does_not_read_is_said_by_status_and_check(short_dir):
    directory = short_dir / "fs"
    filled(directory, LARGE)
    penstock("down", directory)
    # A name stands in its record and in the entry of its directory.
    database = directory / "meta" / "namespace.redb"
    name = b"f345678"
    with database.open("r+b") as file, mmap.mmap(file.fileno(), 0) as bytes_:
        at, places = bytes_.find(name), 0
        while at >= 0:
            bytes_[at + len(name) - 1] ^= 1
            places += 1
            at = bytes_.find(name, at + 1)
    assert places >= 2
    penstock("up", directory)
    try:
        for _ in range(600):
            meta = penstock("status", directory, "--json").json()[0]["meta"]
            if meta["damaged"] and meta["looked_through"]:
                break
            time.sleep(0.5)
        assert any("checksum" in text for text in meta["damage"]), meta
        said = penstock("status", directory, check=False).out
        assert "names are damaged" in said, said
        found = penstock("check", "-d", directory, check=False, timeout=600)
        assert found.code == 1, found.out
        assert "damaged" in found.out or "checksum" in found.out, found.out
        # The others are served.
        assert penstock("ls", "penstock:/d0/f17", env={"PENSTOCK_DEPLOYMENT": str(directory)}).out
    finally:
        penstock("down", directory, check=False)


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


def test_up_starts_a_server_that_ends_only_then(short_dir):
    """A process that was killed is there for a moment longer, and then `up` took it for one that runs."""
    directory = short_dir / "fs"
    penstock("up", directory, "--servers", 1)
    try:
        server = int((directory / "run" / "data-0.pid").read_text().split()[0])
        # Neither dead nor of any use.
        os.kill(server, signal.SIGSTOP)
        command = [PENSTOCK, "up", directory]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as up:
            time.sleep(1)
            assert up.poll() is None, up.stdout.read()
            os.kill(server, signal.SIGKILL)
            said = up.communicate(timeout=60)[0]
            assert up.returncode == 0, said
        assert "1 servers started" in said
        assert penstock("status", directory).code == 0
    finally:
        penstock("down", directory, check=False)
