"""The output dtypes: one row each, from which every other table of dtypes is derived."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """The format of a dtype."""

    code: int                   # dtype_t in kernel.h
    precision: int              # bits of the significand
    smallest: int               # exponent of the smallest subnormal number
    overflow: int               # exponent of the first power of two beyond the largest number
    other_names: str            # abbreviations and names in other libraries


DTYPES = {
    "float64": Format(0, 53, -1074, 1024, "fp64 f64 double"),
    "float32": Format(1, 24, -149, 128, "fp32 f32 float"),
    "float16": Format(2, 11, -24, 16, "fp16 f16 half"),
    "bfloat16": Format(3, 8, -133, 128, "bf16"),
}
OTHER_NAMES = {other: name for name, row in DTYPES.items() for other in row.other_names.split()}
