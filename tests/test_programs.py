"""Who uses a deployment: `penstock status` names programs by user, host, job and command (docs/decisions/0033)."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from conftest import COMPILERS, PENSTOCK, Done, penstock
from mounted import ALICE, MEMBERS, as_root, as_user, await_, needs_fuse, write
from test_recovery import metadata_server

# For each line: opens a file, writes as many bytes as the line says, closes it, and answers.
PROGRAM = r"""
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
int main(int argc, char **argv)
{
    char line[64];
    MPI_Init(&argc, &argv);
    while (fgets(line, sizeof line, stdin)) {
        int bytes = atoi(line);
        char *buffer = calloc(1, bytes + 1);
        MPI_File file;
        int code = MPI_File_open(MPI_COMM_SELF, argv[1], MPI_MODE_CREATE | MPI_MODE_WRONLY, MPI_INFO_NULL, &file);
        if (code == MPI_SUCCESS) {
            MPI_File_write_at(file, 0, buffer, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
            MPI_File_close(&file);
        }
        free(buffer);
        puts(code == MPI_SUCCESS ? "written" : "refused");
        fflush(stdout);
    }
    MPI_Finalize();
    return 0;
}
"""


class Site:
    """A deployment that a group may use, and what any user can run."""

    def __init__(self, directory, *options):
        directory.chmod(0o755)
        self.directory = directory
        self.deployment = directory / "fs"
        self.command = shutil.copy(PENSTOCK, directory / "penstock")
        self.preloaded = shutil.copy(PENSTOCK.parent / "libpenstock.so", directory / "libpenstock.so")
        (directory / "program.c").write_text(PROGRAM)
        self.program = directory / "program"
        subprocess.run([COMPILERS["mpich-debian"], "-o", self.program, directory / "program.c"], check=True)
        self.running = []
        group = MEMBERS if os.geteuid() == 0 else os.getgid()
        penstock("up", self.deployment, "--servers", 2, "--group", group, *options)

    @staticmethod
    def becoming(uid):
        return {} if uid == os.geteuid() else {"user": uid, "group": uid, "extra_groups": [MEMBERS]}

    def start(self, *args, uid=None, **env):
        """The program, on its own line of the list: with one file opened."""
        uid = os.geteuid() if uid is None else uid
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("PENSTOCK", "SLURM", "PMI"))}
        environment |= {"LD_PRELOAD": str(self.preloaded), "PENSTOCK_DEPLOYMENT": str(self.deployment), "HOME": "/tmp"}
        process = subprocess.Popen(
            [str(self.program), *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**environment, **env},
            start_new_session=True,
            **self.becoming(uid),
        )
        self.running.append(process)
        self.write(process, 1)
        return process

    def run(self, *args, **env):
        """A command of Penstock, in the background."""
        process = subprocess.Popen(
            [str(self.command), *map(str, args)],
            stdout=subprocess.PIPE,
            cwd="/",
            env={**os.environ, "PENSTOCK_DEPLOYMENT": str(self.deployment), **env},
        )
        self.running.append(process)
        return process

    @staticmethod
    def write(process, count):
        process.stdin.write(f"{count}\n")
        process.stdin.flush()
        return process.stdout.readline()

    def status(self, *args, uid=None):
        uid = os.geteuid() if uid is None else uid
        done = subprocess.run(
            [str(self.command), "status", str(self.deployment), *args],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            cwd="/",
            env={**os.environ, "HOME": "/tmp"},
            **self.becoming(uid),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return Done(done)

    def programs(self, uid=None):
        return self.status("--json", uid=uid).json()[0]["programs"]

    def end(self):
        for process in self.running:
            process.kill()
            process.wait()
            process.stdout.close()
        penstock("down", self.deployment, check=False)


@pytest.fixture
def site(short_dir):
    site = Site(short_dir)
    yield site
    site.end()


@pytest.fixture
def slow_site(short_dir):
    """On disks that take seconds for what the tests copy."""
    site = Site(short_dir, "--device", "hdd")
    yield site
    site.end()


@as_root
def test_programs_are_named_and_users_see_their_own(site):
    ours = site.start("penstock:/a", "--size", "7", SLURM_JOB_ID="4711", PMI_SIZE="64")
    hers = site.start("penstock:/b", uid=ALICE, PBS_JOBID="12.head")
    rows = {row["uid"]: row for row in site.programs()}
    assert set(rows) == {0, ALICE}
    ours_row, hers_row = rows[0], rows[ALICE]
    assert ours_row["program"] != hers_row["program"] and min(r["program"] for r in rows.values()) > 0
    assert ours_row["command"] == f"{site.program} penstock:/a --size 7"
    assert (ours_row["job"], ours_row["ranks"], ours_row["user"]) == ("4711", 64, "root")
    assert (hers_row["job"], hers_row["ranks"], hers_row["user"]) == ("12.head", None, str(ALICE))
    host = Path("/proc/sys/kernel/hostname").read_text().strip()[:60]
    assert ours_row["host"].startswith(host) and ours_row["host"] == hers_row["host"]
    assert socket.gethostname().startswith(host)
    text = site.status().out
    assert f"root@{host}" in text and f"{ALICE}@{host}" in text and "12.head" in text
    # She sees her program, and neither his command nor his name.
    assert [row["uid"] for row in site.programs(ALICE)] == [ALICE]
    text = site.status(uid=ALICE).out
    assert f"{ALICE}@{host}" in text and "root@" not in text and "4711" not in text and "penstock:/a" not in text
    assert ours.poll() is None and hers.poll() is None


def test_a_row_ends_with_its_program(site):
    first, second = site.start("penstock:/a"), site.start("penstock:/b")
    await_(lambda: len(site.programs()) == 2)
    os.kill(first.pid, signal.SIGKILL)
    await_(lambda: [row["command"] for row in site.programs()] == [f"{site.program} penstock:/b"])
    second.stdin.close()
    await_(lambda: site.programs() == [])
    assert second.wait(10) == 0


def test_processes_of_a_program_are_one_row(site):
    for _ in range(3):
        site.start("penstock:/a", PENSTOCK_PROGRAM=str(1 << 60))
    (row,) = site.programs()
    assert row["program"] == 1 << 60


def test_rows_come_back_after_the_metadata_server_was_killed(site):
    process = site.start("penstock:/a")
    before = site.programs()
    assert len(before) == 1
    os.kill(metadata_server(site.deployment), signal.SIGKILL)
    penstock("up", site.deployment)
    # With the program's next request.
    assert site.write(process, 1) == "written\n"
    after = site.programs()
    assert [{**row, "age_ms": 0} for row in after] == [{**row, "age_ms": 0} for row in before]


def test_what_a_command_holds_does_not_reach_the_terminal(site):
    site.start("penstock:/a", "\x1b[2J\nroot@host  0  ok", "\u202egnp.exe", "x" * 1000)
    (row,) = site.programs()
    assert "\x1b[2J\nroot@host" in row["command"] and len(row["command"].encode()) <= 256
    text = site.status().out
    (line,) = [line for line in text.splitlines() if "penstock:/a" in line]
    assert "\\u{1b}[2J\\u{a}root@" in line and "\x1b" not in text and "\u202e" not in text


def test_rates_are_shown_while_bytes_move(site):
    def row(command):
        return next(row for row in site.programs() if row["command"].endswith(command))

    busy, quiet = (
        site.start("penstock:/a", PENSTOCK_SHORTCUT="disable"),
        site.start("penstock:/b", PENSTOCK_SHORTCUT="disable"),
    )
    seen = []

    def moves():
        assert site.write(busy, 4 << 20) == "written\n"
        seen.append(row("/a")["written_per_s"])
        return seen[-1] > 4 << 20

    await_(moves, "no rate is shown")
    assert row("/a")["requests_per_s"] > 0 and row("/a")["read_per_s"] == 0
    (line,) = [line for line in site.status().out.splitlines() if "penstock:/a" in line]
    assert re.search(r"\d (K|M|G)iB/s", line), line
    # What is over is not shown as going on.
    await_(lambda: row("/a")["written_per_s"] == 0)
    assert row("/b")["requests_per_s"] == 0 and quiet.poll() is None
    # After a restart of the metadata server the data servers go on to report, and the program is named again.
    os.kill(metadata_server(site.deployment), signal.SIGKILL)
    penstock("up", site.deployment)
    seen.clear()
    await_(moves, "no rate is shown after the restart")


def test_the_scheduler_names_programs(site):
    penstock("tune", "sched=wfq", "-d", site.deployment)
    process = site.start("penstock:/a")
    assert site.write(process, 1 << 20) == "written\n"
    (row,) = site.programs()
    text = site.status().out
    (line,) = [line for line in text.splitlines() if "100.0 %" in line]
    assert f"{site.program} penstock:/a" in line and str(row["program"]) not in text
    servers = site.status("--json").json()[0]["servers"]
    numbers = {p["program"] for server in servers for p in server["sched"]["programs"]}
    assert numbers == {row["program"]}
    # The number that status prints is the one that settings take.
    penstock("tune", f"weights={row['program']}:4", "-d", site.deployment)


def test_copies_are_programs_of_their_own(slow_site):
    site, source = slow_site, slow_site.directory / "big"
    source.write_bytes(os.urandom(1 << 20) * 256)

    def rows(word):
        return [row for row in site.programs() if word in (row["command"] or "").split()]

    copy = site.run("cp", source, "penstock:/big", SLURM_JOB_ID="815", PENSTOCK_PROGRAM="7")
    seen = []

    def moves():
        seen[:] = rows("cp")
        return seen and seen[0]["written_per_s"] > 0

    await_(moves, "the copy is not listed while it writes")
    copy.send_signal(signal.SIGSTOP)
    (row,) = seen
    assert row["command"] == f"{site.command} cp {source} penstock:/big"
    assert (row["job"], row["uid"], row["ranks"]) == ("815", os.geteuid(), None)
    assert row["host"] and 0 < row["program"] < 1 << 63
    # It is no process of the program whose environment it has, and no bytes stand beside the user alone.
    assert row["program"] != 7 and all(row["program"] for row in site.programs())
    (line,) = [line for line in site.status().out.splitlines() if f" cp {str(source)[:20]}" in line]
    assert "815" in line
    # Another one is another program, also of the same job.
    other = site.run("stage-in", "big", "--from", site.directory, "--to", "penstock:/in", SLURM_JOB_ID="815")
    await_(lambda: rows("stage-in"), "stage-in is not listed")
    other.send_signal(signal.SIGSTOP)
    assert rows("stage-in")[0]["program"] != row["program"] and len(rows("cp")) == 1
    for process in (copy, other):
        process.kill()
    await_(lambda: site.programs() == [], "rows stay after their programs")


@needs_fuse
def test_a_mount_is_a_program_and_its_callers_go_by_its_row(site):
    penstock("tune", "sched=wfq", "-d", site.deployment)
    point = site.directory / "mnt"
    point.mkdir()
    penstock("mount", point, "--no-passthrough", "-d", site.deployment)
    try:
        (row,) = site.programs()
        assert row["command"] == f"penstock mount {point}"
        assert row["uid"] == os.geteuid() and row["host"] and row["program"] > 0
        point.chmod(0o777)

        def moves():
            write(point / "ours", bytes(4 << 20))
            if os.geteuid() == 0:
                as_user(ALICE, ALICE, [MEMBERS], lambda: write(point / "hers", bytes(4 << 20)))
            (now,) = site.programs()
            assert (now["program"], now["uid"]) == (row["program"], row["uid"])
            return now["written_per_s"] > 1 << 20

        await_(moves, "what goes through the mount is not shown")
        servers = site.status("--json").json()[0]["servers"]
        assert {p["program"] for server in servers for p in server["sched"]["programs"]} == {row["program"]}
        if os.geteuid() == 0:
            assert site.programs(ALICE) == []
        # With its next request after the metadata server was killed.
        os.kill(metadata_server(site.deployment), signal.SIGKILL)
        penstock("up", site.deployment)
        write(point / "again")
        await_(
            lambda: [r["program"] for r in site.programs() if r["host"]] == [row["program"]], "it is not listed again"
        )
    finally:
        penstock("umount", "--lazy", point)
    await_(lambda: site.programs() == [], "the row stays after the mount")


def test_status_is_shown_again_until_its_reader_leaves(deployment):
    command = [PENSTOCK, "status", "--watch=0.1", "--json", deployment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        for _ in range(3):
            assert json.loads(watching.stdout.readline())["meta"]["up"]
        watching.stdout.close()
        assert watching.wait(timeout=20) == 0
