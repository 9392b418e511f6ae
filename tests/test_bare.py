"""The README on a bare Debian 12, by a user without root: what it tells root to install, then its blocks from top to bottom."""

import os
import re
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT
from debian import USER, Debian, needs_debootstrap
from test_readme import BLOCKS, README, missing

HOME = f"/home/{USER}"
# A clean build, with the machine to itself: ten minutes.
TIMEOUT = 7200


def rust():
    """This machine's Rust, at the same places: the way to get it is rustup's, and needs its servers."""
    homes = {
        "RUSTUP_HOME": Path(os.environ.get("RUSTUP_HOME", Path.home() / ".rustup")),
        "CARGO_BIN": Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin",
    }
    return homes["RUSTUP_HOME"], homes["CARGO_BIN"]


@pytest.mark.long
@needs_debootstrap
def test_the_readme_on_a_bare_system(tmp_path):
    system = Debian(tmp_path / "root", "bookworm")
    (packages,) = re.findall(r"^    apt-get install (.*)$", README, re.MULTILINE)
    system.sh(f"apt-get update -qq; apt-get install -y -qq --no-install-recommends {packages} >/dev/null")
    # The sources, as a user has them: what is committed.
    archive = subprocess.run(["git", "archive", "HEAD"], cwd=ROOT, check=True, capture_output=True).stdout
    source = system.root / HOME.lstrip("/") / "penstock"
    source.mkdir()
    subprocess.run(["tar", "-x", "-C", source], input=archive, check=True)
    rustup, cargo = rust()
    configured = cargo.parent / "config.toml"
    if configured.exists():
        (source.parent / ".cargo").mkdir()
        (source.parent / ".cargo" / "config.toml").write_bytes(configured.read_bytes())
    system.run("chown", "-R", f"{USER}:{USER}", HOME)

    script = ["set -euo pipefail", "cd ~/penstock"]
    for block in BLOCKS.values():
        if not missing(block):
            code = block["code"]
            if block["language"] == "python":
                code = f"python3 - <<'END-OF-BLOCK'\n{code}END-OF-BLOCK\n"
            script.append(f"echo '== {block['name']}' >&2; SECONDS=0\n{code}echo \"took $SECONDS s\" >&2")
    (source.parent / "session").write_text("\n".join(script))
    done = system.run(
        "bash",
        f"{HOME}/session",
        user=USER,
        binds=[(rustup, "/opt/rustup"), (cargo, "/opt/cargo")],
        environment={
            "RUSTUP_HOME": "/opt/rustup",
            "PATH": "/opt/cargo:/usr/local/bin:/usr/bin:/bin",
            "PIP_NO_CACHE_DIR": "1",
        },
        check=False,
        timeout=TIMEOUT,
    )
    print(done.stdout, done.stderr)
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.findall(r"^== (.*)$", done.stderr, re.MULTILINE) == [b["name"] for b in BLOCKS.values() if not missing(b)]
    assert "MPI programs, not changed, wrote and read" in done.stdout
