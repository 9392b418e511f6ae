"""Servers under a service manager (packaging/penstock@.service)."""

import os
import socket
import subprocess

from conftest import PENSTOCK, penstock


def test_a_service_manager_is_told_when_servers_answer_and_when_they_end(short_dir):
    penstock("up", short_dir / "fs", "--servers", 2)
    penstock("down", short_dir / "fs")
    for name in (str(short_dir / "notify"), f"@penstock-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(name.replace("@", "\0"))
            manager.settimeout(30)
            environment = {**os.environ, "NOTIFY_SOCKET": name}
            with subprocess.Popen([PENSTOCK, "serve", "-d", short_dir / "fs"], env=environment) as serving:
                assert manager.recv(100) == b"READY=1"
                assert "data-1" in penstock("status", short_dir / "fs").out
                serving.terminate()
                assert manager.recv(100) == b"STOPPING=1"
                assert serving.wait(timeout=30) == 0
