"""The functions encode and add_to for tensors."""

from __future__ import annotations

import math
from typing import SupportsFloat, SupportsIndex, Unpack

import torch
from torch import Tensor

from posenc._arguments import checks
from posenc._arguments.arrays import Positions
from posenc._arguments.specification import Convention
from posenc._core import kernel
from posenc._encoding.encoding import Encoding, check_encoding
from posenc.torch import _encode_operators
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._graph_text import encoding_of, text_of


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
    tensors.check_dtype("dtype is", dtype)
    if device is None:
        device = (positions if isinstance(positions, Tensor) else torch.empty(0)).device
    return _encode_operators.encode(positions, encoding_of(d_model, convention), dtype, torch.device(device))


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
    tensors.check_x(x)
    tensors.check_on_cpu(x, "PositionalEncoding")
    n, d_model = x.shape[-2:]
    if encoding is not None:
        check_encoding(encoding)
        if encoding.d_model != d_model:
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {encoding.d_model})")
    specification = encoding_of(d_model if encoding is None else encoding, convention)
    # torch.compile cannot trace `real`; the kernels check an int or a float
    compiling = torch.compiler.is_compiling()
    if type(x_scale) not in ((int, float) if compiling else (float,)):
        x_scale = tensors.real("x_scale", x_scale)
    assert isinstance(x_scale, (int, float))
    if tensors.is_eager() and tensors.is_plain(x) and tensors.is_plain(positions):
        specification.add_to(tensors.array_of(x), tensors.positions_array(positions, x.device), x_scale=x_scale)
        torch.autograd.graph.increment_version(x)
        return x
    tensor, start, _ = tensors.tensor_or_rows(positions, x.device, n)
    # a compiler would replace the two roundings of PyTorch's operators by one
    if compiling or torch._C._get_tracing_state() is not None:
        return x.copy_(torch.ops.posenc.add(x, tensor, start, x_scale, text_of(specification)))
    scale = kernel.rounded(tensors.DTYPES[x.dtype], x_scale)
    if not math.isfinite(scale):
        raise tensors.scale_error(x_scale, x.dtype)
    if tensor is None:
        values = _encode_operators.encode_rows(start, n, specification, x.dtype, x.device)
    else:
        checks.check_broadcast(tuple(tensor.shape), tuple(x.shape[:-1]))
        values = _encode_operators.encode(tensor, specification, x.dtype, x.device)
    return (x if scale == 1 else x.mul_(scale)).add_(values)
