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
from posenc.check.limits import FLOAT32, MOST_PHASES, OFFSETS, SIGMAS
from posenc.check.mistakes import ORIENTATIONS, Estimate, number, pairs


class Evidence(NamedTuple):
    """The cosines and sines of a sample, as cos + i sin of angles with the expected sign, and what they show at once."""

    positions: NDArray[Any]             # including the shift
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
        size, scaling = size_of(rotary), rotary.scaling or {}
        as_given = [size] if abs(abs(size) - self.scales[0]) <= 2 * self.scale_error else []
        for scale in dict.fromkeys((*as_given, *self.scales)):
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
    gaps = np.diff(np.unique(positions))
    # the estimates of frequencies are ambiguous if a pair may turn by more than half a turn between two positions
    fastest = 0.0 if target is None or not len(gaps) else float(gaps.min() * np.abs(target.frequencies).max(initial=0))
    sign = 1 if target is None or np.sum(target.frequencies) >= 0 else -1
    views = []
    for index, (_, turn) in enumerate(ORIENTATIONS if target is None or size_of(target) > 0 else ORIENTATIONS[:3]):
        guess = target.frequencies if target is not None and fastest >= math.pi else None
        phases = phases_of(positions, turn(values), PRECISION[stored], smallest, guess)
        if phases is None:
            return None
        offset = _offset(phases, sign)
        views.append((2 if offset is None else min(1, abs(offset)), index, offset or 0.0, phases))
    _, orientation, offset, phases = min(views, key=lambda view: view[:2])
    used = phases.amplitude > 0
    scales, error = _scales(values, phases, stored, target)
    zero = np.flatnonzero(~used)
    faults = [ORIENTATIONS[orientation][0], f"{pairs(zero)} {'are' if len(zero) > 1 else 'is'} 0" if len(zero) else ""]
    return Evidence(positions, ORIENTATIONS[orientation][1](values), stored,
                    Estimate(phases.frequency, phases.error, used & np.isfinite(phases.error)), orientation, offset, scales,
                    error, ~used, float(phases.reach.max()), tuple(filter(None, faults)))


def _offset(phases: Phases, sign: int) -> float | None:
    """Return the first of `OFFSETS` that explains most phases; None if there is none, or if angles have another sign."""
    used = (phases.amplitude > 0) & np.isfinite(phases.error)
    w, error = phases.frequency[used], phases.error[used]
    signs = np.sign(w[np.abs(w) > SIGMAS * error])[np.argsort(np.abs(w[np.abs(w) > SIGMAS * error]), kind="stable")]
    if np.sum(signs[: max(1, len(signs) // 2)]) * sign < 0:         # of the slower half: fast pairs are ambiguous
        return None
    for offset in OFFSETS:
        rest = np.abs(wrapped(phases.phase[used] - w * offset))
        bound = SIGMAS * phases.phase_error[used] + 1e-6 + 64 * FLOAT32 * np.abs(w * offset)
        if (rest <= bound).mean() > MOST_PHASES:
            return float(offset)
    return None


def _scales(
    values: NDArray[np.complex128], phases: Phases, dtype: str, target: Rotary | None
) -> tuple[tuple[float, ...], float]:
    """Return the possible scales, and the error of the first estimate."""
    used = phases.amplitude > 0
    scale = float(np.median(phases.amplitude[used]))
    error = scale * 2.0 ** (1 - PRECISION[dtype])
    expected = (1.0,) if target is None else (abs(size_of(target)), 1.0)
    # the values of slow pairs are all rounded in the same direction
    turning = used & (np.abs(phases.frequency) * phases.reach > 2 * math.tau)
    mean = np.abs(values[:, turning if turning.any() else used])
    fine = max(SIGMAS / math.sqrt(mean.size) * 2.0 ** -PRECISION[dtype], 2.0**-50)
    return tuple(dict.fromkeys((*(x for x in expected if abs(x - scale) <= error), short(scale, error / scale),
                                short(float(mean.mean()), fine), short(float(mean.mean()), fine / 8)))), error
