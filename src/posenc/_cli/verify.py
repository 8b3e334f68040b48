"""``posenc verify``: recomputes a file and compares its bits."""

from __future__ import annotations

import argparse
import math
import random
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import posenc
from posenc._cli.options import (
    OK,
    Failure,
    Parser,
    add_command,
    add_convention,
    add_output,
    add_range,
    add_table,
    encoding_of,
    positions_of,
    positive,
    progress_bar,
    report,
    table_of,
)
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
    parser = add_command(commands, "verify", "recompute a file and compare its bits", EXAMPLES)
    add_table(parser)
    add_range(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--samples", type=positive, default=1000, metavar="K", help="compare K rows (default 1000)")
    which.add_argument("--all", action="store_true", help="compare every row")
    add_output(parser)
    add_convention(parser, "; where not given, what a .safetensors or .zarr says of itself")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    with table_of(args) as table:
        rows, d_model = table.shape
        described, positions = table.described or (None, range(0))
        positions = positions_of(args, rows, positions)
        encoding = encoding_of(args, d_model, described)
        refuse_outside(encoding, positions, args.threads)
        samples = rows if args.all else min(rows, args.samples)
        with progress_bar(samples * table.row_bytes) as progress:
            mismatch = first_mismatch(table, encoding, positions, samples, args.threads, progress)
    seconds = time.perf_counter() - begin
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
        "seconds": seconds,
        "threads": args.threads,
        "version": posenc.__version__,
    }
    if mismatch is None:
        report(args, document, f"{args.file}: {samples} of {rows} rows compared, every bit equal")
        return OK
    if args.json:
        report(args, document)
    message = "position {position}, column {column}: found {found} ({found_bits}), expected {expected} ({expected_bits})"
    raise Failure(f"{args.file}: {message.format(**mismatch)}")


def first_mismatch(
    table: Readable,
    encoding: posenc.Encoding,
    positions: range,
    samples: int,
    threads: int | None,
    progress: Callable[[int], object],
) -> dict[str, Any] | None:
    """Where the table first differs from the encodings, as a dict, or None."""
    buffer = row_buffer(len(positions), encoding.d_model, table.dtype)
    if not buffer.size:
        return None
    for rows in parts(len(positions), samples, len(buffer)):
        found = table.read(rows.start, len(rows))
        values = encoding.encode(
            positions[rows.start : rows.stop], dtype=table.dtype, out=buffer[: len(rows)], threads=threads
        )
        expected = values.view(found.dtype)
        if not np.array_equal(found, expected):
            row, column = np.argwhere(found != expected)[0].tolist()
            return {
                "position": positions[rows.start + row],
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
    """Rows to compare, as ranges: all of them, at most so many at once, or samples one by one."""
    if samples == rows:
        return (range(first, min(first + most, rows)) for first in range(0, rows, most))
    return (range(row, row + 1) for row in sampled(rows, samples))


def sampled(rows: int, samples: int) -> Iterator[int]:
    """One row from each of so many parts of equal size, the same every time, the first and the last row among them."""
    choice = random.Random(0)
    for k in range(samples):
        first, last = k * rows // samples, (k + 1) * rows // samples - 1
        if k == samples - 1:
            yield last
        else:
            yield choice.randint(first, last) if k else first


def value_of(bits: Any, dtype: str) -> float | str:
    """The number that bits stand for, or its name where JSON has no number for it."""
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << np.uint32(16), "float32"
    value = bits.view(dtype)
    # its shortest decimals, not those of the float64 that holds it
    return float(str(value)) if math.isfinite(value) else str(value)
