"""Servers under a service manager (packaging/penstock@.service, packaging/penstock-server@.service)."""

import contextlib
import os
import re
import shlex
import shutil
import socket
import subprocess

import pytest
from conftest import PENSTOCK, ROOT, free_ports, penstock

UNIT = (ROOT / "packaging" / "penstock-server@.service").read_text()


def of_unit(name):
    (value,) = re.findall(rf"^{name}=(.*)$", UNIT, re.MULTILINE)
    return value


@contextlib.contextmanager
def served(server, *before, **environment):
    """A server as the unit starts it, after `before`; ends when it is told to."""
    words = shlex.split(of_unit("ExecStart").replace("@PREFIX@/bin/penstock", str(PENSTOCK)).replace("%f", str(server)))
    name = f"@penstock-{os.getpid()}-{server.name}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0"))
        manager.settimeout(30)
        command = [*before, *words]
        with subprocess.Popen(command, env={**os.environ, "NOTIFY_SOCKET": name, **environment}) as serving:
            try:
                assert manager.recv(100) == b"READY=1"
                yield serving
            finally:
                serving.terminate()
                code = serving.wait(timeout=30)
            assert code == 0


def test_a_service_manager_is_told_when_servers_answer_and_when_they_end(short_dir):
    penstock("up", short_dir / "fs", "--servers", 2)
    penstock("down", short_dir / "fs")
    for name in (str(short_dir / "notify"), f"@penstock-{os.getpid()}"):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.bind(name.replace("@", "\0"))
            manager.settimeout(30)
            environment = {**os.environ, "NOTIFY_SOCKET": name}
            with subprocess.Popen([PENSTOCK, "serve", "-d", short_dir / "fs"], env=environment) as serving:
                assert manager.recv(100) == b"READY=1"
                assert "data-1" in penstock("status", short_dir / "fs").out
                serving.terminate()
                assert manager.recv(100) == b"STOPPING=1"
                assert serving.wait(timeout=30) == 0


@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("setpriv"), reason="needs root and setpriv")
@pytest.mark.parametrize("owner", [0, 61010])
def test_each_server_runs_as_its_unit_says(short_dir, owner):
    """With the rights that the unit leaves to root, and no others."""
    short_dir.chmod(0o755)
    where = short_dir / "fs"
    penstock("up", where, "--servers", 2, "--tcp", f"localhost:{free_ports(3)}", "--service-user", owner)
    penstock("down", where)
    rights = ",".join("+" + name.removeprefix("CAP_").lower() for name in of_unit("CapabilityBoundingSet").split())
    before = ["setpriv", "--bounding-set", f"-all,{rights}", "--no-new-privs"]
    with contextlib.ExitStack() as servers:
        for name in ("meta", "data-0", "data-1"):
            server = servers.enter_context(served(where / name, *before))
            with open(f"/proc/{server.pid}/status") as status:
                assert f"Uid:\t{owner}\t{owner}\t{owner}\t{owner}\n" in status.readlines()
        penstock("cp", __file__, "penstock:/f", "-d", where)
        assert all(server["up"] for server in penstock("status", where, "--json").json()[0]["servers"])
        assert penstock("check", "-d", where).code == 0


def test_what_names_no_server_is_refused(short_dir):
    penstock("up", short_dir / "fs", "--servers", 1)
    penstock("down", short_dir / "fs")
    for name, said in (("data-1", "no data server 1"), ("data-x", "names no server"), ("log", "names no server")):
        refused = penstock("serve", short_dir / "fs" / name, check=False)
        assert refused.code == 1 and said in refused.err, refused.err
    assert penstock("serve", short_dir / "fs" / "meta", "--server", 0, check=False).code == 2


def test_keys_may_come_from_the_service_manager(short_dir):
    """LoadCredential= puts them into a directory; the deployment's own does not have them then."""
    where, given = short_dir / "fs", short_dir / "credentials"
    penstock("up", where, "--servers", 1, "--tcp", f"localhost:{free_ports(2)}")
    penstock("down", where)
    given.mkdir(mode=0o700)
    # As an access control list of systemd's shows; in the deployment such a key is refused.
    (where / "data-0.key").chmod(0o440)
    refused = penstock("serve", where / "data-0", check=False)
    assert refused.code == 1 and "readable by others" in refused.err, refused.err
    (where / "data-0.key").rename(given / "data-0.key")
    refused = penstock("serve", where / "data-0", check=False)
    assert refused.code == 1 and "data-0.key" in refused.err, refused.err
    with served(where / "meta"), served(where / "data-0", CREDENTIALS_DIRECTORY=str(given)):
        penstock("cp", __file__, "penstock:/f", "-d", where)
        assert penstock("stat", "penstock:/f", "--json", "-d", where).json()[0]["size"] == os.path.getsize(__file__)
