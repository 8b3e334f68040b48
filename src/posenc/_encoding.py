"""Encoding, the checked specification of a table, and the functions that read its convention."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Literal, Never, Self, SupportsFloat, SupportsIndex, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc import _arguments, _convention, _kernel, _specification, _stream
from posenc._as_array import shown
from posenc._convention import DEFAULTS
from posenc._keywords import check_names, suggests
from posenc._stream import Chunk
from posenc._types import AnyDType, ArrayT, DTypeOf, Positions, ScalarT
from posenc._version import __version__


class Encoding(_specification.Immutable):
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
        The position, before ``position_offset`` is added, whose row is all zeros, as in fairseq.
    scale : float, optional
        The factor by which the values are multiplied.  Only the product is rounded.
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
        j / (2 D), or j / (d_model - 1) with ``spacing="endpoint"``.
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

    __slots__ = (
        "__weakref__", "_columns", "_convention", "_frequencies", "_hash", "base", "d_model", "exponents", "frequency_scale",
        "layout", "odd", "order", "padding_idx", "position_offset", "position_scale", "scale", "shift", "spacing",
    )

    d_model: int
    base: float
    frequency_scale: float
    position_offset: float
    position_scale: float
    padding_idx: int | None
    scale: float
    odd: Literal["truncate", "zero", "error"]
    spacing: Literal["paper", "endpoint"]
    shift: float | None
    exponents: Literal["pair", "column"]
    layout: Literal["interleaved", "halves"]
    order: Literal["sin", "cos"]
    _columns: _kernel.Columns
    _convention: dict[str, Any]
    _frequencies: NDArray[np.float64] | None
    _hash: int

    @suggests
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
        arguments = locals()
        with _kernel.default_environment():
            d_model, convention = _convention.checked(d_model, {name: arguments[name] for name in DEFAULTS})
            set_attribute = functools.partial(object.__setattr__, self)
            set_attribute("d_model", d_model)
            set_attribute("_convention", convention)
            for name in convention.keys() - {"frequencies"}:
                set_attribute(name, convention[name])
            set_attribute("_hash", hash((d_model, *convention.values())))
            set_attribute("_frequencies", None)
            set_attribute("_columns", _convention.columns(d_model, convention))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Encoding):
            return NotImplemented
        return self.d_model == other.d_model and self._convention == other._convention

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[..., Encoding], tuple[type[Encoding], int, dict[str, Any]]]:
        return _specification.rebuild, (type(self), self.d_model, changes_of(self))

    def replace(self, **changes: Any) -> Self:
        """Return an encoding with some keywords replaced.

        Parameters
        ----------
        **changes
            ``d_model`` and keywords of `Encoding`.  ``frequencies`` replaces ``base``, ``spacing``, ``shift`` and
            ``frequency_scale``; ``spacing`` and ``shift`` replace each other.

        Returns
        -------
        Encoding
            A new encoding, with the values of this one for all other keywords.

        Raises
        ------
        TypeError, ValueError
            If a change has a wrong type or value, or if two keywords exclude each other.

        See Also
        --------
        Encoding : The keywords.

        Examples
        --------
        >>> import posenc
        >>> posenc.preset("whisper", 384).replace(d_model=512, scale=0.5)
        Encoding(512, scale=0.5, odd='error', spacing='endpoint', layout='halves')
        """
        check_names(Encoding.replace, changes, ("d_model", *DEFAULTS))
        d_model = changes.pop("d_model", self.d_model)
        return type(self)(d_model, **_convention.changed(changes_of(self), changes))

    __replace__ = replace

    def to_dict(self) -> dict[str, Any]:
        """Return the encoding as a dict that JSON can hold.

        Returns
        -------
        dict
            ``version``, the version of posenc; ``d_model``; and ``convention``, a dict of all keywords, including defaults.
            Specifications in files contain the same entries.

        See Also
        --------
        Encoding.from_dict : The inverse.

        Examples
        --------
        >>> import json
        >>> from posenc import Encoding
        >>> document = json.dumps(Encoding(64, base=500.0).to_dict())
        >>> Encoding.from_dict(json.loads(document))
        Encoding(64, base=500.0)
        """
        convention = {name: list(value) if isinstance(value, tuple) else value for name, value in self._convention.items()}
        return {"version": __version__, "d_model": self.d_model, "convention": convention}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the encoding that a dict describes.

        Parameters
        ----------
        document : mapping
            The result of `to_dict`, or the specification in a file that posenc wrote; its ``positions`` and ``dtype`` are
            ignored.  Keywords that are missing from ``convention`` have their default values.

        Returns
        -------
        Encoding
            An encoding equal to the one on which `to_dict` was called.

        Raises
        ------
        TypeError, ValueError
            If the dict has an unknown key, ``d_model`` or ``convention`` is missing, or a keyword has a wrong type or value.

        See Also
        --------
        Encoding.to_dict : The inverse.

        Examples
        --------
        >>> from posenc import Encoding
        >>> Encoding.from_dict({"d_model": 64, "convention": {"layout": "halves"}})
        Encoding(64, layout='halves')
        """
        _specification.check_document(document, "Encoding", "d_model", "convention", DEFAULTS, ("positions", "dtype"))
        return cls(document["d_model"], **document["convention"])

    def __repr__(self) -> str:
        """Return a constructor call with the keywords that differ from the default; many frequencies are abbreviated."""
        return _specification.call("Encoding", self.d_model, changes_of(self))

    def _repr_html_(self) -> str:
        """Return the whole convention as an HTML table; values that differ from the default are bold."""
        return _specification.html_table(repr(self), {"d_model": self.d_model, **self._convention}, DEFAULTS)

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
            values = _convention.frequencies(self.d_model, self._convention)
            values = np.frombuffer(values.tobytes())        # a view of bytes, which setflags cannot make writeable
            object.__setattr__(self, "_frequencies", values)
        return values

    @overload
    def encode(
        self, positions: Positions, *, dtype: AnyDType = ..., out: ArrayT, threads: SupportsIndex | None = ...,
    ) -> ArrayT: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: Literal["float32"] = ..., out: None = ..., threads: SupportsIndex | None = ...,
    ) -> NDArray[np.float32]: ...
    @overload
    def encode(
        self, positions: Positions, *, dtype: DTypeOf[ScalarT], out: None = ..., threads: SupportsIndex | None = ...,
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
        **unknown: Never,
    ) -> NDArray[Any]:
        """Return encodings, correctly rounded at every position: see `posenc.encode`."""
        if unknown:
            _convention.refuse(Encoding.encode, unknown)
        return self._columns.encode(positions, dtype, out, threads)

    def add_to(
        self,
        x: ArrayT,
        positions: Positions | None = None,
        *,
        x_scale: SupportsFloat = 1.0,
        threads: SupportsIndex | None = None,
        **unknown: Never,
    ) -> ArrayT:
        """Add encodings to embeddings in place, without computing a table first: see `posenc.add_to`."""
        if unknown:
            _convention.refuse(Encoding.add_to, unknown)
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
        **unknown: Never,
    ) -> Iterator[Chunk[Any]]:
        """Yield the encodings of many positions chunk by chunk, in constant memory: see `posenc.stream`."""
        if unknown:
            _convention.refuse(Encoding.stream, unknown)
        return _stream.chunks(self.encode, self.d_model, self.position_offset, positions, chunk, dtype, out, threads)


def check_encoding(encoding: Any) -> None:
    """Raise an error unless a value is an Encoding; it shows the call for a number of columns, a model, or a dict."""
    if isinstance(encoding, Encoding):
        return
    value = shown(encoding)
    calls = {int: f"Encoding({value})", str: f"preset({value}, d_model)", dict: "Encoding.from_dict(encoding)"}
    such_as = f" such as posenc.{calls[type(encoding)]}" if type(encoding) in calls else ""
    raise _arguments.wrong_type("encoding", encoding, f"a posenc.Encoding{such_as}")


def keywords_of(encoding: Encoding) -> dict[str, Any]:
    """Return all keywords of the convention with their values."""
    return dict(encoding._convention)


def changes_of(encoding: Encoding) -> dict[str, Any]:
    """Return the keywords that differ from the default, with their values."""
    return {name: value for name, value in encoding._convention.items() if value != DEFAULTS[name]}
