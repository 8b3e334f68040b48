"""``posenc generate``: writes a table to a file."""

from __future__ import annotations

import argparse
import sys
import time
from typing import BinaryIO

import posenc
from posenc._cli.options import (
    FORMATS,
    OK,
    PIPE,
    Failure,
    Parser,
    add_command,
    add_convention,
    add_output,
    add_range,
    count,
    encoding_of,
    format_of,
    positions_of,
    positive,
    progress_bar,
    rate,
    report,
    suffix_of,
    table_path,
)
from posenc._encoding import changes_of
from posenc._files.atomic import naming
from posenc._files.table import table_bytes

EXAMPLES = """\
examples:
  posenc generate 10_000 512 -o pe.npy
  posenc generate 1e4 512 -o late.npy --start 1_700_000_000 --dtype float64
  posenc generate 1500 384 -o whisper.safetensors --preset whisper --key embed_positions.weight
  posenc generate 1e5 64 -o pe.zarr --chunk-rows 20_000
  posenc generate 1e4 64 -o - | gzip > pe.npy.gz
"""


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "generate", "write a table to a file", EXAMPLES)
    parser.add_argument("n", type=count, metavar="N", help="number of positions: 1000000, 1_000_000 or 1e6")
    parser.add_argument("d_model", type=count, metavar="D", help="number of columns")
    parser.add_argument("-o", "--output", type=table_path, required=True, metavar="FILE",
                        help=f"the suffix says the format: {', '.join(FORMATS)}; {PIPE} is .npy on stdout")
    parser.add_argument("--dtype", choices=("float32", "float64", "float16", "bfloat16"), default="float32",
                        help="default float32; bfloat16 is stored as uint16 but for .safetensors, the others have no such type")
    add_range(parser)
    parser.add_argument("--key", metavar="NAME", help="name of the tensor in a .safetensors file (default pe)")
    parser.add_argument("--chunk-rows", type=positive, metavar="K", help="rows of a chunk of .zarr (default: 32 MiB of them)")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    add_output(parser)
    add_convention(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    positions = positions_of(args, args.n)
    encoding = encoding_of(args, args.d_model)
    module, options = format_of(args, args.output)
    if args.output == PIPE:
        destination, write = stdout_for_data(args), module.stream
    else:
        destination, write, options = args.output, module.write, {**options, "force": args.force}
    begin = time.perf_counter()
    name = "stdout" if args.output == PIPE else args.output
    with naming(name), progress_bar(table_bytes(args.n, args.d_model, args.dtype)) as progress:
        size = write(destination, encoding, positions, args.dtype, threads=args.threads, progress=progress, **options)
    seconds = time.perf_counter() - begin
    if args.output == PIPE:
        return OK
    stored = "uint16" if args.dtype == "bfloat16" and suffix_of(args.output) != ".safetensors" else args.dtype
    document = {
        "path": args.output,
        "shape": [args.n, args.d_model],
        "dtype": args.dtype,
        "stored_dtype": stored,
        "start": positions.start,
        "step": positions.step,
        "convention": changes_of(encoding),
        "bytes": size,
        "seconds": seconds,
        "bytes_per_second": size / seconds,
        "threads": args.threads,
        "version": posenc.__version__,
    }
    in_words = args.dtype if stored == args.dtype else f"{args.dtype} (stored as {stored})"
    report(args, document, f"{args.output}: {args.n} x {args.d_model} {in_words}, {rate(size, seconds)}")
    return OK


def stdout_for_data(args: argparse.Namespace) -> BinaryIO:
    """Where bytes go that are for another program."""
    if args.json:
        raise ValueError(f"--json is given, expected nothing but the table on stdout with -o {PIPE}")
    if sys.stdout is None:
        raise Failure("stdout is closed")
    if sys.stdout.isatty():
        raise ValueError("stdout is a terminal, expected a pipe or a file")
    return sys.stdout.buffer
