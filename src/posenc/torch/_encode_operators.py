"""The operators posenc::encode and posenc::add, and calls that use them only if necessary.

The operators take an `Encoding` as text, so that an exported graph is complete.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from posenc import Encoding
from posenc._core import kernel
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._graph_text import specification_of, text_of

# ---- calls; `encoding` is an Encoding or, in compiled code, its text ----------------------------------------------------


def encode(positions: Any, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if tensors.is_eager() and tensors.is_plain(positions):
        return values(tensors.positions_array(positions, device), encoding, dtype).to(device)
    tensor, start, n = tensors.tensor_or_rows(positions, device)
    result: Tensor = torch.ops.posenc.encode(tensor, start, n, text_of(encoding), dtype, device)
    return result


def encode_rows(start: int, n: int, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if tensors.is_eager():
        return values(range(start, start + n), encoding, dtype).to(device)
    result: Tensor = torch.ops.posenc.encode(None, start, n, text_of(encoding), dtype, device)
    return result


def values(positions: Any, encoding: Encoding, dtype: torch.dtype, threads: SupportsIndex | None = None) -> Tensor:
    array = encoding.encode(positions, dtype=tensors.DTYPES[dtype], threads=threads)
    return torch.from_numpy(array.view(np.uint16) if dtype == torch.bfloat16 else array).view(dtype)


# ---- operators ----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("posenc::encode", mutates_args=())
def _encode(positions: Tensor | None, start: int, n: int, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "meta":
        return _empty(positions, start, n, encoding, dtype, device)
    rows = range(start, start + n) if positions is None else tensors.positions_array(positions, device)
    return values(rows, specification_of(encoding), dtype).to(device)


@_encode.register_fake
def _empty(positions: Tensor | None, start: int, n: int, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    shape = (n,) if positions is None else positions.shape
    return torch.empty((*shape, specification_of(encoding).d_model), dtype=dtype, device=device)


@torch.library.custom_op("posenc::add", mutates_args=())
def _add(x: Tensor, positions: Tensor | None, start: int, x_scale: float, encoding: str) -> Tensor:
    out = tensors.dense_like(x).copy_(x)
    rows = range(start, start + x.shape[-2]) if positions is None else tensors.positions_array(positions, x.device)
    specification_of(encoding).add_to(tensors.array_of(out), rows, x_scale=x_scale)
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
