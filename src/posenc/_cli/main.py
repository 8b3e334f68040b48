"""The command line: ``posenc``, or ``python -m posenc``.

Data and results are written to stdout, progress and errors to stderr.  The exit code is 0 for success, 1 for a failure, 2 for
wrong usage, and 128 plus the signal's number after a signal: 130 for Ctrl-C, 141 if the reader of stdout closes the pipe.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress

import posenc
from posenc._cli import bench, check, generate, identify, info, plot, presets, verify
from posenc._cli.options import DOCUMENTATION, FAILED, Failure, add_command
from posenc._core import kernel
from posenc._files.formats import is_url

INTERRUPTED, BROKEN_PIPE = 130, 141


def parser() -> argparse.ArgumentParser:
    program = argparse.ArgumentParser(
        "posenc", description="Sinusoidal positional encodings, correctly rounded.", allow_abbrev=False,
        epilog=f"examples:\n  posenc generate 10_000 512 -o pe.npy\n  posenc COMMAND --help\n\n{DOCUMENTATION}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    commands = program.add_subparsers(metavar="COMMAND", required=True)
    for command in (generate, verify, identify, check, presets, info, bench, plot):
        add_command(commands, command)
    return program


def exit_on_signals() -> None:
    """Raise SystemExit on SIGTERM and SIGHUP, so that temporary files are removed; keep handlers of the host program."""
    for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
        if threading.current_thread() is threading.main_thread() and signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda number, frame: sys.exit(128 + number))


def print_error(error: object, code: int = FAILED) -> int:
    """Print an error in one line, as a file name may contain line breaks, and return the exit code."""
    with suppress(OSError):             # the reader of stderr has closed the pipe
        print("posenc: error:", in_one_line(error), file=sys.stderr)
    return code


def in_one_line(error: object) -> str:
    return r"\n".join(str(error).splitlines())


def run(argv: Sequence[str] | None) -> int:
    """Run a command and return the exit code; print its exceptions as errors."""
    args, words = parser().parse_known_args(argv or sys.argv[1:] or ["--help"])
    if words:                           # the command's own usage, not that of the program
        args.parser.error(f"unrecognized arguments: {' '.join(words)}")
    try:
        kernel.check_settings()
    except ValueError as error:         # an invalid environment variable is a failure, not wrong usage
        return print_error(error)
    try:
        return int(args.run(args))
    except (TypeError, ValueError) as error:
        sys.exit(args.parser.error(in_one_line(error)))
    except BrokenPipeError:
        return BROKEN_PIPE
    except FileExistsError as error:
        return print_error(f"{error.filename} exists; --force overwrites it")
    except OSError as error:
        return print_error(f"{error.filename}: {error.strerror}" if error.filename else error.strerror or error)
    except (Failure, ImportError, MemoryError) as error:
        return print_error(error)
    except Exception as error:          # a library that accesses URLs may raise its own exceptions
        url = getattr(args, "output", getattr(args, "file", None))
        if not is_url(url):
            raise
        return print_error(f"{url}: {type(error).__name__}: {error}")


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
    >>> main(["info", "extra"])
    2
    """
    if sys.stderr is None:              # closed; otherwise print would write errors to stdout
        sys.stderr = open(os.devnull, "w")      # noqa: SIM115  until the process ends
    try:
        exit_on_signals()
        code = run(argv)
    except SystemExit as end:           # --help, wrong usage, a signal
        code = end.code if isinstance(end.code, int) else 0
    except KeyboardInterrupt:
        code = print_error("interrupted", INTERRUPTED)
    try:
        if sys.stdout:                  # None if closed
            sys.stdout.flush()
    except OSError as error:            # Python flushes stdout again at exit, so discard the rest of the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        is_pipe = isinstance(error, BrokenPipeError)
        code = BROKEN_PIPE if is_pipe else code or print_error(f"stdout: {error.strerror}")
    return code
