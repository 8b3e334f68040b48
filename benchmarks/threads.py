"""Compare one and two threads after pauses: with and without the placement of threads, and with bound threads.

A program does something else between its calls, so each call is measured after a pause.  A line shows the median and the
slowest time in milliseconds with one and with two threads, and the ratio of the medians.

``python benchmarks/threads.py [SETTING ...]`` writes docs/data/threads.json and updates the table.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from functools import partial

import numpy as np
from common import save, times_of

import pages
import posenc

PAUSES = [0, 0.003, 0.01, 0.05]         # seconds
SETTINGS = {"placed": {}, "not placed": {"POSENC_NO_PLACEMENT": "1"},
            "bound": {"OMP_PROC_BIND": "spread", "OMP_PLACES": "cores"}}
ROUNDS = 40


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


def measure():
    """Return {call: {pause in ms: [[median, slowest] in seconds with one thread, and with two]}}."""
    result = {}
    for name, call in calls().items():
        for pause in PAUSES:
            cases = [partial(call, threads=threads) for threads in (1, 2)]
            times = times_of(cases, ROUNDS, before=lambda case, pause=pause: time.sleep(pause))
            one, two = pair = [[statistics.median(seconds), max(seconds)] for seconds in times]
            cells = [f"{number} {1e3 * median:7.3f} ({1e3 * slowest:6.2f})"
                     for number, (median, slowest) in zip(("one", "two"), pair, strict=True)]
            print(f"{name:24} {pause * 1e3:3.0f} ms   {'  '.join(cells)}   {one[0] / two[0]:.2f}", file=sys.stderr, flush=True)
            result.setdefault(name, {})[f"{pause * 1e3:.0f}"] = [[float(f"{x:.4g}") for x in row] for row in pair]
    return result


def main(names):
    document = pages.load("threads")
    for name in names or SETTINGS:
        print(name, flush=True)
        done = subprocess.run([sys.executable, __file__, "--measure"], env=os.environ | SETTINGS[name], check=True,
                              stdout=subprocess.PIPE)
        document[name] = json.loads(done.stdout)
    save("threads", {name: document[name] for name in SETTINGS})
    pages.update()


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        print(json.dumps(measure()))
    else:
        main(sys.argv[1:])
