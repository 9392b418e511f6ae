"""Debian packages, in bare systems of the releases that they are for: installed, used, upgraded, purged."""

import re
import shutil
import subprocess

import pytest
from conftest import ROOT
from debian import USER, Debian, needs_debootstrap
from test_install import MAKE, run

NAMES = ["penstock", "libpenstock-client0", "libpenstock-sched-c0", "libpenstock-dev", "python3-penstock"]
# The user's session: servers, a file from the command, the same file from C and Python.
SESSION = """
penstock up ~/fs --servers 2
export PENSTOCK_DEPLOYMENT=~/fs
echo hello > ~/one; penstock cp ~/one penstock:/one
python3 -c '
import penstock
fs = penstock.connect()
print(fs.open("/one", "rb").read().decode())
view = fs.open("/two", "w+b").array((30, 40), "i4")
view[::2, 5:9] = 7
assert view[:].sum() == 7 * 15 * 4'
penstock status; penstock ls -l; penstock check
penstock down
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """Packages of this version, and of one that follows."""
    out = tmp_path_factory.mktemp("deb")
    for version in ("1.0", "1.1"):
        environment = {**MAKE, "DEB_VERSION": version, "DEBFULLNAME": "A Site", "DEBEMAIL": "hpc@penstock.test"}
        run("make", "deb", f"OUT={out / version}", cwd=ROOT, env=environment, timeout=3000)
    return out


def debs(directory):
    found = sorted(directory.glob("*.deb"))
    assert sorted(p.name.split("_")[0] for p in found) == sorted(NAMES)
    return found


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("dpkg-deb"), reason="no Debian")
def test_packages_are_clean(packages):
    found = debs(packages / "1.0")
    checked = run("lintian", "--fail-on", "error,warning", *found, check=False, timeout=300)
    assert checked.returncode == 0 and not re.search(r"^[EW]: ", checked.stdout, re.MULTILINE), checked.stdout
    seen = set()
    for package in found:
        listed = run("dpkg-deb", "--contents", package).stdout
        paths = {line.split()[5] for line in listed.splitlines() if not line.startswith("d")}
        assert not paths & seen, "no file is in two packages"
        seen |= paths
        scripts = run("dpkg-deb", "--info", package).stdout
        assert not re.search(r"\b(preinst|postinst|prerm|postrm)\b", scripts), "nothing is started"
    units = ("usr/lib/systemd/user/penstock@.service", "usr/lib/systemd/system/penstock-server@.service")
    for path in (
        "usr/bin/penstock",
        "usr/lib/penstock/libpenstock.so",
        "usr/lib/penstock/libpenstock_trace.so",
        *units,
    ):
        assert f"./{path}" in seen


@pytest.mark.long
@needs_debootstrap
@pytest.mark.parametrize("suite", ["bookworm", "trixie"])
def test_install_upgrade_purge(packages, suite, tmp_path):
    system = Debian(tmp_path / "root", suite)
    system.run("apt-get", "update", "-qq")
    # What the packages need stays; it is no part of the comparison below.
    for version in ("1.0", "1.1"):
        shutil.copytree(packages / version, system.root / "debs" / version)
    install = "apt-get install -y -qq --no-install-recommends /debs/{}/*.deb"
    purge = f"apt-get purge -y -qq {' '.join(NAMES)}"
    system.sh(f"{install.format('1.0')}; {purge}")
    before = system.files()

    system.sh(install.format("1.0"))
    assert not [p for p in system.files() - before if "/wants/" in p or p.startswith(("etc", "var"))], "not started"
    used = system.sh(SESSION, user=USER, environment={"XDG_RUNTIME_DIR": f"/home/{USER}"})
    assert "hello" in used.stdout and "data-1" in used.stdout, used.stdout
    system.sh("ldconfig -p | grep -q libpenstock_client.so.0")

    system.sh(install.format("1.1"))
    versions = system.run("dpkg-query", "-W", "-f", "${Package} ${Version} ${db:Status-Status}\\n", *NAMES).stdout
    assert {line.split(" ", 1)[1] for line in versions.splitlines()} == {"1.1 installed"}
    again = system.sh("penstock up ~/fs; penstock ls -d ~/fs; penstock down -d ~/fs", user=USER)
    assert "one" in again.stdout.split(), "the new version has the old one's files"

    system.sh(purge)
    left = {p for p in system.files() - before if "__pycache__" not in p}
    assert left == set(), left
    assert (system.root / f"home/{USER}/fs/deployment.toml").exists(), "a user's files stay"
    assert subprocess.run(["mountpoint", "-q", system.root / "proc"], check=False).returncode != 0
