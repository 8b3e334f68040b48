"""The conventions of known model families, by name."""

import inspect
import math
from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex, overload

from posenc._arguments import checks
from posenc._arguments.base_class import changed
from posenc._core import kernel
from posenc._encoding.encoding import KEYWORDS, Encoding
from posenc._encoding.presets_missing import explanation


class Preset(NamedTuple):  # numpydoc ignore=PR01
    """The convention of a model family.

    Attributes
    ----------
    name : str
        The name to pass to `posenc.preset`.
    summary : str
        A short description of the layout, spacing, order and other properties.
    source : str
        The paper or the code (project, file, name) that defines the convention.
    convention : callable
        A function of d_model and the parameters of the source, if any, that returns keywords of `Encoding`.

    See Also
    --------
    presets : The presets of all model families.

    Examples
    --------
    >>> import posenc
    >>> posenc.presets()["whisper"].summary
    'halves, endpoint, even d_model only'
    """

    name: str
    summary: str
    source: str
    convention: Callable[..., dict[str, Any]]

    @property
    def parameters(self) -> dict[str, Any]:
        """A dict of the parameters of the source and their defaults.

        See Also
        --------
        preset : Return an `Encoding` for given values of the parameters.

        Examples
        --------
        >>> import posenc
        >>> posenc.presets()["pyg"].parameters
        {'base_freq': 0.0001, 'granularity': 1.0}
        """
        return {name: p.default for name, p in inspect.signature(self.convention).parameters.items() if name != "d_model"}

    def __repr__(self) -> str:
        shown = {"name": self.name, "summary": self.summary, "source": self.source, "parameters": self.parameters}
        return f"Preset({', '.join(f'{name}={value!r}' for name, value in shown.items())})"


class Presets(tuple[Preset, ...]):
    """A tuple of presets that prints as a table; an index may also be the name of a preset."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex | str) -> Preset: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Preset, ...]: ...

    def __getitem__(self, index: SupportsIndex | str | slice) -> Any:
        return _known(index) if isinstance(index, str) else super().__getitem__(index)

    def __contains__(self, item: object) -> bool:
        return item in PRESETS if isinstance(item, str) else super().__contains__(item)

    def __repr__(self) -> str:
        name_width, summary_width = max(len(p.name) for p in self), max(len(p.summary) for p in self)
        return "\n".join(f"{p.name:{name_width}}  {p.summary:{summary_width}}  {p.source}" for p in self)


# ---- conventions ----------------------------------------------------------------------------------------------------


def _always(**convention: Any) -> Callable[[int], dict[str, Any]]:
    return lambda d_model: convention


def _timescales(smallest: float, largest: float) -> dict[str, Any]:
    # tensor2tensor, flax and TimesFM multiply the frequencies by the smallest timescale instead of dividing them by it
    return {"layout": "halves", "spacing": "endpoint", "base": largest / smallest, "frequency_scale": smallest, "odd": "zero"}


def _tensor2tensor(
    d_model: int, *, min_timescale: float = 1.0, max_timescale: float = 1e4, start_index: float = 0
) -> dict[str, Any]:
    return {**_timescales(min_timescale, max_timescale), "position_offset": start_index}


def _timesfm(d_model: int, *, min_timescale: float = 1.0, max_timescale: float = 1e4) -> dict[str, Any]:
    return _timescales(min_timescale, max_timescale)


def _flax(d_model: int, *, min_scale: float = 1.0, max_scale: float = 1e4) -> dict[str, Any]:
    return _timescales(min_scale, max_scale)


def _whisper(d_model: int, *, max_timescale: float = 1e4) -> dict[str, Any]:
    return {"layout": "halves", "spacing": "endpoint", "base": max_timescale, "odd": "error"}


def _pegasus_x(d_model: int, *, max_scale: float = 1e4) -> dict[str, Any]:
    return {"layout": "halves", "spacing": "endpoint", "base": max_scale, "odd": "error"}


def _nemo_fixed(d_model: int) -> dict[str, Any]:
    return {"scale": max(d_model, 1) ** -0.5, "odd": "error"}


def _keras_hub(d_model: int, *, max_wavelength: float = 1e4) -> dict[str, Any]:
    return {"base": max_wavelength}


def _positional_encodings(d_model: int) -> dict[str, Any]:
    return {"shift": -0.5} if d_model % 2 else {}       # an odd d_model has the frequencies of d_model + 1


def _diffusers_timestep(
    d_model: int, *, flip_sin_to_cos: bool = False, downscale_freq_shift: float = 1.0, scale: float = 1.0,
    max_period: float = 1e4,
) -> dict[str, Any]:
    order = "cos" if flip_sin_to_cos else "sin"
    return {"layout": "halves", "order": order, "shift": downscale_freq_shift, "position_scale": scale, "base": max_period,
            "odd": "zero"}


def _mlx(
    d_model: int, *, min_freq: float = 1e-4, max_freq: float = 1.0, cos_first: bool = False, full_turns: bool = False
) -> dict[str, Any]:
    return {"layout": "halves", "order": "cos" if cos_first else "sin", "spacing": "endpoint", "base": max_freq / min_freq,
            "frequency_scale": max_freq * (math.tau if full_turns else 1.0), "scale": math.sqrt(2 / d_model), "odd": "error"}


def _x_transformers(d_model: int, *, theta: float = 1e4) -> dict[str, Any]:
    return {"layout": "halves", "base": theta, "scale": d_model**-0.5, "odd": "error"}


def _pyg(d_model: int, *, base_freq: float = 1e-4, granularity: float = 1.0) -> dict[str, Any]:
    return {"layout": "halves", "spacing": "endpoint", "base": 1.0 / base_freq, "position_scale": 1.0 / granularity,
            "odd": "error"}


def _wavelengths(shortest: float, longest: float) -> dict[str, Any]:
    return {"layout": "halves", "spacing": "endpoint", "base": longest / shortest, "frequency_scale": math.tau / shortest,
            "odd": "error"}


def _pi0(d_model: int, *, min_period: float = 4e-3, max_period: float = 4.0) -> dict[str, Any]:
    return _wavelengths(min_period, max_period)


def _depthcharge(d_model: int, *, min_wavelength: float = 1e-3, max_wavelength: float = 1e4) -> dict[str, Any]:
    return _wavelengths(min_wavelength, max_wavelength)


def _octaves(d_model: int) -> dict[str, Any]:
    # D = d_model / 2 - shift = 1, so frequency i is 2**i
    return {"base": 0.5, "shift": d_model / 2 - 1, "odd": "error"}


def _tiny_cuda_nn(d_model: int) -> dict[str, Any]:
    return {**_octaves(d_model), "frequency_scale": math.pi}


def _double_exponents(d_model: int) -> dict[str, Any]:
    # D = d_model / 2 - shift = d_model / 4, so column j has the exponent j / (2 D) = 2 j / d_model
    return {"exponents": "column", "shift": d_model / 4, "odd": "error"}


def _notebook_slip(d_model: int) -> dict[str, Any]:
    # D = d_model / 2 - shift = 1, so frequency i is 10000**(2 / d_model - i)
    return {"shift": d_model / 2 - 1, "frequency_scale": 1e4 ** (2 / max(d_model, 1)), "odd": "error"}


_PAPER = _always()
_PAPER_EVEN = _always(odd="error")
_HALVES = _always(layout="halves")
_HALVES_EVEN = _always(layout="halves", odd="error")
_FAIRSEQ = _always(layout="halves", spacing="endpoint", odd="zero", padding_idx=1)

# ---- the table ------------------------------------------------------------------------------------------------------

PRESETS = {
    entry[0]: Preset(*entry)
    for entry in (
        ("vaswani", "interleaved sin, cos; 10000**(-2i/d)", "Vaswani et al. 2017, section 3.5", _PAPER),
        ("tensor2tensor", "halves, endpoint; odd: zero column",
         "tensor2tensor common_attention.py get_timing_signal_1d", _tensor2tensor),
        ("fairseq", "halves, endpoint; odd: zero column; row 1 zero, tokens from 2",
         "fairseq SinusoidalPositionalEmbedding", _FAIRSEQ),
        ("m2m100", "as fairseq", "transformers M2M100SinusoidalPositionalEmbedding", _FAIRSEQ),
        ("speech2text", "as fairseq", "transformers Speech2TextSinusoidalPositionalEmbedding", _FAIRSEQ),
        ("marian", "halves", "transformers MarianSinusoidalPositionalEmbedding", _HALVES),
        ("roformer", "halves", "transformers RoFormerSinusoidalPositionalEmbedding", _HALVES),
        ("xlm", "as vaswani", "transformers XLM create_sinusoidal_embeddings", _PAPER),
        ("ctrl", "halves", "transformers CTRL positional_encoding", _HALVES),
        ("gptj", "halves, even d_model only", "transformers GPT-J create_sinusoidal_positions", _HALVES_EVEN),
        ("xlnet", "halves, even d_model only; positions descend",
         "transformers XLNetModel.relative_positional_encoding", _HALVES_EVEN),
        ("whisper", "halves, endpoint, even d_model only", "openai/whisper model.py sinusoids", _whisper),
        ("pegasus-x", "halves, endpoint, even d_model only", "transformers PegasusXSinusoidalPositionalEmbedding", _pegasus_x),
        ("musicgen", "halves, cos first, endpoint; odd: zero column",
         "transformers MusicgenSinusoidalPositionalEmbedding",
         _always(layout="halves", order="cos", spacing="endpoint", odd="zero")),
        ("speecht5", "as vaswani, even d_model only", "transformers SpeechT5ScaledPositionalEncoding", _PAPER_EVEN),
        ("timesfm", "as tensor2tensor", "transformers TimesFmPositionalEmbedding", _timesfm),
        ("pi0", "halves, endpoint; periods from 0.004 to 4", "openpi create_sinusoidal_pos_embedding", _pi0),
        ("depthcharge", "halves, endpoint; periods from 0.001 to 10,000, for m/z", "depthcharge FloatEncoder", _depthcharge),
        ("opennmt-py", "as vaswani, even d_model only", "OpenNMT-py PositionalEncoding, SinusoidalInterleaved", _PAPER_EVEN),
        ("opennmt-py-concat", "halves, endpoint, even d_model only",
         "OpenNMT-py PositionalEncoding, SinusoidalConcat", _always(layout="halves", spacing="endpoint", odd="error")),
        ("opennmt-tf", "halves, endpoint, even d_model only; the first token is at 1",
         "OpenNMT-tf SinusoidalPositionEncoder",
         _always(layout="halves", spacing="endpoint", position_offset=1, odd="error")),
        ("espnet", "as vaswani, even d_model only", "ESPnet PositionalEncoding", _PAPER_EVEN),
        ("nemo", "as vaswani, even d_model only", "NeMo multi_head_attention.py PositionalEncoding", _PAPER_EVEN),
        ("nemo-fixed", "values / sqrt(d), even d_model only",
         "NeMo transformer_modules.py FixedPositionalEncoding", _nemo_fixed),
        ("keras-hub", "as vaswani", "KerasHub SinePositionEncoding", _keras_hub),
        ("positional-encodings", "odd: exponents of d + 1", "positional-encodings PositionalEncoding1D", _positional_encodings),
        ("diffusers-timestep", "halves, shift 1; odd: zero column", "diffusers get_timestep_embedding", _diffusers_timestep),
        ("diffusers", "as vaswani, even d_model only", "diffusers SinusoidalPositionalEmbedding", _PAPER_EVEN),
        ("mlx", "halves, endpoint, values * sqrt(2/d), even d_model only", "MLX nn.SinusoidalPositionalEncoding", _mlx),
        ("x-transformers", "halves, values / sqrt(d), even d_model only",
         "x-transformers ScaledSinusoidalEmbedding", _x_transformers),
        ("flax", "as tensor2tensor", "flax examples/wmt sinusoidal_init", _flax),
        ("trax", "as vaswani, even d_model only", "Trax PositionalEncoding", _PAPER_EVEN),
        ("pyg", "halves, endpoint, even d_model only", "PyTorch Geometric PositionalEncoding", _pyg),
        ("d2l", "as vaswani, even d_model only", "Dive into Deep Learning PositionalEncoding", _PAPER_EVEN),
        ("nerf", "frequencies 1, 2, 4 ...: d/2 octaves of a coordinate",
         "Mildenhall et al. 2020, bmild/nerf Embedder", _octaves),
        ("tiny-cuda-nn", "frequencies pi, 2 pi, 4 pi ...: d/2 octaves", "tiny-cuda-nn Frequency encoding", _tiny_cuda_nn),
        ("notebook-columns", "a slip: column j has exponent j/d",
         "the notebooks that this library began with", _always(exponents="column")),
        ("notebook-slip", "a slip: divisor 10000**(i - 2/d), not 10000**(2i/d)",
         "the notebooks that this library began with", _notebook_slip),
        ("double-exponents", "a slip: column j has exponent 2j/d",
         "SamLynnEvans/Transformer PositionalEncoder", _double_exponents),
    )
}


def presets() -> Presets:
    """List the presets of all model families.

    Returns
    -------
    tuple of Preset
        The tuple prints as a table of names, summaries and sources.  A name also works as an index: ``presets()["whisper"]``.

    See Also
    --------
    preset : Return the `Encoding` for one of these presets.

    Examples
    --------
    >>> import posenc
    >>> [p.name for p in posenc.presets()][:3]
    ['vaswani', 'tensor2tensor', 'fairseq']
    """
    return Presets(PRESETS.values())


def preset(name: str, d_model: SupportsIndex, **changes: Any) -> Encoding:
    """Return the encoding of a known model family.

    Parameters
    ----------
    name : str
        A name from `presets`; docs/conventions.md lists the names by model.
    d_model : int
        Number of columns.
    **changes
        Parameters of the source, under the names that the source uses, or keywords of `Encoding`, which override the preset.
        If a parameter and a keyword have the same name, such as ``scale`` in diffusers-timestep, the change sets the parameter.

    Returns
    -------
    Encoding
        The encoding with d_model columns and the convention of the family.

    Raises
    ------
    TypeError, ValueError
        If the name is unknown, the source does not support d_model, or a change has a wrong type or value.

    See Also
    --------
    presets : List the names and sources of all presets.
    identify : Find the convention of a table.

    Notes
    -----
    The attribute ``source`` of each `Preset` names the paper or the code that defines the convention.

    Examples
    --------
    >>> import posenc
    >>> posenc.preset("musicgen", 512)
    Encoding(512, odd='zero', spacing='endpoint', layout='halves', order='cos')
    >>> posenc.preset("diffusers-timestep", 320, flip_sin_to_cos=True, downscale_freq_shift=0)
    Encoding(320, odd='zero', shift=0.0, layout='halves', order='cos')
    """
    checks.keywords(changes, (*_known(name).parameters, *KEYWORDS))
    d_model = checks.integer("d_model", d_model, 0)
    parameters, convention = convention_of(name, d_model, changes)
    try:
        return Encoding(d_model, **convention)
    except ValueError as error:
        if not parameters:
            raise
        raise ValueError(f"{name} has {parameters}: {error}") from None


def convention_of(name: str, d_model: int, changes: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those of `changes` that are parameters of the source, and the resulting keywords of `Encoding`."""
    known = _known(name)
    with kernel.default_environment():
        defaults = {key: default for key, default in known.parameters.items() if key in changes}
        parameters = {key: _checked(key, changes[key], default) for key, default in defaults.items()}
        changes = {key: value for key, value in changes.items() if key not in defaults}
        try:
            convention = known.convention(d_model, **parameters)
        except ZeroDivisionError:
            zeros = {key: n for key, n in {"d_model": d_model, **parameters}.items() if n == 0 and n is not False}
            raise ValueError(f"{name} has {zeros}, expected numbers other than 0") from None
        for key, default in defaults.items():
            affected = _affected_by(known, d_model, key, default)
            for change in changes:
                if not affected.isdisjoint((change, *KEYWORDS[change].excludes)):
                    raise checks.both_given(key, change)
    return parameters, changed(convention, changes, KEYWORDS)


def _known(name: str) -> Preset:
    if not isinstance(name, str):
        raise checks.wrong_type("name", name, "a name from posenc.presets()")
    if name not in PRESETS:
        raise checks.wrong("name", f"is {name!r}, {explanation(name, PRESETS)}")
    return PRESETS[name]


def _affected_by(known: Preset, d_model: int, parameter: str, default: float) -> set[str]:
    """Return the keywords of a convention that depend on a parameter of the source."""
    other = not default if isinstance(default, bool) else 2 * default + 1
    one, two = (known.convention(d_model, **{parameter: value}) for value in (default, other))
    return {key for key in one if one[key] != two[key]}


def _checked(name: str, value: Any, default: float) -> float:
    """Check that a parameter of the source is a bool if its default is a bool, else a real number."""
    if not isinstance(default, bool):
        return checks.real(name, value)
    if not isinstance(value, bool):
        raise checks.wrong_type(name, value, "a bool")
    return value
