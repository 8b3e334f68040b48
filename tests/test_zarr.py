"""Tables that posenc.save writes with the library zarr, in folders that hold nothing else."""

import os
import re

import ml_dtypes
import numpy as np
import pytest
import zarr

import posenc
from conftest import ENCODING, assert_same_bits, names

POSIX = pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
N, CHUNK = 100, 7       # 15 chunks, the last of 2 rows


def test_the_array_of_every_dtype(tmp_path, dtype):
    store, positions = tmp_path / "pe.zarr", range(2**62, 2**62 - 300, -3)
    expected = ENCODING.encode(positions, dtype=dtype)
    assert posenc.save(store, positions, ENCODING, dtype=dtype, chunk_rows=CHUNK) == expected.nbytes
    array = zarr.open_array(store, mode="r")
    assert (array.chunks, array.shards, array.metadata.zarr_format) == ((CHUNK, 6), None, 3)
    assert array.metadata.dimension_names == ("position", "column")
    assert np.isnan(np.asarray(array.fill_value).view(ml_dtypes.bfloat16 if dtype == "bfloat16" else array.dtype).astype(float))
    assert_same_bits(array[:].view(expected.dtype), expected)


def test_a_deleted_chunk_is_found(tmp_path, dtype):
    posenc.save(tmp_path / "pe.zarr", N, ENCODING, dtype=dtype, chunk_rows=CHUNK)
    (tmp_path / "pe.zarr/c/3/0").unlink()
    with pytest.raises(ValueError, match=r"pe.zarr: position 21, column 0: found nan"):
        posenc.verify(tmp_path / "pe.zarr")


@pytest.mark.parametrize("shard_rows, shards", [(7, 15), (21, 5), (700, 1)])
def test_shards(tmp_path, shard_rows, shards):
    posenc.save(tmp_path / "pe.zarr", N, ENCODING, chunk_rows=CHUNK, shard_rows=shard_rows)
    array = posenc.open(tmp_path / "pe.zarr").values
    assert (array.chunks, array.shards) == ((CHUNK, 6), (shard_rows, 6))
    assert len(names(tmp_path / "pe.zarr/c")) == shards and posenc.verify(tmp_path / "pe.zarr") == N


@pytest.mark.parametrize("keywords", [{"shard_rows": 10}, {"shard_rows": 10, "chunk_rows": 4}])
def test_shards_are_whole_chunks(tmp_path, keywords):
    with pytest.raises(ValueError, match=r"shard_rows is 10, .* multiple of chunk_rows, which is (None|4)"):
        posenc.save(tmp_path / "pe.zarr", N, ENCODING, **keywords)
    assert names(tmp_path) == []


def test_the_default_chunks_are_nearly_equal_and_at_most_16_mib(tmp_path):
    posenc.save(tmp_path / "pe.zarr", 150_000, posenc.Encoding(64))
    assert zarr.open_array(tmp_path / "pe.zarr", mode="r").chunks == (50_000, 64)


@pytest.mark.parametrize("rows", [0, 30])
def test_an_array_that_is_written_in_part_has_no_specification(tmp_path, rows):
    def fail(size):
        raise KeyboardInterrupt

    store = tmp_path / "pe.zarr"
    if rows:
        posenc.save(store, rows, ENCODING)
    with pytest.raises(KeyboardInterrupt):
        posenc.save(store, N, ENCODING, chunk_rows=CHUNK, overwrite=True, progress=fail)
    assert posenc.open(store).encoding is None and np.isnan(posenc.open(store).values[-1]).all()
    with pytest.raises(ValueError, match=r"expected .* with Encoding\("):
        posenc.verify(store)
    with pytest.raises(FileExistsError, match="overwrite=True replaces it"):
        posenc.save(store, N, ENCODING)
    posenc.save(store, N, ENCODING, overwrite=True)
    assert posenc.verify(store) == N


def array_and_file(path):
    posenc.save(path, 3, ENCODING)
    (path / "thesis.tex").write_text("precious")


# how to make a path, fragments of the messages of `verify` and `save`, or None if the call succeeds
OTHER_DATA = {
    "file": (lambda path: path.write_text("precious"), "No Zarr array", "No Zarr array"),
    "folder": (lambda path: (path / "c").mkdir(parents=True), "No Zarr array", "No Zarr array"),
    "fifo": (os.mkfifo, "No Zarr array", "No Zarr array"),
    "group": (lambda path: zarr.create_group(path).create_array("x", shape=(1,), dtype="f4"),
              *["not a Zarr array"] * 2),
    "array and file": (array_and_file, None,
                       "File exists; overwrite=True replaces it|the folder also has thesis.tex"),
    "absent": (lambda path: None, "No Zarr array", None),
    "integers": (lambda path: zarr.create_array(path, shape=(3, 3), dtype="i8"), "dtype int64", None),
    "three axes": (lambda path: zarr.create_array(path, shape=(3, 3, 3), dtype="f4"), r"shape \(3, 3, 3\)",
                   None),
    "too wide": (lambda path: zarr.create_array(path, shape=(3, 2**25), chunks=(3, 9), dtype="f4"),
                 "16777216 columns", None),
}


@POSIX
@pytest.mark.parametrize("make, refused, protected", OTHER_DATA.values(), ids=OTHER_DATA)
def test_other_data_are_refused_and_never_overwritten(tmp_path, call, make, refused, protected):
    path = tmp_path / "pe.zarr"
    make(path)
    if refused:
        code, out, error = call("verify", path)
        assert (code, out) == (1, "") and re.search(refused, error) and str(path) in error
    before = sorted(tmp_path.rglob("*"))
    for overwrite in (False, True) if protected else ():
        with pytest.raises((OSError, ValueError), match=protected):
            posenc.save(path, N, ENCODING, overwrite=overwrite)
        assert call("generate", N, 6, "-o", path, *["--force"] * overwrite)[0] == 1
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize("path", ["s3://bucket/pe.zarr", "memory://pe.zarr", b"file:///a/pe.zarr"])
def test_urls_are_refused(path):
    for call in (lambda p: posenc.save(p, N, ENCODING), posenc.open, posenc.verify):
        with pytest.raises(ValueError, match=r"path is '\w+://.*expected a local file; posenc\.dask\.table"):
            call(path)


def test_blocks_of_a_chunk_are_compared(tmp_path, monkeypatch):
    """The expected values of a chunk are computed in blocks of CHUNK_BYTES."""
    posenc.save(tmp_path / "pe.zarr", N, ENCODING, chunk_rows=50)
    monkeypatch.setattr("posenc._encoding.encoding.CHUNK_BYTES", 24 * 7)
    assert posenc.verify(tmp_path / "pe.zarr") == N
    array = zarr.open_array(tmp_path / "pe.zarr", mode="r+")
    for row in (0, 6, 7, 49, 50, 99):
        array[row, 3] = 5
        with pytest.raises(ValueError, match=f"position {row}, column 3: found 5.0"):
            posenc.verify(tmp_path / "pe.zarr")
        array[row] = ENCODING.encode([row])[0]
