"""Find the first position at which a table or a function does not give the values of its rotation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._identify.rotation.arithmetic import Arithmetic, unexplained
from posenc._identify.rotation.read_arrays import Reading
from posenc._identify.rotation.sample import Values
from posenc._rotary import Rotary


def end_of(
    reading: Reading, rotary: Rotary, arithmetic: Arithmetic, sample: Values, farthest: NDArray[np.float64], reach: float
) -> tuple[str, ...]:
    """Return the fault of the values at positions above `reach`; up to `reach`, the values are those of the rotation."""
    assert reading.positions is not None and reading.read is not None

    def values_at(position: int) -> NDArray[np.complex128] | None:
        """Return the values at a position, or None if the table does not have this position."""
        assert reading.positions is not None and reading.read is not None
        if reading.call is not None:
            axes = reading.positions.shape[:-1]
            values = reading.call(np.full((*axes, 1), position))
        else:
            at = reading.positions if reading.positions.ndim == 1 else reading.positions[0]
            rows = np.flatnonzero(at == position)[:1]
            if not len(rows):
                return None
            values = reading.read(rows)
        return sample.turned(values)

    def differs(position: int) -> bool:
        values = values_at(position)
        if values is None:
            return False
        at: Any = np.full((*sample.positions.shape[:-1], 1), position) + sample.shift
        return bool(unexplained(rotary, at, values, arithmetic).any())

    good = int(reach)
    bad = min((int(p) for p in farthest if p > reach and differs(int(p))), default=None)
    if bad is None:
        return ("the values at some positions differ",)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (good, middle) if differs(middle) else (middle, bad)
    beyond, last, first = values_at(bad), values_at(bad - 1), values_at(0)
    if beyond is not None and first is not None and np.array_equal(beyond, first):
        return (f"the table ends at {bad:,} and repeats",)
    if beyond is not None and last is not None and np.array_equal(beyond, last):
        return (f"the table ends at {bad:,} and its last row is repeated",)
    return (f"the values differ from position {bad:,} on",)
