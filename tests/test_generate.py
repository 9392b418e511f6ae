"""`penstock generate`: programs with generated I/O against programs that a person wrote (tests/generate), and bad input."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest
from conftest import PENSTOCK, ROOT, penstock

SOURCES = ROOT / "tests" / "generate"
LIBS = (
    Path("/usr/lib")
    / subprocess.run(["cc", "-print-multiarch"], capture_output=True, text=True, check=True).stdout.strip()
)
RANKS = 4
LEVELS = ("mpi-io", "pnetcdf", "hdf5")
PATTERNS = ("block", "strided", "guards", "flash")
WARNINGS = ["-O1", "-Wall", "-Wextra", "-Werror"]
COMPILERS = {
    "c": ["mpicc.openmpi", "-std=c11", *WARNINGS],
    "c++": ["mpicxx.openmpi", "-std=c++17", "-DOMPI_SKIP_MPICXX", *WARNINGS],
    "fortran": ["mpifort.openmpi", *WARNINGS, f"-I{LIBS}/fortran/gfortran-mod-15"],
}
SUFFIX = {"c": ".c", "c++": ".cpp", "fortran": ".f90"}
FLAGS = {
    "mpi-io": [],
    "pnetcdf": ["-lpnetcdf"],
    "hdf5": ["-I/usr/include/hdf5/openmpi", f"-L{LIBS}/hdf5/openmpi", "-lhdf5_fortran", "-lhdf5"],
    "netcdf4": [f"-I{LIBS}/netcdf/pnetcdf/include", f"-L{LIBS}/netcdf/pnetcdf", "-lnetcdf"],
}
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith("PENSTOCK_")} | {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

# Every value of every axis, each pair of level and pattern at least once; the others are long.
QUICK = {
    ("c", "mpi-io", "write", "flash"),
    ("fortran", "mpi-io", "read", "guards"),
    ("fortran", "mpi-io", "write", "strided"),
    ("c", "pnetcdf", "read", "block"),
    ("fortran", "pnetcdf", "write", "flash"),
    ("c", "hdf5", "write", "guards"),
    ("fortran", "hdf5", "read", "flash"),
    ("c", "hdf5", "read", "strided"),
}
CASES = [
    *(
        (language, level, way, p)
        for language in ("c", "fortran")
        for level in LEVELS
        for way in ("write", "read")
        for p in PATTERNS
    ),
    *(("c++", level, way, p) for level in (*LEVELS, "netcdf4") for way in ("write", "read") for p in PATTERNS),
    *(("c", "netcdf4", way, p) for way in ("write", "read") for p in PATTERNS),
]


def mpirun(*command, ranks=RANKS, check=True, **environment):
    """Runs a program with its MPI library's own MPI-IO."""
    done = subprocess.run(
        ["mpiexec.openmpi", "--oversubscribe", "-n", str(ranks), *map(str, command)],
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done


def compiled(source, language, level, *more):
    """The program of a source file."""
    program = source.with_suffix(".x")
    command = [*COMPILERS[language], *more, "-o", program, source, *FLAGS[level]]
    done = subprocess.run(command, cwd=source.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return program


def template(path, language, name, way, mode=None):
    """A template of tests/generate, filled in."""
    source = SOURCES / (name + (".f90" if language == "fortran" else ".c"))
    text = source.read_text().replace("@WAY@", way).replace("@MODE@", mode or {"write": "create", "read": "read"}[way])
    path = path / ("it" + SUFFIX[language])
    path.write_text(text.replace("@WRITES@", ".true." if way == "write" else ".false."))
    return path


def built(directory, source, language, level, *more):
    """The program that is generated from a template."""
    made = directory / f"made{len(list(directory.iterdir()))}{source.suffix}"
    penstock("generate", "--level", level, source, "-o", made)
    return compiled(made, language, level, *more)


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    """The file that a person's program writes."""
    directory, programs = tmp_path_factory.mktemp("by-hand"), {}

    def path(level, pattern, backwards):
        if level not in programs:
            source = directory / level / "by_hand.c"
            source.parent.mkdir()
            shutil.copy(SOURCES / "by_hand.c", source)
            programs[level] = compiled(source, "c", level, "-D" + level.replace("-", "").upper())
        file = directory / f"{level}-{pattern}-{backwards}"
        if not file.exists():
            mpirun(programs[level], pattern, file, **({"BACKWARDS": "1"} if backwards else {}))
        return file

    return path


def same(level, made, wanted):
    """Equal bytes; HDF5 keeps times in its files, so there equal to h5diff."""
    if level in ("hdf5", "netcdf4"):
        done = subprocess.run(["h5diff", made, wanted], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stdout + done.stderr
    else:
        assert made.read_bytes() == wanted.read_bytes()


@pytest.mark.parametrize(
    "case", [pytest.param(c, id="-".join(c), marks=() if c in QUICK else pytest.mark.long) for c in CASES]
)
def test_golden(case, by_hand, deployment, tmp_path):
    language, level, way, pattern = case
    program = built(
        tmp_path, template(tmp_path, language, pattern, way), language, level, *(["-DREAD"] if way == "read" else [])
    )
    # PnetCDF's header names dimensions in the order of their declarations.
    wanted = by_hand(level, pattern, language == "fortran" and level == "pnetcdf")
    where, copy = ("-d", deployment), tmp_path / "copy"
    # PnetCDF and netCDF look at files with POSIX calls first: they want plain paths (compatibility.md).
    mount = tmp_path / "not mounted"
    plain = level in ("pnetcdf", "netcdf4")
    if way == "write":
        mpirun(program, tmp_path / "plain")
        same(level, tmp_path / "plain", wanted)
        name, more = (mount / "out", ["--mount", mount]) if plain else ("penstock:/out", [])
        done = penstock("run", "-n", RANKS, *where, *more, "--", program, name)
        assert "no file of Penstock" not in done.err
        penstock("cp", *where, "penstock:/out", copy)
        same(level, copy, wanted)
        return
    mpirun(program, wanted)
    penstock("run", "-n", RANKS, "--direct", "--", program, wanted)
    if not plain:
        penstock("cp", *where, wanted, "penstock:/in")
        penstock("run", "-n", RANKS, *where, "--", program, "penstock:/in")
    # A reader that read nothing would say that values are wrong.
    if level == "mpi-io":
        short = tmp_path / "short"
        short.write_bytes(wanted.read_bytes()[:-8])
        done = mpirun(program, short, check=False)
        assert done.returncode != 0 and re.search("cut short|elements moved", done.stderr), done.stderr


FIGURE = """\
#include <stdio.h>
#include <string.h>
#define NLON 8
#define NLAT 12
#use_io

int main(int argc, char **argv)
{
    int rank;
    const char *Tname = "temperature", *Tunits = "K", *history = "Created by hand";
    double Trange[] = {0.0, 500.0}, temps[2][NLAT];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    #begin_dimensions
    lon: NLON;
    lat: NLAT;
    time: unlimited;
    #end_dimensions
    #begin_variables
    T: double, 3, time, lon, lat;
    Wwid: double, 3, time, lon, lat;
    #end_variables
    #begin_attributes
    long_name: T, text, Tname;
    units: T, text, Tunits;
    valid_range: global, double, Trange;
    history: global, text, history;
    #end_attributes
    for (int step = 0; step < 3; step++) {
        for (int i = 0; i < 2; i++)
            for (int k = 0; k < NLAT; k++) temps[i][k] = 1000 * step + 100 * (2 * rank + i) + k;
        #begin_access
        T: write, start(step, 2 * rank, 0), count(1, 2, NLAT), memory(&temps[0][0]);
        Wwid: write, start(step, 2 * rank, 0), count(1, 2, NLAT), memory(&temps[0][0]);
        #end_access
    }
    #close_file file;
    MPI_Finalize();
    return 0;
}
"""
FIELD = np.array([[[1000 * s + 100 * i + k for k in range(12)] for i in range(8)] for s in range(3)], "f8")


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("level", [*LEVELS, "netcdf4"])
def test_the_sources_figure(level, language, tmp_path):
    """Figure 12 with accesses in a loop over records; several variables go together."""
    source = tmp_path / ("figure" + SUFFIX[language])
    source.write_text(FIGURE)
    made = tmp_path / ("made" + SUFFIX[language])
    out = tmp_path / "test.nc"
    penstock("generate", "--level", level, source, "-o", made, "--file", out)
    mpirun(compiled(made, language, level))
    text = made.read_text()
    if level == "mpi-io":
        assert (np.fromfile(out).reshape(3, 2, 8, 12) == FIELD[:, None]).all()
        assert text.count("MPI_File_write_at_all(") == 1, "both variables in one call"
    elif level == "pnetcdf":
        assert text.count("ncmpi_iput_vara_double(") == 2 and text.count("ncmpi_wait_all(") == 1
        said = subprocess.run(["ncmpidump", out], capture_output=True, text=True, check=True).stdout
        assert (
            'T:long_name = "temperature"' in said
            and ":valid_range = 0., 500." in said
            and "time = UNLIMITED ; // (3 " in said
        )
        numbers = [float(n) for n in re.findall(r"\d+", said.split("data:")[1])]
        assert numbers == [*FIELD.ravel(), *FIELD.ravel()]
    else:
        with h5py.File(out) as file:
            for name in ("T", "Wwid"):
                assert (file[name][...] == FIELD).all() and file[name].maxshape[0] is None
            assert np.atleast_1d(file.attrs["valid_range"]).tolist() == [0.0, 500.0]
            assert bytes(file["T"].attrs["units"]) in (b"K", b"K\0")


def lines_of(text):
    """The lines that were not annotations."""
    kept, inside = [], False
    for line in text.split(b"\n"):
        if re.match(rb"\s*#begin_", line):
            inside = True
        elif re.match(rb"\s*#end_", line):
            inside = False
        elif not inside and not re.match(rb"\s*#(use_io|close_file)", line):
            kept.append(line)
    return kept


@pytest.mark.parametrize("level", LEVELS)
def test_all_else_is_copied(level, tmp_path):
    odd = b'/* #begin_access in a comment\n#begin_nonsense\n */\n#define X "\xff\xfe\t#begin_x" /* caf\xe9 */\n#if 0\n#pragma odd \' quote\n#endif\n'
    odd += b'static const char *s = "\\"#"; // it\'s\\\n#begin_more\n'
    content = (odd + FIGURE.encode()).replace(b"\n", b"\r\n") + b"// no end of line \0"
    source, made = tmp_path / "a.c", tmp_path / "b.c"
    source.write_bytes(content)
    penstock("generate", "--level", level, source, "-o", made, "--file", "t.nc")
    generated, position = made.read_bytes(), 0
    assert b"\n" not in generated.replace(b"\r\n", b"")
    start = len(odd.replace(b"\n", b"\r\n"))
    assert generated[:start] == content[:start]
    for line in lines_of(content[start:]):
        at = generated.find(line, position)
        assert at >= 0, line
        position = at + len(line)
    assert generated.endswith(b"// no end of line \0")
    (tmp_path / "plain.f90").write_bytes(content.replace(b"#", b"!"))


def test_nothing_is_overwritten_unasked(tmp_path):
    source, made = tmp_path / "a.c", tmp_path / "b.c"
    source.write_text(FIGURE)
    made.write_text("mine")
    arguments = ("generate", "--level", "mpi-io", source, "--file", "x")
    done = penstock(*arguments, "-o", made, check=False)
    assert done.code == 1 and "--force" in done.err and made.read_text() == "mine"
    done = penstock(*arguments, "-o", source, "--force", check=False)
    assert done.code == 1 and "template itself" in done.err and source.read_text() == FIGURE
    penstock(*arguments, "-o", made, "--force")
    assert made.read_text() != "mine" and sorted(p.name for p in tmp_path.iterdir()) == ["a.c", "b.c"]
    done = penstock(*arguments, "-o", tmp_path / "no" / "such", check=False)
    assert done.code == 1 and "cannot write" in done.err


GOOD = """\
#use_io
#begin_file
f: "a.nc", create;
#end_file
#begin_dimensions
t: unlimited;
y: 8;
x: 10;
#end_dimensions
#begin_variables
u: double, 2, y, x;
r: int, 2, t, x;
#end_variables
#begin_access
u: write, start(0, 0), count(2, 10), memory(u);
#end_access
#close_file f;
"""
# What is changed in GOOD, into what; line and column of the error; words that it has.
BAD = [
    ("#end_file\n", "", "4:1", "expected #end_file"),
    ("#end_access\n", "", "16:1", "expected #end_access"),
    ("#end_dimensions", "#end_variables", "9:1", "expected #end_dimensions"),
    ("#begin_access\n", "", "15:1", "no #begin_access before it"),
    ("#close_file f;\n", "", "3:1", "never closed"),
    ("#use_io\n", "", "1:1", "no #use_io"),
    ("#use_io\n", "#use_io now\n", "1:9", "expected nothing after"),
    ("#begin_variables", "#begin_variable", "10:1", "did you mean #begin_variables?"),
    ("#begin_access", "#being_access", "14:1", "did you mean #begin_access?"),
    ("#close_file f;", "#close_file f", "17:13", "expected ';'"),
    ("#close_file f;", "#close_file g;", "17:13", "no file 'g'; expected f"),
    ('"a.nc", create', '"a.nc", make', "3:12", "expected create, create_new, read, update"),
    ('"a.nc", create', '"a.nc, create', "3:4", "a string is not closed"),
    ("create;", "create, hint(a);", "3:20", "expected hint(key, value)"),
    ("y: 8;", "y: 0;", "7:4", "size 0 of y; expected 1 or more"),
    ("y: 8;", "y: -3;", "7:4", "size -3"),
    ("y: 8;", "y: unlimited;", "7:4", "second unlimited"),
    ("y: 8;", "t: 8;", "7:1", "declared twice"),
    ("y: 8;", "y 8;", "7:4", "expected ':'"),
    ("y: 8;", "y: 8", "7:4", "expected ';' before 'x'"),
    ("y: 8;", "y: (8;", "7:4", "not closed"),
    ("u: double", "u: doubel", "11:4", "did you mean double?"),
    ("u: double, 2,", "u: double, 3,", "11:12", "3 dimensions are said, 2 are named"),
    ("2, y, x;", "2, y, z;", "11:18", "dimension 'z' is not declared; expected t, y, x"),
    ("2, t, x;", "2, x, t;", "12:15", "the first one"),
    ("u: write", "v: write", "15:1", "variable 'v' is not declared; expected u, r"),
    ("u: write", "u: print", "15:4", "expected write, read"),
    ("start(0, 0)", "start(0)", "15:11", "start has 1 numbers; expected 2: y, x"),
    ("start(0, 0)", "start(0, -1)", "15:20", "start -1; expected 0 or more"),
    ("start(0, 0)", "start(7, 0)", "15:30", "y has 8 elements; start, count and stride reach 9"),
    ("count(2, 10)", "count(2, 11)", "15:33", "x has 10 elements"),
    ("count(2, 10)", "count(2, 10), stride(0, 1)", "15:45", "stride 0; expected 1 or more"),
    ("memory(u)", "memory(u, 2, 9)", "15:51", "memory of x has 9 elements"),
    ("memory(u)", "memory(u, 2, 12 guard -1)", "15:60", "guard -1"),
    ("memory(u)", "memory(u, 2)", "15:48", "memory has 1 extents; expected 2: y, x"),
    ("memory(u)", "memory(u, q: 2, 10)", "15:48", "no dimension 'q'; expected y, x"),
    ("memory(u)", "memory(u, y: 2, 10)", "15:51", "expected all or none"),
    (", memory(u)", "", "15:24", "expected memory(buffer)"),
    ("memory(u)", "memory(u), memory(u)", "15:49", "given twice"),
    ("memory(u)", "memory(u), colective", "15:49", "expected start(...)"),
    ("memory(u)", "memory(u), independent, method(two-phase)", "15:1", "expected collective"),
    ("memory(u);", "memory(u);\nu: read, memory(u);", "16:1", "expected two blocks"),
    ("u: write, start(0, 0), count(2, 10)", "r: write", "15:1", "expected count"),
    (
        "#end_variables",
        "#end_variables\n#begin_attributes\na: w, text, b;\n#end_attributes",
        "15:4",
        "not declared; expected global, u, r",
    ),
    (
        "#end_variables",
        "#end_variables\n#begin_attributes\na: u, txt, b;\n#end_attributes",
        "15:7",
        "did you mean text?",
    ),
    ("create;", "read;", "15:4", "opened to read"),
]


@pytest.mark.parametrize(("old", "new", "place", "words"), BAD, ids=[f"{p}-{w[:20]}" for _, _, p, w in BAD])
def test_bad_annotations(old, new, place, words, tmp_path):
    source, made = tmp_path / "bad.c", tmp_path / "made.c"
    assert GOOD.count(old) >= 1
    source.write_text(GOOD.replace(old, new, 1))
    done = penstock("generate", "--level", "pnetcdf", source, "-o", made, check=False)
    assert done.code == 1 and "Traceback" not in done.err and not made.exists()
    assert done.err.startswith(f"{source}:{place}: ") and words in done.err, done.err
    # The line and a mark below the column.
    assert done.err.splitlines()[-1].index("^") == 1 + int(place.split(":")[1])


def test_good_annotations_are_good(tmp_path):
    for level in (*LEVELS, "netcdf4"):
        (tmp_path / "good.c").write_text(GOOD)
        penstock("generate", "--level", level, tmp_path / "good.c")
    (tmp_path / "good.f90").write_text(GOOD.replace("start(0, 0)", "start(1, 1)"))
    done = penstock("generate", "--level", "pnetcdf", tmp_path / "good.f90", check=False)
    assert "has to be the last one" in done.err, "in Fortran the unlimited dimension is the last one"


def test_types_that_do_not_fit(tmp_path):
    unsigned = tmp_path / "u.f90"
    unsigned.write_text(GOOD.replace("double", "uint").replace("start(0, 0)", "start(1, 1)"))
    assert "Fortran has no uint" in penstock("generate", "--level", "hdf5", unsigned, check=False).err
    old = tmp_path / "old.c"
    old.write_text(GOOD.replace("create", "create, format(cdf2)").replace("double", "int64"))
    assert (
        "cdf2 has no int64; expected format(cdf5)" in penstock("generate", "--level", "pnetcdf", old, check=False).err
    )
    # A buffer of another type is found by the compiler, at every level.
    for language, name in (("c", "block.c"), ("fortran", "block.f90")):
        for level in LEVELS:
            source = template(tmp_path, language, "block", "write")
            source.write_text(source.read_text().replace("u: double, 2", "u: float, 2"))
            made = tmp_path / ("made" + source.suffix)
            penstock("generate", "--level", level, source, "-o", made, "--force")
            done = subprocess.run(
                [*COMPILERS[language], "-c", "-o", "/dev/null", made, *FLAGS[level][:1]],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                check=False,
            )
            assert done.returncode != 0 and re.search("incompatible|mismatch", done.stderr, re.IGNORECASE), (
                name,
                level,
                done.stderr,
            )


def test_wrong_arguments(tmp_path):
    source = tmp_path / "a.c"
    source.write_text(GOOD)
    for arguments, words in (
        ([], "TEMPLATE or --from-trace"),
        ([source], "expected --level: mpi-io, pnetcdf, hdf5, netcdf4"),
        (["--level", "pnetcdf", tmp_path / "none.c"], "cannot read"),
        (["--level", "pnetcdf", tmp_path / "a.f"], "Fixed form is not read"),
        (["--level", "netcdf4", tmp_path / "a.f90"], "No such file"),
        (["--from-trace", tmp_path], "holds no *.trace"),
        (["--from-trace", source], "a.c"),
    ):
        done = penstock("generate", *arguments, check=False)
        assert done.code in (1, 2) and words in done.err and "Traceback" not in done.err, done.err
    told = penstock("generate", "--help").out
    assert "#begin_access" in told and "Examples:" in told


def test_broken_templates_never_crash_it(tmp_path):
    """Every cut and many flips of a good template: an error with a place, or a program."""
    sys.path.insert(0, str(ROOT / "python"))
    try:
        from penstock.generate.__main__ import generated
        from penstock.generate.model import Analyzer
        from penstock.generate.source import Source, TemplateError
    finally:
        sys.path.pop(0)
    rng = np.random.default_rng(28)
    texts = [GOOD[:cut] for cut in range(len(GOOD))]
    for _ in range(3000):
        text = list(GOOD)
        for at in rng.integers(0, len(text), rng.integers(1, 4)):
            text[at] = chr(rng.choice([*range(32, 127), 10, 13, 0, 200]))
        texts.append("".join(text))
    made = 0
    for k, text in enumerate(texts):
        for language in ("c", "fortran"):
            source = Source("t", text, language)
            try:
                generated(
                    source,
                    Analyzer(source, ("pnetcdf", "hdf5", "mpi-io")[k % 3], None).program(),
                    ("pnetcdf", "hdf5", "mpi-io")[k % 3],
                )
                made += 1
            except TemplateError as e:
                assert re.match(r"t:\d+:\d+: ", str(e))
    assert made > 100


@pytest.mark.parametrize("level", LEVELS)
def test_programs_stop_with_a_clear_message(level, tmp_path):
    """Wrong at run time: ranges beyond a dimension, a directory that is missing, a file of another shape."""
    source = template(tmp_path, "c", "block", "write")
    text = source.read_text()
    program = built(tmp_path, source, "c", level)
    done = mpirun(program, tmp_path / "no" / "out", check=False)
    assert done.returncode != 0 and "no/out: " in done.stderr, done.stderr
    mpirun(program, tmp_path / "out")
    source.write_text(text.replace("start(rank * ROWS, 0)", "start(rank * ROWS + 1, 0)"))
    done = mpirun(built(tmp_path, source, "c", level), tmp_path / "out", check=False)
    assert (
        done.returncode != 0
        and "u of out: sizes: dimension 0 (from 0): start 10, count 3, stride 1; size 12" in done.stderr
    ), done.stderr
    mpirun(program, tmp_path / "out")
    reader = template(tmp_path, "c", "block", "read")
    reader.write_text(reader.read_text().replace("#define NX 7", "#define NX 8"))
    done = mpirun(built(tmp_path, reader, "c", level, "-DREAD"), tmp_path / "out", check=False)
    words = "cut short" if level == "mpi-io" else "has 7 elements in the file, the program declares 8"
    assert done.returncode != 0 and words in done.stderr, done.stderr


def test_explain(tmp_path):
    expected = {"block": "two-phase", "strided": "datatype", "guards": "datatype", "flash": "datatype"}
    for pattern, method in expected.items():
        said = penstock(
            "generate", "--level", "hdf5", template(tmp_path, "c", pattern, "write"), "--explain", "--json"
        ).json()[0]
        assert said["accesses"][0]["method"] == method and said["accesses"][0]["why"]
        assert said["files"][0]["hints"]["romio_cb_write"] == ("enable" if method == "two-phase" else "disable")


# Servers see every request.
TRACED = ("run", "-n", RANKS, "--shortcut", "disable", "--trace")
PROPOSED = {
    "block": "v0: write, start(rank * 21), count(21), memory(v0);",
    "strided": "v0: write, start(rank), count(11), stride(4), memory(v0);",
    "guards": "v0: write, start((rank / 2) * 3, (rank % 2) * 20), count(3, 20), memory(v0);",
}


@pytest.mark.parametrize("pattern", PROPOSED)
def test_annotations_from_a_trace(pattern, tmp_path):
    """What is proposed, put into a program, makes the file that was traced."""
    program = built(tmp_path, template(tmp_path, "c", pattern, "write"), "c", "mpi-io")
    traces = tmp_path / "traces"
    penstock(*TRACED, traces, "--method", "posix", "--", program, "penstock:/out")
    proposed = penstock("generate", "--from-trace", traces).out
    assert PROPOSED[pattern] in proposed, proposed
    mpirun(program, tmp_path / "wanted")
    head = "#include <mpi.h>\n#use_io\nint main(int argc, char **argv) {\n int rank; MPI_Init(&argc, &argv); MPI_Comm_rank(MPI_COMM_WORLD, &rank);\n"
    counts = [int(n) for n in re.search(r"count\(([^)]*)\)", proposed)[1].split(",")]
    head += f" static double v0[{int(np.prod(counts))}];\n (void)v0;\n"
    fill = template(tmp_path, "c", pattern, "write").read_text()
    assert "@" not in fill
    # The values do not matter for the ranges; ones in the ranges, and nothing else, are what both have to write.
    head += f" for (int k = 0; k < {int(np.prod(counts))}; k++) v0[k] = 1;\n"
    whole = tmp_path / "whole.c"
    whole.write_text(head + proposed.replace('"file0.nc"', "argv[1]") + " MPI_Finalize(); return 0; }\n")
    again = built(tmp_path, whole, "c", "mpi-io")
    mpirun(again, tmp_path / "again")
    assert (tmp_path / "again").stat().st_size == (tmp_path / "wanted").stat().st_size
    assert (np.fromfile(tmp_path / "again") == 1).all()


def test_a_trace_without_patterns_says_so(tmp_path):
    program = built(tmp_path, template(tmp_path, "c", "strided", "write"), "c", "mpi-io")
    penstock(*TRACED, tmp_path / "traces", "--method", "datatype", "--", program, "penstock:/out")
    said = penstock("generate", "--from-trace", tmp_path / "traces", "--json").json()[0]
    assert "ranges of ranks overlap" in said["files"][0]["why"]
    cut = tmp_path / "traces" / "data-0.trace"
    cut.write_bytes(cut.read_bytes()[:-40])
    done = penstock("generate", "--from-trace", cut, check=False)
    assert done.code == 1 and "ends at byte" in done.err and "Traceback" not in done.err


@pytest.fixture(scope="module")
def kernels(tmp_path_factory):
    """FLASH-IO in C with MPI-IO and S3D-IO in Fortran with PnetCDF: generated, and written by hand."""
    directory = tmp_path_factory.mktemp("kernels")
    examples = ROOT / "examples"
    programs = {}
    for name, language, level, hand in (
        ("flash", "c", "mpi-io", examples / "flash.c"),
        ("s3d", "fortran", "pnetcdf", examples / "generate" / "s3d_by_hand.f90"),
    ):
        source = examples / "generate" / (name + SUFFIX[language])
        made = directory / f"{name}_generated{SUFFIX[language]}"
        penstock("generate", "--level", level, source, "-o", made)
        copy = directory / f"{name}_by_hand{SUFFIX[language]}"
        shutil.copy(hand, copy)
        programs[name] = [compiled(p, language, level, f"-I{examples}") for p in (made, copy)]
    calls = directory / "calls.so"
    command = [*COMPILERS["c"], "-shared", "-fPIC", "-o", calls, SOURCES / "calls.c"]
    subprocess.run(command, check=True)
    return programs, calls


HINTS = [f"--hint=romio_{h}" for h in ("cb_write=disable", "ds_write=enable", "pvfs2_dtype_write=enable")]
KERNELS = {
    "flash": (
        ["--scale", "0.05"],
        ["--write-only", *(w for h in HINTS for w in ("--hint", h.removeprefix("--hint=")))],
    ),
    "s3d": (["12", "1"], []),
}


@pytest.mark.parametrize("name", KERNELS)
def test_kernels_make_the_same_calls(name, kernels, tmp_path):
    """As a person's program: the same MPI-IO calls with the same places and hints, and the same requests at the servers."""
    programs, calls = kernels
    both, by_hand_only = KERNELS[name]
    logs, files, requests = [], [], []
    for k, program in enumerate(programs[name]):
        where = tmp_path / str(k)
        where.mkdir()
        arguments = [*both, *(by_hand_only if k else [])]
        mpirun("env", f"LD_PRELOAD={calls}", f"CALLS={where}/calls", program, where / "out", *arguments)
        logs.append([(where / f"calls.{rank}").read_text() for rank in range(RANKS)])
        files.append((where / "out").read_bytes())
        path, more = (where / "m" / "out", ["--mount", where / "m"]) if name == "s3d" else ("penstock:/out", [])
        penstock(*TRACED, where / "traces", "--method", "posix", *more, "--", program, path, *arguments)
        seen = []
        for trace in sorted((where / "traces").glob("data-*.trace")):
            rows = [line.split(",") for line in penstock("trace", "show", "--csv", trace).out.splitlines()[1:]]
            seen += [(trace.name, row[3], row[5], row[6], row[8], row[9]) for row in rows if row[2] == "arrival"]
        # Calls are numbered among all that a trace holds: what counts is their order.
        calls_of = {rank: sorted({int(row[5]) for row in seen if row[4] == rank}) for rank in {row[4] for row in seen}}
        requests.append(sorted((*row[:5], calls_of[row[4]].index(int(row[5]))) for row in seen))
    assert logs[0] == logs[1]
    assert all("MPI_File_write_at_all" in log and "romio_cb_write" in log for log in logs[0])
    assert files[0] == files[1]
    assert requests[0] == requests[1] and len(requests[0]) >= RANKS


def test_the_tutorial(tmp_path):
    """Each file and each command of the page, as it stands there."""
    page = (ROOT / "docs" / "use" / "generate-tutorial.md").read_text()
    tools = tmp_path / "bin"
    tools.mkdir()
    for name, command in (("mpicc", "mpicc.openmpi"), ("mpiexec", "mpiexec.openmpi --oversubscribe")):
        (tools / name).write_text(f'#!/bin/sh\nexec {command} "$@"\n')
        (tools / name).chmod(0o755)
    (tools / "penstock").symlink_to(PENSTOCK)
    blocks = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert [kind for kind, _, _ in blocks] == ["c", "sh", "c", "sh", "sh", "sh"]
    environment = ENVIRONMENT | {"PATH": f"{tools}:{ENVIRONMENT['PATH']}", "PENSTOCK_REPORTS": "none"}
    for kind, name, text in blocks:
        if kind == "c":
            (tmp_path / name).write_text(text)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", text],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


BIG = """\
#include <mpi.h>
#include <stdlib.h>
#use_io
int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    signed char *u = calloc(ROWS, COLUMNS);
    if (!u) return 3;
    u[(size_t)ROWS * COLUMNS - 1] = 7;
    #begin_file
    out: argv[1], create;
    #end_file
    #begin_dimensions
    y: ROWS;
    x: COLUMNS;
    #end_dimensions
    #begin_variables
    u: byte, 2, y, x;
    #end_variables
    #begin_access
    u: write, memory(u);
    #end_access
    #close_file out;
    free(u);
    MPI_Finalize();
    return 0;
}
"""


@pytest.mark.long
def test_counts_beyond_two_to_the_31(deployment, tmp_path):
    """2.4e9 elements in one access: written, or refused with a message that says what to do."""
    source = tmp_path / "big.c"
    source.write_text(BIG)
    shape = ("-DROWS=3", "-DCOLUMNS=800000000")
    out = tmp_path / "out"
    program = built(tmp_path, source, "c", "mpi-io", *shape)
    for level in ("mpi-io", "hdf5"):
        mpirun(program if level == "mpi-io" else built(tmp_path, source, "c", level, *shape), out, ranks=1)
        with open(out, "rb") as file:
            file.seek(-1, os.SEEK_END)
            assert file.tell() >= 2_400_000_000 - 1 and file.read() == b"\7"
        out.unlink()
    penstock("run", "-n", 1, "-d", deployment, "--", program, "penstock:/out")
    penstock("cp", "-d", deployment, "penstock:/out", out)
    assert out.stat().st_size == 2_400_000_000
    out.unlink()
    done = mpirun(built(tmp_path, source, "c", "pnetcdf", *shape), out, ranks=1, check=False)
    assert done.returncode != 0 and "u of out: ncmpi_put_vara_schar_all: " in done.stderr, done.stderr
    program = built(tmp_path, source, "c", "mpi-io", "-DROWS=1", "-DCOLUMNS=2400000000")
    done = mpirun(program, out, ranks=1, check=False)
    assert done.returncode != 0 and "split that dimension into two" in done.stderr, done.stderr
