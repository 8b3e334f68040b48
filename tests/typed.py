"""User code for tests/test_types.py: the types that mypy infers, and the errors that it must find.

This file never runs.  Each ``type: ignore`` marks an expected error; warn_unused_ignores makes mypy report a
missing error.
"""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, assert_type

import numpy as np
from numpy.typing import ArrayLike, NDArray

import posenc
import posenc.check

# ---- dtypes of values --------------------------------------------------------------------------------------

assert_type(posenc.encode(10, 8), NDArray[Any])
assert_type(posenc.encode(10, 8, dtype="bfloat16"), NDArray[Any])


def wrapper(
    positions: ArrayLike, dtype: str, out: NDArray[np.float64] | None, threads: int | None, **keywords: Any
) -> None:
    assert_type(posenc.encode(10, 8, dtype=dtype), NDArray[Any])
    assert_type(posenc.encode(positions, 8, out=out), NDArray[Any])
    posenc.encode(positions, 8, dtype=dtype, out=out, threads=threads, **keywords)
    posenc.stream(10, 8, chunk_rows=threads, dtype=dtype, out=out, threads=threads, **keywords)
    posenc.grid((10, 8), 8, dtype=dtype, out=out, threads=threads, **keywords)


bits = np.empty((10, 8), np.uint16)
mapped: "np.memmap[Any, np.dtype[np.float32]]" = np.memmap("table.bin", np.float32, "w+", shape=(10, 8))
assert_type(posenc.encode(10, 8, dtype="bfloat16", out=bits), NDArray[Any])
posenc.encode(10, 8, out=mapped)
assert_type(posenc.add_to(bits), np.ndarray[tuple[int, int], np.dtype[np.uint16]])
assert_type(posenc.add_to(mapped, range(10), x_scale=8**0.5), "np.memmap[Any, np.dtype[np.float32]]")

# ---- positions ---------------------------------------------------------------------------------------------

posenc.encode(np.int64(10), 8)
posenc.encode(range(10**18, 0, -(10**17)), np.int32(8))
posenc.encode(np.arange(10)[:, None] + np.arange(3), 8)
posenc.encode(None, 8)  # type: ignore[arg-type]
posenc.encode(10, 8.0)  # type: ignore[arg-type]

# ---- keywords ----------------------------------------------------------------------------------------------

posenc.encode(10, 8, base=1, layout="halves", odd="zero", shift=Fraction(1, 4), padding_idx=None)
posenc.encode(10, 8, frequencies=np.ones(4), threads=2)
posenc.encode(10, 8, bse=1)  # type: ignore[call-arg]
posenc.encode(10, 8, base="1")  # type: ignore[arg-type]
posenc.encode(10, 8, layout="half")  # type: ignore[arg-type]
assert_type(posenc.encode(10, 8, dtype=None, out=bits), NDArray[Any])
posenc.encode(10, 8, out=[0.0])  # type: ignore[arg-type]
posenc.add_to([1.0])  # type: ignore[type-var]
posenc.Encoding(8, bse=1)  # type: ignore[call-arg]
posenc.Encoding(8, order="tan")  # type: ignore[arg-type]

# ---- streams -----------------------------------------------------------------------------------------------

assert_type(posenc.stream(10, 8), Iterator[posenc.Chunk])
for chunk in posenc.stream(None, 8, chunk_rows=4, dtype=np.float64):
    assert_type(chunk.positions, range)
    assert_type(chunk.values, NDArray[Any])
    positions, values = chunk
    assert_type(values, NDArray[Any])
posenc.stream([1, 2], 8)  # type: ignore[arg-type]

# ---- Encoding ----------------------------------------------------------------------------------------------

encoding = posenc.Encoding(8, base=500.0)
assert_type(encoding.d_model, int)
assert_type(encoding.frequencies, NDArray[np.float64])
assert_type(encoding.encode(10), NDArray[Any])
assert_type(encoding.encode(10, dtype=np.float64, threads=1), NDArray[Any])
assert_type(encoding.add_to(mapped), "np.memmap[Any, np.dtype[np.float32]]")
assert_type(next(encoding.stream(dtype=np.float64)).values, NDArray[Any])
encoding.encode(10, base=1)  # type: ignore[call-arg]
encoding.frequencies = np.ones(4)  # type: ignore[misc]

# ---- other functions ---------------------------------------------------------------------------------------

assert_type(posenc.preset("fairseq", 8, scale=2.0), posenc.Encoding)
assert_type(posenc.presets()["whisper"], posenc.Preset)
assert_type(posenc.presets()["whisper"].parameters, dict[str, Any])
assert_type(posenc.grid((14, 14), 8), NDArray[Any])
posenc.grid([range(3), np.arange(4)], 8, dtype=np.float64, group="function", base=[1e4, 1e3])
posenc.grid(np.array([14, 14]), 8, coordinates=(-1, 1), include_input="first", out=bits)
posenc.grid((14, 14), 8, group="rows")  # type: ignore[arg-type]
posenc.grid((14, 14), encoding)
assert_type(posenc.points([[0.5, 2]], 8), NDArray[Any])
posenc.points(np.ones((4, 3, 2)), [encoding, encoding], dtype=np.float64, axes=(1, 0))
posenc.points(np.ones((4, 2)), 8, start=1, layout="half")  # type: ignore[arg-type]
assert_type(posenc.check.identify(posenc.encode(10, 8)), list[posenc.check.Match])
assert_type(posenc.check.identify(np.ones((3, 4)), range(3))[0].presets, tuple[str, ...])
assert_type(posenc.positions_from_mask([[1, 1, 0]]), NDArray[np.int64])
assert_type(posenc.positions_from_segments([1, 1, 2], start=[0]), NDArray[np.int64])
assert_type(posenc.positions_from_lengths(np.array([3, 2])), NDArray[np.int64])
assert_type(posenc.show_runtime(), dict[str, Any])
assert_type(posenc.save("table.npy", 10, encoding, dtype=np.float64, overwrite=True), int)
assert_type(posenc.open(Path("table.npy")).encoding, posenc.Encoding | None)
assert_type(posenc.verify(b"table.npy", positions=range(10), samples=None), int)
posenc.save("table.npy", 10, 8)  # type: ignore[arg-type]
