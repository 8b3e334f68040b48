"""The comparison of cosines and sines with the expected rotation, on which every verdict rests.

The expected rotation is tried first, in several kinds of arithmetic.  If it explains all values (match.py),
the verdict is "right".  Otherwise, orientation, positions, scale and frequencies are estimated, and mistakes
near these are tried (mistakes.py): the first one that explains the values has the sentences of the faults.
Then all rows are compared with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np

from posenc import Rotary
from posenc._arguments.arrays import DTYPES
from posenc.check import match, mistakes
from posenc.check.match import Arithmetic, Array, Curve, Mask, Phases, Waves, difference, exact, size_of
from posenc.check.mistakes import FAULTS, ORIENTATIONS, fault, fitted, named, not_rotated, number, pairs
from posenc.check.reading import Reading, chunks, spread

FEW = 0.1                   # share of the rows that may differ from the others
FEWEST = 8                  # rows from the first one on that a rotation must give, if it does not give all
OFFSETS = np.array(sorted(range(32, -33, -1), key=abs))  # of positions, the usual ones first

Verdict: TypeAlias = Literal["right", "float32 angles", "wrong", "no rotation", "not checked"]


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
    verdict : {"right", "float32 angles", "wrong"}
        As in `RotaryRow`.  Without an expected rotation, "wrong" means that no rotation gives all values.

    See Also
    --------
    identify_rotary : Return the matches of a rotation.

    Examples
    --------
    >>> import posenc
    >>> tables = posenc.Rotary(64).tables(100)
    >>> match = posenc.check.identify_rotary(tables, expect=posenc.Rotary(64, base=500000.0))[0]
    >>> match.rotary, match.faults
    (Rotary(64), ('base is 10000, expected 500000',))
    """

    rotary: Rotary | None
    difference: float
    reason: str
    faults: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})
    verdict: Verdict = "wrong"


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None, computes_in: str
) -> RotaryMatch:
    """Compare a reading with the expected rotation in each width; return the match with the fewest faults.

    Its reason contains only the remarks.
    """
    rows = np.arange(len(reading.positions)) if reading.call else spread(len(reading.positions))
    positions, values, faults = reading.positions[rows], reading.read(rows), reading.faults
    finite = np.isfinite(values).all(axis=1)
    if not finite.any() or not values.size:
        return RotaryMatch(None, math.inf, "", faults or (fault("nothing"),))
    if not finite.all():
        faults += (fault("finite", positions[~finite].min()),)
    positions, values = positions[finite], values[finite]
    if not np.ptp(positions):
        raise ValueError("rotation has values at a single position, expected values at several positions")
    if not np.median(np.abs(values), axis=0).any():
        return RotaryMatch(None, math.inf, "", (*faults, fault("zeros")))
    width = 2 * values.shape[1]
    size = head_dim or reading.head_dim or width
    if size < width:
        raise ValueError(f"head_dim is {size}, expected at least {width}, the number of rotated columns")
    blank = Rotary(size, rotary_dim=width)
    results = []
    for target, of_width in _targets(expected, width, source):
        result = Comparison(reading, positions, values, target, blank, source, computes_in).result()
        results.append(result._replace(faults=(*faults, *filter(None, (of_width, *result.faults)))))
    result = min(results, key=lambda result: (result.rotary is None, len(result.faults)))
    if expected is not None and expected.axes and expected.rotary_dim == width and result.rotary:
        result = _on_axes(reading, result, result.rotary.replace(axes=expected.axes))
    return result._replace(reason="; ".join(filter(None, (result.reason, *reading.remarks))),
                           verdict="wrong" if result.faults else result.verdict)


def _on_axes(reading: Reading, result: RotaryMatch, rotary: Rotary) -> RotaryMatch:
    """Compare the pairs at positions that differ between axes; frequencies alone do not show the axes."""
    if reading.call is not None and reading.head_dim is not None and not result.faults:
        mixed = np.arange(16) * np.arange(1, 1 + match.axes_of(rotary))[:, None] % 61
        error = difference(reading.call(mixed), exact(rotary, mixed)).max()
        if error > FAULTS["axes"].threshold * abs(size_of(rotary)):
            result = result._replace(faults=(fault("axes"),))
    return result._replace(rotary=rotary)


def _targets(expected: Rotary | None, width: int, source: str) -> Iterator[tuple[Rotary | None, str]]:
    """Yield the expected rotation with `width` columns on one axis, and the fault of this width.

    The first one has the frequencies of this width, the second one the first pairs of the expected rotation.
    """
    if expected is None or expected.rotary_dim == width:
        yield None if expected is None else expected.replace(axes=None), ""
        return
    changes: dict[str, Any] = {"axes": None, "rotary_dim": width, "head_dim": max(expected.head_dim, width)}
    rotary = mistakes.replaced_or_none(expected, **changes)
    yield (rotary or expected.replace(**changes, scaling=None, frequencies=None),
           fault("width", width, source, expected.rotary_dim))
    if width < expected.rotary_dim:
        first = expected.frequencies[: width // 2]
        yield (expected.replace(**changes, frequencies=first, scale=size_of(expected)),
               not_rotated(range(width // 2, expected.rotary_dim // 2)))


class Trial(NamedTuple):
    """A rotation that may explain values, if these are turned and their positions shifted.

    `faults` are the sentences of all this, `sentence` that of the frequencies, or "" if keywords show it.
    """

    rotary: Rotary
    how: Arithmetic
    faults: tuple[str, ...] = ()
    sentence: str = ""
    turn: Callable[[Waves], Waves] = ORIENTATIONS[0][1]
    shift: int = 0

    def curve(self, positions: Array) -> Curve:
        return match.rotation_curve(self.rotary, positions + self.shift, self.how)

    def differs(self, positions: Array, values: Waves) -> Mask:
        """Return a mask of the rows that differ."""
        differs = self.curve(positions).differs(self.turn(values), self.how)
        return np.asarray((differs | ~np.isfinite(values)).any(axis=1))


class Comparison(NamedTuple):
    """Values at several positions, with the expected rotation of the same width, if any."""

    reading: Reading
    positions: Array
    values: Waves
    target: Rotary | None
    blank: Rotary               # the number of columns, and other keywords by default
    source: str
    computes_in: str

    def result(self) -> RotaryMatch:
        """Return the first trial that explains all values, or else nearly all rows or the first rows."""
        partial = None
        for trial in self._trials():
            values = trial.turn(self.values)
            if trial.curve(self.positions).explains(values, trial.how):
                return self._described(trial, True)
            if partial is None and trial.how.angles == "float32" and not trial.how.is_narrow:
                differs = trial.differs(self.positions, self.values)
                partial = trial if differs.mean() < FEW or not np.any(differs[:FEWEST]) else None
        if partial is not None:
            return self._described(partial, False)
        if self.target is None:
            return RotaryMatch(None, math.inf, "", (fault("unknown", ""),))
        error = difference(self.values, exact(self.target, self.positions)).max(axis=0)
        wrong = np.flatnonzero(error > FAULTS["unknown"].threshold * abs(size_of(self.target)))
        where = f"; those of {pairs(wrong)} differ from the expected ones by up to {error.max():.2g}"
        return RotaryMatch(None, float(error.max()), "", (fault("unknown", where if len(wrong) else ""),))

    def _trials(self) -> Iterator[Trial]:
        """Yield what may explain the values: first the expected rotation, which makes the verdict "right".

        All other trials only find the sentences for a wrong rotation: in plain arithmetic, then in 16 bits,
        then without a formula.  A fitted number may have too few digits, which looks like rounded angles;
        so each arithmetic is tried with all numbers.
        """
        dtype = match.narrowest(self.values, self.reading.dtype)
        plain, target, blank = match.plain(dtype), self.target, self.blank
        if target is not None:
            yield from (Trial(target, how) for how in plain)
        faults, turn, shift, phases = self._orientation(dtype)
        is_turning, loose = np.abs(phases.frequency) > phases.error + 2.0**-50, phases.loose()
        rotary = blank.replace(frequencies=np.where(is_turning, phases.frequency, 0.0))
        size, precision = float(np.abs(self.values).mean()), 2.0 ** -match.PRECISION[dtype]
        error = max(match.SIGMAS / math.sqrt(self.values.size) * precision, 2.0**-50)
        expected = 1.0 if target is None else size_of(target)
        scales = dict.fromkeys([expected, 1.0, match.short(size, 2 * precision), match.short(size, error)])
        # rotations take long to create, so they are created only if those of the groups before have failed
        all_loose = itertools.chain(named(loose, target), fitted(loose, blank))
        for group, kinds in ((named(phases, target), plain), (fitted(phases, blank), plain),
                             (all_loose, match.narrow(dtype)), ([(rotary, "")], plain)):
            for how, (candidate, sentence), scale in itertools.product(kinds, group, scales):
                factor = scale / size_of(candidate)
                scaled = candidate if factor == 1 else candidate.replace(scale=candidate.scale * factor)
                yield Trial(scaled, how, faults, sentence, turn, shift)

    def _orientation(self, dtype: str) -> tuple[tuple[str, ...], Callable[[Waves], Waves], int, Phases]:
        """Return the orientation and the offset of the positions, with their faults, and the phases.

        With the right ones, most frequencies have the expected sign, and the row nearest to position 0 has
        the angles of its position.
        """
        smallest = 2.0 ** max(DTYPES[dtype].smallest, DTYPES[self.reading.dtype].smallest)
        guess = None if self.target is None else self.target.frequencies    # pairs may turn by half a turn
        sign, precision = 1 if guess is None or np.sum(guess) >= 0 else -1, match.PRECISION[dtype]
        row = np.argmin(np.abs(self.positions))
        at = float(self.positions[row])
        views = []
        for name, turn in ORIENTATIONS[: 4 if self.target is None or size_of(self.target) > 0 else 3]:
            values = turn(self.values)
            phases = match.phases_of(self.positions, values, precision, smallest, guess)
            is_reversed = np.sum(np.sign(phases.frequency)) * sign < 0
            angles = (at + OFFSETS[:, None]) * phases.frequency
            errors = np.abs(phases.amplitude * np.exp(1j * angles) - values[row])
            total = errors[:, np.abs(at) * phases.error < match.KNOWN].sum(axis=1)
            total = np.maximum(total, phases.amplitude.sum() * 2.0**-precision)     # roundings
            views.append((is_reversed, total.min(), name, turn, int(OFFSETS[total.argmin()]), phases))
        *_, name, turn, offset, phases = min(views, key=lambda view: view[:2])
        faults: tuple[str, ...] = (fault(name),) if name else ()
        if offset:
            first = float(np.min(self.positions))
            faults += (fault("start", number(first + offset), number(first)),)
        return faults, turn, offset, phases

    def _described(self, trial: Trial, is_whole: bool) -> RotaryMatch:
        """Return the result for an explanation of all values, or of some rows, with faults and remarks."""
        rotary, how, faults, sentence, turn, shift = trial
        reading, target, layout = self.reading, self.target, self.reading.layout or "halves"
        end, last = self._end(trial, is_whole)
        errors = {}
        for position in sorted({min(position, last) for position in match.ERRORS_AT}):
            at = match.positions_near(position)
            values = turn(match.computed(rotary, at + shift, how))
            errors[position] = float(difference(values, exact(target or rotary, at)).max())
        if target is not None:
            of_frequencies = [sentence] if sentence else mistakes.of_frequencies(rotary, target, self.source)
            faults = (*of_frequencies, *faults, *mistakes.of_scale(size_of(rotary), target, self.source))
            if reading.layout not in (None, target.layout) and target.rotary_dim > 2:   # else both are one
                faults = (fault("layout", layout, self.source, target.layout), *faults)
            else:
                layout = target.layout
        reference = exact(rotary, self.positions)
        of_arithmetic = (*mistakes.of_arithmetic(how, reference, reading.dtype, self.computes_in),)
        faults = (*faults, *of_arithmetic, *([end] if end else ()))
        verdict: Verdict = "float32 angles" if how.angles == "float32" and not faults else "right"
        remark = "" if of_arithmetic else f"{how.angles} angles" if how.angles else "rounding"
        if verdict == "float32 angles":
            position, error = max(errors.items())
            remark += f": the estimated error is {error:.1g} at position {position:,}"
        largest = float(difference(self.values, reference).max())
        return RotaryMatch(rotary.replace(layout=layout), largest, remark, faults, errors, verdict)

    def _end(self, trial: Trial, is_whole: bool) -> tuple[str, int]:
        """Compare all rows with the rotation found in the sample, or in some of its rows unless `is_whole`.

        Return the fault of the rows that differ, and the last position before them.
        """
        reading, at, call = self.reading, self.reading.positions, self.reading.call
        end = match.ERRORS_AT[-1] if call else int(np.abs(at).max())
        if is_whole and (call or trial.how.is_narrow):
            return "", end
        # perhaps only other rows show float32 angles
        trial = trial._replace(how=trial.how._replace(angles="float32"))
        parts = [trial.differs(at[k], reading.read(k)) for k in chunks(len(at), self.values.shape[1])]
        differing = np.flatnonzero(np.concatenate(parts))
        if not len(differing):
            return "" if is_whole else fault("some"), end
        row = int(differing[0])
        last, first = int(abs(at[max(row - 1, 0)])), int(abs(at[row]))
        rows = reading.read([row, 0, row - 1])
        if call and row > 0 and len(differing) == len(at) - row:
            between = np.arange(last + 1, first + 1)
            first = int(between[np.argmax(trial.differs(between, call(between)))])
            rows = call(np.array([first, 0, first - 1]))
        for other, words in zip(rows[1:], ("repeats", "its last row is repeated"), strict=True):
            if 0 < row < len(at) - 1 and np.array_equal(rows[0], other):
                return fault("end", first, words), first - 1
        return fault("rows", len(differing), len(at), first), last
