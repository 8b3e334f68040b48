"""Arrays: dtypes, exact conversion of lists, tensors and columns, and errors for output arrays."""

import functools
import sys
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, SupportsIndex, TypeAlias, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

DType: TypeAlias = np.dtype[Any]
AnyDType: TypeAlias = str | type[Any] | DType
ArrayT = TypeVar("ArrayT", bound=NDArray[Any])
Positions: TypeAlias = SupportsIndex | range | ArrayLike


# ---- dtypes ------------------------------------------------------------------------------------------------


class Format(NamedTuple):
    """The format of a dtype."""

    code: int                   # dtype_t in kernel.h
    precision: int              # bits of the significand
    smallest: int               # exponent of the smallest subnormal number
    overflow: int               # exponent of the first power of two beyond the largest finite number
    stored: str                 # name in .npy and .zarr files; bfloat16 has none and is stored as uint16
    safetensors: str            # name in .safetensors files


DTYPES = {
    "float64": Format(0, 53, -1074, 1024, "<f8", "F64"),
    "float32": Format(1, 24, -149, 128, "<f4", "F32"),
    "float16": Format(2, 11, -24, 16, "<f2", "F16"),
    "bfloat16": Format(3, 8, -133, 128, "<u2", "BF16"),
}
# without the names of np.dtypes, which take 5 us
USUAL = {key: (name, np.dtype(name)) for name in ("float64", "float32", "float16")
         for key in (name, np.dtype(name), np.dtype(name).type)}


def values_of(bits: NDArray[Any], dtype: str) -> Any:
    """Return the values with the given bits, which are unsigned integers.

    The values of bfloat16 are returned in float32.
    """
    if dtype == "bfloat16":
        bits, dtype = bits.astype(np.uint32) << np.uint32(16), "float32"
    return bits.view(dtype)


def dtype(dtype: Any, subject: str = "dtype is", others: str = "float64, float32") -> tuple[str, DType]:
    """Return the name and np.dtype of an output dtype.

    Without ml_dtypes, the np.dtype of bfloat16 is uint16.
    """
    if isinstance(dtype, (str, type, np.dtype)) and dtype in USUAL:
        return USUAL[dtype]
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", getattr(dtype, "name", None))
    if isinstance(name, str) and name == "bfloat16":
        return "bfloat16", _bfloat16()
    element, text = None, f"of type {type(dtype).__name__}"
    with suppress(TypeError, SyntaxError, ValueError):      # for texts such as "(2,", and large integers
        text = str(dtype) if isinstance(dtype, np.dtype) else repr(dtype)
        element = None if dtype is None else np.dtype(dtype)        # np.dtype(None) is float64
    if element is None or element.name not in DTYPES:
        raise TypeError(f"{subject} {text}, expected {others}, float16 or bfloat16")
    if not element.isnative:
        raise ValueError(f"{subject} {text}, expected native byte order")
    return element.name, element


def output_dtype(dtype_or_none: Any, out: Any) -> tuple[str, DType]:
    """Return the name and np.dtype of the output.

    The default is the dtype of `out`, or float32 if `out` is not an array.
    """
    if dtype_or_none is None and isinstance(out, np.ndarray):
        return dtype(out.dtype, "out has dtype")
    return dtype("float32" if dtype_or_none is None else dtype_or_none)


@functools.cache
def _bfloat16() -> np.dtype[Any]:
    with suppress(ImportError):
        import ml_dtypes

        element: DType = np.dtype(ml_dtypes.bfloat16)
        return element
    return np.dtype(np.uint16)


def widened(array: NDArray[Any]) -> NDArray[Any]:
    """Convert bfloat16 to float32, because the dtype of bfloat16 has kind "V", not "f"."""
    return array.astype(np.float32) if array.dtype.kind == "V" and array.dtype.name == "bfloat16" else array


# ---- conversion of lists, tensors, and columns of pandas, polars and Arrow ---------------------------------


def as_array(name: str, value: Any, times: bool = False) -> NDArray[Any]:
    """Return ``np.asarray(value)``.

    Raise an error for nulls, masks, bools among numbers, integers that NumPy would round and, by default,
    times.
    """
    if value is None:
        raise TypeError(f"{name} is None, expected an array or list")
    if hasattr(value, "to_pylist") and not hasattr(value, "__array__"):         # nanoarrow
        value = value.to_pylist()
    only_dlpack = hasattr(value, "__dlpack__") and not hasattr(value, "__array__")
    try:
        array = np.from_dlpack(value) if only_dlpack else np.asarray(value)
    except MemoryError:
        raise
    except Exception as error:  # noqa: BLE001  ragged lists, tensors that require grad, polars' Int128
        kind = ValueError if isinstance(error, ValueError) else TypeError
        hints = {"inhomogeneous": "for sequences of several lengths, see posenc.positions_from_lengths",
                 "BFloat16": "posenc.torch accepts it"}
        hint = "".join(f"; {text}" for word, text in hints.items() if word in str(error))

        raise kind(f"{name} is of type {type(value).__name__}, expected an array: {error}{hint}") from None
    types = _types_in(value, array.ndim)
    if any(issubclass(kind, masked_array()) for kind in types):
        raise TypeError(f"{name} is or contains a masked array, expected an array or list without a mask")
    if array.dtype.kind in "iuf" and types & {bool, np.bool_}:
        raise TypeError(f"{name} has bools among numbers, expected only one kind")
    if array.dtype.kind in "mM" and not times:
        raise TypeError(f"{name} has dtype {array.dtype}, expected numbers such as numpy.asarray({name})"
                        '.astype("int64"); encode, add_to, torch and dask take times with periods= of durations')
    if array.dtype.kind == "O" or array.dtype.kind == "f" and not isinstance(value, np.ndarray):
        with np.errstate(all="ignore"):         # signalling NaNs would cause a warning
            is_exact = array.dtype.kind == "f" and bool((abs(array) < 2**53).all())
        for column, converted in () if is_exact else dataframe_columns(value, array) or [(value, array)]:
            _check_exact(name, column, converted)
    return array


def masked_array() -> Any:
    """Return the type of masked arrays, or () if numpy.ma is not imported.

    An import may fail in a process that has dropped its privileges.
    """
    return getattr(sys.modules.get("numpy.ma"), "MaskedArray", ())


def _types_in(value: Any, dimensions: int) -> set[type]:
    """Return the type of a value and those of the elements of a list."""
    types, items = {type(value)}, [value]
    for _ in range(dimensions):
        items = list(chain.from_iterable(x for x in items if isinstance(x, (list, tuple))))
        types.update(map(type, items))
        if np.ndarray in types:
            types.update(x.dtype.type for x in items if isinstance(x, np.ndarray))
    return types


def dataframe_columns(value: Any, array: Any) -> list[tuple[Any, Any]]:
    """Return each column of an Arrow, polars or pandas table with its part of `array`, else []."""
    if hasattr(value, "iterrows"):              # pandas
        return list(zip((column for _, column in value.items()), array.T, strict=True))
    iterate = getattr(value, "itercolumns", getattr(value, "iter_columns", None))       # Arrow, polars
    return list(zip(iterate(), array.T, strict=True)) if iterate else []


def _check_exact(name: str, column: Any, converted: NDArray[Any]) -> None:
    """Raise an error for nulls, and for integers that NumPy has rounded to float64."""
    is_pandas, objects = hasattr(column, "isna"), []
    dtype = str(getattr(column, "dtype", getattr(column, "type", ""))).lower()
    if converted.dtype.kind == "f" and dtype.startswith(("torch.float", "float", "double", "halffloat")):
        nulls = getattr(column, "null_count", 0)        # a number in Arrow, a method in polars
        nulls = nulls() if callable(nulls) else nulls
    else:
        objects = list(np.array(_python_numbers(column), object).flat)
        nulls = sum(x is None for x in objects)
    if is_pandas and not isinstance(column.dtype, np.dtype):        # categories have NaN for nulls
        nulls = int(column.isna().sum())
    if nulls:
        raise ValueError(f"{name} has nulls, {nulls} of {converted.size} values, expected numbers")
    if converted.dtype.kind == "O":
        return
    finite = converted[np.isfinite(converted)].astype(np.float64)
    if is_pandas and np.isnan(converted).any() and (abs(finite) >= 2**53).any():
        raise ValueError(f"{name} has NaN beside numbers of 2**53 or more, which pandas may round; use dtype Int64")
    for x, y in zip(objects, np.ravel(converted).tolist() if objects else [], strict=True):
        if isinstance(x, (int, np.integer)) and int(x) != y:
            raise ValueError(f"{name} has {x} beside other numbers, expected one that float64 can hold")


def _python_numbers(value: Any) -> Any:
    """Return a column as a list of Python numbers; convert the columns in a list, too."""
    for method in ("to_pylist", "to_list", "tolist"):     # Arrow; polars and pandas; NumPy
        if hasattr(value, method):
            return getattr(value, method)()
    if isinstance(value, (list, tuple)) and not all(isinstance(x, (int, float)) for x in value):
        return [_python_numbers(x) for x in value]
    return value


# ---- errors for output arrays ------------------------------------------------------------------------------


def dtype_error(name: str, dtype: np.dtype[Any], expected: np.dtype[Any]) -> Exception:
    kind: type[Exception] = ValueError if dtype.kind == "f" else TypeError
    return kind(f"{name} has dtype {dtype}, expected {expected}")


def too_large(name: str, shape: tuple[int, ...], error: Exception) -> Exception:
    """Return the error for an array that cannot be allocated.

    `name` is the argument that determines its size.
    """
    kind = MemoryError if isinstance(error, MemoryError) else ValueError
    return kind(f"{name} needs an array of shape {shape}, which is too large ({error})")
