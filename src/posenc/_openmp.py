"""Loads the kernels, and OpenMP with them, with a short time for which its threads turn in a loop before they sleep.

GNU's default is some milliseconds, LLVM's is 200.  That is right where nothing else runs.  Beside busy processes a thread that
turns in a loop keeps the processor from the thread that it waits for, and calls take many times as long.  A thread that sleeps
is woken in about 50 us, which is too long for tables of some 100,000 values.

The runtime reads the settings when it is loaded, so that they are in the environment for that moment only.  They have no effect
where another library has loaded the same runtime before."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Turns of a thread of GNU's runtime, each of 3 to 40 ns, as the processor does the instruction `pause`; milliseconds of one of
# LLVM's
SETTINGS = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}


@contextmanager
def short_wait() -> Iterator[None]:
    """A context with the settings in the environment, unless the user has made one of them, or OMP_WAIT_POLICY."""
    if not os.environ.keys().isdisjoint({"OMP_WAIT_POLICY", *SETTINGS}):
        yield
        return
    os.environ.update(SETTINGS)
    try:
        yield
    finally:
        for name in SETTINGS:
            del os.environ[name]


if sys.platform == "darwin":
    # wheels of several libraries have an LLVM runtime each, of which the second would end the process: set for good, as
    # scikit-learn does, since the second may come later
    os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
with short_wait():
    import posenc._kernel  # noqa: F401
