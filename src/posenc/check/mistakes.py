"""Mistakes: the candidates for a wrong rotation, and the sentences that name its differences.

Other frequencies are those of `candidates`; a transformation of cosines and sines has a row in `ORIENTATIONS`.
Each sentence has a line in the guide in docs/check.md, and a model in tests/rotary_models_small.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.match import NARROW, Arithmetic, Phases, Waves

NO_VALUE = "no value is finite"


def pairs(values: Any) -> str:
    """Return sorted pairs of columns as text: "pair 3", "pairs 0 to 7", "pairs 1, 5, 9, 11 ..."."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"pairs {values[0]} to {values[-1]}"
    return f"pair{'s'[: len(values) - 1]} {', '.join(map(str, values[:4]))}{' ...' * (len(values) > 4)}"


def not_rotated(columns: Any) -> str:
    """Return the sentence for pairs of columns that are not rotated."""
    return f"{pairs(columns)} {'are' if len(columns) > 1 else 'is'} not rotated"


# ---- candidates --------------------------------------------------------------------------------------------

SHORT = 64              # standard errors within which a number is rounded if this gives the values
BASES = (1e4, 5e5, 1e6, 5e6, 1e7, 100.0, 1.5e5, 1.6e5, 2.5e5, 256.0, 2000.0)

# a fault, and a transformation of cos + i sin that is its own inverse
ORIENTATIONS: tuple[tuple[str, Callable[[Waves], Waves]], ...] = (
    ("", lambda z: z), ("the signs of the sines are reversed", np.conj),
    ("cos and sin are exchanged", lambda z: 1j * np.conj(z)))


def candidates(estimate: Phases, r: Rotary | None, blank: Rotary) -> Iterator[Rotary]:
    """Yield the expected rotation, others with its scaling or none, and geometric ones, near the estimates.

    `blank` has the number of columns and other keywords by default.
    """
    others = list[Rotary]()
    if r is not None:
        yield r
        if r.scaling is not None:
            others = [r.replace(scaling=None), *(r.replace(base=base) for base in BASES)]
    for sigmas in (SHORT, match.PRECISE):       # short numbers, then precise ones
        multiple, bases = estimate.geometric([len(blank.frequencies)], BASES, sigmas)
        others += [blank.replace(base=base, frequency_scale=multiple) for base in bases]
    yield from (each for each in others if estimate.are_near(each.frequencies))


# ---- differences -------------------------------------------------------------------------------------------


def of_frequencies(rotary: Rotary, expected: Rotary) -> Iterator[str]:
    """Yield the differences between frequencies."""
    w, f = rotary.frequencies, expected.frequencies
    if all(each.to_dict()["rotary"]["frequencies"] is None for each in (rotary, expected)):     # formulas
        for key in ("base", "frequency_scale"):
            if (x := getattr(rotary, key)) != (y := getattr(expected, key)):
                yield f"{key} is {x:.12g}, expected {y:.12g}"
        if rotary.scaling is None and expected.scaling is not None:
            yield f"the scaling {expected.scaling['rope_type']} is not applied"
        return
    differ = np.flatnonzero(np.abs(w - f) > match.SLIGHT * np.abs(f))
    still, others = differ[w[differ] == 0], differ[w[differ] != 0]
    if len(still):
        yield not_rotated(still)
    for k in others[:1]:
        yield f"the frequencies of {pairs(others)} differ; the first is {w[k]:.6g}, expected {f[k]:.6g}"
    if not len(differ) and np.any(w != f):
        yield "the frequencies differ slightly from the expected ones"


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str) -> Iterator[str]:
    """Yield the faults of an arithmetic; the right values may need no more bits than the table has."""
    bits = match.PRECISION
    needed = match.narrowest(match.rounded(reference, dtype), dtype)
    is_rounded = bits[how.table] < min(bits[dtype], bits[needed])
    for name, dtype in (("inv_freq was", how.frequencies), ("positions were", how.positions),
                        ("angles were", how.angles), ("tables were", how.table if is_rounded else "")):
        if dtype in NARROW:
            yield f"{name} rounded to {dtype}"
