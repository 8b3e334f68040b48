"""Tables in files: the specification of a table, and its rows, which are written through one buffer.

Writing through a buffer is faster than mapping the file, because the buffer stays in the processor's cache,
and no page of the file is read.
"""

import errno
import mmap
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import arrays, checks
from posenc._encoding.columns import WIDEST
from posenc._encoding.encoding import Encoding, check_encoding, rows_of_chunk, without_durations
from posenc._files.atomic import naming

# Limit for tables without rows, because a small file can state any width, and a new Encoding needs 200 bytes
# for each column.
WIDEST_EMPTY = 2**16

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
    check_encoding(encoding)
    without_durations(encoding, "a file")
    positions = checks.range_of(positions, encoding.position_offset)
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
        raise ValueError(f"dtype {dtype}, expected float32, float64, float16 or uint16 (the bits of bfloat16)")
    return name


def table_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Check the shape of a table, (n, d), (1, n, d) or (n, 1, d), and return (n, d)."""
    if len(shape) == 3 and 1 in shape[:2]:
        shape = (shape[0] * shape[1], shape[2])
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"shape {shape}, expected (positions, columns)")
    columns = WIDEST if shape[0] else WIDEST_EMPTY
    if shape[0] >= checks.BEYOND or shape[1] > columns:
        raise ValueError(f"shape {shape}, expected at most {checks.BEYOND - 1} positions and {columns} columns")
    return shape


def buffer_rows(rows: int, d_model: int, dtype: str) -> int:
    """Return the number of all rows, or of those of a chunk."""
    return min(rows, rows_of_chunk(d_model, itemsize(dtype)))


def row_buffer(rows: int, d_model: int, dtype: str) -> NDArray[Any]:
    """Return an array for some rows; for bfloat16, its dtype is uint16.

    The array is page-aligned, because the kernels store whole cache lines and the system copies whole pages.
    """
    memory = mmap.mmap(-1, max(1, rows * d_model * itemsize(dtype)))
    return np.frombuffer(memory, np.dtype(arrays.DTYPES[dtype].stored).newbyteorder("="), rows * d_model).reshape(rows, d_model)


# ---- writing -----------------------------------------------------------------------------------------------


def callback(progress: Any) -> Callable[[int], object]:
    """Return the function that receives the number of bytes."""
    if progress is not None and not callable(progress):
        raise checks.wrong_type("progress", progress, "a function")
    return progress or (lambda size: None)


def blocks(
    specification: TableSpecification, threads: int | None, progress: Callable[[int], object], rows: int | None = None
) -> Iterator[Any]:
    """Yield arrays of rows in the byte order of files, each of which overwrites the previous one.

    Call `progress` with the size of each block.  By default, a block is a chunk.
    """
    positions, encoding, dtype = specification
    buffer = row_buffer(rows or buffer_rows(*specification.shape, dtype), encoding.d_model, dtype)
    for chunk in encoding.stream(positions, dtype=dtype, out=buffer, threads=threads) if buffer.size else ():
        yield chunk.values.astype(arrays.DTYPES[dtype].stored, copy=False)
        progress(chunk.values.nbytes)


# ---- reading -----------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """A table in an open file of any format."""

    shape: tuple[int, int]
    dtype: str                                              # a name in DTYPES
    specification: TableSpecification | None                     # in the file
    block_rows: int                                         # number of rows that are best read at once
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
            raise checks.not_installed(f"{file.name}: dtype bfloat16", ModuleNotFoundError(name="ml_dtypes"))
        if not bits.isnative:
            # ml_dtypes has native order only
            element = bits if dtype == "bfloat16" else element.newbyteorder()
        return array.view(element)

    return Table(shape, dtype, specification, buffer_rows(*shape, dtype), read, values)


@contextmanager
def open_table_file(path: str, read_header: Callable[[BinaryIO, int], Table]) -> Iterator[Table]:
    """Open a file and yield ``read_header(file, size)``.

    The message of every ValueError begins with the path.
    """
    with naming(path), open(path, "rb", opener=_without_waiting) as file:
        with explaining(path):
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a regular file")
            table = read_header(file, status.st_size)
        yield table


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking on a named pipe, which `open_table_file` then refuses."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def explaining(path: str) -> Iterator[None]:
    """Prefix the message of a ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
