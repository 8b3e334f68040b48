"""The modules PositionalTable and PositionalEncoding, and the dataset ChunkDataset."""

from collections.abc import Callable, Iterator
from typing import Any, Self, SupportsFloat, SupportsIndex, TypeAlias, Unpack

import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn
from torch.utils.data import IterableDataset, get_worker_info

from posenc._arguments import checks
from posenc._encoding.encoding import Convention, Encoding, rows_of_chunk, without_durations
from posenc.torch import _tensor_arguments as tensors
from posenc.torch._encode import encoding_of, encodings_at, encodings_on_cpu
from posenc.torch._table_module import TableModule, kept_table

AnyPositions: TypeAlias = Tensor | ArrayLike | None
STORED = ("pe", "pos_encoding", "pos_table")    # tables in state_dicts of other modules, compared instead of loaded
COMPARED_ROWS = 4096                            # at most this many rows of them are compared


class PositionalTable(TableModule):
    """A module that returns sinusoidal positional encodings, without adding them to an input.

    ``forward()`` returns `max_sequence_length` rows, and ``forward(x)`` returns one row for each position of
    `x`.

    Parameters
    ----------
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    max_sequence_length : int, optional
        Initial number of rows, not a limit: the table grows if an input is longer.
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
    A state_dict may contain the table of another class, with the key ``pe``, ``pos_encoding`` or
    ``pos_table``.  `load_state_dict` does not load it, but raises a RuntimeError if it differs from the table
    of the module by more than float32 rounding.

    Examples
    --------
    >>> import torch
    >>> from posenc.torch import PositionalTable
    >>> pe = PositionalTable(6, 10)
    >>> pe().shape, pe(torch.zeros(2, 7, 6)).shape
    (torch.Size([10, 6]), torch.Size([7, 6]))
    """

    _length_name = "max_sequence_length"

    def __init__(
        self, d_model: SupportsIndex | Encoding, max_sequence_length: SupportsIndex | None = None,
        **convention: Unpack[Convention],
    ) -> None:
        encoding = without_durations(encoding_of(d_model, convention), type(self).__name__)
        super().__init__({None: encoding}, max_sequence_length)
        self.encoding = encoding
        self.d_model = self.encoding.d_model
        # a table also has the row of position -1, the padding of positions_from_mask
        self._first = -1 if self.encoding.position_offset > checks.LOWEST else 0
        self._like = torch.empty(0)         # has the dtype and device of the table that forward() returns

    @property
    def pe(self) -> Tensor:
        """The table, in the dtype and on the device of the module: a tensor of shape (rows, d_model)."""
        return kept_table(self, self._like.dtype, self._like.device)[1 - self._first : -1]

    def forward(self, x: Tensor | None = None, start: int = 0, positions: AnyPositions = None) -> Tensor:
        """Return the table, or the rows for the positions of x.

        Parameters
        ----------
        x : Tensor, shape (..., n, d_model), optional
            The result has the dtype and device of x and, unless `positions` is given, n rows.  The values of
            x are not used.
        start : int, optional
            The position of the first row, for decoding with a cache.
        positions : Tensor or array_like, optional
            Positions of any shape, used instead of `start` and n; see `PositionalEncoding` for graphs and
            other devices.

        Returns
        -------
        Tensor, shape (max_sequence_length, d_model), (n, d_model) or ``positions.shape + (d_model,)``
            The encodings, as a new tensor.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value, or if both `x` and `max_sequence_length` are None.
        RuntimeError
            If `positions` has a tangent, or requires grad while gradients are recorded.

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
            return self._encodings(x.shape[-2], start, positions, x).clone()
        if self._length is None:
            raise ValueError(f"x and {self._length_name} are None, expected a tensor or a length")
        return self._encodings(self._length, start, positions, self._like).clone()

    def _encodings(self, n: int, start: int, positions: Any, like: Tensor) -> Tensor:
        """Return n rows, or those of the positions, in the dtype and on the device of `like`."""
        dtype, device = like.dtype, like.device
        if positions is not None:
            positions = tensors.tensor_of_positions(positions, device)
            if start != 0:
                raise ValueError(f"start is {start} and positions is not None, expected only one of them")
            rows = self._rows_at(positions, dtype, device)
            return encodings_at(positions, self.encoding, dtype, device) if rows is None else rows
        compiling, table = torch.compiler.is_compiling(), None
        if not compiling:       # start + n could overflow in NumPy's arithmetic
            start = checks.integer("start", start, checks.LOWEST, "an integer; positions= takes a tensor")
        stop, is_recording = start + n, tensors.is_recording()
        if not is_recording:
            arguments, rows = self._tables.last
            if arguments == (dtype, device, start, n):
                return rows
            table = self._table(dtype, device, stop=stop) if start >= 0 else None
        elif self._length is not None and (compiling or tensors.is_tracing()):      # else, graphs have no table
            kept = kept_table(self, dtype, device)
            # in a traced program, the rows of NaN or another number of rows show that x is too long
            table = None if start < 0 or compiling and stop > self._length_of(kept) else kept
        if table is None:
            # a sum of tensors wraps around, but not for a smaller start, where exported programs accept any n
            if abs(start) >= 2**62:
                checks.check_domain((start, stop - 1))
            sequence: Any = range(start, stop) if tensors.is_eager() else torch.arange(n, device="cpu") + start
            return encodings_at(sequence, self.encoding, dtype, device)
        rows = table[start - self._first + 1 : stop - self._first + 1]
        if not is_recording:
            self._tables.last = (dtype, device, start, n), rows
        return rows

    def _apply(self, fn: Callable[..., Any], recurse: bool = True) -> Self:
        self._like = fn(self._like)
        return super()._apply(fn, recurse)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *arguments: Any) -> None:
        for path in (f"{prefix}{name}" for name in STORED if f"{prefix}{name}" in state_dict):
            stored = torch.as_tensor(state_dict.pop(path))
            if not self._agrees(stored):
                arguments[-1].append(                                       # the list of error messages
                    f"{path} of shape {tuple(stored.shape)} and dtype {stored.dtype} does not match {self.encoding} "
                    "up to float32 rounding; use the convention of the stored tensor (batch_first=False if its shape "
                    "is (n, 1, d_model)), or delete the key")
        super()._load_from_state_dict(state_dict, prefix, *arguments)

    def _agrees(self, stored: Tensor) -> bool:
        """Return whether a stored tensor has the values of the table up to float32 rounding."""
        *lengths, width = torch.atleast_1d(stored).shape
        has_shape = width == self.d_model and sum(length != 1 for length in lengths) <= 1
        if not (has_shape and stored.is_floating_point()) or stored.is_meta:
            return has_shape and stored.is_meta
        values = stored.detach().cpu().reshape(-1, width)[:COMPARED_ROWS].double()
        errors = (values - encodings_on_cpu(len(values), self.encoding, torch.float64)).abs()
        # a float32 angle has a relative error of a few times 2**-24, and is at most about as large as the row
        # number
        rows = torch.arange(1, len(values) + 1)[:, None]
        return bool((errors <= torch.finfo(stored.dtype).eps + 2**-20 * rows).all())


class Dropout(nn.Dropout):
    """Dropout that does not call PyTorch's operator, which takes microseconds, if it has no effect."""

    def forward(self, input: Tensor) -> Tensor:  # noqa: A002 (the name in torch)
        return super().forward(input) if self.training and self.p else input


class PositionalEncoding(PositionalTable):
    """A module that adds sinusoidal positional encodings to embeddings: ``dropout(x * x_scale + encodings)``.

    The module replaces the class of the same name in PyTorch's tutorial, and has no maximum length.
    ``forward()`` returns the table, multiplied by `alpha` if `learned_scale` is set.

    Parameters
    ----------
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    dropout : float, optional
        The probability of dropout, from 0.0 to 1.0.  A positive integer is refused, because similar classes
        take a length here; pass a length as `max_len`.
    max_len : int, optional
        Initial number of rows, not a limit: the table grows if an input is longer.
    batch_first : bool, optional
        If True (default), x has the shape (batch, n, d_model); if False, (n, batch, d_model) as in the
        tutorial.
    x_scale : float, optional
        The factor by which x is multiplied, by default 1.  "Attention is all you need" uses ``d_model**0.5``
        (section 3.4).
    learned_scale : float, optional
        If given, the encodings are multiplied by a parameter `alpha` with this initial value.  SpeechT5 and
        ESPnet use 1.0.
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
    The default convention is that of PyTorch's tutorial; keywords such as ``layout`` and ``exponents``
    reproduce other classes.  Position -1, which `positions_from_mask` gives to padding, is encoded like any
    other unless you pass ``padding_idx=-1``.

    Positions are encoded on the CPU in each call, unless a table has their rows: in graphs with `max_len`,
    and on other devices.  With `max_len`, such a table has the integer positions from -1 to ``max_len - 1``;
    other positions give NaN, because a check would have to wait for the device.  Without `max_len`, a table
    on another device grows, outside graphs.

    If `batch_first` is True, `load_state_dict` refuses a stored table of shape (max_len, 1, d_model), because
    classes that store this shape expect x of shape (n, batch, d_model).

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
        self, d_model: SupportsIndex | Encoding, dropout: float = 0.0, *,
        max_len: SupportsIndex | None = None, batch_first: bool = True, x_scale: SupportsFloat | None = None,
        learned_scale: SupportsFloat | None = None, **convention: Unpack[Convention],
    ) -> None:
        probability = tensors.real("dropout", dropout)
        if not 0 <= probability <= 1 or checks.is_index(dropout) and probability:
            raise ValueError(f"dropout is {dropout}, expected a float from 0 to 1; pass a length as max_len=")
        super().__init__(d_model, max_len, **convention)
        self.dropout = Dropout(probability)
        self.batch_first = checks.boolean("batch_first", batch_first)
        self.x_scale = None if x_scale is None else tensors.real("x_scale", x_scale)
        self.learned_scale = None if learned_scale is None else tensors.real("learned_scale", learned_scale)
        self.alpha = None if self.learned_scale is None else nn.Parameter(torch.tensor(self.learned_scale))

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

    def forward(self, x: Tensor | None = None, start: int = 0, positions: AnyPositions = None) -> Tensor:
        """Return ``dropout(x * x_scale + encodings)``, or the table if x is None.

        `alpha`, if set, multiplies the encodings.

        Parameters
        ----------
        x : Tensor, shape (batch, n, d_model) or (n, d_model), optional
            The embeddings.  If `batch_first` is False, the shape is (n, batch, d_model) or (n, d_model).
        start : int, optional
            The position of the first row, for decoding with a cache.
        positions : Tensor or array_like, optional
            Positions of shape (n,), used instead of `start`.  If x has three or more dimensions, positions
            may also have a shape of the same length as ``x.shape[:-1]`` that broadcasts to it.

        Returns
        -------
        Tensor
            The sum, with the shape, dtype and device of x, or the table if x is None.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value.
        RuntimeError
            If `positions` has a tangent, or requires grad while gradients are recorded.

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
            return self._scaled(super().forward(start=start, positions=positions))
        tensors.check_x(x, self.d_model)
        sequence_first = not self.batch_first and x.ndim > 2
        encodings = self._scaled(self._encodings(x.shape[0 if sequence_first else -2], start, positions, x))
        in_column = sequence_first and encodings.ndim < 3       # n positions along the first axis
        if positions is not None:
            checks.check_broadcast(tuple(encodings.shape[:-1]), tuple(x.shape[: 1 if in_column else -1]))
        if in_column:
            encodings = encodings.reshape(-1, *[1] * (x.ndim - 2), self.d_model)
        if self.x_scale is None:
            is_new = positions is not None and encodings.shape == x.shape and tensors.is_eager()
            return self.dropout(encodings.add_(x) if is_new else x + encodings)
        product = x * tensors.rounded_scale(tensors.constant("x_scale", self.x_scale), x.dtype)
        return self.dropout(product.add_(encodings) if tensors.is_eager() else product + encodings)

    def _scaled(self, encodings: Tensor) -> Tensor:
        return encodings if self.alpha is None else self.alpha * encodings

    def _agrees(self, stored: Tensor) -> bool:
        # the x of classes that store a table of shape (n, 1, d_model) has shape (n, batch, d_model)
        is_sequence_first = stored.ndim == 3 and stored.shape[1] == 1 < stored.shape[0]
        return not (self.batch_first and is_sequence_first) and super()._agrees(stored)


class ChunkDataset(IterableDataset[tuple[Tensor, Tensor]]):
    """A dataset that yields a table of any length in chunks.

    Each item is a pair of tensors: positions of shape (k,) and dtype int64, and their encodings of shape (k,
    d_model). Because an item is already a batch, pass ``batch_size=None`` to the DataLoader.

    Parameters
    ----------
    positions : int or range
        The positions of the rows; an integer n means ``range(n)``.
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    chunk_rows : int, optional
        Number of positions in a chunk; by default, as many as fit in 4 MiB.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16.
    **convention
        See `posenc.Encoding`.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    posenc.stream : Yield chunks as arrays, in one process.

    Notes
    -----
    Worker w of W computes chunks w, w + W, w + 2 W, ... with one thread.  A DataLoader takes one chunk from
    each worker in turn, so the chunks arrive in the order of the positions, with any number of workers.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> from posenc.torch import ChunkDataset
    >>> loader = DataLoader(ChunkDataset(10, 8, chunk_rows=4), batch_size=None)
    >>> [(positions.tolist(), tuple(values.shape)) for positions, values in loader]
    [([0, 1, 2, 3], (4, 8)), ([4, 5, 6, 7], (4, 8)), ([8, 9], (2, 8))]
    """

    def __init__(
        self, positions: SupportsIndex | range, d_model: SupportsIndex | Encoding, *,
        chunk_rows: SupportsIndex | None = None, dtype: torch.dtype = torch.float32,
        **convention: Unpack[Convention],
    ) -> None:
        tensors.check_dtype("dtype is", dtype)
        self.encoding = without_durations(encoding_of(d_model, convention), "ChunkDataset")
        positions = tensors.constant("positions", positions)
        self.positions = checks.range_of(positions, self.encoding.position_offset)
        self.dtype = dtype
        default = rows_of_chunk(self.encoding.d_model, dtype.itemsize)
        self.chunk_rows = default if chunk_rows is None else tensors.integer("chunk_rows", chunk_rows, 1)

    def __len__(self) -> int:
        return len(self.positions[:: self.chunk_rows])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, step, threads = (0, 1, None) if worker is None else (worker.id, worker.num_workers, 1)
        for chunk in range(first, len(self), step):
            positions = self.positions[chunk * self.chunk_rows : (chunk + 1) * self.chunk_rows]
            values = encodings_on_cpu(positions, self.encoding, self.dtype, threads)
            yield tensors.tensor_of_positions(positions, values.device), values
