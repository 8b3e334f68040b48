"""Use Python integers to evaluate values whose rounding c/table/decide_rounding.h leaves undecided.

The number of bits is doubled until the rounding is decided.  docs/numerics.md, section 3, proves that this loop
ends.
"""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.arrays import DTYPES
from posenc._core import kernel
from posenc._core.frequencies import ComputeTurns, RationalTurns, Turns, pi

FIRST_BITS = 512
FORMAT_OF_CODE = {row.code: row for row in DTYPES.values()}

# {12 * phase: sine} for the phases, in turns, whose sine is rational (Niven's theorem)
RATIONAL_SINES = {0: 0.0, 1: 0.5, 3: 1.0, 5: 0.5, 6: 0.0, 7: -0.5, 9: -1.0, 11: -0.5}


class ExactColumns:
    """The values of an encoding.  Each column is the sine or the cosine of a frequency."""

    __slots__ = ("_compute_turns", "_cosine", "_exact", "_frequency", "_scale", "_turns")

    def __init__(
        self, compute_turns: ComputeTurns, frequency: NDArray[np.intp], cosine: NDArray[np.bool_], scale: float
    ) -> None:
        self._compute_turns = compute_turns
        self._turns: dict[int, Turns] = {}                              # {bits: turns}
        self._exact = compute_turns.exact if isinstance(compute_turns, RationalTurns) else ()
        self._frequency = frequency
        self._cosine = cosine
        self._scale = scale

    def __call__(
        self, position: int, exponent: int, column: int, dtype: int, factors: tuple[float, float] | None = None
    ) -> float:
        """Return the value at ``position * 2**exponent``, rounded to dtype.

        The position includes the offset.  The angle must not be 0. With `factors`, return ``factors[0] *
        value(column) + factors[1] * value(column + 1)``; the columns must be the cosine and the sine of one
        frequency.
        """
        if self._exact:         # without factors
            twelfths = 12 * position * Fraction(2) ** exponent * self._exact[self._frequency[column]]
            twelfths += 3 * int(self._cosine[column])
            if (sine := RATIONAL_SINES.get(twelfths % 12)) is not None:
                return kernel.rounded(list(DTYPES)[dtype], self._scale * sine if sine else 0.0)
        terms = [(column + k, Fraction(f) * Fraction(self._scale)) for k, f in enumerate(factors or (1.0,)) if f]
        bits = FIRST_BITS
        while True:
            value, slack, width = self._combined(position, exponent, terms, bits)
            if abs(value) >> 64 > slack:
                low, high = (_rounded(v, -width, dtype) for v in (abs(value) - slack, abs(value) + slack))
                if low == high:
                    return -low if value < 0 else low
            bits *= 2

    def _combined(self, position: int, exponent: int, terms: list[tuple[int, Fraction]], bits: int) -> tuple[int, int, int]:
        """Evaluate a sum of terms to about `bits` bits.  A term is a factor times the sin or cos of a column.

        Returns
        -------
        value, slack, width : int
            The exact result differs from `value` by less than `slack`.  `value` and `slack` are in units of
            2**-width.
        """
        if bits not in self._turns:
            self._turns[bits] = self._compute_turns(bits)
        turns = self._turns[bits]
        point = turns.fraction_bits - exponent
        phase = position * turns.integer(self._frequency[terms[0][0]])  # in units of 2**-point turns
        quarter_turns = (phase + (1 << point - 3)) >> point - 2
        remainder = phase - (quarter_turns << point - 2)
        error = 2 * abs(position)                                  # the error of the turns is below two units
        parts = []
        for column, factor in terms:
            quarters = quarter_turns + int(self._cosine[column])
            value, slack, width = _sin_or_cos(abs(remainder), error, point, bits, quarters & 1)
            negative = (remainder < 0 and not quarters & 1) ^ (quarters >> 1 & 1)
            shift = factor.denominator.bit_length() - 1                 # the denominator is a power of two
            parts.append((value * factor.numerator * (-1 if negative else 1), slack * abs(factor.numerator), width + shift))
        width = max(w for _, _, w in parts)
        return sum(v << width - w for v, _, w in parts), sum(s << width - w for _, s, w in parts), width


def _sin_or_cos(turn: int, error: int, point: int, bits: int, cosine: int) -> tuple[int, int, int]:
    """Evaluate sin or cos of ``(turn +- error) * 2**-point`` turns to about `bits` bits.

    The angle must be at most an eighth of a turn.

    Returns
    -------
    value, slack, width : int
        The exact result differs from `value` by less than `slack`.  `value` and `slack` are in units of
        2**-width.
    """
    width = bits + point - turn.bit_length()
    pi_bits = bits + 8                                   # makes the error of pi less than a unit of the angle
    angle = _shifted(turn * 2 * pi(pi_bits), width - point - pi_bits)
    slack = _shifted(8 * error, width - point) + 3
    square = angle * angle >> width
    total = term = 1 << width if cosine else angle
    sign, k = 1, 1 if cosine else 2
    while term:
        term = (term * square >> width) // (k * (k + 1))
        sign, k = -sign, k + 2
        total += sign * term
        slack += 3                                                    # the error of a term is below 2.2 units
    return total, slack + 4, width


def _shifted(x: int, left: int) -> int:
    return x << left if left >= 0 else x >> -left


def _rounded(mantissa: int, exponent: int, dtype: int) -> float:
    """Round ``mantissa * 2**exponent`` to nearest, half-way points up.

    The mantissa must have more bits than dtype.
    """
    to = FORMAT_OF_CODE[dtype]
    unit = max(mantissa.bit_length() + exponent - to.precision, to.smallest)
    count = (mantissa >> unit - exponent - 1) + 1 >> 1
    return math.inf if count.bit_length() + unit > to.overflow else math.ldexp(count, unit)
