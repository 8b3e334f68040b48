"""Write golden.csv from the reference: ``python tests/golden.py > tests/golden.csv``.

Most tests of values compute the reference when they run, which needs gmpy2.  For systems without gmpy2,
golden.csv holds a few correct values of every kind:

- ``tables``: small, large, negative, fractional and tiny positions, in columns of high and low frequency for
  two values of
  d_model; and two positions for each keyword of a convention;
- ``near_zeros``: for a few columns, the 64-bit position at which the value is closest to zero;
- ``near_halfway``: positions at which the value is close to a half-way point of its dtype;
- ``limits``: ties, the largest numbers and the subnormal numbers of each dtype;
- ``constructed``: cases of constructed.py; the hardest ones need an evaluation with more than 320 bits.

Each line holds d_model, dtype, position, column, the expected bits in hexadecimal, and the convention as
JSON.
"""

import csv
import json
import sys
from itertools import chain
from math import ldexp

from adversarial import halfway, zeros
from constructed import KINDS, cases
from keywords import single_keywords
from reference import FORMATS, Reference

POSITIONS = [1, -3, 2**24 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 1_763_700_000_000_000_001, 0.1, -999.75,
             1e15 + 0.125, 1e-300]
# (d_model, frequency index, base): an ordinary column, and the columns with the hardest known zeros
HARD = [(512, 0, 10000.0), (512, 88, 10000.0), (4096, 990, 1e8)]


def tables():
    """Yield tuples (d_model, dtype, position, column, convention).

    All generators in this file yield such tuples.
    """
    for dtype in FORMATS:
        for position in POSITIONS:
            for column in (0, 1, 254, 511):
                yield 512, dtype, position, column, {}
            yield 4096, dtype, position, 1980, {"base": 1e8}
        for convention in single_keywords(most=1):
            for position, column in ((1_763_700_000_000_000_001, 5), (-999.75, 8)):
                yield 11, dtype, position, column, convention


def near_zeros():
    for d_model, frequency, base in HARD:
        reference = Reference(d_model, base=base)
        for function, column in (("sin", 2 * frequency), ("cos", 2 * frequency + 1)):
            ((position, _),) = zeros(frequency, reference, function, count=1)
            for dtype in FORMATS:
                yield d_model, dtype, position, column, {"base": base}


def near_halfway():
    for d_model, frequency, base in HARD:
        reference = Reference(d_model, base=base)
        for column in (2 * frequency, 2 * frequency + 1):
            for dtype in FORMATS:
                ((position, _),) = halfway(reference, column, dtype, seed=frequency, tries=2**16, count=1)
                yield d_model, dtype, int(position), column, {"base": base}


def limits():
    for dtype, (precision, smallest, _) in FORMATS.items():
        # sin x rounds as x does; x is between two subnormal numbers or below the smallest (in float64,
        # subnormal or 0)
        for units in (-3.3, 0.6, 0.4):
            yield 2, dtype, ldexp(units, smallest), 0, {}
        if dtype == "float64":
            continue                    # no float64 arguments give a tie or an overflow in float64
        highest = ldexp(2 - 2.0**-precision, {"float32": 127, "float16": 15, "bfloat16": 127}[dtype])
        for scale in (highest, -highest, 1 + 2.0**-precision, 1 + 3 * 2.0**-precision):
            for position in (0, 1e-300):            # a tie, and a value just below it in magnitude
                yield 2, dtype, position, 1, {"scale": scale}


def constructed():
    for kind in KINDS:
        for dtype in FORMATS:
            for case in cases(kind, dtype, seed=0, count=8):
                yield 2, dtype, *case


if __name__ == "__main__":
    writer = csv.writer(sys.stdout, lineterminator="\n")
    writer.writerow(["d_model", "dtype", "position", "column", "bits", "convention"])
    for d_model, dtype, position, column, convention in chain(tables(), near_zeros(), near_halfway(),
                                                              limits(), constructed()):
        bits = Reference(d_model, **convention).bits(position, column, dtype)
        writer.writerow([d_model, dtype, position, column, f"{bits:x}", json.dumps(convention)])
