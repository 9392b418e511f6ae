"""`penstock run --job` and `penstock clean`: a deployment for the time of a job (docs/administer/slurm.md)."""

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import slurm
from conftest import COMPILERS, PENSTOCK, ROOT, free_ports, penstock
from slurm import NODES, wait

needs_slurm = pytest.mark.skipif(os.geteuid() != 0 or not slurm.present(), reason="needs root and Slurm")
root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
MIB = 1 << 20


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    program = tmp_path_factory.mktemp("job") / "job"
    program.parent.parent.chmod(0o755)
    program.parent.chmod(0o755)
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILERS["mpich"], *flags, "-o", program, ROOT / "tests" / "job.c"], check=True)
    return program


class Job:
    """Directories of one job: `store` for the nodes' disks, `case` to be staged in, `results` for what comes out."""

    def __init__(self, directory, app):
        self.store, self.case, self.results = directory / "s", directory / "case", directory / "results"
        self.app = app
        self.store.mkdir()
        (self.case / "deep").mkdir(parents=True)
        self.port = free_ports(10)
        self.data = os.urandom(3 * MIB + 17)
        (self.case / "deep" / "mesh").write_bytes(self.data)

    def directory(self, name="7"):
        return self.store / f"penstock-job-{name}"

    def words(self, *options, seconds=0, code=0, name="7"):
        program = ["--", self.app, "penstock:/in/deep/mesh", "penstock:/out/field", seconds, code]
        staged = ["--stage-in", self.case, "--stage-out", self.results]
        # No other test takes a port that a job's servers will take again.
        servers = ["--servers", 2, "--store", self.store, "--ports", f"{self.port}-{self.port + 9}"]
        return ["run", f"--job={name}", "-n", 2, *servers, *staged, *options, *program]

    def run(self, *options, env=None, **program):
        return penstock(*self.words(*options, **program), check=False, env=env)

    def start(self, *options, **program):
        words = [str(word) for word in (PENSTOCK, *self.words(*options, **program))]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def saved(self):
        return (self.results / "field").read_bytes() == self.data

    def clean(self, *options, name="7", check=True, **how):
        return penstock("clean", "--job", name, "--store", self.store, *options, check=check, **how)


@pytest.fixture
def job(short_dir, app):
    job = Job(short_dir, app)
    yield job
    for left in job.store.iterdir():
        job.clean("--discard", name=left.name.removeprefix("penstock-job-"), check=False)


def processes(directory):
    """Processes that an argument names this directory to."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(str(directory).encode() in word for word in words) and b"serve" in words:
            found.append(int(pid))
    return found


def nothing_left(job):
    return list(job.store.iterdir()) == [] and processes(job.store) == []


def test_a_job_is_staged_in_run_staged_out_and_removed(job):
    done = job.run()
    assert done.code == 0, done.err
    assert job.saved() and sorted(os.listdir(job.results)) == ["field"]
    assert "job 7: 2 data servers on" in done.err
    assert nothing_left(job)


def test_the_exit_code_is_the_programs(job):
    done = job.run(code=3)
    assert done.code == 3 and job.saved() and nothing_left(job)


def test_the_job_of_the_environment(job):
    """Slurm's and PBS's names, and a name of its own without them."""
    for variables, name in (
        ({"SLURM_JOB_ID": "41", "SLURM_RESTART_COUNT": "2"}, "41.2"),
        ({"PBS_JOBID": "12[3].server"}, "12[3].server"),
        ({}, "local-"),
    ):
        words = [word for word in job.words("--launcher", "mpiexec") if not str(word).startswith("--job")]
        words[1:1] = ["--job", "--via", "ssh"]
        launcher = COMPILERS["mpich"].parent / "mpiexec"
        words[words.index("mpiexec")] = launcher
        done = penstock(*words, env=variables, check=False)
        assert done.code == 0 and f"job {name}" in done.err, done.err
        assert nothing_left(job)


@pytest.mark.parametrize("name", ["../../x", "a b", "a/b", "-x", "$(touch x)", ".", "x" * 65, "a\nb"])
def test_a_jobs_name_leads_nowhere_else(job, name):
    done = job.run(name=name)
    assert done.code == 1 and "names no job" in done.err
    assert job.clean(name=name, check=False).code == 2
    assert nothing_left(job)


def test_two_jobs_on_one_node(job):
    first = job.start(seconds=600)
    try:
        assert first.stdout.readline() == "written\n"
        again = job.run()
        assert again.code == 1 and "is there already" in again.err and "--job=7.2" in again.err
        # The second one's end is nothing to the first one.
        assert job.run(name="8").code == 0
        assert job.directory().is_dir() and not job.directory("8").exists()
    finally:
        first.send_signal(signal.SIGUSR1)
        out, err = first.communicate(timeout=100)
    assert job.saved() and nothing_left(job), (out, err)


def test_sigusr1_stages_out_in_time(job):
    run = job.start(seconds=600)
    assert run.stdout.readline() == "written\n"
    run.send_signal(signal.SIGUSR1)
    out, err = run.communicate(timeout=100)
    assert run.returncode not in (0, None) and "SIGUSR1" in err
    assert job.saved() and nothing_left(job), (out, err)


def test_what_could_not_be_staged_out_stays(job, short_dir):
    """A target that is full; and the command that the message names."""
    other = short_dir / "other"
    run = job.start(seconds=3)
    assert run.stdout.readline() == "written\n"
    # What was to be a directory of results is a file by now.
    shutil.rmtree(job.results)
    job.results.write_text("x")
    out, err = run.communicate(timeout=100)
    assert run.returncode == 1 and "stage-out failed" in err, (run.returncode, out, err)
    assert str(job.directory()) in err and processes(job.store) == []
    # An epilog leaves it, as often as it comes, and succeeds.
    for _ in range(2):
        said = job.clean("--here").err
        assert f"output for {job.results} was not staged out" in said and job.directory().is_dir()
    (next_step,) = [line for line in err.splitlines() if line.strip().startswith("next:")]
    step = next_step.split(": ", 2)[2].replace(f"--to {job.results}", f"--to {other}")
    shell = {**os.environ, "PATH": f"{PENSTOCK.parent}:{os.environ['PATH']}"}
    subprocess.run(step, shell=True, check=True, env=shell, capture_output=True, timeout=100)
    assert (other / "field").read_bytes() == job.data and nothing_left(job)


@root
def test_a_target_that_is_full(job, short_dir):
    job.results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", job.results], check=True)
    try:
        done = job.run()
        assert done.code == 1 and "No space left" in done.err and job.directory().is_dir(), done.err
    finally:
        subprocess.run(["umount", job.results], check=True)
    penstock("up", job.directory())
    penstock("stage-out", "-d", job.directory(), "--from", "penstock:/out", "--to", job.results, ".")
    assert job.saved()
    job.clean("--discard")
    assert nothing_left(job)


def test_a_target_that_takes_no_files_is_refused_first(job):
    job.results.write_text("a file")
    done = job.run()
    assert done.code == 1 and str(job.results) in done.err and nothing_left(job)


def test_a_program_that_does_not_start_leaves_nothing(job):
    job.app = Path("/bin/true")
    launcher = COMPILERS["mpich"].parent / "none"
    assert job.run("--launcher", launcher).code == 1
    assert nothing_left(job)


def test_kill_9_while_the_input_comes_in(job):
    """All is taken back: nothing was written yet."""
    with (job.case / "large").open("wb") as file:
        file.truncate(64 << 30)
        file.seek(1)
        for _ in range(200):
            file.write(os.urandom(MIB))
    run = job.start()
    wait("the input's first bytes", 60, lambda: list(job.directory().glob("data-*/objects/*/*")))
    run.kill()
    run.communicate(timeout=60)
    wait("nothing is left", 60, lambda: nothing_left(job))
    assert not job.results.exists() or list(job.results.iterdir()) == []


def test_kill_9_while_the_program_runs(job):
    """Servers and ranks end; the output stays, until somebody says that it may go."""
    run = job.start(seconds=600)
    assert run.stdout.readline() == "written\n"
    run.kill()
    run.communicate(timeout=60)
    wait("no servers", 60, lambda: processes(job.store) == [])
    ranks = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout
    assert str(job.app) not in ranks
    assert job.clean().err.count("was not staged out") == 1
    penstock("up", job.directory())
    penstock("stage-out", "-d", job.directory(), "--from", "penstock:/out", "--to", job.results, ".")
    assert job.saved()
    job.clean("--discard")
    assert nothing_left(job)


def test_kill_9_while_the_output_goes_out(job):
    run = job.start(seconds=0)
    assert run.stdout.readline() == "written\n"
    time.sleep(0.05)
    run.kill()
    run.communicate(timeout=60)
    wait("no servers", 60, lambda: processes(job.store) == [])
    # Either all had gone out, or what is left is whole.
    job.clean()
    if job.directory().exists():
        penstock("up", job.directory())
        penstock("stage-out", "-d", job.directory(), "--from", "penstock:/out", "--to", job.results, ".")
        job.clean("--discard")
    assert job.saved() and nothing_left(job)


def test_cleaning_is_idempotent(job):
    assert "nothing is left" in job.clean().out
    job.directory().mkdir()
    (job.directory() / "deployment.toml").write_text("nonsense")
    assert "removed" in job.clean("--here").out
    assert "nothing is left" in job.clean("--here").out
    # All runs of the job, and no other job; a link is nobody's directory.
    for name in ("7", "7.1", "70"):
        job.directory(name).mkdir()
    (job.directory("7.2")).symlink_to(job.case)
    assert job.clean().out.count("removed") == 2
    assert sorted(path.name for path in job.store.iterdir()) == ["penstock-job-7.2", "penstock-job-70"]
    assert (job.case / "deep" / "mesh").exists()
    (job.directory("7.2")).unlink()


@root
def test_a_clean_of_another_users_job_is_refused(job):
    games, news = pwd.getpwnam("games"), pwd.getpwnam("news")
    job.store.chmod(0o1777)
    job.store.parent.chmod(0o755)
    job.directory().mkdir()
    os.chown(job.directory(), games.pw_uid, games.pw_gid)
    binary = job.store.parent / "penstock"
    shutil.copy(PENSTOCK, binary)

    def by(user):
        command = [binary, "clean", "--job", "7", "--store", job.store]
        identity = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
        return subprocess.run(command, capture_output=True, text=True, check=False, **identity)

    refused = by(news)
    assert refused.returncode == 1 and f"belongs to user {games.pw_uid}" in refused.stderr
    # An epilog acts for the job's user: what another one has put there is neither touched nor a reason to fail.
    said = job.clean("--here", "--user", news.pw_uid)
    assert f"belongs to user {games.pw_uid}" in said.err and job.directory().is_dir()
    assert by(games).returncode == 0 and nothing_left(job)


@root
@pytest.mark.long
def test_root_cleans_with_the_rights_of_the_owner(job):
    """Numbers of processes that a user has noted there are signalled with that user's rights."""
    games = pwd.getpwnam("games")
    job.store.chmod(0o1777)
    job.store.parent.chmod(0o755)
    penstock("up", job.directory(), "--servers", 1, "--service-user", "games")
    penstock("down", job.directory())
    sleeper = subprocess.Popen(["sleep", "600"])
    try:
        stat = Path(f"/proc/{sleeper.pid}/stat").read_text()
        started = stat.rsplit(")", 1)[1].split()[19]
        (job.directory() / "run" / "data-0.pid").write_text(f"{sleeper.pid} {started}\n")
        os.chown(job.directory() / "run" / "data-0.pid", games.pw_uid, games.pw_gid)
        (job.directory() / "run" / "home").symlink_to("/etc")
        job.clean("--here", "--user", "games", timeout=200)
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()
    assert nothing_left(job)


@pytest.fixture(scope="module")
def cluster():
    """A Slurm of two nodes, whose epilog cleans. Each has a /run of its own."""
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    directory.chmod(0o755)
    cluster = slurm.Pair(directory, f"Epilog={directory}/scripts/epilog")
    cluster.settings(directory / "scripts", lines=[f"penstock={PENSTOCK}", "store=/run"])
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def batch(short_dir, app):
    return Job(short_dir, app)


def submit(cluster, batch, *options, seconds=0, code=0):
    """A job whose script is that of contrib/slurm, with other paths."""
    line = f"{PENSTOCK} run --job -n 2 --store /run --net lo --ports 21000-21999 --launcher-arg=--nodes=2 "
    line += f"--stage-in {batch.case} --stage-out {batch.results} -- "
    line += f"{batch.app} penstock:/in/deep/mesh penstock:/out/field {seconds} {code}"
    return cluster.submit(pwd.getpwuid(0), f"exec {line}\n", "--nodes=2", "--ntasks-per-node=1", *options)


def on_nodes(cluster, job):
    """Directories of the job on the nodes."""
    found = [cluster.on(node, "sh", "-c", f"ls -d /run/penstock-job-{job}*").stdout.split() for node in NODES]
    return [Path(name).name.removeprefix("penstock-job-") for names in found for name in names]


def idle(cluster):
    return cluster.slurm("sinfo", "-h", "-o", "%T %D").split() == ["idle", "2"]


@needs_slurm
@pytest.mark.long
def test_a_job_of_slurm(cluster, batch):
    job = submit(cluster, batch, "--time=5")
    said = cluster.reached(job, "COMPLETED", "FAILED", "TIMEOUT", seconds=200)
    assert batch.saved(), said
    assert f"job {job}: 2 data servers on node1, node2" in said and cluster.state(job) == "COMPLETED", said
    assert on_nodes(cluster, job) == []
    wait("idle nodes", 60, lambda: idle(cluster))


@needs_slurm
@pytest.mark.long
def test_a_jobs_exit_code_is_the_programs(cluster, batch):
    job = submit(cluster, batch, "--time=5", code=3)
    said = cluster.reached(job, "COMPLETED", "FAILED", "TIMEOUT", seconds=200)
    assert "ExitCode=3:0" in cluster.slurm("scontrol", "show", "job", job), said
    assert batch.saved() and on_nodes(cluster, job) == []


@needs_slurm
@pytest.mark.long
def test_the_time_limit_of_a_job(cluster, batch):
    """Slurm's warning ends the program, and its output comes out before the limit."""
    job = submit(cluster, batch, "--time=2", "--signal=B:USR1@60", seconds=900)
    said = cluster.reached(job, "COMPLETED", "FAILED", "TIMEOUT", seconds=300)
    assert "SIGUSR1" in said and batch.saved(), said
    assert cluster.state(job) == "FAILED" and on_nodes(cluster, job) == [], said


@needs_slurm
@pytest.mark.long
def test_a_job_that_is_requeued(cluster, batch):
    """The second run finds nothing in its way. What the first one wrote is left, which no epilog fails for."""
    job = submit(cluster, batch, "--time=5", seconds=20)
    wait("the first run's output", 100, lambda: "written" in cluster.said(job))
    cluster.slurm("scontrol", "requeue", job)
    wait("the second run", 200, lambda: f"job {job}.1: 2 data servers" in cluster.said(job))
    assert sorted(on_nodes(cluster, job)) == sorted([job, job, f"{job}.1", f"{job}.1"])
    said = cluster.reached(job, "COMPLETED", "FAILED", "TIMEOUT", seconds=200)
    assert cluster.state(job) == "COMPLETED" and batch.saved(), said
    wait("idle nodes", 60, lambda: idle(cluster))
    assert on_nodes(cluster, job) == [job, job]
    for node in NODES:
        cluster.on(node, PENSTOCK, "clean", "--job", job, "--store", "/run", "--here", "--discard")
    assert on_nodes(cluster, job) == []


@needs_slurm
@pytest.mark.long
def test_a_job_that_is_cancelled_drains_no_node(cluster, batch):
    job = submit(cluster, batch, "--time=5", seconds=900)
    wait("the output", 100, lambda: "written" in cluster.said(job))
    cluster.slurm("scancel", job)
    cluster.reached(job, "CANCELLED", seconds=100)
    wait("idle nodes", 100, lambda: idle(cluster))
    # What is left is whole, or all had gone out.
    assert batch.results.joinpath("field").exists() or on_nodes(cluster, job) == [job, job]
    for node in NODES:
        cluster.on(node, PENSTOCK, "clean", "--job", job, "--store", "/run", "--here", "--discard")
        # No server of it is left.
        assert cluster.on(node, "sh", "-c", "ls /run | grep penstock-job").stdout == ""


@needs_slurm
@pytest.mark.long
def test_a_burst_buffer_of_slurm(short_dir):
    """The input is in the deployment before the job runs, the output comes out after it; what fails holds the job, and no node."""
    games = pwd.getpwnam("games")
    short_dir.chmod(0o755)
    binary, deployment, home = short_dir / "penstock", short_dir / "fs", short_dir / "home"
    shutil.copy(PENSTOCK, binary)
    penstock("up", deployment, "--servers", 2, "--group", games.pw_gid)
    directory = short_dir / "slurm"
    directory.mkdir(mode=0o755)
    text = (ROOT / "contrib" / "slurm" / "burst_buffer.lua").read_text()
    for name, value in (
        ("/usr/local/bin/penstock", binary),
        ("/data/fs", deployment),
        ("/run/penstock-bb", directory / "bb"),
    ):
        assert f'"{name}"' in text
        text = text.replace(f'"{name}"', f'"{value}"')
    (directory / "burst_buffer.lua").write_text(text)
    (home / "case").mkdir(parents=True)
    (home / "case" / "mesh").write_text("triangles")
    os.chown(home, games.pw_uid, games.pw_gid)
    cluster = slurm.Node(directory, "BurstBufferType=burst_buffer/lua")
    try:
        cluster.start()
        copy = f"{binary} cp -d {deployment} penstock:/in/mesh {home}/m && {binary} mkdir -d {deployment} /out && "
        copy += f"{binary} cp -d {deployment} {home}/m penstock:/out/field\n"
        stages = f"#BB_LUA stage_in {home}/case /in\n#BB_LUA stage_out /out {home}/results\n"
        job = cluster.submit(games, stages + copy)
        said = cluster.reached(job, "COMPLETED", "FAILED", seconds=100)
        wait("the output", 60, (home / "results" / "field").exists)
        assert (home / "results" / "field").read_text() == "triangles", (said, cluster.logs())
        wait("no user is kept", 60, lambda: list((directory / "bb").iterdir()) == [])
        # What is not there: the job waits, with the reason.
        missing = cluster.submit(games, f"#BB_LUA stage_in {home}/none /in\ntrue\n")
        wait("the reason", 60, lambda: "does not exist" in cluster.slurm("scontrol", "show", "job", missing))
        assert cluster.slurm("sinfo", "-h", "-o", "%T").split() == ["idle"]
        cluster.slurm("scancel", missing)
    finally:
        cluster.stop()
        penstock("down", deployment)
