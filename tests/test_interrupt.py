"""Ctrl-C ends a long call where it is: KeyboardInterrupt comes before the work is done."""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import posenc

if sys.platform == "win32":
    pytest.skip("sends signals", allow_module_level=True)

# evaluated to 200 bits and more, at 3 to 15 us each: some seconds of work in little memory
SLOW = np.full(4000, 5e-324)


@contextlib.contextmanager
def interrupted(after=0.1):
    """Has SIGINT come while the block runs, and KeyboardInterrupt of it."""
    timer = threading.Timer(after, os.kill, (os.getpid(), signal.SIGINT))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        timer.join()
        signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("threads", [1, 2])
def test_encode(threads):
    out = np.full((len(SLOW), 512), np.nan)
    with interrupted():
        posenc.encode(SLOW, 512, dtype="float64", out=out, threads=threads)
    assert np.isnan(out).any()
    assert not np.isnan(out).all()
    assert (posenc.encode(SLOW[:9], 512, dtype="float64", threads=threads) == out[0]).all()


def test_position_offset_of_many_bits():
    """Neighbouring positions, none of which takes the fast way."""
    out = np.full((8192, 512), np.nan)
    with interrupted():
        posenc.encode(8192, 512, dtype="float64", out=out, position_offset=1e-30, threads=1)
    assert not np.isnan(out[0]).any()
    assert np.isnan(out[512:]).all()                        # a block of the fast way


@pytest.mark.parametrize("threads", [1, 2])
def test_add_to(threads):
    x = np.full((len(SLOW), 512), 2.0)
    with interrupted():
        posenc.add_to(x, SLOW, threads=threads)
    assert (x[:, 1::2] == 2).any()
    assert (x[:, 1::2] == 3).any()


@pytest.mark.long
def test_offsets():
    """Of so many columns that to make their table takes seconds."""
    encoding = posenc.Encoding(1 << 20, exponents="column", frequencies=np.full(1 << 20, 0.1))
    out = np.full((64, 1 << 20), np.nan, np.float32)
    with interrupted():
        encoding.encode(64, out=out, threads=1)
    assert np.isnan(out).all()


def test_stream():
    rows = 0
    with interrupted():
        for chunk in posenc.stream(None, 64):
            rows += len(chunk.values)
    assert rows > 0


def test_grid(monkeypatch):
    """Spread in pieces of a few milliseconds, between which Python looks for signals."""
    pieces, spread = [], np.bitwise_or

    def counted(*tables, out):
        pieces.append(out.nbytes)
        return spread(*tables, out=out)

    expected = posenc.grid((300, 400), 64)
    monkeypatch.setattr(np, "bitwise_or", counted)
    assert (posenc.grid((300, 400), 64) == expected).all()
    assert sum(pieces) == expected.nbytes and max(pieces) <= 1 << 23


def test_handler_that_does_not_raise():
    calls = []
    before = signal.signal(signal.SIGALRM, lambda *_: calls.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    try:
        values = posenc.encode(SLOW[:600], 512, dtype="float64", threads=1)
    finally:
        signal.signal(signal.SIGALRM, before)
    assert calls == [1]
    assert (values == values[0]).all()


def test_call_of_another_thread_goes_on():
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(posenc.encode, SLOW[:400], 512, dtype="float64", threads=1)
        with interrupted():
            call.result()
        assert not call.done()
        values = call.result()
    assert (values == values[0]).all()


def test_host_that_patches_threading():
    """As gevent does: its main thread has another number than Python's."""
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
            sys.exit(0 if numpy.isnan(out).any() else 1)
    """
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=60).returncode == 0


@pytest.mark.usefixtures("heard_signals")
def test_generate_leaves_no_file(tmp_path):
    command = [sys.executable, "-m", "posenc", "generate", "4000000", "512", "-o", str(tmp_path / "table.npy")]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    while not any(tmp_path.iterdir()):
        assert process.poll() is None
        time.sleep(0.001)
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130
    assert list(tmp_path.iterdir()) == []
