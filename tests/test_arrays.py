"""Arrays of positions: every way to compute a row gives the bits of the reference.

Rows are copied from the table of a small span, computed in runs, or are products of tables for the digits of
the position in base 64, which are built after 64 rows; narrow and other rows are evaluated directly.  Narrow rows
of a range share tiles.
"""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits
from test_encode import CONVENTIONS, assert_correct, some_columns

ROWS = 400


def arrays(rng, rows):
    """Return arrays of positions, by name."""
    bits = rng.integers(1, 62, rows)
    integers = {f"digits below 2**{k}": rng.integers(-(2**k), 2**k, rows) for k in (6, 14, 17, 24, 41, 61)}
    mixed = rng.integers(0, 2**62, rows) >> bits
    irregular = np.where(rng.random(rows) < 0.3, mixed, np.arange(rows))
    return integers | {
        "all magnitudes": mixed * rng.choice([-1, 1], rows), "a span": 10**9 + rng.integers(0, 50, rows),
        "a span and others": np.where(rng.random(rows) < 0.1, mixed, rng.integers(0, 50, rows)),
        "runs": np.concatenate([np.arange(rows // 2) + 10**12, 500 - np.arange(rows - rows // 2)]),
        "runs and others": irregular, "repeated": np.repeat(mixed[: rows // 8], 8),
        "multiples of 64": 64 ** rng.integers(0, 10, rows) * rng.integers(-63, 64, rows),
        "reals": rng.uniform(-1000, 1000, rows), "reals below 1": rng.random(rows),
        "reals of all magnitudes": rng.choice([-1, 1], rows) * 2.0 ** rng.uniform(-60, 60, rows),
        "halves": mixed % 2**40 / 2, "64ths": rng.integers(-(2**20), 2**20, rows) / 64,
        "NaN and others": np.where(rng.random(rows) < 0.2, np.nan, rng.normal(0, 100, rows)),
    }


NAMES = list(arrays(np.random.default_rng(0), 16))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("d_model", [1, 5, 8, 17, 128, 260])
def test_arrays_are_correct(isa, dtype, d_model, name):
    rng = np.random.default_rng([d_model, NAMES.index(name)])
    positions = arrays(rng, ROWS)[name]
    # the bits do not depend on the number of rows, so the reference computes only some of them
    some = np.sort(rng.choice(ROWS, 20, replace=False))
    for convention in ({}, {"layout": "halves", "position_offset": 0.3}):
        table = posenc.encode(positions, d_model, dtype=dtype, **convention)
        assert_same_bits(table[some], posenc.encode(positions[some], d_model, dtype=dtype, **convention))
        assert_correct(positions[some], d_model, dtype, some_columns(rng, d_model, 2), **convention)
        added = np.zeros_like(table)
        posenc.add_to(added, positions, **convention)
        assert_same_bits(added, np.zeros_like(table) + table)


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_many_rows_of_arrays_are_correct(isa, dtype, name):
    """With all dtypes and AVX2, these are 2.2 million values."""
    rng = np.random.default_rng(NAMES.index(name))
    for d_model, rows in ((2, 1000), (8, 2000), (64, 2000), (512, 2000)):
        assert_correct(arrays(rng, rows)[name], d_model, dtype, some_columns(rng, d_model, 2)[:4])


@pytest.mark.parametrize("d_model", range(1, 18))
def test_narrow_ranges_are_correct(isa, dtype, d_model):
    """The position 0 and the padding position divide the rows, which are enough for an offset table."""
    columns, convention = [0, d_model // 2, d_model - 1], {"padding_idx": 99}
    for positions in (range(-1100, 200), range(1200, -100, -1)):
        table = posenc.encode(positions, d_model, dtype=dtype, **convention)
        assert_correct(positions, d_model, dtype, columns, **convention)
        for offset in (0.5, 1e-9):                  # the second one exceeds 64 bits
            assert_correct(positions, d_model, dtype, columns[-1:], position_offset=offset)
        x = np.zeros((3, len(positions), d_model + 2), table.dtype)
        posenc.add_to(x[..., :d_model], positions, **convention)
        assert_same_bits(x[..., :d_model], np.stack([table + np.zeros_like(table)] * 3))
        assert not x[..., d_model:].any()
        posenc.encode(positions, out=x[0, :, :d_model], d_model=d_model, **convention)
        assert_same_bits(x[0, :, :d_model], table)


@pytest.mark.parametrize("d_model", [1, 4, 7, 16])
def test_narrow_ranges_with_large_steps(isa, dtype, d_model):
    """Rows in another order are evaluated directly."""
    order = np.random.default_rng(d_model).permutation(17_000)
    for step in (3600 * 10**9, -7):
        positions = range(10**15, 10**15 + 17_000 * step, step)
        table = posenc.encode(positions, d_model, dtype=dtype)
        assert_same_bits(table[order], posenc.encode(np.array(positions)[order], d_model, dtype=dtype))


@pytest.mark.parametrize("d_model", [2, 5, 8, 12, 16, 24])
def test_large_tables_of_narrow_rows(isa, dtype, d_model):
    """Non-temporal stores write whole cache lines, which begin and end inside of rows."""
    rng, memory = np.random.default_rng(d_model), posenc.encode(2**22 // d_model + 5000, d_model, dtype=dtype).ravel()
    rows = (2**23 // memory.itemsize + 4999) // d_model
    for first in (0, 3):
        table = memory[first:][: rows * d_model].reshape(rows, d_model)
        posenc.encode(range(-5, rows - 5), out=table, d_model=d_model)
        some = rng.integers(0, rows, 2000)
        assert_same_bits(table[some], posenc.encode(some - 5, d_model, dtype=dtype))


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
@pytest.mark.parametrize("rows", [150, pytest.param(1500, marks=pytest.mark.long)])
def test_arrays_of_every_convention_are_correct(isa, dtype, convention, rows):
    rng = np.random.default_rng(rows)
    d_model = {5: 11, 6: 12, 11: 11, 12: 12}[len(convention.get("frequencies") or convention.get("periods") or range(6))]
    for positions in (rng.integers(-(2**40), 2**40, rows), rng.normal(0, 50, rows)):
        assert_correct(positions, d_model, dtype, [0, 5, 10], **convention)


@pytest.mark.parametrize("d_model", [1, 3, 11, 35, 131])
@pytest.mark.parametrize("convention",
                         [{"odd": "zero"}, {"position_scale": 0.0}, {"odd": "zero", "scale": -2.0}], ids=str)
def test_zeros_of_frequency_0_are_positive(isa, dtype, d_model, convention):
    zeros = [d_model - 1] if "odd" in convention else range(0, d_model, 2)
    for positions in (-np.arange(1, 400) ** 2, np.arange(-300, 100) * 1.5):
        table = posenc.encode(positions, d_model, dtype=dtype, **convention)[:, zeros].astype(np.float64)
        assert not table.any() and not np.signbit(table).any()


@pytest.mark.parametrize("name", NAMES)
def test_additions_have_the_same_bits(isa, dtype, name):
    rng = np.random.default_rng(NAMES.index(name))
    positions = arrays(rng, ROWS)[name]
    for d_model in (8, 70):
        x = rng.normal(size=(ROWS, d_model)).astype(np.float32)
        x = posenc.encode(ROWS, d_model, dtype=dtype) if dtype == "bfloat16" else x.astype(dtype)
        expected = posenc.encode(positions, d_model, dtype=dtype) + x
        assert_same_bits(posenc.add_to(x, positions), expected)


@pytest.mark.parametrize("kind", ["range", "span", "digits", "reals", "batch"])
def test_add_to_leaves_padding_rows(isa, dtype, kind):
    """The rows of x at the padding position keep their bits, such as -0."""
    rng = np.random.default_rng(5)
    positions = {"range": np.arange(200), "span": rng.integers(0, 60, 200),
                 "digits": rng.integers(0, 3, 200) * 10**9 + 7,
                 "reals": rng.integers(0, 40, 200) / 2, "batch": np.arange(100)}[kind]
    padding = int(positions[-7])
    x = -posenc.encode(np.zeros((2, 100) if kind == "batch" else 200), 70, dtype=dtype, scale=0.0)
    before = x.copy()
    posenc.add_to(x, positions, padding_idx=padding)
    assert_same_bits(x[..., positions == padding, :], before[..., positions == padding, :])
    x = posenc.add_to(before.copy(), positions, x_scale=2.0, padding_idx=padding)
    assert not x[..., positions == padding, :].any()
