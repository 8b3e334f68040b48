"""Rotations: identify a rotation, and compare it with an expected one."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from posenc import Rotary
from posenc._arguments import checks
from posenc._rotary.model_config import LENGTHS, look_up
from posenc.check import match, mistakes
from posenc.check.evidence import Evidence, evidence_of
from posenc.check.functions import Rotation, read_function, valid_positions
from posenc.check.match import Arithmetic, Array, Candidate, Waves, difference, exact, size_of
from posenc.check.mistakes import ORIENTATIONS, replaced_or_none
from posenc.check.reading import Reading, pairs, read_arrays, spread

SOURCE = "the configuration has"
OF_CONFIGURATIONS = {"model_type", "rope_theta", "rope_parameters", "rope_scaling"}
EXPECTED = "a posenc.Rotary, a configuration from transformers or its dict, or a dict of keywords of Rotary"
LAST = 131_071              # default of `up_to` if `expect` names no number of positions


class RotaryMatch(NamedTuple):  # numpydoc ignore=PR01
    """A rotation that reproduces the given one, and its differences from the expected rotation.

    Attributes
    ----------
    rotary : Rotary or None
        The rotation with the frequencies, scale and layout of the given one, or None if no rotation gives its
        values.  A `Rotary` cannot express some faults, such as exchanged cosines and sines, positions from 1,
        or rounded positions.
    difference : float
        Largest absolute difference from the cosines and sines, or frequencies, of ``rotary``.  If ``rotary``
        is None, this is the difference from the nearest rotation.
    reason : str
        The faults, then remarks such as "float32 angles: the error is 0.07 at position 1,000,000".
    faults : tuple of str
        The differences from the expected rotation; empty if the given rotation agrees with the expected one
        within the precision of its arithmetic, or if no rotation is expected.
    errors : mapping of int to float
        The largest absolute errors of cosines and sines that the arithmetic causes near the positions 1,000,
        100,000 and 1,000,000: at each of these and at the seven positions before it.  For a shorter table,
        the last key is its last position.  Empty if the arithmetic is unknown.

    See Also
    --------
    identify_rotary : Return the matches of a rotation.

    Examples
    --------
    >>> import posenc
    >>> match = posenc.check.identify_rotary(posenc.Rotary(64).tables(100), expect=posenc.Rotary(64, base=500000.0))[0]
    >>> match.rotary, match.faults
    (Rotary(64), ('base is 10000, expected 500000',))
    """

    rotary: Rotary | None
    difference: float
    reason: str
    faults: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})

    def __str__(self) -> str:
        return f"{self.rotary!r}; largest difference {self.difference:.2g}: {self.reason}"


def identify_rotary(
    rotation: Any, *, expect: Any = None, positions: Any = None, head_dim: SupportsIndex | None = None, any_order: bool = False
) -> list[RotaryMatch]:
    """Find the rotary embedding of a table, a function or a module, and name its differences from the expected one.

    Parameters
    ----------
    rotation : array_like, pair of array_like, callable or torch.nn.Module
        One of these, as arrays of NumPy or tensors of PyTorch:

        - a pair of tables (cos, sin) of shape (n, pairs), or (n, head_dim) with each column twice; a complex table
          cos + i sin; or an array whose columns are those of cos, then those of sin;
        - the frequencies of the pairs, such as the buffer ``inv_freq`` of a model: an array with one dimension;
        - a function ``f(x, positions)`` that returns rotated x, or a pair of rotated queries and keys.  x has shape
          (n, head_dim), and positions have shape (n,).  If this call fails, the positions have shape (1, n), and x has shape
          (1, 1, n, head_dim), then (1, n, 1, head_dim).  A module, or a function that refuses arrays, gets tensors;
        - a module or function that returns (cos, sin) if it is called in this way, as ``rotary_emb`` of transformers does.
    expect : Rotary, configuration or dict, optional
        The expected rotation: a `Rotary`, a configuration as for `Rotary.from_config`, or a dict of keywords
        of `Rotary`.
    positions : int, range or array_like, optional
        Positions of the rows of tables, by default ``range(n)``; or the positions with which to call a
        function.
    head_dim : int, optional
        Number of columns of a query or key.  Without `expect`, it is needed for a function, and for tables
        and frequencies of a rotation that leaves some columns unchanged.
    any_order : bool, optional
        Whether a function may return its columns in another order.  Products of queries and keys do not
        change if both are rotated by this function.  By default, another order is a fault.

    Returns
    -------
    list of RotaryMatch
        The matches, best first.  If no rotation reproduces the given values, the list is empty without
        `expect`.  With `expect`, it then has one element, whose ``rotary`` is None and whose ``reason`` names
        the nearest rotation.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or if a function cannot be called or does not return a
        rotation's values.

    See Also
    --------
    identify : Find the convention of a table of positional encodings.
    posenc.Rotary.from_config : The rotation in a model's configuration.

    Examples
    --------
    >>> import numpy as np
    >>> import posenc
    >>> inv_freq = 10000.0 ** -(np.arange(0, 64, 2, dtype=np.float32) / 64)
    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
    >>> posenc.check.identify_rotary(inv_freq, expect=config)[0].faults
    ('base is 10000, the configuration has 500000',)
    """
    expected, source = expectation(expect)
    size = None if head_dim is None else checks.integer("head_dim", head_dim, 2)
    if size is not None and size % 2:
        raise ValueError(f"head_dim is {size}, expected an even number")
    if expected is not None and size not in (None, expected.head_dim):
        raise ValueError(f"head_dim is {size}, but expect has {expected.head_dim}; call identify_rotary without head_dim")
    result, _ = matched(rotation, expected, source, positions, size, any_order)
    return [] if expected is None and result.rotary is None else [result]


def assert_rotary(
    f: Any, expect: Any, up_to: SupportsIndex | None = None, *, largest_error: float = match.NO_DIGIT, any_order: bool = False
) -> None:
    """Raise an AssertionError, with a sentence for each difference, if a function does not rotate as expected.

    Parameters
    ----------
    f : callable, array_like or torch.nn.Module
        A function ``f(x, positions)`` that returns rotated x, or another rotation that `identify_rotary`
        accepts.
    expect : Rotary, configuration or dict
        The expected rotation, as in `identify_rotary`.
    up_to : int, optional
        The largest position with which f is called, such as N - 1 for a table of N rows.  The default is
        ``max_position_embeddings - 1`` of the configuration, or 131,071 if `expect` has no
        ``max_position_embeddings``.  For a scaling that depends on the length of a sequence, the default is
        the last position of the original length.
    largest_error : float, optional
        The largest accepted error near `up_to`, of cosines and sines.  Errors of float32 angles grow with the
        position; the default accepts them as long as one digit is right.
    any_order : bool, optional
        As in `identify_rotary`.

    Returns
    -------
    None
        If no difference was found.

    Raises
    ------
    AssertionError
        If the rotation differs from the expected one by more than the rounding errors of its dtype and of
        float32 angles, or if these errors exceed `largest_error`.
    TypeError, ValueError
        If an argument has an invalid type or value, or if f cannot be called or does not return an array of
        the shape of x.

    See Also
    --------
    identify_rotary : Return the differences.
    check_rotary : Check a model.

    Examples
    --------
    >>> import posenc
    >>> def rotated(x, positions):
    ...     return posenc.Rotary(64).rotate(x, positions)
    >>> posenc.check.assert_rotary(rotated, {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    Traceback (most recent call last):
    AssertionError: base is 10000, the configuration has 500000
    """
    __tracebackhide__ = True
    if f is None:
        raise TypeError("f is None, expected a function")
    expected, source = expectation(expect)
    if expected is None:
        raise TypeError(f"expect is None, expected {EXPECTED}")
    largest_error = checks.positive("largest_error", largest_error)
    if up_to is not None:
        last_position = checks.integer("up_to", up_to, 1)
        checks.check_domain((last_position,), name="up_to")
    else:
        lengths = valid_positions(expected), longest(expect) if source == SOURCE else None
        last_position = min(filter(None, lengths), default=LAST + 1) - 1
    sampled = np.union1d(spread(min(last_position, 2**62), 64, 64), match.positions_near(last_position))
    result, readings = matched(f, expected, source, sampled if callable(f) else None, any_order=any_order)
    if result.faults:
        raise AssertionError("; ".join(result.faults))
    for reading in readings:
        if reading.call is not None:
            at = match.positions_near(last_position)
            error = float(difference(reading.call(at), exact(expected.replace(axes=None), at)).max(initial=0))
            if error > largest_error:
                raise AssertionError(f"{result.reason}; near position {last_position:,}, the error is {error:.2g}, "
                                     f"more than largest_error, {largest_error:g}")


def longest(config: Any) -> int | None:
    """Return the number of positions that a configuration states, or None."""
    value = look_up(config, *LENGTHS)
    return value if isinstance(value, int) and value > 0 else None


def expectation(expect: Any) -> tuple[Rotary | None, str]:
    """Return the expected rotation, and the text that precedes an expected value in a message."""
    if expect is None or isinstance(expect, Rotary):
        return expect, "expected"
    if isinstance(expect, Mapping) and not expect.keys() & OF_CONFIGURATIONS:
        return Rotary(**expect), "expected"         # raises an error for a keyword that Rotary does not have
    is_configuration = isinstance(expect, Mapping) or hasattr(expect, "to_dict") and not hasattr(expect, "d_model")
    if not is_configuration or isinstance(expect, type):
        raise TypeError(f"expect is {expect!r} of type {type(expect).__name__}, expected {EXPECTED}")
    return Rotary.from_config(expect), SOURCE


def matched(
    rotation: Any, expected: Rotary | None, source: str, positions: Any = None, head_dim: int | None = None,
    any_order: bool = True, computes_in: str = "",
) -> tuple[RotaryMatch, list[Reading]]:
    """Return the match of a rotation, and its readings; tables may be rounded to the dtype in which a model computes."""
    checks.boolean("any_order", any_order)
    if isinstance(rotation, type):
        raise TypeError(f"rotation is the class {rotation.__name__}, expected tables, frequencies, a function or a module")
    with np.errstate(all="ignore"):             # the host program may have set NumPy to raise floating-point errors
        if callable(rotation) or isinstance(rotation, Rotation):
            width = head_dim or getattr(rotation, "head_dim", None)
            readings = read_function(rotation, positions, expected, width, any_order)
        else:
            readings = [read_arrays(rotation, positions, expected)]
        results = [judged(reading, expected, source, head_dim, computes_in) for reading in readings]
    return merged(results, expected), readings


def merged(results: list[RotaryMatch], expected: Rotary | None) -> RotaryMatch:
    """Return the match for the results for queries and keys."""
    queries, *keys = results
    faults = dict.fromkeys(queries.faults)
    for result in keys:
        faults |= dict.fromkeys(f"keys: {fault}" for fault in result.faults if fault not in queries.faults)
    errors = {p: max(result.errors.get(p, 0.0) for result in results) for p in queries.errors}
    reason = "; ".join(filter(None, (*faults, queries.reason))) or NO_ROTATION
    return RotaryMatch(queries.rotary, max(result.difference for result in results), reason,
                       () if expected is None else tuple(faults), MappingProxyType(errors))


# ---- comparison with the expected rotation --------------------------------------------------------------------------


NO_ROTATION = "no known rotation gives these values"


class Question(NamedTuple):
    """What is compared: a reading and the expected rotation."""

    reading: Reading
    target: Rotary | None
    source: str             # the text that precedes an expected value
    size: int               # number of columns
    computes_in: str        # tables may be rounded to this dtype


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None = None, computes_in: str = ""
) -> RotaryMatch:
    """Compare a reading with the expected rotation in each possible width; return the match with the fewest faults.

    Its reason contains only the remarks.
    """
    axes, expected = (None, None) if expected is None else (expected.axes, expected.replace(axes=None))
    positions, values = reading.positions[reading.rows], reading.read(reading.rows)
    faults, finite = reading.faults, np.isfinite(values).all(axis=1)
    if not values.size:
        return RotaryMatch(None, math.inf, "there are no values", faults)
    if not finite.any():
        return RotaryMatch(None, math.inf, "", (*faults, "no value is finite"))
    if not finite.all():
        faults += (f"some values are not finite, the first at position {positions[~finite].min():,}",)
    positions, values = positions[finite], values[finite]
    if not np.ptp(positions):
        raise ValueError("rotation has values at a single position, expected values at several positions")
    if not np.median(np.abs(values), axis=0).any():
        return RotaryMatch(None, math.inf, "", (*faults, f"{'most' if values.any() else 'all'} values are 0"))
    least = 2 * values.shape[1]
    size = head_dim or reading.head_dim or least
    if size < least:
        raise ValueError(f"head_dim is {size}, expected at least {least}, the number of columns that are rotated")
    results = []
    for target, of_width in _targets(expected, values.shape[1], source):
        question = Question(reading, target, source, size, computes_in)
        result = _answer(question, positions, values)
        reason = "; ".join(filter(None, (result.reason, *reading.remarks)))
        results.append(result._replace(faults=(*faults, *of_width, *result.faults), reason=reason))
    result = min(results, key=lambda result: (result.rotary is None, len(result.faults)))
    rotary = None if axes is None or result.rotary is None else replaced_or_none(result.rotary, axes=axes)
    if axes is None or rotary is None:
        return result
    mixed = np.arange(16) * np.arange(1, 1 + max(axes) + 1)[:, None] % 61
    call = None if reading.head_dim is None else reading.call       # frequencies do not show the axes
    is_right = call is None or difference(call(mixed), exact(rotary, mixed)).max() <= match.ALIKE * abs(size_of(rotary))
    axes_fault = () if is_right or result.faults else ("the pairs have the positions of other axes than expected",)
    return result._replace(rotary=rotary, faults=(*result.faults, *axes_fault))


def _targets(expected: Rotary | None, count: int, source: str) -> Iterator[tuple[Rotary | None, tuple[str, ...]]]:
    """Yield the expected rotation with `count` pairs, and the fault of this width.

    The first one has the frequencies of this width, the second one the first pairs of the expected rotation.
    """
    if expected is None or expected.rotary_dim == 2 * count:
        yield expected, ()
        return
    changes: dict[str, Any] = {"rotary_dim": 2 * count, "head_dim": max(expected.head_dim, 2 * count)}
    widths = (replaced_or_none(expected, **changes, **more) for more in ({}, {"scaling": None}, {"frequencies": None}))
    if (rotary := next(filter(None, widths), None)) is not None:
        yield rotary, (f"{2 * count} columns are rotated, {source} {expected.rotary_dim}",)
    if count < (pair_count := expected.rotary_dim // 2):
        rotary = expected.replace(**changes, frequencies=expected.frequencies[:count], scale=size_of(expected))
        yield rotary, (mistakes.not_rotated(range(count, pair_count)),)


# ---- the rule -------------------------------------------------------------------------------------------------------


def _explanations(question: Question, evidence: Evidence, first_rows: bool = False) -> Iterator[match.Explanation]:
    """Yield the explanations in plain arithmetic, then in arithmetic of 16 bits, then by frequencies without a formula."""
    def candidates(is_narrow: bool) -> Iterator[Candidate]:
        phases = evidence.phases.loose() if is_narrow else evidence.phases
        for candidate in mistakes.candidates(phases, question.target, question.size):
            yield _sized(candidate, evidence)._replace(is_fitted=candidate.is_fitted and not is_narrow)

    yield from match.explanations(candidates(False), match.plain(evidence.sample.dtype))
    if not first_rows:
        yield from match.explanations(candidates(True), match.narrow(evidence.sample.dtype))
        every_frequency = mistakes.explicit(evidence.phases, question.size)
        yield from match.explanations([_sized(every_frequency, evidence)], match.plain(evidence.sample.dtype))


def _sized(candidate: Candidate, evidence: Evidence) -> Candidate:
    """Return a candidate with each possible scale, and with the sample."""
    rotations = list(evidence.sized(candidate.conventions[0]))
    return candidate._replace(conventions=rotations, source=(candidate.source, evidence), sample=evidence.sample)


def _answer(question: Question, positions: Array, values: Waves) -> RotaryMatch:
    """Return the result for values at several positions."""
    target = question.target
    # the last orientation multiplies by -1, which is right if the expected scale is negative
    orientations = ORIENTATIONS if target is None or size_of(target) > 0 else ORIENTATIONS[:3]
    evidence = evidence_of(positions, values, question.reading.dtype, target, orientations)
    explanation, is_whole = next(_explanations(question, evidence), None), True
    reach = min(float(np.abs(positions).max()) / 2, float(evidence.phases.reach.max()))
    while explanation is None and reach >= 8:          # perhaps only the first rows follow a rotation
        is_whole, within = False, np.abs(positions) <= reach
        sample = evidence.sample._replace(positions=evidence.sample.positions[within], values=evidence.sample.values[within])
        explanation = next(_explanations(question, evidence._replace(sample=sample), first_rows=True), None)
        reach /= 2
    if explanation is None:
        return _nearest(question, evidence)
    return _described(question, *explanation, is_whole)


def _described(question: Question, candidate: Candidate, rotary: Rotary, how: Arithmetic, is_whole: bool) -> RotaryMatch:
    """Return the result for an explanation, with all its faults and remarks."""
    (reading, target, source, *_), (faults, evidence) = question, candidate.source
    if faults is None:
        faults = () if target is None else mistakes.differences(rotary, target, source)
    end, last_position = mistakes.of_rows(reading, evidence, rotary, how, is_whole)
    if not reading.call:
        last_position = min(last_position, float(np.abs(reading.positions).max()))
    errors = _errors(evidence, rotary, how, target or rotary, last_position)
    layout, of_layout, remarks = mistakes.of_layout(reading, target, source)
    rotary = rotary.replace(layout=layout)
    distance = difference(reading.read(reading.rows), exact(rotary, reading.positions[reading.rows]))
    reference = exact(rotary, evidence.sample.positions)
    of_arithmetic = mistakes.of_arithmetic(how, reference, reading.dtype, question.computes_in)
    faults = (*faults, *evidence.faults)
    if how.angles == "float32" and not of_arithmetic and not faults:
        position, error = max(errors.items())
        remarks = (f"float32 angles: the error is {error:.1g} at position {position:,}", *remarks)
    elif not of_arithmetic:
        remarks = (f"{how.angles} angles" if how.angles else "rounding", *remarks)
    faults = (*of_layout, *faults, *mistakes.of_scale(rotary, target, source), *of_arithmetic, end)
    largest = float(np.nan_to_num(distance, nan=math.inf).max())
    return RotaryMatch(rotary, largest, "; ".join(remarks), tuple(filter(None, faults)), errors)


def _errors(evidence: Evidence, rotary: Rotary, how: Arithmetic, reference: Rotary, last_position: float) -> dict[int, float]:
    """Return the largest differences from a reference near each of match.ERRORS_AT, up to the last position."""
    if how.angles == "float32" and not how.frequencies:
        how = how._replace(frequencies="float32")
    errors = {}
    for position in (*(p for p in match.ERRORS_AT if p < last_position), int(min(last_position, match.ERRORS_AT[-1]))):
        at = match.positions_near(position)
        values = evidence.turned(match.computed(rotary, at + evidence.shift, how))
        errors[position] = float(difference(values, exact(reference, at)).max(initial=0))
    return errors


def _nearest(question: Question, evidence: Evidence) -> RotaryMatch:
    """Return a result that names the nearest candidate and the pairs of columns that differ from this candidate."""
    proposed = mistakes.candidates(evidence.phases, question.target, question.size, match.MAX_COLUMNS)
    result = match.nearest((_sized(candidate, evidence) for candidate in proposed), -1.0)
    if result is None:
        return RotaryMatch(None, math.inf, "", (NO_ROTATION,))
    _, rotary, columns, error = result
    where = f"in {pairs(columns)}" if len(columns) else "at a few positions"
    fault = f"{NO_ROTATION}; the nearest one, {rotary!r}, differs {where} by up to {error:.2g}"
    return RotaryMatch(None, error, "", (fault,))
