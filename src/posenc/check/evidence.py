"""Evidence: what cosines and sines show at once: their signs, frequencies, scale, and the offset of their positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check.arithmetic import FORMATS, PRECISION, narrowest, size_of
from posenc.check.fits import Phases, phases_of, short, wrapped
from posenc.check.limits import FARTHEST, FLOAT32, MOST_PHASES, QUARTER_SLOWEST, QUARTER_TYPICAL, SIGMAS
from posenc.check.mistakes import Estimate, not_rotated, number, pairs


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
    turning = used[np.abs(phases.frequency[used]) > SIGMAS * phases.error[used]]
    slow = turning[: max(1, len(turning) // 2)]
    backwards = len(slow) > 0 and bool(np.sum(phases.frequency[slow] * sign < 0) > len(slow) / 2)
    exchanged = bool(abs(abs(phases.phase[used[0]]) - math.pi / 2) < QUARTER_SLOWEST) and bool(
        np.median(np.abs(np.abs(phases.phase[slow if len(slow) else used]) - math.pi / 2)) < QUARTER_TYPICAL)
    phase = wrapped(math.pi / 2 - phases.phase) if exchanged else phases.phase
    frequency = -phases.frequency if exchanged else phases.frequency
    offset, error = 0.0, math.inf
    for k in turning:
        rest = float(wrapped(phase[k] - frequency[k] * offset))
        if abs(frequency[k]) * error < 1 or math.isinf(error):
            offset += rest / frequency[k]
            error = float(phases.phase_error[k] / abs(frequency[k]))
    half_integer = round(2 * offset) / 2
    if abs(offset - half_integer) <= SIGMAS * error + 1e-6:
        offset = half_integer
    if abs(offset) > FARTHEST:
        return None
    left = wrapped(phase - frequency * offset)[used]
    bound = SIGMAS * phases.phase_error[used] + 1e-6 + 64 * FLOAT32 * np.abs(frequency[used] * offset)
    is_most = (np.abs(left) <= bound).mean() > MOST_PHASES
    return Orientation(exchanged, backwards != exchanged, offset) if is_most else None


class Evidence(NamedTuple):
    """The cosines and sines of a sample, as cos + i sin of angles with the expected sign, and what they show at once."""

    positions: NDArray[Any]             # shape (n,) or (axes, n), including the shift
    values: NDArray[np.complex128]
    dtype: str                          # the narrowest dtype that holds all values
    estimate: Estimate
    orientation: Orientation            # the orientation of the given values
    scales: tuple[float, ...]           # possible scales, simple ones first
    scale_error: float
    unrotated: NDArray[np.bool_]        # pairs that are not rotated, although they should be
    zero: NDArray[np.bool_]             # pairs that are 0 everywhere
    reach: float                        # largest distance between two positions whose phases agree with the frequencies
    faults: tuple[str, ...]
    shift: float | int = 0              # the number that was added to the given positions

    def shifted(self) -> Evidence:
        """Return this evidence with the offset added to the positions."""
        offset = self.orientation.offset
        whole = int(offset) if float(offset).is_integer() else offset
        first = float(np.min(self.positions))
        fault = f"positions start at {number(first + whole)}, expected {number(first)}"
        return self._replace(positions=self.positions + whole, shift=whole, faults=(*self.faults, fault))

    def sized(self, rotary: Rotary) -> Iterator[Rotary]:
        """Yield a rotation with its own scale, if the values agree with this scale, then with each possible scale."""
        size = size_of(rotary)
        as_given = [size] if abs(abs(size) - self.scales[0]) <= 2 * self.scale_error else []
        for scale in dict.fromkeys((*as_given, *self.scales)):
            yield _with_scale(rotary, scale)


def _with_scale(rotary: Rotary, scale: float) -> Rotary:
    """Return a rotation that multiplies cosines and sines by this scale."""
    if size_of(rotary) == scale:
        return rotary
    scaling = rotary.scaling
    if scaling is not None and scaling["rope_type"] in ("yarn", "longrope") and "short_mscale" not in scaling:
        return rotary.replace(scale=1.0, scaling=scaling | {"attention_factor": scale})
    return rotary.replace(scale=scale / rotary.attention_scaling)


def evidence_of(
    positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None
) -> Evidence | None:
    """Estimate the orientation, frequencies and scale; return None if all positions are equal."""
    stored = narrowest(np.stack([values.real, values.imag]), dtype)
    phases = _phases(positions, values, PRECISION[stored], 2.0 ** max(FORMATS[stored][1], FORMATS[dtype][1]), target)
    if phases is None:
        return None
    sign = 1 if target is None or np.sum(target.frequencies) >= 0 else -1
    orientation = orientation_of(phases, sign)
    if (orientation is None or orientation.offset) and (target is None or size_of(target) > 0):
        opposite = orientation_of(phases._replace(phase=wrapped(phases.phase + math.pi)), sign)
        if opposite is not None and not opposite.offset and not opposite.exchanged:
            orientation = opposite._replace(negative=True)
    orientation = orientation or Orientation()
    texts = (("negative", "values are multiplied by -1, expected 1"), ("exchanged", "cos and sin are exchanged"),
             ("reversed", "the signs of the sines are reversed"))
    faults = [text for name, text in texts if getattr(orientation, name)]
    frequency = -phases.frequency if orientation.exchanged != orientation.reversed else phases.frequency
    used = phases.amplitude > 0
    scales, error, of_scales = _scales(values, phases, stored, target)
    unrotated = np.zeros(len(used), bool)
    if target is not None:
        unrotated = used & (np.abs(target.frequencies) > 64 * phases.error) & (frequency == 0)
    if unrotated.any():
        of_scales += (not_rotated(np.flatnonzero(unrotated)),)
    estimate = Estimate(frequency, phases.error, used & np.isfinite(phases.error) & ~unrotated)
    return Evidence(positions, orientation.undone(values), stored, estimate, orientation, scales, error, unrotated, ~used,
                    float(phases.reach.max()), (*faults, *of_scales))


def _scales(
    values: NDArray[np.complex128], phases: Phases, dtype: str, target: Rotary | None
) -> tuple[tuple[float, ...], float, tuple[str, ...]]:
    """Return the possible scales, their error, and the faults."""
    amplitude = phases.amplitude
    used = amplitude > 0
    scale = float(np.median(amplitude[used]))
    error = scale * 2.0 ** (1 - PRECISION[dtype])
    wanted = (1.0,) if target is None else (abs(size_of(target)), 1.0)
    # the values of slow pairs are all rounded in the same direction
    turning = used & (np.abs(phases.frequency) * phases.reach > 2 * math.tau)
    chosen = values[:, turning if turning.any() else used]
    mean = float(np.mean(np.abs(chosen)))
    fine = max(SIGMAS / math.sqrt(chosen.size) * 2.0 ** -PRECISION[dtype], 2.0**-50)
    scales = (*(x for x in wanted if abs(x - scale) <= error), short(scale, error / scale), short(mean, fine),
              short(mean, fine / 8))
    faults = []
    if not used.all():
        zero = np.flatnonzero(~used)
        faults.append(f"{pairs(zero)} {'are' if len(zero) > 1 else 'is'} 0")
    uneven = used & (np.abs(amplitude - scale) > SIGMAS * error)
    if 0 < uneven.sum() < len(used) / 2:
        faults.append(f"the scale of {pairs(np.flatnonzero(uneven))} differs from that of the others")
    return tuple(dict.fromkeys(scales)), error, tuple(faults)


def _phases(
    positions: NDArray[Any], values: NDArray[np.complex128], bits: int, smallest: float, target: Rotary | None
) -> Phases | None:
    """Estimate the phases, separately for each axis of positions."""
    guess = None if target is None else target.frequencies
    axes = np.zeros(values.shape[1], int) if positions.ndim == 1 or target is None else np.array(target.axes)
    columns = np.empty((len(Phases._fields), values.shape[1]))
    for axis in range(int(axes.max(initial=0)) + 1):
        at = positions if positions.ndim == 1 else positions[axis]
        gaps = np.diff(np.unique(at))
        ambiguous = guess is not None and len(gaps) and gaps.min() * np.abs(guess).max(initial=0) >= math.pi
        phases = phases_of(at, values[:, axes == axis], bits, smallest, guess[axes == axis] if ambiguous else None)
        if phases is None:
            return None
        columns[:, axes == axis] = phases
    return Phases(*columns)
