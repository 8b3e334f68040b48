"""Calls: the tables and rotations of a module in PyTorch, as functions of x and positions."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from posenc.check.report import is_rotary
from posenc.check.tensors import array_of_tensor

ROLES = {
    "x": ("x", "q", "query", "queries", "query_states", "xq", "hidden_states", "tensor", "t", "input"),
    "keys": ("k", "key", "keys", "key_states", "xk"),
    "positions": ("position_ids", "positions", "position", "pos", "input_pos"),
    "cos": ("cos", "cos_cached", "freqs_cos"),
    "sin": ("sin", "sin_cached", "freqs_sin"),
    "table": ("freqs_cis", "freqs", "rope_cache", "rotary_pos_emb", "rope", "cos_sin", "position_embeddings"),
    "length": ("seq_len", "seq_length"),
    "offset": ("offset", "start_pos"),
    "layer_type": ("layer_type",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
METHODS = ("rotate_queries_or_keys", "forward_native", "forward")      # in rotary-embedding-torch, in vLLM, in other code
CLASS = re.compile(r"rotary|ro_?pe(?![a-z])", re.IGNORECASE)            # matches LlamaRotaryEmbedding, RoPE, RopeScaling
FAILURES = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, AssertionError, KeyError, NotImplementedError)
HEADS, TRIAL = 5, torch.arange(3)       # different numbers of heads and positions show which axis is which
LONGEST = 2**15             # largest number of positions in a call that returns tables of all positions from 0 on


class Setting(NamedTuple):
    """Options for the calls of a module."""

    widths: tuple[int, ...]         # numbers of columns that the rotation may have
    layer_type: str | None = None
    axes: int = 1                   # number of axes of positions; positions of shape (n,) are the same on all axes
    length: int | None = None       # the length of the sequences; each call has an additional row at position length - 1
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")


# ---- modules ---------------------------------------------------------------------------------------------------------


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers, parameters and other tensor attributes of a module, without those of its submodules."""
    attributes = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False)), **attributes}
    return {name: value for name, value in tensors.items() if value is not None}


def is_called(module: nn.Module) -> bool:
    """Return whether a module only computes a rotation, so that a copy of it may be called."""
    names = [kind.__name__ for kind in type(module).__mro__]
    named = any(map(CLASS.search, names)) or any(map(is_rotary, tensors_of(module)))
    return named and type(module).forward is not nn.Module.forward and not any(True for _ in module.children())


def is_place(module: nn.Module) -> bool:
    """Return whether a module is a rotary module, or has the tensors of one."""
    tensors = tensors_of(module)
    return is_called(module) or any(map(is_rotary, tensors)) or _rows_of_sines(tensors) is not None


def _rows_of_sines(tensors: dict[str, Tensor]) -> Tensor | None:
    """Return the table of a model such as GPT-J, with sines before cosines in each row, or None."""
    table = tensors.get("embed_positions")
    return table if table is not None and table.ndim == 2 and table.shape[1] % 2 == 0 else None


# ---- calls ----------------------------------------------------------------------------------------------------------


def roles_of(function: Callable[..., Any], t: str = "x") -> dict[str, str] | None:
    """Return the role of each parameter that has one, or None if a parameter without a role has no default.

    `t` is the role of a parameter named t.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    roles = {}
    for parameter in parameters:
        role = t if parameter.name == "t" else ROLE_OF.get(parameter.name)
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            continue
        if role is not None:
            roles[parameter.name] = role
        elif parameter.default is parameter.empty and parameter.name != "self":
            return None
    return roles


def _call(
    function: Callable[..., Any], signature: inspect.Signature, roles: Mapping[str, str], values: Mapping[str, Any]
) -> Any:
    """Call a function with the value of each role; the first ones by position, because hooks receive only these."""
    arguments = {name: values[role] for name, role in roles.items() if role in values}
    first = []
    for parameter in signature.parameters.values():
        if parameter.name not in arguments or parameter.kind == parameter.KEYWORD_ONLY:
            break
        first.append(arguments.pop(parameter.name))
    return function(*first, **arguments)


class Form(NamedTuple):
    """The form of a call."""

    heads_last: bool            # x of shape (1, n, heads, columns) instead of (1, heads, n, columns)
    flat: bool                  # positions of shape (n,), or tables of shape (n, columns), instead of a batch
    columns: int

    def given(self, x: Tensor, heads: int) -> Tensor:
        x = x[..., : self.columns].expand(1, heads, -1, -1).clone()
        return x.transpose(1, 2).contiguous() if self.heads_last else x

    def taken(self, result: Any, x: Tensor, given: Tensor) -> list[Tensor]:
        """Return the rotated tensors in a result, each in the shape of x; raise a ValueError for other results."""
        tensors = []
        for tensor in (result if isinstance(result, (tuple, list)) else (result,))[:2]:
            if not isinstance(tensor, Tensor) or tensor.shape != given.shape:
                raise ValueError(f"the result is {type(tensor).__name__}, expected a tensor of shape {tuple(given.shape)}")
            rows = (tensor.transpose(1, 2) if self.heads_last else tensor)[0, 0]
            tensors.append(torch.cat([rows, x[..., self.columns :].to(rows.dtype)], -1))
        return tensors


def _forms(setting: Setting) -> Iterator[Form]:
    for columns in setting.widths:
        for flat in (False, True):
            for heads_last in (False, True):
                yield Form(heads_last, flat, columns)


Tables = tuple[Tensor, Tensor, Any]         # cosines and sines of shape (n, columns), and both as the call returned them
Rotate = Callable[[Tensor, Tensor], list[Tensor]]       # (x of shape (n, columns), n positions) -> rotated tensors


def forward_of(module: nn.Module, setting: Setting) -> tuple[Rotate | None, Callable[[Tensor, Tensor], Tables] | None]:
    """Return the function that rotates and the function that returns tables; each is None if the module has none."""
    for name in ("forward",) if "forward" in vars(module) else METHODS:
        method: Any = getattr(module, name, None)
        is_forward = name == "forward"
        # the forward of an instance may be a wrapper, whose parameters are unknown
        methods = (method, functools.partial(type(module).forward, module)) if is_forward else (method,)
        for readable in methods if callable(method) else ():
            if roles := roles_of(readable, "positions" if is_forward else "x"):
                call = functools.partial(_call, module if is_forward else method, inspect.signature(readable), roles)
                result = _forms_tried(call, {*roles.values()}, setting, name == "forward_native")
                if result != (None, None):
                    return result
                break
    return None, None


def _forms_tried(
    call: Callable[[Mapping[str, Any]], Any], known: set[str], setting: Setting, packed: bool
) -> tuple[Rotate | None, Callable[[Tensor, Tensor], Tables] | None]:
    constant = None             # a rotation that is the same at all positions

    def run(form: Form, heads: int, x: Tensor, positions: Tensor) -> tuple[Any, Tensor]:
        given = form.given(x, heads)
        queries = given.flatten(2)[0] if packed else given           # all heads in the last dimension
        values: dict[str, Any] = {"x": queries, "keys": queries}
        if setting.layer_type is not None:
            values["layer_type"] = setting.layer_type
        if "positions" in known:
            at = positions.expand(setting.axes, -1) if setting.axes > 1 else positions
            values["positions"] = at if form.flat or packed else at[..., None, :]
        elif "offset" in known:
            values["offset"] = int(positions[0])
        elif "length" in known:
            values["length"] = positions.shape[-1]
        result = call(values)
        if packed:
            result = tuple(part.reshape(given.shape) for part in result)
        return result, given

    for form in _forms(setting):
        if packed and not form.heads_last:
            continue
        x = _random(1, form.columns, setting).expand(len(TRIAL), -1)
        try:
            result, given = run(form, HEADS, x, TRIAL.to(setting.device))
        except FAILURES:
            continue
        try:
            rows = form.taken(result, x, given)[0]
        except FAILURES:
            kind = _kind_of(result, len(TRIAL))
            if kind is None:
                continue

            def tables(x: Tensor, positions: Tensor, form: Form = form, kind: Any = kind) -> Tables:
                return _tables(run(form, 1, x, positions)[0], positions.shape[-1], kind)

            return None, tables if "positions" in known else functools.partial(_first_rows, tables)

        def rotate(x: Tensor, positions: Tensor, form: Form = form) -> list[Tensor]:
            result, given = run(form, 1, x, positions)
            return form.taken(result, x, given)

        whole = rotate if "positions" in known else functools.partial(_at_offsets, rotate)
        if not torch.equal(rows, rows[:1].expand_as(rows)):
            return (None, None) if not {"positions", "offset"} & known else (whole, None)
        constant = constant or whole
    return constant, None


def _at_offsets(rotate: Rotate, x: Tensor, positions: Tensor) -> list[Tensor]:
    """Rotate rows by one call for each row, whose offset is its position."""
    rows = [rotate(x[i : i + 1], positions[i : i + 1]) for i in range(len(x))]
    return [torch.cat(parts) for parts in zip(*rows, strict=True)]


def _first_rows(tables: Callable[[Tensor, Tensor], Tables], x: Tensor, positions: Tensor) -> Tables:
    """Return the rows at these positions; the call returns tables of all positions from 0 to the largest one."""
    n = int(positions.max()) + 1
    if n > LONGEST:
        raise IndexError(f"the module computes all {n} positions from 0 on, expected at most {LONGEST}")
    cos, sin, _ = tables(x[:1].expand(n, -1), torch.arange(n, device=positions.device))
    return cos[positions], sin[positions], (cos[positions], sin[positions])


def _kind_of(result: Any, n: int) -> Callable[[Any], tuple[Tensor, Tensor]] | None:
    """Return the function that reads cosines and sines from a result for n positions from 0 on, or None if there are none."""
    if isinstance(result, (tuple, list)):
        if len(result) != 2 or not isinstance(result[0], Tensor) or not result[0].is_floating_point():
            return None
        first = _rows_in(result[0], n)
        if isinstance(result[1], (int, float)):                     # x-transformers: (angles, scale)
            return None if first is None else lambda pair: (pair[0].cos(), pair[0].sin())
        second = _rows_in(result[1], n) if isinstance(result[1], Tensor) else None
        if first is None or second is None or first.shape != second.shape:
            return None
        is_reversed = second[0].any() and not first[0].any()
        return (lambda pair: (pair[1], pair[0])) if is_reversed else lambda pair: (pair[0], pair[1])
    if not isinstance(result, Tensor) or not (result.is_complex() or result.is_floating_point()):
        return None
    if result.is_complex():
        return None if _rows_in(result, n) is None else lambda table: (table.real, table.imag)
    if result.ndim >= 3 and result.shape[-1] == 2 and _rows_in(result[..., 0], n) is not None:
        return lambda table: (table[..., 0], table[..., 1])
    rows = _rows_in(result, n)
    if rows is None or rows.shape[1] % 2:
        return None
    if not rows[0].any():
        return lambda angles: (angles.cos(), angles.sin())
    if rows[0, : rows.shape[1] // 2].any():
        return lambda table: tuple(table.chunk(2, -1))
    return lambda table: tuple(reversed(table.chunk(2, -1)))


def _rows_in(table: Tensor, n: int) -> Tensor | None:
    """Return a table in the shape (n, columns), or None if it has another axis whose length is not 1."""
    sizes = [size for size in table.shape[:-1] if size != 1]
    return table.reshape(n, -1) if sizes == [n] * (n != 1) and table.ndim and table.shape[-1] else None


def _tables(result: Any, n: int, kind: Callable[[Any], tuple[Tensor, Tensor]]) -> Tables:
    cos, sin = (_rows_in(table, n) for table in kind(result))
    if cos is None or sin is None:
        raise ValueError(f"the result is not a table of {n} positions")
    return cos, sin, result[0] if isinstance(result, tuple) and not isinstance(result[1], Tensor) else result


def stored_tables(module: nn.Module) -> Callable[[Tensor, Tensor], Tables] | None:
    """Return a function that reads rows of the tables that a module stores, or None."""
    stored = _stored(module)
    if stored is None:
        return None
    table, kind = stored
    return lambda x, positions: _tables(_at(table, positions), len(positions), kind)


def stored_rows(module: nn.Module) -> int | None:
    """Return the number of rows of the tables that a module stores, or None."""
    stored = None if is_called(module) and "length" in (roles_of(module.forward) or {}).values() else _stored(module)
    return None if stored is None else len(stored[0][0] if isinstance(stored[0], tuple) else stored[0])


def _stored(module: nn.Module) -> tuple[Any, Any] | None:
    tensors = tensors_of(module)
    sines = _rows_of_sines(tensors)
    candidates: list[Any] = [] if sines is None else [sines]
    cos = {name: value for name, value in tensors.items() if "cos" in name and "sin" not in name}
    candidates += [(value, other) for name, value in cos.items()
                   if (other := tensors.get(name.replace("cos", "sin"))) is not None and value.shape == other.shape]
    candidates += [value for name, value in tensors.items() if value.ndim >= 2 and name not in cos and "sin_" not in name]
    for candidate in candidates:
        table = tuple(map(_squeezed, candidate)) if isinstance(candidate, tuple) else _squeezed(candidate)
        first = table[0] if isinstance(table, tuple) else table
        if first.ndim >= 2 and len(first) >= len(TRIAL) and first[0].any():
            kind = _kind_of(_at(table, TRIAL.to(first.device)), len(TRIAL))
            if kind is not None:
                return table, kind
    return None


def _squeezed(table: Tensor) -> Tensor:
    while table.ndim > 2 and len(table) == 1:
        table = table[0]
    return table


def _at(table: Any, positions: Tensor) -> Any:
    return tuple(part[positions] for part in table) if isinstance(table, tuple) else table[positions]


def composed(function: Callable[..., Any], tables: Callable[[Tensor, Tensor], Tables], setting: Setting) -> Rotate | None:
    """Return the rotation by a function that takes tables, or None if no call succeeds."""
    roles = roles_of(function)
    assert roles is not None
    call = functools.partial(_call, function, inspect.signature(function), roles)

    def rotate(form: Form, heads: int, x: Tensor, positions: Tensor) -> list[Tensor]:
        cos, sin, raw = tables(x, positions)
        given = form.given(x, heads)
        other = torch.full_like(given, 0.37)            # for the other argument, whose result is not used
        if form.flat:
            raw = (cos, sin) if isinstance(raw, (tuple, list)) else _squeezed(raw)
        elif isinstance(raw, Tensor) and raw.ndim == 2:
            raw = raw[None]
        pair = raw if isinstance(raw, (tuple, list)) else (cos, sin)
        values = {"positions": torch.arange(len(x), device=positions.device)[None], "table": raw,
                  "cos": cos if form.flat else _like(cos, pair[0]), "sin": sin if form.flat else _like(sin, pair[1])}
        queries = form.taken(call({"x": given, "keys": other, **values}), x, given)
        if "keys" not in roles.values() or len(queries) < 2:
            return queries[:1]
        return [queries[0], form.taken(call({"x": other, "keys": given, **values}), x, given)[1]]

    for form in _forms(setting):
        try:
            rotate(form, HEADS, _random(len(TRIAL), max(setting.widths), setting), TRIAL.to(setting.device))
        except FAILURES:
            continue
        return functools.partial(rotate, form, 1)
    return None


def _like(table: Tensor, other: Tensor) -> Tensor:
    """Return a table with the axes of another one, at least with one for the batch."""
    return table.reshape(other.shape) if other.ndim > 2 and table.numel() == other.numel() else table[None]


def numpy_function(rotate: Rotate, setting: Setting, each_once: bool = False) -> Callable[..., Any]:
    """Return a function of arrays that rotates, or that returns tables, with one more row at the end of long sequences."""
    def call(x: NDArray[Any], positions: NDArray[Any]) -> Any:
        rows = torch.from_numpy(np.ascontiguousarray(x)).to(setting.device, setting.dtype)
        at = torch.from_numpy(np.array(positions, np.int64)).to(setting.device)
        if setting.length is not None:
            if int(at.max()) >= setting.length:
                raise IndexError(f"position is {int(at.max())}, expected less than {setting.length}")
            rows = torch.cat([rows, rows.new_zeros(1, rows.shape[1])])
            at = torch.cat([at, at.new_full((*at.shape[:-1], 1), setting.length - 1)], -1)
        with torch.no_grad():
            tensors = rotate(rows, at)
        if setting.length is not None:
            tensors = [tensor[:-1] for tensor in tensors]
        arrays = tuple(array_of_tensor("the result", tensor) for tensor in tensors)
        if each_once:
            return tuple(map(_once, arrays))
        return arrays[0] if len(arrays) == 1 else arrays

    return call


def _once(table: NDArray[Any]) -> NDArray[Any]:
    """Return a table without repeated columns, because their order may differ from the layout of the pairs."""
    half = table.shape[-1] // 2
    if table.shape[-1] % 2 == 0 and half > 1:
        for one, other in ((table[..., :half], table[..., half:]), (table[..., ::2], table[..., 1::2])):
            if one.tobytes() == other.tobytes():
                return one
    return table


def _random(n: int, columns: int, setting: Setting) -> Tensor:
    """Return positive random numbers that do not depend on PyTorch's generator."""
    values = np.random.default_rng(0).uniform(0.5, 1, (n, columns))
    return torch.from_numpy(values).to(setting.device, setting.dtype)
