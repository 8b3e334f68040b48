"""Rotary position embeddings: rotations of queries and keys by their positions."""

from posenc._rotary.rotary import Rotary
from posenc._rotary.rotary_at import RotaryAt

__all__ = ["Rotary", "RotaryAt"]
