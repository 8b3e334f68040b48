"""The bits do not depend on the floating-point environment of the host program."""

import contextlib
import ctypes
import os
import shlex
import subprocess
import sys

import numpy as np
import pytest
from conftest import DTYPES, assert_same_bits

import posenc

HELPER = r"""
#include <fenv.h>
#include <stdint.h>

#if defined(__SSE2__)
#include <xmmintrin.h>
static const uint64_t flush = 0x8040, flags = 0x3f;     /* FTZ and DAZ; the sticky exception flags */
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
SCATTERED = np.array([0, 1, -7, 12345, 10**12 + 1, 2**62 + 3, -(2**63), 2**63 - 1] * 9)
FRACTIONAL = np.array([0.1, -0.1, 1e-300, 5e-324, -5e-324, 1 / 3, 1e5 + 0.7, 2.0**51 + 0.5, np.nan, np.inf])


@pytest.fixture(scope="module")
def helper(tmp_path_factory):
    folder = tmp_path_factory.mktemp("environment")
    source, library = folder / "helper.c", folder / "helper.so"
    source.write_text(HELPER)
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        subprocess.run([*compiler, "-O1", "-frounding-math", "-shared", "-fPIC", source, "-o", library, "-lm"], check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler")
    found = ctypes.CDLL(str(library))
    found.mode.restype = ctypes.c_uint64
    return found


@pytest.fixture(params=MODES)
def host(request, helper):
    """A context in which the host program's mode is set, and that ends with a look whether it still is."""
    rounding, flushing = MODES[request.param]
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


def same_in(host, work):
    expected = work()
    with host():
        found = work()
    assert_same_bits(found, expected)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("positions", [range(-40, 1100), range(7, 7 + 1000 * 70, 1000), SCATTERED, FRACTIONAL])
def test_encode(isa, host, dtype, threads, positions):
    for convention in ({}, {"scale": SUBNORMAL[dtype]}, {"scale": -22.6, "position_offset": 0.1, "position_scale": 1 / 3}):
        encoding = posenc.Encoding(70, **convention)
        same_in(host, lambda e=encoding: e.encode(positions, dtype=dtype, threads=threads))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("x_scale", [1.0, 1 / 3, 22.627416997969522, -1e-5])
def test_add_to(isa, host, dtype, threads, x_scale):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = np.random.default_rng(3).standard_normal((2, 600, 70)).astype(dtype)
    same_in(host, lambda: posenc.add_to(x.copy(), x_scale=x_scale, threads=threads))
    positions = SCATTERED.repeat(9)[:600]
    same_in(host, lambda: posenc.add_to(x.copy(), positions, x_scale=x_scale, threads=threads))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("x_scale", [1.0, 1 / 3])
def test_add_to_subnormals(isa, host, dtype, x_scale):
    tiny = SUBNORMAL[dtype]
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    x = (np.random.default_rng(4).standard_normal((600, 70)) * tiny).astype(dtype)
    same_in(host, lambda: posenc.add_to(x.copy(), x_scale=x_scale, scale=tiny))


CONVENTIONS = [
    {"base": 1e8},
    {"base": 1.7, "spacing": "endpoint"},
    {"base": 5e-324},
    {"exponents": "column", "shift": 1 / 3},
    {"position_scale": 1 / 3, "position_offset": 0.1, "scale": 22.6},
    {"position_offset": 5e-324},
    {"position_scale": 5e-324},
    {"frequency_scale": 5e-324},
    {"scale": 5e-324},
    {"frequencies": [-1.5, 1e300, 5e-324, 0.0, 1 / 3, -1e-310]},
    {"frequencies": np.array([0.1, 1e-45, -1e-40, 1e38, 0, 3], np.float32)},
]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
def test_building_an_encoding(host, convention):
    positions = np.array([1, -7, 2**62 + 3, 2**63 - 1])

    def table():
        return posenc.Encoding(12, **convention).encode(positions, dtype="float64")

    def frequencies():
        return posenc.Encoding(12, **convention).frequencies

    same_in(host, table)
    same_in(host, frequencies)


def test_narrow_positions(host):
    for positions in (np.array([1e-40, 1e-45, 0.1], np.float32), np.array([1e-7, 6e-8, 0.1], np.float16)):
        same_in(host, lambda p=positions: posenc.encode(p, 4, dtype="float64"))
