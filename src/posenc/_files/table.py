"""Tables in files: a header and the rows behind it, written and read in the memory of one buffer.

Writing from a buffer is faster than through a mapping: the buffer stays near the processor, and no page of the file is read.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from posenc import _arguments
from posenc._arguments import BEYOND
from posenc._convention import WIDEST
from posenc._encoding import Encoding
from posenc._files.atomic import allocate, check_space, check_target, file_to_be, naming, write_at, write_blocks
from posenc._types import AnyDType

# Measured on ext4 with 2 GB: writes of 1 MiB took twice the time of 4 MiB, those of 16 MiB no less than those of 4.
BUFFER_BYTES = 4 << 20

# .npy and Zarr have no name for bfloat16
STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<u2"}
# A file without rows may claim any width, and an encoding takes 200 bytes a column.
WIDEST_EMPTY = 2**16


# ---- rows -----------------------------------------------------------------------------------------------------------


def itemsize(dtype: str) -> int:
    """Bytes of a value of the dtype of that name."""
    return np.dtype(STORED[dtype]).itemsize


def table_bytes(rows: int, d_model: int, dtype: str) -> int:
    """Bytes of a table."""
    return rows * d_model * itemsize(dtype)


def row_buffer(rows: int, d_model: int, dtype: str) -> NDArray[Any]:
    """An array for as many of the rows as BUFFER_BYTES hold, and for one however long; bfloat16 as uint16.

    It begins on a page: the kernels store whole cache lines, the system copies whole pages.
    """
    row_bytes = d_model * itemsize(dtype)
    rows = min(rows, max(1, BUFFER_BYTES // max(1, row_bytes)))
    memory = mmap.mmap(-1, max(1, rows * row_bytes))
    return np.frombuffer(memory, np.dtype(STORED[dtype]).newbyteorder("="), rows * d_model).reshape(rows, d_model)


def checked(positions: range, dtype: AnyDType) -> tuple[str, int]:
    """The name of the dtype and the number of positions."""
    return _arguments.dtype(dtype)[0], _arguments.length(positions)


def refuse_outside(encoding: Encoding, positions: range, threads: int | None) -> None:
    """Raises what `encode` would raise on its way: a range leaves the domain at one of its ends."""
    for end in (positions[:1], positions[-1:]):
        encoding.encode(end, threads=threads)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_table(
    path: str | os.PathLike[str],
    header: bytes,
    encoding: Encoding,
    positions: range,
    dtype: str,
    *,
    threads: int | None = None,
    force: bool = False,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Writes a header and the encodings of a range to a file, which appears complete or not at all.

    Parameters
    ----------
    path : path_like
        A symbolic link stays one: the file that it names is written.
    header : bytes
    encoding : Encoding
    positions : range
    dtype : {"float32", "float64", "float16", "bfloat16"}
    threads : int, optional
        As in `posenc.encode`.
    force : bool, optional
        Replace an existing file, at the end and in one step.
    progress : callable, optional
        Called with the number of bytes after each write.

    Returns
    -------
    int
        Size of the file in bytes.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value.
    FileExistsError
        Where the file exists, or has come to exist meanwhile, without `force`.
    OSError
        Whatever else the system refuses; its ``filename`` is `path`.

    Notes
    -----
    After any exception, KeyboardInterrupt included, the temporary file is gone.  A killed process leaves it, under a name
    like ``.pe.npy.1234.0123456789abcdef.tmp``.
    """
    given = os.fsdecode(path)
    size = len(header) + table_bytes(len(positions), encoding.d_model, dtype)
    with naming(given):
        path = os.path.realpath(given)      # fails where the current folder is gone
        check_target(path, force)
        check_space(path, size)
        refuse_outside(encoding, positions, threads)
        with file_to_be(path, force) as fd:
            allocate(fd, size)
            write_at(fd, header, 0)
            write_blocks(fd, blocks(encoding, positions, dtype, threads), len(header), progress or nothing)
    return size


def stream_table(
    file: io.BufferedIOBase,
    header: bytes,
    encoding: Encoding,
    positions: range,
    dtype: str,
    *,
    threads: int | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Writes the same bytes to a pipe, or whatever else takes them in order.

    Parameters
    ----------
    file : io.BufferedIOBase
        Open for writing.
    header, encoding, positions, dtype, threads, progress
        As in `write_table`.

    Returns
    -------
    int
        Number of bytes written.
    """
    refuse_outside(encoding, positions, threads)
    progress = progress or nothing
    file.write(header)
    for block in blocks(encoding, positions, dtype, threads):
        file.write(block)
        progress(len(block))
    file.flush()
    return len(header) + table_bytes(len(positions), encoding.d_model, dtype)


def nothing(written: int) -> None:
    """The progress that nobody wants to know of."""


def blocks(encoding: Encoding, positions: range, dtype: str, threads: int | None) -> Iterator[memoryview]:
    """The bytes of the table from its first row to its last, each time in the same buffer."""
    buffer = row_buffer(len(positions), encoding.d_model, dtype)
    if not buffer.size:
        return
    for first in range(0, len(positions), len(buffer)):
        part = positions[first : first + len(buffer)]
        block = encoding.encode(part, dtype=dtype, out=buffer[: len(part)], threads=threads)
        if sys.byteorder == "big":
            block.byteswap(inplace=True)
        yield block.reshape(-1).view(np.uint8).data


# ---- reading --------------------------------------------------------------------------------------------------------


class Readable(Protocol):
    """A table in an open file of any format."""

    @property
    def shape(self) -> tuple[int, int]: ...
    @property
    def dtype(self) -> str: ...         # one of STORED
    @property
    def described(self) -> tuple[Encoding, range] | None: ...       # encoding and positions, where the file names them
    @property
    def row_bytes(self) -> int: ...
    def read(self, first: int, rows: int) -> NDArray[Any]: ...      # the bits of consecutive rows, as unsigned integers


class Table(NamedTuple):
    """A table whose rows follow one another in an open file."""

    file: io.FileIO
    shape: tuple[int, int]
    dtype: str
    bits: np.dtype[Any]     # unsigned integers of the file's byte order
    offset: int
    described: tuple[Encoding, range] | None = None

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.bits.itemsize

    def read(self, first: int, rows: int) -> NDArray[Any]:
        raw = read_bytes(self.file, self.offset + first * self.row_bytes, rows * self.row_bytes)
        return raw.view(self.bits).reshape(rows, self.shape[1]).astype(self.bits.newbyteorder("="), copy=False)


def read_bytes(file: io.FileIO, offset: int, size: int) -> NDArray[np.uint8]:
    """So many bytes, as an array: a single call may read less."""
    raw = np.empty(size, np.uint8)
    view = raw.data
    file.seek(offset)
    while len(view):
        read = file.readinto(view)
        if not read:
            raise OSError(errno.EIO, "The file became shorter while it was read", file.name)
        view = view[read:]
    return raw


@contextmanager
def opened(path: str | os.PathLike[str], read_header: Callable[[io.FileIO, int], Table]) -> Iterator[Table]:
    """A file, with what `read_header` makes of it: a Table.

    Raises
    ------
    ValueError
        Where the file is not a regular one, or `read_header` finds no table in it; it begins with the path.
    """
    with naming(path), open(path, "rb", buffering=0, opener=_without_waiting) as file:
        with explaining(path):
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a regular file")
            table = read_header(file, status.st_size)
        yield table


def _without_waiting(path: str, flags: int) -> int:
    """Opens a file; a named pipe without a writer too, which is then refused."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def explaining(path: str | os.PathLike[str]) -> Iterator[None]:
    """Has a ValueError begin with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def table_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """(positions, columns) of an array's shape, which may have an axis of length 1 before or between them.

    Raises
    ------
    ValueError
        Where no encoding has that shape.
    """
    if len(shape) == 3 and 1 in shape[:2]:
        shape = (shape[0] * shape[1], shape[2])
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"shape {shape}, expected (positions, columns)")
    if shape[0] >= BEYOND or shape[1] > WIDEST:
        raise ValueError(f"shape {shape}, expected at most {BEYOND - 1} positions and {WIDEST} columns")
    if not shape[0] and shape[1] > WIDEST_EMPTY:
        raise ValueError(f"shape {shape}, expected at most {WIDEST_EMPTY} columns in a table without rows")
    return shape
