"""Bad input and broken surroundings, as unmodified MPI programs and the command meet them.

Each must give the right MPI error class or exit code, and a message that says what, where and what to do. Other
data and the deployment must stay as they were. docs/understand/robustness.md lists what is tested here and what elsewhere.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time

import pytest
from conftest import PENSTOCK, penstock
from test_shim import SETTINGS, TARGET

METHODS = ("posix", "sieve", "two-phase", "list", "datatype", "node-exchange", "resonant", "auto")
DATA = bytes(range(251)) * 4000

# What the programs share. `refused` calls something that must fail with a class and a message.
PREAMBLE = """
import os, signal, subprocess, sys, time
from pathlib import Path
import numpy as np
from mpi4py import MPI
comm = MPI.COMM_WORLD
rank = comm.rank
CREATE, EXCL, RDWR, RDONLY = MPI.MODE_CREATE, MPI.MODE_EXCL, MPI.MODE_RDWR, MPI.MODE_RDONLY
deployment, command = Path(sys.argv[1]), sys.argv[2]

def opened(name, mode=CREATE | RDWR, comm=comm, **hints):
    info = MPI.Info.Create()
    for key, value in hints.items():
        info.Set(key, value)
    return MPI.File.Open(comm, "penstock:/" + name, mode, info)

def refused(error_class, words, call, *args):
    try:
        call(*args)
    except MPI.Exception as why:
        text = why.Get_error_string()
        assert why.Get_error_class() == error_class, f"class {why.Get_error_class()}, not {error_class}: {text}"
        for word in words:
            assert word in text, f"no `{word}` in: {text}"
        return
    raise AssertionError(f"no error: {words}")

def kill(server):
    pid = int((deployment / "run" / f"{server}.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    stat = Path(f"/proc/{pid}/stat")
    while stat.exists() and stat.read_text().rsplit(")", 1)[1].split()[0] != "Z":
        time.sleep(0.005)

def up():
    subprocess.run([command, "up", deployment], check=True, stdout=subprocess.DEVNULL)
"""


def program(directory, deployment, body, *, ranks=1, patience=0.3, direct=False):
    """Runs a program of these lines; it ends with 0 if all it asserts is so."""
    script = directory / "program.py"
    script.write_text(PREAMBLE + body)
    done = penstock(
        "run",
        "-n",
        ranks,
        *(["--direct"] if direct else ["-d", deployment]),
        "--quiet",
        "--",
        sys.executable,
        "-m",
        "mpi4py",
        script,
        deployment,
        PENSTOCK,
        check=False,
        env={"PENSTOCK_PATIENCE": str(patience), "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"},
    )
    assert done.code == 0, f"{done.out}\n{done.err}"


@pytest.fixture
def other(deployment, tmp_path):
    """A file that none of this concerns; call it to see that it is unharmed and the deployment serves."""
    source = tmp_path / "other"
    source.write_bytes(DATA)
    penstock("cp", source, "penstock:/other", "-d", deployment)

    def unharmed():
        penstock("cp", "--force", "penstock:/other", tmp_path / "back", "-d", deployment)
        assert (tmp_path / "back").read_bytes() == DATA
        penstock("cp", "--force", source, "penstock:/new", "-d", deployment)
        penstock("rm", "/new", "-d", deployment)

    return unharmed


def refuse(words, *command):
    """The command ends with exit code 1 and all these words."""
    done = penstock(*command, check=False)
    assert done.code == 1, done.out + done.err
    for word in words:
        assert word in done.err, f"no `{word}` in: {done.err}"


# ---- names and permissions ----


def test_names(deployment, tmp_path, other):
    penstock("mkdir", "/dir", "-d", deployment)
    program(
        tmp_path,
        deployment,
        """
refused(MPI.ERR_NO_SUCH_FILE, ["/no/such/file", "no"], opened, "no/such/file")
refused(MPI.ERR_NO_SUCH_FILE, ["/missing", "create it first"], opened, "missing", RDWR)
refused(MPI.ERR_NO_SUCH_FILE, ["/missing"], MPI.File.Delete, "penstock:/missing")
refused(MPI.ERR_FILE_EXISTS, ["/other", "exclusive"], opened, "other", CREATE | EXCL | RDWR)
refused(MPI.ERR_BAD_FILE, ["/dir", "directory"], opened, "dir")
refused(MPI.ERR_BAD_FILE, ["/other", "directory"], opened, "other/file")
refused(MPI.ERR_BAD_FILE, ["256 bytes", "255"], opened, "n" * 256)
opened("fine").Close()
""",
        ranks=2,
    )
    other()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become somebody else")
def test_permissions(deployment, short_dir, tmp_path):
    penstock("mkdir", "/dir", "-d", deployment)
    (tmp_path / "in").write_bytes(DATA)
    for name, mode in (("none", 0o000), ("read", 0o444)):
        (tmp_path / "in").chmod(mode)
        penstock("cp", tmp_path / "in", f"penstock:/{name}", "-d", deployment)
    # Somebody else on this host, with the key and a way to the sockets that the owner gave him.
    theirs = short_dir / "theirs"
    theirs.mkdir()
    text = (deployment / "deployment.toml").read_text()
    (theirs / "deployment.toml").write_text(text.replace('"run/', f'"{deployment}/run/'))
    (theirs / "client.key").write_text((deployment / "client.key").read_text())
    (theirs / "client.key").chmod(0o600)
    for path in (theirs, theirs / "client.key"):
        os.chown(path, 65534, 65534)
    for path in (short_dir, deployment, deployment / "run"):
        path.chmod(0o755)
    for path in (deployment / "run").glob("*.sock"):
        path.chmod(0o666)
    body = """
os.setgroups([]); os.setgid(65534); os.setuid(65534)
refused(MPI.ERR_ACCESS, ["/none", "65534"], opened, "none", RDONLY)
refused(MPI.ERR_ACCESS, ["/read", "65534"], opened, "read", RDWR)
refused(MPI.ERR_ACCESS, ["/dir", "65534"], opened, "dir/new")
f = opened("read", RDONLY)
b = bytearray(10)
f.Read_at(0, b)
assert bytes(b) == bytes(range(10))
refused(MPI.ERR_READ_ONLY, ["/read"], f.Write_at, 0, b)
f.Close()
"""
    program(tmp_path, theirs, body)
    assert penstock("ls", "-d", deployment).out.split() == ["dir/", "none", "read"]


def test_wrong_keys(deployment, tmp_path, other):
    key = deployment / "client.key"
    kept = key.read_text()
    # The command looks at the servers first, so for the program the key goes wrong once it runs.
    spoiled = """
if rank == 0:
    SPOIL
comm.Barrier()
refused(MPI.ERR_ACCESS, WORDS, opened, "x")
"""
    wrong = spoiled.replace("SPOIL", '(deployment / "client.key").write_text("0" * 64 + "\\n")')
    program(tmp_path, deployment, 'WORDS = ["key"]' + wrong, ranks=2)
    told = penstock("ls", "-d", deployment, check=False)
    assert told.code != 0 and "wrong key" in told.err and "client.key" in told.err
    # Servers that run are not said to be away, and the key is named with what to do about it.
    for command in (
        ["status", deployment],
        ["up", deployment],
        ["run", "-n", 1, "-d", deployment, "--", sys.executable, "-c", "pass"],
    ):
        told = penstock(*command, check=False)
        assert told.code != 0 and "wrong key" in told.err + told.out, told.err
        assert "refuse" in told.err and "mode 600" in told.err and "does not answer" not in told.err, told.err
    key.write_text(kept)
    readable = spoiled.replace("SPOIL", '(deployment / "client.key").chmod(0o644)')
    program(tmp_path, deployment, 'WORDS = ["client.key", "chmod 600"]' + readable)
    key.chmod(0o600)
    other()


# ---- servers that are away ----


def test_servers_down_at_open(deployment, tmp_path, other):
    program(
        tmp_path,
        deployment,
        """
if rank == 0:
    kill("meta")
comm.Barrier()
refused(MPI.ERR_IO, ["metadata server", "meta.sock", "penstock status"], opened, "x")
comm.Barrier()
if rank == 0:
    up()
comm.Barrier()
opened("x").Close()
""",
        ranks=2,
    )
    other()


@pytest.mark.parametrize("shortcut", ["enable", "disable"])
def test_server_down_during_accesses(deployment, tmp_path, other, shortcut):
    """By every method, collective and not: an error on every rank, and the same file works when the server is back."""
    program(
        tmp_path,
        deployment,
        f"""
for method in {METHODS}:
    f = opened(method, penstock_method=method, penstock_shortcut="{shortcut}")
    t = MPI.BYTE.Create_vector(500, 700, 1400).Commit()
    f.Set_view(700 * rank, MPI.BYTE, t)
    data = np.full(350_000, 1 + rank, dtype=np.uint8)
    f.Write_at_all(0, data)
    f.Sync()
    comm.Barrier()
    if rank == 0:
        kill("data-2")
    comm.Barrier()
    away = ["data server 2", "data-2.sock", "penstock status"]
    data[:] += 10
    # A descriptor of the object may serve until the client hears, a moment later, that its server has ended.
    for _ in range(1000):
        try:
            f.Write_at_all(0, data)
            heard = 0
        except MPI.Exception:
            heard = 1
        if comm.allreduce(heard) == comm.size:
            break
    refused(MPI.ERR_IO, away, f.Write_at_all, 0, data)
    refused(MPI.ERR_IO, away, f.Read_at_all, 0, np.empty_like(data))
    refused(MPI.ERR_IO, away, f.Write_at, 0, data)
    refused(MPI.ERR_IO, away, f.Read_at, 0, np.empty_like(data))
    refused(MPI.ERR_IO, away, f.Iwrite_at_all(0, data).Wait)
    comm.Barrier()
    if rank == 0:
        up()
    comm.Barrier()
    f.Write_at_all(0, data)
    f.Sync()
    back = np.empty_like(data)
    f.Read_at_all(0, back)
    assert (back == 11 + rank).all(), method
    f.Close()
    t.Free()
""",
        ranks=2,
        patience=0.1,
    )
    other()


def test_a_server_that_comes_back_in_time_is_waited_for(deployment, tmp_path, other):
    program(
        tmp_path,
        deployment,
        """
f = opened("x", penstock_method="datatype", penstock_shortcut="disable")
data = np.full(500_000, 1 + rank, dtype=np.uint8)
comm.Barrier()
if rank == 0:
    for server in ("meta", "data-0", "data-3"):
        kill(server)
    soon = subprocess.Popen(["sh", "-c", f"sleep 0.5; {command} up {deployment}"], stdout=subprocess.DEVNULL)
comm.Barrier()
f.Write_at_all(rank * len(data), data)
f.Sync()
f.Close()
if rank == 0:
    assert soon.wait() == 0
f = opened("x", RDONLY)
back = np.empty_like(data)
f.Read_at_all((1 - rank) * len(data), back)
assert (back == 2 - rank).all()
f.Close()
""",
        ranks=2,
        patience=60,
    )
    other()


# ---- stores ----


@pytest.fixture
def tmpfs(short_dir):
    """A deployment of two servers whose data-0 is on a file system of 4 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a file system")
    directory = short_dir / "fs"
    store = directory / "data-0"
    store.mkdir(parents=True)
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "none", store], capture_output=True, text=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        penstock("up", directory, "--servers", 2)
        yield directory, store
        penstock("down", directory)
    finally:
        subprocess.run(["umount", "-l", store], check=True)


FIRST = 'f = opened("first"); f.Write_at_all(rank * 100_000, bytes([7 + rank]) * 100_000); f.Sync(); f.Close()\n'
FIRST_IS_WHOLE = """
f = opened("first", RDONLY)
whole = np.empty(200_000, dtype=np.uint8)
f.Read_at_all(0, whole)
assert (whole[:100_000] == 7).all() and (whole[100_000:] == 8).all()
f.Close()
"""


def test_store_full(tmpfs, tmp_path):
    directory, _ = tmpfs
    body = """
for shortcut in ("enable", "disable"):
    f = opened("big", penstock_shortcut=shortcut)
    full = ["data server 0", "full", "free"]
    data = np.ones(8 << 20, dtype=np.uint8)
    refused(MPI.ERR_NO_SPACE, full, f.Write_at, rank * len(data), data)
    comm.Barrier()
    refused(MPI.ERR_NO_SPACE, full, f.Write_at_all, rank * len(data), data)
    f.Close()
    comm.Barrier()
    if rank == 0:
        MPI.File.Delete("penstock:/big")
    comm.Barrier()
    f = opened("small")
    f.Write_at_all(rank * 100_000, np.ones(100_000, dtype=np.uint8))
    f.Sync()
    f.Close()
"""
    program(tmp_path, directory, FIRST + body + FIRST_IS_WHOLE, ranks=2)
    penstock("check", "-d", directory)


def test_a_failed_preallocate_takes_nothing(tmpfs, tmp_path):
    """Neither on the server that is full nor on the other, and what is written meanwhile stays."""
    directory, _ = tmpfs
    body = """
def used():
    return [sum(p.stat().st_blocks * 512 for p in (deployment / s).rglob("*")) for s in ("data-0", "data-1")]
f = opened("big")
f.Write_at_all(0, b"kept")
writer = opened("big", comm=MPI.COMM_SELF)
before = used()
comm.Barrier()
for round in range(3):
    if rank == 1:
        # Another open of the file writes behind its end, where the reservation would be.
        writer.Write_at((round + 1) * 100_000, b"meanwhile")
    refused(MPI.ERR_NO_SPACE, ["data server 0", "full"], f.Preallocate, 64 << 20)
comm.Barrier()
seen = bytearray(9)
for round in range(3):
    f.Read_at_all((round + 1) * 100_000, seen)
    assert seen == b"meanwhile", seen
f.Read_at_all(0, seen)
assert seen[:4] == b"kept"
assert f.Get_size() == 300_009, f.Get_size()
extra = [a - b for a, b in zip(used(), before)]
assert max(extra) < 1 << 20, extra
# What fits is reserved on both, and what is reserved already is no new demand.
for size in (3 << 20, 3 << 20, 2 << 20):
    f.Preallocate(size)
assert f.Get_size() == 3 << 20 and min(used()) >= 1 << 20
writer.Close()
f.Close()
"""
    program(tmp_path, directory, body, ranks=2)
    penstock("check", "-d", directory)


def test_a_failed_preallocate_in_direct_mode_takes_nothing(short_dir, tmp_path):
    """On ext4, whose fallocate leaves what it has got when the file system is full, and a longer file."""
    image, store = short_dir / "image", short_dir / "ext4"
    store.mkdir()
    with image.open("wb") as file:
        file.truncate(32 << 20)
    made = subprocess.run(["mkfs.ext4", "-q", image], capture_output=True, text=True, check=False)
    mounted = made.returncode == 0 and subprocess.run(["mount", "-o", "loop", image, store], check=False)
    if not mounted or mounted.returncode != 0:
        pytest.skip("no file system can be mounted here")
    body = f"""
f = MPI.File.Open(comm, "{store}/big", CREATE | RDWR)
f.Write_at_all(0, b"kept")
f.Sync()
free = os.statvfs("{store}").f_bfree
refused(MPI.ERR_NO_SPACE, ["{store}/big"], f.Preallocate, 64 << 20)
comm.Barrier()
assert f.Get_size() == 4 and os.statvfs("{store}").f_bfree == free
f.Preallocate(1 << 20)
assert f.Get_size() == 1 << 20 and os.stat("{store}/big").st_blocks * 512 >= 1 << 20
f.Close()
"""
    try:
        program(tmp_path, short_dir, body, ranks=2, direct=True)
    finally:
        subprocess.run(["umount", "-l", store], check=True)


def test_store_read_only(tmpfs, tmp_path):
    """A data server that starts on such a store says so and does not serve; in direct mode the open is refused."""
    directory, store = tmpfs
    program(tmp_path, directory, FIRST, ranks=2)
    penstock("down", directory)
    (store / "plain").write_bytes(DATA)
    subprocess.run(["mount", "-o", "remount,ro", store], check=True)
    refuse(["data-0", "read-only", "remount"], "up", directory)
    body = f"""
def direct(mode):
    return MPI.File.Open(comm, "{store}/plain", mode)
refused(MPI.ERR_READ_ONLY, ["{store}/plain", "MPI_MODE_RDONLY"], direct, RDWR)
direct(RDONLY).Close()
"""
    program(tmp_path, directory, body, ranks=2, direct=True)
    subprocess.run(["mount", "-o", "remount,rw", store], check=True)
    penstock("up", directory)
    program(tmp_path, directory, FIRST_IS_WHOLE, ranks=2)


def test_damaged_metadata(deployment, other):
    penstock("down", deployment)
    database = deployment / "meta" / "namespace.redb"
    good = database.read_bytes()
    bad = bytearray(good)
    for at in range(4096, len(bad), 8192):
        bad[at : at + 2048] = b"\xa5" * min(2048, len(bad) - at)
    database.write_bytes(bad)
    refuse(["namespace.redb", "damaged", "restore"], "up", deployment)
    # Nothing was made of it that was not there: with the good copy back, all is as it was.
    penstock("down", deployment)
    database.write_bytes(good)
    penstock("up", deployment)
    other()
    penstock("check", "-d", deployment)


def test_truncated_object(deployment, tmp_path, other):
    (tmp_path / "in").write_bytes(DATA * 2)
    penstock("cp", tmp_path / "in", "penstock:/cut", "-d", deployment)
    penstock("down", deployment)
    objects = [p for p in (deployment / "data-1" / "objects").rglob("*") if p.is_file()]
    cut = max(objects, key=lambda p: p.stat().st_size)
    os.truncate(cut, cut.stat().st_size // 2)
    penstock("up", deployment)
    program(
        tmp_path,
        deployment,
        """
f = opened("cut", RDONLY)
whole = bytearray(2_000_000)
damaged = ["data server 1", "damaged", "penstock check"]
refused(MPI.ERR_IO, damaged, f.Get_size)
refused(MPI.ERR_IO, damaged, f.Read_at, 0, whole)
refused(MPI.ERR_IO, damaged, f.Read_at_all, 0, whole)
f.Close()
""",
        ranks=2,
    )
    checked = penstock("check", "-d", deployment, check=False)
    assert checked.code == 1 and "data-1/objects" in checked.out and "restore" in checked.out, checked.out
    assert "--accept-damaged" in checked.out, checked.out
    accepted = penstock("check", "--accept-damaged", "-d", deployment)
    assert "accepted as it is" in accepted.out, accepted.out
    program(
        tmp_path,
        deployment,
        """
f = opened("cut", RDWR)
assert f.Get_size() > 0
f.Write_at(0, bytearray(b"again"))
f.Sync()
f.Close()
""",
    )
    other()


def test_two_deployments_on_one_store(deployment, short_dir, other):
    second = short_dir / "second"
    second.mkdir()
    text = (deployment / "deployment.toml").read_text()
    text = text.replace('store = "dir:', f'store = "dir:{deployment}/').replace("fs", "second", 0)
    lines = [f'id = "{"b" * 32}"' if line.startswith('id = "') else line for line in text.splitlines()]
    (second / "deployment.toml").write_text("\n".join(lines))
    for key in deployment.glob("*.key"):
        shutil.copy(key, second / key.name)
    for name in ("run", "log", "meta"):
        (second / name).mkdir()
    # While the first has them, and when it has let go of them.
    refuse(["/fs/data-", "in use by another server"], "up", second)
    penstock("down", second, check=False)
    other()
    penstock("down", deployment)
    refuse(["/fs/data-", "deployment"], "up", second)
    penstock("down", second, check=False)
    penstock("up", deployment)
    other()


# ---- descriptions ----


@pytest.mark.parametrize(
    ("old", "new", "word"),
    [
        ("stripe_unit", "stripe_units", "stripe_units"),
        ("65536", "0", "stripe_unit"),
        ("65536", '"64K"', "stripe_unit"),
        ("id = 1\n", "id = 0\n", "twice"),
        ('"dir:data-1"', '"dri:data-1"', "dri:data-1"),
        ('"dir:data-1"', '"dir:data-2"', "data-2"),
        ("[meta]", "[mata]", "mata"),
        ("[meta]", "[meta", "deployment.toml"),
        ('unix = "run/data-1.sock"', "", "server 1"),
        ('"client.key"', '"clent.key"', "clent.key"),
    ],
)
def test_malformed_deployment_files(deployment, tmp_path, old, new, word):
    file = deployment / "deployment.toml"
    good = file.read_text()
    assert old in good
    file.write_text(good.replace(old, new, 1))
    refuse([word], "ls", "-d", deployment)
    # A program that was started without `penstock run` hears it as an error of its open.
    script = tmp_path / "program.py"
    body = "try:\n    opened('x')\nexcept MPI.Exception as why:\n    print(why.Get_error_string())\n"
    script.write_text(PREAMBLE + body)
    done = subprocess.run(
        [sys.executable, "-m", "mpi4py", script, deployment, "-"],
        env={
            **os.environ,
            **SETTINGS,
            "LD_PRELOAD": str(TARGET / "libpenstock.so"),
            "PENSTOCK_DEPLOYMENT": str(file),
            "PENSTOCK_PATIENCE": "0.1",
        },
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0 and word in done.stdout, done.stdout + done.stderr
    file.write_text(good)
    penstock("ls", "-d", deployment)


# ---- arguments ----


def test_absurd_datatypes_and_offsets(deployment, tmp_path, other):
    program(
        tmp_path,
        deployment,
        """
HUGE = 2**63 - 1
f = opened("x")
one = b"1"
for write in (f.Write_at, f.Write_at_all):
    refused(MPI.ERR_ARG, ["2^63 - 1", "use a smaller"], write, HUGE, b"ab")
refused(MPI.ERR_ARG, ["offset"], f.Write_at, -1, one)
# 2^62 instances of a type of 2^10 bytes: sizes that no offset holds.
wide = MPI.BYTE.Create_resized(0, 2**60).Commit()
far = wide.Create_vector(2**20, 1, 2**20).Commit()
refused(MPI.ERR_TYPE, ["2^63", "use a smaller"], f.Write_at, 0, [one, 1, far])
for whole in (True, False):
    try:
        f.Set_view(0, MPI.BYTE, far)
        (f.Write_at_all if whole else f.Write_at)(2**19, one)
        raise AssertionError("no error")
    except MPI.Exception as why:
        assert why.Get_error_class() in (MPI.ERR_ARG, MPI.ERR_TYPE), why.Get_error_string()
    f.Set_view(0, MPI.BYTE, MPI.BYTE)
refused(MPI.ERR_ARG, ["/x"], f.Set_view, -1, MPI.BYTE, MPI.BYTE)
backwards = MPI.BYTE.Create_indexed([1, 1], [9, 3]).Commit()
try:
    f.Set_view(0, MPI.BYTE, backwards)
    raise AssertionError("no error")
except MPI.Exception as why:
    assert why.Get_error_class() in (MPI.ERR_ARG, MPI.ERR_TYPE), why.Get_error_string()
f.Write_at_all(rank, one)
for resize, classes in ((f.Set_size, [MPI.ERR_ARG]), (f.Preallocate, [MPI.ERR_ARG, MPI.ERR_NO_SPACE])):
    try:
        resize(HUGE)
        # Where the servers' file system has files of that size (tmpfs), holes are no error; room for them all is.
        assert resize == f.Set_size and f.Get_size() == HUGE
        f.Set_size(comm.size)
    except MPI.Exception as why:
        assert why.Get_error_class() in classes, why.Get_error_string()
        assert "data server" in why.Get_error_string(), why.Get_error_string()
    assert f.Get_size() == comm.size
f.Write_at_all(rank, one)
comm.Barrier()
assert f.Get_size() == comm.size
f.Close()
for t in (wide, far, backwards):
    t.Free()
""",
        ranks=2,
    )
    other()


def test_a_size_that_no_store_can_have(short_dir, tmp_path):
    """A limit of the servers' file sizes stands for that of a file system; reaching it ends no server."""
    directory = short_dir / "fs"
    limited = ["prlimit", f"--fsize={64 << 20}", PENSTOCK, "up", directory, "--servers", "2"]
    subprocess.run(limited, check=True, stdout=subprocess.DEVNULL, timeout=60)
    try:
        program(
            tmp_path,
            directory,
            """
f = opened("x", striping_factor="2")
f.Write_at_all(rank * 100_000, bytes([rank + 1]) * 100_000)
for size in (1 << 30, 2**63 - 1):
    for resize in (f.Set_size, f.Preallocate):
        refused(MPI.ERR_ARG, ["data server", "use a smaller"], resize, size)
    assert f.Get_size() == comm.size * 100_000, f.Get_size()
found = bytearray(100_000)
f.Read_at_all(rank * 100_000, found)
assert found == bytes([rank + 1]) * 100_000
# Each server has half of this.
f.Set_size(100 << 20)
assert f.Get_size() == 100 << 20
f.Close()
""",
            ranks=2,
        )
        penstock("check", "-d", directory)
    finally:
        penstock("down", directory, check=False)


def test_hints_written_for_another_file_system(deployment, tmp_path, other):
    """A hint never makes a call fail: what this deployment does not have is made to fit, and get_info says what is."""
    program(
        tmp_path,
        deployment,
        """
other = dict(striping_factor="64", start_iodevice="99", striping_unit=str(2**40), cb_nodes="many", cb_buffer_size="-3")
f = opened("x", **other)
info = f.Get_info()
assert info.Get("striping_factor") == "4" and info.Get("start_iodevice") in "0123", info.Get("striping_factor")
f.Write_at_all(rank, b"1")
f.Set_info(info)
f.Close()
f = opened("y", striping_factor="2", start_iodevice="3")
info = f.Get_info()
assert info.Get("striping_factor") == "2" and info.Get("start_iodevice") == "3"
f.Close()
""",
        ranks=2,
    )
    other()


def test_rubbish_at_the_sockets(deployment, other):
    for name in ("meta", "data-0"):
        for rubbish in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100_000, b""):
            with socket.socket(socket.AF_UNIX) as s:
                s.settimeout(30)
                s.connect(str(deployment / "run" / f"{name}.sock"))
                try:
                    s.sendall(rubbish)
                    s.shutdown(socket.SHUT_WR)
                    while s.recv(1000):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
    other()


def test_a_client_killed_in_a_write(deployment, tmp_path, other):
    body = """
f = opened("x", penstock_method=method, penstock_shortcut="disable")
f.Set_view(rank, MPI.BYTE, MPI.BYTE.Create_vector(1, 1, 2).Create_resized(0, 2).Commit())
(deployment / "run" / "started").touch()
while True:
    f.Write_at(0, np.ones(4 << 20, dtype=np.uint8))
    if rank == 0 and (deployment / "run" / "now").exists():
        os.kill(os.getpid(), signal.SIGKILL)
"""
    for method in ("sieve", "datatype"):
        script = tmp_path / "killed.py"
        # A thread kills the process, so that it dies inside of a call.
        script.write_text(
            PREAMBLE
            + f"method = {method!r}\nimport threading\n"
            + "threading.Timer(0.5 if rank == 0 else 100, os.kill, (os.getpid(), signal.SIGKILL)).start()\n"
            + body
        )
        done = penstock(
            "run", "-n", 2, "-d", deployment, "--quiet", "--", sys.executable, "-m", "mpi4py", script, deployment, "-",
            check=False,
        )  # fmt: skip
        assert done.code != 0
        # Its locks are free, and its file can be written by the next one.
        program(
            tmp_path,
            deployment,
            'f = opened("x", penstock_method="sieve")\n'
            "t = MPI.BYTE.Create_vector(1000, 1, 2).Commit()\nf.Set_view(0, MPI.BYTE, t)\n"
            "f.Write_at_all(0, bytes(1000))\nf.Close()\n",
            patience=5,
        )
    other()
    penstock("check", "--repair", "-d", deployment)


def test_a_stopped_server_is_named_by_status(deployment, other):
    """A server that hangs (here: is stopped) is told apart from one that is gone, and recovers."""
    pid = int((deployment / "run" / "data-1.pid").read_text().split()[0])
    os.kill(pid, signal.SIGSTOP)
    try:
        time.sleep(0.05)
        status = penstock("status", deployment, check=False)
        assert status.code == 1 and "data-1" in status.out + status.err
    finally:
        os.kill(pid, signal.SIGCONT)
    other()


def test_a_missing_client_key_and_a_closed_deployment_are_called_so(deployment):
    (deployment / "client.key").rename(deployment / "elsewhere")
    said = penstock("status", deployment, check=False)
    assert said.code == 1 and "no key" in said.out and "refuses" not in said.out + said.err
    assert "client.key; get it from" in said.err, said.err
    (deployment / "elsewhere").rename(deployment / "client.key")
    if os.geteuid() == 0:
        deployment.parent.chmod(0o755)
        stranger = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
        command = [*stranger, PENSTOCK, "status", deployment]
        said = subprocess.run(command, capture_output=True, text=True, check=False).stderr
        assert "Permission denied" in said and "--group" in said and "makes one" not in said, said
