"""Positions that are hard for one column: next to a zero, or next to a rounding boundary."""

from functools import lru_cache

import gmpy2
import numpy as np
from gmpy2 import mpq

from reference import FORMATS, Reference, arithmetic, exact


def best_fractions(x, limit):
    """Fractions k / q with q <= limit that lie closest to x for their size: convergents and those between.

    Between two convergents only the outermost few are taken, a partial quotient can be huge.
    """
    (k0, q0), (k, q) = (0, 1), (1, 0)
    while True:
        whole = x.numerator // x.denominator
        most = whole if q == 0 else min(whole, (limit - q0) // q)
        for a in sorted({a for a in (1, 2, 3, most - 2, most - 1, most) if 1 <= a <= most} | {most}):
            yield k0 + a * k, q0 + a * q
        if most < whole or x == whole:
            return
        (k0, q0), (k, q) = (k, q), (k0 + whole * k, q0 + whole * q)
        x = 1 / (x - whole)


def zeros(frequency_index, reference, function, count, limit=2**63 - 1):
    """Positions at which a column comes closest to a zero of its function.

    With w the angle of one position, sin vanishes where ``position * w / pi`` is a whole number and
    cos where ``position * 2w / pi`` is an odd one: the positions are the denominators of good
    rational approximations to w / pi, and of those to 2w / pi that have an odd numerator.

    Returns
    -------
    list of (position, distance)
        The `count` closest, closest first; the distance is that of the angle to the zero, in radians.
        The zero of sin at angle 0 does not count.
    """
    if reference.offset:
        raise ValueError("zeros are found for position_offset=0 only")
    precision = 512 + 1100  # 2**1024 turns and a 64-bit position leave bits enough
    real = arithmetic(precision)
    angle = real.mul(reference.frequency(frequency_index, precision), reference.position_scale)
    unit = real.const_pi() if function == "sin" else real.div(real.const_pi(), 2)
    turns = abs(mpq(real.div(angle, unit)))
    found = {
        int(q): float(abs(q * turns - k) * mpq(unit))
        for k, q in best_fractions(turns, limit)
        if 1 <= q <= limit and (k != 0 if function == "sin" else k % 2 == 1)
    }
    return sorted(found.items(), key=lambda pair: pair[1])[:count]


POINTS = 16  # bits of the phase that pick a point of the table


@lru_cache(maxsize=2)
def circle(scale):
    """scale * sin at 2**POINTS points of a full turn, each the sum of two float64."""
    real = arithmetic(160)
    step = real.div(real.const_pi(), 2 ** (POINTS - 1))
    values = [real.mul(real.sin(real.mul(step, i)), scale) for i in range(2**POINTS)]
    high = np.array([float(v) for v in values])
    low = np.array([float(real.sub(v, float(v))) for v in values])
    return high, low


def closeness(high, low, dtype):
    """Distance in ulps of high + low from the nearest half-way point of `dtype`."""
    precision, smallest, _ = FORMATS[dtype]
    ulp = np.ldexp(1.0, np.maximum(np.frexp(high)[1] - precision, smallest))
    units = high / ulp
    return np.abs(np.abs(units - np.rint(units) + low / ulp) - 0.5)


def halfway(reference, column, dtype, seed, tries=2**18, count=16):
    """Integer positions whose value in `column` lies closest to a rounding boundary of `dtype`.

    Scans `tries` random positions in double-double arithmetic, good to about 2**-65, and measures the
    best with MPFR.

    Returns
    -------
    list of (position, distance)
        The `count` closest, closest first; the distance is that to the half-way point, in ulps.
    """
    index, function = reference.columns[column]
    fraction = 192
    real = arithmetic(fraction + 64 + 1100)
    turn = real.div(reference.frequency(index, real.precision), real.mul(real.const_pi(), 2))
    turn = int(gmpy2.floor(real.mul(turn, 1 << fraction)))
