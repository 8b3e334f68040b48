"""Mistakes: the candidates for a rotation, and the sentence that names each difference.

To add a mistake, add a row to `ORIENTATIONS`, if cosines and sines are transformed, or a rotation with a
sentence to `named`.  For a new sentence, add its first words to `GUIDE` in report.py, a line to the guide in
docs/check.md, and a model with the mistake to tests/rotary_models_small.py.  reading.py has the sentences
about calls and the order of columns, rotations.py those about rows and offsets.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.match import FITTED_DIGITS, NARROW, TIGHT, Arithmetic, Phases, Waves, size_of
from posenc.check.reading import Reading, number, pairs

BASES = (1e4, 5e5, 1e6, 5e6, 1e7, 100.0, 1.5e5, 1.6e5, 2.5e5, 256.0, 2000.0)

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


def named(estimate: Phases, r: Rotary | None) -> Iterator[Candidate]:
    """Yield the expected rotation, then those with usual mistakes that are near the estimates."""
    if r is None:
        return
    yield Candidate(r, "")
    half = r.rotary_dim // 2
    if r.scaling is not None:
        for other in (r.replace(scaling=None), *(replaced_or_none(r, base=base) for base in BASES)):
            if other and estimate.are_near(other.frequencies):
                yield Candidate(other, None)
    elif has_formula(r):
        formulas = [(f"the exponents are 2 i / {2 * divisor:g}, expected 2 i / {2 * half}",
                     r.base ** (-np.arange(half) / max(divisor, 1)))
                    for divisor in (half / 2, half - 1, *(k * half for k in range(2, 129)))]
        for dtype in NARROW:
            base, exponents = np.full(half, r.base), match.rounded(np.arange(half) / half, dtype)
            powers = match.rounded(match.rounded(base, dtype) ** exponents, dtype)
            formulas.append((f"inv_freq was computed in {dtype}", match.rounded(1 / powers, dtype)))
        for sentence, frequencies in formulas:
            if estimate.are_near(w := r.frequency_scale * frequencies):
                yield Candidate(r.replace(frequencies=w, scale=size_of(r)), sentence)


def fitted(estimate: Phases, blank: Rotary) -> Iterator[Candidate]:
    """Yield rotations with geometric frequencies, whose base and scale have more and more digits.

    `blank` has the number of columns and other keywords by default.
    """
    if (line := estimate.line()) is None:
        return
    # frequencies that were computed in float32 show a usual base only approximately
    for errors, least in ((4, TIGHT), *FITTED_DIGITS):
        base, multiple = line.base(len(blank.frequencies), errors, least, BASES), line.multiple(errors, least)
        if base in BASES or least < TIGHT:
            rotary = replaced_or_none(blank, base=base, frequency_scale=multiple)
            if rotary and estimate.are_near(rotary.frequencies):
                yield Candidate(rotary, None)


def replaced_or_none(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, as for longrope of other width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


def has_formula(rotary: Rotary) -> bool:
    """Return whether keywords determine the frequencies, instead of an array."""
    return rotary.to_dict()["rotary"]["frequencies"] is None


# ---- sentences ---------------------------------------------------------------------------------------------


def not_rotated(values: Any) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def differences(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones.

    `source` is the text that precedes an expected value.
    """
    if expected is None:
        return ()
    w, f = rotary.frequencies, expected.frequencies
    is_comparable = expected.scaling is None or rotary.frequency_scale == expected.frequency_scale
    if has_formula(rotary) and has_formula(expected) and is_comparable:
        both = ((key, getattr(rotary, key), getattr(expected, key)) for key in ("base", "frequency_scale"))
        faults = [f"{name} is {x:.12g}, {source} {y:.12g}" for name, x, y in both if x != y]
        if rotary.scaling is None and expected.scaling is not None:
            faults.append(f"the scaling {expected.scaling['rope_type']} is not applied")
        return tuple(faults)
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
    if expected is None:
        return reading.layout or "halves", ()
    if reading.layout in (None, expected.layout) or expected.rotary_dim == 2:   # a single pair has one layout
        return expected.layout, ()
    return reading.layout, (f"layout is {reading.layout}, {source} {expected.layout}",)


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str, computes_in: str) -> tuple[str, ...]:
    """Return the faults of an arithmetic; the right values may need no more bits than the table has."""
    needed = match.narrowest(match.both_rounded(reference, dtype), dtype)
    bits = match.PRECISION
    is_rounded = how.table != computes_in and bits[how.table] < min(bits[dtype], bits[needed])
    above = f" above {2 ** bits.get(how.positions, 0):,}"
    roundings = (("inv_freq was", how.frequencies, ""), ("positions were", how.positions, above),
                 ("angles were", how.angles, ""), ("tables were", how.table if is_rounded else "", ""))
    return tuple(f"{what} rounded to {name}{where}" for what, name, where in roundings if name in NARROW)
