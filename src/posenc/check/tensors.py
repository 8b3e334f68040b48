"""Tensors of PyTorch, converted to arrays and back, if PyTorch is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray


def is_imported() -> bool:
    """Return whether PyTorch is imported; nobody has a tensor otherwise."""
    return "torch" in sys.modules


def array_of_tensor(name: str, value: Any) -> NDArray[Any]:
    """Return a tensor as an array, with the bits of bfloat16 as uint16."""
    torch: Any = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return np.asarray(value)
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device, expected a tensor with values")
    if value.layout != torch.strided:
        raise TypeError(f"{name} is a sparse tensor, expected a dense one; call its method to_dense()")
    value = value.detach().cpu().resolve_conj().resolve_neg()
    array: NDArray[Any] = (value.contiguous().view(torch.uint16) if value.dtype == torch.bfloat16 else value).numpy()
    return array


def called_with_tensors(function: Callable[..., Any], x: NDArray[Any], positions: NDArray[Any]) -> Any:
    torch: Any = sys.modules["torch"]
    with torch.no_grad():
        return function(torch.from_numpy(x), torch.from_numpy(positions))
