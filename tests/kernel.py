"""Debian's own kernel in an emulator, with this tree's `penstock`: for what the machine's kernel lacks or nobody may try on it.

A guest is an initramfs with busybox, the programs that a test names with their libraries, and a script. Its disks are image files.
It has no network, writes to this machine's disk nothing but those images, and ends with the script.
"""

import functools
import gzip
import itertools
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from conftest import PENSTOCK, ROOT

PACKAGE = "linux-image-cloud-amd64"
PATHS = "/usr/sbin:/usr/bin:/sbin:/bin"
TOOLS = ("qemu-system-x86_64", "busybox", "apt-get", "dpkg-deb", "ldd", "strip")
# Of the bus and of disks. A test adds its own.
MODULES = ("virtio_pci", "virtio_blk")
INIT = """#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run /mnt /usr/bin /usr/sbin /sbin
/bin/busybox --install -s
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root TMPDIR=/tmp
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs devtmpfs /dev
mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
ln -s /proc/self/fd /dev/fd; ip link set lo up
for module in $(cat /modules.order); do insmod /modules/$module.ko || echo "no module $module"; done
echo "-----BEGIN-----"; bash -e /script </dev/null 2>&1; echo "-----END $?-----"
poweroff -f
"""


def present():
    tools = all(shutil.which(name, path=PATHS) for name in TOOLS)
    return tools and os.uname().machine == "x86_64"


@functools.cache
def kernel():
    """Debian's newest kernel of the release, unpacked below target/."""
    asked = subprocess.run(["apt-cache", "depends", PACKAGE], capture_output=True, text=True, check=True).stdout
    package = re.search(r"Depends: (linux-image-\S+)", asked)[1]
    place = ROOT / "target" / "kernel" / package
    if not place.exists():
        new = place.with_name(f"{package}.{os.getpid()}")
        new.mkdir(parents=True)
        subprocess.run(["apt-get", "download", "-qq", package], cwd=new, check=True, timeout=600)
        (deb,) = new.glob("*.deb")
        subprocess.run(["dpkg-deb", "-x", deb, new], check=True)
        deb.unlink()
        new.rename(place)
    return place


def module_files(names):
    """Modules and what they need, each after what it needs."""
    built = {p.stem.replace("-", "_"): p for p in kernel().rglob("*.ko")}
    order = []

    def add(name):
        path = built.get(name.replace("-", "_"))
        if path is None or path in order:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", b"\0" + path.read_bytes())
        for need in filter(None, needs[1].decode().split(",") if needs else []):
            add(need)
        order.append(path)

    for name in names:
        add(name)
    return order


class Guest:
    """What is in the initramfs."""

    def __init__(self, directory):
        self.dir = Path(directory)
        self.root = self.dir / "root"
        for name in ("bin", "etc", "root", "modules"):
            (self.root / name).mkdir(parents=True)
        self.program("busybox", "bin/busybox")
        # Busybox's shell takes its own programs before all others.
        self.program("bash")
        stripped = self.dir / "penstock"
        subprocess.run(["strip", "-o", stripped, PENSTOCK], check=True)
        self.program(stripped, "usr/bin/penstock")
        self.file("etc/passwd", "root:x:0:0::/root:/bin/sh\nuser:x:1000:1000::/tmp:/bin/sh\n")
        self.file("etc/group", "root:x:0:\nuser:x:1000:\n")
        self.file("init", INIT, 0o755)

    def file(self, path, text, mode=0o644):
        target = self.root / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text)
        target.chmod(mode)

    def program(self, name, path=None):
        """A program of this machine, with the libraries that it loads."""
        source = Path(shutil.which(str(name), path=PATHS) or name)
        target = self.root / (path or f"usr/bin/{source.name}")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
        target.chmod(0o755)
        listed = subprocess.run(["ldd", source], capture_output=True, text=True, check=False).stdout
        for library in map(Path, re.findall(r"(/\S+) \(0x", listed)):
            copy = self.root / library.relative_to("/")
            if not copy.exists():
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(library, copy)

    def archive(self):
        """The initramfs: cpio's `newc` format."""
        packed = bytearray()

        numbers = itertools.count(1)

        def entry(name, mode, data=b""):
            fields = (next(numbers), mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0)
            packed.extend(b"070701" + b"".join(b"%08X" % field for field in fields) + name.encode() + b"\0")
            packed.extend(b"\0" * (-len(packed) % 4) + data)
            packed.extend(b"\0" * (-len(packed) % 4))

        for path in sorted(self.root.rglob("*")):
            kind = path.lstat().st_mode
            data = path.read_bytes() if stat.S_ISREG(kind) else b""
            entry(str(path.relative_to(self.root)), kind, data)
        entry("TRAILER!!!", 0)
        target = self.dir / "initramfs.gz"
        target.write_bytes(gzip.compress(bytes(packed), 1))
        return target

    def run(self, script, disks=(), modules=(), timeout=400, memory="1G"):
        """What the script says, and its exit code. Disks are /dev/vda and so on."""
        self.file("script", script)
        files = module_files([*MODULES, *modules])
        for path in files:
            shutil.copy(path, self.root / "modules" / path.name)
        self.file("modules.order", "".join(f"{path.stem}\n" for path in files))
        (image,) = kernel().glob("boot/vmlinuz-*")
        # Not KVM: in a virtual machine it may be there and not work. Booting takes ten seconds.
        words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max", "-smp", "2", "-m", memory]
        words += ["-nodefaults", "-no-user-config", "-nographic", "-no-reboot", "-serial", "stdio"]
        # On a busy machine the kernel would find that its timer does not work.
        line = "console=ttyS0 quiet panic=-1 no_timer_check"
        words += ["-kernel", image, "-initrd", self.archive(), "-append", line]
        for disk in disks:
            words += ["-drive", f"file={disk},if=virtio,format=raw,cache=unsafe"]
        log = self.dir / "console"
        with (
            log.open("wb") as out,
            subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=out, stderr=out) as guest,
        ):
            try:
                guest.wait(timeout=timeout)
            except subprocess.TimeoutExpired:
                guest.kill()
        console = log.read_text(errors="replace").replace("\r", "")
        said = re.search(r"-----BEGIN-----\n(.*)-----END (\d+)-----", console, re.DOTALL)
        assert said, console
        return int(said[2]), said[1]
