"""Evidence: what cosines and sines show at once: their orientation, frequencies, scale, and the offset of their positions."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check.arithmetic import FORMATS, PRECISION, narrowest, size_of
from posenc.check.fits import Phases, phases_of, short, wrapped
from posenc.check.limits import FARTHEST, FLOAT32, MOST_PHASES, SIGMAS
from posenc.check.mistakes import ORIENTATIONS, Estimate, number, pairs


class Evidence(NamedTuple):
    """The cosines and sines of a sample, as cos + i sin of angles with the expected sign, and what they show at once."""

    positions: NDArray[Any]             # shape (n,) or (axes, n), including the shift
    values: NDArray[np.complex128]
    dtype: str                          # the narrowest dtype that holds all values
    estimate: Estimate
    orientation: int                    # number of the row of `ORIENTATIONS` that gives the given values
    offset: float                       # the values are those at the given positions plus this offset
    scales: tuple[float, ...]           # possible scales, simple ones first
    scale_error: float
    zero: NDArray[np.bool_]             # pairs that are 0 everywhere
    reach: float                        # largest distance between two positions whose phases agree with the frequencies
    faults: tuple[str, ...]
    shift: float | int = 0              # the number that was added to the given positions

    def turned(self, values: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return given values as cos + i sin, or such values as those given; both are the same transformation."""
        return ORIENTATIONS[self.orientation][1](values)

    def shifted(self) -> Evidence:
        """Return this evidence with the offset added to the positions."""
        whole = int(self.offset) if float(self.offset).is_integer() else self.offset
        first = float(np.min(self.positions))
        fault = f"positions start at {number(first + whole)}, expected {number(first)}"
        return self._replace(positions=self.positions + whole, shift=whole, faults=(*self.faults, fault))

    def sized(self, rotary: Rotary) -> Iterator[Rotary]:
        """Yield a rotation with its own scale, if the values agree with this scale, then with each possible scale."""
        size = size_of(rotary)
        as_given = [size] if abs(abs(size) - self.scales[0]) <= 2 * self.scale_error else []
        for scale in dict.fromkeys((*as_given, *self.scales)):
            scaling = rotary.scaling or {}
            if scale == size:
                yield rotary
            elif scaling.get("rope_type") in ("yarn", "longrope") and "short_mscale" not in scaling:
                yield rotary.replace(scale=1.0, scaling=scaling | {"attention_factor": scale})
            else:
                yield rotary.replace(scale=scale / rotary.attention_scaling)


def evidence_of(
    positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None
) -> Evidence | None:
    """Estimate the orientation, frequencies and scale; return None if all positions are equal.

    The orientation is the first one with the expected sign of the frequencies whose phases are 0; or else, proportional to
    the frequencies.
    """
    stored = narrowest(np.stack([values.real, values.imag]), dtype)
    smallest = 2.0 ** max(FORMATS[stored][1], FORMATS[dtype][1])
    sign = 1 if target is None or np.sum(target.frequencies) >= 0 else -1
    views = []
    for index, (_, turn) in enumerate(ORIENTATIONS if target is None or size_of(target) > 0 else ORIENTATIONS[:3]):
        phases = _phases(positions, turn(values), PRECISION[stored], smallest, target)
        if phases is None:
            return None
        offset = _offset(phases, sign)
        views.append((0 if offset == 0 else 1 if offset else 2, index, offset or 0.0, phases))
    _, orientation, offset, phases = min(views, key=lambda view: view[:2])
    used = phases.amplitude > 0
    scales, error = _scales(values, phases, stored, target)
    zero = np.flatnonzero(~used)
    faults = [ORIENTATIONS[orientation][0], f"{pairs(zero)} {'are' if len(zero) > 1 else 'is'} 0" if len(zero) else ""]
    return Evidence(positions, ORIENTATIONS[orientation][1](values), stored,
                    Estimate(phases.frequency, phases.error, used & np.isfinite(phases.error)), orientation, offset, scales,
                    error, ~used, float(phases.reach.max()), tuple(filter(None, faults)))


def _offset(phases: Phases, sign: int) -> float | None:
    """Return the offset of the positions that explains most phases; None if there is none, or if angles have another sign."""
    w, used = phases.frequency, np.flatnonzero((phases.amplitude > 0) & np.isfinite(phases.error))
    used = used[np.argsort(np.abs(w[used]), kind="stable")]
    turning = used[np.abs(w[used]) > SIGMAS * phases.error[used]]
    slow = turning[: max(1, len(turning) // 2)]
    if not len(used) or np.sum(w[slow] * sign < 0) > len(slow) / 2:
        return None
    offset, error = 0.0, math.inf
    for k in turning:
        rest = float(wrapped(phases.phase[k] - w[k] * offset))
        if abs(w[k]) * error < 1 or math.isinf(error):
            offset += rest / w[k]
            error = float(phases.phase_error[k] / abs(w[k]))
    half_integer = round(2 * offset) / 2
    if abs(offset - half_integer) <= SIGMAS * error + 1e-6:
        offset = half_integer
    left = np.abs(wrapped(phases.phase - w * offset)[used])
    bound = SIGMAS * phases.phase_error[used] + 1e-6 + 64 * FLOAT32 * np.abs(w[used] * offset)
    return offset if abs(offset) <= FARTHEST and (left <= bound).mean() > MOST_PHASES else None


def _scales(
    values: NDArray[np.complex128], phases: Phases, dtype: str, target: Rotary | None
) -> tuple[tuple[float, ...], float]:
    """Return the possible scales, and the error of the first estimate."""
    used = phases.amplitude > 0
    scale = float(np.median(phases.amplitude[used]))
    error = scale * 2.0 ** (1 - PRECISION[dtype])
    wanted = (1.0,) if target is None else (abs(size_of(target)), 1.0)
    # the values of slow pairs are all rounded in the same direction
    turning = used & (np.abs(phases.frequency) * phases.reach > 2 * math.tau)
    mean = np.abs(values[:, turning if turning.any() else used])
    fine = max(SIGMAS / math.sqrt(mean.size) * 2.0 ** -PRECISION[dtype], 2.0**-50)
    return tuple(dict.fromkeys((*(x for x in wanted if abs(x - scale) <= error), short(scale, error / scale),
                                short(float(mean.mean()), fine), short(float(mean.mean()), fine / 8)))), error


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
        expected = None
        if guess is not None and len(gaps) and gaps.min() * np.abs(guess).max(initial=0) >= math.pi:
            expected = guess[axes == axis]          # a frequency is ambiguous
        phases = phases_of(at, values[:, axes == axis], bits, smallest, expected)
        if phases is None:
            return None
        columns[:, axes == axis] = phases
    return Phases(*columns)
