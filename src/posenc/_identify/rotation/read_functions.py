"""Read a rotation from a function or a module, by calls with unit vectors at a few positions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.types import Layout
from posenc._identify.rotation.read_arrays import (
    Reading,
    array_of,
    float64_values,
    is_pair,
    numpy_of,
    positions_on_axes,
    read_arrays,
)
from posenc._identify.wording import numbers
from posenc._rotary import Rotary, RotaryAt
from posenc._rotary.scaling import positions_without_length

REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))      # tried in turn, because a table may end
PROBES = 6                  # positions at which all unit vectors are rotated
SMALL = 1e-9                # smaller values may be rounding errors of zeros
Matrices: TypeAlias = NDArray[np.float64]           # indices: position, column of x, column of the result


class Form(NamedTuple):
    """The form of a function's arguments."""

    is_torch: bool
    shape: Callable[[int, int], tuple[int, ...]]        # (rows, columns) -> shape of x
    batched: bool                                       # whether positions have a leading axis of length 1


SHAPES: tuple[tuple[Callable[[int, int], tuple[int, ...]], bool], ...] = (
    (lambda n, d: (n, d), False), (lambda n, d: (1, n, d), True), (lambda n, d: (1, 1, n, d), False),
    (lambda n, d: (1, 1, n, d), True), (lambda n, d: (1, n, 1, d), False), (lambda n, d: (1, n, 1, d), True),
    (lambda n, d: (n, 1, d), False),
)


class ResultError(ValueError):
    """The result of a call is neither rotated vectors nor tables."""


def read_function(
    function: Callable[..., Any], positions: Any, expected: Rotary | None, head_dim: int | None, axes: int
) -> Reading:
    """Read a function or a module.

    Without `positions`, the function is called only at positions where the expected frequencies do not depend on the length.
    """
    pairs, limit = None, None
    if expected is not None:
        head_dim, pairs = expected.head_dim, expected.rotary_dim // 2
        limit = _limit(expected)
    if head_dim is None:
        raise TypeError("rotation is a function, so identify_rotary needs expect or head_dim, the number of columns")
    if positions is not None:
        choices = [positions_on_axes(positions, axes)]
    else:
        most = REACHES[0] if limit is None else limit
        choices = [_positions(reach, axes) for reach in dict.fromkeys(min(reach, most) for reach in REACHES)]
    form = _form(function, choices[-1], head_dim)
    ends = None
    for at in choices:
        try:
            result = _called(function, form, np.zeros((at.shape[-1], head_dim), np.float32), at)
            break
        except Exception as error:  # the function's table may end before these positions
            ends = int(at.max())
            if at is choices[-1]:
                raise ValueError(
                    f"a call with positions up to {ends:,} raises {type(error).__name__}: {error}; choose smaller positions, "
                    "such as up_to=N - 1 in assert_rotary for a table of N rows") from error
    remarks = () if ends is None else (_end(function, form, at, ends, head_dim),)
    fault = _fault_of_positions(function, form, at, head_dim)
    if fault:
        return _without_values(fault, at)
    if is_pair(result) or np.iscomplexobj(result):
        reading = read_arrays(result, at, pairs, axes)
        return reading._replace(remarks=remarks, call=_caller_of_tables(function, form, head_dim, pairs, axes))
    zeros = float64_values(*array_of("the result of rotation", result))
    if np.abs(zeros[np.isfinite(zeros)]).max(initial=0.0) > SMALL:
        return _without_values("the function returns values other than 0 if x is 0", at)
    return _read_rotated(function, form, at, head_dim, expected)._replace(remarks=remarks)


def _without_values(fault: str, positions: NDArray[Any]) -> Reading:
    """Return a reading that has a fault and no values, for a function whose values cannot be compared."""
    empty = np.zeros((0, 0), np.complex128)
    return Reading("float32", positions=positions[..., :0], rows=np.arange(0), read=lambda rows: empty, faults=(fault,))


def _limit(expected: Rotary) -> int | None:
    """Return the number of positions for which the expected frequencies apply, or None if the frequencies apply to all."""
    scaling = expected.scaling or {}
    length = scaling.pop("length", 0)
    trained = positions_without_length(scaling)
    return None if trained is None else max(length, trained)


def read_rotary(rotation: Rotary | RotaryAt, positions: Any) -> Reading:
    """Read a `Rotary` or a `RotaryAt`."""
    if isinstance(rotation, Rotary):
        axes = 1 if rotation.axes is None else 1 + max(rotation.axes)
        rotation = rotation.at(_positions(REACHES[0], axes) if positions is None else positions_on_axes(positions, axes))
    reading = read_arrays(rotation.tables(dtype="float64"), rotation.positions, rotation.rotary.rotary_dim // 2,
                          len(rotation.positions) if rotation.positions.ndim > 1 else 1)
    return reading._replace(layout=rotation.rotary.layout, head_dim=rotation.rotary.head_dim)


def _end(function: Callable[..., Any], form: Form, positions: NDArray[Any], bad: int, head_dim: int) -> str:
    """Return a remark with the first position at which a call fails; calls succeed at `positions` and fail at `bad`."""
    good, reason = int(positions.max()), ""
    while bad - good > 1:
        middle = (bad + good) // 2
        try:
            _called(function, form, np.zeros((1, head_dim), np.float32), np.full((*positions.shape[:-1], 1), middle))
            good = middle
        except Exception as error:  # noqa: BLE001
            bad, reason = middle, f": {type(error).__name__}"
    return f"a call with position {bad:,} or more raises an error{reason}"


def _positions(reach: int, axes: int) -> NDArray[np.int64]:
    """Return positions below `reach`: the first ones, those near powers of two, and some others."""
    powers = 2 ** np.arange(40)
    chosen = np.concatenate([np.arange(64), powers - 1, powers, powers + 1, np.linspace(0, reach - 1, 64).astype(int)])
    chosen = np.unique(chosen[(chosen >= 0) & (chosen < reach)])
    if axes == 1:
        return chosen
    return np.stack([(chosen * (2 * k + 1)) % reach for k in range(axes)])      # different on each axis


def _form(function: Callable[..., Any], positions: NDArray[Any], head_dim: int) -> Form:
    """Find the form of the arguments with which a call at the smallest position succeeds."""
    torch: Any = sys.modules.get("torch")
    is_module = torch is not None and isinstance(function, torch.nn.Module)
    kinds = (True,) if is_module else (False, True) if torch is not None else (False,)
    at = np.broadcast_to(positions.min(axis=-1, keepdims=True), positions.shape)
    errors: list[Exception] = []
    for is_torch in kinds:
        for shape, batched in SHAPES:
            form = Form(is_torch, shape, batched)
            try:
                _called(function, form, np.zeros((at.shape[-1], head_dim), np.float32), at)
                return form
            except Exception as error:  # noqa: BLE001  (any error means that the function expects another form)
                errors.append(error)
    for each in errors:
        if isinstance(each, ResultError):
            raise ValueError(str(each)) from None
    first = errors[1 if is_module else 0]       # modules expect an axis for the batch
    if len(kinds) > 1 and ("Tensor" in str(first) or "numpy.ndarray" in str(first)):        # the function refuses arrays
        first = errors[len(SHAPES)]
    raise ValueError(
        f"rotation cannot be called with x of shape ({positions.shape[-1]}, {head_dim}) and positions of shape "
        f"{positions.shape}, nor with further axes of length 1: {type(first).__name__}: {first}") from first


def _called(function: Callable[..., Any], form: Form, x: NDArray[np.float32], positions: NDArray[Any]) -> Any:
    """Return the result of a call: rotated vectors of the shape of x, or tables."""
    vectors: Any = x.reshape(form.shape(*x.shape))
    at: Any = np.ascontiguousarray(positions[..., None, :] if form.batched else positions)
    if form.is_torch:
        torch: Any = sys.modules["torch"]
        with torch.no_grad():
            result = function(torch.from_numpy(vectors), torch.from_numpy(at))
    else:
        result = function(vectors, at)
    if is_pair(result) and all(hasattr(part, "shape") for part in result):
        return tuple(numpy_of("the result of rotation", part) for part in result)
    array = numpy_of("the result of rotation", result)
    expected = f"expected an array of shape {vectors.shape}, or tables (cos, sin)"
    if not hasattr(array, "shape"):
        raise ResultError(f"the function returned a value of type {type(array).__name__}, {expected}")
    shape = np.shape(array)
    if not np.iscomplexobj(array) and [n for n in shape if n != 1] != [n for n in vectors.shape if n != 1]:
        raise ResultError(f"the function returned an array of shape {shape}, {expected}")
    return array if np.iscomplexobj(array) else array.reshape(x.shape)


def _fault_of_positions(function: Callable[..., Any], form: Form, positions: NDArray[Any], head_dim: int) -> str:
    """Return the fault of a function whose values depend on more than their own position, or an empty string.

    Compare a call at some positions with a call in which each of these positions is replaced by the last one.
    """
    some = positions[..., np.linspace(0, positions.shape[-1] - 1, 16).astype(int)]

    def values(at: NDArray[Any]) -> NDArray[Any]:
        result = _called(function, form, np.ones((some.shape[-1], head_dim), np.float32), at)
        parts = [array_of("the result of rotation", part) for part in (result if is_pair(result) else (result,))]
        own = [part if np.iscomplexobj(part) else float64_values(part, dtype) for part, dtype in parts]
        stacked = np.stack(np.broadcast_arrays(*own))
        return stacked.reshape(-1, some.shape[-1], stacked.shape[-1])

    every, last = values(some), values(np.broadcast_to(some[..., -1:], some.shape))
    if np.array_equal(every, last, equal_nan=True):
        return "" if _near(every, every[:, :1]) else "the values depend on the row, not on its position"
    if _near(last, every[:, -1:]):
        return ""
    if _near(last, values(np.zeros_like(some))):
        return "positions are counted from the first one of each call"
    return "the values depend on the other positions of the call"


def _near(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether values agree approximately; SIMD instructions may round values at equal positions differently."""
    size = np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
    return bool(np.allclose(x, y, rtol=0, atol=1e-2 * size, equal_nan=True))


def _caller_of_tables(
    function: Callable[..., Any], form: Form, head_dim: int, pairs: int | None, axes: int
) -> Callable[[NDArray[Any]], NDArray[np.complex128]]:
    def call(positions: NDArray[Any]) -> NDArray[np.complex128]:
        x = np.zeros((positions.shape[-1], head_dim), np.float32)
        reading = read_arrays(_called(function, form, x, positions), positions, pairs, axes)
        assert reading.read is not None
        return reading.read(slice(None))

    return call


# ---- rotated vectors ------------------------------------------------------------------------------------------------


class _Pair(NamedTuple):
    """Two columns of x that are rotated together, or one that is not rotated, and their columns in the result."""

    inputs: tuple[int, ...]
    outputs: tuple[int, ...]


def _read_rotated(
    function: Callable[..., Any], form: Form, at: NDArray[Any], head_dim: int, expected: Rotary | None
) -> Reading:
    def rotated(x: NDArray[np.float32], positions: NDArray[Any]) -> tuple[NDArray[np.float64], str]:
        array, dtype = array_of("the result of rotation", _called(function, form, x, positions))
        return float64_values(array, dtype), dtype

    few = np.unique(np.linspace(min(1, at.shape[-1] - 1), at.shape[-1] - 1, PROBES).astype(int))
    unit = np.tile(np.eye(head_dim, dtype=np.float32), (len(few), 1))
    table, dtype = rotated(unit, np.repeat(at[..., few], head_dim, axis=-1))
    matrices = table.reshape(len(few), head_dim, head_dim)
    matrices = matrices[np.isfinite(matrices).all(axis=(1, 2))]         # large angles overflow in float16
    if not len(matrices):
        return _without_values("no value is finite", at)
    pairs, faults = _pairs_of(matrices)
    layout, rotary_dim = _layout_of(pairs)
    if expected is not None and not expected.frequencies[rotary_dim // 2 :].any():      # as with the scaling type proportional
        rotary_dim = max(rotary_dim, expected.rotary_dim)
    together = [pair.inputs for pair in pairs if len(pair.inputs) > 1]
    if layout is None and len(together) > 1:
        one = together[0]
        faults += (f"the columns are paired neither as halves nor interleaved: {one[0]} with {one[1]}",)
    first = np.array([inputs[0] for inputs in together] or range((rotary_dim or head_dim) // 2), int)
    if layout is not None:
        faults += _faults_of_columns(matrices, pairs, rotary_dim)
        half = rotary_dim // 2
        first = np.arange(half) if layout == "halves" else 2 * np.arange(half)
    real = {pair.inputs[0]: pair.outputs for pair in pairs}
    outputs = [real.get(k, (k,)) for k in first.tolist()]

    def call(positions: NDArray[Any]) -> NDArray[np.complex128]:
        x = np.zeros((positions.shape[-1], head_dim), np.float32)
        x[:, first] = 1
        out, _ = rotated(x, positions)
        z = np.zeros((len(out), len(first)), np.complex128)
        for k, columns in enumerate(outputs):
            z[:, k] = out[:, columns[0]] + (1j * out[:, columns[1]] if len(columns) == 2 else 0)
        return z

    table_z = call(at)
    moved = any(pair.inputs != pair.outputs for pair in pairs)
    if moved and not rotary_dim:
        faults += ("the columns are moved but not rotated",)
    remarks = ("the result has its columns in another order",) if moved else ()
    return Reading(dtype, positions=at, rows=np.arange(at.shape[-1]), read=lambda rows: table_z[rows], call=call,
                   layout=layout, head_dim=head_dim, faults=faults, remarks=remarks)


def _pairs_of(matrices: Matrices) -> tuple[list[_Pair], tuple[str, ...]]:
    """Return the pairs of columns, and the faults of their matrices."""
    faults: dict[str, list[int]] = {}
    by_outputs: dict[tuple[int, ...], list[int]] = {}
    for column, reached in enumerate(np.abs(matrices).max(axis=0) > SMALL):
        by_outputs.setdefault(tuple(np.flatnonzero(reached).tolist()), []).append(column)
    pairs = []
    for outputs, inputs in by_outputs.items():
        if len(outputs) == len(inputs) <= 2:
            pairs.append(_Pair(tuple(inputs), outputs))
        else:
            problem = "are set to 0" if not outputs else "are mixed with several others"
            faults.setdefault(problem, []).extend(inputs)
            pairs += [_Pair((column,), (column,)) for column in inputs]
        if len(outputs) == len(inputs) == 2:
            (a, b), (c, d) = inputs, outputs
            own = matrices[:, [[a], [b]], [[c, d], [c, d]]]
            if np.abs(own[:, 0, 0] - own[:, 1, 1]).max() > 1e-2 * np.abs(own).max():
                faults.setdefault("have different cosines in a pair", []).append(a)
            elif np.abs(own[:, 0, 1] + own[:, 1, 0]).max() > 1e-2 * np.abs(own[:, 0, 1]).max():
                same = np.abs(own[:, 0, 1] - own[:, 1, 0]).max() < 1e-2 * np.abs(own[:, 0, 1]).max()
                faults.setdefault(
                    "have sines of the same sign in both columns of a pair" if same else "have different sines in a pair",
                    []).append(a)
    return sorted(pairs), tuple(f"columns {numbers(columns)} {problem}" for problem, columns in faults.items())


def _layout_of(pairs: list[_Pair]) -> tuple[Layout | None, int]:
    """Return the layout (None if the pairs have neither layout) and the number of rotated columns."""
    rotated = [pair.inputs for pair in pairs if len(pair.inputs) == 2]
    if not rotated:
        return None, 0
    steps = {b - a for a, b in rotated}
    if steps == {1} and rotated != [(0, 1)] and all(a % 2 == 0 for a, _ in rotated):
        return "interleaved", rotated[-1][1] + 1
    step = rotated[0][1] - rotated[0][0]
    if steps == {step} and all(a < step for a, _ in rotated):
        return "halves", 2 * step
    return None, 2 * len(rotated)


def _faults_of_columns(matrices: Matrices, pairs: list[_Pair], rotary_dim: int) -> tuple[str, ...]:
    """Return the faults of the columns that are not rotated."""
    rest = [pair.inputs[0] for pair in pairs if len(pair.inputs) == 1 and pair.inputs[0] >= rotary_dim]
    kept = [column for column in rest if np.abs(matrices[:, column]).max() > SMALL]
    changed = [column for column in kept if np.abs(matrices[:, column, column] - 1).max() > 1e-6]
    return (f"columns {numbers(changed)} are multiplied by a factor but not rotated",) if changed else ()
