"""A value depends only on its position and column, not on the call's function, other positions, chunks,
threads or output.
"""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits

STARTS = [0, 5, -300, 10**12 + 7, 2**63 - 1500, -(2**63)]
LENGTH = 1200                       # more than two blocks of rows
in_threads = pytest.mark.force_parallel_threads(4)      # requires pytest-run-parallel


@in_threads
@pytest.mark.parametrize("start", STARTS)
def test_slices_of_a_table(isa, dtype, start):
    whole = posenc.encode(range(start, start + LENGTH), 70, dtype=dtype)
    for a, b in [(0, 1), (1, 2), (31, 33), (500, 515), (3, LENGTH), (LENGTH - 2, LENGTH)]:
        assert_same_bits(posenc.encode(range(start + a, start + b), 70, dtype=dtype), whole[a:b])


@in_threads
def test_integers_integral_floats_and_the_range_agree(isa, dtype, d_model):
    n = 150
    expected = posenc.encode(range(-20, n), d_model, dtype=dtype)
    positions = np.arange(-20, n)
    for same in (positions, *map(positions.astype, (np.float64, np.float32, np.int16)), positions.tolist()):
        assert_same_bits(posenc.encode(same, d_model, dtype=dtype), expected)
    order = np.random.default_rng(0).permutation(len(positions))
    assert_same_bits(posenc.encode(positions[order], d_model, dtype=dtype), expected[order])
    assert_same_bits(posenc.encode(positions.reshape(2, -1), d_model, dtype=dtype),
                     expected.reshape(2, -1, d_model))
    assert_same_bits(posenc.encode(range(n - 1, -21, -1), d_model, dtype=dtype), expected[::-1])


@in_threads
def test_the_number_of_threads_does_not_matter(isa, dtype):
    for positions in (range(-3000, 3001), np.random.default_rng(1).integers(-(2**63), 2**63, 3000)):
        expected = posenc.encode(positions, 65, dtype=dtype, threads=1)
        for threads in (2, 3, 7, 64, 10**30):
            assert_same_bits(posenc.encode(positions, 65, dtype=dtype, threads=threads), expected)


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
