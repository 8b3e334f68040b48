"""Files from anybody: nothing in them is run, and they take no more memory than a table of their size."""

import json
import os
import pickle
import re
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc import _cli
from posenc._files.specification import specification

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc, and sparse files"),
    pytest.mark.memory,
]

# the commands that read a table
READERS = ["verify", "identify"]
MEGABYTES = 150         # Python and NumPy take 40


def header(shape, descr="'<f4'", order="False", version=1, length=None):
    """The beginning of a .npy file, of pieces of text that need not be right."""
    body = f"{{'descr': {descr}, 'fortran_order': {order}, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    size = (len(body) if length is None else length).to_bytes(2 if version == 1 else 4, "little")
    return b"\x93NUMPY" + bytes([version, 0]) + size + body


class Touch:
    """Leaves a file where it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


HEADERS = {
    "huge": header((2**62, 2**62)),
    "huge, of no bytes": header((2**62, 2**62), "'<f0'"),
    "more rows than numbers": header((10**30, 4)),
    "as many rows as overflow": header((2**63, 2)),
    "as many values as overflow": header((2**32, 2**32), "'<f2'"),
    "negative": header((-1, 4)),
    "both negative": header((-3, -4)),
    "real": header((4.0, 4)),
    "text": header(("4", "4")),
    "nested": header(((4,), 4)),
    "one axis": header((4,)),
    "no axis": header(()),
    "very many axes": header((1,) * 30),
    "no tuple": header("[3, 4]"),
    "an expression": header("(2**10, 4)"),
    "a call": header("(__import__('os').system('touch ran'), 4)"),
    "digits": header("(" + "9" * 5000 + ", 4)"),
    "dtype of objects": header((3, 4), "'|O'") + pickle.dumps([None] * 12),
    "dtype with objects inside": header((3, 4), "[('a', '|O')]") + bytes(96),
    "dtype of records": header((3, 4), "[('a', '<f4'), ('b', '<f4')]") + bytes(96),
    "dtype of arrays": header((3, 4), "('<f4', (1000, 1000, 1000))"),
    "dtype of text": header((3, 4), "'<U1'") + bytes(48),
    "dtype of a huge item": header((1, 1), "'|V2147483647'"),
    "no dtype": header((3, 4), "None"),
    "dtype of a call": header((3, 4), "__import__('os')"),
    "order that is no bool": header((3, 4), order="'no'"),
    "no header": b"",
    "magic only": b"\x93NUMPY",
    "another magic": b"\x93NUMPZ" + header((3, 4))[6:] + bytes(48),
    "version 3": header((3, 4), version=3) + bytes(48),
    "version 9": header((3, 4), version=9) + bytes(48),
    "header shorter than told": header((3, 4), length=60_000),
    "header longer than told": header((3, 4), length=3) + bytes(48),
    "no rows, wide": header((0, 2**24)),
    "no rows, wider than any encoding": header((0, 2**62)),
    "header of 4 GB, absent": header((3, 4), version=2, length=2**32 - 1),
    "truncated": header((3, 4)) + bytes(47),
    "a byte more": header((3, 4)) + bytes(49),
    "pickle": pickle.dumps([1.0]),
    "archive": b"PK\x03\x04" + bytes(200),
    "zeros": bytes(1 << 20),
}
SPARSE = {
    "header of 500 MB": (header((3, 4), version=2, length=2**29), 2**30),       # NumPy would take twice that
    "header of 4 GB": (header((3, 4), version=2, length=2**32 - 100), 2**32),
    "zeros of 4 GB": (b"", 2**32),
    "a table of 1 TB, one byte missing": (header((2**38, 1)), 2**40 + 127),
}
# tables that are what they say
RIGHT = {
    "no rows": header((0, 512)),
    "no columns, as long as can be": header((2**62, 0)),
    "neither": header((0, 0)),
}
SPARSE_RIGHT = {"a table of 1 TB": (header((2**38, 1)), 2**40 + 128)}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("untrusted")
    for name, content in (HEADERS | RIGHT).items():
        (folder / f"{name}.npy").write_bytes(content)
    for name, (content, size) in (SPARSE | SPARSE_RIGHT).items():
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
    """Of each file, by one process that may take 4 GB and two minutes: exit code, stdout, stderr; and its peak of memory."""
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
    paths = sorted(map(str, folder.iterdir()))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), request.param, *paths], capture_output=True, text=True, cwd=folder
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, f"after {lines[-1] if lines else None}: {done.stderr}"
    return request.param, {Path(path).stem: rest for path, *rest in lines}


NOT_TABLES = [*HEADERS, *SPARSE, "objects", "fifo", "folder", "loop", "device", "memory"]


@pytest.mark.parametrize("name", NOT_TABLES)
def test_what_is_no_table_is_refused(outcomes, folder, name):
    _, found = outcomes
    code, out, err, _ = found[name]
    assert (code, out) == (1, "") and "Traceback" not in err
    assert err.startswith(f"posenc: error: {folder / name}.npy") and len(err) < 1000


@pytest.mark.parametrize("name", [*RIGHT, *SPARSE_RIGHT])
def test_what_is_a_table_is_read(outcomes, folder, name):
    command, found = outcomes
    code, _, err, _ = found[name]
    assert code in (0, 1, 2) and "Traceback" not in err
    if command == "verify" and name in RIGHT:
        assert (code, err) == (0, "")


def test_memory_is_bounded(outcomes):
    _, found = outcomes
    peaks = {name: peak for name, (*_, peak) in found.items()}
    assert max(peaks.values()) < MEGABYTES, peaks


def test_nothing_was_run(outcomes, folder):
    assert not (folder / "ran").exists()


@pytest.mark.parametrize(
    "codec", [{"compressor": None, "filters": [{"id": "pickle"}]}, {"compressor": {"id": "pickle"}, "filters": None}]
)
def test_no_codec_of_zarr_is_run_that_unpickles(tmp_path, codec):
    pytest.importorskip("zarr")
    folder = tmp_path / "pe.zarr"
    folder.mkdir()
    array = {"zarr_format": 2, "shape": [3, 4], "chunks": [3, 4], "dtype": "<f4", "fill_value": 0, "order": "C"} | codec
    (folder / ".zarray").write_text(json.dumps(array))
    (folder / "0.0").write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    assert _cli.main(["verify", str(folder)]) == 1
    assert not (tmp_path / "ran").exists()


def test_a_specification_makes_no_columns_that_the_file_has_not(tmp_path):
    """Of a .safetensors file, whose metadata say what it holds."""
    document = {"d_model": 2**24, "convention": {}, "positions": {"start": 0, "stop": 3, "step": 1}}
    table = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    text = json.dumps({"__metadata__": {"posenc": json.dumps(document)}, "pe": table}).encode()
    (tmp_path / "pe.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(48))
    code = "import sys; from posenc import _cli; _cli.main(sys.argv[1:]); print(open('/proc/self/status').read())"
    command = [sys.executable, "-c", code, "verify", str(tmp_path / "pe.safetensors")]
    done = subprocess.run(command, capture_output=True, text=True)
    assert "expected (3, 16777216) from the specification" in done.stderr
    peak = next(line for line in done.stdout.splitlines() if line.startswith("VmHWM"))
    assert int(peak.split()[1]) / 1000 < MEGABYTES


SPECIFICATION = specification(posenc.Encoding(4), range(3), "float32")
DEEP = "[" * 100_000 + "]" * 100_000
WRONG_SPECIFICATIONS = {
    "a number": 5,
    "nothing of it": {},
    "a list": [],
    "positions outside the domain": SPECIFICATION | {"positions": {"start": 2**63 - 1, "stop": 2**63 + 2, "step": 1}},
    "as many positions as overflow": SPECIFICATION | {"positions": {"start": 0, "stop": 10**30, "step": 1}},
    "an unknown convention": SPECIFICATION | {"convention": {"no_such": 1}},
    "a wrong convention": SPECIFICATION | {"convention": {"base": -1}},
    "no convention": SPECIFICATION | {"convention": 5},
}


def refusal(path, capsys):
    """What `posenc verify` says of a file that it refuses."""
    assert _cli.main(["verify", str(path)]) == 1
    said = capsys.readouterr()
    assert said.out == "" and said.err.startswith(f"posenc: error: {path}: ") and len(said.err) < 1000
    return said.err


@pytest.mark.parametrize(
    "text",
    [*map(json.dumps, WRONG_SPECIFICATIONS.values()), 5, None, DEEP, "{"],
    ids=[*WRONG_SPECIFICATIONS, "no text", "null", "deep", "half"],
)
def test_wrong_specifications_in_safetensors(tmp_path, capsys, text):
    table = {"dtype": "F32", "shape": [3, 4], "data_offsets": [0, 48]}
    head = json.dumps({"__metadata__": {"posenc": text}, "pe": table}).encode()
    (tmp_path / "pe.safetensors").write_bytes(len(head).to_bytes(8, "little") + head + bytes(48))
    refusal(tmp_path / "pe.safetensors", capsys)


@pytest.fixture
def zarr_array(tmp_path):
    """The folder of a Zarr array, and its metadata."""
    pytest.importorskip("zarr")
    _cli.main(["generate", "3", "4", "-o", str(tmp_path / "pe.zarr")])
    return tmp_path / "pe.zarr", json.loads((tmp_path / "pe.zarr" / "zarr.json").read_text())


GZIP = {"name": "gzip", "configuration": {"level": 1}}
CHUNKS = {"name": "regular", "configuration": {"chunk_shape": [0, 0]}}
WRONG_METADATA = {name: {"attributes": {"posenc": value}} for name, value in WRONG_SPECIFICATIONS.items()} | {
    "attributes that are none": {"attributes": 5},
    "chunks of nothing": {"chunk_grid": CHUNKS},
    "chunks beyond the memory": {"chunk_grid": CHUNKS | {"configuration": {"chunk_shape": [2**60, 4]}}},
    "another codec": {"codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, GZIP]},
}


@pytest.mark.parametrize("change", WRONG_METADATA.values(), ids=WRONG_METADATA)
def test_wrong_metadata_of_zarr(zarr_array, capsys, change):
    folder, metadata = zarr_array
    (folder / "zarr.json").write_text(json.dumps(metadata | change))
    capsys.readouterr()
    refusal(folder, capsys)


@pytest.mark.parametrize("text", ["", "5", "[]", "{}", DEEP], ids=["none", "5", "list", "object", "deep"])
def test_metadata_of_zarr_that_are_none(zarr_array, capsys, text):
    folder, _ = zarr_array
    (folder / "zarr.json").write_text(text)
    capsys.readouterr()
    refusal(folder, capsys)


def test_the_bomb_would_go_off(tmp_path):
    """What the last test relies on."""
    np.save(tmp_path / "objects.npy", np.array([[Touch(tmp_path / "ran")]], object), allow_pickle=True)
    np.load(tmp_path / "objects.npy", allow_pickle=True)
    assert (tmp_path / "ran").exists()


def test_no_pickle_in_the_library():
    """Neither by name nor by NumPy's switch; Encoding itself can be pickled, which is up to whoever does."""
    sources = Path(posenc.__file__).parent.rglob("*.py")
    words = re.compile(r"import pickle|allow_pickle|np\.load\(|(?<![.\w])(eval|exec)\(|torch\.load")
    assert [path.name for path in sources if words.search(path.read_text(encoding="utf-8"))] == []


def test_workflows_may_only_read():
    """The default token is without rights, and each job is given reading at most."""
    folder = Path(__file__).parents[1] / ".github" / "workflows"
    if not folder.exists():
        pytest.skip("not in the source distribution")
    for path in folder.glob("*.yml"):
        lines = path.read_text(encoding="utf-8").splitlines()
        assert "permissions: {}" in lines, f"{path.name} leaves the default permissions"
        granted = {line.strip() for line in lines if line.strip().endswith((": write", "write-all", "read-all"))}
        assert granted <= {"id-token: write"}, f"{path.name} grants {granted}"
        assert "pull_request_target" not in path.read_text(encoding="utf-8")
