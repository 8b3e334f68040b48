"""The functions rotate and rotate_."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posenc import Rotary, RotaryAt
from posenc._arguments import checks
from posenc._arguments.types import Positions
from posenc.torch import _tensor_arguments
from posenc.torch._encode_operators import is_eager, is_plain
from posenc.torch._rotate_operators import axes_of, rotated, text_of
from posenc.torch._tensor_arguments import array_of, dense_like, is_dual, with_contiguous_last

DTYPES = [dtype for dtype in _tensor_arguments.DTYPES if dtype != torch.float64]


def rotate(
    x: Tensor, positions: Positions | Tensor | RotaryAt | None = None, *, rotary: Rotary | None = None, inverse: bool = False
) -> Tensor:
    """Return rotated queries or keys, with the same bits as `posenc.Rotary.rotate`; differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, on the CPU, with dtype float32, float16 or bfloat16.  The second-to-last axis must be that
        of the positions, as in (batch, heads, n, head_dim).
    positions : int, range, Tensor, array_like or posenc.RotaryAt, optional
        As for `posenc.Rotary.rotate`, or a tensor that meets the same conditions; or a `RotaryAt`, which holds cosines and
        sines.  Derivatives and torch.func compute the cosines and sines again.
    rotary : posenc.Rotary, optional
        The rotation, unless `positions` is a `RotaryAt`.
    inverse : bool, optional
        Rotate by the negative angles.  Not allowed with a `RotaryAt`.

    Returns
    -------
    Tensor
        A new tensor with the shape and dtype of x.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        If `positions` requires grad, because a rotation is not differentiable with respect to positions.

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
    if isinstance(positions, RotaryAt):
        return _rotate_at(x, positions, rotary, inverse, in_place=False)
    rotary = _checked(x, rotary, inverse)
    x = with_contiguous_last(x)
    if is_eager() and is_plain(x) and _is_direct(positions):
        out = dense_like(x)
        rotary.rotate(array_of(x), _array(positions), inverse=inverse, out=array_of(out))
        return out
    text, inverse = text_of(rotary), bool(inverse)
    tensor, start = _tensor_or_start(positions, x, axes_of(text))
    return rotated(x, tensor, start, inverse, text)


def rotate_(
    x: Tensor, positions: Positions | Tensor | RotaryAt | None = None, *, rotary: Rotary | None = None, inverse: bool = False
) -> Tensor:
    """Rotate queries or keys in place, with the same bits as `posenc.Rotary.rotate`; differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, as for `rotate`.  They are overwritten, and must be contiguous in the last dimension.
    positions : int, range, Tensor, array_like or posenc.RotaryAt, optional
        As for `rotate`.
    rotary : posenc.Rotary, optional
        The rotation, unless `positions` is a `RotaryAt`.
    inverse : bool, optional
        Rotate by the negative angles.  Not allowed with a `RotaryAt`.

    Returns
    -------
    Tensor
        The tensor `x` itself.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        If `positions` requires grad, or if `x` requires grad and autograd forbids overwriting it, as for a leaf.

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
    if isinstance(positions, RotaryAt):
        return _rotate_at(x, positions, rotary, inverse, in_place=True)
    rotary = _checked(x, rotary, inverse)
    if is_eager() and is_plain(x) and _is_direct(positions):
        rotary.rotate(array_of(x), _array(positions), inverse=inverse)
        torch.autograd.graph.increment_version(x)
        return x
    text, inverse = text_of(rotary), bool(inverse)
    tensor, start = _tensor_or_start(positions, x, axes_of(text))
    return _overwrite(x, tensor, start, inverse, text)


def _overwrite(x: Tensor, *arguments: Any) -> Tensor:
    if not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active() or is_dual(x)):
        return x.copy_(rotated(x.clone(), *arguments))
    torch.ops.posenc.rotate_(x, *arguments)
    return x


def _rotate_at(x: Tensor, at: RotaryAt, rotary: Rotary | None, inverse: bool, in_place: bool) -> Tensor:
    for name, value in (("rotary", rotary), ("inverse", inverse or None)):
        if value is not None:
            raise checks.wrong(name, f"is {value!r}, expected no {name}, because positions is a RotaryAt, which has its own")
    _checked(x, at.rotary, inverse)
    if is_eager() and is_plain(x):
        if in_place:
            at.rotate(array_of(x))
            torch.autograd.graph.increment_version(x)
            return x
        x = with_contiguous_last(x)
        out = dense_like(x)
        at.rotate(array_of(x), out=array_of(out))
        return out
    text, positions = text_of(at.rotary), torch.from_numpy(at._positions)
    checks.check_broadcast(tuple(positions.shape), tuple(x.shape[:-1]), axes_of(text) is not None)
    if not in_place:
        return rotated(with_contiguous_last(x), positions, 0, at.inverse, text)
    return _overwrite(x, positions, 0, at.inverse, text)


def _checked(x: Tensor, rotary: Any, inverse: Any) -> Rotary:
    """Check the arguments, except the positions; return the rotation."""
    if not isinstance(rotary, Rotary):
        if rotary is None:
            raise checks.wrong("rotary", "is None, expected a posenc.Rotary, unless positions is a posenc.RotaryAt", TypeError)
        such_as = f" such as posenc.Rotary({rotary})" if type(rotary) is int else ""
        if isinstance(rotary, Mapping) or hasattr(rotary, "to_dict"):
            such_as = " such as posenc.Rotary.from_config(config)"
        raise checks.wrong_type("rotary", rotary, f"a posenc.Rotary{such_as}")
    checks.boolean("inverse", inverse)
    if not isinstance(x, Tensor):
        hint = "; posenc.Rotary.rotate takes arrays" if isinstance(x, np.ndarray) else ""
        raise TypeError(f"x is of type {type(x).__name__}, expected a torch.Tensor{hint}")
    _tensor_arguments.check_not_nested("x", x)
    if x.dtype not in DTYPES:
        raise TypeError(f"x has dtype {x.dtype}, expected one of {', '.join(map(str, DTYPES))}")
    if x.layout is not torch.strided:
        raise TypeError(f"x has layout {x.layout}, expected torch.strided; pass x.to_dense()")
    if not (x.is_cpu or x.is_meta):
        raise ValueError(f"x is on {x.device}, expected the CPU; RotaryEmbedding supports every device")
    if x.ndim < 2 or x.shape[-1] != rotary.head_dim:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., n, {rotary.head_dim})")
    return rotary


def _is_direct(positions: Any) -> bool:
    return not isinstance(positions, Tensor) or is_plain(positions)


def _array(positions: Any) -> Any:
    if not isinstance(positions, Tensor):
        return positions
    _tensor_arguments.check_positions(positions, positions.device)
    return _tensor_arguments.positions_array(positions)


def _tensor_or_start(positions: Any, x: Tensor, axes: int | None) -> tuple[Tensor | None, int]:
    """Return the positions for the operators: (tensor, 0), or (None, first) for n consecutive positions."""
    tensor, start = _tensor_arguments.tensor_or_start(positions, x.shape[-2])
    if tensor is None:
        if axes is not None:
            raise ValueError(f"positions is {positions!r}, expected a tensor of shape ({axes}, ...), one element for each axis")
        return None, start
    _tensor_arguments.check_positions(tensor, x.device)
    if axes is not None and tensor.shape[:1] != (axes,):
        raise ValueError(f"positions has shape {tuple(tensor.shape)}, expected ({axes}, ...), one element for each axis")
    checks.check_broadcast(tuple(tensor.shape), tuple(x.shape[:-1]), axes is not None)
    return tensor.to(x.device), 0
