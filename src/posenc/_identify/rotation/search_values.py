"""Find the rotation that matches given cosines and sines, and name the faults of these values."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._identify.rotation.arithmetic import (
    Arithmetic,
    correctly_rounded,
    difference,
    errors_of,
    exact,
    explained,
    narrower_than_needed,
    unexplained,
)
from posenc._identify.rotation.axes_of_pairs import with_their_axes
from posenc._identify.rotation.candidates import Candidate, Estimate, changed, mistakes
from posenc._identify.rotation.faults import differences, not_rotated, of_arithmetic, of_layout, of_scale
from posenc._identify.rotation.first_wrong_position import end_of
from posenc._identify.rotation.fits import explicit, fits
from posenc._identify.rotation.phases import FLOAT32
from posenc._identify.rotation.read_arrays import Reading
from posenc._identify.rotation.sample import Values, positive
from posenc._identify.wording import pairs
from posenc._rotary import Rotary

TIGHT = 64 * FLOAT32        # relative tolerance for frequencies that were computed in float32
CHUNK = 2**18               # number of values that are compared at a time


class Found(NamedTuple):
    rotary: Rotary | None
    difference: float
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})


class Explanation(NamedTuple):
    """A rotation that gives the values of a sample."""

    rotary: Rotary
    arithmetic: Arithmetic
    faults: tuple[str, ...]
    sample: Values


def search(reading: Reading, expected: Rotary | None, source: str, head_dim: int | None) -> Found:
    """Find the rotation that matches tables or a function."""
    assert reading.read is not None and reading.positions is not None and reading.rows is not None
    positions, values = reading.positions[..., reading.rows], reading.read(reading.rows)
    if not values.size and expected is not None and not expected.rotary_dim:
        return Found(expected, 0.0, (), ("there are no values",))
    if not values.size:
        return Found(None, math.inf, reading.faults or ("there are no values",))
    finite = np.isfinite(values).all(axis=1)
    faults = list(reading.faults)
    if not finite.any():
        faults.append("no value is finite")
    elif not finite.all():
        faults.append(f"some values are not finite, the first at position {positions[..., ~finite].min():,}")
    has_values = finite.any() and np.median(np.abs(values[finite]), axis=0).any()
    if finite.any() and not has_values:
        faults.append(f"{'most' if values[finite].any() else 'all'} values are 0")
    if not has_values:
        return Found(None, math.inf, tuple(faults))
    positions, values = positions[..., finite], values[finite]
    size = checked_size(head_dim or reading.head_dim, values.shape[1])
    results = []
    for target, more in targets(expected, values.shape[1], source):
        if target is not None and (moved := with_their_axes(target, positions, values, source)) is not None:
            target, more = moved[0], (*more, *moved[1])
        own, at = reading, positions
        axes = 1 if target is None or target.axes is None else 1 + max(target.axes)
        if positions.ndim > 1 and axes != len(positions):       # `targets` removed the axes
            chosen: Any = 0 if axes == 1 else slice(axes)
            own, at = reading._replace(positions=reading.positions[chosen], call=None), positions[chosen]
        found = _found(own, at, values, target, source, size)
        results.append(found._replace(
            faults=(*faults, *more, *found.faults), remarks=(*found.remarks, *reading.remarks)))
    return min(results, key=lambda found: (found.rotary is None, len(found.faults)))


def checked_size(head_dim: int | None, pairs: int) -> int:
    if head_dim is not None and head_dim < 2 * pairs:
        raise ValueError(f"head_dim is {head_dim}, expected at least {2 * pairs}, the number of columns that are rotated")
    return head_dim or 2 * pairs


def targets(expected: Rotary | None, count: int, source: str) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `count` pairs: first with frequencies for this width, then with its first pairs."""
    if expected is None or expected.rotary_dim == 2 * count:
        yield expected, ()
        return
    changes: dict[str, Any] = {"rotary_dim": 2 * count, "head_dim": max(expected.head_dim, 2 * count), "axes": None}
    faults = (f"{2 * count} columns are rotated, {source} {expected.rotary_dim}",)
    for more in ({}, {"scaling": None}, {"frequencies": None}):
        if (other := changed(expected, **changes, **more)) is not None:
            yield other, faults
            break
    own = expected.rotary_dim // 2
    if count < own:
        changes["axes"] = expected.axes and expected.axes[:count]
        frequencies, scale = expected.frequencies[:count], expected.scale * expected.attention_scaling
        if (other := changed(expected, **changes, frequencies=frequencies, scale=scale)) is not None:
            yield other, (not_rotated(range(count, own)),)


def _found(
    reading: Reading, positions: NDArray[Any], values: NDArray[np.complex128], target: Rotary | None, source: str, size: int
) -> Found:
    sample = positive(positions, values, reading.dtype, target)
    if sample is None:
        return _at_one_position(positions, values, reading.dtype, target)
    found = _explanation(sample, _candidates(sample, target, source, size, allow_narrow=not sample.offset), target, source)
    if found is None and sample.offset:
        shifted = sample.shifted()
        found = _explanation(shifted, _candidates(shifted, target, source, size), target, source)
        found = found or _explanation(sample, _candidates(sample, target, source, size), target, source)
    end: tuple[str, ...] = ()
    if found is None:
        rotary = explicit(sample.estimate, size, None if target is None else target.axes)
        found = _explanation(sample.with_fitted_scale(rotary), [(Candidate(rotary), False)], target, source)
    if found is None and (ended := _ended(reading, sample, target, source, size)) is not None:
        found, end = ended
    if found is None:
        return _nearest(sample, target, source, size)
    return _result(reading, found, end, target, source)


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


# ---- candidates -----------------------------------------------------------------------------------------------------


def near_candidates(
    estimate: Estimate, target: Rotary | None, source: str, size: int, axes: Any, least: float = 1.0
) -> Iterator[Candidate]:
    """Yield the candidates that have at least this share of their frequencies near the estimates."""
    for candidate in mistakes(target, estimate, source) if target is not None else ():
        if estimate.share_near(candidate.rotary.frequencies, TIGHT) >= least:
            yield candidate
    for rotary in fits(estimate, size, axes):
        if estimate.share_near(rotary.frequencies, TIGHT) >= least:
            yield Candidate(rotary)


def _candidates(
    sample: Values, target: Rotary | None, source: str, size: int, allow_narrow: bool = True
) -> Iterator[tuple[Candidate, bool]]:
    """Yield candidates near the estimated frequencies, and whether the arithmetic of each must round to 16 bits."""
    axes = None if target is None else target.axes
    for narrow, values in ((False, sample), (True, sample.loose())):
        if target is not None:
            yield Candidate(target, ()), narrow
        for candidate in near_candidates(values.estimate, target, source, size, axes):
            yield candidate, narrow
        if not allow_narrow:
            return


def _explanation(
    sample: Values, candidates: Any, target: Rotary | None, source: str
) -> Explanation | None:
    """Return the first candidate that explains the values.

    A fitted candidate that explains the values only with rounded angles may have parameters with too few digits; the next
    candidates may have more.
    """
    best: Explanation | None = None
    for candidate, narrow in candidates:
        if narrow and best is not None:
            return best
        rotary = candidate.rotary
        if sample.still.any():
            rotary = changed(rotary, frequencies=np.where(sample.still, 0.0, rotary.frequencies), scale=1.0)
        for sized in sample.sized(rotary):
            arithmetic = explained(sized, sample.positions, sample.values, sample.dtype, narrow, ~sample.zero)
            if arithmetic is not None:
                more = candidate.faults if candidate.faults is not None else differences(candidate.rotary, target, source)
                found = Explanation(sized, arithmetic, (*more, *sample.faults), sample)
                if narrow or not arithmetic.angles or candidate.faults is not None:
                    return found
                best = best or found
                break
    return best


def _ended(
    reading: Reading, sample: Values, target: Rotary | None, source: str, size: int
) -> tuple[Explanation, tuple[str, ...]] | None:
    """Return the explanation of the first rows and the fault of the other rows, or None."""
    farthest = np.abs(sample.positions).max(axis=0) if sample.positions.ndim > 1 else np.abs(sample.positions)
    reach = min(float(farthest.max()) / 2, sample.reach)
    while reach >= 8:
        first = sample.rows(farthest <= reach)
        found = _explanation(first, _candidates(first, target, source, size, allow_narrow=False), target, source)
        if found is not None:
            return found, end_of(reading, found.rotary, found.arithmetic, first, farthest, reach)
        reach /= 2
    return None


# ---- results --------------------------------------------------------------------------------------------------------


def _result(
    reading: Reading, found: Explanation, end: tuple[str, ...], target: Rotary | None, source: str
) -> Found:
    assert reading.read is not None and reading.positions is not None and reading.rows is not None
    rotary, sample = found.rotary, found.sample
    layout_faults, layout_remarks, layout = of_layout(reading.layout, reading.repeated, target, source)
    rotary = rotary.replace(layout=layout)
    distance = float(np.nan_to_num(
        difference(reading.read(reading.rows), exact(rotary, reading.positions[..., reading.rows])), nan=math.inf).max())
    errors = errors_of(rotary, found.arithmetic)
    exactly = not end and bool(
        (sample.values == correctly_rounded(rotary, sample.positions, sample.dtype)).all())
    narrower = narrower_than_needed(rotary, sample.positions, found.arithmetic.table, reading.dtype)
    faults, remarks = of_arithmetic(found.arithmetic, narrower, errors, exactly)
    scale = of_scale(rotary, target, source)
    end = end or _other_rows(reading, found)
    if rotary.axes is not None and (sample.positions == sample.positions[0]).all():
        remarks = (*remarks, "the positions are equal on all axes and do not show the axes of the pairs")
    unknown = sample.undetermined(rotary.frequencies)
    if unknown:
        remarks = (*remarks, f"the positions do not determine the frequencies of {pairs(unknown)}")
    return Found(rotary, distance, (*layout_faults, *found.faults, *scale, *faults, *end), (*remarks, *layout_remarks), errors)


def _other_rows(reading: Reading, found: Explanation) -> tuple[str, ...]:
    """Compare all rows of a table with the rotation found in a sample of them; return the fault if some rows differ."""
    assert reading.read is not None and reading.positions is not None and reading.rows is not None
    total = reading.positions.shape[-1]
    if len(reading.rows) == total or found.arithmetic.is_narrow:
        return ()
    float32 = found.arithmetic._replace(angles="float32")       # perhaps only other rows show float32 angles
    count, first = 0, None
    step = max(1, CHUNK // max(1, reading.pairs))
    for begin in range(0, total, step):
        rows = slice(begin, begin + step)
        positions = reading.positions[..., rows]
        values = found.sample.turned(reading.read(rows))
        at = positions + found.sample.shift
        differs = unexplained(found.rotary, at, values, found.arithmetic)
        if differs.any():
            differs &= unexplained(found.rotary, at, values, float32)
        beyond = np.flatnonzero((differs | ~np.isfinite(values))[:, ~found.sample.zero].any(axis=1))
        count += len(beyond)
        if len(beyond) and first is None:
            first = positions[..., beyond[0]].max()
    if count == 1:
        return (f"1 row differs, at position {first:,}",)
    return (f"{count} rows differ, the first at position {first:,}",) if count else ()


def _nearest(sample: Values, target: Rotary | None, source: str, size: int) -> Found:
    """Return a result that names the nearest candidate and the pairs of columns that differ from this candidate."""
    best, share = target, 0.0 if target is None else sample.estimate.share_near(target.frequencies, TIGHT)
    for candidate in near_candidates(sample.estimate, target, source, size, None if target is None else target.axes, 0.5):
        own = sample.estimate.share_near(candidate.rotary.frequencies, TIGHT)
        if own > share:
            best, share = candidate.rotary, own
    text = "no known rotation gives these values"
    if best is None:
        return Found(None, math.inf, (text,))
    near = next(iter(sample.sized(best)))
    error = difference(sample.values, exact(near, sample.positions))
    differs = unexplained(near, sample.positions, sample.values, Arithmetic(sample.dtype, "float32"))
    which = np.flatnonzero(differs.any(axis=0)).tolist()
    text += f"; the nearest one, {near!r}, differs in {pairs(which)} by up to {error.max():.2g}"
    return Found(None, float(error.max()), (text,))
