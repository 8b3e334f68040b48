"""Search for the rotation that gives cosines and sines, and name its faults."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.dtypes import DTYPES
from posenc._identify.arithmetic import NARROW, Arithmetic, correctly_rounded, difference, errors_of, exact, explained, rounded
from posenc._identify.candidates import short
from posenc._identify.phases import FLOAT32, Phases, orientation_of, phases_of
from posenc._identify.rotary_candidates import LOOSE, Candidate, Estimate, changed, mistakes
from posenc._identify.rotary_faults import differences, number, numbers, of_arithmetic, of_scale
from posenc._identify.rotary_fits import explicit, fits
from posenc._identify.rotation import Reading
from posenc._identify.sample import PRECISION, narrowest
from posenc._rotary import Rotary


class Found(NamedTuple):
    """The result of a search."""

    rotary: Rotary | None
    difference: float
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})


class Values(NamedTuple):
    """The cosines and sines of a sample, with those of positive angles as cos + i sin."""

    positions: NDArray[Any]             # shape (n,) or (axes, n)
    values: NDArray[np.complex128]
    dtype: str                          # the narrowest one that holds all values
    estimate: Estimate
    scale: float
    scale_error: float

    def explained(self, rotary: Rotary, narrow: bool = False) -> tuple[Rotary, Arithmetic] | None:
        """Return the rotation with the scale of the values, and its arithmetic, if it explains the values."""
        sized = with_scale(rotary, self.scale, self.scale_error)
        arithmetic = explained(sized, self.positions, self.values, self.dtype, narrow)
        return None if arithmetic is None else (sized, arithmetic)

    def loose(self) -> Values:
        """Return these values with estimates that may have been rounded to 16 bits."""
        estimate = self.estimate
        error = np.maximum(estimate.error, LOOSE / 8 * np.abs(estimate.frequency))
        return self._replace(estimate=estimate._replace(error=error))


def with_scale(rotary: Rotary, scale: float, error: float) -> Rotary:
    """Return a rotation that multiplies cosines and sines by this scale."""
    total = rotary.scale * rotary.attention_scaling
    if abs(total - scale) <= error:
        return rotary
    scaling = rotary.scaling
    if scaling is not None and scaling["rope_type"] in ("yarn", "longrope") and "short_mscale" not in scaling and scale > 0:
        return rotary.replace(scale=1.0, scaling=scaling | {"attention_factor": scale})
    return rotary.replace(scale=scale / rotary.attention_scaling)


def search(reading: Reading, expected: Rotary | None, source: str, head_dim: int | None) -> Found:
    """Find the rotation of tables or of a function."""
    assert reading.read is not None and reading.positions is not None and reading.rows is not None
    positions, values = reading.positions[..., reading.rows], reading.read(reading.rows)
    finite = np.isfinite(values).all(axis=1)
    faults = list(reading.faults)
    if not values.size:
        return Found(None, 0.0, ("there are no values",))
    if not finite.all():
        first = positions[..., ~finite].min()
        faults.append("no value is finite" if not finite.any() else f"not all values are finite, from position {first:,} on")
    if finite.any() and not values[finite].any():
        faults.append("all values are 0")
    if not values[finite].any():
        return Found(None, math.inf, tuple(faults))
    target, more = (None, ()) if expected is None else _with_pairs(expected, values.shape[1], source)
    size = head_dim or reading.head_dim or 2 * values.shape[1]
    found = _found(reading, positions[..., finite], values[finite], target, source, size)
    return found._replace(faults=(*faults, *more, *found.faults), remarks=(*found.remarks, *reading.remarks))


def _with_pairs(expected: Rotary, pairs: int, source: str) -> tuple[Rotary, tuple[str, ...]]:
    """Return the expected rotation with this number of pairs."""
    if expected.rotary_dim == 2 * pairs:
        return expected, ()
    faults = (f"{2 * pairs} columns are rotated, {source} {expected.rotary_dim}",)
    changes: dict[str, Any] = {"rotary_dim": 2 * pairs, "head_dim": max(expected.head_dim, 2 * pairs), "axes": None}
    for more in ({}, {"scaling": None}, {"frequencies": None}):
        if (other := changed(expected, **changes, **more)) is not None:
            return other, faults
    raise AssertionError("a rotation without scaling and frequencies has any width")


def values_of(positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None) -> tuple[
        Values, tuple[str, ...]] | None:
    """Return the values with positive angles at their positions, and faults; None if all positions are equal."""
    parts = np.stack([values.real, values.imag])
    stored = narrowest(parts, dtype)
    phases = _phases(positions, values, stored, target)
    if phases is None:
        return None
    sign = 1 if target is None or np.sum(target.frequencies) >= 0 else -1
    orientation = orientation_of(phases, sign)
    faults: list[str] = []
    frequency = phases.frequency
    if orientation is not None:
        if orientation.exchanged:
            faults.append("cos and sin are exchanged")
            values, frequency = 1j * np.conj(values), -frequency
        if orientation.reversed:
            faults.append("the signs of the sines are reversed")
            values, frequency = np.conj(values), -frequency
        if orientation.offset:
            start = float(np.min(positions)) + orientation.offset
            faults.append(f"positions start at {number(start)}, expected {number(float(np.min(positions)))}")
            positions = positions + (int(orientation.offset) if orientation.offset.is_integer() else orientation.offset)
    used = phases.amplitude > 0
    scale = float(np.median(phases.amplitude[used])) if used.any() else 0.0
    error = scale * (2.0 ** (1 - PRECISION[stored]) + 1e-12)
    wanted = () if target is None else (target.scale * target.attention_scaling,)
    scale = short(scale, error / scale if scale else 0, (*wanted, 1.0), 1) if scale else 0.0
    if not used.all():
        faults.append(f"pairs {numbers(np.flatnonzero(~used).tolist())} are 0")
    uneven = used & (np.abs(phases.amplitude - scale) > 8 * error)
    if uneven.any():
        faults.append(f"the scale of pairs {numbers(np.flatnonzero(uneven).tolist())} differs from that of the others")
    estimate = Estimate(frequency, phases.error, used & np.isfinite(phases.error))
    return Values(positions, values, stored, estimate, scale, error), tuple(faults)


def _phases(positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None) -> Phases | None:
    """Estimate the frequencies, on each axis of positions."""
    bits, smallest = PRECISION[dtype], 2.0 ** DTYPES[dtype].smallest
    guess = None if target is None else target.frequencies
    axes = np.zeros(values.shape[1], int) if positions.ndim == 1 or target is None else np.array(target.axes)
    parts: dict[int, Phases] = {}
    for axis in range(int(axes.max(initial=0)) + 1):
        at = (positions if positions.ndim == 1 else positions[axis]).astype(np.float64)
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


def _found(
    reading: Reading, positions: NDArray[Any], values: NDArray[np.complex128], target: Rotary | None, source: str, size: int
) -> Found:
    """Find the rotation of finite values."""
    read = values_of(positions, values, reading.dtype, target)
    if read is None:
        return _at_one_position(positions, values, reading.dtype, target)
    sample, faults = read
    for candidate, narrow in _candidates(sample, target, source, size):
        explanation = sample.explained(candidate.rotary, narrow)
        if explanation is not None:
            rotary, arithmetic = explanation
            more = candidate.faults if candidate.faults is not None else differences(rotary, target, source)
            return _result(reading, sample, rotary, arithmetic, (*more, *faults), target, source)
    return Found(None, math.inf, faults)


def _at_one_position(
    positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None
) -> Found:
    remark = "a single position does not determine the rotation"
    if target is None:
        return Found(None, math.inf, (), (remark,))
    distance = float(difference(values, exact(target, positions)).max())
    if explained(target, positions, values, dtype) is None:
        return Found(None, distance, (f"the values differ from the expected ones by {distance:.2g}",), (remark,))
    return Found(target, distance, (), (remark,))


def _candidates(sample: Values, target: Rotary | None, source: str, size: int) -> Iterator[tuple[Candidate, bool]]:
    """Yield candidates near the estimated frequencies, and whether to allow roundings to 16 bits."""
    axes = None if target is None else target.axes
    for narrow, values in ((False, sample), (True, sample.loose())):
        if target is not None:
            yield Candidate(target, ()), narrow
        for candidate in _near(values.estimate, target, source, size, axes):
            yield candidate, narrow
    yield Candidate(explicit(sample.estimate, size, axes)), False


def _result(
    reading: Reading, sample: Values, rotary: Rotary, arithmetic: Arithmetic, faults: tuple[str, ...], target: Rotary | None,
    source: str,
) -> Found:
    assert reading.read is not None and reading.positions is not None and reading.rows is not None
    distance = float(difference(reading.read(reading.rows), exact(rotary, reading.positions[..., reading.rows])).max())
    errors = errors_of(rotary, arithmetic)
    exactly = bool((sample.values == correctly_rounded(rotary, sample.positions, sample.dtype)).all())
    more, remarks = of_arithmetic(arithmetic, reading.dtype, errors, exactly)
    scale = of_scale(sample.scale, sample.scale_error, target)
    return Found(rotary, distance, (*faults, *scale, *more), remarks, errors)


def search_frequencies(reading: Reading, expected: Rotary | None, source: str, head_dim: int | None) -> Found:
    """Find the rotation of frequencies such as `inv_freq`."""
    w = reading.frequencies
    assert w is not None
    bad = np.count_nonzero(~np.isfinite(w))
    if bad or not w.any():
        what = f"{bad} of {len(w)} elements are not finite" if bad else f"all {len(w)} elements are 0"
        return Found(None, math.inf, (f"inv_freq is not a geometric series, and {what}: probably uninitialised",))
    target, faults = (None, ()) if expected is None else _with_pairs(expected, len(w), source)
    if target is not None and (w * target.frequencies < 0).all():
        faults = (*faults, "the signs of the frequencies are reversed")
        w = -w
    own = narrowest(w, reading.dtype)
    size, axes = head_dim or 2 * len(w), None if target is None else target.axes
    for narrow in ("", own) if own in NARROW else ("",):
        relative = 2.0 ** -PRECISION[narrow] if narrow else 2.0**-50
        estimate = Estimate(w, relative / 8 * np.abs(w), np.ones(len(w), bool))
        for candidate in _near(estimate, target, source, size, axes):
            f = candidate.rotary.frequencies
            if narrow and not (rounded(f, narrow) == w).mean() > 0.9:
                continue
            return _result_of_frequencies(w, narrow, candidate, target, source, faults)
    found = explicit(Estimate(w, np.zeros(len(w)), np.ones(len(w), bool)), size, axes)
    if target is None:
        return Found(found, 0.0, (), ("the frequencies follow no known formula",))
    errors = errors_of(found, Arithmetic("float32", "float32"))
    return Found(found, 0.0, (*faults, *differences(found, target, source)), (), errors)


def _near(estimate: Estimate, target: Rotary | None, source: str, size: int, axes: Any) -> Iterator[Candidate]:
    """Yield the candidates with frequencies near the estimates."""
    tight = 64 * FLOAT32
    for candidate in mistakes(target, estimate, source) if target is not None else ():
        if estimate.near(candidate.rotary.frequencies, tight):
            yield candidate
    for rotary in fits(estimate, size, axes):
        if estimate.near(rotary.frequencies, tight):
            yield Candidate(rotary)


def _result_of_frequencies(
    w: NDArray[np.float64], narrow: str, candidate: Candidate, target: Rotary | None, source: str, faults: tuple[str, ...]
) -> Found:
    rotary = candidate.rotary
    more = candidate.faults if candidate.faults is not None else differences(rotary, target, source)
    if narrow:
        more = (*more, f"inv_freq was rounded to {narrow}")
    distance = float(np.abs(w - rotary.frequencies).max())
    dtype = next(name for name in ("float64", "float32") if name == "float32" or distance < 1e-13)
    errors = errors_of(rotary, Arithmetic("float32", dtype), w)
    remark = f"{narrow or dtype} frequencies: the error is {errors[1_000_000]:.1g} at position 1,000,000"
    return Found(rotary, distance, (*faults, *more), (remark,), errors)
