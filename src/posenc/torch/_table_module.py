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

    def _new_table(self, dtype: torch.dtype, device: torch.device, which: Any) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._tables = Tables()         # the old ones may take memory on another device
        return super()._apply(fn, recurse)


def kept_table(module: TableModule, dtype: torch.dtype, device: torch.device, which: Any = None) -> Tensor:
    """Return a table that the module keeps; compute it in the first call."""
    if torch.compiler.is_compiling():
        table: Tensor = getattr(module._tables, _attribute(module, dtype, device, which))
        return table
    kept = module._tables.get((dtype, device, which))
    return new_table(module, dtype, device, which) if kept is None else kept


@torch.compiler.assume_constant_result      # the table is computed while a graph is compiled, not by the graph
def _attribute(module: TableModule, dtype: torch.dtype, device: torch.device, which: Any) -> str:
    """Return the name of a table's attribute; torch.compile does not see a new key of a dict that it has read."""
    kept, name = module._tables.get((dtype, device, which)), f"{dtype}_{device}_{which}".replace(".", "_")
    setattr(module._tables, name, new_table(module, dtype, device, which) if kept is None else kept)
    return name


def new_table(module: TableModule, dtype: torch.dtype, device: torch.device, which: Any = None, *arguments: Any) -> Tensor:
    # a new thread has none of the modes of this thread: inference, fake tensors, transforms ...
    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(module._new_table, dtype, device, which, *arguments).result()
    module._tables[dtype, device, which] = table
    return table
