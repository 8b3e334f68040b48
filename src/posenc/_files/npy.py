"""NumPy's .npy format."""

from __future__ import annotations

import io
import os
from contextlib import AbstractContextManager
from typing import Any, BinaryIO

import numpy as np

from posenc._arguments.types import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import table

LONGEST_HEADER = 10_000
READ_HEADER = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}


def header(rows: int, d_model: int, dtype: str) -> bytes:
    """Return the header of a table: the bytes before the rows."""
    file = io.BytesIO()
    description = {"descr": table.STORED[dtype], "fortran_order": False, "shape": (rows, d_model)}
    np.lib.format.write_array_header_1_0(file, description)
    return file.getvalue()


def write(
    path: str | os.PathLike[str], encoding: Encoding, positions: range, dtype: AnyDType = "float32", **keywords: Any
) -> int:
    """Write the encodings of a range to a .npy file: see `table.write_table`."""
    name, rows = table.checked(positions, dtype)
    return table.write_table(path, header(rows, encoding.d_model, name), encoding, positions, name, **keywords)


def stream(file: BinaryIO, encoding: Encoding, positions: range, dtype: AnyDType = "float32", **keywords: Any) -> int:
    """Write the bytes of a .npy file to a pipe: see `table.stream_table`."""
    name, rows = table.checked(positions, dtype)
    return table.stream_table(file, header(rows, encoding.d_model, name), encoding, positions, name, **keywords)


def opened(path: str | os.PathLike[str]) -> AbstractContextManager[table.Table]:
    """Open a .npy file as a table, without pickle; the size of the file must match its header."""
    return table.opened(path, _table)


def _table(file: io.FileIO, file_size: int) -> table.Table:
    shape, fortran_order, dtype = _read_header(file)
    # np.save writes bfloat16 from ml_dtypes as V2
    name = "bfloat16" if dtype.str in ("<V2", "|V2") else table.dtype_name(dtype)
    shape = table.table_shape(shape)
    if fortran_order:
        raise ValueError("Fortran order, expected C order")
    offset = file.tell()
    size = offset + shape[0] * shape[1] * dtype.itemsize
    if file_size != size:
        raise ValueError(f"{file_size} bytes, expected {size} for shape {shape} of {dtype}")
    byte_order = ">" if dtype.str[0] == ">" else "<"
    return table.Table(file, shape, name, np.dtype(f"{byte_order}u{dtype.itemsize}"), offset)


def _read_header(file: io.FileIO) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    try:
        version = np.lib.format.read_magic(file)
        if version not in READ_HEADER:
            raise ValueError(f"version {version}, expected (1, 0) or (2, 0)")
        # NumPy checks the length only after it has read the header, which can be 4 GB long in a sparse file
        start = file.tell()
        length = int.from_bytes(file.read(2 if version == (1, 0) else 4), "little")
        if length > LONGEST_HEADER:
            raise ValueError(f"a header of {length} bytes, expected at most {LONGEST_HEADER}")
        file.seek(start)
        return READ_HEADER[version](file)
    except OSError:
        raise
    except Exception as error:          # NumPy's parser may also raise SyntaxError, TokenError or MemoryError
        raise ValueError(f"not a .npy file: {str(error)[:200]}") from error
