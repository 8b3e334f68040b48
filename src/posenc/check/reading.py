"""Reading: tables, frequencies and functions are read as cosines and sines at some positions; numbers as text."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from posenc import Rotary
from posenc._arguments import checks
from posenc._arguments.arrays import as_array
from posenc._arguments.specification import Layout
from posenc.check import match
from posenc.check.match import PRECISION, Array, Reals, Waves, axes_of, float64_of, size_of

FIRST, SPREAD = 256, 128    # rows of a sample: the first ones, and evenly spaced ones
REACH = 2**17               # positions of a function are below this number
REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))      # positions, as far as the function's table goes
PROBES = 6                  # positions at which all unit vectors are rotated
SMALL = 1e-9                # smaller elements of a rotation matrix are rounding errors of zeros
ROUNDINGS = 16              # half ulps between a rotated vector and its prediction from rounded cosines and sines
BIAS = 1e-6                 # mean error of rotated vectors: roundings of float32 may all have one direction


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


def spread(total: int, first: int, evenly: int) -> Array:
    """Return the numbers below `total` in a sample: the first ones, those near powers of two, and evenly spaced ones."""
    powers = 2 ** np.arange(62)
    rows = np.concatenate([np.arange(first), powers - 1, powers, powers + 1, np.linspace(0, total - 1, evenly).astype(int)])
    return np.unique(rows[(rows >= 0) & (rows < total)])


def chunks(total: int, columns: int) -> Iterator[slice]:
    """Yield slices of the rows, with a bounded number of values in each."""
    step = max(1, match.CHUNK // columns)
    yield from (slice(first, min(total, first + step)) for first in range(0, total, step))


def array_of(name: str, value: Any) -> tuple[Array, str]:
    """Return an array or a tensor as an array, with the name of its dtype; uint16 is read as the bits of bfloat16."""
    if hasattr(value, "detach"):
        from posenc.check.running import array_of_tensor

        value = array_of_tensor(name, value)
    array = as_array(name, value)
    if array.dtype.kind == "c":
        return array, "float32" if array.dtype.itemsize == 8 else "float64"
    dtype = "bfloat16" if array.dtype == np.uint16 else array.dtype.newbyteorder("=").name
    if dtype not in PRECISION:
        raise TypeError(f"{name} has dtype {array.dtype}, expected float64, float32, float16 or bfloat16")
    return array, dtype


def positions_of(positions: Any, rows: int | None = None) -> Array:
    """Return finite positions as an array of int64 or float64 with one dimension."""
    if hasattr(positions, "detach"):
        positions, _ = array_of("positions", positions.double())
    array = np.asarray(checks.positions_of(positions))
    n = rows if rows is not None else max(1, array.shape[-1])
    if array.shape != (n,):
        raise ValueError(f"positions has shape {array.shape}, expected ({n},)")
    if not np.isfinite(array).all():
        raise ValueError(f"positions has {array[~np.isfinite(array)][0]}, expected finite numbers")
    return array


# ---- rotations -------------------------------------------------------------------------------------------------------


class Reading(NamedTuple):
    """The values of a rotation, cosines and sines at some positions, or the faults of one without values."""

    dtype: str                                  # the dtype of the given values
    positions: Array = np.empty(0)              # the positions of all rows
    read: Callable[[Any], Waves] = lambda rows: np.zeros((0, 0), complex)      # cos + i sin of some rows
    call: Callable[[Array], Waves] | None = None        # cos + i sin at other positions
    repeated: Layout | None = None              # the column order of tables that have each column twice
    layout: Layout | None = None                # the layout of the pairs, if the rotation shows it
    head_dim: int | None = None                 # if the rotation shows it
    faults: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


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
    elif isinstance(rotation, tuple):
        raise ValueError(f"rotation is a tuple of length {len(rotation)}, expected the pair (cos, sin)")
    else:
        array, dtype = array_of("rotation", rotation)
        if np.iscomplexobj(array):
            cos, sin = array.real, array.imag
        elif array.ndim == 1 and array.size:
            if positions is not None:
                raise TypeError("positions is given with frequencies, expected tables or a function; omit positions")
            return _read_frequencies(float64_of(array, dtype), 1.0 if expected is None else size_of(expected))
        elif array.ndim > 2 and array.shape[-1] == 2 and array.shape[0] > 1:        # torch.view_as_real of a complex table
            cos, sin = array[..., 0], array[..., 1]
        elif array.ndim > 1 and array.size and array.shape[-1] % 2 == 0:
            cos, sin = np.split(array, 2, -1)
        else:
            raise ValueError(f"rotation has shape {array.shape}, expected (n, 2 * pairs) for cosines and sines, or (pairs,)")
    cos, sin = _rows("cos", cos), _rows("sin", sin)
    half, repeated, same = cos.shape[1] // 2, None, functools.partial(np.array_equal, equal_nan=True)
    forms: dict[Layout, Any] = {"halves": (np.s_[:, :half], np.s_[:, half:]), "interleaved": (np.s_[:, ::2], np.s_[:, 1::2])}
    is_once = cos.shape[1] % 2 or expected is not None and cos.shape[1] == expected.rotary_dim // 2
    for form, (one, two) in () if is_once else forms.items():
        # in some tables, the two sines of a pair have opposite signs
        if same(cos[one], cos[two]) and (same(sin[one], sin[two]) or same(sin[one], -sin[two])):
            cos, sin, repeated = cos[one], sin[two], form
            break

    def read(rows: Any) -> Waves:
        return np.asarray(float64_of(cos[rows], dtype) + 1j * float64_of(sin[rows], dtype))

    at = positions_of(len(cos) if positions is None else positions, len(cos))
    return Reading(dtype, positions=at, read=read, repeated=repeated)


def _read_frequencies(w: Array, size: float) -> Reading:
    """Return the cosines and sines of frequencies, or a fault if the memory of the frequencies was never written."""
    invalid = np.count_nonzero(~np.isfinite(w))
    if invalid or not w.any():
        elements = f"{invalid} of {len(w)} elements are not finite" if invalid else f"all {len(w)} elements are 0"
        return Reading("float64", faults=(f"{elements}, so inv_freq is probably uninitialized",))
    # no pair turns by more than 1 at once
    at = spread(REACH, FIRST, SPREAD) / max(1.0, np.abs(w).max())

    def call(positions: Array) -> Waves:
        return np.asarray(size * np.exp(1j * positions[..., None] * w), np.complex128)

    return Reading("float64", positions=at, read=lambda rows: call(at[rows]), call=call)


def _rows(name: str, table: Array) -> Array:
    """Return a table with the shape (n, columns); all other axes must have length 1."""
    table = table[None] if table.ndim == 1 else table           # a single position
    if table.ndim < 2 or sum(length != 1 for length in table.shape[:-1]) > 1:
        raise ValueError(f"{name} has shape {table.shape}, expected (n, columns), with or without axes of length 1")
    return table.reshape(max(table.shape[:-1], key=lambda length: length != 1), table.shape[-1])


# ---- functions -------------------------------------------------------------------------------------------------------


class Rotation:
    """A function of x of shape (m, n, head_dim) and positions of shape (n,), or (axes, n), of the n rows of each array.

    It returns one or two arrays of the shape of x.
    """

    is_free = True                      # whether the positions of a call may be repeated and in any order
    reach = REACH                       # the positions with which it is called are below this number
    length: int | None = None           # number of positions that the configuration states

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        raise NotImplementedError

    def grows(self, length: int) -> bool:
        """Return whether the function has positions up to a length, although a call with others failed."""
        return False

    def values(self, x: Array, positions: Array) -> list[Reals]:
        """Return the arrays of a call as float64."""
        return [float64_of(*array_of("the result", part)) for part in self(x, positions)]


class Called(Rotation):
    """A function of arrays of shape (n, head_dim), or of tensors, with the number of axes of its positions."""

    def __init__(self, function: Callable[..., Any], axes: int, at: Array, head_dim: int):
        self.axes, errors = axes, []
        for self.function in _variants(function):
            try:
                self(np.zeros((1, len(at), head_dim), np.float32), np.full_like(at, at.min()))
                return
            except Exception as error:  # noqa: BLE001  (any error may mean that the function expects tensors)
                errors.append(f"{type(error).__name__}: {error}")
        raise ValueError(f"rotation cannot be called with x of shape ({len(at)}, {head_dim}) and positions of shape "
                         f"{at.shape}, as arrays or as tensors: {'; '.join(dict.fromkeys(errors))}")

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        vectors = x.reshape(-1, x.shape[-1]).copy()             # the function may rotate in place
        at = np.tile(positions, len(x)) if positions.ndim == 2 or self.axes == 1 else np.tile(positions, (self.axes, len(x)))
        result = self.function(vectors, at)
        parts = result if isinstance(result, (tuple, list)) and len(result) == 2 else [result]
        arrays = [array_of("the result of rotation", part)[0] for part in parts]
        if wrong := [array.shape for array in arrays if array.shape != vectors.shape or array.dtype.kind == "c"]:
            raise ValueError(f"the function returned an array of shape {wrong[0]}, expected rotated x of shape {vectors.shape}")
        return [array.reshape(x.shape) for array in arrays]


def _variants(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function of arrays, then the same function with tensors instead, if PyTorch is installed."""
    yield function
    with contextlib.suppress(ImportError):
        from posenc.check.running import with_tensors

        yield with_tensors(function)


def read_function(
    function: Callable[..., Any] | Rotation, positions: Any, expected: Rotary | None, head_dim: int | None, any_order: bool,
    most: int | None = None,
) -> list[Reading]:
    """Read a function; return one reading, or those of queries and keys if the function returns both.

    Without `positions`, the function is called only at positions below `most`.
    """
    head_dim = head_dim if expected is None else expected.head_dim
    if head_dim is None:
        raise TypeError("rotation is a function, so identify_rotary needs expect or head_dim, the number of columns")
    most = min(function.reach if isinstance(function, Rotation) else REACH, most or REACH)
    choices = [spread(reach, 64, 64) for reach in dict.fromkeys(min(reach, most) for reach in REACHES)]
    if positions is not None:
        choices = [positions_of(positions)]
    call = function if isinstance(function, Rotation) else Called(function, axes_of(expected), choices[-1], head_dim)
    faults: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()
    for at in choices:
        try:
            zeros = call.values(np.zeros((1, len(at), head_dim), np.float32), at)
            break
        except Exception as error:  # the function's table may end before these positions
            last = int(at.max())
            ends = (f"a call with positions up to {last:,} raises {type(error).__name__}: {error}",)
            if at is choices[-1]:
                hint = "choose smaller positions, such as up_to=N - 1 in assert_rotary for a table of N rows"
                raise ValueError(f"{ends[0]}; {hint}") from error
    if ends and call.length and last < call.length and not call.grows(last + 1):
        faults, ends = (f"{ends[0]}; the configuration has max_position_embeddings {call.length:,}",), ()
    usable = at[np.isfinite(zeros[0][0]).all(axis=1)]
    if call.is_free and usable.size and (fault := _fault_of_positions(call, usable, head_dim)):
        return [Reading("float32", faults=(fault,))]
    if any(np.abs(part[np.isfinite(part)]).max(initial=0.0) > SMALL for part in zeros):
        return [Reading("float32", faults=("the function returns values other than 0 if x is 0",))]
    rotated = call(np.tile(np.linspace(0.5, 1, head_dim, dtype=np.float32), (1, len(at), 1)), at)
    count = 2 if len(rotated) == 2 and not np.array_equal(rotated[0], rotated[1], equal_nan=True) else 1
    readings = [_read_rotated(call, index, at, head_dim, expected, any_order) for index in range(count)]
    return [each._replace(remarks=(*each.remarks, *ends), faults=(*each.faults, *faults)) for each in readings]


def _fault_of_positions(call: Rotation, positions: Array, head_dim: int) -> str:
    """Return a fault if the values of a function depend on more than their position, or else an empty string.

    Compare a call at some positions, in no order, with calls in which all positions are the last of these.
    """
    some_positions = positions[np.linspace(0, len(positions) - 1, 16).astype(int)][np.arange(16) * 7 % 16]

    def values(at: Array) -> Array:
        return np.concatenate(call.values(np.ones((1, len(at), head_dim), np.float32), at))

    mixed, at_last = values(some_positions), values(np.full_like(some_positions, some_positions[-1]))
    if np.array_equal(mixed, at_last, equal_nan=True):
        return "" if _agree(mixed, mixed[:, :1]) else "the values depend on the row, not on its position"
    if _agree(at_last, mixed[:, -1:]):
        is_same = _agree(values(some_positions[-1:]), mixed[:, -1:])
        return "" if is_same else "a call with a single row has other values than a call with several rows"
    if _agree(at_last, values(np.zeros_like(some_positions))):
        return "positions are counted from the first one of each call"
    return "the values depend on the other positions of the call"


def _agree(x: Array, y: Array) -> bool:
    """Return whether finite values agree approximately; other values are reported separately."""
    finite = np.isfinite(x) & np.isfinite(y)
    size = np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
    return bool((np.abs(x - y) <= match.ALIKE * size)[finite].all())


# ---- rotated vectors ------------------------------------------------------------------------------------------------


def _read_rotated(call: Rotation, index: int, at: Array, head_dim: int, expected: Rotary | None, any_order: bool) -> Reading:
    """Read the rotation of queries (index 0) or of keys (index 1) by rotating unit vectors."""
    last = len(at) if call.is_free else max(2, int((at < 64).sum()))       # else as many calls as columns, up to the last
    few = np.unique(np.linspace(min(1, last - 1), last - 1, PROBES).astype(int))
    unit = np.repeat(np.eye(head_dim, dtype=np.float32)[:, None], len(few), 1)
    rotated, dtype = array_of("the result", call(unit, at[few])[index])
    matrices = float64_of(rotated, dtype).swapaxes(0, 1)                # (position, column of x, column)
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
        single = [k for k, *other in outputs if not other and k >= rotary_dim and np.abs(matrices[:, k]).max() > SMALL]
        scaled = [k for k in single if np.abs(matrices[:, k, k] - 1).max() > 1e-6]
        faults += [f"columns {numbers(scaled)} are multiplied by a factor but not rotated"] if scaled else []
        first = np.arange(rotary_dim // 2) * (1 if layout == "halves" else 2)
    elif len(together) > 1:
        faults.append("the columns are paired neither as halves nor interleaved: {} with {}".format(*together[0]))
    if any("different cosines" in fault for fault in faults):
        diagonal = np.diagonal(matrices, axis1=1, axis2=2)[:, :rotary_dim]
        for name, one, two in (("interleaved", np.s_[:, ::2], np.s_[:, 1::2]),
                               ("halves", np.s_[:, : rotary_dim // 2], np.s_[:, rotary_dim // 2 :])):
            if layout not in (None, name) and np.allclose(diagonal[one], diagonal[two], atol=match.ALIKE):
                faults = [f"the cosines have the layout {name}, but the columns are paired as {layout}"]
    moved = [pair for pair in outputs if pair != outputs[pair]]
    order: list[str] = []
    if moved and not rotary_dim:
        faults.append("the columns are moved but not rotated")
    elif moved:
        places = f"columns {numbers(moved[0])} become columns {numbers(outputs[moved[0]])}"
        order = [f"the result has its columns in another order: {places}; only products of queries and keys are the same"]
    targets = {pair[0]: outputs[pair] for pair in outputs}

    def values(positions: Array) -> Waves:
        x = np.zeros((1, positions.shape[-1], head_dim), np.float32)
        x[..., first] = 1
        rows = float64_of(*array_of("the result", call(x, positions)[index]))[0]
        columns = [targets.get(k, (k,)) for k in first.tolist()]
        cos, sin = (rows[:, [column[member] for column in columns]] for member in (0, -1))
        return np.asarray(cos + 1j * np.where([len(column) == 2 for column in columns], sin, 0.0))

    sampled = values(at)
    if layout is not None and not faults:
        turned = np.array([[*pair, *outputs[pair]] for pair in together]).T
        faults = _faults_of_vectors(call, index, at, values, turned, np.searchsorted(first, turned[0]), head_dim, dtype)
    return Reading(dtype, positions=at, read=lambda rows: sampled[rows], call=values, layout=layout, head_dim=head_dim,
                   faults=(*faults, *([] if any_order else order)), remarks=tuple(order if any_order else []))


def _faults_of_vectors(
    call: Rotation, index: int, at: Array, values: Callable[[Array], Waves], turned: Array, pairs: Array, head_dim: int,
    dtype: str,
) -> list[str]:
    """Compare the result for random vectors, at positions in no order, with their rotation by the given values.

    `turned` has the columns of the rotated pairs in x and in the result.  The elements of x are exact in
    every dtype.
    """
    rng = np.random.default_rng(0)
    rows = rng.permutation(len(at))[:48]
    positions = np.concatenate([at[rows], at[rows[:8]]]) if call.is_free else at[rows]
    x = (rng.integers(-32, 32, (len(positions), head_dim)) / 8).astype(np.float32)
    waves = values(positions)[:, pairs]

    def is_rotated(x: Array) -> tuple[bool, float]:
        result = float64_of(*array_of("the result", call(x[None], positions)[index]))[0]
        y = result[:, turned[2]] + 1j * result[:, turned[3]]
        expected = (x[:, turned[0]] + 1j * x[:, turned[1]]) * waves
        finite = np.isfinite(y).all(axis=1) & np.isfinite(expected).all(axis=1)
        y, expected = y[finite], expected[finite]
        unit = 2.0 ** -PRECISION[match.narrowest(y, dtype)]
        error = float((np.abs(y - expected) / np.maximum(np.abs(expected), 2.0**-12)).max(initial=0))
        parts = ((y.real, expected.real), (y.imag, expected.imag))
        bias = max(abs(np.sum(a * b) / np.sum(b * b) - 1) for a, b in parts) if y.size else 0
        return error <= ROUNDINGS * unit and bias <= match.SIGMAS * unit / np.sqrt(max(1, y.size)) + BIAS, error

    is_right, error = is_rotated(x)
    if is_right:
        return []
    if is_rotated(np.abs(x) / 8)[0]:
        return ["x with negative elements, or with elements above 1, is not rotated as other x are"]
    return [f"the result is not a rotation of x: it differs by up to {error:.2g} of the length of a pair"]


def _pairs_of(matrices: Reals) -> tuple[dict[tuple[int, ...], tuple[int, ...]], list[str]]:
    """Return the columns of x that are rotated together, with their columns in the result, and the faults of their matrices.

    A column that is not rotated is alone.
    """
    faults: dict[str, list[int]] = {}
    by_outputs: dict[tuple[int, ...], list[int]] = {}
    for column, reached in enumerate(np.abs(matrices).max(axis=0) > SMALL):
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
