"""A value depends only on its position and column, not on the call's function, other positions, chunks, threads or output."""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, bits_of

STARTS = [0, 5, -300, 10**12 + 7, 2**63 - 1500, -(2**63)]
LENGTH = 1200                       # more than two blocks of rows
in_threads = pytest.mark.force_parallel_threads(4)      # requires pytest-run-parallel


@in_threads
@pytest.mark.parametrize("start", STARTS)
def test_slices_of_a_table(isa, dtype, start):
    whole = posenc.encode(range(start, start + LENGTH), 70, dtype=dtype)
    for a, b in [(0, 1), (1, 2), (31, 33), (500, 515), (3, LENGTH), (LENGTH - 2, LENGTH)]:
        assert_same_bits(posenc.encode(range(start + a, start + b), 70, dtype=dtype), whole[a:b])


@pytest.mark.parametrize("step", [2, 3, -1, -7, 1000, 10**9, 2**55])
def test_ranges_equal_single_positions(isa, dtype, step):
    positions = range(0, 600 * step, step) if step < 2**55 else range(-(2**62), 2**62, step)
    rows = posenc.encode(positions, 34, dtype=dtype)
    for i in (0, 1, len(positions) // 2, len(positions) - 1):
        assert_same_bits(rows[i], posenc.encode(np.array(positions[i]), 34, dtype=dtype))


@in_threads
def test_integers_integral_floats_and_the_range_agree(isa, dtype, d_model):
    n = 150
    expected = posenc.encode(range(-20, n), d_model, dtype=dtype)
    positions = np.arange(-20, n)
    for same in (positions, *map(positions.astype, (np.float64, np.float32, np.int16)), positions.tolist()):
        assert_same_bits(posenc.encode(same, d_model, dtype=dtype), expected)
    order = np.random.default_rng(0).permutation(len(positions))
    assert_same_bits(posenc.encode(positions[order], d_model, dtype=dtype), expected[order])
    assert_same_bits(posenc.encode(positions.reshape(2, -1), d_model, dtype=dtype), expected.reshape(2, -1, d_model))
    assert_same_bits(posenc.encode(range(n - 1, -21, -1), d_model, dtype=dtype), expected[::-1])


@in_threads
def test_the_number_of_threads_does_not_matter(isa, dtype):
    expected = posenc.encode(range(-3000, 3001), 65, dtype=dtype, threads=1)
    for threads in (2, 3, 7, 64, 10**9):
        assert_same_bits(posenc.encode(range(-3000, 3001), 65, dtype=dtype, threads=threads), expected)


@in_threads
@pytest.mark.parametrize("chunk", [1, 3, 32, 511, 5000])
def test_streams_equal_tables(isa, dtype, chunk):
    expected = posenc.encode(range(10, 4000, 3), 30, dtype=dtype)
    chunks = list(posenc.stream(range(10, 4000, 3), 30, dtype=dtype, chunk_rows=chunk))
    assert_same_bits(np.concatenate([c.values for c in chunks]), expected)
    assert [p for c in chunks for p in c.positions] == list(range(10, 4000, 3))
    buffer = np.empty((chunk, 30), expected.dtype)
    at = 0
    for c in posenc.stream(range(10, 4000, 3), 30, dtype=dtype, out=buffer):
        assert np.shares_memory(c.values, buffer)
        assert_same_bits(c.values, expected[at : at + len(c.values)])
        at += len(c.values)
    assert at == len(expected)


def test_out_may_have_any_strides(isa, dtype, d_model):
    n = 70
    expected = posenc.encode(n, d_model, dtype=dtype)
    views = {
        "wide rows": lambda memory: memory[:n, 5 : 5 + d_model],
        "every second row": lambda memory: memory[::2, :d_model],
        "reversed rows": lambda memory: memory[n - 1 :: -1, 3 : 3 + d_model],
        "not aligned to a cache line": lambda memory: memory.reshape(-1)[1 : 1 + n * d_model].reshape(n, d_model),
    }
    for name, view in views.items():
        memory, untouched = np.full((2 * n, d_model + 9), 7, expected.dtype), np.ones((2 * n, d_model + 9), bool)
        view(untouched)[...] = False
        out = view(memory)
        assert posenc.encode(n, d_model, dtype=dtype, out=out) is out
        assert_same_bits(np.ascontiguousarray(out), expected)
        assert (memory[untouched] == 7).all(), name


def test_out_may_have_more_dimensions(isa, dtype):
    positions = np.arange(24).reshape(2, 3, 4)
    expected = posenc.encode(positions, 10, dtype=dtype)
    out = np.empty((3, 2, 5, 10), expected.dtype).transpose(1, 0, 2, 3)[:, :, :4]
    assert posenc.encode(positions, 10, dtype=dtype, out=out) is out
    assert_same_bits(np.ascontiguousarray(out), expected)


@pytest.mark.parametrize("x_scale", [1.0, 22.62741699796952, -0.3, 1 / 3])
def test_add_to_is_multiply_and_add(isa, dtype, x_scale):
    rng = np.random.default_rng(1)
    n, d = 300, 45
    table = posenc.encode(n, d, dtype=dtype)
    x = rng.standard_normal((2, 3, n, d)).astype(table.dtype)
    factor = np.array(x_scale).astype(table.dtype)
    expected = x * factor + table
    assert expected.dtype == table.dtype
    transposed = np.ascontiguousarray(x.transpose(1, 0, 2, 3)).transpose(1, 0, 2, 3)
    for y in (x.copy(), transposed, np.repeat(x, 2, axis=2)[:, :, ::2]):
        assert posenc.add_to(y, x_scale=x_scale) is y
        assert_same_bits(np.ascontiguousarray(y), expected)
    y = x[0, 0].copy()
    posenc.add_to(y, n, x_scale=x_scale, threads=2)
    assert_same_bits(y, expected[0, 0])


@in_threads
def test_add_to_adds_the_rows_of_the_positions(isa, dtype):
    starts = np.array([0, 40, 7])
    positions = starts[:, None] + np.arange(50)
    expected_rows = posenc.encode(positions, 20, dtype=dtype)
    x = np.ones((3, 50, 20), expected_rows.dtype)
    assert_same_bits(posenc.add_to(x.copy(), positions), x + expected_rows)
    assert_same_bits(posenc.add_to(x.copy(), starts[:, None]), x + posenc.encode(starts[:, None], 20, dtype=dtype))
    assert_same_bits(posenc.add_to(x.copy(), np.arange(50)), x + posenc.encode(50, 20, dtype=dtype))
    assert_same_bits(posenc.add_to(x.copy(), range(9, 59)), x + posenc.encode(range(9, 59), 20, dtype=dtype))
    assert_same_bits(posenc.add_to(x[0, 0].copy(), np.array(3)), x[0, 0] + posenc.encode(np.array(3), 20, dtype=dtype))


def test_row_0_is_exactly_0_and_1(isa, dtype):
    row = bits_of(posenc.encode(1, 64, dtype=dtype))[0]
    one = bits_of(np.ones(1, posenc.encode(0, 0, dtype=dtype).dtype))[0]
    assert (row[::2] == 0).all()
    assert (row[1::2] == one).all()


def test_bfloat16_bits_are_written_to_uint16(isa):
    out = np.empty((40, 33), np.uint16)
    assert posenc.encode(40, 33, dtype="bfloat16", out=out) is out
    assert (out == bits_of(posenc.encode(40, 33, dtype="bfloat16"))).all()
