"""Tables in Zarr arrays of format 3, which the library zarr writes and reads.

The attribute "posenc" holds the specification of a table.  It is written after the values, so an array that
is written only in part has no specification.
"""

import errno
import os
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import arrays, checks
from posenc._files import atomic, table

with checks.importing_for("a .zarr file"):
    import zarr

# A table of terabytes has few files of this size, and a chunk of this size is small relative to a reader's
# memory.
ZARR_CHUNK_BYTES = 16 << 20

# ---- writing -----------------------------------------------------------------------------------------------


def chunks_of(specification: table.TableSpecification, chunk_rows: Any, shard_rows: Any) -> tuple[int, int | None]:
    """Return the number of rows in a chunk and in a shard.

    By default, chunks are nearly equal, and there are no shards.
    """
    rows = len(specification.positions)
    chunk = -(-rows // max(1, -(-specification.nbytes // ZARR_CHUNK_BYTES)))
    if chunk_rows is not None:
        chunk = checks.integer("chunk_rows", chunk_rows, 1)
    if shard_rows is None:
        return max(1, min(chunk, rows)), None
    shard = checks.integer("shard_rows", shard_rows, 1)
    if chunk_rows is None or shard % chunk:
        raise ValueError(f"shard_rows is {shard}, expected a multiple of chunk_rows, which is {chunk_rows}")
    return chunk, shard


def write(
    path: str, specification: table.TableSpecification, chunks: tuple[int, int | None], threads: int | None,
    overwrite: bool, progress: Callable[[int], object],
) -> int:
    """Write an array in place, its specification last; return the size of its values."""
    columns, dtype, (chunk, shard) = max(1, specification.encoding.d_model), specification.dtype, chunks
    with atomic.naming(path), table.explaining(path):
        target = os.path.realpath(path)
        check_folder(target, overwrite)
        os.stat(os.path.dirname(target))        # zarr would create the folder
        array = zarr.create_array(
            target, shape=specification.shape, dtype=arrays.DTYPES[dtype].stored, chunks=(chunk, columns),
            shards=None if shard is None else (shard, columns), dimension_names=("position", "column"),
            compressors=None,                   # sines compress too little to be worth the time
            fill_value=0x7FC0 if dtype == "bfloat16" else np.nan,           # the table of a range has no NaN
            overwrite=overwrite,
        ).with_config({"write_empty_chunks": True})         # zarr need not compare values with the fill value
        first = 0
        for block in table.rows_to_write(specification, threads, progress, shard or chunk):
            array[first : first + len(block)] = block
            first += len(block)
        array.update_attributes({"posenc": specification.document()})
    return specification.nbytes


def check_folder(folder: str, overwrite: bool) -> None:
    """Raise an error for a path that must not be replaced: a folder must hold an array and nothing else."""
    if os.path.lexists(folder):
        open_array(folder)
        if not overwrite:
            raise atomic.exists_error(folder)
        if other_names := set(os.listdir(folder)) - {"zarr.json", "c"}:
            raise OSError(errno.EINVAL, f"Not only a Zarr array: the folder also has {min(other_names)}", folder)


# ---- reading -----------------------------------------------------------------------------------------------


def open_array(path: str) -> zarr.Array[Any]:
    """Open an array; raise a FileNotFoundError if there is none, and a ValueError for invalid metadata."""
    try:
        array = zarr.open_array(path, mode="r")
        array.attrs.get("posenc")
        return array
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "No Zarr array", path) from None
    # errors of zarr for invalid metadata
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
        raise ValueError(f"not a Zarr array: {str(error)[:200]}") from error


def table_in(path: str) -> table.Table:
    """Return the table in an array."""
    array = open_array(path)
    # index of the axis before the positions
    first_axis = (0,) if array.ndim == 3 and array.shape[0] == 1 else ()

    def read(first: int, rows: int) -> NDArray[Any]:
        try:
            values = np.asarray(array[(*first_axis, slice(first, first + rows))])
        except Exception as error:      # each codec raises different errors for a damaged chunk
            raise OSError(errno.EIO, f"{type(error).__name__}: {str(error)[:200]}", path) from error
        values = np.ascontiguousarray(values.reshape(rows, shape[1]), values.dtype.newbyteorder("="))
        return values.view(f"u{values.itemsize}")

    shape, dtype = table.table_shape(array.shape), table.dtype_name(array.dtype)
    specification = table.specification_in(array.attrs.get("posenc"), shape)
    chunk_rows = max(1, array.chunks[len(first_axis)])
    return table.Table(shape, dtype, specification, chunk_rows, read, lambda: array)
