"""Identify a rotation, and compare it with an expected one.

The result is the cheapest explanation that gives the values up to the errors of an arithmetic.  `_explanations` yields the
candidates in the order of their cost.  If none gives the values, the result names the nearest candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check import arithmetic, mistakes
from posenc.check.arithmetic import NARROW, PRECISION, Arithmetic, axes_of, difference, exact, size_of
from posenc.check.evidence import Evidence, evidence_of
from posenc.check.limits import ALIKE, ERRORS_AT, MOST_COLUMNS, NOT_KNOWN, SIGMAS
from posenc.check.mistakes import ORIENTATIONS, Candidate, changed
from posenc.check.reading import Reading, chunks, pairs

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
    """What is compared: a reading and the expected rotation."""

    reading: Reading
    target: Rotary | None
    source: str             # the text that precedes an expected value
    size: int               # number of columns
    computes_in: str        # tables may be rounded to this dtype


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None = None, computes_in: str = ""
) -> Result:
    """Compare a reading with the expected rotation in each possible width; return the result with the fewest faults."""
    with np.errstate(all="ignore"):             # the host program may have set NumPy to raise floating-point errors
        positions, values = reading.positions[..., reading.rows], reading.read(reading.rows)
        faults, finite = reading.faults, np.isfinite(values).all(axis=1)
        if not values.size:
            is_unrotated = not faults and expected is not None and not expected.rotary_dim
            return Result(*((expected, 0.0) if is_unrotated else (None, math.inf)), faults, ("there are no values",))
        if not finite.any():
            return Result(None, math.inf, (*faults, "no value is finite"))
        if not finite.all():
            faults += (f"some values are not finite, the first at position {positions[..., ~finite].min():,}",)
        positions, values = positions[..., finite], values[finite]
        if not np.median(np.abs(values), axis=0).any():
            return Result(None, math.inf, (*faults, f"{'most' if values.any() else 'all'} values are 0"))
        least = 2 * values.shape[1]
        size = head_dim or reading.head_dim or least
        if size < least:
            raise ValueError(f"head_dim is {size}, expected at least {least}, the number of columns that are rotated")
        results = []
        for target, of_width in _targets(expected, values.shape[1], source):
            question = Question(reading, target, source, size, computes_in)
            result = _directly(question, positions, values) or _answer(question, positions, values)
            results.append(result._replace(
                faults=(*faults, *of_width, *result.faults), remarks=(*result.remarks, *reading.remarks)))
        return min(results, key=lambda result: (result.rotary is None, len(result.faults)))


def _targets(expected: Rotary | None, count: int, source: str) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `count` pairs, and the fault of this width.

    The first one has the frequencies of this width, the second one the first pairs of the expected rotation.
    """
    if expected is None or expected.rotary_dim == 2 * count:
        yield expected, ()
        return
    changes: dict[str, Any] = {"rotary_dim": 2 * count, "head_dim": max(expected.head_dim, 2 * count), "axes": None}
    widths = (changed(expected, **changes, **more) for more in ({}, {"scaling": None}, {"frequencies": None}))
    if (rotary := next(filter(None, widths), None)) is not None:
        yield rotary, (f"{2 * count} columns are rotated, {source} {expected.rotary_dim}",)
    if count < (pair_count := expected.rotary_dim // 2):
        changes["axes"] = expected.axes and expected.axes[:count]
        rotary = expected.replace(**changes, frequencies=expected.frequencies[:count], scale=size_of(expected))
        yield rotary, (mistakes.not_rotated(range(count, pair_count)),)


def _directly(question: Question, positions: NDArray[Any], values: NDArray[np.complex128]) -> Result | None:
    """Compare values with the expected rotation only, if the positions differ on several axes, or are all equal."""
    target = question.target
    if positions.ndim == 1 and np.ptp(positions):
        return None
    remark = "a single position does not determine the rotation" if positions.ndim == 1 else "the positions have several axes"
    if target is None or axes_of(target) != (1 if positions.ndim == 1 else len(positions)):
        return Result(None, math.inf, (), (remark,))
    distance = float(difference(values, exact(target, positions)).max())
    if arithmetic.explained(target, positions, values, question.reading.dtype) is not None:
        return Result(target, distance, (), (remark,))
    return Result(None, distance, (f"the values differ from the expected ones by {distance:.2g}",), (remark,))


# ---- the rule -------------------------------------------------------------------------------------------------------


def _explanations(
    question: Question, evidence: Evidence, first_rows: bool = False
) -> Iterator[tuple[Evidence, Candidate, bool]]:
    """Yield evidence, a candidate, and whether its arithmetic must round to 16 bits, in the order of their cost.

    It costs least to believe the positions as given; then an offset of the positions, or an arithmetic in 16 bits; most, that
    the frequencies follow no formula.
    """
    target = question.target
    views = [evidence, evidence.shifted()] if evidence.offset else [evidence]
    for narrow in (False,) if first_rows else (False, True):
        for view in views:
            estimate = view.estimate.loose() if narrow else view.estimate
            proposed = mistakes.candidates(estimate, target, question.size)
            for candidate in proposed if target is None else [Candidate(mistakes.NOTHING, target, ()), *proposed]:
                yield view, candidate, narrow
    if not first_rows:
        yield evidence, mistakes.explicit(evidence.estimate, question.size), False


def _first(question: Question, evidence: Evidence, first_rows: bool = False) -> Explanation | None:
    """Return the first candidate that explains the values.

    A fitted candidate that explains the values only with rounded angles may have parameters with too few digits; the next
    candidates may have more.
    """
    with_rounded_angles: Explanation | None = None
    for view, candidate, narrow in _explanations(question, evidence, first_rows):
        if with_rounded_angles is not None and (narrow or candidate.cost == mistakes.EVERY_FREQUENCY):
            return with_rounded_angles
        for rotary in view.sized(candidate.rotary):
            how = arithmetic.explained(rotary, view.positions, view.values, view.dtype, narrow, ~view.zero)
            if how is not None:
                faults = candidate.faults
                if faults is None and question.target is not None:
                    faults = mistakes.differences(candidate.rotary, question.target, question.source)
                explanation = Explanation(rotary, how, (*(faults or ()), *view.faults), view)
                if not how.angles or with_rounded_angles is None and (narrow or candidate.faults is not None):
                    return explanation
                with_rounded_angles = with_rounded_angles or explanation
                break
    return with_rounded_angles


def _answer(question: Question, positions: NDArray[Any], values: NDArray[np.complex128]) -> Result:
    """Return the result for values at positions of one axis."""
    target = question.target
    axes = None if target is None else target.axes
    one_axis = question if target is None else question._replace(target=target.replace(axes=None))
    # the last orientation multiplies by -1, which is right if the expected scale is negative
    orientations = ORIENTATIONS if one_axis.target is None or size_of(one_axis.target) > 0 else ORIENTATIONS[:3]
    evidence = evidence_of(positions, values, question.reading.dtype, one_axis.target, orientations)
    assert evidence is not None         # the positions are not all equal
    explanation, is_whole = _first(one_axis, evidence), True
    reach = min(float(np.abs(positions).max()) / 2, evidence.reach)
    while explanation is None and reach >= 8:          # perhaps only the first rows follow a rotation
        is_whole, within = False, np.abs(positions) <= reach
        nearby = evidence._replace(positions=positions[within], values=evidence.values[within])
        explanation = _first(one_axis, nearby, first_rows=True)
        reach /= 2
    if explanation is None:
        return _nearest(one_axis, evidence)
    result = _described(one_axis, explanation, *_rest(question.reading, explanation, is_whole))
    if axes is None or result.rotary is None:
        return result
    rotary = result.rotary.replace(axes=axes)
    mixed = np.arange(16) * np.arange(1, 1 + max(axes) + 1)[:, None] % 61
    call = question.reading.call
    is_right = call is None or difference(call(mixed), exact(rotary, mixed)).max() <= ALIKE * abs(size_of(rotary))
    faults = () if is_right or result.faults else ("the pairs have the positions of other axes than expected",)
    return result._replace(rotary=rotary, faults=(*result.faults, *faults))


def _described(question: Question, explanation: Explanation, end: str, last_position: float) -> Result:
    """Return the result for an explanation, with all its faults and remarks; `end` is the fault of rows that differ."""
    reading, target, evidence, how = question.reading, question.target, explanation.evidence, explanation.arithmetic
    layout, of_layout, remarks = _layout(reading, target, question.source)
    rotary = explanation.rotary.replace(layout=layout)
    distance = difference(reading.read(reading.rows), exact(rotary, reading.positions[reading.rows]))
    if not reading.call:
        last_position = min(last_position, float(np.abs(reading.positions).max()))
    errors = _errors(explanation, target, last_position)
    reference = exact(rotary, evidence.positions)
    of_arithmetic = _of_arithmetic(how, reference, reading.dtype, question.computes_in)
    if how.angles == "float32" and not of_arithmetic and not explanation.faults:
        position, error = max(errors.items())
        remarks = (f"float32 angles: the error is {error:.1g} at position {position:,}", *remarks)
    elif not of_arithmetic:
        exactly = not end and bool((evidence.values == arithmetic.both_rounded(reference, evidence.dtype)).all())
        rounding = "every value correctly rounded" if exactly else "rounding"
        remarks = (f"{how.angles} angles" if how.angles else rounding, *remarks)
    unknown = np.flatnonzero(SIGMAS * evidence.estimate.error > NOT_KNOWN * np.abs(rotary.frequencies))
    unknown = unknown[rotary.frequencies[unknown] != 0]
    if len(unknown):
        remarks = (*remarks, f"the positions do not determine the frequencies of {pairs(unknown)}")
    faults = (*of_layout, *explanation.faults, *mistakes.of_scale(rotary, target, question.source), *of_arithmetic, end)
    largest = float(np.nan_to_num(distance, nan=math.inf).max())
    return Result(rotary, largest, tuple(filter(None, faults)), remarks, errors)


def _layout(reading: Reading, expected: Rotary | None, source: str) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return the layout of a rotation, its faults, and its remarks."""
    layout = reading.layout or reading.repeated
    expected_layout = (layout or "halves") if expected is None else expected.layout
    if layout in (None, expected_layout):
        return expected_layout, (), ()
    if reading.layout:
        return layout, (f"layout is {layout}, {source} {expected_layout}",), ()
    if layout == "halves":
        remark = "the tables have their columns twice, as halves, and do not show the layout of the rotation"
        return expected_layout, (), (remark,)
    twice = "the tables have each column twice in succession, as for layout interleaved"
    return expected_layout, (f"{twice}, {source} {expected_layout}",), ()


def _of_arithmetic(how: Arithmetic, reference: NDArray[np.complex128], dtype: str, computes_in: str) -> tuple[str, ...]:
    """Return the faults of an arithmetic; the right values may need no more bits than the table has."""
    table = how.table if PRECISION[how.table] < PRECISION[dtype] and how.table != computes_in else ""
    needed = arithmetic.both_rounded(reference, dtype)
    if table and PRECISION[arithmetic.narrowest(np.stack([needed.real, needed.imag]), dtype)] <= PRECISION[table]:
        table = ""
    above = f" above {2 ** PRECISION.get(how.positions, 0):,}"
    roundings = (("inv_freq was", how.frequencies, ""), ("positions were", how.positions, above),
                 ("angles were", how.angles, ""), ("tables were", table, ""))
    return tuple(f"{what} rounded to {name}{where}" for what, name, where in roundings if name in NARROW)


def _errors(explanation: Explanation, target: Rotary | None, last_position: float) -> dict[int, float]:
    """Return the largest differences from the expected rotation near each of ERRORS_AT, up to the last position.

    If no rotation is expected, return the differences from the rotation that was found.
    """
    how, reference = explanation.arithmetic, target or explanation.rotary
    if how.angles == "float32" and not how.frequencies:
        how = how._replace(frequencies="float32")
    errors = {}
    end = [] if last_position > ERRORS_AT[-1] else [int(last_position)]
    for position in [*(p for p in ERRORS_AT if p < last_position), *end]:
        at = arithmetic.positions_near(position)
        values = explanation.evidence.turned(arithmetic.computed(explanation.rotary, at + explanation.evidence.shift, how))
        errors[position] = float(difference(values, exact(reference, at)).max(initial=0))
    return errors


def _rest(reading: Reading, explanation: Explanation, is_whole: bool) -> tuple[str, float]:
    """Compare all rows with the rotation found in the sample, or in its first rows if `is_whole` is False.

    Return the fault of the rows that differ, and the last position before them.
    """
    total, evidence = len(reading.positions), explanation.evidence
    if is_whole and (len(reading.rows) == total or explanation.arithmetic.is_narrow):
        return "", math.inf
    float32 = explanation.arithmetic._replace(angles="float32")        # perhaps only other rows show float32 angles

    def differs(positions: NDArray[Any], values: NDArray[np.complex128]) -> NDArray[np.bool_]:
        at, values = positions + evidence.shift, evidence.turned(values)
        is_wrong = arithmetic.unexplained(explanation.rotary, at, values, explanation.arithmetic)
        if is_wrong.any() and is_whole:
            is_wrong &= arithmetic.unexplained(explanation.rotary, at, values, float32)
        return np.asarray((is_wrong | ~np.isfinite(values))[:, ~evidence.zero].any(axis=1))

    parts = chunks(total, len(explanation.rotary.frequencies))
    differing = np.flatnonzero(np.concatenate([differs(reading.positions[rows], reading.read(rows)) for rows in parts]))
    if not len(differing):
        return "" if is_whole else "the values at some positions differ", math.inf
    row = int(differing[0])
    last_right, first_wrong = (int(abs(reading.positions[k])) for k in (max(row - 1, 0), row))
    if len(differing) < total - row or row == 0 or total - row == 1:
        which = "1 row differs, at" if len(differing) == 1 else f"{len(differing)} rows differ, the first at"
        return f"{which} position {first_wrong:,}", last_right
    call, rows_there = reading.call, reading.read([row, row - 1, 0])
    while call is not None and first_wrong - last_right > 1:
        middle = np.array([(first_wrong + last_right) // 2])
        if differs(middle, call(middle))[0]:
            first_wrong = int(middle[0])
        else:
            last_right = int(middle[0])
    if call is not None:
        rows_there = np.concatenate([call(np.array([position])) for position in (first_wrong, last_right, 0)])
    if np.array_equal(rows_there[0], rows_there[2]):
        return f"the table ends at {first_wrong:,} and repeats", last_right
    if np.array_equal(rows_there[0], rows_there[1]):
        return f"the table ends at {first_wrong:,} and its last row is repeated", last_right
    return f"the values differ from position {first_wrong:,} on", last_right


def _nearest(question: Question, evidence: Evidence) -> Result:
    """Return a result that names the nearest candidate and the pairs of columns that differ from this candidate."""
    target = question.target
    proposed = [candidate.rotary for candidate in mistakes.candidates(evidence.estimate, target, question.size, MOST_COLUMNS)]
    proposed += [] if target is None else [target]
    if not proposed:
        return Result(None, math.inf, (NO_ROTATION,))
    rotary = next(evidence.sized(max(proposed, key=lambda rotary: evidence.estimate.share_near(rotary.frequencies))))
    error = difference(evidence.values, exact(rotary, evidence.positions))
    differs = arithmetic.unexplained(rotary, evidence.positions, evidence.values, Arithmetic(evidence.dtype, "float32"))
    which = pairs(np.flatnonzero(differs.any(axis=0)))
    return Result(None, float(error.max()), (
        f"{NO_ROTATION}; the nearest one, {rotary!r}, differs in {which} by up to {error.max():.2g}",))
