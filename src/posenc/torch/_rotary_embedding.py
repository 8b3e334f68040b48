"""The module RotaryEmbedding."""

from typing import Any, SupportsIndex

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from posenc import Rotary
from posenc._rotary.model_config import layer_types, module_form
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._encode import encodings_at, warn_of_length
from posenc.torch._rotate import axes_of
from posenc.torch._table_module import TableModule, kept_table


class RotaryEmbedding(TableModule):
    """A module that replaces the ``rotary_emb`` of a transformers model; its results are correctly rounded.

    Parameters
    ----------
    config : transformers.PreTrainedConfig, mapping or posenc.Rotary
        The model's configuration, as for `posenc.Rotary.from_config`, or the rotation itself.
    length : int, optional
        The length of the sequences, for scaling types that depend on it, such as longrope.  Unlike the
        modules of transformers, this module never changes its frequencies in a call.  Without a length, the
        module uses the frequencies for short sequences, and issues a UserWarning for positions that occur
        only in longer sequences.
    max_len : int, optional
        The number of positions in tables for compiled code, and for devices other than the CPU, where code
        compiled for them needs it.  By default, a table on another device grows with the positions, up to
        64 MiB; values at later positions are computed on the CPU.
    dtype : torch.dtype, optional
        The dtype of the result, even after the model is converted.  The default is that of x.

    Attributes
    ----------
    inv_freq : Tensor of float64
        The frequencies.  If rotations differ by layer type, each type has an attribute such as
        ``full_attention_inv_freq``.
    attention_scaling : float
        The factor by which the scaling multiplies cosines and sines; it excludes the ``scale`` of a
        `posenc.Rotary`.  If rotations differ by layer type, each type has an attribute such as
        ``full_attention_attention_scaling``.

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
    On the CPU, each call computes its values, at any position.  On another device, with `max_len`, the first
    call for each layer type and dtype computes a table of ``max_len * rotary_dim`` values, which later calls
    index.  The tables are not buffers: other code cannot convert, overwrite or load them.  `load_state_dict`
    compares frequencies with the usual names, such as ``inv_freq``.  ``to`` removes the tables.  If the
    positions are on the device of x, later calls neither copy between devices nor synchronize.  Code compiled
    by ``torch.compile`` or ``torch.export`` contains the table.  Positions outside a table give NaN, because
    a check would have to wait for the device.

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
        self, config: Any, length: int | None = None, *, max_len: SupportsIndex | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        form, hidden_size = "twice", None
        if isinstance(config, Rotary):
            if length is not None:
                raise ValueError(f"length is {length!r}, expected None with a Rotary; set it in its scaling")
            rotations: dict[str | None, Rotary] = {None: config}
        else:
            form, hidden_size = module_form(config)
            rotations = {name: Rotary.from_config(config, name, length) for name in layer_types(config)}
        tables = {name: rotary.replace(axes=None) for name, rotary in rotations.items()}
        super().__init__(tables, max_len, lowest=1)
        self.dtype, self._form, self._hidden_size, self._rotations = dtype, form, hidden_size, rotations
        if dtype is not None:
            tensors.check_dtype("dtype is", dtype)
        if form == "complex" and dtype not in (None, torch.float32):
            raise ValueError(f"dtype is {dtype}, expected torch.float32 for a model with complex numbers")
        for layer_type, rotary in rotations.items():
            prefix = "" if layer_type is None else f"{layer_type}_"
            setattr(self, f"{prefix}inv_freq", torch.from_numpy(rotary.frequencies.copy()))
            setattr(self, f"{prefix}attention_scaling", rotary.attention_scaling)
            warn_of_length(rotary, (self._length or 0) - 1)

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
            raise ValueError(f"layer_type is {layer_type!r}, expected one of {list(self._rotations)}")
        return self._rotations[layer_type]

    def forward(self, x: Tensor, position_ids: Tensor | ArrayLike, layer_type: str | None = None) -> Any:
        """Return cosines and sines in the form that the model's ``rotary_emb`` returns.

        Parameters
        ----------
        x : Tensor
            A tensor with the dtype and device of the result; its values are not used.  If its shape is
            (batch, n, width), the width must be the ``hidden_size`` of the configuration.
        position_ids : Tensor or array_like, shape (batch, n)
            The positions.  With several axes, the shape is (axes, batch, n), or (batch, n) for equal
            positions on all axes.
        layer_type : str, optional
            As for `rotary`.

        Returns
        -------
        cos : Tensor, shape (batch, n, rotary_dim)
            The cosines.  Each occurs twice, or once, as the model expects.  If the model expects complex
            numbers, the result is a single complex64 tensor, ``cos + i sin``.
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
        tensors.check_dense("x", x)
        # hidden states of another width show that the model has another configuration
        if x.ndim == 3 and (width := self._hidden_size) not in (None, x.shape[-1]):
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {width}), config.hidden_size")
        positions = tensors.tensor_of_positions(position_ids, x.device, "position_ids")
        return self._in_form(*self._values(x, positions, layer_type).chunk(2, -1))

    def _values(self, x: Tensor, positions: Tensor, layer_type: str | None) -> Tensor:
        """Return the cosines of all pairs, followed by their sines, in the dtype and on the device of the
        result.
        """
        rotary, dtype = self.rotary(layer_type), self.dtype
        if dtype is None:
            dtype = torch.float32 if self._form == "complex" else x.dtype
            tensors.check_dtype("x has dtype", dtype)
        axes = axes_of(rotary)
        if axes is not None and positions.ndim == 2:
            positions = positions.expand(axes, -1, -1)
        elif axes is not None and positions.shape[:1] != (axes,):
            expected = f"(batch, n) or ({axes}, batch, n)"
            raise ValueError(f"positions has shape {tuple(positions.shape)}, expected {expected}")
        is_computed = x.device.type in ("cpu", "meta") or positions.is_floating_point()
        if self._length is None and not is_computed and tensors.is_recording():
            raise RuntimeError(f"max_len is None, expected a length for the table of a graph on {x.device}")
        rows = self._rows_at(positions, dtype, x.device, layer_type)
        if rows is None:
            return encodings_at(positions, rotary, dtype, x.device)
        if axes is None:
            return rows
        axis_of_column = kept_table(self, torch.int64, x.device, layer_type)
        return rows.gather(0, axis_of_column.expand(1, *rows.shape[1:]))[0]

    def _in_form(self, cos: Tensor, sin: Tensor) -> Any:
        """Return the tables that the model takes."""
        if self._form == "complex":
            return torch.complex(cos, sin)
        if self._form == "sin, cos":
            return sin.contiguous(), cos.contiguous()
        if self._form == "once":
            return cos.contiguous(), sin.contiguous()
        return self._twice(cos), self._twice(sin)

    def _twice(self, table: Tensor) -> Tensor:
        return table.repeat_interleave(2, -1) if self._form == "in pairs" else torch.cat((table, table), -1)

    def _new_table(self, dtype: torch.dtype, device: torch.device, key: Any, length: int) -> Tensor:
        """Return a table of cosines and sines or, if dtype is int64, the axis of each of its columns."""
        if dtype == torch.int64:
            return torch.tensor((self._rotations[key].axes or ()) * 2, device=device)
        return super()._new_table(dtype, device, key, length)

    def extra_repr(self) -> str:
        arguments = self._rotations | {"max_len": self._length, "dtype": self.dtype}
        return ", ".join(str(value) if name is None else f"{name}={value}"
                         for name, value in arguments.items() if value is not None)
