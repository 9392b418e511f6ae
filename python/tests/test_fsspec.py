"""``penstock://`` under fsspec, and unchanged pandas, xarray, zarr, dask and pyarrow on top of it."""

import os

import dask.array
import dask.dataframe
import fsspec
import numpy as np
import pandas as pd
import penstock
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet
import pytest
import xarray as xr
import zarr

DATA = bytes(range(251)) * 40_000


@pytest.fixture
def options(deployment):
    return {"deployment": str(deployment)}


@pytest.fixture
def files(options):
    return fsspec.filesystem("penstock", **options)


@pytest.fixture
def table():
    return pd.DataFrame({"n": np.arange(5000), "x": np.linspace(0, 1, 5000), "name": [f"row {k}" for k in range(5000)]})


def test_paths(files, top):
    for path in (f"penstock://{top}/a", f"penstock:{top}/a", f"{top}/a", f"{top}/a/", f"penstock:/{top}/a"):
        assert files._strip_protocol(path) == f"{top}/a"
    assert files._strip_protocol("penstock://") == "/"
    assert files._parent(f"penstock://{top}/a") == top and files._parent(top) == "/"


def test_names(files, top):
    files.makedirs(f"penstock://{top}/d/e", exist_ok=True)
    with pytest.raises(FileExistsError):
        files.makedirs(f"{top}/d/e")
    files.pipe({f"{top}/d/one": b"1", f"{top}/d/e/two": b"22"})
    assert files.ls(f"{top}/d", detail=False) == [f"{top}/d/e", f"{top}/d/one"]
    assert files.find(top) == [f"{top}/d/e/two", f"{top}/d/one"]
    assert files.glob(f"{top}/**/t*") == [f"{top}/d/e/two"]
    assert files.du(top) == 3 and files.isdir(f"{top}/d") and files.isfile(f"{top}/d/one")
    info = files.info(f"{top}/d/e/two")
    assert (info["name"], info["size"], info["type"]) == (f"{top}/d/e/two", 2, "file")
    assert files.modified(f"{top}/d/one").year > 2020 and files.ukey(f"{top}/d/one") != files.ukey(f"{top}/d/e/two")
    files.mv(f"{top}/d/one", f"{top}/d/uno")
    files.mv(f"{top}/d", f"{top}/D", recursive=True)
    files.cp(f"{top}/D", f"{top}/copy", recursive=True)
    assert files.cat(files.find(f"{top}/copy")) == {f"{top}/copy/e/two": b"22", f"{top}/copy/uno": b"1"}
    files.touch(f"{top}/D/uno", truncate=False)
    assert files.cat_file(f"{top}/D/uno") == b"1"
    files.touch(f"{top}/D/made/on/the/way")
    assert files.cat_file(f"{top}/D/made/on/the/way") == b""
    with pytest.raises(OSError):
        files.rm(f"{top}/D")
    files.rm(f"{top}/D", recursive=True)
    files.rm_file(f"{top}/copy/uno")
    assert files.find(top) == [f"{top}/copy/e/two"]
    for call in (files.info, files.ls, files.cat_file, files.open, files.rm):
        with pytest.raises(FileNotFoundError):
            call(f"{top}/none")


def test_reading_by_blocks(files, top):
    files.pipe_file(f"{top}/a", DATA)
    for cache in ("readahead", "none", "bytes", "blockcache", "all"):
        with files.open(f"{top}/a", block_size=64 << 10, cache_type=cache) as f:
            assert f.size == len(DATA) and f.read(10) == DATA[:10]
            f.seek(1_000_000)
            assert f.read(200_000) == DATA[1_000_000:1_200_000]
            into = bytearray(100_000)
            assert f.readinto(into) == 100_000 and into == DATA[1_200_000:1_300_000] and f.tell() == 1_300_000
            f.seek(-5, 2)
            assert f.read() == DATA[-5:] and f.readinto(into) == 0
            # An odd end of the file, asked for in one large piece.
            f.seek(-7, 2)
            assert f.readinto(into) == 7 and into[:7] == DATA[-7:]


def test_reading_ahead_is_bounded(files, top, options):
    """Small sequential reads cost one request per block, a large one what it asks for and no more."""
    files.pipe_file(f"{top}/a", DATA)
    counting = fsspec.filesystem("penstock", shortcuts=False, **options)
    with counting.open(f"{top}/a", block_size=1 << 20) as f:
        for _ in range(1000):
            f.read(1000)
        stats = f.raw.stats()["structured"]
        assert stats["operations"] == 1 and stats["bytes_read"] <= 1000 + (1 << 20)
        f.readinto(bytearray(5 << 20))
        assert f.raw.stats()["structured"]["bytes_read"] <= stats["bytes_read"] + (5 << 20)


def test_ranges_go_together(files, top, options):
    files.pipe({f"{top}/a": DATA, f"{top}/b": DATA[::-1]})
    counting = fsspec.filesystem("penstock", shortcuts=False, **options)
    paths = [f"{top}/a", f"{top}/b", f"{top}/a", f"{top}/none", f"{top}/a"]
    before = counting.fs.stats()["structured"]["requests"]
    got = counting.cat_ranges(paths, [0, 5, -10, 0, 100], [10, 15, None, 1, 90])
    assert got[:3] == [DATA[:10], DATA[::-1][5:15], DATA[-10:]] and got[4] == b""
    assert isinstance(got[3], FileNotFoundError)
    assert counting.fs.stats()["structured"]["requests"] - before <= 4
    with pytest.raises(FileNotFoundError):
        counting.cat_ranges(paths, 0, 1, on_error="raise")
    assert counting.cat_file(f"{top}/a", start=-100, end=-90) == DATA[-100:-90]


def test_put_and_get(files, top, tmp_path):
    (tmp_path / "in" / "sub").mkdir(parents=True)
    (tmp_path / "in" / "a").write_bytes(DATA)
    (tmp_path / "in" / "sub" / "b").write_bytes(b"b")
    files.put(str(tmp_path / "in"), f"{top}/in", recursive=True)
    assert files.find(f"{top}/in") == [f"{top}/in/a", f"{top}/in/sub/b"]
    files.get(f"{top}/in", str(tmp_path / "out"), recursive=True)
    assert (tmp_path / "out" / "a").read_bytes() == DATA and (tmp_path / "out" / "sub" / "b").read_bytes() == b"b"
    # A source that fails half-way leaves no target, under any name.
    with pytest.raises(FileNotFoundError):
        files.put_file(tmp_path / "none", f"{top}/none")
    with pytest.raises(FileNotFoundError):
        files.get_file(f"{top}/none", tmp_path / "none")
    with pytest.raises(FileExistsError):
        files.put_file(tmp_path / "in" / "a", f"{top}/in/a", mode="create")
    assert files.ls(top, detail=False) == [f"{top}/in"] and sorted(os.listdir(tmp_path)) == ["in", "out"]


def test_writing_in_every_mode(files, top):
    with files.open(f"{top}/a", "wb") as f:
        f.write(b"one")
    with files.open(f"{top}/a", "ab") as f:
        f.write(b"two")
    with files.open(f"{top}/a", "r+b") as f:
        f.write(b"ONE")
        f.seek(0)
        assert f.read() == b"ONEtwo"
    with files.open(f"{top}/b", "w+b", stripe_unit=8192, stripe_count=1) as f:
        f.write(DATA)
        f.seek(100)
        assert f.read(10) == DATA[100:110]
    assert files.info(f"{top}/b")["stripe_unit"] == 8192 and len(files.info(f"{top}/b")["servers"]) == 1
    with pytest.raises(FileExistsError):
        files.open(f"{top}/a", "xb")
    with files.open(f"{top}/t", "wt", compression="gzip") as f:
        f.write("text")
    with files.open(f"{top}/t", "rt", compression="gzip") as f:
        assert f.read() == "text"


def test_a_transaction_is_all_or_nothing(files, top):
    files.pipe_file(f"{top}/old", b"old")
    with files.transaction:
        for name in ("a", "b", "old"):
            with files.open(f"{top}/{name}", "wb") as f:
                f.write(b"new")
        assert not files.exists(f"{top}/a") and files.cat_file(f"{top}/old") == b"old"
    assert {name: files.cat_file(f"{top}/{name}") for name in ("a", "b", "old")} == dict.fromkeys(
        ["a", "b", "old"], b"new"
    )
    with pytest.raises(RuntimeError), files.transaction:
        with files.open(f"{top}/a", "wb") as f:
            f.write(b"newer")
        raise RuntimeError
    assert files.cat_file(f"{top}/a") == b"new"
    assert files.ls(top, detail=False) == [f"{top}/a", f"{top}/b", f"{top}/old"]


def test_pandas(top, options, table):
    url = f"penstock://{top}"
    table.to_csv(f"{url}/t.csv", index=False, storage_options=options)
    table.to_parquet(f"{url}/t.parquet", storage_options=options)
    pd.testing.assert_frame_equal(pd.read_csv(f"{url}/t.csv", storage_options=options), table)
    pd.testing.assert_frame_equal(pd.read_parquet(f"{url}/t.parquet", storage_options=options), table)
    got = pd.read_parquet(f"{url}/t.parquet", columns=["x"], storage_options=options)
    pd.testing.assert_frame_equal(got, table[["x"]])


def test_the_environment_names_the_deployment(top, deployment, monkeypatch, table):
    monkeypatch.setenv("PENSTOCK_DEPLOYMENT", str(deployment))
    table.to_parquet(f"penstock://{top}/t.parquet")
    assert len(pd.read_parquet(f"penstock://{top}/t.parquet")) == 5000


def test_pyarrow(files, top, table):
    arrow = pa.Table.from_pandas(table.assign(part=table.n % 3))
    pa.dataset.write_dataset(
        arrow, f"{top}/set", format="parquet", partitioning=["part"], partitioning_flavor="hive", filesystem=files
    )
    found = pa.dataset.dataset(f"{top}/set", partitioning="hive", filesystem=files)
    assert found.count_rows(filter=pa.dataset.field("part") == 1) == len(table[table.n % 3 == 1])
    pa.parquet.write_table(arrow, f"{top}/t.parquet", filesystem=files, row_group_size=1000)
    assert pa.parquet.read_table(f"{top}/t.parquet", filesystem=files).equals(arrow)


def test_zarr(top, options):
    values = np.random.default_rng(1).random((60, 70))
    group = zarr.open_group(f"penstock://{top}/g.zarr", mode="w", storage_options=options)
    array = group.create_array("x", shape=values.shape, chunks=(16, 16), dtype=values.dtype)
    array[...] = values
    array[3, ::2] = 0
    values[3, ::2] = 0
    again = zarr.open_group(f"penstock://{top}/g.zarr", mode="r", storage_options=options)
    assert np.array_equal(again["x"][5:50, 3:65], values[5:50, 3:65]) and list(again.array_keys()) == ["x"]


def test_xarray(files, top, options):
    data = xr.Dataset(
        {"t": (("y", "x"), np.random.default_rng(2).random((40, 50)))}, coords={"x": np.arange(50), "y": np.arange(40)}
    )
    data.to_zarr(f"penstock://{top}/d.zarr", storage_options=options)
    xr.testing.assert_identical(xr.open_zarr(f"penstock://{top}/d.zarr", storage_options=options).load(), data)
    # NetCDF: written to a file object, read from one.
    with files.open(f"{top}/d.nc", "wb") as f:
        f.write(data.to_netcdf(engine="scipy"))
    with files.open(f"{top}/d.nc") as f, xr.open_dataset(f, engine="scipy") as got:
        xr.testing.assert_equal(got.load(), data)


def test_xarray_opens_netcdf4(files, top, options, tmp_path):
    """NetCDF-4 that another program wrote, by URL: lazily, a part of it, several files as one."""
    values = np.random.default_rng(3).random((6, 40, 50))
    for k, part in enumerate((values[:3], values[3:])):
        data = xr.Dataset(
            {"t": (("time", "y", "x"), part)},
            coords={"time": np.arange(3 * k, 3 * k + 3), "x": np.arange(50)},
            attrs={"title": "example"},
        )
        encoding = {"t": {"chunksizes": (1, 20, 50), "zlib": True}}
        data.to_netcdf(tmp_path / f"{k}.nc", engine="h5netcdf", encoding=encoding)
        files.put_file(tmp_path / f"{k}.nc", f"{top}/{k}.nc")
    url = f"penstock://{top}/0.nc"
    with xr.open_dataset(url, engine="h5netcdf", storage_options=options) as got:
        assert got.attrs["title"] == "example" and got.sizes == {"time": 3, "y": 40, "x": 50}
        assert np.array_equal(got.t[1, 5:30:2].values, values[1, 5:30:2])
    with fsspec.open(url, **options) as f, xr.open_dataset(f, engine="h5netcdf", chunks={"time": 1}) as got:
        assert np.allclose(got.t.mean("time").values, values[:3].mean(0))
    opened = [files.open(path) for path in files.glob(f"{top}/*.nc")]
    with xr.open_mfdataset(opened, engine="h5netcdf") as got:
        assert np.array_equal(got.t.values, values)
    for f in opened:
        f.close()


@pytest.mark.parametrize("scheduler", ["threads", "processes"])
def test_dask(top, options, table, deployment, scheduler):
    with dask.config.set(scheduler=scheduler, num_workers=2):
        url = f"penstock://{top}/set"
        dask.dataframe.from_pandas(table, npartitions=4).to_parquet(url, storage_options=options)
        got = dask.dataframe.read_parquet(url, storage_options=options)
        assert got.npartitions == 4 and got.n.sum().compute() == table.n.sum()
        values = dask.array.random.random((60, 60), chunks=(20, 30))
        values.to_zarr(f"penstock://{top}/a.zarr", storage_options=options)
        again = dask.array.from_zarr(f"penstock://{top}/a.zarr", storage_options=options)
        assert again.shape == (60, 60) and 0.4 < again.mean().compute() < 0.6


def test_dask_takes_a_view_as_it_is(deployment, top):
    fs = penstock.connect(deployment)
    with fs.open(f"{top}/a", "w+b") as f:
        view = f.array((100, 90), "f8")
        view[...] = np.arange(9000.0).reshape(100, 90)
        lazy = dask.array.from_array(view, chunks=(30, 45))
        assert lazy[::2].sum().compute(scheduler="threads") == np.arange(9000.0).reshape(100, 90)[::2].sum()
