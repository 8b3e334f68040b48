"""Error messages for unknown keywords, with the name of the called function and a suggestion."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable
from typing import Any, ParamSpec, TypeVar

from posenc._arguments.types import Convention

P = ParamSpec("P")
R = TypeVar("R")
F = TypeVar("F", bound=Callable[..., Any])

LENGTHS = ("length max_length seq_len seq_length sequence_length max_seq_len max_seq_length num_positions n_positions "
           "max_position max_position_embeddings ")
CHUNKS = "chunk chunk_size chunksize chunk_length rows_per_chunk batch_size "
# keyword: its names in other libraries, separated by spaces
OTHER_NAMES = {
    "base": "theta rope_theta rope_base rotary_base max_period max_timescale max_wavelength temperature freq_base base_freq n",
    "threads": "num_threads n_threads nthreads n_jobs jobs workers num_workers max_workers n_workers",
    "max_len": LENGTHS + "max_sequence_length context_size block_size",
    "max_sequence_length": LENGTHS + "max_len context_size block_size",
    "length": LENGTHS + "max_len",
    "lengths": "seq_lens seqlens sequence_lengths cu_seqlens",
    "positions": LENGTHS + "max_len max_sequence_length n pos position position_ids steps timesteps rows",
    "shape": "size grid_size img_size image_size hw height width length positions",
    "d_model": "dim d dims depth size features channels num_channels num_features embed_dim embedding_dim emb_dim emb_size "
               "embedding_size hidden_dim hidden_size model_dim n_embd n_dim output_dim columns width",
    "head_dim": "d_model dim d dims depth head_size embed_dim hidden_size size_per_head d_head d_k",
    "rotary_dim": "rope_dim rotary_ndims ndims partial_rotary_factor rotary_pct rotary_percentage",
    "scaling": "rope_scaling rope_parameters rope_type scaling_type scaling_factor",
    "rotary": "rope rotary_emb encoding freqs_cis cos sin",
    "config": "model rope_scaling rope_parameters",
    "axes": "axis mrope_section sections axes_dim",
    "dropout": "p drop drop_prob drop_rate dropout_p dropout_prob dropout_rate rate",
    "chunk_rows": CHUNKS + "chunks batch block_size",
    "chunks": CHUNKS + "chunk_rows batch block_size",
    "start": "offset position_offset start_index start_pos past past_length past_key_values_length past_key_values",
    "position_offset": "offset start start_index start_pos",
    "position_scale": "scaling scaling_factor interpolation pos_scale rope_scaling granularity omega_0",
    "padding_idx": "pad pad_id pad_idx pad_value pad_token_id padding padding_index",
    "padding_segment": "pad_segment padding_id pad_id pad_token_id padding",
    "x_scale": "scale scale_x embed_scale embedding_scale scale_embedding input_scale xscale",
    "frequencies": "freqs freq frequency inv_freq omega omegas bands num_freqs num_frequencies n_harmonic_functions",
    "layout": "interleave interleaved is_neox_style rotate_half concat style mode",
    "scale": "attention_scaling attention_factor mscale",
    "inverse": "inv backward transpose conjugate unrotate",
    "order": "cos_first flip_sin_to_cos",
    "shift": "downscale_freq_shift freq_shift",
    "learned_scale": "alpha learnable trainable learned init_alpha",
    "channel_first": "channels_first data_format",
    "extra_tokens": "cls_token class_token num_prefix_tokens prefix_tokens add_cls_token",
    "coordinates": "normalize normalized normalise",
    "include_input": "append_input",
    "dtype": "type datatype data_type dt precision",
    "out": "output buffer res result",
    "x": "a array embeddings inputs input tokens",
    "encoding": "enc pe d_model preset",
    "mask": "attention_mask padding_mask key_padding_mask input_ids tokens",
    "segment_ids": "segments segment_id seq_ids sequence_ids",
    "dimensions": "dims dimension columns channels",
    "ax": "axis axes figure fig",
    "path": "store filename filepath file fname url",
    "key": "tensor tensor_name",
    "samples": "sample n_samples num_samples n_rows full all",
    "progress": "callback tqdm progress_bar show_progress verbose",
    "overwrite": "force exist_ok mode",
}
# flag of another library: the argument of posenc that has the same meaning as the flag with the value True
FLAGS = {
    "flip_sin_to_cos": "order='cos'", "cos_first": "order='cos'", "interleaved": "layout='interleaved'",
    "interleave": "layout='interleaved'", "is_neox_style": "layout='halves'", "rotate_half": "layout='halves'",
}
CONVENTION = tuple(Convention.__annotations__)


def check_names(
    function: Callable[..., Any], keywords: Iterable[str], others: Collection[str] = (), called: str | None = None
) -> None:
    """Raise a TypeError for a keyword that a function does not accept.

    `others` are the names that the function accepts through ``**``; `called` is the function's name in the message.
    """
    keywords = [name for name in keywords if name not in others]
    if not keywords:
        return
    import difflib
    import inspect

    signature = inspect.signature(function).parameters
    parameters = [p.name for p in signature.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    takes_encoding = "d_model" in signature and "Encoding" in str(signature["d_model"].annotation)
    accepted = [name for name in dict.fromkeys((*parameters, *others)) if name not in ("self", "cls")]
    for name in keywords:
        if name in accepted:
            continue
        meant = [keyword for keyword, names in OTHER_NAMES.items() if name.lower() in names.split()]
        near = [keyword for keyword in meant if keyword in accepted]
        near = near or difflib.get_close_matches(name.lower(), accepted, 1, cutoff=0.7)
        of_encoding = [keyword for keyword in (name, *meant) if keyword in ("d_model", *CONVENTION)]
        if near:
            meaning = f" {name}=True means {FLAGS[name]}" if FLAGS.get(name, "").startswith(f"{near[0]}=") else ""
            hint = f"did you mean {near[0]!r}?{meaning}"
        elif takes_encoding and name in ("encoding", *OTHER_NAMES["encoding"].split()):
            hint = "pass an Encoding instead of d_model"
        elif "encoding" in accepted and of_encoding:
            hint = f"posenc.Encoding takes {of_encoding[0]}"
        elif name in ("device", "requires_grad") and "torch" not in function.__module__:
            hint = "posenc.torch returns tensors"
        else:
            hint = f"expected {', '.join(accepted)}"
        called = called or function.__qualname__.removesuffix(".__init__")
        raise TypeError(f"{called}() got an unexpected keyword argument {name!r}; {hint}") from None


def suggests(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that its error for an unknown keyword suggests a known one, even if an argument is also missing.

    If the function has a ``**`` parameter, this parameter must accept the keywords of a convention.
    """
    @functools.wraps(function)
    def call(*args: P.args, **keywords: P.kwargs) -> R:
        try:
            return function(*args, **keywords)
        except TypeError:
            import inspect

            parameters = inspect.signature(function).parameters.values()
            kinds = [p.kind for p in parameters]
            check_names(function, keywords, CONVENTION if inspect.Parameter.VAR_KEYWORD in kinds else ())
            positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
            if len(args) > len(positional) and inspect.Parameter.VAR_POSITIONAL not in kinds:
                called = function.__qualname__.removesuffix(".__init__")
                taken = " and ".join(name for name in positional if name != "self")
                raise TypeError(f"{called}() takes only {taken} by position; pass the others by keyword") from None
            raise

    return call


class _Missing:
    def __repr__(self) -> str:
        return "missing"


MISSING: Any = _Missing()


def checks_missing(function: F) -> F:
    """Decorate a function so that a missing argument has the value MISSING, which the function must refuse.

    The function must check its keywords first.  Without this decorator, Python would report a missing argument before the
    function could report a misspelled keyword.  Unlike `suggests`, this decorator does not make calls slower.
    """
    import inspect

    changed: Any = function
    changed.__signature__ = signature = inspect.signature(function)         # hides the new defaults
    required = [p for p in signature.parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD and p.default is p.empty]
    changed.__defaults__ = tuple(MISSING for p in required if p.name not in ("self", "cls")) + (changed.__defaults__ or ())
    return function
