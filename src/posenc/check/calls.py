"""Calls: modules and tensors of PyTorch, as functions of x and positions; only this file uses PyTorch."""

from __future__ import annotations

import contextlib
import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from posenc.check.names import APPLY, CALL_FORMS, CLASS, ROLE_OF, is_rotary

MOVES_COLUMNS = re.compile(r"(?:de)?interleave", re.IGNORECASE)
Module = nn.Module
DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


def array_of_tensor(name: str, tensor: Tensor) -> NDArray[Any]:
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


# ---- modules --------------------------------------------------------------------------------------------------------


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers, parameters and other tensor attributes of a module, without those of its submodules."""
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False)), **vars(module)}
    return {name: value for name, value in tensors.items() if isinstance(value, Tensor)}


def is_called(module: nn.Module) -> bool:
    """Return whether a module only computes a rotation, so that a copy of it may be called."""
    named = any(CLASS.search(kind.__name__) for kind in type(module).__mro__) or any(map(is_rotary, tensors_of(module)))
    return named and type(module).forward is not nn.Module.forward and not any(True for _ in module.children())


def is_place(module: nn.Module) -> bool:
    """Return whether a module is a rotary module, or has the tensors of one."""
    return is_called(module) or any(map(is_rotary, tensors_of(module))) or stored(module) is not None


def dtype_of(model: nn.Module) -> torch.dtype:
    """Return the dtype of the largest parameter; the model is assumed to compute in it."""
    largest = max((p for p in model.parameters() if p.is_floating_point()), key=torch.numel, default=None)
    return torch.float32 if largest is None else largest.dtype


def grows(module: nn.Module) -> bool:
    """Return whether a module computes its tables again for longer sequences."""
    return is_called(module) and bool({"seq_len", "seq_length"} & inspect.signature(module.forward).parameters.keys())


def copied(module: nn.Module) -> nn.Module:
    """Return a copy of a module, because a call may change the object that is called."""
    return copy.deepcopy(module, {id(tensor): tensor.detach().clone() for tensor in tensors_of(module).values()}).eval()


def bytes_of(tensor: Tensor) -> bytes:
    return tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()


def key_of(module: nn.Module) -> Any:
    """Return a hashable value that is equal for modules that compute the same values.

    Attributes are equal if their texts are; that of an object contains its address.
    """
    tensors, texts = tensors_of(module), []
    if is_called(module):
        ignored = {*tensors, "_parameters", "_buffers", "layer_idx", "training"}
        texts = [(name, repr(value)) for name, value in vars(module).items() if name not in ignored]
    else:
        tensors = {name: tensor for name, tensor in tensors.items() if is_rotary(name) or name == "embed_positions"}
    bits = [(name, tensor.dtype, tensor.shape, tensor.is_meta or bytes_of(tensor)) for name, tensor in tensors.items()]
    return type(module), tuple(texts), tuple(bits)


def functions_of(module: nn.Module, owners: Iterable[nn.Module]) -> list[Callable[..., Any]]:
    """Return the functions with names in `APPLY` to which the code of a module refers, or that of the nearest such owner."""
    for owner in (module, *owners):
        parts = [part for part in owner.modules() if part in (module, owner) or not is_place(part)]
        kinds = {kind: None for part in parts for kind in type(part).__mro__ if not kind.__module__.startswith("torch")}
        methods = [inspect.unwrap(value) for kind in kinds for value in vars(kind).values() if inspect.isfunction(value)]
        callers = [method for method in methods if not set(APPLY).isdisjoint(method.__code__.co_names)]
        functions: dict[int, Callable[..., Any]] = {}
        for method in callers:
            # code that moves the columns before the call does not use the function as it is
            names = method.__code__.co_names
            for name in () if any(map(MOVES_COLUMNS.match, names)) else names:
                function = method.__globals__.get(name) if name in APPLY else None
                if callable(function) and roles_of(function) is not None:
                    functions[id(function)] = function
        if callers:
            return list(functions.values())
    return []


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


def rotates(read: Rotate, columns: int) -> bool | None:
    """Return whether a function returns rotated x, which is 0 for x = 0; return None if no call succeeds."""
    is_rotated = None
    for form in CALL_FORMS:
        with contextlib.suppress(Exception):
            shape = form(3, columns)
            result = read(torch.zeros(shape), torch.arange(3)[(None,) * (len(shape) > 2)])
            first = result[0] if isinstance(result, (tuple, list)) else result
            is_rotated = bool(is_rotated or (first.shape == shape and not first.any()))
    return is_rotated


def stored(module: nn.Module) -> tuple[int, Rotate] | None:
    """Return the number of rows of the tables that a module stores, and the function that reads rows, or None.

    In GPT-J, a row of embed_positions has the sines first.
    """
    tensors = {name: t[0] if t.ndim == 3 and len(t) == 1 else t for name, t in tensors_of(module).items() if t.ndim > 1}
    for name, table in tensors.items():
        sines = tensors.get(name.replace("cos", "sin")) if is_rotary(name) and "cos" in name and "sin" not in name else None
        if sines is not None:
            return len(table), lambda x, at, table=table, sines=sines: (table[at], sines[at])
        if name == "embed_positions" and table.shape[1] % 2 == 0:
            return len(table), lambda x, at, table=table: table[at].chunk(2, -1)[::-1]
        if is_rotary(name) and "sin_" not in name:
            is_plain = table.ndim == 2 and not table.is_complex()
            return len(table), lambda x, at, table=table, is_plain=is_plain: table[at].chunk(2, -1) if is_plain else table[at]
    return None


def reader_of(module: nn.Module, setting: Setting, columns: int) -> tuple[Rotate | None, bool]:
    """Return a function that calls a module or reads its stored tables, and whether it returns rotated x.

    The function is None if the module can neither be called nor has tables.
    """
    call = forward_of(copied(module), setting) if is_called(module) else None
    is_rotated = None if call is None else rotates(call, columns)
    if is_rotated is None:
        tables = stored(module)
        return None if tables is None else tables[1], False
    return call, is_rotated


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


def composed(function: Callable[..., Any], read: Rotate, setting: Setting, columns: int, order: int) -> Rotate:
    """Return the rotation of the first columns by a function that takes tables.

    `order` is -1 if the module returns the sines first, or else 1.
    """
    def rotate(x: Tensor, positions: Tensor) -> tuple[Tensor, ...]:
        table = read(x, positions)
        cos, sin = tables_of(table)[::order]
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
