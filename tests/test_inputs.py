"""Random calls return the correct results; conflicts, conversions and settings are refused.

See also test_mistakes.py.
"""

import os
import subprocess
import sys
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import NamedTuple

import ml_dtypes
import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

import posenc
from conftest import Tensor, assert_same_bits, bits_of
from keywords import drawn_convention
from posenc import Encoding
from reference import NAN, Rotated, reference_of
from test_mistakes import readonly

# ---- invalid arguments -------------------------------------------------------------------------------------


class Sub(np.ndarray):
    pass


METHOD_ARGUMENTS = ("positions", "dtype", "out", "threads", "chunk_rows", "x", "x_scale", "inverse")


def call(function, arguments):
    """Call a function, or a method of Encoding or Rotary, by its name."""
    name, _, method = function.partition(".")
    function = getattr(posenc, name)
    if not method:
        return function(**arguments)
    method_arguments = {k: v for k, v in arguments.items() if k in METHOD_ARGUMENTS}
    return getattr(function(**{k: v for k, v in arguments.items() if k not in METHOD_ARGUMENTS}),
                   method)(**method_arguments)


BAD_TOGETHER = [
    ({"frequencies": [1.0, 2.0], "frequency_scale": 2.0}, "frequencies and frequency_scale"),
    ({"frequencies": [1.0, 2.0], "shift": 1.0}, "frequencies and shift"),
    ({"frequencies": [1.0, 2.0], "spacing": "endpoint"}, "frequencies and spacing"),
    ({"frequencies": [1.0, 2.0], "base": 10000.0}, "frequencies and base"),         # the default of base
    ({"periods": [1.0, 2.0], "spacing": "paper"}, "periods and spacing"),
    ({"d_model": 8, "shift": 3.99}, r"frequencies range from 2\*\*-3989 to 2\*\*-3 turns"),
    ({"d_model": 2**16, "base": 1e-300, "frequency_scale": 1e-300},
     r"2\*\*-128 to 2\*\*128 for more than 16384 frequencies"),
    ({"d_model": 8, "shift": 4}, "shift is 4.0, expected a number other than 4"),
    ({"d_model": 8, "shift": 4.01}, r"frequencies range from 2\*\*-3 to 2\*\*3984 turns"),
]


@pytest.mark.parametrize("position, offset", [
    (2**62, 2.0**62), (-(2**62) - 1, -(2.0**62)), (2**63 - 1, 1.0), (-(2**63), -0.5), (-(2**63), -1e-300),
])
@pytest.mark.parametrize("kind", ["range", "integers", "list"])
def test_positions_with_an_offset_end_at_the_domain(position, offset, kind):
    def encode(p):
        given = {"range": range(p, p + 1), "integers": np.array([p]), "list": [p]}[kind]
        return posenc.encode(given, 4, position_offset=offset)

    with pytest.raises(ValueError, match=r"^positions "):
        encode(position)
    assert encode(position - int(np.sign(offset))).shape == (1, 4)


def test_tables_beyond_memory_are_refused():
    for positions in (2**50, 2**62, range(2**50)):
        for function in (posenc.encode, lambda p, d: Encoding(d).encode(p, dtype="bfloat16")):
            with pytest.raises((MemoryError, ValueError), match=r"positions needs an array of shape \(\d+"):
                function(positions, 4)
    with pytest.raises((MemoryError, ValueError), match=r"shape needs an array of shape \(\d+, \d+, 4\)"):
        posenc.grid((2**25, 2**25), 4)
    with pytest.raises(ValueError, match=r"^d_model "):
        posenc.encode(2**40, 2**40)
    with pytest.raises(MemoryError):
        posenc.encode(2**38, 512)


def test_exact_numbers_of_every_type_are_accepted():
    numbers = [5, 5.0, np.int8(5), np.float16(5), np.longdouble(5), np.array(5), np.array(5.0), Fraction(5),
               Decimal(5)]
    numbers += [ml_dtypes.bfloat16(5), Tensor("torch.int64", 5), Tensor("torch.bfloat16", 5),
                np.array(5, ml_dtypes.bfloat16)]
    for number in numbers:
        assert Encoding(4, base=number) == Encoding(4, base=5.0)
    for number in (4, np.uint8(4), np.array(4), Tensor("torch.uint8", 4)):
        assert Encoding(number, padding_idx=number) == Encoding(4, padding_idx=4)
    assert repr(Encoding(4, layout=np.str_("halves"))) == "Encoding(4, layout='halves')"


@pytest.mark.parametrize("arguments, message", BAD_TOGETHER, ids=str)
def test_conflicting_arguments_are_refused(arguments, message):
    out = np.full((2, arguments.get("d_model", 4)), 7, np.float32)
    with pytest.raises(ValueError, match=message):
        posenc.encode(**{"positions": 2, "d_model": 4, "out": out} | arguments)
    with pytest.raises(ValueError, match=r"out has shape .*, expected \(3, "):
        posenc.stream(2, out.shape[1], chunk_rows=3, out=out)
    assert (out == 7).all()


class Unconvertible:
    """An array-like whose conversion fails, like a tensor that requires grad."""

    def __array__(self, dtype=None, copy=None):
        raise RuntimeError("not now")


@pytest.mark.parametrize("name, call", [
    ("positions", "encode(bad, 4)"), ("positions", "add_to(np.zeros((3, 4), 'f4'), bad)"),
    ("mask", "positions_from_mask(bad)"), ("frequencies", "Encoding(4, frequencies=bad)"),
    ("lengths", "positions_from_lengths(bad)"),
])
def test_failed_conversions_to_an_array_are_reported(name, call):
    with pytest.raises(TypeError, match=f"{name} is of type Unconvertible"):
        eval(f"posenc.{call}", {"posenc": posenc, "np": np, "bad": Unconvertible()})


def test_bfloat16_is_read_as_float32():
    bfloat16 = np.array([1.5, -2.0, 255], ml_dtypes.bfloat16)
    real = bfloat16.astype(np.float32)
    assert_same_bits(posenc.encode(bfloat16, 4), posenc.encode(real, 4))
    assert posenc.Encoding(6, frequencies=bfloat16) == posenc.Encoding(6, frequencies=real)
    assert (posenc.positions_from_mask(np.array([0, 1, 1], ml_dtypes.bfloat16)) == [-1, 0, 1]).all()


def test_out_may_be_a_memory_map(tmp_path):
    out = np.lib.format.open_memmap(tmp_path / "pe.npy", "w+", np.float32, (12, 64))
    assert posenc.encode(12, 64, out=out) is out
    assert (out == posenc.encode(12, 64)).all()


# ---- environment variables ---------------------------------------------------------------------------------

INVALID_SETTINGS = {
    **{("POSENC_NUM_THREADS", text): "expected an integer of at least 1" for text in ("0", "two")},
    **{("POSENC_ISA", text): "expected one of the instruction sets of this processor: "
       for text in ("bogus", "AVX2")},
}
# The import succeeds; every function that needs the kernels raises an error.  The program prints one line for
# each function.
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
    done = subprocess.run([sys.executable, "-c", REFUSED], capture_output=True, text=True,
                          env=os.environ | {name: text})
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert len(lines) == 9
    for line in lines:
        assert line.startswith(f"{name} is {text!r}, {INVALID_SETTINGS[name, text]}")


# ---- random arguments --------------------------------------------------------------------------------------

LOWEST, BEYOND = -(2**63), 2**63
DTYPES = {"float64": np.float64, "float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}
D_MODELS = (0, 1, 2, 3, 5, 8, 31, 32, 33, 64, 65)
EXTREMES = (0, 1, -1, 2, 2**31, 2**53 - 1, 2**53 + 1, -(2**53) - 1, 2**62, LOWEST, LOWEST + 1, BEYOND - 1,
            BEYOND - 2)


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
            # these are refused, because they may be rounded integers
            if kind == "f2":
                values[np.isfinite(magnitudes) & (magnitudes >= 2048)] = 0.25
    else:
        info = np.iinfo(kind)
        within = st.integers(max(info.min, LOWEST), min(info.max, BEYOND - 1))
        values = np.array(draw(st.lists(within, min_size=size, max_size=size)), dtype)
    return draw(views(values.reshape(shape)))


@st.composite
def views(draw, values):
    """Draw a memory layout; return an array with this layout and the same values, or a list of the values."""
    how = draw(st.sampled_from(["plain", "strided", "reversed", "read-only", "misaligned", "subclass",
                                "Fortran", "list"]))
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


@st.composite
def conventions(draw, d_model):
    """Draw keywords of Encoding."""
    return drawn_convention(d_model, lambda values: draw(st.sampled_from(values)), share=0.1)


class Embedded(NamedTuple):
    """An array inside a larger buffer, to detect writes outside of the array."""

    array: np.ndarray
    buffer: np.ndarray

    def outside(self):
        """Return the bytes of the buffer, with zeros in place of the array."""
        buffer = self.buffer.copy()
        offset = self.array.__array_interface__["data"][0] - self.buffer.__array_interface__["data"][0]
        if self.array.size:
            np.ndarray(self.array.shape, f"V{self.array.itemsize}", buffer, offset,
                       self.array.strides)[...] = b""
        return buffer.tobytes()


@st.composite
def embedded(draw, shape, dtype):
    """Draw an array with a contiguous last dimension.

    Its other strides are random, but its elements do not overlap.
    """
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


@lru_cache(maxsize=64)
def encoding_of(d_model, convention):
    return Encoding(d_model, **dict(convention))


def assert_correct(draw_cell, values, numbers, d_model, dtype, convention):
    """Compare each row with `encode` of its position alone, and two values with the reference."""
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


def assume_in_domain(numbers, convention):
    offset = Fraction(convention.get("position_offset", 0.0))
    assume(all(LOWEST <= Fraction(p) + offset < BEYOND for p in numbers if np.isfinite(p)))


@st.composite
def common(draw):
    """Draw d_model, dtype, convention, and the arguments for them and for threads, except the dtype."""
    d_model = draw(st.sampled_from(D_MODELS))
    convention = draw(conventions(d_model))
    return d_model, draw(st.sampled_from(list(DTYPES))), convention, convention | {"threads": draw(thread_counts)}

@st.composite
def spelled(draw, d_model, dtype):
    """Draw spellings of d_model and dtype."""
    return {"d_model": draw(st.sampled_from([d_model, np.int16(d_model), Index(d_model)])),
            "dtype": draw(st.sampled_from([dtype, DTYPES[dtype], np.dtype(DTYPES[dtype])]))}


# Each strategy below draws a function, its arguments, the Embedded array to which it writes or None, and a
# check of the result.


@st.composite
def encode_cases(draw):
    d_model, dtype, convention, arguments = draw(common())
    arguments |= draw(spelled(d_model, dtype))
    positions, shape, numbers = draw(positions_of_any_type())
    assume_in_domain(numbers, convention)
    embedding = None
    target = draw(st.sampled_from(["none", "out", "out", "overlap"]))
    stored = np.uint16 if dtype == "bfloat16" and draw(st.booleans()) else DTYPES[dtype]
    if target == "out":
        embedding = draw(embedded((*shape, d_model), stored))
        arguments["out"] = embedding.array
    elif target == "overlap" and len(shape) == 1 and all(isinstance(p, int) for p in numbers):
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

    return draw(st.sampled_from(["encode", "Encoding.encode"])), arguments, embedding, check


@st.composite
def add_cases(draw):
    d_model, dtype, convention, arguments = draw(common())
    batch, n = draw(st.sampled_from([(), (), (2,), (1,), (0,), (2, 3)])), draw(lengths)
    embedding = draw(embedded((*batch, n, d_model), DTYPES[dtype]))
    x = embedding.array
    x[...] = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(x.shape).astype(x.dtype)
    form = draw(st.sampled_from(["none", "count", "range", "array", "array"]))
    numbers = list(range(n))
    if form == "count":
        arguments["positions"] = n
    elif form == "range":
        arguments["positions"] = draw(ranges(n))
        numbers = list(arguments["positions"])
    elif form == "array":
        shape = draw(st.sampled_from([(n,), *([(1,), ()] * (n == 1)), (*batch, n)] + [(*batch, 1)] * bool(batch or n == 1)))
        assume(n == 1 or shape[-1] != 1)
        if np.prod(shape) <= 150:
            arguments["positions"] = draw(position_arrays(shape))
            numbers = numbers_of(arguments["positions"])
            numbers = list(np.broadcast_to(np.array(numbers, object).reshape(shape), (*batch, n)).ravel())
    if len(numbers) == n:
        numbers = numbers * int(np.prod(batch))
    assume_in_domain(numbers or range(n), convention)
    scale = arguments["x_scale"] = draw(st.sampled_from([1.0, 1.0, 0.5, -1 / 3, 3, 22.627416997969522,
                                                         np.float32(0.1), 0]))
    before = np.array(x)
    function = draw(st.sampled_from(["add_to", "Encoding.add_to"]))
    arguments |= {"x": x} | ({"d_model": d_model} if function == "Encoding.add_to" else {})

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

    return function, arguments, embedding, check


@st.composite
def axes_cases(draw):
    """Draw a call of grid or points, whose columns must be those of one Encoding for each axis."""
    axes, width, dtype = draw(st.integers(1, 3)), draw(st.sampled_from([2, 6, 32, 34])), draw(st.sampled_from(list(DTYPES)))
    layout, shape = draw(st.sampled_from(["interleaved", "halves"])), tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
    arguments = {"d_model": width * axes, "dtype": dtype, "layout": layout, "threads": draw(thread_counts)}
    function = draw(st.sampled_from(["grid", "points"]))
    if function == "grid":
        shape, start = (*shape, 3)[:axes], draw(st.sampled_from([0, -3, 7, 2**40]))
        arguments |= {"shape": shape, "start": start, "d_model": width * len(shape)}
        numbers = [start + k for cell in np.ndindex(shape) for k in cell]
    else:
        arguments["coordinates"] = draw(position_arrays((*shape, axes)))
        numbers = numbers_of(arguments["coordinates"])
    embedding = draw(st.one_of(st.none(), embedded((*shape, arguments["d_model"]), DTYPES[dtype])))
    if embedding:
        arguments["out"] = embedding.array

    def check(result):
        assert result.shape == (*shape, arguments["d_model"]) and result.dtype == DTYPES[dtype]
        alone = encoding_of(width, (("layout", layout),))
        for part, p in zip(bits_of(np.ascontiguousarray(result)).reshape(-1, width), numbers, strict=True):
            one = np.array(p, np.int64 if isinstance(p, int) else np.float64)
            assert (part == bits_of(alone.encode(one, dtype=dtype))).all(), p

    return function, arguments, embedding, check


@cache
def rotated_of(pairs):
    return Rotated(pairs)


@st.composite
def rotate_cases(draw):
    head_dim, rest = draw(st.sampled_from([(2, 0), (4, 2), (32, 0), (36, 3), (64, 0)]))
    layout = draw(st.sampled_from(["halves", "interleaved"]))
    dtype = draw(st.sampled_from(["float32", "float16", "bfloat16"]))
    batch, n, inverse = draw(st.sampled_from([(), (2,), (0,), (2, 3)])), draw(lengths), draw(st.booleans())
    shape = (*batch, n, head_dim + rest)
    embedding = draw(embedded(shape, DTYPES[dtype]))
    target = embedding.array
    arguments = {"head_dim": head_dim + rest, "rotary_dim": head_dim, "layout": layout, "inverse": inverse}
    arguments |= {"threads": draw(thread_counts), "x": target}
    values = np.random.default_rng(draw(st.integers(0, 99))).standard_normal(shape).astype(DTYPES[dtype])
    target[...] = values
    positions = np.arange(n)
    if draw(st.booleans()):
        arguments["positions"] = draw(ranges(n))
        positions = np.array(arguments["positions"], np.int64)
    elif draw(st.booleans()):
        numbers, kind = draw(st.sampled_from([(integers, np.int64), (reals, np.float64)]))
        positions = np.array(draw(st.lists(numbers, min_size=n, max_size=n)), kind)
        positions = positions.reshape(draw(st.sampled_from([(n,), (*[1] * len(batch), n)])))
        arguments["positions"] = draw(views(positions))
    if draw(st.booleans()):
        arguments |= {"x": readonly(values.copy()), "out": target}
        target[...] = 7

    def check(result):
        assert result is target
        assert (result[..., head_dim:] == values[..., head_dim:]).all()
        position_of_row = np.broadcast_to(positions, shape[:-1])
        first, second, step = (0, 1, 2) if layout == "interleaved" else (0, head_dim // 2, 1)
        for _ in range(10 if values.size else 0):
            row = tuple(draw(st.integers(0, size - 1)) for size in shape[:-1])
            pair = draw(st.integers(0, head_dim // 2 - 1))
            columns = first + step * pair, second + step * pair
            a, b = (float(values[row][c]) for c in columns)
            bits = tuple(int(bits_of(np.ascontiguousarray(result[row]))[c]) for c in columns)
            position = position_of_row[row].item()
            expected = (NAN[dtype],) * 2 if position - position else rotated_of(head_dim // 2).bits(
                position, pair, a, b, dtype, inverse)
            assert bits == expected, (row, pair)

    return "Rotary.rotate", arguments, embedding, check


STRATEGIES = [encode_cases(), add_cases(), axes_cases(), rotate_cases()]


def any_call(examples, **more):
    """Return a test that makes `examples` random calls with valid arguments."""
    @settings(max_examples=examples, deadline=None, database=None, suppress_health_check=list(HealthCheck),
              **more)
    @given(st.sampled_from(STRATEGIES).flatmap(lambda cases: cases))
    def test(case):
        function, arguments, embedding, check = case
        outside = embedding.outside() if embedding else b""
        check(call(function, arguments))
        assert not embedding or embedding.outside() == outside

    return test


test_random_calls = any_call(300, derandomize=True)
test_a_hundred_thousand_random_calls = pytest.mark.long(any_call(100_000))
