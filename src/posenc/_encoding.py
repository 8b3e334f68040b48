"""Encoding: the specification of a table, checked once; and encode, add_to and stream, which use it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Any, Generic, Literal, NamedTuple, NoReturn, SupportsFloat, SupportsIndex, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc import _arguments, _display, _exact, _frequencies, _kernel
from posenc._arguments import BEYOND, LOWEST
from posenc._types import AnyDType, ArrayT, Convention, DTypeOf, Positions, ScalarT

WIDEST = 2**24                          # columns: an encoding takes about 200 bytes for each, a long table 1.3 kB meanwhile
CHUNK_BYTES = 1 << 22
SIGN_BIT = np.uint64(1 << 63)
CHOICES = {
    "odd": ("truncate", "zero", "error"),
    "spacing": ("paper", "endpoint"),
    "exponents": ("pair", "column"),
    "layout": ("interleaved", "halves"),
    "order": ("sin", "cos"),
}
DEFAULTS: dict[str, Any] = {
    "base": 10000.0,
    "frequency_scale": 1.0,
    "position_offset": 0.0,
    "position_scale": 1.0,
    "padding_idx": None,
    "scale": 1.0,
    "odd": "truncate",
    "spacing": "paper",
    "shift": None,
    "exponents": "pair",
    "frequencies": None,
    "layout": "interleaved",
    "order": "sin",
}


class Chunk(NamedTuple, Generic[ScalarT]):  # numpydoc ignore=PR01
    """A piece of a stream: its positions and their encodings.

    Attributes
    ----------
    positions : range
        Of the rows.
    values : ndarray, shape (len(positions), d_model)
        Their encodings, of the dtype that the stream was asked for.

    See Also
    --------
    stream : Yields them.

    Examples
    --------
    >>> import posenc
    >>> positions, values = next(posenc.stream(range(10, 16), 8, chunk=4))
    >>> positions, values.shape
    (range(10, 14), (4, 8))
    """

    positions: range
    values: NDArray[ScalarT]


# ---- the convention -------------------------------------------------------------------------------------------------


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("base", "frequency_scale", "position_offset", "position_scale", "scale"), _arguments.real),
    **{name: functools.partial(_arguments.choice, choices=choices) for name, choices in CHOICES.items()},
    "shift": functools.partial(_arguments.optional, check=_arguments.real),
    "padding_idx": functools.partial(_arguments.optional, check=_arguments.position),
    "frequencies": functools.partial(_arguments.optional, check=_arguments.frequencies),
}


def _checked(d_model: Any, given: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """d_model and the convention, each argument of its kind and all of them consistent."""
    c = {name: CHECKS[name](name, value) for name, value in given.items()}
    d_model = _arguments.integer("d_model", d_model, 0)
    if d_model > WIDEST:
        raise ValueError(f"d_model is {_arguments.shown(d_model)}, expected at most {WIDEST}")
    if c["base"] <= 0:
        raise ValueError(f"base is {given['base']!r}, expected a positive number")
    if c["shift"] is not None and c["spacing"] != "paper":
        raise ValueError(f"spacing is {c['spacing']!r} and shift is {c['shift']!r}, expected only one of them")
    if c["frequencies"] is not None:
        for name in ("base", "spacing", "shift", "frequency_scale"):
            if c[name] != DEFAULTS[name]:
                raise ValueError(f"frequencies and {name} are both given, expected only one of them")
    if not LOWEST <= c["position_offset"] < BEYOND:
        raise ValueError(f"position_offset is {c['position_offset']!r}, expected -2**63 <= position_offset < 2**63")
    if c["odd"] == "error" and d_model % 2:
        raise ValueError(f"d_model is {d_model}, expected an even number with odd='error'")
    return d_model, c


class Encoding:
    """The specification of a table of sinusoidal positional encodings.

    Column ``2 i`` holds ``sin`` and column ``2 i + 1`` holds ``cos`` of ``position * base**(-2 i / d_model)``, each
    correctly rounded to the output dtype.  Immutable, hashable and picklable.

    Parameters
    ----------
    d_model : int
        Number of columns, from 0 to 2**24.
    base : float, optional
        Positive.  Frequency i is ``frequency_scale * base**(-i / D)`` radians per position, with D as `spacing` says.
    frequency_scale, position_offset, position_scale : float, optional
        The angle of frequency i is ``(position + position_offset) * position_scale * frequency``, in radians: the exact
        real product of the float64 arguments.
    padding_idx : int, optional
        The row of this position is all zeros, as in fairseq; it is the position as given, before `position_offset`.
        `positions_from_mask` puts padding there.
    scale : float, optional
        Multiplies the values; the product is what is correctly rounded.
    odd : {"truncate", "zero", "error"}, optional
        For an odd d_model the last column drops its cosine (h = d_model / 2), or is zero (h = d_model // 2), or a
        ValueError is raised.
    spacing : {"paper", "endpoint"}, optional
        ``"paper"``: D = h.  ``"endpoint"``: the slowest frequency is exactly ``frequency_scale / base``.
    shift : float, optional
        D = h - shift, in place of `spacing`.
    exponents : {"pair", "column"}, optional
        ``"column"``: column j of the interleaved order has an exponent of its own, j / (2 D), or with
        ``spacing="endpoint"`` j / (d_model - 1).
    frequencies : array_like of float64, optional
        In place of base, spacing, shift and frequency_scale, in radians per position, of any sign: one for each pair of
        columns (for each column with ``exponents="column"``).
    layout : {"interleaved", "halves"}, optional
        ``"halves"``: all columns of the first function, then all of the second.
    order : {"sin", "cos"}, optional
        The first function of a pair.

    Attributes
    ----------
    d_model : int
        Number of columns.
    frequencies : ndarray of float64
        In radians per position.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, or two that exclude each other.

    See Also
    --------
    encode : A table in one call, with the same keywords.
    preset : The encoding of a known model family.
    identify : Find the encoding of a table.

    Notes
    -----
    The default is that of Vaswani et al., "Attention is all you need", 2017, section 3.5.  ``layout="halves",
    spacing="endpoint"`` is that of tensor2tensor's ``get_timing_signal_1d``, which fairseq, Whisper and others follow;
    docs/conventions.md names the sources of others.

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

    __slots__ = ("__weakref__", "_columns", "_convention", "_frequencies", "_hash", "d_model")

    d_model: int
    _columns: _kernel.Columns
    _convention: dict[str, Any]
    _frequencies: NDArray[np.float64] | None
    _hash: int

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
        odd: Literal["truncate", "zero", "error"] = "truncate",
        spacing: Literal["paper", "endpoint"] = "paper",
        shift: SupportsFloat | None = None,
        exponents: Literal["pair", "column"] = "pair",
        frequencies: ArrayLike | None = None,
        layout: Literal["interleaved", "halves"] = "interleaved",
        order: Literal["sin", "cos"] = "sin",
    ) -> None:
        given = locals()
        with _kernel.default_environment():
            d_model, convention = _checked(d_model, {name: given[name] for name in DEFAULTS})
            set_attribute = functools.partial(object.__setattr__, self)
            set_attribute("d_model", d_model)
            set_attribute("_convention", convention)
            set_attribute("_hash", hash((d_model, *convention.values())))
            set_attribute("_frequencies", None)
            set_attribute("_columns", self._build())

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"Encoding is immutable, {name} cannot be set")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"Encoding is immutable, {name} cannot be deleted")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Encoding):
            return NotImplemented
        return self.d_model == other.d_model and self._convention == other._convention

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[..., Encoding], tuple[type[Encoding], int, dict[str, Any]]]:
        return _rebuild, (type(self), self.d_model, self._changes())

    def __repr__(self) -> str:
        return _display.text(self)

    def _repr_html_(self) -> str:
        return _display.html(self)

    def _changes(self) -> dict[str, Any]:
        """The convention's departures from the default."""
        return {name: value for name, value in self._convention.items() if value != DEFAULTS[name]}

    def _spacing(self) -> tuple[int, Fraction]:
        """How many frequencies there are, and the D of ``base**(-i / D)``."""
        c, d = self._convention, self.d_model
        zero_column = c["odd"] == "zero" and d % 2
        pairs = d // 2 if zero_column else -(-d // 2)
        count = d if c["exponents"] == "column" else pairs
        per_frequency = 2 if c["exponents"] == "column" else 1      # exponent j / (2 D) for columns
        half = Fraction(d // 2) if zero_column else Fraction(d, 2)
        if c["spacing"] == "endpoint":
            divisor = Fraction(count - 1)
        else:
            divisor = per_frequency * (half - Fraction(c["shift"] or 0))
        if count > 1 and divisor == 0:
            raise ValueError(f"shift is {c['shift']}, expected another number than half of the columns, {half}")
        return count, divisor

    def _turns(self) -> _exact.Turns:
        """What makes the turns per position of each frequency times position_scale, and the bits below their point."""
        c = self._convention
        count, divisor = self._spacing()
        if c["frequencies"] is None:
            scales = c["frequency_scale"], c["position_scale"]
            return functools.partial(_frequencies.spaced_turns, count, divisor, c["base"], scales)
        if len(c["frequencies"]) != count:
            raise ValueError(f"frequencies has length {len(c['frequencies'])}, expected {count} for this convention")
        return functools.partial(_frequencies.given_turns, c["frequencies"], c["position_scale"])

    def _arrangement(self, count: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
        """Of each column in its final place: which of the `count` frequencies, `count` for none; and whether it is a cosine."""
        c, d = self._convention, self.d_model
        interleaved = np.arange(d)
        frequency = interleaved if c["exponents"] == "column" else interleaved // 2
        cosine = interleaved % 2 == (c["order"] == "sin")
        if c["layout"] == "halves":
            order = np.argsort(interleaved % 2, kind="stable")
        else:
            order = interleaved
        if c["odd"] == "zero" and d % 2:
            order = np.append(order[order != d - 1], d - 1)
            frequency[-1] = count                                   # of no turns
            cosine[-1] = False
        return frequency[order], cosine[order]

    def _build(self) -> _kernel.Columns:
        """The columns in their final order, as the kernels read them."""
        c, d = self._convention, self.d_model
        make_turns = self._turns()
        turns, fraction_bits = make_turns()
        frequency, cosine = self._arrangement(len(turns))
        pitch = _kernel.pitched(d)
        repeated = np.arange(pitch) % d if d else np.empty(0, np.intp)
        which, cosine = frequency[repeated], cosine[repeated]
        quarter = np.where(cosine, ~np.uint64(0), np.uint64(0))
        sign = np.array([SIGN_BIT if t < 0 else 0 for t in turns] + [0], np.uint64)[which]
        limbs, integer_limbs = _frequencies.limbs([*turns, 0], fraction_bits)
        return _kernel.Columns(
            d,
            np.ascontiguousarray(limbs[:, which]).tobytes(),
            integer_limbs,
            len(limbs) - integer_limbs,
            sign.tobytes(),
            quarter.tobytes(),
            self._kernel_order(),
            c["scale"],
            c["position_offset"],
            c["padding_idx"],
            _exact.Values(make_turns, which, cosine, c["scale"]),
            _arguments.for_encode,
            _arguments.for_add_to,
        )

    def _kernel_order(self) -> int:
        """The kernels' `order_t`: whether columns 2 i, 2 i + 1 are sin and cos (1), or cos and sin (2), of one frequency."""
        c = self._convention
        if c["layout"] != "interleaved" or c["exponents"] != "pair" or c["odd"] == "zero" and self.d_model % 2:
            return 0
        return 1 if c["order"] == "sin" else 2

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The frequencies in radians per position, fastest first, rounded to float64; read-only.

        Without `position_scale`.  Those beyond the range of float64 are 0 or infinite.

        See Also
        --------
        Encoding : Makes them of `base`, `spacing`, `shift` and `frequency_scale`, or takes them as given.

        Examples
        --------
        >>> from posenc import Encoding
        >>> Encoding(8).frequencies
        array([1.   , 0.1  , 0.01 , 0.001])
        """
        values = self._frequencies
        if values is None:
            c = self._convention
            if c["frequencies"] is not None:
                values = np.array(c["frequencies"], np.float64)
            else:
                with _kernel.default_environment():
                    values = _frequencies.spaced_float64(*self._spacing(), c["base"], c["frequency_scale"])
            values = np.frombuffer(values.tobytes())        # whose memory nobody can make writeable
            object.__setattr__(self, "_frequencies", values)
        return values

    @overload
    def encode(
        self, positions: Positions, *, dtype: AnyDType = ..., out: ArrayT,
        threads: SupportsIndex | None = ...,
    ) -> ArrayT: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: Literal["float32"] = ..., out: None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[np.float32]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: Literal["float64"], out: None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[np.float64]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: Literal["float16"], out: None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[np.float16]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: DTypeOf[ScalarT], out: None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[ScalarT]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: AnyDType = ..., out: NDArray[Any] | None = ...,
        threads: SupportsIndex | None = ...,
    ) -> NDArray[Any]: ...

    def encode(
        self,
        positions: Positions,
        *,
        dtype: AnyDType = "float32",
        out: NDArray[Any] | None = None,
        threads: SupportsIndex | None = None,
    ) -> NDArray[Any]:
        """Make a table of encodings, each value correctly rounded.

        Parameters
        ----------
        positions : int, range or array_like
            Those of the rows, as in `posenc.encode`.
        dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
            Of the values.
        out : ndarray, shape ``positions.shape + (d_model,)``, optional
            Written and returned.
        threads : int, optional
            At least 1; by default as many as the size of the work and the process's limits allow.

        Returns
        -------
        ndarray, shape ``positions.shape + (d_model,)``
            The encodings: `out` where it is given.

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or value, before anything is written.

        See Also
        --------
        posenc.encode : The same in one call.

        Examples
        --------
        >>> from posenc import Encoding
        >>> Encoding(6, layout="halves").encode([[0.5, 1e9]]).shape
        (1, 2, 6)
        """
        return self._columns.encode(positions, dtype, out, threads)

    def add_to(
        self,
        x: ArrayT,
        positions: Positions | None = None,
        *,
        x_scale: SupportsFloat = 1.0,
        threads: SupportsIndex | None = None,
    ) -> ArrayT:
        """Add encodings onto embeddings in place, without making the table.

        Parameters
        ----------
        x : ndarray, shape (..., n, d_model)
            Of dtype float32, float64, float16 or bfloat16; columns contiguous.  Overwritten.
        positions : None, int, range or array_like, optional
            Those of the rows, as in `posenc.add_to`; None means ``range(n)``.
        x_scale : float, optional
            What x is multiplied by first, rounded to its dtype.
        threads : int, optional
            At least 1; by default as many as the size of the work and the process's limits allow.

        Returns
        -------
        ndarray
            The array `x` itself, which now holds ``x * x_scale + encodings``.

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or value, before anything is written.

        See Also
        --------
        posenc.add_to : The same in one call.

        Examples
        --------
        >>> import numpy as np
        >>> from posenc import Encoding
        >>> Encoding(4).add_to(np.ones((1, 4)))
        array([[1., 2., 1., 2.]])
        """
        self._columns.add_to(x, positions, x_scale, threads)
        return x

    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk: SupportsIndex | None = ...,
        dtype: AnyDType = ..., out: NDArray[ScalarT], threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[ScalarT]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk: SupportsIndex | None = ...,
        dtype: Literal["float32"] = ..., out: None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[np.float32]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk: SupportsIndex | None = ...,
        dtype: Literal["float64"], out: None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[np.float64]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk: SupportsIndex | None = ...,
        dtype: Literal["float16"], out: None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[np.float16]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk: SupportsIndex | None = ...,
        dtype: DTypeOf[ScalarT], out: None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[ScalarT]]: ...
    @overload
    def stream(
        self, positions: SupportsIndex | range | None = ..., *, chunk: SupportsIndex | None = ...,
        dtype: AnyDType = ..., out: NDArray[Any] | None = ..., threads: SupportsIndex | None = ...,
    ) -> Iterator[Chunk[Any]]: ...

    def stream(
        self,
        positions: SupportsIndex | range | None = None,
        *,
        chunk: SupportsIndex | None = None,
        dtype: AnyDType = "float32",
        out: NDArray[Any] | None = None,
        threads: SupportsIndex | None = None,
    ) -> Iterator[Chunk[Any]]:
        """Make the encodings of many positions chunk by chunk, in constant memory.

        Parameters
        ----------
        positions : int, range or None, optional
            Those of the rows; None streams from 0 without end.
        chunk : int, optional
            Rows of a chunk; by default as many as 4 MiB hold.
        dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
            Of the values.
        out : ndarray, shape (chunk, d_model), optional
            Written for every chunk, the last one in ``out[:k]``; without it each chunk is an array of its own.
        threads : int, optional
            At least 1; by default as many as the size of the work and the process's limits allow.

        Returns
        -------
        iterator of Chunk
            Each with its ``positions``, a range, and its ``values``, an ndarray.

        Raises
        ------
        TypeError, ValueError
            For an argument of the wrong kind or value, at the call and not at the first chunk.

        See Also
        --------
        posenc.stream : The same in one call.

        Examples
        --------
        >>> from posenc import Encoding
        >>> endless = Encoding(8).stream(chunk=1000)
        >>> [next(endless).positions for _ in range(2)]
        [range(0, 1000), range(1000, 2000)]
        """
        _, element = _arguments.dtype(dtype)
        threads = _arguments.threads(threads)
        if positions is None:
            positions = range(BEYOND)
        elif not isinstance(positions, range):
            if not _arguments.is_index(positions):
                raise TypeError(f"positions is of type {type(positions).__name__}, expected an integer, a range or None")
            positions = range(_arguments.integer("positions", positions, 0))
        _arguments.check_domain(positions, self._convention["position_offset"])
        if out is not None:
            _arguments.check_array("out", out, element)
            if out.ndim != 2 or out.shape[1] != self.d_model or len(out) == 0:
                raise ValueError(f"out has shape {out.shape}, expected (chunk, {self.d_model}) with a chunk of at least 1")
            if chunk is not None and _arguments.integer("chunk", chunk, 1) != len(out):
                raise ValueError(f"chunk is {chunk}, expected {len(out)}, the rows of out")
            chunk = len(out)
        elif chunk is None:
            chunk = max(1, CHUNK_BYTES // max(1, self.d_model * element.itemsize))
        else:
            chunk = _arguments.integer("chunk", chunk, 1)
        return self._chunks(positions, chunk, dtype, out, threads)

    def _chunks(
        self, positions: range, chunk: int, dtype: AnyDType, out: NDArray[Any] | None, threads: int | None
    ) -> Iterator[Chunk[Any]]:
        while positions:
            now, positions = positions[:chunk], positions[chunk:]
            buffer = None if out is None else out[: len(now)]
            yield Chunk(now, self.encode(now, dtype=dtype, out=buffer, threads=threads))


def _rebuild(kind: type[Encoding], d_model: int, changes: Mapping[str, Any]) -> Encoding:
    return kind(d_model, **changes)


# ---- the functional form ----------------------------------------------------------------------------------------------


_cached = functools.lru_cache(maxsize=8, typed=True)(Encoding)      # of about 13 MB each at most
WIDEST_CACHED = 2**16
CACHED = {int, float, str, type(None), np.float64, np.float32}


def cached_encoding(d_model: Any, convention: Mapping[str, Any]) -> Encoding:
    """An Encoding, from the cache where all arguments are constants: a tensor is hashed by its address, not by its number."""
    if type(d_model) is int and d_model <= WIDEST_CACHED and CACHED.issuperset(map(type, _scalars(convention))):
        return _cached(d_model, **convention)
    return Encoding(d_model, **convention)


def _scalars(convention: Mapping[str, Any]) -> Iterator[Any]:
    for value in convention.values():
        if type(value) is tuple:
            yield from value
        else:
            yield value


@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: AnyDType = ..., out: ArrayT,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> ArrayT: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: Literal["float32"] = ..., out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[np.float32]: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: Literal["float64"], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[np.float64]: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: Literal["float16"], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[np.float16]: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: DTypeOf[ScalarT], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[ScalarT]: ...
@overload
def encode(
    positions: Positions, d_model: SupportsIndex, *, dtype: AnyDType = ..., out: NDArray[Any] | None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> NDArray[Any]: ...


def encode(
    positions: Positions,
    d_model: SupportsIndex,
    *,
    dtype: AnyDType = "float32",
    out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None,
    **convention: Unpack[Convention],
) -> NDArray[Any]:
    """Sinusoidal positional encodings, correctly rounded at every position.

    Parameters
    ----------
    positions : int, range or array_like
        An integer n means ``range(n)``.  A range may have any start, step and sign.  An array of integers or real numbers
        may have any shape, as may a column of pandas, polars or Arrow without nulls.  All positions are in [-2**63, 2**63);
        NaN and infinity give rows of NaN.
    d_model : int
        Number of columns.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        bfloat16 needs ``ml_dtypes``, or an `out` of dtype uint16 that takes its bits.
    out : ndarray, shape ``positions.shape + (d_model,)``, optional
        Written and returned: of `dtype`, columns contiguous, rows of any stride.
    threads : int, optional
        At least 1; by default as many as the size of the work and the process's limits allow.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray, shape ``positions.shape + (d_model,)``
        The encodings: `out` where it is given, else a new array.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, before anything is written.
    ImportError
        For bfloat16 without ``ml_dtypes`` and without `out`.

    See Also
    --------
    add_to : The same values added onto embeddings, without the table.
    stream : The same values chunk by chunk, for tables larger than memory.
    grid : Tables over the cells of images and volumes.

    Notes
    -----
    By default column ``2 i`` is ``sin`` and column ``2 i + 1`` is ``cos`` of ``position * 10000**(-2 i / d_model)`` radians,
    as in Vaswani et al., "Attention is all you need", 2017, section 3.5.  The frequency is taken as that real number, and so is
    its product with the position; docs/numerics.md derives how the one rounding at the end is kept right.

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
    x: ArrayT,
    positions: Positions | None = None,
    *,
    x_scale: SupportsFloat = 1.0,
    threads: SupportsIndex | None = None,
    **convention: Unpack[Convention],
) -> ArrayT:
    """Add encodings onto embeddings in place: ``x * x_scale + encode(...)``, without building the table.

    Parameters
    ----------
    x : ndarray, shape (..., n, d_model)
        Of dtype float32, float64, float16 or bfloat16; columns contiguous.  Overwritten.
    positions : None, int, range or array_like, optional
        None means ``range(n)``; an integer must equal n; a range has n positions; an array broadcasts to
        ``x.shape[:-1]``.
    x_scale : float, optional
        What x is multiplied by first.  It is rounded to x's dtype, as the product and the sum are, each once.
    threads : int, optional
        At least 1; by default as many as the size of the work and the process's limits allow.
    **convention
        See `Encoding`.

    Returns
    -------
    ndarray
        The array `x` itself.

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, before anything is written.

    See Also
    --------
    encode : The encodings as a table.
    positions_from_mask : Positions of padded batches.

    Notes
    -----
    ``x_scale=d_model**0.5`` is the factor on the embeddings of Vaswani et al., "Attention is all you need", 2017, section 3.4.

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
        raise TypeError(f"x is of type {type(x).__name__}, expected a numpy.ndarray")
    if x.ndim == 0:
        raise ValueError("x has shape (), expected (..., n, d_model)")
    return cached_encoding(x.shape[-1], convention).add_to(x, positions, x_scale=x_scale, threads=threads)


@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: AnyDType = ..., out: NDArray[ScalarT],
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[ScalarT]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: Literal["float32"] = ..., out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[np.float32]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: Literal["float64"], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[np.float64]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: Literal["float16"], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[np.float16]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: DTypeOf[ScalarT], out: None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[ScalarT]]: ...
@overload
def stream(
    positions: SupportsIndex | range | None, d_model: SupportsIndex, *, chunk: SupportsIndex | None = ...,
    dtype: AnyDType = ..., out: NDArray[Any] | None = ...,
    threads: SupportsIndex | None = ..., **convention: Unpack[Convention],
) -> Iterator[Chunk[Any]]: ...


def stream(
    positions: SupportsIndex | range | None,
    d_model: SupportsIndex,
    *,
    chunk: SupportsIndex | None = None,
    dtype: AnyDType = "float32",
    out: NDArray[Any] | None = None,
    threads: SupportsIndex | None = None,
    **convention: Unpack[Convention],
) -> Iterator[Chunk[Any]]:
    """Make the encodings of many positions chunk by chunk, in constant memory.

    Parameters
    ----------
    positions : int, range or None
        Those of the rows; None streams from 0 without end.
    d_model : int
        Number of columns.
    chunk : int, optional
        Rows of a chunk; by default as many as 4 MiB hold.
    dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
        Of the values, as in `encode`.
    out : ndarray, shape (chunk, d_model), optional
        Written for every chunk, the last one in ``out[:k]``; without it each chunk is an array of its own.
    threads : int, optional
        At least 1; by default as many as the size of the work and the process's limits allow.
    **convention
        See `Encoding`.

    Returns
    -------
    iterator of Chunk
        Each with its ``positions``, a range, and its ``values``, an ndarray of shape (len(positions), d_model).

    Raises
    ------
    TypeError, ValueError
        For an argument of the wrong kind or value, at the call and not at the first chunk.

    See Also
    --------
    encode : One table.
    posenc.dask.to_zarr : Tables written by many processes.

    Notes
    -----
    The values are those of `encode`, bit for bit, whatever the chunks.

    Examples
    --------
    >>> import posenc
    >>> [(c.positions, c.values.shape) for c in posenc.stream(5, 8, chunk=2)]
    [(range(0, 2), (2, 8)), (range(2, 4), (2, 8)), (range(4, 5), (1, 8))]
    """
    return cached_encoding(d_model, convention).stream(positions, chunk=chunk, dtype=dtype, out=out, threads=threads)
