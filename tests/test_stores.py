"""Stores that are not those that were there: refused by name, and what was lost never reads as zeros."""

import os
import shutil

import pytest
from conftest import penstock

DATA = bytes(range(1, 251)) * 4000


@pytest.fixture
def stores(tmp_path):
    """A stopped deployment with one file over two data servers, that nobody ever synced."""
    fs = tmp_path / "fs"
    penstock("up", fs, "--servers", "2")
    (tmp_path / "in").write_bytes(DATA)
    penstock("cp", tmp_path / "in", "penstock:/f", "-d", fs)
    penstock("down", fs)
    yield fs
    penstock("down", fs, check=False)


def refused(fs, *words, options=()):
    started = penstock("up", fs, *options, check=False)
    assert started.code == 1, started.out + started.err
    for word in words:
        assert word in started.err, f"no `{word}` in: {started.err}"


def read(fs, tmp_path, name="f"):
    out = tmp_path / "out"
    out.unlink(missing_ok=True)
    copied = penstock("cp", f"penstock:/{name}", out, "-d", fs, check=False)
    return out.read_bytes() if copied.code == 0 else None


def test_another_store_is_refused_by_name(stores, tmp_path):
    data = stores / "data-1"
    old = tmp_path / "old"
    shutil.copytree(data, old)
    # An older copy: the store has been started since.
    penstock("up", stores)
    assert read(stores, tmp_path) == DATA
    penstock("down", stores)
    real = tmp_path / "real"
    data.rename(real)
    refused(stores, "data-1", "does not exist", "--new-store 1")
    assert not data.exists()
    data.mkdir()
    refused(stores, "data-1", "is empty", "--new-store 1")
    assert not list(data.iterdir())
    data.rmdir()
    shutil.copytree(old, data)
    refused(stores, "older copy")
    shutil.rmtree(data)
    shutil.copytree(stores / "data-0", data)
    refused(stores, "belongs to server 0")
    shutil.rmtree(data)
    real.rename(data)
    penstock("up", stores)
    assert read(stores, tmp_path) == DATA
    assert penstock("check", "-d", stores).code == 0


def test_a_new_store_brings_no_zeros_back(stores, tmp_path):
    shutil.rmtree(stores / "data-1")
    penstock("up", stores, "--new-store", "1")
    assert read(stores, tmp_path) is None
    checked = penstock("check", "-d", stores, check=False)
    assert checked.code == 1 and "/f may have lost bytes" in checked.out, checked.out
    # Still so after a restart; new files are as good as ever.
    penstock("down", stores)
    penstock("up", stores)
    assert read(stores, tmp_path) is None
    penstock("cp", tmp_path / "in", "penstock:/new", "-d", stores)
    assert read(stores, tmp_path, "new") == DATA
    penstock("check", "--accept-lost", "/f", "-d", stores)
    found = read(stores, tmp_path)
    assert found is not None and DATA.startswith(found[:65536])
    assert penstock("check", "-d", stores).code == 0
    penstock("rm", "penstock:/f", "-d", stores)


def test_a_missing_object_is_an_error_and_named(stores, tmp_path):
    (gone,) = [p for p in (stores / "data-1" / "objects").rglob("*") if p.is_file()]
    gone.unlink()
    penstock("up", stores)
    assert read(stores, tmp_path) is None
    checked = penstock("check", "-d", stores, check=False)
    assert checked.code == 1 and "/f has lost bytes on data server 1" in checked.out, checked.out
    # Written anew it is as good as ever.
    penstock("rm", "penstock:/f", "-d", stores)
    penstock("cp", tmp_path / "in", "penstock:/f", "-d", stores)
    assert read(stores, tmp_path) == DATA
    assert penstock("check", "-d", stores).code == 0


def test_lost_metadata_are_not_made_anew(stores, tmp_path):
    meta, real = stores / "meta", tmp_path / "meta"
    meta.rename(real)
    refused(stores, "does not exist", "--new-store meta")
    meta.mkdir()
    refused(stores, "is empty", "--new-store meta")
    # Even then the stores remember what they were used with.
    refused(stores, "other metadata", "--adopt-store", options=("--new-store", "meta"))
    shutil.rmtree(meta)
    real.rename(meta)
    penstock("up", stores)
    assert read(stores, tmp_path) == DATA


def test_an_object_cut_behind_a_running_server(stores, tmp_path):
    penstock("up", stores)
    (tmp_path / "in").write_bytes(DATA)
    penstock("cp", tmp_path / "in", "penstock:/g", "-d", stores)
    objects = [p for p in (stores / "data-0" / "objects").rglob("*") if p.is_file()]
    newest = max(objects, key=lambda p: p.name)
    os.truncate(newest, 70_000)
    assert read(stores, tmp_path, "g") is None
    checked = penstock("check", "-d", stores, check=False)
    assert checked.code == 1 and newest.name in checked.out, checked.out
    assert read(stores, tmp_path) == DATA
