"""Candidate encodings: those of the presets, those fitted to the table, and those with common parameters."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.base_class import changes_of, keywords_of
from posenc._encoding.columns import arrangement
from posenc._encoding.encoding import DEFAULTS, Encoding
from posenc._encoding.presets import convention_of, presets
from posenc._identify.table.fit import Line, line_of
from posenc._identify.table.sample import Sample, positions_at

WIDEST_RATIO = 46           # logarithm of 1e20, the largest ratio of two frequencies in a fit
# common frequency scales, most without a short decimal form
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau, math.pi / 180)
BASES = (10000.0, 100.0, 1000.0, 20.0, 500000.0, 1000000.0)     # tried if neither a preset nor a fit matches closely
VARIANTS = (("diffusers-timestep", {"flip_sin_to_cos": True, "downscale_freq_shift": 0.0}),)     # in Stable Diffusion
PROBES = np.array([1.0, 777.0])
Key: TypeAlias = tuple[bytes, float]                    # equal for encodings that give the same table
Names: TypeAlias = tuple[tuple[str, int | None], ...]   # (name of a preset, its padding_idx)


# ---- approximate values ---------------------------------------------------------------------------------------------


class Approximation(NamedTuple):
    """An encoding evaluated in float64, accurate enough for searches at positions below 2**21."""

    frequency: NDArray[np.float64]
    cosine: NDArray[np.bool_]
    scale: float
    offset: float

    def values(self, positions: NDArray[Any], which: Any) -> NDArray[np.float64]:
        angles: NDArray[np.float64] = np.asarray(positions[..., None] + self.offset) * self.frequency[which]
        for cosine, function in ((True, np.cos), (False, np.sin)):
            columns = np.flatnonzero(self.cosine[which] == cosine)
            angles[..., columns] = function(angles[..., columns])
        return self.scale * angles


@functools.lru_cache(maxsize=64)
def approximation_of(encoding: Encoding) -> Approximation:
    frequencies = encoding.frequencies * encoding.position_scale
    which, cosine = arrangement(encoding.d_model, keywords_of(encoding), len(frequencies))
    return Approximation(np.append(frequencies, 0.0)[which], cosine, encoding.scale, encoding.position_offset)


# ---- the presets ----------------------------------------------------------------------------------------------------


def _plain(d_model: int, convention: dict[str, Any]) -> dict[str, Any]:
    """Return the convention without padding_idx, default values, and keywords that have no effect."""
    ignored = {"padding_idx", "odd"} if d_model % 2 == 0 else {"padding_idx"}
    return {k: v for k, v in convention.items() if k not in ignored and v != DEFAULTS[k] and (k, v) != ("shift", 0.0)}


def key_of(encoding: Encoding) -> Key:
    """Return a key that is equal for encodings that give the same table."""
    offset = encoding.position_offset
    return encoding.encode(PROBES - offset, dtype="float64").tobytes(), offset


@functools.lru_cache(maxsize=4)
def preset_encodings(d_model: int) -> dict[Key, tuple[Encoding, Names]]:
    """Return, for each key, the encoding and the (name, padding_idx) of every preset with this key."""
    by_key: dict[Key, tuple[Encoding, list[tuple[str, int | None]]]] = {}
    built: dict[frozenset[Any], tuple[Encoding, Key]] = {}      # avoids repeated construction, which is slow for wide tables
    for name, changes in (*((p.name, {}) for p in presets()), *VARIANTS):
        try:
            _, convention = convention_of(name, d_model, changes)
            plain = _plain(d_model, convention)
            if frozenset(plain.items()) not in built:
                encoding = Encoding(d_model, **plain)
                built[frozenset(plain.items())] = encoding, key_of(encoding)
        except ValueError:                      # the preset does not support this d_model
            continue
        encoding, key = built[frozenset(plain.items())]
        if not np.isfinite(encoding.frequencies).all():
            continue
        label = name + (f"({', '.join(f'{k}={v}' for k, v in changes.items())})" if changes else "")
        shortest, names = by_key.setdefault(key, (encoding, []))
        names.append((label, convention.get("padding_idx")))
        if len(changes_of(encoding)) < len(changes_of(shortest)):
            by_key[key] = (encoding, names)
    return {key: (encoding, tuple(names)) for key, (encoding, names) in by_key.items()}


# ---- fits -----------------------------------------------------------------------------------------------------------


def _odd(sample: Sample) -> Literal["zero", "truncate"]:
    return "zero" if sample.values.shape[1] % 2 and not sample.values[:, -1].any() else "truncate"


def fits(sample: Sample) -> Iterator[list[Encoding]]:
    """Yield a list of fitted encodings, with common or short decimal parameters, for each column arrangement that fits."""
    at = sample.rows if sample.positions is None else positions_at(sample.positions, sample.rows)
    q = (at - at[:1]).astype(np.float64)        # subtract before the conversion, because float64 rounds large positions
    d_model = sample.values.shape[1]
    if len(q) < 5 or not np.isfinite(q).all():
        return
    odd = _odd(sample)
    seen = set()
    for exponents in ("pair", "column"):
        for layout in ("interleaved", "halves"):
            structure: dict[str, Any] = {"exponents": exponents, "layout": layout, "odd": odd}
            which, _ = arrangement(d_model, DEFAULTS | structure, d_model)
            numbers, columns = np.unique(which[: d_model - 1] if odd == "zero" else which, return_index=True)
            if not len(numbers) or tuple(columns) in seen:
                continue
            seen.add(tuple(columns))
            lines: list[Line] = []
            for first in (0, len(columns) // 4) if len(columns) >= 16 else (0,):
                line = line_of(q, sample, columns, first)
                if line is None or any(_same(line, other) for other in lines):
                    continue
                lines.append(line)
                for order in ("sin", "cos"):
                    conventions = _namings(line, len(columns), d_model, {**structure, "order": order})
                    if encodings := [Encoding(d_model, **convention) for convention in conventions]:
                        yield encodings


def _same(line: Line, other: Line) -> bool:
    """Return whether two lines differ by less than their errors."""
    return (abs(line.intercept - other.intercept) <= 8 * (line.intercept_error + other.intercept_error)
            and abs(line.slope - other.slope) <= 8 * (line.slope_error + other.slope_error))


def in_steps(encodings: list[Encoding]) -> list[Encoding]:
    """For each encoding whose frequency scale is an integer above 1, return the encoding without this scale.

    The integer may be the step of the positions.
    """
    changes = [changes_of(encoding) for encoding in encodings]
    scales = [c.pop("frequency_scale", 1.0) for c in changes]
    return [Encoding(e.d_model, **c) for e, c, s in zip(encodings, changes, scales, strict=True) if s > 1 and s.is_integer()]


def _namings(line: Line, count: int, d_model: int, structure: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield conventions whose frequencies agree with a line; round parameters within 4 standard errors, then within 1."""
    if max(line.intercept_error, line.slope_error) > 0.01 or abs(line.slope) * (count - 1) > WIDEST_RATIO:
        return
    half = d_model // 2 if structure["odd"] == "zero" else d_model / 2
    per = 2 if structure["exponents"] == "column" else 1
    scales = _scales(d_model)
    for errors, least in ((4, 1e-6), (1, 1e-15)):
        common = structure | {
            "frequency_scale": short(math.exp(line.intercept), errors * line.intercept_error + least, TURNS, 4 * errors),
            "scale": short(line.amplitude, errors * line.amplitude_error / line.amplitude + least, scales, 4000 * errors),
        }
        if count == 1:
            yield common
            continue
        for spacing, divisor in (("paper", per * half), ("endpoint", count - 1)):
            if abs(line.slope * divisor) < WIDEST_RATIO:
                base = short(math.exp(line.slope * divisor), errors * divisor * line.slope_error + least)
                yield common | {"spacing": spacing, "base": base}
        if line.slope:
            divisor = math.log(10000.0) / line.slope
            shift = half - divisor / per
            error = divisor / per * (errors * line.slope_error / abs(line.slope) + least)
            if abs(shift) > 1e-3 and error < abs(shift):
                yield common | {"shift": short(shift, error / abs(shift))}


def _scales(d_model: int) -> tuple[float, ...]:
    """Return the scales that are common in models."""
    return 1.0, d_model**-0.5, math.sqrt(2 / d_model), math.sqrt(d_model)


def short(x: float, error: float, favourites: Sequence[float] = (), lenience: float = 1) -> float:
    """Return the first of these that is near x: a favourite, a decimal of up to four digits, 1 / n, or the shortest decimal.

    The relative difference from x is at most min(lenience * error, 0.002) for a favourite, and `error` for other numbers.
    """
    for y in favourites:
        if abs(y - x) <= min(lenience * error, 0.002) * abs(x):
            return y
    for digits in range(17):
        if digits == 4 and 0.01 <= abs(x) < 1 and abs(1 / round(1 / x) - x) <= error * abs(x):
            return 1 / round(1 / x)
        if abs(float(f"{x:.{digits}e}") - x) <= error * abs(x):
            return float(f"{x:.{digits}e}")
    return float(x)


def refined(encoding: Encoding, sample: Sample, positions: NDArray[Any]) -> Iterator[Encoding]:
    """Yield encodings whose base and frequency scale are fitted to all values and rounded to 7, 8, ... or 17 digits.

    The first encodings have the default base and spacing.
    """
    changes = changes_of(encoding)
    if "shift" in changes or encoding.d_model < 2 or not encoding.frequencies[0] > 0:
        return
    default = {k: v for k, v in changes.items() if k not in ("base", "spacing")}
    default["frequency_scale"] = float(encoding.frequencies[0])
    own = ["base"] if encoding.frequency_scale == 1 else ["frequency_scale", "base"]
    if len(encoding.frequencies) == 1 or encoding.base == 1:
        own = ["frequency_scale"]
    for start, names in ((default, ["frequency_scale"]), (changes, own)):
        fitted = {k: v for k, v in start.items() if k not in names}
        values = _least_squares(Encoding(encoding.d_model, **start), names, sample, positions)
        for name, value in zip(names, values, strict=True):
            if not 0 < value < math.inf:
                break
            fitted[name] = value
        else:
            for digits in range(6, 17):
                shorter = {name: float(f"{fitted[name]:.{digits}e}") for name in names}
                yield Encoding(encoding.d_model, **fitted | shorter)


def _least_squares(encoding: Encoding, names: Sequence[str], sample: Sample, positions: NDArray[Any]) -> list[float]:
    """Return base and frequency scale after one Gauss-Newton step towards the least-squares fit."""
    rough = approximation_of(encoding)
    angles = (positions.astype(np.float64)[:, None] + rough.offset) * rough.frequency
    slope = rough.scale * np.where(rough.cosine, -np.sin(angles), np.cos(angles)) * angles
    rest = sample.values - encoding.encode(positions, dtype="float64")
    ratio = np.divide(rough.frequency, encoding.frequency_scale, out=np.ones_like(rough.frequency), where=rough.frequency > 0)
    # the derivatives with respect to the logarithms of the parameters
    basis = [slope if name == "frequency_scale" else slope * np.log(ratio) / math.log(encoding.base) for name in names]
    near = np.abs(slope) < 1e6
    steps = np.linalg.lstsq(np.stack([column[near] for column in basis], 1), rest[near])[0]
    return [getattr(encoding, name) * math.exp(np.clip(step, -1, 1)) for name, step in zip(names, steps, strict=True)]


def of_size(radius: NDArray[np.float64], scale: float) -> bool:
    """Return whether most radii, sqrt(sin**2 + cos**2) of column pairs, are near a scale."""
    return bool((np.abs(radius - abs(scale)) < 0.2 * abs(scale)).mean() > 0.7)


# ---- common parameters, for few rows --------------------------------------------------------------------------------


def usual(sample: Sample) -> Iterator[Encoding]:
    """Yield encodings with common parameters and the scales that agree with the sample."""
    d_model = sample.values.shape[1]
    odd = _odd(sample)
    half = -(-d_model // 2) if odd == "truncate" else d_model // 2
    values, i = sample.values[:16], np.arange(d_model // 2)
    for layout in ("interleaved", "halves"):
        one, two = (2 * i, 2 * i + 1) if layout == "interleaved" else (i, i + half)
        radius = np.hypot(values[:, one], values[:, two])
        scales = [scale for scale in _scales(d_model) if not radius.size or of_size(radius, scale)]
        for order in ("sin", "cos"):
            for spacing in ("paper", "endpoint"):
                for base in BASES:
                    for scale in scales:
                        yield Encoding(d_model, layout=layout, order=order, spacing=spacing, base=base, scale=scale, odd=odd)
