"""The function `show_runtime`."""

import platform
from typing import Any

import numpy as np

from posenc._arguments import __version__
from posenc._core import kernel


def show_runtime() -> dict[str, Any]:
    """Return the versions, the instruction set, the number of threads and the OpenMP support in use.

    Returns
    -------
    dict
        ``instruction_set`` is the instruction set in use.  ``instruction_sets`` has a key for each instruction set in this
        build; its value is True if the processor supports it.  ``openmp`` is the date of the OpenMP specification as yyyymm
        (201511 for OpenMP 4.5), or 0 in a build without OpenMP, which uses one thread.  ``threads`` is the default number of
        threads for a large call, and ``machine`` is the processor type.  The other values are versions.

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
