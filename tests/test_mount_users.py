"""The mount and users: permission bits, owners; the same rights without a mount."""

import errno
import json
import os
import subprocess
import time

import pytest
from conftest import COMPILERS, PENSTOCK
from mounted import ALICE, BOB, MEMBERS, TEAM, as_root, as_user, fails, mode_of, needs_fuse, touch, write

pytestmark = needs_fuse


@as_root
@pytest.mark.parametrize("bits", range(8))
@pytest.mark.parametrize("who", ["owner", "group", "supplementary", "other"])
def test_permission_bits(d, bits, who):
    user = {
        "owner": (ALICE, TEAM, []),
        "group": (BOB, TEAM, []),
        "supplementary": (BOB, 9, [5, TEAM]),
        "other": (BOB, 9, [5]),
    }[who]
    shift = {"owner": 6, "group": 3, "supplementary": 3, "other": 0}[who]
    f, folder = d / "f", d / "dir"
    write(f, b"data")
    folder.mkdir()
    write(folder / "in")
    for path in (f, folder):
        os.chown(path, ALICE, TEAM)
        # All that the others have is what must not count.
        path.chmod(0o777 & ~(7 << shift) | bits << shift)
    may = {4: bits & 4, 2: bits & 2, 1: bits & 1}

    def check(allowed, call):
        if allowed:
            as_user(*user, call)
        else:
            fails(errno.EACCES, as_user, *user, call)

    check(may[4], lambda: os.close(os.open(f, os.O_RDONLY)))
    check(may[2], lambda: os.close(os.open(f, os.O_WRONLY)))
    check(may[2], lambda: os.truncate(f, 2))
    check(may[4], lambda: os.listdir(folder))
    check(may[1], lambda: os.stat(folder / "in") and None)
    check(may[1] and may[2], lambda: touch(folder / "new"))
    check(may[1] and may[2], lambda: os.unlink(folder / "in"))
    assert as_user(*user, lambda: [os.access(f, os.R_OK), os.access(f, os.W_OK), os.access(f, os.X_OK)]) == [
        bool(may[4]),
        bool(may[2]),
        bool(may[1]),
    ]


@as_root
def test_owners(d):
    f = d / "f"
    as_user(ALICE, TEAM, [7], lambda: touch(f))
    assert (f.stat().st_uid, f.stat().st_gid) == (ALICE, TEAM)
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.chmod(f, 0o777))
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.utime(f, ns=(1, 1)))
    fails(errno.EACCES, as_user, BOB, TEAM, [], lambda: os.utime(f))
    fails(errno.EPERM, as_user, ALICE, TEAM, [], lambda: os.chown(f, BOB, -1))
    fails(errno.EPERM, as_user, ALICE, TEAM, [], lambda: os.chown(f, -1, 99))
    as_user(ALICE, TEAM, [7], lambda: os.chown(f, -1, 7))
    assert f.stat().st_gid == 7
    as_user(ALICE, TEAM, [], lambda: os.chmod(f, 0o666))
    as_user(BOB, 9, [], lambda: os.utime(f))
    f.chmod(0o6755)
    os.chown(f, BOB, -1)
    assert mode_of(f) == 0o755 and f.stat().st_uid == BOB
    f.chmod(0o4777)
    as_user(ALICE, TEAM, [], lambda: write(f, b"changed") and None)
    time.sleep(0.15)
    assert mode_of(f) == 0o777, "who may not keep the bit takes it away by writing"
    os.setxattr(f, "trusted.t", b"root's")
    assert "trusted.t" not in as_user(ALICE, TEAM, [], lambda: os.listxattr(f))
    fails(errno.EPERM, as_user, ALICE, TEAM, [], lambda: os.setxattr(f, "trusted.u", b""))


@as_root
def test_sticky_and_set_group_directories(d):
    sticky, group = d / "sticky", d / "group"
    sticky.mkdir()
    sticky.chmod(0o1777)
    as_user(ALICE, TEAM, [], lambda: touch(sticky / "hers"))
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.unlink(sticky / "hers"))
    fails(errno.EPERM, as_user, BOB, TEAM, [], lambda: os.rename(sticky / "hers", sticky / "his"))
    as_user(ALICE, TEAM, [], lambda: os.unlink(sticky / "hers"))
    group.mkdir()
    os.chown(group, ALICE, TEAM)
    group.chmod(0o2777)
    as_user(BOB, 9, [], lambda: touch(group / "f"))
    as_user(BOB, 9, [], lambda: os.mkdir(group / "sub"))
    assert (group / "f").stat().st_gid == TEAM == (group / "sub").stat().st_gid
    assert mode_of(group / "sub") & 0o2000


def test_own_bits_hold_without_root(d):
    """What can be tested as any user: the owner's own bits, unless that is root."""
    f = d / "f"
    write(f)
    f.chmod(0o000)
    if os.geteuid() == 0:
        os.chown(f, ALICE, TEAM)
        fails(errno.EACCES, as_user, ALICE, TEAM, [], lambda: os.close(os.open(f, os.O_RDONLY)))
    else:
        fails(errno.EACCES, os.open, f, os.O_RDONLY)


MPI_OPEN = """
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int i = 1; i + 1 < argc; i += 2) {
        int mode = argv[i][0] == 'r' ? MPI_MODE_RDONLY : MPI_MODE_WRONLY, class = 0;
        if (argv[i][0] == 'c')
            mode |= MPI_MODE_CREATE;
        MPI_File f;
        int code = MPI_File_open(MPI_COMM_SELF, argv[i + 1], mode, MPI_INFO_NULL, &f);
        if (code == MPI_SUCCESS)
            MPI_File_close(&f);
        else
            MPI_Error_class(code, &class);
        puts(code == MPI_SUCCESS ? "ok" : class == MPI_ERR_ACCESS ? "access" : "other");
    }
    return MPI_Finalize();
}
"""


def direct_user(deployment, uid, gid, groups, arguments):
    """`penstock` as another user, without a mount."""

    def become():
        os.setgroups(groups)
        os.setgid(gid)
        os.setuid(uid)

    return subprocess.run(
        [str(PENSTOCK), *map(str, arguments)],
        preexec_fn=become,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": "/tmp", "PENSTOCK_DEPLOYMENT": str(deployment)},
        cwd="/",
    )


@as_root
def test_client_library_and_mpi_io_give_the_same_rights(place, d):
    deployment = place[0]
    opener = deployment.parent / "opener"
    opener.with_suffix(".c").write_text(MPI_OPEN)
    subprocess.run([COMPILERS["mpich"], "-o", opener, opener.with_suffix(".c")], check=True)
    if (
        not os.access("/", os.X_OK)
        or subprocess.run(
            ["setpriv", f"--reuid={BOB}", "--clear-groups", "ls", str(PENSTOCK), str(COMPILERS["mpich"].resolve())],
            stdout=subprocess.DEVNULL,
            check=False,
        ).returncode
    ):
        pytest.skip("users are not changed: others cannot reach the built command and MPI here")
    write(d / "open", b"all")
    write(d / "closed", b"mine")
    write(d / "hers", b"hers")
    (d / "open").chmod(0o644)
    (d / "closed").chmod(0o600)
    os.chown(d / "hers", ALICE, TEAM)
    (d / "hers").chmod(0o640)
    names = {name: f"penstock:/{d.name}/{name}" for name in ("open", "closed", "hers")}
    user = (BOB, 9, [MEMBERS])

    def run(*arguments):
        return direct_user(deployment, *user, arguments)

    assert run("cp", names["open"], "/dev/fd/1").returncode in (0, 1)
    refused = run("cp", names["closed"], "/tmp/never")
    assert refused.returncode == 1 and "may not read" in refused.stderr
    assert run("rm", names["hers"]).returncode == 0, "the directory is open to all"
    removed = run("rm", f"/{d.name}")
    assert removed.returncode == 1
    stranger = direct_user(deployment, BOB, 9, [], ["ls", "/"])
    assert stranger.returncode == 1, "who is not in the group is kept out altogether"
    write(d / "hers", b"hers")
    os.chown(d / "hers", ALICE, TEAM)
    (d / "hers").chmod(0o640)
    asked = ["r", names["open"], "w", names["open"], "r", names["closed"], "r", names["hers"]]
    asked += ["c", f"penstock:/{d.name}/new"]
    done = run("run", "-n", 1, "--quiet", "--", opener, *asked)
    assert done.stdout.split() == ["ok", "access", "access", "access", "ok"], done.stdout + done.stderr
    assert (d / "new").stat().st_uid == BOB
    # A member of hers's group reads what the group may.
    user = (BOB, 9, [MEMBERS, TEAM])
    done = run("run", "-n", 1, "--quiet", "--", opener, "r", names["hers"], "w", names["hers"])
    assert done.stdout.split() == ["ok", "access"], done.stdout + done.stderr


@as_root
def test_only_root_and_the_owner_mount(place, short_dir):
    short_dir.chmod(0o777)
    point = short_dir / "mnt"
    point.mkdir()
    os.chown(point, BOB, 9)
    if subprocess.run(
        ["setpriv", f"--reuid={BOB}", "--clear-groups", "test", "-x", str(PENSTOCK)], check=False
    ).returncode:
        pytest.skip("users are not changed: others cannot reach the built command here")
    done = direct_user(place[0], BOB, 9, [MEMBERS], ["mount", point, "--foreground"])
    assert done.returncode == 1 and "root or the owner" in done.stderr, done.stderr


# As another user, in a mount namespace where that user may open /dev/fuse, as udev has it on ordinary systems.
OWN_MOUNT = """
set -e
top=$1
mknod -m 666 "$top/fuse" c 10 229
mount --bind "$top/fuse" /dev/fuse
as() { user=$1; shift; HOME=/tmp setpriv --reuid="$user" --regid="$user" --clear-groups "$@"; }
cd "$top/home"
as 65534 "$top/penstock" up fs --servers 1
as 65534 "$top/penstock" mount mnt -d fs
as 65534 sh -c 'echo mine > mnt/f; mkdir mnt/d; stat -c "%n %u %g %a" mnt/f mnt/d; cat mnt/f'
grep -c "$top/home/mnt" /proc/self/mountinfo
# Nobody else gets in, not even root.
! as 1 ls mnt
! ls mnt
as 65534 "$top/penstock" stat penstock:/f -d fs --json
as 65534 "$top/penstock" umount mnt
as 65534 "$top/penstock" down -d fs
"""


def own_command(directory):
    """The command at a place that every user can reach."""
    directory.chmod(0o755)
    command = directory / "penstock"
    command.write_bytes(PENSTOCK.read_bytes())
    command.chmod(0o755)
    return command


@as_root
def test_an_ordinary_user_mounts_a_deployment_of_his_own(short_dir):
    own_command(short_dir)
    (short_dir / "home" / "mnt").mkdir(parents=True)
    for path in (short_dir / "home", short_dir / "home" / "mnt"):
        os.chown(path, 65534, 65534)
    if subprocess.run(["unshare", "-m", "true"], capture_output=True, check=False).returncode:
        pytest.skip("no mount namespace can be made here: mounting as an ordinary user is not tested")
    command = ["unshare", "-m", "sh", "-c", OWN_MOUNT, "sh", short_dir]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert "mnt/f 65534 65534 644" in lines and "mnt/d 65534 65534 755" in lines and "mine" in lines, lines
    assert "1" in lines and json.loads(next(line for line in lines if line.startswith("{")))["uid"] == 65534
    assert os.listdir(short_dir / "home" / "mnt") == []
