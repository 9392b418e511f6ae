"""Limits on the files of users: the command, a mount of root's, MPI programs, servers that are killed."""

import errno
import json
import os
import re
import signal
import stat
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from conftest import COMPILERS, PENSTOCK, penstock
from mounted import ALICE, BOB, MEMBERS, TEAM, as_root, as_user, fails, needs_fuse, touch, write

pytestmark = [needs_fuse, as_root]


def quota(deployment, *args):
    """What `penstock quota --json` says."""
    return penstock("quota", *args, "--json", "-d", deployment).json()[0]


def files(deployment, uid):
    return quota(deployment, uid)["users"][0]["files"]


@pytest.fixture
def limits(place):
    """The deployment, whose limits are taken away afterwards."""
    yield place[0]
    for whose in (ALICE, BOB, "--default"):
        penstock("quota", "remove", whose, "-d", place[0])


def as_other(deployment, uid, *args, check=True):
    """`penstock` as another user of this host, without a mount."""
    if subprocess.run(
        ["setpriv", f"--reuid={uid}", "--clear-groups", "ls", str(PENSTOCK), str(COMPILERS["mpich"].resolve())],
        stdout=subprocess.DEVNULL,
        check=False,
    ).returncode:
        pytest.skip("users are not changed: others cannot reach the built command and MPI here")
    done = subprocess.run(
        [str(PENSTOCK), "-d", str(deployment), *map(str, args)],
        user=uid,
        group=uid,
        extra_groups=[MEMBERS],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": "/tmp"},
        cwd="/",
    )
    assert not check or done.returncode == 0, (args, done.stdout, done.stderr)
    return done


def test_a_mount_of_roots_charges_its_callers(limits, d):
    before = files(limits, ALICE)
    set_ = quota(limits, "set", ALICE, "--files-soft", before + 2, "--files-hard", before + 4)
    assert set_["users"][0]["limits"] == {"soft": before + 2, "hard": before + 4, "grace_s": 7 * 86_400}
    alice = (ALICE, TEAM, [])
    as_user(*alice, lambda: touch(d / "f"))
    as_user(*alice, lambda: os.mkdir(d / "sub"))
    as_user(*alice, lambda: os.symlink("f", d / "s"))
    as_user(*alice, lambda: touch(d / "sub" / "g"))
    for call in (
        lambda: touch(d / "more"),
        lambda: os.mkdir(d / "more"),
        lambda: os.symlink("f", d / "more"),
    ):
        fails(errno.EDQUOT, as_user, *alice, call)
    # A further name costs nothing, nor does a rename over something; both work at the limit.
    as_user(*alice, lambda: os.link(d / "f", d / "f2"))
    as_user(*alice, lambda: os.rename(d / "f2", d / "f3"))
    # Others are not limited; what is theirs cannot be given to her.
    as_user(BOB, TEAM, [], lambda: touch(d / "his"))
    touch(d / "root's")
    fails(errno.EDQUOT, os.chown, d / "his", ALICE, -1)
    fails(errno.EDQUOT, os.chown, d / "root's", ALICE, -1)
    os.chown(d / "root's", BOB, -1)
    said = quota(limits, ALICE)["users"][0]
    assert (said["files"], said["own"], said["over_soft"], said["at_hard"]) == (before + 4, True, True, True)
    status = penstock("status", "-d", limits)
    assert "1 user over the soft, 1 user at the hard one; `penstock quota --all` names them" in status.out
    assert penstock("status", "--json", "-d", limits).json()[0]["meta"]["at_hard"] == 1
    # Removing makes room, and raising does, while everything runs.
    as_user(*alice, lambda: os.unlink(d / "s"))
    as_user(*alice, lambda: touch(d / "again"))
    fails(errno.EDQUOT, as_user, *alice, lambda: touch(d / "more"))
    penstock("quota", "set", ALICE, "--files-hard", "none", "-d", limits)
    as_user(*alice, lambda: touch(d / "more"))


def test_the_default_has_a_time_of_grace_and_root_none(limits, d):
    most = max(files(limits, uid) for uid in (ALICE, BOB))
    everybody = quota(limits, "set", "--default", "--files-soft", most + 1, "--grace", "2s")
    assert everybody["default"] == {"soft": most + 1, "hard": None, "grace_s": 2}
    penstock("quota", "set", BOB, "--files-soft", "none", "-d", limits)
    room = most + 1 - files(limits, ALICE)
    for i in range(room + 1):
        as_user(ALICE, TEAM, [], lambda i=i: touch(d / f"{i}"))
    over = quota(limits, ALICE)["users"][0]
    assert over["over_soft"] and not over["own"] and over["grace_ends_ms"] > time.time() * 1000 - 2000
    assert "over the soft limit" in penstock("quota", "--all", "-d", limits).out
    deadline = time.monotonic() + 30
    while True:
        try:
            as_user(ALICE, TEAM, [], lambda: touch(d / f"late-{time.monotonic()}"))
        except OSError as e:
            assert e.errno == errno.EDQUOT
            break
        assert time.monotonic() < deadline
        time.sleep(0.2)
    assert "for too long" in penstock("quota", ALICE, "-d", limits).out
    for i in range(most + 3):
        as_user(BOB, TEAM, [], lambda i=i: touch(d / f"bob-{i}"))
        touch(d / f"root-{i}")
    penstock("quota", "remove", "--default", "-d", limits)
    as_user(ALICE, TEAM, [], lambda: touch(d / "free"))


def test_users_see_themselves_and_administrators_all(limits, d):
    as_user(BOB, TEAM, [], lambda: touch(d / "his"))
    own = json.loads(as_other(limits, BOB, "quota", "--json").stdout)
    assert [user["uid"] for user in own["users"]] == [BOB] and own["users"][0]["files"] >= 1
    assert as_other(limits, BOB, "quota", BOB, "--json").stdout.startswith("{")
    for args in (
        ["quota", "--all"],
        ["quota", ALICE],
        ["quota", "set", BOB, "--files-hard", "none"],
        ["quota", "set", "--default", "--files-hard", 1],
        ["quota", "remove", ALICE],
    ):
        refused = as_other(limits, BOB, *args, check=False)
        assert refused.returncode == 1 and "administrators" in refused.stderr and not refused.stdout, refused
    everybody = quota(limits, "--all")
    assert {0, BOB} <= {user["uid"] for user in everybody["users"]} and everybody["counted"]
    for args, word in (
        (["set", "root", "--files-hard", 5], "has no limits"),
        (["set", "nobody-of-that-name", "--files-hard", 5], "no user"),
        (["set", ALICE, "--files-soft", 5, "--files-hard", 4], "above the hard one"),
        (["set", ALICE], "--files-soft"),
        (["set", "--files-hard", 5], "USER"),
    ):
        refused = penstock("quota", *args, "-d", limits, check=False)
        assert refused.code != 0 and word in refused.err, refused.err


MPI_MAKE = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int i = 1; i < argc; i++) {
        MPI_File f;
        char text[MPI_MAX_ERROR_STRING] = "made";
        int length, class = 0;
        int code = MPI_File_open(MPI_COMM_SELF, argv[i], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &f);
        if (code == MPI_SUCCESS) {
            MPI_File_close(&f);
        } else {
            MPI_Error_class(code, &class);
            MPI_Error_string(code, text, &length);
        }
        printf("%s: %s\\n", class == MPI_ERR_QUOTA ? "quota" : class ? "other" : "ok", text);
    }
    return MPI_Finalize();
}
"""


def test_an_mpi_program_gets_its_own_error_class(limits, d):
    program = limits.parent / "maker"
    program.with_suffix(".c").write_text(MPI_MAKE)
    subprocess.run([COMPILERS["mpich"], "-o", program, program.with_suffix(".c")], check=True)
    hard = files(limits, BOB) + 1
    penstock("quota", "set", BOB, "--files-hard", hard, "-d", limits)
    names = [f"penstock:/{d.name}/{name}" for name in "ab"]
    ran = as_other(limits, BOB, "run", "-n", 1, "--quiet", "--", program, *names)
    made, refused = ran.stdout.splitlines()
    assert made == "ok: made"
    for words in ("quota: ", f"user {BOB} has {hard} files", f"the hard limit is {hard}", "`penstock quota`"):
        assert words in refused, refused
    refused = as_other(limits, BOB, "mkdir", f"/{d.name}/c", check=False)
    assert refused.returncode == 1 and "hard limit" in refused.stderr


def test_numbers_and_limits_outlive_a_killed_server(limits, d):
    before = files(limits, ALICE)
    penstock("quota", "set", ALICE, "--files-hard", before + 30, "-d", limits)
    made = 0
    for _ in range(3):
        for _ in range(10):
            as_user(ALICE, TEAM, [], lambda name=f"{made}": touch(d / name))
            made += 1
        pid = int((limits / "run" / "meta.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        penstock("up", limits)
        assert files(limits, ALICE) == before + made
    fails(errno.EDQUOT, as_user, ALICE, TEAM, [], lambda: touch(d / "more"))
    assert "nothing is wrong" in penstock("check", "-d", limits).out


MIB = 1 << 20


def bytes_of(deployment, uid):
    return quota(deployment, uid)["users"][0]["bytes"]


def await_bytes(deployment, uid, want):
    """Waits until the data servers have told what `want` is true of; returns it."""
    deadline = time.monotonic() + 120
    while True:
        said = bytes_of(deployment, uid)
        if said is not None and said["counted"] and want(said["used"]):
            return said
        assert time.monotonic() < deadline, said
        time.sleep(0.1)


def limit_bytes(deployment, uid, **limits):
    args = [arg for name, limit in limits.items() for arg in (f"--bytes-{name}", limit)]
    penstock("quota", "set", uid, *args, "-d", deployment)


def fill(path, most, step=64 << 10):
    """Writes on until it is refused, at most so many bytes; how many were written."""
    written = 0
    fd = os.open(path, os.O_WRONLY | os.O_CREAT, 0o644)
    try:
        while written < most:
            try:
                written += os.pwrite(fd, b"x" * step, written)
            except OSError as e:
                assert e.errno == errno.EDQUOT, e
                break
    finally:
        os.close(fd)
    return written


def test_a_limit_on_bytes_holds_and_what_is_removed_makes_room(limits, d):
    alice = (ALICE, TEAM, [])
    as_user(*alice, lambda: fill(d / "before", MIB))
    limit_bytes(limits, ALICE, soft="6M", hard="8M")
    before = await_bytes(limits, ALICE, lambda used: used >= MIB)
    assert (before["soft"], before["hard"]) == (6 * MIB, 8 * MIB)

    def write_beyond():
        assert fill(d / "more", 32 * MIB) <= 8 * MIB - MIB

    as_user(*alice, write_beyond)
    full = await_bytes(limits, ALICE, lambda used: used > 7 * MIB)
    assert full["used"] <= 8 * MIB and full["over_soft"]
    # What is there can be written over, also at the limit.
    as_user(*alice, lambda: write(d / "more", b"y" * 4096, os.O_WRONLY))
    assert "Limits on bytes: 1 user over the soft" in penstock("status", "-d", limits).out
    # Others are not limited; removed, cut and given bytes make room.
    as_user(BOB, TEAM, [], lambda: fill(d / "his", 16 * MIB))
    as_user(*alice, lambda: os.truncate(d / "more", MIB))
    await_bytes(limits, ALICE, lambda used: used == 2 * MIB)
    os.chown(d / "more", BOB, -1)
    await_bytes(limits, ALICE, lambda used: used == MIB)
    as_user(*alice, lambda: os.unlink(d / "before"))
    await_bytes(limits, ALICE, lambda used: used == 0)
    os.chown(d / "his", ALICE, -1)
    await_bytes(limits, ALICE, lambda used: used == 16 * MIB)
    fails(errno.EDQUOT, as_user, *alice, lambda: write(d / "new", b"x" * MIB))
    penstock("quota", "set", ALICE, "--bytes-soft", "none", "--bytes-hard", "none", "-d", limits)
    assert bytes_of(limits, ALICE) is None
    os.unlink(d / "his")


def test_a_default_on_bytes_holds_for_whoever_comes(limits, d):
    newcomer = 61_077
    as_user(ALICE, TEAM, [], lambda: fill(d / "hers", MIB))
    said = quota(limits, "set", "--default", "--bytes-hard", "8M")
    assert said["default_bytes"] == {"soft": None, "hard": 8 * MIB}
    penstock("quota", "set", BOB, "--bytes-hard", "none", "-d", limits)
    # A new limit holds when the data servers have heard of it and have counted.
    before = await_bytes(limits, ALICE, lambda used: used >= MIB)["used"]

    def first_files():
        assert fill(d / "one", 32 * MIB) + fill(d / "two", 32 * MIB) <= 8 * MIB

    as_user(newcomer, newcomer, [], first_files)
    full = await_bytes(limits, newcomer, lambda used: used > 7 * MIB)
    assert full["used"] <= 8 * MIB and not full["own"]
    as_user(ALICE, TEAM, [], lambda: fill(d / "more", 32 * MIB))
    assert before < await_bytes(limits, ALICE, lambda used: used > 7 * MIB)["used"] <= 8 * MIB
    as_user(BOB, TEAM, [], lambda: fill(d / "his", 16 * MIB))
    assert (d / "his").stat().st_size == 16 * MIB
    assert "(default)" in penstock("quota", "--all", "-d", limits).out
    # It outlives the servers.
    for server in ("meta", "data-0"):
        pid = int((limits / "run" / f"{server}.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
    penstock("up", limits)
    await_bytes(limits, newcomer, lambda used: used > 7 * MIB)
    fails(errno.EDQUOT, as_user, newcomer, newcomer, [], lambda: write(d / "three", b"x" * 2 * MIB))
    penstock("quota", "remove", "--default", "-d", limits)
    assert bytes_of(limits, newcomer) is None
    as_user(newcomer, newcomer, [], lambda: write(d / "three", b"x" * 2 * MIB))
    for path in d.iterdir():
        path.unlink()


def test_bytes_outlive_killed_servers(limits, d):
    alice = (ALICE, TEAM, [])
    limit_bytes(limits, ALICE, hard="1T")
    start = await_bytes(limits, ALICE, lambda used: True)["used"]
    hard = start + 8 * MIB
    limit_bytes(limits, ALICE, hard=hard)
    as_user(*alice, lambda: fill(d / "f", 3 * MIB))
    await_bytes(limits, ALICE, lambda used: used == start + 3 * MIB)
    for server in ("data-0", "meta", "data-1"):
        pid = int((limits / "run" / f"{server}.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        penstock("up", limits)
        said = await_bytes(limits, ALICE, lambda used: used == start + 3 * MIB)
        assert said["hard"] == hard

    def write_beyond():
        assert fill(d / "more", 32 * MIB) <= 5 * MIB

    as_user(*alice, write_beyond)
    assert bytes_of(limits, ALICE)["used"] <= hard


def test_check_compares_the_bytes(limits, d):
    alice = (ALICE, TEAM, [])
    as_user(*alice, lambda: fill(d / "f", 3 * MIB))
    limit_bytes(limits, ALICE, hard="1T")
    start = await_bytes(limits, ALICE, lambda used: used >= 3 * MIB)["used"]
    # A removed file that is open counts, and no list of objects shows it.
    removed = os.open(d / "gone", os.O_WRONLY | os.O_CREAT)
    os.chown(d / "gone", ALICE, -1)
    os.pwrite(removed, b"x" * MIB, 0)
    os.unlink(d / "gone")
    await_bytes(limits, ALICE, lambda used: used == start + MIB)
    found = penstock("check", "--json", "-d", limits).json()[0]
    assert (found["clean"], found["findings"], found["uncompared"]) == (True, [], 0)
    assert found["limited_users"] == 1
    os.close(removed)
    await_bytes(limits, ALICE, lambda used: used == start)
    # Past the server an object gets longer.
    objects = [path for path in (limits / "data-0" / "objects").rglob("*") if path.is_file()]
    longest = max(objects, key=lambda path: path.stat().st_size)
    os.truncate(longest, longest.stat().st_size + 8 * MIB)
    found = penstock("check", "--json", "-d", limits, check=False)
    (wrong,) = found.json()[0]["findings"]
    assert (found.code, wrong["kind"], wrong["server"], wrong["mended"]) == (1, "wrong_bytes", 0, False)
    said = re.search(rf"user {ALICE} has (\d+) bytes on data server 0, which counts (\d+):", wrong["message"])
    there, counts = map(int, said.groups())
    assert there - counts == 8 * MIB
    repaired = penstock("check", "--repair", "-d", limits)
    assert f"mended: user {ALICE} has {there} bytes on data server 0" in repaired.out
    assert "nothing is wrong" in penstock("check", "-d", limits).out


def test_an_object_whose_sync_failed_counts_on(limits, d):
    alice = (ALICE, TEAM, [])
    before = set((limits / "data-1" / "objects").rglob("*"))
    as_user(*alice, lambda: fill(d / "f", 3 * MIB))
    limit_bytes(limits, ALICE, hard="1T")
    start = await_bytes(limits, ALICE, lambda used: used >= 3 * MIB)["used"]
    (made,) = [path for path in (limits / "data-1" / "objects").rglob("*") if path.is_file() and path not in before]

    def start_again(mode):
        pid = int((limits / "run" / "data-1.pid").read_text().split()[0])
        os.kill(pid, signal.SIGKILL)
        made.chmod(mode)
        penstock("up", limits)

    sound = stat.S_IMODE(made.stat().st_mode)
    # The mark of a failed sync (decision 13).
    start_again(sound | stat.S_ISVTX)
    # It is counted anew, and is no shorter for being damaged.
    await_bytes(limits, ALICE, lambda used: used == start)
    said = penstock("check", "--json", "-d", limits, check=False).json()[0]["findings"]
    assert said and "wrong_bytes" not in {finding["kind"] for finding in said}, said
    as_user(*alice, lambda: os.unlink(d / "f"))
    await_bytes(limits, ALICE, lambda used: used == start - 3 * MIB)


MPI_WRITE = """
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    MPI_File f;
    char text[MPI_MAX_ERROR_STRING] = "all was written", *block = calloc(1, 1 << 20);
    int length, class = 0, code, n = 0, most = atoi(argv[2]), pause_us = atoi(argv[3]);
    MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &f);
    do
        code = MPI_File_write_at(f, (MPI_Offset)n << 20, block, 1 << 20, MPI_BYTE, MPI_STATUS_IGNORE);
    while (code == MPI_SUCCESS && ++n < most && !usleep(pause_us));
    if (code != MPI_SUCCESS) {
        MPI_Error_class(code, &class);
        MPI_Error_string(code, text, &length);
    }
    printf("%s %d: %s\\n", class == MPI_ERR_QUOTA ? "quota" : class ? "other" : "ok", n, text);
    MPI_File_close(&f);
    return MPI_Finalize();
}
"""


def mpi_writer(limits):
    program = limits.parent / "writer"
    program.with_suffix(".c").write_text(MPI_WRITE)
    subprocess.run([COMPILERS["mpich"], "-o", program, program.with_suffix(".c")], check=True)
    return program


def test_a_new_limit_stops_a_program_that_writes_by_shortcuts(limits, d):
    program, path, pieces = mpi_writer(limits), f"penstock:/{d.name}/f", 3000
    with ThreadPoolExecutor(1) as pool:
        ran = pool.submit(as_other, limits, BOB, "run", "-n", 1, "--json", "--", program, path, pieces, 10_000)
        while not (d / "f").exists() or (d / "f").stat().st_size < 4 * MIB:
            assert not ran.done(), ran.result().stdout
            time.sleep(0.01)
        limit_bytes(limits, BOB, hard=MIB)
        result, summary = ran.result().stdout.strip().splitlines()
    assert result.startswith("quota ") and f"user {BOB} has" in result, result
    assert 4 <= int(result.split()[1].rstrip(":")) < pieces, result
    assert re.search(r'"shortcut_calls": ?[1-9]', summary), summary
    assert bytes_of(limits, BOB)["hard"] == MIB


def test_an_mpi_program_is_told_of_the_limit_on_bytes(limits, d):
    program = mpi_writer(limits)
    limit_bytes(limits, BOB, hard="1T")
    used = await_bytes(limits, BOB, lambda used: True)["used"]
    limit_bytes(limits, BOB, hard=used + 40 * MIB)
    ran = as_other(limits, BOB, "run", "-n", 1, "--quiet", "--", program, f"penstock:/{d.name}/f", 64, 0)
    result = ran.stdout.strip()
    assert result.startswith("quota ") and f"user {BOB} has" in result and "`penstock quota`" in result, result
    assert int(result.split()[1].rstrip(":")) <= 40
