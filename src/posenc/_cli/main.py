"""The command line: ``posenc``, or ``python -m posenc``.

Data and results are written to stdout, errors to stderr.  The exit code is 0 for success, 1 for
an error, 2 if argparse refuses the command line, and 128 plus the signal's number after a signal: 130 for
Ctrl-C, 141 if the reader of stdout closes the pipe.
"""

import argparse
import inspect
import os
import signal
import sys
from collections.abc import Sequence
from contextlib import suppress

import posenc
from posenc._cli import bench, check, files
from posenc._cli.options import FAILED, OK, report

INTERRUPTED, BROKEN_PIPE = 130, 141
DOCUMENTATION = "documentation: in Python, help(posenc.Encoding)"


def parser() -> argparse.ArgumentParser:
    """Return the parser.  A command is a function, whose docstring has the purpose and examples."""
    program = argparse.ArgumentParser(
        "posenc", description="Sinusoidal positional encodings, correctly rounded.", allow_abbrev=False,
        epilog=f"examples:\n  posenc generate 10_000 512 -o pe.npy\n  posenc COMMAND --help\n\n{DOCUMENTATION}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    program.add_argument("--version", action="version", version=f"posenc {posenc.__version__}")
    commands = program.add_subparsers(metavar="COMMAND", required=True)
    for run, add_options in (
        (files.generate, files.add_generate_options), (files.verify, files.add_verify_options),
        (check.identify, check.add_identify_options), (check.check, check.add_check_options),
        (presets, None), (info, None), (bench.bench, None), (files.plot, files.add_plot_options),
    ):
        purpose, _, examples = inspect.cleandoc(run.__doc__ or "").partition("\n\n")
        command = commands.add_parser(
            run.__name__, help=purpose, description=purpose, epilog=f"{examples}\n\n{DOCUMENTATION}",
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        command.add_argument("--json", action="store_true", help="print one JSON document")
        command.set_defaults(run=run)
        if add_options:
            add_options(command)
    return program


def presets(args: argparse.Namespace) -> None:
    """List the conventions of known models.

    examples:
      posenc presets
      posenc presets --json
      posenc generate 1500 384 -o whisper.npy --preset whisper
    """
    known, keys = posenc.presets().values(), ("name", "summary", "source", "parameters")
    documents = [{key: getattr(preset, key) for key in keys} for preset in known]
    report(args, {"presets": documents}, "\n".join(f"{preset.name:22}{preset.summary}" for preset in known))


def info(args: argparse.Namespace) -> None:
    """Print the versions, kernels and threads in use.

    examples:
      posenc info
      posenc info --json
    """
    runtime = posenc.show_runtime()
    lines = runtime | {"openmp": runtime["openmp"] or "none: every call uses one thread"}
    report(args, runtime, "\n".join(f"{name.replace('_', ' '):18}{value}" for name, value in lines.items()))


def exit_on_signals() -> None:
    """Raise SystemExit on SIGTERM and SIGHUP, so that temporary files are removed.

    Keep handlers of the host program.
    """
    with suppress(ValueError):          # only the main thread can set handlers
        for number in (signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)):
            if signal.getsignal(number) is signal.SIG_DFL:
                signal.signal(number, lambda number, frame: sys.exit(128 + number))


def print_error(error: object, code: int = FAILED) -> int:
    """Print an error in one line, as a file name may contain line breaks, and return the exit code."""
    with suppress(OSError):             # the reader of stderr has closed the pipe
        print("posenc: error:", r"\n".join(str(error).splitlines()), file=sys.stderr)
    return code


def run(argv: Sequence[str] | None) -> int:
    """Run a command and return the exit code; print its exceptions as errors."""
    args = parser().parse_args(argv or sys.argv[1:] or ["--help"])
    try:
        return args.run(args) or OK
    except BrokenPipeError:
        return BROKEN_PIPE
    except FileExistsError as error:
        return print_error(f"{error.filename} exists; --force overwrites it")
    except OSError as error:
        path = f"{error.filename}: " if error.filename else ""
        return print_error(f"{path}{error.strerror or error}")
    except (TypeError, ValueError, ImportError, MemoryError) as error:
        return print_error(error)


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
    except OSError as error:        # Python flushes stdout again at exit, so discard the rest of the output
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        is_pipe = isinstance(error, BrokenPipeError)
        code = BROKEN_PIPE if is_pipe else code or print_error(f"stdout: {error.strerror}")
    return code
