"""Conventions: the candidates for a table, each with what it costs to believe it, in bits.

There are two kinds: the presets, and conventions that are fitted to pairs of columns.  To add a kind, write a function of a
`Sample` that yields candidates, and add it to `KINDS`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import posenc
from posenc import Encoding
from posenc.check import limits
from posenc.check.arithmetic import FORMATS, PRECISION
from posenc.check.evidence import TURNS, Line, line_through, phases_of, short
from posenc.check.reading import Sample, positions_at

VARIANTS = (("diffusers-timestep", {"flip_sin_to_cos": True, "downscale_freq_shift": 0.0}),)     # in Stable Diffusion
PROBES = np.array([1.0, 777.0])
Names: TypeAlias = tuple[tuple[str, int | None], ...]   # (name of a preset, its padding_idx)
DEFAULTS = {name: p.default for name, p in inspect.signature(Encoding).parameters.items() if name != "d_model"}


class Candidate(NamedTuple):
    """Encodings that differ only in the digits of their parameters, the shortest first; and presets with the same table."""

    encodings: list[Encoding]
    names: Names = ()


def changes_of(encoding: Encoding) -> dict[str, Any]:
    """Return the keywords of an encoding that differ from the defaults."""
    return {k: v for k, v in encoding.to_dict()["convention"].items() if v != DEFAULTS[k]}


def cost_of(encoding: Encoding, names: Names) -> float:
    """Return the number of bits that describe an encoding, as a preset or by the digits of its parameters."""
    if names:
        return limits.PRESET_BITS
    numbers = [v for v in changes_of(encoding).values() if isinstance(v, float)]
    usual_numbers = *TURNS, *_scales(encoding.d_model)
    digits = (1 if v in usual_numbers else len(f"{v:.17g}".strip("0").replace(".", "")) for v in numbers)
    return limits.FIT_BITS + limits.DIGIT_BITS * sum(digits)


def _scales(d_model: int) -> tuple[float, ...]:
    return 1.0, d_model**-0.5, math.sqrt(2 / d_model), math.sqrt(d_model)


def key_of(encoding: Encoding) -> tuple[bytes, float]:
    """Return a key that is equal for encodings that give the same table."""
    offset = encoding.position_offset
    return encoding.encode(PROBES - offset, dtype="float64").tobytes(), offset


# ---- presets --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def preset_encodings(d_model: int) -> dict[tuple[bytes, float], tuple[Encoding, Names]]:
    """Return, for each key, the shortest encoding and the (name, padding_idx) of every preset with this key."""
    by_key: dict[tuple[bytes, float], tuple[Encoding, Names]] = {}
    for name, changes in (*((preset.name, {}) for preset in posenc.presets()), *VARIANTS):
        try:
            encoding = posenc.preset(name, d_model, **changes)
        except ValueError:                      # the preset does not support this d_model
            continue
        ignored = {"padding_idx", "odd"} if d_model % 2 == 0 else {"padding_idx"}
        short_form = Encoding(d_model, **{
            k: v for k, v in changes_of(encoding).items() if k not in ignored and (k, v) != ("shift", 0.0)})
        label = name + (f"({', '.join(f'{k}={v}' for k, v in changes.items())})" if changes else "")
        if np.isfinite(encoding.frequencies).all():
            shortest, names = by_key.get(key := key_of(short_form), (short_form, ()))
            by_key[key] = min(shortest, short_form, key=lambda e: len(changes_of(e))), (*names, (label, encoding.padding_idx))
    return by_key


def _presets(sample: Sample) -> Iterator[Candidate]:
    for encoding, names in preset_encodings(sample.values.shape[1]).values():
        yield Candidate([encoding], names)


# ---- fits -----------------------------------------------------------------------------------------------------------


def _fits(sample: Sample) -> Iterator[Candidate]:
    """Yield encodings with common or short decimal parameters, for each layout whose pairs have a constant radius."""
    at = sample.rows if sample.positions is None else positions_at(sample.positions, sample.rows)
    d_model = sample.values.shape[1]
    names = {key: names for key, (_, names) in preset_encodings(d_model).items()}
    odd = "zero" if d_model % 2 and not sample.values[:, -1].any() else "truncate"
    half = d_model // 2
    first = half + (d_model % 2 and odd == "truncate")
    for layout, z in (("interleaved", sample.values[:, : 2 * half : 2] + 1j * sample.values[:, 1::2][:, :half]),
                      ("halves", sample.values[:, :half] + 1j * sample.values[:, first : first + half])):
        radius = np.abs(z)
        scale = float(np.median(radius)) if half else 0.0
        noise = float(np.sqrt(np.mean((radius / scale - 1) ** 2))) if scale else math.inf
        line = _line(at, z, sample.stored, noise * scale) if noise < limits.NOISE else None
        if line is None:
            continue
        error = max(noise, 2.0 ** -PRECISION[sample.stored]) / math.sqrt(z.size)
        structure = {"layout": layout, "odd": odd}
        for order in ("sin", "cos"):
            namings = _namings(line, scale, error, half, d_model, structure | {"order": order})
            if encodings := [Encoding(d_model, **convention) for convention in namings]:
                yield Candidate(encodings, names.get(key_of(encodings[0]), ()))


def _line(at: NDArray[Any], z: NDArray[np.complex128], stored: str, noise: float) -> Line | None:
    """Fit the line of the frequencies, first to the slow half, because fast pairs may turn by more than half a turn per row."""
    guess = None
    numbers = np.arange(z.shape[1])
    pairs = numbers[len(numbers) // 2 if len(numbers) > 3 else 0 :]
    for _ in range(2):
        phases = phases_of(at, z, PRECISION[stored], max(noise, 2.0 ** FORMATS[stored][1]), guess)
        if phases is None:
            return None
        sign = math.copysign(1.0, np.sum(np.sign(phases.frequency[pairs])))
        w = sign * phases.frequency
        fitted = pairs[(w[pairs] > 0) & (phases.error[pairs] < limits.KNOWN * w[pairs])]
        if not len(fitted):
            return None
        line = line_through(fitted, w[fitted], phases.error[fitted] / w[fitted])
        guess, pairs = sign * np.exp(line.intercept - line.slope * numbers), numbers
    return line


def _namings(
    line: Line, size: float, size_error: float, count: int, d_model: int, structure: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield conventions whose frequencies agree with a line; round parameters within fewer and fewer standard errors."""
    if max(line.intercept_error, line.slope_error) > 0.01 or abs(line.slope) * (count - 1) > limits.WIDEST_RATIO:
        return
    half = d_model // 2 if structure["odd"] == "zero" else d_model / 2
    for errors, least in limits.FITTED_DIGITS:
        scale = short(size, errors * size_error + least, _scales(d_model), 4000)
        common = structure | {"frequency_scale": line.multiple(errors, least), "scale": scale}
        if count == 1:
            yield common
            continue
        for spacing, divisor in (("paper", half), ("endpoint", count - 1)):
            if (base := line.base(divisor, errors, least)) is not None:
                yield common | {"spacing": spacing, "base": base}
        if line.slope > 0:
            divisor = math.log(10000.0) / line.slope
            error = divisor * (errors * line.slope_error / abs(line.slope) + least)
            if 1e-3 < abs(half - divisor) > error:
                yield common | {"shift": short(half - divisor, error / abs(half - divisor))}


KINDS = (_presets, _fits)


# ---- positions ------------------------------------------------------------------------------------------------------


class Approximation(NamedTuple):
    """An encoding evaluated in float64, accurate enough for searches at positions below 2**21."""

    frequency: NDArray[np.float64]      # of each column
    phase: NDArray[np.float64]          # pi / 2 for a cosine
    scale: float
    offset: float

    def values(self, positions: NDArray[Any], which: Any) -> NDArray[np.float64]:
        angles = np.asarray(positions[..., None] + self.offset) * self.frequency[which]
        values: NDArray[np.float64] = self.scale * np.sin(angles + self.phase[which])
        return values


@functools.lru_cache(maxsize=64)
def approximation_of(encoding: Encoding) -> Approximation:
    """Approximate an encoding; its values at one position show the columns, if its frequencies are 1, 2, 3 ... units."""
    count = len(encoding.frequencies)
    unit = 0.5 / max(1, count)
    probe = Encoding(encoding.d_model, frequencies=np.arange(1, count + 1) * unit, odd=encoding.odd, layout=encoding.layout,
                     exponents=encoding.exponents, order=encoding.order)
    values = probe.encode([1.0], dtype="float64")[0]
    cosine = values > 0.6               # the angles are at most 0.5: sines are below 0.48, cosines above 0.87
    angles = np.where(cosine, np.arccos(np.minimum(values, 1)), np.arcsin(np.minimum(values, 0.5)))
    frequencies = np.append(encoding.frequencies * encoding.position_scale, 0.0)        # 0 for a column of zeros
    return Approximation(frequencies[np.rint(angles / unit).astype(np.intp) - 1], cosine * (math.pi / 2), encoding.scale,
                         encoding.position_offset)


def placed(encoding: Encoding, sample: Sample, reach: int) -> range | None:
    """Return the range of positions at which an encoding is nearest to the table, or None if no range is near enough."""
    rough = approximation_of(encoding)
    # the fastest columns locate a position best, but only modulo their periods; up to 48 random others resolve the ambiguity
    fastest = np.argsort(-np.abs(rough.frequency), kind="stable")
    order = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = _matching(rough, sample.values[0], order, reach)
    rows, values = sample.rows[:16] - sample.rows[0], sample.values[:16][:, order]
    place = _nearest(rough, starts, np.ones_like(starts), rows, values, order, sample.stored)
    if place is None and len(rows) > 1 and len(starts):
        nexts = _matching(rough, sample.values[1], order, reach)
        steps, remainders = np.divmod(nexts[:64, None] - starts[:64], rows[1])
        later, earlier = np.nonzero((remainders == 0) & (steps != 0) & (np.abs(steps) <= limits.NEAR))
        place = _nearest(rough, starts[earlier], steps[later, earlier], rows, values, order, sample.stored)
    if place is None:
        return None
    start, step = place
    start -= step * int(sample.rows[0])
    return range(start, start + step * sample.total, step)


def _matching(rough: Approximation, row: NDArray[np.float64], order: NDArray[np.intp], reach: int) -> NDArray[np.intp]:
    """Return up to 8192 integers at which the encoding is near a row of the table, smallest magnitudes first."""
    p = np.arange(1, 2 * reach + 2) // 2
    p[::2] *= -1
    for column in order:
        p = p[np.abs(rough.values(p, [column])[:, 0] - row[column]) < limits.PLACED * abs(rough.scale)]
        if not len(p):
            break
    return p[:8192]


def _nearest(
    rough: Approximation, starts: NDArray[np.intp], steps: NDArray[np.intp], rows: NDArray[np.intp],
    values: NDArray[np.float64], order: NDArray[np.intp], dtype: str,
) -> tuple[int, int] | None:
    """Return the (start, step) with the least squared error, preferring small numbers, or None if all errors are large."""
    if not len(starts):
        return None
    rows, values = (rows, values) if len(starts) * values.size < 2**20 else (rows[:2], values[:2])
    errors = np.sqrt(np.mean((rough.values(starts[:, None] + steps[:, None] * rows, order) - values) ** 2, axis=(1, 2)))
    floor = abs(rough.scale) * 2.0 ** -PRECISION[dtype]
    scores = values.size * np.log2(np.maximum(errors, floor)) + np.log2(1.0 + np.abs(starts)) + 2 * np.log2(np.abs(steps))
    index = np.argmin(scores)
    return (int(starts[index]), int(steps[index])) if errors[index] < limits.PLACED * abs(rough.scale) else None
