"""The options of `grid` and `points`, and the columns of each axis."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any, Literal, SupportsIndex, TypeAlias, get_args

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.checks import shown
from posenc._arguments.specification import Layout, Odd
from posenc._axes.axis_columns import AxisColumns, round_positions, slices_of
from posenc._encoding.columns import WIDEST
from posenc._encoding.encoding import KEYWORDS, Encoding, cached_encoding

Width: TypeAlias = SupportsIndex | Encoding | Sequence[Encoding]
Integers: TypeAlias = Sequence[SupportsIndex] | NDArray[Any] | None
Group: TypeAlias = Literal["axis", "function", "frequency"]
IncludeInput: TypeAlias = Literal["first", "last"]

CHOICES = {name: get_args(kind) for name, kind in
           {"group": Group, "odd": Odd, "layout": Layout, "include_input": IncludeInput}.items()}


def lay_out(
    ndim: int, d_model: Any, axes: Integers, widths: Integers, group: str, layout: str | None, odd: str,
    include_input: str | None, convention: Mapping[str, Any],
) -> tuple[int, list[float], list[AxisColumns], slice]:
    """Check the options of `grid` or `points`.

    Return d_model, the position_offset of each axis, the columns of all axes, and the slice of all other columns.
    """
    checks.keywords(convention, KEYWORDS)
    for name, value in {"group": group, "odd": odd, "layout": layout, "include_input": include_input}.items():
        if value is not None or name in ("group", "odd"):
            checks.choice(name, value, CHOICES[name])
    order = list(range(ndim)) if axes is None else _integers("axes", axes, ndim)
    if sorted(order) != list(range(ndim)):
        raise ValueError(f"axes is {tuple(order)}, expected each of {tuple(range(ndim))} once")
    inputs = ndim if include_input else 0
    if isinstance(d_model, Encoding) or isinstance(d_model, (list, tuple)) and any(isinstance(e, Encoding) for e in d_model):
        for name, value in {"layout": layout, "widths": widths, "odd": None if odd == "error" else odd, **convention}.items():
            if value is not None:
                raise TypeError(f"an Encoding and {name} are both given, expected only one of them")
        encodings = _encodings(d_model, ndim)
        nesting, inner_layout = _nesting(group, encodings[0].layout)
        encodings = [encoding.replace(layout=inner_layout) for encoding in encodings]
        d_model = inputs + sum(encoding.d_model for encoding in encodings)
    else:
        d_model = checks.integer("d_model", d_model, inputs, "an integer or an Encoding")
        if d_model > WIDEST * ndim:
            raise ValueError(f"d_model is {shown(d_model)}, expected at most {WIDEST} columns for each axis")
        nesting, inner_layout = _nesting(group, layout or "interleaved")
        by_axis = {name: per_axis(name, value, ndim) for name, value in convention.items()}
        encodings = [
            cached_encoding(width, {name: values[k] for name, values in by_axis.items()} | {"layout": inner_layout})
            for k, width in enumerate(_widths(widths, ndim, d_model, inputs, odd))
        ]
    first = inputs if include_input == "first" else 0
    stop = d_model - inputs + first
    slices = _slices(tuple(encodings[k].d_model for k in order), nesting, first, stop)
    columns = [AxisColumns(k, encodings[k].encode, encodings[k].d_model, slices[rank]) for rank, k in enumerate(order)]
    if include_input:
        begin = 0 if include_input == "first" else stop
        columns += [AxisColumns(k, round_positions, 1, slices_of([begin + rank])) for rank, k in enumerate(order)]
    end = min(stop, first + sum(encoding.d_model for encoding in encodings))
    return d_model, [encoding.position_offset for encoding in encodings], columns, slice(end, stop)


def _nesting(group: str, layout: str) -> tuple[tuple[str, ...], Layout]:
    """Return the three indices of a column, from the slowest-varying to the fastest-varying.

    Also return the layout in which the columns of an axis have the same order as in the table.
    """
    indices = [index for index in ("function", "axis", "frequency") if index != group]
    nesting = (group, *(indices if layout == "halves" else reversed(indices)))
    return nesting, "halves" if nesting.index("function") < nesting.index("frequency") else "interleaved"


@functools.lru_cache(maxsize=64)
def _slices(widths: tuple[int, ...], nesting: tuple[str, ...], first: int, stop: int) -> list[tuple[tuple[slice, slice], ...]]:
    """Return the slices of each axis, in the order of the table; all columns are at least `first` and less than `stop`."""
    index = {
        "axis": np.repeat(np.arange(len(widths)), widths),
        "frequency": np.concatenate([np.arange(width) // 2 for width in widths]),
        "function": np.concatenate([np.arange(width) % 2 for width in widths]),
    }
    axis = index["axis"][np.lexsort([index[name] for name in reversed(nesting)])][: stop - first]
    return [slices_of((first + np.flatnonzero(axis == rank)).tolist()) for rank in range(len(widths))]


def _encodings(d_model: Any, ndim: int) -> list[Encoding]:
    """Return the encoding of each axis; d_model is one Encoding for all axes, or a sequence of encodings."""
    encodings = per_axis("d_model", d_model, ndim)
    for encoding in encodings:
        if not isinstance(encoding, Encoding):
            raise checks.wrong_type("d_model", encoding, "an Encoding, as for the other axes")
        if encoding.d_model % 2 or encoding.layout != encodings[0].layout:
            raise ValueError(f"d_model has {encoding!r}, expected an even number of columns and one layout for all axes")
    return encodings


def _widths(widths: Any, ndim: int, d_model: int, inputs: int, odd: str) -> list[int]:
    """Return the number of columns of each axis; check that `odd` permits their sum."""
    available = d_model - inputs
    if widths is None:
        pairs, remainder = divmod(available, 2 * ndim)
        if remainder and odd == "error":
            multiple = f"{f'{inputs} more than ' if inputs else ''}a multiple of {2 * ndim}"
            raise ValueError(f"d_model is {d_model}, expected {multiple}, or widths, odd='zero' or odd='truncate'")
        return [2 * (pairs + (remainder > 0 and odd == "truncate"))] * ndim
    numbers = _integers("widths", widths, ndim)
    if any(width % 2 for width in numbers):
        raise ValueError(f"widths is {numbers}, expected even numbers")
    total = sum(numbers)
    if total < available and odd != "zero" or total > available and odd != "truncate":
        raise ValueError(f"widths has sum {total}, expected {available}")
    return numbers


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
