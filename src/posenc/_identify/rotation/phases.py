"""Estimate the frequencies of pairs of columns from their phases, the angles of cos + i sin."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

FLOAT32 = 2.0**-24
QUARTER = math.pi / 2
FARTHEST = 2**20            # largest accepted offset of positions


class Phases(NamedTuple):
    """Estimates for each pair: its values are ``amplitude * exp(i * (phase + frequency * position))``."""

    frequency: NDArray[np.float64]
    error: NDArray[np.float64]                  # error of the frequency if values are correctly rounded
    amplitude: NDArray[np.float64]
    phase: NDArray[np.float64]
    phase_error: NDArray[np.float64]
    reach: NDArray[np.float64]                  # largest distance between two positions that the estimate uses


def wrapped(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an angle in [-pi, pi)."""
    return (angle + math.pi) % math.tau - math.pi


def rounding_error(values: NDArray[np.complex128], precision: int, smallest: float) -> NDArray[np.float64]:
    """Return the error of the phases if cosines and sines are rounded to `precision` bits, or to multiples of `smallest`."""
    return 2.0**-precision * np.abs(np.sin(2 * np.angle(values))) + smallest / np.maximum(np.abs(values), smallest)


def phases_of(
    positions: NDArray[Any], values: NDArray[np.complex128], precision: int, smallest: float,
    guess: NDArray[np.float64] | None = None,
) -> Phases | None:
    """Estimate phases from the first row and rows at doubling distances, until the phases disagree with earlier estimates.

    The first distance determines a frequency only modulo 2 pi / distance; the estimates are those nearest to `guess` (0 if it
    is None).  Return None if all positions are equal.
    """
    order = np.argsort(positions, kind="stable")
    # subtract before the conversion, because float64 rounds large positions
    at, z = (positions[order] - positions[order[0]]).astype(np.float64), values[order]
    amplitude = np.median(np.abs(z), axis=0)
    errors = rounding_error(z, precision, smallest)
    first = errors[0]
    w = np.zeros(z.shape[1]) if guess is None else guess.copy()
    error, reach = np.full(len(w), np.inf), np.zeros(len(w))
    going = amplitude > 0
    distance = 0.0
    while True:
        later = np.flatnonzero(at > distance)
        if not len(later):
            break
        row = later[0] if not distance else later[np.flatnonzero(at[later] <= max(2 * distance, at[later[0]]))[-1]]
        gap, distance = float(at[row] - at[0]), float(at[row])
        rest = wrapped(np.angle(z[row] * np.conj(z[0])) - w * gap)
        bound = errors[row] + first
        # the bound allows for float32 arithmetic, but not for 16-bit arithmetic or for a table that ends
        angle_error = np.where(np.isinf(error), math.inf, error * gap) + 8 * FLOAT32 * np.abs(w) * gap
        consistent = np.abs(rest) <= 8 * (angle_error + bound)
        going &= consistent | ~(reach > 0)
        w = np.where(going, w + rest / gap, w)
        error = np.where(going, bound / gap, error)
        reach = np.where(going, gap, reach)
        if not going.any():
            break
    if not distance:
        return None
    w, error = _least_squares(at, z, errors, w, error, reach)
    start = float(positions[order[0]])
    phase = wrapped(np.angle(z[0]) - w * start)
    return Phases(w, error, amplitude, phase, first + (error + 4 * FLOAT32 * np.abs(w)) * abs(start), reach)


def _least_squares(
    at: NDArray[np.float64], z: NDArray[np.complex128], errors: NDArray[np.float64], w: NDArray[np.float64],
    error: NDArray[np.float64], reach: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Refine each frequency with all rows within its reach; return the frequencies and their errors."""
    rest = wrapped(np.angle(z * np.conj(z[0])) - at[:, None] * w)
    sure = (at[:, None] > 0) & (at[:, None] <= reach) & (np.abs(rest) < 8 * (error * at[:, None] + errors + errors[0]))
    weights = np.where(sure, 1 / np.maximum(errors, 2.0**-60) ** 2, 0.0)
    total = np.sum(weights * at[:, None] ** 2, axis=0)
    enough = (sure.sum(axis=0) > 8) & (total > 0)
    moment = np.sum(weights * at[:, None] * np.where(sure, rest, 0.0), axis=0)
    step = np.divide(moment, total, out=np.zeros_like(w), where=enough)
    own = np.divide(1.0, np.sqrt(total), out=error.copy(), where=enough)
    # the error of the first row affects all other rows
    own += np.divide(errors[0] * np.sum(weights * at[:, None], axis=0), total, out=np.zeros_like(w), where=enough)
    return np.where(enough, w + step, w), np.where(enough, np.minimum(own, error), error)


class Orientation(NamedTuple):
    """The differences of the values from cos + i sin of positive frequencies, and the offset of the positions."""

    exchanged: bool             # sin + i cos
    reversed: bool              # cos - i sin
    offset: float               # the values are those at the positions plus this offset
    negative: bool = False      # multiplied by -1


def orientation_of(phases: Phases, sign: int) -> Orientation | None:
    """Find the orientation; `sign` is that of the expected frequencies.  Return None if no orientation explains the phases."""
    used = np.flatnonzero((phases.amplitude > 0) & np.isfinite(phases.error))
    if not len(used):
        return None
    used = used[np.argsort(np.abs(phases.frequency[used]), kind="stable")]
    turning = used[np.abs(phases.frequency[used]) > 8 * phases.error[used]]
    slow = turning[: max(1, len(turning) // 2)]
    negative = len(slow) > 0 and bool(np.sum(phases.frequency[slow] * sign < 0) > len(slow) / 2)
    exchanged = bool(abs(abs(phases.phase[used[0]]) - QUARTER) < 0.2) and bool(
        np.median(np.abs(np.abs(phases.phase[slow if len(slow) else used]) - QUARTER)) < 0.6)
    if exchanged:
        negative = not negative
    phase = wrapped(QUARTER - phases.phase) if exchanged else phases.phase
    frequency = -phases.frequency if exchanged else phases.frequency
    offset, error = 0.0, math.inf
    for k in turning:
        rest = float(wrapped(phase[k] - frequency[k] * offset))
        if abs(frequency[k]) * error < 1 or math.isinf(error):
            offset += rest / frequency[k]
            error = float(phases.phase_error[k] / abs(frequency[k]))
    near = round(2 * offset) / 2
    if abs(offset - near) <= 8 * error + 1e-6:
        offset = near
    if abs(offset) > FARTHEST:
        return None
    left = wrapped(phase - frequency * offset)[used]
    fits = np.abs(left) <= 8 * phases.phase_error[used] + 1e-6 + 64 * FLOAT32 * np.abs(frequency[used] * offset)
    return Orientation(exchanged, negative, offset) if fits.mean() > 0.7 else None
