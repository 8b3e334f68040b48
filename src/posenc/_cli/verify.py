"""``posenc verify``: recompute a file and compare its bits."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import posenc
from posenc._cli import options
from posenc._cli.parser import Parser
from posenc._encoding import changes_of
from posenc._files.table import Readable, refuse_outside, row_buffer

EXAMPLES = """\
examples:
  posenc verify pe.npy
  posenc verify late.npy --start 1_700_000_000 --all
  posenc verify whisper.safetensors --key embed_positions.weight
  posenc verify pe.zarr --samples 20 --json
"""


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = options.add_command(commands, "verify", "recompute a file and compare its bits", EXAMPLES, run)
    options.add_table(parser)
    options.add_range(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--samples", type=options.positive, default=1000, metavar="K", help="compare K rows (default 1000)")
    which.add_argument("--all", action="store_true", help="compare every row")
    parser.add_argument("--threads", type=options.integer, metavar="K", help="use at most K threads")
    options.add_convention(parser, "those stored in a .safetensors or .zarr file, else those of 'Attention is all you need'")


def run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    with options.table_of(args) as table:
        rows, d_model = table.shape
        described, positions = table.described or (None, range(0))
        positions = options.positions_of(args, rows, positions)
        encoding = options.encoding_of(args, d_model, described)
        refuse_outside(encoding, positions, args.threads)
        samples = rows if args.all else min(rows, args.samples)
        with options.progress_bar(samples * table.row_bytes) as progress:
            mismatch = first_mismatch(table, encoding, positions, samples, args.threads, progress)
    document = {
        "path": args.file,
        "shape": [rows, d_model],
        "dtype": table.dtype,
        "start": positions.start,
        "step": positions.step,
        "convention": changes_of(encoding),
        "equal": mismatch is None,
        "mismatch": mismatch,
        "rows_compared": samples if mismatch is None else None,
        "seconds": time.perf_counter() - begin,
        "threads": args.threads,
    }
    if mismatch is None:
        options.report(args, document, f"{args.file}: {samples} of {rows} rows compared, every bit equal")
        return options.OK
    if args.json:
        options.report(args, document)
    message = "position {position}, column {column}: found {found} ({found_bits}), expected {expected} ({expected_bits})"
    raise options.Failure(f"{args.file}: {message.format(**mismatch)}")


def first_mismatch(
    table: Readable,
    encoding: posenc.Encoding,
    positions: range,
    samples: int,
    threads: int | None,
    progress: Callable[[int], object],
) -> dict[str, Any] | None:
    """Return the first difference between the table and the encodings, or None."""
    buffer = row_buffer(len(positions), encoding.d_model, table.dtype)
    if not buffer.size:
        return None
    for rows in parts(len(positions), samples, len(buffer)):
        found = table.read(rows.start, len(rows))
        part, out = positions[rows.start : rows.stop], buffer[: len(rows)]
        expected = encoding.encode(part, dtype=table.dtype, out=out, threads=threads).view(found.dtype)
        if not np.array_equal(found, expected):
            row, column = np.argwhere(found != expected)[0].tolist()
            return {
                "position": part[row],
                "row": rows.start + row,
                "column": column,
                "found": value_of(found[row, column], table.dtype),
                "expected": value_of(expected[row, column], table.dtype),
                "found_bits": f"{found[row, column]:#x}",
                "expected_bits": f"{expected[row, column]:#x}",
            }
        progress(found.nbytes)
    return None


def parts(rows: int, samples: int, most: int) -> Iterator[range]:
    """Return the rows to compare: all rows in ranges of at most `most`, or single rows."""
    if samples == rows:
        return (range(first, min(first + most, rows)) for first in range(0, rows, most))
    return (range(row, row + 1) for row in sampled(rows, samples))


def sampled(rows: int, samples: int) -> Iterator[int]:
    """Yield the last row of the last of `samples` parts, the first row of the first, and (fixed seed) random rows of others."""
    choice = random.Random(0)
    for k in range(samples):
        first, last = k * rows // samples, (k + 1) * rows // samples - 1
        if k == samples - 1:
            yield last
        else:
            yield choice.randint(first, last) if k else first


def value_of(bits: Any, dtype: str) -> float | str:
    """Return the value of bits as a number, or as a string if it is not finite, because JSON has only finite numbers."""
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << np.uint32(16), "float32"
    value = bits.view(dtype)
    # str() gives the shortest decimal that is unique in the value's dtype; float(value) would give that of float64
    return float(str(value)) if math.isfinite(value) else str(value)
