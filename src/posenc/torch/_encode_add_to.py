"""The functions encode and add_to for tensors."""

from __future__ import annotations

import math
from typing import SupportsFloat, SupportsIndex, Unpack

import torch
from torch import Tensor

from posenc._arguments import checks
from posenc._arguments.types import Convention, Positions
from posenc._core import kernel
from posenc._encoding.encoding import Encoding, check_encoding
from posenc.torch import _encode_operators, _tensor_arguments


def encode(
    positions: Positions | Tensor, d_model: SupportsIndex | Encoding, *, dtype: torch.dtype = torch.float32,
    device: torch.device | str | int | None = None, **convention: Unpack[Convention],
) -> Tensor:
    """Return sinusoidal positional encodings as a tensor, with the same bits as `posenc.encode`.

    Parameters
    ----------
    positions : int, range, Tensor or array_like
        As for `posenc.encode`, or a tensor of any shape and any real dtype.
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16.
    device : torch.device, optional
        By default, that of `positions` if it is a tensor, else torch's default device.  Values are computed on the CPU.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    Tensor, shape ``positions.shape + (d_model,)``
        The encodings.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    RuntimeError
        If `positions` requires grad, because encodings are not differentiable with respect to positions.

    See Also
    --------
    PositionalTable : A module that keeps its table between calls.
    posenc.encode : Return the encodings as an array.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> posenc.torch.encode(2, 4, dtype=torch.float64)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 1.0000]], dtype=torch.float64)
    >>> posenc.torch.encode(torch.tensor([[0.5, 1e9]]), 64).shape
    torch.Size([1, 2, 64])
    """
    _tensor_arguments.dtype_name(dtype)
    d_model, text = _encode_operators.specification(d_model, convention)
    if device is None:
        device = (positions if isinstance(positions, Tensor) else torch.empty(0)).device
    else:
        device = torch.device(device)
    if isinstance(positions, Tensor):
        return _encode_operators.encode_at(positions, d_model, text, dtype, device)
    if type(positions) is int and 0 <= positions < checks.BEYOND:       # torch.compile traces this branch
        return _encode_operators.encode(0, 1, positions, d_model, text, dtype, device)
    positions = checks.range_or_array(positions)
    if isinstance(positions, range):
        checks.check_domain(positions, 0)
        n = checks.length(positions)
        # the start of an empty range and the step of a range with one position may exceed 64 bits
        start, step = positions[0] if n else 0, positions.step if n > 1 else 1
        if checks.LOWEST <= step < checks.BEYOND:
            return _encode_operators.encode(start, step, n, d_model, text, dtype, device)
    return _encode_operators.encode_at(_tensor_arguments.positions_tensor(positions), d_model, text, dtype, device)


def add_to(
    x: Tensor, positions: Positions | Tensor | None = None, *, encoding: Encoding | None = None, x_scale: SupportsFloat = 1.0,
    **convention: Unpack[Convention],
) -> Tensor:
    """Add encodings to embeddings in place, with the same bits as `posenc.add_to`; differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, d_model)
        The embeddings, which are overwritten.  They must be on the CPU, have dtype float32, float64, float16 or bfloat16, and
        be contiguous in the last dimension.
    positions : int, range, Tensor or array_like, optional
        As for `posenc.add_to`, or a tensor that meets the same conditions.
    encoding : posenc.Encoding, optional
        An encoding to use instead of the keywords of a convention.
    x_scale : float, optional
        The factor by which x is multiplied, as in `posenc.add_to`.
    **convention
        See `posenc.Encoding`.

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
    PositionalEncoding : A module that returns a new tensor, on any device.
    posenc.add_to : Add encodings to an array.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> x = torch.ones(2, 3, 4)
    >>> posenc.torch.add_to(x) is x
    True
    >>> bool((x == 1 + posenc.torch.encode(3, 4)).all())
    True
    """
    _tensor_arguments.check_x(x)
    if not (x.is_cpu or x.is_meta):
        raise ValueError(f"x is on {x.device}, expected the CPU; PositionalEncoding supports every device")
    n, d_model = x.shape[-2:]
    if encoding is not None:
        check_encoding(encoding)
        if encoding.d_model != d_model:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {encoding.d_model})")
    _, text = _encode_operators.specification(encoding or d_model, convention)
    direct = _encode_operators.is_eager() and _encode_operators.is_plain(x)
    if direct and (not isinstance(positions, Tensor) or _encode_operators.is_plain(positions)):
        if isinstance(positions, Tensor):
            _tensor_arguments.check_positions(positions, x.device)
            positions = _tensor_arguments.positions_array(positions)
        scale = x_scale if type(x_scale) is float else _tensor_arguments.real("x_scale", x_scale)
        _encode_operators.encoding_of_text(d_model, text).add_to(_tensor_arguments.array_of(x), positions, x_scale=scale)
        torch.autograd.graph.increment_version(x)
        return x
    # torch.compile cannot trace `real`; for an int or a float, the operator checks the value instead
    if not torch.compiler.is_compiling() or type(x_scale) not in (int, float):
        x_scale = _tensor_arguments.real("x_scale", x_scale)
    tensor, start = _tensor_arguments.tensor_or_start(positions, n)
    if tensor is not None:
        _tensor_arguments.check_positions(tensor, x.device)
        tensor = tensor.to(x.device)
    if not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active() or _tensor_arguments.is_dual(x)):
        return _add_by_torch(x, tensor, start, float(x_scale), text)
    torch.ops.posenc.add_(x, tensor, start, x_scale, text)
    return x


def _add_by_torch(x: Tensor, positions: Tensor | None, start: int, x_scale: float, convention: str) -> Tensor:
    """Add encodings with PyTorch's operators, because torch.func and forward-mode AD cannot transform posenc::add_."""
    n, d_model = x.shape[-2:]
    if positions is None:
        values = _encode_operators.encode(start, 1, n, d_model, convention, x.dtype, x.device)
    else:
        checks.check_broadcast(tuple(positions.shape), tuple(x.shape[:-1]))
        values = _encode_operators.encode_at(positions, d_model, convention, x.dtype, x.device)
    scale = kernel.rounded(_tensor_arguments.DTYPES[x.dtype], x_scale)
    if not math.isfinite(scale):
        raise _tensor_arguments.scale_error(x_scale, x.dtype)
    return x.mul_(scale).add_(values)
