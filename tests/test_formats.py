"""Zarr and safetensors files: their libraries can read them, they describe their tables, and they are written atomically."""

import errno
import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, main_without, names, python
from posenc._files.files import opened_table

zarr = pytest.importorskip("zarr")
safetensors = pytest.importorskip("safetensors")

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX only")
SUFFIXES = ["safetensors", "zarr"]


def write(path, encoding, positions, dtype="float32", **keywords):
    return posenc.save(path, positions, encoding, dtype=dtype, **keywords)


# ---- content --------------------------------------------------------------------------------------------------------


def test_the_safetensors_library_reads_the_table(call, tmp_path, dtype):
    path = tmp_path / "pe.safetensors"
    options = ["--dtype", dtype, "--start", -9, "--base", 77, "--key", "embed.weight"]
    code, out, _ = call("generate", 5000, 33, "-o", path, *options, "--json")
    assert code == 0 and json.loads(out)["stored_dtype"] == dtype and json.loads(out)["bytes"] == path.stat().st_size
    expected = posenc.encode(range(-9, 4991), 33, dtype=dtype, base=77)
    from safetensors import numpy as library

    tensors = library.load_file(path)
    assert list(tensors) == ["embed.weight"]
    assert_same_bits(tensors["embed.weight"].view(expected.dtype), expected)
    with safetensors.safe_open(path, "np") as file:
        assert json.loads(file.metadata()["posenc"])["dtype"] == dtype
        assert file.get_slice("embed.weight").get_shape() == [5000, 33]


def test_a_key_that_is_not_unicode_is_refused(tmp_path):
    with pytest.raises(ValueError, match=r"key is .* expected valid Unicode text"):
        write(tmp_path / "pe.safetensors", posenc.Encoding(16), range(3), key=os.fsdecode(b"\xff"))
    assert names(tmp_path) == []


def test_torch_reads_safetensors(tmp_path):
    torch = pytest.importorskip("torch")
    from safetensors.torch import load_file

    write(tmp_path / "pe.safetensors", posenc.Encoding(16), range(100), "bfloat16")
    loaded = load_file(tmp_path / "pe.safetensors")["pe"]
    assert loaded.dtype == torch.bfloat16
    assert_same_bits(loaded.view(torch.uint16).numpy().view(ml_dtypes.bfloat16), posenc.encode(100, 16, dtype="bfloat16"))


def test_rows_of_safetensors_are_aligned_to_cache_lines(tmp_path):
    for key in ("pe", "p" * 30, "ё\n\"'"):
        write(tmp_path / "pe.safetensors", posenc.Encoding(16), range(100), key=key, overwrite=True)
        content = (tmp_path / "pe.safetensors").read_bytes()
        assert (8 + int.from_bytes(content[:8], "little")) % 64 == 0
        with safetensors.safe_open(tmp_path / "pe.safetensors", "np") as file:
            assert_same_bits(file.get_tensor(key), posenc.encode(100, 16))


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("rows, d_model", [(0, 8), (5, 0), (0, 0), (1, 1), (3, 512)])
def test_tables_of_every_shape_are_written(call, tmp_path, suffix, rows, d_model):
    path = tmp_path / f"pe.{suffix}"
    assert call("generate", rows, d_model, "-o", path)[0] == 0
    loaded = zarr.open_array(path, mode="r")[:] if suffix == "zarr" else safetensors.safe_open(path, "np").get_tensor("pe")
    assert_same_bits(loaded, posenc.encode(rows, d_model))
    assert call("verify", path)[:2] == (0, f"{path}: {rows} of {rows} rows compared, every bit equal\n")


# ---- specifications in files, and verification ----------------------------------------------------------------------

EVERYTHING = (
    "--start=-1e3 --step -7 --base 321.5 --frequency-scale 0.3 --position-offset .1 --position-scale 3 --scale 0.7 --odd zero "
    "--shift 1 --layout halves --order cos"
)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("options", ["", EVERYTHING, "--frequencies 1,-.25,1e-300,.1,7 --exponents pair", "--dtype bfloat16"])
def test_the_file_describes_its_table(call, tmp_path, suffix, options):
    path = tmp_path / f"pe.{suffix}"
    assert call("generate", 100, 11 if "zero" in options else 10, "-o", path, *options.split())[0] == 0
    assert call("verify", path)[0] == 0
    assert call("verify", path, "--scale", 3)[0] == 1
    assert call("verify", path, "--start", 1)[0] == 1
    with opened_table(str(path)) as table:
        positions, encoding, _ = table.specification
        again = encoding.encode(positions, dtype=table.dtype)
        assert (table.read(0, 100) == again.view(f"u{again.itemsize}")).all()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_verify_reports_a_flipped_bit(call, tmp_path, suffix):
    path = tmp_path / f"pe.{suffix}"
    write(path, posenc.Encoding(64), range(3000), **({"chunk_rows": 450} if suffix == "zarr" else {}))
    data, offset = (path / "c" / "5" / "0", (2345 - 5 * 450) * 256) if suffix == "zarr" else (path, -(3000 - 2345) * 256)
    content = bytearray(data.read_bytes())
    content[offset + 17 * 4] ^= 1
    data.write_bytes(content)
    code, out, err = call("verify", path)
    assert (code, out) == (1, "") and err.startswith(f"posenc: error: {path}: position 2345, column 17: found ")


def test_a_chunk_has_no_more_rows_than_the_table(call, tmp_path):
    assert call("generate", 10, 8, "-o", tmp_path / "pe.zarr", "--chunk-rows", "1e8")[0] == 0
    assert zarr.open_array(tmp_path / "pe.zarr", mode="r").chunks == (10, 8)


@pytest.mark.parametrize("suffix", [".zarr", ".safetensors"])
def test_options_override_conflicting_options_except_frequencies(call, tmp_path, suffix):
    path, frequencies = tmp_path / f"pe{suffix}", "1,0.5,0.25,0.125"
    assert call("generate", 50, 8, "-o", path, "--base", 7, "--spacing", "endpoint")[0] == 0
    assert call("verify", path, "--frequencies", frequencies)[0] == call("verify", path, "--shift", 2)[0] == 1
    assert call("verify", path, "--shift", 1)[0] == 0           # the same as spacing="endpoint"
    assert call("generate", 50, 8, "-o", path, "--frequencies", frequencies, "--force")[0] == 0
    code, _, err = call("verify", path, "--base", 7)
    assert code == 2 and "frequencies and base are both given" in err


def test_verify_reads_stores_of_the_zarr_library(call, tmp_path):
    for name, keywords in (("two", {"zarr_format": 2}), ("three", {"shards": (60, 10), "chunks": (20, 5)})):
        array = zarr.create_array(tmp_path / f"{name}.zarr", shape=(100, 10), dtype="f8", **{"chunks": (7, 3)} | keywords)
        array[:] = posenc.encode(100, 10, dtype="float64")
        assert call("verify", tmp_path / f"{name}.zarr")[0] == 0
        array[50, 5] = 0
        assert call("verify", tmp_path / f"{name}.zarr")[0] == 1


@pytest.mark.parametrize("keywords, key", [
    ({"compressors": None}, "c/8/0"),
    ({}, "c/8/0"),
    ({"zarr_format": 2}, "8.0"),
    ({"chunks": (5, 10), "shards": (60, 10)}, "c/1/0"),
])
@pytest.mark.parametrize("size", [0, 0.5])
def test_chunks_that_zarr_refuses_are_refused(tmp_path, keywords, key, size):
    """Zarr refuses a truncated chunk when it reads the chunk, and so does posenc."""
    path = tmp_path / "pe.zarr"
    array = zarr.create_array(path, shape=(100, 10), dtype="f8", **{"chunks": (7, 10)} | keywords)
    array[:] = posenc.encode(100, 10, dtype="float64")
    os.truncate(path / key, int(size * (path / key).stat().st_size))
    with pytest.raises(Exception) as refused:           # each codec raises a different exception
        zarr.open_array(path, mode="r")[:]
    assert not isinstance(refused.value, AssertionError)
    with pytest.raises((OSError, ValueError), match=re.escape(str(path))):
        posenc.verify(path)


def test_verify_reads_one_of_several_tensors(call, tmp_path):
    from safetensors.numpy import save_file

    tensors = {"a": np.zeros((2, 3, 4), np.int8), "b": posenc.encode(50, 8), "c": posenc.encode(50, 8, base=5)}
    save_file(tensors, tmp_path / "model.safetensors")
    assert call("verify", tmp_path / "model.safetensors", "--key", "b")[0] == 0
    assert call("verify", tmp_path / "model.safetensors", "--key", "c", "--base", 5)[0] == 0
    wrong = ([], "no tensor 'pe', expected key to be one of: 'a', 'b', 'c'"), (["--key", "a"], "dtype I8, expected F64, F32")
    for options, message in wrong:
        code, out, err = call("verify", tmp_path / "model.safetensors", *options)
        assert (code, out) == (1, "") and message in err and err.startswith(f"posenc: error: {tmp_path}")


# ---- damaged and unsupported files ----------------------------------------------------------------------------------


def test_damaged_safetensors_raise_value_error(tmp_path):
    path = tmp_path / "pe.safetensors"
    write(path, posenc.Encoding(3), range(4))
    good, choice = path.read_bytes(), random.Random(1)
    length = int.from_bytes(good[:8], "little")
    texts = [b"[]", b"3", b'"pe"', b"[" * 90_000, b"\xff", b'{"pe": 3}', b'{"__metadata__": 5}', b'{"pe": {"dtype": "F32"}}']
    shapes, offsets = (b"4,-3", b"-4,-3", b"12", b"4.0,3", b"4,true"), (b"0", b"-1,47", b"1,49", b'"a",48', b"0,48,1")
    texts += [b'{"pe": {"dtype": "F32", "shape": [%s], "data_offsets": [0, 48]}}' % shape for shape in shapes]
    texts += [b'{"pe": {"dtype": "F32", "shape": [4, 3], "data_offsets": [%s]}}' % offset for offset in offsets]
    texts += [b'{"pe": {"dtype": "F64", "shape": [4, 3], "data_offsets": [0, 48]}}']
    texts += [good[8 : 8 + length].replace(b"10000.0", other) for other in (b"-10000.", b"NaN", b"[]", b"null")]
    changes = (b'"base', b'"bass'), (b'"stop\\": 4', b'"stop\\": 5'), (b'"step', b'"s')
    texts += [good[8 : 8 + length].replace(*change) for change in changes]
    damaged = [len(text).to_bytes(8, "little") + text + good[8 + length :] for text in texts]
    damaged += [good[:n] for n in range(0, len(good), 7)] + [good + b"\0", b"\xff" * 8 + good[8:]]
    for content in damaged:
        path.write_bytes(content)
        with pytest.raises(ValueError, match=r"pe\.safetensors: "), opened_table(str(path)):
            pass
    for _ in range(500):
        changed = bytearray(good)
        for _ in range(choice.randint(1, 3)):
            changed[choice.randrange(8 + length)] = choice.choice(b"'\"(){}[],:<>\\ \n#0L19-f\x00\xff")
        path.write_bytes(changed)
        try:
            with opened_table(str(path)) as table:
                table.read(0, table.shape[0])
        except ValueError as error:
            assert str(error).startswith(str(path))


def tensor(dtype="F32", shape=(4, 3), data_offsets=(0, 48)):
    return {"dtype": dtype, "shape": list(shape), "data_offsets": list(data_offsets)}


def damaged_safetensors():
    """Return damaged headers, each with the number of data bytes that follow it."""
    one = json.dumps(tensor())
    first = json.dumps({"pe": tensor()})

    def two(length, b, **pe):
        return json.dumps({"pe": tensor(**pe), "b": b}), length

    return {
        "one byte too many": (first, 49),
        "one byte missing": (first, 47),
        "no data": (first, 0),
        "no header": ("", 0),
        "a hole at the beginning": (json.dumps({"pe": tensor(data_offsets=(8, 56))}), 56),
        "a hole between": two(104, tensor(data_offsets=(56, 104))),
        "a hole at the end": (first, 56),
        "an overlap": two(88, tensor(data_offsets=(40, 88))),
        "identical offsets": two(48, tensor()),
        "a nested tensor": two(48, tensor(shape=(1, 3), data_offsets=(4, 16))),
        "an empty nested tensor": two(48, tensor(shape=(0, 3), data_offsets=(20, 20))),
        "beyond the data": (json.dumps({"pe": tensor(shape=(5, 3), data_offsets=(0, 60))}), 48),
        "reversed offsets": two(48, tensor("I8", (0,), (48, 44))),
        "another shape": (json.dumps({"pe": tensor(shape=(4, 4))}), 48),
        "another dtype": (json.dumps({"pe": tensor("F64")}), 48),
        "another shape of the second tensor": two(52, tensor("I8", (5,), (48, 52))),
        "half a byte": two(49, tensor("F4", (3,), (48, 49))),
        "an unknown dtype": two(52, tensor("F99", (4,), (48, 52))),
        "a shape that overflows": two(48, tensor(shape=(2**40, 2**40, 0), data_offsets=(48, 48))),
        "a length that overflows": two(48, tensor(shape=(0, 2**64), data_offsets=(48, 48))),
        "a dict as shape": (first.replace("[4, 3]", '{"4": 3}'), 48),
        "an empty string as shape": two(49, tensor("I8", (), (48, 49)) | {"shape": ""}),
        "minus zero": (first.replace("[0, 48]", "[-0, 48]"), 48),
        "a real number": (first.replace("[0, 48]", "[0, 48.0]"), 48),
        "a bool": (first.replace("[4, 3]", "[4, 3, true]"), 48),
        "infinity": (first.replace("[4, 3]", "[Infinity, 3]"), 48),
        "three offsets": (first.replace("[0, 48]", "[0, 24, 48]"), 48),
        "a duplicate field": (first.replace('"dtype"', '"dtype": "F32", "dtype"'), 48),
        "duplicate metadata": (f'{{"__metadata__": {{}}, "__metadata__": {{}}, "pe": {one}}}', 48),
        "a list as metadata": (f'{{"__metadata__": [], "pe": {one}}}', 48),
        "a string as metadata": (f'{{"__metadata__": "", "pe": {one}}}', 48),
        "a number in the metadata": (f'{{"__metadata__": {{"a": 5}}, "pe": {one}}}', 48),
        "half a surrogate pair in a name": (f'{{"\\ud800": {one}}}', 48),
        "half a surrogate pair in metadata": (f'{{"__metadata__": {{"a": "\\ud800"}}, "pe": {one}}}', 48),
        "Latin-1": (first.replace("pe", "é").encode("latin-1"), 48),
        "UTF-16": (first.encode("utf-16-le"), 48),
        "a byte order mark": (first.encode("utf-8-sig"), 48),
        "a trailing comma": (first[:-1] + ",}", 48),
        "text after the JSON": (first + "{}", 48),
    }


@pytest.mark.parametrize("text, size", [pytest.param(*rest, id=name) for name, rest in damaged_safetensors().items()])
def test_files_that_safetensors_refuses_are_refused(tmp_path, text, size):
    path, text = tmp_path / "pe.safetensors", text if isinstance(text, bytes) else text.encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(size))
    with pytest.raises(safetensors.SafetensorError):
        safetensors.safe_open(path, "np")
    for function in (posenc.open, posenc.verify):       # both fail before they read a value
        with pytest.raises(ValueError, match=f"^{re.escape(str(path))}: not a .safetensors file: "):
            function(path, key="pe")


@pytest.mark.parametrize("length, size", [(10**6, 1008), (100_000_001, 100_000_009), (2**64 - 1, 1008)])
def test_oversized_headers_are_refused(tmp_path, length, size):
    path = tmp_path / "pe.safetensors"
    path.write_bytes(length.to_bytes(8, "little"))
    os.truncate(path, size)
    with pytest.raises(safetensors.SafetensorError):
        safetensors.safe_open(path, "np")
    with pytest.raises(ValueError, match=r"not a \.safetensors file: .*header"):
        posenc.verify(path)


def test_reading_safetensors_requires_the_library_and_writing_does_not(call, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    posenc.save(tmp_path / "pe.safetensors", 4, posenc.Encoding(8))
    with pytest.raises(ModuleNotFoundError, match=r"posenc\[safetensors\]"):
        posenc.open(tmp_path / "pe.safetensors")
    code, _, err = call("verify", tmp_path / "pe.safetensors")
    assert code == 1 and "safetensors" in err and "Traceback" not in err


def test_verify_accepts_tensors_of_every_dtype_next_to_the_table(tmp_path):
    """The tensors are not in the order of their data, and some are empty; every dtype of the library is accepted."""
    by_bits = {
        4: "F4", 6: "F6_E2M3 F6_E3M2", 8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ",
        16: "I16 U16 F16 BF16", 32: "I32 U32 F32", 64: "C64 F64 I64 U64",
    }
    tensors, end = {}, 0
    for bits, code in [(bits, code) for bits, codes in by_bits.items() for code in codes.split()]:
        tensors[f"of {code}"], end = tensor(code, (3, 8), (end, end + 3 * bits)), end + 3 * bits
        tensors[f"empty of {code}"] = tensor(code, (0, 5), (end, end))
    expected = posenc.encode(4, 3)
    tensors = {"pe": tensor(data_offsets=(end, end + 48))} | tensors
    text = json.dumps(tensors).encode()
    (tmp_path / "pe.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(end) + expected.tobytes())
    with safetensors.safe_open(tmp_path / "pe.safetensors", "np") as file:
        assert len(file.keys()) == len(tensors)
    assert posenc.verify(tmp_path / "pe.safetensors", key="pe") == 4


def unsupported_paths():
    yield "integers", lambda path: zarr.create_array(path, shape=(3, 3), dtype="i8"), "dtype int64"
    yield "three axes", lambda path: zarr.create_array(path, shape=(3, 3, 3), dtype="f4"), "shape (3, 3, 3)"
    yield "too wide", lambda path: zarr.create_array(path, shape=(3, 2**25), chunks=(3, 9), dtype="f4"), "16777216 columns"
    yield "group", zarr.create_group, "not a Zarr array"
    yield "folder", lambda path: path.mkdir(), "No Zarr array"
    yield "file", lambda path: path.write_text("{}"), "Not a directory"
    yield "absent", lambda path: None, "No Zarr array"
    yield "damaged", lambda path: (path.mkdir(), (path / "zarr.json").write_text("{")), "not a Zarr array"
    wrong = {"attributes": {"posenc": [1], "complete": True}}
    yield "attribute", lambda path: zarr.create_array(path, shape=(3, 3), dtype="f4", **wrong), "not a posenc specification"


@pytest.mark.parametrize("make, message", [pytest.param(*rest, id=name) for name, *rest in unsupported_paths()])
def test_verify_refuses_unsupported_paths(call, tmp_path, make, message):
    make(tmp_path / "pe.zarr")
    code, out, err = call("verify", tmp_path / "pe.zarr")
    assert (code, out) == (1, "") and message in err and str(tmp_path / "pe.zarr") in err


def test_a_missing_package_is_reported(tmp_path):
    command = main_without("zarr", "generate", 20, 8, "-o", tmp_path / "pe.zarr")
    done = subprocess.run(command, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "") and done.stderr.startswith("posenc: error: posenc.zarr needs zarr; ")


# ---- atomic writes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_existing_files_are_replaced_only_with_force(call, tmp_path, suffix):
    path = tmp_path / f"pe.{suffix}"
    for n in (300, 400):
        assert call("generate", n, 8, "-o", path, *["--force"] * (n == 400))[0] == 0
        assert call("generate", 10, 8, "-o", path) == (1, "", f"posenc: error: {path} exists; --force overwrites it\n")
        assert "400 of 400" in call("verify", path)[1] or n == 300
        assert names(tmp_path) == [path.name]


@pytest.mark.parametrize("make", [lambda path: path.write_text("new"), zarr.create_group])
def test_paths_created_during_the_write_are_kept(tmp_path, make):
    path = tmp_path / "pe.zarr"
    with pytest.raises(OSError, match=r"(File exists|Not a Zarr store).*pe\.zarr"):
        write(path, posenc.Encoding(8), range(10), progress=lambda written: make(path))
    assert names(tmp_path) == ["pe.zarr"]
    assert path.is_file() or zarr.open_group(path, mode="r") is not None


def check_failed_overwrite(path, error, rows=10, **keywords):
    """Replace a store of 10 rows with one of 20; expect an error, and a complete store with `rows` rows."""
    with pytest.raises(error, match=r"pe\.zarr" if error is OSError else None):
        write(path, posenc.Encoding(8), range(20), overwrite=True, **keywords)
    assert names(path.parent) == ["pe.zarr"] and zarr.open_array(path, mode="r").shape == (rows, 8)


@pytest.fixture
def store(tmp_path):
    write(tmp_path / "pe.zarr", posenc.Encoding(8), range(10))
    return tmp_path / "pe.zarr"


def test_an_interrupted_write_keeps_the_old_store(store):
    def fail(written):
        raise KeyboardInterrupt

    check_failed_overwrite(store, KeyboardInterrupt, progress=fail)


@POSIX
def test_a_symbolic_link_to_a_store_is_kept(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "pe.zarr").symlink_to(tmp_path / "elsewhere" / "real.zarr")
    for n in (3, 5):
        write(tmp_path / "pe.zarr", posenc.Encoding(4), range(n), overwrite=n == 5)
        assert (tmp_path / "pe.zarr").is_symlink()
        assert zarr.open_array(tmp_path / "elsewhere" / "real.zarr", mode="r").shape == (n, 4)
    assert names(tmp_path / "elsewhere") == ["real.zarr"]


def test_insufficient_disk_space_is_reported_before_writing(tmp_path, monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: (10**9, 10**9 - 1000, 1000))
    with pytest.raises(OSError, match=r"1\.02 kB needed, 1 kB free"):
        write(tmp_path / "pe.zarr", posenc.Encoding(8), range(32), chunk_rows=20)
    assert names(tmp_path) == []


@pytest.mark.parametrize("positions", [range(2**63 - 1, 2**63 + 1), range(-(2**63), 2**63)])
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_positions_beyond_int64_are_refused(tmp_path, suffix, positions):
    with pytest.raises(ValueError, match="positions "):
        write(tmp_path / f"pe.{suffix}", posenc.Encoding(8), positions)
    assert names(tmp_path) == []


@pytest.mark.parametrize("renames", [1, 2])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError(errno.EIO, os.strerror(errno.EIO))])
def test_a_failed_or_interrupted_rename_leaves_a_complete_store(store, monkeypatch, renames, error):
    """The old folder is moved away, then the new folder takes its name."""
    counts = []

    def failing(function):
        def replaced(source, target):
            counts.extend([target] * (str(store) in (str(source), str(target))))        # zarr renames in its own thread
            fails = str(store) in (str(source), str(target)) and len(counts) == renames
            if fails and error is not KeyboardInterrupt:
                raise error
            function(source, target)
            if fails:
                raise error
        return replaced

    with monkeypatch.context() as patch:
        for name in ("rename", "replace"):
            patch.setattr(os, name, failing(getattr(os, name)))
        with pytest.raises(KeyboardInterrupt if error is KeyboardInterrupt else OSError):
            posenc.save(store, 20, posenc.Encoding(8), overwrite=True)
    assert names(store.parent) == ["pe.zarr"] and posenc.verify(store) in (10, 20)


@POSIX
@pytest.mark.usefixtures("heard_signals")
@pytest.mark.parametrize("number, code", [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("old", [False, True])
def test_a_signal_during_the_write_leaves_the_old_store_or_none(tmp_path, number, code, old):
    path = tmp_path / "pe.zarr"
    if old:
        posenc.save(path, 10, posenc.Encoding(64))
    slow = """
        import sys, time
        from posenc import _cli
        from posenc._files import zarr
        put = zarr._put
        zarr._put = lambda *arguments: (print("writing", flush=True), time.sleep(1), put(*arguments))
        sys.exit(_cli.main(["generate", "10_000", "64", "--chunk-rows", "1000", "--force", "-o", *sys.argv[1:]]))
        """
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(python(slow, path), **pipes) as process:
        assert process.stdout.readline() == "writing\n"
        process.send_signal(getattr(signal, number))
        _, stderr = process.communicate(timeout=20)
    assert process.returncode == code and "Traceback" not in stderr
    assert names(tmp_path) == ["pe.zarr"] * old
    assert not old or posenc.verify(path) == 10
