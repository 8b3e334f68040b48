"""Error messages about models that have no preset or no rotary embeddings."""

import difflib
import re
from collections.abc import Collection

# model name in lower-case letters and digits: a preset with the same convention, or a description of the model's encoding
OTHER_MODELS = {
    "transformer": "vaswani", "nllb": "m2m100", "nllbmoe": "m2m100", "xglm": "m2m100", "pegasus": "marian",
    "codegen": "gptj", "transformerxl": "xlnet", "distilbert": "xlm", "flaubert": "xlm", "speechtotext": "speech2text",
    "pegasusx": "pegasus-x", "musicgendecoder": "musicgen",
    **{name: name for name in ("ctrl", "m2m100", "marian", "speecht5", "timesfm", "whisper", "xlm", "xlnet")},
    **dict.fromkeys(
        ("codellama", "cohere", "commandr", "deepseek", "esm2", "falcon", "gemma", "glm", "gptneox", "gptoss",
         "internlm", "llama", "metallama", "mistral", "mixtral", "modernbert", "nomicbert", "olmo", "palm", "persimmon", "phi",
         "pythia", "qwen", "qwq", "smollm", "stablelm", "starcoder2", "tinyllama", "yi"),
        "rotary embeddings, which rotate queries and keys and add no table: see posenc.Rotary.from_config"),
    **dict.fromkeys(
        ("albert", "bart", "beit", "bert", "bertgeneration", "bigbird", "bigbirdpegasus", "biogpt", "blenderbot",
         "blenderbotsmall", "blip", "bliptextmodel", "camembert", "canine", "clip", "cliptextmodel", "convbert", "data2vectext",
         "decisiontransformer", "deit", "dinov2", "dpr", "electra", "ernie", "gpt", "gpt2", "gptbigcode", "gptneo", "gptsw3",
         "ibert", "imagegpt", "layoutlm", "layoutlmv2", "layoutlmv3", "led", "lilt", "longformer", "luke", "lxmert", "mbart",
         "megatronbert", "mobilebert", "mvp", "nystromformer", "openaigpt", "opt", "plbart", "prophetnet", "reformer",
         "rembert", "roberta", "robertaprelayernorm", "rocbert", "siglip", "sigliptextmodel", "splinter", "squeezebert",
         "trocr", "vilt", "visualbert", "vit", "vitmsn", "xlmroberta", "xlmrobertaxl", "xmod", "yolos", "yoso"),
        "learned embeddings, which are parameters in the checkpoint and follow no formula"),
    **dict.fromkeys(
        ("deberta", "debertav2", "longt5", "mpnet", "mt5", "pop2piano", "swin", "switchtransformers", "t5", "udop",
         "umt5"),
        "relative embeddings, which are learned attention biases and not a table"),
    "mae": "a table for a grid: posenc.grid((h, w), d_model, layout='halves', axes=(1, 0))",
    "vitmae": "a table for a grid: posenc.grid((h, w), d_model, layout='halves')",
    **dict.fromkeys(("bloom", "mpt"), "ALiBi, which adds biases to the attention and has no table"),
    **dict.fromkeys(
        ("falconmamba", "jamba", "kimilinear", "mamba", "mamba2", "nemotronh", "rwkv"),
        "no encoding of positions"),
}


def without_rotation(model_type: str) -> str | None:
    """Describe the encoding of a model type that is known to have no rotary embeddings; return None for any other type."""
    encoding = OTHER_MODELS.get(_letters(model_type))
    if encoding is None or encoding.startswith("rotary") or encoding == "gptj":     # CodeGen uses this table for a rotation
        return None
    return encoding if " " in encoding else f"sinusoidal embeddings: see posenc.preset({encoding!r})"


def explanation(name: str, presets: Collection[str]) -> str:
    """Return the end of the message for an unknown name: an equivalent preset, the model's encoding, or similar presets."""
    letters = _letters(name.rpartition("/")[2])
    known = {_letters(preset): preset for preset in presets} | OTHER_MODELS
    family = max((key for key in known if letters.startswith(key)), key=len, default=None)
    if family is None:
        near = difflib.get_close_matches(name.lower(), presets, n=3, cutoff=0.5)
        if close := difflib.get_close_matches(name.lower(), near, n=1, cutoff=0.8):
            return f"expected one of posenc.presets(); did you mean {close[0]!r}?"
        return f"expected one of posenc.presets(){', such as ' if near else ''}{', '.join(near)}"
    if known[family] in presets:
        return f"expected one of posenc.presets(); did you mean {known[family]!r}?"
    return f"a model with {known[family]}; expected one of posenc.presets()"


def _letters(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
