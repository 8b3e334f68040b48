"""Conventions: which conventions give a table, with their parameters.

The candidates are the presets, then conventions with geometric frequencies that are fitted to pairs of
columns.  Each is placed at the positions where it fits best (`placed`), compared with a sample of the rows
in several kinds of arithmetic (`_explanation`), then with all rows (`_compared`).
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import ArrayLike

from posenc import Encoding, preset, presets
from posenc._arguments.arrays import DTYPES
from posenc._arguments.specification import changes_of
from posenc._encoding.columns import arrangement
from posenc.check import match
from posenc.check.match import Arithmetic, Array, Curve, Reals, short
from posenc.check.reading import array_of, chunks, columns_of, positions_of, rows_of, spread

LARGEST_START = 2**12       # of a table
SAMPLE = 2**20              # values in the first rows of a sample, 8 MiB as float64; 16 to 256 rows
PLACED = 0.15               # distance from a row of the table, as a share of the scale
ENOUGH = 12                 # bits: a table must be explained better than by chance, one in 4,000
TIE = 12                    # bits: results this close are all reported; the one with more digits may be true
PRESET_BITS = 5             # cost of one of about 40 presets
FIT_BITS, DIGIT_BITS = 8, 3.4       # cost of a fit, and of a decimal digit

Names: TypeAlias = tuple[str, ...]      # of presets

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
        Names of the presets with this encoding, possibly with another ``padding_idx``.
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
        difference = f"largest difference {self.difference:.2g}: {self.reason}"
        return "; ".join([repr(self.encoding), f"positions {positions}", presets, difference])


def identify(table: ArrayLike, positions: Any = None) -> list[Match]:
    """Find the conventions that give a table, with their parameters.

    Parameters
    ----------
    table : ndarray or tensor, shape (n, d_model), (1, n, d_model) or (n, 1, d_model)
        Table of dtype float16, float32, float64, bfloat16 or uint16 (the bits of bfloat16).  A single row of
        zeros is interpreted as the row of `padding_idx`.
    positions : int, range or array_like, optional
        Positions of the rows, as in `posenc.encode`.  The default is to search for consecutive integers with
        a start in [0, 4096].

    Returns
    -------
    list of Match
        The matches, best first: several if the rows do not distinguish them, none if no known convention
        gives the table.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value.

    See Also
    --------
    posenc.presets : The conventions of known models.

    Notes
    -----
    If no preset gives the table, base, scale and frequency scale are fitted, for each layout, order and
    spacing.  A fit needs at least two rows.  All rows must match, except rows of zeros.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, dtype="float16")
    >>> for match in posenc.check.identify(table):
    ...     print(match.encoding, match.positions, match.reason, sep="; ")
    Encoding(64, base=500.0); range(1, 101); every value correctly rounded
    """
    array, dtype = array_of("table", table)
    if np.iscomplexobj(array):
        raise TypeError(f"table has dtype {array.dtype}, expected float64, float32, float16 or bfloat16")
    array = rows_of("table", array)
    total, d_model = array.shape
    if positions is not None:
        positions = positions_of(positions, total)
    if not array.size:
        return []
    with np.errstate(all="ignore"):     # the host program may have set NumPy to raise floating-point errors
        first = max(16, min(256, SAMPLE // d_model))
        sampled = spread(total, first, first // 4)
        values = match.float64_of(array[sampled], dtype)
        sizes = np.abs(values).max(axis=1)
        is_zero = sizes <= 0.02 * np.sort(sizes)[len(sizes) // 2]       # a row of zeros may have noise
        usable = np.isfinite(sizes) & ~is_zero
        if not usable.any():
            return []
        stored = match.narrowest(values[usable], dtype)
        rows = Rows(array, dtype, sampled[usable], values[usable], sampled[is_zero], stored, positions)
        return _explained(rows, preset_encodings(d_model)) or _explained(rows, _fits(rows))


class Rows(NamedTuple):
    """The sampled rows of a table that are finite and not zero."""

    table: Array
    dtype: str
    numbers: Array                      # of the sampled rows
    values: Reals
    zero_rows: Array                    # numbers of the sampled rows that are zero
    stored: str                         # dtype with the fewest significant bits that suffice for all values
    positions: range | Array | None     # positions of all rows in the table, if known


def _explained(rows: Rows, encodings: Iterable[tuple[Encoding, Names]]) -> list[Match]:
    """Return the matches with the lowest costs, in the first arithmetic that explains the table.

    Matches without a difference come first.
    """
    is_placed = rows.positions is None
    possible = [(*each, placed(each[0], rows) if is_placed else rows.positions) for each in encodings]
    for how in match.plain(rows.stored):
        explanations = filter(None, (_explanation(rows, how, *each) for each in possible))
        found = sorted(explanations, key=lambda pair: (
            pair[1].difference > 0, pair[0], len(changes_of(pair[1].encoding))))
        first: dict[Any, Match] = {}
        for cost, each in found:
            if cost < found[0][0] + TIE:        # the same table may have several encodings
                table = each.encoding.encode(np.array([2.5, 777.0]), dtype="float64").tobytes()
                known = first.setdefault(key := (table, is_placed and each.positions), each)
                first[key] = known._replace(presets=(*dict.fromkeys(known.presets + each.presets),))
        if found:
            return [*first.values()]
    return []


def _explanation(
    rows: Rows, how: Arithmetic, encoding: Encoding, names: Names, positions: Any
) -> tuple[float, Match] | None:
    """Return the match, with its cost, if the encoding explains the table better than by chance.

    A row of zeros is padding.
    """
    if positions is None:
        return None
    curve = table_curve(encoding, np.asarray(positions)[rows.numbers], how)
    if not curve.explains(rows.values):
        return None
    zeros = np.asarray(positions)[rows.zero_rows]
    if len(zeros) == 1 and zeros[0] % 1 == 0:
        encoding = encoding.replace(padding_idx=int(zeros[0]))
    cost = PRESET_BITS if names else cost_of(encoding)
    if rows.positions is None:
        cost += math.log2(1 + positions.start)
    bits = -np.log2(np.minimum(curve.error, 1)).sum()
    # a table of arbitrary angles has such values, too, so the sine and cosine of an angle count once
    reason = _compared(rows, encoding, positions, how)
    if reason is None or bits * len(encoding.frequencies) / encoding.d_model < cost + ENOUGH:
        return None
    return cost, Match(encoding, positions, names, *reason)


def _compared(rows: Rows, encoding: Encoding, positions: Any, how: Arithmetic) -> tuple[float, str] | None:
    """Compare an encoding with all rows; return the difference and its reason, or None if a row differs."""
    largest, zeros = 0.0, 0
    for part in chunks(len(rows.table), encoding.d_model):
        values = match.float64_of(rows.table[part], rows.dtype)
        out = np.empty(values.shape, np.uint16 if rows.dtype == "bfloat16" else rows.dtype)
        exact = match.float64_of(encoding.encode(positions[part], dtype=rows.dtype, out=out), rows.dtype)
        curve = table_curve(encoding, np.asarray(positions[part]), how)
        differences = np.abs(values - exact)
        is_zero = ~values.any(axis=1) & differences.any(axis=1)
        if (curve._replace(error=2 * curve.error).differs(values) & (differences != 0))[~is_zero].any():
            return None
        largest, zeros = max(largest, differences[~is_zero].max(initial=0)), zeros + is_zero.sum()
    reason = "every value correctly rounded"
    if largest:
        reason = f"{how.angles} angles" if how.angles else "rounding"
        reason += "" if how.table == rows.dtype else f", stored as {how.table}"
    return float(largest), reason + (f"; rows of zeros: {zeros}" if zeros else "")


# ---- presets -----------------------------------------------------------------------------------------------


def preset_encodings(d_model: int) -> Iterator[tuple[Encoding, Names]]:
    """Yield the encoding of each convention that presets have, with their names."""
    for _, group in itertools.groupby(presets().values(), key=lambda each: each.convention):
        names = tuple(each.name for each in group)
        with contextlib.suppress(ValueError):           # the preset does not support this d_model
            encoding = preset(names[0], d_model)
            odd = encoding.odd if d_model % 2 else "truncate"
            yield encoding.replace(padding_idx=None, odd=odd), names


# ---- fits --------------------------------------------------------------------------------------------------


def cost_of(encoding: Encoding) -> float:
    """Return the number of bits that describe an encoding by the digits of its parameters."""
    usual = {*match.TURNS, *_scales(encoding.d_model)}
    digits = (len(f"{value:.15g}".strip("0").replace(".", "")) for value in changes_of(encoding).values()
              if isinstance(value, (int, float)) and value not in usual)
    return FIT_BITS + DIGIT_BITS * sum(digits)


def _scales(d_model: int) -> tuple[float, ...]:
    return 1.0, d_model**-0.5, math.sqrt(2 / d_model), math.sqrt(d_model)


def _fits(rows: Rows) -> Iterator[tuple[Encoding, Names]]:
    """Yield encodings with short parameters, then with precise ones, for each layout."""
    at = rows.numbers if rows.positions is None else np.asarray(rows.positions)[rows.numbers]
    # angles of float64 have roundings of their own
    d_model, precision = rows.values.shape[1], min(50, match.PRECISION[rows.stored])
    half = d_model // 2
    if d_model % 2 or not np.ptp(at):
        return
    for layout, columns in columns_of(d_model).items():
        z = rows.values[:, columns] @ np.array([1, 1j])
        size = float(np.median(np.abs(z))) or 1.0
        phases = match.phases_of(at, z, precision, 2.0 ** DTYPES[rows.stored].smallest)
        sign = np.sign(np.sum(np.sign(phases.frequency)) + 0.5)
        turning, error = phases._replace(frequency=sign * phases.frequency), 2.0**-precision / math.sqrt(z.size)
        scales, spacings = dict[float, None](), dict[tuple[Any, ...], None]()
        for sigmas in match.NUMBERS:
            scales[short(size, sigmas * error, _scales(d_model), 4000)] = None
            multiple, bases = turning.geometric([half, half - 1], (), sigmas)
            spacings |= {(multiple, *each): None for each in zip(bases, ("paper", "endpoint"), strict=False)}
        for scale, (multiple, base, spacing) in itertools.product(scales, spacings):
            yield Encoding(d_model, base=base, spacing=spacing, layout=layout, order="cos" if sign > 0 else "sin",
                           frequency_scale=multiple, scale=scale), ()


# ---- values and positions ----------------------------------------------------------------------------------


def waves_of(encoding: Encoding) -> tuple[Reals, Reals]:
    """Return the frequency and the phase (pi / 2 for a cosine) of each column."""
    index, is_cosine = arrangement(encoding.d_model, vars(encoding))
    # 0 for a column of zeros
    frequencies = np.append(encoding.frequencies * encoding.position_scale, 0.0)
    return frequencies.take(index, mode="clip"), np.where(is_cosine, math.pi / 2, 0.0)


def table_curve(encoding: Encoding, positions: Array, how: Arithmetic) -> Curve:
    """Return the curve of an encoding; the errors of all roundings of angles are bounded."""
    values, at = encoding.encode(positions, dtype="float64"), positions + encoding.position_offset
    curve = match.curve_of(values, waves_of(encoding)[0], at, encoding.scale, how)
    return curve._replace(error=curve.error + 2.0 ** -match.PRECISION[how.table])


def placed(encoding: Encoding, rows: Rows) -> range | None:
    """Return the consecutive positions at which an encoding is nearest to the table, or None."""
    (frequencies, phases), scale = waves_of(encoding), abs(encoding.scale)
    # the fastest columns locate a position best, but only modulo their periods; 48 others resolve these
    fastest = np.argsort(-np.abs(frequencies), kind="stable")
    columns = np.append(fastest[:16], np.random.default_rng(0).permutation(fastest[16:])[:48])
    starts = np.arange(rows.numbers[0], LARGEST_START + rows.numbers[0] + 1)
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
    start = int(starts[np.argmin(bits + np.log2(1.0 + starts))]) - int(rows.numbers[0])
    # four rows of slow columns do not determine the start: least squares with all rows
    angles = (start + rows.numbers + encoding.position_offset)[:, None] * frequencies + phases
    slopes = frequencies * np.cos(angles)
    shift = np.sum(slopes * (rows.values / encoding.scale - np.sin(angles))) / np.sum(slopes**2)
    start = int(np.clip(start + np.rint(np.nan_to_num(shift)), 0, LARGEST_START))
    return range(start, start + len(rows.table))
