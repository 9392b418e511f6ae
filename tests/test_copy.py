"""cp -r, stage-in, stage-out: whatever happens, what has its name is whole, and the same command goes on."""

import contextlib
import hashlib
import os
import random
import signal
import socket
import stat
import subprocess
import threading
import time
from pathlib import Path

import pytest
from conftest import PENSTOCK, penstock

MIB = 1 << 20


def fill(top, seed=1):
    """A tree with what trees have: small files, one of many pieces, odd names, empty and deep directories, holes."""
    chance = random.Random(seed)
    (top / "deep" / "er" / "est").mkdir(parents=True)
    (top / "empty" / "too").mkdir(parents=True)
    (top / "big").write_bytes(chance.randbytes(18 * MIB + 4321))
    (top / "deep" / "two pieces").write_bytes(chance.randbytes(5 * MIB))
    (top / "deep" / "er" / "none").write_bytes(b"")
    for k in range(60):
        (top / "deep" / "er" / "est" / f"small {k}\n\t'\"*?").write_bytes(chance.randbytes(chance.randrange(9000)))
    with (top / "sparse").open("wb") as f:
        f.truncate(64 * MIB)
        f.seek(20 * MIB)
        f.write(b"an island")
    (top / ("long " * 51)).write_bytes(b"255 characters")
    (top / "deep" / "two pieces").chmod(0o640)
    (top / "empty").chmod(0o750)
    for k, path in enumerate(sorted(top.rglob("*"), reverse=True)):
        os.utime(path, ns=(0, 1_600_000_000_123_456_789 + k * 1_000_000_007))
    return top


def tree(top):
    """Everything that a copy keeps."""
    found = {}
    for path in sorted(top.rglob("*")):
        s = path.lstat()
        if path.is_symlink():
            found[str(path.relative_to(top))] = ("link", os.readlink(path))
            continue
        what = "dir" if path.is_dir() else hashlib.blake2b(path.read_bytes()).hexdigest()
        found[str(path.relative_to(top))] = (what, stat.S_IMODE(s.st_mode), s.st_mtime_ns)
    return found


def inside(deployment, *paths):
    return [e["path"] for e in penstock("ls", "--json", *paths, "-d", deployment).json()]


@pytest.fixture
def source(tmp_path):
    (tmp_path / "source").mkdir()
    return fill(tmp_path / "source")


def test_a_tree_goes_in_and_out(deployment, source, tmp_path):
    lines = penstock("cp", "-r", "--json", source, "penstock:/tree", "-d", deployment).json()
    files = [path for path in source.rglob("*") if path.is_file()]
    assert lines[-1]["copied"] == len(files) and lines[-1]["same"] == 0 and lines[-1]["failed"] == 0
    assert lines[-1]["bytes"] == sum(path.stat().st_size for path in files)
    assert {line["source"] for line in lines[:-1]} == {str(path) for path in files}
    penstock("cp", "-r", "penstock:/tree", tmp_path / "back", "-d", deployment)
    assert tree(tmp_path / "back") == tree(source)
    # Sparse stays sparse, on both sides.
    assert (tmp_path / "back" / "sparse").stat().st_blocks * 512 < MIB
    stores = sum(p.stat().st_blocks * 512 for p in deployment.glob("data-*/**/*") if p.is_file())
    assert stores < sum(p.stat().st_blocks * 512 for p in files) + 4 * MIB
    # Again: all of it is there, and nothing moves.
    (again,) = [
        o for o in penstock("cp", "-r", "--json", source, "penstock:/tree", "-d", deployment).json() if "files" in o
    ]
    assert again["copied"] == 0 and again["same"] == len(files) and again["moved"] == 0
    # Inside, and into a directory.
    penstock("mkdir", "/in", "-d", deployment)
    penstock("cp", "-r", "penstock:/tree", "penstock:/in/", "-d", deployment)
    penstock("cp", "-r", "penstock:/in/tree", f"{tmp_path}/", "-d", deployment)
    assert tree(tmp_path / "tree") == tree(source)
    # Nothing is left under a temporary name.
    (report,) = penstock("check", "-d", deployment, "--json").json()
    assert report["clean"] and inside(deployment, "/") == ["/in", "/tree"]


def test_the_checksum_is_the_one_that_others_compute(deployment, tmp_path):
    """Published digests of BLAKE3's own input pattern, 251 repeating bytes."""
    known = {
        0: "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262",
        1: "2d3adedff11b61f14c886e35afa036736dcd87a74d27b5c1510225d0f592e213",
        102400: "bc3e3d41a1146b069abffad3c0d44860cf664390afce4d9661f7902e7943e085",
    }
    for n, digest in known.items():
        (tmp_path / "in").write_bytes((bytes(range(251)) * (n // 251 + 1))[:n])
        (report,) = penstock("cp", "-f", "--json", tmp_path / "in", "penstock:/a", "-d", deployment).json()
        assert report["blake3"] == digest


def test_a_target_that_differs_is_named_and_kept(deployment, source, tmp_path):
    penstock("cp", "-r", source, "penstock:/tree", "-d", deployment)
    before = (source / "deep" / "two pieces").read_bytes()
    changed = before[:-1] + bytes([before[-1] ^ 1])
    (source / "deep" / "two pieces").write_bytes(changed)
    refused = penstock("cp", "-r", source, "penstock:/tree", "-d", deployment, check=False)
    assert refused.code == 1 and "two pieces exists and differs" in refused.err and "--force" in refused.err
    penstock("cp", "penstock:/tree/deep/two pieces", tmp_path / "kept", "-d", deployment)
    assert (tmp_path / "kept").read_bytes() == before
    penstock("cp", "-rf", source, "penstock:/tree", "-d", deployment)
    penstock("cp", "-f", "penstock:/tree/deep/two pieces", tmp_path / "kept", "-d", deployment)
    assert (tmp_path / "kept").read_bytes() == changed


def start(*args):
    return subprocess.Popen([str(a) for a in (PENSTOCK, *args)], stderr=subprocess.PIPE, text=True)


def written(process):
    """Bytes that a process has handed to the system, by write calls of all kinds."""
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{process.pid}/io").read_text().splitlines():
            if line.startswith("wchar"):
                return int(line.split()[1])
    return 0


@pytest.mark.parametrize("sign", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("way", ["in", "out"])
def test_interrupted_anywhere_it_goes_on(deployment, source, tmp_path, way, sign):
    """Ended after ever more bytes, until one run is through: never a name without its bytes."""
    want = tree(source)
    if way == "out":
        penstock("cp", "-r", source, "penstock:/tree", "-d", deployment)
    out = tmp_path / "out"
    args = {
        "in": ("stage-in", "--from", tmp_path, "--to", "penstock:/", "source", "-d", deployment),
        "out": ("stage-out", "--from", "penstock:/tree", "--to", out, ".", "-d", deployment),
    }[way]
    ended, limit = 0, 0
    while True:
        process = start(*args)
        while process.poll() is None and written(process) <= limit:
            time.sleep(0.0005)
        process.send_signal(sign)
        _, err = process.communicate(timeout=60)
        if process.returncode == 0:
            break
        assert process.returncode == (-signal.SIGKILL if sign == signal.SIGKILL else 1), err
        assert sign == signal.SIGKILL or "continues from here" in err
        ended += 1
        # What has its name is whole.
        if way == "out":
            for path in out.rglob("*"):
                if path.is_file() and ".copying" not in str(path.relative_to(out)):
                    assert path.read_bytes() == (source / path.relative_to(out)).read_bytes()
        elif "/source" in inside(deployment, "/"):
            # Killed after all was done.
            assert penstock(*args, "--json").json()[-1]["copied"] == 0
        limit = limit * 2 + 64_000
    assert ended >= 3
    if way == "in":
        penstock("stage-out", "--from", "penstock:/source", "--to", out, ".", "-d", deployment)
    assert tree(out) == want
    if way == "in":
        assert inside(deployment, "/") == ["/source"]


def test_the_rate_is_told(deployment, tmp_path):
    (tmp_path / "f").write_bytes(b"x" * (8 * MIB))
    done = penstock("cp", "-r", tmp_path / "f", "penstock:/f", "-d", deployment)
    assert "1 files copied: 8.0 MiB in" in done.out + done.err and "B/s" in done.out + done.err, done.out + done.err


def test_a_single_file_goes_on_after_kill(deployment, tmp_path):
    data = random.Random(3).randbytes(40 * MIB)
    (tmp_path / "in").write_bytes(data)
    process = start("cp", tmp_path / "in", "penstock:/a", "-d", deployment)
    while not any("copying" in name for name in inside(deployment, "/")) and process.poll() is None:
        time.sleep(0.001)
    process.kill()
    process.communicate()
    assert "/a" not in inside(deployment, "/")
    penstock("cp", tmp_path / "in", "penstock:/a", "-d", deployment)
    penstock("cp", "penstock:/a", tmp_path / "back", "-d", deployment)
    assert (tmp_path / "back").read_bytes() == data and inside(deployment, "/") == ["/a"]


def test_what_an_earlier_copy_left_is_checked_not_trusted(deployment, tmp_path):
    """A part with wrong bytes, too long: the result is the source all the same."""
    data = random.Random(4).randbytes(9 * MIB)
    (tmp_path / "in").write_bytes(data)
    (tmp_path / "junk").write_bytes(data[: 5 * MIB] + bytes(7 * MIB))
    penstock("cp", tmp_path / "junk", "penstock:/.a.copying", "-d", deployment)
    penstock("cp", tmp_path / "in", "penstock:/a", "-d", deployment)
    (tmp_path / ".b.copying").write_bytes(data[:MIB] + b"?" * (11 * MIB))
    penstock("cp", "penstock:/a", tmp_path / "b", "-d", deployment)
    assert (tmp_path / "b").read_bytes() == data
    assert inside(deployment, "/") == ["/a"] and sorted(os.listdir(tmp_path)) == ["b", "in", "junk"]


def test_two_copies_of_one_target_do_not_mix(deployment, tmp_path):
    (tmp_path / "in").write_bytes(b"1" * MIB)
    penstock("cp", tmp_path / "in", "penstock:/a", "-d", deployment)
    import fcntl

    with (tmp_path / ".b.copying").open("wb") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        refused = penstock("cp", "penstock:/a", tmp_path / "b", "-d", deployment, check=False)
    assert refused.code == 1 and "another process" in refused.err and not (tmp_path / "b").exists()
    # Inside: the same source many times at once; each either copies all of it or says why not.
    (tmp_path / "x").write_bytes(random.Random(5).randbytes(12 * MIB))
    crowd = [start("cp", "-f", tmp_path / "x", "penstock:/c", "-d", deployment) for _ in range(4)]
    results = [(p.communicate(timeout=120)[1], p.returncode) for p in crowd]
    assert any(code == 0 for _, code in results)
    assert all(code == 0 or "another process" in err or "no file" in err for err, code in results), results
    penstock("cp", "penstock:/c", tmp_path / "y", "-d", deployment)
    assert (tmp_path / "y").read_bytes() == (tmp_path / "x").read_bytes()


def as_nobody():
    """Root reads everything: what can't be read needs another user."""
    os.setgroups([])
    os.setgid(65534)
    os.setuid(65534)


def test_what_cannot_be_copied_is_named_and_the_rest_goes_on(deployment, source, tmp_path):
    (source / "link").symlink_to("big")
    (source / "nowhere").symlink_to("none")
    (source / "around").symlink_to(source)
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(str(source / "s"))
    command = ("cp", "-r", "--json", "--links", "fail", source, "penstock:/tree", "-d", deployment)
    done = penstock(*command, check=False)
    assert done.code == 1 and "symbolic link" in done.err and "--links" in done.err
    assert "/s is no file" in done.err and "4 were not copied" in done.err
    # All else is there, but not under the tree's name.
    assert inside(deployment, "/") == ["/.tree.copying"] and "/.tree.copying" in done.err
    os.unlink(source / "s")
    left = penstock("cp", "-r", "--json", "--links", "skip", source, "penstock:/tree", "-d", deployment).json()[-1]
    assert left["copied"] == 0 and left["failed"] == 0 and inside(deployment, "/") == ["/tree"]
    # Links followed: one that leads nowhere and one that never ends are found.
    done = penstock("cp", "-r", "--links", "follow", source, "penstock:/followed", "-d", deployment, check=False)
    assert (
        done.code == 1 and "around is a link to a directory that it lies in" in done.err and "dangling link" in done.err
    )
    assert "2 were not copied" in done.err
    os.unlink(source / "nowhere")
    os.unlink(source / "around")
    penstock("cp", "-r", "--links", "follow", source, "penstock:/followed", "-d", deployment)
    penstock("cp", "penstock:/followed/link", tmp_path / "link", "-d", deployment)
    assert (tmp_path / "link").read_bytes() == (source / "big").read_bytes()


def test_symbolic_links_stay_links(deployment, source, tmp_path):
    """Whatever they lead to, in both directions; hard links become files of their own."""
    links = {
        "relative": "deep/two pieces",
        "dir": "deep",
        "deep/up": "../big",
        "nowhere": "no/such",
        "absolute": "/etc/passwd",
    }
    for name, target in links.items():
        (source / name).symlink_to(target)
    os.link(source / "big", source / "deep" / "big too")
    want = tree(source)

    def links_of(top):
        return {str(p.relative_to(top)): os.readlink(p) for p in top.rglob("*") if p.is_symlink()}

    done = penstock("cp", "-r", "--json", source, "penstock:/tree", "-d", deployment).json()[-1]
    assert done["links"] == len(links) and done["failed"] == 0
    shown = penstock("stat", "--json", "penstock:/tree/deep/up", "-d", deployment).json()[0]
    assert shown["kind"] == "symlink" and shown["size"] == len("../big"), shown
    penstock("cp", "-r", "penstock:/tree", tmp_path / "back", "-d", deployment)
    assert links_of(tmp_path / "back") == links and tree(tmp_path / "back") == want
    two = [(tmp_path / "back" / name).stat() for name in ("big", "deep/big too")]
    assert two[0].st_ino != two[1].st_ino and two[0].st_nlink == 1
    # Again: all of it is there. A link that differs is kept, or replaced when that is wanted.
    again = penstock("cp", "-r", "--json", source, "penstock:/tree", "-d", deployment).json()[-1]
    assert again["copied"] == 0 and again["links"] == len(links)
    (source / "relative").unlink()
    (source / "relative").symlink_to("big")
    refused = penstock("cp", "-r", source, "penstock:/tree", "-d", deployment, check=False)
    assert refused.code == 1 and "relative exists and differs" in refused.err and "--force" in refused.err
    penstock("cp", "-rf", source, "penstock:/tree", "-d", deployment)
    penstock("stage-out", "--from", "penstock:/tree", "--to", tmp_path / "back", ".", "-d", deployment)
    assert links_of(tmp_path / "back") == {**links, "relative": "big"}
    # Inside.
    penstock("cp", "-r", "penstock:/tree", "penstock:/copy", "-d", deployment)
    penstock("cp", "-r", "penstock:/copy", tmp_path / "third", "-d", deployment)
    assert links_of(tmp_path / "third") == {**links, "relative": "big"}
    (report,) = penstock("check", "-d", deployment, "--json").json()
    assert report["clean"]


def test_names_that_penstock_cannot_have(deployment, tmp_path):
    top = tmp_path / "source"
    top.mkdir()
    (top / "good").write_bytes(b"1")
    Path(os.fsdecode(os.fsencode(top) + b"/bad\xff")).write_bytes(b"2")
    done = penstock("cp", "-r", top, "penstock:/tree", "-d", deployment, check=False)
    assert done.code == 1 and "not UTF-8" in done.err and str(top) in done.err
    assert inside(deployment, "/.tree.copying") == ["/.tree.copying/good"]


def test_a_full_target(deployment, source, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=12m", "none", small]
    mounted = subprocess.run(mount, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr}")
    try:
        penstock("cp", "-r", source, "penstock:/tree", "-d", deployment)
        args = ("stage-out", "--from", "penstock:/tree", "--to", small, ".", "-d", deployment)
        full = penstock(*args, check=False)
        assert full.code == 1 and "No space left" in full.err and "free space" in full.err
        assert not (small / "big").exists()
        subprocess.run(["mount", "-o", "remount,size=100m", small], check=True)
        penstock(*args)
        assert tree(small) == tree(source)
    finally:
        subprocess.run(["umount", small], check=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: becomes another user")
def test_a_source_that_cannot_be_read(deployment, short_dir):
    """Root may read everything, so the command runs as another user, against a deployment of that user."""
    mine = short_dir / "nobody"
    mine.mkdir()
    fs, top = mine / "fs", mine / "source"
    top.mkdir()
    (top / "good").write_bytes(b"1")
    (top / "secret").write_bytes(b"2")
    (top / "closed").mkdir()
    for path in (mine, top, top / "good"):
        os.chown(path, 65534, 65534)
    (top / "secret").chmod(0o600)
    (top / "closed").chmod(0o700)
    short_dir.chmod(0o755)
    command = mine / "penstock"
    command.write_bytes(PENSTOCK.read_bytes())
    command.chmod(0o755)

    def run(*args):
        return subprocess.run(
            [str(a) for a in (command, *args)], capture_output=True, text=True, preexec_fn=as_nobody, check=False
        )

    assert run("up", fs, "--servers", "1").returncode == 0
    try:
        done = run("cp", "-r", top, "penstock:/tree", "-d", fs)
        assert done.returncode == 1 and "secret: Permission denied" in done.stderr and "closed" in done.stderr
        assert "2 were not copied" in done.stderr
        (top / "secret").chmod(0o644)
        (top / "closed").chmod(0o755)
        assert run("cp", "-r", top, "penstock:/tree", "-d", fs).returncode == 0
        assert run("ls", "/tree", "-d", fs).stdout.split() == ["closed/", "good", "secret"]
    finally:
        run("down", fs)


@pytest.mark.parametrize("way", ["in", "out"])
def test_a_file_that_changes_under_the_copy(deployment, tmp_path, way):
    """A writer that never rests: the copy says so, under no name; when it has ended, the same command succeeds."""
    path = tmp_path / "busy"
    path.write_bytes(bytes(96 * MIB))
    if way == "out":
        penstock("cp", path, "penstock:/busy", "-d", deployment)
    stop = threading.Event()

    def scribble():
        chance = random.Random(7)
        if way == "in":
            with path.open("r+b") as f:
                while not stop.is_set():
                    f.seek(chance.randrange(96) * MIB)
                    f.write(chance.randbytes(4096))
                    f.flush()
        else:
            # Behind the servers' backs: what another client's write does to the objects.
            objects = [p for p in deployment.glob("data-*/**/*") if p.is_file() and p.stat().st_size > 20 * MIB]
            assert objects
            while not stop.is_set():
                with chance.choice(objects).open("r+b") as f:
                    f.seek(4 * MIB + chance.randrange(16) * MIB)
                    f.write(chance.randbytes(4096))

    args = {
        "in": ("cp", path, "penstock:/copy", "-d", deployment),
        "out": ("cp", "penstock:/busy", tmp_path / "copy", "-d", deployment),
    }[way]
    thread = threading.Thread(target=scribble)
    thread.start()
    try:
        refused = penstock(*args, check=False)
    finally:
        stop.set()
        thread.join()
    assert refused.code == 1 and "changed while it was copied" in refused.err
    assert "/copy" not in inside(deployment, "/") and not (tmp_path / "copy").exists()
    penstock(*args)
    if way == "in":
        penstock("cp", "penstock:/copy", tmp_path / "back", "-d", deployment)
        assert (tmp_path / "back").read_bytes() == path.read_bytes()


def test_parts_of_a_tree_are_staged_in_at_once(deployment, tmp_path):
    """As each node of a job may do its share: lists that divide the files of the same directories."""
    source = tmp_path / "case"
    for directory in ("a/b", "c"):
        (source / directory).mkdir(parents=True)
        for k in range(30):
            (source / directory / f"f{k}").write_bytes(os.urandom(k * 9000))
    paths = sorted(str(p.relative_to(source)) for p in source.rglob("f*"))
    copies = []
    for part in range(3):
        listed = tmp_path / f"part{part}"
        listed.write_text("".join(f"{path}\n" for path in paths[part::3]))
        copies.append(start("stage-in", "--from", source, "--to", "penstock:/in", "--list", listed, "-d", deployment))
    for copy in copies:
        out, err = copy.communicate(timeout=60)
        assert copy.returncode == 0, (out, err)
    penstock("stage-out", "--from", "penstock:/in", "--to", tmp_path / "back", ".", "-d", deployment)
    found = {path: (tmp_path / "back" / path).read_bytes() for path in paths}
    assert found == {path: (source / path).read_bytes() for path in paths}
    assert len(list((tmp_path / "back").rglob("*"))) == len(list(source.rglob("*")))


def test_staging_takes_lists(deployment, source, tmp_path):
    paths = ["deep/er", "big", "deep/er/none", "deep/er/est/small 3\n\t'\"*?", "./sparse"]
    (tmp_path / "list").write_bytes(b"\0".join(p.encode() for p in paths) + b"\0")
    total = penstock(
        "stage-in",
        "--from",
        source,
        "--to",
        "penstock:/job/in",
        "--list",
        tmp_path / "list",
        "-0",
        "--json",
        "-d",
        deployment,
    ).json()[-1]
    assert total["files"] == 63 and total["failed"] == 0
    assert inside(deployment, "/job/in") == ["/job/in/big", "/job/in/deep", "/job/in/sparse"]
    assert inside(deployment, "/job/in/deep") == ["/job/in/deep/er"]
    # From standard input, a line each; absolute names and names in Penstock count too.
    done = subprocess.run(
        [
            PENSTOCK,
            "stage-out",
            "--from",
            "penstock:/job/in",
            "--to",
            tmp_path / "out",
            "--list",
            "-",
            "-d",
            deployment,
        ],
        input="big\n\npenstock:/job/in/sparse\n/job/in/deep/er/none\n",
        capture_output=True,
        text=True,
        check=True,
    )
    assert "3 files copied" in done.stderr
    assert {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*") if p.is_file()} == {
        "big",
        "sparse",
        "deep/er/none",
    }
    # A target that differs is replaced: the source is what counts.
    (tmp_path / "out" / "big").write_bytes(b"old")
    total = penstock(
        "stage-out", "--from", "penstock:/job/in", "--to", tmp_path / "out", ".", "--json", "-d", deployment
    )
    assert total.json()[-1]["copied"] == 61 and total.json()[-1]["same"] == 2
    assert (tmp_path / "out" / "big").read_bytes() == (source / "big").read_bytes()


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("stage-in", "--to", "penstock:/"), "nothing to stage"),
        (("stage-in", "--to", "penstock:/", "none"), "none does not exist"),
        (("stage-in", "--to", "penstock:/", "../x"), "not below"),
        (("stage-in", "--to", "penstock:/", "/etc/passwd"), "not below"),
        (("stage-in", "--to", "out", "x"), "goes from"),
        (("stage-out", "--from", "here", "--to", "out", "x"), "goes from"),
        (("stage-out", "--from", "penstock:/a", "penstock:/b/c"), "not below"),
        (("stage-in", "--list", "no-list"), "no-list"),
        (("cp", "-r", "penstock:/", "penstock:/x"), "inside of"),
        (("cp", "-r", "penstock:/", "./"), "no name"),
        (("cp", ".", "penstock:/x"), "cp -r"),
    ],
)
def test_what_cannot_be_meant(deployment, tmp_path, args, word):
    refused = penstock(*args, "-d", deployment, check=False, cwd=tmp_path)
    assert refused.code == 1 and word in refused.err, refused.err
    assert inside(deployment, "/") == [] and os.listdir(tmp_path) == []


@pytest.mark.parametrize("command", ["cp", "stage-in", "stage-out"])
def test_help_teaches(command):
    text = penstock(command, "--help").out
    assert "Examples:" in text and "checksum" in text and f"penstock {command}" in text
