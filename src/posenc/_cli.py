"""The command line: ``posenc``, or ``python -m posenc``.

Data and results go to stdout, progress and errors to stderr.  Exit codes: 0 for success, 1 for a failure, 2 for wrong usage,
130 after Ctrl-C.
"""

import argparse
import json
import math
import os
import random
import re
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
  posenc identify whisper.npy
  posenc info --json
  posenc bench --quick --only float32
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
    "padding_idx": {"type": integer, "metavar": "INT", "help": "the position whose row is all zeros"},
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
        "threads": args.threads,
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


def without_waiting(path, flags):
    """Opens a file; a named pipe without a writer too, which is then refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


def verify(args):
    import posenc
    from posenc import _files

    begin = time.perf_counter()
    with open(args.file, "rb", buffering=0, opener=without_waiting) as file:
        try:
            table = _files.read_table(file)
        except ValueError as error:     # of the file, not of the arguments
            raise Failure(error) from error
        rows, d_model = table.shape
        positions = positions_of(args, rows)
        encoding = posenc.Encoding(d_model, **convention(args))
        _files.refuse_outside(encoding, positions, args.threads)
        samples = rows if args.all else min(rows, args.samples)
        with progress_bar(samples * table.row_bytes) as progress:
            mismatch = first_mismatch(table, encoding, positions, samples, args.threads, progress)
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
        "seconds": seconds,
        "threads": args.threads,
        "version": posenc.__version__,
    }
    if mismatch is None:
        report(args, document, f"{args.file}: {samples} of {rows} rows compared, every bit equal")
        return OK
    if args.json:
        report(args, document, None)
    message = "position {position}, column {column}: found {found} ({found_bits}), expected {expected} ({expected_bits})"
    raise Failure(f"{args.file}: {message.format(**mismatch)}")


def first_mismatch(table, encoding, positions, samples, threads, progress):
    """Where the table first differs from the encodings, as a dict, or None."""
    import numpy as np
    from posenc import _files

    buffer = _files.row_buffer(*table.shape, table.dtype)
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


def parts(rows, samples, most):
    """Rows to compare, as ranges: all of them, at most so many at once, or samples one by one."""
    if samples == rows:
        return (range(first, min(first + most, rows)) for first in range(0, rows, most))
    return (range(row, row + 1) for row in sampled(rows, samples))


def sampled(rows, samples):
    """One row from each of so many parts of equal size, the same every time, the first and the last row among them."""
    choice = random.Random(0)
    for k in range(samples):
        first, last = k * rows // samples, (k + 1) * rows // samples - 1
        if k == samples - 1:
            yield last
        else:
            yield choice.randint(first, last) if k else first


def value_of(bits, dtype):
    """The number that bits stand for, or its name where JSON has no number for it."""
    import numpy as np

    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << 16, "float32"
    value = bits.view(dtype)
    # its shortest decimals, not those of the float64 that holds it
    return float(str(value)) if math.isfinite(value) else str(value)


# ---- identify -------------------------------------------------------------------------------------------------------


def add_identify(commands):
    parser = commands.add_parser("identify", help="name the convention of the table in a .npy file")
    parser.add_argument("file", metavar="FILE", help="of float32, float64, float16, or uint16 for bfloat16")
    parser.add_argument("--start", type=integer, metavar="INT", help="position of the first row (by default searched)")
    parser.add_argument("--step", type=integer, metavar="INT", help="from one row to the next (default 1 with --start)")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=identify)


def identify(args):
    import posenc
    from posenc import _files, _identify

    if args.step is not None and args.start is None:
        raise ValueError("--step is given, expected --start, too")
    with open(args.file, "rb", buffering=0, opener=without_waiting) as file:
        try:
            table = _files.read_table(file, squeeze=True)
        except ValueError as error:     # of the file, not of the arguments
            raise Failure(error) from error
        positions = None
        if args.start is not None:
            args.step = 1 if args.step is None else args.step
            positions = positions_of(args, table.shape[0])
        matches = _identify.identify_file(table, positions)
    document = {
        "path": args.file,
        "shape": list(table.shape),
        "dtype": table.dtype,
        "matches": [described(match) for match in matches],
        "version": posenc.__version__,
    }
    report(args, document, "\n".join(map(str, matches)) or "none")
    return OK if matches else FAILED


def described(match):
    """A match as JSON can hold it."""
    return {
        "presets": list(match.presets),
        "convention": match.encoding._changes(),
        "start": match.positions.start,
        "step": match.positions.step,
        "difference": match.difference if math.isfinite(match.difference) else None,
        "reason": match.reason,
    }


# ---- info -----------------------------------------------------------------------------------------------------------


def add_info(commands):
    parser = commands.add_parser("info", help="print what is installed and what runs")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    parser.set_defaults(run=info)


def info(args):
    import posenc

    runtime = posenc.show_runtime()
    width = max(map(len, runtime))
    report(args, runtime, "\n".join(f"{name:{width}}  {in_words(value)}" for name, value in runtime.items()))
    return OK


def in_words(value):
    return ", ".join(f"{k}: {v}" for k, v in value.items()) if isinstance(value, dict) else value


# ---- the program ----------------------------------------------------------------------------------------------------


# ---- bench ----------------------------------------------------------------------------------------------------------


def add_bench(commands):
    from posenc import _bench

    parser = commands.add_parser("bench", help="measure this machine, beside its roof line and the rivals that are installed")
    _bench.add_arguments(parser)
    parser.set_defaults(run=_bench.run)


def build_parser():
    from posenc import __version__

    parser = Parser(
        prog="posenc",
        description="Sinusoidal positional encodings, correctly rounded.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"posenc {__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in (add_generate, add_verify, add_identify, add_info, add_bench):
        add(commands)
    return parser


class Parser(argparse.ArgumentParser):
    """Without abbreviated options, which a later version could make ambiguous, also in subcommands."""

    def __init__(self, **keywords):
        super().__init__(allow_abbrev=False, **keywords)


def join_negatives(argv):
    """``--start -1e6`` as ``--start=-1e6``: argparse takes -1e6 for an option."""
    joined = []
    for word in argv:
        if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and re.match(r"-[\d.]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


@contextmanager
def ending_on_signals():
    """Has the signals that ask a program to end raise SystemExit, so that it tidies up; leaves a host's handlers alone."""
    def end(number, frame):
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


def complain(text):
    print(f"posenc: error: {text}", file=sys.stderr)


def run(argv):
    """Runs the program; its own exceptions end here, as exit codes."""
    try:
        args = build_parser().parse_args(join_negatives(argv))
        return args.run(args)
    except SystemExit as ending:        # --help, wrong usage, a signal
        return ending.code or OK
    except FileExistsError as error:
        complain(f"{error.filename} exists; --force overwrites it")
        return USAGE
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


def main(argv=None):
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
    try:
        with ending_on_signals():
            code = run(sys.argv[1:] if argv is None else argv)
            if sys.stdout:              # none where it was closed
                sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        complain("interrupted")
        return INTERRUPTED
    except BrokenPipeError:             # whoever read our output has seen enough; Python must not try again at exit
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
