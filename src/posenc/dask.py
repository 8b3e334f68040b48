"""Tables as lazy Dask arrays, addition to Dask arrays, and Zarr stores written by all workers of a cluster.

Each task uses one thread, because the scheduler runs one task per processor.  Tasks receive the keywords of a convention,
because `posenc.encode` and `posenc.add_to` cache the Encoding of these keywords.  An Encoding as an argument would be built
again in each task.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, SupportsFloat, SupportsIndex, Unpack

import numpy as np
from numpy.typing import NDArray

import posenc
from posenc._arguments import checks, install
from posenc._arguments.base_class import changes_of
from posenc._arguments.types import AnyDType, Convention, Positions
from posenc._encoding.cache import cached_encoding, encoding_for
from posenc._encoding.encoding import Encoding

try:
    import dask.array as da
    from dask.base import compute, tokenize
    from dask.delayed import delayed
except ModuleNotFoundError as error:
    raise install.not_installed("posenc.dask", "dask", error) from error

if TYPE_CHECKING:
    import zarr

__all__ = ["add_to", "table", "to_zarr"]

STRIP_BYTES = 4 << 20       # size of a temporary array with all columns, for a block of x that has only some of them


def _checked_positions(positions: Any, encoding: Encoding) -> range | NDArray[Any] | da.Array:
    """Check positions as `posenc.encode` does, except for the values of a Dask array; return a range or an array."""
    if isinstance(positions, da.Array):
        checks.positions_of(checks.numbers("positions", np.empty(0, positions.dtype)), 0)
        if np.isnan(positions.shape).any():
            raise ValueError(f"positions has shape {positions.shape}, expected known sizes; call compute_chunk_sizes() first")
        return positions
    positions = checks.range_or_array(positions)
    checks.positions_of(positions, encoding.position_offset)
    return positions


# ---- tables ---------------------------------------------------------------------------------------------------------


def table(
    positions: Positions | da.Array, d_model: SupportsIndex | Encoding, *, chunks: Any = "auto", dtype: AnyDType = "float32",
    **convention: Unpack[Convention],
) -> da.Array:
    """Return sinusoidal positional encodings as a lazy Dask array.

    Parameters
    ----------
    positions : int, range, array_like or dask.array.Array
        Positions of the rows, as in `posenc.encode`, of shape ``S``.  A column of a Dask dataframe is computed immediately.
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    chunks : int, tuple, str, optional
        Chunks of the positions, in any form that Dask accepts.  ``"auto"`` keeps the chunks of a Dask array; for
        other positions it uses Dask's setting ``array.chunk-size``.  The columns are always one chunk.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        Data type of the values; bfloat16 needs ``ml_dtypes``.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    dask.array.Array, shape ``S + (d_model,)``
        The encodings.  Equal arguments give arrays of the same name in every process.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value; values of a Dask array are checked when they are computed.

    See Also
    --------
    posenc.encode : Compute a NumPy array.
    to_zarr : Write a table to a Zarr store.

    Examples
    --------
    >>> import posenc, posenc.dask
    >>> pe = posenc.dask.table(1_000_000, 64, chunks=100_000)
    >>> pe.chunks[1], pe.numblocks, pe.dtype
    ((64,), (10, 1), dtype('float32'))
    >>> bool((pe[999_990:].compute() == posenc.encode(range(999_990, 1_000_000), 64)).all())
    True
    """
    encoding = cached_encoding(d_model, convention)
    meta = encoding.encode(0, dtype=dtype)
    rows = _checked_positions(positions, encoding)
    shape = (len(rows),) if isinstance(rows, range) else rows.shape
    if not isinstance(rows, da.Array) or chunks != "auto":
        # Dask computes chunk sizes from the size of an element; here, an element is a whole row
        row = np.dtype((np.void, max(1, encoding.d_model * meta.itemsize)))
        try:
            chunks = da.core.normalize_chunks(chunks, shape, dtype=row)
        except ZeroDivisionError:
            raise ValueError(f"chunks is {chunks}, expected at least 1 position in each chunk") from None
        if not isinstance(rows, range):
            rows = da.asarray(rows).rechunk(chunks)
    else:
        chunks = rows.chunks
    chunks = (*chunks, (encoding.d_model,))
    changes = changes_of(encoding)
    name = f"posenc-table-{tokenize(rows, encoding, str(meta.dtype), chunks)}"
    if isinstance(rows, range):
        return _lazy(_Rows(rows, meta, changes), chunks, name, meta)
    new_axis = rows.ndim
    keywords = {"d_model": encoding.d_model, "values": meta.dtype, "convention": changes}
    meta = np.empty((0,) * (new_axis + 1), meta.dtype)
    return da.map_blocks(_rows, rows, name=name, meta=meta, chunks=chunks, new_axis=new_axis, **keywords)


def _lazy(slices: _Rows | _Range, chunks: tuple[Any, ...], name: str, meta: NDArray[Any]) -> da.Array:
    """Return a Dask array whose blocks are slices of an object."""
    return da.from_array(slices, chunks, name=name, asarray=False, fancy=False, inline_array=True, meta=meta)


class _Rows:
    """The table of a range.  Each slice computes its own values, so the Dask graph does not grow with the number of chunks."""

    ndim = 2

    def __init__(self, positions: range, meta: NDArray[Any], convention: dict[str, Any]) -> None:
        self.shape, self.dtype = (len(positions), meta.shape[1]), meta.dtype
        self._positions, self._convention = positions, convention

    def __getitem__(self, index: tuple[Any, Any]) -> Any:
        rows, columns = index
        positions = self._positions[rows]
        if not isinstance(positions, range):        # one row; encode(p) would return p rows
            return self[slice(rows, rows + 1), columns][0]
        return posenc.encode(positions, self.shape[1], dtype=self.dtype, threads=1, **self._convention)[:, columns]


def _rows(positions: NDArray[Any], values: np.dtype[Any], d_model: int, convention: dict[str, Any]) -> NDArray[Any]:
    return posenc.encode(positions, d_model, dtype=values, threads=1, **convention)


# ---- addition -------------------------------------------------------------------------------------------------------


def add_to(
    x: da.Array, positions: Positions | da.Array | None = None, *, encoding: Encoding | None = None,
    x_scale: SupportsFloat = 1.0, **convention: Unpack[Convention],
) -> da.Array:
    """Add encodings to a Dask array lazily: ``x * x_scale + encode(...)`` as a new array.

    Parameters
    ----------
    x : dask.array.Array, shape (..., n, d_model)
        Array of dtype float32, float64, float16 or bfloat16, with any chunks.  It is not modified.
    positions : None, int, range, array_like or dask.array.Array, optional
        As in `posenc.add_to`.  None means ``range(n)``; an integer must equal n; a range must have n positions.  An array must
        have the shape (n,), or broadcast to ``x.shape[:-1]`` with the same number of dimensions.
    encoding : posenc.Encoding, optional
        An encoding to use instead of the keywords of a convention.
    x_scale : float, optional
        The factor by which x is multiplied.  The factor, the product and the sum are each rounded once to the dtype of x.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    dask.array.Array
        The sum, with the shape, dtype and chunks of x.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value; values of a Dask array are checked when they are computed.

    See Also
    --------
    posenc.add_to : Add encodings to a NumPy array in place.
    table : Encodings as a Dask array.

    Examples
    --------
    >>> import dask.array as da, numpy as np, posenc, posenc.dask
    >>> x = da.ones((8, 1000, 64), chunks=(4, 300, 32), dtype="float32")
    >>> y = posenc.dask.add_to(x, x_scale=8.0)
    >>> y.chunks == x.chunks
    True
    >>> bool((y.compute() == 8 + posenc.encode(1000, 64)).all())
    True
    """
    if not isinstance(x, da.Array):
        raise TypeError(f"x is of type {type(x).__name__}, expected a dask.array.Array")
    if x.ndim == 0:
        raise ValueError("x has shape (), expected (..., n, d_model)")
    if np.isnan(x.shape).any():
        raise ValueError(f"x has shape {x.shape}, expected known sizes; call compute_chunk_sizes() first")
    if type(x._meta) is not np.ndarray:
        raise TypeError(f"x has blocks of type {type(x._meta).__name__}, expected numpy.ndarray")
    encoding = encoding_for(x, encoding, convention)
    encoding.add_to(np.empty((0, x.shape[-1]), x.dtype), x_scale=x_scale)
    if positions is not None:
        positions = _checked_positions(positions, encoding)
    if positions is None or isinstance(positions, range):
        if x.ndim == 1:
            raise ValueError(f"x has shape {x.shape}, expected (..., n, {x.shape[-1]}) unless positions is an array")
        n = x.shape[-2]
        positions = range(n) if positions is None else positions
        if len(positions) != n:
            raise checks.length_error(len(positions), n)
        rows = _ranges(positions, x.chunks[-2])
        row_axes = range(x.ndim - 2, x.ndim - 1)
    else:
        rows = _aligned(positions, x)
        row_axes = range(x.ndim - 1 - rows.ndim, x.ndim - 1)
    axes = tuple(range(x.ndim))
    return da.blockwise(
        _sum,
        axes,
        x,
        axes,
        rows,
        tuple(row_axes),
        _ranges(range(encoding.d_model), x.chunks[-1]),
        axes[-1:],
        name=f"posenc-add_to-{tokenize(x, positions, x_scale, encoding)}",
        dtype=x.dtype,
        meta=x._meta,
        align_arrays=False,         # the arrays are aligned, except for axes of length 1
        d_model=encoding.d_model,
        keywords={"x_scale": x_scale, "threads": 1, **changes_of(encoding)},
    )


class _Range:
    """A range with the attributes that Dask needs to slice it."""

    ndim, dtype = 1, np.dtype(np.int64)

    def __init__(self, numbers: range) -> None:
        self.shape, self._numbers = (len(numbers),), numbers

    def __getitem__(self, index: tuple[slice]) -> range:
        return self._numbers[index[0]]


def _ranges(numbers: range, chunks: tuple[int, ...]) -> da.Array:
    """Return a Dask array whose blocks are ranges."""
    return _lazy(_Range(numbers), (chunks,), f"posenc-range-{tokenize(numbers, chunks)}", np.empty(0, np.int64))


def _aligned(positions: NDArray[Any] | da.Array, x: da.Array) -> da.Array:
    """Return positions as a Dask array with the chunks of x on each axis longer than one."""
    shape = positions.shape
    checks.check_broadcast(shape, x.shape[:-1])
    chunks = x.chunks[:-1][x.ndim - 1 - len(shape) :]
    chunks = tuple((1,) if length == 1 else chunk for length, chunk in zip(shape, chunks, strict=True))
    return da.asarray(positions).rechunk(chunks)


def _sum(
    x: NDArray[Any], positions: range | NDArray[Any], columns: range, d_model: int, keywords: dict[str, Any]
) -> NDArray[Any]:
    """Return the sum for a block of x that has the given columns, as a new array."""
    if len(columns) == d_model:
        return posenc.add_to(np.array(x, order="C"), positions, **keywords)
    if not isinstance(positions, range):
        positions = np.broadcast_to(positions, x.shape[:-1])
        if x.ndim == 1:
            return _sum(x[np.newaxis], positions[np.newaxis], columns, d_model, keywords).reshape(x.shape)
    # add_to needs all columns; one strip of rows at a time bounds the memory
    total, n = np.empty(x.shape, x.dtype), x.shape[-2]
    wide = np.zeros((max(1, min(n, STRIP_BYTES // (d_model * x.itemsize))), d_model), x.dtype)
    ours = slice(columns.start, columns.stop)
    for index in np.ndindex(x.shape[:-2]):
        here = positions if isinstance(positions, range) else positions[index]
        for first in range(0, n, len(wide)):
            rows = slice(first, min(first + len(wide), n))
            strip = wide[: rows.stop - first]
            strip[:, ours] = x[index][rows]
            total[index][rows] = posenc.add_to(strip, here[rows], **keywords)[:, ours]
    return total


# ---- storage --------------------------------------------------------------------------------------------------------


def to_zarr(
    path: Any, positions: SupportsIndex | range, d_model: SupportsIndex | Encoding, *, chunks: SupportsIndex | str = "auto",
    dtype: AnyDType = "float32", overwrite: bool = False, storage_options: dict[str, Any] | None = None,
    **convention: Unpack[Convention],
) -> zarr.Array[Any]:
    """Write a table to a Zarr array of format 3 with Dask's current scheduler; each Dask chunk becomes a Zarr chunk.

    If the client or all workers are killed, repeat the call to write the missing chunks.  To write several
    chunks in one task, call the functions of `posenc.zarr`.

    Parameters
    ----------
    path : path_like, URL or Zarr store
        A folder that all workers share, written atomically, or another store, written in place; see `posenc.zarr.create`.
    positions : int or range
        Positions of the rows; an integer n means ``range(n)``.
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    chunks : int or str, optional
        Number of positions in a chunk, as in `table`.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        Data type of the values; bfloat16 is stored as uint16, because Zarr has no bfloat16.
    overwrite : bool, optional
        Replace an existing store.  A folder is replaced at the end, and only if it is a Zarr store.
    storage_options : dict, optional
        Options that fsspec needs to access the URL.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    zarr.Array
        The array, open for reading.

    Raises
    ------
    TypeError, ValueError
        If an argument has an invalid type or value, or if a call with other arguments was killed and `overwrite` is false.
    FileExistsError
        If the store exists and `overwrite` is false.
    OSError
        If a worker does not share the store, or if the system reports an error.  The store is then not published.

    See Also
    --------
    table : Encodings as a Dask array.
    posenc.zarr.create : Start a store that tasks of any scheduler write.

    Examples
    --------
    >>> import posenc.dask
    >>> posenc.dask.to_zarr("pe.zarr", 10_000, 64, chunks=2_500)
    <Array file://pe.zarr shape=(10000, 64) dtype=float32>
    """
    from posenc import zarr as stores

    if path is None:
        raise TypeError("path is None, expected a path, a URL or a Zarr store")
    overwrite = checks.boolean("overwrite", overwrite)
    positions = checks.range_of(positions)
    encoding = cached_encoding(d_model, convention)
    pe = table(positions, encoding, chunks=chunks, dtype=dtype)
    (first, *others), _ = pe.chunks
    if any(rows != first for rows in others[:-1]) or others and others[-1] > first:
        raise ValueError(f"chunks is {pe.chunks[0]}, expected equal chunks, except for a smaller last one")
    keywords: dict[str, Any] = {"storage_options": storage_options}
    parts = stores.create(path, positions, encoding, dtype=dtype, chunk_rows=max(1, first), overwrite=overwrite, **keywords)
    # `partial` hides the path from Dask, which would copy a store that is a dict
    write = delayed(partial(stores.write, path, parts=parts, threads=1, **keywords), name="posenc-write", pure=False)
    compute(*map(write, stores.missing(path, **keywords)))
    return stores.finish(path, **keywords)
