"""``posenc verify``: recompute a file and compare its bits."""

from __future__ import annotations

import argparse
import time

import posenc
from posenc._arguments.base_class import changes_of
from posenc._cli import options
from posenc._files.compare import first_mismatch

EXAMPLES = """\
examples:
  posenc verify pe.npy
  posenc verify late.npy --start 1_700_000_000 --all
  posenc verify whisper.safetensors --key embed_positions.weight
  posenc verify pe.zarr --samples 20 --json
"""


def add(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    parser = options.add_command(
        commands, "verify", "recompute a file and compare its bits", EXAMPLES, run, usage="posenc verify FILE [options]"
    )
    options.add_table(parser)
    options.add_range(parser, ", or as FILE states")
    rows = parser.add_mutually_exclusive_group()
    rows.add_argument("--samples", type=options.positive, default=1000, metavar="K", help="compare K rows (default 1000)")
    rows.add_argument("--all", action="store_true", help="compare every row")
    parser.add_argument("--threads", type=options.integer, metavar="K", help="use at most K threads")
    options.add_convention(parser, f"those stored in a .safetensors or .zarr file,\nelse {options.PAPER}")


def run(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    with options.table_of(args) as table:
        rows, d_model = table.shape
        described, positions = table.described or (None, range(0))
        positions = options.positions_of(args, rows, positions)
        encoding = options.selected_encoding(args, d_model, described)
        samples = rows if args.all else min(rows, args.samples)
        with options.progress_bar(samples * table.row_bytes) as progress:
            mismatch = first_mismatch(table, encoding, positions, samples, args.threads, progress)
    document = {
        "path": args.file, "shape": [rows, d_model], "dtype": table.dtype, "start": positions.start, "step": positions.step,
        "convention": changes_of(encoding), "equal": mismatch is None, "mismatch": mismatch and mismatch._asdict(),
        "rows_compared": samples if mismatch is None else None, "seconds": time.perf_counter() - begin, "threads": args.threads,
    }
    if mismatch is None:
        options.report(args, document, f"{args.file}: {samples} of {rows} rows compared, every bit equal")
        return options.OK
    if args.json:
        options.report(args, document)
    if table.described is None and encoding == posenc.Encoding(d_model) and args.start is None and args.step is None:
        remedy = "pass --preset, --start or the options of a convention for another table"
        raise options.Failure(f"{args.file} {mismatch.from_assumed(encoding)}; {remedy}")
    raise options.Failure(f"{args.file}: {mismatch}")
