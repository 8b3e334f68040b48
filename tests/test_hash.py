"""Hashes of many tables and rotated pairs, the same for every instruction set, compiler and processor.

The hashes must never change: the values are correctly rounded.  ``python tests/test_hash.py`` prints them
without pytest.
"""

import hashlib
import itertools
from unittest import mock

import numpy as np

import posenc
from posenc._arguments import arrays
from posenc._core import kernel

HASH = "297e0afc1d1c2cc0d5b7aaa31c94cdbf402d93d042777a3a9541d30324f6cf74"
ROTATION_HASH = "45c29f2827fa3d6647bc4a78a70bf70dfeeec9e98f7624382769e06b32d49711"

DTYPES = ["float64", "float32", "float16", "bfloat16"]
ROWS = 70                       # enough consecutive rows for an offset table


def integers(count, seed):
    """Return pseudo-random integers from the whole int64 range.

    They do not depend on the version of NumPy.
    """
    numbers = np.empty(count, np.int64)
    for i in range(count):
        seed = (seed * 6364136223846793005 + 1442695040888963407) % 2**64
        numbers[i] = (seed ^ seed >> 29) - 2**63
    return numbers


SCATTERED = integers(30, seed=1)
# positions at which a value in some column is close to 0, for d_model 6 and 512
NEAR_ZEROS = [1108341089274117551, 7178985671544356912, 6293441367398768353,
              385147166616854303, 2870424422792338166, 1970379210725671803]
FRACTIONAL = np.array(
    [0.1, -0.1, 1e-300, 5e-324, -5e-324, 2.0**51 + 0.5, 2.0**52 - 0.5, 1 / 3, 1e5 + 0.7, -1e15 - 0.3,
     2.0**63 - 1024]
    + [0.0, -0.0, np.nan, np.inf, -np.inf]
    + [int(p >> 11) * 2.0**-e for p, e in zip(SCATTERED[:12], range(0, 60, 5), strict=True)]
)
ACROSS_0, HIGHEST = range(-20, ROWS - 20), range(2**63 - ROWS, 2**63)
SPACED = [                      # the first is longer than a block
    range(530), ACROSS_0, range(-(10**12), -(10**12) + ROWS), range(2**62, 2**62 + ROWS),
    range(-(2**63), -(2**63) + ROWS), HIGHEST, range(100, 100 - 3 * ROWS, -3), range(7, 7 + 1000 * ROWS, 1000),
    range(-5, -5 + 2**40 * ROWS, 2**40), range(-(2**62), 2**62, 2**56),
]
WIDTHS = [1, 2, 3, 6, 11, 64, 510, 512]

CONVENTIONS = [                 # 1e-40 is subnormal in float32
    {"layout": "halves"}, {"order": "cos"}, {"odd": "zero"}, {"exponents": "column"}, {"spacing": "endpoint"},
    {"shift": 1.0}, {"scale": 22.6}, {"scale": -1.0}, {"scale": 1e-40}, {"scale": 1e-310}, {"base": 1e8},
    {"base": 2.0}, {"position_offset": 0.1}, {"position_scale": 1 / 3},
    {"frequency_scale": -100.0, "odd": "zero", "layout": "halves", "order": "cos", "exponents": "column"},
]
FREQUENCIES = [-1.5, 1e300, 5e-324, 0.0, 1 / 3, -1e-300]


def cases():
    """Yield the positions, d_model and convention of each table."""
    for d_model in WIDTHS:
        for positions in SPACED:
            yield positions, d_model, {}
        yield SCATTERED, d_model, {}
        yield FRACTIONAL, d_model, {}
    for d_model in (6, 512):
        yield np.array(NEAR_ZEROS + [-p for p in NEAR_ZEROS]), d_model, {}
        for p in NEAR_ZEROS:
            yield range(p - 3, p - 3 + ROWS), d_model, {}
    for d_model in (11, 64):
        for convention in CONVENTIONS:
            yield ACROSS_0, d_model, convention
            yield SCATTERED[:10], d_model, convention
            yield FRACTIONAL, d_model, convention
    for positions in (ACROSS_0, HIGHEST, SCATTERED[:10], FRACTIONAL):
        yield positions, 11, {"frequencies": FREQUENCIES}
        yield positions, 12, {"frequencies": FREQUENCIES, "position_scale": 1 / 3, "position_offset": 0.1,
                              "scale": -22.6}


def additions():
    """Yield the results of calls to add_to."""
    for dtype, fraction_bits in [("float64", 52), ("float32", 23), ("float16", 10)]:
        one = np.ones(1, dtype)
        unsigned = f"u{one.itemsize}"
        for d_model in (11, 64):
            noise = integers(2 * ROWS * d_model, seed=2).view(np.uint64) >> np.uint64(64 - fraction_bits)
            x = (one.view(unsigned) | noise.astype(unsigned)).view(dtype).reshape(2, ROWS, d_model)
            for x_scale, convention in [(1.0, {}), (22.6, {}), (-1 / 3, {"layout": "halves"}),
                                        (1e-5, {"scale": 1e-5})]:
                yield posenc.add_to(x.copy(), x_scale=x_scale, **convention)
                yield posenc.add_to(x[0].copy(), SCATTERED.repeat(3)[:ROWS], x_scale=x_scale, **convention)


def bits(values):
    """Return the bits of an array in little-endian byte order."""
    return np.ascontiguousarray(values).view(f"u{values.itemsize}").astype(f"<u{values.itemsize}").tobytes()


def rotation_hash():
    """Return the SHA-256 hash of rotated pairs, in hexadecimal."""
    digest = hashlib.sha256()
    for pairs, interleaved in itertools.product((1, 20, 64), (False, True)):
        turning = posenc.Rotary(2 * pairs, layout="interleaved" if interleaved else "halves")._rotation
        for dtype, mask in ("float32", 0x9FFFFFFF), ("float16", 0xBFFF), ("bfloat16", 0x9FFF):
            unsigned = np.uint32 if dtype == "float32" else np.uint16
            noise = integers(3 * ROWS * 2 * pairs, seed=3).view(np.uint64) >> np.uint64(32 if dtype == "float32" else 48)
            for positions in (range(-20, ROWS - 20), SCATTERED.repeat(3)[:ROWS]):
                x = (noise.astype(unsigned) & unsigned(mask)).reshape(3, ROWS, 2 * pairs)
                # take uint16 as the bits of a bfloat16, because ml_dtypes may not be installed
                viewed = x if dtype == "bfloat16" else x.view(dtype)
                with mock.patch.object(arrays, "dtype", return_value=(dtype, viewed.dtype)):
                    kernel.rotate(turning, viewed, positions, False, None, None)
                digest.update(bits(x))
    return digest.hexdigest()


def table_hash():
    """Return the SHA-256 hash of all tables and sums, in hexadecimal."""
    digest = hashlib.sha256()
    for positions, d_model, convention in cases():
        encoding = posenc.Encoding(d_model, **convention)
        for dtype in DTYPES:
            # if `out` is an array of uint16, bfloat16 does not need ml_dtypes
            out = np.empty((len(positions), d_model), np.uint16 if dtype == "bfloat16" else dtype)
            digest.update(bits(encoding.encode(positions, dtype=dtype, out=out)))
    for values in additions():
        digest.update(bits(values))
    return digest.hexdigest()


def test_the_hash_of_all_tables_is_unchanged(isa):
    assert table_hash() == HASH


def test_the_hash_of_rotated_pairs_is_unchanged(isa):
    assert rotation_hash() == ROTATION_HASH


if __name__ == "__main__":
    print(table_hash())
    print(rotation_hash())
    print(posenc.show_runtime())
