"""Options, values and output that the commands share."""

from __future__ import annotations

import argparse
import functools
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import posenc
from posenc._arguments import checks, install
from posenc._arguments.checks import BEYOND, LOWEST
from posenc._cli.parser import Parser
from posenc._encoding.encoding import KEYWORDS
from posenc._files import formats
from posenc._files.formats import FORMATS, suffix_of
from posenc._files.table import Readable

Number = TypeVar("Number", int, float)
OK, FAILED = 0, 1

PIPE = "-"
DOCUMENTATION = """\
documentation: docs/cli.md and docs/conventions.md in the source of posenc;
in Python, help(posenc.Encoding)"""


class Failure(Exception):
    """An error that ends the program with exit code 1; its arguments are a message and, optionally, a command to try."""


def needs_package(what: str, error: ModuleNotFoundError) -> Failure:
    return Failure(install.not_installed(what, what.lstrip("."), error))


# ---- values on the command line ---------------------------------------------------------------------------------------


def integer(text: str) -> int:
    """Parse an integer such as 1000000, 1_000_000 or 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a whole number such as 10000, 10_000 or 1e4") from None
    if not number.is_finite() or number != number.to_integral_value():
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a whole number")
    if not LOWEST <= number < BEYOND:   # int() would compute every digit of 1e999999
        raise argparse.ArgumentTypeError(f"is {text!r}, expected -2**63 <= number < 2**63")
    return int(number)


def count(text: str, lowest: int = 0) -> int:
    """Parse a non-negative integer."""
    number = integer(text)
    if number < lowest:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected at least {lowest}")
    return number


positive = functools.partial(count, lowest=1)


def real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a number") from None


def listed(parse: Callable[[str], Number]) -> Callable[[str], list[Number]]:
    """Return a parser for a list of numbers separated by commas."""
    def parse_list(text: str) -> list[Number]:
        with suppress(argparse.ArgumentTypeError):
            return [parse(number) for number in text.split(",")]
        raise argparse.ArgumentTypeError(f"is {text!r}, expected numbers separated by commas, without spaces")
    return parse_list


def one_of(choices: Sequence[str]) -> dict[str, Any]:
    """Return the arguments of add_argument for an option whose value is one of several words."""
    def parse(text: str) -> str:
        if text not in choices:
            raise argparse.ArgumentTypeError(f"is {text!r}, expected one of {', '.join(choices)}")
        return text
    return {"type": parse, "metavar": f"{{{','.join(choices)}}}"}


def table_path(text: str) -> str:
    """Parse the path of a table, or "-" for stdout."""
    if text != PIPE and suffix_of(text) not in FORMATS:
        suffixes = ", ".join(FORMATS)
        raise argparse.ArgumentTypeError(f"is {text!r}, expected a name with the suffix {suffixes}, or {PIPE} for stdout")
    return text


# ---- options of several commands -----------------------------------------------------------------------------------

TABLE = """\
The columns are the sines and cosines of position * frequency, one pair for each
frequency i from 0 to n-1, where n is half the number of columns."""
PAPER = "those of 'Attention is all you need' (the paper)"
READERS: dict[Any, dict[str, Any]] = {          # check of a keyword: arguments of add_argument for its option
    checks.position: {"type": integer, "metavar": "INT"},
    checks.frequencies: {"type": listed(real), "metavar": "A,B,C"},
}


def add_command(
    commands: argparse._SubParsersAction[Parser], name: str, purpose: str, examples: str,
    run: Callable[[argparse.Namespace], int],
) -> Parser:
    """Add a subcommand with the option --json; `run` executes the subcommand."""
    parser = commands.add_parser(
        name, help=purpose, description=purpose, epilog=f"{examples.rstrip()}\n\n{DOCUMENTATION}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=run, parser=parser)
    return parser


def add_convention(parser: Parser, defaults: str = PAPER) -> None:
    """Add --preset and an option for each convention keyword of `posenc.Encoding`."""
    group = parser.add_argument_group("convention", f"{TABLE}\nThe defaults are {defaults}.")
    group.add_argument("--preset", metavar="NAME", help="a name listed by posenc presets; other options override it")
    for name, keyword in KEYWORDS.items():
        reader = READERS.get(keyword.check, {"type": real, "metavar": "X"})
        if isinstance(keyword.check, tuple):
            reader = one_of(keyword.check)
        group.add_argument(f"--{name.replace('_', '-')}", default=argparse.SUPPRESS, help=keyword.description, **reader)


def selected_encoding(args: argparse.Namespace, d_model: int, described: posenc.Encoding | None = None) -> posenc.Encoding:
    """Return the encoding that the options select.  Without --preset, the defaults are those of `described`, if given."""
    keywords = {keyword: value for keyword, value in vars(args).items() if keyword in KEYWORDS}
    if args.preset is not None:
        return posenc.preset(args.preset, d_model, **keywords)
    return described.replace(d_model=d_model, **keywords) if described else posenc.Encoding(d_model, **keywords)


def add_range(parser: Parser, otherwise: str = "") -> None:
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


def format_options(args: argparse.Namespace, path: str) -> dict[str, Any]:
    """Return the options for the format of a path, and import the module of the format; a pipe has the format .npy."""
    suffix = suffix_of(path)
    keywords = {option: value for option in formats.OPTIONS if (value := getattr(args, option, None)) is not None}
    if others := keywords.keys() - set(formats.format_of(path).options):
        target = suffix or ("a pipe" if path == PIPE else "a file without a suffix")
        raise ValueError(f"--{min(others).replace('_', '-')} does not apply to {target}")
    try:
        formats.module_of(path)
    except ModuleNotFoundError as error:
        raise needs_package(suffix, error) from error
    return keywords


def add_table(parser: Parser) -> None:
    """Add FILE and --key, which select the table to read."""
    parser.add_argument("file", metavar="FILE", help="table of float32, float64, float16, bfloat16 or uint16 (bfloat16 bits)")
    parser.add_argument("--key", metavar="NAME", help="tensor in a .safetensors file (default: the only one, else pe)")


@contextmanager
def table_of(args: argparse.Namespace) -> Iterator[Readable]:
    """Open the table to read; a file without a valid table raises Failure, not UsageError."""
    keywords = format_options(args, args.file)
    with ExitStack() as stack:
        try:
            table = stack.enter_context(formats.opened(args.file, **keywords))
        except ValueError as error:
            raise Failure(error) from error
        except ModuleNotFoundError as error:
            raise needs_package(suffix_of(args.file), error) from error
        yield table


# ---- results ----------------------------------------------------------------------------------------------------------


def report(args: argparse.Namespace, document: dict[str, Any], text: str = "") -> None:
    """Print the document and the version as JSON if --json was given, else the text."""
    line = json.dumps({**document, "version": posenc.__version__}, allow_nan=False) if args.json else text
    try:
        print(line)
    except UnicodeEncodeError:          # a file name is not valid Unicode, or the encoding of stdout cannot represent it
        print(line.encode("ascii", "backslashreplace").decode())


@contextmanager
def progress_bar(size: int, unit: str = "B") -> Iterator[Callable[[int], object]]:
    """Yield a callback that counts units; if stderr is a terminal, show a bar, or, without tqdm, a percentage."""
    if not sys.stderr.isatty():
        yield lambda done: None
        return
    try:
        from tqdm import tqdm
    except ImportError:
        with percentage(size) as update:
            yield update
        return
    with tqdm(total=size, unit=unit, unit_scale=True) as bar:
        yield bar.update


@contextmanager
def percentage(size: int) -> Iterator[Callable[[int], object]]:
    """Yield a callback that counts units and prints their percentage of `size` on stderr; erase the text at the end."""
    total = 0

    def update(done: int) -> None:
        nonlocal total
        total += done
        print(f"\r{total / max(size, 1):4.0%}", end="", file=sys.stderr, flush=True)

    try:
        update(0)
        yield update
    finally:
        print("\r    \r", end="", file=sys.stderr, flush=True)
