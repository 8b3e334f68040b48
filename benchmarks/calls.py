"""What calls cost: tables, small calls, positions as arrays, add_to.  ``python benchmarks/calls.py [NAME ...]``

Every line is a ratio of medians from rounds in which all of its cases run in turn; above 1, posenc is faster.  The roof line is
the faster of memset and a non-temporal fill of the same buffer.  Run it on a quiet machine: docs/performance.md has a run.
"""

import argparse
import ctypes
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np

import posenc
from posenc import _kernel

HERE = Path(__file__).parent
LARGE = 1 << 25                         # values


def roof_library():
    path = Path(tempfile.mkdtemp(), "roof.so")
    command = ["cc", "-O2", "-fopenmp", "-shared", "-fPIC", "-o", path, HERE / "roof.c"]
    subprocess.run(command, check=True)
    library = ctypes.CDLL(path)
    for fill in (library.fill_memset, library.fill_stream):
        fill.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
    return library


def medians(cases, rounds=15, number=1):
    """Seconds of a call of each case."""
    times = [[] for _ in cases]
    for case in cases:
        case()
    for _ in range(rounds):
        for case, found in zip(cases, times, strict=True):
            begun = time.perf_counter()
            for _ in range(number):
                case()
            found.append((time.perf_counter() - begun) / number)
    return [statistics.median(found) for found in times]


def array_at(shape, dtype, offset):
    """An array of pages that are there, which begins `offset` bytes past a page."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 8192, np.uint8)
    memory.fill(1)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % 4096 + offset)


def say(name, *figures):
    print(f"{name:58}", *figures, flush=True)


# ---- the measurements ---------------------------------------------------------------------------------------------------


def tables(dtypes=("float32", "float64", "float16", "bfloat16"), widths=(512,), rows=None, isa=None):
    """Share of the roof line: a buffer on a cache line, one 16 bytes past (np.empty), and their ratio."""
    roof = roof_library()
    for dtype in dtypes:
        for d_model in widths:
            n = LARGE // d_model
            element = np.uint16 if dtype == "bfloat16" else dtype
            aligned, usual = array_at((n, d_model), element, 0), array_at((n, d_model), element, 16)
            encoding = posenc.Encoding(d_model)
            for threads in (1, 2):
                fills = [partial(f, aligned.ctypes.data, aligned.nbytes, threads) for f in (roof.fill_memset, roof.fill_stream)]
                calls = [partial(encoding.encode, n, dtype=dtype, out=out, threads=threads) for out in (aligned, usual)]
                *fill, on_line, off_line = medians([*fills, *calls])
                name = f"{isa or _kernel.instruction_set()} {dtype} {n} x {d_model}, {threads} threads"
                shares = f"{min(fill) / on_line:.2f} aligned, {min(fill) / off_line:.2f} np.empty"
                say(name, f"of the roof line: {shares}; {on_line / off_line:.2f}")


def widths():
    tables(("float32",), (100, 300, 510, 768))


def isas():
    before = _kernel.instruction_set()
    for name, runs in _kernel.instruction_sets().items():
        if runs:
            _kernel.use_instruction_set(name)
            tables(("float32",))
    _kernel.use_instruction_set(before)


def fresh():
    """Tables in memory that the system has yet to give."""
    for rows in (512, 4096, 65536):
        shape = (rows, 512)
        full, ours = medians([partial(np.full, shape, 1, np.float32), partial(posenc.encode, *shape)])
        say(f"encode{shape} into fresh memory, against np.full", f"{full / ours:.2f}, {ours * 1e3:.2f} ms")


def small():
    encoding = posenc.Encoding(512)
    table = np.ones((512, 512), np.float32)
    out = np.empty_like(table)
    calls = [partial(encoding.encode, range(start, start + 512), out=out, threads=1) for start in (0, 1000)]
    zero, thousand, copy = medians([*calls, partial(np.copyto, out, table)], number=50)
    ratios = f"{thousand / zero:.2f}; {copy / zero:.2f}, {zero * 1e6:.1f} us"
    say("512 x 512 from 0, against from 1000; against np.copyto", ratios)
    few = np.empty((64, 512), np.float32)
    (time_of_few,) = medians([partial(encoding.encode, 64, out=few, threads=1)], number=200)
    say("64 x 512 from 0", f"{time_of_few * 1e6:.1f} us")
    panels = [array_at((1024, 528), np.float32, 0)[:, :512], array_at((1024, 512), np.float32, 0)]
    padded, power = medians([partial(encoding.encode, 1024, out=out, threads=1) for out in panels], number=20)
    say("1,024 x 512, rows 2,112 bytes apart, against 2,048", f"{padded / power:.2f}, {power / 1024 / 32 * 1e9:.1f} ns a line")


def calls():
    """Microseconds of a call for one row of 512 columns, and what each kind of argument costs."""
    plain, offset = posenc.Encoding(512), posenc.Encoding(512, position_offset=3)
    row, array = range(100, 101), np.array([100])
    out = np.empty((1, 512), np.float32)
    cases = {
        "plain": partial(plain.encode, row),
        "out": partial(plain.encode, row, out=out),
        "posenc.encode": partial(posenc.encode, row, 512),
        "threads=1": partial(plain.encode, row, threads=1),
        "dtype=np.float32": partial(plain.encode, row, dtype=np.float32),
        "bfloat16": partial(plain.encode, row, dtype="bfloat16"),
        "position_offset": partial(offset.encode, row),
        "array": partial(plain.encode, array),
        "add_to": partial(plain.add_to, np.ones((1, 512), np.float32), row),
    }
    with suppress(ImportError):
        import torch

        from posenc import torch as posenc_torch

        x = torch.ones(1, 1, 512)
        cases["posenc.torch.add_to"] = partial(posenc_torch.add_to, x)
        cases["posenc.torch.PositionalEncoding"] = partial(posenc_torch.PositionalEncoding(512).forward, x)
    for name, seconds in zip(cases, medians(list(cases.values()), number=1000), strict=True):
        say(f"one row: {name}", f"{seconds * 1e6:.2f} us")


def arrays():
    """32 x arange(512), d_model 768: as an array, as ranges, and taken from a table."""
    positions = np.tile(np.arange(512), (32, 1))
    encoding = posenc.Encoding(768)
    out, table = np.empty((32, 512, 768), np.float32), posenc.encode(512, 768)

    def ranges(threads):
        for part in out:
            encoding.encode(512, out=part, threads=threads)

    for threads in (1, 2):
        given, parts, taken = medians(
            [partial(encoding.encode, positions, out=out, threads=threads), partial(ranges, threads),
             partial(np.take, table, positions, axis=0, mode="clip", out=out)])
        say(f"32 x arange(512) x 768, {threads} threads, against ranges; np.take", f"{parts / given:.2f}; {taken / given:.2f}")


def adding():
    import torch

    for shape in ((32, 2048, 512), (32, 512, 768)):
        x, table = torch.ones(shape), torch.from_numpy(posenc.encode(*shape[1:]))
        array, encoding = x.numpy(), posenc.Encoding(shape[-1])
        for threads in (1, 2):
            torch.set_num_threads(threads)
            theirs, ours = medians([partial(x.add_, table), partial(encoding.add_to, array, threads=threads)])
            say(f"add_to {shape}, {threads} threads, against torch's add_", f"{theirs / ours:.2f}, {ours * 1e3:.1f} ms")


MEASUREMENTS = {f.__name__: f for f in (tables, widths, isas, fresh, small, calls, arrays, adding)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(MEASUREMENTS))
    names = parser.parse_args().names or MEASUREMENTS
    print(f"posenc {posenc.__version__}, {_kernel.instruction_set()}, NumPy {np.__version__}, Python {sys.version.split()[0]}")
    for name in names:
        MEASUREMENTS[name]()


if __name__ == "__main__":
    main()
