"""Times of tables, small calls, position arrays and add_to.  ``python benchmarks/calls.py [NAME ...]``

A ratio compares two medians; above 1, posenc is faster.  The cases of a line run alternately.  The roof line is the faster of
memset and non-temporal stores to the same buffer.  docs/performance.md shows the results of one run.
"""

import ctypes
import statistics
import subprocess
import tempfile
from contextlib import suppress
from functools import partial
from pathlib import Path

import numpy as np
from common import array_at, main, report, times_of

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


def medians(cases, number=1):
    """Return the median seconds per call for each case."""
    return [statistics.median(seconds) for seconds in times_of(cases, number=number)]


# ---- measurements -------------------------------------------------------------------------------------------------------


def tables(dtypes=("float32", "float64", "float16", "bfloat16"), widths=(512,)):
    """Compare with the roof line: an aligned buffer, and one 16 bytes past a cache line, like large arrays of np.empty."""
    roof = roof_library()
    for dtype in dtypes:
        for d_model in widths:
            n = LARGE // d_model
            element = np.uint16 if dtype == "bfloat16" else dtype
            aligned, unaligned = array_at((n, d_model), element, 0), array_at((n, d_model), element, 16)
            encoding = posenc.Encoding(d_model)
            for threads in (1, 2):
                stores = (roof.fill_memset, roof.fill_stream)
                fills = [partial(fill, aligned.ctypes.data, aligned.nbytes, threads) for fill in stores]
                calls = [partial(encoding.encode, n, dtype=dtype, out=out, threads=threads) for out in (aligned, unaligned)]
                *fill, at_line, off_line = medians([*fills, *calls])
                name = f"{_kernel.instruction_set()} {dtype} {n} x {d_model}, {threads} threads"
                ratios = f"{min(fill) / at_line:.2f} aligned, {min(fill) / off_line:.2f} np.empty"
                report(name, f"of the roof line: {ratios}; {at_line / off_line:.2f}")


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
    """Times of tables in fresh memory, including the page faults."""
    for rows in (512, 4096, 65536):
        shape = (rows, 512)
        full, table = medians([partial(np.full, shape, 1, np.float32), partial(posenc.encode, *shape)])
        report(f"encode{shape} into fresh memory, against np.full", f"{full / table:.2f}, {table * 1e3:.2f} ms")


def small():
    encoding = posenc.Encoding(512)
    table = np.ones((512, 512), np.float32)
    out = np.empty_like(table)
    calls = [partial(encoding.encode, range(start, start + 512), out=out, threads=1) for start in (0, 1000)]
    zero, thousand, copy = medians([*calls, partial(np.copyto, out, table)], number=50)
    ratios = f"{thousand / zero:.2f}; {copy / zero:.2f}, {zero * 1e6:.1f} us"
    report("512 x 512 from 0, against from 1000; against np.copyto", ratios)
    (seconds,) = medians([partial(encoding.encode, 64, out=np.empty((64, 512), np.float32), threads=1)], number=200)
    report("64 x 512 from 0", f"{seconds * 1e6:.1f} us")
    strided = [array_at((1024, 528), np.float32, 0)[:, :512], array_at((1024, 512), np.float32, 0)]
    padded, power = medians([partial(encoding.encode, 1024, out=out, threads=1) for out in strided], number=20)
    ratio = f"{padded / power:.2f}, {power / 1024 / 32 * 1e9:.1f} ns per cache line"
    report("1,024 x 512, row stride of 2,112 bytes, against 2,048", ratio)


def calls():
    """Microseconds per call for one row of 512 columns, with various arguments."""
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
        report(f"one row: {name}", f"{seconds * 1e6:.2f} us")


def arrays():
    """Encode 32 x arange(512) with d_model 768 as an array and as ranges, or take the rows from a table."""
    positions = np.tile(np.arange(512), (32, 1))
    encoding = posenc.Encoding(768)
    out, table = np.empty((32, 512, 768), np.float32), posenc.encode(512, 768)

    def ranges(threads):
        for table in out:
            encoding.encode(512, out=table, threads=threads)

    for threads in (1, 2):
        array, separate, take = medians(
            [partial(encoding.encode, positions, out=out, threads=threads), partial(ranges, threads),
             partial(np.take, table, positions, axis=0, mode="clip", out=out)])
        ratios = f"{separate / array:.2f}; {take / array:.2f}"
        report(f"32 x arange(512) x 768, {threads} threads, against ranges; np.take", ratios)


def adding():
    import torch

    for shape in ((32, 2048, 512), (32, 512, 768)):
        x, table = torch.ones(shape), torch.from_numpy(posenc.encode(*shape[1:]))
        array, encoding = x.numpy(), posenc.Encoding(shape[-1])
        for threads in (1, 2):
            torch.set_num_threads(threads)
            add_, add_to = medians([partial(x.add_, table), partial(encoding.add_to, array, threads=threads)])
            report(f"add_to {shape}, {threads} threads, against torch's add_", f"{add_ / add_to:.2f}, {add_to * 1e3:.1f} ms")


if __name__ == "__main__":
    main(__doc__, tables, widths, isas, fresh, small, calls, arrays, adding)
