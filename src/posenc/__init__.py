"""Sinusoidal positional encodings, correctly rounded at every position."""

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
