"""Code shared by the benchmarks: alternating calls in several processes, versions, documents in docs/data."""

import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time
import timeit
from contextlib import contextmanager, suppress
from functools import reduce
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
import pages

import posenc
from posenc._core import kernel

PROCESSES = 5                           # times differ between processes, with the places of arrays in memory
ROUNDS = 5                              # in each process
PAUSE = 0.005                           # seconds
SAMPLE, SLOW = 2e-3, 2e-2               # seconds; calls shorter than SAMPLE are repeated


def times_of(calls, rounds=ROUNDS, before=lambda call: None, cold=False):
    """Return the seconds per call, as a list for each call.

    The calls alternate.  A turn runs `before(call)` once, the call once without timing unless it is slow, and
    then the call as often as SAMPLE allows.  If calls should be `cold`, it runs only `before` and one call.
    """
    first = []
    for call in calls:
        before(call)
        first.append(timeit.repeat(call, number=1, repeat=2)[1])        # the first call may compile
    times = [[] for _ in calls]
    for _ in range(rounds):
        for call, once, seconds in zip(calls, first, times, strict=True):
            before(call)
            if not cold and once < SLOW:
                call()
            number = 1 if cold else max(1, math.ceil(SAMPLE / once))
            seconds.append(timeit.timeit(call, number=number) / number)
    return times


def samples(calls, **options):
    """Return the seconds per call, as a dict like `calls` of lists."""
    return dict(zip(calls, times_of(list(calls.values()), **options), strict=True))


def joined(first, second):
    """Join the lists in nested dicts; of other values, return the largest."""
    if isinstance(first, dict):
        return {key: joined(value, second[key]) for key, value in first.items()}
    return first + second if isinstance(first, list) else max(first, second)


def quartiles(samples):
    """Return nested dicts with the quartiles of each list, with four digits."""
    if isinstance(samples, dict):
        return {key: quartiles(value) for key, value in samples.items()}
    if not isinstance(samples, list):
        return samples
    return [float(f"{value:.4g}") for value in statistics.quantiles(samples, n=4)]


def in_processes(script, *arguments, **environment):
    """Return the quartiles of the samples that a script prints, as JSON, in PROCESSES processes."""
    command = [sys.executable, script, "--samples", *arguments]
    outputs = [subprocess.run(command, check=True, stdout=subprocess.PIPE, env=os.environ | environment).stdout
               for _ in range(PROCESSES)]
    return quartiles(reduce(joined, map(json.loads, outputs)))


def pause(call):
    """Sleep until the threads of the previous call have stopped spinning; onnxruntime's, for about 50 ms."""
    used = math.inf
    while used > PAUSE / 10:
        begin = time.process_time()
        time.sleep(PAUSE)
        used = time.process_time() - begin


def versions():
    """Return the versions of posenc, NumPy, Python and those of the other libraries that are installed."""
    installed = {}
    for package in ("torch", "numba", "transformers", "diffusers"):
        with suppress(PackageNotFoundError):
            installed[package] = version(package).partition("+")[0]
    return {"posenc": posenc.__version__, "NumPy": np.__version__, **installed,
            "Python": platform.python_version()}


def used_by_others():
    """Return the processor seconds that other processes than this one and its children have used."""
    user, nice, system, _idle, _iowait, *interrupts = map(int, Path("/proc/stat").read_text().split()[1:9])
    return sum((user, nice, system, *interrupts)) / os.sysconf("SC_CLK_TCK") - sum(os.times()[:4])     # with ended children


@contextmanager
def recorded(name):
    """Give a dict to fill; write it to docs/data, with the hash of the kernel's sources; update the pages."""
    document, begin, before = {}, time.perf_counter(), used_by_others()
    yield document
    others = (used_by_others() - before) / (time.perf_counter() - begin)
    info = re.search(r"^model name\s*: (.*)", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    system = {"processor": info[1] if info else platform.machine(), "processors": os.cpu_count(),
              "instruction set": kernel.instruction_set(), "used by others": round(others, 2)}
    text = json.dumps({"kernel": pages.kernel_hash(), **document, "system": system,
                       "versions": versions()})
    (pages.DATA / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    pages.update()
