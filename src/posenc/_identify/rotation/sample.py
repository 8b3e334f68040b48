"""Cosines and sines of a sample, with the expected signs, and estimates of their frequencies and scale."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.dtypes import DTYPES
from posenc._identify.rotation.arithmetic import exact
from posenc._identify.rotation.candidates import LOOSE, Estimate
from posenc._identify.rotation.faults import not_rotated
from posenc._identify.rotation.phases import Orientation, Phases, orientation_of, phases_of, wrapped
from posenc._identify.table.candidates import short
from posenc._identify.table.sample import PRECISION, narrowest
from posenc._identify.wording import number, pairs
from posenc._rotary import Rotary

AS_THEY_ARE = Orientation(exchanged=False, reversed=False, offset=0.0)


class Values(NamedTuple):
    """The cosines and sines of a sample, as cos + i sin of angles with the expected sign."""

    positions: NDArray[Any]             # shape (n,) or (axes, n), including the shift
    values: NDArray[np.complex128]
    dtype: str                          # the narrowest dtype that holds all values
    estimate: Estimate
    orientation: Orientation            # the orientation of the given values
    scales: tuple[float, ...]           # possible scales, simple ones first
    scale_error: float
    still: NDArray[np.bool_]            # pairs that are not rotated, although they should be
    zero: NDArray[np.bool_]             # pairs that are 0 everywhere
    reach: float                        # largest distance between two positions whose phases agree with the frequencies
    faults: tuple[str, ...]
    shift: float | int = 0              # the number that was added to the given positions

    @property
    def offset(self) -> float | int:
        """The offset of the positions, as an int if possible."""
        offset = self.orientation.offset
        return int(offset) if float(offset).is_integer() else offset

    def shifted(self) -> Values:
        """Return these values with the offset added to the positions."""
        first = float(np.min(self.positions))
        fault = f"positions start at {number(first + self.offset)}, expected {number(first)}"
        return self._replace(positions=self.positions + self.offset, shift=self.offset, faults=(*self.faults, fault))

    def turned(self, values: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return given values as cos + i sin of angles with the expected sign."""
        return turned(values, self.orientation)

    def sized(self, rotary: Rotary) -> Iterator[Rotary]:
        """Yield a rotation with its own scale, if the values agree with this scale, then with each possible scale."""
        own = rotary.scale * rotary.attention_scaling
        near = [own] if abs(abs(own) - self.scales[0]) <= 2 * self.scale_error else []
        for scale in dict.fromkeys((*near, *self.scales)):
            yield with_scale(rotary, scale)

    def with_fitted_scale(self, rotary: Rotary) -> Values:
        """Return these values with one more possible scale: the midpoint of the scales with which `rotary` gives the values."""
        unit = exact(with_scale(rotary, 1.0), self.positions)
        x = np.stack([self.values.real, self.values.imag])
        divisor = np.abs(np.stack([unit.real, unit.imag]))
        _, exponents = np.frexp(x)
        half = np.ldexp(0.5, exponents - PRECISION[self.dtype])
        large = divisor > 0.5
        least = np.max((np.abs(x) - half)[large] / divisor[large], initial=0.0)
        most = np.min((np.abs(x) + half)[large] / divisor[large], initial=math.inf)
        scale = short(float((least + most) / 2), abs(float(most - least)) / 4 / self.scales[0])
        return self._replace(scales=(*self.scales, scale))

    def rows(self, chosen: NDArray[np.bool_]) -> Values:
        return self._replace(positions=self.positions[..., chosen], values=self.values[chosen])

    def loose(self) -> Values:
        """Return these values with larger errors of the estimates, to allow for frequencies rounded to 16 bits."""
        error = np.maximum(self.estimate.error, LOOSE / 8 * np.abs(self.estimate.frequency))
        return self._replace(estimate=self.estimate._replace(error=error))

    def undetermined(self, frequencies: NDArray[np.float64]) -> list[int]:
        """Return the pairs whose frequencies the values do not determine."""
        relative = 8 * self.estimate.error > 0.1 * np.abs(frequencies)
        return np.flatnonzero(relative & (frequencies != 0) & ~self.still).tolist()


def turned(values: NDArray[np.complex128], orientation: Orientation) -> NDArray[np.complex128]:
    if orientation.negative:
        values = -values
    if orientation.exchanged:
        values = values.imag + 1j * values.real
    return np.conj(values) if orientation.reversed else values


def positive(
    positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None
) -> Values | None:
    """Estimate the orientation, frequencies and scale; return None if all positions are equal."""
    stored = narrowest(np.stack([values.real, values.imag]), dtype)
    smallest = 2.0 ** max(DTYPES[name].smallest for name in (stored, dtype))
    phases = _phases(positions, values, PRECISION[stored], smallest, target)
    if phases is None:
        return None
    sign = 1 if target is None or np.sum(target.frequencies) >= 0 else -1
    orientation = orientation_of(phases, sign)
    if (orientation is None or orientation.offset) and (target is None or target.scale * target.attention_scaling > 0):
        opposite = orientation_of(phases._replace(phase=wrapped(phases.phase + math.pi)), sign)
        if opposite is not None and not opposite.offset and not opposite.exchanged:
            orientation = opposite._replace(negative=True)
    orientation = orientation or AS_THEY_ARE
    faults = ["values are multiplied by -1, expected 1"] if orientation.negative else []
    if orientation.exchanged:
        faults.append("cos and sin are exchanged")
    if orientation.reversed:
        faults.append("the signs of the sines are reversed")
    negative = orientation.exchanged != orientation.reversed
    frequency = -phases.frequency if negative else phases.frequency
    used = phases.amplitude > 0
    scales, error, more = _scales(values, phases, stored, target)
    still = np.zeros(len(used), bool)
    if target is not None:
        expected = np.abs(target.frequencies)
        still = used & (expected > 64 * phases.error) & (np.abs(frequency) <= 8 * phases.error) & (frequency == 0)
    if still.any():
        more += (not_rotated(np.flatnonzero(still).tolist()),)
    estimate = Estimate(frequency, phases.error, used & np.isfinite(phases.error) & ~still)
    return Values(positions, turned(values, orientation), stored, estimate, orientation, scales, error, still, ~used,
                    float(phases.reach.max()), (*faults, *more))


def _scales(
    values: NDArray[np.complex128], phases: Phases, dtype: str, target: Rotary | None
) -> tuple[tuple[float, ...], float, tuple[str, ...]]:
    """Return the possible scales, their error, and the faults."""
    amplitude = phases.amplitude
    used = amplitude > 0
    scale = float(np.median(amplitude[used]))
    error = scale * 2.0 ** (1 - PRECISION[dtype])
    wanted = (1.0,) if target is None else (abs(target.scale * target.attention_scaling), 1.0)
    near = [x for x in wanted if abs(x - scale) <= error]
    # the values of slow pairs are all rounded in the same direction
    turning = used & (np.abs(phases.frequency) * phases.reach > 2 * math.tau)
    chosen = values[:, turning if turning.any() else used]
    mean = float(np.mean(np.abs(chosen)))
    fine = max(8 / math.sqrt(chosen.size) * 2.0 ** -PRECISION[dtype], 2.0**-50)
    scales = (*near, short(scale, error / scale), short(mean, fine), short(mean, fine / 8))
    faults = []
    if not used.all():
        zero = np.flatnonzero(~used).tolist()
        faults.append(f"{pairs(zero)} {'are' if len(zero) > 1 else 'is'} 0")
    uneven = used & (np.abs(amplitude - scale) > 8 * error)
    if 0 < uneven.sum() < len(used) / 2:
        faults.append(f"the scale of {pairs(np.flatnonzero(uneven).tolist())} differs from that of the others")
    return tuple(dict.fromkeys(scales)), error, tuple(faults)


def with_scale(rotary: Rotary, scale: float) -> Rotary:
    """Return a rotation that multiplies cosines and sines by this scale."""
    if rotary.scale * rotary.attention_scaling == scale:
        return rotary
    scaling = rotary.scaling
    if scaling is not None and scaling["rope_type"] in ("yarn", "longrope") and "short_mscale" not in scaling:
        return rotary.replace(scale=1.0, scaling=scaling | {"attention_factor": scale})
    return rotary.replace(scale=scale / rotary.attention_scaling)


def _phases(
    positions: NDArray[Any], values: NDArray[np.complex128], bits: int, smallest: float, target: Rotary | None
) -> Phases | None:
    """Estimate the phases, separately for each axis of positions."""
    guess = None if target is None else target.frequencies
    axes = np.zeros(values.shape[1], int) if positions.ndim == 1 or target is None else np.array(target.axes)
    parts: dict[int, Phases] = {}
    for axis in range(int(axes.max(initial=0)) + 1):
        at = positions if positions.ndim == 1 else positions[axis]
        own = axes == axis
        gaps = np.diff(np.unique(at))
        near = None if guess is None or not len(gaps) or gaps.min() * np.abs(guess).max(initial=0) < math.pi else guess[own]
        found = phases_of(at, values[:, own], bits, smallest, near)
        if found is None:
            return None
        parts[axis] = found
    columns = []
    for field in range(len(Phases._fields)):
        column = np.empty(values.shape[1])
        for axis, found in parts.items():
            column[axes == axis] = found[field]
        columns.append(column)
    return Phases(*columns)
