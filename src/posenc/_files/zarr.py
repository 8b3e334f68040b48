"""Tables in Zarr stores of format 3.  zarr writes them, chunk by chunk, or shard by shard, each of them atomically.

The attribute "posenc" holds the specification of the table, from which any process computes any chunk.  The attribute
"complete" is false until `finish` has seen every chunk.  No name in a store is used as a path: zarr computes the names of
chunks from their numbers.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from typing import Any, NamedTuple, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.specification import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import atomic, table
from posenc._files.places import Place, RangeByteRequest, place_of, sync, zarr
from posenc._files.specification import Specification, checked, described

# A table of terabytes has few files of this size, and a chunk of this size is small relative to a reader's memory.
CHUNK_BYTES = 32 << 20
BATCH = 100             # chunks whose sizes are requested at the same time


# ---- stores ---------------------------------------------------------------------------------------------------------


class Started(NamedTuple):
    """An array that `create` started.  It is written in units: in shards if it has any, else in chunks."""

    array: zarr.Array[Any]
    specification: Specification

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
        return encoding.encode(positions, dtype=dtype, out=values, threads=threads).astype(table.STORED[dtype], copy=False)

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


def started(array: zarr.Array[Any]) -> Started | None:
    """Return an array with its specification if `create` started it, else None."""
    with suppress(ValueError):
        specification = described(array.attrs.get("posenc"), array.shape)
        is_plain = not array.compressors and not array.filters and array.chunks[0] > 0
        if specification and is_plain and array.chunks[1] == max(1, array.shape[1]):
            return Started(array, specification)
    return None


def start_of(place: Place) -> Started:
    """Open an array that `create` started; raise an error if there is none."""
    if start := started(place.open()):
        return start
    raise ValueError(f"{place.name}: another array, expected one that posenc.zarr.create has started")


@contextmanager
def opened_start(store: Any, storage_options: dict[str, Any] | None) -> Iterator[tuple[Place, Started]]:
    """Yield the place of a store and the array in it; every OSError names the place."""
    place = place_of(store, storage_options)
    with atomic.naming(place.name):
        yield place, start_of(place)


# ---- writing --------------------------------------------------------------------------------------------------------


def create(
    store: Any, positions: SupportsIndex | range, encoding: Encoding, *, dtype: AnyDType = "float32",
    chunk_rows: SupportsIndex | None = None, shard_rows: SupportsIndex | None = None, overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> int:
    """Start a Zarr array of format 3 for the encodings of a range, to be written with `write` and completed with `finish`.

    If the store was created with the same arguments, `create` changes nothing, so a job that is run again continues with the
    missing chunks, or finds a complete store.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        A folder that all processes share; a URL that fsspec supports, such as ``"s3://bucket/pe.zarr"``; or a store of the
        package zarr.
    positions : int or range
        Positions of the rows; an integer n means ``range(n)``.
    encoding : posenc.Encoding
        The encoding of the table.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        Data type of the values; bfloat16 is stored as uint16, because Zarr has no bfloat16.
    chunk_rows : int, optional
        Number of positions in a chunk, the smallest part that readers read; by default, as many as fit in 32 MiB.
    shard_rows : int, optional
        Number of positions in a shard, a multiple of `chunk_rows`: one file or object that holds several chunks, and is written
        as a whole.  By default, each chunk is a file or object.
    overwrite : bool, optional
        Delete a Zarr array that is complete or was created with other arguments.  Other data are never deleted.
    storage_options : dict, optional
        Options that fsspec needs to access the URL.

    Returns
    -------
    int
        Number of chunks, or of shards if there are any: the largest useful number of parts for `write`.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value.
    OSError
        If the place holds other data, or, without `overwrite`, an array with other arguments (FileExistsError).

    See Also
    --------
    posenc.dask.to_zarr : Create, write and finish a store with Dask.

    Notes
    -----
    The attribute ``posenc`` holds the specification, from which ``posenc verify`` recomputes the table.  The attribute
    ``complete`` is false until `finish` has seen every chunk; `posenc.open` and `posenc.verify` refuse a store that is not
    complete.  The fill value is NaN (for bfloat16, its bits), so a chunk that is missing reads as NaN.

    Examples
    --------
    >>> import posenc, posenc.zarr
    >>> posenc.zarr.create("pe.zarr", 10_000, posenc.Encoding(64), chunk_rows=2_500)
    4
    >>> [posenc.zarr.write("pe.zarr", part, 2) for part in range(2)]
    [2, 2]
    >>> posenc.zarr.finish("pe.zarr").shape
    (10000, 64)
    """
    specification = checked(positions, encoding, dtype)
    (rows, columns), overwrite = specification.shape, checks.boolean("overwrite", overwrite)
    shard = None if shard_rows is None else checks.integer("shard_rows", shard_rows, 1)
    if chunk_rows is None:              # nearly equal chunks, so that the last one needs little padding
        chunk = -(-rows // max(1, -(-specification.nbytes // CHUNK_BYTES)))
    else:
        chunk = checks.integer("chunk_rows", chunk_rows, 1)
    if shard is None:
        chunk = max(1, min(chunk, rows))
    elif chunk_rows is None or shard % chunk:
        raise ValueError(f"shard_rows is {shard}, expected a multiple of chunk_rows, which is {chunk_rows}")
    arguments = specification._asdict() | {"chunk_rows": chunk, "shard_rows": shard}
    place = place_of(store, storage_options)
    with atomic.naming(place.name):
        array = place.existing(overwrite)
        start = None if array is None else started(array)
        is_unfinished = start and start.arguments == arguments and start.array.attrs.get("complete") is not True
        if array is None or overwrite and not is_unfinished:
            if place.folder is not None:
                atomic.check_space(place.folder, specification.nbytes)
            if array is not None:
                # if this process is killed now, the store remains an incomplete Zarr array, which the next call can replace
                place.open("r+").update_attributes({"posenc": {}, "complete": False})
                sync((place.root / "c").delete_dir())
            with suppress(zarr.errors.ContainsArrayError):      # another process was faster
                zarr.create_array(
                    place.root,
                    shape=specification.shape,
                    chunks=(chunk, max(1, columns)),
                    shards=None if shard is None else (shard, max(1, columns)),
                    dtype=table.STORED[specification.dtype],
                    compressors=None,           # sines compress too little to be worth the time
                    fill_value=0x7FC0 if specification.dtype == "bfloat16" else np.nan,     # the table of a range has no NaN
                    dimension_names=("position", "column"),
                    attributes={"posenc": specification.document(), "complete": False},
                    overwrite=array is not None,
                )
        start = started(place.open())
        if start and start.arguments == arguments:
            return start.units
        old_arguments = start.arguments if start else {}
        name = next(name for name in arguments if arguments[name] != old_arguments.get(name))
        message = f"The store exists with {name} {old_arguments.get(name)}, not {arguments[name]}; overwrite=True replaces it"
        raise FileExistsError(errno.EEXIST, message, place.name)


def write(
    store: Any, part: SupportsIndex, parts: SupportsIndex, *, threads: SupportsIndex | None = None,
    storage_options: dict[str, Any] | None = None, progress: Callable[[int], object] | None = None,
) -> int:
    """Write the missing chunks of one part of a store that `create` started; any process may write any part.

    Chunks that exist are not computed again.  zarr writes each chunk atomically, and a chunk in a folder is on the disk when
    the function returns, so a process may be killed at any time, and two processes may write the same part.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        As in `create`.
    part, parts : int
        Number of the part, from 0 to ``parts - 1``, and number of parts.
    threads : int, optional
        As in `posenc.encode`; use 1 if a scheduler starts a task for each processor.
    storage_options : dict, optional
        As in `create`.
    progress : callable, optional
        Called with the number of bytes written since its last call.

    Returns
    -------
    int
        Number of chunks (or shards) that were written.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or `create` did not start the store.
    FileNotFoundError
        If the process sees no store.
    OSError
        If another job replaced or deleted the store meanwhile, or if the system reports an error.

    See Also
    --------
    missing : The chunks that are not written.

    Examples
    --------
    >>> import posenc, posenc.zarr
    >>> posenc.zarr.create("parts.zarr", 10_000, posenc.Encoding(64), chunk_rows=2_500)
    4
    >>> posenc.zarr.write("parts.zarr", 0, 2)          # the first two chunks
    2
    >>> posenc.zarr.write("parts.zarr", 0, 2)          # they exist
    0
    """
    parts = checks.integer("parts", parts, 1)
    part = checks.integer("part", part, 0)
    if part >= parts:
        raise ValueError(f"part is {part}, expected less than parts, which is {parts}")
    threads, progress, count = checks.threads(threads), table.callback(progress), 0
    with opened_start(store, storage_options) as (place, start):
        # with this option, zarr does not compare all values with the fill value
        array = place.open("r+").with_config({"write_empty_chunks": True})
        # one buffer for all chunks in a folder, because new memory takes longer; other stores may keep the array
        buffer = table.row_buffer(start.unit_rows, start.array.shape[1], start.specification.dtype) if place.folder else None
        for unit in start.missing(range(part * start.units // parts, (part + 1) * start.units // parts)):
            values = start.encode(start.positions(unit), threads, buffer)
            _uninterrupted(_put, place, start, array, unit, values)
            count += 1
            progress(values.nbytes)
    return count


def _uninterrupted(function: Callable[..., object], *arguments: Any, **keywords: Any) -> None:
    """Call a function, and wait until it returns, also after Ctrl-C, because zarr writes in its own threads."""
    with ThreadPoolExecutor(1, "posenc-zarr") as worker:
        worker.submit(int).result()             # a signal while the thread starts would prevent waiting
        worker.submit(function, *arguments, **keywords).result()


def _put(place: Place, start: Started, array: zarr.Array[Any], unit: int, values: NDArray[Any]) -> None:
    """Write a unit and flush it to the disk; delete it again if another job has replaced or deleted the store meanwhile."""
    key, first, folder = start.key(unit), unit * start.unit_rows, place.folder or ""
    if folder and os.path.realpath(os.path.join(folder, key)) != os.path.join(folder, key):
        raise OSError(errno.ELOOP, f"{key} is, or is in, a symbolic link", place.name)
    if array.shards:
        sync((place.root / key).delete())       # zarr would read an incomplete shard
    array[first : first + len(values)] = values
    for name in (key, os.path.dirname(key), "c") if folder else ():
        atomic.sync(os.path.join(folder, name))
    with suppress(FileNotFoundError, ValueError):
        if start_of(place).arguments == start.arguments:
            return
    sync((place.root / key).delete())
    raise OSError(errno.ESTALE, "Another job has replaced or deleted the store", place.name)


def missing(store: Any, *, storage_options: dict[str, Any] | None = None) -> list[int]:
    """Return the numbers of the chunks (or shards) of a store that do not exist or are incomplete.

    If n is the number that `create` returned, ``write(store, k, n)`` writes chunk k.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        As in `create`.
    storage_options : dict, optional
        As in `create`.

    Returns
    -------
    list of int
        The numbers; empty if every chunk exists.

    Raises
    ------
    FileNotFoundError, ValueError
        If the process sees no store, or one that `create` did not start.

    See Also
    --------
    write : Write a part of a store.

    Examples
    --------
    >>> import posenc, posenc.zarr
    >>> posenc.zarr.create("resumed.zarr", 10_000, posenc.Encoding(64), chunk_rows=2_500)
    4
    >>> posenc.zarr.write("resumed.zarr", 1, 4)
    1
    >>> posenc.zarr.missing("resumed.zarr")
    [0, 2, 3]
    """
    with opened_start(store, storage_options) as (_, start):
        return list(start.missing(range(start.units)))


def finish(store: Any, *, storage_options: dict[str, Any] | None = None) -> zarr.Array[Any]:
    """Mark a store as complete if all of its chunks exist and have the right size.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        As in `create`.
    storage_options : dict, optional
        As in `create`.

    Returns
    -------
    zarr.Array
        The array, open for reading, even if the store was complete before.

    Raises
    ------
    ValueError
        If `create` did not start the store, or chunks are missing or damaged; the message names the first of them.
    FileNotFoundError
        If the process sees no store.

    See Also
    --------
    create : Start a store.

    Examples
    --------
    >>> import posenc, posenc.zarr
    >>> posenc.zarr.create("unfinished.zarr", 10_000, posenc.Encoding(64), chunk_rows=2_500)
    4
    >>> posenc.zarr.finish("unfinished.zarr")               # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ValueError: unfinished.zarr: of 4 chunks, some are missing or damaged, first c/0/0, c/1/0, c/2/0
    """
    with opened_start(store, storage_options) as (place, start):
        start.check(place.name)
        if start.array.attrs.get("complete") is not True:
            place.open("r+").update_attributes({"complete": True})
            for name in ("zarr.json", "", "..") if place.folder else ():
                atomic.sync(os.path.join(place.folder or "", name))
            start_of(place).check(place.name)           # another job may have replaced the store since the first check
        return place.open()


def save(
    path: str, specification: Specification, *, chunk_rows: SupportsIndex | None, storage_options: dict[str, Any] | None,
    threads: int | None, overwrite: bool, progress: Callable[[int], object],
) -> int:
    """Write a store at a URL or, atomically, in a folder; return the size of its values."""
    def check_folder(folder: str, overwrite: bool) -> None:
        if place_of(folder).existing(overwrite) is not None and not overwrite:
            raise atomic.exists_error(folder)

    place, size = place_of(path, storage_options), specification.nbytes
    target_path = nullcontext(path) if place.folder is None else atomic.replacement(place.name, size, overwrite, check_folder)
    with target_path as target:
        keywords: dict[str, Any] = {"storage_options": storage_options}
        _uninterrupted(create, target, **specification._asdict(), chunk_rows=chunk_rows, overwrite=overwrite, **keywords)
        write(target, 0, 1, threads=threads, progress=progress, **keywords)
        _uninterrupted(finish, target, **keywords)
    return size


# ---- reading --------------------------------------------------------------------------------------------------------


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
        specification = described(array.attrs.get("posenc"), shape)
    if start := started(array):
        start.check(place.name)
    chunk_rows = max(1, array.chunks[len(first_axis)])
    block_rows = min(shape[0], max(1, table.buffer_rows(*shape, dtype) // chunk_rows) * chunk_rows)        # whole chunks
    yield table.Table(shape, dtype, specification, block_rows, read, lambda: array)
