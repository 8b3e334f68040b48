"""Options, values and output that the commands share."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, InvalidOperation
from typing import Any

import posenc
from posenc._arguments import checks
from posenc._encoding.encoding import KEYWORDS
from posenc._files.files import opened_table
from posenc._files.table import Table

OK, FAILED = 0, 1
DOCUMENTATION = """\
documentation: docs/cli.md and docs/conventions.md in the source of posenc;
in Python, help(posenc.Encoding)"""
PAPER = "those of 'Attention is all you need' (the paper)"


class Failure(Exception):
    """An error that ends the program with exit code 1."""


def integer(text: str) -> int:
    """Parse an integer such as 1000000, 1_000_000 or 1e6."""
    try:
        number = Decimal(text)
        if -(2**63) <= number < 2**63 and number == number.to_integral_value():     # int(1e999999) would take long
            return int(number)
    except InvalidOperation:        # not a number
        pass
    raise ValueError(text)


def count(text: str) -> int:
    """Parse a number of rows, columns or pixels, which is not negative."""
    if (number := integer(text)) < 0:
        raise ValueError(text)
    return number


def positive(text: str) -> int:
    if (number := integer(text)) < 1:
        raise ValueError(text)
    return number


def integers(text: str) -> list[int]:
    return [integer(number) for number in text.split(",")]


def reals(text: str) -> list[float]:
    return [float(number) for number in text.split(",")]


def add_command(
    commands: argparse._SubParsersAction[argparse.ArgumentParser], run: Callable[[argparse.Namespace], int], usage: str = ""
) -> argparse.ArgumentParser:
    """Add the subcommand that `run` executes, with the option --json; its module's docstring has the purpose and examples."""
    module = sys.modules[run.__module__]
    name = module.__name__.rpartition(".")[2]
    purpose, _, examples = (module.__doc__ or "").partition("\n\n")
    parser = commands.add_parser(
        name, help=purpose, description=purpose, usage=f"posenc {name} {usage}" if usage else None,
        epilog=f"{examples}\n{DOCUMENTATION}", allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_convention(parser: argparse.ArgumentParser, defaults: str = PAPER) -> None:
    """Add --preset and an option for each convention keyword of `posenc.Encoding`."""
    group = parser.add_argument_group("convention", f"The defaults are {defaults}; n is half the number of columns.")
    group.add_argument("--preset", metavar="NAME", help="a name listed by posenc presets; other options override it")
    for name, keyword in KEYWORDS.items():
        values: dict[str, Any] = {"type": float, "metavar": "X"}
        if isinstance(keyword.check, tuple):
            values = {"choices": keyword.check}
        elif keyword.check is checks.position:
            values = {"type": integer, "metavar": "INT"}
        elif keyword.check is checks.frequencies:
            values = {"type": reals, "metavar": "A,B,C"}
        group.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, help=keyword.description, **values)


def selected_encoding(args: argparse.Namespace, d_model: int, described: posenc.Encoding | None = None) -> posenc.Encoding:
    """Return the encoding that the options select.  Without --preset, the defaults are those of `described`, if given."""
    keywords = {name: value for name, value in vars(args).items() if name in KEYWORDS}
    if args.preset is not None:
        return posenc.preset(args.preset, d_model, **keywords)
    return described.replace(d_model=d_model, **keywords) if described else posenc.Encoding(d_model, **keywords)


def add_range(parser: argparse.ArgumentParser, otherwise: str = "") -> None:
    """Add --start and --step, which determine the positions of the rows; the help appends `otherwise` to the defaults."""
    parser.add_argument("--start", type=integer, metavar="INT", help=f"position of the first row (default 0{otherwise})")
    parser.add_argument("--step", type=integer, metavar="INT", help=f"step between positions (default 1{otherwise})")


def positions_of(args: argparse.Namespace, rows: int, described: range = range(0)) -> range:
    """Return the positions of the rows; the default start and step are those of `described`, the range read from the file."""
    start = described.start if args.start is None else args.start
    step = described.step if args.step is None else args.step
    if not step:
        raise ValueError("--step is 0, expected a non-zero integer")
    return range(start, start + rows * step, step)


def add_table(parser: argparse.ArgumentParser) -> None:
    """Add FILE and --key, which select the table to read."""
    parser.add_argument("file", metavar="FILE", help="table of float32, float64, float16, bfloat16 or uint16 (bfloat16 bits)")
    parser.add_argument("--key", metavar="NAME", help="tensor in a .safetensors file (default: the only one, else pe)")


@contextmanager
def table_of(args: argparse.Namespace) -> Iterator[Table]:
    """Open the table to read; a file without a valid table is a failure, not wrong usage."""
    with ExitStack() as stack:
        try:
            table = stack.enter_context(opened_table(args.file, key=args.key))
        except ValueError as error:
            raise Failure(error) from error
        yield table


def report(args: argparse.Namespace, document: dict[str, Any], text: str = "") -> None:
    """Print the document and the version as JSON if --json was given, else the text."""
    line = json.dumps({**document, "version": posenc.__version__}, allow_nan=False) if args.json else text
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    print(line.encode(encoding, "backslashreplace").decode(encoding))       # stdout may not be able to represent a file name


@contextmanager
def progress_bar(size: int, unit: str = "B") -> Iterator[Callable[[int], object]]:
    """Yield a callback that counts units; show a bar if stderr is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda done: None
        return
    with tqdm(total=size, unit=unit, unit_scale=True, disable=not sys.stderr.isatty()) as bar:
        yield bar.update
