"""The output dtypes, with a row for each.  All other tables of dtypes are derived from these rows."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


class Format(NamedTuple):
    """The format of a dtype."""

    code: int                   # dtype_t in kernel.h
    precision: int              # bits of the significand
    smallest: int               # exponent of the smallest subnormal number
    overflow: int               # exponent of the first power of two beyond the largest finite number
    stored: str                 # name in .npy and .zarr files; bfloat16 has none and is stored as uint16
    safetensors: str            # name in .safetensors files


DTYPES = {
    "float64": Format(0, 53, -1074, 1024, "<f8", "F64"),
    "float32": Format(1, 24, -149, 128, "<f4", "F32"),
    "float16": Format(2, 11, -24, 16, "<f2", "F16"),
    "bfloat16": Format(3, 8, -133, 128, "<u2", "BF16"),
}


def values_of(bits: NDArray[Any], dtype: str) -> NDArray[Any]:
    """Return the values with the given bits, which are unsigned integers; the values of bfloat16 are returned in float32."""
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << np.uint32(16), "float32"
    values: NDArray[Any] = bits.view(dtype)
    return values
