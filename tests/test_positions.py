"""The padding position: its row is zero by every route, and every other row is as without it."""

import pickle

import numpy as np
import pytest
from conftest import assert_same_bits, bits_of

import posenc
from posenc import Encoding
from reference import Reference

LOWEST, LIMIT = -(2**63), 2**63
# More than two blocks of rows; the padding position is at either end of a block, inside it, and outside of the table.
ROWS = 1200
INSIDE = [0, 1, 31, 32, 511, 512, 700, ROWS - 1]


def with_zero_row(table, positions, padding_idx):
    """What the convention says: the table without padding_idx, and zeros where the position equals it."""
    table = table.copy()
    table[np.array([p == padding_idx for p in positions], bool)] = 0
    return table


@pytest.mark.parametrize("positions, padding_idx", [
    (range(-5, 6), 1), (range(6, -6, -1), 0), (range(-7, 40, 3), 2), (range(LIMIT - 9, LIMIT), LIMIT - 1),
    (range(LOWEST, LOWEST + 40), LOWEST), (range(LOWEST, LIMIT, 2**60), 0), (np.array([3, -1, LOWEST, -1]), -1),
    (np.array([0.5, -0.0, 1e-300, np.nan, np.inf]), 0), (np.array([1.0, 2.0**53, 2.0**53 + 2]), 2**53),
    (np.array([2.0**53, 2.0**53 + 2]), 2**53 + 1), (np.array([2.0**63 - 1024, -(2.0**63)]), LIMIT - 1),
])
def test_values(isa, dtype, positions, padding_idx):
    for convention in ({}, {"layout": "halves", "scale": -2.0}, {"odd": "zero", "spacing": "endpoint"}, {"scale": 1e300}):
        convention["padding_idx"] = padding_idx
        expected = Reference(7, **convention).table(list(positions), dtype)
        np.testing.assert_array_equal(bits_of(posenc.encode(positions, 7, dtype=dtype, **convention)), expected)


@pytest.mark.parametrize("step", [1, 3, -1, -7, 2**49 + 1])
@pytest.mark.parametrize("d_model", [33, 64])
def test_range(isa, dtype, d_model, step):
    start = -(ROWS // 2) * step
    positions = range(start, start + ROWS * step, step)
    plain = posenc.encode(positions, d_model, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((2, *plain.shape)).astype(plain.dtype)
    beside = [positions[0] - step, positions[-1] + step, *([positions[9] + 1] if abs(step) > 1 else [])]
    for padding_idx in [positions[i] for i in INSIDE] + beside:
        expected = with_zero_row(plain, positions, padding_idx)
        assert_same_bits(posenc.encode(positions, d_model, dtype=dtype, padding_idx=padding_idx), expected)
        added = posenc.add_to(x.copy(), positions, x_scale=0.3, padding_idx=padding_idx)
        assert_same_bits(added, x * np.array(0.3).astype(x.dtype) + expected)


@pytest.mark.parametrize("rows", [1, 2, 3, 5, 31, 40, 70])
def test_few_rows(isa, dtype, rows):
    for padding_idx in range(-1, rows + 1):
        expected = with_zero_row(posenc.encode(rows, 10, dtype=dtype), range(rows), padding_idx)
        assert_same_bits(posenc.encode(rows, 10, dtype=dtype, padding_idx=padding_idx), expected)
        assert_same_bits(posenc.encode(rows, 10, dtype=dtype, padding_idx=padding_idx, threads=1), expected)
        x = np.ones_like(expected)
        assert_same_bits(posenc.add_to(x.copy(), padding_idx=padding_idx), x + expected)


def test_every_route_agrees(isa, dtype):
    positions = range(-20, 130)
    convention = {"padding_idx": 45}
    expected = posenc.encode(positions, 34, dtype=dtype, **convention)
    assert not bits_of(expected[65]).any()
    assert bits_of(expected).any(axis=1).sum() == len(positions) - 1
    many = np.array(positions)
    for array in (many, many.astype(np.int16), many.astype(np.float64), many.astype(np.float16), many.reshape(3, 50)):
        assert_same_bits(posenc.encode(array, 34, dtype=dtype, **convention).reshape(expected.shape), expected)
    assert_same_bits(posenc.encode(np.array(45), 34, dtype=dtype, **convention), expected[65])
    assert_same_bits(posenc.encode(positions[::-1], 34, dtype=dtype, **convention), expected[::-1])
    for chunk in (1, 7, 66, 1000):
        chunks = [c.values for c in posenc.stream(positions, 34, chunk=chunk, dtype=dtype, **convention)]
        assert_same_bits(np.concatenate(chunks), expected)
    out = np.empty((len(positions), 40), expected.dtype)[::-1, 3:37]
    assert_same_bits(np.ascontiguousarray(posenc.encode(positions, 34, dtype=dtype, out=out, **convention)), expected)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads(isa, dtype, threads):
    expected = with_zero_row(posenc.encode(6000, 65, dtype=dtype), range(6000), 2048)
    assert_same_bits(posenc.encode(6000, 65, dtype=dtype, padding_idx=2048, threads=threads), expected)


def test_large_table_past_the_caches(isa, dtype):
    for d_model in (510, 512):
        plain = posenc.encode(9000, d_model, dtype=dtype)
        assert plain.nbytes > 8 << 20
        assert_same_bits(posenc.encode(9000, d_model, dtype=dtype, padding_idx=1), with_zero_row(plain, range(9000), 1))


def test_add_to_at_positions(isa, dtype):
    positions = np.array([[1, 2, 3, 4], [0, 0, 1, 2], [4, 1, 0, 9]])
    expected = posenc.encode(positions, 12, dtype=dtype)
    expected[positions == 0] = 0
    x = np.random.default_rng(1).standard_normal((5, *expected.shape)).astype(expected.dtype)
    for given in (positions, positions.astype(np.float64)):
        added = posenc.add_to(x.copy(), given, x_scale=3.7, padding_idx=0)
        assert_same_bits(added, x * np.array(3.7).astype(x.dtype) + expected)


def test_compares_before_the_offset(isa, dtype):
    for positions in (range(100), np.arange(100), np.arange(100.0)):
        expected = with_zero_row(posenc.encode(positions, 8, dtype=dtype, position_offset=3.5), positions, 40)
        assert_same_bits(posenc.encode(positions, 8, dtype=dtype, position_offset=3.5, padding_idx=40), expected)


def test_is_part_of_the_convention():
    a, b, c = Encoding(8, padding_idx=1), Encoding(8, padding_idx=np.int8(1)), Encoding(8, padding_idx=0)
    assert a == b != c != Encoding(8) != a
    assert hash(a) == hash(b)
    assert repr(b) == "Encoding(8, padding_idx=1)"
    assert pickle.loads(pickle.dumps(c)) == c
    assert not pickle.loads(pickle.dumps(c)).encode(1).any()
    assert Encoding(8, padding_idx=None) == Encoding(8)


@pytest.mark.parametrize("padding_idx, error, message", [
    (True, TypeError, "padding_idx is a bool"), (1.0, TypeError, "padding_idx is 1.0 of type float"),
    ("1", TypeError, "padding_idx"), ([1], TypeError, "padding_idx"),
    (2**63, ValueError, r"padding_idx is 9223372036854775808, expected -2\*\*63 <="),
    (-(2**63) - 1, ValueError, r"padding_idx is -9223372036854775809, expected -2\*\*63 <="),
])
def test_bad_padding_idx(padding_idx, error, message):
    with pytest.raises(error, match=message):
        Encoding(8, padding_idx=padding_idx)
