"""docs/understand/semantics.md and semantics-errors.md are executed: each Python block is a program that two ranks run."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PENSTOCK = ROOT / "target" / os.environ.get("PENSTOCK_PROFILE", "release") / "penstock"

PREAMBLE = """
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
assert comm.size == 2
def path(name):
    return {prefix!r} + name.replace(" ", "-")
"""


def blocks():
    heading = "?"
    pages = ("semantics.md", "semantics-errors.md")
    text = "".join((ROOT / "docs" / "understand" / page).read_text() for page in pages)
    for match in re.finditer(r"^## (?P<h>[^\n]*)$|^```python\n(?P<code>.*?)^```$", text, re.MULTILINE | re.DOTALL):
        if match["h"]:
            heading, k = match["h"], 0
        else:
            k += 1
            yield pytest.param(match["code"], id=f"{heading}-{k}".replace(" ", "-"))


@pytest.mark.parametrize("mode", ["servers", "direct"])
@pytest.mark.parametrize("code", list(blocks()))
def test_block(code, mode, tmp_path):
    prefix = "penstock:/" if mode == "servers" else f"{tmp_path}/"
    program = tmp_path / "block.py"
    program.write_text(PREAMBLE.format(prefix=prefix) + code)
    where = ["--store", str(tmp_path / "store")] if mode == "servers" else ["--direct"]
    command = [
        str(PENSTOCK),
        "run",
        "-n",
        "2",
        *where,
        "--",
        sys.executable,
        "-m",
        "mpi4py",
        str(program),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
