"""Fits: short numbers within an error, lines through logarithms of frequencies, sinusoids, and phases of pairs of columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc.check import limits
from posenc.check.arithmetic import PRECISION

# common frequency scales, most without a short decimal form
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau, math.pi / 180)
QUARTER = math.pi / 2


def short(x: float, error: float, favourites: Sequence[float] = (), lenience: float = 1) -> float:
    """Return the first of these that is near x: a favourite, a decimal of up to four digits, 1 / n, or the shortest decimal.

    The relative difference from x is at most min(lenience * error, 0.002) for a favourite, and `error` for other numbers.
    """
    for y in favourites:
        if abs(y - x) <= min(lenience * error, 0.002) * abs(x):
            return y
    for digits in range(17):
        if digits == 4 and 0.01 <= abs(x) < 1 and abs(1 / round(1 / x) - x) <= error * abs(x):
            return 1 / round(1 / x)
        if abs(float(f"{x:.{digits}e}") - x) <= error * abs(x):
            return float(f"{x:.{digits}e}")
    return float(x)


# ---- geometric frequencies ------------------------------------------------------------------------------------------


class Line(NamedTuple):
    """Frequency k is exp(intercept - slope * k) radians per row or position; all columns have the same amplitude."""

    intercept: float
    slope: float
    amplitude: float
    intercept_error: float
    slope_error: float
    amplitude_error: float


def straight(points: NDArray[np.float64], count: int) -> Line:
    """Fit the line of `count` frequencies to points (number, logarithm of the frequency, its error, amplitude)."""
    k, y, error, amplitude = points.T
    median = np.median(amplitude)
    amplitude_error = np.sqrt(np.mean((amplitude - median) ** 2) / len(amplitude))
    if count == 1:
        return Line(y[0], 0.0, median, error[0], 0.0, amplitude_error)
    basis = np.stack([np.ones_like(k), -k], 1) / error[:, None]
    solution = np.linalg.lstsq(basis, y / error)[0]
    scatter = max(1.0, np.sqrt(np.sum((basis @ solution - y / error) ** 2) / max(1, len(k) - 2)))
    errors = scatter * np.sqrt(np.diag(np.linalg.pinv(basis.T @ basis)))
    return Line(*solution.tolist(), median, *errors.tolist(), amplitude_error)


def line_through(numbers: NDArray[np.intp], values: NDArray[np.float64], relative: NDArray[np.float64]) -> Line:
    """Fit ``exp(intercept - slope * number)`` to positive values."""
    errors = np.maximum(relative, 2.0**-50)
    return straight(np.stack([numbers, np.log(values), errors, np.ones(len(numbers))], 1), max(2, len(numbers)))


def line_of_columns(
    rows: NDArray[np.intp], q: NDArray[np.float64], values: NDArray[np.float64], dtype: str, first: int = 0
) -> Line | None:
    """Fit the line to sinusoidal columns, one for each frequency: to the first rows, then to rows farther and farther away.

    Return None if this fails.  `q` are the positions of the rows, up to an offset.  The fit ignores the columns before `first`,
    whose frequencies may exceed half a turn per row.
    """
    count = values.shape[1]
    ends = [256, *(256 * 8**k for k in range(1, 20) if 256 * 8 ** (k - 1) < rows[-1])]
    numbers = [first + k for k in (*range(4), *_sparse(4, count)) if first + k < count]
    line = None
    for end in ends:
        chosen = np.flatnonzero(rows < end)
        chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, 256).astype(int))]
        if len(chosen) < 5:
            return None
        at = q[chosen] - q[chosen].mean()
        points = []
        for k in numbers:
            if line is not None and (k > first + 1 or end > ends[0]):
                w = math.exp(np.clip(line.intercept - line.slope * k, -100, 100))
            elif k > first + 1 or (w := _coarse(at, values[chosen, k])) == 0:
                break
            if w * np.ptp(at) < limits.STRAIGHT:
                continue
            point = _sinusoid(at, values[chosen, k], w, dtype)
            if point is None:
                return None
            if point[1] < limits.KNOWN:
                points.append((k, *point))
            if len(points) >= min(2, count):
                line = straight(np.array(points), count)
    return line


def _sparse(first: int, end: int) -> list[int]:
    """Return integers with gaps of about a quarter of their value."""
    numbers = [first]
    while numbers[-1] < end:
        numbers.append(numbers[-1] + max(1, numbers[-1] // 4))
    return numbers


def _coarse(q: NDArray[np.float64], x: NDArray[np.float64]) -> float:
    """Search a grid of frequencies for the sinusoid that explains x best; return 0 if all positions are equal."""
    span = np.ptp(q)
    if span == 0:
        return 0.0
    count = min(span / np.diff(np.unique(q)).min(), 4096)
    top = math.pi * count / span
    grid = np.concatenate([np.geomspace(0.1 / span, top, 200), np.linspace(top / (4 * count), top, int(4 * count))])
    cos, sin = np.cos(np.outer(grid, q)), np.sin(np.outer(grid, q))
    cc, ss, cs, xc, xs = (cos**2).sum(1), (sin**2).sum(1), (cos * sin).sum(1), cos @ x, sin @ x
    determinant = cc * ss - cs**2
    share = (ss * xc**2 - 2 * cs * xc * xs + cc * xs**2) / determinant
    return float(grid[np.argmax(np.where(determinant > 1e-9 * cc * ss, share, 0))])


def _sinusoid(q: NDArray[np.float64], x: NDArray[np.float64], w: float, dtype: str) -> tuple[float, float, float] | None:
    """Fit a sinusoid of frequency near w (Gauss-Newton); return (log w, its error, amplitude), or None if the fit is poor."""
    limit = 0.5 / np.ptp(q)
    for _ in range(12):
        cos, sin = np.cos(w * q), np.sin(w * q)
        a, b = np.linalg.lstsq(np.stack([cos, sin], 1), x)[0]
        basis = np.stack([cos, sin, q * (b * cos - a * sin)], 1)
        solution = np.linalg.lstsq(basis, x)[0]
        step = float(np.clip(solution[2], -limit, limit))
        w = abs(w + step)
        if abs(step) < 1e-15 * w:
            break
    residual = np.sqrt(np.mean((basis @ solution - x) ** 2))
    amplitude = math.hypot(a, b)
    if not residual < limits.POOR * amplitude or w == 0:
        return None
    residual = max(residual, amplitude * 2.0 ** -PRECISION[dtype])
    error = residual * math.sqrt(np.linalg.pinv(basis.T @ basis)[2, 2])
    return math.log(w), max(error / w, 2.0 ** -min(PRECISION[dtype], 50)), amplitude


# ---- phases ---------------------------------------------------------------------------------------------------------


class Phases(NamedTuple):
    """Estimates for each pair of columns: its values are ``amplitude * exp(i * (phase + frequency * position))``."""

    frequency: NDArray[np.float64]
    error: NDArray[np.float64]                  # error of the frequency if values are correctly rounded
    amplitude: NDArray[np.float64]
    phase: NDArray[np.float64]
    phase_error: NDArray[np.float64]
    reach: NDArray[np.float64]                  # largest distance between two positions that the estimate uses


def wrapped(angle: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return an angle in [-pi, pi)."""
    return (angle + math.pi) % math.tau - math.pi


def phases_of(
    positions: NDArray[Any], values: NDArray[np.complex128], precision: int, smallest: float,
    guess: NDArray[np.float64] | None = None,
) -> Phases | None:
    """Estimate phases from the first row and rows at doubling distances, until the phases disagree with earlier estimates.

    The cosines and sines are rounded to `precision` bits, or to multiples of `smallest`.  The first distance determines a
    frequency only modulo 2 pi / distance; the estimates are those nearest to `guess` (0 if it is None).  Return None if all
    positions are equal.
    """
    order = np.argsort(positions, kind="stable")
    # subtract before the conversion, because float64 rounds large positions
    at, z = (positions[order] - positions[order[0]]).astype(np.float64), values[order]
    amplitude = np.median(np.abs(z), axis=0)
    errors = 2.0**-precision * np.abs(np.sin(2 * np.angle(z))) + smallest / np.maximum(np.abs(z), smallest)
    w = np.zeros(z.shape[1]) if guess is None else guess.copy()
    error, reach = np.full(len(w), np.inf), np.zeros(len(w))
    going = amplitude > 0
    distance = 0.0
    while going.any() and len(later := np.flatnonzero(at > distance)):
        row = later[0] if not distance else later[np.flatnonzero(at[later] <= max(2 * distance, at[later[0]]))[-1]]
        distance = float(at[row])
        rest = wrapped(np.angle(z[row] * np.conj(z[0])) - w * distance)
        bound = errors[row] + errors[0]
        # the bound allows for float32 arithmetic, but not for 16-bit arithmetic or for a table that ends
        angle_error = np.where(np.isinf(error), math.inf, error * distance) + 8 * limits.FLOAT32 * np.abs(w) * distance
        going &= (np.abs(rest) <= limits.SIGMAS * (angle_error + bound)) | (reach == 0)
        w = np.where(going, w + rest / distance, w)
        error, reach = np.where(going, bound / distance, error), np.where(going, distance, reach)
    if not distance:
        return None
    w, error = _refined(at, z, errors, w, error, reach)
    start = float(positions[order[0]])
    phase = wrapped(np.angle(z[0]) - w * start)
    return Phases(w, error, amplitude, phase, errors[0] + (error + 4 * limits.FLOAT32 * np.abs(w)) * abs(start), reach)


def _refined(
    at: NDArray[np.float64], z: NDArray[np.complex128], errors: NDArray[np.float64], w: NDArray[np.float64],
    error: NDArray[np.float64], reach: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Refine each frequency by least squares with all rows within its reach; return the frequencies and their errors."""
    rest = wrapped(np.angle(z * np.conj(z[0])) - at[:, None] * w)
    bound = limits.SIGMAS * (error * at[:, None] + errors + errors[0])
    used = (at[:, None] > 0) & (at[:, None] <= reach) & (np.abs(rest) < bound)
    weights = np.where(used, 1 / np.maximum(errors, 2.0**-60) ** 2, 0.0)
    total = np.sum(weights * at[:, None] ** 2, axis=0)
    enough = (used.sum(axis=0) > 8) & (total > 0)
    moment = np.sum(weights * at[:, None] * np.where(used, rest, 0.0), axis=0)
    step = np.divide(moment, total, out=np.zeros_like(w), where=enough)
    refined_error = np.divide(1.0, np.sqrt(total), out=error.copy(), where=enough)
    # the error of the first row affects all other rows
    refined_error += np.divide(errors[0] * np.sum(weights * at[:, None], axis=0), total, out=np.zeros_like(w), where=enough)
    return np.where(enough, w + step, w), np.where(enough, np.minimum(refined_error, error), error)


class Orientation(NamedTuple):
    """The differences of the values from cos + i sin of positive frequencies, and the offset of the positions."""

    exchanged: bool = False     # sin + i cos
    reversed: bool = False      # cos - i sin
    offset: float = 0.0         # the values are those at the positions plus this offset
    negative: bool = False      # multiplied by -1

    def undone(self, values: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return values as cos + i sin of angles with the expected sign."""
        if self.negative:
            values = -values
        if self.exchanged:
            values = values.imag + 1j * values.real
        return np.conj(values) if self.reversed else values


def orientation_of(phases: Phases, sign: int) -> Orientation | None:
    """Find the orientation; `sign` is that of the expected frequencies.  Return None if no orientation explains the phases."""
    used = np.flatnonzero((phases.amplitude > 0) & np.isfinite(phases.error))
    if not len(used):
        return None
    used = used[np.argsort(np.abs(phases.frequency[used]), kind="stable")]
    turning = used[np.abs(phases.frequency[used]) > limits.SIGMAS * phases.error[used]]
    slow = turning[: max(1, len(turning) // 2)]
    backwards = len(slow) > 0 and bool(np.sum(phases.frequency[slow] * sign < 0) > len(slow) / 2)
    exchanged = bool(abs(abs(phases.phase[used[0]]) - QUARTER) < limits.QUARTER_SLOWEST) and bool(
        np.median(np.abs(np.abs(phases.phase[slow if len(slow) else used]) - QUARTER)) < limits.QUARTER_TYPICAL)
    phase = wrapped(QUARTER - phases.phase) if exchanged else phases.phase
    frequency = -phases.frequency if exchanged else phases.frequency
    offset, error = 0.0, math.inf
    for k in turning:
        rest = float(wrapped(phase[k] - frequency[k] * offset))
        if abs(frequency[k]) * error < 1 or math.isinf(error):
            offset += rest / frequency[k]
            error = float(phases.phase_error[k] / abs(frequency[k]))
    half_integer = round(2 * offset) / 2
    if abs(offset - half_integer) <= limits.SIGMAS * error + 1e-6:
        offset = half_integer
    if abs(offset) > limits.FARTHEST:
        return None
    left = wrapped(phase - frequency * offset)[used]
    bound = limits.SIGMAS * phases.phase_error[used] + 1e-6 + 64 * limits.FLOAT32 * np.abs(frequency[used] * offset)
    is_most = (np.abs(left) <= bound).mean() > limits.MOST_PHASES
    return Orientation(exchanged, backwards != exchanged, offset) if is_most else None
