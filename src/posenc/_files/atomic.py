"""Write files atomically.

A temporary file in the same folder is synced to the disk, then renamed.  A partial file therefore never has the final name,
even after a crash or on a full disk.  Files are not written through a mapping, because on a full disk, storing to a mapping
ends the process with SIGBUS, whereas a write raises OSError.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

# Flushing every 64 MiB in a background thread makes a durable write a fifth faster; 16 to 128 MiB are equally fast.
FLUSH_BYTES = 64 << 20
BINARY = getattr(os, "O_BINARY", 0)                             # Windows


def write_bytes(path: str | os.PathLike[str], data: bytes, *, overwrite: bool = False) -> int:
    """Write a small file atomically and return its size."""
    user_path = os.fsdecode(path)
    with naming(user_path):
        path = os.path.realpath(user_path)
        check_target(path, overwrite)
        check_space(path, len(data))
        with temporary_file(path, overwrite) as fd:
            write_at(fd, data, 0)
    return len(data)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Set the file name in every OSError to the user's path, instead of a temporary name or no name."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def exists_error(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; overwrite=True replaces it", path)


def check_target(path: str, overwrite: bool) -> None:
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if os.path.lexists(path) and not overwrite:
        raise exists_error(path)
    if os.path.lexists(path) and not os.path.isfile(path):
        raise OSError(errno.EINVAL, "Not a regular file", path)     # otherwise root could replace /dev/null
    if os.path.lexists(path) and not os.access(path, os.W_OK):
        raise PermissionError(errno.EACCES, "The file is read-only", path)      # a rename would ignore the permission


def check_space(path: str, size: int) -> None:
    folder = os.path.dirname(path)
    if not os.path.isdir(folder):
        raise FileNotFoundError(errno.ENOENT, f"{os.strerror(errno.ENOENT)}; create its folder first", path)
    total, _, free = shutil.disk_usage(folder)
    if size > free and total:                                       # some network file systems report a total of 0
        raise OSError(errno.ENOSPC, f"{os.strerror(errno.ENOSPC)}: {quantity(size)} needed, {quantity(free)} free", path)


def quantity(size: float) -> str:
    """Format a number of bytes with three digits and a decimal unit."""
    units = ["EB", "PB", "TB", "GB", "MB", "kB", "bytes"]
    while size >= 999.5 and len(units) > 1:
        size /= 1000
        units.pop()
    return f"{size:.3g} {units[-1]}"


def name_beside(path: str) -> str:
    """Return a temporary name in the same folder; it is unpredictable, so other programs cannot create that file first."""
    folder, name = os.path.split(path)
    # file systems limit a name to 255 bytes, and each of the 50 characters may take 4 bytes
    return os.path.join(folder, f".{name[:50]}.{os.getpid()}.{os.urandom(8).hex()}.tmp")


@contextmanager
def temporary_file(path: str, overwrite: bool) -> Iterator[int]:
    """Yield the descriptor of a temporary file; on success, rename the file to `path`; otherwise, remove it."""
    temporary = name_beside(path)
    fd: int | None = None
    try:
        fd = os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY | BINARY, 0o666)     # the umask clears bits of this mode
        yield fd
        os.fsync(fd)
        closing, fd = fd, None
        os.close(closing)
        _publish(temporary, path, overwrite)
    finally:
        if fd is not None:
            os.close(fd)
        with suppress(OSError):
            os.unlink(temporary)        # fails after os.replace
    sync_folder(os.path.dirname(path))


def _publish(temporary: str, path: str, overwrite: bool) -> None:
    if overwrite:
        os.replace(temporary, path)
        return
    try:
        os.link(temporary, path)        # unlike a rename, a link never overwrites a file that was created meanwhile
    except FileExistsError:
        raise
    except (OSError, AttributeError):   # no hard links, as on FAT: a file created between the check and the rename is lost
        check_target(path, overwrite)
        os.rename(temporary, path)


def sync_folder(folder: str) -> None:
    """Sync a folder, so that new names in it survive a crash."""
    try:
        fd = os.open(folder, os.O_RDONLY)
    except PermissionError:             # Windows, or a folder without read permission
        return
    try:
        with _if_supported():
            os.fsync(fd)
    finally:
        os.close(fd)


def allocate(fd: int, size: int) -> None:
    """Reserve disk space for a file, so that a full disk raises an error before the first write."""
    if hasattr(os, "posix_fallocate"):  # not on macOS and Windows
        with _if_supported():
            os.posix_fallocate(fd, 0, size)


@contextmanager
def _if_supported() -> Iterator[None]:
    """Ignore the errors of a file system that does not support an operation."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise


def write_blocks(fd: int, blocks: Iterable[memoryview], offset: int, progress: Callable[[int], object]) -> None:
    """Write consecutive blocks while a thread flushes earlier ones to the disk."""
    flushing: Future[None] = Future()
    flushing.set_result(None)
    unflushed = 0
    with ThreadPoolExecutor(1, "posenc-flush") as flusher:
        for block in blocks:
            write_at(fd, block, offset)
            offset += len(block)
            unflushed += len(block)
            if unflushed >= FLUSH_BYTES and flushing.done():
                flushing.result()       # raises the error of a failed flush, which the last fsync may not report again
                with suppress(RuntimeError):        # if no thread is available, the last fsync flushes everything
                    flushing, unflushed = flusher.submit(_flush, fd), 0
            progress(len(block))
        flushing.result()


def _flush(fd: int) -> None:
    """Flush the file to the disk and drop its pages from the system's cache.

    Otherwise, a large file would evict all others from the cache.  In a virtual machine, new cache pages are also slow: writing
    2 GB took 3 s without this call, and 0.7 s with it.
    """
    getattr(os, "fdatasync", os.fsync)(fd)
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):         # only a hint
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
    """Write all of `data`; a single pwrite may write less, for example on a disk that is nearly full."""
    view = memoryview(data)
    while view:
        written = _pwrite(fd, view, offset)
        if not written:
            raise OSError(errno.EIO, "The system wrote nothing")
        view = view[written:]
        offset += written


def _seek_and_write(fd: int, data: memoryview, offset: int) -> int:
    os.lseek(fd, offset, os.SEEK_SET)
    return os.write(fd, data)


_pwrite = getattr(os, "pwrite", _seek_and_write)        # Windows has no pwrite
