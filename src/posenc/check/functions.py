"""Functions: a function that rotates x, or returns tables, is read as cosines and sines at the positions of calls."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from posenc import Rotary
from posenc._arguments.specification import Layout
from posenc.check import match
from posenc.check.match import PRECISION, Array, Reals, Waves, axes_of, float64_of
from posenc.check.reading import REACH, Reading, array_of, numbers, positions_of, read_arrays, spread

REACHES = tuple(2**k for k in (17, 15, 13, 12, 11, 10, 9, 8, 6, 4, 1))      # positions, as far as the function's table goes
PROBES = 6                  # positions at which all unit vectors are rotated
SMALL = 1e-9                # smaller elements of a rotation matrix are rounding errors of zeros
ROUNDINGS = 16              # half ulps between a rotated vector and its prediction from rounded cosines and sines
BIAS = 1e-6                 # mean error of rotated vectors: roundings of float32 may all have one direction

# the shapes of x for n rows of d columns; with more than two axes, the positions have the shape (1, n)
# instead of (n,)
CALL_FORMS: tuple[Callable[[int, int], tuple[int, ...]], ...] = (
    lambda n, d: (n, d), lambda n, d: (1, 1, n, d), lambda n, d: (1, n, 1, d))


class Rotation:
    """A function of x of shape (m, n, head_dim) and positions of shape (n,), or (axes, n), of the n rows of each array.

    It returns one or two arrays of the shape of x, or tables of the positions if m is 1.
    """

    is_free = True                      # whether the positions of a call may be repeated and in any order
    reach = REACH                       # the positions with which it is called are below this number
    length: int | None = None           # number of positions that the configuration states
    positions: Array | None = None      # those of the first calls, if they cannot be chosen

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        raise NotImplementedError

    def grows(self, length: int) -> bool:
        """Return whether the function has positions up to a length, although a call with others failed."""
        return False

    def values(self, x: Array, positions: Array) -> list[Array]:
        """Return the arrays of a call as float64 or complex128."""
        return [part if np.iscomplexobj(part) else float64_of(*array_of("the result", part)) for part in self(x, positions)]


class Called(Rotation):
    """A function with the form of its arguments, and the number of axes of its positions."""

    def __init__(self, function: Callable[..., Any], form: Callable[[int, int], tuple[int, ...]], axes: int):
        self.function, self.form, self.axes = function, form, axes

    def __call__(self, x: Array, positions: Array) -> list[Array]:
        """Return one or two arrays: rotated vectors, in the shape of x, or tables."""
        vectors = x.reshape(self.form(len(x) * x.shape[1], x.shape[2])).copy()      # the function may rotate in place
        positions = np.tile(positions, (self.axes if positions.ndim == 1 else 1, len(x)))
        positions = positions if self.axes > 1 or positions.shape[0] > 1 else positions[0]
        at = np.ascontiguousarray(positions if vectors.ndim == 2 else positions[..., None, :])
        result = self.function(vectors, at)
        parts = list(result) if isinstance(result, (tuple, list)) and len(result) == 2 else [result]
        expected = f"expected an array of shape {vectors.shape}, two of them, or tables (cos, sin)"
        if not all(hasattr(part, "shape") for part in parts):
            raise ValueError(f"the function returned a value of type {type(parts[0]).__name__}, {expected}")
        arrays = [array_of("the result of rotation", part)[0] for part in parts]
        if any(np.iscomplexobj(array) for array in arrays):
            return arrays
        is_rotated = all([n for n in array.shape if n != 1] == [n for n in vectors.shape if n != 1] for array in arrays)
        if len(parts) == 1 and not is_rotated:
            raise ValueError(f"the function returned an array of shape {arrays[0].shape}, {expected}")
        return [array.reshape(x.shape) for array in arrays] if is_rotated else arrays


def read_function(
    function: Callable[..., Any] | Rotation, positions: Any, expected: Rotary | None, head_dim: int | None, any_order: bool,
    most: int | None = None,
) -> list[Reading]:
    """Read a function or a module; return one reading, or those of queries and keys if the function returns both.

    Without `positions`, the function is called only at positions where the expected frequencies do not depend
    on the length.
    """
    head_dim = head_dim if expected is None else expected.head_dim
    if head_dim is None:
        raise TypeError("rotation is a function, so identify_rotary needs expect or head_dim, the number of columns")
    most = min(function.reach if isinstance(function, Rotation) else REACH, most or REACH)
    choices = [spread(reach, 64, 64) for reach in dict.fromkeys(min(reach, most) for reach in REACHES)]
    if positions is not None:
        choices = [positions_of(positions)]
    call = function if isinstance(function, Rotation) else _in_a_form(function, choices[-1], head_dim, axes_of(expected))
    ends: tuple[str, ...] = ()
    for at in choices:
        try:
            at_zero = call.values(np.zeros((1, len(at), head_dim), np.float32), at)
            break
        except Exception as error:  # the function's table may end before these positions
            last = int(at.max())
            ends = (f"a call with positions up to {last:,} raises {type(error).__name__}: {error}",)
            if at is choices[-1]:
                hint = "choose smaller positions, such as up_to=N - 1 in assert_rotary for a table of N rows"
                raise ValueError(f"{ends[0]}; {hint}") from error
    faults: tuple[str, ...] = ()
    if ends and call.length and last < call.length and not call.grows(last + 1):
        faults, ends = (f"{ends[0]}; the configuration has max_position_embeddings {call.length:,}",), ()
    usable = at[np.isfinite(at_zero[0].reshape(at.shape[-1], -1)).all(axis=1)]
    fault = _fault_of_positions(call, usable, head_dim) if call.is_free else ""
    if fault:
        return [Reading("float32", faults=(fault,))]
    nonzero = [np.abs(part[np.isfinite(part)]).max(initial=0.0) > SMALL for part in at_zero]
    if nonzero[0] and (len(at_zero) == 2 or np.iscomplexobj(at_zero[0])):
        def tables(positions: Array) -> Reading:
            result = call(np.zeros((1, len(positions), head_dim), np.float32), positions)
            return read_arrays(tuple(result) if len(result) == 2 else result[0], positions, expected)

        return [tables(at)._replace(call=lambda positions: tables(positions).read(slice(None)), remarks=ends)]
    if any(nonzero):
        of_keys = "" if nonzero[0] else "keys: "
        return [Reading("float32", faults=(f"{of_keys}the function returns values other than 0 if x is 0",))]
    x = np.tile(np.linspace(0.5, 1, head_dim, dtype=np.float32), (1, len(at), 1))
    rotated = call(x, at)
    count = 2 if len(rotated) == 2 and not np.array_equal(rotated[0], rotated[1], equal_nan=True) else 1
    readings = [_read_rotated(call, index, at, head_dim, expected, any_order) for index in range(count)]
    return [each._replace(remarks=(*each.remarks, *ends), faults=(*each.faults, *faults)) for each in readings]


def _in_a_form(function: Callable[..., Any], positions: Array, head_dim: int, axes: int) -> Called:
    """Find the form of the arguments with which a call at the smallest position succeeds."""
    at = np.full_like(positions, positions.min())
    errors = []
    for variant in _variants(function):
        for form in CALL_FORMS:
            call = Called(variant, form, axes)
            try:
                call(np.zeros((1, len(at), head_dim), np.float32), at)
                return call
            except Exception as error:  # noqa: BLE001  (any error means that the function expects another form)
                errors.append(f"{type(error).__name__}: {error}")
    raise ValueError(f"rotation cannot be called with x of shape ({len(positions)}, {head_dim}), nor with axes for the batch "
                     f"and the heads, nor with tensors: {'; '.join(dict.fromkeys(errors))}")


def _variants(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """Yield a function of arrays, then the same function with tensors instead, if PyTorch is installed."""
    yield function
    with contextlib.suppress(ImportError):
        from posenc.check.running import with_tensors

        yield with_tensors(function)


def _fault_of_positions(call: Rotation, positions: Array, head_dim: int) -> str:
    """Return a fault if the values of a function depend on more than their position, or else an empty string.

    Compare a call at some positions, in no order, with calls in which all positions are the last of these.
    """
    if not positions.size:
        return ""
    some_positions = positions[np.linspace(0, len(positions) - 1, 16).astype(int)][np.arange(16) * 7 % 16]

    def values(at: Array) -> Array:
        parts = call.values(np.ones((1, len(at), head_dim), np.float32), at)
        stacked = np.stack(np.broadcast_arrays(*parts))
        return stacked.reshape(-1, len(at), stacked.shape[-1])

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
