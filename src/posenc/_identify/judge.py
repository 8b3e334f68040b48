"""Which conventions give a table: candidates are proposed, placed at positions, judged by the error that is left, and compared.

A candidate is an Encoding: of every preset, and of a fit to the table.  Its positions, where they are not given, are searched
among the integers.  The largest differences over a sample of rows then tell how the table was computed, or that this is not
its convention.  Candidates compete by evidence: the bits of the table that one explains less the bits that it took to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._encoding import CHUNK_BYTES, Encoding, changes_of, keywords_of
from posenc._identify import candidates
from posenc._identify.candidates import Key, Names
from posenc._identify.placement import NEAR, REACH, placed
from posenc._identify.sample import PRECISION, Sample, Source, checked, sample_of, source_of, taken, values_of
from posenc._types import Positions

if TYPE_CHECKING:
    from posenc._files.table import Readable

WIDEST = 2**16              # columns
ENOUGH = 12                 # bits of evidence below which a match may be chance
TIE = 24                    # bits less than the best has, with which another is listed, too: of a longer start, or name


class Match(NamedTuple):  # numpydoc ignore=PR01
    """A convention that gives a table: ``encoding.encode(positions)``, up to ``difference``.

    Attributes
    ----------
    encoding : Encoding
        The convention.
    positions : range or ndarray
        Of the rows.
    presets : tuple of str
        The presets that are this encoding, whatever their ``padding_idx``: names that `preset` knows, each with the peer's
        own parameters in brackets where they are not its defaults.
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
        The best first; more than one where these rows do not distinguish them.  Empty where no convention gives the table.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, or a table of more than 65536 columns.

    See Also
    --------
    presets : The conventions that are known by name.

    Notes
    -----
    Parameters that no preset has are found from some ten rows, in 16 bits or with noise from a few hundred: base, scale,
    frequency scale and shift, of either layout, order and kind of exponents.  A table is matched if nine
    rows out of ten are; the reason says where others differ.

    Examples
    --------
    >>> import posenc
    >>> table = posenc.encode(range(1, 101), 64, base=500.0, dtype="float16")
    >>> for match in posenc.identify(table):
    ...     print(match)
    no preset: Encoding(64, base=500.0), positions range(1, 101), largest difference 0: every value correctly rounded
    """
    return _identify(source_of(table), positions)


def identify_file(table: Readable, positions: range | None = None) -> list[Match]:
    """`identify` for a table in an open file: see `opened` of the formats."""
    def read(first: int, rows: int) -> NDArray[np.float64]:
        return values_of(table.read(first, min(rows, table.shape[0] - first)), table.dtype)

    return _identify(Source(table.shape, table.dtype, read), positions)


def _identify(source: Source, positions: Positions | None) -> list[Match]:
    rows, d_model = source.shape
    if d_model > WIDEST:
        raise ValueError(f"table has {d_model} columns, expected at most {WIDEST}")
    given = None if positions is None else checked(positions, rows)
    if not rows or not d_model:
        return []
    with np.errstate(all="ignore"):     # of the host program
        sample = sample_of(source, given)
        if sample is None:
            return []
        matches = [_compared(source, verdict) for verdict in _best(sample)]
    return [match for match in matches if match is not None]


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


def _best(sample: Sample) -> list[_Verdict]:
    """Verdicts on the candidates that explain the table, the best first."""
    presets_ = candidates.known(sample.values.shape[1])
    known = [([encoding], names) for encoding, names in presets_.values()]
    verdicts = _verdicts(known, sample, NEAR)
    if not any(v.reason in PLAIN for v in verdicts):
        names = {key: names for key, (_, names) in presets_.items()}
        fits = [(encodings, names.get(candidates.key_of(encodings[0]), ())) for encodings in candidates.fits(sample)]
        # arithmetic in 16 bits leaves so much room that a fit follows its errors
        verdicts += [v for v in _verdicts(fits, sample, NEAR) if v.reason not in {w.reason for w in verdicts}]
        if sample.positions is None and not any(v.reason in PLAIN for v in verdicts):
            stepped = [(candidates.in_steps(encodings), ()) for encodings, _ in fits]
            verdicts += [v for v in _verdicts([c for c in stepped if c[0]], sample, NEAR) if v.reason in PLAIN]
        if not any(v.reason in PLAIN for v in verdicts):
            others = _verdicts((([encoding], ()) for encoding in candidates.usual(sample)), sample, NEAR)
            few = not verdicts and len(sample.rows) < 8
            verdicts += [v for v in others if few or v.reason in PLAIN]
        if not verdicts and sample.positions is None:
            verdicts = _verdicts(known + [fit for fit in fits if not fit[1]], sample, REACH)
    most = max((v.evidence for v in verdicts), default=0)
    verdicts = sorted((v for v in verdicts if v.evidence > max(ENOUGH, most - TIE)), key=lambda v: -v.evidence)
    return [named for v in _without_twins(_distinct(verdicts)) for named in _named(v)]


def _named(verdict: _Verdict) -> list[_Verdict]:
    """The verdict with the names of presets; twice where the rows do not tell whether there is a padding row."""
    encoding = verdict.encoding
    plain = tuple((name, padding_idx) for name, padding_idx in verdict.names if padding_idx is None)
    padding = tuple((name, padding_idx) for name, padding_idx in verdict.names if padding_idx is not None)
    if keywords_of(encoding)["padding_idx"] is not None:
        return [verdict._replace(names=padding or plain)]
    named = [verdict._replace(names=plain)]
    for padding_idx in sorted({padding_idx for _, padding_idx in padding}):
        if padding_idx not in verdict.positions:
            names = tuple(name for name in padding if name[1] == padding_idx)
            padded = Encoding(encoding.d_model, **changes_of(encoding), padding_idx=padding_idx)
            named.append(verdict._replace(encoding=padded, names=names))
    return named


def _distinct(verdicts: list[_Verdict]) -> list[_Verdict]:
    """The first of those that say the same table, by other words, at the same positions."""
    first: dict[tuple[Key, range | None], _Verdict] = {}
    for v in verdicts:
        where = v.positions if isinstance(v.positions, range) else None     # given: the same for all
        first.setdefault((candidates.key_of(v.encoding), where), v)
    return list(first.values())


def _without_twins(verdicts: list[_Verdict]) -> list[_Verdict]:
    """Without those that begin before 0 and are another with an offset of its own."""
    def begins(v: _Verdict) -> int:
        return v.positions.start if isinstance(v.positions, range) else 0

    return [v for v in verdicts if begins(v) >= 0 or not any(begins(w) >= 0 for w in verdicts)]


def _verdicts(proposed: Iterable[tuple[list[Encoding], Names]], sample: Sample, reach: int) -> list[_Verdict]:
    """On each candidate that explains the sample; of encodings of nearly the same table on the best."""
    verdicts: list[_Verdict] = []
    for encodings, names in proposed:
        positions = sample.positions
        for encoding in (encodings[0], encodings[-1])[: 2 if reach == NEAR else 1]:
            positions = placed(encoding, sample, reach) if positions is None else positions
        if positions is not None:
            judged = [_judged(encoding, names, sample, positions) for encoding in encodings]
            verdicts += sorted((v for v in judged if v is not None), key=lambda v: v.evidence)[-1:]
    return verdicts


PLAIN = ("rounding", "float64 angles", "float32 angles")


def _judged(encoding: Encoding, names: Names, sample: Sample, positions: range | NDArray[Any]) -> _Verdict | None:
    """The verdict on a candidate, None where it does not explain the sample."""
    encoding = _padded(encoding, positions, sample.zero_rows)
    rough = candidates.approximation_of(encoding)
    size = abs(rough.scale)
    at = taken(positions, sample.rows)
    exact = encoding.encode(at, dtype="float64")
    error = np.abs(sample.values - exact)
    distance = np.abs(at.astype(np.float64) + rough.offset)
    fastest = np.abs(rough.frequency)
    turning = fastest[fastest > 0]
    # relative error of a frequency that is computed as an exponential: that of its logarithm, and a few roundings
    factor = 2 + 2 * np.ptp(np.log(turning)) if len(turning) else 0
    angles = factor * distance[:, None] * fastest
    stored = size * 2.0 ** -PRECISION[sample.stored]
    usual_error = np.median(np.sqrt(np.mean(error**2, axis=1)))         # of a row; that of an unrelated one is the size
    for reason, unit in _arithmetics(sample.stored):
        bound = np.minimum(size * unit * (1 + angles) + stored, size)
        # where angles are so large that this arithmetic leaves little of them, little is told
        blurred = not usual_error < (0.05 if reason in PLAIN else 0.5) * size
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
    at = taken(positions, np.array(zero_rows))
    if not float(at[0]).is_integer() or np.abs(encoding.encode(at)).max() < 0.1 * abs(keywords_of(encoding)["scale"]):
        return encoding
    return Encoding(encoding.d_model, **changes_of(encoding), padding_idx=int(at[0]))


def _cost(encoding: Encoding, names: Names) -> float:
    """Bits to say an encoding: which preset, or its numbers, digit by digit."""
    if names:
        return 5
    numbers = [v for k, v in changes_of(encoding).items() if isinstance(v, float)]
    return 8 + sum(3.4 * len(f"{v:.17g}".strip("0").replace(".", "")) for v in numbers)


def _range_cost(positions: range) -> float:
    return math.log2(1 + abs(positions.start)) + (positions.start < 0) + 2 * math.log2(abs(positions.step))


# ---- comparison in full ---------------------------------------------------------------------------------------------


def _compared(source: Source, verdict: _Verdict) -> Match | None:
    """The match of a verdict, from all rows; None where more than one in ten is another."""
    rows, d_model = source.shape
    encoding, positions = verdict.encoding, verdict.positions
    offset = keywords_of(encoding)["position_offset"]
    largest, zeros, others, first_other, equal = 0.0, 0, 0, None, True
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
        equal &= bool((np.signbit(found) == np.signbit(expected))[~zero].all())         # zeros, too
        largest = max(largest, difference.max())
        beyond = np.flatnonzero(difference > 2 * (verdict.least + verdict.slope * distance))
        if len(beyond) and first_other is None:
            first_other = first + int(beyond[0])
        others += len(beyond)
    if others > (rows - zeros) / 10:
        return None
    stored = "" if verdict.stored == source.dtype else f", stored as {verdict.stored}"
    reason = "every value correctly rounded" if equal and largest == 0 else verdict.reason + stored
    if zeros:
        reason += f"; rows of zeros: {zeros}"
    if others:
        reason += f"; rows that differ by more: {others}, the first is {first_other}"
    return Match(encoding, positions, tuple(name for name, _ in verdict.names), float(largest), reason)


def _encoded(encoding: Encoding, positions: range | NDArray[Any], dtype: str) -> NDArray[np.float64]:
    if dtype == "bfloat16":
        out = np.empty((len(positions), encoding.d_model), np.uint16)
        return values_of(encoding.encode(positions, dtype=dtype, out=out), dtype)
    return encoding.encode(positions, dtype=dtype).astype(np.float64)
