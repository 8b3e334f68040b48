"""Functions: calls of a function or a module at some positions show its cosines and sines."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc import Rotary
from posenc.check.arithmetic import axes_of, float64_of
from posenc.check.limits import ALIKE, PROBES, REACHES, REPEATABLE, SMALL
from posenc.check.names import CALL_FORMS
from posenc.check.reading import Layout, Reading, array_of, numbers, positions_of, read_arrays, spread


class ResultError(ValueError):
    """The result of a call is neither rotated vectors nor tables."""


class Called(NamedTuple):
    """A function with the form of its arguments, and the number of axes of its positions."""

    function: Callable[..., Any]
    form: Callable[[int, int], tuple[int, ...]]
    axes: int

    def __call__(self, x: NDArray[np.float32], positions: NDArray[Any]) -> list[NDArray[Any]]:
        """Return one or two arrays: rotated vectors, in the shape of x, or tables."""
        vectors = x.reshape(self.form(*x.shape))
        if self.axes > 1 and positions.ndim == 1:
            positions = np.tile(positions, (self.axes, 1))
        at = np.ascontiguousarray(positions if vectors.ndim == 2 else positions[..., None, :])
        result = self.function(vectors, at)
        parts = list(result) if isinstance(result, (tuple, list)) and len(result) == 2 else [result]
        expected = f"expected an array of shape {vectors.shape}, two of them, or tables (cos, sin)"
        if not all(hasattr(part, "shape") for part in parts):
            raise ResultError(f"the function returned a value of type {type(parts[0]).__name__}, {expected}")
        arrays = [array_of("the result of rotation", part)[0] for part in parts]
        if any(np.iscomplexobj(array) for array in arrays):
            return arrays
        is_rotated = all([n for n in array.shape if n != 1] == [n for n in x.shape if n != 1] for array in arrays)
        if len(parts) == 1 and not is_rotated:
            raise ResultError(f"the function returned an array of shape {arrays[0].shape}, {expected}")
        return [array.reshape(x.shape) for array in arrays] if is_rotated else arrays

    def values(self, x: NDArray[np.float32], positions: NDArray[Any]) -> list[NDArray[Any]]:
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
    axes = axes_of(expected)
    most = REACHES[0] if expected is None else valid_positions(expected) or REACHES[0]
    choices = [spread(reach, 64, 64) for reach in dict.fromkeys(min(reach, most) for reach in REACHES)]
    if positions is not None:
        choices = [positions_of(positions, axes)]
    call = _in_a_form(function, choices[-1], head_dim, axes)
    ends: tuple[str, ...] = ()
    for at in choices:
        try:
            at_zero = call.values(np.zeros((at.shape[-1], head_dim), np.float32), at)
            break
        except Exception as error:  # the function's table may end before these positions
            ends = (f"a call with positions up to {int(at.max()):,} raises {type(error).__name__}: {error}",)
            if at is choices[-1]:
                hint = "choose smaller positions, such as up_to=N - 1 in assert_rotary for a table of N rows"
                raise ValueError(f"{ends[0]}; {hint}") from error
    fault = _fault_of_positions(call, at[..., np.isfinite(at_zero[0].reshape(at.shape[-1], -1)).all(axis=1)], head_dim)
    if fault:
        return [Reading("float32", faults=(fault,))]
    nonzero = [np.abs(part[np.isfinite(part)]).max(initial=0.0) > SMALL for part in at_zero]
    if nonzero[0] and (len(at_zero) == 2 or np.iscomplexobj(at_zero[0])):
        def tables(positions: NDArray[Any]) -> Reading:
            result = call(np.zeros((positions.shape[-1], head_dim), np.float32), positions)
            return read_arrays(tuple(result) if len(result) == 2 else result[0], positions, expected, axes)

        return [tables(at)._replace(call=lambda positions: tables(positions).read(slice(None)), remarks=ends)]
    if any(nonzero):
        of_keys = "" if nonzero[0] else "keys: "
        return [Reading("float32", faults=(f"{of_keys}the function returns values other than 0 if x is 0",))]
    x = np.tile(np.linspace(0.5, 1, head_dim, dtype=np.float32), (at.shape[-1], 1))
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


def _in_a_form(function: Callable[..., Any], positions: NDArray[Any], head_dim: int, axes: int) -> Called:
    """Find the form of the arguments with which a call at the smallest position succeeds."""
    at = np.broadcast_to(positions.min(axis=-1, keepdims=True), positions.shape)
    errors: dict[str, Exception] = {}
    for variant in _variants(function):
        for form in CALL_FORMS:
            call = Called(variant, form, axes)
            try:
                call(np.zeros((at.shape[-1], head_dim), np.float32), at)
                return call
            except Exception as error:  # noqa: BLE001  (any error means that the function expects another form)
                errors.setdefault(f"{type(error).__name__}: {error}", error)
    of_result = next((error for error in errors.values() if isinstance(error, ResultError)), None)
    if of_result is not None:
        raise ValueError(str(of_result)) from None
    raise ValueError(
        f"rotation cannot be called with x of shape ({positions.shape[-1]}, {head_dim}) and positions of shape "
        f"{positions.shape}, nor with axes for the batch and the heads, nor with tensors: {'; '.join(errors)}")


def _variants(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function of arrays, then the same function with tensors instead, if PyTorch is installed."""
    yield function
    with contextlib.suppress(ImportError):
        from posenc.check.calls import with_tensors

        yield with_tensors(function)


def _fault_of_positions(call: Called, positions: NDArray[Any], head_dim: int) -> str:
    """Return a fault if the values of a function depend on more than their position, or else an empty string.

    Compare a call at some positions with a call in which each of these positions is replaced by the last one.
    """
    if not positions.size:
        return ""
    some_positions = positions[..., np.linspace(0, positions.shape[-1] - 1, 16).astype(int)]

    def values(at: NDArray[Any]) -> NDArray[Any]:
        parts = call.values(np.ones((16, head_dim), np.float32), at)
        stacked = np.stack(np.broadcast_arrays(*parts))
        return stacked.reshape(-1, 16, stacked.shape[-1])

    mixed, at_last = values(some_positions), values(np.broadcast_to(some_positions[..., -1:], some_positions.shape))
    if np.array_equal(mixed, at_last, equal_nan=True):
        return "" if _agree(mixed, mixed[:, :1]) else "the values depend on the row, not on its position"
    if _agree(at_last, mixed[:, -1:]):
        return ""
    if _agree(at_last, values(np.zeros_like(some_positions))):
        return "positions are counted from the first one of each call"
    return "the values depend on the other positions of the call"


def _agree(x: NDArray[Any], y: NDArray[Any]) -> bool:
    """Return whether finite values agree approximately; other values are reported separately."""
    finite = np.isfinite(x) & np.isfinite(y)
    size = np.max(np.abs(y), initial=0.0, where=np.isfinite(y))
    return bool((np.abs(x - y) <= REPEATABLE * size)[finite].all())


# ---- rotated vectors ------------------------------------------------------------------------------------------------


def _read_rotated(
    call: Called, index: int, at: NDArray[Any], head_dim: int, expected: Rotary | None, any_order: bool
) -> Reading:
    """Read the rotation of queries (index 0) or of keys (index 1) by rotating unit vectors."""
    few = np.unique(np.linspace(min(1, at.shape[-1] - 1), at.shape[-1] - 1, PROBES).astype(int))
    unit = np.tile(np.eye(head_dim, dtype=np.float32), (len(few), 1))
    rotated, dtype = array_of("the result", call(unit, np.repeat(at[..., few], head_dim, axis=-1))[index])
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
        single = [k for (k,) in (pair for pair in outputs if len(pair) == 1) if k >= rotary_dim and outputs[k,]]
        scaled = [k for k in single if np.abs(matrices[:, k]).max() > SMALL and np.abs(matrices[:, k, k] - 1).max() > 1e-6]
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

    def values(positions: NDArray[Any]) -> NDArray[np.complex128]:
        x = np.zeros((positions.shape[-1], head_dim), np.float32)
        x[:, first] = 1
        rows = float64_of(*array_of("the result", call(x, positions)[index]))
        columns = [targets.get(k, (k,)) for k in first.tolist()]
        z: NDArray[np.complex128] = rows[:, [c[0] for c in columns]] + 1j * np.where(
            [len(c) == 2 for c in columns], rows[:, [c[-1] for c in columns]], 0.0)
        return z

    sampled = values(at)
    return Reading(dtype, positions=at, read=lambda rows: sampled[rows], call=values, layout=layout, head_dim=head_dim,
                   faults=(*faults, *([] if any_order else order)), remarks=tuple(order if any_order else []))


def _pairs_of(matrices: NDArray[np.float64]) -> tuple[dict[tuple[int, ...], tuple[int, ...]], list[str]]:
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
            if np.abs(block[:, 0, 0] - block[:, 1, 1]).max() > ALIKE * np.abs(block).max():
                faults.setdefault("have different cosines in a pair", []).append(inputs[0])
            elif np.abs(block[:, 0, 1] + block[:, 1, 0]).max() > ALIKE * np.abs(block[:, 0, 1]).max():
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
