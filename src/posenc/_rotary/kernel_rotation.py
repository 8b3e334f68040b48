"""Build the kernel's rotation from the frequencies of the pairs, in turns per position."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

import numpy as np

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
    if axes is None:
        return kernel.Rotation([(kernel_columns(2 * pairs, convention, turns), None)], head_dim, pairs, interleaved)
    parts = [
        (kernel_columns(2 * len(chosen), convention, turns_of), np.array(chosen, np.intp).tobytes())
        for chosen, turns_of in each_axis(turns, axes)
    ]
    return kernel.Rotation(parts, head_dim, pairs, interleaved)


def each_axis(turns: Turns, axes: Sequence[int]) -> Iterator[tuple[list[int], Turns]]:
    """Yield, for each axis of positions, the indices of its pairs and a function that computes their turns."""
    for axis in range(max(axes, default=-1) + 1):
        chosen = [pair for pair, its_axis in enumerate(axes) if its_axis == axis]
        yield chosen, functools.partial(_chosen_turns, turns, chosen)


def _chosen_turns(turns: Turns, chosen: Sequence[int], *bits: int) -> tuple[list[int], int]:
    every, point = turns(*bits)
    return [every[pair] for pair in chosen], point
