"""One null in a million large positions: each function passes such a column to the functions of a recipe, which must refuse it.

`test_recipes.py` appends a call to ``from_NAME`` to the program on the page ``NAME.md``; its keyword
arguments are all names that the program defines.
"""

import numpy as np
import pytest

N = 1_000_000
POSITIONS = 2**62 + np.arange(N)
NULL = np.arange(N) == 654_321


def refused(message="positions has "):
    """Expect an error with this message; its type may be that of a library that wraps errors."""
    return pytest.raises(Exception, match=message)


def arrow_table():
    import pyarrow as pa

    return pa.table({"position": pa.array(POSITIONS, mask=NULL)})


def from_columns(encoding, to_series, meta=None, pl=None, encode=None, connection=None, dd=None, pq=None, **_):
    """Test the libraries that the page has imported."""
    if pl:
        frame = pl.DataFrame(arrow_table()).lazy()
        for engine in ("in-memory", "streaming"):
            with refused():
                frame.select(encode(pl.col("position"), encoding)).collect(engine=engine)
    if connection:
        rows = f"SELECT nullif(range, {POSITIONS[NULL][0]}) AS position FROM range({2**62}, {2**62 + N})"
        with refused("positions .* mask"):
            encoding.encode(connection.sql(rows).fetchnumpy()["position"])
        with refused():
            connection.sql(f"SELECT encode(position) FROM ({rows})").to_arrow_table()
    if dd:
        pq.write_table(arrow_table(), "nulls.parquet")
        for options, message in (
            ({"dtype_backend": "pyarrow"}, "positions has "), ({}, "NaN beside numbers of .* pandas")
        ):
            column = dd.read_parquet("nulls.parquet", **options)["position"]
            with refused(message):
                column.map_partitions(to_series, encoding, meta=meta).compute()


def from_spark(spark, encode, **_):
    positions = spark.range(2**62, 2**62 + N).selectExpr(f"nullif(id, {POSITIONS[NULL][0]}) AS position")
    with refused():
        positions.mapInArrow(encode, "position long, encoding array<float>").count()


def from_time(encoding, pd, pl=None, **_):
    """A missing time gives a row of NaN instead of an error."""
    times = POSITIONS.astype("datetime64[us]")
    times[NULL] = "NaT"
    for column in (times, pd.Series(times).dt.tz_localize("UTC"), *([pl.Series(times)] if pl else [])):
        assert (np.isnan(encoding.encode(column)) == NULL[:, None]).all()


def from_datasets(datasets, add_encodings, encoding, **_):
    with refused():
        datasets.Dataset(arrow_table()).with_format("arrow").map(
            add_encodings, batched=True, fn_kwargs={"encoding": encoding})


def from_ray(ray, encode, encoding, **_):
    ray.init(num_cpus=2, include_dashboard=False, _node_ip_address="127.0.0.1", logging_level="error")
    with refused():
        ray.data.from_arrow(arrow_table()).map_batches(
            encode, batch_format="pyarrow", fn_kwargs={"encoding": encoding}).materialize()
    ray.shutdown()
