"""Hosts of the tests' own: each has name spaces for network, processes, mounts and host name, a disk and a server for ssh.

The network is a bridge in a name space of its own, so that nothing of this machine's changes. Needs root.
"""

import contextlib
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

from conftest import PENSTOCK

# On a host, before it serves: its own disk, the home that all hosts share, and names of all.
BOOT = """
set -e
hostname "$1"
mount --make-rprivate /
mount --bind "$2/disk-$1" "$2/local"
mount --bind "$2/home" "$3"
mount --bind "$2/hosts" /etc/hosts
mount -t tmpfs tmpfs /run
mount -t tmpfs tmpfs /dev/shm
ip link set lo up
exec dropbear -F -E -s -j -k -r "$2/hostkey" -p 22 -P "/run/dropbear.pid"
"""


def present():
    """Whether this machine has the programs, and lets root make name spaces."""
    found = all(shutil.which(name, path="/usr/sbin:/usr/bin:/sbin") for name in ("ip", "dropbear", "ssh", "nsenter"))
    if not found or os.geteuid() != 0:
        return False
    name = f"pst{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return made


def wait(what, seconds, condition):
    """The condition's first true value; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{what}: not in {seconds} s"
        time.sleep(0.05)
    return value


def sh(*command):
    subprocess.run([str(word) for word in command], check=True, capture_output=True, text=True, timeout=60)


class Hosts:
    """`names` are hosts; `fs` is a directory of each host's own, at the same path everywhere."""

    def __init__(self, directory, n):
        self.dir = directory
        self.names = [f"h{k}" for k in range(1, n + 1)]
        self.fs = directory / "local" / "fs"
        self.space = f"pst{os.getpid()}"
        self.hosts = {}
        self.log = (directory / "ssh.log").open("ab")

    def start(self):
        for name in ("local", "home/.ssh", *(f"disk-{name}" for name in self.names)):
            (self.dir / name).mkdir(parents=True)
        self.dir.chmod(0o755)
        (self.dir / "home").chmod(0o700)
        lines = [f"10.213.0.{k} {name}\n" for k, name in enumerate(self.names, 1)]
        (self.dir / "hosts").write_text("127.0.0.1 localhost\n" + "".join(lines))
        self.keys()
        sh("ip", "netns", "add", self.space)
        sh("ip", "-n", self.space, "link", "add", "bridge", "type", "bridge")
        sh("ip", "-n", self.space, "link", "set", "bridge", "up")
        for k, name in enumerate(self.names, 1):
            own = self.own(name)
            sh("ip", "netns", "add", own)
            sh("ip", "link", "add", name, "netns", self.space, "type", "veth", "peer", "name", "eth0", "netns", own)
            sh("ip", "-n", self.space, "link", "set", name, "master", "bridge", "up")
            sh("ip", "-n", own, "address", "add", f"10.213.0.{k}/24", "dev", "eth0")
            sh("ip", "-n", own, "link", "set", "eth0", "up")
            self.boot(name)

    def keys(self):
        """One key lets root in on all hosts, which all have the same host key."""
        ssh = self.dir / "home" / ".ssh"
        for key in (ssh / "id_ed25519", self.dir / "openssh"):
            sh("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key)
        sh("dropbearconvert", "openssh", "dropbear", self.dir / "openssh", self.dir / "hostkey")
        public = (self.dir / "openssh.pub").read_text().strip()
        (ssh / "known_hosts").write_text(f"{','.join(self.names)} {public}\n")
        (ssh / "authorized_keys").write_text((ssh / "id_ed25519.pub").read_text())
        for path in (ssh, ssh / "authorized_keys"):
            path.chmod(0o700)

    def own(self, name):
        return f"{self.space}-{name}"

    def boot(self, name):
        """Starts a host that is off."""
        spaces = ["unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
        boot = ["sh", "-c", BOOT, "sh", name, self.dir, pwd.getpwuid(0).pw_dir]
        command = ["ip", "netns", "exec", self.own(name), *spaces, *boot]
        process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.DEVNULL,
            stdout=self.log,
            stderr=self.log,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"},
        )

        def init():
            children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            return children and children[0]

        self.hosts[name] = (process, int(wait(f"{name} boots", 20, init)))
        wait(
            f"ssh of {name}",
            20,
            lambda: self.on(name, "sh", "-c", "ss -ltn | grep -q :22", check=False).returncode == 0,
        )

    def kill(self, name):
        """Power loss, but for what is on its disk."""
        process, init = self.hosts.pop(name)
        os.kill(init, signal.SIGKILL)
        process.wait(timeout=30)

    def cut(self, name, state="down"):
        """Takes its network away, or gives it back with `up`."""
        sh("ip", "-n", self.space, "link", "set", name, state)

    def slow(self, name, rate):
        """Whatever goes to it has this rate ("100mbit"); `None` takes that away."""
        what = ["add", "dev", name, "root", "tbf", "rate", rate, "burst", "64k", "latency", "50ms"]
        sh("tc", "-n", self.space, "qdisc", *(what if rate else ["del", "dev", name, "root"]))

    def lossy(self, name, of):
        """One of so many packets that come to it is lost; `None`: no more."""
        rules = "add table inet loss\ndelete table inet loss\n"
        if of:
            rules += (
                "add table inet loss\n"
                "add chain inet loss in { type filter hook input priority 0; }\n"
                f"add rule inet loss in iif eth0 numgen random mod {of} < 1 counter drop\n"
            )
        command = ["ip", "netns", "exec", self.own(name), "nft", "-f", "-"]
        subprocess.run(command, input=rules, text=True, check=True, capture_output=True)

    def dropped(self, name):
        """Packets that were lost by `lossy`."""
        command = ["ip", "netns", "exec", self.own(name), "nft", "list", "table", "inet", "loss"]
        listed = subprocess.run(command, text=True, check=True, capture_output=True).stdout
        return int(re.search(r"counter packets (\d+)", listed)[1])

    @contextlib.contextmanager
    def far(self, name, seconds):
        """Each packet to it and from it takes so long."""
        sh("ip", "-n", self.space, "link", "add", "near", "type", "veth", "peer", "name", "far")
        try:
            sh("ip", "-n", self.space, "link", "set", name, "nomaster")
            sh("ip", "-n", self.space, "link", "set", "near", "master", "bridge", "up")
            sh("ip", "-n", self.space, "link", "set", "far", "up", "promisc", "on")
            sh("ip", "-n", self.space, "link", "set", name, "promisc", "on")
            forward = [sys.executable, str(Path(__file__).with_name("delay.py")), "far", name, str(seconds)]
            with subprocess.Popen(["ip", "netns", "exec", self.space, *forward], stdin=subprocess.DEVNULL) as forwarder:
                try:
                    yield
                finally:
                    forwarder.kill()
        finally:
            sh("ip", "-n", self.space, "link", "del", "near")
            sh("ip", "-n", self.space, "link", "set", name, "promisc", "off", "master", "bridge")

    def inside(self, name):
        """The beginning of a command that runs on the host."""
        spaces = ["--net", "--uts", "--mount", "--pid"]
        return ["nsenter", "-t", str(self.hosts[name][1]), *spaces, "--wd=/", "--"]

    def popen(self, name, *command, **options):
        environment = {"PATH": f"{PENSTOCK.parent}:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": pwd.getpwuid(0).pw_dir}
        return subprocess.Popen(
            [str(word) for word in (*self.inside(name), *command)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**environment, **options.pop("env", {})},
            **options,
        )

    def on(self, name, *command, check=True, timeout=100, **options):
        """What a command on the host comes to."""
        process = self.popen(name, *command, **options)
        out, err = process.communicate(timeout=timeout)
        assert not check or process.returncode == 0, (name, command, process.returncode, out, err)
        return subprocess.CompletedProcess(command, process.returncode, out, err)

    def penstock(self, name, *arguments, **options):
        return self.on(name, PENSTOCK, *arguments, **options)

    def servers(self, name):
        """Numbers of the servers' processes on the host, by the arguments that say which."""
        found = {}
        for line in self.on(name, "ps", "-eo", "pid,args").stdout.splitlines():
            pid, *words = line.split()
            if "serve" in words and str(PENSTOCK) in words:
                found[" ".join(words[words.index("--deployment") + 2 :])] = int(pid)
        return found

    def disk(self, name):
        """What it has at `fs`, as seen from outside."""
        return self.dir / f"disk-{name}" / "fs"

    def stop(self):
        for name in list(self.hosts):
            self.kill(name)
        for space in (*map(self.own, self.names), self.space):
            subprocess.run(["ip", "netns", "del", space], capture_output=True, check=False)
        self.log.close()
