"""Sinusoidal positional encodings, correctly rounded at every position."""

from types import ModuleType as _ModuleType

from posenc import _openmp as _openmp
from posenc._api import add_to, encode, stream
from posenc._encoding import Chunk, Encoding
from posenc._grid import grid
from posenc._identify import Match, identify
from posenc._padding import positions_from_lengths, positions_from_mask, positions_from_segments
from posenc._presets import Preset, preset, presets
from posenc._runtime import show_runtime
from posenc._version import __version__ as __version__

__all__ = [
    "Chunk",
    "Encoding",
    "Match",
    "Preset",
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

    from posenc import _install

    try:
        return importlib.import_module(f"posenc.{name}")
    except ModuleNotFoundError as error:
        package = error.name or "posenc"
        if package.startswith("posenc"):
            raise
        message = f"posenc.{name} needs {package}, as in the extra posenc[{name}]: {_install.command(package)}"
        raise ModuleNotFoundError(message, name=package) from error
