"""Scale the frequencies of a rotation by the ``rope_parameters`` of a model's configuration.

With the types default, linear, dynamic, ntk_alpha and proportional, frequencies are exact products of powers.
With yarn, llama3 and longrope, they are computed with 60 decimal digits and rounded once to float64.
"""

import decimal
import inspect
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._core import frequencies as core
from posenc._core import kernel

CONTEXT = core.decimal_context(60)
TWO_PI = CONTEXT.divide(Decimal(2 * core.pi(256)), Decimal(1 << 256))
Scaling: TypeAlias = Mapping[str, Any]


class Frequencies(NamedTuple):
    """The frequencies of the pairs of columns, and the attention factor, which multiplies cos and sin."""

    turns: core.ComputeTurns             # the frequencies after the last one are 0
    values: NDArray[np.float64]
    attention_factor: float


def explicit_frequencies(values: Sequence[float], attention_factor: float = 1.0) -> Frequencies:
    """Return `Frequencies` with these float64 values."""
    array = np.array(values, np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"scaling gives frequency {array[~np.isfinite(array)][0]}, expected a finite one")
    turns = lru_cache(maxsize=4)(partial(core.explicit_turns, values, 1.0))
    turns(core.SIGNIFICANT_BITS)                        # refuses frequencies beyond the range of the kernel
    return Frequencies(turns, array, attention_factor)


# ---- types with exact frequencies --------------------------------------------------------------------------


def _exact(
    dim: int, base: float, scale: float | Fraction, growth: Fraction = Fraction(1), rotated: int | None = None
) -> Frequencies:
    """Return the frequencies ``scale * base**(-2 i / dim) * growth**(-2 i / (dim - 2))``.

    From `rotated` on, they are 0.

    The factor ``growth**(-2 i / (dim - 2))`` is that of a base multiplied by ``growth**(dim / (dim - 2))``.
    """
    powers: list[tuple[float | Fraction, Fraction]] = [(base, Fraction(dim, 2))]
    if dim > 2 and growth != 1:
        powers.append((growth, Fraction(dim - 2, 2)))
    count = dim // 2 if rotated is None else rotated
    turns = lru_cache(maxsize=4)(partial(core.spaced_turns, count, powers, (scale,)))
    return Frequencies(turns, np.append(core.radians_of(turns), np.zeros(dim // 2 - count)), 1.0)


# The keyword-only parameters of a type's function are its keys; keys without a default are required.


def _linear(dim: int, base: float, scale: float, *, factor: float) -> Frequencies:
    return _exact(dim, base, Fraction(scale) / Fraction(factor))


def _proportional(
    dim: int, base: float, scale: float, *, factor: float = 1.0, partial_rotary_factor: float = 1.0
) -> Frequencies:
    rotated = min(dim // 2, int(partial_rotary_factor * dim // 2))
    return _exact(dim, base, Fraction(scale) / Fraction(factor), rotated=rotated)


def _dynamic(
    dim: int, base: float, scale: float, *, factor: float, max_position_embeddings: int, length: int = 0
) -> Frequencies:
    exact, limit = Fraction(factor), max_position_embeddings
    return _exact(dim, base, scale, growth=exact * max(length, limit) / limit - (exact - 1))


def _ntk_alpha(dim: int, base: float, scale: float, *, alpha: float) -> Frequencies:
    return _exact(dim, base, scale, growth=Fraction(alpha))


# ---- types with rounded frequencies: these functions run in CONTEXT ----------------------------------------


def _unscaled(dim: int, base: float, scale: float) -> list[Decimal]:
    ratio = Decimal(base) ** core.decimal_quotient(CONTEXT, Fraction(-2, dim))
    frequencies = [Decimal(scale)]
    for _ in range(dim // 2 - 1):
        frequencies.append(frequencies[-1] * ratio)
    return frequencies


def _interpolated(frequency: Decimal, factor: Decimal, weight: Decimal) -> float:
    """Interpolate between ``frequency`` (weight 0 or less) and ``frequency / factor`` (weight 1 or more)."""
    weight = min(max(weight, Decimal(0)), Decimal(1))
    return float(frequency * (1 - weight) + frequency / factor * weight)


def _ratio(rope_type: str, factor: float | None, length: int | None, trained_length: int) -> Decimal:
    """Return the factor, by default the ratio of the new to the original number of positions."""
    if factor is not None:
        return Decimal(factor)
    if length is None:
        raise _missing_key("factor", rope_type)
    return Decimal(length) / Decimal(trained_length)


def _yarn(
    dim: int, base: float, scale: float, *, original_max_position_embeddings: int, factor: float | None = None,
    max_position_embeddings: int | None = None, attention_factor: float | None = None, beta_fast: float = 32.0,
    beta_slow: float = 1.0, mscale: float | None = None, mscale_all_dim: float | None = None, truncate: bool = True,
) -> Frequencies:
    """YaRN (arXiv 2309.00071): keep frequencies up to pair `low`; divide those from pair `high` on."""
    if base <= 1:
        raise ValueError(f"base is {base}, expected a number above 1 for yarn")

    def pair_with(rotations: float) -> Decimal:
        """Return the real-valued index of the pair with this number of rotations over the original positions.

        `scale` does not affect the index.
        """
        rotations_of_first_pair = Decimal(original_max_position_embeddings) / TWO_PI
        return dim * (rotations_of_first_pair / Decimal(rotations)).ln() / (2 * Decimal(base).ln())

    def growth(multiple: float) -> Decimal:
        return Decimal(multiple) * max(ratio, Decimal(1)).ln() / 10 + 1

    low, high = pair_with(beta_fast), pair_with(beta_slow)
    if truncate:
        low, high = low.to_integral_value(decimal.ROUND_FLOOR), high.to_integral_value(decimal.ROUND_CEILING)
    low, high = max(low, Decimal(0)), min(high, Decimal(dim - 1))
    if low == high:
        high += Decimal("0.001")
    ratio = _ratio("yarn", factor, max_position_embeddings, original_max_position_embeddings)
    unscaled = _unscaled(dim, base, scale)
    values = [_interpolated(w, ratio, (i - low) / (high - low)) for i, w in enumerate(unscaled)]
    attention = growth(mscale) / growth(mscale_all_dim) if mscale and mscale_all_dim else growth(1.0)
    return explicit_frequencies(values, float(attention if attention_factor is None else attention_factor))


def _llama3(
    dim: int, base: float, scale: float, *, factor: float, low_freq_factor: float, high_freq_factor: float,
    original_max_position_embeddings: int,
) -> Frequencies:
    """Divide frequencies of at most `low` rotations by the factor, and keep those of at least `high`."""
    divisor, low, high = Decimal(factor), Decimal(low_freq_factor), Decimal(high_freq_factor)
    if low >= high:
        raise ValueError(f"scaling['low_freq_factor'] is {low}, expected less than high_freq_factor, {high}")
    return explicit_frequencies([
        _interpolated(w, divisor, 1 - (w * original_max_position_embeddings / TWO_PI - low) / (high - low))
        for w in _unscaled(dim, base, scale)
    ])


def _longrope(
    dim: int, base: float, scale: float, *, short_factor: Sequence[float], long_factor: Sequence[float],
    original_max_position_embeddings: int, factor: float | None = None, max_position_embeddings: int | None = None,
    attention_factor: float | None = None, short_mscale: float | None = None, long_mscale: float | None = None,
    length: int = 0,
) -> Frequencies:
    """LongRoPE (arXiv 2402.13753): divide each frequency by its factor for short or for long sequences."""
    for key, factors in (("short_factor", short_factor), ("long_factor", long_factor)):
        checks.check_length(f"scaling[{key!r}]", factors, dim // 2, ", one for each pair")
    if (short_mscale is None) != (long_mscale is None):
        raise _missing_key("short_mscale" if short_mscale is None else "long_mscale", "longrope")
    is_long = length > original_max_position_embeddings
    divisors, attention = (long_factor, long_mscale) if is_long else (short_factor, short_mscale)
    attention = attention_factor if attention is None else attention
    if attention is None:
        trained_length = original_max_position_embeddings
        ratio = _ratio("longrope", factor, max_position_embeddings, trained_length)
        attention = float((1 + max(ratio, Decimal(1)).ln() / Decimal(trained_length).ln()).sqrt())
    frequencies = zip(_unscaled(dim, base, scale), divisors, strict=True)
    return explicit_frequencies([float(w / Decimal(divisor)) for w, divisor in frequencies], attention)


# ---- the axis of positions of each pair --------------------------------------------------------------------


def axis_of_each_pair(name: str, value: Any) -> tuple[int, ...]:
    axes = checks.integers(name, value)
    count = len(set(axes))
    if set(axes) != set(range(count)) or count > kernel.MAX_AXES:
        raise ValueError(f"{name} is {checks.shown(axes)}, expected 0 to {kernel.MAX_AXES - 1}, no gaps")
    return axes


def blocks(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 0 for the first ``sections[0]`` pairs, 1 for the next, and so on."""
    return tuple(axis for axis, count in enumerate(sections) for _ in range(count))


def interleaved(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 0, 1, 2, 0, 1, 2 ..., with 0 for an axis that has all its pairs."""
    checks.check_length("mrope_section", sections, 3, " for mrope_interleaved")
    axes = np.zeros(sum(sections), int)
    for axis in (1, 2):
        axes[axis : 3 * sections[axis] : 3] = axis
    return tuple(axes.tolist())


def alternating(sections: Sequence[int]) -> tuple[int, ...]:
    """Return the axis of each pair: 1 and 2 in turn, then 0.

    `sections` has the numbers of pairs for axes 1, 2 and 0.
    """
    return (1, 2) * sections[0] + (0,) * sections[2]


# ---- keys --------------------------------------------------------------------------------------------------


ORIGINAL = "original_max_position_embeddings"
TYPES: dict[str, Callable[..., Frequencies]] = {
    "default": _exact, "linear": _linear, "dynamic": _dynamic,
    "proportional": _proportional, "ntk_alpha": _ntk_alpha, "yarn": _yarn, "longrope": _longrope,
    "llama3": _llama3,
}
# keys of configurations that do not affect a rotation; llama_4_scaling_beta scales the attention
IGNORED = {"ntk_alpha": ("factor", "beta_fast", "beta_slow", "mscale", "mscale_all_dim"),
           "yarn": ("finetuned", "llama_4_scaling_beta")}
# keys of all types, which `Rotary` converts to its keywords, unless they are parameters of the type's
# function, as with proportional
IN_SCALING = {"rope_theta": "base", "partial_rotary_factor": "rotary_dim", "mrope_section": "axes"}
SHARED = (*IN_SCALING, "mrope_interleaved")
DEFAULT = {"rope_type": "default"}
FORMER_NAMES = {"su": "longrope", "mrope": "default"}


def _length(name: str, value: Any, *, lowest: int = 1) -> int:
    """Return a number of positions as an integer; configurations also state it as a float."""
    is_integral = isinstance(value, float) and value.is_integer()
    return checks.integer(name, int(value) if is_integral else value, lowest)


CHECKS: dict[str, Callable[[str, Any], Any]] = {          # of all other keys: checks.positive
    **dict.fromkeys(("mscale", "mscale_all_dim"), checks.real),
    **dict.fromkeys(("mrope_interleaved", "truncate"), checks.boolean),
    **dict.fromkeys(("max_position_embeddings", "length"), _length),
    ORIGINAL: partial(_length, lowest=2),
    **dict.fromkeys(("short_factor", "long_factor"), partial(checks.reals, check=checks.positive)),
    "mrope_section": checks.integers,
}


def type_of_scaling(scaling: Scaling) -> str:
    """Return the type of a scaling; a former name is replaced by the current one."""
    values = [str(scaling[key]) for key in ("rope_type", "type") if scaling.get(key) is not None]
    names = {FORMER_NAMES.get(value, value) for value in values or ["default"]}
    if not names <= TYPES.keys() or len(names) > 1:
        raise ValueError(f"scaling has rope_type {sorted(names)}, expected one of {', '.join(TYPES)}")
    return "ntk_alpha" if names == {"dynamic"} and scaling.get("alpha") is not None else names.pop()


def keys_of(rope_type: str) -> dict[str, Any]:
    """Return the keys of a type, and their defaults."""
    parameters = inspect.signature(TYPES[rope_type]).parameters
    return {name: key.default for name, key in parameters.items() if key.kind is key.KEYWORD_ONLY}


def positions_without_length(scaling: Scaling | None) -> int | None:
    """Return the number of positions that the frequencies are for, or None if `scaling` needs no length."""
    names = {"dynamic": "max_position_embeddings", "longrope": ORIGINAL}
    if scaling is None or "length" in scaling or (rope_type := type_of_scaling(scaling)) not in names:
        return None
    return int(scaling[names[rope_type]])


def checked_scaling(name: str, scaling: Any) -> dict[str, Any]:
    """Check a scaling and return its converted values, without values that are None or have no effect."""
    checks.check_type(name, scaling, Mapping, "a dict such as {'rope_type': 'linear', 'factor': 2.0}")
    rope_type = type_of_scaling(scaling)
    keys = keys_of(rope_type)
    valid_keys = dict.fromkeys((*keys, *SHARED))
    values: dict[str, Any] = {"rope_type": rope_type}
    for key, value in scaling.items():
        if value is None or key in ("rope_type", "type", *IGNORED.get(rope_type, ())):
            continue
        if key not in valid_keys:
            raise ValueError(f"{name} has {key!r}, expected keys of {rope_type}: {', '.join(valid_keys)}")
        check: Callable[[str, Any], Any] = CHECKS.get(key, checks.positive)
        values[key] = check(f"{name}[{key!r}]", value)
    for key, default in keys.items():
        if default is inspect.Parameter.empty and key not in values:
            raise _missing_key(key, rope_type)
    if rope_type == "ntk_alpha" and scaling.get("factor") not in (None, 1):
        raise checks.both_given(f"{name}['alpha']", f"{name}['factor']")
    return values


def _missing_key(key: str, rope_type: str) -> ValueError:
    return ValueError(f"scaling lacks the key {key!r}, which {rope_type} needs")


def keywords_in_scaling(scaling: Any, head_dim: int) -> tuple[Scaling | None, dict[str, Any]]:
    """Return a scaling without the keys of `SHARED`, and for each key the value of the keyword of `Rotary`."""
    scaling = dict(scaling or DEFAULT)
    names = set(SHARED) - keys_of(scaling["rope_type"]).keys()
    shared = {key: scaling.pop(key) for key in names & scaling.keys()}
    if share := shared.get("partial_rotary_factor"):
        if head_dim and head_dim * share < 2:
            raise ValueError(f"scaling['partial_rotary_factor'] is {share}, expected at least {2 / head_dim}")
        shared["partial_rotary_factor"] = int(head_dim * share)
    order = interleaved if shared.pop("mrope_interleaved", False) else blocks
    if "mrope_section" in shared or order is interleaved:
        axes = order(shared.get("mrope_section", ()))
        shared["mrope_section"] = axis_of_each_pair("scaling['mrope_section']", axes)
    return None if scaling == DEFAULT else scaling, shared


def frequencies_of(rotary_dim: int, keywords: Mapping[str, Any]) -> Frequencies:
    """Return the frequencies that the keywords of `Rotary` give for rotary_dim / 2 pairs."""
    if keywords["frequencies"] is not None or not rotary_dim:
        frequencies = explicit_frequencies(keywords["frequencies"] or ())
    else:
        rope_type, *keys = (keywords["scaling"] or DEFAULT).items()
        function = TYPES[rope_type[1]]
        with decimal.localcontext(CONTEXT):
            frequencies = function(rotary_dim, keywords["base"], keywords["frequency_scale"], **dict(keys))
    if not np.isfinite(keywords["scale"] * frequencies.attention_factor):
        raise ValueError(f"scale is {keywords['scale']}, expected a finite product with the attention factor")
    values = np.frombuffer(frequencies.values.tobytes())        # a view of bytes is always read-only
    return frequencies._replace(values=values)
