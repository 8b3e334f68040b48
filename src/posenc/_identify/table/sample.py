"""A table, and a sample of its rows."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import checks
from posenc._arguments.as_array import as_array
from posenc._arguments.dtypes import DTYPES, values_of
from posenc._arguments.types import Positions
from posenc._files.save_open_verify import File

SAMPLE = 2**21              # a sample begins with the first rows of the table: SAMPLE / 2 values, but 16 to 256 rows
# significant bits of each dtype, narrowest first; half an ulp of a value is at most the value times 2**-bits
PRECISION = {name: row.precision for name, row in reversed(DTYPES.items())}


class Source(NamedTuple):
    """A table; `read(first, rows)` returns `rows` consecutive rows as float64, starting with row `first`."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[int, int], NDArray[np.float64]]


class Sample(NamedTuple):
    """The sampled rows of a table that are finite and not zero."""

    rows: NDArray[np.intp]          # row numbers
    values: NDArray[np.float64]
    zero_rows: list[int]            # numbers of the sampled rows that are zero
    stored: str                     # dtype with the fewest significant bits that suffice for all values
    total: int                      # number of rows in the table
    positions: range | NDArray[Any] | None      # positions of all rows in the table, if known


def source_of(table: ArrayLike) -> Source:
    if isinstance(table, (str, bytes, os.PathLike)):
        raise checks.wrong_type("table", table, "an array; read a file with numpy.load, or identify it on the command line")
    if isinstance(table, File):
        raise TypeError("table is of type File, expected an array; pass file.values")
    array = as_array("table", table)
    if array.dtype != np.uint16:
        name, _ = checks.dtype(array.dtype.newbyteorder("="), "table has dtype")
    else:
        name = "bfloat16"
    if array.ndim == 3 and 1 in array.shape[:2]:
        array = array.reshape(-1, array.shape[2]) if array.size else np.empty((0, array.shape[2]))
    if array.ndim != 2:
        raise ValueError(f"table has shape {array.shape}, expected (n, d_model), (1, n, d_model) or (n, 1, d_model)")

    def read(first: int, rows: int) -> NDArray[np.float64]:
        part = array[first : first + rows]
        return float64_of(part.view(np.uint16), name) if name == "bfloat16" else part.astype(np.float64)

    return Source(array.shape, name, read)


def float64_of(bits: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    with np.errstate(invalid="ignore"):         # signalling NaNs cause a warning
        return values_of(bits, dtype).astype(np.float64)


def checked_positions(positions: Positions, rows: int) -> range | NDArray[Any]:
    converted = checks.range_or_array(positions)
    shape = checks.shape_of(checks.positions_of(converted, 0.0))
    if shape != (rows,):
        raise ValueError(f"positions has shape {shape}, expected ({rows},), one for each row of the table")
    return converted


def positions_at(positions: range | NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    """Return the positions of `rows`, given those of all rows."""
    if isinstance(positions, range):
        return np.array([positions[row] for row in rows.tolist()], np.int64)
    return positions[rows]


def sample_of(source: Source, positions: range | NDArray[Any] | None) -> Sample | None:
    """Sample the first rows, and fewer rows from ranges 8, 64, ... times as long; return None if no row is usable."""
    total, d_model = source.shape
    first = max(16, min(256, SAMPLE // 2 // d_model))
    chosen, reach = [np.arange(min(first, total))], 8 * first
    while reach < 8 * total:
        chosen.append(np.linspace(0, min(reach, total) - 1, first // 4).astype(np.int64))
        reach *= 8
    rows = np.unique(np.concatenate(chosen))
    values = np.concatenate([source.read(rows[0], first), *(source.read(row, 1) for row in rows[first:].tolist())])
    finite = np.isfinite(values).all(axis=1)
    if not finite.any():
        return None
    sizes = np.abs(values).max(axis=1)
    zero = sizes <= 0.02 * np.median(sizes[finite])     # a row of zeros may have noise
    usable = finite & ~zero
    if not usable.any():
        return None
    usable_values = values[usable]
    stored = narrowest(usable_values, source.dtype)
    return Sample(rows[usable], usable_values, rows[zero].tolist(), stored, total, positions)


def narrowest(values: NDArray[np.float64], dtype: str) -> str:
    """Return the first dtype of PRECISION whose significant bits suffice for all values; stop at the dtype of the table."""
    mantissa, _ = np.frexp(values)
    return next(name for name, bits in PRECISION.items() if name == dtype or (np.ldexp(mantissa, bits) % 1 == 0).all())
