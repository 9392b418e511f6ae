"""`penstock layout` from the command line: layouts, views over re-laid files under `penstock run`, advice from real traces."""

import os
import subprocess
import sys
import textwrap

import pytest
from conftest import COMPILERS, ROOT, penstock

NEST = """
#define N 96
#define M 40
double A[N][M];
void f(void) {
  #pragma omp parallel for num_threads(4)
  for (int j = 0; j < M; j++)
    for (int i = 0; i < N; i++)
      A[i][j] = A[i][j] + 1;
}
"""
CACHES = """
threads = 4
[[level]]
name = "I/O node"
caches = 2
capacity = "1KiB"
block = "256B"
[[level]]
name = "storage node"
caches = 2
striped = true
capacity = "4KiB"
block = "256B"
"""


def layout(*args, **more):
    """Runs `penstock layout` with the tests' interpreter, which has NumPy and pycparser."""
    return penstock("layout", *args, env={"PENSTOCK_PYTHON": sys.executable}, **more)


@pytest.fixture
def work(tmp_path):
    """A directory with a nest, its layouts, an array of doubles (element = index), and the re-laid file."""
    (tmp_path / "nest.c").write_text(NEST)
    (tmp_path / "caches.toml").write_text(CACHES)
    layout("plan", "nest.c", "--hierarchy", "caches.toml", "-o", "layouts.toml", cwd=tmp_path)
    import numpy as np

    np.arange(96 * 40, dtype="f8").tofile(tmp_path / "plain")
    layout("convert", "layouts.toml", "plain", "laid", cwd=tmp_path)
    return tmp_path


def test_the_command_teaches_and_refuses(work):
    assert "Examples:" in penstock("layout", "--help", env={"PENSTOCK_PYTHON": sys.executable}).out
    assert "penstock layout" in penstock("help", "layout").out
    row = layout("plan", "nest.c", "--hierarchy", "caches.toml", "--json", cwd=work).json()[0]
    assert row["seconds"] < 1 and row["arrays"][0]["blocks after"] < row["arrays"][0]["blocks before"]
    counted = layout("footprint", "layouts.toml", "--hierarchy", "caches.toml", "--count", "--json", cwd=work).json()[0]
    assert counted["counted"] and len(counted["shares"]) == 8
    for args, says in (
        (("plan", "missing.c", "--hierarchy", "caches.toml"), "missing.c"),
        (("plan", "nest.c", "--hierarchy", "caches.toml", "-o", "layouts.toml"), "exists"),
        (("convert", "layouts.toml", "plain", "laid"), "exists"),
        (("convert", "layouts.toml", "plain"), "TARGET"),
        (("emit", "caches.toml"), "unknown key threads"),
        (("advise", "nowhere", "--shape", "8x8", "--item", "8"), "no such trace"),
        (("advise", "nest.c", "--shape", "8xx8", "--item", "8"), "no shape"),
    ):
        done = layout(*args, check=False, cwd=work)
        assert done.code == 1 and says in done.err and "Traceback" not in done.err, (args, done.err)


VIEW_C = """
#include "view.h"
#include <stdio.h>

/* Each rank reads rows of A by the array's own subscripts, all in one collective call, adds 0.5 and writes them back. */
int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    int rank, size, wrong = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int64_t start[2] = {96 / size * rank, 3}, count[2] = {96 / size, 31};
    static double part[96][31];
    MPI_Datatype filetype, memtype;
    if (A_view(start, count, MPI_DOUBLE, &filetype, &memtype))
        MPI_Abort(MPI_COMM_WORLD, 2);
    MPI_File file;
    MPI_File_open(MPI_COMM_WORLD, argv[1], MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_File_set_view(file, 0, MPI_DOUBLE, filetype, "native", MPI_INFO_NULL);
    if (MPI_File_read_at_all(file, 0, part, 1, memtype, MPI_STATUS_IGNORE))
        wrong++;
    for (int64_t i = 0; i < count[0]; i++)
        for (int64_t j = 0; j < count[1]; j++) {
            wrong += part[i][j] != (double)((start[0] + i) * 40 + start[1] + j);
            part[i][j] += 0.5;
        }
    if (MPI_File_write_at_all(file, 0, part, 1, memtype, MPI_STATUS_IGNORE))
        wrong++;
    MPI_File_close(&file);
    MPI_Type_free(&filetype);
    MPI_Type_free(&memtype);
    printf("rank %d: %d wrong\\n", rank, wrong);
    MPI_Finalize();
    return wrong != 0;
}
"""


def test_a_c_program_reads_and_writes_a_re_laid_file_by_its_own_subscripts(work, deployment):
    import numpy as np

    layout("view", "layouts.toml", "-o", "view.h", cwd=work)
    (work / "view.c").write_text(VIEW_C)
    flags = ["-std=c11", "-O2", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([COMPILERS["mpich"], *flags, "-o", "view", "view.c"], cwd=work, check=True)
    penstock("cp", work / "laid", "penstock:/laid", "-d", deployment)
    done = penstock("run", "-n", 4, "-d", deployment, "--", work / "view", "penstock:/laid")
    assert done.out.count(": 0 wrong") == 4
    penstock("cp", "penstock:/laid", work / "laid2", "-d", deployment)
    layout("convert", "layouts.toml", "laid2", "plain2", "--back", cwd=work)
    wanted = np.arange(96 * 40, dtype="f8").reshape(96, 40)
    wanted[:, 3:34] += 0.5
    assert (np.fromfile(work / "plain2").reshape(96, 40) == wanted).all()


VIEW_PY = """
import sys
import numpy as np
from mpi4py import MPI
from penstock.layout import form, view

comm = MPI.COMM_WORLD
layout = form.load(sys.argv[1])[0]
start, count = (24 * comm.rank, 5), (24, 30)
part = np.empty(count)
filetype, memtype = view.types(layout, start, count, MPI.DOUBLE)
file = MPI.File.Open(comm, sys.argv[2], MPI.MODE_RDONLY)
file.Set_view(0, MPI.DOUBLE, filetype)
file.Read_at_all(0, [part, 1, memtype])
file.Close()
assert (part == np.arange(96 * 40, dtype="f8").reshape(96, 40)[24 * comm.rank :][:24, 5:35]).all()
print("same", flush=True)
"""


def test_mpi4py_reads_a_re_laid_file_by_its_own_subscripts(work, deployment):
    (work / "view.py").write_text(textwrap.dedent(VIEW_PY))
    penstock("cp", work / "laid", "penstock:/laid", "-d", deployment)
    environment = {"PYTHONPATH": str(ROOT / "python")}
    args = (
        "run",
        "-n",
        4,
        "-d",
        deployment,
        "--",
        sys.executable,
        work / "view.py",
        work / "layouts.toml",
        "penstock:/laid",
    )
    assert penstock(*args, env=environment).out.count("same") == 4


COLUMNS_PY = """
import sys
import numpy as np
from mpi4py import MPI

comm = MPI.COMM_WORLD
n = 512
file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_CREATE | MPI.MODE_RDWR)
rows = np.ones((n // comm.size, n))
file.Write_at_all(rows.nbytes * comm.rank, rows)
file.Sync()
for j in range(16 * comm.rank, n, 16 * comm.size):
    part = np.empty((n, 16))
    column = MPI.DOUBLE.Create_subarray([n, n], [n, 16], [0, j]).Commit()
    file.Set_view(0, MPI.DOUBLE, column)
    file.Read_at(0, part)
    assert (part == 1).all()
file.Close()
"""


def test_advice_comes_from_a_traced_program(tmp_path):
    (tmp_path / "columns.py").write_text(COLUMNS_PY)
    penstock("run", "-n", 2, "--servers", 3, "--trace", tmp_path / "T", "--method", "posix", "--", sys.executable,
             tmp_path / "columns.py", "penstock:/a")  # fmt: skip
    found = layout("advise", tmp_path / "T", "--shape", "512x512", "--item", 8, "--brute-force", "--json").json()[0]
    assert (found["op"], found["calls"]) == ("read", 32)
    zarr = found["chunks"][1]
    # 16 columns, whole or in parts of 16 KiB and more: no byte is read twice.
    assert zarr["chunk"].endswith("x16") and zarr["bytes moved"] == 512 * 512 * 8
    assert all(row["ratio"] >= 0.9 for row in found["chunks"])
    written = layout("advise", tmp_path / "T", "--shape", "512x512", "--item", 8, "--op", "write").out
    assert "calls that write" in written


@pytest.mark.long
def test_programs_fall_into_the_groups_that_were_measured():
    """Which programs of the source's figure are in its groups is stated in docs/use/layout.md; more or fewer is news."""
    here = ROOT / "experiments" / "layout"
    programs = sorted(p for p in os.listdir(here) if p.endswith(".c"))
    done = layout("evaluate", *programs, "--hierarchy", "caches.toml", "--json", cwd=here, timeout=900).json()[0]
    rows = {row["program"]: row for row in done["programs"]}
    assert len(rows) == 16
    right = {name for name, row in rows.items() if row["group"] == row["published"]}
    assert right == {"afores", "applu", "bt", "cc-ver-1", "hf", "qio", "s3asim", "sar", "swim", "twer"}
