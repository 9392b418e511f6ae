"""Libraries that people use on top of MPI-IO, as Debian ships them, and parallel h5py: examples/libraries.

Each program checks what it reads. The file it wrote through Penstock must be, byte for byte, the one that it writes
with its MPI library's own MPI-IO. It must open with a plain serial library after `penstock cp`.
"""

import json
import os
import subprocess

import h5py
import numpy as np
import pytest
from conftest import PENSTOCK, ROOT, crossed, penstock
from debian import Debian, needs_debootstrap
from mounted import needs_fuse

SOURCES = ROOT / "examples" / "libraries"
PROGRAMS = ROOT / "target" / "examples" / "libraries"
# Debian's Python has parallel h5py for Open MPI; `make h5py` builds one for MPICH.
DEBIAN_PYTHON = "/usr/bin/python3"
MPICH_PYTHON = ROOT / ".venv" / "h5py" / "bin" / "python"
RANKS = 3
FILE = "FILE"
MPICH = ["mpiexec.mpich"]
OPENMPI = ["mpiexec.openmpi", "--oversubscribe"]
# name: the launcher of its MPI, and its command
CASES = {
    "hdf5-mpich": (MPICH, [PROGRAMS / "hdf5-mpich", FILE]),
    "hdf5-openmpi": (OPENMPI, [PROGRAMS / "hdf5-openmpi", FILE]),
    "h5py": (OPENMPI, [DEBIAN_PYTHON, SOURCES / "h5py_fields.py", FILE]),
    "h5py-mpich": (MPICH, [MPICH_PYTHON, SOURCES / "h5py_fields.py", FILE]),
    "netcdf4": (OPENMPI, [PROGRAMS / "netcdf-openmpi", FILE]),
    "netcdf-cdf5": (OPENMPI, [PROGRAMS / "netcdf-openmpi", FILE, "--format", "cdf5"]),
    "pnetcdf": (OPENMPI, [PROGRAMS / "pnetcdf-openmpi", FILE]),
}
LONG = ("h5py-mpich",)
# PnetCDF opens an existing file with POSIX calls to see what it is: it wants plain paths, and a mount to read.
POSIX = ("netcdf-cdf5", "pnetcdf")
METHODS = ("posix", "sieve", "two-phase", "list", "datatype", "node-exchange", "resonant")


def cases(names):
    return [pytest.param(name, marks=pytest.mark.long if name in LONG else ()) for name in names]


def good(done):
    (said,) = [line for line in done.json() if "case" in line]
    assert said["values_wrong"] == 0 and said["ranks"] == RANKS, said
    assert "no file of Penstock" not in done.err
    return said


def command(case, path, *more):
    return [path if part is FILE else part for part in CASES[case][1]] + list(more)


def run(case, path, *options, arguments=()):
    return penstock("run", "-n", RANKS, *options, "--", *command(case, path, *arguments))


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    """The bytes that a case writes with its MPI library's own MPI-IO."""
    made = {}

    def content(case):
        if case not in made:
            path = tmp_path_factory.mktemp("own") / "file"
            done = subprocess.run(
                [*CASES[case][0], "-n", str(RANKS), *command(case, path)],
                env={k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")}
                | {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
            made[case] = path.read_bytes()
        return made[case]

    return content


@pytest.mark.parametrize("case", cases(case for case in CASES if case not in POSIX))
def test_through_the_servers(case, deployment, own, tmp_path):
    where = ("--deployment", deployment)
    good(run(case, f"penstock:/{case}", *where))
    # Again over a file that exists, and with every request through the servers.
    good(run(case, f"penstock:/{case}", *where, "--shortcut", "disable"))
    copy = tmp_path / "copy"
    penstock("cp", *where, f"penstock:/{case}", copy)
    assert copy.read_bytes() == own(case)


@needs_fuse
@pytest.mark.parametrize("case", POSIX)
def test_written_and_read_by_plain_path(case, deployment, own, short_dir, tmp_path):
    """One program writes and reads: the library's POSIX calls go through the mount, its MPI-IO to the servers."""
    where = ("--deployment", deployment)
    mount, copy = short_dir / "mnt", tmp_path / "copy"
    mount.mkdir()
    for _ in range(2):  # the second time over a file that exists
        done = run(case, mount / case, *where, "--mount", mount, "--json")
        assert good(done)["values_checked"] > 1000
        (summary,) = [line for line in done.json() if "case" not in line]
        assert case in json.dumps(summary), "MPI-IO went to the servers, not through the mount"
    # Another program finds it by the same name, and so does a mount.
    assert good(run(case, mount / case, *where, "--mount", mount, arguments=["--read-only"]))["values_checked"] > 1000
    penstock("cp", *where, f"penstock:/{case}", copy)
    assert copy.read_bytes() == own(case)
    penstock("mount", mount, "-d", deployment)
    try:
        assert (mount / case).read_bytes() == own(case)
    finally:
        penstock("umount", "--lazy", mount)


@pytest.mark.parametrize("case", POSIX)
def test_through_the_servers_by_plain_path(case, deployment, own, tmp_path):
    """The same where nothing is mounted: written through the servers, read back from a copy."""
    where = ("--deployment", deployment)
    mount, copy = tmp_path / "not mounted", tmp_path / "copy"
    good(run(case, mount / case, *where, "--mount", mount, arguments=["--write-only"]))
    penstock("cp", *where, f"penstock:/{case}", copy)
    assert copy.read_bytes() == own(case)
    assert good(run(case, copy, "--direct", arguments=["--read-only"]))["values_checked"] > 1000


@pytest.mark.parametrize("case", cases(CASES))
def test_direct(case, own, tmp_path):
    good(run(case, tmp_path / "file", "--direct"))
    assert (tmp_path / "file").read_bytes() == own(case)


@pytest.mark.parametrize(("case", "ranks"), crossed(["hdf5-mpich", "hdf5-openmpi"], [1, 2, RANKS]))
def test_hdf5_closes_what_is_open_in_finalize(case, ranks, deployment, tmp_path):
    """HDF5 does it in a delete callback on MPI_COMM_SELF, with collective writes."""
    where = ("-d", deployment)
    closed, left = "penstock:/closed", "penstock:/left"
    penstock("run", "-n", ranks, *where, "--", *command(case, closed, "--write-only"))
    penstock("cp", *where, closed, tmp_path / "closed")
    # Which bytes nobody has written does HDF5 choose differently; what it holds is the same.
    penstock("run", "-n", ranks, *where, "--", *command(case, left, "--leave-open"), timeout=60)
    penstock("cp", *where, left, tmp_path / "copy")
    penstock("run", "-n", ranks, "--direct", "--", *command(case, tmp_path / "left", "--leave-open"), timeout=60)
    assert (tmp_path / "copy").read_bytes() == (tmp_path / "left").read_bytes()
    assert (tmp_path / "copy").stat().st_size == (tmp_path / "closed").stat().st_size
    for options, path in ((where, left), (["--direct"], tmp_path / "left")):
        done = penstock("run", "-n", ranks, *options, "--", *command(case, path, "--read-only"))
        (said,) = [line for line in done.json() if "case" in line]
        assert said["values_wrong"] == 0 and said["values_checked"] > 1000, said


# In Debian 13: HDF5 1.14, MPICH 4.2, Open MPI 5.
NEWER = """
apt-get update -qq
apt-get install -y -qq --no-install-recommends gcc libc6-dev \
    mpich libmpich-dev libhdf5-mpich-dev openmpi-bin libopenmpi-dev libhdf5-openmpi-dev >/dev/null
libraries=/usr/lib/$(gcc -print-multiarch)
for mpi in mpich openmpi; do
    mpicc.$mpi -std=c11 -O2 -I/usr/include/hdf5/$mpi -o /usr/local/bin/hdf5-$mpi {sources}/hdf5.c -L$libraries/hdf5/$mpi -lhdf5
done
"""
LEFT_OPEN = """
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PATH={bin}:$PATH
penstock up ~/fs --servers 2 >&2
for mpi in mpich openmpi; do
    for ranks in 1 2 3; do
        for where in "-d $HOME/fs penstock:/left-$mpi-$ranks" "--direct $HOME/left-$mpi-$ranks"; do
            set -- $where; path=${{@: -1}}; set -- "${{@:1:$#-1}}"
            timeout 60 penstock run -n $ranks "$@" -- hdf5-$mpi $path --leave-open >&2
            echo "$mpi $ranks $1 $(penstock run -n $ranks "$@" --json -- hdf5-$mpi $path --read-only | grep values_wrong)"
        done
    done
done
penstock down ~/fs >&2
"""


@pytest.mark.long
@needs_debootstrap
def test_hdf5_1_14_closes_what_is_open_in_finalize(tmp_path):
    """As above, with the HDF5 and the MPI libraries of the next Debian, and Penstock as it was built here."""
    system = Debian(tmp_path / "root", "trixie")
    where = {"binds": [(ROOT, ROOT)]}
    system.sh(NEWER.format(sources=SOURCES), **where)
    version = system.sh("dpkg-query -W -f '${Version}' libhdf5-mpich-dev").stdout
    assert version.startswith("1.14."), version
    done = system.sh(LEFT_OPEN.format(bin=PENSTOCK.parent), **where)
    lines = [line.split(maxsplit=3) for line in done.stdout.splitlines() if "values_wrong" in line]
    tried = sorted((mpi, int(ranks), how) for mpi, ranks, how, _ in lines)
    assert tried == sorted((m, r, how) for m in ("mpich", "openmpi") for r in (1, 2, 3) for how in ("-d", "--direct"))
    for *_, said in lines:
        said = json.loads(said)
        assert said["values_wrong"] == 0 and said["values_checked"] > 1000, said


@pytest.mark.parametrize("method", METHODS)
def test_every_method_makes_the_same_file(method, deployment, own, tmp_path):
    where = ("--deployment", deployment)
    for case in ("hdf5-mpich", "netcdf4"):
        good(run(case, f"penstock:/{case}", *where, "--method", method))
        penstock("cp", *where, f"penstock:/{case}", tmp_path / case)
        assert (tmp_path / case).read_bytes() == own(case)


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_fortran(mpi, deployment, tmp_path):
    program = PROGRAMS / f"hdf5_fortran-{mpi}"
    good(penstock("run", "-d", deployment, "-n", RANKS, "--", program, "penstock:/f.h5"))
    good(penstock("run", "--direct", "-n", RANKS, "--", program, tmp_path / "f.h5"))
    penstock("cp", "-d", deployment, "penstock:/f.h5", tmp_path / "copy.h5")
    for path in (tmp_path / "copy.h5", tmp_path / "f.h5"):
        with h5py.File(path) as file:
            field = np.arange(1, RANKS * 40 + 1, dtype="f8").reshape(RANKS, 40)
            assert (file["field"][...] == field).all()
            assert (file["steps"][...] == np.concatenate([field + 1000 * s for s in (1, 2, 3)])).all()


def value_of(variable, index):
    """As examples/libraries/check.h has it."""
    x = index.astype("u8") * np.uint64(2654435761) + np.uint64(variable * 40503)
    return ((x >> np.uint64(3)) & np.uint64(0xFFFFF)).astype("f8")


def counted(variable, shape):
    return value_of(variable, np.arange(np.prod(shape))).reshape(shape)


def test_plain_h5py_reads_what_penstock_wrote(deployment, tmp_path):
    """Serial h5py with another release of HDF5; the ranks of the reader need not be those of the writer."""
    for case in ("hdf5-mpich", "netcdf4", "h5py"):
        good(run(case, f"penstock:/{case}.h5", "--deployment", deployment))
        penstock("cp", "--deployment", deployment, f"penstock:/{case}.h5", tmp_path / case)
    with h5py.File(tmp_path / "hdf5-mpich") as file:
        fields = file["fields"]
        assert file.attrs["origin"].tolist() == [0.5, 1.5, 2.5] and fields.attrs["ranks"] == RANKS
        for variable, (name, shape) in enumerate(
            {
                "columns": (37, 29 * RANKS),
                "interleaved": (3 * 64 * RANKS,),
                "steps": (5, 37 * RANKS, 29),
                "squeezed": (5, 37 * RANKS, 29),
            }.items()
        ):
            assert (fields[name][...] == counted(variable, shape)).all(), name
        assert fields["squeezed"].compression == "gzip" and fields["steps"].chunks == (2, 8, 20)
        assert (file["log"][...] == counted(4, (40 * RANKS,))).all()
    with h5py.File(tmp_path / "netcdf4") as file:
        assert (file["field"][...] == counted(1, (33, 21 * RANKS))).all()
        assert (file["strided"][...] == counted(2, (33, 21 * RANKS))).all()
        assert (file["level"][...] == counted(3, (5, 33, 21 * RANKS))).all()
    with h5py.File(tmp_path / "h5py") as file:
        assert (file["fields/rows"][...] == np.arange(12 * RANKS * 30).reshape(12 * RANKS, 30)).all()
        assert (file["fields/rows"][...] == file["fields/squeezed"][...]).all()


def test_an_error_of_a_file_is_an_error_of_the_library(deployment):
    """What Penstock says of a missing directory reaches the user through HDF5."""
    done = penstock(
        "run", "-d", deployment, "-n", RANKS, "--", *command("hdf5-mpich", "penstock:/no/such/dir.h5"), check=False
    )
    assert done.code != 0 and "MPI_File_open failed" in done.err and "/no/such/dir.h5" in done.err, done.err
