"""Fill a table whose columns encode positions on several axes."""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.dtypes import DTYPES

BLOCK_BYTES = 1 << 21                   # size of the cells that are written at a time


class AxisColumns(NamedTuple):
    """Columns of a table for an axis of positions."""

    axis: int
    encode: Callable[..., NDArray[Any]]             # called with positions, dtype, out and threads
    width: int                                      # the number of columns that `encode` computes
    slices: tuple[tuple[slice, slice], ...]         # slices of the table, and the slices of these columns for them


def fill(
    table: NDArray[Any], columns: Sequence[AxisColumns], zeros: slice, positions: Sequence[NDArray[Any]], dtype: str,
    threads: int | None,
) -> None:
    """Write all columns of a table of shape (..., columns); those in the slice `zeros` are 0.

    The positions on each axis broadcast to the shape of the cells.  bfloat16 is written as uint16.
    """
    bits, shape = np.dtype(f"u{table.itemsize}"), table.shape[:-1]
    parts: dict[int, NDArray[Any]] = {}             # whole rows for each axis with fewer positions than cells
    for column in columns:
        on_axis = positions[column.axis]
        if on_axis.size != math.prod(shape):
            # 0 in all other columns, because bitwise_or on whole rows is faster than a broadcast to some columns
            part = parts.setdefault(column.axis, np.zeros((*on_axis.shape, table.shape[-1]), table.dtype))
            _write(part, column, on_axis, dtype, threads)
    sorted_parts = sorted((part.view(bits) for part in parts.values()), key=operator.attrgetter("size"))
    for block in _blocks(table):
        cells = table[block]
        if parts:
            rows = [part[tuple([slice(None) if n == 1 else axis for axis, n in zip(block, part.shape, strict=False)])]
                    for part in sorted_parts]
            np.bitwise_or(functools.reduce(np.bitwise_or, rows[:-1] or [bits.type(0)]), rows[-1], out=cells.view(bits))
        for column in columns:
            if column.axis not in parts:
                _write(cells, column, positions[column.axis].reshape(shape)[*block, ...], dtype, threads)
        cells[..., zeros] = 0


def _write(cells: NDArray[Any], column: AxisColumns, coordinates: NDArray[Any], dtype: str, threads: int | None) -> None:
    """Write the columns of an axis."""
    _, encode, width, slices = column
    out = cells[..., slices[0][0]] if len(slices) == 1 else cells[..., :0]
    if out.shape[-1] == width and out.strides[-1] == out.itemsize:
        encode(coordinates, dtype=dtype, out=out, threads=threads)
        return
    rows = encode(coordinates, dtype=dtype, out=np.empty((*coordinates.shape, width), cells.dtype), threads=threads)
    for target, source in slices:
        cells[..., target] = rows[..., source]


def _blocks(table: NDArray[Any]) -> Iterator[tuple[Any, ...]]:
    """Yield indices that divide a table of shape (..., columns) into blocks of cells; on the first axis, they vary fastest."""
    if 0 < table.nbytes <= BLOCK_BYTES:
        yield (slice(None),) * (table.ndim - 1)
        return
    most = BLOCK_BYTES // max(1, table.shape[-1] * table.itemsize)
    sides: list[int] = []
    for size in table.shape[-2::-1]:
        sides.append(max(1, min(size, most)))
        most //= sides[-1]
    ranges = (range(0, size if table.size else 0, side) for size, side in zip(table.shape[-2::-1], sides, strict=True))
    for corner in itertools.product(*ranges):
        yield tuple(slice(begin, begin + side) for begin, side in zip(corner, sides, strict=True))[::-1]


def slices_of(columns: Sequence[int]) -> tuple[tuple[slice, slice], ...]:
    """Return slices of a table that together contain these columns, each with the slice of their indices in `columns`."""
    runs, runs_by_function = _runs(columns, 0, 1), _runs(columns, 0, 2) + _runs(columns, 1, 2)      # sines, then cosines
    return tuple(runs if len(runs) <= len(runs_by_function) else runs_by_function)


def _runs(columns: Sequence[int], begin: int, stride: int) -> list[tuple[slice, slice]]:
    runs = []
    while begin < len(columns):
        end = begin + stride
        step = columns[end] - columns[begin] if end < len(columns) else 1
        while end < len(columns) and columns[end] - columns[end - stride] == step:
            end += stride
        runs.append((slice(columns[begin], columns[end - stride] + 1, step), slice(begin, end, stride)))
        begin = end
    return runs


def round_positions(positions: NDArray[Any], *, dtype: str, out: NDArray[Any], threads: int | None) -> NDArray[Any]:
    """Write positions of int64 or float64, each rounded once, to the single column of `out`."""
    if positions.dtype.kind == "i" and dtype != "float64":
        # float64 may not hold integers of 2**53 or more; one bit in place of the last 11 leaves them on the same side of a tie
        substitutes = positions >> 11 << 11 | (positions & 2047 != 0).astype(np.int64) << 10
        positions = np.where(abs(positions) < 2**53, positions, substitutes)
    with np.errstate(all="ignore"):             # overflow, signalling NaNs
        reals = np.where(np.isnan(positions), np.nan, positions)
        if dtype == "bfloat16":
            last_place = np.maximum(np.frexp(reals)[1] - DTYPES[dtype].precision, DTYPES[dtype].smallest)
            rounded = np.ldexp(np.rint(np.ldexp(reals, -last_place)), last_place)
            out[..., 0] = rounded.astype(np.float32).view(np.uint32) >> 16
        else:
            out[..., 0] = reals
    return out
