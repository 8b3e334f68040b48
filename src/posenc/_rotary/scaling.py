"""Scale the frequencies of a rotation by the ``rope_parameters`` of a model's configuration.

With the types default, linear, dynamic, ntk_alpha and proportional, frequencies are exact products of powers.
With yarn, llama3 and longrope, they are computed with `DIGITS` decimal digits and rounded once to float64.
"""

import decimal
import math
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._core.frequencies import (
    DIGITS,
    ComputeTurns,
    decimal_context,
    decimal_quotient,
    explicit_turns,
    pi,
    spaced_float64,
    spaced_turns,
)
from posenc._rotary.axes_of_pairs import axis_of_each_pair, blocks, interleaved

CONTEXT = decimal_context(DIGITS)
TWO_PI = CONTEXT.divide(Decimal(2 * pi(256)), Decimal(1 << 256))
Scaling: TypeAlias = Mapping[str, Any]


class Frequencies(NamedTuple):
    """The frequencies of the pairs of columns, and the attention factor, which multiplies cos and sin."""

    turns: ComputeTurns             # the frequencies after the last one are 0
    values: NDArray[np.float64]
    attention_factor: float


def explicit_frequencies(values: Sequence[float], attention_factor: float = 1.0) -> Frequencies:
    """Return `Frequencies` with these float64 values."""
    array = np.array(values, np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"scaling gives the frequency {array[~np.isfinite(array)][0]}, expected finite frequencies")
    return Frequencies(partial(explicit_turns, values, 1.0), array, attention_factor)


# ---- types with exact frequencies --------------------------------------------------------------------------


def _exact(
    dim: int, base: float, *scales: float | Fraction, growth: Fraction = Fraction(1), rotated: int | None = None
) -> Frequencies:
    """Return the frequencies ``prod(scales) * base**(-2 i / dim) * growth**(-2 i / (dim - 2))``; from `rotated` on, they are 0.

    The factor ``growth**(-2 i / (dim - 2))`` is that of a base multiplied by ``growth**(dim / (dim - 2))``.
    """
    powers: list[tuple[float | Fraction, Fraction]] = [(base, Fraction(dim, 2))]
    if dim > 2 and growth != 1:
        powers.append((growth, Fraction(dim - 2, 2)))
    count = dim // 2 if rotated is None else rotated
    values = spaced_float64(count, powers, math.prod((Fraction(s) for s in scales), start=Fraction(1)))
    values = np.append(values, np.zeros(dim // 2 - count))
    return Frequencies(partial(spaced_turns, count, powers, scales), values, 1.0)


def _linear(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Divide the frequencies by ``factor``, by default 1; with the type proportional, set the last frequencies to 0."""
    rotated = min(dim // 2, int(scaling.get("partial_rotary_factor", 1.0) * dim // 2))
    return _exact(dim, base, scale, 1 / Fraction(scaling.get("factor", 1.0)), rotated=rotated)


def _dynamic(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    limit, factor = scaling["max_position_embeddings"], Fraction(scaling["factor"])
    return _exact(dim, base, scale, growth=factor * max(scaling.get("length", 0), limit) / limit - (factor - 1))


def _ntk_alpha(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    return _exact(dim, base, scale, growth=Fraction(scaling["alpha"]))


# ---- types with rounded frequencies: these functions run in CONTEXT ----------------------------------------


def _unscaled(dim: int, base: float, scale: float) -> list[Decimal]:
    ratio = Decimal(base) ** decimal_quotient(CONTEXT, Fraction(-2, dim))
    frequencies = [Decimal(scale)]
    for _ in range(dim // 2 - 1):
        frequencies.append(frequencies[-1] * ratio)
    return frequencies


def _interpolated(frequency: Decimal, factor: Decimal, weight: Decimal) -> float:
    """Interpolate between ``frequency``, for weights up to 0, and ``frequency / factor``, for weights of at least 1."""
    weight = min(max(weight, Decimal(0)), Decimal(1))
    return float(frequency * (1 - weight) + frequency / factor * weight)


def _factor(scaling: Scaling) -> Decimal:
    """Return the value of the key ``factor``, by default the ratio of the new to the original number of positions."""
    if "factor" in scaling:
        return Decimal(scaling["factor"])
    if "max_position_embeddings" not in scaling:
        raise _lacks("factor", scaling)
    return Decimal(scaling["max_position_embeddings"]) / Decimal(scaling["original_max_position_embeddings"])


def _yarn(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """YaRN (arXiv 2309.00071): keep the frequencies of pairs up to `low`; from pair `high` on, divide them by the factor."""
    if base <= 1:
        raise ValueError(f"base is {base}, expected a number above 1 for yarn")

    def pair_with(rotations: float) -> Decimal:
        """Return the real-valued index of the pair that makes this number of rotations over the original positions.

        `scale` does not affect the index.
        """
        rotations_of_first_pair = Decimal(scaling["original_max_position_embeddings"]) / TWO_PI
        return dim * (rotations_of_first_pair / Decimal(rotations)).ln() / (2 * Decimal(base).ln())

    low, high = pair_with(scaling.get("beta_fast", 32.0)), pair_with(scaling.get("beta_slow", 1.0))
    if scaling.get("truncate", True):
        low, high = low.to_integral_value(decimal.ROUND_FLOOR), high.to_integral_value(decimal.ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(dim - 1))
    if low == high:
        high += Decimal("0.001")
    factor = _factor(scaling)
    values = [_interpolated(w, factor, (i - low) / (high - low)) for i, w in enumerate(_unscaled(dim, base, scale))]
    return explicit_frequencies(values, _yarn_attention(factor, scaling))


def _yarn_attention(factor: Decimal, scaling: Scaling) -> float:
    def growth(mscale: float) -> Decimal:
        return Decimal(mscale) * max(factor, Decimal(1)).ln() / 10 + 1

    mscale, mscale_all_dim = scaling.get("mscale"), scaling.get("mscale_all_dim")
    attention = growth(mscale) / growth(mscale_all_dim) if mscale and mscale_all_dim else growth(1.0)
    return float(scaling.get("attention_factor", attention))


def _llama3(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """Divide the frequencies of pairs with at most `low` rotations by the factor; keep those with at least `high`."""
    factor, low, high = (Decimal(scaling[key]) for key in ("factor", "low_freq_factor", "high_freq_factor"))
    if low >= high:
        raise ValueError(f"scaling['low_freq_factor'] is {low}, expected less than high_freq_factor, {high}")
    trained_length = scaling["original_max_position_embeddings"]
    return explicit_frequencies([
        _interpolated(w, factor, 1 - (w * trained_length / TWO_PI - low) / (high - low)) for w in _unscaled(dim, base, scale)
    ])


def _longrope(dim: int, base: float, scale: float, scaling: Scaling) -> Frequencies:
    """LongRoPE (arXiv 2402.13753): divide each frequency by its factor for short or for long sequences."""
    trained_length = scaling["original_max_position_embeddings"]
    for key in ("short_factor", "long_factor"):
        if len(scaling[key]) != dim // 2:
            raise ValueError(f"scaling[{key!r}] has length {len(scaling[key])}, expected {dim // 2}, the number of pairs")
    if ("short_mscale" in scaling) != ("long_mscale" in scaling):
        raise _lacks("long_mscale" if "short_mscale" in scaling else "short_mscale", scaling)
    size = "long" if scaling.get("length", 0) > trained_length else "short"
    values = [w / Decimal(divisor) for w, divisor in zip(_unscaled(dim, base, scale), scaling[f"{size}_factor"], strict=True)]
    attention = scaling.get(f"{size}_mscale", scaling.get("attention_factor"))
    if attention is None:
        attention = float((1 + max(_factor(scaling), Decimal(1)).ln() / Decimal(trained_length).ln()).sqrt())
    return explicit_frequencies([float(value) for value in values], attention)


# ---- keys --------------------------------------------------------------------------------------------------


class ScalingType(NamedTuple):
    """A type of scaling: the function that computes the frequencies, and the keys of the dict."""

    frequencies: Callable[[int, float, float, Scaling], Frequencies]
    required: tuple[str, ...] = ()
    optional: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()       # keys of configurations that do not affect a rotation


ORIGINAL = "original_max_position_embeddings"
TYPES = {
    "default": ScalingType(_linear),
    "linear": ScalingType(_linear, ("factor",)),
    "dynamic": ScalingType(_dynamic, ("factor", "max_position_embeddings"), ("length",)),
    "ntk_alpha": ScalingType(_ntk_alpha, ("alpha",), (), ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim")),
    "yarn": ScalingType(
        _yarn, (ORIGINAL,),
        ("factor", "max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim",
         "truncate"),
        ("finetuned", "llama_4_scaling_beta"),          # llama_4_scaling_beta scales the attention
    ),
    "longrope": ScalingType(
        _longrope, ("short_factor", "long_factor", ORIGINAL),
        ("factor", "max_position_embeddings", "attention_factor", "short_mscale", "long_mscale", "length"),
    ),
    "llama3": ScalingType(_llama3, ("factor", "low_freq_factor", "high_freq_factor", ORIGINAL)),
    "proportional": ScalingType(_linear, (), ("factor",)),
}
# Keys that every type accepts.  `Rotary` converts them to its keywords base, rotary_dim and axes.  The only
# exception is partial_rotary_factor with the type proportional.
SHARED = ("rope_theta", "partial_rotary_factor", "mrope_section", "mrope_interleaved")
DEFAULT = {"rope_type": "default"}
FORMER_NAMES = {"su": "longrope", "mrope": "default"}


def _positive_numbers(name: str, value: Any) -> tuple[float, ...]:
    numbers = list(value) if isinstance(value, Sequence) else value             # not a list of OmegaConf
    return tuple(checks.positive(f"{name}[{i}]", x) for i, x in enumerate(checks.frequencies(name, numbers)))


def _length(name: str, value: Any, *, lowest: int = 1) -> int:
    """Return a number of positions as an integer; configurations also state it as a float."""
    return checks.integer(name, int(value) if isinstance(value, float) and value.is_integer() else value, lowest)


def _section(name: str, value: Any) -> tuple[int, ...]:
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise checks.wrong_type(name, value, "a list of integers")
    return tuple(checks.integer(f"{name}[{i}]", number, 0) for i, number in enumerate(value))


CHECKS: dict[str, Callable[[str, Any], Any]] = {          # of all other keys: checks.positive
    **dict.fromkeys(("mscale", "mscale_all_dim"), checks.real),
    **dict.fromkeys(("mrope_interleaved", "truncate"), checks.boolean),
    **dict.fromkeys(("max_position_embeddings", "length"), _length),
    ORIGINAL: partial(_length, lowest=2),
    **dict.fromkeys(("short_factor", "long_factor"), _positive_numbers),
    "mrope_section": _section,
}


def type_of_scaling(scaling: Scaling) -> str:
    """Return the type of a scaling; a former name is replaced by the current one."""
    values = [str(scaling[key]) for key in ("rope_type", "type") if scaling.get(key) is not None]
    names = {FORMER_NAMES.get(value, value) for value in values or ["default"]}
    if not names <= TYPES.keys() or len(names) > 1:
        raise ValueError(f"scaling has rope_type {' and '.join(map(repr, sorted(names)))}, expected one of {', '.join(TYPES)}")
    return "ntk_alpha" if names == {"dynamic"} and scaling.get("alpha") is not None else names.pop()


def positions_without_length(scaling: Scaling | None) -> int | None:
    """Return the number of positions for which the frequencies are valid, or None if `scaling` needs no length or has one."""
    names = {"dynamic": "max_position_embeddings", "longrope": ORIGINAL}
    if scaling is None or "length" in scaling or (rope_type := type_of_scaling(scaling)) not in names:
        return None
    limit: int = scaling[names[rope_type]]
    return limit


def checked_scaling(name: str, scaling: Any) -> dict[str, Any]:
    """Check a scaling and return its converted values, without values that are None or have no effect."""
    if not isinstance(scaling, Mapping):
        raise checks.wrong_type(name, scaling, "a dict such as {'rope_type': 'linear', 'factor': 2.0}")
    rope_type = type_of_scaling(scaling)
    _, required, optional, ignored = TYPES[rope_type]
    valid_keys = (*required, *optional, *SHARED)
    values: dict[str, Any] = {"rope_type": rope_type}
    for key, value in scaling.items():
        if value is None or key in ("rope_type", "type", *ignored):
            continue
        if key not in valid_keys:
            raise ValueError(f"{name} has the key {key!r}, expected keys of {rope_type}: {', '.join(valid_keys)}")
        check: Callable[[str, Any], Any] = CHECKS.get(key, checks.positive)
        values[key] = check(f"{name}[{key!r}]", value)
    for key in required:
        if key not in values:
            raise _lacks(key, values)
    if rope_type == "ntk_alpha" and scaling.get("factor") not in (None, 1):
        raise checks.both_given(f"{name}['alpha']", f"{name}['factor']")
    return values


def _lacks(key: str, scaling: Scaling) -> ValueError:
    return ValueError(f"scaling lacks the key {key!r}, which {scaling['rope_type']} needs")


def keywords_in_scaling(scaling: Scaling | None, head_dim: int) -> tuple[Scaling | None, dict[str, tuple[str, Any]]]:
    """Return a scaling without the keys of `SHARED`, and for these keys, the keywords of `Rotary` with their values."""
    scaling = dict(scaling or DEFAULT)
    names = set(SHARED) - ({"partial_rotary_factor"} if scaling["rope_type"] == "proportional" else set())
    shared = {key: scaling.pop(key) for key in names & scaling.keys()}
    keywords: dict[str, tuple[str, Any]] = {}
    if "rope_theta" in shared:
        keywords["rope_theta"] = "base", shared["rope_theta"]
    if "partial_rotary_factor" in shared:
        share = shared["partial_rotary_factor"]
        if head_dim and head_dim * share < 2:
            raise ValueError(f"scaling['partial_rotary_factor'] is {share}, expected at least {2 / head_dim}, for one pair")
        keywords["partial_rotary_factor"] = "rotary_dim", int(head_dim * share)
    if "mrope_section" in shared or shared.get("mrope_interleaved"):
        axes_of = interleaved if shared.get("mrope_interleaved") else blocks
        axes = axis_of_each_pair("scaling['mrope_section']", axes_of(shared.get("mrope_section", ())))
        keywords["mrope_section"] = "axes", axes
    return None if scaling == DEFAULT else scaling, keywords


def frequencies_of(rotary_dim: int, keywords: Mapping[str, Any]) -> Frequencies:
    """Return the frequencies that the keywords of `Rotary` give for rotary_dim / 2 pairs."""
    if keywords["frequencies"] is not None or not rotary_dim:
        frequencies = explicit_frequencies(keywords["frequencies"] or ())
    else:
        scaling = keywords["scaling"] or DEFAULT
        with decimal.localcontext(CONTEXT):
            frequencies = TYPES[scaling["rope_type"]].frequencies(
                rotary_dim, keywords["base"], keywords["frequency_scale"], scaling
            )
    turns = lru_cache(maxsize=4)(frequencies.turns)
    turns()                                                         # refuses frequencies beyond the range of the kernel
    if not np.isfinite(keywords["scale"] * frequencies.attention_factor):
        limit = f"a number whose product with {frequencies.attention_factor} is finite"
        raise ValueError(f"scale is {keywords['scale']}, expected {limit}")
    values = np.frombuffer(frequencies.values.tobytes())                    # a view of bytes is always read-only
    return frequencies._replace(turns=turns, values=values)
