"""Traces as tables: data frames, and questions in SQL.

    import penstock.trace

    trace = penstock.trace.open("traces/run")     # or a directory that `penstock trace export --parquet` made
    calls = trace.calls()                         # a pandas data frame; also events, requests, devices, files
    slow = trace.sql("select * from calls order by duration_ns desc limit 10")

The tables and their columns: docs/understand/trace-schema.md. Data frames need pandas and pyarrow, `sql` needs duckdb.
`penstock trace sql` runs this module.
"""

import argparse
import csv
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

TABLES = ("events", "calls", "requests", "devices", "files")
# Seconds of a question with --locked.
LONGEST = 150
INSTALL = "python3 -m pip install duckdb"


class TraceError(Exception):
    """What went wrong, for people."""


class Trace:
    """The tables of a trace. They are made anew for a trace; those of a directory of tables are read as they are."""

    def __init__(self, path):
        self._made = None
        self.tables = Path(path)
        if not all((self.tables / name).is_dir() for name in ("events", "requests")):
            self._made = tempfile.TemporaryDirectory(prefix="penstock-trace-")
            self.tables = Path(self._made.name) / "tables"
            export(path, self.tables)

    def table(self, name, columns=None):
        """A table as a data frame; `columns`: only these."""
        if name not in TABLES:
            raise TraceError(f"no table is called {name}: there are {', '.join(TABLES)}")
        import pandas

        return pandas.read_parquet(self.tables / name, columns=columns)

    def events(self, columns=None):
        """All records."""
        return self.table("events", columns)

    def calls(self, columns=None):
        """Calls of programs and of the client library."""
        return self.table("calls", columns)

    def requests(self, columns=None):
        """Requests at servers, with their time in the queue, the store and the device."""
        return self.table("requests", columns)

    def devices(self, columns=None):
        """Device accesses: a row for each owner of their bytes."""
        return self.table("devices", columns)

    def files(self, columns=None):
        """Files, by layer and kind of operation."""
        return self.table("files", columns)

    def sql(self, query):
        """The answer to a question in SQL as a data frame."""
        try:
            import duckdb
        except ImportError as e:
            raise TraceError(f"DuckDB is not installed; install it with: {INSTALL}") from e
        try:
            return connect(duckdb, self.tables).sql(query).df()
        except duckdb.Error as e:
            raise TraceError(str(e)) from e


def open(path):
    """The trace in a directory."""
    return Trace(path)


def export(path, tables):
    """Has the command write the tables of a trace to a new directory."""
    command = os.environ.get("PENSTOCK_COMMAND") or shutil.which("penstock")
    if not command:
        raise TraceError("no command `penstock` in PATH; PENSTOCK_COMMAND names one elsewhere")
    done = subprocess.run(
        [command, "trace", "export", "--parquet", tables, path], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise TraceError(done.stderr.strip().removeprefix("penstock: "))


def views(tables):
    """The statements that make the views."""
    for name in TABLES:
        files = str(Path(tables) / name / "*.parquet").replace("'", "''")
        yield f"create view {name} as select * from read_parquet('{files}')"


def connect(duckdb, tables, locked=False):
    """A connection with the views. `locked`: it reads the tables' files and no others, and its settings stay."""
    connection = duckdb.connect()
    connection.execute("set memory_limit = '1500MB'")
    connection.execute("set preserve_insertion_order = false")
    for statement in views(tables):
        connection.execute(statement)
    if locked:
        directory = str(Path(tables).resolve()).replace("'", "''")
        connection.execute(f"set allowed_directories = ['{directory}']")
        connection.execute("set enable_external_access = false")
        connection.execute("set lock_configuration = true")
    return connection


def refuse_changes(duckdb, query):
    """Refuses all but questions: a copy would write where the tables lie."""
    # Not `explain` either: `explain analyze copy` copies.
    for statement in duckdb.extract_statements(query):
        if statement.type != duckdb.StatementType.SELECT:
            raise TraceError(f"only questions are answered here (select), and this is {statement.type.name}")


def table(names, rows):
    """Lines of a table for people."""
    shown = [[("-" if value is None else str(value)) for value in row] for row in rows]
    wide = [max([len(name), *(len(row[i]) for row in shown)]) for i, name in enumerate(names)]
    numbers = [all(isinstance(row[i], (int, float, type(None))) for row in rows) for i in range(len(names))]
    for row in [names, *shown]:
        cells = [text.rjust(n) if right else text.ljust(n) for text, n, right in zip(row, wide, numbers, strict=True)]
        yield " " + "  ".join(cells).rstrip()


def plain(value):
    """A value as JSON can have it."""
    if isinstance(value, (int, float, str, bool, type(None))):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    number = getattr(value, "as_integer_ratio", None)
    return float(value) if number else str(value)


def answer(tables, query, locked=False):
    """Names of columns, and rows."""
    try:
        import duckdb
    except ImportError:
        if locked:
            raise TraceError(f"DuckDB's Python package is not here\n  next: install it with: {INSTALL}") from None
        return by_command(tables, query)
    try:
        if locked:
            refuse_changes(duckdb, query)
        result = connect(duckdb, tables, locked).execute(query)
        names = [column[0] for column in result.description or []]
        return names, [tuple(map(plain, row)) for row in result.fetchall()]
    except duckdb.Error as e:
        raise TraceError(f"DuckDB says: {e}") from e


def by_command(tables, query):
    """The same by the command `duckdb`."""
    command = shutil.which("duckdb")
    if not command:
        raise TraceError(f"DuckDB is not here\n  next: install it with: {INSTALL}")
    script = ";\n".join([*views(tables), query])
    done = subprocess.run([command, "-json", "-c", script], capture_output=True, text=True, check=False)
    if done.returncode != 0 or done.stderr:
        raise TraceError(f"DuckDB says: {done.stderr.strip() or done.stdout.strip()}")
    rows = json.loads(done.stdout or "[]")
    names = list(rows[0]) if rows else []
    return names, [tuple(row[name] for name in names) for row in rows]


def sql(arguments):
    """`penstock trace sql`."""
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    if arguments.locked:
        # Whoever asked may be gone: the question ends in any case.
        signal.alarm(LONGEST)
    names, rows = answer(arguments.tables, query, arguments.locked)
    if arguments.form == "json":
        found = [dict(zip(names, row, strict=True)) for row in rows]
        print(json.dumps({"rows": found, "notes": arguments.note}))
        return
    if arguments.form == "csv":
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(names)
        writer.writerows(rows)
        for note in arguments.note:
            print(f"penstock: {note}", file=sys.stderr)
        return
    for line in table(names, rows):
        print(line)
    for note in arguments.note:
        print(f"note: {note}")


def main():
    """The command line of this module, for the command `penstock`."""
    parser = argparse.ArgumentParser(prog="penstock trace")
    commands = parser.add_subparsers(required=True)
    ask = commands.add_parser("sql")
    ask.add_argument("tables")
    ask.add_argument("query")
    ask.add_argument("--locked", action="store_true")
    ask.add_argument("--form", choices=("table", "json", "csv"), default="table")
    ask.add_argument("--note", action="append", default=[])
    ask.set_defaults(do=sql)
    arguments = parser.parse_args()
    try:
        arguments.do(arguments)
        sys.stdout.flush()
    except TraceError as e:
        print(f"penstock: {e}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        sys.stdout = None
    return 0


if __name__ == "__main__":
    sys.exit(main())
