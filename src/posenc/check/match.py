"""When values match: thresholds, the rule, and estimates.

Values match a candidate if each differs from it by at most the errors of an arithmetic: this rule is
`Curve.explains`.  An expected rotation is compared without any estimate.  The estimates of frequencies and
phases (`phases_of`) only choose the other candidates.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc._arguments.arrays import DTYPES, values_of

Array: TypeAlias = NDArray[Any]
Reals: TypeAlias = NDArray[np.float64]
Waves: TypeAlias = NDArray[np.complex128]       # cos + i sin

FLOAT32 = 2.0**-24      # half an ulp of float32, relative
TIGHT = 64 * FLOAT32    # frequencies computed in float32: exponentials of logarithms are off by 40 half ulps
LOOSE = 2.0**-7         # frequencies rounded to bfloat16, and again as a product: two half ulps of 2**-8
SIGMAS = 8              # an estimate may be off by this multiple of its error: errors of sines are not normal
SLACK = 1.5             # half ulps for correctly rounded values, because the parameters are estimates
NARROW_SHARE = 0.02     # angles halfway between two 16-bit numbers are rounded either way: 1 value in 200
NARROW_MOST = 0.5       # but not most values of one row or column
BLURRED = 0.75          # if the bound exceeds more than this share of the values, agreement proves nothing
CHUNK = 2**18           # values that are compared at a time: 2 MiB
ALIKE = 1e-2            # of the largest value: results of float16 arithmetic differ by less
ROUNDED = 16 * FLOAT32  # of rotated float32 vectors; narrower dtypes have 16 of their own half ulps
SLIGHT = 1e-3           # of frequencies; larger differences are shown
SAME_SCALE = 1e-6       # relative difference of scales that are equal
ERRORS_AT = (1_000, 100_000, 1_000_000)     # positions of a report, each with the seven positions before it

# bits of the significand, the narrowest dtypes first: half an ulp of a value is at most value * 2**-bits
PRECISION = {dtype: DTYPES[dtype].precision for dtype in ("bfloat16", "float16", "float32", "float64")}
NARROW = ("bfloat16", "float16")


class Arithmetic(NamedTuple):
    """The dtypes to which an implementation rounds; "" means no rounding."""

    table: str                  # the cosines and sines
    angles: str = ""
    frequencies: str = ""
    positions: str = ""

    @property
    def is_narrow(self) -> bool:
        """Whether the angles, the frequencies or the positions are rounded to 16 bits."""
        return bool({self.angles, self.frequencies, self.positions} & {*NARROW})


def plain(dtype: str) -> list[Arithmetic]:
    """Return the kinds of arithmetic that round to no fewer bits than those of the values, or of float32."""
    return [Arithmetic(dtype), Arithmetic(dtype, "float64"), Arithmetic(dtype, "float32", "float32")]


def narrow(dtype: str) -> list[Arithmetic]:
    """Return the kinds of arithmetic that round to 16 bits, those with the fewest roundings first."""
    kinds = sorted(itertools.product(("", *NARROW), repeat=3), key=lambda names: sum(map(bool, names)))
    return [Arithmetic(dtype, angles or "float32", frequencies or "float32", positions)
            for angles, frequencies, positions in kinds if len({angles, frequencies, positions} - {""}) == 1]


def float64_of(array: Array, dtype: str) -> Reals:
    """Convert an array to float64; an array of bfloat16 may hold its bits as uint16."""
    values = values_of(np.ascontiguousarray(array).view(np.uint16), dtype) if dtype == "bfloat16" else array
    return np.asarray(values, np.float64)


def rounded(x: Array, dtype: str) -> Array:
    """Round values of float64 or complex128 to a dtype; "" means no rounding."""
    parts = np.ascontiguousarray(x).view(np.float64)
    if dtype == "bfloat16":
        mantissa, exponent = np.frexp(parts.astype(np.float32))
        parts, dtype = np.ldexp(np.rint(256 * mantissa), exponent - 8), "float32"
    return parts.astype(dtype or "float64").astype(np.float64).view(x.dtype)


def narrowest(values: Array, dtype: str) -> str:
    """Return the narrowest dtype whose significant bits suffice for all values; at most the given dtype."""
    mantissa, _ = np.frexp(np.stack([values.real, values.imag]))
    return next(name for name, bits in PRECISION.items()
                if name == dtype or (np.ldexp(mantissa, bits) % 1 == 0).all())


def difference(x: Array, y: Array) -> Reals:
    """Return the larger of the differences of the real parts and of the imaginary parts."""
    return np.asarray(np.maximum(np.abs(x.real - y.real), np.abs(x.imag - y.imag)))


# ---- the rule ----------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """The values that a convention gives at some positions with an arithmetic: real, or cos + i sin."""

    values: Array
    error: Reals                        # bounds of the errors of rounded angles, as a share of the size
    size: float                         # absolute factor of the sines
    how: Arithmetic

    def differs(self, values: Array) -> Array:
        """Return a mask of the values that differ by more than the errors; large errors explain any value."""
        # values may also be rounded before they are multiplied by the scale
        rounding = (1 if self.size == 1 else 2) * SLACK * 2.0 ** -PRECISION[self.how.table]
        # if the values fit into bfloat16, their dtype may be float16, which rounds small values to 0
        smallest = DTYPES["float16" if self.how.table in NARROW else self.how.table].smallest - 1
        common = 2.0**smallest + self.size * np.where(self.error < 1, self.error, np.inf)
        is_near = [np.abs(x - y) <= common + rounding * np.abs(y) for x, y in (
            (values.real, self.values.real), (values.imag, self.values.imag))]
        return np.asarray(~np.all(is_near, axis=0))

    def explains(self, values: Array) -> bool:
        """Return whether all values agree, or nearly all if angles are rounded to 16 bits: the rule of every verdict."""
        if (self.error >= 1).mean() >= BLURRED:
            return False
        differs = self.differs(values)
        most = max(differs.mean(axis=axis).max() for axis in (0, 1))
        is_halfway = self.how.is_narrow and differs.mean() < NARROW_SHARE and most < NARROW_MOST
        return bool(is_halfway or not differs.any())


def curve_of(values: Array, frequencies: Reals, positions: Array, size: float, how: Arithmetic) -> Curve:
    """Return the curve of values with some frequencies, which may be exponentials of logarithms."""
    unit = {"": 0.0, "float64": 2.0**-53}.get(how.angles, FLOAT32)     # half an ulp of the angles
    turning = np.abs(frequencies[frequencies != 0])
    growth = 2 + 2 * float(np.ptp(np.log(turning))) if len(turning) else 0.0
    angles = np.abs(positions.astype(np.float64)[:, None] * frequencies)
    return Curve(values, np.asarray(unit * (1 + growth * angles)), abs(size), how)


# ---- rotations ---------------------------------------------------------------------------------------------


def size_of(rotary: Rotary) -> float:
    """Return the factor by which a rotation multiplies cosines and sines."""
    return rotary.scale * rotary.attention_scaling


def axes_of(rotary: Rotary | None) -> int:
    """Return the number of axes of positions."""
    return 1 if rotary is None or rotary.axes is None else 1 + max(rotary.axes)


def on_axes(positions: Array, axes: int) -> Array:
    """Return a copy of positions; all of several axes have the same ones if only those of one are given."""
    return np.tile(positions, (axes, 1) if axes > positions.ndim == 1 else 1)


def exact(rotary: Rotary, positions: Array) -> Waves:
    cos, sin = rotary.tables(positions, dtype="float64")
    return np.asarray(cos + 1j * sin)


def computed(rotary: Rotary, positions: Array, arithmetic: Arithmetic) -> Waves:
    """Return cos + i sin, computed with an arithmetic."""
    w = rounded(rotary.frequencies, arithmetic.frequencies)
    at = rounded(positions.astype(np.float64), arithmetic.positions)
    waves = np.exp(1j * rounded(at[:, None] * w, arithmetic.angles))
    return rounded(size_of(rotary) * waves, arithmetic.table)


def error_near(position: int, rotary: Rotary, how: Arithmetic, expected: Rotary) -> float:
    """Return the largest error of an arithmetic at the positions near this one."""
    at = positions_near(position)
    return float(difference(computed(rotary, at, how), exact(expected, at)).max())


def rotation_curve(rotary: Rotary, positions: Array, how: Arithmetic) -> Curve:
    """Return the curve of a rotation; roundings to 16 bits are simulated, and others bounded."""
    values = computed(rotary, positions, how) if how.is_narrow else exact(rotary, positions)
    return curve_of(values, rotary.frequencies, positions, size_of(rotary), how)


def positions_near(position: int) -> Array:
    """Return a position and the seven before it, because 16 bits may hold an even position exactly."""
    return position - np.arange(min(position, 7), -1, -1)


# ---- estimates ---------------------------------------------------------------------------------------------

# common frequency scales, most without a short decimal form
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau, math.pi / 180)
# error of an angle, or of the logarithm of a frequency: a larger one would bend the line of frequencies
KNOWN = 0.05
# of two frequencies in a fit: beyond it, one does not turn, or the fit went wrong
WIDEST_RATIO = math.log(1e20)
NUMBERS = 64, 4         # numbers are rounded within so many standard errors: short numbers, then precise ones


def short(x: float, error: float, favourites: Sequence[float] = (), lenience: float = 1) -> float:
    """Return a short number near x.

    The choices are tried in this order: a favourite, a decimal of up to four digits, 1 / n, and decimals
    with more digits.  The relative difference from x is at most min(lenience * error, 0.002) for a favourite,
    and `error` for other numbers.
    """
    decimals = [float(f"{x:.{digits}e}") for digits in range(17)]
    others = *decimals[:4], 1 / round(1 / min(max(x, 0.01), 1.0)), *decimals[4:]
    bounds = [(favourites, min(lenience * error, 0.002)), (others, error)]
    near = (y for numbers, bound in bounds for y in numbers if abs(y - x) <= bound * abs(x))
    return next(near, float(x))


class Phases(NamedTuple):
    """Estimates of the frequency by which each pair of columns turns with the position."""

    frequency: Reals
    error: Reals                        # of the frequency if values are correctly rounded; infinity: unknown

    def are_near(self, frequencies: Reals) -> bool:
        """Return whether all known estimates agree with `frequencies` within their errors."""
        is_near = np.abs(self.frequency - frequencies) <= SIGMAS * self.error + TIGHT * np.abs(frequencies)
        return bool(is_near.all() and np.isfinite(self.error).any())

    def geometric(
        self, divisors: Sequence[float], usual: Sequence[float], sigmas: float
    ) -> tuple[float, list[float]]:
        """Return the first frequency, and a list with a base for each divisor of the exponents.

        A line is fitted to the logarithms of the known positive frequencies.  A single one has the default
        base.  The list is empty if there is none, or if the line is too steep.
        """
        w, error = self.frequency, np.maximum(self.error / np.abs(self.frequency), 2.0**-50)
        k = np.flatnonzero((w > 0) & (error < KNOWN))
        basis, y = np.stack([np.ones(len(k)), -k], 1) / error[k, None], np.log(w[k]) / error[k]
        first, slope = solution = np.linalg.lstsq(basis, y)[0]
        if not len(k) or abs(slope) * (len(w) - 1) > WIDEST_RATIO:
            return 1.0, []
        scatter = max(1.0, np.sqrt(np.sum((basis @ solution - y) ** 2) / max(1, len(k) - 2)))
        errors = scatter * np.sqrt(np.diag(np.linalg.pinv(basis.T @ basis)))
        bases = [short(math.exp(slope * each), sigmas * errors[1] * each, usual, 4)
                 if len(k) > 1 else 10000.0 for each in divisors]
        return short(math.exp(first), sigmas * errors[0], TURNS, 4), bases


def phases_of(
    positions: Array, values: Waves, precision: int, smallest: float, guess: Reals | None = None
) -> Phases:
    """Estimate phases from rows at doubling distances, until they disagree with earlier estimates.

    The cosines and sines are rounded to `precision` bits, or to multiples of `smallest`.  The first distance
    determines a frequency only modulo 2 pi / distance; the estimates are those nearest to `guess` (0 if it is
    None).  The positions must not all be equal.
    """
    order = np.argsort(positions, kind="stable")
    # subtract before the conversion, because float64 rounds large positions
    at, z = (positions[order] - positions[order[0]]).astype(np.float64), values[order]
    errors = 2.0**-precision * np.abs(np.sin(2 * np.angle(z))) + smallest / np.maximum(np.abs(z), smallest)
    w = np.zeros(z.shape[1]) if guess is None else guess.copy()
    error, reach, distance = np.full(len(w), np.inf), np.zeros(len(w)), 0.0
    going = np.median(np.abs(z), axis=0) > 0
    while going.any() and at[-1] > distance:
        row = np.searchsorted(at, max(2 * distance, at[at > distance][0]), side="right") - 1
        distance = float(at[row])
        residual = np.angle(z[row] * np.conj(z[0]) * np.exp(-1j * w * distance))
        bound = errors[row] + errors[0]
        # the bound allows for float32 arithmetic, but not for 16-bit arithmetic or for a table that ends
        going &= np.abs(residual) <= SIGMAS * ((error + 8 * FLOAT32 * np.abs(w)) * distance + bound)
        w = np.where(going, w + residual / distance, w)
        error, reach = np.where(going, bound / distance, error), np.where(going, distance, reach)
    # a line through all rows within the reach, if these are several, by least squares
    residual = np.angle(z * np.conj(z[0]) * np.exp(-1j * at[:, None] * w))
    within = at[:, None] <= reach
    weights = (within & (within.sum(0) > 8)) / np.maximum(errors, 2.0**-60) ** 2
    x = at[:, None] - (weights * at[:, None]).sum(0) / np.maximum(weights.sum(0), 1)
    squares = np.maximum((weights * x**2).sum(0), 2.0**-60)
    w, error = w + (weights * x * residual).sum(0) / squares, np.minimum(error, squares**-0.5)
    return Phases(w, error)
