"""Find the methods that a module calls, and the names in the branches that run, given the module's attributes."""

from __future__ import annotations

import ast
import functools
import inspect
import operator
import textwrap
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from torch import nn

UNKNOWN = object()              # the value of an expression that cannot be evaluated without a call of the module


# ---- methods ------------------------------------------------------------------------------------------------------------


def methods_of(module: nn.Module) -> Iterator[tuple[Any, bool]]:
    """Yield each method of a module as a function, and whether ``forward`` calls it.

    An overridden method is included only if another method calls it through super() or its class.
    """
    kinds = [kind for kind in type(module).__mro__ if kind.__module__.partition(".")[0] not in ("torch", "builtins")]
    called = _called_methods(module, kinds, ["forward"])
    every = _called_methods(module, kinds, [name for kind in kinds for name in vars(kind)])
    for code in every:
        yield code, code in called


def _called_methods(module: nn.Module, kinds: list[type], names: Iterable[str]) -> dict[Any, None]:
    """Return the methods with these names and the methods that they call, directly or indirectly."""
    found: dict[Any, None] = {}
    left = [_method(module, kinds, name) for name in names]
    while left:
        code, kind = left.pop()
        if code is None or code in found:
            continue
        found[code] = None
        used = code.__code__.co_names
        parents = [each for each in kinds if code.__globals__.get(each.__name__) is each and each.__name__ in used]
        left += [_method(module, kinds, name) for name in used]
        left += [_method(None, kinds[kinds.index(each) :], name) for each in parents for name in used]
        if "super" in used and kind is not None:
            left += [_method(None, kinds[kinds.index(kind) + 1 :], name) for name in used]
    return found


def _method(module: nn.Module | None, kinds: list[type], name: str) -> tuple[Any, type | None]:
    """Return the function of a method and the class that defines it; the class is None for an attribute of the instance."""
    own = None if module is None else vars(module).get(name)
    kind = next((each for each in kinds if name in vars(each)), None)
    method = own if inspect.ismethod(own) or inspect.isfunction(own) else kind and vars(kind)[name]
    method = getattr(method, "__func__", method)
    code = inspect.unwrap(method) if callable(method) else None
    return (code, None if method is own else kind) if inspect.isfunction(code) else (None, None)


# ---- branches -----------------------------------------------------------------------------------------------------------


@functools.cache
def syntax_of(code: Callable[..., Any]) -> tuple[ast.AST, ...]:
    """Return the syntax nodes of a function, or an empty tuple if its source is not available."""
    try:
        return tuple(ast.walk(ast.parse(textwrap.dedent(inspect.getsource(code)))))
    except (OSError, TypeError, SyntaxError):
        return ()


def names_reached(code: Callable[..., Any], module: nn.Module) -> dict[str, bool | None]:
    """Return, for each name in a method, True if it is called, False if it may be called, and None if it is not reached.

    The value of a condition is known if it depends only on constants and attributes of the module.
    """
    nodes = syntax_of(code)
    function = next((node for node in nodes if isinstance(node, ast.FunctionDef)), None)
    found: dict[str, bool | None] = {name: None for node in nodes if (name := _name(node))}
    if function is not None:
        _follow(function.body, module, True, found)
    return found


def _name(node: ast.AST) -> str:
    return getattr(node, "id", getattr(node, "attr", "")) if isinstance(node, (ast.Name, ast.Attribute)) else ""


def _follow(statements: list[Any], module: nn.Module, certain: bool, found: dict[str, bool | None]) -> bool:
    """Mark the names that are reached in a list of statements; return whether all branches return or raise."""
    for node in statements:
        if isinstance(node, ast.If):
            _mark(node.test, module, certain, found)
            value = value_of(node.test, module)
            branches = (node.body, node.orelse) if value is UNKNOWN else (node.body,) if value else (node.orelse,)
            left = [_follow(branch, module, certain and len(branches) == 1, found) for branch in branches]
            if all(left):
                return True
            certain = certain and not any(left)
        elif isinstance(node, (ast.For, ast.While, ast.With, ast.Try)):
            for name, value in ast.iter_fields(node):
                if name in ("body", "orelse", "finalbody"):
                    _follow(value, module, certain and name != "orelse", found)
                else:
                    for each in value if isinstance(value, list) else [value]:
                        _mark(each, module, certain and name != "handlers", found)
        else:
            _mark(node, module, certain, found)
            if isinstance(node, (ast.Return, ast.Raise)):
                return True
    return False


def _mark(node: Any, module: nn.Module, certain: bool, found: dict[str, bool | None]) -> None:
    """Mark the names in an expression or in a statement without branches."""
    if not isinstance(node, ast.AST):
        return
    if name := _name(node):
        found[name] = bool(found.get(name))         # the function may be called under another name
    if isinstance(node, ast.Call) and (name := _name(node.func)):
        found[name] = certain or bool(found.get(name))
    certain = certain and not isinstance(node, ast.Match)
    value = value_of(node.test, module) if isinstance(node, ast.IfExp) else UNKNOWN
    for field, child in ast.iter_fields(node):
        chosen = not isinstance(node, ast.IfExp) or field == "test" or value is not UNKNOWN
        if value is not UNKNOWN and field == ("orelse" if value else "body"):
            continue
        for each in child if isinstance(child, list) else [child]:
            _mark(each, module, certain and chosen, found)


def value_of(node: ast.expr, module: nn.Module) -> Any:
    """Return the value of an expression of attributes and constants, or UNKNOWN."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        return module if node.id == "self" else UNKNOWN
    if isinstance(node, ast.Attribute) and node.attr != "training":
        owner = value_of(node.value, module)
        return UNKNOWN if owner is UNKNOWN else _attribute(owner, node.attr)
    if isinstance(node, ast.Call) and _name(node.func) == "getattr" and len(node.args) == 3:
        owner, name, default = (value_of(each, module) for each in node.args)
        if owner is UNKNOWN or not isinstance(name, str):
            return UNKNOWN
        return _attribute(owner, name) if hasattr(owner, name) else default
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        value = value_of(node.operand, module)
        return UNKNOWN if value is UNKNOWN else not value
    if isinstance(node, ast.BoolOp):
        values = [value_of(each, module) for each in node.values]
        decides = isinstance(node.op, ast.Or)
        if any(each is not UNKNOWN and bool(each) == decides for each in values):
            return decides
        return UNKNOWN if any(each is UNKNOWN for each in values) else not decides
    if isinstance(node, ast.Compare) and len(node.ops) == 1:
        left, right = value_of(node.left, module), value_of(node.comparators[0], module)
        compare = COMPARISONS.get(type(node.ops[0]))
        return UNKNOWN if compare is None or left is UNKNOWN or right is UNKNOWN else compare(left, right)
    return UNKNOWN


COMPARISONS: dict[type, Callable[[Any, Any], bool]] = {
    ast.Is: operator.is_, ast.IsNot: operator.is_not, ast.Eq: operator.eq, ast.NotEq: operator.ne,
}


def _attribute(owner: Any, name: str) -> Any:
    """Return the value of an attribute, or UNKNOWN if it is a tensor or cannot be read."""
    try:
        value = getattr(owner, name)
    except Exception:  # noqa: BLE001  (a property may raise any error)
        return UNKNOWN
    simple = value is None or isinstance(value, (bool, int, float, str)) or hasattr(value, "__dict__")
    return value if simple and not hasattr(value, "shape") else UNKNOWN
