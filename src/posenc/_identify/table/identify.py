"""Find the conventions that give a table.

A candidate is an Encoding: see candidates.py.  If the positions are unknown, they are searched for among the integers.  The
errors in a sample of rows show how the table was computed, or exclude the candidate.  The score of a candidate is the number of
bits of the table that the candidate explains, minus the number of bits that describe the candidate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import checks
from posenc._arguments.base_class import changes_of
from posenc._arguments.types import Positions
from posenc._encoding.encoding import Encoding
from posenc._encoding.stream import CHUNK_BYTES
from posenc._identify.table import candidates
from posenc._identify.table.candidates import Key, Names
from posenc._identify.table.nearest import nearest_to
from posenc._identify.table.placement import NEAR, REACH, placed
from posenc._identify.table.sample import (
    PRECISION,
    Sample,
    Source,
    checked_positions,
    float64_of,
    positions_at,
    sample_of,
    source_of,
)

if TYPE_CHECKING:
    from posenc._files.table import Readable

WIDEST = 2**16              # columns
ENOUGH = 12                 # lower scores, in bits, may be due to chance
TIE = 24                    # scores up to this many bits below the best are kept: the true match may have longer parameters
TWICE = "rounding before and after the scale is applied"
PLAIN = ("rounding", TWICE, "float64 angles", "float32 angles")


class Match(NamedTuple):  # numpydoc ignore=PR01
    """A convention that gives a table: ``encoding.encode(positions)`` equals the table up to ``difference``.

    Attributes
    ----------
    encoding : Encoding
        The convention.
    positions : range or ndarray
        Positions of the rows.
    presets : tuple of str
        Names of the presets with this encoding, possibly with another ``padding_idx``.  A parameter that differs
        from the preset's default follows the name, in parentheses.
    difference : float
        Largest absolute difference from the correctly rounded values in the table's dtype, except in rows of zeros.
    reason : str
        Cause of the differences; docs/identify.md lists all causes.

    See Also
    --------
    identify : Return the matches of a table.

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
        presets = f"presets {', '.join(self.presets)}" if self.presets else "no preset"
        positions = self.positions if isinstance(self.positions, range) else "as given"
        return "; ".join([
            repr(self.encoding), f"positions {positions}", presets, f"largest difference {self.difference:.2g}: {self.reason}"
        ])


def identify(table: ArrayLike, positions: Positions | None = None, *, nearest: bool = False) -> list[Match]:
    """Find the conventions that give a table, with their parameters.

    Parameters
    ----------
    table : ndarray, shape (n, d_model), (1, n, d_model) or (n, 1, d_model)
        Table of dtype float16, float32, float64, bfloat16 or uint16 (the bits of bfloat16).  A single row of zeros is
        interpreted as the row of `padding_idx`.
    positions : int, range or array_like, optional
        Positions of the rows, as in `encode`.  The default is to search for evenly spaced integers with a start in
        [-2**20, 2**20].
    nearest : bool, optional
        If no known convention gives the table, return the nearest one, provided that it gives most of the columns.  Its
        `reason` begins with "no match" and names the other columns.

    Returns
    -------
    list of Match
        The matches, best first: several if the rows do not distinguish them, none if no known convention gives the table.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or the table has more than 65536 columns.

    See Also
    --------
    presets : The conventions of known models.

    Notes
    -----
    If no preset matches closely, base, scale, frequency scale and shift are fitted, for each layout, order and type of
    exponents.  A fit needs about ten rows, or a few hundred with 16-bit values or noise.  At least nine rows in ten must match;
    `reason` states the number of the other rows.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, dtype="float16")
    >>> for match in posenc.identify(table):
    ...     print(match)
    Encoding(64, base=500.0); positions range(1, 101); no preset; largest difference 0: every value correctly rounded
    """
    return _identify(source_of(table), positions, checks.boolean("nearest", nearest))


def identify_file(table: Readable, positions: range | None = None) -> list[Match]:
    """Return the matches of a table in an open file, or the nearest convention."""
    def read(first: int, rows: int) -> NDArray[np.float64]:
        return float64_of(table.read(first, min(rows, table.shape[0] - first)), table.dtype)

    return _identify(Source(table.shape, table.dtype, read), positions, nearest=True)


def _identify(source: Source, positions: Positions | None, nearest: bool) -> list[Match]:
    rows, d_model = source.shape
    if d_model > WIDEST:
        raise ValueError(f"table has {d_model} columns, expected at most {WIDEST}")
    known_positions = None if positions is None else checked_positions(positions, rows)
    if not rows or not d_model:
        return []
    with np.errstate(all="ignore"):     # the host program may have set NumPy to raise floating-point errors
        sample = sample_of(source, known_positions)
        if sample is None:
            return []
        matches = [match for match in (_compare(source, result) for result in _best(sample)) if match is not None]
        if not matches and nearest and (found := nearest_to(sample)) is not None:
            matches = [Match(*found)]
    return matches


# ---- candidates on a sample -----------------------------------------------------------------------------------------


class _Result(NamedTuple):
    """A candidate at its positions, with its errors on the sample."""

    encoding: Encoding
    names: Names
    positions: range | NDArray[Any]
    reason: str
    stored: str
    least: float        # the error bound of a row is least + slope * |position + offset|
    slope: float
    score: float        # in bits


def _best(sample: Sample) -> list[_Result]:
    """Return the results of the candidates that explain the table, best first."""
    presets_ = candidates.preset_encodings(sample.values.shape[1])
    known = [([encoding], names) for encoding, names in presets_.values()]
    results = _results(known, sample, NEAR)
    if not any(v.reason in PLAIN for v in results):
        names = {key: names for key, (_, names) in presets_.items()}
        fits = [(encodings, names.get(candidates.key_of(encodings[0]), ())) for encodings in candidates.fits(sample)]
        # skip a fit with the same reason as a preset: the large errors of 16-bit arithmetic may have changed the fit
        fitted = [v for v in _results(fits, sample, NEAR) if v.reason not in {w.reason for w in results}]
        results += fitted + [w for v in fitted if v.reason == "float32 angles" for w in _refined(v, sample)]
        if sample.positions is None and not any(v.reason in PLAIN for v in results):
            stepped = [(candidates.in_steps(encodings), ()) for encodings, _ in fits]
            results += [v for v in _results([c for c in stepped if c[0]], sample, NEAR) if v.reason in PLAIN]
        if not any(v.reason in PLAIN for v in results):
            others = _results((([encoding], ()) for encoding in candidates.usual(sample)), sample, NEAR)
            few = not results and len(sample.rows) < 8
            results += [v for v in others if few or v.reason in PLAIN]
        if not results and sample.positions is None:
            results = _results(known + [fit for fit in fits if not fit[1]], sample, REACH)
    best = max((v.score for v in results), default=0)
    results = sorted((v for v in results if v.score > max(ENOUGH, best - TIE)), key=lambda v: -v.score)
    return [named for v in _without_equivalents(_distinct(results)) for named in _named(v)]


def _refined(result: _Result, sample: Sample) -> list[_Result]:
    """Return the result of an encoding with more digits that explains the sample without float32 angles, or an empty list."""
    for encoding in candidates.refined(result.encoding, sample, positions_at(result.positions, sample.rows)):
        better = _evaluate(encoding, (), sample, result.positions)
        if better is not None and better.reason in ("rounding", TWICE, "float64 angles"):
            return [better]
    return []


def _named(result: _Result) -> list[_Result]:
    """Return copies of a result that name its presets: a single copy if the encoding of the result has a padding_idx.

    Otherwise, the first copy names the presets without padding_idx.  For each padding_idx of other presets that is not a
    position, another copy has this padding_idx and names the presets with it.
    """
    encoding = result.encoding
    plain = tuple((name, padding_idx) for name, padding_idx in result.names if padding_idx is None)
    padding = tuple((name, padding_idx) for name, padding_idx in result.names if padding_idx is not None)
    if encoding.padding_idx is not None:
        return [result._replace(names=padding or plain)]
    named = [result._replace(names=plain)]
    for padding_idx in sorted({padding_idx for _, padding_idx in padding}):
        if padding_idx not in result.positions:
            names = tuple(name for name in padding if name[1] == padding_idx)
            padded = Encoding(encoding.d_model, **changes_of(encoding), padding_idx=padding_idx)
            named.append(result._replace(encoding=padded, names=names))
    return named


def _distinct(results: list[_Result]) -> list[_Result]:
    """Return the results, without those whose table and positions are equal to those of an earlier result."""
    first: dict[tuple[Key, range | None], _Result] = {}
    for v in results:
        where = v.positions if isinstance(v.positions, range) else None     # the caller's array is the same for all results
        first.setdefault((candidates.key_of(v.encoding), where), v)
    return list(first.values())


def _without_equivalents(results: list[_Result]) -> list[_Result]:
    """Omit results with a negative start if any result has none; a negative start is equivalent to a position offset."""
    def begins(v: _Result) -> int:
        return v.positions.start if isinstance(v.positions, range) else 0

    return [v for v in results if begins(v) >= 0 or not any(begins(w) >= 0 for w in results)]


def _results(proposed: Iterable[tuple[list[Encoding], Names]], sample: Sample, reach: int) -> list[_Result]:
    """Return the results of candidates that explain the sample: the best one from each list of similar encodings."""
    results: list[_Result] = []
    for encodings, names in proposed:
        positions = sample.positions
        for encoding in (encodings[0], encodings[-1])[: 2 if reach == NEAR else 1]:
            positions = placed(encoding, sample, reach) if positions is None else positions
        if positions is not None:
            similar = [_evaluate(encoding, names, sample, positions) for encoding in encodings]
            results += sorted((v for v in similar if v is not None), key=lambda v: v.score)[-1:]
    return results


def _evaluate(encoding: Encoding, names: Names, sample: Sample, positions: range | NDArray[Any]) -> _Result | None:
    """Return the result of a candidate, or None if it does not explain the sample."""
    encoding = _padded(encoding, positions, sample.zero_rows)
    rough = candidates.approximation_of(encoding)
    size = abs(rough.scale)
    at = positions_at(positions, sample.rows)
    exact = encoding.encode(at, dtype="float64")
    error = np.abs(sample.values - exact)
    distance = np.abs(at.astype(np.float64) + rough.offset)
    fastest = np.abs(rough.frequency)
    turning = fastest[fastest > 0]
    # relative error, in multiples of `unit` (below), of a frequency computed as the exponential of a rounded logarithm
    factor = 2 + 2 * np.ptp(np.log(turning)) if len(turning) else 0
    angles = factor * distance[:, None] * fastest
    stored = size * 2.0 ** -PRECISION[sample.stored]
    usual_error = np.median(np.sqrt(np.mean(error**2, axis=1)))         # of a typical row; near `size` for an unrelated table
    for reason, unit in _arithmetics(sample.stored, size != 1):
        rounding = 2 * stored if reason == TWICE else stored
        bound = np.minimum(size * unit * (1 + angles) + rounding, size)
        # large angles in low precision leave few bits that distinguish candidates
        blurred = not usual_error < (0.05 if reason in PLAIN else 0.5) * size
        if ((error <= bound) | (bound >= size)).all(axis=1).mean() >= 0.9 and not blurred:
            slope = size * unit * factor * fastest.max()
            least = size * unit + rounding
            break
    else:
        noise = np.sqrt(np.mean(error**2))
        if not noise < 0.1 * size:
            return None
        bound, least, slope = np.full_like(error, 4 * noise), 8 * noise, 0.0
        reason = f"noise of {noise:.1g}" if error.max() < 8 * noise else f"unexplained differences of {noise:.1g}"
    explained = np.log2(size / bound)
    inside = bound < size
    # if the errors are far below their bounds, the match explains more bits of the table
    usual = np.sqrt(np.mean((np.minimum(error, bound) / bound)[inside] ** 2)) if inside.any() else 1.0
    bits = explained.sum() - inside.sum() * math.log2(max(2.0**-6, 4 * usual))
    cost = _cost(encoding, names)
    if sample.positions is None and isinstance(positions, range):
        cost += _range_cost(positions)
    return _Result(encoding, names, positions, reason, sample.stored, least, slope, bits - cost)


def _arithmetics(stored: str, scaled: bool) -> Iterator[tuple[str, float]]:
    """Yield the name and error unit of each possible type of arithmetic, most precise first."""
    yield "rounding", 0.0
    if scaled:
        yield TWICE, 0.0
    yield "float64 angles", 2.0**-53
    yield "float32 angles", 2.0**-24
    if stored in ("float16", "bfloat16"):
        yield f"{stored} arithmetic", 2.0 ** -PRECISION[stored]


def _padded(encoding: Encoding, positions: range | NDArray[Any], zero_rows: list[int]) -> Encoding:
    """Return the encoding, with padding_idx if the table has a row of zeros where the encoding has none."""
    if len(zero_rows) != 1:
        return encoding
    at = positions_at(positions, np.array(zero_rows))
    if not float(at[0]).is_integer() or np.abs(encoding.encode(at)).max() < 0.1 * abs(encoding.scale):
        return encoding
    return Encoding(encoding.d_model, **changes_of(encoding), padding_idx=int(at[0]))


def _cost(encoding: Encoding, names: Names) -> float:
    """Return the number of bits that describe an encoding, as a preset or by the digits of its parameters."""
    if names:
        return 5
    numbers = [v for k, v in changes_of(encoding).items() if isinstance(v, float)]
    return 8 + sum(3.4 * len(f"{v:.17g}".strip("0").replace(".", "")) for v in numbers)


def _range_cost(positions: range) -> float:
    return math.log2(1 + abs(positions.start)) + (positions.start < 0) + 2 * math.log2(abs(positions.step))


# ---- comparison with all rows ---------------------------------------------------------------------------------------


def _compare(source: Source, result: _Result) -> Match | None:
    """Compare a result with all rows; return the match, or None if more than one row in ten differs."""
    rows, d_model = source.shape
    encoding, positions = result.encoding, result.positions
    offset = encoding.position_offset
    largest, zeros, others, first_other, equal = 0.0, 0, 0, None, True
    most = max(1, CHUNK_BYTES // (8 * d_model))
    for first in range(0, rows, most):
        part = positions[first : first + most]
        if isinstance(part, range):
            first_distance, last_distance = np.abs(np.array([part[0], part[-1]], np.float64) + offset)
            distance = np.linspace(first_distance, last_distance, len(part))
        else:
            distance = np.abs(part.astype(np.float64) + offset)
        expected = _encoded(encoding, part, source.dtype)
        values = source.read(first, most)
        difference = np.abs(values - expected)
        difference[np.isnan(values) & np.isnan(expected)] = 0
        difference = np.nan_to_num(difference, nan=math.inf, posinf=math.inf).max(axis=1)
        zero = ~values.any(axis=1) & (difference > 0)
        zeros += int(zero.sum())
        difference[zero] = 0
        equal &= bool((np.signbit(values) == np.signbit(expected))[~zero].all())         # distinguishes 0 from -0
        largest = max(largest, difference.max())
        beyond = np.flatnonzero(difference > 2 * (result.least + result.slope * distance))
        if len(beyond) and first_other is None:
            first_other = first + int(beyond[0])
        others += len(beyond)
    if others > (rows - zeros) / 10:
        return None
    stored = "" if result.stored == source.dtype else f", stored as {result.stored}"
    reason = "every value correctly rounded" if equal and largest == 0 else result.reason + stored
    if zeros:
        reason += f"; rows of zeros: {zeros}"
    if others:
        reason += f"; rows with unexplained differences: {others}, the first is {first_other}"
    return Match(encoding, positions, tuple(name for name, _ in result.names), float(largest), reason)


def _encoded(encoding: Encoding, positions: range | NDArray[Any], dtype: str) -> NDArray[np.float64]:
    if dtype == "bfloat16":
        out = np.empty((len(positions), encoding.d_model), np.uint16)
        return float64_of(encoding.encode(positions, dtype=dtype, out=out), dtype)
    return encoding.encode(positions, dtype=dtype).astype(np.float64)
