"""The pairs of a rotation: the axis of positions of each, and rotations for the kernel."""

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._core import kernel
from posenc._core.frequencies import ComputeTurns
from posenc._encoding.columns import kernel_columns

# ---- the axis of positions of each pair --------------------------------------------------------------------


def axis_of_each_pair(name: str, value: Any) -> tuple[int, ...]:
    axes = checks.integers(name, value)
    count = len(set(axes))
    if set(axes) != set(range(count)) or count > kernel.MAX_AXES:
        raise ValueError(f"{name} is {checks.shown(axes)}, expected 0 to {kernel.MAX_AXES - 1}, no gaps")
    return axes


def blocks(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 0 for the first ``sections[0]`` pairs, 1 for the next, and so on."""
    return tuple(axis for axis, count in enumerate(sections) for _ in range(count))


def interleaved(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 0, 1, 2, 0, 1, 2 ..., with 0 for an axis that has all its pairs."""
    if len(sections) != 3:
        raise ValueError(f"mrope_section has length {len(sections)}, expected 3 for mrope_interleaved")
    axes = [0] * sum(sections)
    for axis in (1, 2):
        for pair in range(axis, min(3 * sections[axis], len(axes)), 3):
            axes[pair] = axis
    return tuple(axes)


def alternating(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 1 and 2 in turn, then 0.

    `sections` has the numbers of pairs for axes 1, 2 and 0.
    """
    return (1, 2) * sections[0] + (0,) * sections[2]


Axes: TypeAlias = Sequence[int] | None          # the axis of each pair, or None for a single axis

# ---- rotations ---------------------------------------------------------------------------------------------


def kernel_rotation(
    turns: ComputeTurns, head_dim: int, pairs: int, *, scale: float = 1.0, interleaved: bool = False,
    axes: Axes = None,
) -> kernel.Rotation:
    """Return a rotation of `pairs` pairs in a head of head_dim columns.

    `turns` computes the frequencies in turns per position.  `axes` gives the axis of positions of each pair;
    the axes are 0, 1, 2 ... without gaps.  None means that there is a single axis.
    """
    columns_by_axis = []
    for of_axis in pairs_by_axis(pairs, axes):
        frequency, cosine = np.repeat(of_axis, 2), np.arange(2 * len(of_axis)) % 2 == 0
        columns = kernel_columns(turns, frequency, cosine, order=2, scale=scale)
        columns_by_axis.append((columns, None if axes is None else of_axis.tobytes()))
    return kernel.Rotation(columns_by_axis, head_dim, pairs, interleaved)


def pairs_by_axis(pairs: int, axes: Axes) -> list[NDArray[np.intp]]:
    """Return the indices of the pairs of each axis of positions."""
    if axes is None:
        return [np.arange(pairs)]
    return [np.flatnonzero(np.equal(axes, axis)) for axis in range(max(axes, default=-1) + 1)]
