"""Zarr format 3: a file for each chunk of rows."""

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

# Large enough to keep the number of files small for a table of terabytes, small relative to a reader's memory.
CHUNK_BYTES = 32 << 20
# NaN (for bfloat16, its bits) shows that a chunk is missing: the table of a range never contains NaN.
_FILL = {"float32": np.nan, "float64": np.nan, "float16": np.nan, "bfloat16": 0x7FC0}
MARKS = ("zarr.json", ".zarray", ".zgroup")
# errors that the library raises for invalid metadata, and its warning (since 3.4) for metadata that it repairs
DAMAGED = (
    AttributeError, KeyError, RecursionError, TypeError, ValueError, FileNotFoundError, zarr.errors.BaseZarrError, UserWarning
)


# ---- writing --------------------------------------------------------------------------------------------------------


def create(
    store: Any, encoding: Encoding, positions: range, dtype: str, chunk_rows: int, overwrite: bool = False
) -> zarr.Array[Any]:
    """Create an array, but no chunks; it is uncompressed, because sines compress too little to be worth the time."""
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
    """Return the size of all chunks in bytes; the last chunk is padded to the size of the others."""
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
    progress: Callable[[int], object] = lambda written: None,
) -> int:
    """Write the encodings of a range to a Zarr array in a folder, atomically.

    Parameters
    ----------
    path : path_like
    encoding : Encoding
    positions : range
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        bfloat16 is stored as uint16; the specification in the attributes states the dtype.
    chunk_rows : int, optional
        Rows in a chunk; by default as many as fit in CHUNK_BYTES.
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
        chunk_rows = -(-rows // parts)              # nearly equal chunks, because the last one is padded
    chunk_rows = max(1, min(chunk_rows, rows))
    table.refuse_outside(encoding, positions, threads)
    size = stored_bytes(rows, encoding.d_model, name, chunk_rows)
    with temporary_folder(path, size, force) as temporary:
        array = create(temporary, encoding, positions, name, chunk_rows)
        buffer = np.empty((min(rows, chunk_rows), encoding.d_model), np.dtype(table.STORED[name]).newbyteorder("="))
        for first in range(0, rows if buffer.size else 0, chunk_rows):
            part = positions[first : first + chunk_rows]
            block = encoding.encode(part, dtype=name, out=buffer[: len(part)], threads=threads)
            array[first : first + len(part)] = block
            progress(block.nbytes)
    return size


@contextmanager
def temporary_folder(path: str | os.PathLike[str], size: int, force: bool) -> Iterator[str]:
    """Yield the name of a temporary folder; on success rename it to `path`, otherwise remove it."""
    user_path = os.fsdecode(path).rstrip(os.sep)
    with atomic.naming(user_path):
        path = os.path.realpath(user_path)
        temporary = atomic.name_beside(path)
        _check_target(path, force)
        atomic.check_space(path, size)
        try:
            yield temporary
            _sync(temporary)
            _publish(temporary, path, force)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)        # does nothing after the renaming
        atomic.sync_folder(os.path.dirname(path))


def _check_target(path: str, force: bool) -> None:
    if not os.path.lexists(path):
        return
    if not any(os.path.isfile(os.path.join(path, mark)) for mark in MARKS):
        raise OSError(errno.EINVAL, "Not a Zarr store, so it is not overwritten", path)
    if not force:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def _sync(folder: str) -> None:
    """Sync all files of a folder, then their names: a name may otherwise be lost although the content is on the disk."""
    for parent, _, names in os.walk(folder):
        for name in names:
            with open(os.path.join(parent, name), "rb+") as file:
                os.fsync(file.fileno())
        atomic.sync_folder(parent)


def _publish(temporary: str, path: str, force: bool) -> None:
    """Rename the new folder; move an existing folder aside first, because no system call replaces a folder."""
    aside = f"{temporary}.old"
    try:
        if force:
            with suppress(FileNotFoundError):
                os.rename(path, aside)
        os.rename(temporary, path)      # overwrites nothing that was created meanwhile, except an empty folder
    except BaseException as error:      # including KeyboardInterrupt between the two steps
        if not os.path.lexists(path) and os.path.lexists(aside):
            os.rename(aside, path)
        if isinstance(error, OSError):
            _check_target(path, force)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


# ---- chunks ---------------------------------------------------------------------------------------------------------


def missing(array: zarr.Array[Any]) -> str | None:
    """Return a message with the number of missing chunks and the first of them, or None if the store is complete.

    If the array has shards, these are counted.  The function lists keys and reads no values; its time and memory depend only on
    the number of existing chunks, not on the number in the metadata.
    """
    grid = tuple(-(-n // max(1, most)) for n, most in zip(array.shape, array.shards or array.chunks, strict=True))
    key_of, prefix = array.metadata.encode_chunk_key, f"{array.path}/" if array.path else ""
    present = set()
    for key in collect_aiterator(array.store.list_prefix(prefix)):
        key = key.removeprefix(prefix)
        index = tuple(map(int, re.findall("[0-9]+", key)))
        if len(index) == len(grid) and all(map(operator.lt, index, grid)) and key_of(index) == key:
            present.add(index)
    total = math.prod(grid)
    if len(present) == total:
        return None
    first = itertools.islice((key_of(index) for index in _indices(grid) if index not in present), 3)
    return f"{total - len(present)} of {total} chunks are missing, the first of them {', '.join(first)}"


def _indices(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of a grid in C order; unlike np.ndindex, even if their number exceeds 64 bits."""
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
        self.dtype = table.dtype_name(array.dtype)
        if not array.dtype.isnative:
            raise ValueError(f"dtype {array.dtype}, expected the byte order of this system")
        self._before = (0,) if array.ndim == 3 and array.shape[0] == 1 else ()      # index of the axis before the positions
        self._chunk_rows = array.chunks[len(self._before)]
        if not self._chunk_rows:
            raise ValueError(f"chunks {array.chunks}, expected at least one row in each")
        self.described = described(document, self.shape)
        self.row_bytes = self.shape[1] * table.itemsize(self.dtype)
        self.values, self._path = array, path
        self._chunks = range(0)
        self._rows: NDArray[Any] = np.empty(0)

    def read(self, first: int, rows: int) -> NDArray[Any]:
        """Return the bits of consecutive rows as unsigned integers; keep the chunks that hold them for the next call."""
        most = self._chunk_rows
        chunks = range(first // most, -(-(first + rows) // most))
        if chunks != self._chunks:
            self._chunks, self._rows = range(0), np.empty(0)        # free the memory of the previous chunks first
            try:
                values = np.asarray(self.values[(*self._before, slice(chunks.start * most, chunks.stop * most))])
            except Exception as error:      # each codec raises different errors for a damaged chunk
                raise OSError(errno.EIO, f"{type(error).__name__}: {str(error)[:200]}", self._path) from error
            values = values.reshape(len(values), self.shape[1])
            self._chunks, self._rows = chunks, values.view(f"u{values.itemsize}")
        begin = first - chunks.start * most
        return self._rows[begin : begin + rows]


@contextmanager
def opened(path: str | os.PathLike[str]) -> Iterator[Table]:
    """Open a Zarr array as a table.

    Raises
    ------
    ValueError
        If the folder is not a Zarr array, the array is not a table, or a chunk is missing.
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
        opened_table = Table(array, document, os.fspath(path))
        if message := missing(array):
            raise ValueError(message)
    yield opened_table
