"""grid and points: encodings in separate columns for each axis, and the checks of their options."""

import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, Literal, SupportsFloat, SupportsIndex, TypeAlias, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import arrays, checks
from posenc._arguments.arrays import AnyDType
from posenc._arguments.specification import Layout, changes_of
from posenc._axes import axis_columns
from posenc._core import kernel
from posenc._encoding.encoding import Encoding, Odd, cached_encoding, without_durations

Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex | ArrayLike] | NDArray[Any]
Coordinates: TypeAlias = Literal["index", "normalized", "centered"] | tuple[SupportsFloat, SupportsFloat]
Start: TypeAlias = SupportsFloat | Sequence[SupportsFloat] | NDArray[Any]
Width: TypeAlias = SupportsIndex | Encoding | Sequence[Encoding]
Integers: TypeAlias = Sequence[SupportsIndex] | NDArray[Any] | None
Group: TypeAlias = Literal["axis", "function", "frequency"]
IncludeInput: TypeAlias = Literal["first", "last"]

COORDINATES = get_args(get_args(Coordinates)[0])
CHOICES = {"group": get_args(Group), "odd": get_args(Odd), "layout": get_args(Layout),
           "include_input": get_args(IncludeInput)}


def grid(
    shape: Shape, d_model: Width, *, start: Start = 0, coordinates: Coordinates = "index", axes: Integers = None,
    widths: Integers = None, group: Group = "axis", layout: Layout | None = None, odd: Odd = "error",
    include_input: IncludeInput | None = None, extra_tokens: SupportsIndex = 0, channel_first: bool = False,
    dtype: AnyDType | None = None, out: NDArray[Any] | None = None, threads: SupportsIndex | None = None, **convention: Any,
) -> NDArray[Any]:
    """Return sinusoidal positional encodings of the cells of a grid, with separate columns for each axis.

    The columns of an axis contain the values that `encode` returns for the coordinates of this axis.

    Parameters
    ----------
    shape : int or sequence
        The size of each axis, or its coordinates as a range or a one-dimensional array of integers or real
        numbers.
    d_model : int, Encoding or sequence of Encoding
        The number of columns; or an Encoding for all axes, or a sequence with an Encoding for each axis.
        With encodings, no keyword of a convention is allowed, and the table has as many columns as the
        encodings of all axes together.
    start : float or sequence of float, optional
        The index of the first cell, for each axis or for all axes.  Cell k has the index m = k + start.
    coordinates : {"index", "normalized", "centered"} or (low, high), optional
        The coordinate of cell k, if `shape` has the size n of the axis.  ``"index"``: m.  ``"normalized"``: m
        / (last + 1e-6), where last is the index of the last cell (DETR's ``normalize``).  ``"centered"``: (2
        m + 1) / n - 1, the centres of n cells between -1 and 1.  (low, high): low + m * (high - low) / (n -
        1).  An integral index is encoded exactly; any other coordinate is first rounded to float64.
    axes : sequence of int, optional
        The order of the axes in the columns; by default the order in `shape`.
    widths : sequence of int, optional
        An even number of columns for each axis, in the order of `shape`; by default all are equal.
    group : {"axis", "function", "frequency"}, optional
        The index that varies slowest over the columns: the axis, the function (sine or cosine) or the
        frequency.
    layout : {"interleaved", "halves"}, optional
        Whether the sines and cosines of a group alternate or form blocks; with ``group="function"``, whether
        the axes alternate or form blocks.  The default is ``"interleaved"``, or the layout of the encoding.
    odd : {"error", "zero", "truncate"}, optional
        Determines the result if d_model, without the columns of `include_input`, is not a multiple of twice
        the number of axes. ``"error"`` raises a ValueError.  ``"zero"`` rounds the widths down and fills the
        remaining columns with zeros. ``"truncate"`` rounds the widths up and drops the last columns.  The sum
        of `widths`, if given, must be d_model without the columns of `include_input`; it may be less with
        ``"zero"``, and greater with ``"truncate"``.
    include_input : {"first", "last"}, optional
        Whether the coordinates are added as the first or last columns, one for each axis; d_model includes
        these columns.
    extra_tokens : int, optional
        The number of rows of zeros before the first cell.  If it is not 0, the cells form a single dimension.
    channel_first : bool, optional
        Whether the columns are the first dimension of the result instead of the last.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the result, as in `encode`; by default that of `out`, else float32.
    out : ndarray, optional
        The array to write to, with the shape and dtype of the result and a contiguous last dimension.
    threads : int, optional
        As in `encode`; but one thread copies the rows of an axis to the cells if they have at most 32 columns,
        if these are not together, or if the coordinates are not consecutive integers.
    **convention
        See `Encoding`.  Each keyword takes one value for all axes, or a list or tuple with one value for each
        axis.

    Returns
    -------
    ndarray, shape ``shape + (d_model,)``
        With `extra_tokens`, the shape is ``(extra_tokens + prod(shape), d_model)``.  With `channel_first`,
        d_model comes first.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.

    See Also
    --------
    points : Encode points that do not form a grid, or that differ between samples.
    encode : Return the encodings of positions on one axis.
    Encoding : The keywords of a convention.

    Notes
    -----
    Parmar et al., "Image Transformer", 2018, and Carion et al., "End-to-end object detection with
    transformers", 2020, use separate columns for each axis.

    Examples
    --------
    >>> import posenc
    >>> posenc.grid((14, 14), 768, layout="halves").shape               # ViT-MAE, RT-DETR
    (14, 14, 768)
    >>> posenc.grid((14, 14), 768, layout="halves", axes=(1, 0), extra_tokens=1).shape  # MAE
    (197, 768)
    >>> posenc.grid((2, 2), 6, coordinates=(-1, 1), include_input="first")[0, 1]
    array([-1.        ,  1.        , -0.84147096,  0.5403023 ,  0.84147096,
            0.5403023 ], dtype=float32)
    """
    with kernel.default_environment():
        dtype_name, _ = arrays.output_dtype(dtype, out)
        threads = checks.threads(threads)
        extra_tokens = checks.integer("extra_tokens", extra_tokens, 0)
        channel_first = checks.boolean("channel_first", channel_first)
        extents = _extents(shape)
        sizes = tuple(extent if isinstance(extent, int) else len(extent) for extent in extents)
        d_model, offsets, columns = lay_out(
            len(extents), d_model, axes, widths, group, layout, odd, include_input, convention
        )
        rows = (extra_tokens + math.prod(sizes),) if extra_tokens else sizes
        shape_of_table = (d_model, *rows) if channel_first else (*rows, d_model)
        try:
            out = kernel.output_array(out, shape_of_table, dtype_name, "shape")
        except OverflowError as error:          # more than 2**1024 values
            raise arrays.too_large("shape", shape_of_table, error) from None
        positions, starts = [], per_axis("start", start, len(extents))
        for k, (extent, first, offset) in enumerate(zip(extents, starts, offsets, strict=True)):
            # another axis may be very long
            extent = 0 if out.size == 0 and isinstance(extent, int) else extent
            positions.append(_coordinates(f"shape[{k}]", extent, first, coordinates, offset))
        table = np.moveaxis(out, 0, -1) if channel_first else out
        if extra_tokens:
            table[:extra_tokens] = 0
            table = table[extra_tokens:].reshape(*sizes, d_model)
        on_axes = np.meshgrid(*positions, indexing="ij", sparse=True)
        axis_columns.fill(table, columns, on_axes, dtype_name, threads)
        return out


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
        The coordinates of each point, integers or real numbers like the positions in `encode`.  Integers in
        an array of integers are encoded exactly, without rounding to float64.
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
        See `Encoding`.  Each keyword takes one value for all axes, or a list or tuple with one value for each
        axis.

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
        array = checks.positions_of(coordinates, name="coordinates")
        if isinstance(array, range) or array.ndim == 0 or array.shape[-1] == 0:
            raise ValueError(f"coordinates has shape {np.shape(coordinates)}, expected (..., axes)")
        d_model, offsets, columns = lay_out(
            array.shape[-1], d_model, axes, widths, group, layout, odd, include_input, convention
        )
        for k, offset in enumerate(offsets):
            if offset:
                checks.positions_of(array[..., k : k + 1], offset, f"coordinates[..., {k}]")
        positions = [array[..., k] for k in range(array.shape[-1])]
        return axis_columns.encode_axes(columns, positions, d_model, dtype, out, threads, "coordinates")


# ---- the options of grid and points ------------------------------------------------------------------------


def lay_out(
    ndim: int, d_model: Any, axes: Integers, widths: Integers, group: str, layout: str | None, odd: str,
    include_input: str | None, convention: Mapping[str, Any],
) -> tuple[int, list[float], list[axis_columns.AxisColumns]]:
    """Check the options of `grid` or `points`.

    Return d_model, the position_offset of each axis, and all columns.
    """
    for (name, choices), value in zip(CHOICES.items(), (group, odd, layout, include_input), strict=True):
        if value is not None or name in ("group", "odd"):
            checks.choice(name, value, choices)
    order = per_axis("axes", tuple(range(ndim)) if axes is None else checks.integers("axes", axes), ndim)
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes is {tuple(order)}, expected each of {tuple(range(ndim))} once")
    inputs = ndim if include_input else 0
    sizes = d_model if isinstance(d_model, (list, tuple)) else [d_model]
    if any(isinstance(size, Encoding) for size in sizes):
        given = {"layout": layout, "widths": widths, "odd": None if odd == "error" else odd, **convention}
        if names := [name for name, value in given.items() if value is not None]:
            raise checks.both_given("an Encoding", names[0])
        given_encodings = _encodings(d_model, ndim)
        layout = given_encodings[0].layout
        arguments = [(encoding.d_model, changes_of(encoding)) for encoding in given_encodings]
        d_model = inputs + sum(width for width, _ in arguments)
    else:
        d_model = checks.integer("d_model", d_model, inputs, "an integer or an Encoding")
        by_axis = {name: per_axis(name, value, ndim) for name, value in convention.items()}
        arguments = [(width, {name: values[k] for name, values in by_axis.items()})
                     for k, width in enumerate(_widths(widths, ndim, d_model, inputs, odd))]
    nesting, inner_layout = axis_columns.nesting_of(group, layout or "interleaved")
    encodings = [cached_encoding(width, keywords | {"layout": inner_layout}) for width, keywords in arguments]
    for encoding in encodings:
        without_durations(encoding, "a table with several axes")
    first = inputs if include_input == "first" else 0
    stop = d_model - inputs + first
    slices = axis_columns.slices_of_axes(tuple(encodings[k].d_model for k in order), nesting, first, stop)
    columns = [
        axis_columns.AxisColumns(k, encodings[k].encode, encodings[k].d_model, of_axis)
        for k, of_axis in zip(order, slices, strict=True)
    ]
    begin = 0 if include_input == "first" else stop
    columns += [
        axis_columns.AxisColumns(k, axis_columns.round_positions, 1, axis_columns.slices_of([begin + rank]))
        for rank, k in enumerate(order[:inputs])
    ]
    return d_model, [encoding.position_offset for encoding in encodings], columns


def _encodings(d_model: Any, ndim: int) -> list[Encoding]:
    """Return the encoding of each axis; d_model is one Encoding for all axes, or a sequence of encodings."""
    encodings = per_axis("d_model", d_model, ndim)
    for encoding in encodings:
        checks.check_type("d_model", encoding, Encoding, "an Encoding, as for the other axes")
        if encoding.d_model % 2 or encoding.layout != encodings[0].layout:
            raise ValueError(f"d_model has {encoding!r}, expected an even number of columns and one layout")
    return encodings


def _widths(widths: Any, ndim: int, d_model: int, inputs: int, odd: str) -> list[int]:
    """Return the number of columns of each axis; check that `odd` permits their sum."""
    available = d_model - inputs
    if widths is None:
        pairs, remainder = divmod(available, 2 * ndim)
        if remainder and odd == "error":
            multiple = f"{f'{inputs} more than ' if inputs else ''}a multiple of {2 * ndim}"
            raise ValueError(f"d_model is {d_model}, expected {multiple}, or odd='zero' or odd='truncate'")
        return [2 * (pairs + (remainder > 0 and odd == "truncate"))] * ndim
    numbers = per_axis("widths", checks.integers("widths", widths), ndim)
    if any(width % 2 for width in numbers):
        raise ValueError(f"widths is {numbers}, expected even numbers")
    total = sum(numbers)
    if total < available and odd != "zero" or total > available and odd != "truncate":
        raise ValueError(f"widths has sum {total}, expected {available}")
    return numbers


def is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or isinstance(value, np.ndarray) and value.ndim > 0


def per_axis(name: str, value: Any, ndim: int) -> list[Any]:
    """Return a value for each axis: those of a sequence, or a single number or list of frequencies."""
    if not is_sequence(value) or name in ("frequencies", "periods") and not any(map(np.ndim, value)):
        return [value] * ndim
    checks.check_length(name, value, ndim, ", one for each axis")
    return list(value)


# ---- the coordinates of a grid -----------------------------------------------------------------------------


def _extents(shape: Any) -> list[int | NDArray[Any]]:
    """Return the size or the coordinates of each axis."""
    if isinstance(shape, np.ndarray) and shape.ndim > 1:
        raise ValueError(f"shape is an array of shape {shape.shape}, expected the size of each axis")
    extents: list[Any] = []
    for k, extent in enumerate(shape) if is_sequence(shape) else [(None, shape)]:
        name = "shape" if k is None else f"shape[{k}]"
        is_array = hasattr(extent, "__array__") and np.ndim(extent)
        if k is not None and (is_array or isinstance(extent, (list, tuple, range))):
            # a copy, as it may share memory with out
            extents.append(np.array(checks.positions_of(extent, name=name)))
            if extents[k].ndim != 1:
                raise ValueError(f"{name} has shape {extents[k].shape}, expected one dimension")
        else:
            extents.append(checks.position(name, checks.integer(name, extent, 0, "an integer or a sequence")))
    if not extents:
        raise ValueError("shape is empty, expected at least one axis")
    return extents


def _coordinates(name: str, extent: int | NDArray[Any], start: Any, coordinates: Any, offset: float) -> Any:
    """Return the coordinates of the cells along an axis.

    Check that they are in the domain, with and without the offset.
    """
    number = checks.position("start", start) if checks.is_index(start) else checks.real("start", start)
    if isinstance(coordinates, str):
        checks.choice("coordinates", coordinates, COORDINATES)
    elif np.shape(coordinates) != (2,):
        raise TypeError(f"coordinates is {checks.shown(coordinates)}, expected one of {COORDINATES} or (low, high)")
    else:
        coordinates = tuple(checks.real("coordinates", end) for end in coordinates)
    if not isinstance(extent, int):
        if number or np.any(coordinates != "index"):
            raise ValueError(f"start and coordinates are {number}, {coordinates!r}, expected 0, 'index' with {name}")
        return checks.positions_of(extent, offset, name)
    name = f"{name} with start and coordinates"
    if coordinates == "index" and number == int(number):
        checks.check_domain((int(number), int(number) + extent - 1) if extent else (), offset, name)
        return np.arange(extent) + int(number)
    first, step = Fraction(number), Fraction(1)
    if coordinates == "normalized":
        step = 1 / (first + extent - 1 + Fraction(1, 10**6))
        first *= step
    elif coordinates == "centered":
        step = Fraction(2, max(extent, 1))
        first = (first + Fraction(1, 2)) * step - 1
    elif coordinates != "index":
        low, high = map(Fraction, coordinates)
        step = (high - low) / max(extent - 1, 1)
        first = low + first * step
    checks.check_domain((first, first + step * (extent - 1)) if extent else (), offset, name)
    denominator = math.lcm(first.denominator, step.denominator)
    numerator, increment = int(first * denominator), int(step * denominator)
    # Python rounds the quotient of two integers correctly, perhaps to 2**63, outside the domain
    quotients = ((numerator + k * increment) / denominator for k in range(extent))
    return checks.positions_of(np.fromiter(quotients, np.float64, extent), offset, name)
