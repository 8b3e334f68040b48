"""The checks of arguments, of every function alike: the kind, then the value; what came and what was wanted."""

from __future__ import annotations

import functools
import math
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from posenc import _kernel

LOWEST, BEYOND = -(2**63), 2**63        # positions p have LOWEST <= p < BEYOND
REAL = "integers of at most 64 bits, float64, float32, float16 or bfloat16"

# ---- numbers and names ----------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """repr, also of an integer of more digits than Python writes."""
    try:
        return repr(value)
    except ValueError:
        return f"an integer of {value.bit_length()} bits" if isinstance(value, int) else f"{type(value).__name__}(...)"


def _is_number(value: Any, kinds: tuple[str, ...]) -> bool:
    """Whether a value is one number; where it has a dtype, of NumPy or of a tensor, of these kinds."""
    dtype = getattr(value, "dtype", None)
    if dtype is None:
        return not isinstance(value, (bool, str, bytes)) and np.ndim(value) == 0
    return str(getattr(dtype, "name", dtype)).rpartition(".")[2].startswith(kinds) and np.ndim(value) == 0


def integer(name: str, value: Any, lowest: float) -> int:
    if isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name} is a bool, expected an integer")
    try:
        if type(value) is not int and not _is_number(value, ("int", "uint")):
            raise TypeError
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}, expected an integer") from None
    if number < lowest:
        raise ValueError(f"{name} is {shown(number)}, expected at least {lowest}")
    return number


def real(name: str, value: Any) -> float:
    try:
        if not _is_number(value, ("int", "uint", "float", "bfloat", "longdouble")):
            raise TypeError
        number = float(value)
    except TypeError:
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}, expected a real number") from None
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError(f"{name} is {shown(value)}, expected a finite number")
    if _is_another(value, number):
        raise ValueError(f"{name} is {shown(value)}, expected a number that float64 can hold")
    return number


def _is_another(value: Any, number: float) -> bool:
    """Whether a value that was given exactly is not the float64 that was made of it."""
    with suppress(TypeError):
        value = operator.index(value)           # NumPy compares an integer with a float as two floats
    return isinstance(value, (Rational, Decimal, np.longdouble)) and bool(value != number)


def position(name: str, value: Any) -> int:
    number = integer(name, value, -math.inf)
    if not LOWEST <= number < BEYOND:
        raise ValueError(f"{name} is {shown(number)}, expected -2**63 <= {name} < 2**63")
    return number


def choice(name: str, value: Any, choices: tuple[str, ...]) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{name} is {shown(value)} of type {type(value).__name__}, expected one of {choices}")
    if value not in choices:
        raise ValueError(f"{name} is {value!r}, expected one of {choices}")
    return str(value)                           # not np.str_, which a repr would show


def as_array(name: str, value: Any) -> NDArray[Any]:
    """What NumPy makes an array of; may run others' code, such as __array__."""
    # not np.ma: NumPy imports it at that moment, from files that a process without its former rights may be unable to read
    if isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())):
        raise TypeError(f"{name} is of type MaskedArray, expected an array without a mask")
    try:
        array = np.asarray(value)
    except ValueError as error:                 # such as of rows of several lengths
        raise ValueError(f"{name} is of type {type(value).__name__}, expected an array: {error}") from None
    except (TypeError, RuntimeError) as error:  # such as of a tensor that requires grad
        raise TypeError(f"{name} is of type {type(value).__name__}, expected an array: {error}") from None
    if array.dtype.kind in ("f", "O") and not isinstance(value, np.ndarray):
        _check_exact(name, value, array)
    return array


def _check_exact(name: str, value: Any, array: NDArray[Any]) -> None:
    """Refuses what NumPy has lost: it makes NaN of nulls, and float64 of integers beside real numbers or of another sign."""
    if array.dtype.kind == "O":
        missing = getattr(sys.modules.get("pandas"), "NA", None)
        nulls, parts = sum(x is None or x is missing for x in array.flat), []
    else:
        with np.errstate(all="ignore"):         # a signalling NaN
            if (abs(array) < 2**53).all():
                return
        parts = list(_parts(value, array))
        nulls = sum(_nulls(part) for part, _ in parts)
    if nulls:
        raise ValueError(f"{name} has {nulls} null{'s' * (nulls > 1)}; fill or drop {'them' if nulls > 1 else 'it'}")
    for part, taken in parts if parts and parts[0][0] is not value else ():
        given = np.asarray(part)
        if given.dtype.kind in "iuO":
            for x, y in zip(given.ravel().tolist(), np.ravel(taken).tolist(), strict=True):
                if isinstance(x, int) and x != y:
                    raise ValueError(f"{name} has {x} beside real numbers, expected an integer that float64 can hold")


def _parts(value: Any, taken: Any) -> Iterator[tuple[Any, Any]]:
    """What is in a list, or the columns of a table of Arrow, polars or pandas; each with what NumPy took for it."""
    pairs: Iterator[tuple[Any, Any]]
    if taken.ndim and not hasattr(value, "__array__"):
        pairs = zip(value, taken, strict=True)
    elif hasattr(value, "itercolumns"):
        pairs = zip(value.itercolumns(), taken.T, strict=True)
    elif hasattr(value, "iter_columns"):
        pairs = zip(value.iter_columns(), taken.T, strict=True)
    elif hasattr(value, "iterrows"):
        pairs = zip((column for _, column in value.items()), taken.T, strict=True)
    else:
        yield value, taken
        return
    for part, its in pairs:
        if type(part) is not float:
            yield from _parts(part, its)


def _nulls(column: Any) -> int:
    """How many nulls a column of Arrow, polars or pandas has, by the names that each of them has for it."""
    while hasattr(getattr(column, "dtype", None), "inner"):     # of polars, each element an array
        column = column.explode()
    count = getattr(column, "null_count", None)
    if count is not None:
        return int(count() if callable(count) else count)
    # with NumPy's dtypes pandas counts NaN, which is a number
    if hasattr(column, "isna") and not isinstance(column.dtype, np.dtype):
        return int(np.count_nonzero(column.isna()))
    return 0


def numbers(name: str, value: Any) -> NDArray[Any]:
    """An array; of bfloat16, which NumPy's operations do not know, as float32."""
    array = as_array(name, value)
    return array.astype(np.float32) if array.dtype.name == "bfloat16" else array


def frequencies(name: str, value: Any) -> tuple[float, ...]:
    array = numbers(name, value)
    if array.dtype.kind not in "iuf" or array.dtype.itemsize > 8:
        raise TypeError(f"{name} has dtype {array.dtype}, expected {REAL}")
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    given, array = array, array.astype(np.float64)
    if not np.isfinite(array).all():
        raise ValueError(f"{name} has {array[~np.isfinite(array)][0]}, expected finite numbers")
    for x, y in zip(given.tolist(), array.tolist(), strict=True) if given.dtype.kind in "iu" else ():
        if x != y:
            raise ValueError(f"{name} has {x}, expected numbers that float64 can hold")
    return tuple(array.tolist())


def optional(name: str, value: Any, check: Callable[[str, Any], Any]) -> Any:
    return None if value is None else check(name, value)


def dtype(dtype: Any, what: str = "dtype is") -> tuple[str, np.dtype[Any]]:
    """Name and np.dtype of an output dtype; bfloat16 is uint16 where ml_dtypes is not there."""
    if isinstance(dtype, str) and dtype == "bfloat16" or getattr(dtype, "__name__", getattr(dtype, "name", None)) == "bfloat16":
        return "bfloat16", _bfloat16()
    try:
        element = np.dtype(dtype)
    except (TypeError, SyntaxError):            # of a text such as "(2,"
        raise TypeError(f"{what} {dtype!r}, expected float64, float32, float16 or bfloat16") from None
    # NumPy takes None for float64
    if dtype is None or element.kind != "f" or element.name not in _kernel.DTYPES:
        raise TypeError(f"{what} {dtype!r}, expected float64, float32, float16 or bfloat16")
    if not element.isnative:
        raise ValueError(f"{what} {dtype!r}, expected the byte order of the machine")
    return element.name, element


@functools.cache
def _bfloat16() -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError:
        return np.dtype(np.uint16)
    element: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
    return element


def threads(threads: Any) -> int | None:
    return None if threads is None else integer("threads", threads, 1)


# ---- positions ------------------------------------------------------------------------------------------------------


def is_index(positions: object) -> bool:
    """Whether positions is a number of positions: an integer, but no array."""
    if isinstance(positions, np.generic):
        return isinstance(positions, np.integer)
    return hasattr(positions, "__index__") and not hasattr(positions, "__array__")


def range_or_array(positions: Any) -> range | NDArray[Any]:
    """Positions as a range or an array; may run others' code, such as __index__ or __array__."""
    if isinstance(positions, range):
        return positions
    if isinstance(positions, (bool, np.bool_, float, np.floating, complex, str, bytes)) or positions is None:
        kind = type(positions).__name__
        raise TypeError(f"positions is {positions!r} of type {kind}, expected an integer, a range or an array")
    if not isinstance(positions, np.ndarray) and is_index(positions):
        return range(integer("positions", positions, 0))
    return numbers("positions", positions)


def positions_of(positions: range | NDArray[Any], offset: float) -> range | NDArray[Any]:
    """Positions that are all in the domain: a range, or a contiguous array of int64 or float64."""
    if isinstance(positions, range):
        check_domain(positions, offset)
        return positions
    array, kind = positions, positions.dtype.kind
    if kind == "O" and all(type(p) is int for p in array.flat):
        for p in array.flat:
            if not LOWEST <= p < BEYOND:
                raise_outside(p)
    if kind not in "iuf" or array.dtype.itemsize > 8:
        raise TypeError(f"positions has dtype {array.dtype}, expected {REAL}")
    shape = array.shape
    array = array.ravel()
    outside: NDArray[np.bool_] | None = None
    if kind == "f":
        with np.errstate(all="ignore"):         # a signalling NaN
            array = np.require(array, np.float64, ("C", "A"))
        outside = np.isfinite(array) & ~((array >= LOWEST) & (array < BEYOND))
    elif kind == "u" and array.dtype.itemsize == 8:
        outside = array > np.uint64(BEYOND - 1)
    if outside is not None and outside.any():
        raise_outside(array[outside][0])
    array = np.require(array, np.float64 if kind == "f" else np.int64, ("C", "A"))
    if offset and array.size:
        for p in (array[np.isfinite(array)] if kind == "f" else array).tolist() if array.size <= 2 else _extremes(array):
            if not LOWEST <= Fraction(p) + Fraction(offset) < BEYOND:
                raise_outside(p, offset)
    return array.reshape(shape)


def _extremes(array: NDArray[Any]) -> list[Any]:
    finite = array[np.isfinite(array)]
    return [finite.min().item(), finite.max().item()] if finite.size else []


def length(positions: range | NDArray[Any]) -> int:
    try:
        return len(positions)
    except OverflowError:
        raise ValueError(f"positions is {shown(positions)}, expected at most {BEYOND - 1} of them") from None


def check_domain(positions: range, offset: float) -> None:
    if positions:
        for p in (positions[0], positions[-1]):
            if not LOWEST <= p < BEYOND:
                # a range leaves the domain at one of its ends: the first position outside it follows from the step
                raise_outside(p if p is positions[0] or not LOWEST <= positions[0] < BEYOND else _first_outside(positions))
            if offset and not LOWEST <= Fraction(p) + Fraction(offset) < BEYOND:
                raise_outside(p, offset)


def _first_outside(positions: range) -> int:
    bound = BEYOND if positions.step > 0 else LOWEST - 1
    inside = -((positions[0] - bound) // positions.step) if positions.step > 0 else -((bound - positions[0]) // -positions.step)
    return positions[abs(inside)]


def raise_outside(p: object, offset: float = 0) -> NoReturn:
    what = f"positions has {shown(p) if isinstance(p, int) else p}" + (f" with position_offset {offset}" if offset else "")
    raise ValueError(f"{what}, expected -2**63 <= position < 2**63")


# ---- what is written to ---------------------------------------------------------------------------------------------


def check_array(name: str, array: NDArray[Any], element: np.dtype[Any]) -> None:
    """What is written to: a plain array of `element`s, writeable, rows contiguous and without overlap."""
    if type(array) not in (np.ndarray, np.memmap):
        raise TypeError(f"{name} is of type {type(array).__name__}, expected a numpy.ndarray")
    bits_of_bfloat16 = array.dtype == np.uint16 and element.name == "bfloat16"
    if array.dtype != element and not bits_of_bfloat16:
        error = ValueError if array.dtype.kind == "f" else TypeError
        raise error(f"{name} has dtype {array.dtype!r}, expected {element!r}")
    if not array.flags.writeable:
        raise ValueError(f"{name} is read-only, expected a writeable array")
    if not array.flags.aligned:
        raise ValueError(f"{name} is not aligned, expected elements at multiples of {element.itemsize} bytes")
    if array.size == 0:
        return
    if array.ndim == 0:
        raise ValueError(f"{name} has shape (), expected at least one dimension")
    if array.shape[-1] > 1 and array.strides[-1] != array.itemsize:
        raise ValueError(f"{name} has strides {array.strides}, expected contiguous columns (a last stride of {array.itemsize})")
    extent = array.shape[-1] * array.itemsize
    for stride, length in sorted((abs(s), n) for s, n in zip(array.strides[:-1], array.shape[:-1], strict=True) if n > 1):
        if stride < extent:
            raise ValueError(f"{name} has strides {array.strides}, expected rows that do not overlap")
        extent += stride * (length - 1)


def empty(name: str, shape: tuple[int, ...], element: Any) -> NDArray[Any]:
    """A new array, of as many rows as the argument of that name asks for."""
    try:
        return _kernel.new_array(shape, np.dtype(element))
    except (MemoryError, ValueError) as error:
        kind = MemoryError if isinstance(error, MemoryError) else ValueError
        raise kind(f"{name} asks for an array of shape {shape}, expected a smaller one: {error}") from None


def output(
    out: NDArray[Any] | None, shape: tuple[int, ...], dtype_name: str, element: np.dtype[Any], name: str = "positions"
) -> NDArray[Any]:
    """The array for a result: `out` if it is given and fits, else a new one, as large as the argument of that name asks for."""
    if out is None:
        if dtype_name == "bfloat16" and element == np.uint16:
            raise ImportError("dtype bfloat16 needs the package ml_dtypes, or an out of dtype uint16 for its bits")
        return empty(name, shape, element)
    check_array("out", out, element)
    if out.shape != shape:
        raise ValueError(f"out has shape {out.shape}, expected {shape}")
    return out


# ---- calls ------------------------------------------------------------------------------------------------------------


def for_encode(
    positions: Any, dtype_given: Any, out: Any, threads_given: Any, d_model: int, offset: float
) -> tuple[range | NDArray[Any], str, np.dtype[Any], NDArray[Any], int | None]:
    """The arguments of `encode`, checked, of the kinds that the kernels' crossing takes."""
    dtype_name, element = dtype(dtype_given)
    threads_wanted = threads(threads_given)
    given = positions_of(range_or_array(positions), offset)
    shape = (*shape_of(given), d_model)
    out = output(out, shape, dtype_name, element)
    return given, dtype_name, element, out, threads_wanted


def for_add_to(
    x: Any, positions: Any, x_scale: Any, threads_given: Any, d_model: int, offset: float
) -> tuple[range | NDArray[Any], float, int | None]:
    """The arguments of `add_to` but x, checked, of the kinds that the kernels' crossing takes."""
    if not isinstance(x, np.ndarray):
        raise TypeError(f"x is of type {type(x).__name__}, expected a numpy.ndarray")
    # what may run others' code comes before the checks of x
    scale = real("x_scale", x_scale)
    threads_wanted = threads(threads_given)
    if positions is not None:
        positions = range_or_array(positions)
    if x.ndim == 0 or x.shape[-1] != d_model:
        raise ValueError(f"x has shape {x.shape}, expected (..., {d_model})")
    dtype_name, element = dtype(x.dtype, "x has dtype")
    check_array("x", x, element)
    # the product x * x_scale is that of numbers of x's dtype
    if not math.isfinite(_kernel.rounded(dtype_name, scale)):
        raise ValueError(f"x_scale is {scale}, expected a number that {dtype_name} can hold")
    n = x.shape[-2] if x.ndim > 1 else None
    if positions is None or isinstance(positions, range):
        if n is None:
            raise ValueError(f"x has shape {x.shape}, expected (..., n, {d_model}) where positions is not an array")
        if positions is None:
            positions = range(n)
    given = positions_of(positions, offset)
    if shape_of(given) != (n,):
        if isinstance(given, range):
            raise ValueError(f"positions has length {len(given)}, expected {n}, the rows of x")
        try:
            given = np.require(np.broadcast_to(given, x.shape[:-1]), None, ("C", "A")).reshape(x.shape[:-1])
        except ValueError:
            raise ValueError(f"positions has shape {given.shape}, expected one that broadcasts to {x.shape[:-1]}") from None
    return given, scale, threads_wanted


def shape_of(positions: range | NDArray[Any]) -> tuple[int, ...]:
    return (length(positions),) if isinstance(positions, range) else positions.shape
