"""Read the rotation from a model's configuration: a transformers object, its dict, or the JSON of a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posenc import _arguments, _pair_axes, _scaling
from posenc._specification import Specification

# Model types whose pairs are columns 2 i and 2 i + 1; in all others, they are columns i and i + rotary_dim / 2
INTERLEAVED = frozenset((
    "axk1", "axk2", "bailing_hybrid", "blt", "blt_global_transformer", "blt_local_decoder", "blt_local_encoder",
    "blt_patcher", "chatglm", "codegen", "cohere", "cohere2", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32",
    "deepseek_v4", "dots3_note", "dots3_note_audio_encoder", "dots3_note_text", "ernie4_5", "ernie4_5_moe",
    "ernie4_5_vl_moe_text", "glm", "glm4", "glm4_moe_lite", "glm4v_text", "glm_moe_dsa", "glm_ocr_text", "gptj", "helium",
    "kimi_k2", "llama4_text", "longcat_flash", "mistral4", "mistral_large4_text", "moonshine", "moonshine_streaming",
    "openai_privacy_filter", "pe_audio_encoder", "pe_audio_video_encoder", "pe_video_encoder", "youtu",
))
# Model types that interleave the axes of mrope_section, even if the configuration lacks mrope_interleaved
INTERLEAVED_SECTIONS = frozenset((
    "qwen3_vl_text", "qwen3_vl_moe_text", "qwen3_omni_moe_text", "qwen3_omni_moe_talker_text", "qwen3_5_text",
    "qwen3_5_moe_text",
))
ALTERNATING_SECTIONS = frozenset(("ernie4_5_vl_moe_text",))
UNSUPPORTED_SECTIONS = frozenset(("hunyuan_vl", "hunyuan_vl_text", "neomme", "inkling2"))
BACKWARDS = frozenset(("nanochat",))        # model types that rotate by the negative angles
BASES = {"codegen": 1e4, "gptj": 1e4}       # the bases of model types whose configuration has none
# Model types that apply a single rope_scaling, as in older configurations, only to layers with full attention
SCALED_IN_FULL_ATTENTION = frozenset(("gemma3_text", "gemma3n_text", "olmo3"))
LOCAL, FULL = "sliding_attention", "full_attention"


def settings(config: Any, layer_type: Any, length: Any) -> tuple[int, dict[str, Any]]:
    """Return head_dim and the keywords with which to call `Rotary`."""
    if layer_type is not None and not isinstance(layer_type, str):
        raise _arguments.wrong_type("layer_type", layer_type, "a name such as 'full_attention'")
    if length is not None:
        length = _arguments.integer("length", length, 1)
    if isinstance(config, Specification) or not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
        raise _arguments.wrong_type("config", config, "a configuration from transformers or its dict")
    config = _of_layer(config, layer_type)
    scaling, nested = _parameters(config, layer_type)
    model_type = _read(config, "model_type")
    head_dim = _head_dim(config)
    keywords: dict[str, Any] = {"layout": _layout(config, model_type), "scaling": scaling}
    rope_type = _scaling.type_of(scaling)
    if model_type in BACKWARDS:
        raise ValueError(f"config has model_type {model_type!r}, which negates angles; call Rotary with frequency_scale=-1")

    if scaling.get("rope_theta") is None:
        scaling["rope_theta"] = _read(config, "rope_theta", "rotary_emb_base")
    if scaling["rope_theta"] is None:
        if model_type not in BASES:
            raise ValueError(
                "config has no rope_theta, whose default is in the model's configuration class; "
                "pass an object of that class, or add rope_theta to the dict"
            )
        scaling["rope_theta"] = BASES[model_type]

    if _read(config, "qk_rope_head_dim") is not None:       # this head_dim has only rotated columns
        scaling.pop("partial_rotary_factor", None)
    elif scaling.get("partial_rotary_factor") is None:
        share = _read(config, "partial_rotary_factor", "rotary_pct", "rope_pct")
        if share is not None:
            scaling["partial_rotary_factor"] = share
        elif (rotary_dim := _read(config, "rotary_dim")) is not None:
            keywords["rotary_dim"] = rotary_dim

    max_positions = _read(config, "max_position_embeddings", "n_positions")
    if rope_type in ("llama3", "yarn", "longrope"):
        original = None if nested else _read(config, "original_max_position_embeddings")
        if original is not None:            # as in transformers, it overrides rope_parameters
            scaling["original_max_position_embeddings"] = original
        elif scaling.get("original_max_position_embeddings") is None:
            scaling["original_max_position_embeddings"] = max_positions
    if rope_type == "dynamic" or rope_type in ("yarn", "longrope") and scaling.get("factor") is None:
        scaling.setdefault("max_position_embeddings", max_positions)
    if length is not None and rope_type in ("dynamic", "longrope"):
        scaling["length"] = length

    sections = scaling.get("mrope_section")
    if sections is not None:
        if model_type in UNSUPPORTED_SECTIONS:
            raise ValueError(f"config has model_type {model_type!r}, whose mrope_section is unsupported; call Rotary with axes")
        if model_type in ALTERNATING_SECTIONS:
            keywords["axes"] = _pair_axes.alternating(scaling.pop("mrope_section"))
        elif model_type in INTERLEAVED_SECTIONS:
            scaling["mrope_interleaved"] = True
    return head_dim, keywords


def _read(config: Any, *names: str) -> Any:
    """Return the first of these values in a configuration that is not None, else None."""
    for name in names:
        value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
        if value is not None:
            return value
    return None


def _of_layer(config: Any, layer_type: str | None) -> Any:
    """Return the configuration for a layer type, with the head_dim of that type, which varies in Gemma 4."""
    if isinstance(config, Mapping):
        wide = config.get("global_head_dim")
        return {**config, "head_dim": wide} if wide is not None and layer_type == FULL else config
    if not getattr(config, "is_heterogeneous", False):
        return config
    if layer_type is None:
        raise ValueError("layer_type is None, expected a name from config.layer_types, because the layers differ")
    return config.per_layer_config[layer_type]


def _parameters(config: Any, layer_type: str | None) -> tuple[dict[str, Any], bool]:
    """Return a copy of the rope parameters for a layer type, and whether the configuration nests them by layer type."""
    parameters = _read(config, "rope_parameters", "rope_scaling") or {}
    if not isinstance(parameters, Mapping):
        raise TypeError(f"config has rope_parameters of type {type(parameters).__name__}, expected a dict")
    if parameters and all(value is None or isinstance(value, Mapping) for value in parameters.values()):
        if layer_type not in parameters:
            raise ValueError(f"layer_type is {layer_type!r}, expected one of {', '.join(map(repr, parameters))}")
        if parameters[layer_type] is None:
            raise ValueError(f"layer_type is {layer_type!r}, but these layers have no rotation")
        return dict(parameters[layer_type]), True
    parameters = dict(parameters)
    bases = {
        LOCAL: _read(config, "rope_local_base_freq", "local_rope_theta"),
        FULL: _read(config, "global_rope_theta"),
    }
    only_full = _read(config, "model_type") in SCALED_IN_FULL_ATTENTION
    differ = any(value is not None for value in bases.values()) or bool(parameters) and only_full
    types = (LOCAL, FULL) if differ else _read(config, "layer_types") or ()
    if layer_type not in types and (differ or layer_type is not None):
        expected = f"one of {', '.join(map(repr, dict.fromkeys(types)))}" if types else "None: all layers are alike"
        raise ValueError(f"layer_type is {layer_type!r}, expected {expected}")
    if differ:
        if layer_type == LOCAL and only_full:
            parameters = {}
        if layer_type is not None and bases[layer_type] is not None:
            parameters["rope_theta"] = bases[layer_type]
    return parameters, False


def _head_dim(config: Any) -> int:
    head_dim = _read(config, "qk_rope_head_dim", "head_dim", "kv_channels")
    if head_dim is None:
        width = _read(config, "hidden_size", "n_embd", "d_model")
        heads = _read(config, "num_attention_heads", "n_head", "n_heads")
        if width is None or heads is None:
            inner = "; pass config.text_config" if _read(config, "text_config") is not None else ""
            raise ValueError(f"config has no head_dim, expected head_dim, or hidden_size and num_attention_heads{inner}")
        head_dim = width // heads
    return _arguments.integer("head_dim", head_dim, 1)


def _layout(config: Any, model_type: Any) -> str:
    interleaved = _read(config, "rope_interleave")
    if interleaved is None:
        interleaved = model_type in INTERLEAVED
    return "interleaved" if interleaved else "halves"
