"""Positions and conventions, constructed to bring one value very close to a half-way point.

Each generator yields cases (position, column, convention) with d_model 2, or None if a search fails.
"""

from functools import cache
from itertools import islice
from math import ldexp

import gmpy2
import numpy as np
from gmpy2 import mpq, mpz

from adversarial import best_fractions
from reference import FORMATS, Reference, arithmetic

BITS = 4000
SMOOTH = 2**15                      # `split` finds prime factors below this limit


@cache
def pi():
    return mpq(arithmetic(BITS).const_pi())


@cache
def small_primes():
    primes = [p for p in range(2, SMOOTH) if gmpy2.is_prime(p)]
    return primes, gmpy2.mpz(np.prod(np.array(primes, object)))


def split(n):
    """Return two factors of n, one below 2**63 and one below 2**53, or None if the search fails."""
    primes, product = small_primes()
    power = product % n
    for _ in range(7):
        power = power * power % n
    smooth = gmpy2.gcd(n, power)
    factors = [n // smooth, mpz(1)]
    if factors[0] >= 2**63:
        return None
    for p in reversed(primes):
        while smooth % p == 0:
            smooth //= p
            headroom = [2**63 // (factors[0] * p), 2**53 // (factors[1] * p)]
            if max(headroom) == 0:
                return None
            factors[headroom[1] > headroom[0]] *= p
    return [int(factor) for factor in factors]


def near_multiples(rng, period):
    """Yield pairs (a, b) whose product is close to a multiple of `period`, with a < 2**63 and b < 2**53."""
    limit = 2 ** int(rng.integers(96, 112))
    first, second = [n for n, _ in best_fractions(period, 2**140) if n < limit // 64][-2:]
    for _ in range(200):
        # `first` and `second` are close to multiples of the period, and so are their combinations with small
        # coefficients
        factors = split(sum(int(x) * n for x, n in zip(rng.integers(1, 48, 2), (first, second), strict=True)))
        if factors and factors[0] < 2**63 and factors[1] < 2**53:
            yield factors


def tight_scale(rng, value, dtype):
    """Return the scale that brings `value` closest to a half-way point of normal numbers of `dtype`, or None."""
    precision, smallest, _ = FORMATS[dtype]
    exponent = gmpy2.get_exp(value)
    ratio = abs(mpq(value)) / mpq(2) ** (exponent + 52 - precision)
    scales = [m for odd, m in best_fractions(ratio, 2**53) if odd % 2 and odd.bit_length() == precision + 1]
    if not scales:
        return None
    lift = max(0, smallest + precision - exponent)                  # avoid subnormal results
    return ldexp(float(scales[-1]) * rng.choice([-1.0, 1.0]), lift - 53)


def scaled(rng, position, convention, dtype):
    """Return the case for the column whose value is closer to zero; `tight_scale` chooses its scale."""
    reference = Reference(2, **convention)
    column, value = min(((c, reference.value(position, c, 700)) for c in (0, 1)),
                        key=lambda pair: abs(pair[1]))
    scale = tight_scale(rng, value, dtype)
    return scale and (position, column, dict(convention, scale=scale))


def frequencies_and_scale(rng, dtype):
    """Yield cases with position * frequency close to a multiple of pi / 2."""
    while True:
        exponent = -int(rng.integers(0, 40))
        for position, frequency in near_multiples(rng, pi() / 2 / mpq(2) ** exponent):
            yield scaled(rng, position, {"frequencies": (ldexp(frequency, exponent),)}, dtype)


def position_scale_too(rng, dtype):
    """Yield cases with position * position_scale * frequency close to a multiple of pi / 2."""
    while True:
        exponent, frequency = -int(rng.integers(0, 40)), float(rng.uniform(0.1, 10))
        period = pi() / 2 / mpq(2) ** exponent / mpq(*frequency.as_integer_ratio())
        for position, scale in near_multiples(rng, period):
            yield scaled(rng, position,
                         {"frequencies": (frequency,), "position_scale": ldexp(scale, exponent)}, dtype)


def offset_too(rng, dtype):
    """Yield cases with a position close to a zero of sin or cos, and an offset that brings the angle even
    closer to it.
    """
    while True:
        position_scale = ldexp(float(rng.uniform(1, 2)), int(rng.integers(-30, 30)))
        frequency = float(rng.uniform(0.5, 4))
        period = pi() / 2 / (mpq(*position_scale.as_integer_ratio()) * mpq(*frequency.as_integer_ratio()))
        best = [(p, k) for p, k in best_fractions(period, 2**70) if 0 < p < 2**63]
        position, k = best[-1 - int(rng.integers(0, min(4, len(best))))]
        position = int(position)
        offset = float(k * period - position)
        convention = {"frequencies": (frequency,), "position_scale": position_scale, "position_offset": offset}
        yield scaled(rng, position, convention, dtype)


def ties(rng, dtype):
    """Yield cases with a tiny angle x, and a scale that brings sin x or cos x close to a half-way point.

    For sin x, an offset close to x - sin x cancels the terms after x in the series.
    """
    precision, smallest, _ = FORMATS[dtype]
    while True:
        below = int(rng.integers(30, 280))                              # x is below 2**-below
        cosine, subnormal = rng.integers(4) == 0, rng.integers(3) == 0
        odd = 2 * int(rng.integers(2 ** (precision - 1), 2**precision)) + 1
        unit = smallest if cosine else smallest + int(rng.integers(0, 12))
        if subnormal:
            odd >>= int(rng.integers(1, precision))
            odd, unit = odd | 1, smallest
        factor = 3 if odd % 3 == 0 else 1
        position = ldexp(odd // factor, -below - odd.bit_length())
        sign = rng.choice([-1.0, 1.0])
        if odd // factor >= 2**53 or cosine and odd >= 2**53:
            continue
        if cosine:
            yield position, 1, {"scale": sign * ldexp(odd, unit - 1)}
            continue
        x = mpq(*position.as_integer_ratio())
        # with the multiplier 1.0, the offset is the float64 closest to x - sin x, and a later term decides
        # the rounding
        offset = float(x**3 / 6 - x**5 / 120) * rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 2.0, -1.0])
        scale = sign * ldexp(factor, unit - 1 + below + odd.bit_length())
        yield position * sign, 0, {"position_offset": offset * sign, "scale": scale}


def ordinary_values(rng, dtype):
    """Yield cases with a value of ordinary size, and a scale that brings it close to a half-way point."""
    while True:
        position, convention = int(rng.integers(-(2**62), 2**62)), {"frequencies": (float(rng.uniform(1e-4, 3)),)}
        scale = tight_scale(rng, Reference(2, **convention).value(position, 0, 400), dtype)
        yield scale and (position, 0, dict(convention, scale=scale))

KINDS = {f.__name__: f for f in (frequencies_and_scale, position_scale_too, offset_too, ties, ordinary_values)}


@cache                              # shared by the tests of all instruction sets
def cases(kind, dtype, seed, count):
    """Return `count` cases of one kind, each a tuple (position, column, convention)."""
    rng = np.random.default_rng([list(KINDS).index(kind), list(FORMATS).index(dtype), seed])
    return list(islice((case for case in KINDS[kind](rng, dtype) if case is not None), count))
