"""README.md is executed: each fenced block that follows a line `<!-- tested: NAME -->`.

A `sh` block is run by bash, a `python` block by the test environment's Python. Each gets a directory of its own
with `./app` (an MPI program that wants a file name) and `big.nc`, `penstock` in the path, and a running deployment,
which `PENSTOCK_DEPLOYMENT` names. `/data/fs` and `/mnt/fs` in a block are directories of the test's. Append to the
marker what the block needs beyond that: `<!-- tested: mount; needs /dev/fuse -->` skips it where the path is missing.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import PENSTOCK, ROOT, penstock

MARKED = re.compile(
    r"^<!-- tested: (?P<name>[\w -]+)(?:; needs (?P<needs>\S+))? -->\n+```(?P<language>\w+)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)


def blocks():
    for match in MARKED.finditer((ROOT / "README.md").read_text()):
        yield pytest.param(match, id=match["name"].replace(" ", "-"))


def test_every_marker_has_its_block():
    assert (ROOT / "README.md").read_text().count("<!-- tested:") == len(list(blocks())) > 0


def test_blocks_are_short():
    blocks = list(MARKED.finditer((ROOT / "README.md").read_text()))
    assert {"mount", "h5py", "xarray"} <= {block["name"] for block in blocks}
    for block in blocks:
        assert len([line for line in block["code"].splitlines() if line.strip()]) < 10, block["name"]


@pytest.mark.parametrize("block", list(blocks()))
def test_block(block, short_dir, examples):
    if block["needs"] and not Path(block["needs"]).exists():
        pytest.skip(f"{block['needs']} is missing here")
    deployment, mount, work = (short_dir / name for name in ("fs", "mnt", "work"))
    mount.mkdir()
    work.mkdir()
    shutil.copy(examples("tile"), work / "app")
    (work / "big.nc").write_bytes(bytes(range(256)) * 4096)
    penstock("up", deployment)
    code = block["code"].replace("/data/fs", str(deployment)).replace("/mnt/fs", str(mount))
    program = work / "block"
    program.write_text(code)
    command = {
        "sh": ["bash", "-euo", "pipefail", str(program)],
        "python": [sys.executable, str(program)],
    }[block["language"]]
    # The block about h5py wants the Python whose h5py is parallel: Debian's.
    python = Path("/usr/bin") if block["name"] == "h5py" else Path(sys.executable).parent
    environment = {
        **os.environ,
        "PENSTOCK_DEPLOYMENT": str(deployment),
        "PATH": f"{PENSTOCK.parent}:{python}:{os.environ['PATH']}",
    }
    try:
        done = subprocess.run(
            command, cwd=work, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{code}\n{done.stdout}\n{done.stderr}"
    finally:
        if mount.is_mount():
            penstock("umount", mount, check=False)
        penstock("down", deployment, check=False)
