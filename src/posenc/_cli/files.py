"""The commands ``posenc generate``, ``posenc verify`` and ``posenc plot``."""

import argparse
import io

import posenc
from posenc._arguments.arrays import DTYPES
from posenc._cli import options
from posenc._files import atomic, table
from posenc._files.functions import opened_table

DPI = 100


def add_generate_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "posenc generate N D -o FILE [options]"
    add = parser.add_argument
    add("n", type=options.count, metavar="N", help="number of positions, such as 1000000, 1_000_000 or 1e6")
    add("d_model", type=options.count, metavar="D", help="number of columns")
    suffixes = ", ".join(table.SUFFIX_OPTIONS)
    add("-o", "--output", required=True, metavar="FILE", help=f"the suffix sets the format: {suffixes}")
    add("--dtype", choices=DTYPES, default="float32",
        help="default float32; .npy and .zarr store the bits of bfloat16 as uint16")
    options.add_range(parser)
    add("--key", metavar="NAME", help="name of the tensor in a .safetensors file (default pe)")
    add("--force", action="store_true", help="overwrite the file")
    options.add_convention(parser)


def generate(args: argparse.Namespace) -> None:
    """Write a table to a file.

    examples:
      posenc generate 10_000 512 -o pe.npy
      posenc generate 1e4 512 -o late.npy --start 1_700_000_000 --dtype float64
      posenc generate 1500 384 -o whisper.safetensors --preset whisper --key embed_positions.weight
      posenc generate 1e5 64 -o pe.zarr
    """
    positions, encoding = options.selected_table(args, args.n, args.d_model)
    size = posenc.save(args.output, positions, encoding, dtype=args.dtype, overwrite=args.force, key=args.key)
    document = options.document_of(args.output, positions, encoding, dtype=args.dtype, bytes=size)
    options.report(args, document, f"{args.output}: {args.n} x {args.d_model} {args.dtype}, {size:,} bytes")


def add_verify_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "posenc verify FILE [options]"
    options.add_table(parser)
    options.add_range(parser, "default 0, or as FILE states", "default 1, or as FILE states")
    parser.add_argument("--samples", type=options.positive, metavar="K", help="compare only K rows")
    options.add_convention(parser, f"those stored in FILE, else {options.PAPER}")


def verify(args: argparse.Namespace) -> None:
    """Recompute a file and compare its bits.

    examples:
      posenc verify pe.npy
      posenc verify late.npy --start 1_700_000_000
      posenc verify whisper.safetensors --key embed_positions.weight
      posenc verify pe.zarr --samples 20 --json
    """
    with opened_table(args.file, key=args.key) as source:
        rows, d_model = source.shape
        positions, encoding = options.selected_table(args, rows, d_model, source.specification)
    count = posenc.verify(args.file, positions, encoding, key=args.key, samples=args.samples)
    document = options.document_of(args.file, positions, encoding, dtype=source.dtype, rows_compared=count)
    options.report(args, document, f"{args.file}: {count} of {rows} rows compared, every bit equal")


def add_plot_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "posenc plot -o FILE [options]"
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="FILE", help="a name with .png, .svg, .pdf or another suffix of matplotlib")
    add("--kind", choices=("heatmap", "waves", "similarity"), default="heatmap", help="default heatmap")
    add("--positions", type=options.count, default=100, metavar="N", help="number of positions (default 100)")
    add("--d-model", type=options.count, default=128, metavar="D", help="number of columns (default 128)")
    options.add_range(parser)
    add("--force", action="store_true", help="overwrite the file")
    options.add_convention(parser)


def plot(args: argparse.Namespace) -> None:
    """Draw a picture of an encoding.

    examples:
      posenc plot -o heatmap.png
      posenc plot -o waves.svg --kind waves --positions 100 --d-model 20
      posenc plot -o similarity.png --kind similarity --start 1_000_000_000 --layout halves
    """
    from posenc import plot as pictures

    positions, encoding = options.selected_table(args, args.positions, args.d_model)
    figure = getattr(pictures, args.kind)(encoding, positions).figure
    data = io.BytesIO()
    figure.savefig(data, format=table.suffix_of(args.output)[1:], dpi=DPI)
    size = atomic.write(args.output, [data.getbuffer()], len(data.getbuffer()), args.force)
    document = options.document_of(args.output, positions, encoding, kind=args.kind, bytes=size)
    text = f"{args.kind} of {args.positions} x {args.d_model}, {size:,} bytes"
    options.report(args, document, f"{args.output}: {text}")
