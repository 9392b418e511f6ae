"""`penstock view`: the page of a trace for its owner, who may ask questions; nothing for anybody else."""

import http.client
import json
import os
import re
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest
from conftest import PENSTOCK, penstock
from mounted import as_root
from test_report_page import generate, node_modules  # noqa: F401

NOBODY = 65534


class View:
    """A running `penstock view`, and what its user knows."""

    def __init__(self, process, file):
        self.process, self.file = process, Path(file)
        self.address = re.search(r'url=([^"]+)', self.file.read_text()).group(1)
        self.base, self.token = self.address.split("/#")
        self.port = int(self.base.rsplit(":", 1)[1])
        self.path = self.cookie = None

    def ask(self, method, path, body=None, **headers):
        """Status, headers and body of an answer. A header that is None is left out."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=200)
        all_headers = {"Host": f"127.0.0.1:{self.port}", "Origin": self.base, "Cookie": self.cookie}
        all_headers |= {name.replace("_", "-"): value for name, value in headers.items()}
        connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
        for name, value in all_headers.items():
            if value is not None:
                connection.putheader(name, value)
        if body is not None:
            connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body.encode() if body else None)
        reply = connection.getresponse()
        return reply.status, reply.headers, reply.read().decode()

    def enter(self):
        status, headers, path = self.ask("POST", "/enter", self.token)
        assert status == 200, path
        self.path, self.cookie = path, headers["Set-Cookie"].split(";")[0]
        return headers["Set-Cookie"]

    def question(self, **question):
        status, _, body = self.ask("POST", f"{self.path}ask", json.dumps(question), Content_Type="application/json")
        assert status == 200, body
        return json.loads(body)


@contextmanager
def viewing(trace):
    # SQL needs the DuckDB of the environment that runs the tests.
    environment = os.environ | {"PENSTOCK_PYTHON": sys.executable}
    process = subprocess.Popen(
        [PENSTOCK, "view", trace], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("open in a browser: "), line
        yield View(process, line.removeprefix("open in a browser: ").strip())
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(timeout=10) == 0


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return generate(tmp_path_factory.mktemp("view") / "trace", "--processes", 3, "--calls", 60, "--irregular")


@pytest.fixture(scope="module")
def view(trace):
    with viewing(trace) as view:
        view.enter()
        yield view


def test_the_token_is_nowhere_but_in_a_private_file(view):
    assert stat.S_IMODE(view.file.stat().st_mode) == 0o600
    assert stat.S_IMODE(view.file.parent.stat().st_mode) == 0o700
    command = Path(f"/proc/{view.process.pid}/cmdline").read_bytes()
    assert view.token.encode() not in command
    assert len(view.token) == 64
    _, _, body = view.ask("GET", "/")
    assert view.token not in body and view.path not in body


def test_a_terminal_shows_the_address(trace):
    import pty

    master, slave = pty.openpty()
    process = subprocess.Popen([PENSTOCK, "view", trace], stdin=slave, stdout=slave, stderr=slave, close_fds=True)
    os.close(slave)
    try:
        seen = b""
        while b"\n" not in seen:
            seen += os.read(master, 1000)
        assert re.match(rb"http://127\.0\.0\.1:\d+/#[0-9a-f]{64}\r\n", seen), seen
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=10) == 0
        os.close(master)


def test_the_address_ends_with_the_server(trace):
    with viewing(trace) as view:
        assert view.file.exists()
    assert not view.file.exists() and not view.file.parent.exists()


def test_the_page_comes_with_the_cookie_only(view):
    cookie = View(view.process, view.file).enter()
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie and re.search(r"Path=/[0-9a-f]{64}/;", cookie)
    status, headers, body = view.ask("GET", view.path)
    assert status == 200 and '"asks":true' in body and "connect-src 'self'" in body
    assert headers["X-Frame-Options"] == "DENY" and "frame-ancestors 'none'" in headers["Content-Security-Policy"]
    assert headers["Cache-Control"] == "no-store" and headers["Referrer-Policy"] == "no-referrer"
    for cookie in (None, "penstock-view=", "penstock-view=" + "0" * 64, view.cookie[:-1]):
        status, _, body = view.ask("GET", view.path, Cookie=cookie)
        assert status == 401 and len(body) < 200, body
    assert view.ask("GET", f"/{'0' * 64}/")[0] == 404


def test_wrong_tokens_open_nothing(view):
    for token in ("", "0" * 64, view.token[:-1], view.token + "0", view.token.upper() + " ", "é"):
        status, headers, body = view.ask("POST", "/enter", token.encode().decode("latin-1"), Cookie=None)
        assert status == 403 and "Set-Cookie" not in headers and view.path not in body
    # Not in the address either, where logs would have it.
    assert view.ask("GET", f"/?token={view.token}", Cookie=None)[2] == view.ask("GET", "/")[2]
    assert view.ask("GET", f"/enter/{view.token}", Cookie=None)[0] == 404


def test_other_origins_and_hosts_are_refused(view):
    ask = (view.path + "ask", json.dumps({"name": "overview"}))
    json_kind = {"Content_Type": "application/json"}
    assert view.ask("POST", *ask, **json_kind)[0] == 200
    for headers in (
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": f"https://127.0.0.1:{view.port}"},
        {"Origin": f"http://127.0.0.1:{view.port + 1}"},
        {"Origin": f"http://localhost:{view.port}"},
        {"Origin": None},
        {"Host": f"evil.example:{view.port}"},
        {"Host": f"127.0.0.1.evil.example:{view.port}"},
        {"Host": "127.0.0.1"},
        {"Host": None},
        {"Sec_Fetch_Site": "cross-site"},
        {"Sec_Fetch_Site": "same-site"},
    ):
        status, reply, body = view.ask("POST", *ask, **json_kind, **headers)
        assert status == 403 and "Access-Control-Allow-Origin" not in reply, (headers, body)
    # What a form of another page can send without asking first.
    for kind in (None, "text/plain", "application/x-www-form-urlencoded"):
        assert view.ask("POST", *ask, Content_Type=kind)[0] == 415
    # A page of this host's other name is as good.
    local = f"localhost:{view.port}"
    assert view.ask("POST", *ask, **json_kind, Host=local, Origin=f"http://{local}")[0] == 200


@as_root
def test_another_user_gets_nothing_even_with_the_token(view):
    program = f"""
import http.client
c = http.client.HTTPConnection("127.0.0.1", {view.port}, timeout=20)
headers = {{"Origin": "{view.base}", "Cookie": "{view.cookie}"}}
seen = []
for method, path, body in (("GET", "/", None), ("POST", "/enter", "{view.token}"), ("GET", "{view.path}", None)):
    c.request(method, path, body=body, headers=headers)
    r = c.getresponse()
    seen.append((r.status, len(r.read())))
print(seen)
"""
    done = subprocess.run(
        ["/usr/bin/python3", "-c", program],
        user=NOBODY,
        group=NOBODY,
        capture_output=True,
        text=True,
        check=True,
        cwd="/",
    )
    seen = eval(done.stdout)
    assert [status for status, _ in seen] == [403, 403, 403] and all(length < 100 for _, length in seen), seen
    # And no look at the file with the address.
    done = subprocess.run(["cat", view.file], user=NOBODY, group=NOBODY, capture_output=True, check=False)
    assert done.returncode != 0 and done.stdout == b""


def raw(view, data, wait=10):
    """The answer to these bytes."""
    with socket.create_connection(("127.0.0.1", view.port), timeout=wait) as s:
        try:
            s.sendall(data)
            s.shutdown(socket.SHUT_WR)
            answer = b""
            while piece := s.recv(65536):
                answer += piece
        except (ConnectionResetError, BrokenPipeError):
            answer = b"HTTP/1.1 000 reset"
    return answer


def status_of(answer):
    return int(answer.split(b" ")[1]) if answer else None


def test_malformed_and_oversized_requests_are_refused(view):
    host = f"Host: 127.0.0.1:{view.port}\r\n".encode()
    for data, statuses in (
        (b"\x00\xff\x16\x03\x01\r\n\r\n", {400}),
        (b"GET\r\n\r\n", {400}),
        (b"GET / HTTP/9.9\r\n\r\n", {400}),
        (b"GET http://127.0.0.1/ HTTP/1.1\r\n\r\n", {400}),
        (b"GET / HTTP/1.1\r\n\r\n", {403}),
        (b"GET / HTTP/1.1\r\n" + host * 2 + b"\r\n", {400}),
        (b"GET /../../etc/passwd HTTP/1.1\r\n" + host + b"\r\n", {404}),
        (b"DELETE / HTTP/1.1\r\n" + host + b"\r\n", {405}),
        (b"GET / HTTP/1.1\r\n" + host + b"X: " + b"x" * 20_000 + b"\r\n\r\n", {431, 0}),
        (b"POST /enter HTTP/1.1\r\n" + host + b"Content-Length: 70000\r\n\r\n" + b"x" * 100, {413}),
        (b"POST /enter HTTP/1.1\r\n" + host + b"Content-Length: 99999999999999999999\r\n\r\n", {413}),
        (b"POST /enter HTTP/1.1\r\n" + host + b"Content-Length: -1\r\n\r\n", {400}),
        (b"POST /enter HTTP/1.1\r\n" + host + b"\r\n", {411}),
        (b"POST /enter HTTP/1.1\r\n" + host + b"Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n", {411}),
        (b"", {None}),
        (b"GET / HT", {None}),
    ):
        answer = raw(view, data)
        assert status_of(answer) in statuses, (data[:60], answer[:100])
    # One that never ends its request waits, and does not stop others.
    slow = [socket.create_connection(("127.0.0.1", view.port)) for _ in range(4)]
    assert view.ask("GET", view.path)[0] == 200
    for s in slow:
        s.settimeout(10)
        assert status_of(s.recv(1000)) == 408
        s.close()
    for body in ("", "{", "[]", '{"name": 1}', '{"name": "list", "path": "/etc"}', "\x00"):
        status, _, text = view.ask("POST", view.path + "ask", body, Content_Type="application/json")
        assert status == 400 and "question" in text


def test_questions_are_those_of_the_command(view, trace):
    told = view.question(name="breakdown")["answer"]
    assert told == penstock("trace", "breakdown", trace, "--json").json()[0]
    told = view.question(name="list", call="1/*")["answer"]["rows"]
    assert told == penstock("trace", "list", trace, "--call", "1/*", "--json").json()[0]["rows"] and told
    told = view.question(name="follow", call="0/2")["answer"]["rows"]
    assert told[0]["id"] == 2 and told[0]["depth"] == 0
    for question in (
        {"name": "export"},
        {"name": "generate", "call": "x"},
        {"name": "list", "call": "--csv"},
        {"name": "list", "call": "$(id)"},
        {"name": "follow"},
        {"name": "follow", "call": "0/999999"},
        {"name": "sql"},
    ):
        assert view.question(**question)["error"], question


def test_sql_reads_the_tables_and_nothing_else(view, trace, tmp_path):
    pytest.importorskip("duckdb")
    told = view.question(name="sql", sql="select layer as z, count(*) as a from events group by layer order by z")
    rows = told["answer"]["rows"]
    assert list(rows[0]) == ["z", "a"] and rows[0]["z"] == "client" and rows[0]["a"] > 0
    before = sorted((p.name, p.stat().st_mtime_ns) for p in trace.rglob("*"))
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    tables = trace / "tables"
    for query in (
        f"select * from read_csv('{secret}')",
        f"select * from '{secret}'",
        f"copy (select 1) to '{tmp_path}/out.csv'",
        f"copy (select 1) to '{tables}/out.parquet'",
        f"attach '{tmp_path}/new.db'",
        "set enable_external_access = true",
        "install httpfs",
        "create table t as select 1",
        "drop view events",
        f"select 1; copy (select 1) to '{tmp_path}/out.csv'",
        f"explain analyze copy (select 1) to '{tables}/out.csv'",
        "selec",
        "select * from nowhere",
    ):
        assert view.question(name="sql", sql=query).get("error"), query
    assert sorted(p.name for p in tmp_path.iterdir()) == ["secret.csv"]
    assert sorted((p.name, p.stat().st_mtime_ns) for p in trace.rglob("*")) == before
    # More than an answer may hold is refused, not cut.
    told = view.question(name="sql", sql="select repeat('x', 1000) as x from range(10000)")
    assert "MiB" in told["error"]


@pytest.mark.long
def test_a_question_that_takes_too_long_is_ended_with_all_it_started(view):
    pytest.importorskip("duckdb")
    begun = time.monotonic()
    told = view.question(
        name="sql", sql="select count(*) from range(10000000) a, range(1000000) b where a.range + b.range = 7"
    )
    assert "no answer in" in told["error"] and time.monotonic() - begun < 200
    for command in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            words = command.read_bytes()
        except OSError:
            continue
        assert b"--locked" not in words, words


def test_questions_end_with_the_server(trace):
    pytest.importorskip("duckdb")
    with viewing(trace) as view:
        view.enter()
        query = {
            "name": "sql",
            "sql": "select count(*) from range(10000000) a, range(1000000) b where a.range + b.range = 7",
        }
        asked = threading.Thread(
            target=lambda: pytest.raises((OSError, http.client.HTTPException), view.question, **query)
        )
        asked.start()
        until = time.monotonic() + 60
        while not (of_view := questions_of(view)) and time.monotonic() < until:
            time.sleep(0.05)
        assert of_view
        time.sleep(0.5)
    asked.join(timeout=30)
    time.sleep(0.2)
    assert not asked.is_alive() and not any(Path(f"/proc/{pid}/exe").exists() for pid in of_view)


def questions_of(view):
    """Processes that answer."""
    done = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(view.process.pid)], capture_output=True, text=True, check=False
    )
    return done.stdout.split()


@pytest.mark.long
def test_in_a_browser(view, node_modules):  # noqa: F811
    import shutil

    chromium = shutil.which("chromium")
    if not chromium:
        pytest.skip("no chromium here: scripts/setup.sh web installs it")
    shots = Path(os.environ.get("SCREENSHOTS", node_modules)) / "view"
    shots.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        ["node", "test/view.mjs", view.file, chromium, shots],
        cwd=node_modules,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["console"] == [] and result["elsewhere"] == [], result
    assert [what for what, holds in result["checks"] if not holds] == []


def test_clear_errors(tmp_path, trace):
    done = penstock("view", tmp_path / "none", check=False)
    assert done.code == 1 and "none" in done.err
    done = penstock("view", tmp_path, check=False)
    assert done.code == 1 and "*.trace" in done.err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = penstock("view", trace, "--port", port, check=False)
    assert done.code == 1 and str(port) in done.err and "--port" in done.err
    assert "penstock view" in penstock("report", "--help").out
