"""posenc.open: the values and the specification of a file; damaged files of every format are refused."""

import json
import os
import random
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import ENCODING, POSITIONS, assert_same_bits, python
from posenc import Encoding
from posenc._files.functions import opened_table
from posenc._files.table import TableSpecification, itemsize, npy_header

# ---- values ------------------------------------------------------------------------------------------------


def test_the_values_and_the_specification(path, dtype):
    posenc.save(str(path), POSITIONS, ENCODING, dtype=dtype)
    file = posenc.open(os.fsencode(path))
    specification = (None, None) if path.suffix == ".npy" else (ENCODING, POSITIONS)
    assert (file.encoding, file.positions, file.dtype) == (*specification, dtype)
    values = file.values[:]
    if path.suffix == ".zarr" and dtype == "bfloat16":
        assert values.dtype == np.uint16
        values = values.view(ml_dtypes.bfloat16)
    assert_same_bits(values, posenc.encode(POSITIONS, ENCODING, dtype=dtype))
    with pytest.raises(ValueError, match=r"read-only|read only"):
        file.values[0] = 0


def test_chunks_and_keys(tmp_path):
    for rows in (np.int64(7), 10**8):
        posenc.save(tmp_path / "pe.zarr", 100, ENCODING, chunk_rows=rows, overwrite=True)
        assert posenc.open(tmp_path / "pe.zarr").values.chunks == (min(rows, 100), 6)
    posenc.save(tmp_path / "pe.safetensors", 100, ENCODING, key="embed.weight")
    for key in (None, "embed.weight"):
        assert posenc.open(tmp_path / "pe.safetensors", key=key).values.shape == (100, 6)
    with pytest.raises(ValueError, match=r"no tensor 'pe', expected key to be one of \['embed.weight'\]"):
        posenc.open(tmp_path / "pe.safetensors", key="pe")


@pytest.mark.skipif(sys.platform != "linux", reason="requires sparse files")
def test_values_are_mapped(tmp_path):
    """The table has 1 TiB, too much to read into memory.

    Everything after the header is a hole in a sparse file.
    """
    (tmp_path / "pe.npy").write_bytes(npy_header(TableSpecification(range(2**35), Encoding(4), "float64")))
    os.truncate(tmp_path / "pe.npy", 128 + 2**40)
    values = posenc.open(tmp_path / "pe.npy").values
    assert values.shape == (2**35, 4) and not values[-1].any() and not values.flags.writeable


def test_mapped_values_outlive_the_replacement_of_their_file(tmp_path):
    posenc.save(tmp_path / "pe.npy", 10, Encoding(4, scale=10))
    values = posenc.open(tmp_path / "pe.npy").values
    posenc.save(tmp_path / "pe.npy", 20, Encoding(4, scale=20), overwrite=True)
    assert_same_bits(values, posenc.encode(10, Encoding(4, scale=10)))
    assert_same_bits(posenc.open(tmp_path / "pe.npy").values, posenc.encode(20, Encoding(4, scale=20)))


@pytest.mark.parametrize("array", [
    posenc.encode(10, 4, dtype="float64").astype(">f8"),
    posenc.encode(10, 4, dtype="bfloat16"),                                     # NumPy stores it as V2
    posenc.encode(10, 4, dtype="bfloat16").view(np.uint16).astype(">u2"),       # remains uint16
    posenc.encode(10, 4)[:, None],
    posenc.encode(10, 4)[None],
], ids=["big-endian", "V2", "bits", "second of three axes", "first of three axes"])
def test_files_of_numpy(tmp_path, array):
    np.save(tmp_path / "pe.npy", array)
    values = posenc.open(tmp_path / "pe.npy").values
    assert values.dtype == array.dtype
    assert_same_bits(values, array.reshape(10, 4))
    assert posenc.verify(tmp_path / "pe.npy") == 10


def test_unaligned_values(tmp_path):
    tensors = {"a": tensor("I8", (3,), (0, 3)), "pe": tensor("F32", (10, 4), (3, 163))}
    write_safetensors(tmp_path / "pe.safetensors", json.dumps(tensors),
                      bytes(3) + posenc.encode(10, 4).tobytes())
    assert_same_bits(posenc.open(tmp_path / "pe.safetensors").values, posenc.encode(10, 4))


def test_a_folder_without_a_suffix(tmp_path):
    pytest.importorskip("zarr").create_array(tmp_path / "table", data=posenc.encode(10, ENCODING))
    assert posenc.verify(tmp_path / "table", 10, ENCODING) == 10


# ---- packages ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("package, suffix, message", [
    ("ml_dtypes", "safetensors",
     r"10\n.*pe\.safetensors: dtype bfloat16 needs ml_dtypes; .*pip install ml_dtypes\n"),
    ("zarr", "zarr", r"(a .zarr file needs zarr; to install it: pip install zarr\n){3}"),
    ("safetensors", "safetensors", r"(reading .safetensors needs .*pip install safetensors\n){2}"),
])
def test_a_missing_package_is_reported(tmp_path, package, suffix, message):
    """Without ml_dtypes, bits of bfloat16 are not opened as integers: the same program would compute
    different values.
    """
    code = """
        import sys
        sys.modules[sys.argv[1]] = None
        import posenc
        path = sys.argv[2]
        for call in (lambda: posenc.save(path, 10, posenc.Encoding(4), dtype="bfloat16"), posenc.verify, posenc.open):
            try:
                result = call() if call not in (posenc.verify, posenc.open) else call(path)
                if call is posenc.verify:
                    print(result)
            except ImportError as error:
                print(error)
        """
    done = subprocess.run(python(code, package, tmp_path / f"pe.{suffix}"), capture_output=True, text=True)
    assert re.fullmatch(message, done.stdout), (done.stdout, done.stderr)


# ---- damaged files -----------------------------------------------------------------------------------------


def tensor(dtype="F32", shape=(4, 3), data_offsets=(0, 48)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(data_offsets)}


HEADER = json.dumps({"pe": tensor()}).encode()


def write_safetensors(path, text, data):
    text = text if isinstance(text, bytes) else text.encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


@pytest.mark.parametrize("suffix", ["npy", "safetensors"])
def test_random_damage_of_a_header_raises_no_other_error(tmp_path, suffix):
    path, choice, readable = tmp_path / f"pe.{suffix}", random.Random(1), 0
    posenc.save(path, 4, Encoding(3))
    content = path.read_bytes()
    for _ in range(500):
        damaged = bytearray(content)
        for _ in range(choice.randint(1, 3)):
            damaged[choice.randrange(8, 75)] = choice.choice(b"'\"(){}[],:<>\\ \n#0L19-f\x00\xff")
        path.write_bytes(damaged)
        try:
            with opened_table(str(path)) as table:
                readable += 1
                assert table.read(0, table.shape[0]).nbytes == table.shape[0] * table.shape[1] * itemsize(table.dtype)
        except ValueError as error:
            assert str(error).startswith(str(tmp_path))
    assert readable < 200


@pytest.mark.parametrize("content", [
    b"\xff" * 8 + bytes(48), bytes(8) + bytes(48), (90_000).to_bytes(8, "little") + b"[" * 90_000 + bytes(48),
    len(HEADER).to_bytes(8, "little") + HEADER + bytes(47),
], ids=["a header of 2**64 - 1 bytes", "no header", "deep", "a byte is missing"])
def test_files_that_safetensors_refuses_are_refused(tmp_path, content):
    (tmp_path / "pe.safetensors").write_bytes(content)
    for function in (posenc.open, posenc.verify):
        with pytest.raises(ValueError, match=r"pe.safetensors: not a .safetensors file: "):
            function(tmp_path / "pe.safetensors")


@pytest.mark.parametrize("text", [
    f'{{"pe": {json.dumps(tensor(shape=(3, 4)))}, "pe": {json.dumps(tensor())}}}',
    f'{{"p\\u0065": {json.dumps(tensor(shape=(3, 4)))}, "__metadata__": null, "pe": {json.dumps(tensor())}}}',
])
def test_a_duplicate_name_is_read_as_by_safetensors(tmp_path, text):
    library = pytest.importorskip("safetensors.numpy")
    write_safetensors(tmp_path / "pe.safetensors", text, posenc.encode(4, 3).tobytes())
    assert_same_bits(posenc.open(tmp_path / "pe.safetensors").values,
                     library.load_file(tmp_path / "pe.safetensors")["pe"])


# ---- paths that are not tables -----------------------------------------------------------------------------


def test_absent_files_are_reported(path):
    for function in (posenc.open, posenc.verify):
        with pytest.raises(FileNotFoundError) as caught:
            function(path)
        assert caught.value.filename == str(path)
