"""Code shared by the benchmarks: timing of alternating cases, arrays with a given alignment, output and the command line."""

import argparse
import json
import math
import platform
import statistics
import time
import timeit
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

import posenc
from posenc._core import kernel

DATA = Path(__file__).parent.parent / "docs" / "data"
PACKAGES = ["torch", "transformers", "onnxruntime"]
PAUSE = 0.01                            # seconds


def times_of(cases, rounds=15, number=1, most_seconds=math.inf, before=lambda case: None):
    """Return the seconds per call, as a list for each case.

    The cases alternate.  A turn calls `before(case)` once and then the case `number` times; the first round is a warm-up.  A
    case has no more turns when those after the warm-up have taken `most_seconds`.
    """
    times = [[] for _ in cases]
    for _ in range(rounds + 1):
        for case, seconds in zip(cases, times, strict=True):
            if sum(seconds[1:]) < most_seconds:
                before(case)
                seconds.append(timeit.timeit(case, number=number) / number)
    return [seconds[1:] or seconds for seconds in times]


def medians(cases, **options):
    """Return the median seconds per call, as a dict like `cases`."""
    return dict(zip(cases, map(statistics.median, times_of(list(cases.values()), **options)), strict=True))


def pause(case):
    """Sleep until the threads of the previous case have stopped spinning; those of onnxruntime spin for about 50 ms."""
    used = math.inf
    while used > PAUSE / 10:
        begin = time.process_time()
        time.sleep(PAUSE)
        used = time.process_time() - begin


def collect(measure):
    """Print the cases that `measure` yields; return them as a dict, with rounded medians."""
    print(measure.__name__)
    result = {}
    for case, seconds in measure():
        result[case] = {key: float(f"{value:.4g}") for key, value in seconds.items()}
        print(f"    {case}:", ", ".join(f"{key} {value * 1e3:.4g} ms" for key, value in seconds.items()), flush=True)
    return result


def array_at(shape, dtype, offset):
    """Return an array that starts `offset` bytes after a page boundary, in memory that was written before."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    memory = np.zeros(size + 8192, np.uint8)
    memory.fill(1)
    return np.ndarray(shape, dtype, memory, -memory.ctypes.data % 4096 + offset)


def report(name, *results):
    print(f"{name:58}", *results, flush=True)


def versions(*packages):
    """Return the versions of posenc, NumPy, Python and those of the given packages that are installed."""
    installed = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package).partition("+")[0]
    return {"posenc": posenc.__version__, "NumPy": np.__version__, **installed, "Python": platform.python_version()}


def chosen(description, functions):
    """Return {name: function} for the functions named on the command line (default: all); print the versions."""
    functions = {function.__name__: function for function in functions}
    parser = argparse.ArgumentParser(description=description.split("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(functions))
    names = parser.parse_args().names or functions
    print(", ".join(f"{name} {version}" for name, version in versions(*PACKAGES).items()), f"({kernel.instruction_set()})")
    return {name: functions[name] for name in names}


def main(description, *measurements):
    """Run the measurements named on the command line (default: all)."""
    for measure in chosen(description, measurements).values():
        measure()


def save(name, document):
    """Write a document to docs/data."""
    (DATA / f"{name}.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
