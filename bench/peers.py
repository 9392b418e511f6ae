"""A mount of Penstock beside GlusterFS: small files, directories, and the programs that people copy them with.

    .venv/bin/python bench/peers.py [--runs N] [--calls N] [--files N] [--listed N] [--disk DIR] [--json FILE]

Four data servers and a mount on one host against four GlusterFS bricks and its mount, on the same disk, in turns.
GlusterFS is Debian's glusterfs-server with its default settings. Penstock's servers are reached by Unix sockets,
GlusterFS's by TCP on loopback. Names and attributes are dropped from the kernel's caches before each figure. The
empty FUSE call is `statvfs` on a mount that answers with constants (`penstock-fuse`'s example passthrough). It
needs root. `make bench PEERS=1` installs what it takes.
"""

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from process import EXAMPLES, PENSTOCK, Failed, run

# GlusterFS refuses 127.0.0.1 as the name of a brick's host.
HOST = "127.0.0.2"
SERVERS = 4
# Figure: most empty FUSE calls that it may take, and how many times GlusterFS's time it should be faster.
CALLS = {"stat": (3, 2), "open, read 4 KiB, close": (8, 2), "create, write, close": (15, 2), "unlink": (10, 2)}
PROGRAMS = ("listing with sizes", "cp -r", "git clone", "rsync")
FASTER = 2


def wait_for_mount(point):
    end = time.monotonic() + 30
    while not point.is_mount():
        if time.monotonic() > end:
            raise Failed(f"{point} was not mounted within 30 s")
        time.sleep(0.05)


def penstock(at, stack):
    home, point = at / "penstock", at / "mount-penstock"
    point.mkdir()
    run([PENSTOCK, "up", home, "--servers", SERVERS])
    stack.callback(run, [PENSTOCK, "down", home])
    run([PENSTOCK, "mount", point, "-d", home])
    stack.callback(run, [PENSTOCK, "umount", "--lazy", point])
    return point


def glusterfs(at, stack):
    """A glusterd of its own, on loopback alone, with all its files below `at`."""
    work, point = at / "glusterfs", at / "mount-glusterfs"
    for directory in (point, work / "glusterd", work / "run", work / "log"):
        directory.mkdir(parents=True)
    socket, settings = work / "glusterd.socket", work / "glusterd.vol"
    settings.write_text(
        "\n".join(
            [
                "volume management",
                "    type mgmt/glusterd",
                f"    option working-directory {work / 'glusterd'}",
                f"    option run-directory {work / 'run'}",
                f"    option glusterd-sockfile {socket}",
                "    option transport-type socket",
                f"    option transport.socket.bind-address {HOST}",
                "    option transport.address-family inet",
                "end-volume",
                "",
            ]
        )
    )
    daemon = subprocess.Popen(["glusterd", "-N", "-f", settings, "-l", work / "log" / "glusterd.log"])
    stack.callback(daemon.wait, 30)
    stack.callback(daemon.terminate)
    end = time.monotonic() + 30
    while not socket.exists():
        if daemon.poll() is not None or time.monotonic() > end:
            raise Failed(f"glusterd did not start; its log is {work / 'log' / 'glusterd.log'}")
        time.sleep(0.1)
    gluster = ["gluster", "--mode=script", f"--glusterd-sock={socket}", "volume"]
    bricks = [f"{HOST}:{work / f'brick-{n}'}" for n in range(SERVERS)]
    run([*gluster, "create", "bench", "transport", "tcp", *bricks, "force"])
    run([*gluster, "start", "bench"])
    stack.callback(run, [*gluster, "stop", "bench", "force"])
    run(["glusterfs", "-s", HOST, "--volfile-id", "bench", "-l", work / "log" / "mount.log", point])
    stack.callback(run, ["umount", "-l", point])
    wait_for_mount(point)
    return point


def empty(at, stack):
    """A mount whose answers cost nothing."""
    plain, point = at / "plain", at / "mount-empty"
    plain.mkdir()
    point.mkdir()
    daemon = subprocess.Popen([EXAMPLES / "passthrough", plain, point])
    stack.callback(daemon.wait, 30)
    stack.callback(run, ["umount", "-l", point])
    wait_for_mount(point)
    return point


def forget_names():
    """Drops what the kernel keeps of names and attributes, and the pages of files that were written out."""
    os.sync()
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def each(calls, call):
    """Seconds of one of `calls` calls of `call(number)`."""
    began = time.monotonic()
    for number in range(calls):
        call(number)
    return (time.monotonic() - began) / calls


def small_files(point, calls):
    """Seconds of each call of CALLS, one at a time in one directory."""
    where = Path(tempfile.mkdtemp(dir=point))
    names = [str(where / f"file-{n}") for n in range(calls)]
    bytes_ = b"x" * 4096

    def create(n):
        with open(names[n], "xb", buffering=0) as f:
            f.write(bytes_)

    def read(n):
        with open(names[n], "rb", buffering=0) as f:
            if f.read(4096) != bytes_:
                raise Failed(f"{names[n]} does not hold what was written")

    took = {"create, write, close": each(calls, create)}
    forget_names()
    took["stat"] = each(calls, lambda n: os.stat(names[n]))
    forget_names()
    took["open, read 4 KiB, close"] = each(calls, read)
    forget_names()
    took["unlink"] = each(calls, lambda n: os.unlink(names[n]))
    where.rmdir()
    return took


def timed(command, **more):
    forget_names()
    began = time.monotonic()
    run(command, **more)
    return time.monotonic() - began


def programs(point, source, listed):
    """Seconds of a listing of `listed` files, and of copies of the tree `source`."""
    where = Path(tempfile.mkdtemp(dir=point))
    directory = where / "listed"
    directory.mkdir()
    for n in range(listed):
        (directory / f"name-{n:06}").touch()
    took = {"listing with sizes": timed(["ls", "-l", directory], env={**os.environ, "LC_ALL": "C"})}
    took["cp -r"] = timed(["cp", "-r", source / "tree", where / "cp"])
    took["git clone"] = timed(["git", "clone", "-q", "--no-hardlinks", source / "repository", where / "git"])
    took["rsync"] = timed(["rsync", "-a", f"{source / 'tree'}/", where / "rsync"])
    for copy in ("cp", "rsync"):
        run(["diff", "-rq", source / "tree", where / copy])
    shutil.rmtree(where)
    return took


def make_source(at, files):
    """A tree of `files` files of 1 to 8 KiB, a hundred in a directory, and a git repository of it."""
    tree = at / "source" / "tree"
    for n in range(files):
        path = tree / f"d{n // 100:03}" / f"f{n:05}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(os.urandom(1024 + n * 37 % 7168))
    repository = at / "source" / "repository"
    shutil.copytree(tree, repository)
    git = ["git", "-C", repository, "-c", "user.name=bench", "-c", "user.email=bench@localhost"]
    run(["git", "init", "-q", repository])
    run([*git, "add", "-A"])
    run([*git, "commit", "-qm", "files"])
    return at / "source"


def table(ours, theirs, call):
    """A record of each figure: medians, the ratio of theirs to ours with its range, and whether the goals are met."""
    records = []
    for name in ours[0]:
        ratios = [b[name] / a[name] for a, b in zip(ours, theirs, strict=True)]
        record = {
            "name": f"mount/peer/{name}",
            "penstock_s": statistics.median(a[name] for a in ours),
            "glusterfs_s": statistics.median(b[name] for b in theirs),
            "ratio": [min(ratios), statistics.median(ratios), max(ratios)],
            "met": max(ratios) >= FASTER,
        }
        if name in CALLS:
            record["empty_calls"] = statistics.median(a[name] / c for a, c in zip(ours, call, strict=True))
            record["most_empty_calls"] = CALLS[name][0]
            record["met"] = (
                record["met"] and min(a[name] / c for a, c in zip(ours, call, strict=True)) <= CALLS[name][0]
            )
        records.append(record)
    return records


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5, help="pairs of runs (default 5)")
    parser.add_argument("--calls", type=int, default=2000, help="files of each kind of call (default 2000)")
    parser.add_argument("--files", type=int, default=5000, help="files of the tree that is copied (default 5000)")
    parser.add_argument(
        "--listed", type=int, default=10000, help="files of the directory that is listed (default 10000)"
    )
    parser.add_argument("--disk", help="directory for both file systems (default: the temporary directory)")
    parser.add_argument("--json", type=Path, help="records go here, too")
    args = parser.parse_args()
    missing = [p for p in ("glusterd", "gluster", "glusterfs", "rsync", "git") if not shutil.which(p)]
    if missing:
        sys.exit(
            f"peers: {', '.join(missing)}: not found; Debian: apt-get install glusterfs-server glusterfs-client rsync git"
        )
    if os.geteuid():
        sys.exit("peers: needs root: mounts, and dropping the kernel's caches")
    ours, theirs, call = [], [], []
    with ExitStack() as stack:
        at = Path(tempfile.mkdtemp(prefix="penstock-peers-", dir=args.disk))
        stack.callback(shutil.rmtree, at, ignore_errors=True)
        source = make_source(at, args.files)
        points = [penstock(at, stack), glusterfs(at, stack)]
        nothing = empty(at, stack)
        for n in range(args.runs):
            print(f"pair {n + 1} of {args.runs}", file=sys.stderr, flush=True)
            for point, side in zip(points, (ours, theirs), strict=True):
                side.append({**small_files(point, args.calls), **programs(point, source, args.listed)})
            call.append(each(2000, lambda _: os.statvfs(nothing)))
    records = table(ours, theirs, call)
    print(f"empty FUSE call: {statistics.median(call) * 1e6:.1f} us")
    for r in records:
        low, median, high = r["ratio"]
        own = f"{r['empty_calls']:.1f} empty calls (at most {r['most_empty_calls']})" if "empty_calls" in r else ""
        times = f"{r['penstock_s'] * 1e3:10.3f} ms {r['glusterfs_s'] * 1e3:10.3f} ms"
        print(f"{r['name']:<36} {times}  {median:.2f}x ({low:.2f}-{high:.2f}) of {FASTER}x  {own}")
    if args.json:
        args.json.write_text(json.dumps(records, indent=1) + "\n")


if __name__ == "__main__":
    main()
