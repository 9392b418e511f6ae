"""A deployment on five hosts (docs/administer/hosts.md): it starts and ends as a whole, and outlives the loss of one."""

import json
import os
import pwd
import re
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path

import pytest
import slurm
from conftest import COMPILERS, PENSTOCK, ROOT
from hosts import Hosts, present, wait

pytestmark = pytest.mark.skipif(not present(), reason="needs root, name spaces, iproute2, dropbear and ssh")
LIST = "h1,h2,h3,h4,h5"
OTHERS = ("h2", "h3", "h4", "h5")


@pytest.fixture(scope="module")
def five():
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    hosts = Hosts(directory, 5)
    try:
        hosts.start()
        yield hosts
    finally:
        hosts.stop()
        shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture
def hosts(five):
    """Five hosts without a deployment, all of them on and connected."""
    yield five
    for name in five.names:
        five.cut(name, "up")
        if name not in five.hosts:
            five.boot(name)
    five.penstock("h1", "down", five.fs, check=False)
    for name in five.names:
        five.on(name, "sh", "-c", f"kill -9 $(pgrep -f '^{PENSTOCK} serve') 2>/dev/null; rm -rf {five.fs}", check=False)


def up(hosts, *options, **how):
    return hosts.penstock("h1", "up", hosts.fs, "--hosts", LIST, *options, **how)


def status(hosts, on="h1", **how):
    return json.loads(hosts.penstock(on, "status", hosts.fs, "--json", **how).stdout)


def nothing_left(hosts, names=("h1", *OTHERS)):
    for name in names:
        assert hosts.servers(name) == {}, name
        assert not hosts.disk(name).exists(), (name, list(hosts.disk(name).iterdir()))


def copied(hosts, name, size):
    """A file that goes in and comes out on h1."""
    there, back = hosts.dir / "home" / name, hosts.dir / "home" / f"{name}.back"
    there.write_bytes(os.urandom(size))
    root = hosts.on("h1", "sh", "-c", "echo ~").stdout.strip()
    hosts.penstock("h1", "cp", f"{root}/{name}", f"penstock:/{name}", "-d", hosts.fs)
    hosts.penstock("h1", "cp", f"penstock:/{name}", f"{root}/{name}.back", "-d", hosts.fs)
    return there.read_bytes() == back.read_bytes()


def test_five_hosts_start_and_end_as_one(hosts):
    said = up(hosts).stdout
    assert "6 servers started on 5 hosts" in said, said
    # Each host's own keys lie there alone, the authority's on the first.
    for k, name in enumerate(hosts.names):
        keys = sorted(path.name for path in hosts.disk(name).glob("*.key"))
        first = ["authority.key", "client.key", "data-0.key", "meta.key"]
        assert keys == (first if k == 0 else ["client.key", f"data-{k}.key"])
        assert {oct(path.stat().st_mode & 0o777) for path in hosts.disk(name).glob("*.key")} == {"0o600"}
        assert (hosts.disk(name) / f"data-{k}").is_dir() and (hosts.disk(name) / "meta").exists() == (k == 0)
    texts = {(hosts.disk(name) / "deployment.toml").read_text() for name in hosts.names}
    assert len(texts) == 1 and re.search(r'tcp = "10\.213\.0\.5:74\d\d"', texts.pop())
    assert copied(hosts, "data", 3_000_001)
    shown = hosts.penstock("h1", "status", hosts.fs).stdout
    assert re.search(r"data-4 +up .* h5$", shown, re.MULTILINE), shown
    assert [server["host"] for server in status(hosts)["servers"]] == hosts.names
    assert "nothing is wrong" in hosts.penstock("h1", "check", "-d", hosts.fs).stdout
    # A setting that is kept reaches each host's file.
    hosts.penstock("h1", "tune", "sched=to", "--save", "-d", hosts.fs)
    assert all("sched=to" in (hosts.disk(name) / "deployment.toml").read_text() for name in hosts.names)
    assert "all servers on 5 hosts run already" in up(hosts).stdout
    # A host starts its own; the first one all that do not run.
    for name in ("h2", "h3"):
        hosts.penstock(name, "down", hosts.fs)
        assert hosts.servers(name) == {}
    assert "1 servers started on h2" in hosts.penstock("h2", "up", hosts.fs).stdout
    assert "1 servers started on 5 hosts" in hosts.penstock("h1", "up", hosts.fs).stdout
    assert "6 servers ended on 5 hosts" in hosts.penstock("h1", "down", hosts.fs).stdout
    for name in hosts.names:
        assert hosts.servers(name) == {}
        assert not list((hosts.disk(name) / "run").iterdir()), name


def refused(hosts, *arguments, on="h1", **how):
    """What `up` says that comes to nothing."""
    done = hosts.penstock(on, "up", *arguments, check=False, **how)
    assert done.returncode == 1, (done.returncode, done.stdout, done.stderr)
    return done.stderr


def test_what_cannot_be_is_refused_before_anything_is_made(hosts):
    mark = hosts.dir / "home" / "mark"
    for name in (f"-oProxyCommand=touch {mark}", f"h2;touch {mark}", f"$(touch {mark})", "h 2", "root@h2", "h2\n"):
        assert "is no name of a host" in refused(hosts, hosts.fs, "--hosts", f"h1,{name}")
    assert not mark.exists()
    assert "named twice" in refused(hosts, hosts.fs, "--hosts", "h1,h2,h1")
    assert "run the command on h2" in refused(hosts, hosts.fs, "--hosts", "h2,h1")
    assert "fewer than the 5 hosts" in refused(hosts, hosts.fs, "--hosts", LIST, "--servers", 4)
    assert "SLURM_JOB_NODELIST" in refused(hosts, hosts.fs, "--hosts", "job")
    # The home is the same directory on all hosts.
    shared = hosts.dir / "home" / "fs"
    root = hosts.on("h1", "sh", "-c", "echo ~").stdout.strip()
    assert "is the same directory for" in refused(hosts, f"{root}/fs", "--hosts", LIST)
    assert not shared.exists()
    # What others have there stays.
    theirs = hosts.disk("h3") / "thesis"
    theirs.parent.mkdir()
    theirs.write_text("x")
    said = refused(hosts, hosts.fs, "--hosts", LIST)
    assert "h3: " in said and "thesis" in said, said
    assert theirs.read_text() == "x" and list(theirs.parent.iterdir()) == [theirs]
    nothing_left(hosts, ("h1", "h2", "h4", "h5"))


def test_a_key_that_others_can_read_stops_the_start_of_all(hosts):
    up(hosts)
    hosts.penstock("h1", "down", hosts.fs)
    key = hosts.disk("h3") / "data-2.key"
    key.chmod(0o644)
    said = refused(hosts, hosts.fs)
    assert "h3: data server 2 ended at once" in said and f"chmod 600 {hosts.fs}/data-2.key" in said, said
    assert all(hosts.servers(name) == {} for name in hosts.names)
    key.chmod(0o600)
    assert "6 servers started" in hosts.penstock("h1", "up", hosts.fs).stdout
    # Another deployment in the same place of one host.
    hosts.penstock("h1", "down", hosts.fs)
    file = hosts.disk("h4") / "deployment.toml"
    file.write_text(re.sub(r'^id = "\w+"', f'id = "{"0" * 32}"', file.read_text(), flags=re.MULTILINE))
    assert "h4: " in (said := refused(hosts, hosts.fs)) and "holds another deployment" in said, said


def programs(hosts, h4):
    """A program on each host's disk: Penstock, and on h4 a script."""
    for name in hosts.names:
        program = hosts.dir / f"disk-{name}" / "penstock"
        program.unlink(missing_ok=True)
        if name != "h4":
            program.symlink_to(PENSTOCK)
        elif h4:
            program.write_text("#!/bin/sh\n" + h4)
            program.chmod(0o755)
    return hosts.dir / "local" / "penstock"


HELLO = """penstock=$(PROGRAM agent </dev/null); echo "$penstock"\n"""
# It is asked once and says nothing; then it ends.
HANGS = HELLO + "head -n 2 >/dev/null\n"


@pytest.mark.long
@pytest.mark.parametrize("case", ["cut", "older", "missing", "shell", "full", "ports"])
def test_a_host_that_fails_leaves_nothing_on_the_others(hosts, case):
    options, others = [], ("h1", "h2", "h3", "h5")
    if case == "cut":
        hosts.cut("h4")
        expected = ["ssh", "port 22"]
    elif case == "older":
        options = ["--program", programs(hosts, """echo '{"penstock":"0.0.9","protocol":8}'; cat >/dev/null\n""")]
        expected = ["version 0.0.9", "install the same"]
    elif case == "missing":
        options = ["--program", programs(hosts, None)]
        expected = ["exit status: 127", "It printed:", "local/penstock", "--program"]
    elif case == "shell":
        # What a shell prints before is no answer, and does not act on the terminal.
        options = ["--program", programs(hosts, r"printf 'welcome \033[31m\n'; exit 3" + "\n")]
        expected = ["welcome \\u{1b}[31m", "exit status: 3"]
    elif case == "full":
        hosts.on("h4", "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", hosts.dir / "local")
        expected = ["the file system of", "left"]
    else:
        options = ["--servers", 10, "--ports", "7400-7401"]
        expected, others = ["of the ports 7400-7401", "--ports"], hosts.names
    start = time.monotonic()
    try:
        said = refused(hosts, hosts.fs, "--hosts", LIST, *options)
    finally:
        if case == "full":
            hosts.on("h4", "umount", hosts.dir / "local")
    assert time.monotonic() - start < 45
    assert ("h1: " if case == "ports" else "h4: ") in said, said
    assert all(text in said for text in expected), said
    nothing_left(hosts, others)
    hosts.cut("h4", "up")
    assert "6 servers started" in wait("a start", 30, lambda: up(hosts, check=False).stdout)


@pytest.mark.long
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_start_that_is_ended_in_the_middle_leaves_nothing(hosts, how):
    program = programs(hosts, HANGS.replace("PROGRAM", str(PENSTOCK)))
    starting = hosts.popen("h1", PENSTOCK, "up", hosts.fs, "--hosts", LIST, "--program", program)
    try:
        wait("keys", 30, lambda: (hosts.disk("h5") / "data-4.key").exists())
        # Who comes second does not disturb it.
        said = refused(hosts, hosts.fs, "--hosts", LIST)
        assert "another `penstock up` or `down` works on" in said, said
        assert (hosts.disk("h5") / "data-4.key").exists()
        (pid,) = hosts.on("h1", "pgrep", "-f", f"^{PENSTOCK} up").stdout.split()
        hosts.on("h1", "kill", f"-{int(how)}", pid)
        out, err = starting.communicate(timeout=60)
    finally:
        starting.kill()
    if how == signal.SIGINT:
        assert starting.returncode == 1 and "interrupted" in err, (starting.returncode, out, err)
        nothing_left(hosts)
    else:
        wait("nothing left", 20, lambda: not any(hosts.disk(name).exists() for name in hosts.names))
    up(hosts)


@pytest.mark.long
def test_a_disk_that_is_full_at_a_later_start_is_named(hosts):
    hosts.on("h4", "mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", hosts.dir / "local")
    try:
        up(hosts)
        hosts.penstock("h1", "down", hosts.fs)
        hosts.on("h4", "sh", "-c", f"cat /dev/zero >{hosts.dir}/local/fill 2>/dev/null; true")
        said = refused(hosts, hosts.fs)
        assert "h4: " in said and "No space left on device" in said, said
        assert [hosts.servers(name) for name in hosts.names] == [{}] * 5
        hosts.on("h4", "rm", hosts.dir / "local" / "fill")
        assert "6 servers started" in hosts.penstock("h1", "up", hosts.fs).stdout
        hosts.penstock("h1", "down", hosts.fs)
    finally:
        hosts.on("h4", "umount", "-l", hosts.dir / "local")


def held(hosts):
    held = json.loads(hosts.penstock("h1", "keys", "--json", "-d", hosts.fs).stdout)
    return held["current"], held["other"]


def keys_of(hosts, name):
    return {path.name for path in hosts.disk(name).glob("*.key")}


def test_keys_are_rotated_on_all_hosts(hosts):
    """Each host makes its servers' keys; the client key and the deployment file reach all. Servers that start again have them."""
    up(hosts, "--group", "daemon")
    rotated = hosts.penstock("h1", "keys", "--rotate", "-d", hosts.fs).stdout
    assert held(hosts) == (2, 1) and "former" in rotated, rotated
    for k, name in enumerate(hosts.names):
        first = {"authority.key", "authority-2.key", "meta.key", "meta-2.key"} if k == 0 else set()
        assert keys_of(hosts, name) == {"client.key", "client-2.key", f"data-{k}.key", f"data-{k}-2.key"} | first
        modes = {path.name: path.stat().st_mode & 0o777 for path in hosts.disk(name).glob("*-2.key")}
        assert all(mode == (0o640 if key == "client-2.key" else 0o600) for key, mode in modes.items()), modes
    texts = {(hosts.disk(name) / "deployment.toml").read_text() for name in hosts.names}
    assert len(texts) == 1 and "generation = 2" in texts.pop()
    assert len({(hosts.disk(name) / "client-2.key").read_text() for name in hosts.names}) == 1
    assert copied(hosts, "rotated", 1_000_001)
    # A host that loses power comes back with the new keys.
    hosts.kill("h3")
    hosts.boot("h3")
    assert "1 servers started on h3" in hosts.penstock("h3", "up", hosts.fs).stdout
    assert all(server["up"] for server in status(hosts)["servers"])
    # Nobody is told while a host is away: nothing is begun.
    hosts.cut("h4")
    refused = hosts.penstock("h1", "keys", "--rotate", "-d", hosts.fs, check=False)
    assert refused.returncode == 1 and "data server 3" in refused.stderr, refused.stderr
    hosts.cut("h4", "up")
    wait("h4 is back", 60, lambda: all(server["up"] for server in status(hosts, check=False)["servers"]))
    assert held(hosts) == (2, 1)
    # Elsewhere than where the authority's key is it is refused, with where to go.
    refused = hosts.penstock("h2", "keys", "--rotate", "-d", hosts.fs, check=False)
    assert refused.returncode == 1 and "authority" in refused.stderr, refused.stderr
    # The former generation ends on all hosts.
    ended = hosts.penstock("h1", "keys", "--end-former", "-d", hosts.fs).stdout
    assert "authority.key" in ended and held(hosts) == (2, None), ended
    assert all("other_keys" not in (hosts.disk(name) / "deployment.toml").read_text() for name in hosts.names)
    assert copied(hosts, "ended", 1_000_001)
    assert "nothing is wrong" in hosts.penstock("h1", "check", "-d", hosts.fs).stdout


def test_a_rotation_that_was_interrupted_goes_on(hosts):
    up(hosts)
    # Hosts made keys, and the first one had no time to name them.
    hosts.penstock("h1", "keys", "--rotate", "-d", hosts.fs, env={"PENSTOCK_VIA": "ssh"})
    left = hosts.disk("h2") / "data-1-3.key"
    (hosts.disk("h2") / "data-1-2.key").rename(left)
    (hosts.disk("h2") / "data-1-2.key").write_text(left.read_text())
    (hosts.disk("h2") / "data-1-2.key").chmod(0o600)
    (hosts.disk("h5") / "client-3.key").write_text("of a rotation that came to nothing\n")
    # A host that is not reached by ssh stops it before anybody uses a new key.
    real, aside = hosts.dir / "home" / ".ssh", hosts.dir / "home" / "ssh.aside"
    real.rename(aside)
    refused = hosts.penstock("h1", "keys", "--rotate", "-d", hosts.fs, check=False)
    assert refused.returncode == 1 and "h2" in refused.stderr, refused.stderr
    assert held(hosts) == (2, 1)
    aside.rename(real)
    hosts.penstock("h1", "keys", "--rotate", "-d", hosts.fs)
    assert held(hosts) == (3, 2) and left.exists()
    assert len({(hosts.disk(name) / "client-3.key").read_text() for name in hosts.names}) == 1
    assert copied(hosts, "again", 1_000_001)


def test_status_asks_hosts_that_are_cut_off_at_once(hosts):
    """Three of them take no longer than one."""
    up(hosts)
    cut = ("h3", "h4", "h5")
    for name in cut:
        hosts.cut(name)
    began = time.monotonic()
    answers = status(hosts, check=False)["servers"]
    took = time.monotonic() - began
    assert [server["up"] for server in answers] == [True, True, False, False, False]
    assert took < 20, took


def job_on(hosts, app, *options, code=0):
    """A job on three hosts, with ranks on two of them."""
    root = hosts.on("h1", "sh", "-c", "echo ~").stdout.strip()
    launcher = [f"--launcher-arg={word}" for word in ("-launcher", "ssh", "-hosts", "h1,h2", "-ppn", "1")]
    place = ["--job=9", "--hosts", "h1,h2,h3", "--store", hosts.fs.parent]
    staged = ["--stage-in", f"{root}/case", "--stage-out", f"{root}/results"]
    program = [app, "penstock:/in/mesh", "penstock:/out/field", *options]
    environment = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
    return hosts.popen("h1", PENSTOCK, "run", "-n", 2, *place, *launcher, *staged, "--", *program, env=environment)


def left_of_job(hosts):
    directory = hosts.fs.parent / "penstock-job-9"
    names = ("h1", "h2", "h3")
    return [name for name in names if hosts.on(name, "test", "-e", directory, check=False).returncode == 0]


def test_a_job_on_several_hosts(hosts):
    """Ranks on another host than the authority's have the job's credential. Killed, it leaves its output on all hosts, and no server."""
    app = hosts.dir / "job"
    subprocess.run([COMPILERS["mpich"], "-o", app, ROOT / "tests" / "job.c"], check=True)
    home = hosts.dir / "home"
    (home / "case").mkdir(exist_ok=True)
    data = os.urandom(2_000_003)
    (home / "case" / "mesh").write_bytes(data)
    run = job_on(hosts, app, 0, 0)
    out, err = run.communicate(timeout=200)
    assert run.returncode == 0 and "3 data servers on h1, h2, h3" in err, (out, err)
    assert (home / "results" / "field").read_bytes() == data
    assert left_of_job(hosts) == [] and all(hosts.servers(name) == {} for name in ("h1", "h2", "h3"))
    shutil.rmtree(home / "results")
    run = job_on(hosts, app, 600, 0)
    assert run.stdout.readline() == "written\n"
    hosts.on("h1", "sh", "-c", f"kill -9 $(pgrep -f '^{PENSTOCK} run')")
    run.communicate(timeout=60)
    wait("no servers", 60, lambda: all(hosts.servers(name) == {} for name in ("h1", "h2", "h3")))
    assert left_of_job(hosts) == ["h1", "h2", "h3"]
    clean = ["clean", "--job", 9, "--store", hosts.fs.parent]
    kept = hosts.penstock("h1", *clean).stderr
    assert "of h1, h2, h3" in kept and "stage-out" in kept, kept
    # Its own part alone from elsewhere, the rest from the first host.
    hosts.penstock("h2", *clean, "--discard")
    assert left_of_job(hosts) == ["h1", "h3"]
    told = hosts.penstock("h1", *clean, "--discard", check=False)
    assert told.returncode == 1 and "h2: " in told.stderr and "may still be there" in told.stderr, told
    assert left_of_job(hosts) == []


def test_a_traced_program_on_two_hosts(hosts):
    """Each host's processes start a collector there; all parts are in the one directory, and are one trace."""
    app = hosts.dir / "job"
    subprocess.run([COMPILERS["mpich"], "-o", app, ROOT / "tests" / "job.c"], check=True)
    root = hosts.on("h1", "sh", "-c", "echo ~").stdout.strip()
    home = hosts.dir / "home"
    (home / "mesh").write_bytes(bytes(1_000_000))
    launcher = [f"--launcher-arg={word}" for word in ("-launcher", "ssh", "-hosts", "h1,h2", "-ppn", "1")]
    options = ["-n", 2, "--trace", f"{root}/trace", "--no-penstock", "--trace-layers", "mpiio,posix", *launcher]
    environment = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
    hosts.penstock("h1", "run", *options, "--", app, f"{root}/mesh", f"{root}/field", 0, 0, env=environment)
    assert (home / "field").stat().st_size == 1_000_000

    def parts():
        checked = hosts.penstock("h1", "trace", "check", f"{root}/trace", check=False)
        return checked.returncode == 0 and {path.name.split("-")[0] for path in (home / "trace").glob("*.trace")}

    # The collector of a host that has no launcher ends some time after its last process.
    assert wait("the parts of both hosts are whole", 30, parts) == {"h1", "h2"}
    listed = hosts.penstock("h1", "trace", "list", f"{root}/trace", "--layer", "mpiio", "--json").stdout
    assert {row["key"].split("/")[0] for row in json.loads(listed)["rows"]} == {"0", "1"}
    shutil.rmtree(home / "trace")


@pytest.mark.long
def test_a_checkpoint_outlives_a_host_that_is_lost_and_one_that_is_cut_off(hosts, examples):
    """Ranks on h1 and h2, servers on all five; h3 loses power, h4 its network."""
    flash = examples("flash")
    up(hosts)
    deployment = status(hosts)["id"]
    root = hosts.on("h1", "sh", "-c", "echo ~").stdout.strip()
    credential = f"{root}/.config/penstock/{deployment}.credential"
    hosts.on("h1", "mkdir", "-p", "-m", "700", f"{root}/.config/penstock")
    hosts.penstock(
        "h1", "credential", "--user", "root", "--root", "--for", "1h", "--output", credential, "-d", hosts.fs
    )
    launcher = ["-launcher", "ssh", "-hosts", "h1,h2"]
    run = [PENSTOCK, "run", "-n", 4, *(f"--launcher-arg={word}" for word in launcher), "-d", hosts.fs, "--", flash]
    # MPICH takes these hosts, which share a kernel, for one, and would try shared memory.
    environment = {"PENSTOCK_PATIENCE": "60", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
    program = hosts.popen(
        "h1", *run, "penstock:/checkpoint", "--verify", "--sync", "--repetitions", 20, env=environment
    )

    def written(server):
        assert program.poll() is None, program.communicate()
        return status(hosts, check=False)["servers"][server].get("bytes_written", 0)

    try:
        wait("bytes on h3", 60, lambda: written(2) > 4 << 20)
        hosts.kill("h3")
        time.sleep(1)
        assert program.poll() is None
        hosts.boot("h3")
        assert "1 servers started on 5 hosts" in hosts.penstock("h1", "up", hosts.fs).stdout
        before = written(3)
        wait("bytes on h4", 60, lambda: written(3) > before)
        assert program.poll() is None
        hosts.cut("h4")
        time.sleep(3)
        hosts.cut("h4", "up")
        out, err = program.communicate(timeout=240)
    finally:
        program.kill()
    assert program.returncode == 0, (out, err)
    assert '"verified":true' in out and '"wrong_bytes":0' in out, out
    # Another program, which has none of it in memory.
    again = hosts.on(
        "h1", *run, "penstock:/checkpoint", "--verify", "--read-only", "--repetitions", 20, env=environment
    )
    assert '"wrong_bytes":0' in again.stdout, again.stdout
    assert all(server["up"] for server in status(hosts)["servers"])
    assert "nothing is wrong" in hosts.penstock("h1", "check", "-d", hosts.fs).stdout
    assert "6 servers ended on 5 hosts" in hosts.penstock("h1", "down", hosts.fs).stdout
    for name in hosts.names:
        assert hosts.servers(name) == {}


@pytest.mark.long
@pytest.mark.skipif(not shutil.which("nft") or not shutil.which("tc"), reason="needs nftables and tc")
def test_a_checkpoint_over_a_bad_network(hosts, examples):
    """h3 has a slow link, h4 loses packets, h5 is far away; all bytes arrive, and nobody is taken for dead."""
    flash = examples("flash")
    up(hosts)
    hosts.slow("h3", "100mbit")
    hosts.lossy("h4", 20)
    try:
        with hosts.far("h5", 0.005):
            wait("h5 is reached", 20, lambda: round_trip(hosts, "h5"))
            trips = [round_trip(hosts, "h5") for _ in range(3)]
            assert 0.01 <= min(trips) < 0.2, trips
            began = time.monotonic()
            run = [PENSTOCK, "run", "-n", 2, "-d", hosts.fs, "--", flash, "penstock:/checkpoint"]
            environment = {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
            done = hosts.on("h1", *run, "--verify", "--sync", "--repetitions", 6, env=environment, timeout=280)
            assert '"verified":true' in done.stdout and '"wrong_bytes":0' in done.stdout, done.stdout
            print(f"{time.monotonic() - began:.1f} s, {hosts.dropped('h4')} packets lost")
            assert hosts.dropped("h4") > 10
            written = [server.get("bytes_written", 0) for server in status(hosts)["servers"]]
            assert all(n > 1 << 20 for n in written), written
            assert copied(hosts, "far", 3_000_001)
            assert "nothing is wrong" in hosts.penstock("h1", "check", "-d", hosts.fs).stdout
    finally:
        hosts.slow("h3", None)
        hosts.lossy("h4", None)
    assert "6 servers ended on 5 hosts" in hosts.penstock("h1", "down", hosts.fs).stdout


def round_trip(hosts, name):
    """Seconds that a connection to the host takes, if it can be reached."""
    code = (
        "import socket, sys, time; began = time.monotonic(); "
        "socket.create_connection((sys.argv[1], 22), 2).close(); print(time.monotonic() - began)"
    )
    done = hosts.on("h1", "/usr/bin/python3", "-c", code, name, check=False)
    return float(done.stdout) if done.returncode == 0 else None


@pytest.mark.long
@pytest.mark.skipif(not slurm.present(), reason="needs Slurm and root")
def test_the_nodes_of_a_slurm_job(short_dir):
    """Agents as steps of the job: servers live as long as those, and end with `down`. Ports of one address serve all nodes here."""
    short_dir.chmod(0o755)
    cluster = slurm.Pair(short_dir, nodes=("node1", "node2", "node3"))
    try:
        cluster.start()
        # Nodes of the tests' Slurm have /run, and no network, of their own.
        script = f"""
set -e
export PENSTOCK_VIA=srun
{PENSTOCK} up /run/fs --hosts job --net lo --ports 21000-21999
{PENSTOCK} status /run/fs
head -c 300000 /dev/urandom >/run/in
{PENSTOCK} cp /run/in penstock:/x -d /run/fs
{PENSTOCK} cp penstock:/x /run/out -d /run/fs
cmp /run/in /run/out
{PENSTOCK} down /run/fs
echo finished
"""
        job = cluster.submit(pwd.getpwuid(0), script, "--nodes=3", "--ntasks-per-node=1")
        said = cluster.reached(job, "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", seconds=120)
        assert "4 servers started on 3 hosts" in said, said
        assert re.search(r"data-2 +up .* node3$", said, re.MULTILINE), said
        assert "4 servers ended on 3 hosts" in said and said.endswith("finished\n"), said
    finally:
        cluster.stop()
