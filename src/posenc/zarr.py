"""Zarr stores written in parts, by any number of processes, and published when every chunk exists.

The processes share only the store, whose specification determines the values of every chunk.
"""

from __future__ import annotations

import os
from typing import Any, SupportsIndex

from posenc._arguments import checks, install

try:
    import zarr
except ModuleNotFoundError as error:
    raise install.not_installed("posenc.zarr", "zarr", error) from error

from posenc._arguments.types import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import formats
from posenc._files import zarr as _zarr
from posenc._files.stores import place_of

__all__ = ["create", "finish", "missing", "write"]


def create(
    store: Any, positions: SupportsIndex | range, encoding: Encoding, *, dtype: AnyDType = "float32",
    chunk_rows: SupportsIndex | None = None, shard_rows: SupportsIndex | None = None, overwrite: bool = False,
    storage_options: dict[str, Any] | None = None,
) -> int:
    """Start a Zarr array of format 3 for the encodings of a range, to be written with `write` and published with `finish`.

    If the store is unfinished and was created with the same arguments, the chunks that exist are kept, so that a job that
    was killed continues where it stopped.

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
        Number of positions in a chunk, the smallest part that readers read.  By default, a chunk has at most 32 MiB,
        but at least one row.
    shard_rows : int, optional
        Number of positions in a shard, a multiple of `chunk_rows`, which must then be given.  A shard is one file or
        object that holds several chunks, and is written as a whole.  By default, each chunk is a file or object.
    overwrite : bool, optional
        Replace a published store, or discard an unfinished store that was created with other arguments.  A folder is
        replaced by `finish`; any other store is deleted at once.
    storage_options : dict, optional
        Options that fsspec needs to access the URL.

    Returns
    -------
    int
        Number of chunks, or of shards if there are any: the largest useful number of parts for `write`.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or the store is unfinished and was created with other arguments.
    FileExistsError
        If the store is published and `overwrite` is false.
    OSError
        If the path contains other data, or if the system reports an error.

    See Also
    --------
    posenc.dask.to_zarr : Create, write and finish a store with Dask.

    Notes
    -----
    A folder ``pe.zarr`` is first written as ``.pe.zarr.partial`` beside it.  Any other store is written in place, and
    its metadata are written last; before that, readers find no array.  The attribute ``posenc`` holds the specification,
    from which ``posenc verify`` recomputes the table.  The fill value is NaN (for bfloat16, its bits), so a chunk that is
    lost later reads as NaN.

    A published folder is complete, even if several processes write, discard or publish it at the same time.  A store of another
    kind cannot be replaced in one step.  Before you restart an unfinished store with other arguments, end the processes that
    write or publish it.

    Examples
    --------
    >>> import posenc, posenc.zarr
    >>> posenc.zarr.create("pe.zarr", 10_000, posenc.Encoding(64), chunk_rows=2_500)
    4
    >>> [posenc.zarr.write("pe.zarr", part, 2) for part in range(2)]
    [2, 2]
    >>> posenc.zarr.finish("pe.zarr")
    <Array file://pe.zarr shape=(10000, 64) dtype=float32>
    """
    if not isinstance(encoding, Encoding):
        raise checks.wrong_type("encoding", encoding, "a posenc.Encoding")
    overwrite = checks.boolean("overwrite", overwrite)
    chunk = None if chunk_rows is None else checks.integer("chunk_rows", chunk_rows, 1)
    shard = None if shard_rows is None else checks.integer("shard_rows", shard_rows, 1)
    if shard is not None and (chunk is None or shard % chunk):
        raise ValueError(f"shard_rows is {shard}, expected a multiple of chunk_rows, which is {chunk}")
    if isinstance(store, (str, os.PathLike)):
        path = os.fsdecode(store)
        formats.check_name(path, "store")
        if formats.suffix_of(path) in formats.FORMATS.keys() - {".zarr"}:
            raise ValueError(f"store is {store!r}, expected a name with the suffix .zarr; posenc.save writes the other formats")
    place = place_of(store, storage_options)
    return _zarr.create(place, encoding, checks.range_of(positions), dtype, chunk, shard, overwrite).units


def write(
    store: Any, part: SupportsIndex, parts: SupportsIndex, *, threads: SupportsIndex | None = None,
    storage_options: dict[str, Any] | None = None,
) -> int:
    """Write one part of a store that `create` started; other processes may write the other parts at the same time.

    The chunks are divided evenly into consecutive parts.  Chunks that exist are not computed again.  Each chunk is written
    atomically and is on the disk when the function returns, so a process may be killed at any time, and two processes may
    write the same part.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        As in `create`.
    part : int
        Number of the part, from 0 to ``parts - 1``.
    parts : int
        Number of parts.
    threads : int, optional
        As in `posenc.encode`; use 1 if a scheduler starts a task for each processor.
    storage_options : dict, optional
        As in `create`.

    Returns
    -------
    int
        Number of chunks (or shards) that were written; 0 if the part, or the whole store, was complete.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value.
    FileNotFoundError
        If the store does not exist or the process has no access to it.
    OSError
        If the store was discarded meanwhile, or if the system reports an error.

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
    return _zarr.write_part(place_of(store, storage_options), part, parts, checks.threads(threads))


def missing(store: Any, *, storage_options: dict[str, Any] | None = None) -> list[int]:
    """Return the numbers of the chunks (or shards) of a store that do not exist or are incomplete.

    If n is the number that `create` returned, ``write(store, k, n)`` writes chunk k of an unfinished store.  `write` does not
    change a published store: if a published store has lost chunks, start again with ``create(..., overwrite=True)``.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        As in `create`.
    storage_options : dict, optional
        As in `create`.

    Returns
    -------
    list of int
        The numbers; empty if the store is complete.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value.
    FileNotFoundError
        If the store does not exist or the process has no access to it.

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
    return _zarr.unwritten(place_of(store, storage_options))


def finish(store: Any, *, storage_options: dict[str, Any] | None = None) -> zarr.Array[Any]:
    """Publish a store if all of its chunks exist and have the right size.

    Parameters
    ----------
    store : path_like, URL or Zarr store
        As in `create`.
    storage_options : dict, optional
        As in `create`.

    Returns
    -------
    zarr.Array
        The array, open for reading, even if the store was published before.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value.
    FileNotFoundError
        If the store does not exist or the process has no access to it.
    FileExistsError
        If another store was published at the same path meanwhile, and `create` was called without `overwrite`.
    OSError
        If chunks are missing or incomplete, or if the system reports an error.  If chunks are missing, the store remains
        unfinished, and the message states their number and names the first of them.

    See Also
    --------
    create : Start a store.

    Examples
    --------
    >>> import posenc, posenc.zarr
    >>> posenc.zarr.create("incomplete.zarr", 10_000, posenc.Encoding(64), chunk_rows=2_500)
    4
    >>> posenc.zarr.finish("incomplete.zarr")               # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    OSError: 4 of 4 chunks are missing or incomplete, the first of them c/0/0, c/1/0, c/2/0
    """
    return _zarr.finish(place_of(store, storage_options))
