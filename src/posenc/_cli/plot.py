"""``posenc plot``: draws a picture of an encoding."""

from __future__ import annotations

import argparse
import io
import warnings
from typing import TYPE_CHECKING

import posenc
from posenc._cli.options import (
    OK,
    Failure,
    Parser,
    add_command,
    add_convention,
    add_range,
    count,
    encoding_of,
    integer,
    positions_of,
    positive,
    quantity,
    report,
    suffix_of,
)
from posenc._encoding import changes_of
from posenc._files.atomic import write_bytes

if TYPE_CHECKING:
    from matplotlib.figure import Figure

EXAMPLES = """\
examples:
  posenc plot -o heatmap.png
  posenc plot -o waves.svg --kind waves --dimensions 4,5,6,7 --positions 100 --d-model 20
  posenc plot -o similarity.png --kind similarity --start 1_000_000_000 --layout halves
"""
PICTURES = (".png", ".svg", ".pdf")
DPI = 100


def picture_path(text: str) -> str:
    """A path that ends in a known suffix."""
    if suffix_of(text) not in PICTURES:
        raise argparse.ArgumentTypeError(
            f"{text} is not a supported kind of picture: the name must end in {', '.join(PICTURES)}"
        )
    return text


def integer_list(text: str) -> list[int]:
    """Whole numbers, separated by commas."""
    return [integer(number) for number in text.split(",")]


def add(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "plot", "draw a picture of an encoding", EXAMPLES)
    parser.add_argument("-o", "--output", type=picture_path, required=True, metavar="FILE",
                        help=f"the suffix says the format: {', '.join(PICTURES)}")
    parser.add_argument("--kind", choices=("heatmap", "waves", "similarity"), default="heatmap", help="default heatmap")
    parser.add_argument("--positions", type=count, default=100, metavar="N", help="number of positions (default 100)")
    parser.add_argument("--d-model", type=count, default=128, metavar="D", help="number of columns (default 128)")
    parser.add_argument("--dimensions", type=integer_list, metavar="I,J,K",
                        help="columns of waves (default: four in equal steps)")
    parser.add_argument("--width", type=positive, metavar="PIXELS", help="of the picture (default 800; 560 for similarity)")
    parser.add_argument("--height", type=positive, metavar="PIXELS", help="of the picture (default 450)")
    add_range(parser)
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    add_convention(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    try:
        from posenc import plot as pictures
    except ModuleNotFoundError as error:
        raise Failure(f"plot needs the package {error.name}: pip install 'posenc[plot]'") from error

    options = {} if args.dimensions is None else {"dimensions": args.dimensions}
    if options and args.kind != "waves":
        raise ValueError(f"--dimensions is given, which {args.kind} has no use for")
    encoding = encoding_of(args, args.d_model)
    figure = getattr(pictures, args.kind)(encoding, positions_of(args, args.positions), **options).figure
    figure.suptitle(repr(encoding), wrap=True)
    size = write_bytes(args.output, rendered(figure, args), force=args.force)
    document = {
        "path": args.output,
        "kind": args.kind,
        "shape": [args.positions, args.d_model],
        "convention": changes_of(encoding),
        "bytes": size,
        "version": posenc.__version__,
    }
    report(args, document, f"{args.output}: {args.kind} of {args.positions} x {args.d_model}, {quantity(size)}")
    return OK


def rendered(figure: Figure, args: argparse.Namespace) -> bytes:
    """The picture's file."""
    width, height = (round(DPI * inches) for inches in figure.get_size_inches())
    width, height = args.width or width, args.height or height
    figure.set_size_inches(width / DPI, height / DPI)
    data = io.BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("error", "constrained_layout not applied", UserWarning)
        try:
            figure.savefig(data, format=suffix_of(args.output)[1:], dpi=DPI)
        except UserWarning:
            raise ValueError(f"{width} x {height} pixels have no room for the words, expected a larger picture") from None
    return data.getvalue()
