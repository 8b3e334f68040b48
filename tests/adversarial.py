"""Positions at which the value in a column is close to zero or to a rounding boundary."""

from functools import lru_cache

import numpy as np
from gmpy2 import mpq

from reference import FORMATS, arithmetic

# more than the number of bits in the integer part of any angle that float64 arguments can give
EXPONENTS = 2300


def best_fractions(x, limit):
    """Yield the numerators and denominators of good approximations to `x`, with denominators up to `limit`.

    The approximations are the convergents of `x` and, between two convergents, the first and last few
    intermediate fractions.
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
    """Return the positions at which the angle is closest to a zero of the function, "sin" or "cos".

    Let w be the angle at position 1.  sin is zero where ``position * w / pi`` is an integer, and cos is zero
    where ``position * 2w / pi`` is an odd integer.  The positions are therefore the denominators of good
    rational approximations to w / pi for sin, and to 2w / pi for cos; for cos, the numerator must be odd.

    Returns
    -------
    list of (position, distance)
        The `count` closest positions, closest first, and the distance from the angle to the zero, in radians.
        The zero of sin at angle 0 is excluded.
    """
    if reference.offset:
        raise ValueError("zeros supports position_offset=0 only")
    real = arithmetic(512 + EXPONENTS)
    angle = real.mul(reference.frequency(frequency_index, real.precision), reference.position_scale)
    unit = real.const_pi() if function == "sin" else real.div(real.const_pi(), 2)
    turns = abs(mpq(real.div(angle, unit)))
    distances = {
        int(q): float(abs(q * turns - k) * mpq(unit))
        for k, q in best_fractions(turns, limit)
        if 1 <= q <= limit and (k != 0 if function == "sin" else k % 2 == 1)
    }
    return sorted(distances.items(), key=lambda pair: pair[1])[:count]


POINTS = 16  # number of leading bits of a phase; they are an index into the arrays of `circle`
FRACTION = 192  # number of bits of a phase, which is a fraction of a turn


@lru_cache(maxsize=4)
def circle(scale):
    """Return ``scale * sin`` at 2**POINTS points of a turn, as two float64 arrays to be added."""
    real = arithmetic(160)
    step = real.div(real.const_pi(), 2 ** (POINTS - 1))
    values = [real.mul(real.sin(real.mul(step, i)), scale) for i in range(2**POINTS)]
    high = np.array([float(v) for v in values])
    low = np.array([float(real.sub(v, float(v))) for v in values])
    return high, low


def evaluate(phases, scale):
    """Return ``scale * sin`` of the phases, as two float64 arrays.

    The error of their sum is about ``scale * 2**-66``.
    """
    spare = FRACTION - POINTS
    points = (phases + (1 << (spare - 1))) >> spare
    rest = (phases - (points << spare)).astype(float) * (2 * np.pi * 2.0**-FRACTION)
    points = points.astype(int)
    high, low = circle(scale)
    sin, cos = (high[(points + quarter) % 2**POINTS] for quarter in (0, 2 ** (POINTS - 2)))
    # `rest` is below 2**-14 radians: float64 is precise enough for its contribution
    small = low[points % 2**POINTS] + (cos * np.sin(rest) - 2 * sin * np.sin(rest / 2) ** 2)
    value = sin + small
    from_small = value - sin
    return value, (sin - (value - from_small)) + (small - from_small)


def halfway(reference, column, dtype, seed, tries=2**18, count=16):
    """Return integer positions at which the value in `column` is closest to a half-way point of `dtype`.

    Double-double arithmetic selects candidates among `tries` random positions, many more than `count`,
    because its errors depend on NumPy's sine; MPFR computes their distances.

    Returns
    -------
    list of (position, distance)
        The `count` closest positions, closest first, and the distance from the value to the half-way point,
        in ulps.
    """
    index, function = reference.columns[column]
    precision, smallest, _ = FORMATS[dtype]

    real = arithmetic(FRACTION + EXPONENTS)
    turn = real.div(reference.frequency(index, real.precision), real.mul(real.const_pi(), 2))
    turn = mpq(real.mul(turn, reference.position_scale)) * 2**FRACTION
    step, start = (int(x.numerator // x.denominator) for x in (turn, turn * reference.offset))
    if function == "cos":
        start += 1 << (FRACTION - 2)
    positions = np.random.default_rng(seed).integers(-(2**63), 2**63, tries).astype(object)
    high, low = evaluate((positions * step + start) % 2**FRACTION, reference.scale)

    ulps = np.ldexp(1.0, np.maximum(np.frexp(high)[1] - precision, smallest))
    units = high / ulps
    estimates = np.abs(np.abs(units - np.rint(units) + low / ulps) - 0.5)

    distances, candidates = {}, max(256, 16 * count)
    for i in np.argpartition(estimates, min(candidates, tries - 1))[:candidates]:
        units = abs(mpq(reference.value(positions[i], column, 200)) / mpq(float(ulps[i])))
        distances[positions[i]] = float(abs(units - units.numerator // units.denominator - mpq(1, 2)))
    return sorted(distances.items(), key=lambda pair: pair[1])[:count]
