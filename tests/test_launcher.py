"""Launchers that do not fit the program's MPI library: no file is destroyed, and a message has the right command."""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from conftest import penstock
from test_shim import LIBRARY, MPIS, built, clean_environment

TASKS = 3
LENGTH = 1000
# A launcher, and a program of another MPI which starts under it as so many programs of one rank.
PAIRS = [("mpich", "openmpi"), ("mpich-venv", "openmpi-5"), ("openmpi", "mpich"), ("openmpi-5", "mpich")]
PAIRS = [(launcher, mpi) for launcher, mpi in PAIRS if launcher in MPIS and mpi in MPIS]
ONE, OTHER = PAIRS[0] if PAIRS else (None, None)
pytestmark = pytest.mark.skipif(not PAIRS, reason="needs two MPI libraries that differ")


@pytest.fixture
def out():
    """A directory for files in direct mode: attributes of files can be had there."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    yield directory
    shutil.rmtree(directory)


def tasks(launcher, mpi, how, file, directory, *within, count=TASKS, **variables):
    """The program of one MPI under the launcher of another."""
    variables = {"LD_PRELOAD": LIBRARY, **variables}
    words = [*within, *MPIS[launcher][3], "-n", count, "env", *(f"{k}={v}" for k, v in variables.items())]
    (directory / "written").unlink(missing_ok=True)
    return subprocess.run(
        [str(word) for word in (*words, built(mpi, "tasks.c"), how, file, directory)],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def one_wrote(done, content, count=TASKS):
    """One task has written the file; the others have failed, and said what to do."""
    assert done.returncode != 0 and done.stdout.count(" done\n") == 1, (done.stdout, done.stderr)
    writer = int(re.search(r"^task (\d+) rank 0 done$", done.stdout, re.MULTILINE)[1])
    assert content == bytes([ord("a") + writer]) * LENGTH
    for said in (done.stdout, done.stderr):
        assert f"penstock run -n {count} " in said, (done.stdout, done.stderr)
    assert "PENSTOCK_TASK_FARM=1" in done.stderr


@pytest.mark.parametrize(
    ("launcher", "mpi", "how"), [(*pair, "write") for pair in PAIRS] + [(ONE, OTHER, "twice"), (ONE, OTHER, "delete")]
)
def test_one_task_writes_and_the_others_fail_in_direct_mode(launcher, mpi, how, out):
    for _ in range(2):
        # A second run is another step: its first task may write again.
        done = tasks(launcher, mpi, how, out / "f", out, PENSTOCK_DIRECT=1)
        one_wrote(done, (out / "f").read_bytes())


@pytest.mark.parametrize("how", ["write", "delete"])
@pytest.mark.parametrize(("launcher", "mpi"), PAIRS[:1] + PAIRS[2:3])
def test_one_task_writes_and_the_others_fail_on_servers(launcher, mpi, how, out, deployment):
    for _ in range(2):
        done = tasks(launcher, mpi, how, "penstock:/f", out, PENSTOCK_DEPLOYMENT=deployment)
        (out / "copy").unlink(missing_ok=True)
        penstock("cp", "penstock:/f", out / "copy", "-d", deployment)
        one_wrote(done, (out / "copy").read_bytes())


@pytest.mark.parametrize("where", ["direct", "servers"])
def test_tasks_with_files_of_their_own_and_readers_are_left_alone(where, out, deployment):
    place = {"PENSTOCK_DIRECT": 1} if where == "direct" else {"PENSTOCK_DEPLOYMENT": deployment}
    name = out / "f" if where == "direct" else "penstock:/f"
    for launcher, mpi, how in [(ONE, OTHER, "own"), (ONE, ONE, "write"), (ONE, OTHER, "read"), (ONE, ONE, "self")]:
        done = tasks(launcher, mpi, how, name, out, **place)
        assert done.returncode == 0 and done.stdout.count(" done\n") == TASKS, (how, done.stdout, done.stderr)
    # What the ranks of one program wrote, each by itself at last.
    if where == "direct":
        letters = b"".join(bytes([ord("a") + n]) * LENGTH for n in range(TASKS))
        assert (out / "f").read_bytes() == letters
        assert [(out / f"f.{n}").read_bytes()[:1] for n in range(TASKS)] == [b"a", b"b", b"c"]
        assert os.listxattr(out / "f") == [], "programs of several ranks leave no mark"


@pytest.mark.parametrize("where", ["direct", "servers"])
def test_whoever_means_it_says_so(where, out, deployment):
    place = {"PENSTOCK_DIRECT": 1} if where == "direct" else {"PENSTOCK_DEPLOYMENT": deployment}
    name = out / "f" if where == "direct" else "penstock:/f"
    done = tasks(ONE, OTHER, "write", name, out, PENSTOCK_TASK_FARM=1, **place)
    assert done.returncode == 0 and done.stdout.count(" done\n") == TASKS, done.stderr
    assert "penstock: " not in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a file system")
def test_where_files_have_no_attributes_a_lock_stands_for_them(out):
    # ramfs has none; the writer keeps the file open until the other task has tried.
    script = f'mount -t ramfs none {out} && "$@"; code=$?; cat {out}/f; exit $code'
    within = ["unshare", "-m", "sh", "-c", script, "sh"]
    done = tasks(ONE, OTHER, "hold", out / "f", out, *within, count=2, PENSTOCK_DIRECT=1)
    content, done.stdout = done.stdout[-LENGTH:], done.stdout[:-LENGTH]
    one_wrote(done, content.encode(), count=2)
