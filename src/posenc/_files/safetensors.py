"""The .safetensors format: the length of a JSON header, the header, and the rows.

The safetensors library reads the header of a file.  Files are written without it, because it needs the whole tensor in memory.
"""

from __future__ import annotations

import json
import math
import os
import re
from typing import BinaryIO

from posenc._arguments import install
from posenc._arguments.dtypes import DTYPES
from posenc._files import table
from posenc._files.specification import Specification, described

NAMES = {row.safetensors: name for name, row in DTYPES.items()}
ALIGNMENT = 64                  # the data starts on a cache line, for vector loads from a mapped file


def header(specification: Specification, key: str) -> bytes:
    """Return the bytes that precede the rows; the header describes one tensor and has the specification as a JSON string."""
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
        raise install.not_installed("reading .safetensors", "safetensors", error) from error
    try:
        tensors = safe_open(file.name, "np")
        document = json.loads((tensors.metadata() or {}).get("posenc", "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    if not os.path.samestat(os.stat(file.name), os.fstat(file.fileno())):
        raise ValueError("another file has replaced it, expected the file that was opened")
    names = tensors.offset_keys()
    if key is None:
        key = "pe" if len(names) != 1 else names[0]
    if key not in names:
        raise ValueError(f"no tensor {key!r}, expected key to be one of: {', '.join(map(repr, sorted(names))) or 'none'}")
    # the library refuses gaps between tensors and bytes after the last tensor
    later = map(tensors.get_slice, names[names.index(key) :])
    offset = file_size - sum(_size(tensor.get_dtype(), tensor.get_shape()) for tensor in later)
    code, shape = tensors.get_slice(key).get_dtype(), tuple(tensors.get_slice(key).get_shape())
    if code not in NAMES:
        raise ValueError(f"dtype {code}, expected {', '.join(NAMES)}")
    shape = table.table_shape(shape)
    return table.in_file(file, shape, NAMES[code], offset, specification=described(document, shape))


def _size(code: str, shape: list[int]) -> int:
    """Return the size of a tensor in bytes; the first number in the name of a dtype, such as F8_E5M2, is that of its bits."""
    bits = 8 if code == "BOOL" else int(re.findall("[0-9]+", code)[0])
    return bits * math.prod(shape) // 8
