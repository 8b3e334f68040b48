"""Files of a header and the rows behind it: written complete or not at all, in the memory of one buffer.

A table is written beside its target under another name and renamed when the disk has all of it, so that no reader, crash or
full disk ever sees a part under the final name.  Never through a mapping: on a full disk that ends the process (SIGBUS), where
a write raises an OSError.  It is the faster way too: the buffer stays near the processor, and no page of the file is read.
"""

from __future__ import annotations

import errno
import io
import mmap
import os
import shutil
import stat
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from posenc import _arguments
from posenc._arguments import BEYOND
from posenc._convention import WIDEST
from posenc._encoding import Encoding
from posenc._types import AnyDType

# Measured on ext4 with 2 GB: writes of 1 MiB took twice the time of 4 MiB, those of 16 MiB no less than those of 4.
BUFFER_BYTES = 4 << 20
# Flushing while filling took a fifth off the time to a durable file, from 16 MiB to 128 the same; waiting for one flush before
# the next 64 MiB are written lost it again.
FLUSH_BYTES = 64 << 20

# .npy and Zarr have no name for bfloat16
STORED = {"float32": "<f4", "float64": "<f8", "float16": "<f2", "bfloat16": "<u2"}
BINARY = getattr(os, "O_BINARY", 0)                             # Windows
# A file without rows may claim any width, and an encoding takes 200 bytes a column.
WIDEST_EMPTY = 2**16
UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)    # by this file system


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


# ---- writing --------------------------------------------------------------------------------------------------------


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
        _check_target(path, force)
        check_space(path, size)
        refuse_outside(encoding, positions, threads)
        with _file_to_be(path, force) as fd:
            _allocate(fd, size)
            _write_at(fd, header, 0)
            _write_blocks(fd, blocks(encoding, positions, dtype, threads), len(header), progress or nothing)
    return size


def write_bytes(path: str | os.PathLike[str], data: bytes, *, force: bool = False) -> int:
    """Writes a file of few bytes, otherwise as `write_table` does; returns their number."""
    given = os.fsdecode(path)
    with naming(given):
        path = os.path.realpath(given)
        _check_target(path, force)
        with _file_to_be(path, force) as fd:
            _write_at(fd, data, 0)
    return len(data)


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


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Has every OSError name the user's file: system calls know a descriptor, or the temporary name."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def _check_target(path: str, force: bool) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.lexists(path) and not force:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "Not a regular file", path)     # root could rename onto /dev/null


def check_space(path: str, size: int) -> None:
    total, _, free = shutil.disk_usage(os.path.dirname(path))
    if size > free and total:                                       # some network folders say 0 of 0
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {size} bytes needed, {free} free", path)


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


def name_beside(path: str) -> str:
    """A name in the same folder that nobody can foresee, which together with O_EXCL keeps others' files and links out."""
    folder, name = os.path.split(path)
    # names have at most 255 bytes
    return os.path.join(folder, f".{name[:50]}.{os.getpid()}.{os.urandom(8).hex()}.tmp")


@contextmanager
def _file_to_be(path: str, force: bool) -> Iterator[int]:
    """A descriptor of a new file beside `path`, which takes that name when all went well and is gone otherwise."""
    temporary = name_beside(path)
    fd: int | None = None
    try:
        fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | BINARY, 0o666)     # less the umask
        yield fd
        os.fsync(fd)
        closing, fd = fd, None
        os.close(closing)
        _publish(temporary, path, force)
    finally:
        if fd is not None:
            os.close(fd)
        with suppress(OSError):
            os.unlink(temporary)        # after os.replace there is none
    sync_folder(os.path.dirname(path))


def _publish(temporary: str, path: str, force: bool) -> None:
    if force:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)        # unlike rename, refuses to overwrite a file made meanwhile
    except FileExistsError:
        raise
    except (OSError, AttributeError):   # no hard links here, as on FAT: only a moment between test and rename is left
        _check_target(path, force)
        os.rename(temporary, path)


def sync_folder(folder: str) -> None:
    """Makes the new name durable."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except PermissionError:             # Windows; a folder that one may write to and not read
        return
    try:
        with _tolerating(UNSUPPORTED):
            os.fsync(fd)
    finally:
        os.close(fd)


def _allocate(fd: int, size: int) -> None:
    """Reserves the blocks, so that a full disk is known now and not after an hour."""
    if hasattr(os, "posix_fallocate"):  # not on macOS and Windows
        with _tolerating(UNSUPPORTED):
            os.posix_fallocate(fd, 0, size)


@contextmanager
def _tolerating(numbers: Collection[int]) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno not in numbers:
            raise


def _write_blocks(
    fd: int, blocks: Iterable[memoryview], offset: int, progress: Callable[[int], object]
) -> None:
    """Writes blocks one behind the other, while a thread takes to the disk what was written before."""
    flushing: Future[None] = Future()
    flushing.set_result(None)
    unflushed = 0
    with ThreadPoolExecutor(1, "posenc-flush") as flusher:
        for block in blocks:
            _write_at(fd, block, offset)
            offset += len(block)
            unflushed += len(block)
            if unflushed >= FLUSH_BYTES and flushing.done():
                flushing.result()       # the system reports an error of the disk only once: to whoever syncs first
                with suppress(RuntimeError):        # no thread to be had: then the last fsync does it all
                    flushing, unflushed = flusher.submit(_flush, fd), 0
            progress(len(block))
        flushing.result()


def _flush(fd: int) -> None:
    """Takes to the disk what was written, and gives the memory of its pages back.

    A long file would push everything else out of the system's cache; and taking new memory for all of it costs more than
    writing it, where a virtual machine must get that memory from its host: 3 s in place of 0.7 for 2 GB.
    """
    getattr(os, "fdatasync", os.fsync)(fd)
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):         # advice only
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def _write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Writes all of `data`: a single call may write less, as on a disk that is nearly full."""
    view = memoryview(data)
    while view:
        written = _pwrite(fd, view, offset)
        if not written:
            raise OSError(errno.EIO, "The system writes nothing")
        view = view[written:]
        offset += written


def _seek_and_write(fd: int, data: memoryview, offset: int) -> int:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


_pwrite = getattr(os, "pwrite", _seek_and_write)        # Windows has none


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
