"""Mistakes: the candidates for a rotation, each with what it costs to believe it.

A candidate is a rotation, and the sentences that say how it differs from the expected one.  To add a kind of mistake that
changes the frequencies, write a function of a `Situation` that yields candidates, and add it to `KINDS`.  Mistakes that change
the values in other ways have other places: those of columns `_pairs_of` in reading.py, those of signs and offsets `Orientation`
in fits.py, those of precision `Arithmetic` in arithmetic.py, tables that end or repeat `_end_of` in match_rotary.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check.arithmetic import NARROW, PRECISION, Arithmetic, axes_of, computed, difference, size_of
from posenc.check.fits import TURNS, line_through, short
from posenc.check.limits import AXIS_ERROR, EXTREME_BASE, LOOSE, NEAR, SIGMAS, TIGHT, YARN_PAIR
from posenc.check.reading import numbers

BASES = (10000.0, 500000.0, 1000000.0, 5000000.0, 10000000.0, 100.0, 150000.0, 160000.0, 250000.0, 256.0, 2000.0)
LENGTHS = (2048, 4096, 8192, 16384, 32768, 65536, 131072, 1024, 512)
DIGITS = (64.0, 8.0, 1.0, 0.1)      # parameters are rounded to short decimals within these multiples of the error

# What it costs to believe a candidate.  Those of equal cost are tried in the order of `KINDS`.
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

    def share_near(self, frequencies: NDArray[np.float64], relative: float = TIGHT) -> float:
        """Return the share of known estimates that agree with `frequencies` within their errors and a tolerance."""
        if len(frequencies) != len(self.frequency) or not self.known.any():
            return 0.0
        distance = np.abs(self.frequency - frequencies)
        return float((distance <= SIGMAS * self.error + relative * np.abs(frequencies))[self.known].mean())

    def loose(self) -> Estimate:
        """Return the estimates with larger errors, to allow for frequencies rounded to 16 bits."""
        return self._replace(error=np.maximum(self.error, LOOSE / SIGMAS * np.abs(self.frequency)))


class Candidate(NamedTuple):
    """A rotation with its cost and its faults; `faults` is None if the keywords of the rotation show the differences."""

    cost: int
    rotary: Rotary
    faults: tuple[str, ...] | None = None


class Situation(NamedTuple):
    """The expected rotation, the estimates, and the text that precedes an expected value in a message."""

    expected: Rotary
    plain: Rotary               # the expected rotation without scaling
    scaling: dict[str, Any]     # an empty dict if there is none
    estimate: Estimate
    source: str

    @property
    def lost(self) -> tuple[str, ...]:
        return (f"the scaling {self.scaling['rope_type']} is not applied",) if self.scaling else ()

    def turning(self, frequencies: NDArray[np.float64]) -> NDArray[np.intp]:
        """Return the pairs whose estimates and frequencies are not 0."""
        return np.flatnonzero(self.estimate.known & (frequencies != 0) & (self.estimate.frequency != 0))


def pairs(values: Any) -> str:
    """Return pairs of columns as text: "pair 3", "pairs 0 to 7"."""
    return f"pair{'s' if len(values) > 1 else ''} {numbers(values)}"


def number(x: float) -> str:
    """Return a number as text: integers in full, others with six digits."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.6g}"


def not_rotated(values: Any) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def changed(rotary: Rotary, **changes: Any) -> Rotary | None:
    """Return a rotation with other keywords, or None if they are invalid, such as longrope factors for another width."""
    try:
        return rotary.replace(**changes)
    except ValueError:
        return None


def is_explicit(rotary: Rotary) -> bool:
    return rotary.to_dict()["rotary"]["frequencies"] is not None


def candidates(
    estimate: Estimate, expected: Rotary | None, source: str, head_dim: int, least: float = 1.0
) -> list[Candidate]:
    """Return the candidates that have at least a share of their frequencies near the estimates, the cheapest first."""
    proposed: list[Candidate] = []
    if expected is not None:
        proposed.append(Candidate(NOTHING, expected, ()))
        plain = changed(expected, scaling=None) or expected
        situation = Situation(expected, plain, expected.scaling or {}, estimate, source)
        for kind in KINDS:
            proposed += kind(situation)
    proposed += without_expectation(estimate, head_dim, None if expected is None else expected.axes)
    agreeing = [one for one in proposed if one.rotary is not None and estimate.share_near(one.rotary.frequencies) >= least]
    return sorted(agreeing, key=lambda one: one.cost)


# ---- kinds of mistakes ----------------------------------------------------------------------------------------------


def _lost_scaling(s: Situation) -> Iterator[Candidate]:
    if s.scaling:
        yield Candidate(LOST, s.plain, s.lost)


def _exchanged_parameters(s: Situation) -> Iterator[Candidate]:
    """A scaling is applied twice, or a pair of its parameters is exchanged."""
    if not s.scaling:
        return
    name, f = s.scaling["rope_type"], s.expected.frequencies
    ratio = np.divide(f, s.plain.frequencies, out=np.zeros_like(f), where=s.plain.frequencies != 0)
    yield Candidate(KNOWN_SLIP, changed(s.expected, frequencies=f * ratio), (f"the scaling {name} is applied twice",))
    if name == "yarn":
        truncate = s.scaling.get("truncate", True)
        yield Candidate(KNOWN_SLIP, s.expected.replace(scaling=s.scaling | {"truncate": not truncate}),
                        (f"truncate is {not truncate}, {s.source} {truncate}",))
        betas = {"beta_fast": s.scaling.get("beta_slow", 1.0), "beta_slow": s.scaling.get("beta_fast", 32.0)}
        yield Candidate(KNOWN_SLIP, s.expected.replace(scaling=s.scaling | betas),
                        ("beta_fast and beta_slow of the scaling yarn are exchanged",))
    if name == "longrope":
        trained = s.scaling["original_max_position_embeddings"]
        is_long = s.scaling.get("length", 0) > trained
        used, wanted = ("short_factor", "long_factor") if is_long else ("long_factor", "short_factor")
        yield Candidate(KNOWN_SLIP, s.expected.replace(scaling=s.scaling | {"length": trained if is_long else trained + 1}),
                        (f"{used} of the scaling longrope is used, expected {wanted}",))


def _another_factor(s: Situation) -> Iterator[Candidate]:
    """The factor of a scaling, or the length that a scaling of type dynamic is for, has another value."""
    turning = s.turning(s.plain.frequencies)
    if not s.scaling or not len(turning):
        return
    name, k = s.scaling["rope_type"], turning[-1]
    growth = float(s.plain.frequencies[k] / s.estimate.frequency[k])
    error = float(SIGMAS * s.estimate.error[k] / abs(s.estimate.frequency[k])) + TIGHT
    key = {"linear": "factor", "yarn": "factor", "llama3": "factor", "ntk_alpha": "alpha"}.get(name)
    if key and growth > 0 and (factor := short(growth, error)) != s.scaling.get(key):
        wanted = f", {s.source} {number(s.scaling[key])}" if key in s.scaling else ""
        yield Candidate(USUAL_NUMBER, changed(s.expected, scaling=s.scaling | {key: factor}),
                        (f"{key} of the scaling {name} is {number(factor)}{wanted}",))
    if name == "dynamic" and growth > 1:
        factor, trained = s.scaling["factor"], s.scaling["max_position_embeddings"]
        length = round(trained * (growth + factor - 1) / factor)
        wanted = f"{s.scaling['length']:,}" if "length" in s.scaling else f"at most {trained:,}"
        yield Candidate(USUAL_NUMBER, changed(s.expected, scaling=s.scaling | {"length": length}),
                        (f"the frequencies are those for sequences of {length:,} positions, expected {wanted}",))


def _another_length(s: Situation) -> Iterator[Candidate]:
    """A scaling of type yarn or llama3 has another original length."""
    key = "original_max_position_embeddings"
    if s.scaling.get("rope_type") not in ("yarn", "llama3"):
        return
    wanted = s.scaling[key]
    lengths = [round(wanted * s.scaling.get("factor", 1)), s.scaling.get("max_position_embeddings", wanted), *LENGTHS]
    for length in dict.fromkeys(lengths):
        if length != wanted:
            yield Candidate(USUAL_NUMBER, changed(s.expected, scaling=s.scaling | {key: length}),
                            (f"{key} is {length}, {s.source} {wanted}",))


def _another_beta(s: Situation) -> Iterator[Candidate]:
    """A scaling of type yarn begins or ends at another pair; each beta acts only through the rounded number of a pair."""
    f, w = s.plain.frequencies, s.estimate.frequency
    if s.scaling.get("rope_type") != "yarn" or len(w) != len(f) or not w.all():
        return
    share = (1 - w / f) / (1 - w[-1] / f[-1])
    low, high = np.argmax(share > YARN_PAIR) - 0.5, np.argmax(share > 1 - YARN_PAIR) - 0.5
    for key, at, wanted in (("beta_fast", low, 32.0), ("beta_slow", high, 1.0)):
        turns = s.scaling["original_max_position_embeddings"] / math.tau * s.plain.base ** (-at / len(f))
        beta = float(f"{turns:.2g}")
        yield Candidate(ONE_NUMBER, changed(s.expected, scaling=s.scaling | {key: beta}),
                        (f"{key} of the scaling yarn is {beta}, {s.source} {s.scaling.get(key, wanted)}",))


def _another_divisor(s: Situation) -> Iterator[Candidate]:
    """The exponents are not ``2 i / rotary_dim``: a wrong step, one pair less, or another width, such as d_model."""
    plain, dim, count = s.plain, s.plain.rotary_dim, s.plain.rotary_dim // 2
    if plain.axes is not None or count < 2:
        return
    divisors = [(dim, f"i / {dim}", f"2 i / {dim}"), (dim / 4, f"4 i / {dim}", f"2 i / {dim}"),
                (count - 1, f"i / {count - 1}", f"i / {count}")]
    used = np.flatnonzero(s.estimate.known & (s.estimate.frequency > 0))
    if len(used) > 1 and plain.base > 1 and len(s.estimate.frequency) == count:
        line = line_through(used, s.estimate.frequency[used], s.estimate.error[used] / s.estimate.frequency[used])
        width = 2 * math.log(plain.base) / line.slope if line.slope > 1e-9 else 0
        even = 2 * round(width / 2)
        if even not in (0, dim) and abs(width - even) < 0.25:
            divisors.append((even / 2, f"2 i / {even}", f"2 i / {dim}"))
    for divisor, exponents, wanted in divisors:
        frequencies = plain.frequency_scale * plain.base ** (-np.arange(count) / divisor)
        yield Candidate(KNOWN_SLIP if len(divisors) < 4 or divisor != divisors[3][0] else ONE_NUMBER,
                        changed(plain, frequencies=frequencies),
                        (f"the exponents are {exponents}, expected {wanted}", *s.lost))


def _another_base(s: Situation) -> Iterator[Candidate]:
    """The base has another value, with the scaling or without it."""
    f, w = s.expected.frequencies, s.estimate.frequency
    turning = np.flatnonzero(s.estimate.known & (f != 0) & (w * f > 0))
    for chosen in (turning[: max(3, len(turning) // 4)], turning):      # yarn and llama3 keep the first frequencies
        if len(chosen) < 2:
            return
        line = line_through(chosen, w[chosen] / f[chosen], s.estimate.error[chosen] / np.abs(w[chosen]))
        half = s.expected.rotary_dim / 2
        error = 4 * half * line.slope_error + TIGHT
        if abs(line.slope * half) > EXTREME_BASE:
            continue
        base = s.expected.base * math.exp(line.slope * half)
        usual = [b for b in BASES if abs(math.log(b / base)) < error + 0.02]
        for value in dict.fromkeys((*usual, short(base, error))):
            for rotary in dict.fromkeys((s.expected, s.plain)) if value != s.expected.base else ():
                yield Candidate(USUAL_NUMBER if value in BASES else ONE_NUMBER, changed(rotary, base=value))


def _other_frequencies(s: Situation) -> Iterator[Candidate]:
    """The frequencies are multiplied by a number, inverted, or in another order."""
    f, w = s.expected.frequencies, s.estimate.frequency
    turning = s.turning(f)
    if len(turning) < 2:
        return
    errors = s.estimate.error[turning] / np.abs(w[turning])
    best = turning[np.argmin(errors)]
    factor = short(float(w[best] / f[best]), float(SIGMAS * errors.min()) + TIGHT, TURNS, 8)
    scaled = f", as by linear scaling with factor {number(1 / factor)}" if 0 < factor < 1 else ""
    if is_explicit(s.expected) or s.scaling:
        multiplied = changed(s.expected, frequencies=f * factor, scale=size_of(s.expected))
    else:
        multiplied = changed(s.expected, frequency_scale=s.expected.frequency_scale * factor)
    if factor != 1:
        yield Candidate(ONE_NUMBER, multiplied, (f"the frequencies are multiplied by {number(factor)}{scaled}",))
    yield Candidate(KNOWN_SLIP, changed(s.expected, frequencies=np.divide(1, f, out=np.zeros_like(f), where=f != 0)),
                    ("the frequencies are the reciprocals of the expected ones",))
    another = np.sort(f)[::-1][np.argsort(np.argsort(-w))] if len(w) == len(f) else f
    for ordered, word in ((f[::-1], "reverse"), (another, "another")):
        if not np.array_equal(ordered, f):
            yield Candidate(KNOWN_SLIP, changed(s.expected, frequencies=ordered), (f"the frequencies are in {word} order",))


KINDS = (_lost_scaling, _exchanged_parameters, _another_factor, _another_length, _another_beta, _another_divisor, _another_base,
         _other_frequencies)


# ---- without an expectation -----------------------------------------------------------------------------------------


def without_expectation(estimate: Estimate, head_dim: int, axes: Any) -> Iterator[Candidate]:
    """Yield rotations with geometric frequencies, then those with a scaling of type llama3 or yarn, near the estimates."""
    w, error = estimate.frequency, estimate.error
    count = len(w)
    turning = np.flatnonzero(estimate.known & (w > 0))
    if not len(turning):
        return
    share = (turning[-1] + 1) / count
    partial = {"scaling": {"rope_type": "proportional", "partial_rotary_factor": share}} if share < 1 else {}
    for keywords in (*_geometric(w, error, turning), *_scaled(w, error, turning)):
        try:
            rotary = Rotary(head_dim, rotary_dim=2 * count, axes=axes, **(partial | keywords))
        except ValueError:
            continue
        yield Candidate(FORMULA, rotary)


def _geometric(w: NDArray[np.float64], error: NDArray[np.float64], turning: NDArray[np.intp]) -> Iterator[dict[str, Any]]:
    """Yield the keywords of geometric frequencies: first with a base from `BASES`, then with bases of more and more digits."""
    count = len(w)
    if len(turning) == 1:
        k = turning[0]
        yield {"frequency_scale": short(float(w[k]), float(SIGMAS * error[k] / w[k]), TURNS, 8)}
        return
    line = line_through(turning, w[turning], error[turning] / w[turning])
    if abs(line.slope) * count > 10 * EXTREME_BASE:
        return
    base, scale = math.exp(line.slope * count), math.exp(line.intercept)
    least = count * max(line.slope_error, 2.0**-52)
    for usual in BASES:
        if abs(math.log(usual / base)) < 4 * least + TIGHT:
            yield {"base": usual, "frequency_scale": short(scale, 4 * line.intercept_error + TIGHT, TURNS, 8)}
    for errors in DIGITS:
        within = errors * least + 2.0**-52
        if within < 0.1:
            scaled = short(scale, errors * line.intercept_error + 2.0**-52, TURNS, 8)
            yield {"base": short(base, within), "frequency_scale": scaled}


def _scaled(w: NDArray[np.float64], error: NDArray[np.float64], turning: NDArray[np.intp]) -> Iterator[dict[str, Any]]:
    """Yield the keywords of usual scalings of types llama3 and yarn: the first frequencies show the base, the last the factor.
    """
    count = len(w)
    if len(turning) < max(4, count) or abs(w[0] - 1) > SIGMAS * error[0] + TIGHT:
        return
    first = turning[: max(3, count // 8)]
    line = line_through(first, w[first], error[first] / w[first])
    base, relative = math.exp(min(line.slope * count, EXTREME_BASE)), count * line.slope_error + 2.0**-52
    usual = [b for b in BASES if abs(math.log(b / base)) < 4 * relative + 0.02]
    for value in dict.fromkeys((*usual, *(short(base, errors * relative) for errors in DIGITS if errors * relative < 0.5))):
        last = value ** (-(count - 1) / count) / w[-1]
        uncertain = float(SIGMAS * error[-1] / w[-1]) + TIGHT
        if last < 1.01 or uncertain > 0.05:
            continue
        factor = short(float(last), uncertain)
        for length in LENGTHS:
            common = {"factor": factor, "original_max_position_embeddings": length}
            llama3 = common | {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
            for scaling in (llama3, common | {"rope_type": "yarn"}, common | {"rope_type": "yarn", "truncate": False}):
                yield {"base": value, "scaling": scaling}


def explicit(estimate: Estimate, head_dim: int, axes: Any = None) -> Candidate:
    """Return the rotation with the estimated frequencies."""
    values = np.where(np.abs(estimate.frequency) > estimate.error, estimate.frequency, 0.0)
    return Candidate(EVERY_FREQUENCY, Rotary(head_dim, rotary_dim=2 * len(values), axes=axes, frequencies=values))


# ---- other widths and axes ------------------------------------------------------------------------------------------


def targets(expected: Rotary | None, count: int, source: str) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `count` pairs: first with frequencies for this width, then with its first pairs."""
    if expected is None or expected.rotary_dim == 2 * count:
        yield expected, ()
        return
    changes: dict[str, Any] = {"rotary_dim": 2 * count, "head_dim": max(expected.head_dim, 2 * count), "axes": None}
    for more in ({}, {"scaling": None}, {"frequencies": None}):
        if (other := changed(expected, **changes, **more)) is not None:
            yield other, (f"{2 * count} columns are rotated, {source} {expected.rotary_dim}",)
            break
    wanted = expected.rotary_dim // 2
    if count < wanted:
        changes["axes"] = expected.axes and expected.axes[:count]
        other = changed(expected, **changes, frequencies=expected.frequencies[:count], scale=size_of(expected))
        if other is not None:
            yield other, (not_rotated(range(count, wanted)),)


def with_axes(
    target: Rotary, positions: NDArray[Any], values: NDArray[np.complex128], source: str
) -> tuple[Rotary, tuple[str, ...]]:
    """Return the expected rotation with the axes that the values use, and the fault if they are not those expected."""
    close = np.abs(positions).max(axis=0) < NEAR if positions.ndim > 1 else np.zeros(0, bool)
    if axes_of(target) == 1 or close.sum() < 8:
        return target, ()
    expected, plain = np.array(target.axes), target.replace(axes=None, scale=1.0)
    size = np.median(np.abs(values[close]), axis=0) / abs(plain.attention_scaling)
    distance = np.stack([
        difference(values[close], size * computed(plain, at[close], Arithmetic("float64"))).max(axis=0) for at in positions])
    as_expected = distance[expected, np.arange(len(expected))] <= 4 * distance.min(axis=0) + 1e-6
    axes = np.where(as_expected, expected, np.argmin(distance, axis=0))
    other = changed(target, axes=axes)
    if (distance.min(axis=0) > AXIS_ERROR).any() or as_expected.all() or other is None:
        return target, ()
    k = np.flatnonzero(axes != expected)
    alike = k[(axes[k] == axes[k[0]]) & (expected[k] == expected[k[0]])]
    rest = f"; {len(k) - len(alike)} others also differ" if len(k) > len(alike) else ""
    verb = "use" if len(alike) > 1 else "uses"
    return other, (f"{pairs(alike)} {verb} the positions of axis {axes[k[0]]}, {source} axis {expected[k[0]]}{rest}",)


# ---- sentences ------------------------------------------------------------------------------------------------------


def differences(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones."""
    if expected is None:
        return ()
    if is_explicit(rotary):
        return _explicit_differences(rotary.frequencies, expected.frequencies)
    if is_explicit(expected):
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
    else:
        keys = [key for key in scaling | wanted if scaling.get(key) != wanted.get(key) and key != "attention_factor"]
        faults += [f"{key} of the scaling {name} is {scaling.get(key)}, {source} {wanted.get(key)}" for key in keys]
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


def of_layout(
    shown: Any, repeated: Any, expected: Rotary | None, source: str
) -> tuple[tuple[str, ...], tuple[str, ...], Any]:
    """Return the faults, the remarks and the layout of a rotation.

    `shown` is the layout of the pairs, if the rotation shows it; `repeated` is the layout of tables that contain each column
    twice.
    """
    if expected is None:
        return (), (), shown or repeated or "halves"
    wanted = expected.layout
    if shown not in (None, wanted):
        return (f"layout is {shown}, {source} {wanted}",), (), shown
    if shown is None and repeated not in (None, wanted):
        if repeated == "interleaved":
            text = "the tables have each column twice in succession, as for layout interleaved"
            return (f"{text}, {source} {wanted}",), (), wanted
        return (), ("the tables have their columns twice, as halves, and do not show the layout of the rotation",), wanted
    return (), (), wanted


def of_scale(rotary: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return the fault if the scale of cosines and sines is wrong."""
    if expected is None or math.isclose(size_of(rotary), size_of(expected), rel_tol=1e-6):
        return ()
    attention = expected.attention_scaling
    for factor, words in ((1.0, "is missing"), (attention**2, "is applied twice"), (1 / attention, "is inverted")):
        if not math.isclose(attention, 1) and math.isclose(size_of(rotary), expected.scale * factor, rel_tol=1e-3):
            return (f"attention_scaling {attention:.4g} {words}",)
    return (f"cosines and sines are multiplied by {number(size_of(rotary))}, {source} {number(size_of(expected))}",)


def of_arithmetic(arithmetic: Arithmetic, narrower: bool) -> tuple[str, ...]:
    """Return the faults of an arithmetic; `narrower` is True if tables were rounded to too few bits."""
    above = f" above {2 ** PRECISION.get(arithmetic.positions, 0):,}"
    rounded = (("inv_freq was", arithmetic.frequencies, ""), ("positions were", arithmetic.positions, above),
               ("angles were", arithmetic.angles, ""), ("tables were", arithmetic.table if narrower else "", ""))
    return tuple(f"{what} rounded to {dtype}{where}" for what, dtype, where in rounded if dtype in NARROW)
