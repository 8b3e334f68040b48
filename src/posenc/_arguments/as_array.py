"""Convert lists, tensors, and pandas, polars and Arrow columns to arrays without rounding, or raise an error."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from datetime import date, datetime, timedelta
from typing import Any

import numpy as np
from numpy.typing import NDArray

UNITS = {
    "Y": "years", "M": "months", "W": "weeks", "D": "days", "h": "hours", "m": "minutes",
    "s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "nanoseconds", "generic": "units",
}
LONGEST_SHOWN = 100         # characters


def shown(value: Any) -> str:
    """Return a short ``repr(value)``; if repr fails, as for an integer of more than 4300 digits, return a description."""
    try:
        text = " ".join(repr(value).split())
        return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "..."
    except ValueError:
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"{type(value).__name__}(...)"


def tensor_hint(name: str, value: Any, written: bool = False, has_torch_function: bool = True) -> str:
    """Return a hint for the end of a message if a value is a PyTorch tensor, else "".

    The hint shows an expression that converts the tensor to an array.  If the called function
    writes to the array (`written`), an expression that copies is left out.  `has_torch_function` is whether posenc.torch has a
    similar function.
    """
    tensor: Any = getattr(sys.modules.get("torch"), "Tensor", ())
    if not isinstance(value, tensor):
        return ""
    is_bfloat16 = str(value.dtype) == "torch.bfloat16"          # NumPy has no bfloat16
    copied = (".cpu()" if value.device.type != "cpu" else "") + (".float()" if is_bfloat16 else "")
    array = f"{name}{'.detach()' if value.requires_grad else ''}{copied}.numpy() is an array"
    if not has_torch_function:
        return f"; {array}"
    return "; posenc.torch has functions for tensors" + ("" if written and copied else f", and {array}")


def as_array(name: str, value: Any, has_torch_function: bool = True) -> NDArray[Any]:
    """Return ``np.asarray(value)``; raise an error for nulls, times, and integers that NumPy would round."""
    # Use sys.modules, because the first use of np.ma is an import, which may fail in a process that has dropped its privileges.
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(f"{name} is of type MaskedArray, expected an array without a mask")
    if value is None:
        raise TypeError(f"{name} is None, expected an array")
    only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array = np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except (ValueError, TypeError, RuntimeError, BufferError) as error:     # ragged lists, tensors that require grad
        error_type = ValueError if isinstance(error, ValueError) else TypeError
        reason, hint = str(error).rstrip("."), tensor_hint(name, value, has_torch_function=has_torch_function)
        raise error_type(f"{name} is of type {type(value).__name__}, expected an array: {reason}{hint}") from None
    if array.dtype.kind in ("m", "M", "O"):
        _refuse_times(name, value, array)
    if array.dtype.kind in ("f", "O") and not isinstance(value, np.ndarray):
        _check_exact(name, value, array)
    return array


def _check_exact(name: str, value: Any, array: NDArray[Any]) -> None:
    """Raise an error for nulls, and for integers that NumPy has rounded to float64."""
    if array.dtype.kind == "O":
        missing = getattr(sys.modules.get("pandas"), "NA", None)
        nulls, parts = sum(x is None or x is missing for x in array.flat), []
    else:
        with np.errstate(all="ignore"):         # signalling NaNs would cause a warning
            if (abs(array) < 2**53).all():
                return
        parts = list(_parts(value, array))
        nulls = sum(_count_nulls(part) for part, _ in parts)
        if not nulls and (rounded := sum(_nans_beside_large(part, converted) for part, converted in parts)):
            raise ValueError(
                f"{name} has {rounded} NaN beside numbers of 2**53 or more, which pandas may have rounded; "
                f"use the dtype Int64, or to_numpy() if the numbers are exact"
            )
    if nulls:
        raise ValueError(f"{name} has {nulls} null{'s' * (nulls > 1)}; fill or drop {'them' if nulls > 1 else 'it'}")
    for part, converted in parts if parts and parts[0][0] is not value else ():
        original = np.asarray(part)
        if original.dtype.kind in "iuO":
            for x, y in zip(original.ravel().tolist(), np.ravel(converted).tolist(), strict=True):
                if isinstance(x, int) and x != y:
                    raise ValueError(
                        f"{name} has {x} beside real or negative numbers, expected an integer that float64 can hold"
                    )


def columns(value: Any, array: Any) -> list[tuple[Any, Any]]:
    """Return each column of an Arrow, polars or pandas table with its part of `array`, or [] for any other value."""
    if hasattr(value, "itercolumns"):           # Arrow
        return list(zip(value.itercolumns(), array.T, strict=True))
    if hasattr(value, "iter_columns"):          # polars
        return list(zip(value.iter_columns(), array.T, strict=True))
    if hasattr(value, "iterrows"):              # pandas
        return list(zip((column for _, column in value.items()), array.T, strict=True))
    return []


def _parts(value: Any, array: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each element of nested lists, or each column of an Arrow, polars or pandas table, with its part of `array`.

    Python floats in lists are left out, because they are exact.  A value that is neither a list nor a table is yielded whole.
    """
    pairs = columns(value, array)
    if array.ndim and not hasattr(value, "__array__"):
        pairs = list(zip(value, array, strict=True))
    elif not pairs:
        yield value, array
        return
    for part, converted in pairs:
        if type(part) is not float:
            yield from _parts(part, converted)


def _count_nulls(column: Any) -> int:
    """Return the number of nulls in an Arrow, polars or pandas column."""
    while hasattr(getattr(column, "dtype", None), "inner"):     # a polars column of arrays
        column = column.explode()
    count = getattr(column, "null_count", None)
    if count is not None:
        return int(count() if callable(count) else count)
    # In a column with a NumPy dtype, isna() also counts NaN, which is not a null; see _nans_beside_large.
    if hasattr(column, "isna") and not isinstance(column.dtype, np.dtype):
        return int(np.count_nonzero(column.isna()))
    return 0


def _nans_beside_large(column: Any, converted: NDArray[Any]) -> int:
    """Return the number of NaN in a pandas column that also has numbers of 2**53 or more, or 0 for any other column."""
    if not (hasattr(column, "isna") and isinstance(column.dtype, np.dtype)):
        return 0
    large = abs(converted[np.isfinite(converted)].astype(np.float64)) >= 2**53      # float16 cannot hold 2**53
    return int(np.count_nonzero(np.isnan(converted))) if large.any() else 0


# ---- times ------------------------------------------------------------------------------------------------------------


def _refuse_times(name: str, value: Any, array: NDArray[Any]) -> None:
    """Raise a TypeError for dates, times and durations.  The caller must choose a unit; the message shows a conversion."""
    dtype = str(getattr(value, "dtype", getattr(value, "type", array.dtype)))
    zone = re.match(r"(?:datetime64|timestamp)\[(\w+), ", dtype)         # pandas converts times with a time zone to objects
    if array.dtype.kind != "O" or zone:
        code, numbers = _conversion(name, value, array, zone and zone[1])
    else:
        times = [x for x in array.flat if isinstance(x, (date, timedelta))]
        if not times:
            return
        code, numbers = _conversion_of_objects(name, array, times)
    missing = sum(x is None or x != x for x in array.flat) if array.dtype.kind == "O" else np.count_nonzero(np.isnat(array))
    nat = f" with {missing} NaT: drop or fill {'them' if missing > 1 else 'it'}, then" if missing else ", expected numbers;"
    raise TypeError(f"{name} has dtype {dtype}{nat} write {code} for {numbers}")


def _conversion(name: str, value: Any, array: NDArray[Any], zoned_unit: str | None) -> tuple[str, str]:
    """Return an expression that converts an array or a column to integers, and a description of the integers."""
    unit, count = (zoned_unit, 1) if zoned_unit else np.datetime_data(array.dtype)
    is_time = array.dtype.kind != "m"
    numbers = (f"{count} " if count > 1 else "") + UNITS.get(unit, unit) + (" since 1970" if is_time else "")
    if hasattr(value, "cast") and hasattr(value, "type"):               # Arrow
        if unit == "D":
            return f'{name}.cast("date32").cast("int32")', numbers
        return f'{name}.cast("{"timestamp" if is_time else "duration"}[{unit}]").cast("int64")', numbers
    if hasattr(getattr(value, "dt", None), "epoch"):                    # polars
        return f'{name}.dt.epoch("{unit.lower()}")' if is_time else f"{name}.dt.total_{UNITS[unit]}()", numbers
    dtype = f"datetime64[{unit}, UTC]" if zoned_unit else array.dtype
    converted = f'{name}.astype("{dtype}")' if hasattr(value, "astype") else f'numpy.asarray({name}, "{dtype}")'
    code = f'{converted}.astype("int64")'
    return f"[{code}]" if isinstance(value, np.generic) else code, numbers      # a single integer n would mean range(n)


def _conversion_of_objects(name: str, array: NDArray[Any], times: list[Any]) -> tuple[str, str]:
    """Like `_conversion`, for objects of ``datetime`` classes, or of their pandas subclasses, which also hold nanoseconds."""
    first = next((x for x in times if x == x), times[0])                # NaT differs from itself
    is_time = not isinstance(first, timedelta)
    if any(hasattr(x, "value") and x == x for x in times):              # NumPy would drop the nanoseconds
        numbers = "nanoseconds" + (" since 1970" if is_time else "")
        return f"[p.value for p in {name}]" if array.ndim else f"[{name}.value]", numbers
    if isinstance(first, datetime) and first.tzinfo:
        numbers = "seconds since 1970, rounded to float64"
        return f"[p.timestamp() for p in {name}]" if array.ndim else f"[{name}.timestamp()]", numbers
    unit = "us" if isinstance(first, (datetime, timedelta)) else "D"
    return _conversion(name, None, np.empty(0, f"{'datetime64' if is_time else 'timedelta64'}[{unit}]"), None)
