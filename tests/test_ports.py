"""Deployments that start at the same moment on one host never take each other's ports (`penstock up --hosts`, `run --job`)."""

import re
import shutil
import socket
import subprocess

from conftest import PENSTOCK, free_ports, penstock

ROUNDS = 12
# A metadata server and two data servers each.
EACH = 3


def up(directory, ports):
    words = ["up", directory, "--hosts", socket.gethostname(), "--net", "lo", "--servers", EACH - 1]
    return [str(word) for word in (PENSTOCK, *words, "--ports", ports)]


def ports_of(directory):
    return set(map(int, re.findall(r'^tcp = ".*:(\d+)"$', (directory / "deployment.toml").read_text(), re.MULTILINE)))


def test_two_that_start_at_once_never_take_the_same_ports(short_dir):
    """There are just enough ports for both."""
    first = free_ports(2 * EACH)
    ports = f"{first}-{first + 2 * EACH - 1}"
    for number in range(ROUNDS):
        directories = [short_dir / f"{name}{number}" for name in "ab"]
        starting = [
            subprocess.Popen(up(directory, ports), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
            for directory in directories
        ]
        try:
            for process in starting:
                out, err = process.communicate(timeout=120)
                assert process.returncode == 0 and f"{EACH} servers started" in out, (number, out, err)
            taken = [ports_of(directory) for directory in directories]
            assert set.union(*taken) == set(range(first, first + 2 * EACH)), (number, taken)
        finally:
            for directory in directories:
                penstock("down", directory, check=False)
                shutil.rmtree(directory, ignore_errors=True)


def test_a_server_has_its_port_from_its_start_on(short_dir):
    """It inherits the socket, and nobody else keeps it: started again, it binds the port itself."""
    first = free_ports(EACH)
    directory = short_dir / "fs"
    subprocess.run(up(directory, f"{first}-{first + EACH - 1}"), check=True, capture_output=True, timeout=120)
    try:
        assert ports_of(directory) == set(range(first, first + EACH))
        penstock("down", directory)
        # Free again: nobody else has kept it.
        for port in range(first, first + EACH):
            socket.create_server(("127.0.0.1", port)).close()
        penstock("up", directory)
        assert penstock("status", directory, "--json").json()
    finally:
        penstock("down", directory, check=False)
