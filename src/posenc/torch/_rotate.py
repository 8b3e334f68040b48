"""The functions rotate and rotate_, and their operator posenc::rotate.

The operator takes a `Rotary` as text, so that an exported graph is complete.  Eager calls do not use it.
"""

from typing import Any, TypeAlias

import torch
from torch import Tensor

from posenc import Rotary, RotaryAt
from posenc._arguments import checks
from posenc._arguments.arrays import Positions
from posenc.torch import _tensor_arguments as tensors

AnyPositions: TypeAlias = Positions | Tensor | RotaryAt | None
DTYPES = [dtype for dtype in tensors.DTYPES if dtype != torch.float64]


def rotate(
    x: Tensor, positions: AnyPositions = None, *, rotary: Rotary | None = None, inverse: bool = False
) -> Tensor:
    """Return rotated queries or keys, with the same bits as `posenc.Rotary.rotate`.

    Differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, on the CPU, with dtype float32, float16 or bfloat16.  The second-to-last axis
        must be that of the positions, as in (batch, heads, n, head_dim).
    positions : int, range, Tensor, array_like or posenc.RotaryAt, optional
        As for `posenc.Rotary.rotate`, or a tensor that meets the same conditions; or a `RotaryAt`, which
        holds cosines and sines.  Derivatives and torch.func compute the cosines and sines again.
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
    return _rotate_tensor(x, positions, rotary, inverse, in_place=False)


def rotate_(
    x: Tensor, positions: AnyPositions = None, *, rotary: Rotary | None = None, inverse: bool = False
) -> Tensor:
    """Rotate queries or keys in place, with the same bits as `posenc.Rotary.rotate`.

    Differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, as for `rotate`.  They are overwritten, and must be contiguous in the last
        dimension.
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
        If `positions` requires grad, or if `x` requires grad and autograd forbids overwriting it, as for a
        leaf.

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
    return _rotate_tensor(x, positions, rotary, inverse, in_place=True)


def _rotate_tensor(x: Tensor, positions: Any, rotary: Rotary | None, inverse: bool, in_place: bool) -> Tensor:
    at = positions if isinstance(positions, RotaryAt) else None
    if at is not None:
        if rotary is not None or inverse:
            raise checks.both_given("inverse" if rotary is None else "rotary", "positions of type RotaryAt")
        rotary, inverse = at.rotary, at.inverse
    if not isinstance(rotary, Rotary):
        raise checks.wrong_type("rotary", rotary, "a posenc.Rotary, unless positions is a posenc.RotaryAt")
    checks.boolean("inverse", inverse)
    tensors.check_x(x, rotary.head_dim, DTYPES, "RotaryEmbedding")
    if tensors.is_direct(x, positions):
        if not in_place:
            return _write_rotated(tensors.dense_like(x), tensors.with_contiguous_last(x), positions, inverse, rotary)
        _write_rotated(x, x, positions, inverse, rotary)
        torch.autograd.graph.increment_version(x)
        return x
    if at is not None:
        positions = torch.from_numpy(at._positions)
    tensor = tensors.tensor_of_positions(x.shape[-2] if positions is None else positions, x.device)
    axes = axes_of(rotary)
    if axes is not None and tensor.shape[:1] != (axes,):
        raise checks.axes_error(tensor, axes)
    checks.check_broadcast(tuple(tensor.shape), tuple(x.shape[:-1]), axes is not None)
    result = rotate_by_operator(x, tensor, bool(inverse), tensors.text_of(rotary))
    return x.copy_(result) if in_place else result


def _write_rotated(out: Tensor, x: Tensor, positions: Any, inverse: bool, rotary: Rotary) -> Tensor:
    array, other = tensors.array_of(x), None if out is x else tensors.array_of(out)
    if isinstance(positions, RotaryAt):
        positions.rotate(array, out=other)
    else:
        rotary.rotate(array, tensors.array_of_positions(positions, x.device), inverse=inverse, out=other)
    return out


def axes_of(rotary: Rotary) -> int | None:
    """Return the number of axes of positions, or None if positions have no dimension for axes."""
    return None if rotary.axes is None else max(rotary.axes) + 1


# ---- operator ----------------------------------------------------------------------------------------------


def rotate_by_operator(x: Tensor, positions: Tensor, inverse: bool, rotary: str) -> Tensor:
    # torch.func and forward-mode differentiation need _Rotate
    in_transform = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
    function = _Rotate.apply if in_transform or tensors.is_dual(x) else torch.ops.posenc.rotate
    return function(tensors.with_contiguous_last(x), positions, inverse, rotary)


@torch.library.custom_op("posenc::rotate", mutates_args=())
def _rotate(x: Tensor, positions: Tensor, inverse: bool, rotary: str) -> Tensor:
    out = tensors.dense_like(x)
    return out if x.is_meta else _write_rotated(out, x, positions, inverse, tensors.specification_of(rotary))


@_rotate.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return tensors.dense_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    _, positions, ctx.inverse, ctx.rotary = inputs
    ctx.save_for_backward(positions)
    ctx.save_for_forward(positions)


def _backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradient of x, which is grad rotated in the opposite direction and multiplied by the same
    scale.
    """
    # activation checkpointing allows only one access to saved_tensors
    (positions,) = context.saved_tensors
    return rotate_by_operator(grad, positions, not context.inverse, context.rotary), None, None, None


def _vmap(info: Any, dims: Any, x: Tensor, positions: Tensor, inverse: bool, rotary: str) -> Any:
    """Implement vmap: make the mapped dimension of x, and that of positions, the first of the dimensions that
    broadcast.
    """
    x = x.expand(info.batch_size, *x.shape) if dims[0] is None else x.movedim(dims[0], 0)
    # the dimension of position axes remains first
    dim = int(tensors.specification_of(rotary).axes is not None)
    positions = positions.unsqueeze(dim) if dims[1] is None else positions.movedim(dims[1], dim)
    shape = list(positions.shape)
    shape[dim + 1 : dim + 1] = [1] * (x.ndim - 1 - (positions.ndim - dim))
    positions = positions.reshape(shape)
    return rotate_by_operator(x, positions, inverse, rotary), 0


_rotate.register_autograd(_backward, setup_context=_save)
_rotate.register_vmap(_vmap)


class _Rotate(torch.autograd.Function):
    """A version of posenc::rotate that torch.func and forward-mode differentiation support."""

    forward = staticmethod(torch.ops.posenc.rotate)
    setup_context = staticmethod(_save)
    vmap = staticmethod(_vmap)
    backward = staticmethod(_backward)      # type: ignore[assignment]

    @staticmethod
    def jvp(context: Any, tangent: Tensor, *_: None) -> Tensor:
        return rotate_by_operator(tangent, context.saved_tensors[0], context.inverse, context.rotary)
