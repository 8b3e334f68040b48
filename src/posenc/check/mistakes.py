"""Mistakes: the candidates for a rotation, each with the sentence that names it.

To add a kind of mistake, add a row to a table: `ORIENTATIONS` has transformations of cosines and sines, `SLIPS` and
`NUMBERS` those of the expected rotation.  If the row has a sentence, add its first words to `GUIDE` in
report.py, a line to the guide in docs/check.md, and a model with the mistake to tests/rotary_models_small.py.
reading.py has the sentences about calls and the order of columns, comparison.py those about rows and offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.evidence import FITTED_DIGITS, TURNS, WIDEST_RATIO, Phases, line_through, short
from posenc.check.match import NARROW, PRECISION, SIGMAS, TIGHT, Arithmetic, Reals, Waves, size_of
from posenc.check.reading import Reading, number, pairs

BASES = (10000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0, 100.0, 150000.0, 160000.0, 250000.0, 256.0, 2000.0)
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 1024, 512)


class Candidate(NamedTuple):
    """A rotation with its faults, None if its keywords show them."""

    rotary: Rotary
    faults: tuple[str, ...] | None
    is_fitted: bool                     # whether a number was estimated or chosen


class Situation(NamedTuple):
    """The expected rotation, with and without its scaling, which mistakes change, and the estimates."""

    expected: Rotary
    unscaled: Rotary
    scaling: dict[str, Any]     # empty if the rotation has no scaling
    estimate: Phases

    @property
    def half(self) -> int:
        """The number of pairs."""
        return self.expected.rotary_dim // 2

    def powers(self, divisor: float, dtype: str = "") -> Rotary | None:
        """Return the rotation with exponents i / divisor, computed in a dtype; None with a scaling or axes."""
        if self.scaling or self.expected.axes is not None or self.half < 2:
            return None
        base, exponents = (match.rounded(x, dtype) for x in (
            np.full(self.half, self.unscaled.base), np.arange(self.half) / divisor))
        inverse = match.rounded(1 / match.rounded(base**exponents, dtype), dtype)
        return self.explicit(self.unscaled.frequency_scale * inverse)

    def explicit(self, frequencies: Reals) -> Rotary | None:
        return replaced_or_none(self.expected, frequencies=frequencies, scale=size_of(self.expected))

    def scaled(self, types: str, **keywords: Any) -> Rotary | None:
        """Return the rotation with other keywords of its scaling, if this has one of the types."""
        is_type = self.scaling.get("rope_type", "") in types.split()
        return replaced_or_none(self.expected, scaling=self.scaling | keywords) if is_type else None

    def quotients(self, frequencies: Reals, first: int = 0, power: bool = False, stop: int | None = None) -> Iterator[float]:
        """Yield the quotient of frequencies and estimates, from the best pair among `first` to `stop`.

        With `power`, the quotient is that of the bases: the frequency of pair i is divided by its power i / half.
        """
        w = self.estimate.frequency
        k = np.flatnonzero(self.estimate.is_known & (frequencies * w > 0) & (np.arange(len(w)) >= power))[first:stop]
        exponents = self.half / k if power else np.ones(len(k))
        errors = exponents * (SIGMAS * self.estimate.error[k] / np.abs(w[k]) + TIGHT)
        if len(k) and errors.min() < 1:
            best = int(np.argmin(errors))
            logarithm = exponents[best] * math.log(frequencies[k[best]] / w[k[best]])
            if abs(logarithm) < WIDEST_RATIO:
                yield short(math.exp(logarithm), float(errors[best]), () if power else TURNS, 8)

    def factors(self) -> Iterator[float]:
        """Yield the factor of a scaling that divides the last frequencies."""
        return self.quotients(self.unscaled.frequencies, -1)

    def bases(self) -> Iterator[float]:
        """Yield the bases of `BASES` near an estimate, and the estimate as a short number.

        The base is estimated from the pairs that yarn and llama3 do not change, then from all pairs.
        """
        for stop in (max(3, self.half // 4), None):
            for quotient in self.quotients(self.expected.frequencies, 0, True, stop):
                base = self.expected.base * quotient
                yield from (b for b in BASES if abs(math.log(b / base)) < 0.03)
                yield short(base, 1e-6)


class Mistake(NamedTuple):
    """A mistake: `change` returns the wrong rotation for each of the values that a parameter may have.

    The sentence may contain the value as {x}.  If the sentence is empty, the report names the keywords that differ.
    """

    sentence: str
    change: Callable[[Situation, Any], Rotary | None]
    values: Callable[[Situation], Iterable[Any]] = lambda s: (0,)


def _twice(s: Situation) -> Reals:
    f, unscaled = s.expected.frequencies, s.unscaled.frequencies
    return f * np.divide(f, unscaled, out=np.zeros_like(f), where=unscaled != 0)


SLIPS = (            # without a free number, the likely ones first
    Mistake("the scaling {type} is not applied", lambda s, _: s.unscaled if s.scaling else None),
    Mistake("the scaling {type} is applied twice", lambda s, _: s.explicit(_twice(s)) if s.scaling else None),
    Mistake("beta_fast and beta_slow of the scaling yarn are exchanged", lambda s, _: s.scaled(
        "yarn", beta_fast=s.scaling.get("beta_slow", 1.0), beta_slow=s.scaling.get("beta_fast", 32.0))),
    Mistake("the exponents are i / {dim}, expected 2 i / {dim}", lambda s, _: s.powers(2 * s.half)),
    Mistake("the exponents are 4 i / {dim}, expected 2 i / {dim}", lambda s, _: s.powers(s.half / 2)),
    Mistake("the exponents are i / {last}, expected i / {count}", lambda s, _: s.powers(s.half - 1)),
    Mistake("inv_freq was computed in {x}", lambda s, x: s.powers(s.half, x), lambda s: NARROW),
    Mistake("the frequencies are the reciprocals of the expected ones",
            lambda s, _: s.explicit(1 / s.expected.frequencies) if s.expected.frequencies.all() else None),
    Mistake("the frequencies are in reverse order", lambda s, _: s.explicit(s.expected.frequencies[::-1])),
)
NUMBERS = (          # with a number that many models have, then with any number
    Mistake("the frequencies of the scaling {type} are those for sequences of {x} positions",
            lambda s, x: s.scaled("dynamic longrope", length=x), lambda s: (
                s.scaling.get("original_max_position_embeddings", 0) + 1, *LENGTHS)),
    Mistake("", lambda s, x: s.scaled("yarn", truncate=x), lambda s: (not s.scaling.get("truncate", True),)),
    Mistake("", lambda s, x: s.scaled("linear yarn llama3", factor=x), Situation.factors),
    Mistake("", lambda s, x: s.scaled("ntk_alpha", alpha=x), Situation.factors),
    Mistake("", lambda s, x: s.scaled("yarn llama3", original_max_position_embeddings=x), lambda s: (
        round(s.scaling.get("original_max_position_embeddings", 0) * s.scaling.get("factor", 1)), *LENGTHS)),
    Mistake("", lambda s, x: s.scaled("yarn", beta_fast=x), lambda s: (1, 2, 4, 8, 16, 24, 48, 64, 96, 128)),
    Mistake("", lambda s, x: s.scaled("yarn", beta_slow=x), lambda s: (2, 4, 8, 16, 32)),
    Mistake("", lambda s, x: replaced_or_none(s.expected, base=x), Situation.bases),
    Mistake("", lambda s, x: replaced_or_none(s.unscaled, base=x), Situation.bases),
    Mistake("", lambda s, x: None if s.scaling else replaced_or_none(s.expected, scaling=LLAMA3 | {"factor": x}),
            lambda s: (8.0, 32.0)),
    Mistake("the exponents are 2 i / {x}, expected 2 i / {dim}", lambda s, x: s.powers(x / 2),
            lambda s: (2 * s.half * k for k in range(3, 129))),
    Mistake("", lambda s, x: replaced_or_none(s.expected, frequency_scale=s.expected.frequency_scale / x),
            lambda s: s.quotients(s.expected.frequencies)),
)

# a sentence, and a transformation of cos + i sin that is its own inverse
ORIENTATIONS: tuple[tuple[str, Callable[[Waves], Waves]], ...] = (
    ("", lambda z: z),
    ("the signs of the sines are reversed", np.conj),
    ("cos and sin are exchanged", lambda z: 1j * np.conj(z)),
    ("values are multiplied by -1, expected 1", np.negative),
)


def candidates(estimate: Phases, expected: Rotary | None, head_dim: int) -> Iterator[Candidate]:
    """Yield the candidates whose frequencies are near the estimates, first the expected one."""
    if expected is not None:
        yield Candidate(expected, (), False)
        s = Situation(expected, replaced_or_none(expected, scaling=None) or expected, expected.scaling or {}, estimate)
        words = {"type": s.scaling.get("rope_type", ""), "dim": 2 * s.half, "count": s.half, "last": s.half - 1}
    for mistake in (*SLIPS, *NUMBERS) if expected is not None else ():
        for x in mistake.values(s):
            rotary = mistake.change(s, x)
            if rotary is not None and estimate.share_near(rotary.frequencies) == 1:
                sentence = mistake.sentence.format(**words, x=x if x in NARROW else number(x))
                yield Candidate(rotary, (sentence,) if sentence else None, mistake in NUMBERS)
    for rotary in _formulas(estimate, head_dim):
        if rotary is not None and estimate.share_near(rotary.frequencies) == 1:
            yield Candidate(rotary, None, True)


def _formulas(estimate: Phases, head_dim: int) -> Iterator[Rotary | None]:
    """Yield rotations with geometric frequencies, whose base and scale have more and more digits."""
    w, count = estimate.frequency, len(estimate.frequency)
    turning = np.flatnonzero(estimate.is_known & (w > 0))
    if not len(turning):
        return
    blank = Rotary(head_dim, rotary_dim=2 * count)
    line = line_through(turning, w[turning], estimate.error[turning] / w[turning])
    # frequencies that were computed in float32 show a usual base only approximately
    for errors, least in ((4, TIGHT), *((errors, 2.0**-52) for errors, _ in FITTED_DIGITS)):
        base = blank.base if len(turning) == 1 else line.base(count, errors, least, BASES)
        if base is not None and (base in BASES or least < TIGHT):
            yield replaced_or_none(blank, base=base, frequency_scale=line.multiple(errors, least))


def explicit(estimate: Phases, head_dim: int) -> Candidate:
    """Return the rotation with the estimated frequencies."""
    values = np.where(np.abs(estimate.frequency) > estimate.error + 2.0**-50, estimate.frequency, 0.0)
    return Candidate(Rotary(head_dim, rotary_dim=2 * len(values), frequencies=values), None, True)


def replaced_or_none(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, as for another width of longrope."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


# ---- sentences ---------------------------------------------------------------------------------------------


def not_rotated(values: Any) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def differences(rotary: Rotary, expected: Rotary, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones.

    `source` is the text that precedes an expected value.
    """
    if any(each.to_dict()["rotary"]["frequencies"] is not None for each in (rotary, expected)):
        return _explicit_differences(rotary.frequencies, expected.frequencies)
    scaling, expected_scaling = rotary.scaling or {}, expected.scaling or {}
    name, expected_name = scaling.get("rope_type"), expected_scaling.get("rope_type")
    values: dict[str, tuple[Any, Any]] = {
        "base": (rotary.base, expected.base), "frequency_scale": (rotary.frequency_scale, expected.frequency_scale)}
    if name == expected_name:
        values |= {f"{key} of the scaling {name}": (value, expected_scaling.get(key, "the default"))
                   for key, value in scaling.items() if key != "attention_factor"}
    faults = []
    for key, both in values.items():
        texts = [number(x) if isinstance(x, float) else str(x) for x in both]
        texts = texts if texts[0] != texts[1] else [*map(repr, both)]
        faults += [f"{key} is {texts[0]}, {source} {texts[1]}"] if both[0] != both[1] else []
    if name is None and expected_name is not None:
        faults.append(f"the scaling {expected_name} is not applied")
    elif name != expected_name:
        factor = f" with factor {number(scaling['factor'])}" if "factor" in scaling else ""
        faults.append(f"the scaling {name}{factor} is applied, {source} {expected_name or 'none'}")
    return tuple(faults)


def _explicit_differences(w: Reals, f: Reals) -> tuple[str, ...]:
    """Return sentences for the differences of frequencies w from f, one of which follows no formula."""
    differ = np.flatnonzero(np.abs(w - f) > 1e-3 * np.abs(f))
    unrotated, turned = differ[w[differ] == 0], differ[w[differ] != 0]
    faults = [not_rotated(unrotated)] if len(unrotated) else []
    if len(turned):
        k, values = turned[0], f"{w[turned[0]]:.6g}, expected {f[turned[0]]:.6g}"
        several = f"the frequencies of {pairs(turned)} differ: pair {k} has {values}"
        faults.append(several if len(turned) > 1 else f"the frequency of pair {k} is {values}")
    return (*faults,) or ("the frequencies differ slightly from the expected ones",)


def of_scale(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return the fault if the scale of cosines and sines is wrong."""
    if expected is None or math.isclose(size_of(rotary), size_of(expected), rel_tol=1e-6):
        return ()
    attention = expected.attention_scaling
    for factor, words in ((1.0, "is missing"), (attention**2, "is applied twice"), (1 / attention, "is inverted")):
        if not math.isclose(attention, 1) and math.isclose(size_of(rotary), expected.scale * factor, rel_tol=1e-3):
            return (f"attention_scaling {attention:.4g} {words}",)
    return (f"cosines and sines are multiplied by {number(size_of(rotary))}, {source} {number(size_of(expected))}",)


def of_layout(reading: Reading, expected: Rotary | None, source: str) -> tuple[Any, tuple[str, ...]]:
    """Return the layout of a rotation, and its fault."""
    # tables that repeat all columns, as halves, are also used for interleaved columns
    shown = reading.layout or (reading.repeated if reading.repeated == "interleaved" else None)
    if expected is None or shown in (None, expected.layout) or expected.rotary_dim == 2:       # a pair has one layout
        return (shown or reading.repeated or "halves") if expected is None else expected.layout, ()
    return shown, (f"layout is {shown}, {source} {expected.layout}",)


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str, computes_in: str) -> tuple[str, ...]:
    """Return the faults of an arithmetic; the right values may need no more bits than the table has."""
    table = how.table if PRECISION[how.table] < PRECISION[dtype] and how.table != computes_in else ""
    if table and PRECISION[match.narrowest(match.both_rounded(reference, dtype), dtype)] <= PRECISION[table]:
        table = ""
    above = f" above {2 ** PRECISION.get(how.positions, 0):,}"
    roundings = (("inv_freq was", how.frequencies, ""), ("positions were", how.positions, above),
                 ("angles were", how.angles, ""), ("tables were", table, ""))
    return tuple(f"{subject} rounded to {name}{where}" for subject, name, where in roundings if name in NARROW)
