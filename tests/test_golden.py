"""Compare encodings with the values recorded in golden.csv; golden.py describes and computes these values."""

import csv
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc
from conftest import bits_of

NUMBERS = "d_model", "position", "column", "convention"

def test_the_file_is_that_of_the_reference():
    pytest.importorskip("gmpy2")
    script = Path(__file__).with_name("golden.py")
    written = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert written.splitlines() == script.with_suffix(".csv").read_text().splitlines()


def test_golden_values(isa):
    with open(Path(__file__).with_name("golden.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) > 500
    for row in rows:
        d_model, position, column, convention = (json.loads(row[name]) for name in NUMBERS)
        table = posenc.encode(np.array(position), d_model, dtype=row["dtype"], **convention)
        bits = bits_of(table)[column]
        assert bits == int(row["bits"], 16), f"the bits are {bits:x}, not as in the row {row}"
