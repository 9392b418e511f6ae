"""A fast tier before slow stores, as a user sees it: what is written there is there, after kill -9 too, and comes home."""

import hashlib
import shutil
import sys
import time

import pytest
from conftest import penstock
from test_crash import kill, server_pid

# 800 B at places of their own in a file: parts of pages, far apart. With a third argument only a check of the bytes.
PROGRAM = """
import sys
from mpi4py import MPI
comm = MPI.COMM_WORLD
name, blocks = sys.argv[1], int(sys.argv[2])
check = len(sys.argv) > 3
mode = MPI.MODE_RDONLY if check else MPI.MODE_CREATE | MPI.MODE_RDWR
f = MPI.File.Open(comm, name, mode)
def value(i):
    return bytes((i * 7 + k) % 251 + 1 for k in range(800))
places = [(i * 7919) % blocks for i in range(blocks)][comm.rank::comm.size]
buffer = bytearray(800)
for i in places:
    if check:
        f.Read_at(i * 100_003, buffer)
        assert buffer == value(i), f"block {i}"
    else:
        f.Write_at(i * 100_003, value(i))
if not check:
    f.Sync()
    f.Read_at(places[0] * 100_003, buffer)
    assert buffer == value(places[0])
f.Close()
print("good")
"""


@pytest.fixture
def slow(short_dir):
    """Makes a deployment of one server: a modelled disk that keeps its bytes in files, behind a fast tier."""
    fs = short_dir / "fs"

    def up(*options, fast=None, device="hdd,dir"):
        shape = ("--servers", 1, *(("--device", device) if device else ()))
        penstock("up", fs, *shape, "--fast", fast or short_dir / "fast", *options)
        return fs

    yield up
    penstock("down", fs, "--force", check=False)


def program(fs, tmp_path, *args, check=True):
    script = tmp_path / "small.py"
    script.write_text(PROGRAM)
    run = ("run", "-n", 2, "--quiet", "-d", fs, "--", sys.executable, "-m", "mpi4py", script)
    return penstock(*run, "penstock:/f", *args, check=check)


def tier(fs):
    return penstock("status", fs, "--json").json()[0]["servers"][0]["fast"]


def test_small_writes_survive_kill_9_and_come_home(slow, short_dir, tmp_path):
    fs = slow()
    program(fs, tmp_path, 1500)
    kill([server_pid(fs, "data-0")])
    penstock("up", fs)
    after = tier(fs)
    assert after["waiting"] > 0, after
    assert "not home" in penstock("status", fs).out
    program(fs, tmp_path, 1500, "check")
    assert penstock("check", "-d", fs).code == 0
    drained = penstock("drain", fs)
    assert "nothing waits" in drained.out
    done = tier(fs)
    assert done["waiting"] == 0 and done["home"] > 0, done
    program(fs, tmp_path, 1500, "check")
    assert penstock("check", "-d", fs).code == 0
    # Without its tier the store has everything now.
    penstock("down", fs)
    shutil.rmtree(short_dir / "fast")
    penstock("up", fs, "--fast", "off")
    assert tier(fs) is None
    program(fs, tmp_path, 1500, "check")
    refused = penstock("drain", fs)
    assert "nothing waits" in refused.out


def test_a_checkpoint_is_as_fast_as_the_tier(slow, tmp_path):
    fs = slow("--tune", "fast=off")
    began = time.monotonic()
    program(fs, tmp_path, 300)
    without = time.monotonic() - began
    penstock("tune", "fast=auto", "-d", fs)
    assert "auto" in penstock("tune", "-d", fs).out
    began = time.monotonic()
    program(fs, tmp_path, 301)
    took = time.monotonic() - began
    print(f"300 writes of 800 B to a modelled disk: {without:.2f} s without, {took:.2f} s with the tier")
    assert tier(fs)["writes"] >= 301
    assert took < without
    wrong = penstock("tune", "fast=maybe", "-d", fs, check=False)
    assert wrong.code == 1 and "auto, on or off" in wrong.err


def test_a_store_and_its_tier_belong_together(slow, short_dir, tmp_path):
    fs = slow()
    program(fs, tmp_path, 800)
    penstock("down", fs)
    # Bytes are in the tier alone: no start without it.
    toml = fs / "deployment.toml"
    text = toml.read_text()
    assert "fast:" in text
    refused = penstock("up", fs, "--fast", "off", check=False)
    assert refused.code == 1 and "penstock drain" in refused.err, refused.err
    toml.write_text(text)
    # The device is not mounted.
    (short_dir / "fast").rename(short_dir / "away")
    refused = penstock("up", fs, check=False)
    assert refused.code == 1 and "there is no fast tier" in refused.err, refused.err
    (short_dir / "away").rename(short_dir / "fast")
    penstock("up", fs)
    program(fs, tmp_path, 800, "check")
    assert penstock("check", "-d", fs).code == 0
    running = penstock("up", fs, "--fast", "off", check=False)
    assert running.code == 1 and "runs" in running.err, running.err


def test_an_existing_deployment_gets_a_tier(slow, short_dir, tmp_path):
    fs = short_dir / "fs"
    penstock("up", fs, "--servers", 2)
    program(fs, tmp_path, 50)
    penstock("down", fs)
    penstock("up", fs, "--fast", f"{short_dir / 'fast'},queue=2MiB")
    program(fs, tmp_path, 200)
    program(fs, tmp_path, 200, "check")
    assert tier(fs)["limit"] == 2 << 20
    wrong = penstock("up", fs, "--fast", f"{short_dir / 'fast'},queue=2", check=False)
    assert wrong.code == 2 and "too small" in wrong.err, wrong.err


def test_a_full_tier_lets_writes_past(slow, short_dir, tmp_path):
    fs = slow("--tune", "fast=on", fast=f"{short_dir / 'fast'},queue=1MiB")
    data = hashlib.sha256(b"x").digest() * 150_000
    (tmp_path / "in").write_bytes(data)
    penstock("cp", tmp_path / "in", "penstock:/big", "-d", fs)
    full = tier(fs)
    assert full["refused"] > 0 and full["log"] <= full["limit"] + (1 << 20), full
    penstock("cp", "penstock:/big", tmp_path / "out", "-d", fs)
    assert (tmp_path / "out").read_bytes() == data
    penstock("rm", "penstock:/big", "-d", fs)
    penstock("drain", fs)
    assert penstock("check", "-d", fs).code == 0


def test_a_flipped_bit_is_found_and_never_returned(slow, short_dir, tmp_path):
    fs = slow()
    program(fs, tmp_path, 800)
    kill([server_pid(fs, "data-0")])
    segment = max((short_dir / "fast" / "data-0").glob("segment-*"))
    log = bytearray(segment.read_bytes())
    # In the bytes of a record, near the end: it came home last.
    log[-64 - 400] ^= 4
    segment.write_bytes(log)
    penstock("up", fs)
    checked = penstock("check", "-d", fs, check=False)
    assert checked.code == 1 and "not those that were written" in checked.out, checked.out
    read = program(fs, tmp_path, 800, "check", check=False)
    assert read.code != 0 and "damaged" in read.out + read.err, read.out + read.err
    # What is written anew is whole again.
    program(fs, tmp_path, 800)
    program(fs, tmp_path, 800, "check")
    penstock("drain", fs)
    assert penstock("check", "-d", fs).code == 0
