"""Comparison: the values of a rotation are compared with those of candidates; differences become sentences."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc._arguments.arrays import DTYPES
from posenc.check import match, mistakes
from posenc.check.match import Arithmetic, Array, Mask, Phases, Waves, difference, exact, short, size_of
from posenc.check.mistakes import ORIENTATIONS, Candidate, replaced_or_none
from posenc.check.reading import FIRST, SPREAD, Reading, chunks, number, pairs, spread

NO_ROTATION = "no known rotation gives these values"
FEW = 0.1                   # share of the rows that may differ from the others
FEWEST = 8                  # rows from the first one on that a rotation must give, if it does not give all
MOST_PHASES = 0.7           # share of the pairs whose phases an offset must explain; the fastest may be unknown
OFFSETS: tuple[int, ...] = 0, 1, -1, *range(2, 33), *range(-2, -33, -1)     # of positions, the usual ones first


class RotaryMatch(NamedTuple):  # numpydoc ignore=PR01
    """A rotation that reproduces the given one, and its differences from the expected rotation.

    Attributes
    ----------
    rotary : Rotary or None
        The rotation with the frequencies, scale and layout of the given one, or None if no rotation gives its
        values.  A `Rotary` cannot express some faults, such as exchanged cosines and sines, positions from 1,
        or rounded positions.
    difference : float
        Largest absolute difference from the cosines and sines, or frequencies, of ``rotary``.  If ``rotary``
        is None, this is the difference from the nearest rotation.
    reason : str
        The faults, then remarks such as "float32 angles: the estimated error is 0.07 at position 1,000,000".
    faults : tuple of str
        The differences from the expected rotation; empty if the given rotation agrees with the expected one
        within the precision of its arithmetic, or if no rotation is expected.
    errors : mapping of int to float
        Estimates of the largest absolute errors of cosines and sines near the positions 1,000, 100,000 and
        1,000,000: the errors of exact frequencies with the arithmetic that was found, at each of these and at
        the seven positions before it.  For a shorter table,
        the last key is its last position.  Empty if the arithmetic is unknown.

    See Also
    --------
    identify_rotary : Return the matches of a rotation.

    Examples
    --------
    >>> import posenc
    >>> match = posenc.check.identify_rotary(posenc.Rotary(64).tables(100), expect=posenc.Rotary(64, base=500000.0))[0]
    >>> match.rotary, match.faults
    (Rotary(64), ('base is 10000, expected 500000',))
    """

    rotary: Rotary | None
    difference: float
    reason: str
    faults: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.rotary!r}; largest difference {self.difference:.2g}: {self.reason}"


class Trial(NamedTuple):
    """A rotation and an arithmetic that may explain the values, and the sentence as in `Candidate`."""

    rotary: Rotary
    sentence: str | None
    how: Arithmetic


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None = None, computes_in: str = ""
) -> RotaryMatch:
    """Compare a reading with the expected rotation in each width; return the match with the fewest faults.

    Its reason contains only the remarks.
    """
    rows = np.arange(len(reading.positions))
    rows = rows if reading.call else spread(len(rows), FIRST, SPREAD)
    positions, values, faults = reading.positions[rows], reading.read(rows), reading.faults
    finite = np.isfinite(values).all(axis=1)
    if not values.size or not finite.any():
        return RotaryMatch(None, math.inf, "", faults or ("no value is finite",))
    if not finite.all():
        faults += (f"some values are not finite, the first at position {positions[~finite].min():,}",)
    positions, values = positions[finite], values[finite]
    if not np.ptp(positions):
        raise ValueError("rotation has values at a single position, expected values at several positions")
    if not np.median(np.abs(values), axis=0).any():
        return RotaryMatch(None, math.inf, "", (*faults, f"{'most' if values.any() else 'all'} values are 0"))
    least = 2 * values.shape[1]
    size = head_dim or reading.head_dim or least
    if size < least:
        raise ValueError(f"head_dim is {size}, expected at least {least}, the number of columns that are rotated")
    results = []
    for target, of_width in _targets(expected, least, source):
        result = Comparison(reading, positions, values, target, size, source, computes_in).result()
        results.append(result._replace(faults=(*faults, *of_width, *result.faults)))
    result = min(results, key=lambda result: (result.rotary is None, len(result.faults)))
    if expected is not None and expected.axes is not None:
        result = _on_axes(reading, result, expected.axes)
    return result._replace(reason="; ".join(filter(None, (result.reason, *reading.remarks))))


def _on_axes(reading: Reading, result: RotaryMatch, axes: tuple[int, ...]) -> RotaryMatch:
    """Compare the pairs at positions that differ between axes; frequencies alone do not show the axes."""
    rotary = None if result.rotary is None else replaced_or_none(result.rotary, axes=axes)
    if rotary is None or reading.call is None or reading.head_dim is None or result.faults:
        return result if rotary is None else result._replace(rotary=rotary)
    mixed = np.arange(16) * np.arange(1, 1 + max(axes) + 1)[:, None] % 61
    error = difference(reading.call(mixed), exact(rotary, mixed)).max()
    is_right = error <= match.ALIKE * abs(size_of(rotary))
    faults = () if is_right else ("the pairs have the positions of other axes than expected",)
    return result._replace(rotary=rotary, faults=faults)


def _targets(
    expected: Rotary | None, width: int, source: str
) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `width` columns on one axis, and the fault of this width.

    The first one has the frequencies of this width, the second one the first pairs of the expected rotation.
    """
    if expected is None or expected.rotary_dim == width:
        yield None if expected is None else expected.replace(axes=None), ()
        return
    changes: dict[str, Any] = {"axes": None, "rotary_dim": width, "head_dim": max(expected.head_dim, width)}
    widths = (replaced_or_none(expected, **changes, **more) for more in ({}, {"scaling": None}, {"frequencies": None}))
    if (rotary := next(filter(None, widths), None)) is not None:
        yield rotary, (f"{width} columns are rotated, {source} {expected.rotary_dim}",)
    if width < expected.rotary_dim:
        first = mistakes.explicit(expected.replace(**changes), expected.frequencies[: width // 2])
        yield first, (mistakes.not_rotated(range(width // 2, expected.rotary_dim // 2)),)


class Comparison:
    """Values at several positions, with the expected rotation of the same width, if any.

    The orientation is estimated first: with the right one, the frequencies have the expected sign, and the phases are
    0; or they are proportional to the frequencies, because the positions have an offset.
    """

    def __init__(
        self, reading: Reading, positions: Array, values: Waves, target: Rotary | None, size: int, source: str,
        computes_in: str,
    ):
        self.reading, self.target, self.source, self.computes_in = reading, target, source, computes_in
        self.blank = Rotary(size, rotary_dim=2 * values.shape[1])
        self.dtype = match.narrowest(values, reading.dtype)
        smallest = 2.0 ** max(DTYPES[self.dtype].smallest, DTYPES[reading.dtype].smallest)
        guess = None if target is None else target.frequencies      # pairs may turn by more than half a turn
        sign = 1 if guess is None or np.sum(guess) >= 0 else -1
        views = []
        # the last orientation multiplies by -1, which is right if the expected scale is negative
        for sentence, turn in ORIENTATIONS[: 4 if target is None or size_of(target) > 0 else 3]:
            phases = match.phases_of(positions, turn(values), match.PRECISION[self.dtype], smallest, guess)
            views.append((_offset(phases, sign), sentence, turn, phases))
        offset, sentence, self.turn, self.phases = min(
            views, key=lambda view: 2 if view[0] is None else min(1, abs(view[0])))
        self.shift = offset or 0
        self.positions, self.values = positions + self.shift, self.turn(values)
        self.faults = [sentence] if sentence else []
        if self.shift:
            first = float(np.min(positions))
            self.faults.append(f"positions start at {number(first + self.shift)}, expected {number(first)}")
        self.scales = self._scales()

    def _scales(self) -> tuple[float, ...]:
        """Return the possible scales, simple ones first."""
        precision, phases = 2.0 ** -match.PRECISION[self.dtype], self.phases
        scale = float(np.median(phases.amplitude[phases.amplitude > 0]))
        expected = (1.0,) if self.target is None else (abs(size_of(self.target)), 1.0)
        # the values of slow pairs are all rounded in the same direction
        is_fast = np.abs(phases.frequency) * phases.reach > 4 * math.pi
        sizes = np.abs(self.values[:, is_fast if is_fast.any() else slice(None)])
        mean, error = float(sizes.mean()), max(match.SIGMAS / math.sqrt(sizes.size) * precision, 2.0**-50)
        return (*(x for x in expected if abs(x - scale) <= 2 * precision * scale), short(scale, 2 * precision),
                short(mean, error), short(mean, error / 8))

    def _trials(self) -> Iterator[Trial]:
        """Yield what may explain the values: in plain arithmetic, then in 16 bits, then without a formula.

        A fitted number may have too few digits, which looks like rounded angles; so these are first tried exactly.
        """
        plain, fitted = match.plain(self.dtype), []
        for candidate in mistakes.candidates(self.phases, self.target, self.blank):
            fitted += [candidate] if candidate.sentence is None else []
            yield from self._sized(candidate, plain if candidate.sentence is not None else plain[:1])
        for candidate in fitted:
            yield from self._sized(candidate, plain[1:])
        for candidate in mistakes.candidates(self.phases.loose(), self.target, self.blank):
            yield from self._sized(candidate, match.narrow(self.dtype))
        is_turning = np.abs(self.phases.frequency) > self.phases.error + 2.0**-50
        rotary = self.blank.replace(frequencies=np.where(is_turning, self.phases.frequency, 0.0))
        yield from self._sized(Candidate(rotary, None), plain)

    def _sized(self, candidate: Candidate, kinds: Sequence[Arithmetic]) -> Iterator[Trial]:
        """Yield a candidate with its scale, then with each possible scale, in each arithmetic."""
        rotary = candidate.rotary
        for scale in dict.fromkeys((size_of(rotary), *self.scales)):
            sized = rotary if scale == size_of(rotary) else rotary.replace(scale=scale / rotary.attention_scaling)
            yield from (Trial(sized, candidate.sentence, how) for how in kinds)

    def result(self) -> RotaryMatch:
        """Return the first trial that explains all values, else nearly all rows, else the most first rows."""
        most, best = FEWEST - 1, None
        for trial in self._trials():
            curve = match.rotation_curve(trial.rotary, self.positions, trial.how)
            if curve.explains(self.values, trial.how):
                return self._described(trial, True)
            if trial.how.angles == "float32" and not trial.how.is_narrow:
                differs = curve.differs(self.values, trial.how).any(axis=1)
                rows = max(int(np.argmax(differs)), (differs.mean() < FEW) * int(np.sum(~differs)))
                most, best = (rows, trial) if rows > most else (most, best)
        if best is not None:
            return self._described(best, False)
        if self.target is None:
            return RotaryMatch(None, math.inf, "", (NO_ROTATION,))
        error = difference(self.values, exact(self.target, self.positions)).max(axis=0)
        wrong = np.flatnonzero(error > match.ALIKE * abs(size_of(self.target)))
        fault = f"{NO_ROTATION}; those of {pairs(wrong)} differ from the expected ones by up to {error.max():.2g}"
        return RotaryMatch(None, float(error.max()), "", (fault if len(wrong) else NO_ROTATION,))

    def _described(self, trial: Trial, is_whole: bool) -> RotaryMatch:
        """Return the result for an explanation of all values, or of some rows, with all faults and remarks."""
        (rotary, sentence, how), reading, target, source = trial, self.reading, self.target, self.source
        of_keywords = mistakes.differences(rotary, target, source) if target is not None and sentence is None else ()
        end, last_position = self._end(rotary, how, is_whole)
        errors = self._errors(rotary, how, target or rotary, last_position)
        layout, of_layout = mistakes.of_layout(reading, target, source)
        of_arithmetic = mistakes.of_arithmetic(how, exact(rotary, self.positions), reading.dtype, self.computes_in)
        remark = f"{how.angles} angles" if how.angles else "rounding"
        if how.angles == "float32" and not (sentence or of_keywords or self.faults):
            position, error = max(errors.items())
            remark = f"float32 angles: the estimated error is {error:.1g} at position {position:,}"
        faults = filter(None, (*of_layout, sentence, *of_keywords, *self.faults,
                               *mistakes.of_scale(rotary, target, source), *of_arithmetic, end))
        largest = difference(self.turn(self.values), exact(rotary, self.positions - self.shift)).max()
        return RotaryMatch(rotary.replace(layout=layout), float(largest), "" if of_arithmetic else remark,
                           tuple(faults), errors)

    def _errors(self, rotary: Rotary, how: Arithmetic, reference: Rotary, last: int) -> dict[int, float]:
        """Return the largest differences from a reference near each of match.ERRORS_AT, up to a position."""
        errors = {}
        for position in sorted({min(position, last) for position in match.ERRORS_AT}):
            at = match.positions_near(position)
            values = self.turn(match.computed(rotary, at + self.shift, how))
            errors[position] = float(difference(values, exact(reference, at)).max(initial=0))
        return errors

    def _end(self, rotary: Rotary, how: Arithmetic, is_whole: bool) -> tuple[str, int]:
        """Compare all rows with the rotation found in the sample, or in some of its rows unless `is_whole`.

        Return the fault of the rows that differ, and the last position before them.
        """
        reading, at, call = self.reading, self.reading.positions, self.reading.call
        end = match.ERRORS_AT[-1] if call else int(np.abs(at).max())
        if is_whole and (call or how.is_narrow):
            return "", end
        how = how._replace(angles="float32")                        # perhaps only other rows show float32 angles

        def differs(positions: Array, values: Waves) -> Mask:
            curve = match.rotation_curve(rotary, positions + self.shift, how)
            return np.asarray((curve.differs(self.turn(values), how) | ~np.isfinite(values)).any(axis=1))

        parts = [differs(at[rows], reading.read(rows)) for rows in chunks(len(at), len(rotary.frequencies))]
        differing = np.flatnonzero(np.concatenate(parts))
        if not len(differing):
            return "" if is_whole else "the values at some positions differ", end
        row = int(differing[0])
        last, first = int(abs(at[max(row - 1, 0)])), int(abs(at[row]))
        if len(differing) < len(at) - row or row in (0, len(at) - 1):
            which = "1 row differs, at" if len(differing) == 1 else f"{len(differing)} rows differ, the first at"
            return f"{which} position {first:,}", last
        rows = reading.read([row, row - 1, 0])
        if call:
            def is_wrong(position: int) -> bool:
                return bool(differs(np.array([position]), call(np.array([position])))[0])

            first = last + 1 + bisect.bisect_left(range(last + 1, first), True, key=is_wrong)
            last = first - 1
            rows = np.concatenate([call(np.array([position])) for position in (first, last, 0)])
        words = " and repeats" if np.array_equal(rows[0], rows[2]) else ""
        words = words or " and its last row is repeated" if np.array_equal(rows[0], rows[1]) else words
        return f"the table ends at {first:,}{words}" if words else f"the values differ from position {first:,} on", last


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
    for offset in OFFSETS:
        bound = match.SIGMAS * phase_error + 1e-6 + 64 * match.FLOAT32 * np.abs(w * offset)
        if (np.abs(match.wrapped(phase - w * offset)) <= bound).mean() > MOST_PHASES:
            return offset
    return None
