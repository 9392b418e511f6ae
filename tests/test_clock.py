"""Servers whose hosts' wall clocks are wrong: access goes on, and `penstock status` names them."""

import ctypes
import json
import mmap
import os
import subprocess
import time

import pytest
from conftest import penstock

# Shifts the wall clock of the processes that have PROGRAM in their command line by the seconds in a file, which may change.
SHIFT = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *shift;

__attribute__((constructor)) static void begin(void) {
    char line[4096] = {0};
    int fd = open("/proc/self/cmdline", O_RDONLY);
    ssize_t n = read(fd, line, sizeof line - 1);
    close(fd);
    for (ssize_t i = 0; i + 1 < n; i++)
        if (!line[i]) line[i] = ' ';
    const char *program = getenv("SHIFTED_PROGRAM"), *file = getenv("SHIFTED_BY");
    if (!program || !file || !strstr(line, program)) return;
    fd = open(file, O_RDONLY);
    void *at = mmap(NULL, sizeof *shift, PROT_READ, MAP_SHARED, fd, 0);
    close(fd);
    if (at != MAP_FAILED) shift = at;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int done = (int)syscall(SYS_clock_gettime, clock, time);
    if (!done && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *shift;
    return done;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    (void)zone;
    struct timespec now;
    int done = clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return done;
}

time_t time(time_t *at) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (at) *at = now.tv_sec;
    return now.tv_sec;
}
"""

HOUR = 3600


class Shifted:
    """The environment of servers, one of which has another wall clock."""

    def __init__(self, directory, program):
        library, source, by = directory / "shift.so", directory / "shift.c", directory / "by"
        source.write_text(SHIFT)
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-Wall", "-Werror", "-o", library, source], check=True)
        by.write_bytes(bytes(8))
        self.by = os.open(by, os.O_RDWR)
        self.map = mmap.mmap(self.by, 8)
        self.env = {"LD_PRELOAD": str(library), "SHIFTED_PROGRAM": program, "SHIFTED_BY": str(by)}

    def set(self, seconds):
        self.map[:] = bytes(ctypes.c_long(seconds))

    def close(self):
        self.map.close()
        os.close(self.by)


@pytest.fixture
def shifted(request, short_dir):
    shift = Shifted(short_dir, request.param)
    yield short_dir / "fs", shift
    penstock("down", short_dir / "fs", check=False)
    shift.close()


def clocks(fs):
    """How far each data server's clock is ahead, seconds, as soon as all know it; and what `status` says about it."""
    end = time.monotonic() + 60
    while True:
        servers = json.loads(penstock("status", fs, "--json").out)["servers"]
        ahead = [s["clock_ahead_ms"] for s in servers]
        if None not in ahead:
            return [a / 1000 for a in ahead], [s["clock_wrong"] for s in servers]
        assert time.monotonic() < end, servers
        time.sleep(0.05)


def copied(fs, directory, name, size=300_000):
    """Writes a file and reads it."""
    data = os.urandom(size)
    there, back = directory / "there", directory / "back"
    there.write_bytes(data)
    back.unlink(missing_ok=True)
    penstock("cp", there, f"penstock:/{name}", "-d", fs)
    penstock("cp", f"penstock:/{name}", back, "-d", fs)
    return back.read_bytes() == data


@pytest.mark.parametrize("shifted", ["--server 1"], indirect=True)
@pytest.mark.parametrize("hours", [1, -1])
@pytest.mark.parametrize("store", [(), ("--memory",)], ids=["directory", "memory"])
def test_a_data_servers_wrong_clock_is_named_and_stops_nobody(shifted, tmp_path, hours, store):
    fs, shift = shifted
    shift.set(hours * HOUR)
    penstock("up", fs, "--servers", "2", *store, env=shift.env)
    assert copied(fs, tmp_path, "a")
    (right, wrong), (nothing, what) = clocks(fs)
    assert abs(right) < 30 and nothing is None
    assert abs(wrong - hours * HOUR) < 30
    direction = "ahead of" if hours > 0 else "behind"
    for said in (what, penstock("status", fs).out):
        assert "data-1" in said and direction in said and "timedatectl" in said, said
    # It steps while the server runs, in both directions.
    for step in (-3 * hours, 3 * hours, 0):
        shift.set(step * HOUR)
        assert copied(fs, tmp_path, f"f{step}")
        (_, wrong), (_, what) = clocks(fs)
        assert abs(wrong - step * HOUR) < 30 and (what is None) == (step == 0)
    # And while it is down.
    for step in (hours, -hours):
        penstock("down", fs)
        shift.set(step * HOUR)
        penstock("up", fs, env=shift.env)
        assert copied(fs, tmp_path, f"g{step}")
    assert penstock("check", "-d", fs).code == 0


@pytest.mark.parametrize("shifted", ["--meta"], indirect=True)
def test_the_metadata_servers_wall_clock_may_step(shifted, tmp_path):
    fs, shift = shifted
    for start in (1, -1):
        shift.set(start * HOUR)
        penstock("up", fs, "--servers", "2", env=shift.env)
        assert copied(fs, tmp_path, f"s{start}")
        for step in (3, -3):
            shift.set(step * HOUR)
            assert copied(fs, tmp_path, f"f{start}{step}")
        penstock("down", fs)
    shift.set(HOUR)
    penstock("up", fs, env=shift.env)
    assert copied(fs, tmp_path, "last")
    ahead, wrong = clocks(fs)
    assert all(abs(a + HOUR) < 30 for a in ahead)
    assert all("behind" in w for w in wrong)


@pytest.mark.parametrize("shifted", ["cp"], indirect=True)
@pytest.mark.parametrize("hours", [1, -1])
def test_a_clients_wrong_clock_stops_nobody(shifted, tmp_path, hours):
    fs, shift = shifted
    penstock("up", fs, "--servers", "2")
    shift.set(hours * HOUR)
    data = os.urandom(300_000)
    (tmp_path / "there").write_bytes(data)
    penstock("cp", tmp_path / "there", "penstock:/f", "-d", fs, env=shift.env)
    penstock("cp", "penstock:/f", tmp_path / "back", "-d", fs, env=shift.env)
    assert (tmp_path / "back").read_bytes() == data
