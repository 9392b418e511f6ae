"""`penstock run` as a user sees it."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
from conftest import COMPILERS, EXAMPLES, PENSTOCK, ROOT, crossed, penstock

METHODS = ("posix", "sieve", "two-phase", "list", "datatype", "auto")
RANKS = {"tile": 6, "block": 8, "flash": 4, "hard": 4}
# Small enough for thousands of single requests.
SCALE = {"tile": 0.1, "block": 0.08, "flash": 0.03, "hard": 0.05}


def run_example(program, case, *options, path=None, ranks=None, scale=None):
    done = penstock(
        "run",
        "-n",
        ranks or RANKS[case],
        "--json",
        *options,
        "--",
        program,
        path or f"penstock:/{case}",
        "--verify",
        "--repetitions",
        2,
        "--scale",
        scale or SCALE[case],
    )
    ran, summary = done.json()[-2:]
    assert ran["verified"] is True
    return ran, summary


@pytest.mark.parametrize(("case", "method"), crossed(EXAMPLES, METHODS))
def test_every_example_under_every_method(examples, case, method):
    ran, summary = run_example(examples(case), case, "--method", method)
    (file,) = summary["files"]
    assert file["path"] == f"penstock:/{case}" and file["ranks"] == RANKS[case]
    assert file["read"]["bytes"] == 2 * RANKS[case] * ran["bytes_per_client"] or case in ("tile", "block")
    assert file["write"]["calls"] >= 2 * RANKS[case]
    if method != "auto":
        assert set(file["read"]["methods"]) == {method}
    else:
        assert file["read"]["reason"]
    assert len(summary["servers"]) == 4


@pytest.mark.parametrize(("case", "abi"), crossed(EXAMPLES, COMPILERS))
def test_every_abi(examples, case, abi):
    run_example(examples(case, abi), case)


@pytest.mark.parametrize(("case", "method"), crossed(EXAMPLES, METHODS))
def test_direct(examples, tmp_path, case, method):
    path = tmp_path / case
    _, summary = run_example(examples(case), case, "--direct", "--method", method, path=path)
    assert summary["file_system"] == "direct" and summary["servers"] == []
    assert path.stat().st_size > 0


def test_a_deployment_that_is_up(examples, deployment, tmp_path):
    run_example(examples("hard"), "hard", "-d", deployment)
    assert penstock("ls", "-d", deployment).out.split() == ["hard"]
    # Out of the file system come the bytes that the program wrote.
    penstock("cp", "penstock:/hard", tmp_path / "hard", "-d", deployment)
    reading = [
        "--",
        examples("hard"),
        tmp_path / "hard",
        "--read-only",
        "--verify",
        "--repetitions",
        2,
        "--scale",
        0.05,
    ]
    assert penstock("run", "-n", 4, "--direct", *reading).json()[0]["verified"]


def test_without_penstock_run(examples, deployment):
    """Any launcher will do: the library is preloaded, and the environment names the deployment's directory."""
    preload = ["env", f"LD_PRELOAD={PENSTOCK.parent / 'libpenstock.so'}", f"PENSTOCK_DEPLOYMENT={deployment}"]
    program = [examples("hard"), "penstock:/hard", "--verify", "--scale", 0.05]
    command = [str(word) for word in (ROOT / ".venv" / "bin" / "mpiexec", "-n", 2, *preload, *program)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0 and '"verified":true' in done.stdout, done.stderr
    assert penstock("ls", "-d", deployment).out.split() == ["hard"]


def test_kept_files_are_found_again(examples, short_dir):
    store = short_dir / "fs"
    hard = examples("hard")
    run = ("run", "-n", 2, "--store", store)
    penstock(*run, "--keep", "--", hard, "penstock:/hard", "--write-only", "--scale", 0.05)
    again = penstock(*run, "--", hard, "penstock:/hard", "--read-only", "--verify", "--scale", 0.05)
    assert again.json()[0]["verified"]
    penstock("up", store)
    assert penstock("ls", "-d", store).out.split() == ["hard"]
    penstock("down", store)


def test_a_new_deployment_has_the_shape_asked_for(examples, short_dir):
    store = short_dir / "fs"
    run = ("run", "-n", 2, "--json", "--shortcut", "disable", "--store", store)
    write = ("--", examples("hard"), "penstock:/hard", "--write-only", "--scale", 0.05)
    summary = penstock(*run, "--keep", "--servers", 3, "--stripe-unit", "8KiB", *write).json()[-1]
    assert len(summary["servers"]) == 3 and all(server["bytes_written"] > 0 for server in summary["servers"])
    penstock("up", store)
    (stat,) = penstock("stat", "/hard", "--json", "-d", store).json()
    assert stat["stripe_unit"] == 8192 and sorted(stat["servers"]) == [0, 1, 2]
    penstock("down", store)
    # It has it for good.
    for option in (("--servers", 2), ("--stripe-unit", "64KiB")):
        refused = penstock(*run, *option, *write, check=False)
        assert refused.code == 1 and option[0] in refused.err and str(store) in refused.err


def test_nothing_is_left_without_keep(examples, short_dir):
    penstock("run", "-n", 2, "--store", short_dir, "--", examples("hard"), "penstock:/hard", "--scale", 0.05)
    assert os.listdir(short_dir) == []


def test_paths_below_the_mount_path_are_ours_and_others_are_not(examples, tmp_path):
    run = ("run", "-n", 2, "--json", "--mount", "/pst", "--")
    ours = penstock(*run, examples("hard"), "/pst/hard", "--verify", "--scale", 0.05)
    assert len(ours.json()[-1]["files"]) == 1
    theirs = penstock(*run, examples("hard"), tmp_path / "hard", "--verify", "--scale", 0.05)
    assert theirs.json()[0]["verified"] and theirs.json()[-1]["files"] == []
    assert (tmp_path / "hard").exists()


def test_the_summary_is_for_people(examples):
    done = penstock("run", "-n", 4, "--", examples("hard"), "penstock:/hard", "--scale", 0.05)
    for word in ("penstock:/hard", "write", "read", "method", "4 ranks"):
        assert word in done.err
    assert "penstock" not in penstock("run", "-n", 1, "--quiet", "--", examples("hard"), "penstock:/h").err


def test_crowded_ranks_get_settings_against_busy_waiting(examples, monkeypatch):
    # Whoever has set them is not told.
    for name in [n for n in os.environ if n.startswith("MPIR_CVAR_")]:
        monkeypatch.delenv(name)
    cores = os.cpu_count()
    done = penstock("run", "-n", cores + 1, "--", examples("hard"), "penstock:/hard", "--scale", 0.01)
    assert f"{cores + 1} ranks on {cores} cores" in done.err and "MPIR_CVAR_CH4_PROGRESS_THROTTLE=1" in done.err
    if cores > 1:
        done = penstock("run", "-n", 1, "--", examples("hard"), "penstock:/hard", "--scale", 0.01)
        assert "cores" not in done.err


def test_python_finds_its_launcher(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "#!" + sys.executable + "\n"
        "from mpi4py import MPI\n"
        "comm = MPI.COMM_WORLD\n"
        "assert comm.size == 2\n"
        "f = MPI.File.Open(comm, 'penstock:/x', MPI.MODE_CREATE | MPI.MODE_RDWR)\n"
        "f.Write_at_all(comm.rank * 3, b'abc')\n"
        "f.Close()\n"
    )
    script.chmod(0o755)
    python = ROOT / ".venv" / "bin" / "python"
    for program in ([python, script], [script]):
        (summary,) = penstock("run", "-n", 2, "--json", "--", *program).json()
        assert summary["files"][0]["write"]["bytes"] == 6


def test_the_exit_code_is_the_programs(examples):
    for code in (0, 3):
        done = penstock(
            "run", "-n", 1, "--quiet", "--launcher", "mpiexec.mpich", "--", "sh", "-c", f"exit {code}", check=False
        )
        assert done.code == code
    usage = penstock("run", "-n", 1, "--", examples("tile"), "--nonsense", check=False)
    assert usage.code == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["./no-such-program"], "no-such-program"),
        (["no-such-program"], "PATH"),
        (["sh", "-c", "true"], "--launcher"),
    ],
)
def test_programs_that_cannot_be_run(words, message):
    refused = penstock("run", "-n", 2, "--", *words, check=False)
    assert refused.code == 1 and message in refused.err


def test_an_unknown_prefix_reaches_the_programs_own_library(examples):
    done = penstock("run", "-n", 1, "--", examples("hard"), "penstok:/typo", "--scale", 0.01, check=False)
    # ROMIO takes an unknown prefix for a file name or refuses it; Penstock says that it saw no file of its own.
    assert "no file of Penstock" in done.err
    Path("penstok:/typo").unlink(missing_ok=True)


def test_a_deployment_that_is_down(examples, deployment):
    penstock("down", deployment)
    refused = penstock(
        "run", "-n", 2, "-d", deployment, "--", examples("hard"), "penstock:/h", check=False, timeout=200
    )
    assert refused.code != 0 and "penstock status" in refused.err


def sleeper(tmp_path):
    """A program that opens a file and waits."""
    source = tmp_path / "sleeper.c"
    source.write_text(
        "#include <mpi.h>\n#include <stdio.h>\n#include <unistd.h>\n"
        "int main(int c, char **v) { MPI_Init(&c, &v); MPI_File f;\n"
        'MPI_File_open(MPI_COMM_WORLD, "penstock:/x", MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);\n'
        'puts("ready"); fflush(stdout); sleep(120); MPI_Finalize(); return 0; }\n'
    )
    binary = tmp_path / f"sleeper-{os.getpid()}-{time.monotonic_ns()}"
    subprocess.run([COMPILERS["mpich"], source, "-o", binary], check=True)
    return binary


def alive(binary):
    """Processes of this program that are no zombies."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                if os.readlink(entry / "exe") == str(binary):
                    found.append(entry.name)
            except OSError:
                continue
    return found


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_an_ended_run_leaves_nothing(tmp_path, short_dir, how):
    binary = sleeper(tmp_path)
    process = subprocess.Popen(
        [PENSTOCK, "run", "-n", "2", "--", binary],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, "TMPDIR": str(short_dir)},
    )
    assert "ready" in process.stdout.readline()
    assert alive(binary) and os.listdir(short_dir)
    process.send_signal(how)
    process.wait(timeout=30)
    deadline = time.monotonic() + 30
    while (alive(binary) or os.listdir(short_dir)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not alive(binary) and os.listdir(short_dir) == []
    assert process.returncode != 0


def test_a_long_temporary_directory_is_no_obstacle(examples, tmp_path):
    long = tmp_path / ("x" * 90)
    long.mkdir()
    penstock("run", "-n", 1, "--", examples("hard"), "penstock:/h", "--scale", 0.01, env={"TMPDIR": str(long)})
    assert os.listdir(long) == []
    assert not list(Path(tempfile.gettempdir()).glob(f"penstock-run-*{os.getpid()}*"))


def run_python(tmp_path, body, *options, ranks=3, check=True):
    """The summary of a program of these lines."""
    script = tmp_path / "program.py"
    script.write_text(
        f"import subprocess, sys\nfrom mpi4py import MPI\ncomm = MPI.COMM_WORLD\nrank = comm.rank\n{body}"
    )
    command = [sys.executable, "-m", "mpi4py", script, PENSTOCK]
    done = penstock("run", "-n", ranks, "--json", *options, "--", *command, check=check)
    return done.json()[-1]


OPENED = 'f = MPI.File.Open(comm, "penstock:/f", MPI.MODE_CREATE | MPI.MODE_RDWR)\n'


def test_the_summary_of_a_program_that_was_ended(tmp_path):
    """What it had opened is said, and that it did not come to its end."""
    body = OPENED + "comm.Barrier()\nif rank == 1: comm.Abort(3)\ncomm.Barrier()\n"
    summary = run_python(tmp_path, body, check=False)
    assert [file["path"] for file in summary["files"]] == ["penstock:/f"]
    # Ranks that learn of the abort soon enough come to MPI_Finalize; the one that aborts never does.
    assert summary["summaries"] == 3 and 1 <= summary["unfinished"] <= 3
    script = ["--", sys.executable, "-m", "mpi4py", tmp_path / "program.py"]
    text = penstock("run", "-n", 3, *script, check=False).err
    assert " of 3 ranks did not come to MPI_Finalize" in text and "no file of Penstock" not in text, text


def test_the_time_of_a_file_is_what_the_program_waited(tmp_path):
    """Ranks that write one after another: the time of each counts, not that of the slowest alone."""
    body = OPENED + (
        "for turn in range(comm.size):\n"
        "    comm.Barrier()\n"
        "    if turn == rank:\n"
        "        for k in range(20): f.Write_at(rank << 24, bytes(1 << 20))\n"
        "f.Close()\n"
    )
    summary = run_python(tmp_path, body)
    (file,) = summary["files"]
    write = file["write"]
    assert write["bytes"] == 3 * 20 << 20 and summary["unfinished"] == 0
    assert write["seconds"] < write["waited_seconds"] <= summary["wall_seconds"], write


def test_other_programs_on_the_same_servers_are_not_counted(tmp_path, deployment):
    other = tmp_path / "other"
    other.write_bytes(bytes(range(256)) * 40_000)
    body = OPENED + (
        "f.Write_at_all(rank * 100_000, bytes(100_000))\n"
        f'if rank == 0: subprocess.run([sys.argv[1], "cp", "-d", "{deployment}", "{other}", "penstock:/o"], check=True)\n'
        "f.Close()\n"
    )
    summary = run_python(tmp_path, body, "-d", deployment, "--shortcut", "disable")
    assert [server["server"] for server in summary["servers"]] == [0, 1, 2, 3]
    assert sum(server["bytes_written"] for server in summary["servers"]) == 300_000
    assert all(server["requests"] > 0 for server in summary["servers"])
