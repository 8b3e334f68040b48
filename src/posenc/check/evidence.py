"""Evidence: estimates read directly from the values, with error bounds: frequencies, phases, short numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc.check.match import FLOAT32, LOOSE, SIGMAS, TIGHT, Array, Mask, Reals, Waves

# common frequency scales, most without a short decimal form
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau, math.pi / 180)
KNOWN = 0.05                # error of the logarithm of a frequency: a larger one would bend the line of frequencies
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
    """Frequency k is exp(intercept - slope * k), as a multiple of some unit."""

    intercept: float
    slope: float
    intercept_error: float
    slope_error: float

    def multiple(self, errors: float, least: float) -> float:
        """Return frequency 0 with as few digits as so many standard errors allow."""
        return short(math.exp(self.intercept), errors * self.intercept_error + least, TURNS, 4)

    def base(self, divisor: float, errors: float, least: float, usual: Sequence[float] = ()) -> float:
        """Return the base for exponents k / divisor in the same way, or the default one for a single frequency."""
        if not self.slope_error:
            return 10000.0
        return short(math.exp(self.slope * divisor), errors * divisor * self.slope_error + least, usual, 4)


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

    def are_near(self, frequencies: Reals) -> bool:
        """Return whether all known estimates agree with `frequencies` within their errors."""
        is_near = np.abs(self.frequency - frequencies) <= SIGMAS * self.error + TIGHT * np.abs(frequencies)
        return bool(self.is_known.any() and is_near[self.is_known].all())

    def line(self, unit: Any = 1.0, pairs: slice = slice(None)) -> Line | None:
        """Fit a line to the logarithms of the known frequencies, those in `pairs`, as multiples of `unit`."""
        w, error = self.frequency / unit, np.maximum(self.error / np.abs(self.frequency), 2.0**-50)
        k = np.flatnonzero(self.is_known & (w > 0) & (error < KNOWN))[pairs]
        if len(k) < 2:
            return Line(math.log(w[k[0]]), 0.0, float(error[k[0]]), 0.0) if len(k) else None
        basis, y = np.stack([np.ones(len(k)), -k], 1) / error[k, None], np.log(w[k]) / error[k]
        solution = np.linalg.lstsq(basis, y)[0]
        scatter = max(1.0, np.sqrt(np.sum((basis @ solution - y) ** 2) / max(1, len(k) - 2)))
        errors = scatter * np.sqrt(np.diag(np.linalg.pinv(basis.T @ basis)))
        is_extreme = abs(solution[1]) * (len(w) - 1) > WIDEST_RATIO
        return None if is_extreme else Line(*solution.tolist(), *errors.tolist())

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
