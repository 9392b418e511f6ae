"""README.md is executed: its blocks that follow a line `<!-- tested: NAME -->`, from top to bottom, in one shell.

The shell has an empty home directory, the system's programs and Rust; whatever else a block needs, the README told to
install. It runs in this tree, and stops at the first command that fails. `sh` blocks are its commands; a `python`
block is a program for its python3. Append to the marker what a block needs of the machine: `<!-- tested: mount; needs
/dev/fuse -->` is skipped where the path is missing. `make demo` runs on small problems.
"""

import os
import re
import shlex
import shutil
import subprocess
import tempfile
import threading
from pathlib import Path

import pytest
from conftest import ROOT

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(
    r"^<!-- tested: (?P<name>[\w -]+)(?:; needs (?P<needs>\S+))? -->\n+```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
BLOCKS = {match["name"]: match for match in BLOCK.finditer(README)}
TIMEOUT = 900  # of a block: one of them builds, another asks a package index


class Session:
    """A shell that runs blocks of the README, each once, in their order."""

    def __init__(self, home):
        self.home = home
        self.done = {}
        kept = {
            k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK_", "VIRTUAL_ENV", "PYTHON", "PYENV"))
        }
        caches = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
        rust = {
            "CARGO_HOME": os.environ.get("CARGO_HOME", str(Path.home() / ".cargo")),
            "RUSTUP_HOME": os.environ.get("RUSTUP_HOME", str(Path.home() / ".rustup")),
        }
        environment = {
            **kept,
            **rust,
            "HOME": str(home),
            "PATH": f"{rust['CARGO_HOME']}/bin:/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "PIP_CACHE_DIR": os.environ.get("PIP_CACHE_DIR", str(caches / "pip")),
            "DEMO": "--scale 0.03 --pairs 1",
        }
        for name in ("MAKEFLAGS", "MAKELEVEL", "XDG_CACHE_HOME", "XDG_STATE_HOME", "XDG_CONFIG_HOME"):
            environment.pop(name, None)
        self.shell = subprocess.Popen(
            ["bash", "-eu", "-o", "pipefail"],
            cwd=ROOT,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def run(self, name):
        """Runs a block after those before it; returns its output, or what went wrong."""
        for block in BLOCKS.values():
            if block["name"] not in self.done and not missing(block):
                self.done[block["name"]] = self.run_one(block)
            if block["name"] == name:
                return self.done[name]
        raise KeyError(name)

    def run_one(self, block):
        name = block["name"]
        if self.shell.poll() is not None:
            return f"not run: a block before {name} failed", False
        program, output = (self.home / f".{name}.{end}" for end in (block["language"], "output"))
        program.write_text(block["code"])
        how = {"sh": "source", "python": "python3"}[block["language"]]
        # Programs must not read the commands that follow.
        self.shell.stdin.write(
            f"{how} {shlex.quote(str(program))} </dev/null >{shlex.quote(str(output))} 2>&1\necho ended\n"
        )
        self.shell.stdin.flush()
        timer = threading.Timer(TIMEOUT, self.shell.kill)
        timer.start()
        ended = self.shell.stdout.readline() == "ended\n"
        timer.cancel()
        return output.read_text(errors="replace") if output.exists() else "", ended

    def end(self):
        """Leaves nothing running."""
        self.shell.stdin.close()
        try:
            self.shell.wait(60)
        except subprocess.TimeoutExpired:
            self.shell.kill()
        command = self.home / ".local" / "bin" / "penstock"
        if command.exists():
            if (self.home / "mnt").is_mount():
                subprocess.run([command, "umount", "--lazy", self.home / "mnt"], check=False, timeout=60)
            if (self.home / "fs" / "deployment.toml").exists():
                subprocess.run([command, "down", "-d", self.home / "fs"], check=False, timeout=60, capture_output=True)


def missing(block):
    """What the machine lacks for a block."""
    return block["needs"] if block["needs"] and not Path(block["needs"]).exists() else None


@pytest.fixture(scope="module")
def session():
    home = Path(tempfile.mkdtemp(prefix="pst-"))
    session = Session(home)
    yield session
    session.end()
    shutil.rmtree(home, ignore_errors=True)


def test_every_marker_has_its_block():
    assert README.count("<!-- tested:") == len(BLOCKS) > 0
    assert {"demo", "install", "stays", "mount", "h5py", "pip", "xarray", "moving"} == set(BLOCKS)


def test_blocks_are_short():
    for name, block in BLOCKS.items():
        assert len([line for line in block["code"].splitlines() if line.strip()]) < 10, name


def test_what_the_readme_installs_is_there():
    """Otherwise blocks would run with what it does not tell."""
    (line,) = re.findall(r"^    apt-get install (.*)$", README, re.MULTILINE)
    if shutil.which("dpkg-query"):
        subprocess.run(["dpkg-query", "-W", *line.split()], check=True, capture_output=True)


@pytest.mark.parametrize("name", BLOCKS)
def test_block(name, session):
    block = BLOCKS[name]
    if missing(block):
        pytest.skip(f"{missing(block)} is missing here")
    output, ended = session.run(name)
    assert ended, f"{block['code']}\n{output}"
