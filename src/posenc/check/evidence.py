"""Evidence: estimates read directly from the values, with error bounds: frequencies, phases, short numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from posenc.check.match import FLOAT32, LOOSE, SIGMAS, TIGHT, Array, Mask, Reals, Waves

# common frequency scales, most without a short decimal form
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau, math.pi / 180)
WIDEST_RATIO = math.log(1e20)       # of two frequencies in a fit: beyond it, one does not turn, or the fit went wrong
FITTED_DIGITS = ((64, 1e-6), (4, 1e-12), (1, 1e-15))    # numbers are rounded within so many standard errors, and this error


def short(x: float, error: float, favourites: Sequence[float] = (), lenience: float = 1) -> float:
    """Return a short number near x.

    The choices are tried in this order: a favourite, a decimal of up to four digits, 1 / n, and decimals
    with more digits.  The relative difference from x is at most min(lenience * error, 0.002) for a favourite,
    and `error` for other numbers.
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


class Line(NamedTuple):
    """Frequency k is exp(intercept - slope * k) radians per row or position."""

    intercept: float
    slope: float
    intercept_error: float
    slope_error: float

    def multiple(self, errors: float, least: float) -> float:
        """Return frequency 0 with as few digits as so many standard errors allow."""
        return short(math.exp(self.intercept), errors * self.intercept_error + least, TURNS, 4)

    def base(self, divisor: float, errors: float, least: float, usual: Sequence[float] = ()) -> float | None:
        """Return the base for exponents k / divisor in the same way, or None if it would be extreme."""
        if abs(self.slope * divisor) > WIDEST_RATIO:
            return None
        return short(math.exp(self.slope * divisor), errors * divisor * self.slope_error + least, usual, 4)


def line_through(numbers: Array, values: Reals, relative: Reals) -> Line:
    """Fit the line to positive values with relative errors; a single value has the slope 0."""
    error, y = np.maximum(relative, 2.0**-50), np.log(values)
    if len(numbers) == 1:
        return Line(float(y[0]), 0.0, float(error[0]), 0.0)
    basis = np.stack([np.ones(len(numbers)), -numbers], 1) / error[:, None]
    solution = np.linalg.lstsq(basis, y / error)[0]
    scatter = max(1.0, np.sqrt(np.sum((basis @ solution - y / error) ** 2) / max(1, len(numbers) - 2)))
    errors = scatter * np.sqrt(np.diag(np.linalg.pinv(basis.T @ basis)))
    return Line(*solution.tolist(), *errors.tolist())


class Phases(NamedTuple):
    """Estimates for each pair of columns, ``amplitude * exp(i * (phase + frequency * position))``."""

    frequency: Reals
    error: Reals                        # error of the frequency if values are correctly rounded
    amplitude: Reals
    phase: Reals
    phase_error: Reals
    reach: Reals                        # largest distance between two positions that the estimate uses

    @property
    def is_known(self) -> Mask:
        """Mask of the pairs whose frequencies are estimated; only these are compared."""
        return (self.amplitude > 0) & np.isfinite(self.error)

    def share_near(self, frequencies: Reals) -> float:
        """Return the share of known estimates that agree with `frequencies` within their errors."""
        is_near = np.abs(self.frequency - frequencies) <= SIGMAS * self.error + TIGHT * np.abs(frequencies)
        return float(np.mean(is_near[self.is_known])) if self.is_known.any() else 0.0

    def loose(self) -> Phases:
        """Return the estimates with larger errors, to allow for frequencies rounded to 16 bits."""
        return self._replace(error=np.maximum(self.error, LOOSE / SIGMAS * np.abs(self.frequency)))


def wrapped(angle: Reals) -> Reals:
    """Return an angle in [-pi, pi)."""
    return (angle + math.pi) % math.tau - math.pi


def phases_of(positions: Array, values: Waves, precision: int, smallest: float, guess: Reals | None = None) -> Phases:
    """Estimate phases from rows at doubling distances, until they disagree with earlier estimates.

    The cosines and sines are rounded to `precision` bits, or to multiples of `smallest`.  The first distance
    determines a frequency only modulo 2 pi / distance; the estimates are those nearest to `guess` (0 if it is
    None).  The positions must not all be equal.
    """
    order = np.argsort(positions, kind="stable")
    # subtract before the conversion, because float64 rounds large positions
    at, z = (positions[order] - positions[order[0]]).astype(np.float64), values[order]
    amplitude = np.median(np.abs(z), axis=0)
    errors = 2.0**-precision * np.abs(np.sin(2 * np.angle(z))) + smallest / np.maximum(np.abs(z), smallest)
    w = np.zeros(z.shape[1]) if guess is None else guess.copy()
    error, reach = np.full(len(w), np.inf), np.zeros(len(w))
    going, distance = amplitude > 0, 0.0
    while going.any() and len(later := np.flatnonzero(at > distance)):
        row = later[0] if not distance else later[np.flatnonzero(at[later] <= max(2 * distance, at[later[0]]))[-1]]
        distance = float(at[row])
        residual = wrapped(np.angle(z[row] * np.conj(z[0])) - w * distance)
        bound = errors[row] + errors[0]
        # the bound allows for float32 arithmetic, but not for 16-bit arithmetic or for a table that ends
        angle_error = np.where(np.isinf(error), math.inf, error * distance) + 8 * FLOAT32 * np.abs(w) * distance
        going &= (np.abs(residual) <= SIGMAS * (angle_error + bound)) | (reach == 0)
        w = np.where(going, w + residual / distance, w)
        error, reach = np.where(going, bound / distance, error), np.where(going, distance, reach)
    residual = wrapped(np.angle(z * np.conj(z[0])) - at[:, None] * w)
    is_used = (at[:, None] <= reach) & (np.abs(residual) < SIGMAS * (error * at[:, None] + errors + errors[0]))
    # all rows within the reach, by least squares
    weights = np.where(is_used, np.maximum(errors, 2.0**-60) ** -2.0, 0.0)
    total = weights.sum(axis=0)
    middle, mean = (np.sum(weights * y, axis=0) / total for y in (at[:, None], np.where(is_used, residual, 0.0)))
    centred = weights * (at[:, None] - middle)
    spread = np.sum(centred * (at[:, None] - middle), axis=0)
    enough = (is_used.sum(axis=0) > 8) & (spread > 0)
    step = np.where(enough, np.sum(centred * np.where(is_used, residual, 0.0), axis=0) / spread, 0.0)
    w, error = w + step, np.where(enough, np.minimum(1 / np.sqrt(spread), error), error)
    phase = np.angle(z[0]) + np.where(enough, mean - step * middle, 0.0)
    phase_error = np.where(enough, np.sqrt(1 / total) + middle * error, errors[0])
    start = float(positions[order[0]])
    return Phases(w, error, amplitude, wrapped(phase - w * start),
                  phase_error + (error + 4 * FLOAT32 * np.abs(w)) * abs(start), reach)
