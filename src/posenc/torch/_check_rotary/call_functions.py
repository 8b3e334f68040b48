"""Call functions of other projects that compute or apply rotations; parameter names show which tensors a function takes."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

ROLES = {
    "x": ("x", "q", "query", "queries", "query_states", "query_layer", "xq", "hidden_states", "tensor", "input", "inputs", "t",
          "v", "value"),
    "keys": ("k", "key", "keys", "key_states", "key_layer", "xk"),
    "positions": ("position_ids", "positions", "position", "pos", "input_pos", "pos_ids", "indices", "ids"),
    "cos": ("cos", "cos_cached", "cosine", "freqs_cos", "cos_emb"),
    "sin": ("sin", "sin_cached", "sine", "freqs_sin", "sin_emb"),
    "table": ("freqs_cis", "freqs", "freq", "rope_cache", "freqs_complex", "rotary_pos_emb", "rotary_emb", "emb", "rope",
              "cache", "cos_sin", "cos_sin_cache", "position_embeddings", "pos_emb", "angles", "frequencies"),
    "length": ("seq_len", "seqlen", "seq_length", "max_seq_len", "length"),
    "offset": ("offset", "start_pos", "seqlen_offset"),
    "layer_type": ("layer_type",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
HEADS = 5           # number of heads in a trial call, different from its number of positions
FAILURES = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, AssertionError, KeyError, NotImplementedError)


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


def called(function: Callable[..., Any], roles: Mapping[str, str], values: Mapping[str, Any]) -> Any:
    """Call a function with the value of each role; parameters whose role has no value keep their default.

    The first arguments are passed by position, as in a model, because hooks receive only positional arguments.
    """
    arguments = {name: values[role] for name, role in roles.items() if role in values}
    parameters = inspect.signature(function).parameters
    first = itertools.takewhile(lambda each: each.name in arguments and each.kind != each.KEYWORD_ONLY, parameters.values())
    positional = [arguments.pop(each.name) for each in list(first)]
    return function(*positional, **arguments)


# ---- results -------------------------------------------------------------------------------------------------------


class Tables(NamedTuple):
    """Cosines and sines of n positions, of shape (n, columns), and the value of each role, in the shape of a call's result."""

    cos: Tensor
    sin: Tensor
    values: dict[str, Any]          # keys: cos, sin, table, and first and second, the elements of a pair


def pair(result: Any) -> tuple[Tensor, Tensor]:
    return result


def _reversed_pair(result: Any) -> tuple[Tensor, Tensor]:
    return result[1], result[0]


def _complex(result: Any) -> tuple[Tensor, Tensor]:
    return result.real, result.imag


def angles(result: Any) -> tuple[Tensor, Tensor]:
    values = result[0] if isinstance(result, (tuple, list)) else result
    return values.cos(), values.sin()


def _stacked(result: Any) -> tuple[Tensor, Tensor]:
    return result[..., 0], result[..., 1]


def _cos_sin(result: Any) -> tuple[Tensor, Tensor]:
    first, second = result.chunk(2, -1)
    return first, second


def _sin_cos(result: Any) -> tuple[Tensor, Tensor]:
    first, second = result.chunk(2, -1)
    return second, first


Form = Callable[[Any], tuple[Tensor, Tensor]]


def form_of(result: Any, n: int) -> Form | None:
    """Return the function that reads cosines and sines from a result for n positions from 0 on, or None if there are none."""
    if isinstance(result, (tuple, list)):
        if len(result) != 2 or not isinstance(result[0], Tensor) or not result[0].is_floating_point():
            return None
        if isinstance(result[1], Tensor):
            first, second = (_rows(each, n) for each in result)
            if first is None or second is None or first.shape != second.shape:
                return None
            return pair if first[0].any() or not second[0].any() else _reversed_pair
        return angles if isinstance(result[1], (int, float)) and _rows(result[0], n) is not None else None
    if not isinstance(result, Tensor):
        return None
    if result.is_complex():
        return None if _rows(result, n) is None else _complex
    if not result.is_floating_point():
        return None
    if result.ndim >= 3 and result.shape[-1] == 2 and _rows(result[..., 0], n) is not None:
        return _stacked
    rows = _rows(result, n)
    if rows is None or rows.shape[1] % 2:
        return None
    if not rows[0].any():
        return angles
    return _cos_sin if rows[0, : rows.shape[1] // 2].any() else _sin_cos


def tables_of(result: Any, n: int, form: Form) -> Tables:
    own = form(result)
    cos, sin = (_rows(each, n) for each in own)
    if cos is None or sin is None:
        raise ValueError(f"the result is not a table of {n} positions")
    is_pair = isinstance(result, (tuple, list))
    table = tuple(result) if is_pair and isinstance(result[1], Tensor) else result[0] if is_pair else result
    first, second = table if isinstance(table, tuple) else own
    return Tables(cos, sin, {"cos": own[0], "sin": own[1], "first": first, "second": second, "table": table})


def _rows(table: Tensor, n: int) -> Tensor | None:
    """Return a table in the shape (n, columns), or None if it has another axis whose length is not 1."""
    sizes = [size for size in table.shape[:-1] if size != 1]
    return table.reshape(n, -1) if sizes == [n] * (n != 1) and table.ndim and table.shape[-1] else None


# ---- rotations -------------------------------------------------------------------------------------------------------


class Plan(NamedTuple):
    """The form of a call."""

    swapped: bool               # whether the axis of heads follows the axis of positions
    shape: int                  # the index in SHAPES, or the form of x and positions (see module_rotation.py)
    columns: int                # the number of columns that are rotated


def plans(columns: tuple[int, ...]) -> Iterator[Plan]:
    for each, shape, swapped in itertools.product(columns, range(len(SHAPES)), (False, True)):
        yield Plan(swapped, shape, each)


# the shapes in which functions take a table of n rows; the first one is that of the result
SHAPES: tuple[Callable[[Tensor], Tensor], ...] = (
    lambda table: table,
    lambda table: table.reshape(*_sizes(table)),
    lambda table: table.reshape(1, *_sizes(table)),
    lambda table: table.reshape(1, 1, *_sizes(table)),
    lambda table: table.reshape(1, -1, 1, *_sizes(table)[1:]),
)


def _sizes(table: Tensor) -> list[int]:
    """Return the shape of a table without leading axes of length 1."""
    sizes = list(table.shape)
    while len(sizes) > 2 and sizes[0] == 1:
        del sizes[0]
    return sizes


def table_values(tables: Tables, shape: int) -> dict[str, Any]:
    """Return the value of each role in `tables`, converted to one of the SHAPES."""
    reshape = SHAPES[shape]
    return {role: tuple(map(reshape, value)) if isinstance(value, tuple) else reshape(value)
            for role, value in tables.values.items()}


def in_heads(x: Tensor, plan: Plan, heads: int) -> Tensor:
    """Return x, of shape (n, head_dim) or (heads, n, head_dim), as (1, heads, n, columns) or (1, n, heads, columns)."""
    x = x[..., : plan.columns].expand(1, heads if x.ndim == 2 else len(x), -1, -1).clone()
    return x.transpose(1, 2).contiguous() if plan.swapped else x


def from_heads(result: Any, x: Tensor, plan: Plan, given: Tensor) -> list[Tensor]:
    """Return the tensors in the result of a rotation, each in the shape of x; raise a ValueError for other results."""
    found = []
    for each in (result if isinstance(result, (tuple, list)) else (result,))[:2]:
        if not isinstance(each, Tensor) or each.shape != given.shape:
            raise ValueError(f"the result is {type(each).__name__}, expected a tensor of shape {tuple(given.shape)}")
        turned = (each.transpose(1, 2) if plan.swapped else each)[0]
        turned = turned if x.ndim == 3 else turned[0]
        found.append(torch.cat([turned, x[..., plan.columns :].to(turned.dtype)], -1))
    return found
