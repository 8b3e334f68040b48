"""Code shared by the benchmarks: timing of alternating cases, arrays with a given alignment, output and the command line."""

import argparse
import math
import sys
import timeit

import numpy as np

import posenc
from posenc import _kernel


def times_of(cases, rounds=15, number=1, most_seconds=math.inf):
    """Return the seconds per call, as a list for each case.

    The cases alternate, with `number` calls in each turn; the first round is a warm-up.  A case ends after `most_seconds`.
    """
    times = [[] for _ in cases]
    for _ in range(rounds + 1):
        for case, seconds in zip(cases, times, strict=True):
            if sum(seconds) < most_seconds:
                seconds.append(timeit.timeit(case, number=number) / number)
    return [seconds[1:] or seconds for seconds in times]


def array_at(shape, dtype, offset):
    """Return an array in resident memory that starts `offset` bytes after the start of a page."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 8192, np.uint8)
    memory.fill(1)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % 4096 + offset)


def report(name, *results):
    print(f"{name:58}", *results, flush=True)


def main(description, *measurements):
    """Run the measurements named on the command line (default: all)."""
    functions = {function.__name__: function for function in measurements}
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(functions))
    names = parser.parse_args().names or functions
    print(f"posenc {posenc.__version__}, {_kernel.instruction_set()}, NumPy {np.__version__}, Python {sys.version.split()[0]}")
    for name in names:
        functions[name]()
