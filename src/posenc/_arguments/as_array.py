"""Convert lists, tensors, and pandas, polars and Arrow columns to arrays without rounding, or raise an error."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

LONGEST_SHOWN = 100         # characters


def shown(value: Any) -> str:
    """Return a short ``repr(value)``; repr refuses an integer of more than 4300 digits."""
    try:
        text = " ".join(repr(value).split())
    except ValueError:
        return f"{type(value).__name__}(...)"
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."


def as_array(name: str, value: Any) -> NDArray[Any]:
    """Return ``np.asarray(value)``; raise an error for nulls, times, and integers that NumPy would round."""
    # Use sys.modules, because the first use of np.ma is an import, which may fail in a process that has dropped its privileges.
    if value is None or isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(f"{name} is of type {type(value).__name__}, expected an array or a list of numbers, without a mask")
    only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array = np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:     # ragged lists, tensors that require grad
        kind = ValueError if isinstance(error, ValueError) else TypeError
        raise kind(f"{name} is of type {type(value).__name__}, expected an array: {error}") from None
    if array.dtype.kind in "mM":
        code = f'numpy.asarray({name}).astype("{array.dtype}").astype("int64")'
        nat = np.count_nonzero(np.isnat(array))
        raise TypeError(f"{name} has dtype {array.dtype} with {nat} NaT, expected numbers such as {code}")
    if array.dtype.kind == "O" or array.dtype.kind == "f" and not isinstance(value, np.ndarray):
        with np.errstate(all="ignore"):         # signalling NaNs would cause a warning
            is_exact = array.dtype.kind == "f" and bool((abs(array) < 2**53).all())
        for column, converted in () if is_exact else columns(value, array) or [(value, array)]:
            _check_exact(name, column, converted)
    return array


def columns(value: Any, array: Any) -> list[tuple[Any, Any]]:
    """Return each column of an Arrow, polars or pandas table with its part of `array`, or [] for any other value."""
    parts: Any = ()
    if hasattr(value, "itercolumns"):           # Arrow
        parts = value.itercolumns()
    elif hasattr(value, "iter_columns"):        # polars
        parts = value.iter_columns()
    elif hasattr(value, "iterrows"):            # pandas
        parts = (column for _, column in value.items())
    return list(zip(parts, array.T, strict=True)) if parts else []


def _check_exact(name: str, column: Any, converted: NDArray[Any]) -> None:
    """Raise an error for nulls, and for integers that NumPy has rounded to float64."""
    objects = list(np.array(_python_numbers(column), object).flat)
    is_pandas = hasattr(column, "isna")
    nulls = sum(x is None for x in objects)
    if is_pandas and not isinstance(column.dtype, np.dtype):        # categories have NaN for nulls
        nulls = int(column.isna().sum())
    if nulls:
        raise ValueError(f"{name} has {nulls} null{'s' * (nulls > 1)} among {len(objects)} values, expected numbers")
    if converted.dtype.kind == "O":
        return
    had_nulls = is_pandas and bool(np.isnan(converted).any())       # pandas converts nulls to NaN
    for x, y in zip(objects, np.ravel(converted).tolist(), strict=True):
        if isinstance(x, (int, np.integer)) and int(x) != y:
            raise ValueError(f"{name} has {x} beside real or negative numbers, expected an integer that float64 can hold")
        if had_nulls and 2**53 <= abs(y) < np.inf:
            raise ValueError(f"{name} has NaN beside numbers of 2**53 or more, which pandas may have rounded; use dtype Int64")


def _python_numbers(value: Any) -> Any:
    """Return a column as a list of Python numbers; convert the columns in a list, too."""
    for method in ("to_pylist", "to_list", "tolist"):     # Arrow; polars and pandas; NumPy
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (list, tuple)) and not all(isinstance(x, (int, float)) for x in value):
        return [_python_numbers(x) for x in value]
    return value
