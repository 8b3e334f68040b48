"""Load the kernels, and the OpenMP runtime with a short spin time.

An idle thread first spins, then sleeps.  By default, it spins for a few milliseconds in GNU's runtime and for 200 ms in LLVM's.
On a busy system, a spinning thread takes the processor from the thread that it waits for, and calls take many times as long.
Without spinning, waking a thread takes about 50 us, too long for tables of about 100,000 values.

The runtime reads the settings once, when it is loaded, so they are in the environment only during the import.  They have no
effect if another library has already loaded the same runtime."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# GNU: iterations of the spin loop, each 3 to 40 ns depending on the processor's `pause` instruction; LLVM: milliseconds
SETTINGS = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}


@contextmanager
def short_wait() -> Iterator[None]:
    """Set the variables in `SETTINGS` within the context, unless one of them or OMP_WAIT_POLICY is already set."""
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
    # Other libraries may also bundle LLVM's runtime.  Without this variable, the second copy of the runtime aborts the process
    # when it is loaded.  The variable stays set, as in scikit-learn, because a library may load this copy later.
    os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
with short_wait():
    import posenc._core.kernel  # noqa: F401
