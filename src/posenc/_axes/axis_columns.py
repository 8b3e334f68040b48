"""The order of columns that encode positions on several axes, and functions that fill a table with them."""

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import arrays, checks
from posenc._arguments.specification import Layout
from posenc._core import kernel

BLOCK_BYTES = 1 << 22        # size of the cells that are written at a time, so that Python can handle signals
Slices: TypeAlias = tuple[tuple[slice, slice], ...]
Positions: TypeAlias = Sequence[NDArray[Any]]       # of each cell, on each axis


class AxisColumns(NamedTuple):
    """Columns of a table for an axis of positions."""

    axis: int
    encode: Callable[..., NDArray[Any]]             # called with positions, dtype, out and threads
    width: int                                      # the number of columns that `encode` computes
    slices: Slices        # slices of the table, and the slices of these columns for them


def encode_axes(
    columns: Sequence[AxisColumns], positions: Positions, d_model: int, dtype: Any, out: Any, threads: Any,
    name: str,
) -> NDArray[Any]:
    """Return a table, where ``positions[k]`` has the position of each cell on axis k.

    `name` is the argument that holds the positions.
    """
    dtype, threads = arrays.output_dtype(dtype, out)[0], checks.threads(threads)
    table = kernel.output_array(out, (*positions[0].shape, d_model), dtype, name)
    # they may share memory with out
    fill(table, columns, [on_axis.copy() for on_axis in positions], dtype, threads)
    return table


def fill(
    table: NDArray[Any], columns: Sequence[AxisColumns], positions: Positions, dtype: str, threads: int | None
) -> None:
    """Write all columns of a table of shape (..., columns).

    ``positions[k]`` has the position of each cell on axis k.  In a grid, where it broadcasts to all cells, each
    position is encoded only once, unless the kernel is faster.
    """
    sizes, rest = table.shape[:-1], []
    if not table.size:
        return
    if sum(width for _, _, width, _ in columns) < table.shape[-1]:
        table[...] = 0
    for axis, encode, width, slices in columns:
        on_axis, rows = positions[axis], None
        target = table[..., slices[0][0] if len(slices) == 1 else slice(0)]
        is_slice = len(slices) == 1 and target.shape[-1] == width and target.strides[-1] == target.itemsize
        if on_axis.shape != sizes:
            # of such rows, the kernel copies consecutive integers from a table, with several threads
            if is_slice and width > 32 and on_axis.dtype.kind == "i" and np.ptp(on_axis) < on_axis.size:
                of_cells = np.broadcast_to(on_axis, sizes)
                for block in _block_indices(sizes, on_axis.itemsize):
                    encode(of_cells[block].copy(), dtype=dtype, out=target[block], threads=threads)
                continue
            rows = np.empty((*on_axis.shape, width), table.dtype)
            encode(on_axis, dtype=dtype, out=rows, threads=threads)
            rows = np.broadcast_to(rows, (*sizes, width))
        rest.append((on_axis, encode, width, slices, is_slice, rows))
    for block in _block_indices(sizes, table.shape[-1] * table.itemsize) if rest else ():
        cells = table[block]
        for on_axis, encode, width, slices, is_slice, rows in rest:
            if rows is None:
                out = cells[..., slices[0][0]] if is_slice else np.empty((*cells.shape[:-1], width), cells.dtype)
                encode(on_axis[*block, ...], dtype=dtype, out=out, threads=threads)
            else:
                out = rows[block]
            for of_table, of_axis in () if rows is None and is_slice else slices:
                cells[..., of_table] = out[..., of_axis]


def _block_indices(sizes: tuple[int, ...], row_bytes: int) -> Iterator[tuple[Any, ...]]:
    """Yield indices that divide an array of rows into blocks of at most BLOCK_BYTES, or single rows."""
    if not sizes or math.prod(sizes) * row_bytes <= BLOCK_BYTES:
        yield (slice(None),) * len(sizes)
        return
    step = max(1, BLOCK_BYTES // (math.prod(sizes[1:]) * row_bytes))
    for begin in range(0, sizes[0], step):
        for indices in _block_indices(sizes[1:], row_bytes):
            yield slice(begin, begin + step), *indices


def nesting_of(group: str, layout: str) -> tuple[tuple[str, ...], Layout]:
    """Return the three indices of a column, from the slowest-varying to the fastest-varying.

    Also return the layout in which the columns of an axis have the same order as in the table.
    """
    indices = [index for index in ("function", "axis", "frequency") if index != group]
    nesting = (group, *(indices if layout == "halves" else reversed(indices)))
    return nesting, "halves" if nesting.index("function") < nesting.index("frequency") else "interleaved"


@functools.lru_cache(maxsize=64)
def slices_of_axes(widths: tuple[int, ...], nesting: tuple[str, ...], first: int, stop: int) -> list[Slices]:
    """Return the slices of each axis, in the order of the table.

    All columns are at least `first` and less than `stop`.
    """
    index = {
        "axis": np.repeat(np.arange(len(widths)), widths),
        "frequency": np.concatenate([np.arange(width) // 2 for width in widths]),
        "function": np.concatenate([np.arange(width) % 2 for width in widths]),
    }
    axis = index["axis"][np.lexsort([index[name] for name in reversed(nesting)])][: stop - first]
    return [slices_of((first + np.flatnonzero(axis == rank)).tolist()) for rank in range(len(widths))]


def slices_of(columns: Sequence[int]) -> Slices:
    """Return slices of a table with these columns, each with the slice of their indices in `columns`."""
    # sines, then cosines
    runs, runs_by_function = _runs(columns, 0, 1), _runs(columns, 0, 2) + _runs(columns, 1, 2)
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


def round_positions(positions: NDArray[Any], *, dtype: str, out: NDArray[Any], threads: int | None) -> Any:
    """Write positions of int64 or float64, each rounded once, to the single column of `out`."""
    if positions.dtype.kind == "i" and dtype != "float64":
        # float64 may not hold integers of 2**53 or more; one bit in place of the last 11 leaves them on the
        # same side of a tie
        substitutes = positions >> 11 << 11 | (positions & 2047 != 0).astype(np.int64) << 10
        positions = np.where(abs(positions) < 2**53, positions, substitutes)
    with np.errstate(all="ignore"):             # overflow, signalling NaNs
        reals = np.where(np.isnan(positions), np.nan, positions)
        if dtype == "bfloat16":
            rounded = np.vectorize(functools.partial(kernel.rounded, dtype), otypes=[np.float32])(reals)
            out.view(np.uint16)[..., 0] = rounded.view(np.uint32) >> 16
        else:
            out[..., 0] = reals
