"""Find the rotary modules of a model, and the functions with which its attention rotates queries and keys."""

from __future__ import annotations

import ast
import copy
import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from posenc._identify.rotation.report import is_rotary
from posenc.torch._check_rotary.call_functions import ROLE_OF, roles_of
from posenc.torch._check_rotary.called_code import methods_of, names_reached, syntax_of

CLASS = re.compile(r"rotary|ro_?pe(?![a-z])", re.IGNORECASE)            # matches LlamaRotaryEmbedding, RoPE, RopeScaling
FUNCTION = re.compile(r"rot|rope", re.IGNORECASE)
ENDS = 4096                     # bytes at each end of a tensor that are compared first
MOVES_COLUMNS = re.compile(r"(?:de)?interleave", re.IGNORECASE)


class Place(NamedTuple):
    """A module that has the tables or frequencies of a rotation, and the modules that contain it."""

    name: str
    module: nn.Module
    owners: tuple[nn.Module, ...]           # from the nearest one to the whole model


class Function(NamedTuple):
    """A function that applies a rotation to queries and keys."""

    name: str
    call: Callable[..., Any]
    roles: dict[str, str]
    before: Callable[[Tensor], Tensor] | None       # moves the columns of queries and keys before the call
    conditional: bool                               # whether a condition of unknown value decides if the function is called
    nested: bool = False                    # whether the caller is a submodule of another module that applies a rotation


def tensors_of(module: nn.Module) -> dict[str, Tensor]:
    """Return the buffers, parameters and other tensor attributes of a module, without those of its submodules."""
    own = {name: value for name, value in vars(module).items() if isinstance(value, Tensor)}
    found = {**dict(module.named_parameters(recurse=False)), **dict(module.named_buffers(recurse=False)), **own}
    return {name: value for name, value in found.items() if value is not None}


def is_called(module: nn.Module) -> bool:
    """Return whether a module only computes a rotation, so that a copy of it may be called."""
    names = [kind.__name__ for kind in type(module).__mro__]
    named = any(map(CLASS.search, names)) or any(map(is_rotary, tensors_of(module)))
    return named and type(module).forward is not nn.Module.forward and not any(True for _ in module.children())


def copied(place: Place) -> nn.Module:
    """Return a deep copy of a module, because a call may change the object that is called.

    The copy shares the parameters of other modules.
    """
    module = place.module
    result = type(module).__new__(type(module))
    memo: dict[int, Any] = {id(each): each for owner in place.owners[-1:] for each in owner.parameters()}
    memo |= {id(tensor): tensor.detach().clone() for tensor in tensors_of(module).values()}
    memo[id(module)] = result
    for name, value in vars(module).items():
        try:
            result.__dict__[name] = copy.deepcopy(value, memo)
        except Exception:  # noqa: BLE001  (an object that cannot be copied may raise any error)
            result.__dict__[name] = copy.copy(value) if isinstance(value, (dict, list, set)) else value
    result.__dict__["_compiled_call_impl"] = None       # the compiled call would run the module, not the copy
    return result.eval()


def places(model: nn.Module) -> list[Place]:
    """Return the places of the rotary modules, each module once."""
    return [Place(name, module, _owners(model, name)) for name, module in model.named_modules() if is_place(module)]


def is_place(module: nn.Module) -> bool:
    """Return whether a module is a rotary module, or has the tensors of one."""
    names = tensors_of(module)
    return is_called(module) or any(map(is_rotary, names)) or rows_of_sines(names) is not None


def rows_of_sines(tensors: dict[str, Tensor]) -> Tensor | None:
    """Return the table of a model such as GPT-J, with sines before cosines in each row, or None."""
    table = tensors.get("embed_positions")
    return table if table is not None and table.ndim == 2 and table.shape[1] % 2 == 0 else None


def _owners(model: nn.Module, name: str) -> tuple[nn.Module, ...]:
    parts = name.split(".") if name else []
    owners = [model.get_submodule(".".join(parts[:length])) for length in range(len(parts))]
    return tuple(reversed(owners)) or (model,)


def functions_of(place: Place) -> list[Function]:
    """Return the functions with which the nearest owner applies the rotation."""
    return applied(place)[1]


def applied(place: Place) -> tuple[type | None, list[Function]]:
    """Return the class of the nearest owner whose code applies the rotation, and the functions that the owner calls."""
    for owner in (place.module, *place.owners):
        found: dict[Any, Function] = {}
        inside: set[int] = set()                    # ids of the submodules of each module that applies a rotation
        for module in _without_other_places(owner, place.module):
            own: dict[Any, Function] = {}
            for function in _functions_in(module):
                code = getattr(function.call, "__func__", function.call)
                key = function.name, code, tuple(function.roles.items()), function.before
                if key not in own or not function.conditional:
                    own[key] = function
            for key, function in own.items():
                function = function._replace(conditional=function.conditional and len(own) > 1, nested=id(module) in inside)
                if (key, function.nested) not in found or not function.conditional:
                    found[key, function.nested] = function
            inside |= {id(part) for part in module.modules() if part is not module} if own else set()
        if found:
            return type(owner), list(found.values())
    return None, []


def _without_other_places(owner: nn.Module, module: nn.Module) -> Iterator[nn.Module]:
    """Yield an owner and its parts, except the parts that have another rotary module."""
    yield owner
    for child in owner.children():
        parts = list(child.modules())
        if any(part is module for part in parts):
            yield from _without_other_places(child, module)
        elif not any(map(is_place, parts)):
            yield from parts


def _functions_in(module: nn.Module) -> Iterator[Function]:
    """Yield the functions and methods that a module's methods call to rotate queries and keys."""
    kind = type(module)
    for code, runs in methods_of(module):
        names = list(filter(FUNCTION.search, code.__code__.co_names))
        if not names:
            continue
        moves = [code.__globals__.get(name) for name in filter(MOVES_COLUMNS.match, code.__code__.co_names)]
        before = next((each for each in moves if inspect.isfunction(each) and len(roles_of(each) or ()) == 1), None)
        reached = names_reached(code, module)
        for name in names:
            if reached.get(name, False) is None:
                continue
            target = code.__globals__.get(name)
            if target is None and callable(inspect.getattr_static(kind, name, None)):
                target = getattr(module, name)
            if target is None or inspect.isclass(target) or not callable(target):
                continue
            roles = roles_of(target)
            known = set((roles or {}).values())
            roles = roles and roles | _roles_of_arguments(code, name, target)
            if roles and "x" in known and ({"cos", "sin"} <= known or "table" in known):
                label = (getattr(target, "__module__", ""), getattr(target, "__qualname__", name))
                conditional = not (runs and reached.get(name))
                yield Function(".".join(filter(None, label)), target, roles, before, conditional)


def _roles_of_arguments(code: Callable[..., Any], name: str, target: Callable[..., Any]) -> dict[str, str]:
    """Return, for each parameter that takes cosines or sines, the role of the variable that a method passes to it.

    The role follows from the name of the variable, or from the order in which the method unpacks the tables.
    """
    variables: dict[str, str] = {}
    for node in syntax_of(code):
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple) and _is_tables(node.value):
            names = [getattr(each, "id", "") for each in node.targets[0].elts]
            if [ROLE_OF.get(each) for each in names] in (["cos", "sin"], ["sin", "cos"]):
                variables |= dict(zip(names, ("first", "second"), strict=True))
    found: dict[str, str] = {}
    parameters = list(inspect.signature(target).parameters)
    for node in syntax_of(code):
        if isinstance(node, ast.Call) and getattr(node.func, "id", getattr(node.func, "attr", "")) == name:
            passed = dict(zip(parameters, node.args, strict=False))
            passed |= {each.arg: each.value for each in node.keywords if each.arg}
            for parameter, value in passed.items():
                variable = getattr(value, "id", "")
                role = variables.get(variable, ROLE_OF.get(variable))
                if ROLE_OF.get(parameter) in ("cos", "sin") and role in ("cos", "sin", "first", "second"):
                    found[parameter] = role
    return found


def _is_tables(value: ast.expr) -> bool:
    """Return whether an expression is a variable or a call of a rotary module."""
    called = getattr(value, "func", None)
    return isinstance(value, ast.Name) or FUNCTION.search(getattr(called, "attr", getattr(called, "id", ""))) is not None


def is_same(a: Any, b: Any, seen: frozenset[tuple[int, int]] = frozenset()) -> bool:
    """Return whether two modules compute the same values, or whether two attributes are equal."""
    if a is b or (id(a), id(b)) in seen:
        return True
    if type(a) is not type(b):
        return False
    seen |= {(id(a), id(b))}
    if isinstance(a, Tensor):
        return _are_equal(a, b)
    if isinstance(a, nn.Module):
        return is_same(_attributes(a), _attributes(b), seen)
    if isinstance(a, Mapping):
        return a.keys() == b.keys() and all(is_same(value, b[key], seen) for key, value in a.items())
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(is_same(one, other, seen) for one, other in zip(a, b, strict=True))
    if inspect.ismethod(a):
        return is_same((a.__func__, a.__self__), (b.__func__, b.__self__), seen)
    if inspect.isfunction(a):
        one, other = ((f.__code__, f.__defaults__, list(inspect.getclosurevars(f).nonlocals.values())) for f in (a, b))
        return is_same(one, other, seen)
    if isinstance(a, np.ndarray):
        return bool(a.shape == b.shape and a.dtype == b.dtype and a.tobytes() == b.tobytes())
    try:
        return bool(a == b) or bool(getattr(a, "__dict__", None)) and is_same(vars(a), vars(b), seen)
    except Exception:  # noqa: BLE001  (the comparison of other objects may raise any error)
        return False


def _attributes(module: nn.Module) -> dict[str, Any]:
    """Return the attributes on which the results of a module depend; for a dict of hooks, return only its values."""
    names = [name for name in vars(module) if name not in ("layer_idx", "training", "_modules")]
    # the keys, which identify hooks, differ between modules
    return {name: list(value.values()) if name.endswith(("_hooks", "_kwargs")) and isinstance(value, dict) else value
            for name in names for value in [vars(module)[name]]}


def _are_equal(a: Tensor, b: Tensor) -> bool:
    if (a.shape, a.dtype, a.device, a.is_meta) != (b.shape, b.dtype, b.device, b.is_meta):
        return False
    if a.is_meta or a.data_ptr() == b.data_ptr() and a.stride() == b.stride():
        return True
    first, second = (each.detach().contiguous().flatten().view(torch.uint8) for each in (a, b))     # as bits, NaN equals NaN
    parts = slice(ENDS), slice(-ENDS, None), slice(None)        # different tables usually differ at their ends
    return all(torch.equal(first[part], second[part]) for part in parts)
