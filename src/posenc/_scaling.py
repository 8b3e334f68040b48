"""The scaling of rotary frequencies, as in the ``rope_parameters`` of a model configuration.

The types default, linear, dynamic and proportional have real frequencies, a product of powers.  Those of yarn, llama3 and
longrope are rounded once to float64, from `DIGITS` decimal digits.
"""

from __future__ import annotations

import decimal
import functools
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc import _arguments, _exact, _frequencies

DIGITS = 200
Scaling: TypeAlias = Mapping[str, Any]


class Frequencies(NamedTuple):
    """The frequencies of the pairs, and the attention factor, by which a type multiplies cos and sin."""

    turns: _exact.Turns
    values: NDArray[np.float64]
    attention_factor: float


# ---- keys -------------------------------------------------------------------------------------------------------------


def _positive(name: str, value: Any) -> float:
    number = _arguments.real(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {value!r}, expected a positive number")
    return number


def _length(name: str, value: Any) -> int:
    return _arguments.integer(name, value, 1)


def _factors(name: str, value: Any) -> tuple[float, ...]:
    factors: tuple[float, ...] = _arguments.frequencies(name, value)
    if min(factors, default=1) <= 0:
        raise ValueError(f"{name} has {min(factors)!r}, expected positive numbers")
    return factors


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}, expected a bool")
    return bool(value)


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    "factor": _positive,
    "alpha": _positive,
    "partial_rotary_factor": _positive,
    "original_max_position_embeddings": _length,
    "max_position_embeddings": _length,
    "length": _length,
    "attention_factor": _positive,
    "beta_fast": _positive,
    "beta_slow": _positive,
    "mscale": _arguments.real,
    "mscale_all_dim": _arguments.real,
    "truncate": _flag,
    "low_freq_factor": _positive,
    "high_freq_factor": _positive,
    "short_factor": _factors,
    "long_factor": _factors,
}
# type: (required keys, optional keys)
KEYS = {
    "default": ((), ()),
    "linear": (("factor",), ()),
    "dynamic": (("max_position_embeddings",), ("factor", "alpha", "length")),
    "yarn": (
        ("original_max_position_embeddings",),
        ("factor", "max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
         "truncate"),
    ),
    "longrope": (
        ("short_factor", "long_factor", "original_max_position_embeddings"),
        ("factor", "max_position_embeddings", "attention_factor", "length"),
    ),
    "llama3": (("factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"), ()),
    "proportional": ((), ("factor", "partial_rotary_factor")),
}


def checked(scaling: Any) -> dict[str, Any]:
    """Check the keys and values of a scaling, and return them converted, without those that are None."""
    if not isinstance(scaling, Mapping):
        raise _arguments.wrong_type("scaling", scaling, "a dict such as {'rope_type': 'linear', 'factor': 2.0}")
    given = {name: value for name, value in scaling.items() if value is not None}
    rope_type = given.pop("type", None)
    rope_type = given.pop("rope_type", rope_type or "default")
    if rope_type not in KEYS:
        raise ValueError(f"scaling['rope_type'] is {rope_type!r}, expected {', '.join(KEYS)}")
    required, optional = KEYS[rope_type]
    for name in given.keys() - set(required) - set(optional):
        raise ValueError(f"scaling has the key {name!r}, expected those of {rope_type}: {', '.join((*required, *optional))}")
    for name in required:
        if name not in given:
            raise ValueError(f"scaling lacks the key {name!r}, which {rope_type} needs")
    values = {name: CHECKS[name](f"scaling[{name!r}]", value) for name, value in given.items()}
    if rope_type == "dynamic" and ("factor" in values) == ("alpha" in values):
        raise ValueError("scaling of type dynamic has factor and alpha, or neither, expected one of them")
    if rope_type in ("yarn", "longrope") and "factor" not in values and "max_position_embeddings" not in values:
        raise ValueError(f"scaling lacks the key 'factor', which {rope_type} needs without 'max_position_embeddings'")
    if rope_type == "llama3" and values["low_freq_factor"] >= values["high_freq_factor"]:
        raise ValueError(
            f"scaling['low_freq_factor'] is {values['low_freq_factor']}, expected less than high_freq_factor, "
            f"{values['high_freq_factor']}"
        )
    return {"rope_type": rope_type, **values}


# ---- frequencies ------------------------------------------------------------------------------------------------------


def frequencies(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Return the frequencies of dim / 2 pairs.

    Parameters
    ----------
    dim : int
        The columns that are rotated.
    base, scale : float
        Frequency i is ``scale * base**(-2 i / dim)`` before the scaling.
    scaling : mapping
        From `checked`.
    """
    return TYPES[scaling["rope_type"]](dim, base, scale, scaling)


def explicit(values: Sequence[float], scale: float, attention_factor: float = 1.0) -> Frequencies:
    """Return frequencies that are float64 numbers."""
    turns = functools.partial(_frequencies.explicit_turns, values, scale)
    rounded = np.array([float(Fraction(value) * Fraction(scale)) for value in values], np.float64)
    return Frequencies(turns, rounded, attention_factor)


def _powers(count: int, zeros: int, powers: _frequencies.Powers, scales: Sequence[float | Fraction]) -> Frequencies:
    """Return the frequencies ``prod(scales) * prod(base**(-i / divisor))``, then some frequencies 0."""

    def turns(*significant: int) -> tuple[list[int], int]:
        result, fraction_bits = _frequencies.spaced_turns(count, powers, scales, *significant)
        return result + [0] * zeros, fraction_bits

    scale = Fraction(1)
    for each in scales:
        scale *= Fraction(each)
    values = _frequencies.spaced_float64(count, powers, scale)
    return Frequencies(turns, np.append(values, np.zeros(zeros)), 1.0)


def _default(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    return _powers(dim // 2, 0, ((base, Fraction(dim, 2)),), (scale,))


def _linear(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    return _powers(dim // 2, 0, ((base, Fraction(dim, 2)),), (scale, 1 / Fraction(scaling["factor"])))


def _dynamic(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """The base is multiplied by ``growth**(dim / (dim - 2))``, so frequency i is divided by ``growth**(2 i / (dim - 2))``."""
    if "alpha" in scaling:
        growth = Fraction(scaling["alpha"])
    else:
        most, factor = scaling["max_position_embeddings"], Fraction(scaling["factor"])
        growth = factor * max(scaling.get("length", 0), most) / most - (factor - 1)
    powers = [(base, Fraction(dim, 2))]
    if dim > 2:
        powers.append((growth, Fraction(dim - 2, 2)))
    return _powers(dim // 2, 0, powers, (scale,))


def _proportional(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """The exponents are those of all columns; only the first pairs turn."""
    turning = min(dim // 2, int(scaling.get("partial_rotary_factor", 1.0) * dim // 2))
    scales = scale, 1 / Fraction(scaling.get("factor", 1.0))
    return _powers(turning, dim // 2 - turning, ((base, Fraction(dim, 2)),), scales)


class _Decimals:
    """Decimal numbers of a context, for the formulas of the types that are rounded."""

    def __init__(self, dim: int, base: float, scale: float) -> None:
        self.context = _frequencies.decimal_context(DIGITS)
        self.dim, self.base = Decimal(dim), self.number(base)
        bits = 4 * DIGITS
        self.two_pi = self.context.divide(Decimal(2 * _frequencies.pi(bits)), Decimal(1 << bits))
        self.plain = [
            self.context.multiply(self.number(scale), self.context.power(self.base, self.number(Fraction(-2 * i, dim))))
            for i in range(dim // 2)
        ]

    def number(self, x: float | Fraction) -> Decimal:
        return _frequencies.decimal_quotient(self.context, x)


def _interpolated(plain: Decimal, factor: Decimal, share: Decimal) -> Decimal:
    """Return a frequency that is divided by `factor` in the given share."""
    return plain * (1 - share) + plain / factor * share


def _clip(x: Decimal) -> Decimal:
    return min(max(x, Decimal(0)), Decimal(1))


def _factor(scaling: Scaling) -> Fraction:
    """Return the factor; by default the growth of the positions."""
    if "factor" in scaling:
        return Fraction(scaling["factor"])
    return Fraction(scaling["max_position_embeddings"], scaling["original_max_position_embeddings"])


def _yarn(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """YaRN (arXiv 2309.00071): pairs between `low` and `high` are interpolated in part."""
    d = _Decimals(dim, base, scale)
    with decimal.localcontext(d.context):
        factor, length = d.number(_factor(scaling)), Decimal(scaling["original_max_position_embeddings"])

        def pair_with(rotations: float) -> Decimal:
            """Return the index, not an integer, of the pair that makes so many rotations over the length."""
            return d.dim * (length / (d.number(rotations) * d.two_pi)).ln() / (2 * d.base.ln())

        low, high = pair_with(scaling.get("beta_fast", 32.0)), pair_with(scaling.get("beta_slow", 1.0))
        if scaling.get("truncate", True):
            low, high = low.to_integral_value(decimal.ROUND_FLOOR), high.to_integral_value(decimal.ROUND_CEILING)
        low, high = max(low, Decimal(0)), min(high, d.dim - 1)
        if low == high:
            high += d.number(Fraction(1, 1000))
        values = [_interpolated(w, factor, _clip((i - low) / (high - low))) for i, w in enumerate(d.plain)]
        return explicit([float(value) for value in values], 1.0, _yarn_attention(d, factor, scaling))


def _yarn_attention(d: _Decimals, factor: Decimal, scaling: Scaling) -> float:
    if "attention_factor" in scaling:
        return float(scaling["attention_factor"])

    def growth(mscale: float) -> Decimal:
        return Decimal(1) if factor <= 1 else d.number(mscale) * factor.ln() / 10 + 1

    if scaling.get("mscale") and scaling.get("mscale_all_dim"):
        return float(growth(scaling["mscale"]) / growth(scaling["mscale_all_dim"]))
    return float(growth(1.0))


def _llama3(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Frequencies with few rotations over the length are divided by the factor, and those in between in part."""
    d = _Decimals(dim, base, scale)
    with decimal.localcontext(d.context):
        factor, low, high = (d.number(scaling[name]) for name in ("factor", "low_freq_factor", "high_freq_factor"))
        rotations = [w * scaling["original_max_position_embeddings"] / d.two_pi for w in d.plain]
        values = [_interpolated(w, factor, 1 - _clip((t - low) / (high - low))) for w, t in zip(d.plain, rotations, strict=True)]
        return explicit([float(value) for value in values], 1.0)


def _longrope(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """LongRoPE (arXiv 2402.13753): a divisor for each pair, one list for short sequences and one for long ones."""
    most = scaling["original_max_position_embeddings"]
    name = "long_factor" if scaling.get("length", 0) > most else "short_factor"
    if len(scaling[name]) != dim // 2:
        raise ValueError(f"scaling[{name!r}] has length {len(scaling[name])}, expected {dim // 2}, the number of pairs")
    d = _Decimals(dim, base, scale)
    with decimal.localcontext(d.context):
        values = [w / d.number(divisor) for w, divisor in zip(d.plain, scaling[name], strict=True)]
        if "attention_factor" in scaling:
            attention = float(scaling["attention_factor"])
        else:
            factor = d.number(_factor(scaling))
            attention = 1.0 if factor <= 1 else float((1 + factor.ln() / Decimal(most).ln()).sqrt())
        return explicit([float(value) for value in values], 1.0, attention)


TYPES: dict[str, Callable[[int, float, float, Scaling], Frequencies]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "yarn": _yarn,
    "longrope": _longrope,
    "llama3": _llama3,
    "proportional": _proportional,
}
