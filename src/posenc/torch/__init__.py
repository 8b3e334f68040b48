"""Encodings as PyTorch tensors: functions, modules and a dataset.  Needs ``pip install 'posenc[torch]'``.

>>> import torch, posenc.torch
>>> torch.equal(posenc.torch.encode(5, 8), posenc.torch.PositionalTable(8, 5)())
True
"""

from posenc.torch._data import ChunkDataset
from posenc.torch._functions import add_to, encode
from posenc.torch._modules import PositionalEncoding, PositionalTable

__all__ = ["ChunkDataset", "PositionalEncoding", "PositionalTable", "add_to", "encode"]
