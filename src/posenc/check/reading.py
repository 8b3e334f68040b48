"""Reading: tables, frequencies and functions are read as rows of values, or as cosines and sines at some positions."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check import match
from posenc.check.match import Array, Reals, Waves, axes_of, float64_of, size_of

Layout = Literal["halves", "interleaved"]


def numbers(values: Any) -> str:
    """Return sorted integers as text: "3", "0 to 7", "1, 5, 9 ..."."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values[:4])) + (" ..." if len(values) > 4 else "")


def pairs(values: Any) -> str:
    """Return pairs of columns as text: "pair 3", "pairs 0 to 7"."""
    return f"pair{'s' if len(values) > 1 else ''} {numbers(values)}"


def number(x: float) -> str:
    """Return a number as text: integers in full, others with six digits."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.6g}"


# ---- arrays ---------------------------------------------------------------------------------------------------------


def array_of(name: str, value: Any) -> tuple[Array, str]:
    """Return an array or a tensor as an array, with the name of its dtype; uint16 is read as the bits of bfloat16."""
    if value is None or isinstance(value, (str, bytes, os.PathLike)):
        hint = "" if value is None else "; read a file with numpy.load, or use the command line"
        raise TypeError(f"{name} is {value!r}, expected an array{hint}")
    if hasattr(value, "detach"):
        from posenc.check.calls import array_of_tensor

        array = array_of_tensor(name, value)
    else:
        try:
            array = np.asarray(value)
        except (TypeError, ValueError) as error:
            raise TypeError(f"{name} is of type {type(value).__name__}, expected an array: {error}") from None
    if array.dtype.kind == "c":
        return array, "float32" if array.dtype.itemsize == 8 else "float64"
    dtype = "bfloat16" if array.dtype == np.uint16 else array.dtype.newbyteorder("=").name
    if dtype not in match.FORMATS:
        raise TypeError(f"{name} has dtype {array.dtype}, expected float64, float32, float16 or bfloat16")
    return array, dtype


def positions_of(positions: Any, rows: int | None = None) -> Array:
    """Return finite positions as an array of int64 or float64 with one dimension."""
    if hasattr(positions, "detach"):
        positions, _ = array_of("positions", positions.double())
    array = np.asarray(Rotary(2).at(positions).positions)
    n = rows if rows is not None else max(1, array.shape[-1])
    if array.shape != (n,):
        raise ValueError(f"positions has shape {array.shape}, expected ({n},)")
    if not np.isfinite(array).all():
        raise ValueError(f"positions has {array[~np.isfinite(array)][0]}, expected finite numbers")
    return array


# ---- tables of encodings --------------------------------------------------------------------------------------------


class Rows(NamedTuple):
    """The sampled rows of a table that are finite and not zero."""

    rows: Array          # row numbers
    values: Reals
    zero_rows: list[int]            # numbers of the sampled rows that are zero
    stored: str                     # dtype with the fewest significant bits that suffice for all values
    total: int                      # number of rows in the table
    positions: range | Array | None      # positions of all rows in the table, if known


def positions_at(positions: range | Array, rows: Any) -> Array:
    if isinstance(positions, range):
        return np.array([positions[row] for row in rows], np.int64)
    return np.asarray(np.asarray(positions)[rows])


def table_of(table: Any) -> tuple[Array, str]:
    """Return a table of two dimensions, with the name of its dtype."""
    array, dtype = array_of("table", table)
    if np.iscomplexobj(array):
        raise TypeError(f"table has dtype {array.dtype}, expected float64, float32, float16 or bfloat16")
    if array.ndim == 3 and 1 in array.shape[:2]:
        array = array.reshape(-1, array.shape[2]) if array.size else np.empty((0, array.shape[2]))
    if array.ndim != 2:
        raise ValueError(f"table has shape {array.shape}, expected (n, d_model), (1, n, d_model) or (n, 1, d_model)")
    return array, dtype


def rows_of(table: Array, dtype: str, positions: range | Array | None) -> Rows | None:
    """Sample the rows of a table; return None if no row is usable."""
    total, d_model = table.shape
    first = max(16, min(match.FIRST, match.TABLE_SAMPLE // d_model))
    rows = spread(total, first, first // 4)
    values = float64_of(table[rows], dtype)
    sizes = np.abs(values).max(axis=1)
    zero = sizes <= 0.02 * np.sort(sizes)[len(sizes) // 2]          # a row of zeros may have noise
    usable = np.isfinite(sizes) & ~zero
    if not usable.any():
        return None
    values = values[usable]
    return Rows(rows[usable], values, rows[zero].tolist(), match.narrowest(values, dtype), total, positions)


# ---- tables of rotations --------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The values of a rotation: its frequencies, or its cosines and sines at some positions."""

    dtype: str                                  # the dtype of the given values
    positions: Array = np.empty(0)       # the positions of all rows
    read: Callable[[Any], Waves] = lambda rows: np.zeros((0, 0), complex)      # cos + i sin of some rows
    call: Callable[[Array], Waves] | None = None        # cos + i sin at other positions
    repeated: Layout | None = None              # the column order of tables that have each column twice
    layout: Layout | None = None                # the layout of the pairs, if the rotation shows it
    head_dim: int | None = None                 # if the rotation shows it
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    @property
    def rows(self) -> Array:
        """The rows of the sample: the first ones, those near powers of two, and evenly spaced ones."""
        total = len(self.positions)
        return np.arange(total) if self.call else spread(total, match.FIRST, match.SPREAD)


def spread(total: int, first: int, evenly: int) -> Array:
    """Return the numbers below `total` that a sample has: the first ones, those near powers of two, and evenly spaced ones."""
    powers = 2 ** np.arange(62)
    rows = np.concatenate([np.arange(first), powers - 1, powers, powers + 1, np.linspace(0, total - 1, evenly).astype(int)])
    return np.unique(rows[(rows >= 0) & (rows < total)])


def chunks(total: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows, with a bounded number of values in each."""
    step = max(1, match.CHUNK // columns)
    for first in range(0, total, step):
        yield slice(first, min(total, first + step))


def is_pair(rotation: Any) -> bool:
    """Return whether a rotation is a pair of tables; a list of two lists of numbers is a single array."""
    least = 1 if isinstance(rotation, tuple) else 2
    return isinstance(rotation, (tuple, list)) and len(rotation) == 2 and all(np.ndim(part) >= least for part in rotation)


def read_arrays(rotation: Any, positions: Any = None, expected: Rotary | None = None) -> Reading:
    """Read tables or frequencies."""
    if is_pair(rotation):
        (cos, dtype), (sin, sin_dtype) = array_of("cos", rotation[0]), array_of("sin", rotation[1])
        if cos.shape != sin.shape or dtype != sin_dtype:
            of_cos = f"the shape and dtype of cos, {cos.shape} and {dtype}"
            raise ValueError(f"sin has shape {sin.shape} and dtype {sin_dtype}, expected {of_cos}")
        return _read_tables(cos, sin, dtype, positions, expected)
    if isinstance(rotation, tuple):
        raise ValueError(f"rotation is a tuple of length {len(rotation)}, expected the pair (cos, sin)")
    array, dtype = array_of("rotation", rotation)
    half = array.shape[-1] // 2 if array.ndim else 0
    if np.iscomplexobj(array):
        return _read_tables(array.real, array.imag, dtype, positions, expected)
    if array.ndim == 1 and array.size:
        if positions is not None:
            raise TypeError("positions is given with frequencies, expected tables or a function; omit positions")
        return _read_frequencies(float64_of(array, dtype), 1.0 if expected is None else size_of(expected))
    if array.ndim > 2 and array.shape[-1] == 2 and array.shape[0] > 1:          # torch.view_as_real of a complex table
        return _read_tables(array[..., 0], array[..., 1], dtype, positions, expected)
    if array.ndim > 1 and array.size and array.shape[-1] % 2 == 0:
        return _read_tables(array[..., :half], array[..., half:], dtype, positions, expected)
    raise ValueError(f"rotation has shape {array.shape}, expected (n, 2 * pairs) for cosines and sines, or (pairs,)")


def _read_frequencies(w: Reals, size: float) -> Reading:
    """Return the cosines and sines of frequencies, or a fault if the memory of the frequencies was never written."""
    invalid = np.count_nonzero(~np.isfinite(w))
    if invalid or not w.any():
        elements = f"{invalid} of {len(w)} elements are not finite" if invalid else f"all {len(w)} elements are 0"
        return Reading("float64", faults=(f"{elements}, so inv_freq is probably uninitialized",))
    # no pair turns by more than 1 at once
    at = spread(match.REACHES[0], match.FIRST, match.SPREAD) / max(1.0, np.abs(w).max())

    def call(positions: Array) -> Waves:
        return np.asarray(size * np.exp(1j * positions[..., None] * w), np.complex128)

    return Reading("float64", positions=at, read=lambda rows: call(at[rows]), call=call)


def _read_tables(cos: Array, sin: Array, dtype: str, positions: Any, expected: Rotary | None) -> Reading:
    cos, sin = _rows("cos", cos), _rows("sin", sin)
    at = positions_of(len(cos) if positions is None else positions, len(cos))
    half = cos.shape[1] // 2
    repeated: Layout | None = None
    same = functools.partial(np.array_equal, equal_nan=True)
    forms: tuple[tuple[Layout, Any, Any], ...] = (
        ("halves", np.s_[:, :half], np.s_[:, half:]), ("interleaved", np.s_[:, ::2], np.s_[:, 1::2]))
    if expected is not None and cos.shape[1] == expected.rotary_dim // 2 or cos.shape[1] % 2:
        forms = ()
    for form, one, two in forms:
        # in some tables, the two sines of a pair have opposite signs
        if same(cos[one], cos[two]) and (same(sin[one], sin[two]) or same(sin[one], -sin[two])):
            cos, sin, repeated = cos[one], sin[two], form
            break

    def read(rows: Any) -> Waves:
        return np.asarray(float64_of(cos[rows], dtype) + 1j * float64_of(sin[rows], dtype))

    return Reading(dtype, positions=at, read=read, repeated=repeated)


def _rows(name: str, table: Array) -> Array:
    """Return a table with the shape (n, columns); all other axes must have length 1."""
    table = table[None] if table.ndim == 1 else table           # a single position
    if table.ndim < 2 or sum(length != 1 for length in table.shape[:-1]) > 1:
        raise ValueError(f"{name} has shape {table.shape}, expected (n, columns), with or without axes of length 1")
    return table.reshape(max(table.shape[:-1], key=lambda length: length != 1), table.shape[-1])


# ---- functions ------------------------------------------------------------------------------------------------------


# the shapes of x for n rows of d columns; with more than two axes, the positions have the shape (1, n) instead of (n,)
CALL_FORMS: tuple[Callable[[int, int], tuple[int, ...]], ...] = (
    lambda n, d: (n, d), lambda n, d: (1, 1, n, d), lambda n, d: (1, n, 1, d))


class Called(NamedTuple):
    """A function with the form of its arguments, and the number of axes of its positions."""

    function: Callable[..., Any]
    form: Callable[[int, int], tuple[int, ...]]
    axes: int

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        """Return one or two arrays: rotated vectors, in the shape of x, or tables."""
        vectors = x.reshape(self.form(*x.shape))
        positions = np.tile(positions, (self.axes, 1)) if self.axes > 1 and positions.ndim == 1 else positions
        at = np.ascontiguousarray(positions if vectors.ndim == 2 else positions[..., None, :])
        result = self.function(vectors, at)
        parts = list(result) if isinstance(result, (tuple, list)) and len(result) == 2 else [result]
        expected = f"expected an array of shape {vectors.shape}, two of them, or tables (cos, sin)"
        if not all(hasattr(part, "shape") for part in parts):
            raise ValueError(f"the function returned a value of type {type(parts[0]).__name__}, {expected}")
        arrays = [array_of("the result of rotation", part)[0] for part in parts]
        if any(np.iscomplexobj(array) for array in arrays):
            return arrays
        is_rotated = all([n for n in array.shape if n != 1] == [n for n in x.shape if n != 1] for array in arrays)
        if len(parts) == 1 and not is_rotated:
            raise ValueError(f"the function returned an array of shape {arrays[0].shape}, {expected}")
        return [array.reshape(x.shape) for array in arrays] if is_rotated else arrays

    def values(self, x: Array, positions: Array) -> list[Array]:
        """Return the arrays of a call as float64 or complex128."""
        return [part if np.iscomplexobj(part) else float64_of(*array_of("the result", part)) for part in self(x, positions)]


def read_function(
    function: Callable[..., Any], positions: Any, expected: Rotary | None, head_dim: int | None, any_order: bool
) -> list[Reading]:
    """Read a function or a module; return one reading, or those of queries and keys if the function returns both.

    Without `positions`, the function is called only at positions where the expected frequencies do not depend on the length.
    """
    head_dim = head_dim if expected is None else expected.head_dim
    if head_dim is None:
        raise TypeError("rotation is a function, so identify_rotary needs expect or head_dim, the number of columns")
    most = match.REACHES[0] if expected is None else valid_positions(expected) or match.REACHES[0]
    choices = [spread(reach, 64, 64) for reach in dict.fromkeys(min(reach, most) for reach in match.REACHES)]
    if positions is not None:
        choices = [positions_of(positions)]
    call = _in_a_form(function, choices[-1], head_dim, axes_of(expected))
    ends: tuple[str, ...] = ()
    for at in choices:
        try:
            at_zero = call.values(np.zeros((len(at), head_dim), np.float32), at)
            break
        except Exception as error:  # the function's table may end before these positions
            ends = (f"a call with positions up to {int(at.max()):,} raises {type(error).__name__}: {error}",)
            if at is choices[-1]:
                hint = "choose smaller positions, such as up_to=N - 1 in assert_rotary for a table of N rows"
                raise ValueError(f"{ends[0]}; {hint}") from error
    fault = _fault_of_positions(call, at[np.isfinite(at_zero[0].reshape(len(at), -1)).all(axis=1)], head_dim)
    if fault:
        return [Reading("float32", faults=(fault,))]
    nonzero = [np.abs(part[np.isfinite(part)]).max(initial=0.0) > match.SMALL for part in at_zero]
    if nonzero[0] and (len(at_zero) == 2 or np.iscomplexobj(at_zero[0])):
        def tables(positions: Array) -> Reading:
            result = call(np.zeros((len(positions), head_dim), np.float32), positions)
            return read_arrays(tuple(result) if len(result) == 2 else result[0], positions, expected)

        return [tables(at)._replace(call=lambda positions: tables(positions).read(slice(None)), remarks=ends)]
    if any(nonzero):
        of_keys = "" if nonzero[0] else "keys: "
        return [Reading("float32", faults=(f"{of_keys}the function returns values other than 0 if x is 0",))]
    x = np.tile(np.linspace(0.5, 1, head_dim, dtype=np.float32), (len(at), 1))
    rotated = call(x, at)
    count = 2 if len(rotated) == 2 and not np.array_equal(rotated[0], rotated[1], equal_nan=True) else 1
    readings = [_read_rotated(call, index, at, head_dim, expected, any_order) for index in range(count)]
    return [reading._replace(remarks=(*reading.remarks, *ends)) for reading in readings]


def valid_positions(expected: Rotary) -> int | None:
    """Return the number of positions for which the frequencies of a rotation apply, or None if they apply to all."""
    scaling = expected.scaling or {}
    trained = {"dynamic": "max_position_embeddings", "longrope": "original_max_position_embeddings"}
    key = trained.get(scaling.get("rope_type", ""))
    return max(scaling[key], scaling.get("length", 0)) if key else None


def _in_a_form(function: Callable[..., Any], positions: Array, head_dim: int, axes: int) -> Called:
    """Find the form of the arguments with which a call at the smallest position succeeds."""
    at = np.full_like(positions, positions.min())
    errors = []
    for variant in _variants(function):
        for form in CALL_FORMS:
            call = Called(variant, form, axes)
            try:
                call(np.zeros((len(at), head_dim), np.float32), at)
                return call
            except Exception as error:  # noqa: BLE001  (any error means that the function expects another form)
                errors.append(f"{type(error).__name__}: {error}")
    raise ValueError(f"rotation cannot be called with x of shape ({len(positions)}, {head_dim}), nor with axes for the batch "
                     f"and the heads, nor with tensors: {'; '.join(dict.fromkeys(errors))}")


def _variants(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function of arrays, then the same function with tensors instead, if PyTorch is installed."""
    yield function
    with contextlib.suppress(ImportError):
        from posenc.check.calls import with_tensors

        yield with_tensors(function)


def _fault_of_positions(call: Called, positions: Array, head_dim: int) -> str:
    """Return a fault if the values of a function depend on more than their position, or else an empty string.

    Compare a call at some positions with a call in which each of these positions is replaced by the last one.
    """
    if not positions.size:
        return ""
    some_positions = positions[np.linspace(0, len(positions) - 1, 16).astype(int)]

    def values(at: Array) -> Array:
        parts = call.values(np.ones((16, head_dim), np.float32), at)
        stacked = np.stack(np.broadcast_arrays(*parts))
        return stacked.reshape(-1, 16, stacked.shape[-1])

    mixed, at_last = values(some_positions), values(np.full_like(some_positions, some_positions[-1]))
    if np.array_equal(mixed, at_last, equal_nan=True):
        return "" if _agree(mixed, mixed[:, :1]) else "the values depend on the row, not on its position"
    if _agree(at_last, mixed[:, -1:]):
        return ""
    if _agree(at_last, values(np.zeros_like(some_positions))):
        return "positions are counted from the first one of each call"
    return "the values depend on the other positions of the call"


def _agree(x: Array, y: Array) -> bool:
    """Return whether finite values agree approximately; other values are reported separately."""
    finite = np.isfinite(x) & np.isfinite(y)
    size = np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
    return bool((np.abs(x - y) <= match.REPEATABLE * size)[finite].all())


# ---- rotated vectors ------------------------------------------------------------------------------------------------


def _read_rotated(call: Called, index: int, at: Array, head_dim: int, expected: Rotary | None, any_order: bool) -> Reading:
    """Read the rotation of queries (index 0) or of keys (index 1) by rotating unit vectors."""
    few = np.unique(np.linspace(min(1, len(at) - 1), len(at) - 1, match.PROBES).astype(int))
    unit = np.tile(np.eye(head_dim, dtype=np.float32), (len(few), 1))
    rotated, dtype = array_of("the result", call(unit, np.repeat(at[few], head_dim))[index])
    matrices = float64_of(rotated, dtype).reshape(len(few), head_dim, head_dim)     # (position, column of x, column)
    matrices = matrices[np.isfinite(matrices).all(axis=(1, 2))]         # large angles overflow in float16
    if not len(matrices):
        return Reading("float32", faults=("no value is finite",))
    outputs, faults = _pairs_of(matrices)
    together = [pair for pair in outputs if len(pair) == 2]
    layout, rotary_dim = _layout_of(together)
    if expected is not None and not expected.frequencies[rotary_dim // 2 :].any():      # as with the scaling type proportional
        rotary_dim = max(rotary_dim, expected.rotary_dim)
    first = np.array([pair[0] for pair in together] or range((rotary_dim or head_dim) // 2), int)
    if layout is not None:
        single = [k for k, *other in outputs if not other and k >= rotary_dim and np.abs(matrices[:, k]).max() > match.SMALL]
        scaled = [k for k in single if np.abs(matrices[:, k, k] - 1).max() > 1e-6]
        faults += [f"columns {numbers(scaled)} are multiplied by a factor but not rotated"] if scaled else []
        first = np.arange(rotary_dim // 2) * (1 if layout == "halves" else 2)
    elif len(together) > 1:
        faults.append("the columns are paired neither as halves nor interleaved: {} with {}".format(*together[0]))
    moved = [pair for pair in outputs if pair != outputs[pair]]
    order: list[str] = []
    if moved and not rotary_dim:
        faults.append("the columns are moved but not rotated")
    elif moved:
        places = f"columns {numbers(moved[0])} become columns {numbers(outputs[moved[0]])}"
        order = [f"the result has its columns in another order: {places}; only products of queries and keys are the same"]
    targets = {pair[0]: outputs[pair] for pair in outputs}

    def values(positions: Array) -> Waves:
        x = np.zeros((positions.shape[-1], head_dim), np.float32)
        x[:, first] = 1
        rows = float64_of(*array_of("the result", call(x, positions)[index]))
        columns = [targets.get(k, (k,)) for k in first.tolist()]
        cos, sin = (rows[:, [column[member] for column in columns]] for member in (0, -1))
        return np.asarray(cos + 1j * np.where([len(column) == 2 for column in columns], sin, 0.0))

    sampled = values(at)
    return Reading(dtype, positions=at, read=lambda rows: sampled[rows], call=values, layout=layout, head_dim=head_dim,
                   faults=(*faults, *([] if any_order else order)), remarks=tuple(order if any_order else []))


def _pairs_of(matrices: Reals) -> tuple[dict[tuple[int, ...], tuple[int, ...]], list[str]]:
    """Return the columns of x that are rotated together, with their columns in the result, and the faults of their matrices.

    A column that is not rotated is alone.
    """
    faults: dict[str, list[int]] = {}
    by_outputs: dict[tuple[int, ...], list[int]] = {}
    for column, reached in enumerate(np.abs(matrices).max(axis=0) > match.SMALL):
        by_outputs.setdefault(tuple(np.flatnonzero(reached).tolist()), []).append(column)
    pairs: dict[tuple[int, ...], tuple[int, ...]] = {}
    for outputs, inputs in by_outputs.items():
        if len(outputs) != len(inputs) or len(inputs) > 2:
            faults.setdefault("are mixed with several others" if outputs else "are set to 0", []).extend(inputs)
            pairs |= {(column,): (column,) for column in inputs}
            continue
        pairs[tuple(inputs)] = outputs
        if len(inputs) == 2:
            block = matrices[:, [[inputs[0]], [inputs[1]]], [outputs, outputs]]
            if np.abs(block[:, 0, 0] - block[:, 1, 1]).max() > match.ALIKE * np.abs(block).max():
                faults.setdefault("have different cosines in a pair", []).append(inputs[0])
            elif np.abs(block[:, 0, 1] + block[:, 1, 0]).max() > match.ALIKE * np.abs(block[:, 0, 1]).max():
                faults.setdefault("have sines in a pair that are not opposite", []).append(inputs[0])
    return dict(sorted(pairs.items())), [f"columns {numbers(columns)} {problem}" for problem, columns in faults.items()]


def _layout_of(together: Sequence[tuple[int, ...]]) -> tuple[Layout | None, int]:
    """Return the layout (None if the pairs have neither layout) and the number of rotated columns."""
    steps = {b - a for a, b in together}
    if steps == {1} and together != [(0, 1)] and all(a % 2 == 0 for a, _ in together):
        return "interleaved", together[-1][1] + 1
    if len(steps) == 1 and all(a < min(steps) for a, _ in together):
        return "halves", 2 * min(steps)
    return None, 2 * len(together)
