"""save, open and verify: tables in files of any format."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from types import NoneType
from typing import Any, NamedTuple, SupportsIndex, TypeAlias

import numpy as np

from posenc import _arguments
from posenc._encoding import Encoding
from posenc._files import formats
from posenc._types import AnyDType

Path: TypeAlias = str | bytes | os.PathLike[str] | os.PathLike[bytes]


class File(NamedTuple):  # numpydoc ignore=PR01
    """A table in a file: its values, and what the file says about them.

    Attributes
    ----------
    values : ndarray or zarr.Array, shape (n, d_model)
        The values.  For .npy and .safetensors files, a read-only ndarray that is a mapping of the file, so that only the rows
        in use are read; bfloat16 needs ``ml_dtypes``, without which the values are the bits in uint16.  For .zarr, the
        array of the zarr library, open for reading, with bfloat16 as uint16.
    encoding : Encoding or None
        The encoding in the specification of the file, or None if the file has no specification, as every .npy file.
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
    >>> size = posenc.save("late.safetensors", range(100, 200), posenc.Encoding(8), dtype="float64")
    >>> file = posenc.open("late.safetensors")
    >>> bool((file.values == file.encoding.encode(file.positions, dtype=file.dtype)).all())
    True
    """

    values: Any
    encoding: Encoding | None
    positions: range | None
    dtype: str


def save(
    path: Path,
    positions: SupportsIndex | range,
    encoding: Encoding,
    *,
    dtype: AnyDType = "float32",
    overwrite: bool = False,
    key: str | None = None,
    chunk_rows: SupportsIndex | None = None,
    threads: SupportsIndex | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Write encodings to a file, atomically and in constant memory.

    Parameters
    ----------
    path : path_like
        The file to write.  Its suffix selects the format: .npy, .safetensors, or .zarr (a folder, which needs ``zarr``).
    positions : int or range
        The positions of the rows; an integer n means ``range(n)``.
    encoding : Encoding
        The convention and the number of columns.  A .safetensors or .zarr file stores it, with the positions and the dtype.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the values.  .npy and .zarr files store the bits of bfloat16 as uint16.
    overwrite : bool, optional
        Whether to replace an existing file, when the new one is complete; a folder is replaced only if it is a Zarr store.
    key : str, optional
        The name of the tensor in a .safetensors file, by default ``"pe"``.
    chunk_rows : int, optional
        The number of rows in a .zarr chunk, by default as many as fit in 32 MiB.
    threads : int, optional
        As in `encode`.
    progress : callable, optional
        Called with the number of bytes written since its last call.

    Returns
    -------
    int
        The size of the file, or of all chunks of a .zarr folder, in bytes.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.
    FileExistsError
        If the file exists and `overwrite` is false.
    OSError
        If the system reports an error, such as a full disk; its ``filename`` is `path`.
    ImportError
        If the package that the format needs is not installed.

    See Also
    --------
    open : Read the file.
    verify : Recompute the file and compare every bit.
    posenc.dask.to_zarr : Write a .zarr folder from many processes.

    Notes
    -----
    A temporary file in the same folder is flushed to the disk, then renamed, so under its name a file is complete or absent.
    Any exception removes the temporary file.  docs/cli.md compares the formats.

    Examples
    --------
    >>> import posenc
    >>> posenc.save("pe.npy", 1000, posenc.Encoding(64))
    256128
    >>> posenc.save("pe.npy", range(5000, 6000), posenc.preset("whisper", 64), dtype="float16", overwrite=True)
    128128
    """
    name = _name_of(path)
    if formats.suffix_of(name) not in formats.FORMATS:
        raise ValueError(f"path is {path!r}, expected a name that ends in {', '.join(formats.FORMATS)}")
    positions = _arguments.range_of(positions)
    _instance("encoding", encoding, Encoding, "a posenc.Encoding")
    _instance("overwrite", overwrite, (bool, np.bool_), "a bool")
    chunk_rows = _arguments.optional("chunk_rows", chunk_rows, _at_least_one)
    keywords = formats.checked_options(name, key=_name_of_tensor(key), chunk_rows=chunk_rows)
    keywords |= {"threads": _arguments.threads(threads), "progress": _function(progress), "force": bool(overwrite)}
    try:
        size: int = formats.module_of(name).write(name, encoding, positions, dtype, **keywords)
    except FileExistsError as error:
        raise FileExistsError(error.errno, f"{error.strerror}; overwrite=True replaces it", error.filename) from None
    return size


def open(path: Path, *, key: str | None = None) -> File:  # noqa: A001
    """Open the table in a file, without reading its values.

    Parameters
    ----------
    path : path_like
        A .npy, .safetensors or .zarr file, written by posenc or not, with a table of float32, float64, float16, bfloat16 or
        uint16 (the bits of bfloat16), of shape (n, d_model), (1, n, d_model) or (n, 1, d_model).
    key : str, optional
        The name of the tensor in a .safetensors file, by default the only one, or ``"pe"`` if there are several.

    Returns
    -------
    File
        The attributes ``values``, ``encoding``, ``positions`` and ``dtype``.  The file is closed when ``values`` is deleted.

    Raises
    ------
    TypeError
        If an argument has a wrong type.
    ValueError
        If the file is not a complete table: if its size differs from its header, tensors overlap, a chunk is missing, or
        the specification is not valid.
    OSError
        If the file cannot be read.
    ImportError
        If the package that the format needs is not installed.

    See Also
    --------
    save : Write a file.
    verify : Recompute the file and compare every bit.

    Notes
    -----
    The values are those in the file: `verify` checks them.  If another program truncates a file that is mapped, the system
    ends a process that reads the lost part; `save` replaces a file, which leaves existing mappings intact.

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
    with formats.opened(_name_of(path), key=_name_of_tensor(key)) as table:
        encoding, positions = table.described or (None, None)
        return File(table.values, encoding, positions, table.dtype)


def verify(
    path: Path,
    *,
    encoding: Encoding | None = None,
    positions: SupportsIndex | range | None = None,
    key: str | None = None,
    samples: SupportsIndex | None = 1000,
    threads: SupportsIndex | None = None,
    progress: Callable[[int], object] | None = None,
) -> int:
    """Recompute rows of a file and compare every bit.

    Parameters
    ----------
    path : path_like
        A file that `open` accepts.
    encoding : Encoding, optional
        The expected encoding; by default the one in the specification of the file, else ``Encoding(d_model)``.
    positions : int or range, optional
        The expected positions of all rows; by default those in the specification of the file, else ``range(n)``.
    key : str, optional
        As in `open`.
    samples : int or None, optional
        The number of rows to compare, spread over the file; None means every row.
    threads : int, optional
        As in `encode`.
    progress : callable, optional
        Called with the number of bytes compared since its last call.

    Returns
    -------
    int
        The number of rows that were compared: every bit of them is equal.

    Raises
    ------
    ValueError
        At the first value that differs, with its position and column, the value found and the value expected, and the bits of
        both; or if `open` raises it, because the file is not a complete table; or if an argument has a wrong value.
    TypeError
        If an argument has a wrong type.
    OSError
        If the file cannot be read, or a chunk of a .zarr is damaged.
    ImportError
        If the package that the format needs is not installed.

    See Also
    --------
    save : Write a file.
    open : Return the values, the encoding and the positions.
    identify : Find the convention of a table without a specification.

    Notes
    -----
    Whichever rows are compared, the size of the file must match its header, and every chunk of a .zarr must exist.  A truncated
    or otherwise damaged chunk is found if one of its rows is compared.

    Examples
    --------
    >>> import posenc
    >>> size = posenc.save("table.npy", 5000, posenc.Encoding(64))
    >>> posenc.verify("table.npy")
    1000
    >>> posenc.verify("table.npy", encoding=posenc.Encoding(64, base=10_001), samples=None)
    Traceback (most recent call last):
    ...
    ValueError: table.npy: position 1, column 2: found 0.68156135 (0x3f2e7ace), expected 0.6815596 (0x3f2e7ab1)
    """
    from posenc._files.compare import first_mismatch

    name = _name_of(path)
    _instance("encoding", encoding, (Encoding, NoneType), "a posenc.Encoding")
    positions = None if positions is None else _arguments.range_of(positions)
    most: int | None = _arguments.optional("samples", samples, _at_least_one)
    threads, progress = _arguments.threads(threads), _function(progress)
    with formats.opened(name, key=_name_of_tensor(key)) as table:
        rows, d_model = table.shape
        stored, at = table.described or (None, range(rows))
        if positions is not None and _arguments.length(at := positions) != rows:
            raise ValueError(f"positions has length {len(positions)}, expected {rows}, the number of rows of {name}")
        encoding = encoding or stored or Encoding(d_model)
        if encoding.d_model != d_model:
            raise ValueError(f"encoding has d_model {encoding.d_model}, expected {d_model}, the number of columns of {name}")
        count = rows if most is None else min(rows, most)
        mismatch = first_mismatch(table, encoding, at, count, threads, progress)
    if mismatch is not None:
        raise ValueError(f"{name}: {mismatch}")
    return count


# ---- arguments ------------------------------------------------------------------------------------------------------

_at_least_one = functools.partial(_arguments.integer, lowest=1)


def _instance(name: str, value: Any, kinds: type | tuple[type, ...], expected: str) -> Any:
    if not isinstance(value, kinds):
        raise _arguments.wrong_type(name, value, expected)
    return value


def _name_of(path: Any) -> str:
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"path is of type {type(path).__name__}, expected a path")
    return os.fsdecode(path)


def _name_of_tensor(key: Any) -> Any:
    return _instance("key", key, (str, NoneType), "a str")


def _function(progress: Any) -> Callable[[int], object]:
    if progress is None:
        return lambda size: None
    if not callable(progress):
        raise _arguments.wrong_type("progress", progress, "a function")
    function: Callable[[int], object] = progress
    return function
