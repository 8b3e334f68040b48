"""Encoding, the specification of a table, with a cache, and the chunks of a stream."""

import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from datetime import timedelta
from types import NoneType
from typing import Any, Literal, NamedTuple, SupportsFloat, SupportsIndex, TypeAlias, TypedDict, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import arrays, checks
from posenc._arguments.arrays import AnyDType, ArrayT, Positions
from posenc._arguments.specification import Keyword, Layout, Specification
from posenc._core import kernel
from posenc._encoding import columns

Odd: TypeAlias = Literal["truncate", "zero", "error"]
Spacing: TypeAlias = Literal["paper", "endpoint"]
Exponents: TypeAlias = Literal["pair", "column"]
Order: TypeAlias = Literal["sin", "cos"]

SPACED = ("base", "spacing", "shift", "frequency_scale")  # the keywords that frequencies and periods replace
# The size of a chunk by default.  On ext4, writes of 16 MiB are as fast as writes of 4 MiB, and writes of
# 1 MiB are half as fast (measured for 2 GB).
CHUNK_BYTES = 1 << 22
MAX_CACHED_COLUMNS = 2**13           # columns; such an Encoding takes 0.7 MB, or more with an extreme base
# no tensors, whose hash does not depend on their value
CACHEABLE = {int, float, str, type(None), np.float64, np.float32}


class Chunk(NamedTuple):  # numpydoc ignore=PR01
    """A chunk of a stream: its positions and their encodings.

    Attributes
    ----------
    positions : range
        The positions of the rows.
    values : ndarray, shape (len(positions), d_model)
        The encodings of the positions, in the requested dtype.

    See Also
    --------
    stream : Yield chunks.

    Examples
    --------
    >>> import posenc
    >>> positions, values = next(posenc.stream(range(10, 16), 8, chunk_rows=4))
    >>> positions, values.shape
    (range(10, 14), (4, 8))
    """

    positions: range
    values: NDArray[Any]


class Convention(TypedDict, total=False):
    """The keywords of a convention: see `posenc.Encoding`."""

    base: SupportsFloat
    frequency_scale: SupportsFloat
    position_offset: SupportsFloat
    position_scale: SupportsFloat
    padding_idx: SupportsIndex | None
    scale: SupportsFloat
    odd: Odd
    spacing: Spacing
    shift: SupportsFloat | None
    exponents: Exponents
    frequencies: ArrayLike | None
    periods: ArrayLike | Sequence[timedelta] | None
    layout: Layout
    order: Order


@dataclass(frozen=True, eq=False, repr=False)
class Encoding(Specification):
    """The specification of a table of sinusoidal positional encodings.

    By default, column ``2 i`` holds ``sin`` and column ``2 i + 1`` holds ``cos`` of ``position * base**(-2 i
    / d_model)``. Each value is correctly rounded to the output dtype.  An `Encoding` is immutable, hashable
    and picklable.  Each parameter is also an attribute; real numbers are Python floats.

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
        ``"pair"``: two columns share a frequency.  ``"column"``: column j of the interleaved order has the
        exponent -j / (2 D), or -j / (d_model - 1) with ``spacing="endpoint"``.
    frequencies : array_like of float64, optional
        The frequencies in radians per position, of any sign, one for each pair of columns (for each column
        with ``exponents="column"``).  Excludes base, spacing, shift and frequency_scale.
    periods : array_like or sequence of timedeltas, optional
        The periods, one for each pair of columns, in place of ``frequencies``; frequency i is exactly ``1 /
        period`` turns.  Numbers are in the unit of the positions; an integer is exact.

        Durations are ``numpy.timedelta64``, other timedeltas or texts such as ``"90m"``, with one of NumPy's
        units W, D, h, m, s, ms, us, ns, ps, fs and as.  The positions are then datetimes or durations in any
        of these units: dtype datetime64 or timedelta64, or a column of pandas, polars or Arrow.
    layout : {"interleaved", "halves"}, optional
        ``"interleaved"``: sines and cosines alternate.  ``"halves"``: all sines precede all cosines, or
        follow them.
    order : {"sin", "cos"}, optional
        The first function of each pair.

    Attributes
    ----------
    d_model : int
        Number of columns.
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
    The default is the convention of Vaswani et al., "Attention is all you need", 2017, section 3.5.
    ``layout="halves", spacing="endpoint"`` is the convention of tensor2tensor's ``get_timing_signal_1d``, of
    fairseq, Whisper and others; `presets` has the sources of more conventions.

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

    d_model: Keyword[SupportsIndex | None, int] = Keyword(None, columns.checked_width)
    _: KW_ONLY
    base: Keyword[SupportsFloat, float] = Keyword(10000.0, checks.positive)
    frequency_scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real)
    position_offset: Keyword[SupportsFloat, float] = Keyword(0.0, checks.real)
    position_scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real)
    padding_idx: Keyword[SupportsIndex | None, int | None] = Keyword(None, checks.position)
    scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real)
    odd: Keyword[Odd, Odd] = Keyword("truncate", get_args(Odd))
    spacing: Keyword[Spacing, Spacing] = Keyword("paper", get_args(Spacing), ("shift",))
    shift: Keyword[SupportsFloat | None, float | None] = Keyword(None, checks.real, ("spacing",))
    exponents: Keyword[Exponents, Exponents] = Keyword("pair", get_args(Exponents))
    frequencies: Keyword[ArrayLike | None, NDArray[np.float64]] = Keyword(
        None, checks.reals, (*SPACED, "periods"), lambda encoding: encoding._frequencies
    )
    periods: Keyword[ArrayLike | Sequence[timedelta] | None, tuple[int | float | str, ...] | None] = Keyword(
        None, checks.periods, (*SPACED, "frequencies")
    )
    layout: Keyword[Layout, Layout] = Keyword("interleaved", get_args(Layout))
    order: Keyword[Order, Order] = Keyword("sin", get_args(Order))

    def __post_init__(self) -> None:
        with kernel.default_environment():
            self._check_keywords()
            if vars(self)["d_model"] is None:
                vars(self)["d_model"] = columns.width_from_frequencies(vars(self))
            checks.check_domain((self.position_offset,), name="position_offset")
            for name in ("position_offset", "padding_idx") if self._has_durations else ():
                if (value := vars(self)[name]) != self._keywords[name].default:
                    raise ValueError(f"{name} is {value}, expected none with periods that are durations")
            if self.odd == "error" and self.d_model % 2:
                raise ValueError(f"d_model is {self.d_model}, expected an even number with odd='error'")
            _ = self._columns                           # refuses a wrong shift or number of frequencies

    @functools.cached_property
    def _columns(self) -> kernel.Columns:
        return columns.columns_of_convention(self.d_model, vars(self))

    @functools.cached_property
    def _has_durations(self) -> bool:
        return columns.has_durations(vars(self))

    def _located(self, positions: Any) -> tuple[kernel.Columns, Any]:
        """Return the columns for the unit of datetimes or durations, and these as integers."""
        times = checks.times_of("positions", positions)
        unit, multiple = np.datetime_data(times.dtype)
        return _columns_in(self, multiple * checks.UNITS[unit]), times.view(np.int64)

    @functools.cached_property
    def _frequencies(self) -> NDArray[np.float64]:
        values = columns.float64_frequencies(self.d_model, vars(self))
        return np.frombuffer(values.tobytes())        # a view of bytes, which setflags cannot make writeable

    def encode(
        self, positions: Positions, *, dtype: AnyDType | None = None, out: NDArray[Any] | None = None,
        threads: SupportsIndex | None = None,
    ) -> NDArray[Any]:
        """Return encodings, correctly rounded at every position: see `posenc.encode`."""
        if self._has_durations:
            return kernel.encode(*self._located(positions), dtype, out, threads)
        return kernel.encode(self._columns, positions, dtype, out, threads)

    def add_to(
        self, x: ArrayT, positions: Positions | None = None, *, x_scale: SupportsFloat = 1.0,
        threads: SupportsIndex | None = None,
    ) -> ArrayT:
        """Add encodings to embeddings in place, without computing a table first: see `posenc.add_to`."""
        kernel_columns = self._columns
        if self._has_durations:
            kernel_columns, positions = self._located(positions)
        kernel.add_to(kernel_columns, x, positions, x_scale, threads)
        return x

    def stream(
        self, positions: SupportsIndex | range | None = None, *, chunk_rows: SupportsIndex | None = None,
        dtype: AnyDType | None = None, out: NDArray[Any] | None = None, threads: SupportsIndex | None = None,
    ) -> Iterator[Chunk]:
        """Yield the encodings of many positions chunk by chunk, in constant memory: see `posenc.stream`."""
        without_durations(self, "stream")
        name, element = arrays.output_dtype(dtype, out)
        threads, d_model, offset = checks.threads(threads), self.d_model, self.position_offset
        if positions is None:                                       # up to the end of the domain
            positions = range(checks.BEYOND - max(0, math.floor(offset)))
        else:
            positions = checks.range_of(positions, offset)
        rows = rows_of_chunk(d_model, element.itemsize) if out is None else max(1, (*np.shape(out), 0)[0])
        if chunk_rows is not None:
            rows = checks.integer("chunk_rows", chunk_rows, 1)
        if out is not None:
            kernel.output_array(out, (rows, d_model), name, "out")

        def generate(rows_to_come: range) -> Iterator[Chunk]:
            while rows_to_come:
                part, rows_to_come = rows_to_come[:rows], rows_to_come[rows:]
                buffer = None if out is None else out[: len(part)]
                yield Chunk(part, self.encode(part, dtype=name, out=buffer, threads=threads))

        return generate(positions)


@functools.lru_cache(maxsize=8)
def _columns_in(encoding: Encoding, unit: int) -> kernel.Columns:
    """Return the columns for datetimes or durations in a unit, which is given in attoseconds."""
    with kernel.default_environment():
        return columns.columns_of_convention(encoding.d_model, vars(encoding), unit)


KEYWORDS = Encoding._keywords
_cached = functools.lru_cache(maxsize=256, typed=True)(Encoding)


def check_encoding(encoding: Any, kinds: Any = (Encoding, NoneType)) -> None:
    checks.check_type("encoding", encoding, kinds, "a posenc.Encoding")


def without_durations(encoding: Encoding, user: str) -> Encoding:
    """Check and return the encoding.

    Raise a TypeError if it takes datetimes, because `user` has only numbers as positions.
    """
    check_encoding(encoding, Encoding)
    if encoding._has_durations:
        raise TypeError(f"periods are durations, expected numbers, as the positions of {user} are numbers")
    return encoding


def checked_positions(encoding: Encoding, positions: Any) -> range | NDArray[Any]:
    """Return positions for an encoding as a range or an array, after checks."""
    if encoding._has_durations:
        return checks.times_of("positions", positions)
    return checks.positions_of(positions, encoding.position_offset)


def rows_of_chunk(d_model: int, itemsize: int) -> int:
    """Return the number of rows, at least one, that fit in CHUNK_BYTES."""
    return max(1, CHUNK_BYTES // max(1, d_model * itemsize))


def cached_encoding(d_model: Any, convention: Mapping[str, Any]) -> Encoding:
    """Return d_model if it is an Encoding, else the Encoding with d_model columns and these keywords.

    The Encoding comes from the cache if d_model is at most MAX_CACHED_COLUMNS and the types of all keywords, or
    of the elements of frequencies and periods, are CACHEABLE.
    """
    if isinstance(d_model, Encoding):
        for name in convention:
            raise checks.both_given("an Encoding", f"{name} (see Encoding.replace)")
        return d_model

    is_cached, hashable = d_model is None or type(d_model) is int and d_model <= MAX_CACHED_COLUMNS, {}
    for name, value in convention.items():
        if name in ("frequencies", "periods"):
            is_array = type(value) is np.ndarray and value.dtype.kind in "iuf" and value.ndim == 1
            value = tuple(value.tolist()) if is_array else tuple(value) if type(value) is list else value
        elements = value if type(value) is tuple and len(value) <= MAX_CACHED_COLUMNS else (value,)
        is_cached &= CACHEABLE.issuperset(map(type, elements))
        hashable[name] = value
    return _cached(d_model, **hashable) if is_cached else Encoding(d_model, **convention)
