"""The .safetensors format: the length of a JSON header, the header, and the rows.

The safetensors library checks the header of a file; this module then reads the offsets of the tensors, which no function of the
library returns.  Files are written without the library, because it needs the complete tensor in memory.
"""

from __future__ import annotations

import io
import json
import math
import os
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks, install
from posenc._arguments.dtypes import DTYPES
from posenc._arguments.types import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import table
from posenc._files.specification import described, specification

NAMES = {row.safetensors: name for name, row in DTYPES.items()}
ALIGNMENT = 64                  # the data starts on a cache line, for vector loads from a mapped file


def header(encoding: Encoding, positions: range, dtype: str, key: str) -> bytes:
    """Return the bytes that precede the rows; the header describes one tensor and has the specification as a JSON string."""
    rows, d_model = len(positions), encoding.d_model
    offsets = [0, table.table_bytes(rows, d_model, dtype)]
    document = {
        "__metadata__": {"posenc": json.dumps(specification(encoding, positions, dtype))},
        key: {"dtype": DTYPES[dtype].safetensors, "shape": [rows, d_model], "data_offsets": offsets},
    }
    text = json.dumps(document).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def write(
    path: str | os.PathLike[str], encoding: Encoding, positions: range, dtype: AnyDType = "float32", *, key: str = "pe",
    **keywords: Any,
) -> int:
    """Write the encodings of a range as the tensor `key` of a file: see `table.write_table`."""
    if key == "__metadata__":
        raise checks.wrong("key", f"is {key!r}, expected another name, because the format reserves this name")
    try:
        key.encode()
    except UnicodeEncodeError:          # invalid UTF-8 on the command line; readers refuse its escaped form in JSON
        raise checks.wrong("key", f"is {key!r}, expected valid Unicode text") from None
    name, _ = table.checked(positions, dtype)
    return table.write_table(path, header(encoding, positions, name, key), encoding, positions, name, **keywords)


def opened(path: str | os.PathLike[str], *, key: str | None = None) -> AbstractContextManager[table.Table]:
    """Open a tensor of a file as a table, by default the only tensor, or ``pe`` if there are several."""
    return table.opened(path, lambda file, _: _table(file, key))


def _table(file: io.FileIO, key: str | None) -> table.Table:
    tensors, document, begin = _read_header(file)
    if key is None:
        key = "pe" if len(tensors) != 1 else next(iter(tensors))
    if key not in tensors:
        names = ", ".join(map(repr, sorted(tensors))) or "none"
        raise ValueError(f"no tensor {key!r}, expected key to be one of: {names}")
    dtype = tensors[key]["dtype"]
    if dtype not in NAMES:
        raise ValueError(f"dtype {dtype}, expected {', '.join(NAMES)}")
    shape = table.table_shape(tuple(tensors[key]["shape"]))
    bits = np.dtype(f"<u{table.itemsize(NAMES[dtype])}")
    return table.Table(file, shape, NAMES[dtype], bits, begin + tensors[key]["data_offsets"][0], described(document, shape))


def tensors(path: str | os.PathLike[str]) -> AbstractContextManager[dict[str, Tensor]]:
    """Open a file as a dict of its tensors; omit tensors of dtypes that are not in DTYPES."""
    return table.opened(path, lambda file, _: _tensors(file))


class Tensor(NamedTuple):
    """A tensor of any shape in an open file."""

    file: io.FileIO
    shape: tuple[int, ...]
    dtype: str
    offset: int

    def read(self) -> NDArray[Any]:
        """Return the values; for bfloat16, the bits."""
        element = np.dtype(table.STORED[self.dtype])
        raw = table.read_bytes(self.file, self.offset, math.prod(self.shape) * element.itemsize)
        return raw.view(element).reshape(self.shape).astype(element.newbyteorder("="), copy=False)


def _tensors(file: io.FileIO) -> dict[str, Tensor]:
    found, _, begin = _read_header(file)
    return {
        name: Tensor(file, tuple(each["shape"]), NAMES[each["dtype"]], begin + each["data_offsets"][0])
        for name, each in found.items() if each["dtype"] in NAMES
    }


def _read_header(file: io.FileIO) -> tuple[dict[str, Any], Any, int]:
    """Return the tensors as {name: {"dtype", "shape", "data_offsets"}}, the specification or None, and the offset of the data.

    Raise ValueError for every file that the library refuses, and for duplicate names, which the format forbids.
    """
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise install.not_installed("reading .safetensors", "safetensors", error) from error
    try:
        safe_open(os.fsdecode(file.name), "np")
        length = int.from_bytes(table.read_bytes(file, 0, 8).tobytes(), "little")
        tensors = json.loads(table.read_bytes(file, 8, length).tobytes(), object_pairs_hook=_without_duplicates)
        metadata = tensors.pop("__metadata__", {})
        document = json.loads(metadata["posenc"]) if "posenc" in metadata else None
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    return tensors, document, 8 + length


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("duplicate names, expected unique names")
    return names
