"""Sinusoidal positional encodings, correctly rounded at every position."""

from types import ModuleType as _ModuleType

from posenc import _openmp as _openmp
from posenc._api import add_to, encode, stream
from posenc._encoding import Chunk, Encoding
from posenc._grid import grid
from posenc._identify import Match, identify
from posenc._padding import positions_from_lengths, positions_from_mask, positions_from_segments
from posenc._presets import Preset, preset, presets
from posenc._rotary import Rotary
from posenc._runtime import show_runtime
from posenc._version import __version__ as __version__

__all__ = [
    "Chunk",
    "Encoding",
    "Match",
    "Preset",
    "Rotary",
    "add_to",
    "encode",
    "grid",
    "identify",
    "positions_from_lengths",
    "positions_from_mask",
    "positions_from_segments",
    "preset",
    "presets",
    "show_runtime",
    "stream",
]


def __getattr__(name: str) -> _ModuleType:
    """Import posenc.torch, posenc.dask or posenc.plot on first use."""
    if name not in ("torch", "dask", "plot"):
        raise AttributeError(f"module 'posenc' has no attribute {name!r}")
    import importlib
    import sys

    try:
        return importlib.import_module(f"posenc.{name}")
    except ModuleNotFoundError as error:
        if (error.name or "posenc").startswith("posenc"):
            raise
        command = f"{sys.executable or 'python'} -m pip install {error.name}"
        message = f"posenc.{name} needs {error.name}, as in the extra posenc[{name}]: {command}"
        raise ModuleNotFoundError(message, name=error.name) from error
