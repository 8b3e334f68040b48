"""Candidate rotations, which differ from the expected rotation by common mistakes."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.base_class import changes_of
from posenc._identify.rotation.phases import FLOAT32
from posenc._identify.table.candidates import TURNS, short
from posenc._identify.table.fit import Line, straight
from posenc._identify.wording import number
from posenc._rotary import Rotary

BASES = (10000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0, 100.0, 150000.0, 160000.0, 250000.0, 256.0, 2000.0)
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 1024, 512)
LOOSE = 2.0**-7             # relative tolerance for frequencies that may be rounded to 16 bits


class Estimate(NamedTuple):
    """Estimates of the frequencies of pairs, with their errors; only frequencies for which `known` is true are compared."""

    frequency: NDArray[np.float64]
    error: NDArray[np.float64]
    known: NDArray[np.bool_]

    def share_near(self, frequencies: NDArray[np.float64], relative: float) -> float:
        """Return the share of known estimates that agree with `frequencies` within their errors and a tolerance."""
        if len(frequencies) != len(self.frequency) or not self.known.any():
            return 0.0
        distance = np.abs(self.frequency - frequencies)
        return float((distance <= 8 * self.error + relative * np.abs(frequencies))[self.known].mean())


class Candidate(NamedTuple):
    """A rotation with its faults; `faults` is None if the keywords of the rotation show the differences."""

    rotary: Rotary
    faults: tuple[str, ...] | None = None


def changed(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, such as longrope factors for another width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


# ---- mistakes -------------------------------------------------------------------------------------------------------


def mistakes(expected: Rotary, estimate: Estimate, source: str) -> Iterator[Candidate]:
    """Yield the expected rotation, then rotations with common mistakes, the most common mistakes first."""
    yield Candidate(expected, ())
    scaling = expected.scaling
    plain = expected
    if scaling is not None:
        without = changed(expected, scaling=None)
        assert without is not None
        plain = without
        yield Candidate(plain, _lost(expected))
        yield from _other_scaling(expected, plain, scaling, estimate, source)
    yield from _other_divisors(expected, plain)
    found = list(_other_bases(expected, plain, estimate))
    yield from (candidate for candidate in found if candidate.rotary.base in BASES)
    yield from _other_width(expected, plain, estimate)
    yield from _other_frequencies(expected, estimate)
    yield from found


def _other_scaling(
    expected: Rotary, plain: Rotary, scaling: dict[str, Any], estimate: Estimate, source: str
) -> Iterator[Candidate]:
    name, w = scaling["rope_type"], estimate.frequency
    ratio = np.divide(expected.frequencies, plain.frequencies, out=np.zeros_like(w), where=plain.frequencies != 0)
    twice = changed(expected, frequencies=expected.frequencies * ratio)
    if twice is not None:
        yield Candidate(twice, (f"the scaling {name} is applied twice",))
    last = np.flatnonzero(estimate.known & (w != 0) & (plain.frequencies != 0))
    if len(last):
        k = last[-1]
        growth = float(plain.frequencies[k] / w[k])
        error = float(8 * estimate.error[k] / abs(w[k])) + 64 * FLOAT32
        for key in {"linear": ("factor",), "yarn": ("factor",), "llama3": ("factor",), "ntk_alpha": ("alpha",)}.get(name, ()):
            if growth > 0 and (other := short(growth, error)) != scaling.get(key):
                found = changed(expected, scaling=scaling | {key: other})
                text = f"{key} of the scaling {name} is {number(other)}"
                had = scaling.get(key)
                if found is not None:
                    yield Candidate(found, (text + (f", {source} {number(had)}" if had is not None else ""),))
        if name == "dynamic" and growth > 1:
            factor, trained = scaling["factor"], scaling["max_position_embeddings"]
            length = round(trained * (growth + factor - 1) / factor)
            found = changed(expected, scaling=scaling | {"length": length})
            if found is not None:
                wanted = f"{scaling['length']:,}" if "length" in scaling else f"at most {trained:,}"
                yield Candidate(found, (f"the frequencies are those for sequences of {length:,} positions, expected {wanted}",))
    if name == "longrope":
        trained = scaling["original_max_position_embeddings"]
        is_long = scaling.get("length", 0) > trained
        found = changed(expected, scaling=scaling | {"length": trained if is_long else trained + 1})
        if found is not None:
            used, wanted = ("short_factor", "long_factor") if is_long else ("long_factor", "short_factor")
            yield Candidate(found, (f"{used} of the scaling longrope is used, expected {wanted}",))
    key = "original_max_position_embeddings"
    if name in ("yarn", "llama3"):
        had = scaling[key]
        lengths = [round(had * scaling.get("factor", 1)), scaling.get("max_position_embeddings", had), *LENGTHS]
        for length in dict.fromkeys(lengths):
            found = changed(expected, scaling=scaling | {key: length}) if length != had else None
            if found is not None:
                yield Candidate(found, (f"{key} is {length}, {source} {had}",))
    if name == "yarn":
        found = changed(expected, scaling=scaling | {"truncate": not scaling.get("truncate", True)})
        assert found is not None
        yield Candidate(found, (f"truncate is {not scaling.get('truncate', True)}, {source} {scaling.get('truncate', True)}",))
        turned = {"beta_fast": scaling.get("beta_slow", 1.0), "beta_slow": scaling.get("beta_fast", 32.0)}
        found = changed(expected, scaling=scaling | turned)
        assert found is not None
        yield Candidate(found, ("beta_fast and beta_slow of the scaling yarn are exchanged",))


def _other_bases(expected: Rotary, plain: Rotary, estimate: Estimate) -> Iterator[Candidate]:
    """Yield rotations with other bases, each with the scaling and without it."""
    f = expected.frequencies
    used = np.flatnonzero(estimate.known & (f != 0) & (estimate.frequency * f > 0))
    for chosen in (used[: max(3, len(used) // 4)], used):           # yarn and llama3 keep the frequencies of the first pairs
        if len(chosen) < 2:
            return
        ratios = estimate.frequency[chosen] / f[chosen]
        line = fitted_line(chosen, ratios, estimate.error[chosen] / np.abs(estimate.frequency[chosen]))
        half = expected.rotary_dim / 2
        error = 4 * half * line.slope_error + 64 * FLOAT32
        if abs(line.slope * half) > 30:
            continue
        base = expected.base * math.exp(line.slope * half)
        for found in dict.fromkeys((*(b for b in BASES if abs(math.log(b / base)) < error + 0.02), short(base, error))):
            if found != expected.base:
                for rotary in dict.fromkeys((expected, plain)):
                    other = changed(rotary, base=found)
                    if other is not None:
                        yield Candidate(other)


def _other_divisors(expected: Rotary, plain: Rotary) -> Iterator[Candidate]:
    """Yield rotations with exponents that implementations use by mistake instead of ``2 i / rotary_dim``."""
    dim, count = plain.rotary_dim, plain.rotary_dim // 2
    for divisor, exponents in ((dim, f"i / {dim}"), (dim / 4, f"4 i / {dim}"), (count - 1, f"i / {count - 1}")):
        if count > 1 and (found := _with_divisor(plain, divisor)) is not None:
            wanted = f"i / {count}" if divisor == count - 1 else f"2 i / {dim}"
            yield Candidate(found, (f"the exponents are {exponents}, expected {wanted}", *_lost(expected)))


def _other_width(expected: Rotary, plain: Rotary, estimate: Estimate) -> Iterator[Candidate]:
    """Yield the rotation with the exponents of another width, such as d_model instead of head_dim."""
    used = np.flatnonzero(estimate.known & (estimate.frequency > 0))
    if len(used) < 2 or plain.axes is not None or len(estimate.frequency) != plain.rotary_dim // 2:
        return
    line = fitted_line(used, estimate.frequency[used], estimate.error[used] / estimate.frequency[used])
    if line.slope < 1e-9 or plain.base <= 1:
        return
    width = 2 * math.log(plain.base) / line.slope
    near = 2 * round(width / 2)
    if near not in (0, plain.rotary_dim) and abs(width - near) < 0.25 and (found := _with_divisor(plain, near / 2)) is not None:
        yield Candidate(
            found, (f"the exponents are 2 i / {near}, expected 2 i / {plain.rotary_dim}", *_lost(expected)))


def _with_divisor(plain: Rotary, divisor: float) -> Rotary | None:
    """Return the rotation with the exponents ``i / divisor``."""
    if plain.axes is not None:
        return None
    powers = plain.base ** (-np.arange(plain.rotary_dim // 2) / divisor)
    return changed(plain, frequencies=plain.frequency_scale * powers)


def _lost(expected: Rotary) -> tuple[str, ...]:
    return () if expected.scaling is None else (f"the scaling {expected.scaling['rope_type']} is not applied",)


def _other_frequencies(expected: Rotary, estimate: Estimate) -> Iterator[Candidate]:
    """Yield rotations with the frequencies multiplied by a number, inverted, or in another order."""
    f, w = expected.frequencies, estimate.frequency
    used = np.flatnonzero(estimate.known & (f != 0) & (w != 0))
    if len(used) < 2:
        return
    ratios = w[used] / f[used]
    errors = estimate.error[used] / np.abs(w[used])
    best = int(np.argmin(errors))
    factor = short(float(ratios[best]), float(8 * errors[best]) + 64 * FLOAT32, TURNS, 8)
    if factor != 1 and (found := _multiplied(expected, factor)) is not None:
        scaled = f", as by linear scaling with factor {number(1 / factor)}" if 0 < factor < 1 else ""
        yield Candidate(found, (f"the frequencies are multiplied by {number(factor)}{scaled}",))
    if (found := changed(expected, frequencies=np.divide(1, f, out=np.zeros_like(f), where=f != 0))) is not None:
        yield Candidate(found, ("the frequencies are the reciprocals of the expected ones",))
    for order, words in ((np.arange(len(f))[::-1], "reverse"), (np.argsort(np.argsort(-w)), "another")):
        ordered = f[order] if words == "reverse" else np.sort(f)[::-1][order]
        if not np.array_equal(ordered, f) and (found := changed(expected, frequencies=ordered)) is not None:
            yield Candidate(found, (f"the frequencies are in {words} order",))


def _multiplied(rotary: Rotary, factor: float) -> Rotary | None:
    keywords = changes_of(rotary)
    if "frequencies" not in keywords and rotary.scaling is None:
        return changed(rotary, frequency_scale=rotary.frequency_scale * factor)
    return changed(rotary, frequencies=rotary.frequencies * factor, scale=rotary.scale * rotary.attention_scaling)


def fitted_line(numbers: NDArray[np.intp], values: NDArray[np.float64], relative: NDArray[np.float64]) -> Line:
    """Fit ``exp(intercept - slope * number)`` to positive values."""
    errors = np.maximum(relative, 2.0**-50)
    return straight(np.stack([numbers, np.log(values), errors, np.ones(len(numbers))], 1), max(2, len(numbers)))
