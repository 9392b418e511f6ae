"""Sections of arrays in files: what NumPy would give, in one request per data server."""

import random

import numpy as np
import pytest

SHAPE = (12, 40, 25)
S = np.s_
SECTIONS = [
    S[...],
    S[::2, 5:30, :],
    S[3],
    S[-1, ..., 2],
    S[:, :, 7],
    S[1:11:3, ::-1, 24:2:-5],
    S[::-1, ::-1, ::-1],
    S[2:2],
    S[5, 6, 7],
    S[None, 4:6, None, ..., None],
    S[..., 3:4],
    S[11:100, -7:, :-1:2],
    S[np.int64(4), np.uint8(3) : 9],
]


@pytest.fixture(scope="module")
def field(fs):
    """A file with an array of `SHAPE` at offset 100, and that array; in both orders."""
    reference = np.arange(np.prod(SHAPE), dtype="f8").reshape(SHAPE)
    path = "/field"
    with fs.open(path, "w+b") as f:
        for order, offset in (("C", 100), ("F", 200_000)):
            f.pwrite(reference.tobytes(order), offset)
        yield f, reference
    fs.rm(path)


@pytest.mark.parametrize("section", SECTIONS, ids=str)
@pytest.mark.parametrize(("order", "offset"), [("C", 100), ("F", 200_000)])
def test_reading_gives_what_numpy_gives(field, section, order, offset):
    f, reference = field
    view = f.array(SHAPE, "f8", offset, order)
    got = view[section]
    assert got.shape == reference[section].shape and got.dtype == reference.dtype
    assert np.array_equal(got, reference[section])


@pytest.mark.parametrize("order", ["C", "F"])
def test_writing_changes_what_was_named_and_nothing_else(fs, top, order):
    chance = random.Random(5)
    reference = np.zeros(SHAPE, "i4")
    with fs.open(f"{top}/a", "w+b") as f:
        f.truncate(reference.nbytes + 50)
        view = f.array(SHAPE, "i4", 13, order)
        for k, section in enumerate(SECTIONS, 1):
            shape = reference[section].shape
            kind = chance.randrange(4)
            if kind == 0:
                values = k
            elif kind == 1:
                values = np.full((*shape[:-1], 1), k, "i2") if shape else np.int8(k)
            elif kind == 2:  # strided memory
                values = np.arange(int(np.prod(shape)) * 2, dtype="i4").reshape(*shape, 2)[..., 0] if shape else k
            else:
                values = np.asfortranarray(np.arange(np.prod(shape), dtype="i4").reshape(shape))[...]
            view[section] = values
            reference[section] = values
            assert np.array_equal(view[...], reference), section
        assert f.pread(13, 0) == bytes(13) and f.size() == reference.nbytes + 50


def count(f, call):
    before = f.stats()
    call()
    after = f.stats()
    forms = ("contiguous", "list", "structured", "shortcut")
    keys = ("operations", "requests", "bytes_read", "bytes_written")
    return {form: {key: after[form][key] - before[form][key] for key in keys} for form in forms}


def test_a_section_is_one_request_per_server(fs, top):
    """8000 pieces of 100 bytes over 4 servers: 4 requests, whichever way they go."""
    shape = (80, 100, 50)
    with fs.open(f"{top}/a", "w+b") as f:
        view = f.array(shape, "f4")
        view[...] = np.arange(np.prod(shape), dtype="f4").reshape(shape)
        memory = np.zeros((80, 100, 100), "f4")
        for call, moved in [
            (lambda: view[:, :, ::2], "bytes_read"),
            (lambda: view[:, ::-1, 1::2], "bytes_read"),
            (lambda: view.read(np.s_[:, :, ::2], memory[:, :, ::4]), "bytes_read"),
            (lambda: view.__setitem__(np.s_[:, :, ::2], 7.0), "bytes_written"),
            (lambda: view.__setitem__(np.s_[::-1, :, ::2], memory[:, ::-1, :25]), "bytes_written"),
        ]:
            counts = count(f, call)
            assert counts["structured"]["requests"] == 4 and counts["structured"]["operations"] == 1
            assert counts["structured"][moved] == 80 * 100 * 25 * 4
            assert all(counts[form]["requests"] == 0 for form in ("contiguous", "list", "shortcut"))
        assert np.array_equal(view[::-1, :, ::2], memory[:, ::-1, :25])


@pytest.mark.parametrize(
    "dtype", ["?", "i1", ">i4", "f2", "c16", "M8[ns]", "S5", "U3", [("a", "i2"), ("b", "f8", (3,))]]
)
def test_every_dtype_with_fixed_bytes(fs, top, dtype):
    dtype = np.dtype(dtype)
    plain = np.frombuffer(random.Random(1).randbytes(60 * dtype.itemsize), "u1") % 2
    values = plain.view(dtype).reshape(6, 10)
    with fs.open(f"{top}/a", "w+b") as f:
        view = f.array((6, 10), dtype, offset=3)
        view[...] = values
        assert view[::-2, 1::3].tobytes() == values[::-2, 1::3].tobytes()
        assert np.asarray(view).tobytes() == values.tobytes() == f.pread(1 << 20, 3)
        scalar = f.array((), dtype, offset=3)
        assert np.asarray(scalar[()]).tobytes() == values[0, 0].tobytes()


def test_what_cannot_be_meant(fs, top):
    with fs.open(f"{top}/a", "w+b") as f:
        view = f.array((4, 5), "f8")
        assert (view.ndim, view.size, view.nbytes, len(view), view.strides) == (2, 20, 160, 4, (40, 8))
        with pytest.raises(EOFError, match="ends after 0 of the 160 bytes"):
            view[...]
        view[...] = 1
        for index, words in [
            (S[[1, 2]], "use integers, slices"),
            (S[4, 0], "outside dimension 0"),
            (S[0, 0, 0], "3 indices"),
            (S[..., ...], "one"),
            (S[True], "use integers, slices"),
            (S[1.5], "use integers, slices"),
        ]:
            with pytest.raises(IndexError, match=words):
                view[index]
        for arguments, kind in [
            (((4, -1), "f8"), ValueError),
            ((4, "O"), TypeError),
            ((4, "f8", -1), ValueError),
            ((4, "f8", 0, "K"), ValueError),
            ((1 << 61, "f8"), OverflowError),
        ]:
            with pytest.raises(kind):
                f.array(*arguments)
        with pytest.raises(ValueError, match="broadcast"):
            view[0] = np.zeros(4)
        with pytest.raises(ValueError, match="section"):
            view.read(S[0], np.zeros(5, "f4"))
        with pytest.raises(BufferError):
            view.read(S[0], np.broadcast_to(np.float64(1), 5))
    with fs.open(f"{top}/a") as f, pytest.raises(OSError, match="writing"):
        f.array((4, 5), "f8")[0] = 1
