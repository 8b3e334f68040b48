"""add_to multiplies x by the rounded scale and adds the table's values, each rounded once, in every entry."""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits

in_threads = pytest.mark.force_parallel_threads(4)      # requires pytest-run-parallel


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
    positions_first = np.ascontiguousarray(x.transpose(2, 0, 1, 3)).transpose(1, 2, 0, 3)
    for y in (x.copy(), transposed, positions_first, np.repeat(x, 2, axis=2)[:, :, ::2]):
        assert posenc.add_to(y, x_scale=x_scale) is y
        assert_same_bits(np.ascontiguousarray(y), expected)
    y = x[0, 0].copy()
    posenc.add_to(y, n, x_scale=x_scale, threads=2)
    assert_same_bits(y, expected[0, 0])


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("rows", [1, 65, 700])
def test_every_batch_entry_is_added_to_once(threads, rows):
    # a block of directly evaluated rows has 64 batch entries
    batch = 200
    table = posenc.encode(rows, 33)
    x = np.random.default_rng(2).standard_normal((batch, rows, 33), np.float32)
    expected = x + table
    assert_same_bits(posenc.add_to(x, threads=threads), expected)
    scattered = np.random.default_rng(3).permutation(rows)
    expected = x + table[scattered]
    assert_same_bits(posenc.add_to(x, scattered, threads=threads), expected)
