"""Frequencies in turns per position, with 256 significant bits or more.

The integer ``floor(w / (2 pi) * 2**fraction_bits)``, with an error below two units, represents the frequency
w.  The smallest frequency of an encoding determines ``fraction_bits``.  The kernel computes with
`SIGNIFICANT_BITS`, which docs/numerics.md derives; `exact.py` computes with more bits.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, repeat
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

SIGNIFICANT_BITS = 256
GUARD_BITS = 64
ERROR = decimal.Decimal("1e-50")        # relative, of products of up to 2**24 ratios
MAX_BITS = 1 << 20     # of the powers by which a half-way point is recognised
DIGITS = 60             # decimal digits of frequencies that are rounded to float64
LIMB_BITS = 32
Powers: TypeAlias = Sequence[tuple[float | Fraction, Fraction]]      # (base, divisor): the factors base**(-i / divisor)
MAX_EXTREME, WIDE_EXPONENT = 2**14, 128            # more frequencies must be within 2**-128 to 2**128 turns per position
MIN_EXPONENT, GREATEST_EXPONENT = -3400, 2200     # log2 of the turns per position that the kernel's limbs can hold


@lru_cache(maxsize=8)
def pi(bits: int) -> int:
    """Return ``pi * 2**bits`` as an integer, with an error below 1.001, by Machin's formula."""
    guard = 16 + bits.bit_length()          # truncated terms change the sum by less than 8 * bits

    def arccot(x: int) -> int:
        total = term = (1 << bits + guard) // x
        square, sign, k = x * x, -1, 3
        while term:
            term //= square
            total += sign * (term // k)
            sign, k = -sign, k + 2
        return total

    return (16 * arccot(5) - 4 * arccot(239)) >> guard


def _log2(x: float | Fraction) -> float:
    if isinstance(x, Fraction):             # a fraction may exceed the range of float64
        return math.log2(x.numerator) - math.log2(x.denominator)
    mantissa, exponent = math.frexp(x)
    return exponent + math.log2(mantissa)


def _over_two_pi(numerator: int, bits: int) -> int:
    """Return ``numerator / (2 pi) * 2**bits`` as an integer, with an error below 1.001."""
    precision = bits + numerator.bit_length() + GUARD_BITS
    return (numerator << bits + precision) // (2 * pi(precision))


def decimal_context(digits: int) -> decimal.Context:
    """Return a context with the default rounding.  The program's current context could trap inexact results or floats."""
    return decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, clamp=0, traps=[decimal.InvalidOperation]
    )


def decimal_quotient(context: decimal.Context, x: float | Fraction) -> decimal.Decimal:
    """Return a rational number as a Decimal."""
    return context.divide(*map(decimal.Decimal, Fraction(x).as_integer_ratio()))


def _slope(powers: Powers) -> float:
    """Return the difference between the base-2 logarithms of successive frequencies."""
    logarithms = (_log2(base) if isinstance(base, Fraction) else math.log2(base) for base, _ in powers)
    # a divisor may exceed the range of float64
    return -math.fsum(float(Fraction(logarithm) / divisor) for logarithm, (_, divisor) in zip(logarithms, powers, strict=True))


@lru_cache(maxsize=256)
def _ratio(digits: int, powers: Powers) -> decimal.Decimal:
    """Return the ratio of successive frequencies, ``prod(base**(-1 / divisor))``, as an exponential of a sum of logarithms."""
    context, exponent = decimal_context(digits), decimal.Decimal(0)
    for base, divisor in powers:
        quotient = context.divide(context.ln(decimal_quotient(context, base)), decimal_quotient(context, divisor))
        exponent = context.subtract(exponent, quotient)
    return context.exp(exponent)


def _geometric(first: int, count: int, powers: Powers, bits: int) -> list[int]:
    """Return ``first * base**(-i / divisor)`` for i = 0 ... count - 1, in the unit of `first`, which is 2**-bits turns.

    Each product is the previous one times the ratio; `bits` includes `GUARD_BITS`, which absorb the errors.
    """
    if count <= 1 or all(base == 1 for base, _ in powers):
        return [first] * count
    digits = math.ceil((bits + math.ceil(abs(_slope(powers)))) * math.log10(2)) + 40
    ratio = int(decimal_context(digits).multiply(_ratio(digits, tuple(powers)), decimal.Decimal(1 << bits)))
    return list(accumulate(repeat(ratio, count - 1), lambda product, ratio: product * ratio >> bits, initial=first))


def _check_range(lowest: float, highest: float, count: int) -> None:
    if count > MAX_EXTREME and max(-lowest, highest) > WIDE_EXPONENT:
        expected = f"2**-{WIDE_EXPONENT} to 2**{WIDE_EXPONENT} for more than {MAX_EXTREME} frequencies, to limit the memory"
        raise ValueError(f"frequencies range from 2**{lowest:.0f} to 2**{highest:.0f} turns per position, expected {expected}")
    if lowest < MIN_EXPONENT or highest > GREATEST_EXPONENT:
        raise ValueError(
            f"frequencies range from 2**{lowest:.0f} to 2**{highest:.0f} turns per position, "
            f"expected 2**{MIN_EXPONENT} to 2**{GREATEST_EXPONENT}"
        )


def _fraction_bits(lowest: float, significant: int) -> int:
    """Return the number of fraction bits, a multiple of LIMB_BITS, with which 2**lowest turns have `significant` bits."""
    bits = significant + max(0, math.ceil(-lowest) + 1)
    return -(-bits // LIMB_BITS) * LIMB_BITS


def spaced_turns(
    count: int, powers: Powers, scales: Sequence[float | Fraction], significant: int = SIGNIFICANT_BITS
) -> tuple[list[int], int]:
    """Return the turns per position of the frequencies ``prod(scales) * prod(base**(-i / divisor))``, and `fraction_bits`.

    Each result is an integer in units of ``2**-fraction_bits``, with at least `significant` bits and the sign
    of the frequency.
    """
    if count == 0 or 0 in scales:
        return [0] * count, significant
    scale = math.prod((Fraction(s) for s in scales), start=Fraction(1))
    first = _log2(abs(scale)) - _log2(2 * math.pi)
    last_exponent = first + (count - 1) * _slope(powers) if count > 1 else first
    _check_range(min(first, last_exponent), max(first, last_exponent), count)
    fraction_bits = _fraction_bits(min(first, last_exponent), significant)
    bits = fraction_bits + GUARD_BITS + math.ceil(abs(first)) + math.ceil(abs(last_exponent))
    turn, drop = _over_two_pi(abs(scale.numerator), bits) // scale.denominator, bits - fraction_bits
    turns = [product >> drop for product in _geometric(turn, count, powers, bits)]
    return turns if scale > 0 else [-t for t in turns], fraction_bits


def explicit_turns(
    frequencies: Sequence[float], scale: float, significant: int = SIGNIFICANT_BITS
) -> tuple[list[int], int]:
    """Return the turns per position of frequencies times `scale`, and `fraction_bits`: see `spaced_turns`."""
    products = [Fraction(w) * Fraction(scale) for w in frequencies]
    sizes = [_log2(abs(w)) + _log2(abs(scale)) - _log2(2 * math.pi) for w, x in zip(frequencies, products, strict=True) if x]
    if not sizes:
        return [0] * len(products), significant
    _check_range(min(sizes), max(sizes), len(products))
    fraction_bits = _fraction_bits(min(sizes), significant)
    precision = fraction_bits + max(0, math.ceil(max(sizes))) + GUARD_BITS
    two_pi = 2 * pi(precision)
    turns = [(abs(x.numerator) << fraction_bits + precision) // (two_pi * x.denominator) for x in products]
    return [t if x >= 0 else -t for t, x in zip(turns, products, strict=True)], fraction_bits


class RationalTurns:
    """Computes the turns per position of frequencies that are rational numbers: see `spaced_turns`."""

    def __init__(self, exact: Sequence[Fraction]) -> None:
        self.exact = exact

    def __call__(self, significant: int = SIGNIFICANT_BITS) -> tuple[list[int], int]:
        sizes = [_log2(abs(t)) for t in self.exact if t] or [0.0]
        _check_range(min(sizes), max(sizes), len(sizes))
        fraction_bits = _fraction_bits(min(sizes), significant)
        turns = [(abs(t.numerator) << fraction_bits) // t.denominator for t in self.exact]
        return [k if t >= 0 else -k for k, t in zip(turns, self.exact, strict=True)], fraction_bits

    def phase_bits(self) -> int:
        """Return b: a product of an integer and a frequency is a multiple of a quarter turn, or 2**-b turns away from one."""
        return 2 + max((t.denominator.bit_length() for t in self.exact), default=0)

    def radians(self) -> list[float]:
        """Return the frequencies in radians per position, rounded to float64."""
        bits = SIGNIFICANT_BITS
        return [float(t * Fraction(2 * pi(bits), 1 << bits)) for t in self.exact]


def limbs_of(turns: Sequence[int], fraction_bits: int) -> tuple[NDArray[np.uint32], int]:
    """Return the magnitudes of `turns` as 32-bit limbs, highest first, and the number of limbs that hold whole turns.

    The limbs are an ndarray of uint32, shape (limbs, len(turns)).
    """
    magnitudes = list(map(abs, turns))
    widest = max(magnitudes, default=0).bit_length()
    integer_limbs = max(0, -(-(widest - fraction_bits) // LIMB_BITS))
    count = integer_limbs + fraction_bits // LIMB_BITS
    data = b"".join([t.to_bytes(4 * count, "big") for t in magnitudes])
    matrix = np.frombuffer(data, ">u4").reshape(len(turns), count).T
    return np.ascontiguousarray(matrix, np.uint32), integer_limbs


def spaced_float64(count: int, powers: Powers, scale: float | Fraction) -> NDArray[np.float64]:
    """Return the frequencies ``scale * prod(base**(-i / divisor))`` in radians per position, rounded once to float64.

    A frequency beyond the range of float64 is returned as 0 or infinity, even if its product with the
    `position_scale` of the encoding is in the range.
    """
    context = decimal_context(DIGITS)
    frequency, ratio = decimal_quotient(context, scale), _ratio(DIGITS, tuple(powers)) if count > 1 else decimal.Decimal(1)
    values, below, above = np.zeros(count), context.subtract(1, ERROR), context.add(1, ERROR)
    for i in range(count if scale else 0):
        low, high = float(context.multiply(frequency, below)), float(context.multiply(frequency, above))
        values[i] = low if low == high else _nearest(low, high, i, powers, Fraction(scale))
        frequency = context.multiply(frequency, ratio)
    return values


def _nearest(low: float, high: float, i: int, powers: Powers, scale: Fraction) -> float:
    """Return frequency i, which is next to the half-way point of two floats, rounded to one of them; `low` is nearer to 0."""
    ends = [Fraction(x) if math.isfinite(x) else Fraction(int(math.copysign(1, x)) << 1024) for x in (low, high)]
    half = sum(ends, start=Fraction(0)) / 2
    terms = [(Fraction(base), -i / divisor) for base, divisor in powers]
    root = math.lcm(*(exponent.denominator for _, exponent in terms))
    # powers of more bits differ, because `half` has 54 bits
    sizes = [(half / scale, Fraction(1)), *terms]
    bits = sum(root * abs(exponent) * sum(map(abs, base.as_integer_ratio())).bit_length() for base, exponent in sizes)
    is_tie = bits < MAX_BITS and (half / scale) ** root == math.prod(base ** int(root * exponent) for base, exponent in terms)
    for digits in () if is_tie else (4 * DIGITS, 64 * DIGITS):
        context = decimal_context(digits)
        ratio = context.power(_ratio(digits, tuple(powers)), decimal.Decimal(i))
        excess = Fraction(context.multiply(decimal_quotient(context, scale), ratio)) / half - 1
        if abs(excess) * 10 ** (digits - 20) > 1:
            return high if excess > 0 else low
    return high if np.float64(low).view(np.uint64) & np.uint64(1) else low         # to even
