"""The operators posenc::rotate, posenc::rotate_ and posenc::tables.

The operators take a `Rotary` as JSON text, so that an exported graph contains the whole specification.
"""

from __future__ import annotations

import functools
import json
import warnings
from typing import Any, NoReturn

import torch
from torch import Tensor

from posenc import Rotary
from posenc._rotary.scaling import positions_without_length
from posenc.torch._encode_operators import define_in_place
from posenc.torch._tensor_arguments import (
    NOT_DIFFERENTIABLE,
    array_of,
    check_not_meta,
    dense_like,
    is_dual,
    positions_array,
    with_contiguous_last,
)

# ---- the specification as text ------------------------------------------------------------------------------------------


@torch.compiler.assume_constant_result
def text_of(rotary: Rotary) -> str:
    """Return a rotation as JSON text, in which every float64 is exact."""
    return _cached_text(rotary)


@functools.lru_cache(maxsize=64)
def _cached_text(rotary: Rotary) -> str:
    document = rotary.to_dict()
    del document["version"]
    return json.dumps(document)


@torch.compiler.assume_constant_result
def axes_of(text: str) -> int | None:
    """Return the number of axes of positions, or None if positions have no dimension for axes."""
    axes = rotary_of(text).axes
    return None if axes is None else max(axes) + 1


@functools.lru_cache(maxsize=64)
def rotary_of(text: str) -> Rotary:
    return Rotary.from_dict(json.loads(text))


# ---- operators ----------------------------------------------------------------------------------------------------------


def _tables(positions: Tensor, rotary: str, dtype: torch.dtype) -> Tensor:
    """Return the cosines of all pairs, followed by their sines, on the device of the positions."""
    specification = rotary_of(rotary)
    array = positions_array(positions)
    limit = _limit(rotary)
    if limit is not None and array.size and array.max() >= limit:
        warnings.warn(          # by default, Python shows each text only once
            f"positions has values of {limit} or more, but the frequencies are those for at most {limit} positions, because "
            "length is None; pass length= to RotaryEmbedding, or set it in the scaling of Rotary", stacklevel=2)
    out = torch.empty((*_shape(positions, rotary), specification.rotary_dim), dtype=dtype, device="cpu")
    specification.tables(array, out=array_of(out))
    return out.to(positions.device)


@functools.lru_cache(maxsize=64)
def _limit(text: str) -> int | None:
    return positions_without_length(rotary_of(text).scaling)


def _shape(positions: Tensor, rotary: str) -> torch.Size:
    return positions.shape if rotary_of(rotary).axes is None else positions.shape[1:]


_tables_operator = torch.library.custom_op(
    "posenc::tables", _tables, mutates_args=(), schema="(Tensor positions, str rotary, ScalarType dtype) -> Tensor",
)


@_tables_operator.register_fake
def _(positions: Tensor, rotary: str, dtype: torch.dtype) -> Tensor:
    return positions.new_empty((*_shape(positions, rotary), rotary_of(rotary).rotary_dim), dtype=dtype)


@_tables_operator.register_autograd
def _(context: Any, grad: Tensor) -> NoReturn:
    raise RuntimeError(f"positions requires grad, but {NOT_DIFFERENTIABLE}")


def _rotate_in_place(
    x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str, out: Tensor | None = None
) -> None:
    rows = range(start, start + x.shape[-2]) if positions is None else positions_array(positions)
    rotary_of(rotary).rotate(array_of(x), rows, inverse=inverse, out=None if out is None else array_of(out))


def _rotate(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> Tensor:
    out = dense_like(x)
    if not x.is_meta:
        _rotate_in_place(x, positions, start, inverse, rotary, out)
    return out


_rotate_operator = torch.library.custom_op(
    "posenc::rotate", _rotate, mutates_args=(),
    schema="(Tensor x, Tensor? positions, SymInt start, bool inverse, str rotary) -> Tensor",
)


@_rotate_operator.register_fake
def _(x: Tensor, positions: Tensor | None, *_: Any) -> Tensor:
    if positions is not None:
        check_not_meta(positions, x.device)
    return dense_like(x)


def _save_arguments(context: Any, positions: Tensor | None, *others: Any) -> None:
    context.others = others
    context.save_for_backward(*(() if positions is None else (positions,)))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    _save_arguments(ctx, *inputs[1:])


def _saved(context: Any) -> tuple[Tensor | None, int, bool, str]:
    start, inverse, rotary = context.others
    saved = context.saved_tensors           # activation checkpointing allows only one access
    return saved[0] if saved else None, start, inverse, rotary


def _inverse(context: Any, grad: Tensor) -> Tensor:
    """Return the gradient of x, which is grad rotated in the opposite direction and multiplied by the same scale."""
    positions, start, inverse, rotary = _saved(context)
    return rotated(with_contiguous_last(grad), positions, start, not inverse, rotary)


def _backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    return _inverse(context, grad), *(None,) * (1 + len(context.others))


_rotate_operator.register_autograd(_backward, setup_context=_save)


def _mapped(
    info: Any, dims: Any, x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str
) -> tuple[Tensor, int]:
    """Implement vmap: make the mapped dimension of x, and that of positions, the first of the dimensions that broadcast."""
    x = x.expand(info.batch_size, *x.shape) if dims[0] is None else x.movedim(dims[0], 0)
    if positions is not None:
        first = int(axes_of(rotary) is not None)                    # the dimension of position axes remains first
        positions = positions.unsqueeze(first) if dims[1] is None else positions.movedim(dims[1], first)
        missing = x.ndim - 1 - (positions.ndim - first)
        positions = positions.reshape(*positions.shape[: first + 1], *(1,) * missing, *positions.shape[first + 1 :])
    return rotated(with_contiguous_last(x), positions, start, inverse, rotary), 0


_rotate_operator.register_vmap(_mapped)


class _Rotate(torch.autograd.Function):
    """A version of posenc::rotate that torch.func and forward-mode differentiation support."""

    @staticmethod
    def forward(x: Tensor, *arguments: Any) -> Tensor:
        result: Tensor = torch.ops.posenc.rotate(with_contiguous_last(x), *arguments)
        return result

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        _save(context, inputs, output)
        context.save_for_forward(*context.to_save)

    @staticmethod
    def jvp(context: Any, tangent: Tensor, *_: None) -> Tensor:
        return rotated(tangent, *_saved(context))

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return _backward(context, grad)

    vmap = staticmethod(_mapped)


def rotated(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> Tensor:
    """Call posenc::rotate, or `_Rotate` for torch.func and forward-mode differentiation."""
    transformed = not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active() or is_dual(x))
    result: Tensor = (
        _Rotate.apply(x, positions, start, inverse, rotary)
        if transformed else torch.ops.posenc.rotate(x, positions, start, inverse, rotary)
    )
    return result


define_in_place("rotate_", "SymInt start, bool inverse, str rotary", _rotate_in_place, _save_arguments, _inverse, "rotate")
