"""The formats of table files, by suffix: their options, and the headers of .npy and .safetensors files."""

import io
import json
import os
from typing import Any, BinaryIO

import numpy as np

from posenc._arguments import arrays, checks
from posenc._files import table
from posenc._files.table import TableSpecification, specification_in

# suffix: the options that only this format has
SUFFIX_OPTIONS: dict[str, tuple[str, ...]] = {".npy": (), ".safetensors": ("key",), ".zarr": ("chunk_rows", "shard_rows")}
# the names of dtypes in .safetensors files
SAFETENSORS = {row.safetensors: name for name, row in arrays.DTYPES.items()}
ALIGNMENT = 64                  # the data starts on a cache line, for vector loads from a mapped file


def name_of(path: Any) -> str:
    """Return a path as text."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise checks.wrong_type("path", path, "a path such as 'pe.npy'")
    name = os.fsdecode(path)
    if "\0" in name or "://" in name or not name:
        raise ValueError(f"path is {name!r}, expected a path that is not empty and has no null character, and not a URL, "
                         "which posenc.dask.table(...).to_zarr can write to")
    return name


def suffix_of(path: str) -> str:
    """Return the suffix of a path; the path of a folder may end in a slash."""
    return os.path.splitext(path.rstrip("/" + os.sep))[1]


def format_of(path: str, **options: Any) -> str:
    """Return the suffix of the format of a path: for an unknown suffix, .zarr for a folder, else .npy.

    Raise an error for an option that is not None but does not apply to the format.
    """
    if options.get("key") is not None and not isinstance(options["key"], str):
        raise checks.wrong_type("key", options["key"], "a str")
    suffix = suffix_of(path)
    if suffix not in SUFFIX_OPTIONS:
        suffix = ".zarr" if os.path.isdir(path) else ".npy"
    for option, value in options.items():
        if value is not None and option not in SUFFIX_OPTIONS[suffix]:
            raise ValueError(f"{option} is {checks.shown(value)}, expected None, because {option} does not apply to {path!r}")
    return suffix


# ---- .npy --------------------------------------------------------------------------------------------------


def npy_header(specification: TableSpecification) -> bytes:
    """Return the bytes that precede the rows."""
    file = io.BytesIO()
    description = {"descr": arrays.DTYPES[specification.dtype].stored, "fortran_order": False}
    np.lib.format.write_array_header_1_0(file, description | {"shape": specification.shape})
    return file.getvalue()


def read_npy_header(file: BinaryIO, file_size: int) -> table.Table:
    """Return the table in a .npy file, without pickle; the size of the file must match its header."""
    try:
        version = np.lib.format.read_magic(file)
        if version != (1, 0):        # the others are for longer headers than that of a table, of up to 4 GB
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


# ---- .safetensors: the length of a JSON header, the header, and the rows -----------------------------------
#
# The safetensors library checks the header of a file.  Files are written without it, because it needs the
# whole tensor in memory.


def safetensors_header(specification: TableSpecification, key: str | None) -> bytes:
    """Return the bytes that precede the rows.

    The header describes one tensor and has the specification as a JSON string.
    """
    key = "pe" if key is None else key
    # from invalid UTF-8 on the command line
    if key == "__metadata__" or key.encode(errors="ignore").decode() != key:
        raise ValueError(f"key is {key!r}, expected valid Unicode text, and not '__metadata__', which the format reserves")
    code = arrays.DTYPES[specification.dtype].safetensors
    tensors = {
        "__metadata__": {"posenc": json.dumps(specification.document())},
        key: {"dtype": code, "shape": specification.shape, "data_offsets": [0, specification.nbytes]},
    }
    text = json.dumps(tensors).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_safetensors_header(file: BinaryIO, file_size: int, key: str | None) -> table.Table:
    """Return the table in a tensor of a file, by default the only tensor, or ``pe`` if there are several."""
    try:
        from safetensors import SafetensorError, safe_open
    except ModuleNotFoundError as error:
        raise checks.not_installed("reading .safetensors", error) from error
    try:
        safe_open(file.name, "np")      # raises an error unless the header and the size of the file are valid
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
    if code not in SAFETENSORS:
        raise ValueError(f"dtype {code}, expected {', '.join(SAFETENSORS)}")
    shape = table.table_shape(tuple(tensors[key]["shape"]))
    offset = 8 + size + tensors[key]["data_offsets"][0]
    return table.in_file(file, shape, SAFETENSORS[code], offset, specification=specification_in(document, shape))
