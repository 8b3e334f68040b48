"""What the commands share: how they read their options, and how they report."""

from __future__ import annotations

import argparse
import importlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal, InvalidOperation
from types import ModuleType
from typing import Any

import posenc
from posenc._convention import CHOICES
from posenc._files.table import Readable

OK, FAILED = 0, 1

# suffix: the module that writes and reads such files, imported only when named, and the options that only it has
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    ".npy": ("posenc._files.npy", ()),
    ".safetensors": ("posenc._files.safetensors", ("key",)),
    ".zarr": ("posenc._files.zarr", ("chunk_rows",)),
}
PIPE = "-"


class Failure(Exception):
    """Ends the program with a message and exit code 1."""


class Parser(argparse.ArgumentParser):
    """Without abbreviated options, which a later version could make ambiguous, also in subcommands."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)


# ---- values on the command line ---------------------------------------------------------------------------------------


def integer(text: str) -> int:
    """A whole number, also as 1_000_000 or 1e6."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise argparse.ArgumentTypeError(f"{text} is not a number") from None
    if not number.is_finite() or number != number.to_integral_value():
        raise argparse.ArgumentTypeError(f"{text} is not a whole number")
    if number.adjusted() > 30:          # int() would write out every digit of 1e999999
        raise argparse.ArgumentTypeError(f"{text} is too large")
    return int(number)


def count(text: str) -> int:
    """A whole number that is not negative."""
    number = integer(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def real(text: str) -> float:
    """A real number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number") from None


def real_list(text: str) -> list[float]:
    """Real numbers, separated by commas."""
    return [real(number) for number in text.split(",")]


def positive(text: str) -> int:
    """A whole number above zero."""
    number = integer(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is below 1")
    return number


def suffix_of(path: str) -> str:
    """What a name ends in; that of a folder may have a slash behind it."""
    return os.path.splitext(path.rstrip("/" + os.sep))[1]


def table_path(text: str) -> str:
    """A path that ends in a known suffix, or the sign for stdout."""
    if text != PIPE and suffix_of(text) not in FORMATS:
        raise argparse.ArgumentTypeError(
            f"{text} is not a supported kind of file: the name must end in {', '.join(FORMATS)}, or be {PIPE} for stdout"
        )
    return text


# ---- options of several commands -----------------------------------------------------------------------------------

# keyword of posenc.Encoding: how argparse reads it; the default is the library's
CONVENTION: dict[str, dict[str, Any]] = {
    "base": {"type": real, "metavar": "X", "help": "frequency i is base**(-i/D) (default 10000)"},
    "frequency_scale": {"type": real, "metavar": "X", "help": "multiplies the frequencies"},
    "position_offset": {"type": real, "metavar": "X", "help": "added to the positions"},
    "position_scale": {"type": real, "metavar": "X", "help": "multiplies position + offset"},
    "padding_idx": {"type": integer, "metavar": "INT", "help": "the position whose row is all zeros"},
    "scale": {"type": real, "metavar": "X", "help": "multiplies the values"},
    "odd": {"choices": CHOICES["odd"], "help": "what an odd number of columns means"},
    "spacing": {"choices": CHOICES["spacing"], "help": "of the frequencies; endpoint: the slowest is 1/base"},
    "shift": {"type": real, "metavar": "X", "help": "D = columns/2 - shift"},
    "exponents": {"choices": CHOICES["exponents"], "help": "whether two columns share a frequency"},
    "frequencies": {"type": real_list, "metavar": "A,B,C", "help": "in place of base, spacing, shift and frequency scale"},
    "layout": {"choices": CHOICES["layout"], "help": "order of the columns"},
    "order": {"choices": CHOICES["order"], "help": "the first function of a pair"},
}


def add_command(
    commands: argparse._SubParsersAction[Parser], name: str, purpose: str, examples: str | None = None
) -> Parser:
    """A subcommand, with examples below its help."""
    return commands.add_parser(
        name, help=purpose, description=purpose, epilog=examples, formatter_class=argparse.RawDescriptionHelpFormatter
    )


def add_convention(parser: Parser, otherwise: str = "") -> None:
    """Adds an option for every convention keyword of `posenc.Encoding`, and one for those of a known model."""
    group = parser.add_argument_group("convention", f"the defaults are those of 'Attention is all you need'{otherwise}")
    group.add_argument("--preset", metavar="NAME", help="that of a known model, such as whisper; other options replace its own")
    for keyword, reading in CONVENTION.items():
        group.add_argument(f"--{keyword.replace('_', '-')}", default=argparse.SUPPRESS, **reading)


def encoding_of(args: argparse.Namespace, d_model: int, described: posenc.Encoding | None = None) -> posenc.Encoding:
    """The encoding that the options say, where they do not that of a file."""
    given = {keyword: value for keyword, value in vars(args).items() if keyword in CONVENTION}
    if args.preset is not None:
        return posenc.preset(args.preset, d_model, **given)
    return described.replace(d_model=d_model, **given) if described else posenc.Encoding(d_model, **given)


def add_range(parser: Parser) -> None:
    """Adds the options that say which positions the rows have."""
    parser.add_argument("--start", type=integer, metavar="INT", help="position of the first row (default 0)")
    parser.add_argument("--step", type=integer, metavar="INT", help="from one row to the next (default 1)")


def positions_of(args: argparse.Namespace, rows: int, described: range = range(0)) -> range:
    """The positions of so many rows, where not given those that a file describes."""
    start = described.start if args.start is None else args.start
    step = described.step if args.step is None else args.step
    if not step:
        raise ValueError("--step is 0, expected another number")
    return range(start, start + rows * step, step)


def format_of(args: argparse.Namespace, path: str) -> tuple[ModuleType, dict[str, Any]]:
    """The module for files of that name, and the options for it."""
    suffix = suffix_of(path)
    name, own = FORMATS.get(suffix, FORMATS[".npy"])
    for option in {name for _, names in FORMATS.values() for name in names} - set(own):
        if getattr(args, option, None) is not None:
            raise ValueError(f"--{option.replace('_', '-')} is given, which {suffix or 'a pipe'} has no use for")
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise Failure(f"{suffix} needs the package {error.name}: pip install 'posenc[{error.name}]'") from error
    return module, {name: getattr(args, name) for name in own if getattr(args, name, None) is not None}


def add_table(parser: Parser) -> None:
    """Adds the file to read a table from, and which of its tensors that is."""
    parser.add_argument("file", metavar="FILE", help="of float32, float64, float16, bfloat16, or uint16 for bfloat16")
    parser.add_argument("--key", metavar="NAME", help="name of the tensor in a .safetensors file (default pe, or the only one)")


@contextmanager
def table_of(args: argparse.Namespace) -> Iterator[Readable]:
    """The table in the file to read.  What is wrong with the file is no wrong usage."""
    module, options = format_of(args, args.file)
    with ExitStack() as stack:
        try:
            table = stack.enter_context(module.opened(args.file, **options))
        except ValueError as error:
            raise Failure(error) from error
        yield table


def add_output(parser: Parser) -> None:
    """Adds the options on how to run and to report."""
    parser.add_argument("--threads", type=integer, metavar="K", help="at most so many threads")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


# ---- results ----------------------------------------------------------------------------------------------------------


def report(args: argparse.Namespace, document: dict[str, Any], text: str = "") -> None:
    """Prints a result: for programs, or for people."""
    line = json.dumps(document, allow_nan=False) if args.json else text
    try:
        print(line)
    except UnicodeEncodeError:          # a file's name may be no text, or have letters that stdout has not
        print(line.encode("ascii", "backslashreplace").decode())


@contextmanager
def progress_bar(size: int, unit: str = "B") -> Iterator[Callable[[int], object]]:
    """What to call with each number of bytes, or units, done; shows a bar if stderr is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda done: None
        return
    with tqdm(total=size, unit=unit, unit_scale=True, disable=None) as bar:
        yield bar.update


def quantity(size: float) -> str:
    """Bytes in a unit that leaves few digits."""
    units = ["TB", "GB", "MB", "kB", "bytes"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop()
    return f"{size:.3g} {units[-1]}"


def rate(size: int, seconds: float) -> str:
    """Bytes and time; and their quotient, where so few do not take mostly the time to begin."""
    quotient = f", {quantity(size / seconds)}/s" if size >= 1e6 else ""
    return f"{quantity(size)} in {seconds:.3g} s{quotient}"
