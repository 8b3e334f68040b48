"""Find the arithmetic that explains how cosines and sines differ from the exact values."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.dtypes import DTYPES
from posenc._identify.rotation.phases import FLOAT32
from posenc._identify.rotation.read_arrays import float64_values
from posenc._identify.table.sample import PRECISION, narrowest
from posenc._rotary import Rotary

NARROW = ("bfloat16", "float16")
ERRORS_AT = (1_000, 100_000, 1_000_000)


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


def rounded(x: NDArray[np.float64], dtype: str) -> NDArray[np.float64]:
    """Round float64 values to a dtype; "" means no rounding."""
    if dtype in ("", "float64"):
        return x
    if dtype != "bfloat16":
        return x.astype(dtype).astype(np.float64)
    bits = x.astype(np.float32).view(np.uint32)
    bits += np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))
    return (bits & np.uint32(0xFFFF0000)).view(np.float32).astype(np.float64)


def exact(rotary: Rotary, positions: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.complex128]:
    cos, sin = rotary.tables(positions, dtype="float64")
    values: NDArray[np.complex128] = cos + 1j * sin
    return values


def correctly_rounded(rotary: Rotary, positions: NDArray[Any], dtype: str) -> NDArray[np.complex128]:
    """Return cos + i sin, each rounded to a dtype."""
    rows = positions.shape[-1]
    out = np.empty((rows, rotary.rotary_dim), np.uint16 if dtype == "bfloat16" else dtype)
    cos, sin = rotary.tables(positions, dtype=dtype, out=out)
    values: NDArray[np.complex128] = float64_values(cos, dtype) + 1j * float64_values(sin, dtype)
    return values


def narrower_than_needed(rotary: Rotary, positions: NDArray[Any], stored: str, dtype: str) -> bool:
    """Return whether `stored` has 16 bits although the values of a rotation, rounded to `dtype`, need more."""
    if stored not in NARROW or PRECISION[stored] >= PRECISION[dtype]:
        return False
    values = correctly_rounded(rotary, positions, dtype)
    return PRECISION[narrowest(np.stack([values.real, values.imag]), dtype)] > PRECISION[stored]


def difference(x: NDArray[np.complex128], y: NDArray[np.complex128]) -> NDArray[np.float64]:
    """Return the larger of the differences between the real parts and between the imaginary parts, as absolute values."""
    return np.maximum(np.abs(x.real - y.real), np.abs(x.imag - y.imag))


def axis_positions(rotary: Rotary, positions: NDArray[np.float64] | NDArray[np.int64]) -> NDArray[np.float64]:
    """Return positions as an array that broadcasts to (n, pairs); each pair has the positions of its axis."""
    if rotary.axes is None:
        return positions.astype(np.float64)[:, None]
    each: NDArray[np.float64] = positions.astype(np.float64)[np.array(rotary.axes)].T
    return each


def computed(
    rotary: Rotary, positions: NDArray[np.float64] | NDArray[np.int64], arithmetic: Arithmetic,
    frequencies: NDArray[np.float64] | None = None,
) -> NDArray[np.complex128]:
    """Return cos + i sin, computed with this arithmetic from the frequencies of a rotation, or from `frequencies` if given."""
    w = rounded(rotary.frequencies if frequencies is None else frequencies, arithmetic.frequencies)
    at = rounded(axis_positions(rotary, positions), arithmetic.positions)
    angles = rounded(at * w, arithmetic.angles)
    scale = rotary.scale * rotary.attention_scaling
    cos, sin = (rounded(scale * part, arithmetic.table) for part in (np.cos(angles), np.sin(angles)))
    values: NDArray[np.complex128] = cos + 1j * sin
    return values


def growth_of(frequencies: NDArray[np.float64]) -> float:
    """Return the relative error, in half ulps, of a frequency that is computed as the exponential of a rounded logarithm."""
    turning = np.abs(frequencies[frequencies != 0])
    return 2 + 2 * float(np.ptp(np.log(turning))) if len(turning) else 0.0


def unexplained(
    rotary: Rotary, positions: NDArray[Any], values: NDArray[np.complex128], arithmetic: Arithmetic
) -> NDArray[np.bool_]:
    """Return a mask of the values that a rotation does not give with this arithmetic."""
    unit = {"": 0.0, "float64": 2.0**-53}.get(arithmetic.angles, FLOAT32)
    narrow = arithmetic.is_narrow
    reference = computed(rotary, positions, arithmetic) if narrow else exact(rotary, positions)
    size = abs(rotary.scale * rotary.attention_scaling)
    angles = growth_of(rotary.frequencies) * np.abs(axis_positions(rotary, positions) * rotary.frequencies)
    # half an ulp, or one ulp if values may also be rounded before the multiplication by the scale; the factor 1.5 allows for
    # frequencies that are estimates
    rounding = (1.5 if size == 1 else 3) * 2.0 ** -PRECISION[arithmetic.table]
    # if the values fit into bfloat16, their dtype may be float16, which rounds small values to 0
    smallest = DTYPES["float16" if arithmetic.table in NARROW else arithmetic.table].smallest
    common = size * (FLOAT32 if narrow else unit) * (1 + angles) + 2.0 ** (smallest - 1)
    if (common < size).mean() <= 0.25:          # if most bounds are larger than the values, agreement proves nothing
        return np.ones(values.shape, bool)
    differs: NDArray[np.bool_] = np.abs(values.real - reference.real) > common + rounding * np.abs(reference.real)
    differs |= np.abs(values.imag - reference.imag) > common + rounding * np.abs(reference.imag)
    return differs


def explained(
    rotary: Rotary, positions: NDArray[Any], values: NDArray[np.complex128], dtype: str, narrow: bool = False,
    used: Any = slice(None),
) -> Arithmetic | None:
    """Return the arithmetic with which a rotation gives the values of the `used` pairs, or None.

    With `narrow`, the arithmetic must round angles, frequencies or positions to 16 bits.
    """
    for arithmetic in _narrow(dtype) if narrow else (Arithmetic(dtype, angles) for angles in ("", "float64", "float32")):
        differs = unexplained(rotary, positions, values, arithmetic)[:, used]
        # an angle halfway between two 16-bit numbers may have been rounded to either one, so a few values may differ
        if not differs.any() or narrow and differs.mean() < 0.02 and differs.mean(axis=1).max() < 0.5:
            return arithmetic
    return None


def _narrow(table: str) -> Iterator[Arithmetic]:
    """Yield the kinds of arithmetic that round to 16 bits, those with the fewest roundings first."""
    dtypes = ("", *NARROW)
    each = itertools.product(dtypes, dtypes, dtypes)
    for angles, frequencies, positions in sorted(each, key=lambda names: sum(map(bool, names))):
        if len({angles, frequencies, positions} & {*NARROW}) == 1:
            yield Arithmetic(table, angles or "float32", frequencies or "float32", positions)


def errors_of(
    rotary: Rotary, arithmetic: Arithmetic, frequencies: NDArray[np.float64] | None = None
) -> dict[int, float]:
    """Return the largest errors of cosines and sines near ERRORS_AT: at each position and the seven positions before it.

    `frequencies` are those of the implementation, if they are known.
    """
    if frequencies is None and arithmetic.angles == "float32" and not arithmetic.frequencies:
        arithmetic = arithmetic._replace(frequencies="float32")
    result = {}
    for position in ERRORS_AT:
        at = np.arange(position - 7, position + 1)
        at = at if rotary.axes is None else np.tile(at, (1 + max(rotary.axes), 1))
        error = difference(computed(rotary, at, arithmetic, frequencies), exact(rotary, at))
        result[position] = float(error.max(initial=0))
    return result
