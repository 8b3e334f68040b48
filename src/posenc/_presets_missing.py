"""The error message for a model without a preset: it names an equivalent preset, or the encoding that the model uses."""

import difflib
import re
from collections.abc import Collection

# model name in lower-case letters and digits: a preset with the same convention, or what the model uses instead of a table
OTHER_MODELS = {
    "transformer": "vaswani", "nllb": "m2m100", "xglm": "m2m100", "pegasus": "marian", "vitmae": "mae", "codegen": "gptj",
    "transformerxl": "xlnet", "distilbert": "xlm", "flaubert": "xlm",
    **dict.fromkeys(
        ("codellama", "cohere", "commandr", "deepseek", "esm2", "falcon", "gemma", "glm", "gptneox", "gptoss",
         "internlm", "llama", "metallama", "mistral", "mixtral", "modernbert", "nomicbert", "olmo", "palm", "persimmon", "phi",
         "pythia", "qwen", "qwq", "smollm", "stablelm", "starcoder2", "tinyllama", "yi"),
        "rotary embeddings, which rotate queries and keys and add no table: see posenc.Rotary.from_config"),
    **dict.fromkeys(
        ("albert", "bart", "bert", "bigbird", "blip", "camembert", "clip", "deit", "dinov2", "electra", "gpt", "longformer",
         "mbart", "openaigpt", "opt", "roberta", "siglip", "vit", "xlmroberta"),
        "learned embeddings, which are parameters in the checkpoint and follow no formula"),
    **dict.fromkeys(
        ("deberta", "mt5", "swin", "t5", "umt5"), "relative embeddings, which are learned attention biases and not a table"),
    **dict.fromkeys(("bloom", "mpt"), "ALiBi, which adds biases to the attention and has no table"),
}


def explanation(name: str, presets: Collection[str]) -> str:
    """Return the end of the message for an unknown name: an equivalent preset, the model's encoding, or similar presets."""
    letters = re.sub(r"[^a-z0-9]", "", name.lower().rpartition("/")[2])
    known = {re.sub(r"[^a-z0-9]", "", preset): preset for preset in presets} | OTHER_MODELS
    family = max((key for key in known if letters.startswith(key)), key=len, default=None)
    if family is None:
        near = difflib.get_close_matches(name.lower(), presets, n=3, cutoff=0.5)
        return f"expected one of posenc.presets(){', such as ' if near else ''}{', '.join(near)}"
    if known[family] in presets:
        return f"expected one of posenc.presets(); did you mean {known[family]!r}?"
    return f"a model with {known[family]}; expected one of posenc.presets()"
