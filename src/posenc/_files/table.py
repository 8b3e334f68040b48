"""Tables in files: a header and the rows, written through one buffer.

Writing through a buffer is faster than mapping the file, because the buffer stays in the processor's cache, and no page of the
file is read.
"""

from __future__ import annotations

import errno
import io
import math
import mmap
import os
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks, install
from posenc._arguments.checks import BEYOND
from posenc._arguments.dtypes import DTYPES
from posenc._arguments.types import AnyDType
from posenc._encoding.columns import WIDEST
from posenc._encoding.encoding import Encoding
from posenc._files.atomic import allocate, check_space, check_target, naming, temporary_file, write_at, write_blocks

# On ext4, writes of 16 MiB are as fast as writes of 4 MiB; writes of 1 MiB are half as fast (measured for 2 GB).
BUFFER_BYTES = 4 << 20

Opened = TypeVar("Opened")
STORED = {name: row.stored for name, row in DTYPES.items()}
# Limit for tables without rows, because a small file can state any width, and a new Encoding needs 200 bytes for each column.
WIDEST_EMPTY = 2**16


# ---- rows -----------------------------------------------------------------------------------------------------------


def itemsize(dtype: str) -> int:
    return np.dtype(STORED[dtype]).itemsize


def table_bytes(rows: int, d_model: int, dtype: str) -> int:
    return rows * d_model * itemsize(dtype)


def dtype_name(dtype: np.dtype[Any]) -> str:
    """Return the name of the values' dtype, given the dtype in a file; uint16 holds the bits of bfloat16."""
    name = "bfloat16" if dtype.name == "uint16" else dtype.name
    if name not in STORED:
        raise ValueError(f"dtype {dtype}, expected float32, float64, float16 or uint16 (the bits of bfloat16)")
    return name


def row_buffer(rows: int, d_model: int, dtype: str) -> NDArray[Any]:
    """Return an array for all rows, or for as many (at least one) as fit in BUFFER_BYTES; for bfloat16, its dtype is uint16.

    The array is page-aligned, because the kernels store whole cache lines and the system copies whole pages.
    """
    row_bytes = d_model * itemsize(dtype)
    rows = min(rows, max(1, BUFFER_BYTES // max(1, row_bytes)))
    memory = mmap.mmap(-1, max(1, rows * row_bytes))
    return np.frombuffer(memory, np.dtype(STORED[dtype]).newbyteorder("="), rows * d_model).reshape(rows, d_model)


def checked(positions: range, dtype: AnyDType) -> tuple[str, int]:
    """Check the arguments; return the name of the dtype and the number of positions."""
    return checks.dtype(dtype)[0], checks.length(positions)


def refuse_outside(encoding: Encoding, positions: range, threads: int | None) -> None:
    """Raise any error that `encode` would raise; it suffices to check both ends, because the domain is an interval."""
    for end in (positions[:1], positions[-1:]):
        encoding.encode(end, threads=threads)


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_table(
    path: str | os.PathLike[str], header: bytes, encoding: Encoding, positions: range, dtype: str, *,
    threads: int | None = None, overwrite: bool = False, progress: Callable[[int], object] = lambda written: None,
) -> int:
    """Write a header and the encodings of a range to a file, atomically, and return the size of the file in bytes.

    If the path is a symbolic link, the target of the link is written.  `progress` is called after each write of rows with the
    number of bytes in that write.  Any exception, including KeyboardInterrupt, removes the temporary file; a killed process
    leaves it behind, with a name such as ``.pe.npy.1234.0123456789abcdef.tmp``.
    """
    user_path = os.fsdecode(path)
    size = len(header) + table_bytes(len(positions), encoding.d_model, dtype)
    with naming(user_path):
        path = os.path.realpath(user_path)      # raises if the current folder was deleted
        check_target(path, overwrite)
        check_space(path, size)
        refuse_outside(encoding, positions, threads)
        with temporary_file(path, overwrite) as fd:
            allocate(fd, size)
            write_at(fd, header, 0)
            write_blocks(fd, blocks(encoding, positions, dtype, threads), len(header), progress)
    return size


def stream_table(
    file: BinaryIO, header: bytes, encoding: Encoding, positions: range, dtype: str, *,
    threads: int | None = None, progress: Callable[[int], object] = lambda written: None,
) -> int:
    """Write the bytes of `write_table` to an open file such as a pipe, from first to last, and return their number."""
    refuse_outside(encoding, positions, threads)
    file.write(header)
    for block in blocks(encoding, positions, dtype, threads):
        file.write(block)
        progress(len(block))
    file.flush()
    return len(header) + table_bytes(len(positions), encoding.d_model, dtype)


def blocks(encoding: Encoding, positions: range, dtype: str, threads: int | None) -> Iterator[memoryview]:
    """Yield the bytes of the table in order; each block overwrites the previous one."""
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
    def described(self) -> tuple[Encoding, range] | None: ...       # from the specification in the file
    @property
    def row_bytes(self) -> int: ...
    @property
    def values(self) -> Any: ...        # the attribute `values` of the File that `posenc.open` returns
    def read(self, first: int, rows: int) -> NDArray[Any]: ...      # the bits of consecutive rows, as unsigned integers


class Table(NamedTuple):
    """A table in consecutive bytes of an open file."""

    file: io.FileIO
    shape: tuple[int, int]
    dtype: str
    bits: np.dtype[Any]     # unsigned integers in the byte order of the file
    offset: int
    described: tuple[Encoding, range] | None = None

    @property
    def row_bytes(self) -> int:
        return self.shape[1] * self.bits.itemsize

    @property
    def values(self) -> NDArray[Any]:
        """The table in a read-only mapping, which remains valid after the file is closed.

        Without ml_dtypes, a table of bfloat16 is refused.  If its bits were returned as integers, a program would compute
        with different values when ml_dtypes is not installed.
        """
        mapping = mmap.mmap(self.file.fileno(), 0, access=mmap.ACCESS_READ)
        bits = np.frombuffer(mapping, self.bits, math.prod(self.shape), self.offset).reshape(self.shape)
        element = checks.dtype(self.dtype)[1]
        if self.dtype == "bfloat16" and element == np.uint16:
            error = ModuleNotFoundError(name="ml_dtypes")
            raise install.not_installed(f"{self.file.name}: dtype bfloat16", "bfloat16", error)
        if not self.bits.isnative:
            element = self.bits if self.dtype == "bfloat16" else element.newbyteorder()      # ml_dtypes has native order only
        return bits.view(element)

    def read(self, first: int, rows: int) -> NDArray[Any]:
        raw = read_bytes(self.file, self.offset + first * self.row_bytes, rows * self.row_bytes)
        return raw.view(self.bits).reshape(rows, self.shape[1]).astype(self.bits.newbyteorder("="), copy=False)


def read_bytes(file: io.FileIO, offset: int, size: int) -> NDArray[np.uint8]:
    """Read `size` bytes; a single `readinto` may read fewer."""
    raw = np.empty(size, np.uint8)
    view = raw.data
    file.seek(offset)
    while len(view):
        read = file.readinto(view)
        if not read:
            raise OSError(errno.EIO, "The file was truncated while it was read", file.name)
        view = view[read:]
    return raw


@contextmanager
def opened(path: str | os.PathLike[str], read_header: Callable[[io.FileIO, int], Opened]) -> Iterator[Opened]:
    """Open a file and yield ``read_header(file, size)``; the message of every ValueError begins with the path."""
    with naming(path), open(path, "rb", buffering=0, opener=_without_waiting) as file:
        with explaining(path):
            status = os.fstat(file.fileno())
            if not stat.S_ISREG(status.st_mode):
                raise ValueError("not a regular file")
            found = read_header(file, status.st_size)
        yield found


def _without_waiting(path: str, flags: int) -> int:
    """Open a file without blocking on a named pipe, which `opened` then refuses."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0))


@contextmanager
def explaining(path: str | os.PathLike[str]) -> Iterator[None]:
    """Prefix the message of a ValueError with the path."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def table_shape(shape: tuple[int, ...]) -> tuple[int, int]:
    """Check the shape of a table, (n, d_model), (1, n, d_model) or (n, 1, d_model), and return (n, d_model)."""
    if len(shape) == 3 and 1 in shape[:2]:
        shape = (shape[0] * shape[1], shape[2])
    if len(shape) != 2 or min(shape) < 0:
        raise ValueError(f"shape {shape}, expected (positions, columns)")
    if shape[0] >= BEYOND or shape[1] > WIDEST:
        raise ValueError(f"shape {shape}, expected at most {BEYOND - 1} positions and {WIDEST} columns")
    if not shape[0] and shape[1] > WIDEST_EMPTY:
        raise ValueError(f"shape {shape}, expected at most {WIDEST_EMPTY} columns in a table without rows")
    return shape
