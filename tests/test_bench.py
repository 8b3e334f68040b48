"""Tests of the output of `posenc bench`, without checks of its times."""

import json
import math
import os
import subprocess

from conftest import python

# small tables, in a separate process
SMALL = """
    import sys
    from posenc import _cli
    from posenc._cli import bench
    bench.CASES = [((rows // 16, *shape), memory) for (rows, *shape), memory in bench.CASES]
    bench.ROUNDS = 2
    sys.exit(_cli.main(["bench", *sys.argv[1:]]))
    """


def bench(threads, *arguments):
    environment = os.environ | {"POSENC_NUM_THREADS": threads}
    done = subprocess.run(python(SMALL, *arguments), capture_output=True, text=True, timeout=120, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_table_is_aligned_and_complete():
    lines = bench("1").splitlines()
    assert lines[0].startswith("posenc ") and "NumPy " in lines[0]
    rows = [line for line in lines if line.startswith(("encode ", "add_to "))]
    assert len(rows) == 5 and all(len(row) == len(lines[1]) for row in rows)
    assert len(rows[0].replace(" x ", "x").split()) == len(lines[1].split())


def test_json_describes_every_row():
    document = json.loads(bench("2", "--json"))
    assert document["threads"] <= 2 and document["version"] and document["instruction_set"] and document["numpy"]
    assert len(document["rows"]) == 5
    for row in document["rows"]:
        assert row["bytes"] == math.prod(row["shape"]) * 4
        assert set(row["seconds"]) == {"posenc", "memset"}
        assert all(0 < seconds < math.inf for seconds in row["seconds"].values())
