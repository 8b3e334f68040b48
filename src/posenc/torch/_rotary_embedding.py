"""The module RotaryEmbedding."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from typing import Any, Self, SupportsIndex

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from posenc import Rotary
from posenc._rotary.model_config import layer_types
from posenc._rotary.models import model_of
from posenc._rotary.scaling import positions_without_length
from posenc.torch import _tensor_arguments
from posenc.torch._encode_operators import is_eager
from posenc.torch._rotate_operators import axes_of, rotary_of, text_of


class RotaryEmbedding(nn.Module):
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
        Keep tables of the positions below `max_len` on the device of the module, and index them in each call.  By default,
        there are no tables; each call computes its values on the CPU, and can do so at any position.
    dtype : torch.dtype, optional
        The dtype of the result.  The default is that of x, or float32 if `max_len` is given.

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
    With `max_len`, each layer type has a table of ``max_len * rotary_dim`` values in a buffer that is not in the state_dict.
    ``to`` moves the buffer, but never changes its dtype.  If other code overwrites, converts or replaces a table, the next call
    computes the table again.  Code compiled by ``torch.compile`` or ``torch.export`` does not check the tables.  If the
    positions are on the device of the tables, a call neither copies between devices nor synchronizes.  Positions below 0 or
    from `max_len` on give NaN, because a check would have to wait for the device.  If the positions are on the CPU, a call
    outside compiled code raises a ValueError instead.

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
            _tensor_arguments.dtype_name(dtype)
        self.max_len = None if max_len is None else _tensor_arguments.integer("max_len", max_len, 1)
        self.dtype = dtype
        self._form, self._hidden_size = "twice", None
        if isinstance(config, Rotary):
            if length is not None:
                raise ValueError(f"length is {length!r}, expected None with a posenc.Rotary; set length in its scaling")
            rotations: dict[str | None, Rotary] = {None: config}
        else:
            kind, self._hidden_size = (
                config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
                for name in ("model_type", "hidden_size")
            )
            self._form = model_of(kind).tables
            rotations = {name: Rotary.from_config(config, name, length) for name in layer_types(config)}
        if self._form == "complex" and dtype not in (None, torch.float32):
            raise ValueError(f"dtype is {dtype}, expected torch.float32 for a model that takes complex numbers")
        self._texts = {name: text_of(rotary) for name, rotary in rotations.items()}
        self._marks: dict[str, tuple[Any, ...]] = {}
        if self.max_len is not None:
            for rotary in rotations.values():
                limit = positions_without_length(rotary.scaling)
                if limit is not None and self.max_len > limit:
                    warnings.warn(f"max_len is {self.max_len}, but the frequencies are those for at most {limit} positions, "
                                  "because length is None; pass length=, or set it in the scaling of Rotary", stacklevel=3)
            self._place_tables(torch.get_default_device())

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
        >>> RotaryEmbedding({"head_dim": 64, "rope_theta": 500000.0}).rotary()
        Rotary(64, base=500000.0)
        """
        return rotary_of(self._text(layer_type))

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
        _tensor_arguments.check_positions(position_ids, x.device)
        # hidden states of another width show that the model has another configuration
        if x.ndim == 3 and self._hidden_size not in (None, x.shape[-1]):
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {self._hidden_size}), the hidden_size of config")
        text = self._text(layer_type)
        axes = axes_of(text)
        if axes is not None and position_ids.ndim == 2:
            position_ids = position_ids.expand(axes, -1, -1)
        dtype = self._dtype(x)
        if self.max_len is None:
            values = torch.ops.posenc.tables(position_ids, text, dtype).to(x.device)
        else:
            values = self._rows(layer_type, position_ids, x.device)
        cos, sin = values.chunk(2, -1)
        if self._form == "complex":
            return torch.complex(cos, sin)
        if self._form == "once":
            return cos.contiguous(), sin.contiguous()
        if self._form == "in pairs":
            return cos.repeat_interleave(2, -1), sin.repeat_interleave(2, -1)
        return torch.cat((cos, cos), -1), torch.cat((sin, sin), -1)

    def _text(self, layer_type: str | None) -> str:
        if layer_type not in self._texts:
            expected = " or ".join(map(repr, self._texts))
            raise ValueError(f"layer_type is {layer_type!r}, expected {expected}")
        return self._texts[layer_type]

    def _dtype(self, x: Tensor) -> torch.dtype:
        if self.dtype is not None or self._form == "complex":
            return self.dtype or torch.float32
        _tensor_arguments.dtype_name(x.dtype, "x has dtype")
        if self.max_len is not None and x.dtype != torch.float32:
            raise TypeError(f"x has dtype {x.dtype}, expected torch.float32, the default dtype of tables for max_len; "
                            f"pass dtype={x.dtype} to RotaryEmbedding, or dtype=torch.float32 for a result in float32")
        return x.dtype

    # ---- tables on a device -------------------------------------------------------------------------------------------

    def _rows(self, layer_type: str | None, positions: Tensor, device: torch.device) -> Tensor:
        """Return the rows of the table at some positions; a position outside the table gives a row of NaN."""
        assert self.max_len is not None
        if positions.is_floating_point():
            raise TypeError(f"positions has dtype {positions.dtype}, expected integers, because max_len is given")
        prefix = f"{layer_type}_" if layer_type else ""
        if is_eager():
            if not all(self._is_intact(name, device) for name in self._buffers):
                self._place_tables(device)
            if positions.is_cpu and positions.numel():
                for p in map(int, positions.aminmax()):
                    if not 0 <= p < self.max_len:
                        raise ValueError(f"positions has {p}, expected 0 <= position < {self.max_len}, which is max_len")
        # the first and the last row of the table are NaN
        index = positions.to(device).long().clamp(-1, self.max_len) + 1
        rows = functional.embedding(index, getattr(self, f"{prefix}tables"))
        if axes_of(self._texts[layer_type]) is None:
            return rows
        return rows.gather(0, getattr(self, f"{prefix}axes").expand(1, *rows.shape[1:]))[0]

    def _place_tables(self, device: torch.device) -> None:
        """Register the buffers on a device: move those that are intact, and compute the others."""
        with torch.inference_mode(False):       # a tensor created in inference mode cannot be used in training later
            for layer_type, text in self._texts.items():
                for kind in ("tables",) if axes_of(text) is None else ("tables", "axes"):
                    name = f"{layer_type}_{kind}" if layer_type else kind
                    tensor = self._buffers.get(name)
                    if tensor is None or tensor.is_meta or not self._is_intact(name, tensor.device):
                        tensor = self._axes(text) if kind == "axes" else self._table(text, device)
                    tensor = tensor.to(device)
                    self.register_buffer(name, tensor, persistent=False)
                    self._marks[name] = _mark(tensor)

    def _table(self, text: str, device: torch.device) -> Tensor:
        """Return cosines and sines of the positions below max_len, between two rows of NaN."""
        assert self.max_len is not None
        dtype, rotary = self.dtype or torch.float32, rotary_of(text).replace(axes=None)
        shape = (self.max_len + 2, rotary.rotary_dim)
        if device.type == "meta":
            return torch.empty(shape, dtype=dtype, device=device)
        # Loaders override the dtype and the device of torch.empty, but not those of torch.from_numpy.
        name = _tensor_arguments.DTYPES[dtype]
        array = np.empty(shape, np.uint16 if name == "bfloat16" else name)
        rotary.tables(range(self.max_len), dtype=name, out=array[1:-1])
        for row in (array[:1], array[-1:]):
            rotary.tables(np.array([np.nan]), dtype=name, out=row)
        return torch.from_numpy(array).view(dtype)

    def _axes(self, text: str) -> Tensor:
        """Return the axis of positions for each column of a table."""
        axes = rotary_of(text).axes or ()
        return torch.from_numpy(np.array(axes * 2))

    def _is_intact(self, name: str, device: torch.device) -> bool:
        """Return whether a buffer is on a device and has not been converted, replaced or overwritten."""
        tensor = self._buffers[name]
        return tensor is not None and tensor.device == device and _mark(tensor) == self._marks[name]

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        """Move the tables to the device to which fn moves an empty tensor; calling fn on tables could change their values."""
        if self.max_len is None:
            return super()._apply(fn, recurse)
        device = next(fn(tensor[:0]).device for tensor in self._buffers.values() if tensor is not None)
        self._place_tables(device)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for pickle and copy, without the tables, but with their devices."""
        empty = {name: tensor[:0].clone() for name, tensor in self._buffers.items() if tensor is not None}
        return self.__dict__ | {"_buffers": empty, "_marks": dict.fromkeys(empty, ())}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for tensor in list(self._buffers.values())[:1]:
            assert tensor is not None
            self._place_tables(tensor.device)

    def __getattr__(self, name: str) -> Any:
        for end in ("inv_freq", "attention_scaling"):
            if name.endswith(end) and "_texts" in self.__dict__:
                layer_type = name.removesuffix(end).removesuffix("_") or None
                if layer_type in self._texts:
                    rotary = self.rotary(layer_type)
                    return torch.tensor(rotary.frequencies) if end == "inv_freq" else rotary.attention_scaling
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        shown = [str(self.rotary(name)) if name is None else f"{name}={self.rotary(name)}" for name in self._texts]
        options = {"max_len": self.max_len, "dtype": self.dtype}
        return ", ".join(shown + [f"{name}={value}" for name, value in options.items() if value is not None])


def _mark(tensor: Tensor) -> tuple[Any, ...]:
    """Return properties that change if other code converts, replaces or overwrites a tensor."""
    return tensor.data_ptr(), tensor._version, tensor.dtype, tensor.shape
