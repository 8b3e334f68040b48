"""The command line: ``posenc``, or ``python -m posenc``.

Data and results go to stdout, progress and errors to stderr.  Exit codes: 0 for success, 1 for a failure, 2 for wrong usage,
130 after Ctrl-C.
"""

import argparse
import json
import math
import os
import random
import signal
import sys
import threading
import time
from contextlib import contextmanager
from decimal import Decimal, InvalidOperation

OK, FAILED, USAGE, INTERRUPTED = 0, 1, 2, 130

EXAMPLES = """\
examples:
  posenc generate 1_000_000 512 -o pe.npy
  posenc generate 1e6 512 -o late.npy --start 1_700_000_000 --dtype float64
  posenc generate 1500 384 -o whisper.npy --layout halves --spacing endpoint
  posenc verify whisper.npy --all --layout halves --spacing endpoint
  posenc info --json
"""


class Failure(Exception):
    """Ends the program with a message and exit code 1."""


# ---- values on the command line -------------------------------------------------------------------------------------


def integer(text):
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


def count(text):
    """A whole number that is not negative."""
    number = integer(text)
    if number < 0:
        raise argparse.ArgumentTypeError(f"{text} is negative")
    return number


def real(text):
    """A real number."""
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text} is not a number") from None


def real_list(text):
    """Real numbers, separated by commas."""
    return [real(number) for number in text.split(",")]


def npy_path(text):
    """A path that ends in .npy."""
    if os.path.splitext(text)[1] != ".npy":
        raise argparse.ArgumentTypeError(f"{text} is not a supported kind of file: the name must end in .npy")
    return text


# ---- options that subcommands share ---------------------------------------------------------------------------------

# keyword of posenc.Encoding: how argparse reads it; the default is the library's
CONVENTION = {
    "base": {"type": real, "metavar": "X", "help": "frequency i is base**(-i/D) (default 10000)"},
    "frequency_scale": {"type": real, "metavar": "X", "help": "multiplies the frequencies"},
    "position_offset": {"type": real, "metavar": "X", "help": "added to the positions"},
    "position_scale": {"type": real, "metavar": "X", "help": "multiplies position + offset"},
    "scale": {"type": real, "metavar": "X", "help": "multiplies the values"},
    "odd": {"choices": ("truncate", "zero", "error"), "help": "what an odd number of columns means"},
    "spacing": {"choices": ("paper", "endpoint"), "help": "of the frequencies; endpoint: the slowest is 1/base"},
    "shift": {"type": real, "metavar": "X", "help": "D = columns/2 - shift"},
    "exponents": {"choices": ("pair", "column"), "help": "whether two columns share a frequency"},
    "frequencies": {"type": real_list, "metavar": "A,B,C", "help": "in place of base, spacing, shift and frequency scale"},
    "layout": {"choices": ("interleaved", "halves"), "help": "order of the columns"},
    "order": {"choices": ("sin", "cos"), "help": "the first function of a pair"},
}


def add_convention(parser):
    """Adds an option for every convention keyword of `posenc.Encoding`."""
    group = parser.add_argument_group("convention", "the defaults are those of 'Attention is all you need'")
    for keyword, reading in CONVENTION.items():
        group.add_argument(f"--{keyword.replace('_', '-')}", default=argparse.SUPPRESS, **reading)


def convention(args):
    """The convention keywords that were given, as a dict."""
    return {keyword: value for keyword, value in vars(args).items() if keyword in CONVENTION}


def add_range(parser):
    """Adds the options that say which positions the rows have."""
    parser.add_argument("--start", type=integer, default=0, metavar="INT", help="position of the first row (default 0)")
    parser.add_argument("--step", type=integer, default=1, metavar="INT", help="from one row to the next (default 1)")


def positions_of(args, rows):
    """The positions of so many rows."""
    if not args.step:
        raise ValueError("--step is 0, expected another number")
    return range(args.start, args.start + rows * args.step, args.step)


def add_output(parser):
    """Adds the options on how to run and to report."""
    parser.add_argument("--threads", type=integer, metavar="K", help="at most so many threads")
    parser.add_argument("--json", action="store_true", help="print one JSON document")


def report(args, document, text):
    """Prints a result: for programs, or for people."""
    print(json.dumps(document, allow_nan=False) if args.json else text)


@contextmanager
def progress_bar(size):
    """What to call with each number of bytes done; shows a bar if stderr is a terminal and tqdm is installed."""
    try:
        from tqdm import tqdm
    except ImportError:
        yield lambda done: None
        return
    with tqdm(total=size, unit="B", unit_scale=True, disable=None) as bar:
        yield bar.update


def rate(size, seconds):
    return f"{size / 1e9:.3g} GB in {seconds:.3g} s, {size / 1e9 / seconds:.3g} GB/s"


# ---- generate -------------------------------------------------------------------------------------------------------


def add_generate(commands):
    parser = commands.add_parser("generate", help="write a table to a .npy file")
    parser.add_argument("n", type=count, metavar="N", help="number of positions: 1000000, 1_000_000 or 1e6")
    parser.add_argument("d_model", type=count, metavar="D", help="number of columns")
    parser.add_argument("-o", "--output", type=npy_path, required=True, metavar="FILE.npy")
    parser.add_argument("--dtype", choices=("float32", "float64", "float16", "bfloat16"), default="float32",
                        help="default float32; bfloat16 is stored as uint16, .npy has no such type")
    add_range(parser)
    parser.add_argument("--force", action="store_true", help="overwrite the file")
    add_output(parser)
    add_convention(parser)
    parser.set_defaults(run=generate)


def generate(args):
    import posenc
    from posenc import _files

    positions = positions_of(args, args.n)
    encoding = posenc.Encoding(args.d_model, **convention(args))
    begin = time.perf_counter()
    with progress_bar(args.n * args.d_model * _files.itemsize(args.dtype)) as progress:
        size = _files.write_npy(
            args.output, encoding, positions, args.dtype, threads=args.threads, force=args.force, progress=progress
        )
    seconds = time.perf_counter() - begin
    stored = " (stored as uint16)" if args.dtype == "bfloat16" else ""
    document = {
        "path": args.output,
        "shape": [args.n, args.d_model],
        "dtype": args.dtype,
        "stored_dtype": "uint16" if stored else args.dtype,
        "start": args.start,
        "step": args.step,
        "convention": convention(args),
        "bytes": size,
        "seconds": seconds,
        "bytes_per_second": size / seconds,
        "threads": args.threads or posenc.show_runtime()["threads"],
        "version": posenc.__version__,
    }
    report(args, document, f"{args.output}: {args.n} x {args.d_model} {args.dtype}{stored}, {rate(size, seconds)}")
    return OK


# ---- verify ---------------------------------------------------------------------------------------------------------


def add_verify(commands):
    parser = commands.add_parser("verify", help="recompute a .npy file and compare its bits")
    parser.add_argument("file", metavar="FILE", help="of float32, float64, float16, or uint16 for bfloat16")
    add_range(parser)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--samples", type=count, default=1000, metavar="K", help="compare K rows (default 1000)")
    which.add_argument("--all", action="store_true", help="compare every row")
    add_output(parser)
    add_convention(parser)
    parser.set_defaults(run=verify)


def verify(args):
    import posenc
    from posenc import _files

    begin = time.perf_counter()
    with open(args.file, "rb", buffering=0) as file:
        try:
            table = _files.read_table(file)
        except ValueError as error:     # of the file, not of the arguments
            raise Failure(error) from error
        rows, d_model = table.shape
        positions = positions_of(args, rows)
        encoding = posenc.Encoding(d_model, **convention(args))
        samples = rows if args.all else min(rows, args.samples)
        with progress_bar(samples * table.row_bytes) as progress:
            mismatch = first_mismatch(table, encoding, positions, parts_of(table, samples), args.threads, progress)
    seconds = time.perf_counter() - begin
    document = {
        "path": args.file,
        "shape": [rows, d_model],
        "dtype": table.dtype,
        "start": args.start,
        "step": args.step,
        "convention": convention(args),
        "equal": mismatch is None,
        "mismatch": mismatch,
        "rows_compared": samples if mismatch is None else None,
        "bytes": samples * table.row_bytes,
        "seconds": seconds,
        "bytes_per_second": samples * table.row_bytes / seconds,
        "threads": args.threads or posenc.show_runtime()["threads"],
        "version": posenc.__version__,
    }
    if mismatch is None:
        report(args, document, f"{args.file}: {samples} of {rows} rows compared, every bit equal")
        return OK
    if args.json:
        report(args, document, "")
    raise Failure("{}: position {position}, column {column}: found {found}, expected {expected}".format(args.file, **mismatch))
