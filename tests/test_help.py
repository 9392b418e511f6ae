"""Each example that `--help` prints is run, with paths and names of this place."""

import os
import re
import shutil
import subprocess

import pytest
from conftest import COMPILERS, PENSTOCK, ROOT, penstock

COMMANDS = [
    "run",
    "report",
    "up",
    "down",
    "clean",
    "status",
    "top",
    "metrics",
    "tune",
    "drain",
    "ls",
    "stat",
    "cp",
    "stage-in",
    "stage-out",
    "rm",
    "mkdir",
    "credential",
    "audit",
    "quota",
    "keys",
    "check",
    "trace",
    "mount",
    "umount",
    "profile",
    "device",
    "serve",
    "sim",
    "faults",
]
NESTED = [["device", name] for name in ("characterise", "replay", "figure")]
# Not run: what each needs that is not here. Tests that run the same with other words are named.
ELSEWHERE = {
    r"up .*--hosts|up .*--munge": "other hosts, munged: test_hosts, test_munge",
    r"credential .*ssh login1": "another host",
    r"up .*--fast|drain .*penstock down": "a fast device; no servers afterwards: test_tier",
    r"mount|umount|setfattr|/mnt/fs": "FUSE and root: test_mount",
    r"clean .*--user": "root: test_job",
    r"\bserve ": "stays: test_service",
    r"\bmetrics |top .*(--plain|--by)|top /data/fs": "stays: test_top",
    r"faults .*(--time|--seeds)|--full|device figure|device characterise|\bprofile ": "minutes: test_faults, test_profile",
    r"sim (--json )?experiments/[a-z]+.toml": "minutes: test_sim, make reproduce",
    r"predict=": "traces of an earlier program: test_sched",
    r"ratio=disk.json|\btpcc.trace": "a profile, a trace: test_profile, test_device",
    r"trace convert": "a trace of an older program: test_trace",
    r"python3 script": "mpi4py: test_next_steps",
    r"srun": "Slurm: test_job",
    r"keys --end-former": "programs of an hour ago: test_keys",
}


def examples(words):
    # In a narrow terminal the lines are broken.
    text = penstock(*words, "--help", env={"COLUMNS": "1000"}).out
    _, _, below = text.partition("Examples:\n")
    for line in below.splitlines():
        if not line.strip():
            return
        if re.match(r" {2}(penstock|find|ls) ", line):
            # A description begins behind two blanks.
            yield re.split(r" {2,}", line.strip())[0]


def all_examples():
    found = []
    for words in ([], *([name] for name in COMMANDS), *NESTED):
        found += [(" ".join(words), line) for line in examples(words)]
    return found


def is_elsewhere(line):
    return any(re.search(pattern, line) for pattern in ELSEWHERE)


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A directory with what the examples name, and a deployment."""
    base = tmp_path_factory.mktemp("h")
    deployment = base / "fs"
    flags = ["-std=c11", "-O2"]
    subprocess.run([COMPILERS["mpich"], *flags, "-o", base / "app", ROOT / "examples" / "block.c"], check=True)
    for name in (
        "big.nc",
        "a.nc",
        "b.nc",
        "case7/mesh.h5",
        "case7/forcing/f",
        "archive/x",
        "lustre/me/.keep",
        "scratch/.keep",
    ):
        (base / name).parent.mkdir(parents=True, exist_ok=True)
        (base / name).write_text("bytes\n" * 1000)
    (base / "inputs.txt").write_text("x\n")
    (base / "results.txt").write_text("field.h5\n")
    (base / "experiments").symlink_to(ROOT / "experiments")
    penstock("up", deployment, "--servers", 4)
    penstock("mkdir", "/in", "/out", "-d", deployment)
    penstock("cp", base / "big.nc", "penstock:/out/field.h5", "-d", deployment)
    yield base, deployment
    for left in (deployment, base / "slow", base / "new1", base / "new2", base / "new3"):
        if left.exists():
            penstock("down", left, check=False)
    shutil.rmtree(base, ignore_errors=True)


def adapted(line, base, deployment):
    """The example with names of this place."""
    for pattern, name in (
        (r"^penstock up /data/fs --servers 8", f"penstock up {base}/new1 --servers 8"),
        (r"^penstock up /data/fs --tcp node1:7400", f"penstock up {base}/new2 --tcp localhost:28400"),
        (r"/data/fs", str(deployment)),
        (r"/tmp/slow", f"{base}/slow"),
        (r"/(scratch|lustre|archive)\b", rf"{base}/\1"),
        (r"/home/me/", f"{base}/"),
        (r"/local\b", str(base)),
        (r"(?<=credential )(.*)\b(alice|olga)\b(?!\.)", r"\1root"),
        (r"\b(alice|olga)\b(?!\.)", "games"),
        (r"\| jq .*", "| cat"),
        (r"report 17", "report 1"),
        (r"(run1|run2)/", "T/"),
        (r"-n (8|64)\b", "-n 4"),
    ):
        line = re.sub(pattern, name, line)
    # Small enough for each of them.
    return line.replace("./app ", "./app --scale 0.03 ")


def test_every_example_of_help_runs(here, tmp_path):
    base, deployment = here
    environment = {
        **os.environ,
        "PATH": f"{PENSTOCK.parent}:{os.environ['PATH']}",
        "PENSTOCK_REPORTS": str(tmp_path / "reports"),
    }
    found = all_examples()
    assert len(found) > 80, len(found)
    run, failed = 0, []
    # First what others look at, last what takes the rights of this test away.
    found.sort(key=lambda example: ("--revoke-user" in example[1], example[0] != "sim"))
    for command, line in found:
        if is_elsewhere(line):
            continue
        run += 1
        if "penstock cp" in line:
            penstock("rm", "-rf", "/in/big.nc", "-d", deployment)
        # Without a deployment that is named, a program has one of its own.
        own = line.startswith("penstock run") and " -d " not in line
        variables = {**environment, "PENSTOCK_DEPLOYMENT": "" if own else str(deployment)}
        shell = adapted(line, base, deployment)
        done = subprocess.run(
            shell, shell=True, cwd=base, env=variables, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode != 0:
            failed.append(f"{command}: {line}\n  {shell}\n{done.stdout[-500:]}{done.stderr[-1000:]}")
    assert not failed, "\n".join(failed)
    assert run > 50, run
