"""Values that the fast path of the kernel leaves undecided."""

from concurrent.futures import ThreadPoolExecutor
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import posenc
from conftest import DTYPES, bits_of
from constructed import KINDS, cases
from posenc._core.exact import ExactColumns
from posenc._core.frequencies import pi
from posenc._encoding.columns import arrangement, turns_of_convention
from reference import FORMATS, Reference, arithmetic, round_to

# The kernels leave this value undecided: relative to the value, the offset moves it beyond a half-way point
# by 2**-310, and the cubic term of the series of sin moves it back by 2**-397.
UNDECIDED = {"position_scale": 2.0**-250, "position_offset": 2.0**-257}
UNDECIDED_POSITION, UNDECIDED_BITS = 2**53 + 1, 0x33A0000000000001


@pytest.mark.parametrize("position, dtype, convention, bits", [
    (342532172538178871, "float64", {"frequencies": [25.582376111203338], "scale": 1.9509239640789042},
     0x39164901055DA164),
    (2**53 + 1, "float64", {"position_scale": 2.0**-170, "position_offset": 2.0**-177}, 0x38A0000000000001),
    # the offset moves the angle beyond a half-way point, and the cubic term of the series moves the value
    # back
    (2**53 + 1, "float64", {"position_scale": 2.0**-90, "position_offset": 3 * 2.0**-26}, 0x3DA0000000000000),
    (UNDECIDED_POSITION, "float64", UNDECIDED, UNDECIDED_BITS),
    # just above and below half-way points: the cosine is below 1 by 2**-67
    (2.0**-33, "float32", {"order": "cos", "scale": 1 + 3 * 2.0**-24}, 0x3F800001),
    (2.0**-33, "float32", {"order": "cos", "scale": 1 + 2.0**-24}, 0x3F800000),
    (2.0**-120, "float16", {"position_offset": 2.0**-360, "scale": 3 * 2.0**95}, 2),
    (2.0**-120, "float16", {"scale": 3 * 2.0**95}, 1),
])
def test_known_hard_values(isa, position, dtype, convention, bits):
    assert bits_of(posenc.encode(np.array([position]), 1, dtype=dtype, **convention)) == bits
    assert Reference(1, **convention).bits(position, 0, dtype) == bits


@pytest.mark.parametrize("seed, count", [(0, 30), *(pytest.param(seed, 500, marks=pytest.mark.long)
                                                    for seed in range(1, 6))])
@pytest.mark.parametrize("kind", KINDS)
def test_constructed_values_are_correctly_rounded(isa, dtype, kind, seed, count, evaluations):
    wrong = []
    for position, column, convention in cases(kind, dtype, seed, count):
        bits = bits_of(posenc.encode(np.array([position]), 2, dtype=dtype, **convention))[0, column]
        # a fixed precision, far higher than any case needs, avoids the rounding test of the reference
        value = Reference(2, **convention).value(position, column, 4000)
        if bits != round_to(*value.as_mantissa_exp(), dtype):
            wrong.append((position, column, convention))
    assert not wrong, f"{len(wrong)} of {count} wrong"
    # in narrower dtypes, a scale of 53 bits brings only the values of `ties` close enough to a half-way point
    if kind == "ties" or dtype == "float64" and kind != "ordinary_values":
        assert evaluations


@pytest.mark.parametrize("d_model, convention", [
    (512, {}), (64, {"base": 1e30, "frequency_scale": 3.7}), (11, {"spacing": "endpoint", "base": 2.0}),
    (6, {"frequencies": (1e-30, 2.5, 3e20)}), (7, {"exponents": "column", "position_scale": 1e-20}),
])
def test_frequencies_have_256_bits(d_model, convention):
    reference = Reference(d_model, **convention)
    turns = turns_of_convention(d_model, posenc.Encoding(d_model, **convention)._values)()
    for index in range(len(turns.limbs) - 1):
        turn = turns.integer(index)
        assert turn.bit_length() >= 256
        wide = arithmetic(1000)
        exact_turn = wide.div(wide.mul(reference.frequency(index, 1000), reference.position_scale),
                              wide.const_pi())
        assert abs(wide.sub(wide.mul_2exp(exact_turn, turns.fraction_bits - 1), turn)) <= 2


@pytest.mark.parametrize("root", [2.0, 3.0, 1.5, 0.5, 2.5, 7.0])
def test_frequencies_at_ties_are_rounded_to_even(root):
    """The exponents are 0, 1/2, 1 and 3/2, so the frequencies are rational, and half of those with a factor
    of 3 are ties.
    """
    scales = np.ldexp(np.random.default_rng(0).integers(2**52, 2**53, 40), -200)
    for scale in (float.fromhex("0x1.25c19bad640fbp+107"), *scales, *-scales):
        frequencies = posenc.Encoding(8, base=root**2, shift=6.0, frequency_scale=scale).frequencies
        assert frequencies.tolist() == [float(Fraction(scale) * Fraction(root) ** i) for i in range(4)]


@pytest.mark.parametrize("bits", [1, 64, 320, 2931, 4266, 100_000])
def test_pi(bits):
    exact = arithmetic(bits + 100).const_pi()
    assert abs(arithmetic(bits + 100).sub(arithmetic(bits + 100).mul_2exp(exact, bits), pi(bits))) < 1.001


# float64 arguments cannot give a value close enough to the largest float64
@pytest.mark.parametrize(
    "dtype, end", [("float64", "smallest"), *product(["float32", "float16", "bfloat16"], ["smallest", "largest"])]
)
def test_ties_at_the_limits_of_a_dtype(isa, dtype, end, evaluations):
    """Values on both sides of the ties between the largest number and infinity, and between the smallest
    number and 0.
    """
    precision, smallest, _ = FORMATS[dtype]
    if end == "largest":
        odd, unit = 2 ** (precision + 1) - 1, {"float32": 103, "float16": 4, "bfloat16": 119}[dtype]
    else:
        odd, unit = 1, smallest - 1
    position = np.ldexp(float(odd), -200)
    for sign in (1, -1):
        for offset, away in ((0.0, 0), (position**3 / 3, 1)):
            convention = {"scale": float(np.ldexp(1.0, unit + 200)), "position_offset": sign * offset}
            bits = bits_of(posenc.encode(np.array([sign * position]), 1, dtype=dtype, **convention))[0, 0]
            assert bits == Reference(1, **convention).bits(sign * position, 0, dtype)
            magnitude = bits & (1 << 8 * bits.itemsize - 1) - 1
            assert magnitude == round_to(odd // 2 + away, unit + 1, dtype)
    assert len(evaluations) == 4


def test_an_undecided_value_inside_a_table(isa, dtype, evaluations):
    rows = np.arange(UNDECIDED_POSITION - 300, UNDECIDED_POSITION + 300, 2)
    reference = Reference(2, **UNDECIDED)
    expected = reference.table(rows[140:160].tolist(), dtype)
    for positions in (range(rows[0], rows[-1] + 1, 2), rows):
        table = posenc.encode(positions, 2, dtype=dtype, **UNDECIDED)
        np.testing.assert_array_equal(bits_of(table)[140:160], expected)
    assert evaluations or dtype != "float64"


@pytest.mark.parametrize("d_model", [1, 2, 3, 12])
def test_undecided_values_in_rows_that_share_a_tile(isa, evaluations, d_model):
    """The sine of a tiny angle is slightly smaller than the angle, which is half-way between two floats."""
    frequencies = [2.0**-80] * -(-d_model // 2)
    positions = range(2**24 - 999, 2**24 + 1001)
    expected = Reference(d_model, frequencies=frequencies).table(positions, "float32", [0])
    table = posenc.encode(positions, d_model, frequencies=frequencies)
    np.testing.assert_array_equal(bits_of(table)[:, :1], expected)
    assert evaluations


def test_cosines_of_tiny_angles(isa, dtype):
    convention = {"frequencies": (2.0**-60,), "order": "cos", "scale": 1 + 2.0**-FORMATS[dtype][0]}
    if dtype == "float64":
        convention["scale"] = 1.5
    values = posenc.encode(range(1, 300), 1, dtype=dtype, **convention)
    assert (bits_of(values) == Reference(1, **convention).bits(1, 0, dtype)).all()


@pytest.mark.parametrize("convention", [
    {}, {"base": 1e12, "scale": -2.0**-60, "order": "cos"}, {"frequencies": [2.0**k for k in range(0, 16, 2)]},
    {"periods": [7, 24, 2.0**-20, 365.25]},
], ids=str)
def test_tiny_positions_need_no_evaluation_in_python(isa, dtype, evaluations, convention):
    width = 2 * len(convention.get("frequencies", convention.get("periods", range(20))))
    rng = np.random.default_rng(3)
    positions = rng.uniform(-1, 1, 60) * 2.0 ** -rng.integers(16, 250, 60)
    positions[:6] = 2.0**-20, 2.0**-21, -(2.0**-52), -2.0**-52 * (1 + 2.0**-52), 1e-17, 2.0**-64
    table = bits_of(posenc.encode(positions, width, dtype=dtype, **convention))
    reference = Reference(width, **convention)
    np.testing.assert_array_equal(table, [[reference.bits(p, k, dtype) for k in range(width)] for p in positions])
    assert not evaluations


def test_tiny_positions_next_to_half_way_points(isa, evaluations):
    positions = (1 + np.arange(1, 9) * 2.0**-52) * 2.0**-60
    table = posenc.encode(positions, 1, dtype="float64", scale=1.5)
    assert bits_of(table)[:, 0].tolist() == [Reference(1, scale=1.5).bits(p, 0, "float64") for p in positions]
    assert evaluations


def test_columns_with_frequency_0_at_scales_that_only_python_evaluates(isa, dtype):
    convention = {"frequencies": (0.0, 1.0), "scale": 2.0**-401}
    expected = Reference(4, **convention).table([5, -7], dtype)
    np.testing.assert_array_equal(bits_of(posenc.encode([5, -7], 4, dtype=dtype, **convention)), expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_subnormal_columns_with_frequency_0(isa, dtype):
    convention = {"frequencies": [0.0] * 17, "scale": (2.5 + 2.0**-30) * 2.0 ** FORMATS[dtype][1]}
    expected = Reference(34, **convention).table(range(5, 25), dtype)
    np.testing.assert_array_equal(bits_of(posenc.encode(range(5, 205), 34, dtype=dtype, **convention))[:20], expected)


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_each_value_is_evaluated_once(evaluations, threads):
    positions = np.full(5000, UNDECIDED_POSITION)
    values = posenc.encode(positions, 1, dtype="float64", threads=threads, **UNDECIDED)
    assert (bits_of(values) == UNDECIDED_BITS).all()
    assert len(evaluations) == len(positions)


@pytest.mark.parametrize("threads", [1, 2])
def test_an_undecided_value_is_added_once(isa, threads, evaluations):
    rows = np.arange(UNDECIDED_POSITION - 4096, UNDECIDED_POSITION + 4096, 2)
    for positions, shape in (rows, (3, len(rows), 1)), (np.full(300, UNDECIDED_POSITION), (300, 1)):
        x = np.random.default_rng(0).normal(scale=np.uint64(UNDECIDED_BITS).view(float), size=shape)
        for x_scale in (1.0, 0.7):
            expected = x * x_scale + posenc.encode(positions, 1, dtype="float64", **UNDECIDED)
            evaluations.clear()
            result = posenc.add_to(x.copy(), positions, x_scale=x_scale, threads=threads, **UNDECIDED)
            np.testing.assert_array_equal(bits_of(result), bits_of(expected))
            assert 0 < len(evaluations) <= len(positions)           # for all batch entries


@pytest.mark.parametrize("past", [0, 16])       # of a cache line
@pytest.mark.parametrize("place", [9, 50])      # below and above the anchor of a group
def test_undecided_values_in_rows_of_a_page(isa, place, past):
    memory, first = np.ones(2101 * 4096, np.uint8), UNDECIDED_POSITION - place
    out = memory[-memory.ctypes.data % 64 + past :][: 2100 * 4096].view(np.float64).reshape(2100, 512)
    pairs = [2, 252, 2]         # the first ones are computed with the row before
    frequencies = np.repeat([1.0, 0.0, 1.0], pairs)
    posenc.encode(range(first, first + len(out)), 512, out=out, frequencies=frequencies, **UNDECIDED)
    assert (bits_of(out[place, 0::2]) == np.repeat([UNDECIDED_BITS, 0, UNDECIDED_BITS], pairs)).all()
    assert (out[place, 1::2] == 1).all()


def test_several_threads_may_call_at_the_same_time():
    encoding = posenc.Encoding(1, **UNDECIDED)
    positions = np.full(2000, UNDECIDED_POSITION)
    with ThreadPoolExecutor(4) as pool:
        calls = [pool.submit(encoding.encode, positions, dtype="float64", threads=2) for _ in range(4)]
    assert all((bits_of(call.result()) == UNDECIDED_BITS).all() for call in calls)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("error", [MemoryError("out of memory"), KeyboardInterrupt()])
def test_an_error_in_the_exact_evaluation_ends_the_call(monkeypatch, error, threads):
    def fail(self, *arguments):
        raise error

    encoding = posenc.Encoding(1, **UNDECIDED)
    positions = np.full(40000, UNDECIDED_POSITION)
    with monkeypatch.context() as patch:
        patch.setattr(ExactColumns, "__call__", fail)
        with pytest.raises(type(error)) as caught:
            encoding.encode(positions, dtype="float64", threads=threads)
    assert caught.value is error
    assert (bits_of(encoding.encode(positions[:9], dtype="float64")) == UNDECIDED_BITS).all()


def test_ordinary_tables_need_no_evaluation_in_python(isa, dtype, evaluations):
    for convention in ({}, {"position_offset": 0.1}, {"scale": 22.6}, {"base": 500000.0, "layout": "halves"}):
        posenc.encode(range(-100, 10**4), 64, dtype=dtype, **convention)
        posenc.encode(np.random.default_rng(0).integers(-(2**63), 2**63, 2000), 64, dtype=dtype, **convention)
    assert not evaluations


# --- evaluation in Python, without the kernel -----------------------------------------------------

def bits_in(value, dtype):
    """Return the bits of `value` in `dtype`, which can represent it exactly."""
    if np.isinf(value):
        return round_to(int(np.sign(value)), 2000, dtype)
    numerator, denominator = value.as_integer_ratio()
    bits = round_to(numerator, 1 - denominator.bit_length(), dtype)
    return bits or int(np.signbit(value)) << 8 * FORMATS[dtype][2]().itemsize - 1


@pytest.mark.parametrize("convention", [
    {}, {"order": "cos"}, {"scale": -22.6}, {"scale": 1e-310}, {"scale": 1e-42}, {"scale": 3e-8},
    {"scale": 1e5}, {"scale": 1.7976931348623157e308}, {"frequencies": [1e300, -1e-300]},
    {"position_scale": -1e-60}, {"base": 1e-30},
], ids=str)
def test_python_evaluates_every_value_correctly(convention, dtype):
    """Include values that the kernel would decide: large, small, subnormal and infinite."""
    encoding, reference = posenc.Encoding(4, **convention), Reference(4, **convention)
    convention = encoding._values
    frequency, cosine = arrangement(4, convention)
    values = ExactColumns(turns_of_convention(4, convention), frequency, cosine, convention["scale"])
    for position in (1, -1, 7, 10**6 + 1, 2**63 - 1, -(2**63), 0.1, -2.75, 1e-5, 5e-324, -1e-300):
        numerator, denominator = position.as_integer_ratio()
        for column in range(4):
            value = values(numerator, 1 - denominator.bit_length(), column, DTYPES.index(dtype))
            assert bits_in(value, dtype) == reference.bits(position, column, dtype)
