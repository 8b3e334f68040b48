"""The command ``posenc verify``."""

import argparse
import time

from posenc._cli import options
from posenc._files.formats import format_of
from posenc._files.functions import first_mismatch, opened_table
from posenc._files.table import itemsize


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "posenc verify FILE [options]"
    options.add_table(parser)
    options.add_range(parser, "default 0, or as FILE states", "default 1, or as FILE states")
    parser.add_argument("--samples", type=options.positive, metavar="K", help="compare only K rows, spread over the file")
    parser.add_argument("--threads", type=options.integer, metavar="K", help="use at most K threads")
    options.add_convention(parser, f"those stored in FILE; for .npy, {options.PAPER}")


def verify(args: argparse.Namespace) -> int:
    """Recompute a file and compare its bits.

    examples:
      posenc verify pe.npy
      posenc verify late.npy --start 1_700_000_000
      posenc verify whisper.safetensors --key embed_positions.weight
      posenc verify pe.zarr --samples 20 --json
    """
    begin = time.perf_counter()
    with opened_table(args.file, key=args.key) as table:
        rows, d_model = table.shape
        stated, described, _ = table.specification or (range(0), None, None)
        positions = options.positions_of(args, rows, stated)
        encoding = options.selected_encoding(args, d_model, described, required=format_of(args.file) != ".npy")
        count = rows if args.samples is None else min(rows, args.samples)
        with options.progress_bar(count * d_model * itemsize(table.dtype)) as progress:
            mismatch = first_mismatch(table, encoding, positions, args.samples, args.threads, progress.update)
    document = options.document_of(
        args.file, positions, encoding, dtype=table.dtype, equal=mismatch is None, mismatch=mismatch and mismatch._asdict(),
        rows_compared=count if mismatch is None else None, seconds=time.perf_counter() - begin, threads=args.threads,
    )
    if mismatch is None:
        options.report(args, document, f"{args.file}: {count} of {rows} rows compared, every bit equal")
        return options.OK
    if args.json:
        options.report(args, document)
    stored = "" if table.specification else "; FILE stores no encoding, so the options must describe it"
    raise ValueError(f"{args.file}: {mismatch}{stored}")
