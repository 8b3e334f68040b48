"""Conventions: the candidates for a table, each with what it costs to believe it, in bits.

The candidates come in tiers: those of the presets; those fitted to the columns; fits whose step may be that of the positions;
those with one or two common parameters, for few rows.  To add a kind of candidate, write a function that yields candidates, and
add it to `tiers`.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

import posenc
from posenc import Encoding
from posenc.check.arithmetic import PRECISION
from posenc.check.fits import TURNS, Line, line_of_columns, short
from posenc.check.limits import DIGIT_BITS, FIT_BITS, NEAR, ONE_SIZE, PLACED, PRESET_BITS, WIDEST_RATIO
from posenc.check.reading import Sample

BASES = (10000.0, 100.0, 1000.0, 20.0, 500000.0, 1000000.0)     # tried if neither a preset nor a fit explains a table
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
        return PRESET_BITS
    numbers = [v for v in changes_of(encoding).values() if isinstance(v, float)]
    return FIT_BITS + DIGIT_BITS * sum(len(f"{v:.17g}".strip("0").replace(".", "")) for v in numbers)


def key_of(encoding: Encoding) -> tuple[bytes, float]:
    """Return a key that is equal for encodings that give the same table."""
    offset = encoding.position_offset
    return encoding.encode(PROBES - offset, dtype="float64").tobytes(), offset


def tiers(sample: Sample) -> Iterator[tuple[Callable[[], Iterable[Candidate]], int]]:
    """Yield functions that return candidates, those that cost least to believe first, and how far to search for positions."""
    fits = functools.cache(lambda: list(_fits(sample)))
    presets = preset_encodings(sample.values.shape[1])
    yield lambda: [Candidate([encoding], names) for encoding, names in presets.values()], NEAR
    yield fits, NEAR
    if sample.positions is None:
        yield lambda: _in_steps(fits()), NEAR
    yield lambda: _usual(sample), NEAR


# ---- columns --------------------------------------------------------------------------------------------------------


class Approximation(NamedTuple):
    """An encoding evaluated in float64, accurate enough for searches at positions below 2**21."""

    frequency: NDArray[np.float64]
    cosine: NDArray[np.bool_]
    scale: float
    offset: float

    def values(self, positions: NDArray[Any], which: Any) -> NDArray[np.float64]:
        angles: NDArray[np.float64] = np.asarray(positions[..., None] + self.offset) * self.frequency[which]
        return self.scale * np.where(self.cosine[which], np.cos(angles), np.sin(angles))


@functools.lru_cache(maxsize=64)
def approximation_of(encoding: Encoding) -> Approximation:
    frequencies = np.append(encoding.frequencies * encoding.position_scale, 0.0)
    which, cosine = arrangement(encoding)
    return Approximation(frequencies[which], cosine, encoding.scale, encoding.position_offset)


def arrangement(encoding: Encoding) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return for each column the number of its frequency, or -1 if the column is zero, and whether it is a cosine.

    The values of the encoding at one position show both, if its frequencies are 1, 2, 3 ... units.
    """
    structure = {name: getattr(encoding, name) for name in ("odd", "exponents", "layout", "order")}
    count = len(encoding.frequencies)
    unit = 0.5 / max(1, count)
    probe = Encoding(encoding.d_model, **structure, frequencies=np.arange(1, count + 1) * unit)
    values = probe.encode([1.0], dtype="float64")[0]
    cosine = values > 0.6               # the angles are at most 0.5: sines are below 0.48, cosines above 0.87
    angles = np.where(cosine, np.arccos(np.minimum(values, 1)), np.arcsin(np.minimum(values, 0.5)))
    return np.rint(angles / unit).astype(np.intp) - 1, cosine


# ---- presets --------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=4)
def preset_encodings(d_model: int) -> dict[tuple[bytes, float], tuple[Encoding, Names]]:
    """Return, for each key, the shortest encoding and the (name, padding_idx) of every preset with this key."""
    by_encoding: dict[Encoding, list[tuple[str, int | None]]] = {}
    for name, changes in (*((preset.name, {}) for preset in posenc.presets()), *VARIANTS):
        try:
            encoding = posenc.preset(name, d_model, **changes)
        except ValueError:                      # the preset does not support this d_model
            continue
        ignored = {"padding_idx", "odd"} if d_model % 2 == 0 else {"padding_idx"}
        plain = {k: v for k, v in changes_of(encoding).items() if k not in ignored and (k, v) != ("shift", 0.0)}
        label = name + (f"({', '.join(f'{k}={v}' for k, v in changes.items())})" if changes else "")
        if np.isfinite(encoding.frequencies).all():
            by_encoding.setdefault(Encoding(d_model, **plain), []).append((label, encoding.padding_idx))
    by_key: dict[tuple[bytes, float], tuple[Encoding, Names]] = {}
    for encoding, names in by_encoding.items():
        equal, equal_names = by_key.get(key := key_of(encoding), (encoding, ()))
        by_key[key] = min(equal, encoding, key=lambda one: len(changes_of(one))), (*equal_names, *names)
    return by_key


# ---- fits -----------------------------------------------------------------------------------------------------------


def _odd(sample: Sample) -> str:
    return "zero" if sample.values.shape[1] % 2 and not sample.values[:, -1].any() else "truncate"


def _fits(sample: Sample) -> Iterator[Candidate]:
    """Yield encodings with common or short decimal parameters, for each arrangement of columns that fits."""
    at = sample.rows if sample.positions is None else sample.positions_in(sample.positions)
    q = (at - at[:1]).astype(np.float64)        # subtract before the conversion, because float64 rounds large positions
    d_model = sample.values.shape[1]
    if len(q) < 5 or not np.isfinite(q).all():
        return
    names = {key: names for key, (_, names) in preset_encodings(d_model).items()}
    odd = _odd(sample)
    arranged = set()
    for exponents in ("pair", "column"):
        for layout in ("interleaved", "halves"):
            structure: dict[str, Any] = {"exponents": exponents, "layout": layout, "odd": odd}
            which, _ = arrangement(Encoding(d_model, **structure))
            columns = np.array([np.flatnonzero(which == k)[0] for k in range(which.max() + 1)], np.intp)
            if not len(columns) or tuple(columns) in arranged:
                continue
            arranged.add(tuple(columns))
            lines: list[Line] = []
            for first in (0, len(columns) // 4) if len(columns) >= 16 else (0,):
                line = line_of_columns(sample.rows, q, sample.values[:, columns], sample.stored, first)
                if line is None or any(_same(line, other) for other in lines):
                    continue
                lines.append(line)
                for order in ("sin", "cos"):
                    conventions = _namings(line, len(columns), d_model, {**structure, "order": order})
                    if encodings := [Encoding(d_model, **convention) for convention in conventions]:
                        yield Candidate(encodings, names.get(key_of(encodings[0]), ()))


def _same(line: Line, other: Line) -> bool:
    """Return whether two lines differ by less than their errors."""
    return (abs(line.intercept - other.intercept) <= 8 * (line.intercept_error + other.intercept_error)
            and abs(line.slope - other.slope) <= 8 * (line.slope_error + other.slope_error))


def _namings(line: Line, count: int, d_model: int, structure: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield conventions whose frequencies agree with a line; round parameters within 4 standard errors, then within 1."""
    if max(line.intercept_error, line.slope_error) > 0.01 or abs(line.slope) * (count - 1) > WIDEST_RATIO:
        return
    half = d_model // 2 if structure["odd"] == "zero" else d_model / 2
    per = 2 if structure["exponents"] == "column" else 1
    for errors, least in ((4, 1e-6), (1, 1e-15)):
        common = structure | {
            "frequency_scale": short(math.exp(line.intercept), errors * line.intercept_error + least, TURNS, 4 * errors),
            "scale": short(line.amplitude, errors * line.amplitude_error / line.amplitude + least, _scales(d_model),
                           4000 * errors),
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


def _in_steps(fits: list[Candidate]) -> Iterator[Candidate]:
    """Yield encodings without a frequency scale that is an integer above 1, which may be the step of the positions."""
    for fit in fits:
        whole = [e for e in fit.encodings if e.frequency_scale > 1 and float(e.frequency_scale).is_integer()]
        if whole:
            yield Candidate([e.replace(frequency_scale=1.0) for e in whole])


def refined(encoding: Encoding, sample: Sample, positions: NDArray[Any]) -> Iterator[Encoding]:
    """Yield encodings whose base and frequency scale are fitted to all values and rounded to 7, 8, ... or 17 digits.

    The first encodings have the default base and spacing.
    """
    changes = changes_of(encoding)
    if "shift" in changes or encoding.d_model < 2 or not encoding.frequencies[0] > 0:
        return
    default = {k: v for k, v in changes.items() if k not in ("base", "spacing")}
    default["frequency_scale"] = float(encoding.frequencies[0])
    numbers = ["base"] if encoding.frequency_scale == 1 else ["frequency_scale", "base"]
    if len(encoding.frequencies) == 1 or encoding.base == 1:
        numbers = ["frequency_scale"]
    for start, names in ((default, ["frequency_scale"]), (changes, numbers)):
        values = _least_squares(Encoding(encoding.d_model, **start), names, sample, positions)
        if all(0 < value < math.inf for value in values):
            for digits in range(6, 17):
                shorter = {name: float(f"{value:.{digits}e}") for name, value in zip(names, values, strict=True)}
                yield Encoding(encoding.d_model, **start | shorter)


def _least_squares(encoding: Encoding, names: list[str], sample: Sample, positions: NDArray[Any]) -> list[float]:
    """Return base and frequency scale after one Gauss-Newton step towards the least-squares fit."""
    rough = approximation_of(encoding)
    angles = (positions.astype(np.float64)[:, None] + rough.offset) * rough.frequency
    slope = rough.scale * np.where(rough.cosine, -np.sin(angles), np.cos(angles)) * angles
    rest = sample.values - encoding.encode(positions, dtype="float64")
    ratio = np.divide(rough.frequency, encoding.frequency_scale, out=np.ones_like(rough.frequency), where=rough.frequency > 0)
    # the derivatives with respect to the logarithms of the parameters
    basis = [slope if name == "frequency_scale" else slope * np.log(ratio) / math.log(encoding.base) for name in names]
    linear = np.abs(slope) < 1e6
    steps = np.linalg.lstsq(np.stack([column[linear] for column in basis], 1), rest[linear])[0]
    return [getattr(encoding, name) * math.exp(np.clip(step, -1, 1)) for name, step in zip(names, steps, strict=True)]


# ---- common parameters, for few rows --------------------------------------------------------------------------------


def _usual(sample: Sample) -> Iterator[Candidate]:
    """Yield encodings with common parameters and the scales that agree with the sample."""
    d_model, odd = sample.values.shape[1], _odd(sample)
    half, i = -(-d_model // 2) if odd == "truncate" else d_model // 2, np.arange(d_model // 2)
    for layout, one, two in (("interleaved", 2 * i, 2 * i + 1), ("halves", i, i + half)):
        radius = np.hypot(sample.values[:16, one], sample.values[:16, two])
        scales = [scale for scale in _scales(d_model) if not radius.size or _of_size(radius, scale)]
        for order in ("sin", "cos"):
            for spacing in ("paper", "endpoint"):
                for base in BASES:
                    for scale in scales:
                        yield Candidate([
                            Encoding(d_model, layout=layout, order=order, spacing=spacing, base=base, scale=scale, odd=odd)])


def _of_size(radius: NDArray[np.float64], scale: float) -> bool:
    """Return whether most radii, sqrt(sin**2 + cos**2) of column pairs, are near a scale."""
    return bool((np.abs(radius - abs(scale)) < ONE_SIZE * abs(scale)).mean() > 0.7)


# ---- positions ------------------------------------------------------------------------------------------------------


def placed(encoding: Encoding, sample: Sample, reach: int) -> range | None:
    """Return the range of positions at which an encoding is nearest to the table, or None if no range is near enough."""
    rough = approximation_of(encoding)
    if not _sized(rough, sample.values[:16]):
        return None
    # the fastest columns locate a position best, but only modulo their periods; up to 48 random others resolve the ambiguity
    fastest = np.argsort(-np.abs(rough.frequency), kind="stable")
    order = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = _matching(rough, sample.values[0], order, reach)
    if not len(starts):
        return None
    rows, values = sample.rows[:16] - sample.rows[0], sample.values[:16][:, order]
    steps = np.repeat([1, -1] if len(rows) > 1 else [1], len(starts))
    best = _nearest(rough, np.tile(starts, 2 if len(rows) > 1 else 1), steps, rows, values, order, sample.stored)
    if best is None and len(rows) > 1:
        nexts = _matching(rough, sample.values[1], order, reach)
        steps, remainders = np.divmod(nexts[:64, None] - starts[:64], rows[1])
        later, earlier = np.nonzero((remainders == 0) & (steps != 0) & (np.abs(steps) <= NEAR))
        if len(later):
            best = _nearest(rough, starts[earlier], steps[later, earlier], rows, values, order, sample.stored)
    if best is None:
        return None
    start, step = best
    start -= step * int(sample.rows[0])
    return range(start, start + step * sample.total, step)


def _sized(rough: Approximation, values: NDArray[np.float64]) -> bool:
    """Return whether the magnitude of the values agrees with the scale.

    The magnitude is the radius, sqrt(sin**2 + cos**2), of each column pair, or the absolute value if there are no pairs.
    """
    size = abs(rough.scale)
    order = np.argsort(rough.frequency, kind="stable")
    first = np.flatnonzero((np.diff(rough.frequency[order]) == 0) & (np.diff(rough.cosine[order].astype(int)) != 0))
    if not len(first):
        return bool(0.05 * size < math.sqrt(np.mean(values**2)) and np.abs(values).max() < 1.5 * size)
    return _of_size(np.hypot(values[:, order[first]], values[:, order[first + 1]]), size)


def _matching(rough: Approximation, row: NDArray[np.float64], order: NDArray[np.intp], reach: int) -> NDArray[np.intp]:
    """Return up to 8192 integers at which the encoding is near a row of the table, smallest magnitudes first."""
    p = np.arange(1, 2 * reach + 2) // 2
    p[::2] *= -1
    for column in order:
        p = p[np.abs(rough.values(p, [column])[:, 0] - row[column]) < PLACED * abs(rough.scale)]
        if not len(p):
            break
    return p[:8192]


def _nearest(
    rough: Approximation, starts: NDArray[np.intp], steps: NDArray[np.intp], rows: NDArray[np.intp],
    values: NDArray[np.float64], order: NDArray[np.intp], dtype: str,
) -> tuple[int, int] | None:
    """Return the (start, step) with the least squared error, preferring small numbers, or None if all errors are large."""
    rows, values = (rows, values) if len(starts) * values.size < 2**20 else (rows[:2], values[:2])
    floor = abs(rough.scale) * 2.0 ** -PRECISION[dtype]
    parts = []
    for begin in range(0, len(starts), 256):
        p = starts[begin : begin + 256, None] + steps[begin : begin + 256, None] * rows
        parts.append(np.sqrt(np.mean((rough.values(p, order) - values) ** 2, axis=(1, 2))))
    errors = np.concatenate(parts)
    scores = values.size * np.log2(np.maximum(errors, floor)) + np.log2(1.0 + np.abs(starts)) + 2 * np.log2(np.abs(steps))
    best = np.argmin(scores)
    return (int(starts[best]), int(steps[best])) if errors[best] < PLACED * abs(rough.scale) else None
