"""Options, values and output that the commands share."""

import argparse
import inspect
import json
import re
import sys
from contextlib import suppress
from decimal import Decimal, InvalidOperation
from functools import partial
from typing import Any

import posenc
from posenc._arguments import checks
from posenc._arguments.specification import changes_of
from posenc._encoding.encoding import KEYWORDS
from posenc._files.table import TableSpecification

OK, FAILED = 0, 1
PAPER = "those of 'Attention is all you need' (the paper)"


def integer(text: str, lowest: int = -(2**63)) -> int:
    """Parse an integer such as 1000000, 1_000_000 or 1e6."""
    with suppress(InvalidOperation, ValueError):        # not a number
        float(text)                             # Decimal ignores misplaced underscores
        number = Decimal(text)
        if lowest <= number < 2**63 and number == number.to_integral_value():  # int(1e999999) would take long
            return int(number)
    raise argparse.ArgumentTypeError(f"{text!r}, expected an integer from {lowest} to {2**63 - 1}")


count, positive = partial(integer, lowest=0), partial(integer, lowest=1)


def number(text: str) -> int | float:
    """Parse a number.  An integer stays exact: the library refuses one that it would round."""
    with suppress(ValueError):
        return int(text)
    return float(text)


def numbers(text: str) -> list[int | float]:
    return [number(x) for x in text.split(",")]


def add_convention(parser: argparse.ArgumentParser, defaults: str = PAPER) -> None:
    """Add --preset and an option for each convention keyword of `posenc.Encoding`."""
    group = parser.add_argument_group("convention", f"The defaults are {defaults}.")
    group.add_argument("--preset", metavar="NAME", help="a name from posenc presets, for options not given")
    kinds: Any = {checks.position: (integer, "INT"), checks.reals: (numbers, "A,B,C"),
                  checks.periods: (numbers, "A,B,C")}
    documentation = inspect.cleandoc(posenc.Encoding.__doc__ or "")         # None in optimized mode
    for name, keyword in KEYWORDS.items():
        entry = re.search(rf"(?m)^(?:.*, )?{name}(?:, .*)? : .*\n((?:    .*\n)+)", documentation)
        text = " ".join(entry[1].split()).replace("`", "").replace("%", "%%") if entry else None
        kind, metavar = kinds.get(keyword.check, (number, "X"))
        values: Any = {"type": kind, "metavar": metavar}
        if isinstance(keyword.check, tuple):
            values = {"choices": keyword.check}
        option = f"--{name.replace('_', '-')}"
        group.add_argument(option, default=argparse.SUPPRESS, help=text, **values)


def selected_table(
    args: argparse.Namespace, rows: int, d_model: int, stated: TableSpecification | None = None
) -> tuple[range, posenc.Encoding]:
    """Return the positions of the rows, and the encoding that the options select.

    Without --preset, the defaults of the keywords are those of `stated`, the specification in the file.
    """
    keywords = {name: value for name, value in vars(args).items() if name in KEYWORDS}
    if args.preset is not None:
        encoding = posenc.preset(args.preset, d_model, **keywords)
    elif stated:
        encoding = stated.encoding.replace(**keywords)
    else:
        encoding = posenc.Encoding(d_model, **keywords)
    return selected_positions(args, rows, stated.positions if stated else range(0)), encoding


def add_range(parser: argparse.ArgumentParser, start: str = "default 0", step: str = "default 1") -> None:
    """Add --start and --step, which determine the positions of the rows.

    `start` and `step` state the defaults.
    """
    parser.add_argument("--start", type=integer, metavar="INT", help=f"position of the first row ({start})")
    parser.add_argument("--step", type=integer, metavar="INT", help=f"step between positions ({step})")


def selected_positions(args: argparse.Namespace, rows: int, stated: range = range(0)) -> range:
    """Return the positions of the rows.

    The default start and step are those of `stated`, the range read from the file.
    """
    start = stated.start if args.start is None else args.start
    step = stated.step if args.step is None else args.step
    if not step:
        raise ValueError("--step is 0, expected a non-zero integer")
    return range(start, start + rows * step, step)


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add FILE and --key, which select the table to read."""
    parser.add_argument("file", metavar="FILE", help="a table; uint16 holds the bits of bfloat16")
    parser.add_argument("--key", metavar="NAME", help="tensor of a .safetensors file (default: the only one or pe)")


def document_of(path: str, positions: range, encoding: posenc.Encoding, **more: Any) -> dict[str, Any]:
    """Return the description of a table, for JSON."""
    return {"path": path, "shape": [len(positions), encoding.d_model], "start": positions.start,
            "step": positions.step, "convention": changes_of(encoding), **more}


def report(args: argparse.Namespace, document: dict[str, Any], text: str = "") -> None:
    """Print the document and the version as JSON if --json was given, else the text."""
    line = json.dumps({**document, "version": posenc.__version__}, allow_nan=False) if args.json else text
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    # stdout may not be able to represent a file name
    print(line.encode(encoding, "backslashreplace").decode(encoding))
