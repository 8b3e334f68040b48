"""The keywords of `Rotary` for known models of images, video and audio."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from posenc._core.frequencies import spaced_float64
from posenc._rotary.pair_axes import alternating, blocks, interleaved


class Axial(NamedTuple):
    """The rotation of a model; most rotations have several axes of positions."""

    summary: str                                    # the names of the axes
    base: float
    keywords: Callable[..., dict[str, Any]]         # called with head_dim, base and frequency_scale
    divisor: int                                    # head_dim must be a multiple of this
    frequency_scale: float = 1.0


def _sections(
    shares: Sequence[int], axes_of: Callable[[Sequence[int]], tuple[int, ...]], layout: str = "halves"
) -> Callable[..., dict[str, Any]]:
    """Return a function that computes the keywords of a rotation whose pairs are divided among the axes by `shares`."""

    def keywords(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
        unit = head_dim // 2 // sum(shares)
        axes = axes_of([share * unit for share in shares])
        return {"base": base, "frequency_scale": frequency_scale, "layout": layout, "axes": axes}

    return keywords


def _rows_and_columns(layout: str, alternate: bool = False) -> Callable[..., dict[str, Any]]:
    """Return a function that computes the keywords of a rotation with half of the pairs for each of two axes.

    Both axes have the frequencies ``base**(-4 i / head_dim)``.  With `alternate`, the frequencies are
    ``base**(-2 i / head_dim)``, where even i belong to the first axis and odd i to the second.
    """

    def keywords(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
        count, divisor = (head_dim // 2, Fraction(head_dim, 2)) if alternate else (head_dim // 4, Fraction(head_dim, 4))
        values = spaced_float64(count, ((base, divisor),), frequency_scale).tolist()
        frequencies = [*values[::2], *values[1::2]] if alternate else values * 2
        return {"frequencies": frequencies, "layout": layout, "axes": blocks((head_dim // 4, head_dim // 4))}

    return keywords


def _own_frequencies(widths: Callable[[int], Sequence[int]]) -> Callable[..., dict[str, Any]]:
    """Return a function that computes the keywords of a rotation with a block of pairs for each axis.

    `widths` returns the number of columns of each axis.  An axis of d columns has the frequencies ``base**(-2 i / d)``.  The
    columns after the last block are not rotated.
    """

    def keywords(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
        pairs = [width // 2 for width in widths(head_dim)]
        values = [spaced_float64(count, ((base, Fraction(count)),), frequency_scale) for count in pairs]
        frequencies = np.concatenate(values).tolist()
        return {"frequencies": frequencies, "layout": "interleaved", "axes": blocks(pairs), "rotary_dim": 2 * sum(pairs)}

    return keywords


def _shares(*shares: int) -> Callable[[int], list[int]]:
    """Return a function that divides the columns among the axes by `shares`."""
    return lambda head_dim: [head_dim // sum(shares) * share for share in shares]


def _thirds(head_dim: int) -> list[int]:
    """Divide the columns among three axes; the first axis also has the remaining columns."""
    third = 2 * (head_dim // 6)
    return [head_dim - 2 * third, third, third]


def _ltx_video(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
    """Use frequencies from 1 to base, each for one pair of every axis; the remaining pairs come first and are not rotated."""
    count, rest = head_dim // 6, head_dim % 6 // 2
    values = spaced_float64(count, ((1 / Fraction(base), Fraction(max(count - 1, 1))),), frequency_scale).tolist()
    frequencies = [0.0] * rest + [value for value in values for _ in range(3)]
    return {"frequencies": frequencies, "layout": "interleaved", "axes": (0,) * rest + (0, 1, 2) * count}


def _one_axis(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
    return {"base": base, "frequency_scale": frequency_scale}


def _first_half(head_dim: int, base: float, frequency_scale: float) -> dict[str, Any]:
    return _one_axis(head_dim, base, frequency_scale) | {"rotary_dim": head_dim // 2}


MODELS = {
    "qwen2-vl": Axial("time, height, width", 1e6, _sections((2, 3, 3), blocks), 16),
    "qwen2-vl-vision": Axial("height, width", 1e4, _rows_and_columns("halves"), 4),
    "qwen3-vl": Axial("time, height, width", 5e6, _sections((6, 5, 5), interleaved), 32),
    "ernie-vl": Axial("time, height, width", 5e5, _sections((11, 11, 10), alternating, "interleaved"), 64),
    "pixtral": Axial("height, width", 1e4, _rows_and_columns("halves", alternate=True), 4),
    "sam2": Axial("width, height", 1e4, _rows_and_columns("interleaved"), 4),
    "dinov3": Axial("height, width in [-1, 1]", 100.0, _rows_and_columns("halves"), 4, 2 * math.pi),
    "gemma4-vision": Axial("one axis: the halves of a head are separate rows, for height and width", 100.0, _one_axis, 2),
    "eva02": Axial("height, width", 1e4, _rows_and_columns("interleaved"), 4),
    "vjepa2": Axial("time, height, width", 1e4, _own_frequencies(lambda head_dim: [head_dim // 6 * 2] * 3), 2),
    "flux": Axial("image, height, width", 1e4, _own_frequencies(_shares(2, 7, 7)), 32),
    "flux2": Axial("image, height, width, text", 2e3, _own_frequencies(_shares(1, 1, 1, 1)), 8),
    "qwen-image": Axial("frame, height, width", 1e4, _own_frequencies(_shares(2, 7, 7)), 32),
    "z-image": Axial("text, height, width", 256.0, _own_frequencies(_shares(2, 3, 3)), 16),
    "lumina2": Axial("text, height, width", 1e4, _own_frequencies(_shares(1, 1, 1)), 6),
    "hunyuan-image": Axial("height, width", 256.0, _own_frequencies(_shares(1, 1)), 4),
    "hunyuan-video": Axial("time, height, width", 256.0, _own_frequencies(_shares(2, 7, 7)), 32),
    "wan": Axial("time, height, width", 1e4, _own_frequencies(_thirds), 2),
    "cogvideox": Axial("time, height, width", 1e4, _own_frequencies(_shares(2, 3, 3)), 16),
    "ltx-video": Axial("time, height, width", 1e4, _ltx_video, 2, math.pi / 2),
    "stable-audio": Axial("one axis, for the first half of a head", 1e4, _first_half, 4),
}


def preset_keywords(name: Any, head_dim: int, base: Any, frequency_scale: Any) -> dict[str, Any]:
    """Return the keywords of `Rotary` for a model; if `base` or `frequency_scale` is None, the model's value is used."""
    if name not in MODELS:
        near = difflib.get_close_matches(name, MODELS, 1) if isinstance(name, str) else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"name is {name!r}, expected one of {', '.join(MODELS)}{hint}")
    model = MODELS[name]
    if head_dim % model.divisor:
        raise ValueError(f"head_dim is {head_dim}, expected a multiple of {model.divisor} for {name}")
    base = model.base if base is None else base
    return model.keywords(head_dim, base, model.frequency_scale if frequency_scale is None else frequency_scale)
