"""The rotation that a module computes, as a function of x and positions."""

from __future__ import annotations

import functools
import inspect
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from posenc._identify.rotation.report import each_once
from posenc.torch._check_rotary import call_functions as calls
from posenc.torch._check_rotary.call_functions import HEADS, Form, Plan, Tables
from posenc.torch._check_rotary.find_rotary import Function, is_called, rows_of_sines, tensors_of

METHODS = ("rotate_queries_or_keys", "forward_native", "forward")      # in rotary-embedding-torch, in vLLM, in other code
LONGEST = 2**15             # largest number of positions in a call that returns tables of all positions from 0 on
MOST_FROM_ZERO = 2**11              # largest number of positions in a call that rotates vectors at all positions from 0 on
ELEMENTS = 2**20            # largest number of elements of these vectors in a call
TRIAL = torch.arange(3)

Rotate = Callable[[Tensor, Tensor], list[Tensor]]       # (x of shape (n, head_dim), n positions) -> rotated tensors


class Rotation(NamedTuple):
    """A rotation as a function of NumPy arrays, or, if `columns` is None, a function that returns cosines and sines."""

    function: str                   # the name of the function that applies it, or an empty string
    rotate: Callable[[NDArray[Any], NDArray[Any]], Any]
    columns: int | None
    conditional: bool = False       # whether a condition of unknown value decides if the function is called
    nested: bool = False            # whether the caller is a submodule of another module that applies a rotation


class Setting(NamedTuple):
    """Options for the calls of a module."""

    columns: tuple[int, ...]        # numbers of columns that the rotation may have
    layer_type: str | None = None
    axes: int = 1                   # number of axes of positions; positions of shape (n,) are the same on all axes
    length: int | None = None       # the length of the sequences; each call has an additional row at position length - 1
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")


# ---- calls of a module ------------------------------------------------------------------------------------------------


def _result(
    function: Callable[..., Any], roles: dict[str, str], plan: Plan, setting: Setting, heads: int, x: Tensor, positions: Tensor,
) -> Any:
    """Call a function with values for all its roles."""
    values: dict[str, Any] = {"x": calls.in_heads(x, plan, heads)}
    values["keys"] = values["x"]
    if setting.layer_type is not None:
        values["layer_type"] = setting.layer_type
    if "positions" in roles.values():
        every = positions.expand(setting.axes, -1) if setting.axes > 1 else positions
        values["positions"] = every if plan.shape else every[..., None, :]
    elif "offset" in roles.values():
        values["offset"] = int(positions[0])
    elif "length" in roles.values():
        values["length"] = positions.shape[-1]
    if plan.shape == 2:             # all heads are in the last dimension
        values["x"] = values["keys"] = calls.in_heads(x, plan._replace(swapped=True), heads).flatten(2)[0]
    return calls.called(function, roles, values)


def _module_plans(columns: Sequence[int], roles: dict[str, str]) -> Iterator[Plan]:
    for width in columns:
        for shape in (0, 1, 2) if "positions" in roles.values() else (0,):
            for swapped in (False, True):
                yield Plan(swapped, shape, width)


def _turned(result: Any, x: Tensor, plan: Plan, heads: int) -> list[Tensor]:
    """Return the rotated tensors in the result of a call with `plan`."""
    if plan.shape == 2:
        shape = (1, x.shape[-2], heads if x.ndim == 2 else len(x), -1)
        result = [each.reshape(shape) for each in (result if isinstance(result, (tuple, list)) else [result])]
        plan = plan._replace(swapped=True)
    return calls.from_heads(result, x, plan, calls.in_heads(x, plan, heads))


def forward_of(module: nn.Module, setting: Setting) -> tuple[Rotate | None, Callable[[Tensor, Tensor], Tables] | None]:
    """Return the function that rotates and the function that returns tables; each is None if the module does not provide it."""
    for name in ("forward",) if "forward" in vars(module) else METHODS:
        function, roles = _method(module, name)
        if not roles:
            continue
        call = functools.partial(_result, function, roles)
        still = None                # a rotation that is the same at all positions
        for plan in _module_plans(setting.columns, roles):
            x = _random(1, plan.columns, setting).expand(len(TRIAL), -1)
            try:
                result = call(plan, setting, HEADS, x, TRIAL.to(setting.device))
            except calls.FAILURES:
                continue
            try:
                rows = _turned(result, x, plan, HEADS)[0]
                rotate = _in_runs(functools.partial(_rotated, call, plan, setting), roles)
                if not torch.equal(rows, rows[:1].expand_as(rows)):
                    return rotate, None
                still = still or rotate
                continue
            except calls.FAILURES:
                form = calls.form_of(result, len(TRIAL))
            if form is not None:
                tables = functools.partial(_tables, call, plan, setting, form)
                return None, tables if "positions" in roles.values() else functools.partial(_first_rows, tables)
        if still is not None:
            return still, None
    return None, None


def _method(module: nn.Module, name: str) -> tuple[Callable[..., Any], dict[str, str] | None]:
    """Return a method and the roles of its parameters; for forward, return a function that calls the module with its hooks."""
    method = getattr(module, name, None)
    if not callable(method):
        return module, None
    if name != "forward":
        return method, calls.roles_of(method)

    def call(*arguments: Any, **keywords: Any) -> Any:
        return module(*arguments, **keywords)

    for each in (method, functools.partial(type(module).forward, module)):
        if roles := calls.roles_of(each, "positions"):
            call.__signature__ = inspect.signature(each)  # type: ignore[attr-defined]
            return call, roles
    return module, None


def _rotated(call: Callable[..., Any], plan: Plan, setting: Setting, x: Tensor, positions: Tensor) -> list[Tensor]:
    return _turned(call(plan, setting, 1, x, positions), x, plan, 1)


def _tables(call: Callable[..., Any], plan: Plan, setting: Setting, form: Form, x: Tensor, positions: Tensor) -> Tables:
    return calls.tables_of(call(plan, setting, 1, x, positions), positions.shape[-1], form)


def _in_runs(rotate: Rotate, roles: dict[str, str]) -> Rotate:
    """Return a rotation for any positions; `rotate` may take only consecutive positions, from an offset or from 0 on."""
    known = roles.values()
    if "positions" in known:
        return rotate

    def each_run(x: Tensor, positions: Tensor) -> list[Tensor]:
        unique, index, counts = positions.unique(return_inverse=True, return_counts=True)
        if len(set(counts.tolist())) > 1:
            each_row = [each_run(x[i : i + 1], positions[i : i + 1]) for i in range(len(x))]
            return [torch.cat(each) for each in zip(*each_row, strict=True)]
        order = index.argsort(stable=True)
        heads = x[order].view(len(unique), int(counts[0]), -1).transpose(0, 1)      # rows at the same position become heads
        turned = _from_offsets(rotate, heads, unique) if "offset" in known else _from_zero(rotate, heads, unique)
        return [each.transpose(0, 1).reshape(x.shape)[order.argsort()] for each in turned]

    return each_run


def _from_offsets(rotate: Rotate, heads: Tensor, positions: Tensor) -> list[Tensor]:
    """Rotate rows, of shape (heads, n, head_dim), by one call for each run of consecutive positions."""
    gaps = [i for i in range(1, len(positions)) if positions[i] != positions[i - 1] + 1]
    parts = [rotate(heads[:, begin:end], positions[begin:end]) for begin, end in itertools.pairwise([0, *gaps, len(positions)])]
    return [torch.cat(each, 1) for each in zip(*parts, strict=True)]


def _from_zero(rotate: Rotate, heads: Tensor, positions: Tensor) -> list[Tensor]:
    """Rotate rows with calls at all positions from 0 to the largest one; x is 0 at the positions that were not given."""
    n = int(positions.max()) + 1
    _check_length(n, MOST_FROM_ZERO)
    parts = []
    for some in heads.split(max(1, ELEMENTS // (n * heads.shape[2]))):
        rows = some.new_zeros(len(some), n, heads.shape[2])
        rows[:, positions] = some
        parts.append([each[:, positions] for each in rotate(rows, torch.arange(n, device=positions.device))])
    return [torch.cat(each) for each in zip(*parts, strict=True)]


def _first_rows(tables: Callable[[Tensor, Tensor], Tables], x: Tensor, positions: Tensor) -> Tables:
    """Return the rows at these positions; the call returns tables of all positions from 0 to the largest one."""
    n = int(positions.max()) + 1
    _check_length(n, LONGEST)
    found = tables(x[:1].expand(n, -1), torch.arange(n, device=positions.device))
    return calls.tables_of((found.cos[positions], found.sin[positions]), len(positions), calls.pair)


def _check_length(n: int, most: int) -> None:
    if n > most:
        raise IndexError(f"the module computes all {n} positions from 0 on, expected at most {most}")


def stored_tables(module: nn.Module) -> Callable[[Tensor, Tensor], Tables] | None:
    """Return a function that reads rows of the tables that a module stores, or None."""
    tensors = tensors_of(module)
    sines = rows_of_sines(tensors)
    candidates: list[Any] = [] if sines is None else [sines]
    cos = {name: value for name, value in tensors.items() if "cos" in name and "sin" not in name}
    for name, value in cos.items():
        if (other := tensors.get(name.replace("cos", "sin"))) is not None and value.shape == other.shape:
            candidates.append((value, other))
    candidates += [value for name, value in tensors.items() if value.ndim >= 2 and name not in cos and "sin_" not in name]
    for each in candidates:
        table = tuple(map(_squeezed, each)) if isinstance(each, tuple) else _squeezed(each)
        first = table[0] if isinstance(table, tuple) else table
        if first.ndim < 2 or len(first) < len(TRIAL):
            continue
        form = calls.form_of(_at(table, TRIAL.to(first.device)), len(TRIAL))
        if form is not None and form is not calls.angles:
            return functools.partial(_stored, table, form)
    return None


def _squeezed(table: Tensor) -> Tensor:
    while table.ndim > 2 and len(table) == 1:
        table = table[0]
    return table


def _at(table: Any, positions: Tensor) -> Any:
    return tuple(each[positions] for each in table) if isinstance(table, tuple) else table[positions]


def _stored(table: Any, form: Form, x: Tensor, positions: Tensor) -> Tables:
    return calls.tables_of(_at(table, positions), len(positions), form)


# ---- rotations ------------------------------------------------------------------------------------------------------


def rotations(module: nn.Module, functions: Sequence[Function], setting: Setting) -> list[list[Rotation]]:
    """Return a list of rotations for the module, or a list for each function that takes the module's tables.

    A list contains the rotation of queries and, if it differs, that of keys.  If the module does not rotate but has tables, the
    last list contains these tables.
    """
    rotate, tables = forward_of(module, setting) if is_called(module) else (None, None)
    if rotate is not None:
        return [_each_tensor("", rotate, setting)]
    tables = tables or stored_tables(module)
    if tables is None:
        return []
    found = []
    for function in functions:
        composed = _composed(function, tables, setting)
        if composed is not None:
            each = _each_tensor(function.name, composed, setting)
            found.append([rotation._replace(conditional=function.conditional, nested=function.nested) for rotation in each])
    return [*found, [_tables_alone(tables, setting)]]


def _composed(function: Function, tables: Callable[[Tensor, Tensor], Tables], setting: Setting) -> Rotate | None:
    """Return the rotation by a function that takes tables, or None if no call succeeds."""
    def rotate(plan: Plan, heads: int, x: Tensor, positions: Tensor) -> list[Tensor]:
        given = calls.in_heads(x, plan, heads)
        moved = function.before(given) if function.before else given
        other = torch.full_like(moved, 0.37)            # for the other argument, whose result is not used
        values = {"positions": torch.arange(len(x), device=positions.device)[None],
                  **calls.table_values(tables(x, positions), plan.shape)}
        found = calls.called(function.call, function.roles, {"x": moved, "keys": other, **values})
        queries = calls.from_heads(found, x, plan, given)
        if "keys" not in function.roles.values() or len(queries) < 2:
            return queries[:1]
        found = calls.called(function.call, function.roles, {"x": other, "keys": moved, **values})
        return [queries[0], calls.from_heads(found, x, plan, given)[1]]

    for plan in calls.plans(setting.columns):
        try:
            rotate(plan, HEADS, _random(len(TRIAL), max(setting.columns), setting), TRIAL.to(setting.device))
        except calls.FAILURES:
            continue
        return functools.partial(rotate, plan, 1)
    return None


def _each_tensor(name: str, rotate: Rotate, setting: Setting) -> list[Rotation]:
    """Return the rotation of queries and, if it differs, that of keys."""
    columns = max(setting.columns)
    x, positions = _random(8, columns, setting), torch.arange(8, device=setting.device)
    found = _extended(rotate, setting.length)(x, positions)
    different = len(found) == 2 and not torch.equal(*found)
    result = []
    for index in range(1 + different):
        def one(x: Tensor, positions: Tensor, index: int = index) -> Tensor:
            return _extended(rotate, setting.length)(x, positions)[index]
        order = _order(one, columns, setting)
        result.append(Rotation(name, functools.partial(_numpy_rotation, one, order, setting), columns))
    return result


def _tables_alone(tables: Callable[[Tensor, Tensor], Tables], setting: Setting) -> Rotation:
    """Return a `Rotation` whose function returns one cosine and one sine for each pair."""
    def rows(x: Tensor, positions: Tensor) -> list[Tensor]:
        found = tables(x, positions)
        return [found.cos, found.sin]

    def cos_sin(x: NDArray[Any], positions: NDArray[Any]) -> tuple[NDArray[Any], NDArray[Any]]:
        zeros = torch.zeros(positions.shape[-1], max(setting.columns), dtype=setting.dtype, device=setting.device)
        cos, sin = _extended(rows, setting.length)(zeros, _tensor(positions, setting))
        return each_once((_array(cos), _array(sin)))

    cos_sin.head_dim = max(setting.columns)  # type: ignore[attr-defined]  # identify_rotary needs it without `expect`
    return Rotation("", cos_sin, None)


def _extended(rotate: Rotate, length: int | None) -> Rotate:
    """Return a rotation of sequences of this length; each call has one more row, at the last position."""
    if length is None:
        return rotate

    def extended(x: Tensor, positions: Tensor) -> list[Tensor]:
        if int(positions.max()) >= length:
            raise IndexError(f"position is {int(positions.max())}, expected less than {length}")
        rows = torch.cat([x, x.new_zeros(1, x.shape[1])])
        last = positions.new_full((*positions.shape[:-1], 1), length - 1)
        return [each[:-1] for each in rotate(rows, torch.cat([positions, last], -1))]

    return extended


def _order(rotate: Callable[[Tensor, Tensor], Tensor], columns: int, setting: Setting) -> NDArray[np.intp]:
    """Return the order of columns that undoes a permutation of the columns by the rotation.

    This permutation is not a fault: if queries and keys have the same one, their products do not change.
    """
    identity = torch.eye(columns, dtype=setting.dtype, device=setting.device)
    values = _array(rotate(identity, torch.zeros(columns, dtype=torch.long, device=setting.device)))
    at_zero = values != 0
    if (values[at_zero] > 0).all() and (at_zero.sum(0) == 1).all() and (at_zero.sum(1) == 1).all():
        return np.argmax(at_zero, axis=1)
    return np.arange(columns)


def _numpy_rotation(
    rotate: Callable[[Tensor, Tensor], Tensor], order: NDArray[np.intp], setting: Setting, x: NDArray[Any],
    positions: NDArray[Any],
) -> NDArray[Any]:
    given = torch.from_numpy(np.ascontiguousarray(x)).to(setting.device, setting.dtype)
    return _array(rotate(given, _tensor(positions, setting)))[:, order]


def _tensor(positions: NDArray[Any], setting: Setting) -> Tensor:
    return torch.from_numpy(np.array(positions, np.int64)).to(setting.device)


def _array(tensor: Tensor) -> NDArray[Any]:
    tensor = tensor.detach().cpu()
    if tensor.dtype == torch.bfloat16:
        import ml_dtypes

        return tensor.contiguous().view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def _random(n: int, columns: int, setting: Setting) -> Tensor:
    """Return positive random numbers that do not depend on PyTorch's generator."""
    values = np.random.default_rng(0).uniform(0.5, 1, (n, columns))
    return torch.from_numpy(values).to(setting.device, setting.dtype)
