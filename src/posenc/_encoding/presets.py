"""The conventions of known model families, by name."""

import inspect
import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple, SupportsIndex

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
        parameters = inspect.signature(self.convention).parameters.items()
        return {name: parameter.default for name, parameter in parameters if name != "d_model"}

    def __repr__(self) -> str:
        return f"Preset({self.name!r}, {self.summary!r}, {self.source!r}, parameters={self.parameters})"


# ---- the table ---------------------------------------------------------------------------------------------

ENDPOINT = {"layout": "halves", "spacing": "endpoint"}
FAIRSEQ = {**ENDPOINT, "odd": "zero", "padding_idx": 1}
EVEN = {"odd": "error"}


def _timescales(smallest: float, largest: float) -> dict[str, Any]:
    # tensor2tensor, flax and TimesFM multiply the frequencies by the smallest timescale instead of dividing
    # them by it
    return {**ENDPOINT, "base": largest / smallest, "frequency_scale": smallest, "odd": "zero"}


def _wavelengths(shortest: float, longest: float) -> dict[str, Any]:
    return {**ENDPOINT, **EVEN, "base": longest / shortest, "frequency_scale": math.tau / shortest}


# names of equal conventions, with the source of each; summary; function of d_model and the parameters of the
# source
ROWS: list[tuple[dict[str, str], str, Callable[..., dict[str, Any]]]] = [
    ({"vaswani": "Vaswani et al. 2017, section 3.5", "xlm": "transformers XLM create_sinusoidal_embeddings"},
     "interleaved sin, cos; 10000**(-2i/d)", lambda d_model: {}),
    ({"speecht5": "transformers SpeechT5ScaledPositionalEncoding", "espnet": "ESPnet PositionalEncoding",
      "opennmt-py": "OpenNMT-py PositionalEncoding, SinusoidalInterleaved", "trax": "Trax PositionalEncoding",
      "nemo": "NeMo multi_head_attention.py PositionalEncoding", "diffusers": "diffusers SinusoidalPositionalEmbedding",
      "d2l": "Dive into Deep Learning PositionalEncoding"},
     "as vaswani, even d_model only", lambda d_model: EVEN),
    ({"tensor2tensor": "tensor2tensor common_attention.py get_timing_signal_1d"}, "halves, endpoint; odd: zero column",
     lambda d_model, *, min_timescale=1.0, max_timescale=1e4, start_index=0: {
         **_timescales(min_timescale, max_timescale), "position_offset": start_index}),
    ({"timesfm": "transformers TimesFmPositionalEmbedding"}, "as tensor2tensor",
     lambda d_model, *, min_timescale=1.0, max_timescale=1e4: _timescales(min_timescale, max_timescale)),
    ({"flax": "flax examples/wmt sinusoidal_init"}, "as tensor2tensor",
     lambda d_model, *, min_scale=1.0, max_scale=1e4: _timescales(min_scale, max_scale)),
    ({"fairseq": "fairseq SinusoidalPositionalEmbedding", "m2m100": "transformers M2M100SinusoidalPositionalEmbedding",
      "speech2text": "transformers Speech2TextSinusoidalPositionalEmbedding"},
     "halves, endpoint; odd: zero column; row 1 zero, tokens from 2", lambda d_model: FAIRSEQ),
    ({"marian": "transformers MarianSinusoidalPositionalEmbedding", "ctrl": "transformers CTRL positional_encoding",
      "roformer": "transformers RoFormerSinusoidalPositionalEmbedding"}, "halves", lambda d_model: {"layout": "halves"}),
    ({"gptj": "transformers GPT-J create_sinusoidal_positions",
      "xlnet": "transformers XLNetModel.relative_positional_encoding, at descending positions"},
     "halves, even d_model only", lambda d_model: {"layout": "halves", **EVEN}),
    ({"opennmt-py-concat": "OpenNMT-py PositionalEncoding, SinusoidalConcat"},
     "halves, endpoint, even d_model only", lambda d_model: {**ENDPOINT, **EVEN}),
    ({"whisper": "openai/whisper model.py sinusoids"}, "halves, endpoint, even d_model only",
     lambda d_model, *, max_timescale=1e4: {**ENDPOINT, **EVEN, "base": max_timescale}),
    ({"pegasus-x": "transformers PegasusXSinusoidalPositionalEmbedding"}, "halves, endpoint, even d_model only",
     lambda d_model, *, max_scale=1e4: {**ENDPOINT, **EVEN, "base": max_scale}),
    ({"musicgen": "transformers MusicgenSinusoidalPositionalEmbedding"}, "halves, cos first, endpoint; odd: zero column",
     lambda d_model: {**ENDPOINT, "order": "cos", "odd": "zero"}),
    ({"pi0": "openpi create_sinusoidal_pos_embedding"}, "halves, endpoint; periods from 0.004 to 4",
     lambda d_model, *, min_period=4e-3, max_period=4.0: _wavelengths(min_period, max_period)),
    ({"depthcharge": "depthcharge FloatEncoder"}, "halves, endpoint; periods from 0.001 to 10,000, for m/z",
     lambda d_model, *, min_wavelength=1e-3, max_wavelength=1e4: _wavelengths(min_wavelength, max_wavelength)),
    ({"opennmt-tf": "OpenNMT-tf SinusoidalPositionEncoder"}, "halves, endpoint, even d_model only; the first token is at 1",
     lambda d_model: {**ENDPOINT, **EVEN, "position_offset": 1}),
    ({"nemo-fixed": "NeMo transformer_modules.py FixedPositionalEncoding"},
     "values / sqrt(d), even d_model only", lambda d_model: {"scale": max(d_model, 1) ** -0.5, **EVEN}),
    ({"keras-hub": "KerasHub SinePositionEncoding"}, "as vaswani",
     lambda d_model, *, max_wavelength=1e4: {"base": max_wavelength}),
    # an odd d_model has the frequencies of d_model + 1
    ({"positional-encodings": "positional-encodings PositionalEncoding1D"}, "odd: exponents of d + 1",
     lambda d_model: {"shift": -0.5} if d_model % 2 else {}),
    ({"diffusers-timestep": "diffusers get_timestep_embedding"}, "halves, shift 1; odd: zero column",
     lambda d_model, *, flip_sin_to_cos=False, downscale_freq_shift=1.0, scale=1.0, max_period=1e4: {
         "layout": "halves", "order": "cos" if flip_sin_to_cos else "sin", "shift": downscale_freq_shift,
         "position_scale": scale, "base": max_period, "odd": "zero"}),
    ({"mlx": "MLX nn.SinusoidalPositionalEncoding"}, "halves, endpoint, values * sqrt(2/d), even d_model only",
     lambda d_model, *, min_freq=1e-4, max_freq=1.0, cos_first=False, full_turns=False: {
         **ENDPOINT, **EVEN, "order": "cos" if cos_first else "sin", "base": max_freq / min_freq,
         "frequency_scale": max_freq * (math.tau if full_turns else 1.0), "scale": math.sqrt(2 / d_model)}),
    ({"x-transformers": "x-transformers ScaledSinusoidalEmbedding"}, "halves, values / sqrt(d), even d_model only",
     lambda d_model, *, theta=1e4: {"layout": "halves", **EVEN, "base": theta, "scale": d_model**-0.5}),
    ({"pyg": "PyTorch Geometric PositionalEncoding"}, "halves, endpoint, even d_model only",
     lambda d_model, *, base_freq=1e-4, granularity=1.0: {
         **ENDPOINT, **EVEN, "base": 1.0 / base_freq, "position_scale": 1.0 / granularity}),
    # D = d_model / 2 - shift = 1, so frequency i is 2**i
    ({"nerf": "Mildenhall et al. 2020, bmild/nerf Embedder"}, "frequencies 1, 2, 4 ...: d/2 octaves of a coordinate",
     lambda d_model: {"base": 0.5, "shift": d_model / 2 - 1, **EVEN}),
    ({"tiny-cuda-nn": "tiny-cuda-nn Frequency encoding"}, "frequencies pi, 2 pi, 4 pi ...: d/2 octaves",
     lambda d_model: {"base": 0.5, "shift": d_model / 2 - 1, "frequency_scale": math.pi, **EVEN}),
    ({"notebook-columns": "the notebooks that this library began with"}, "a slip: column j has exponent j/d",
     lambda d_model: {"exponents": "column"}),
    # D = d_model / 2 - shift = 1, so frequency i is 10000**(2 / d_model - i)
    ({"notebook-slip": "the notebooks that this library began with"}, "a slip: divisor 10000**(i - 2/d), not 10000**(2i/d)",
     lambda d_model: {"shift": d_model / 2 - 1, "frequency_scale": 1e4 ** (2 / max(d_model, 1)), **EVEN}),
    # D = d_model / 2 - shift = d_model / 4, so column j has the exponent j / (2 D) = 2 j / d_model
    ({"double-exponents": "SamLynnEvans/Transformer PositionalEncoder"}, "a slip: column j has exponent 2j/d",
     lambda d_model: {"exponents": "column", "shift": d_model / 4, **EVEN}),
]
PRESETS = {name: Preset(name, summary, source, function)
           for names, summary, function in ROWS for name, source in names.items()}


def presets() -> dict[str, Preset]:
    """Return the presets of all model families.

    Returns
    -------
    dict of str to Preset
        The presets by name.  ``posenc presets`` prints them as a table.

    See Also
    --------
    preset : Return the `Encoding` for one of these presets.

    Examples
    --------
    >>> import posenc
    >>> list(posenc.presets())[:3]
    ['vaswani', 'xlm', 'speecht5']
    """
    return dict(PRESETS)


def preset(name: str, d_model: SupportsIndex, **changes: Any) -> Encoding:
    """Return the encoding of a known model family.

    Parameters
    ----------
    name : str
        A name from `presets`, such as ``"whisper"``.
    d_model : int
        Number of columns.
    **changes
        Parameters of the source, under the names that the source uses, or keywords of `Encoding`, which
        override the preset; a parameter excludes the keywords that it sets, and each of a lowest and highest
        frequency, wavelength or timescale also excludes ``frequency_scale``.  If a parameter and a keyword
        have the same name, such as ``scale`` in diffusers-timestep, the change sets the parameter.

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
    hint = "; docs/conventions.md lists models; for RoPE, see Rotary.from_config"
    preset = PRESETS[checks.choice("name", name, tuple(PRESETS), hint)]
    d_model = checks.integer("d_model", d_model, 0)
    checks.check_keyword_names(changes, (*preset.parameters, *KEYWORDS))
    parameters = {
        key: (checks.boolean if isinstance(default, bool) else checks.real)(key, changes.pop(key))
        for key, default in preset.parameters.items() if key in changes
    }
    try:
        with kernel.default_environment():
            convention, default = preset.convention(d_model, **parameters), preset.convention(d_model)
            for key, change in itertools.product(parameters, changes):
                # NaN changes every keyword that depends on the parameter
                other = preset.convention(d_model, **{key: math.nan})
                names = other.keys() & {change, *KEYWORDS[change].excludes}
                # base is the ratio of two frequencies or wavelengths, of which frequency_scale is one
                names |= {"base"} & other.keys() if "frequency_scale" in names else set()
                if any(other[name] != default[name] for name in names):
                    raise checks.both_given(key, change)
        return Encoding(d_model, **changed(convention, changes, KEYWORDS))
    except ZeroDivisionError:
        raise ValueError(f"{name} has d_model {d_model} and {parameters}, expected no zero divisor") from None
    except ValueError as error:
        raise ValueError(f"{name} has {parameters}: {error}" if parameters else str(error)) from None
