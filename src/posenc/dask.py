"""Tables as lazy Dask arrays.

Each task uses one thread, because the scheduler runs one task per processor.  Tasks receive the keywords of a
convention, because `posenc.encode` caches the Encoding of these keywords.  A pickled Encoding would be
rebuilt in every task.
"""

from functools import partial
from typing import Any, SupportsIndex, Unpack

import numpy as np

import posenc
from posenc._arguments import checks
from posenc._arguments.arrays import AnyDType, Positions
from posenc._arguments.specification import changes_of
from posenc._encoding.encoding import Convention, Encoding, cached_encoding, checked_positions

with checks.importing_for("posenc.dask"):
    import dask.array as da
    from dask.base import compute

__all__ = ["table"]


def table(
    positions: Positions | da.Array, d_model: SupportsIndex | Encoding | None = None, *, chunks: Any = "auto",
    dtype: AnyDType = "float32", **convention: Unpack[Convention],
) -> da.Array:
    """Return sinusoidal positional encodings as a lazy Dask array.

    Parameters
    ----------
    positions : int, range, array_like or dask.array.Array
        Positions of the rows, as in `posenc.encode`, of shape ``S``.  A column of a Dask dataframe is
        computed immediately.
    d_model : int or posenc.Encoding, optional
        As in `posenc.encode`.
    chunks : int, tuple, str, optional
        Chunks of the positions, in any form that Dask accepts.  ``"auto"`` keeps the chunks of a Dask array;
        for other positions it uses Dask's setting ``array.chunk-size``.  The columns are always one chunk.
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
        If an argument has an invalid type or value; values of a Dask array are checked when they are
        computed.

    See Also
    --------
    posenc.encode : Compute a NumPy array.
    dask.array.Array.to_zarr : Write an array to a Zarr array from all workers.

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
    if isinstance(positions, da.Array):
        checked_positions(encoding, np.empty(0, positions.dtype))
        shape = positions.shape
        if np.isnan(shape).any():
            raise ValueError(f"positions has shape {shape}, expected known sizes; call compute_chunk_sizes()")
        chunks = positions.chunks if chunks == "auto" else chunks
    else:
        column = compute(positions, traverse=False)[0]              # of a Dask dataframe
        positions = checked_positions(encoding, column)
        shape = (len(positions),) if isinstance(positions, range) else positions.shape
    meta = encoding.encode(np.empty(0, getattr(positions, "dtype", int)), dtype=dtype)
    # Dask computes chunk sizes from the size of an element; here, an element is a whole row
    row = np.dtype((np.void, max(1, encoding.d_model * meta.itemsize)))
    try:
        sizes = da.core.normalize_chunks(chunks, shape, dtype=row)
        if any(size < 0 for sizes_of_axis in sizes for size in sizes_of_axis):
            raise ValueError(f"sizes {sizes}")
    except (ZeroDivisionError, TypeError, ValueError) as error:
        kind = TypeError if isinstance(error, TypeError) else ValueError
        raise kind(f"chunks is {chunks!r}, expected at least 1 position in each chunk: {error}") from None
    keywords = {"d_model": encoding.d_model, "dtype": meta.dtype, "threads": 1, **changes_of(encoding)}
    if isinstance(positions, range):
        # Dask computes the positions of a block together with the block
        positions = da.arange(positions.start, positions.stop, positions.step, chunks=sizes, dtype=np.int64)
    return da.map_blocks(
        partial(posenc.encode, **keywords), da.asarray(positions).rechunk(sizes), new_axis=len(shape),
        chunks=(*sizes, (encoding.d_model,)), meta=np.empty((0,) * (len(shape) + 1), meta.dtype),
    )
