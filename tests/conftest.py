"""Fixtures: every value test runs on every instruction set of the machine."""

import signal

import numpy as np
import pytest

import posenc
from posenc import _cli, _kernel

DTYPES = ["float64", "float32", "float16", "bfloat16"]
HERE = [name for name, runs in _kernel.instruction_sets().items() if runs]

# d_model, each for what it takes the kernels through
EDGE_SIZES = {
    1: "a lone sine",
    2: "one pair",
    3: "odd",
    31: "one column short of a tile",
    32: "one tile",
    33: "one column beyond a tile",
    64: "two tiles",
    510: "a last tile that is not full, rows not on cache lines",
    512: "the common case",
}


@pytest.fixture(params=HERE)
def isa(request):
    """The instruction set whose kernels run."""
    before = _kernel.instruction_set()
    _kernel.use_instruction_set(request.param)
    assert posenc.show_runtime()["instruction_set"] == request.param
    yield request.param
    _kernel.use_instruction_set(before)


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture(params=EDGE_SIZES)
def d_model(request):
    return request.param


@pytest.fixture
def call(capsys):
    """Runs the command line in this process: exit code, stdout, stderr."""
    def call(*args):
        code = _cli.main([str(arg) for arg in args])
        return code, *capsys.readouterr()
    return call


@pytest.fixture
def heard_signals():
    """Children hear the signals that ask a program to end, though they be ignored here: under nohup, or in the background."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler)       # no child inherits a handler
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


def bits_of(array):
    """The bits of an array of numbers, as unsigned integers."""
    return np.asarray(array).view(f"u{array.dtype.itemsize}")


def assert_same_bits(found, expected):
    __tracebackhide__ = True
    assert found.shape == expected.shape
    assert found.dtype == expected.dtype
    different = np.argwhere(bits_of(found) != bits_of(expected))
    assert not len(different), f"{len(different)} values differ, the first at {tuple(different[0])}"
