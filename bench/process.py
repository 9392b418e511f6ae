"""Where things are, and programs as benchmarks run them: by which user, in which environment, at what cost."""

import json
import os
import resource
import shutil
import subprocess
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "target" / "bench"
VENV = Path(os.environ.get("PENSTOCK_VENV", ROOT / ".venv"))
PENSTOCK = ROOT / "target" / "release" / "penstock"
EXAMPLES = PENSTOCK.parent / "examples"

# MPICH polls; on few cores it must yield, for the peer's runs and ours alike.
YIELD = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16",
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
}


class Failed(Exception):
    """A command of a benchmark failed; the record is left out with the reason."""


def as_user(uid):
    """How a program is run as another user."""
    return {"user": uid, "group": uid, "extra_groups": [], "cwd": "/"}


def run(command, env=None, timeout=600, user=None):
    """Runs a command, perhaps as another user; returns (stdout, CPU seconds of it and its children)."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run(
        [str(c) for c in command],
        env={**os.environ, **YIELD, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        **({} if user is None else as_user(user)),
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode != 0:
        raise Failed(f"{' '.join(map(str, command))}: exit {done.returncode}: {done.stderr.strip()[-600:]}")
    return (
        done.stdout,
        after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
    )


def last_json(text):
    """The last line of `text` that is a JSON object."""
    for line in reversed(text.splitlines()):
        if line.startswith("{"):
            return json.loads(line)
    raise Failed(f"no JSON in: {text[-300:]}")


def program_for_all(program, directory):
    """A copy of a program in a directory that every user may enter."""
    copy = directory / program.name
    shutil.copy(program, copy)
    for path in (directory, copy):
        path.chmod(0o755)
    return copy


def process_of(home):
    """The one server process of a deployment of one data server that moves bytes."""
    files = [f for f in home.rglob("*.pid") if f.name.startswith("data")]
    if len(files) != 1:
        raise Failed(f"{home}: {len(files)} data servers run, one is wanted")
    return int(files[0].read_text().split()[0])


def taken(process):
    """A server process so far: seconds on the clock, calls that move bytes from and to its store, processor seconds. A
    trace is written many events at a time, so its calls do not count beside these; sockets have calls of their own."""
    lines = Path(f"/proc/{process}/io").read_text().splitlines()
    calls = sum(int(line.split()[1]) for line in lines if line.startswith(("syscr:", "syscw:")))
    return time.monotonic(), calls, time.clock_gettime(~process << 3 | 2)
