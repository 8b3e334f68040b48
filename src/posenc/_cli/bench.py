"""The command ``posenc bench``."""

import argparse
import ctypes
import math
import statistics
import timeit
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

import posenc
from posenc._cli import options

# shape, memory
CASES: list[tuple[tuple[int, ...], str]] = [
    ((32_768, 512), "fresh"), ((32_768, 512), "reused"), ((4_096, 512), "reused"), ((512, 512), "reused"),
    ((16, 2_048, 512), "reused"),
]
ROUNDS = 7
SAMPLE_SECONDS = 2e-3                   # shorter calls are repeated for about this many seconds
SMALL = 1_048_576                       # values; smaller tables use one thread by default
HEADINGS = "call   shape           memory threads     ms   GB/s  share"
NOTE = "share: speed relative to memset with the same memory and number of threads"


def bench(args: argparse.Namespace) -> None:
    """Compare posenc with memset on this computer.

    examples:
      posenc bench
      POSENC_NUM_THREADS=1 posenc bench --json > figures.json
    """
    runtime = posenc.show_runtime()
    threads = runtime["threads"]
    with ThreadPoolExecutor(threads) as pool:
        rows = [measure(pool, shape, memory, threads) for shape, memory in CASES]
    document = runtime | {"rows": rows}
    options.report(args, document, in_words(document))


def memset(out: Any, fresh: bool, threads: int, pool: Any) -> None:
    """Fill memory with ones, because some processors write zeros faster than other values."""
    out = np.empty_like(out) if fresh else out
    edges = [out.ctypes.data + out.nbytes * i // threads for i in range(threads + 1)]
    map_parts = pool.map if threads > 1 else map
    list(map_parts(lambda begin, end: ctypes.memset(begin, 1, end - begin), edges[:-1], edges[1:]))


def measure(pool: Any, shape: tuple[int, ...], memory: str, most_threads: int) -> dict[str, Any]:
    """Return the case, and the median seconds of posenc (`add_to` for a batch, else `encode`) and of memset."""
    encoding, fresh = posenc.Encoding(shape[-1]), memory == "fresh"
    call = "add_to" if len(shape) > 2 else "encode"
    threads, out = 1 if math.prod(shape) < SMALL else most_threads, np.ones(shape, np.float32)
    ours: Any = partial(encoding.add_to, out, threads=threads)
    if call == "encode":
        ours = partial(encoding.encode, len(out), out=None if fresh else out, threads=threads)
    calls = {"posenc": ours, "memset": partial(memset, out, fresh, threads, pool)}
    repeats = {name: math.ceil(SAMPLE_SECONDS / timeit.timeit(run, number=1)) for name, run in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in ROUNDS * list(calls):           # the calls alternate
        times[name].append(timeit.timeit(calls[name], number=repeats[name]) / repeats[name])
    seconds = {name: statistics.median(values) for name, values in times.items()}

    case = {"call": call, "shape": shape, "memory": memory, "threads": threads}
    return case | {"bytes": out.nbytes, "seconds": seconds}


def in_words(document: dict[str, Any]) -> str:
    """Return the measurements as a table with notes."""
    lines = ["posenc {version} with {instruction_set}, NumPy {numpy}".format(**document), HEADINGS]
    for row in document["rows"]:
        seconds = row["seconds"]["posenc"]
        case = f"{row['call']:7}{' x '.join(map(str, row['shape'])):16}{row['memory']:7}{row['threads']:7}"
        rate, share = row["bytes"] / seconds / 1e9, row["seconds"]["memset"] / seconds
        lines.append(f"{case}{seconds * 1e3:7.3g}{rate:7.3g}{share:7.0%}")
    return "\n".join([*lines, NOTE])
