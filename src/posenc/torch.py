"""Encodings as tensors: functions, modules, a dataset, and the operators beneath them.

Imported only when named; needs ``pip install 'posenc[torch]'``.

`encode` and `add_to` are those of `posenc`, for tensors.  `PositionalEncoding` adds encodings onto embeddings,
`PositionalTable` returns them, `ChunkDataset` streams them through a ``DataLoader``.  The operators are
``posenc::encode``, ``posenc::encode_at`` and the in-place ``posenc::add_``; their argument `convention` is text, so that
an exported graph says by itself what it computes.
"""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn, SupportsFloat, SupportsIndex, Unpack

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.fx.experimental.symbolic_shapes import guard_scalar
from torch.utils.data import IterableDataset, get_worker_info

import posenc
from posenc import _arguments, _kernel
from posenc._convention import CHECKS
from posenc._encoding import CACHED, CHUNK_BYTES, changes_of, keywords_of, scalars
from posenc._types import Convention, Positions

__all__ = ["ChunkDataset", "PositionalEncoding", "PositionalTable", "add_to", "encode"]

DTYPES = {torch.float64: "float64", torch.float32: "float32", torch.float16: "float16", torch.bfloat16: "bfloat16"}
TABLE_BYTES = 1 << 26               # a table grows on demand up to here; rows beyond are made on request
STORED = ("pe", "pos_encoding")     # what the tutorials call the table in a state_dict
COMPARED_ROWS = 4096                # of a stored table
INTEGERS = {getattr(torch, f"{sign}int{bits}") for sign in ("", "u") for bits in (8, 16, 32, 64)}
NOT_DIFFERENTIATED = "expected positions without: encodings are not differentiated, positions.detach() says so"


# ---- tensors and conventions ------------------------------------------------------------------------------------------


def _constant(name: str, value: Any) -> Any:
    """A tensor as the number or list that it holds, for the checks of arguments; none that is to be learned."""
    if not isinstance(value, Tensor):
        return value
    if value.requires_grad or not torch.compiler.is_compiling() and _is_dual(value):
        raise RuntimeError(f"{name} requires grad, expected a constant such as {name}.detach(); "
                           "PositionalEncoding(learned_scale=) learns a factor of the encodings")
    if value.is_meta:
        raise ValueError(f"{name} is on the meta device, expected a tensor with values")
    return value.tolist()


def _integer(name: str, value: Any, lowest: int) -> int:
    return _arguments.integer(name, _constant(name, value), lowest)


def _real(name: str, value: Any) -> float:
    return _arguments.real(name, _constant(name, value))


@torch.compiler.assume_constant_result
def _text(convention: Mapping[str, Any]) -> str:
    """A convention as text; Python's JSON writes a float64 so that it is read back exactly."""
    constants = {name: _constant(name, value) for name, value in convention.items()}
    return json.dumps(constants, default=lambda value: np.asarray(value).tolist())


def _specified(d_model: Any, convention: Mapping[str, Any]) -> tuple[int, str]:
    """d_model and the convention as an operator takes them, checked; in a graph the operator checks the convention."""
    if type(d_model) not in (int, torch.SymInt):
        d_model = _integer("d_model", d_model, 0)
    if torch.compiler.is_compiling():
        return d_model, _text({name: _of_this_graph(value) for name, value in convention.items()})
    text_of = _known_text if CACHED.issuperset(map(type, scalars(convention))) else _checked_text
    return d_model, text_of(d_model, **convention)


def _checked_text(d_model: int, /, **convention: Any) -> str:
    for name in convention.keys() - CHECKS.keys():
        raise TypeError(f"got an unexpected keyword argument {name!r}")
    text = _text({name: CHECKS[name](name, _constant(name, value)) for name, value in convention.items()})
    _encoding_of(d_model, text)
    return text


_known_text = functools.lru_cache(maxsize=8, typed=True)(_checked_text)


def _of_this_graph(value: Any) -> Any:
    """Numbers that torch.compile took for variables as constants: the graph is made again for others."""
    if isinstance(value, (list, tuple)):
        return [_of_this_graph(number) for number in value]
    return guard_scalar(value) if type(value) in (int, float) else value


@functools.lru_cache(maxsize=8)
def _encoding_of(d_model: int, convention: str) -> posenc.Encoding:
    """What an operator's text says; the latest are kept."""
    return posenc.Encoding(d_model, **json.loads(convention))


def _array(tensor: Tensor) -> NDArray[Any]:
    """The tensor's memory as an array; bfloat16, which NumPy does not know, by its bits."""
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.dtype != torch.bfloat16:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)


def _name(dtype: torch.dtype, what: str = "dtype is") -> str:
    if dtype not in DTYPES:
        raise TypeError(f"{what} {dtype!r}, expected one of {', '.join(map(str, DTYPES))}")
    return DTYPES[dtype]


def _check_x(x: Tensor, d_model: int | None = None) -> None:
    if not isinstance(x, Tensor):
        raise TypeError(f"x is of type {type(x).__name__}, expected a torch.Tensor")
    _name(x.dtype, "x has dtype")
    if x.ndim < 2 or d_model is not None and x.shape[-1] != d_model:
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., n, {'d_model' if d_model is None else d_model})")


def _beyond(x_scale: float, dtype: torch.dtype) -> ValueError:
    return ValueError(f"x_scale is {x_scale}, expected a number that {DTYPES[dtype]} can hold")


def _check_positions(positions: Tensor, device: torch.device) -> None:
    """Positions of encodings on the device."""
    if not isinstance(positions, Tensor):
        raise TypeError(f"positions is of type {type(positions).__name__}, expected a torch.Tensor")
    if positions.dtype not in DTYPES and positions.dtype not in INTEGERS:
        raise TypeError(f"positions has dtype {positions.dtype}, expected integers or real numbers of at most 64 bits")
    _check_memory(positions, device)
    if positions.requires_grad and torch.is_grad_enabled():
        raise RuntimeError(f"positions requires grad, {NOT_DIFFERENTIATED}")
    if not torch.compiler.is_compiling() and _is_dual(positions):
        raise RuntimeError(f"positions has a tangent, {NOT_DIFFERENTIATED}")


def _check_memory(positions: Tensor, device: torch.device) -> None:
    if positions.is_meta and device.type != "meta":
        raise ValueError(f"positions is on the meta device, expected a tensor with values for {device}")


def _check_broadcast(positions: Tensor, x: Tensor, given: tuple[int, ...]) -> None:
    """Positions, whose shape was `given`, broadcast to x.shape[:-1]."""
    sizes = list(zip(reversed(positions.shape), reversed(x.shape[:-1]), strict=False))
    if positions.ndim >= x.ndim or any(p != 1 and p != size for p, size in sizes):
        raise ValueError(f"positions has shape {tuple(given)}, expected one that broadcasts to {tuple(x.shape[:-1])}")


def _is_dual(tensor: Tensor) -> bool:
    """Whether a derivative is carried along with it, in forward mode."""
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


# ---- without an operator ----------------------------------------------------------------------------------------------
#
# An operator takes tens of times as long as a short row.  Where nobody has to be told of it, the core is called directly.


def _is_eager() -> bool:
    """Whether operators are only computed."""
    return not (
        torch.compiler.is_compiling()                           # a graph has the operator for a node
        or torch._C._get_tracing_state() is not None            # as the graph of torch.jit.trace has
        or torch._C._len_torch_dispatch_stack()                 # modes are told of operators: FakeTensorMode, make_fx
        or torch._C._len_torch_function_stack()                 # and of functions: TorchFunctionMode, torch.device as a context
        or torch._C._are_functorch_transforms_active()          # a tensor may be a batch of them, or have a derivative
        or forward_ad._current_level >= 0                       # or a tangent
    )


def _is_plain(tensor: Tensor) -> bool:
    """Whether its elements are the memory that `Tensor.numpy` shows, and no derivative goes through it."""
    return (
        type(tensor) is Tensor                                  # a subclass may hold others, or none: DTensor, FakeTensor
        and tensor.is_cpu
        and not tensor.requires_grad
        and not tensor.is_neg()                                 # the memory has the other sign
        and not torch._is_functional_tensor(tensor)             # there is no memory
    )


def _encoded(
    start: int, step: int, n: int, d_model: int, convention: str, dtype: torch.dtype, device: torch.device
) -> Tensor:
    encode = _encode if _is_eager() else torch.ops.posenc.encode
    return encode(start, step, n, d_model, convention, dtype, device)


def _encoded_at(positions: Tensor, d_model: int, convention: str, dtype: torch.dtype) -> Tensor:
    encode_at = _encode_at if _is_eager() and _is_plain(positions) else torch.ops.posenc.encode_at
    return encode_at(positions, d_model, convention, dtype)


# ---- operators --------------------------------------------------------------------------------------------------------


def _encode(
    start: int, step: int, n: int, d_model: int, convention: str, dtype: torch.dtype, device: torch.device
) -> Tensor:
    encoding = _encoding_of(d_model, convention)
    out = torch.empty((n, d_model), dtype=dtype, device="meta" if device.type == "meta" else "cpu")
    if not out.is_meta:
        encoding.encode(range(start, start + step * n, step), dtype=_name(dtype), out=_array(out))
    return out.to(device)


_encode_operator = torch.library.custom_op(
    "posenc::encode",
    _encode,
    mutates_args=(),
    schema="(SymInt start, SymInt step, SymInt n, SymInt d_model, str convention, ScalarType dtype, Device device) -> Tensor",
)


@_encode_operator.register_fake
def _(start: int, step: int, n: int, d_model: int, convention: str, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.empty((n, d_model), dtype=dtype, device=device)


def _encode_at(positions: Tensor, d_model: int, convention: str, dtype: torch.dtype) -> Tensor:
    encoding = _encoding_of(d_model, convention)
    out = torch.empty((*positions.shape, d_model), dtype=dtype, device="cpu")
    encoding.encode(_positions_array(positions), dtype=_name(dtype), out=_array(out))
    return out.to(positions.device)


_encode_at_operator = torch.library.custom_op(
    "posenc::encode_at",
    _encode_at,
    mutates_args=(),
    schema="(Tensor positions, SymInt d_model, str convention, ScalarType dtype) -> Tensor",
)


@_encode_at_operator.register_fake
def _(positions: Tensor, d_model: int, convention: str, dtype: torch.dtype) -> Tensor:
    return positions.new_empty((*positions.shape, d_model), dtype=dtype)


@_encode_at_operator.register_autograd
def _(context: Any, grad: Tensor) -> NoReturn:
    raise RuntimeError(f"positions requires grad, {NOT_DIFFERENTIATED}")


def _positions_array(positions: Tensor) -> NDArray[Any]:
    positions = positions.detach().cpu()
    return (positions.double() if positions.dtype == torch.bfloat16 else positions).numpy()


@torch.compiler.disable
def _tensor(positions: range | NDArray[Any]) -> Tensor:
    """Positions as a tensor of int64 or float64 with memory of its own."""
    given = _arguments.positions_of(positions, 0)
    if isinstance(given, range):
        start, step = (number % 2**64 for number in (given.start, given.step))
        given = (np.arange(len(given), dtype=np.uint64) * np.uint64(step) + np.uint64(start)).view(np.int64)
    return torch.from_numpy(np.array(given))


# torch.library.custom_op takes no derivative for an operator that mutates: its parts are registered one by one
torch.library.define("posenc::add_", "(Tensor(a!) x, Tensor? positions, SymInt start, float x_scale, str convention) -> ()")


@torch.library.impl("posenc::add_", "CPU")
def _(x: Tensor, positions: Tensor | None, start: int, x_scale: float, convention: str) -> None:
    where = range(start, start + x.shape[-2]) if positions is None else _positions_array(positions)
    _encoding_of(x.shape[-1], convention).add_to(_array(x), where, x_scale=x_scale)


@torch.library.register_fake("posenc::add_")
def _(x: Tensor, positions: Tensor | None, start: int, x_scale: float, convention: str) -> None:
    if positions is not None:
        _check_memory(positions, x.device)


class _Add(torch.autograd.Function):
    @staticmethod
    def forward(
        context: Any, x: Tensor, positions: Tensor | None, start: int, x_scale: float, convention: str
    ) -> Tensor:
        context.mark_dirty(x)
        context.x_scale = x_scale
        _add_below_autograd(x, positions, start, x_scale, convention)
        return x

    @staticmethod
    def backward(context: Any, grad: Tensor) -> tuple[Tensor, None, None, None, None]:
        return grad * context.x_scale, None, None, None, None


def _add_below_autograd(*arguments: Any) -> None:
    with torch._C._AutoDispatchBelowAutograd():
        torch.ops.posenc.add_(*arguments)


@torch.library.impl("posenc::add_", "Autograd")
def _(x: Tensor, positions: Tensor | None, start: int, x_scale: float, convention: str) -> None:
    if positions is not None:
        _check_positions(positions, x.device)
    if not (x.requires_grad and torch.is_grad_enabled()):
        torch.autograd.graph.increment_version(x)
        _add_below_autograd(x, positions, start, x_scale, convention)
        return
    if x.is_leaf:
        raise RuntimeError("x is a leaf that requires grad, expected one without (or torch.no_grad()): it is written in place")
    # the derivative is that of the numbers that were multiplied
    _Add.apply(x, positions, start, _kernel.rounded(DTYPES[x.dtype], x_scale), convention)


# ---- the functional form ----------------------------------------------------------------------------------------------


def encode(
    positions: Positions | Tensor,
    d_model: SupportsIndex,
    *,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str | int | None = None,
    **convention: Unpack[Convention],
) -> Tensor:
    """Sinusoidal positional encodings as a tensor: the bits of `posenc.encode`.

    Parameters
    ----------
    positions : int, range, Tensor or array_like
        An integer n means ``range(n)``.  A tensor may have any shape and any real dtype.
    d_model : int
        Number of columns.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16.
    device : torch.device, optional
        That of `positions` if they are a tensor, else the default device.  Values are computed on the CPU.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    Tensor, shape ``positions.shape + (d_model,)``
        The encodings, without a derivative.

    Raises
    ------
    TypeError, ValueError
        As `posenc.encode`.
    RuntimeError
        For positions that require grad: encodings are not differentiated.

    See Also
    --------
    PositionalTable : A module that keeps the rows that it made.
    posenc.encode : The same as an array.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> posenc.torch.encode(2, 4, dtype=torch.float64)
    tensor([[0.0000, 1.0000, 0.0000, 1.0000],
            [0.8415, 0.5403, 0.0100, 1.0000]], dtype=torch.float64)
    >>> posenc.torch.encode(torch.tensor([[0.5, 1e9]]), 64).shape
    torch.Size([1, 2, 64])
    """
    _name(dtype)
    d_model, text = _specified(d_model, convention)
    if isinstance(positions, Tensor):
        device = positions.device if device is None else torch.device(device)
        _check_positions(positions, device)
        return _encoded_at(positions, d_model, text, dtype).to(device)
    device = torch.empty(0).device if device is None else torch.device(device)
    if type(positions) is int and 0 <= positions < _arguments.BEYOND:       # what torch.compile can follow
        return _encoded(0, 1, positions, d_model, text, dtype, device)
    positions = _arguments.range_or_array(positions)
    if isinstance(positions, range):
        _arguments.check_domain(positions, 0)
        n = _arguments.length(positions)
        # what a short range does not use may be beyond an operator's integers
        start, step = positions[0] if n else 0, positions.step if n > 1 else 1
        if _arguments.LOWEST <= step < _arguments.BEYOND:
            return _encoded(start, step, n, d_model, text, dtype, device)
    return _encoded_at(_tensor(positions), d_model, text, dtype).to(device)


def add_to(
    x: Tensor,
    positions: Positions | Tensor | None = None,
    *,
    x_scale: SupportsFloat = 1.0,
    **convention: Unpack[Convention],
) -> Tensor:
    """Add encodings onto embeddings in place: the bits of `posenc.add_to`, and the derivative by x.

    Parameters
    ----------
    x : Tensor, shape (..., n, d_model)
        On the CPU, of dtype float32, float64, float16 or bfloat16; columns contiguous.  Overwritten.
    positions : int, range, Tensor or array_like, optional
        A tensor or array broadcasts to ``x.shape[:-1]``, an integer or a range has n positions; by default ``range(n)``.
    x_scale : float, optional
        What x is multiplied by first.
    **convention
        See `posenc.Encoding`.

    Returns
    -------
    Tensor
        The tensor `x` itself.

    Raises
    ------
    TypeError, ValueError
        As `posenc.add_to`.
    RuntimeError
        For a leaf that requires grad, as every operation in place does.

    See Also
    --------
    PositionalEncoding : A module that returns a new tensor, on every device.
    posenc.add_to : The same for an array.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> x = torch.ones(2, 3, 4)
    >>> posenc.torch.add_to(x) is x
    True
    >>> bool((x == 1 + posenc.torch.encode(3, 4)).all())
    True
    """
    _check_x(x)
    if not (x.is_cpu or x.is_meta):
        raise ValueError(f"x is on {x.device}, expected the CPU; PositionalEncoding adds on every device")
    _, text = _specified(x.shape[-1], convention)
    if _is_eager() and _is_plain(x) and (not isinstance(positions, Tensor) or _is_plain(positions)):
        if isinstance(positions, Tensor):
            _check_positions(positions, x.device)
            positions = _positions_array(positions)
        scale = x_scale if type(x_scale) is float else _real("x_scale", x_scale)
        _encoding_of(x.shape[-1], text).add_to(_array(x), positions, x_scale=scale)
        torch.autograd.graph.increment_version(x)
        return x
    # what torch.compile can follow is checked by the operator
    if not torch.compiler.is_compiling() or type(x_scale) not in (int, float):
        x_scale = _real("x_scale", x_scale)
    where, start = _rows(positions, x.shape[-2])
    if where is not None:
        _check_positions(where, x.device)
        where = where.to(x.device)
    if not torch.compiler.is_compiling() and (torch._C._are_functorch_transforms_active() or _is_dual(x)):
        # an operator that mutates can tell neither of them what it does: the same bits by operators that can
        if where is None:
            values = _encoded(start, 1, x.shape[-2], x.shape[-1], text, x.dtype, x.device)
        else:
            _check_broadcast(where, x, where.shape)
            values = _encoded_at(where, x.shape[-1], text, x.dtype)
        scale = float(x_scale)
        rounded = _kernel.rounded(DTYPES[x.dtype], scale)
        if not math.isfinite(rounded):
            raise _beyond(scale, x.dtype)
        return x.mul_(rounded).add_(values)
    torch.ops.posenc.add_(x, where, start, x_scale, text)
    return x


def _rows(positions: Any, n: int) -> tuple[Tensor | None, int]:
    """Positions of n rows as posenc::add_ takes them: a tensor, or None and the first of n in a row."""
    if positions is None or isinstance(positions, Tensor):
        return positions, 0
    if type(positions) is int and positions >= 0:       # what torch.compile can follow
        positions = range(positions)
    positions = _arguments.range_or_array(positions)
    if isinstance(positions, range):
        length = _arguments.length(positions)
        if length != n:
            raise ValueError(f"positions has length {length}, expected {n}, the rows of x")
        if positions.step == 1 and n:
            _arguments.check_domain(positions, 0)
            return None, positions.start
    return _tensor(positions), 0


# ---- modules ----------------------------------------------------------------------------------------------------------


class PositionalTable(nn.Module):
    """A module that returns sinusoidal positional encodings: the whole table, or the rows of a batch.

    ``forward()`` is the table, of shape (max_sequence_length, d_model); ``forward(x)`` the rows for `x`, of shape
    (n, d_model), in x's dtype and on its device.  Nothing is added: `PositionalEncoding` does that.

    Parameters
    ----------
    d_model : int
        Number of columns.
    max_sequence_length : int, optional
        Rows that the table has from the start.  It grows on demand in either case.
    **convention
        See `posenc.Encoding`.

    Attributes
    ----------
    pe : Tensor, shape (rows, d_model)
        A buffer that is no part of the state_dict, correctly rounded to its dtype after every ``.to()`` as well.  What is
        assigned to it gives it a length, a dtype and a device, and no values.

    Raises
    ------
    TypeError, ValueError
        As `posenc.Encoding`.

    See Also
    --------
    PositionalEncoding : Adds them onto embeddings.
    encode : One table, without a module.

    Notes
    -----
    A stored table of a tutorial (the key ``pe`` or ``pos_encoding``) is compared when a state_dict is loaded, and
    left out; if it is another table than this module's, loading fails and says so.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import PositionalTable
    >>> pe = PositionalTable(6, 10)
    >>> pe().shape, pe(torch.zeros(2, 7, 6)).shape
    (torch.Size([10, 6]), torch.Size([7, 6]))
    """

    pe: Tensor

    def __init__(
        self,
        d_model: SupportsIndex,
        max_sequence_length: SupportsIndex | None = None,
        **convention: Unpack[Convention],
    ) -> None:
        super().__init__()
        if max_sequence_length is not None:
            max_sequence_length = _integer("max_sequence_length", max_sequence_length, 0)
        self.d_model, given = _specified(d_model, convention)
        self._convention = _text(changes_of(_encoding_of(self.d_model, given)))
        self.max_sequence_length = max_sequence_length
        rows = max_sequence_length or 0
        self.register_buffer("pe", self._make(rows, torch.get_default_dtype(), torch.get_default_device()), persistent=False)

    @property
    def encoding(self) -> posenc.Encoding:
        """The specification, a `posenc.Encoding`.

        See Also
        --------
        posenc.Encoding : What its keywords mean.

        Examples
        --------
        >>> from posenc.torch import PositionalTable
        >>> PositionalTable(64, layout="halves").encoding
        Encoding(64, layout='halves')
        """
        return _encoding_of(self.d_model, self._convention)

    def forward(self, x: Tensor | None = None, *, start: int = 0, positions: Tensor | None = None) -> Tensor:
        """Return the table, or the rows for x.

        Parameters
        ----------
        x : Tensor, shape (..., n, d_model), optional
            What gives the rows their number, dtype and device; its values are not used.
        start : int, optional
            The position of the first row, for decoding with a cache.
        positions : Tensor, optional
            Positions of any shape, in place of `start`.

        Returns
        -------
        Tensor, shape (max_sequence_length, d_model), (n, d_model) or ``positions.shape + (d_model,)``
            New memory, without a derivative.

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or value, or no `x` where the module has no length.
        RuntimeError
            For positions that require grad.

        See Also
        --------
        PositionalEncoding.forward : Adds them onto x.

        Examples
        --------
        >>> import torch
        >>> from posenc.torch import PositionalTable
        >>> PositionalTable(6)(torch.zeros(2, 7, 6, dtype=torch.float64), start=99).shape
        torch.Size([7, 6])
        """
        if x is not None:
            _check_x(x, self.d_model)
            return self._encodings(x.shape[-2], start, positions, x.dtype, x.device).clone()
        if self.max_sequence_length is None:
            raise ValueError("max_sequence_length is None, expected a length where forward() is to return the table")
        return self._encodings(self.max_sequence_length, start, positions, self.pe.dtype, self.pe.device).clone()

    def _encodings(
        self, n: int, start: int, positions: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        if positions is not None:
            _check_positions(positions, device)
            if start != 0:
                raise ValueError(f"start is {start} and positions are given, expected only one of them")
            return _encoded_at(positions, self.d_model, self._convention, dtype).to(device)
        if isinstance(start, bool) or not isinstance(start, (int, np.integer, torch.SymInt)):
            raise TypeError(f"start is {start!r} of type {type(start).__name__}, expected an integer")
        if isinstance(start, np.integer):       # start + n could overflow
            start = int(start)
        if not torch.compiler.is_compiling() and not _arguments.LOWEST <= start < _arguments.BEYOND:
            raise ValueError(f"start is {start}, expected -2**63 <= start < 2**63")
        return self._rows(start, start + n, dtype, device)

    def _rows(self, first: int, beyond: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """A slice of the table, which grows for it; a compiled graph has the table of max_sequence_length or none."""
        compiling = torch.compiler.is_compiling()
        table: Any = self.pe if compiling else self._buffers["pe"]      # to look self.pe up takes as long as to add a row
        length = table.shape[0]
        if compiling and self.max_sequence_length is None:
            return _encoded(first, 1, beyond - first, self.d_model, self._convention, dtype, device)
        if first < 0 or beyond > length or table.dtype != dtype or table.device != device:
            most = max(length, TABLE_BYTES // max(1, self.d_model * dtype.itemsize))
            if compiling or first < 0 or beyond > most:
                return _encoded(first, 1, beyond - first, self.d_model, self._convention, dtype, device)
            rows = length if beyond <= length else max(beyond, min(2 * length, most))
            # another thread may see the old table or the new one, each whole
            table = self._buffers["pe"] = self._make(rows, dtype, device)
        return table[first:beyond]

    def _make(self, rows: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        with torch.inference_mode(False):       # a table made while predicting serves training, too
            return _encoded(0, 1, rows, self.d_model, self._convention, dtype, device)

    def __setattr__(self, name: str, value: Any) -> None:
        # loaders that begin on the meta device assign undefined memory to a buffer that is in no checkpoint
        if name == "pe" and isinstance(value, Tensor) and value.dtype in DTYPES:
            self._buffers["pe"] = self._make(len(value), value.dtype, value.device)
        else:
            super().__setattr__(name, value)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> PositionalTable:
        before = self.pe
        super()._apply(fn, recurse)
        if self.pe is not before:       # a cast rounds a second time, to_empty leaves the values undefined
            self.pe = self.pe
        return self

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        for name in STORED:
            stored = state_dict.pop(prefix + name, None)
            if stored is not None:
                error_msgs += self._faults(prefix + name, stored)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)

    def _faults(self, name: str, stored: Tensor) -> list[str]:
        """Messages on a stored table that is not this module's, as far as float32 arithmetic can tell."""
        if not isinstance(stored, Tensor) or not stored.is_floating_point():
            what = f"has dtype {stored.dtype}" if isinstance(stored, Tensor) else f"is of type {type(stored).__name__}"
            return [f"{name} {what}, expected a tensor of real numbers"]
        shape, d = tuple(stored.shape), self.d_model
        if shape[-1:] != (d,) or sum(length != 1 for length in shape[:-1]) > 1:
            return [f"{name} has shape {shape}, expected (max_len, {d}), (max_len, 1, {d}) or (1, max_len, {d})"]
        if stored.is_meta:
            return []
        found = stored.detach().cpu().reshape(-1, d)[:COMPARED_ROWS].double()
        rows = torch.arange(len(found), dtype=torch.float64)[:, None]
        # float32 frequencies and angles are off by a few 2**-24 of the angle, which is at most the row or so
        allowed = torch.finfo(stored.dtype).eps + 2**-20 * (1 + rows)
        off = (found - self._make(len(found), torch.float64, torch.device("cpu"))).abs()
        other = (~(off <= allowed)).any(1)
        if not bool(other.any()):
            return []
        row = int(other.nonzero()[0])
        difference = f"row {row} differs by {float(off[row].max()):.2g}"
        return [f"{name} holds another table than {self.encoding}: {difference}; choose its convention, or delete the key"]

    def extra_repr(self) -> str:
        return self._in_words(max_sequence_length=self.max_sequence_length)

    def _in_words(self, **own: Any) -> str:
        """Arguments as they would be given, without those that are None."""
        given = {name: value for name, value in own.items() if value is not None} | changes_of(self.encoding)
        return ", ".join([str(self.d_model), *(f"{name}={value!r}" for name, value in given.items())])


class PositionalEncoding(PositionalTable):
    """A module that adds sinusoidal positional encodings onto embeddings: ``dropout(x * x_scale + encodings)``.

    Takes the place of the class of the same name in PyTorch's tutorials, without a largest length and with every value
    correctly rounded.  Without `x`, ``forward()`` is the table.

    Parameters
    ----------
    d_model : int
        Number of columns.
    dropout : float, optional
        A probability.  An integer is refused: as a second argument some classes take the length of the table.
    max_len : int, optional
        Rows that the table has from the start.  It grows on demand in either case.
    batch_first : bool, optional
        Whether x has the shape (batch, n, d_model), or (n, batch, d_model) as in the tutorial.
    x_scale : float, optional
        ``d_model**0.5`` in "Attention is all you need", section 3.4; by default x is not multiplied.
    learned_scale : float, optional
        The encodings are multiplied by a parameter `alpha` that starts from this number: 1.0 in SpeechT5 and ESPnet.
    **convention
        See `posenc.Encoding`.

    Attributes
    ----------
    alpha : Parameter, shape ()
        The learned factor, or None.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value.

    See Also
    --------
    PositionalTable : Returns the encodings and adds nothing.
    add_to : In place, without a module.

    Notes
    -----
    The default is Vaswani's convention, as in PyTorch's tutorial; docs/torch.md has the arguments of other classes of the name.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import PositionalEncoding
    >>> pe = PositionalEncoding(512, dropout=0.1).eval()
    >>> x = torch.zeros(2, 100, 512)
    >>> whole = pe(x)
    >>> step = pe(x[:, :1], start=99)                      # decoding with a cache
    >>> bool((step[:, 0] == whole[:, 99]).all())
    True
    """

    def __init__(
        self,
        d_model: SupportsIndex,
        dropout: float = 0.0,
        *,
        max_len: SupportsIndex | None = None,
        batch_first: bool = True,
        x_scale: SupportsFloat | None = None,
        learned_scale: SupportsFloat | None = None,
        **convention: Unpack[Convention],
    ) -> None:
        dropout = _constant("dropout", dropout)
        if _arguments.is_index(dropout) and dropout != 0:
            kind = type(dropout).__name__
            raise TypeError(f"dropout is {dropout!r} of type {kind}, expected a float; a length is max_len={dropout!r}")
        dropout = _arguments.real("dropout", dropout)
        if max_len is not None:
            max_len = _integer("max_len", max_len, 0)
        if not isinstance(batch_first, (bool, np.bool_)):
            raise TypeError(f"batch_first is {batch_first!r} of type {type(batch_first).__name__}, expected a bool")
        super().__init__(d_model, max_len, **convention)
        self.dropout = nn.Dropout(dropout)
        self.batch_first = batch_first
        self.x_scale = None if x_scale is None else _real("x_scale", x_scale)
        self.learned_scale = None if learned_scale is None else _real("learned_scale", learned_scale)
        self.alpha = None if self.learned_scale is None else nn.Parameter(torch.tensor(self.learned_scale))
        # as in add_to, x is multiplied by a number of its own dtype
        scales = {dtype: _kernel.rounded(name, self.x_scale or 0.0) for dtype, name in DTYPES.items()}
        self._scales = {dtype: scale for dtype, scale in scales.items() if math.isfinite(scale)}

    def reset_parameters(self) -> None:
        """Set `alpha` to `learned_scale`: for a module that was made on the meta device.

        Returns
        -------
        None
            Nothing happens without `learned_scale`.

        See Also
        --------
        torch.nn.Module.to_empty : Gives memory to it, and no values.

        Examples
        --------
        >>> import torch
        >>> from posenc.torch import PositionalEncoding
        >>> with torch.device("meta"):
        ...     pe = PositionalEncoding(8, learned_scale=1.0)
        >>> pe.to_empty(device="cpu").reset_parameters()
        >>> pe.alpha.item()
        1.0
        """
        if self.alpha is not None and self.learned_scale is not None:
            nn.init.constant_(self.alpha, self.learned_scale)

    def forward(self, x: Tensor | None = None, *, start: int = 0, positions: Tensor | None = None) -> Tensor:
        """Return ``dropout(x * x_scale + encodings)``, or the table; with `learned_scale`, ``alpha * encodings`` in them.

        Parameters
        ----------
        x : Tensor, shape (batch, n, d_model) or (n, d_model), optional
            (n, batch, d_model) if not `batch_first`.
        start : int, optional
            The position of the first row, for decoding with a cache.
        positions : Tensor, optional
            In place of `start`: of shape (n,), or one that broadcasts to ``x.shape[:-1]``, as for packed sequences.

        Returns
        -------
        Tensor
            Of x's shape, dtype and device.

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or value.
        RuntimeError
            For positions that require grad.

        See Also
        --------
        PositionalTable.forward : Returns the encodings alone.

        Examples
        --------
        >>> import torch
        >>> from posenc.torch import PositionalEncoding
        >>> x = torch.zeros(1, 5, 8)                            # two sequences in one row
        >>> y = PositionalEncoding(8)(x, positions=torch.tensor([0, 1, 2, 0, 1]))
        >>> bool((y[0, 3:] == y[0, :2]).all())
        True
        """
        if x is None:
            return super().forward(start=start, positions=positions)
        _check_x(x, self.d_model)
        sequence_first = not self.batch_first and x.ndim > 2
        if positions is not None:
            positions = self._aligned(positions, x, sequence_first)
        table = self._encodings(x.shape[0 if sequence_first else -2], start, positions, x.dtype, x.device)
        if sequence_first and positions is None:
            table = table.reshape(-1, *[1] * (x.ndim - 2), self.d_model)
        total = self._scaled(x) + table
        return total if self._drops_nothing() else self.dropout(total)

    def _drops_nothing(self) -> bool:
        """Whether a call of `dropout` would return its argument, and nobody waits for the call; a graph has it for training."""
        if torch.compiler.is_compiling():
            return False
        dropout: Any = self._modules.get("dropout")
        return (
            type(dropout) is nn.Dropout
            and not (dropout.training and dropout.p)
            and not (dropout._forward_pre_hooks or dropout._forward_hooks)
            and not (dropout._backward_pre_hooks or dropout._backward_hooks)
            and not nn.modules.module._has_any_global_hook()
        )

    def _encodings(
        self, n: int, start: int, positions: Tensor | None, dtype: torch.dtype, device: torch.device
    ) -> Tensor:
        encodings = super()._encodings(n, start, positions, dtype, device)
        return encodings if self.alpha is None else self.alpha * encodings

    def _aligned(self, positions: Tensor, x: Tensor, sequence_first: bool) -> Tensor:
        """Positions in a shape that broadcasts to x.shape[:-1]."""
        _check_positions(positions, x.device)
        given = positions.shape
        if sequence_first and positions.ndim == 1:
            positions = positions.reshape(-1, *[1] * (x.ndim - 2))
        _check_broadcast(positions, x, given)
        return positions

    def extra_repr(self) -> str:
        batch_first = None if self.batch_first else False
        scales = {"x_scale": self.x_scale, "learned_scale": self.learned_scale}
        return self._in_words(max_len=self.max_sequence_length, batch_first=batch_first, **scales)

    def _scaled(self, x: Tensor) -> Tensor:
        if self.x_scale is None:
            return x
        if x.dtype not in self._scales:
            raise _beyond(self.x_scale, x.dtype)
        return x * self._scales[x.dtype]


# ---- DataLoader -------------------------------------------------------------------------------------------------------


class ChunkDataset(IterableDataset[tuple[Tensor, Tensor]]):
    """A dataset of a table of any length, chunk by chunk, made by the workers of a ``DataLoader``.

    Yields pairs of tensors: positions of shape (k,), int64, and values of shape (k, d_model).  For a ``DataLoader`` with
    ``batch_size=None``, since a chunk is a batch already.

    Parameters
    ----------
    positions : int or range
        Those of the rows; an integer n means ``range(n)``.
    d_model : int
        Number of columns.
    chunk : int, optional
        Positions of a chunk; by default as many as 4 MiB hold.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16.
    **convention
        See `posenc.Encoding`.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value.

    See Also
    --------
    posenc.stream : Chunks of arrays, without workers.

    Notes
    -----
    Worker w of W makes chunks w, w + W, w + 2 W, ..., with one thread.  Every chunk is made once, and a DataLoader, which
    asks its workers in turn, delivers the chunks in the order of the positions for every number of workers.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> from posenc.torch import ChunkDataset
    >>> loader = DataLoader(ChunkDataset(10, 8, chunk=4), batch_size=None)
    >>> [(positions.tolist(), tuple(values.shape)) for positions, values in loader]
    [([0, 1, 2, 3], (4, 8)), ([4, 5, 6, 7], (4, 8)), ([8, 9], (2, 8))]
    """

    def __init__(
        self,
        positions: SupportsIndex | range,
        d_model: SupportsIndex,
        *,
        chunk: SupportsIndex | None = None,
        dtype: torch.dtype = torch.float32,
        **convention: Unpack[Convention],
    ) -> None:
        _name(dtype)
        if not isinstance(positions, range):
            positions = range(_integer("positions", positions, 0))
        self.encoding = _encoding_of(*_specified(d_model, convention))
        _arguments.check_domain(positions, keywords_of(self.encoding)["position_offset"])
        self.positions = positions
        self.dtype = dtype
        if chunk is None:
            chunk = max(1, CHUNK_BYTES // max(1, self.encoding.d_model * dtype.itemsize))
        self.chunk = _integer("chunk", chunk, 1)

    def __len__(self) -> int:
        return len(self.positions[:: self.chunk])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, step, threads = (0, 1, None) if worker is None else (worker.id, worker.num_workers, 1)
        left = self.positions[first * self.chunk :]
        while left:
            positions, left = left[: self.chunk], left[step * self.chunk :]
            values = torch.empty((len(positions), self.encoding.d_model), dtype=self.dtype)
            self.encoding.encode(positions, dtype=DTYPES[self.dtype], out=_array(values), threads=threads)
            yield _tensor(positions), values
