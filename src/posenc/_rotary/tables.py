"""Tables of cosines and sines for rotations, with one or several axes of positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._core import kernel
from posenc._core.exact import Turns
from posenc._encoding.columns import kernel_columns
from posenc._encoding.encoding import DEFAULTS
from posenc._rotary.kernel_rotation import each_axis

CHUNK_BYTES = 1 << 20


class Part(NamedTuple):
    """The pairs of one axis: columns of their cosines, then of their sines, and the indices of these columns in the table."""

    columns: kernel.Columns
    targets: list[int]


def parts_of(turns: Turns, pairs: int, scale: float, axes: Sequence[int] | None) -> tuple[Part, ...]:
    """Return the parts of a table, one for each axis of positions."""
    convention = DEFAULTS | {"order": "cos", "layout": "halves", "scale": scale}
    every = [(list(range(pairs)), turns)] if axes is None else each_axis(turns, axes)
    return tuple(
        Part(kernel_columns(2 * len(chosen), convention, turns_of), [*chosen, *(pairs + pair for pair in chosen)])
        for chosen, turns_of in every
    )


def encode_parts(parts: Sequence[Part], positions: Any, dtype: Any, out: Any, threads: Any) -> NDArray[Any]:
    """Return a table for positions with several axes; ``positions[k]`` has the positions on axis k."""
    name, element = checks.output_dtype(dtype, out)
    threads = checks.threads(threads)
    given = checks.range_or_array(positions)
    if isinstance(given, range) or given.shape[:1] != (len(parts),):
        shown = "a range" if isinstance(given, range) else f"of shape {given.shape}"
        raise ValueError(f"positions is {shown}, expected an array of shape ({len(parts)}, ...), with an element for each axis")
    each = checks.positions_of(given, 0)
    assert isinstance(each, np.ndarray)
    targets = [target for part in parts for target in part.targets]
    result = kernel.output_array(out, (*each.shape[1:], len(targets)), element, name, "positions")
    if np.may_share_memory(each, result):
        each = each.copy()
    if result.size == 0:
        return result
    # Compute chunks along the longest dimension; np.take then puts the columns of the parts in order.
    table = result.view(np.uint16) if result.itemsize == 2 else result
    if table.ndim == 1:
        table, each = table.reshape(1, -1), each.reshape(len(parts), 1)
    longest = int(np.argmax(table.shape[:-1]))
    table, each = np.moveaxis(table, longest, 0), np.moveaxis(each, longest + 1, 1)
    rows = max(1, CHUNK_BYTES * len(table) // table.nbytes)
    source = np.argsort(targets)
    for begin in range(0, len(table), rows):
        target = table[begin : begin + rows]
        buffer = np.empty(target.shape, result.dtype)
        at = 0
        for part, own in zip(parts, each, strict=True):
            width = len(part.targets)
            kernel.encode(part.columns, own[begin : begin + rows], name, buffer[..., at : at + width], threads)
            at += width
        np.take(buffer.view(table.dtype), source, axis=-1, out=target, mode="clip")
    return result
