"""posenc.verify finds every bit that differs, and every chunk that is truncated."""

import os
import random
import re

import numpy as np
import pytest

import posenc
from conftest import ENCODING, POSITIONS
from posenc import Encoding

CHUNK = 10


@pytest.fixture
def path(path):
    """Return a file with the table of ENCODING and POSITIONS."""
    posenc.save(path, POSITIONS, ENCODING, chunk_rows=CHUNK if path.suffix == ".zarr" else None)
    return path


def flip(path, row, column, bit):
    """Flip a bit of a float32 value of the table."""
    if path.is_dir():
        data, offset = path / f"c/{row // CHUNK}/0", 4 * (row % CHUNK * 6 + column)
    else:
        data, offset = path, path.stat().st_size - 4 * (6 * (len(POSITIONS) - row) - column)
    content = bytearray(data.read_bytes())
    content[offset + bit // 8] ^= 1 << bit % 8
    data.write_bytes(content)


def test_every_flipped_bit_is_found(path, monkeypatch):
    monkeypatch.setattr("posenc._encoding.encoding.CHUNK_BYTES", 100)         # 4 rows
    expected, choice = {"encoding": ENCODING, "positions": POSITIONS}, random.Random(0)
    assert posenc.verify(path, **expected) == posenc.verify(path, POSITIONS, ENCODING, samples=1000) == 34
    for _ in range(30):
        place = row, column, bit = choice.randrange(34), choice.randrange(6), choice.randrange(32)
        flip(path, *place)
        right = posenc.encode([POSITIONS[row]], ENCODING)[0, column]
        value = (right.view("u4") ^ np.uint32(1 << bit)).view("f4")
        message = f"position {POSITIONS[row]}, column {column}: found {value!s} ({value.view('u4'):#x}), "
        with pytest.raises(ValueError, match=re.escape(f"{path}: {message}") if np.isfinite(value) else ""):
            posenc.verify(path, **expected)
        assert row == 33 or posenc.verify(path, samples=1, **expected) == 1          # only the last row
        flip(path, *place)
    assert posenc.verify(path, samples=5, **expected) == 5


def test_the_specification_is_used_unless_another_is_given(path):
    if path.suffix == ".npy":
        with pytest.raises(ValueError, match=r"position 0, column 0: found .* with Encoding\(6\)"):
            posenc.verify(path)
    else:
        assert posenc.verify(path) == 34
    for keywords, position in (({"encoding": ENCODING.replace(scale=2), "positions": POSITIONS}, 50),
                               ({"encoding": ENCODING, "positions": 34}, 0)):
        with pytest.raises(ValueError, match=f"position {position}, column 0: found"):
            posenc.verify(path, **keywords)
    posenc.save(path, 34, Encoding(6), overwrite=True)
    assert posenc.verify(path) == posenc.verify(path, encoding=Encoding(6), positions=34) == 34


@pytest.mark.parametrize("suffix", ["safetensors", "zarr"])
def test_options_override_conflicting_options_except_frequencies(call, tmp_path, suffix):
    path, frequencies = tmp_path / f"pe.{suffix}", "1,0.5,0.25,0.125"
    assert call("generate", 50, 8, "-o", path, "--base", 7, "--spacing", "endpoint")[0] == 0
    assert call("verify", path, "--frequencies", frequencies)[0] == call("verify", path, "--shift", 2)[0] == 1
    assert call("verify", path, "--shift", 1)[0] == 0           # the same as spacing="endpoint"
    assert call("verify", path, "--preset", "vaswani")[0] == 1
    assert call("generate", 50, 8, "-o", path, "--frequencies", frequencies, "--force")[0] == 0
    code, _, error = call("verify", path, "--base", 7)
    assert code == 1 and "frequencies and base are both given" in error


def test_one_of_several_tensors(call, tmp_path):
    library, path = pytest.importorskip("safetensors.numpy"), tmp_path / "model.safetensors"
    library.save_file({"a": np.zeros((2, 3), np.int8), "b": posenc.encode(50, 8), "c": posenc.encode(50, 8, base=5)}, path)
    for options in (["--key", "b"], ["--key", "c", "--base", 5]):
        assert call("verify", path, *options)[0] == 0
    for options, message in (([], "no tensor 'pe', expected key to be one of ['a', 'b', 'c']"),
                             (["--key", "a"], "dtype I8"),
                             (["--key", "c"], ") with Encoding(")):
        code, out, error = call("verify", path, *options)
        assert (code, out) == (1, "") and message in error and error.startswith(f"posenc: error: {path}")


# ---- stores of the zarr library ----------------------------------------------------------------------------


def other_store(path, **keywords):
    import zarr
    array = zarr.create_array(path, shape=(100, 10), dtype="f8", **{"chunks": (7, 10)} | keywords)
    array[:] = posenc.encode(100, 10, dtype="float64")
    return array


@pytest.mark.parametrize("keywords",
                         [{"chunks": (7, 3), "zarr_format": 2}, {"shards": (60, 10), "chunks": (20, 5)}])
def test_stores_of_the_zarr_library(tmp_path, keywords):
    array = other_store(tmp_path / "pe.zarr", **keywords)
    assert posenc.verify(tmp_path / "pe.zarr", encoding=Encoding(10)) == 100
    array[50, 5] = 0
    with pytest.raises(ValueError, match="position 50, column 5"):
        posenc.verify(tmp_path / "pe.zarr", encoding=Encoding(10))
    with pytest.raises(ValueError, match=r"expected .* with Encoding\("):
        posenc.verify(tmp_path / "pe.zarr")


@pytest.mark.parametrize("keywords, key", [
    ({"compressors": None}, "c/8/0"), ({}, "c/8/0"), ({"zarr_format": 2}, "8.0"),
    ({"chunks": (5, 10), "shards": (60, 10)}, "c/1/0"),
])
@pytest.mark.parametrize("size", [0, 0.5])
def test_chunks_that_zarr_refuses_are_refused(tmp_path, keywords, key, size):
    """Zarr refuses a truncated chunk when it reads the chunk, and so does posenc."""
    path = tmp_path / "pe.zarr"
    array = other_store(path, **keywords)
    os.truncate(path / key, int(size * (path / key).stat().st_size))
    with pytest.raises(Exception) as refused:           # each codec raises a different exception
        array[:]
    assert not isinstance(refused.value, AssertionError)
    with pytest.raises((OSError, ValueError), match=re.escape(str(path))):
        posenc.verify(path)
