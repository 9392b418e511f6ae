"""Who loads which server: `penstock top`, and figures for Prometheus (docs/administer/monitoring.md)."""

import json
import os
import pty
import re
import select
import shutil
import signal
import socket
import subprocess
import termios
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from contextlib import contextmanager

import pytest
from conftest import PENSTOCK, ROOT, penstock
from mounted import ALICE, BOB, as_root, await_
from test_programs import Site

PROMETHEUS = ROOT / ".venv" / "prometheus" / "usr" / "bin"
DASHBOARD = ROOT / "contrib" / "grafana" / "penstock.json"
needs_promtool = pytest.mark.skipif(
    not (PROMETHEUS / "promtool").exists(), reason="no promtool: `make setup` unpacks Debian's package"
)


@pytest.fixture
def site(short_dir):
    site = Site(short_dir)
    yield site
    site.end()


@contextmanager
def busy(site, *processes, size=1 << 20):
    """Each of these writes so many bytes again and again."""
    stop = threading.Event()

    def work(process):
        while not stop.is_set():
            assert Site.write(process, size) == "written\n"

    threads = [threading.Thread(target=work, args=(process,)) for process in processes]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def run(site, *args, uid=None, check=True, **env):
    """The command as any user runs it, with standard output in a pipe."""
    uid = os.geteuid() if uid is None else uid
    done = subprocess.run(
        [str(site.command), *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        cwd="/",
        env={**os.environ, "HOME": "/tmp", "PENSTOCK_DEPLOYMENT": str(site.deployment), **env},
        **site.becoming(uid),
    )
    assert done.returncode == 0 or not check, done.stdout + done.stderr
    return done


def top(site, *args, **options):
    """One look, for programs."""
    return json.loads(run(site, "top", "--once", "--json", "--every", 0.5, *args, **options).stdout)


def start(site, path, **options):
    return site.start(path, PENSTOCK_SHORTCUT="disable", **options)


def test_top_names_who_loads_which_server(site):
    busy_one, quiet = start(site, "penstock:/a", SLURM_JOB_ID="4711"), start(site, "penstock:/b")
    with busy(site, busy_one, size=3 << 20):
        told = top(site)
        text = run(site, "top", "--once", "--every", 0.5).stdout
    (row,) = told["rows"]
    assert row["command"] == f"{site.program} penstock:/a"[:60] and row["job"] == "4711"
    assert row["written_per_s"] > 1 << 20 and row["requests_per_s"] > 1 and row["read_per_s"] == 0
    # Both servers have a part of the file, and all that they do is this program's.
    assert set(row["servers"]) == {"0", "1"} and all(rate > 0 for rate in row["servers"].values())
    assert 0.99 < row["share"] < 1.01 and 0 < row["io"] <= 1 and row["device"] > 0
    # Each file begins at its beginning, at each server: one slice after the other.
    assert row["gap"] is not None and row["gap_per_size"] is not None and row["reuse_s"] > 0
    assert [server["id"] for server in told["servers"]] == [0, 1] and told["silent"] == []
    assert sum(server["written_per_s"] for server in told["servers"]) == pytest.approx(row["written_per_s"])
    (line,) = [line for line in text.splitlines() if "penstock:/a" in line]
    assert "4711" in line and re.search(r"\d (K|M|G)iB/s", line) and re.search(r"[01]:\d+% [01]:\d+%", line)
    assert "penstock:/b" not in text and re.search(r"^ *data-1 .*\d", text, re.MULTILINE), text
    # What is idle is shown where it is asked for.
    both = top(site, "--all")["rows"]
    assert len(both) == 2 and quiet.poll() is None


def test_rows_are_what_is_asked_for(site):
    many = start(site, "penstock:/many", SLURM_JOB_ID="9")
    few = start(site, "penstock:/few", PBS_JOBID="12.head")
    with busy(site, many, size=4 << 20), busy(site, few, size=1000):
        rows = top(site)["rows"]
        assert [row["job"] for row in rows] == ["9", "12.head"]
        assert [row["job"] for row in top(site, "--sort", "job")["rows"]] == ["12.head", "9"]
        assert [row["job"] for row in top(site, "-n", 1)["rows"]] == ["9"] and top(site, "-n", 1)["more"] == 1
        assert [row["job"] for row in top(site, "--filter", "HEAD")["rows"]] == ["12.head"]
        apart = top(site, "--by", "server")["rows"]
        assert {(row["job"], *row["servers"]) for row in apart} >= {("9", "0"), ("9", "1")}
        assert all(len(row["servers"]) == 1 for row in apart)
        assert {k for row in top(site, "--server", 1)["rows"] for k in row["servers"]} >= {"1"}
        (user,) = top(site, "--by", "user")["rows"]
        assert user["programs"] == 2 and user["job"] is None and user["command"] == "2 programs"
        assert len(top(site, "--by", "job")["rows"]) == 2
        none = run(site, "top", "--once", "--every", 0.2, "--filter", "no such text").stdout
        assert "among those that were asked for" in none
    wrong = run(site, "top", "--once", "--server", 7, check=False)
    assert wrong.returncode == 1 and "has no data server 7" in wrong.stderr


def test_bytes_by_shortcuts_are_counted(site):
    process = site.start("penstock:/a")

    def direct():
        servers = site.status("--json").json()[0]["servers"]
        by_requests = sum(server["bytes_written"] for server in servers)
        return sum(server["shortcut_bytes_written"] for server in servers), by_requests

    with busy(site, process):
        await_(lambda: direct()[0] > 8 << 20, "shortcuts are not counted")
        (row,) = top(site)["rows"]
        assert row["shortcuts_per_s"] > 0 and row["written_per_s"] >= row["shortcuts_per_s"] > row["written_per_s"] / 2
        # Also in the list of programs, which goes by what servers report.
        await_(lambda: site.programs()[0]["written_per_s"] > 1 << 20, "reports have no shortcuts")
    before, _ = direct()
    # What was counted when a client was killed is not lost, and nothing is counted twice.
    assert site.write(process, 1 << 20) == "written\n"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    await_(lambda: direct()[0] + direct()[1] >= before + (1 << 20))
    total = direct()[0]
    time.sleep(1.5)
    assert direct()[0] == total
    text = site.status().out
    assert re.search(r"shortcuts .*\n(.*\n)* *data-0 .*\d MiB", text) and "(program" not in text, text


@as_root
def test_users_see_their_own_programs(site):
    ours, hers = start(site, "penstock:/ours", SLURM_JOB_ID="4711"), start(site, "penstock:/hers", uid=ALICE)
    penstock("tune", "sched=wfq", "-d", site.deployment)
    with busy(site, ours, hers):
        assert {row["uid"] for row in top(site)["rows"]} == {0, ALICE}
        told = top(site, uid=ALICE)
        assert [row["uid"] for row in told["rows"]] == [ALICE] and told["all"] is False
        assert top(site, uid=BOB)["rows"] == []
        text = run(site, "top", "--once", "--every", 0.5, "--all", uid=ALICE).stdout
        assert "penstock:/hers" in text and "ours" not in text and "4711" not in text and "your own" in text
        assert "root" not in text and "others" not in text
        # Nor are they told of others' programs by number in the scheduler's figures.
        numbers = {row["uid"]: row["program"] for row in top(site)["rows"]}
        seen = site.status("--json", uid=ALICE).json()[0]["servers"][0]["sched"]["programs"]
        assert {row["program"] for row in seen} == {numbers[ALICE], 2**64 - 1}
        every = site.status("--json").json()[0]["servers"][0]["sched"]["programs"]
        assert {row["program"] for row in every} == set(numbers.values())
    # All rows need the credential of an administrator, and that of a user does not do.
    for options, rows in (([], {BOB}), (["--administrator"], {0, ALICE})):
        credential = site.directory / f"credential-{len(rows)}"
        penstock("credential", "--user", BOB, *options, "--output", credential, "-d", site.deployment)
        shutil.chown(credential, BOB, BOB)
        with busy(site, ours, hers):
            told = top(site, uid=BOB, PENSTOCK_CREDENTIAL=str(credential))
        assert {row["uid"] for row in told["rows"]} == (rows if options else set()), told
        assert told["all"] is bool(options)


def test_what_a_command_holds_does_not_reach_the_terminal(site):
    process = start(site, "penstock:/a")
    evil = site.start(
        "penstock:/b", "\x1b[2J\nroot  0  ok", "\u202egnp.exe", "x" * 1000,
        PENSTOCK_SHORTCUT="disable", SLURM_JOB_ID="\x1b]0;job\x07" + "9" * 500,
    )  # fmt: skip
    with busy(site, process, evil):
        text = run(site, "top", "--once", "--every", 0.5).stdout
        rows = top(site)["rows"]
    assert "\x1b" not in text and "\x07" not in text and "\u202e" not in text
    assert "\\u{1b}[2J" in text and max(map(len, text.splitlines())) < 400
    assert len(rows) == 2 and all(len(row["job"] or "") < 200 for row in rows)


def test_status_names_programs_that_have_ended(site):
    penstock("tune", "sched=wfq", "-d", site.deployment)
    process = start(site, "penstock:/a", SLURM_JOB_ID="4711")
    assert site.write(process, 1 << 20) == "written\n"
    process.stdin.close()
    assert process.wait(10) == 0
    await_(lambda: site.programs() == [])
    text = site.status().out
    (line,) = [line for line in text.splitlines() if "100.0 %" in line]
    assert f"{site.program} penstock:/a"[:50] in line
    assert not re.search(r"\d{15}", text), text


def test_silent_servers_are_named_and_nobody_waits_for_them_in_turn(short_dir):
    deployment = short_dir / "fs"
    penstock("up", deployment, "--servers", 4)
    pids = {path.stem: int(path.read_text().split()[0]) for path in (deployment / "run").glob("*.pid")}
    stopped = [pids[name] for name in ("meta", "data-1", "data-2")]
    try:
        for pid in stopped:
            os.kill(pid, signal.SIGSTOP)
        os.kill(pids["data-3"], signal.SIGKILL)
        time.sleep(0.1)
        began = time.monotonic()
        status = penstock("status", deployment, check=False)
        assert time.monotonic() - began < 9, "servers are asked one after another"
        assert status.code == 1 and "4 servers do not answer" in status.err
        assert re.search(r"^ *data-0 +up ", status.out, re.MULTILINE), status.out
        for name in ("meta", "data-1", "data-2"):
            assert re.search(rf"^{name}: no answer within 5.0 s", status.out, re.MULTILINE), status.out
        assert re.search(r"^data-3: .*cannot be reached", status.out, re.MULTILINE), status.out
        began = time.monotonic()
        once = penstock("top", "--once", "--every", 1, deployment, check=False)
        assert time.monotonic() - began < 9
        assert once.code == 1 and "1 of 4 data servers answer" in once.out and "data-3: " in once.out, once.out
        assert "data-1: no answer" in once.out and "4 servers do not answer" in once.err
        told = penstock("top", "--once", "--json", "--every", 1, deployment, check=False).json()[0]
        assert [server["server"] for server in told["silent"]] == ["meta", "data-1", "data-2", "data-3"]
    finally:
        for pid in stopped:
            os.kill(pid, signal.SIGCONT)
    penstock("up", deployment)
    await_(lambda: penstock("top", "--once", "--every", 0.2, deployment, check=False).code == 0)
    penstock("down", deployment)


def test_tables_follow_one_another_until_their_reader_leaves(deployment):
    command = [PENSTOCK, "top", "--every", "0.1", deployment]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as watching:
        seen = 0
        while seen < 3:
            seen += watching.stdout.readline().startswith("fs: 4 of 4 data servers answer")
        watching.stdout.close()
        assert watching.wait(timeout=20) == 0


class Terminal:
    """A command on a terminal of its own."""

    def __init__(self, *command):
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            termios.tcsetwinsize(0, (30, 200))
            os.execv(command[0], [str(word) for word in command])
        self.seen = ""

    def until(self, text, timeout=20):
        """What has been written since the last call up to this text."""
        end = time.monotonic() + timeout
        while not re.search(text, self.seen):
            ready, _, _ = select.select([self.fd], [], [], max(0, end - time.monotonic()))
            assert ready, f"no {text} in {self.seen[-2000:]}"
            try:
                self.seen += os.read(self.fd, 4096).decode(errors="replace")
            except OSError:
                pytest.fail(f"it ended without {text}: {self.seen[-2000:]}")
        found = re.search(text, self.seen)
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def press(self, keys):
        os.write(self.fd, keys.encode())

    def code(self):
        """How it ended."""
        try:
            while os.read(self.fd, 4096):
                pass
        except OSError:
            pass
        os.close(self.fd)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def test_a_terminal_is_refreshed_in_place_and_given_back(site):
    one, two = start(site, "penstock:/one", SLURM_JOB_ID="4711"), start(site, "penstock:/two", SLURM_JOB_ID="815")
    with busy(site, one, two):
        terminal = Terminal(str(site.command), "top", "--every", "0.5", site.deployment)
        terminal.until(r"\x1b\[\?1049h")
        terminal.until(r"4711.*\n(.*\n)*.*by program, bytes first|815.*\n(.*\n)*.*by program, bytes first")
        terminal.press("u")
        terminal.until("by program, queue first")
        terminal.press("/")
        terminal.until("show what contains: ")
        terminal.press("4711\n")
        frame = terminal.until(r'with "4711"')
        frame = terminal.until(r'\x1b\[H(?s:.)*with "4711"')
        assert "4711" in frame and "815" not in frame.split("\x1b[H")[-1]
        terminal.press("v")
        terminal.until("by server, queue first")
        terminal.press("q")
        ends = terminal.until(r"\x1b\[\?1049l")
        assert "\x1b[?25h" in ends
        assert terminal.code() == 0
    # A signal gives the terminal back as well.
    terminal = Terminal(str(site.command), "top", site.deployment)
    terminal.until(r"data servers answer")
    os.kill(terminal.pid, signal.SIGTERM)
    terminal.until(r"\x1b\[\?1049l")
    assert terminal.code() == 0


class Exporter:
    """`penstock metrics` on a free port."""

    def __init__(self, site, *args, uid=None):
        uid = os.geteuid() if uid is None else uid
        self.process = subprocess.Popen(
            [str(site.command), "metrics", str(site.deployment), "--listen", "127.0.0.1:0", *map(str, args)],
            stdout=subprocess.PIPE,
            text=True,
            cwd="/",
            env={**os.environ, "HOME": "/tmp"},
            **site.becoming(uid),
        )
        site.running.append(self.process)
        self.url = self.process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/metrics", self.url), self.url
        self.address = ("127.0.0.1", int(self.url.split(":")[2].split("/")[0]))

    def get(self, path="", token=None, accept=None):
        request = urllib.request.Request(self.url + path)
        if token:
            request.add_header("Authorization", f"Bearer {token}")
        if accept:
            request.add_header("Accept", accept)
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode(), answer.headers

    def refused(self, **how):
        with pytest.raises(urllib.error.HTTPError) as raised:
            self.get(**how)
        return raised.value.code

    def raw(self, request):
        """The first line of the answer to these bytes."""
        with socket.create_connection(self.address, timeout=20) as connection:
            connection.sendall(request)
            return connection.makefile("rb").readline().decode().strip()


def series(text):
    """Value by name and labels."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines)}


def test_metrics_by_server_are_for_everybody_and_those_by_user_for_the_token(site):
    process = start(site, "penstock:/a", SLURM_JOB_ID='47"11\\\n')
    assert site.write(process, 4 << 20) == "written\n"
    plain, token = Exporter(site), site.directory / "token"
    told = series(plain.get()[0])
    assert told['penstock_server_up{server="meta"}'] == told['penstock_server_up{server="data-1"}'] == 1
    written = sum(told[f'penstock_server_bytes_total{{server="data-{k}",op="write",way="request"}}'] for k in (0, 1))
    assert written >= 4 << 20
    assert not any("user" in name or "job" in name for name in told)
    secret = Exporter(site, "--token", token)
    assert token.stat().st_mode & 0o777 == 0o600
    word = token.read_text().strip()
    assert secret.refused() == 401 and secret.refused(token=word[:-1]) == 401 and secret.refused(token="") == 401
    told = series(secret.get(token=word)[0])
    user = site.programs()[0]["user"]
    before = told[f'penstock_user_bytes_total{{user="{user}",op="write"}}']
    assert before >= 4 << 20 and told['penstock_user_bytes_total{user="(others)",op="write"}'] == 0
    (job,) = [name for name in told if name.startswith("penstock_job_bytes") and 'op="write"' in name and "47" in name]
    assert r'job="47\"11\\\\\\u{a}"' in job, job
    # Counters go on, and a server that died is said to be down.
    assert site.write(process, 2 << 20) == "written\n"
    os.kill(int((site.deployment / "run" / "data-1.pid").read_text().split()[0]), signal.SIGKILL)
    time.sleep(1.1)
    told = series(secret.get(token=word)[0])
    assert told['penstock_server_up{server="data-1"}'] == 0 and told['penstock_server_up{server="data-0"}'] == 1
    assert told[f'penstock_user_bytes_total{{user="{user}",op="write"}}'] > before


@as_root
def test_the_exporter_of_a_user_tells_of_own_programs(site):
    ours, hers = start(site, "penstock:/ours"), start(site, "penstock:/hers", uid=ALICE)
    for process in (ours, hers):
        assert site.write(process, 1 << 20) == "written\n"
    token = site.directory / "token"
    word = "0123456789abcdef0123456789abcdef"
    token.write_text(word)
    shutil.chown(token, ALICE, ALICE)
    token.chmod(0o600)
    told = series(Exporter(site, "--token", token, uid=ALICE).get(token=word)[0])
    users = {re.search(r'user="([^"]*)"', name)[1] for name in told if "penstock_user_" in name}
    assert users == {str(ALICE), "(others)"}
    assert told['penstock_user_bytes_total{user="(others)",op="write"}'] == 0


def test_the_exporter_answers_what_it_should_and_no_more(site):
    exporter = Exporter(site)
    assert exporter.refused(path="/elsewhere") == 404
    host = b"Host: localhost\r\n\r\n"
    assert exporter.raw(b"POST /metrics HTTP/1.1\r\n" + host).split()[1] == "405"
    assert exporter.raw(b"GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n").split()[1] == "403"
    assert exporter.raw(b"\x16\x03\x01 nonsense\r\n\r\n").split()[1] == "400"
    assert exporter.raw(b"GET / HTTP/1.1\r\nX: " + b"x" * 20_000).split()[1] == "431"
    assert exporter.raw(b"HEAD /metrics HTTP/1.0\r\n\r\n").split()[1] == "200"
    # Those who say nothing don't keep others out for longer than their time, and are bounded.
    idle = [socket.create_connection(exporter.address, timeout=20) for _ in range(16)]
    time.sleep(0.3)
    assert exporter.raw(b"GET / HTTP/1.1\r\n" + host).split()[1] == "503"
    await_(lambda: exporter.raw(b"GET / HTTP/1.1\r\n" + host).split()[1] == "200", "idle connections stay")
    for connection in idle:
        connection.close()
    for address in ("0.0.0.0:0", "[::]:0", "192.0.2.1:80"):
        refused = penstock("metrics", site.deployment, "--listen", address, check=False)
        assert refused.code == 1 and "not on this host alone" in refused.err
    port = exporter.address[1]
    taken = penstock("metrics", site.deployment, "--listen", f"127.0.0.1:{port}", check=False)
    assert taken.code == 1 and "another port" in taken.err
    usage = penstock("metrics", site.deployment, "--users", 3, check=False)
    assert usage.code == 2 and "--token" in usage.err


@needs_promtool
def test_promtool_finds_nothing_wrong(site):
    process = start(site, "penstock:/a", SLURM_JOB_ID="4711")
    assert site.write(process, 1 << 20) == "written\n"
    token = site.directory / "token"
    exporter = Exporter(site, "--token", token)
    text, headers = exporter.get(token=token.read_text().strip())
    assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
    checked = subprocess.run(
        [PROMETHEUS / "promtool", "check", "metrics"], input=text, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0 and checked.stdout + checked.stderr == "", checked.stdout + checked.stderr
    # It would have found something.
    wrong = subprocess.run(
        [PROMETHEUS / "promtool", "check", "metrics"], input="a_total 1\na_total 1\n", capture_output=True, check=False, text=True
    )  # fmt: skip
    assert wrong.returncode != 0
    openmetrics, headers = exporter.get(token=token.read_text().strip(), accept="application/openmetrics-text")
    assert headers["Content-Type"].startswith("application/openmetrics-text; version=1.0.0")
    assert openmetrics.endswith("# EOF\n") and "# UNIT penstock_user_bytes bytes\n" in openmetrics


def queries(node):
    """All expressions of a dashboard."""
    if isinstance(node, dict):
        if "expr" in node:
            yield node["expr"]
        for value in node.values():
            yield from queries(value)
    elif isinstance(node, list):
        for value in node:
            yield from queries(value)


def test_the_dashboard_names_figures_that_there_are(site):
    process = start(site, "penstock:/a")
    assert site.write(process, 1 << 20) == "written\n"
    token = site.directory / "token"
    names = {
        name.split("{")[0] for name in series(Exporter(site, "--token", token).get(token=token.read_text().strip())[0])
    }
    expressions = list(queries(json.loads(DASHBOARD.read_text())))
    used = {name for expression in expressions for name in re.findall(r"penstock_\w+", expression)}
    assert len(expressions) > 8 and used <= names, used - names
    page = (ROOT / "docs" / "administer" / "monitoring.md").read_text()
    assert {name for name in names if f"`{name}`" not in page} == set()


@pytest.mark.long
@needs_promtool
def test_each_query_of_the_dashboard_returns_a_series_from_a_real_prometheus(site):
    process = start(site, "penstock:/a", SLURM_JOB_ID="4711")
    token = site.directory / "token"
    exporter = Exporter(site, "--token", token)
    config = site.directory / "prometheus.yml"
    config.write_text(
        json.dumps(
            {
                "global": {"scrape_interval": "1s"},
                "scrape_configs": [
                    {
                        "job_name": "penstock",
                        "authorization": {"credentials_file": str(token)},
                        "static_configs": [{"targets": ["{}:{}".format(*exporter.address)]}],
                    }
                ],
            }
        )
    )
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [
            PROMETHEUS / "prometheus",
            f"--config.file={config}",
            f"--storage.tsdb.path={site.directory / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.PIPE,
        text=True,
    )  # fmt: skip

    def ask(expression):
        query = urllib.parse.urlencode({"query": expression})
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/query?{query}", timeout=20) as answer:
            return json.load(answer)["data"]["result"]

    def scraped():
        try:
            return any(float(row["value"][1]) > 10 for row in ask("count_over_time(up[1m])"))
        except OSError:
            return False

    try:
        with busy(site, process):
            await_(scraped, "nothing was scraped")
            assert [row["value"][1] for row in ask("up")] == ["1"]
            missing = []
            for expression in queries(json.loads(DASHBOARD.read_text())):
                # As Grafana fills them in.
                filled = expression.replace("$__rate_interval", "10s").replace("$server", ".*")
                if not ask(filled):
                    missing.append(filled)
            assert missing == []
            moved = ask('sum(rate(penstock_user_bytes_total{op="write"}[10s]))')
            assert float(moved[0]["value"][1]) > 1 << 20
    finally:
        server.terminate()
        server.communicate(timeout=20)
