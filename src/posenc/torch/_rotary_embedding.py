"""The module RotaryEmbedding, and the operator posenc::tables, which computes cosines and sines in compiled code."""

from __future__ import annotations

import math
import warnings
from typing import Any, SupportsIndex

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from posenc import Rotary
from posenc._arguments import checks
from posenc._rotary.model_config import layer_types, module_form
from posenc._rotary.scaling import positions_without_length
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._positional_encoding import TableModule, kept_table
from posenc.torch._rotate import axes_of
from posenc.torch._tensor_arguments import specification_of, text_of


class RotaryEmbedding(TableModule):
    """A module that replaces the ``rotary_emb`` of a transformers model and returns correctly rounded cosines and sines.

    Parameters
    ----------
    config : transformers.PreTrainedConfig, mapping or posenc.Rotary
        The model's configuration, as for `posenc.Rotary.from_config`, or the rotation itself.
    length : int, optional
        The length of the sequences, for scaling types that depend on it, such as longrope.  Unlike the modules of
        transformers, this module never changes its frequencies in a call.  Without a length, the module uses the
        frequencies for short sequences, and issues a UserWarning for positions that occur only in longer sequences.
    max_len : int, optional
        Keep tables of the positions below `max_len` on the device of x, and index them in each call.  By default, there are no
        tables; each call computes its values on the CPU, and can do so at any position.
    dtype : torch.dtype, optional
        The dtype of the result.  The default is that of x.

    Attributes
    ----------
    inv_freq : Tensor of float64
        The frequencies.  If rotations differ by layer type, each type has an attribute such as ``full_attention_inv_freq``.
    attention_scaling : float
        The factor by which the scaling multiplies cosines and sines; it excludes the ``scale`` of a `posenc.Rotary`.  If
        rotations differ by layer type, each type has an attribute such as ``full_attention_attention_scaling``.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, or `config` lacks a value.

    See Also
    --------
    rotate : Rotate queries and keys, and round once.
    posenc.Rotary : The specification.

    Notes
    -----
    With `max_len`, the first call for each layer type, dtype and device of x computes a table of ``max_len * rotary_dim``
    values.  The tables are not buffers: other code cannot convert, overwrite or load them.  ``to`` removes them.  If the
    positions are on the device of x, later calls neither copy between devices nor synchronize.  Code compiled by
    ``torch.compile`` or ``torch.export`` contains the table.  Positions below 0 or from `max_len` on give NaN, because a check
    would have to wait for the device.  If the positions are on the CPU, a call outside compiled code raises a ValueError
    instead.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import RotaryEmbedding
    >>> rotary_emb = RotaryEmbedding({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    >>> cos, sin = rotary_emb(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[0, 1, 131071]]))
    >>> cos.shape, cos.dtype
    (torch.Size([1, 3, 64]), torch.bfloat16)
    """

    def __init__(
        self, config: Any, length: int | None = None, *, max_len: SupportsIndex | None = None, dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        if dtype is not None:
            tensors.check_dtype("dtype is", dtype)
        self.max_len = None if max_len is None else tensors.integer("max_len", max_len, 1)
        self.dtype = dtype
        self._form, self._hidden_size = "twice", None
        if isinstance(config, Rotary):
            if length is not None:
                raise ValueError(f"length is {length!r}, expected None with a posenc.Rotary; set length in its scaling")
            self._rotations: dict[str | None, Rotary] = {None: config}
        else:
            self._form, self._hidden_size = module_form(config)
            self._rotations = {name: Rotary.from_config(config, name, length) for name in layer_types(config)}
        if self._form == "complex" and dtype not in (None, torch.float32):
            raise ValueError(f"dtype is {dtype}, expected torch.float32 for a model that takes complex numbers")
        for layer_type, rotary in self._rotations.items():
            prefix = "" if layer_type is None else f"{layer_type}_"
            setattr(self, f"{prefix}inv_freq", torch.from_numpy(rotary.frequencies.copy()))
            setattr(self, f"{prefix}attention_scaling", rotary.attention_scaling)

    def rotary(self, layer_type: str | None = None) -> Rotary:
        """Return the rotation for a layer type.

        Parameters
        ----------
        layer_type : str, optional
            The layer type, required if rotations differ by layer type.

        Returns
        -------
        posenc.Rotary
            The specification.

        Raises
        ------
        ValueError
            If the model has no such layer type.

        See Also
        --------
        posenc.Rotary : The specification.

        Examples
        --------
        >>> from posenc.torch import RotaryEmbedding
        >>> RotaryEmbedding({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}).rotary()
        Rotary(64, base=500000.0)
        """
        if layer_type not in self._rotations:
            raise ValueError(f"layer_type is {layer_type!r}, expected {' or '.join(map(repr, self._rotations))}")
        return self._rotations[layer_type]

    def forward(self, x: Tensor, position_ids: Tensor, layer_type: str | None = None) -> Any:
        """Return cosines and sines in the form that the model's ``rotary_emb`` returns.

        Parameters
        ----------
        x : Tensor
            A tensor with the dtype and device of the result; its values are not used.  If its shape is (batch, n, width), the
            width must be the ``hidden_size`` of the configuration.
        position_ids : Tensor, shape (batch, n)
            The positions; if `max_len` is given, integers below it.  With several axes, the shape is (axes, batch, n), or
            (batch, n) for equal positions on all axes.
        layer_type : str, optional
            As for `rotary`.

        Returns
        -------
        cos : Tensor, shape (batch, n, rotary_dim)
            The cosines.  Each occurs twice, or once, as the model expects.  If the model expects complex numbers, the result is
            a single complex64 tensor, ``cos + i sin``.
        sin : Tensor
            The sines, in the same form.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value.

        See Also
        --------
        posenc.Rotary.tables : Return each cosine and sine once, as arrays.

        Examples
        --------
        >>> import posenc, torch
        >>> cos, sin = posenc.torch.RotaryEmbedding(posenc.Rotary(4))(torch.zeros(1), torch.tensor([[1]]))
        >>> sin
        tensor([[[0.8415, 0.0100, 0.8415, 0.0100]]])
        """
        if not isinstance(x, Tensor):
            raise TypeError(f"x is of type {type(x).__name__}, expected a torch.Tensor")
        tensors.check_positions(position_ids, x.device, "position_ids")
        # hidden states of another width show that the model has another configuration
        if x.ndim == 3 and self._hidden_size not in (None, x.shape[-1]):
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {self._hidden_size}), the hidden_size of config")
        rotary, dtype = self.rotary(layer_type), self.dtype
        if dtype is None:
            dtype = torch.float32 if self._form == "complex" else x.dtype
            tensors.check_dtype("x has dtype", dtype)
        axes = axes_of(rotary)
        if axes is not None and position_ids.ndim == 2:
            position_ids = position_ids.expand(axes, -1, -1)
        elif axes is not None and position_ids.shape[:1] != (axes,):
            raise ValueError(f"positions has shape {tuple(position_ids.shape)}, expected (batch, n) or ({axes}, batch, n)")
        if self.max_len is None:
            values = tables(position_ids, rotary, dtype).to(x.device)
        else:
            values = self._rows(layer_type, position_ids, dtype, x.device)
        cos, sin = values.chunk(2, -1)
        if self._form == "complex":
            return torch.complex(cos, sin)
        if self._form in ("once", "sin, cos"):
            return (cos.contiguous(), sin.contiguous()) if self._form == "once" else (sin.contiguous(), cos.contiguous())
        if self._form == "in pairs":
            return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)

    def _rows(self, layer_type: str | None, positions: Tensor, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return the rows of the table at some positions; a position outside the table gives a row of NaN."""
        assert self.max_len is not None
        if positions.is_floating_point():
            raise TypeError(f"positions has dtype {positions.dtype}, expected integers, because max_len is given")
        index = positions.long()                # torch cannot compare uint16, uint32 and uint64
        if positions.is_cpu and positions.numel() and tensors.is_eager():
            lowest, highest = index.aminmax()
            if int(lowest) < 0 or int(highest) >= self.max_len:
                position = next(p for p in positions.flatten().tolist() if not 0 <= p < self.max_len)
                raise ValueError(f"positions has {position}, expected 0 <= position < {self.max_len}, which is max_len")
        # the first and the last row of the table are NaN
        index = index.to(device).clamp(-1, self.max_len) + 1
        rows = functional.embedding(index, kept_table(self, dtype, device, layer_type))
        if self._rotations[layer_type].axes is None:
            return rows
        axes = kept_table(self, torch.int64, device, layer_type)
        return rows.gather(0, axes.expand(1, *rows.shape[1:]))[0]

    def _new_table(self, dtype: torch.dtype, device: torch.device, key: Any) -> Tensor:
        """Return the cosines and sines of the positions below max_len, or, if dtype is int64, the axis of each column."""
        assert self.max_len is not None
        rotary = self._rotations[key]
        if dtype == torch.int64:
            return torch.tensor((rotary.axes or ()) * 2, device=device)
        table = new_tables(range(self.max_len), rotary.replace(axes=None), dtype)
        return functional.pad(table, (0, 0, 1, 1), value=math.nan).to(device)

    def extra_repr(self) -> str:
        arguments = [str(rotary) if name is None else f"{name}={rotary}" for name, rotary in self._rotations.items()]
        options = {"max_len": self.max_len, "dtype": self.dtype}
        return ", ".join(arguments + [f"{name}={value}" for name, value in options.items() if value is not None])


# ---- tables -------------------------------------------------------------------------------------------------------------


def tables(positions: Tensor, rotary: Rotary, dtype: torch.dtype) -> Tensor:
    """Return the cosines of all pairs, followed by their sines, on the device of the positions."""
    if tensors.is_eager() and tensors.is_plain(positions):
        return _tables(positions, rotary, dtype)
    result: Tensor = torch.ops.posenc.tables(positions, text_of(rotary), dtype)
    return result


def _tables(positions: Tensor, rotary: Rotary, dtype: torch.dtype) -> Tensor:
    return new_tables(tensors.positions_array(positions, positions.device), rotary, dtype).to(positions.device)


def new_tables(positions: range | NDArray[Any], rotary: Rotary, dtype: torch.dtype) -> Tensor:
    name, shape = tensors.DTYPES[dtype], checks.shape_of(positions)
    limit = positions_without_length(rotary.scaling)
    last_positions = positions[-1:] if isinstance(positions, range) else positions
    if limit is not None and np.max(last_positions, initial=-1) >= limit:
        warnings.warn(          # by default, Python shows each text only once
            f"positions has values of {limit} or more, but the frequencies are those for at most {limit} positions, because "
            "length is None; pass length= to RotaryEmbedding, or set it in the scaling of Rotary", stacklevel=2)
    # DeepSpeed's zero.Init replaces torch.empty by a function that ignores the dtype
    out = np.empty((*shape[rotary.axes is not None :], rotary.rotary_dim), np.uint16 if name == "bfloat16" else name)
    rotary.tables(positions, dtype=name, out=out)
    return torch.from_numpy(out).view(dtype)


@torch.library.custom_op("posenc::tables", mutates_args=())
def _tables_operator(positions: Tensor, rotary: str, dtype: torch.dtype) -> Tensor:
    return _tables(positions, specification_of(Rotary, rotary), dtype)


@_tables_operator.register_fake
def _(positions: Tensor, rotary: str, dtype: torch.dtype) -> Tensor:
    specification = specification_of(Rotary, rotary)
    shape = positions.shape if specification.axes is None else positions.shape[1:]
    return positions.new_empty((*shape, specification.rotary_dim), dtype=dtype)
