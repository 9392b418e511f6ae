"""The store's file system has quotas of its own: on a kernel that has them, in an emulator (tests/kernel.py).

A site caps what a user or a project has on a disk. A deployment there is of that user, and its stores count with
the rest.
"""

import re
import shutil

import pytest
from kernel import PATHS, Guest, present

TOOLS = ("setquota", "repquota", "chattr", "mke2fs", "mkfs.xfs", "setpriv", "stat")
pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(
        not present() or not all(shutil.which(name, path=PATHS) for name in TOOLS),
        reason="needs an x86-64 with qemu-system-x86, busybox-static, quota and xfsprogs",
    ),
]

# The project has 24 MiB of a disk of 256 MiB.
LIMIT_KIB = 24 << 10
SCRIPT = f"""
{{make}} /dev/vda >/dev/null
mkdir -p /store; mount -t {{kind}} -o prjquota /dev/vda /store
mkdir /store/fs
{{project}}
setquota -P 4711 0 {LIMIT_KIB} 0 0 /store
chown user:user /store/fs; chmod 700 /store/fs
user() {{{{ setpriv --reuid 1000 --regid 1000 --clear-groups -- "$@"; }}}}
used() {{{{ repquota -P -n /store | awk '$1 == "#4711" {{{{print $3}}}}'; }}}}
echo "limit: $(stat -f -c '%b * %S' /store/fs)"
user penstock up /store/fs --servers 2 >/dev/null
export PENSTOCK_DEPLOYMENT=/store/fs
head -c 8000000 /dev/urandom >/tmp/small; head -c 40000000 /dev/urandom >/tmp/large
chmod 644 /tmp/small /tmp/large

user penstock cp /tmp/small penstock:/small 2>/dev/null
echo "used: $(used)"; user penstock status | cat; echo "== copies"
for try in 1 2 3 4 5 6 7 8 9 10; do
    user penstock cp --force /tmp/large penstock:/large 2>>/tmp/refused && echo "not refused"
    user penstock rm penstock:/large 2>/dev/null || true
    # Where it was met first is chance: at a descriptor of the object, or at a server.
    grep -q "by shortcut" /tmp/refused && grep -q ": write at data server" /tmp/refused && break
done
sed -n "s/.*penstock: /penstock: /p" /tmp/refused
echo "== mount"
insmod /modules/fuse.ko 2>/dev/null || true
mkdir -p /mnt/fs; penstock mount /mnt/fs
user dd if=/tmp/large of=/mnt/fs/large bs=1M conv=fsync && echo "not refused"
user rm -f /mnt/fs/large
echo "== names"
sleep 3
user dd if=/tmp/large of=/store/fs/others bs=1M 2>/dev/null || true
user penstock mkdir penstock:/full && user penstock cp /tmp/large penstock:/full/x && echo "not refused"
rm /store/fs/others
echo "== again"
sleep 3
user penstock cp /tmp/small penstock:/again 2>/dev/null
user penstock cp penstock:/small /tmp/back 2>/dev/null; cmp /tmp/small /tmp/back && echo "small is whole"
penstock umount /mnt/fs
user penstock check | tail -n 1
user penstock down >/dev/null
echo "== rights"
user setquota -P 4711 0 0 0 0 /store && echo "not refused"
user chattr -p 4711 /store/fs/meta && echo "a file's owner names its project"
echo finished
"""
MAKE = {
    "ext4": "mke2fs -q -t ext4 -O quota,project -E quotatype=prjquota",
    "xfs": "mkfs.xfs -q",
}


# XFS says ENOSPC of a project that has all it may have.
@pytest.mark.parametrize(
    ("kind", "stored", "mounted"),
    [
        ("ext4", "quota is used up", "Disk quota exceeded"),
        ("xfs", "is full: free space", "No space left on device"),
    ],
)
def test_a_project_quota_of_the_store(tmp_path, kind, stored, mounted):
    """Beyond it programs get an error, by requests, by descriptors and through a mount; what they had stays."""
    guest = Guest(tmp_path)
    for name in TOOLS:
        guest.program(name)
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(320 << 20)
    script = SCRIPT.format(make=MAKE[kind], kind=kind, project="chattr +P -p 4711 /store/fs")
    modules = ("quota_tree", "quota_v2", "xfs", "fuse")
    code, said = guest.run(script, [disk], modules)
    print(said)
    assert code == 0 and said.endswith("finished\n"), said
    assert "not refused" not in said
    parts = dict(part.split("\n", 1) for part in said.split("== "))
    assert "free" in said and re.search(r"data-0 .* 24.0 MiB ", said), said
    copies = parts["copies"].splitlines()
    assert all(stored in line for line in copies), said
    assert any("by shortcut" in line for line in copies) and any("by shortcut" not in line for line in copies), said
    assert mounted in parts["mount"] and stored in parts["names"], said
    assert "small is whole" in parts["again"] and "nothing is wrong" in parts["again"], said
    # What decision 30 says of limits for each user.
    assert "Operation not permitted" in parts["rights"] and "names its project" in parts["rights"], said
