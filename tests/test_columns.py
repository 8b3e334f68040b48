"""Columns from pandas, polars and Arrow: 64-bit integers stay exact, and nulls are refused.

NumPy converts an integer column with nulls to float64; this conversion would change large positions.
"""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits

pd = pytest.importorskip("pandas")
pl = pytest.importorskip("polars")
pa = pytest.importorskip("pyarrow")

LARGE = [1_700_000_000_000_000_001, 2**62 + 1, 3, 0]
COLUMNS = {
    "pandas": lambda v: pd.Series(v, dtype="Int64"),
    "pandas, unsigned": lambda v: pd.Series(v, dtype="UInt64"),
    "pandas, Arrow": lambda v: pd.Series(v, dtype="int64[pyarrow]"),
    "pandas, categories": lambda v: pd.Series(v, dtype="Int64").astype("category"),
    "pandas, index": lambda v: pd.Index(v, dtype="Int64"),
    "pandas, array": lambda v: pd.array(v, dtype="Int64"),
    "polars": lambda v: pl.Series(v, dtype=pl.Int64),
    "polars, unsigned": lambda v: pl.Series(v, dtype=pl.UInt64),
    "polars, chunks": lambda v: pl.concat([pl.Series(v[:1], dtype=pl.Int64), pl.Series(v[1:], dtype=pl.Int64)], rechunk=False),
    "Arrow": lambda v: pa.array(v, pa.int64()),
    "Arrow, unsigned": lambda v: pa.array(v, pa.uint64()),
    "Arrow, chunks": lambda v: pa.chunked_array([v[:1], v[1:]], pa.int64()),
    "Arrow, dictionary": lambda v: pa.array(v, pa.int64()).dictionary_encode(),
}
REALS = {
    "pandas": lambda v: pd.Series(v, dtype="Float64"),
    "pandas, Arrow": lambda v: pd.Series(v, dtype="double[pyarrow]"),
    "polars": lambda v: pl.Series(v, dtype=pl.Float64),
    "Arrow": lambda v: pa.array(v, pa.float64()),
}
# two-dimensional positions
TABLES = {
    "pandas": lambda v: pd.DataFrame({"a": pd.Series(v, dtype="Int64"), "b": pd.Series(v, dtype="int64[pyarrow]")}),
    "polars": lambda v: pl.DataFrame({"a": v, "b": v}),
    "polars, arrays": lambda v: pl.Series([v, v], dtype=pl.Array(pl.Int64, len(v))),
    "Arrow": lambda v: pa.table({"a": v, "b": v}),
    "Arrow, batch": lambda v: pa.record_batch({"a": v, "b": v}),
    "list": lambda v: [pl.Series(v), pl.Series(v)],
    "list of lists": lambda v: [v, v],
}


@pytest.mark.parametrize("container", COLUMNS)
def test_columns_are_exact(container):
    column = COLUMNS[container](LARGE)
    expected = posenc.encode(np.array(LARGE), 8, dtype="float64")
    assert_same_bits(posenc.encode(column, 8, dtype="float64"), expected)
    assert_same_bits(posenc.add_to(np.zeros((4, 8)), column) + 0, expected + 0.0)


@pytest.mark.parametrize(
    "values, message", [([7, None], "1 null; fill or drop it"), ([None, 7, None], "2 nulls; fill or drop them")]
)
@pytest.mark.parametrize("container", [*COLUMNS, "list", "list, NA"])
def test_nulls_are_refused(container, values, message):
    lists = {"list": list, "list, NA": lambda v: [pd.NA if x is None else x for x in v]}
    column = (COLUMNS | lists)[container](values)
    x = np.ones((len(values), 8))
    for function, name in (
        (lambda: posenc.encode(column, 8), "positions"),
        (lambda: posenc.add_to(x, column), "positions"),
        (lambda: posenc.identify(x, column), "positions"),
        (lambda: posenc.grid((column, 2), 8), "positions"),
        (lambda: posenc.points(column, 2 * len(values)), "coordinates"),
        (lambda: posenc.Encoding(2 * len(values), frequencies=column), "frequencies"),
        (lambda: posenc.positions_from_mask(column), "mask"),
        (lambda: posenc.positions_from_segments(column), "segment_ids"),
        (lambda: posenc.positions_from_lengths(column), "lengths"),
        (lambda: posenc.positions_from_lengths([1] * len(values), start=column), "start"),
    ):
        with pytest.raises(ValueError, match=f"{name} has {message}"):
            function()
    assert (x == 1).all()


@pytest.mark.parametrize("container", TABLES)
def test_nulls_in_tables_are_refused(container):
    with pytest.raises(ValueError, match="positions has 2 nulls; fill or drop them"):
        posenc.encode(TABLES[container]([7, None, 8]), 8)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "Arrow"])
def test_tables_that_mix_reals_with_large_integers_are_refused(make):
    with pytest.raises(ValueError, match="positions has 9007199254740993 beside real numbers"):
        posenc.encode(make({"a": [1, 2**53 + 1], "b": [0.5, 0.5]}), 8)
    assert posenc.encode(make({"a": [1, 2**53], "b": [0.5, np.nan]}), 8).shape == (2, 2, 8)


@pytest.mark.parametrize("container", REALS)
def test_real_columns(container):
    with pytest.raises(ValueError, match="positions has 1 null; fill or drop it"):
        posenc.encode(REALS[container]([0.5, None]), 8)
    assert_same_bits(posenc.encode(REALS[container]([0.5, 2.0**60]), 8), posenc.encode(np.array([0.5, 2.0**60]), 8))


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array, list], ids=["pandas", "polars", "Arrow", "list"])
def test_nan_is_not_a_null(make):
    rows = posenc.encode(make([0.5, float("nan"), 2.0]), 8)
    assert np.isnan(rows[1]).all() and not np.isnan(rows[[0, 2]]).any()


def test_boolean_masks_with_nulls_are_refused():
    for mask in (pd.array([True, None], "boolean"), pl.Series([True, None]), pa.array([True, None])):
        with pytest.raises(ValueError, match="mask has 1 null"):
            posenc.positions_from_mask(mask)
