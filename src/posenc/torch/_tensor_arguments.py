"""Checks and conversions of arguments: tensors, positions, and specifications as text."""

import functools
import json
import math
from collections.abc import Collection
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import guard_scalar

from posenc import Encoding, Rotary
from posenc._arguments import arrays, checks
from posenc._core import kernel

DTYPES: dict[torch.dtype, str] = {getattr(torch, name): name for name in arrays.DTYPES}
INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}

# ---- tensors as arrays and numbers -------------------------------------------------------------------------


def constant(name: str, value: Any) -> Any:
    """Return tensors, also those in lists, as numbers or arrays, and any other value unchanged.

    Raise an error if a tensor requires grad, because the result would not be trained.  Numbers that are
    symbolic in torch.compile also become constants, so that a call with other numbers is compiled again.
    """
    if isinstance(value, (list, tuple)):
        return tuple(constant(name, item) for item in value)
    is_compiling = torch.compiler.is_compiling()
    if not isinstance(value, Tensor):
        return guard_scalar(value) if is_compiling and type(value) in (int, float) else value
    if value.requires_grad or is_dual(value):
        raise tracked_error(name)
    if is_compiling:
        return value                    # checks that torch.compile does not trace convert it
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device, expected values")
    return array_on_cpu(value) if value.ndim else value.item()


def tracked_error(name: str) -> RuntimeError:
    return RuntimeError(f"{name} requires grad or has a tangent, expected a constant such as {name}.detach()")


def integer(name: str, value: Any, lowest: int) -> int:
    return checks.integer(name, constant(name, value), lowest)


def real(name: str, value: Any) -> float:
    # torch.compile cannot trace checks.real; the kernels check an int or a float
    if torch.compiler.is_compiling() and type(value) in (int, float):
        return value
    return checks.real(name, constant(name, value))


def array_of(tensor: Tensor) -> NDArray[Any]:
    """Return an array that shares the tensor's memory.

    Bfloat16 needs ml_dtypes, because NumPy has no bfloat16.
    """
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    with checks.importing_for("bfloat16"):
        import ml_dtypes
    return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)


def array_on_cpu(tensor: Tensor) -> NDArray[Any]:
    return array_of(tensor.detach().cpu().resolve_neg())


def tensor_of(array: NDArray[Any], dtype: torch.dtype | None = None) -> Tensor:
    """Return a tensor that shares the array's memory, by default with the array's dtype."""
    if dtype == torch.bfloat16:         # NumPy has no bfloat16
        return torch.from_numpy(array.view(np.uint16)).view(dtype)
    return torch.from_numpy(array)


def with_contiguous_last(x: Tensor) -> Tensor:
    return x if x.shape[-1] <= 1 or x.stride(-1) == 1 else x.contiguous()


def dense_like(x: Tensor) -> Tensor:
    """Return a new dense tensor in the memory order of x.

    If the last dimension of x is not contiguous, in row-major order.
    """
    out = torch.empty_like(x)
    return out if out.stride(-1) == 1 else torch.empty(x.shape, dtype=x.dtype, device=x.device)


# ---- direct calls of the kernels ---------------------------------------------------------------------------
#
# For a short row, a call through an operator takes several times as long as a direct call.


def is_recording() -> bool:
    """Return whether a compiler, tracer, mode or transform intercepts operators, so that tensors may have no
    values.
    """
    # the dispatch stack holds FakeTensorMode and make_fx, functorch is torch.func
    return (torch.compiler.is_compiling() or is_tracing() or torch._C._len_torch_dispatch_stack() > 0
            or torch._C._are_functorch_transforms_active())


def is_tracing() -> bool:
    """Return whether torch.jit.trace or the exporter of TorchScript to ONNX records operators."""
    return torch._C._get_tracing_state() is not None


def is_eager() -> bool:
    """Return whether kernels can be called directly, because nothing intercepts operators."""
    # the function stack holds TorchFunctionMode and torch.device as a context manager
    return not (is_recording() or torch._C._len_torch_function_stack() or forward_ad._current_level >= 0)


def is_direct(*values: Any) -> bool:
    """Return whether a kernel can be called with these values."""
    return is_eager() and all(map(_is_plain, values))


def _is_plain(value: Any) -> bool:
    """Return whether a value is not a tensor, or is a plain CPU tensor that autograd is not tracking."""
    if not isinstance(value, Tensor):
        return True
    # a subclass such as DTensor, and functional tensors, may have no memory; if negation is lazy, stored
    # signs are opposite
    is_special = type(value) is not Tensor or value.is_neg() or torch._is_functional_tensor(value)
    return not is_special and value.is_cpu and not value.requires_grad


def is_dual(tensor: Tensor) -> bool:
    """Return whether the tensor has a tangent for forward-mode differentiation."""
    in_level = not torch.compiler.is_compiling() and forward_ad._current_level >= 0
    return in_level and forward_ad.unpack_dual(tensor).tangent is not None


# ---- positions ---------------------------------------------------------------------------------------------


def array_of_positions(positions: Any, device: torch.device, name: str = "positions") -> Any:
    """Return positions that are a tensor as an array, and other positions unchanged."""
    if isinstance(positions, Tensor):
        check_positions(positions, device, name)
        return array_on_cpu(positions)
    return positions


def tensor_of_positions(positions: Any, device: torch.device, name: str = "positions") -> Tensor:
    """Return positions for encodings on `device` as a tensor, after checks."""
    if isinstance(positions, Tensor):
        check_positions(positions, device, name)
        return positions
    # torch.compile cannot trace positions_of for a symbolic integer
    is_count = type(positions) is int and 0 <= positions < checks.BEYOND
    positions = range(positions) if is_count else checks.positions_of(positions, name=name)
    if not isinstance(positions, range):
        return _tensor_with_copy(positions)
    indices = torch.arange(len(positions), device="cpu")
    return indices * _wrapped(positions.step) + _wrapped(positions.start)


def _wrapped(number: int) -> int:
    """Return the int64 that equals a number modulo 2**64; products and sums of int64 wrap around, too."""
    return number if checks.LOWEST <= number < checks.BEYOND else (number + 2**63) % 2**64 - 2**63


@torch.compiler.disable
def _tensor_with_copy(array: NDArray[Any]) -> Tensor:
    return torch.from_numpy(array.copy())


# ---- checks ------------------------------------------------------------------------------------------------


def check_dtype(subject: str, dtype: torch.dtype, dtypes: Collection[torch.dtype] = DTYPES) -> None:
    if not isinstance(dtype, torch.dtype) or dtype not in dtypes:
        raise TypeError(f"{subject} {checks.shown(dtype)}, expected one of {', '.join(map(str, dtypes))}")


def check_dense(name: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} is of type {type(tensor).__name__}, expected a torch.Tensor")
    if tensor.is_nested or tensor.layout is not torch.strided:
        raise TypeError(f"{name} is nested or has layout {tensor.layout}, expected dense, as {name}.values()")


def check_x(
    x: Tensor, width: int | None = None, dtypes: Collection[torch.dtype] = DTYPES, elsewhere: str = ""
) -> None:
    """Check x; `elsewhere` names a function for other devices if x must be on the CPU."""
    check_dense("x", x)
    check_dtype("x has dtype", x.dtype, dtypes)
    if x.ndim < 2 or width is not None and x.shape[-1] != width:
        columns = "d_model" if width is None else width
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., n, {columns})")
    if elsewhere and not (x.is_cpu or x.is_meta):
        raise ValueError(f"x is on {x.device}, expected the CPU; {elsewhere} supports every device")


def check_out(out: Tensor, dtype: torch.dtype, device: torch.device, shape: Any = None) -> None:
    """Check that encodings with a dtype and device and, unless it is None, a shape can be written to `out`.
    """
    check_dense("out", out)
    check_dtype("out has dtype", out.dtype, [dtype])
    if out.device != device or shape not in (None, out.shape):
        expected = device if shape is None else f"{tuple(shape)} on {device}"
        raise ValueError(f"out has shape {tuple(out.shape)} and is on {out.device}, expected {expected}")


def check_positions(positions: Tensor, device: torch.device, name: str = "positions") -> None:
    """Check positions for encodings on `device`."""
    if positions.dtype not in DTYPES and positions.dtype not in INTEGERS:
        raise TypeError(f"{name} has dtype {positions.dtype}, expected integers or reals of at most 64 bits")
    check_dense(name, positions)
    if positions.is_meta and device.type != "meta":
        raise ValueError(f"{name} is on the meta device, expected values for a result on {device}")
    if positions.requires_grad and torch.is_grad_enabled() or is_dual(positions):
        raise tracked_error(name)


@torch.compiler.assume_constant_result
def rounded_scale(x_scale: float, dtype: torch.dtype) -> float:
    """Return x_scale rounded to the dtype of x, as the kernels round it."""
    scale = kernel.rounded(DTYPES[dtype], x_scale)
    if not math.isfinite(scale):
        raise ValueError(f"x_scale is {x_scale}, expected a number within the range of {DTYPES[dtype]}")
    return scale


# ---- specifications in graphs ------------------------------------------------------------------------------


@torch.compiler.assume_constant_result
def text_of(specification: Encoding | Rotary | str) -> str:
    """Return a specification as JSON, in which every float64 is exact; if it is text already, return it."""
    return specification if isinstance(specification, str) else _cached_text(specification)


@functools.lru_cache(maxsize=16)
def _cached_text(specification: Encoding | Rotary) -> str:
    return json.dumps(specification.to_dict())


@functools.lru_cache(maxsize=16)
def specification_of(text: str) -> Any:
    document = json.loads(text)
    return (Rotary if "rotary" in document else Encoding).from_dict(document)
