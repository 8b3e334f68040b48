"""Loads the kernels, and OpenMP with them, whose threads then wait for work by turning in a loop for 50 us at most.

GNU's default is milliseconds: beside busy processes a thread that turns uses up its time, and is not given a processor when
there is work.  LLVM's default is 200 ms.  The runtime reads its settings when it is loaded, so that they are in the
environment for that moment only, and nothing is changed for whoever loaded the runtime before, or set one of them."""

import os
from collections.abc import Iterator
from contextlib import contextmanager

SETTINGS = {"GOMP_SPINCOUNT": "20000", "KMP_BLOCKTIME": "0"}


@contextmanager
def short_wait() -> Iterator[None]:
    """A context with the settings in the environment, unless the user has one of them, or OMP_WAIT_POLICY."""
    if not os.environ.keys().isdisjoint({"OMP_WAIT_POLICY", *SETTINGS}):
        yield
        return
    os.environ.update(SETTINGS)
    try:
        yield
    finally:
        for name in SETTINGS:
            del os.environ[name]


with short_wait():
    from posenc import _kernel

__all__ = ["_kernel"]
