"""Encoding, the specification of a table, with the methods encode, add_to and stream; and a cache of encodings."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from typing import Any, SupportsFloat, SupportsIndex, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import checks
from posenc._arguments.checks import BEYOND, LOWEST, shown
from posenc._arguments.specification import (
    AnyDType,
    ArrayT,
    Exponents,
    Keyword,
    Layout,
    Odd,
    Order,
    Positions,
    Spacing,
    Specification,
    keywords_of,
)
from posenc._core import kernel
from posenc._encoding.columns import float64_frequencies, kernel_columns, width
from posenc._encoding.stream import Chunk, chunks_of


def _offset(name: str, value: Any) -> float:
    number = checks.real(name, value)
    if not LOWEST <= number < BEYOND:
        raise ValueError(f"{name} is {number!r}, expected -2**63 <= {name} < 2**63")
    return number


@dataclass(frozen=True, eq=False, repr=False)
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
        A number other than D, which is subtracted from D; a number above D gives growing frequencies.  Excludes
        ``spacing="endpoint"``.
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
    posenc.check.identify : Find the encoding of a table.

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

    _group = "convention"

    d_model: Keyword[SupportsIndex, int] = Keyword(MISSING, width)
    _: KW_ONLY
    base: Keyword[SupportsFloat, float] = Keyword(
        10000.0, checks.positive, "the frequencies decrease from 1 to about 1/base (default 10000)"
    )
    frequency_scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real, "multiplies the frequencies")
    position_offset: Keyword[SupportsFloat, float] = Keyword(0.0, _offset, "added to the positions")
    position_scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real, "multiplies position + offset")
    padding_idx: Keyword[SupportsIndex | None, int | None] = Keyword(
        None, checks.position, "position whose row is all zeros"
    )
    scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real, "multiplies the values")
    odd: Keyword[Odd, Odd] = Keyword(
        "truncate", get_args(Odd), "for an odd number of columns: drop the last one, make it zero, or refuse"
    )
    spacing: Keyword[Spacing, Spacing] = Keyword(
        "paper", get_args(Spacing),
        "paper: frequency i is base**(-i/n); endpoint: base**(-i/(n-1)), so that the last one is 1/base", excludes=("shift",),
    )
    shift: Keyword[SupportsFloat | None, float | None] = Keyword(
        None, checks.real, "frequency i is base**(-i/(n-X))", excludes=("spacing",)
    )
    exponents: Keyword[Exponents, Exponents] = Keyword(
        "pair", get_args(Exponents), "pair: the two columns of a pair share a frequency; "
        "column: column j has the frequency base**(-j/columns), a common error in code",
    )
    frequencies: Keyword[ArrayLike | None, NDArray[np.float64]] = Keyword(
        None, checks.frequencies, "in radians per position; replaces base, frequency scale, spacing and shift",
        excludes=("base", "spacing", "shift", "frequency_scale"), attribute=lambda encoding: encoding._frequencies,
    )
    layout: Keyword[Layout, Layout] = Keyword(
        "interleaved", get_args(Layout), "interleaved: sines and cosines alternate; halves: one half each"
    )
    order: Keyword[Order, Order] = Keyword("sin", get_args(Order), "first function of a pair of columns")

    def __post_init__(self) -> None:
        with kernel.default_environment():
            self._check_keywords()
            if self.odd == "error" and self.d_model % 2:
                raise ValueError(f"d_model is {self.d_model}, expected an even number with odd='error'")
            _ = self._columns                           # refuses a wrong shift or number of frequencies

    @functools.cached_property
    def _columns(self) -> kernel.Columns:
        return kernel_columns(self.d_model, keywords_of(self))

    @functools.cached_property
    def _frequencies(self) -> NDArray[np.float64]:
        values = float64_frequencies(self.d_model, keywords_of(self))
        return np.frombuffer(values.tobytes())          # a view of bytes, which setflags cannot make writeable

    @overload
    def encode(
        self, positions: Positions, *, dtype: AnyDType | None = ..., out: ArrayT, threads: SupportsIndex | None = ...,
    ) -> ArrayT: ...
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

    def stream(
        self, positions: SupportsIndex | range | None = None, *, chunk_rows: SupportsIndex | None = None,
        dtype: AnyDType | None = None, out: NDArray[Any] | None = None, threads: SupportsIndex | None = None,
    ) -> Iterator[Chunk]:
        """Yield the encodings of many positions chunk by chunk, in constant memory: see `posenc.stream`."""
        return chunks_of(self, positions, chunk_rows, dtype, out, threads)


KEYWORDS = Encoding._keywords
DEFAULTS: dict[str, Any] = {name: keyword.default for name, keyword in KEYWORDS.items()}


def check_encoding(encoding: Any) -> None:
    """Raise an error unless a value is an Encoding; for an int, a str or a dict, the error shows a call that returns one."""
    if isinstance(encoding, Encoding):
        return
    value = shown(encoding)
    calls = {int: f"Encoding({value})", str: f"preset({value}, d_model)", dict: "Encoding.from_dict(encoding)"}
    such_as = f" such as posenc.{calls[type(encoding)]}" if type(encoding) in calls else ""
    raise checks.wrong_type("encoding", encoding, f"a posenc.Encoding{such_as}")


WIDEST_CACHED = 2**16                   # columns; an Encoding of this width takes 4 MB, or more with an extreme base
CACHEABLE = {int, float, str, type(None), np.float64, np.float32}   # no tensors, whose hash does not depend on their value
_cached = functools.lru_cache(maxsize=8, typed=True)(Encoding)


def cached_encoding(d_model: Any, convention: Mapping[str, Any]) -> Encoding:
    """Return d_model if it is an Encoding, else the Encoding with d_model columns and these keywords.

    The Encoding comes from the cache if d_model is an int of at most WIDEST_CACHED and the types of all keywords are CACHEABLE.
    """
    if isinstance(d_model, Encoding):
        for name in convention:
            raise TypeError(f"an Encoding and {name} are both given, expected only one of them; use replace({name}=...)")
        return d_model
    if isinstance(d_model, str):
        raise checks.wrong_type("d_model", d_model, "an integer or an Encoding such as posenc.preset(name, d_model)")
    if type(d_model) is int and d_model <= WIDEST_CACHED and all(map(_is_cacheable, convention.values())):
        return _cached(d_model, **convention)
    return Encoding(d_model, **convention)


def encoding_for(x: Any, encoding: Encoding | None, convention: Mapping[str, Any]) -> Encoding:
    """Return `encoding` if it fits x.  If `encoding` is None, return one with as many columns as x."""
    if encoding is None:
        return cached_encoding(x.shape[-1], convention)
    check_encoding(encoding)
    if vars(encoding)["d_model"] != x.shape[-1]:        # faster than the attribute
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {encoding.d_model})")
    return cached_encoding(encoding, convention)


def _is_cacheable(value: Any) -> bool:
    return type(value) in CACHEABLE or type(value) is tuple and CACHEABLE.issuperset(map(type, value))
