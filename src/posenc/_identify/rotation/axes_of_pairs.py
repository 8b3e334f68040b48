"""Find the axis of positions by which each pair of columns is rotated."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._identify.rotation.arithmetic import Arithmetic, computed, difference
from posenc._identify.rotation.candidates import changed
from posenc._identify.wording import pairs
from posenc._rotary import Rotary

CLOSE = 0.05                # largest accepted difference from the values for an axis, at positions below 4096


def with_their_axes(
    target: Rotary, positions: NDArray[Any], values: NDArray[np.complex128], source: str
) -> tuple[Rotary, tuple[str, ...]] | None:
    """Return the expected rotation with the axes that the values use, and the fault, or None if the axes do not differ."""
    if positions.ndim == 1 or target.axes is None:
        return None
    near = np.abs(positions).max(axis=0) < 4096
    if near.sum() < 8:
        return None
    expected = np.array(target.axes)
    errors = []
    for axis in range(len(positions)):
        one = target.replace(axes=None, scale=1.0)
        unit = computed(one, positions[axis, near], Arithmetic("float64"))
        size = np.median(np.abs(values[near]), axis=0) / abs(one.attention_scaling)
        errors.append(difference(values[near], size * unit).max(axis=0))
    distance = np.stack(errors)
    as_expected = distance[expected, np.arange(len(expected))] <= 4 * distance.min(axis=0) + 1e-6
    found = np.where(as_expected, expected, np.argmin(distance, axis=0))
    if (distance.min(axis=0) > CLOSE).any() or np.array_equal(found, expected):
        return None
    other = changed(target, axes=found)
    if other is None:
        return None
    k = np.flatnonzero(found != expected)
    alike = k[(found[k] == found[k[0]]) & (expected[k] == expected[k[0]])].tolist()
    verb = "use" if len(alike) > 1 else "uses"
    others = f"; {len(k) - len(alike)} others also differ" if len(k) > len(alike) else ""
    fault = f"{pairs(alike)} {verb} the positions of axis {found[k[0]]}, {source} axis {expected[k[0]]}{others}"
    return other, (fault,)
