"""The conventions of known model families, by name."""

import difflib
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, SupportsIndex, overload

from posenc._arguments import checks
from posenc._arguments.specification import changed
from posenc._core import kernel
from posenc._encoding.encoding import KEYWORDS, Encoding


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
        return f"Preset({self.name!r}, {self.summary!r}, {self.source!r}, parameters={self.parameters})"


class Presets(tuple[Preset, ...]):
    """A tuple of presets that prints as a table; an index may also be the name of a preset."""

    __slots__ = ()

    @overload
    def __getitem__(self, index: SupportsIndex | str) -> Preset: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[Preset, ...]: ...

    def __getitem__(self, index: SupportsIndex | str | slice) -> Any:
        return _preset(index) if isinstance(index, str) else super().__getitem__(index)

    def __repr__(self) -> str:
        return "\n".join(f"{preset.name:22}{preset.summary:63}{preset.source}" for preset in self)


# ---- the table ------------------------------------------------------------------------------------------------------

ENDPOINT = {"layout": "halves", "spacing": "endpoint"}
FAIRSEQ = {**ENDPOINT, "odd": "zero", "padding_idx": 1}
EVEN = {"odd": "error"}


def _timescales(smallest: float, largest: float) -> dict[str, Any]:
    # tensor2tensor, flax and TimesFM multiply the frequencies by the smallest timescale instead of dividing them by it
    return {**ENDPOINT, "base": largest / smallest, "frequency_scale": smallest, "odd": "zero"}


def _wavelengths(shortest: float, longest: float) -> dict[str, Any]:
    return {**ENDPOINT, **EVEN, "base": longest / shortest, "frequency_scale": math.tau / shortest}


# name, summary, source, function of d_model and the parameters of the source
PRESETS = {row[0]: Preset(*row) for row in (
    ("vaswani", "interleaved sin, cos; 10000**(-2i/d)", "Vaswani et al. 2017, section 3.5", lambda d_model: {}),
    ("tensor2tensor", "halves, endpoint; odd: zero column", "tensor2tensor common_attention.py get_timing_signal_1d",
     lambda d_model, *, min_timescale=1.0, max_timescale=1e4, start_index=0: {
         **_timescales(min_timescale, max_timescale), "position_offset": start_index}),
    ("fairseq", "halves, endpoint; odd: zero column; row 1 zero, tokens from 2", "fairseq SinusoidalPositionalEmbedding",
     lambda d_model: FAIRSEQ),
    ("m2m100", "as fairseq", "transformers M2M100SinusoidalPositionalEmbedding", lambda d_model: FAIRSEQ),
    ("speech2text", "as fairseq", "transformers Speech2TextSinusoidalPositionalEmbedding", lambda d_model: FAIRSEQ),
    ("marian", "halves", "transformers MarianSinusoidalPositionalEmbedding", lambda d_model: {"layout": "halves"}),
    ("roformer", "halves", "transformers RoFormerSinusoidalPositionalEmbedding", lambda d_model: {"layout": "halves"}),
    ("xlm", "as vaswani", "transformers XLM create_sinusoidal_embeddings", lambda d_model: {}),
    ("ctrl", "halves", "transformers CTRL positional_encoding", lambda d_model: {"layout": "halves"}),
    ("gptj", "halves, even d_model only", "transformers GPT-J create_sinusoidal_positions",
     lambda d_model: {"layout": "halves", **EVEN}),
    ("xlnet", "halves, even d_model only; positions descend", "transformers XLNetModel.relative_positional_encoding",
     lambda d_model: {"layout": "halves", **EVEN}),
    ("whisper", "halves, endpoint, even d_model only", "openai/whisper model.py sinusoids",
     lambda d_model, *, max_timescale=1e4: {**ENDPOINT, **EVEN, "base": max_timescale}),
    ("pegasus-x", "halves, endpoint, even d_model only", "transformers PegasusXSinusoidalPositionalEmbedding",
     lambda d_model, *, max_scale=1e4: {**ENDPOINT, **EVEN, "base": max_scale}),
    ("musicgen", "halves, cos first, endpoint; odd: zero column", "transformers MusicgenSinusoidalPositionalEmbedding",
     lambda d_model: {**ENDPOINT, "order": "cos", "odd": "zero"}),
    ("speecht5", "as vaswani, even d_model only", "transformers SpeechT5ScaledPositionalEncoding", lambda d_model: EVEN),
    ("timesfm", "as tensor2tensor", "transformers TimesFmPositionalEmbedding",
     lambda d_model, *, min_timescale=1.0, max_timescale=1e4: _timescales(min_timescale, max_timescale)),
    ("pi0", "halves, endpoint; periods from 0.004 to 4", "openpi create_sinusoidal_pos_embedding",
     lambda d_model, *, min_period=4e-3, max_period=4.0: _wavelengths(min_period, max_period)),
    ("depthcharge", "halves, endpoint; periods from 0.001 to 10,000, for m/z", "depthcharge FloatEncoder",
     lambda d_model, *, min_wavelength=1e-3, max_wavelength=1e4: _wavelengths(min_wavelength, max_wavelength)),
    ("opennmt-py", "as vaswani, even d_model only", "OpenNMT-py PositionalEncoding, SinusoidalInterleaved",
     lambda d_model: EVEN),
    ("opennmt-py-concat", "halves, endpoint, even d_model only", "OpenNMT-py PositionalEncoding, SinusoidalConcat",
     lambda d_model: {**ENDPOINT, **EVEN}),
    ("opennmt-tf", "halves, endpoint, even d_model only; the first token is at 1", "OpenNMT-tf SinusoidalPositionEncoder",
     lambda d_model: {**ENDPOINT, **EVEN, "position_offset": 1}),
    ("espnet", "as vaswani, even d_model only", "ESPnet PositionalEncoding", lambda d_model: EVEN),
    ("nemo", "as vaswani, even d_model only", "NeMo multi_head_attention.py PositionalEncoding", lambda d_model: EVEN),
    ("nemo-fixed", "values / sqrt(d), even d_model only", "NeMo transformer_modules.py FixedPositionalEncoding",
     lambda d_model: {"scale": max(d_model, 1) ** -0.5, **EVEN}),
    ("keras-hub", "as vaswani", "KerasHub SinePositionEncoding",
     lambda d_model, *, max_wavelength=1e4: {"base": max_wavelength}),
    # an odd d_model has the frequencies of d_model + 1
    ("positional-encodings", "odd: exponents of d + 1", "positional-encodings PositionalEncoding1D",
     lambda d_model: {"shift": -0.5} if d_model % 2 else {}),
    ("diffusers-timestep", "halves, shift 1; odd: zero column", "diffusers get_timestep_embedding",
     lambda d_model, *, flip_sin_to_cos=False, downscale_freq_shift=1.0, scale=1.0, max_period=1e4: {
         "layout": "halves", "order": "cos" if flip_sin_to_cos else "sin", "shift": downscale_freq_shift,
         "position_scale": scale, "base": max_period, "odd": "zero"}),
    ("diffusers", "as vaswani, even d_model only", "diffusers SinusoidalPositionalEmbedding", lambda d_model: EVEN),
    ("mlx", "halves, endpoint, values * sqrt(2/d), even d_model only", "MLX nn.SinusoidalPositionalEncoding",
     lambda d_model, *, min_freq=1e-4, max_freq=1.0, cos_first=False, full_turns=False: {
         **ENDPOINT, **EVEN, "order": "cos" if cos_first else "sin", "base": max_freq / min_freq,
         "frequency_scale": max_freq * (math.tau if full_turns else 1.0), "scale": math.sqrt(2 / d_model)}),
    ("x-transformers", "halves, values / sqrt(d), even d_model only", "x-transformers ScaledSinusoidalEmbedding",
     lambda d_model, *, theta=1e4: {"layout": "halves", **EVEN, "base": theta, "scale": d_model**-0.5}),
    ("flax", "as tensor2tensor", "flax examples/wmt sinusoidal_init",
     lambda d_model, *, min_scale=1.0, max_scale=1e4: _timescales(min_scale, max_scale)),
    ("trax", "as vaswani, even d_model only", "Trax PositionalEncoding", lambda d_model: EVEN),
    ("pyg", "halves, endpoint, even d_model only", "PyTorch Geometric PositionalEncoding",
     lambda d_model, *, base_freq=1e-4, granularity=1.0: {
         **ENDPOINT, **EVEN, "base": 1.0 / base_freq, "position_scale": 1.0 / granularity}),
    ("d2l", "as vaswani, even d_model only", "Dive into Deep Learning PositionalEncoding", lambda d_model: EVEN),
    # D = d_model / 2 - shift = 1, so frequency i is 2**i
    ("nerf", "frequencies 1, 2, 4 ...: d/2 octaves of a coordinate", "Mildenhall et al. 2020, bmild/nerf Embedder",
     lambda d_model: {"base": 0.5, "shift": d_model / 2 - 1, **EVEN}),
    ("tiny-cuda-nn", "frequencies pi, 2 pi, 4 pi ...: d/2 octaves", "tiny-cuda-nn Frequency encoding",
     lambda d_model: {"base": 0.5, "shift": d_model / 2 - 1, "frequency_scale": math.pi, **EVEN}),
    ("notebook-columns", "a slip: column j has exponent j/d", "the notebooks that this library began with",
     lambda d_model: {"exponents": "column"}),
    # D = d_model / 2 - shift = 1, so frequency i is 10000**(2 / d_model - i)
    ("notebook-slip", "a slip: divisor 10000**(i - 2/d), not 10000**(2i/d)", "the notebooks that this library began with",
     lambda d_model: {"shift": d_model / 2 - 1, "frequency_scale": 1e4 ** (2 / max(d_model, 1)), **EVEN}),
    # D = d_model / 2 - shift = d_model / 4, so column j has the exponent j / (2 D) = 2 j / d_model
    ("double-exponents", "a slip: column j has exponent 2j/d", "SamLynnEvans/Transformer PositionalEncoder",
     lambda d_model: {"exponents": "column", "shift": d_model / 4, **EVEN}),
)}


def presets() -> Presets:
    """List the presets of all model families.

    Returns
    -------
    tuple of Preset
        The tuple prints as a table of names, summaries and sources.  A name is an index, too: ``presets()["whisper"]``.

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
    posenc.check.identify : Find the convention of a table.

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
    parameters, convention = convention_of(name, checks.integer("d_model", d_model, 0), changes)
    try:
        return Encoding(d_model, **convention)
    except ValueError as error:
        raise ValueError(f"{name} has {parameters}: {error}" if parameters else str(error)) from None


def convention_of(name: str, d_model: int, changes: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return those of `changes` that are parameters of the source, and the resulting keywords of `Encoding`."""
    preset = _preset(name)
    checks.keywords(changes, (*preset.parameters, *KEYWORDS))
    with kernel.default_environment():
        parameters = {
            key: (checks.boolean if isinstance(default, bool) else checks.real)(key, changes[key])
            for key, default in preset.parameters.items() if key in changes
        }
        try:
            convention = preset.convention(d_model, **parameters)
        except ZeroDivisionError:
            raise ValueError(f"{name} has d_model {d_model} and {parameters}, expected no zero in a divisor") from None
    return parameters, changed(convention, {key: value for key, value in changes.items() if key not in parameters}, KEYWORDS)


def _preset(name: str) -> Preset:
    if not isinstance(name, str):
        raise checks.wrong_type("name", name, "a name from posenc.presets()")
    if name not in PRESETS:
        matches = difflib.get_close_matches(name.lower(), PRESETS, 1)
        hint = f"; did you mean {matches[0]!r}?" if matches else ""
        raise ValueError(f"name is {name!r}, expected one of posenc.presets(){hint}")
    return PRESETS[name]
