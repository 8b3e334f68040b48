"""Untrusted files: no code in them is executed, and reading them takes bounded memory."""

import json
import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc
from conftest import python
from posenc import _cli
from posenc._files.table import TableSpecification

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="requires /proc and sparse files"), pytest.mark.memory,
]

# the commands that read a table
READERS = ["verify", "identify"]
MEGABYTES = 150         # Python and NumPy use 40


def header(shape, descr="'<f4'", order="False", version=1, length=None):
    """Return the header of a .npy file, valid or not."""
    body = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    size = (len(body) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + body


def literal(body):
    return b"\x93NUMPY\x01\x00" + len(body).to_bytes(2, "little") + body + bytes(48)


class Touch:
    """An object that creates a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


HEADERS = {
    "huge": header((2**62, 2**62)), "number of rows beyond 64 bits": header((10**30, 4)),
    "overflowing number of rows": header((2**63, 2)), "negative": header((-1, 4)),
    "three axes": header((2, 3, 4)) + bytes(96), "columns first": header((3, 4), order="True") + bytes(48),
    "dtype of integers": header((3, 4), "'<i8'") + bytes(96), "very many axes": header((1,) * 30),
    "a call": header("(__import__('os').system('touch ran'), 4)"),
    "digits": header("(" + "9" * 5000 + ", 4)"),
    "dtype of objects": header((3, 4), "'|O'") + pickle.dumps([None] * 12),
    "dtype of a huge item": header((1, 1), "'|V2147483647'"), "no header": b"", "magic only": b"\x93NUMPY",
    "version 3": header((3, 4), version=3) + bytes(48),
    "unknown version": header((3, 4)).replace(b"\x01", b"\x09", 1) + bytes(48),
    "header shorter than declared": header((3, 4), length=60_000),
    "header longer than declared": header((3, 4), length=3) + bytes(48), "no rows, wide": header((0, 2**24)),
    "no rows, wider than any encoding": header((0, 2**62)),
    "missing header of 4 GB": header((3, 4), version=2, length=2**32 - 1),
    "truncated": header((3, 4)) + bytes(47), "one byte too many": header((3, 4)) + bytes(49),
    "pickle": pickle.dumps([1.0]), "zeros": bytes(1 << 20), "deep": literal(b"(" * 5000),
    "another key": header((3, 4)).replace(b"shape", b"Shape") + bytes(48),
}
SPARSE = {
    # NumPy would use twice as much
    "header of 500 MB": (header((3, 4), version=2, length=2**29), 2**30),
    "header of 4 GB": (header((3, 4), version=2, length=2**32 - 100), 2**32),
    "zeros of 4 GB": (b"", 2**32),
    "a table of 1 TB, one byte missing": (header((2**38, 1)), 2**40 + 127),
}
VALID = {
    "no rows": header((0, 512)), "no columns, maximum length": header((2**62, 0)), "neither": header((0, 0)),
}
SPARSE_VALID = {"a table of 1 TB": (header((2**38, 1)), 2**40 + 128)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrusted")
    for name, content in (HEADERS | VALID).items():
        (folder / f"{name}.npy").write_bytes(content)
    for name, (content, size) in (SPARSE | SPARSE_VALID).items():
        (folder / f"{name}.npy").write_bytes(content)
        os.truncate(folder / f"{name}.npy", size)
    np.save(folder / "objects.npy", np.array([[Touch(folder / "ran")]], object), allow_pickle=True)
    (folder / "pickle.npy").write_bytes(pickle.dumps(Touch(folder / "ran")))
    os.mkfifo(folder / "fifo.npy")
    (folder / "folder.npy").mkdir()
    (folder / "loop.npy").symlink_to(folder / "loop.npy")
    (folder / "device.npy").symlink_to("/dev/zero")
    (folder / "memory.npy").symlink_to("/proc/self/mem")
    return folder


@pytest.fixture(scope="module", params=READERS)
def outcomes(request, folder):
    """Read all files in one process.

    Return the command and, for each file, exit code, stdout, stderr and peak memory.
    """
    code = """
        import contextlib, io, json, os, resource, signal, sys
        from posenc import _cli
        signal.alarm(120)
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        command, *paths = sys.argv[1:]
        for path in paths:
            with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
                code = _cli.main([command, path])
            peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
            print(json.dumps([path, code, out.getvalue(), err.getvalue(), int(peak.split()[1]) / 1000]), flush=True)
        """
    command = python(code, request.param, *sorted(folder.iterdir()))
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"after {lines[-1] if lines else None}: {done.stderr}"
    return request.param, {Path(path).stem: rest for path, *rest in lines}


NOT_TABLES = [*HEADERS, *SPARSE, "objects", "fifo", "folder", "loop", "device", "memory"]


@pytest.mark.parametrize("name", NOT_TABLES)
def test_invalid_files_are_refused(outcomes, folder, name):
    _, results = outcomes
    code, out, err, _ = results[name]
    assert (code, out) == (1, "") and "Traceback" not in err
    assert err.startswith(f"posenc: error: {folder / name}.npy") and len(err) < 1000 and err.count("\n") == 1


@pytest.mark.parametrize("name", [*VALID, *SPARSE_VALID])
def test_valid_files_are_read(outcomes, folder, name):
    command, results = outcomes
    code, _, err, _ = results[name]
    assert code in (0, 1, 2) and "Traceback" not in err
    if command == "verify" and name in VALID:
        assert (code, err) == (0, "")


def test_reading_takes_bounded_memory(outcomes):
    _, results = outcomes
    peaks = {name: peak for name, (*_, peak) in results.items()}
    assert max(peaks.values()) < MEGABYTES, peaks


def test_no_pickle_is_executed(outcomes, folder):
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "codec",
    [{"compressor": None, "filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}, "filters": None}]
)
def test_pickle_codecs_of_zarr_are_refused(tmp_path, codec):
    folder = tmp_path / "pe.zarr"
    folder.mkdir()
    array = {"zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f4", "fill_value": 0,
             "order": "C"} | codec
    (folder / ".zarray").write_text(json.dumps(array))
    (folder / "0.0").write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    assert _cli.main(["verify", str(folder)]) == 1
    assert not (tmp_path / "ran").exists()


def test_a_wide_specification_takes_no_memory(tmp_path):
    document = {"d_model": 2**24, "convention": {}, "positions": {"start": 0, "stop": 3, "step": 1}}
    table = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    text = json.dumps({"__metadata__": {"posenc": json.dumps(document)}, "pe": table}).encode()
    (tmp_path / "pe.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(48))
    code = "import sys, posenc._cli as c; c.main(sys.argv[1:]); print(open('/proc/self/status').read())"
    done = subprocess.run(python(code, "verify", tmp_path / "pe.safetensors"), capture_output=True, text=True)
    assert "expected (3, 16777216) from the specification" in done.stderr
    peak = next(line for line in done.stdout.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) / 1000 < MEGABYTES


SPECIFICATION = TableSpecification(range(3), posenc.Encoding(4), "float32").document()
DEEP = "[" * 100_000 + "]" * 100_000
INVALID_SPECIFICATIONS = {
    "a number": 5, "an empty object": {}, "a list": [],
    "positions outside the domain": SPECIFICATION | {"positions": {"start": 2**63 - 1, "stop": 2**63 + 2, "step": 1}},
    "overflowing number of positions": SPECIFICATION | {"positions": {"start": 0, "stop": 10**30, "step": 1}},
    "an unknown convention": SPECIFICATION | {"convention": {"no_such": 1}},
    "an invalid convention": SPECIFICATION | {"convention": {"base": -1}},
    "no convention": SPECIFICATION | {"convention": 5},
}


def assert_refused(path, capsys):
    """Check that `posenc verify` refuses a file with a short message."""
    capsys.readouterr()
    assert _cli.main(["verify", str(path)]) == 1
    out, err = capsys.readouterr()
    assert out == "" and err.startswith(f"posenc: error: {path}: ") and len(err) < 1000


@pytest.mark.parametrize(
    "text", [*map(json.dumps, INVALID_SPECIFICATIONS.values()), 5, None, DEEP, "{"],
    ids=[*INVALID_SPECIFICATIONS, "not text", "null", "deep", "truncated"],
)
def test_invalid_specifications_in_safetensors_are_refused(tmp_path, capsys, text):
    table = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    head = json.dumps({"__metadata__": {"posenc": text}, "pe": table}).encode()
    (tmp_path / "pe.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(48))
    assert_refused(tmp_path / "pe.safetensors", capsys)


GZIP = {"name": "gzip", "configuration": {"level": 1}}
CHUNKS = {"name": "regular", "configuration": {"chunk_shape": [0, 0]}}
ATTRIBUTES = {name: {"posenc": value} for name, value in INVALID_SPECIFICATIONS.items()}
INVALID_METADATA = {name: {"attributes": attributes} for name, attributes in ATTRIBUTES.items()} | {
    "a number as attributes": {"attributes": 5},
    "empty chunks": {"chunk_grid": CHUNKS},
    "chunks larger than the memory": {"chunk_grid": CHUNKS | {"configuration": {"chunk_shape": [2**60, 4]}}},
    "another codec": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, GZIP]},
}


TEXTS = {"no text": "", "number": "5", "list": "[]", "object": "{}", "deep": DEEP, "truncated": "{"}


@pytest.mark.filterwarnings("ignore:Array:UserWarning")     # zarr 3.4 warns of empty chunks, too
@pytest.mark.parametrize("change", (INVALID_METADATA | TEXTS).values(), ids=INVALID_METADATA | TEXTS)
def test_invalid_metadata_of_zarr_are_refused(tmp_path, capsys, change):
    folder = tmp_path / "pe.zarr"
    posenc.save(folder, 3, posenc.Encoding(4))
    metadata = json.loads((folder / "zarr.json").read_text())
    (folder / "zarr.json").write_text(change if isinstance(change, str) else json.dumps(metadata | change))
    assert_refused(folder, capsys)


def test_numpy_would_execute_the_pickle(tmp_path):
    """Unpickling Touch creates the file, so the other tests would detect the execution of a pickle."""
    np.save(tmp_path / "objects.npy", np.array([[Touch(tmp_path / "ran")]], object), allow_pickle=True)
    np.load(tmp_path / "objects.npy", allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_the_library_uses_no_pickle():
    """Encoding can be pickled, but the library never loads a pickle; of a file of torch, only the weights."""
    sources = Path(posenc.__file__).parent.rglob("*.py")
    words = re.compile(r"import pickle|allow_pickle|np\.load\(|(?<![.\w])(eval|exec)\(|torch\.load\((?!.*weights_only=True)")
    assert [path.name for path in sources if words.search(path.read_text(encoding="utf-8"))] == []
