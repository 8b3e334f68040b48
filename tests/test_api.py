"""Arguments: what is accepted, and what is refused before anything is written."""

import pickle
import subprocess
import sys
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest
from conftest import assert_same_bits

import posenc
from posenc import Encoding

OUT = object()


def readonly(a):
    a.flags.writeable = False
    return a


def misaligned(shape, dtype):
    raw = np.zeros(np.prod(shape) * np.dtype(dtype).itemsize + 1, np.uint8)[1:]
    return raw.view(dtype).reshape(shape)


BAD_POSITIONS = [
    (-1, ValueError, "positions is -1"),
    (3.0, TypeError, "positions is 3.0"),
    ("3", TypeError, "positions is '3'"),
    (True, TypeError, "bool"),
    (np.bool_(True), TypeError, "bool"),
    (np.float64(3), TypeError, "float64"),
    (None, TypeError, "None"),
    (1j, TypeError, "complex"),
    (2**64, ValueError, "positions has 9223372036854775808"),
    (2**70, ValueError, "positions has 9223372036854775808"),
    (np.array([True, False]), TypeError, "dtype bool"),
    (np.array(["a"]), TypeError, "dtype <U1"),
    (np.array([1j]), TypeError, "dtype complex128"),
    (np.array([object()]), TypeError, "dtype object"),
    (np.array(["2020-01-01"], "M8[ns]"), TypeError, "dtype datetime64"),
    (np.array([1.0], np.longdouble), TypeError, "at most 64 bits"),
    ([2**63], ValueError, "9223372036854775808"),
    ([1, 2**70], ValueError, str(2**70)),
    (np.array([5, 2**63], np.uint64), ValueError, "9223372036854775808"),
    ([0.0, 2.0**63], ValueError, "9.22337"),
    ([0.0, -1e300], ValueError, "-1e.300"),
    (range(2**63 - 5, 2**63 + 5), ValueError, "positions has 9223372036854775808,"),
    (range(2**64, 2**64 + 3), ValueError, f"positions has {2**64},"),
    (range(-(2**63) + 1, -(2**63) - 3, -1), ValueError, f"positions has {-(2**63) - 1},"),
]


@pytest.mark.parametrize("positions, error, message", BAD_POSITIONS, ids=lambda v: repr(v)[:40])
def test_bad_positions(positions, error, message):
    with pytest.raises(error, match=message):
        posenc.encode(positions, 4)
    x = np.full((2, 4), 7, np.float32)
    if positions is not None:
        with pytest.raises((error, ValueError)):
            posenc.add_to(x, positions)
        assert (x == 7).all()


BAD_OUTS = {
    "shape": (np.zeros((10, 64), np.float32), ValueError, r"out has shape \(10, 64\), expected \(12, 64\)"),
    "broadcastable": (np.zeros((4, 12, 64), np.float32), ValueError, "out has shape"),
    "read-only": (readonly(np.zeros((12, 64), np.float32)), ValueError, "read-only"),
    "another float": (np.zeros((12, 64), np.float64), ValueError, "out has dtype"),
    "integers": (np.zeros((12, 64), np.int32), TypeError, "out has dtype"),
    "complex": (np.zeros((12, 64), np.complex64), TypeError, "out has dtype"),
    "list": ([[0.0] * 64] * 12, TypeError, "out is of type list"),
    "byte order": (np.zeros((12, 64), np.dtype(np.float32).newbyteorder()), ValueError, "out has dtype"),
    "misaligned": (misaligned((12, 64), np.float32), ValueError, "aligned"),
    "Fortran order": (np.zeros((12, 64), np.float32, order="F"), ValueError, "contiguous columns"),
    "strided columns": (np.zeros((12, 128), np.float32)[:, ::2], ValueError, "contiguous columns"),
    "columns backwards": (np.zeros((12, 64), np.float32)[:, ::-1], ValueError, "contiguous columns"),
    "one row twelve times": (
        np.lib.stride_tricks.as_strided(np.zeros(64, np.float32), (12, 64), (0, 4)), ValueError, "overlap"),
    "overlapping rows": (
        np.lib.stride_tricks.as_strided(np.zeros(12 * 64, np.float32), (12, 64), (128, 4)), ValueError, "overlap"),
    "masked": (np.ma.zeros((12, 64), np.float32), TypeError, "MaskedArray"),
    "matrix": (np.zeros((12, 64), np.float32).view(type("Sub", (np.ndarray,), {})), TypeError, "Sub"),
}


@pytest.mark.parametrize("case", BAD_OUTS)
def test_bad_out(case):
    out, error, message = BAD_OUTS[case]
    before = np.array(out)
    with pytest.raises(error, match=message):
        posenc.encode(12, 64, out=out)
    assert (np.array(out) == before).all()


BAD_ARGUMENTS = [
    ({"d_model": -1}, ValueError, "d_model is -1"),
    ({"d_model": 4.0}, TypeError, "d_model"),
    ({"d_model": True}, TypeError, "d_model"),
    ({"d_model": "4"}, TypeError, "d_model"),
    ({"dtype": "int32"}, TypeError, "dtype"),
    ({"dtype": "float128"}, TypeError, "dtype"),
    ({"dtype": "nonsense"}, TypeError, "dtype"),
    ({"dtype": ">f4"}, ValueError, "byte order"),
    ({"threads": 0}, ValueError, "threads is 0"),
    ({"threads": -1}, ValueError, "threads is -1"),
    ({"threads": 2.7}, TypeError, "threads"),
    ({"threads": True}, TypeError, "threads"),
    ({"base": 0}, ValueError, "base is 0"),
    ({"base": -1.0}, ValueError, "base"),
    ({"base": float("nan")}, ValueError, "base"),
    ({"base": float("inf")}, ValueError, "base"),
    ({"base": 10**400}, ValueError, "base"),
    ({"base": "10000"}, TypeError, "base"),
    ({"base": [10000]}, TypeError, "base"),
    ({"base": True}, TypeError, "base"),
    ({"base": 1j}, TypeError, "base"),
    ({"scale": float("nan")}, ValueError, "scale"),
    ({"position_scale": float("inf")}, ValueError, "position_scale"),
    ({"position_offset": float("nan")}, ValueError, "position_offset"),
    ({"position_offset": 2.0**63}, ValueError, "position_offset"),
    ({"frequency_scale": None}, TypeError, "frequency_scale"),
    ({"odd": "pad"}, ValueError, "odd is 'pad'"),
    ({"odd": 1}, TypeError, "odd"),
    ({"d_model": 3, "odd": "error"}, ValueError, "d_model is 3"),
    ({"spacing": "linear"}, ValueError, "spacing"),
    ({"spacing": "endpoint", "shift": 1}, ValueError, "spacing.*shift"),
    ({"shift": 2}, ValueError, "shift is 2"),
    ({"layout": "split"}, ValueError, "layout"),
    ({"order": "tan"}, ValueError, "order"),
    ({"exponents": "row"}, ValueError, "exponents"),
    ({"frequencies": [1.0]}, ValueError, "length 1, expected 2"),
    ({"frequencies": [[1.0, 2.0]]}, ValueError, "shape"),
    ({"frequencies": [1.0, float("nan")]}, ValueError, "nan"),
    ({"frequencies": ["a", "b"]}, TypeError, "frequencies"),
    ({"frequencies": [1.0, 2.0], "base": 2.0}, ValueError, "frequencies and base"),
    ({"frequencies": [1.0, 2.0], "frequency_scale": 2.0}, ValueError, "frequencies and frequency_scale"),
    ({"frequencies": [1.0, 2.0], "shift": 1.0}, ValueError, "frequencies and shift"),
    ({"no_such": 1}, TypeError, "no_such"),
]


@pytest.mark.parametrize("arguments, error, message", BAD_ARGUMENTS, ids=lambda v: str(v)[:40])
def test_bad_arguments(arguments, error, message):
    out = np.full((2, 4), 7, np.float32)
    with pytest.raises(error, match=message):
        posenc.encode(2, **{"d_model": 4, "out": out} | arguments)
    assert (out == 7).all()


def test_offset_keeps_the_domain():
    for positions in (range(2**63 - 3, 2**63), np.array([0, 2**63 - 1]), [2.0**62, 1.5 * 2.0**62]):
        posenc.encode(positions, 4)
        with pytest.raises(ValueError, match="position_offset"):
            posenc.encode(positions, 4, position_offset=2.0**62)
    with pytest.raises(ValueError, match="position_offset"):
        posenc.encode([-(2**63)], 4, position_offset=-1e-300)
    posenc.encode([2**63 - 1, 1.0, float("inf")][:1], 4, position_offset=0.5)


def test_too_large():
    with pytest.raises(ValueError, match="d_model is 1099511627776, expected at most"):
        posenc.encode(2**40, 2**40)
    with pytest.raises(ValueError, match="too big"):
        posenc.encode(2**62, 512)
    with pytest.raises(MemoryError):
        posenc.encode(2**38, 512)


def test_empty():
    assert posenc.encode(0, 8).shape == (0, 8)
    assert posenc.encode(5, 0).shape == (5, 0)
    assert posenc.encode([], 8).shape == (0, 8)
    assert posenc.encode(np.empty((3, 0, 2)), 8).shape == (3, 0, 2, 8)
    assert posenc.encode(range(5, 5), 8, dtype="float64").dtype == np.float64
    assert posenc.add_to(np.empty((2, 0, 8))).shape == (2, 0, 8)
    assert posenc.add_to(np.empty((2, 3, 0))).shape == (2, 3, 0)
    assert list(posenc.stream(0, 8)) == []


def test_accepted_kinds():
    expected = posenc.encode(3, 6)
    for n in (np.int64(3), np.uint8(3), type("Index", (), {"__index__": lambda self: 3})()):
        assert_same_bits(posenc.encode(n, 6), expected)
    for dtype in (np.float32, np.dtype("float32"), "f4", "=f4"):
        assert_same_bits(posenc.encode(3, np.int32(6), dtype=dtype), expected)
    assert posenc.encode(3, 6, dtype=ml_dtypes.bfloat16).dtype == ml_dtypes.bfloat16
    assert posenc.encode(3, 6, dtype=np.dtype(ml_dtypes.bfloat16)).dtype == ml_dtypes.bfloat16
    assert_same_bits(posenc.encode(3, 6, base=10**4, scale=Fraction(1)), expected)
    assert posenc.encode(np.array(2), 6).shape == (6,)
    assert_same_bits(posenc.encode(np.array(2), 6), expected[2])


def test_minus_zero_is_zero_and_nan_makes_nan():
    rows = posenc.encode([-0.0, 0.0, np.nan, np.inf, -np.inf], 5)
    assert_same_bits(rows[0], rows[1])
    assert (rows[2:].view(np.uint32) == 0x7FC00000).all()


def test_no_floating_point_warning():
    with np.errstate(all="raise"):
        posenc.encode([np.nan, np.inf, 1e-300, 5e-324, 0.5], 64, scale=1e300)


def test_out_that_holds_the_positions():
    room = np.arange(40.0)
    expected = posenc.encode(np.arange(4.0), 10, dtype="float64")
    out = room.reshape(4, 10)
    posenc.encode(room[:4], 10, dtype="float64", out=out)
    assert_same_bits(out, expected)


BAD_ADDS = [
    ([[1.0, 2.0]], {}, TypeError, "x is of type list"),
    (np.zeros((3, 4), np.int64), {}, TypeError, "x has dtype"),
    (np.zeros((3, 4), np.complex128), {}, TypeError, "x has dtype"),
    (np.zeros((3, 4), ">f4"), {}, ValueError, "byte order"),
    (np.float32(1) * np.zeros(()), {}, (TypeError, ValueError), "x"),
    (np.zeros(4), {}, ValueError, "x has shape"),
    (readonly(np.zeros((3, 4))), {}, ValueError, "read-only"),
    (np.broadcast_to(np.zeros(4), (3, 4)), {}, ValueError, "read-only"),
    (np.zeros((3, 4)), {"positions": 4}, ValueError, "positions has length 4, expected 3"),
    (np.zeros((3, 4)), {"positions": range(4)}, ValueError, "positions has length 4, expected 3"),
    (np.zeros((3, 4)), {"positions": np.arange(4)}, ValueError, "broadcasts"),
    (np.zeros((3, 4)), {"positions": np.zeros((3, 3))}, ValueError, "broadcasts"),
    (np.zeros((3, 4)), {"x_scale": float("nan")}, ValueError, "x_scale"),
    (np.zeros((3, 4)), {"x_scale": "2"}, TypeError, "x_scale"),
    (np.zeros((4, 3)).T[:, :4], {}, ValueError, "contiguous columns"),
    (np.ma.zeros((3, 4)), {}, TypeError, "MaskedArray"),
]


@pytest.mark.parametrize("x, arguments, error, message", BAD_ADDS, ids=lambda v: str(v)[:30])
def test_bad_add(x, arguments, error, message):
    before = np.array(x)
    with pytest.raises(error, match=message):
        posenc.add_to(x, **arguments)
    assert (np.array(x) == before).all()


BAD_STREAMS = [
    ({"positions": 2.0}, TypeError, "positions"),
    ({"positions": [1, 2]}, TypeError, "positions"),
    ({"positions": True}, TypeError, "positions"),
    ({"positions": -1}, ValueError, "positions is -1"),
    ({"chunk": 0}, ValueError, "chunk is 0"),
    ({"chunk": 2.0}, TypeError, "chunk"),
    ({"out": np.zeros((0, 4), np.float32)}, ValueError, "out has shape"),
    ({"out": np.zeros((4, 5), np.float32)}, ValueError, "out has shape"),
    ({"out": np.zeros((4, 4), np.float32), "chunk": 3}, ValueError, "chunk is 3, expected 4"),
    ({"dtype": "int8"}, TypeError, "dtype"),
]


@pytest.mark.parametrize("arguments, error, message", BAD_STREAMS, ids=lambda v: str(v)[:40])
def test_bad_stream_is_refused_at_once(arguments, error, message):
    with pytest.raises(error, match=message):
        posenc.stream(**{"positions": 5, "d_model": 4} | arguments)


def test_endless_stream():
    stream = posenc.stream(None, 4, chunk=1000)
    chunks = [next(stream) for _ in range(3)]
    assert chunks[2].positions == range(2000, 3000)
    assert_same_bits(np.concatenate([c.values for c in chunks]), posenc.encode(3000, 4))


def test_chunks_may_be_kept():
    chunks = list(posenc.stream(10, 4, chunk=4))
    assert not any(np.shares_memory(a.values, b.values) for a in chunks for b in chunks if a is not b)


class TestEncoding:
    def test_is_a_value(self):
        a, b, c = Encoding(64, base=500), Encoding(64, base=500.0), Encoding(64)
        assert a == b != c
        assert hash(a) == hash(b)
        assert len({a, b, c}) == 2
        assert a != "Encoding"
        again = pickle.loads(pickle.dumps(a))
        assert again == a
        assert_same_bits(again.encode(10), a.encode(10))

    def test_is_immutable(self):
        enc = Encoding(64)
        for name in ("d_model", "base", "_convention"):
            with pytest.raises(AttributeError):
                setattr(enc, name, 3)
        with pytest.raises(AttributeError):
            del enc.d_model

    def test_repr_makes_it_again(self):
        for enc in (Encoding(8), Encoding(8, base=2.0, layout="halves"), Encoding(4, frequencies=[0.5, 0.1])):
            assert eval(repr(enc)) == enc

    def test_frequencies(self):
        frequencies = Encoding(512, position_scale=0.25).frequencies
        assert np.allclose(frequencies, 10000.0 ** (-np.arange(256) / 256), rtol=1e-14)
        assert Encoding(4, frequencies=[3.0, -1e-3]).frequencies.tolist() == [3.0, -1e-3]
        assert Encoding(8, spacing="endpoint").frequencies[-1] == 1e-4
        with pytest.raises(ValueError, match="read-only"):
            frequencies[0] = 2

    def test_methods_are_the_functions(self):
        enc = Encoding(10, base=100, layout="halves")
        assert_same_bits(enc.encode(20), posenc.encode(20, 10, base=100, layout="halves"))
        x = np.ones((20, 10))
        assert_same_bits(enc.add_to(x.copy()), posenc.add_to(x.copy(), base=100, layout="halves"))
        (chunk,) = enc.stream(20)
        assert_same_bits(chunk.values, enc.encode(20))


def test_a_single_frequency_is_frequency_scale():
    for convention in ({"spacing": "endpoint"}, {"shift": 1}, {}):
        assert Encoding(2, frequency_scale=3.0, **convention).frequencies.tolist() == [3.0]
    assert Encoding(1, spacing="endpoint").frequencies.tolist() == [1.0]
    assert (posenc.encode(4, 1, odd="zero") == 0).all()


def test_show_runtime():
    runtime = posenc.show_runtime()
    assert runtime["version"] == posenc.__version__
    assert runtime["instruction_sets"][runtime["instruction_set"]] is True
    assert runtime["threads"] >= 1


def test_x_scale_is_rounded_once():
    x = np.ones((1, 2), ml_dtypes.bfloat16)
    posenc.add_to(x, x_scale=1 + 2**-8 + 2**-40)        # to float first, this would be a tie
    assert x[0, 0] == 1 + 2**-7
    x = np.ones((1, 2), np.float32)
    with np.errstate(all="raise"):
        posenc.add_to(x, x_scale=1e-46)
        assert x.tolist() == [[0.0, 1.0]]
        with pytest.raises(ValueError, match="x_scale is 1e\\+300"):
            posenc.add_to(x, x_scale=1e300)
    assert x.tolist() == [[0.0, 1.0]]


def test_x_that_shrinks_while_it_is_checked():
    x = np.zeros((1, 5000))

    class Scale:
        def __float__(self):
            x.resize((1, 1), refcheck=False)
            return 1.0

    with pytest.raises(ValueError, match="x has shape"):
        posenc.Encoding(5000).add_to(x, x_scale=Scale())


def test_signalling_nan():
    with np.errstate(all="raise"):
        row = posenc.encode(np.array([0x7FA00000], np.uint32).view(np.float32), 3)
    assert (row.view(np.uint32) == 0x7FC00000).all()


def test_fork_while_another_thread_makes_the_offsets():
    code = """if True:
        import os, posenc, threading, time
        for delay in (0, 1e-4, 3e-4, 1e-3):
            encoding = posenc.Encoding(2048, base=3 + delay)
            thread = threading.Thread(target=encoding.encode, args=(64,))
            thread.start()
            time.sleep(delay)
            child = os.fork()
            if child == 0:
                encoding.encode(64)
                os._exit(7)
            thread.join()
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    """
    subprocess.run([sys.executable, "-W", "ignore", "-c", code], check=True, timeout=60)


def test_only_what_is_asked_for_is_imported():
    code = "import sys, posenc, numpy; posenc.encode([1.5], 4); posenc.add_to(numpy.ones((2, 4)), [1, 2]); assert 'ml_dtypes' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_cached_encodings_do_not_pile_up():
    """By VmHWM: ru_maxrss of a new process begins with the size of its parent, which others' libraries may have grown."""
    code = """if True:
        import posenc
        for i in range(64):
            posenc.encode(100, 8192, position_scale=1 / (i + 1))
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM:"))
        assert int(peak.split()[1]) < 300_000
    """
    subprocess.run([sys.executable, "-c", code], check=True)
