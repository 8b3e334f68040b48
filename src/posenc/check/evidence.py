"""Evidence: estimates read directly from the values, with error bounds.

For a table, these are frequencies on a line; for a rotation, the orientation, the frequencies, the scale, and
the offset of the positions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, TypeAlias

import numpy as np

from posenc import Rotary
from posenc._arguments.arrays import DTYPES
from posenc.check import match
from posenc.check.match import PRECISION, Array, Mask, Reals, Sample, Waves, narrowest, size_of
from posenc.check.reading import number, pairs

# a sentence, and a transformation of cos + i sin that is its own inverse
Orientation: TypeAlias = tuple[str, Callable[[Waves], Waves]]
# common frequency scales, most without a short decimal form
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau, math.pi / 180)


def short(x: float, error: float, favourites: Sequence[float] = (), lenience: float = 1) -> float:
    """Return a short number near x.

    The choices are tried in this order: a favourite, a decimal of up to four digits, 1 / n, and decimals with
    more digits.  The relative difference from x is at most min(lenience * error, 0.002) for a favourite, and
    `error` for other numbers.
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

    def base(self, divisor: float, errors: float, least: float, usual_bases: Sequence[float] = ()) -> float | None:
        """Return the base for exponents k / divisor with as few digits as so many standard errors allow.

        Return None if the base would be extreme.
        """
        if abs(self.slope * divisor) > match.WIDEST_RATIO:
            return None
        return short(math.exp(self.slope * divisor), errors * divisor * self.slope_error + least, usual_bases, 4)


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


# ---- phases ---------------------------------------------------------------------------------------------------------


class Phases(NamedTuple):
    """Estimates for each pair of columns: its values are ``amplitude * exp(i * (phase + frequency * position))``."""

    frequency: Reals
    error: Reals                  # error of the frequency if values are correctly rounded
    amplitude: Reals
    phase: Reals
    phase_error: Reals
    reach: Reals                        # largest distance between two positions that the estimate uses

    @property
    def is_known(self) -> Mask:
        """Mask of the pairs whose frequencies are estimated; only these are compared."""
        return (self.amplitude > 0) & np.isfinite(self.error)

    def share_near(self, frequencies: Reals) -> float:
        """Return the share of known estimates that agree with `frequencies` within their errors and a tolerance."""
        distance = np.abs(self.frequency - frequencies)
        is_near = distance <= match.SIGMAS * self.error + match.TIGHT * np.abs(frequencies)
        return float(np.mean(is_near[self.is_known])) if self.is_known.any() else 0.0

    def loose(self) -> Phases:
        """Return the estimates with larger errors, to allow for frequencies rounded to 16 bits."""
        return self._replace(error=np.maximum(self.error, match.LOOSE / match.SIGMAS * np.abs(self.frequency)))


def wrapped(angle: Reals) -> Reals:
    """Return an angle in [-pi, pi)."""
    return (angle + math.pi) % math.tau - math.pi


def phases_of(positions: Array, values: Waves, precision: int, smallest: float, guess: Reals | None = None) -> Phases:
    """Estimate phases from the first row and rows at doubling distances, until the phases disagree with earlier estimates.

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
    going = amplitude > 0
    distance = 0.0
    while going.any() and len(later := np.flatnonzero(at > distance)):
        row = later[0] if not distance else later[np.flatnonzero(at[later] <= max(2 * distance, at[later[0]]))[-1]]
        distance = float(at[row])
        residual = wrapped(np.angle(z[row] * np.conj(z[0])) - w * distance)
        bound = errors[row] + errors[0]
        # the bound allows for float32 arithmetic, but not for 16-bit arithmetic or for a table that ends
        angle_error = np.where(np.isinf(error), math.inf, error * distance) + 8 * match.FLOAT32 * np.abs(w) * distance
        going &= (np.abs(residual) <= match.SIGMAS * (angle_error + bound)) | (reach == 0)
        w = np.where(going, w + residual / distance, w)
        error, reach = np.where(going, bound / distance, error), np.where(going, distance, reach)
    residual = wrapped(np.angle(z * np.conj(z[0])) - at[:, None] * w)
    is_used = (at[:, None] <= reach) & (np.abs(residual) < match.SIGMAS * (error * at[:, None] + errors + errors[0]))
    # all rows within the reach, by least squares
    weights = np.where(is_used, np.maximum(errors, 2.0**-60) ** -2.0, 0.0)
    total = weights.sum(axis=0)
    middle, mean = (np.sum(weights * y, axis=0) / total for y in (at[:, None], np.where(is_used, residual, 0.0)))
    centred = weights * (at[:, None] - middle)
    spread = np.sum(centred * (at[:, None] - middle), axis=0)
    enough = (is_used.sum(axis=0) > 8) & (spread > 0)
    step = np.where(enough, np.sum(centred * np.where(is_used, residual, 0.0), axis=0) / spread, 0.0)
    w, error = w + step, np.where(enough, np.minimum(1 / np.sqrt(spread), error), error)
    phase, phase_error = np.angle(z[0]), errors[0]
    phase = np.where(enough, phase + mean - step * middle, phase)
    phase_error = np.where(enough, np.sqrt(1 / total) + middle * error, phase_error)
    start = float(positions[order[0]])
    return Phases(w, error, amplitude, wrapped(phase - w * start),
                  phase_error + (error + 4 * match.FLOAT32 * np.abs(w)) * abs(start), reach)


# ---- rotations -------------------------------------------------------------------------------------------------------


class Evidence(NamedTuple):
    """The values of a sample as cos + i sin, and estimates of their orientation, frequencies, offset and scale."""

    sample: Sample                      # its positions include the shift
    phases: Phases
    turned: Callable[[Waves], Waves]    # converts the given values to cos + i sin, and cos + i sin to the given values
    scales: tuple[float, ...]           # possible scales, simple ones first
    faults: tuple[str, ...]
    shift: int                          # the values are those at the given positions plus this number

    def sized(self, rotary: Rotary) -> Iterator[Rotary]:
        """Yield a rotation with its scale, then with each possible scale."""
        size = size_of(rotary)
        for scale in dict.fromkeys((size, *self.scales)):
            if scale == size:
                yield rotary
            else:
                yield rotary.replace(scale=scale / rotary.attention_scaling)


def evidence_of(
    positions: Array, values: Waves, dtype: str, target: Rotary | None, orientations: Sequence[Orientation]
) -> Evidence:
    """Estimate the orientation, frequencies and scale from values at positions that are not all equal.

    With the right orientation, the frequencies have the expected sign, and the phases are 0; or they are
    proportional to the frequencies, because the positions have an offset.
    """
    stored = narrowest(np.stack([values.real, values.imag]), dtype)
    smallest = 2.0 ** max(DTYPES[stored].smallest, DTYPES[dtype].smallest)
    sign = 1 if target is None or np.sum(target.frequencies) >= 0 else -1
    views = []
    for index, (_, turn) in enumerate(orientations):
        # estimates are ambiguous if a pair turns by more than half a turn between two positions
        guess = None if target is None else target.frequencies
        phases = phases_of(positions, turn(values), PRECISION[stored], smallest, guess)
        offset = _offset(phases, sign)
        views.append((2 if offset is None else min(1, abs(offset)), index, offset or 0, phases))
    _, index, shift, phases = min(views, key=lambda view: view[:2])
    sentence, turn = orientations[index]
    scales = _scales(values, phases, stored, target)
    zero = np.flatnonzero(phases.amplitude == 0)
    first = float(np.min(positions))
    faults = [sentence, f"{pairs(zero)} {'are' if len(zero) > 1 else 'is'} 0" if len(zero) else "",
              f"positions start at {number(first + shift)}, expected {number(first)}" if shift else ""]
    sample = Sample(positions + shift, turn(values), stored, match.rotation_curve, phases.amplitude > 0)
    return Evidence(sample, phases, turn, scales, tuple(filter(None, faults)), shift)


def _offset(phases: Phases, sign: int) -> int | None:
    """Return the first of `OFFSETS` that explains most phases.

    Return None if no offset explains them, or if the angles do not have the given sign.
    """
    w, error, phase, phase_error = (x[phases.is_known] for x in (
        phases.frequency, phases.error, phases.phase, phases.phase_error))
    turning = np.array(sorted(w[np.abs(w) > match.SIGMAS * error], key=abs))
    slower_half = turning[: max(1, len(turning) // 2)]          # the signs of fast pairs are ambiguous
    if np.sum(np.sign(slower_half)) * sign < 0:
        return None
    for offset in match.OFFSETS:
        residual = np.abs(wrapped(phase - w * offset))
        bound = match.SIGMAS * phase_error + 1e-6 + 64 * match.FLOAT32 * np.abs(w * offset)
        if (residual <= bound).mean() > match.MAX_PHASES:
            return offset
    return None


def _scales(values: Waves, phases: Phases, dtype: str, target: Rotary | None) -> tuple[float, ...]:
    """Return the possible scales."""
    is_turned = phases.amplitude > 0
    scale = float(np.median(phases.amplitude[is_turned]))
    error = scale * 2.0 ** (1 - PRECISION[dtype])
    expected = (1.0,) if target is None else (abs(size_of(target)), 1.0)
    # the values of slow pairs are all rounded in the same direction
    is_fast = is_turned & (np.abs(phases.frequency) * phases.reach > 2 * math.tau)
    mean = np.abs(values[:, is_fast if is_fast.any() else is_turned])
    fine = max(match.SIGMAS / math.sqrt(mean.size) * 2.0 ** -PRECISION[dtype], 2.0**-50)
    return tuple(dict.fromkeys((*(x for x in expected if abs(x - scale) <= error), short(scale, error / scale),
                                short(float(mean.mean()), fine), short(float(mean.mean()), fine / 8))))
