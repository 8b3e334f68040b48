"""The faults: a table with the threshold and the sentence of each, and the candidates for a wrong rotation.

To add a fault, add a row to `FAULTS`.  If it is a rotation with other frequencies, add this to `candidates`;
if cosines and sines are transformed, add a row to `ORIENTATIONS`.  Then add a line to the guide in
docs/check.md, and a model to tests/rotary_models_small.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.match import NARROW, Arithmetic, Phases, Waves, size_of

ALIKE = 1e-2            # results of float16 arithmetic differ by less
ROUNDED = 16 * 2.0**-24         # of rotated float32 vectors; narrower dtypes have 16 of their own half ulps


class Fault(NamedTuple):
    """A fault: relative differences up to the threshold are none.

    The threshold 0 stands for the rule of match.py, or for any difference if numbers are not compared.
    """

    threshold: float
    sentence: str


FAULTS = {
    # calls: reading.py; heads and caches: models.py
    "short": Fault(0, "{}; the configuration has max_position_embeddings {:,}"),
    "alone": Fault(ALIKE, "a call with a single row has other values than a call with several rows"),
    "heads": Fault(0, "the heads are not rotated alike: head {} differs from head 0"),
    "cache": Fault(ROUNDED, "{} of a call with a cache have other values than those of a call without"),
    # columns: reading.py; width, layout and axes: rotations.py
    "nothing": Fault(0, "no value is finite"),
    "pairing": Fault(ROUNDED, "the result is not linear in pairs of columns, as halves or interleaved"),
    "factor": Fault(0, "columns {} are multiplied by a factor but not rotated"),
    "cosines": Fault(ALIKE, "the cosines have the layout {}, but the columns are paired as {}"),
    "matrix": Fault(2 * ROUNDED, "the result is not a rotation of x: pairs differ by {:.2g} of their length"),
    "order": Fault(0, "the result has its columns in another order: columns {} become columns {}"),
    "orders": Fault(0, "the columns have another order than those of queries"),
    "width": Fault(0, "{} columns are rotated, expected {}"),
    "layout": Fault(0, "layout is {}, expected {}"),
    "axes": Fault(ALIKE, "the pairs have the positions of other axes than expected"),
    # frequencies: below; layers without a rotation: models.py
    "base": Fault(0, "base is {:.12g}, expected {:.12g}"),
    "frequency_scale": Fault(0, "frequency_scale is {:.12g}, expected {:.12g}"),
    "scaling": Fault(0, "the scaling {} is not applied"),
    "exponents": Fault(0, "the exponents are 2 i / {:g}, expected 2 i / {}"),
    "computed": Fault(0, "inv_freq was computed in {}"),
    "frequencies": Fault(1e-3, "the frequencies of {} differ; the first is {:.6g}, expected {:.6g}"),
    "slightly": Fault(0, "the frequencies differ slightly from the expected ones"),
    "still": Fault(0, "{} {} not rotated"),
    "unstated": Fault(0, "queries and keys are rotated, the configuration has no rotation for this layer"),
    # cosines and sines: below, and rotations.py
    "signs": Fault(0, "the signs of the sines are reversed"),
    "exchanged": Fault(0, "cos and sin are exchanged"),
    "negated": Fault(0, "values are multiplied by -1, expected 1"),
    "scale": Fault(1e-6, "cosines and sines are multiplied by {}, expected {}"),
    # positions: rotations.py
    "start": Fault(0, "positions start at {}, expected {}"),
    "finite": Fault(0, "some values are not finite, for example at position {:,}"),
    "rows": Fault(0, "the values at {} of {} positions differ, the first at {:,}"),
    # arithmetic: below
    "inv_freq": Fault(0, "inv_freq was rounded to {}"),
    "positions": Fault(0, "positions were rounded to {} above {:,}"),
    "angles": Fault(0, "angles were rounded to {}"),
    "tables": Fault(0, "tables were rounded to {}"),
    # none of these: models.py for given positions on several axes, and rotations.py
    "given": Fault(ALIKE, "queries or keys differ from those expected by up to {:.2g} of the largest one"),
    "unknown": Fault(ALIKE, "no known rotation gives these values{}"),
}


def fault(name: str, *values: Any) -> str:
    """Return the sentence of a fault."""
    return FAULTS[name].sentence.format(*values)


def numbers(values: Any) -> str:
    """Return sorted integers as text: "3", "0 to 7", "1, 5, 9 ..."."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values[:4])) + (" ..." if len(values) > 4 else "")


def pairs(values: Any) -> str:
    """Return pairs of columns as text: "pair 3", "pairs 0 to 7"."""
    return f"pair{'s' if len(values) > 1 else ''} {numbers(values)}"


def number(x: float, digits: int = 6) -> str:
    """Return a number as text: integers in full, others with some digits."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.{digits}g}"


def not_rotated(columns: Any) -> str:
    return fault("still", pairs(columns), "are" if len(columns) > 1 else "is")


# ---- candidates --------------------------------------------------------------------------------------------

SHORT = 64              # standard errors within which a number is rounded if this gives the values
BASES = (1e4, 5e5, 1e6, 5e6, 1e7, 100.0, 1.5e5, 1.6e5, 2.5e5, 256.0, 2000.0)

# a fault, and a transformation of cos + i sin that is its own inverse; the last one is right if the expected
# scale is negative
ORIENTATIONS: tuple[tuple[str, Callable[[Waves], Waves]], ...] = (
    ("", lambda z: z), ("signs", np.conj), ("exchanged", lambda z: 1j * np.conj(z)), ("negated", np.negative))


# a rotation, and the sentence that names the mistake; "" if its keywords show the differences
Candidate: TypeAlias = tuple[Rotary, str]


def named(estimate: Phases, r: Rotary | None) -> Iterator[Candidate]:
    """Yield the expected rotation, then those with usual mistakes that are near the estimates."""
    if r is None:
        return
    yield r, ""
    half = r.rotary_dim // 2
    if r.scaling is not None:
        for other in (r.replace(scaling=None), *(replaced_or_none(r, base=base) for base in BASES)):
            if other and estimate.are_near(other.frequencies):
                yield other, ""
    elif has_formula(r):
        formulas = [(fault("exponents", 2 * k, 2 * half), r.base ** (-np.arange(half) / max(k, 1)))
                    for k in (half / 2, half - 1, *(n * half for n in range(2, 129)))]
        for dtype in NARROW:
            exponents = match.rounded(np.arange(half) / half, dtype)
            powers = match.rounded(match.rounded(np.full(half, r.base), dtype) ** exponents, dtype)
            formulas.append((fault("computed", dtype), match.rounded(1 / powers, dtype)))
        for sentence, frequencies in formulas:
            if estimate.are_near(w := r.frequency_scale * frequencies):
                yield r.replace(frequencies=w, scale=size_of(r)), sentence


def fitted(estimate: Phases, blank: Rotary) -> Iterator[Candidate]:
    """Yield rotations with geometric frequencies: with short numbers, then with precise ones.

    `blank` has the number of columns and other keywords by default.
    """
    for sigmas in (SHORT, match.PRECISE):
        multiple, bases = estimate.geometric([len(blank.frequencies)], BASES, sigmas)
        for base in bases:
            rotary = replaced_or_none(blank, base=base, frequency_scale=multiple)
            if rotary and estimate.are_near(rotary.frequencies):
                yield rotary, ""


def replaced_or_none(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, as for longrope of other width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


def has_formula(rotary: Rotary) -> bool:
    """Return whether keywords determine the frequencies, instead of an array."""
    return rotary.to_dict()["rotary"]["frequencies"] is None


# ---- differences -------------------------------------------------------------------------------------------


def of_frequencies(rotary: Rotary, expected: Rotary) -> Iterator[str]:
    """Yield the differences between frequencies."""
    w, f = rotary.frequencies, expected.frequencies
    is_comparable = expected.scaling is None or rotary.frequency_scale == expected.frequency_scale
    if has_formula(rotary) and has_formula(expected) and is_comparable:
        for key in ("base", "frequency_scale"):
            if (x := getattr(rotary, key)) != (y := getattr(expected, key)):
                yield fault(key, x, y)
        if rotary.scaling is None and expected.scaling is not None:
            yield fault("scaling", expected.scaling["rope_type"])
        return
    differ = np.flatnonzero(np.abs(w - f) > FAULTS["frequencies"].threshold * np.abs(f))
    still, others = differ[w[differ] == 0], differ[w[differ] != 0]
    if len(still):
        yield not_rotated(still)
    for k in others[:1]:
        yield fault("frequencies", pairs(others), w[k], f[k])
    if not len(differ) and np.any(w != f):
        yield fault("slightly")


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str) -> Iterator[str]:
    """Yield the faults of an arithmetic; the right values may need no more bits than the table has."""
    bits = match.PRECISION
    needed = match.narrowest(match.rounded(reference, dtype), dtype)
    is_rounded = bits[how.table] < min(bits[dtype], bits[needed])
    for name, of in (("inv_freq", how.frequencies), ("positions", how.positions), ("angles", how.angles),
                     ("tables", how.table if is_rounded else "")):
        if of in NARROW:
            yield fault(name, of, 2 ** bits[of])
