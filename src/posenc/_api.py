"""encode, add_to and stream: each takes the Encoding of its keywords, new or from a cache, and calls its method."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, SupportsFloat, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import NDArray

from posenc._encoding import Chunk, cached_encoding
from posenc._types import AnyDType, ArrayT, Convention, DTypeOf, Positions, ScalarT


@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: AnyDType = ..., out: ArrayT,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> ArrayT: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: Literal["float32"] = ..., out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[np.float32]: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: DTypeOf[ScalarT], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[ScalarT]: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: AnyDType = ..., out: NDArray[Any] | None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[Any]: ...


def encode(
    positions: Positions,
    d_model: SupportsIndex,
    *,
    dtype: AnyDType = "float32",
    out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None,
    **convention: Unpack[Convention],
) -> NDArray[Any]:
    """Sinusoidal positional encodings, correctly rounded at every position.

    Parameters
    ----------
    positions : int, range or array_like
        An integer n means ``range(n)``.  A range may have any start, step and sign.  An array of integers or real numbers
        may have any shape, as may a column of pandas, polars or Arrow without nulls.  All positions are in [-2**63, 2**63);
        NaN and infinity give rows of NaN.
    d_model : int
        Number of columns.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        bfloat16 needs ``ml_dtypes``, or an `out` of dtype uint16 that takes its bits.
    out : ndarray, shape ``positions.shape + (d_model,)``, optional
        Written and returned: of `dtype`, columns contiguous, rows of any stride.
    threads : int, optional
        At least 1; by default as many as the size of the work and the process's limits allow.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray, shape ``positions.shape + (d_model,)``
        The encodings: `out` where it is given, else a new array.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, before anything is written.
    ImportError
        For bfloat16 without ``ml_dtypes`` and without `out`.

    See Also
    --------
    add_to : The same values added onto embeddings, without the table.
    stream : The same values chunk by chunk, for tables larger than memory.
    grid : Tables over the cells of images and volumes.

    Notes
    -----
    By default column ``2 i`` is ``sin`` and column ``2 i + 1`` is ``cos`` of ``position * 10000**(-2 i / d_model)`` radians,
    as in Vaswani et al., "Attention is all you need", 2017, section 3.5.  The frequency is taken as that real number, and so is
    its product with the position; docs/numerics.md derives how the one rounding at the end is kept right.

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
    x: ArrayT,
    positions: Positions | None = None,
    *,
    x_scale: SupportsFloat = 1.0,
    threads: SupportsIndex | None = None,
    **convention: Unpack[Convention],
) -> ArrayT:
    """Add encodings onto embeddings in place: ``x * x_scale + encode(...)``, without building the table.

    Parameters
    ----------
    x : ndarray, shape (..., n, d_model)
        Of dtype float32, float64, float16 or bfloat16; columns contiguous.  Overwritten.
    positions : None, int, range or array_like, optional
        None means ``range(n)``; an integer must equal n; a range has n positions; an array broadcasts to
        ``x.shape[:-1]``.
    x_scale : float, optional
        What x is multiplied by first.  It is rounded to x's dtype, as the product and the sum are, each once.
    threads : int, optional
        At least 1; by default as many as the size of the work and the process's limits allow.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray
        The array `x` itself.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, before anything is written.

    See Also
    --------
    encode : The encodings as a table.
    positions_from_mask : Positions of padded batches.

    Notes
    -----
    ``x_scale=d_model**0.5`` is the factor on the embeddings of Vaswani et al., "Attention is all you need", 2017, section 3.4.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x = np.ones((2, 3, 4), np.float32)
    >>> posenc.add_to(x) is x
    True
    >>> bool((x == 1 + posenc.encode(3, 4)).all())
    True
    """
    if not isinstance(x, np.ndarray):
        raise TypeError(f"x is of type {type(x).__name__}, expected a numpy.ndarray")
    if x.ndim == 0:
        raise ValueError("x has shape (), expected (..., n, d_model)")
    return cached_encoding(x.shape[-1], convention).add_to(x, positions, x_scale=x_scale, threads=threads)


@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: AnyDType = ..., out: NDArray[ScalarT],
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[ScalarT]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: Literal["float32"] = ..., out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[np.float32]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: DTypeOf[ScalarT], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[ScalarT]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: AnyDType = ..., out: NDArray[Any] | None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[Any]]: ...


def stream(
    positions: SupportsIndex | range | None,
    d_model: SupportsIndex,
    *,
    chunk: SupportsIndex | None = None,
    dtype: AnyDType = "float32",
    out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None,
    **convention: Unpack[Convention],
) -> Iterator[Chunk[Any]]:
    """Make the encodings of many positions chunk by chunk, in constant memory.

    Parameters
    ----------
    positions : int, range or None
        Those of the rows; None streams from 0 without end.
    d_model : int
        Number of columns.
    chunk : int, optional
        Rows of a chunk; by default as many as 4 MiB hold.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        Of the values, as in `encode`.
    out : ndarray, shape (chunk, d_model), optional
        Written for every chunk, the last one in ``out[:k]``; without it each chunk is an array of its own.
    threads : int, optional
        At least 1; by default as many as the size of the work and the process's limits allow.
    **convention
        See `Encoding`.

    Returns
    -------
    iterator of Chunk
        Each with its ``positions``, a range, and its ``values``, an ndarray of shape (len(positions), d_model).

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, at the call and not at the first chunk.

    See Also
    --------
    encode : One table.
    posenc.dask.to_zarr : Tables written by many processes.

    Notes
    -----
    The values are those of `encode`, bit for bit, whatever the chunks.

    Examples
    --------
    >>> import posenc
    >>> [(c.positions, c.values.shape) for c in posenc.stream(5, 8, chunk=2)]
    [(range(0, 2), (2, 8)), (range(2, 4), (2, 8)), (range(4, 5), (1, 8))]
    """
    return cached_encoding(d_model, convention).stream(positions, chunk=chunk, dtype=dtype, out=out, threads=threads)
