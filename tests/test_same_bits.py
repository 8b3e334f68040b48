"""One value per (position, column), whatever the route."""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, bits_of

STARTS = [0, 5, -300, 10**12 + 7, 2**63 - 1500, -(2**63)]
LENGTH = 1200                       # more than two blocks of rows
in_threads = pytest.mark.force_parallel_threads(4)      # at once, where pytest-run-parallel is installed


@in_threads
@pytest.mark.parametrize("start", STARTS)
def test_slice_of_a_table_is_the_table_of_the_slice(isa, dtype, start):
    whole = posenc.encode(range(start, start + LENGTH), 70, dtype=dtype)
    for a, b in [(0, 1), (1, 2), (31, 33), (500, 515), (3, LENGTH), (LENGTH - 2, LENGTH)]:
        assert_same_bits(posenc.encode(range(start + a, start + b), 70, dtype=dtype), whole[a:b])


@pytest.mark.parametrize("step", [2, 3, -1, -7, 1000, 10**9, 2**55])
def test_steps(isa, dtype, step):
    positions = range(0, 200 * step, step) if step < 2**55 else range(-(2**62), 2**62, step)
    rows = posenc.encode(positions, 34, dtype=dtype)
    for i in (0, 1, len(positions) // 2, len(positions) - 1):
        assert_same_bits(rows[i], posenc.encode(np.array(positions[i]), 34, dtype=dtype))


@in_threads
def test_integers_integral_floats_and_the_range_agree(isa, dtype, d_model):
    n = 150
    expected = posenc.encode(range(-20, n), d_model, dtype=dtype)
    positions = np.arange(-20, n)
    assert_same_bits(posenc.encode(positions, d_model, dtype=dtype), expected)
    assert_same_bits(posenc.encode(positions.astype(np.float64), d_model, dtype=dtype), expected)
    assert_same_bits(posenc.encode(positions.astype(np.float32), d_model, dtype=dtype), expected)
    assert_same_bits(posenc.encode(positions.astype(np.int16), d_model, dtype=dtype), expected)
    assert_same_bits(posenc.encode(positions.tolist(), d_model, dtype=dtype), expected)
    order = np.random.default_rng(0).permutation(len(positions))
    assert_same_bits(posenc.encode(positions[order], d_model, dtype=dtype), expected[order])
    assert_same_bits(posenc.encode(positions.reshape(2, -1), d_model, dtype=dtype), expected.reshape(2, -1, d_model))
    assert_same_bits(posenc.encode(range(n - 1, -21, -1), d_model, dtype=dtype), expected[::-1])


@in_threads
def test_threads(isa, dtype):
    expected = posenc.encode(range(-3000, 3001), 65, dtype=dtype, threads=1)
    for threads in (2, 3, 7, 64, 10**9):
        assert_same_bits(posenc.encode(range(-3000, 3001), 65, dtype=dtype, threads=threads), expected)


@in_threads
@pytest.mark.parametrize("chunk", [1, 3, 32, 511, 5000])
def test_stream(isa, dtype, chunk):
    expected = posenc.encode(range(10, 4000, 3), 30, dtype=dtype)
    chunks = list(posenc.stream(range(10, 4000, 3), 30, dtype=dtype, chunk=chunk))
    assert_same_bits(np.concatenate([c.values for c in chunks]), expected)
    assert [p for c in chunks for p in c.positions] == list(range(10, 4000, 3))
    buffer = np.empty((chunk, 30), expected.dtype)
    at = 0
    for c in posenc.stream(range(10, 4000, 3), 30, dtype=dtype, out=buffer):
        assert np.shares_memory(c.values, buffer)
        assert_same_bits(c.values, expected[at : at + len(c.values)])
        at += len(c.values)
    assert at == len(expected)


def test_out_of_any_layout(isa, dtype, d_model):
    n = 70
    expected = posenc.encode(n, d_model, dtype=dtype)
    room = np.zeros((2 * n, d_model + 9), expected.dtype)
    shifts = {
        "wide rows": room[:n, 5 : 5 + d_model],
        "every second row": room[::2, :d_model],
        "rows backwards": room[n - 1 :: -1, 3 : 3 + d_model],
        "unaligned to a cache line": np.zeros(n * d_model + 1, expected.dtype)[1:].reshape(n, d_model),
    }
    for name, out in shifts.items():
        untouched = np.ones(room.shape, bool)
        if np.shares_memory(room, out):
            room[:] = 7
            offset = (out.__array_interface__["data"][0] - room.__array_interface__["data"][0]) // room.itemsize
            marks = np.lib.stride_tricks.as_strided(
                untouched.reshape(-1)[offset:], out.shape, [s // room.itemsize for s in out.strides]
            )
            marks[:] = False
        assert posenc.encode(n, d_model, dtype=dtype, out=out) is out
        assert_same_bits(np.ascontiguousarray(out), expected)
        if np.shares_memory(room, out):
            assert (room[untouched] == 7).all(), name


def test_out_of_three_dimensions(isa, dtype):
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
def test_add_to_at_positions(isa, dtype):
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


def test_bfloat16_bits_into_uint16(isa):
    out = np.empty((40, 33), np.uint16)
    assert posenc.encode(40, 33, dtype="bfloat16", out=out) is out
    assert (out == bits_of(posenc.encode(40, 33, dtype="bfloat16"))).all()


@pytest.mark.parametrize("d_model", [510, 512])
def test_large_tables_take_another_way_to_memory(isa, dtype, d_model):
    """Beyond 8 MiB rows go past the caches, straight or by way of a stage."""
    expected = np.concatenate([c.values for c in posenc.stream(range(-7, 9000), d_model, chunk=500, dtype=dtype)])
    assert expected.nbytes > 8 << 20
    room = np.empty(expected.nbytes + 192, np.uint8)
    to_line = -room.ctypes.data % 64
    for shift in (to_line, to_line + 16, to_line + expected.itemsize):
        room[:] = 0xAA
        out = room[shift : shift + expected.nbytes].view(expected.dtype).reshape(expected.shape)
        posenc.encode(range(-7, 9000), d_model, dtype=dtype, out=out, threads=2)
        assert_same_bits(out, expected)
        assert (room[:shift] == 0xAA).all()
        assert (room[shift + expected.nbytes :] == 0xAA).all()
    wide = np.zeros((len(expected), d_model + 3), expected.dtype)
    posenc.encode(range(-7, 9000), d_model, dtype=dtype, out=wide[:, 1:-2])
    assert_same_bits(np.ascontiguousarray(wide[:, 1:-2]), expected)
    assert not wide[:, 0].any()
    assert not wide[:, -2:].any()
