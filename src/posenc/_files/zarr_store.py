"""Zarr stores of format 3: where a store is, and which table it holds.

zarr writes a store chunk by chunk, or shard by shard, each of them atomically.  The attribute "posenc" holds the specification
of the table, from which any process computes any chunk.  The attribute "complete" is false until `posenc.zarr.finish` has seen
every chunk.  No name in a store is used as a path: zarr computes the names of chunks from their numbers.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.arrays import DTYPES
from posenc._files import atomic, table
from posenc._files.formats import LOCAL, is_url, name_of
from posenc._files.table import TableSpecification, specification_in

try:
    import zarr
    from zarr.abc.store import RangeByteRequest, Store
    from zarr.core.sync import sync  # zarr has no public function that runs a method of a store in its event loop
    from zarr.storage import FsspecStore, LocalStore, MemoryStore, StorePath
except ModuleNotFoundError as error:
    raise checks.not_installed("posenc.zarr", "zarr", error) from error

BATCH = 100             # chunks whose sizes are requested at the same time

# ---- places -----------------------------------------------------------------------------------------------------------


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


# ---- tables in stores ------------------------------------------------------------------------------------------------


class StoredTable(NamedTuple):
    """A table in an array that `create` started.  It is written in units: in shards if it has any, else in chunks."""

    array: zarr.Array[Any]
    specification: TableSpecification

    @property
    def arguments(self) -> dict[str, Any]:
        shards = self.array.shards
        return self.specification._asdict() | {"chunk_rows": self.array.chunks[0], "shard_rows": shards and shards[0]}

    @property
    def unit_rows(self) -> int:
        return (self.array.shards or self.array.chunks)[0]

    @property
    def units(self) -> int:
        return -(-len(self.specification.positions) // self.unit_rows) if self.specification.encoding.d_model else 0

    def positions(self, unit: int) -> range:
        return self.specification.positions[unit * self.unit_rows : (unit + 1) * self.unit_rows]

    def key(self, unit: int) -> str:
        return str(self.array.metadata.encode_chunk_key((unit, 0)))

    def size(self, unit: int) -> int:
        """Return the size of a unit in bytes.  A chunk is padded; a shard has an index, and only the chunks with rows."""
        rows = self.array.chunks[0]
        chunks, index = -(-len(self.positions(unit)) // rows), self.unit_rows // rows * 16 + 4
        return chunks * rows * self.array.shape[1] * self.array.dtype.itemsize + (index if self.array.shards else 0)

    def encode(self, positions: range, threads: int | None, buffer: NDArray[Any] | None = None) -> NDArray[Any]:
        """Return the rows of some positions, in the buffer if there is one."""
        _, encoding, dtype = self.specification
        values = table.row_buffer(len(positions), encoding.d_model, dtype) if buffer is None else buffer[: len(positions)]
        return encoding.encode(positions, dtype=dtype, out=values, threads=threads).astype(DTYPES[dtype].stored, copy=False)

    async def is_written(self, unit: int) -> bool:
        """Return whether a unit exists with its size, and with its first and last rows.

        The rows show a unit of another table: a process may be killed after it has written a unit to the store of another job.
        """
        path, positions = self.array.store_path / self.key(unit), self.positions(unit)
        try:
            if await path.store.getsize(path.path) != self.size(unit):
                return False
        except FileNotFoundError:
            return False
        for row in {0, len(positions) - 1}:
            expected = self.encode(positions[row : row + 1], threads=1).tobytes()
            content = await path.get(byte_range=RangeByteRequest(row * len(expected), (row + 1) * len(expected)))
            if content is None or content.to_bytes() != expected:
                return False
        return True

    def missing(self, units: range) -> Iterator[int]:
        """Yield the units that are not written."""
        async def written(units: range) -> list[bool]:
            return await asyncio.gather(*map(self.is_written, units))

        for first in range(0, len(units), BATCH):
            batch = units[first : first + BATCH]
            yield from (unit for unit, is_written in zip(batch, sync(written(batch)), strict=True) if not is_written)

    def check(self, name: str) -> None:
        """Raise a ValueError that names the first units that are not written, if there are any."""
        if keys := [self.key(unit) for unit, _ in zip(self.missing(range(self.units)), range(3), strict=False)]:
            problem = f"some of {self.units} {'shards' if self.array.shards else 'chunks'} are missing or damaged"
            raise ValueError(f"{name}: {problem}, first {', '.join(keys)}; posenc.zarr.write writes them to the shared store")


def stored_table(array: zarr.Array[Any]) -> StoredTable | None:
    """Return an array with its specification if `create` started it, else None."""
    with suppress(ValueError):
        specification = specification_in(array.attrs.get("posenc"), array.shape)
        is_plain = not array.compressors and not array.filters and array.chunks[0] > 0
        if specification and is_plain and array.chunks[1] == max(1, array.shape[1]):
            return StoredTable(array, specification)
    return None


def table_at(place: Place) -> StoredTable:
    """Open an array that `create` started; raise an error if there is none."""
    if result := stored_table(place.open()):
        return result
    raise ValueError(f"{place.name}: another array, expected one that posenc.zarr.create has started")


@contextmanager
def opened_store(store: Any, storage_options: dict[str, Any] | None) -> Iterator[tuple[Place, StoredTable]]:
    """Yield the place of a store and the array in it; every OSError names the place."""
    place = place_of(store, storage_options)
    with atomic.naming(place.name):
        yield place, table_at(place)


# ---- writing ----------------------------------------------------------------------------------------------------------


def create_array(place: Place, specification: TableSpecification, chunk: int, shard: int | None, overwrite: bool) -> None:
    """Create the array for a table, or replace an array."""
    columns = max(1, specification.encoding.d_model)
    if place.folder is not None:
        atomic.check_space(place.folder, specification.nbytes)
    if overwrite:
        # if this process is killed now, the store remains an incomplete Zarr array, which the next call can replace
        place.open("r+").update_attributes({"posenc": {}, "complete": False})
        sync((place.root / "c").delete_dir())
    with suppress(zarr.errors.ContainsArrayError):      # another process was faster
        zarr.create_array(
            place.root,
            shape=specification.shape,
            chunks=(chunk, columns),
            shards=None if shard is None else (shard, columns),
            dtype=DTYPES[specification.dtype].stored,
            compressors=None,           # sines compress too little to be worth the time
            fill_value=0x7FC0 if specification.dtype == "bfloat16" else np.nan,     # the table of a range has no NaN
            dimension_names=("position", "column"),
            attributes={"posenc": specification.document(), "complete": False},
            overwrite=overwrite,
        )


def put(place: Place, target: StoredTable, array: zarr.Array[Any], unit: int, values: NDArray[Any]) -> None:
    """Write a unit and flush it to the disk; delete it again if another job has replaced or deleted the store meanwhile."""
    key, first, folder = target.key(unit), unit * target.unit_rows, place.folder or ""
    if folder and os.path.realpath(os.path.join(folder, key)) != os.path.join(folder, key):
        raise OSError(errno.ELOOP, f"{key} is, or is in, a symbolic link", place.name)
    if array.shards:
        sync((place.root / key).delete())       # zarr would read an incomplete shard
    array[first : first + len(values)] = values
    for name in (key, os.path.dirname(key), "c") if folder else ():
        atomic.sync(os.path.join(folder, name))
    with suppress(FileNotFoundError, ValueError):
        if table_at(place).arguments == target.arguments:
            return
    sync((place.root / key).delete())
    raise OSError(errno.ESTALE, "Another job has replaced or deleted the store", place.name)


def uninterrupted(function: Callable[..., object], *arguments: Any, **keywords: Any) -> None:
    """Call a function, and wait until it returns, also after Ctrl-C, because zarr writes in its own threads."""
    with ThreadPoolExecutor(1, "posenc-zarr") as worker:
        worker.submit(int).result()             # a signal while the thread starts would prevent waiting
        worker.submit(function, *arguments, **keywords).result()


# ---- reading ----------------------------------------------------------------------------------------------------------


@contextmanager
def opened(place: Place) -> Iterator[table.Table]:
    """Open an array as a table; refuse a store that is not complete."""
    array = place.open()
    if "posenc" in array.attrs and array.attrs.get("complete") is not True:
        remedy = "call posenc.zarr.create with the same arguments, then posenc.zarr.write and posenc.zarr.finish"
        raise ValueError(f"{place.name}: the store is not complete; to resume, {remedy}")
    first_axis = (0,) if array.ndim == 3 and array.shape[0] == 1 else ()        # index of the axis before the positions

    def read(first: int, rows: int) -> NDArray[Any]:
        try:
            values = np.asarray(array[(*first_axis, slice(first, first + rows))])
        except Exception as error:      # each codec raises different errors for a damaged chunk
            raise OSError(errno.EIO, f"{type(error).__name__}: {str(error)[:200]}", place.name) from error
        return np.ascontiguousarray(values.reshape(rows, shape[1]), values.dtype.newbyteorder("=")).view(f"u{values.itemsize}")

    with table.explaining(place.name):
        shape, dtype = table.table_shape(array.shape), table.dtype_name(array.dtype)
        specification = specification_in(array.attrs.get("posenc"), shape)
    if written_table := stored_table(array):
        written_table.check(place.name)
    chunk_rows = max(1, array.chunks[len(first_axis)])
    block_rows = min(shape[0], max(1, table.buffer_rows(*shape, dtype) // chunk_rows) * chunk_rows)        # whole chunks
    yield table.Table(shape, dtype, specification, block_rows, read, lambda: array)
