"""Where a Zarr store is: in a folder, at a URL, or in another store of the package zarr."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from typing import Any, Literal, NamedTuple

from posenc._arguments import checks
from posenc._files.formats import LOCAL, is_url, name_of

try:
    import zarr
    from zarr.abc.store import RangeByteRequest, Store
    from zarr.core.sync import sync  # zarr has no public function that runs a method of a store in its event loop
    from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath
except ModuleNotFoundError as error:
    raise checks.not_installed("posenc.zarr", "zarr", error) from error

__all__ = ["Place", "RangeByteRequest", "place_of", "sync", "zarr"]


class Place(NamedTuple):
    """Where a store is: for zarr, for messages, and, if it is in a folder, the real path of this folder."""

    root: StorePath
    name: str
    folder: str | None

    def open(self, mode: Literal["r", "r+"] = "r") -> zarr.Array[Any]:
        """Open the array; raise a FileNotFoundError if there is none, and a ValueError for invalid metadata."""
        store = self.root.store if mode == "r+" else self.root.store.with_read_only(True)       # zarr creates a writable folder
        try:
            array = zarr.open_array(StorePath(store, self.root.path), mode=mode)
            array.attrs.get("posenc")
            return array
        except FileNotFoundError:
            pass                        # the error below has no context: Dask cannot send zarr's error to the client
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:        # of zarr, for its metadata
            raise ValueError(f"{self.name}: not a Zarr array: {str(error)[:200]}") from error
        raise FileNotFoundError(errno.ENOENT, "No Zarr array is visible to this process", self.name)

    def existing(self, overwrite: bool) -> zarr.Array[Any] | None:
        """Return the array, or None if the place is empty; raise an error for other data, which are never overwritten."""
        for _ in range(2):              # another process may create the array between the first two steps
            with suppress(FileNotFoundError):
                return self.open()
            if sync(self._is_empty(overwrite)):
                return None
        raise OSError(errno.EINVAL, "Not a Zarr array, so it is not overwritten", self.name)

    async def _is_empty(self, overwrite: bool) -> bool:
        """Return whether there are no data, except for those of processes that were killed before they had created the array.

        With `overwrite`, these data may be chunks: another job may write them while a job replaces the array.
        """
        prefix = self.root.path and f"{self.root.path}/"
        keys = [key.removeprefix(prefix) async for key in self.root.store.list_prefix(prefix)]
        return all(key.endswith(".partial") or overwrite and key.startswith("c/") for key in keys)


def place_of(store: Any, storage_options: dict[str, Any] | None = None) -> Place:
    """Return the place of a path, a URL or a Zarr store."""
    name = name_of(store, "store") if isinstance(store, (str, os.PathLike)) else None
    if is_url(name):
        root = StorePath(FsspecStore.from_url(name, storage_options=storage_options))
    elif storage_options is not None:
        raise TypeError("storage_options is given for a folder or a Zarr store, expected None, because only a URL has options")
    elif name is not None:
        root = StorePath(LocalStore(os.path.realpath(name.removeprefix(LOCAL))))
    elif isinstance(store, (Store, StorePath, dict)):
        store = MemoryStore(store) if isinstance(store, dict) else store
        root = store if isinstance(store, StorePath) else StorePath(store)
    else:
        raise checks.wrong_type("store", store, "a path, a URL or a Zarr store")
    if fs := getattr(root.store, "fs", None):       # fsspec caches listings, which lack new keys of other processes
        getattr(fs, "sync_fs", fs).invalidate_cache()
    folder = os.path.realpath(root.store.root / root.path) if isinstance(root.store, LocalStore) else None
    if folder is not None and os.path.lexists(folder) and not os.path.isdir(folder):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), name)
    return Place(root, name or str(root), folder)
