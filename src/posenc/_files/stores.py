"""Write Zarr arrays to folders and other stores, and publish each array when it is complete.

Processes that share the work need only the final name to find an unfinished array.  A folder is written beside its final path,
and renamed at the end.  Any other store is written in place.  The metadata are in the key UNFINISHED until all chunks are
written, so that no reader finds an incomplete array.

A job is the writing of one array.  A discarded job must never be published, because its chunks are being deleted.  Every job
has a unique identifier, even if its arguments are those of an earlier job.  A job of a `Folder` has its own folder, named by
this identifier.  A process publishes or discards the job with a rename, so that only one of several processes succeeds.  Chunks
are deleted only after the rename.  Other stores cannot rename.  To publish a job in such a store, a process writes the metadata
and then checks whether the job has been discarded meanwhile; if so, it deletes the metadata.
"""

from __future__ import annotations

import asyncio
import errno
import functools
import json
import os
import re
import shutil
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import zarr
from zarr.abc.store import Store
from zarr.buffer import cpu
from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath

from posenc._arguments import checks
from posenc._files import atomic
from posenc._files.urls import is_url, local_path

UNFINISHED = "unfinished.json"
METADATA = "zarr.json"
MARKS = (METADATA, ".zarray", ".zgroup")

NOT_EMPTY = (errno.EEXIST, errno.ENOTEMPTY)             # errors of os.rename if the new name is a folder that is not empty

T = TypeVar("T")
Job = dict[str, Any]        # the content of UNFINISHED: "id" (different for every job), "overwrite" and "metadata"


def place_of(store: Any, storage_options: dict[str, Any] | None = None, *, private: bool = False) -> Folder | Remote:
    """Return the Folder or Remote for a path, URL or Zarr store; if `private`, only this object finds an unfinished folder."""
    if is_url(store):
        name = os.fspath(store)
        return Remote(StorePath(FsspecStore.from_url(name, storage_options=storage_options)), name)
    if storage_options is not None:
        raise TypeError("storage_options is given for a folder or a Zarr store, expected None, because only a URL has options")
    if isinstance(store, (str, os.PathLike)):
        return Folder(local_path(store), private)
    if isinstance(store, dict):
        store = MemoryStore(store)
    root = StorePath(store) if isinstance(store, Store) else store
    if not isinstance(root, StorePath):
        raise checks.wrong_type("store", store, "a path, a URL or a Zarr store")
    if isinstance(root.store, LocalStore):
        return Folder(str(root.store.root / root.path), private)
    return Remote(root, str(root))


def _content(document: Any) -> bytes:
    return json.dumps(document, indent=2).encode()


def _parsed(text: bytes) -> Job:
    """Return the job in the content of UNFINISHED, or an empty dict if the content is damaged or not a job."""
    try:
        job = json.loads(text)
        return job if job.keys() == {"id", "overwrite", "metadata"} else {}
    except (AttributeError, ValueError):
        return {}


def _stale(name: str) -> OSError:
    return OSError(errno.ESTALE, "The store was finished or started again by another process", name)


# ---- folders --------------------------------------------------------------------------------------------------------


class Folder:
    """A local folder.  Its content is in a hidden folder beside the path until the job is published.

    The hidden folder contains only one folder, whose name is the identifier of the job.  This folder contains UNFINISHED and
    the folder "store".
    """

    def __init__(self, path: str, private: bool) -> None:
        self.name, self._path = path, os.path.realpath(path)
        parent, name = os.path.split(self._path)
        self._hidden = atomic.name_beside(self._path) if private else os.path.join(parent, f".{name}.partial")
        self.published = _reader(path)

    def check_target(self, overwrite: bool) -> None:
        check_target(self._path, overwrite)

    def check_space(self, size: int) -> None:
        atomic.check_space(self._path, size)

    def is_published(self) -> bool:
        return os.path.isfile(os.path.join(self._path, METADATA))

    def mark(self) -> Job | None:
        """Return the job that was started last, or None; if UNFINISHED is damaged, return only the "id" of the job."""
        with suppress(FileNotFoundError):
            for name in os.listdir(self._hidden):
                with suppress(FileNotFoundError, NotADirectoryError), open(self._mark({"id": name}), "rb") as file:
                    return _parsed(file.read()) or {"id": name}
        return None

    def job(self) -> Job | None:
        """Return the unfinished job, or None; if UNFINISHED is damaged, return an empty dict."""
        job = self.mark()
        if job is None or not os.path.isdir(self._store(job)):                  # `publish` renames the folder
            return None
        return job if "metadata" in job else {}

    def start(self, job: Job, seen: Job | None) -> None:
        """Replace the job `seen`, which `mark` returned, by a new job, unless another process has started a job meanwhile."""
        if seen is not None:
            self.remove(seen)
        prepared = Folder(self._path, private=True)
        try:
            os.makedirs(prepared._store(job))
            prepared.set_mark(job)
            with suppress(OSError):
                os.rmdir(self._hidden)                  # Windows does not replace an empty folder
            os.rename(prepared._hidden, self._hidden)
            atomic.sync_folder(os.path.dirname(self._path))
        except OSError as error:
            if error.errno not in NOT_EMPTY:            # another process was faster
                raise
        finally:
            shutil.rmtree(prepared._hidden, ignore_errors=True)

    def set_mark(self, job: Job) -> None:
        atomic.write_bytes(self._mark(job), _content(job), overwrite=True)

    def working(self, job: Job) -> StorePath:
        return _reader(self._store(job))

    def put(self, job: Job, key: str, value: bytes | memoryview) -> None:
        """Write the value of a key atomically and flush it to the disk; fail if the job was finished or discarded meanwhile."""
        path = self._store(job)
        *folders, name = key.split("/")
        try:
            for folder in folders:
                path = os.path.join(path, folder)
                with suppress(FileExistsError):
                    os.mkdir(path)
            with atomic.temporary_file(os.path.join(path, name), overwrite=True) as fd:
                atomic.write_at(fd, value, 0)
        except FileNotFoundError as error:
            raise _stale(self.name) from error

    def publish(self, job: Job) -> bool:
        """Publish a complete job; return False if it was finished or discarded meanwhile."""
        store = self._store(job)
        try:
            self.put(job, METADATA, _content(job["metadata"]))
            for parent, _, names in os.walk(store):
                for name in filter(_is_temporary, names):           # left by a process that was killed
                    with suppress(FileNotFoundError):
                        os.unlink(os.path.join(parent, name))
            for parent in (os.path.join(store, "c"), store):        # each writer has synced the folder of its chunk
                if os.path.isdir(parent):
                    atomic.sync_folder(parent)
            while not self._rename(store, job["overwrite"]):
                # Move the old folder into the new one.  If another process publishes the new one first, nothing is moved.
                with suppress(FileNotFoundError):
                    os.rename(self._path, atomic.name_beside(os.path.join(store, "replaced")))
        except BaseException as error:      # including KeyboardInterrupt between two renames
            _restore(store, self._path)
            if os.path.isdir(store) or not isinstance(error, OSError):
                raise
            return False
        atomic.sync_folder(os.path.dirname(self._path))
        return True

    def _rename(self, store: str, overwrite: bool) -> bool:
        """Rename the new folder; return False if the old one must be moved first."""
        try:
            os.rename(store, self._path)    # replaces only an empty folder
        except OSError as error:
            if os.path.isdir(store):
                check_target(self._path, overwrite)
            if error.errno not in NOT_EMPTY:
                raise
            return False
        return True

    def discard(self, job: Job | None) -> None:
        """Remove the remains of a published job, or of the last job if `job` is None."""
        for folder in _temporary_folders(self._path):
            shutil.rmtree(folder, ignore_errors=True)
        job = job or self.mark()
        if job and not os.path.isdir(self._store(job)):
            self.remove(job)

    def remove(self, job: Job) -> None:
        """Remove a job, and the remains of jobs whose removal ended early because a process was killed."""
        with suppress(FileNotFoundError):   # another process was faster
            os.rename(os.path.join(self._hidden, job["id"]), f"{self._hidden}.{new_id()}")
        parent, name = os.path.split(self._hidden)
        for other in os.listdir(parent):
            if re.fullmatch(re.escape(name) + r"\.[0-9a-f]{16}", other):
                _restore(os.path.join(parent, other, "store"), self._path)
                shutil.rmtree(os.path.join(parent, other), ignore_errors=True)
        with suppress(OSError):
            os.rmdir(self._hidden)

    def _mark(self, job: Job) -> str:
        return os.path.join(self._hidden, job["id"], UNFINISHED)

    def _store(self, job: Job) -> str:
        return os.path.join(self._hidden, job["id"], "store")


def new_id() -> str:
    return os.urandom(8).hex()


def _reader(folder: str) -> StorePath:
    return StorePath(LocalStore(folder, read_only=True))        # a writable LocalStore would create the folder


def check_target(path: str, overwrite: bool) -> None:
    if not os.path.lexists(path):
        return
    if not any(os.path.isfile(os.path.join(path, mark)) for mark in MARKS):
        raise OSError(errno.EINVAL, "Not a Zarr store, so it is not overwritten", path)
    if not overwrite:
        raise atomic.exists_error(path)


def _restore(store: str, path: str) -> None:
    """Move the old folder back to its path, if `publish` moved it into the new folder and then failed."""
    for folder in _temporary_folders(store):
        with suppress(OSError):             # there is a newer folder
            os.rename(folder, path)


def _temporary_folders(folder: str) -> list[str]:
    with suppress(FileNotFoundError, NotADirectoryError), os.scandir(folder) as entries:
        return [entry.path for entry in entries if _is_temporary(entry.name) and entry.is_dir(follow_symlinks=False)]
    return []


def _is_temporary(name: str) -> bool:
    return name.startswith(".") and name.endswith(".tmp")


# ---- other stores ---------------------------------------------------------------------------------------------------


class Remote:
    """A store that is not a local folder.  It is written in place."""

    def __init__(self, root: StorePath, name: str) -> None:
        self.name, self.published = name, root

    def check_target(self, overwrite: bool) -> None:
        if any(sync((self.published / mark).exists()) for mark in MARKS):
            if not overwrite:
                raise atomic.exists_error(self.name)
        elif any(keys(self.published)) and self.mark() is None:         # in this order, because a job may start in between
            raise OSError(errno.EINVAL, "Not a Zarr store, so it is not overwritten", self.name)

    def check_space(self, size: int) -> None:
        """Do nothing, because the free space of the store is unknown."""

    def is_published(self) -> bool:
        return bool(sync((self.published / METADATA).exists()))

    def mark(self) -> Job | None:
        """Return the job that was started last, or None if it was finished."""
        value = sync((self.published / UNFINISHED).get())
        return None if value is None else _parsed(value.to_bytes())

    job = mark

    def start(self, job: Job, seen: Job | None) -> None:
        """Replace the job `seen`, as `Folder.start` does; if the new job overwrites, delete a published array first."""
        if job["overwrite"] and self.mark() == seen:
            self.set_mark({})           # if this process is killed, the next overwriting call resumes here
            self._delete(*MARKS)        # first, so that no reader finds an array without its chunks
            sync((self.published / "c").delete_dir())
            self._delete(*(key for key in keys(self.published) if key != UNFINISHED))
            self._delete(*MARKS)        # the metadata of a process that was killed in `publish`
            self._delete(UNFINISHED)
        sync((self.published / UNFINISHED).set_if_not_exists(_buffer(_content(job))))

    def set_mark(self, job: Job) -> None:
        self._set(UNFINISHED, _content(job))

    def working(self, job: Job) -> StorePath:
        return self.published

    def put(self, job: Job, key: str, value: bytes | memoryview) -> None:
        """Write the value of a key, unless the job was finished or discarded meanwhile."""
        mark = self.mark()
        if not mark or mark["id"] != job["id"]:
            raise _stale(self.name)
        self._set(key, bytes(value))        # a copy, because a store in memory keeps the bytes

    def publish(self, job: Job) -> bool:
        """Publish a complete job; return False if it was finished or discarded meanwhile."""
        mark = self.mark()
        if not mark or mark["id"] != job["id"]:
            return False
        self._set(METADATA, _content(job["metadata"]))
        mark = self.mark()
        if mark is not None and mark.get("id") != job["id"]:        # without a mark, the job is finished
            self._delete(METADATA)
            return False
        return True

    def discard(self, job: Job | None) -> None:
        """Delete UNFINISHED after the job was published."""
        if job and self.mark() == job:
            self._delete(UNFINISHED)

    def _set(self, key: str, value: bytes) -> None:
        sync((self.published / key).set(_buffer(value)))

    def _delete(self, *keys: str) -> None:
        for key in keys:
            sync((self.published / key).delete())


class _LoopOfZarr(MemoryStore):
    """A store that records the event loop in which zarr calls it; zarr has no public function that returns this loop."""

    async def get(self, *arguments: Any, **keywords: Any) -> Any:
        self.loop = asyncio.get_running_loop()
        return await super().get(*arguments, **keywords)


def sync(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine in zarr's event loop, to which the connections of a store belong."""
    return asyncio.run_coroutine_threadsafe(coroutine, _loop(os.getpid())).result()


@functools.cache
def _loop(process: int) -> asyncio.AbstractEventLoop:
    """Return zarr's event loop in a process; zarr starts a new one after a fork."""
    store = _LoopOfZarr()
    zarr.create_group(store)
    return store.loop


def _buffer(content: bytes) -> cpu.Buffer:
    return cpu.Buffer.from_bytes(content)


def keys(root: StorePath) -> Iterator[str]:
    """Yield the keys of a store."""
    if fs := getattr(root.store, "fs", None):       # fsspec caches listings, which lack new keys of other processes
        getattr(fs, "sync_fs", fs).invalidate_cache()
    prefix = f"{root.path}/" if root.path else ""

    async def listed() -> list[str]:
        return [key async for key in root.store.list_prefix(prefix)]

    for key in sync(listed()):
        yield key.removeprefix(prefix)


def sizes(root: StorePath, keys: Iterable[str]) -> list[int | None]:
    """Return the size of the value of each key, or None for a missing key."""

    async def measured() -> list[int | None]:
        limit = asyncio.Semaphore(zarr.config.get("async.concurrency"))

        async def size(key: StorePath) -> int | None:
            with suppress(FileNotFoundError):
                async with limit:
                    return await key.store.getsize(key.path)
            return None

        return await asyncio.gather(*(size(root / key) for key in keys))

    return sync(measured())
