"""`penstock device`: models and directories characterised, traces replayed, figures; NAND models under real servers."""

import shutil
import time

import pytest
from conftest import penstock

SMALL = "nand,channels=2,ways=1,blocks=32,pages=32"
QUICK = ["--sizes", "8KiB,64KiB", "--depths", "1,8", "--windows", 5, "-q"]


def test_a_model_is_characterised_by_table_json_and_plots(tmp_path):
    found = penstock("device", "characterise", SMALL, *QUICK, "--json", "--plot", tmp_path).json()[0]
    parts = {row["part"] for row in found["rows"]}
    assert parts == {"grid", "over time", "sequential read", "idle", "TRIM", "mixed"}
    assert all(row["requests"] > 0 and row["p50_ns"] <= row["p99_ns"] <= row["max_ns"] for row in found["rows"])
    assert found["steady"] is True
    assert set(found["nand"]["page_time_ns"]) == {"array", "bus", "queue", "collection", "map"}
    assert found["nand"]["write_amplification"] > 2
    names = {"latency.svg", "throughput.svg", "over-time.svg", "over-time-p99.svg", "mixed.svg"}
    assert {p.name for p in tmp_path.iterdir()} == names
    assert all(p.read_text().startswith("<svg") for p in tmp_path.iterdir())
    again = penstock("device", "characterise", SMALL, *QUICK, "--json").json()[0]
    assert again == found
    text = penstock("device", "characterise", SMALL, *QUICK).out
    assert "where the time of pages went" in text and "published" in text


def test_a_fresh_device_loses_throughput_and_trim_brings_some_back():
    fresh = penstock("device", "characterise", SMALL + ",state=fresh,buffer=0", *QUICK, "--json").json()[0]
    changes = {f["what"]: f["change"] for f in fresh["findings"]}
    assert changes["random writes with TRIM"] > 0.1, changes
    disk = penstock("device", "characterise", "hdd", "--space", "1GiB", *QUICK, "--json").json()[0]
    assert disk["nand"] is None
    changes = {f["what"]: f["change"] for f in disk["findings"]}
    assert changes["random reads against sequential reads"] < -0.5, changes


def test_a_directory_is_characterised_within_time_and_space(tmp_path):
    begun = time.monotonic()
    options = ["--time", 5, "--space", "16MiB", "--buffered", *QUICK, "--json"]
    found = penstock("device", "characterise", f"{tmp_path}/", *options).json()[0]
    assert time.monotonic() - begun < 60
    assert found["span_bytes"] == 16 << 20
    assert {row["part"] for row in found["rows"]} >= {"grid", "over time", "idle", "mixed"}
    assert list(tmp_path.iterdir()) == []


def test_no_disk_is_filled_and_nothing_odd_is_measured(tmp_path):
    free = shutil.disk_usage(tmp_path).free
    for options, word in [
        (["--space", free], "leave too little"),
        (["--space", "64KiB"], "--space"),
        (["--sizes", "1000"], "multiples"),
        (["--sizes", "4TiB"], "multiples"),
        (["--depths", "0"], "depth"),
        (["--depths", "100000"], "depth"),
        (["--windows", "0"], "windows"),
        (["--time", "0"], "seconds"),
    ]:
        done = penstock("device", "characterise", f"{tmp_path}/", "-q", *options, check=False)
        assert done.code == 1 and word in done.err, (options, done.err)
    done = penstock("device", "characterise", tmp_path / "absent", check=False)
    assert done.code == 1 and "absent" in done.err


@pytest.mark.parametrize(
    ("model", "word"),
    [
        ("floppy", "nand-tlc"),
        ("nand,channels=0", "channels=0"),
        ("nand,page=3000", "power of two"),
        ("nand,blocks=65536,pages=4096", "more than a modelled device may have"),
        ("nand,blocks=8,spare=0.001", "collection could not go on"),
        ("nand,allocate=CCDP", "CWDP"),
        ("nand,ftl=log,logs=999", "log blocks do not fit"),
        ("rram,parallel=65", "parallel=65"),
        ("nand,colour=red", "allocate"),
    ],
)
def test_devices_that_cannot_be_are_refused_everywhere(short_dir, model, word):
    for command in [
        ["device", "characterise", model, "-q"],
        ["device", "replay", model, "/dev/null"],
        ["profile", f"model:{model}", "-q"],
        ["up", short_dir / "fs", "--device", model],
    ]:
        done = penstock(*command, check=False)
        assert done.code != 0 and word in done.err, (command, done.err)


def test_traces_are_replayed_and_those_cut_short_refused(tmp_path):
    trace = tmp_path / "trace"
    lines = [f"{i * 50_000} 0 {i * 7919 % 100_000 * 16} 16 {i % 2}\n" for i in range(2000)]
    trace.write_text("".join(lines))
    found = penstock("device", "replay", "nand", trace, "--json").json()[0]
    assert found["requests"] == 2000 and found["mean_ns"] > 5_000
    assert penstock("device", "replay", "hdd", trace, "--json").json()[0]["page_time_ns"] is None
    assert "write amplification" in penstock("device", "replay", "nand", trace).out
    trace.write_text("".join(lines)[:-3])
    done = penstock("device", "replay", "nand", trace, check=False)
    assert done.code == 1 and "line 2000" in done.err and "cut short" in done.err, done.err
    trace.write_text("1 2 3\n")
    done = penstock("device", "replay", "nand", trace, check=False)
    assert done.code == 1 and "line 1: 3 fields" in done.err, done.err


def test_write_amplification_is_that_of_the_closed_form():
    rows = penstock("device", "figure", "amplification", "--json", "-q").json()
    large = [r for r in rows if r["pages_per_block"] >= 512]
    assert {r["spare"] for r in large} == {0.07, 0.15, 0.28}
    assert all(abs(r["simulated"] / r["formula"] - 1) < 0.02 for r in large), rows


def test_nand_is_a_device_of_profile_and_simulator(tmp_path):
    profile = penstock("profile", "model:nand", "-q", "--json", "--file-size", "64MiB").json()[0]
    assert profile["ratio"]["read"]["mean"] >= 1
    scenario = tmp_path / "nand.toml"
    scenario.write_text(
        """
name = "flash"
[cluster]
servers = 2
[device]
model = "nand"
[[program]]
benchmark = "mpi-io-test"
ranks = 4
op = "write"
parameters = { segment = "64KiB", file_size = "16MiB" }
"""
    )
    outcome = penstock("sim", scenario, "--json").json()[0]
    assert outcome["cases"][0]["report"]["bytes"] == 16 << 20, outcome


@pytest.mark.alone
def test_a_file_lives_on_modelled_flash(short_dir):
    source = short_dir / "source"
    source.write_bytes(bytes(range(256)) * 4096)
    fs = short_dir / "fs"
    penstock("up", fs, "--device", "nand,scale=10")
    try:
        penstock("cp", source, "penstock:/f", "-d", fs)
        penstock("cp", "penstock:/f", short_dir / "back", "-d", fs)
        assert (short_dir / "back").read_bytes() == source.read_bytes()
        penstock("rm", "penstock:/f", "-d", fs)
    finally:
        penstock("down", fs)
