"""Mistakes: the candidates for a rotation, each with the sentence that names it.

To add a mistake, add a row to `ORIENTATIONS`, if cosines and sines are transformed, or to `KEYWORDS`, if a keyword
of a scaling has another value, or frequencies and a sentence to `_slips`.  For a new sentence, add its first words
to `GUIDE` in report.py, a line to the guide in docs/check.md, and a model with the mistake to
tests/rotary_models_small.py.  reading.py has the sentences about calls and the order of columns, rotations.py
those about rows and offsets.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.match import FITTED_DIGITS, NARROW, TIGHT, Arithmetic, Phases, Reals, Waves, short, size_of
from posenc.check.reading import Reading, number, pairs

BASES = (1e4, 5e5, 1e6, 5e6, 1e7, 100.0, 1.5e5, 1.6e5, 2.5e5, 256.0, 2000.0)
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 163840, 262144, 1024, 512)

# types of scaling, a keyword, and its values in the configurations of other models
KEYWORDS: tuple[tuple[str, str, tuple[Any, ...]], ...] = (
    ("dynamic longrope", "length", LENGTHS),
    ("yarn", "truncate", (True, False)),
    ("yarn llama3", "original_max_position_embeddings", LENGTHS),
    ("yarn", "beta_fast", (1, 2, 4, 8, 16, 24, 48, 64, 96, 128)),
    ("yarn", "beta_slow", (2, 4, 8, 16, 32)),
)

# a sentence, and a transformation of cos + i sin that is its own inverse
ORIENTATIONS: tuple[tuple[str, Callable[[Waves], Waves]], ...] = (
    ("", lambda z: z),
    ("the signs of the sines are reversed", np.conj),
    ("cos and sin are exchanged", lambda z: 1j * np.conj(z)),
    ("values are multiplied by -1, expected 1", np.negative),
)


class Candidate(NamedTuple):
    """A rotation, and the sentence that names the mistake; None if its keywords show the differences."""

    rotary: Rotary
    sentence: str | None


def candidates(estimate: Phases, expected: Rotary | None, blank: Rotary) -> Iterator[Candidate]:
    """Yield the expected rotation, then the candidates whose frequencies are near the estimates.

    `blank` has the number of columns and other keywords by default.
    """
    if expected is not None:
        yield Candidate(expected, "")
        for frequencies, sentence in _slips(expected):
            if estimate.are_near(frequencies) and (rotary := explicit(expected, frequencies)):
                yield Candidate(rotary, sentence)
    rotations = () if expected is None else _other_keywords(expected, estimate)
    for rotary in itertools.chain(rotations, _formulas(estimate, blank)):
        if rotary is not None and estimate.are_near(rotary.frequencies):
            yield Candidate(rotary, None)


def _slips(r: Rotary) -> Iterator[tuple[Reals, str]]:
    """Yield the frequencies of slips, with their sentences, the likely ones first."""
    f, dim, half = r.frequencies, r.rotary_dim, r.rotary_dim // 2
    if r.scaling is not None:
        factors = f / r.replace(scaling=None).frequencies
        yield f * factors, f"the scaling {r.scaling['rope_type']} is applied twice"
    else:
        divisors = [(dim, f"i / {dim}"), (half / 2, f"4 i / {dim}"), (half - 1, f"2 i / {dim - 2}")]
        divisors += [(k * half, f"2 i / {k * dim}") for k in range(3, 129)]
        for divisor, words in divisors:
            found = r.frequency_scale * r.base ** (-np.arange(half) / divisor)
            yield found, f"the exponents are {words}, expected 2 i / {dim}"
        for dtype in NARROW:
            base, exponents = np.full(half, r.base), match.rounded(np.arange(half) / half, dtype)
            powers = match.rounded(match.rounded(base, dtype) ** exponents, dtype)
            yield r.frequency_scale * match.rounded(1 / powers, dtype), f"inv_freq was computed in {dtype}"
    yield 1 / f, "the frequencies are the reciprocals of the expected ones"
    yield f[::-1], "the frequencies are in reverse order"


def _other_keywords(r: Rotary, estimate: Phases) -> Iterator[Rotary | None]:
    """Yield rotations without the scaling, or with another value of one of its keywords, base or scale."""
    if r.scaling is None:
        return
    scaling, plain, half = r.scaling, r.replace(scaling=None), r.rotary_dim // 2
    yield plain
    w, error = estimate.frequency, estimate.error
    # the last frequencies are divided by the factor
    last = np.flatnonzero(estimate.is_known & (w * plain.frequencies > 0))[-1:]
    factors = [short(plain.frequencies[k] / w[k], match.SIGMAS * error[k] / abs(w[k]) + TIGHT) for k in last]
    of_factors = ("linear yarn llama3", "factor", factors), ("ntk_alpha", "alpha", factors)
    for types, keyword, values in (*KEYWORDS, *of_factors):
        for value in values if scaling["rope_type"] in types.split() else ():
            yield replaced_or_none(r, scaling=scaling | {keyword: value})
    # yarn and llama3 do not change the first frequencies
    if line := estimate.line(np.where(np.arange(half) < max(3, half // 4), r.frequencies, math.nan)):
        base = r.base * math.exp(line.slope * half)
        yield from (replaced_or_none(r, base=usual) for usual in BASES if abs(math.log(usual / base)) < 0.03)
        for errors, least in FITTED_DIGITS:
            yield replaced_or_none(r, base=short(base, errors * half * line.slope_error + least))
            yield replaced_or_none(r, frequency_scale=r.frequency_scale * line.multiple(errors, least))


def _formulas(estimate: Phases, blank: Rotary) -> Iterator[Rotary | None]:
    """Yield rotations with geometric frequencies, whose base and scale have more and more digits."""
    if (line := estimate.line()) is None:
        return
    # frequencies that were computed in float32 show a usual base only approximately
    for errors, least in ((4, TIGHT), *FITTED_DIGITS):
        base, multiple = line.base(len(blank.frequencies), errors, least, BASES), line.multiple(errors, least)
        if base in BASES or least < TIGHT:
            yield replaced_or_none(blank, base=base, frequency_scale=multiple)


def explicit(rotary: Rotary, frequencies: Reals) -> Rotary | None:
    """Return a rotation with other frequencies and the same size of cosines and sines."""
    return replaced_or_none(rotary, frequencies=frequencies, scale=size_of(rotary))


def replaced_or_none(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, as for longrope of other width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


# ---- sentences ---------------------------------------------------------------------------------------------


def not_rotated(values: Any) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def differences(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones.

    `source` is the text that precedes an expected value.
    """
    if expected is None:
        return ()
    if any(each.to_dict()["rotary"]["frequencies"] is not None for each in (rotary, expected)):
        return _explicit_differences(rotary.frequencies, expected.frequencies)
    scaling, other = rotary.scaling or {}, expected.scaling or {}
    kind, expected_kind = scaling.get("rope_type"), other.get("rope_type")
    values = [(name, getattr(rotary, name), getattr(expected, name)) for name in ("base", "frequency_scale")]
    if kind == expected_kind:
        values += [(f"{key} of the scaling {kind}", value, other.get(key, "the default"))
                   for key, value in scaling.items() if key != "attention_factor"]
    faults = []
    for name, *both in values:
        x, y = (f"{value:.12g}" if isinstance(value, float) else value for value in both)
        faults += [f"{name} is {x}, {source} {y}"] if both[0] != both[1] else []
    if kind != expected_kind:
        faults.append(f"the scaling {expected_kind} is not applied")
    return tuple(faults)


def _explicit_differences(w: Reals, f: Reals) -> tuple[str, ...]:
    """Return sentences for the differences of frequencies w from f, one of which follows no formula."""
    differ = np.flatnonzero(np.abs(w - f) > 1e-3 * np.abs(f))
    still, others = differ[w[differ] == 0], differ[w[differ] != 0]
    faults = [not_rotated(still)] if len(still) else []
    faults += [f"the frequencies of {pairs(others)} differ; the first is {w[k]:.6g}, expected {f[k]:.6g}"
               for k in others[:1]]
    return (*faults,) or ("the frequencies differ slightly from the expected ones",)


def of_scale(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return the fault if the scale of cosines and sines is wrong."""
    if expected is None or math.isclose(size_of(rotary), size_of(expected), rel_tol=1e-6):
        return ()
    attention = expected.attention_scaling
    for power, words in ((0, "is missing"), (2, "is applied twice"), (-1, "is inverted")):
        if attention != 1 and math.isclose(size_of(rotary), expected.scale * attention**power, rel_tol=1e-3):
            return (f"attention_scaling {attention:.4g} {words}",)
    both = f"{number(size_of(rotary))}, {source} {number(size_of(expected))}"
    return (f"cosines and sines are multiplied by {both}",)


def of_layout(reading: Reading, expected: Rotary | None, source: str) -> tuple[Any, tuple[str, ...]]:
    """Return the layout of a rotation, and its fault."""
    # tables that repeat all columns, as halves, are also used for interleaved columns
    shown = reading.layout or (reading.repeated if reading.repeated == "interleaved" else None)
    if expected is None:
        return shown or reading.repeated or "halves", ()
    if shown in (None, expected.layout) or expected.rotary_dim == 2:            # a single pair has one layout
        return expected.layout, ()
    return shown, (f"layout is {shown}, {source} {expected.layout}",)


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str, computes_in: str) -> tuple[str, ...]:
    """Return the faults of an arithmetic; the right values may need no more bits than the table has."""
    needed = match.narrowest(match.both_rounded(reference, dtype), dtype)
    bits = match.PRECISION
    is_rounded = how.table != computes_in and bits[how.table] < min(bits[dtype], bits[needed])
    above = f" above {2 ** bits.get(how.positions, 0):,}"
    roundings = (("inv_freq was", how.frequencies, ""), ("positions were", how.positions, above),
                 ("angles were", how.angles, ""), ("tables were", how.table if is_rounded else "", ""))
    return tuple(f"{what} rounded to {name}{where}" for what, name, where in roundings if name in NARROW)
