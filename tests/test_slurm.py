"""Jobs of a real Slurm whose credentials come from contrib/slurm (docs/administer/slurm.md)."""

import os
import pwd
import shutil
import subprocess
import tempfile
import threading
import time
from pathlib import Path

import pytest
import slurm
from conftest import PENSTOCK, penstock
from slurm import NODES, wait
from test_credentials import deployed

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not slurm.present(), reason="needs root, Slurm, dropbear and mount name spaces"
)

# Slurm wants users that have names.
USER, STRANGER = pwd.getpwnam("games"), pwd.getpwnam("news")


class Watch:
    """All arguments and environments of processes on this machine, as long as it goes on."""

    MOST = 400 << 20

    def __enter__(self):
        self.seen = set()
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self):
        size = 0
        while not self.over.is_set() and size < self.MOST:
            for pid in filter(str.isdigit, os.listdir("/proc")):
                for name in ("cmdline", "environ"):
                    try:
                        with open(f"/proc/{pid}/{name}", "rb") as file:
                            text = file.read()
                    except OSError:
                        continue
                    if text not in self.seen:
                        self.seen.add(text)
                        size += len(text)

    def __exit__(self, *_):
        self.over.set()
        self.thread.join(timeout=60)

    def has(self, text):
        return any(text.encode() in seen for seen in self.seen)


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A deployment as hosts on TCP see it, and a Slurm."""
    # A short name, for sockets.
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    directory.chmod(0o755)
    with deployed(directory, tmp_path_factory.mktemp("source")) as host:
        cluster = slurm.Cluster(directory, host.deployment)
        try:
            cluster.start()
            yield host, cluster
        finally:
            cluster.stop()
    shutil.rmtree(directory, ignore_errors=True)


def script(host, *lines):
    """A job of the user of this home, which stops at the first error."""
    return "\n".join(
        ("set -e", f"export PENSTOCK_DEPLOYMENT={host.home(USER.pw_uid)}", f"p={host.program}", *lines, "")
    )


def fields(text):
    """Of a credential's file."""
    pairs = (line.split(" = ", 1) for line in text.splitlines() if " = " in line)
    return {name: value.strip('"') for name, value in pairs}


def kept(host, cluster, name="kept"):
    """A copy that a job has made of its credential."""
    copy = cluster.dir / "out" / name
    wait("the job's copy", 60, copy.exists)
    wait("the whole copy", 10, lambda: copy.read_text().endswith("\n"))
    return copy


def refused(host, credential):
    told = host.run(USER.pw_uid, "ls", credential=credential, check=False)
    return told.code != 0 and "revoked by an administrator" in told.err


def revoked(host):
    return [entry["serial"] for entry in penstock("credential", "--revoked", "--json", "-d", host.deployment).json()]


def issued(host):
    """The credentials that the authority has made."""
    audit = penstock("audit", "--json", "-d", host.deployment).json()
    return [r["object"] for r in audit if r["server"] == "authority" and r["event"] == "issue"]


def gone(cluster, job):
    """No node has anything of the job."""
    return all(cluster.on(node, "test", "-e", f"/run/penstock/{job}").returncode for node in NODES)


# The job goes on when the test says so.
HOLD = "echo begun; while [ ! -e {0}/out/go ]; do sleep 0.1; done"


@pytest.fixture
def go(place):
    _, cluster = place
    file = cluster.dir / "out" / "go"
    yield file
    file.touch()
    wait("an empty queue", 60, lambda: not cluster.slurm("squeue", "-h"))
    for path in (cluster.dir / "out").iterdir():
        path.unlink()


def test_a_job_on_two_nodes(place, go, examples):
    host, cluster = place
    hard = host.directory / "hard"
    shutil.copy(examples("hard", "mpich-debian"), hard)
    shutil.copy(PENSTOCK.parent / "libpenstock.so", host.directory / "libpenstock.so")
    with Watch() as watch:
        job = cluster.submit(
            USER,
            script(
                host,
                "umask 077",
                f"cp /run/penstock/$SLURM_JOB_ID/*.credential {cluster.dir}/out/kept",
                'srun -N2 -n2 sh -c "$p cp $0 penstock:/open/of-\\$SLURM_NODEID"',
                "$p ls penstock:/open",
                f"srun -N2 -n4 --mpi=pmi2 env LD_PRELOAD={host.directory}/libpenstock.so "
                f"{hard} penstock:/open/hard --verify --scale 0.05",
                HOLD.format(cluster.dir),
            ),
            "-N2",
            "-n4",
        )
        copy = kept(host, cluster)
        wait("the program", 120, lambda: '"verified":true' in cluster.said(job) or cluster.state(job) != "RUNNING")
        said = cluster.said(job)
        assert "of-0" in said and "of-1" in said and '"verified":true' in said, (said, cluster.logs())
        # Each node has it, for its user alone; the nodes have no key that makes any.
        for node in NODES:
            listed = cluster.on(
                node, "sh", "-c", f"stat -c '%a %U %n' /run/penstock/{job}/*; ls -A {host.deployment}"
            ).stdout
            assert [line.split()[:2] for line in listed.splitlines()] == [["600", "games"], ["600", "root"]], listed
        made = fields(copy.read_text())
        assert (made["uid"], made["job"], made["root"]) == (str(USER.pw_uid), job, "false"), made
        assert host.run(USER.pw_uid, "ls", credential=copy).code == 0
        # Another user's job beside it gets nothing of it, and has its own.
        strange = cluster.submit(
            STRANGER,
            f"cat /run/penstock/{job}/*.credential; cat /run/penstock/{job}/serial\n"
            f"export PENSTOCK_DEPLOYMENT={host.home(STRANGER.pw_uid)}\n{host.program} ls penstock:/open && echo own works\n"
            f"SLURM_JOB_ID={job} {host.program} ls penstock:/open\n{host.program} cp penstock:/open/hard /dev/null\n",
            "-wnode1",
        )
        told = cluster.reached(strange, "COMPLETED", "FAILED")
        assert told.count("Permission denied") == 2 and "own works" in told, told
        assert made["private"] not in told and f"user {STRANGER.pw_uid} may not" in told, told
        go.touch()
        cluster.reached(job, "COMPLETED")
        # When the job is over, it is gone from all nodes, and good for nothing.
        wait("empty nodes", 20, lambda: gone(cluster, job))
        wait("the revocation", 20, lambda: refused(host, copy))
    assert watch.seen and watch.has("penstock:/open/hard") and watch.has(f"issue {job}")
    assert not watch.has(made["private"]) and not watch.has(made["private"][:16])
    assert list((host.deployment / "jobs").glob("*.*")) == []
    # One for the run, whatever the number of nodes.
    assert issued(host).count(f"credential {made['serial']}") == 1


def test_a_job_that_is_requeued_has_another_one(place, go):
    host, cluster = place
    lines = (
        "umask 077",
        f"cp /run/penstock/$SLURM_JOB_ID/*.credential {cluster.dir}/out/run-${{SLURM_RESTART_COUNT:-0}}",
        "$p ls penstock:/open && echo listed",
        HOLD.format(cluster.dir),
        "$p ls penstock:/open && echo done",
    )
    job = cluster.submit(USER, script(host, *lines), "-N2")
    first = kept(host, cluster, "run-0")
    cluster.slurm("scontrol", "requeue", job)
    second = kept(host, cluster, "run-1")
    one, two = (fields(file.read_text()) for file in (first, second))
    assert one["serial"] != two["serial"] and one["job"] == two["job"] == job, (one, two)
    wait("the revocation", 20, lambda: refused(host, first))
    host.run(USER.pw_uid, "ls", credential=second)
    # What a late epilog of the former run says does the new one no harm.
    for node in NODES:
        assert cluster.ask(node, f"end {job} {one['serial']}").returncode == 0
    host.run(USER.pw_uid, "ls", credential=second)
    go.touch()
    said = cluster.reached(job, "COMPLETED")
    assert said.count("listed") == 2 and said.count("done") == 1, said
    wait("the revocation", 20, lambda: refused(host, second))


def test_an_epilog_that_is_not_heard(place, go):
    """As if the node had fallen: the next job's end on another node makes the authority look."""
    host, cluster = place
    job = cluster.submit(
        USER,
        script(
            host,
            "umask 077",
            f"cp /run/penstock/$SLURM_JOB_ID/*.credential {cluster.dir}/out/kept",
            HOLD.format(cluster.dir),
        ),
        "-wnode2",
        "--no-requeue",
    )
    copy = kept(host, cluster)
    # Nothing on the node may tell the authority of the end.
    cluster.set("node2", "ask=(false)")
    cluster.slurm("scancel", job)
    wait("the end of the job", 60, lambda: cluster.state(job) == "CANCELLED")
    host.run(USER.pw_uid, "ls", credential=copy)
    (host.deployment / "jobs" / "swept").unlink(missing_ok=True)
    other = cluster.submit(USER, "true\n", "-wnode1")
    cluster.reached(other, "COMPLETED")
    wait("the revocation", 20, lambda: refused(host, copy))
    cluster.set("node2", f"ask=({' '.join(cluster.ssh('node2'))})")


def test_a_node_gets_credentials_of_its_own_jobs(place, go):
    host, cluster = place
    job = cluster.submit(USER, HOLD.format(cluster.dir) + "\n", "-wnode1")
    wait("the job's begin", 60, lambda: "begun" in cluster.said(job))
    before = issued(host)
    good = cluster.ask("node1", f"issue {job}")
    assert good.returncode == 0 and fields(good.stdout)["uid"] == str(USER.pw_uid), good
    for node, request, words in (
        ("node2", f"issue {job}", f"job {job} does not run on node node2"),
        ("node1", "issue 1", ""),
        ("node1", f"issue {job}; cat {host.deployment}/authority.key", "a job's id is a number"),
        ("node1", "issue ../../fs", "a job's id is a number"),
        ("node1", f"end {job} {'0' * 31}", "a serial number has 32 hex digits"),
        ("node1", f"cat {host.deployment}/authority.key", "a job's id is a number"),
        ("node1", f"print {job}", "issue JOB"),
        ("node1", "", "a job's id is a number"),
    ):
        told = cluster.ask(node, request)
        assert told.returncode != 0 and words in told.stderr and told.stdout == "", (request, told)
    # Nor can one end what another has.
    serial = fields(good.stdout)["serial"]
    assert cluster.ask("node2", f"end {job} {serial}").returncode == 0
    assert serial not in revoked(host)
    assert issued(host) == before
    go.touch()
    cluster.reached(job, "COMPLETED")
    wait("the revocation", 20, lambda: serial in revoked(host))


def test_more_time_is_another_credential(place, go):
    host, cluster = place
    job = cluster.submit(USER, HOLD.format(cluster.dir) + "\n", "-N2", "--time=5")
    wait("the job's begin", 60, lambda: "begun" in cluster.said(job))
    first = fields(cluster.ask("node1", f"issue {job}").stdout)
    assert fields(cluster.ask("node2", f"issue {job}").stdout) == first
    life_s = (int(first["end_ms"]) - int(first["not_before_ms"])) / 1000
    assert 3600 < life_s <= 3600 + 5 * 60 + 2, first
    cluster.slurm("scontrol", "update", f"JobId={job}", "TimeLimit=60")
    environment = [f"SLURM_JOB_ID={job}", f"SLURM_JOB_UID={USER.pw_uid}", "SLURMD_NODENAME=node1"]
    renew = ["env", *environment, f"{cluster.dir}/scripts/prolog", "renew"]
    # What goes wrong takes nothing away.
    cluster.set("node1", "ask=(false)")
    done = cluster.on("node1", *renew)
    assert done.returncode == 1 and "keeps the credential that it has" in done.stderr, done
    assert fields(cluster.on("node1", "sh", "-c", f"cat /run/penstock/{job}/*.credential").stdout) == first
    cluster.set("node1", f"ask=({' '.join(cluster.ssh('node1'))})")
    done = cluster.on("node1", *renew)
    assert done.returncode == 0, done
    second = fields(cluster.on("node1", "sh", "-c", f"cat /run/penstock/{job}/*.credential").stdout)
    assert int(second["end_ms"]) > int(first["end_ms"]) + 40 * 60_000, (first, second)
    go.touch()
    cluster.reached(job, "COMPLETED")
    # Both are taken back.
    wait("the revocations", 20, lambda: {first["serial"], second["serial"]} <= set(revoked(host)))


def test_no_command_of_the_scripts_has_the_secret(place, go):
    """However short it runs: bash prints each with its arguments, and each variable that it sets."""
    host, cluster = place
    job = cluster.submit(USER, HOLD.format(cluster.dir) + "\n", "-wnode1")
    wait("the job's begin", 60, lambda: "begun" in cluster.said(job))
    secrets = [fields(cluster.ask("node1", f"issue {job}").stdout)["private"]]
    (record,) = (host.deployment / "jobs").glob(f"{job}.*")
    (record / "credential").unlink()
    environment = {"PATH": os.environ["PATH"], "SSH_ORIGINAL_COMMAND": f"issue {job}"}
    authority = ["bash", "-x", cluster.dir / "authority" / "authority", host.deployment, "node1"]
    made = subprocess.run(authority, env=environment, capture_output=True, text=True, timeout=60, check=False)
    secrets.append(fields(made.stdout)["private"])
    traces = [made]
    for words in (("prolog", "renew"), ("epilog",)):
        of_job = [f"SLURM_JOB_ID={job}", f"SLURM_JOB_UID={USER.pw_uid}", "SLURMD_NODENAME=node1"]
        traces.append(
            cluster.on("node1", "env", *of_job, "bash", "-x", f"{cluster.dir}/scripts/{words[0]}", *words[1:])
        )
    assert secrets[0] != secrets[1] and gone(cluster, job)
    for trace in traces:
        assert trace.returncode == 0 and "+ PATH=" in trace.stderr and len(trace.stderr) > 1000, trace
        assert not any(secret in trace.stderr for secret in secrets), trace


# As if others had been taken back by then.
MANY = """#!/bin/sh
case "$*" in *--revoked*) seq {room} ;; esac
exec {penstock} "$@"
"""


def test_administrators_can_take_back_when_jobs_have_filled_the_list(place, go):
    host, cluster = place
    many = cluster.dir / "many"
    many.write_text(MANY.format(room=3500, penstock=PENSTOCK))
    many.chmod(0o755)
    settings = cluster.dir / "authority" / "settings"
    before = settings.read_text()
    settings.write_text(before + f"penstock={many}\n")
    job = cluster.submit(USER, "true\n", "-N2", "-n2")
    cluster.reached(job, "COMPLETED")
    wait("empty nodes", 20, lambda: gone(cluster, job))
    (record,) = (host.deployment / "jobs").glob(f"{job}.*")
    wait("the last epilog", 20, lambda: sorted(f.name for f in record.iterdir()) == ["serials", "until"])
    serial = (record / "serials").read_text().strip()
    assert serial not in revoked(host)
    settings.write_text(before)
    # Some later job's end finds room.
    (host.deployment / "jobs" / "swept").unlink(missing_ok=True)
    cluster.reached(cluster.submit(USER, "true\n"), "COMPLETED")
    wait("the revocation", 20, lambda: serial in revoked(host) and not record.exists())


def test_jobs_begin_and_end_while_the_servers_are_down(place, go):
    host, cluster = place
    penstock("down", host.deployment)
    try:
        job = cluster.submit(USER, "ls /run/penstock/$SLURM_JOB_ID\n", "-N2", "-n2")
        assert ".credential" in cluster.reached(job, "COMPLETED", seconds=40)
        wait("empty nodes", 40, lambda: gone(cluster, job))
        (record,) = (host.deployment / "jobs").glob(f"{job}.*")
        wait("the last epilog", 40, lambda: sorted(f.name for f in record.iterdir()) == ["serials", "until"])
        serial = (record / "serials").read_text().strip()
    finally:
        penstock("up", host.deployment)
    (host.deployment / "jobs" / "swept").unlink(missing_ok=True)
    cluster.reached(cluster.submit(USER, "true\n"), "COMPLETED")
    wait("the revocation", 20, lambda: serial in revoked(host) and not record.exists())


def test_other_kinds_of_jobs(place, go):
    """Arrays, heterogeneous jobs, and steps without a batch script."""
    host, cluster = place
    lists = script(host, "srun --overlap $p ls penstock:/open && echo listed")
    array = cluster.submit(USER, lists, "--array=0-2", "--output", f"{cluster.dir}/out/%A_%a")
    parts = lists.replace("--overlap", "--overlap --het-group=0,1")
    parted = cluster.submit(USER, parts, "-wnode1", ":", "-wnode2")
    alone = ["--chdir=/", "-N2", "-n2", host.program, "ls", "-d", host.home(USER.pw_uid), "penstock:/open"]
    cluster.slurm("srun", *alone, uid=USER.pw_uid, gid=USER.pw_gid)
    wait("an empty queue", 60, lambda: not cluster.slurm("squeue", "-h"))
    said = [cluster.said(name) for name in (*(f"{array}_{n}" for n in range(3)), parted)]
    assert all("listed" in text for text in said), (said, cluster.logs())
    for node in NODES:
        left = cluster.on(node, "sh", "-c", "ls /run/penstock; grep -c /run/penstock /proc/mounts")
        assert left.stdout.split() == ["lock", "0"], left


def test_without_the_authority(place, go):
    """The node is drained and the job waits, or it starts without, as the site says."""
    host, cluster = place
    cluster.end("ssh")
    try:
        job = cluster.submit(USER, "echo started\n", "-wnode1")
        began = time.monotonic()
        wait("a drained node", 40, lambda: "drain" in cluster.slurm("sinfo", "-h", "-n", "node1", "-o", "%T"))
        assert time.monotonic() - began < 30
        wait("a job that waits", 40, lambda: cluster.state(job) == "PENDING")
        assert gone(cluster, job)
        cluster.set("node2", "start_without=yes")
        lines = script(host, "$p ls penstock:/open")
        other = cluster.submit(USER, lines, "-wnode2")
        told = cluster.reached(other, "FAILED")
        assert "no credential" in told and f"/run/penstock/{other}/" in told, told
        assert cluster.said(job) == ""
    finally:
        cluster.set("node2", "start_without=no")
        cluster.listen()
    cluster.slurm("scontrol", "update", "NodeName=node1", "State=RESUME")
    cluster.slurm("scontrol", "release", job)
    assert "started" in cluster.reached(job, "COMPLETED", seconds=150)
