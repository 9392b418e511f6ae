"""Power losses without cutting any. What a server's store loses is what it got since `save`. The server starts
again in another boot of the system: in a mount name space of its own, where boot_id says so.

Programs under test import this too, so it takes paths and needs nothing but the standard library.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
import uuid
from pathlib import Path

BOOT_ID = "/proc/sys/kernel/random/boot_id"


def separable():
    """Whether mount name spaces can be made here."""
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0
    )


def kill(deployment, server):
    """kill -9 of `meta` or `data-N`; returns when it has ended."""
    pid = int((Path(deployment) / "run" / f"{server}.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    # Its files are closed when its last thread has ended, whether or not anybody has waited for it.
    stat, threads = Path(f"/proc/{pid}/stat"), Path(f"/proc/{pid}/task")
    while stat.exists():
        with contextlib.suppress(OSError):
            if stat.read_text().rsplit(")", 1)[1].split()[0] == "Z" and len(list(threads.iterdir())) == 1:
                return
        time.sleep(0.005)


def up(deployment, command):
    """Starts the servers that are down, in the same boot."""
    subprocess.run([command, "up", deployment], check=True, stdout=subprocess.DEVNULL)


def _saved(deployment, server):
    return Path(deployment).parent / f"saved-{server}"


def save(deployment, server):
    """The store as it is now is what a power loss leaves of it. To be called after a sync and before the next write."""
    shutil.rmtree(_saved(deployment, server), ignore_errors=True)
    subprocess.run(["cp", "-a", Path(deployment) / server, _saved(deployment, server)], check=True)


def lose(deployment, server, command):
    """The server's host loses its power, boots again and starts the server."""
    kill(deployment, server)
    store = Path(deployment) / server
    # The directory itself stays: it is the boot that tells. What a server writes at its start is durable before it serves.
    durable = ("superblock", "incarnation")
    for child in store.iterdir():
        if child.is_dir():
            shutil.rmtree(child)
        elif child.name not in durable:
            child.unlink()
    left = [child for child in _saved(deployment, server).iterdir() if child.name not in durable]
    subprocess.run(["cp", "-a", *left, store], check=True)
    with tempfile.NamedTemporaryFile("w") as boot:
        boot.write(f"{uuid.uuid4()}\n")
        boot.flush()
        start = f'mount --bind "$1" {BOOT_ID} && exec "$2" up "$3"'
        subprocess.run(
            ["unshare", "-m", "sh", "-c", start, "sh", boot.name, command, deployment],
            check=True,
            stdout=subprocess.DEVNULL,
        )
