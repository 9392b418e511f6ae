"""File layouts from loop nests (docs/use/layout.md): closed forms against counting, emitted functions, files, bad input."""

import os
import random
import signal
import subprocess
import sys
import time
from math import prod

import numpy as np
import pytest
from penstock.layout import advise, convert, emit, evaluate, footprint, form, hierarchy, plan, search, source, view
from penstock.layout.errors import LayoutError

NEST = """
#define N 37
#define M 50
double A[N][M], B[M][N], D[2*N][N]; float _Complex E[N][M];
void f(void) {
  #pragma omp parallel for num_threads(8)
  for (int i = 0; i < N; i++)
    for (int j = 0; j < M; j++)
      A[i][j] = B[j][i] + B[j][i];
  #pragma omp parallel for num_threads(8)
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++)
      D[i+j][j] += 1;
  #pragma omp parallel for num_threads(4)
  for (int ii = 0; ii < 5; ii++)
    #pragma omp parallel for num_threads(2)
    for (int jj = 0; jj < 6; jj++)
      for (int i = 0; i < 7; i++)
        for (int j = 0; j < 8; j++)
          E[7*ii+i][8*jj+j] = 0;
}
"""
CACHES = """
threads = 8
[[level]]
name = "I/O node"
caches = 3
capacity = "384B"
block = "64B"
[[level]]
name = "storage node"
caches = 2
striped = true
capacity = "1KiB"
block = "64B"
"""


def planned(nest=NEST, caches=CACHES):
    """Layouts of a program, by array."""
    program = source.from_c(nest, "nest.c")
    return {
        layout.array: layout for layout, _ in plan.plan(program, hierarchy.parse(caches, "caches", program.threads))
    }


def every_index(layout):
    """Each element's subscripts, in C order."""
    return np.unravel_index(np.arange(layout.elements), layout.shape)


def random_case(rng):
    """A program and caches: transposed, reversed, strided and skewed references, blocks and chunks in turn."""
    n, m, threads = rng.randint(3, 30), rng.randint(3, 30), rng.choice([1, 2, 3, 4, 6, 8])
    schedule = rng.choice(["", f"schedule(static, {rng.randint(1, 4)})"])
    nest = f"""
double A[{2 * n}][{m}]; float B[{m}][{n}]; int D[{2 * n + m}][{m}]; short E[{n}][{m}][3];
void f(void) {{
  #pragma omp parallel for num_threads({threads}) {schedule}
  for (int i = 0; i < {n}; i++)
    for (int j = 0; j < {m}; j++)
      for (int k = 0; k < 3; k++)
        A[2*i][j] = B[j][{n - 1}-i] + D[i+j][j] + E[i][j][k];
}}"""
    caches = f"""
threads = {threads}
[[level]]
caches = {rng.randint(1, threads)}
capacity = {64 * rng.randint(threads, 40)}
block = 64
[[level]]
caches = {rng.choice([1, 2, 3])}
striped = true
capacity = {256 * rng.randint(threads, 40)}
block = {rng.choice([64, 128, 256])}"""
    return nest, caches


@pytest.mark.parametrize("seed", range(25))
def test_positions_cover_the_file_and_footprints_are_as_counted(seed):
    nest, caches = random_case(random.Random(seed))
    levels = hierarchy.parse(caches, "caches")
    for layout in planned(nest, caches).values():
        index = every_index(layout)
        place = layout.position(index)
        assert (np.sort(place) == np.arange(layout.elements)).all()
        for found, meant in zip(layout.index(place), index, strict=True):
            assert (found == meant).all()
        assert form.parse(form.dump([layout]), "layouts") == [layout]
        # Raises where counting differs.
        footprint.table(layout, levels, count=True)


def test_the_pattern_is_the_sources():
    """Figure 19: four threads, two SC1 of 4 blocks, SC2 of 16: <P1, P2> twice, then <P3, P4> twice, over and over."""
    nest = """double A[4][64];
void f(void) {
  #pragma omp parallel for num_threads(4)
  for (int i = 0; i < 4; i++) for (int j = 0; j < 64; j++) A[i][j] = 0;
}"""
    caches = """threads = 4
[[level]]
caches = 2
capacity = 256
block = 64
[[level]]
caches = 1
capacity = 1024
block = 64"""
    layout = planned(nest, caches)["A"]
    rows = layout.index(np.arange(256))[0]
    half = [0] * 16 + [1] * 16
    other = [2] * 16 + [3] * 16
    assert rows.tolist() == (half * 2 + other * 2) * 2


@pytest.mark.parametrize("seed", [None, 1, 5, 9])
def test_owners_run_what_they_own(seed):
    nest, caches = (NEST, CACHES) if seed is None else random_case(random.Random(seed))
    program = source.from_c(nest, "nest.c")
    seen = 0
    for layout, owners in plan.plan(program, hierarchy.parse(caches, "caches", program.threads)):
        if owners.shared or owners.weight < 1:
            continue
        for thread in range(owners.nest.threads):
            values = owners.nest.iterations(thread)
            for ref in owners.nest.references:
                if ref.array.name == layout.array and len(values["i"]):
                    index = np.broadcast_arrays(*(s.at(values) for s in ref.subscripts))
                    assert {layout.threads[s] for s in np.unique(layout.owner(index))} == {(thread,)}
                    seen += 1
    assert seen or program.threads == 1


@pytest.mark.parametrize("seed", [None, 3, 4, 8])
def test_emitted_functions_are_the_python_form(seed, tmp_path):
    layouts = list(planned(*(() if seed is None else random_case(random.Random(seed)))).values())
    (tmp_path / "at.h").write_text(emit.emit(layouts, "c"))
    (tmp_path / "at.f90").write_text(emit.emit(layouts, "fortran"))
    loops, calls = [], []
    for layout in layouts:
        dims = range(len(layout.shape))
        head = "".join(f"for (int64_t i{d} = 0; i{d} < {layout.shape[d]}; i{d}++) " for d in dims)
        loops.append(f'{head}printf("%lld\\n", (long long){layout.array}_at({", ".join(f"i{d}" for d in dims)}));')
        heads = "\n".join(f"do i{d} = 0, {layout.shape[d] - 1}" for d in dims)
        ends = "\n".join("end do" for _ in dims)
        calls.append(f'{heads}\nwrite(*, "(i0)") {layout.array}_at({", ".join(f"i{d}" for d in dims)})\n{ends}')
    (tmp_path / "c.c").write_text(
        '#include <stdio.h>\n#include "at.h"\nint main(void) {\n' + "\n".join(loops) + "\n}\n"
    )
    most = max(len(layout.shape) for layout in layouts)
    (tmp_path / "f.f90").write_text(
        "module at\ncontains\n" + (tmp_path / "at.f90").read_text() + "end module at\nprogram main\nuse at\n"
        "use, intrinsic :: iso_fortran_env, only: int64\nimplicit none\n"
        f"integer(int64) :: {', '.join(f'i{d}' for d in range(most))}\n" + "\n".join(calls) + "\nend program main\n"
    )
    flags = ["-O1", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["cc", "-std=c11", *flags, "-o", "c", "c.c"], cwd=tmp_path, check=True)
    subprocess.run(["gfortran", "-std=f2008", *flags, "-o", "f", "f.f90"], cwd=tmp_path, check=True)
    wanted = [p for layout in layouts for p in layout.position(every_index(layout)).tolist()]
    for program in ("c", "f"):
        printed = subprocess.run([tmp_path / program], capture_output=True, text=True, check=True).stdout
        assert list(map(int, printed.split())) == wanted, program


def test_toml_describes_the_same_nests():
    toml = """
[constants]
N = 37
M = 50
[[array]]
name = "A"
shape = ["N", "M"]
[[array]]
name = "B"
shape = ["M", "N"]
[[nest]]
reads = ["B[j][i]", "B[j][i]"]
writes = ["A[i][j]"]
[[nest.loop]]
name = "i"
to = "N"
threads = 8
[[nest.loop]]
name = "j"
to = "M"
"""
    program = source.from_toml(toml, "nest.toml")
    caches = hierarchy.parse(CACHES, "caches", 8)
    wanted = planned()
    assert {layout.array: layout for layout, _ in plan.plan(program, caches)} == {k: wanted[k] for k in "AB"}


C_HEAD = "double A[8][8];\nint X[8];\nvoid f(void) {\n#pragma omp parallel for num_threads(2)\n"
FOR = "for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) "


@pytest.mark.parametrize(
    ("text", "place", "says"),
    [
        (C_HEAD + FOR + "A[i*j][0] = 1; }", ":5", "not affine"),
        (C_HEAD + FOR + "A[X[i]][j] = 1; }", ":5", "not affine"),
        (C_HEAD + FOR + "A[i/2][j] = 1; }", ":5", "not affine"),
        (C_HEAD + FOR + "B[i][j] = 1; }", ":5", "B is not declared"),
        (C_HEAD + FOR + "A[i] = 1; }", ":5", "2 dimensions and 1 subscripts"),
        (C_HEAD + FOR + "A[i+1][j] = 1; }", ":5", "reaches from 1 to 8"),
        (C_HEAD + FOR + "A[i][k] = 1; }", ":5", "k is neither"),
        (C_HEAD + "for (int i = 0; i < 8; i++) for (int j = 5; j < 5; j++) A[i][j] = 1; }", ":5", "no iteration"),
        (C_HEAD + "for (int i = 8; i > 0; i--) A[i][0] = 1; }", ":5", "not a loop of the form"),
        (C_HEAD + "while (1) A[0][0] = 1; }", "", "outside the C subset"),
        (C_HEAD + FOR + "A[i][j] = 1;", "", "not in the C subset"),
        (C_HEAD.replace("[8][8]", "[8][-8]") + FOR + "A[i][j] = 1; }", ":1", "a dimension of -8"),
        (C_HEAD.replace("double A", "struct s A") + FOR + "A[i][j] = 1; }", ":1", "neither a number"),
        (C_HEAD.replace("num_threads(2)", "") + FOR + "A[i][j] = 1; }", ":4", "no num_threads"),
        (C_HEAD.replace("(2)", "(2) schedule(dynamic)") + FOR + "A[i][j] = 1; }", ":4", "schedule(dynamic)"),
        ("#pragma penstock repeats(2)\n" + C_HEAD + FOR + "A[i][j] = 1; }", ":1", "not known"),
        ("#define N\n" + C_HEAD + FOR + "A[i][j] = 1; }", ":1", "no plain constant"),
        ("double A[8];\n", "", "no loop nest"),
    ],
)
def test_bad_nests_are_refused_with_their_place(text, place, says):
    with pytest.raises(LayoutError) as error:
        source.from_c(text, "nest.c")
    assert f"nest.c{place}" in str(error.value) and says in str(error.value)


LEVEL = "[[level]]\ncaches = 2\ncapacity = 4096\nblock = 512\n"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("threads = 8\n" + LEVEL.replace("2", "9", 1), "some serve none"),
        ("threads = 8\n" + LEVEL.replace("4096", "4000"), "no multiple"),
        ("threads = 8\n" + LEVEL.replace("4096", "1024"), "less than one block"),
        ("threads = 4\n" + LEVEL, "the program has 8"),
        ("threads = 8\n" + LEVEL + "shared = [[0, 1, 2, 3], [3, 4, 5, 6, 7]]", "served by two caches"),
        ("threads = 8\n" + LEVEL + "shared = [[0, 1, 2, 3], [4, 5, 6]]", "thread 7 is served by no cache"),
        ("threads = 8\n" + LEVEL + "shared = [[0, 1, 2, 3], [4, 5, 6, 8]]", "no thread 8"),
        ("threads = 8\n" + LEVEL + "shared = [[0, 1, 2, 3]]", "but shared names 1"),
        ("threads = 8\n" + LEVEL + "striped = true\nshared = [[0]]", "contradict"),
        ("threads = 8\n" + LEVEL + "colour = 1", "unknown key colour"),
        ("threads = 8\n" + LEVEL.replace("4096", "-1"), "no size"),
        ("threads = 8\n", "0 levels"),
        ("threads = [", "caches: "),
    ],
)
def test_hierarchies_that_contradict_themselves_are_refused(text, says):
    with pytest.raises(LayoutError) as error:
        hierarchy.parse(text, "caches", 8)
    assert "caches" in str(error.value) and says in str(error.value)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("cuts = [0,", "cuts = [1,", "do not cover"),
        ("outer = [0, 1]", "outer = [0, 0]", "does not name each"),
        ("shape = [37, 50]", "shape = [38, 50]", "do not cover"),
        ("stride = 1", "stride = 2", "collide"),
        ("item = 8", "item = 0", "above 0"),
        ("rank = [0, 1,", "rank = [1, 1,", "rank"),
        ("chunk = [24,", "chunk = [0,", "rank or chunk"),
        ("format = 1", "format = 9", "this version reads 1"),
        ("nodes = [[0, 0, 0]", "nodes = [[2, 0, 0]", "side by side"),
        ("tiles = [37, 50]", 'tiles = ["a"]', "not of the form"),
    ],
)
def test_layouts_that_do_not_cover_the_array_are_refused(old, new, says):
    text = form.dump([planned()["A"]])
    assert old in text
    with pytest.raises(LayoutError, match="layouts") as error:
        form.parse(text.replace(old, new), "layouts")
    assert says in str(error.value)


def test_garbage_never_raises_anything_else():
    rng = random.Random(7)
    good = form.dump(planned().values())
    for text, read in ((NEST, source.from_c), (CACHES, hierarchy.parse), (good, form.parse)):
        for _ in range(60):
            raw = list(text)
            for _ in range(rng.randint(1, 4)):
                at = rng.randrange(len(raw))
                raw[at : at + rng.randint(0, 3)] = rng.choice(
                    ["", "[", "0", "-", "}", "999999999999999999999", "i", "=", "\n"]
                )
            try:
                read("".join(raw), "garbage")
            except LayoutError:
                pass


def test_files_are_converted_and_back(tmp_path):
    layout = planned()["A"]
    plain, laid, back = (tmp_path / n for n in ("plain", "laid", "back"))
    plain.write_bytes(os.urandom(layout.bytes))
    convert.convert(layout, plain, laid)
    array = np.frombuffer(plain.read_bytes()).reshape(layout.shape)
    assert (np.frombuffer(laid.read_bytes())[layout.position(np.indices(layout.shape))] == array).view("?").all() or (
        np.frombuffer(laid.read_bytes(), "u8")[layout.position(np.indices(layout.shape))] == array.view("u8")
    ).all()
    convert.convert(layout, laid, back, back=True)
    assert back.read_bytes() == plain.read_bytes() != laid.read_bytes()
    convert.convert(layout, back, back, replace=True)
    assert back.read_bytes() == laid.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["back", "laid", "plain"]


def test_conversion_refuses_what_would_lose_bytes(tmp_path):
    layout, other = planned()["A"], planned()["B"]
    plain, laid, short = (tmp_path / n for n in ("plain", "laid", "short"))
    plain.write_bytes(os.urandom(layout.bytes))
    short.write_bytes(plain.read_bytes()[:-1])
    laid.write_bytes(b"precious")
    with pytest.raises(LayoutError, match="cut short"):
        convert.convert(layout, short, tmp_path / "new")
    with pytest.raises(LayoutError, match="exists"):
        convert.convert(layout, plain, laid)
    assert laid.read_bytes() == b"precious"
    convert.convert(layout, plain, laid, replace=True)
    try:
        os.getxattr(laid, convert.MARK)
    except OSError:
        pytest.skip("no extended attributes here")
    with pytest.raises(LayoutError, match="already"):
        convert.convert(layout, laid, tmp_path / "new")
    assert other.bytes == layout.bytes
    with pytest.raises(LayoutError, match="another layout"):
        convert.convert(other, laid, tmp_path / "new", back=True)
    assert not (tmp_path / "new").exists()


def test_a_killed_conversion_leaves_the_source(tmp_path):
    nest = """#define N 2048
double A[N][N];
void f(void) {
  #pragma omp parallel for num_threads(8)
  for (int j = 0; j < N; j++) for (int i = 0; i < N; i++) A[i][j] = 0;
}"""
    caches = CACHES.replace("384B", "384KiB").replace("1KiB", "1MiB")
    (tmp_path / "layouts.toml").write_text(form.dump(planned(nest, caches).values()))
    plain = tmp_path / "plain"
    plain.write_bytes(os.urandom(2048 * 2048 * 8))
    before = plain.read_bytes()
    command = [sys.executable, "-m", "penstock.layout", "convert", tmp_path / "layouts.toml", plain, "--in-place"]
    for size in (1, len(before) // 2, len(before)):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        unfinished = tmp_path / ".plain.unfinished"
        while process.poll() is None and (not unfinished.exists() or unfinished.stat().st_size < size):
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        assert plain.read_bytes() == before
    # The next run takes the unfinished file over.
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert plain.read_bytes() != before and not unfinished.exists()
    subprocess.run([*command, "--back"], check=True, stdout=subprocess.DEVNULL)
    assert plain.read_bytes() == before


def test_views_hold_the_section_in_ascending_order():
    layout = planned()["B"]
    place, memory, lengths = view.blocks(layout, (3, 5), (20, 11))
    assert (np.diff(place) > 0).all() and lengths.sum() == 220
    laid = np.empty(layout.elements)
    plain = np.random.default_rng(1).random(layout.shape)
    laid[layout.position(np.indices(layout.shape))] = plain
    got = np.empty(220)
    for p, m, n in zip(place, memory, lengths, strict=True):
        got[m : m + n] = laid[p : p + n]
    assert (got.reshape(20, 11) == plain[3:23, 5:16]).all()
    with pytest.raises(LayoutError, match="leaves"):
        view.blocks(layout, (40, 5), (20, 11))


SIX_DEEP = """
#define N 256
#define B 32
double A[N][N], X[N][N], Y[N][N];
void f(void) {
  #pragma omp parallel for num_threads(8)
  for (int ii = 0; ii < N/B; ii++) for (int jj = 0; jj < N/B; jj++) for (int kk = 0; kk < N/B; kk++)
    for (int i = 0; i < B; i++) for (int j = 0; j < B; j++) for (int k = 0; k < B; k++)
      Y[B*ii+i][B*jj+j] += A[B*ii+i][B*kk+k] * X[B*kk+k][B*jj+j];
}"""


def test_six_deep_nests_take_a_second_at_most():
    caches = hierarchy.parse(
        CACHES.replace("384B", "64KiB").replace("1KiB", "1MiB").replace('"64B"', '"4KiB"'), "caches"
    )
    program = source.from_c(SIX_DEEP, "six.c")
    best = min(_time(lambda: plan.plan(program, caches)) for _ in range(3))
    assert best <= 1.0
    layouts = {layout.array: layout for layout, _ in plan.plan(program, caches)}
    assert layouts["A"].tiles == (32, 32) and layouts["X"].tiles == (32, 32)


def _time(work):
    begin = time.process_time()
    work()
    return time.process_time() - begin


def boxes_csv(path, shape, item, calls):
    """A trace of plain reads of boxes, a request for each run, as CSV."""
    lines = ["at_ns,request,kind,op,file,offset,bytes,program,rank,mpi_call,client_call"]
    for number, (rank, low, high) in enumerate(calls, 1):
        rows = np.indices([h - lo for lo, h in zip(low[:-1], high[:-1], strict=True)]).reshape(len(shape) - 1, -1)
        for row in rows.T:
            at = np.ravel_multi_index([*(row + low[:-1]), low[-1]], shape) * item
            size = (high[-1] - low[-1]) * item
            lines.append(f"{len(lines)},{len(lines)},arrival,read,7,{at},{size},1,{rank},{number},{len(lines)}")
    path.write_text("\n".join(lines) + "\n")


def random_trace(rng, path):
    """Ranks that read boxes of an array in turn; its shape, item and the place of the CSV."""
    dims = rng.choice([2, 2, 3])
    shape = tuple(rng.choice([96, 128, 200, 256] if dims == 2 else [24, 32, 48]) for _ in range(dims))
    box = [rng.choice([1, 2, n // 8, n // 3, n]) or 1 for n in shape]
    ranks, calls = rng.choice([1, 2, 4]), []
    order = list(range(dims))
    rng.shuffle(order)
    places = [range(0, n - b + 1, max(1, rng.choice([b, 2 * b, b // 2]))) for n, b in zip(shape, box, strict=True)]
    points = [[]]
    for d in order:
        points = [[*p, (d, v)] for p in points for v in places[d]]
    if rng.random() < 0.3:
        rng.shuffle(points)
    for k, point in enumerate(points[: 160 if prod(box) > 64 else 400]):
        low = [v for _, v in sorted(point)]
        calls.append((k % ranks, low, [lo + b for lo, b in zip(low, box, strict=True)]))
    item = rng.choice([4, 8])
    boxes_csv(path, shape, item, calls)
    return shape, item


def ratio_of(seed, path):
    """Bytes moved by the best of all chunk shapes over those of the advised one; the smaller of HDF5's and Zarr's."""
    shape, item = random_trace(random.Random(seed), path)
    calls, _, _ = advise.accesses(path, shape, item)
    return min(
        advise.brute_force(calls, shape, item, room)[0] / advise.chunk_for(calls, shape, item, room)[0]
        for room in (advise.HDF5_CACHE, 0)
    )


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_advised_chunks_are_near_the_best(seed, tmp_path):
    assert ratio_of(seed, tmp_path / "t.csv") >= 0.9


def test_advice_for_columns_is_columns(tmp_path):
    calls = [(0, [0, j], [512, j + 8]) for j in range(0, 512, 8)]
    boxes_csv(tmp_path / "t.csv", (512, 512), 8, calls)
    found, op, file = advise.accesses(tmp_path / "t.csv", (512, 512), 8)
    assert (op, file, len(found)) == ("read", 7, 64)
    assert found[0].boxes == (((0, 0), (512, 8)),)
    bytes_, chunk = advise.chunk_for(found, (512, 512), 8, 0)
    assert chunk == (512, 8) and bytes_ == 512 * 512 * 8


def test_traces_that_do_not_fit_are_refused(tmp_path):
    boxes_csv(tmp_path / "t.csv", (16, 16), 8, [(0, [0, 0], [16, 16])])
    with pytest.raises(LayoutError, match="an array of 512 bytes"):
        advise.accesses(tmp_path / "t.csv", (8, 8), 8)
    with pytest.raises(LayoutError, match="nothing about file 3"):
        advise.accesses(tmp_path / "t.csv", (16, 16), 8, file=3)
    text = (tmp_path / "t.csv").read_text()
    (tmp_path / "t.csv").write_text(text[: len(text) - 9])
    with pytest.raises(LayoutError, match="cut short"):
        advise.accesses(tmp_path / "t.csv", (16, 16), 8)


#: Nests of at most 8 threads that plans are compared with an exhaustive search on.
SEARCHED = {
    "rows": "A[i][j] = A[i][j] + 1;",
    "columns": "A[j][i] = A[j][i] + 1;",
    "both": "A[i][j] = A[j][i];",
    "reversed": "A[63-i][j] = A[63-i][j] + 1;",
}
LOOPS = "for (int i = 0; i < 64; i++) for (int j = 0; j < 64; j++)"


def searched(body, threads, loops=LOOPS, shape="[64][64]"):
    """Time of the best layout over that of the plan, on simulated caches."""
    nest = f"double A{shape};\nvoid f(void) {{\n#pragma omp parallel for num_threads({threads})\n{loops} {body}\n}}"
    caches = f"""threads = {threads}
[[level]]
caches = 2
capacity = "2KiB"
block = 128
[[level]]
caches = 2
striped = true
capacity = "4KiB"
block = 128"""
    program = source.from_c(nest, "nest.c")
    levels = hierarchy.parse(caches, "caches", threads)
    _, layouts = evaluate.layouts_of(program, levels)
    ours, best, _ = search.search(program, levels, layouts)
    return best / ours


@pytest.mark.parametrize("name", SEARCHED)
def test_plans_are_near_exhaustive_search(name):
    assert searched(SEARCHED[name], 4) >= 0.95


CUBE = "for (int i = 0; i < 16; i++) for (int j = 0; j < 16; j++) for (int k = 0; k < 16; k++)"


@pytest.mark.long
@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("body", [*SEARCHED.values(), "A[i][k][j] = 1;", "A[k][j][i] = 1;", "A[j][i][k] = 1;"])
def test_more_plans_are_near_exhaustive_search(body, threads):
    cube = "k" in body
    loops, shape = (CUBE, "[16][16][16]") if cube else (LOOPS, "[64][64]")
    assert searched(body, threads, loops, shape) >= 0.95
