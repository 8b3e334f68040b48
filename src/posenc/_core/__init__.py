"""Load the kernels and the OpenMP runtime, with a short spin time; report the version and the settings in use.

An idle thread first spins, then sleeps.  By default, it spins for a few milliseconds in GNU's runtime and for
200 ms in LLVM's.  On a busy system, a spinning thread competes with the thread that it waits for, and calls
take many times as long.  Without spinning, waking a thread takes about 50 us, which is too long for tables of
about 100,000 values.

The runtime reads the settings once, when it is loaded, so they are in the environment only during the import.
The settings have no effect if another library has already loaded the same runtime."""

import os
import platform
import sys
from typing import Any

import numpy as np

from posenc._arguments import __version__

# GNU: iterations of the spin loop, each of 3 to 40 ns, depending on the processor's `pause` instruction.
# LLVM: milliseconds.
SETTINGS = {"GOMP_SPINCOUNT": "2000", "KMP_BLOCKTIME": "0"}

if sys.platform == "darwin":
    # Other libraries may also bundle LLVM's runtime.  Without this variable, the second copy of the runtime
    # aborts the process when it is loaded.  The variable stays set, as in scikit-learn, because a library may
    # load this copy later.
    os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "TRUE")
set_by_user = {"OMP_WAIT_POLICY", *SETTINGS} & os.environ.keys()
if not set_by_user:
    os.environ.update(SETTINGS)
try:
    from posenc._core import kernel
finally:
    for name in SETTINGS.keys() - set_by_user:
        os.environ.pop(name, None)


def show_runtime() -> dict[str, Any]:
    """Return the versions, the instruction set, the number of threads and the OpenMP support in use.

    Returns
    -------
    dict
        ``instruction_set`` is the instruction set in use.  ``instruction_sets`` has a key for each instruction
        set in this build; the value is True if the processor supports the instruction set.  ``openmp`` is the
        date of the OpenMP specification as yyyymm (201511 for OpenMP 4.5), or 0 in a build without OpenMP, which
        uses one thread.  ``threads`` is the default number of threads for a large call, and ``machine`` is the
        processor type.  The other values are versions.

    See Also
    --------
    encode : The parameter ``threads`` overrides the default.

    Examples
    --------
    >>> import posenc
    >>> sorted(posenc.show_runtime())
    ['instruction_set', 'instruction_sets', 'machine', 'numpy', 'openmp', 'python', 'threads', 'version']
    """
    kernel.check_settings()
    return {
        "version": __version__,
        "instruction_set": kernel.instruction_set(),
        "instruction_sets": kernel.instruction_sets(),
        "openmp": kernel.OPENMP,
        "threads": kernel.allowed_threads(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
