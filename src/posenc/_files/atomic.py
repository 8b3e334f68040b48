"""Write files and folders atomically.

The new content is written beside the target, synced to the disk, then renamed.  A partial file therefore never has the final
name, even after a crash or on a full disk.  Files are not written through a mapping, because on a full disk, storing to a
mapping ends the process with SIGBUS, whereas a write raises OSError.
"""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress

CLEAR_BYTES = 16 << 20          # with 64 MiB, a write took a sixth longer
UNSUPPORTED = errno.EBADF, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS


# ---- replacement ----------------------------------------------------------------------------------------------------


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Set the file name in every OSError to the user's path, instead of a temporary name or no name."""
    named = None
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        named = OSError(error.errno, error.strerror, path)
    if named is not None:
        raise named                 # without a context, which a cluster might not be able to send to the client


def exists_error(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; overwrite=True replaces it", path)


def check_file(path: str, overwrite: bool) -> None:
    """Raise an OSError if a file must not be written to this path."""
    if os.path.isdir(path):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    if not os.path.lexists(path):
        return
    if not overwrite:
        raise exists_error(path)
    if not os.path.isfile(path):
        raise OSError(errno.EINVAL, "Not a regular file", path)     # otherwise root could replace /dev/null
    if not os.access(path, os.W_OK):
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
def replacement(
    path: str, size: int, overwrite: bool, check: Callable[[str, bool], object] = check_file
) -> Iterator[str]:
    """Yield a temporary name; on success, rename the file or folder of this name to `path`; otherwise, remove it.

    If `path` is a symbolic link, its target is replaced.  `check` raises an error for a target that must not be replaced.
    """
    with naming(path):
        target = os.path.realpath(path)         # raises if the current folder was deleted
        check(target, overwrite)
        check_space(target, size)
        temporary, old = name_beside(target), name_beside(target)
        try:
            yield temporary
            if os.path.isdir(temporary) and overwrite and os.path.lexists(target):
                os.rename(target, old)          # a rename replaces only an empty folder
                check(old, overwrite)           # again, because the target may have been created meanwhile
            if overwrite:
                os.replace(temporary, target)
            else:
                _rename_without_overwriting(temporary, target, check)
        finally:
            with suppress(OSError):
                os.rename(old, target)          # fails unless the old folder was moved, and not replaced
            for leftover in (temporary, old):
                shutil.rmtree(leftover, ignore_errors=True)
            with suppress(OSError):
                os.unlink(temporary)            # fails after os.replace
        sync(os.path.dirname(target))


def _rename_without_overwriting(temporary: str, target: str, check: Callable[[str, bool], object]) -> None:
    try:
        os.link(temporary, target)      # unlike a rename, a link never overwrites a file that was created meanwhile
    except FileExistsError:
        raise exists_error(target) from None
    except (OSError, AttributeError):   # a folder; or no hard links: a file created between the check and the rename is lost
        check(target, False)
        os.rename(temporary, target)


# ---- writing --------------------------------------------------------------------------------------------------------


def write_bytes(path: str, data: bytes, *, overwrite: bool = False) -> int:
    """Write a small file atomically and return its size."""
    with replacement(path, len(data), overwrite) as temporary:
        write_blocks(temporary, [data], len(data))
    return len(data)


def write_blocks(path: str, blocks: Iterable[bytes | memoryview], size: int) -> None:
    """Write a new file of `size` bytes and flush it to the disk."""
    with open(path, "xb") as file:
        fd, uncleared = file.fileno(), 0
        if hasattr(os, "posix_fallocate"):      # not on macOS and Windows
            _if_supported(os.posix_fallocate, fd, 0, size)
        for block in blocks:
            file.write(block)
            uncleared += len(block)
            if uncleared >= CLEAR_BYTES:
                clear_cache(fd)
                uncleared = 0
        file.flush()
        os.fsync(fd)
        clear_cache(fd)


def clear_cache(fd: int) -> None:
    """Start to write a file to the disk, and drop the pages that are written from the system's cache.

    Otherwise, a large file would evict all others from the cache.  In a virtual machine, new cache pages are also slow: writing
    2 GB took 3 s without this call, and 0.7 s with it.
    """
    if hasattr(os, "posix_fadvise"):
        with suppress(OSError):         # only a hint
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sync(path: str) -> None:
    """Flush a file, or the names in a folder, to the disk."""
    try:
        fd = os.open(path, os.O_RDONLY)
    except PermissionError:             # a folder on Windows, or a folder without read permission
        return
    try:
        _if_supported(os.fsync, fd)
        clear_cache(fd)
    finally:
        os.close(fd)


def _if_supported(function: Callable[..., object], *arguments: int) -> None:
    """Call a function of the system, and ignore its error if the system does not support it."""
    try:
        function(*arguments)
    except OSError as error:
        if error.errno not in UNSUPPORTED:
            raise
