"""Reference implementation: slow, simple, independent of the library.

MPFR computes every value from exact rational arguments; `round_to` rounds it to the output dtype with integer
arithmetic. The precision is doubled until it decides the rounding (Ziv's strategy).
"""

import math
from fractions import Fraction
from functools import cache

import gmpy2
import numpy as np
from gmpy2 import mpq

# dtype: (bits of precision, exponent of the smallest subnormal, unsigned type of the same size)
FORMATS = {
    "float64": (53, -1074, np.uint64), "float32": (24, -149, np.uint32), "float16": (11, -24, np.uint16),
    "bfloat16": (8, -133, np.uint16),
}
INFINITY = {"float64": 0x7FF << 52, "float32": 0xFF << 23, "float16": 0x1F << 10, "bfloat16": 0xFF << 7}
NAN = {"float64": 0x7FF8 << 48, "float32": 0x7FC0 << 16, "float16": 0x7E00, "bfloat16": 0x7FC0}

# For an angle of 2**-5000, about the smallest, cos differs from 1 by 2**-10001: its rounding takes about
# 10_000 bits.
MAX_PRECISION = 2**15
FIRST_PRECISION = FORMATS["float64"][0] + 40        # for all dtypes, which share the values


def exact(x):
    """Return `x` as an exact rational number."""
    if isinstance(x, Fraction):
        return mpq(x.numerator, x.denominator)
    if isinstance(x, (float, np.floating)):
        return mpq(*x.as_integer_ratio())
    return mpq(int(x))


@cache
def arithmetic(precision):
    """Return a context whose operations round to `precision` bits.

    Its default exponent range of 2**30 is sufficient.
    """
    return gmpy2.context(precision=precision)


def round_to(mantissa, exponent, dtype):
    """Return the bits of ``mantissa * 2**exponent`` rounded to nearest, ties to even.

    Consecutive values of a dtype have consecutive bit patterns: a carry out of the significand increments the
    exponent.
    """
    if mantissa == 0:
        return 0
    precision, smallest, unsigned = FORMATS[dtype]
    sign = int(mantissa < 0) << (8 * unsigned().itemsize - 1)
    mantissa = abs(mantissa)
    ulp = max(exponent + mantissa.bit_length() - precision, smallest)
    drop = ulp - exponent
    if drop <= 0:
        count = mantissa << -drop
    else:
        count, rest, half = mantissa >> drop, mantissa & ((1 << drop) - 1), 1 << (drop - 1)
        count += rest > half or (rest == half and count & 1)
    return sign | min(int(count) + ((ulp - smallest) << (precision - 1)), INFINITY[dtype])


class Reference:
    """Correctly rounded sinusoidal positional encoding under one convention.

    The parameters are those of `posenc.Encoding`.

    Attributes
    ----------
    columns : list
        For each output column, a tuple ``(frequency index, "sin" or "cos")``, or None if the column is all
        zeros.
    """

    def __init__(self, d_model, *, base=10000.0, frequency_scale=1.0, position_offset=0.0,
                 position_scale=1.0, padding_idx=None, scale=1.0, odd="truncate", spacing="paper", shift=None,
                 exponents="pair", frequencies=None, periods=None, layout="interleaved", order="sin"):
        self.d_model = d_model
        self.base = exact(base)
        self.offset = exact(position_offset)
        self.position_scale = exact(position_scale)
        self.scale = exact(scale)
        self.padding_idx = padding_idx

        padded = odd == "zero" and d_model % 2 == 1
        filled = d_model - padded
        half = mpq(filled, 2)
        functions = ("sin", "cos") if order == "sin" else ("cos", "sin")
        columns = [(j if exponents == "column" else j // 2, functions[j % 2]) for j in range(filled)]
        if layout == "halves":
            columns = columns[0::2] + columns[1::2]
        self.columns = columns + [None] * padded

        # frequency = factor * base**-exponent, with exact terms.  exponents="column" gives even a column of
        # zeros a frequency.
        count = d_model if exponents == "column" else math.ceil(half)
        self.periods = None if periods is None else [exact(period) for period in periods]
        if periods is not None and len(periods) != count:
            raise ValueError(f"{len(periods)} periods, expected {count}")
        if periods is not None:
            frequencies = [1.0] * count             # not used
        if frequencies is not None:
            self.factors = [exact(float(w)) for w in frequencies]
            if len(self.factors) != count:
                raise ValueError(f"{len(self.factors)} frequencies, expected {count}")
            self.exponents = [mpq(0)] * count
        else:
            per_frequency = 2 if exponents == "column" else 1
            if spacing == "endpoint":
                divisor = mpq(count - 1)
            else:
                divisor = (half - exact(shift or 0.0)) * per_frequency
            self.factors = [exact(frequency_scale)] * count
            # Index 0 is a special case, because the divisor may be 0 if there is only one frequency.
            self.exponents = [mpq(0) if i == 0 else i / divisor for i in range(count)]
        self._roots, self._bounds = {}, {}

    def _root(self, index, precision):
        """Return ``base**-exponent`` with a relative error below ``2**-precision``."""
        key = index, precision
        if key not in self._roots:
            # The relative error of exp(power) is at most 2**50 times that of power.
            wide = arithmetic(precision + 64)
            power = wide.mul(wide.log(gmpy2.mpfr(self.base, precision + 64)), -self.exponents[index])
            assert abs(power) < 2**50
            self._roots[key] = wide.exp(power)
        return self._roots[key]

    def frequency(self, index, precision):
        """Return frequency `index` as an mpfr with a relative error below ``2**(1 - precision)``."""
        return arithmetic(precision + 8).mul(self._root(index, precision), self.factors[index])

    def value(self, position, column, precision):
        """Return the value as an mpfr with a relative error below ``2**-precision``."""
        return self._value(exact(position), column, precision)

    def _value(self, position, column, precision):
        if self.columns[column] is None:
            return gmpy2.mpfr(0)
        index, function = self.columns[column]
        if self.periods is not None:
            return self._value_in_turns(*self._turns(position, column), precision)
        multiple = (position + self.offset) * self.position_scale * self.factors[index]
        result = arithmetic(precision + 32)
        if multiple == 0 or self.scale == 0:
            return result.mul(gmpy2.mpfr(1), self.scale if function == "cos" else 0)

        # The absolute errors of the angle, and thus of sin and cos, are below 2**(exponent of the angle + 3 -
        # working).  The error must be small relative to the value, so `working` increases if the value is
        # close to zero.
        magnitude = multiple.numerator.bit_length() - multiple.denominator.bit_length()
        working = precision + max(magnitude, 0) + 64
        while True:
            working += -working % 64  # `_root` caches its results: use few distinct precisions
            angle = arithmetic(working).mul(self._root(index, working), gmpy2.mpfr(multiple, working))
            value = (result.sin if function == "sin" else result.cos)(angle)
            lost = gmpy2.get_exp(angle) - gmpy2.get_exp(value)
            if working >= precision + lost + 8:
                return result.mul(value, self.scale)
            working = precision + lost + 64

    def _turns(self, position, column):
        """Return the nearest number of quarter turns, one more for a cosine, and the distance from it in turns."""
        index, function = self.columns[column]
        turns = (position + self.offset) * self.position_scale / self.periods[index] + mpq(function == "cos", 4)
        quarters = math.floor(4 * turns + mpq(1, 2))
        return quarters, turns - mpq(quarters, 4)

    def _value_in_turns(self, quarters, rest, precision):
        result, scale = arithmetic(precision + 32), self.scale * (-1 if quarters & 2 else 1)
        if not quarters & 1 and abs(rest) == mpq(1, 12):                # sin(pi / 6) is 1/2
            return result.mul(gmpy2.mpfr(1 if rest > 0 else -1), scale / 2)
        angle = result.mul(result.mul(result.const_pi(), 2), rest)
        return result.mul(result.cos(angle) if quarters & 1 else result.sin(angle), scale)

    def bits(self, position, column, dtype):
        """Return the bits of the correctly rounded value at `position` in `column`."""
        if isinstance(position, (float, np.floating)) and not math.isfinite(position):
            return NAN[dtype]
        position = exact(position)
        if self.padding_idx is not None and position == self.padding_idx:
            return 0
        precision = FIRST_PRECISION
        while precision <= MAX_PRECISION:
            lower, upper, exponent = self._between(position, column, precision)
            low = round_to(lower, exponent, dtype)
            if lower == upper or low == round_to(upper, exponent, dtype):
                return low
            # The loop ends, because values at nonzero angles are transcendental and therefore never half-way
            # points.
            precision *= 2
        raise ArithmeticError(f"{precision // 2} bits do not decide column {column} at position {position}")

    def _between(self, position, column, precision):
        """Return integers `lower`, `upper` and `exponent`: the value is from lower * 2**exponent
        to upper * 2**exponent.

        All dtypes share the results.
        """
        key = position, column, precision
        if key not in self._bounds:
            mantissa, exponent = self._value(*key).as_mantissa_exp()
            error = 0
            if not self._is_exact(position, column):
                # The mantissa has no trailing zeros; restore enough of them to make `error` a whole number of
                # units.
                widen = max(precision - mantissa.bit_length() + 2, 0)
                mantissa, exponent = mantissa << widen, exponent - widen
                error = 1 << max(mantissa.bit_length() - precision, 0)
            self._bounds[key] = mantissa - error, mantissa + error, exponent
        return self._bounds[key]

    def _is_exact(self, position, column):
        """Return whether the result of `_value` is exact: angle 0, scale 0, or a column of zeros."""
        if self.columns[column] is None or self.scale == 0:
            return True
        if self.periods is not None:
            quarters, rest = self._turns(position, column)
            return rest == 0 or not quarters & 1 and abs(rest) == mpq(1, 12)
        return position == -self.offset or self.position_scale == 0 or self.factors[self.columns[column][0]] == 0
    def table(self, positions, dtype, columns=None):
        """Return the bits of the rows at `positions` in `columns` (default: all), as unsigned integers."""
        columns = range(self.d_model) if columns is None else columns
        rows = [[self.bits(p, c, dtype) for c in columns] for p in positions]
        return np.array(rows, FORMATS[dtype][2]).reshape(len(positions), len(columns))


@cache
def reference_of(d_model, convention=()):
    """Return a reference; calls with equal arguments share its values.

    `convention` is a tuple of keywords and values.
    """
    return Reference(d_model, **dict(convention))


class Rotated:
    """Correctly rounded rotation of pairs (a, b) by the angle t of their position:
    ``scale * (a cos t - b sin t)`` and ``scale * (b cos t + a sin t)``.

    `convention` holds the parameters of `Reference` that determine the angles.
    """

    def __init__(self, pairs, *, scale=1.0, **convention):
        self.angles = Reference(2 * pairs, order="cos", **convention)
        self.scale = exact(scale)
        self._terms = {}

    def _term(self, position, column, precision):
        """Return scale * cos or scale * sin as a rational number, and a bound on its error."""
        key = position, column, precision
        if key not in self._terms:
            value = mpq(self.angles.value(position, column, precision)) * self.scale
            is_exact = self.scale == 0 or self.angles._is_exact(position, column)
            self._terms[key] = value, 0 if is_exact else abs(value) / 2**precision
        return self._terms[key]

    def bits(self, position, pair, a, b, dtype, inverse=False):
        """Return the bits of both values of a rotated pair; `a` and `b` are floats."""
        b_sine, a_sine = (b, -a) if inverse else (-b, a)
        return self._bits(position, pair, a, b_sine, dtype), self._bits(position, pair, b, a_sine, dtype)

    def _bits(self, position, pair, cosine, sine, dtype):
        columns = 2 * pair, 2 * pair + 1
        if not (math.isfinite(cosine) and math.isfinite(sine)):
            c, s = (float(self._term(position, column, 160)[0]) for column in columns)
            with np.errstate(invalid="ignore"):
                value = np.float64(cosine) * c + np.float64(sine) * s
            return NAN[dtype] if np.isnan(value) else round_to(1 if value > 0 else -1, 2000, dtype)
        precision = 160
        while precision <= MAX_PRECISION:
            terms = [self._term(position, column, precision) for column in columns]
            value = sum(exact(f) * term for f, (term, _) in zip((cosine, sine), terms, strict=True))
            error = sum(abs(exact(f)) * e for f, (_, e) in zip((cosine, sine), terms, strict=True))
            low, high = (_round_rational(x, dtype) for x in (value - error, value + error))
            if low == high:
                return low
            precision *= 2
        raise ArithmeticError(f"{precision // 2} bits do not decide pair {pair} at position {position}")


def _round_rational(x, dtype):
    """Return the bits of x, a rational number whose denominator is a power of two."""
    return round_to(x.numerator, 1 - x.denominator.bit_length(), dtype)
