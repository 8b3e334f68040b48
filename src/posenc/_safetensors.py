"""safetensors: the length of a JSON document, the document, and the rows.

The library of that name writes only what is in memory as a whole; so its header, which is small and documented with the
library, is made and read here.
"""

from __future__ import annotations

import io
import json
import math
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from posenc import _files
from posenc._encoding import Encoding
from posenc._specification import described, specification
from posenc._types import AnyDType

DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
NAMES = {code: name for name, code in DTYPES.items()}
ALIGNMENT = 64                  # the library wants 8; vectors read from a mapping of the file like whole cache lines
LONGEST = 100_000_000           # bytes of a header, the library's limit
Entry: TypeAlias = tuple[str, tuple[int, ...], tuple[int, int]]     # dtype, shape, offsets of a tensor


def header(encoding: Encoding, positions: range, dtype: str, key: str) -> bytes:
    """What stands before the rows: one tensor, and the specification as a JSON document of its own."""
    rows, d_model = len(positions), encoding.d_model
    document = {
        "__metadata__": {"posenc": json.dumps(specification(encoding, positions, dtype))},
        key: {
            "dtype": DTYPES[dtype],
            "shape": [rows, d_model],
            "data_offsets": [0, _files.table_bytes(rows, d_model, dtype)],
        },
    }
    text = json.dumps(document).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def write(
    path: str | os.PathLike[str],
    encoding: Encoding,
    positions: range,
    dtype: AnyDType = "float32",
    *,
    key: str = "pe",
    **keywords: Any,
) -> int:
    """Writes the encodings of a range as the tensor `key` of a file; keywords are those of `_files.write_table`."""
    if key == "__metadata__":
        raise ValueError(f"key is {key!r}, expected a name that the format leaves to tensors")
    try:
        key.encode()
    except UnicodeEncodeError:          # of bytes on the command line; JSON would have it, and no reader
        raise ValueError(f"key is {key!r}, expected text") from None
    name, _ = _files.checked(positions, dtype)
    return _files.write_table(path, header(encoding, positions, name, key), encoding, positions, name, **keywords)


def opened(path: str | os.PathLike[str], *, key: str | None = None) -> AbstractContextManager[_files.Table]:
    """A tensor of a .safetensors file, as a context: the header believed only if the size confirms it.

    Parameters
    ----------
    path : path_like
    key : str, optional
        By default ``pe``, or the only one there is.

    Raises
    ------
    ValueError
        Where the file has no such tensor, or it is not a table.
    """
    return _files.opened(path, lambda file, found: _table(file, found, key))


def _table(file: io.FileIO, found: int, key: str | None) -> _files.Table:
    tensors, document, begin = _read_header(file, found)
    if key is None:
        key = "pe" if len(tensors) != 1 else next(iter(tensors))
    if key not in tensors:
        raise ValueError(f"no tensor {key!r}, there is {', '.join(map(repr, sorted(tensors))) or 'none'}")
    dtype, shape, (first, _) = tensors[key]
    if dtype not in NAMES:
        raise ValueError(f"dtype {dtype}, expected {', '.join(NAMES)}")
    shape = _files.table_shape(shape)
    origin = described(document, shape) if document is not None else None
    bits = np.dtype(f"<u{_files.itemsize(NAMES[dtype])}")
    return _files.Table(file, shape, NAMES[dtype], bits, begin + first, origin)


def _read_header(file: io.FileIO, found: int) -> tuple[dict[str, Entry], Any, int]:
    """The tensors as {name: (dtype, shape, offsets)}, the specification or None, and where the data begins."""
    try:
        length = int.from_bytes(_files.read_bytes(file, 0, min(8, found)).tobytes(), "little")
        begin = 8 + length
        if not length <= min(LONGEST, found - 8):
            raise ValueError(f"a header of {length} bytes in a file of {found}")
        tensors = json.loads(_files.read_bytes(file, 8, length).tobytes())
        metadata = dict(tensors.pop("__metadata__", {}))
        document = json.loads(metadata["posenc"]) if "posenc" in metadata else None
        tensors = {name: _entry(**tensor) for name, tensor in tensors.items()}
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    size = begin + max((end for _, _, (_, end) in tensors.values()), default=0)
    if found != size:
        raise ValueError(f"{found} bytes, expected {size}")
    return tensors, document, begin


def _entry(dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> Entry:
    begin, end = data_offsets
    if any(type(number) is not int or number < 0 for number in (*shape, begin, end)):
        raise ValueError(f"shape {shape} from {begin} to {end}, expected numbers that are not negative")
    if dtype in NAMES and end - begin != math.prod(shape) * _files.itemsize(NAMES[dtype]):
        raise ValueError(f"{end - begin} bytes, wrong for shape {shape} of {dtype}")
    return dtype, tuple(shape), (begin, end)
