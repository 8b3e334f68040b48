"""Sinusoidal positional encodings, correctly rounded at every position."""

__version__ = "0.1.0"

from posenc._encoding import Chunk, Encoding, add_to, encode, stream
from posenc._positions import positions_from_lengths, positions_from_mask, positions_from_segments
from posenc._presets import Preset, preset, presets
from posenc._runtime import show_runtime

__all__ = [
    "Chunk",
    "Encoding",
    "Preset",
    "add_to",
    "encode",
    "positions_from_lengths",
    "positions_from_mask",
    "positions_from_segments",
    "preset",
    "presets",
    "show_runtime",
    "stream",
]
