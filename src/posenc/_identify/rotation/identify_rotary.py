"""Identify a rotation, and compare it with an expected one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple, SupportsIndex

import numpy as np

from posenc._arguments import checks
from posenc._arguments.types import Positions
from posenc._identify.rotation.read_arrays import read_arrays
from posenc._identify.rotation.read_functions import read_function, read_rotary
from posenc._identify.rotation.search_frequencies import search_frequencies
from posenc._identify.rotation.search_values import Found, search
from posenc._rotary import Rotary, RotaryAt
from posenc._rotary.model_config import max_positions
from posenc._rotary.scaling import positions_without_length

SOURCE = "the configuration has"
OF_CONFIGURATIONS = {"model_type", "rope_theta", "rope_parameters", "rope_scaling"}
EXPECTED = "a posenc.Rotary, a configuration from transformers or its dict, or a dict of keywords of Rotary"


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
        1,000,000: at each of these and at the seven positions before it.  Empty if the arithmetic is unknown.

    See Also
    --------
    identify_rotary : Return the matches of a rotation.

    Examples
    --------
    >>> import posenc
    >>> match = posenc.identify_rotary(posenc.Rotary(64).tables(100), expect=posenc.Rotary(64, base=500000.0))[0]
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
    rotation: Any, *, expect: Any = None, positions: Positions | None = None, head_dim: SupportsIndex | None = None
) -> list[RotaryMatch]:
    """Find the rotary embedding of a table, a function or a module, and name its differences from the expected one.

    Parameters
    ----------
    rotation : array_like, pair of array_like, callable or torch.nn.Module
        One of these, as arrays of NumPy or tensors of PyTorch:

        - a pair of tables (cos, sin) of shape (n, pairs), or (n, head_dim) with each column twice; a complex table
          cos + i sin; or an array whose columns are those of cos, then those of sin;
        - the frequencies of the pairs, such as the buffer ``inv_freq`` of a model: an array with one dimension;
        - a function ``f(x, positions)`` that returns rotated x, for x of shape (n, head_dim) and positions of shape (n,).  If
          the call fails, the next calls use x of shape (1, n, head_dim), (1, 1, n, head_dim), (1, n, 1, head_dim) or
          (n, 1, head_dim), and positions of shape (n,) or (1, n).  A module, or a function that refuses arrays, gets tensors;
        - a module or function that returns (cos, sin) if it is called in this way, as ``rotary_emb`` of transformers does.
    expect : Rotary, configuration or dict, optional
        The expected rotation: a `Rotary`, a configuration as for `Rotary.from_config`, or a dict of keywords of `Rotary`.
    positions : int, range or array_like, optional
        Positions of the rows of tables, by default ``range(n)``; or the positions with which to call a function.
    head_dim : int, optional
        Number of columns of a query or key.  Without `expect`, it is needed for a function, and for tables and frequencies of
        a rotation that leaves some columns unchanged.

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
    Rotary.from_config : The rotation in a model's configuration.

    Examples
    --------
    >>> import numpy as np
    >>> import posenc
    >>> inv_freq = 10000.0 ** -(np.arange(0, 64, 2, dtype=np.float32) / 64)
    >>> config = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
    >>> posenc.identify_rotary(inv_freq, expect=config)[0].faults
    ('base is 10000, the configuration has 500000',)
    """
    expected, source = _expected(expect)
    size = None if head_dim is None else checks.integer("head_dim", head_dim, 2)
    if expected is not None and size not in (None, expected.head_dim):
        raise ValueError(f"head_dim is {size}, but expect has {expected.head_dim}; call identify_rotary without head_dim")
    return matches(rotation, expected, source, positions, size)


def matches(
    rotation: Any, expected: Rotary | None, source: str, positions: Any = None, head_dim: int | None = None
) -> list[RotaryMatch]:
    """Return the matches of a rotation; `source` is the text that precedes an expected value in a message."""
    with np.errstate(all="ignore"):             # the host program may have set NumPy to raise floating-point errors
        found = _found(rotation, expected, source, positions, head_dim)
    if expected is None and found.rotary is None:
        return []
    named = tuple(dict.fromkeys(found.faults))
    everything = "; ".join((*named, *found.remarks)) or "no known rotation gives these values"
    faults = () if expected is None else named
    return [RotaryMatch(found.rotary, found.difference, everything, faults, found.errors)]


def _found(rotation: Any, expected: Rotary | None, source: str, positions: Any, head_dim: int | None) -> Found:
    axes = 1 if expected is None or expected.axes is None else 1 + max(expected.axes)
    if isinstance(rotation, (Rotary, RotaryAt)):
        reading = read_rotary(rotation, positions)
    elif isinstance(rotation, type):
        raise checks.wrong_type("rotation", rotation, "tables, frequencies, a function, or an instance of a module")
    elif callable(rotation):
        reading = read_function(rotation, positions, expected, head_dim or getattr(rotation, "head_dim", None), axes)
    else:
        reading = read_arrays(rotation, positions, None if expected is None else expected.rotary_dim // 2, axes)
    if reading.frequencies is not None:
        return search_frequencies(reading, expected, source, head_dim)
    return search(reading, expected, source, head_dim)


def _expected(expect: Any) -> tuple[Rotary | None, str]:
    """Return the expected rotation, and the text that precedes an expected value in a message."""
    if expect is None or isinstance(expect, Rotary):
        return expect, "expected"
    if isinstance(expect, RotaryAt):
        return expect.rotary, "expected"
    if isinstance(expect, Mapping) and expect.keys() <= Rotary(0).to_dict()["rotary"].keys():
        raise ValueError("expect is a dict of keywords of Rotary without head_dim; add head_dim")
    if isinstance(expect, Mapping) and "head_dim" in expect and not expect.keys() & OF_CONFIGURATIONS:
        return Rotary(**expect), "expected"         # raises an error for a keyword that Rotary does not have
    is_configuration = isinstance(expect, Mapping) or hasattr(expect, "to_dict") and not hasattr(expect, "d_model")
    if not is_configuration or isinstance(expect, type):
        raise checks.wrong_type("expect", expect, EXPECTED)
    return Rotary.from_config(expect), SOURCE


def last_position(expect: Any, default: int) -> int:
    """Return the last position for which `expect` has frequencies, or `default` if `expect` names no number of positions."""
    expected, source = _expected(expect)
    if expected is None:
        raise checks.wrong_type("expect", expect, EXPECTED)
    limits = [positions_without_length(expected.scaling), max_positions(expect) if source == SOURCE else None]
    return min((limit for limit in limits if limit is not None), default=default + 1) - 1
