"""Launchers that do not fit the program's MPI library: no file is destroyed, and a message has the right command."""

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
import slurm
from conftest import ROOT, penstock
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


def letters(count):
    """What ranks of one program write."""
    return b"".join(bytes([ord("a") + n]) * LENGTH for n in range(count))


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


def one_wrote(done, content, count=TASKS, command="penstock run"):
    """One task has written the file; the others have failed, and said what to do."""
    assert done.returncode != 0 and done.stdout.count(" done\n") == 1, (done.stdout, done.stderr)
    writer = int(re.search(r"^task (\d+) rank 0 done$", done.stdout, re.MULTILINE)[1])
    assert content == bytes([ord("a") + writer]) * LENGTH
    for said in (done.stdout, done.stderr):
        assert f"{command} -n {count} " in said, (done.stdout, done.stderr)
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
        assert (out / "f").read_bytes() == letters(TASKS)
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


@pytest.mark.parametrize(("launcher", "mpi"), PAIRS)
def test_run_refuses_the_launcher_of_another_mpi(launcher, mpi, out):
    wrong, right = (shutil.which(MPIS[name][3][0]) for name in (launcher, mpi))
    run = ["--launcher", wrong, "--direct", "--quiet", "--", built(mpi, "tasks.c"), "write", out / "f", out]
    refused = penstock("run", "-n", 2, *run, check=False)
    assert refused.code == 1 and list(out.iterdir()) == []
    named = re.search(r"--launcher (\S+);", refused.err)[1]
    assert Path(named).resolve() == Path(right).resolve() or named.endswith((".mpich", ".openmpi")), refused.err
    penstock("run", "-n", 2, "--launcher", named, *run[2:])
    assert (out / "f").read_bytes() == letters(2)
    # One rank is what it is under any launcher.
    if (launcher, mpi) == (ONE, OTHER):
        penstock("run", "-n", 1, *run)
        penstock("run", "-n", 2, *run, env={"PENSTOCK_TASK_FARM": "1"})


@pytest.mark.skipif("mpich" not in MPIS, reason="needs Debian's MPICH")
@pytest.mark.parametrize("stripped", [False, True])
def test_run_refuses_an_mpi_that_is_linked_in(stripped, out):
    program = out / "linked-in"
    shown = subprocess.run([MPIS["mpich"][0], "-show"], capture_output=True, text=True, check=True).stdout.split()
    include = [word for word in shown if word.startswith("-I")]
    libraries = [
        "-Wl,-Bstatic",
        "-lmpich",
        "-Wl,-Bdynamic",
        *["-lhwloc", "-lucp", "-lucs", "-lm", "-lpthread", "-lrt", "-ldl"],
    ]
    source = ROOT / "mpi" / "tests" / "callers" / "tasks.c"
    compile_ = ["cc", *include, *(["-s"] if stripped else []), "-o", program, source, *libraries]
    if subprocess.run(compile_, capture_output=True, check=False).returncode != 0:
        pytest.skip("needs what libmpich.a is linked with")
    for launcher in ([], ["--launcher", "mpiexec.mpich"]):
        refused = penstock("run", "-n", 2, *launcher, "--direct", "--", program, "write", out / "f", out, check=False)
        assert refused.code == 1 and f"{program} has its MPI library linked" in refused.err
    assert not (out / "f").exists()


@pytest.fixture(scope="module")
def node():
    """A Slurm of one node."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    directory.chmod(0o755)
    node = slurm.Node(directory)
    try:
        node.start()
        yield node
    finally:
        node.stop()
    shutil.rmtree(directory, ignore_errors=True)


needs_slurm = pytest.mark.skipif(os.geteuid() != 0 or not slurm.present(), reason="needs root and Slurm")
# What each library is served by, and what leaves its ranks alone without an error of its own.
PLUGINS = {
    "mpich": ("pmi2", ["none", "pmix"]),
    "mpich-venv": ("pmi2", ["none"]),
    "openmpi": ("pmix", []),
    "openmpi-5": ("pmix", ["none", "pmi2"]),
}
PLUGINS = {mpi: plugins for mpi, plugins in PLUGINS.items() if mpi in MPIS}


@needs_slurm
@pytest.mark.parametrize("mpi", PLUGINS)
def test_srun_is_told_what_the_library_needs(mpi, node, out):
    conf = {"SLURM_CONF": str(node.conf)}
    run = ("run", "-n", 2, "--quiet", "--launcher", "srun", "--direct")
    program = ("--", built(mpi, "tasks.c"), "write", out / "f", out)
    penstock(*run, *program, env=conf)
    assert (out / "f").read_bytes() == letters(2)
    right, wrong = PLUGINS[mpi]
    for plugin in {*wrong, "none"}:
        refused = penstock(*run, f"--launcher-arg=--mpi={plugin}", *program, env=conf, check=False)
        assert refused.code == 1 and f"needs the plugin {right}" in refused.err, refused.err
    penstock(*run, f"--launcher-arg=--mpi={right}", *program, env=conf)
    # A site's default for another library.
    (out / "f").unlink()
    penstock(*run, *program, env={**conf, "SLURM_MPI_TYPE": "none"})
    assert (out / "f").read_bytes() == letters(2)


@needs_slurm
@pytest.mark.parametrize(("mpi", "plugin"), [(mpi, wrong) for mpi, plugins in PLUGINS.items() for wrong in plugins[1]])
def test_srun_without_the_right_plugin(mpi, plugin, node, out):
    right = PLUGINS[mpi][0]

    def srun(plugin, **variables):
        (out / "written").unlink(missing_ok=True)
        return subprocess.run(
            ["srun", "-n2", f"--mpi={plugin}", built(mpi, "tasks.c"), "write", out / "f", out],
            env=clean_environment()
            | {"SLURM_CONF": node.conf, "LD_PRELOAD": LIBRARY, "PENSTOCK_DIRECT": "1", **variables},
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    one_wrote(srun(plugin), (out / "f").read_bytes(), 2, f"srun --mpi={right}")
    assert srun(plugin, PENSTOCK_TASK_FARM="1").returncode == 0
    (out / "f").unlink()
    done = srun(right)
    assert done.returncode == 0 and (out / "f").read_bytes() == letters(2), done.stderr


@needs_slurm
@pytest.mark.skipif("mpich" not in MPIS, reason="needs Debian's MPICH")
def test_programs_of_a_batch_script_are_no_tasks(node, out):
    """One after another they may write the same file, whatever number of tasks the job has."""
    program = f"env PENSTOCK_DIRECT=1 LD_PRELOAD={LIBRARY} {built('mpich', 'tasks.c')} write {out}/f {out}"
    job = node.submit(pwd.getpwuid(0), f"{program} && {program} && echo both", "-n2")
    assert "both" in node.reached(job, "COMPLETED", "FAILED", "")
