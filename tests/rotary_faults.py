"""Small models, each with a fault of a rotary embedding that has occurred in a project, and the sentence that names it."""

import math
import types
from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

DIM, BASE = 64, 500_000.0
CONFIG = {"model_type": "llama", "head_dim": DIM, "rope_theta": BASE, "max_position_embeddings": 131_072}
INTERLEAVED = CONFIG | {"rope_interleave": True}
LLAMA3 = CONFIG | {"rope_scaling": {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192}}
YARN = CONFIG | {"rope_scaling": {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192}}
YARN_MSCALE = CONFIG | {"rope_scaling": YARN["rope_scaling"] | {"mscale": 1.0, "mscale_all_dim": 1.0}}
LINEAR = CONFIG | {"rope_scaling": {"rope_type": "linear", "factor": 4.0}}
DYNAMIC = CONFIG | {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}}
PARTIAL = CONFIG | {"partial_rotary_factor": 0.5}


# ---- the parts of a correct model ----------------------------------------------------------------------------------------


def frequencies(base=BASE, dim=DIM, dtype=torch.float32):
    return 1 / base ** (torch.arange(0, dim, 2).to(dtype) / dim)


def yarn_frequencies(factor=16.0, length=8192, fast=32, slow=1):
    """Interpolate between the default frequencies and those divided by the factor."""
    default = frequencies()
    low, high = (DIM * math.log(length / (turns * 2 * math.pi)) / (2 * math.log(BASE)) for turns in (fast, slow))
    share = ((torch.arange(DIM // 2) - math.floor(low)) / (math.ceil(high) - math.floor(low))).clamp(0, 1)
    return default * (1 - share) + default / factor * share


class RotaryEmbedding(nn.Module):
    """Cosines and sines for positions, each twice; the methods are the steps that a fault replaces."""

    def __init__(self, inv_freq=None, attention_scaling=1.0, **steps):
        super().__init__()
        self.register_buffer("inv_freq", frequencies() if inv_freq is None else inv_freq, persistent=False)
        self.attention_scaling = attention_scaling
        for name, step in steps.items():
            setattr(self, name, step)

    def angles(self, positions, inv_freq, x):
        return positions[..., None].float() * inv_freq.float()

    def positions(self, positions, x):
        return positions

    def forward(self, x, position_ids):
        angles = self.angles(self.positions(position_ids, x), self.inv_freq, x)
        twice = torch.cat([angles, angles], -1)
        return (twice.cos() * self.attention_scaling).to(x.dtype), (twice.sin() * self.attention_scaling).to(x.dtype)


def rotate_half(x):
    first, second = x.chunk(2, -1)
    return torch.cat([-second, first], -1)


def halves(q, k, cos, sin):
    cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def pairs(q, k, cos, sin):
    half = cos.shape[-1] // 2
    cos, sin = (t[..., :half].repeat_interleave(2, -1).unsqueeze(1) for t in (cos, sin))
    return tuple(x * cos + torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2) * sin for x in (q, k))


def partial(q, k, cos, sin):
    """Rotate as many columns as the tables have, and keep the others."""
    width = cos.shape[-1]
    return tuple(torch.cat([turned, x[..., width:]], -1) for turned, x in zip(
        halves(q[..., :width], k[..., :width], cos, sin), (q, k), strict=True))


class Attention(nn.Module):
    def __init__(self, rotate, width=DIM, dtype=torch.float32):
        super().__init__()
        self.rotate, self.width = rotate, width
        self.qkv, self.out = nn.Linear(8, 6 * width, dtype=dtype), nn.Linear(2 * width, 8, dtype=dtype)

    def forward(self, x, tables):
        q, k, v = self.qkv(x).unflatten(-1, (3, 2, self.width)).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q, k, *tables)
        return x + self.out(scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class Model(nn.Module):
    """A model whose attention calls `rotate`, with one rotary module."""

    def __init__(self, embedding, rotate, config, layers, dtype):
        super().__init__()
        self.config = types.SimpleNamespace(to_dict=lambda: config, **config)
        self.embed, self.rotary_emb = nn.Embedding(9, 8, dtype=dtype), embedding
        self.layers = nn.ModuleList(Attention(rotate, dtype=dtype) for _ in range(layers))

    def forward(self, input_ids, position_ids):
        x = self.embed(input_ids)
        tables = self.rotary_emb(x, position_ids)
        for layer in self.layers:
            x = layer(x, tables)
        return x


def model(embedding=None, rotate=halves, config=CONFIG, layers=2, dtype=torch.float32):
    return Model(RotaryEmbedding() if embedding is None else embedding, rotate, config, layers, dtype)


# ---- faults --------------------------------------------------------------------------------------------------------------


class Fault(NamedTuple):
    """A model with a fault, the project in which it occurred, and regular expressions for the sentences that name it."""

    name: str
    project: str
    model: Callable[[], nn.Module]
    sentences: tuple[str, ...]
    config: Any = None              # by default that of the model


def uninitialised():
    """Memory that was never written, as after loading on the meta device."""
    values = torch.linspace(-3, 2, DIM // 2)
    values[::3] = torch.tensor([float("nan"), 1e38, -float("inf"), 3e-41, 0.0, 7e22, -2.0, 1e-30, 5.0, 0.1, 9e9])
    return values


def in_bfloat16(positions, inv_freq, x):
    return (positions[..., None].bfloat16() * inv_freq.bfloat16()).float()


class Repeated(RotaryEmbedding):
    """A table of 4,096 rows, whose index is taken modulo its length."""

    def positions(self, positions, x):
        return positions % 4096


class Dynamic(RotaryEmbedding):
    """Dynamic scaling: in each call, the frequencies are those for the length of the sequences."""

    def positions(self, positions, x):
        length = max(float(positions.max()) + 1, CONFIG["max_position_embeddings"])
        growth = 4.0 * length / CONFIG["max_position_embeddings"] - 3.0
        self.inv_freq = frequencies(BASE * growth ** (DIM / (DIM - 2)))
        return positions


class Stored(nn.Module):
    """[cos | sin] of each position, as in vLLM."""

    def __init__(self, first=0, base=BASE):
        super().__init__()
        angles = torch.arange(first, first + 131_072).float()[:, None] * frequencies(base)
        self.register_buffer("cos_sin_cache", torch.cat([angles.cos(), angles.sin()], -1), persistent=False)

    def forward(self, x, position_ids):
        return tuple(torch.cat([t, t], -1) for t in self.cos_sin_cache[position_ids].chunk(2, -1))


def negated(q, k, cos, sin):
    return halves(q, k, cos, -sin)


def opposite(q, k, cos, sin):
    return tuple(-x for x in halves(q, k, cos, sin))


def scaled_partial(q, k, cos, sin):
    """Multiply the columns that are not rotated by 2."""
    width = cos.shape[-1]
    return tuple(torch.cat([x[..., :width], 2 * x[..., width:]], -1) for x in partial(q, k, cos, sin))


def exchanged(q, k, cos, sin):
    return halves(q, k, sin, cos)


def queries_only(q, k, cos, sin):
    return halves(q, k, cos, sin)[0], k


def first_pairs(q, k, cos, sin):
    """Rotate the first 20 pairs only."""
    turned = halves(q, k, cos, sin)
    keep = torch.arange(DIM) % (DIM // 2) < 20
    return tuple(torch.where(keep, t, x) for t, x in zip(turned, (q, k), strict=True))


TEMPERATURE = 0.1 * math.log(16) + 1            # yarn's attention_scaling for factor 16

def mixed(q, k, cos, sin):
    """Cosines and sines in pairs, columns in halves."""
    half = cos.shape[-1] // 2
    return halves(q, k, *(t[..., :half].repeat_interleave(2, -1) for t in (cos, sin)))


FAULTS = [
    Fault("base of the configuration ignored", "MarinFold #184", lambda: model(RotaryEmbedding(frequencies(1e4))),
          (r"base is 10000, .* 500000",)),
    Fault("base lost in a conversion", "vllm #56066", lambda: model(RotaryEmbedding(frequencies(1e6))),
          (r"base is 1000000, .* 500000",)),
    Fault("a table with another base", "DeepSpeed #8341", lambda: model(Stored(base=1e4)), (r"base is 10000, .* 500000",)),
    Fault("yarn dropped", "sglang #26187", lambda: model(config=YARN), (r"the scaling yarn is not applied",)),
    Fault("llama3 dropped", "", lambda: model(config=LLAMA3), (r"the scaling llama3 is not applied",)),
    Fault("linear dropped", "", lambda: model(config=LINEAR), (r"the scaling linear is not applied",)),
    Fault("yarn without its factor", "onnxruntime-genai #2076",
          lambda: model(RotaryEmbedding(yarn_frequencies()), config=YARN), (r"attention_scaling 1\.277.* is missing",)),
    Fault("yarn with its factor twice", "sglang #33558",
          lambda: model(RotaryEmbedding(yarn_frequencies(), TEMPERATURE**2), config=YARN),
          (r"attention_scaling 1\.277.* is applied twice",)),
    Fault("mscale ignored", "sglang #22711",
          lambda: model(RotaryEmbedding(yarn_frequencies(), TEMPERATURE), config=YARN_MSCALE), (r"1\.277",)),
    Fault("beta_fast and beta_slow exchanged", "torchtitan #3787",
          lambda: model(RotaryEmbedding(yarn_frequencies(fast=1, slow=32), TEMPERATURE), config=YARN),
          (r"yarn|pairs \d+ to \d+",)),
    Fault("a factor of another configuration", "swiss-ai/Megatron-LM #80",
          lambda: model(RotaryEmbedding(frequencies() / 8), config=LINEAR),
          (r"factor of the scaling linear is 8, .* 4\b",)),
    Fault("frequencies that were never written", "torchtitan #4783", lambda: model(RotaryEmbedding(uninitialised())),
          (r"no value is finite",)),
    Fault("frequencies that are zero", "transformers #34234", lambda: model(RotaryEmbedding(torch.zeros(DIM // 2))),
          (r"pairs 0 to 31 are not rotated",)),
    Fault("halves for interleaved", "nanotron #427", lambda: model(config=INTERLEAVED),
          (r"layout is halves, .* interleaved",)),
    Fault("interleaved for halves", "transformers #47328", lambda: model(rotate=pairs),
          (r"layout is interleaved, .* halves",)),
    Fault("a table with the other layout", "vllm-omni #1784", lambda: model(Stored(), pairs),
          (r"layout is interleaved, .* halves",)),
    Fault("tables in pairs, columns in halves", "how-to-train-your-gpt #7", lambda: model(rotate=mixed),
          (r"the cosines have the layout interleaved, but the columns are paired as halves",)),
    Fault("negative angles", "lalamo #268", lambda: model(rotate=negated), (r"signs of the sines are reversed",)),
    Fault("cosines and sines exchanged", "", lambda: model(rotate=exchanged), (r"cos and sin are exchanged",)),
    Fault("inverse frequencies", "LeetCUDA #289", lambda: model(RotaryEmbedding(1 / frequencies())),
          (r"no known rotation gives these values",)),
    Fault("frequencies in bfloat16", "transformers #29285",
          lambda: model(RotaryEmbedding(frequencies().bfloat16())), (r"inv_freq was rounded to bfloat16",)),
    Fault("frequencies computed in bfloat16", "GPT-J in transformers", lambda: model(RotaryEmbedding(
        1 / torch.tensor(BASE).bfloat16() ** (torch.arange(0, DIM, 2) / DIM).bfloat16())),
          (r"inv_freq was computed in bfloat16",)),
    Fault("frequencies in float16", "", lambda: model(RotaryEmbedding(frequencies().half())),
          (r"inv_freq was rounded to float16",)),
    Fault("angles in bfloat16", "TransformerEngine #1245", lambda: model(RotaryEmbedding(angles=in_bfloat16)),
          (r"bfloat16",)),
    Fault("positions in bfloat16", "diffusers #13920",
          lambda: model(RotaryEmbedding(positions=lambda p, x: p.bfloat16())),
          (r"positions were rounded to bfloat16 above 256",)),
    Fault("positions in float16", "OneTrainer #1177",
          lambda: model(RotaryEmbedding(positions=lambda p, x: p.half())),
          (r"positions were rounded to float16 above 2,?048",)),
    Fault("positions in the dtype of a bfloat16 model", "Megatron-LM #535",
          lambda: model(RotaryEmbedding(positions=lambda p, x: p.to(x.dtype)), dtype=torch.bfloat16),
          (r"positions were rounded to bfloat16 above 256",)),
    Fault("a table that repeats", "onnxruntime #27597", lambda: model(Repeated()), (r"table ends at 4,?096 and repeats",)),
    Fault("clamped positions", "", lambda: model(RotaryEmbedding(positions=lambda p, x: p.clamp(max=4095))),
          (r"table ends at 4,?096 and its last row is repeated",)),
    Fault("positions from 1", "", lambda: model(RotaryEmbedding(positions=lambda p, x: p + 1)), (r"positions start at 1",)),
    Fault("a stored table from 1", "", lambda: model(Stored(first=1)), (r"positions start at 1",)),
    Fault("positions ignored", "Megatron-LM #453",
          lambda: model(RotaryEmbedding(positions=lambda p, x: torch.arange(p.shape[-1]).expand_as(p))),
          (r"the values depend on the row, not on its position",)),
    Fault("positions from the first one of a call", "",
          lambda: model(RotaryEmbedding(positions=lambda p, x: p - p[..., :1])),
          (r"positions are counted from the first one of each call",)),
    Fault("negative results", "", lambda: model(rotate=opposite), (r"^values are multiplied by -1, expected 1$",)),
    Fault("other columns multiplied", "", lambda: model(RotaryEmbedding(frequencies(dim=32)), scaled_partial, PARTIAL),
          (r"^columns 32 to 63 are multiplied by a factor but not rotated$",)),
    Fault("other frequencies and another base", "", lambda: model(RotaryEmbedding(frequencies(1e4) / 8)),
          (r"base is 10000, .* 500000", r"frequency_scale is 0\.125, .* 1$")),
    Fault("pairs that are not rotated", "", lambda: model(rotate=first_pairs), (r"pairs 20 to 31 are not rotated",)),
    Fault("all columns instead of half", "vllm #43770", lambda: model(config=PARTIAL),
          (r"64 columns are rotated, .* 32",)),
    Fault("exponents of the whole head", "pie #603",
          lambda: model(RotaryEmbedding(frequencies()[: DIM // 4]), partial, PARTIAL), (r"exponents are i / 32, .* 2 i / 32",)),
    Fault("keys as they are", "", lambda: model(rotate=queries_only), (r"keys: .*not rotated",)),
    # two faults at once: both are named, or the larger one
    Fault("base and layout", "", lambda: model(RotaryEmbedding(frequencies(1e4)), pairs),
          (r"base is 10000, .* 500000", r"layout is interleaved, .* halves")),
    Fault("base and positions in bfloat16", "", lambda: model(
        RotaryEmbedding(frequencies(1e4), positions=lambda p, x: p.bfloat16())),
        (r"base is 10000, .* 500000|positions were rounded to bfloat16 above 256",)),
    Fault("yarn without its factor, interleaved", "", lambda: model(RotaryEmbedding(yarn_frequencies()), pairs, YARN),
          (r"attention_scaling 1\.277.* is missing", r"layout is interleaved, .* halves")),
    Fault("negative angles and another base", "", lambda: model(RotaryEmbedding(frequencies(1e4)), negated),
          (r"base is 10000, .* 500000", r"signs of the sines are reversed")),
    Fault("negative angles with dynamic scaling", "", lambda: model(Dynamic(), negated, DYNAMIC),
          (r"^the signs of the sines are reversed$",)),
]
