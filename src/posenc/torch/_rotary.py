"""The functions rotate and rotate_ with their operator posenc::rotate, and the module RotaryEmbedding.

The operator takes a `Rotary` as text, so that an exported graph is complete.  Eager calls do not use it.
"""

from typing import Any, SupportsIndex, TypeAlias

import torch
from numpy.typing import ArrayLike
from torch import Tensor

from posenc import Rotary, RotaryAt
from posenc._arguments import checks
from posenc._arguments.arrays import Positions
from posenc._rotary.model_config import Keys
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._encode import encodings_at, warn_of_length
from posenc.torch._table_module import TableModule, kept_table

AnyPositions: TypeAlias = Positions | Tensor | RotaryAt | None
DTYPES = [dtype for dtype in tensors.DTYPES if dtype != torch.float64]
# the forms with each value twice: [v0 v1 ... v0 v1 ...] and [v0 v0 v1 v1 ...]; the other forms are "once", "sin,
# cos" (once, with the sines first) and "complex" (cos + i sin)
FORMS = {"twice": lambda x: torch.cat((x, x), -1), "in pairs": lambda x: x.repeat_interleave(2, -1)}


def rotate(
    x: Tensor, positions: AnyPositions = None, *, rotary: Rotary | None = None, inverse: bool | None = None
) -> Tensor:
    """Return rotated queries or keys, with the same bits as `posenc.Rotary.rotate`.

    Differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, on the CPU, with dtype float32, float16 or bfloat16.  The second-to-last axis
        must be that of the positions, as in (batch, heads, n, head_dim).
    positions : int, range, Tensor, array_like or posenc.RotaryAt, optional
        As for `posenc.Rotary.rotate`, or a tensor that meets the same conditions; or a `RotaryAt`, which
        holds cosines and sines.  Derivatives and torch.func compute the cosines and sines again.
    rotary : posenc.Rotary, optional
        The rotation, unless `positions` is a `RotaryAt`.
    inverse : bool, optional
        Rotate by the negative angles; by default False.  Not allowed with a `RotaryAt`, which has its own.

    Returns
    -------
    Tensor
        A new tensor with the shape and dtype of x.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        If `positions` requires grad while gradients are recorded, because a rotation is not differentiable
        with respect to positions.

    See Also
    --------
    rotate_ : Rotate in place.
    RotaryEmbedding : A module that replaces a model's ``rotary_emb``.

    Examples
    --------
    >>> import posenc, torch
    >>> rotary = posenc.Rotary(64)
    >>> q = torch.ones(1, 8, 3, 64)
    >>> posenc.torch.rotate(q, range(100, 103), rotary=rotary).shape
    torch.Size([1, 8, 3, 64])
    """
    return _rotate_tensor(x, positions, rotary, inverse, in_place=False)


def rotate_(
    x: Tensor, positions: AnyPositions = None, *, rotary: Rotary | None = None, inverse: bool | None = None
) -> Tensor:
    """Rotate queries or keys in place, with the same bits as `posenc.Rotary.rotate`.

    Differentiable with respect to x.

    Parameters
    ----------
    x : Tensor, shape (..., n, head_dim)
        The queries or keys, as for `rotate`.  They are overwritten, and must be contiguous in the last
        dimension.
    positions : int, range, Tensor, array_like or posenc.RotaryAt, optional
        As for `rotate`.
    rotary : posenc.Rotary, optional
        The rotation, unless `positions` is a `RotaryAt`.
    inverse : bool, optional
        Rotate by the negative angles; by default False.  Not allowed with a `RotaryAt`, which has its own.

    Returns
    -------
    Tensor
        The tensor `x` itself.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, for example if `x` is not on the CPU.
    RuntimeError
        While gradients are recorded, if `positions` requires grad, or if `x` requires grad and autograd
        forbids overwriting it, as for a leaf.

    See Also
    --------
    rotate : Return a new tensor.

    Examples
    --------
    >>> import posenc, torch
    >>> q = torch.ones(1, 8, 3, 64)
    >>> posenc.torch.rotate_(q, rotary=posenc.Rotary(64)) is q
    True
    """
    return _rotate_tensor(x, positions, rotary, inverse, in_place=True)


def _rotate_tensor(x: Tensor, positions: Any, rotary: Any, inverse: Any, in_place: bool) -> Tensor:
    at = positions if isinstance(positions, RotaryAt) else None
    if at is not None:
        if rotary is not None or inverse is not None:
            raise checks.both_given("inverse" if rotary is None else "rotary", "positions of type RotaryAt")
        rotary, inverse = at.rotary, at.inverse
    checks.check_type("rotary", rotary, Rotary, "a posenc.Rotary, unless positions is a posenc.RotaryAt")
    inverse = inverse is not None and checks.boolean("inverse", inverse)
    tensors.check_x(x, rotary.head_dim, DTYPES, "RotaryEmbedding")
    if tensors.is_direct(x, positions):
        if not in_place:
            return _write_rotated(tensors.dense_like(x), tensors.with_contiguous_last(x), positions, inverse, rotary)
        _write_rotated(x, x, positions, inverse, rotary)
        torch.autograd.graph.increment_version(x)
        return x
    if at is not None:
        positions = torch.from_numpy(at._positions)
    tensor = tensors.tensor_of_positions(x.shape[-2] if positions is None else positions, x.device)
    check_axes(tensor, rotary)
    checks.check_broadcast(tuple(tensor.shape), tuple(x.shape[:-1]), rotary.axes is not None)
    result = rotate_by_operator(x, tensor, inverse, tensors.text_of(rotary))
    return x.copy_(result) if in_place else result


def _write_rotated(out: Tensor, x: Tensor, positions: Any, inverse: bool, rotary: Rotary) -> Tensor:
    array, other = tensors.array_of(x), None if out is x else tensors.array_of(out)
    if isinstance(positions, RotaryAt):
        positions.rotate(array, out=other)
    else:
        rotary.rotate(array, tensors.array_of_positions(positions, x.device), inverse=inverse, out=other)
    return out


def check_axes(positions: Tensor, rotary: Rotary) -> None:
    """Check that positions have an element for each axis, if the rotation has several axes."""
    if rotary.axes is not None and positions.shape[:1] != (max(rotary.axes) + 1,):
        raise checks.axes_error(positions, max(rotary.axes) + 1)


# ---- operator ----------------------------------------------------------------------------------------------


def rotate_by_operator(x: Tensor, positions: Tensor, inverse: bool, rotary: str) -> Tensor:
    # torch.func and forward-mode differentiation need _Rotate
    in_transform = not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()
    function = _Rotate.apply if in_transform or tensors.is_dual(x) else torch.ops.posenc.rotate
    return function(tensors.with_contiguous_last(x), positions, inverse, rotary)


@torch.library.custom_op("posenc::rotate", mutates_args=())
def _rotate(x: Tensor, positions: Tensor, inverse: bool, rotary: str) -> Tensor:
    out = tensors.dense_like(x)
    return out if x.is_meta else _write_rotated(out, x, positions, inverse, tensors.specification_of(rotary))


_rotate.register_fake(lambda x, *_: tensors.dense_like(x))


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    _, positions, ctx.inverse, ctx.rotary = inputs
    ctx.save_for_backward(positions)
    ctx.save_for_forward(positions)


def _backward(context: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    """Return the gradient of x, which is grad rotated in the opposite direction and multiplied by the same
    scale.
    """
    # activation checkpointing allows only one access to saved_tensors
    (positions,) = context.saved_tensors
    return rotate_by_operator(grad, positions, not context.inverse, context.rotary), None, None, None


_rotate.register_autograd(_backward, setup_context=_save)


class _Rotate(torch.autograd.Function):
    """A version of posenc::rotate that torch.func and forward-mode differentiation support."""

    generate_vmap_rule = True
    forward = staticmethod(torch.ops.posenc.rotate)
    setup_context = staticmethod(_save)
    backward = staticmethod(_backward)      # type: ignore[assignment]

    @staticmethod
    def jvp(context: Any, tangent: Tensor, *_: None) -> Tensor:
        return rotate_by_operator(tangent, context.saved_tensors[0], context.inverse, context.rotary)


# ---- module ------------------------------------------------------------------------------------------------


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
        The number of positions in tables for compiled code, and for devices other than the CPU.  By default,
        a table on another device grows with the positions, up to 64 MiB; values at later positions, and those
        of compiled code, are computed on the CPU.
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
    index.  The tables are not buffers: other code cannot convert, overwrite or load them.  ``to`` removes the
    tables.  If the positions are on the device of x, later calls neither copy between devices nor
    synchronize.  Code compiled by ``torch.compile`` or ``torch.export`` contains the table.  Positions
    outside a table give NaN, because a check would have to wait for the device.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import RotaryEmbedding
    >>> rotary_emb = RotaryEmbedding({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
    >>> cos, sin = rotary_emb(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[0, 1, 131071]]))
    >>> cos.shape, cos.dtype
    (torch.Size([1, 3, 64]), torch.bfloat16)
    """

    _options = ("dtype",)

    def __init__(
        self, config: Any, *, length: int | None = None, max_len: SupportsIndex | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        form, hidden_size = "twice", None
        if isinstance(config, Rotary):
            if length is not None:
                raise ValueError(f"length is {checks.shown(length)}, expected None with a Rotary; set it in its scaling")
            rotations: dict[str | None, Rotary] = {None: config}
        else:
            keys = Keys(config)
            form, hidden_size = keys.properties.get("tables", "twice"), keys.get("hidden_size")
            rotations = {name: Rotary.from_config(config, name, length) for name in Rotary.layer_types(config)}
        super().__init__(rotations, max_len, lowest=1)
        self.dtype, self._form, self._hidden_size = dtype, form, hidden_size
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
        if layer_type not in self._specifications:
            raise ValueError(f"layer_type is {layer_type!r}, expected one of {list(self._specifications)}")
        return self._specifications[layer_type]

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
        cos, sin = self._values(x, positions, layer_type).chunk(2, -1)
        if self._form == "complex":
            return torch.complex(cos, sin)
        arranged = FORMS.get(self._form, Tensor.contiguous)
        return (arranged(sin), arranged(cos)) if self._form == "sin, cos" else (arranged(cos), arranged(sin))

    def _values(self, x: Tensor, positions: Tensor, layer_type: str | None) -> Tensor:
        """Return the cosines of all pairs, followed by their sines, in the dtype and on the device of the
        result.
        """
        rotary, dtype = self.rotary(layer_type), self.dtype
        if dtype is None:
            dtype = torch.float32 if self._form == "complex" else x.dtype
            tensors.check_dtype("x has dtype", dtype)
        if rotary.axes is not None and positions.ndim == 2:
            positions = positions.expand(max(rotary.axes) + 1, -1, -1)
        check_axes(positions, rotary)
        rows = self._rows_at(positions, dtype, x.device, layer_type)
        if rows is None:
            return encodings_at(positions, rotary, dtype, x.device)
        if rotary.axes is None:
            return rows
        axis_of_column = kept_table(self, torch.int64, x.device, layer_type)
        return rows.gather(0, axis_of_column.expand(1, *rows.shape[1:]))[0]

    def _new_table(self, dtype: torch.dtype, device: torch.device, specification: Rotary, length: int) -> Tensor:
        """Return a table of cosines and sines or, if dtype is int64, the axis of each of its columns."""
        if dtype == torch.int64:
            return torch.tensor((specification.axes or ()) * 2, device=device)
        return super()._new_table(dtype, device, specification.replace(axes=None), length)
