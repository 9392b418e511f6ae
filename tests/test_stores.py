"""Stores that are not those that were there: refused by name, and what was lost never reads as zeros."""

import os
import shutil

import pytest
from conftest import penstock

DATA = bytes(range(1, 251)) * 4000


@pytest.fixture
def stores(tmp_path):
    """A stopped deployment with one file over two data servers, which `cp` has synced."""
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


ADOPT = ("--adopt-store", "0", "--adopt-store", "1")


def test_metadata_from_an_older_copy_free_nothing(stores, tmp_path):
    meta, older, newest = stores / "meta", tmp_path / "older", tmp_path / "newest"
    penstock("up", stores)
    shutil.copytree(meta, older)
    # Made in the same run as the copy: of this run's ids the copy knows no end.
    penstock("cp", tmp_path / "in", "penstock:/newer", "-d", stores)
    penstock("down", stores)
    meta.rename(newest)
    shutil.copytree(older, meta)
    refused(stores, "newer than these metadata", "--adopt-store")
    penstock("down", stores, check=False)
    penstock("up", stores, *ADOPT)
    assert read(stores, tmp_path) == DATA
    for options in (), ("--repair",), ("--repair", "--free-many"):
        checked = penstock("check", *options, "-d", stores, check=False)
        assert checked.code == 1 and "may be newer than the metadata" in checked.out, checked.out
    # Ids are not given out twice, and what is made now can be freed.
    penstock("cp", tmp_path / "in", "penstock:/newer", "-d", stores)
    penstock("down", stores)
    shutil.rmtree(meta)
    newest.rename(meta)
    penstock("up", stores, *ADOPT)
    assert read(stores, tmp_path, "newer") == DATA
    assert read(stores, tmp_path) == DATA


def test_a_database_older_than_the_list_of_stores(stores, tmp_path):
    meta = stores / "meta"
    older = tmp_path / "older"
    shutil.copytree(meta, older)
    penstock("up", stores)
    penstock("down", stores)
    kept = (meta / "stores").read_bytes()
    shutil.rmtree(meta)
    shutil.copytree(older, meta)
    (meta / "stores").write_bytes(kept)
    refused(stores, "used with newer metadata", "--adopt-store")
    (meta / "stores").unlink()
    penstock("down", stores, check=False)
    refused(stores, "other metadata", "--adopt-store")


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
