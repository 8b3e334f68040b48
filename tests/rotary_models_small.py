"""Small models that rotate rightly, and small models with a fault, in some cases that of a project, with its sentence."""

import torch
from torch import nn
from torch.nn.functional import scaled_dot_product_attention

from posenc import Rotary

D, BASE = 32, 10000.0
HALVES, PAIRS = Rotary(D), Rotary(D, layout="interleaved")


def frequencies(base=BASE, d=D):
    return 1 / base ** (torch.arange(0, d, 2).float() / d)


def angles(p, w):
    return p[..., None].float() * w


def halves(x, a, sign=1):
    """Rotate by angles of shape (n, pairs)."""
    (one, two), c, s = x.chunk(2, -1), a.cos(), sign * a.sin()
    return torch.cat([one * c - two * s, two * c + one * s], -1).to(x.dtype)


def exchanged(x, a):
    (one, two), c, s = x.chunk(2, -1), a.sin(), a.cos()
    return torch.cat([one * c - two * s, two * c + one * s], -1).to(x.dtype)


def interleaved(x, a, sign=1):
    one, two, c, s = x[..., ::2], x[..., 1::2], a.cos(), sign * a.sin()
    return torch.stack([one * c - two * s, two * c + one * s], -1).flatten(-2).to(x.dtype)


def complex_pairs(x, a):
    z = torch.view_as_complex(x.float().unflatten(-1, (-1, 2))) * torch.polar(torch.ones_like(a), a)
    return torch.view_as_real(z).flatten(-2).to(x.dtype)


def rotate_half(x, a):
    twice, (one, two) = torch.cat([a, a], -1), x.chunk(2, -1)
    return (x * twice.cos() + torch.cat([-two, one], -1) * twice.sin()).to(x.dtype)


def einsum_pairs(x, a):
    c, s = a.cos(), a.sin()
    m = torch.stack([torch.stack([c, -s], -1), torch.stack([s, c], -1)], -2)
    return torch.einsum("nkij,bhnkj->bhnki", m, x.unflatten(-1, (-1, 2))).flatten(-2)


def in_place(x, a):
    x = x.clone()
    one, two = x[..., : D // 2].clone(), x[..., D // 2 :].clone()
    x[..., : D // 2] = one * a.cos() - two * a.sin()
    x[..., D // 2 :] = two * a.cos() + one * a.sin()
    return x


def loop(x, a):
    return torch.stack([halves(x[:, :, k], a[k]) for k in range(x.shape[2])], 2)


def deinterleaved(x, a):
    """Interleaved columns become halves: products are the same."""
    return halves(torch.cat([x[..., ::2], x[..., 1::2]], -1), a)


def partial(width, function=halves):
    return lambda x, a: torch.cat([function(x[..., :width], a), x[..., width:]], -1)


# ---- parts of models: each has a default, and a model replaces some ----------------------------------------


def sdpa(q, k, v):
    return scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=q.shape[1] != k.shape[1])


def repeated(q, k, v):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return scaled_dot_product_attention(q, k, v, is_causal=True)


def eager(q, k, v, scale=D**-0.5):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.transpose(-2, -1) * scale
    return scores.masked_fill(torch.ones_like(scores, dtype=torch.bool).triu(1), -1e9).softmax(-1) @ v


def by_einsum(q, k, v):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    return torch.einsum("bhij,bhjd->bhid", torch.softmax(torch.einsum("bhid,bhjd->bhij", q, k) / D**0.5, -1), v)


def by_bmm(q, k, v):
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1).flatten(0, 1) for x in (k, v))
    return (torch.bmm(q.flatten(0, 1), k.transpose(1, 2)) * D**-0.5).softmax(-1).bmm(v).unflatten(0, (1, -1))


class Layer(nn.Module):
    def __init__(self, heads, keys, fused, options):
        super().__init__()
        self.heads, self.keys, self.options = heads, keys, options
        self.parts = nn.ModuleList([nn.Linear(16, (heads + 2 * keys) * D, bias=options["bias"])] if fused else [
            nn.Linear(16, n * D, bias=options["bias"]) for n in (heads, keys, keys)])
        self.out, self.norms = nn.Linear(heads * D, 16), nn.ModuleList([options["norm"](D), options["norm"](D)])

    def project(self, x):
        joined = torch.cat([part(x) for part in self.parts], -1)
        return [part.unflatten(-1, (-1, D)).transpose(1, 2) for part in joined.split([n * D for n in (
            self.heads, self.keys, self.keys)], -1)]

    def forward(self, x, p):
        o = self.options
        q, k, v = self.project(x)
        q, k = o["before"](self.norms[0](q)), o["before"](self.norms[1](k))
        at = o["positions"](p, x)
        a = o["angles"](at, o["frequencies"].to(x.device))
        q, k = o["rotate"](q, a), (o["rotate_keys"] or o["rotate"])(k, o["key_angles"](a))
        q, k = o["after"](q), o["after"](k)
        return x + self.out(o["attention"](q * o["scale"], k, v).transpose(1, 2).flatten(2))


class Small(nn.Module):
    """A model of a few layers; it takes position_ids unless `consecutive`."""

    def __init__(self, heads=2, keys=2, fused=False, layers=({}, {}), table=None, dtype=torch.float32, **options):
        super().__init__()
        defaults = {"bias": False, "norm": lambda d: nn.Identity(), "before": lambda x: x, "after": lambda x: x, "scale": 1.0,
                    "positions": lambda p, x: p, "angles": angles, "frequencies": frequencies(), "rotate": halves,
                    "rotate_keys": None, "key_angles": lambda a: a, "attention": sdpa}
        self.embed, self.learned = nn.Embedding(50, 16), None if table is None else nn.Embedding(table, 16)
        self.layers = nn.ModuleList(Layer(heads, keys, fused, defaults | options | more) for more in layers)
        self.to(dtype)

    def forward(self, ids, position_ids):
        p, x = position_ids[0], self.embed(ids)
        x = x if self.learned is None else x + self.learned(p)[None]
        for layer in self.layers:
            x = layer(x, p)
        return x


class Consecutive(Small):
    def forward(self, tokens):
        return super().forward(tokens, torch.arange(tokens.shape[1])[None])


class RMS(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0.5, 2, d))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class State(nn.Module):
    """A running mean, so that hidden states differ between positions."""

    def forward(self, x, p):
        return x + x.cumsum(1)


def with_state(**options):
    model = Small(**options)
    model.layers.insert(0, State())
    return model


class Packed(nn.Module):
    """Weights of 4 bits: two in a byte, and a scale for each row."""

    def __init__(self, weight):
        super().__init__()
        self.register_buffer("scale", weight.abs().amax(1, keepdim=True) / 7)
        numbers = ((weight / self.scale).round().to(torch.int16) % 16).to(torch.uint8)
        self.register_buffer("bytes", numbers[:, ::2] + 16 * numbers[:, 1::2])

    def forward(self, x):
        numbers = torch.stack([self.bytes % 16, self.bytes // 16], -1).flatten(1).to(torch.int8)
        return x @ (torch.where(numbers > 7, numbers - 16, numbers).to(x.dtype) * self.scale.to(x.dtype)).T


def quantized(**options):
    model = Small(**options)
    for layer in model.layers:
        layer.parts = nn.ModuleList(Packed(part.weight.detach().float()) for part in layer.parts)
    return model


YARN = Rotary(D, scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048})
BETAS = YARN.replace(scaling=YARN.scaling | {"beta_fast": 1.0, "beta_slow": 32.0})
LLAMA3 = Rotary(D, base=5e5, scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192})
HALF, QUARTER = Rotary(D, rotary_dim=16), Rotary(D, rotary_dim=8, layout="interleaved")
AXES, THREE = Rotary(D, axes=[0] * 8 + [1] * 8), Rotary(D, axes=[0] * 4 + [1] * 6 + [2] * 6)
NOPE = {"model_type": "llama", "head_dim": D, "rope_theta": BASE, "no_rope_layers": [1, 0]}
TYPES = {"sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
         "full_attention": {"rope_type": "default", "rope_theta": 1e6}}
LOCAL = {"model_type": "gemma3_text", "head_dim": D, "layer_types": [*TYPES], "rope_parameters": TYPES}


class Axes(Small):
    """Takes positions of shape (axes, 1, n)."""

    def __init__(self, axis, **options):
        self.axis = axis
        super().__init__(angles=lambda p, w: p[list(self.axis)].T.float() * w, **options)

    def forward(self, ids, position_ids):
        return super().forward(ids, position_ids[:, 0][None])


def yarn(a, m=YARN.attention_scaling):
    return lambda x, a: m * halves(x, a)


def of(rotary):
    return torch.tensor(rotary.frequencies.tolist())


def tables(n, dtype=torch.float32, base=BASE):
    a = torch.outer(torch.arange(n).float(), frequencies(base))
    return a.cos().to(dtype), a.sin().to(dtype)


def from_table(n=4096, index=lambda p, n: p, dtype=torch.float32, base=BASE):
    cos, sin = tables(n, dtype, base)

    def rotate(x, p):
        (one, two), c, s = x.chunk(2, -1), cos[index(p, n)], sin[index(p, n)]
        return torch.cat([one * c - two * s, two * c + one * s], -1).to(x.dtype)

    return {"angles": lambda p, w: p, "rotate": rotate}


def config(n):
    return {"model_type": "llama", "head_dim": D, "rope_theta": BASE, "max_position_embeddings": n}


bf16, f16 = torch.bfloat16, torch.float16
RIGHT = {
    "plain": (Small, {}, HALVES), "interleaved": (Small, {"rotate": interleaved}, PAIRS),
    "fused": (Small, {"fused": True}, HALVES), "fused with a bias": (Small, {"fused": True, "bias": True}, HALVES),
    "fused, interleaved": (Small, {"fused": True, "rotate": interleaved}, PAIRS),
    "grouped": (Small, {"heads": 4, "keys": 2}, HALVES), "one head of keys": (Small, {"heads": 4, "keys": 1}, HALVES),
    "repeated keys": (Small, {"heads": 4, "keys": 2, "attention": repeated}, HALVES),
    "grouped and fused": (Small, {"heads": 6, "keys": 2, "fused": True, "attention": repeated}, HALVES),
    "eager": (Small, {"attention": eager}, HALVES), "eager, grouped": (Small, {"heads": 4, "attention": eager}, HALVES),
    "einsum": (Small, {"attention": by_einsum}, HALVES), "bmm": (Small, {"attention": by_bmm}, HALVES),
    "bmm, grouped": (Small, {"heads": 4, "attention": by_bmm, "rotate": interleaved}, PAIRS),
    "complex": (Small, {"rotate": complex_pairs}, PAIRS), "matrices": (Small, {"rotate": einsum_pairs}, PAIRS),
    "rotate_half": (Small, {"rotate": rotate_half}, HALVES), "in place": (Small, {"rotate": in_place}, HALVES),
    "loop": (Small, {"rotate": loop}, HALVES), "columns moved": (Small, {"rotate": deinterleaved}, PAIRS),
    "half of the columns": (Small, {"rotate": partial(16), "frequencies": frequencies(d=16)}, HALF),
    "a quarter, interleaved": (Small, {"rotate": partial(8, interleaved), "frequencies": frequencies(d=8)}, QUARTER),
    "half, complex": (Small, {"rotate": partial(16, complex_pairs), "frequencies": frequencies(d=16)},
                      HALF.replace(layout="interleaved")),
    "another base": (Small, {"frequencies": frequencies(5e5)}, Rotary(D, base=5e5)),
    "linear": (Small, {"frequencies": frequencies() / 4}, Rotary(D, scaling={"rope_type": "linear", "factor": 4.0})),
    "llama3": (Small, {"frequencies": of(LLAMA3)}, LLAMA3), "yarn": (Small, {"frequencies": of(YARN), "rotate": yarn(0)}, YARN),
    "yarn, eager": (Small, {"frequencies": of(YARN), "rotate": yarn(0), "attention": eager}, YARN),
    "yarn, scaled queries": (Small, {"frequencies": of(YARN), "rotate": yarn(0), "scale": D**-0.5}, YARN),
    "scaled queries": (Small, {"scale": D**-0.5}, HALVES), "another temperature": (Small, {"scale": 0.3}, HALVES),
    "normed": (Small, {"norm": RMS}, HALVES), "normed, fused": (Small, {"norm": RMS, "fused": True, "heads": 4}, HALVES),
    "layer norm": (Small, {"norm": nn.LayerNorm}, HALVES),
    "normed, interleaved": (Small, {"norm": RMS, "rotate": interleaved}, PAIRS),
    "unit length before": (Small, {"before": lambda x: nn.functional.normalize(x, dim=-1)}, HALVES),
    "unit length after": (Small, {"after": lambda x: nn.functional.normalize(x, dim=-1)}, HALVES),
    "rms norm after": (Small, {"after": lambda x: nn.functional.rms_norm(x, (D,)), "rotate": interleaved}, PAIRS),
    "a state": (with_state, {}, HALVES), "a state, interleaved": (with_state, {"rotate": interleaved, "norm": RMS}, PAIRS),
    "learned positions, too": (Small, {"table": 2**17}, HALVES),
    "local and global layers": (Small, {"layers": ({}, {"frequencies": frequencies(1e6)})}, LOCAL),
    "layers without a rotation": (Small, {"layers": ({}, {"rotate": lambda x, a: x})}, NOPE),
    "consecutive": (Consecutive, {}, HALVES), "consecutive, interleaved": (Consecutive, {"rotate": interleaved}, PAIRS),
    "consecutive, eager": (Consecutive, {"attention": eager, "heads": 4}, HALVES),
    "consecutive, half": (Consecutive, {"rotate": partial(16), "frequencies": frequencies(d=16)}, HALF),
    "consecutive, fused": (Consecutive, {"fused": True, "norm": RMS, "rotate": complex_pairs}, PAIRS),
    "a table": (Small, from_table(), config(4096)), "a short table": (Small, from_table(300), config(300)),
    "a table, consecutive": (Consecutive, from_table(256), config(256)),
    "bfloat16": (Small, {"dtype": bf16}, HALVES), "float16": (Small, {"dtype": f16}, HALVES),
    "float64": (Small, {"dtype": torch.float64}, HALVES),
    "bfloat16, interleaved": (Small, {"dtype": bf16, "rotate": interleaved, "norm": RMS}, PAIRS),
    "bfloat16, grouped": (Small, {"dtype": bf16, "heads": 4, "attention": eager}, HALVES),
    "bfloat16, complex": (Small, {"dtype": bf16, "rotate": complex_pairs, "fused": True}, PAIRS),
    "float16, scaled": (Small, {"dtype": f16, "scale": D**-0.5}, HALVES),
    "bfloat16, interleaved, unit length after": (Small, {
        "dtype": bf16, "rotate": complex_pairs, "after": lambda x: nn.functional.rms_norm(x, (D,))}, PAIRS),
    "bfloat16, unit length after": (Small, {"dtype": bf16, "after": lambda x: nn.functional.normalize(x, dim=-1)}, HALVES),
    "a table in bfloat16": (Small, {"dtype": bf16, **from_table(4096, dtype=bf16)}, config(4096)),
    "two axes": (Axes, {"axis": AXES.axes}, AXES), "three axes": (Axes, {"axis": THREE.axes}, THREE),
    "three axes, interleaved": (Axes, {"axis": THREE.axes, "rotate": interleaved}, THREE.replace(layout="interleaved")),
    "4 bits": (quantized, {}, HALVES),
    "4 bits, normed": (quantized, {"dtype": bf16, "norm": RMS, "rotate": interleaved}, PAIRS),
    "64 bits of positions": (Small, {"angles": lambda p, w: (p[:, None].double() * w.double())}, HALVES),
}
NAN = torch.where(torch.arange(D // 2) < 3, torch.nan, frequencies())
WRONG = {
    # MarinFold #184, vllm #56066
    "another base": (Small, {"frequencies": frequencies(5e5)}, HALVES, "base is 500000, expected 10000"),
    "another base, 4 bits": (quantized, {"frequencies": frequencies(5e5)}, HALVES, "base is 500000, expected 10000"),
    "another base, eager": (Small, {"frequencies": frequencies(5e5), "attention": eager}, HALVES,
        "base is 500000, expected 10000"),
    "another base, fused": (Small, {"frequencies": frequencies(5e5), "fused": True}, HALVES,
        "base is 500000, expected 10000"),
    "another base in the second layer": (Small, {"layers": ({}, {"frequencies": frequencies(9e3)})}, HALVES,
        "base is 9000, expected 10000"),
    "another base, consecutive": (Consecutive, {"frequencies": frequencies(5e5)}, HALVES,
        "base is 500000, expected 10000"),
    "local and global exchanged": (Small, {"layers": ({"frequencies": frequencies(1e6)}, {})}, LOCAL,
        "base is 10000, the configuration has 1000000"),
    "only local": (Small, {}, LOCAL, "base is 10000, the configuration has 1000000"),
    "halves": (Small, {}, PAIRS, "layout is halves, expected interleaved"),  # nanotron #427
    "interleaved": (Small, {"rotate": interleaved}, HALVES, "layout is interleaved, expected halves"),  # transformers #47328
    "complex": (Small, {"rotate": complex_pairs}, HALVES, "layout is interleaved, expected halves"),
    "columns moved": (Small, {"rotate": deinterleaved}, HALVES, "layout is interleaved, expected halves"),
    "columns of keys moved": (Small, {"rotate": interleaved, "rotate_keys": deinterleaved}, PAIRS,
        "keys: the columns have another order than those of queries"),
    "halves, half": (Small, {"rotate": partial(16), "frequencies": frequencies(d=16)}, HALF.replace(layout="interleaved"),
        "layout is halves, expected interleaved"),
    "all columns": (Small, {}, HALF, "32 columns are rotated, expected 16"),  # vllm #43770
    "half of the columns": (Small, {"rotate": partial(16), "frequencies": frequencies(d=16)}, HALVES,
        "16 columns are rotated, expected 32"),
    "the last columns": (Small, {"rotate": lambda x, a: torch.cat([x[..., :16], halves(x[..., 16:], a)], -1),
        "frequencies": frequencies(d=16)}, HALF,
        "the columns are paired neither as halves nor interleaved"),
    "exponents": (Small, {"rotate": partial(16), "frequencies": frequencies()[:8]}, HALF,
        "the exponents are i / 16, expected 2 i / 16"),  # pie #603
    "signs": (Small, {"rotate": lambda x, a: halves(x, -a)}, HALVES, "the signs of the sines are reversed"),  # lalamo #268
    "signs of the keys": (Small, {"rotate_keys": lambda x, a: halves(x, -a)}, HALVES,
        "keys: the signs of the sines are reversed"),
    "exchanged": (Small, {"rotate": exchanged}, HALVES, "cos and sin are exchanged"),
    "exchanged for keys": (Small, {"rotate_keys": exchanged}, HALVES, "keys: cos and sin are exchanged"),
    "keys as they are": (Small, {"rotate_keys": lambda x, a: x}, HALVES, "keys: pairs 0 to 15 are not rotated"),
    "queries as they are": (Small, {"rotate": lambda x, a: x, "rotate_keys": halves}, HALVES,
        "pairs 0 to 15 are not rotated"),
    "nothing is rotated": (Small, {"rotate": lambda x, a: x}, HALVES, "pairs 0 to 15 are not rotated"),
    "one layer is not rotated": (Small, {"layers": ({}, {"rotate": lambda x, a: x})}, HALVES,
        "the queries and keys do not depend on the position, and the configuration does not state that these have no rotation"),
    "the other layer is not rotated": (Small, {"layers": ({"rotate": lambda x, a: x}, {})}, NOPE,
        "queries and keys are rotated, the configuration has no rotation for this layer"),
    "keys shifted": (Small, {"key_angles": lambda a: a.roll(1, 0)}, HALVES,
        "keys: the values depend on the other positions of the call"),
    "keys shifted, consecutive": (Consecutive, {"key_angles": lambda a: a.roll(1, 0)}, HALVES,
        "keys: no known rotation gives these values"),
    "keys from 1": (Small, {"rotate_keys": lambda x, a: halves(x, a + frequencies())}, HALVES,
        "keys: positions start at 1, expected 0"),
    "positions from 1": (Small, {"positions": lambda p, x: p + 1}, HALVES, "positions start at 1, expected 0"),
    "positions from 1, consecutive": (Consecutive, {"positions": lambda p, x: p + 1}, HALVES,
        "positions start at 1, expected 0"),
    "positions ignored": (Small, {"positions": lambda p, x: torch.arange(len(p))}, HALVES,
        "the values depend on the row, not on its position"),  # Megatron-LM #453
    "positions from 0": (Small, {"positions": lambda p, x: p - p[0]}, HALVES,
        "positions are counted from the first one of each call"),
    "positions of the maximum": (Small, {"positions": lambda p, x: p.cummax(0)[0]}, HALVES,
        "the values depend on the other positions of the call"),
    "positions clamped": (Small, {"positions": lambda p, x: p.clamp(max=1023)}, HALVES,
        "the table ends at 1,024 and its last row is repeated"),
    # onnxruntime #27597
    "positions modulo": (Small, {"positions": lambda p, x: p % 2048}, HALVES, "the table ends at 2,048 and repeats"),
    "positions modulo, consecutive": (Consecutive, {"positions": lambda p, x: p % 512}, HALVES,
        "the table ends at 512 and repeats"),
    "positions doubled": (Small, {"positions": lambda p, x: 2 * p}, HALVES, "frequency_scale is 2, expected 1"),
    "positions halved": (Small, {"positions": lambda p, x: p / 2}, HALVES,
        r"frequency_scale is 0\.5, expected 1"),
    "a single row at 0": (Small, {"positions": lambda p, x: p if len(p) > 1 else 0 * p}, HALVES,
        "a call with a single row has other values than a call with several rows"),
    "positions in bfloat16": (Small, {"positions": lambda p, x: p.bfloat16()}, HALVES,
        "positions were rounded to bfloat16 above 256"),  # diffusers #13920
    "positions in float16": (Small, {"positions": lambda p, x: p.half()}, HALVES,
        "positions were rounded to float16 above 2,048"),  # OneTrainer #1177
    "positions in the dtype": (Small, {"positions": lambda p, x: p.to(x.dtype), "dtype": bf16}, HALVES,
        "positions were rounded to bfloat16 above 256"),  # Megatron-LM #535
    "positions in bfloat16, consecutive": (Consecutive, {"positions": lambda p, x: p.bfloat16()}, HALVES,
        "positions were rounded to bfloat16 above 256"),
    "angles in bfloat16": (Small, {"angles": lambda p, w: angles(p, w).bfloat16().float()}, HALVES,
        "angles were rounded to bfloat16"),  # TransformerEngine #1245
    "angles in float16": (Small, {"angles": lambda p, w: angles(p, w).half().float()}, HALVES,
        "angles were rounded to float16"),
    "frequencies in bfloat16": (Small, {"frequencies": frequencies().bfloat16()}, HALVES,
        "inv_freq was rounded to bfloat16"),  # transformers #29285
    "frequencies in float16": (Small, {"frequencies": frequencies().half()}, HALVES, "inv_freq was rounded to float16"),
    "frequencies in bfloat16, bfloat16": (Small, {"frequencies": frequencies().bfloat16(), "dtype": bf16}, HALVES,
        "inv_freq was rounded to bfloat16"),
    "frequencies in reverse": (Small, {"frequencies": frequencies().flip(0)}, HALVES,
        "the frequencies are in reverse order"),
    "frequencies / 8": (Small, {"frequencies": frequencies() / 8}, HALVES,
        r"frequency_scale is 0\.125, expected 1"),
    "NaN": (Small, {"frequencies": NAN}, HALVES, "no value is finite"),  # torchtitan #4783
    "linear is lost": (Small, {}, Rotary(D, scaling={"rope_type": "linear", "factor": 4.0}),
        "the scaling linear is not applied"),
    "llama3 is lost": (Small, {}, LLAMA3, "the scaling llama3 is not applied"),
    # onnxruntime-genai #2076
    "yarn without its factor": (Small, {"frequencies": of(YARN)}, YARN, "attention_scaling 1.139 is missing"),
    "yarn with its factor twice": (Small, {"frequencies": of(YARN), "rotate": yarn(0, YARN.attention_scaling**2)}, YARN,
        "attention_scaling 1.139 is applied twice"),  # sglang #33558
    "yarn, keys without the factor": (Small, {"frequencies": of(YARN), "rotate": yarn(0), "rotate_keys": halves}, YARN,
        "keys: attention_scaling 1.139 is missing"),
    "cosines and sines times 2": (Small, {"rotate": lambda x, a: 2 * halves(x, a)}, HALVES,
        "keys: cosines and sines are multiplied by 2, expected 1"),
    "keys times 1.01": (Small, {"rotate_keys": lambda x, a: 1.01 * halves(x, a)}, HALVES,
        "keys: cosines and sines are multiplied by 1.01, expected 1"),
    "other columns are 0": (Small, {"rotate": lambda x, a: torch.cat([halves(x[..., :16], a), 0 * x[..., 16:]], -1),
        "frequencies": frequencies(d=16)}, HALF,
        "columns 16 to 31 are set to 0"),
    "a cosine too large": (Small, {"rotate": lambda x, a: halves(x, a) + torch.cat(
        [0 * x[..., :16], 0.009 * x[..., 16:] * a.cos()], -1)}, HALVES,
        "the result is not a rotation of x"),
    "absolute values": (Small, {"before": torch.abs}, HALVES,
        "x with negative elements, or with elements above 1, is not rotated as other x are"),
    "reflected": (Small, {"rotate": lambda x, a: torch.cat(
        [x[..., :16] * a.cos() + x[..., 16:] * a.sin(), x[..., 16:] * a.cos() + x[..., :16] * a.sin()], -1)}, HALVES,
        "columns 0 to 15 have sines in a pair that are not opposite"),
    "a mix of layouts": (Small, {"rotate": lambda x, a: x * a.cos().repeat_interleave(2, -1) + torch.cat(
        [-x[..., 16:], x[..., :16]], -1) * a.sin().repeat_interleave(2, -1)}, HALVES,
        "the cosines have the layout interleaved, but the columns are paired as halves"),  # how-to-train-your-gpt #7
    "a short table": (Small, from_table(300), config(4096), "a call with positions up to 511"),
    "a clamped table": (Small, from_table(300, lambda p, n: p.clamp(max=n - 1)), config(4096),
        "the table ends at 300 and its last row is repeated"),
    "a table of another base": (Small, from_table(4096, base=5e3), config(4096),
        "base is 5000, the configuration has 10000"),  # DeepSpeed #8341
    "a table in bfloat16": (Small, from_table(4096, dtype=bf16), config(4096), "tables were rounded to bfloat16"),
    "axes exchanged": (Axes, {"axis": [1] * 8 + [0] * 8}, AXES,
        "the pairs have the positions of other axes than expected"),
    "one axis": (Axes, {"axis": [0] * 16}, AXES, "the pairs have the positions of other axes than expected"),
    "heads differ": (Small, {"rotate": lambda x, a: torch.cat([halves(x[:, :1], a), x[:, 1:]], 1)}, HALVES,
        "the heads are not rotated alike: head 1 differs from head 0"),
    "yarn is lost": (Small, {}, YARN, "the scaling yarn is not applied"),  # sglang #26187
    "mscale": (Small, {"frequencies": of(YARN), "rotate": yarn(0)}, YARN.replace(scaling=YARN.scaling | {
        "mscale": 1.0, "mscale_all_dim": 1.0}), r"cosines and sines are multiplied by 1\.1386"),  # sglang #22711
    # torchtitan #3787
    "betas exchanged": (Small, {"frequencies": of(BETAS), "rotate": yarn(0)}, YARN, "beta_fast and beta_slow"),
    "another factor": (Small, {"frequencies": frequencies() / 8}, Rotary(D, scaling={"rope_type": "linear", "factor": 4.0}),
                       "factor of the scaling linear is 8, expected 4"),  # swiss-ai/Megatron-LM #80
    "frequencies computed in bfloat16": (Small, {"frequencies": 1 / torch.tensor(BASE).bfloat16() ** (
        torch.arange(0, D, 2) / D).bfloat16()}, HALVES, "inv_freq was computed in bfloat16"),  # GPT-J in transformers
    "inverse frequencies": (Small, {"frequencies": 1 / frequencies()}, HALVES, "no known rotation"),  # LeetCUDA #289
    "negative results": (Small, {"rotate": lambda x, a: -halves(x, a)}, HALVES, "values are multiplied by -1, expected 1"),
    "other columns times 2": (Small, {"rotate": lambda x, a: torch.cat([halves(x[..., :16], a), 2 * x[..., 16:]], -1),
        "frequencies": frequencies(d=16)}, HALF, "columns 16 to 31 are multiplied by a factor but not rotated"),
    "base and scale": (Small, {"frequencies": frequencies(5e5) / 8}, HALVES, r"frequency_scale is 0\.125"),
    "some pairs": (Small, {"rotate": lambda x, a: torch.where(torch.arange(D) % 16 < 10, halves(x, a), x)}, HALVES,
        "pairs 10 to 15 are not rotated"),
}
NEITHER = {         # no rotation, or one that posenc does not know: neither right nor wrong
    "no positions": (Small, {"rotate": lambda x, a: x}, {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2}),
    "learned positions": (Small, {"rotate": lambda x, a: x, "table": 2**17}, {
        "model_type": "bert", "hidden_size": 64, "num_attention_heads": 2}),
    "no configuration": (Small, {}, None),
}
