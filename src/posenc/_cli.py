"""The command line: ``posenc``, or ``python -m posenc``.

Data and results go to stdout, progress and errors to stderr.  Exit codes: 0 for success, 1 for a failure, 2 for wrong usage,
and 128 more than the signal's number where one ends the program: 130 after Ctrl-C, 141 (SIGPIPE) after a reader has left.
"""

from __future__ import annotations

import argparse
import importlib
import io
import json
import math
import os
import random
import re
import signal
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from decimal import Decimal, InvalidOperation
from types import FrameType, ModuleType
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

import posenc
from posenc import _bench, _identify, _kernel
from posenc._convention import CHOICES
from posenc._encoding import changes_of
from posenc._files.atomic import naming, write_bytes
from posenc._files.table import Readable, refuse_outside, row_buffer, table_bytes
from posenc._presets import changed

if TYPE_CHECKING:
    from matplotlib.figure import Figure

OK, FAILED, USAGE, INTERRUPTED, UNREAD = 0, 1, 2, 130, 141

# suffix: the module that writes and reads such files, imported only when named, and the options that only it has
FORMATS: dict[str, tuple[str, tuple[str, ...]]] = {
    ".npy": ("posenc._files.npy", ()),
    ".safetensors": ("posenc._files.safetensors", ("key",)),
    ".zarr": ("posenc._files.zarr", ("chunk_rows",)),
}
PIPE = "-"


class Failure(Exception):
    """Ends the program with a message and exit code 1."""


# ---- values on the command line -------------------------------------------------------------------------------------


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


# ---- options that subcommands share ---------------------------------------------------------------------------------

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
    return posenc.Encoding(d_model, **changed(changes_of(described) if described else {}, given))


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


# ---- generate -------------------------------------------------------------------------------------------------------

GENERATE_EXAMPLES = """\
examples:
  posenc generate 10_000 512 -o pe.npy
  posenc generate 1e4 512 -o late.npy --start 1_700_000_000 --dtype float64
  posenc generate 1500 384 -o whisper.safetensors --preset whisper --key embed_positions.weight
  posenc generate 1e5 64 -o pe.zarr --chunk-rows 20_000
  posenc generate 1e4 64 -o - | gzip > pe.npy.gz
"""


def add_generate(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "generate", "write a table to a file", GENERATE_EXAMPLES)
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
    parser.set_defaults(run=generate)


def generate(args: argparse.Namespace) -> int:
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


# ---- verify ---------------------------------------------------------------------------------------------------------

VERIFY_EXAMPLES = """\
examples:
  posenc verify pe.npy
  posenc verify late.npy --start 1_700_000_000 --all
  posenc verify whisper.safetensors --key embed_positions.weight
  posenc verify pe.zarr --samples 20 --json
"""


def add_verify(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "verify", "recompute a file and compare its bits", VERIFY_EXAMPLES)
    add_table(parser)
    add_range(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--samples", type=positive, default=1000, metavar="K", help="compare K rows (default 1000)")
    which.add_argument("--all", action="store_true", help="compare every row")
    add_output(parser)
    add_convention(parser, "; where not given, what a .safetensors or .zarr says of itself")
    parser.set_defaults(run=verify)


def verify(args: argparse.Namespace) -> int:
    begin = time.perf_counter()
    with table_of(args) as table:
        rows, d_model = table.shape
        described, positions = table.described or (None, range(0))
        positions = positions_of(args, rows, positions)
        encoding = encoding_of(args, d_model, described)
        refuse_outside(encoding, positions, args.threads)
        samples = rows if args.all else min(rows, args.samples)
        with progress_bar(samples * table.row_bytes) as progress:
            mismatch = first_mismatch(table, encoding, positions, samples, args.threads, progress)
    seconds = time.perf_counter() - begin
    document = {
        "path": args.file,
        "shape": [rows, d_model],
        "dtype": table.dtype,
        "start": positions.start,
        "step": positions.step,
        "convention": changes_of(encoding),
        "equal": mismatch is None,
        "mismatch": mismatch,
        "rows_compared": samples if mismatch is None else None,
        "seconds": seconds,
        "threads": args.threads,
        "version": posenc.__version__,
    }
    if mismatch is None:
        report(args, document, f"{args.file}: {samples} of {rows} rows compared, every bit equal")
        return OK
    if args.json:
        report(args, document)
    message = "position {position}, column {column}: found {found} ({found_bits}), expected {expected} ({expected_bits})"
    raise Failure(f"{args.file}: {message.format(**mismatch)}")


def first_mismatch(
    table: Readable,
    encoding: posenc.Encoding,
    positions: range,
    samples: int,
    threads: int | None,
    progress: Callable[[int], object],
) -> dict[str, Any] | None:
    """Where the table first differs from the encodings, as a dict, or None."""
    buffer = row_buffer(len(positions), encoding.d_model, table.dtype)
    if not buffer.size:
        return None
    for rows in parts(len(positions), samples, len(buffer)):
        found = table.read(rows.start, len(rows))
        values = encoding.encode(
            positions[rows.start : rows.stop], dtype=table.dtype, out=buffer[: len(rows)], threads=threads
        )
        expected = values.view(found.dtype)
        if not np.array_equal(found, expected):
            row, column = np.argwhere(found != expected)[0].tolist()
            return {
                "position": positions[rows.start + row],
                "row": rows.start + row,
                "column": column,
                "found": value_of(found[row, column], table.dtype),
                "expected": value_of(expected[row, column], table.dtype),
                "found_bits": f"{found[row, column]:#x}",
                "expected_bits": f"{expected[row, column]:#x}",
            }
        progress(found.nbytes)
    return None


def parts(rows: int, samples: int, most: int) -> Iterator[range]:
    """Rows to compare, as ranges: all of them, at most so many at once, or samples one by one."""
    if samples == rows:
        return (range(first, min(first + most, rows)) for first in range(0, rows, most))
    return (range(row, row + 1) for row in sampled(rows, samples))


def sampled(rows: int, samples: int) -> Iterator[int]:
    """One row from each of so many parts of equal size, the same every time, the first and the last row among them."""
    choice = random.Random(0)
    for k in range(samples):
        first, last = k * rows // samples, (k + 1) * rows // samples - 1
        if k == samples - 1:
            yield last
        else:
            yield choice.randint(first, last) if k else first


def value_of(bits: Any, dtype: str) -> float | str:
    """The number that bits stand for, or its name where JSON has no number for it."""
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << np.uint32(16), "float32"
    value = bits.view(dtype)
    # its shortest decimals, not those of the float64 that holds it
    return float(str(value)) if math.isfinite(value) else str(value)


# ---- identify -------------------------------------------------------------------------------------------------------

IDENTIFY_EXAMPLES = """\
examples:
  posenc identify pe.npy
  posenc identify late.npy --start 1_700_000_000 --json
  posenc identify whisper.safetensors --key embed_positions.weight
"""


def add_identify(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "identify", "name the convention of the table in a file", IDENTIFY_EXAMPLES)
    add_table(parser)
    parser.add_argument("--start", type=integer, metavar="INT", help="position of the first row (by default searched)")
    parser.add_argument("--step", type=integer, metavar="INT", help="from one row to the next (default 1 with --start)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=identify)


def identify(args: argparse.Namespace) -> int:
    if args.step is not None and args.start is None:
        raise ValueError("--step is given, expected --start, too")
    with table_of(args) as table:
        positions = None if args.start is None else positions_of(args, table.shape[0])
        matches = _identify.identify_file(table, positions)
    document = {
        "path": args.file,
        "shape": list(table.shape),
        "dtype": table.dtype,
        "matches": [match_document(match) for match in matches],
        "version": posenc.__version__,
    }
    report(args, document, "\n".join(map(str, matches)) or "none")
    return OK if matches else FAILED


def match_document(match: posenc.Match) -> dict[str, Any]:
    """A match as JSON can hold it."""
    assert isinstance(match.positions, range)       # as they were given, or searched
    return {
        "presets": list(match.presets),
        "convention": changes_of(match.encoding),
        "start": match.positions.start,
        "step": match.positions.step,
        "difference": match.difference if math.isfinite(match.difference) else None,
        "reason": match.reason,
    }


# ---- info -----------------------------------------------------------------------------------------------------------


INFO_EXAMPLES = """\
examples:
  posenc info
  posenc info --json
"""


def add_info(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "info", "print what is installed and what runs", INFO_EXAMPLES)
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=info)


def info(args: argparse.Namespace) -> int:
    runtime = posenc.show_runtime()
    width = max(map(len, runtime))
    report(args, runtime, "\n".join(f"{name:{width}}  {in_words(value)}" for name, value in runtime.items()))
    return OK


def in_words(value: object) -> object:
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value


# ---- bench ----------------------------------------------------------------------------------------------------------


BENCH_EXAMPLES = """\
examples:
  posenc bench
  posenc bench --threads 1 --json > figures.json
"""


def add_bench(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "bench", "measure this machine, beside memset, torch and NumPy", BENCH_EXAMPLES)
    parser.add_argument("--threads", type=positive, metavar="N", help="at most so many threads (default: all allowed)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=bench)


def bench(args: argparse.Namespace) -> int:
    with progress_bar(len(_bench.CASES), unit=" rows") as progress:
        document = _bench.run(args.threads, progress)
    report(args, document, _bench.in_words(document))
    return OK


# ---- plot -----------------------------------------------------------------------------------------------------------

PLOT_EXAMPLES = """\
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


def add_plot(commands: argparse._SubParsersAction[Parser]) -> None:
    parser = add_command(commands, "plot", "draw a picture of an encoding", PLOT_EXAMPLES)
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
    parser.set_defaults(run=plot)


def plot(args: argparse.Namespace) -> int:
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


# ---- the program ----------------------------------------------------------------------------------------------------

COMMANDS = (add_generate, add_verify, add_identify, add_info, add_bench, add_plot)


def build_parser() -> Parser:
    parser = Parser(
        prog="posenc",
        description="Sinusoidal positional encodings, correctly rounded.",
        epilog="examples:\n  posenc generate 10_000 512 -o pe.npy\n  posenc COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(commands)
    return parser


class Parser(argparse.ArgumentParser):
    """Without abbreviated options, which a later version could make ambiguous, also in subcommands."""

    def __init__(self, **keywords: Any) -> None:
        super().__init__(allow_abbrev=False, **keywords)


def join_negatives(argv: Iterable[str]) -> list[str]:
    """``--start -1e6`` as ``--start=-1e6``: argparse takes -1e6 for an option."""
    joined: list[str] = []
    for word in argv:
        if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and re.match(r"-[\d.]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


@contextmanager
def ending_on_signals() -> Iterator[None]:
    """Has the signals that ask a program to end raise SystemExit, so that it tidies up; leaves a host's handlers alone."""
    def end(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ours = []
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def stderr_there() -> Iterator[None]:
    """Has errors go nowhere where stderr is closed: print would take stdout, and the next open file the descriptor 2."""
    if sys.stderr is not None:
        yield
        return
    with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):
        yield


def complain(text: object) -> None:
    with suppress(OSError):             # nobody is left to be told
        print(f"posenc: error: {text}", file=sys.stderr)


def check_settings() -> None:
    """Variables of the environment that mean nothing are no wrong usage of a command."""
    try:
        _kernel.check_settings()
    except ValueError as error:
        raise Failure(error) from error


def run(argv: Sequence[str]) -> int:
    """Runs the program; its own exceptions end here, as exit codes."""
    try:
        args = build_parser().parse_args(join_negatives(argv))
        check_settings()
        code: int = args.run(args)
        return code
    except SystemExit as ending:        # --help, wrong usage, a signal
        return ending.code if isinstance(ending.code, int) else OK
    except FileExistsError as error:
        complain(f"{error.filename} exists; --force overwrites it")
        return FAILED
    except (TypeError, ValueError) as error:
        complain(error)
        return USAGE
    except BrokenPipeError:
        raise
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}" if error.filename else error)
        return FAILED
    except MemoryError as error:
        complain(f"out of memory: {error}")
        return FAILED
    except Failure as error:
        complain(error)
        return FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the program.

    Parameters
    ----------
    argv : list of str, optional
        The words after the program's name; by default those of the process.

    Returns
    -------
    int
        The exit code.

    Examples
    --------
    >>> from posenc._cli import main
    >>> main(["generate", "10", "8"])
    2
    """
    code = OK
    with stderr_there():
        try:
            with ending_on_signals():
                code = run(sys.argv[1:] if argv is None else argv)
                if sys.stdout:          # none where it was closed
                    sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            complain("interrupted")
            return INTERRUPTED
        except OSError as error:        # of stdout: others end in `run`; Python must not try again at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):      # whoever read our output has seen enough
                return UNREAD
            if code == OK:
                complain(f"stdout: {error.strerror}")
            return FAILED
