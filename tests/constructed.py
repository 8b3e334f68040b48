"""Conventions and positions that are made for one value, which lies as near to a rounding boundary as arguments allow.

Each generator yields (position, convention): column 0 or 1 of a table of d_model 2 is the value.
"""

from functools import cache
from math import ldexp

import gmpy2
import numpy as np
from gmpy2 import mpq, mpz

from adversarial import best_fractions
from reference import FORMATS, Reference, arithmetic

BITS = 4000
SMOOTH = 2**15                      # factors below it are looked for


@cache
def pi():
    return mpq(arithmetic(BITS).const_pi())


@cache
def small_primes():
    primes = [p for p in range(2, SMOOTH) if gmpy2.is_prime(p)]
    return primes, gmpy2.mpz(np.prod(np.array(primes, object)))


def split(n):
    """n as a product of a number below 2**63 and one below 2**53, or None where none is found."""
    primes, product = small_primes()
    power = product % n
    for _ in range(7):
        power = power * power % n
    smooth = gmpy2.gcd(n, power)
    parts = [n // smooth, mpz(1)]
    if parts[0] >= 2**63:
        return None
    for p in reversed(primes):
        while smooth % p == 0:
            smooth //= p
            room = [2**63 // (parts[0] * p), 2**53 // (parts[1] * p)]
            if max(room) == 0:
                return None
            parts[room[1] > room[0]] *= p
    return [int(part) for part in parts]


def near_multiples(rng, period):
    """A few pairs (a, b), a below 2**63 and b below 2**53, whose products are next to multiples of the period."""
    limit = 2 ** int(rng.integers(96, 112))
    first, second = [n for n, _ in best_fractions(period, 2**140) if n < limit // 64][-2:]
    for _ in range(200):
        # the sum of two close ones is nearly as close
        parts = split(sum(int(x) * n for x, n in zip(rng.integers(1, 48, 2), (first, second), strict=True)))
        if parts and parts[0] < 2**63 and parts[1] < 2**53:
            yield parts


def tight_scale(rng, value, dtype):
    """The float64 that takes value nearest to a half-way point of normal numbers of dtype, None where none is found."""
    precision, smallest, _ = FORMATS[dtype]
    exponent = gmpy2.get_exp(value)
    wanted = abs(mpq(value)) / mpq(2) ** (exponent + 52 - precision)
    found = [(odd, m) for odd, m in best_fractions(wanted, 2**53) if odd % 2 and odd.bit_length() == precision + 1]
    if not found:
        return None
    lift = max(0, smallest + precision - exponent)                  # above the subnormal numbers
    return ldexp(float(found[-1][1]) * rng.choice([-1.0, 1.0]), lift - 53)


def scaled(rng, position, convention, dtype):
    """The case of the column that is nearer to zero, with the scale that makes it hard."""
    reference = Reference(2, **convention)
    column, value = min(((c, reference.value(position, c, 700)) for c in (0, 1)), key=lambda pair: abs(pair[1]))
    scale = tight_scale(rng, value, dtype)
    return scale and (position, column, dict(convention, scale=scale))


def frequencies_and_scale(rng, dtype):
    """position * frequency next to a multiple of pi / 2."""
    while True:
        exponent = -int(rng.integers(0, 40))
        for position, frequency in near_multiples(rng, pi() / 2 / mpq(2) ** exponent):
            yield scaled(rng, position, {"frequencies": (ldexp(frequency, exponent),)}, dtype)


def position_scale_too(rng, dtype):
    """position * position_scale * frequency next to a multiple of pi / 2."""
    while True:
        exponent, frequency = -int(rng.integers(0, 40)), float(rng.uniform(0.1, 10))
        period = pi() / 2 / mpq(2) ** exponent / mpq(*frequency.as_integer_ratio())
        for position, scale in near_multiples(rng, period):
            yield scaled(rng, position, {"frequencies": (frequency,), "position_scale": ldexp(scale, exponent)}, dtype)


def offset_too(rng, dtype):
    """A position next to a zero, and an offset that brings it nearer."""
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
    """An angle x that scale takes to a half-way point, for a sine with an offset next to x - sin x; or a cosine of it."""
    precision, smallest, _ = FORMATS[dtype]
    while True:
        below = int(rng.integers(30, 280))                              # x is near 2**-below
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
        # where it is x - sin x as near as a float64 may be, a later term of the series decides
        offset = float(x**3 / 6 - x**5 / 120) * rng.choice([0.0, 0.5, 1.0, 1.0, 1.0, 2.0, -1.0])
        scale = sign * ldexp(factor, unit - 1 + below + odd.bit_length())
        yield position * sign, 0, {"position_offset": offset * sign, "scale": scale}


KINDS = {f.__name__: f for f in (frequencies_and_scale, position_scale_too, offset_too, ties)}


@cache                              # once for all instruction sets
def cases(kind, dtype, seed, count):
    """`count` of a kind: position, column and convention for d_model 2."""
    rng = np.random.default_rng([list(KINDS).index(kind), list(FORMATS).index(dtype), seed])
    found = []
    for case in KINDS[kind](rng, dtype):
        if case is not None:
            found.append(case)
            if len(found) == count:
                return found
    raise AssertionError("a generator goes on for ever")
