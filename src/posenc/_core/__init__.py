"""Load the kernels, and the OpenMP runtime with a short spin time.

An idle thread first spins, then sleeps.  By default, it spins for a few milliseconds in GNU's runtime and for 200 ms in LLVM's.
On a busy system, a spinning thread takes the processor from the thread that it waits for, and calls take many times as long.
Without spinning, waking a thread takes about 50 us, too long for tables of about 100,000 values.

The runtime reads the settings once, when it is loaded, so they are in the environment only during the import.  They have no
effect if another library has already loaded the same runtime."""

import os
import sys

# GNU: iterations of the spin loop, each 3 to 40 ns depending on the processor's `pause` instruction; LLVM: milliseconds
SETTINGS = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}

if sys.platform == "darwin":
    # Other libraries may also bundle LLVM's runtime.  Without this variable, the second copy of the runtime aborts the process
    # when it is loaded.  The variable stays set, as in scikit-learn, because a library may load this copy later.
    os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
set_by_user = {"OMP_WAIT_POLICY", *SETTINGS} & os.environ.keys()
if not set_by_user:
    os.environ.update(SETTINGS)
try:
    import posenc._core.kernel  # noqa: F401
finally:
    for name in SETTINGS.keys() - set_by_user:
        os.environ.pop(name, None)
