"""Compare one and two threads after pauses, on an idle system and beside busy processes.

A program does something else between its calls, so each call is measured after a pause.  A line shows the median and the
slowest time in milliseconds with one and with two threads, and the ratio of the medians.  All is measured again with
OMP_PROC_BIND=spread, with which each thread stays on a processor of its own.

Writes docs/data/threads.json and updates the table.  ``--busy 1`` measures only beside one busy process, and keeps the rest.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial

import numpy as np
from common import save, times_of

import pages
import posenc

PAUSES = [0, 0.003, 0.01, 0.05]         # seconds
BUSY = [0, 1, 2]                        # other processes
BINDINGS = {"not bound": {}, "bound": {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}}
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
    """Return {call: {pause in ms: [[median, slowest] in seconds with one thread, and with two]}}."""
    result = {}
    for name, call in calls().items():
        for pause in PAUSES:
            cases = [partial(call, threads=threads) for threads in (1, 2)]
            times = times_of(cases, rounds, before=lambda case, pause=pause: time.sleep(pause))
            one, two = pair = [[statistics.median(each), max(each)] for each in times]
            cells = [f"{number} {1e3 * median:7.3f} ({1e3 * slowest:6.2f})"
                     for number, (median, slowest) in zip(("one", "two"), pair, strict=True)]
            print(f"{name:24} {pause * 1e3:3.0f} ms   {'  '.join(cells)}   {one[0] / two[0]:.2f}", file=sys.stderr, flush=True)
            result.setdefault(name, {})[f"{pause * 1e3:.0f}"] = [[float(f"{x:.4g}") for x in each] for each in pair]
    return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="calls of each kind")
    parser.add_argument("--busy", type=int, nargs="+", default=BUSY, metavar="N", help="numbers of busy processes")
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(measure(arguments.rounds)))
        return
    document = pages.load("threads") if arguments.busy != BUSY else {}
    for others in arguments.busy:
        for binding, variables in BINDINGS.items():
            print(f"{others} busy processes, {arguments.rounds} calls each, {binding}", flush=True)
            with processes(others):
                done = subprocess.run([sys.executable, __file__, "--child", "--rounds", str(arguments.rounds)],
                                      env=os.environ | variables, check=True, stdout=subprocess.PIPE)
            document[f"{others}, {binding}"] = {"rounds": arguments.rounds, "seconds": json.loads(done.stdout)}
    save("threads", document)
    if len(document) == len(BUSY) * len(BINDINGS):
        pages.update()


if __name__ == "__main__":
    main()
