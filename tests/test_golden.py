"""Golden data as bits: a changed bit is a failed test.  golden.py makes them from the oracle, and says what they are."""

import csv
import json
from itertools import groupby
from pathlib import Path

import numpy as np

import posenc
from conftest import bits_of


def golden():
    with open(Path(__file__).with_name("golden.csv"), newline="") as file:
        rows = list(csv.DictReader(file))
    for key, group in groupby(rows, lambda row: (row["d_model"], row["dtype"], row["convention"])):
        yield int(key[0]), key[1], json.loads(key[2]), list(group)


def test_golden(isa):
    checked = 0
    for d_model, dtype, convention, rows in golden():
        positions = [float(row["position"]) if set(row["position"]) & set(".e") else int(row["position"]) for row in rows]
        columns = [int(row["column"]) for row in rows]
        expected = [int(row["bits"], 16) for row in rows]
        for kind in (int, float):
            which = [i for i, p in enumerate(positions) if type(p) is kind]
            if not which:
                continue
            table = posenc.encode(np.array([positions[i] for i in which]), d_model, dtype=dtype, **convention)
            found = bits_of(table)[range(len(which)), [columns[i] for i in which]]
            wrong = [rows[i] for i, bits in zip(which, found, strict=True) if bits != expected[i]]
            assert not wrong
            checked += len(which)
    assert checked > 500
