"""up, down, status, ls, stat, cp, rm, mkdir, check, as a user sees them."""

import json
import os
import signal
import subprocess
import time

import pytest
from conftest import PENSTOCK, free_ports, penstock

DATA = bytes(range(251)) * 40_000  # ten million bytes that no stripe unit divides


def test_a_deployment_from_up_to_down(deployment):
    status = penstock("status", deployment, "--json").json()[0]
    assert status["meta"]["up"] and len(status["servers"]) == 4
    assert all(server["up"] for server in status["servers"])
    table = penstock("status", deployment).out
    assert "data-3" in table and "64.0 KiB" in table
    # Again: nothing to do.
    assert "run already" in penstock("up", deployment).out
    assert "5 servers ended" in penstock("down", deployment).out
    down = penstock("status", deployment, check=False)
    assert down.code == 1 and "penstock up" in down.err
    assert "no servers ran" in penstock("down", deployment).out


def test_files_outlive_a_restart(deployment, tmp_path):
    (tmp_path / "in").write_bytes(DATA)
    penstock("cp", tmp_path / "in", "penstock:/kept", "-d", deployment)
    penstock("down", deployment)
    penstock("up", deployment)
    penstock("cp", "penstock:/kept", tmp_path / "out", "-d", deployment)
    assert (tmp_path / "out").read_bytes() == DATA


def test_names(deployment):
    penstock("mkdir", "/a", "-d", deployment)
    penstock("mkdir", "-p", "penstock:/a/b/c", "/d", "-d", deployment)
    assert penstock("ls", "-d", deployment).out.split() == ["a/", "d/"]
    assert penstock("ls", "/a", "-d", deployment).out.split() == ["b/"]
    again = penstock("mkdir", "/a", "-d", deployment, check=False)
    assert again.code == 1 and "/a" in again.err
    lost = penstock("mkdir", "/x/y", "-d", deployment, check=False)
    assert lost.code == 1 and "mkdir -p" in lost.err
    full = penstock("rm", "/a", "-d", deployment, check=False)
    assert full.code == 1 and "rm -r" in full.err
    penstock("rm", "-r", "/a", "/d", "-d", deployment)
    assert penstock("ls", "-d", deployment).out == ""
    gone = penstock("rm", "/a", "-d", deployment, check=False)
    assert gone.code == 1 and "/a" in gone.err
    penstock("rm", "-f", "/a", "-d", deployment)


def test_copies(deployment, tmp_path):
    source = tmp_path / "field.nc"
    source.write_bytes(DATA)
    source.chmod(0o640)
    (report,) = penstock("cp", source, "penstock:/field.nc", "-d", deployment, "--json").json()
    assert report["bytes"] == len(DATA) and report["verified"]
    (stat,) = penstock("stat", "/field.nc", "--json", "-d", deployment).json()
    assert stat["size"] == len(DATA) and stat["mode"] == "0640" and stat["stripe_unit"] == 65536
    assert sorted(stat["servers"]) == [0, 1, 2, 3]
    assert str(len(DATA)) in penstock("ls", "-l", "-d", deployment).out
    # Not over something that is there, unless told to.
    for target in ("penstock:/field.nc", tmp_path / "field.nc"):
        other = "penstock:/field.nc" if target != "penstock:/field.nc" else source
        refused = penstock("cp", other, target, "-d", deployment, check=False)
        assert refused.code == 1 and "--force" in refused.err
    penstock("cp", "--force", source, "penstock:/field.nc", "-d", deployment)
    # Inside, out, and into directories.
    penstock("mkdir", "/in", "-d", deployment)
    penstock("cp", "penstock:/field.nc", "penstock:/in/", "-d", deployment)
    out = tmp_path / "out"
    out.mkdir()
    penstock("cp", "penstock:/in/field.nc", f"{out}/", "-d", deployment)
    assert (out / "field.nc").read_bytes() == DATA
    # Nothing half-copied is left under any name.
    assert penstock("ls", "/in", "-d", deployment).out.split() == ["field.nc"]
    assert os.listdir(out) == ["field.nc"]


def test_empty_and_missing_files_are_copied_and_refused(deployment, tmp_path):
    (tmp_path / "empty").write_bytes(b"")
    penstock("cp", tmp_path / "empty", "penstock:/empty", "-d", deployment)
    penstock("cp", "penstock:/empty", tmp_path / "back", "-d", deployment)
    assert (tmp_path / "back").read_bytes() == b""
    for source, target, word in [
        ("penstock:/none", tmp_path / "x", "/none"),
        (tmp_path / "none", "penstock:/x", "none"),
        (tmp_path / "empty", tmp_path / "x", "penstock:"),
        (tmp_path / "empty", "penstock:/no/such/dir", "/no/such"),
        (tmp_path, "penstock:/x", "no file"),
        (tmp_path / "empty", "penstock:/dir/", "mkdir"),
    ]:
        refused = penstock("cp", source, target, "-d", deployment, check=False)
        assert refused.code == 1 and word in refused.err, refused.err
    assert not (tmp_path / "x").exists()


def test_an_interrupted_copy_leaves_nothing(deployment, tmp_path):
    source = tmp_path / "big"
    with source.open("wb") as file:
        file.truncate(8 << 30)
    process = subprocess.Popen(
        [PENSTOCK, "cp", source, "penstock:/big", "-d", deployment], stderr=subprocess.PIPE, text=True
    )
    names = ""
    while "copying" not in names:
        assert process.poll() is None
        names = penstock("ls", "-d", deployment).out
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 1 and "interrupted" in err
    assert penstock("ls", "-d", deployment).out == ""


def test_check_is_clean_after_use(deployment, tmp_path):
    (tmp_path / "in").write_bytes(DATA)
    penstock("cp", tmp_path / "in", "penstock:/a", "-d", deployment)
    penstock("rm", "/a", "-d", deployment)
    (report,) = penstock("check", "-d", deployment, "--json").json()
    assert report["clean"] and report["findings"] == [] and report["objects"] == 0


def test_tcp(short_dir, tmp_path):
    directory = short_dir / "fs"
    (tmp_path / "in").write_bytes(DATA)
    port = free_ports(3)
    penstock("up", directory, "--servers", 2, "--tcp", f"127.0.0.1:{port}")
    try:
        # A client on another host has no socket files: only addresses, the key and a credential.
        remote = short_dir / "remote"
        remote.mkdir()
        lines = (directory / "deployment.toml").read_text().splitlines()
        (remote / "deployment.toml").write_text("\n".join(line for line in lines if not line.startswith("unix")))
        (remote / "client.key").write_text((directory / "client.key").read_text())
        (remote / "client.key").chmod(0o600)
        root = ["--root"] if os.geteuid() == 0 else []
        penstock("credential", "--output", remote / "credential", *root, "-d", directory)
        env = {"PENSTOCK_CREDENTIAL": str(remote / "credential")}
        penstock("cp", tmp_path / "in", "penstock:/a", "-d", remote, env=env)
        penstock("cp", "penstock:/a", tmp_path / "out", "-d", remote, env=env)
        assert (tmp_path / "out").read_bytes() == DATA
    finally:
        penstock("down", directory)


def test_an_existing_deployment_keeps_its_shape(deployment):
    for option in (["--servers", 2], ["--stripe-unit", "1MiB"], ["--memory"], ["--tcp", "localhost:7400"]):
        refused = penstock("up", deployment, *option, check=False)
        assert refused.code == 1 and option[0] in refused.err


def test_a_wrong_key_is_refused(deployment):
    key = deployment / "client.key"
    kept = key.read_text()
    key.write_text("0" * 64 + "\n")
    refused = penstock("ls", "-d", deployment, check=False)
    assert refused.code == 1 and "key" in refused.err
    key.write_text(kept)
    key.chmod(0o644)
    refused = penstock("ls", "-d", deployment, check=False)
    assert refused.code == 1 and "chmod 600" in refused.err


def test_a_deployment_that_is_not_there(tmp_path):
    for args in (["ls"], ["ls", "-d", tmp_path / "none"], ["status", tmp_path / "none"]):
        refused = penstock(*args, check=False)
        assert refused.code == 1 and "penstock up" in refused.err, refused.err


def test_a_damaged_deployment_file(short_dir):
    directory = short_dir / "fs"
    directory.mkdir()
    for text in ("", "name = 1", 'id = "x"\nnonsense = 3'):
        (directory / "deployment.toml").write_text(text)
        refused = penstock("status", directory, check=False)
        assert refused.code == 1 and "deployment.toml" in refused.err, refused.err


def test_servers_that_are_down_are_named(deployment):
    pid = int((deployment / "run" / "data-2.pid").read_text().split()[0])
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{pid}/fd") and time.monotonic() < deadline:
        time.sleep(0.01)
    status = penstock("status", deployment, check=False)
    assert status.code == 1 and "data-2" in status.out
    states = json.loads(penstock("status", deployment, "--json", check=False).out)
    assert [s["up"] for s in states["servers"]] == [True, True, False, True]
    # `up` mends it.
    assert "1 servers started" in penstock("up", deployment).out
    penstock("status", deployment)


def test_a_store_serves_one_deployment_at_a_time(deployment):
    second = subprocess.run(
        [PENSTOCK, "serve", "-d", deployment, "--server", "0"], capture_output=True, text=True, timeout=30, check=False
    )
    assert second.returncode == 1 and "data-0" in second.stderr


@pytest.mark.parametrize(
    "command", ["run", "up", "down", "status", "ls", "stat", "cp", "rm", "mkdir", "check", "serve"]
)
def test_help_teaches(command):
    text = penstock(command, "--help").out
    assert "Usage" in text and command in text
