"""Compare Rotary with transformers: frequencies, tables, axes, and whole models with random weights."""


import numpy as np
import pytest

import posenc
from posenc import Rotary

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from transformers import modeling_rope_utils  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")      # warnings from transformers
transformers.logging.set_verbosity_error()

ORIGINAL = {"original_max_position_embeddings": 4096}
SCALINGS = {
    "default": {}, "linear": {"factor": 3.0}, "dynamic": {"factor": 2.5},
    "yarn": {"factor": 16.0, **ORIGINAL},
    "yarn with mscale": {"factor": 40.0, "mscale": 1.0, "mscale_all_dim": 0.5, "beta_fast": 24,
                         "beta_slow": 2.0, **ORIGINAL},
    "yarn without truncation": {"factor": 256.0, "truncate": False, **ORIGINAL},
    "yarn without a factor": {"factor": None, **ORIGINAL},
    "longrope": {"short_factor": 1.0, "long_factor": 8.0, **ORIGINAL},
    "longrope with a factor": {"short_factor": 1.0, "long_factor": 8.0, "factor": 32.0, **ORIGINAL},
    "llama3": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, **ORIGINAL},
    "proportional": {"partial_rotary_factor": 0.25},
}
# head_dim, base, partial_rotary_factor
SHAPES = [(64, 1e4, 1.0), (128, 5e5, 1.0), (96, 1e6, 0.5), (80, 1e4, 0.4)]


def parameters(name, head_dim, base, share):
    rope_type = name.split()[0]
    scaling = {"rope_type": rope_type, "rope_theta": base, **SCALINGS[name]}
    if share != 1:
        scaling.setdefault("partial_rotary_factor", share)
    if rope_type == "longrope":
        pairs = int(head_dim * share) // 2
        for key in ("short_factor", "long_factor"):
            scaling[key] = (scaling[key] * np.linspace(1, 4, pairs)).tolist()
    return scaling


def their_frequencies(config, length):
    given = config.rope_parameters
    if given["rope_type"] == "default":
        dim = int(config.head_dim * given.get("partial_rotary_factor", 1.0))
        return (1 / given["rope_theta"] ** (torch.arange(0, dim, 2).float() / dim)).double().numpy(), 1.0
    function = modeling_rope_utils.ROPE_INIT_FUNCTIONS[given["rope_type"]]
    frequencies, factor = function(config, "cpu", seq_len=length)
    return frequencies.double().numpy(), factor


def assert_same_frequencies(rotary, frequencies, factor):
    assert rotary.attention_scaling == pytest.approx(factor, rel=1e-15)
    turning = frequencies != 0
    assert np.array_equal(turning, rotary.frequencies != 0)
    bound = 2e-6 + 1e-7 * ((rotary.scaling or {}).get("factor") or 0)
    assert np.abs(frequencies[turning] / rotary.frequencies[turning] - 1).max() < bound


@pytest.mark.parametrize("head_dim, base, share", SHAPES)
@pytest.mark.parametrize("name", SCALINGS)
@pytest.mark.parametrize("length", [None, 20000])
def test_frequencies_are_those_of_transformers(name, head_dim, base, share, length):
    options = {"model_type": "llama" if share == 1 else "glm4", "hidden_size": 2 * head_dim, "head_dim": head_dim,
               "num_attention_heads": 2, "max_position_embeddings": 16384}
    scaling = parameters(name, head_dim, base, share)
    config = transformers.AutoConfig.for_model(**options, rope_parameters=dict(scaling))
    frequencies, factor = their_frequencies(config, length)
    old = {key: value for key, value in scaling.items() if key not in ("rope_theta", "rope_type")}
    legacy = {"rope_theta": base, "rope_scaling": {"type": scaling["rope_type"]} | old}
    for each in (config, config.to_dict(), options | {"rope_parameters": scaling}, options | legacy):
        assert_same_frequencies(Rotary.from_config(each, length=length), frequencies, factor)
    nested = {"full_attention": scaling, "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    gemma = options | {"model_type": "gemma3_text", "head_dim": head_dim, "rope_parameters": nested}
    assert_same_frequencies(Rotary.from_config(gemma, "full_attention", length), frequencies, factor)


@pytest.mark.parametrize("key, value", [("partial_rotary_factor", 0.5), ("rotary_pct", 0.5), ("rotary_dim", 8),
                                        ("rotary_emb_base", 5e5)])
@pytest.mark.parametrize("model_type", ["llama", "mistral", "qwen2", "gemma"])
def test_keys_that_a_module_does_not_read_are_refused(model_type, key, value):
    config = {"model_type": model_type, **SIZES}
    modules = [transformers.AutoModel.from_config(transformers.AutoConfig.for_model(**config, **changes)).rotary_emb
               for changes in ({}, {key: value})]
    assert torch.equal(modules[0].inv_freq, modules[1].inv_freq)
    with pytest.raises(ValueError, match=f"config has {key}"):
        Rotary.from_config(config | {key: value})


# ---- whole models ------------------------------------------------------------------------------------------


SIZES = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
         "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
ROPE, PAIRS = {"rope_type": "default", "rope_theta": 1e6}, np.linspace(1, 2, 8)
MODELS = {          # the name of the classes, options of the configuration
    "Llama": {"rope_parameters": SCALINGS["llama3"] | {"rope_type": "llama3", "rope_theta": 5e5,
                                                       "factor": 8.0,
                                                       "original_max_position_embeddings": 64},
              "max_position_embeddings": 512},
    "Gemma3": {"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8.0,
                                                      "rope_theta": 1e6},
                                   "sliding_attention": ROPE | {"rope_theta": 1e4}},
               "layer_types": ["sliding_attention", "full_attention"], "sliding_window": 16},
    "Qwen3": {"rope_parameters": ROPE},
    "Phi3": {"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": PAIRS.tolist(),
                                 "long_factor": (15 * PAIRS).tolist()},
             "original_max_position_embeddings": 40, "max_position_embeddings": 512},
}


def model_of(name):
    sizes = {key: value for key, value in SIZES.items() if name != "Phi3" or key != "head_dim"}
    config = getattr(transformers, f"{name}{'Text' * (name == 'Gemma3')}Config")(**sizes, **MODELS[name])
    return getattr(transformers, f"{name}ForCausalLM"), config


@pytest.mark.parametrize("model, n",
                         [("Llama", 60), ("Gemma3", 60), ("Qwen3", 60), ("Phi3", 30), ("Phi3", 60)])
def test_modules_of_models_can_be_replaced(model, n):
    """Logits agree within float32 errors, and the largest is the same.

    The wrong pairing changes them visibly.
    """
    kind, config = model_of(model)
    torch.manual_seed(0)
    network = kind(config).eval().requires_grad_(False)
    for weights in network.parameters():
        weights.mul_(4) if weights.ndim > 1 else None       # so that positions affect the logits
    ids = torch.randint(3, SIZES["vocab_size"], (2, n), generator=torch.Generator().manual_seed(1))
    theirs = network(ids).logits
    network.model.rotary_emb = posenc.torch.RotaryEmbedding(config, length=n)
    ours = network(ids).logits
    network.model.rotary_emb = posenc.torch.RotaryEmbedding(config, length=n)
    network.model.rotary_emb._form = "in pairs"
    wrong = network(ids).logits
    spread = theirs.std()
    assert (ours - theirs).abs().max() < 2e-5 * spread
    assert (ours.argmax(-1) == theirs.argmax(-1)).float().mean() == 1
    assert (wrong - theirs).abs().max() > 0.1 * spread


def test_initialization_of_a_model_keeps_the_module():
    """transformers would overwrite the frequencies of a module with the attribute original_inv_freq."""
    kind, config = model_of("Llama")
    network = kind(config)
    embedding = network.model.rotary_emb = posenc.torch.RotaryEmbedding(config)
    before = embedding.inv_freq.clone()
    network.init_weights()
    network.bfloat16()
    assert torch.equal(embedding.inv_freq, before) and not hasattr(embedding, "original_inv_freq")
    cos, _ = embedding(torch.zeros(1, dtype=torch.bfloat16), torch.tensor([[10**6]]))
    assert cos.dtype == torch.bfloat16


# ---- check_rotary ------------------------------------------------------------------------------------------


def test_check_rotary_takes_the_arguments_of_vision_and_audio_models():
    sizes = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 64, "num_attention_heads": 2, "head_dim": 32}
    config = transformers.AutoConfig.for_model("pixtral", image_size=128, patch_size=16, **sizes)
    inputs = {"pixel_values": torch.zeros(1, 3, 64, 96), "image_sizes": torch.tensor([[64, 96]])}
    row, = posenc.check.check_rotary(transformers.AutoModel.from_config(config), Rotary.preset("pixtral", 32), inputs=inputs)
    assert row.verdict == "not checked" and "positions on several axes must be a parameter" in row.faults[0]
    config = transformers.AutoConfig.for_model("voxtral_realtime_encoder", num_key_value_heads=2, **sizes)
    model, inputs = transformers.AutoModel.from_config(config), {"input_features": torch.zeros(1, config.num_mel_bins, 80)}
    assert posenc.check.check_rotary(model, inputs=inputs).ok
    assert not posenc.check.check_rotary(model, Rotary(32, base=500.0), inputs=inputs).ok


SMALL = {"num_attention_heads": 2, "num_key_value_heads": 2, "num_hidden_layers": 1, "intermediate_size": 32,
         "vocab_size": 99, "max_position_embeddings": 16384, "pad_token_id": 0}
MLA = {"qk_rope_head_dim": 64, "n_routed_experts": 4, "n_group": 1, "topk_group": 1,
       "moe_intermediate_size": 8, "q_lora_rank": 8, "kv_lora_rank": 8}


KINDS = ["llama", "phi3", "gemma3_text", "gpt_oss", "deepseek_v3", "cohere2", "qwen2_vl_text", "llama4_text"]
# phi3 refuses others; proportional is Gemma's, and the configuration of DeepSeek has no partial rotation
KNOWN = [(kind, name) for kind in KINDS for name in SCALINGS if name.startswith(("default", "longrope")) or (
    kind != "phi3" and (kind, name) != ("deepseek_v3", "proportional"))]


@pytest.mark.parametrize("kind, name", [
    case if case[0] == "llama" or case[1] == "default" else pytest.param(*case, marks=pytest.mark.long)
    for case in KNOWN
])
@pytest.mark.parametrize("dtype", [torch.bfloat16, pytest.param(torch.float32, marks=pytest.mark.long)],
                         ids=str)
def test_check_rotary_knows_every_scaling(kind, name, dtype):
    scaling = parameters(name, 64, 1e6, 1.0)
    if kind == "qwen2_vl_text":
        scaling["mrope_section"] = [8, 12, 12]
    if kind == "gemma3_text":
        scaling = {"full_attention": scaling,
                   "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}
    options = MLA if kind == "deepseek_v3" else {"head_dim": 64}
    config = transformers.AutoConfig.for_model(kind, hidden_size=128, rope_parameters=scaling, **SMALL,
                                               **options)
    model = transformers.AutoModel.from_config(config, dtype=dtype)
    before = {key: value.clone() for key, value in model.named_buffers()}
    report = posenc.check.check_rotary(model)
    assert report.ok, report
    # dynamic: the frequencies, too
    assert all(torch.equal(value, before[key]) for key, value in model.named_buffers())
