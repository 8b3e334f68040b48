"""Conventions: the candidates for a table, each with its description cost in bits.

There are two kinds: the presets, and conventions that are fitted to pairs of columns.  To add a kind, write a
function of `Rows` that yields candidates, and add it to `_groups`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

import posenc
from posenc import Encoding
from posenc._arguments.arrays import DTYPES
from posenc._arguments.specification import changes_of
from posenc.check import match
from posenc.check.evidence import TURNS, Line, line_through, phases_of, short
from posenc.check.match import Arithmetic, Array, Candidate, Curve, Explanation, Reals, Sample
from posenc.check.reading import Rows, chunks, numbers, positions_at, positions_of, rows_of, table_of

# ---- identify -------------------------------------------------------------------------------------------------------


class Match(NamedTuple):  # numpydoc ignore=PR01
    """A convention that gives a table: ``encoding.encode(positions)`` equals the table up to ``difference``.

    Attributes
    ----------
    encoding : Encoding
        The convention.
    positions : range or ndarray
        Positions of the rows.
    presets : tuple of str
        Names of the presets with this encoding, possibly with another ``padding_idx``.  A parameter that
        differs from the preset's default follows the name, in parentheses.
    difference : float
        Largest absolute difference from the correctly rounded values in the table's dtype, except in rows of
        zeros.
    reason : str
        Cause of the differences; docs/identify.md lists all causes.

    See Also
    --------
    identify : Return the matches of a table.

    Examples
    --------
    >>> import posenc
    >>> match = posenc.check.identify(posenc.preset("whisper", 64).encode(100))[0]
    >>> match.encoding, match.difference, "whisper" in match.presets
    (Encoding(64, spacing='endpoint', layout='halves'), 0.0, True)
    """

    encoding: Encoding
    positions: range | Array
    presets: tuple[str, ...]
    difference: float
    reason: str

    def __str__(self) -> str:
        presets = f"presets {', '.join(self.presets)}" if self.presets else "no preset"
        positions = self.positions if isinstance(self.positions, range) else "as given"
        return "; ".join([
            repr(self.encoding), f"positions {positions}", presets, f"largest difference {self.difference:.2g}: {self.reason}"
        ])


def identify(table: ArrayLike, positions: Any = None, *, nearest: bool = False) -> list[Match]:
    """Find the conventions that give a table, with their parameters.

    Parameters
    ----------
    table : ndarray or tensor, shape (n, d_model), (1, n, d_model) or (n, 1, d_model)
        Table of dtype float16, float32, float64, bfloat16 or uint16 (the bits of bfloat16).  A single row of
        zeros is interpreted as the row of `padding_idx`.
    positions : int, range or array_like, optional
        Positions of the rows, as in `posenc.encode`.  The default is to search for consecutive integers with
        a start in [-4096, 4096].
    nearest : bool, optional
        If no known convention gives the table, return the nearest one, provided that it gives most of the
        columns.  Its `reason` begins with "no match" and names the other columns.

    Returns
    -------
    list of Match
        The matches, best first: several if the rows do not distinguish them, none if no known convention
        gives the table.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or the table has more than 65536 columns.

    See Also
    --------
    posenc.presets : The conventions of known models.

    Notes
    -----
    If no preset gives the table, base, scale, frequency scale and shift are fitted, for each layout and order.  A fit needs at
    least two rows, or a few hundred with noise.  At least nine rows in ten of a preset must match; `reason` states the number
    of the other rows.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, dtype="float16")
    >>> for match in posenc.check.identify(table):
    ...     print(match)
    Encoding(64, base=500.0); positions range(1, 101); no preset; largest difference 0: every value correctly rounded
    """
    return Matches(_identified(table, positions, nearest))


NO_MATCH = ("no match: positions must be along the first axis, and consecutive and near 0 unless they are given; grids, "
            "learned and transposed tables are not recognized")


class Matches(list[Match]):
    """A list of matches; if it is empty, its text says why."""

    def __repr__(self) -> str:
        return super().__repr__() if self else f"[]: {NO_MATCH}"

    __str__ = __repr__


def _identified(table: ArrayLike, positions: Any, nearest: bool) -> list[Match]:
    array, dtype = table_of(table)
    rows, d_model = array.shape
    if d_model > match.WIDEST:
        raise ValueError(f"table has {d_model} columns, expected at most {match.WIDEST}")
    if not isinstance(nearest, bool):
        raise TypeError(f"nearest is {nearest!r} of type {type(nearest).__name__}, expected a bool")
    if hasattr(positions, "__index__") and not hasattr(positions, "shape"):
        positions = range(positions)
    if positions is not None:
        array_of_positions = positions_of(positions, rows=rows)
        positions = positions if isinstance(positions, range) else array_of_positions
    if not rows or not d_model:
        return []
    with np.errstate(all="ignore"):     # the host program may have set NumPy to raise floating-point errors
        sample = rows_of(array, dtype, positions)
        if sample is None:
            return []
        compared = (_compared(array, dtype, *explanation) for explanation in _explanations(sample))
        return [*filter(None, compared)] or (_nearest(sample) if nearest else [])


def _explanations(rows: Rows) -> list[Explanation]:
    """Return the explanations of a table, cheapest first, by the first group of candidates that has any.

    Those of similar cost are all returned, because longer parameters may be the true ones.
    """
    for group in _groups(rows):
        ranked = sorted(((*_cost(rows, *explanation), explanation) for explanation in group), key=lambda row: row[:2])
        first: dict[Any, Explanation] = {}
        for errors, cost, explanation in ranked:
            if errors == ranked[0][0] and cost < min(ranked[0][1] + match.TIE, math.inf):
                (_, positions), encoding = explanation[0].source, explanation[1]
                where = positions if isinstance(positions, range) else None         # the caller's array is the same for all
                first.setdefault((key_of(encoding), where), explanation)            # the same table may have several encodings
        if first:
            # a negative start is equivalent to a position offset
            return [first[key] for key in first if key[1] is None or key[1].start >= 0] or [*first.values()]
    return []


def _groups(rows: Rows) -> Iterator[Iterator[Explanation]]:
    """Yield the explanations by presets and by fits, in an arithmetic of increasing errors."""
    plain = match.plain(rows.stored)
    presets = _placed(_presets(rows), rows)
    yield match.explanations(presets, plain)
    fits = _placed(_fits(rows), rows)
    yield from (match.explanations(fits, [how]) for how in plain)
    yield match.explanations(presets, [Arithmetic(rows.stored, rows.stored)] if rows.stored in match.NARROW else [])
    yield (result for candidate in presets + fits for result in match.explanations([candidate], _noise(candidate)))


def _placed(candidates: Iterable[Candidate], rows: Rows) -> list[Candidate]:
    """Return the candidates with the sample at the positions where they are nearest to it."""
    result = []
    for candidate in candidates:
        ranges = (placed(encoding, rows) for encoding in candidate.conventions)
        positions = next(filter(None, ranges), None) if rows.positions is None else rows.positions
        result += [] if positions is None else [_sampled(candidate, rows, positions)]
    return result


def _sampled(candidate: Candidate, rows: Rows, positions: range | Array) -> Candidate:
    at = positions_at(positions, rows.rows)
    # with fewer digits, fits may explain most rows, but not all
    other_rows = 0.0 if candidate.is_fitted else match.MAX_OTHER_ROWS
    sample = Sample(at, rows.values, rows.stored, table_curve, other_rows=other_rows)
    encodings, names = [_padded(encoding, positions, rows.zero_rows) for encoding in candidate.conventions], candidate.source
    # without a row of zeros, presets with a padding row have it at other positions
    padded = tuple(name for name in names if name[1] is not None)
    names = padded or names if encodings[0].padding_idx is not None else tuple(
        name for name in names if name[1] is None or name[1] not in positions)
    return candidate._replace(conventions=encodings, source=(names, positions), sample=sample)


def _noise(candidate: Candidate) -> list[Arithmetic]:
    """Return an arithmetic with the noise of the values, if it is small and there are enough rows to see that it is noise."""
    sample, encoding = candidate.sample, candidate.conventions[-1]
    values, expected = sample.values / encoding.scale, encoding.encode(sample.positions, dtype="float64") / encoding.scale
    noise = float(np.sqrt(np.mean((values - expected) ** 2)))
    # wrong angles change the sums of the squares of pairs not at all, and those of other columns slowly from
    # row to row
    sums = np.diff(np.sum(values**2 - expected**2, axis=1))
    is_noise = np.linalg.norm(sums) > match.NOISE_SHARE * noise * math.sqrt(4 * encoding.d_model * len(sums))
    return [Arithmetic(sample.dtype, noise=noise)] if is_noise and noise < match.NOISE and len(sums) >= match.NOISE_ROWS else []


def _cost(rows: Rows, candidate: Candidate, encoding: Encoding, how: Arithmetic) -> tuple[tuple[int, int], float]:
    """Return the rank of an explanation's errors, and the bits that describe it; infinity if the table may agree by chance."""
    sample, (names, positions) = candidate.sample, candidate.source
    cost = cost_of(encoding, names)
    if rows.positions is None and isinstance(positions, range):
        cost += math.log2(1 + abs(positions.start)) + (positions.start < 0)
    curve = table_curve(encoding, sample.positions, how)
    # among large errors, columns that hardly change are no evidence
    changes = np.ptp(curve.values, axis=0) / (2 * curve.size) if how.is_narrow else 1.0
    bits = -np.log2(np.minimum((curve.error + match.MAX_NOISE * how.noise) / changes, 1)).sum()
    # a table of arbitrary angles has such sines and cosines, too, so those of an angle are evidence only once
    is_evident = bits * len(encoding.frequencies) / encoding.d_model >= cost + match.ENOUGH
    # among large errors, the smallest show the convention
    error = np.sqrt(np.mean((sample.values - curve.values) ** 2)) if how.noise or how.is_narrow else 0.0
    rank = ("", "float64", "float32", *match.NARROW).index(how.angles), math.frexp(error)[1]
    return rank, cost if is_evident else math.inf


def _padded(encoding: Encoding, positions: range | Array, zero_rows: list[int]) -> Encoding:
    """Return the encoding, with padding_idx if the table has a row of zeros where the encoding has none."""
    if len(zero_rows) != 1:
        return encoding
    at = positions_at(positions, np.array(zero_rows))
    if not float(at[0]).is_integer() or np.abs(encoding.encode(at)).max() < 0.1 * abs(encoding.scale):
        return encoding
    return encoding.replace(padding_idx=int(at[0]))


def _compared(table: Array, dtype: str, candidate: Candidate, encoding: Encoding, how: Arithmetic) -> Match | None:
    """Compare a convention with all rows; return the match, or None if too many rows differ."""
    (names, positions), columns = candidate.source, []
    for rows in chunks(len(table), encoding.d_model):
        values = match.float64_of(table[rows], dtype)
        out = np.empty(values.shape, np.uint16 if dtype == "bfloat16" else dtype)
        expected = match.float64_of(encoding.encode(positions[rows], dtype=dtype, out=out), dtype)
        curve = table_curve(encoding, np.asarray(positions[rows]), how)
        differs = curve._replace(error=2 * curve.error).differs(values, how)
        difference = np.nan_to_num(np.abs(values - expected), nan=math.inf, posinf=math.inf).max(axis=1)
        columns.append((difference, ~values.any(axis=1), differs.any(axis=1)))
    differences, zero, differs = map(np.concatenate, zip(*columns, strict=True))
    zero &= differences > 0
    differences[zero] = 0
    differing = np.flatnonzero(differs & (differences > 0))
    if len(differing) > match.MAX_OTHER_ROWS * (len(table) - zero.sum()):
        return None
    reason = "every value correctly rounded"
    if differences.any():
        kind = "arithmetic" if how.is_narrow else "angles"
        reason = f"noise of {how.noise * abs(encoding.scale):.1g}" if how.noise else f"{how.angles} {kind}"
        reason = reason if how.noise or how.angles else "rounding"
        reason += "" if how.table == dtype else f", stored as {how.table}"
    if zero.any():
        reason += f"; rows of zeros: {zero.sum()}"
    if len(differing):
        reason += f"; rows with unexplained differences: {len(differing)}, the first is {differing[0]}"
    return Match(encoding, positions, tuple(name for name, _ in names), float(differences.max()), reason)


def _nearest(rows: Rows) -> list[Match]:
    """Return the nearest convention as a match whose reason names the other columns; nothing if most columns differ.

    If the positions are unknown, they are assumed to start at 0.
    """
    positions = range(rows.total) if rows.positions is None else rows.positions
    candidates = (_sampled(candidate, rows, positions) for candidate in (*_presets(rows), *_fits(rows)))
    result = match.nearest(candidates, match.MAX_COLUMNS)
    if result is None:
        return []
    candidate, encoding, columns, error = result
    names, positions = candidate.source
    which = f"column {columns[0]} differs" if len(columns) == 1 else f"columns {numbers(columns)} differ"
    return [Match(encoding, positions, tuple(name for name, _ in names), error, f"no match: {which} by up to {error:.2g}")]


# ---- candidates -----------------------------------------------------------------------------------------------------


PROBES = np.array([1.0, 777.0])
Names: TypeAlias = tuple[tuple[str, int | None], ...]   # (name of a preset, its padding_idx)


def cost_of(encoding: Encoding, names: Names = ()) -> float:
    """Return the number of bits that describe an encoding, as a preset or by the digits of its parameters."""
    if names:
        return match.PRESET_BITS
    numbers = [v for v in changes_of(encoding).values() if isinstance(v, float)]
    usual_numbers = *TURNS, *_scales(encoding.d_model)
    digits = (1 if v in usual_numbers else len(f"{v:.15g}".strip("0").replace(".", "")) for v in numbers)
    return match.FIT_BITS + match.DIGIT_BITS * sum(digits)


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
    for name in posenc.presets():
        try:
            encoding = posenc.preset(name, d_model)
        except ValueError:                      # the preset does not support this d_model
            continue
        short_form = encoding.replace(padding_idx=None, odd=encoding.odd if d_model % 2 else "truncate")
        if np.isfinite(encoding.frequencies).all():
            shortest, names = by_key.get(key := key_of(short_form), (short_form, ()))
            names = *names, (name, encoding.padding_idx)
            by_key[key] = min(shortest, short_form, key=lambda e: len(changes_of(e))), names
    return by_key


def _presets(rows: Rows) -> Iterator[Candidate]:
    for encoding, names in preset_encodings(rows.values.shape[1]).values():
        yield Candidate(match.PRESET_BITS, [encoding], names, is_fitted=False)


# ---- fits -----------------------------------------------------------------------------------------------------------


def _fits(rows: Rows) -> Iterator[Candidate]:
    """Yield encodings with common or short decimal parameters, for each layout whose pairs have a constant radius."""
    at = rows.rows if rows.positions is None else positions_at(rows.positions, rows.rows)
    d_model = rows.values.shape[1]
    odd = "zero" if d_model % 2 and not rows.values[:, -1].any() else "truncate"
    half = d_model // 2
    first = half + (d_model % 2 and odd == "truncate")
    for layout, z in (("interleaved", rows.values[:, : 2 * half : 2] + 1j * rows.values[:, 1::2][:, :half]),
                      ("halves", rows.values[:, :half] + 1j * rows.values[:, first : first + half])):
        radius = np.abs(z)
        scale = float(np.median(radius)) if half else 0.0
        noise = float(np.sqrt(np.mean((radius / scale - 1) ** 2))) if scale else math.inf
        if noise >= match.NOISE or not np.ptp(at):
            continue
        smallest = max(noise * scale, 2.0 ** DTYPES[rows.stored].smallest)
        phases = phases_of(at, z, match.PRECISION[rows.stored], smallest)
        # positions that are far apart show the fast frequencies only modulo a multiple, so that these are not
        # on the line
        for first in dict.fromkeys((0, half // 2, 3 * half // 4) if np.diff(np.sort(at)).min() > 1 else (0,)):
            sign = math.copysign(1.0, np.sum(np.sign(phases.frequency[first:])))
            w = sign * phases.frequency
            fitted = np.flatnonzero((w > 0) & (phases.error < match.KNOWN * w))
            fitted = fitted[fitted >= first]
            if not len(fitted):
                continue
            line = line_through(fitted, w[fitted], phases.error[fitted] / w[fitted])
            error = max(noise, 2.0 ** -match.PRECISION[rows.stored]) / math.sqrt(z.size)
            structure = {"layout": layout, "odd": odd, "order": "cos" if sign > 0 else "sin"}
            encodings = [Encoding(d_model, **keywords) for keywords in _namings(line, scale, error, half, d_model, structure)]
            encodings.sort(key=lambda encoding: (cost_of(encoding), encoding.base))
            if encodings:
                yield Candidate(match.FIT_BITS, encodings, ())


def _namings(
    line: Line, size: float, size_error: float, count: int, d_model: int, structure: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield conventions whose frequencies agree with a line; round parameters within fewer and fewer standard errors."""
    if max(line.intercept_error, line.slope_error) > 0.01 or abs(line.slope) * (count - 1) > match.WIDEST_RATIO:
        return
    half = d_model // 2 if structure["odd"] == "zero" else d_model / 2
    for errors, least in match.FITTED_DIGITS:
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


# ---- positions ------------------------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=64)
def waves_of(encoding: Encoding) -> tuple[Reals, Reals]:
    """Return the frequency and the phase (pi / 2 for a cosine) of each column.

    The values of an encoding at one position show its columns, if its frequencies are 1, 2, 3 ... units.
    """
    count = len(encoding.frequencies)
    unit = 0.5 / max(1, count)
    probe = Encoding(encoding.d_model, frequencies=np.arange(1, count + 1) * unit, odd=encoding.odd, layout=encoding.layout,
                     exponents=encoding.exponents, order=encoding.order)
    values = probe.encode([1.0], dtype="float64")[0]
    cosine = values > 0.6               # the angles are at most 0.5: sines are below 0.48, cosines above 0.87
    angles = np.where(cosine, np.arccos(np.minimum(values, 1)), np.arcsin(np.minimum(values, 0.5)))
    frequencies = np.append(encoding.frequencies * encoding.position_scale, 0.0)        # 0 for a column of zeros
    return frequencies[np.rint(angles / unit).astype(np.intp) - 1], cosine * (math.pi / 2)


def table_curve(encoding: Encoding, positions: Array, arithmetic: Arithmetic) -> Curve:
    """Return the curve of an encoding; the errors of all roundings of angles are bounded."""
    frequencies, _ = waves_of(encoding)
    unit = 2.0 ** -match.PRECISION[arithmetic.angles] if arithmetic.angles else 0.0
    unit *= match.NARROW_ERROR if arithmetic.is_narrow else 1.0
    angles = (positions.astype(np.float64) + encoding.position_offset)[:, None] * frequencies
    # values may also be rounded before they are multiplied by the scale
    rounding = (1 if abs(encoding.scale) == 1 else 2) * 2.0 ** -match.PRECISION[arithmetic.table]
    error = unit * match.errors_of_angles(frequencies, angles) + rounding
    return Curve(encoding.encode(positions, dtype="float64"), error, abs(encoding.scale), slack=0)


def placed(encoding: Encoding, rows: Rows) -> range | None:
    """Return the consecutive positions at which an encoding is nearest to the table, or None if no positions are near."""
    (frequencies, phases), scale = waves_of(encoding), abs(encoding.scale)

    def values_at(positions: Array, columns: Any) -> Reals:
        angles = np.asarray(positions[..., None] + encoding.position_offset) * frequencies[columns]
        return np.asarray(encoding.scale * np.sin(angles + phases[columns]))

    # the fastest columns locate a position best, but only modulo their periods; up to 48 random others
    # resolve the ambiguity
    fastest = np.argsort(-np.abs(frequencies), kind="stable")
    order = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = np.arange(-match.LARGEST_START, match.LARGEST_START + 1)
    for column in order:
        starts = starts[np.abs(values_at(starts, [column])[:, 0] - rows.values[0, column]) < match.PLACED * scale]
    at, values = rows.rows[:4] - rows.rows[0], rows.values[:4][:, order]
    errors = np.sqrt(np.mean((values_at(starts[:, None] + at, order) - values) ** 2, axis=(1, 2)))
    if errors.min(initial=math.inf) >= match.PLACED * scale:
        return None
    bits = values.size * np.log2(np.maximum(errors, scale * 2.0 ** -match.PRECISION[rows.stored]))
    start = int(starts[np.argmin(bits + np.log2(1.0 + np.abs(starts)))]) - int(rows.rows[0])
    return range(start, start + rows.total)
