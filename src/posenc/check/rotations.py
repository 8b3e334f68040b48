"""Identify a rotation, and assert that a function rotates as expected."""

from __future__ import annotations

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from posenc import Rotary
from posenc.check.arithmetic import axes_of, difference, exact, positions_near
from posenc.check.functions import read_function, valid_positions
from posenc.check.limits import NO_DIGIT
from posenc.check.match_rotary import NO_ROTATION, Result, judged
from posenc.check.reading import Reading, read_arrays, spread

SOURCE = "the configuration has"
OF_CONFIGURATIONS = {"model_type", "rope_theta", "rope_parameters", "rope_scaling"}
EXPECTED = "a posenc.Rotary, a configuration from transformers or its dict, or a dict of keywords of Rotary"
LAST = 131_071              # default of `up_to` if `expect` names no number of positions


class RotaryMatch(NamedTuple):  # numpydoc ignore=PR01
    """A rotation that reproduces the given one, and its differences from the expected rotation.

    Attributes
    ----------
    rotary : Rotary or None
        The rotation with the frequencies, scale and layout of the given one, or None if no rotation gives its values.  A
        `Rotary` cannot express some faults, such as exchanged cosines and sines, positions from 1, or rounded positions.
    difference : float
        Largest absolute difference from the cosines and sines, or frequencies, of ``rotary``.  If ``rotary`` is None, this
        is the difference from the nearest rotation.
    reason : str
        The faults, then remarks such as "float32 angles: the error is 0.07 at position 1,000,000".
    faults : tuple of str
        The differences from the expected rotation; empty if the given rotation agrees with the expected one within the
        precision of its arithmetic, or if no rotation is expected.
    errors : mapping of int to float
        The largest absolute errors of cosines and sines that the arithmetic causes near the positions 1,000, 100,000 and
        1,000,000: at each of these and at the seven positions before it.  For a shorter table, the last key is its last
        position.  Empty if the arithmetic is unknown.

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
    faults: tuple[str, ...]
    errors: Mapping[int, float]

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
        The expected rotation: a `Rotary`, a configuration as for `Rotary.from_config`, or a dict of keywords of `Rotary`.
    positions : int, range or array_like, optional
        Positions of the rows of tables, by default ``range(n)``; or the positions with which to call a function.
    head_dim : int, optional
        Number of columns of a query or key.  Without `expect`, it is needed for a function, and for tables and frequencies of
        a rotation that leaves some columns unchanged.
    any_order : bool, optional
        Whether a function may return its columns in another order.  Products of queries and keys do not change if both are
        rotated by this function.  By default, another order is a fault.

    Returns
    -------
    list of RotaryMatch
        The matches, best first.  If no rotation reproduces the given values, the list is empty without `expect`.  With
        `expect`, it then has one element, whose ``rotary`` is None and whose ``reason`` names the nearest rotation.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or if a function cannot be called or does not return a rotation's values.

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
    size = None if head_dim is None else _integer("head_dim", head_dim, 2)
    if expected is not None and size not in (None, expected.head_dim):
        raise ValueError(f"head_dim is {size}, but expect has {expected.head_dim}; call identify_rotary without head_dim")
    match = matched(rotation, expected, source, positions, size, any_order)
    return [] if expected is None and match.rotary is None else [match]


def assert_rotary(
    f: Any, expect: Any, up_to: SupportsIndex | None = None, *, largest_error: float = NO_DIGIT, any_order: bool = False
) -> None:
    """Raise an AssertionError, with a sentence for each difference, if a function does not rotate as expected.

    Parameters
    ----------
    f : callable, array_like or torch.nn.Module
        A function ``f(x, positions)`` that returns rotated x, or another rotation that `identify_rotary` accepts.
    expect : Rotary, configuration or dict
        The expected rotation, as in `identify_rotary`.
    up_to : int, optional
        The largest position with which f is called, such as N - 1 for a table of N rows.  The default is
        ``max_position_embeddings - 1`` of the configuration, or 131,071 if `expect` has no ``max_position_embeddings``.  For a
        scaling that depends on the length of a sequence, the default is the last position of the original length.
    largest_error : float, optional
        The largest accepted error near `up_to`, of cosines and sines.  Errors of float32 angles grow with the position; the
        default accepts them as long as one digit is right.
    any_order : bool, optional
        As in `identify_rotary`.

    Returns
    -------
    None
        If no difference was found.

    Raises
    ------
    AssertionError
        If the rotation differs from the expected one by more than the rounding errors of its dtype and of float32 angles, or
        if these errors exceed `largest_error`.
    TypeError, ValueError
        If an argument has an invalid type or value, or if f cannot be called or does not return an array of the shape of x.

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
    if not 0 < largest_error < math.inf:
        raise ValueError(f"largest_error is {largest_error!r}, expected a positive number")
    if up_to is not None:
        last_position = _integer("up_to", up_to, 1)
        if last_position >= 2**63:
            raise ValueError(f"up_to is {last_position}, expected at most 2**63 - 1")
    else:
        limits = valid_positions(expected), longest(expect) if source == SOURCE else None
        last_position = min((limit for limit in limits if limit is not None), default=LAST + 1) - 1
    positions = np.union1d(spread(min(last_position, 2**62), 64, 64), positions_near(last_position)) if callable(f) else None
    readings = read(f, expected, positions, None, any_order)
    match = _merged([judged(reading, expected, source) for reading in readings], expected)
    if match.faults:
        raise AssertionError("; ".join(match.faults))
    for reading in readings:
        if reading.call is not None:
            at = positions_near(last_position, axes_of(expected))
            error = float(difference(reading.call(at), exact(expected, at)).max(initial=0))
            if error > largest_error:
                raise AssertionError(f"{match.reason}; near position {last_position:,}, the error is {error:.2g}, "
                                     f"more than largest_error, {largest_error:g}")


def _integer(name: str, value: SupportsIndex, lowest: int) -> int:
    """Return an integer argument, or raise an error that names the argument."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name} is {value!r} of type {type(value).__name__}, expected an integer")
    if value.__index__() < lowest:
        raise ValueError(f"{name} is {value}, expected at least {lowest}")
    return value.__index__()


def entry_of(config: Any, name: str) -> Any:
    return config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)


def longest(config: Any) -> int | None:
    """Return the number of positions that a configuration states, or None."""
    for name in ("max_position_embeddings", "n_positions", "max_seq_len"):
        if isinstance(value := entry_of(config, name), int) and value > 0:
            return value
    return None


def expectation(expect: Any) -> tuple[Rotary | None, str]:
    """Return the expected rotation, and the text that precedes an expected value in a message."""
    if expect is None or isinstance(expect, Rotary):
        return expect, "expected"
    if isinstance(expect, Mapping) and not expect.keys() & OF_CONFIGURATIONS:
        if "head_dim" in expect:
            return Rotary(**expect), "expected"         # raises an error for a keyword that Rotary does not have
        if expect.keys() <= Rotary(2).to_dict()["rotary"].keys():
            raise ValueError("expect is a dict of keywords of Rotary without head_dim; add head_dim")
    is_configuration = isinstance(expect, Mapping) or hasattr(expect, "to_dict") and not hasattr(expect, "d_model")
    if not is_configuration or isinstance(expect, type):
        raise TypeError(f"expect is {expect!r} of type {type(expect).__name__}, expected {EXPECTED}")
    return Rotary.from_config(expect), SOURCE


def matched(
    rotation: Any, expected: Rotary | None, source: str, positions: Any = None, head_dim: int | None = None,
    any_order: bool = True, computes_in: str = "",
) -> RotaryMatch:
    """Return the match of a rotation; tables may be rounded to the dtype in which a model computes."""
    readings = read(rotation, expected, positions, head_dim, any_order)
    return _merged([judged(reading, expected, source, head_dim, computes_in) for reading in readings], expected)


def read(rotation: Any, expected: Rotary | None, positions: Any, head_dim: int | None, any_order: bool) -> list[Reading]:
    if not isinstance(any_order, bool):
        raise TypeError(f"any_order is {any_order!r} of type {type(any_order).__name__}, expected a bool")
    with np.errstate(all="ignore"):
        if isinstance(rotation, type):
            raise TypeError(f"rotation is the class {rotation.__name__}, expected tables, frequencies, a function or a module")
        if callable(rotation):
            width = head_dim or getattr(rotation, "head_dim", None)
            return read_function(rotation, positions, expected, width, any_order)
        return [read_arrays(rotation, positions, expected, axes_of(expected))]


def _merged(results: list[Result], expected: Rotary | None) -> RotaryMatch:
    """Return the match for the results for queries and keys."""
    queries, *keys = results
    faults = dict.fromkeys(queries.faults)
    for result in keys:
        faults |= dict.fromkeys(f"keys: {fault}" for fault in result.faults if fault not in queries.faults)
    errors = {p: max(result.errors.get(p, 0.0) for result in results) for p in queries.errors}
    reason = "; ".join((*faults, *queries.remarks)) or NO_ROTATION
    return RotaryMatch(queries.rotary, max(result.difference for result in results), reason,
                       () if expected is None else tuple(faults), MappingProxyType(errors))
