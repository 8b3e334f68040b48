"""Mistakes: the candidates for a rotation, each with its prior cost.

To add a kind of mistake, add a row to one of two tables: `ORIENTATIONS` has transformations of cosines and
sines, `MISTAKES` those of the expected rotation.  If the row has a sentence, add its first words to `GUIDE`
in report.py, a line to the guide in docs/check.md, and a model with the mistake to
tests/rotary_models_small.py.  functions.py has the sentences about calls and the order of columns,
evidence.py the one about the offset of positions, models.py the one about the end of a table.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.evidence import TURNS, Evidence, Orientation, Phases, line_through, short
from posenc.check.match import NARROW, PRECISION, Arithmetic, Array, Candidate, Mask, Reals, Waves, rotation_curve, size_of
from posenc.check.reading import Reading, chunks, number, pairs

BASES = (10000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0, 100.0, 150000.0, 160000.0, 250000.0, 256.0, 2000.0)
LLAMA3 = [{"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
           "original_max_position_embeddings": 8192} for factor in (8.0, 32.0)]
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 1024, 512)

# Prior cost of each candidate; those of equal cost are tried in the order of the tables.
NOTHING = 0         # the expectation
LOST = 1            # a step of the configuration is left out
KNOWN_SLIP = 2      # a mistake without a free number, such as exchanged parameters
USUAL_NUMBER = 3    # a keyword has another value, which many models have
ONE_NUMBER = 4      # a number without a meaning was fitted
FORMULA = 5         # a formula was fitted without an expectation
EVERY_FREQUENCY = 6     # all frequencies were fitted


class Situation(NamedTuple):
    """The expected rotation, the same rotation without its scaling, and the estimates: a mistake changes the first two."""

    expected: Rotary
    unscaled: Rotary
    scaling: dict[str, Any]     # empty if the rotation has no scaling
    estimate: Phases

    def turning(self, frequencies: Reals) -> Array:
        """Return the pairs whose estimates and frequencies have the same sign."""
        return np.flatnonzero(self.estimate.is_known & (frequencies * self.estimate.frequency > 0))

    def powers(self, divisor: float, dtype: str = "") -> Rotary | None:
        """Return the rotation whose exponents are i / divisor, computed in a dtype; None with a scaling or axes."""
        count = self.expected.rotary_dim // 2
        if self.scaling or self.expected.axes is not None or count < 2:
            return None
        bases, exponents = (match.rounded(x, dtype) for x in (np.full(count, self.unscaled.base), np.arange(count) / divisor))
        powers = match.rounded(bases**exponents, dtype)
        return self.explicit(self.unscaled.frequency_scale * match.rounded(1 / powers, dtype))

    def explicit(self, frequencies: Reals) -> Rotary | None:
        return replaced_or_none(self.expected, frequencies=frequencies, scale=size_of(self.expected))

    def scaled(self, types: str, **keywords: Any) -> Rotary | None:
        """Return the rotation with other keywords of its scaling, if this has one of the types."""
        is_type = self.scaling.get("rope_type", "") in types.split()
        return replaced_or_none(self.expected, scaling=self.scaling | keywords) if is_type else None

    def quotients(self, frequencies: Reals, first: int = 0) -> Iterator[float]:
        """Yield the quotient of frequencies and their estimates, from the pair that shows it best, from `first` on."""
        chosen_pairs = self.turning(frequencies)[first:]
        if len(chosen_pairs):
            errors = self.estimate.error[chosen_pairs] / np.abs(self.estimate.frequency[chosen_pairs])
            k = chosen_pairs[np.argmin(errors)]
            error = float(match.SIGMAS * errors.min()) + match.TIGHT
            yield short(float(frequencies[k] / self.estimate.frequency[k]), error, TURNS, 8)

    def factors(self) -> Iterator[float]:
        """Yield the factor of a scaling that divides the last frequencies."""
        return self.quotients(self.unscaled.frequencies, -1)

    def bases(self, is_usual: bool) -> Iterator[float]:
        """Yield the bases of `BASES` near the estimate, or the estimate as a short number.

        The base is estimated from the pairs that yarn and llama3 do not change, then from all pairs.
        """
        turning, half = self.turning(self.expected.frequencies), self.expected.rotary_dim / 2
        for chosen_pairs in (turning[: max(3, len(turning) // 4)], turning):
            if len(chosen_pairs) > 1:
                w, f = self.estimate.frequency[chosen_pairs], self.expected.frequencies[chosen_pairs]
                line = line_through(chosen_pairs, w / f, self.estimate.error[chosen_pairs] / np.abs(w))
                error = 4 * half * line.slope_error + match.TIGHT
                base = self.expected.base * math.exp(np.clip(line.slope * half, -match.WIDEST_RATIO, match.WIDEST_RATIO))
                yield from (b for b in BASES if abs(math.log(b / base)) < error + 0.02) if is_usual else (short(base, error),)

    def widths(self) -> Iterator[int]:
        """Yield the even numbers n for which exponents 2 i / n give the estimates."""
        for base in self.bases(is_usual=False) if self.unscaled.base > 1 else ():
            n = self.expected.rotary_dim * math.log(self.unscaled.base) / math.log(base) if base > 1 + match.TIGHT else 0
            if 0 < 2 * round(n / 2) != self.expected.rotary_dim and abs(n - 2 * round(n / 2)) < 0.25:
                yield 2 * round(n / 2)

    def lengths(self) -> Iterator[int]:
        """Yield a length for which a scaling of type dynamic or longrope has other frequencies."""
        kind, scaling = self.scaling.get("rope_type"), self.scaling
        if kind == "dynamic" and (growth := next(self.factors(), 0)) > 1:
            factor = float(scaling["factor"])
            yield round(int(scaling["max_position_embeddings"]) * (growth + factor - 1) / factor)
        elif kind == "longrope":
            trained = int(scaling["original_max_position_embeddings"])
            yield trained + int(scaling.get("length", 0) <= trained)


class Mistake(NamedTuple):
    """A mistake: `change` returns the wrong rotation for each of the values that a parameter may have.

    The sentence may contain the value as {x}.  If the sentence is empty, the report names the keywords that
    differ.
    """

    cost: int
    sentence: str
    change: Callable[[Situation, Any], Rotary | None]
    values: Callable[[Situation], Iterable[Any]] = lambda s: (0,)


def _twice(s: Situation) -> Reals:
    f, unscaled = s.expected.frequencies, s.unscaled.frequencies
    return f * np.divide(f, unscaled, out=np.zeros_like(f), where=unscaled != 0)


MISTAKES = (
    Mistake(LOST, "the scaling {type} is not applied", lambda s, _: s.unscaled if s.scaling else None),
    Mistake(KNOWN_SLIP, "the scaling {type} is applied twice", lambda s, _: s.explicit(_twice(s)) if s.scaling else None),
    Mistake(KNOWN_SLIP, "beta_fast and beta_slow of the scaling yarn are exchanged", lambda s, _: s.scaled(
        "yarn", beta_fast=s.scaling.get("beta_slow", 1.0), beta_slow=s.scaling.get("beta_fast", 32.0))),
    Mistake(KNOWN_SLIP, "the exponents are i / {dim}, expected 2 i / {dim}", lambda s, _: s.powers(s.expected.rotary_dim)),
    Mistake(KNOWN_SLIP, "the exponents are 4 i / {dim}, expected 2 i / {dim}",
            lambda s, _: s.powers(s.expected.rotary_dim / 4)),
    Mistake(KNOWN_SLIP, "the exponents are i / {last}, expected i / {count}",
            lambda s, _: s.powers(s.expected.rotary_dim // 2 - 1)),
    Mistake(KNOWN_SLIP, "inv_freq was computed in {x}", lambda s, x: s.powers(s.expected.rotary_dim // 2, x),
            lambda s: NARROW),
    Mistake(KNOWN_SLIP, "the frequencies are the reciprocals of the expected ones",
            lambda s, _: s.explicit(1 / s.expected.frequencies) if s.expected.frequencies.all() else None),
    Mistake(KNOWN_SLIP, "the frequencies are in reverse order", lambda s, _: s.explicit(s.expected.frequencies[::-1])),
    Mistake(USUAL_NUMBER, "the frequencies of the scaling {type} are those for sequences of {x} positions",
            lambda s, x: s.scaled("dynamic longrope", length=int(x)), Situation.lengths),
    Mistake(USUAL_NUMBER, "", lambda s, x: s.scaled("yarn", truncate=x), lambda s: (not s.scaling.get("truncate", True),)),
    Mistake(USUAL_NUMBER, "", lambda s, x: s.scaled("linear yarn llama3", factor=x), Situation.factors),
    Mistake(USUAL_NUMBER, "", lambda s, x: s.scaled("ntk_alpha", alpha=x), Situation.factors),
    Mistake(USUAL_NUMBER, "", lambda s, x: s.scaled("yarn llama3", original_max_position_embeddings=x), lambda s: (
        round(s.scaling.get("original_max_position_embeddings", 0) * s.scaling.get("factor", 1)), *LENGTHS)),
    Mistake(USUAL_NUMBER, "", lambda s, x: s.scaled("yarn", beta_fast=x), lambda s: (1, 2, 4, 8, 16, 24, 48, 64, 96, 128)),
    Mistake(USUAL_NUMBER, "", lambda s, x: s.scaled("yarn", beta_slow=x), lambda s: (2, 4, 8, 16, 32)),
    Mistake(USUAL_NUMBER, "", lambda s, x: replaced_or_none(s.expected, base=x), lambda s: s.bases(is_usual=True)),
    Mistake(USUAL_NUMBER, "", lambda s, x: replaced_or_none(s.unscaled, base=x), lambda s: s.bases(is_usual=True)),
    Mistake(USUAL_NUMBER, "", lambda s, x: None if s.scaling else replaced_or_none(s.expected, scaling=x), lambda s: LLAMA3),
    Mistake(ONE_NUMBER, "the exponents are 2 i / {x}, expected 2 i / {dim}", lambda s, x: s.powers(x / 2), Situation.widths),
    Mistake(ONE_NUMBER, "the frequencies are divided by {x}, as by linear scaling",
            lambda s, x: s.explicit(s.expected.frequencies / x) if x > 1 else None,
            lambda s: s.quotients(s.expected.frequencies)),
    Mistake(ONE_NUMBER, "the frequencies are multiplied by {x}", lambda s, x: s.explicit(s.expected.frequencies * x),
            lambda s: (1 / x for x in s.quotients(s.expected.frequencies))),
    Mistake(ONE_NUMBER, "", lambda s, x: replaced_or_none(s.expected, base=x), lambda s: s.bases(is_usual=False)),
    Mistake(ONE_NUMBER, "", lambda s, x: replaced_or_none(s.unscaled, base=x), lambda s: s.bases(is_usual=False)),
)

ORIENTATIONS: tuple[Orientation, ...] = (
    ("", lambda z: z),
    ("the signs of the sines are reversed", np.conj),
    ("cos and sin are exchanged", lambda z: 1j * np.conj(z)),
    ("values are multiplied by -1, expected 1", np.negative),
)


def candidates(estimate: Phases, expected: Rotary | None, head_dim: int, least: float = 1.0) -> list[Candidate]:
    """Return the candidates in the order of their cost; at least this share of the frequencies is near the estimates."""
    proposed: list[tuple[int, Any, Any]] = [(FORMULA, rotary, None) for rotary in _formulas(estimate, head_dim)]
    if expected is not None:
        proposed.append((NOTHING, expected, ()))
        s = Situation(expected, replaced_or_none(expected, scaling=None) or expected, expected.scaling or {}, estimate)
        count = expected.rotary_dim // 2
        words = {"type": s.scaling.get("rope_type", ""), "dim": 2 * count, "count": count, "last": count - 1}
        for mistake in MISTAKES:
            for x in mistake.values(s):
                text = (mistake.sentence.format(**words, x=x if x in NARROW else number(x)),) if mistake.sentence else None
                proposed.append((mistake.cost, mistake.change(s, x), text))
    proposed.sort(key=lambda row: row[0])
    return [Candidate(cost, [rotary], faults, cost >= USUAL_NUMBER) for cost, rotary, faults in proposed
            if rotary is not None and (cost == NOTHING or estimate.share_near(rotary.frequencies) >= least)]


def _formulas(estimate: Phases, head_dim: int) -> Iterator[Rotary | None]:
    """Yield rotations with geometric frequencies, whose base and scale have more and more digits."""
    w, count = estimate.frequency, len(estimate.frequency)
    turning = np.flatnonzero(estimate.is_known & (w > 0))
    if not len(turning):
        return
    blank = Rotary(head_dim, rotary_dim=2 * count)
    line = line_through(turning, w[turning], estimate.error[turning] / w[turning])
    # frequencies that were computed in float32 show a usual base only approximately
    for errors, least in ((4, match.TIGHT), *((errors, 2.0**-52) for errors, _ in match.FITTED_DIGITS)):
        base = blank.base if len(turning) == 1 else line.base(count, errors, least, BASES)
        if base is not None and (base in BASES or least < match.TIGHT):
            yield replaced_or_none(blank, base=base, frequency_scale=line.multiple(errors, least))


def explicit(estimate: Phases, head_dim: int) -> Candidate:
    """Return the rotation with the estimated frequencies."""
    values = np.where(np.abs(estimate.frequency) > estimate.error + 2.0**-50, estimate.frequency, 0.0)
    return Candidate(EVERY_FREQUENCY, [Rotary(head_dim, rotary_dim=2 * len(values), frequencies=values)], None)


def replaced_or_none(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, such as longrope factors for another width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


# ---- sentences ------------------------------------------------------------------------------------------------------


def not_rotated(values: Any) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def differences(rotary: Rotary, expected: Rotary, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones.

    `source` is the text that precedes an expected value.
    """
    if any(each.to_dict()["rotary"]["frequencies"] is not None for each in (rotary, expected)):
        return _explicit_differences(rotary.frequencies, expected.frequencies)
    faults = []
    for keyword in ("base", "frequency_scale"):
        x, y = getattr(rotary, keyword), getattr(expected, keyword)
        text = number if number(x) != number(y) else repr
        faults += [f"{keyword} is {text(x)}, {source} {text(y)}"] if x != y else []
    scaling, expected_scaling = rotary.scaling or {}, expected.scaling or {}
    name, expected_name = scaling.get("rope_type"), expected_scaling.get("rope_type")
    if name is None and expected_name is not None:
        faults.append(f"the scaling {expected_name} is not applied")
    elif name != expected_name:
        factor = f" with factor {number(scaling['factor'])}" if "factor" in scaling else ""
        faults.append(f"the scaling {name}{factor} is applied, {source} {expected_name or 'none'}")
    for key in scaling if name == expected_name else ():
        if scaling[key] != expected_scaling.get(key) and key != "attention_factor":
            numbers = scaling[key], expected_scaling.get(key, "the default")
            values = [number(v) if isinstance(v, float) else str(v) for v in numbers]
            faults.append(f"{key} of the scaling {name} is {values[0]}, {source} {values[1]}")
    return tuple(faults)


def _explicit_differences(w: Reals, f: Reals) -> tuple[str, ...]:
    """Return sentences for the differences of frequencies w from the expected f, one of which follows no formula."""
    differ = np.flatnonzero(np.abs(w - f) > 1e-3 * np.abs(f))
    if not len(differ):
        return ("the frequencies differ slightly from the expected ones",)
    unrotated, turned = differ[w[differ] == 0], differ[w[differ] != 0]
    faults = [not_rotated(unrotated)] if len(unrotated) else []
    if len(turned):
        k, which = turned[0], pairs(turned)
        sentence = f"the frequencies of {which} differ: pair {k} has {w[k]:.6g}, expected {f[k]:.6g}"
        faults.append(sentence if len(turned) > 1 else f"the frequency of {which} is {w[k]:.6g}, expected {f[k]:.6g}")
    return tuple(faults)


def of_scale(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return the fault if the scale of cosines and sines is wrong."""
    if expected is None or math.isclose(size_of(rotary), size_of(expected), rel_tol=1e-6):
        return ()
    attention = expected.attention_scaling
    for factor, words in ((1.0, "is missing"), (attention**2, "is applied twice"), (1 / attention, "is inverted")):
        if not math.isclose(attention, 1) and math.isclose(size_of(rotary), expected.scale * factor, rel_tol=1e-3):
            return (f"attention_scaling {attention:.4g} {words}",)
    return (f"cosines and sines are multiplied by {number(size_of(rotary))}, {source} {number(size_of(expected))}",)


def of_layout(reading: Reading, expected: Rotary | None, source: str) -> tuple[Any, tuple[str, ...], tuple[str, ...]]:
    """Return the layout of a rotation, its faults, and its remarks."""
    layout = reading.layout or reading.repeated
    expected_layout = (layout or "halves") if expected is None else expected.layout
    if layout in (None, expected_layout) or expected is not None and expected.rotary_dim == 2:      # a pair has one layout
        return expected_layout, (), ()
    if reading.layout:
        return layout, (f"layout is {layout}, {source} {expected_layout}",), ()
    if layout == "halves":
        remark = "the tables have their columns twice, as halves, and do not show the layout of the rotation"
        return expected_layout, (), (remark,)
    twice = "the tables have each column twice in succession, as for layout interleaved"
    return expected_layout, (f"{twice}, {source} {expected_layout}",), ()


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str, computes_in: str) -> tuple[str, ...]:
    """Return the faults of an arithmetic; the right values may need no more bits than the table has."""
    table = how.table if PRECISION[how.table] < PRECISION[dtype] and how.table != computes_in else ""
    needed = match.both_rounded(reference, dtype)
    if table and PRECISION[match.narrowest(np.stack([needed.real, needed.imag]), dtype)] <= PRECISION[table]:
        table = ""
    above = f" above {2 ** PRECISION.get(how.positions, 0):,}"
    roundings = (("inv_freq was", how.frequencies, ""), ("positions were", how.positions, above),
                 ("angles were", how.angles, ""), ("tables were", table, ""))
    return tuple(f"{subject} rounded to {name}{where}" for subject, name, where in roundings if name in NARROW)


def of_rows(reading: Reading, evidence: Evidence, rotary: Rotary, how: Arithmetic, is_whole: bool) -> tuple[str, float]:
    """Compare all rows with the rotation found in the sample, or in its first rows if `is_whole` is False.

    Return the fault of the rows that differ, and the last position before them.
    """
    total = len(reading.positions)
    if is_whole and (len(reading.rows) == total or how.is_narrow):
        return "", math.inf
    how = how._replace(angles="float32") if is_whole else how           # perhaps only other rows show float32 angles

    def differs(positions: Array, values: Waves) -> Mask:
        at, values = positions + evidence.shift, evidence.turned(values)
        is_wrong = rotation_curve(rotary, at, how).differs(values, how)
        return np.asarray((is_wrong | ~np.isfinite(values))[:, evidence.sample.columns].any(axis=1))

    parts = chunks(total, len(rotary.frequencies))
    differing = np.flatnonzero(np.concatenate([differs(reading.positions[rows], reading.read(rows)) for rows in parts]))
    if not len(differing):
        return "" if is_whole else "the values at some positions differ", math.inf
    row = int(differing[0])
    last_right, first_wrong = (int(abs(reading.positions[k])) for k in (max(row - 1, 0), row))
    if len(differing) < total - row or row == 0 or total - row == 1:
        which = "1 row differs, at" if len(differing) == 1 else f"{len(differing)} rows differ, the first at"
        return f"{which} position {first_wrong:,}", last_right
    call, rows_there = reading.call, reading.read([row, row - 1, 0])
    if call is not None:
        def is_wrong_at(position: int) -> bool:
            at = np.array([position])
            return bool(differs(at, call(at))[0])

        first_wrong = last_right + 1 + bisect.bisect_left(range(last_right + 1, first_wrong), True, key=is_wrong_at)
        last_right = first_wrong - 1
        rows_there = np.concatenate([call(np.array([position])) for position in (first_wrong, last_right, 0)])
    if np.array_equal(rows_there[0], rows_there[2]):
        return f"the table ends at {first_wrong:,} and repeats", last_right
    if np.array_equal(rows_there[0], rows_there[1]):
        return f"the table ends at {first_wrong:,} and its last row is repeated", last_right
    return f"the values differ from position {first_wrong:,} on", last_right
