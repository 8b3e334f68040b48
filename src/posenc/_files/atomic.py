"""Write files atomically.

The new content is written beside the target, synced to the disk, then renamed.  A partial file therefore
never has the final name, even after a crash or on a full disk.  Files are not written through a mapping,
because on a full disk, storing to a mapping ends the process with SIGBUS, whereas a write raises OSError.
"""

import errno
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from tempfile import TemporaryDirectory
from typing import Any


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Set the file name in every OSError to the user's path, instead of a temporary name or no name."""
    try:
        yield
    except OSError as error:
        if error.errno is not None:
            error.filename = path
            del error.filename2
        raise


def exists_error(path: str) -> FileExistsError:
    return FileExistsError(errno.EEXIST, f"{os.strerror(errno.EEXIST)}; overwrite=True replaces it", path)


def check_file(path: str, overwrite: bool) -> None:
    """Raise an OSError if a file must not be written to this path."""
    if os.path.lexists(path):
        if not os.path.isfile(path):
            raise OSError(errno.EINVAL, "Not a regular file", path)  # otherwise root could replace /dev/null
        if not overwrite:
            raise exists_error(path)
        if not os.access(path, os.W_OK):
            # a rename would ignore the permission
            raise PermissionError(errno.EACCES, "The file is read-only", path)


def write(path: str, blocks: Iterable[Any], size: int, overwrite: bool = False) -> int:
    """Write a file of `size` bytes atomically, flush it to the disk, and return its size.

    If `path` is a symbolic link, its target is replaced.  The temporary file is in a new folder beside the
    target, in which other users cannot create files.
    """
    with naming(path):
        target = os.path.realpath(path)         # raises if the current folder was deleted
        check_file(target, overwrite)
        parent, name = os.path.split(target)
        # file systems limit a name to 255 bytes, and each of the 50 characters may take 4 bytes
        with TemporaryDirectory(".tmp", f".{name[:50]}.", parent, ignore_cleanup_errors=True) as folder:
            new_path = os.path.join(folder, "new")
            with open(new_path, "xb") as file:
                try:                    # speeds up writing; not on macOS and Windows
                    os.posix_fallocate(file.fileno(), 0, min(size, 2**63 - 1))
                except (AttributeError, OSError) as error:
                    if getattr(error, "errno", None) in (errno.ENOSPC, errno.EFBIG):
                        raise
                for block in blocks:
                    file.write(block)
                    clear_cache(file.fileno())
                file.flush()
                os.fsync(file.fileno())
                clear_cache(file.fileno())
            if overwrite:
                os.replace(new_path, target)
            else:
                _rename_without_overwriting(new_path, target)
        sync(parent)
    return size


def _rename_without_overwriting(path: str, target: str) -> None:
    try:
        os.link(path, target)    # unlike a rename, a link never overwrites a file that was created meanwhile
    except FileExistsError:
        raise exists_error(target) from None
    # no hard links: a file that is created between the check and the rename is lost
    except (OSError, AttributeError):
        check_file(target, False)
        os.rename(path, target)


def clear_cache(fd: int) -> None:
    """Start to write a file to the disk, and drop the pages that are written from the system's cache.

    Otherwise, a large file would evict all others from the cache.  In a virtual machine, new cache pages are
    also slow: writing 2 GB took 3 s without this call, and 0.7 s with it.
    """
    with suppress(AttributeError, OSError):     # macOS and Windows lack it
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def sync(folder: str) -> None:
    """Flush the names in a folder to the disk, if the system can."""
    try:
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        # errors of systems that cannot flush a folder; EACCES also if a folder has no read permission
        if error.errno not in (errno.EACCES, errno.EBADF, errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS):
            raise
