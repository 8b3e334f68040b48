"""Encoding, the specification of a table; a cache of encodings; and encode, add_to and stream.

The functions encode, add_to and stream call the methods of the same names on an `Encoding`, from the cache if
possible.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from typing import Any, SupportsFloat, SupportsIndex, Unpack, get_args, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import checks
from posenc._arguments.arrays import AnyDType, ArrayT, Positions
from posenc._arguments.checks import shown
from posenc._arguments.specification import Convention, Exponents, Keyword, Layout, Odd, Order, Spacing, Specification
from posenc._core import kernel
from posenc._encoding.chunks import Chunk, chunks_of
from posenc._encoding.columns import (
    checked_width,
    columns_of_convention,
    float64_frequencies,
    has_durations,
    width_of,
)

SPACED = ("base", "spacing", "shift", "frequency_scale")        # the keywords that frequencies and periods replace


def _offset(name: str, value: Any) -> float:
    number = checks.real(name, value)
    checks.check_domain((number,), name=name)
    return number


@dataclass(frozen=True, eq=False, repr=False)
class Encoding(Specification):
    """The specification of a table of sinusoidal positional encodings.

    By default, column ``2 i`` holds ``sin`` and column ``2 i + 1`` holds ``cos`` of ``position * base**(-2 i
    / d_model)``. Each value is correctly rounded to the output dtype.  An `Encoding` is immutable, hashable
    and picklable.

    Parameters
    ----------
    d_model : int, optional
        Number of columns, from 0 to 2**24.  It may be left out with ``frequencies`` or ``periods``, which
        determine it.
    base : float, optional
        A positive number.  Frequency i is ``frequency_scale * base**(-i / D)`` radians per position; see
        ``spacing`` for D.
    frequency_scale, position_offset, position_scale : float, optional
        The angle of frequency i, in radians, is ``(position + position_offset) * position_scale *
        frequency``, where the arguments are float64 and the arithmetic is exact.
    padding_idx : int, optional
        The position, without ``position_offset``, whose row is all zeros, as in fairseq.  `add_to` leaves
        these rows of x as they are, unless x_scale differs from 1.
    scale : float, optional
        The factor by which the values are multiplied.  Only the product is rounded.  ``x_scale`` of `add_to`
        multiplies the embeddings instead.
    odd : {"truncate", "zero", "error"}, optional
        For an odd d_model, ``"truncate"`` drops the second column of the last pair, ``"zero"`` makes the last
        column zero, and ``"error"`` raises a ValueError.
    spacing : {"paper", "endpoint"}, optional
        ``"paper"``: D = d_model / 2, rounded down with ``odd="zero"``.  ``"endpoint"``: the last frequency is
        exactly ``frequency_scale / base``.
    shift : float, optional
        A number other than D, which is subtracted from D; a number above D gives growing frequencies.
        Excludes ``spacing="endpoint"``.
    exponents : {"pair", "column"}, optional
        ``"pair"``: two columns share a frequency.  ``"column"``: column j of the interleaved order has the exponent
        -j / (2 D), or -j / (d_model - 1) with ``spacing="endpoint"``.
    frequencies : array_like of float64, optional
        The frequencies in radians per position, of any sign, one for each pair of columns (for each column
        with ``exponents="column"``).  Excludes base, spacing, shift and frequency_scale.
    periods : array_like or sequence of timedeltas, optional
        The periods, one for each pair of columns, in place of ``frequencies``; frequency i is exactly ``1 /
        period`` turns. Numbers are in the unit of the positions; an integer is exact.  Durations are
        ``numpy.timedelta64``, other timedeltas or texts such as ``"90m"``, with one of NumPy's units W, D, h,
        m, s, ms, us, ns, ps, fs and as.  The positions are then datetimes or durations of any unit: dtype
        datetime64 or timedelta64, or a column of pandas, polars or Arrow.
    layout : {"interleaved", "halves"}, optional
        ``"interleaved"``: sines and cosines alternate.  ``"halves"``: all sines precede all cosines, or
        follow them.
    order : {"sin", "cos"}, optional
        The first function of each pair.

    Attributes
    ----------
    d_model : int
        Number of columns.
    base, frequency_scale, position_offset, position_scale, scale, padding_idx, odd, spacing, shift,
    exponents, layout, order
        The values of the other keywords; real numbers are Python floats.
    periods : tuple or None
        Numbers, or durations as texts.
    frequencies : ndarray of float64
        The frequencies in radians per position, or per second if the periods are durations.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, if two arguments exclude each other, or if a frequency other
        than 0 is outside 2**-3400 to 2**2200 turns per position.

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

    d_model: Keyword[SupportsIndex | None, int] = Keyword(None, checked_width)
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
        excludes=(*SPACED, "periods"), attribute=lambda encoding: encoding._frequencies,
    )
    periods: Keyword[ArrayLike | Sequence[timedelta] | None, tuple[int | float | str, ...] | None] = Keyword(
        None, checks.periods, "in the unit of the positions; replaces frequencies", excludes=(*SPACED, "frequencies"),
    )
    layout: Keyword[Layout, Layout] = Keyword(
        "interleaved", get_args(Layout), "interleaved: sines and cosines alternate; halves: one half each"
    )
    order: Keyword[Order, Order] = Keyword("sin", get_args(Order), "first function of a pair of columns")

    def __post_init__(self) -> None:
        with kernel.default_environment():
            self._check_keywords()
            if vars(self)["d_model"] is None:
                vars(self)["d_model"] = width_of(self._values)
            if self._has_durations and (self.position_offset or self.padding_idx is not None):
                raise ValueError("position_offset or padding_idx is given with periods that are durations")
            if self.odd == "error" and self.d_model % 2:
                raise ValueError(f"d_model is {self.d_model}, expected an even number with odd='error'")
            _ = self._columns                           # refuses a wrong shift or number of frequencies

    @functools.cached_property
    def _columns(self) -> kernel.Columns:
        return columns_of_convention(self.d_model, self._values)

    @functools.cached_property
    def _has_durations(self) -> bool:
        return has_durations(self._values)

    def _located(self, positions: Any) -> tuple[kernel.Columns, Any]:
        """Return the columns, and positions as numbers; datetimes become integers."""
        if not self._has_durations:
            return self._columns, positions
        times = checks.times_of("positions", positions)
        return _columns_in(self, checks.attoseconds_of(times.dtype)), times.view(np.int64)

    @functools.cached_property
    def _frequencies(self) -> NDArray[np.float64]:
        values = float64_frequencies(self.d_model, self._values)
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
        columns, positions = self._located(positions) if self._has_durations else (self._columns, positions)
        return kernel.encode(columns, positions, dtype, out, threads)

    def add_to(
        self, x: ArrayT, positions: Positions | None = None, *, x_scale: SupportsFloat = 1.0,
        threads: SupportsIndex | None = None,
    ) -> ArrayT:
        """Add encodings to embeddings in place, without computing a table first: see `posenc.add_to`."""
        columns, positions = self._located(positions) if self._has_durations else (self._columns, positions)
        kernel.add_to(columns, x, positions, x_scale, threads)
        return x

    def stream(
        self, positions: SupportsIndex | range | None = None, *, chunk_rows: SupportsIndex | None = None,
        dtype: AnyDType | None = None, out: NDArray[Any] | None = None, threads: SupportsIndex | None = None,
    ) -> Iterator[Chunk]:
        """Yield the encodings of many positions chunk by chunk, in constant memory: see `posenc.stream`."""
        return chunks_of(without_durations(self, "stream"), positions, chunk_rows, dtype, out, threads)


@functools.lru_cache(maxsize=8)
def _columns_in(encoding: Encoding, unit: int) -> kernel.Columns:
    """Return the columns for datetimes or durations in a unit, which is given in attoseconds."""
    with kernel.default_environment():
        return columns_of_convention(encoding.d_model, encoding._values, unit)


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


def without_durations(encoding: Encoding, user: str) -> Encoding:
    """Return the encoding; raise a TypeError if it takes datetimes, because `user` has only numbers as positions."""
    if encoding._has_durations:
        raise TypeError(f"periods are durations, but {user} takes no times, expected numbers in the unit of the positions")
    return encoding


def checked_positions(encoding: Encoding, positions: Any) -> range | NDArray[Any]:
    """Return positions for an encoding as a range or an array, after checks."""
    if encoding._has_durations:
        return checks.times_of("positions", positions)
    return checks.positions_of(positions, encoding.position_offset)


WIDE, WIDEST_CACHED = 2**12, 2**16      # columns; an Encoding of 2**16 takes 5 MB, or more with an extreme base
CACHEABLE = {int, float, str, type(None), np.float64, np.float32}   # no tensors, whose hash does not depend on their value
_cached = functools.lru_cache(maxsize=256, typed=True)(Encoding)
_cached_wide = functools.lru_cache(maxsize=8, typed=True)(Encoding)


def cached_encoding(d_model: Any, convention: Mapping[str, Any]) -> Encoding:
    """Return d_model if it is an Encoding, else the Encoding with d_model columns and these keywords.

    The Encoding comes from the cache if d_model is an int of at most WIDEST_CACHED and the types of all
    keywords are CACHEABLE.
    """
    if isinstance(d_model, Encoding):
        for name in convention:
            raise TypeError(f"an Encoding and {name} are both given, expected only one of them; use replace({name}=...)")
        return d_model
    if isinstance(d_model, str):
        raise checks.wrong_type("d_model", d_model, "an integer or an Encoding such as posenc.preset(name, d_model)")
    if (d_model is None or type(d_model) is int and d_model <= WIDEST_CACHED) and all(map(_is_cacheable, convention.values())):
        return (_cached_wide if d_model is not None and d_model > WIDE else _cached)(d_model, **convention)
    return Encoding(d_model, **convention)


def width_for(x: Any, encoding: Encoding | None, convention: Mapping[str, Any]) -> Any:
    """Return the number of columns of x, or `encoding`, unless it is None; check that x has as many columns."""
    if "d_model" in convention:
        raise TypeError("unexpected keyword argument 'd_model'; the last axis of x has this length")
    if encoding is None:
        return x.shape[-1]
    check_encoding(encoding)
    if vars(encoding)["d_model"] != x.shape[-1]:        # faster than the attribute
        raise ValueError(f"x has shape {tuple(x.shape)}, expected (..., {encoding.d_model})")
    return encoding


def _is_cacheable(value: Any) -> bool:
    return type(value) in CACHEABLE or type(value) is tuple and CACHEABLE.issuperset(map(type, value))


# ---- functions -------------------------------------------------------------------------------------------------------


@overload
def encode(
    positions: Positions, d_model: SupportsIndex | Encoding | None = None, *, dtype: AnyDType | None = ..., out: ArrayT,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> ArrayT: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex | Encoding | None = None, *, dtype: AnyDType | None = ...,
    out: NDArray[Any] | None = ..., threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[Any]: ...


def encode(
    positions: Positions, d_model: SupportsIndex | Encoding | None = None, *, dtype: AnyDType | None = None,
    out: NDArray[Any] | None = None, threads: SupportsIndex | None = None, **convention: Unpack[Convention],
) -> NDArray[Any]:
    """Return sinusoidal positional encodings, correctly rounded at every position.

    Parameters
    ----------
    positions : int, range or array_like
        An integer n means ``range(n)``.  An array of integers or real numbers may have any shape; a column from pandas, polars
        or Arrow must have no nulls.  An array or tensor of shape () is one position.  A DataFrame with one column has shape
        (n, 1); pass the column, or call `points`.  Datetimes and durations need ``periods`` that are durations; NaT gives a row
        of NaN.
        Positions must be in [-2**63, 2**63), with and without `position_offset`; NaN and infinity give rows of NaN.  Positions
        of magnitude above 2048 in float16, or 256 in bfloat16, are refused, because they may be rounded integers.
    d_model : int or Encoding, optional
        Number of columns, which may be left out with ``frequencies`` or ``periods``; or an encoding, which
        replaces d_model and the keywords of a convention.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the result, in any spelling that NumPy accepts; by default that of `out`, else float32.
        bfloat16 needs ``ml_dtypes``, or an array of uint16 as `out`, which then contains the bits.
    out : ndarray, shape ``positions.shape + (d_model,)``, optional
        The array to write to.  Its last dimension must be contiguous, and its rows must not overlap.
    threads : int, optional
        The number of threads, at least 1.  The default depends on the size of the table and on the limits of
        the process.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray, shape ``positions.shape + (d_model,)``
        `out`, or a new array.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.
    ImportError
        If `dtype` is bfloat16, ``ml_dtypes`` is not installed and `out` is None.

    See Also
    --------
    add_to : Add the same values to embeddings, without building the table.
    stream : Yield the same values chunk by chunk, for tables larger than memory.
    grid : Encode the cells of images and volumes.

    Notes
    -----
    By default column ``2 i`` is ``sin`` and column ``2 i + 1`` is ``cos`` of ``position * 10000**(-2 i / d_model)`` radians,
    as in Vaswani et al., "Attention is all you need", 2017, section 3.5.  Each value is computed as if with infinite precision,
    then rounded once, to nearest; docs/numerics.md derives the error bounds.

    Examples
    --------
    >>> import posenc
    >>> posenc.encode(3, 4)
    array([[ 0.        ,  1.        ,  0.        ,  1.        ],
           [ 0.84147096,  0.5403023 ,  0.00999983,  0.99995   ],
           [ 0.9092974 , -0.41614684,  0.01999867,  0.9998    ]], dtype=float32)
    >>> posenc.encode(range(10**18, 10**18 + 2), 512).shape
    (2, 512)
    """
    return cached_encoding(d_model, convention).encode(positions, dtype=dtype, out=out, threads=threads)


def add_to(
    x: ArrayT, positions: Positions | None = None, *, encoding: Encoding | None = None, x_scale: SupportsFloat = 1.0,
    threads: SupportsIndex | None = None, **convention: Unpack[Convention],
) -> ArrayT:
    """Add encodings to embeddings in place, ``x * x_scale + encode(...)``, without building the table.

    Parameters
    ----------
    x : ndarray, shape (..., n, d_model)
        The embeddings, of dtype float32, float64, float16 or bfloat16, with a contiguous last dimension.
        They are overwritten.
    positions : None, int, range or array_like, optional
        None means ``range(n)``; an integer must equal n; a range must have n positions.  An array must have
        shape (n,), or it must have as many dimensions as ``x.shape[:-1]`` and broadcast to this shape.
    encoding : Encoding, optional
        An encoding to use instead of the keywords of a convention.
    x_scale : float, optional
        The factor by which x is multiplied; ``scale`` multiplies the encodings instead.  The factor, the
        product and the sum are each rounded once to the dtype of x.
    threads : int, optional
        As in `encode`.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray
        The array `x` itself.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; nothing is written.

    See Also
    --------
    encode : Return the encodings as a table.
    positions_from_mask : Compute the positions of padded batches.

    Notes
    -----
    Vaswani et al., "Attention is all you need", 2017, section 3.4, multiply the embeddings by ``x_scale=d_model**0.5``.

    Examples
    --------
    >>> import numpy as np, posenc
    >>> x = np.ones((2, 3, 4), np.float32)
    >>> posenc.add_to(x) is x
    True
    >>> bool((x == 1 + posenc.encode(3, 4)).all())
    True
    """
    if not isinstance(x, np.ndarray):
        raise checks.wrong_type("x", x, "a numpy.ndarray")
    if x.ndim == 0:
        raise ValueError("x has shape (), expected (..., n, d_model)")
    specification = cached_encoding(width_for(x, encoding, convention), convention)
    return specification.add_to(x, positions, x_scale=x_scale, threads=threads)


def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex | Encoding | None = None, *,
    chunk_rows: SupportsIndex | None = None, dtype: AnyDType | None = None, out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None, **convention: Unpack[Convention],
) -> Iterator[Chunk]:
    """Yield the encodings of many positions chunk by chunk, in constant memory.

    Parameters
    ----------
    positions : int, range or None
        The positions of the rows; an integer n means ``range(n)``, and None means 0, 1, 2, ... up to the last
        position in the domain of `encode`.
    d_model : int or Encoding, optional
        Number of columns, which may be left out with ``frequencies`` or ``periods``; or an encoding, which
        replaces d_model and the keywords of a convention.
    chunk_rows : int, optional
        Number of rows in a chunk.  The default is the number of rows of `out`, or, without `out`, as many as
        fit in 4 MiB.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        The dtype of the values, as in `encode`; by default that of `out`, else float32.
    out : ndarray, shape (chunk_rows, d_model), optional
        The array that every chunk overwrites; a last chunk of k rows is ``out[:k]``.  By default each chunk
        is a new array.
    threads : int, optional
        As in `encode`.
    **convention
        See `Encoding`.

    Returns
    -------
    iterator of Chunk
        Each chunk has the attributes ``positions``, a range, and ``values``, an ndarray of shape
        (len(positions), d_model).

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value; raised by the call, before the first chunk.  A chunk that is
        too large for the memory raises ValueError or MemoryError when it is computed.

    See Also
    --------
    encode : Return one table.
    posenc.dask.table : A lazy Dask array, which many processes compute.

    Notes
    -----
    The values have the same bits as those of `encode`, for any number of rows in a chunk.

    Examples
    --------
    >>> import posenc
    >>> [(c.positions, c.values.shape) for c in posenc.stream(5, 8, chunk_rows=2)]
    [(range(0, 2), (2, 8)), (range(2, 4), (2, 8)), (range(4, 5), (1, 8))]
    """
    return cached_encoding(d_model, convention).stream(
        positions, chunk_rows=chunk_rows, dtype=dtype, out=out, threads=threads
    )
