"""A function for the tests of projects that implement rotary embeddings.

>>> import posenc.testing
>>> posenc.testing.assert_rotary(lambda x, positions: posenc.Rotary(64).rotate(x, positions), posenc.Rotary(64))
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._identify.rotation.identify_rotary import identify_rotary, last_position

__all__ = ["assert_rotary"]

LAST = 131_071              # default of `up_to` if `expect` names no number of positions


def assert_rotary(f: Any, expect: Any, up_to: SupportsIndex | None = None) -> None:
    """Raise an AssertionError, with a sentence for each difference, if a function does not rotate as expected.

    Parameters
    ----------
    f : callable, array_like or torch.nn.Module
        A function ``f(x, positions)`` that returns rotated x, or another rotation that `posenc.identify_rotary` accepts.
    expect : Rotary, configuration or dict
        The expected rotation, as in `posenc.identify_rotary`.
    up_to : int, optional
        The largest position with which f is called, such as N - 1 for a table of N rows.  The default is
        ``max_position_embeddings - 1`` of the configuration, or 131,071 if `expect` has no ``max_position_embeddings``.  For a
        scaling that depends on the length of a sequence, the default is the last position of the original length.

    Returns
    -------
    None
        If no difference was found.

    Raises
    ------
    AssertionError
        If the rotation differs from the expected one by more than the rounding errors of its dtype and of float32 angles.
    TypeError, ValueError
        If an argument has an invalid type or value, or if f cannot be called or does not return an array of the shape of x.

    See Also
    --------
    posenc.identify_rotary : Return the differences.
    posenc.torch.check_rotary : Check a model.

    Examples
    --------
    >>> import posenc
    >>> from posenc.testing import assert_rotary
    >>> def rotated(x, positions):
    ...     return posenc.Rotary(64).rotate(x, positions)
    >>> assert_rotary(rotated, {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    Traceback (most recent call last):
    AssertionError: base is 10000, the configuration has 500000
    """
    __tracebackhide__ = True
    if f is None:
        raise checks.wrong_type("f", f, "a function")
    last = last_position(expect, LAST)
    if up_to is not None:
        last = checks.integer("up_to", up_to, 1)
        if last >= checks.BEYOND:
            raise ValueError(f"up_to is {last}, expected at most 2**63 - 1")
    match = identify_rotary(f, expect=expect, positions=_positions(last) if callable(f) else None)[0]
    if match.faults:
        raise AssertionError("; ".join(match.faults))


def _positions(last: int) -> NDArray[np.int64]:
    """Return the first and the last positions, and those near powers of 2, where rounding often begins and tables often end."""
    powers = [1 << exponent for exponent in range(5, last.bit_length())]
    near = [power + offset for power in powers for offset in (-1, 0, 1)]
    every = {*range(33), *near, *range(max(0, last - 2), last + 1)}
    return np.array(sorted(position for position in every if position <= last), np.int64)
