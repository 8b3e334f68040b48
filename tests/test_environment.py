"""The bits do not depend on the floating-point environment of the host program."""

import contextlib
import ctypes
import decimal
import itertools
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, compiled

HELPER = r"""
#include <fenv.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
static const uint64_t flush = 0x8040, flags = 0x3f;     /* flush: FTZ and DAZ; flags: the sticky exceptions */
static uint64_t control(void) { return _mm_getcsr(); }
static void set_control(uint64_t c) { _mm_setcsr((unsigned)c); }
#elif defined(__aarch64__)
static const uint64_t flush = 1 << 24, flags = 0;
static uint64_t control(void) { uint64_t c; __asm__ volatile("mrs %0, fpcr" : "=r"(c)); return c; }
static void set_control(uint64_t c) { __asm__ volatile("msr fpcr, %0" : : "r"(c)); }
#else
static const uint64_t flush = 0, flags = 0;
static uint64_t control(void) { return 0; }
static void set_control(uint64_t c) { (void)c; }
#endif

static const int roundings[] = {FE_TONEAREST, FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO};

int can_flush(void) { return flush != 0; }
void enter(int rounding, int flushing) {
    fesetround(roundings[rounding]);
    if (flushing) set_control(control() | flush);
}
void leave(void) { fesetenv(FE_DFL_ENV); }
int rounding(void) {
    for (int i = 0; i < 4; i++) if (fegetround() == roundings[i]) return i;
    return -1;
}
uint64_t mode(void) { return (control() & ~flags) << 2 | (uint64_t)rounding(); }
"""

MODES = {"upward": (1, 0), "downward": (2, 0), "toward zero": (3, 0), "flush": (0, 1), "flush upward": (1, 1)}

SUBNORMAL = {"float64": 1e-310, "float32": 1e-40, "float16": 1e-6, "bfloat16": 1e-40}
SCATTERED = np.array([0, 1, -7, 12345, 10**12 + 1, 2**62 + 3, -(2**63), 2**63 - 1] * 18)
FRACTIONAL = np.array([0.1, -0.1, 1e-300, 5e-324, -5e-324, 1 / 3, 1e5 + 0.7, 2.0**51 + 0.5, np.nan, np.inf])
POSITIONS = [range(-40, 560), range(7, 7 + 1000 * 70, 1000), SCATTERED, FRACTIONAL]


@pytest.fixture(scope="module")
def helper(tmp_path_factory):
    library = compiled(tmp_path_factory.mktemp("environment"), HELPER, "-O1", "-frounding-math", "-lm")
    helper = ctypes.CDLL(str(library))
    helper.mode.restype = ctypes.c_uint64
    return helper


def setting(name, helper):
    """Return a context manager that sets a floating-point mode and checks that the code inside it preserves
    the mode.
    """
    rounding, flushing = MODES[name]
    if flushing and not helper.can_flush():
        pytest.skip("the processor cannot flush to zero")

    @contextlib.contextmanager
    def host():
        helper.enter(rounding, flushing)
        try:
            before = helper.mode()
            yield
            after = helper.mode()
        finally:
            helper.leave()
        assert after == before
        assert before != helper.mode()

    return host


@pytest.fixture(params=MODES)
def host(request, helper):
    """Set any mode: Python's arithmetic may depend on each."""
    return setting(request.param, helper)


@pytest.fixture(params=["downward", "flush upward"])
def kernel_host(request, helper):
    """Set a mode for the kernels, which replace the whole control word, whatever its value."""
    return setting(request.param, helper)


def check_mode(host, work):
    expected = work()
    with host(), ThreadPoolExecutor(1) as pool:
        results = work(), pool.submit(work).result()            # the new thread inherits the mode
    for result in results:
        assert_same_bits(result, expected)


def scalar_type(dtype):
    return pytest.importorskip("ml_dtypes").bfloat16 if dtype == "bfloat16" else dtype


def calls(dtype):
    """Yield functions that call the kernels."""
    tiny, scaled = SUBNORMAL[dtype], {"scale": -22.6, "position_offset": 0.1, "position_scale": 1 / 3}
    for convention, threads in (({}, 3), ({"padding_idx": 0}, 1), ({"scale": tiny}, 1), (scaled, 3)):
        encoding = posenc.Encoding(34, **convention)
        for positions in (SCATTERED[:8], FRACTIONAL) if convention == {"scale": tiny} else POSITIONS:
            yield lambda e=encoding, p=positions, t=threads: e.encode(p, dtype=dtype, threads=t)
    x = np.random.default_rng(3).standard_normal((2, 144, 34)).astype(scalar_type(dtype))
    small = (x[0, :8] * tiny).astype(x.dtype)
    for options in ({}, {"threads": 3, "x_scale": -0.375}):
        for positions in (None, SCATTERED):
            yield lambda p=positions, o=options: posenc.add_to(x.copy(), p, **o)
        yield lambda o=options: posenc.add_to(small.copy(), scale=tiny, **o)
    if dtype != "float64":
        x[0, :, 1::3] *= x.dtype.type(tiny)
        for rotary in (posenc.Rotary(34), posenc.Rotary(34, layout="interleaved", scale=1 / 3)):
            for positions, inverse in itertools.product((None, SCATTERED), (False, True)):
                yield lambda r=rotary, p=positions, i=inverse: r.rotate(x.copy(), p, inverse=i, threads=1 + 2 * i)
def test_kernels(isa, kernel_host, dtype):
    for call in calls(dtype):
        check_mode(kernel_host, call)


def test_add_to_rounds_x_scale_to_nearest(host, dtype):
    x = np.ones((2, 10), scalar_type(dtype))
    for x_scale in (1 / 3, 22.627416997969522, -1e-5, 1e-40):
        check_mode(host, lambda scale=x_scale: posenc.add_to(x.copy(), x_scale=scale))


CONVENTIONS = [
    {}, {"base": 1.7, "spacing": "endpoint"}, {"base": 5e-324}, {"exponents": "column", "shift": 1 / 3},
    {"position_scale": 1 / 3, "position_offset": 0.1, "scale": 22.6}, {"position_offset": 5e-324},
    {"position_scale": 5e-324}, {"frequency_scale": 5e-324}, {"scale": 5e-324},
    {"frequencies": [-1.5, 1e300, 5e-324, 0.0, 1 / 3, -1e-310]},
    {"frequencies": np.array([0.1, 1e-45, -1e-40, 1e38, 0, 3], np.float32)},
]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
def test_encodings_built_in_another_mode_have_the_same_bits(host, convention):
    positions = np.array([1, -7, 2**62 + 3, 2**63 - 1])
    check_mode(host, lambda: posenc.Encoding(12, **convention).encode(positions, dtype="float64"))
    check_mode(host, lambda: posenc.Encoding(12, **convention).frequencies)


def test_positions_and_presets(host):
    # subnormal numbers
    for positions in (np.array([1e-40, 1e-45], np.float32), np.array([1e-7, 6e-8], np.float16)):
        check_mode(host, lambda p=positions: posenc.encode(p, 4, dtype="float64"))
    for name, d_model in itertools.product(["pi0", "nemo-fixed", "mlx", "pyg", "notebook-slip"], (10, 64)):
        check_mode(host, lambda n=name, d=d_model: posenc.preset(n, d).encode(5, dtype="float64"))
        check_mode(host, lambda n=name, d=d_model: posenc.preset(n, d).frequencies)


@contextlib.contextmanager
def trapping(context):
    # a copy, because context.traps is a view that changes with the context
    before = context.copy()
    context.traps, context.rounding = dict.fromkeys(context.traps, True), decimal.ROUND_UP
    try:
        yield
    finally:
        context.traps, context.rounding = dict(before.traps), before.rounding


@pytest.mark.parametrize("context", [decimal.getcontext, lambda: decimal.DefaultContext],
                         ids=["thread", "default"])
def test_decimal_contexts_do_not_matter(context):
    """The host program may enable every trap, including decimal.Inexact."""
    expected = posenc.Encoding(66).frequencies
    with trapping(context()):
        frequencies = posenc.Encoding(66).frequencies
    assert_same_bits(frequencies, expected)
