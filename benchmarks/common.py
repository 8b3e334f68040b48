"""Code shared by the benchmarks: timing of alternating calls, versions, and the documents in docs/data."""

import json
import math
import platform
import statistics
import time
import timeit
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version

import numpy as np
import pages

import posenc

ROUNDS = 15
PAUSE = 0.005                           # seconds
SAMPLE, SLOW = 2e-3, 2e-2               # seconds; calls shorter than SAMPLE are repeated


def times_of(calls, rounds=ROUNDS, before=lambda call: None, cold=False):
    """Return the seconds per call, as a list for each call.

    The calls alternate.  A turn runs `before(call)` once, the call once without timing unless it is slow, and
    then the call as often as SAMPLE allows.  If calls should be `cold`, it runs only `before` and one call.
    """
    first = [timeit.repeat(call, number=1, repeat=2)[1] for call in calls]      # the first call may compile
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, once, seconds in zip(calls, first, times, strict=True):
            before(call)
            if not cold and once < SLOW:
                call()
            number = 1 if cold else max(1, math.ceil(SAMPLE / once))
            seconds.append(timeit.timeit(call, number=number) / number)
    return times


def quartiles(calls, **options):
    """Return the quartiles of the seconds per call, as a dict like `calls`, with four digits."""
    times = zip(calls, times_of(list(calls.values()), **options), strict=True)
    return {name: [float(f"{value:.4g}") for value in statistics.quantiles(seconds, n=4)] for name,
            seconds in times}


def pause(call):
    """Sleep until the threads of the previous call have stopped spinning; onnxruntime's, for about 50 ms."""
    used = math.inf
    while used > PAUSE / 10:
        begin = time.process_time()
        time.sleep(PAUSE)
        used = time.process_time() - begin


def versions(*packages):
    """Return the versions of posenc, NumPy, Python and those of the given packages that are installed."""
    installed = {}
    for package in packages:
        with suppress(PackageNotFoundError):
            installed[package] = version(package).partition("+")[0]
    return {"posenc": posenc.__version__, "NumPy": np.__version__, **installed,
            "Python": platform.python_version()}


def save(name, document):
    """Write a document to docs/data, with the hash of the kernel that it was measured with."""
    text = json.dumps({"kernel": pages.kernel_hash(), **document})
    (pages.DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")
