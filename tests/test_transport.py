"""What protects messages over TCP: on by default, named when it is off, and not to be talked out of."""

import re
import socket
import subprocess
import threading

import pytest
from conftest import PENSTOCK, free_ports, penstock

DATA = bytes(range(256)) * 4096
PLAIN = "plain-trusted-network"


@pytest.fixture
def fs(short_dir):
    yield short_dir / "fs"
    penstock("down", short_dir / "fs", check=False)


def up(fs, *options):
    return penstock("up", fs, "--servers", 2, "--tcp", f"127.0.0.1:{free_ports(3)}", *options)


def remote(fs, name="remote", change=lambda text: text):
    """What a client on another host has of a deployment: the file without Unix sockets, and what lets it in."""
    directory = fs.parent / name
    directory.mkdir()
    lines = (fs / "deployment.toml").read_text().splitlines()
    text = "\n".join(line for line in lines if not line.startswith("unix"))
    (directory / "deployment.toml").write_text(change(text))
    for key in ("client.key", "authority.key"):
        if (fs / key).exists():
            (directory / key).write_text((fs / key).read_text())
            (directory / key).chmod(0o600)
    return directory


class Listener:
    """Somebody on the network between clients and the servers of a deployment, who keeps what crosses."""

    def __init__(self):
        self.crossed = bytearray()

    def between(self, text):
        return re.sub(r'tcp = "127\.0\.0\.1:(\d+)"', lambda m: f'tcp = "127.0.0.1:{self.listen(int(m[1]))}"', text)

    def listen(self, to):
        server = socket.create_server(("127.0.0.1", 0))
        threading.Thread(target=self.accept, args=(server, to), daemon=True).start()
        return server.getsockname()[1]

    def accept(self, server, to):
        while True:
            client, _ = server.accept()
            there = socket.create_connection(("127.0.0.1", to))
            for ends in ((client, there), (there, client)):
                threading.Thread(target=self.carry, args=ends, daemon=True).start()

    def carry(self, source, target):
        try:
            while data := source.recv(1 << 16):
                self.crossed += data
                target.sendall(data)
        except OSError:
            pass
        for end in (source, target):
            try:
                end.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass


def copied(directory, tmp_path):
    (tmp_path / "in").write_bytes(DATA)
    penstock("cp", tmp_path / "in", "penstock:/secret-name", "-d", directory)
    penstock("cp", "penstock:/secret-name", tmp_path / "out", "-d", directory)
    return (tmp_path / "out").read_bytes()


@pytest.mark.parametrize("transport", ["tls", PLAIN])
def test_who_listens_on_the_network_learns_nothing_unless_it_is_trusted(fs, tmp_path, transport):
    said = up(fs, *(["--transport", transport] if transport == PLAIN else []))
    listener = Listener()
    directory = remote(fs, change=listener.between)
    assert copied(directory, tmp_path) == DATA
    seen = bytes(listener.crossed)
    assert len(seen) > 2 * len(DATA)
    shown = penstock("status", fs)
    (told,) = penstock("status", fs, "--json").json()
    assert told["transport"] == transport
    for text in (b"secret-name", DATA[:256]):
        assert (text in seen) == (transport == PLAIN)
    for output in (said.out, shown.out):
        assert (PLAIN in output) == (transport == PLAIN)


def test_a_program_of_several_ranks_gets_in(fs, examples, tmp_path):
    up(fs)
    directory = remote(fs)
    done = subprocess.run(
        [PENSTOCK, "run", "-n", "4", "-d", directory, "--", examples("tile"), "penstock:/tile"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "tile" in penstock("ls", "-d", directory).out


def test_an_impostor_is_not_believed(fs, short_dir, tmp_path):
    """Another deployment whose owner has this one's client key and id, at this one's addresses."""
    up(fs)
    theirs = (fs / "deployment.toml").read_text()
    identities = re.findall(r'identity = "(\w+)"', theirs)
    assert len(set(identities)) == 3
    other = iter(["0" * 64] * 3)
    directory = remote(
        fs, change=lambda text: re.sub(r'identity = "\w+"', lambda _: f'identity = "{next(other)}"', text)
    )
    refused = penstock("ls", "-d", directory, check=False)
    assert refused.code == 1
    assert "did not prove the identity" in refused.err, refused.err


def test_both_ends_have_to_agree(fs):
    up(fs)
    directory = remote(fs, change=lambda text: f'transport = "{PLAIN}"\n{text}')
    refused = penstock("ls", "-d", directory, check=False)
    assert refused.code == 1 and "TLS" in refused.err and "deployment file" in refused.err, refused.err
    refused = penstock("up", fs, "--transport", PLAIN, check=False)
    assert refused.code == 1 and "deployment.toml" in refused.err


def test_a_deployment_of_an_older_release_gets_identities(fs, tmp_path):
    up(fs)
    penstock("down", fs)
    file = fs / "deployment.toml"
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line for line in lines if not line.startswith("identity")))
    for key in ("meta.key", "data-0.key", "data-1.key"):
        (fs / key).unlink()
    refused = penstock("ls", "-d", remote(fs, "early"), check=False)
    assert refused.code == 1 and "penstock up" in refused.err, refused.err
    penstock("up", fs)
    assert copied(remote(fs, "late"), tmp_path) == DATA
