"""What is installed and what runs."""

import platform
from typing import Any

import numpy as np

from posenc import _kernel
from posenc._version import __version__


def show_runtime() -> dict[str, Any]:
    """Tell the library's version, the kernels in use, threads, OpenMP and NumPy.

    Returns
    -------
    dict
        ``instruction_set`` is the one whose kernels run now, ``instruction_sets`` all that were built, with whether they
        run on this machine; ``openmp`` is the version of the OpenMP specification as yyyymm, 0 if built
        without, when every call has one thread; ``threads`` is what a large call takes by default.

    See Also
    --------
    encode : Its `threads` overrides the default.

    Examples
    --------
    >>> import posenc
    >>> sorted(posenc.show_runtime())
    ['instruction_set', 'instruction_sets', 'machine', 'numpy', 'openmp', 'python', 'threads', 'version']
    """
    _kernel.check_settings()
    return {
        "version": __version__,
        "instruction_set": _kernel.instruction_set(),
        "instruction_sets": _kernel.instruction_sets(),
        "openmp": _kernel.OPENMP,
        "threads": _kernel.allowed_threads(),
        "numpy": np.__version__,
        "python": platform.python_version(),
        "machine": platform.machine(),
    }
