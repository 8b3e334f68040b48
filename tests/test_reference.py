"""The reference agrees with mpmath, and with values that are known exactly."""

import struct
from fractions import Fraction

import pytest
from mpmath import mp, mpf

from reference import FORMATS, INFINITY, Reference

LARGEST = 2**63 - 1

# convention, position, column; then the function and the frequency of that column, for mpmath
CASES = [
    (dict(d_model=512), 12345, 11, mp.cos, lambda: mpf(10000) ** (mpf(-10) / 512)),
    (dict(d_model=512), LARGEST, 1, mp.cos, lambda: mpf(1)),
    (dict(d_model=512), -(2**63), 2, mp.sin, lambda: mpf(10000) ** (mpf(-2) / 512)),
    (dict(d_model=4096, base=1e8), 3619187061762545281, 1980, mp.sin,
     lambda: mpf(10) ** (mpf(-8 * 1980) / 4096)),
    (dict(d_model=512, base=2.5), 0.1, 100, mp.sin, lambda: mpf(2.5) ** (mpf(-100) / 512)),
    (dict(d_model=11), 7, 10, mp.sin, lambda: mpf(10000) ** (mpf(-10) / 11)),
    (dict(d_model=11, odd="zero"), 7, 8, mp.sin, lambda: mpf(10000) ** (mpf(-8) / 10)),
    (dict(d_model=12, spacing="endpoint"), 7, 10, mp.sin, lambda: mpf("0.0001")),
    (dict(d_model=12, spacing="endpoint", exponents="column"), 7, 11, mp.cos, lambda: mpf("0.0001")),
    (dict(d_model=11, spacing="endpoint"), 7, 2, mp.sin, lambda: mpf(10000) ** (mpf(-1) / 5)),
    (dict(d_model=2, spacing="endpoint", frequency_scale=3.5), 7, 0, mp.sin, lambda: mpf(3.5)),
    (dict(d_model=12, shift=0.25, exponents="column"), 7, 3, mp.cos,
     lambda: mpf(10000) ** (mpf(-3) / mpf(11.5))),
    (dict(d_model=8, exponents="column"), 5, 3, mp.cos, lambda: mpf(10000) ** (mpf(-3) / 8)),
    (dict(d_model=8, layout="halves"), 5, 6, mp.cos, lambda: mpf("0.01")),
    (dict(d_model=7, layout="halves", odd="zero"), 5, 3, mp.cos, lambda: mpf(1)),
    (dict(d_model=8, order="cos"), 5, 2, mp.cos, lambda: mpf(10000) ** (mpf(-1) / 4)),
    (dict(d_model=2, frequencies=[-1e300], position_scale=1e300), -LARGEST, 1, mp.cos, lambda: mpf(-1e300)),
    (dict(d_model=2, frequencies=[5e-324], position_scale=5e-324), -5e-324, 0, mp.sin, lambda: mpf(5e-324)),
    (dict(d_model=2, frequencies=[1e-300]), 1e-300, 1, mp.cos, lambda: mpf(1e-300)),
    (dict(d_model=2), 1e-310, 0, mp.sin, lambda: mpf(1)),
    (dict(d_model=2), -1.7e-45, 0, mp.sin, lambda: mpf(1)),
    (dict(d_model=2), 3.3e-8, 0, mp.sin, lambda: mpf(1)),
    (dict(d_model=2), Fraction(355, 113), 0, mp.sin, lambda: mpf(1)),
    (dict(d_model=2, position_offset=0.1), 3, 0, mp.sin, lambda: mpf(1)),
    (dict(d_model=2, position_offset=1e-300), LARGEST, 1, mp.cos, lambda: mpf(1)),
    (dict(d_model=2, position_scale=1 / 3), LARGEST, 1, mp.cos, lambda: mpf(1)),
    (dict(d_model=2, scale=22.6), 5, 0, mp.sin, lambda: mpf(1)),
    (dict(d_model=2, scale=-1e-40), 5, 1, mp.cos, lambda: mpf(1)),
    (dict(d_model=2, scale=1 + 2.0**-24), 1e-300, 1, mp.cos, lambda: mpf(1)),
]


def rational(x):
    x = Fraction(x)
    return mpf(x.numerator) / x.denominator


def number(bits, dtype):
    """Return the number that a bit pattern represents.

    For infinity, return the next power of two after the finite numbers.
    """
    precision, _, unsigned = FORMATS[dtype]
    width = 8 * unsigned().itemsize
    sign, bits = -1 if bits >> (width - 1) else 1, bits & (2 ** (width - 1) - 1)
    if bits == INFINITY[dtype]:
        return sign * mpf(2) * number(bits - (1 << (precision - 2)), dtype) / mpf(1.5)
    if dtype == "bfloat16":
        bits, dtype = bits << 16, "float32"
    code = {"float64": ">Qd", "float32": ">If", "float16": ">He"}[dtype]
    return sign * mpf(struct.unpack(">" + code[2], struct.pack(code[:2], bits))[0])


@pytest.mark.parametrize("convention, position, column, function, frequency", CASES)
def test_the_reference_agrees_with_mpmath(convention, position, column, function, frequency):
    reference = Reference(**convention)
    with mp.workprec(16000):
        angle = rational(position) + rational(convention.get("position_offset", 0))
        angle *= rational(convention.get("position_scale", 1)) * frequency()
        true = function(angle) * rational(convention.get("scale", 1))

        mantissa, exponent = reference.value(position, column, 100).as_mantissa_exp()
        assert abs(mpf(int(mantissa)) * mpf(2) ** int(exponent) - true) <= abs(true) * mpf(2) ** -100

        for dtype, (_, _, unsigned) in FORMATS.items():
            bits = reference.bits(position, column, dtype)
            sign = bits >> (8 * unsigned().itemsize - 1)
            assert sign == (true < 0)
            error = abs(number(bits, dtype) - true)
            magnitude = bits & (2 ** (8 * unsigned().itemsize - 1) - 1)
            if magnitude > 0:
                assert error < abs(number(bits - 1, dtype) - true)
            if magnitude < INFINITY[dtype]:
                assert error < abs(number(bits + 1, dtype) - true)


def test_values_at_angle_zero():
    reference = Reference(4, odd="zero", scale=1 + 2.0**-24)  # a tie, rounded to 1, which is even
    assert reference.table([0, -0.0], "float32").tolist() == [[0, 0x3F800000, 0, 0x3F800000]] * 2
    assert Reference(3, odd="zero").table([0, 1], "float16", [2]).tolist() == [[0], [0]]
    assert Reference(2, frequencies=[0.0]).table([-7], "float32").tolist() == [[0, 0x3F800000]]
    assert Reference(2, scale=0.0).table([-7], "float32").tolist() == [[0, 0]]
    assert Reference(2, position_offset=-3.0).bits(3, 0, "float64") == 0


def test_values_just_below_a_tie():
    """A tie would be rounded up, but the value is just below it, because sin x < x and cos x < 1."""
    tie = 2**24 + 11  # 3 times a float64
    for k in (40, 100, 140):
        below = struct.unpack(">I", struct.pack(">f", (tie - 1) * 2.0**-k))[0]
        for sign in (0, 1):
            position = (-1) ** sign * (tie // 3) * 2.0**-k
            assert Reference(2, position_scale=3.0).bits(position, 0, "float32") == below | sign << 31
    assert Reference(2, position_scale=1.5).bits(5e-324, 0, "float64") == 1

    tie = Reference(2, scale=1 + 3 * 2.0**-24)
    assert tie.bits(0, 1, "float32") == 0x3F800002
    assert tie.bits(1e-300, 1, "float32") == 0x3F800001
