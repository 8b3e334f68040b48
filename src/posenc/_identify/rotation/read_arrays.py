"""Read tables of cosines and sines, or frequencies, from arrays or tensors."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.as_array import as_array
from posenc._arguments.types import Layout
from posenc._identify.table.sample import float64_of

FIRST, SPREAD = 256, 128    # numbers of rows of a sample: the first rows, and evenly spaced ones


class Reading(NamedTuple):
    """The values of a rotation: its frequencies, or its cosines and sines at some positions."""

    dtype: str                                  # the dtype of the given values
    frequencies: NDArray[np.float64] | None = None
    positions: NDArray[Any] | None = None       # the positions of all rows, shape (n,) or (axes, n)
    rows: NDArray[np.intp] | None = None        # the rows of the sample
    read: Callable[[Any], NDArray[np.complex128]] | None = None         # returns cos + i sin of the given rows
    call: Callable[[NDArray[Any]], NDArray[np.complex128]] | None = None        # returns cos + i sin at other positions
    repeated: Layout | None = None              # the column order of tables that have each column twice
    layout: Layout | None = None                # the layout of the pairs, if the rotation shows it
    head_dim: int | None = None                 # if the rotation shows it
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def pairs(self) -> int:
        if self.frequencies is not None:
            return len(self.frequencies)
        assert self.read is not None
        return int(self.read(slice(0, 0)).shape[1])


def read_arrays(rotation: Any, positions: Any, pairs: int | None, axes: int) -> Reading:
    """Read tables or frequencies; `pairs` and `axes` are the expected numbers of pairs and of axes of positions."""
    if is_pair(rotation):
        (cos, dtype), (sin, other) = array_of("cos", rotation[0]), array_of("sin", rotation[1])
        if cos.shape != sin.shape or dtype != other:
            expected = f"the shape and dtype of cos, {cos.shape} and {dtype}"
            raise ValueError(f"sin has shape {sin.shape} and dtype {other}, expected {expected}")
        return reading_of(cos, sin, dtype, positions, pairs, axes)
    if isinstance(rotation, tuple) and len(rotation) != 2:
        raise ValueError(f"rotation is a tuple of length {len(rotation)}, expected the pair (cos, sin)")
    array, dtype = array_of("rotation", rotation)
    if array.ndim == 1 and not np.iscomplexobj(array):
        if positions is not None:
            raise TypeError("positions is given with frequencies, expected tables or a function; omit positions")
        return Reading(dtype, frequencies=float64_values(array, dtype))
    if np.iscomplexobj(array):
        cos, sin = array.real, array.imag
    elif array.ndim > 2 and array.shape[-1] == 2 and array.shape[0] > 1:        # torch.view_as_real of a complex table
        cos, sin = array[..., 0], array[..., 1]
    elif array.ndim > 1 and array.shape[-1] % 2 == 0:
        cos, sin = array[..., : array.shape[-1] // 2], array[..., array.shape[-1] // 2 :]
    else:
        raise ValueError(f"rotation has shape {array.shape}, expected (n, 2 * pairs) for cosines and sines, or (pairs,)")
    return reading_of(cos, sin, dtype, positions, pairs, axes)


def is_pair(rotation: Any) -> bool:
    """Return whether a rotation is a pair of tables; a list of two lists of numbers is a single array."""
    least = 1 if isinstance(rotation, tuple) else 2
    return isinstance(rotation, (tuple, list)) and len(rotation) == 2 and all(np.ndim(part) >= least for part in rotation)


def array_of(name: str, value: Any) -> tuple[NDArray[Any], str]:
    """Return an array or tensor as an array, with the name of its dtype; uint16 is read as the bits of bfloat16."""
    value = numpy_of(name, value)
    array = as_array(name, value)
    if array.dtype.kind == "c":
        return array, "float32" if array.dtype.itemsize == 8 else "float64"
    if array.dtype == np.uint16:
        return array, "bfloat16"
    if not array.size:
        raise ValueError(f"{name} has shape {array.shape}, expected at least one element")
    if array.dtype.kind in "iu" and isinstance(value, list):            # such as [1]
        array = array.astype(np.float64)
    dtype, _ = checks.dtype(array.dtype.newbyteorder("="), f"{name} has dtype")
    return array, dtype


def float64_values(array: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """Convert an array of this dtype to float64; the bits of bfloat16 may be stored as uint16."""
    return float64_of(np.ascontiguousarray(array).view(np.uint16), dtype) if dtype == "bfloat16" else array.astype(np.float64)


def numpy_of(name: str, value: Any) -> Any:
    """Return a PyTorch tensor as an array, with the bits of bfloat16 as uint16; return other values unchanged."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return value
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device, expected a tensor with values")
    if value.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor, expected a dense one; call its method to_dense()")
    value = value.detach().cpu().resolve_conj().resolve_neg()
    return value.view(torch.uint16).numpy() if value.dtype == torch.bfloat16 else value.numpy()


def reading_of(
    cos: NDArray[Any], sin: NDArray[Any], dtype: str, positions: Any, pairs: int | None, axes: int
) -> Reading:
    """Read a table of cosines and a table of sines."""
    cos, sin = _rows("cos", cos), _rows("sin", sin)
    at = positions_on_axes(np.arange(len(cos)) if positions is None else positions, axes, len(cos))
    half = cos.shape[1] // 2
    repeated: Layout | None = None
    forms: tuple[tuple[Layout, Any, Any], ...] = (
        ("halves", np.s_[:, :half], np.s_[:, half:]), ("interleaved", np.s_[:, ::2], np.s_[:, 1::2]))
    for form, one, two in forms if cos.shape[1] % 2 == 0 and cos.shape[1] != pairs else ():
        # in some tables, the two sines of a pair have opposite signs
        if _equal(cos[one], cos[two]) and (_equal(sin[one], sin[two]) or _equal(sin[one], -sin[two])):
            cos, sin, repeated = cos[one], sin[two], form
            break

    def read(rows: Any) -> NDArray[np.complex128]:
        values: NDArray[np.complex128] = float64_values(cos[rows], dtype) + 1j * float64_values(sin[rows], dtype)
        return values

    return Reading(dtype, positions=at, rows=_sample(len(cos)), read=read, repeated=repeated)


def _equal(x: NDArray[Any], y: NDArray[Any]) -> bool:
    return bool(((x == y) | (x != x) & (y != y)).all())


def _rows(name: str, table: NDArray[Any]) -> NDArray[Any]:
    """Return a table with the shape (n, columns); all other axes must have length 1."""
    table = table[None] if table.ndim == 1 else table           # a single position
    if table.ndim < 2 or sum(length != 1 for length in table.shape[:-1]) > 1:
        raise ValueError(f"{name} has shape {table.shape}, expected (n, columns), with or without axes of length 1")
    return table.reshape(max(table.shape[:-1], key=lambda length: length != 1), table.shape[-1])


def positions_on_axes(positions: Any, axes: int, rows: int | None = None) -> NDArray[Any]:
    """Return positions as an array of int64 or float64 of shape (n,), or (axes, n) if there are several axes."""
    array = np.array(checks.converted_positions(numpy_of("positions", positions), 0.0))
    n = rows if rows is not None else array.shape[-1] if array.size else 1
    if array.shape != (n,) and (axes == 1 or array.shape != (axes, n)):
        expected = f"({n},)" if axes == 1 else f"({n},) or ({axes}, {n})"
        which = "one for each row of the tables" if rows is not None else "at least one position for each axis"
        raise ValueError(f"positions has shape {array.shape}, expected {expected}, {which}")
    if not np.isfinite(array).all():
        raise ValueError(f"positions has {array[~np.isfinite(array)][0]}, expected finite numbers")
    return np.tile(array, (axes, 1)) if axes > 1 and array.ndim == 1 else array


def _sample(rows: int) -> NDArray[np.intp]:
    powers = 2 ** np.arange(63)
    chosen = np.concatenate([np.arange(FIRST), powers - 1, powers, powers + 1, np.linspace(0, rows - 1, SPREAD).astype(int)])
    return np.unique(chosen[(chosen >= 0) & (chosen < rows)])
