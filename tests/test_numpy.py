"""posenc against the usual recipe in NumPy: the same tables, within the recipe's own error.

The other tests compare bits with an exact reference; these tests are for readers.
"""

import numpy as np
import pytest

import posenc

N, POSITIONS = 300, {"from 0": range(300), "far": range(10**6, 10**6 + 300), "backward": range(299, -1, -1)}
CONVENTIONS = [{}, {"layout": "halves"}, {"order": "cos", "base": 100.0}, {"layout": "halves", "order": "cos"}]


def recipe(positions, d_model, layout="interleaved", order="sin", base=10000.0):
    """Return the table in ten lines of NumPy, in float64."""
    pairs = (d_model + 1) // 2
    angles = np.asarray(positions, np.float64)[:, None] * base ** (-2 * np.arange(pairs) / d_model)
    functions = [np.sin(angles), np.cos(angles)] if order == "sin" else [np.cos(angles), np.sin(angles)]
    if layout == "halves":
        return np.concatenate(functions, axis=1)[:, :d_model]
    return np.stack(functions, axis=2).reshape(len(positions), 2 * pairs)[:, :d_model]


def error(positions, dtype):
    """Return the largest error of the recipe, and of rounding to the dtype.

    A frequency has about 52 correct bits, because `base ** x` is not correctly rounded; the product with the
    position rounds again, and so do sine and cosine.
    """
    return np.finfo(dtype).eps / 2 + 8 * np.finfo(np.float64).eps * max(1, *map(abs, positions))


def assert_close(table, expected, positions):
    __tracebackhide__ = True
    assert table.shape == expected.shape
    assert abs(table.astype(np.float64) - expected).max() <= error(positions, table.dtype)


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d_model", [1, 2, 7, 64, 511, 512])
@pytest.mark.parametrize("positions", POSITIONS.values(), ids=POSITIONS)
def test_encode(positions, d_model, dtype, convention):
    expected = recipe(positions, d_model, **convention)
    assert_close(posenc.encode(positions, d_model, dtype=dtype, **convention), expected, positions)
    out = posenc.encode(np.array(positions), d_model, out=np.empty((N, d_model), dtype), **convention)
    assert_close(out, expected, positions)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(N, 64), (2, N, 64), (2, 3, N, 7)], ids=str)
def test_add_to(shape, dtype):
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    expected = 3 * x.astype(np.float64) + recipe(range(N), shape[-1])
    before = x.copy()
    assert posenc.add_to(x, x_scale=3.0) is x
    # the product and the sum are rounded, too
    bound = error(range(N), dtype) + 2 * np.finfo(dtype).eps * (3 * abs(before).max() + 1)
    assert abs(x - expected).max() <= bound


@pytest.mark.parametrize("chunk_rows", [1, 7, 300, 1000])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_stream(chunk_rows, dtype):
    chunks = list(posenc.stream(N, 64, chunk_rows=chunk_rows, dtype=dtype))
    assert [p for chunk in chunks for p in chunk.positions] == list(range(N))
    for chunk in chunks:
        assert_close(chunk.values, recipe(chunk.positions, 64), chunk.positions)


@pytest.mark.parametrize("layout", ["interleaved", "halves"])
def test_rotate(layout):
    """Each pair (a, b) becomes (a cos - b sin, b cos + a sin)."""
    x = np.random.default_rng(1).standard_normal((2, N, 64), np.float32)
    table = recipe(range(N), 64)
    sin, cos = table[:, 0::2], table[:, 1::2]
    a, b = (slice(0, 32), slice(32, 64)) if layout == "halves" else (slice(0, 64, 2), slice(1, 64, 2))
    expected = np.empty(x.shape)
    expected[..., a] = x[..., a] * cos - x[..., b] * sin
    expected[..., b] = x[..., b] * cos + x[..., a] * sin
    posenc.Rotary(64, layout=layout).rotate(x)
    assert abs(x - expected).max() <= 2 * error(range(N), x.dtype) * abs(expected).max()
