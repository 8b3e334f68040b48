"""The kernel's rotation of pairs of columns, from the turns per position of the pairs."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import numpy as np

from posenc import _convention, _exact, _kernel


def rotation(
    turns: _exact.Turns, pairs: int, *, scale: float = 1.0, interleaved: bool = False, axes: Sequence[int] | None = None
) -> _kernel.Rotation:
    """Return a rotation of `pairs` pairs, whose turns per position `turns` computes.

    `axes` has the index of each pair's axis of positions, from 0 without a gap; None means a single axis.
    """
    if axes is None:
        return _kernel.Rotation([(_columns(turns, pairs, scale), None)], pairs, interleaved)
    parts: list[tuple[_kernel.Columns, bytes | None]] = []
    for axis in range(max(axes, default=-1) + 1):
        chosen = [i for i, a in enumerate(axes) if a == axis]
        columns = _columns(functools.partial(chosen_turns, turns, chosen), len(chosen), scale)
        parts.append((columns, np.array(chosen, np.intp).tobytes()))
    return _kernel.Rotation(parts, pairs, interleaved)


def chosen_turns(turns: _exact.Turns, indices: Sequence[int], *bits: int) -> tuple[list[int], int]:
    """Return the turns of some of the pairs."""
    every, point = turns(*bits)
    return [every[i] for i in indices], point


def _columns(turns: _exact.Turns, pairs: int, scale: float) -> _kernel.Columns:
    """Return the columns cos, sin, cos, sin ... of the pairs."""
    return _convention.columns(2 * pairs, _convention.DEFAULTS | {"order": "cos", "scale": scale}, turns)
