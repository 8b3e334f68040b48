"""The modules PositionalTable and PositionalEncoding, and TableModule, the base class of modules that keep tables."""

from __future__ import annotations

import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Self, SupportsFloat, SupportsIndex, Unpack

import torch
from torch import Tensor, nn

from posenc import Encoding
from posenc._arguments import checks
from posenc._arguments.specification import Convention, changes_of
from posenc._core import kernel
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._encode import encoding_of, encodings_at, encodings_of_rows, encodings_on_cpu

TABLE_BYTES = 1 << 26               # the table grows to at most this size
TABLE_KEYS = ("pe", "pos_encoding")     # state_dict keys of the table in PyTorch's and other tutorials
COMPARED_ROWS = 4096                # load_state_dict compares at most this many rows of a stored table


class Tables(dict[Any, Tensor]):
    """A dict, also with tensors as attributes, whose copies and pickles are empty."""

    def __reduce__(self) -> tuple[type[Tables], tuple[()]]:
        return Tables, ()


class TableModule(nn.Module):
    """A module with tables that are neither parameters nor buffers, so that other code cannot convert or overwrite them."""

    def __init__(self) -> None:
        super().__init__()
        self._tables = Tables()

    def _new_table(self, dtype: torch.dtype, device: torch.device, key: Any) -> Tensor:
        raise NotImplementedError

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._tables = Tables()         # the old ones may take memory on another device
        return super()._apply(fn, recurse)


def kept_table(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any = None) -> Tensor:
    """Return a table that the module keeps; compute it in the first call."""
    if torch.compiler.is_compiling():
        attribute: Tensor = getattr(module._tables, _attribute(module, dtype, device, key))
        return attribute
    table = module._tables.get((dtype, device, key))
    return new_table(module, dtype, device, key) if table is None else table


@torch.compiler.assume_constant_result      # the table is computed while a graph is compiled, not by the graph
def _attribute(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any) -> str:
    """Return the name of a table's attribute; torch.compile does not see a new key of a dict that it has read."""
    table, name = module._tables.get((dtype, device, key)), f"{dtype}_{device}_{key}".replace(".", "_")
    setattr(module._tables, name, new_table(module, dtype, device, key) if table is None else table)
    return name


def new_table(module: TableModule, dtype: torch.dtype, device: torch.device, key: Any = None, *arguments: Any) -> Tensor:
    # a new thread has none of the modes of this thread: inference, fake tensors, transforms ...
    with ThreadPoolExecutor(1) as pool:
        table = pool.submit(module._new_table, dtype, device, key, *arguments).result()
    module._tables[dtype, device, key] = table
    return table


class PositionalTable(TableModule):
    """A module that returns sinusoidal positional encodings, without adding them to an input.

    ``forward()`` returns `max_sequence_length` rows, and ``forward(x)`` returns one row for each position of `x`.

    Parameters
    ----------
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    max_sequence_length : int, optional
        Initial number of rows.  The table grows if an input is longer.
    **convention
        See `posenc.Encoding`.

    Attributes
    ----------
    encoding : posenc.Encoding
        The specification of the table.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    PositionalEncoding : Adds the encodings to embeddings.
    encode : Encodings without a module.

    Notes
    -----
    A state_dict may contain the table of a tutorial's class, with the key ``pe`` or ``pos_encoding``.  `load_state_dict` does
    not load this table, but raises a RuntimeError if it differs from the module's table by more than float32 rounding.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import PositionalTable
    >>> pe = PositionalTable(6, 10)
    >>> pe().shape, pe(torch.zeros(2, 7, 6)).shape
    (torch.Size([10, 6]), torch.Size([7, 6]))
    """

    _length_name = "max_sequence_length"
    _options: tuple[str, ...] = ()          # the other arguments that extra_repr shows, unless they are None or True

    def __init__(
        self, d_model: SupportsIndex | Encoding, max_sequence_length: SupportsIndex | None = None,
        **convention: Unpack[Convention],
    ) -> None:
        super().__init__()
        if max_sequence_length is not None:
            max_sequence_length = tensors.integer("max_sequence_length", max_sequence_length, 0)
        self.encoding: Encoding = encoding_of(d_model, convention)
        self.d_model = self.encoding.d_model
        self.max_sequence_length = max_sequence_length
        self._like = torch.empty(0)         # has the dtype and device of the table that forward() returns

    @property
    def pe(self) -> Tensor:
        """The table, in the dtype and on the device of the module: a tensor of shape (rows, d_model).

        See Also
        --------
        forward : Return a copy of the table, or some of its rows.

        Examples
        --------
        >>> from posenc.torch import PositionalTable
        >>> PositionalTable(6, 10).half().pe.shape
        torch.Size([10, 6])
        """
        return kept_table(self, self._like.dtype, self._like.device)

    def forward(self, x: Tensor | None = None, *, start: int = 0, positions: Tensor | None = None) -> Tensor:
        """Return the table, or the rows for the positions of x.

        Parameters
        ----------
        x : Tensor, shape (..., n, d_model), optional
            The result has the dtype and device of x and, unless `positions` is given, n rows.  The values of x are not used.
        start : int, optional
            The position of the first row, for decoding with a cache.
        positions : Tensor, optional
            Positions of any shape, used instead of `start` and n.

        Returns
        -------
        Tensor, shape (max_sequence_length, d_model), (n, d_model) or ``positions.shape + (d_model,)``
            The encodings, as a new tensor.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value, or if both `x` and `max_sequence_length` are None.
        RuntimeError
            If `positions` requires grad or has a tangent.

        See Also
        --------
        PositionalEncoding.forward : Adds the encodings to x.

        Examples
        --------
        >>> import torch
        >>> from posenc.torch import PositionalTable
        >>> PositionalTable(6)(torch.zeros(2, 7, 6, dtype=torch.float64), start=99).shape
        torch.Size([7, 6])
        """
        if x is not None:
            tensors.check_x(x, self.d_model)
            return self._encodings(x.shape[-2], start, positions, x.dtype, x.device).clone()
        if self.max_sequence_length is None:
            raise ValueError(f"x and {self._length_name} are None, expected a tensor or a length")
        return self._encodings(self.max_sequence_length, start, positions, self._like.dtype, self._like.device).clone()

    def _encodings(self, n: int, start: int, positions: Tensor | None, dtype: torch.dtype, device: torch.device) -> Tensor:
        if positions is not None:
            tensors.check_positions(positions, device)
            if start != 0:
                raise ValueError(f"start is {start} and positions is not None, expected only one of them")
            return encodings_at(positions, self.encoding, dtype, device)
        if not torch.compiler.is_compiling():       # start + n could overflow in NumPy's arithmetic
            start = checks.integer("start", start, checks.LOWEST)
        return self._rows(start, n, dtype, device)

    def _rows(self, start: int, n: int, dtype: torch.dtype, device: torch.device) -> Tensor:
        """Return rows, and extend the table if necessary.  Compiled code reads the table only if max_sequence_length is set."""
        stop, table = start + n, None
        if not torch.compiler.is_compiling():
            table = self._tables.get((dtype, device, None))
            length = self.max_sequence_length or 0 if table is None else table.shape[0]
            if (table is None or stop > length) and start >= 0 and tensors.is_eager():
                limit = max(length, TABLE_BYTES // max(1, self.d_model * dtype.itemsize))
                if stop <= limit:       # other threads see either the old or the new table
                    rows = length if stop <= length else max(stop, min(2 * length, limit))
                    table = new_table(self, dtype, device, None, rows)
        elif self.max_sequence_length is not None:
            table = kept_table(self, dtype, device)
        if table is None or start < 0 or stop > table.shape[0]:
            return encodings_of_rows(start, n, self.encoding, dtype, device)
        return table[start:stop]

    def _new_table(self, dtype: torch.dtype, device: torch.device, key: None, rows: int | None = None) -> Tensor:
        rows = self.max_sequence_length or 0 if rows is None else rows
        return encodings_of_rows(0, rows, self.encoding, dtype, device)

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._like = fn(self._like)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for key in TABLE_KEYS:
            stored_table = state_dict.pop(prefix + key, None)
            if stored_table is not None and (mismatch := self._mismatch(stored_table)):
                arguments[-1].append(f"{prefix}{key} {mismatch}")                # the list of error messages
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _mismatch(self, table: Any) -> str:
        """Return "" if a stored table matches this module's table up to float32 rounding, else the difference as text."""
        if not isinstance(table, Tensor) or not table.is_floating_point():
            return f"has dtype {getattr(table, 'dtype', None)}, expected a floating-point tensor"
        shape, d = tuple(table.shape), self.d_model
        if shape[-1:] != (d,) or sum(length != 1 for length in shape[:-1]) > 1:
            return f"has shape {shape}, expected (max_len, {d}), (max_len, 1, {d}) or (1, max_len, {d})"
        if table.is_meta:
            return ""
        values = table.detach().cpu().reshape(-1, d)[:COMPARED_ROWS].double()
        rows = torch.arange(len(values), dtype=torch.float64)[:, None]
        # A float32 angle has a relative error of a few times 2**-24, and is at most about as large as the row number.
        tolerance = torch.finfo(table.dtype).eps + 2**-20 * (1 + rows)
        errors = (values - encodings_on_cpu(len(values), self.encoding, torch.float64)).abs()
        wrong_rows = (~(errors <= tolerance)).any(1)
        if not bool(wrong_rows.any()):
            return ""
        row = int(wrong_rows.nonzero()[0])
        return (f"does not match {self.encoding}: row {row} differs by {float(errors[row].max()):.2g}; "
                "use the convention of the stored table, or delete the key")

    def extra_repr(self) -> str:
        options = {name: getattr(self, name) for name in self._options}
        arguments = {self._length_name: self.max_sequence_length, **options, **changes_of(self.encoding)}
        changes = [f"{name}={value!r}" for name, value in arguments.items() if value is not None and value is not True]
        return ", ".join([str(self.d_model), *changes])


class PositionalEncoding(PositionalTable):
    """A module that adds sinusoidal positional encodings to embeddings: ``dropout(x * x_scale + encodings)``.

    The module replaces the class of the same name in PyTorch's tutorial, and has no maximum length.  ``forward()`` returns the
    table, multiplied by `alpha` if `learned_scale` is set.

    Parameters
    ----------
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    dropout : float, optional
        The probability of dropout, from 0.0 to 1.0.  A positive integer is refused, because similar classes take a length
        here; pass a length as `max_len`.
    max_len : int, optional
        Initial number of rows.  The table grows if an input is longer.
    batch_first : bool, optional
        If True (default), x has the shape (batch, n, d_model); if False, (n, batch, d_model) as in the tutorial.
    x_scale : float, optional
        The factor by which x is multiplied, by default 1.  "Attention is all you need" uses ``d_model**0.5`` (section 3.4).
    learned_scale : float, optional
        If given, the encodings are multiplied by a parameter `alpha` with this initial value.  SpeechT5 and ESPnet use 1.0.
    **convention
        See `posenc.Encoding`.

    Attributes
    ----------
    alpha : Parameter, shape ()
        The learned factor, or None if `learned_scale` is None.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    PositionalTable : Returns the encodings without adding them.
    add_to : Add encodings in place, without a module.

    Notes
    -----
    The default convention is that of PyTorch's tutorial; docs/torch.md lists the arguments that reproduce other classes.

    If `batch_first` is True, `load_state_dict` refuses a stored table of shape (max_len, 1, d_model), because classes that
    store this shape expect x of shape (n, batch, d_model).

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

    _length_name = "max_len"
    _options = ("batch_first", "x_scale", "learned_scale")

    def __init__(
        self, d_model: SupportsIndex | Encoding, dropout: float = 0.0, *, max_len: SupportsIndex | None = None,
        batch_first: bool = True, x_scale: SupportsFloat | None = None, learned_scale: SupportsFloat | None = None,
        **convention: Unpack[Convention],
    ) -> None:
        is_length = checks.is_index(dropout)
        dropout = tensors.real("dropout", dropout)
        if not 0 <= dropout <= 1 or is_length and dropout:
            raise ValueError(f"dropout is {dropout}, expected a float from 0.0 to 1.0; pass a length as max_len=")
        if max_len is not None:
            max_len = tensors.integer("max_len", max_len, 0)
        checks.boolean("batch_first", batch_first)
        super().__init__(d_model, max_len, **convention)
        self.dropout = nn.Dropout(dropout)
        self.batch_first = batch_first
        self.x_scale = None if x_scale is None else tensors.real("x_scale", x_scale)
        self.learned_scale = None if learned_scale is None else tensors.real("learned_scale", learned_scale)
        self.alpha = None if self.learned_scale is None else nn.Parameter(torch.tensor(self.learned_scale))
        # x_scale rounded to each dtype of x, as in add_to
        scales = {dtype: kernel.rounded(name, self.x_scale or 0.0) for dtype, name in tensors.DTYPES.items()}
        self._scales = {dtype: scale for dtype, scale in scales.items() if math.isfinite(scale)}

    def reset_parameters(self) -> None:
        """Set `alpha` to `learned_scale`, for example after construction on the meta device.

        Returns
        -------
        None
            This method does nothing if `learned_scale` is None.

        See Also
        --------
        torch.nn.Module.to_empty : Allocates uninitialized memory.

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
        """Return ``dropout(x * x_scale + encodings)``, or the table if x is None; `alpha`, if set, multiplies the encodings.

        Parameters
        ----------
        x : Tensor, shape (batch, n, d_model) or (n, d_model), optional
            The embeddings.  If `batch_first` is False, the shape is (n, batch, d_model) or (n, d_model).
        start : int, optional
            The position of the first row, for decoding with a cache.
        positions : Tensor, optional
            Positions of shape (n,), used instead of `start`.  If x has three or more dimensions, positions may also have a
            shape of the same length as ``x.shape[:-1]`` that broadcasts to it.

        Returns
        -------
        Tensor
            The sum, with the shape, dtype and device of x, or the table if x is None.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value.
        RuntimeError
            If `positions` requires grad or has a tangent.

        See Also
        --------
        PositionalTable.forward : Returns the encodings without adding them.

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
        tensors.check_x(x, self.d_model)
        sequence_first = not self.batch_first and x.ndim > 2
        column = (-1, *[1] * (x.ndim - 2)) if sequence_first else ()        # the shape of n positions along the first axis
        if positions is not None:
            tensors.check_positions(positions, x.device)
            in_column = sequence_first and positions.ndim < 2
            checks.check_broadcast(tuple(positions.shape), tuple(x.shape[: 1 if in_column else -1]))
            if in_column:
                positions = positions.reshape(column)
        encodings = self._encodings(x.shape[0 if sequence_first else -2], start, positions, x.dtype, x.device)
        if sequence_first and positions is None:
            encodings = encodings.reshape(*column, self.d_model)
        if self.x_scale is not None:
            if x.dtype not in self._scales:
                raise tensors.scale_error(self.x_scale, x.dtype)
            x = x * self._scales[x.dtype]
        total = x + encodings
        return total if self._dropout_is_identity() else self.dropout(total)

    def _encodings(self, n: int, start: int, positions: Tensor | None, dtype: torch.dtype, device: torch.device) -> Tensor:
        encodings = super()._encodings(n, start, positions, dtype, device)
        return encodings if self.alpha is None else self.alpha * encodings

    def _mismatch(self, table: Any) -> str:
        if self.batch_first and isinstance(table, Tensor) and table.ndim == 3 and table.shape[1] == 1 < table.shape[0]:
            return (f"has shape {tuple(table.shape)}, as in classes whose x has shape (n, batch, d_model), "
                    "but batch_first is True; pass batch_first=False, or delete the key")
        return super()._mismatch(table)

    def _dropout_is_identity(self) -> bool:
        """Return whether `dropout` can be skipped, because it has no effect and no hooks; False in compiled code."""
        dropout: Any = None if torch.compiler.is_compiling() else self._modules.get("dropout")
        return type(dropout) is nn.Dropout and not (
            dropout.training and dropout.p
            or dropout._forward_pre_hooks or dropout._forward_hooks
            or dropout._backward_pre_hooks or dropout._backward_hooks
            or nn.modules.module._has_any_global_hook()
        )
