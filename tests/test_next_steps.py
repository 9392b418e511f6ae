"""Messages that misled, and what they say now."""

import os
import subprocess

import pytest
from conftest import COMPILERS, PENSTOCK, ROOT, penstock


def said(*arguments, code=1, **how):
    done = penstock(*arguments, check=False, **how)
    assert done.code == code, (done.out, done.err)
    return done.err


def test_a_missing_parent_is_named_with_the_command_that_makes_it(deployment, tmp_path):
    file = tmp_path / "f"
    file.write_text("x")
    for options in ((), ("-r",)):
        told = said("cp", *options, file, "penstock:/a/b/f", "-d", deployment)
        assert "penstock:/a/b, which does not exist" in told and "penstock mkdir -p /a/b" in told, told
    penstock("cp", file, "penstock:/f", "-d", deployment)
    told = said("cp", "penstock:/f", tmp_path / "no" / "dir" / "f", "-d", deployment)
    assert f"mkdir -p {tmp_path}/no/dir" in told and ".copying" not in told


def test_a_missing_key_is_no_server_that_is_down(deployment):
    (deployment / "client.key").rename(deployment / "key")
    try:
        for command in (("ls",), ("status",)):
            told = said(*command, "-d", deployment)
            assert f"clients prove {deployment}/client.key" in told and "starts them" not in told, told
        assert " no key " in penstock("status", deployment, check=False).out
    finally:
        (deployment / "key").rename(deployment / "client.key")


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_a_deployment_that_is_closed_is_not_one_that_is_missing(deployment):
    deployment.parent.chmod(0o755)
    stranger = {"user": 65534, "group": 65534, "extra_groups": []}
    command = [PENSTOCK, "ls", "-d", deployment]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **stranger)
    assert done.returncode == 1 and "it is closed to you" in done.stderr and "--group" in done.stderr


def test_a_list_that_is_refused_leaves_no_directory(deployment, tmp_path):
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "a" / "b" / "f").write_text("x")
    told = said("stage-in", "--from", tmp_path, "--to", "penstock:/new", "a/b/f", "z", "-d", deployment)
    assert "nothing was staged" in told
    assert penstock("ls", "-d", deployment).out == ""


def test_a_shim_named_python_is_python(tmp_path):
    """pyenv's python3 is a shell script."""
    python = ROOT / ".venv" / "bin" / "python"
    if subprocess.run([python, "-c", "import mpi4py"], capture_output=True, check=False).returncode != 0:
        pytest.skip("no mpi4py")
    shim = tmp_path / "python3"
    shim.write_text(f'#!/usr/bin/env bash\nexec {python} "$@"\n')
    shim.chmod(0o755)
    penstock("run", "-n", 2, "--", shim, "-c", "from mpi4py import MPI; assert MPI.COMM_WORLD.size == 2")


def test_down_says_who_is_there_and_waits(deployment, short_dir):
    source = ROOT / "tests" / "job.c"
    app = short_dir / "job"
    subprocess.run([COMPILERS["mpich"], "-o", app, source], check=True)
    (short_dir / "in").write_text("x" * 1000)
    penstock("cp", short_dir / "in", "penstock:/in", "-d", deployment)
    words = [PENSTOCK, "run", "-n", "2", "-d", deployment, "--", app, "penstock:/in", "penstock:/out", "4", "0"]
    run = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert run.stdout.readline() == "written\n"
    told = said("down", "--wait=1", deployment)
    assert "nothing was ended" in told and str(app) in told and "@" in told, told
    told = said("down", "--wait", deployment, code=0)
    assert "waiting for their end" in told
    assert run.wait(timeout=30) == 0
    run.communicate()
    penstock("up", deployment)
    # Nobody is there: nothing is said.
    assert penstock("down", "--wait=1", deployment).err == ""


def test_down_asks_on_a_terminal(deployment, short_dir):
    point = short_dir / "mnt"
    point.mkdir()
    penstock("mount", point, "-d", deployment)
    try:
        for answer, ends in (("n", False), ("y", True)):
            leader, follower = os.openpty()
            down = subprocess.Popen(
                [PENSTOCK, "down", deployment],
                stdin=follower,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
            os.close(follower)
            os.write(leader, f"{answer}\n".encode())
            out, err = down.communicate(timeout=100)
            os.close(leader)
            assert f"penstock mount {point}" in err and "End the servers? [y/N]" in err, err
            assert (down.returncode == 0) == ends and ("servers ended" in out) == ends, (out, err)
    finally:
        penstock("umount", "--lazy", point)


def test_the_summary_adds_up_and_shows_the_busiest(short_dir):
    source = short_dir / "many.c"
    source.write_text("""
#include <mpi.h>
#include <stdio.h>
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    for (int k = 0; k < 25; k++) {
        char name[64];
        static char bytes[30 << 10];
        MPI_File f;
        snprintf(name, sizeof name, "penstock:/f%02d", k);
        MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &f);
        MPI_File_write_at(f, 0, bytes, (k + 1) << 10, MPI_BYTE, MPI_STATUS_IGNORE);
        MPI_File_sync(f);
        MPI_File_close(&f);
    }
    MPI_Finalize();
}
""")
    app = short_dir / "many"
    subprocess.run([COMPILERS["mpich"], "-o", app, source], check=True)
    told = penstock("run", "-n", 1, "--", app).err
    assert "25 files: 325.0 KiB written in 25 calls, 25 opens took" in told and "25 syncs took" in told, told
    assert "15 other files: 120.0 KiB written, 0 B read" in told, told
    shown = [line for line in told.splitlines() if "penstock:/f" in line and "write" in line]
    assert len(shown) >= 10 and "penstock:/f24" in told and "penstock:/f14" not in told, told
