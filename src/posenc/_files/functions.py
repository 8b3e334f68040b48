"""The functions save, open and verify, for tables in files of any format."""

import builtins
import itertools
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from posenc._arguments import checks
from posenc._arguments.arrays import AnyDType, values_of
from posenc._encoding.encoding import Encoding, check_encoding, rows_of_chunk, without_durations
from posenc._files import atomic, table
from posenc._files.table import Table, read_npy_header, read_safetensors_header

Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class File(NamedTuple):  # numpydoc ignore=PR01
    """A table in a file: its values and its specification.

    Attributes
    ----------
    values : ndarray or zarr.Array, shape (n, d_model)
        The values.  For .npy and .safetensors files, a read-only ndarray that maps the file, so that only the
        rows in use are read; bfloat16 needs ``ml_dtypes``.  For .zarr, an array of the zarr library, open for
        reading; it has the bits of bfloat16 values as uint16, and it keeps an axis of length 1.
    encoding : Encoding or None
        The encoding in the specification of the file, or None if the file has no specification, as in .npy
        format.
    positions : range or None
        The positions in the specification, or None.
    dtype : str
        The dtype of the values: ``"float32"``, ``"float64"``, ``"float16"`` or ``"bfloat16"``.

    See Also
    --------
    open : Return the table in a file.

    Examples
    --------
    >>> import posenc
    >>> size = posenc.save("pe.safetensors", range(100, 200), posenc.Encoding(8), dtype="float64")
    >>> file = posenc.open("pe.safetensors")
    >>> file.values.shape, file.encoding, file.positions, file.dtype
    ((100, 8), Encoding(8), range(100, 200), 'float64')
    >>> bool((file.values == file.encoding.encode(file.positions, dtype=file.dtype)).all())
    True
    """

    values: Any
    encoding: Encoding | None
    positions: range | None
    dtype: str


def save(
    path: Path, positions: SupportsIndex | range, encoding: Encoding, *, dtype: AnyDType = "float32",
    overwrite: bool = False, key: str | None = None, chunk_rows: SupportsIndex | None = None,
    shard_rows: SupportsIndex | None = None, threads: SupportsIndex | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write encodings to a file in constant memory; .npy and .safetensors files are written atomically.

    Parameters
    ----------
    path : path_like
        The file to write.  Its suffix selects the format: .npy, .safetensors, or .zarr (a folder), which
        needs ``zarr``.
    positions : int or range
        The positions of the rows; an integer n means ``range(n)``.
    encoding : Encoding
        The convention and the number of columns.  A .safetensors or .zarr file stores the encoding, positions
        and dtype.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the values.  .npy and .zarr files store the bits of bfloat16 as uint16.
    overwrite : bool, optional
        Whether to replace an existing file once the new one is complete, unless it is read-only.  A folder is
        deleted first, and only if it contains a Zarr array and nothing else.
    key : str, optional
        The name of the tensor in a .safetensors file, by default ``"pe"``.
    chunk_rows : int, optional
        The number of rows in a chunk of a .zarr file, the smallest part that readers read; by default as many
        as fit in 16 MiB.
    shard_rows : int, optional
        The number of rows in a shard of a .zarr file, a multiple of `chunk_rows`: one file that holds several
        chunks.  By default, each chunk is a file.
    threads : int, optional
        As in `encode`.
    progress : callable, optional
        Called with the number of bytes of values written since its last call.

    Returns
    -------
    int
        The size of the file, or of the values in a .zarr file, in bytes.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.
    FileExistsError
        If the file exists and `overwrite` is false.
    OSError
        If the system reports an error, such as a full disk; the ``filename`` of the exception is `path`.
    ImportError
        If the package that the format needs is not installed.

    See Also
    --------
    open : Read the file.
    verify : Recompute the file and compare every bit.
    posenc.dask.table : A lazy Dask array, whose method ``to_zarr`` writes from many processes.

    Notes
    -----
    A temporary file in the same folder is flushed to the disk, then renamed, so a file under the final name
    is complete.  Any exception removes the temporary file.  A .zarr array is written in place, and its
    specification last: an array without specification may be incomplete, and can be written again.

    Examples
    --------
    >>> import posenc
    >>> posenc.save("pe.npy", 1000, posenc.Encoding(64))
    256128
    >>> encoding = posenc.preset("whisper", 64)
    >>> posenc.save("pe.npy", range(5000, 6000), encoding, dtype="float16", overwrite=True)
    128128
    """
    name = table.name_of(path)
    suffix = table.format_of(name, key=key, chunk_rows=chunk_rows, shard_rows=shard_rows)
    if table.suffix_of(name) != suffix:
        raise ValueError(f"path is {path!r}, expected a suffix {', '.join(table.SUFFIX_OPTIONS)}")
    specification = table.checked_specification(positions, encoding, dtype)
    threads, overwrite = checks.threads(threads), checks.boolean("overwrite", overwrite)
    progress = table.callback(progress)
    if suffix == ".zarr":
        from posenc._files import zarr_store

        chunks = zarr_store.chunks_of(specification, chunk_rows, shard_rows)
        return zarr_store.write(name, specification, chunks, threads, overwrite, progress)
    header = table.npy_header(specification) if suffix == ".npy" else table.safetensors_header(specification, key)
    content: Iterable[Any] = itertools.chain([header], table.rows_to_write(specification, threads, progress))
    return atomic.write(name, content, len(header) + specification.nbytes, overwrite)


def open(path: Path, *, key: str | None = None) -> File:  # noqa: A001
    """Open the table in a file, without reading its values.

    Parameters
    ----------
    path : path_like
        A .npy, .safetensors or .zarr file, from posenc or another program.  Its table has shape (n, d_model),
        (1, n, d_model) or (n, 1, d_model), and dtype float32, float64, float16, bfloat16 or uint16 (the bits
        of bfloat16).
    key : str, optional
        The name of the tensor in a .safetensors file, by default the only one, or ``"pe"`` if there are
        several.

    Returns
    -------
    File
        The attributes ``values``, ``encoding``, ``positions`` and ``dtype``.  The file is closed when
        ``values`` is deleted.

    Raises
    ------
    TypeError
        If an argument has a wrong type.
    ValueError
        If the file is not a complete table: its size does not match its header, tensors overlap, or the
        specification is not valid.
    OSError
        If the file cannot be read.
    ImportError
        If a package that the format or the dtype needs is not installed.

    See Also
    --------
    save : Write a file.
    verify : Recompute the file and compare every bit.

    Notes
    -----
    `open` does not check the values; `verify` does.  A chunk that was deleted from a .zarr file of posenc is
    read as NaN.  If another program truncates a file that is mapped, the system ends a process that reads the
    lost part.  `save` replaces files instead of changing them, so existing mappings stay intact.

    Examples
    --------
    >>> import posenc
    >>> size = posenc.save("whisper.safetensors", 1500, posenc.preset("whisper", 64))
    >>> file = posenc.open("whisper.safetensors")
    >>> file.values.shape, file.positions, file.dtype
    ((1500, 64), range(0, 1500), 'float32')
    >>> file.encoding == posenc.preset("whisper", 64)
    True
    """
    with opened_table(table.name_of(path), key=key) as source:
        positions, encoding, _ = source.specification or (None, None, None)
        return File(source.values(), encoding, positions, source.dtype)


@contextmanager
def opened_table(path: str, *, key: str | None = None) -> Iterator[Table]:
    """Open a file of any format as a table.

    The message of a ValueError about the file's content begins with the path.
    """
    suffix = table.format_of(path, key=key)
    with atomic.naming(path), table.explaining(path):
        if suffix == ".zarr":
            from posenc._files import zarr_store

            yield zarr_store.table_in(path)
        else:
            if not stat.S_ISREG(os.stat(path).st_mode):         # to open a named pipe would wait for a writer
                raise ValueError("not a regular file")
            with builtins.open(path, "rb") as file:
                yield read_npy_header(file) if suffix == ".npy" else read_safetensors_header(file, key)


def verify(
    path: Path, positions: SupportsIndex | range | None = None, encoding: Encoding | None = None, *,
    key: str | None = None, samples: SupportsIndex | None = None, threads: SupportsIndex | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Recompute a file and compare every bit.

    Parameters
    ----------
    path : path_like
        A file that `open` accepts.
    positions : int or range, optional
        The expected positions of all rows; by default those in the specification of the file, else
        ``range(n)``.
    encoding : Encoding, optional
        The expected encoding; by default the one in the specification of the file or, for a file without
        specification, ``Encoding(d_model)``.
    key : str, optional
        As in `open`.
    samples : int, optional
        The number of rows to compare, spread over the file, for a table of terabytes; by default, every row.
    threads : int, optional
        As in `encode`.
    progress : callable, optional
        Called with the number of bytes compared since its last call.

    Returns
    -------
    int
        The number of rows that were compared; all their bits are as expected.

    Raises
    ------
    ValueError
        If a value differs, the file is not a complete table, or an argument has a wrong value.  For the first
        value that differs, the message states the position, the column, the value and the expected value,
        with their bits.
    TypeError
        If an argument has a wrong type.
    OSError
        If the file cannot be read, or a chunk of a .zarr store is damaged.
    ImportError
        If the package that the format needs is not installed.

    See Also
    --------
    save : Write a file.
    open : Return the values, the encoding and the positions.
    posenc.check.identify : Find the convention of a table without a specification.

    Notes
    -----
    Even with `samples`, the size of a .npy or .safetensors file must match its header.  Other damage is found
    only if a damaged row is compared.

    Examples
    --------
    >>> import posenc
    >>> size = posenc.save("half.npy", 5000, posenc.Encoding(64, base=9999), dtype="float16")
    >>> posenc.verify("half.npy", encoding=posenc.Encoding(64, base=9999))
    5000
    >>> posenc.verify("half.npy")
    Traceback (most recent call last):
    ...
    ValueError: half.npy: position 1, column 10: found 0.235 (0x3385), expected 0.2349 (0x3384) with Encoding(64)
    """
    name = table.name_of(path)
    check_encoding(encoding)
    positions = None if positions is None else checks.range_of(positions)
    samples = None if samples is None else checks.integer("samples", samples, 1, "an integer or None")
    threads, progress = checks.threads(threads), table.callback(progress)
    with opened_table(name, key=key) as source:
        rows, d_model = source.shape
        positions_in_file, encoding_in_file, _ = source.specification or (range(rows), None, None)
        positions = positions_in_file if positions is None else positions
        checks.check_length("positions", positions, rows, ", the number of rows")
        encoding = encoding or encoding_in_file or Encoding(d_model)
        if encoding.d_model != d_model:
            raise ValueError(f"encoding has d_model {encoding.d_model}, expected {d_model}")
        checks.range_of(positions, without_durations(encoding, "a file").position_offset)
        dtype, chunk = source.dtype, source.chunk_rows
        block_rows = max(1, rows_of_chunk(d_model, table.itemsize(dtype)) // chunk) * chunk
        compared_rows: Iterable[int] = range(0, rows, block_rows)
        if samples is not None and samples < rows:          # the last row of each of as many parts
            compared_rows, block_rows = ((k + 1) * rows // samples - 1 for k in range(samples)), 1
        buffer = table.row_buffer(min(rows, block_rows), d_model, dtype)
        for first in compared_rows if buffer.size else ():
            part = positions[first : first + block_rows]
            found = source.read(first, len(part))
            bits = encoding.encode(part, dtype=dtype, out=buffer[: len(part)], threads=threads).view(found.dtype)
            if not np.array_equal(found, bits):
                row, column = np.argwhere(found != bits)[0].tolist()
                x, y = (f"{values_of(x[row, column], dtype)!s} ({x[row, column]:#x})" for x in (found, bits))
                at = f"position {part[row]}, column {column}"
                raise ValueError(f"{at}: found {x}, expected {y} with {encoding!r}")
            progress(found.nbytes)
            del found                       # before the next block is read
        return rows if samples is None else min(rows, samples)
