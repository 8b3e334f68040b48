"""The command line: ``posenc``, or ``python -m posenc``.

Data and results go to stdout, progress and errors to stderr.  Exit codes: 0 for success, 1 for a failure, 2 for wrong usage,
and 128 more than the signal's number where one ends the program: 130 after Ctrl-C, 141 (SIGPIPE) after a reader has left.
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
from posenc import _kernel
from posenc._cli import bench, generate, identify, info, plot, verify
from posenc._cli.options import FAILED, OK, Failure, Parser

USAGE, INTERRUPTED, UNREAD = 2, 130, 141
COMMANDS = (generate, verify, identify, info, bench, plot)


def build_parser() -> Parser:
    parser = Parser(
        prog="posenc",
        description="Sinusoidal positional encodings, correctly rounded.",
        epilog="examples:\n  posenc generate 10_000 512 -o pe.npy\n  posenc COMMAND --help",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(commands)
    return parser


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
