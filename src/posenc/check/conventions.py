"""Conventions: which conventions give a table, with their parameters.

There are three kinds of candidates: the presets, tables of usual periods, and conventions that are fitted to
pairs of columns.  To add a kind, write a function of `Rows` that yields `Proposal`, and add it to `identified`.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

import posenc
from posenc import Encoding
from posenc._arguments import checks
from posenc._arguments.arrays import DTYPES
from posenc._arguments.specification import changes_of
from posenc._encoding.columns import arrangement
from posenc.check import match
from posenc.check.evidence import FITTED_DIGITS, TURNS, Line, phases_of, short
from posenc.check.match import Arithmetic, Array, Curve, Reals
from posenc.check.reading import array_of, chunks, numbers, positions_of, spread

LARGEST_START = 2**12       # of a table, as an absolute value
WIDEST = 2**16              # columns of a table; wider ones take minutes
SAMPLE = 2**20              # values in the first rows of a sample, 8 MiB as float64; 16 to 256 rows
PLACED = 0.15               # distance from a row of the table, as a share of the scale
ENOUGH = 12                 # bits: a table must be explained better than by chance, one in 4,000
TIE = 24                    # bits: results this close are all reported; one with longer parameters may be true
PRESET_BITS, FIT_BITS, DIGIT_BITS = 5, 8, 3.4       # cost of one of about 40 presets, of a fit, and of a decimal digit
OTHER_ROWS = 0.1            # share of a preset's rows that may differ: padding, special tokens
SPREAD = 0.1                # of the radii of pairs: pairs of other columns have no constant radius
GOOD_COLUMN = 0.9           # share of the rows that must agree for a column of the nearest convention
NEAR = 2.0**-20             # added to its errors, because it is fitted to other columns, too
DAY = 86_400
PERIODS = np.array(sorted({         # hour, day, week, month and year in each unit; hours and months as plain numbers
    *(n * unit for n in (60, 3600, DAY, 7 * DAY, 30 * DAY, 365 * DAY, 365.25 * DAY, 365.2425 * DAY)
      for unit in (1, 10**3, 10**6, 10**9)),
    4, 7, 12, 24, 30, 31, 52, 168, 365, 365.25, 365.2425, 366, 1440, 8760, 8766}))

# ---- identify ----------------------------------------------------------------------------------------------


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
        columns, at least approximately.  Its `reason` begins with "no match" and names the other columns.

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
    If no preset gives the table, base, scale, frequency scale and shift are fitted, for each layout and order.
    Periods of a day, a week and the like are recognized in usual units.  A fit needs at least two rows.  At
    least nine rows in ten of a preset must match; `reason` states the number of the other rows.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, dtype="float16")
    >>> for match in posenc.check.identify(table):
    ...     print(match)
    Encoding(64, base=500.0); positions range(1, 101); no preset; largest difference 0: every value correctly rounded
    """
    array, dtype = array_of("table", table)
    if np.iscomplexobj(array):
        raise TypeError(f"table has dtype {array.dtype}, expected float64, float32, float16 or bfloat16")
    if array.ndim == 3 and 1 in array.shape[:2]:
        array = array.reshape(max(array.shape[:2]) * min(1, array.size), array.shape[2])
    if array.ndim != 2:
        raise ValueError(f"table has shape {array.shape}, expected (n, d_model), (1, n, d_model) or (n, 1, d_model)")
    total, d_model = array.shape
    if d_model > WIDEST:
        raise ValueError(f"table has {d_model} columns, expected at most {WIDEST}")
    checks.boolean("nearest", nearest)
    if hasattr(positions, "__index__") and not hasattr(positions, "shape"):
        positions = range(positions)
    if positions is not None:
        array_of_positions = positions_of(positions, rows=total)
        positions = positions if isinstance(positions, range) else array_of_positions
    if not array.size:
        return Matches()
    with np.errstate(all="ignore"):     # the host program may have set NumPy to raise floating-point errors
        first = max(16, min(256, SAMPLE // d_model))
        sampled = spread(total, first, first // 4)
        values = match.float64_of(array[sampled], dtype)
        sizes = np.abs(values).max(axis=1)
        zero = sizes <= 0.02 * np.sort(sizes)[len(sizes) // 2]          # a row of zeros may have noise
        usable = np.isfinite(sizes) & ~zero
        if not usable.any():
            return Matches()
        values = values[usable]
        rows = Rows(array, dtype, sampled[usable], values, sampled[zero].tolist(), match.narrowest(values, dtype), positions)
        return Matches(identified(rows) or (_nearest(rows) if nearest else []))


NO_MATCH = ("no match: positions must be along the first axis, and consecutive and near 0 unless they are given; grids, "
            "learned and transposed tables are not recognized")


class Matches(list[Match]):
    """A list of matches; if it is empty, its text says why."""

    def __repr__(self) -> str:
        return super().__repr__() if self else f"[]: {NO_MATCH}"

    __str__ = __repr__


class Rows(NamedTuple):
    """The sampled rows of a table that are finite and not zero."""

    table: Array
    dtype: str
    numbers: Array                      # of the sampled rows
    values: Reals
    zero_rows: list[int]                # numbers of the sampled rows that are zero
    stored: str                         # dtype with the fewest significant bits that suffice for all values
    positions: range | Array | None     # positions of all rows in the table, if known


Names: TypeAlias = tuple[tuple[str, int | None], ...]   # (name of a preset, its padding_idx)


# encodings that differ only in the digits of their parameters, the shortest first; or one that presets have
Proposal: TypeAlias = tuple[Sequence[Encoding], Names]


def identified(rows: Rows) -> list[Match]:
    """Return the matches of the first kind of candidates that has any."""
    presets: list[Proposal] = [([e], names) for e, names in preset_encodings(rows.values.shape[1]).values()]
    plain, narrow = match.plain(rows.stored), [Arithmetic(rows.stored, rows.stored)]
    for proposals, kinds in ((presets, plain), ([*_periodic(rows), *_fits(rows)], plain),
                             (presets, narrow if rows.stored in match.NARROW else [])):
        ranked = sorted(filter(None, (_explained(p, rows, kinds) for p in proposals)), key=lambda found: found[:2])
        first: dict[Any, Any] = {}
        for errors, cost, *found in ranked:
            if errors == ranked[0][0] and cost < min(ranked[0][1] + TIE, math.inf):
                encoding, _, positions, _ = found
                where = positions if isinstance(positions, range) else None         # else the caller's array
                first.setdefault((key_of(encoding), where), found)          # the same table may have several encodings
        # a negative start is equivalent to a position offset
        chosen = [first[key] for key in first if key[1] is None or key[1].start >= 0] or first.values()
        if matches := [*filter(None, (_compared(rows, *found) for found in chosen))]:
            return matches
    return []


def _explained(proposal: Proposal, rows: Rows, kinds: Sequence[Arithmetic]) -> Any:
    """Return the first encoding that explains the sample, or None.

    The result has the rank of its errors, its cost, the encoding, the names, the positions and the arithmetic.
    """
    positions, encodings, names = _placed(proposal, rows)
    for how, encoding in itertools.product(kinds if positions is not None else (), encodings):
        curve = table_curve(encoding, np.asarray(positions)[rows.numbers], how)
        # with fewer digits, fits may explain most rows, but not all
        if curve.explains(rows.values, how, OTHER_ROWS if names else 0.0):
            cost = cost_of(encoding, names)
            if rows.positions is None and isinstance(positions, range):
                cost += math.log2(1 + abs(positions.start)) + (positions.start < 0)
            # among large errors, columns that hardly change are no evidence
            changes = np.ptp(curve.values, axis=0) / (2 * curve.size) if how.is_narrow else 1.0
            bits = -np.log2(np.minimum(curve.error / changes, 1)).sum()
            # a table of arbitrary angles has such values, too, so the sine and cosine of an angle count once
            is_evident = bits * len(encoding.frequencies) / encoding.d_model >= cost + ENOUGH
            # among large errors, the smallest show the convention
            error = np.sqrt(np.mean((rows.values - curve.values) ** 2)) if how.is_narrow else 0.0
            errors = ("", "float64", "float32", *match.NARROW).index(how.angles), math.frexp(error)[1]
            return errors, cost if is_evident else math.inf, encoding, names, positions, how
    return None


def _placed(proposal: Proposal, rows: Rows) -> tuple[range | Array | None, Sequence[Encoding], Names]:
    """Return the positions where a proposal is nearest to the sample; a row of zeros has `padding_idx`."""
    encodings, names = proposal
    ranges = (placed(encoding, rows) for encoding in encodings)
    positions = next(filter(None, ranges), None) if rows.positions is None else rows.positions
    if positions is None:
        return None, encodings, names
    encodings = [_padded(encoding, np.asarray(positions)[rows.zero_rows]) for encoding in encodings]
    # without a row of zeros, presets with a padding row have it at other positions
    if encodings[0].padding_idx is not None:
        return positions, encodings, tuple(name for name in names if name[1] is not None) or names
    return positions, encodings, tuple(name for name in names if name[1] is None or name[1] not in positions)


def _padded(encoding: Encoding, at: Array) -> Encoding:
    """Return the encoding, with padding_idx if the table has one row of zeros, where the encoding has none."""
    if len(at) != 1 or at[0] % 1 or np.abs(encoding.encode(at)).max() < 0.1 * abs(encoding.scale):
        return encoding
    return encoding.replace(padding_idx=int(at[0]))


def _compared(rows: Rows, encoding: Encoding, names: Names, positions: Any, how: Arithmetic) -> Match | None:
    """Compare a convention with all rows; return the match, or None if too many rows differ."""
    columns = []
    for part in chunks(len(rows.table), encoding.d_model):
        values = match.float64_of(rows.table[part], rows.dtype)
        out = np.empty(values.shape, np.uint16 if rows.dtype == "bfloat16" else rows.dtype)
        expected = match.float64_of(encoding.encode(positions[part], dtype=rows.dtype, out=out), rows.dtype)
        curve = table_curve(encoding, np.asarray(positions[part]), how)
        differs = curve._replace(error=2 * curve.error).differs(values, how)
        difference = np.nan_to_num(np.abs(values - expected), nan=math.inf, posinf=math.inf).max(axis=1)
        columns.append((difference, ~values.any(axis=1), differs.any(axis=1)))
    differences, zero, differs = map(np.concatenate, zip(*columns, strict=True))
    zero &= differences > 0
    differences[zero] = 0
    differing = np.flatnonzero(differs & (differences > 0))
    if len(differing) > OTHER_ROWS * (len(rows.table) - zero.sum()):
        return None
    reason = "every value correctly rounded"
    if differences.any():
        reason = f"{how.angles} {'arithmetic' if how.is_narrow else 'angles'}" if how.angles else "rounding"
        reason += "" if how.table == rows.dtype else f", stored as {how.table}"
    if zero.any():
        reason += f"; rows of zeros: {zero.sum()}"
    if len(differing):
        reason += f"; rows with unexplained differences: {len(differing)}, the first is {differing[0]}"
    return Match(encoding, positions, tuple(name for name, _ in names), float(differences.max()), reason)


def _nearest(rows: Rows) -> list[Match]:
    """Return the convention that gives the most columns, if it gives most of them at least approximately."""
    how, choices = Arithmetic(rows.stored, "float32"), []
    for proposal in [*(([e], names) for e, names in preset_encodings(rows.values.shape[1]).values()), *_fits(rows)]:
        positions, (encoding, *_), names = _placed(proposal, rows)
        positions = range(len(rows.table)) if positions is None else positions
        curve = table_curve(encoding, np.asarray(positions)[rows.numbers], how)
        error = np.abs(rows.values - curve.values)
        good, near = ((error <= curve.size * bound).mean(axis=0) >= GOOD_COLUMN for bound in (curve.error + NEAR, SPREAD))
        if 2 * near.sum() > len(near):
            choices.append((-good.sum(), float(np.median(error)), encoding, positions, names, np.flatnonzero(~good), error))
    if not choices:
        return []
    *_, encoding, positions, names, where, error = min(choices, key=lambda choice: choice[:2])
    which = f"column {where[0]} differs" if len(where) == 1 else f"columns {numbers(where)} differ"
    largest = float(np.nan_to_num(error[:, where], nan=math.inf).max(initial=0.0))
    return [Match(encoding, positions, tuple(name for name, _ in names), largest, f"no match: {which} by up to {largest:.2g}")]


# ---- presets -----------------------------------------------------------------------------------------------


def _scales(d_model: int) -> tuple[float, ...]:
    return 1.0, d_model**-0.5, math.sqrt(2 / d_model), math.sqrt(d_model)


def cost_of(encoding: Encoding, names: Names = ()) -> float:
    """Return the number of bits that describe an encoding, as a preset or by the digits of its parameters."""
    if names:
        return PRESET_BITS
    changes = changes_of(encoding)
    values = [v for v in (*changes.values(), *changes.get("periods", ())) if isinstance(v, (int, float))]
    usual = {*TURNS, *_scales(encoding.d_model), *PERIODS}
    digits = (1 if v in usual else len(f"{v:.15g}".strip("0").replace(".", "")) for v in values)
    return FIT_BITS + DIGIT_BITS * sum(digits)


def key_of(encoding: Encoding) -> tuple[bytes, float]:
    """Return a key that is equal for encodings that give the same table."""
    offset = encoding.position_offset
    return encoding.encode(np.array([1.0, 777.0]) - offset, dtype="float64").tobytes(), offset


@functools.lru_cache(maxsize=4)
def preset_encodings(d_model: int) -> dict[tuple[bytes, float], tuple[Encoding, Names]]:
    """Return for each key the shortest encoding, and the (name, padding_idx) of every preset."""
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


# ---- fits --------------------------------------------------------------------------------------------------


def _pairs(rows: Rows) -> Iterator[tuple[dict[str, Any], Reals, Array, float]]:
    """Yield each layout in which pairs have a constant radius, with the positions, the pairs and the scale."""
    at = rows.numbers if rows.positions is None else np.asarray(rows.positions)[rows.numbers]
    d_model = rows.values.shape[1]
    odd = "zero" if d_model % 2 and not rows.values[:, -1].any() else "truncate"
    half = d_model // 2
    first = half + (d_model % 2 and odd == "truncate")
    for layout, z in (("interleaved", rows.values[:, : 2 * half : 2] + 1j * rows.values[:, 1::2][:, :half]),
                      ("halves", rows.values[:, :half] + 1j * rows.values[:, first : first + half])):
        scale = float(np.median(np.abs(z))) if half else 0.0
        if scale and np.sqrt(np.mean((np.abs(z) / scale - 1) ** 2)) < SPREAD and np.ptp(at):
            yield {"layout": layout, "odd": odd}, at, z, scale


def _periodic(rows: Rows) -> Iterator[Proposal]:
    """Yield the encodings whose periods are usual ones."""
    for structure, at, z, scale in _pairs(rows) if rows.values.shape[1] <= 64 else ():
        turns = np.exp(2j * math.pi * (at[:, None] % PERIODS / PERIODS))[:, None]
        for order, values in (("cos", z), ("sin", 1j * z.conj())):
            errors = np.abs(values[:, :, None] / scale - turns).max(axis=0)
            if (errors.min(axis=1) < SPREAD).all():
                periods = PERIODS[errors.argmin(axis=1)].tolist()
                d_model = rows.values.shape[1]
                keywords = structure | {"scale": short(scale, 1e-3, _scales(d_model)), "order": order}
                yield [Encoding(d_model, periods=periods, **keywords)], ()


def _fits(rows: Rows) -> Iterator[Proposal]:
    """Yield encodings with common or short decimal parameters."""
    for structure, at, z, scale in _pairs(rows):
        half, d_model = z.shape[1], rows.values.shape[1]
        noise = float(np.sqrt(np.mean((np.abs(z) / scale - 1) ** 2)))
        smallest = max(noise * scale, 2.0 ** DTYPES[rows.stored].smallest)
        phases = phases_of(at, z, match.PRECISION[rows.stored], smallest)
        # positions far apart show the fast frequencies only modulo a multiple: these are not on the line
        for first in dict.fromkeys((0, half // 2, 3 * half // 4) if np.diff(np.sort(at)).min() > 1 else (0,)):
            sign = math.copysign(1.0, np.sum(np.sign(phases.frequency[first:])))
            if (line := phases.line(sign, slice(first, None))) is None:
                continue
            error = max(noise, 2.0 ** -match.PRECISION[rows.stored]) / math.sqrt(z.size)
            common = structure | {"order": "cos" if sign > 0 else "sin"}
            encodings = [Encoding(d_model, **each) for each in _namings(line, scale, error, half, d_model, common)]
            if encodings:
                yield sorted(encodings, key=lambda encoding: (cost_of(encoding), encoding.base)), ()


def _namings(
    line: Line, size: float, size_error: float, count: int, d_model: int, structure: dict[str, Any]
) -> Iterator[dict[str, Any]]:
    """Yield conventions whose frequencies agree with a line, with parameters of more and more digits."""
    if max(line.intercept_error, line.slope_error) > 0.01:
        return
    half = d_model // 2 if structure["odd"] == "zero" else d_model / 2
    for errors, least in FITTED_DIGITS:
        scale = short(size, errors * size_error + least, _scales(d_model), 4000)
        common = structure | {"frequency_scale": line.multiple(errors, least), "scale": scale}
        if count == 1:
            yield common
            continue
        for spacing, divisor in (("paper", half), ("endpoint", count - 1)):
            yield common | {"spacing": spacing, "base": line.base(divisor, errors, least)}
        if line.slope > 0:
            divisor = math.log(10000.0) / line.slope
            error = divisor * (errors * line.slope_error / abs(line.slope) + least)
            if 1e-3 < abs(half - divisor) > error:
                yield common | {"shift": short(half - divisor, error / abs(half - divisor))}


# ---- values and positions ----------------------------------------------------------------------------------


def waves_of(encoding: Encoding) -> tuple[Reals, Reals]:
    """Return the frequency and the phase (pi / 2 for a cosine) of each column."""
    index, is_cosine = arrangement(encoding.d_model, vars(encoding))
    frequencies = np.append(encoding.frequencies * encoding.position_scale, 0.0)        # 0 for a column of zeros
    return frequencies.take(index, mode="clip"), np.where(is_cosine, math.pi / 2, 0.0)


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
    """Return the consecutive positions at which an encoding is nearest to the table, or None."""
    (frequencies, phases), scale = waves_of(encoding), abs(encoding.scale)
    # the fastest columns locate a position best, but only modulo their periods; 48 others resolve these
    fastest = np.argsort(-np.abs(frequencies), kind="stable")
    columns = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = np.arange(-LARGEST_START, LARGEST_START + 1)
    squares, at = np.zeros(len(starts)), rows.numbers[:4] - rows.numbers[0] + encoding.position_offset
    for column in columns:
        angles = (starts[:, None] + at) * frequencies[column] + phases[column]
        square = np.mean((encoding.scale * np.sin(angles) - rows.values[:4, column]) ** 2, axis=1)
        is_near = square < (PLACED * scale) ** 2
        starts, squares = starts[is_near], (squares + square)[is_near]
    if not len(starts):
        return None
    errors = np.maximum(np.sqrt(squares / len(columns)), scale * 2.0 ** -match.PRECISION[rows.stored])
    bits = 4 * len(columns) * np.log2(errors)
    start = int(starts[np.argmin(bits + np.log2(1.0 + np.abs(starts)))]) - int(rows.numbers[0])
    return range(start, start + len(rows.table))
