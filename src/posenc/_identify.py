"""Which conventions give a table: candidates are proposed, placed at positions, judged by the error that is left, and compared.

A candidate is an Encoding: of every preset, and of a fit to the table.  Its positions, where they are not given, are searched
among the integers.  The largest differences over a sample of rows then tell how the table was computed, or that this is not
its convention.  Candidates compete by evidence: the bits of the table that one explains less the bits that it took to say.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc import _arguments
from posenc._encoding import CHUNK_BYTES, Encoding
from posenc._presets import preset, presets
from posenc._types import Positions

if TYPE_CHECKING:
    from posenc import _files
WIDEST = 2**16              # columns
SAMPLE = 2**21              # values of the table that are kept in memory, or the first rows where they are longer
NEAR, REACH = 2**12, 2**20  # positions at which a table may begin, of either sign: the usual ones, all that are searched
ENOUGH = 12                 # bits of evidence below which a match may be chance
TIE = 24                    # bits less than the best has, with which another is listed, too: of a longer start, or name
# significant bits of what a table may be stored in, narrowest first; half a unit in the last place is 2**-bits of a value
PRECISION = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
WIDEST_RATIO = 46           # of frequencies that a fit may find, as a logarithm: 1e20
TURNS = (1.0, math.pi / 4, math.pi / 2, math.pi, math.tau)      # frequency scales that have no few decimals
Key: TypeAlias = tuple[bytes, float]                    # of encodings of the same table
Names: TypeAlias = tuple[tuple[str, int | None], ...]   # of presets, each with its padding_idx
BASES = (10000.0, 100.0, 1000.0, 20.0, 500000.0, 1000000.0)     # tried where the rows are too few to find one


class Match(NamedTuple):  # numpydoc ignore=PR01
    """A convention that gives a table: ``encoding.encode(positions)``, up to ``difference``.

    Attributes
    ----------
    encoding : Encoding
        The convention.
    positions : range or ndarray
        Of the rows.
    presets : tuple of str
        The names of the presets that are this encoding, whatever their ``padding_idx``.
    difference : float
        The largest, from the correctly rounded values in the table's dtype; 0 where all are equal.
    reason : str
        What such differences come from: docs/identify.md lists them.

    See Also
    --------
    identify : Finds them.

    Examples
    --------
    >>> import posenc
    >>> match = posenc.identify(posenc.preset("whisper", 64).encode(100))[0]
    >>> match.encoding, match.difference, "whisper" in match.presets
    (Encoding(64, spacing='endpoint', layout='halves'), 0.0, True)
    """

    encoding: Encoding
    positions: range | NDArray[Any]
    presets: tuple[str, ...]
    difference: float
    reason: str

    def __str__(self) -> str:
        names = ", ".join(self.presets) or "no preset"
        positions = self.positions if isinstance(self.positions, range) else "as given"
        return f"{names}: {self.encoding!r}, positions {positions}, largest difference {self.difference:.2g}: {self.reason}"


def identify(table: ArrayLike, positions: Positions | None = None) -> list[Match]:
    """Find the conventions that give a table, with their parameters.

    Parameters
    ----------
    table : ndarray, shape (n, d_model), (1, n, d_model) or (n, 1, d_model)
        Of float16, float32, float64 or bfloat16, or of uint16, the bits of bfloat16.  A single row of zeros is taken for that
        of `padding_idx`.
    positions : int, range or array_like, optional
        Of the rows, as in `encode`.  By default they are searched among evenly spaced integers that begin in [-2**20, 2**20].

    Returns
    -------
    list of Match
        The best first; more than one where these rows do not tell them apart.  Empty where no convention gives the table.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, or a table of more than 65536 columns.

    See Also
    --------
    presets : The conventions that are known by name.

    Notes
    -----
    Parameters that no preset has are found from a few hundred rows: base, scale, frequency scale and shift, of either layout,
    order and kind of exponents.  A table is matched if nine rows out of ten are; the reason says where others differ.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, dtype="float16")
    >>> for match in posenc.identify(table):
    ...     print(match)
    no preset: Encoding(64, base=500.0), positions range(1, 101), largest difference 0: every value correctly rounded
    """
    return _identify(_source(table), positions)


def identify_file(table: _files.Table, positions: range | None = None) -> list[Match]:
    """`identify` for a table in an open file: see `_npy.opened`."""
    def read(first: int, rows: int) -> NDArray[np.float64]:
        return _values(table.read(first, min(rows, table.shape[0] - first)), table.dtype)

    return _identify(_Source(table.shape, table.dtype, read), positions)


def _identify(source: _Source, positions: Positions | None) -> list[Match]:
    rows, d_model = source.shape
    if d_model > WIDEST:
        raise ValueError(f"table has {d_model} columns, expected at most {WIDEST}")
    given = None if positions is None else _given(positions, rows)
    if not rows or not d_model:
        return []
    with np.errstate(all="ignore"):     # of the host program
        sample = _sample(source, given)
        if sample is None:
            return []
        matches = [_compared(source, verdict) for verdict in _best(sample)]
    return [match for match in matches if match is not None]


# ---- the table ------------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """A table of which `read(first, rows)` gives consecutive rows, as float64."""

    shape: tuple[int, ...]
    dtype: str
    read: Callable[[int, int], NDArray[np.float64]]


class _Sample(NamedTuple):
    """Some rows of a table, neither zero nor with NaN or infinity, all of their columns."""

    rows: NDArray[np.intp]          # their numbers
    values: NDArray[np.float64]
    zero_rows: list[int]
    stored: str                     # the narrowest dtype that holds all of the values
    total: int                      # rows of the table
    positions: range | NDArray[Any] | None      # of the table, where they are known


def _source(table: ArrayLike) -> _Source:
    array = np.asarray(table)
    if array.dtype != np.uint16:
        name, _ = _arguments.dtype(array.dtype.newbyteorder("="), "table has dtype")
    else:
        name = "bfloat16"
    if array.ndim == 3 and 1 in array.shape[:2]:
        array = array.reshape(-1, array.shape[2]) if array.size else np.empty((0, array.shape[2]))
    if array.ndim != 2:
        raise ValueError(f"table has shape {array.shape}, expected (positions, columns)")

    def read(first: int, rows: int) -> NDArray[np.float64]:
        part = array[first : first + rows]
        return _values(part.view(np.uint16), name) if name == "bfloat16" else part.astype(np.float64)

    return _Source(array.shape, name, read)


def _values(bits: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << 16, "float32"
    with np.errstate(invalid="ignore"):         # a signalling NaN
        return bits.view(dtype).astype(np.float64)


def _given(positions: Positions, rows: int) -> range | NDArray[Any]:
    given = _arguments.range_or_array(positions)
    _, _, _, shape = _arguments.positions(given, 0.0)
    if shape != (rows,):
        raise ValueError(f"positions has shape {shape}, expected ({rows},), the rows of the table")
    return given


def _taken(positions: range | NDArray[Any], rows: NDArray[np.intp]) -> NDArray[Any]:
    if isinstance(positions, range):
        return np.array([positions[row] for row in rows.tolist()], np.int64)
    return positions[rows]


def _sample(source: _Source, positions: range | NDArray[Any] | None) -> _Sample | None:
    """The first rows, and others up to eight times as far each time, to the last one."""
    total, d_model = source.shape
    first = max(16, min(256, SAMPLE // 2 // d_model))
    chosen, reach = [np.arange(min(first, total))], 8 * first
    while reach < 8 * total:
        chosen.append(np.linspace(0, min(reach, total) - 1, first // 4).astype(np.int64))
        reach *= 8
    rows = np.unique(np.concatenate(chosen))
    values = np.concatenate([source.read(rows[0], first), *(source.read(row, 1) for row in rows[first:].tolist())])
    finite = np.isfinite(values).all(axis=1)
    if not finite.any():
        return None
    sizes = np.abs(values).max(axis=1)
    zero = sizes <= 0.02 * np.median(sizes[finite])     # nearly: there may be noise
    usable = finite & ~zero
    if not usable.any():
        return None
    usable_values = values[usable]
    stored = _stored(usable_values, source.dtype)
    return _Sample(rows[usable], usable_values, rows[zero].tolist(), stored, total, positions)


def _stored(values: NDArray[np.float64], dtype: str) -> str:
    """The narrowest dtype, up to the table's own, that holds all of the values."""
    mantissa, _ = np.frexp(values)
    return next(name for name, bits in PRECISION.items() if name == dtype or (np.ldexp(mantissa, bits) % 1 == 0).all())


# ---- what a candidate says of columns -------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """An encoding in float64, for searching: near enough at positions below 2**21."""

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
def _columns(encoding: Encoding) -> _Columns:
    c = encoding._convention
    frequencies = encoding.frequencies * c["position_scale"]
    which, cosine = encoding._arrangement(len(frequencies))
    return _Columns(np.append(frequencies, 0.0)[which], cosine, c["scale"], c["position_offset"])


# ---- where it begins ------------------------------------------------------------------------------------------------


def _placed(encoding: Encoding, sample: _Sample, reach: int) -> range | None:
    """The evenly spaced integer positions at which an encoding is nearest to the table, as a range, or None."""
    columns = _columns(encoding)
    if not _sized(columns, sample.values[:16]):
        return None
    # the fastest columns tell most, and of the others a few keep apart what those repeat
    fastest = np.argsort(-np.abs(columns.frequency), kind="stable")
    order = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = _like(columns, sample.values[0], order, reach)
    if not len(starts):
        return None
    few = slice(0, 16)
    rows, values = sample.rows[few] - sample.rows[0], sample.values[few][:, order]
    steps = np.repeat([1, -1] if len(rows) > 1 else [1], len(starts))
    starts = np.tile(starts, 2 if len(rows) > 1 else 1)
    placed = _nearest(columns, starts, steps, rows, values, order, sample.stored)
    if placed is None and len(rows) > 1:
        gap = rows[1]
        nexts = _like(columns, sample.values[1], order, reach)
        steps, remainders = np.divmod(nexts[:64, None] - starts[: len(starts) // 2][:64], gap)
        later, earlier = np.nonzero((remainders == 0) & (steps != 0) & (np.abs(steps) <= NEAR))
        if len(later):
            placed = _nearest(columns, starts[earlier], steps[later, earlier], rows, values, order, sample.stored)
    if placed is None:
        return None
    start, step = placed
    start -= step * int(sample.rows[0])
    return range(start, start + step * sample.total, step)


def _sized(columns: _Columns, values: NDArray[np.float64]) -> bool:
    """Whether the squares of most pairs of columns add up to the encoding's scale, or all values are about of its size."""
    size = abs(columns.scale)
    order = np.argsort(columns.frequency, kind="stable")
    first = np.flatnonzero((np.diff(columns.frequency[order]) == 0) & (np.diff(columns.cosine[order].astype(int)) != 0))
    if not len(first):
        return bool(0.05 * size < math.sqrt(np.mean(values**2)) and np.abs(values).max() < 1.5 * size)
    radius = np.hypot(values[:, order[first]], values[:, order[first + 1]])
    return bool((np.abs(radius - size) < 0.2 * size).mean() > 0.7)


def _like(columns: _Columns, row: NDArray[np.float64], order: NDArray[np.intp], reach: int) -> NDArray[np.intp]:
    """The integers, the smallest first, at which the columns are about those of a row."""
    p = np.arange(1, 2 * reach) // 2
    p[::2] *= -1
    for column in order:
        p = p[np.abs(columns.values(p, [column])[:, 0] - row[column]) < 0.15 * abs(columns.scale)]
        if not len(p):
            break
    return p[:8192]


def _nearest(
    columns: _Columns,
    starts: NDArray[np.intp],
    steps: NDArray[np.intp],
    rows: NDArray[np.intp],
    values: NDArray[np.float64],
    order: NDArray[np.intp],
    stored: str,
) -> tuple[int, int] | None:
    """(start, step) of the least squares, where it is not larger for smaller numbers; None where none is near."""
    rows, values = (rows, values) if len(starts) * values.size < 2**20 else (rows[:2], values[:2])
    floor = abs(columns.scale) * 2.0 ** -PRECISION[stored]
    parts = []
    for some in range(0, len(starts), 256):
        p = starts[some : some + 256, None] + steps[some : some + 256, None] * rows
        parts.append(np.sqrt(np.mean((columns.values(p, order) - values) ** 2, axis=(1, 2))))
    errors = np.concatenate(parts)
    scores = values.size * np.log2(np.maximum(errors, floor)) + np.log2(1.0 + np.abs(starts)) + 2 * np.log2(np.abs(steps))
    best = np.argmin(scores)
    return (int(starts[best]), int(steps[best])) if errors[best] < 0.15 * abs(columns.scale) else None


# ---- candidates: the presets ----------------------------------------------------------------------------------------

VARIANTS = (("diffusers-timestep", {"flip_sin_to_cos": True, "downscale_freq_shift": 0.0}),)     # Stable Diffusion's
PROBES = np.array([1.0, 777.0])


def _plain(encoding: Encoding) -> Encoding:
    """The same table without a padding row, said without what makes no difference to it."""
    idle = {"padding_idx", "odd"} if encoding.d_model % 2 == 0 else {"padding_idx"}
    changes = {k: v for k, v in encoding._changes().items() if k not in idle and (k, v) != ("shift", 0.0)}
    return Encoding(encoding.d_model, **changes)


def _key(encoding: Encoding) -> Key:
    """The same for two encodings of the same table."""
    c = encoding._convention
    return encoding.encode(PROBES - c["position_offset"], dtype="float64").tobytes(), c["position_offset"]


@functools.lru_cache(maxsize=4)
def _known(d_model: int) -> dict[Key, tuple[Encoding, Names]]:
    """By key, the encodings of the presets, each with (name, padding_idx) of all that give the same table."""
    found: dict[Key, tuple[Encoding, list[tuple[str, int | None]]]] = {}
    for name, changes in (*((p.name, {}) for p in presets()), *VARIANTS):
        try:
            given = preset(name, d_model, **changes)
            encoding = _plain(given)
            key = _key(encoding)
            _columns(encoding)
        except (ValueError, OverflowError):     # not for this d_model, or frequencies beyond float64
            continue
        label = name + (f"({', '.join(f'{k}={v}' for k, v in changes.items())})" if changes else "")
        known, names = found.setdefault(key, (encoding, []))
        names.append((label, given._convention["padding_idx"]))
        if len(encoding._changes()) < len(known._changes()):
            found[key] = (encoding, names)
    return {key: (encoding, tuple(names)) for key, (encoding, names) in found.items()}


# ---- candidates: a fit ----------------------------------------------------------------------------------------------


def _odd(sample: _Sample) -> Literal["zero", "truncate"]:
    return "zero" if sample.values.shape[1] % 2 and not sample.values[:, -1].any() else "truncate"


class _Line(NamedTuple):
    """Frequency k is exp(intercept - slope * k), in radians per row or position; `amplitude` is common to all columns."""

    intercept: float
    slope: float
    amplitude: float
    intercept_error: float
    slope_error: float
    amplitude_error: float


def _fits(sample: _Sample) -> Iterator[list[Encoding]]:
    """For each arrangement of columns whose frequencies are geometric, the encodings with parameters as short as can be."""
    q = (sample.rows if sample.positions is None else _taken(sample.positions, sample.rows)).astype(np.float64)
    d_model = sample.values.shape[1]
    if len(q) < 5 or not np.isfinite(q).all():
        return
    odd = _odd(sample)
    seen = set()
    for exponents in ("pair", "column"):
        for layout in ("interleaved", "halves"):
            structure: dict[str, Any] = {"exponents": exponents, "layout": layout, "odd": odd}
            which, _ = Encoding(d_model, **structure)._arrangement(d_model)
            numbers, columns = np.unique(which[: d_model - 1] if odd == "zero" else which, return_index=True)
            if not len(numbers) or tuple(columns) in seen:
                continue
            seen.add(tuple(columns))
            line = _line(q, sample, columns)
            if line is not None:
                for order in ("sin", "cos"):
                    conventions = _namings(line, len(columns), d_model, {**structure, "order": order})
                    if encodings := [Encoding(d_model, **convention) for convention in conventions]:
                        yield encodings


def _line(q: NDArray[np.float64], sample: _Sample, columns: NDArray[np.intp]) -> _Line | None:
    """The line through the logarithms of the columns' frequencies, from near rows first, then from farther ones."""
    if sample.positions is None:
        reaches, beyond = [], 256
        while beyond < 8 * sample.total:
            reaches.append(sample.rows < beyond)
            beyond *= 8
    else:
        reaches = [np.ones(len(q), bool)]
    line, numbers = None, [k for k in (*range(4), *_sparse(4, len(columns))) if k < len(columns)]
    for reach in reaches:
        chosen = np.flatnonzero(reach)
        chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, 256).astype(int))]
        if len(chosen) < 5:
            return None
        at, values = q[chosen] - q[chosen].mean(), sample.values[chosen][:, columns]
        span = np.ptp(at)
        points = []
        for k in numbers:
            if line is not None and (k > 1 or reach is not reaches[0]):
                w = math.exp(np.clip(line.intercept - line.slope * k, -100, 100))
            elif k > 1:
                break
            else:
                coarse = _coarse(at, values[:, k])
                if coarse is None:
                    return None
                w = coarse
            if w * span < 0.1:
                continue
            point = _refined(at, values[:, k], w, sample.stored)
            if point is None:
                return None
            if point[1] < 0.05:
                points.append((k, *point))
            if points and len(points) >= min(2, len(columns)):
                line = _straight(np.array(points), len(columns)) or line
    return line


def _sparse(first: int, beyond: int) -> Iterator[int]:
    """Numbers at growing distances, of about a quarter of themselves."""
    while first < beyond:
        yield first
        first += max(1, first // 4)


def _coarse(q: NDArray[np.float64], x: NDArray[np.float64]) -> float | None:
    """The frequency of the one sinusoid that explains most of x, from a grid."""
    span = np.ptp(q)
    gap = np.diff(np.unique(q)).min(initial=span)
    count = span / gap
    if not 0 < count <= 4096:
        return None
    top = math.pi / gap
    grid = np.concatenate([np.geomspace(0.1 / span, top, 200), np.linspace(top / (4 * count), top, int(4 * count))])
    cos, sin = np.cos(np.outer(grid, q)), np.sin(np.outer(grid, q))
    cc, ss, cs, xc, xs = (cos**2).sum(1), (sin**2).sum(1), (cos * sin).sum(1), cos @ x, sin @ x
    determinant = cc * ss - cs**2
    explained = (ss * xc**2 - 2 * cs * xc * xs + cc * xs**2) / determinant
    return float(grid[np.argmax(np.where(determinant > 1e-9 * cc * ss, explained, 0))])


def _refined(
    q: NDArray[np.float64], x: NDArray[np.float64], w: float, stored: str
) -> tuple[float, float, float] | None:
    """(log w, its standard error, amplitude) of the sinusoid near w, by Gauss and Newton's method; None where it is none."""
    limit = 0.5 / np.ptp(q)
    for _ in range(12):
        cos, sin = np.cos(w * q), np.sin(w * q)
        a, b = np.linalg.lstsq(np.stack([cos, sin], 1), x)[0]
        basis = np.stack([cos, sin, q * (b * cos - a * sin)], 1)
        solution = np.linalg.lstsq(basis, x)[0]
        step = float(np.clip(solution[2], -limit, limit))
        w = abs(w + step)
        if abs(step) < 1e-15 * w:
            break
    residual = np.sqrt(np.mean((basis @ solution - x) ** 2))
    amplitude = math.hypot(a, b)
    if not residual < 0.3 * amplitude or w == 0:
        return None
    residual = max(residual, amplitude * 2.0 ** -PRECISION[stored])
    error = residual * math.sqrt(np.linalg.pinv(basis.T @ basis)[2, 2])
    return math.log(w), max(error / w, 2.0 ** -min(PRECISION[stored], 50)), amplitude


def _straight(points: NDArray[np.float64], count: int) -> _Line:
    k, y, error, amplitude = points.T
    near = np.median(amplitude)
    amplitude_error = np.sqrt(np.mean((amplitude - near) ** 2) / len(amplitude))
    if count == 1:
        return _Line(y[0], 0.0, near, error[0], 0.0, amplitude_error)
    basis = np.stack([np.ones_like(k), -k], 1) / error[:, None]
    solution = np.linalg.lstsq(basis, y / error)[0]
    scatter = max(1.0, np.sqrt(np.sum((basis @ solution - y / error) ** 2) / max(1, len(k) - 2)))
    errors = scatter * np.sqrt(np.diag(np.linalg.pinv(basis.T @ basis)))
    (intercept, slope), (intercept_error, slope_error) = solution.tolist(), errors.tolist()
    return _Line(intercept, slope, near, intercept_error, slope_error, amplitude_error)


def _namings(line: _Line, count: int, d_model: int, structure: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Conventions of those frequencies: with numbers as short as the errors allow, and with as many digits as there are."""
    if max(line.intercept_error, line.slope_error) > 0.01 or abs(line.slope) * (count - 1) > WIDEST_RATIO:
        return
    half = d_model // 2 if structure["odd"] == "zero" else d_model / 2
    per = 2 if structure["exponents"] == "column" else 1
    scales = _scales(d_model)
    for errors, least in ((4, 1e-6), (1, 1e-15)):
        common = structure | {
            "frequency_scale": _short(math.exp(line.intercept), errors * line.intercept_error + least, TURNS, 4 * errors),
            "scale": _short(line.amplitude, errors * line.amplitude_error / line.amplitude + least, scales, 4000 * errors),
        }
        if count == 1:
            yield common
            continue
        for spacing, divisor in (("paper", per * half), ("endpoint", count - 1)):
            if abs(line.slope * divisor) < WIDEST_RATIO:
                base = _short(math.exp(line.slope * divisor), errors * divisor * line.slope_error + least)
                yield common | {"spacing": spacing, "base": base}
        if line.slope:
            divisor = math.log(10000.0) / line.slope
            shift = half - divisor / per
            error = divisor / per * (errors * line.slope_error / abs(line.slope) + least)
            if abs(shift) > 1e-3 and error < abs(shift):
                yield common | {"shift": _short(shift, error / abs(shift))}


def _scales(d_model: int) -> tuple[float, ...]:
    """Those that models have."""
    return 1.0, d_model**-0.5, math.sqrt(2 / d_model), math.sqrt(d_model)


def _short(x: float, error: float, favourites: Sequence[float] = (), lenience: float = 1) -> float:
    """A favourite within a relative error of x, of which more is allowed; or the number of the fewest decimals within it."""
    for y in favourites:
        if abs(y - x) <= min(lenience * error, 0.002) * abs(x):
            return y
    for digits in range(17):
        if abs(float(f"{x:.{digits}e}") - x) <= error * abs(x):
            return float(f"{x:.{digits}e}")
    return float(x)


def _usual(sample: _Sample) -> Iterator[Encoding]:
    """What a table of few rows may be that no preset is."""
    d_model = sample.values.shape[1]
    odd = _odd(sample)
    for layout in ("interleaved", "halves"):
        for order in ("sin", "cos"):
            for spacing in ("paper", "endpoint"):
                for base in BASES:
                    for scale in _scales(d_model):
                        yield Encoding(d_model, layout=layout, order=order, spacing=spacing, base=base, scale=scale, odd=odd)


# ---- judgement ------------------------------------------------------------------------------------------------------


class _Verdict(NamedTuple):
    """A candidate at its positions, and what error is left in the sample."""

    encoding: Encoding
    names: Names
    positions: range | NDArray[Any]
    reason: str
    stored: str
    least: float        # a row may differ by least + slope * |position + offset|
    slope: float
    evidence: float     # bits, less those of the parameters


def _best(sample: _Sample) -> list[_Verdict]:
    """Verdicts on the candidates that explain the table, the best first."""
    presets_ = _known(sample.values.shape[1])
    known = [([encoding], names) for encoding, names in presets_.values()]
    verdicts = _verdicts(known, sample, NEAR)
    if not any(v.reason in PLAIN for v in verdicts):
        names = {key: names for key, (_, names) in presets_.items()}
        fits = [(encodings, names.get(_key(encodings[0]), ())) for encodings in _fits(sample)]
        # arithmetic in 16 bits leaves so much room that a fit follows its errors
        verdicts += [v for v in _verdicts(fits, sample, NEAR) if v.reason not in {w.reason for w in verdicts}]
        if not verdicts and len(sample.rows) < 8:
            verdicts = _verdicts((([encoding], ()) for encoding in _usual(sample)), sample, NEAR)
        if not verdicts and sample.positions is None:
            verdicts = _verdicts(known + [fit for fit in fits if not fit[1]], sample, REACH)
    most = max((v.evidence for v in verdicts), default=0)
    verdicts = [v for v in verdicts if v.evidence > max(ENOUGH, most - TIE)]
    return [named for v in _without_twins(sorted(verdicts, key=lambda v: -v.evidence)) for named in _named(v)]


def _named(verdict: _Verdict) -> list[_Verdict]:
    """The verdict with the names of presets; twice where the rows do not tell whether there is a padding row."""
    encoding = verdict.encoding
    plain = tuple((name, padding_idx) for name, padding_idx in verdict.names if padding_idx is None)
    padding = tuple((name, padding_idx) for name, padding_idx in verdict.names if padding_idx is not None)
    if encoding._convention["padding_idx"] is not None:
        return [verdict._replace(names=padding or plain)]
    named = [verdict._replace(names=plain)]
    for padding_idx in sorted({padding_idx for _, padding_idx in padding}):
        if padding_idx not in verdict.positions:
            names = tuple(name for name in padding if name[1] == padding_idx)
            padded = Encoding(encoding.d_model, **encoding._changes(), padding_idx=padding_idx)
            named.append(verdict._replace(encoding=padded, names=names))
    return named


def _without_twins(verdicts: list[_Verdict]) -> list[_Verdict]:
    """Without those that begin before 0 and are another with an offset of its own."""
    def begins(v: _Verdict) -> int:
        return v.positions.start if isinstance(v.positions, range) else 0

    return [v for v in verdicts if begins(v) >= 0 or not any(begins(w) >= 0 for w in verdicts)]


def _verdicts(candidates: Iterable[tuple[list[Encoding], Names]], sample: _Sample, reach: int) -> list[_Verdict]:
    """On each candidate that explains the sample; of encodings of nearly the same table on the best."""
    verdicts: list[_Verdict] = []
    for encodings, names in candidates:
        positions = sample.positions
        for encoding in (encodings[0], encodings[-1])[: 2 if reach == NEAR else 1]:
            positions = _placed(encoding, sample, reach) if positions is None else positions
        if positions is not None:
            judged = [_judged(encoding, names, sample, positions) for encoding in encodings]
            verdicts += sorted((v for v in judged if v is not None), key=lambda v: v.evidence)[-1:]
    return verdicts


PLAIN = ("rounding", "float64 angles", "float32 angles")


def _judged(encoding: Encoding, names: Names, sample: _Sample, positions: range | NDArray[Any]) -> _Verdict | None:
    """The verdict on a candidate, None where it does not explain the sample."""
    encoding = _padded(encoding, positions, sample.zero_rows)
    columns = _columns(encoding)
    size = abs(columns.scale)
    at = _taken(positions, sample.rows)
    exact = encoding.encode(at, dtype="float64")
    error = np.abs(sample.values - exact)
    distance = np.abs(at.astype(np.float64) + columns.offset)
    fastest = np.abs(columns.frequency)
    turning = fastest[fastest > 0]
    # relative error of a frequency that is computed as an exponential: that of its logarithm, and a few roundings
    factor = 2 + 2 * np.ptp(np.log(turning)) if len(turning) else 0
    angles = factor * distance[:, None] * fastest
    stored = size * 2.0 ** -PRECISION[sample.stored]
    for reason, unit in _arithmetics(sample.stored):
        bound = np.minimum(size * unit * (1 + angles) + stored, size)
        # where angles are so large that this arithmetic leaves little of them, little is told
        blurred = reason in PLAIN and not np.median(np.sqrt(np.mean(error**2, axis=1))) < 0.05 * size
        if ((error <= bound) | (bound >= size)).all(axis=1).mean() >= 0.9 and not blurred:
            slope = size * unit * factor * fastest.max()
            least = size * unit + stored
            break
    else:
        noise = np.sqrt(np.mean(error**2))
        if not noise < 0.1 * size:
            return None
        bound, least, slope = np.full_like(error, 4 * noise), 8 * noise, 0.0
        reason = f"noise of {noise:.1g}" if error.max() < 8 * noise else f"unexplained differences of {noise:.1g}"
    told = np.log2(size / bound)
    inside = bound < size
    # errors that are all far below their bound tell more than the bound does
    usual = np.sqrt(np.mean((np.minimum(error, bound) / bound)[inside] ** 2)) if inside.any() else 1.0
    bits = told.sum() - inside.sum() * math.log2(max(2.0**-6, 4 * usual))
    cost = _cost(encoding, names)
    if sample.positions is None and isinstance(positions, range):
        cost += _range_cost(positions)
    return _Verdict(encoding, names, positions, reason, sample.stored, least, slope, bits - cost)


def _arithmetics(stored: str) -> Iterator[tuple[str, float]]:
    """How a table may have been computed, the most precise first: what to call it, and the unit of its errors."""
    yield "rounding", 0.0
    yield "float64 angles", 2.0**-53
    yield "float32 angles", 2.0**-24
    if stored in ("float16", "bfloat16"):
        yield f"{stored} arithmetic", 2.0 ** -PRECISION[stored]


def _padded(encoding: Encoding, positions: range | NDArray[Any], zero_rows: list[int]) -> Encoding:
    """The encoding, with padding_idx where it has zeros in place of a row."""
    if len(zero_rows) != 1:
        return encoding
    at = _taken(positions, np.array(zero_rows))
    if not float(at[0]).is_integer() or np.abs(encoding.encode(at)).max() < 0.1 * abs(encoding._convention["scale"]):
        return encoding
    return Encoding(encoding.d_model, **encoding._changes(), padding_idx=int(at[0]))


def _cost(encoding: Encoding, names: Names) -> float:
    """Bits to say an encoding: which preset, or its numbers, digit by digit."""
    if names:
        return 5
    numbers = [v for k, v in encoding._changes().items() if isinstance(v, float)]
    return 8 + sum(3.4 * len(f"{v:.17g}".strip("0").replace(".", "")) for v in numbers)


def _range_cost(positions: range) -> float:
    return math.log2(1 + abs(positions.start)) + (positions.start < 0) + 2 * math.log2(abs(positions.step))


# ---- comparison in full ---------------------------------------------------------------------------------------------


def _compared(source: _Source, verdict: _Verdict) -> Match | None:
    """The match of a verdict, from all rows; None where more than one in ten is another."""
    rows, d_model = source.shape
    encoding, positions = verdict.encoding, verdict.positions
    offset = encoding._convention["position_offset"]
    largest, zeros, others, first_other = 0.0, 0, 0, None
    most = max(1, CHUNK_BYTES // (8 * d_model))
    for first in range(0, rows, most):
        part = positions[first : first + most]
        if isinstance(part, range):
            distance = np.abs(np.array([part[0], part[-1]], np.float64) + offset)
            distance = np.linspace(distance[0], distance[1], len(part))
        else:
            distance = np.abs(part.astype(np.float64) + offset)
        expected = _encoded(encoding, part, source.dtype)
        found = source.read(first, most)
        difference = np.abs(found - expected)
        difference[np.isnan(found) & np.isnan(expected)] = 0
        difference = np.nan_to_num(difference, nan=math.inf, posinf=math.inf).max(axis=1)
        zero = ~found.any(axis=1) & (difference > 0)
        zeros += int(zero.sum())
        difference[zero] = 0
        largest = max(largest, difference.max())
        beyond = np.flatnonzero(difference > 2 * (verdict.least + verdict.slope * distance))
        if len(beyond) and first_other is None:
            first_other = first + int(beyond[0])
        others += len(beyond)
    if others > (rows - zeros) / 10:
        return None
    stored = "" if verdict.stored == source.dtype else f", stored as {verdict.stored}"
    reason = "every value correctly rounded" if largest == 0 else verdict.reason + stored
    if zeros:
        reason += f"; rows of zeros: {zeros}"
    if others:
        reason += f"; rows that differ by more: {others}, the first is {first_other}"
    return Match(encoding, positions, tuple(name for name, _ in verdict.names), float(largest), reason)


def _encoded(encoding: Encoding, positions: range | NDArray[Any], dtype: str) -> NDArray[np.float64]:
    if dtype == "bfloat16":
        out = np.empty((len(positions), encoding.d_model), np.uint16)
        return _values(encoding.encode(positions, dtype=dtype, out=out), dtype)
    return encoding.encode(positions, dtype=dtype).astype(np.float64)
