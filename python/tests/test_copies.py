"""Large accesses take no memory beside the caller's: in processes that may not have a second copy."""

import subprocess
import sys

import pytest

PROGRAM = """
import re, resource, sys
import numpy as np
import penstock

MIB = 1 << 20
path, how, shortcuts = sys.argv[2], sys.argv[3], sys.argv[4] == "shortcuts"
f = penstock.connect(sys.argv[1], shortcuts=shortcuts).open(path, "w+b")


def values(shape, order="C"):
    return np.arange(np.prod(shape), dtype="f8").reshape(shape, order=order)


def bounded(room=64 * MIB):
    # From here on there is room for so much more, and for no second copy.
    used = int(re.search(r"VmData:\\s+(\\d+) kB", open("/proc/self/status").read())[1]) << 10
    resource.setrlimit(resource.RLIMIT_DATA, (used + room, used + room))
    try:
        np.empty(room + MIB, "u1")
    except MemoryError:
        return
    raise SystemExit("the limit does not hold")


# Threads, connections and buffers are there before.
f.write(values((1000, 100)))
f.array((1000, 100), "f8")[:, ::2]
if how == "plain":
    a, b = values(32 * MIB), np.zeros(32 * MIB)
    into = bytearray(256 * MIB)
    bounded()
    assert f.pwrite(a, 0) == 256 * MIB == f.pwrite(memoryview(a).cast("B"), 256 * MIB)
    assert f.preadinto(b, 0) == 256 * MIB and np.array_equal(a[:MIB], b[:MIB]) and b[-1] == a[-1]
    f.seek(256 * MIB)
    assert f.readinto(memoryview(into)) == 256 * MIB and into[-8:] == a[-1:].tobytes()
    assert f.pwrite(into, 0) == 256 * MIB
elif how == "read":
    a = values(32 * MIB)
    f.pwrite(a, 0)
    last = a[-1:].tobytes()
    del a
    # What is returned, and that is all.
    bounded(320 * MIB)
    got = f.pread(256 * MIB, 0)
    assert len(got) == 256 * MIB and got[-8:] == last
    del got
    f.seek(0)
    got = f.read()
    assert len(got) == 256 * MIB and got[-8:] == last
elif how == "fortran":
    shape = (2048, 8192)
    a, b = values(shape, "F"), np.zeros(shape, order="F")
    view = f.array(shape, "f8", order="F")
    bounded()
    view[...] = a
    view.read(..., out=b)
    assert np.array_equal(a[:, -1], b[:, -1]) and np.array_equal(a[-1], b[-1])
    # In the other order: turned round on the way, not in memory.
    turned = f.array((64, 64, 64), "f8")
    turned[...] = a[:64, :64][:, :, None]
    assert np.array_equal(turned[:, :, 5], a[:64, :64])
elif how == "strided":
    shape = (2048, 8192)
    a, b = values(shape), np.zeros(shape)
    view = f.array(shape, "f8")
    bounded()
    view[...] = a
    view.read((slice(None, None, 2), slice(None, 4096)), out=b[1::2, 4096:])
    assert np.array_equal(b[1::2, 4096:][-1], a[::2, :4096][-1]) and not b[::2].any()
    view[::-2, 100:4100] = a[::-2, 100:4100]
    assert f.pwrite(a[::2], 0) == a[::2].nbytes
    assert f.preadinto(b[::2], 0) == a[::2].nbytes and np.array_equal(b[2], a[2])
print("done")
"""


@pytest.mark.parametrize(
    ("how", "shortcuts"),
    [
        ("plain", "requests"),
        ("plain", "shortcuts"),
        ("read", "requests"),
        ("fortran", "requests"),
        ("strided", "shortcuts"),
    ],
)
def test_large_accesses_make_no_second_copy(deployment, fs, top, how, shortcuts):
    fs.create(f"{top}/f", stripe_unit=1 << 20)
    command = [sys.executable, "-c", PROGRAM, str(deployment), f"{top}/f", how, shortcuts]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
