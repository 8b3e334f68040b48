"""Reading: tables, frequencies and functions are read as cosines and sines at some positions."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from posenc import Rotary
from posenc._arguments import arrays, checks
from posenc._arguments.specification import Layout
from posenc.check import match
from posenc.check.match import FLOAT32, PRECISION, ROUNDED, Array, Reals, Waves, axes_of, float64_of, on_axes, size_of

REACH = 2**17               # positions of a function are below this number
REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))  # positions, as far as the table goes
UNCHANGED = 3               # half ulps of columns that are not rotated: a model's factor, and the quotient
NO_VALUE = "no value is finite"
BIAS = 1e-6                 # mean error of rotated vectors: roundings of float32 may all have one direction


def spread(total: int, first: int = 256, evenly: int = 128) -> Array:
    """Return numbers below `total`: the first ones, those near powers of two, and evenly spaced ones."""
    powers = 2 ** np.arange(62)
    rows = np.r_[:first, powers - 1, powers, powers + 1, np.linspace(0, total - 1, evenly).astype(int)]
    return np.unique(rows[(rows >= 0) & (rows < total)])


def chunks(total: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows, with a bounded number of values in each."""
    step = max(1, match.CHUNK // columns)
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
            raise ValueError(f"rotation has shape {array.shape}, expected (n, 2 * pairs) for cosines and sines, or (pairs,)")
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
        raise ValueError(f"{name} has shape {table.shape}, expected (n, columns), with or without axes of length 1")
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
        if not np.abs(together - alone).max() <= match.ALIKE * np.abs(alone).max():
            return Reading(dtype, faults=("a call with a single row has other values than a call with several rows",))
    # thresholds are those of float32
    unit = 2.0**24 * 2.0 ** -min(24, PRECISION[match.narrowest(y, dtype)])
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
    for dim in dict.fromkeys((width if expected is None else expected.rotary_dim, width, head_dim)):
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
    largest = match.difference(one, two).max() / max(np.abs(matrices).max(), 2.0**-99)
    bias = max(abs(np.sum(part(one) * part(two - one))) for part in (np.real, np.imag))
    squares = np.sum(one.real**2 + two.real**2)
    of_roundings = match.SIGMAS * unit * FLOAT32 / math.sqrt(2 * one.size)
    if largest > unit * 2 * ROUNDED or bias > squares * (of_roundings + BIAS):
        return (f"the result is not a rotation of x: pairs differ by {largest:.2g} of their length",)
    return ()
