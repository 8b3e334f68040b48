"""Measure every time in the README and docs/performance.md.  ``python benchmarks/performance.py [NAME ...]``

Without NAMEs, writes the median seconds per call to docs/data/performance.json and updates the tables; with NAMEs, prints
only those measurements.  Requires Linux, torch and a C compiler for roof.c.  The cases on a line of output
alternate.

Fresh memory: before a call, the C library returns its free memory to the system, so that the call has the page faults of the
first call in a process.  Reused memory: the output array was written before.
"""

import ctypes
import os
import platform
import re
import subprocess
import tempfile
import time
from functools import cache, partial
from pathlib import Path

import numpy as np
import rotation
import torch
from common import PACKAGES, array_at, chosen, collect, medians, pause, save, versions

import pages
import posenc
from posenc import torch as posenc_torch
from posenc._cli.bench import recipe, used_by_others
from posenc._core import kernel

WIDTH = 512
ROWS = [512 << k for k in range(8)]
LARGE = 1 << 25                         # values
DTYPES = ["float32", "float64", "float16", "bfloat16"]
MOST_SECONDS = 2.0                      # for a case, after its first call


@cache
def roof():
    """Compile roof.c; return its functions of (address, bytes, threads), which fill memory."""
    path = Path(tempfile.mkdtemp(), "roof.so")
    source = Path(__file__).with_name("roof.c")
    subprocess.run(["cc", "-O2", "-fopenmp", "-shared", "-fPIC", "-o", path, source], check=True)
    library = ctypes.CDLL(path)
    functions = {"memset": library.fill_memset, "non-temporal stores": library.fill_stream}
    for function in functions.values():
        function.argtypes = [ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int]
    return functions


def fill(out, threads, store="memset"):
    roof()[store](out.ctypes.data, out.nbytes, threads)


# ---- measurements: each yields pairs (name, dict of median seconds) -----------------------------------------------------


def release_memory(case):
    pause(case)
    ctypes.CDLL(None).malloc_trim(0)


def warm_up(case):
    pause(case)
    case()


def fresh():
    yield from by_size(True)


def reused():
    yield from by_size(False)


def by_size(fresh):
    for rows in ROWS:
        yield rows, tables(rows, 1, fresh) | tables(rows, 2, fresh)


def tables(rows, threads, fresh):
    """Measure posenc, memset and the usual recipes."""
    torch.set_num_threads(threads)
    out = np.ones((rows, WIDTH), np.float32)
    cases = {
        "posenc": partial(posenc.encode, rows, WIDTH, out=None if fresh else out, threads=threads),
        "memset": lambda: fill(np.empty_like(out) if fresh else out, threads),
        "torch": partial(recipe, torch, torch.from_numpy(out), fresh),
    }
    if threads == 1:
        cases["NumPy"] = partial(recipe, np, out, fresh)
    seconds = medians(cases, most_seconds=MOST_SECONDS, before=release_memory if fresh else warm_up)
    return {f"{name}, {pages.threads(threads)}": value for name, value in seconds.items()}


def adding():
    for shape in ((32, 2048, 512), (32, 512, 768)):
        x, table = torch.ones(shape), torch.from_numpy(posenc.encode(*shape[1:]))
        array, encoding = x.numpy(), posenc.Encoding(shape[-1])
        for threads in (1, 2):
            torch.set_num_threads(threads)
            cases = {"torch": partial(x.add_, table), "posenc": partial(encoding.add_to, array, threads=threads)}
            yield f"{pages.size(shape)}, {pages.threads(threads)}", medians(cases, before=warm_up)


def one_row():
    """Encode one row of 512 columns into a new array, or add it to x, with various arguments."""
    plain, offset = posenc.Encoding(WIDTH), posenc.Encoding(WIDTH, position_offset=3)
    row, x = range(100, 101), torch.ones(1, 1, WIDTH)
    cases = {
        "`encoding.encode(range(100, 101))`": partial(plain.encode, row),
        "`posenc.encode(range(100, 101), 512)`": partial(posenc.encode, row, WIDTH),
        "the first call with `threads=1`": partial(plain.encode, row, threads=1),
        "the first call with `dtype=np.float32`": partial(plain.encode, row, dtype=np.float32),
        'the first call with `dtype="bfloat16"`': partial(plain.encode, row, dtype="bfloat16"),
        "the first call with a `position_offset`": partial(offset.encode, row),
        "the first call with an array of one position": partial(plain.encode, np.array([100])),
        "`posenc.torch.add_to`": partial(posenc_torch.add_to, x),
        "`posenc.torch.PositionalEncoding.forward`": partial(posenc_torch.PositionalEncoding(WIDTH).forward, x),
    }
    for name, seconds in medians(cases, number=1000).items():
        yield name, {"posenc": seconds}


def large():
    """Compare fills of memory with encoding to an aligned array and to one 16 bytes past a cache line (as from np.empty)."""
    before = kernel.instruction_set()
    for dtype, width, isa in [*((d, WIDTH, before) for d in DTYPES), *(("float32", d, before) for d in (100, 300, 510, 768)),
                              ("float32", WIDTH, "baseline")]:
        rows, element = LARGE // width, np.uint16 if dtype == "bfloat16" else dtype
        aligned, unaligned = (array_at((rows, width), element, offset) for offset in (0, 16))
        encoding = posenc.Encoding(width)
        kernel.use_instruction_set(isa)
        for threads in (1, 2):
            cases = {store: partial(fill, aligned, threads, store) for store in roof()}
            for name, out in {"aligned": aligned, "unaligned": unaligned}.items():
                cases[name] = partial(encoding.encode, rows, dtype=dtype, out=out, threads=threads)
            yield f"{dtype}, {pages.size((rows, width))}, {isa}, {pages.threads(threads)}", medians(cases)
    kernel.use_instruction_set(before)


def small():
    encoding = posenc.Encoding(WIDTH)
    table = np.ones((512, WIDTH), np.float32)
    out = np.empty_like(table)
    encode = partial(encoding.encode, threads=1)
    cases = {f"from position {p:,}": partial(encode, range(p, p + 512), out=out) for p in (0, 1000)}
    yield "512 x 512", medians(cases | {"np.copyto": partial(np.copyto, out, table)}, number=50)
    yield "64 x 512", medians({"from position 0": partial(encode, 64, out=out[:64])}, number=200)
    strided = {f"rows {4 * d:,} bytes apart": array_at((1024, d), np.float32, 0)[:, :512] for d in (512, 528)}
    yield "1,024 x 512", medians({name: partial(encode, 1024, out=rows) for name, rows in strided.items()}, number=20)


def arrays():
    """Encode 32 x arange(512) with d_model 768, as an array and as ranges; or copy the rows from a table."""
    positions = np.tile(np.arange(512), (32, 1))
    encoding = posenc.Encoding(768)
    out, table = np.empty((32, 512, 768), np.float32), posenc.encode(512, 768)

    def ranges(threads):
        for rows in out:
            encoding.encode(512, out=rows, threads=threads)

    for threads in (1, 2):
        cases = {"an array": partial(encoding.encode, positions, out=out, threads=threads), "ranges": partial(ranges, threads),
                 "np.take": partial(np.take, table, positions, axis=0, mode="clip", out=out)}
        yield pages.threads(threads), medians(cases)


class UsedByOthers:
    """The average number of processors that other processes used between creation and the last update."""

    def __init__(self):
        self.begin, self.seconds = time.perf_counter(), used_by_others()
        self.processors = 0.0

    def update(self):
        self.processors = (used_by_others() - self.seconds) / (time.perf_counter() - self.begin)


def processor():
    """Return the name of the processor."""
    info = Path("/proc/cpuinfo").read_text()
    name = re.search(r"^model name\s*: (.*)", info, re.MULTILINE)
    return name[1] if name else platform.machine()


def main(*functions):
    measurements = chosen(__doc__, functions)
    others, document = UsedByOthers(), {}
    for name, measure in measurements.items():
        document[name] = collect(measure)
        others.update()
    print(f"other processes used {others.processors:.2f} processors")
    if len(measurements) == len(functions):
        system = {"processor": processor(), "processors": os.cpu_count(), "instruction set": kernel.instruction_set(),
                  "used by others": round(others.processors, 2)}
        save("performance", {"system": system, "versions": versions(*PACKAGES), **document})
        pages.update()


if __name__ == "__main__":
    main(fresh, reused, adding, one_row, large, small, arrays, rotation.prefill, rotation.transposed, rotation.decode)
