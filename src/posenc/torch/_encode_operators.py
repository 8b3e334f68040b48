"""The operators posenc::encode, posenc::encode_at and posenc::add_, their derivatives, and direct calls to the kernels.

The operators take the convention as JSON text, so that an exported graph contains the whole specification.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import guard_scalar

import posenc
from posenc._arguments import checks
from posenc._arguments.base_class import changes_of
from posenc._core import kernel
from posenc._encoding import cache
from posenc._encoding.cache import CACHEABLE, scalars
from posenc._encoding.encoding import KEYWORDS
from posenc.torch import _tensor_arguments
from posenc.torch._tensor_arguments import DTYPES, NOT_DIFFERENTIABLE, array_of, constant

# ---- the convention as text -------------------------------------------------------------------------------------------


def specification(d_model: Any, convention: Mapping[str, Any]) -> tuple[int, str]:
    """Return d_model and the JSON text of the convention; check both, except in compiled code, where the operator does."""
    if isinstance(d_model, (posenc.Encoding, str)):
        encoding = cache.cached_encoding(d_model, convention)
        changes = changes_of(encoding)
        if torch.compiler.is_compiling():
            changes = {name: _specialized(value) for name, value in changes.items()}
        return encoding.d_model, text_of(changes)
    if type(d_model) not in (int, torch.SymInt):
        d_model = _tensor_arguments.integer("d_model", d_model, 0)
    if torch.compiler.is_compiling():
        return d_model, text_of({name: _specialized(value) for name, value in convention.items()})
    checks.keywords(convention)
    checked_text = _cached_text if CACHEABLE.issuperset(map(type, scalars(convention))) else _checked_text
    return d_model, checked_text(d_model, **convention)


@torch.compiler.assume_constant_result
def text_of(convention: Mapping[str, Any]) -> str:
    """Return a convention as JSON text, in which every float64 is exact."""
    constants = {name: constant(name, value) for name, value in convention.items()}
    return json.dumps(constants, default=lambda value: np.asarray(value).tolist())


def _checked_text(d_model: int, /, **convention: Any) -> str:
    text = text_of({name: KEYWORDS[name].checked(constant(name, value)) for name, value in convention.items()})
    encoding_of_text(d_model, text)
    return text


_cached_text = functools.lru_cache(maxsize=8, typed=True)(_checked_text)


def _specialized(value: Any) -> Any:
    """Convert symbolic numbers of torch.compile to constants, so that a call with other numbers is compiled again."""
    if isinstance(value, (list, tuple)):
        return [_specialized(number) for number in value]
    return guard_scalar(value) if type(value) in (int, float) else value


@functools.lru_cache(maxsize=8)
def encoding_of_text(d_model: int, convention: str) -> posenc.Encoding:
    return posenc.Encoding(d_model, **json.loads(convention))


# ---- operators --------------------------------------------------------------------------------------------------------


def _encode(start: int, step: int, n: int, d_model: int, convention: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    encoding = encoding_of_text(d_model, convention)
    out = torch.empty((n, d_model), dtype=dtype, device="meta" if device.type == "meta" else "cpu")
    if not out.is_meta:
        encoding.encode(range(start, start + step * n, step), out=array_of(out))
    return out.to(device)


_encode_operator = torch.library.custom_op(
    "posenc::encode", _encode, mutates_args=(),
    schema="(SymInt start, SymInt step, SymInt n, SymInt d_model, str convention, ScalarType dtype, Device device) -> Tensor",
)


@_encode_operator.register_fake
def _(start: int, step: int, n: int, d_model: int, convention: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty((n, d_model), dtype=dtype, device=device)


def _encode_at(positions: Tensor, d_model: int, convention: str, dtype: torch.dtype) -> Tensor:
    encoding = encoding_of_text(d_model, convention)
    out = torch.empty((*positions.shape, d_model), dtype=dtype, device="cpu")
    encoding.encode(_tensor_arguments.positions_array(positions), out=array_of(out))
    return out.to(positions.device)


_encode_at_operator = torch.library.custom_op(
    "posenc::encode_at", _encode_at, mutates_args=(),
    schema="(Tensor positions, SymInt d_model, str convention, ScalarType dtype) -> Tensor",
)


@_encode_at_operator.register_fake
def _(positions: Tensor, d_model: int, convention: str, dtype: torch.dtype) -> Tensor:
    return positions.new_empty((*positions.shape, d_model), dtype=dtype)


@_encode_at_operator.register_autograd
def _(context: Any, grad: Tensor) -> NoReturn:
    raise RuntimeError(f"positions requires grad, but {NOT_DIFFERENTIABLE}")


def _is_protected_view(x: Tensor) -> bool:
    """Return whether x is a view that must not be overwritten; autograd raises an error only after the kernel has run."""
    if not x._is_view():
        return False
    created = torch._C._autograd._get_creation_meta(x)          # not DEFAULT for views made by split or under no_grad
    base: Any = x._base
    return created != torch._C._autograd.CreationMeta.DEFAULT or base.is_leaf and base.requires_grad


def define_in_place(
    name: str, arguments: str, run: Callable[..., None], save: Callable[..., None], backward: Callable[..., Any], instead: str
) -> None:
    """Define the operator ``posenc::{name}``, which overwrites x.

    `arguments` is the schema of the arguments after x and positions.
    ``save(context, positions, *arguments)`` saves the data from which ``backward(context, grad)`` computes the gradient of x.
    If x is a leaf that requires grad, or a view that must not be overwritten, the error recommends the function named
    `instead`.
    """
    # torch.library.custom_op does not support derivatives of operators that mutate an argument
    operator = f"posenc::{name}"
    torch.library.define(operator, f"(Tensor(a!) x, Tensor? positions, {arguments}) -> ()")
    torch.library.impl(operator, "CPU")(run)

    @torch.library.register_fake(operator)
    def _(x: Tensor, positions: Tensor | None, *others: Any) -> None:
        if positions is not None:
            _tensor_arguments.check_not_meta(positions, x.device)

    def run_below_autograd(*every: Any) -> None:
        with torch._C._AutoDispatchBelowAutograd():
            getattr(torch.ops.posenc, name)(*every)

    class InPlace(torch.autograd.Function):
        @staticmethod
        def forward(context: Any, x: Tensor, *others: Any) -> Tensor:
            context.mark_dirty(x)
            save(context, *others)
            context.number = len(others)
            run_below_autograd(x, *others)
            return x

        @staticmethod
        def backward(context: Any, grad: Tensor) -> tuple[Any, ...]:
            return backward(context, grad), *(None,) * context.number

    @torch.library.impl(operator, "Autograd")
    def _(x: Tensor, positions: Tensor | None, *others: Any) -> None:
        if positions is not None:
            _tensor_arguments.check_positions(positions, x.device)
        if x.is_neg():
            raise RuntimeError("x is a view with lazy negation, which cannot be overwritten; use x.resolve_neg()")
        if not (x.requires_grad and torch.is_grad_enabled()):
            torch.autograd.graph.increment_version(x)
            run_below_autograd(x, positions, *others)
        elif x.is_leaf:
            raise RuntimeError(f"x is a leaf that requires grad, which cannot be overwritten; use {instead}")
        elif _is_protected_view(x):
            raise RuntimeError(f"x is a view that torch does not allow to be overwritten; use {instead}")
        else:
            InPlace.apply(x, positions, *others)


def _add(x: Tensor, positions: Tensor | None, start: int, x_scale: float, convention: str) -> None:
    rows = range(start, start + x.shape[-2]) if positions is None else _tensor_arguments.positions_array(positions)
    encoding_of_text(x.shape[-1], convention).add_to(array_of(x), rows, x_scale=x_scale)


def _save_scale(context: Any, positions: Tensor | None, start: int, x_scale: float, convention: str) -> None:
    context.x_scale = x_scale


def _scaled(context: Any, grad: Tensor) -> Tensor:
    # The kernels multiply by x_scale rounded to the dtype of x, so the derivative is the rounded x_scale.
    return grad * kernel.rounded(DTYPES[grad.dtype], context.x_scale)


define_in_place(
    "add_", "SymInt start, float x_scale, str convention", _add, _save_scale, _scaled, "x.clone() or torch.no_grad()"
)


# ---- calls ------------------------------------------------------------------------------------------------------------
#
# For a short row, a call through an operator takes several times as long as a direct call.


def encode(start: int, step: int, n: int, d_model: int, convention: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    function = _encode if is_eager() else torch.ops.posenc.encode
    return function(start, step, n, d_model, convention, dtype, device)


def encode_at(positions: Tensor, d_model: int, convention: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    _tensor_arguments.check_positions(positions, device)
    function = _encode_at if is_eager() and is_plain(positions) else torch.ops.posenc.encode_at
    return function(positions, d_model, convention, dtype).to(device)


def is_eager() -> bool:
    """Return whether no compiler, tracer, mode or transform intercepts operators, so that kernels can be called directly."""
    return not (
        torch.compiler.is_compiling()
        or torch._C._get_tracing_state() is not None            # torch.jit.trace
        or torch._C._len_torch_dispatch_stack()                 # FakeTensorMode, make_fx
        or torch._C._len_torch_function_stack()                 # TorchFunctionMode, torch.device as a context manager
        or torch._C._are_functorch_transforms_active()          # torch.func
        or forward_ad._current_level >= 0                       # forward-mode differentiation
    )


def is_plain(tensor: Tensor) -> bool:
    """Return whether a tensor stores its elements in CPU memory and autograd records no operations on it."""
    return (
        type(tensor) is Tensor                                  # a subclass such as DTensor or FakeTensor may have no memory
        and tensor.is_cpu
        and not tensor.requires_grad
        and not tensor.is_neg()                                 # if negation is lazy, the stored values have the opposite signs
        and not torch._is_functional_tensor(tensor)             # functional tensors have no memory
    )
