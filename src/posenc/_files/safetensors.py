"""The .safetensors format: the length of a JSON header, the header, and the rows.

This module does not use the safetensors library, which can write a tensor only if it is completely in memory.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, TypeAlias

import numpy as np

from posenc._arguments import checks
from posenc._arguments.types import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import table
from posenc._files.specification import described, specification

DTYPES = {"float32": "F32", "float64": "F64", "float16": "F16", "bfloat16": "BF16"}
NAMES = {code: name for name, code in DTYPES.items()}
ALIGNMENT = 64                  # the data starts on a cache line, for vector loads from a mapped file; the library aligns to 8
LONGEST_HEADER = 100_000_000    # the library's limit, in bytes
DTYPES_BY_BITS = {              # all dtypes in version 0.8 of the library
    4: "F4", 6: "F6_E2M3 F6_E3M2", 8: "BOOL U8 I8 F8_E5M2 F8_E4M3 F8_E8M0 F8_E4M3FNUZ F8_E5M2FNUZ", 16: "I16 U16 F16 BF16",
    32: "I32 U32 F32", 64: "C64 F64 I64 U64",
}
BITS = {code: bits for bits, codes in DTYPES_BY_BITS.items() for code in codes.split()}
Entry: TypeAlias = tuple[str, tuple[int, ...], tuple[int, int]]     # dtype, shape and offsets of a tensor


def header(encoding: Encoding, positions: range, dtype: str, key: str) -> bytes:
    """Return the bytes that precede the rows; the header describes one tensor and has the specification as a JSON string."""
    rows, d_model = len(positions), encoding.d_model
    offsets = [0, table.table_bytes(rows, d_model, dtype)]
    document = {
        "__metadata__": {"posenc": json.dumps(specification(encoding, positions, dtype))},
        key: {"dtype": DTYPES[dtype], "shape": [rows, d_model], "data_offsets": offsets},
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
    """Write the encodings of a range as the tensor `key` of a file: see `table.write_table`."""
    if key == "__metadata__":
        raise checks.wrong("key", f"is {key!r}, expected another name: the format reserves this name")
    try:
        key.encode()
    except UnicodeEncodeError:          # invalid UTF-8 on the command line; JSON could escape it, but readers refuse it
        raise checks.wrong("key", f"is {key!r}, expected valid Unicode text") from None
    name, _ = table.checked(positions, dtype)
    return table.write_table(path, header(encoding, positions, name, key), encoding, positions, name, **keywords)


def opened(path: str | os.PathLike[str], *, key: str | None = None) -> AbstractContextManager[table.Table]:
    """Open a tensor of a .safetensors file as a table; the size of the file must match its header.

    Parameters
    ----------
    path : path_like
    key : str, optional
        Name of the tensor.  By default, the only tensor of the file, or ``pe`` if the file has several.

    Raises
    ------
    ValueError
        If the file is not valid or has no such tensor, or if the tensor is not a table.
    """
    return table.opened(path, lambda file, file_size: _table(file, file_size, key))


def _table(file: io.FileIO, file_size: int, key: str | None) -> table.Table:
    tensors, document, begin = _read_header(file, file_size)
    if key is None:
        key = "pe" if len(tensors) != 1 else next(iter(tensors))
    if key not in tensors:
        names = ", ".join(map(repr, sorted(tensors))) or "none"
        raise ValueError(f"no tensor {key!r}, expected key to be one of: {names}")
    dtype, shape, (first, _) = tensors[key]
    if dtype not in NAMES:
        raise ValueError(f"dtype {dtype}, expected {', '.join(NAMES)}")
    shape = table.table_shape(shape)
    bits = np.dtype(f"<u{table.itemsize(NAMES[dtype])}")
    return table.Table(file, shape, NAMES[dtype], bits, begin + first, described(document, shape))


def _read_header(file: io.FileIO, file_size: int) -> tuple[dict[str, Entry], Any, int]:
    """Return the tensors as {name: (dtype, shape, offsets)}, the specification or None, and the offset of the data.

    Raise ValueError for every file that the library refuses; the tensors must cover the data without gaps or overlaps.
    """
    try:
        length = int.from_bytes(table.read_bytes(file, 0, min(8, file_size)).tobytes(), "little")
        begin = 8 + length
        if not length <= min(LONGEST_HEADER, file_size - 8):
            raise ValueError(f"a header of {length} bytes in a file of {file_size} bytes")
        text = table.read_bytes(file, 8, length).tobytes().decode()         # json.loads would also accept bytes in UTF-16
        tensors = json.loads(text, object_pairs_hook=_without_duplicates, parse_int=_unsigned)
        metadata = tensors.pop("__metadata__", {})
        "".join([*tensors, *metadata, *metadata.values()]).encode()         # raises unless all are valid Unicode strings
        document = json.loads(metadata["posenc"]) if "posenc" in metadata else None
        tensors = {name: _entry(**tensor) for name, tensor in tensors.items()}
        end = 0
        for name, (_, _, (first, last)) in sorted(tensors.items(), key=lambda item: item[1][2]):
            if first != end:
                raise ValueError(f"tensor {name!r} begins at {first}, expected {end}, without a gap or an overlap")
            end = last
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    if file_size != begin + end:
        raise ValueError(f"{file_size} bytes, expected {begin + end}")
    return tensors, document, begin


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) != len(pairs):
        raise ValueError("duplicate names, expected unique names")
    return names


def _unsigned(digits: str) -> int:
    number = int(digits)
    if digits[0] == "-" or number >= 2**64:
        raise ValueError(f"{digits}, expected 0 <= number < 2**64")
    return number


def _entry(dtype: str, shape: Sequence[int], data_offsets: Sequence[int]) -> Entry:
    begin, end = data_offsets
    if not isinstance(shape, list) or any(type(number) is not int for number in (*shape, begin, end)):
        raise ValueError(f"shape {shape} and offsets {begin} and {end}, expected integers")
    if dtype not in BITS:
        raise ValueError(f"dtype {dtype}, expected one of {', '.join(BITS)}")
    bits = 1
    for factor in (*shape, BITS[dtype]):
        bits *= factor
        if bits >= 2**64:               # the library's limit; it also bounds the time for very many factors
            raise ValueError(f"shape {str(shape)[:100]} of {dtype}, expected fewer than 2**64 bits")
    if bits != 8 * (end - begin):
        raise ValueError(f"{end - begin} bytes, expected {bits / 8:g} for shape {shape} of {dtype}")
    return dtype, tuple(shape), (begin, end)
