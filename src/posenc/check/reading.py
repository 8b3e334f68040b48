"""Reading: tables and frequencies are read as cosines and sines at some positions; numbers as text."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc._arguments import checks
from posenc._arguments.specification import Layout
from posenc.check import match
from posenc.check.match import Array, Waves, float64_of, size_of

FIRST, SPREAD = 256, 128    # rows of a sample: the first ones, and evenly spaced ones
REACH = 2**17               # positions of a function are below this number


def numbers(values: Any) -> str:
    """Return sorted integers as text: "3", "0 to 7", "1, 5, 9 ..."."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values[:4])) + (" ..." if len(values) > 4 else "")


def pairs(values: Any) -> str:
    """Return pairs of columns as text: "pair 3", "pairs 0 to 7"."""
    return f"pair{'s' if len(values) > 1 else ''} {numbers(values)}"


def number(x: float) -> str:
    """Return a number as text: integers in full, others with six digits."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.6g}"


def spread(total: int, first: int, evenly: int) -> Array:
    """Return the numbers below `total` in a sample: the first ones, those near powers of two, and evenly spaced ones."""
    powers = 2 ** np.arange(62)
    rows = np.concatenate([np.arange(first), powers - 1, powers, powers + 1, np.linspace(0, total - 1, evenly).astype(int)])
    return np.unique(rows[(rows >= 0) & (rows < total)])


def chunks(total: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows, with a bounded number of values in each."""
    step = max(1, match.CHUNK // columns)
    yield from (slice(first, min(total, first + step)) for first in range(0, total, step))


def array_of(name: str, value: Any) -> tuple[Array, str]:
    """Return an array or a tensor as an array, with the name of its dtype; uint16 is read as the bits of bfloat16."""
    if value is None or isinstance(value, (str, bytes, os.PathLike)):
        hint = "" if value is None else "; read a file with numpy.load, or use the command line"
        raise TypeError(f"{name} is {value!r}, expected an array{hint}")
    if hasattr(value, "detach"):
        from posenc.check.running import array_of_tensor

        value = array_of_tensor(name, value)
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{name} is of type {type(value).__name__}, expected an array: {error}") from None
    if array.dtype.kind == "c":
        return array, "float32" if array.dtype.itemsize == 8 else "float64"
    dtype = "bfloat16" if array.dtype == np.uint16 else array.dtype.newbyteorder("=").name
    if dtype not in match.PRECISION:
        raise TypeError(f"{name} has dtype {array.dtype}, expected float64, float32, float16 or bfloat16")
    return array, dtype


def positions_of(positions: Any, rows: int | None = None) -> Array:
    """Return finite positions as an array of int64 or float64 with one dimension."""
    if hasattr(positions, "detach"):
        positions, _ = array_of("positions", positions.double())
    array = np.asarray(checks.positions_of(positions))
    n = rows if rows is not None else max(1, array.shape[-1])
    if array.shape != (n,):
        raise ValueError(f"positions has shape {array.shape}, expected ({n},)")
    if not np.isfinite(array).all():
        raise ValueError(f"positions has {array[~np.isfinite(array)][0]}, expected finite numbers")
    return array


# ---- rotations -------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The values of a rotation, cosines and sines at some positions, or the faults of one without values."""

    dtype: str                                  # the dtype of the given values
    positions: Array = np.empty(0)              # the positions of all rows
    read: Callable[[Any], Waves] = lambda rows: np.zeros((0, 0), complex)      # cos + i sin of some rows
    call: Callable[[Array], Waves] | None = None        # cos + i sin at other positions
    repeated: Layout | None = None              # the column order of tables that have each column twice
    layout: Layout | None = None                # the layout of the pairs, if the rotation shows it
    head_dim: int | None = None                 # if the rotation shows it
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


def is_pair(rotation: Any) -> bool:
    """Return whether a rotation is a pair of tables; a list of two lists of numbers is a single array."""
    least = 1 if isinstance(rotation, tuple) else 2
    return isinstance(rotation, (tuple, list)) and len(rotation) == 2 and all(np.ndim(part) >= least for part in rotation)


def read_arrays(rotation: Any, positions: Any = None, expected: Rotary | None = None) -> Reading:
    """Read tables or frequencies."""
    if is_pair(rotation):
        (cos, dtype), (sin, sin_dtype) = array_of("cos", rotation[0]), array_of("sin", rotation[1])
        if cos.shape != sin.shape or dtype != sin_dtype:
            of_cos = f"the shape and dtype of cos, {cos.shape} and {dtype}"
            raise ValueError(f"sin has shape {sin.shape} and dtype {sin_dtype}, expected {of_cos}")
    elif isinstance(rotation, tuple):
        raise ValueError(f"rotation is a tuple of length {len(rotation)}, expected the pair (cos, sin)")
    else:
        array, dtype = array_of("rotation", rotation)
        if np.iscomplexobj(array):
            cos, sin = array.real, array.imag
        elif array.ndim == 1 and array.size:
            if positions is not None:
                raise TypeError("positions is given with frequencies, expected tables or a function; omit positions")
            return _read_frequencies(float64_of(array, dtype), 1.0 if expected is None else size_of(expected))
        elif array.ndim > 2 and array.shape[-1] == 2 and array.shape[0] > 1:        # torch.view_as_real of a complex table
            cos, sin = array[..., 0], array[..., 1]
        elif array.ndim > 1 and array.size and array.shape[-1] % 2 == 0:
            cos, sin = np.split(array, 2, -1)
        else:
            raise ValueError(f"rotation has shape {array.shape}, expected (n, 2 * pairs) for cosines and sines, or (pairs,)")
    cos, sin = _rows("cos", cos), _rows("sin", sin)
    half, repeated, same = cos.shape[1] // 2, None, functools.partial(np.array_equal, equal_nan=True)
    forms: dict[Layout, Any] = {"halves": (np.s_[:, :half], np.s_[:, half:]), "interleaved": (np.s_[:, ::2], np.s_[:, 1::2])}
    is_once = cos.shape[1] % 2 or expected is not None and cos.shape[1] == expected.rotary_dim // 2
    for form, (one, two) in () if is_once else forms.items():
        # in some tables, the two sines of a pair have opposite signs
        if same(cos[one], cos[two]) and (same(sin[one], sin[two]) or same(sin[one], -sin[two])):
            cos, sin, repeated = cos[one], sin[two], form
            break

    def read(rows: Any) -> Waves:
        return np.asarray(float64_of(cos[rows], dtype) + 1j * float64_of(sin[rows], dtype))

    at = positions_of(len(cos) if positions is None else positions, len(cos))
    return Reading(dtype, positions=at, read=read, repeated=repeated)


def _read_frequencies(w: Array, size: float) -> Reading:
    """Return the cosines and sines of frequencies, or a fault if the memory of the frequencies was never written."""
    invalid = np.count_nonzero(~np.isfinite(w))
    if invalid or not w.any():
        elements = f"{invalid} of {len(w)} elements are not finite" if invalid else f"all {len(w)} elements are 0"
        return Reading("float64", faults=(f"{elements}, so inv_freq is probably uninitialized",))
    # no pair turns by more than 1 at once
    at = spread(REACH, FIRST, SPREAD) / max(1.0, np.abs(w).max())

    def call(positions: Array) -> Waves:
        return np.asarray(size * np.exp(1j * positions[..., None] * w), np.complex128)

    return Reading("float64", positions=at, read=lambda rows: call(at[rows]), call=call)


def _rows(name: str, table: Array) -> Array:
    """Return a table with the shape (n, columns); all other axes must have length 1."""
    table = table[None] if table.ndim == 1 else table           # a single position
    if table.ndim < 2 or sum(length != 1 for length in table.shape[:-1]) > 1:
        raise ValueError(f"{name} has shape {table.shape}, expected (n, columns), with or without axes of length 1")
    return table.reshape(max(table.shape[:-1], key=lambda length: length != 1), table.shape[-1])
