"""The pairs of a rotation for the kernel: rotations, and tables of cosines and sines, with one or several axes of positions."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import arrays, checks
from posenc._axes.axis_columns import AxisColumns, fill, slices_of
from posenc._core import kernel
from posenc._core.exact import Turns
from posenc._encoding.columns import kernel_columns
from posenc._encoding.encoding import DEFAULTS


def kernel_rotation(
    turns: Turns, head_dim: int, pairs: int, *, scale: float = 1.0, interleaved: bool = False,
    axes: Sequence[int] | None = None,
) -> kernel.Rotation:
    """Return a rotation of `pairs` pairs in a head of head_dim columns.

    `turns` computes the frequencies in turns per position.  `axes` gives the axis of positions of each pair; the axes are
    0, 1, 2 ... without gaps.  None means that there is a single axis.
    """
    # the kernel expects columns in the order cos, sin, cos, sin ...
    convention = DEFAULTS | {"order": "cos", "scale": scale}
    parts = [
        (kernel_columns(2 * len(indices), convention, turns_of_axis),
         None if axes is None else np.array(indices, np.intp).tobytes())
        for indices, turns_of_axis in pairs_by_axis(turns, pairs, axes)
    ]
    return kernel.Rotation(parts, head_dim, pairs, interleaved)


def pairs_by_axis(turns: Turns, pairs: int, axes: Sequence[int] | None) -> Iterator[tuple[list[int], Turns]]:
    """Yield, for each axis of positions, the indices of its pairs and a function that computes their turns."""
    if axes is None:
        yield list(range(pairs)), turns
    for axis in range(max(axes or (), default=-1) + 1):
        indices = [pair for pair, axis_of_pair in enumerate(axes or ()) if axis_of_pair == axis]
        yield indices, functools.partial(_some_turns, turns, indices)


def _some_turns(turns: Turns, indices: Sequence[int], *bits: int) -> tuple[list[int], int]:
    integers, fraction_bits = turns(*bits)
    return [integers[pair] for pair in indices], fraction_bits


def columns_of_axes(turns: Turns, pairs: int, scale: float, axes: Sequence[int] | None) -> list[AxisColumns]:
    """Return the columns of each axis of positions, in a table with the cosines of all pairs, then their sines."""
    convention = DEFAULTS | {"order": "cos", "layout": "halves", "scale": scale}
    columns = []
    for axis, (indices, turns_of_axis) in enumerate(pairs_by_axis(turns, pairs, axes)):
        encode = functools.partial(kernel.encode, kernel_columns(2 * len(indices), convention, turns_of_axis))
        slices = slices_of([*indices, *(pairs + pair for pair in indices)])
        columns.append(AxisColumns(axis, encode, 2 * len(indices), slices))
    return columns


def encode_axes(columns: Sequence[AxisColumns], positions: Any, dtype: Any, out: Any, threads: Any) -> NDArray[Any]:
    """Return a table for positions with several axes; ``positions[k]`` has the positions on axis k."""
    name, _ = arrays.output_dtype(dtype, out)
    threads = checks.threads(threads)
    array = checks.positions_of(positions)
    if isinstance(array, range) or array.shape[:1] != (len(columns),):
        raise checks.axes_error(array, len(columns))
    table = kernel.output_array(out, (*array.shape[1:], sum(part.width for part in columns)), name, "positions")
    if np.may_share_memory(array, table):
        array = array.copy()
    fill(table, columns, slice(0), list(array), name, threads)
    return table
