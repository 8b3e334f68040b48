"""Measure the times in the README and docs/performance.md in about two minutes: ``python benchmarks/performance.py [NAME ...]``

The fastest code that we could write, and the recipes as people paste them, are in rivals.py; each is measured with one and with
two threads.  Writes the median seconds per call to docs/data/performance.json and updates the tables; with NAMEs, only those
measurements.  Requires Linux, torch, transformers, onnx and onnxruntime.

Fresh memory: before a call, the C library returns its free memory to the system, so that the call has the page faults of the
first call in a process.  Reused memory: the output array was written before.
"""

import argparse
import ctypes
import os
import platform
import re
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import ml_dtypes
import numpy as np
import rivals
import torch
from common import medians, pause, save, versions

import pages
import posenc
from posenc import torch as posenc_torch
from posenc._cli.bench import memset
from posenc._core import kernel

WIDTH, ROWS = 512, {512: 30, 4096: 6, 65_536: 1}           # rows, and how often a turn calls a case
HEADS, HEAD_DIM, LENGTH, BASE = 32, 128, 4096, 500_000.0
QUICK = {"most_seconds": 0.3, "rounds": 5}      # for a case, after its first call
POOL = ThreadPoolExecutor(2)


def release_memory(case):
    pause(case)
    ctypes.CDLL(None).malloc_trim(0)


def warm_up(case):
    pause(case)
    case()


def with_threads(cases, threads):
    return {f"{name}, {pages.threads(threads)}": case for name, case in cases.items()}


def used_by_others():
    """Return the processor seconds used by other processes since the system started."""
    user, nice, system, _idle, _iowait, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:9])
    return sum((user, nice, system, *interrupts)) / os.sysconf("SC_CLK_TCK") - time.process_time()


# ---- measurements: each yields pairs (name, dict of median seconds) -----------------------------------------------------


def tables():
    """Fill a float32 table.  By default, posenc uses one thread for the smallest table, and two for the others."""
    for n, number in ROWS.items():
        exact = posenc.encode(n, WIDTH)
        for memory in ("fresh", "reused"):
            out, seconds, fresh = np.ones((n, WIDTH), np.float32), {}, memory == "fresh"
            given, new = (None, partial(np.empty_like, out)) if fresh else (out, lambda out=out: out)
            for threads in (1, 2):
                cases = {"posenc": partial(posenc.encode, n, WIDTH, out=given, threads=threads),
                         "memset": partial(memset, out, fresh, threads, POOL)}
                for name, fill in rivals.tables(n, WIDTH, threads, POOL, only_fast=fresh).items():
                    cases[name] = lambda fill=fill, new=new: fill(new())
                    fill(out)
                    assert abs(out - exact).max() < 1e-2, name
                cases["torch recipe"] = partial(rivals.torch_recipe, n, WIDTH)
                cases = with_threads(cases, threads)
                if threads == 1:
                    cases["NumPy recipe, 1 thread"] = partial(rivals.numpy_recipe, n, WIDTH)
                else:                   # posenc uses at most as many threads as torch
                    cases["posenc, default"] = partial(posenc.encode, n, WIDTH, out=given)
                options = {"before": release_memory} if fresh else {"before": warm_up, "number": number}
                seconds |= medians(cases, **options, **QUICK)
            yield f"{n}, {memory}", seconds


def adding():
    """Add encodings to a float32 batch; the rivals add a table that was computed before."""
    for shape in ((32, 2048, 512), (32, 512, 768)):
        array, encoding, seconds = np.ones(shape, np.float32), posenc.Encoding(shape[-1]), {}
        for threads in (1, 2):
            cases = {"posenc": partial(encoding.add_to, array, threads=threads)}
            for name, add in rivals.additions(shape, threads, POOL).items():
                cases[name] = partial(add, array)
            seconds |= medians(with_threads(cases, threads), before=warm_up, **QUICK)
        yield pages.size(shape), seconds


def rotation():
    """Rotate 4,096 positions of 32 heads, stored by head or, as in most models, by position; then one position of batches."""
    for dtype in (torch.float32, torch.bfloat16):
        for name, shape in {"by head": (1, HEADS, LENGTH, HEAD_DIM), "by position": (1, LENGTH, HEADS, HEAD_DIM)}.items():
            x = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
            x = x if name == "by head" else x.swapaxes(1, 2)
            yield f"{str(dtype)[6:]}, 4,096 positions, {name}", rotated(x, torch.arange(LENGTH)[None])
        for batch in (1, 64):
            x = torch.randn(batch, HEADS, 1, HEAD_DIM).to(dtype)
            positions = torch.randint(0, 100_000, (batch, 1), generator=torch.Generator().manual_seed(1))
            yield f"{str(dtype)[6:]}, 1 position, batch {batch}", rotated(x, positions, number=50)


def rotated(x, positions, **options):
    array = x.numpy() if x.dtype == torch.float32 else x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    rotary, seconds = posenc.Rotary(HEAD_DIM, base=BASE), {}
    at = rotary.at(positions.numpy()[:, None])
    for threads in (1, 2):
        cases = {"posenc": partial(rotary.rotate, array, positions.numpy()[:, None], threads=threads),
                 "posenc, at": partial(at.rotate, array, threads=threads)} | rivals.rotations(x, positions, rotary, threads)
        seconds |= medians(with_threads(cases, threads), before=warm_up, **QUICK, **options)
    return seconds


def one_row():
    """Encode one row of 512 columns into a new array, or add it to x."""
    plain, row, x = posenc.Encoding(WIDTH), range(100, 101), torch.ones(1, 1, WIDTH)
    cases = {
        "`encoding.encode(range(100, 101))`": partial(plain.encode, row),
        "`posenc.encode(range(100, 101), 512)`": partial(posenc.encode, row, WIDTH),
        "`encoding.add_to(x, range(100, 101))`": partial(plain.add_to, x.numpy(), row),
        "`posenc.torch.PositionalEncoding.forward`": partial(posenc_torch.PositionalEncoding(WIDTH).forward, x),
    }
    yield "one row", medians(cases, number=1000)


def system(others):
    info = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {"processor": info[1] if info else platform.machine(), "processors": os.cpu_count(),
            "instruction set": kernel.instruction_set(), "used by others": round(others, 2)}


def main(*functions):
    functions = {function.__name__: function for function in functions}
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(functions))
    names = parser.parse_args().names
    document = {name: cases for name, cases in pages.load("performance").items() if names and name in functions}
    begin, before = time.perf_counter(), used_by_others()
    for name in names or functions:
        document[name] = {}
        for case, seconds in functions[name]():
            document[name][case] = seconds
            print(f"{case}:", ", ".join(f"{key} {value * 1e3:.4g} ms" for key, value in seconds.items()), flush=True)
    others = (used_by_others() - before) / (time.perf_counter() - begin)
    document |= {"system": system(others), "versions": versions("torch", "transformers", "onnxruntime")}
    save("performance", document)
    pages.update()


if __name__ == "__main__":
    main(tables, adding, rotation, one_row)
