"""Identify a rotation, and compare it with an expected one.

There is one rule: of all explanations, the cheapest one that gives the values, up to the errors of their arithmetic, is the
result.  Explanations are tried in the order of their cost: see `_explanations`.  If none gives the values, the result names the
nearest candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check import mistakes
from posenc.check.arithmetic import (
    NARROW,
    PRECISION,
    Arithmetic,
    axes_of,
    both_rounded,
    difference,
    errors_of,
    exact,
    explained,
    narrowest,
    unexplained,
)
from posenc.check.evidence import Evidence, evidence_of
from posenc.check.limits import CHUNK, MOST_COLUMNS, NOT_KNOWN, SIGMAS
from posenc.check.mistakes import Candidate, changed, pairs
from posenc.check.reading import Reading

NO_ROTATION = "no known rotation gives these values"


class Result(NamedTuple):
    rotary: Rotary | None
    difference: float
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None = None, computes_in: str = ""
) -> Result:
    """Return the result for a reading: that with the fewest faults for all widths that the expected rotation may have."""
    with np.errstate(all="ignore"):             # the host program may have set NumPy to raise floating-point errors
        positions, values = reading.positions[..., reading.rows], reading.read(reading.rows)
        faults, finite = reading.faults, np.isfinite(values).all(axis=1)
        if not values.size:
            is_unrotated = not faults and expected is not None and not expected.rotary_dim
            rotary, distance = (expected, 0.0) if is_unrotated else (None, math.inf)
            return Result(rotary, distance, faults, ("there are no values",))
        if not finite.any():
            faults += ("no value is finite",)
        elif not finite.all():
            faults += (f"some values are not finite, the first at position {positions[..., ~finite].min():,}",)
        positions, values = positions[..., finite], values[finite]
        if finite.any() and not np.median(np.abs(values), axis=0).any():
            faults += (f"{'most' if values.any() else 'all'} values are 0",)
        if len(faults) > len(reading.faults) and not (finite.any() and np.median(np.abs(values), axis=0).any()):
            return Result(None, math.inf, faults)
        size = _checked_size(head_dim or reading.head_dim, values.shape[1])
        results = []
        for target, of_width in mistakes.targets(expected, values.shape[1], source):
            of_axes: tuple[str, ...] = ()
            narrowed, at = reading, positions
            if positions.ndim > 1:
                axes = axes_of(target)
                if axes != len(positions):                  # `targets` removed the axes
                    chosen: Any = 0 if axes == 1 else slice(axes)
                    narrowed, at = reading._replace(positions=reading.positions[chosen], call=None), positions[chosen]
                elif target is not None:
                    target, of_axes = mistakes.with_axes(target, positions, values, source)
            result = _of_values(narrowed, at, values, target, source, size, computes_in)
            results.append(result._replace(
                faults=(*faults, *of_width, *of_axes, *result.faults), remarks=(*result.remarks, *reading.remarks)))
        return min(results, key=lambda result: (result.rotary is None, len(result.faults)))


def _checked_size(head_dim: int | None, count: int) -> int:
    if head_dim is not None and head_dim < 2 * count:
        raise ValueError(f"head_dim is {head_dim}, expected at least {2 * count}, the number of columns that are rotated")
    return head_dim or 2 * count


# ---- the rule -------------------------------------------------------------------------------------------------------


class Explanation(NamedTuple):
    """A rotation that gives the values of a sample."""

    rotary: Rotary
    arithmetic: Arithmetic
    faults: tuple[str, ...]
    evidence: Evidence


def _explanations(
    evidence: Evidence, target: Rotary | None, source: str, size: int, first_rows: bool = False
) -> Iterator[tuple[Evidence, Candidate, bool]]:
    """Yield evidence, a candidate, and whether its arithmetic must round to 16 bits, in the order of their cost.

    It costs least to believe the positions as given; then an arithmetic in 16 bits, or an offset of the positions; most, that
    the frequencies follow no formula.
    """
    views = [(evidence, False)] + ([] if evidence.orientation.offset or first_rows else [(evidence, True)])
    if evidence.orientation.offset:
        shifted = evidence.shifted()
        views += [(shifted, False)] + ([] if first_rows else [(shifted, True), (evidence, True)])
    for view, narrow in views:
        estimate = view.estimate.loose() if narrow else view.estimate
        proposed = mistakes.candidates(estimate, target, source, size)
        for candidate in proposed if target is None else [Candidate(mistakes.NOTHING, target, ()), *proposed]:
            yield view, candidate, narrow
    if not first_rows:
        last = mistakes.explicit(evidence.estimate, size, None if target is None else target.axes)
        yield evidence, last, False


def _first(explanations: Any, target: Rotary | None, source: str) -> Explanation | None:
    """Return the first candidate that explains the values.

    A fitted candidate that explains the values only with rounded angles may have parameters with too few digits; the next
    candidates may have more.
    """
    best: Explanation | None = None
    for evidence, candidate, narrow in explanations:
        if best is not None and (narrow or candidate.cost == mistakes.EVERY_FREQUENCY):
            return best
        rotary: Rotary | None = candidate.rotary
        if evidence.unrotated.any():
            frequencies = np.where(evidence.unrotated, 0.0, candidate.rotary.frequencies)
            rotary = changed(candidate.rotary, frequencies=frequencies, scale=1.0)
        for sized in () if rotary is None else evidence.sized(rotary):
            arithmetic = explained(sized, evidence.positions, evidence.values, evidence.dtype, narrow, ~evidence.zero)
            if arithmetic is not None:
                named = candidate.faults
                if named is None:
                    named = mistakes.differences(candidate.rotary, target, source)
                explanation = Explanation(sized, arithmetic, (*named, *evidence.faults), evidence)
                if narrow or not arithmetic.angles or candidate.faults is not None:
                    return explanation
                best = best or explanation
                break
    return best


def _of_values(
    reading: Reading, positions: NDArray[Any], values: NDArray[np.complex128], target: Rotary | None, source: str, size: int,
    computes_in: str,
) -> Result:
    evidence = evidence_of(positions, values, reading.dtype, target)
    if evidence is None:
        return _at_one_position(positions, values, reading.dtype, target)
    end: tuple[str, ...] = ()
    best = _first(_explanations(evidence, target, source, size), target, source)
    if best is None:                    # perhaps only the first rows follow a rotation
        farthest = np.abs(positions).max(axis=0) if positions.ndim > 1 else np.abs(positions)
        reach = min(float(farthest.max()) / 2, evidence.reach)
        while best is None and reach >= 8:
            within = farthest <= reach
            nearby = evidence._replace(positions=positions[..., within], values=evidence.values[within])
            first = _explanations(nearby, target, source, size, first_rows=True)
            if (best := _first(first, target, source)) is not None:
                end = _end_of(reading, best, farthest, reach)
            reach /= 2
    if best is None:
        return _nearest(evidence, target, source, size)
    return _described(reading, best, end, target, source, computes_in)


def _at_one_position(
    positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, target: Rotary | None
) -> Result:
    remark = "a single position does not determine the rotation"
    if target is None:
        return Result(None, math.inf, (), (remark,))
    distance = float(difference(values, exact(target, positions)).max())
    if explained(target, positions, values, dtype) is None:
        return Result(None, distance, (f"the values differ from the expected ones by {distance:.2g}",), (remark,))
    return Result(target, distance, (), (remark,))


def _described(
    reading: Reading, best: Explanation, end: tuple[str, ...], target: Rotary | None, source: str, computes_in: str
) -> Result:
    """Return the result for an explanation, with all its faults and remarks."""
    evidence, arithmetic = best.evidence, best.arithmetic
    of_layout, remarks, layout = mistakes.of_layout(reading.layout, reading.repeated, target, source)
    rotary = best.rotary.replace(layout=layout)
    given = reading.read(reading.rows)
    distance = np.nan_to_num(difference(given, exact(rotary, reading.positions[..., reading.rows])), nan=math.inf)
    last = math.inf if reading.call else float(np.abs(reading.positions).max())
    errors = errors_of(rotary, arithmetic, last=last)
    right = exact(rotary, evidence.positions)
    narrower = arithmetic.table in NARROW and PRECISION[arithmetic.table] < PRECISION[reading.dtype]
    if narrower and arithmetic.table == computes_in:
        narrower = False
    elif narrower:
        needed = both_rounded(right, reading.dtype)
        narrower = PRECISION[narrowest(np.stack([needed.real, needed.imag]), reading.dtype)] > PRECISION[arithmetic.table]
    of_arithmetic = mistakes.of_arithmetic(arithmetic, narrower)
    end = end or _other_rows(reading, best)
    if arithmetic.angles == "float32" and not of_arithmetic:
        position, error = max(errors.items())
        remarks = (f"float32 angles: the error is {error:.1g} at position {position:,}", *remarks)
    elif not of_arithmetic:
        exactly = not end and bool((evidence.values == both_rounded(right, evidence.dtype)).all())
        rounding = "every value correctly rounded" if exactly else "rounding"
        remarks = ("float64 angles" if arithmetic.angles else rounding, *remarks)
    if rotary.axes is not None and (evidence.positions == evidence.positions[0]).all():
        remarks = (*remarks, "the positions are equal on all axes and do not show the axes of the pairs")
    unknown = SIGMAS * evidence.estimate.error > NOT_KNOWN * np.abs(rotary.frequencies)
    unknown = np.flatnonzero(unknown & (rotary.frequencies != 0) & ~evidence.unrotated)
    if len(unknown):
        remarks = (*remarks, f"the positions do not determine the frequencies of {pairs(unknown)}")
    of_scale = mistakes.of_scale(rotary, target, source)
    return Result(rotary, float(distance.max()), (*of_layout, *best.faults, *of_scale, *of_arithmetic, *end), remarks, errors)


def _end_of(reading: Reading, best: Explanation, farthest: NDArray[np.float64], reach: float) -> tuple[str, ...]:
    """Return the fault of the values at positions above `reach`; up to `reach`, the values are those of the rotation."""
    def values_at(position: int) -> NDArray[np.complex128] | None:
        """Return the values at a position, or None if the table does not have this position."""
        if reading.call is not None:
            return best.evidence.orientation.undone(reading.call(np.full((*reading.positions.shape[:-1], 1), position)))
        at = reading.positions if reading.positions.ndim == 1 else reading.positions[0]
        rows = np.flatnonzero(at == position)[:1]
        return best.evidence.orientation.undone(reading.read(rows)) if len(rows) else None

    def differs(position: int) -> bool:
        values = values_at(position)
        at: Any = np.full((*best.evidence.positions.shape[:-1], 1), position) + best.evidence.shift
        return values is not None and bool(unexplained(best.rotary, at, values, best.arithmetic).any())

    last_right = int(reach)
    first_wrong = min((int(p) for p in farthest if p > reach and differs(int(p))), default=None)
    if first_wrong is None:
        return ("the values at some positions differ",)
    while first_wrong - last_right > 1:
        middle = (last_right + first_wrong) // 2
        last_right, first_wrong = (last_right, middle) if differs(middle) else (middle, first_wrong)
    after_end, before_end, first = values_at(first_wrong), values_at(first_wrong - 1), values_at(0)
    if after_end is not None and first is not None and np.array_equal(after_end, first):
        return (f"the table ends at {first_wrong:,} and repeats",)
    if after_end is not None and before_end is not None and np.array_equal(after_end, before_end):
        return (f"the table ends at {first_wrong:,} and its last row is repeated",)
    return (f"the values differ from position {first_wrong:,} on",)


def _other_rows(reading: Reading, best: Explanation) -> tuple[str, ...]:
    """Compare all rows of a table with the rotation found in a sample of them; return the fault if some rows differ."""
    total, evidence = reading.positions.shape[-1], best.evidence
    if len(reading.rows) == total or best.arithmetic.is_narrow:
        return ()
    float32 = best.arithmetic._replace(angles="float32")        # perhaps only other rows show float32 angles
    differing: list[int] = []
    step = max(1, CHUNK // len(best.rotary.frequencies))
    for begin in range(0, total, step):
        rows = slice(begin, begin + step)
        at, values = reading.positions[..., rows] + evidence.shift, evidence.orientation.undone(reading.read(rows))
        differs = unexplained(best.rotary, at, values, best.arithmetic)
        if differs.any():
            differs &= unexplained(best.rotary, at, values, float32)
        wrong = (differs | ~np.isfinite(values))[:, ~evidence.zero].any(axis=1)
        differing += (begin + np.flatnonzero(wrong)).tolist()
    if not differing:
        return ()
    first = f"{reading.positions[..., differing[0]].max():,}"
    return (f"1 row differs, at position {first}" if len(differing) == 1 else
            f"{len(differing)} rows differ, the first at position {first}",)


def _nearest(evidence: Evidence, target: Rotary | None, source: str, size: int) -> Result:
    """Return a result that names the nearest candidate and the pairs of columns that differ from this candidate."""
    proposed = [candidate.rotary for candidate in mistakes.candidates(evidence.estimate, target, source, size, MOST_COLUMNS)]
    if target is not None:
        proposed = [target, *proposed]
    if not proposed:
        return Result(None, math.inf, (NO_ROTATION,))
    best = max(proposed, key=lambda rotary: evidence.estimate.share_near(rotary.frequencies))
    sized = next(evidence.sized(best))
    error = difference(evidence.values, exact(sized, evidence.positions))
    differs = unexplained(sized, evidence.positions, evidence.values, Arithmetic(evidence.dtype, "float32"))
    which = pairs(np.flatnonzero(differs.any(axis=0)))
    return Result(None, float(error.max()), (
        f"{NO_ROTATION}; the nearest one, {sized!r}, differs in {which} by up to {error.max():.2g}",))
