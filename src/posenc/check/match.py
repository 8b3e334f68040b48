"""When values match: every threshold with its reason, and the arithmetic whose errors explain the values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc._arguments.arrays import DTYPES, values_of

Array: TypeAlias = NDArray[Any]
Reals: TypeAlias = NDArray[np.float64]
Waves: TypeAlias = NDArray[np.complex128]       # cos + i sin
Mask: TypeAlias = NDArray[np.bool_]

# ---- rounding -------------------------------------------------------------------------------------------------------

FLOAT32 = 2.0**-24          # half an ulp of float32, relative
TIGHT = 64 * FLOAT32        # frequencies computed in float32: the exponential of a rounded logarithm is off by 40 half ulps
LOOSE = 2.0**-7             # frequencies rounded to bfloat16, and again as a product: two half ulps of 2**-8
SIGMAS = 8                  # an estimate is accepted within this multiple of its error, because errors of sines are not normal
SLACK = 1.5                 # half ulps for correctly rounded values, because the parameters are estimates
NARROW_SHARE = 0.02         # angles halfway between two 16-bit numbers may be rounded either way: about 1 value in 200
NARROW_ROW = 0.5            # but not most values of one row
NARROW_ERROR = 0.6          # of the bound for angles of a table in 16 bits; five forms of code have up to 0.55
BLURRED = 0.75              # if the bound exceeds the values in more than this share of them, agreement proves nothing
SMALL = 1e-9                # smaller elements of a rotation matrix are rounding errors of zeros
ALIKE = 1e-2                # two elements of a matrix agree; float16 arithmetic is off by less
ROUNDINGS = 16              # half ulps between a rotated vector and its prediction from cosines and sines that are rounded, too
BIAS = 1e-6                 # mean error of rotated vectors: roundings of float32 may all have one direction
REPEATABLE = 1e-2           # two calls agree: SIMD code may round values at equal positions differently

# ---- samples --------------------------------------------------------------------------------------------------------

FIRST, SPREAD = 256, 128    # rows of a rotation's sample: the first ones, and evenly spaced ones
REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))      # positions of a function, as far as its table goes
PROBES = 6                  # positions at which all unit vectors are rotated: 6 * 256**2 values at most
TABLE_SAMPLE = 2**20        # values in the first rows of a table's sample, 8 MiB as float64; 16 to 256 rows
LARGEST_START = 2**12       # of a table, as an absolute value
OFFSETS: tuple[int, ...] = 0, 1, -1, *range(2, 33), *range(-2, -33, -1)      # of a rotation, the usual ones first
WIDEST = 2**16              # columns of a table; wider ones take minutes
CHUNK = 2**18               # values that are compared at a time: 2 MiB

# ---- fits -----------------------------------------------------------------------------------------------------------

KNOWN = 0.05                # error of the logarithm of a frequency: a larger one would bend the line of frequencies
MAX_PHASES = 0.7           # share of the pairs whose phases an offset must explain; the fastest may be unknown

PLACED = 0.15               # distance from a row of the table, as a share of the scale: noise of 0.05, three times

# ---- decisions ------------------------------------------------------------------------------------------------------

ENOUGH = 12                 # bits: a table must be explained better than by chance, one in 4,000
TIE = 24                    # bits: results this close are all reported; one with longer parameters may be the true one
FITTED_DIGITS = ((64, 1e-6), (4, 1e-12), (1, 1e-15))        # numbers are rounded within so many standard errors, and this error
PRESET_BITS, FIT_BITS, DIGIT_BITS = 5, 8, 3.4       # cost of one of about 40 presets, of a fit, and of a decimal digit
MAX_OTHER_ROWS = 0.1       # rows of a table that may differ: padding, special tokens
NOISE = 0.1                 # noise above this share of the scale hides the convention
MAX_NOISE = 8              # values may differ by this multiple of the noise
NEAR_NOISE = 2.0**-23       # added for the nearest convention, which is fitted to other columns, too
NOISE_SHARE = 0.7           # the noise of sums of squares must have this share of it, because wrong angles hardly change them
NOISE_ROWS = 32             # with fewer pairs of neighbouring rows, errors of another convention may look like noise
GOOD_COLUMN = 0.9           # share of the rows that must agree for a column of the nearest convention
MAX_COLUMNS = 0.5          # share of the columns, or pairs, that the nearest candidate must explain
WIDEST_RATIO = math.log(1e20)       # of two frequencies in a fit: beyond it, one of them does not turn, or the fit went wrong
NO_DIGIT = 0.1              # default of `largest_error`: a larger error leaves no correct digit of a cosine
ERRORS_AT = (1_000, 100_000, 1_000_000)     # positions of a report; each stands for itself and the seven positions before it

# ---- arithmetic -----------------------------------------------------------------------------------------------------

# bits of the significand, the narrowest dtypes first: half an ulp of a value is at most value * 2**-bits
PRECISION = {dtype: DTYPES[dtype].precision for dtype in ("bfloat16", "float16", "float32", "float64")}
NARROW = ("bfloat16", "float16")


class Arithmetic(NamedTuple):
    """The dtypes to which an implementation rounds; "" means no rounding."""

    table: str                  # the cosines and sines
    angles: str = ""
    frequencies: str = ""
    positions: str = ""
    noise: float = 0.0          # root mean square of errors that do not depend on the angles, as a share of the size

    @property
    def is_narrow(self) -> bool:
        """Whether the angles, the frequencies or the positions are rounded to 16 bits."""
        return bool({self.angles, self.frequencies, self.positions} & {*NARROW})


def float64_of(array: Array, dtype: str) -> Reals:
    """Convert an array to float64; an array of bfloat16 may hold its bits as uint16."""
    values = values_of(np.ascontiguousarray(array).view(np.uint16), dtype) if dtype == "bfloat16" else array
    return np.asarray(values, np.float64)


def rounded(x: Reals, dtype: str) -> Reals:
    """Round float64 values to a dtype; "" means no rounding."""
    if dtype in ("", "float64"):
        return x
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def narrowest(values: Reals, dtype: str) -> str:
    """Return the narrowest dtype whose significant bits suffice for all values; at most the given dtype."""
    mantissa, _ = np.frexp(values)
    return next(name for name, bits in PRECISION.items() if name == dtype or (np.ldexp(mantissa, bits) % 1 == 0).all())


def errors_of_angles(frequencies: Reals, angles: Reals) -> Reals:
    """Return bounds of the errors of sines, in half ulps, if frequencies are computed as exponentials of rounded logarithms."""
    turning = np.abs(frequencies[frequencies != 0])
    growth = 2 + 2 * float(np.ptp(np.log(turning))) if len(turning) else 0.0
    return np.asarray(1 + growth * np.abs(angles))


# ---- rotations ------------------------------------------------------------------------------------------------------


def size_of(rotary: Rotary) -> float:
    """Return the factor by which a rotation multiplies cosines and sines."""
    return rotary.scale * rotary.attention_scaling


def exact(rotary: Rotary, positions: Array) -> Waves:
    cos, sin = rotary.tables(positions, dtype="float64")
    return np.asarray(cos + 1j * sin)


def both_rounded(values: Waves, dtype: str) -> Waves:
    return np.asarray(rounded(values.real.copy(), dtype) + 1j * rounded(values.imag.copy(), dtype))


def difference(x: Waves, y: Waves) -> Reals:
    """Return the larger of the differences between the real parts and between the imaginary parts, as absolute values."""
    return np.maximum(np.abs(x.real - y.real), np.abs(x.imag - y.imag))


def computed(rotary: Rotary, positions: Array, arithmetic: Arithmetic) -> Waves:
    """Return cos + i sin, computed with an arithmetic."""
    w = rounded(rotary.frequencies, arithmetic.frequencies)
    angles = rounded(rounded(positions.astype(np.float64), arithmetic.positions)[:, None] * w, arithmetic.angles)
    return both_rounded(size_of(rotary) * np.exp(1j * angles), arithmetic.table)


def rotation_curve(rotary: Rotary, positions: Array, arithmetic: Arithmetic) -> Curve:
    """Return the curve of a rotation; roundings to 16 bits are simulated, and others bounded."""
    unit = {"": 0.0, "float64": 2.0**-53}.get(arithmetic.angles, FLOAT32)
    values = computed(rotary, positions, arithmetic) if arithmetic.is_narrow else exact(rotary, positions)
    angles = positions.astype(np.float64)[:, None] * rotary.frequencies
    return Curve(values, unit * errors_of_angles(rotary.frequencies, angles), abs(size_of(rotary)))


def positions_near(position: int) -> Array:
    """Return a position and the seven before it, because 16 bits may hold an even position exactly."""
    return position - np.arange(min(position, 7), -1, -1)


def axes_of(rotary: Rotary | None) -> int:
    """Return the number of axes of positions."""
    return 1 if rotary is None or rotary.axes is None else 1 + max(rotary.axes)


# ---- the rule -------------------------------------------------------------------------------------------------------


class Curve(NamedTuple):
    """The values that a convention gives at some positions with an arithmetic."""

    values: Array                # real, or cos + i sin
    error: Reals          # bounds of the errors of rounded angles, as a share of the size
    size: float                         # absolute factor of the sines
    slack: float = SLACK                # half ulps by which correctly rounded values may differ; 0 if `error` contains them

    def differs(self, values: Array, arithmetic: Arithmetic) -> Mask:
        """Return a mask of the values that differ by more than the errors; where these are too large, no value differs."""
        # values may also be rounded before they are multiplied by the scale
        rounding = (1 if self.size == 1 else 2) * self.slack * 2.0 ** -PRECISION[arithmetic.table]
        # if the values fit into bfloat16, their dtype may be float16, which rounds small values to 0
        smallest = 2.0 ** (DTYPES["float16" if arithmetic.table in NARROW else arithmetic.table].smallest - 1)
        common = smallest + self.size * np.where(self.error < 1, self.error + MAX_NOISE * arithmetic.noise, np.inf)
        is_near = [np.abs(x - y) <= common + rounding * np.abs(y) for x, y in (
            (values.real, self.values.real), (values.imag, self.values.imag))]
        return np.asarray(~np.all(is_near, axis=0))


class Sample(NamedTuple):
    """Values at some positions, and the function that computes a convention's values."""

    positions: Array
    values: Array
    dtype: str                          # the narrowest dtype that holds the values
    curve: Callable[[Any, Array, Arithmetic], Curve]
    columns: Any = slice(None)          # those that are compared
    other_rows: float = 0.0             # share of the rows that may differ

    def agrees(self, convention: Any, arithmetic: Arithmetic) -> bool:
        """Return whether a convention gives the values within the error of an arithmetic."""
        curve = self.curve(convention, self.positions, arithmetic)
        if (curve.error >= 1).mean() >= BLURRED:
            return False
        differs = curve.differs(self.values, arithmetic)[:, self.columns]
        if arithmetic.is_narrow and differs.mean() < NARROW_SHARE and differs.mean(axis=1).max() < NARROW_ROW:
            return True
        return bool(differs.any(axis=1).mean() <= self.other_rows)


class Candidate(NamedTuple):
    """Conventions that differ only in the digits of a number, the first choice first, and what it costs to believe them."""

    cost: float
    conventions: Sequence[Any]
    source: Any                         # the names of presets; or the faults, None if the keywords of a rotation show them
    is_fitted: bool = True              # whether numbers were fitted to the sample
    sample: Any = None


Explanation: TypeAlias = tuple[Candidate, Any, Arithmetic]        # with the first convention that explains the sample


def explanations(candidates: Iterable[Candidate], kinds: Sequence[Arithmetic]) -> Iterator[Explanation]:
    """Yield the candidates that explain their samples, each with the first such convention and the arithmetic.

    This is the rule: candidates are tried in the given order, that of their cost, and the first explanation
    wins.  A fitted number may have too few digits, which looks like rounded angles.  So candidates with such
    numbers are first tried with the first arithmetic only, and with the others after all candidates.
    """
    fitted = []
    for candidate in candidates:
        yield from _explanation(candidate, kinds[:1] if candidate.is_fitted else kinds)
        fitted += [candidate] if candidate.is_fitted else []
    for candidate in fitted:
        yield from _explanation(candidate, kinds[1:])


def _explanation(candidate: Candidate, kinds: Sequence[Arithmetic]) -> Iterator[Explanation]:
    for convention, arithmetic in itertools.product(candidate.conventions, kinds):
        if candidate.sample.agrees(convention, arithmetic):
            yield candidate, convention, arithmetic
            return


def nearest(candidates: Iterable[Candidate], least: float) -> tuple[Candidate, Any, Array, float] | None:
    """Return the candidate that gives the largest share of the columns, above `least`, if none explains its sample.

    Also return its last convention, the numbers of the other columns, and the largest error.
    """
    result = None
    for candidate in candidates:
        sample, convention = candidate.sample, candidate.conventions[-1]
        how = Arithmetic(sample.dtype, "float32", noise=NEAR_NOISE)
        curve = sample.curve(convention, sample.positions, how)
        wrong = (curve.differs(sample.values, how) | (curve.error >= 1)).mean(axis=0)
        if (share := float((wrong < 1 - GOOD_COLUMN).mean())) > least:
            columns = np.flatnonzero(wrong >= 1 - GOOD_COLUMN)
            error = difference(sample.values, curve.values)[:, columns]
            least, result = share, (candidate, convention, columns, float(np.nan_to_num(error, nan=math.inf).max(initial=0.0)))
    return result


def plain(dtype: str) -> list[Arithmetic]:
    """Return the kinds of arithmetic without a rounding to fewer bits than those of the values, or of float32."""
    return [Arithmetic(dtype, angles) for angles in ("", "float64", "float32")]


def narrow(dtype: str) -> list[Arithmetic]:
    """Return the kinds of arithmetic that round to 16 bits, those with the fewest roundings first."""
    kinds = sorted(itertools.product(("", *NARROW), repeat=3), key=lambda names: sum(map(bool, names)))
    return [Arithmetic(dtype, angles or "float32", frequencies or "float32", positions)
            for angles, frequencies, positions in kinds if len({angles, frequencies, positions} & {*NARROW}) == 1]
