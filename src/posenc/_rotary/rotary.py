"""Rotary, the checked specification of a rotation of queries and keys by their positions."""

import functools
from collections.abc import Mapping
from dataclasses import KW_ONLY, MISSING, dataclass
from typing import Any, Self, SupportsFloat, SupportsIndex, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from posenc._arguments import checks
from posenc._arguments.arrays import AnyDType, ArrayT, Positions
from posenc._arguments.specification import Keyword, Layout, Specification, changed, with_lists
from posenc._axes.axis_columns import AxisColumns, encode_axes, slices_of
from posenc._core import kernel
from posenc._encoding.columns import checked_width, kernel_columns
from posenc._rotary import scaling as scalings
from posenc._rotary.media_presets import preset_keywords
from posenc._rotary.model_config import Keys, parameters_by_type, settings_of
from posenc._rotary.rotary_at import RotaryAt, rotary_at


@dataclass(frozen=True, eq=False, repr=False)
class Rotary(Specification):
    """The specification of a rotary position embedding: the rotation of queries and keys by their positions.

    Pair i of the columns is rotated by the angle ``position * frequency[i]``.  A `Rotary` is immutable,
    hashable and picklable.  Each parameter is also an attribute.

    Parameters
    ----------
    head_dim : int
        Number of columns of a query or key.
    base : float, optional
        A positive number.  Frequency i is ``frequency_scale * base**(-2 i / rotary_dim)`` radians per
        position.  If ``scaling`` has ``rope_theta``, that is the base, and another base is refused.
    rotary_dim : int, optional
        The number of rotated columns, an even number; the columns after them do not change.  The default is
        head_dim, times ``partial_rotary_factor`` if ``scaling`` has this key and is not of type proportional.
    layout : {"halves", "interleaved"}, optional
        With ``"halves"``, pair i consists of columns i and ``i + rotary_dim / 2``; with ``"interleaved"``, of
        columns ``2 i`` and ``2 i + 1``.
    scaling : dict, optional
        ``rope_parameters`` or ``rope_scaling`` of a model's configuration, unchanged, of the type default,
        linear, dynamic, ntk_alpha, yarn, longrope, llama3 or proportional.  Types that depend on the length
        of a sequence read this length from the key ``length``.
    frequencies : array_like of float64, optional
        The frequencies in radians per position, one for each pair.  Excludes base, scaling and
        frequency_scale.
    frequency_scale : float, optional
        The factor by which the frequencies are multiplied, before ``scaling`` is applied.
    scale : float, optional
        The factor by which cos and sin are multiplied, in addition to ``attention_scaling``.
    axes : array_like of int, optional
        The axis of positions of each pair, as in models for images and video.  If any axis is not 0,
        positions have an additional first dimension, with one element for each axis.  The default follows
        from ``mrope_section`` in ``scaling``; without this key, it is 0 for all pairs.

    Attributes
    ----------
    head_dim, rotary_dim : int
        Number of columns, and number of rotated columns.
    scaling : dict or None
        The scaling without the keys for which this class has keywords, such as ``rope_theta``.
    frequencies : ndarray of float64, shape (rotary_dim / 2,)
        The frequencies in radians per position.
    attention_scaling : float
        The factor by which the scaling multiplies cos and sin; 1 for most types.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value, or if two arguments exclude each other.

    See Also
    --------
    Encoding : The specification of a table that is added to embeddings.

    Notes
    -----
    The rotation is that of Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021,
    section 3.2.  The types default, linear, dynamic, ntk_alpha and proportional use exact frequencies; yarn,
    longrope and llama3 use the exact values of their formulas, rounded once to float64.

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

    _group = "rotary"

    head_dim: Keyword[SupportsIndex, int] = Keyword(MISSING, checked_width)
    _: KW_ONLY
    base: Keyword[SupportsFloat, float] = Keyword(10000.0, checks.positive)
    rotary_dim: Keyword[SupportsIndex | None, int] = Keyword(
        None, functools.partial(checks.integer, lowest=0),
        attribute=lambda rotary: rotary.head_dim if (d := vars(rotary)["rotary_dim"]) is None else d,
    )
    layout: Keyword[Layout, Layout] = Keyword("halves", get_args(Layout))
    scaling: Keyword[Mapping[str, Any] | None, dict[str, Any] | None] = Keyword(
        None, scalings.checked_scaling, attribute=lambda rotary: with_lists(vars(rotary)["scaling"])
    )
    frequencies: Keyword[ArrayLike | None, NDArray[np.float64]] = Keyword(
        None, checks.reals, excludes=("base", "scaling", "frequency_scale"),
        attribute=lambda rotary: rotary._frequencies.values,
    )
    frequency_scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real)
    scale: Keyword[SupportsFloat, float] = Keyword(1.0, checks.real)
    axes: Keyword[ArrayLike | None, tuple[int, ...] | None] = Keyword(None, scalings.axis_of_each_pair)

    def __post_init__(self) -> None:
        with kernel.default_environment():
            self._check_keywords()
            self._check_together(vars(self))
            _ = self._frequencies                       # refuses frequencies beyond the range of the kernel

    def _check_together(self, keywords: dict[str, Any]) -> None:
        """Set keywords to the values that `scaling` has for them, and check them together."""
        head_dim = self.head_dim
        keywords["scaling"], shared = scalings.keywords_in_scaling(keywords["scaling"], head_dim)
        for key, value in shared.items():
            name = scalings.IN_SCALING[key]
            if name in self._given and keywords[name] != value:
                raise checks.both_given(name, f"scaling[{key!r}]")
            keywords[name] = value
        rotary_dim = self.rotary_dim
        keywords["rotary_dim"] = None if rotary_dim == head_dim else rotary_dim
        if rotary_dim % 2 or rotary_dim > head_dim:
            name, limit = ("rotary_dim", f" of at most {head_dim}") if keywords["rotary_dim"] else ("head_dim", "")
            raise ValueError(f"{name} is {rotary_dim}, expected an even number{limit}")
        pairs = rotary_dim // 2
        for name in ("axes", "frequencies"):
            if keywords[name] is not None:
                checks.check_length(name, keywords[name], pairs, ", the number of pairs")
        if not any(keywords["axes"] or ()):            # a single axis
            keywords["axes"] = None

    @functools.cached_property
    def _frequencies(self) -> scalings.Frequencies:
        return scalings.frequencies_of(self.rotary_dim, vars(self))

    @property
    def attention_scaling(self) -> float:
        """The factor by which the scaling multiplies cos and sin; 1 for most types.

        See Also
        --------
        Rotary : The keywords.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary(64, scaling={"type": "linear", "factor": 4}).attention_scaling
        1.0
        """
        return self._frequencies.attention_factor

    @classmethod
    def from_config(
        cls, config: Any, layer_type: str | None = None, length: SupportsIndex | None = None, *,
        layout: Layout | None = None, axes: ArrayLike | None = None,
    ) -> Self:
        """Return the rotation that a model's configuration describes.

        Parameters
        ----------
        config : transformers.PreTrainedConfig or mapping
            The configuration, its dict, or a checkpoint's parsed ``config.json``.  If it has several parts,
            the part with the language model is used, such as ``config.text_config``.
        layer_type : str, optional
            The type of layer, for a model whose layers have different rotations, such as Gemma 3.
        length : int, optional
            The length of the sequences, for the types dynamic and longrope.  Without a length, these types
            have the frequencies for short sequences.  Other types ignore the length.
        layout : {"halves", "interleaved"}, optional
            The layout, required if transformers has no model of this type.  The default is that of the model
            type.
        axes : array_like of int, optional
            The axis of each pair, required if the configuration has ``mrope_section`` and transformers has no
            model of this type.  The default follows from the configuration and the model type.

        Returns
        -------
        Rotary
            The rotation.

        Raises
        ------
        TypeError, ValueError
            If the configuration lacks a value, has an unknown type, or has a key for rotations that posenc
            does not read; or if an argument has a wrong type or value.

        See Also
        --------
        Rotary.preset : Rotations of known models with several axes of positions.

        Examples
        --------
        >>> from posenc import Rotary
        >>> Rotary.from_config({"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0})
        Rotary(64, base=500000.0)
        """
        head_dim, keywords = settings_of(config, layer_type, length, layout, axes)
        return cls(head_dim, **keywords)

    @staticmethod
    def layer_types(config: Any) -> list[str | None]:
        """Return the types of layers for which a configuration has different rotations.

        Parameters
        ----------
        config : transformers.PreTrainedConfig or mapping
            The configuration, as for `from_config`.

        Returns
        -------
        list of str or None
            The values of ``layer_type`` that `from_config` accepts; [None] if the rotations of all layers are
            equal.

        Raises
        ------
        TypeError, ValueError
            If `config` is not a configuration, or has contradictory parameters.

        See Also
        --------
        Rotary.from_config : The rotation of a layer type.

        Examples
        --------
        >>> from posenc import Rotary
        >>> rope = {"full_attention": {"rope_theta": 1e6}, "sliding_attention": {"rope_theta": 1e4}}
        >>> Rotary.layer_types({"model_type": "gemma3_text", "head_dim": 256, "rope_parameters": rope})
        ['full_attention', 'sliding_attention']
        """
        return list(parameters_by_type(Keys(config)))

    @classmethod
    def preset(cls, name: str, head_dim: SupportsIndex, **changes: Any) -> Self:
        """Return the rotation of a known model for images, video or audio.

        Most rotations have several axes of positions.

        Parameters
        ----------
        name : {"qwen2-vl", "qwen2-vl-vision", "qwen3-vl", "ernie-vl", "pixtral", "sam2", "dinov3", \
                "gemma4-vision", "eva02", "vjepa2", "flux", "flux2", "qwen-image", "z-image", "lumina2", \
                "hunyuan-image", "hunyuan-video", "wan", "cogvideox", "ltx-video", "stable-audio"}
            The model.  The axes are those of its code, such as time, height and width.
        head_dim : int
            Number of columns of a query or key.
        **changes
            Keywords of `Rotary`, which replace those of the preset; ``base`` and ``frequency_scale`` replace
            the values in the preset's formula for frequencies.

        Returns
        -------
        Rotary
            The rotation.

        Raises
        ------
        TypeError, ValueError
            If the name is unknown, the model does not support head_dim, or a change has a wrong type or
            value.

        See Also
        --------
        Rotary.from_config : The rotation that a model's configuration describes.

        Examples
        --------
        >>> from posenc import Rotary
        >>> rotary = Rotary.preset("pixtral", 64)
        >>> rotary.axes == (0,) * 16 + (1,) * 16
        True
        """
        checks.check_keyword_names(changes, cls._keywords)
        size = checked_width("head_dim", head_dim)
        # base and frequency_scale are those of the preset's formula, unless other frequencies replace it
        own = changes.keys() & {"base", "frequency_scale"} if changes.get("frequencies") is None else ()
        values = {name: cls._keywords[name].checked(changes.pop(name)) for name in own}
        return cls(size, **changed(preset_keywords(name, size, **values), changes, cls._keywords))

    def tables(
        self, positions: Positions, *, dtype: AnyDType | None = None, out: NDArray[Any] | None = None,
        threads: SupportsIndex | None = None,
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return the cosines and sines of the pairs' angles, correctly rounded at every position.

        Parameters
        ----------
        positions : int, range or array_like
            As in `encode`.  With several axes, an array of shape (axes, ...).
        dtype : {"float32", "float64", "float16", "bfloat16"} or dtype, optional
            The dtype of the result, as in `encode`; by default that of `out`, else float32.
        out : ndarray, shape ``positions.shape + (rotary_dim,)``, optional
            The array to write to: the cosines of all pairs, then their sines.  The last dimension must be
            contiguous, and the rows must not overlap.  With several axes, the shape of the array omits
            ``positions.shape[0]``.
        threads : int, optional
            As in `encode`.

        Returns
        -------
        cos : ndarray, shape ``positions.shape + (rotary_dim / 2,)``
            The cosines, times ``scale`` and ``attention_scaling``: a view of `out` or of a new array.
        sin : ndarray
            The sines, with the same shape and factors.

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
        table = table_at(self, positions, dtype, out, threads)
        pairs = table.shape[-1] // 2
        return table[..., :pairs], table[..., pairs:]

    def rotate(
        self, x: ArrayT, positions: Positions | None = None, *, inverse: bool = False, out: ArrayT | None = None,
        threads: SupportsIndex | None = None,
    ) -> ArrayT:
        """Rotate queries or keys by their positions, in place unless `out` is given, and round once.

        Parameters
        ----------
        x : ndarray, shape (..., n, head_dim)
            The queries or keys: float32, float16 or bfloat16, with a contiguous last dimension; overwritten
            if `out` is None. The dimension before the columns must be that of the positions, as in (batch,
            heads, n, head_dim).
        positions : None, int, range or array_like, optional
            None means ``range(n)``; an integer must equal n; a range must have n positions.  An array of
            integers or real numbers must have shape (n,), or it must have as many dimensions as
            ``x.shape[:-1]`` and broadcast to this shape. For positions of shape (batch, n) and x of shape
            (batch, heads, n, head_dim), pass ``positions[:, None]``.  With several axes, pass an array with
            an additional first dimension, which has an element for each axis.
        inverse : bool, optional
            Rotate by the negative angles.  ``scale`` and ``attention_scaling`` are not inverted.
        out : ndarray, optional
            The array to write to, with the shape and dtype of x.
        threads : int, optional
            As in `encode`; a small rotation uses one.

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
        Rotary.at : Rotate many arrays at the same positions.
        Rotary.tables : The cosines and sines.

        Notes
        -----
        The pair (x, y) becomes ``(m (x cos t - y sin t), m (y cos t + x sin t))`` with the exact angle t and
        ``m = scale * attention_scaling``.  Each value is computed as if with infinite precision, then rounded
        once.

        Examples
        --------
        >>> import numpy as np
        >>> from posenc import Rotary
        >>> q = np.ones((8, 3, 64), np.float32)          # 8 heads, 3 positions
        >>> Rotary(64).rotate(q) is q
        True
        """
        kernel.rotate(self._rotation, x, positions, inverse, out, threads)
        return x if out is None else out

    def at(self, positions: Positions, *, inverse: bool = False) -> RotaryAt:
        """Return the rotation at given positions, for many arrays.  Cosines and sines are computed once.

        Parameters
        ----------
        positions : int, range or array_like
            The positions, as for `tables`.
        inverse : bool, optional
            Rotate by the negative angles.

        Returns
        -------
        RotaryAt
            An immutable object with methods ``rotate(x)`` and ``tables()``; an index selects some of the
            positions.

        Raises
        ------
        TypeError, ValueError
            If an argument has a wrong type or value.
        MemoryError
            If there is not enough memory for the cosines and sines.  They take 16 bytes for each position and
            pair, where the number of pairs is rounded up to a multiple of 32.

        See Also
        --------
        Rotary.rotate : Rotate a single array.

        Examples
        --------
        >>> import numpy as np
        >>> from posenc import Rotary
        >>> at = Rotary(64).at(range(500, 600))
        >>> layers = [np.ones((8, 100, 64), np.float32) for _ in range(3)]
        >>> for q in layers:
        ...     _ = at.rotate(q)                         # as Rotary(64).rotate(q, range(500, 600))
        """
        factors = kernel.Factors(self._rotation, positions, inverse)
        return rotary_at(self, factors, factors.positions)

    @functools.cached_property
    def _axis_columns(self) -> list[AxisColumns]:
        """The columns of each axis, in a table with the cosines of all pairs, then their sines."""
        columns = []
        for axis, pairs in enumerate(self._pairs_by_axis()):
            is_cosine = np.arange(2 * len(pairs)) < len(pairs)
            of_axis = self._kernel_columns(np.tile(pairs, 2), is_cosine, order=0)
            slices = slices_of(np.append(pairs, pairs + self.rotary_dim // 2).tolist())
            columns.append(AxisColumns(axis, functools.partial(kernel.encode, of_axis), 2 * len(pairs), slices))
        return columns

    @functools.cached_property
    def _rotation(self) -> kernel.Rotation:
        columns_by_axis = []
        for pairs in self._pairs_by_axis():
            is_cosine = np.arange(2 * len(pairs)) % 2 == 0
            of_axis = self._kernel_columns(np.repeat(pairs, 2), is_cosine, order=2)
            columns_by_axis.append((of_axis, None if self.axes is None else pairs.tobytes()))
        return kernel.Rotation(columns_by_axis, self.head_dim, self.rotary_dim // 2, self.layout == "interleaved")

    def _kernel_columns(self, frequency: NDArray[np.intp], is_cosine: NDArray[np.bool_], order: int) -> kernel.Columns:
        scale = self.scale * self.attention_scaling
        return kernel_columns(self._frequencies.turns, frequency, is_cosine, order, scale)

    def _pairs_by_axis(self) -> list[NDArray[np.intp]]:
        """Return the indices of the pairs of each axis of positions."""
        axes = np.array(self.axes or (0,) * (self.rotary_dim // 2))
        return [np.flatnonzero(axes == axis) for axis in range(max(axes, default=0) + 1)]


def table_at(
    rotary: Rotary, positions: Any, dtype: Any = None, out: Any = None, threads: Any = None
) -> NDArray[Any]:
    """Return one array with the cosines of all pairs, followed by their sines."""
    columns = rotary._axis_columns
    if len(columns) == 1:
        return columns[0].encode(positions, dtype, out, threads)
    array = checks.positions_of(positions)
    if isinstance(array, range) or array.shape[:1] != (len(columns),):
        raise checks.axes_error(array, len(columns))
    return encode_axes(columns, list(array), rotary.rotary_dim, dtype, out, threads, "positions")
