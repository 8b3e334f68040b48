"""The keywords of `Rotary` for known models of images, video and audio."""

import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import partial
from typing import Any, NamedTuple

from posenc._arguments import checks
from posenc._core.frequencies import radians_of, spaced_turns
from posenc._rotary.scaling import alternating, blocks, interleaved


class RotaryPreset(NamedTuple):
    """The rotation of a model; docs/rotary.md names its axes."""

    base: float
    keywords: Callable[..., dict[str, Any]]         # called with head_dim, base and frequency_scale
    divisor: int                                    # head_dim must be a multiple of this
    frequency_scale: float = 1.0


def _sections(
    head_dim: int, base: float, frequency_scale: float, *, shares: Sequence[int],
    order: Callable[[Sequence[int]], tuple[int, ...]], layout: str = "halves",
) -> dict[str, Any]:
    """Divide the pairs, with the frequencies of the whole head, among the axes by `shares`."""
    axes = order([head_dim // 2 // sum(shares) * share for share in shares])
    return {"base": base, "frequency_scale": frequency_scale, "layout": layout, "axes": axes}


def _spaced(base: float | Fraction, scale: float, divisor: Fraction, count: int | None = None) -> list[float]:
    """Return the frequencies ``scale * base**(-i / divisor)``, by default as many as `divisor`."""
    turns = partial(spaced_turns, int(divisor) if count is None else count, ((base, divisor),), (scale,))
    return list(radians_of(turns).tolist())


def _pixtral(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
    """Use the even frequencies of a single axis for the first of two axes, the odd ones for the second."""
    values = _spaced(base, frequency_scale, Fraction(head_dim, 2))
    return {"frequencies": [*values[::2], *values[1::2]], "axes": blocks((head_dim // 4, head_dim // 4))}


def _axis_by_axis(
    head_dim: int, base: float, frequency_scale: float, *, widths: Callable[[int], Sequence[int]],
    layout: str = "interleaved",
) -> dict[str, Any]:
    """Use a block of pairs for each axis.  An axis of d columns has the frequencies ``base**(-2 i / d)``.

    `widths` returns the number of columns of each axis.  The columns after the last block are not rotated.
    """
    pairs = [width // 2 for width in widths(head_dim)]
    frequencies = [w for count in pairs for w in _spaced(base, frequency_scale, Fraction(count))]
    return {"frequencies": frequencies, "layout": layout, "axes": blocks(pairs), "rotary_dim": 2 * sum(pairs)}


def _shares(*shares: int, layout: str = "interleaved") -> Callable[..., dict[str, Any]]:
    """Divide the columns among the axes by `shares`."""
    widths = lambda width: [width // sum(shares) * share for share in shares]  # noqa: E731
    return partial(_axis_by_axis, widths=widths, layout=layout)


def _thirds(head_dim: int) -> list[int]:
    """Divide the columns among three axes; the first axis also has the remaining columns."""
    third = 2 * (head_dim // 6)
    return [head_dim - 2 * third, third, third]


def _ltx_video(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
    """Use frequencies from 1 to base, each for one pair of every axis.

    The remaining pairs come first and are not rotated.
    """
    count, unrotated = head_dim // 6, head_dim % 6 // 2
    values = _spaced(1 / Fraction(base), frequency_scale, Fraction(max(count - 1, 1)), count)
    frequencies = [0.0] * unrotated + [value for value in values for _ in range(3)]
    return {"frequencies": frequencies, "layout": "interleaved", "axes": (0,) * unrotated + (0, 1, 2) * count}


def _one_axis(head_dim: int, base: float, frequency_scale: float, *, rotated: int = 1) -> dict[str, Any]:
    """Rotate the first ``1 / rotated`` of the columns."""
    return {"base": base, "frequency_scale": frequency_scale, "rotary_dim": head_dim // rotated}


PRESETS = {
    "qwen2-vl": RotaryPreset(1e6, partial(_sections, shares=(2, 3, 3), order=blocks), 16),
    "qwen2-vl-vision": RotaryPreset(1e4, _shares(1, 1, layout="halves"), 4),
    "qwen3-vl": RotaryPreset(5e6, partial(_sections, shares=(6, 5, 5), order=interleaved), 32),
    "ernie-vl": RotaryPreset(
        5e5, partial(_sections, shares=(11, 11, 10), order=alternating, layout="interleaved"), 64
    ),
    "pixtral": RotaryPreset(1e4, _pixtral, 4),
    **dict.fromkeys(("sam2", "eva02"), RotaryPreset(1e4, _shares(1, 1), 4)),
    "dinov3": RotaryPreset(100.0, _shares(1, 1, layout="halves"), 4, 2 * math.pi),
    "gemma4-vision": RotaryPreset(100.0, _one_axis, 2),
    "vjepa2": RotaryPreset(1e4, partial(_axis_by_axis, widths=lambda width: [width // 6 * 2] * 3), 2),
    **dict.fromkeys(("flux", "qwen-image"), RotaryPreset(1e4, _shares(2, 7, 7), 32)),
    "flux2": RotaryPreset(2e3, _shares(1, 1, 1, 1), 8),
    "z-image": RotaryPreset(256.0, _shares(2, 3, 3), 16),
    "lumina2": RotaryPreset(1e4, _shares(1, 1, 1), 6),
    "hunyuan-image": RotaryPreset(256.0, _shares(1, 1), 4),
    "hunyuan-video": RotaryPreset(256.0, _shares(2, 7, 7), 32),
    "wan": RotaryPreset(1e4, partial(_axis_by_axis, widths=_thirds), 2),
    "cogvideox": RotaryPreset(1e4, _shares(2, 3, 3), 16),
    "ltx-video": RotaryPreset(1e4, _ltx_video, 2, math.pi / 2),
    "stable-audio": RotaryPreset(1e4, partial(_one_axis, rotated=2), 4),
}


def preset_keywords(name: Any, head_dim: int, **given: float) -> dict[str, Any]:
    """Return the keywords of `Rotary` for a model; base and frequency_scale replace those of the model."""
    hint = "; for a language model, see Rotary.from_config"
    preset = PRESETS[checks.choice("name", name, tuple(PRESETS), hint)]
    if head_dim % preset.divisor:
        raise ValueError(f"head_dim is {head_dim}, expected a multiple of {preset.divisor} for {name}")
    frequencies = {"base": preset.base, "frequency_scale": preset.frequency_scale} | given
    return preset.keywords(head_dim, **frequencies)
