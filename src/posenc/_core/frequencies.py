"""Frequencies in turns per position, with 256 significant bits or more.

The integer ``floor(w / (2 pi) * 2**fraction_bits)``, with an error below two units, represents the frequency
w.  The smallest frequency of an encoding determines ``fraction_bits``.  The kernel computes with
`SIGNIFICANT_BITS`, which docs/numerics.md derives; `exact.py` computes with more bits.
"""

from __future__ import annotations

import decimal
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._core import kernel

SIGNIFICANT_BITS = 256
GUARD_BITS = 64
LIMB_BITS = 32
LOG2_TWO_PI = math.log2(2 * math.pi)
# (base, divisor) for each factor base**(-i / divisor)
Powers: TypeAlias = Sequence[tuple[float | Fraction, Fraction]]
# if there are more than MAX_EXTREME frequencies, they must be within 2**-128 to 2**128 turns per position
MAX_EXTREME, WIDE_EXPONENT = 2**14, 128
# smallest and largest log2 of the turns per position that the kernel's limbs can hold
MIN_EXPONENT, GREATEST_EXPONENT = -3400, 2200


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


def _log2(x: Fraction) -> float:
    return math.log2(x.numerator) - math.log2(x.denominator)     # a fraction may exceed the range of float64


def decimal_context(digits: int) -> decimal.Context:
    """Return a context with the default rounding.

    The program's current context could raise an exception for an inexact result or a float.
    """
    return decimal.Context(
        digits, decimal.ROUND_HALF_EVEN, decimal.MIN_EMIN, decimal.MAX_EMAX, clamp=0, traps=[decimal.InvalidOperation]
    )


def decimal_quotient(context: decimal.Context, x: float | Fraction) -> decimal.Decimal:
    """Return a rational number as a Decimal."""
    return context.divide(*map(decimal.Decimal, Fraction(x).as_integer_ratio()))


def _slope(powers: Powers) -> float:
    """Return the difference between the base-2 logarithms of successive frequencies."""
    logarithms = (_log2(base) if isinstance(base, Fraction) else math.log2(base) for base, _ in powers)
    return -math.fsum(x * (divisor.denominator / divisor.numerator) for x, (_, divisor) in zip(logarithms, powers, strict=True))


@lru_cache(maxsize=256)
def _ratio(digits: int, powers: Powers) -> decimal.Decimal:
    """Return the ratio of successive frequencies, ``prod(base**(-1 / divisor))``.

    It is the exponential of a sum of logarithms.
    """
    context, exponent = decimal_context(digits), decimal.Decimal(0)
    for base, divisor in powers:
        quotient = context.divide(context.ln(decimal_quotient(context, base)), decimal_quotient(context, divisor))
        exponent = context.subtract(exponent, quotient)
    return context.exp(exponent)


def _check_range(lowest: float, highest: float, count: int) -> None:
    low, high, reason = MIN_EXPONENT, GREATEST_EXPONENT, ""
    if count > MAX_EXTREME:
        low, high, reason = -WIDE_EXPONENT, WIDE_EXPONENT, f" for more than {MAX_EXTREME} frequencies, to limit the memory"
    if lowest < low or highest > high:
        found = f"frequencies range from 2**{lowest:.0f} to 2**{highest:.0f} turns per position"
        raise ValueError(f"{found}, expected 2**{low} to 2**{high}{reason}")


def _fraction_bits(lowest: float, significant: int) -> int:
    """Return the number of fraction bits, a multiple of LIMB_BITS, that give 2**lowest turns `significant` bits."""
    return _limbs(significant + max(0, math.ceil(-lowest) + 1)) * LIMB_BITS


def _limbs(bits: float) -> int:
    """Return the number of limbs that hold `bits` bits."""
    return math.ceil(bits / LIMB_BITS)


def _limbs_of(numbers: Sequence[int], count: int) -> NDArray[np.uint32]:
    """Return numbers as rows of `count` limbs, lowest limb first."""
    data = b"".join([number.to_bytes(4 * count, "little") for number in numbers])
    return np.frombuffer(data, "<u4").reshape(len(numbers), count).astype(np.uint32, copy=False)


class Turns(NamedTuple):
    """Frequencies in turns per position and, after the last one, a frequency of 0.

    Row i of `limbs`, lowest limb first, is the magnitude of frequency i in units of ``2**-fraction_bits``.  It has
    at least the requested number of significant bits, and an error below two units.
    """

    limbs: NDArray[np.uint32]
    is_negative: NDArray[np.bool_]
    fraction_bits: int

    def integer(self, i: int) -> int:
        """Return frequency i in units of ``2**-fraction_bits``."""
        magnitude = int.from_bytes(self.limbs[i].astype("<u4").tobytes(), "little")
        return -magnitude if self.is_negative[i] else magnitude


# a function of the number of significant bits, by default SIGNIFICANT_BITS
ComputeTurns: TypeAlias = Callable[..., Turns]


def spaced_turns(
    count: int, powers: Powers, scales: Sequence[float | Fraction], significant: int = SIGNIFICANT_BITS
) -> Turns:
    """Return the frequencies ``prod(scales) * prod(base**(-i / divisor))``, i = 0 ... count - 1.

    Each frequency is the previous one times a ratio.  The guard bits absorb the errors of these products.
    """
    numerator, denominator = (math.prod(factors) for factors in zip(*(s.as_integer_ratio() for s in scales), strict=True))
    is_negative = np.zeros(count + 1, bool)
    if count == 0 or not numerator:
        return Turns(np.zeros((count + 1, significant // LIMB_BITS), np.uint32), is_negative, significant)
    is_negative[:count] = numerator < 0
    powers = tuple(powers) if count > 1 else ()
    slope, first = _slope(powers), math.log2(abs(numerator)) - math.log2(denominator) - LOG2_TWO_PI
    last = first + (count - 1) * slope
    lowest, highest = sorted((first, last))
    _check_range(lowest, highest, count)
    fraction_bits = _fraction_bits(lowest, significant)
    guard = _limbs(GUARD_BITS + abs(first) + abs(last))
    bits = fraction_bits + guard * LIMB_BITS
    precision = bits + numerator.bit_length() + GUARD_BITS
    turn = (abs(numerator) << bits + precision) // (2 * pi(precision) * denominator)
    digits = math.ceil((bits + math.ceil(abs(slope))) * math.log10(2)) + 40
    ratio = int(decimal_context(digits).multiply(_ratio(digits, powers), decimal.Decimal(1 << bits)))
    kept = _limbs(fraction_bits + max(0, highest + 1))
    limbs = max(guard + kept, _limbs(ratio.bit_length()))
    factors = _limbs_of([turn, ratio], limbs)
    products = np.frombuffer(kernel.powers(factors.tobytes(), count, bits // LIMB_BITS), np.uint32)
    return Turns(products.reshape(count + 1, limbs)[:, guard : guard + kept], is_negative, fraction_bits)


def _quotients(numbers: Sequence[Fraction], significant: int, divide: bool) -> Turns:
    """Return frequencies, each rounded down.  `numbers` are in radians if `divide`, else in turns, per position."""
    sizes = [_log2(abs(x)) - (LOG2_TWO_PI if divide else 0) for x in numbers if x] or [0.0]
    _check_range(min(sizes), max(sizes), len(numbers))
    fraction_bits, highest = _fraction_bits(min(sizes), significant), max(0, math.ceil(max(sizes)) + 1)
    precision = fraction_bits + highest + GUARD_BITS
    divisor = 2 * pi(precision) if divide else 1 << precision
    turns = [(abs(x.numerator) << fraction_bits + precision) // (divisor * x.denominator) for x in numbers]
    limbs = _limbs_of([*turns, 0], _limbs(fraction_bits + highest))
    return Turns(limbs, np.array([*(x < 0 for x in numbers), False]), fraction_bits)


def explicit_turns(frequencies: Sequence[float], scale: float, significant: int = SIGNIFICANT_BITS) -> Turns:
    """Return frequencies times `scale`, both in radians per position."""
    return _quotients([Fraction(w) * Fraction(scale) for w in frequencies], significant, divide=True)


class RationalTurns:
    """Frequencies that are rational numbers of turns per position."""

    def __init__(self, exact: Sequence[Fraction]) -> None:
        self.exact = exact

    def __call__(self, significant: int = SIGNIFICANT_BITS) -> Turns:
        return _quotients(self.exact, significant, divide=False)

    def phase_bits(self) -> int:
        """Return b such that every integer multiple of a frequency is a multiple of a quarter turn, or at least
        2**-b turns away from one.
        """
        return 2 + max((t.denominator.bit_length() for t in self.exact), default=0)

    def zeros(self) -> float:
        """Return the share of integers whose multiple of a frequency is a multiple of a quarter turn, summed over
        the frequencies.
        """
        return math.fsum(math.gcd(4, t.denominator) / t.denominator for t in self.exact if t)


def radians_of(compute_turns: ComputeTurns, scale: float = 1.0) -> NDArray[np.float64]:
    """Return the frequencies divided by `scale`, in radians per position, rounded once to float64.

    Frequencies beyond the range of float64 are 0 or infinity.  If a frequency is half-way between two numbers, 8192
    bits do not decide its rounding, and it is rounded to even.
    """
    for bits in (SIGNIFICANT_BITS, 1024, 8192):
        turns, relative_error = compute_turns(bits), Fraction(1, 1 << bits - 4)
        unit = Fraction(2 * pi(bits), 1 << bits + turns.fraction_bits) / Fraction(scale)
        numbers = [turns.integer(i) for i in range(len(turns.limbs) - 1)]
        low, high = (_products(numbers, unit * (1 + error)) for error in (-relative_error, relative_error))
        if (low == high).all():
            break
    return np.where(low.view(np.uint64) & np.uint64(1), high, low)


def _products(numbers: Sequence[int], factor: Fraction) -> NDArray[np.float64]:
    """Return the products, each rounded once."""
    products, (numerator, denominator) = np.empty(len(numbers)), factor.as_integer_ratio()
    for i, number in enumerate(numbers):
        try:
            products[i] = number * numerator / denominator
        except OverflowError:
            products[i] = math.inf if number * numerator > 0 else -math.inf
    return products
