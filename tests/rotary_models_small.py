"""Small models that rotate rightly, and small models with a fault, in some cases that of a project, with its sentence."""

import functools
import types

import pytest
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


def by_columns(x, a, sign=-1):
    """Rotate by an angle for each column."""
    one, two = x.chunk(2, -1)
    return (x * a.cos() + torch.cat([sign * two, one], -1) * a.sin()).to(x.dtype)


def rotate_half(x, a):
    return by_columns(x, torch.cat([a, a], -1))


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


def shared(**options):
    """A model that calls one module several times."""
    model = Small(**options)
    model.layers.append(model.layers[0])
    return model


class Cached(Small):
    """Takes and returns a cache of keys.

    `late` is added to the positions of calls that continue, and the last attention has changed earlier keys.
    """

    def __init__(self, late=0, change=lambda k: k, **options):
        self.late, self.change, self.keys = late, change, None
        super().__init__(layers=[{"attention": functools.partial(self.attend, layer)} for layer in range(2)], **options)

    def attend(self, layer, q, k, v):
        if self.keys is not None:
            earlier = self.keys.get(layer, k[:, :, :0])
            self.keys[layer] = torch.cat([earlier, k], 2)
            k = torch.cat([self.change(earlier) if layer else earlier, k], 2)
        return (sdpa if self.keys is None else repeated)(q, k, k)

    def forward(self, ids, position_ids=None, past_key_values=None, use_cache=False):
        self.keys = past_key_values or ({} if use_cache else None)
        start = self.keys[0].shape[2] + self.late if self.keys else 0
        own = torch.arange(start, start + ids.shape[1])[None]
        super().forward(ids, own if position_ids is None else position_ids)
        return types.SimpleNamespace(past_key_values=self.keys)


def parts(ignore=(False, True), own=True):
    """Return a model of which some layers ignore position_ids; each layer may have a configuration of its own."""
    model = Small(layers=[{"positions": lambda p, x: torch.arange(len(p))} if each else {} for each in ignore])
    model.config = None if own else types.SimpleNamespace(**config(4096))
    for layer in model.layers:
        layer.config = types.SimpleNamespace(**config(4096)) if own else None
    return model


class Pooled(Small):
    """The last attention has a single query."""

    def forward(self, ids, position_ids):
        x = super().forward(ids, position_ids)[..., :D]
        return scaled_dot_product_attention(x[:, -1:], x, x)


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
FACTOR = YARN.attention_scaling
UNSCALED = YARN.replace(scaling=YARN.scaling | {"mscale": 1.0, "mscale_all_dim": 1.0})
BETAS = YARN.replace(scaling=YARN.scaling | {"beta_fast": 1.0, "beta_slow": 32.0})
LLAMA3 = Rotary(D, base=5e5, scaling={"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                                      "original_max_position_embeddings": 8192})
LINEAR = Rotary(D, scaling={"rope_type": "linear", "factor": 4.0})
PARTIAL_YARN = YARN.replace(rotary_dim=16)
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


def yarn(m=FACTOR):
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


def case(text, expected=HALVES, kind=Small, **options):
    """Return a function that builds a model, its expected rotation, and its name or the sentence that names its fault."""
    return pytest.param(lambda: kind(**options), expected, text, id=text[:50])


def xpos(sign=1):
    def rotate(x, a):
        scales = ((torch.arange(16) + 6.4) / 22.4) ** (sign * a[:, :1] / 512)
        return halves(x, a) * torch.cat([scales, scales], -1)
    return rotate


def routed(x):
    """A product and a softmax that are not those of an attention."""
    return x + 0 * (x[..., :4] @ x.new_ones(4, 8))[..., :1] * torch.softmax(x[..., :4], -1)[..., :1]


def routed_by_other_weights(x):
    """The same with weights that are no parameters, such as converted ones."""
    return x + 0 * torch.softmax(nn.functional.linear(x[:, 0, :, :4], x.new_ones(8, 4)), -1)[:, None, :, :1]


def unchanged(x, a):
    return x


def one_head(x, a):
    return torch.cat([halves(x[:, :1], a), x[:, 1:]], 1)


def second_head(factor):
    return lambda x, a: torch.cat([halves(x[:, :1], a), factor * halves(x[:, 1:], a)], 1)


bf16, f16 = torch.bfloat16, torch.float16
RIGHT = [
    case("plain"), case("interleaved", PAIRS, rotate=interleaved), case("fused", fused=True),
    case("fused, interleaved", PAIRS, fused=True, rotate=interleaved), case("grouped", heads=4, keys=2),
    case("repeated keys", heads=4, keys=2, attention=repeated),
    case("grouped and fused", heads=6, keys=2, fused=True, attention=repeated),
    case("eager", attention=eager), case("eager, grouped", heads=4, attention=eager),
    case("einsum", attention=by_einsum), case("bmm", attention=by_bmm),
    case("complex", PAIRS, rotate=complex_pairs), case("matrices", PAIRS, rotate=einsum_pairs),
    case("rotate_half", rotate=rotate_half), case("in place", rotate=in_place), case("one key", heads=4, keys=1),
    case("columns moved", PAIRS, rotate=deinterleaved),
    case("half of the columns", HALF, rotate=partial(16), frequencies=frequencies(d=16)),
    case("a quarter, interleaved", QUARTER, rotate=partial(8, interleaved), frequencies=frequencies(d=8)),
    case("another base", Rotary(D, base=5e5), frequencies=frequencies(5e5)),
    case("linear", LINEAR, frequencies=frequencies() / 4),
    case("llama3", LLAMA3, frequencies=of(LLAMA3)), case("yarn", YARN, frequencies=of(YARN), rotate=yarn()),
    case("yarn, scaled queries", YARN, frequencies=of(YARN), rotate=yarn(), scale=D**-0.5),
    case("late queries scaled", rotate_keys=halves,
         rotate=lambda x, a: halves(x, a) * (1 + (a[:, :1] / 500).floor().log1p() / 10)),
    case("a router of experts", before=routed), case("a router with converted weights", before=routed_by_other_weights),
    case("scaled queries", scale=D**-0.5),
    case("half of the columns, scaled", HALF, rotate=partial(16), frequencies=frequencies(d=16), scale=0.3, dtype=bf16),
    case("half of the columns, yarn, scaled", PARTIAL_YARN, frequencies=of(PARTIAL_YARN), scale=D**-0.5,
         rotate=partial(16, yarn())),
    case("half of the columns, unit length after", HALF, rotate=partial(16), frequencies=frequencies(d=16),
         after=lambda x: nn.functional.normalize(x, dim=-1)),
    case("another temperature", scale=0.3), case("normed", norm=RMS), case("layer norm", norm=nn.LayerNorm),
    case("unit length before", before=lambda x: nn.functional.normalize(x, dim=-1)),
    case("unit length after", after=lambda x: nn.functional.normalize(x, dim=-1)),
    case("rms norm after", PAIRS, after=lambda x: nn.functional.rms_norm(x, (D,)), rotate=interleaved),
    case("a state", HALVES, with_state), case("a module called twice", HALVES, shared),
    case("learned positions, too", table=2**17),
    case("local and global layers", LOCAL, layers=({}, {"frequencies": frequencies(1e6)})),
    case("layers without a rotation", NOPE, layers=({}, {"rotate": unchanged})),
    case("consecutive", HALVES, Consecutive),
    case("consecutive, eager", HALVES, Consecutive, attention=eager, heads=4),
    case("consecutive, fused", PAIRS, Consecutive, fused=True, norm=RMS, rotate=complex_pairs),
    case("a table", config(4096), **from_table()), case("a short table", config(300), **from_table(300)),
    case("a table, consecutive", config(256), Consecutive, **from_table(256)), case("bfloat16", dtype=bf16),
    case("float16", dtype=f16), case("float64", dtype=torch.float64),
    case("bfloat16, unit length after", dtype=bf16, after=lambda x: nn.functional.normalize(x, dim=-1)),
    case("a table in bfloat16", config(4096), dtype=bf16, **from_table(4096, dtype=bf16)),
    case("two axes", AXES, Axes, axis=AXES.axes), case("three axes", THREE, Axes, axis=THREE.axes),
    case("three axes, interleaved", THREE.replace(layout="interleaved"), Axes, axis=THREE.axes,
         rotate=interleaved),
    case("4 bits", HALVES, quantized),
    case("4 bits, normed", PAIRS, quantized, dtype=bf16, norm=RMS, rotate=interleaved),
    case("64 bits of positions", angles=lambda p, w: (p[:, None].double() * w.double())),
]
NAN = torch.where(torch.arange(D // 2) < 3, torch.nan, frequencies())
WRONG = [
    case("base is 9000, expected 10000", layers=({}, {"frequencies": frequencies(9e3)})),
    case("base is 10010, expected 10000", HALVES, Consecutive, dtype=bf16, layers=({}, {"frequencies": frequencies(10010)})),
    case("positions differ, the first at 202", layers=(from_table(300), from_table(300, lambda p, n: p.clamp(max=200)))),
    case("base is 10000, expected 1000000", LOCAL),
    case("base is 1000000, expected 10000", LOCAL, layers=({"frequencies": frequencies(1e6)}, {})),
    case("base is 9000, expected 1000000", LOCAL, layers=({}, {"frequencies": frequencies(9e3)})),
    case("layout is halves, expected interleaved", PAIRS),
    case("layout is interleaved, expected halves", rotate=interleaved),
    case("layout is interleaved, expected halves", rotate=deinterleaved),
    case("keys: the columns have another order", PAIRS, rotate=interleaved, rotate_keys=deinterleaved),
    case("32 columns are rotated, expected 16", HALF),
    case("16 columns are rotated, expected 32", rotate=partial(16), frequencies=frequencies(d=16)),
    case("the result does not consist of rotated pairs", HALF, rotate=lambda x, a:
         torch.cat([x[..., :16], halves(x[..., 16:], a)], -1), frequencies=frequencies(d=16)),
    case("base is 100, expected 10000", HALF, rotate=partial(16), frequencies=frequencies()[:8]),
    case("the signs of the sines are reversed", rotate=lambda x, a: halves(x, -a)),
    case("cos and sin are exchanged", rotate=exchanged),
    case("keys: pairs 0 to 15 are not rotated", rotate_keys=unchanged),
    case("pairs 0 to 15 are not rotated", rotate=unchanged),
    case("and the configuration does not state that these have no rotation", LOCAL, rotate=unchanged),
    case("the configuration does not state that these have no rotation", layers=({}, {"rotate": unchanged})),
    case("the configuration has no rotation for this layer", NOPE, layers=({"rotate": unchanged}, {})),
    case("keys: a call with a single row has other values", key_angles=lambda a: a.roll(1, 0)),
    case("keys: no known rotation", HALVES, Consecutive, key_angles=lambda a: a.roll(1, 0)),
    case("keys: positions start at 1, expected 0", rotate_keys=lambda x, a: halves(x, a + frequencies())),
    case("positions start at 1, expected 0", positions=lambda p, x: p + 1),
    case("a call with a single row has other values than a call with several", positions=lambda p, x: torch.arange(len(p))),
    case("a call with a single row has other values", None, parts, own=False),
    case("a call with a single row has other values", None, parts, ignore=(True, True)),
    case("a call with a single row has other values", positions=lambda p, x: p - p[0]),
    case("a call with a single row has other values", positions=lambda p, x: p.cummax(0)[0]),
    case(" positions differ, the first at ", positions=lambda p, x: p.clamp(max=1023)),
    case(" positions differ, the first at 2,048", positions=lambda p, x: p % 2048),
    case(" positions differ, the first at 1,024", angles=lambda p, w: torch.where(p < 1024, p, torch.nan)[:, None] * w),
    case("frequency_scale is 2, expected 1", positions=lambda p, x: 2 * p),
    case("a call with a single row has other values", positions=lambda p, x: p if len(p) > 1 else 0 * p),
    case("positions were rounded to bfloat16", positions=lambda p, x: p.bfloat16()),
    case("positions were rounded to bfloat16", positions=lambda p, x: p.to(x.dtype), dtype=bf16),
    case("angles were rounded to bfloat16", angles=lambda p, w: angles(p, w).bfloat16().float()),
    case("inv_freq was rounded to bfloat16", frequencies=frequencies().bfloat16()),
    case("base is 0.0001, expected 10000", frequencies=frequencies().flip(0)),
    case("frequency_scale is 0.125, expected 1", frequencies=frequencies() / 8),
    case("no value is finite", frequencies=NAN), case("the scaling llama3 is not applied", LLAMA3),
    case("cosines and sines are multiplied by 1, expected 1.13862944", YARN, frequencies=of(YARN)),
    case("cosines and sines are multiplied by 1.296477, expected 1.13862944", YARN, frequencies=of(YARN),
         rotate=yarn(FACTOR**2)),
    case("cosines and sines are multiplied by 2, expected 1", rotate=lambda x, a: 2 * halves(x, a)),
    case("keys: cosines and sines are multiplied by 1.01", rotate_keys=lambda x, a: 1.01 * halves(x, a)),
    case("keys: cosines and sines are multiplied by 1.005", dtype=bf16, rotate_keys=lambda x, a: 1.005 * halves(x, a)),
    case("and unchanged columns", HALF, rotate=lambda x, a:
         torch.cat([halves(x[..., :16], a), 0 * x[..., 16:]], -1), frequencies=frequencies(d=16)),
    case("and unchanged columns", HALF, scale=0.3, frequencies=frequencies(d=16), rotate=lambda x, a:
         torch.cat([halves(x[..., :16], a), 1.01 * x[..., 16:]], -1)),
    case("the result is not a rotation of x", rotate=lambda x, a: halves(x, a) + torch.cat([0 * x[..., :16],
         0.009 * x[..., 16:] * a.cos()], -1)),
    case("the result does not consist of rotated pairs", before=torch.abs),
    case("pairs differ by 2 of their length", rotate=lambda x, a: by_columns(x, torch.cat([a, a], -1), sign=1)),
    case("pairs differ by 2 of their length", rotate=lambda x, a: by_columns(x, a.repeat_interleave(2, -1))),
    case(" positions differ, the first at ", config(4096), **from_table(300, lambda p, n: p.clamp(max=n - 1))),
    case("tables were rounded to bfloat16", config(4096), **from_table(4096, dtype=bf16)),
    case("the pairs have the positions of other axes than expected", AXES, Axes, axis=[1] * 8 + [0] * 8),
    case("head 1: pairs 0 to 15 are not rotated", layers=({}, {"rotate": one_head})),
    case("    head 1: cosines and sines are multiplied by 1.02", dtype=bf16, rotate=second_head(1.02), rotate_keys=halves),
    case("keys: head 1: cosines and sines are multiplied by 1.02", dtype=f16, rotate_keys=second_head(1.02)),
    case("keys: head 1: cosines and sines are multiplied by 1.0005", rotate_keys=second_head(1.0005)),
    case("multiplied by 1.02, expected 1", dtype=bf16, layers=({}, {"rotate": lambda x, a: 1.02 * halves(x, a)})),
    case("multiplied by 1.0008, expected 1", layers=({}, {"rotate": lambda x, a: 1.0008 * halves(x, a)})),
    case("multiplied by 1.000002, expected 1", rotate=lambda x, a: 1.000002 * halves(x, a)),
    case("pairs 13 to 15 are not rotated", config(32), dtype=bf16, layers=({}, {"rotate": lambda x, a:
         torch.where(torch.arange(D) % 16 < 13, halves(x, a), x)})),
    case("the scaling yarn is not applied", YARN),
    case("cosines and sines are multiplied by 1.1386", UNSCALED, frequencies=of(YARN), rotate=yarn()),
    case("differ; the first is 0.25, expected 1", YARN, frequencies=of(BETAS), rotate=yarn()),
    case("frequency_scale is 0.125, expected 1", LINEAR, frequencies=frequencies() / 8),
    case("the first is 0.0563965, expected 0.0562341", frequencies=1 / torch.tensor(BASE).bfloat16() **
         (torch.arange(0, D, 2) / D).bfloat16()),
    case("no known rotation", frequencies=1 / frequencies()),
    case("no known rotation gives these values", rotate=lambda x, a: -halves(x, a)),
    case("pairs 10 to 15 are not rotated", rotate=lambda x, a: torch.where(torch.arange(D) % 16 < 10,
         halves(x, a), x)),
    case("no known rotation gives these values", HALVES, Consecutive, rotate=xpos(), rotate_keys=xpos(-1)),
]
NEITHER = [
    # three layers, but types of two: one of their rotations may be that of another layer
    case("layers of unknown types", LOCAL, layers=({"frequencies": frequencies(1e6)}, {}, {})),
    case("xPos", {"model_type": "llama", "head_dim": D, "rope_theta": BASE, "use_xpos": True}, rotate=xpos(),
         rotate_keys=xpos(-1)),
    case("no positions", {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2}, rotate=unchanged),
    case("learned positions", {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2},
         rotate=unchanged, table=2**17),
    case("a short table", config(4096), **from_table(300)),
    case("no configuration", None), case("a single query", HALVES, Pooled, layers=()),
    case("positions before the projection", HALVES, with_state, rotate=unchanged),
]
