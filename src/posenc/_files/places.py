"""Where a Zarr store is: in a folder, at a URL, or in another store of the package zarr."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any, NamedTuple

from posenc._arguments import checks, install
from posenc._files.formats import LOCAL, is_url

try:
    import zarr
    from zarr.abc.store import RangeByteRequest, Store
    from zarr.core.sync import sync  # zarr has no public function that runs a method of a store in its event loop
    from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath
except ModuleNotFoundError as error:
    raise install.not_installed("posenc.zarr", "zarr", error) from error

DAMAGED = AttributeError, KeyError, RecursionError, TypeError, ValueError           # zarr's errors for invalid metadata


class Place(NamedTuple):
    """Where a store is: for zarr, for messages, and, if it is in a folder, the real path of this folder."""

    root: StorePath
    name: str
    folder: str | None

    def open(self) -> zarr.Array[Any]:
        """Open the array for reading; raise a FileNotFoundError if there is none, and a ValueError for invalid metadata."""
        root = StorePath(self.root.store.with_read_only(True), self.root.path)      # a writable store would create the folder
        try:
            array = zarr.open_array(root, mode="r")
            array.attrs.get("posenc")
            return array
        except FileNotFoundError:
            pass                        # the error below has no context: Dask cannot send zarr's error to the client
        except DAMAGED as error:
            raise ValueError(f"{self.name}: not a Zarr array: {str(error)[:200]}") from error
        raise FileNotFoundError(errno.ENOENT, "No Zarr array is visible to this process", self.name)

    def existing(self) -> zarr.Array[Any] | None:
        """Return the array, or None if the place is empty; raise an error for other data, which are never overwritten."""
        for _ in range(2):              # another process may create the array between the first two steps
            with suppress(FileNotFoundError):
                return self.open()
            if sync(self._is_empty()):
                return None
        raise OSError(errno.EINVAL, "Not a Zarr array, so it is not overwritten", self.name)

    async def _is_empty(self) -> bool:
        """Return whether there are no data, except for those of a process that was killed before it had created the array."""
        async for key in self.root.store.list_prefix(self.root.path and f"{self.root.path}/"):
            if not key.endswith(".partial"):
                return False
        return True


async def part_of(path: StorePath, start: int, stop: int) -> bytes:
    """Return some bytes of a key of a store, or no bytes if there is no such key."""
    content = await path.get(byte_range=RangeByteRequest(start, stop))
    return b"" if content is None else content.to_bytes()


def place_of(store: Any, storage_options: dict[str, Any] | None = None) -> Place:
    """Return the place of a path, a URL or a Zarr store."""
    name = os.fsdecode(store) if isinstance(store, (str, os.PathLike)) else None
    if name is not None and "\0" in name:
        raise ValueError(f"store is {name!r}, expected a path without a null character")
    if is_url(name):
        root = StorePath(FsspecStore.from_url(name, storage_options=storage_options))
    elif storage_options is not None:
        raise TypeError("storage_options is given for a folder or a Zarr store, expected None, because only a URL has options")
    elif name is not None:
        name = name.removeprefix(LOCAL)
        root = StorePath(LocalStore(os.path.realpath(name)))
    elif isinstance(store, (Store, StorePath, dict)):
        store = MemoryStore(store) if isinstance(store, dict) else store
        root = StorePath(store) if isinstance(store, Store) else store
    else:
        raise checks.wrong_type("store", store, "a path, a URL or a Zarr store")
    if fs := getattr(root.store, "fs", None):       # fsspec caches listings, which lack new keys of other processes
        getattr(fs, "sync_fs", fs).invalidate_cache()
    folder = os.path.realpath(root.store.root / root.path) if isinstance(root.store, LocalStore) else None
    if folder is not None and os.path.lexists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    return Place(root, name or str(root), folder)
