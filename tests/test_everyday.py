"""Programs that know files only, run on the mount as on any directory: striped files, and files that are whole."""

import errno
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

import pytest
from conftest import ROOT, penstock
from mounted import ALICE, LAYOUTS, TEAM, as_root, as_user, mounted_servers, needs_fuse

pytestmark = needs_fuse


@pytest.fixture(scope="module")
def fs():
    directory = Path(tempfile.mkdtemp(prefix="pst-"))
    with mounted_servers(directory) as mounted:
        yield mounted
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(params=list(LAYOUTS))
def out(fs, request):
    """A fresh directory in the mount."""
    path = fs[1] / "".join(c if c.isalnum() else "-" for c in request.node.name)
    path.mkdir()
    os.setxattr(path, "user.penstock.layout", LAYOUTS[request.param])
    return path


def sh(script, cwd, *args):
    """Runs a shell script that must succeed; its output."""
    env = {**os.environ, "LC_ALL": "C", "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null"}
    command = ["sh", "-euc", script, "sh", *map(str, args)]
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, f"{script}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture
def tree(tmp_path):
    """Sources: small and large files, links, modes, times."""
    source = tmp_path / "source"
    shutil.copytree(ROOT / "examples", source)
    (source / "large").write_bytes(random.Random(1).randbytes(3_000_001))
    (source / "empty").touch()
    (source / "deep" / "er").mkdir(parents=True)
    (source / "deep" / "er" / "f").write_text("down here\n")
    os.symlink("deep/er/f", source / "link")
    os.link(source / "large", source / "same")
    (source / "tile.c").chmod(0o640)
    os.utime(source / "block.c", ns=(1_000_000_000, 1_234_567_891_000_000_000))
    return source


def test_copying_trees(out, tree):
    sh('cp -a "$1" copy; diff -r "$1" copy', out, tree)
    assert (out / "copy" / "block.c").stat().st_mtime_ns == 1_234_567_891_000_000_000
    assert (out / "copy" / "tile.c").stat().st_mode & 0o777 == 0o640
    assert (out / "copy" / "large").stat().st_nlink == 2 and os.readlink(out / "copy" / "link") == "deep/er/f"
    sh("tar cf all.tar copy; mkdir un; tar xf all.tar -C un; diff -r copy un/copy; tar df all.tar", out)
    sh("cp -a copy again; mv again moved; rm -r copy un; find moved -type f | sort | xargs cksum > sums", out)
    assert len((out / "sums").read_text().splitlines()) > 8
    sh('diff -r "$1" moved; rm -r moved all.tar sums; test -z "$(ls -A)"', out, tree)


def test_git(out, tree):
    script = (
        'git init -q repo; cp -r "$1"/. repo; cd repo; git add -A; '
        "git -c user.name=me -c user.email=me@here commit -qm first; git gc -q; cd ..; "
        "git clone -q repo clone; git -C clone fsck --full --strict; git -C clone status --porcelain; diff -r clone/deep repo/deep"
    )
    assert sh(script, out, tree).strip() == ""


def test_pipes_of_text_tools(out):
    script = (
        "seq 1 200000 > n; dd if=n of=copy bs=7777 conv=fsync 2> log; cmp n copy; "
        "sort -rn n | head -1 > top; gzip -k n; gzip -dc n.gz | cmp - n; "
        "dd if=/dev/zero of=copy bs=1000 seek=3 count=1 conv=notrunc 2>> log; "
        "sed -i s/200000/last/ top; echo more >> top; cat top; truncate -s 10 copy; wc -c < copy; grep -c 7 n; sync copy"
    )
    assert sh(script, out).split() == ["last", "more", "10", "81902"]


def test_builds(out):
    (out / "Makefile").write_text("prog: a.o b.o\n\tcc -o $@ a.o b.o\n%.o: %.c\n\tcc -c -o $@ $<\n")
    (out / "a.c").write_text('#include <stdio.h>\nint f(void);\nint main(void) { printf("%d\\n", f()); return 0; }\n')
    (out / "b.c").write_text("int f(void) { return 42; }\n")
    assert sh("command -p make -s -j2; ./prog; command -p make -q && echo made", out).split() == ["42", "made"]


def test_saving_as_editors_do(out):
    path, swap, backup = out / "notes.txt", out / ".notes.txt.swp", out / "notes.txt~"
    path.write_text("one\n")
    path.chmod(0o640)
    with open(path) as before:
        for text in ("two\n", "three\n"):
            fd = os.open(swap, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(fd, b"recovery")
            os.fsync(fd)
            os.rename(path, backup)
            save(path, text)
            os.unlink(backup)
            os.close(fd)
            os.unlink(swap)
            assert path.read_text() == text
        assert before.read() == "one\n", "who has it open keeps what it had"
    # A new file beside it takes its place; the old one stays as a backup by a second name.
    for text in ("four\n", "five\n"):
        os.link(path, backup)
        save(out / ".new", text)
        os.replace(out / ".new", path)
        folder = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
        os.fsync(folder)
        os.close(folder)
        assert path.read_text() == text and backup.read_text() != text
        os.unlink(backup)
    # A log that is turned while a program writes to it.
    with open(out / "log", "a") as log:
        print("first", file=log, flush=True)
        os.rename(out / "log", out / "log.1")
        print("second", file=log, flush=True)
    assert (out / "log.1").read_text() == "first\nsecond\n" and sorted(os.listdir(out)) == ["log.1", "notes.txt"]


def save(path, text):
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o640)
    os.write(fd, text.encode())
    os.fsync(fd)
    os.close(fd)


def test_holes_and_appending(out):
    script = (
        "truncate -s 64M holes; printf end | dd of=holes bs=1 seek=67108861 conv=notrunc 2> log; "
        "cp --sparse=always holes copy; cmp holes copy; tar cSf all.tar holes; mkdir un; tar xf all.tar -C un; cmp holes un/holes; "
        "for f in holes copy un/holes; do test $(stat -c %s $f) = 67108864; done; "
        "for k in 1 2 3; do echo $k | dd of=lines oflag=append conv=notrunc 2> log; done; cat lines; "
        "split -b 1000000 -d holes part.; cat part.* | cmp - holes; ls part.* | wc -l; "
        "dd if=holes of=direct iflag=direct oflag=direct bs=64k 2> log; cmp holes direct; head -c 3 holes | od -An -tx1"
    )
    assert sh(script, out).split() == ["1", "2", "3", "68", "00", "00", "00"]


def test_odd_names_and_finding_them(out):
    names = ["n" * 255, "\U0001f9ed é 中", "a\nb\tc", "-rf", "back\\slash", " ", "~", "*?[x]", "é", "e\u0301"]
    for name in names:
        (out / name).write_text(name)
    assert sorted(os.listdir(out)) == sorted(names) and all((out / n).read_text() == n for n in names)
    deep = out
    for k in range(60):
        deep = deep / f"level-{k}"
    deep.mkdir(parents=True)
    (deep / "f").write_text("x" * 2000)
    os.symlink("f", deep / "link")
    script = (
        "find . -type d | wc -l; find . -name f -size +1k -printf '%s\\n'; find . -type l | wc -l; find . -empty | wc -l; "
        "find . -newer ./-rf -name f | wc -l; find . -maxdepth 1 -type f -print0 | tr -dc '\\0' | wc -c; "
        "du -sb --apparent-size . | cut -f1 > size; test $(cat size) -gt 2000; df . > log; stat -f . >> log; "
        "chmod -R go-rwx .; find . -perm /077 ! -type l | wc -l; rm -r -- level-0 -rf; find . -name 'level*' | wc -l"
    )
    assert sh(script, out).split() == ["61", "2000", "1", "0", "1", "10", "0", "0"]
    # Names are text here: others do not exist, and cannot be made.
    raw = os.fsencode(out) + b"/caf\xe9"
    for call in (os.stat, os.unlink, lambda p: os.open(p, os.O_RDONLY)):
        with pytest.raises(FileNotFoundError):
            call(raw)
    with pytest.raises(OSError, match="multibyte") as raised:
        os.open(raw, os.O_CREAT | os.O_WRONLY)
    assert raised.value.errno == errno.EILSEQ


def test_python_environments(out):
    wheel = out / "tiny-1.0-py3-none-any.whl"
    about = {"METADATA": "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"}
    about["WHEEL"] = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny/__init__.py", "ANSWER = 42\n")
        for name, text in about.items():
            archive.writestr(f"tiny-1.0.dist-info/{name}", text)
        archive.writestr("tiny-1.0.dist-info/RECORD", "")
    script = (
        '"$1" -m venv --without-pip env; "$1" -m pip -q --disable-pip-version-check install --no-index --no-cache-dir '
        "--target $(echo env/lib/python*/site-packages) tiny-1.0-py3-none-any.whl; "
        'env/bin/python -c "import sys, tiny; print(tiny.ANSWER, sys.prefix)"'
    )
    assert sh(script, out, sys.executable).split() == ["42", str(out / "env")]


def test_thousands_of_files_in_a_directory(out):
    """Made, listed, looked at, renamed and removed while it is listed."""
    count = 5000
    script = (
        f"mkdir many; cd many; seq -f f%.0f {count} | xargs touch; ls | wc -l; ls -U | sort -u | wc -l; find . -type f -links 1 | wc -l; "
        "for k in 1 2 3; do mv f$k g$k; done; ls -U | grep -c g; find . -name 'f*9' -delete; ls | wc -l; cd ..; rm -r many; ls | wc -l"
    )
    assert list(map(int, sh(script, out).split())) == [count, count, count, 3, count - count // 10, 0]


@pytest.mark.parametrize("journal", ["delete", "wal"])
def test_sqlite(out, journal):
    path = out / "db"
    with sqlite3.connect(path) as db:
        assert db.execute(f"pragma journal_mode={journal}").fetchone() == (journal,)
        db.execute("create table t (k integer primary key, v text)")
        db.executemany("insert into t values (?, ?)", [(k, f"row {k}") for k in range(2000)])
    program = (
        "import sqlite3, sys\ndb = sqlite3.connect(sys.argv[1], timeout=60, isolation_level=None)\n"
        "for k in range(25): db.execute('update t set v = v || ? where k = 7', (sys.argv[2],))\n"
    )
    writers = [subprocess.Popen([sys.executable, "-c", program, str(path), c]) for c in "ab"]
    assert all(w.wait(timeout=120) == 0 for w in writers)
    db.close()
    with sqlite3.connect(path) as db:
        value = db.execute("select v from t where k = 7").fetchone()[0]
        assert sorted(value.removeprefix("row 7")) == ["a"] * 25 + ["b"] * 25
        assert db.execute("pragma integrity_check").fetchone() == ("ok",)
    db.close()


def test_copies_by_the_command_show_in_the_mount(fs, out, tree, tmp_path):
    """The command of the package beside the mount: what it moves is what the mount shows."""
    name = f"penstock:/{out.name}/case"
    penstock("cp", "-r", tree, name, "-d", fs[0])
    sh('diff -r "$1" case', out, tree)
    penstock("cp", "-r", name, tmp_path / "back", "-d", fs[0])
    sh('diff -r "$1" "$2"', out, tree, tmp_path / "back")


@as_root
def test_other_users(out, tree):
    out.chmod(0o755)
    (out / "hers").mkdir()
    os.chown(out / "hers", ALICE, TEAM)
    # The source lies in a directory of root's alone.
    shared = out / "shared"
    sh('cp -r "$1" shared; chmod -R a+rX shared', out, tree)
    as_user(
        ALICE,
        TEAM,
        [],
        lambda: sh("cp -r ../shared mine; diff -r ../shared mine; chmod 700 mine", out / "hers") and None,
    )
    assert (out / "hers" / "mine" / "tile.c").stat().st_uid == ALICE
    with pytest.raises(PermissionError):
        as_user(ALICE, TEAM, [], lambda: (shared / "tile.c").write_text("x") and None)
    with pytest.raises(PermissionError):
        as_user(ALICE + 7, TEAM + 7, [], lambda: os.listdir(out / "hers" / "mine"))
