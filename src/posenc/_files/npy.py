"""NumPy's .npy format."""

from __future__ import annotations

import io
from typing import BinaryIO

import numpy as np

from posenc._files import table
from posenc._files.specification import Specification


def header(specification: Specification) -> bytes:
    """Return the bytes that precede the rows."""
    file = io.BytesIO()
    description = {"descr": table.STORED[specification.dtype], "fortran_order": False, "shape": specification.shape}
    np.lib.format.write_array_header_1_0(file, description)
    return file.getvalue()


def read_header(file: BinaryIO, file_size: int) -> table.Table:
    """Return the table in a .npy file, without pickle; the size of the file must match its header."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):           # the others are for longer headers than that of a table, of up to 4 GB
            raise ValueError(f"version {version}, expected (1, 0)")
        axes, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except OSError:
        raise
    except Exception as error:          # NumPy's parser may also raise SyntaxError, TokenError or MemoryError
        raise ValueError(f"not a .npy file: {str(error)[:200]}") from error
    # np.save writes bfloat16 from ml_dtypes as V2
    name = "bfloat16" if dtype.str in ("<V2", "|V2") else table.dtype_name(dtype)
    shape = table.table_shape(axes)
    if fortran_order:
        raise ValueError("Fortran order, expected C order")
    offset = file.tell()
    size = offset + shape[0] * shape[1] * dtype.itemsize
    if file_size != size:
        raise ValueError(f"{file_size} bytes, expected {size} for shape {shape} of {dtype}")
    return table.in_file(file, shape, name, offset, ">" if dtype.str[0] == ">" else "<")
