"""Mistakes: the candidates for a rotation, each with what it costs to believe it.

To add a kind of mistake, add a row to one of three tables: `ORIENTATIONS` has transformations of cosines and sines, `MISTAKES`
those of frequencies, with their sentences, and `KEYWORDS` the keywords that may have another value.  Then add the first words
of its sentence to `GUIDE` in report.py, a line to the guide in docs/check.md, and a model with the mistake to
tests/rotary_faults.py.  Mistakes in the columns of a function are in functions.py, the precisions in arithmetic.py, and tables
that end or repeat in match_rotary.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check.arithmetic import size_of
from posenc.check.fits import TURNS, line_through, short
from posenc.check.limits import EXTREME_BASE, FITTED_DIGITS, LOOSE, SIGMAS, TIGHT
from posenc.check.reading import numbers

BASES = (10000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0, 100.0, 150000.0, 160000.0, 250000.0, 256.0, 2000.0)
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 1024, 512)

# What it costs to believe a candidate; those of equal cost are tried in the order of the tables.
NOTHING = 0         # the expectation
LOST = 1            # a step of the configuration is left out
KNOWN_SLIP = 2      # a mistake without a free number, such as exchanged parameters
USUAL_NUMBER = 3    # a keyword has another value, which many models have
ONE_NUMBER = 4      # a number without a meaning was fitted
FORMULA = 5         # a formula was fitted without an expectation
EVERY_FREQUENCY = 6     # all frequencies were fitted


class Estimate(NamedTuple):
    """Estimates of the frequencies of pairs, with their errors; only frequencies for which `known` is true are compared."""

    frequency: NDArray[np.float64]
    error: NDArray[np.float64]
    known: NDArray[np.bool_]

    def share_near(self, frequencies: NDArray[np.float64]) -> float:
        """Return the share of known estimates that agree with `frequencies` within their errors and a tolerance."""
        if len(frequencies) != len(self.frequency) or not self.known.any():
            return 0.0
        distance = np.abs(self.frequency - frequencies)
        return float((distance <= SIGMAS * self.error + TIGHT * np.abs(frequencies))[self.known].mean())

    def loose(self) -> Estimate:
        """Return the estimates with larger errors, to allow for frequencies rounded to 16 bits."""
        return self._replace(error=np.maximum(self.error, LOOSE / SIGMAS * np.abs(self.frequency)))


class Candidate(NamedTuple):
    """A rotation with its cost and its faults; `faults` is None if the keywords of the rotation show the differences."""

    cost: int
    rotary: Rotary
    faults: tuple[str, ...] | None = None


class Situation(NamedTuple):
    """The expected rotation, also without its scaling, and the estimates."""

    expected: Rotary
    plain: Rotary
    scaling: dict[str, Any]     # an empty dict if there is none
    estimate: Estimate

    def turning(self, frequencies: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the pairs whose estimates and frequencies have the same sign."""
        if len(frequencies) != len(self.estimate.frequency):
            return np.empty(0, np.intp)
        return np.flatnonzero(self.estimate.known & (frequencies * self.estimate.frequency > 0))

    def powers(self, divisor: float) -> Rotary | None:
        """Return the rotation with the exponents i / divisor, if there is no scaling."""
        count = self.expected.rotary_dim // 2
        if self.scaling or self.expected.axes is not None or count < 2:
            return None
        return self.explicit(self.plain.frequency_scale * self.plain.base ** (-np.arange(count) / divisor))

    def explicit(self, frequencies: NDArray[np.float64]) -> Rotary | None:
        return changed(self.expected, frequencies=frequencies, scale=size_of(self.expected))

    def width(self) -> float:
        """Return the even number n for which the exponents are 2 i / n, or 0."""
        used = self.turning(self.plain.frequencies)
        if len(used) < 2 or self.plain.base <= 1:
            return 0
        w, error = self.estimate.frequency[used], self.estimate.error[used]
        slope = line_through(used, np.abs(w), error / np.abs(w)).slope
        n = 2 * math.log(self.plain.base) / slope if slope > 1e-9 else 0.0
        even = 2 * round(n / 2)
        return even if even != self.expected.rotary_dim and abs(n - even) < 0.25 else 0

    def multiple(self) -> float:
        """Return the number by which the frequencies are multiplied, from the pair that shows it best, or 0."""
        used = self.turning(self.expected.frequencies)
        if len(used) < 2:
            return 0
        w = self.estimate.frequency[used]
        errors = self.estimate.error[used] / np.abs(w)
        best = np.argmin(errors)
        factor = short(float(w[best] / self.expected.frequencies[used][best]), float(SIGMAS * errors[best]) + TIGHT, TURNS, 8)
        return factor if factor != 1 else 0

    def bases(self) -> Iterator[float]:
        """Yield usual bases, then a fitted one, for the first pairs, which yarn and llama3 keep, then for all pairs."""
        turning = self.turning(self.expected.frequencies)
        for used in (turning[: max(3, len(turning) // 4)], turning):
            if len(used) > 1:
                w, f = self.estimate.frequency[used], self.expected.frequencies[used]
                line = line_through(used, w / f, self.estimate.error[used] / np.abs(w))
                half = self.expected.rotary_dim / 2
                error = 4 * half * line.slope_error + TIGHT
                if abs(line.slope * half) < EXTREME_BASE:
                    base = self.expected.base * math.exp(line.slope * half)
                    yield from (b for b in BASES if abs(math.log(b / base)) < error + 0.02)
                    yield short(base, error)

    def factors(self) -> Iterator[float]:
        """Yield the factor of a scaling that divides the last frequencies."""
        if len(turning := self.turning(self.plain.frequencies)):
            w, error = self.estimate.frequency[turning[-1]], self.estimate.error[turning[-1]]
            yield short(float(self.plain.frequencies[turning[-1]] / w), float(SIGMAS * error / abs(w)) + TIGHT)

    def length(self) -> int:
        """Return a length for which a scaling of type dynamic or longrope has other frequencies, or 0."""
        kind, scaling = self.scaling.get("rope_type"), self.scaling
        if kind == "dynamic" and (growth := next(self.factors(), 0)) > 1:
            factor = float(scaling["factor"])
            return round(int(scaling["max_position_embeddings"]) * (growth + factor - 1) / factor)
        trained = int(scaling["original_max_position_embeddings"]) if kind == "longrope" else 0
        return trained + int(scaling.get("length", 0) <= trained) if trained else 0


class Mistake(NamedTuple):
    """A sentence, and the rotation that a mistake makes of the expected one, with the number {x} in the sentence, if any."""

    cost: int
    sentence: str
    change: Callable[[Situation, Any], Rotary | None]
    number: Callable[[Situation], float] | None = None      # 0 if there is no number


def _twice(s: Situation) -> NDArray[np.float64]:
    f, plain = s.expected.frequencies, s.plain.frequencies
    return f * np.divide(f, plain, out=np.zeros_like(f), where=plain != 0)


def _exchanged_betas(s: Situation) -> Rotary:
    fast, slow = s.scaling.get("beta_fast", 32.0), s.scaling.get("beta_slow", 1.0)
    return s.expected.replace(scaling=s.scaling | {"beta_fast": slow, "beta_slow": fast})


MISTAKES = (
    Mistake(LOST, "the scaling {type} is not applied", lambda s, _: s.plain if s.scaling else None),
    Mistake(KNOWN_SLIP, "the scaling {type} is applied twice", lambda s, _: s.explicit(_twice(s)) if s.scaling else None),
    Mistake(KNOWN_SLIP, "beta_fast and beta_slow of the scaling yarn are exchanged",
            lambda s, _: _exchanged_betas(s) if s.scaling.get("rope_type") == "yarn" else None),
    Mistake(KNOWN_SLIP, "the exponents are i / {dim}, expected 2 i / {dim}", lambda s, _: s.powers(s.expected.rotary_dim)),
    Mistake(KNOWN_SLIP, "the exponents are 4 i / {dim}, expected 2 i / {dim}",
            lambda s, _: s.powers(s.expected.rotary_dim / 4)),
    Mistake(KNOWN_SLIP, "the exponents are i / {last}, expected i / {count}",
            lambda s, _: s.powers(s.expected.rotary_dim // 2 - 1)),
    Mistake(KNOWN_SLIP, "the frequencies are the reciprocals of the expected ones",
            lambda s, _: s.explicit(1 / s.expected.frequencies) if s.expected.frequencies.all() else None),
    Mistake(KNOWN_SLIP, "the frequencies are in reverse order", lambda s, _: s.explicit(s.expected.frequencies[::-1])),
    Mistake(USUAL_NUMBER, "the frequencies of the scaling {type} are those for sequences of {x} positions",
            lambda s, x: changed(s.expected, scaling=s.scaling | {"length": int(x)}), Situation.length),
    Mistake(ONE_NUMBER, "the exponents are 2 i / {x}, expected 2 i / {dim}", lambda s, x: s.powers(x / 2), Situation.width),
    Mistake(ONE_NUMBER, "the frequencies are multiplied by {x}, as by linear scaling with factor {inverse}",
            lambda s, x: s.explicit(s.expected.frequencies * x) if 0 < x < 1 else None, Situation.multiple),
    Mistake(ONE_NUMBER, "the frequencies are multiplied by {x}",
            lambda s, x: s.explicit(s.expected.frequencies * x), Situation.multiple),
)

# the scaling type that has a keyword ("" is Rotary itself, which has others with and without a scaling), and other values
KEYWORDS: tuple[tuple[str, str, Callable[[Situation], Iterable[Any]]], ...] = (
    ("yarn", "truncate", lambda s: (not s.scaling.get("truncate", True),)),
    ("linear", "factor", Situation.factors), ("yarn", "factor", Situation.factors), ("llama3", "factor", Situation.factors),
    ("ntk_alpha", "alpha", Situation.factors),
    *((name, "original_max_position_embeddings", lambda s: (
        round(s.scaling["original_max_position_embeddings"] * s.scaling.get("factor", 1)), *LENGTHS))
      for name in ("yarn", "llama3")),
    ("yarn", "beta_fast", lambda s: (1, 2, 4, 8, 16, 24, 48, 64, 96, 128)), ("yarn", "beta_slow", lambda s: (2, 4, 8, 16, 32)),
    ("", "base", Situation.bases),
    ("", "scaling", lambda s: () if s.scaling else [
        {"rope_type": "llama3", "factor": factor, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
         "original_max_position_embeddings": 8192} for factor in (8.0, 32.0)]),
)

# the sentence, and the transformation, which is its own inverse
ORIENTATIONS: tuple[tuple[str, Callable[[NDArray[np.complex128]], NDArray[np.complex128]]], ...] = (
    ("", lambda z: z),
    ("the signs of the sines are reversed", np.conj),
    ("cos and sin are exchanged", lambda z: 1j * np.conj(z)),
    ("values are multiplied by -1, expected 1", np.negative),
)


def candidates(estimate: Estimate, expected: Rotary | None, head_dim: int, least: float = 1.0) -> list[Candidate]:
    """Return the candidates that have at least a share of their frequencies near the estimates, the cheapest first."""
    proposed: list[tuple[int, Rotary | None, tuple[str, ...] | None]] = []
    if expected is not None:
        proposed.append((NOTHING, expected, ()))
        s = Situation(expected, changed(expected, scaling=None) or expected, expected.scaling or {}, estimate)
        kind, count = s.scaling.get("rope_type", ""), expected.rotary_dim // 2
        for cost, sentence, change, find in MISTAKES:
            x = 0.0 if find is None else find(s)
            if find is None or x:
                text = sentence.format(type=kind, dim=2 * count, count=count, last=count - 1, x=number(x),
                                       inverse=number(1 / x) if x else "")
                proposed.append((cost, change(s, x), (text,)))
        for scaling_type, key, values in KEYWORDS:
            for value in values(s) if scaling_type in ("", kind) else ():
                cost = ONE_NUMBER if key == "base" and value not in BASES else USUAL_NUMBER
                if scaling_type:
                    proposed.append((cost, changed(expected, scaling=s.scaling | {key: value}), None))
                else:
                    proposed += [(cost, changed(rotary, **{key: value}), None) for rotary in dict.fromkeys((expected, s.plain))]
    proposed += [(FORMULA, rotary, None) for rotary in _formulas(estimate, head_dim, expected)]
    return [Candidate(cost, rotary, faults) for cost, rotary, faults in sorted(proposed, key=lambda one: one[0])
            if rotary is not None and estimate.share_near(rotary.frequencies) >= least]


def _formulas(estimate: Estimate, head_dim: int, expected: Rotary | None) -> Iterator[Rotary | None]:
    """Yield rotations with geometric frequencies: with a base from `BASES`, then with bases of more and more digits."""
    w, count = estimate.frequency, len(estimate.frequency)
    turning = np.flatnonzero(estimate.known & (w > 0))
    if not len(turning):
        return
    blank = Rotary(head_dim, rotary_dim=2 * count, axes=None if expected is None else expected.axes)
    if expected is None and turning[-1] + 1 < count:
        blank = blank.replace(scaling={"rope_type": "proportional", "partial_rotary_factor": (turning[-1] + 1) / count})
    line = line_through(turning, w[turning], estimate.error[turning] / w[turning])
    scale, scale_error = math.exp(line.intercept), line.intercept_error
    if len(turning) == 1:
        yield changed(blank, frequency_scale=short(scale, SIGMAS * scale_error, TURNS, 8))
    if len(turning) == 1 or abs(line.slope) * count > 10 * EXTREME_BASE:
        return
    base, least = math.exp(line.slope * count), count * max(line.slope_error, 2.0**-52)
    for usual in BASES:
        if abs(math.log(usual / base)) < 4 * least + TIGHT:
            yield changed(blank, base=usual, frequency_scale=short(scale, 4 * scale_error + TIGHT, TURNS, 8))
    for errors, _ in FITTED_DIGITS:
        if (within := errors * least + 2.0**-52) < 0.1:
            multiple = short(scale, errors * scale_error + 2.0**-52, TURNS, 8)
            yield changed(blank, base=short(base, within), frequency_scale=multiple)


def explicit(estimate: Estimate, head_dim: int, axes: Any = None) -> Candidate:
    """Return the rotation with the estimated frequencies."""
    values = np.where(np.abs(estimate.frequency) > estimate.error, estimate.frequency, 0.0)
    return Candidate(EVERY_FREQUENCY, Rotary(head_dim, rotary_dim=2 * len(values), axes=axes, frequencies=values))


def changed(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, such as longrope factors for another width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


# ---- sentences ------------------------------------------------------------------------------------------------------


def pairs(values: Any) -> str:
    """Return pairs of columns as text: "pair 3", "pairs 0 to 7"."""
    return f"pair{'s' if len(values) > 1 else ''} {numbers(values)}"


def number(x: float) -> str:
    """Return a number as text: integers in full, others with six digits."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.6g}"


def not_rotated(values: Any) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def differences(rotary: Rotary, expected: Rotary, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones.

    `source` is the text that precedes an expected value.
    """
    if rotary.to_dict()["rotary"]["frequencies"] is not None:
        return _explicit_differences(rotary.frequencies, expected.frequencies)
    if expected.to_dict()["rotary"]["frequencies"] is not None:
        return (f"the frequencies are those of base {number(rotary.base)}, expected others",)
    faults = [f"{name} is {number(getattr(rotary, name))}, {source} {number(getattr(expected, name))}"
              for name in ("base", "frequency_scale") if getattr(rotary, name) != getattr(expected, name)]
    scaling, wanted = rotary.scaling or {}, expected.scaling or {}
    name, wanted_name = scaling.get("rope_type"), wanted.get("rope_type")
    if name is None and wanted_name is not None:
        faults.append(f"the scaling {wanted_name} is not applied")
    elif name != wanted_name:
        factor = f" with factor {number(scaling['factor'])}" if "factor" in scaling else ""
        faults.append(f"the scaling {name}{factor} is applied, {source} {wanted_name or 'none'}")
    for key in scaling if name == wanted_name else ():
        if scaling[key] != wanted.get(key) and key != "attention_factor":
            values = [number(v) if isinstance(v, float) else str(v) for v in (scaling[key], wanted.get(key, "the default"))]
            faults.append(f"{key} of the scaling {name} is {values[0]}, {source} {values[1]}")
    return tuple(faults)


def _explicit_differences(w: NDArray[np.float64], f: NDArray[np.float64]) -> tuple[str, ...]:
    """Return sentences for the differences of frequencies w, which follow no formula, from the expected f."""
    differ = np.flatnonzero(np.abs(w - f) > 1e-3 * np.abs(f))
    if not len(differ):
        return ("the frequencies differ slightly from the expected ones",)
    unrotated, turned = differ[w[differ] == 0], differ[w[differ] != 0]
    faults = [not_rotated(unrotated)] if len(unrotated) else []
    if len(turned):
        k, which = turned[0], pairs(turned)
        formula = "follow no known formula" if len(turned) > len(f) / 2 else "differ"
        several = f"the frequencies of {which} {formula}: pair {k} has {w[k]:.6g}, expected {f[k]:.6g}"
        faults.append(several if len(turned) > 1 else f"the frequency of {which} is {w[k]:.6g}, expected {f[k]:.6g}")
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
