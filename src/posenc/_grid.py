"""grid: encodings of the cells of an n-D grid, in separate columns for each axis."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Literal, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc import _arguments, _kernel
from posenc._arguments import LOWEST
from posenc._cache import encoding_of
from posenc._convention import DEFAULTS
from posenc._encoding import Encoding
from posenc._keywords import check_names
from posenc._types import AnyDType, ArrayT, DTypeOf, ScalarT

Shape: TypeAlias = SupportsIndex | Sequence[SupportsIndex | ArrayLike] | NDArray[Any]
Coordinates: TypeAlias = Literal["index", "normalized", "centered"] | tuple[SupportsFloat, SupportsFloat]
Start: TypeAlias = SupportsFloat | Sequence[SupportsFloat] | NDArray[Any]
Integers: TypeAlias = Sequence[SupportsIndex] | NDArray[Any] | None
Group: TypeAlias = Literal["axis", "function", "frequency"]
Layout: TypeAlias = Literal["interleaved", "halves"]
Odd: TypeAlias = Literal["error", "zero", "truncate"]
IncludeInput: TypeAlias = Literal["first", "last"] | None

BLOCK_BYTES = 1 << 20                   # size of the rows of an axis that are encoded at a time; fits in the second-level cache
CHOICES = {
    "coordinates": ("index", "normalized", "centered"),
    "group": ("axis", "function", "frequency"),
    "layout": ("interleaved", "halves"),
    "odd": ("error", "zero", "truncate"),
    "include_input": ("first", "last"),
}
# (group, layout): the three indices of a column, in the order from slowest to fastest
ORDERS = {
    ("axis", "halves"): ("axis", "function", "frequency"),
    ("axis", "interleaved"): ("axis", "frequency", "function"),
    ("function", "halves"): ("function", "axis", "frequency"),
    ("function", "interleaved"): ("function", "frequency", "axis"),
    ("frequency", "halves"): ("frequency", "function", "axis"),
    ("frequency", "interleaved"): ("frequency", "axis", "function"),
}


class _Axis(NamedTuple):
    """An axis and its columns in the table."""

    positions: range | NDArray[Any] | _Spaced
    encoding: Encoding
    columns: list[slice]                # the columns of the table that hold those of the encoding, in the same order
    input_column: int | None

    def table(
        self, rows: slice, d_model: int, dtype_name: str, element: np.dtype[Any], threads: int | None
    ) -> NDArray[Any]:
        """Return the bits of table rows in which only the columns of this axis are filled; the others are zero."""
        positions = self.positions[rows]
        values = np.empty((len(positions), self.encoding.d_model), element)
        self.encoding.encode(positions, dtype=dtype_name, out=values, threads=threads)
        table = np.zeros((len(positions), d_model), f"u{element.itemsize}")
        begin, bits = 0, values.view(table.dtype)
        for columns in self.columns:
            end = begin + table[:, columns].shape[1]
            table[:, columns] = bits[:, begin:end]
            begin = end
        if self.input_column is not None:
            table[:, self.input_column] = _rounded_bits(positions, dtype_name)
        return table


class _Spaced:
    """Evenly spaced positions ``first + k * step``, each rounded once to float64."""

    def __init__(self, first: Fraction, step: Fraction, size: int) -> None:
        for end in (first, first + step * (size - 1)) if size else ():
            _arguments.check_position(end)
        self.denominator = math.lcm(first.denominator, step.denominator)
        self.first, self.step = int(first * self.denominator), int(step * self.denominator)
        self.indices = range(size)

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, rows: slice) -> NDArray[np.float64]:
        # the quotient of two integers is correctly rounded
        return np.array([(self.first + k * self.step) / self.denominator for k in self.indices[rows]], np.float64)


@overload
def grid(
    shape: Shape, d_model: SupportsIndex, *, start: Start = ..., coordinates: Coordinates = ..., axes: Integers = ...,
    widths: Integers = ..., group: Group = ..., layout: Layout = ..., odd: Odd = ..., include_input: IncludeInput = ...,
    extra_tokens: SupportsIndex = ..., channel_first: bool = ...,
    dtype: AnyDType = ..., out: ArrayT, threads: SupportsIndex | None = ..., **convention: Any,
) -> ArrayT: ...
@overload
def grid(
    shape: Shape, d_model: SupportsIndex, *, start: Start = ..., coordinates: Coordinates = ..., axes: Integers = ...,
    widths: Integers = ..., group: Group = ..., layout: Layout = ..., odd: Odd = ..., include_input: IncludeInput = ...,
    extra_tokens: SupportsIndex = ..., channel_first: bool = ...,
    dtype: Literal["float32"] = ..., out: None = ..., threads: SupportsIndex | None = ..., **convention: Any,
) -> NDArray[np.float32]: ...
@overload
def grid(
    shape: Shape, d_model: SupportsIndex, *, start: Start = ..., coordinates: Coordinates = ..., axes: Integers = ...,
    widths: Integers = ..., group: Group = ..., layout: Layout = ..., odd: Odd = ..., include_input: IncludeInput = ...,
    extra_tokens: SupportsIndex = ..., channel_first: bool = ...,
    dtype: DTypeOf[ScalarT], out: None = ..., threads: SupportsIndex | None = ..., **convention: Any,
) -> NDArray[ScalarT]: ...
@overload
def grid(
    shape: Shape, d_model: SupportsIndex, *, start: Start = ..., coordinates: Coordinates = ..., axes: Integers = ...,
    widths: Integers = ..., group: Group = ..., layout: Layout = ..., odd: Odd = ..., include_input: IncludeInput = ...,
    extra_tokens: SupportsIndex = ..., channel_first: bool = ...,
    dtype: AnyDType = ..., out: NDArray[Any] | None = ..., threads: SupportsIndex | None = ..., **convention: Any,
) -> NDArray[Any]: ...


def grid(
    shape: Shape,
    d_model: SupportsIndex,
    *,
    start: Start = 0,
    coordinates: Coordinates = "index",
    axes: Integers = None,
    widths: Integers = None,
    group: Group = "axis",
    layout: Layout = "interleaved",
    odd: Odd = "error",
    include_input: IncludeInput = None,
    extra_tokens: SupportsIndex = 0,
    channel_first: bool = False,
    dtype: AnyDType = "float32",
    out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None,
    **convention: Any,
) -> NDArray[Any]:
    """Return sinusoidal positional encodings of the cells of a grid, with separate columns for each axis.

    The columns of an axis contain the values that `encode` returns for the coordinates of this axis.

    Parameters
    ----------
    shape : int or sequence
        For each axis its size or its coordinates: a range or a one-dimensional array of integers or real numbers.
    d_model : int
        Number of columns.
    start : float or sequence of float, optional
        The index of the first cell, one for each axis or one for all.  Cell k has the index m = k + start.
    coordinates : {"index", "normalized", "centered"} or (low, high), optional
        The coordinate of cell k, for axes of n cells given by size.  ``"index"``: m.  ``"normalized"``: m / (last + 1e-6),
        where last is the index of the last cell (DETR's ``normalize``).  ``"centered"``: (2 m + 1) / n - 1, the centres of
        n cells between -1 and 1.  (low, high): low + m * (high - low) / (n - 1).  An integral index is encoded exactly; any
        other coordinate is first rounded to float64.
    axes : sequence of int, optional
        The order of the axes in the columns; by default that of `shape`.
    widths : sequence of int, optional
        An even number of columns for each axis, in the order of `shape`; by default all are equal.
    group : {"axis", "function", "frequency"}, optional
        The index that varies slowest over the columns.
    layout : {"interleaved", "halves"}, optional
        Within a group, sines and cosines alternate or form blocks.  With ``group="function"`` this applies to the axes.
    odd : {"error", "zero", "truncate"}, optional
        If d_model is not a multiple of twice the number of axes, ``"error"`` raises a ValueError, ``"zero"`` rounds the
        widths down and fills the remaining columns with zeros, and ``"truncate"`` rounds the widths up and drops the last
        columns.  The sum of `widths` may be less than d_model with ``"zero"``, and greater with ``"truncate"``.
    include_input : {"first", "last"}, optional
        Whether the coordinates are added as the first or last columns, one for each axis; d_model includes them.
    extra_tokens : int, optional
        The number of rows of zeros before the first cell.  If it is not 0, the axes are flattened into one.
    channel_first : bool, optional
        Whether the columns are the first dimension of the result instead of the last.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the result, as in `encode`.
    out : ndarray, optional
        The array to write to, with the shape and dtype of the result and a contiguous last dimension.
    threads : int, optional
        As in `encode`.
    **convention
        See `Encoding`.  Each keyword takes one value for all axes, or a list or tuple with one value for each axis.

    Returns
    -------
    ndarray, shape ``shape + (d_model,)``
        With `extra_tokens`, ``(extra_tokens + prod(shape), d_model)``.  With `channel_first`, d_model comes first.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.

    See Also
    --------
    encode : Return the encodings of positions on one axis.
    Encoding : The keywords of a convention.

    Notes
    -----
    Parmar et al., "Image Transformer", 2018, and Carion et al., "End-to-end object detection with transformers", 2020, use
    separate columns for each axis; docs/grids.md shows the orders of columns, and calls that replace other libraries.

    Examples
    --------
    >>> import posenc
    >>> posenc.grid((14, 14), 768, layout="halves").shape                           # ViT-MAE, RT-DETR
    (14, 14, 768)
    >>> posenc.grid((14, 14), 768, layout="halves", axes=(1, 0), extra_tokens=1).shape      # MAE, with a CLS token
    (197, 768)
    >>> posenc.grid((2, 2), 6, coordinates=(-1, 1), include_input="first")[0, 1]
    array([-1.        ,  1.        , -0.84147096,  0.5403023 ,  0.84147096,
            0.5403023 ], dtype=float32)
    """
    with _kernel.default_environment():
        check_names(grid, convention, DEFAULTS)
        dtype_name, element = _arguments.dtype(dtype)
        threads = _arguments.threads(threads)
        d_model = _arguments.integer("d_model", d_model, 0)
        extra_tokens = _arguments.integer("extra_tokens", extra_tokens, 0)
        if not isinstance(channel_first, (bool, np.bool_)):
            raise _arguments.wrong_type("channel_first", channel_first, "a bool")
        extents = _extents(shape)
        starts = _per_axis("start", start, len(extents))
        positions = [_axis_positions(extent, m, coordinates) for extent, m in zip(extents, starts, strict=True)]
        laid_out = _lay_out(positions, d_model, axes, widths, group, layout, odd, include_input, convention)
        sizes = tuple(map(len, positions))
        rows = (extra_tokens + math.prod(sizes),) if extra_tokens else sizes
        out = _arguments.output(out, (d_model, *rows) if channel_first else (*rows, d_model), dtype_name, element, "shape")
        cells = out.view(f"u{element.itemsize}")
        if channel_first:
            cells = np.moveaxis(cells, 0, -1)
        if extra_tokens:
            cells[:extra_tokens] = 0
            cells = cells[extra_tokens:].reshape(*sizes, d_model)
        step = max(1, BLOCK_BYTES // max(1, d_model * element.itemsize))
        for corner in itertools.product(*(range(0, n if cells.size else 0, step) for n in sizes)):
            block = tuple(slice(k, k + step) for k in corner)
            tables = [
                axis.table(rows, d_model, dtype_name, element, threads) for axis, rows in zip(laid_out, block, strict=True)
            ]
            if channel_first:
                tables = [np.asfortranarray(table) for table in tables]
            _spread(tables, cells[block])
        return out


# ---- columns ----------------------------------------------------------------------------------------------------------


def _lay_out(
    positions: Sequence[range | NDArray[Any] | _Spaced],
    d_model: int,
    axes: Integers,
    widths: Integers,
    group: str,
    layout: str,
    odd: str,
    include_input: str | None,
    convention: dict[str, Any],
) -> list[_Axis]:
    """Check the arguments and return the axes, each with its encoding and its columns in the table."""
    for name, value in (("group", group), ("layout", layout), ("odd", odd)):
        _arguments.choice(name, value, CHOICES[name])
    if include_input is not None:
        _arguments.choice("include_input", include_input, CHOICES["include_input"])
    ndim = len(positions)
    inputs = ndim if include_input else 0
    if d_model < inputs:
        raise ValueError(f"d_model is {d_model}, expected at least {inputs} for the coordinates of include_input")
    axes = _axis_order(axes, ndim)
    widths = _widths(widths, ndim, d_model, inputs, odd)
    nesting = ORDERS[group, layout]
    # the columns of an axis's encoding must have functions and frequencies in the order of the table
    convention["layout"] = "halves" if nesting.index("function") < nesting.index("frequency") else "interleaved"
    by_axis = {name: _per_axis(name, value, ndim) for name, value in convention.items()}
    conventions = [{name: values[k] for name, values in by_axis.items()} for k in range(ndim)]
    encodings = [encoding_of(width, own, grid) for width, own in zip(widths, conventions, strict=True)]
    index = {
        "axis": np.repeat(np.arange(ndim), [widths[k] for k in axes]),
        "frequency": np.concatenate([np.arange(widths[k]) // 2 for k in axes]),
        "function": np.concatenate([np.arange(widths[k]) % 2 for k in axes]),
    }
    order = np.lexsort([index[name] for name in reversed(nesting)])[: d_model - inputs]
    first = inputs if include_input == "first" else 0
    laid_out = []
    for k, (p, encoding) in enumerate(zip(positions, encodings, strict=True)):
        _check_positions(p, encoding)
        rank = axes.index(k)
        columns = _slices(first + np.flatnonzero(index["axis"][order] == rank))
        input_column = {None: None, "first": rank, "last": d_model - ndim + rank}[include_input]
        laid_out.append(_Axis(p, encoding, columns, input_column))
    return laid_out


def _slices(columns: NDArray[np.intp]) -> list[slice]:
    """Return ascending column indices as a short list of slices."""
    steps = np.diff(columns)
    changes = np.append(np.flatnonzero(np.diff(steps)) + 1, len(steps))
    slices, begin = [], 0
    while begin < len(columns):
        end = changes[np.searchsorted(changes, begin, "right")] if begin < len(steps) else begin
        slices.append(slice(columns[begin], columns[end] + 1, steps[begin] if end > begin else 1))
        begin = end + 1
    return slices


def _axis_order(axes: Any, ndim: int) -> Sequence[int]:
    if axes is None:
        return range(ndim)
    order = [_arguments.integer("axes", k, 0) for k in _per_axis("axes", axes, ndim)]
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes is {tuple(order)}, expected each of {tuple(range(ndim))} once")
    return order


def _widths(widths: Any, ndim: int, d_model: int, inputs: int, odd: str) -> list[int]:
    """Return the number of columns of each axis; `odd` determines whether their sum may differ from the available columns."""
    available = d_model - inputs
    if widths is None:
        pairs, rest = divmod(available, 2 * ndim)
        if rest and odd == "error":
            more = f"{inputs} more than " if inputs else ""
            raise ValueError(
                f"d_model is {d_model}, expected {more}a multiple of {2 * ndim}; or pass widths, odd='zero' or odd='truncate'"
            )
        return [2 * (pairs + (rest > 0 and odd == "truncate"))] * ndim
    widths = [_arguments.integer("widths", width, 0) for width in _per_axis("widths", widths, ndim)]
    for width in widths:
        if width % 2:
            raise ValueError(f"widths has {width}, expected even numbers")
    total = sum(widths)
    if total < available and odd != "zero" or total > available and odd != "truncate":
        raise ValueError(f"widths has sum {total}, expected {available}")
    return list(widths)


def _is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or isinstance(value, np.ndarray) and value.ndim > 0


def _per_axis(name: str, value: Any, ndim: int) -> list[Any]:
    """Return one value for each axis: the elements of a sequence, or the same value; frequencies may be one array for all."""
    if not _is_sequence(value) or name == "frequencies" and not any(map(np.ndim, value)):
        return [value] * ndim
    if len(value) != ndim:
        raise ValueError(f"{name} has length {len(value)}, expected {ndim}, one for each axis")
    return list(value)


# ---- positions --------------------------------------------------------------------------------------------------------


def _extents(shape: Any) -> list[int | range | NDArray[Any]]:
    """Return for each axis its size or its coordinates."""
    extents = []
    for axis in shape if _is_sequence(shape) else [shape]:
        if axis is shape or not (isinstance(axis, (list, tuple, range)) or hasattr(axis, "__array__") and np.ndim(axis)):
            axis = _arguments.length(range(_arguments.integer("shape", axis, 0)))
        elif not isinstance(axis, range):
            axis = np.array(_arguments.range_or_array(axis))        # a copy, because the array may share memory with out
            if axis.ndim != 1:
                raise ValueError(f"shape has coordinates of shape {axis.shape}, expected one dimension")
        extents.append(axis)
    if not extents:
        raise ValueError("shape is empty, expected at least one axis")
    return extents


def _axis_positions(
    extent: int | range | NDArray[Any], start: Any, coordinates: Any
) -> range | NDArray[Any] | _Spaced:
    """Return the positions to encode along an axis."""
    m = Fraction(_arguments.integer("start", start, LOWEST) if _arguments.is_index(start) else _arguments.real("start", start))
    if isinstance(coordinates, str):
        _arguments.choice("coordinates", coordinates, CHOICES["coordinates"])
    elif np.shape(coordinates) != (2,):
        raise TypeError(f"coordinates is {coordinates!r}, expected one of {CHOICES['coordinates']} or (low, high)")
    else:
        low, high = (Fraction(_arguments.real("coordinates", end)) for end in coordinates)
    if not isinstance(extent, int):
        if m:
            raise ValueError(f"start is {m}, expected 0, because shape has the coordinates of an axis")
        return extent
    if coordinates == "index":
        if m.denominator == 1:
            return range(m.numerator, m.numerator + extent)
        step, first = Fraction(1), m
    elif coordinates == "normalized":
        step = 1 / (m + extent - 1 + Fraction(1, 10**6))
        first = m * step
    elif coordinates == "centered":
        step = Fraction(2, max(extent, 1))
        first = (m + Fraction(1, 2)) * step - 1
    else:
        step = (high - low) / max(extent - 1, 1)
        first = low + m * step
    return _Spaced(first, step, extent)


def _check_positions(positions: range | NDArray[Any] | _Spaced, encoding: Encoding) -> None:
    """Check that positions are in the domain, with and without the offset; for evenly spaced positions check the two ends."""
    if isinstance(positions, _Spaced):
        positions = np.concatenate([positions[:1], positions[-1:]])
    try:
        _arguments.positions_of(positions, encoding.position_offset)
    except ValueError as error:
        raise ValueError(f"shape, start and coordinates give positions outside the domain: {error}") from None


def _rounded_bits(positions: range | NDArray[Any], dtype_name: str) -> NDArray[Any]:
    """Return the bits of the positions, each rounded once to a dtype."""
    if dtype_name == "float64":
        return np.asarray(positions, np.float64).view(np.uint64)
    values = [_kernel.rounded(dtype_name, _sticky(p)) for p in np.asarray(positions).tolist()]
    if dtype_name == "bfloat16":                                    # the leading bits of a float32
        return (np.array(values, np.float32).view(np.uint32) >> 16).astype(np.uint16)
    return np.array(values, dtype_name).view(np.uint32 if dtype_name == "float32" else np.uint16)


def _sticky(p: float) -> float:
    """Return a float that rounds to 24 bits or fewer as p does: of a large integer p, the last bit kept ORs all lower bits."""
    return p if abs(p) <= 2**53 or isinstance(p, float) else (p >> 11 | bool(p & 2047)) << 11


# ---- cells ------------------------------------------------------------------------------------------------------------


def _spread(tables: Sequence[NDArray[Any]], cells: NDArray[Any]) -> None:
    """Write to each cell the bitwise OR of one row from each table; the tables fill different columns."""
    if len(tables) == 1:
        cells[...] = tables[0]
    elif len(tables) == 2:
        # write in pieces, so that Python can check signals between them
        rows = max(1, 8 * BLOCK_BYTES // max(1, tables[1].nbytes))
        for begin in range(0, len(tables[0]), rows):
            np.bitwise_or(tables[0][begin : begin + rows, None], tables[1], out=cells[begin : begin + rows])
    else:
        shortest = min(range(len(tables)), key=lambda k: len(tables[k]))
        first, *others = [table for k, table in enumerate(tables) if k != shortest]
        for row, part in zip(tables[shortest], np.moveaxis(cells, shortest, 0), strict=True):
            _spread([row | first, *others], part)
