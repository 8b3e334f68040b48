"""The command ``posenc generate``."""

import argparse
import sys
import time

import posenc
from posenc._arguments.arrays import DTYPES
from posenc._cli import options
from posenc._files.atomic import naming, quantity
from posenc._files.formats import SUFFIX_OPTIONS, npy_header, suffix_of
from posenc._files.table import blocks, checked_specification

PIPE = "-"


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "posenc generate N D -o FILE [options]"
    parser.add_argument("n", type=options.count, metavar="N", help="number of positions, such as 1000000, 1_000_000 or 1e6")
    parser.add_argument("d_model", type=options.count, metavar="D", help="number of columns")
    parser.add_argument("-o", "--output", required=True, metavar="FILE",
                        help=f"the suffix sets the format: {', '.join(SUFFIX_OPTIONS)}; {PIPE} writes .npy to stdout")
    parser.add_argument("--dtype", choices=DTYPES, default="float32",
                        help="default float32; .npy and .zarr store the bits of bfloat16 as uint16")
    options.add_range(parser)
    parser.add_argument("--key", metavar="NAME", help="name of the tensor in a .safetensors file (default pe)")
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument("--threads", type=options.integer, metavar="K", help="use at most K threads")
    options.add_convention(parser)


def generate(args: argparse.Namespace) -> int:
    """Write a table to a file.

    examples:
      posenc generate 10_000 512 -o pe.npy
      posenc generate 1e4 512 -o late.npy --start 1_700_000_000 --dtype float64
      posenc generate 1500 384 -o whisper.safetensors --preset whisper --key embed_positions.weight
      posenc generate 1e5 64 -o pe.zarr
      posenc generate 1e4 64 -o - | gzip > pe.npy.gz
    """
    positions = options.positions_of(args, args.n)
    encoding = options.selected_encoding(args, args.d_model)
    specification = checked_specification(positions, encoding, args.dtype)
    bar = options.progress_bar(specification.nbytes)
    if args.output == PIPE:
        if args.json or args.key:
            raise ValueError(f"-o {PIPE} is given with --json or --key, expected neither of them")
        if sys.stdout is None or sys.stdout.isatty():
            raise ValueError("stdout is closed or a terminal, expected a pipe or a file")
        with naming("stdout"), bar as progress:
            sys.stdout.buffer.write(npy_header(specification))
            sys.stdout.buffer.writelines(blocks(specification, args.threads, progress.update))
            sys.stdout.buffer.flush()
        return options.OK
    begin = time.perf_counter()
    with bar as progress:
        size = posenc.save(
            args.output, positions, encoding, dtype=args.dtype, overwrite=args.force, key=args.key, threads=args.threads,
            progress=progress.update,
        )
    seconds = time.perf_counter() - begin
    stored = "uint16" if args.dtype == "bfloat16" and suffix_of(args.output) != ".safetensors" else args.dtype
    document = options.document_of(
        args.output, positions, encoding, dtype=args.dtype, stored_dtype=stored, bytes=size, seconds=seconds,
        threads=args.threads,
    )
    text = f"{args.output}: {args.n} x {args.d_model} {args.dtype}, {quantity(size)} in {seconds:.3g} s"
    options.report(args, document, text)
    return options.OK
