"""The model types whose rotation differs from that of most models in a property that configurations do not state."""

from __future__ import annotations

from typing import Any, NamedTuple

BACKWARDS = "which negates angles; call Rotary with frequency_scale=-1"
SEVERAL_AXES = "whose positions have several axes; Rotary.preset has rotations with several axes"
OF_VISION = ("_vision", "_vision_encoder", "_vision_model")         # model types with these endings have several axes


class Model(NamedTuple):
    """A model type.  The defaults are those of most models."""

    layout: str = "halves"                          # of the pairs, for configurations that do not state it
    tables: str = "twice"                           # order of the values from rotary_emb; twice: [v0 v1 ... v0 v1 ...];
                                                    # in pairs: [v0 v0 v1 v1 ...]; once: [v0 v1 ...]; complex: cos + i sin
    sections: tuple[int, ...] | None = None         # mrope_section, for configurations without one
    axes: str = "blocks"                            # how mrope_section divides the pairs: blocks, interleaved or alternating
    partial: bool = False                           # the configuration class has a default for the number of rotated columns
    base: float | None = None                       # for model types whose configurations have none
    rotates_with: tuple[str, Any] | None = None     # the model rotates only if this key of the configuration has this value
    local: str = "alike"                            # unscaled: local attention ignores rope_scaling;
                                                    # own base: local attention ignores rope_scaling and rope_theta
    refused: str | None = None                      # for unsupported model types: the end of the error message


MODELS = {
    "axk1": Model(layout="interleaved"),
    "axk2": Model(layout="interleaved"),
    "bailing_hybrid": Model(layout="interleaved"),
    "bamba": Model(partial=True),
    "blt": Model(layout="interleaved"),
    "blt_global_transformer": Model(layout="interleaved", tables="in pairs"),
    "blt_local_decoder": Model(layout="interleaved", tables="in pairs"),
    "blt_local_encoder": Model(layout="interleaved", tables="in pairs"),
    "blt_patcher": Model(layout="interleaved", tables="in pairs"),
    "chatglm": Model(layout="interleaved", partial=True),
    "codegen": Model(layout="interleaved", partial=True, base=10000.0),
    "cohere": Model(layout="interleaved", tables="in pairs"),
    "cohere2": Model(layout="interleaved", tables="in pairs"),
    "cohere2_moe": Model(layout="interleaved", tables="in pairs"),
    "cohere_compass_text": Model(sections=(24, 20, 20), axes="interleaved"),
    "cosmos3_edge_text": Model(sections=(24, 20, 20), axes="interleaved"),
    "deepseek_v2": Model(layout="interleaved", tables="complex"),
    "deepseek_v3": Model(layout="interleaved"),
    "deepseek_v32": Model(layout="interleaved"),
    "deepseek_v4": Model(layout="interleaved", tables="once"),
    "dinov3_vit": Model(refused=SEVERAL_AXES),
    "dots3_note": Model(layout="interleaved"),
    "dots3_note_audio_encoder": Model(partial=True),
    "dots3_note_text": Model(layout="interleaved"),
    "edgetam_video": Model(refused=SEVERAL_AXES),
    "efficientloftr": Model(refused=SEVERAL_AXES),
    "eomt_dinov3": Model(refused=SEVERAL_AXES),
    "ernie4_5": Model(layout="interleaved"),
    "ernie4_5_moe": Model(layout="interleaved"),
    "ernie4_5_vl_moe_text": Model(layout="interleaved", tables="in pairs", sections=(22, 22, 20), axes="alternating"),
    "esm": Model(rotates_with=("position_embedding_type", "rotary")),
    "falcon": Model(rotates_with=("alibi", False)),
    "gemma3_text": Model(local="own base"),
    "gemma3n_text": Model(local="own base"),
    "glm": Model(layout="interleaved", partial=True),
    "glm4": Model(layout="interleaved", partial=True),
    "glm4_moe": Model(partial=True),
    "glm4_moe_lite": Model(layout="interleaved"),
    "glm4v_moe_text": Model(sections=(8, 12, 12), partial=True),
    "glm4v_text": Model(layout="interleaved", tables="in pairs", sections=(8, 12, 12)),
    "glm_image_text": Model(sections=(8, 12, 12)),
    "glm_moe_dsa": Model(layout="interleaved"),
    "glm_ocr_text": Model(layout="interleaved", tables="in pairs", sections=(8, 12, 12)),
    "glmasr_encoder": Model(partial=True),
    "gpt_neox": Model(partial=True),
    "gpt_oss": Model(tables="once"),
    "gptj": Model(layout="interleaved", partial=True, base=10000.0),
    "granitemoehybrid": Model(rotates_with=("position_embedding_type", "rope")),
    "helium": Model(layout="interleaved"),
    "hunyuan_vl": Model(axes="unsupported"),
    "hunyuan_vl_text": Model(axes="unsupported"),
    "inkling2": Model(axes="unsupported"),
    "kimi_k2": Model(layout="interleaved"),
    "llama4_text": Model(layout="interleaved", tables="complex"),
    "longcat_flash": Model(layout="interleaved"),
    "mistral4": Model(layout="interleaved"),
    "mistral_large4_text": Model(layout="interleaved"),
    "moonshine": Model(layout="interleaved", partial=True),
    "moonshine_streaming": Model(layout="interleaved", partial=True),
    "musicflamingo": Model(refused=SEVERAL_AXES),
    "nanochat": Model(refused=BACKWARDS),
    "nemotron": Model(partial=True),
    "nemotron3_5_transcribe_asr_audio": Model(partial=True),
    "nemotron3_5_transcribe_word_timestamp": Model(partial=True),
    "neomme": Model(refused=SEVERAL_AXES),
    "olmo3": Model(local="unscaled"),
    "openai_privacy_filter": Model(layout="interleaved", tables="once"),
    "paddleocr_vl_text": Model(sections=(16, 24, 24)),
    "pe_audio_encoder": Model(layout="interleaved"),
    "pe_audio_video_encoder": Model(layout="interleaved"),
    "pe_video_encoder": Model(layout="interleaved"),
    "persimmon": Model(partial=True),
    "phi": Model(partial=True),
    "pixtral": Model(refused=SEVERAL_AXES),
    "qwen2_5_omni_dit": Model(layout="interleaved"),
    "qwen2_5_omni_talker": Model(sections=(16, 24, 24)),
    "qwen2_5_omni_text": Model(sections=(16, 24, 24)),
    "qwen2_5_vl_text": Model(sections=(16, 24, 24)),
    "qwen2_vl_text": Model(sections=(16, 24, 24)),
    "qwen3_5_moe_text": Model(sections=(11, 11, 10), axes="interleaved", partial=True),
    "qwen3_5_text": Model(sections=(11, 11, 10), axes="interleaved", partial=True),
    "qwen3_next": Model(partial=True),
    "qwen3_omni_moe_talker_text": Model(sections=(24, 20, 20), axes="interleaved"),
    "qwen3_omni_moe_text": Model(sections=(24, 20, 20), axes="interleaved"),
    "qwen3_vl_moe_text": Model(sections=(24, 20, 20), axes="interleaved"),
    "qwen3_vl_text": Model(sections=(24, 20, 20), axes="interleaved"),
    "qwen4_exp_text": Model(sections=(11, 11, 10), axes="interleaved"),
    "recurrent_gemma": Model(partial=True),
    "roformer": Model(layout="interleaved", base=10000.0),
    "sam2_video": Model(refused=SEVERAL_AXES),
    "sam3_tracker_video": Model(refused=SEVERAL_AXES),
    "sam3_vit_model": Model(refused=SEVERAL_AXES),
    "sapiens2": Model(refused=SEVERAL_AXES),
    "stablelm": Model(partial=True),
    "youtu": Model(layout="interleaved"),
    "zamba2": Model(rotates_with=("use_mem_rope", True)),
}


def model_of(model_type: Any) -> Model:
    if isinstance(model_type, str) and model_type.endswith(OF_VISION):
        return Model(refused=SEVERAL_AXES)
    return MODELS.get(model_type, Model())
