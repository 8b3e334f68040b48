"""Tests of the output of `posenc bench`, without checks of its times."""

import json
import math
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import posenc
from posenc._cli.bench import angle_addition

# Run the benchmark with small tables, in a separate process, because the benchmark sets the number of threads of torch.
SMALL = """
    import sys
    from posenc import _cli
    from posenc._cli import bench
    bench.CASES = [((rows // 16, *shape), memory) for (rows, *shape), memory in bench.CASES]
    bench.ROUNDS = 2
    {before}
    sys.exit(_cli.main(["bench", *sys.argv[1:]]))
    """
NO_TORCH = 'sys.modules["torch"] = None'


def bench(*arguments, before=""):
    command = [sys.executable, "-c", textwrap.dedent(SMALL).format(before=before), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_table_is_aligned_and_complete():
    lines = bench("--threads", "1").splitlines()
    assert lines[0].startswith("posenc ") and "NumPy " in lines[0] and "torch " in lines[0]
    rows = [line for line in lines if line.startswith(("encode ", "add_to "))]
    assert len(rows) == 5 and all(len(row) == len(lines[1]) for row in rows)
    assert len(rows[0].replace(" x ", "x").split()) == len(lines[1].split())


@pytest.mark.parametrize("before", ["", NO_TORCH], ids=["torch", "no torch"])
def test_json_describes_every_row(before):
    document = json.loads(bench("--json", "--threads", "2", before=before))
    assert document["threads"] <= 2 and document["version"] and document["instruction_set"] and document["numpy"]
    assert len(document["rows"]) == 5 and (document["torch"] is None or not before)
    for row in document["rows"]:
        assert row["bytes"] == math.prod(row["shape"]) * 4
        expected = {"posenc", "paused", "memset", "numpy"} | ({"torch"} if document["torch"] else set())
        assert set(row["seconds"]) == expected and all(0 < seconds < math.inf for seconds in row["seconds"].values())


@pytest.mark.parametrize("library", ["numpy", "torch"])
def test_the_compared_code_computes_the_same_table(library):
    table = np.zeros((512, 16), np.float32)
    angle_addition(pytest.importorskip(library), 512, 16, first=1000)(table)
    assert abs(table - posenc.encode(range(1000, 1512), 16)).max() < 2e-7
