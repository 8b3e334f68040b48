"""Functions that return encodings or positions as tensors, and the operators posenc::encode and posenc::add.

The operators take an `Encoding` as text, so that an exported graph is complete.  Eager calls do not use them.
posenc::encode also takes a `Rotary`, and returns the cosines of all pairs, followed by their sines.
"""

import warnings
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, SupportsFloat, SupportsIndex, Unpack

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

import posenc
from posenc._arguments import checks
from posenc._arguments.arrays import Positions
from posenc._axes.grid import Shape, Width
from posenc._encoding.encoding import Convention, Encoding, cached_encoding, check_encoding
from posenc._rotary.rotary import Rotary, table_at
from posenc._rotary.scaling import positions_without_length
from posenc.torch import _tensor_arguments as tensors


def encode(
    positions: Positions | Tensor, d_model: SupportsIndex | Encoding | None = None, *,
    dtype: torch.dtype | None = None, out: Tensor | None = None, device: torch.device | str | int | None = None,
    **convention: Unpack[Convention],
) -> Tensor:
    """Return sinusoidal positional encodings as a tensor, with the same bits as `posenc.encode`.

    Parameters
    ----------
    positions : int, range, Tensor or array_like
        As for `posenc.encode`, or a tensor of any shape and any real dtype.
    d_model : int or posenc.Encoding, optional
        As in `posenc.encode`.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16; by default that of `out`, else float32.
    out : Tensor, shape ``positions.shape + (d_model,)``, optional
        The tensor to write to, on any device; its last dimension must be contiguous.
    device : torch.device, optional
        By default, that of `out` or of `positions` if they are tensors, else torch's default device.  Values
        are computed on the CPU.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    Tensor, shape ``positions.shape + (d_model,)``
        `out`, or a new tensor.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    RuntimeError
        If a keyword of the convention requires grad or, while gradients are recorded, `positions` does,
        because encodings are not differentiable with respect to them; or if `out` is a leaf that requires
        grad.

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
    device = device_of(positions if out is None else out) if device is None else torch.device(device)
    if dtype is None:
        dtype = out.dtype if isinstance(out, Tensor) else torch.float32
    tensors.check_dtype("dtype of the result is", dtype)
    encoding = encoding_of(d_model, convention)
    if out is None:
        return encodings_at(positions, encoding, dtype, device)
    tensors.check_out(out, dtype, device)
    if tensors.is_direct(positions, out):
        rows = tensors.array_of_positions(positions, device)
        encoding.encode(rows, dtype=tensors.DTYPES[dtype], out=tensors.array_of(out))
        torch.autograd.graph.increment_version(out)
        return out
    values = encodings_at(positions, encoding, dtype, device)
    tensors.check_out(out, dtype, device, values.shape)
    return out.copy_(values)


def add_to(
    x: Tensor, positions: Positions | Tensor | None = None, *, encoding: Encoding | None = None,
    x_scale: SupportsFloat = 1.0, out: Tensor | None = None, **convention: Unpack[Convention],
) -> Tensor:
    """Add encodings to embeddings in place, with the same bits as `posenc.add_to`.

    Differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, d_model)
        The embeddings, which are overwritten unless `out` is given.  They must be on the CPU, have dtype
        float32, float64, float16 or bfloat16, and be contiguous in the last dimension.
    positions : int, range, Tensor or array_like, optional
        As for `posenc.add_to`, or a tensor that meets the same conditions.
    encoding : posenc.Encoding, optional
        An encoding to use instead of the keywords of a convention.
    x_scale : float, optional
        The factor by which x is multiplied, as in `posenc.add_to`.
    out : Tensor, optional
        The tensor to write to instead of x, with the shape, dtype and device of x.  A table of the encodings
        is computed first.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    Tensor
        The tensor `x` itself, or `out`.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        If `x_scale` or a keyword of the convention requires grad or, while gradients are recorded,
        `positions` does; or if `x` or `out` requires grad and autograd forbids overwriting it, as for a leaf.

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
    check_encoding(encoding)
    tensors.check_x(x, None if encoding is None else encoding.d_model, elsewhere="PositionalEncoding")
    if out is not None:
        tensors.check_out(out, x.dtype, x.device, x.shape)
    specification = encoding_of(x.shape[-1] if encoding is None else encoding, convention)
    factor = tensors.real("x_scale", x_scale)
    if out is None and tensors.is_direct(x, positions):
        array = tensors.array_of_positions(positions, x.device)
        specification.add_to(tensors.array_of(x), array, x_scale=factor)
        torch.autograd.graph.increment_version(x)
        return x
    positions = x.shape[-2] if positions is None else positions
    # a compiler would replace the two roundings of PyTorch's operators by one
    if torch.compiler.is_compiling() or tensors.is_tracing():
        rows = tensors.tensor_of_positions(positions, x.device)
        total = torch.ops.posenc.add(x, rows, factor, tensors.text_of(specification))
        return (x if out is None else out).copy_(total)
    scale = tensors.rounded_scale(factor, x.dtype)
    values = encodings_at(positions, specification, x.dtype, x.device)
    checks.check_broadcast(tuple(values.shape[:-1]), tuple(x.shape[:-1]))
    result = x if out is None else out.copy_(x)
    return (result if scale == 1 else result.mul_(scale)).add_(values)


def positions_from_mask(mask: Tensor | ArrayLike, **options: Any) -> Tensor:
    """Compute the positions of padded sequences, as `posenc.positions_from_mask`, on the mask's device.

    Parameters
    ----------
    mask : Tensor or array_like, shape (..., n)
        True or 1 at tokens, False or 0 at padding, of any real dtype.  The positions are computed on the CPU.
    **options
        ``padding_idx``, the position given to all padding, by default -1, and ``start``, the position of the
        first token of each sequence, by default ``padding_idx + 1``.

    Returns
    -------
    Tensor of int64, shape (..., n)
        The position of each token, and `padding_idx` at padding.  Pass the same `padding_idx` to `add_to` or
        `PositionalEncoding`, even -1; otherwise, padding gets the encoding of this position.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example a mask that contains a number other than 0 and
        1.

    See Also
    --------
    posenc.positions_from_mask : Return an array.
    PositionalEncoding : Accepts the positions.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> posenc.torch.positions_from_mask(torch.tensor([[1, 1, 1], [0, 1, 1]]))
    tensor([[ 0,  1,  2],
            [-1,  0,  1]])
    """
    return _on_device(device_of(mask), posenc.positions_from_mask, mask=mask, **options)


def positions_from_lengths(lengths: Tensor | ArrayLike, **options: Any) -> Tensor:
    """Compute positions of packed sequences, as `posenc.positions_from_lengths`, on the lengths' device.

    Parameters
    ----------
    lengths : Tensor or array_like of int, shape (sequences,)
        The number of tokens in each sequence.  For FlashAttention's ``cu_seqlens``, pass
        ``cu_seqlens.diff()``.  The positions are computed on the CPU.
    **options
        ``start``, the position of the first token of each sequence, by default 0.

    Returns
    -------
    Tensor of int64, shape (sum(lengths),)
        The position of each token within its sequence.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    posenc.positions_from_lengths : Return an array.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> posenc.torch.positions_from_lengths(torch.tensor([0, 3, 5]).diff())
    tensor([0, 1, 2, 0, 1])
    """
    return _on_device(device_of(lengths), posenc.positions_from_lengths, lengths=lengths, **options)


def grid(
    shape: Shape, d_model: Width, *, dtype: torch.dtype | None = None,
    device: torch.device | str | int | None = None, **options: Any,
) -> Tensor:
    """Return encodings of the cells of a grid as a tensor, with the same bits as `posenc.grid`.

    Parameters
    ----------
    shape : int or sequence
        The size of each axis, or its coordinates, as for `posenc.grid`.
    d_model : int, Encoding or sequence of Encoding
        The number of columns; or encodings, as for `posenc.grid`.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16; by default float32.
    device : torch.device, optional
        By default, torch's default device.  Values are computed on the CPU.
    **options
        The other keywords of `posenc.grid`, except `out`.

    Returns
    -------
    Tensor
        The encodings, in the shape that `posenc.grid` returns.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    RuntimeError
        If an argument requires grad or has a tangent.

    See Also
    --------
    posenc.grid : Return the encodings as an array; the documentation of all keywords.

    Examples
    --------
    >>> import posenc.torch
    >>> posenc.torch.grid((14, 14), 768, layout="halves", extra_tokens=1).shape
    torch.Size([197, 768])
    """
    device = device_of() if device is None else torch.device(device)
    return _on_device(device, posenc.grid, dtype=dtype, shape=shape, d_model=d_model, **options)


def points(
    coordinates: Tensor | ArrayLike, d_model: Width, *, dtype: torch.dtype | None = None, **options: Any
) -> Tensor:
    """Return sinusoidal positional encodings of points as a tensor, with the same bits as `posenc.points`.

    Parameters
    ----------
    coordinates : Tensor or array_like, shape (..., axes)
        The coordinates of each point.  The result is on their device; values are computed on the CPU.
    d_model : int, Encoding or sequence of Encoding
        The number of columns; or encodings, as for `posenc.grid`.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16; by default float32.
    **options
        The other keywords of `posenc.points`, except `out`.

    Returns
    -------
    Tensor, shape ``coordinates.shape[:-1] + (d_model,)``
        The encodings.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.
    RuntimeError
        If a keyword requires grad or, while gradients are recorded, `coordinates` does, because encodings are
        not differentiable with respect to them.

    See Also
    --------
    posenc.points : Return the encodings as an array; the documentation of all keywords.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> posenc.torch.points(torch.rand(1024, 64, 3), 60).shape
    torch.Size([1024, 64, 60])
    """
    array = tensors.array_of_positions(coordinates, torch.device("cpu"), "coordinates")
    device = device_of(coordinates)
    return _on_device(device, posenc.points, dtype=dtype, coordinates=array, d_model=d_model, **options)


def device_of(value: Any = None) -> torch.device:
    """Return the device of a tensor; for any other value, torch's default device."""
    return value.device if isinstance(value, Tensor) else torch.empty(0).device


@torch.compiler.disable
def _on_device(
    device: torch.device, function: Callable[..., Any], /, *, dtype: Any = None, **arguments: Any
) -> Tensor:
    """Return the result of a function of posenc, whose arguments may be tensors, on a device."""
    if "out" in arguments:
        raise TypeError("unexpected keyword argument 'out'; the result is a new tensor")
    if dtype is not None:
        tensors.check_dtype("dtype is", dtype)
        arguments["dtype"] = tensors.DTYPES[dtype]
    constants = {name: tensors.constant(name, value) for name, value in arguments.items()}
    return tensors.tensor_of(function(**constants), dtype).to(device)


# ---- arguments: an Encoding or, in compiled code, its text -------------------------------------------------


def encoding_of(d_model: Any, convention: Mapping[str, Any]) -> Any:
    """Return the Encoding that a function's arguments specify; in compiled code, return its text."""
    constants = {name: tensors.constant(name, value) for name, value in convention.items()}
    function = _text_of_arguments if torch.compiler.is_compiling() else cached_encoding
    return function(tensors.constant("d_model", d_model), constants)


@torch.compiler.assume_constant_result
def _text_of_arguments(d_model: Any, convention: Mapping[str, Any]) -> str:
    return tensors.text_of(torch.compiler.disable(cached_encoding)(d_model, convention))


# ---- calls of the kernel, or of an operator if necessary ---------------------------------------------------


def encodings_at(positions: Any, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return the encodings of an Encoding, or the cosines and sines of a Rotary."""
    if tensors.is_direct(positions):
        return _computed(positions, encoding, dtype, device)
    # it would record lengths as constants
    if isinstance(encoding, Encoding) and not torch.compiler.is_compiling() and tensors.is_tracing():
        raise RuntimeError("TorchScript cannot encode any length; use torch.export, or max_len= of the module")
    rows = tensors.tensor_of_positions(positions, device)
    return torch.ops.posenc.encode(rows, tensors.text_of(encoding), dtype, device)


def _computed(positions: Any, encoding: Encoding | Rotary, dtype: torch.dtype, device: torch.device) -> Tensor:
    rows = tensors.array_of_positions(positions, device)
    warn_of_length(encoding, rows)
    return encodings_on_cpu(rows, encoding, dtype).to(device)


def encodings_on_cpu(
    positions: Any, encoding: Encoding | Rotary, dtype: torch.dtype, threads: int | None = None
) -> Tensor:
    function = encoding.encode if isinstance(encoding, Encoding) else partial(table_at, encoding)
    return tensors.tensor_of(function(positions, dtype=tensors.DTYPES[dtype], threads=threads), dtype)


def width_of(encoding: Encoding | Rotary) -> int:
    return encoding.d_model if isinstance(encoding, Encoding) else encoding.rotary_dim


def warn_of_length(specification: Encoding | Rotary, positions: Any) -> None:
    """Warn if a position needs the length of the sequences."""
    limit = positions_without_length(specification.scaling) if isinstance(specification, Rotary) else None
    if limit is not None and np.max(positions, initial=-1) >= limit:
        warnings.warn(          # by default, Python shows each text only once
            f"positions has values of {limit} or more, but the frequencies are for at most {limit} positions, "
            "because length is None; pass it to RotaryEmbedding, or set it in the scaling of Rotary", stacklevel=2)


# ---- operators ---------------------------------------------------------------------------------------------


@torch.library.custom_op("posenc::encode", mutates_args=())
def _encode(positions: Tensor, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "meta":
        return _empty(positions, encoding, dtype, device)
    return _computed(positions, tensors.specification_of(encoding), dtype, device)


@_encode.register_fake
def _empty(positions: Tensor, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    specification = tensors.specification_of(encoding)
    shape = positions.shape[getattr(specification, "axes", None) is not None :]
    return torch.empty((*shape, width_of(specification)), dtype=dtype, device=device)


@torch.library.custom_op("posenc::add", mutates_args=())
def _add(x: Tensor, positions: Tensor, x_scale: float, encoding: str) -> Tensor:
    out, array = tensors.dense_like(x).copy_(x), tensors.array_of_positions(positions, x.device)
    tensors.specification_of(encoding).add_to(tensors.array_of(out), array, x_scale=x_scale)
    return out


_add.register_fake(lambda x, *_: tensors.dense_like(x))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.x_scale = inputs[2]


def _backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    # The kernels multiply by x_scale rounded to the dtype of x, so the derivative is the rounded x_scale.
    return grad * tensors.rounded_scale(context.x_scale, grad.dtype), None, None, None


_add.register_autograd(_backward, setup_context=_save)
