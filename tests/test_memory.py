"""Calls access no memory outside of their arrays, and leak neither memory nor references."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

import posenc
from conftest import HERE, peak_of, python, python_output

POSIX = pytest.mark.skipif(os.name != "posix", reason="mprotect is POSIX")
GLIBC = pytest.mark.skipif(sys.platform != "linux", reason="mallinfo2 is glibc's")
GUARDED = Path(__file__).with_name("guarded.py")


# ---- guard pages -------------------------------------------------------------------------------------------


@POSIX
@pytest.mark.parametrize("every, least", [(97, 800), pytest.param(1, 80_000, marks=pytest.mark.long)])
@pytest.mark.parametrize("isa", HERE)
def test_calls_between_guard_pages(isa, every, least):
    done = subprocess.run([sys.executable, GUARDED, isa, str(every)], capture_output=True, text=True)
    assert done.returncode == 0, f"{done.returncode} at {done.stderr[-2000:].splitlines()[-1]}"
    assert int(done.stdout) > least


@POSIX
@pytest.mark.parametrize("side, call", [("low", "posenc.encode(65, 16, out=out)"),
                                        ("high", "posenc.Rotary(16).rotate(out)")])
def test_the_guard_pages_catch_an_extra_row(side, call):
    """as_strided adds a row that is outside of the buffer."""
    code = f"""
        import sys
        sys.path.insert(0, sys.argv[1])
        import guarded, numpy as np, posenc, resource
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        out = guarded.GuardedBuffer(4096).array((64, 16), np.float32, (64, 4), {side!r})
        stride = -64 if {side!r} == "low" else 64
        out = np.lib.stride_tricks.as_strided(out[::-1] if stride < 0 else out, (65, 16), (stride, 4))
        print("ready", flush=True)
        {call}
        print("survived")
        """
    done = subprocess.run(python(code, GUARDED.parent), capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (-signal.SIGSEGV, "ready\n"), done.stderr


@POSIX
def test_undecided_values_are_evaluated_before_they_take_much_memory():
    """Half of all sines are at half-way points; the first evaluation in Python ends the call."""
    code = """
        import numpy as np, posenc, resource
        from posenc._core.exact import ExactColumns
        encoding = posenc.Encoding(4096, frequencies=np.full(2048, 2.0**-60), scale=1 + 2.0**-8)
        out = np.zeros((4096, 4096), np.uint16)
        def stop(*arguments):
            raise KeyboardInterrupt
        ExactColumns.__call__ = stop
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        try:
            encoding.encode(range(1, 4097), dtype="bfloat16", out=out, threads=1)
        except KeyboardInterrupt:
            print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
        """
    assert int(python_output(code)) < 100_000           # kB, except on macOS


# ---- leaks -------------------------------------------------------------------------------------------------

# glibc counts the bytes in use in all of its arenas; with PYTHONMALLOC=malloc, these include Python objects.
# After many calls, even a leak of a few bytes per call is visible.
GROWTH = """
    import ctypes, gc
    import numpy as np
    import posenc
    from posenc._core import kernel

    class Mallinfo(ctypes.Structure):
        _fields_ = [(name, ctypes.c_size_t) for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]

    libc = ctypes.CDLL(None)
    libc.mallinfo2.restype = Mallinfo
    libc.malloc.restype = ctypes.c_void_p
    CALLS = 100

    def in_use():
        gc.collect()
        info = libc.mallinfo2()
        return info.uordblks + info.hblkhd

    def growth(work, allowed=1000):
        for _ in range(12):         # a leak grows each time, but the caches of Python and glibc grow only at first
            before = in_use()
            for _ in range(CALLS):
                work()
            grown = in_use() - before
            if grown < allowed:
                break
        return grown

    assert growth(lambda: None) < 1000
    assert growth(lambda: libc.malloc(40)) >= 40 * CALLS, "leaks in C are not counted"
    kept = []
    assert growth(lambda: kept.append(object())) >= 16 * CALLS, "leaks of Python objects are not counted"
    """

WORK = {
    "encode": "posenc.encode(100, 40)", "encode a decode step": "posenc.encode(range(7, 8), 64)",
    "encode integers": "posenc.encode(np.arange(50), 40, dtype='float16')",
    "encode into an array": "posenc.encode(range(50), 40, out=np.empty((50, 40), np.float32))",
    "encode reals": "posenc.encode([0.5, np.nan], 40, dtype='bfloat16')",
    "encode with threads": "posenc.encode(2000, 40, threads=2)",
    "encode with non-temporal stores": "posenc.encode(5000, 513)",
    "add_to": "posenc.add_to(np.ones((100, 40), np.float32))",
    "add_to at positions": "posenc.add_to(np.ones((2, 30, 40), np.float16), np.arange(30))",
    "rotate at positions": "ROTARY.rotate(np.ones((2, 30, 40), np.float32), np.arange(60).reshape(2, 30), threads=2)",
    "rotate several axes": "AXES.rotate(np.ones((2, 30, 40), np.float32), np.arange(90).reshape(3, 30), inverse=True)",
    "rotate with exact evaluation": "posenc.Rotary(8, scale=2.0**-100).rotate(np.ones((3, 8), np.float32))",
    "stream": "list(posenc.stream(100, 40, chunk_rows=7))",
    "another encoding each time": "posenc.encode(40, 64, position_scale=np.random.random())",
    "refused positions": "refused(posenc.encode, [2**63], 4)",
    "refused out": "refused(posenc.encode, 4, 4, dtype='float32', out=np.empty((4, 4)))",
    "refused rotation": "refused(ROTARY.rotate, np.ones((4, 40), np.float32), 5)",
    "refused overlap": "refused(ROTARY.rotate, (x := np.ones((5, 40), np.float32))[:4], out=x[1:])",
}


@GLIBC
@pytest.mark.memory
def test_calls_keep_no_memory():
    code = textwrap.dedent(GROWTH) + textwrap.dedent(f"""
        def refused(function, *args, **keywords):
            try:
                function(*args, **keywords)
            except (TypeError, ValueError):
                return
            raise AssertionError("not refused")

        ROTARY, AXES = posenc.Rotary(40), posenc.Rotary(40, axes=[0, 1, 2, 0] * 5)
        for i in range(1000):               # fill the caches of encodings and of tables
            posenc.encode(40, 64, position_scale=1 / (i + 1))
        for name, call in {WORK!r}.items():
            CALLS = 20 if "stores" in name or "another" in name else 100
            allowed = max(2000, 16 * CALLS)
            leaked = growth(eval("lambda: " + call), allowed)
            assert leaked < allowed, f"{{name}}: {{leaked}} bytes leaked by {{CALLS}} calls"
        """)
    # disable glibc's thread caches, because their chunks are counted as in use
    python_output(code, PYTHONMALLOC="malloc", GLIBC_TUNABLES="glibc.malloc.tcache_count=0")


@pytest.mark.parametrize("keywords, most", [
    ({"d_model": 32}, 800), ({"d_model": 8192}, 800), ({"periods": np.geomspace(1.1, 1e4, 16)}, 800),
    ({"d_model": 32, "base": 1e30}, 800), ({"frequencies": np.geomspace(1e-20, 1e20, 16)}, 800),
    ({"periods": [f"{10**9 * i**7 + 1}as" for i in range(1, 33)], "exponents": "column"}, 800),
    ({"d_model": 32, "frequency_scale": 1e-300}, 2000), ({"periods": 10.0 ** np.linspace(-300, 300, 16)}, 2000),
    ({"periods": 10.0 ** np.linspace(-300, 300, 32), "exponents": "column"}, 2000),
])
def test_an_encoding_takes_60_to_2000_bytes_per_column(keywords, most):
    is_time = isinstance(next(iter(keywords.get("periods", [0]))), str)
    tracemalloc.start()
    try:
        encodings = [posenc.Encoding(**keywords) for _ in range(10)]
        for each in encodings:
            each.encode(np.array([np.timedelta64(0, "s") if is_time else 0]), dtype="float64")
        assert 60 < tracemalloc.get_traced_memory()[0] / (10 * encodings[0].d_model) < most
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("call, per_length", [
    ("mask(np.ones(SHAPE, bool))", 0), ("mask(np.tile([0, 1], HALVES))", 0), ("mask(np.ones(SHAPE), start=FIRST)", 0),
    ("segments(np.ones(SHAPE, int))", 0), ("segments(np.ones(SHAPE, int).tolist())", 0),
    ("segments(np.tile([0, 1], HALVES))", 0),
    ("segments(np.ones(SHAPE, np.uint8), start=FIRST)", 0),
    ("lengths(np.ones(10**6, int), start=np.arange(10**6))", 40), ("lengths(np.full(10**6, 2, np.int8))", 40),
])
@pytest.mark.parametrize("rows", [1, 1000, 500_000])
def test_positions_take_five_times_their_memory_at_most(call, per_length, rows):
    scope = {"np": np, "SHAPE": (rows, 10**6 // rows), "HALVES": (rows, 500_000 // rows), "FIRST": np.arange(rows)}
    function, arguments = call.split("(", 1)
    positions_from = getattr(posenc, f"positions_from_{function}")
    args, options = eval(f"(lambda *args, **options: (args, options))({arguments}", scope)
    least = positions_from(*args, **options).nbytes
    assert least < peak_of(lambda: positions_from(*args, **options)) < 5 * least + per_length * 10**6


def test_calls_of_few_rows_share_an_offset_table():
    encoding = posenc.Encoding(256, base=12345)
    grown = []
    tracemalloc.start()
    try:
        for start in (0, 100, 5, 200):
            encoding.encode(range(start, start + 16), threads=1)
            grown.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    assert grown[0] < 100_000 < 300_000 < grown[1]
    assert grown[3] < grown[1] + 50_000


def test_a_deleted_stream_releases_out():
    out = np.empty((4, 8), np.float32)
    before = sys.getrefcount(out)
    stream = posenc.stream(None, 8, out=out)
    next(stream)
    assert sys.getrefcount(out) > before
    del stream
    gc.collect()
    assert sys.getrefcount(out) == before


@GLIBC
@pytest.mark.memory
def test_insufficient_memory_raises_memory_error():
    """If the offset table does not fit in memory, nothing is written, and later calls succeed."""
    code = """
        import resource
        import numpy as np, posenc
        encoding = posenc.Encoding(2**17)
        out = np.full((512, 2**17), 7, np.float16)          # the table takes 103 MB
        now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + (1 << 26), now + (1 << 26)))
        for call in (lambda: encoding.encode(512, dtype="float16", out=out), lambda: encoding.add_to(out)):
            try:
                call()
            except MemoryError as error:
                print(error)
        assert out.min() == out.max() == 7
        assert posenc.encode(100, 64).shape == (100, 64)
        """
    assert python_output(code).count("for the offset table of d_model 131072") == 2
