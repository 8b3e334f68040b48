"""Tables of cosines and sines for rotations, with one or several axes of positions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._axes.axis_columns import AxisColumns, fill, slices_of
from posenc._core import kernel
from posenc._core.exact import Turns
from posenc._encoding.columns import kernel_columns
from posenc._encoding.encoding import DEFAULTS
from posenc._rotary.kernel_rotation import pairs_by_axis


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
    name, element = checks.output_dtype(dtype, out)
    threads = checks.threads(threads)
    array = checks.positions_of(positions)
    if isinstance(array, range) or array.shape[:1] != (len(columns),):
        raise checks.axes_error(array, len(columns))
    table = kernel.output_array(out, (*array.shape[1:], sum(part.width for part in columns)), element, name, "positions")
    if np.may_share_memory(array, table):
        array = array.copy()
    fill(table.view(np.uint16) if name == "bfloat16" else table, columns, slice(0), list(array), name, threads)
    return table
