"""What the tests of the Python package share: a deployment for the session, and its client."""

import importlib.util
import shutil
import tempfile
import uuid
from pathlib import Path

import penstock
import pytest

ROOT = Path(__file__).resolve().parents[2]
_spec = importlib.util.spec_from_file_location("end_to_end", ROOT / "tests" / "conftest.py")
_end_to_end = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_end_to_end)
#: Runs the command; see tests/conftest.py.
command = _end_to_end.penstock


@pytest.fixture(scope="session")
def deployment():
    """A running deployment of four data servers with stripes of 4 KiB."""
    top = Path(tempfile.mkdtemp(prefix="pst-"))
    command("up", top / "fs", "--stripe-unit", "4KiB")
    yield top / "fs"
    command("down", top / "fs", check=False)
    shutil.rmtree(top, ignore_errors=True)


@pytest.fixture(scope="session")
def fs(deployment):
    """A client that sends requests, so that they can be counted."""
    return penstock.connect(deployment, shortcuts=False)


@pytest.fixture
def top(fs):
    """A directory of the test's own."""
    path = f"/{uuid.uuid4().hex[:8]}"
    fs.mkdir(path)
    yield path
    fs.rm(path, recursive=True)


def pytest_configure(config):
    config.addinivalue_line("markers", "long: too long to run with every change; `make test-all` runs it")
