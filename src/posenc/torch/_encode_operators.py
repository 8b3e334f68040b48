"""The operators posenc::encode, posenc::encode_at and posenc::add, and calls that use them only if necessary.

The operators take an `Encoding` as text, so that an exported graph is complete.
"""

from __future__ import annotations

from typing import Any, NoReturn, SupportsIndex

import numpy as np
import torch
from torch import Tensor

from posenc import Encoding
from posenc._arguments import checks
from posenc._core import kernel
from posenc.torch._graph_text import specification_of, text_of
from posenc.torch._tensor_arguments import (
    DTYPES,
    NOT_DIFFERENTIABLE,
    array_of,
    check_not_meta,
    check_positions,
    dense_like,
    is_eager,
    is_plain,
    positions_array,
    positions_tensor,
)

# ---- calls; `encoding` is an Encoding or, in compiled code, its text ----------------------------------------------------


def encode(positions: Any, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if isinstance(positions, Tensor):
        check_positions(positions, device)
    if is_eager() and is_plain(positions):
        return values(positions_array(positions), encoding, dtype).to(device)
    if not isinstance(positions, Tensor):
        if type(positions) is int and 0 <= positions < checks.BEYOND:       # torch.compile traces this branch
            return encode_rows(0, 1, positions, encoding, dtype, device)
        positions = checks.range_or_array(positions)
        if isinstance(positions, range):
            checks.check_domain(positions, 0)
            n = checks.length(positions)
            # the start of an empty range and the step of a range with one position may exceed 64 bits
            start, step = positions[0] if n else 0, positions.step if n > 1 else 1
            if checks.LOWEST <= step < checks.BEYOND:
                return encode_rows(start, step, n, encoding, dtype, device)
        positions = positions_tensor(positions)
    result: Tensor = torch.ops.posenc.encode_at(positions, text_of(encoding), dtype)
    return result.to(device)


def encode_rows(start: int, step: int, n: int, encoding: Any, dtype: torch.dtype, device: torch.device) -> Tensor:
    if is_eager():
        return values(range(start, start + step * n, step), encoding, dtype).to(device)
    result: Tensor = torch.ops.posenc.encode(start, step, n, text_of(encoding), dtype, device)
    return result


def values(positions: Any, encoding: Encoding, dtype: torch.dtype, threads: SupportsIndex | None = None) -> Tensor:
    array = encoding.encode(positions, dtype=DTYPES[dtype], threads=threads)
    return torch.from_numpy(array.view(np.uint16) if dtype == torch.bfloat16 else array).view(dtype)


# ---- operators ----------------------------------------------------------------------------------------------------------


@torch.library.custom_op("posenc::encode", mutates_args=())
def _encode(start: int, step: int, n: int, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    if device.type == "meta":
        return _empty_rows(start, step, n, encoding, dtype, device)
    return values(range(start, start + step * n, step), specification_of(encoding), dtype).to(device)


@_encode.register_fake
def _empty_rows(start: int, step: int, n: int, encoding: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty((n, specification_of(encoding).d_model), dtype=dtype, device=device)


@torch.library.custom_op("posenc::encode_at", mutates_args=())
def _encode_at(positions: Tensor, encoding: str, dtype: torch.dtype) -> Tensor:
    return values(positions_array(positions), specification_of(encoding), dtype).to(positions.device)


@_encode_at.register_fake
def _(positions: Tensor, encoding: str, dtype: torch.dtype) -> Tensor:
    return positions.new_empty((*positions.shape, specification_of(encoding).d_model), dtype=dtype)


@_encode_at.register_autograd
def _(context: Any, grad: Tensor) -> NoReturn:
    raise RuntimeError(f"positions requires grad, but {NOT_DIFFERENTIABLE}")


@torch.library.custom_op("posenc::add", mutates_args=())
def _add(x: Tensor, positions: Tensor | None, start: int, x_scale: float, encoding: str) -> Tensor:
    out = dense_like(x).copy_(x)
    rows = range(start, start + x.shape[-2]) if positions is None else positions_array(positions)
    specification_of(encoding).add_to(array_of(out), rows, x_scale=x_scale)
    return out


@_add.register_fake
def _(x: Tensor, positions: Tensor | None, start: int, x_scale: float, encoding: str) -> Tensor:
    if positions is not None:
        check_not_meta(positions, x.device)
    return dense_like(x)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.x_scale = inputs[3]


def _backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    # The kernels multiply by x_scale rounded to the dtype of x, so the derivative is the rounded x_scale.
    return grad * kernel.rounded(DTYPES[grad.dtype], context.x_scale), None, None, None, None


_add.register_autograd(_backward, setup_context=_save)
