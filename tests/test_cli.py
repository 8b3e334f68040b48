"""Tests of the command line: `run` starts a process, `call` runs the command in this one."""

import contextlib
import json
import os
import re
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import main_without
from keywords import options_of, single_keywords
from posenc import Encoding
from posenc._core import kernel
from posenc._encoding.encoding import KEYWORDS
from posenc._files import functions, table
from posenc._files.functions import opened_table
from posenc._files.table import Table

POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX only")


def run(*args, **keywords):
    """Run ``python -m posenc`` and return the completed process."""
    keywords = {"capture_output": True, "text": True, "timeout": 60} | keywords
    return subprocess.run([sys.executable, "-m", "posenc", *map(str, args)], **keywords)


@pytest.fixture
def pe(tmp_path):
    """Write a table with the default convention; return the path of the file."""
    path = tmp_path / "pe.npy"
    np.save(path, posenc.encode(3000, 64))
    return path


# ---- the program -------------------------------------------------------------------------------------------


@POSIX
def test_program_writes_a_table_and_prints_its_version_and_help(tmp_path):
    done = run("generate", 100, 8, "-o", tmp_path / "pe.npy")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("\n") == 1 and "100 x 8 float32" in done.stdout
    assert (np.load(tmp_path / "pe.npy") == posenc.encode(100, 8)).all()
    assert run("--version").stdout == f"posenc {posenc.__version__}\n"
    done = run()
    assert done.returncode == 0 and done.stdout == run("--help").stdout


def test_help(call):
    code, out, _ = call("--help")
    assert code == 0 and "posenc generate 10_000 512 -o pe.npy" in out
    commands = re.findall(r"^    ([a-z]+) ", out, re.MULTILINE)
    assert commands == ["generate", "verify", "identify", "check", "presets", "info", "bench", "plot"]
    for command in commands:
        code, out, _ = call(command, "--help")
        assert code == 0 and f"examples:\n  posenc {command}" in out and "help(posenc.Encoding)" in out
    for command in ("generate", "verify"):
        code, out, _ = call(command, "--help")
        assert code == 0 and all(f"--{keyword.replace('_', '-')} " in out for keyword in KEYWORDS)
        assert "an integer is exact" in " ".join(out.split()) and "urations" not in out


@pytest.mark.parametrize("openmp, text", [(0, "none: every call uses one thread"), (201511, "201511")])
def test_info(call, monkeypatch, openmp, text):
    monkeypatch.setattr(kernel, "OPENMP", openmp)
    runtime = posenc.show_runtime()
    assert json.loads(call("info", "--json")[1]) == runtime
    code, out, _ = call("info")
    assert code == 0 and re.search(rf"^openmp +{text}$", out, re.MULTILINE)
    assert all(str(value) in out for name, value in runtime.items() if name not in ("openmp", "instruction_sets"))
    assert all(name in out for name in runtime["instruction_sets"])


def test_presets(call):
    code, out, _ = call("presets")
    documents = json.loads(call("presets", "--json")[1])["presets"]
    assert code == 0
    for line, document, preset in zip(out.splitlines(), documents, posenc.presets().values(), strict=True):
        assert line.split(maxsplit=1) == [preset.name, preset.summary]
        assert (document["name"], document["summary"]) == (preset.name, preset.summary)
        assert document["parameters"] == preset.parameters and document["source"] == preset.source


def test_a_closed_pipe_gives_no_traceback():
    read, write = os.pipe()
    os.close(read)
    commands = (["info", "--json"], {141}), (["presets"], {141}), (["--help"], {0, 141})
    # --help: argparse ignores a closed pipe if stdout is unbuffered
    for arguments, codes in commands:
        done = run(*arguments, capture_output=False, stdout=write, stderr=subprocess.PIPE)
        assert done.returncode in codes and done.stderr == ""
    os.close(write)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no such device")
@pytest.mark.parametrize("arguments, unbuffered", [
    ("info", ""), ("presets", "1"), ("generate 10 8 -o {}/pe.npy", "1"),
])
def test_a_full_device_at_stdout_is_an_error(tmp_path, arguments, unbuffered):
    with open("/dev/full", "w") as full:
        done = run(*arguments.format(tmp_path).split(), capture_output=False, stdout=full,
                   stderr=subprocess.PIPE, env=os.environ | {"PYTHONUNBUFFERED": unbuffered})
    assert done.returncode == 1 and re.fullmatch(r"posenc: error: .*No space left on device\n", done.stderr)
    assert bool(os.listdir(tmp_path)) == ("pe.npy" in arguments)         # the complete file remains


@pytest.mark.skipif(sys.platform != "linux", reason="requires arbitrary bytes in file names")
@pytest.mark.parametrize("encoding, name", [("ascii", b"\xc3\xa9.npy"), ("utf-8", b"\xff.npy")])
def test_file_names_that_stdout_cannot_encode_are_escaped(tmp_path, encoding, name):
    path = os.fsdecode(os.path.join(os.fsencode(tmp_path), name))
    done = run("generate", 10, 8, "-o", path, env=os.environ | {"PYTHONIOENCODING": encoding})
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(path.encode("ascii", "backslashreplace").decode() + ": 10 x 8")


# ---- generate ----------------------------------------------------------------------------------------------

CONVENTIONS = [
    *((options_of(convention), convention) for convention in single_keywords(most=1)),
    (["--base", "100", "--scale", "2.5"], {"base": 100.0, "scale": 2.5}),
    (["--shift", "1", "--position-offset=-1e3", "--position-scale", ".25"],
     {"position_offset": -1000.0, "position_scale": 0.25, "shift": 1.0}),
    (["--preset", "whisper"], {"odd": "error", "spacing": "endpoint", "layout": "halves"}),
    (["--preset", "whisper", "--base", "500", "--layout", "interleaved"],
     {"base": 500.0, "odd": "error", "spacing": "endpoint"}),
    ([], {}),
]


@pytest.mark.parametrize("options, keywords", CONVENTIONS)
def test_generate_and_verify_support_every_convention(call, tmp_path, options, keywords):
    path, d_model = tmp_path / "pe.npy", 11 if keywords.get("odd") == "zero" else 12
    code, out, err = call("generate", 50, d_model, "-o", path, "--start", "-7", "--step", 3, "--json",
                          *options)
    assert (code, err) == (0, "")
    positions = range(-7, 143, 3)
    assert (np.load(path) == posenc.encode(positions, d_model, **keywords)).all()
    document = {"d_model": d_model, "convention": json.loads(out)["convention"]}
    assert Encoding.from_dict(document) == Encoding(d_model, **keywords)
    code, out, err = call("verify", path, "--start=-7", "--step", 3, *options)
    assert (code, err) == (0, ""), err
    if keywords:
        assert call("verify", path, "--start=-7", "--step", 3)[0] == 1


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16"])
def test_json_describes_the_file(call, tmp_path, dtype):
    path = tmp_path / "pe.npy"
    code, out, err = call("generate", 100, 8, "-o", path, "--dtype", dtype, "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert document == {
        "path": str(path), "shape": [100, 8], "dtype": dtype, "start": 0, "step": 1,
        "convention": {}, "bytes": path.stat().st_size, "version": posenc.__version__,
    }
    loaded = np.load(path)
    assert loaded.dtype == ("uint16" if dtype == "bfloat16" else dtype)
    assert loaded.tobytes() == posenc.encode(100, 8, dtype=dtype).tobytes()


def test_bfloat16_does_not_need_ml_dtypes(tmp_path):
    path = tmp_path / "pe.npy"
    for arguments in (["generate", "20", "8", "-o", path, "--dtype", "bfloat16"], ["verify", path]):
        subprocess.run(main_without("ml_dtypes", *arguments), check=True, capture_output=True)
    assert (np.load(path).view(ml_dtypes.bfloat16) == posenc.encode(20, 8, dtype="bfloat16")).all()


@pytest.mark.parametrize("n", ["1200", "1_200", "1.2e3", "12E2", "1200.0"])
def test_numbers_may_have_underscores_and_exponents(call, tmp_path, n):
    assert call("generate", n, "8e0", "-o", tmp_path / "pe.npy", "--start=-1e18", "--step=-1_000")[0] == 0
    loaded = np.load(tmp_path / "pe.npy", mmap_mode="r")
    assert loaded.shape == (1200, 8)
    assert (loaded == posenc.encode(range(-(10**18), -(10**18) - 1_200_000, -1000), 8)).all()


def test_integers_in_periods_are_exact(call, tmp_path):
    document = json.loads(call("generate", 2, 2, "-o", tmp_path / "pe.npy", "--json", "--periods=+9007199254740993")[1])
    assert document["convention"]["periods"] == [2**53 + 1]


MISTAKES = """
generate                                                N, D, -o
generate 1.5 8 -o a.npy                                 N | 1.5
generate 4_0_ 8 -o a.npy                                N | 4_0_
generate 8 1__6 -o a.npy                                D | 1__6
generate 1e999999999 8 -o a.npy                         N | 1e999999999
generate 8 -5 -o a.npy                                  D | -5
generate 8 99999999 -o a.npy                            d_model is 99999999
generate 8 8 -o a.npz                                   path is | .npy
generate 8 8 -o a.npy --key pe                          key is 'pe', but key does not apply
generate 8 8 -o -                                       path is '-', expected a suffix
generate 8 8 -o a.npy --step 0                          --step
generate 8 8 -o a.npy --start 9223372036854775803       positions
generate 8 8 -o a.npy --base=-1                         base is -1,
generate 8 8 -o a.npy --base=1_0_                       --base | 1_0_
generate 8 8 -o a.npy --position-offset 9007199254740993        position_offset is 9007199254740993
generate 8 2 -o a.npy --frequencies=+9007199254740993   frequencies[0] is 9007199254740993
generate 8 8 -o a.npy --spacing endpoint --shift 2      spacing and shift are both given
generate 7 7 -o a.npy --odd error                       d_model is 7, expected an even number with odd='error'
generate 8 4 -o a.npy --periods 90m,1D                  --periods | 90m
verify pe.npy --samples 0                               --samples
"""


@pytest.mark.parametrize("row", MISTAKES.strip().splitlines(), ids=lambda row: row.split("  ")[0])
def test_mistakes_name_the_argument_and_write_nothing(call, tmp_path, monkeypatch, row):
    arguments, fragments = re.split(r" {2,}", row)
    monkeypatch.chdir(tmp_path)
    np.save("pe.npy", posenc.encode(3, 8))
    code, out, err = call(*arguments.split())
    assert (code, out) == (2 if err.startswith("usage: posenc") else 1, "") and "error: " in err
    assert all(fragment in err.splitlines()[-1] for fragment in fragments.split(" | ")), err
    assert os.listdir(tmp_path) == ["pe.npy"]


def test_a_failed_allocation_is_reported(call, tmp_path, monkeypatch):
    def fail(*args, **keywords):
        raise MemoryError("Unable to allocate 4 GiB")

    monkeypatch.setattr(table, "row_buffer", fail)
    expected = (1, "", "posenc: error: Unable to allocate 4 GiB\n")
    assert call("generate", 10, 8, "-o", tmp_path / "pe.npy") == expected


# ---- verify ------------------------------------------------------------------------------------------------


def test_verify_accepts_a_correct_file(call, pe):
    assert json.loads(call("verify", pe, "--json")[1])["rows_compared"] == 3000
    assert json.loads(call("verify", pe, "--samples", 7, "--json")[1])["rows_compared"] == 7


def test_verify_reports_the_first_flipped_bit(call, pe):
    bits = np.load(pe, mmap_mode="r+").view(np.uint32)
    bits[2345, 17] ^= 1
    bits[2346, 0] ^= 1
    bits.flush()
    right, found = posenc.encode(range(2345, 2346), 64)[0, 17], np.load(pe)[2345, 17]
    text = f"found {found!s} ({bits[2345, 17]:#x}), expected {right!s} ({bits[2345, 17] ^ 1:#x}) with Encoding(64)"
    for options in ([], ["--json"]):
        expected = (1, "", f"posenc: error: {pe}: position 2345, column 17: {text}\n")
        assert call("verify", pe, *options) == expected


@pytest.mark.parametrize("rows, samples", [(1, 1), (10, 1), (10, 2), (10, 3), (10, 9), (10**18, 1000)])
def test_samples_are_spread(monkeypatch, rows, samples):
    chosen, zeros = [], np.zeros((1, 1), np.uint32)         # sin(0)
    read = lambda first, count: chosen.extend(range(first, first + count)) or zeros         # noqa: E731
    table = Table((rows, 1), "float32", None, 1, read, None)
    encoding = posenc.Encoding(1, frequencies=(0.0,), odd="truncate")
    monkeypatch.setattr(functions, "opened_table", lambda *args, **keywords: contextlib.nullcontext(table))
    assert posenc.verify("pe.npy", encoding=encoding, samples=samples) == samples
    assert chosen == sorted(set(chosen)) and len(chosen) == samples
    assert chosen[-1] == rows - 1 and np.diff([-1, *chosen]).max() <= -(-rows // samples)


@pytest.mark.parametrize("dtype", ["float16", "float64", "bfloat16"])
def test_verify_compares_bits(call, tmp_path, dtype):
    table = posenc.encode(10, 4, dtype=dtype)
    table[0, 2] = -0.0
    np.save(tmp_path / "pe.npy", table)     # NumPy stores ml_dtypes.bfloat16 as V2
    code, _, err = call("verify", tmp_path / "pe.npy")
    assert code == 1 and "position 0, column 2: found -0.0 (0x80" in err and "expected 0.0 (0x0)" in err


@pytest.mark.thread_unsafe          # parallel runs would truncate the same file
def test_a_file_truncated_during_reading_is_reported(pe):
    with opened_table(str(pe)) as table:
        os.truncate(pe, 5000)
        with pytest.raises(OSError, match="truncated while it was read"):
            table.read(0, 100)
