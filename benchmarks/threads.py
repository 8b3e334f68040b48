"""Compare one and two threads, on an idle system and beside busy processes.  ``python benchmarks/threads.py [ROUNDS]``

The cases alternate, with a few calls in each turn; the first call of each turn is a warm-up.  A line shows, for one size, the
median and the slowest call in milliseconds, and the speed of two threads and of the default number relative to one thread.
"""

import statistics
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np

import posenc

D_MODEL, CALLS = 512, 5
ROWS = [256, 512, 1024, 4096, 8192, 65536]
BUSY = [0, 1, 2]                # other processes
THREADS = {"one": 1, "two": 2, "default": None}


@contextmanager
def processes(number):
    """Run this number of busy processes in the background."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(number)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def measure(encoding, rows, rounds):
    """Return the milliseconds of each call, as a list for each case."""
    out = np.empty((rows, D_MODEL), np.float32)
    times = {name: [] for name in THREADS}
    for _ in range(rounds):
        for name, threads in THREADS.items():
            for call in range(-1, CALLS):
                begun = time.perf_counter()
                encoding.encode(range(rows, 2 * rows), out=out, threads=threads)
                if call >= 0:
                    times[name].append(1e3 * (time.perf_counter() - begun))
    return times


def report(rows, times):
    medians = {name: statistics.median(each) for name, each in times.items()}
    cells = [f"{name} {medians[name]:8.3f} ({max(each):7.2f})" for name, each in times.items()]
    ratios = [f"{name} {medians['one'] / medians[name]:.2f}" for name in ("two", "default")]
    print(f"{rows:7,} x {D_MODEL}   {'   '.join(cells)}   speed relative to one thread: {', '.join(ratios)}", flush=True)


def main(rounds=12):
    encoding = posenc.Encoding(D_MODEL)
    print(posenc.show_runtime())
    for others in BUSY:
        print(f"{others} busy processes, {rounds * CALLS} calls each: median (slowest) in ms")
        with processes(others):
            for rows in ROWS:
                report(rows, measure(encoding, rows, rounds))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
