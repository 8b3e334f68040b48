"""Shared fixtures and helpers."""

import contextlib
import importlib.util
import os
import re
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import tracemalloc
from collections import Counter

import numpy as np
import pytest

import posenc
from posenc import _cli
from posenc._core import kernel
from posenc._core.exact import ExactColumns

# The tests start hundreds of processes.  Without files of bytecode, each of them would compile NumPy and
# posenc again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

DTYPES = ["float64", "float32", "float16", "bfloat16"]
HERE = [name for name, runs in kernel.instruction_sets().items() if runs]
PACKAGES = "ml_dtypes gmpy2 mpmath hypothesis pandas polars pyarrow dask matplotlib safetensors zarr threadpoolctl"
MISSING = [name for name in PACKAGES.split() if not importlib.util.find_spec(name)]

# the tables that tests of files write
ENCODING = posenc.Encoding(6, base=321.5, layout="halves", position_offset=0.5)
POSITIONS = range(50, -50, -3)

# values of d_model near multiples of a tile (32 columns); 510 gives a partial last tile and rows not aligned
# to cache lines
EDGE_SIZES = (1, 2, 3, 31, 32, 33, 64, 510, 512)


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config):
    """Without -n, use a process for each processor, at most four, if pytest-xdist is installed."""
    options = config.option
    if getattr(options, "numprocesses", 0) is None and not options.usepdb and "PYTEST_XDIST_WORKER" not in os.environ:
        options.numprocesses = min(4, os.cpu_count() or 1)
        options.dist = "worksteal"          # a process without tests takes tests from another one


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector):
    """Skip a file that imports a missing package."""
    return skipped_if_missing((yield), collector.path)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item):
    return skipped_if_missing((yield), item.path)


def skipped_if_missing(report, path):
    """Make a failure a skip if it names a package of the extra "test" that is not installed."""
    names = [n for n in MISSING if re.search(rf"\b{n}\b", str(report.longrepr))] if report.failed else []
    if names:
        report.outcome, report.longrepr = "skipped", (str(path), 1, f"requires {names[0]}")
    return report


def pytest_terminal_summary(terminalreporter):
    """Show each reason for which tests were skipped, such as a missing package."""
    reasons = Counter(report.longrepr[2].removeprefix("Skipped: ")
                      for report in terminalreporter.stats.get("skipped", ()))
    for reason, number in sorted(reasons.items()):
        terminalreporter.write_line(f"skipped {number}: {reason}")


@contextlib.contextmanager
def instruction_set(name):
    """Use the kernels for an instruction set inside the block."""
    before = kernel.instruction_set()
    kernel.use_instruction_set(name)
    try:
        yield name
    finally:
        kernel.use_instruction_set(before)


@pytest.fixture(params=HERE)
def isa(request):
    """Select each instruction set that this processor supports; yield its name."""
    with instruction_set(request.param):
        assert posenc.show_runtime()["instruction_set"] == request.param
        yield request.param


@pytest.fixture(params=DTYPES)
def dtype(request):
    return request.param


@pytest.fixture(params=EDGE_SIZES)
def d_model(request):
    return request.param


@pytest.fixture(params=["npy", "safetensors", "zarr"])
def path(request, tmp_path):
    """Return the path of a file of each format; it does not exist yet."""
    return tmp_path / f"pe.{request.param}"


@pytest.fixture
def call(capsys):
    """Return a function that runs the command line here and returns its exit code, stdout and stderr."""
    def call(*args):
        code = _cli.main([str(arg) for arg in args])
        return code, *capsys.readouterr()
    return call


@pytest.fixture
def heard_signals():
    """Let child processes receive termination signals, even if this process ignores them (nohup)."""
    numbers = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
    ignored = [number for number in numbers if signal.getsignal(number) == signal.SIG_IGN]
    for number in ignored:
        signal.signal(number, signal.default_int_handler)       # exec resets handlers, but keeps SIG_IGN
    yield
    for number in ignored:
        signal.signal(number, signal.SIG_IGN)


@contextlib.contextmanager
def interrupted(started):
    """Send SIGINT once `started()` is true, which the block must cause, and expect KeyboardInterrupt."""
    ended = threading.Event()

    def interrupt():
        while not started():
            if ended.wait(0.005):
                return
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    thread.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            yield
    finally:
        ended.set()
        thread.join()
        signal.signal(signal.SIGINT, before)


def names(folder):
    """Return the sorted names of the files in a folder."""
    return sorted(path.name for path in folder.iterdir())


def python(code, *args):
    """Return a command that runs Python code."""
    return [sys.executable, "-c", textwrap.dedent(code), *map(str, args)]


def python_output(code, *args, **variables):
    """Run Python code in a new process with these environment variables; return its output, stripped."""
    environment = os.environ | variables
    done = subprocess.run(python(code, *args), capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def main_without(package, *args):
    """Return a command that runs the posenc command line, where `package` cannot be imported."""
    code = f"import sys; sys.modules['{package}'] = None; from posenc._cli import main; sys.exit(main(sys.argv[1:]))"
    return python(code, *args)


def bytes_to_stdout_and_memory(*arguments):
    """Run the command line; return how many bytes it writes to stdout, and its peak of memory in bytes.

    The command has a parent of its own, because RUSAGE_CHILDREN is the maximum over all children.
    """
    size, peak = map(int, python_output("""
        import resource, subprocess, sys
        with subprocess.Popen([sys.executable, "-m", "posenc", *sys.argv[1:]], stdout=subprocess.PIPE) as process:
            size = sum(len(part) for part in iter(lambda: process.stdout.read(1 << 20), b""))
        assert process.returncode == 0
        print(size, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * (1 if sys.platform == "darwin" else 1024))
        """, *arguments).split())
    return size, peak


def peak_of(call):
    """Return the largest number of bytes that Python and NumPy have allocated during a call."""
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.fixture
def evaluations(monkeypatch):
    """Return a list to which each evaluation in Python appends its arguments."""
    calls = []
    evaluate = ExactColumns.__call__

    def recorded(self, *arguments):
        calls.append(arguments)
        return evaluate(self, *arguments)

    monkeypatch.setattr(ExactColumns, "__call__", recorded)
    return calls


def compiled(folder, source, *options):
    """Compile C source code to a shared library and return its path."""
    text, library = folder / "source.c", folder / "library.so"
    text.write_text(source)
    try:
        command = [*shlex.split(os.environ.get("CC", "cc")), "-shared", "-fPIC", text, "-o", library, *options]
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no C compiler")
    return library


def bits_of(array):
    """Return the bits of the numbers in an array, as unsigned integers."""
    return np.asarray(array).view(f"u{array.dtype.itemsize}")


def assert_same_bits(actual, expected):
    __tracebackhide__ = True
    assert actual.shape == expected.shape
    assert actual.dtype == expected.dtype
    different = np.argwhere(bits_of(actual) != bits_of(expected))
    assert not len(different), f"{len(different)} values differ, the first at {tuple(different[0])}"


class Tensor:
    """A number whose dtype is from another library."""

    def __init__(self, dtype, number, ndim=0):
        self.dtype, self.number, self.ndim = dtype, number, ndim

    def __index__(self):
        return self.number

    def __float__(self):
        return float(self.number)
