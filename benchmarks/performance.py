"""Measure the calls in rivals.py: ``python benchmarks/performance.py [CASE ...]``, where a CASE may be the
start of a name.

Each call runs in five processes, with 1, 2, 4 ... threads, up to the number of processors or 16; posenc also
with its default, and for tables with AVX2, too.  Writes the quartiles of the seconds per call, and the largest
difference of each result from that of posenc, to docs/data/performance.json, and updates the tables.  Requires
Linux, torch, numba, transformers and diffusers.

"new" at the end: the memory of each array comes from the system, as in the first call in a process.
Elsewhere, freed memory is used again, also by temporary arrays.  "reused": the output was written before.
"""

import ctypes
import json
import os
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numba
import numpy as np
import pages
import rivals
import torch
from common import in_processes, pause, recorded, samples

import posenc
from posenc import torch as posenc_torch
from posenc._core import kernel

THREADS = sorted({1, 2, 4, 8, 16, os.cpu_count()} & {*range(1, min(16, os.cpu_count()) + 1)})


def allocate_from(system):
    """Let the C library get the memory of every large array from the system; or keep all freed memory."""
    mmap_max, mmap_threshold, trim_threshold, set_option = -4, -3, -1, ctypes.CDLL(None).mallopt
    set_option(mmap_max, 1 << 16 if system else 0)
    set_option(mmap_threshold, 1 << 17)
    set_option(trim_threshold, 1 << 26 if system else -1)


NEW = {"before": pause, "cold": True, "rounds": 10}         # for "new" memory, where times differ most


def measured(name):
    """Return {name of a call: {"error": largest difference from posenc, number of threads: seconds}}."""
    options = NEW if name.endswith("new") else {"before": pause}
    case, result = rivals.CASES[name], {}
    for threads in THREADS:
        torch.set_num_threads(threads)
        numba.set_num_threads(threads)
        torch.compiler.reset()          # compiled code has a fixed number of threads
        with ThreadPoolExecutor(threads) as pool:
            restore, calls = case(threads, pool)
            ours = calls["posenc"]
            calls["posenc"] = partial(ours, threads=threads)
            if threads == THREADS[-1]:
                calls["posenc, default"] = ours
            exact = None
            for each, call in calls.items():
                restore()
                values = call()
                if values is not None:
                    limit = 2**-22 if values.itemsize > 2 else 2**-7
                    values = np.asarray(values.double() if torch.is_tensor(values) else values,
                                        np.float64).reshape(-1)
                    exact = values.copy() if exact is None else exact
                    error = abs(values - exact).max()
                    assert each.startswith("pasted") or error <= limit * abs(exact).max(), (name, each, error)
                    result.setdefault(each, {})["error"] = float(f"{error:.1e}")
            # again, next to the default, which may also be one thread; the others take torch's number of threads
            if threads > 1 and isinstance(ours, partial):
                calls["one thread"] = partial(ours, threads=1)
            for each, values in samples(calls, **options).items():
                name, key = ("posenc", "1") if each == "one thread" else (each, str(threads))
                times = result.setdefault(name, {})
                times[key] = times.get(key, []) + values
    return result


def results(memory, **options):
    """Measure new arrays, with one thread."""
    return samples({
        f"`encoding.encode(8192, threads=1)`, {memory}": partial(posenc.Encoding(512).encode, 8192, threads=1),
        f"`numpy.full((8192, 512), 1, numpy.float32)`, {memory}": partial(np.full, (8192, 512), 1, np.float32),
    }, **options)


def one_row():
    """Measure one row of 512 columns, encodings, and many conventions."""
    plain, row, x = posenc.Encoding(512), range(100, 101), torch.ones(1, 1, 512)
    frequencies, octaves = plain.frequencies.copy(), 2.0 ** np.arange(10)
    bases = [100.0 * (i + 1) for i in range(20)]
    return samples({
        "`encoding.encode(range(100, 101))`": partial(plain.encode, row),
        "`posenc.encode(range(100, 101), 512)`": partial(posenc.encode, row, 512),
        "`posenc.encode(range(100, 101), 512, frequencies=array)`": partial(
            posenc.encode, row, 512, frequencies=frequencies),
        "`posenc.points([[0.5, 1, 2]], 60, frequencies=array)`": partial(
            posenc.points, [[0.5, 1, 2]], 60, frequencies=octaves),
        "`posenc.torch.PositionalEncoding.forward(x)`": partial(
            posenc_torch.PositionalEncoding(512).forward, x),
        "`posenc.Encoding(512)`": partial(posenc.Encoding, 512),
        "16 rows in each of 20 conventions, as keywords": lambda: [posenc.encode(16, 512, base=base)
                                                                   for base in bases],
    })


def tables():
    """Measure tables of posenc in reused memory, with its default number of threads."""
    allocate_from(system=False)
    return {name: samples({name: case(1, None)[1]["posenc"]}, before=pause)[name]
            for name, case in rivals.CASES.items() if name.endswith("reused")}


def all_samples(names):
    """Measure cases, new arrays and single rows in this process."""
    allocate_from(system=True)
    cases, rows = {}, results("new memory", **NEW)
    for name in sorted(names, key=lambda name: not name.endswith("new")):
        start = time.perf_counter()
        if not name.endswith("new"):
            allocate_from(system=False)
        cases[name] = measured(name)
        print(f"{name} ({time.perf_counter() - start:.0f} s)", file=sys.stderr, flush=True)
    allocate_from(system=False)
    return {**cases, "one row": rows | results("freed before") | one_row()}


def main(names):
    chosen = [case for case in rivals.CASES if not names or case.startswith(tuple(names))]
    known = pages.load("performance") if names and "performance.json" not in pages.stale() else {}
    with recorded("performance") as document:
        known |= in_processes(__file__, *chosen)
        for name in chosen:
            print(f"{name}:", *(
                f"  {key:40} error {values.get('error', '-'):8} "
                + "  ".join(f"{values[t][1] * 1e3:9.4g} ms" for t in map(str, THREADS) if t in values)
                for key, values in known[name].items()), sep="\n", flush=True)
        if not names:
            known["instruction sets"] = {
                name: in_processes(__file__, "tables", POSENC_ISA=name) for name in (kernel.instruction_set(), "avx2")}
        document.update({name: known[name] for name in [*rivals.CASES, "one row", "instruction sets"] if name in known})


if __name__ == "__main__":
    if sys.argv[1:2] == ["--samples"]:
        print(json.dumps(tables() if sys.argv[2:] == ["tables"] else all_samples(sys.argv[2:])))
    else:
        main(sys.argv[1:])
