"""Checks of arguments.

An error message names the argument, its value or type, and the expected value or type.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence, Sized
from contextlib import contextmanager, suppress
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from functools import partial
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.arrays import DTYPES, as_array, dataframe_columns, masked_array, widened

SECOND = 10**18                         # attoseconds
UNITS = {"W": 604_800 * SECOND, "D": 86_400 * SECOND, "h": 3_600 * SECOND, "m": 60 * SECOND,
         **{unit: SECOND // 1000**i for i, unit in enumerate(("s", "ms", "us", "ns", "ps", "fs", "as"))}}
LOWEST, BEYOND = -(2**63), 2**63        # the domain: LOWEST <= position < BEYOND
MAX_CHARACTERS = 100                     # characters
# keywords of other libraries
SYNONYMS = {**dict.fromkeys(("theta", "rope_theta", "max_period", "temperature"), "base"),
            **dict.fromkeys(("d", "dim"), "d_model or head_dim")}

# ---- numbers and names -------------------------------------------------------------------------------------


def both_given(first: str, second: str) -> ValueError:
    return ValueError(f"{first} and {second} are both given, expected only one of them")


def wrong_type(name: str, value: Any, expected: str) -> TypeError:
    if type(value).__module__.partition(".")[0] == "torch" and expected == "a numpy.ndarray":
        expected += "; posenc.torch.add_to, encode and rotate accept tensors"
    text = "" if getattr(value, "shape", ()) else f"{shown(value)} "
    return TypeError(f"{name} is {text}of type {type(value).__name__}, expected {expected}")


def check_type(name: str, value: Any, kind: Any, expected: str) -> None:
    if not isinstance(value, kind):
        raise wrong_type(name, value, expected)


def check_length(name: str, value: Sized, expected: int, meaning: str) -> None:
    if len(value) != expected:
        raise ValueError(f"{name} has length {len(value)}, expected {expected}{meaning}")


def shown(value: Any) -> str:
    """Return a short ``repr(value)``; repr refuses an integer of more than 4300 digits."""
    with suppress(ValueError):
        text = " ".join(repr(value).split())
        return text if len(text) <= MAX_CHARACTERS else text[:MAX_CHARACTERS] + "..."
    return f"{type(value).__name__}(...)"


def not_installed(feature: str, package: str | None) -> ModuleNotFoundError:
    return ModuleNotFoundError(f"{feature} needs {package}; to install it: pip install {package}", name=package)


@contextmanager
def importing_for(feature: str) -> Iterator[None]:
    """Name the feature and the package in the error for a package that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise not_installed(feature, error.name) from error


def _converted(convert: Callable[[Any], Any], value: Any, dtypes: tuple[str, ...]) -> Any:
    """Return ``convert(value)``, or None for anything but a number, as for a tensor that requires grad.

    The name of its dtype, if any, must begin with one of `dtypes`.
    """
    dtype = getattr(value, "dtype", None)
    name = str(getattr(dtype, "name", dtype)).rpartition(".")[2]
    is_other = dtype is not None and not name.startswith(dtypes)
    is_other |= getattr(value, "requires_grad", False) or isinstance(value, (bool, str, bytes, masked_array()))
    if is_other or np.ndim(value):
        return None
    try:
        return convert(value)
    except TypeError:
        return None
    except (OverflowError, ValueError):
        return math.inf                         # float(10**400), float(Decimal("sNaN"))


def integer(
    name: str, value: Any, lowest: float, expected: str = "an integer", highest: float = BEYOND
) -> int:
    number: int | None = value if type(value) is int else _converted(operator.index, value, ("int", "uint"))
    if number is None:
        raise wrong_type(name, value, expected)
    if number < lowest:
        raise ValueError(f"{name} is {shown(number)}, expected at least {lowest}")
    if number > highest:
        raise ValueError(f"{name} is {shown(number)}, expected at most 2**63")
    return number


def real(name: str, value: Any) -> float:
    """Return a value as a finite float.

    Refuse an integer, fraction, decimal or longdouble that float64 would round.
    """
    if type(value) is float and math.isfinite(value):
        return value
    number: float | None = _converted(float, value, ("int", "uint", "float", "bfloat", "longdouble"))
    if number is None:
        raise wrong_type(name, value, "a real number")
    if not math.isfinite(number):
        raise ValueError(f"{name} is {shown(value)}, expected a finite number")
    source = value
    with suppress(TypeError):
        source = operator.index(value)  # a NumPy integer would be rounded before it is compared with a float
    if isinstance(source, (Rational, Decimal, np.longdouble)) and source != number:
        raise ValueError(f"{name} is {shown(value)}, expected a number that float64 can hold")
    return number


def positive(name: str, value: Any) -> float:
    number = real(name, value)
    if number <= 0:
        raise ValueError(f"{name} is {value!r}, expected a positive number")
    return number


def position(name: str, value: Any) -> int:
    number = integer(name, value, -math.inf, highest=math.inf)
    check_domain((number,), name=name)
    return number


def choice(name: str, value: Any, choices: tuple[str, ...], hint: str = "") -> str:
    check_type(name, value, str, f"one of {choices}")
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {choices}{hint}")
    return str(value)                           # not np.str_, whose repr differs


def boolean(name: str, value: Any) -> bool:
    check_type(name, value, (bool, np.bool_), "a bool")
    return bool(value)


def reals(name: str, value: Any, check: Callable[[str, Any], Any] = real) -> tuple[Any, ...]:
    """Return the elements of a one-dimensional array or list, each converted by `check`."""
    is_list = isinstance(value, Sequence) and not isinstance(value, (str, range))
    array = widened(as_array(name, list(value) if is_list else value))      # NumPy takes no list of OmegaConf
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    return tuple(check(f"{name}[{i}]", number) for i, number in enumerate(array.tolist()))


def integers(name: str, value: Any) -> tuple[int, ...]:
    return reals(name, value, partial(integer, lowest=0))


def periods(name: str, value: Any) -> tuple[int | float | str, ...]:
    """Return positive numbers, as integers if they are exact, or durations as texts in their largest unit."""
    items = value if isinstance(value, (list, tuple)) else as_array(name, value, times=True)
    if isinstance(items, np.ndarray) and items.ndim != 1:
        raise ValueError(f"{name} has shape {items.shape}, expected one dimension, as in [24, 7] or ['1D']")
    kept = tuple(_period(f"{name}[{i}]", item) for i, item in enumerate(items))
    if len({isinstance(item, str) for item in kept}) > 1:
        raise TypeError(f"{name} has numbers and durations, expected only one kind")
    return kept


def _period(name: str, value: Any) -> int | float | str:
    if isinstance(value, (str, timedelta, np.timedelta64)):
        duration = attoseconds(name, value)
        unit = next(unit for unit in UNITS if unit != "W" and duration % UNITS[unit] == 0)
        return f"{duration // UNITS[unit]}{unit}"
    if isinstance(value, (int, np.integer)) and not isinstance(value, bool) and 0 < value < 2**1000:
        return int(value)
    number = positive(name, value)
    return int(number) if number < 2**53 and number == int(number) else number


def attoseconds(name: str, value: str | timedelta | np.timedelta64) -> int:
    """Return a positive duration as an integer."""
    if isinstance(value, timedelta):
        # a Timedelta of pandas has nanoseconds
        value = value.to_timedelta64() if hasattr(value, "to_timedelta64") else np.timedelta64(value)
    if isinstance(value, np.timedelta64):
        unit, multiple = np.datetime_data(value.dtype)
        count = int(value.astype(np.int64)) * multiple
    else:
        match = re.fullmatch(r"(\d{1,60}) ?([A-Za-z]+)", value)
        count, unit = (int(match[1]), match[2]) if match else (0, "")
    if unit not in UNITS or count <= 0:
        units = f"one of the units {', '.join(UNITS)} (months and years have no fixed length)"
        raise ValueError(f"{name} is {shown(value)}, expected a positive duration in {units}")
    return int(count * UNITS[unit])


def threads(value: Any) -> int | None:
    return None if value is None else integer("threads", value, 1, highest=math.inf)


# ---- positions ---------------------------------------------------------------------------------------------


def is_index(positions: object) -> bool:
    """Return whether positions is an integer n, which means ``range(n)``, and not an array of one integer."""
    if isinstance(positions, np.generic):
        return isinstance(positions, np.integer)
    is_array = hasattr(positions, "__array__") or hasattr(positions, "__dlpack__")
    return hasattr(positions, "__index__") and not is_array


def check_keyword_names(names: Iterable[str], valid_names: Collection[str]) -> None:
    """Raise a TypeError for a keyword that is not accepted."""
    for name in names:
        if name not in valid_names:
            valid = f"besides its own parameters, the call takes {', '.join(valid_names)}"
            synonym = f", called {SYNONYMS[name]} in posenc" if name in SYNONYMS else ""
            raise TypeError(f"unexpected keyword argument {name!r}{synonym}; {valid}")


def range_of(positions: object, offset: float = 0.0, name: str = "positions") -> range:
    """Return positions as a range; check that they are in the domain, with and without `offset`."""
    if not isinstance(positions, range):
        if not is_index(positions):
            raise wrong_type(name, positions, "an integer or a range")
        positions = range(integer(name, positions, 0))
    if positions:
        check_domain((positions[0], positions[-1]), offset, name)
        if (positions[-1] - positions[0]) // positions.step >= BEYOND - 1:
            raise ValueError(f"{name} is {positions}, expected fewer than 2**63 positions")
    return positions


def positions_of(positions: Any, offset: float = 0.0, name: str = "positions") -> range | NDArray[Any]:
    """Return positions as a range, or as a contiguous array of int64 or float64.

    Check that they are in the domain.

    Arrays and columns of 16 bits whose positions may have been rounded are refused.  The conversion may call
    methods of the argument.
    """
    if isinstance(positions, range) or not isinstance(positions, np.ndarray) and is_index(positions):
        return range_of(positions, offset, name)
    if positions is None or isinstance(positions, (float, np.floating)):
        raise wrong_type(name, positions, "an integer, a range or an array")
    original = as_array(name, positions)
    array = widened(original)
    kind = array.dtype.kind
    if kind not in "iuf" or array.dtype.itemsize > 8 or array.dtype.str[1:] == "f1":        # float8_e5m2
        items = list(array.flat) if kind == "O" else []
        objects = [p for p in items if not isinstance(p, (int, float))]
        if not objects:
            check_domain(items, name=name)
        example = f" and contains {shown(objects[0])} of type {type(objects[0]).__name__}" if objects else ""
        raise TypeError(f"{name} has dtype {array.dtype}{example}, "
                        "expected integers up to 64 bits or reals of 16 to 64 bits")
    with np.errstate(all="ignore"):             # signalling NaNs would cause a warning
        # columns of different dtypes become float64
        for column, converted in dataframe_columns(positions, array) or [(original, array)]:
            if dtype := {"f2": "float16", "V2": "bfloat16"}.get(np.asarray(column).dtype.str[1:]):
                _check_not_rounded(name, converted, dtype)
        if kind != "i" or offset:
            finite = array[np.isfinite(array)] if kind == "f" else array
            check_domain((finite.min().item(), finite.max().item()) if finite.size else (), offset, name)
        return np.require(array, np.float64 if kind == "f" else np.int64, ("C", "A"))


def times_of(name: str, value: Any) -> NDArray[Any]:
    """Return datetimes or durations as an array in native byte order, with a unit of fixed length."""
    dtype: Any = getattr(value, "dtype", None)
    dtype = getattr(dtype, "pyarrow_dtype", dtype)
    if getattr(dtype, "tz", None):              # pandas
        value = np.asarray(value, f"datetime64[{dtype.unit}]")
    array = as_array(name, [] if value is None or isinstance(value, range) else value, times=True)
    if array.dtype.kind not in "mM":
        raise TypeError(f"{name} is {shown(value)}, expected datetime64 or timedelta64, as periods are durations")
    if np.datetime_data(array.dtype)[0] not in UNITS:
        raise ValueError(f"{name} has dtype {array.dtype}, expected one of the units {', '.join(UNITS)}")
    _check_times(name, value, array)
    return array.astype(array.dtype.newbyteorder("="), copy=False)


def _check_times(name: str, value: Any, converted: NDArray[Any]) -> None:
    """Raise an error for other values beside times, and for times that the common unit cannot hold."""
    parts = dataframe_columns(value, converted)
    if isinstance(value, (list, tuple)):
        kinds = {getattr(item, "dtype", type(item)) for item in value}
        parts = list(zip(value, converted, strict=True)) if len(kinds) > 1 or kinds & {list, tuple} else []
    for part, times in parts:
        _check_times(name, part, times)
    if parts or (own := np.asarray(value)).dtype == converted.dtype:
        return
    times = own if own.dtype.kind in "iufmM" else np.asarray(value, f"{converted.dtype.kind}8")     # datetime, None
    if times.dtype.kind != converted.dtype.kind:
        raise TypeError(f"{name} has {shown(value)} beside {converted.dtype}, expected only datetimes or only durations")
    if ((converted.astype(times.dtype) != times) & ~np.isnat(times)).any():
        raise ValueError(f"{name} has {times.dtype} beside {converted.dtype}, which cannot hold its times; use one unit")


def _check_not_rounded(name: str, array: NDArray[Any], dtype: str) -> None:
    """Raise a ValueError if positions of a 16-bit dtype are so large that they may be rounded integers."""
    most = 2 ** DTYPES[dtype].precision
    beyond = array[np.isfinite(array) & (abs(array) >= most)]
    if beyond.size:
        largest = float(beyond[np.argmax(abs(beyond))])
        raise ValueError(f"{name} reach {largest:.17g} in {dtype}, expected less than {most}, as larger integers "
                         "may be rounded; make them int64 or, if they are exact, float64")


def check_domain(positions: Iterable[Any], offset: float = 0.0, name: str = "positions") -> None:
    """Raise a ValueError for a position outside the domain, with or without the offset."""
    for p in positions:
        is_inside = LOWEST <= p < BEYOND
        if not is_inside or offset and not LOWEST <= Fraction(p) + Fraction(offset) < BEYOND:
            with_offset = f" with position_offset {offset}" if is_inside else ""
            value = shown(int(p)) if isinstance(p, (int, Fraction)) else float(p)
            raise ValueError(f"{name} has {value}{with_offset}, expected -2**63 <= position < 2**63")


# ---- positions of the rows of an array ---------------------------------------------------------------------


def broadcast(positions: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return positions broadcast to a shape, as a contiguous array."""
    check_broadcast(positions.shape, shape)
    return np.require(np.broadcast_to(positions, shape), None, ("C", "A")).reshape(shape)


def axes_error(positions: Any, axes: int) -> ValueError:
    value = f"of shape {tuple(positions.shape)}" if hasattr(positions, "shape") else shown(positions)
    return ValueError(f"positions is {value}, expected shape ({axes}, ...), with an element for each axis")


def length_error(length: int, n: int | None) -> ValueError:
    return ValueError(f"positions has length {length}, expected {n}, the number of rows of x")


def check_broadcast(shape: tuple[int, ...], expected: tuple[int, ...], has_axes: bool = False) -> None:
    """Check that positions have one dimension, or as many as `expected`, and broadcast to this shape.

    Other numbers of dimensions are refused.  If batch and heads were equal, positions of shape (batch, n)
    would be broadcast to (batch, heads, n) as if their shape were (heads, n).  A single position for several
    rows is refused, because the caller may mean consecutive positions.  If `has_axes`, the first dimension of
    positions selects an axis and is not broadcast.
    """
    sizes, n = shape[has_axes:], len(expected)
    is_single = len(sizes) < 2 and all(length == 1 for length in sizes) and n > 0 and expected[-1] > 1
    # torch.compile gives a wrong answer to `p in (1, rows)` if only one of them is symbolic
    last = expected[max(0, n - len(sizes)) :]
    fits = len(sizes) <= n and all(p == 1 or p == rows for p, rows in zip(sizes, last, strict=True))
    if is_single:
        consecutive = f"; range(p, p + {expected[-1]}) has consecutive positions"
        raise ValueError(f"positions has shape {shape}, expected {expected[-1:]}{consecutive}")
    if not fits or 1 < len(sizes) < n:
        fitting = f" or {n} dimensions that fit {expected}" if n > 1 else ""
        fitting += " after the first dimension" if has_axes else ""
        raise ValueError(f"positions has shape {shape}, expected {expected[-1:]}{fitting}")
