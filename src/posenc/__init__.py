"""Sinusoidal positional encodings: one value per (position, column), the correctly rounded one."""

__version__ = "0.1.0"

from posenc._encoding import Chunk, Encoding, add_to, encode, stream
from posenc._grid import grid
from posenc._runtime import show_runtime

__all__ = ["Chunk", "Encoding", "add_to", "encode", "grid", "show_runtime", "stream"]
