"""The command ``posenc plot``."""

import argparse
import io

from posenc._cli import options
from posenc._files.atomic import quantity, write
from posenc._files.table import suffix_of

PICTURES = (".png", ".svg", ".pdf")
DPI = 100


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.usage = "posenc plot -o FILE [options]"
    add = parser.add_argument
    add("-o", "--output", required=True, metavar="FILE", help=f"the suffix sets the format: {', '.join(PICTURES)}")
    add("--kind", choices=("heatmap", "waves", "similarity"), default="heatmap", help="default heatmap")
    add("--positions", type=options.count, default=100, metavar="N", help="number of positions (default 100)")
    add("--d-model", type=options.count, default=128, metavar="D", help="number of columns (default 128)")
    add("--dimensions", type=options.integers, metavar="I,J,K", help="columns to draw as waves (default: four)")
    options.add_range(parser)
    add("--force", action="store_true", help="overwrite the file")
    options.add_convention(parser)


def plot(args: argparse.Namespace) -> None:
    """Draw a picture of an encoding.

    examples:
      posenc plot -o heatmap.png
      posenc plot -o waves.svg --kind waves --dimensions 4,5,6,7 --positions 100 --d-model 20
      posenc plot -o similarity.png --kind similarity --start 1_000_000_000 --layout halves
    """
    from posenc import plot as pictures

    if suffix_of(args.output) not in PICTURES:
        raise ValueError(f"--output is {args.output!r}, expected a name with the suffix {', '.join(PICTURES)}")
    if args.dimensions and args.kind != "waves":
        raise ValueError(f"--dimensions is given with --kind {args.kind}, expected --kind waves")
    keywords = {} if args.dimensions is None else {"dimensions": args.dimensions}
    positions, encoding = options.positions_of(args, args.positions), options.selected_encoding(args, args.d_model)
    figure = getattr(pictures, args.kind)(encoding, positions, **keywords).figure
    data = io.BytesIO()
    figure.savefig(data, format=suffix_of(args.output)[1:], dpi=DPI)
    size = write(args.output, [data.getbuffer()], len(data.getbuffer()), args.force)
    document = options.document_of(args.output, positions, encoding, kind=args.kind, bytes=size)
    options.report(args, document, f"{args.output}: {args.kind} of {args.positions} x {args.d_model}, {quantity(size)}")
