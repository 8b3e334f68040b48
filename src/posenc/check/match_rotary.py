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
    computed,
    difference,
    exact,
    explained,
    narrowest,
    positions_near,
    size_of,
    unexplained,
)
from posenc.check.evidence import Evidence, evidence_of
from posenc.check.limits import CHUNK, ERRORS_AT, MOST_COLUMNS, NOT_KNOWN, SIGMAS
from posenc.check.mistakes import Candidate, changed, pairs
from posenc.check.reading import Reading

NO_ROTATION = "no known rotation gives these values"


class Result(NamedTuple):
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
    evidence: Evidence


class Question(NamedTuple):
    """What is compared: a reading, of which the rows of the sample are given, and the expected rotation."""

    reading: Reading
    positions: NDArray[Any]
    values: NDArray[np.complex128]
    target: Rotary | None
    source: str             # the text that precedes an expected value
    size: int               # number of columns
    computes_in: str        # tables may be rounded to this dtype


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
        given, least = values[finite], 2 * values.shape[1]
        if not finite.any():
            return Result(None, math.inf, (*faults, "no value is finite"))
        if not finite.all():
            faults += (f"some values are not finite, the first at position {positions[..., ~finite].min():,}",)
        if not np.median(np.abs(given), axis=0).any():
            return Result(None, math.inf, (*faults, f"{'most' if given.any() else 'all'} values are 0"))
        positions, size = positions[..., finite], head_dim or reading.head_dim or least
        if size < least:
            raise ValueError(f"head_dim is {size}, expected at least {least}, the number of columns that are rotated")
        results = []
        for target, of_width in _targets(expected, values.shape[1], source):
            narrowed, at = reading, positions
            if positions.ndim > 1 and axes_of(target) != len(positions):            # `_targets` removed the axes
                chosen: Any = 0 if axes_of(target) == 1 else slice(axes_of(target))
                narrowed, at = reading._replace(positions=reading.positions[chosen], call=None), positions[chosen]
            result = _answer(Question(narrowed, at, given, target, source, size, computes_in))
            results.append(result._replace(
                faults=(*faults, *of_width, *result.faults), remarks=(*result.remarks, *reading.remarks)))
        return min(results, key=lambda result: (result.rotary is None, len(result.faults)))


def _targets(expected: Rotary | None, count: int, source: str) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `count` pairs: first with frequencies for this width, then with its first pairs."""
    if expected is None or expected.rotary_dim == 2 * count:
        yield expected, ()
        return
    changes: dict[str, Any] = {"rotary_dim": 2 * count, "head_dim": max(expected.head_dim, 2 * count), "axes": None}
    widths = (changed(expected, **changes, **more) for more in ({}, {"scaling": None}, {"frequencies": None}))
    if (other := next(filter(None, widths), None)) is not None:
        yield other, (f"{2 * count} columns are rotated, {source} {expected.rotary_dim}",)
    wanted = expected.rotary_dim // 2
    if count < wanted:
        changes["axes"] = expected.axes and expected.axes[:count]
        other = changed(expected, **changes, frequencies=expected.frequencies[:count], scale=size_of(expected))
        if other is not None:
            yield other, (mistakes.not_rotated(range(count, wanted)),)


# ---- the rule -------------------------------------------------------------------------------------------------------


def _explanations(
    question: Question, evidence: Evidence, first_rows: bool = False
) -> Iterator[tuple[Evidence, Candidate, bool]]:
    """Yield evidence, a candidate, and whether its arithmetic must round to 16 bits, in the order of their cost.

    It costs least to believe the positions as given; then an arithmetic in 16 bits, or an offset of the positions; most, that
    the frequencies follow no formula.
    """
    target = question.target
    views = [(evidence, False)] + ([] if evidence.offset or first_rows else [(evidence, True)])
    if evidence.offset:
        shifted = evidence.shifted()
        views += [(shifted, False)] + ([] if first_rows else [(shifted, True), (evidence, True)])
    for view, narrow in views:
        estimate = view.estimate.loose() if narrow else view.estimate
        proposed = mistakes.candidates(estimate, target, question.size)
        for candidate in proposed if target is None else [Candidate(mistakes.NOTHING, target, ()), *proposed]:
            yield view, candidate, narrow
    if not first_rows:
        yield evidence, mistakes.explicit(evidence.estimate, question.size, None if target is None else target.axes), False


def _first(question: Question, evidence: Evidence, first_rows: bool = False) -> Explanation | None:
    """Return the first candidate that explains the values.

    A fitted candidate that explains the values only with rounded angles may have parameters with too few digits; the next
    candidates may have more.
    """
    best: Explanation | None = None
    for view, candidate, narrow in _explanations(question, evidence, first_rows):
        if best is not None and (narrow or candidate.cost == mistakes.EVERY_FREQUENCY):
            return best
        for sized in view.sized(candidate.rotary):
            arithmetic = explained(sized, view.positions, view.values, view.dtype, narrow, ~view.zero)
            if arithmetic is not None:
                named = candidate.faults
                if named is None:
                    target = question.target
                    named = () if target is None else mistakes.differences(candidate.rotary, target, question.source)
                explanation = Explanation(sized, arithmetic, (*named, *view.faults), view)
                if not arithmetic.angles or best is None and (narrow or candidate.faults is not None):
                    return explanation
                best = best or explanation
                break
    return best


def _answer(question: Question) -> Result:
    positions, values, target = question.positions, question.values, question.target
    evidence = evidence_of(positions, values, question.reading.dtype, target)
    if evidence is None:
        remark = "a single position does not determine the rotation"
        if target is None:
            return Result(None, math.inf, (), (remark,))
        distance = float(difference(values, exact(target, positions)).max())
        is_right = explained(target, positions, values, question.reading.dtype) is not None
        faults = () if is_right else (f"the values differ from the expected ones by {distance:.2g}",)
        return Result(target if is_right else None, distance, faults, (remark,))
    best, is_whole = _first(question, evidence), True
    if best is None:                    # perhaps only the first rows follow a rotation
        is_whole = False
        farthest = np.abs(positions).max(axis=0) if positions.ndim > 1 else np.abs(positions)
        reach = min(float(farthest.max()) / 2, evidence.reach)
        while best is None and reach >= 8:
            within = farthest <= reach
            nearby = evidence._replace(positions=positions[..., within], values=evidence.values[within])
            best = _first(question, nearby, first_rows=True)
            reach /= 2
    if best is None:
        return _nearest(question, evidence)
    return _described(question, best, *_rest(question.reading, best, is_whole))


def _described(question: Question, best: Explanation, end: str, last: float) -> Result:
    """Return the result for an explanation, with all its faults and remarks; `end` is the fault of rows that differ."""
    reading, target, evidence, arithmetic = question.reading, question.target, best.evidence, best.arithmetic
    of_layout, remarks, layout = _layout(reading, target, question.source)
    rotary = best.rotary.replace(layout=layout)
    distance = np.nan_to_num(difference(
        reading.read(reading.rows), exact(rotary, reading.positions[..., reading.rows])), nan=math.inf)
    errors = _errors(best, target, last if reading.call else min(last, float(np.abs(reading.positions).max())))
    right = exact(rotary, evidence.positions)
    of_arithmetic = _of_arithmetic(arithmetic, right, reading.dtype, question.computes_in)
    if arithmetic.angles == "float32" and not of_arithmetic and not best.faults:
        position, error = max(errors.items())
        remarks = (f"float32 angles: the error is {error:.1g} at position {position:,}", *remarks)
    elif not of_arithmetic:
        exactly = not end and bool((evidence.values == both_rounded(right, evidence.dtype)).all())
        rounding = "every value correctly rounded" if exactly else "rounding"
        remarks = (f"{arithmetic.angles} angles" if arithmetic.angles else rounding, *remarks)
    unknown = np.flatnonzero(SIGMAS * evidence.estimate.error > NOT_KNOWN * np.abs(rotary.frequencies))
    unknown = unknown[rotary.frequencies[unknown] != 0]
    if len(unknown):
        remarks = (*remarks, f"the positions do not determine the frequencies of {pairs(unknown)}")
    faults = (*of_layout, *best.faults, *mistakes.of_scale(rotary, target, question.source), *of_arithmetic, end)
    return Result(rotary, float(distance.max()), tuple(filter(None, faults)), remarks, errors)


def _layout(reading: Reading, expected: Rotary | None, source: str) -> tuple[tuple[str, ...], tuple[str, ...], Any]:
    """Return the faults, the remarks and the layout of a rotation."""
    if expected is None:
        return (), (), reading.layout or reading.repeated or "halves"
    wanted = expected.layout
    if reading.layout not in (None, wanted):
        return (f"layout is {reading.layout}, {source} {wanted}",), (), reading.layout
    if reading.layout is None and reading.repeated not in (None, wanted):
        if reading.repeated == "interleaved":
            text = "the tables have each column twice in succession, as for layout interleaved"
            return (f"{text}, {source} {wanted}",), (), wanted
        return (), ("the tables have their columns twice, as halves, and do not show the layout of the rotation",), wanted
    return (), (), wanted


def _of_arithmetic(arithmetic: Arithmetic, right: NDArray[np.complex128], dtype: str, computes_in: str) -> tuple[str, ...]:
    """Return the faults of an arithmetic; the right values may need no more bits than the table has."""
    table = arithmetic.table if PRECISION[arithmetic.table] < PRECISION[dtype] and arithmetic.table != computes_in else ""
    needed = both_rounded(right, dtype)
    if table and PRECISION[narrowest(np.stack([needed.real, needed.imag]), dtype)] <= PRECISION[table]:
        table = ""
    above = f" above {2 ** PRECISION.get(arithmetic.positions, 0):,}"
    rounded = (("inv_freq was", arithmetic.frequencies, ""), ("positions were", arithmetic.positions, above),
               ("angles were", arithmetic.angles, ""), ("tables were", table, ""))
    return tuple(f"{what} rounded to {name}{where}" for what, name, where in rounded if name in NARROW)


def _errors(best: Explanation, target: Rotary | None, last: float) -> dict[int, float]:
    """Return the largest differences from the expected rotation near each of ERRORS_AT, up to the last position.

    If no rotation is expected, return the differences from the rotation that was found.
    """
    arithmetic, wanted = best.arithmetic, target or best.rotary
    if arithmetic.angles == "float32" and not arithmetic.frequencies:
        arithmetic = arithmetic._replace(frequencies="float32")
    errors = {}
    for position in [*(p for p in ERRORS_AT if p < last), *([] if last > ERRORS_AT[-1] else [int(last)])]:
        at = positions_near(position, axes_of(wanted))
        values = best.evidence.turned(computed(best.rotary, at + best.evidence.shift, arithmetic))
        errors[position] = float(difference(values, exact(wanted, at)).max(initial=0))
    return errors


def _rest(reading: Reading, best: Explanation, is_whole: bool) -> tuple[str, float]:
    """Compare all rows with the rotation found in the sample, or in its first rows if `is_whole` is False.

    Return the fault of the rows that differ, and the last position before them.
    """
    total, evidence = reading.positions.shape[-1], best.evidence
    if is_whole and (len(reading.rows) == total or best.arithmetic.is_narrow):
        return "", math.inf
    float32 = best.arithmetic._replace(angles="float32")        # perhaps only other rows show float32 angles
    differing: list[int] = []
    step = max(1, CHUNK // len(best.rotary.frequencies))
    for begin in range(0, total, step):
        rows = slice(begin, begin + step)
        at, values = reading.positions[..., rows] + evidence.shift, evidence.turned(reading.read(rows))
        differs = unexplained(best.rotary, at, values, best.arithmetic)
        if differs.any() and is_whole:
            differs &= unexplained(best.rotary, at, values, float32)
        differing += (begin + np.flatnonzero((differs | ~np.isfinite(values))[:, ~evidence.zero].any(axis=1))).tolist()
    if not differing:
        return "" if is_whole else "the values at some positions differ", math.inf
    row, farthest = differing[0], np.abs(reading.positions).reshape(-1, total).max(axis=0)
    last, first = int(farthest[max(row - 1, 0)]), int(farthest[row])
    if len(differing) < total - row or row == 0 or total - row == 1:
        which = "1 row differs, at" if len(differing) == 1 else f"{len(differing)} rows differ, the first at"
        return f"{which} position {first:,}", last
    shown: Any = reading.read([row, row - 1, 0])
    while reading.call is not None and first - last > 1:
        middle = np.full((*reading.positions.shape[:-1], 1), (first + last) // 2)
        values = evidence.turned(reading.call(middle))
        is_wrong = bool(unexplained(best.rotary, middle + evidence.shift, values, best.arithmetic).any())
        last, first = (last, int(middle.flat[0])) if is_wrong else (int(middle.flat[0]), first)
    if reading.call is not None:
        shown = np.concatenate([reading.call(np.full((*reading.positions.shape[:-1], 1), p)) for p in (first, last, 0)])
    if np.array_equal(shown[0], shown[2]):
        return f"the table ends at {first:,} and repeats", last
    ends = f"the table ends at {first:,} and its last row is repeated"
    return ends if np.array_equal(shown[0], shown[1]) else f"the values differ from position {first:,} on", last


def _nearest(question: Question, evidence: Evidence) -> Result:
    """Return a result that names the nearest candidate and the pairs of columns that differ from this candidate."""
    target = question.target
    proposed = [candidate.rotary for candidate in mistakes.candidates(evidence.estimate, target, question.size, MOST_COLUMNS)]
    proposed += [] if target is None else [target]
    if not proposed:
        return Result(None, math.inf, (NO_ROTATION,))
    sized = next(evidence.sized(max(proposed, key=lambda rotary: evidence.estimate.share_near(rotary.frequencies))))
    error = difference(evidence.values, exact(sized, evidence.positions))
    differs = unexplained(sized, evidence.positions, evidence.values, Arithmetic(evidence.dtype, "float32"))
    which = pairs(np.flatnonzero(differs.any(axis=0)))
    return Result(None, float(error.max()), (
        f"{NO_ROTATION}; the nearest one, {sized!r}, differs in {which} by up to {error.max():.2g}",))
