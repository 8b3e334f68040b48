"""The command ``posenc bench``."""

from __future__ import annotations

import argparse
import ctypes
import importlib.util
import math
import statistics
import time
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

import posenc
from posenc._cli import options

CASES: list[tuple[tuple[int, ...], str]] = [((32_768, 512), "fresh"), ((32_768, 512), "reused"), ((4_096, 512), "reused"),
                                            ((512, 512), "reused"), ((16, 2_048, 512), "reused")]      # shape, memory
ROUNDS = 7
SAMPLE_SECONDS = 2e-3                   # shorter calls are repeated for about this many seconds
PAUSE_SECONDS = 1e-2
ROWS = 128                              # rows of a block of `addition`
SMALL = 524_288                         # values; smaller tables use one thread by default
HEADINGS = "call   shape           memory threads     ms paused share  torch   NumPy"
NOTES = f"""paused: ms of a call after a pause of {PAUSE_SECONDS * 1e3:g} ms
share: speed relative to memset with the same memory and number of threads
torch, NumPy: speed-up over the fastest float32 code that we could write, with its best number of threads (for add_to, it
adds a table in blocks of rows); this code is not correctly rounded"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=options.positive, metavar="N", help="at most N threads (default: see posenc info)")


def bench(args: argparse.Namespace) -> int:
    """Compare posenc with memset, torch and NumPy on this computer.

    examples:
      posenc bench
      posenc bench --threads 1 --json > figures.json
    """
    runtime = posenc.show_runtime()
    threads = args.threads or runtime["threads"]
    libraries = {name: importlib.import_module(name) for name in ("numpy", "torch") if importlib.util.find_spec(name)}
    with ThreadPoolExecutor(threads) as pool:
        rows = [measure(libraries, pool, shape, memory, threads) for shape, memory in CASES]
    torch = str(libraries["torch"].__version__) if "torch" in libraries else None
    document = runtime | {"torch": torch, "threads": threads, "rows": rows}
    options.report(args, document, in_words(document))
    return options.OK


def angle_addition(library: Any, n: int, d_model: int, first: int = 0) -> Callable[[NDArray[Any]], None]:
    """Return a function that fills a float32 table of n rows by angle addition, with NumPy or torch.

    sin(a) + i cos(a) is i exp(-ia).  A table is therefore one complex product of exponentials for the first row of each block
    and exponentials for the rows of a block.  All exponentials are computed here, once.  The error is below 2e-7.
    """
    rows = math.gcd(n, 64)
    frequencies = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    positions = np.arange(first, first + n, rows), np.arange(rows)
    anchors, offsets = (np.exp(-1j * p[:, None] * frequencies) for p in positions)
    factors = [library.asarray(factor.astype(np.complex64)) for factor in (1j * anchors[:, None], offsets)]

    def fill(out: NDArray[Any]) -> None:
        library.multiply(*factors, out=library.asarray(out.view(np.complex64).reshape(-1, rows, d_model // 2)))

    return fill


def addition(library: Any, n: int, d_model: int) -> Callable[[NDArray[Any]], None]:
    """Return a function that adds a table of n rows to a batch, in blocks whose part of the table stays in the cache."""
    table: Any = posenc.encode(n, d_model).reshape(-1, math.gcd(n, ROWS) * d_model)
    table = table if library is np else library.from_numpy(table)

    def add(x: Any) -> None:
        x = (x if library is np else library.from_numpy(x)).reshape(len(x), *table.shape)
        for i in range(len(table)):
            library.add(x[:, i], table[i], out=x[:, i])

    return add


def memset(out: Any, fresh: bool, threads: int, pool: Any) -> None:
    """Fill memory with ones, because some processors write zeros faster than other values."""
    out = np.empty_like(out) if fresh else out
    address, edges = out.ctypes.data, [out.nbytes * i // threads for i in range(threads + 1)]
    list((pool.map if threads > 1 else map)(lambda a, b: ctypes.memset(address + a, 1, b - a), edges[:-1], edges[1:]))


def rival(library: Any, pool: Any, out: NDArray[Any], fresh: bool, threads: int) -> Callable[[], Any]:
    """Return a call of NumPy or torch that does the same as posenc, with this number of threads."""
    tasks = threads if library is np and len(out) % threads == 0 else 1         # torch divides the work itself
    n = len(out) // tasks
    fills = [angle_addition(library, n, out.shape[1], first) if out.ndim == 2 else addition(library, *out.shape[1:])
             for first in range(0, len(out), n)]
    output = partial(np.empty_like, out) if fresh else lambda: out
    return lambda: list((pool.map if tasks > 1 else map)(lambda fill, rows: fill(rows), fills, np.split(output(), tasks)))


def measure(libraries: dict[str, Any], pool: Any, shape: tuple[int, ...], memory: str, most_threads: int) -> dict[str, Any]:
    """Return the case, and the median seconds that posenc (`add_to` for a batch, else `encode`), memset, torch and NumPy take.

    ``paused`` is the median time of posenc after a pause, during which threads stop spinning and processors become idle.
    torch and NumPy are measured with one thread and with `most_threads`; the shorter time counts.
    """
    call, fresh, encoding = "add_to" if len(shape) > 2 else "encode", memory == "fresh", posenc.Encoding(shape[-1])
    threads = 1 if math.prod(shape) < SMALL else most_threads
    out = np.ones(shape, np.float32)
    ours = partial(encoding.encode, len(out), out=None if fresh else out, threads=threads)
    if call == "add_to":
        ours = partial(encoding.add_to, out, threads=threads)
    medians: dict[str, float] = {}
    for number in sorted({1, most_threads}):
        if "torch" in libraries:
            libraries["torch"].set_num_threads(number)
        calls = {name: rival(library, pool, out, fresh, number) for name, library in libraries.items()}
        if number == threads:
            calls |= {"posenc": ours, "memset": partial(memset, out, fresh, threads, pool)}
        repeats = {name: math.ceil(SAMPLE_SECONDS / timeit.timeit(function, number=1)) for name, function in calls.items()}
        times: dict[str, list[float]] = {name: [] for name in calls}
        for name in ROUNDS * list(calls):       # the calls alternate
            times[name].append(timeit.timeit(calls[name], number=repeats[name]) / repeats[name])
        medians |= {name: min(statistics.median(times[name]), medians.get(name, math.inf)) for name in calls}
    pause = partial(time.sleep, PAUSE_SECONDS)
    medians["paused"] = statistics.median(timeit.repeat(ours, pause, number=1, repeat=ROUNDS))
    return {"call": call, "shape": shape, "memory": memory, "threads": threads, "bytes": out.nbytes, "seconds": medians}


def in_words(document: dict[str, Any]) -> str:
    """Return the measurements as a table with notes."""
    versions = f"NumPy {document['numpy']}, torch {document['torch'] or 'is not installed'}"
    lines = [f"posenc {document['version']} with {document['instruction_set']}, {versions}", HEADINGS]
    for row in document["rows"]:
        seconds, ours = row["seconds"], row["seconds"]["posenc"]
        case = f"{row['call']:7}{' x '.join(map(str, row['shape'])):16}{row['memory']:7}{row['threads']:7}"
        over = (f"{seconds[name] / ours:.1f}x" if name in seconds else "-" for name in ("torch", "numpy"))
        speed = f"{ours * 1e3:7.3g}{seconds['paused'] * 1e3:7.3g}{seconds['memset'] / ours:6.0%}"
        lines.append(case + speed + "{:>7}{:>8}".format(*over))
    return "\n".join([*lines, NOTES])
