"""Calls: the modules of PyTorch, and their tables and rotations as functions of arrays; only this file imports PyTorch."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from posenc import Rotary
from posenc.check.reading import array_of_tensor
from posenc.check.report import is_rotary

# the functions that apply tables, if the code of an attention refers to them by these names
APPLY = ("apply_rotary_pos_emb", "apply_rotary_pos_emb_interleave", "apply_rotary_emb", "apply_rotary", "apply_rope",
         "apply_multimodal_rotary_pos_emb", "apply_rotary_pos_emb_vision", "apply_rotary_position_embeddings",
         "apply_rotary_embedding", "apply_rope_emb", "rotate_queries_and_keys", "apply_rotary_time_emb")
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
METHODS = ("forward_native", "forward")         # the first one in vLLM
CLASS = re.compile(r"rotary|ro_?pe(?![a-z])", re.IGNORECASE)            # matches LlamaRotaryEmbedding, RoPE, RopeScaling
MOVES_COLUMNS = re.compile(r"(?:de)?interleave", re.IGNORECASE)
FAILURES = (RuntimeError, ValueError, IndexError, TypeError, AttributeError, AssertionError, KeyError, NotImplementedError)
HEADS, TRIAL = 5, torch.arange(3)       # different numbers of heads and positions show which axis is which
DTYPES = {torch.bfloat16: "bfloat16", torch.float16: "float16"}


# ---- modules --------------------------------------------------------------------------------------------------------


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers, parameters and other tensor attributes of a module, without those of its submodules."""
    tensors = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False)), **vars(module)}
    return {name: value for name, value in tensors.items() if isinstance(value, Tensor)}


def is_module(value: Any) -> bool:
    return isinstance(value, nn.Module)


def grows(module: nn.Module) -> bool:
    """Return whether a module computes its tables again for longer sequences."""
    return is_called(module) and bool({"seq_len", "seq_length"} & inspect.signature(module.forward).parameters.keys())


def is_named(name: str) -> bool:
    return is_rotary(name) or name == "embed_positions"


def is_called(module: nn.Module) -> bool:
    """Return whether a module only computes a rotation, so that a copy of it may be called."""
    named = any(CLASS.search(kind.__name__) for kind in type(module).__mro__) or any(map(is_rotary, tensors_of(module)))
    return named and type(module).forward is not nn.Module.forward and not any(True for _ in module.children())


def is_place(module: nn.Module) -> bool:
    """Return whether a module is a rotary module, or has the tensors of one; GPT-J has tables named embed_positions."""
    tensors = tensors_of(module)
    return is_called(module) or any(map(is_rotary, tensors)) or tensors.get("embed_positions", TRIAL).ndim == 2


def key_of(module: nn.Module) -> Any:
    """Return a hashable value that is equal for modules that compute the same values."""
    values = vars(module) if is_called(module) else {k: v for k, v in tensors_of(module).items() if is_named(k)}
    return type(module), _token({k: v for k, v in values.items() if k not in ("layer_idx", "training")})


def _token(value: Any) -> Any:
    if isinstance(value, Tensor):
        bits = b"" if value.is_meta else value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().tobytes()
        return str(value.dtype), tuple(value.shape), value.is_meta, hash(bits)
    if isinstance(value, dict):
        return tuple((key, _token(item)) for key, item in value.items())
    if isinstance(value, (list, tuple, set)):
        return tuple(map(_token, sorted(value) if isinstance(value, set) else value))
    is_plain = isinstance(value, (int, float, str, type(None), torch.dtype, Rotary))
    return (type(value), value) if is_plain else id(value)


def functions_of(module: nn.Module, owners: Iterable[nn.Module]) -> list[Callable[..., Any]]:
    """Return the functions of `APPLY` to which the code of the nearest owner refers, in the module that defines the code."""
    for owner in (module, *owners):
        functions: dict[int, Callable[..., Any]] = {}
        parts = [part for part in owner.modules() if part in (module, owner) or not is_place(part)]
        kinds = {kind: None for part in parts for kind in type(part).__mro__ if not kind.__module__.startswith("torch")}
        for method in (inspect.unwrap(value) for kind in kinds for value in vars(kind).values() if inspect.isfunction(value)):
            # code that moves the columns before the call does not use the function as it is
            names = method.__code__.co_names
            for name in () if any(map(MOVES_COLUMNS.match, names)) else APPLY:
                function = method.__globals__.get(name) if name in names else None
                if callable(function) and roles_of(function) is not None:
                    functions[id(function)] = function
        if functions:
            return list(functions.values())
    return []


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Run a block without gradients, and without a change of PyTorch's random numbers."""
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        yield


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

    widths: tuple[int, ...]         # numbers of columns that the rotation may have
    layer_type: str | None = None
    axes: int = 1                   # number of axes of positions; positions of shape (n,) are the same on all axes
    dtype: torch.dtype = torch.float32
    device: torch.device = torch.device("cpu")


class Form(NamedTuple):
    """The form of a call; tables and positions may be without an axis for the batch."""

    heads_last: bool            # x of shape (1, n, heads, columns) instead of (1, heads, n, columns)
    flat: bool
    columns: int
    packed: bool = False        # x of shape (n, heads * columns)

    def given(self, x: Tensor) -> Tensor:
        x = x[..., : self.columns].expand(1, HEADS, -1, -1)
        x = (x.transpose(1, 2) if self.heads_last else x).clone(memory_format=torch.contiguous_format)
        return x.flatten(2)[0] if self.packed else x

    def taken(self, result: Any, x: Tensor) -> list[Tensor]:
        """Return the rotated tensors in a result, each in the shape of x; raise a ValueError for other results."""
        tensors, wanted = [], self.given(x).shape
        for tensor in (result if isinstance(result, (tuple, list)) else (result,))[:2]:
            if not isinstance(tensor, Tensor) or tensor.shape != wanted:
                raise ValueError(f"the result is {type(tensor).__name__}, expected a tensor of shape {tuple(wanted)}")
            tensor = tensor.unflatten(1, (HEADS, -1))[None] if self.packed else tensor
            rows = (tensor.transpose(1, 2) if self.heads_last else tensor)[0, 0]
            tensors.append(torch.cat([rows, x[..., self.columns :].to(rows.dtype)], -1))
        return tensors


Tables = tuple[Tensor, Tensor, Any]         # cosines and sines of shape (n, columns), and both as the call returned them
Rotate = Callable[[Tensor, Tensor], list[Tensor]]       # (x of shape (n, columns), n positions) -> rotated tensors
Read = Callable[[Tensor, Tensor], Tables]
# the cosines and sines in a result; a reader that does not apply raises an error
READERS: tuple[Callable[[Any], Any], ...] = (
    lambda pair: (pair[0], pair[1]) if isinstance(pair, (tuple, list)) and len(pair) == 2 else None,
    lambda pair: (pair[1], pair[0]) if isinstance(pair, (tuple, list)) and len(pair) == 2 else None,
    lambda table: (table.real, table.imag) if table.is_complex() else None,
    lambda table: table.unbind(-1), lambda table: table.chunk(2, -1), lambda table: table.chunk(2, -1)[::-1],
    lambda angles: (angles.cos(), angles.sin()),
    lambda pair: (pair[0].cos(), pair[0].sin()),        # angles and a scale
)


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
    """Call a function with the value of each role; the first ones by position, because hooks receive only these."""
    arguments = {name: values[role] for name, role in (roles_of(like, t) or {}).items() if role in values}
    first = []
    for parameter in inspect.signature(like).parameters.values():
        if parameter.name not in arguments or parameter.kind == parameter.KEYWORD_ONLY:
            break
        first.append(arguments.pop(parameter.name))
    return function(*first, **arguments)


def forward_of(module: nn.Module, setting: Setting) -> tuple[Rotate | None, Read | None]:
    """Return the function that rotates or the function that returns tables; both are None if no call succeeds."""
    method = next(method for name in METHODS if callable(method := getattr(module, name, None)))
    if "positions" not in (roles_of(method, "positions") or {}).values():
        return None, None

    def run(form: Form, x: Tensor, positions: Tensor) -> Any:
        given = form.given(x)
        at = positions.expand(setting.axes, -1) if setting.axes > 1 else positions
        values = {"x": given, "keys": given, "positions": at if form.flat else at[..., None, :]}
        values |= {} if setting.layer_type is None else {"layer_type": setting.layer_type}
        return _call(module if method.__name__ == "forward" else method, method, "positions", values)

    for columns in setting.widths:
        forms = Form(False, False, columns), Form(True, False, columns), Form(False, True, columns)
        for form in forms if method.__name__ == "forward" else (Form(True, True, columns, packed=True),):
            x = _random(1, columns, setting).expand(len(TRIAL), -1)
            with suppress(*FAILURES):
                result = run(form, x, TRIAL.to(setting.device))
                with suppress(*FAILURES):
                    form.taken(result, x)
                    return lambda x, positions, form=form: form.taken(run(form, x, positions), x), None
                if (reader := _reader_of(result)) is not None:
                    return None, lambda x, positions, form=form, reader=reader: _tables(
                        run(form, x, positions), positions.shape[-1], reader)
    return None, None


def _reader_of(result: Any) -> Callable[[Any], Any] | None:
    """Return the first of `READERS` for a result at the positions `TRIAL`, preferably one with sines of 0 in the first row."""
    possible = []
    for reader in READERS:
        with suppress(*FAILURES):
            cos, sin, _ = _tables(result, len(TRIAL), reader)
            if bool(cos[0].any()) and not bool(sin[0].any()):
                return reader
            possible.append(reader)
    return possible[0] if possible else None


def _tables(result: Any, n: int, reader: Callable[[Any], Any]) -> Tables:
    """Return cosines and sines of shape (n, columns); all other axes must have length 1."""
    cos, sin = reader(result)
    if cos.shape != sin.shape or not cos.is_floating_point() or [k for k in cos.shape[:-1] if k != 1] != [n] * (n != 1):
        raise ValueError(f"the result is not a table of {n} positions")
    is_pair = isinstance(result, (tuple, list)) and isinstance(result[1], Tensor)
    raw = (cos, sin) if is_pair else result[0] if isinstance(result, (tuple, list)) else result
    return cos.reshape(n, -1), sin.reshape(n, -1), raw


def stored(module: nn.Module) -> tuple[int, Read] | None:
    """Return the number of rows of the tables that a module stores, and the function that reads rows, or None."""
    tensors = {name: value for name, value in tensors_of(module).items() if is_named(name) and value.ndim > 1}
    tables: list[Any] = [(value, tensors[other]) for name, value in tensors.items()
                         if "cos" in name and "sin" not in name and (other := name.replace("cos", "sin")) in tensors]
    for table in tables or tensors.values():
        parts = [part.reshape(part.shape[next((k for k, length in enumerate(part.shape) if length > 1), 0) :])
                 for part in (table if isinstance(table, tuple) else (table,))]

        def rows(at: Tensor, parts: list[Tensor] = parts) -> Any:
            return tuple(part[at] for part in parts) if len(parts) > 1 else parts[0][at]

        if parts[0].ndim > 1 and len(parts[0]) >= len(TRIAL) and (reader := _reader_of(rows(TRIAL.to(table[0].device)))):
            return len(parts[0]), lambda x, at, reader=reader: _tables(rows(at), len(at), reader)
    return None


def composed(function: Callable[..., Any], tables: Read, setting: Setting) -> Rotate | None:
    """Return the rotation by a function that takes tables, or None if no call succeeds."""
    def rotate(form: Form, x: Tensor, positions: Tensor) -> list[Tensor]:
        cos, sin, raw = tables(x, positions)
        pair = raw if isinstance(raw, tuple) else (cos, sin)
        parts = [part.reshape(len(x), *part.shape[-1 - (part.ndim > 2 and part.shape[-2] != len(x)):]) if form.flat else
                 part[None] if part.ndim == 2 else part for part in (*pair, *(() if isinstance(raw, tuple) else (raw,)))]
        given, other = form.given(x), torch.full_like(form.given(x), 0.37)  # for the argument whose result is not used
        values = {"positions": torch.arange(len(x), device=positions.device)[None], "cos": parts[0], "sin": parts[1],
                  "table": parts[2] if len(parts) > 2 else tuple(parts)}
        queries = form.taken(_call(function, function, "x", values | {"x": given, "keys": other}), x)
        if "keys" not in (roles_of(function) or {}).values() or len(queries) < 2:
            return queries[:1]
        return [queries[0], form.taken(_call(function, function, "x", values | {"x": other, "keys": given}), x)[1]]

    for columns in setting.widths:
        for form in (Form(False, False, columns), Form(True, False, columns), Form(False, True, columns)):
            with suppress(*FAILURES):
                rotate(form, _random(len(TRIAL), max(setting.widths), setting), TRIAL.to(setting.device))
                return functools.partial(rotate, form)
    return None


def numpy_function(rotate: Rotate, setting: Setting) -> Callable[..., Any]:
    """Return a function of arrays."""
    def call(x: NDArray[Any], positions: NDArray[Any]) -> Any:
        rows = torch.from_numpy(np.ascontiguousarray(x)).to(setting.device, setting.dtype)
        at = torch.from_numpy(np.array(positions, np.int64)).to(setting.device)
        with torch.no_grad():
            arrays = tuple(map(array_of_tensor, rotate(rows, at)))
        return arrays[0] if len(arrays) == 1 else arrays

    return call


def once(table: Tensor) -> Tensor:
    """Return a table without repeated columns, because their order may differ from the layout of the pairs."""
    for one, other in (table.chunk(2, -1), (table[..., ::2], table[..., 1::2])) if table.shape[-1] % 2 == 0 else ():
        if torch.equal(one, other):
            return one
    return table


def _random(n: int, columns: int, setting: Setting) -> Tensor:
    """Return positive random numbers that do not depend on PyTorch's generator."""
    values = np.random.default_rng(0).uniform(0.5, 1, (n, columns))
    return torch.from_numpy(values).to(setting.device, setting.dtype)
