"""posenc.save, posenc.open and posenc.verify; test_files.py and test_formats.py test the formats and damaged files."""

import json
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, names, python
from posenc import Encoding

ENCODING = Encoding(6, base=321.5, layout="halves", position_offset=0.5)
POSITIONS = range(50, -50, -3)


@pytest.fixture(params=["npy", "safetensors", "zarr"])
def path(request, tmp_path):
    if request.param != "npy":
        pytest.importorskip(request.param)
    return tmp_path / f"pe.{request.param}"


def read(path, dtype):
    """Return the values that the library of the format reads."""
    if path.suffix == ".npy":
        values = np.load(path)
    elif path.suffix == ".zarr":
        import zarr
        values = zarr.open_array(path, mode="r")[:]
    else:
        from safetensors.numpy import load_file
        values = load_file(path)["pe"]
    return values.view(ml_dtypes.bfloat16) if dtype == "bfloat16" else values


def size_of(path):
    return path.stat().st_size if path.is_file() else sum(chunk.stat().st_size for chunk in path.glob("c/*/*"))


def flip(path, row, column):
    """Flip the lowest bit of a float32 value of a table with the columns of ENCODING."""
    data = path / "c/0/0" if path.is_dir() else path
    content = bytearray(data.read_bytes())
    content[len(content) - 4 * (ENCODING.d_model * (len(POSITIONS) - row) - column)] ^= 1
    data.write_bytes(content)


# ---- save and open --------------------------------------------------------------------------------------------------


def test_the_library_of_the_format_reads_the_table(path, dtype):
    assert posenc.save(path, POSITIONS, ENCODING, dtype=dtype) == size_of(path)
    assert_same_bits(read(path, dtype), posenc.encode(POSITIONS, ENCODING, dtype=dtype))
    assert names(path.parent) == [path.name]


def test_open_returns_the_values_and_the_specification(path, dtype):
    posenc.save(str(path), POSITIONS, ENCODING, dtype=dtype)
    file = posenc.open(os.fsencode(path))
    described = (None, None) if path.suffix == ".npy" else (ENCODING, POSITIONS)
    assert (file.encoding, file.positions, file.dtype) == (*described, dtype)
    values = file.values[:]
    if path.suffix == ".zarr" and dtype == "bfloat16":
        assert values.dtype == np.uint16
        values = values.view(ml_dtypes.bfloat16)
    assert_same_bits(values, posenc.encode(POSITIONS, ENCODING, dtype=dtype))
    with pytest.raises(ValueError, match=r"read-only|read only"):
        file.values[0] = 0


def test_chunks_and_keys(tmp_path):
    pytest.importorskip("zarr")
    pytest.importorskip("safetensors")
    posenc.save(tmp_path / "pe.zarr", 100, ENCODING, chunk_rows=np.int64(7))
    assert posenc.open(tmp_path / "pe.zarr").values.chunks == (7, 6)
    posenc.save(tmp_path / "pe.safetensors", 100, ENCODING, key="embed.weight")
    assert b'"embed.weight"' in (tmp_path / "pe.safetensors").read_bytes()
    for key in (None, "embed.weight"):
        assert posenc.open(tmp_path / "pe.safetensors", key=key).values.shape == (100, 6)
    with pytest.raises(ValueError, match=r"no tensor 'pe', expected key to be one of: 'embed.weight'"):
        posenc.open(tmp_path / "pe.safetensors", key="pe")


@pytest.mark.skipif(sys.platform != "linux", reason="requires sparse files")
def test_values_are_mapped(tmp_path):
    """The table has 1 TiB, too much to read into memory; everything after the header is a hole in a sparse file."""
    posenc.save(tmp_path / "pe.npy", 0, Encoding(4), dtype="float64")
    content = (tmp_path / "pe.npy").read_bytes().replace(b"(0, 4), }" + b" " * 12, b"(34359738368, 4), }" + b"  ")
    (tmp_path / "pe.npy").write_bytes(content)
    os.truncate(tmp_path / "pe.npy", 128 + 2**40)
    values = posenc.open(tmp_path / "pe.npy").values
    assert values.shape == (2**35, 4) and not values[-1].any() and not values.flags.writeable


def test_mapped_values_outlive_the_replacement_of_their_file(tmp_path):
    for n in (10, 20):
        posenc.save(tmp_path / "pe.npy", n, Encoding(4, scale=n), overwrite=n == 20)
        if n == 10:
            old = posenc.open(tmp_path / "pe.npy").values
    assert_same_bits(old, posenc.encode(10, Encoding(4, scale=10)))
    assert_same_bits(posenc.open(tmp_path / "pe.npy").values, posenc.encode(20, Encoding(4, scale=20)))


@pytest.mark.parametrize("rows, d_model", [(0, 8), (5, 0), (0, 0), (1, 1)])
def test_tables_of_every_shape_are_opened(path, rows, d_model):
    posenc.save(path, rows, Encoding(d_model))
    assert posenc.open(path).values.shape == (rows, d_model)
    assert posenc.verify(path) == rows


@pytest.mark.parametrize("array", [
    posenc.encode(10, 4, dtype="float64").astype(">f8"),
    posenc.encode(10, 4, dtype="bfloat16").view(np.uint16).astype(">u2"),       # remains uint16
    posenc.encode(10, 4)[:, None],
], ids=["float64", "bfloat16", "three axes"])
def test_files_of_numpy_are_opened(tmp_path, array):
    np.save(tmp_path / "pe.npy", array)
    values = posenc.open(tmp_path / "pe.npy").values
    assert values.dtype == array.dtype and (values == array.reshape(10, 4)).all()


def test_ml_dtypes_files_of_numpy_are_opened(tmp_path):
    """NumPy stores ml_dtypes.bfloat16 as V2."""
    expected = posenc.encode(10, 4, dtype="bfloat16")
    np.save(tmp_path / "pe.npy", expected)
    assert_same_bits(posenc.open(tmp_path / "pe.npy").values, expected)


def test_unaligned_values_are_opened(tmp_path):
    library = pytest.importorskip("safetensors.numpy")
    library.save_file({"a": np.zeros(3, np.int8), "pe": posenc.encode(10, 4)}, tmp_path / "pe.safetensors")
    content = (tmp_path / "pe.safetensors").read_bytes()            # the library sorts tensors by alignment: swap them
    size = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + size])
    header["a"]["data_offsets"], header["pe"]["data_offsets"] = [0, 3], [3, 163]
    text = json.dumps(header).encode()
    data = bytes(3) + posenc.encode(10, 4).tobytes()
    (tmp_path / "pe.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data)
    assert_same_bits(posenc.open(tmp_path / "pe.safetensors").values, posenc.encode(10, 4))


def test_the_repr_of_a_file_is_short(path):
    posenc.save(path, POSITIONS, ENCODING)
    kind = "Array" if path.suffix == ".zarr" else "ndarray"
    assert repr(posenc.open(path)).startswith(f"File(values=<{kind} of shape (34, 6) and dtype float32>, encoding=")


def test_a_folder_without_a_suffix_is_opened(tmp_path):
    posenc_zarr = pytest.importorskip("posenc.zarr")
    posenc_zarr.create(tmp_path / "table", 10, ENCODING)
    posenc_zarr.write(tmp_path / "table", 0, 1)
    posenc_zarr.finish(tmp_path / "table")
    assert posenc.verify(tmp_path / "table") == 10


def test_verify_takes_the_arguments_of_save_in_the_same_order(path):
    posenc.save(path, POSITIONS, ENCODING)
    assert posenc.verify(path, POSITIONS, ENCODING) == posenc.verify(path, encoding=ENCODING, positions=POSITIONS) == 34
    with pytest.raises(ValueError, match="position 50, column 0"):
        posenc.verify(path, POSITIONS, ENCODING.replace(base=5.0, position_offset=0.0))


def test_bfloat16_files_are_opened_only_with_ml_dtypes(tmp_path):
    """Otherwise, the same program would compute with integers in another environment."""
    posenc.save(tmp_path / "pe.safetensors", 10, Encoding(4), dtype="bfloat16")
    code = """
        import sys
        sys.modules["ml_dtypes"] = None
        import posenc
        print(posenc.verify(sys.argv[1]))
        try:
            posenc.open(sys.argv[1])
        except ImportError as error:
            print(error)
        """
    done = subprocess.run(python(code, tmp_path / "pe.safetensors"), capture_output=True, text=True)
    message = r"10\n.*pe\.safetensors: dtype bfloat16 needs ml_dtypes; .*posenc\[bfloat16\].*\n"
    assert re.fullmatch(message, done.stdout), done.stderr


# ---- specifications in files ----------------------------------------------------------------------------------------

# verbatim metadata of files written before Encoding.to_dict existed: (encoding, positions)
EARLIER = {
    (
        '{"version": "0.1.0", "positions": {"start": 100, "stop": 40, "step": -20}, "d_model": 8, "dtype": "float32", '
        '"convention": {"base": 10000.0, "frequency_scale": 1.0, "position_offset": 0.0, "position_scale": 1.0, '
        '"padding_idx": null, "scale": 1.0, "odd": "error", "spacing": "endpoint", "shift": null, "exponents": "pair", '
        '"frequencies": null, "layout": "halves", "order": "sin"}}'
    ): (Encoding(8, odd="error", spacing="endpoint", layout="halves"), range(100, 40, -20)),
    (
        '{"version": "0.1.0", "positions": {"start": -9, "stop": 4, "step": 1}, "d_model": 3, "dtype": "bfloat16", '
        '"convention": {"base": 10000.0, "frequency_scale": 1.0, "position_offset": 2.5, "position_scale": 1.0, '
        '"padding_idx": -7, "scale": 1.0, "odd": "truncate", "spacing": "paper", "shift": null, "exponents": "column", '
        '"frequencies": [0.1, -2.0, 1e-300], "layout": "interleaved", "order": "cos"}}'
    ): (
        Encoding(3, frequencies=(0.1, -2.0, 1e-300), exponents="column", order="cos", padding_idx=-7, position_offset=2.5),
        range(-9, 4),
    ),
}


@pytest.mark.parametrize("text, expected", EARLIER.items(), ids=["preset", "frequencies"])
def test_earlier_files_are_read(tmp_path, text, expected):
    document, (encoding, positions) = json.loads(text), expected
    assert Encoding.from_dict(document) == encoding
    values = posenc.encode(positions, encoding, dtype=document["dtype"])
    safetensors = pytest.importorskip("safetensors.numpy")
    zarr = pytest.importorskip("zarr")
    safetensors.save_file({"pe": values}, tmp_path / "pe.safetensors", {"posenc": text})
    bits = values.view(np.uint16) if document["dtype"] == "bfloat16" else values
    zarr.create_array(tmp_path / "pe.zarr", data=bits, attributes={"posenc": document, "complete": True})
    for name in names(tmp_path):
        file = posenc.open(tmp_path / name)
        assert (file.encoding, file.positions, file.dtype) == (encoding, positions, document["dtype"])
        assert posenc.verify(tmp_path / name) == len(positions)


def test_the_specification_is_the_dict_of_the_encoding(tmp_path):
    safetensors = pytest.importorskip("safetensors")
    posenc.save(tmp_path / "pe.safetensors", POSITIONS, ENCODING, dtype="bfloat16")
    with safetensors.safe_open(tmp_path / "pe.safetensors", "np") as file:
        document = json.loads(file.metadata()["posenc"])
    positions = {"start": 50, "stop": -50, "step": -3}
    assert document == ENCODING.to_dict() | {"dtype": "bfloat16", "positions": positions}


# ---- verify ---------------------------------------------------------------------------------------------------------


def test_verify_compares_every_bit(path):
    posenc.save(path, POSITIONS, ENCODING)
    expected = {"encoding": ENCODING, "positions": POSITIONS}
    for samples, count in ((1000, 34), (None, 34), (5, 5)):
        assert posenc.verify(path, samples=samples, **expected) == count
    row, column = 7, 3
    flip(path, row, column)
    position, wrong = POSITIONS[row], posenc.open(path).values[row, column]
    right = posenc.encode([position], ENCODING)[0, column]
    message = f"{path}: position {position}, column {column}: found {wrong!s} ({wrong.view('u4'):#x}), expected {right!s} ("
    with pytest.raises(ValueError, match=re.escape(message)):
        posenc.verify(path, **expected)
    assert posenc.verify(path, samples=1, **expected) == 1          # only the last row


def test_verify_uses_the_specification_unless_another_is_given(path):
    posenc.save(path, POSITIONS, ENCODING)
    if path.suffix == ".npy":
        with pytest.raises(ValueError, match=r"position 0, column 0: found .*, expected 0.0 \(0x0\)"):
            posenc.verify(path)
    else:
        assert posenc.verify(path) == 34
    with pytest.raises(ValueError, match="position 50, column 0: found"):
        posenc.verify(path, encoding=ENCODING.replace(scale=2), positions=POSITIONS)
    with pytest.raises(ValueError, match="position 0, column 0: found"):
        posenc.verify(path, encoding=ENCODING, positions=34)
    posenc.save(path, 34, Encoding(6), overwrite=True)
    assert posenc.verify(path) == posenc.verify(path, encoding=Encoding(6), positions=34) == 34


def test_progress_counts_every_byte(path):
    for function in (posenc.save, posenc.verify):
        steps = []
        arguments = (5000, Encoding(512)) if function is posenc.save else ()
        function(path, *arguments, progress=steps.append)
        assert sum(steps) == 5000 * 512 * 4


# ---- errors ---------------------------------------------------------------------------------------------------------

def test_existing_files_are_kept_unless_overwrite_is_true(path):
    for n in (3, 4):
        posenc.save(path, n, ENCODING, overwrite=n == 4)
        with pytest.raises(FileExistsError, match="overwrite=True replaces it") as refused:
            posenc.save(path, 9, ENCODING)
        assert refused.value.filename == str(path) and posenc.open(path).values.shape == (n, 6)


def test_absent_files_are_reported(path):
    for function in (posenc.open, posenc.verify):
        with pytest.raises(FileNotFoundError) as absent:
            function(path)
        assert absent.value.filename == str(path)


def test_a_missing_package_is_reported(tmp_path):
    code = """
        import sys
        sys.modules["zarr"] = None
        import posenc
        for call in (lambda: posenc.save("pe.zarr", 3, posenc.Encoding(4)), lambda: posenc.open("pe.zarr")):
            try:
                call()
            except ImportError as error:
                print(error)
        """
    done = subprocess.run(python(code), capture_output=True, text=True, cwd=tmp_path)
    message = "posenc.zarr needs zarr; to install it: pip install 'posenc[zarr]'\n"
    assert (done.stdout, done.stderr) == (2 * message, "")


def test_urls(dtype):
    """fsspec's ``memory://`` stands for any storage; its option has no effect."""
    pytest.importorskip("zarr")
    url, options = f"memory://{dtype}/pe.zarr", {"use_listings_cache": False}
    encoding = posenc.Encoding(6, base=50.0)
    posenc.save(url, range(3, 40), encoding, dtype=dtype, chunk_rows=10, storage_options=options)
    file = posenc.open(url, storage_options=options)
    assert (file.encoding, file.positions, file.dtype) == (encoding, range(3, 40), dtype)
    assert posenc.verify(url, storage_options=options) == 37
    with pytest.raises(FileExistsError, match="overwrite=True"):
        posenc.save(url, 5, encoding)
    with pytest.raises(ValueError, match=r"storage_options is \{'use_listings_cache': False\}, expected None"):
        posenc.save("pe.npy", 5, encoding, storage_options=options)
