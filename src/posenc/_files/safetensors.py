"""safetensors: the length of a JSON document, the document, and the rows.

The library of that name writes only what is in memory as a whole; so its header, which is small and documented with the
library, is made and read here.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from posenc._encoding import Encoding
from posenc._files import table
from posenc._files.specification import described, specification
from posenc._types import AnyDType

DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
NAMES = {code: name for name, code in DTYPES.items()}
ALIGNMENT = 64                  # the library wants 8; vectors read from a mapping of the file like whole cache lines
LONGEST = 100_000_000           # bytes of a header, the library's limit
DTYPES_BY_BITS = {
    4: "F4", 6: "F6_E2M3 F6_E3M2", 8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ", 16: "I16 U16 F16 BF16",
    32: "I32 U32 F32", 64: "C64 F64 I64 U64",
}
BITS = {code: bits for bits, codes in DTYPES_BY_BITS.items() for code in codes.split()}      # of the library, version 0.8
Entry: TypeAlias = tuple[str, tuple[int, ...], tuple[int, int]]     # dtype, shape, offsets of a tensor


def header(encoding: Encoding, positions: range, dtype: str, key: str) -> bytes:
    """What stands before the rows: one tensor, and the specification as a JSON document of its own."""
    rows, d_model = len(positions), encoding.d_model
    document = {
        "__metadata__": {"posenc": json.dumps(specification(encoding, positions, dtype))},
        key: {
            "dtype": DTYPES[dtype],
            "shape": [rows, d_model],
            "data_offsets": [0, table.table_bytes(rows, d_model, dtype)],
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
    """Writes the encodings of a range as the tensor `key` of a file; keywords are those of `table.write_table`."""
    if key == "__metadata__":
        raise ValueError(f"key is {key!r}, expected a name that the format leaves to tensors")
    try:
        key.encode()
    except UnicodeEncodeError:          # of bytes on the command line; JSON would have it, and no reader
        raise ValueError(f"key is {key!r}, expected text") from None
    name, _ = table.checked(positions, dtype)
    return table.write_table(path, header(encoding, positions, name, key), encoding, positions, name, **keywords)


def opened(path: str | os.PathLike[str], *, key: str | None = None) -> AbstractContextManager[table.Table]:
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
    return table.opened(path, lambda file, found: _table(file, found, key))


def _table(file: io.FileIO, found: int, key: str | None) -> table.Table:
    tensors, document, begin = _read_header(file, found)
    if key is None:
        key = "pe" if len(tensors) != 1 else next(iter(tensors))
    if key not in tensors:
        raise ValueError(f"no tensor {key!r}, there is {', '.join(map(repr, sorted(tensors))) or 'none'}")
    dtype, shape, (first, _) = tensors[key]
    if dtype not in NAMES:
        raise ValueError(f"dtype {dtype}, expected {', '.join(NAMES)}")
    shape = table.table_shape(shape)
    origin = described(document, shape) if document is not None else None
    bits = np.dtype(f"<u{table.itemsize(NAMES[dtype])}")
    return table.Table(file, shape, NAMES[dtype], bits, begin + first, origin)


def _read_header(file: io.FileIO, found: int) -> tuple[dict[str, Entry], Any, int]:
    """The tensors as {name: (dtype, shape, offsets)}, the specification or None, and where the data begins.

    It refuses what the library refuses: the tensors' bytes follow one another and are all that stands behind the header.
    """
    try:
        length = int.from_bytes(table.read_bytes(file, 0, min(8, found)).tobytes(), "little")
        begin = 8 + length
        if not length <= min(LONGEST, found - 8):
            raise ValueError(f"a header of {length} bytes in a file of {found}")
        text = table.read_bytes(file, 8, length).tobytes().decode()        # json.loads would guess UTF-16, too
        tensors = json.loads(text, object_pairs_hook=_without_duplicates, parse_int=_unsigned)
        metadata = tensors.pop("__metadata__", {})
        "".join([*tensors, *metadata, *metadata.values()]).encode()         # all text, which half a surrogate pair is not
        document = json.loads(metadata["posenc"]) if "posenc" in metadata else None
        tensors = {name: _entry(**tensor) for name, tensor in tensors.items()}
        end = 0
        for name, (_, _, (first, last)) in sorted(tensors.items(), key=lambda item: item[1][2]):
            if first != end:
                raise ValueError(f"tensor {name!r} begins at {first}, expected {end}: no hole and no overlap")
            end = last
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    if found != begin + end:
        raise ValueError(f"{found} bytes, expected {begin + end}")
    return tensors, document, begin


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError(f"{len(pairs)} names, expected no two of them the same")
    return names


def _unsigned(digits: str) -> int:
    number = int(digits)
    if digits[0] == "-" or number >= 2**64:
        raise ValueError(f"{digits}, expected 0 <= number < 2**64")
    return number


def _entry(dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> Entry:
    begin, end = data_offsets
    if not isinstance(shape, list) or any(type(number) is not int for number in (*shape, begin, end)):
        raise ValueError(f"shape {shape} from {begin} to {end}, expected integers")
    if dtype not in BITS:
        raise ValueError(f"dtype {dtype}, expected one of {', '.join(BITS)}")
    bits = 1
    for factor in (*shape, BITS[dtype]):
        bits *= factor
        if bits >= 2**64:               # the library says so; and a product of very many would take very long
            raise ValueError(f"shape {str(shape)[:100]} of {dtype}, expected fewer than 2**64 bits")
    if bits != 8 * (end - begin):
        raise ValueError(f"{end - begin} bytes, wrong for shape {shape} of {dtype}")
    return dtype, tuple(shape), (begin, end)
