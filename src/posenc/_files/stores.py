"""Where a Zarr array is written, and how it is published.

Processes that share the work need only the final name to find an unfinished array.  A folder is written beside its final path,
and renamed at the end.  Any other store is written in place; its metadata are written last, and before that no reader finds an
array.  Until then, the metadata are in the key UNFINISHED.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from zarr.core.buffer import Buffer, default_buffer_prototype
from zarr.core.sync import collect_aiterator, sync
from zarr.storage import LocalStore, StorePath
from zarr.storage._common import make_store_path

from posenc import _arguments
from posenc._files import atomic
from posenc._files.urls import is_url, local_path

UNFINISHED = "unfinished.json"
METADATA = "zarr.json"
MARKS = (METADATA, ".zarray", ".zgroup")

Job = dict[str, Any]        # the content of UNFINISHED: "id" (equal for equal metadata), "overwrite" and "metadata"


def place_of(store: Any, storage_options: dict[str, Any] | None = None, *, private: bool = False) -> Folder | Remote:
    """Return the Folder or Remote of a path, URL or Zarr store; if `private`, only this object finds the unfinished folder."""
    if is_url(store):
        name = os.fspath(store)
        return Remote(sync(make_store_path(name, storage_options=storage_options)), name)
    if storage_options is not None:
        raise TypeError("storage_options is given for a folder or a Zarr store, expected None: only a URL has such options")
    if isinstance(store, (str, os.PathLike)):
        return Folder(local_path(store), private)
    inner, path = (store.store, store.path) if isinstance(store, StorePath) else (store, "")
    if isinstance(inner, LocalStore):
        return Folder(str(inner.root / path), private)
    try:
        root = sync(make_store_path(store)) if store is not None else None      # None would be a new store in memory
    except TypeError:
        root = None
    if root is None:
        raise _arguments.wrong_type("store", store, "a path, a URL or a Zarr store")
    return Remote(root, str(root))


def _content(document: Any) -> bytes:
    return json.dumps(document, indent=2).encode()


def _buffer(content: bytes) -> Buffer:
    return default_buffer_prototype().buffer.from_bytes(content)


def _parsed(text: bytes) -> Job:
    """Return the job, or an empty dict if the text is not a job, as when a process was killed while it overwrote a store."""
    try:
        job = json.loads(text)
        return job if job.keys() == {"id", "overwrite", "metadata"} else {}
    except (AttributeError, ValueError):
        return {}


# ---- folders --------------------------------------------------------------------------------------------------------


class Folder:
    """A local folder.  Until it is published, its keys are in a hidden folder beside it, in a subfolder for the job."""

    def __init__(self, path: str, private: bool) -> None:
        self.name, self._path = path, os.path.realpath(path)
        parent, name = os.path.split(self._path)
        self._hidden = atomic.name_beside(self._path) if private else os.path.join(parent, f".{name}.partial")
        self._mark = os.path.join(self._hidden, UNFINISHED)
        self.published = _reader(path)

    def check_target(self, overwrite: bool) -> None:
        check_target(self._path, overwrite)

    def check_space(self, size: int) -> None:
        atomic.check_space(self._path, size)

    def is_published(self) -> bool:
        return os.path.isfile(os.path.join(self._path, METADATA))

    def mark(self) -> Job | None:
        """Return the job that was started last, or None."""
        try:
            with open(self._mark, "rb") as file:
                return _parsed(file.read())
        except FileNotFoundError:
            return None

    def job(self) -> Job | None:
        """Return the unfinished job, or None."""
        job = self.mark()
        return job if not job or os.path.isdir(self._folder(job)) else None     # `publish` renames the folder

    def start(self, job: Job, seen: Job | None) -> None:
        """Start a job in place of `seen`, which `mark` returned, unless another process has started a job meanwhile."""
        with suppress(FileExistsError):
            os.mkdir(self._hidden)
        if seen is not None and self.mark() == seen:
            os.unlink(self._mark)
            for name in os.listdir(self._hidden):
                shutil.rmtree(os.path.join(self._hidden, name), ignore_errors=True)
        with suppress(FileExistsError):
            os.mkdir(self._folder(job))
        with suppress(FileExistsError):
            self.set_mark(job, overwrite=False)

    def set_mark(self, job: Job, *, overwrite: bool = True) -> None:
        atomic.write_bytes(self._mark, _content(job), overwrite=overwrite)

    def working(self, job: Job) -> StorePath:
        return _reader(self._folder(job))

    def put(self, job: Job, key: str, value: bytes | memoryview) -> None:
        """Write a key atomically and flush it to the disk; fail if the job was finished or discarded meanwhile."""
        path = self._folder(job)
        *folders, name = key.split("/")
        for folder in folders:
            path = os.path.join(path, folder)
            with suppress(FileExistsError):
                os.mkdir(path)
        with atomic.temporary_file(os.path.join(path, name), overwrite=True) as fd:
            atomic.write_at(fd, value, 0)

    def publish(self, job: Job) -> None:
        folder = self._folder(job)
        self.put(job, METADATA, _content(job["metadata"]))
        for parent, _, names in os.walk(folder):
            for name in names:
                if name.startswith(".") and name.endswith(".tmp"):      # left by a process that was killed
                    os.unlink(os.path.join(parent, name))
        for parent in (os.path.join(folder, "c"), folder):              # each writer has synced the folder of its chunk
            if os.path.isdir(parent):
                atomic.sync_folder(parent)
        _publish(folder, self._path, job["overwrite"], os.path.join(self._hidden, "old"))
        atomic.sync_folder(os.path.dirname(self._path))

    def discard(self) -> None:
        shutil.rmtree(self._hidden, ignore_errors=True)

    def _folder(self, job: Job) -> str:
        return os.path.join(self._hidden, job["id"])


def _reader(folder: str) -> StorePath:
    return StorePath(LocalStore(folder, read_only=True))        # a writable LocalStore would create the folder


def check_target(path: str, overwrite: bool) -> None:
    if not os.path.lexists(path):
        return
    if not any(os.path.isfile(os.path.join(path, mark)) for mark in MARKS):
        raise OSError(errno.EINVAL, "Not a Zarr store, so it is not overwritten", path)
    if not overwrite:
        raise atomic.exists_error(path)


def _publish(folder: str, path: str, overwrite: bool, aside: str) -> None:
    """Rename the new folder; move an existing folder aside first, because a rename replaces only an empty folder."""
    try:
        if overwrite and os.path.lexists(path):
            shutil.rmtree(aside, ignore_errors=True)        # left by a process that was killed after the second rename
            os.rename(path, aside)
        os.rename(folder, path)         # overwrites nothing that was created meanwhile, except an empty folder
    except BaseException as error:      # including KeyboardInterrupt between the two renames
        if not os.path.lexists(path) and os.path.lexists(aside):
            os.rename(aside, path)
        if isinstance(error, OSError):
            check_target(path, overwrite)
        raise


# ---- other stores ---------------------------------------------------------------------------------------------------


class Remote:
    """A store written in place."""

    def __init__(self, root: StorePath, name: str) -> None:
        self.name, self.published = name, root

    def check_target(self, overwrite: bool) -> None:
        if any(sync((self.published / mark).exists()) for mark in MARKS):
            if not overwrite:
                raise atomic.exists_error(self.name)
        elif any(keys(self.published)) and self.mark() is None:         # in this order: a job may start between these calls
            raise OSError(errno.EINVAL, "Not a Zarr store, so it is not overwritten", self.name)

    def check_space(self, size: int) -> None:
        """Do nothing: the space of such a store is unknown."""

    def is_published(self) -> bool:
        return bool(sync((self.published / METADATA).exists()))

    def job(self) -> Job | None:
        """Return the unfinished job, or None."""
        return None if self.is_published() else self.mark()

    def start(self, job: Job, seen: Job | None) -> None:
        """Start a job in place of `seen`, as `Folder.start` does; if the job overwrites, delete a published array first."""
        if job["overwrite"] and self.mark() == seen:
            self.set_mark({})           # if this process is killed, the next overwriting call resumes here
            for mark in MARKS:          # first, so that no reader finds an array without its chunks
                sync((self.published / mark).delete())
            sync((self.published / "c").delete_dir())
            for key in keys(self.published):
                if key != UNFINISHED:
                    sync((self.published / key).delete())
            self.discard()
        sync((self.published / UNFINISHED).set_if_not_exists(_buffer(_content(job))))

    def set_mark(self, job: Job) -> None:
        self._set(UNFINISHED, _content(job))

    def working(self, job: Job) -> StorePath:
        return self.published

    def put(self, job: Job, key: str, value: bytes | memoryview) -> None:
        """Write a key, unless the job was finished or discarded meanwhile."""
        mark = self.mark()
        if not mark or mark["id"] != job["id"]:
            raise OSError(errno.ESTALE, "The store was finished or started again by another process", self.name)
        self._set(key, bytes(value))        # a copy, because a store in memory keeps the bytes

    def publish(self, job: Job) -> None:
        self.put(job, METADATA, _content(job["metadata"]))

    def discard(self) -> None:
        sync((self.published / UNFINISHED).delete())

    def mark(self) -> Job | None:
        """Return the job that was started last, or None."""
        value = sync((self.published / UNFINISHED).get())
        return None if value is None else _parsed(value.to_bytes())

    def _set(self, key: str, value: bytes) -> None:
        sync((self.published / key).set(_buffer(value)))


def keys(root: StorePath) -> Iterator[str]:
    """Yield the keys of a store."""
    if fs := getattr(root.store, "fs", None):       # fsspec caches listings, which lack new keys of other processes
        getattr(fs, "sync_fs", fs).invalidate_cache()
    prefix = f"{root.path}/" if root.path else ""
    for key in collect_aiterator(root.store.list_prefix(prefix)):
        yield key.removeprefix(prefix)


def size_of(key: StorePath) -> int | None:
    """Return the size of a key's value, or None if there is no such key."""
    try:
        return sync(key.store.getsize(key.path))
    except FileNotFoundError:
        return None
