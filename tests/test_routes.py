"""No output mode and no method of evaluation changes a bit of the table or a byte outside of it."""

import numpy as np
import pytest

import posenc
from conftest import DTYPES, assert_same_bits, bits_of

LARGE = 9 << 20                         # bytes of a table that is written with non-temporal stores
FEW = 3                                 # too few rows for an offset table


def by_few_rows(positions, d_model, **keywords):
    parts = [posenc.encode(positions[i : i + FEW], d_model, **keywords)
             for i in range(0, len(positions), FEW)]
    return np.concatenate(parts)


def framed(rows, row_bytes, stride, past, element):
    """Return memory filled with 0xFF, an array in it that starts `past` bytes into a cache line, and the
    array's offset.
    """
    memory = np.full(rows * stride + 256, 0xFF, np.uint8)
    first = -memory.ctypes.data % 64 + 64 + past
    shape, strides = (rows, row_bytes // element.itemsize), (stride, element.itemsize)
    return memory, np.ndarray(shape, element, memory, first, strides), first


# ---- output modes ------------------------------------------------------------------------------------------


# d_model, start of the first row in a cache line in bytes (None: one element before its end), elements
# between two rows
@pytest.mark.parametrize("d_model, past, gap", [
    (32, 0, 0), (32, None, 0), (48, 16, 0), (100, 0, 0), (100, None, 2), (512, 0, 64), (512, 16, 0),
    (1100, 0, 0), (1100, 16, 2), (2048, 0, 0), (2048, 16, 0),
])
def test_large_tables_with_any_alignment(isa, dtype, d_model, past, gap):
    """Test rows with any alignment to cache lines, with and without elements between them.

    The signs of the columns differ, and the first sine of each row is near 0, and uncertain.
    """
    frequencies = np.array(posenc.Encoding(d_model).frequencies)
    frequencies[::3] *= -1
    frequencies[0] = np.pi
    encoding = posenc.Encoding(d_model, frequencies=frequencies)
    element = np.dtype(np.uint16) if dtype == "bfloat16" else np.dtype(dtype)
    row_bytes = d_model * element.itemsize
    rows, stride = LARGE // row_bytes + 7, row_bytes + gap * element.itemsize
    memory, out, first = framed(rows, row_bytes, stride, 64 - element.itemsize if past is None else past,
                                element)
    positions = range(-5, rows - 5)
    posenc.encode(positions, encoding, dtype=dtype, out=out, threads=2)
    half = len(positions) // 2
    for part in (slice(0, 80), slice(half, half + 80), slice(rows - 80, rows)):
        np.testing.assert_array_equal(bits_of(out[part]),
                                      bits_of(by_few_rows(positions[part], encoding, dtype=dtype)))
    # aligned to a cache line
    assert (bits_of(out) == bits_of(posenc.encode(positions, encoding, dtype=dtype))).all()
    end = first + rows * stride
    for untouched in (memory[:first], memory[first:end].reshape(rows, stride)[:, row_bytes:], memory[end:]):
        assert (untouched == 0xFF).all()


@pytest.mark.parametrize("d_model, past", [(100, 0), (100, 16), (512, 16)])
def test_large_reversed_tables_with_padding(isa, dtype, d_model, past):
    element = np.dtype(np.uint16) if dtype == "bfloat16" else np.dtype(dtype)
    rows = LARGE // (d_model * element.itemsize) + 3
    _, out, _ = framed(rows, d_model * element.itemsize, d_model * element.itemsize, past, element)
    # position 200 has the angle 0
    keywords = {"dtype": dtype, "padding_idx": 100, "position_offset": -200}
    expected = posenc.encode(range(rows), d_model, **keywords)
    posenc.encode(range(rows - 1, -1, -1), d_model, out=out, **keywords)
    np.testing.assert_array_equal(bits_of(out[::-1]), bits_of(expected))
    posenc.encode(range(rows), d_model, out=out[::-1], **keywords)
    np.testing.assert_array_equal(bits_of(out[::-1]), bits_of(expected))
    assert not expected[100].astype(float).any() and (expected[200].astype(float) == np.arange(d_model) % 2).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(8, 128), (64, 512), (5000, 512)])
def test_new_arrays_are_aligned_to_cache_lines(dtype, shape):
    table = posenc.encode(*shape, dtype=dtype)
    assert table.ctypes.data % 64 == 0 or table.nbytes < 4096
    assert table.shape == shape and table.flags.c_contiguous and table.flags.writeable and type(table) is np.ndarray


@pytest.mark.parametrize("sign", [1, -1])
def test_sines_far_smaller_than_the_terms_of_their_sums(isa, dtype, sign):
    encoding = posenc.Encoding(64, frequencies=sign * np.pi / 100 * np.arange(1, 33))
    positions = range(100, 1600)
    assert_same_bits(posenc.encode(positions, encoding, dtype=dtype), by_few_rows(positions, encoding, dtype=dtype))


# ---- positions as arrays -----------------------------------------------------------------------------------


RUNS = {
    "tiled": np.tile(np.arange(200), 3), "tiled, reversed": np.tile(np.arange(200), 3)[::-1],
    "packed": posenc.positions_from_lengths([70, 1, 0, 3, 150, 64, 2]),
    "padded on the left": posenc.positions_from_mask(np.arange(90) >= np.array([[0], [30], [89]])).ravel(),
    "steps of 3": np.tile(np.arange(-900, 0, 3), 2),
    "up and down": np.concatenate([np.arange(100), np.arange(100, 0, -1)] * 2),
    "both ends of int64": np.concatenate(
        [np.arange(2**63 - 60, 2**63 - 1), [2**63 - 1], np.arange(-(2**63), -(2**63) + 60)]).astype(np.int64),
    "runs and single positions": np.concatenate([np.arange(40), [10**15, -7, 10**9], np.arange(500, 560),
                                                 [3, 3, 3]]),
    "evenly spaced": np.arange(-50, 4200, 7), "integral reals": np.tile(np.arange(100.0), 3),
    "other reals": np.arange(100) + 0.5,
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("d_model", [48, 70])
def test_runs_in_position_arrays(isa, dtype, d_model, name):
    positions = RUNS[name]
    expected = by_few_rows(positions, d_model, dtype=dtype)
    assert_same_bits(posenc.encode(positions, d_model, dtype=dtype), expected)
    assert_same_bits(posenc.encode(positions, d_model, dtype=dtype, threads=2), expected)
    x = np.ones((len(positions), d_model), expected.dtype)
    added = np.concatenate([posenc.add_to(x[i : i + 1].copy(), positions[i : i + 1])
                            for i in range(len(positions))])
    assert_same_bits(posenc.add_to(x, positions), added)


def walks(rows):
    """Return every way to go up and down by one, ``rows - 1`` times, from a start that makes 0 the lowest
    number.
    """
    up = np.arange(2 ** (rows - 1))[:, None] >> np.arange(rows - 1) & 1
    numbers = np.concatenate([np.zeros_like(up[:, :1]), np.cumsum(2 * up - 1, axis=1)], axis=1)
    return numbers - numbers.min(axis=1, keepdims=True)


@pytest.mark.parametrize("exponent", [
    47, 49, 51, *range(58, 64), *(pytest.param(e, marks=pytest.mark.long) for e in (48, 50, *range(52, 58))),
])
def test_large_steps_up_and_down(exponent):
    """The distance between the first and the last position is, modulo 2**64, also that of positions that do
    not turn around.
    """
    def positions_of(numbers):
        # from -2**63 on
        return (numbers.astype(np.uint64) * np.uint64(2**exponent) + np.uint64(2**63)).view(np.int64)

    def gaps(shape, fill=0.0):
        # gaps cause a separate job for each array
        return np.full((shape[0], shape[1] + 1, shape[2]), fill)[:, :-1]

    rotary = posenc.Rotary(2)
    single = np.concatenate([posenc.encode(positions_of(np.array([n])), 2, dtype="float64")
                             for n in range(12)])
    x = np.ones((12, 2), np.float32)
    rotated = np.concatenate([rotary.rotate(x[:1].copy(), positions_of(np.array([n]))) for n in range(12)])
    for rows in range(2, 13):
        numbers = walks(rows)
        numbers = numbers[numbers.max(axis=1) << exponent < 2**64]
        positions, expected = positions_of(numbers), single[numbers]
        assert_same_bits(posenc.encode(positions, 2, dtype="float64", out=gaps(expected.shape)), expected)
        assert_same_bits(posenc.add_to(gaps(expected.shape, 1.0), positions), 1 + expected)
        cosines, sines = rotary.tables(positions, dtype="float64", out=gaps(expected.shape))
        assert_same_bits(np.concatenate([sines, cosines], axis=-1), expected)
    for row, where in zip(positions, numbers, strict=True):
        assert_same_bits(rotary.rotate(x.copy(), row), rotated[where])
    # real numbers become integers if there are 32 or more
    numbers = np.arange(max(2 ** (64 - exponent), 32) + 1) % 2
    for positions in (positions_of(numbers), positions_of(numbers).astype(np.float64)):
        assert_same_bits(posenc.encode(positions, 2, dtype="float64"), single[numbers])


def test_runs_in_a_large_batch(isa):
    positions = np.tile(np.arange(700), (16, 1))
    assert_same_bits(posenc.encode(positions, 384), np.stack([posenc.encode(700, 384)] * 16))


# ---- rows of known values ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "convention", [{}, {"position_offset": 5.0}, {"scale": -0.3}, {"scale": 1 + 2.0**-24}, {"order": "cos"}],
    ids=str)
def test_rows_through_angle_zero(isa, dtype, convention):
    positions = range(-90, 90)
    expected = by_few_rows(positions, 34, dtype=dtype, **convention)
    table = posenc.encode(positions, 34, dtype=dtype, **convention)
    assert_same_bits(table, expected)
    row = table[90 - int(convention.get("position_offset", 0))].astype(float)
    cosine = row[1 - (convention.get("order") == "cos") :: 2]
    assert (row[convention.get("order") == "cos" :: 2] == 0).all() and len(set(cosine)) == 1 and cosine[0] != 0


# ---- dtypes ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", DTYPES)
def test_dtype_defaults_to_that_of_out(dtype):
    expected = posenc.encode(5, 6, dtype=dtype)
    out = np.zeros_like(expected)
    for keywords in {}, {"dtype": None}:
        assert_same_bits(posenc.encode(5, 6, out=out, **keywords), expected)
        assert_same_bits(posenc.encode(np.arange(5), 6, out=out, **keywords), expected)
        assert_same_bits(posenc.encode(list(range(5)), 6, out=out, **keywords), expected)
        assert_same_bits(next(posenc.stream(9, 6, out=out, **keywords)).values, expected)
        assert_same_bits(posenc.grid((5,), 6, out=out, **keywords), expected)
        assert_same_bits(posenc.points(np.arange(5.0)[:, None], 6, out=out, **keywords), expected)
        for rotary, positions in (posenc.Rotary(6), 5), (posenc.Rotary(6, axes=[0, 1, 0]),
                                                         [range(5), range(5)]):
            posenc.Rotary.tables(rotary, positions, out=out, **keywords)
            assert_same_bits(out, posenc.encode(5, 6, order="cos", layout="halves", dtype=dtype))
        tables = [posenc.encode(5, 6, **keywords), next(posenc.stream(5, 6, **keywords)).values,
                  posenc.grid((5,), 6, **keywords), posenc.points([[0.0]], 6, **keywords),
                  *posenc.Rotary(6).tables(5, **keywords)]
        assert {table.dtype for table in tables} == {np.dtype(np.float32)}


def test_kept_tables_serve_one_scale():
    """The products with a power of two are exact."""
    for positions in (np.random.default_rng(7).integers(-(2**40), 2**40, 200), np.arange(500)):
        table = posenc.encode(positions, 70)
        for scale in (2.0, 0.5):
            assert_same_bits(posenc.encode(positions, 70, scale=scale), np.float32(scale) * table)
