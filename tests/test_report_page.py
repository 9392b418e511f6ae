"""The page of `penstock report TRACE`: what it says is what the trace holds, whatever the trace; and it works in a browser."""

import json
import os
import shutil
import stat
import struct
import subprocess
import zlib
from pathlib import Path

import pytest
from conftest import ROOT, penstock

WEB = ROOT / "web"
MOST_BYTES = 10_000_000
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<img src=x onerror=alert(2)>",
    "<b>bold</b>\n<!-- --> \u2028 \u202e gnp.exe & \" ' ` ${x} @PENSTOCK-DATA@",
    "\x00\x1b[2J]]> ü€𝄞 \ufeff",
]


def generate(directory, *args):
    """A trace of a program with every layer."""
    penstock("trace", "generate", "--stack", *args, "-o", directory)
    return directory


def page_of(trace, page):
    """The page's text and its data."""
    penstock("report", trace, "-o", page)
    text = page.read_text(encoding="utf-8")
    assert len(text.encode()) <= MOST_BYTES
    begin = text.index('<script type="application/json" id="data">')
    begin = text.index(">", begin) + 1
    return text, json.loads(text[begin : text.index("</script>", begin)])


@pytest.fixture(scope="module")
def regular(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("regular") / "trace", "--processes", 4, "--calls", 200)


@pytest.fixture(scope="module")
def irregular(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("irregular") / "trace", "--processes", 8, "--calls", 800, "--irregular")


def finding(data, name):
    return next(f for f in data["findings"] if f["id"] == name)


def test_the_page_says_what_the_trace_holds(regular, tmp_path):
    text, data = page_of(regular, tmp_path / "report.html")
    assert data["about"]["processes"] == 4 and data["about"]["servers"] == 4
    assert data["calls"]["made"] == 4 * 200 == len(data["calls"]["list"])
    assert data["about"]["written"] == 4 * 200 * 4 * 65536
    assert data["notes"] == []
    # Exclusive time is that which `breakdown` prints.
    rows = penstock("trace", "breakdown", regular, "--json").json()
    told = {row["layer"]: row["exclusive_ns"] for row in rows[0]["rows"]}
    shown = {layer: sum(row["layers"][place] for row in data["time"]) for place, layer in enumerate(data["layers"])}
    assert {layer: ns for layer, ns in shown.items() if ns} == {k: v for k, v in told.items() if v}
    # Bins of the timeline hold the time of the calls, within what a byte can tell.
    width, bins = data["axis"]["width"], data["axis"]["bins"]
    for place, row in enumerate(data["timeline"]["rows"]):
        time = sum(call[7] for call in data["calls"]["list"] if call[0] == place)
        binned = sum(sum(kind) for kind in row["bins"]) / 255 * width
        assert abs(binned - time) <= width * bins * len(row["bins"]) / 255
        assert binned > time * 0.9
    # A slow call reaches the devices.
    layers = {data["layers"][node[2]] for node in data["slow"][0]["nodes"]}
    assert {"mpiio", "client", "request", "server", "store", "device"} <= layers
    assert [len(file["points"]) for file in data["files"]] == [400, 400]
    assert len(data["heat"]["rows"]) == 4 and {row["from"] for row in data["heat"]["rows"]} == {"device"}
    # One file, nothing from outside.
    assert "http://" not in text.replace("http://www.w3.org", "") and "https://" not in text


def test_the_page_is_the_same_each_time_and_only_its_owners(irregular, tmp_path):
    pages = [tmp_path / "one.html", tmp_path / "two.html"]
    for page in pages:
        page_of(irregular, page)
        assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["one.html", "two.html"]


def test_findings_say_what_is_wrong_and_what_to_do(irregular, regular, tmp_path):
    _, data = page_of(irregular, tmp_path / "report.html")
    assert len(data["findings"]) == 8
    for name in ("small", "unaligned", "failed"):
        assert finding(data, name)["level"] == "high", finding(data, name)
    for one in data["findings"]:
        assert one["threshold"] and one["text"]
        assert bool(one["remedy"]) == (one["level"] in ("high", "minor")), one
    # Aligned accesses of whole rows of stripes, all collective: neither.
    _, data = page_of(regular, tmp_path / "regular.html")
    assert finding(data, "unaligned")["level"] == "fine"
    assert finding(data, "independent")["level"] == "fine"
    assert finding(data, "failed")["level"] == "fine"


def test_a_large_trace_gives_a_page_of_bounded_size(tmp_path):
    trace = generate(tmp_path / "trace", "--processes", 128, "--calls", 300, "--irregular")
    _, data = page_of(trace, tmp_path / "report.html")
    assert data["calls"]["made"] == 128 * 300
    assert len(data["calls"]["list"]) == 20_000
    assert len(data["timeline"]["rows"]) == 64
    assert all(len(file["points"]) <= 2_000 for file in data["files"])
    shortest = data["calls"]["list"][-1][7]
    assert all(call[7] >= shortest for call in data["calls"]["list"])


def parts(trace):
    return sorted(trace.glob("*.trace"))


def rewrite(path, head=None, name=None):
    """Changes a stream: its head by a function of the dictionary, its names by one of number and bytes."""
    data = path.read_bytes()
    length = struct.unpack_from("<I", data, 12)[0]
    old = json.loads(data[16 : 16 + length])
    new = json.dumps(head(old) if head else old).encode()
    out = data[:12] + struct.pack("<I", len(new)) + new
    out += struct.pack("<I", zlib.crc32(out))
    at = 16 + length + 4
    while data[at : at + 4] == b"BLCK":
        kind, count, _, size = struct.unpack_from("<4I", data, at + 4)
        payload = data[at + 56 : at + 56 + size]
        block = bytearray(data[at : at + 56])
        if kind == 2 and name:
            payload = b"".join(names(payload, count, name))
            struct.pack_into("<I", block, 16, len(payload))
            struct.pack_into("<I", block, 48, zlib.crc32(payload))
            struct.pack_into("<I", block, 52, zlib.crc32(bytes(block[:52])))
        out += bytes(block) + payload
        at += 56 + size
    path.write_bytes(out + data[at:])


def names(payload, count, name):
    at = 0

    def take():
        nonlocal at
        value = shift = 0
        while True:
            byte = payload[at]
            at += 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def put(value):
        out = b""
        while value >= 0x80:
            out += bytes([value & 0x7F | 0x80])
            value >>= 7
        return out + bytes([value])

    for _ in range(count):
        number, file, length = take(), take(), take()
        at += length
        new = name(number)
        yield put(number) + put(file) + put(len(new)) + new


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """A trace whose every text is an attack on a page, in a directory of that kind."""
    directory = tmp_path_factory.mktemp("hostile") / "<svg onload=alert(3)>\n&lt;"
    trace = generate(directory, "--processes", 3, "--calls", 40, "--irregular")

    def head(old):
        texts = ("host", "command", "job", "user", "device", "chosen")
        return old | {key: HOSTILE[i % len(HOSTILE)] + f" {key}" for i, key in enumerate(texts)}

    for part in parts(trace):
        rewrite(part, head=head, name=lambda n: (HOSTILE[n % len(HOSTILE)] + str(n)).encode())
    return trace


def test_hostile_names_are_text(hostile, tmp_path):
    text, data = page_of(hostile, tmp_path / "report.html")
    assert text.count("<script") == 2 and text.count("</script>") == 2
    assert not any(name in text for name in HOSTILE)
    assert data["about"]["command"] == HOSTILE[1] + " command"
    assert {file["name"] for file in data["files"]} == {HOSTILE[n % 4] + str(n) for n in range(1, 17)}


def test_names_that_are_no_text_are_said_to_be_damage(tmp_path):
    trace = generate(tmp_path / "trace", "--processes", 2, "--calls", 20)
    damaged = parts(trace)[-1]
    rewrite(damaged, name=lambda _: b"\xff\xfe\xc0")
    _, data = page_of(trace, tmp_path / "report.html")
    assert any("UTF-8" in note and damaged.name in note for note in data["notes"]), data["notes"]
    # A directory may have any name.
    odd = os.fsencode(tmp_path) + b"/\xff\xfe"
    shutil.copytree(os.fsencode(trace), odd)
    subprocess.run(
        [os.fsencode(ROOT / "target/release/penstock"), b"report", odd, b"-o", odd + b"/page.html"], check=True
    )


def test_a_cut_trace_is_shown_as_far_as_it_goes(tmp_path):
    trace = generate(tmp_path / "trace", "--processes", 2, "--calls", 3_000)
    cut = parts(trace)[0]
    whole = cut.stat().st_size
    os.truncate(cut, whole // 2)
    _, data = page_of(trace, tmp_path / "report.html")
    assert any(cut.name in note for note in data["notes"]), data["notes"]
    assert 0 < data["calls"]["made"] < 2 * 3_000 or "data-" in cut.name
    # One that is cut within its head is left out, and that is said.
    os.truncate(cut, 20)
    _, data = page_of(trace, tmp_path / "report.html")
    assert any("not read" in note for note in data["notes"]), data["notes"]


def test_without_parts_of_servers_the_requests_stand_for_them(irregular, tmp_path):
    trace = tmp_path / "trace"
    shutil.copytree(irregular, trace)
    for part in trace.glob("data-*.trace"):
        part.unlink()
    _, data = page_of(trace, tmp_path / "report.html")
    assert any("no part of data servers 0, 1, 2, 3" in note for note in data["notes"]), data["notes"]
    rows = data["heat"]["rows"]
    assert len(rows) == 4 and all(row["from"] == "requests" and any(row["busy"]) for row in rows)
    assert finding(data, "scheduler")["level"] == "unknown"
    # One missing server: the others' rows are their own.
    (trace / "data-1.trace").write_bytes((irregular / "data-1.trace").read_bytes())
    _, data = page_of(trace, tmp_path / "report.html")
    assert [row["from"] for row in data["heat"]["rows"]] == ["requests", "device", "requests", "requests"]


def test_without_parts_of_programs_the_servers_are_shown(irregular, tmp_path):
    trace = tmp_path / "trace"
    trace.mkdir()
    for part in irregular.glob("data-*.trace"):
        shutil.copy(part, trace)
    _, data = page_of(trace, tmp_path / "report.html")
    assert any("no part of a client" in note for note in data["notes"]), data["notes"]
    assert data["timeline"]["rows"] == [] and data["calls"]["list"] == []
    assert data["about"]["access"] == "server" and data["files"]


def test_clear_errors(tmp_path):
    empty = tmp_path / "empty"
    empty.mkdir()
    done = penstock("report", empty, "-o", tmp_path / "report.html", check=False)
    assert done.code != 0 and "*.trace" in done.err and not (tmp_path / "report.html").exists()
    done = penstock("report", empty, check=False, env={"PENSTOCK_REPORTS": str(tmp_path / "kept")})
    assert done.code != 0 and "-o report.html" in done.err
    done = penstock("report", tmp_path / "none", "-o", tmp_path / "report.html", check=False)
    assert done.code != 0 and "none" in done.err


@pytest.fixture(scope="module")
def node_modules(tmp_path_factory):
    """A copy of web/ with what its lock file names."""
    if not shutil.which("npm"):
        pytest.skip("no npm here: scripts/setup.sh web installs it")
    copy = tmp_path_factory.mktemp("web") / "web"
    shutil.copytree(WEB, copy, ignore=shutil.ignore_patterns("node_modules", "dist"))
    subprocess.run(["npm", "ci", "--no-audit", "--no-fund"], cwd=copy, check=True, stdout=subprocess.DEVNULL)
    return copy


@pytest.mark.long
def test_the_built_page_is_what_the_sources_give(node_modules):
    subprocess.run(["npm", "run", "--silent", "check"], cwd=node_modules, check=True)
    subprocess.run(["npm", "run", "--silent", "build"], cwd=node_modules, check=True, stdout=subprocess.DEVNULL)
    built = (node_modules / "dist" / "page.html").read_bytes()
    assert built == (WEB / "dist" / "page.html").read_bytes(), "web/ changed: npm run build, and commit web/dist"


def look(node_modules, page, shots):
    """What the browser says of a page."""
    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("no chromium here: scripts/setup.sh web installs it")
    shots.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["node", "test/browser.mjs", page, chromium, shots],
        cwd=node_modules,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["console"] == [] and result["requests"] == [], result
    assert [what for what, holds in result["checks"] if not holds] == []
    return result


@pytest.mark.long
@pytest.mark.parametrize("which", ["regular", "irregular", "hostile", "servers", "clients", "nothing"])
def test_in_a_browser(which, request, node_modules, tmp_path):
    trace = tmp_path / "trace"
    source = which if which in ("regular", "hostile") else "irregular"
    shutil.copytree(request.getfixturevalue(source), trace)
    gone = {"servers": "node*.trace", "clients": "data-*.trace"}.get(which)
    for part in trace.glob(gone) if gone else []:
        part.unlink()
    if which == "nothing":
        # Heads and nothing else: every part was killed at once.
        for part in parts(trace):
            length = struct.unpack_from("<I", part.read_bytes(), 12)[0]
            os.truncate(part, 16 + length + 4)
    page = tmp_path / "report.html"
    page_of(trace, page)
    shots = Path(os.environ.get("SCREENSHOTS", tmp_path)) / which
    result = look(node_modules, page, shots)
    if which in ("regular", "irregular"):
        assert any("device" in step for tree in result["trees"] for step in tree)
    if which == "irregular":
        assert "small" in result["findings"]
    if which == "nothing":
        assert "What is missing" in result["text"]


def test_a_real_run_says_its_methods_with_reasons(examples, tmp_path):
    trace = tmp_path / "trace"
    penstock("run", "-n", 2, "--trace", trace, "--", examples("tile"), "penstock:/out")
    kept = json.loads((trace / "run.json").read_text())
    assert kept["exit_code"] == 0 and stat.S_IMODE((trace / "run.json").stat().st_mode) == 0o600
    _, data = page_of(trace, tmp_path / "report.html")
    told = {
        (file["path"], direction, method)
        for file in kept["summary"]["files"]
        for direction in ("read", "write")
        for method in file[direction]["methods"]
    }
    assert told and {(m["file"], m["direction"], m["method"]) for m in data["methods"]} == told
    assert any(m["reason"] for m in data["methods"]) and all(m["calls"] > 0 for m in data["methods"])
    assert data["about"]["processes"] >= 2 and data["calls"]["made"] > 0
    # A damaged summary costs the methods and nothing else.
    (trace / "run.json").write_text("{")
    _, data = page_of(trace, tmp_path / "report.html")
    assert data["methods"] is None and data["calls"]["made"] > 0


def test_a_run_of_one_rank_that_crashed_is_shown(tmp_path):
    trace, place = tmp_path / "trace", tmp_path / "out"
    program = (
        "import os, signal, sys\n"
        f"for i in range(50): open('{place}' + str(i), 'wb', buffering=0).write(b'x' * 4096)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = penstock("run", "--trace", trace, "--no-penstock", "--", "/usr/bin/python3", "-c", program, check=False)
    assert done.code != 0
    _, data = page_of(trace, tmp_path / "report.html")
    assert data["about"]["processes"] == 1 and data["about"]["written"] == 50 * 4096
    assert data["heat"]["rows"] == [] and data["methods"] is None
    assert finding(data, "server")["level"] == "unknown"


@pytest.mark.long
def test_a_hundred_thousand_files_give_a_small_page(tmp_path):
    trace, place = tmp_path / "trace", tmp_path / "out"
    place.mkdir()
    program = f"for i in range(100_000): open('{place}/%d' % i, 'wb', buffering=0).write(b'x' * 64)"
    penstock("run", "--trace", trace, "--no-penstock", "--", "/usr/bin/python3", "-c", program, timeout=600)
    text, data = page_of(trace, tmp_path / "report.html")
    assert data["about"]["written"] == 100_000 * 64 and len(data["files"]) == 16
    assert len(text) < 4_000_000
