"""Code shared by the benchmarks: timing of alternating cases, the measured system, and the documents in docs/data."""

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

DATA = Path(__file__).parent.parent / "docs" / "data"
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
    """Return the median seconds per call, as a dict like `cases`, with four digits."""
    seconds = map(statistics.median, times_of(list(cases.values()), **options))
    return {name: float(f"{value:.4g}") for name, value in zip(cases, seconds, strict=True)}


def pause(case):
    """Sleep until the threads of the previous case have stopped spinning; those of onnxruntime spin for about 50 ms."""
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
    return {"posenc": posenc.__version__, "NumPy": np.__version__, **installed, "Python": platform.python_version()}


def save(name, document):
    """Write a document to docs/data."""
    (DATA / f"{name}.json").write_text(json.dumps(document) + "\n", encoding="utf-8")
