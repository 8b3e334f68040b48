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
from posenc.check.match import Arithmetic, Mask, Phases, difference, exact, size_of
from posenc.check.mistakes import FAULTS, ORIENTATIONS, fault, fitted, named, number, pairs
from posenc.check.reading import Reading, chunks, spread
from posenc.check.report import RotaryMatch, Verdict

FEW = 0.1                   # share of the rows that may differ from the others
FEWEST = 8                  # rows from the first one on that a rotation must give, if it does not give all
OFFSETS = np.array(sorted(range(32, -33, -1), key=abs))  # of positions, the usual ones first


def judged(reading: Reading, expected: Rotary | None, head_dim: int | None) -> RotaryMatch:
    """Compare a reading with the expected rotation; the reason of the result contains only the remarks."""
    faults, rows = reading.faults, slice(None) if reading.call else spread(len(reading.positions))
    sample = reading.at(rows)
    finite = np.isfinite(sample.values).all(axis=1)
    if not finite.any() or not sample.values.size:
        return RotaryMatch(None, math.inf, "", faults or (fault("nothing"),))
    if not finite.all():
        faults += (fault("finite", sample.positions[~finite].min()),)
    sample = sample.at(finite)
    if not np.ptp(sample.positions):
        raise ValueError("rotation has values at a single position, expected values at several positions")
    width, target = 2 * sample.values.shape[1], None
    size = head_dim or width
    if expected is not None:
        target, size = expected.replace(axes=None), max(size, width)
        if width != expected.rotary_dim:
            changes = {"rotary_dim": width, "head_dim": size}
            other = mistakes.replaced_or_none(target, **changes)
            target = other or target.replace(**changes, scaling=None, frequencies=None)
            faults += (fault("width", width, expected.rotary_dim),)
    whole = sample if reading.call else reading
    result = Comparison(whole, sample, target, Rotary(size, rotary_dim=width)).result()
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
    """Values, and a sample of these, with the expected rotation of the same width, if any."""

    whole: Reading
    sample: Reading
    target: Rotary | None
    blank: Rotary                       # the number of columns, and other keywords by default
    faults: tuple[str, ...] = ()        # of the orientation, if the values and positions have been corrected

    def result(self) -> RotaryMatch:
        """Return the first rotation that explains all values, or else nearly all rows or the first rows.

        The expected rotation is tried first; it makes the verdict "right".  All others only find the
        sentences for a wrong rotation.
        """
        values, positions, target = self.sample.values, self.sample.positions, self.target
        dtype = match.narrowest(values, self.sample.dtype)
        plain = match.plain(dtype)
        if target is not None:
            for how in plain:
                if self._explains(target, how):
                    return self._described(target, how)
        oriented, phases = self._oriented(dtype)
        found = oriented._found(dtype, phases)
        result = RotaryMatch(None, math.inf, "", (fault("unknown", ""),))
        if found is not None:
            result = oriented._described(*found)
        elif target is not None:
            differing = _differing(self.sample, target, plain[-1])
            if differing.any() and (differing.mean() < FEW or not differing[:FEWEST].any()):
                result = self._described(target, plain[-1])
        nearest = result.rotary or target
        if nearest is not None:
            errors = difference(values, exact(nearest, positions)).max(axis=0)
            wrong = np.flatnonzero(errors > FAULTS["unknown"].threshold * abs(size_of(nearest)))
            if result.rotary is None and len(wrong):
                where = f"; those of {pairs(wrong)} differ from the expected ones by up to {errors.max():.2g}"
                result = result._replace(faults=(fault("unknown", where),))
            result = result._replace(difference=float(errors.max()))
        return result

    def _found(self, dtype: str, phases: Phases) -> tuple[Rotary, Arithmetic, str] | None:
        """Return the first of the other rotations that explains the values, its arithmetic and a sentence.

        They are tried in plain arithmetic, then in 16 bits, then without a formula.  A fitted number may have
        too few digits, which looks like rounded angles; so each arithmetic is tried with all numbers.
        """
        is_turning, loose = np.abs(phases.frequency) > phases.error + 2.0**-50, phases.loose()
        rotary = self.blank.replace(frequencies=np.where(is_turning, phases.frequency, 0.0))
        values, precision = self.sample.values, 2.0 ** -match.PRECISION[dtype]
        size = float(np.abs(values).mean())
        error = max(match.SIGMAS / math.sqrt(values.size) * precision, 2.0**-50)
        expected = 1.0 if self.target is None else size_of(self.target)
        scales = dict.fromkeys([expected, 1.0, match.short(size, 2 * precision), match.short(size, error)])
        # rotations take long to create, so they are created only if those of the groups before have failed
        all_loose = itertools.chain(named(loose, self.target), fitted(loose, self.blank))
        plain = match.plain(dtype)
        for group, kinds in ((named(phases, self.target), plain), (fitted(phases, self.blank), plain),
                             (all_loose, match.narrow(dtype)), ([(rotary, "")], plain)):
            for how, (candidate, sentence), scale in itertools.product(kinds, group, scales):
                factor = scale / size_of(candidate)
                scaled = candidate if factor == 1 else candidate.replace(scale=candidate.scale * factor)
                if self._explains(scaled, how):
                    return scaled, how, sentence
        return None

    def _explains(self, rotary: Rotary, how: Arithmetic) -> bool:
        return match.rotation_curve(rotary, self.sample.positions, how).explains(self.sample.values)

    def _oriented(self, dtype: str) -> tuple[Comparison, Phases]:
        """Return the comparison with the right orientation and offset of the positions, and the phases.

        With the right ones, most frequencies have the expected sign, and the row nearest to position 0 has
        the angles of its position.
        """
        positions, precision = self.sample.positions, match.PRECISION[dtype]
        smallest = 2.0 ** max(DTYPES[dtype].smallest, DTYPES[self.sample.dtype].smallest)
        guess = None if self.target is None else self.target.frequencies    # pairs may turn by half a turn
        sign = 1 if guess is None or np.sum(guess) >= 0 else -1
        row = np.argmin(np.abs(positions))
        at, views = float(positions[row]), []
        for name, turn in ORIENTATIONS[: 4 if self.target is None or size_of(self.target) > 0 else 3]:
            values = turn(self.sample.values)
            phases = match.phases_of(positions, values, precision, smallest, guess)
            is_reversed = np.sum(np.sign(phases.frequency)) * sign < 0
            angles = (at + OFFSETS[:, None]) * phases.frequency
            errors = np.abs(np.abs(values[row]) * np.exp(1j * angles) - values[row])
            total = errors[:, np.abs(at) * phases.error < match.KNOWN].sum(axis=1)
            total = np.maximum(total, np.abs(values[row]).sum() * 2.0**-precision)     # roundings
            views.append((is_reversed, total.min(), name, turn, int(OFFSETS[total.argmin()]), phases))
        *_, name, turn, offset, phases = min(views, key=lambda view: view[:2])
        faults = [fault(name)] if name else []
        if offset:
            first = float(np.min(positions))
            faults.append(fault("start", number(first + offset), number(first)))
        whole, sample = (each._replace(positions=each.positions + offset, values=turn(each.values))
                         for each in (self.whole, self.sample))
        return Comparison(whole, sample, self.target, self.blank, tuple(faults)), phases

    def _described(self, rotary: Rotary, how: Arithmetic, sentence: str = "") -> RotaryMatch:
        """Return the result for an explanation of all values, or of nearly all, with faults and remarks."""
        positions, target, faults = self.whole.positions, self.target, [*self.faults]
        layout: Any = self.whole.layout or "halves"
        last = match.ERRORS_AT[-1] if self.whole.call else int(np.abs(positions).max())
        of_rows = list[str]()
        differing = np.flatnonzero(not how.is_narrow and _differing(self.whole, rotary, how))
        if len(differing):
            of_rows = [fault("rows", len(differing), len(positions), int(abs(positions[differing[0]])))]
            last = int(abs(positions[max(differing[0] - 1, 0)]))
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
            if self.whole.layout not in (None, target.layout) and target.rotary_dim > 2:   # else both are one
                faults.insert(0, fault("layout", layout, target.layout))
            else:
                layout = target.layout
        reference = exact(rotary, self.sample.positions)
        of_arithmetic = [*mistakes.of_arithmetic(how, reference, self.sample.dtype)]
        faults += of_arithmetic + of_rows
        verdict: Verdict = "float32 angles" if how.angles == "float32" and not faults else "right"
        remark = "" if of_arithmetic else f"{how.angles} angles" if how.angles else "rounding"
        if verdict == "float32 angles":
            position, error = max(errors.items())
            remark += f": the estimated error is {error:.1g} at position {position:,}"
        largest = float(difference(self.sample.values, reference).max())
        return RotaryMatch(rotary.replace(layout=layout), largest, remark, tuple(faults), errors, verdict)


def _differing(reading: Reading, rotary: Rotary, how: Arithmetic) -> Mask:
    """Return a mask of the rows that differ from a rotation by more than the errors of float32 angles."""
    how, masks = how._replace(angles="float32"), []     # perhaps only rows outside a sample show these
    for rows in chunks(*reading.values.shape):
        part = reading.at(rows)
        differs = match.rotation_curve(rotary, part.positions, how).differs(part.values)
        masks.append((differs | ~np.isfinite(part.values)).any(axis=1))
    return np.concatenate(masks)
