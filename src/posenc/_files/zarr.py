"""Tables in Zarr format 3, with a key for each chunk of rows, or for each shard of several chunks.

Values are written atomically, so the value of every existing key is complete.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import operator
import os
import re
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.storage import MemoryStore, StorePath

from posenc._arguments.types import AnyDType
from posenc._encoding.encoding import Encoding
from posenc._files import atomic, table
from posenc._files.specification import described, specification
from posenc._files.stores import METADATA, Folder, Job, Remote, keys, new_id, place_of, sizes

# A table of terabytes has few files of this size, and a chunk of this size is small relative to a reader's memory.
CHUNK_BYTES = 32 << 20
# NaN (for bfloat16, its bits) shows that a chunk is missing, because the table of a range never contains NaN.
_FILL = dict.fromkeys(table.STORED, np.nan) | {"bfloat16": 0x7FC0}
# errors that zarr raises for invalid metadata, and the warning (since 3.4) for metadata that zarr repairs
DAMAGED = (
    AttributeError, KeyError, RecursionError, TypeError, ValueError, FileNotFoundError, zarr.errors.BaseZarrError, UserWarning
)


# ---- unfinished arrays ----------------------------------------------------------------------------------------------


def _metadata(encoding: Encoding, positions: range, dtype: str, chunk_rows: int, shard_rows: int | None) -> dict[str, Any]:
    """Return the content of zarr.json; the array is not compressed, because sines compress too little to be worth the time."""
    columns = max(1, encoding.d_model)
    memory: dict[str, Any] = {}
    zarr.create_array(
        MemoryStore(memory),
        shape=(len(positions), encoding.d_model),
        chunks=(chunk_rows, columns),
        shards=None if shard_rows is None else (shard_rows, columns),
        dtype=table.STORED[dtype],
        compressors=None,
        fill_value=_FILL[dtype],
        dimension_names=("position", "column"),
        attributes={"posenc": specification(encoding, positions, dtype)},
    )
    metadata: dict[str, Any] = json.loads(memory[METADATA].to_bytes())
    return metadata


class Work:
    """The table of an unfinished array, divided into units.  The units are shards if the array has shards, else chunks."""

    def __init__(self, metadata: dict[str, Any], root: StorePath) -> None:
        self.array = zarr.Array.from_dict(root, metadata)
        document: Any = self.array.attrs["posenc"]
        self.encoding, self.positions = described(document, self.array.shape) or (Encoding(0), range(0))
        self.dtype: str = document["dtype"]
        self.chunk_rows: int = self.array.chunks[0]
        self.shard_rows: int | None = self.array.shards[0] if self.array.shards else None
        self._rows = self.shard_rows or self.chunk_rows
        self.units = -(-len(self.positions) // self._rows) if self.encoding.d_model else 0
        self._memory: dict[str, Any] = {}
        # with this option, zarr does not compare the values with the fill value
        one: Any = self.array.metadata, StorePath(MemoryStore(self._memory)), {"write_empty_chunks": True}
        self._one = zarr.Array(zarr.AsyncArray(*one))

    def difference(self, other: Work) -> str | None:
        """Return a message that states the first argument in which the tables differ, or None."""
        for name in ("dtype", "encoding", "positions", "chunk_rows", "shard_rows"):
            value, expected = getattr(self, name), getattr(other, name)
            if value != expected:
                return f"{name} is {value}, but the array was started with {expected}"
        return None

    def key(self, unit: int) -> str:
        return str(self.array.metadata.encode_chunk_key((unit, 0)))

    def positions_of(self, unit: int) -> range:
        return self.positions[unit * self._rows : (unit + 1) * self._rows]

    def size(self, unit: int) -> int:
        """Return the size of a unit in bytes.  A chunk is padded; a shard has an index, and only the chunks with rows."""
        chunk = table.table_bytes(self.chunk_rows, self.encoding.d_model, self.dtype)
        if self.shard_rows is None:
            return chunk
        return -(-len(self.positions_of(unit)) // self.chunk_rows) * chunk + self.shard_rows // self.chunk_rows * 16 + 4

    @property
    def nbytes(self) -> int:
        return self.units and (self.units - 1) * self.size(0) + self.size(self.units - 1)

    def exists(self, unit: int) -> bool:
        return sizes(self.array.store_path, [self.key(unit)]) == [self.size(unit)]

    def missing(self) -> list[int]:
        """Return the units that do not exist or have a wrong size."""
        units = [unit for unit, _ in present_in(self.array)]
        found = dict(zip(units, sizes(self.array.store_path, map(self.key, units)), strict=True))
        return [unit for unit in range(self.units) if found.get(unit) != self.size(unit)]

    def encoded(self, unit: int, threads: int | None) -> memoryview:
        """Return the bytes of a unit, valid until the next call."""
        positions = self.positions_of(unit)
        first = unit * self._rows
        out = self._buffer[: len(positions)]
        self._one[first : first + len(out)] = self.encoding.encode(positions, dtype=self.dtype, out=out, threads=threads)
        return memoryview(self._memory.pop(self.key(unit)).as_buffer_like()).cast("B")

    @cached_property
    def _buffer(self) -> NDArray[Any]:
        shape = min(len(self.positions), self._rows), self.encoding.d_model
        return np.empty(shape, np.dtype(table.STORED[self.dtype]).newbyteorder("="))


# ---- writing --------------------------------------------------------------------------------------------------------


def create(
    place: Folder | Remote, encoding: Encoding, positions: range, dtype: AnyDType = "float32", chunk_rows: int | None = None,
    shard_rows: int | None = None, overwrite: bool = False,
) -> Work:
    """Start an array, or continue one that was started with the same arguments."""
    name, rows = table.checked(positions, dtype)
    table.refuse_outside(encoding, positions, None)
    if chunk_rows is None:
        most = max(1, CHUNK_BYTES // max(1, encoding.d_model * table.itemsize(name)))
        chunk_rows = -(-rows // max(1, -(-rows // most)))       # nearly equal chunks, so that the last one needs little padding
    if shard_rows is None:
        chunk_rows = max(1, min(chunk_rows, rows))
    metadata = _metadata(encoding, positions, name, chunk_rows, shard_rows)
    wanted = Work(metadata, place.published)
    with atomic.naming(place.name):
        place.check_target(overwrite)
        seen, job = place.mark(), place.job()
        if job is None or overwrite and (not job or wanted.difference(_work(place, job))):
            place.check_space(wanted.nbytes)
            place.start({"id": new_id(), "overwrite": overwrite, "metadata": metadata}, seen)
            job = place.job()           # the job of another process, if that process was faster
        elif overwrite and not job["overwrite"]:
            place.set_mark({**job, "overwrite": True})
    difference = wanted.difference(_work(place, job)) if job else "a call that overwrites it was interrupted"
    if difference:
        raise ValueError(f"{place.name} is unfinished: {difference}; overwrite it to start again")
    return wanted


def _work(place: Folder | Remote, job: Job) -> Work:
    return Work(job["metadata"], place.working(job))


def _job(place: Folder | Remote) -> Job | None:
    """Return the unfinished job, or None if the store is published."""
    job = place.job()
    if not job and not place.is_published():
        message = "No unfinished store is visible: create it first, and check that all workers share the store"
        raise FileNotFoundError(errno.ENOENT, message, place.name)
    return job or None


def write_part(
    place: Folder | Remote, part: int, parts: int, threads: int | None = None,
    progress: Callable[[int], object] = lambda written: None,
) -> int:
    """Write the missing chunks (or shards) of a part; return their number."""
    with atomic.naming(place.name):
        job = _job(place)
        if job is None:
            return 0
        work = _work(place, job)
        written = 0
        for unit in range(part * work.units // parts, (part + 1) * work.units // parts):
            if not work.exists(unit):
                place.put(job, work.key(unit), work.encoded(unit, threads))
                written += 1
            progress(table.table_bytes(len(work.positions_of(unit)), work.encoding.d_model, work.dtype))
        return written


def unwritten(place: Folder | Remote) -> list[int]:
    """Return the chunks (or shards) that do not exist or have a wrong size."""
    with atomic.naming(place.name):
        job = _job(place)
        if job is not None:
            return _work(place, job).missing()
        array = zarr.open_array(place.published, mode="r")
        return Work(array.metadata.to_dict(), place.published).missing()


def finish(place: Folder | Remote) -> zarr.Array[Any]:
    """Publish an array whose chunks all exist, and open it."""
    with atomic.naming(place.name):
        while job := _job(place):
            work = _work(place, job)
            if not (units := work.missing()):
                if place.publish(job):
                    break
            elif place.job() == job:        # otherwise, another process has finished or discarded the job meanwhile
                kind, first = "shards" if work.shard_rows else "chunks", ", ".join(map(work.key, units[:3]))
                message = f"{len(units)} of {work.units} {kind} are missing or incomplete, the first of them {first}"
                raise OSError(errno.EIO, f"{message}; write them, and check that all workers share the store", place.name)
        place.discard(job)      # even without a job, because a process may have been killed between `publish` and `discard`
    return zarr.open_array(place.published, mode="r")


def write(
    path: str | os.PathLike[str], encoding: Encoding, positions: range, dtype: AnyDType = "float32", *,
    chunk_rows: int | None = None, overwrite: bool = False, storage_options: dict[str, Any] | None = None, **keywords: Any,
) -> int:
    """Write the encodings of a range to a Zarr array at a URL or, atomically, in a folder; return the size of its chunks.

    By default, a chunk has at most CHUNK_BYTES, or one row if a row is larger.
    """
    place = place_of(path, storage_options, private=True)
    try:
        size = create(place, encoding, positions, dtype, chunk_rows, overwrite=overwrite).nbytes
        write_part(place, 0, 1, **keywords)
        finish(place)
    finally:
        if isinstance(place, Folder):
            place.discard(None)
            if job := place.mark():
                place.remove(job)
    return size


# ---- chunks ---------------------------------------------------------------------------------------------------------


def missing(array: zarr.Array[Any], present: set[tuple[int, ...]]) -> str | None:
    """Return a message with the number of missing chunks and their first three keys, or None if the store is complete.

    If the array has shards, shards are counted instead of chunks.  Time and memory depend on the number of existing chunks,
    `present`, and not on the number of chunks in the metadata.
    """
    grid = _grid(array)
    total = math.prod(grid)
    if len(present) == total:
        return None
    first = itertools.islice((array.metadata.encode_chunk_key(index) for index in _indices(grid) if index not in present), 3)
    unit = "shards" if array.shards else "chunks"
    return f"{total - len(present)} of {total} {unit} are missing, the first of them {', '.join(first)}"


def truncated(array: zarr.Array[Any], present: set[tuple[int, ...]]) -> str | None:
    """Return a message that names the first chunk of a wrong size, or None; only the sizes of uncompressed chunks are known."""
    root = getattr(array.store, "root", None)           # the path of a local store; other stores write each object as a whole
    if root is None or array.shards or array.compressors or array.filters:
        return None
    expected = math.prod(array.chunks) * array.dtype.itemsize
    for index in sorted(present):
        key = array.metadata.encode_chunk_key(index)
        found = os.path.getsize(os.path.join(root, array.path, key))
        if found != expected:
            return f"chunk {key} has {found} bytes, expected {expected}"
    return None


def _grid(array: zarr.Array[Any]) -> tuple[int, ...]:
    return tuple(-(-n // max(1, most)) for n, most in zip(array.shape, array.shards or array.chunks, strict=True))


def present_in(array: zarr.Array[Any]) -> set[tuple[int, ...]]:
    """Return the indices of the chunks (or shards) that exist; list the keys, but read no values."""
    grid, present = _grid(array), set()
    for key in keys(array.store_path):
        index = tuple(map(int, re.findall("[0-9]+", key)))
        if len(index) == len(grid) and all(map(operator.lt, index, grid)) and array.metadata.encode_chunk_key(index) == key:
            present.add(index)
    return present


def _indices(grid: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Yield the indices of a grid in C order; unlike np.ndindex, this works even if their number exceeds 64 bits."""
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
        """Return the bits of consecutive rows as unsigned integers; cache the chunks that contain them."""
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
def opened(path: str | os.PathLike[str], *, storage_options: dict[str, Any] | None = None) -> Iterator[Table]:
    """Open a Zarr array in a folder or at a URL as a table; refuse an array with missing or truncated chunks."""
    with table.explaining(path):
        place = place_of(path, storage_options)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                array = zarr.open_array(place.published, mode="r")
            document = array.attrs.get("posenc")
        except DAMAGED as error:
            if place.job():
                raise ValueError("unfinished: write the missing chunks, then call posenc.zarr.finish") from error
            if isinstance(place, Folder) and not os.path.exists(path):
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path) from error
            raise ValueError(f"not a Zarr array: {str(error)[:200]}") from error
        opened_table = Table(array, document, os.fspath(path))
        present = present_in(array)
        if message := missing(array, present) or truncated(array, present):
            remedy = "; write the store again with overwrite=True" if opened_table.described else ""
            raise ValueError(f"{message}{remedy}")
    yield opened_table
