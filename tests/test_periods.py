"""Periods: exact fractions of a turn; datetimes as positions."""

import datetime as dt
from fractions import Fraction

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from gmpy2 import mpq

import posenc
from conftest import assert_same_bits, bits_of
from posenc import Encoding
from posenc._core import kernel
from posenc._core.frequencies import RationalTurns
from reference import NAN, Reference, arithmetic, exact

SECONDS = {"W": 604_800, "D": 86_400, "h": 3_600, "m": 60, "s": 1, **{f"{unit}s": Fraction(1, 1000**k)
                                                                     for k, unit in enumerate("munpfa", 1)}}
DURATIONS = ("1ns", "7us", "1h", "1D", "7D", "31556952s", "31556952000s")       # up to 1,000 years


def positions_in(unit, rng):
    """Return positions over the whole int64 range, and multiples of a twelfth of each period, with their
    neighbours.
    """
    twelfths = [SECONDS["s"] * Fraction(s, 12) / SECONDS[unit] for s in (3600, 86_400, 604_800, 31_556_952)]
    exact = [int(k * t) for t in twelfths for k in (1, 2, 3, 4, 6, 9, 12, 10**6 + 6) if (k * t).denominator == 1]
    near = [p + d for p in exact for d in (-1, 0, 1) if p < 2**63 - 1]
    return np.array([0, 1, -1, 2**63 - 1, -(2**63) + 1, *near, *rng.integers(-(2**63) + 1, 2**63 - 1, 12)])


@pytest.mark.parametrize("unit", SECONDS)
def test_durations_are_exact_in_every_unit(isa, dtype, unit):
    reference = Reference(2 * len(DURATIONS), periods=[
        int(text.rstrip("Dhmnus")) * Fraction(SECONDS[text.lstrip("0123456789")]) / SECONDS[unit]
        for text in DURATIONS])
    positions = positions_in(unit, np.random.default_rng(0))
    expected = reference.table(positions.tolist(), dtype)
    for kind in ("datetime64", "timedelta64"):
        values = posenc.encode(positions.astype(f"{kind}[{unit}]"), dtype=dtype, periods=DURATIONS)
        np.testing.assert_array_equal(bits_of(values), expected)
    ascending = positions[5] + np.arange(600)               # a run, which is computed from anchors
    expected = reference.table(ascending[::50].tolist(), dtype)
    values = posenc.encode(ascending.astype(f"datetime64[{unit}]"), dtype=dtype, periods=DURATIONS)
    np.testing.assert_array_equal(bits_of(values[::50]), expected)


@pytest.mark.parametrize("scale", [1.0, -1.0, 1 + 2.0**-24, 3 * 2.0**-149, 22.6])
def test_multiples_of_a_twelfth_are_exact(isa, dtype, scale):
    """Sine and cosine are 0, 1/2 and 1 there (Niven's theorem).

    Products with the scale may be half-way points.
    """
    for period in (12, 24, 12 * 10**12, 1.5, 0.75):
        steps = np.arange(-30, 30) * (Fraction(period) / 12)
        reference = Reference(2, periods=[period], scale=scale)
        for positions in (np.array(list(map(float, steps))), range(-30, 30)):
            values = posenc.encode(positions, dtype=dtype, periods=[period], scale=scale)
            np.testing.assert_array_equal(bits_of(values), reference.table(list(positions), dtype))


def test_zeros_need_no_evaluation_in_python(isa, dtype, evaluations):
    """Hours at a full hour: every value of the first column, and every twelfth of the second one, is exactly
    0.
    """
    times = np.datetime64("1970-01-01", "ns") + np.arange(0, 10**6, 7) * np.timedelta64(1, "h")
    values = posenc.encode(times, dtype=dtype, periods=["1h", "1D", "7D", "31556952s"])
    assert (values[:, 0] == 0).all() and not np.signbit(values[:, 0]).any() and (values[:, 1] == 1).all() and not evaluations
    posenc.encode(np.arange(1000) / 4, dtype=dtype, periods=[1, 24, 0.5])
    assert not evaluations


def test_phases_next_to_a_quarter_turn_are_no_zeros(isa, dtype):
    """They are 2**-57 turns away, or a few times as much, which a phase of 54 bits does not show."""
    positions = [k * 2**53 for k in (1, 2, 3, -1, -2)]
    for period in (2**55 - 1, 2**55 + 1):
        values = posenc.encode(np.array(positions), dtype=dtype, periods=[period])
        np.testing.assert_array_equal(bits_of(values), Reference(2, periods=[period]).table(positions, dtype))


def test_d_model_may_be_left_out():
    assert Encoding(periods=[24, 168.0]) == Encoding(4, periods=(24, 168))
    assert Encoding(frequencies=[1.0, 2.0], exponents="column").d_model == 2
    assert_same_bits(posenc.encode(5, periods=[24]), Encoding(2, periods=[24]).encode(5))
    assert next(posenc.stream(5, periods=[24, 7])).values.shape == (5, 4)
    for call in (Encoding, lambda: posenc.encode(5), lambda: posenc.stream(5, base=3)):
        with pytest.raises(TypeError, match="d_model is missing"):
            call()


@pytest.mark.parametrize("spelled, kept", [
    ([24, 24.0, np.int32(24), np.float32(0.5), 2**64 + 1], (24, 24, 24, 0.5, 2**64 + 1)),
    (np.array([1, 7], "m8[D]"), ("1D", "7D")), (["3600s", "1W", "90 m"], ("1h", "7D", "90m")),
    ([dt.timedelta(hours=36), pd.Timedelta("1ns"), np.timedelta64(5, "25us")], ("36h", "1ns", "125us")),
    (pd.to_timedelta(["1h", "1D"]), ("1h", "1D")), (pl.Series([dt.timedelta(1)]), ("1D",)),
    (pa.array([24, 168]), (24, 168)),
])
def test_spellings_of_periods(spelled, kept):
    encoding = Encoding(periods=spelled)
    assert encoding.periods == kept and [type(p) for p in encoding.periods] == [type(p) for p in kept]
    assert eval(repr(encoding)) == encoding == Encoding.from_dict(encoding.to_dict())


def test_frequencies_are_those_of_the_periods():
    two_pi = mpq(arithmetic(200).const_pi()) * 2
    assert Encoding(periods=[24, 0.1]).frequencies.tolist() == [float(two_pi / 24), float(two_pi / exact(0.1))]
    assert Encoding(periods=["1h"]).frequencies.tolist() == [float(two_pi / 3600)]         # per second
    assert Encoding(periods=[24]).replace(frequencies=[1.0]) == Encoding(2, frequencies=[1.0])
    assert Encoding(4, base=3.0).replace(periods=[24, 7]) == Encoding(4, periods=[24, 7])


TIMES = np.array(["2026-01-01T06:00", "NaT", "1969-12-31T18:00:00.000001"], "datetime64[us]")


def columns():
    series = pd.Series(TIMES)
    zoned = series.dt.tz_localize("UTC").dt.tz_convert("Asia/Tokyo")
    arrow = pa.array(TIMES)
    return {
        "list": list(TIMES), "big-endian": TIMES.astype(">M8[us]"), "nanoseconds": TIMES.astype("M8[ns]"),
        "strided": np.repeat(TIMES, 2)[::2], "pandas": series, "pandas zoned": zoned,
        "pandas index": pd.DatetimeIndex(zoned), "pandas nanoseconds": series.astype("M8[ns]"),
        "pandas Arrow": series.astype("timestamp[us][pyarrow]"),
        "pandas Arrow zoned": zoned.astype("timestamp[us, tz=Asia/Tokyo][pyarrow]"),
        "polars": pl.Series(TIMES),
        "polars zoned": pl.Series(TIMES).dt.replace_time_zone("UTC").dt.convert_time_zone("Asia/Tokyo"),
        "Arrow": arrow, "Arrow chunks": pa.chunked_array([arrow[:1], arrow[1:]]),
        "Arrow zoned": arrow.cast(pa.timestamp("us", "Asia/Tokyo")),
    }


@pytest.mark.parametrize("name", columns())
def test_columns_of_times(name, dtype):
    reference = Reference(4, periods=[86_400 * 10**6, 604_800 * 10**6])
    expected = reference.table(TIMES.astype(np.int64).tolist(), dtype)
    expected[1] = NAN[dtype]
    values = posenc.encode(columns()[name], dtype=dtype, periods=["1D", "7D"])
    np.testing.assert_array_equal(bits_of(values), expected)


FAR, NEAR = np.array(["3000-01-01"], "M8[s]"), np.array([1], "M8[ns]")


@pytest.mark.parametrize("combined", [
    lambda a, b: [a[0], b[0]], lambda a, b: [list(a), list(b)], lambda a, b: (a, b), lambda a, b: [pd.Series(a), pd.Series(b)],
    lambda a, b: pd.DataFrame({"a": a, "b": b}), lambda a, b: pl.DataFrame({"a": a.astype("M8[ms]"), "b": b}),
    lambda a, b: pa.table({"a": a, "b": b}),
])
def test_times_of_several_units(combined):
    """NumPy converts them to the finest unit, in which the earliest and latest times overflow."""
    values = posenc.encode(combined(np.array([6], "M8[s]"), NEAR), periods=["24s"]).reshape(2, 2)
    assert_same_bits(values, Encoding(periods=["24s"]).encode(np.array([6 * 10**9, 1], "m8[ns]")))
    for other in (FAR, np.array([-(2**40)], "M8[s]")):
        with pytest.raises(ValueError, match=r"beside datetime64\[ns\], which cannot hold its times; use one unit"):
            posenc.encode(combined(other, NEAR), periods=["1D"])


@pytest.mark.parametrize("value", [5, np.int64(5), np.datetime64(5, "s")])
def test_other_values_beside_durations_are_refused(value):
    with pytest.raises(TypeError, match=r"beside|expected"):
        posenc.encode([np.timedelta64(6, "h"), value], periods=["1D"])


def test_times_of_every_kind(isa, dtype):
    encoding = Encoding(periods=["1D", "7D"])
    times = np.array([7, -9], "m8[25s]")
    assert_same_bits(encoding.encode(times, dtype=dtype), encoding.encode(times.astype("m8[s]"), dtype=dtype))
    assert encoding.encode(np.datetime64("2026-01-01")).shape == (4,)
    x = encoding.encode(np.zeros((2, 3), "M8[s]"), dtype=dtype)
    expected = x + encoding.encode(TIMES, dtype=dtype)
    assert_same_bits(encoding.add_to(x, TIMES)[:, ::2], expected[:, ::2])
    assert np.isnan(x[:, 1].astype(np.float32)).all()


@pytest.mark.parametrize("positions, periods, message", [
    (5, ["1D"], "positions is 5, expected"), (range(10**12), ["1D"], "positions is range"),
    (np.arange(3), ["1D"], r"positions is array\(\[0, 1, 2\]\), expected datetime64"),
    ([0.5], ["1D"], r"positions is \[0\.5\], expected datetime64"),
    (TIMES, [86400], "positions has dtype datetime64"),
    (TIMES, [], "; encode.* with periods= of durations"),
    (np.array([1], "m8"), ["1D"], "expected one of the units"),
    (np.array([1], "m8[M]"), ["1D"], "dtype timedelta64.*expected one of"),
    (np.ma.array(TIMES), ["1D"], "mask"), (np.array(["2026-03"], "M8[M]"), ["1D"], "dtype datetime64.*expected one of"),
    ([np.ma.array(TIMES)], ["1D"], "mask"),
    ([dt.time(3)], ["1D"], r"positions is \[datetime.time\(3, 0\)\], expected datetime64"),
    ([dt.datetime(2026, 1, 1, 6)], ["1D"],
     'expected datetime64 or timedelta64, as periods are durations'),
    (["2026-01-01"], ["1D"], 'expected datetime64 or timedelta64, as periods are durations'),
    (5, "1D", r"periods has shape \(\), expected one dimension, as in \[24"),
    (5, [None], r"periods\[0\] is None of type NoneType, expected a real number"),
    ([2**64], [24], "positions has 18446744073709551616, expected "),
])
def test_ambiguous_positions_are_refused(positions, periods, message):
    out = np.full((3, 2), 7, np.float32)
    for call in (lambda e: e.encode(positions), lambda e: e.add_to(out, positions)):
        with pytest.raises((TypeError, ValueError), match=message):
            call(Encoding(periods=periods))
    assert (out == 7).all()


def test_streams_and_files_take_numbers(tmp_path):
    encoding = Encoding(periods=[24, 0.1, 2**64 + 1])
    posenc.save(tmp_path / "pe.safetensors", range(-5, 50), encoding)
    assert posenc.verify(tmp_path / "pe.safetensors") == 55
    assert posenc.open(tmp_path / "pe.safetensors").encoding == encoding
    for call in (Encoding(periods=["1D"]).stream,
                 lambda p: posenc.save(tmp_path / "a.npy", p, Encoding(periods=["1D"]))):
        with pytest.raises(TypeError, match=r"periods are durations, expected numbers, as the positions of .* are numbers"):
            call(range(5))
    with pytest.raises(TypeError, match="positions is None, expected datetime64"):
        posenc.add_to(np.zeros((5, 2)), periods=["1D"])
    assert [path.name for path in tmp_path.iterdir()] == ["pe.safetensors"]
    assert_same_bits(posenc.points([[3], [4]], 4, periods=[24, 7]), posenc.encode([3, 4], periods=[24, 7]))
    for coordinates, message in ((TIMES[:, None], r'asarray\(coordinates\).astype\("int64"\); encode'),
                                 ([[1], [2]], "as the positions of a table with several axes are numbers")):
        with pytest.raises(TypeError, match=message):
            posenc.points(coordinates, 2, periods=["1D"])


@pytest.mark.parametrize("keywords", [{"position_offset": 1}, {"padding_idx": 0}])
def test_numbers_beside_durations_are_refused(keywords):
    with pytest.raises(ValueError, match=f"{next(iter(keywords))} is [01].*, expected none"):
        Encoding(periods=["1D"], **keywords)


def test_the_slow_paths_are_rare():
    kernel.counters()
    posenc.encode(np.random.default_rng(0).integers(0, 2**61, 10**5), periods=[3600 * 10**9, 86_400 * 10**9])
    assert kernel.counters()["exact"] < 10


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [2, 9, 20])
@pytest.mark.parametrize("unit", [1, 10**9])
def test_exact_zeros_in_ranges_are_not_evaluated_one_by_one(isa, unit, count, dtype):
    encoding = posenc.Encoding(periods=[24 * unit / k for k in range(1, count + 1)])
    kernel.counters()
    encoding.encode(range(0, 1000 * unit, unit), dtype=dtype)
    assert kernel.counters()["exact"] < 20


def test_share_of_exact_zeros():
    frequencies = [Fraction(1, 24), Fraction(2, 5), Fraction(-7, 8), Fraction(3)]
    counted = sum((4 * f * p).denominator == 1 for f in frequencies for p in range(120)) / 120
    assert RationalTurns([*frequencies, Fraction(0)]).zeros() == pytest.approx(counted)
