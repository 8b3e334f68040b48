"""Search for the integer positions at which a candidate is nearest to the sample."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from posenc._encoding.encoding import Encoding
from posenc._identify.table.candidates import Approximation, approximation_of, of_size
from posenc._identify.table.sample import PRECISION, Sample

NEAR, REACH = 2**12, 2**20  # largest |start| in the first search and in the last one


def placed(encoding: Encoding, sample: Sample, reach: int) -> range | None:
    """Return the range of positions at which an encoding is nearest to the table, or None if no range is near enough."""
    rough = approximation_of(encoding)
    if not _sized(rough, sample.values[:16]):
        return None
    # the fastest columns locate a position best, but only modulo their periods; up to 48 random others resolve the ambiguity
    fastest = np.argsort(-np.abs(rough.frequency), kind="stable")
    order = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = _matching(rough, sample.values[0], order, reach)
    if not len(starts):
        return None
    few = slice(0, 16)
    rows, values = sample.rows[few] - sample.rows[0], sample.values[few][:, order]
    steps = np.repeat([1, -1] if len(rows) > 1 else [1], len(starts))
    starts = np.tile(starts, 2 if len(rows) > 1 else 1)
    nearest = _nearest(rough, starts, steps, rows, values, order, sample.stored)
    if nearest is None and len(rows) > 1:
        gap = rows[1]
        nexts = _matching(rough, sample.values[1], order, reach)
        steps, remainders = np.divmod(nexts[:64, None] - starts[: len(starts) // 2][:64], gap)
        later, earlier = np.nonzero((remainders == 0) & (steps != 0) & (np.abs(steps) <= NEAR))
        if len(later):
            nearest = _nearest(rough, starts[earlier], steps[later, earlier], rows, values, order, sample.stored)
    if nearest is None:
        return None
    start, step = nearest
    start -= step * int(sample.rows[0])
    return range(start, start + step * sample.total, step)


def _sized(rough: Approximation, values: NDArray[np.float64]) -> bool:
    """Return whether the magnitude of the values agrees with the scale.

    The magnitude is the radius, sqrt(sin**2 + cos**2), of each column pair, or the absolute value if there are no pairs.
    """
    size = abs(rough.scale)
    order = np.argsort(rough.frequency, kind="stable")
    first = np.flatnonzero((np.diff(rough.frequency[order]) == 0) & (np.diff(rough.cosine[order].astype(int)) != 0))
    if not len(first):
        return bool(0.05 * size < math.sqrt(np.mean(values**2)) and np.abs(values).max() < 1.5 * size)
    radius = np.hypot(values[:, order[first]], values[:, order[first + 1]])
    return of_size(radius, size)


def _matching(rough: Approximation, row: NDArray[np.float64], order: NDArray[np.intp], reach: int) -> NDArray[np.intp]:
    """Return up to 8192 integers at which the encoding is near a row of the table, smallest magnitudes first."""
    p = np.arange(1, 2 * reach + 2) // 2
    p[::2] *= -1
    for column in order:
        p = p[np.abs(rough.values(p, [column])[:, 0] - row[column]) < 0.15 * abs(rough.scale)]
        if not len(p):
            break
    return p[:8192]


def _nearest(
    rough: Approximation, starts: NDArray[np.intp], steps: NDArray[np.intp], rows: NDArray[np.intp],
    values: NDArray[np.float64], order: NDArray[np.intp], stored: str,
) -> tuple[int, int] | None:
    """Return the (start, step) with the least squared error, preferring small numbers, or None if all errors are large."""
    rows, values = (rows, values) if len(starts) * values.size < 2**20 else (rows[:2], values[:2])
    floor = abs(rough.scale) * 2.0 ** -PRECISION[stored]
    parts = []
    for some in range(0, len(starts), 256):
        p = starts[some : some + 256, None] + steps[some : some + 256, None] * rows
        parts.append(np.sqrt(np.mean((rough.values(p, order) - values) ** 2, axis=(1, 2))))
    errors = np.concatenate(parts)
    scores = values.size * np.log2(np.maximum(errors, floor)) + np.log2(1.0 + np.abs(starts)) + 2 * np.log2(np.abs(steps))
    best = np.argmin(scores)
    return (int(starts[best]), int(steps[best])) if errors[best] < 0.15 * abs(rough.scale) else None
