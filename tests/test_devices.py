"""Modelled devices under real servers: a slow disk is slow by about the model's figure, and bad names are refused."""

import sys

import pytest
from conftest import penstock

PROGRAM = """
import sys, time, random
from mpi4py import MPI
f = MPI.File.Open(MPI.COMM_WORLD, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
f.Set_size(1 << 30)
f.Write_at((1 << 30) - 4096, bytearray(b"x" * 4096))
f.Sync()
rank, size = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
places = random.Random(1).sample(range(262144), 48)[rank::size]
buffer = bytearray(4096)
MPI.COMM_WORLD.Barrier()
begun = time.monotonic()
for place in places:
    f.Read_at(place * 4096, buffer)
MPI.COMM_WORLD.Barrier()
if rank == 0:
    print("seconds", time.monotonic() - begun)
f.Read_at((1 << 30) - 4096, buffer)
assert buffer == b"x" * 4096
f.Close()
"""


def seconds(tmp_path, device, ranks, *options):
    """Time of 48 random reads of 4 KiB from a file of 1 GiB on one server."""
    script = tmp_path / "reads.py"
    script.write_text(PROGRAM)
    done = penstock(
        "run", "-n", ranks, "--servers", 1, "--device", device, *options, "--quiet", "--",
        sys.executable, "-m", "mpi4py", script, "penstock:/f",
    )  # fmt: skip
    return float(done.out.split("seconds")[1].split()[0])


@pytest.mark.alone
def test_random_reads_take_the_time_of_the_model(tmp_path):
    # Overhead 0.2, half a turn 4.2 and a short seek of 0.5 to 1.5 ms: about 5.5 ms each, one after the other.
    disk = seconds(tmp_path, "hdd,queue=none,read-ahead=0", 1)
    assert 48 * 0.003 < disk < 48 * 0.030, disk
    fast = seconds(tmp_path, "hdd,queue=none,read-ahead=0", 1, "--time-scale", 1000)
    assert fast < disk / 3, (fast, disk)


@pytest.mark.alone
def test_requests_of_several_ranks_meet_in_the_device(tmp_path):
    # No order of service makes 48 separate places on a disk cheaper than 1 ms each: requests are not served apart.
    together = seconds(tmp_path, "hdd,read-ahead=0", 4)
    assert together > 48 * 0.001, together


@pytest.mark.alone
def test_a_fragmented_file_costs_seeks(tmp_path):
    # 48 extents of 64 KiB in order; nearly all of them lie elsewhere: a seek and half a turn each, 8 ms and more.
    script = tmp_path / "inorder.py"
    program = PROGRAM.replace(
        "random.Random(1).sample(range(262144), 48)[rank::size]", "range(0, 48 * 16, 16)[rank::size]"
    )
    script.write_text(program)
    done = penstock(
        "run", "-n", 1, "--servers", 1, "--device", "hdd,queue=none,fragmentation=1,extent=64k", "--quiet", "--",
        sys.executable, "-m", "mpi4py", script, "penstock:/f",
    )  # fmt: skip
    assert float(done.out.split("seconds")[1].split()[0]) > 48 * 0.005, done.out


def test_names_and_options_are_checked(short_dir):
    for device, word in [("floppy", "pastel"), ("hdd,colour=red", "write-cache"), ("hdd,scale=0", "0.001")]:
        done = penstock("up", short_dir / "fs", "--device", device, check=False)
        assert done.code != 0
        assert word in done.err
    for options, word in [(("--device", "hdd", "--time-scale", 0), "0.001"), (("--time-scale", 2), "--device")]:
        done = penstock("up", short_dir / "fs", *options, check=False)
        assert done.code != 0 and word in done.err, done.err
    assert "suno" in penstock("up", "--help").out


def test_bytes_that_stay(short_dir):
    directory = short_dir / "fs"
    (short_dir / "in").write_bytes(b"penstock" * 1000)
    penstock("up", directory, "--servers", 1, "--device", "ssd,scale=100,dir")
    penstock("-d", directory, "cp", short_dir / "in", "penstock:/a")
    stores = [s["store"] for s in penstock("status", directory, "--json").json()[0]["servers"]]
    assert "modelled ssd" in stores[0]
    penstock("down", directory)
    penstock("up", directory)
    penstock("-d", directory, "cp", "penstock:/a", short_dir / "out")
    penstock("down", directory)
    assert (short_dir / "out").read_bytes() == b"penstock" * 1000
