"""``posenc bench``: compare posenc with memset, torch and NumPy on this computer."""

from __future__ import annotations

import argparse
import ctypes
import importlib
import math
import os
import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np

import posenc
from posenc._cli import options
from posenc._cli.parser import Parser

CASES: list[tuple[tuple[int, ...], str, str, bool]] = [      # shape, dtype, memory, whether to use only one thread
    ((32_768, 512), "float32", "fresh", False),
    ((32_768, 512), "float32", "reused", False),
    ((32_768, 512), "bfloat16", "reused", False),
    ((512, 512), "float32", "reused", True),
    ((16, 2_048, 512), "float32", "reused", False),
]
ROUNDS, SECONDS = 7, 0.3                # torch and NumPy each skip their remaining rounds after this many seconds
SAMPLE_SECONDS = 2e-3                   # shorter calls are repeated for about this many seconds
PAUSE_SECONDS = 1e-2
HEADINGS = "call   shape           dtype    memory threads     ms paused share  torch   NumPy"
NOTES = f"""paused: ms of a call after a pause of {PAUSE_SECONDS * 1e3:g} ms
share: speed relative to memset with the same memory and number of threads
torch, NumPy: speed-up over the usual recipe (for add_to: add(x, table, out=x))"""
EXAMPLES = "examples:\n  posenc bench\n  posenc bench --threads 1 --json > figures.json"


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = options.add_command(commands, "bench", "compare posenc with memset, torch and NumPy", EXAMPLES, run)
    parser.add_argument("--threads", type=options.positive, metavar="N", help="at most N threads (default: see posenc info)")


def run(args: argparse.Namespace) -> int:
    runtime, rows = posenc.show_runtime(), []
    threads = min(args.threads or runtime["threads"], os.cpu_count() or 1)
    torch, ml_dtypes = installed("torch"), installed("ml_dtypes")
    cases = [case for case in CASES if ml_dtypes or case[1] != "bfloat16"]
    begin, before = time.perf_counter(), used_by_others()
    with ThreadPoolExecutor(threads) as pool, options.progress_bar(len(cases), unit=" rows") as progress:
        for shape, dtype, memory, single in cases:
            rows.append(measure(torch, pool, shape, dtype, memory, 1 if single else threads))
            progress(1)
    others = None if before is None else max(0.0, (used_by_others() or 0) - before) / (time.perf_counter() - begin)
    versions = {name: module and str(module.__version__) for name, module in (("torch", torch), ("ml_dtypes", ml_dtypes))}
    document = runtime | versions | dict(threads=threads, used_by_others=others, rows=rows)
    options.report(args, document, in_words(document))
    return options.OK


def installed(name: str) -> Any:
    """Return an optional module, or None if it is not installed."""
    with suppress(ImportError):
        return importlib.import_module(name)
    return None


def recipe(library: Any, pe: Any, fresh: bool) -> None:
    """Compute a table by the usual recipe, with angles in float64 (NumPy) or float32 (torch)."""
    pe = library.empty_like(pe) if fresh else pe
    n, d_model = pe.shape
    angles = library.arange(n)[:, None] * library.exp(library.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = library.sin(angles)
    pe[:, 1::2] = library.cos(angles)


def memset(out: Any, fresh: bool, threads: int, pool: Any) -> None:
    """Fill memory with ones, because some processors write zeros faster than other values."""
    out = np.empty_like(out) if fresh else out
    address, edges = out.ctypes.data, [out.nbytes * i // threads for i in range(threads + 1)]
    list((pool.map if threads > 1 else map)(lambda a, b: ctypes.memset(address + a, 1, b - a), edges[:-1], edges[1:]))


def measure(torch: Any, pool: Any, shape: tuple[int, ...], dtype: str, memory: str, threads: int) -> dict[str, Any]:
    """Return the case, and the median seconds that posenc (`add_to` for a batch, else `encode`), memset, torch and NumPy take.

    ``paused`` is the median time of posenc after a pause, during which threads stop spinning and processors become idle.
    """
    call, fresh, encoding = "add_to" if len(shape) > 2 else "encode", memory == "fresh", posenc.Encoding(shape[-1])
    encode = partial(encoding.encode, shape[-2], dtype=dtype, threads=threads)
    out = np.ones(shape, encoding.encode(0, dtype=dtype).dtype)
    ours = partial(encoding.add_to, out, threads=threads) if call == "add_to" else partial(encode, out=None if fresh else out)
    calls: dict[str, Any] = {"posenc": ours, "memset": partial(memset, out, fresh, threads, pool)}
    for name, library in {"torch": torch, "numpy": np}.items():
        if hasattr(library, dtype):     # NumPy has no bfloat16
            x = library.ones(shape, dtype=getattr(library, dtype))
            calls[name] = partial(recipe, library, x, fresh)
            if call == "add_to":
                calls[name] = partial(library.add, x, library.asarray(encode()), out=x)
    if torch:
        torch.set_num_threads(threads)
    times: dict[str, list[float]] = {name: [] for name in calls}
    for name in ROUNDS * list(calls):   # the calls alternate; the first round is a warm-up
        if sum(times[name]) < SECONDS or name in ("posenc", "memset"):
            once = timeit.timeit(calls[name], number=1)
            number = math.ceil(SAMPLE_SECONDS / once)
            times[name].append(timeit.timeit(calls[name], number=number) / number if number > 1 else once)
    times["paused"] = []
    for _ in range(ROUNDS):
        time.sleep(PAUSE_SECONDS)
        times["paused"].append(timeit.timeit(ours, number=1))
    medians = {name: float(np.median(seconds[1:] or seconds)) for name, seconds in times.items()}
    return dict(call=call, shape=shape, dtype=dtype, memory=memory, threads=threads, bytes=out.nbytes, seconds=medians)


def used_by_others() -> float | None:
    """Return the processor seconds used by other processes since the system started, or None if /proc/stat does not exist."""
    with suppress(FileNotFoundError), open("/proc/stat", encoding="ascii") as stat:
        user, nice, system, _idle, _iowait, *others = map(int, stat.readline().split()[1:9])
        return sum((user, nice, system, *others)) / os.sysconf("SC_CLK_TCK") - time.process_time()
    return None


def in_words(document: dict[str, Any]) -> str:
    """Return the measurements as a table with notes."""
    versions = f"NumPy {document['numpy']} (1 thread), torch {document['torch'] or 'is not installed'}"
    lines = [f"posenc {document['version']} with {document['instruction_set']}, {versions}", HEADINGS]
    for row in document["rows"]:
        seconds, ours = row["seconds"], row["seconds"]["posenc"]
        case = f"{row['call']:7}{' x '.join(map(str, row['shape'])):16}{row['dtype']:9}{row['memory']:7}{row['threads']:7}"
        over = (f"{r:.{int(r < 100)}f}x" if (r := seconds.get(name, 0) / ours) else "-" for name in ("torch", "numpy"))
        speed = f"{ours * 1e3:7.3g}{seconds['paused'] * 1e3:7.3g}{seconds['memset'] / ours:6.0%}"
        lines.append(case + speed + "{:>7}{:>8}".format(*over))
    if not document["ml_dtypes"]:
        lines.append("bfloat16 is left out, because ml_dtypes is not installed (posenc[bfloat16])")
    if (others := document["used_by_others"] or 0) > 0.2:      # in processors; smaller numbers are noise
        lines.append(f"warning: other processes used {others:.1f} processors; repeat the command on an idle system")
    return "\n".join([*lines, NOTES])
