"""The options of `grid` and `points`, and the columns of each axis."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, SupportsIndex, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.as_array import shown
from posenc._arguments.base_class import changes_of
from posenc._arguments.types import Layout, Odd
from posenc._core import kernel
from posenc._encoding.cache import cached_encoding
from posenc._encoding.columns import WIDEST
from posenc._encoding.encoding import Encoding

Width: TypeAlias = SupportsIndex | Encoding | Sequence[Encoding]
Integers: TypeAlias = Sequence[SupportsIndex] | NDArray[Any] | None
Group: TypeAlias = Literal["axis", "function", "frequency"]
IncludeInput: TypeAlias = Literal["first", "last"]

# (group, layout): the three indices of a column, from the slowest-varying to the fastest-varying
ORDERS = {
    ("axis", "halves"): ("axis", "function", "frequency"),
    ("axis", "interleaved"): ("axis", "frequency", "function"),
    ("function", "halves"): ("function", "axis", "frequency"),
    ("function", "interleaved"): ("function", "frequency", "axis"),
    ("frequency", "halves"): ("frequency", "function", "axis"),
    ("frequency", "interleaved"): ("frequency", "axis", "function"),
}


class Axis(NamedTuple):
    """The encoding of an axis, and the columns of the table that contain it."""

    encoding: Encoding
    columns: tuple[slice, ...]          # of the table, in the order of the encoding's columns
    input_column: int | None

    def write(
        self, positions: range | NDArray[Any], cells: NDArray[Any], dtype_name: str, element: np.dtype[Any], threads: int | None
    ) -> None:
        """Write the encodings of positions to the columns of this axis; `cells` has the bits as unsigned integers."""
        parts = [cells[..., columns] for columns in self.columns]
        width = self.encoding.d_model
        if len(parts) == 1 and parts[0].shape[-1] == width and self.columns[0].step == 1:
            self.encoding.encode(positions, dtype=dtype_name, out=parts[0].view(element), threads=threads)
        elif parts:
            values = np.empty((*cells.shape[:-1], width), element)
            self.encoding.encode(positions, dtype=dtype_name, out=values, threads=threads)
            begin, bits = 0, values.view(cells.dtype)
            for part in parts:
                end = begin + part.shape[-1]
                part[...] = bits[..., begin:end]
                begin = end
        if self.input_column is not None:
            cells[..., self.input_column] = kernel.rounded_bits(dtype_name, positions)

    def check(self, positions: range | NDArray[Any], name: str = "positions") -> range | NDArray[Any]:
        """Check that positions are in the domain, with and without the offset; return a range or a contiguous array."""
        return checks.positions_of(positions, self.encoding.position_offset, name)


def lay_out(
    ndim: int,
    d_model: Any,
    axes: Integers,
    widths: Integers,
    group: str,
    layout: str | None,
    odd: str,
    include_input: str | None,
    convention: Mapping[str, Any],
) -> tuple[int, list[Axis], slice]:
    """Check the options of `grid` or `points`; return d_model, the axes, and the columns that must be filled with zeros."""
    checks.keywords(convention)
    checks.choice("group", group, get_args(Group))
    checks.choice("odd", odd, get_args(Odd))
    for name, value, kind in (("layout", layout, Layout), ("include_input", include_input, IncludeInput)):
        if value is not None:
            checks.choice(name, value, get_args(kind))
    inputs = ndim if include_input else 0
    axes = _axis_order(axes, ndim)
    if isinstance(d_model, Encoding) or isinstance(d_model, (list, tuple)) and any(isinstance(e, Encoding) for e in d_model):
        given = {"layout": layout} if layout is not None else {}
        encodings = _encodings(d_model, ndim, widths, odd, {**given, **convention})
        d_model = inputs + sum(encoding.d_model for encoding in encodings)
        nesting = ORDERS[group, encodings[0].layout]
        specifications = [(encoding.d_model, changes_of(encoding)) for encoding in encodings]
    else:
        hint = "; pass the columns of each axis as widths" if is_sequence(d_model) else ""
        d_model = checks.integer("d_model", d_model, 0, f"an integer or an Encoding{hint}")
        if d_model > WIDEST * ndim:
            raise ValueError(f"d_model is {shown(d_model)}, expected at most {WIDEST} columns for each axis")
        by_axis = {name: per_axis(name, value, ndim) for name, value in convention.items()}
        nesting = ORDERS[group, layout or "interleaved"]
        specifications = [
            (width, {name: values[k] for name, values in by_axis.items()})
            for k, width in enumerate(_widths(widths, ndim, d_model, inputs, odd))
        ]
    # functions and frequencies must have the same order in the encoding of an axis as in the table
    inner = "halves" if nesting.index("function") < nesting.index("frequency") else "interleaved"
    encodings = [cached_encoding(width, {**keywords, "layout": inner}) for width, keywords in specifications]
    first, last = inputs if include_input == "first" else 0, d_model - (inputs if include_input == "last" else 0)
    columns = _columns(tuple(encodings[k].d_model for k in axes), nesting, first, last)
    laid_out = []
    for k, encoding in enumerate(encodings):
        rank = axes.index(k)
        input_column = {None: None, "first": rank, "last": last + rank}[include_input]
        laid_out.append(Axis(encoding, columns[rank], input_column))
    return d_model, laid_out, slice(min(last, first + sum(encoding.d_model for encoding in encodings)), last)


def _encodings(
    d_model: Any, ndim: int, widths: Integers, odd: str, keywords: Mapping[str, Any]
) -> list[Encoding]:
    """Check and return the encoding of each axis; d_model is one Encoding for all axes, or a sequence of encodings."""
    encodings = []
    for encoding in per_axis("d_model", d_model, ndim):
        if not isinstance(encoding, Encoding):
            raise checks.wrong_type("d_model", encoding, "an Encoding, as for the other axes")
        if encoding.d_model % 2:
            raise ValueError(f"d_model is {encoding!r}, expected an even number of columns for each axis")
        encodings.append(cached_encoding(encoding, keywords))
    if widths is not None:
        raise TypeError("an Encoding and widths are both given, expected only one of them; pass an Encoding for each axis")
    if odd != "error":
        raise TypeError("an Encoding and odd are both given, expected only one of them; to add zeros or drop columns, "
                        "pass d_model and keywords")
    layouts = {encoding.layout for encoding in encodings}
    if len(layouts) > 1:
        raise ValueError(f"d_model has Encodings with layouts {sorted(layouts)}, expected one layout; use replace(layout=...)")
    return encodings


@functools.lru_cache(maxsize=64)
def _columns(widths: tuple[int, ...], nesting: tuple[str, ...], first: int, last: int) -> list[tuple[slice, ...]]:
    """Return the columns of each axis, with the axes in the order of the table.

    Every column index is at least `first` and less than `last`.
    """
    index = {
        "axis": np.repeat(np.arange(len(widths)), widths),
        "frequency": np.concatenate([np.arange(width) // 2 for width in widths]),
        "function": np.concatenate([np.arange(width) % 2 for width in widths]),
    }
    order = np.lexsort([index[name] for name in reversed(nesting)])[: last - first]
    return [_slices(first + np.flatnonzero(index["axis"][order] == rank)) for rank in range(len(widths))]


def _slices(columns: NDArray[np.intp]) -> tuple[slice, ...]:
    """Return slices that together contain exactly these ascending column indices."""
    steps = np.diff(columns)
    changes = np.append(np.flatnonzero(np.diff(steps)) + 1, len(steps))
    slices, begin = [], 0
    while begin < len(columns):
        end = changes[np.searchsorted(changes, begin, "right")] if begin < len(steps) else begin
        slices.append(slice(columns[begin], columns[end] + 1, steps[begin] if end > begin else 1))
        begin = end + 1
    return tuple(slices)


def _axis_order(axes: Any, ndim: int) -> Sequence[int]:
    if axes is None:
        return range(ndim)
    order = _integers("axes", axes, ndim)
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes is {tuple(order)}, expected each of {tuple(range(ndim))} once")
    return order


def _widths(given: Any, ndim: int, d_model: int, inputs: int, odd: str) -> list[int]:
    """Return the number of columns of each axis; check that `odd` permits their sum."""
    if d_model < inputs:
        raise ValueError(f"d_model is {d_model}, expected at least {inputs} for the coordinates of include_input")
    available = d_model - inputs
    if given is None:
        pairs, rest = divmod(available, 2 * ndim)
        if rest and odd == "error":
            more = f"{inputs} more than " if inputs else ""
            raise ValueError(
                f"d_model is {d_model}, expected {more}a multiple of {2 * ndim}, twice the number of axes; "
                f"or pass widths, odd='zero' or odd='truncate'"
            )
        return [2 * (pairs + (rest > 0 and odd == "truncate"))] * ndim
    widths = _integers("widths", given, ndim)
    for width in widths:
        if width % 2:
            raise ValueError(f"widths has {width}, expected even numbers")
    total = sum(widths)
    if total < available and odd != "zero" or total > available and odd != "truncate":
        raise ValueError(f"widths has sum {total}, expected {available}")
    return widths


def _integers(name: str, values: Any, ndim: int) -> list[int]:
    """Return the elements of a sequence of integers, one for each axis."""
    if not is_sequence(values) and not isinstance(values, range):
        raise checks.wrong_type(name, values, "a sequence of integers, one for each axis")
    return [checks.integer(name, value, 0) for value in per_axis(name, list(values), ndim)]


def is_sequence(value: Any) -> bool:
    return isinstance(value, (list, tuple)) or isinstance(value, np.ndarray) and value.ndim > 0


def per_axis(name: str, value: Any, ndim: int) -> list[Any]:
    """Return a value for each axis: the elements of a sequence, or copies of a scalar or of a list of frequencies."""
    if not is_sequence(value) or name == "frequencies" and not any(map(np.ndim, value)):
        return [value] * ndim
    if len(value) != ndim:
        raise ValueError(f"{name} has length {len(value)}, expected {ndim}, one for each axis")
    return list(value)
