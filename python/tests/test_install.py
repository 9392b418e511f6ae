"""`pip install ./python`, as README says, into an environment that has nothing."""

import os
import subprocess
import sys

from conftest import ROOT

PROGRAM = """
import os, numpy as np, fsspec, penstock
fs = penstock.connect(os.environ["PENSTOCK_DEPLOYMENT"])
path = os.environ["TOP"] + "/installed"
with fs.open(path, "w+b") as f:
    f.array((30, 40), "i4")[::2] = 7
    assert f.pread(8, 4 * 80) == b"\\7\\0\\0\\0" * 2
with fsspec.open(f"penstock://{path}", "rb") as f:
    assert np.frombuffer(f.read(), "i4").sum() == 7 * 15 * 40
print(penstock.__file__)
"""


def test_pip_install_in_a_fresh_environment(deployment, top, tmp_path):
    home = tmp_path / "venv"
    subprocess.run([sys.executable, "-m", "venv", home], check=True)
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
    installed = subprocess.run(
        [home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", f"{ROOT / 'python'}[fsspec]"],
        env=clean,
        capture_output=True,
        text=True,
        check=False,
    )
    assert installed.returncode == 0, installed.stderr
    done = subprocess.run(
        [home / "bin" / "python", "-c", PROGRAM],
        env={**clean, "PENSTOCK_DEPLOYMENT": str(deployment), "TOP": top},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0 and done.stdout.startswith(str(home)), done.stdout + done.stderr
