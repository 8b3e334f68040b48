"""Rotations: identify a rotation, and compare it with an expected one.

`matched` reads a rotation (reading.py), and compares the values with the expected ones (comparison.py).
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, SupportsIndex

import numpy as np

from posenc import Rotary
from posenc._arguments import checks
from posenc._rotary.model_config import LENGTHS, look_up
from posenc._rotary.scaling import positions_without_length
from posenc.check import match
from posenc.check.comparison import judged
from posenc.check.match import difference, exact
from posenc.check.reading import Reading, array_of, is_pair, read_arrays, read_function, spread
from posenc.check.report import RotaryMatch

OF_CONFIGURATIONS = {"model_type", "rope_theta", "rope_parameters", "rope_scaling"}
EXPECTED = "a posenc.Rotary, a configuration from transformers or its dict, or a dict of keywords of Rotary"
LAST = 131_071              # default of `up_to` if `expect` names no number of positions
NO_DIGIT = 0.1              # default of `largest_error`: a larger error leaves no correct digit of a cosine


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
    ('base is 10000, expected 500000',)
    """
    expected = expectation(expect)
    size = None if head_dim is None else Rotary(checks.integer("head_dim", head_dim, 2)).head_dim
    if expected is not None and size not in (None, expected.head_dim):
        raise ValueError(f"head_dim is {size}, but expect has {expected.head_dim}; omit head_dim")
    result, _ = matched(rotation, expected, positions, size, any_order)
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
    AssertionError: base is 10000, expected 500000
    """
    __tracebackhide__ = True
    if not callable(f) and not is_pair(f):
        array_of("f", f)                                # raises an error that names f
    expected = expectation(expect)
    if expected is None:
        raise TypeError(f"expect is None, expected {EXPECTED}")
    largest_error = checks.positive("largest_error", largest_error)
    lengths = valid_positions(expected), None if isinstance(expect, Rotary) else longest(expect)
    last_position = min(filter(None, lengths), default=LAST + 1) - 1
    if up_to is not None:
        last_position = checks.integer("up_to", up_to, 1)
        checks.check_domain((last_position,), name="up_to")
    sampled = np.union1d(spread(min(last_position, 2**62), 64, 64), match.positions_near(last_position))
    result, readings = matched(f, expected, sampled if callable(f) else None, any_order=any_order)
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


def expectation(expect: Any) -> Rotary | None:
    """Return the expected rotation."""
    if expect is None or isinstance(expect, Rotary):
        return expect
    if isinstance(expect, Mapping) and not expect.keys() & OF_CONFIGURATIONS:
        return Rotary(**expect)                 # raises an error for a keyword that Rotary does not have
    is_object = hasattr(expect, "to_dict") and not hasattr(expect, "d_model") and not isinstance(expect, type)
    if not is_object and not isinstance(expect, Mapping):
        raise checks.wrong_type("expect", expect, EXPECTED)
    return Rotary.from_config(expect)


def matched(
    rotation: Any, expected: Rotary | None, positions: Any = None, head_dim: int | None = None,
    any_order: bool = True,
) -> tuple[RotaryMatch, list[Reading]]:
    """Return the match of a rotation, and its readings."""
    checks.boolean("any_order", any_order)
    head_dim = head_dim if expected is None else expected.head_dim
    # the host program may have set NumPy to raise floating-point errors
    with np.errstate(all="ignore"):
        if callable(rotation):
            most = None if expected is None else valid_positions(expected)
            readings = read_function(rotation, positions, expected, head_dim, any_order, most)
        else:
            readings = [read_arrays(rotation, positions, expected)]
        result, *keys = (judged(reading, expected, head_dim) for reading in readings)
    for other in keys:
        of_keys = tuple(f"keys: {each}" for each in other.faults if each not in result.faults)
        result = result._replace(
            difference=max(result.difference, other.difference), faults=result.faults + of_keys,
            errors={at: max(error, other.errors.get(at, 0.0)) for at, error in result.errors.items()},
            verdict="wrong" if of_keys else result.verdict)
    reason = "; ".join(filter(None, (*result.faults, result.reason)))
    faults = () if expected is None else result.faults
    return result._replace(reason=reason, faults=faults, errors=MappingProxyType({**result.errors})), readings
