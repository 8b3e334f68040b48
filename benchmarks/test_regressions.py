"""Times of the project's own paths, to compare commits: ``pytest benchmarks --benchmark-autosave``."""

import itertools

import numpy as np
import pytest

import posenc
from posenc import _kernel
from posenc._bench import element_of, empty, exhaust, int64_positions

pytest.importorskip("pytest_benchmark")

WIDTH = 512
LARGE, SMALL = 65_536, 512              # rows: far beyond the caches, and within them
HERE = [name for name, runs in _kernel.instruction_sets().items() if runs]
DTYPES = ["float32", "float64", "float16", "bfloat16"]


@pytest.fixture(params=HERE)
def isa(request):
    """The instruction set whose kernels run."""
    before = _kernel.instruction_set()
    _kernel.use_instruction_set(request.param)
    yield request.param
    _kernel.use_instruction_set(before)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("rows", [SMALL, LARGE])
def test_table(benchmark, isa, dtype, rows):
    out = empty((rows, WIDTH), element_of(dtype), "aligned")
    benchmark(posenc.encode, rows, WIDTH, dtype=dtype, out=out, threads=1)


@pytest.mark.parametrize("buffer", ["aligned", "plain"])
@pytest.mark.parametrize("threads", [1, 2])
def test_buffer(benchmark, threads, buffer):
    out = empty((LARGE, WIDTH), np.float32, buffer)
    benchmark(posenc.encode, LARGE, WIDTH, out=out, threads=threads)


@pytest.mark.parametrize("d_model", [1, 7, 64, 510, 4096, 16384])
def test_width(benchmark, d_model):
    rows = 2**23 // d_model
    out = empty((rows, d_model), np.float32, "aligned")
    benchmark(posenc.encode, rows, d_model, out=out, threads=1)


@pytest.mark.parametrize("shape", [(LARGE, WIDTH), (32, 2_048, WIDTH), (SMALL, WIDTH)], ids=str)
def test_add_to(benchmark, isa, shape):
    x = empty(shape, np.float32, "aligned")
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
    out = empty((LARGE, WIDTH), np.float32, "aligned")
    benchmark(posenc.encode, positions, WIDTH, out=out, threads=1)


@pytest.mark.parametrize("form", ["functional", "method"])
def test_one_row(benchmark, form):
    x = empty((1, WIDTH), np.float32, "aligned")
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
