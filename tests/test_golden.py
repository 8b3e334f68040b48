"""Compare encodings with the values recorded in golden.csv; golden.py describes and computes these values."""

import csv
import json
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import numpy as np
import pytest

import posenc
from conftest import bits_of


def golden():
    with open(Path(__file__).with_name("golden.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    for key, group in groupby(rows, lambda row: (row["d_model"], row["dtype"], row["convention"])):
        yield int(key[0]), key[1], json.loads(key[2]), list(group)


def test_the_file_is_that_of_the_reference():
    pytest.importorskip("gmpy2")
    script = Path(__file__).with_name("golden.py")
    written = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout
    assert written.splitlines() == script.with_suffix(".csv").read_text().splitlines()


def test_golden_values(isa):
    checked = 0
    for d_model, dtype, convention, rows in golden():
        positions = [float(row["position"]) if set(row["position"]) & set(".e") else int(row["position"])
                     for row in rows]
        columns = [int(row["column"]) for row in rows]
        expected = [int(row["bits"], 16) for row in rows]
        for number in (int, float):
            chosen = [i for i, p in enumerate(positions) if type(p) is number]
            if not chosen:
                continue
            table = posenc.encode(np.array([positions[i] for i in chosen]), d_model, dtype=dtype,
                                  **convention)
            actual = bits_of(table)[range(len(chosen)), [columns[i] for i in chosen]]
            for i, bits in zip(chosen, actual.tolist(), strict=True):
                assert bits == expected[i], f"the bits are {bits:x}, not as in the row {rows[i]}"
            checked += len(chosen)
    assert checked > 500
