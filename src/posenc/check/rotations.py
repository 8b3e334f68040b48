"""Rotations: identify a rotation, and compare it with an expected one.

`matched` reads cosines and sines (reading.py), estimates their frequencies (match.py), and tries candidates:
first the expected rotation, then mistakes (mistakes.py), each in several kinds of arithmetic.  The first one
that explains the values is the answer, and its sentences are the faults.  Then all rows are compared with it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from posenc import Rotary
from posenc._arguments import checks
from posenc._arguments.arrays import DTYPES
from posenc._rotary.model_config import LENGTHS, look_up
from posenc._rotary.scaling import positions_without_length
from posenc.check import match, mistakes
from posenc.check.match import Arithmetic, Array, Mask, Waves, difference, exact, short, size_of
from posenc.check.mistakes import ORIENTATIONS, Candidate, fitted, named, replaced_or_none
from posenc.check.reading import Reading, chunks, number, pairs, read_arrays, read_function, spread

SOURCE = "the configuration has"
OF_CONFIGURATIONS = {"model_type", "rope_theta", "rope_parameters", "rope_scaling"}
EXPECTED = "a posenc.Rotary, a configuration from transformers or its dict, or a dict of keywords of Rotary"
LAST = 131_071              # default of `up_to` if `expect` names no number of positions
NO_DIGIT = 0.1              # default of `largest_error`: a larger error leaves no correct digit of a cosine
NO_ROTATION = "no known rotation gives these values"
FEW = 0.1                   # share of the rows that may differ from the others
FEWEST = 8                  # rows from the first one on that a rotation must give, if it does not give all

# a rotation, a sentence as in `Candidate`, and the arithmetic that may explain the values
Trial: TypeAlias = tuple[Rotary, str | None, Arithmetic]


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
        The faults, then remarks such as "float32 angles: the estimated error is 0.07 at position 1,000,000".
    faults : tuple of str
        The differences from the expected rotation; empty if the given rotation agrees with the expected one
        within the precision of its arithmetic, or if no rotation is expected.
    errors : mapping of int to float
        Estimates of the largest absolute errors of cosines and sines near the positions 1,000, 100,000 and
        1,000,000: the errors of exact frequencies with the arithmetic that was found, at each of these and at
        the seven positions before it.  For a shorter table,
        the last key is its last position.  Empty if the arithmetic is unknown.

    See Also
    --------
    identify_rotary : Return the matches of a rotation.

    Examples
    --------
    >>> import posenc
    >>> tables = posenc.Rotary(64).tables(100)
    >>> match = posenc.check.identify_rotary(tables, expect=posenc.Rotary(64, base=500000.0))[0]
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
    rotation: Any, *, expect: Any = None, positions: Any = None, head_dim: SupportsIndex | None = None,
    any_order: bool = False,
) -> list[RotaryMatch]:
    """Find the rotary embedding of a table or a function, and name its differences from the expected one.

    Parameters
    ----------
    rotation : array_like, pair of array_like or callable
        One of these, as arrays of NumPy or tensors of PyTorch:

        - a pair of tables (cos, sin) of shape (n, pairs), or (n, head_dim) with each column twice; a complex
          table cos + i sin; or an array whose columns are those of cos, then those of sin;
        - the frequencies of the pairs, such as the buffer ``inv_freq`` of a model: an array with one
          dimension;
        - a function ``f(x, positions)`` that returns rotated x, or a pair of rotated queries and keys.  x has
          shape (n, head_dim), and positions have shape (n,), or (axes, n) if several axes are expected.  A
          function that refuses arrays gets tensors.
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
    >>> import posenc
    >>> inv_freq = posenc.Rotary(64).frequencies
    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
    >>> posenc.check.identify_rotary(inv_freq, expect=config)[0].faults
    ('base is 10000, the configuration has 500000',)
    """
    expected, source = expectation(expect)
    size = None if head_dim is None else checks.integer("head_dim", head_dim, 2)
    if size is not None and size % 2:
        raise ValueError(f"head_dim is {size}, expected an even number")
    if expected is not None and size not in (None, expected.head_dim):
        raise ValueError(f"head_dim is {size}, but expect has {expected.head_dim}; omit head_dim")
    result, _ = matched(rotation, expected, source, positions, size, any_order)
    return [] if expected is None and result.rotary is None else [result]


def assert_rotary(
    f: Any, expect: Any, up_to: SupportsIndex | None = None, *, largest_error: float = NO_DIGIT,
    any_order: bool = False,
) -> None:
    """Raise an AssertionError with a sentence for each difference if a function does not rotate as expected.

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
    lengths = valid_positions(expected), longest(expect) if source == SOURCE else None
    last_position = min(filter(None, lengths), default=LAST + 1) - 1
    if up_to is not None:
        last_position = checks.integer("up_to", up_to, 1)
        checks.check_domain((last_position,), name="up_to")
    sampled = np.union1d(spread(min(last_position, 2**62), 64, 64), match.positions_near(last_position))
    result, readings = matched(f, expected, source, sampled if callable(f) else None, any_order=any_order)
    if result.faults:
        raise AssertionError("; ".join(result.faults))
    at, reference = match.positions_near(last_position), expected.replace(axes=None)
    for reading in readings:
        error = difference(reading.call(at), exact(reference, at)).max() if reading.call else 0.0
        if error > largest_error:
            where = f"{result.reason}; near position {last_position:,}, the error is {error:.2g}"
            raise AssertionError(f"{where}, more than largest_error, {largest_error:g}")


def longest(config: Any) -> int | None:
    """Return the number of positions that a configuration states, or None."""
    value = look_up(config, *LENGTHS)
    return value if isinstance(value, int) and value > 0 else None


def valid_positions(expected: Rotary) -> int | None:
    """Return the number of positions for which the frequencies of a rotation apply, or None for all."""
    scaling = dict(expected.scaling or {})
    length = scaling.pop("length", 1)
    original = positions_without_length(scaling or None)    # a shorter length has the frequencies of this one
    return original and max(original, length)


def expectation(expect: Any) -> tuple[Rotary | None, str]:
    """Return the expected rotation, and the text that precedes an expected value in a message."""
    if expect is None or isinstance(expect, Rotary):
        return expect, "expected"
    if isinstance(expect, Mapping) and not expect.keys() & OF_CONFIGURATIONS:
        return Rotary(**expect), "expected"         # raises an error for a keyword that Rotary does not have
    is_object = hasattr(expect, "to_dict") and not hasattr(expect, "d_model") and not isinstance(expect, type)
    if not is_object and not isinstance(expect, Mapping):
        raise TypeError(f"expect is {expect!r} of type {type(expect).__name__}, expected {EXPECTED}")
    return Rotary.from_config(expect), SOURCE


def matched(
    rotation: Any, expected: Rotary | None, source: str, positions: Any = None, head_dim: int | None = None,
    any_order: bool = True, computes_in: str = "",
) -> tuple[RotaryMatch, list[Reading]]:
    """Return the match of a rotation, and its readings; tables may be rounded to the dtype `computes_in`."""
    checks.boolean("any_order", any_order)
    if isinstance(rotation, type):
        raise TypeError(f"rotation is the class {rotation.__name__}, expected arrays or a function")
    # the host program may have set NumPy to raise floating-point errors
    with np.errstate(all="ignore"):
        if callable(rotation):
            most = None if expected is None else valid_positions(expected)
            readings = read_function(rotation, positions, expected, head_dim, any_order, most)
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


# ---- comparison --------------------------------------------------------------------------------------------


def judged(
    reading: Reading, expected: Rotary | None, source: str, head_dim: int | None, computes_in: str
) -> RotaryMatch:
    """Compare a reading with the expected rotation in each width; return the match with the fewest faults.

    Its reason contains only the remarks.
    """
    rows = np.arange(len(reading.positions)) if reading.call else spread(len(reading.positions))
    positions, values, faults = reading.positions[rows], reading.read(rows), reading.faults
    finite = np.isfinite(values).all(axis=1)
    if not finite.any() or not values.size:
        return RotaryMatch(None, math.inf, "", faults or ("no value is finite",))
    if not finite.all():
        faults += (f"some values are not finite, for example at position {positions[~finite].min():,}",)
    positions, values = positions[finite], values[finite]
    if not np.ptp(positions):
        raise ValueError("rotation has values at a single position, expected values at several positions")
    if not np.median(np.abs(values), axis=0).any():
        return RotaryMatch(None, math.inf, "", (*faults, "most values are 0"))
    width = 2 * values.shape[1]
    size = head_dim or reading.head_dim or width
    if size < width:
        raise ValueError(f"head_dim is {size}, expected at least {width}, the number of rotated columns")
    results = []
    for target, of_width in _targets(expected, width, source):
        result = Comparison(reading, positions, values, target, size).result(source, computes_in)
        results.append(result._replace(faults=(*faults, *filter(None, (of_width, *result.faults)))))
    result = min(results, key=lambda result: (result.rotary is None, len(result.faults)))
    if expected is not None and expected.axes and expected.rotary_dim == width and result.rotary:
        result = _on_axes(reading, result, result.rotary.replace(axes=expected.axes))
    return result._replace(reason="; ".join(filter(None, (result.reason, *reading.remarks))))


def _on_axes(reading: Reading, result: RotaryMatch, rotary: Rotary) -> RotaryMatch:
    """Compare the pairs at positions that differ between axes; frequencies alone do not show the axes."""
    if reading.call is not None and reading.head_dim is not None and not result.faults:
        mixed = np.arange(16) * np.arange(1, 1 + match.axes_of(rotary))[:, None] % 61
        if difference(reading.call(mixed), exact(rotary, mixed)).max() > match.ALIKE * abs(size_of(rotary)):
            result = result._replace(faults=("the pairs have the positions of other axes than expected",))
    return result._replace(rotary=rotary)


def _targets(expected: Rotary | None, width: int, source: str) -> Iterator[tuple[Rotary | None, str]]:
    """Yield the expected rotation with `width` columns on one axis, and the fault of this width.

    The first one has the frequencies of this width, the second one the first pairs of the expected rotation.
    """
    if expected is None or expected.rotary_dim == width:
        yield None if expected is None else expected.replace(axes=None), ""
        return
    changes: dict[str, Any] = {"axes": None, "rotary_dim": width, "head_dim": max(expected.head_dim, width)}
    rotary = replaced_or_none(expected, **changes)
    yield (rotary or expected.replace(**changes, scaling=None, frequencies=None),
           f"{width} columns are rotated, {source} {expected.rotary_dim}")
    if width < expected.rotary_dim:
        first = expected.frequencies[: width // 2]
        yield (expected.replace(**changes, frequencies=first, scale=size_of(expected)),
               mistakes.not_rotated(range(width // 2, expected.rotary_dim // 2)))


class Comparison:
    """Values at several positions, with the expected rotation of the same width, if any.

    The orientation is estimated first: with the right one, the frequencies have the expected sign, and the
    phases are 0; or they are proportional to the frequencies, because the positions have an offset.
    """

    def __init__(self, reading: Reading, positions: Array, values: Waves, target: Rotary | None, size: int):
        self.reading, self.target, self.blank = reading, target, Rotary(size, rotary_dim=2 * values.shape[1])
        self.dtype = match.narrowest(values, reading.dtype)
        smallest = 2.0 ** max(DTYPES[self.dtype].smallest, DTYPES[reading.dtype].smallest)
        guess = None if target is None else target.frequencies      # pairs may turn by more than half a turn
        sign = 1 if guess is None or np.sum(guess) >= 0 else -1
        views = []
        # the last orientation multiplies by -1, which is right if the expected scale is negative
        for sentence, turn in ORIENTATIONS[: 4 if target is None or size_of(target) > 0 else 3]:
            phases = match.phases_of(positions, turn(values), match.PRECISION[self.dtype], smallest, guess)
            views.append((phases.offset(sign), sentence, turn, phases))
        offset, sentence, self.turn, self.phases = min(
            views, key=lambda view: 2 if view[0] is None else min(1, abs(view[0])))
        self.shift = offset or 0
        self.positions, self.values = positions + self.shift, self.turn(values)
        self.faults = [sentence] if sentence else []
        if self.shift:
            first = float(np.min(positions))
            self.faults.append(f"positions start at {number(first + self.shift)}, expected {number(first)}")

    def _scales(self) -> list[float]:
        """Return the possible scales, the expected one first."""
        precision, phases = 2.0 ** -match.PRECISION[self.dtype], self.phases
        scale = float(np.median(phases.amplitude[phases.amplitude > 0]))
        expected = (1.0,) if self.target is None else (size_of(self.target), 1.0)
        # the values of slow pairs are all rounded in the same direction
        is_fast = np.abs(phases.frequency) * phases.reach > 4 * math.pi
        sizes = np.abs(self.values[:, is_fast if is_fast.any() else slice(None)])
        error = max(match.SIGMAS / math.sqrt(sizes.size) * precision, 2.0**-50)
        near = (x for x in expected if abs(abs(x) - scale) <= 2 * precision * scale)
        return list(dict.fromkeys((*near, short(scale, 2 * precision), short(float(sizes.mean()), error))))

    def _trials(self) -> Iterator[Trial]:
        """Yield what may explain the values: in plain arithmetic, then in 16 bits, then without a formula.

        A fitted number may have too few digits, which looks like rounded angles; exact ones are tried first.
        """
        plain, phases, target, blank = match.plain(self.dtype), self.phases, self.target, self.blank
        loose, scales = phases.loose(), self._scales()
        is_turning = np.abs(phases.frequency) > phases.error + 2.0**-50
        rotary = blank.replace(frequencies=np.where(is_turning, phases.frequency, 0.0))
        all_loose = itertools.chain(named(loose, target), fitted(loose, blank))
        # rotations take long to create, so one is created only if those before it have failed
        for group, kinds in ((named(phases, target), plain), (fitted(phases, blank), plain[:1]),
                             (fitted(phases, blank), plain[1:]), (all_loose, match.narrow(self.dtype)),
                             ([Candidate(rotary, None)], plain)):
            for candidate, sentence in group:
                for scale, how in itertools.product(scales, kinds):
                    factor = scale / size_of(candidate)
                    scaled = candidate if factor == 1 else candidate.replace(scale=candidate.scale * factor)
                    yield scaled, sentence, how

    def result(self, source: str, computes_in: str) -> RotaryMatch:
        """Return the first trial that explains all values, or else nearly all rows or the first rows."""
        partial = None
        for trial in self._trials():
            rotary, _, how = trial
            curve = match.rotation_curve(rotary, self.positions, how)
            if curve.explains(self.values, how):
                return self._described(trial, True, source, computes_in)
            if partial is None and how == match.plain(self.dtype)[-1]:
                differs = np.asarray(curve.differs(self.values, how).any(axis=1))
                partial = trial if differs.mean() < FEW or not np.any(differs[:FEWEST]) else None
        if partial is not None:
            return self._described(partial, False, source, computes_in)
        if self.target is None:
            return RotaryMatch(None, math.inf, "", (NO_ROTATION,))
        error = difference(self.values, exact(self.target, self.positions)).max(axis=0)
        wrong = np.flatnonzero(error > match.ALIKE * abs(size_of(self.target)))
        where = f"; those of {pairs(wrong)} differ from the expected ones by up to {error.max():.2g}"
        return RotaryMatch(None, float(error.max()), "", (f"{NO_ROTATION}{where if len(wrong) else ''}",))

    def _described(self, trial: Trial, is_whole: bool, source: str, computes_in: str) -> RotaryMatch:
        """Return the result for an explanation of all values, or of some rows, with faults and remarks."""
        (rotary, sentence, how), reading, target = trial, self.reading, self.target
        of_keywords = mistakes.differences(rotary, target, source) if sentence is None else ()
        end, last = self._end(rotary, how, is_whole)
        errors = {}
        for position in sorted({min(position, last) for position in match.ERRORS_AT}):
            at = match.positions_near(position)
            values = self.turn(match.computed(rotary, at + self.shift, how))
            errors[position] = float(difference(values, exact(target or rotary, at)).max())
        layout, of_layout = mistakes.of_layout(reading, target, source)
        of_arithmetic = mistakes.of_arithmetic(how, exact(rotary, self.positions), reading.dtype, computes_in)
        remark = f"{how.angles} angles" if how.angles else "rounding"
        if how.angles == "float32" and not (sentence or of_keywords or self.faults):
            position, error = max(errors.items())
            remark = f"float32 angles: the estimated error is {error:.1g} at position {position:,}"
        faults = filter(None, (*of_layout, sentence, *of_keywords, *self.faults,
                               *mistakes.of_scale(rotary, target, source), *of_arithmetic, end))
        largest = difference(self.turn(self.values), exact(rotary, self.positions - self.shift)).max()
        return RotaryMatch(rotary.replace(layout=layout), float(largest), "" if of_arithmetic else remark,
                           tuple(faults), errors)

    def _end(self, rotary: Rotary, how: Arithmetic, is_whole: bool) -> tuple[str, int]:
        """Compare all rows with the rotation found in the sample, or in some of its rows unless `is_whole`.

        Return the fault of the rows that differ, and the last position before them.
        """
        reading, at, call = self.reading, self.reading.positions, self.reading.call
        end = match.ERRORS_AT[-1] if call else int(np.abs(at).max())
        if is_whole and (call or how.is_narrow):
            return "", end
        how = how._replace(angles="float32")            # perhaps only other rows show float32 angles

        def differs(positions: Array, values: Waves) -> Mask:
            curve = match.rotation_curve(rotary, positions + self.shift, how)
            return np.asarray((curve.differs(self.turn(values), how) | ~np.isfinite(values)).any(axis=1))

        parts = [differs(at[rows], reading.read(rows)) for rows in chunks(len(at), len(rotary.frequencies))]
        differing = np.flatnonzero(np.concatenate(parts))
        if not len(differing):
            return "" if is_whole else "the values at some positions differ", end
        row = int(differing[0])
        last, first = int(abs(at[max(row - 1, 0)])), int(abs(at[row]))
        rows = reading.read([row, 0, row - 1])
        if call and row > 0 and len(differing) == len(at) - row:
            between = np.arange(last + 1, first + 1)
            first = int(between[np.argmax(differs(between, call(between)))])
            rows = call(np.array([first, 0, first - 1]))
        for other, words in zip(rows[1:], ("repeats", "its last row is repeated"), strict=True):
            if 0 < row < len(at) - 1 and np.array_equal(rows[0], other):
                return f"the table ends at {first:,} and {words}", first - 1
        return f"the values at {len(differing)} of {len(at)} positions differ, the first at {first:,}", last
