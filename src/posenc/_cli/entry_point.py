"""The command line: ``posenc``, or ``python -m posenc``.

Data and results are written to stdout, progress and errors to stderr.  The exit code is 0 for success, 1 for a failure, 2 for
wrong usage, and 128 plus the signal's number after a signal: 130 for Ctrl-C, 141 if the reader of stdout closes the pipe.
"""

from __future__ import annotations

import argparse
import os
import re
import signal
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from types import FrameType

import posenc
from posenc._cli import bench, check, generate, identify, info, plot, presets, verify
from posenc._cli.options import DOCUMENTATION, FAILED, OK, Failure
from posenc._cli.parser import Parser, UsageError, nearest
from posenc._core import kernel
from posenc._files.urls import is_url

USAGE, INTERRUPTED, BROKEN_PIPE = 2, 130, 141
COMMANDS = (generate, verify, identify, check, presets, info, bench, plot)


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Parse the arguments of the program; without arguments, print its help."""
    parser = Parser(
        prog="posenc",
        description="Sinusoidal positional encodings, correctly rounded.",
        epilog=f"examples:\n  posenc generate 10_000 512 -o pe.npy\n  posenc COMMAND --help\n\n{DOCUMENTATION}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    word, *rest = join_negatives(argv) or ["--help"]
    if word in commands.choices:
        commands.choices[word].check_options(rest)
    elif word.startswith("-"):
        parser.check_options([word])
    else:
        raise UsageError(f"unknown command {word!r}", f"posenc {nearest(word, commands.choices) or '--help'}")
    args, others = parser.parse_known_args([word, *rest])
    if others:
        raise UsageError(f"unexpected argument {others[0]!r}", args.parser.example())
    return args


def join_negatives(argv: Iterable[str]) -> list[str]:
    """Replace ``--start -1e6`` with ``--start=-1e6``, because argparse would read -1e6 as an option."""
    joined: list[str] = []
    for word in argv:
        if joined and re.fullmatch(r"--[a-z-]+", joined[-1]) and re.match(r"-[\d.]", word):
            joined[-1] += f"={word}"
        else:
            joined.append(word)
    return joined


@contextmanager
def exit_on_signals() -> Iterator[None]:
    """Raise SystemExit on SIGTERM and SIGHUP, so that temporary files are removed; keep handlers set by the host program."""
    def raise_exit(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signals = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    unhandled = []
    if threading.current_thread() is threading.main_thread():
        unhandled = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    for number in unhandled:
        signal.signal(number, raise_exit)
    try:
        yield
    finally:
        for number in unhandled:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def discard_errors_if_stderr_is_closed() -> Iterator[None]:
    """Redirect a closed stderr to the null device.

    Otherwise ``print(file=sys.stderr)`` would write to stdout, and the next file that is opened would have descriptor 2.
    """
    if sys.stderr is not None:
        yield
        return
    with open(os.devnull, "w") as null, redirect_stderr(null):
        yield


def print_error(text: object, *hints: str) -> None:
    line = r"\n".join(str(text).splitlines())          # a file name may contain line breaks
    with suppress(OSError):             # the reader of stderr has closed the pipe
        print(f"posenc: error: {line}", *(f"try: {hint}" for hint in hints), sep="\n", file=sys.stderr)


def run(argv: Sequence[str]) -> int:
    """Run a command and return the exit code; print its exceptions as errors."""
    try:
        args = parse(argv)
        try:
            kernel.check_settings()
        except ValueError as error:     # an invalid environment variable is a failure, not wrong usage
            raise Failure(error) from error
        try:
            code: int = args.run(args)
        except (TypeError, ValueError) as error:
            args.parser.refuse(error)
        except (OSError, MemoryError, Failure):
            raise
        except Exception as error:      # a library that accesses URLs may raise its own exceptions, or be missing
            url = getattr(args, "output", getattr(args, "file", None))
            if not is_url(url):
                raise
            raise Failure(f"{url}: {type(error).__name__}: {error}") from error
        return code
    except SystemExit as end:           # --help, a signal
        return end.code if isinstance(end.code, int) else OK
    except UsageError as error:
        print_error(*error.args)
        return USAGE
    except BrokenPipeError:
        raise
    except FileExistsError as error:
        print_error(f"{error.filename} exists; --force overwrites it")
    except OSError as error:
        print_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error)
    except MemoryError as error:
        print_error(f"out of memory: {error}")
    except Failure as error:
        print_error(*error.args)
    return FAILED


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program.

    Parameters
    ----------
    argv : list of str, optional
        The arguments that follow the program's name; by default, those of the process.

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
    with discard_errors_if_stderr_is_closed():
        try:
            with exit_on_signals():
                code = run(sys.argv[1:] if argv is None else argv)
                if sys.stdout:          # None if closed
                    sys.stdout.flush()
            return code
        except KeyboardInterrupt:
            print_error("interrupted")
            return INTERRUPTED
        except OSError as error:        # Python flushes stdout again at exit, so discard the rest of the output
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            if isinstance(error, BrokenPipeError):
                return BROKEN_PIPE
            if code == OK:
                print_error(f"stdout: {error.strerror}")
            return FAILED
