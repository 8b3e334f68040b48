"""Measure posenc's code paths, to compare commits.  ``pytest -n 0 benchmarks --benchmark-autosave``"""

import itertools
import sys
from pathlib import Path

import numpy as np
import pytest

import posenc
from posenc._core import kernel

sys.path.insert(0, str(Path(__file__).parent))
from common import array_at
from rivals import exhaust, int64_positions

pytest.importorskip("pytest_benchmark")

WIDTH = 512
LARGE, SMALL = 65_536, 512              # rows of tables larger and smaller than the caches
SUPPORTED = [name for name, runs in kernel.instruction_sets().items() if runs]
DTYPES = ["float32", "float64", "float16", "bfloat16"]


@pytest.fixture(params=SUPPORTED)
def isa(request):
    """Use the kernels for one instruction set."""
    before = kernel.instruction_set()
    kernel.use_instruction_set(request.param)
    yield request.param
    kernel.use_instruction_set(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_table(benchmark, isa, dtype, rows):
    out = array_at((rows, WIDTH), posenc.encode(0, 1, dtype=dtype).dtype, 0)
    benchmark(posenc.encode, rows, WIDTH, dtype=dtype, out=out, threads=1)


@pytest.mark.parametrize("offset", [0, 16])             # bytes past a cache line; it is 16 for large arrays from np.empty
@pytest.mark.parametrize("threads", [1, 2])
def test_buffer(benchmark, threads, offset):
    out = array_at((LARGE, WIDTH), np.float32, offset)
    benchmark(posenc.encode, LARGE, WIDTH, out=out, threads=threads)


@pytest.mark.parametrize("d_model", [1, 7, 64, 510, 4096, 16384])
def test_width(benchmark, d_model):
    rows = 2**23 // d_model
    out = array_at((rows, d_model), np.float32, 0)
    benchmark(posenc.encode, rows, d_model, out=out, threads=1)


@pytest.mark.parametrize("shape", [(LARGE, WIDTH), (32, 2_048, WIDTH), (SMALL, WIDTH)], ids=str)
def test_add_to(benchmark, isa, shape):
    x = array_at(shape, np.float32, 0)
    x.fill(0.5)
    benchmark(posenc.add_to, x, threads=1)


@pytest.mark.parametrize(
    "positions",
    [
        pytest.param(np.random.default_rng(0).permutation(LARGE), id="shuffled"),
        pytest.param(int64_positions(LARGE), id="int64"),
        pytest.param(np.linspace(0, 999, LARGE), id="fractional"),
        pytest.param(range(10**15, 10**15 + 3 * LARGE, 3), id="stepped"),
    ],
)
def test_positions(benchmark, positions):
    out = array_at((LARGE, WIDTH), np.float32, 0)
    benchmark(posenc.encode, positions, WIDTH, out=out, threads=1)


@pytest.mark.parametrize("form", ["functional", "method"])
def test_one_row(benchmark, form):
    x = array_at((1, WIDTH), np.float32, 0)
    x.fill(0.5)
    add_to = {"functional": posenc.add_to, "method": posenc.Encoding(WIDTH).add_to}[form]
    step = itertools.count().__next__

    def decode():
        p = step()
        add_to(x, range(p, p + 1))

    benchmark(decode)


@pytest.mark.parametrize("d_model", [512, 8_192])
def test_build(benchmark, d_model):
    benchmark(posenc.Encoding, d_model)


def test_stream(benchmark):
    benchmark(exhaust, 10**6)
