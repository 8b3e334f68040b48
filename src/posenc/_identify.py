"""Which conventions give a table: candidates are proposed, placed at positions, judged by what error is left, and compared in full.

A candidate is an Encoding: of every preset, and of a fit to the table.  Its positions, where they are not given, are searched
among the integers.  The largest differences over a sample of rows then tell how the table was computed, or that this is not
its convention.  Candidates compete by evidence: the bits of the table that one explains less the bits that it took to say.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from posenc import _files
from posenc._encoding import CHUNK_BYTES, Encoding, _dtype, _length, _positions, _range_or_array
from posenc._presets import preset, presets

WIDEST = 2**16              # columns
SAMPLE = 2**21              # values of the table that are kept in memory, or the first rows where they are longer
NEAR, REACH = 2**12, 2**20  # positions at which a table may begin, of either sign: the usual ones, all that are searched
ENOUGH = 12                 # bits of evidence below which a match may be chance
# significant bits of what a table may be stored in, narrowest first; half a unit in the last place is 2**-bits of a value
PRECISION = {"bfloat16": 8, "float16": 11, "float32": 24, "float64": 53}
BASES = (10000.0, 100.0, 1000.0, 20.0, 500000.0, 1000000.0)     # tried where the rows are too few to find one


class Match(NamedTuple):
    """A convention that gives a table: ``encoding.encode(positions)``, up to `difference`.

    Attributes
    ----------
    encoding : Encoding
    positions : range or ndarray
        Of the rows.
    presets : tuple of str
        The names of the presets that are this encoding.
    difference : float
        The largest, from the correctly rounded values in the table's dtype; 0 where all are equal.
    reason : str
        What such differences come from.
    """

    encoding: Encoding
    positions: range | np.ndarray
    presets: tuple
    difference: float
    reason: str

    def __str__(self):
        names = ", ".join(self.presets) or "no preset"
        positions = self.positions if isinstance(self.positions, range) else "as given"
        return f"{names}: {self.encoding!r}, positions {positions}, largest difference {self.difference:.2g}: {self.reason}"


def identify(table, positions=None):
    """The conventions that give a table, with their parameters.

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

    Notes
    -----
    Parameters that no preset has are found from a few hundred rows: base, scale, frequency scale and shift, of either layout,
    order and kind of exponents.  A table is matched if nine rows out of ten are; the reason says where others differ.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, layout="halves", dtype="float16")
    >>> for match in posenc.identify(table):
    ...     print(match)
    no preset: Encoding(64, base=500.0, layout='halves'), positions range(1, 101), largest difference 0: every value correctly rounded
    """
    return identify_source(_source(table), positions)


def identify_file(table, positions=None):
    """`identify` for a table in an open file: see `_files.read_table`."""
    return identify_source(_Source(table.shape, table.dtype, lambda first, rows: _values(table.read(first, rows), table.dtype)), positions)


def identify_source(source, positions):
    rows, d_model = source.shape
    if d_model > WIDEST:
        raise ValueError(f"table has {d_model} columns, expected at most {WIDEST}")
    if positions is not None:
        positions = _given(positions, rows)
    if not rows or not d_model:
        return []
    sample = _sample(source, positions)
    if sample is None:
        return []
    judged = _best(sample)
    matches = [_compared(source, verdict) for verdict in judged]
    return [match for match in matches if match is not None]


# ---- the table ------------------------------------------------------------------------------------------------------


class _Source(NamedTuple):
    """A table of which `read(first, rows)` gives consecutive rows, as float64."""

    shape: tuple
    dtype: str
    read: object


class _Sample(NamedTuple):
    """Some rows of a table, neither zero nor with NaN or infinity, all of their columns."""

    rows: np.ndarray                # their numbers
    values: np.ndarray              # float64
    zero_rows: list
    stored: str                     # the narrowest dtype that holds all of the values
    total: int                      # rows of the table
    positions: range | np.ndarray | None

    def at(self, rows):
        """The positions of rows of the table, None where they are unknown."""
        return None if self.positions is None else _taken(self.positions, rows)


def _source(table):
    array = np.asarray(table)
    if array.dtype != np.uint16:
        name, _ = _dtype(array.dtype.newbyteorder("="), "table has dtype")
    else:
        name = "bfloat16"
    if array.ndim == 3 and 1 in array.shape[:2]:
        array = array.reshape(-1, array.shape[2]) if array.size else np.empty((0, array.shape[2]))
    if array.ndim != 2:
        raise ValueError(f"table has shape {array.shape}, expected (positions, columns)")

    def read(first, rows):
        part = array[first : first + rows]
        return _values(part.view(np.uint16), name) if name == "bfloat16" else part.astype(np.float64)

    return _Source(array.shape, name, read)


def _values(bits, dtype):
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << 16, "float32"
    with np.errstate(invalid="ignore"):         # a signalling NaN
        return bits.view(dtype).astype(np.float64)


def _given(positions, rows):
    positions = _range_or_array(positions)
    _, _, _, shape = _positions(positions, 0.0)
    if shape != (rows,):
        raise ValueError(f"positions has shape {shape}, expected ({rows},), the rows of the table")
    return positions


def _taken(positions, rows):
    if isinstance(positions, range):
        return np.array([positions[row] for row in rows.tolist()], np.int64)
    return positions[rows]


def _sample(source, positions):
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
    zero = ~values.any(axis=1)
    usable = finite & ~zero
    # a table with NaN in places is none of a convention; one with a few such rows is told by the comparison in full
    if not usable.any():
        return None
    rows_, values_ = rows[usable], values[usable]
    return _Sample(rows_, values_, rows[zero].tolist(), _stored(values_, source.dtype), total, positions)


def _stored(values, dtype):
    for name, bits in PRECISION.items():
        mantissa, _ = np.frexp(values)
        if name == dtype or (np.ldexp(mantissa, bits) % 1 == 0).all():
            return name
    return dtype


# ---- what a candidate says of columns -------------------------------------------------------------------------------


class _Columns(NamedTuple):
    """An encoding in float64, for searching: value = scale * sin(frequency * (position + offset) + phase)."""

    frequency: np.ndarray
    phase: np.ndarray
    scale: float
    offset: float

    def values(self, positions, which=slice(None)):
        angles = (positions[..., None] + self.offset) * self.frequency[which] + self.phase[which]
        return self.scale * np.sin(angles)


@functools.lru_cache(maxsize=64)
def _columns(encoding):
    c = encoding._convention
    frequencies = encoding.frequencies * c["position_scale"]
    which, cosine = encoding._arrangement(len(frequencies))
    return _Columns(np.append(frequencies, 0.0)[which], np.where(cosine, math.pi / 2, 0.0), c["scale"], c["position_offset"])


# ---- where it begins ------------------------------------------------------------------------------------------------


def _placed(encoding, sample, reach):
    """The evenly spaced integer positions at which an encoding is nearest to the table, as a range, or None."""
    columns = _columns(encoding)
    size = abs(columns.scale)
    if not 0.05 * size < math.sqrt(np.mean(sample.values**2)) < 1.2 * size:
        return None
    order = np.random.default_rng(0).permutation(encoding.d_model)[:64]
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
        later, earlier = np.nonzero((remainders == 0) & (steps != 0))
        if len(later):
            placed = _nearest(columns, starts[earlier], steps[later, earlier], rows, values, order, sample.stored)
    if placed is None:
        return None
    start, step = placed
    start -= step * int(sample.rows[0])
    return range(start, start + step * sample.total, step)


def _like(columns, row, order, reach):
    """The integers, the smallest first, at which the columns are about those of a row."""
    p = np.arange(1, 2 * reach) // 2
    p[::2] *= -1
    for column in order:
        p = p[np.abs(columns.values(p, [column])[:, 0] - row[column]) < 0.15 * abs(columns.scale)]
    return p


def _nearest(columns, starts, steps, rows, values, order, stored):
    """(start, step) of the least squares, where it is not larger for smaller numbers; None where none is near."""
    rows, values = (rows, values) if len(starts) * values.size < 2**24 else (rows[:2], values[:2])
    floor = abs(columns.scale) * 2.0 ** -PRECISION[stored]
    scores, errors = [], []
    for some in range(0, len(starts), 256):
        p = starts[some : some + 256, None] + steps[some : some + 256, None] * rows
        error = np.sqrt(np.mean((columns.values(p, order) - values) ** 2, axis=(1, 2)))
        errors.append(error)
        scores.append(values.size * np.log2(np.maximum(error, floor)))
    errors = np.concatenate(errors)
    scores = np.concatenate(scores) + np.log2(1.0 + np.abs(starts)) + 2 * np.log2(np.abs(steps))
    best = np.argmin(scores)
    return (int(starts[best]), int(steps[best])) if errors[best] < 0.15 * abs(columns.scale) else None
