"""Read a rotation of any form: tables of cosines and sines, or frequencies."""

from __future__ import annotations

import sys
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.as_array import as_array
from posenc._arguments.types import Layout
from posenc._identify.sample import float64_of

Form: TypeAlias = Literal["inv_freq", "tables", "function"]


class Reading(NamedTuple):
    """The values of a rotation: its frequencies, or its cosines and sines."""

    form: Form
    dtype: str                                  # of the given values
    frequencies: NDArray[np.float64] | None = None
    positions: NDArray[Any] | None = None       # shape (n,), or (axes, n)
    values: NDArray[np.complex128] | None = None            # cos + i sin, shape (n, pairs)
    repeated: Layout | None = None              # the tables have each column twice: as halves, or next to each other
    layout: Layout | None = None                # of the pairs, if the rotation shows it
    head_dim: int | None = None                 # if the rotation shows it


def read(rotation: Any, positions: Any, pairs: int | None, axes: int) -> Reading:
    """Read a rotation; `pairs` and `axes` are the expected numbers of pairs and of axes of positions, if known."""
    if isinstance(rotation, (tuple, list)) and len(rotation) == 2 and np.ndim(rotation[0]):
        return tables_of(*rotation, positions, pairs, axes)
    array, dtype = values_of("rotation", rotation)
    if array.ndim == 1 and not np.iscomplexobj(array):
        if positions is not None:
            raise TypeError("positions is given with frequencies, expected tables; call identify_rotary without positions")
        return Reading("inv_freq", dtype, frequencies=array)
    if np.iscomplexobj(array):
        cos, sin = array.real, array.imag
    elif array.ndim > 2 and array.shape[-1] == 2 and array.shape[0] > 1:        # torch.view_as_real of a complex table
        cos, sin = array[..., 0], array[..., 1]
    else:
        if array.ndim < 2 or array.shape[-1] % 2:
            raise ValueError(f"rotation has shape {array.shape}, expected (n, 2 * pairs), for cosines and sines, or (pairs,)")
        cos, sin = np.split(array, 2, axis=-1)
    return _from_tables(cos, sin, dtype, positions, pairs, axes)


def tables_of(cos: Any, sin: Any, positions: Any, pairs: int | None, axes: int) -> Reading:
    """Read a pair of tables."""
    (cosines, dtype), (sines, other) = values_of("cos", cos), values_of("sin", sin)
    if cosines.shape != sines.shape or dtype != other:
        raise ValueError(f"sin has shape {sines.shape} and dtype {other}, expected those of cos, {cosines.shape} and {dtype}")
    return _from_tables(cosines, sines, dtype, positions, pairs, axes)


def values_of(name: str, value: Any) -> tuple[NDArray[Any], str]:
    """Return the values of an array or tensor as float64 or complex128, and the name of its dtype."""
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", ())
    known = ""
    if isinstance(value, tensor):
        if value.is_meta:
            raise ValueError(f"{name} is on the meta device, which has no values")
        value = value.detach().cpu()
        if str(value.dtype) == "torch.bfloat16":
            known, value = "bfloat16", value.float()
        value = value.resolve_conj().resolve_neg().numpy()
    array = as_array(name, value, has_torch_function=False)
    if array.dtype.kind == "c":
        return array.astype(np.complex128), "float32" if array.dtype.itemsize == 8 else "float64"
    if array.dtype.kind in "iu" and array.dtype != np.uint16:       # a list of integers, or frequencies such as [1]
        array = array.astype(np.float64)
    if array.dtype == np.uint16:
        return float64_of(array, "bfloat16"), "bfloat16"
    found, _ = checks.dtype(array.dtype.newbyteorder("="), f"{name} has dtype")
    with np.errstate(invalid="ignore"):         # a signalling NaN
        return array.astype(np.float64), known or found


def _from_tables(
    cos: NDArray[np.float64], sin: NDArray[np.float64], dtype: str, positions: Any, pairs: int | None, axes: int
) -> Reading:
    cos, sin = _rows("cos", cos), _rows("sin", sin)
    at = positions_of(positions, len(cos), axes)
    columns = cos.shape[1]
    repeated: Layout | None = None
    if columns % 2 == 0 and columns != pairs:
        for form, one, two in (
            ("halves", np.s_[:, : columns // 2], np.s_[:, columns // 2 :]), ("interleaved", np.s_[:, ::2], np.s_[:, 1::2]),
        ):
            # a sine may have its sign in the table, for the first column of its pair
            if np.array_equal(cos[one], cos[two], True) and np.array_equal(abs(sin[one]), abs(sin[two]), True):
                cos, sin, repeated = cos[one], sin[two], form  # type: ignore[assignment]
                break
    return Reading("tables", dtype, positions=at, values=cos + 1j * sin, repeated=repeated)


def _rows(name: str, table: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return a table with the shape (n, columns); its other axes must have length one."""
    if table.ndim < 2 or sum(length != 1 for length in table.shape[:-1]) > 1:
        raise ValueError(f"{name} has shape {table.shape}, expected (n, columns), with or without axes of length 1")
    return table.reshape(-1, table.shape[-1]) if table.size else np.empty((0, table.shape[-1]))


def positions_of(positions: Any, rows: int, axes: int) -> NDArray[Any]:
    """Return the positions of all rows as an array; by default they are counted from 0."""
    if positions is None:
        return np.tile(np.arange(rows), (axes, 1)) if axes > 1 else np.arange(rows)
    converted = checks.positions_of(checks.range_or_array(positions), 0.0)
    array = np.array(converted)
    expected = [(rows,)] if axes == 1 else [(axes, rows), (rows,)]
    if array.shape not in expected:
        raise ValueError(f"positions has shape {array.shape}, expected {expected[0]}, one for each row of the tables")
    return np.tile(array, (axes, 1)) if axes > 1 and array.ndim == 1 else array
