"""How rotations are read as cosines and sines, and when values match: thresholds, the rule, and estimates.

Values match a candidate if each differs from it by at most the errors of an arithmetic: this rule is
`Curve.explains`.  An expected rotation is compared without any estimate.  The estimates of frequencies and
phases (`phases_of`) only choose the other candidates.  Tables, frequencies and functions are read as a
`Reading`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc._arguments import arrays, checks
from posenc._arguments.arrays import DTYPES, values_of
from posenc._arguments.specification import Layout

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
REACH = 2**17               # positions of a function are below this number
REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))  # positions, as far as the table goes
UNCHANGED = 3               # half ulps of columns that are not rotated: a model's factor, and the quotient
NO_VALUE = "no value is finite"
BIAS = 1e-6                 # mean error of rotated vectors: roundings of float32 may all have one direction

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
        """Return whether all values agree: this is the rule of every verdict."""
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
PRECISE = 4             # numbers are rounded within so many standard errors


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
        self, divisors: Sequence[float], usual: Sequence[float] = (), sigmas: float = PRECISE
    ) -> tuple[float, list[float]]:
        """Return the first frequency, and a list with a base for each divisor of the exponents.

        A line is fitted to the logarithms of the known positive frequencies.  A single one has the default
        base.
        The list is empty if there is none, or if the line is too steep.
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


# ---- arguments ---------------------------------------------------------------------------------------------


def spread(total: int, first: int = 256, evenly: int = 128) -> Array:
    """Return numbers below `total`: the first ones, those near powers of two, and evenly spaced ones."""
    powers = 2 ** np.arange(62)
    evenly_spaced = np.linspace(0, total - 1, evenly).astype(int)
    rows = np.concatenate([np.arange(first), powers - 1, powers, powers + 1, evenly_spaced])
    return np.unique(rows[(rows >= 0) & (rows < total)])


def chunks(total: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows, with a bounded number of values in each."""
    step = max(1, CHUNK // columns)
    yield from (slice(first, min(total, first + step)) for first in range(0, total, step))


def array_of(name: str, value: Any) -> tuple[Array, str]:
    """Return an array or tensor as an array, with its dtype; uint16 is read as the bits of bfloat16."""
    if hasattr(value, "detach"):
        import torch

        if value.is_meta:
            raise ValueError(f"{name} is on the meta device, expected a tensor with values")
        value = value.detach().cpu().resolve_conj().resolve_neg()
        value = (value.contiguous().view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()
    array = arrays.as_array(name, value)
    if array.dtype.kind == "c":
        return array, "float32" if array.dtype.itemsize == 8 else "float64"
    of_array = "bfloat16" if array.dtype == np.uint16 else array.dtype.newbyteorder("=")
    return array, arrays.dtype(of_array, f"{name} has dtype")[0]


def positions_of(positions: Any, rows: int | None = None) -> Any:
    """Return finite positions as a range, or as an array of int64 or float64 with one dimension."""
    positions = checks.positions_of(positions)
    shape, expected = np.shape(positions), max(1, np.size(positions)) if rows is None else rows
    if shape != (expected,):
        raise ValueError(f"positions has shape {shape}, expected ({expected},)")
    if not np.isfinite(positions).all():
        raise ValueError(f"positions has {positions[~np.isfinite(positions)][0]}, expected finite numbers")
    return positions


# ---- rotations ---------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """Cosines and sines, as cos + i sin, at some positions; or the faults of a rotation without values."""

    dtype: str                                  # the dtype of the given values
    positions: Array = np.empty(0)
    values: Waves = np.empty((0, 0), np.complex128)     # a row for each position
    call: Callable[[Array], Waves] | None = None        # the values at other positions; None: those of tables
    layout: Layout | None = None                # the layout of the pairs, if the rotation shows it
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def at(self, rows: Any) -> Reading:
        """Return the reading of some rows."""
        return self._replace(positions=self.positions[rows], values=self.values[rows])


def is_pair(rotation: Any) -> bool:
    """Return whether a rotation is a pair of tables."""
    return isinstance(rotation, (tuple, list)) and len(rotation) == 2 and all(map(np.ndim, rotation))


def read_arrays(rotation: Any, positions: Any, expected: Rotary | None) -> Reading:
    """Read tables or frequencies."""
    if is_pair(rotation):
        (cos, dtype), (sin, sin_dtype) = array_of("cos", rotation[0]), array_of("sin", rotation[1])
        if cos.shape != sin.shape or dtype != sin_dtype:
            of_cos = f"the shape and dtype of cos, {cos.shape} and {dtype}"
            raise ValueError(f"sin has shape {sin.shape} and dtype {sin_dtype}, expected {of_cos}")
    else:
        array, dtype = array_of("rotation", rotation)
        if np.iscomplexobj(array):
            cos, sin = array.real, array.imag
        elif array.ndim == 1 and array.size:
            size = 1.0 if expected is None else size_of(expected)
            return _read_frequencies(float64_of(array, dtype), size, positions)
        elif array.ndim > 1 and array.size and array.shape[-1] % 2 == 0:
            cos, sin = np.split(array, 2, -1)
        else:
            shapes = "(n, 2 * pairs) for cosines and sines, or (pairs,)"
            raise ValueError(f"rotation has shape {array.shape}, expected {shapes}")
    z = rows_of("cos", float64_of(cos, dtype) + 1j * float64_of(sin, dtype))
    layout: Layout | None = None
    is_once = z.shape[1] % 2 or expected is not None and z.shape[1] == expected.rotary_dim // 2
    for name, columns in () if is_once else columns_of(z.shape[1]).items():
        one, two = z[:, columns].transpose(2, 0, 1)
        # in some tables, the two sines of a pair have opposite signs
        if _equal(one, two) or _equal(one, two.conj()):
            # tables that repeat all columns, as halves, are also used for interleaved columns
            z, layout = two, name if name == "interleaved" else None
            break
    at = np.asarray(positions_of(len(z) if positions is None else positions, len(z)))
    return Reading(dtype, at, z, layout=layout)


def _equal(x: Array, y: Array) -> bool:
    return np.array_equal(x, y, equal_nan=True)


def _read_frequencies(w: Reals, size: float, positions: Any) -> Reading:
    """Return the cosines and sines of frequencies, multiplied by the size of the expected ones."""
    def call(positions: Array) -> Waves:
        return np.asarray(size * np.exp(1j * positions[..., None] * w), np.complex128)

    usual = spread(REACH) / max(1.0, np.abs(w).max())   # no pair turns by more than 1 at once
    at = usual if positions is None else np.asarray(positions_of(positions))
    return Reading("float64", at, call(at), call)


def rows_of(name: str, table: Array) -> Array:
    """Return a table with the shape (n, columns); all other axes must have length 1."""
    if table.ndim < 2 or sum(length != 1 for length in table.shape[:-1]) > 1:
        shapes = "(n, columns), with or without axes of length 1"
        raise ValueError(f"{name} has shape {table.shape}, expected {shapes}")
    return table.reshape(max(table.shape[:-1], key=lambda length: length != 1), table.shape[-1])


# ---- functions ---------------------------------------------------------------------------------------------


class Rotation:
    """A function of x of shape (n, head_dim) and positions of shape (n,), or (axes, n), of the rows.

    It takes arrays or tensors, and returns one or two of the shape of x.
    """

    has_any_order = False               # whether columns in another order are right
    is_free = True                      # whether the positions of a call may be repeated and in any order
    labels: Sequence[str] = "", "keys: "        # of the elements of a result, for sentences
    reach = REACH                       # the positions with which it is called are below this number
    length: int | None = None           # number of positions that the configuration states

    takes_tensors = False

    def __init__(self, function: Callable[..., Any], axes: int):
        self.function, self.axes = function, axes

    def __call__(self, x: Array, positions: Array) -> list[tuple[Reals, str]]:
        """Return the rotated vectors as float64, with their dtype: queries or, in a second element, keys."""
        arguments: list[Any] = [x.copy(), on_axes(positions, self.axes)]
        if self.takes_tensors:
            import torch

            arguments = [torch.from_numpy(array) for array in arguments]
        result = self.function(*arguments)
        parts = result if isinstance(result, (tuple, list)) and len(result) == 2 else [result]
        results = [array_of("the result of rotation", part) for part in parts]
        for array, _ in results:
            if array.shape != x.shape or array.dtype.kind == "c":
                expected = f"expected rotated x of shape {x.shape}"
                raise ValueError(f"the function returned an array of shape {array.shape}, {expected}")
        return [(float64_of(*result), result[1]) for result in results]


def read_function(
    function: Callable[..., Any], positions: Any, expected: Rotary | None, head_dim: int | None, most: int | None
) -> Iterator[tuple[str, Reading]]:
    """Read a function; yield a reading, with its label, for each element of the results that differs.

    Without `positions`, the function is called only at positions below `most`.
    """
    if head_dim is None:
        raise TypeError("rotation is a function, so identify_rotary needs expect or head_dim")
    own = function if isinstance(function, Rotation) else None
    most = min(own.reach if own else REACH, most or REACH)
    choices = [spread(reach, 64, 64) for reach in dict.fromkeys(min(reach, most) for reach in REACHES)]
    if positions is not None:
        choices = [np.asarray(positions_of(positions))]
    call, errors = own or Rotation(function, axes_of(expected)), list[str]()
    for at, call.takes_tensors in itertools.product(choices, [False] if own else [False, True]):
        try:
            rotated = call(np.tile(np.linspace(0.5, 1, head_dim, dtype=np.float32), (len(at), 1)), at)
            break
        except Exception as error:  # a function may expect tensors, or its table may end before these positions
            last, with_tensors = int(at.max()), "tensors and " * call.takes_tensors
            raised = f"raises {type(error).__name__}: {error}"
            errors.append(f"a call with {with_tensors}positions up to {last:,} {raised}")
            is_last = at is choices[-1] or call.length and last < call.length
            if is_last and (own or call.takes_tensors):
                hint = (f"expected a function of x of shape (n, {head_dim}) and positions; for a table of N rows, "
                        "choose smaller ones, such as up_to=N - 1 in assert_rotary")
                raise ValueError("; ".join([*errors[-1 if own else -2 :], hint])) from error
    remarks = tuple(errors[-1:] if own else errors[-2:-1])      # of the positions before
    for k, (array, _) in enumerate(rotated):
        if not any(_equal(array, other) for other, _ in rotated[:k]):
            reading = _read_rotated(call, k, at, head_dim, expected)
            yield call.labels[k], reading._replace(remarks=reading.remarks + remarks)


# ---- rotated vectors ---------------------------------------------------------------------------------------


# the layout of pairs, their columns in x and in the result, of shape (pairs, 2), and faults
Form: TypeAlias = tuple[Layout, Array, Array, tuple[str, ...]]


def _read_rotated(call: Rotation, index: int, at: Array, head_dim: int, expected: Rotary | None) -> Reading:
    """Read the rotation of an element of the results.

    Random vectors show the form of the rotation; then vectors of 1 and 0 give exact cosines and sines.
    """
    def values(positions: Array, columns: Any = slice(None)) -> Reals:
        """Return the rotated vectors of 1 in some columns, and of 0 in the others."""
        x = np.zeros((positions.shape[-1], head_dim), np.float32)
        x[:, columns] = 1
        return call(x, positions)[index][0]

    rng = np.random.default_rng(0)
    positions = rng.permutation(at if call.is_free else at[:64])[:48]   # else a call has all positions before
    x = rng.integers(-32, 32, (len(positions), head_dim)) / 8           # exact in every dtype
    y, dtype = call(x.astype(np.float32), positions)[index]
    finite = np.isfinite(y).all(axis=1)                         # large angles overflow in float16
    if not finite.any():
        return Reading(dtype, faults=(NO_VALUE,))
    positions, x, y = positions[finite], x[finite], y[finite]
    if call.is_free:
        alone, together = (values(rows)[-1] for rows in (positions[:16][-1:], positions[:16]))
        if not np.abs(together - alone).max() <= ALIKE * np.abs(alone).max():
            other = "a call with a single row has other values than a call with several rows"
            return Reading(dtype, faults=(other,))
    # thresholds are those of float32
    unit = 2.0**24 * 2.0 ** -min(24, PRECISION[narrowest(y, dtype)])
    form = _form_of(values, positions, x, y, unit, expected)
    if form is None:
        other = "the result does not consist of rotated pairs, as halves or interleaved, and unchanged columns"
        return Reading(dtype, faults=(other,))
    layout, given, returned, faults = form
    order = () if _equal(given, returned) else ("the result has its columns in another order",)

    def waves(positions: Array) -> Waves:
        return np.asarray(values(positions, given[:, 0])[:, returned] @ np.array([1, 1j]))

    remarks, faults = (order, faults) if call.has_any_order else ((), faults + order)
    return Reading(dtype, at, waves(at), waves, layout, faults, remarks)


def _form_of(
    values: Callable[..., Reals], positions: Array, x: Reals, y: Reals, unit: float, expected: Rotary | None
) -> Form | None:
    """Return the form in which a function rotates x to y, both of shape (n, head_dim), or None.

    In this form, each pair of columns of x is multiplied by a matrix, which vectors of 1 and 0 show.
    `unit` is half an ulp of y as a multiple of that of float32.
    """
    error = unit * ROUNDED
    head_dim, changed = x.shape[1], np.flatnonzero(np.abs(y - x).max(axis=0) > error * np.abs(x).max())
    width = 2 * (changed[-1] // 2 + 1) if len(changed) else head_dim
    dims = [] if expected is None else [expected.rotary_dim]
    for dim in dict.fromkeys((*dims, width, head_dim)):
        forms = columns_of(dim, None if expected is None else expected.layout)
        differ = np.abs(y[:, dim:] - x[:, dim:]) > UNCHANGED * unit * FLOAT32 * np.abs(x[:, dim:])
        for layout, given in () if differ.any() else forms.items():
            results = np.stack([values(positions, given[:, member]) for member in (0, 1)], axis=-1)
            for moved in (given, *forms.values()):
                matrices = results[:, moved]                    # of shape (n, pairs, 2, 2)
                differences = y[:, moved] - np.einsum("npij,npj->npi", matrices, x[:, given])
                if np.abs(differences).max() <= error * max(np.abs(y).max(), 2.0**-12):
                    return layout, given, moved, _faults_of_matrices(matrices, unit)
    return None


def columns_of(dim: int, first: str | None = None) -> dict[Layout, Array]:
    """Return the columns of each pair in each layout, in one of them first."""
    columns: dict[Layout, Array] = {
        "halves": np.arange(dim).reshape(2, -1).T, "interleaved": np.arange(dim).reshape(-1, 2)}
    return dict(sorted(columns.items(), key=lambda item: item[0] != first))


def _faults_of_matrices(matrices: Reals, unit: float) -> tuple[str, ...]:
    """Return the fault of matrices that are not those of a rotation."""
    # cos + i sin, as the first and as the second column of the matrices show them
    one, two = matrices[..., 0, 0] + 1j * matrices[..., 1, 0], matrices[..., 1, 1] - 1j * matrices[..., 0, 1]
    largest = difference(one, two).max() / max(np.abs(matrices).max(), 2.0**-99)
    bias = max(abs(np.sum(part(one) * part(two - one))) for part in (np.real, np.imag))
    squares = np.sum(one.real**2 + two.real**2)
    of_roundings = SIGMAS * unit * FLOAT32 / math.sqrt(2 * one.size)
    if largest > unit * 2 * ROUNDED or bias > squares * (of_roundings + BIAS):
        return (f"the result is not a rotation of x: pairs differ by {largest:.2g} of their length",)
    return ()
