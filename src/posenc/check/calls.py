"""Calls: modules and tensors of PyTorch, as functions of x and positions; only this file uses PyTorch."""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from posenc.check.match import Array

# the roles of parameters, by the names that projects give them
ROLES = {
    "x": ("x", "q", "query", "queries", "query_states", "xq", "hidden_states", "tensor", "input"),
    "keys": ("k", "key", "keys", "key_states", "xk"),
    "positions": ("position_ids", "positions", "position", "pos", "input_pos"),
    "cos": ("cos", "cos_cached", "freqs_cos"),
    "sin": ("sin", "sin_cached", "freqs_sin"),
    "table": ("freqs_cis", "freqs", "rope_cache", "rotary_pos_emb", "rope", "cos_sin", "position_embeddings"),
    "layer_type": ("layer_type",),
}
ROLE_OF = {name: role for role, names in ROLES.items() for name in names}
Module = nn.Module
DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def array_of_tensor(name: str, tensor: Tensor) -> Array:
    """Return a tensor as an array, with the bits of bfloat16 as uint16."""
    if tensor.is_meta:
        raise ValueError(f"{name} is on the meta device, expected a tensor with values")
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype == torch.bfloat16:
        return tensor.contiguous().view(torch.uint16).numpy()
    return tensor.numpy()


def with_tensors(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of arrays that calls a function of tensors."""
    return lambda *arrays: function(*map(torch.from_numpy, arrays))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run a block without gradients, and without a change of PyTorch's random numbers."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        yield


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers, parameters and other tensor attributes of a module, without those of its submodules."""
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False)), **vars(module)}
    return {name: value for name, value in tensors.items() if isinstance(value, Tensor)}


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of the largest parameter; the model is assumed to compute in it."""
    largest = max((p for p in model.parameters() if p.is_floating_point()), key=torch.numel, default=None)
    return torch.float32 if largest is None else largest.dtype


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module, because a call may change the object that is called."""
    return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in tensors_of(module).values()}).eval()


# ---- calls ----------------------------------------------------------------------------------------------------------


class Setting(NamedTuple):
    """Options for the calls of a module."""

    layer_type: str | None = None
    axes: int = 1                   # number of axes of positions; positions are the same on all axes
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")


Rotate = Callable[[Any, Any], Any]          # (x, positions) -> rotated tensors, or tables as a pair or of complex numbers


def roles_of(function: Callable[..., Any], t: str = "x") -> dict[str, str] | None:
    """Return the role of each parameter that has one, or None if a parameter without a role has no default.

    `t` is the role of a parameter named t.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return None
    named = [p for p in parameters if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.name != "self"]
    roles = {p.name: t if p.name == "t" else ROLE_OF.get(p.name) for p in named}
    if any(roles[p.name] is None and p.default is p.empty for p in named):
        return None
    return {name: role for name, role in roles.items() if role is not None}


def _call(function: Callable[..., Any], like: Callable[..., Any], t: str, values: Mapping[str, Any]) -> Any:
    """Call a function with the value of each role; pass the first ones by position, because hooks receive only these."""
    arguments = {name: values[role] for name, role in (roles_of(like, t) or {}).items() if role in values}
    first = []
    for parameter in inspect.signature(like).parameters.values():
        if parameter.name not in arguments or parameter.kind == parameter.KEYWORD_ONLY:
            break
        first.append(arguments.pop(parameter.name))
    return function(*first, **arguments)


def forward_of(module: nn.Module, setting: Setting) -> Rotate | None:
    """Return the function that calls a module, or None if it takes no positions.

    In vLLM, the method that needs no other kernels is ``forward_native``.
    """
    method = getattr(module, "forward_native", module.forward)
    roles = {*(roles_of(method, "positions") or {}).values()}

    def call(x: Tensor, positions: Tensor) -> Any:
        x, positions = x.to(setting.device, setting.dtype), positions.to(setting.device)
        positions = positions.expand(setting.axes, *positions.shape[-2:]) if setting.axes > 1 else positions
        values: dict[str, Any] = {"x": x, "keys": x, "positions": positions}
        values |= {} if setting.layer_type is None else {"layer_type": setting.layer_type}
        return _call(module if method.__name__ == "forward" else method, method, "positions", values)

    return call if "positions" in roles else None


def label_of(function: Callable[..., Any]) -> str:
    """Return the name of a function, with its module."""
    return ".".join(filter(None, (getattr(function, "__module__", ""), getattr(function, "__qualname__", ""))))


def tables_of(result: Any) -> tuple[Tensor, Tensor]:
    """Return the cosines and sines in the result of a module: a pair, complex numbers, stacked pairs, or angles."""
    if isinstance(result, (tuple, list)) and len(result) == 2 and isinstance(result[1], Tensor):
        return result[0], result[1]
    table = result[0] if isinstance(result, (tuple, list)) else result         # x-transformers: angles and a scale
    if table.is_complex():
        return table.real, table.imag
    if table.ndim > 2 and table.shape[-1] == 2:
        return table[..., 0], table[..., 1]
    return table.cos(), table.sin()


def once(table: Tensor) -> Tensor:
    """Return a table without repeated columns, because their order may differ from the layout of the pairs."""
    halves, alternate = table.chunk(2, -1), (table[..., ::2], table[..., 1::2])
    return next((a for a, b in (halves, alternate) if torch.equal(a, b)), table)


def tables(read: Rotate) -> Rotate:
    """Return a function that returns cosines and sines in the result of another one, without repeated columns."""
    return lambda x, positions: [once(table) for table in tables_of(read(x, positions))]


def exchanged(read: Rotate) -> Rotate:
    """Return a function that returns the tables of another one in the other order."""
    return lambda x, positions: tables_of(read(x, positions))[::-1]


def composed(function: Callable[..., Any], read: Rotate, setting: Setting, columns: int) -> Rotate:
    """Return the rotation of the first columns by a function that takes tables."""
    def rotate(x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        table = read(x, positions)
        cos, sin = tables_of(table)
        vectors = x[..., :columns].to(setting.device, setting.dtype)
        constant = torch.full_like(vectors, 0.37)           # for the argument whose result is not used
        rows = torch.arange(positions.shape[-1], device=setting.device)[None]

        def rotated(x_or_keys: str, index: int) -> Tensor:
            values = {"x": constant, "keys": constant, x_or_keys: vectors}
            result = _call(function, function, "x", values | {"positions": rows, "cos": cos, "sin": sin, "table": table})
            part: Tensor = result[index] if isinstance(result, (tuple, list)) else result
            return torch.cat([part.reshape(vectors.shape), x[..., columns:].to(part)], -1)

        queries = rotated("x", 0)
        return queries, rotated("keys", 1) if "keys" in (roles_of(function) or {}).values() else queries

    return rotate
