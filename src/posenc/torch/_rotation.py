"""The functions rotate and rotate_, and the operators posenc::rotate, posenc::rotate_ and posenc::tables.

The operators take a `Rotary` as JSON text, so that an exported graph contains the whole specification.
"""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Mapping
from typing import Any, NoReturn

import numpy as np
import torch
from torch import Tensor

from posenc import Rotary
from posenc._arguments import checks
from posenc._arguments.keywords import suggests
from posenc._arguments.types import Positions
from posenc._rotary.scaling import positions_without_length
from posenc.torch import _tensors
from posenc.torch._operators import define_in_place, is_eager, is_plain
from posenc.torch._tensors import NOT_DIFFERENTIABLE, array_of, is_dual

DTYPES = [dtype for dtype in _tensors.DTYPES if dtype != torch.float64]

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
    """Return the cosines and then the sines of the pairs, on the device of the positions."""
    specification = rotary_of(rotary)
    array = _tensors.positions_array(positions)
    limit = _limit(rotary)
    if limit is not None and array.size and array.max() >= limit:
        warnings.warn(          # Python's default filter shows a text only once
            f"positions has {limit} or more, but the frequencies are those for at most {limit} positions, because length is "
            "None; pass length= to RotaryEmbedding, or set it in the scaling of Rotary", stacklevel=2)
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


def _turn(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str, out: Tensor | None) -> None:
    rows = range(start, start + x.shape[-2]) if positions is None else _tensors.positions_array(positions)
    rotary_of(rotary).rotate(array_of(x), rows, inverse=inverse, out=None if out is None else array_of(out))


def _rotate(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> Tensor:
    out = _like(x)
    if not x.is_meta:
        _turn(x, positions, start, inverse, rotary, out)
    return out


def _like(x: Tensor) -> Tensor:
    """Return a new dense tensor with the memory order of x if x is contiguous in the last dimension, else a contiguous one."""
    out = torch.empty_like(x)
    return out if out.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)


_rotate_operator = torch.library.custom_op(
    "posenc::rotate", _rotate, mutates_args=(),
    schema="(Tensor x, Tensor? positions, SymInt start, bool inverse, str rotary) -> Tensor",
)


@_rotate_operator.register_fake
def _(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> Tensor:
    if positions is not None:
        _tensors.check_not_meta(positions, x.device)
    return _like(x)


def _save_arguments(context: Any, positions: Tensor | None, *others: Any) -> None:
    context.others = others
    context.save_for_backward(*(() if positions is None else (positions,)))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    _save_arguments(ctx, *inputs[1:])


def _saved(context: Any) -> tuple[Tensor | None, int, bool, str]:
    start, inverse, rotary = context.others
    saved = context.saved_tensors           # activation checkpointing allows a single access
    return saved[0] if saved else None, start, inverse, rotary


def _inverse(context: Any, grad: Tensor) -> Tensor:
    """Return the gradient of x: grad rotated the opposite way and multiplied by the same scale."""
    positions, start, inverse, rotary = _saved(context)
    return _turned(with_contiguous_last(grad), positions, start, not inverse, rotary)


def _backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
    return _inverse(context, grad), None, None, None, None


_rotate_operator.register_autograd(_backward, setup_context=_save)


def _mapped(
    info: Any, dims: Any, x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str
) -> tuple[Tensor, int]:
    """Implement vmap: move the mapped dimension of x and of positions to the front of their broadcast dimensions."""
    x = x.expand(info.batch_size, *x.shape) if dims[0] is None else x.movedim(dims[0], 0)
    if positions is not None:
        first = int(axes_of(rotary) is not None)                    # the dimension of position axes remains first
        positions = positions.unsqueeze(first) if dims[1] is None else positions.movedim(dims[1], first)
        missing = x.ndim - 1 - (positions.ndim - first)
        positions = positions.reshape(*positions.shape[: first + 1], *(1,) * missing, *positions.shape[first + 1 :])
    return _turned(with_contiguous_last(x), positions, start, inverse, rotary), 0


_rotate_operator.register_vmap(_mapped)


class _Turn(torch.autograd.Function):
    """A version of posenc::rotate that torch.func and forward-mode differentiation support."""

    @staticmethod
    def forward(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> Tensor:
        result: Tensor = torch.ops.posenc.rotate(with_contiguous_last(x), positions, start, inverse, rotary)
        return result

    @staticmethod
    def setup_context(context: Any, inputs: Any, output: Any) -> None:
        _save(context, inputs, output)
        context.save_for_forward(*context.to_save)

    @staticmethod
    def jvp(context: Any, tangent: Tensor, *_: None) -> Tensor:
        return _turned(tangent, *_saved(context))

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return _backward(context, grad)

    vmap = staticmethod(_mapped)


def _turned(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> Tensor:
    """Call the operator, or the function that torch.func and forward-mode differentiation support."""
    transformed = not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active() or is_dual(x))
    result: Tensor = (_Turn.apply if transformed else torch.ops.posenc.rotate)(x, positions, start, inverse, rotary)
    return result


def _rotate_in_place(x: Tensor, positions: Tensor | None, start: int, inverse: bool, rotary: str) -> None:
    _turn(x, positions, start, inverse, rotary, None)


define_in_place("rotate_", "SymInt start, bool inverse, str rotary", _rotate_in_place, _save_arguments, _inverse, "rotate")


# ---- functions ----------------------------------------------------------------------------------------------------------


@suggests
def rotate(
    x: Tensor, positions: Positions | Tensor | None = None, *, rotary: Rotary, inverse: bool = False
) -> Tensor:
    """Return rotated queries or keys, with the same bits as `posenc.Rotary.rotate`; differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, on the CPU, with dtype float32, float16 or bfloat16.  The axis before the columns must be that
        of the positions, as in (batch, heads, n, head_dim).
    positions : int, range, Tensor or array_like, optional
        As for `posenc.Rotary.rotate`, or a tensor that fulfils the same conditions.
    rotary : posenc.Rotary
        The rotation.
    inverse : bool, optional
        Rotate by the negative angles.

    Returns
    -------
    Tensor
        A new tensor with the shape and dtype of x.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        If `positions` requires grad: a rotation is not differentiable with respect to positions.

    See Also
    --------
    rotate_ : Rotate in place.
    RotaryEmbedding : A module that replaces a model's ``rotary_emb``.

    Examples
    --------
    >>> import posenc, torch
    >>> rotary = posenc.Rotary(64)
    >>> q = torch.ones(1, 8, 3, 64)
    >>> posenc.torch.rotate(q, range(100, 103), rotary=rotary).shape
    torch.Size([1, 8, 3, 64])
    """
    _check(x, rotary, inverse)
    x = with_contiguous_last(x)
    if is_eager() and is_plain(x) and _is_direct(positions):
        out = _like(x)
        rotary.rotate(array_of(x), _array(positions), inverse=inverse, out=array_of(out))
        return out
    text, inverse = text_of(rotary), bool(inverse)
    tensor, start = _tensor_or_start(positions, x, axes_of(text))
    return _turned(x, tensor, start, inverse, text)


@suggests
def rotate_(
    x: Tensor, positions: Positions | Tensor | None = None, *, rotary: Rotary, inverse: bool = False
) -> Tensor:
    """Rotate queries or keys in place, with the same bits as `posenc.Rotary.rotate`; differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, which are overwritten: as for `rotate`, but contiguous in the last dimension.
    positions : int, range, Tensor or array_like, optional
        As for `rotate`.
    rotary : posenc.Rotary
        The rotation.
    inverse : bool, optional
        Rotate by the negative angles.

    Returns
    -------
    Tensor
        The tensor `x` itself.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        If `x` requires grad and autograd forbids overwriting it, as for a leaf, or if `positions` requires grad.

    See Also
    --------
    rotate : Return a new tensor.

    Examples
    --------
    >>> import posenc, torch
    >>> q = torch.ones(1, 8, 3, 64)
    >>> posenc.torch.rotate_(q, rotary=posenc.Rotary(64)) is q
    True
    """
    _check(x, rotary, inverse)
    if is_eager() and is_plain(x) and _is_direct(positions):
        rotary.rotate(array_of(x), _array(positions), inverse=inverse)
        torch.autograd.graph.increment_version(x)
        return x
    text, inverse = text_of(rotary), bool(inverse)
    tensor, start = _tensor_or_start(positions, x, axes_of(text))
    if not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active() or is_dual(x)):
        return x.copy_(rotate(x.clone(), positions, rotary=rotary, inverse=inverse))
    torch.ops.posenc.rotate_(x, tensor, start, inverse, text)
    return x


def with_contiguous_last(x: Tensor) -> Tensor:
    return x if x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()


def _check(x: Tensor, rotary: Any, inverse: Any) -> None:
    if not isinstance(rotary, Rotary):
        such_as = f" such as posenc.Rotary({rotary})" if type(rotary) is int else ""
        if isinstance(rotary, Mapping) or hasattr(rotary, "to_dict"):
            such_as = " such as posenc.Rotary.from_config(config)"
        raise checks.wrong_type("rotary", rotary, f"a posenc.Rotary{such_as}")
    checks.boolean("inverse", inverse)
    if not isinstance(x, Tensor):
        hint = "; posenc.Rotary.rotate takes arrays" if isinstance(x, np.ndarray) else ""
        raise TypeError(f"x is of type {type(x).__name__}, expected a torch.Tensor{hint}")
    _tensors.check_not_nested("x", x)
    if x.dtype not in DTYPES:
        raise TypeError(f"x has dtype {x.dtype}, expected one of {', '.join(map(str, DTYPES))}")
    if x.layout is not torch.strided:
        raise TypeError(f"x has layout {x.layout}, expected torch.strided; pass x.to_dense()")
    if not (x.is_cpu or x.is_meta):
        raise ValueError(f"x is on {x.device}, expected the CPU; RotaryEmbedding supports every device")
    if x.ndim < 2 or x.shape[-1] != rotary.head_dim:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., n, {rotary.head_dim})")


def _is_direct(positions: Any) -> bool:
    return not isinstance(positions, Tensor) or is_plain(positions)


def _array(positions: Any) -> Any:
    if not isinstance(positions, Tensor):
        return positions
    _tensors.check_positions(positions, positions.device)
    return _tensors.positions_array(positions)


def _tensor_or_start(positions: Any, x: Tensor, axes: int | None) -> tuple[Tensor | None, int]:
    """Return the positions for the operators: a tensor and 0, or None and the first of n consecutive positions."""
    tensor, start = _tensors.tensor_or_start(positions, x.shape[-2])
    if tensor is None:
        if axes is not None:
            raise ValueError(f"positions is {positions!r}, expected a tensor of shape ({axes}, ...), one element for each axis")
        return None, start
    _tensors.check_positions(tensor, x.device)
    if axes is not None and tensor.shape[:1] != (axes,):
        raise ValueError(f"positions has shape {tuple(tensor.shape)}, expected ({axes}, ...), one element for each axis")
    checks.check_broadcast(tuple(tensor.shape), tuple(x.shape[:-1]), axes is not None)
    return tensor.to(x.device), 0
