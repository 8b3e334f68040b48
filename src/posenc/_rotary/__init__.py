"""Rotary position embeddings: rotations of queries and keys by their positions."""

from posenc._rotary.rotary import Rotary

__all__ = ["Rotary"]
