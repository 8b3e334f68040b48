"""Every call returns the correct result, or raises an error that names the argument and leaves all arrays unchanged."""

import os
import re
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import posenc
from conftest import assert_same_bits, bits_of
from posenc import Encoding
from reference import NAN, Reference, Rotated, reference_of

# ---- invalid arguments ----------------------------------------------------------------------------------------------


def short(value):
    """Return an identifier of a value for a test's name, without the addresses that differ from process to process."""
    return re.sub(" at 0x[0-9a-f]+", "", value.__name__ if isinstance(value, type) else repr(value))[:30]


def readonly(a):
    a.flags.writeable = False
    return a


def misaligned(shape, dtype):
    raw = np.zeros(np.prod(shape) * np.dtype(dtype).itemsize + 1, np.uint8)[1:]
    return raw.view(dtype).reshape(shape)


def strided(shape, strides):
    return np.lib.stride_tricks.as_strided(np.zeros(np.prod(shape), np.float32), shape, strides)


class Sub(np.ndarray):
    pass


class Tensor:
    """A number whose dtype is from another library."""

    def __init__(self, dtype, number, ndim=0):
        self.dtype, self.number, self.ndim = dtype, number, ndim

    def __index__(self):
        return self.number

    def __float__(self):
        return float(self.number)

    def __repr__(self):
        return f"Tensor({self.number}, {self.dtype})"


def valid(function):
    """Return valid arguments for a function; each test replaces one of them."""
    if function.endswith("add_to"):
        return {"x": np.full((12, 64), 7, np.float32)} | ({"d_model": 64} if function.startswith("Encoding") else {})
    if function == "Rotary.rotate":
        return {"x": np.full((12, 64), 7, np.float32), "head_dim": 64}
    return {"d_model": 64} | ({} if function == "Encoding" else {"positions": 12, "out": np.full((12, 64), 7, np.float32)})


ENCODE, STREAM, ADD_TO = ((name, f"Encoding.{name}") for name in ("encode", "stream", "add_to"))
ROTATE = ("Rotary.rotate",)
# argument: functions that accept it
FUNCTIONS_WITH = {
    "positions": ENCODE + STREAM + ADD_TO + ROTATE,
    "out": ENCODE + STREAM,
    "dtype": ENCODE + STREAM,
    "threads": ENCODE + STREAM + ADD_TO + ROTATE,
    "chunk_rows": STREAM,
    "x": ADD_TO + ROTATE,
    "x_scale": ADD_TO,
    "d_model": ("encode", "stream", "Encoding"),
}
METHOD_ARGUMENTS = ("positions", "dtype", "out", "threads", "chunk_rows", "x", "x_scale", "inverse")


def call(function, arguments):
    """Call a function, or a method of Encoding or Rotary, by its name."""
    name, _, method = function.partition(".")
    function = getattr(posenc, name)
    if not method:
        return function(**arguments)
    method_arguments = {k: v for k, v in arguments.items() if k in METHOD_ARGUMENTS}
    return getattr(function(**{k: v for k, v in arguments.items() if k not in METHOD_ARGUMENTS}), method)(**method_arguments)


BAD_POSITIONS = [
    (-1, ValueError, "positions is -1"),
    (np.int8(-1), ValueError, "positions is -1"),
    (3.0, TypeError, "positions is 3.0"),
    ("3", TypeError, "positions is '3'"),
    (b"3", TypeError, "positions is b'3'"),
    (True, TypeError, "bool"),
    (np.bool_(True), TypeError, "bool"),
    (np.float64(3), TypeError, "float64"),
    (1j, TypeError, "complex"),
    (2**64, ValueError, "positions has 9223372036854775808"),
    (2**70, ValueError, "positions has 9223372036854775808"),
    (object(), TypeError, "dtype object"),
    ({}, TypeError, "dtype object"),
    (np.array([True, False]), TypeError, "dtype bool"),
    (np.array(["a"]), TypeError, "dtype <U1"),
    (np.array([b"a"]), TypeError, "dtype |S1"),
    (np.array([1j]), TypeError, "dtype complex128"),
    (np.array([object()]), TypeError, "dtype object"),
    (np.array([None, 1]), ValueError, "positions has 1 null"),
    (np.array([1, 2], object), TypeError, "dtype object"),
    (np.array(3, object), TypeError, "dtype object"),
    (np.array(["2020-01-01"], "M8[ns]"), TypeError, "dtype datetime64"),
    (np.array([1], "m8[s]"), TypeError, "dtype timedelta64"),
    (np.array([(1, 2)], "i4,i4"), TypeError, "dtype"),
    (np.array([1.0], np.longdouble), TypeError, "at most 64 bits"),
    (np.ma.array([1, 2], mask=[True, False]), TypeError, "MaskedArray"),
    ([2**63], ValueError, "9223372036854775808"),
    ([1, 2**70], ValueError, str(2**70)),
    (np.array([5, 2**63], np.uint64), ValueError, "9223372036854775808"),
    ([2**53 + 1, 0.5], ValueError, "positions has 9007199254740993 beside real or negative numbers"),
    ([[0.5, np.inf], [-1, np.int64(2**62 + 1)]], ValueError, "positions has 4611686018427387905 beside real or negative"),
    ([np.uint64(2**62 + 1), np.int64(-1)], ValueError, "positions has 4611686018427387905 beside real or negative numbers"),
    ([np.array(2**53 + 1), np.array(0.5)], ValueError, "positions has 9007199254740993 beside real or negative numbers"),
    ([[np.array(2**62 + 1, np.uint64), np.array(-1)]], ValueError, "positions has 4611686018427387905 beside real or negative"),
    (np.zeros(2, ml_dtypes.float8_e4m3fn), TypeError, "dtype float8_e4m3fn, expected integers of at most 64 bits, float64"),
    ([0.0, 2.0**63], ValueError, "9.22337"),
    (np.array([0.0, 2.0**63]), ValueError, "9.22337"),
    ([0.0, -1e300], ValueError, "-1e.300"),
    ([0.5, 10**400], TypeError, "dtype object"),
    (range(2**63 - 5, 2**63 + 5), ValueError, "positions has 9223372036854775808,"),
    (range(2**64, 2**64 + 3), ValueError, f"positions has {2**64},"),
    (range(-(2**63) + 1, -(2**63) - 3, -1), ValueError, f"positions has {-(2**63) - 1},"),
    (range(-(2**63) - 5, -(2**63) + 5), ValueError, f"positions has {-(2**63) - 5},"),
]

F4, SHAPE = np.float32, (12, 64)
BAD_ARRAYS = {
    "no dimension": (np.zeros((), F4), ValueError, "has shape"),
    "read-only": (readonly(np.zeros(SHAPE, F4)), ValueError, "read-only"),
    "integers": (np.zeros(SHAPE, np.int32), TypeError, "has dtype"),
    "bits": (np.zeros(SHAPE, np.uint32), TypeError, "has dtype"),
    "booleans": (np.zeros(SHAPE, bool), TypeError, "has dtype"),
    "complex": (np.zeros(SHAPE, np.complex64), TypeError, "has dtype"),
    "objects": (np.zeros(SHAPE, object), TypeError, "has dtype"),
    "records": (np.zeros(SHAPE, "f4,f4"), TypeError, "has dtype"),
    "list": ([[0.0] * 64] * 12, TypeError, "is of type list"),
    "memory": (memoryview(bytearray(4 * 12 * 64)), TypeError, "is of type memoryview"),
    "number": (0.0, TypeError, "is of type float"),
    "byte order": (np.zeros(SHAPE, np.dtype(F4).newbyteorder()), ValueError, "dtype"),
    "misaligned": (misaligned(SHAPE, F4), ValueError, "aligned"),
    "Fortran order": (np.zeros(SHAPE, F4, order="F"), ValueError, "contiguous last dimension"),
    "strided columns": (np.zeros((12, 128), F4)[:, ::2], ValueError, "contiguous last dimension"),
    "reversed columns": (np.zeros(SHAPE, F4)[:, ::-1], ValueError, "contiguous last dimension"),
    "a single value": (strided(SHAPE, (0, 0)), ValueError, "contiguous last dimension"),
    "a repeated row": (strided(SHAPE, (0, 4)), ValueError, "overlap"),
    "overlapping rows": (strided(SHAPE, (128, 4)), ValueError, "overlap"),
    "reversed overlapping rows": (strided(SHAPE, (128, 4))[::-1], ValueError, "overlap"),
    "masked": (np.ma.zeros(SHAPE, F4), TypeError, "MaskedArray"),
    "subclass": (np.zeros(SHAPE, F4).view(Sub), TypeError, "Sub"),
    "matrix": (np.zeros(SHAPE, F4).view(np.matrix), TypeError, "matrix"),
}
BAD_OUTS = BAD_ARRAYS | {
    "more columns": (np.zeros((12, 65), F4), ValueError, "out has shape"),
    "one dimension": (np.zeros(12 * 64, F4), ValueError, "out has shape"),
    "broadcastable": (np.zeros((4, 12, 64), F4), ValueError, "out has shape"),
}
BAD_XS = BAD_ARRAYS | {
    "one position": (np.zeros(64, F4), ValueError, "x has shape"),
    "broadcast": (np.broadcast_to(np.zeros(64, F4), SHAPE), ValueError, "read-only"),
}

BAD = [
    *[("out", *case) for case in BAD_OUTS.values()],
    *[("x", *case) for case in BAD_XS.values()],
    ("d_model", -1, ValueError, "d_model is -1"),
    ("d_model", 4.0, TypeError, "d_model"),
    ("d_model", True, TypeError, "d_model"),
    ("d_model", "4", TypeError, "d_model"),
    ("d_model", None, TypeError, "d_model"),
    ("d_model", [4], TypeError, "d_model"),
    ("d_model", 2**24 + 1, ValueError, "d_model is 16777217, expected at most"),
    ("d_model", 2**63, ValueError, "d_model"),
    ("d_model", 2**70, ValueError, "d_model"),
    ("dtype", "int32", TypeError, "dtype"),
    ("dtype", "float128", TypeError, "dtype"),
    ("dtype", "nonsense", TypeError, "dtype"),
    ("dtype", "<0)", TypeError, "dtype"),
    ("dtype", "complex64", TypeError, "dtype"),
    ("dtype", ">f4", ValueError, "byte order"),
    ("dtype", object, TypeError, "dtype"),
    ("dtype", 4, TypeError, "dtype"),
    ("dtype", "f4,f4", TypeError, "dtype"),
    ("threads", 0, ValueError, "threads is 0"),
    ("threads", -1, ValueError, "threads is -1"),
    ("threads", -(2**70), ValueError, "threads"),
    ("threads", 2.7, TypeError, "threads"),
    ("threads", True, TypeError, "threads"),
    ("threads", "2", TypeError, "threads"),
    ("chunk_rows", 0, ValueError, "chunk_rows is 0"),
    ("chunk_rows", -1, ValueError, "chunk_rows is -1"),
    ("chunk_rows", 2.0, TypeError, "chunk_rows"),
    ("chunk_rows", True, TypeError, "chunk_rows"),
    ("chunk_rows", 11, ValueError, "chunk_rows is 11, expected 12"),
    ("x_scale", float("nan"), ValueError, "x_scale"),
    ("x_scale", float("inf"), ValueError, "x_scale"),
    ("x_scale", 1e300, ValueError, "x_scale"),
    ("x_scale", 10**400, ValueError, "x_scale"),
    ("x_scale", "2", TypeError, "x_scale"),
    ("x_scale", True, TypeError, "x_scale"),
    ("x_scale", None, TypeError, "x_scale"),
    ("x_scale", np.ones(2), TypeError, "x_scale"),
    ("x_scale", np.complex64(2 + 1j), TypeError, "x_scale is np.complex64"),
    ("x_scale", 2**53 + 1, ValueError, "x_scale is 9007199254740993, expected a number that float64 can hold"),
    ("base", 0, ValueError, "base is 0"),
    ("base", -1.0, ValueError, "base"),
    ("base", float("nan"), ValueError, "base"),
    ("base", float("inf"), ValueError, "base"),
    ("base", 10**400, ValueError, "base"),
    ("base", "10000", TypeError, "base"),
    ("base", [10000], TypeError, "base"),
    ("base", True, TypeError, "base"),
    ("base", 1j, TypeError, "base"),
    ("base", None, TypeError, "base"),
    ("base", np.complex128(1 + 1j), TypeError, "base is np.complex128"),
    ("base", np.array("100"), TypeError, "base is array"),
    ("base", np.array("100", object), TypeError, "base is array"),
    ("base", np.array(True), TypeError, "base is array"),
    ("base", np.timedelta64(5), TypeError, "base is np.timedelta64"),
    ("base", np.datetime64(5, "s"), TypeError, "base is np.datetime64"),
    ("base", memoryview(b"100"), TypeError, "base is <memory"),
    ("base", Tensor("torch.bool", 1), TypeError, "base is Tensor"),
    ("base", Tensor("torch.complex64", 1), TypeError, "base is Tensor"),
    ("base", 2**53 + 1, ValueError, "base is 9007199254740993, expected a number that float64 can hold"),
    ("base", Fraction(1, 3), ValueError, "base is Fraction"),
    ("base", Decimal("0.1"), ValueError, "base is Decimal"),
    ("position_offset", np.array(2**53 + 1), ValueError, "position_offset is array.9007199254740993., expected a number"),
    ("position_offset", np.int64(2**53 + 1), ValueError, "position_offset is np.int64.9007199254740993., expected a number"),
    ("scale", float("nan"), ValueError, "scale"),
    ("position_scale", float("inf"), ValueError, "position_scale"),
    ("position_offset", float("nan"), ValueError, "position_offset"),
    ("position_offset", 2.0**63, ValueError, "position_offset"),
    ("frequency_scale", None, TypeError, "frequency_scale"),
    ("padding_idx", 1.0, TypeError, "padding_idx is 1.0 of type float"),
    ("padding_idx", True, TypeError, "padding_idx is a bool"),
    ("padding_idx", [1], TypeError, "padding_idx"),
    *((name, Tensor("torch.bool", 1), TypeError, name) for name in ("d_model", "padding_idx", "threads", "chunk_rows")),
    ("d_model", Tensor("torch.int64", 4, ndim=1), TypeError, "d_model is Tensor"),
    ("padding_idx", 2**63, ValueError, r"padding_idx is 9223372036854775808, expected -2\*\*63 <="),
    ("padding_idx", -(2**63) - 1, ValueError, r"padding_idx is -9223372036854775809, expected -2\*\*63 <="),
    ("odd", "pad", ValueError, "odd is 'pad'"),
    ("odd", 1, TypeError, "odd"),
    ("spacing", "linear", ValueError, "spacing"),
    ("layout", "split", ValueError, "layout"),
    ("order", "tan", ValueError, "order"),
    ("exponents", "row", ValueError, "exponents"),
    ("shift", 32, ValueError, "shift is 32"),
    ("frequencies", [1.0], ValueError, "length 1, expected 32"),
    ("frequencies", [[1.0, 2.0]], ValueError, "shape"),
    ("frequencies", [1.0, float("nan")], ValueError, "nan"),
    ("frequencies", [[1.0], [2.0, 3.0]], ValueError, "frequencies is of type list"),
    ("frequencies", ["a", "b"], TypeError, "frequencies"),
    ("frequencies", [True], TypeError, "frequencies"),
    ("frequencies", [2**53 + 1] * 32, ValueError, "frequencies has 9007199254740993, expected numbers that float64 can hold"),
    ("frequencies", [2**53 + 1] + [0.5] * 31, ValueError, "frequencies has 9007199254740993 beside real or negative numbers"),
    ("frequencies", np.full(32, 1j), TypeError, "frequencies has dtype complex128"),
    ("frequencies", np.ma.array([1, 2], mask=[True, False]), TypeError, "frequencies is of type MaskedArray"),
    ("no_such", 1, TypeError, "no_such"),
]
BAD_TOGETHER = [
    ({"frequencies": [1.0, 2.0], "frequency_scale": 2.0}, "frequencies and frequency_scale"),
    ({"frequencies": [1.0, 2.0], "shift": 1.0}, "frequencies and shift"),
    ({"frequencies": [1.0, 2.0], "spacing": "endpoint"}, "frequencies and spacing"),
    ({"d_model": 8, "shift": 3.99}, r"frequencies range from 2\*\*-3989 to 2\*\*-3 turns per position, expected 2\*\*-3400 to"),
    ({"d_model": 8, "shift": 4.01}, r"frequencies range from 2\*\*-3 to 2\*\*3984 turns per position, expected .* 2\*\*2200"),
]


def arrays_of(arguments):
    return {k: np.array(v) for k, v in arguments.items() if k in ("out", "x", "positions") and not isinstance(v, range)}


def assert_refused(function, arguments, error, message):
    before = arrays_of(arguments)
    with pytest.raises(error, match=message):
        call(function, arguments)
    for name, array in arrays_of(arguments).items():
        assert array.tobytes() == before[name].tobytes()


@pytest.mark.parametrize("positions, error, message", BAD_POSITIONS, ids=short)
def test_invalid_positions_are_refused(positions, error, message):
    for function in FUNCTIONS_WITH["positions"]:
        if not function.endswith("encode"):         # streams refuse all arrays, and add_to checks the number of rows first
            error, message = (TypeError, ValueError), "positions"
        assert_refused(function, valid(function) | {"positions": positions}, error, message)


@pytest.mark.parametrize("position, offset", [(2**62, 2.0**62), (-(2**62) - 1, -(2.0**62)), (2**63 - 1, 1.0), (-(2**63), -0.5)])
@pytest.mark.parametrize("kind", ["range", "integers", "list"])
def test_positions_with_an_offset_end_at_the_domain(position, offset, kind):
    def encode(p):
        given = {"range": range(p, p + 1), "integers": np.array([p]), "list": [p]}[kind]
        return posenc.encode(given, 4, position_offset=offset)

    with pytest.raises(ValueError, match=r"^positions "):
        encode(position)
    assert encode(position - int(np.sign(offset))).shape == (1, 4)


@pytest.mark.parametrize("positions", [2**50, 2**62, range(2**50)], ids=repr)
def test_positions_beyond_memory_are_refused(positions):
    for function in (posenc.encode, lambda p, d: Encoding(d).encode(p, dtype="bfloat16")):
        with pytest.raises((MemoryError, ValueError), match=r"positions needs an array of shape \(\d+, 4\)"):
            function(positions, 4)
    with pytest.raises((MemoryError, ValueError), match=r"shape needs an array of shape \(\d+, \d+, 4\)"):
        posenc.grid((2**25, 2**25), 4)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"positions": [10**5000]}, "positions has an integer of 16610 bits, expected -2"),
        ({"positions": range(10**5000, 10**5000 + 2)}, "positions has an integer of 16610 bits, expected -2"),
        ({"positions": range(10**5000)}, "positions has 9223372036854775808, expected -2"),
        ({"d_model": 10**5000}, "d_model is an integer of 16610 bits, expected at most"),
        ({"threads": -(10**5000)}, "threads is an integer of 16610 bits, expected at least 1"),
        ({"base": 10**5000}, "base is an integer of 16610 bits, expected a finite number"),
        ({"padding_idx": 10**5000}, "padding_idx is an integer of 16610 bits, expected -2"),
    ],
    ids=lambda v: next(iter(v)) if isinstance(v, dict) else "",
)
def test_huge_integers_are_described_by_their_size(arguments, message):
    with pytest.raises(ValueError, match=message):
        posenc.encode(**{"positions": 2, "d_model": 4} | arguments)


def test_exact_numbers_of_every_type_are_accepted():
    numbers = [5, 5.0, np.int8(5), np.float16(5), np.longdouble(5), np.array(5), np.array(5.0), Fraction(5), Decimal(5)]
    numbers += [ml_dtypes.bfloat16(5), Tensor("torch.int64", 5), Tensor("torch.bfloat16", 5), np.array(5, ml_dtypes.bfloat16)]
    for number in numbers:
        assert Encoding(4, base=number) == Encoding(4, base=5.0)
    for number in (4, np.uint8(4), np.array(4), Tensor("torch.uint8", 4)):
        assert Encoding(number, padding_idx=number) == Encoding(4, padding_idx=4)
    assert repr(Encoding(4, layout=np.str_("halves"))) == "Encoding(4, layout='halves')"


@pytest.mark.parametrize(
    "function, argument, value, error, message",
    [(f, *case) for case in BAD for f in FUNCTIONS_WITH.get(case[0], ("Encoding",))],
    ids=short,
)
def test_invalid_arguments_are_refused(function, argument, value, error, message):
    assert_refused(function, valid(function) | {argument: value}, error, message)


@pytest.mark.parametrize("arguments, message", BAD_TOGETHER, ids=str)
def test_conflicting_arguments_are_refused(arguments, message):
    out = np.full((2, arguments.get("d_model", 4)), 7, F4)
    assert_refused("encode", {"positions": 2, "d_model": 4, "out": out} | arguments, ValueError, message)


def test_tables_beyond_memory_are_refused():
    with pytest.raises(ValueError, match="d_model is 1099511627776, expected at most"):
        posenc.encode(2**40, 2**40)
    with pytest.raises(ValueError, match="too big"):
        posenc.encode(2**62, 512)
    with pytest.raises(MemoryError):
        posenc.encode(2**38, 512)


class Unconvertible:
    """An array-like whose conversion fails, like a tensor that requires grad."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not now")


@pytest.mark.parametrize(
    "name, call",
    [
        ("positions", lambda bad: posenc.encode(bad, 4)),
        ("positions", lambda bad: posenc.add_to(np.zeros((3, 4), F4), bad)),
        ("frequencies", lambda bad: posenc.Encoding(4, frequencies=bad)),
        ("mask", posenc.positions_from_mask),
        ("lengths", posenc.positions_from_lengths),
    ],
)
def test_failed_conversions_to_an_array_are_reported(name, call):
    with pytest.raises(TypeError, match=f"{name} is of type Unconvertible, expected an array: not now"):
        call(Unconvertible())


def test_bfloat16_is_read_as_float32():
    bfloat16 = np.array([1.5, -2.0, 256], ml_dtypes.bfloat16)
    real = bfloat16.astype(np.float32)
    assert_same_bits(posenc.encode(bfloat16, 4), posenc.encode(real, 4))
    assert posenc.Encoding(6, frequencies=bfloat16) == posenc.Encoding(6, frequencies=real)
    assert (posenc.positions_from_mask(np.array([0, 1, 1], ml_dtypes.bfloat16)) == [-1, 0, 1]).all()


def test_out_may_be_a_memory_map(tmp_path):
    out = np.lib.format.open_memmap(tmp_path / "pe.npy", "w+", np.float32, (12, 64))
    assert posenc.encode(12, 64, out=out) is out
    assert (out == posenc.encode(12, 64)).all()


# ---- environment variables ------------------------------------------------------------------------------------------

INVALID_SETTINGS = {
    **{("POSENC_NUM_THREADS", text): "expected an integer of at least 1" for text in ("0", "two")},
    **{("POSENC_ISA", text): "expected one of the instruction sets of this processor: " for text in ("bogus", "AVX2")},
}
# The import succeeds; every function that needs the kernels raises an error.  The program prints one line for each function.
REFUSED = """
import numpy as np, posenc
for call in (
    lambda: posenc.Encoding(8), lambda: posenc.encode(1, 8), lambda: posenc.add_to(np.zeros((2, 8))),
    lambda: next(posenc.stream(1, 8)), lambda: posenc.preset("fairseq", 8), lambda: posenc.grid((2, 2), 8),
    lambda: posenc.points([[2, 2]], 8), lambda: posenc.check.identify(np.array([[0, 1], [np.sin(1), np.cos(1)]])),
    posenc.show_runtime,
):
    try:
        print("accepted", call())
    except ValueError as error:
        print(error)
"""


@pytest.mark.parametrize("name, text", INVALID_SETTINGS)
def test_invalid_settings_are_reported(name, text):
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True, env=os.environ | {name: text})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    for line in lines:
        assert line.startswith(f"{name} is {text!r}, {INVALID_SETTINGS[name, text]}")


# ---- random arguments -----------------------------------------------------------------------------------------------

LOWEST, BEYOND = -(2**63), 2**63
DTYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
D_MODELS = (0, 1, 2, 3, 5, 8, 31, 32, 33, 64, 65)
EXTREMES = (0, 1, -1, 2, 2**31, 2**53 - 1, 2**53 + 1, -(2**53) - 1, 2**62, LOWEST, LOWEST + 1, BEYOND - 1, BEYOND - 2)
HUGE = 2**45            # more rows than fit into any memory


class Case(NamedTuple):
    """A call, the names of its invalid arguments, and a check of its result if all arguments are valid."""

    function: str
    arguments: dict
    bad: frozenset              # the error must contain one of these names
    check: object


def bad(*names):
    return frozenset(names)


class Index:
    def __init__(self, n):
        self.n = n

    def __index__(self):
        return self.n

    def __repr__(self):
        return f"Index({self.n})"


integers = st.one_of(st.sampled_from(EXTREMES), st.integers(LOWEST, BEYOND - 1), st.integers(-1000, 1000))
reals = st.one_of(
    st.floats(-(2.0**63), np.nextafter(2.0**63, 0)),
    st.sampled_from([np.nan, np.inf, -np.inf, -0.0, 0.5, -1 / 3, 5e-324, 1e-300, -(2.0**63), 2.0**52 + 0.5]),
)
lengths = st.one_of(st.integers(0, 12), st.integers(30, 70), st.just(130))
thread_counts = st.sampled_from([None, None, None, 1, 2, 3, np.int64(2), 64, 10**9, 2**70])
bad_thread_counts = st.sampled_from([0, -1, -(2**70), 2.7, True, "2", np.float32(1)])
bad_numbers = st.sampled_from([np.nan, np.inf, -np.inf, "2", True, None, 1j, 10**400, [1.0], b"1"])


@st.composite
def ranges(draw, n):
    """Draw a range of n positions in the domain."""
    start = draw(integers)
    most = max(1, (BEYOND - 1 - start) // n if n else 1), max(1, (start - LOWEST) // n if n else 1)
    steps = st.sampled_from([1, 2, 3, 7, 1000, 2**40, 2**50, 2**55, most[0]])
    step = min(draw(steps), most[0]) if draw(st.booleans()) else -min(draw(steps), most[1])
    positions = range(start, start + n * step, step)
    return positions if not n or LOWEST <= positions[-1] < BEYOND else range(n)


@st.composite
def position_arrays(draw, shape):
    """Draw an array of integers or reals in the domain, with any dtype, byte order and memory layout."""
    kind = draw(st.sampled_from(["i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8"]))
    dtype = np.dtype(draw(st.sampled_from("<>")) + kind)
    size = int(np.prod(shape))
    if kind[0] == "f":
        values = np.array(draw(st.lists(reals, min_size=size, max_size=size)), np.float64)
        with np.errstate(all="ignore"):
            values = values.astype(dtype)
        with np.errstate(invalid="ignore"):
            magnitudes = np.abs(values.astype(np.float64))
            values[magnitudes >= 2.0**63] = 0.25                # rounding moved them out of the domain
            if kind == "f2":                                    # larger ones are refused: they may be rounded integers
                values[np.isfinite(magnitudes) & (magnitudes > 2048)] = 0.25
    else:
        info = np.iinfo(kind)
        within = st.integers(max(info.min, LOWEST), min(info.max, BEYOND - 1))
        values = np.array(draw(st.lists(within, min_size=size, max_size=size)), dtype)
    return draw(views(values.reshape(shape)))


@st.composite
def views(draw, values):
    """Draw a memory layout; return an array with this layout and the same values, or a list of the values."""
    how = draw(st.sampled_from(["plain", "strided", "reversed", "read-only", "misaligned", "subclass", "Fortran", "list"]))
    if how == "list" and values.ndim and values.dtype.kind in "if" and values.dtype.itemsize == 8 and values.size:
        return values.tolist()
    if how == "strided" and values.ndim:
        memory = np.zeros((*values.shape[:-1], 2 * values.shape[-1]), values.dtype)
        memory[..., ::2] = values
        return memory[..., ::2]
    if how == "reversed" and values.ndim:
        return np.ascontiguousarray(values[::-1])[::-1]
    if how == "misaligned":
        memory = np.frombuffer(bytearray(b"\1" + values.tobytes()), np.uint8)[1:]
        return memory.view(values.dtype).reshape(values.shape)
    if how == "subclass":
        return values.view(Sub)
    if how == "Fortran":
        return np.asfortranarray(values)
    if how == "read-only":
        return readonly(values.copy())
    return values


def numbers_of(values):
    """Return the positions as a list of int or float."""
    array = np.asarray(values)
    return [p.item() for p in array.astype(array.dtype.newbyteorder("=")).ravel()] if array.size else []


@st.composite
def positions_of_any_type(draw):
    """Draw positions; return them, their shape, and a list of the positions as numbers."""
    form = draw(st.sampled_from(["count", "range", "array", "array"]))
    if form == "count":
        n = draw(lengths)
        types = [int, np.int64, np.uint8, np.int32, Index]
        return draw(st.sampled_from(types))(n), (n,), list(range(n))
    if form == "range":
        positions = draw(ranges(draw(lengths)))
        return positions, (len(positions),), list(positions)
    shape = draw(st.sampled_from([(), (0,), (1,), (3,), (7,), (2, 3), (2, 0), (1, 2, 2), (40,)]))
    positions = draw(position_arrays(shape))
    return positions, np.shape(positions), numbers_of(positions)


bad_positions = st.one_of(
    st.sampled_from([value for value, *_ in BAD_POSITIONS]),
    st.integers(BEYOND, 2**80).map(lambda p: [0, p]),
    st.integers(-(2**80), LOWEST - 1).map(lambda p: [p]),
    st.integers(BEYOND, 2**64 - 1).map(lambda p: np.array([1, p], np.uint64)),
    st.floats(np.nextafter(2.0**63, np.inf), 1e308).map(lambda p: np.array([[0.5, -p]])),
    st.integers(-(2**80), -1),
    st.integers(1025, 32752).map(lambda p: np.array([0, 2 * p], np.float16)),
    st.integers(1, 2**70).map(lambda p: range(BEYOND - 1, BEYOND + p, p)),
)

NOT_DRAWN = (*METHOD_ARGUMENTS, "d_model", "frequencies", "shift")
BAD_CONVENTIONS = [(name, value) for name, value, *_ in BAD if name not in NOT_DRAWN]


@st.composite
def conventions(draw, d_model):
    """Draw keywords of Encoding; return them and the names of the invalid ones."""
    keywords = {}
    choices = {
        "position_offset": [0.5, -3.25, 1e-300, 2.0**60],
        "position_scale": [0.25, -1 / 3, 0.0],
        "padding_idx": [0, -1, 5, np.int64(1), LOWEST, BEYOND - 1],
        "scale": [22.6, -1.0, 1e-40, 0.0, 1e200],
        "odd": ["truncate", "zero"],
        "exponents": ["pair", "column"],
        "layout": ["interleaved", "halves"],
        "order": ["sin", "cos"],
    }
    for name, values in choices.items():
        if draw(st.integers(0, 9)) == 0:
            keywords[name] = draw(st.sampled_from(values))
    if draw(st.integers(0, 9)) == 0:
        pairs = d_model // 2 if keywords.get("odd") == "zero" else -(-d_model // 2)
        count = d_model if keywords.get("exponents") == "column" else pairs
        keywords["frequencies"] = tuple(draw(st.sampled_from([1.0, -0.5, 1e-9, 1e9, 0.0, 3.75])) for _ in range(count))
    else:
        for name, values in {
            "base": [2.0, 1e8, 0.5, 1, 10**4],
            "frequency_scale": [-2.0, 1e-5],
            "shift": [0.25, -1.0],
        }.items():
            if draw(st.integers(0, 9)) == 0:
                keywords[name] = draw(st.sampled_from(values))
        if "shift" not in keywords and draw(st.integers(0, 9)) == 0:
            keywords["spacing"] = "endpoint"
    if draw(st.integers(0, 19)) == 0:
        name, value = BAD_CONVENTIONS[draw(st.integers(0, len(BAD_CONVENTIONS) - 1))]  # sampled_from cannot hash timedelta64
        return keywords | {name: value}, bad(name)
    if draw(st.integers(0, 39)) == 0:
        length = len(keywords.get("frequencies", ())) + 1 + d_model
        return {"frequencies": [1.0] * length}, bad("frequencies")
    if d_model % 2 and draw(st.integers(0, 9)) == 0:
        return keywords | {"odd": "error"}, bad("d_model", "frequencies")
    return keywords, bad()


class Embedded(NamedTuple):
    """An array inside a larger buffer, to detect writes outside of the array."""

    array: np.ndarray
    buffer: np.ndarray

    def outside(self):
        """Return the bytes of the buffer, with zeros in place of the array."""
        buffer = self.buffer.copy()
        offset = self.array.__array_interface__["data"][0] - self.buffer.__array_interface__["data"][0]
        if self.array.size:
            np.ndarray(self.array.shape, f"V{self.array.itemsize}", buffer, offset, self.array.strides)[...] = b""
        return buffer.tobytes()


@st.composite
def embedded(draw, shape, dtype):
    """Draw an array with a contiguous last dimension; its other strides are random, but its elements do not overlap."""
    itemsize = np.dtype(dtype).itemsize
    axes = draw(st.permutations(range(len(shape) - 1))) if len(shape) > 1 else []
    strides, extent = [0] * len(shape), shape[-1] * itemsize if shape else itemsize
    if shape:
        strides[-1] = itemsize
    offset = 0
    for axis in axes:
        extent += itemsize * draw(st.sampled_from([0, 0, 1, 3, 16]))
        strides[axis] = extent
        extent *= max(1, shape[axis])
        if draw(st.integers(0, 5)) == 0 and shape[axis]:
            offset += strides[axis] * (shape[axis] - 1)
            strides[axis] = -strides[axis]
    buffer = np.full(extent + 128, 0xA5, np.uint8)
    start = -buffer.ctypes.data % 64 + draw(st.sampled_from([0, 0, itemsize, 5 * itemsize])) % 64
    return Embedded(np.ndarray(shape, dtype, buffer, start + offset, strides), buffer)


@st.composite
def bad_arrays(draw, shape, dtype):
    """Draw an object that is not a valid output array of this shape and dtype."""
    good = np.full(shape, 7, dtype)
    objects = [
        np.full(shape, 7, np.int64),
        np.full(shape, 7, np.complex64),
        np.full(shape, 7).astype(object),
        np.full(shape, 7, ">f4" if sys.byteorder == "little" else "<f4"),
        readonly(good.copy()),
        good.view(Sub),
        np.ma.array(good),
        good.tolist(),
        memoryview(b"abcd"),
        "text",
        3,
    ]
    if good.itemsize > 1 and good.size:
        objects.append(misaligned(shape, dtype))
    if len(shape) > 1 and min(shape) > 1:
        objects.append(np.full((*shape[:-1], 2 * shape[-1]), 7, dtype)[..., ::2])
        objects.append(good[..., ::-1])
        objects.append(np.asfortranarray(good))
        objects.append(np.lib.stride_tricks.as_strided(good, shape, (*good.strides[:-2], 0, good.strides[-1])))
        objects.append(np.lib.stride_tricks.as_strided(good, shape, (*good.strides[:-2], good.itemsize, good.strides[-1])))
    return draw(st.sampled_from(objects))


def other_shapes(shape, dtype):
    """Return a strategy for writable arrays of different shapes."""
    others = [(*shape, 2), (*shape[:-1], shape[-1] + 1), (1, *shape), shape[1:]]
    return st.sampled_from([np.full(other, 7, dtype) for other in others])


@lru_cache(maxsize=64)
def encoding_of(d_model, convention):
    return Encoding(d_model, **dict(convention))


def assert_correct(draw_cell, values, numbers, d_model, dtype, convention):
    """Compare each row with the result of `encode` for its position alone, and two values with the reference."""
    convention = tuple((k, v) for k, v in convention.items())
    alone = encoding_of(d_model, convention)
    assert values.dtype in (DTYPES[dtype], np.uint16)
    rows = values.reshape(len(numbers), d_model) if d_model else values
    assert values.size == len(numbers) * d_model
    if not values.size:
        return
    bits = bits_of(np.ascontiguousarray(rows))
    for row, p in zip(bits, numbers, strict=True):
        one = np.array(p, np.int64 if isinstance(p, int) else np.float64)
        assert (row == bits_of(alone.encode(one, dtype=dtype, threads=1))).all(), p
    for _ in range(2):
        r, c = draw_cell(len(numbers)), draw_cell(d_model)
        assert bits[r, c] == reference_of(d_model, convention).bits(numbers[r], c, dtype), (numbers[r], c)


def outside_with_offset(numbers, convention):
    offset = convention.get("position_offset", 0.0)
    if not isinstance(offset, float) or not np.isfinite(offset):
        return False
    return any(not LOWEST <= Fraction(p) + Fraction(offset) < BEYOND for p in numbers if isinstance(p, int) or np.isfinite(p))


@st.composite
def common(draw):
    """Draw d_model, dtype, convention, the arguments (convention and threads), and the names of the invalid arguments."""
    d_model = draw(st.sampled_from(D_MODELS))
    dtype = draw(st.sampled_from(list(DTYPES)))
    convention, invalid = draw(conventions(d_model))
    arguments = dict(convention)
    arguments["threads"] = draw(thread_counts)
    if draw(st.integers(0, 29)) == 0:
        arguments["threads"], invalid = draw(bad_thread_counts), invalid | {"threads"}
    return d_model, dtype, convention, arguments, invalid


@st.composite
def with_d_model_and_dtype(draw, d_model, dtype, arguments, invalid):
    spelled = [dtype, DTYPES[dtype], np.dtype(DTYPES[dtype])]
    arguments = arguments | {"d_model": draw(st.sampled_from([d_model, np.int16(d_model), Index(d_model)]))}
    arguments["dtype"] = draw(st.sampled_from(spelled))
    if draw(st.integers(0, 29)) == 0:
        value = draw(st.sampled_from([v for name, v, *_ in BAD if name == "d_model"]))
        arguments, invalid = arguments | {"d_model": value}, invalid | {"d_model"}
    if draw(st.integers(0, 29)) == 0:
        value = draw(st.sampled_from([v for name, v, *_ in BAD if name == "dtype"]))
        arguments, invalid = arguments | {"dtype": value}, invalid | {"dtype"}
    return arguments, invalid


@st.composite
def encode_cases(draw):
    d_model, dtype, convention, arguments, invalid = draw(common())
    arguments, invalid = draw(with_d_model_and_dtype(d_model, dtype, arguments, invalid))
    positions, shape, numbers = draw(positions_of_any_type())
    embedding = None
    if draw(st.integers(0, 9)) == 0:
        positions, invalid = draw(bad_positions), invalid | {"positions"}
    elif d_model and draw(st.integers(0, 49)) == 0:
        # the shape of `out` does not match these positions
        positions = draw(st.sampled_from([HUGE, 2**62, BEYOND - 1, range(LOWEST, BEYOND, 2)]))
        invalid |= {"positions", "out"}
    elif outside_with_offset(numbers, convention):
        invalid |= {"positions"}
    how = draw(st.sampled_from(["none", "out", "out", "bad out", "overlap"]))
    stored = np.uint16 if dtype == "bfloat16" and draw(st.booleans()) else DTYPES[dtype]
    if how == "out":
        embedding = draw(embedded((*shape, d_model), stored))
        arguments["out"] = embedding.array
    elif how == "bad out" and "positions" not in invalid:
        whole = (*shape, d_model)
        arguments["out"] = draw(st.one_of(bad_arrays(whole, stored), other_shapes(whole, stored)))
        invalid |= {"out"}
    elif how == "overlap" and "positions" not in invalid and len(shape) == 1 and all(isinstance(p, int) for p in numbers):
        row = d_model * np.dtype(stored).itemsize
        memory = np.zeros(len(numbers) * max(8, row), np.uint8)
        positions = memory[: 8 * len(numbers)].view(np.int64)
        positions[:] = numbers
        arguments["out"] = memory[: len(numbers) * row].view(stored).reshape(*shape, d_model)
    arguments["positions"] = positions
    cell = lambda n: draw(st.integers(0, n - 1))            # noqa: E731

    def check(result):
        assert result is arguments["out"] if "out" in arguments else result.flags.c_contiguous
        assert result.shape == (*shape, d_model)
        assert_correct(cell, result, numbers, d_model, dtype, convention)

    return Case(draw(st.sampled_from(["encode", "Encoding.encode"])), arguments, invalid, check), embedding


@st.composite
def add_cases(draw):
    d_model, dtype, convention, arguments, invalid = draw(common())
    batch = draw(st.sampled_from([(), (), (2,), (1,), (0,), (2, 3)]))
    n = draw(lengths)
    embedding = draw(embedded((*batch, n, d_model), DTYPES[dtype]))
    x = embedding.array
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    x[...] = rng.standard_normal(x.shape).astype(x.dtype)
    form = draw(st.sampled_from(["none", "count", "range", "array", "array"]))
    numbers = list(range(n))
    if form == "count":
        arguments["positions"] = n
    elif form == "range":
        arguments["positions"] = draw(ranges(n))
        numbers = list(arguments["positions"])
    elif form == "array":
        shape = draw(st.sampled_from([(n,), *([(1,), ()] * (n == 1)), (*batch, n)] + [(*batch, 1)] * bool(batch or n == 1)))
        if np.prod(shape) <= 150:
            arguments["positions"] = draw(position_arrays(shape))
            numbers = numbers_of(arguments["positions"])
            if outside_with_offset(numbers, convention):
                invalid |= {"positions"}
            each = np.broadcast_to(np.array(numbers, object).reshape(shape), (*batch, n))
            numbers = list(each.ravel())
    if form != "array" and outside_with_offset(numbers, convention):
        invalid |= {"positions"}
    if len(numbers) == n:
        numbers = numbers * int(np.prod(batch))
    scale = arguments["x_scale"] = draw(st.sampled_from([1.0, 1.0, 0.5, -1 / 3, 3, 22.627416997969522, np.float32(0.1), 0]))
    if draw(st.integers(0, 19)) == 0:
        arguments["x_scale"], invalid = draw(bad_numbers), invalid | {"x_scale"}
    if draw(st.integers(0, 14)) == 0:
        arguments["positions"], invalid = draw(bad_positions), invalid | {"positions"}
    elif draw(st.integers(0, 14)) == 0:
        others = st.sampled_from([n + 1, range(n + 2), np.zeros(n + 2), np.zeros((5, *x.shape[:-1]))])
        arguments["positions"], invalid = draw(others), invalid | {"positions"}
    before = np.array(x)
    arguments["x"] = x
    if draw(st.integers(0, 9)) == 0:
        arguments["x"], invalid, embedding = draw(bad_arrays(x.shape, x.dtype)), invalid | {"x"}, None
    function = draw(st.sampled_from(["add_to", "Encoding.add_to"]))
    if function == "Encoding.add_to":
        arguments["d_model"] = d_model

    def check(result):
        assert result is x
        alone = encoding_of(d_model, tuple(convention.items()))
        factor = np.array(float(scale)).astype(x.dtype)
        rows, old = (np.ascontiguousarray(a).reshape(len(numbers), d_model) for a in (result, before))
        for row, addend, p in zip(rows, old, numbers, strict=True):
            one = np.array(p, np.int64 if isinstance(p, int) else np.float64)
            with np.errstate(all="ignore"):
                expected = addend * factor + alone.encode(one, dtype=dtype)
            assert (bits_of(row) == bits_of(expected))[~np.isnan(expected)].all(), p
            assert np.isnan(row[np.isnan(expected)]).all()

    return Case(function, arguments, invalid, check), embedding


@st.composite
def stream_cases(draw):
    d_model, dtype, convention, arguments, invalid = draw(common())
    arguments, invalid = draw(with_d_model_and_dtype(d_model, dtype, arguments, invalid))
    n = draw(lengths)
    positions = draw(st.one_of(st.just(n), st.just(np.int32(n)), ranges(n)))
    numbers = list(positions) if isinstance(positions, range) else list(range(n))
    if outside_with_offset(numbers, convention):
        invalid |= {"positions"}
    if draw(st.integers(0, 9)) == 0:
        positions, invalid = draw(bad_positions), invalid | {"positions"}
    chunk = draw(st.sampled_from([None, 1, 7, 64, 1000, np.int64(5)]))
    embedding = None
    if draw(st.booleans()):
        rows = draw(st.sampled_from([1, 5, 33, 64]))
        embedding = draw(embedded((rows, d_model), DTYPES[dtype]))
        arguments["out"], chunk = embedding.array, draw(st.sampled_from([None, rows]))
        if draw(st.integers(0, 9)) == 0:
            arguments["out"], invalid, embedding = draw(bad_arrays((rows, d_model), DTYPES[dtype])), invalid | {"out"}, None
    if draw(st.integers(0, 14)) == 0:
        chunk, invalid = draw(st.sampled_from([0, -1, 2.0, True, "1", -(2**70)])), invalid | {"chunk_rows"}
    arguments |= {"positions": positions, "chunk_rows": chunk}
    cell = lambda n: draw(st.integers(0, n - 1))            # noqa: E731

    def check(result):
        at = 0
        for part in result:
            assert list(part.positions) == numbers[at : at + len(part.values)]
            assert embedding is None or np.shares_memory(part.values, embedding.array) or not part.values.size
            assert_correct(cell, part.values, list(part.positions), d_model, dtype, convention)
            at += len(part.values)
        assert at == len(numbers)

    return Case(draw(st.sampled_from(["stream", "Encoding.stream"])), arguments, invalid, check), embedding


@st.composite
def encoding_cases(draw):
    d_model, dtype, convention, arguments, invalid = draw(common())
    del arguments["threads"]
    invalid -= {"threads"}
    arguments["d_model"] = d_model
    if draw(st.integers(0, 9)) == 0:
        value = draw(st.sampled_from([v for name, v, *_ in BAD if name == "d_model"]))
        arguments["d_model"], invalid = value, invalid | {"d_model"}

    def check(result):
        same = Encoding(**arguments)
        assert result == same and hash(result) == hash(same)
        assert len(convention.get("frequencies", ())) > 8 or eval(repr(result)) == result
        assert np.isfinite(result.frequencies).all()
        cell = lambda n: draw(st.integers(0, n - 1))        # noqa: E731
        assert_correct(cell, result.encode([3], dtype=dtype), [3], d_model, dtype, convention)

    return Case("Encoding", arguments, invalid, check), None


@st.composite
def grid_cases(draw):
    sizes = tuple(draw(st.lists(st.integers(0, 4), min_size=1, max_size=3)))
    width, dtype = draw(st.sampled_from([2, 6, 32, 34])), draw(st.sampled_from(list(DTYPES)))
    layout, threads = draw(st.sampled_from(["interleaved", "halves"])), draw(thread_counts)
    d_model, invalid, embedding = width * len(sizes), bad(), None
    start = draw(st.sampled_from([0, -3, 7, 2**40]))
    arguments = {"shape": sizes, "d_model": d_model, "dtype": dtype, "layout": layout, "threads": threads, "start": start}
    if draw(st.booleans()):
        embedding = draw(embedded((*sizes, d_model), DTYPES[dtype]))
        arguments["out"] = embedding.array
        if draw(st.integers(0, 5)) == 0:
            whole = (*sizes, d_model)
            others = st.one_of(bad_arrays(whole, DTYPES[dtype]), other_shapes(whole, DTYPES[dtype]))
            arguments["out"], invalid, embedding = draw(others), bad("out"), None
    if draw(st.integers(0, 3)) == 0:
        name, value = draw(st.sampled_from([
            ("shape", -1), ("shape", (2, -1)), ("shape", 2.0), ("shape", "3"), ("shape", None), ("shape", (True,)),
            ("d_model", -2), ("d_model", 2.0), ("d_model", True), ("d_model", 2**70), ("start", "0"), ("start", np.nan),
            ("start", [0] * 5), ("layout", "split"), ("group", None), ("group", "none"), ("odd", 1), ("axes", (0, 0, 0, 0)),
            ("widths", [2] * 5), ("coordinates", "polar"), ("extra_tokens", -1), ("extra_tokens", 1.0), ("channel_first", 1),
            ("threads", 0), ("dtype", "int8"), ("include_input", "middle"), ("base", -1.0), ("scale", np.inf),
        ]))
        arguments, invalid = arguments | {name: value}, invalid | {name}
        if name in ("shape", "d_model"):        # their checks use each other's values
            invalid |= {"out", "shape", "d_model"}

    def check(result):
        assert result.shape == (*sizes, d_model) and result.dtype == DTYPES[dtype]
        alone = encoding_of(width, (("layout", layout),))
        for cell in np.ndindex(sizes):
            columns = [alone.encode(np.array(start + k), dtype=dtype) for k in cell]
            assert (bits_of(result[cell]) == np.concatenate([bits_of(c) for c in columns])).all(), cell

    return Case("grid", arguments, invalid, check), embedding


@st.composite
def points_cases(draw):
    axes, width, dtype = draw(st.integers(1, 3)), draw(st.sampled_from([2, 6, 34])), draw(st.sampled_from(list(DTYPES)))
    layout, threads = draw(st.sampled_from(["interleaved", "halves"])), draw(thread_counts)
    shape, d_model, invalid, embedding = tuple(draw(st.lists(st.integers(0, 4), max_size=3))), width * axes, bad(), None
    coordinates = draw(position_arrays((*shape, axes)))
    numbers = numbers_of(coordinates)
    arguments = {"coordinates": coordinates, "d_model": d_model, "dtype": dtype, "layout": layout, "threads": threads}
    if draw(st.booleans()):
        arguments["d_model"] = Encoding(width, layout=layout)
        del arguments["layout"]
    if draw(st.booleans()):
        whole = (*shape, d_model)
        embedding = draw(embedded(whole, DTYPES[dtype]))
        arguments["out"] = embedding.array
        if draw(st.integers(0, 5)) == 0:
            others = st.one_of(bad_arrays(whole, DTYPES[dtype]), other_shapes(whole, DTYPES[dtype]))
            arguments["out"], invalid, embedding = draw(others), bad("out"), None
    if draw(st.integers(0, 3)) == 0:
        name, value = draw(st.sampled_from([
            ("coordinates", 3), ("coordinates", None), ("coordinates", [["a"] * axes]), ("coordinates", [[True] * axes]),
            ("coordinates", np.zeros((2, 0))), ("coordinates", [[2.0**63] * axes]), ("coordinates", [[1], [1, 2]]),
            ("d_model", -2), ("d_model", 2.0), ("d_model", 2**70), ("group", "none"), ("odd", 1), ("axes", (0, 0, 0, 0)),
            ("widths", [2] * 5), ("threads", 0), ("dtype", "int8"), ("include_input", "middle"), ("base", -1.0),
        ]))
        arguments, invalid = arguments | {name: value}, invalid | {name}
        if name in ("coordinates", "d_model"):
            invalid |= {"out", "coordinates", "d_model"}

    def check(result):
        assert result.shape == (*shape, d_model) and result.dtype == DTYPES[dtype]
        alone = encoding_of(width, (("layout", layout),))
        parts = bits_of(np.ascontiguousarray(result)).reshape(-1, axes, width)
        for part, p in zip(parts.reshape(-1, width), numbers, strict=True):
            one = np.array(p, np.int64 if isinstance(p, int) else np.float64)
            assert (part == bits_of(alone.encode(one, dtype=dtype))).all(), p

    return Case("points", arguments, invalid, check), embedding


BAD_ROTARY = {
    "head_dim": [-2, 7, 8.0, True, None, 2**70],
    "base": [0, -1.0, np.nan, "10000", None],
    "rotary_dim": [-2, 3, 2.0, 10**9],
    "layout": ["neox", None, 1],
    "scaling": ["yarn", 3, {"rope_type": "no"}, {"type": "linear"}, {"factor": 2}],
    "frequencies": [[1.0], [[1.0] * 4], [np.nan] * 4, 3.0],
    "scale": [np.inf, "1", None],
    "axes": [[0], [0, 0, 2, 0], [0.5] * 4, 1],
}


@st.composite
def rotary_cases(draw):
    arguments, invalid = {"head_dim": 8}, bad()
    arguments["layout"] = draw(st.sampled_from(["halves", "interleaved"]))
    arguments["scale"] = draw(st.sampled_from([1.0, -0.5, 2, np.float32(0.75)]))
    factor = draw(st.sampled_from([None, 1, 2.0, 3]))
    if factor is not None:
        arguments["scaling"] = {"rope_type": "linear", "factor": factor, "rope_theta": 500.0}
    if draw(st.integers(0, 2)) == 0:
        name = draw(st.sampled_from(sorted(BAD_ROTARY)))
        arguments[name], invalid = draw(st.sampled_from(BAD_ROTARY[name])), bad(name)
        if name in ("head_dim", "frequencies"):
            arguments.pop("scaling", None)

    def check(result):
        same = posenc.Rotary(**arguments)
        assert result == same and hash(result) == hash(same) and eval(f"posenc.{result!r}") == result
        positions = [0, 1, 7, -(10**6)]
        convention = {"base": 500.0} if factor is not None else {}
        scale = {"scale": float(arguments["scale"]), "frequency_scale": 1 / Fraction(factor or 1)}
        reference = Reference(8, order="cos", layout="halves", **convention, **scale)
        table = np.concatenate(result.tables(positions, dtype="float16"), -1)
        assert_same_bits(bits_of(table), reference.table(positions, "float16"))

    return Case("Rotary", arguments, invalid, check), None


@cache
def rotated_of(pairs):
    return Rotated(pairs)


@st.composite
def rotate_cases(draw):
    head_dim, rest = draw(st.sampled_from([(2, 0), (4, 2), (32, 0), (36, 3), (64, 0)]))
    layout = draw(st.sampled_from(["halves", "interleaved"]))
    dtype = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    batch, n = draw(st.sampled_from([(), (2,), (0,), (2, 3)])), draw(lengths)
    shape, invalid, embedding = (*batch, n, head_dim + rest), bad(), draw(embedded((*batch, n, head_dim + rest), DTYPES[dtype]))
    inverse = draw(st.booleans())
    arguments = {"head_dim": head_dim + rest, "rotary_dim": head_dim, "layout": layout, "inverse": inverse}
    arguments |= {"threads": draw(thread_counts), "x": embedding.array}
    values = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(DTYPES[dtype])
    embedding.array[...] = values
    positions = np.arange(n)
    if draw(st.booleans()):
        arguments["positions"] = draw(ranges(n))
        positions = np.array(arguments["positions"], np.int64)
    elif draw(st.booleans()):
        numbers, kind = draw(st.sampled_from([(integers, np.int64), (reals, np.float64)]))
        positions = np.array(draw(st.lists(numbers, min_size=n, max_size=n)), kind)
        positions = positions.reshape(draw(st.sampled_from([(n,), (*[1] * len(batch), n)])))
        arguments["positions"] = draw(views(positions))
    how = draw(st.sampled_from(["in place", "out", "bad x", "bad out", "bad positions", "bad inverse", "overlap"]))
    target = embedding.array
    if how == "out":
        arguments["x"] = readonly(values.copy())
        arguments["out"] = target
        target[...] = 7
    elif how == "bad x":
        arguments["x"], invalid, embedding = draw(bad_arrays(shape, DTYPES[dtype])), bad("x"), None
    elif how == "bad out":
        outs = st.one_of(bad_arrays(shape, DTYPES[dtype]), other_shapes(shape, DTYPES[dtype]))
        arguments["out"], invalid = draw(outs), bad("out")
    elif how == "bad positions":
        arguments["positions"], invalid = draw(bad_positions), bad("positions")
    elif how == "bad inverse":
        arguments["inverse"], invalid = draw(st.sampled_from([0, 1, None, "no"])), bad("inverse")
    elif how == "overlap" and n > 1 and values.size:
        memory = np.full((n + 1, head_dim + rest), 7, DTYPES[dtype])
        arguments |= {"x": memory[1:], "out": memory[:-1]}
        arguments.pop("positions", None)
        invalid, embedding = bad("overlap"), None

    def check(result):
        assert result is target
        assert (result[..., head_dim:] == values[..., head_dim:]).all()
        each = np.broadcast_to(positions, shape[:-1])
        first, second, step = (0, 1, 2) if layout == "interleaved" else (0, head_dim // 2, 1)
        for _ in range(10 if values.size else 0):
            row = tuple(draw(st.integers(0, size - 1)) for size in shape[:-1])
            pair = draw(st.integers(0, head_dim // 2 - 1))
            columns = first + step * pair, second + step * pair
            a, b = (float(values[row][c]) for c in columns)
            got = tuple(int(bits_of(np.ascontiguousarray(result[row]))[c]) for c in columns)
            position = each[row].item()
            expected = (NAN[dtype],) * 2 if position - position else rotated_of(head_dim // 2).bits(
                position, pair, a, b, dtype, inverse)
            assert got == expected, (row, pair)

    return Case("Rotary.rotate", arguments, invalid, check), embedding


# the strategy for each function; test_mistakes.py tries wrong arguments of all public functions
FUNCTIONS = {
    "encode": encode_cases(),
    "add_to": add_cases(),
    "stream": stream_cases(),
    "Encoding": encoding_cases(),
    "Rotary": rotary_cases(),
    "Rotary.rotate": rotate_cases(),
    "grid": grid_cases(),
    "points": points_cases(),
}


def memory_of(arguments):
    """Return the bytes of all arrays among the arguments, including the base arrays of views."""
    bases = {}
    for name, value in arguments.items():
        if isinstance(value, np.ndarray) and not value.dtype.hasobject:
            while isinstance(value.base, np.ndarray):
                value = value.base
            bases[name] = value
    return {name: np.asarray(value).tobytes() for name, value in bases.items()}


def try_case(case, embedding):
    before = memory_of(case.arguments)
    outside = embedding.outside() if embedding else b""
    try:
        result = call(case.function, case.arguments)
    except MemoryError:
        assert "positions" in case.bad, case
    except (TypeError, ValueError) as error:
        assert case.bad, f"refused: {error!r}"
        too_big = "array is too big" in str(error) or "Maximum allowed dimension" in str(error)
        assert too_big or any(name in str(error) for name in case.bad), f"{error!r} does not name {sorted(case.bad)}"
        assert memory_of(case.arguments) == before
    else:
        assert not case.bad, f"accepted, though {sorted(case.bad)} is invalid: {case.arguments}"
        case.check(result)
        assert not embedding or embedding.outside() == outside


def any_call(examples, **more):
    """Return a test that makes `examples` random calls."""
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck), **more)
    @given(st.sampled_from(sorted(FUNCTIONS)).flatmap(FUNCTIONS.get))
    def test(case_and_embedding):
        try_case(*case_and_embedding)

    return test


test_random_calls = any_call(300, derandomize=True)
test_a_hundred_thousand_random_calls = pytest.mark.long(any_call(100_000))
