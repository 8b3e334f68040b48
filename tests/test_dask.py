"""Dask arrays have the same bits as direct calls, in threads and in processes."""


import dask
import dask.array as da
import numpy as np
import pandas as pd
import pytest

import posenc.dask
from conftest import DTYPES, assert_same_bits, python_output

RNG = np.random.default_rng(0)
PACKED = RNG.integers(0, 1000, (8, 1)) + np.arange(100)
SCATTERED = RNG.integers(-(2**62), 2**62, (5, 40))


@pytest.fixture(autouse=True, params=["threads"])
def scheduler(request):
    with dask.config.set(scheduler=request.param, num_workers=2):
        yield request.param



# ---- tables ------------------------------------------------------------------------------------------------


def test_blocks_have_the_bits_of_a_direct_call(dtype):
    positions = range(10**18, 10**18 - 3000, -3)
    pe = posenc.dask.table(positions, 63, chunks=300, dtype=dtype, layout="halves", scale=2.5)
    assert pe.chunks == ((300, 300, 300, 100), (63,))
    expected = posenc.encode(positions, 63, dtype=dtype, layout="halves", scale=2.5)
    assert pe.dtype == expected.dtype
    assert_same_bits(pe.compute(), expected)


@pytest.mark.parametrize(
    "positions",
    [0, 1, 1000, range(0), SCATTERED, SCATTERED / 7, [1.5, -2.5], np.array(5), np.array([]), np.zeros((0, 3)),
     np.uint8([200])],
    ids=lambda p: f"{getattr(p, 'dtype', '')}{getattr(p, 'shape', p)}",
)
@pytest.mark.parametrize("chunks", ["auto", 7])
def test_positions_of_every_type(positions, chunks):
    pe = posenc.dask.table(positions, 16, chunks=chunks, dtype="float64")
    expected = posenc.encode(positions, 16, dtype="float64")
    assert pe.shape == expected.shape
    assert_same_bits(pe.compute(), expected)
    assert_same_bits(np.asarray(pe._meta.reshape(0)), expected.reshape(-1)[:0])


def test_positions_may_be_a_dask_array():
    positions = da.from_array(SCATTERED, chunks=(2, 7))
    pe = posenc.dask.table(positions, 16)
    assert pe.chunks == (*positions.chunks, (16,))
    assert_same_bits(pe.compute(), posenc.encode(SCATTERED, 16))
    assert posenc.dask.table(positions, 16, chunks=(5, -1)).chunks == ((5,), (40,), (16,))


def test_times():
    times = np.datetime64("2026-01-01T06") + np.array([*range(19), "NaT"], "m8[h]")
    expected = posenc.encode(times, periods=["1D", "7D"])
    for positions in (times, da.from_array(times, chunks=7),
                      pd.Series(times.astype("M8[ns]")).dt.tz_localize("UTC")):
        assert_same_bits(posenc.dask.table(positions, periods=["1D", "7D"]).compute(), expected)
    with pytest.raises(TypeError, match="positions is 5, expected datetime64"):
        posenc.dask.table(5, periods=["1D"])
    with pytest.raises(TypeError, match=r"positions has dtype datetime64\[h\], expected numbers"):
        posenc.dask.table(da.from_array(times), periods=[24])


def test_automatic_chunks_have_the_configured_size():
    with dask.config.set({"array.chunk-size": "1MiB"}):
        assert posenc.dask.table(100_000, 64).chunks[0][0] * 64 * 4 == 1 << 20
    assert posenc.dask.table(10**9, 512).nbytes == 10**9 * 2048        # nothing is computed yet


def test_slices_compute_only_their_blocks(monkeypatch):
    computed, encode = [], posenc.encode
    spy = lambda rows, *rest, **options: computed.append(rows) or encode(rows, *rest, **options)  # noqa: E731
    monkeypatch.setattr(posenc, "encode", spy)
    posenc.dask.table(10**7, 64, chunks=1000)[10**7 - 1500 :].compute()
    assert sorted(part[0] for part in computed) == [10**7 - 2000, 10**7 - 1000]


def test_each_task_uses_one_thread(monkeypatch):
    seen, encode = [], posenc.encode
    spy = lambda *rest, **options: seen.append(options["threads"]) or encode(*rest, **options)  # noqa: E731
    monkeypatch.setattr(posenc, "encode", spy)
    dask.compute(posenc.dask.table(100, 64, chunks=50), posenc.dask.table(np.arange(9), 64))
    assert seen == [1, 1, 1]


NAMES = """
    import dask.array as da, numpy as np, posenc.dask as pd
    for a in (pd.table(10, 8), pd.table(np.arange(10), 8, base=5), pd.table(da.arange(10), 8)):
        print(a.name)
    """


def test_the_same_call_has_the_same_name_in_every_process():
    first, second = (python_output(NAMES, PYTHONHASHSEED=seed) for seed in ("1", "2"))
    assert first == second and len(set(first.split())) == 3
    assert posenc.dask.table(10, 8).name in first


def test_different_calls_have_different_names():
    calls = [(10, 8), (11, 8), (10, 9), (range(1, 11), 8), (np.arange(10), 8)]
    tables = [posenc.dask.table(*call) for call in calls]
    others = {"chunks": 5}, {"dtype": "float16"}, {"base": 9}, {"frequencies": [1] * 4}
    tables += [posenc.dask.table(10, 8, **keywords) for keywords in others]
    assert len({table.name for table in tables}) == len(tables)
    assert posenc.dask.table(10, 8, base=10000).name == posenc.dask.table(range(10), 8).name


@pytest.mark.parametrize("positions, error, message", [        # test_mistakes.py tries every argument
    (da.ones(3, dtype=complex), TypeError, "positions has dtype complex128"),
    (da.arange(9)[da.arange(9) > 3], ValueError, "compute_chunk_sizes"),
])
def test_errors_are_raised_before_computing(positions, error, message):
    with pytest.raises(error, match=message):
        posenc.dask.table(positions, 8)


def outcome(function, *args):
    """Return the bytes of the result of a call, or the type and the message of its error."""
    try:
        return function(*args).tobytes()
    except (TypeError, ValueError) as error:
        return type(error), str(error)


@pytest.mark.parametrize("values", [[1, 2, 3], [1, None, 3]], ids=["whole", "null"])
@pytest.mark.parametrize("column_dtype", ["int64[pyarrow]", "Int64", "float64"])
def test_columns_have_the_same_outcome_as_in_encode(column_dtype, values):
    """Include columns with nulls and columns of a Dask dataframe."""
    pandas, frames = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    column = pandas.Series(values, dtype=column_dtype)
    expected = outcome(posenc.encode, column, 4)
    for positions in (column, frames.from_pandas(column, npartitions=2)):
        assert outcome(lambda: posenc.dask.table(positions, 4).compute()) == expected       # noqa: B023


# ---- addition ----------------------------------------------------------------------------------------------


POSITIONS = [100, range(-50, 250, 3), PACKED, da.from_array(PACKED, chunks=(4, 9))]


@pytest.mark.parametrize("positions", POSITIONS, ids=lambda p: type(p).__name__)
@pytest.mark.parametrize(
    "scheduler, dtype",
    [pytest.param("processes", "bfloat16", marks=pytest.mark.long), *(("threads", name) for name in DTYPES)],
    indirect=["scheduler"],
)
def test_the_sum_of_an_array_and_a_table_has_the_bits_of_add_to(positions, dtype):
    """So this module needs no function add_to."""
    array = RNG.normal(size=(8, 100, 64)).astype(posenc.encode(0, 1, dtype=dtype).dtype)
    x = da.from_array(array, chunks=(3, 50, 40))
    y = x * x.dtype.type(3.3) + posenc.dask.table(positions, 64, dtype=dtype, base=50)
    plain = positions.compute() if isinstance(positions, da.Array) else positions
    assert y.dtype == x.dtype
    assert_same_bits(y.compute(), posenc.add_to(array.copy(), plain, x_scale=3.3, base=50))


# ---- Zarr --------------------------------------------------------------------------------------------------


def test_dask_writes_a_zarr_array(tmp_path, dtype):
    pytest.importorskip("zarr")
    encoding, positions = posenc.Encoding(9, base=77.0, layout="halves"), range(1000, 0, -3)
    table = posenc.dask.table(positions, encoding, chunks=100, dtype=dtype)
    (table.view("uint16") if dtype == "bfloat16" else table).to_zarr(tmp_path / "pe.zarr")
    file = posenc.open(tmp_path / "pe.zarr")
    assert (file.values.chunks, file.dtype) == ((100, 9), dtype)
    assert posenc.verify(tmp_path / "pe.zarr", positions, encoding) == 334
