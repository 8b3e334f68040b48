"""The functions encode, add_to and stream, which call the methods of a cached `Encoding`."""

from collections.abc import Iterator
from typing import Any, SupportsFloat, SupportsIndex, Unpack

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.arrays import AnyDType, ArrayT, Positions
from posenc._encoding.encoding import Chunk, Convention, Encoding, cached_encoding, check_encoding


def encode(
    positions: Positions, d_model: SupportsIndex | Encoding | None = None, *, dtype: AnyDType | None = None,
    out: NDArray[Any] | None = None, threads: SupportsIndex | None = None, **convention: Unpack[Convention],
) -> NDArray[Any]:
    """Return sinusoidal positional encodings, correctly rounded at every position.

    Parameters
    ----------
    positions : int, range or array_like
        An integer n means ``range(n)``.  An array of integers or real numbers may have any shape; a column
        from pandas, polars or Arrow must have no nulls.  An array or tensor of shape () is one position.  A
        DataFrame with one column has shape (n, 1); pass the column, or call `points`.  Datetimes and
        durations need ``periods`` that are durations; NaT gives a row of NaN.  Positions must be in [-2**63,
        2**63), with and without `position_offset`; NaN and infinity give rows of NaN.  Arrays with
        positions of magnitude 2048 or more in float16, or 256 in bfloat16, are refused, because they may be
        rounded integers; float32 and float64 are taken as they are.
    d_model : int or Encoding, optional
        Number of columns, which may be left out with ``frequencies`` or ``periods``; or an encoding, which
        replaces d_model and the keywords of a convention.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the result, in any spelling that NumPy accepts; by default that of `out`, else float32.
        bfloat16 needs ``ml_dtypes``, or an array of uint16 as `out`, which then contains the bits.
    out : ndarray, shape ``positions.shape + (d_model,)``, optional
        The array to write to.  Its last dimension must be contiguous, and its rows must not overlap.
    threads : int, optional
        The number of threads, at least 1.  The default depends on the size of the table and on the limits of
        the process.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray, shape ``positions.shape + (d_model,)``
        `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.
    ImportError
        If `dtype` is bfloat16, ``ml_dtypes`` is not installed and `out` is None.

    See Also
    --------
    add_to : Add the same values to embeddings, without building the table.
    stream : Yield the same values chunk by chunk, for tables larger than memory.
    grid : Encode the cells of images and volumes.

    Notes
    -----
    By default column ``2 i`` is ``sin`` and column ``2 i + 1`` is ``cos`` of
    ``position * 10000**(-2 i / d_model)`` radians, as in Vaswani et al., "Attention is all you need", 2017,
    section 3.5.  Each value is computed as if with infinite precision, then rounded once, to nearest.

    Examples
    --------
    >>> import posenc
    >>> posenc.encode(3, 4)
    array([[ 0.        ,  1.        ,  0.        ,  1.        ],
           [ 0.84147096,  0.5403023 ,  0.00999983,  0.99995   ],
           [ 0.9092974 , -0.41614684,  0.01999867,  0.9998    ]], dtype=float32)
    >>> posenc.encode(range(10**18, 10**18 + 2), 512).shape
    (2, 512)
    """
    return cached_encoding(d_model, convention).encode(positions, dtype=dtype, out=out, threads=threads)


def add_to(
    x: ArrayT, positions: Positions | None = None, *, encoding: Encoding | None = None,
    x_scale: SupportsFloat = 1.0, threads: SupportsIndex | None = None, **convention: Unpack[Convention],
) -> ArrayT:
    """Add encodings to embeddings in place, ``x * x_scale + encode(...)``, without building the table.

    Parameters
    ----------
    x : ndarray, shape (..., n, d_model)
        The embeddings, of dtype float32, float64, float16 or bfloat16, with a contiguous last dimension.
        They are overwritten.
    positions : None, int, range or array_like, optional
        None means ``range(n)``; an integer must equal n; a range must have n positions.  An array must have
        shape (n,), or it must have as many dimensions as ``x.shape[:-1]`` and broadcast to this shape.
    encoding : Encoding, optional
        An encoding to use instead of the keywords of a convention.
    x_scale : float, optional
        The factor by which x is multiplied; ``scale`` multiplies the encodings instead.  The factor, the
        product and the sum are each rounded once to the dtype of x.
    threads : int, optional
        As in `encode`.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray
        The array `x` itself.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.

    See Also
    --------
    encode : Return the encodings as a table.
    positions_from_mask : Compute the positions of padded batches.

    Notes
    -----
    Vaswani et al., "Attention is all you need", 2017, section 3.4, multiply the embeddings by
    ``x_scale=d_model**0.5``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x = np.ones((2, 3, 4), np.float32)
    >>> posenc.add_to(x) is x
    True
    >>> bool((x == 1 + posenc.encode(3, 4)).all())
    True
    """
    checks.check_type("x", x, np.ndarray, "a numpy.ndarray")
    if x.ndim == 0:
        raise ValueError("x has shape (), expected (..., n, d_model)")
    check_encoding(encoding)
    specification = cached_encoding(x.shape[-1] if encoding is None else encoding, convention)
    return specification.add_to(x, positions, x_scale=x_scale, threads=threads)


def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex | Encoding | None = None, *,
    chunk_rows: SupportsIndex | None = None, dtype: AnyDType | None = None, out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None, **convention: Unpack[Convention],
) -> Iterator[Chunk]:
    """Yield the encodings of many positions chunk by chunk, in constant memory.

    Parameters
    ----------
    positions : int, range or None
        The positions of the rows; an integer n means ``range(n)``, and None means 0, 1, 2, ... up to the last
        position in the domain of `encode`.
    d_model : int or Encoding, optional
        Number of columns, which may be left out with ``frequencies`` or ``periods``; or an encoding, which
        replaces d_model and the keywords of a convention.
    chunk_rows : int, optional
        Number of rows in a chunk.  The default is the number of rows of `out`, or, without `out`, as many as
        fit in 4 MiB.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the values, as in `encode`; by default that of `out`, else float32.
    out : ndarray, shape (chunk_rows, d_model), optional
        The array that every chunk overwrites; a last chunk of k rows is ``out[:k]``.  By default each chunk
        is a new array.
    threads : int, optional
        As in `encode`.
    **convention
        See `Encoding`.

    Returns
    -------
    iterator of Chunk
        Each chunk has the attributes ``positions``, a range, and ``values``, an ndarray of shape
        (len(positions), d_model).

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; raised by the call, before the first chunk.  A chunk that is
        too large for the memory raises ValueError or MemoryError when it is computed.

    See Also
    --------
    encode : Return one table.
    posenc.dask.table : A lazy Dask array, which many processes compute.

    Notes
    -----
    The values have the same bits as those of `encode`, for any number of rows in a chunk.

    Examples
    --------
    >>> import posenc
    >>> [(c.positions, c.values.shape) for c in posenc.stream(5, 8, chunk_rows=2)]
    [(range(0, 2), (2, 8)), (range(2, 4), (2, 8)), (range(4, 5), (1, 8))]
    """
    encoding = cached_encoding(d_model, convention)
    return encoding.stream(positions, chunk_rows=chunk_rows, dtype=dtype, out=out, threads=threads)
