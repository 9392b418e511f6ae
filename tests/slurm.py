"""A Slurm of the tests' own: munged, slurmctld, two slurmd and a server for ssh, all on this host and on loopback.

Each slurmd has a mount name space of its own, in which /run is empty and the deployment's directory is hidden: as on another
host. contrib/slurm is installed there as on a node, and on "the authority's host", where dropbear takes ssh connections.
"""

import os
import pwd
import shutil
import signal
import socket
import subprocess
import time

from conftest import PENSTOCK, ROOT, free_ports
from test_munge import Munged

SCRIPTS = ROOT / "contrib" / "slurm"
NODES = ("node1", "node2")
# Not those of a Slurm that users of this machine know.
FIRST_JOB = 700_000
CONF = """
ClusterName=penstock
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={munge},cred_expire=5
CryptoType=crypto/munge
StateSaveLocation={dir}/state
SlurmdSpoolDir={dir}/spool-%n
SlurmctldPidFile={dir}/slurmctld.pid
SlurmdPidFile={dir}/slurmd-%n.pid
SlurmctldLogFile={dir}/slurmctld.log
SlurmdLogFile={dir}/slurmd-%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SwitchType=switch/none
MpiDefault=none
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
MailProg=/bin/true
ReturnToService=2
KillWait=2
SchedulerParameters=bf_interval=1,sched_interval=1
FirstJobId={first}
{scripts}
{nodes}
PartitionName=all Nodes=ALL Default=YES State=UP MaxTime=60 DefaultTime=10
"""
# The jobs' credentials.
JOB_SCRIPTS = """PrologFlags=Alloc
Prolog={dir}/scripts/prolog
Epilog={dir}/scripts/epilog"""
# On a node: what it may not see is hidden before slurmd starts.
NODE = 'mount -t tmpfs tmpfs /run && mount -t tmpfs tmpfs "$1" && mount --bind "$2" "$3" && shift 3 && exec "$@"'
# On the authority's host: only the test's keys are taken.
AUTHORITY = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'


def present():
    """Whether this machine has the programs, and lets root make mount name spaces."""
    programs = ("slurmctld", "slurmd", "sbatch", "dropbear", "ssh", "munged")
    found = all(shutil.which(name, path="/usr/sbin:/usr/bin") for name in programs)
    return found and subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode == 0


def wait(what, seconds, condition):
    """The condition's first true value; fails after so many seconds."""
    deadline = time.monotonic() + seconds
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < deadline, f"{what}: not in {seconds} s"
        time.sleep(0.1)


def listens(port):
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) == 0


class Cluster:
    """Two nodes. `deployment`: the deployment's directory, which nodes don't see."""

    def __init__(self, directory, deployment):
        self.dir = directory
        self.deployment = deployment
        self.munged = Munged(directory / "munge")
        self.ssh_port = free_ports(5)
        self.conf = directory / "slurm.conf"
        self.processes = {}
        self.log = (directory / "daemons.log").open("ab")

    def start(self):
        self.munged.start()
        self.install()
        self.listen()
        self.control(NODES, JOB_SCRIPTS.format(dir=self.dir))
        for name in NODES:
            scripts = [self.deployment, self.dir / name, self.dir / "scripts"]
            slurmd = ["slurmd", "-D", "-f", self.conf, "-N", name]
            self.run(name, ["unshare", "-m", "sh", "-c", NODE, "sh", *scripts, *slurmd])
        wait("idle nodes", 40, lambda: self.slurm("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"])

    def control(self, names, scripts):
        """Starts slurmctld for these nodes."""
        controller, *ports = range(self.ssh_port + 1, self.ssh_port + 5)
        host = socket.gethostname().split(".")[0]
        nodes = "\n".join(
            f"NodeName={name} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4 State=UNKNOWN"
            for name, port in zip(names, ports, strict=False)
        )
        values = {"host": host, "port": controller, "munge": self.munged.socket, "first": FIRST_JOB}
        self.conf.write_text(CONF.format(dir=self.dir, nodes=nodes, scripts=scripts, **values))
        (self.dir / "state").mkdir()
        (self.dir / "out").mkdir()
        (self.dir / "out").chmod(0o1777)
        self.run("slurmctld", ["slurmctld", "-D", "-f", self.conf])
        wait("slurmctld", 20, lambda: listens(controller))

    def install(self):
        """contrib/slurm on the authority's host, and on each node with a key of its own."""
        home = self.dir / "home"
        (home / ".ssh").mkdir(parents=True)
        hostkey = self.dir / "hostkey"
        public = self.key(hostkey)
        known = f"[127.0.0.1]:{self.ssh_port} {public}\n"
        self.settings(self.dir / "authority", penstock=PENSTOCK, lines=[f"export SLURM_CONF={self.conf}"])
        (self.dir / "scripts").mkdir()
        lines = []
        for name in NODES:
            key = self.dir / f"{name}.key"
            # ssh reads keys of its own form.
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True)
            forced = f"{self.dir}/authority/authority {self.deployment} {name}"
            lines.append(f'restrict,command="{forced}" {key.with_suffix(".key.pub").read_text()}')
            self.settings(self.dir / name, lines=[f"ask=({' '.join(self.ssh(name))})", "patience=4"])
            (self.dir / "known_hosts").write_text(known)
        (home / ".ssh" / "authorized_keys").write_text("".join(lines))
        for path in (home, home / ".ssh", home / ".ssh" / "authorized_keys"):
            path.chmod(0o700)

    def key(self, file):
        """Makes a host key; its public half."""
        made = subprocess.run(
            ["dropbearkey", "-t", "ed25519", "-f", file], capture_output=True, text=True, check=True
        ).stdout
        return " ".join(next(line for line in made.splitlines() if line.startswith("ssh-")).split()[:2])

    def settings(self, directory, lines, penstock=None):
        """A copy of the scripts with settings of this place."""
        shutil.copytree(SCRIPTS, directory)
        with (directory / "settings").open("a") as file:
            if penstock:
                lines = [f"penstock={penstock}", *lines]
            file.write("".join(f"{line}\n" for line in lines))

    def set(self, name, line):
        """Changes a node's settings."""
        with (self.dir / name / "settings").open("a") as file:
            file.write(line + "\n")

    def ssh(self, node):
        options = ["BatchMode=yes", "StrictHostKeyChecking=yes", f"UserKnownHostsFile={self.dir}/known_hosts"]
        options += ["ConnectTimeout=5", "IdentitiesOnly=yes"]
        flags = [word for option in options for word in ("-o", option)]
        return [
            "ssh",
            "-F",
            "none",
            "-i",
            str(self.dir / f"{node}.key"),
            "-p",
            str(self.ssh_port),
            *flags,
            "root@127.0.0.1",
        ]

    def ask(self, node, request):
        """What a node may ask the authority, with its key."""
        return subprocess.run(
            [*self.ssh(node), request],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            stdin=subprocess.DEVNULL,
        )

    def listen(self):
        """Starts the server for ssh."""
        home = pwd.getpwuid(0).pw_dir
        server = ["dropbear", "-F", "-E", "-s", "-j", "-k", "-r", self.dir / "hostkey"]
        server += ["-p", f"127.0.0.1:{self.ssh_port}", "-P", self.dir / "dropbear.pid"]
        self.run("ssh", ["unshare", "-m", "sh", "-c", AUTHORITY, "sh", self.dir / "home", home, *server])
        wait("dropbear", 20, lambda: listens(self.ssh_port))

    def run(self, name, command):
        environment = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"}
        self.processes[name] = subprocess.Popen(
            [str(word) for word in command], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log, env=environment
        )

    def end(self, name):
        process = self.processes.pop(name)
        process.terminate()
        try:
            process.wait(timeout=20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=20)

    def stop(self):
        """Ends all that was started, and what that has started."""
        spaces = {os.readlink(f"/proc/{self.processes[n].pid}/ns/mnt") for n in NODES if n in self.processes}
        if "slurmctld" in self.processes:
            self.slurm("scancel", "--signal=KILL", "--state=RUNNING", check=False)
            self.slurm("scancel", "--full", "--user=root", check=False)
        for name in list(self.processes):
            self.end(name)
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                if os.readlink(f"/proc/{pid}/ns/mnt") in spaces:
                    os.kill(int(pid), signal.SIGKILL)
            except OSError:
                continue
        self.munged.stop()
        self.log.close()

    def slurm(self, *command, uid=0, gid=0, check=True, stdin=None):
        """What a command of Slurm says."""
        done = subprocess.run(
            [str(word) for word in command],
            env={"SLURM_CONF": str(self.conf), "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/"},
            user=uid,
            group=gid,
            extra_groups=[],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert not check or done.returncode == 0, (command, done.stdout, done.stderr, self.logs())
        return done.stdout

    def submit(self, user, script, *options):
        """The id of a new job."""
        said = ["--parsable", "--requeue", "--open-mode=append", "--chdir=/", f"--output={self.dir}/out/%j", *options]
        text = self.slurm("sbatch", *said, uid=user.pw_uid, gid=user.pw_gid, stdin="#!/bin/sh\n" + script)
        return text.strip()

    def state(self, job):
        return self.slurm("squeue", "-h", "-t", "all", "-j", job, "-o", "%T").strip()

    def reached(self, job, *states, seconds=60):
        """Waits until the job is in one of these states; what it has printed."""
        wait(f"job {job} in {states}", seconds, lambda: self.state(job) in states)
        return self.said(job)

    def said(self, job):
        file = self.dir / "out" / job
        return file.read_text() if file.exists() else ""

    def on(self, node, *command, user=None):
        """Runs a command on the node."""
        inside = ["nsenter", "-m", "-t", str(self.processes[node].pid), "--"]
        become = ["setpriv", f"--reuid={user.pw_uid}", f"--regid={user.pw_gid}", "--clear-groups"] if user else []
        return subprocess.run(
            [str(word) for word in (*inside, *become, *command)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    def logs(self):
        """The ends of all logs, for messages."""
        return "\n".join(f"{f.name}: {f.read_text(errors='replace')[-3000:]}" for f in self.dir.glob("*.log"))


class Node(Cluster):
    """One node that runs steps, without the scripts and the server for ssh."""

    def __init__(self, directory, scripts=""):
        super().__init__(directory, None)
        self.scripts = scripts

    def start(self):
        self.munged.start()
        self.control(NODES[:1], self.scripts)
        # A mount name space of its own tells `stop` which processes are the node's.
        self.run(NODES[0], ["unshare", "-m", "slurmd", "-D", "-f", self.conf, "-N", NODES[0]])
        wait("an idle node", 40, lambda: self.slurm("sinfo", "-h", "-o", "%T").split() == ["idle"])


class Pair(Cluster):
    """Both nodes, or others, each with a /run of its own, without the scripts and the server for ssh."""

    def __init__(self, directory, scripts="", nodes=NODES):
        super().__init__(directory, None)
        self.scripts, self.nodes = scripts, nodes

    def start(self):
        self.munged.start()
        self.control(self.nodes, self.scripts)
        for name in self.nodes:
            own = 'mount -t tmpfs tmpfs /run && exec "$@"'
            self.run(name, ["unshare", "-m", "sh", "-c", own, "sh", "slurmd", "-D", "-f", self.conf, "-N", name])
        wait(
            "idle nodes", 40, lambda: self.slurm("sinfo", "-h", "-o", "%T %D").split() == ["idle", str(len(self.nodes))]
        )
