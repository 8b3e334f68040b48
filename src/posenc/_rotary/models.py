"""The model types of transformers, grouped by the properties of the rotation that configurations do not state.

A model type in no group has pairs in halves, cosines and sines in the form [v0 v1 ... v0 v1 ...], and one axis of positions.
"""

from __future__ import annotations

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


def reason_to_refuse(model_type: str) -> str | None:
    """Return why `Rotary.from_config` cannot read the rotation of a model type, or None."""
    if model_type in SEVERAL_AXES or model_type.endswith(OF_VISION):
        return "whose positions have several axes; Rotary.preset has rotations with several axes"
    if model_type in NO_ROTATION:
        return "which has no rotary embeddings"
    return "which negates angles; call Rotary with frequency_scale=-1" if model_type == "nanochat" else None
