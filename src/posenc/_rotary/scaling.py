"""Scale the frequencies of a rotation by the ``rope_parameters`` of a model's configuration.

With the types default, linear, dynamic, ntk_alpha and proportional, frequencies are exact products of powers.  With yarn,
llama3 and longrope, they are computed with `DIGITS` decimal digits and rounded once to float64.
"""

from __future__ import annotations

import decimal
import difflib
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._core.exact import Turns
from posenc._core.frequencies import Powers, decimal_context, decimal_quotient, explicit_turns, pi, spaced_float64, spaced_turns

DIGITS = 200
Scaling: TypeAlias = Mapping[str, Any]


class Frequencies(NamedTuple):
    """The frequencies of the pairs of columns, and the attention factor, which multiplies cos and sin."""

    turns: Turns
    values: NDArray[np.float64]
    attention_factor: float


# ---- keys -------------------------------------------------------------------------------------------------------------


def _factors(name: str, value: Any) -> tuple[float, ...]:
    factors: tuple[float, ...] = checks.frequencies(name, value)
    if min(factors, default=1) <= 0:
        raise ValueError(f"{name} has {min(factors)!r}, expected positive numbers")
    return factors


def _section(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, (list, tuple)):
        raise checks.wrong_type(name, value, "a list of integers")
    return tuple(checks.integer(f"{name}[{i}]", number, 0) for i, number in enumerate(value))


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(
        ("rope_theta", "partial_rotary_factor", "factor", "alpha", "attention_factor", "beta_fast", "beta_slow",
         "low_freq_factor", "high_freq_factor", "short_mscale", "long_mscale"), checks.positive),
    **dict.fromkeys(("mscale", "mscale_all_dim"), checks.real),
    **dict.fromkeys(("mrope_interleaved", "truncate"), checks.boolean),
    **dict.fromkeys(
        ("original_max_position_embeddings", "max_position_embeddings", "length"), partial(checks.integer, lowest=1)),
    **dict.fromkeys(("short_factor", "long_factor"), _factors),
    "mrope_section": _section,
}
# Keys that every type accepts.  `Rotary` converts them to its keywords base, rotary_dim and axes.  The only exception is
# partial_rotary_factor with the type proportional.
SHARED = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
# type: (required keys, optional keys)
KEYS = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("factor", "max_position_embeddings"), ("length",)),
    "ntk_alpha": (("alpha",), ()),
    "yarn": (
        ("original_max_position_embeddings",),
        ("factor", "max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
         "truncate"),
    ),
    "longrope": (
        ("short_factor", "long_factor", "original_max_position_embeddings"),
        ("factor", "max_position_embeddings", "attention_factor", "short_mscale", "long_mscale", "length"),
    ),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "proportional": ((), ("factor",)),
}
# Keys that occur in configurations but do not affect a rotation; llama_4_scaling_beta, for example, scales the attention
WITHOUT_EFFECT = {
    "ntk_alpha": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
    "yarn": ("finetuned", "llama_4_scaling_beta"),
}
OLD_NAMES = {"su": "longrope", "mrope": "default"}


def type_of_scaling(scaling: Mapping[str, Any]) -> Any:
    """Return the type of a scaling; an old name is replaced by the current one."""
    given = [scaling[name] for name in ("rope_type", "type") if scaling.get(name) is not None]
    types = [OLD_NAMES.get(name, name) if isinstance(name, str) else name for name in given] or ["default"]
    if types[0] != types[-1]:
        raise ValueError(f"scaling has rope_type {given[0]!r} and type {given[1]!r}, expected only one of them")
    if not isinstance(types[0], str) or types[0] not in KEYS:
        near = difflib.get_close_matches(str(types[0]).lower(), KEYS, 1, cutoff=0.7)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        if types[0] == "axial":
            hint = "; Rotary.preset has rotations with several axes"
        raise ValueError(f"scaling has rope_type {given[0]!r}, expected one of {', '.join(KEYS)}{hint}")
    return "ntk_alpha" if types[0] == "dynamic" and scaling.get("alpha") is not None else types[0]


def positions_without_length(scaling: Mapping[str, Any] | None) -> int | None:
    """Return the number of positions for which the frequencies are valid, or None if `scaling` needs no length or has one."""
    names = {"dynamic": "max_position_embeddings", "longrope": "original_max_position_embeddings"}
    if scaling is None or "length" in scaling or (rope_type := type_of_scaling(scaling)) not in names:
        return None
    limit: int = scaling[names[rope_type]]
    return limit


def checked_scaling(name: str, scaling: Any) -> dict[str, Any]:
    """Check a scaling and return its converted values, without values that are None or have no effect."""
    if not isinstance(scaling, Mapping):
        raise checks.wrong_type(name, scaling, "a dict such as {'rope_type': 'linear', 'factor': 2.0}")
    rope_type = type_of_scaling(scaling)
    required, optional = KEYS[rope_type]
    without_effect = WITHOUT_EFFECT.get(rope_type, ())
    given = {key: scaling[key] for key in scaling if scaling[key] is not None and key not in ("rope_type", "type")}
    for key in given:
        if key not in (*required, *optional, *SHARED, *without_effect):
            if key in CHECKS and not {"rope_type", "type"} & scaling.keys():
                raise ValueError(f"{name} has the key {key!r} but lacks 'rope_type', expected one of {', '.join(KEYS)}")
            raise ValueError(f"{name} has the key {key!r}, expected keys of {rope_type}: {_listed(required, optional)}")
    for key in required:
        if key not in given:
            raise ValueError(f"{name} lacks the key {key!r}, which {rope_type} needs")
    values = {key: CHECKS[key](f"{name}[{key!r}]", value) for key, value in given.items() if key not in without_effect}
    if rope_type == "ntk_alpha" and given.get("factor", 1) != 1:
        raise ValueError(f"{name} has alpha and the factor {given['factor']!r}, expected only one of them")
    sufficient = {"factor", "max_position_embeddings"}
    if rope_type == "longrope":
        sufficient |= {"attention_factor", "short_mscale", "long_mscale"}
    if rope_type in ("yarn", "longrope") and not sufficient & values.keys():
        raise ValueError(f"{name} lacks the key 'factor' or 'max_position_embeddings', which {rope_type} needs")
    if rope_type == "longrope":
        if ("short_mscale" in values) != ("long_mscale" in values):
            raise ValueError(f"{name} has only one of short_mscale and long_mscale, expected both or neither")
        if values["original_max_position_embeddings"] == 1:
            raise ValueError(f"{name} has original_max_position_embeddings 1, expected at least 2")
    if rope_type == "llama3" and values["low_freq_factor"] >= values["high_freq_factor"]:
        raise ValueError(
            f"{name} has low_freq_factor {values['low_freq_factor']}, expected less than high_freq_factor, "
            f"{values['high_freq_factor']}"
        )
    return {"rope_type": rope_type, **values}


def _listed(required: Sequence[str], optional: Sequence[str]) -> str:
    return ", ".join((*required, *optional, *SHARED))


# ---- frequencies ------------------------------------------------------------------------------------------------------


def scaled_frequencies(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Return the scaled frequencies of dim / 2 pairs; the unscaled frequency i is ``scale * base**(-2 i / dim)``."""
    return TYPES[scaling["rope_type"]](dim, base, scale, scaling) if dim else explicit_frequencies(())


def explicit_frequencies(values: Sequence[float], attention_factor: float = 1.0) -> Frequencies:
    """Return `Frequencies` with these float64 values."""
    array = np.array(values, np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"scaling gives the frequency {array[~np.isfinite(array)][0]}, expected finite frequencies")
    return Frequencies(partial(explicit_turns, values, 1.0), array, attention_factor)


def _powers(count: int, zeros: int, powers: Powers, scales: Sequence[float | Fraction]) -> Frequencies:
    """Return `count` frequencies ``prod(scales) * prod(base**(-i / divisor))``, followed by `zeros` zeros."""

    def turns(*significant: int) -> tuple[list[int], int]:
        result, fraction_bits = spaced_turns(count, powers, scales, *significant)
        return result + [0] * zeros, fraction_bits

    scale = Fraction(1)
    for each in scales:
        scale *= Fraction(each)
    values = spaced_float64(count, powers, scale)
    return Frequencies(turns, np.append(values, np.zeros(zeros)), 1.0)


def _default(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    return _powers(dim // 2, 0, ((base, Fraction(dim, 2)),), (scale,))


def _linear(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    return _powers(dim // 2, 0, ((base, Fraction(dim, 2)),), (scale, 1 / Fraction(scaling["factor"])))


def _dynamic(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    trained, factor = scaling["max_position_embeddings"], Fraction(scaling["factor"])
    return _with_larger_base(dim, base, scale, factor * max(scaling.get("length", 0), trained) / trained - (factor - 1))


def _ntk_alpha(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    return _with_larger_base(dim, base, scale, Fraction(scaling["alpha"]))


def _with_larger_base(dim: int, base: float, scale: float, growth: Fraction) -> Frequencies:
    """Multiply the base by ``growth**(dim / (dim - 2))``; this divides frequency i by ``growth**(2 i / (dim - 2))``."""
    powers: list[tuple[float | Fraction, Fraction]] = [(base, Fraction(dim, 2))]
    if dim > 2:
        powers.append((growth, Fraction(dim - 2, 2)))
    return _powers(dim // 2, 0, powers, (scale,))


def _proportional(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Keep the exponents ``2 i / dim``, divide the frequencies by ``factor``, and set the last frequencies to 0."""
    rotated = min(dim // 2, int(scaling.get("partial_rotary_factor", 1.0) * dim // 2))
    scales = scale, 1 / Fraction(scaling.get("factor", 1.0))
    return _powers(rotated, dim // 2 - rotated, ((base, Fraction(dim, 2)),), scales)


class _Decimals:
    """Decimal numbers for the formulas of yarn, llama3 and longrope; `unscaled` has the default frequencies."""

    def __init__(self, dim: int, base: float, scale: float) -> None:
        self.context = decimal_context(DIGITS)
        self.dim, self.base = Decimal(dim), self.number(base)
        bits = 4 * DIGITS
        self.two_pi = self.context.divide(Decimal(2 * pi(bits)), Decimal(1 << bits))
        self.unscaled = [self.number(scale)]
        ratio = self.context.power(self.base, self.number(Fraction(-2, dim)))
        for _ in range(dim // 2 - 1):
            self.unscaled.append(self.context.multiply(self.unscaled[-1], ratio))

    def number(self, x: float | Fraction) -> Decimal:
        return decimal_quotient(self.context, x)


def _interpolated(unscaled: Decimal, factor: Decimal, share: Decimal) -> Decimal:
    """Interpolate between ``unscaled``, for share 0, and ``unscaled / factor``, for share 1."""
    return unscaled * (1 - share) + unscaled / factor * share


def _clip(x: Decimal) -> Decimal:
    return min(max(x, Decimal(0)), Decimal(1))


def _factor(scaling: Scaling) -> Fraction:
    """Return the value of the key ``factor``, by default the ratio of the new to the original number of positions."""
    if "factor" in scaling:
        return Fraction(scaling["factor"])
    return Fraction(scaling["max_position_embeddings"], scaling["original_max_position_embeddings"])


def _yarn(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """YaRN (arXiv 2309.00071): keep the frequencies of pairs up to `low`; from pair `high` on, divide them by the factor."""
    if base <= 1:
        raise ValueError(f"base is {base}, expected a number above 1 for yarn")
    d = _Decimals(dim, base, scale)
    with decimal.localcontext(d.context):
        factor, length = d.number(_factor(scaling)), Decimal(scaling["original_max_position_embeddings"])

        def pair_with(rotations: float) -> Decimal:
            """Return the real-valued index of the pair that makes this number of rotations over `length` positions.

            `scale` does not affect the index.
            """
            return d.dim * (length / (d.number(rotations) * d.two_pi)).ln() / (2 * d.base.ln())

        low, high = pair_with(scaling.get("beta_fast", 32.0)), pair_with(scaling.get("beta_slow", 1.0))
        if scaling.get("truncate", True):
            low, high = low.to_integral_value(decimal.ROUND_FLOOR), high.to_integral_value(decimal.ROUND_CEILING)
        low, high = max(low, Decimal(0)), min(high, d.dim - 1)
        if low == high:
            high += d.number(Fraction(1, 1000))
        values = [_interpolated(w, factor, _clip((i - low) / (high - low))) for i, w in enumerate(d.unscaled)]
        return explicit_frequencies([float(value) for value in values], _yarn_attention(d, factor, scaling))


def _yarn_attention(d: _Decimals, factor: Decimal, scaling: Scaling) -> float:
    if "attention_factor" in scaling:
        attention: float = scaling["attention_factor"]
        return attention

    def growth(mscale: float) -> Decimal:
        return Decimal(1) if factor <= 1 else d.number(mscale) * factor.ln() / 10 + 1

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return float(growth(scaling["mscale"]) / growth(scaling["mscale_all_dim"]))
    return float(growth(1.0))


def _llama3(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Divide the frequencies of pairs with at most `low` rotations by the factor; keep those with at least `high`."""
    d = _Decimals(dim, base, scale)
    with decimal.localcontext(d.context):
        factor, low, high = (d.number(scaling[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
        rotations = [w * scaling["original_max_position_embeddings"] / d.two_pi for w in d.unscaled]
        shares = [1 - _clip((t - low) / (high - low)) for t in rotations]
        values = [_interpolated(w, factor, share) for w, share in zip(d.unscaled, shares, strict=True)]
        return explicit_frequencies([float(value) for value in values])


def _longrope(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """LongRoPE (arXiv 2402.13753): divide each frequency by its factor for short or for long sequences."""
    trained = scaling["original_max_position_embeddings"]
    for name in ("short_factor", "long_factor"):
        if len(scaling[name]) != dim // 2:
            raise ValueError(f"scaling[{name!r}] has length {len(scaling[name])}, expected {dim // 2}, the number of pairs")
    name = "long_factor" if scaling.get("length", 0) > trained else "short_factor"
    d = _Decimals(dim, base, scale)
    with decimal.localcontext(d.context):
        values = [w / d.number(divisor) for w, divisor in zip(d.unscaled, scaling[name], strict=True)]
        if "short_mscale" in scaling:
            attention = scaling[name.replace("factor", "mscale")]
        elif "attention_factor" in scaling:
            attention = scaling["attention_factor"]
        else:
            factor = d.number(_factor(scaling))
            attention = 1.0 if factor <= 1 else float((1 + factor.ln() / Decimal(trained).ln()).sqrt())
        return explicit_frequencies([float(value) for value in values], attention)


TYPES: dict[str, Callable[[int, float, float, Scaling], Frequencies]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "ntk_alpha": _ntk_alpha,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
