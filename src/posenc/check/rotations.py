"""Rotations: identify a rotation, and compare it with an expected one.

The path of a verdict: `matched` reads the rotation as cosines and sines at some positions (`Reading`).  If
the expected rotation explains all of these (match.py) and the reading has no fault, the verdict is "right".
Otherwise, orientation, positions, scale and frequencies are estimated, and mistakes near these are tried
(`candidates`): the first one that explains a sample of the rows has the sentences of the faults.  Then all
rows of a table are compared with the result, those outside the sample with the bound of float32 angles.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from posenc import Rotary
from posenc._arguments import checks
from posenc._arguments.arrays import DTYPES
from posenc._rotary.model_config import LENGTHS, look_up
from posenc._rotary.scaling import positions_without_length
from posenc.check import match
from posenc.check.match import Arithmetic, Phases, Waves, difference, exact, size_of
from posenc.check.reading import NO_VALUE, REACH, Reading, array_of, chunks, is_pair, read_arrays, read_function, spread
from posenc.check.report import RotaryMatch, Verdict

EXPECTED = "a posenc.Rotary, or a configuration from transformers or its dict"
NO_DIGIT = 0.1              # default of `largest_error`: a larger error leaves no correct digit of a cosine
UNKNOWN = "no known rotation gives these values"
FEW = 0.1                   # share of the rows that may differ from the others
FEWEST = 8                  # rows from the first one on that a rotation must give, if it does not give all
OFFSETS = np.array(sorted(range(32, -33, -1), key=abs))  # of positions, the usual ones first
BASES = (1e4, 5e5, 1e6, 5e6, 1e7, 100.0, 1.5e5, 1.6e5, 2.5e5, 256.0, 2000.0)

# a fault, and a transformation of cos + i sin that is its own inverse
ORIENTATIONS: tuple[tuple[str, Callable[[Waves], Waves]], ...] = (
    ("", lambda z: z), ("the signs of the sines are reversed", np.conj),
    ("cos and sin are exchanged", lambda z: 1j * np.conj(z)))


def identify_rotary(
    rotation: Any, *, expect: Any = None, positions: Any = None, head_dim: SupportsIndex | None = None
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
    expect : Rotary or configuration, optional
        The expected rotation: a `Rotary`, or a configuration as for `Rotary.from_config`.
    positions : int, range or array_like, optional
        Positions of the rows of tables, by default ``range(n)``; or the positions with which to call a
        function, or at which to compare frequencies.
    head_dim : int, optional
        Number of columns of a query or key.  Without `expect`, it is needed for a function, and for tables
        and frequencies of a rotation that leaves some columns unchanged.

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
    ('base is 10000, expected 500000',)
    """
    expected = expectation(expect)
    size = None if head_dim is None else Rotary(checks.integer("head_dim", head_dim, 2)).head_dim
    if expected is not None and size not in (None, expected.head_dim):
        raise ValueError(f"head_dim is {size}, but expect has {expected.head_dim}; omit head_dim")
    result = matched(rotation, expected, positions, size)
    return [] if expected is None and result.rotary is None else [result]


def assert_rotary(
    f: Any, expect: Any, up_to: SupportsIndex | None = None, *, largest_error: float = NO_DIGIT
) -> None:
    """Raise an AssertionError with a sentence for each difference if a function does not rotate as expected.

    Parameters
    ----------
    f : callable, array_like or torch.nn.Module
        A function ``f(x, positions)`` that returns rotated x, or another rotation that `identify_rotary`
        accepts.
    expect : Rotary or configuration
        The expected rotation, as in `identify_rotary`.
    up_to : int, optional
        The largest position with which f is called, such as N - 1 for a table of N rows.  The default is
        ``max_position_embeddings - 1`` of the configuration, or 131,071 if `expect` has no
        ``max_position_embeddings``.  For a scaling that depends on the length of a sequence, the default is
        the last position of the original length.
    largest_error : float, optional
        The largest accepted error near `up_to`, of cosines and sines.  Errors of float32 angles grow with the
        position; the default accepts them as long as one digit is right.

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
    AssertionError: base is 10000, expected 500000
    """
    __tracebackhide__ = True
    if not callable(f) and not is_pair(f):
        array_of("f", f)                                # raises an error that names f
    expected = expectation(expect)
    if expected is None:
        raise TypeError(f"expect is None, expected {EXPECTED}")
    largest_error = checks.positive("largest_error", largest_error)
    last_position = min(filter(None, (valid_positions(expected), longest(expect))), default=REACH) - 1
    if up_to is not None:
        last_position = checks.integer("up_to", up_to, 1)
        checks.check_domain((last_position,), name="up_to")
    sampled = np.union1d(spread(min(last_position, 2**62), 64, 64), match.positions_near(last_position))
    is_table = not callable(f) and (is_pair(f) or np.ndim(f) > 1)
    result = matched(f, expected, None if is_table else sampled)
    if result.faults:
        raise AssertionError("; ".join(result.faults))
    if result.difference > largest_error:
        where = f"{result.reason}; near position {last_position:,}, the error is {result.difference:.2g}"
        raise AssertionError(f"{where}, more than largest_error, {largest_error:g}")


def longest(config: Any) -> int | None:
    """Return the number of positions that a configuration states, or None."""
    value = look_up(config, *LENGTHS)
    return value if isinstance(value, int) and value > 0 else None


def valid_positions(expected: Rotary | None) -> int | None:
    """Return the number of positions for which the frequencies of a rotation apply, or None for all."""
    scaling = dict(expected and expected.scaling or {})
    length = scaling.pop("length", 1)
    original = positions_without_length(scaling or None)    # a shorter length has the frequencies of this one
    return original and max(original, length)


def expectation(expect: Any) -> Rotary | None:
    """Return the expected rotation."""
    config = configuration(expect, "expect")
    return config if config is None or isinstance(config, Rotary) else Rotary.from_config(config)


def configuration(value: Any, name: str = "") -> Any:
    """Return a rotation, the configuration of text, or the attributes of another object; else None.

    If the value has a name, others than None are refused.
    """
    config = value
    if not isinstance(value, (Mapping, Rotary)) and not hasattr(value, "to_dict"):
        config = None if isinstance(value, type) else getattr(value, "__dict__", None)
    if name and value is not None and not config:
        raise checks.wrong_type(name, value, EXPECTED)
    return config if isinstance(config, Rotary) else look_up(config, "text_config") or config or None


def matched(
    rotation: Any, expected: Rotary | None, positions: Any = None, head_dim: int | None = None
) -> RotaryMatch:
    """Return the match of a rotation."""
    head_dim = head_dim if expected is None else expected.head_dim
    # the host program may have set NumPy to raise floating-point errors
    with np.errstate(all="ignore"):
        if callable(rotation):
            readings = read_function(rotation, positions, expected, head_dim, valid_positions(expected))
        else:
            readings = iter([("", read_arrays(rotation, positions, expected))])
        results, remarks, named = list[RotaryMatch](), list[tuple[str, ...]](), dict[str, str]()
        for label, reading in readings:
            results.append(judged(reading, expected, head_dim))
            remarks.append(reading.remarks)
            other = "the columns have another order than those of queries"
            faults = results[-1].faults or (other,) * (not named and reading.remarks != remarks[0])
            new = {each: label + each for each in faults if each not in named}
            named |= new
            if label and new:
                break
    result = max(results, key=lambda each: (bool(each.faults), each.verdict != "right", each.difference))
    faults = tuple(named.values())
    reason = "; ".join(filter(None, (*faults, result.reason, *remarks[0])))
    verdict: Verdict = "wrong" if faults else result.verdict
    return result._replace(reason=reason, faults=() if expected is None else faults, verdict=verdict)


# ---- the comparison ----------------------------------------------------------------------------------------


def judged(reading: Reading, expected: Rotary | None, head_dim: int | None) -> RotaryMatch:
    """Compare a reading with the expected rotation; the reason of the result states only the arithmetic."""
    faults, rows = reading.faults, slice(None) if reading.call else spread(len(reading.positions))
    sample = reading.at(rows)
    finite = np.isfinite(sample.values).all(axis=1)
    if not finite.any() or not sample.values.size:
        return RotaryMatch(None, math.inf, "", faults or (NO_VALUE,))
    sample = sample.at(finite)
    if not np.ptp(sample.positions):
        raise ValueError("rotation has values at a single position, expected values at several positions")
    width, target = 2 * sample.values.shape[1], None
    size = head_dim or width
    if expected is not None and width == expected.rotary_dim:
        target = expected.replace(axes=None)
    elif expected is not None:          # other faults are named when this one is corrected
        size, wrong = max(size, width), f"{width} columns are rotated, expected {expected.rotary_dim}"
        faults += (wrong,)
    result = Comparison(reading, sample, target, Rotary(size, rotary_dim=width)).result()
    result = result._replace(faults=(*faults, *result.faults))
    if expected is None or not expected.axes or target is None or result.rotary is None:
        return result
    rotary = result.rotary.replace(axes=expected.axes)
    if reading.call is not None and reading.layout is not None and not result.faults:
        # a function at positions that differ between axes; frequencies alone do not show the axes
        mixed = np.arange(16) * np.arange(1, 1 + match.axes_of(rotary))[:, None] % 61
        error = difference(reading.call(mixed), exact(rotary, mixed)).max()
        if error > match.ALIKE * abs(size_of(rotary)):
            result = result._replace(faults=("the pairs have the positions of other axes than expected",))
    return result._replace(rotary=rotary)


class Comparison(NamedTuple):
    """Values, and a sample of these, with the expected rotation of the same width, if any."""

    whole: Reading
    sample: Reading                     # some of the rows, which are finite
    target: Rotary | None
    blank: Rotary                       # the number of columns, and other keywords by default
    faults: tuple[str, ...] = ()        # of the orientation, if the values and positions have been corrected

    def result(self) -> RotaryMatch:
        """Return the first rotation that explains all values, or else nearly all rows or the first rows.

        The expected rotation is tried first; it makes the verdict "right".  All others only find the
        sentences for a wrong rotation.
        """
        values, positions, target = self.sample.values, self.sample.positions, self.target
        dtype = match.narrowest(values, self.sample.dtype)
        plain = match.plain(dtype)
        for how in plain:
            if target is not None and self._explains(target, how):
                return self._described(target, how)
        oriented, phases = self._oriented(dtype)
        found = oriented._found(dtype, phases)
        if found is not None:
            return oriented._described(*found)
        if target is None:
            return RotaryMatch(None, math.inf, "", (UNKNOWN,))
        differing = _differing(self.sample, target, plain[-1])
        if differing.any() and (differing.mean() < FEW or not differing[:FEWEST].any()):
            return self._described(target, plain[-1])
        errors = difference(values, exact(target, positions)).max(axis=0)
        wrong = np.flatnonzero(errors > match.ALIKE * abs(size_of(target)))
        where = f"; those of {pairs(wrong)} differ from the expected ones by up to {errors.max():.2g}"
        return RotaryMatch(None, float(errors.max()), "", (UNKNOWN + where * bool(len(wrong)),))

    def _found(self, dtype: str, phases: Phases) -> tuple[Rotary, Arithmetic] | None:
        """Return the first of the other rotations that explains the values, and its arithmetic.

        They are tried in plain arithmetic, then in 16 bits, then without a formula.  In exact arithmetic, all
        candidates are tried first, because a fitted number with too few digits looks like rounded angles.
        """
        is_turning = np.abs(phases.frequency) > phases.error + 2.0**-50
        # frequencies may be rounded to 16 bits
        least = match.LOOSE / match.SIGMAS * np.abs(phases.frequency)
        loose = phases._replace(error=np.maximum(phases.error, least))
        rotary = self.blank.replace(frequencies=np.where(is_turning, phases.frequency, 0.0))
        values, precision = self.sample.values, 2.0 ** -match.PRECISION[dtype]
        size = float(np.abs(values).mean())
        error = max(match.SIGMAS / math.sqrt(values.size) * precision, 2.0**-50)
        expected = 1.0 if self.target is None else size_of(self.target)
        scales = dict.fromkeys([expected, 1.0, match.short(size, 2 * precision), match.short(size, error)])
        # rotations take long to create, so they are created only if those of the groups before have failed
        plain = match.plain(dtype)
        for group, kinds in ((candidates(phases, self.target, self.blank), plain),
                             (candidates(loose, self.target, self.blank), match.narrow(dtype)),
                             ([rotary], plain)):
            for how, candidate, scale in itertools.product(kinds, group, scales):
                factor = scale / size_of(candidate)
                scaled = candidate if factor == 1 else candidate.replace(scale=candidate.scale * factor)
                if self._explains(scaled, how):
                    return scaled, how
        return None

    def _explains(self, rotary: Rotary, how: Arithmetic) -> bool:
        return match.rotation_curve(rotary, self.sample.positions, how).explains(self.sample.values)

    def _oriented(self, dtype: str) -> tuple[Comparison, Phases]:
        """Return the comparison with the right orientation and offset of the positions, and the phases.

        With the right ones, most frequencies have the expected sign, and the row nearest to position 0 has
        the angles of its position.
        """
        positions, precision = self.sample.positions, match.PRECISION[dtype]
        smallest = 2.0 ** max(DTYPES[dtype].smallest, DTYPES[self.sample.dtype].smallest)
        guess = None if self.target is None else self.target.frequencies    # pairs may turn by half a turn
        sign = 1 if guess is None or np.sum(guess) >= 0 else -1
        row = np.argmin(np.abs(positions))
        at, views = float(positions[row]), []
        for name, turn in ORIENTATIONS:
            values = turn(self.sample.values)
            phases = match.phases_of(positions, values, precision, smallest, guess)
            is_reversed = np.sum(np.sign(phases.frequency.round(15))) * sign < 0     # 0 may be rounded
            angles = (at + OFFSETS[:, None]) * phases.frequency
            errors = np.abs(np.abs(values[row]) * np.exp(1j * angles) - values[row])
            total = errors[:, np.abs(at) * phases.error < match.KNOWN].sum(axis=1)
            total = np.maximum(total, np.abs(values[row]).sum() * 2.0**-precision)     # roundings
            views.append((is_reversed, total.min(), name, turn, int(OFFSETS[total.argmin()]), phases))
        *_, name, turn, offset, phases = min(views, key=lambda view: view[:2])
        faults = [name] if name else []
        if offset:
            first = float(np.min(positions))
            faults.append(f"positions start at {first + offset:.15g}, expected {first:.15g}")
        whole, sample = (each._replace(positions=each.positions + offset, values=turn(each.values))
                         for each in (self.whole, self.sample))
        return Comparison(whole, sample, self.target, self.blank, tuple(faults)), phases

    def _described(self, rotary: Rotary, how: Arithmetic) -> RotaryMatch:
        """Return the result for an explanation of all values, or of nearly all, with faults and remarks."""
        positions, target, faults = self.whole.positions, self.target, [*self.faults]
        layout = self.whole.layout or (target or self.blank).layout
        last = match.ERRORS_AT[-1] if self.whole.call else int(np.abs(positions).max())
        of_rows = list[str]()
        differing = np.flatnonzero(not how.is_narrow and _differing(self.whole, rotary, how))
        if len(differing):
            count, first = f"{len(differing)} of {len(positions)}", int(abs(positions[differing[0]]))
            of_rows = [f"the values at {count} positions differ, the first at {first:,}"]
        # the errors of other columns or positions would not be those of the arithmetic
        near = () if self.faults or of_rows else sorted({min(position, last) for position in match.ERRORS_AT})
        errors = {position: match.error_near(position, rotary, how, target or rotary) for position in near}
        if target is not None:
            faults = [*of_frequencies(rotary, target), *faults]
            size, expected = size_of(rotary), size_of(target)
            if not math.isclose(size, expected, rel_tol=match.SAME_SCALE):
                faults.append(f"cosines and sines are multiplied by {size:.9g}, expected {expected:.9g}")
            if layout != target.layout:
                faults.insert(0, f"layout is {layout}, expected {target.layout}")
        reference = exact(rotary, self.sample.positions)
        roundings = [*of_arithmetic(how, reference, self.sample.dtype)]
        faults += roundings + of_rows
        verdict: Verdict = "float32 angles" if how.angles == "float32" and not faults else "right"
        remark = "" if roundings else f"{how.angles} angles" if how.angles else "rounding"
        if verdict == "float32 angles":
            position, error = max(errors.items())
            remark += f": the estimated error is {error:.1g} at position {position:,}"
        largest = float(difference(self.sample.values, reference).max())
        return RotaryMatch(rotary.replace(layout=layout), largest, remark, tuple(faults), errors, verdict)


def _differing(reading: Reading, rotary: Rotary, how: Arithmetic) -> match.Array:
    """Return a mask of the rows that differ from a rotation by more than the errors of float32 angles."""
    how, masks = how._replace(angles="float32"), []     # perhaps only rows outside a sample show these
    for rows in chunks(*reading.values.shape):
        part = reading.at(rows)
        differs = match.rotation_curve(rotary, part.positions, how).differs(part.values)
        masks.append((differs | ~np.isfinite(part.values)).any(axis=1))
    return np.concatenate(masks)


# ---- mistakes ----------------------------------------------------------------------------------------------

# a sentence has a line in the guide in docs/check.md, and a model in tests/rotary_models_small.py

def pairs(values: Any) -> str:
    """Return sorted pairs of columns as text: "pair 3", "pairs 0 to 7", "pairs 1, 5, 9, 11 ..."."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"pairs {values[0]} to {values[-1]}"
    return f"pair{'s'[: len(values) - 1]} {', '.join(map(str, values[:4]))}{' ...' * (len(values) > 4)}"


def not_rotated(columns: Any) -> str:
    """Return the sentence for pairs of columns that are not rotated."""
    return f"{pairs(columns)} {'are' if len(columns) > 1 else 'is'} not rotated"


def candidates(estimate: Phases, r: Rotary | None, blank: Rotary) -> Iterator[Rotary]:
    """Yield the expected rotation, others with its scaling or none, and geometric ones, near the estimates.

    `blank` has the number of columns and other keywords by default.
    """
    others = list[Rotary]()
    if r is not None:
        yield r
        if r.scaling is not None:
            others = [r.replace(scaling=None), *(r.replace(base=base) for base in BASES)]
    for sigmas in match.NUMBERS:
        multiple, bases = estimate.geometric([len(blank.frequencies)], BASES, sigmas)
        others += [blank.replace(base=base, frequency_scale=multiple) for base in bases]
    yield from (each for each in others if estimate.are_near(each.frequencies))


def of_frequencies(rotary: Rotary, expected: Rotary) -> Iterator[str]:
    """Yield the differences between frequencies."""
    w, f = rotary.frequencies, expected.frequencies
    if all(each.to_dict()["rotary"]["frequencies"] is None for each in (rotary, expected)):     # formulas
        for key in ("base", "frequency_scale"):
            if (x := getattr(rotary, key)) != (y := getattr(expected, key)):
                yield f"{key} is {x:.12g}, expected {y:.12g}"
        if rotary.scaling is None and expected.scaling is not None:
            yield f"the scaling {expected.scaling['rope_type']} is not applied"
        return
    differ = np.flatnonzero(np.abs(w - f) > match.SLIGHT * np.abs(f))
    still, others = differ[w[differ] == 0], differ[w[differ] != 0]
    if len(still):
        yield not_rotated(still)
    for k in others[:1]:
        yield f"the frequencies of {pairs(others)} differ; the first is {w[k]:.6g}, expected {f[k]:.6g}"
    if not len(differ) and np.any(w != f):
        yield "the frequencies differ slightly from the expected ones"


def of_arithmetic(how: Arithmetic, reference: Waves, dtype: str) -> Iterator[str]:
    """Yield the faults of an arithmetic; the right values may need no more bits than the table has."""
    needed = match.narrowest(match.rounded(reference, dtype), dtype)
    is_rounded = match.PRECISION[how.table] < min(match.PRECISION[dtype], match.PRECISION[needed])
    for name, dtype in (("inv_freq was", how.frequencies), ("positions were", how.positions),
                        ("angles were", how.angles), ("tables were", how.table if is_rounded else "")):
        if dtype in match.NARROW:
            yield f"{name} rounded to {dtype}"
