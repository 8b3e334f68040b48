"""Rotary, the checked specification of a rotation of queries and keys by their positions."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, Literal, Self, SupportsFloat, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc import (
    _arguments,
    _convention,
    _kernel,
    _model_config,
    _pair_axes,
    _rotation,
    _scaling,
    _specification,
    _tables,
)
from posenc._as_array import as_array, shown
from posenc._keywords import check_names, suggests
from posenc._specification import abbreviated
from posenc._types import AnyDType, ArrayT, Positions
from posenc._version import __version__

DEFAULTS: dict[str, Any] = {
    "base": 10000.0,
    "rotary_dim": None,
    "layout": "halves",
    "scaling": None,
    "frequencies": None,
    "frequency_scale": 1.0,
    "scale": 1.0,
    "axes": None,
}
MOST_AXES = 16          # of positions, in the kernel
REPLACES = {"frequencies": ("base", "scaling", "frequency_scale")}     # as in _convention


def _axis_of_each_pair(name: str, value: Any) -> tuple[int, ...]:
    array = as_array(name, value)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} has dtype {array.dtype}, expected integers")
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    axes = tuple(map(int, array.tolist()))
    if axes and min(axes) < 0:
        raise ValueError(f"{name} has {min(axes)}, expected integers from 0")
    if axes and max(axes) >= MOST_AXES:
        raise ValueError(f"{name} has {max(axes)}, expected integers below {MOST_AXES}")
    for axis in range(max(axes, default=-1)):
        if axis not in axes:
            raise ValueError(f"{name} has {max(axes)} but not {axis}, expected at least one pair for each axis")
    return axes


CHECKS: dict[str, Callable[[str, Any], Any]] = {
    **dict.fromkeys(("base", "frequency_scale", "scale"), _arguments.real),
    "rotary_dim": functools.partial(_arguments.optional, check=functools.partial(_arguments.integer, lowest=0)),
    "layout": functools.partial(_arguments.choice, choices=_convention.CHOICES["layout"]),
    "scaling": functools.partial(_arguments.optional, check=_scaling.checked),
    "frequencies": functools.partial(_arguments.optional, check=_arguments.frequencies),
    "axes": functools.partial(_arguments.optional, check=_axis_of_each_pair),
}


class Rotary(_specification.Immutable):
    """The specification of a rotary position embedding: the rotation of queries and keys by their positions.

    Pair i of the columns is rotated by the angle ``position * frequency[i]``.  A `Rotary` is immutable, hashable and picklable.

    Parameters
    ----------
    head_dim : int
        Number of columns of a query or key.
    base : float, optional
        A positive number.  Frequency i is ``frequency_scale * base**(-2 i / rotary_dim)`` radians per position.
    rotary_dim : int, optional
        The number of columns that are rotated, an even number; the columns after them stay as they are.  By default head_dim,
        times ``partial_rotary_factor`` if `scaling` has it.
    layout : {"halves", "interleaved"}, optional
        Pair i is columns i and ``i + rotary_dim / 2``, or columns ``2 i`` and ``2 i + 1``.
    scaling : dict, optional
        ``rope_parameters`` or ``rope_scaling`` of a model's configuration, unchanged; docs/rotary.md lists the types and keys.
        Types that depend on the length of a sequence take it under the key ``length``.
    frequencies : array_like of float64, optional
        The frequencies in radians per position, one for each pair.  Excludes base, scaling and frequency_scale.
    frequency_scale : float, optional
        The factor by which the frequencies are multiplied before they are scaled.
    scale : float, optional
        The factor by which cos and sin are multiplied, beside ``attention_scaling``.
    axes : array_like of int, optional
        For each pair the axis of its positions, as in models for images and video.  If not all are 0, positions have one more
        dimension, the first one, with an element for each axis.  By default from ``mrope_section`` in `scaling`, or one axis.

    Attributes
    ----------
    head_dim, rotary_dim : int
        Number of columns, and of those that are rotated.
    base, layout, frequency_scale, scale, axes
        The other keywords, as checked.
    scaling : dict or None
        The scaling without the keys for which this class has keywords, such as ``rope_theta``.
    frequencies : ndarray of float64, shape (rotary_dim / 2,)
        The frequencies in radians per position.
    attention_scaling : float
        The factor on cos and sin that the scaling contains; 1 for most types.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, or if two arguments exclude each other.

    See Also
    --------
    Encoding : The specification of a table that is added to embeddings.

    Notes
    -----
    The rotation is that of Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, section 3.2.
    Frequencies of the types default, linear, dynamic, ntk_alpha and proportional are real numbers; those of yarn, longrope and
    llama3 are the real values of their formulas, rounded once to float64.

    Examples
    --------
    >>> from posenc import Rotary
    >>> rotary = Rotary(128, scaling={"rope_type": "linear", "rope_theta": 500000.0, "factor": 8.0})
    >>> rotary
    Rotary(128, base=500000.0, scaling={'rope_type': 'linear', 'factor': 8.0})
    >>> cos, sin = rotary.tables(range(1000, 1004))
    >>> cos.shape, sin.shape
    ((4, 64), (4, 64))
    """

    __slots__ = (
        "__weakref__", "_frequencies", "_hash", "_keywords", "_parts", "_rotation", "attention_scaling", "axes", "base",
        "frequency_scale", "head_dim", "layout", "rotary_dim", "scale",
    )

    head_dim: int
    base: float
    rotary_dim: int
    layout: Literal["halves", "interleaved"]
    frequency_scale: float
    scale: float
    axes: tuple[int, ...] | None
    attention_scaling: float
    _keywords: dict[str, Any]
    _hash: int
    _frequencies: _scaling.Frequencies
    _parts: tuple[_tables.Part, ...] | None
    _rotation: _kernel.Rotation | None

    @suggests
    def __init__(
        self,
        head_dim: SupportsIndex,
        *,
        base: SupportsFloat = 10000.0,
        rotary_dim: SupportsIndex | None = None,
        layout: Literal["halves", "interleaved"] = "halves",
        scaling: Mapping[str, Any] | None = None,
        frequencies: ArrayLike | None = None,
        frequency_scale: SupportsFloat = 1.0,
        scale: SupportsFloat = 1.0,
        axes: ArrayLike | None = None,
    ) -> None:
        arguments = locals()
        with _kernel.default_environment():
            head_dim, keywords = _checked(head_dim, {name: arguments[name] for name in DEFAULTS})
            set_attribute = functools.partial(object.__setattr__, self)
            set_attribute("head_dim", head_dim)
            for name in keywords.keys() - {"frequencies", "scaling", "rotary_dim"}:
                set_attribute(name, keywords[name])
            set_attribute("rotary_dim", head_dim if keywords["rotary_dim"] is None else keywords["rotary_dim"])
            set_attribute("_keywords", keywords)
            set_attribute("_hash", hash((head_dim, *map(_hashable, keywords.values()))))
            set_attribute("_frequencies", _frequencies_of(self.rotary_dim, keywords))
            set_attribute("attention_scaling", self._frequencies.attention_factor)
            set_attribute("_parts", None)
            set_attribute("_rotation", None)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Rotary):
            return NotImplemented
        return self.head_dim == other.head_dim and self._keywords == other._keywords

    def __hash__(self) -> int:
        return self._hash

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[type[Rotary], int, dict[str, Any]]]:
        return _specification.rebuild, (type(self), self.head_dim, self._changes())

    def _changes(self) -> dict[str, Any]:
        """Return the keywords that differ from the default, with their values."""
        return {name: value for name, value in self._keywords.items() if value != DEFAULTS[name]}

    @classmethod
    @suggests
    def from_config(cls, config: Any, layer_type: str | None = None, length: SupportsIndex | None = None) -> Self:
        """Return the rotation in a model's configuration.

        Parameters
        ----------
        config : transformers.PreTrainedConfig or mapping
            The configuration, its dict, or the JSON of a checkpoint; for a model of several parts, the part that rotates, such
            as ``config.text_config``.
        layer_type : str, optional
            The type of layer, for a model whose layers have different rotations, such as Gemma 3.
        length : int, optional
            The length of the sequences.  The types dynamic and longrope depend on it; without it they are those of short
            sequences.  It has no effect on other types.

        Returns
        -------
        Rotary
            With the pairs that the model type is known to rotate, else ``layout="halves"``; the method `replace` changes it.

        Raises
        ------
        TypeError, ValueError
            If the configuration lacks a value, if it has an unknown type or key, or if an argument has a wrong type or value.

        See Also
        --------
        Rotary.preset : Rotations of models for images, whose configurations do not describe them.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary.from_config({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
        Rotary(64, base=500000.0)
        """
        head_dim, keywords = _model_config.settings(config, layer_type, length)
        return cls(head_dim, **keywords)

    @classmethod
    def preset(cls, name: str, head_dim: SupportsIndex, **changes: Any) -> Self:
        """Return the rotation of a known model with several axes of positions.

        Parameters
        ----------
        name : {"qwen2-vl", "qwen2-vl-vision", "qwen3-vl", "ernie-vl", "pixtral", "sam2", "dinov3", "gemma4-vision"}
            The model; docs/rotary.md describes the axes of each.
        head_dim : int
            Number of columns of a query or key.
        **changes
            Keywords of `Rotary`, which replace those of the preset; ``base`` and ``frequency_scale`` keep the preset's form.

        Returns
        -------
        Rotary
            The rotation.

        Raises
        ------
        TypeError, ValueError
            If the name is unknown, the model does not support head_dim, or a change has a wrong type or value.

        See Also
        --------
        Rotary.from_config : The rotation in a model's configuration.

        Examples
        --------
        >>> from posenc import Rotary
        >>> rotary = Rotary.preset("pixtral", 64)
        >>> rotary.axes == (0,) * 16 + (1,) * 16
        True
        """
        check_names(Rotary.preset, changes, DEFAULTS)
        size = _arguments.integer("head_dim", head_dim, 0)
        base, frequency_scale = (
            None if changes.get(name) is None else _arguments.real(name, changes.pop(name))
            for name in ("base", "frequency_scale")
        )
        return cls(size, **_pair_axes.keywords_of(name, size, base, frequency_scale) | changes)

    def replace(self, **changes: Any) -> Self:
        """Return a rotation with changes.

        Parameters
        ----------
        **changes
            ``head_dim`` and keywords of `Rotary`.  ``frequencies`` replaces ``base``, ``scaling`` and ``frequency_scale``.

        Returns
        -------
        Rotary
            A new one, with the other keywords of this one.

        Raises
        ------
        TypeError, ValueError
            If `Rotary` raises them for the resulting keywords.

        See Also
        --------
        Rotary : The keywords.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary(64, base=500.0).replace(layout="interleaved")
        Rotary(64, base=500.0, layout='interleaved')
        """
        check_names(Rotary.replace, changes, ("head_dim", *DEFAULTS))
        replaced = {name for change in changes for name in REPLACES.get(change, ())}
        keywords = {name: value for name, value in self._changes().items() if name not in replaced} | changes
        return type(self)(**{"head_dim": self.head_dim} | keywords)

    __replace__ = replace

    def to_dict(self) -> dict[str, Any]:
        """Return the rotation as a dict that JSON can hold.

        Returns
        -------
        dict
            ``version``, the version of posenc; ``head_dim``; and ``rotary``, with every keyword, defaults included.

        See Also
        --------
        Rotary.from_dict : The inverse.

        Examples
        --------
        >>> import json
        >>> from posenc import Rotary
        >>> document = json.dumps(Rotary(64, base=500.0).to_dict())
        >>> Rotary.from_dict(json.loads(document))
        Rotary(64, base=500.0)
        """
        keywords = {name: _mutable(value) for name, value in self._keywords.items()}
        return {"version": __version__, "head_dim": self.head_dim, "rotary": keywords}

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Self:
        """Return the rotation that a dict describes.

        Parameters
        ----------
        document : mapping
            From `to_dict`.  Keywords that are missing from ``rotary`` have their defaults.

        Returns
        -------
        Rotary
            Equal to the one that the dict was made from.

        Raises
        ------
        TypeError, ValueError
            If the dict has other keys, lacks one, or a value is refused by `Rotary`.

        See Also
        --------
        Rotary.to_dict : The inverse.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary.from_dict({"head_dim": 64, "rotary": {"layout": "interleaved"}})
        Rotary(64, layout='interleaved')
        """
        _specification.check_document(document, "Rotary", "head_dim", "rotary", DEFAULTS)
        return cls(document["head_dim"], **document["rotary"])

    def __repr__(self) -> str:
        """Return a constructor call with the keywords that differ from the default; long lists are abbreviated."""
        return _specification.call("Rotary", self.head_dim, self._changes())

    def _repr_html_(self) -> str:
        """Return all keywords as an HTML table; values that differ from the default are bold."""
        return _specification.html_table(repr(self), {"head_dim": self.head_dim, **self._keywords}, DEFAULTS)

    @property
    def scaling(self) -> dict[str, Any] | None:
        """The scaling without the keys for which `Rotary` has keywords, as a new dict, or None.

        See Also
        --------
        Rotary : The keywords.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary(64, scaling={"type": "linear", "factor": 4, "rope_theta": 500.0}).scaling
        {'rope_type': 'linear', 'factor': 4.0}
        """
        scaling: dict[str, Any] | None = _mutable(self._keywords["scaling"])
        return scaling

    @property
    def frequencies(self) -> NDArray[np.float64]:
        """The frequencies in radians per position, rounded to float64, in a read-only array.

        See Also
        --------
        Rotary : The keywords that define the frequencies.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary(8).frequencies
        array([1.   , 0.1  , 0.01 , 0.001])
        """
        return self._frequencies.values

    @suggests
    def tables(
        self,
        positions: Positions,
        *,
        dtype: AnyDType = "float32",
        out: NDArray[Any] | None = None,
        threads: SupportsIndex | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the cosines and sines of the pairs' angles, correctly rounded at every position.

        Parameters
        ----------
        positions : int, range or array_like
            As in `encode`.  With several axes, an array of shape (axes, ...).
        dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
            The dtype of the result, as in `encode`.
        out : ndarray, shape ``positions.shape + (rotary_dim,)``, optional
            The array to write to, of `dtype`: the cosines of all pairs, then their sines.  Columns must be contiguous; the rows
            may have any stride without overlap.  With several axes, without the first dimension of positions.
        threads : int, optional
            As in `encode`.

        Returns
        -------
        cos : ndarray, shape ``positions.shape + (rotary_dim / 2,)``
            The cosines, times ``scale`` and ``attention_scaling``: a view of `out` or of a new array.
        sin : ndarray
            The sines, in the same way.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value; nothing is written.
        ImportError
            If `dtype` is bfloat16, ``ml_dtypes`` is not installed and `out` is None.

        See Also
        --------
        Rotary.rotate : Rotate without a table.

        Examples
        --------
        >>> from posenc import Rotary
        >>> cos, sin = Rotary(4).tables(2)
        >>> sin
        array([[0.        , 0.        ],
               [0.84147096, 0.00999983]], dtype=float32)
        """
        if self._parts is None:
            parts = _tables.parts(self._frequencies.turns, self.rotary_dim // 2, self._factor(), self.axes)
            object.__setattr__(self, "_parts", parts)
        assert self._parts is not None
        if self.axes is None:
            table = self._parts[0].columns.encode(positions, dtype, out, threads)
        else:
            table = _tables.encode(self._parts, positions, dtype, out, threads)
        return table[..., : self.rotary_dim // 2], table[..., self.rotary_dim // 2 :]

    @suggests
    def rotate(
        self,
        x: ArrayT,
        positions: Positions | None = None,
        *,
        inverse: bool = False,
        out: ArrayT | None = None,
        threads: SupportsIndex | None = None,
    ) -> ArrayT:
        """Rotate queries or keys by their positions, in place unless `out` is given, and round once.

        Parameters
        ----------
        x : ndarray, shape (..., n, head_dim)
            The queries or keys, of float32, float16 or bfloat16, with contiguous columns; they are overwritten without `out`.
        positions : None, int, range or array_like, optional
            None means ``range(n)``; an integer must equal n; a range must have n positions; an array of integers must broadcast
            to ``x.shape[:-1]``.  With several axes, an array whose first dimension has an element for each axis.
        inverse : bool, optional
            Rotate by the negative angles.  The factors on cos and sin are not inverted.
        out : ndarray, optional
            The array to write to, of the shape and dtype of x.
        threads : int, optional
            As in `encode`.

        Returns
        -------
        ndarray
            `out`, or `x` itself.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value; nothing is written.

        See Also
        --------
        Rotary.tables : The cosines and sines.

        Notes
        -----
        The pair (x, y) becomes ``(m (x cos t - y sin t), m (y cos t + x sin t))`` with the real angle t and ``m = scale *
        attention_scaling``.  Each value is computed as if with infinite precision, then rounded once.

        Examples
        --------
        >>> import numpy as np
        >>> from posenc import Rotary
        >>> q = np.ones((8, 3, 64), np.float32)          # 8 heads, 3 positions
        >>> Rotary(64).rotate(q) is q
        True
        """
        if self._rotation is None:
            rotation = _rotation.rotation(
                self._frequencies.turns, self.rotary_dim // 2,
                scale=self._factor(), interleaved=self.layout == "interleaved", axes=self.axes,
            )
            object.__setattr__(self, "_rotation", rotation)
        assert self._rotation is not None
        turning = self._rotation
        if not (
            type(inverse) is bool and isinstance(x, np.ndarray) and x.shape[-1:] == (self.head_dim,)
            and turning.rotate(x, positions, inverse, out, threads)
        ):
            axes = None if self.axes is None else max(self.axes) + 1
            converted = _arguments.for_rotate(x, positions, inverse, out, threads, self.head_dim, axes)
            done = turning.rotate(x, converted[0], bool(inverse), *converted[1:], True)
            assert done, "the kernel refused arguments that were checked"
        return x if out is None else out

    def _factor(self) -> float:
        """Return the factor on cos and sin."""
        return self.scale * self.attention_scaling


# ---- keywords ---------------------------------------------------------------------------------------------------------


def _checked(head_dim: Any, keywords: Mapping[str, Any]) -> tuple[int, dict[str, Any]]:
    """Check head_dim and the keywords, each alone and all together, and return them converted.

    Keys of the scaling that have a keyword of their own become this keyword.
    """
    c = {name: CHECKS[name](name, value) for name, value in keywords.items()}
    head_dim = _arguments.integer("head_dim", head_dim, 0)
    if head_dim > _convention.WIDEST:
        raise ValueError(f"head_dim is {shown(head_dim)}, expected at most {_convention.WIDEST}")
    if c["base"] <= 0:
        raise ValueError(f"base is {keywords['base']!r}, expected a positive number")
    if c["frequencies"] is not None:
        for name in REPLACES["frequencies"]:
            if c[name] != DEFAULTS[name]:
                raise ValueError(f"frequencies and {name} are both given, expected only one of them")
    given, c["scaling"] = c["scaling"] or {}, None
    if given:
        shared = {key: given.pop(key) for key in _scaling.SHARED if key in given}
        if given["rope_type"] == "proportional" and "partial_rotary_factor" in shared:
            given["partial_rotary_factor"] = shared.pop("partial_rotary_factor")
        _move(c, "base", "rope_theta", shared.get("rope_theta"))
        share = shared.get("partial_rotary_factor")
        _move(c, "rotary_dim", "partial_rotary_factor", None if share is None else int(head_dim * share))
        if shared.get("mrope_interleaved") and len(shared.get("mrope_section", ())) != 3:
            raise ValueError("scaling has mrope_interleaved, expected mrope_section with three numbers")
        if "mrope_section" in shared:
            axes_of = _pair_axes.interleaved if shared.get("mrope_interleaved") else _pair_axes.blocks
            _move(c, "axes", "mrope_section", _axis_of_each_pair("scaling['mrope_section']", axes_of(shared["mrope_section"])))
        c["scaling"] = None if given == {"rope_type": "default"} else given
    rotary_dim = head_dim if c["rotary_dim"] is None else c["rotary_dim"]
    c["rotary_dim"] = None if rotary_dim == head_dim else rotary_dim
    if rotary_dim % 2 or rotary_dim > head_dim:
        name = "head_dim" if rotary_dim == head_dim else "rotary_dim"
        raise ValueError(f"{name} is {rotary_dim}, expected an even number of columns, at most head_dim, {head_dim}")
    for name in ("axes", "frequencies"):
        if c[name] is not None and len(c[name]) != rotary_dim // 2:
            raise ValueError(f"{name} has length {len(c[name])}, expected {rotary_dim // 2}, the number of pairs")
    if not any(c["axes"] or ()):            # a single axis
        c["axes"] = None
    return head_dim, c


def _move(c: dict[str, Any], name: str, key: str, value: Any) -> None:
    """Set a keyword to the value of a key of the scaling, unless the keyword has another one."""
    if value is not None:
        if c[name] not in (DEFAULTS[name], value):
            raise ValueError(
                f"{name} is {abbreviated(c[name])} and scaling[{key!r}] means {abbreviated(value)}, "
                "expected only one of them"
            )
        c[name] = value


def _frequencies_of(rotary_dim: int, c: Mapping[str, Any]) -> _scaling.Frequencies:
    if c["frequencies"] is not None:
        found = _scaling.explicit(c["frequencies"])
    else:
        found = _scaling.frequencies(rotary_dim, c["base"], c["frequency_scale"], c["scaling"] or {"rope_type": "default"})
    found.turns()                                                   # refuses frequencies beyond the range of the kernel
    if not np.isfinite(c["scale"] * found.attention_factor):
        raise ValueError(f"scale is {c['scale']}, expected a number whose product with {found.attention_factor} is finite")
    values = np.frombuffer(found.values.tobytes())                  # setflags cannot make an array that views bytes writeable
    return found._replace(values=values)


def _hashable(value: Any) -> Any:
    return tuple(sorted(value.items())) if isinstance(value, dict) else value


def _mutable(value: Any) -> Any:
    """Return a copy of a value with lists in place of tuples, as in JSON."""
    if isinstance(value, dict):
        return {key: _mutable(item) for key, item in value.items()}
    return list(value) if isinstance(value, tuple) else value
