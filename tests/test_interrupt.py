"""Ctrl-C ends a long call early with KeyboardInterrupt."""

import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import posenc
from conftest import interrupted, python_output

if sys.platform == "win32":
    pytest.skip("requires POSIX signals", allow_module_level=True)

# Python evaluates each value at these positions, so calls with small arrays take seconds.
SLOW = np.full(4000, 5e-324)


# functions that change every value of an array of 512 columns
CALLS = {
    "encode": lambda out, threads: posenc.encode(SLOW, 512, out=out, threads=threads),
    "points by axis": lambda out, threads: points(out, "axis", threads),
    "points by function": lambda out, threads: points(out, "function", threads),
    "add_to": lambda out, threads: posenc.add_to(out, SLOW, scale=3.0, threads=threads),
}


def points(out, group, threads):
    posenc.points(SLOW.reshape(-1, 2), 1024, group=group, out=out.reshape(2000, 1024), threads=threads)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_ctrl_c_interrupts_tables(call, threads):
    out = np.full((4000, 512), 2.0)
    with interrupted(lambda: np.any(out[:, 1] != 2)):
        call(out, threads)
    assert (out[:, 1::2] == 2).any() and (out[:, 1::2] != 2).any()


# every value is evaluated exactly
SLOW_ROTATIONS = {
    "scale": (posenc.Rotary(128, scale=2.0**-100), 1),
    "half-way": (posenc.Rotary(128, frequencies=[0.0] * 64, scale=1 + 3 * 2.0**-11), 1),
    "infinity": (posenc.Rotary(128, frequencies=[0.0] * 64), np.inf),
}


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("rotary, value", SLOW_ROTATIONS.values(), ids=SLOW_ROTATIONS)
def test_ctrl_c_interrupts_rotate(rotary, value, threads):
    """Each row is complete or unchanged."""
    x = np.full((64, 1024, 128), value, np.float16)
    with interrupted(lambda: np.any(x[..., 0] != value)):
        rotary.rotate(x, threads=threads)
    unchanged = (x == value).all(axis=-1)
    assert unchanged.any() and not unchanged.all()
    assert ((x == value).any(axis=-1) == unchanged).all()


@pytest.mark.long
def test_ctrl_c_interrupts_the_offset_table():
    """With this many columns, the offset table takes longer to build than the rows to compute."""
    encoding = posenc.Encoding(1 << 18, exponents="column", frequencies=np.full(1 << 18, 0.1))
    out = np.full((128, 1 << 18), np.nan)
    begin = []
    with interrupted(lambda: begin and time.monotonic() > begin[0] + 0.1):
        begin.append(time.monotonic())
        encoding.encode(128, dtype="float64", out=out, threads=1)
    assert np.isnan(out).all()


def test_ctrl_c_interrupts_a_stream():
    rows = 0
    with interrupted(lambda: rows > 0):
        for chunk in posenc.stream(None, 64):
            rows += len(chunk.values)
    assert rows > 0


def test_a_handler_that_returns_lets_the_call_finish():
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        values = posenc.encode(SLOW[:200], 512, dtype="float64", threads=1)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert calls == [1]
    assert (values == values[0]).all()


def test_calls_in_other_threads_are_not_interrupted():
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(posenc.encode, SLOW[:200], 512, dtype="float64", threads=1)
        waiting = []
        with interrupted(lambda: waiting and call.running()):
            waiting.append(True)
            call.result()
        assert not call.done()
        values = call.result()
    assert (values == values[0]).all()


def test_a_patched_main_thread_is_interrupted():
    """gevent replaces the main thread with an object that has a different identifier."""
    code = """if True:
        import signal, sys, threading, types
        threading.main_thread = lambda: types.SimpleNamespace(ident=1)
        import numpy, posenc
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        out = numpy.full((4000, 512), numpy.nan)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.1)
            posenc.encode(numpy.full(4000, 5e-324), 512, dtype="float64", out=out, threads=1)
        except KeyboardInterrupt:
            print(numpy.isnan(out).any())
    """
    assert python_output(code) == "True"
