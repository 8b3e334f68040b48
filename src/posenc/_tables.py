"""Tables of cosines and sines for rotations, with one or several axes of positions."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import _arguments, _convention, _exact, _kernel, _rotation

CHUNK_BYTES = 1 << 22


class Part(NamedTuple):
    """The pairs with one axis of positions: the cosines and then the sines of their angles, and the columns of a table."""

    columns: _kernel.Columns
    targets: list[int]


def parts(turns: _exact.Turns, pairs: int, scale: float, axes: Sequence[int] | None) -> tuple[Part, ...]:
    """Return the parts of a table, one for each axis of positions."""
    convention = {**_convention.DEFAULTS, "order": "cos", "layout": "halves", "scale": scale}
    if axes is None:
        return (Part(_convention.columns(2 * pairs, convention, turns), []),)
    result = []
    for axis in range(max(axes, default=-1) + 1):
        indices = [i for i, a in enumerate(axes) if a == axis]
        columns = _convention.columns(2 * len(indices), convention, functools.partial(_rotation.chosen_turns, turns, indices))
        result.append(Part(columns, [*indices, *(pairs + i for i in indices)]))
    return tuple(result)


def encode(parts: Sequence[Part], positions: Any, dtype: Any, out: Any, threads: Any) -> NDArray[Any]:
    """Return a table with several axes of positions, whose indices are the first dimension of `positions`."""
    name, element = _arguments.dtype(dtype)
    threads = _arguments.threads(threads)
    given = _arguments.range_or_array(positions)
    if isinstance(given, range) or given.shape[:1] != (len(parts),):
        shown = "a range" if isinstance(given, range) else f"of shape {given.shape}"
        raise ValueError(f"positions is {shown}, expected an array of shape ({len(parts)}, ...), one element for each axis")
    each = _arguments.positions_of(given, 0)
    assert isinstance(each, np.ndarray)
    columns = sum(len(part.targets) for part in parts)
    result = _arguments.output(out, (*each.shape[1:], columns), name, element)
    if np.may_share_memory(each, result):
        each = each.copy()
    if result.size == 0:
        return result
    # along the longest dimension, in chunks: a part is computed in memory of its own
    table = result
    if result.ndim == 1:
        table, each = result.reshape(1, -1), each.reshape(len(parts), 1)
    longest = int(np.argmax(table.shape[:-1]))
    table, each = np.moveaxis(table, longest, 0), np.moveaxis(each, longest + 1, 1)
    rows = max(1, CHUNK_BYTES * len(table) // table.nbytes)
    for begin in range(0, len(table), rows):
        target = table[begin : begin + rows]
        for part, own in zip(parts, each, strict=True):
            buffer = np.empty((*target.shape[:-1], len(part.targets)), result.dtype)
            target[..., part.targets] = part.columns.encode(own[begin : begin + rows], dtype, buffer, threads)
    return result
