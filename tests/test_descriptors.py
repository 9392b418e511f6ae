"""Few descriptors: a client that holds more files open than a server may have stops nobody, itself included.

`hostile hold` (crates/client/examples/hostile.rs) is the client that holds files.
"""

import json
import resource
import subprocess
from pathlib import Path

import pytest
from conftest import PENSTOCK, penstock
from test_hostile import HOSTILE, good, servers

LIMIT = 1024
FILES = 1100


def limited(command, how):
    """A command under `ulimit HOW 1024`."""
    return ["bash", "-c", f'ulimit {how} {LIMIT} && exec "$@"', "-", *map(str, command)]


def soft_limit(pid):
    (line,) = [x for x in Path(f"/proc/{pid}/limits").read_text().splitlines() if x.startswith("Max open files")]
    return int(line.split()[3])


def objects_open(pid):
    return sum(1 for fd in Path(f"/proc/{pid}/fd").iterdir() if "/objects/" in str(fd.readlink()))


@pytest.fixture(params=["-Sn", "-n"])
def few(short_dir, request):
    """A deployment whose servers were started under a soft or a hard limit of 1,024 descriptors."""
    directory = short_dir / "fs"
    subprocess.run(limited([PENSTOCK, "up", directory], request.param), check=True, capture_output=True)
    yield directory, request.param
    penstock("down", directory, check=False)


def test_many_files_held_open_stop_nobody(few, short_dir):
    deployment, how = few
    pids = servers(deployment)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    expected = LIMIT if how == "-n" else hard
    assert [soft_limit(pid) for pid in pids] == [expected] * 5
    holder = [HOSTILE, "hold", deployment, str(FILES)]
    with subprocess.Popen(
        holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as client:
        assert client.stdout.readline() == f"holding {FILES}\n", client.stderr.read()
        # Others go on: programs, commands, whoever connects anew.
        assert good(deployment, 0.5)["rounds"] >= 1
        source = short_dir / "source"
        source.write_bytes(b"penstock" * 100_000)
        penstock("cp", source, "penstock:/copy", "-d", deployment)
        assert penstock("status", "-d", deployment).out.count(" up ") >= 5
        if how == "-n":
            # A quarter, and what is in use just now.
            assert max(objects_open(pid) for pid in pids) <= LIMIT // 4 + 64
        out, err = client.communicate(timeout=120)
    assert client.returncode == 0, err
    told = json.loads(out)
    assert told["errors"] == 0 and told["wrong"] == 0, err
    assert servers(deployment) == pids
    assert "nothing is wrong" in penstock("check", "-d", deployment).out


def test_a_program_keeps_three_quarters_of_its_descriptors(deployment):
    holder = limited([HOSTILE, "hold", deployment, "300", "shortcuts"], "-n")
    done = subprocess.run(holder, input="", capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.splitlines()[-1])
    assert told["errors"] == 0 and told["wrong"] == 0, done.stderr
    # 300 files on 4 servers are 1,200 objects; standard streams and the like come on top of the share.
    assert 100 < told["open"] <= LIMIT // 4 + 16, told
