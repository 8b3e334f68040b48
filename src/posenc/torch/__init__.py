"""Functions, modules and a dataset for encodings and rotations in PyTorch.  They require torch.

>>> import torch, posenc.torch
>>> torch.equal(posenc.torch.encode(5, 8), posenc.torch.PositionalTable(8, 5)())
True
"""

from posenc._arguments import checks

with checks.importing_for("posenc.torch"):
    import torch as _torch  # noqa: F401

from posenc.torch._encode import add_to, encode, grid, points, positions_from_lengths, positions_from_mask
from posenc.torch._positional_encoding import ChunkDataset, PositionalEncoding, PositionalTable
from posenc.torch._rotary import RotaryEmbedding, rotate, rotate_

__all__ = [
    "ChunkDataset", "PositionalEncoding", "PositionalTable", "RotaryEmbedding", "add_to", "encode", "grid", "points",
    "positions_from_lengths", "positions_from_mask", "rotate", "rotate_",
]
