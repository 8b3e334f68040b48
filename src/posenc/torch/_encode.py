"""The functions encode and add_to, and their operators posenc::encode and posenc::add.

The operators take an `Encoding` as text, so that an exported graph is complete.  Eager calls do not use them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, SupportsFloat, SupportsIndex, Unpack

import numpy as np
import torch
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_scalar

from posenc._arguments import checks
from posenc._arguments.arrays import Positions
from posenc._arguments.specification import Convention
from posenc._core import kernel
from posenc._encoding.encoding import Encoding, cached_encoding, check_encoding
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._tensor_arguments import specification_of, text_of


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
    return encodings_at(positions, encoding_of(d_model, convention), dtype, torch.device(device))


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
        values = encodings_of_rows(start, n, specification, x.dtype, x.device)
    else:
        checks.check_broadcast(tuple(tensor.shape), tuple(x.shape[:-1]))
        values = encodings_at(tensor, specification, x.dtype, x.device)
    return (x if scale == 1 else x.mul_(scale)).add_(values)


# ---- arguments: an Encoding or, in compiled code, its text --------------------------------------------------------------


def encoding_of(d_model: Any, convention: Mapping[str, Any]) -> Any:
    """Return the Encoding that a function's arguments specify; in compiled code, return its text."""
    if torch.compiler.is_compiling():
        return _text_of_arguments(_specialized(d_model), {name: _specialized(value) for name, value in convention.items()})
    constants = {name: tensors.constant(name, value) for name, value in convention.items()}
    return cached_encoding(tensors.constant("d_model", d_model), constants)


@torch.compiler.assume_constant_result
def _text_of_arguments(d_model: Any, convention: Mapping[str, Any]) -> str:
    return text_of(torch.compiler.disable(cached_encoding)(d_model, convention))


def _specialized(value: Any) -> Any:
    """Convert symbolic numbers of torch.compile to constants, so that a call with other numbers is compiled again."""
    if isinstance(value, (list, tuple)):
        return [_specialized(number) for number in value]
    return guard_scalar(value) if type(value) in (int, float) else value


# ---- calls of the kernel, or of an operator if necessary ----------------------------------------------------------------


def encodings_at(positions: Any, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if tensors.is_eager() and tensors.is_plain(positions):
        return encodings_on_cpu(tensors.positions_array(positions, device), encoding, dtype).to(device)
    tensor, start, n = tensors.tensor_or_rows(positions, device)
    result: Tensor = torch.ops.posenc.encode(tensor, start, n, text_of(encoding), dtype, device)
    return result


def encodings_of_rows(start: int, n: int, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if tensors.is_eager():
        return encodings_on_cpu(range(start, start + n), encoding, dtype).to(device)
    result: Tensor = torch.ops.posenc.encode(None, start, n, text_of(encoding), dtype, device)
    return result


def encodings_on_cpu(positions: Any, encoding: Encoding, dtype: torch.dtype, threads: SupportsIndex | None = None) -> Tensor:
    array = encoding.encode(positions, dtype=tensors.DTYPES[dtype], threads=threads)
    return torch.from_numpy(array.view(np.uint16) if dtype == torch.bfloat16 else array).view(dtype)


# ---- operators ----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("posenc::encode", mutates_args=())
def _encode(positions: Tensor | None, start: int, n: int, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "meta":
        return _empty(positions, start, n, encoding, dtype, device)
    rows = range(start, start + n) if positions is None else tensors.positions_array(positions, device)
    return encodings_on_cpu(rows, specification_of(Encoding, encoding), dtype).to(device)


@_encode.register_fake
def _empty(positions: Tensor | None, start: int, n: int, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = (n,) if positions is None else positions.shape
    return torch.empty((*shape, specification_of(Encoding, encoding).d_model), dtype=dtype, device=device)


@torch.library.custom_op("posenc::add", mutates_args=())
def _add(x: Tensor, positions: Tensor | None, start: int, x_scale: float, encoding: str) -> Tensor:
    out = tensors.dense_like(x).copy_(x)
    rows = range(start, start + x.shape[-2]) if positions is None else tensors.positions_array(positions, x.device)
    specification_of(Encoding, encoding).add_to(tensors.array_of(out), rows, x_scale=x_scale)
    return out


@_add.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return tensors.dense_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.x_scale = inputs[3]


def _backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    # The kernels multiply by x_scale rounded to the dtype of x, so the derivative is the rounded x_scale.
    return grad * kernel.rounded(tensors.DTYPES[grad.dtype], context.x_scale), None, None, None, None


_add.register_autograd(_backward, setup_context=_save)
