"""Makes golden.csv from the oracle: ``python tests/golden.py > tests/golden.csv``.

A line holds d_model, base, dtype, position, column and the expected bits in hexadecimal, and where the convention is not the
default one but for the base, its other arguments as JSON.
"""

import csv
import json
import sys
from itertools import chain

import numpy as np

from adversarial import halfway, zeros
from constructed import KINDS, cases
from reference import Reference

DTYPES = ["float64", "float32", "float16", "bfloat16"]
TABLES = [(6, 10000.0), (512, 10000.0), (64, 500000.0), (4096, 1e8)]


def ordinary_positions():
    yield from range(-3, 20)
    for k in (8, 11, 16, 24, 31, 32, 33, 52, 53, 54, 62):
        yield from (2**k - 1, 2**k, 2**k + 1, -(2**k) - 1)
    yield from (2**63 - 1, -(2**63), -(2**63) + 1)
    yield from (1_763_700_000_000_000_000, 1_763_700_000_000_000_001, 1_763_700_123_456_789_012, -1_763_700_000_000_000_000)
    yield from (0.5, -0.5, 0.1, 999.75, 1e-5, 1e-300, 5e-324, 1e15 + 0.125)


def lines():
    rng = np.random.default_rng(0)
    for d_model, base in TABLES:
        reference = Reference(d_model, base=base)
        columns = sorted({0, 1, d_model - 2, d_model - 1, *rng.integers(0, d_model, 3).tolist()})
        for position in ordinary_positions():
            for dtype in DTYPES:
                for column in columns:
                    yield d_model, base, dtype, position, column, reference.bits(position, column, dtype)
        for frequency in sorted({0, d_model // 4, d_model // 2 - 1}):
            for function, column in (("sin", 2 * frequency), ("cos", 2 * frequency + 1)):
                near_zero = [p for p, _ in zeros(frequency, reference, function, count=4)]
                for dtype in DTYPES:
                    near_half = [p for p, _ in halfway(reference, column, dtype, seed=frequency, tries=2**16, count=2)]
                    for position in (*near_zero, *(-p for p in near_zero), *near_half):
                        yield d_model, base, dtype, int(position), column, reference.bits(int(position), column, dtype)


def constructed_lines():
    for kind in KINDS:
        for dtype in DTYPES:
            for position, column, convention in cases(kind, dtype, seed=0, count=8):
                bits = Reference(2, **convention).bits(position, column, dtype)
                yield 2, 10000.0, dtype, position, column, bits, json.dumps(convention)


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["d_model", "base", "dtype", "position", "column", "bits", "convention"])
    for d_model, base, dtype, position, column, bits, *convention in chain(lines(), constructed_lines()):
        writer.writerow([d_model, base, dtype, position, column, f"{bits:x}", *convention])
