"""points: encodings of points with several coordinates, in separate columns for each axis."""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import arrays, checks
from posenc._arguments.arrays import AnyDType
from posenc._arguments.specification import Layout, Odd
from posenc._axes.axis_columns import fill
from posenc._axes.layout import Group, IncludeInput, Integers, Width, lay_out
from posenc._core import kernel


def points(
    coordinates: ArrayLike, d_model: Width, *, axes: Integers = None, widths: Integers = None, group: Group = "axis",
    layout: Layout | None = None, odd: Odd = "error", include_input: IncludeInput | None = None,
    dtype: AnyDType | None = None, out: NDArray[Any] | None = None, threads: SupportsIndex | None = None, **convention: Any,
) -> NDArray[Any]:
    """Return sinusoidal positional encodings of points, with separate columns for each axis.

    The columns of an axis contain the values that `encode` returns for the coordinates of this axis.

    Parameters
    ----------
    coordinates : array_like, shape (..., axes)
        The coordinates of each point, integers or real numbers like the positions in `encode`.  Integers in an array of
        integers are encoded exactly, without rounding to float64.
    d_model : int, Encoding or sequence of Encoding
        The number of columns; or encodings, as in `grid`.
    axes, widths, group, layout, odd, include_input : optional
        The columns of the axes, as in `grid`; axis k has the coordinates ``coordinates[..., k]``.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the result, as in `encode`; by default that of `out`, else float32.
    out : ndarray, shape ``coordinates.shape[:-1] + (d_model,)``, optional
        The array to write to, as in `encode`.
    threads : int, optional
        As in `encode`.
    **convention
        See `Encoding`.  Each keyword takes one value for all axes, or a list or tuple with one value for each axis.

    Returns
    -------
    ndarray, shape ``coordinates.shape[:-1] + (d_model,)``
        `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.

    See Also
    --------
    grid : Encode the cells of a grid, without an array of coordinates.
    encode : Return the encodings of positions on one axis.

    Notes
    -----
    docs/grids.md has calls that replace PyTorch3D's ``HarmonicEmbedding`` and DETR's embedding of padded images.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> xyz = np.random.default_rng(0).uniform(-1, 1, (1024, 64, 3))    # rays, samples, axes
    >>> posenc.points(xyz, 60, frequencies=2.0 ** np.arange(10)).shape      # as in NeRF
    (1024, 64, 60)
    >>> posenc.points([[0.5, 2]], 6, include_input="last")
    array([[ 0.47942555,  0.87758255,  0.9092974 , -0.41614684,  0.5       ,
             2.        ]], dtype=float32)
    """
    with kernel.default_environment():
        dtype_name, _ = arrays.output_dtype(dtype, out)
        threads = checks.threads(threads)
        array = checks.positions_of(coordinates, name="coordinates")
        if isinstance(array, range) or array.ndim == 0 or array.shape[-1] == 0:
            raise ValueError(f"coordinates has shape {np.shape(coordinates)}, expected (..., axes) with at least one axis")
        d_model, offsets, columns, zeros = lay_out(
            array.shape[-1], d_model, axes, widths, group, layout, odd, include_input, convention
        )
        for k, offset in enumerate(offsets):
            if offset:
                checks.positions_of(array[..., k : k + 1], offset, f"coordinates[..., {k}]")
        positions = [array[..., k].copy() for k in range(array.shape[-1])]      # copies, as they may share memory with out
        out = kernel.output_array(out, (*array.shape[:-1], d_model), dtype_name, "coordinates")
        fill(out, columns, zeros, positions, dtype_name, threads)
        return out
