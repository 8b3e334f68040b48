"""Read the rotation from a model's configuration: a transformers object, its dict, or a checkpoint's parsed config.json."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from posenc._arguments import checks
from posenc._arguments.specification import Specification
from posenc._rotary.axes_of_pairs import alternating
from posenc._rotary.scaling import ORIGINAL, type_of_scaling

# ---- model types of transformers, grouped by the properties of the rotation that configurations do not state --------------
#
# A model type in no group has pairs in halves, cosines and sines in the form [v0 v1 ... v0 v1 ...], and one axis of positions.

INTERLEAVED = {
    "axk1", "axk2", "bailing_hybrid", "blt", "blt_global_transformer", "blt_local_decoder", "blt_local_encoder", "blt_patcher",
    "chatglm", "codegen", "cohere", "cohere2", "cohere2_moe", "deepseek_v2", "deepseek_v3", "deepseek_v32", "deepseek_v4",
    "dots3_note", "dots3_note_text", "ernie4_5", "ernie4_5_moe", "ernie4_5_vl_moe_text", "glm", "glm4", "glm4_moe_lite",
    "glm4v_text", "glm_moe_dsa", "glm_ocr_text", "gptj", "helium", "kimi_k2", "llama4_text", "longcat_flash", "mistral4",
    "mistral_large4_text", "moonshine", "moonshine_streaming", "openai_privacy_filter", "pe_audio_encoder",
    "pe_audio_video_encoder", "pe_video_encoder", "qwen2_5_omni_dit", "roformer", "youtu"
}
# the form of the values from rotary_emb: in pairs is [v0 v0 v1 v1 ...], once is [v0 v1 ...], complex is cos + i sin
TABLES = {
    **dict.fromkeys(
        ("blt_global_transformer", "blt_local_decoder", "blt_local_encoder", "blt_patcher", "cohere", "cohere2", "cohere2_moe",
         "ernie4_5_vl_moe_text", "glm4v_text", "glm_ocr_text"), "in pairs"),
    **dict.fromkeys(("deepseek_v4", "gpt_oss", "openai_privacy_filter"), "once"),
    **dict.fromkeys(("deepseek_v2", "llama4_text"), "complex"),
}
# the default of mrope_section, which divides the pairs among the axes; by default, they form blocks
SECTIONS = {
    **dict.fromkeys(
        ("qwen2_5_omni_talker", "qwen2_5_omni_text", "qwen2_5_vl_text", "qwen2_vl_text", "paddleocr_vl_text"), (16, 24, 24)),
    **dict.fromkeys(("glm4v_moe_text", "glm4v_text", "glm_image_text", "glm_ocr_text"), (8, 12, 12)),
    "ernie4_5_vl_moe_text": (22, 22, 20),
}
INTERLEAVED_SECTIONS = {
    **dict.fromkeys(
        ("cohere_compass_text", "cosmos3_edge_text", "qwen3_omni_moe_talker_text", "qwen3_omni_moe_text", "qwen3_vl_moe_text",
         "qwen3_vl_text"), (24, 20, 20)),
    **dict.fromkeys(("qwen3_5_moe_text", "qwen3_5_text", "qwen4_exp_text"), (11, 11, 10)),
}
ALTERNATING_SECTIONS = {"ernie4_5_vl_moe_text"}
UNSUPPORTED_SECTIONS = {"hunyuan_vl", "hunyuan_vl_text", "inkling2"}
# the configuration class has a default for the number of rotated columns
PARTIAL = {
    "bamba", "chatglm", "codegen", "dots3_note_audio_encoder", "glm", "glm4", "glm4_moe", "glm4v_moe_text", "glmasr_encoder",
    "gpt_neox", "gptj", "moonshine", "moonshine_streaming", "nemotron", "nemotron3_5_transcribe_asr_audio",
    "nemotron3_5_transcribe_word_timestamp", "persimmon", "phi", "qwen3_5_moe_text", "qwen3_5_text", "qwen3_next",
    "recurrent_gemma", "stablelm"
}
BASES = {"codegen": 10000.0, "gptj": 10000.0, "roformer": 10000.0}          # their configurations have none
# the model rotates only if a key of the configuration has this value
ROTATES_WITH = {
    "esm": ("position_embedding_type", "rotary"), "falcon": ("alibi", False),
    "granitemoehybrid": ("position_embedding_type", "rope"), "zamba2": ("use_mem_rope", True),
}
# in former configurations, local attention ignores rope_scaling; in the second group, it also has a base of its own
UNSCALED_LOCAL, LOCAL_BASE = {"olmo3"}, {"gemma3_text", "gemma3n_text"}
SEVERAL_AXES = {
    "dinov3_vit", "edgetam_video", "efficientloftr", "eomt_dinov3", "musicflamingo", "neomme", "pixtral", "sam2_video",
    "sam3_tracker_video", "sam3_vit_model", "sapiens2"
}
OF_VISION = ("_vision", "_vision_encoder", "_vision_model")         # model types with these endings have several axes
NO_ROTATION = {
    "bloom", "falcon_mamba", "jamba", "kimi_linear", "mamba", "mamba2", "mpt", "nemotron_h", "rwkv"
}

# ---- keys of configurations -------------------------------------------------------------------------------------------

SHARES = ("partial_rotary_factor", "rotary_pct", "rope_pct", "rotary_percent", "rotary_percentage", "rotary_emb_fraction")
# posenc uses rotary_dim for minimax_m3_vl_text, too.  transformers 5.23 documents this key as the number of rotated columns but
# ignores it.  For MiniMax-M2, transformers ignored it by mistake (issue 48241).
WIDTHS = ("rotary_dim", "rotary_ndims", "attn_rotary_emb")
LENGTHS = ("max_position_embeddings", "n_positions", "max_seq_len")
LOCAL, FULL = "sliding_attention", "full_attention"


def settings_of(config: Any, layer_type: Any, length: Any) -> tuple[int, dict[str, Any]]:
    """Return head_dim and the keywords with which to call `Rotary`."""
    if layer_type is not None and not isinstance(layer_type, str):
        raise checks.wrong_type("layer_type", layer_type, "a name such as 'full_attention'")
    if length is not None:
        length = checks.integer("length", length, 1)
    model_type = _model_type(config)
    _check_supported(config, model_type)
    scaling = _parameters(config, model_type, layer_type)
    config = _of_layer(config, layer_type)
    head_dim = _head_dim(config)
    keywords: dict[str, Any] = {"layout": _layout(config, model_type), "scaling": scaling}

    scaling.setdefault("rope_theta", look_up(config, "rope_theta", "rotary_emb_base") or BASES.get(model_type))
    if scaling["rope_theta"] is None:
        raise _lacks("rope_theta", config)
    checks.real("rope_theta", scaling["rope_theta"])
    other_bases = set(_listed(config, "layer_rope_theta")) - {0, scaling["rope_theta"]}
    if other_bases:
        raise ValueError(f"config has layer_rope_theta with {min(other_bases)}, expected one base; make a Rotary for each base")

    if look_up(config, "qk_rope_head_dim") is not None:       # qk_rope_head_dim counts only rotated columns
        scaling.pop("partial_rotary_factor", None)
    elif "partial_rotary_factor" not in scaling:
        share, keywords["rotary_dim"] = look_up(config, *SHARES), look_up(config, *WIDTHS)
        if share is not None:
            scaling["partial_rotary_factor"], keywords["rotary_dim"] = share, None
        elif isinstance(config, Mapping) and model_type in PARTIAL and config.keys().isdisjoint((*SHARES, *WIDTHS)):
            raise _lacks("partial_rotary_factor", config)

    _set_lengths(scaling, config, length)
    share = checks.real("partial_rotary_factor", scaling.get("partial_rotary_factor", 1))
    rotary_dim = keywords.get("rotary_dim")
    columns = int(head_dim * share) if rotary_dim is None else checks.integer("rotary_dim", rotary_dim, 0)
    _set_axes(keywords, model_type, columns // 2)
    return head_dim, keywords


def _model_type(config: Any) -> str:
    """Check that a value is a configuration, and return the model type."""
    if isinstance(config, Specification) or not isinstance(config, Mapping) and not hasattr(config, "to_dict"):
        raise checks.wrong_type("config", config, "a configuration such as model.config, or its dict as json.load reads it")
    return str(look_up(config, "model_type"))


def _check_supported(config: Any, model_type: str) -> None:
    """Raise a ValueError if the model has no rotation, or if its configuration does not describe the rotation."""
    reason = None
    if model_type in SEVERAL_AXES or model_type.endswith(OF_VISION):
        reason = "whose positions have several axes; Rotary.preset has rotations with several axes"
    elif model_type in NO_ROTATION:
        reason = "which has no rotary embeddings"
    elif model_type == "nanochat":
        reason = "which negates angles; call Rotary with frequency_scale=-1"
    if reason is not None:
        raise ValueError(f"config has model_type {model_type!r}, {reason}")
    for key, value in (("rope_ratio", 1), ROTATES_WITH.get(model_type, ("rope_ratio", 1))):
        if look_up(config, key) not in (None, value):
            raise ValueError(f"config has {key} {look_up(config, key)!r}, expected {value!r}")


def _lacks(key: str, config: Any) -> ValueError:
    if isinstance(config, Mapping):
        return ValueError(f"config lacks {key}; add it, or pass an object of the configuration class, which has the default")
    return ValueError(f"config lacks {key}, expected the configuration of a model with rotary embeddings")


def look_up(config: Any, *names: str) -> Any:
    """Look up `names` in a configuration, in order; return the first value that is not None, else None."""
    for name in names:
        value = config.get(name) if isinstance(config, Mapping) else getattr(config, name, None)
        if value is not None:
            return value
    return None


def _listed(config: Any, name: str) -> list[Any] | tuple[Any, ...]:
    values = look_up(config, name)
    if not isinstance(values, (list, tuple, type(None))):
        raise checks.wrong_type(name, values, "a list")
    return values or ()


def _head_dim(config: Any) -> int:
    head_dim = look_up(config, "qk_rope_head_dim", "head_dim", "attention_head_dim", "kv_channels")
    if head_dim is None:
        width = look_up(config, "hidden_size", "n_embd", "d_model")
        heads = look_up(config, "num_attention_heads", "n_head", "n_heads", "decoder_num_attention_heads")
        if width is None or heads is None:
            part = "; pass config.text_config" if look_up(config, "text_config") is not None else ""
            raise ValueError(f"config lacks head_dim, or hidden_size and num_attention_heads{part}")
        width, heads = checks.integer("hidden_size", width, 1), checks.integer("num_attention_heads", heads, 1)
        if width % heads:
            raise ValueError(f"config has hidden_size {width}, expected a multiple of num_attention_heads, {heads}")
        head_dim = width // heads
    return checks.integer("head_dim", head_dim, 1)


def _layout(config: Any, model_type: str) -> str:
    interleaved = look_up(config, "rope_interleave", "rope_interleaved", "rotary_interleaved", "rotary_emb_interleaved")
    if interleaved is None:
        interleaved = model_type in INTERLEAVED
    return "interleaved" if checks.boolean("rope_interleave", interleaved) else "halves"


def _set_lengths(scaling: dict[str, Any], config: Any, length: int | None) -> None:
    """Set the lengths that the scaling type needs and that configurations state outside of the rope parameters."""
    rope_type, trained_length = type_of_scaling(scaling), look_up(config, *LENGTHS)
    if rope_type in ("llama3", "yarn", "longrope"):
        is_nested = _is_nested(_stated_parameters(config))
        # as in transformers, the key of the configuration overrides that of rope_parameters
        lengths = (None if is_nested else look_up(config, ORIGINAL), scaling.get(ORIGINAL), trained_length)
        scaling[ORIGINAL] = next((value for value in lengths if value is not None), None)
    if rope_type == "dynamic" or rope_type in ("yarn", "longrope") and "factor" not in scaling:
        scaling.setdefault("max_position_embeddings", trained_length)
    if length is not None and rope_type in ("dynamic", "longrope"):
        scaling["length"] = length


def _set_axes(keywords: dict[str, Any], model_type: str, pairs: int) -> None:
    """Set the axes of a model whose configuration or type has sections."""
    scaling = keywords["scaling"]
    interleaved = INTERLEAVED_SECTIONS.get(model_type)
    if "mrope_section" not in scaling and model_type in SECTIONS:
        scaling["mrope_section"] = SECTIONS[model_type]
    elif "mrope_section" not in scaling and interleaved is not None:            # the first axis has the remaining pairs
        height, width = (len(range(axis, min(3 * interleaved[axis], pairs), 3)) for axis in (1, 2))
        scaling["mrope_section"] = (pairs - height - width, height, width)
    if "mrope_section" not in scaling:
        return
    if model_type in UNSUPPORTED_SECTIONS:
        raise ValueError(f"config has model_type {model_type!r}, whose mrope_section is unsupported; call Rotary with axes")
    if model_type in ALTERNATING_SECTIONS:
        keywords["axes"] = alternating(scaling.pop("mrope_section"))
    elif interleaved is not None:
        scaling["mrope_interleaved"] = True


# ---- layers of different types ----------------------------------------------------------------------------------------


def layer_types(config: Any) -> list[str | None]:
    """Return the layer types that have a rotation, if the configuration distinguishes layer types, else [None]."""
    return list(_parameters_by_type(config, _model_type(config)))


def _parameters(config: Any, model_type: str, layer_type: str | None) -> dict[str, Any]:
    """Return a copy of the rope parameters for a layer type, without those that are None."""
    by_type = _parameters_by_type(config, model_type)
    if None in by_type and layer_type in _listed(config, "layer_types"):
        layer_type = None                                   # the layers of all types are alike
    if layer_type not in by_type:
        raise ValueError(f"layer_type is {layer_type!r}, expected {' or '.join(map(repr, by_type))}")
    parameters = by_type[layer_type]
    if layer_type == LOCAL and parameters.get("rope_theta", 0) is None:
        raise _lacks("rope_local_base_freq", config)
    return {key: value for key, value in parameters.items() if value is not None}


def _parameters_by_type(config: Any, model_type: str) -> dict[str | None, dict[str, Any]]:
    """Return the rope parameters of each layer type that has a rotation; the only key is None if all layers are alike."""
    parameters = dict(_stated_parameters(config))
    if _is_nested(parameters):
        return {name: dict(value) for name, value in parameters.items() if value is not None}
    # older configurations
    bases = {LOCAL: look_up(config, "rope_local_base_freq", "local_rope_theta"), FULL: look_up(config, "global_rope_theta")}
    is_unscaled = model_type in UNSCALED_LOCAL | LOCAL_BASE
    if bases == {LOCAL: None, FULL: None} and not (parameters and is_unscaled):
        return {None: parameters}
    local_parameters = {} if is_unscaled else parameters
    if bases[LOCAL] is not None or model_type in LOCAL_BASE:
        local_parameters = {**local_parameters, "rope_theta": bases[LOCAL]}
    return {LOCAL: local_parameters, FULL: parameters if bases[FULL] is None else {**parameters, "rope_theta": bases[FULL]}}


def _stated_parameters(config: Any) -> Mapping[str, Any]:
    """Return rope_parameters, or rope_scaling (its former name), or an empty dict if the configuration has neither."""
    values = (look_up(config, name) for name in ("rope_parameters", "rope_scaling"))
    statements = [value for value in values if value not in (None, {})] or [{}]
    if statements[0] != statements[-1]:
        raise ValueError("config has both rope_parameters and rope_scaling, expected only one of them")
    if not isinstance(statements[0], Mapping):
        raise checks.wrong_type("config.rope_parameters or config.rope_scaling", statements[0], "a dict")
    return statements[0]


def _is_nested(parameters: Mapping[str, Any]) -> bool:
    return bool(parameters) and all(value is None or isinstance(value, Mapping) for value in parameters.values())


def _of_layer(config: Any, layer_type: str | None) -> Any:
    """Return the configuration for a layer type.  In Gemma 4, head_dim differs between the types."""
    is_dict = isinstance(config, Mapping)
    by_index: Any = config.get("per_layer_config") if is_dict else getattr(config, "is_heterogeneous", False)
    if by_index and layer_type is None:
        raise ValueError("layer_type is None, expected a name from config.layer_types, because the layers differ")
    if not is_dict:
        return config.per_layer_config[layer_type] if by_index else config
    values = {"head_dim": config["global_head_dim"]} if config.get("global_head_dim") and layer_type == FULL else {}
    if by_index:
        by_index = {int(index): changes for index, changes in by_index.items()}
        changes = [by_index.get(i, {}) for i, name in enumerate(config.get("layer_types") or ()) if name == layer_type]
        if any(changes_of_layer != changes[0] for changes_of_layer in changes):
            raise ValueError(f"layer_type is {layer_type!r}, but config.per_layer_config has different values for these layers")
        values |= changes[0] if changes else {}
    return {**config, **values}
