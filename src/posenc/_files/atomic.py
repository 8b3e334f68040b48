"""Files that appear complete or not at all.

A file is written beside its target under another name and renamed when the disk has all of it, so that no reader, crash or
full disk ever sees a part under the final name.  Never through a mapping: on a full disk that ends the process (SIGBUS), where
a write raises an OSError.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress

# Flushing while filling took a fifth off the time to a durable file, from 16 MiB to 128 the same; waiting for one flush before
# the next 64 MiB are written lost it again.
FLUSH_BYTES = 64 << 20
BINARY = getattr(os, "O_BINARY", 0)                             # Windows
UNSUPPORTED = (errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS)    # by this file system


def write_bytes(path: str | os.PathLike[str], data: bytes, *, force: bool = False) -> int:
    """Writes a file of few bytes, complete or not at all; returns their number."""
    given = os.fsdecode(path)
    with naming(given):
        path = os.path.realpath(given)
        check_target(path, force)
        with file_to_be(path, force) as fd:
            write_at(fd, data, 0)
    return len(data)


@contextmanager
def naming(path: str | os.PathLike[str]) -> Iterator[None]:
    """Has every OSError name the user's file: system calls know a descriptor, or the temporary name."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        raise OSError(error.errno, error.strerror, path) from error


def check_target(path: str, force: bool) -> None:
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


def name_beside(path: str) -> str:
    """A name in the same folder that nobody can foresee, which together with O_EXCL keeps others' files and links out."""
    folder, name = os.path.split(path)
    # names have at most 255 bytes
    return os.path.join(folder, f".{name[:50]}.{os.getpid()}.{os.urandom(8).hex()}.tmp")


@contextmanager
def file_to_be(path: str, force: bool) -> Iterator[int]:
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
        check_target(path, force)
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


def allocate(fd: int, size: int) -> None:
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


def write_blocks(
    fd: int, blocks: Iterable[memoryview], offset: int, progress: Callable[[int], object]
) -> None:
    """Writes blocks one behind the other, while a thread takes to the disk what was written before."""
    flushing: Future[None] = Future()
    flushing.set_result(None)
    unflushed = 0
    with ThreadPoolExecutor(1, "posenc-flush") as flusher:
        for block in blocks:
            write_at(fd, block, offset)
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


def write_at(fd: int, data: bytes | memoryview, offset: int) -> None:
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
