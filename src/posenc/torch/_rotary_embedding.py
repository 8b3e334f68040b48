"""The module RotaryEmbedding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from posenc import Rotary
from posenc._arguments.unknown_keywords import suggests
from posenc._rotary.model_config import layer_types
from posenc._rotary.models import model_of
from posenc.torch import _tensor_arguments
from posenc.torch._rotate_operators import axes_of, rotary_of, text_of


class RotaryEmbedding(nn.Module):
    """A replacement for the ``rotary_emb`` of a transformers model that returns correctly rounded cosines and sines.

    Parameters
    ----------
    config : transformers.PreTrainedConfig, mapping or posenc.Rotary
        The model's configuration, as for `posenc.Rotary.from_config`, or the rotation itself.
    length : int, optional
        The length of the sequences, for scaling types that depend on it, such as longrope.  Unlike transformers, the module
        does not change its frequencies during a call.  Without a length, it has those for short sequences, and a UserWarning
        reports positions of longer ones.

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
        If `config` or `length` has a wrong type or value, or `config` lacks a value.

    See Also
    --------
    rotate : Rotate queries and keys, and round once.
    posenc.Rotary : The specification.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import RotaryEmbedding
    >>> rotary_emb = RotaryEmbedding({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    >>> cos, sin = rotary_emb(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[0, 1, 131071]]))
    >>> cos.shape, cos.dtype
    (torch.Size([1, 3, 64]), torch.bfloat16)
    """

    @suggests
    def __init__(self, config: Any, length: int | None = None) -> None:
        super().__init__()
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
        self._texts = {name: text_of(rotary) for name, rotary in rotations.items()}

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
            The positions.  With several axes, the shape is (axes, batch, n), or (batch, n) for equal positions on all axes.
        layer_type : str, optional
            As for `rotary`.

        Returns
        -------
        cos : Tensor, shape (batch, n, rotary_dim)
            The cosines, each twice, or once if the model expects that.  If the model expects complex numbers, the result is a
            single complex64 tensor, ``cos + i sin``.
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
        # hidden states of another width: the module is in a model with another configuration
        if x.ndim == 3 and self._hidden_size not in (None, x.shape[-1]):
            raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {self._hidden_size}), the hidden_size of config")
        text = self._text(layer_type)
        axes = axes_of(text)
        if axes is not None and position_ids.ndim == 2:
            position_ids = position_ids.expand(axes, -1, -1)
        dtype = torch.float32 if self._form == "complex" else x.dtype
        _tensor_arguments.dtype_name(dtype, "x has dtype")
        cos, sin = torch.ops.posenc.tables(position_ids, text, dtype).to(x.device).chunk(2, -1)
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

    def __getattr__(self, name: str) -> Any:
        for end in ("inv_freq", "attention_scaling"):
            if name.endswith(end) and "_texts" in self.__dict__:
                layer_type = name.removesuffix(end).removesuffix("_") or None
                if layer_type in self._texts:
                    rotary = self.rotary(layer_type)
                    return torch.tensor(rotary.frequencies) if end == "inv_freq" else rotary.attention_scaling
        return super().__getattr__(name)

    def extra_repr(self) -> str:
        return ", ".join(str(self.rotary(name)) if name is None else f"{name}={self.rotary(name)}" for name in self._texts)
