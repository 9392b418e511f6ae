"""A bare Debian in a directory, for tests of what is installed on one: debootstrap's minimal system, entered by chroot.

Each command runs in mount and process name spaces of its own, so nothing stays mounted and nothing goes on running.
"""

import os
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT

MIRROR = "http://deb.debian.org/debian"
USER = "me"
TIMEOUT = 1800
# What this machine reaches package archives and indices with.
NETWORK = ("/etc/resolv.conf", "/etc/hosts", "/etc/pip.conf")
MOUNTS = {"/proc": "proc", "/sys": "sysfs", "/run": "tmpfs", "/dev": "tmpfs"}
DEVICES = {
    "null": "1 3",
    "zero": "1 5",
    "full": "1 7",
    "random": "1 8",
    "urandom": "1 9",
    "tty": "5 0",
    "fuse": "10 229",
}
# The authorities that this machine trusts; the bare system knows none.
AUTHORITIES = Path("/etc/ssl/certs/ca-certificates.crt")
CERTIFICATE_VARIABLES = ("PIP_CERT", "SSL_CERT_FILE", "CARGO_HTTP_CAINFO", "REQUESTS_CA_BUNDLE")

needs_debootstrap = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("debootstrap"), reason="needs root and debootstrap"
)


class Debian:
    """A system in `root`, of a release such as `bookworm`, with one user besides root."""

    def __init__(self, root, suite):
        self.root = Path(root)
        base = ROOT / "target" / "debian" / suite
        if not (base / "etc" / "debian_version").exists() or (base / "debootstrap").exists():
            shutil.rmtree(base, ignore_errors=True)
            base.parent.mkdir(parents=True, exist_ok=True)
            subprocess.run(["debootstrap", "--variant=minbase", suite, base, MIRROR], check=True, timeout=TIMEOUT)
        subprocess.run(["cp", "-a", "--reflink=auto", base, self.root], check=True)
        for file in map(Path, NETWORK):
            if file.exists():
                shutil.copy(file, self.root / file.relative_to("/"))
        shutil.copy(AUTHORITIES, self.root / AUTHORITIES.name)
        # Made when a system boots for the first time; fusermount3 reads it.
        (self.root / "etc" / "mtab").symlink_to("../proc/self/mounts")
        self.run("useradd", "-m", "-s", "/bin/bash", USER)

    def command(self, *words, user="root", environment=None, binds=(), cwd="/"):
        """The command that runs `words` in here."""
        root = shlex.quote(str(self.root))
        steps = [f"mount -t {kind} {kind} {root}{place}" for place, kind in MOUNTS.items()]
        # As udev has them: everybody may use FUSE.
        steps += [f"mknod -m 666 {root}/dev/{name} c {numbers}" for name, numbers in DEVICES.items()]
        steps += [f"ln -s /proc/self/fd {root}/dev/fd", f"mkdir -m 1777 {root}/dev/shm"]
        for outside, inside in binds:
            target = self.root / str(inside).lstrip("/")
            target.mkdir(parents=True, exist_ok=True)
            steps.append(f"mount --bind -o ro {shlex.quote(str(outside))} {shlex.quote(str(target))}")
        home = "/root" if user == "root" else f"/home/{user}"
        variables = {
            "HOME": home,
            "USER": user,
            "PATH": "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin",
            "LC_ALL": "C.UTF-8",
            "DEBIAN_FRONTEND": "noninteractive",
            **dict.fromkeys(CERTIFICATE_VARIABLES, f"/{AUTHORITIES.name}"),
            **(environment or {}),
        }
        inside = shlex.join(
            ["env", "-i", "-C", str(cwd), *(f"{k}={v}" for k, v in variables.items()), *map(str, words)]
        )
        as_user = "" if user == "root" else f"setpriv --reuid={user} --regid={user} --init-groups "
        steps.append(f"exec chroot {root} {as_user}{inside}")
        return ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-ec", "\n".join(steps)]

    def run(self, *words, check=True, timeout=TIMEOUT, **how):
        done = subprocess.run(self.command(*words, **how), capture_output=True, text=True, check=False, timeout=timeout)
        assert not check or done.returncode == 0, f"{words}\n{done.stdout}\n{done.stderr}"
        return done

    def sh(self, script, **how):
        return self.run("bash", "-euo", "pipefail", "-c", script, **how)

    def files(self):
        """All paths that packages put somewhere, without records of package managers and caches."""
        kept = ("usr", "etc", "opt", "lib", "bin", "sbin", "srv", "var/lib")
        leave = ("var/lib/dpkg", "var/lib/apt", "etc/ld.so.cache")
        return {
            str(path.relative_to(self.root))
            for top in kept
            for path in (self.root / top).rglob("*")
            if not str(path.relative_to(self.root)).startswith(leave)
        }
