"""Tables in files: their specification, their rows, and the headers of .npy and .safetensors files.

Writing through a buffer is faster than mapping the file, because the buffer stays in the processor's cache,
and no page of the file is read.
"""

import errno
import io
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import NoneType
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import arrays, checks
from posenc._core import kernel
from posenc._encoding.columns import MAX_COLUMNS
from posenc._encoding.encoding import Encoding, rows_of_chunk, without_durations

# Limit for tables without rows, because a small file can state any width, and a new Encoding needs 200 bytes
# for each column.
MAX_EMPTY_COLUMNS = 2**16
# suffix: the options that only this format has
SUFFIX_OPTIONS = {".npy": (), ".safetensors": ("key",), ".zarr": ("chunk_rows", "shard_rows")}
# the names of dtypes in .safetensors files
SAFETENSORS = {row.safetensors: name for name, row in arrays.DTYPES.items()}
ALIGNMENT = 64                  # the data starts on a cache line, for vector loads from a mapped file

# ---- paths -----------------------------------------------------------------------------------------------


def name_of(path: Any) -> str:
    """Return a path as text."""
    checks.check_type("path", path, (str, bytes, os.PathLike), "a path such as 'pe.npy'")
    name = os.fsdecode(path)
    if not name or "\0" in name or "://" in name:
        raise ValueError(f"path is {name!r}, expected a local file; posenc.dask.table(...).to_zarr takes URLs")
    return name


def suffix_of(path: str) -> str:
    """Return the suffix of a path; the path of a folder may end in a slash."""
    return os.path.splitext(path.rstrip("/" + os.sep))[1]


def format_of(path: str, **options: Any) -> str:
    """Return the suffix of the format of a path: for an unknown suffix, .zarr for a folder, else .npy.

    Raise an error for an option that is not None but does not apply to the format.
    """
    checks.check_type("key", options.get("key"), (str, NoneType), "a str")
    suffix = suffix_of(path)
    if suffix not in SUFFIX_OPTIONS:
        suffix = ".zarr" if os.path.isdir(path) else ".npy"
    for option, value in options.items():
        if value is not None and option not in SUFFIX_OPTIONS[suffix]:
            raise ValueError(f"{option} is {checks.shown(value)}, but {option} does not apply to {path!r}")
    return suffix


# ---- specification -----------------------------------------------------------------------------------------


class TableSpecification(NamedTuple):
    """The positions of the rows, the encoding, and the dtype of the values.

    A file may store the bits of bfloat16 as uint16.
    """

    positions: range
    encoding: Encoding
    dtype: str

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.positions), self.encoding.d_model

    @property
    def nbytes(self) -> int:
        return len(self.positions) * self.encoding.d_model * itemsize(self.dtype)

    def document(self) -> dict[str, Any]:
        """Return the specification as a dict for JSON: `Encoding.to_dict`, with the positions and the dtype.

        >>> from posenc import Encoding
        >>> from posenc._files.table import TableSpecification, specification_in
        >>> specification = TableSpecification(range(10, 50), Encoding(64, base=500.0), "float32")
        >>> specification_in(specification.document(), (40, 64)) == specification
        True
        """
        positions = {"start": self.positions.start, "stop": self.positions.stop, "step": self.positions.step}
        return self.encoding.to_dict() | {"positions": positions, "dtype": self.dtype}


def itemsize(dtype: str) -> int:
    return int(arrays.DTYPES[dtype].stored[2:])


def checked_specification(positions: Any, encoding: Any, dtype: Any) -> TableSpecification:
    """Return the specification of a table to write; raise every error that `encode` would raise."""
    positions = checks.range_of(positions, without_durations(encoding, "a file").position_offset)
    return TableSpecification(positions, encoding, arrays.dtype(dtype)[0])


def specification_in(document: Any, shape: tuple[int, ...]) -> TableSpecification | None:
    """Return the specification in a document, and check that it fits `shape`; return None for None."""
    if document is None:
        return None
    try:
        positions = range(*(document["positions"][name] for name in ("start", "stop", "step")))
        expected = len(positions), document["d_model"]
        # compare the shape first: a wrong d_model may be huge, and an Encoding takes memory for each column
        if shape == expected:
            return checked_specification(positions, Encoding.from_dict(document), document["dtype"])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"not a posenc specification: {type(error).__name__}: {error}") from error
    raise ValueError(f"shape {shape}, expected {expected} from the specification in the file")


# ---- dtype, shape and memory -------------------------------------------------------------------------------


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of the values' dtype, given the dtype in a file; uint16 holds the bits of bfloat16."""
    name = "bfloat16" if dtype.name == "uint16" else dtype.name
    if name not in arrays.DTYPES:
        raise ValueError(f"dtype {dtype}, expected float32, float64, float16 or uint16 (bits of bfloat16)")
    return name


def table_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Check the shape of a table, (n, d), (1, n, d) or (n, 1, d), and return (n, d)."""
    if len(shape) == 3 and 1 in shape[:2]:
        shape = (shape[0] * shape[1], shape[2])
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"shape {shape}, expected (positions, columns)")
    columns = MAX_COLUMNS if shape[0] else MAX_EMPTY_COLUMNS
    if shape[0] >= checks.BEYOND or shape[1] > columns:
        raise ValueError(f"shape {shape}, expected fewer than 2**63 positions and at most {columns} columns")
    return shape


def row_buffer(rows: int, d_model: int, dtype: str) -> NDArray[Any]:
    """Return an array for some rows; for bfloat16, its dtype is uint16."""
    memory = kernel.output_array(None, (rows, d_model), f"float{8 * itemsize(dtype)}", "rows")
    return memory.view(np.uint16) if dtype == "bfloat16" else memory


# ---- writing -----------------------------------------------------------------------------------------------


def callback(progress: Any) -> Callable[[int], object]:
    """Return the function that receives the number of bytes."""
    checks.check_type("progress", progress, (Callable, NoneType), "a function")
    return progress or (lambda size: None)


def rows_to_write(
    specification: TableSpecification, threads: int | None, progress: Callable[[int], object], rows: int = 0
) -> Iterator[Any]:
    """Yield arrays of rows in the byte order of files, each of which overwrites the previous one.

    Call `progress` with the size of each block.  By default, a block is a chunk.
    """
    positions, encoding, dtype = specification
    rows = min(len(positions), rows or rows_of_chunk(encoding.d_model, itemsize(dtype)))
    buffer = row_buffer(rows, encoding.d_model, dtype)
    for chunk in encoding.stream(positions, dtype=dtype, out=buffer, threads=threads) if buffer.size else ():
        yield chunk.values.astype(arrays.DTYPES[dtype].stored, copy=False)
        progress(chunk.values.nbytes)


# ---- reading -----------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """A table in an open file of any format."""

    shape: tuple[int, int]
    dtype: str                                              # a name in DTYPES
    specification: TableSpecification | None                     # in the file
    chunk_rows: int                                 # number of rows that can only be read together
    read: Callable[[int, int], NDArray[Any]]        # read(first, rows): their bits as unsigned integers
    values: Callable[[], Any]        # the attribute `values` of the File that `posenc.open` returns


def in_file(
    file: BinaryIO, shape: tuple[int, int], dtype: str, offset: int, byte_order: str = "<",
    specification: TableSpecification | None = None,
) -> Table:
    """Return the table in consecutive bytes of an open file."""
    bits = np.dtype(f"{byte_order}u{itemsize(dtype)}")

    def read(first: int, rows: int) -> NDArray[Any]:
        file.seek(offset + first * shape[1] * bits.itemsize)
        values = np.fromfile(file, bits, rows * shape[1])
        if len(values) != rows * shape[1]:
            raise OSError(errno.EIO, "The file was truncated while it was read", file.name)
        return values.reshape(rows, shape[1]).astype(bits.newbyteorder("="), copy=False)

    def values() -> NDArray[Any]:
        """Return a read-only mapping, which remains valid after the file is closed.

        Without ml_dtypes, a table of bfloat16 is refused.  If its bits were returned as integers, a program
        would compute with different values when ml_dtypes is not installed.
        """
        array = np.asarray(np.memmap(file, bits, "r", offset, shape))
        element = arrays.dtype(dtype)[1]
        if dtype == "bfloat16" and element == np.uint16:
            raise checks.not_installed(f"{file.name}: dtype bfloat16", "ml_dtypes")
        if not bits.isnative:
            # ml_dtypes has native order only
            element = bits if dtype == "bfloat16" else element.newbyteorder()
        return array.view(element)

    return Table(shape, dtype, specification, 1, read, values)


@contextmanager
def explaining(path: str) -> Iterator[None]:
    """Prefix the message of a ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


# ---- .npy --------------------------------------------------------------------------------------------------


def npy_header(specification: TableSpecification) -> bytes:
    """Return the bytes that precede the rows."""
    file = io.BytesIO()
    description = {"descr": arrays.DTYPES[specification.dtype].stored, "fortran_order": False}
    np.lib.format.write_array_header_1_0(file, description | {"shape": specification.shape})
    return file.getvalue()


def read_npy_header(file: BinaryIO) -> Table:
    """Return the table in a .npy file, without pickle; the size of the file must match its header."""
    try:
        if (version := np.lib.format.read_magic(file)) != (1, 0):      # others have longer headers than a table
            raise ValueError(f"the version of the header is {version}, expected (1, 0)")
        axes, fortran_order, dtype = np.lib.format.read_array_header_1_0(file)
    except OSError:
        raise
    except Exception as error:          # NumPy's parser may also raise SyntaxError, TokenError or MemoryError
        raise ValueError(f"not a .npy file: {str(error)[:200]}") from error
    # np.save writes bfloat16 from ml_dtypes as V2
    name = "bfloat16" if dtype.str in ("<V2", "|V2") else dtype_name(dtype)
    shape = table_shape(axes)
    if fortran_order:
        raise ValueError("Fortran order, expected C order")
    offset = file.tell()
    size, file_size = offset + shape[0] * shape[1] * dtype.itemsize, os.fstat(file.fileno()).st_size
    if file_size != size:
        raise ValueError(f"{file_size} bytes, expected {size} for shape {shape} of {dtype}")
    return in_file(file, shape, name, offset, ">" if dtype.str[0] == ">" else "<")


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
        raise ValueError(f"key is {key!r}, expected Unicode text other than '__metadata__', a reserved name")
    code = arrays.DTYPES[specification.dtype].safetensors
    tensors = {
        "__metadata__": {"posenc": json.dumps(specification.document())},
        key: {"dtype": code, "shape": specification.shape, "data_offsets": [0, specification.nbytes]},
    }
    text = json.dumps(tensors).encode()
    text += b" " * (-(8 + len(text)) % ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def read_safetensors(file: BinaryIO) -> tuple[dict[str, Any], Any, int]:
    """Return an entry for each tensor of a file, the specification, and the offset of the data."""
    with checks.importing_for("reading .safetensors"):
        from safetensors import SafetensorError, safe_open
    try:
        safe_open(file.name, "np")      # raises an error unless the header and the size of the file are valid
        size = int.from_bytes(file.read(8), "little")
        tensors = json.loads(file.read(size))
        document = json.loads((tensors.pop("__metadata__", None) or {}).get("posenc", "null"))
    except (SafetensorError, ValueError, RecursionError) as error:
        raise ValueError(f"not a .safetensors file: {str(error)[:200]}") from error
    return tensors, document, 8 + size


def read_safetensors_header(file: BinaryIO, key: str | None) -> Table:
    """Return the table in a tensor of a file, by default the only tensor, or ``pe`` if there are several."""
    tensors, document, start = read_safetensors(file)
    if key is None:
        key = "pe" if len(tensors) != 1 else next(iter(tensors))
    if key not in tensors:
        raise ValueError(f"no tensor {key!r}, expected key to be one of {sorted(tensors)}")
    code = tensors[key]["dtype"]
    if code not in SAFETENSORS:
        raise ValueError(f"dtype {code}, expected {', '.join(SAFETENSORS)}")
    shape = table_shape(tuple(tensors[key]["shape"]))
    offset = start + tensors[key]["data_offsets"][0]
    return in_file(file, shape, SAFETENSORS[code], offset, specification=specification_in(document, shape))
