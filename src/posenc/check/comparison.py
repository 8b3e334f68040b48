"""Comparison: the values of a rotation are compared with those of candidates; differences become sentences."""

from __future__ import annotations

import bisect
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from posenc import Rotary
from posenc._arguments.arrays import DTYPES
from posenc.check import match, mistakes
from posenc.check.evidence import Phases, phases_of, short, wrapped
from posenc.check.match import FLOAT32, PRECISION, SIGMAS, Arithmetic, Array, Mask, Waves, difference, exact, size_of
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


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None = None, computes_in: str = ""
) -> RotaryMatch:
    """Compare a reading with the expected rotation in each width; return the match with the fewest faults.

    Its reason contains only the remarks.
    """
    axes, expected = (None, None) if expected is None else (expected.axes, expected.replace(axes=None))
    total = len(reading.positions)
    rows = np.arange(total) if reading.call else spread(total, FIRST, SPREAD)
    positions, values = reading.positions[rows], reading.read(rows)
    faults, finite = reading.faults, np.isfinite(values).all(axis=1)
    if not values.size:
        return RotaryMatch(None, math.inf, "there are no values", faults)
    if not finite.any():
        return RotaryMatch(None, math.inf, "", (*faults, "no value is finite"))
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
    for target, of_width in _targets(expected, values.shape[1], source):
        result = Comparison(reading, positions, values, target, size).result(source, computes_in)
        reason = "; ".join(filter(None, (result.reason, *reading.remarks)))
        results.append(result._replace(faults=(*faults, *of_width, *result.faults), reason=reason))
    result = min(results, key=lambda result: (result.rotary is None, len(result.faults)))
    rotary = None if axes is None or result.rotary is None else replaced_or_none(result.rotary, axes=axes)
    if axes is None or rotary is None:
        return result
    mixed = np.arange(16) * np.arange(1, 1 + max(axes) + 1)[:, None] % 61
    call = None if reading.head_dim is None else reading.call       # frequencies do not show the axes
    is_right = call is None or difference(call(mixed), exact(rotary, mixed)).max() <= match.ALIKE * abs(size_of(rotary))
    axes_fault = () if is_right or result.faults else ("the pairs have the positions of other axes than expected",)
    return result._replace(rotary=rotary, faults=(*result.faults, *axes_fault))


def _targets(expected: Rotary | None, count: int, source: str) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `count` pairs, and the fault of this width.

    The first one has the frequencies of this width, the second one the first pairs of the expected rotation.
    """
    if expected is None or expected.rotary_dim == 2 * count:
        yield expected, ()
        return
    changes: dict[str, Any] = {"rotary_dim": 2 * count, "head_dim": max(expected.head_dim, 2 * count)}
    widths = (replaced_or_none(expected, **changes, **more) for more in ({}, {"scaling": None}, {"frequencies": None}))
    if (rotary := next(filter(None, widths), None)) is not None:
        yield rotary, (f"{2 * count} columns are rotated, {source} {expected.rotary_dim}",)
    if count < (pair_count := expected.rotary_dim // 2):
        rotary = expected.replace(**changes, frequencies=expected.frequencies[:count], scale=size_of(expected))
        yield rotary, (mistakes.not_rotated(range(count, pair_count)),)


Trial: TypeAlias = tuple[Candidate, Rotary, Arithmetic]


class Comparison:
    """Values at several positions, with the expected rotation of the same width, if any.

    The orientation is estimated first: with the right one, the frequencies have the expected sign, and the phases are
    0; or they are proportional to the frequencies, because the positions have an offset.
    """

    def __init__(self, reading: Reading, positions: Array, values: Waves, target: Rotary | None, size: int):
        self.reading, self.target, self.size = reading, target, size
        self.dtype = match.narrowest(values, reading.dtype)
        smallest = 2.0 ** max(DTYPES[self.dtype].smallest, DTYPES[reading.dtype].smallest)
        guess = None if target is None else target.frequencies      # pairs may turn by more than half a turn
        sign = 1 if guess is None or np.sum(guess) >= 0 else -1
        views = []
        # the last orientation multiplies by -1, which is right if the expected scale is negative
        for index, (sentence, turn) in enumerate(ORIENTATIONS[: 4 if target is None or size_of(target) > 0 else 3]):
            phases = phases_of(positions, turn(values), PRECISION[self.dtype], smallest, guess)
            offset = _offset(phases, sign)
            views.append((2 if offset is None else min(1, abs(offset)), index, sentence, turn, phases, offset or 0))
        *_, sentence, self.turn, self.phases, self.shift = min(views, key=lambda view: view[:2])
        self.positions, self.values = positions + self.shift, self.turn(values)
        self.columns = self.phases.amplitude > 0
        zero, first = np.flatnonzero(~self.columns), float(np.min(positions))
        self.faults = (*filter(None, [
            sentence, f"{pairs(zero)} {'are' if len(zero) > 1 else 'is'} 0" if len(zero) else "",
            f"positions start at {number(first + self.shift)}, expected {number(first)}" if self.shift else ""]),)
        self.scales = self._scales()

    def _scales(self) -> tuple[float, ...]:
        """Return the possible scales, simple ones first."""
        precision, amplitude, columns = PRECISION[self.dtype], self.phases.amplitude, self.columns
        scale = float(np.median(amplitude[columns]))
        error = scale * 2.0 ** (1 - precision)
        expected = (1.0,) if self.target is None else (abs(size_of(self.target)), 1.0)
        # the values of slow pairs are all rounded in the same direction
        is_fast = columns & (np.abs(self.phases.frequency) * self.phases.reach > 4 * math.pi)
        mean = np.abs(self.values[:, is_fast if is_fast.any() else columns])
        fine = max(SIGMAS / math.sqrt(mean.size) * 2.0**-precision, 2.0**-50)
        return (*(x for x in expected if abs(x - scale) <= error), short(scale, error / scale),
                short(float(mean.mean()), fine), short(float(mean.mean()), fine / 8))

    def _sized(self, candidates: Iterable[Candidate], kinds: Sequence[Arithmetic]) -> Iterator[Trial]:
        """Yield candidates with their scale, then with each possible scale, in each arithmetic."""
        for candidate in candidates:
            rotary = candidate.rotary
            for scale in dict.fromkeys((size_of(rotary), *self.scales)):
                sized = rotary if scale == size_of(rotary) else rotary.replace(scale=scale / rotary.attention_scaling)
                yield from ((candidate, sized, how) for how in kinds)

    def _trials(self) -> Iterator[Trial]:
        """Yield what may explain the values: in plain arithmetic, then in 16 bits, then without a formula.

        A fitted number may have too few digits, which looks like rounded angles; so these are first tried exactly.
        """
        plain, narrow = match.plain(self.dtype), match.narrow(self.dtype)
        fitted = []
        for candidate in mistakes.candidates(self.phases, self.target, self.size):
            fitted += [candidate] if candidate.is_fitted else []
            yield from self._sized([candidate], plain[:1] if candidate.is_fitted else plain)
        yield from self._sized(fitted, plain[1:])
        yield from self._sized(mistakes.candidates(self.phases.loose(), self.target, self.size), narrow)
        yield from self._sized([mistakes.explicit(self.phases, self.size)], plain)

    def result(self, source: str, computes_in: str) -> RotaryMatch:
        """Return the first trial that explains all values, else nearly all rows, else the most first rows."""
        most, best = FEWEST - 1, None
        for candidate, rotary, how in self._trials():
            curve = match.rotation_curve(rotary, self.positions, how)
            if curve._replace(values=curve.values[:, self.columns], error=curve.error[:, self.columns]).explains(
                    self.values[:, self.columns], how):
                return self._described(candidate, rotary, how, True, source, computes_in)
            if how.angles == "float32" and not how.is_narrow:
                differing = curve.differs(self.values, how)[:, self.columns].any(axis=1)
                rows = max(int(np.argmax(differing)), (differing.mean() < FEW) * int(np.sum(~differing)))
                most, best = (rows, (candidate, rotary, how)) if rows > most else (most, best)
        if best is not None:
            return self._described(*best, False, source, computes_in)
        if self.target is None:
            return RotaryMatch(None, math.inf, "", (NO_ROTATION,))
        error = difference(self.values, exact(self.target, self.positions)).max(axis=0)
        wrong = np.flatnonzero(error > match.ALIKE * abs(size_of(self.target)))
        fault = f"{NO_ROTATION}; those of {pairs(wrong)} differ from the expected ones by up to {error.max():.2g}"
        return RotaryMatch(None, float(error.max()), "", (fault if len(wrong) else NO_ROTATION,))

    def _described(
        self, candidate: Candidate, rotary: Rotary, how: Arithmetic, is_whole: bool, source: str, computes_in: str
    ) -> RotaryMatch:
        """Return the result for an explanation, with all its faults and remarks."""
        reading, target, faults = self.reading, self.target, candidate.faults
        if faults is None:
            faults = () if target is None else mistakes.differences(rotary, target, source)
        end, last_position = self._end(rotary, how, is_whole)
        if not reading.call:
            last_position = min(last_position, float(np.abs(reading.positions).max()))
        errors = self._errors(rotary, how, target or rotary, last_position)
        layout, of_layout = mistakes.of_layout(reading, target, source)
        rotary = rotary.replace(layout=layout)
        of_arithmetic = mistakes.of_arithmetic(how, exact(rotary, self.positions), reading.dtype, computes_in)
        faults, remark = (*faults, *self.faults), f"{how.angles} angles" if how.angles else "rounding"
        if how.angles == "float32" and not faults:
            position, error = max(errors.items())
            remark = f"float32 angles: the estimated error is {error:.1g} at position {position:,}"
        faults = (*of_layout, *faults, *mistakes.of_scale(rotary, target, source), *of_arithmetic, end)
        largest = difference(self.turn(self.values), exact(rotary, self.positions - self.shift)).max()
        return RotaryMatch(rotary, float(largest), "" if of_arithmetic else remark, tuple(filter(None, faults)), errors)

    def _errors(self, rotary: Rotary, how: Arithmetic, reference: Rotary, last_position: float) -> dict[int, float]:
        """Return the largest differences from a reference near each of match.ERRORS_AT, up to a position."""
        if how.angles == "float32" and not how.frequencies:
            how = how._replace(frequencies="float32")
        errors, last = {}, int(min(last_position, match.ERRORS_AT[-1]))
        for position in (*(p for p in match.ERRORS_AT if p < last), last):
            at = match.positions_near(position)
            values = self.turn(match.computed(rotary, at + self.shift, how))
            errors[position] = float(difference(values, exact(reference, at)).max(initial=0))
        return errors

    def _end(self, rotary: Rotary, how: Arithmetic, is_whole: bool) -> tuple[str, float]:
        """Compare all rows with the rotation found in the sample, or in some of its rows unless `is_whole`.

        Return the fault of the rows that differ, and the last position before them.
        """
        reading, total = self.reading, len(self.reading.positions)
        if is_whole and (reading.call or how.is_narrow):
            return "", math.inf
        how = how._replace(angles="float32")                        # perhaps only other rows show float32 angles

        def differs(positions: Array, values: Waves) -> Mask:
            curve = match.rotation_curve(rotary, positions + self.shift, how)
            is_wrong = curve.differs(self.turn(values), how) | ~np.isfinite(values)
            return np.asarray(is_wrong[:, self.columns].any(axis=1))

        parts = chunks(total, len(rotary.frequencies))
        differing = np.flatnonzero(np.concatenate([differs(reading.positions[rows], reading.read(rows)) for rows in parts]))
        if not len(differing):
            return "" if is_whole else "the values at some positions differ", math.inf
        row = int(differing[0])
        last, first = (int(abs(reading.positions[k])) for k in (max(row - 1, 0), row))
        if len(differing) < total - row or row == 0 or total - row == 1:
            which = "1 row differs, at" if len(differing) == 1 else f"{len(differing)} rows differ, the first at"
            return f"{which} position {first:,}", last
        rows_there = reading.read([row, row - 1, 0])
        if call := reading.call:
            unknown, at = range(last + 1, first), np.atleast_1d
            first = last + 1 + bisect.bisect_left(unknown, True, key=lambda p: bool(differs(at(p), call(at(p)))[0]))
            last = first - 1
            rows_there = np.concatenate([call(at(position)) for position in (first, last, 0)])
        if np.array_equal(rows_there[0], rows_there[2]):
            return f"the table ends at {first:,} and repeats", last
        if np.array_equal(rows_there[0], rows_there[1]):
            return f"the table ends at {first:,} and its last row is repeated", last
        return f"the values differ from position {first:,} on", last


def _offset(phases: Phases, sign: int) -> int | None:
    """Return the first of `OFFSETS` that explains most phases.

    Return None if no offset explains them, or if the angles do not have the given sign.
    """
    w, error, phase, phase_error = (x[phases.is_known] for x in (
        phases.frequency, phases.error, phases.phase, phases.phase_error))
    turning = np.array(sorted(w[np.abs(w) > SIGMAS * error], key=abs))
    slower_half = turning[: max(1, len(turning) // 2)]          # the signs of fast pairs are ambiguous
    if np.sum(np.sign(slower_half)) * sign < 0:
        return None
    for offset in OFFSETS:
        bound = SIGMAS * phase_error + 1e-6 + 64 * FLOAT32 * np.abs(w * offset)
        if (np.abs(wrapped(phase - w * offset)) <= bound).mean() > MOST_PHASES:
            return offset
    return None
