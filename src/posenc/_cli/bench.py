"""``posenc bench``: this machine's figures beside memset, torch and NumPy, in one short run."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import math
import os
import time
import timeit
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import posenc
from posenc._cli.options import OK, Parser, add_command, positive, progress_bar, report

CASES: list[tuple[tuple[int, ...], str, str, bool]] = [      # shape, dtype, memory, whether on one thread
    ((65_536, 512), "float32", "fresh", False),
    ((65_536, 512), "float32", "reused", False),
    ((65_536, 512), "bfloat16", "reused", False),
    ((512, 512), "float32", "reused", True),
    ((32, 2_048, 512), "float32", "reused", False),
]
ROUNDS = 9
SECONDS = 0.5                           # of its calls, after which a rival sits out the remaining rounds
SAMPLE_SECONDS = 2e-3                   # shorter calls are repeated until they take as long
DISTURBED = 0.2                         # processors that other processes took: beyond, there is a warning
NOTES = """\
of memset: speed (bytes written) against memset's, in memory of the same kind; memset and torch have as many threads
over: the usual recipe, float32 in torch, float64 in NumPy, temporaries fresh; over, for add_to: add(x, table, out=x)"""
EXAMPLES = """\
examples:
  posenc bench
  posenc bench --threads 1 --json > figures.json
"""


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "bench", "measure this machine, beside memset, torch and NumPy", EXAMPLES)
    parser.add_argument("--threads", type=positive, metavar="N", help="at most so many threads (default: all allowed)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    with progress_bar(len(CASES), unit=" rows") as progress:
        document = figures(args.threads, progress)
    report(args, document, in_words(document))
    return OK


def recipe(library: Any, pe: Any, fresh: bool) -> None:
    """The usual recipe: its angles are float64 with NumPy, float32 with torch."""
    pe = library.empty_like(pe) if fresh else pe
    n, d_model = pe.shape
    angles = library.arange(n)[:, None] * library.exp(library.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = library.sin(angles)
    pe[:, 1::2] = library.cos(angles)


def memset(out: Any, fresh: bool, threads: int, pool: ThreadPoolExecutor) -> None:
    """Fills with ones: some processors write zeros faster than anything else."""
    out = np.empty_like(out) if fresh else out
    address, edges = out.ctypes.data, [out.nbytes * i // threads for i in range(threads + 1)]
    run: Any = pool.map if threads > 1 else map
    list(run(lambda a, b: ctypes.memset(address + a, 1, b - a), edges[:-1], edges[1:]))


def medians(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Seconds of each call, over rounds in which all run in turn; the first round warms up, where there is a second."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, call in calls.items():
            if sum(times[name]) < SECONDS or name in ("posenc", "memset"):
                once = timeit.timeit(call, number=1)
                number = math.ceil(SAMPLE_SECONDS / once)
                times[name].append(timeit.timeit(call, number=number) / number if number > 1 else once)
    return {name: float(np.median(found[1:] or found)) for name, found in times.items()}


def measure(torch: Any, pool: Any, shape: tuple[int, ...], dtype: str, memory: str, threads: int) -> dict[str, Any]:
    """What a call of posenc and its rivals take: of add_to for a batch, else of encode."""
    batch, fresh, encoding = len(shape) > 2, memory == "fresh", posenc.Encoding(shape[-1])
    encode = partial(encoding.encode, shape[-2], dtype=dtype, threads=threads)
    out = np.ones(shape, encoding.encode(0, dtype=dtype).dtype)
    ours = partial(encoding.add_to, out, threads=threads) if batch else partial(encode, out=None if fresh else out)
    calls: dict[str, Callable[[], object]] = {"posenc": ours, "memset": partial(memset, out, fresh, threads, pool)}
    for name, library in {"torch": torch, "numpy": np}.items():
        if hasattr(library, dtype):     # NumPy has no bfloat16
            x = library.ones(shape, dtype=getattr(library, dtype))
            calls[name] = partial(recipe, library, x, fresh)
            if batch:
                calls[name] = partial(library.add, x, library.asarray(encode()), out=x)
    if torch:
        torch.set_num_threads(threads)
    case = dict(shape=shape, dtype=dtype, memory=memory, threads=threads, bytes=out.nbytes)
    return {"call": "add_to" if batch else "encode", **case, "seconds": medians(calls)}


def taken_by_others() -> float | None:
    """Processor seconds that other processes took since the system's start; None where it does not tell."""
    if not (stat := Path("/proc/stat")).exists():
        return None
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK") - time.process_time()


def figures(wanted: int | None, progress: Callable[[int], object]) -> dict[str, Any]:
    """The JSON document; calls `progress` after each case."""
    runtime, torch, rows = posenc.show_runtime(), None, []
    most = min(wanted or runtime["threads"], os.cpu_count() or 1)
    with suppress(ImportError):
        torch = importlib.import_module("torch")
    begun, before = time.perf_counter(), taken_by_others()
    with ThreadPoolExecutor(most) as pool:
        for shape, dtype, memory, alone in CASES:
            rows.append(measure(torch, pool, shape, dtype, memory, 1 if alone else most))
            progress(1)
    others = None if before is None else max(0.0, (taken_by_others() or 0) - before) / (time.perf_counter() - begun)
    return runtime | dict(torch=torch and str(torch.__version__), threads=most, taken_by_others=others, rows=rows)


def in_words(document: dict[str, Any]) -> str:
    """The document as text."""
    versions = f"NumPy {document['numpy']} (1 thread), torch {document['torch'] or 'is not installed'}"
    head = f"posenc {document['version']} with {document['instruction_set']}, {versions}; medians of up to {ROUNDS} rounds"
    lines = [head, f"{'':57}{'ms':>7}{'GB/s':>7}{'of memset':>11}{'over torch':>12}{'over NumPy':>12}"]
    for row in document["rows"]:
        times, ours = row["seconds"], row["seconds"]["posenc"]
        over = [f"{times[name] / ours:.1f} x" if name in times else "-" for name in ("torch", "numpy")]
        figures = f"{ours * 1e3:7.3g}{row['bytes'] / ours / 1e9:7.1f}{times['memset'] / ours:11.2f}{over[0]:>12}{over[1]:>12}"
        size, threads = " x ".join(map(str, row["shape"])), f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
        lines.append(f"{row['call']} {size} {row['dtype']}, {row['memory']} memory, {threads}".ljust(57) + figures)
    if (others := document["taken_by_others"] or 0) > DISTURBED:
        lines.append(f"warning: other processes took {others:.1f} processors meanwhile: run it again on a quiet machine")
    return "\n".join([*lines, NOTES])
