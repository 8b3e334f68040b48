"""Zarr, version 3: one chunk of rows, one file."""

from __future__ import annotations

import errno
import itertools
import math
import operator
import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.core.sync import collect_aiterator

from posenc._encoding import Encoding
from posenc._files import atomic, table
from posenc._files.specification import described, specification
from posenc._types import AnyDType

# A file of its own for each: few enough for a table of terabytes, and small beside the memory of whoever reads it.
CHUNK_BYTES = 32 << 20
# NaN, which no table of a range holds: a missing chunk never passes for values.  Of bfloat16 the bits.
_FILL = {"float32": np.nan, "float64": np.nan, "float16": np.nan, "bfloat16": 0x7FC0}
MARKS = ("zarr.json", ".zarray", ".zgroup")
# what the library raises for metadata that are none, and says of metadata that it mends (3.4 on)
DAMAGED = (
    AttributeError, KeyError, RecursionError, TypeError, ValueError, FileNotFoundError, zarr.errors.BaseZarrError, UserWarning
)


# ---- writing --------------------------------------------------------------------------------------------------------


def create(
    store: Any, encoding: Encoding, positions: range, dtype: str, chunk_rows: int, overwrite: bool = False
) -> zarr.Array[Any]:
    """An array without values yet.  Uncompressed: of the bits of sines nothing is worth its time."""
    return zarr.create_array(
        store,
        shape=(len(positions), encoding.d_model),
        chunks=(chunk_rows, max(1, encoding.d_model)),
        dtype=table.STORED[dtype],
        compressors=None,
        fill_value=_FILL[dtype],
        dimension_names=("position", "column"),
        attributes={"posenc": specification(encoding, positions, dtype)},
        config={"write_empty_chunks": True},
        overwrite=overwrite,
    )


def stored_bytes(rows: int, d_model: int, dtype: str, chunk_rows: int) -> int:
    """Bytes of the chunks, of which the last is whole, too."""
    return table.table_bytes(-(-rows // chunk_rows) * chunk_rows, d_model, dtype)


def write(
    path: str | os.PathLike[str],
    encoding: Encoding,
    positions: range,
    dtype: AnyDType = "float32",
    *,
    chunk_rows: int | None = None,
    threads: int | None = None,
    force: bool = False,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Writes the encodings of a range to a Zarr array in a folder, which appears complete or not at all.

    Parameters
    ----------
    path : path_like
    encoding : Encoding
    positions : range
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        bfloat16 is stored as uint16, for which the specification in the attributes has its name.
    chunk_rows : int, optional
        Rows of a chunk; by default so many that they have at most CHUNK_BYTES.
    threads, force, progress
        As in `table.write_table`.

    Returns
    -------
    int
        Size of the chunks in bytes.
    """
    name, rows = table.checked(positions, dtype)
    if chunk_rows is None:
        most = max(1, CHUNK_BYTES // max(1, encoding.d_model * table.itemsize(name)))
        parts = max(1, -(-rows // most))
        chunk_rows = -(-rows // parts)              # of about equal size, as the last one is stored whole
    chunk_rows = max(1, min(chunk_rows, rows))
    table.refuse_outside(encoding, positions, threads)
    size = stored_bytes(rows, encoding.d_model, name, chunk_rows)
    with folder_to_be(path, size, force) as temporary:
        array = create(temporary, encoding, positions, name, chunk_rows)
        buffer = np.empty((min(rows, chunk_rows), encoding.d_model), np.dtype(table.STORED[name]).newbyteorder("="))
        for first in range(0, rows if buffer.size else 0, chunk_rows):
            part = positions[first : first + chunk_rows]
            block = encoding.encode(part, dtype=name, out=buffer[: len(part)], threads=threads)
            array[first : first + len(part)] = block
            if progress:
                progress(block.nbytes)
    return size


@contextmanager
def folder_to_be(path: str | os.PathLike[str], size: int, force: bool) -> Iterator[str]:
    """The name of a folder beside `path`, which takes that name when all went well and is gone otherwise.

    To replace a folder takes two steps: the old one goes aside, then the new one takes its name.
    """
    given = os.fsdecode(path).rstrip(os.sep)
    with atomic.naming(given):
        path = os.path.realpath(given)
        temporary = atomic.name_beside(path)
        _check_target(path, force)
        atomic.check_space(path, size)
        try:
            yield temporary
            _sync(temporary)
            _publish(temporary, path, force)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)        # after the renaming there is none
        atomic.sync_folder(os.path.dirname(path))


def _check_target(path: str, force: bool) -> None:
    if not os.path.lexists(path):
        return
    if not any(os.path.isfile(os.path.join(path, mark)) for mark in MARKS):
        raise OSError(errno.EINVAL, "Not a Zarr store, which alone is overwritten", path)      # no folder of anything else
    if not force:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _sync(folder: str) -> None:
    """Takes every file below to the disk; and their names, as a file's content may arrive without it."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb+") as file:
                os.fsync(file.fileno())
        atomic.sync_folder(parent)


def _publish(temporary: str, path: str, force: bool) -> None:
    aside = f"{temporary}.old"
    try:
        if force:
            with suppress(FileNotFoundError):
                os.rename(path, aside)
        os.rename(temporary, path)      # refuses to overwrite what was made meanwhile, unless it is an empty folder
    except BaseException as error:      # Ctrl-C between the two
        if not os.path.lexists(path) and os.path.lexists(aside):
            os.rename(aside, path)
        if isinstance(error, OSError):
            _check_target(path, force)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


# ---- chunks ---------------------------------------------------------------------------------------------------------


def missing(array: zarr.Array[Any]) -> str | None:
    """Says how many chunks the store does not have, and which are the first; None where it has all.

    A chunk is what is stored under one key: of an array with shards, a shard.  The keys are listed and no value is read, in
    time and memory of what there is, however many chunks the metadata promise.
    """
    grid = tuple(-(-n // max(1, most)) for n, most in zip(array.shape, array.shards or array.chunks, strict=True))
    key_of, prefix = array.metadata.encode_chunk_key, f"{array.path}/" if array.path else ""
    there = set()
    for key in collect_aiterator(array.store.list_prefix(prefix)):
        key = key.removeprefix(prefix)
        index = tuple(map(int, re.findall("[0-9]+", key)))
        if len(index) == len(grid) and all(map(operator.lt, index, grid)) and key_of(index) == key:
            there.add(index)
    total = math.prod(grid)
    if len(there) == total:
        return None
    first = itertools.islice((key_of(index) for index in _indices(grid) if index not in there), 3)
    return f"{total - len(there)} of {total} chunks are missing, the first of them {', '.join(first)}"


def _indices(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Those of a grid in C order, one by one also where NumPy has no number for how many there are."""
    if not grid:
        yield ()
        return
    for index in range(grid[0]):
        for others in _indices(grid[1:]):
            yield index, *others


# ---- reading --------------------------------------------------------------------------------------------------------


class Table:
    """A table in a Zarr array."""

    def __init__(self, array: zarr.Array[Any], document: Any, path: str) -> None:
        self.shape = table.table_shape(array.shape)
        self.dtype = _name_of(array)
        self._before = (0,) if array.ndim == 3 and array.shape[0] == 1 else ()      # the index before that of positions
        self._chunk_rows = array.chunks[len(self._before)]
        if not self._chunk_rows:
            raise ValueError(f"chunks {array.chunks}, expected some rows in each")
        self.described = described(document, self.shape) if document is not None else None
        self.row_bytes = self.shape[1] * table.itemsize(self.dtype)
        self._array, self._path = array, path
        self._chunks = range(0)
        self._held: NDArray[Any] = np.empty(0)

    def read(self, first: int, rows: int) -> NDArray[Any]:
        """The bits of consecutive rows, as unsigned integers.  The chunks read last are kept: one serves many small calls."""
        most = self._chunk_rows
        chunks = range(first // most, -(-(first + rows) // most))
        if chunks != self._chunks:
            self._chunks, self._held = range(0), np.empty(0)        # the memory of the last ones is free for these
            try:
                values = np.asarray(self._array[(*self._before, slice(chunks.start * most, chunks.stop * most))])
            except Exception as error:      # every codec has errors of its own for a damaged chunk
                raise OSError(errno.EIO, f"{type(error).__name__}: {str(error)[:200]}", self._path) from error
            values = values.reshape(len(values), self.shape[1])
            self._chunks, self._held = chunks, values.view(f"u{values.itemsize}")
        begin = first - chunks.start * most
        return self._held[begin : begin + rows]


def _name_of(array: zarr.Array[Any]) -> str:
    if array.dtype == np.uint16:
        return "bfloat16"
    if array.dtype.name not in table.STORED or not array.dtype.isnative:
        raise ValueError(f"dtype {array.dtype}, expected float32, float64, float16 or uint16 (the bits of bfloat16)")
    name: str = array.dtype.name
    return name


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Table]:
    """The table in a Zarr array, as a context.

    Raises
    ------
    ValueError
        Where there is none, or one of its chunks is missing.
    """
    with table.explaining(path):
        if not os.path.exists(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                array = zarr.open_array(path, mode="r")
            document = array.attrs.get("posenc")
        except DAMAGED as error:
            raise ValueError(f"not a Zarr array: {str(error)[:200]}") from error
        found = Table(array, document, os.fspath(path))
        lacking = missing(array)
        if lacking:
            raise ValueError(lacking)
    yield found
