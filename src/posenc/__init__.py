"""Sinusoidal positional encodings, correctly rounded at every position."""

from types import ModuleType as _ModuleType

from posenc import _core as _core
from posenc._arguments import __version__ as __version__
from posenc._axes.grid import grid, points
from posenc._core import show_runtime
from posenc._encoding.encoding import Chunk, Encoding
from posenc._encoding.functions import add_to, encode, stream
from posenc._encoding.padding import positions_from_lengths, positions_from_mask, positions_from_segments
from posenc._encoding.presets import Preset, preset, presets
from posenc._files.functions import File, open, save, verify  # noqa: A004
from posenc._rotary.rotary import Rotary
from posenc._rotary.rotary_at import RotaryAt

__all__ = [
    "Chunk", "Encoding", "File", "Preset", "Rotary", "RotaryAt", "add_to", "encode", "grid", "open", "points",
    "positions_from_lengths", "positions_from_mask", "positions_from_segments", "preset", "presets", "save",
    "show_runtime", "stream", "verify",
]


def __getattr__(name: str) -> _ModuleType:
    """Import posenc.check, posenc.torch, posenc.dask or posenc.plot on first use."""
    if name not in ("check", "torch", "dask", "plot"):
        raise AttributeError(f"module 'posenc' has no attribute {name!r}")
    import importlib

    return importlib.import_module(f"posenc.{name}")
