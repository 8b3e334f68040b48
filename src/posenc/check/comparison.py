"""The comparison of cosines and sines with the expected rotation, on which every verdict rests.

The expected rotation is tried first, in several kinds of arithmetic.  If it explains all values (match.py),
the verdict is "right".  Otherwise, orientation, positions, scale and frequencies are estimated, and mistakes
near these are tried (mistakes.py): the first one that explains the values has the sentences of the faults.
Then all rows are compared with it.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc._arguments.arrays import DTYPES
from posenc.check import match, mistakes
from posenc.check.match import Arithmetic, Array, Curve, Mask, Phases, Waves, difference, exact, size_of
from posenc.check.mistakes import FAULTS, ORIENTATIONS, fault, fitted, named, number, pairs
from posenc.check.reading import Reading, chunks, spread
from posenc.check.report import RotaryMatch, Verdict

FEW = 0.1                   # share of the rows that may differ from the others
FEWEST = 8                  # rows from the first one on that a rotation must give, if it does not give all
OFFSETS = np.array(sorted(range(32, -33, -1), key=abs))  # of positions, the usual ones first


def judged(reading: Reading, expected: Rotary | None) -> RotaryMatch:
    """Compare a reading with the expected rotation; the reason of the result contains only the remarks."""
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
    width, target = 2 * values.shape[1], None
    size = reading.head_dim or width
    if size < width:
        raise ValueError(f"head_dim is {size}, expected at least {width}, the number of rotated columns")
    if expected is not None:
        target = expected.replace(axes=None)
        if width != expected.rotary_dim:
            changes = {"rotary_dim": width, "head_dim": max(expected.head_dim, width)}
            other = mistakes.replaced_or_none(target, **changes)
            target = other or target.replace(**changes, scaling=None, frequencies=None)
            faults += (fault("width", width, expected.rotary_dim),)
    comparison = Comparison(reading, positions, values, target, Rotary(size, rotary_dim=width))
    result = comparison.result()
    result = result._replace(faults=(*faults, *result.faults))
    if expected is not None and expected.axes and expected.rotary_dim == width and result.rotary:
        result = _on_axes(reading, result, result.rotary.replace(axes=expected.axes))
    return result._replace(reason="; ".join(filter(None, (result.reason, *reading.remarks))),
                           verdict="wrong" if result.faults else result.verdict)


def _on_axes(reading: Reading, result: RotaryMatch, rotary: Rotary) -> RotaryMatch:
    """Compare the pairs at positions that differ between axes; frequencies alone do not show the axes."""
    if reading.call is not None and reading.layout is not None and not result.faults:     # a function
        mixed = np.arange(16) * np.arange(1, 1 + match.axes_of(rotary))[:, None] % 61
        error = difference(reading.call(mixed), exact(rotary, mixed)).max()
        if error > FAULTS["axes"].threshold * abs(size_of(rotary)):
            result = result._replace(faults=(fault("axes"),))
    return result._replace(rotary=rotary)


class Comparison(NamedTuple):
    """Values at several positions, with the expected rotation of the same width, if any."""

    reading: Reading
    positions: Array
    values: Waves
    target: Rotary | None
    blank: Rotary                       # the number of columns, and other keywords by default
    faults: tuple[str, ...] = ()        # of the orientation, if the values and positions have been corrected

    def result(self) -> RotaryMatch:
        """Return the first rotation that explains all values, or else nearly all rows or the first rows.

        The expected rotation is tried first; it makes the verdict "right".  All others only find the
        sentences for a wrong rotation.
        """
        dtype, target = match.narrowest(self.values, self.reading.dtype), self.target
        plain = match.plain(dtype)
        if target is not None:
            for how in plain:
                if self._curve(target, how).explains(self.values, how):
                    return self._described(target, how)
        oriented, phases = self._oriented(dtype)
        found = oriented._found(dtype, phases)
        if found.rotary is None and target is not None and self._is_partly(target, plain[-1]):
            found = self._described(target, plain[-1], is_whole=False)
        nearest = found.rotary or target
        if nearest is None:
            return found
        errors = difference(self.values, exact(nearest, self.positions)).max(axis=0)
        wrong = np.flatnonzero(errors > FAULTS["unknown"].threshold * abs(size_of(nearest)))
        if found.rotary is None and len(wrong):
            where = f"; those of {pairs(wrong)} differ from the expected ones by up to {errors.max():.2g}"
            found = found._replace(faults=(fault("unknown", where),))
        return found._replace(difference=float(errors.max()))

    def _found(self, dtype: str, phases: Phases) -> RotaryMatch:
        """Return the first of the other rotations that explains the values.

        They are tried in plain arithmetic, then in 16 bits, then without a formula.  A fitted number may have
        too few digits, which looks like rounded angles; so each arithmetic is tried with all numbers.
        """
        is_turning, loose = np.abs(phases.frequency) > phases.error + 2.0**-50, phases.loose()
        rotary = self.blank.replace(frequencies=np.where(is_turning, phases.frequency, 0.0))
        size, precision = float(np.abs(self.values).mean()), 2.0 ** -match.PRECISION[dtype]
        error = max(match.SIGMAS / math.sqrt(self.values.size) * precision, 2.0**-50)
        expected = 1.0 if self.target is None else size_of(self.target)
        scales = dict.fromkeys([expected, 1.0, match.short(size, 2 * precision), match.short(size, error)])
        # rotations take long to create, so they are created only if those of the groups before have failed
        all_loose = itertools.chain(named(loose, self.target), fitted(loose, self.blank))
        plain, partial = match.plain(dtype), None
        for group, kinds in ((named(phases, self.target), plain), (fitted(phases, self.blank), plain),
                             (all_loose, match.narrow(dtype)), ([(rotary, "")], plain)):
            for how, (candidate, sentence), scale in itertools.product(kinds, group, scales):
                factor = scale / size_of(candidate)
                scaled = candidate if factor == 1 else candidate.replace(scale=candidate.scale * factor)
                if self._curve(scaled, how).explains(self.values, how):
                    return self._described(scaled, how, sentence)
                if partial is None and how == plain[-1] and self._is_partly(scaled, how):
                    partial = scaled, how, sentence
        if partial is not None:
            return self._described(*partial, is_whole=False)
        return RotaryMatch(None, math.inf, "", (fault("unknown", ""),))

    def _curve(self, rotary: Rotary, how: Arithmetic) -> Curve:
        return match.rotation_curve(rotary, self.positions, how)

    def _oriented(self, dtype: str) -> tuple[Comparison, Phases]:
        """Return the comparison with the right orientation and offset of the positions, and the phases.

        With the right ones, most frequencies have the expected sign, and the row nearest to position 0 has
        the angles of its position.
        """
        reading = self.reading
        smallest = 2.0 ** max(DTYPES[dtype].smallest, DTYPES[reading.dtype].smallest)
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
        faults = [fault(name)] if name else []
        if offset:
            first = float(np.min(self.positions))
            faults.append(fault("start", number(first + offset), number(first)))
        reading = reading._replace(positions=reading.positions + offset,
                                   read=lambda rows: turn(self.reading.read(rows)))
        return Comparison(reading, self.positions + offset, turn(self.values), self.target, self.blank,
                          tuple(faults)), phases

    def _described(
        self, rotary: Rotary, how: Arithmetic, sentence: str = "", is_whole: bool = True
    ) -> RotaryMatch:
        """Return the result for an explanation of all values, or of some rows, with faults and remarks."""
        reading, target, faults = self.reading, self.target, [*self.faults]
        layout: Any = reading.layout or "halves"
        of_rows, last = self._rows(rotary, how, is_whole)
        errors = {}
        # the errors of other columns or positions would not be those of the arithmetic
        for position in () if self.faults else sorted({min(position, last) for position in match.ERRORS_AT}):
            at = match.positions_near(position)
            values = match.computed(rotary, at, how)
            errors[position] = float(difference(values, exact(target or rotary, at)).max())
        if target is not None:
            faults = [*([sentence] if sentence else mistakes.of_frequencies(rotary, target)), *faults]
            if not math.isclose(size_of(rotary), size_of(target), rel_tol=FAULTS["scale"].threshold):
                faults.append(fault("scale", number(size_of(rotary)), number(size_of(target))))
            if reading.layout not in (None, target.layout) and target.rotary_dim > 2:   # else both are one
                faults.insert(0, fault("layout", layout, target.layout))
            else:
                layout = target.layout
        reference = exact(rotary, self.positions)
        of_arithmetic = [*mistakes.of_arithmetic(how, reference, reading.dtype)]
        faults += of_arithmetic + of_rows
        verdict: Verdict = "float32 angles" if how.angles == "float32" and not faults else "right"
        remark = "" if of_arithmetic else f"{how.angles} angles" if how.angles else "rounding"
        if verdict == "float32 angles":
            position, error = max(errors.items())
            remark += f": the estimated error is {error:.1g} at position {position:,}"
        largest = float(difference(self.values, reference).max())
        return RotaryMatch(rotary.replace(layout=layout), largest, remark, tuple(faults), errors, verdict)

    def _rows(self, rotary: Rotary, how: Arithmetic, is_whole: bool) -> tuple[list[str], int]:
        """Compare all rows with the rotation found in the sample, or in some of its rows unless `is_whole`.

        Return the fault of the rows that differ, and the last position before them.
        """
        at, last = self.reading.positions, int(np.abs(self.reading.positions).max())
        if self.reading.call:
            last = match.ERRORS_AT[-1]
        if is_whole and (self.reading.call or how.is_narrow):
            return [], last
        how = how._replace(angles="float32")            # perhaps only other rows show float32 angles
        parts = [self._differs(rotary, how, at[k], self.reading.read(k))
                 for k in chunks(len(at), self.values.shape[1])]
        differing = np.flatnonzero(np.concatenate(parts))
        if not len(differing):
            return [] if is_whole else [fault("some")], last
        row = differing[0]
        return [fault("rows", len(differing), len(at), int(abs(at[row])))], int(abs(at[max(row - 1, 0)]))

    def _is_partly(self, rotary: Rotary, how: Arithmetic) -> bool:
        """Return whether nearly all rows agree, or the first rows."""
        differs = self._differs(rotary, how, self.positions, self.values)
        return bool(differs.mean() < FEW or not differs[:FEWEST].any())

    def _differs(self, rotary: Rotary, how: Arithmetic, positions: Array, values: Waves) -> Mask:
        """Return a mask of the rows that differ."""
        differs = match.rotation_curve(rotary, positions, how).differs(values, how)
        return np.asarray((differs | ~np.isfinite(values)).any(axis=1))
