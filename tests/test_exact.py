"""Values that the kernel's first width does not decide."""

import os
import signal
import sys
import threading

import numpy as np
import pytest

import posenc
from conftest import DTYPES, bits_of
from constructed import KINDS, cases
from posenc import _convention, _exact
from posenc._encoding import keywords_of
from reference import FORMATS, Reference, round_to

# one that exact.c leaves open: the offset takes it beyond a half-way point by 2**-310 of itself, its cube back by 2**-397
OPEN = {"position_scale": 2.0**-250, "position_offset": 2.0**-257}
OPEN_POSITION, OPEN_BITS = 2**53 + 1, 0x33A0000000000001


@pytest.fixture
def asked(monkeypatch):
    """The values that Python was asked for: position, exponent, column, dtype."""
    calls = []
    evaluate = _exact.Values.__call__

    def counted(self, *question):
        calls.append(question)
        return evaluate(self, *question)

    monkeypatch.setattr(_exact.Values, "__call__", counted)
    return calls


def fail(error):
    def evaluate(self, *question):
        raise error
    return evaluate


@pytest.mark.parametrize("position, dtype, convention, bits", [
    (342532172538178871, "float64", {"frequencies": [25.582376111203338], "scale": 1.9509239640789042}, 0x39164901055DA164),
    (2**53 + 1, "float64", {"position_scale": 2.0**-170, "position_offset": 2.0**-177}, 0x38A0000000000001),
    (OPEN_POSITION, "float64", OPEN, OPEN_BITS),
    (2.0**-120, "float16", {"position_offset": 2.0**-360, "scale": 3 * 2.0**95}, 2),
    (2.0**-120, "float16", {"scale": 3 * 2.0**95}, 1),
])
def test_examples(isa, position, dtype, convention, bits):
    assert bits_of(posenc.encode(np.array([position]), 1, dtype=dtype, **convention)) == bits
    assert Reference(1, **convention).bits(position, 0, dtype) == bits


def check(kind, dtype, seed, count):
    wrong = []
    for position, column, convention in cases(kind, dtype, seed, count):
        found = bits_of(posenc.encode(np.array([position]), 2, dtype=dtype, **convention))[0, column]
        # fixed bits, far more than any case needs, instead of the reference's own judgement of how many it takes
        value = Reference(2, **convention).value(position, column, 4000)
        if found != round_to(*value.as_mantissa_exp(), dtype):
            wrong.append((position, column, convention))
    assert not wrong, f"{len(wrong)} of {count} wrong"


@pytest.mark.parametrize("kind", KINDS)
def test_constructed(isa, dtype, kind, asked):
    check(kind, dtype, 0, 50)
    # a scale of 53 bits takes a value of the shorter types less near to a half-way point
    if dtype == "float64" or kind == "ties":
        assert asked


@pytest.mark.long
@pytest.mark.parametrize("part", range(5))
@pytest.mark.parametrize("kind", KINDS)
def test_many_constructed(isa, dtype, kind, part):
    """10,000 of each kind."""
    check(kind, dtype, 1 + part, 500)


@pytest.mark.parametrize("end", ["largest", "smallest"])
def test_half_way_to_infinity_and_to_zero(isa, dtype, end, asked):
    """From above and below, of either sign."""
    precision, smallest, _ = FORMATS[dtype]
    largest = 2 ** (precision + 1) - 1, {"float32": 103, "float16": 4, "bfloat16": 119}.get(dtype)
    odd, unit = largest if end == "largest" else (1, smallest - 1)
    if unit is None:
        pytest.skip("no product is so near the end of float64")
    position = np.ldexp(float(odd), -200)
    for sign in (1, -1):
        for offset, away in ((0.0, 0), (position**3 / 3, 1)):
            convention = {"scale": float(np.ldexp(1.0, unit + 200)), "position_offset": sign * offset}
            found = bits_of(posenc.encode(np.array([sign * position]), 1, dtype=dtype, **convention))[0, 0]
            assert found == Reference(1, **convention).bits(sign * position, 0, dtype)
            magnitude = found & (1 << 8 * found.itemsize - 1) - 1
            assert magnitude == round_to(odd // 2 + away, unit + 1, dtype)
    assert len(asked) == 4


def test_in_the_midst_of_a_table(isa, dtype, asked):
    rows = np.arange(OPEN_POSITION - 300, OPEN_POSITION + 300, 2)
    reference = Reference(2, **OPEN)
    right = reference.table(rows[140:160].tolist(), dtype)
    for positions in (range(rows[0], rows[-1] + 1, 2), rows):
        table = posenc.encode(positions, 2, dtype=dtype, **OPEN)
        np.testing.assert_array_equal(bits_of(table)[140:160], right)
    assert bool(asked) == (dtype == "float64")


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_threads(asked, threads):
    positions = np.full(5000, OPEN_POSITION)
    values = posenc.encode(positions, 1, dtype="float64", threads=threads, **OPEN)
    assert (bits_of(values) == OPEN_BITS).all()
    assert len(asked) == len(positions)


def test_callers_in_threads():
    """Each has an encoding of its own, or they share one."""
    encoding = posenc.Encoding(1, **OPEN)
    positions = np.full(2000, OPEN_POSITION)
    found = []
    callers = [threading.Thread(target=lambda: found.append(encoding.encode(positions, dtype="float64", threads=2)))
               for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert len(found) == 4
    assert all((bits_of(values) == OPEN_BITS).all() for values in found)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("error", [MemoryError("no room"), KeyboardInterrupt()])
def test_an_error_ends_the_call(monkeypatch, error, threads):
    encoding = posenc.Encoding(1, **OPEN)
    positions = np.full(40000, OPEN_POSITION)
    with monkeypatch.context() as patch:
        patch.setattr(_exact.Values, "__call__", fail(error))
        with pytest.raises(type(error)) as caught:
            encoding.encode(positions, dtype="float64", threads=threads)
    assert caught.value is error
    assert (bits_of(encoding.encode(positions[:9], dtype="float64")) == OPEN_BITS).all()


@pytest.mark.skipif(sys.platform == "win32", reason="sends a signal")
@pytest.mark.parametrize("threads", [1, 2])
def test_ctrl_c(threads):
    positions = np.full(400_000, OPEN_POSITION)
    out = np.full((len(positions), 1), np.nan)
    timer = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            posenc.encode(positions, 1, dtype="float64", out=out, threads=threads, **OPEN)
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)
    assert np.isnan(out).any()


def test_ordinary_tables_ask_for_nothing(isa, dtype, asked):
    for convention in ({}, {"position_offset": 0.1}, {"scale": 22.6}, {"base": 500000.0, "layout": "halves"}):
        posenc.encode(range(-100, 10**4), 64, dtype=dtype, **convention)
        posenc.encode(np.random.default_rng(0).integers(-(2**63), 2**63, 2000), 64, dtype=dtype, **convention)
    assert not asked


# --- Python's evaluation alone, without the kernel ------------------------------------------------

def number(value, dtype):
    """The bits of a float that dtype holds."""
    if np.isinf(value):
        return round_to(int(np.sign(value)), 2000, dtype)
    numerator, denominator = value.as_integer_ratio()
    bits = round_to(numerator, 1 - denominator.bit_length(), dtype)
    return bits or int(np.signbit(value)) << 8 * FORMATS[dtype][2]().itemsize - 1


@pytest.mark.parametrize("convention", [
    {}, {"order": "cos"}, {"scale": -22.6}, {"scale": 1e-310}, {"scale": 1e-42}, {"scale": 3e-8}, {"scale": 1e5},
    {"scale": 1.7976931348623157e308}, {"frequencies": [1e300, -1e-300]}, {"position_scale": -1e-60}, {"base": 1e-30},
], ids=str)
def test_every_value_may_be_asked_for(convention, dtype):
    """Also those that the kernel decides: of large, small and subnormal values and of those that overflow."""
    encoding, reference = posenc.Encoding(4, **convention), Reference(4, **convention)
    convention = keywords_of(encoding)
    frequency, cosine = _convention.arrangement(4, convention, 2)
    values = _exact.Values(_convention.turns_of(4, convention), frequency, cosine, convention["scale"])
    for position in (1, -1, 7, 10**6 + 1, 2**63 - 1, -(2**63), 0.1, -2.75, 1e-5, 5e-324, -1e-300):
        numerator, denominator = position.as_integer_ratio()
        for column in range(4):
            found = values(numerator, 1 - denominator.bit_length(), column, DTYPES.index(dtype))
            assert number(found, dtype) == reference.bits(position, column, dtype)
