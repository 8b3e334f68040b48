"""Encoding, the specification of a table, with the methods encode, add_to and stream."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, SupportsFloat, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import checks
from posenc._arguments.as_array import shown
from posenc._arguments.base_class import Form, Specification, set_attributes
from posenc._arguments.types import AnyDType, ArrayT, DTypeOf, Exponents, Layout, Odd, Order, Positions, ScalarT, Spacing
from posenc._core import kernel
from posenc._encoding.convention import (
    DEFAULTS,
    KEYWORDS,
    checked_convention,
    float64_frequencies,
    kernel_columns,
)
from posenc._encoding.stream import Chunk, chunks_of


class Encoding(Specification):
    """The specification of a table of sinusoidal positional encodings.

    By default, column ``2 i`` holds ``sin`` and column ``2 i + 1`` holds ``cos`` of ``position * base**(-2 i / d_model)``.
    Each value is correctly rounded to the output dtype.  An `Encoding` is immutable, hashable and picklable.

    Parameters
    ----------
    d_model : int
        Number of columns, from 0 to 2**24.
    base : float, optional
        A positive number.  Frequency i is ``frequency_scale * base**(-i / D)`` radians per position; see ``spacing`` for D.
    frequency_scale, position_offset, position_scale : float, optional
        The angle of frequency i, in radians, is ``(position + position_offset) * position_scale * frequency``, where the
        arguments are float64 and the arithmetic is exact.
    padding_idx : int, optional
        The position, without ``position_offset``, whose row is all zeros, as in fairseq.
    scale : float, optional
        The factor by which the values are multiplied.  Only the product is rounded.  ``x_scale`` of `add_to` multiplies the
        embeddings instead.
    odd : {"truncate", "zero", "error"}, optional
        For an odd d_model, ``"truncate"`` drops the second column of the last pair, ``"zero"`` makes the last column zero,
        and ``"error"`` raises a ValueError.
    spacing : {"paper", "endpoint"}, optional
        ``"paper"``: D = d_model / 2, rounded down with ``odd="zero"``.  ``"endpoint"``: the last frequency is exactly
        ``frequency_scale / base``.
    shift : float, optional
        A number subtracted from D.  Excludes ``spacing="endpoint"``.
    exponents : {"pair", "column"}, optional
        ``"pair"``: two columns share a frequency.  ``"column"``: column j of the interleaved order has the exponent
        -j / (2 D), or -j / (d_model - 1) with ``spacing="endpoint"``.
    frequencies : array_like of float64, optional
        The frequencies in radians per position, of any sign, one for each pair of columns (for each column with
        ``exponents="column"``).  Excludes base, spacing, shift and frequency_scale.
    layout : {"interleaved", "halves"}, optional
        ``"interleaved"``: sines and cosines alternate.  ``"halves"``: all sines precede all cosines, or follow them.
    order : {"sin", "cos"}, optional
        The first function of each pair.

    Attributes
    ----------
    d_model : int
        Number of columns.
    base, frequency_scale, position_offset, position_scale, scale, padding_idx, odd, spacing, shift, exponents, layout, order
        The values of the other keywords; real numbers are Python floats.
    frequencies : ndarray of float64
        The frequencies in radians per position.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, or if two arguments exclude each other.

    See Also
    --------
    encode : Return a table in one call, with the same keywords.
    preset : Return the encoding of a known model family.
    identify : Find the encoding of a table.

    Notes
    -----
    The default is the convention of Vaswani et al., "Attention is all you need", 2017, section 3.5.  ``layout="halves",
    spacing="endpoint"`` is the convention of tensor2tensor's ``get_timing_signal_1d``, of fairseq, Whisper and others;
    docs/conventions.md names the sources of more conventions.

    Examples
    --------
    >>> from posenc import Encoding
    >>> enc = Encoding(4, base=100.0)
    >>> enc
    Encoding(4, base=100.0)
    >>> enc.encode(2, dtype="float64")
    array([[0.        , 1.        , 0.        , 1.        ],
           [0.84147098, 0.54030231, 0.09983342, 0.99500417]])
    """

    __slots__ = ("_columns", "_frequencies", "d_model", *(DEFAULTS.keys() - {"frequencies"}))
    _form = Form("d_model", "convention", KEYWORDS, ("positions", "dtype"))

    d_model: int
    base: float
    frequency_scale: float
    position_offset: float
    position_scale: float
    padding_idx: int | None
    scale: float
    odd: Odd
    spacing: Spacing
    shift: float | None
    exponents: Exponents
    layout: Layout
    order: Order
    _columns: kernel.Columns
    _frequencies: NDArray[np.float64] | None

    def __init__(
        self,
        d_model: SupportsIndex,
        *,
        base: SupportsFloat = 10000.0,
        frequency_scale: SupportsFloat = 1.0,
        position_offset: SupportsFloat = 0.0,
        position_scale: SupportsFloat = 1.0,
        padding_idx: SupportsIndex | None = None,
        scale: SupportsFloat = 1.0,
        odd: Odd = "truncate",
        spacing: Spacing = "paper",
        shift: SupportsFloat | None = None,
        exponents: Exponents = "pair",
        frequencies: ArrayLike | None = None,
        layout: Layout = "interleaved",
        order: Order = "sin",
    ) -> None:
        arguments = locals()
        with kernel.default_environment():
            d_model, convention = checked_convention(d_model, {name: arguments[name] for name in DEFAULTS})
            columns = kernel_columns(d_model, convention)
            set_attributes(self, d_model, convention, _columns=columns, _frequencies=None)

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The frequencies in radians per position, rounded to float64, in a read-only array.

        They are not multiplied by ``position_scale``.  A frequency beyond the range of float64 is 0 or infinite.

        See Also
        --------
        Encoding : The keywords that define the frequencies.

        Examples
        --------
        >>> from posenc import Encoding
        >>> Encoding(8).frequencies
        array([1.   , 0.1  , 0.01 , 0.001])
        """
        values = self._frequencies
        if values is None:
            values = float64_frequencies(self.d_model, self._keywords)
            values = np.frombuffer(values.tobytes())        # a view of bytes, which setflags cannot make writeable
            object.__setattr__(self, "_frequencies", values)
        return values

    @overload
    def encode(
        self, positions: Positions, *, dtype: AnyDType | None = ..., out: ArrayT, threads: SupportsIndex | None = ...,
    ) -> ArrayT: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: Literal["float32"] | None = ..., out: None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[np.float32]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: DTypeOf[ScalarT], out: None = ..., threads: SupportsIndex | None = ...,
    ) -> NDArray[ScalarT]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: AnyDType | None = ..., out: NDArray[Any] | None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[Any]: ...

    def encode(
        self, positions: Positions, *, dtype: AnyDType | None = None, out: NDArray[Any] | None = None,
        threads: SupportsIndex | None = None,
    ) -> NDArray[Any]:
        """Return encodings, correctly rounded at every position: see `posenc.encode`."""
        return kernel.encode(self._columns, positions, dtype, out, threads)

    def add_to(
        self, x: ArrayT, positions: Positions | None = None, *, x_scale: SupportsFloat = 1.0,
        threads: SupportsIndex | None = None,
    ) -> ArrayT:
        """Add encodings to embeddings in place, without computing a table first: see `posenc.add_to`."""
        kernel.add_to(self._columns, x, positions, x_scale, threads)
        return x

    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk_rows: SupportsIndex | None = ...,
        dtype: AnyDType | None = ..., out: NDArray[ScalarT], threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[ScalarT]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk_rows: SupportsIndex | None = ...,
        dtype: Literal["float32"] | None = ..., out: None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[np.float32]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk_rows: SupportsIndex | None = ...,
        dtype: DTypeOf[ScalarT], out: None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[ScalarT]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk_rows: SupportsIndex | None = ...,
        dtype: AnyDType | None = ..., out: NDArray[Any] | None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[Any]]: ...

    def stream(
        self, positions: SupportsIndex | range | None = None, *, chunk_rows: SupportsIndex | None = None,
        dtype: AnyDType | None = None, out: NDArray[Any] | None = None, threads: SupportsIndex | None = None,
    ) -> Iterator[Chunk[Any]]:
        """Yield the encodings of many positions chunk by chunk, in constant memory: see `posenc.stream`."""
        return chunks_of(self.encode, self.d_model, self.position_offset, positions, chunk_rows, dtype, out, threads)


def check_encoding(encoding: Any) -> None:
    """Raise an error unless a value is an Encoding; for an int, a str or a dict, the error shows a call that returns one."""
    if isinstance(encoding, Encoding):
        return
    value = shown(encoding)
    calls = {int: f"Encoding({value})", str: f"preset({value}, d_model)", dict: "Encoding.from_dict(encoding)"}
    such_as = f" such as posenc.{calls[type(encoding)]}" if type(encoding) in calls else ""
    raise checks.wrong_type("encoding", encoding, f"a posenc.Encoding{such_as}")
