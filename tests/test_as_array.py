"""Columns from pandas, polars and Arrow: 64-bit integers stay exact; nulls, dates and durations are refused.

NumPy converts an integer column with nulls to float64; this conversion would change large positions.
"""

import datetime as dt
import re
from fractions import Fraction
from importlib.util import find_spec

import dask.array as da
import ml_dtypes
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import posenc
from conftest import assert_same_bits

if find_spec("torch"):
    import torch

ROTARY = posenc.Rotary(4)
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
    "Arrow": lambda v: pa.array(v, pa.int64()), "Arrow, unsigned": lambda v: pa.array(v, pa.uint64()),
    "Arrow, chunks": lambda v: pa.chunked_array([v[:1], v[1:]], pa.int64()),
    "Arrow, dictionary": lambda v: pa.array(v, pa.int64()).dictionary_encode(),
}
REALS = {
    "pandas": lambda v: pd.Series(v, dtype="Float64"),
    "pandas, Arrow": lambda v: pd.Series(v, dtype="double[pyarrow]"),
    "polars": lambda v: pl.Series(v, dtype=pl.Float64), "Arrow": lambda v: pa.array(v, pa.float64()),
}
# two-dimensional positions
TABLES = {
    "pandas": lambda v: pd.DataFrame({"a": pd.Series(v, dtype="Int64"), "b": pd.Series(v, dtype="int64[pyarrow]")}),
    "polars": lambda v: pl.DataFrame({"a": v, "b": v}),
    "polars, arrays": lambda v: pl.Series([v, v], dtype=pl.Array(pl.Int64, len(v))),
    "Arrow": lambda v: pa.table({"a": v, "b": v}),
    "Arrow, batch": lambda v: pa.record_batch({"a": v, "b": v}),
    "list": lambda v: [pl.Series(v), pl.Series(v)], "list of lists": lambda v: [v, v],
}


@pytest.mark.parametrize("container", COLUMNS)
def test_columns_are_exact(container):
    column = COLUMNS[container](LARGE)
    expected = posenc.encode(np.array(LARGE), 8, dtype="float64")
    assert_same_bits(posenc.encode(column, 8, dtype="float64"), expected)
    assert_same_bits(posenc.add_to(np.zeros((4, 8)), column) + 0, expected + 0.0)
    if find_spec("torch"):
        assert_same_bits(posenc.torch.encode(column, 8, dtype=torch.float64).numpy(), expected)
        assert_same_bits(posenc.torch.add_to(torch.zeros(4, 8, dtype=torch.float64), column).numpy() + 0,
                         expected + 0.0)
    assert_same_bits(posenc.dask.table(column, 8, dtype="float64").compute(), expected)


@pytest.mark.parametrize("values", [[7, None], [None, 7, None]], ids=str)
@pytest.mark.parametrize("container", [*COLUMNS, "list"])
def test_nulls_are_refused(container, values):
    column = (COLUMNS | {"list": list})[container](values)
    for name, call in entries(column, len(values)):
        with pytest.raises(ValueError, match=f"{re.escape(name)} has nulls, {values.count(None)} of "):
            call()


def entries(column, n):
    """Yield the name of each argument that accepts a column of n rows, and a call with the column."""
    x = np.ones((n, 8))
    yield "positions", lambda: posenc.encode(column, 8)
    yield "positions", lambda: posenc.add_to(x, column)
    yield "positions", lambda: posenc.check.identify(x, column)
    yield "positions", lambda: ROTARY.tables(column)
    yield "positions", lambda: ROTARY.rotate(x[:, :4].astype(np.float32), column)
    yield "shape[0]", lambda: posenc.grid((column, 2), 8)
    yield "coordinates", lambda: posenc.points(column, 2 * n)
    yield "frequencies", lambda: posenc.Encoding(2 * n, frequencies=column)
    yield "mask", lambda: posenc.positions_from_mask(column)
    yield "segment_ids", lambda: posenc.positions_from_segments(column)
    yield "lengths", lambda: posenc.positions_from_lengths(column)
    yield "start", lambda: posenc.positions_from_lengths([1] * n, start=column)
    yield "positions", lambda: posenc.plot.heatmap(posenc.Encoding(8), column)
    yield "positions", lambda: posenc.dask.table(column, 8)
    if find_spec("torch"):
        yield "positions", lambda: posenc.torch.encode(column, 8)
        yield "positions", lambda: posenc.torch.add_to(torch.ones(n, 8), column)
    assert (x == 1).all()


@pytest.mark.parametrize("container", TABLES)
def test_nulls_in_tables_are_refused(container):
    with pytest.raises(ValueError, match=r"positions has nulls, [12] of "):
        posenc.encode(TABLES[container]([7, None, 8]), 8)


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table], ids=["pandas", "polars", "Arrow"])
def test_tables_that_mix_reals_with_large_integers_are_refused(make):
    with pytest.raises(ValueError, match="positions has 9007199254740993 beside other numbers"):
        posenc.encode(make({"a": [1, 2**53 + 1], "b": [0.5, 0.5]}), 8)
    assert posenc.encode(make({"a": [1, 2**53], "b": [0.5, np.nan]}), 8).shape == (2, 2, 8)


@pytest.mark.parametrize("container", REALS)
def test_real_columns(container):
    with pytest.raises(ValueError, match="positions has nulls, 1 of "):
        posenc.encode(REALS[container]([0.5, None]), 8)
    assert_same_bits(posenc.encode(REALS[container]([0.5, 2.0**60]), 8),
                     posenc.encode(np.array([0.5, 2.0**60]), 8))


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array, list],
                         ids=["pandas", "polars", "Arrow", "list"])
def test_nan_is_not_a_null(make):
    rows = posenc.encode(make([0.5, float("nan"), 2.0]), 8)
    assert np.isnan(rows[1]).all() and not np.isnan(rows[[0, 2]]).any()


@pytest.mark.parametrize(
    "make", [pd.Series, pd.Index, lambda v: pd.DataFrame({"a": [1, 2, 3], "b": v})],
    ids=["Series", "Index", "DataFrame"]
)
def test_integers_that_pandas_may_have_rounded_are_refused(make):
    """By default, pandas converts integers and nulls to float64 and NaN."""
    assert pd.Series([2**62 + 1, None])[0] == 2**62
    with pytest.raises(ValueError, match=r"has NaN beside numbers of 2\*\*53 or more, .* use dtype Int64"):
        posenc.encode(make([0.5, -(2.0**53), None]), 8)
    for exact in ([0.5, 2.0**53 - 1, np.nan], [0.5, 2.0**62, 1.0], [0.5, np.inf, np.nan]):
        assert posenc.encode(make(exact), 8).size
    assert posenc.encode(make([2.0**62, 1.0, np.nan]).to_numpy(), 8).size


@pytest.mark.parametrize("make", [pd.Series, pl.Series, pa.array], ids=["pandas", "polars", "Arrow"])
def test_real_columns_are_not_converted_to_lists(make, monkeypatch):
    """A list takes three times as long as the encoding."""
    monkeypatch.setattr("posenc._arguments.arrays._python_numbers", None)
    for values in ([0.5, np.nan], [0.5, 2.0**60]):
        assert_same_bits(posenc.encode(make(values), 8), posenc.encode(np.array(values), 8))


def test_nanoarrow():
    nanoarrow = pytest.importorskip("nanoarrow")
    assert_same_bits(posenc.encode(nanoarrow.Array(LARGE, nanoarrow.int64()), 8),
                     posenc.encode(np.array(LARGE), 8))
    with pytest.raises(ValueError, match="positions has nulls, 1 of 3 values"):
        posenc.encode(nanoarrow.Array([1, None, 3], nanoarrow.int64()), 8)


@pytest.mark.parametrize("make", [pa.array, pl.Series, list, pd.Series])
def test_lists_of_several_lengths_are_refused(make):
    message = r"for sequences of several lengths, see posenc\.positions_from_lengths|dtype object and contains .*\[?0, 1, 2"
    with pytest.raises((TypeError, ValueError), match=message):
        posenc.encode(make([[0, 1, 2], [0]]), 8)


def test_boolean_masks_with_nulls_are_refused():
    for mask in (pd.array([True, None], "boolean"), pl.Series([True, None]), pa.array([True, None])):
        with pytest.raises(ValueError, match="mask has nulls, 1 of "):
            posenc.positions_from_mask(mask)


class DLPack:
    """An array from another library that NumPy can read only through DLPack."""

    def __init__(self, values):
        self.array = np.array(values)
        self.__dlpack__, self.__dlpack_device__ = self.array.__dlpack__, self.array.__dlpack_device__

    def __index__(self):
        return len(self.array)


def test_arrays_from_dlpack_are_exact():
    assert_same_bits(posenc.encode(DLPack(LARGE), 8, dtype="float64"),
                     posenc.encode(np.array(LARGE), 8, dtype="float64"))


# ---- dates and durations -----------------------------------------------------------------------------------

TIMES = [dt.datetime(2021, 6, 1, 12, 0, 0, 250_000), dt.datetime(1969, 12, 31, 23, 59, 59)]
# from 1970 to TIMES in UTC; `date -u -d @1622548800` shows the first
SECONDS = [1_622_548_800.25, -1.0]
DAYS = [dt.date(2021, 6, 1), dt.date(1969, 12, 31)]
DURATIONS = [dt.timedelta(days=2, milliseconds=250), dt.timedelta(seconds=-1)]
DURATION_SECONDS = [172_800.25, -1.0]
PER_SECOND = {"ns": 10**9, "us": 10**6, "ms": 10**3, "s": 1, "D": Fraction(1, 86400)}
TIME_COLUMNS = {        # columns that NumPy converts to times or durations, and their numbers of seconds
    "NumPy": (lambda: np.array(TIMES, "M8[ms]"), SECONDS),
    "NumPy, durations": (lambda: np.array(DURATIONS, "m8[us]"), DURATION_SECONDS),
    "pandas": (lambda: pd.Series(TIMES, dtype="M8[ns]"), SECONDS),
    "pandas, Arrow": (lambda: pd.Series(TIMES, dtype="timestamp[us][pyarrow]"), SECONDS),
    "pandas, durations": (lambda: pd.Series(DURATIONS), DURATION_SECONDS),
    "polars": (lambda: pl.Series(TIMES, dtype=pl.Datetime("ms")), SECONDS),
    "polars, durations": (lambda: pl.Series(DURATIONS, dtype=pl.Duration("ms")), DURATION_SECONDS),
    "Arrow, zone": (lambda: pa.array(TIMES, pa.timestamp("us", "UTC")), SECONDS),
    "Arrow, dates": (lambda: pa.array(DAYS), [18779 * 86400, -86400]),
    "Arrow, durations": (lambda: pa.array(DURATIONS, pa.duration("us")), DURATION_SECONDS),
}


@pytest.mark.parametrize("container", TIME_COLUMNS)
def test_times_are_refused_with_a_conversion(container):
    """Run the conversion in the message, and compare its result with the known number of seconds."""
    make, seconds = TIME_COLUMNS[container]
    column = make()
    for name, call in entries(column, 2) if np.ndim(column) else [("positions", lambda: posenc.encode(column, 8))]:
        with pytest.raises(TypeError) as refused:
            call()
        start = rf"{re.escape(name)} has dtype .*\[(\w+)\], expected numbers such as "
        unit, code = re.fullmatch(start + "(.*?); encode, add_to, .*", str(refused.value)).groups()
        numbers = eval(code, {"numpy": np, "shape": [column], name: column})
        assert np.ravel(numbers).tolist() == [Fraction(s) * PER_SECOND[unit] for s in seconds], code
        assert posenc.encode(numbers, 8).shape == (*np.shape(numbers), 8)


@pytest.mark.parametrize("column", [
    np.array([*TIMES, "NaT"], "M8[us]"), np.array(["NaT"], "m8[s]"), pd.Series([*TIMES, pd.NaT]),
    pl.Series([*DAYS, None]), pa.array([None, *DURATIONS]),
])
def test_times_without_periods_are_refused(column):
    with pytest.raises(TypeError,
                       match=r"has dtype .*, expected numbers such as .* with periods= of durations"):
        posenc.encode(column, 8)


@pytest.mark.parametrize("dtype, column", [
    *[("object and contains ", column) for column in (
        TIMES, TIMES[0], DAYS, DURATIONS, list(pd.DatetimeIndex(TIMES)),
        pd.Series(TIMES).dt.tz_localize("UTC"), [pd.NaT])],
    *[(r"datetime64\[us\]", table({"a": TIMES})) for table in (pd.DataFrame, pl.DataFrame, pa.table)],
])
def test_times_in_objects_and_tables_are_refused(column, dtype):
    with pytest.raises(TypeError, match=f"positions has dtype {dtype}"):
        posenc.encode(column, 8)


# ---- positions of 16 bits ----------------------------------------------------------------------------------

HALVES = {
    "NumPy": np.asarray, "NumPy, byte order": lambda v: v.astype(">f2"), "list": list, "pandas": pd.Series,
    "pandas, Arrow": lambda v: pd.Series(pa.array(v), dtype=pd.ArrowDtype(pa.float16())), "polars": pl.Series,
    "Arrow": pa.array, "Arrow, chunks": lambda v: pa.chunked_array([pa.array(v)]),
}
if find_spec("torch"):
    X = torch.zeros(3, 4)
    TORCH_ENTRIES = {
        "encode": lambda p: posenc.torch.encode(p, 4),
        "add_to": lambda p: posenc.torch.add_to(X.clone(), p),
        "add_to, operator": lambda p: posenc.torch.add_to(X.clone().requires_grad_() * 1, p),
        "rotate": lambda p: posenc.torch.rotate(X, p, rotary=ROTARY),
        "rotate_": lambda p: posenc.torch.rotate_(X.clone(), p, rotary=ROTARY),
        "rotate, operator": lambda p: posenc.torch.rotate(X.clone().requires_grad_(), p, rotary=ROTARY),
        "PositionalEncoding": lambda p: posenc.torch.PositionalEncoding(4, max_len=9)(X, positions=p),
        "PositionalTable": lambda p: posenc.torch.PositionalTable(4, 9)(positions=p),
        "RotaryEmbedding": lambda p: posenc.torch.RotaryEmbedding(ROTARY)(X, p[None]),
    }


@pytest.mark.parametrize("dtype, most", [(np.float16, 2048), (ml_dtypes.bfloat16, 256)])
@pytest.mark.parametrize("sign", [1, -1])
def test_large_positions_of_16_bits_are_refused(dtype, most, sign):
    """16-bit positions may already be rounded: 257 is 256 in bfloat16."""
    good, bad = (np.array([0, 1, sign * last]).astype(dtype) for last in (most - 1, most + 1))
    posenc.Rotary(4, axes=[0, 1]).tables(np.stack([good, good]))
    posenc.encode(good, 8)
    with pytest.raises(ValueError, match=f"reach {sign * most} in {bad.dtype.name}"):
        posenc.Rotary(4, axes=[0, 1]).tables(np.stack([bad, bad]))
    for name, call in entries(bad, 3):
        if name in ("positions", "shape[0]", "coordinates"):
            with pytest.raises(ValueError, match=f"reach {sign * most} in {bad.dtype.name}"):
                call()


@pytest.mark.parametrize("container", HALVES)
def test_large_columns_of_16_bits_are_refused(container):
    assert np.isnan(posenc.encode(HALVES[container](np.array([0, np.nan, 2047], np.float16)), 4)[1]).all()
    with pytest.raises(ValueError, match="positions reach 2048 in float16"):
        posenc.encode(HALVES[container](np.array([0, 1, 2049], np.float16)), 4)


@pytest.mark.parametrize("make", [pd.DataFrame, pa.table], ids=["pandas", "Arrow"])
def test_a_large_column_of_16_bits_beside_other_columns_is_refused(make):
    """NumPy converts columns of different dtypes to a common one."""
    for half, other in (([0, 2047], [5, 2.0**40]), ([2047, 2], [0, 4096])):
        columns = {"a": np.array(half, np.float16), "b": np.array(other)}
        assert posenc.points(make(columns), 8).shape == (2, 8)
        columns["a"] += 1
        with pytest.raises(ValueError, match="coordinates reach 2048 in float16"):
            posenc.points(make(columns), 8)


@pytest.mark.skipif(not find_spec("torch"), reason="needs torch")
@pytest.mark.parametrize("entry", TORCH_ENTRIES if find_spec("torch") else ())
def test_large_tensors_of_16_bits_are_refused(entry):
    for dtype, most in ((torch.float16, 2048), (torch.bfloat16, 256)):
        TORCH_ENTRIES[entry](torch.tensor([0, 1 - most, most - 1]).to(dtype))
        with pytest.raises(ValueError, match=f"positions reach {-most} in {str(dtype)[6:]}"):
            TORCH_ENTRIES[entry](torch.tensor([0, -most - 1, 1]).to(dtype))
        TORCH_ENTRIES[entry](torch.tensor([0, -most - 1, 1]).to(dtype).double())


def test_large_dask_positions_of_16_bits_are_refused():
    positions = da.from_array(np.array([0, 2049], np.float16), chunks=1)
    with pytest.raises(ValueError, match="positions reach 2048 in float16"):
        posenc.dask.table(positions, 4).compute()
