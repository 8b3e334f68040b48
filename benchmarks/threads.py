"""Compare one and two threads after pauses, on an idle system and beside busy processes.

A program does something else between its calls, so each call is measured after a pause.  A line shows the median and the
slowest time in milliseconds with one thread, two threads and the default number, and the speed relative to one thread.  All is
measured again with OMP_PROC_BIND=spread, with which each thread stays on a processor of its own.
"""

import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
from common import times_of

import posenc

PAUSES = [0, 0.003, 0.01, 0.05]         # seconds
BUSY = [0, 1, 2]                        # other processes
BINDINGS = [{}, {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}]
THREADS = {"one": 1, "two": 2, "default": None}
ROUNDS = 60


def calls():
    """Return a function with the parameter `threads` for each call."""
    encoding, rotary = posenc.Encoding(512), posenc.Rotary(128)
    large, small = np.empty((65_536, 512), np.float32), np.empty((8_192, 512), np.float32)
    batch, heads = np.ones((32, 2_048, 512), np.float32), np.ones((32, 4_096, 128), np.float32)
    return {
        "encode 65,536 x 512": partial(encoding.encode, len(large), out=large),
        "encode 8,192 x 512": partial(encoding.encode, len(small), out=small),
        "encode 1,024 x 512": partial(encoding.encode, 1_024, out=small[:1_024]),
        "add_to 32 x 2,048 x 512": partial(encoding.add_to, batch),
        "rotate 32 x 4,096 x 128": partial(rotary.rotate, heads),
    }


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


def measure(rounds):
    for name, call in calls().items():
        for pause in PAUSES:
            cases = [partial(call, threads=threads) for threads in THREADS.values()]
            times = times_of(cases, rounds, before=lambda case, pause=pause: time.sleep(pause))
            medians = [statistics.median(each) for each in times]
            cells = [
                f"{threads} {1e3 * median:7.3f} ({1e3 * max(each):6.2f})"
                for threads, median, each in zip(THREADS, medians, times, strict=True)
            ]
            two, default = (medians[0] / each for each in medians[1:])
            print(f"{name:24} {pause * 1e3:3.0f} ms   {'  '.join(cells)}   two {two:.2f}, default {default:.2f}", flush=True)


def main(rounds=ROUNDS):
    print(posenc.show_runtime())
    for others in BUSY:
        for binding in BINDINGS:
            print(f"{others} busy processes, {rounds} calls each, {binding or 'threads not bound'}", flush=True)
            with processes(others):
                subprocess.run([sys.executable, __file__, "measure", str(rounds)], env=os.environ | binding, check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        measure(int(sys.argv[2]))
    else:
        main(*map(int, sys.argv[1:]))
