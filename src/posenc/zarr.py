"""Zarr stores written in parts, by any number of processes, and marked as complete when every chunk exists.

The processes share only the store, whose specification determines the values of every chunk.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, SupportsIndex

from posenc._arguments import checks
from posenc._arguments.arrays import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import atomic, zarr_store
from posenc._files.table import callback, checked_specification, row_buffer

if TYPE_CHECKING:
    import zarr

__all__ = ["create", "finish", "missing", "write"]

# A table of terabytes has few files of this size, and a chunk of this size is small relative to a reader's memory.
CHUNK_BYTES = 32 << 20


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
    specification = checked_specification(positions, encoding, dtype)
    rows, overwrite = len(specification.positions), checks.boolean("overwrite", overwrite)
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
    place = zarr_store.place_of(store, storage_options)
    with atomic.naming(place.name):
        array = place.existing(overwrite)
        table = None if array is None else zarr_store.stored_table(array)
        is_unfinished = table and table.arguments == arguments and table.array.attrs.get("complete") is not True
        if array is None or overwrite and not is_unfinished:
            zarr_store.create_array(place, specification, chunk, shard, overwrite=array is not None)
        table = zarr_store.stored_table(place.open())
        if table and table.arguments == arguments:
            return table.units
        old_arguments = table.arguments if table else {}
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
    threads, progress, count = checks.threads(threads), callback(progress), 0
    with zarr_store.opened_store(store, storage_options) as (place, table):
        # with this option, zarr does not compare all values with the fill value
        array = place.open("r+").with_config({"write_empty_chunks": True})
        # one buffer for all chunks in a folder, because new memory takes longer; other stores may keep the array
        buffer = row_buffer(table.unit_rows, table.array.shape[1], table.specification.dtype) if place.folder else None
        for unit in table.missing(range(part * table.units // parts, (part + 1) * table.units // parts)):
            values = table.encode(table.positions(unit), threads, buffer)
            zarr_store.uninterrupted(zarr_store.put, place, table, array, unit, values)
            count += 1
            progress(values.nbytes)
    return count


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
    with zarr_store.opened_store(store, storage_options) as (_, table):
        return list(table.missing(range(table.units)))


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
    with zarr_store.opened_store(store, storage_options) as (place, table):
        table.check(place.name)
        if table.array.attrs.get("complete") is not True:
            place.open("r+").update_attributes({"complete": True})
            for name in ("zarr.json", "", "..") if place.folder else ():
                atomic.sync(os.path.join(place.folder or "", name))
            zarr_store.table_at(place).check(place.name)        # another job may have replaced the store since the first check
        return place.open()
