"""Tests of the output of `posenc bench`, without checks of its times."""

import json
import math
import subprocess
import sys
import textwrap
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc import _cli
from posenc._cli.bench import recipe

# Run the benchmark with small tables, in a separate process, because the benchmark sets the number of threads of torch.
SMALL = """
    import sys
    from posenc import _cli
    from posenc._cli import bench
    bench.CASES = [((rows // 16, *shape), *case) for (rows, *shape), *case in bench.CASES]
    bench.SECONDS = 0.02
    {before}
    sys.exit(_cli.main(["bench", *sys.argv[1:]]))
    """
COLUMNS = ["call", "shape", "dtype", "memory", "threads", "ms", "paused", "share", "torch", "NumPy"]
NO_TORCH = 'sys.modules["torch"] = None'
OPTIONAL = ["dask", "matplotlib", "ml_dtypes", "safetensors", "torch", "tqdm", "zarr"]      # the extras of pyproject.toml
QUIET, UNKNOWN = ("bench.used_by_others = lambda: " + value for value in ("0.0", "None"))


def bench(*arguments, before=""):
    command = [sys.executable, "-c", textwrap.dedent(SMALL).format(before=before), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_table_is_aligned_and_complete():
    text = bench("--threads", "1")
    lines = text.splitlines()
    assert len(lines) <= 13 and max(map(len, lines)) <= 82
    assert lines[0].startswith("posenc ") and "NumPy " in lines[0] and "torch " in lines[0]
    assert lines[1].split() == COLUMNS
    rows = [line for line in lines if line.startswith(("encode ", "add_to "))]
    assert len(rows) == (5 if find_spec("ml_dtypes") else 4) and "float32  fresh " in rows[0]
    assert all(len(row) == len(lines[1]) and row[39:46] == f"{1:7}" for row in rows)


def test_json_describes_every_row():
    document = json.loads(bench("--json", "--threads", "2"))
    assert document["threads"] <= 2 and document["version"] and document["instruction_set"] and document["numpy"]
    assert [row["memory"] for row in document["rows"]] == ["fresh"] + (4 if find_spec("ml_dtypes") else 3) * ["reused"]
    for row in document["rows"]:
        assert row["bytes"] == math.prod(row["shape"]) * (2 if row["dtype"] == "bfloat16" else 4)
        assert {"posenc", "paused", "memset"} <= set(row["seconds"]) <= {"posenc", "paused", "memset", "torch", "numpy"}
        assert ("numpy" in row["seconds"]) == (row["dtype"] == "float32")
        assert ("torch" in row["seconds"]) == (document["torch"] is not None)
        assert all(0 < seconds < math.inf for seconds in row["seconds"].values())


@pytest.mark.parametrize("hidden", [["torch"], OPTIONAL], ids="-".join)
def test_packages_that_are_not_installed_are_left_out(hidden):
    before = f"sys.modules |= dict.fromkeys({hidden})"
    text, document = bench(before=before), json.loads(bench("--json", before=before))
    for name, line in (("torch", ", torch is not"), ("ml_dtypes", "bfloat16 is left out, because ml_dtypes is not")):
        assert (document[name] is None) == (f"{line} installed" in text)
        assert document[name] is None or name not in hidden
    assert ("bfloat16" in {row["dtype"] for row in document["rows"]}) == (document["ml_dtypes"] is not None)


def test_the_compared_recipes_compute_the_same_table():
    table = np.zeros((100, 16), np.float32)
    recipe(np, table, False)
    assert np.allclose(table, posenc.encode(100, 16), atol=1e-5)
    torch = pytest.importorskip("torch")
    tensor = torch.zeros(100, 16)
    recipe(torch, tensor, False)
    assert np.allclose(tensor, posenc.encode(100, 16), atol=1e-4)


@pytest.mark.skipif(not Path("/proc/stat").exists(), reason="the load of other processes is unknown")
def test_a_busy_process_causes_a_warning():
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        try:
            text = bench("--threads", "1", before=NO_TORCH)
        finally:
            busy.kill()
    assert "\nwarning: other processes used " in text


@pytest.mark.parametrize("before", [QUIET, UNKNOWN])
def test_an_idle_or_unknown_load_causes_no_warning(before):
    assert "warning" not in bench(before=f"{NO_TORCH}\n{before}")


def test_invalid_numbers_of_threads_are_usage_errors(capsys):
    for number in ("0", "some"):
        assert _cli.main(["bench", "--threads", number]) == 2
    assert "--threads is '0', expected at least 1" in capsys.readouterr().err
