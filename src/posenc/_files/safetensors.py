"""The .safetensors format: the length of a JSON header, the header, and the rows.

The safetensors library checks the header of a file.  Files are written without it, because it needs the whole tensor in memory.
"""

from __future__ import annotations

import json
import os
from typing import BinaryIO

from posenc._arguments import checks
from posenc._arguments.arrays import DTYPES
from posenc._files import table
from posenc._files.specification import Specification, described

NAMES = {row.safetensors: name for name, row in DTYPES.items()}
ALIGNMENT = 64                  # the data starts on a cache line, for vector loads from a mapped file


def header(specification: Specification, key: str | None) -> bytes:
    """Return the bytes that precede the rows; the header describes one tensor and has the specification as a JSON string."""
    key = "pe" if key is None else key
    if key == "__metadata__" or key.encode(errors="ignore").decode() != key:        # from invalid UTF-8 on the command line
        raise ValueError(f"key is {key!r}, expected valid Unicode text, and not '__metadata__', which the format reserves")
    code = DTYPES[specification.dtype].safetensors
    tensors = {
        "__metadata__": {"posenc": json.dumps(specification.document())},
        key: {"dtype": code, "shape": specification.shape, "data_offsets": [0, specification.nbytes]},
    }
    text = json.dumps(tensors).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_header(file: BinaryIO, file_size: int, key: str | None) -> table.Table:
    """Return the table in a tensor of a file, by default the only tensor, or ``pe`` if there are several."""
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise checks.not_installed("reading .safetensors", "safetensors", error) from error
    try:
        safe_open(file.name, "np")              # raises an error unless the header and the size of the file are valid
        size = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(size))
        document = json.loads((tensors.pop("__metadata__", None) or {}).get("posenc", "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    if not os.path.samestat(os.stat(file.name), os.fstat(file.fileno())):
        raise ValueError("another file has replaced it, expected the file that was opened")
    if key is None:
        key = "pe" if len(tensors) != 1 else next(iter(tensors))
    if key not in tensors:
        raise ValueError(f"no tensor {key!r}, expected key to be one of: {', '.join(map(repr, sorted(tensors))) or 'none'}")
    code = tensors[key]["dtype"]
    if code not in NAMES:
        raise ValueError(f"dtype {code}, expected {', '.join(NAMES)}")
    shape = table.table_shape(tuple(tensors[key]["shape"]))
    offset = 8 + size + tensors[key]["data_offsets"][0]
    return table.in_file(file, shape, NAMES[code], offset, specification=described(document, shape))
