"""Which precision: the errors of an arithmetic, and the arithmetic that explains the errors of values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check.limits import BLURRED, FLOAT32, NARROW_ROW, NARROW_SHARE, SLACK

# dtype: bits of the significand, exponent of the smallest subnormal number; the narrowest dtypes first
FORMATS = {"bfloat16": (8, -133), "float16": (11, -24), "float32": (24, -149), "float64": (53, -1074)}
PRECISION = {dtype: bits for dtype, (bits, _) in FORMATS.items()}       # half an ulp of a value is at most value * 2**-bits
NARROW = ("bfloat16", "float16")


class Arithmetic(NamedTuple):
    """The dtypes to which an implementation rounds; "" means no rounding."""

    table: str                  # the cosines and sines
    angles: str = ""
    frequencies: str = ""
    positions: str = ""

    @property
    def is_narrow(self) -> bool:
        """Whether the angles, the frequencies or the positions are rounded to 16 bits."""
        return bool({self.angles, self.frequencies, self.positions} & {*NARROW})


def float64_of(array: NDArray[Any], dtype: str) -> NDArray[np.float64]:
    """Convert an array to float64; an array of bfloat16 may hold its bits as uint16."""
    if dtype != "bfloat16":
        return array.astype(np.float64)
    bits = np.ascontiguousarray(array).view(np.uint16).astype(np.uint32) << np.uint32(16)
    return bits.view(np.float32).astype(np.float64)


def rounded(x: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Round float64 values to a dtype; "" means no rounding."""
    if dtype in ("", "float64"):
        return x
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def narrowest(values: NDArray[np.float64], dtype: str) -> str:
    """Return the narrowest dtype whose significant bits suffice for all values; at most the given dtype."""
    mantissa, _ = np.frexp(values)
    return next(name for name, bits in PRECISION.items() if name == dtype or (np.ldexp(mantissa, bits) % 1 == 0).all())


def growth_of(frequencies: NDArray[np.float64]) -> float:
    """Return the relative error, in half ulps, of a frequency that is computed as the exponential of a rounded logarithm."""
    turning = np.abs(frequencies[frequencies != 0])
    return 2 + 2 * float(np.ptp(np.log(turning))) if len(turning) else 0.0


# ---- rotations ------------------------------------------------------------------------------------------------------


def size_of(rotary: Rotary) -> float:
    """Return the factor by which a rotation multiplies cosines and sines."""
    return rotary.scale * rotary.attention_scaling


def exact(rotary: Rotary, positions: NDArray[Any]) -> NDArray[np.complex128]:
    cos, sin = rotary.tables(positions, dtype="float64")
    values: NDArray[np.complex128] = cos + 1j * sin
    return values


def both_rounded(values: NDArray[np.complex128], dtype: str) -> NDArray[np.complex128]:
    result: NDArray[np.complex128] = rounded(values.real.copy(), dtype) + 1j * rounded(values.imag.copy(), dtype)
    return result


def difference(x: NDArray[np.complex128], y: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return the larger of the differences between the real parts and between the imaginary parts, as absolute values."""
    return np.maximum(np.abs(x.real - y.real), np.abs(x.imag - y.imag))


def axis_positions(rotary: Rotary, positions: NDArray[Any]) -> NDArray[np.float64]:
    """Return positions as an array that broadcasts to (n, pairs); each pair has the positions of its axis."""
    real = positions.astype(np.float64)
    return real[:, None] if rotary.axes is None else real[np.array(rotary.axes)].T


def computed(rotary: Rotary, positions: NDArray[Any], arithmetic: Arithmetic) -> NDArray[np.complex128]:
    """Return cos + i sin, computed with an arithmetic."""
    w = rounded(rotary.frequencies, arithmetic.frequencies)
    angles = rounded(rounded(axis_positions(rotary, positions), arithmetic.positions) * w, arithmetic.angles)
    return both_rounded(size_of(rotary) * np.exp(1j * angles), arithmetic.table)


def unexplained(
    rotary: Rotary, positions: NDArray[Any], values: NDArray[np.complex128], arithmetic: Arithmetic
) -> NDArray[np.bool_]:
    """Return a mask of the values that a rotation does not give with an arithmetic."""
    unit = {"": 0.0, "float64": 2.0**-53}.get(arithmetic.angles, FLOAT32)
    reference = computed(rotary, positions, arithmetic) if arithmetic.is_narrow else exact(rotary, positions)
    size = abs(size_of(rotary))
    angles = growth_of(rotary.frequencies) * np.abs(axis_positions(rotary, positions) * rotary.frequencies)
    # values may also be rounded before they are multiplied by the scale
    rounding = (SLACK if size == 1 else 2 * SLACK) * 2.0 ** -PRECISION[arithmetic.table]
    # if the values fit into bfloat16, their dtype may be float16, which rounds small values to 0
    smallest = 2.0 ** (FORMATS["float16" if arithmetic.table in NARROW else arithmetic.table][1] - 1)
    common = size * unit * (1 + angles) + smallest
    if (common >= size).mean() >= BLURRED:
        return np.ones(values.shape, bool)
    differs: NDArray[np.bool_] = np.abs(values.real - reference.real) > common + rounding * np.abs(reference.real)
    differs |= np.abs(values.imag - reference.imag) > common + rounding * np.abs(reference.imag)
    return differs


def explained(
    rotary: Rotary, positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, narrow: bool = False,
    which_pairs: Any = slice(None),
) -> Arithmetic | None:
    """Return the arithmetic with which a rotation gives the values of the pairs `which_pairs`, or None.

    With `narrow`, the arithmetic must round angles, frequencies or positions to 16 bits.
    """
    for arithmetic in _narrow(dtype) if narrow else (Arithmetic(dtype, angles) for angles in ("", "float64", "float32")):
        differs = unexplained(rotary, positions, values, arithmetic)[:, which_pairs]
        if not differs.any() or narrow and differs.mean() < NARROW_SHARE and differs.mean(axis=1).max() < NARROW_ROW:
            return arithmetic
    return None


def _narrow(table: str) -> Iterator[Arithmetic]:
    """Yield the kinds of arithmetic that round to 16 bits, those with the fewest roundings first."""
    dtypes = ("", *NARROW)
    for angles, frequencies, positions in sorted(itertools.product(dtypes, repeat=3), key=lambda names: sum(map(bool, names))):
        if len({angles, frequencies, positions} & {*NARROW}) == 1:
            yield Arithmetic(table, angles or "float32", frequencies or "float32", positions)


def positions_near(position: int, axes: int = 1) -> NDArray[np.int64]:
    """Return a position and the seven before it, because 16 bits may hold an even position exactly; equal on all axes."""
    at = position - np.arange(min(position, 7), -1, -1)
    return at if axes == 1 else np.tile(at, (axes, 1))


def axes_of(rotary: Rotary | None) -> int:
    """Return the number of axes of positions."""
    return 1 if rotary is None or rotary.axes is None else 1 + max(rotary.axes)
