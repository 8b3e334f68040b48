"""TableModule, the base class of modules that keep tables, and the functions that compute and find tables."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc._arguments import checks
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._encode import encodings_on_cpu, warn_of_length, width_of

TABLE_BYTES = 1 << 26               # the table grows to at most this size


class Tables(dict[Any, Tensor]):
    """A dict that also holds tensors as attributes, and whose copies and pickles are empty."""

    last: Any = (None, None)            # the arguments of the last call that read rows, and these rows

    def __reduce__(self) -> tuple[type[Tables], tuple[()]]:
        return Tables, ()


class TableModule(nn.Module):
    """A module whose tables are neither parameters nor buffers, so that other code cannot change them.

    A table has the rows of the positions from `_first` to `_length` - 1, preceded and followed by a row of
    NaN.
    """

    _first = 0
    _length_name = "max_len"            # of the parameter
    _options: tuple[str, ...] = ()      # the other arguments that extra_repr shows

    def __init__(self, specifications: Mapping[Any, Any], length: Any, lowest: int = 0) -> None:
        super().__init__()
        self._specifications = specifications       # {layer type or None: its Encoding or Rotary}
        # None if the tables grow
        self._length = None if length is None else tensors.integer(self._length_name, length, lowest)
        self._tables = Tables()

    def _new_table(self, dtype: torch.dtype, device: torch.device, specification: Any, length: int) -> Tensor:
        rows = encodings_on_cpu(range(self._first, length), specification, dtype)
        return functional.pad(rows, (0, 0, 1, 1), value=math.nan).to(device)

    def _length_of(self, table: Tensor) -> int:
        return table.shape[0] - 2 + self._first

    def _table(self, dtype: torch.dtype, device: torch.device, key: Any = None, stop: int = 0) -> Any:
        """Return a table with at least `stop` positions, or None if it would exceed `_length` and
        TABLE_BYTES.
        """
        table, specification = self._tables.get((dtype, device, key)), self._specifications[key]
        length = self._length or 0 if table is None else self._length_of(table)
        if stop > length:
            longest = TABLE_BYTES // max(1, width_of(specification) * dtype.itemsize)
            if stop > longest:
                return None
            warn_of_length(specification, stop - 1)
            table, length = None, max(stop, min(2 * length, longest))
        if table is None:           # other threads see either the old or the new table
            # a new thread has none of the modes of this thread: inference, fake tensors, transforms ...
            with ThreadPoolExecutor(1) as pool:
                table = pool.submit(self._new_table, dtype, device, specification, length).result()
            self._tables[dtype, device, key] = table
        return table

    def _rows_at(self, positions: Tensor, dtype: torch.dtype, device: torch.device, key: Any = None) -> Tensor | None:
        """Return the rows of a table at integer positions; a position outside the table gives a row of NaN.

        Return None if positions are not integers, on the CPU outside graphs, where values are computed, or if
        `_length` is None and the table, which grows on other devices, cannot have a row of each position.
        """
        if positions.is_floating_point() or device.type == "cpu" and not tensors.is_recording():
            return None
        index, table = positions.long(), None           # torch cannot compare uint16, uint32 and uint64
        if positions.dtype == torch.uint64:             # positions of 2**63 or more have become negative
            index = index.where(index >= 0, checks.LOWEST)
        if self._length is not None:
            table = kept_table(self, dtype, device, key)
        elif device.type != "meta" and not tensors.is_recording() and index.numel():
            lowest, highest = (int(position) for position in index.aminmax())
            table = self._table(dtype, device, key, highest + 1) if lowest >= self._first else None
        if table is None:
            return None
        index = index.to(device).clamp(self._first - 1, self._length_of(table)) + (1 - self._first)
        return functional.embedding(index, table)

    def extra_repr(self) -> str:
        options = {self._length_name: self._length} | {name: getattr(self, name) for name in self._options}
        arguments = {**self._specifications, **options}
        return ", ".join(repr(value) if name is None else f"{name}={value!r}"
                         for name, value in arguments.items() if value is not None)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._tables = Tables()         # the old ones may take memory on another device
        return super()._apply(fn, recurse)


def kept_table(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any = None) -> Any:
    """Return a table that the module keeps; compute it in the first call."""
    if torch.compiler.is_compiling():
        return getattr(module._tables, _attribute(module, dtype, device, key))
    return module._table(dtype, device, key)


@torch.compiler.assume_constant_result      # the table is computed when a graph is compiled, not by the graph
def _attribute(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any) -> str:
    """Return the name of a table's attribute.

    Torch.compile does not see a new key of a dict that it has read.
    """
    name = f"{dtype}_{device}_{key}".replace(".", "_")
    setattr(module._tables, name, module._table(dtype, device, key))
    return name
