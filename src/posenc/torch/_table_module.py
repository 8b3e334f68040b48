"""TableModule, the base class of modules that keep tables between calls."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import torch
from torch import Tensor, nn


class Tables(dict[Any, Tensor]):
    """A dict, also with tensors as attributes, whose copies and pickles are empty."""

    def __reduce__(self) -> tuple[type[Tables], tuple[()]]:
        return Tables, ()


class TableModule(nn.Module):
    """A module with tables that are neither parameters nor buffers, so that other code cannot convert or overwrite them."""

    def __init__(self) -> None:
        super().__init__()
        self._tables = Tables()

    def _new_table(self, dtype: torch.dtype, device: torch.device, key: Any) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._tables = Tables()         # the old ones may take memory on another device
        return super()._apply(fn, recurse)


def kept_table(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any = None) -> Tensor:
    """Return a table that the module keeps; compute it in the first call."""
    if torch.compiler.is_compiling():
        attribute: Tensor = getattr(module._tables, _attribute(module, dtype, device, key))
        return attribute
    table = module._tables.get((dtype, device, key))
    return new_table(module, dtype, device, key) if table is None else table


@torch.compiler.assume_constant_result      # the table is computed while a graph is compiled, not by the graph
def _attribute(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any) -> str:
    """Return the name of a table's attribute; torch.compile does not see a new key of a dict that it has read."""
    table, name = module._tables.get((dtype, device, key)), f"{dtype}_{device}_{key}".replace(".", "_")
    setattr(module._tables, name, new_table(module, dtype, device, key) if table is None else table)
    return name


def new_table(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any = None, *arguments: Any) -> Tensor:
    # a new thread has none of the modes of this thread: inference, fake tensors, transforms ...
    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(module._new_table, dtype, device, key, *arguments).result()
    module._tables[dtype, device, key] = table
    return table
