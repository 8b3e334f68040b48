"""check_rotary of small models that were written for it: each right one is right, and each wrong one is not."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402
from torch.nn.functional import scaled_dot_product_attention  # noqa: E402

from posenc import Rotary  # noqa: E402
from posenc.check import check_rotary  # noqa: E402

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


# ---- parts of models: each has a default, and a model replaces some -------------------------------------------------


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


YARN = Rotary(D, scaling={"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 2048})
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
    "64 bits of positions": (Small, {"angles": lambda p, w: (p[:, None].double() * w.double())}, HALVES),
}
NAN = torch.where(torch.arange(D // 2) < 3, torch.nan, frequencies())
WRONG = {
    "another base": (Small, {"frequencies": frequencies(5e5)}, HALVES),
    "another base, eager": (Small, {"frequencies": frequencies(5e5), "attention": eager}, HALVES),
    "another base, fused": (Small, {"frequencies": frequencies(5e5), "fused": True}, HALVES),
    "another base in the second layer": (Small, {"layers": ({}, {"frequencies": frequencies(9e3)})}, HALVES),
    "another base, consecutive": (Consecutive, {"frequencies": frequencies(5e5)}, HALVES),
    "local and global exchanged": (Small, {"layers": ({"frequencies": frequencies(1e6)}, {})}, LOCAL),
    "only local": (Small, {}, LOCAL), "halves": (Small, {}, PAIRS), "interleaved": (Small, {"rotate": interleaved}, HALVES),
    "complex": (Small, {"rotate": complex_pairs}, HALVES), "columns moved": (Small, {"rotate": deinterleaved}, HALVES),
    "columns of keys moved": (Small, {"rotate": interleaved, "rotate_keys": deinterleaved}, PAIRS),
    "halves, half": (Small, {"rotate": partial(16), "frequencies": frequencies(d=16)}, HALF.replace(layout="interleaved")),
    "all columns": (Small, {}, HALF),
    "half of the columns": (Small, {"rotate": partial(16), "frequencies": frequencies(d=16)}, HALVES),
    "the last columns": (Small, {"rotate": lambda x, a: torch.cat([x[..., :16], halves(x[..., 16:], a)], -1),
                                 "frequencies": frequencies(d=16)}, HALF),
    "exponents": (Small, {"rotate": partial(16), "frequencies": frequencies()[:8]}, HALF),
    "signs": (Small, {"rotate": lambda x, a: halves(x, -a)}, HALVES),
    "signs of the keys": (Small, {"rotate_keys": lambda x, a: halves(x, -a)}, HALVES),
    "exchanged": (Small, {"rotate": lambda x, a: halves(x, torch.pi / 2 - a)}, HALVES),
    "exchanged for keys": (Small, {"rotate_keys": lambda x, a: halves(x, torch.pi / 2 - a)}, HALVES),
    "keys as they are": (Small, {"rotate_keys": lambda x, a: x}, HALVES),
    "queries as they are": (Small, {"rotate": lambda x, a: x, "rotate_keys": halves}, HALVES),
    "nothing is rotated": (Small, {"rotate": lambda x, a: x}, HALVES),
    "one layer is not rotated": (Small, {"layers": ({}, {"rotate": lambda x, a: x})}, HALVES),
    "the other layer is not rotated": (Small, {"layers": ({"rotate": lambda x, a: x}, {})}, NOPE),
    "keys shifted": (Small, {"key_angles": lambda a: a.roll(1, 0)}, HALVES),
    "keys shifted, consecutive": (Consecutive, {"key_angles": lambda a: a.roll(1, 0)}, HALVES),
    "keys from 1": (Small, {"rotate_keys": lambda x, a: halves(x, a + frequencies())}, HALVES),
    "positions from 1": (Small, {"positions": lambda p, x: p + 1}, HALVES),
    "positions from 1, consecutive": (Consecutive, {"positions": lambda p, x: p + 1}, HALVES),
    "positions ignored": (Small, {"positions": lambda p, x: torch.arange(len(p))}, HALVES),
    "positions from 0": (Small, {"positions": lambda p, x: p - p[0]}, HALVES),
    "positions of the maximum": (Small, {"positions": lambda p, x: p.cummax(0)[0]}, HALVES),
    "positions clamped": (Small, {"positions": lambda p, x: p.clamp(max=1023)}, HALVES),
    "positions modulo": (Small, {"positions": lambda p, x: p % 2048}, HALVES),
    "positions modulo, consecutive": (Consecutive, {"positions": lambda p, x: p % 512}, HALVES),
    "positions doubled": (Small, {"positions": lambda p, x: 2 * p}, HALVES),
    "positions halved": (Small, {"positions": lambda p, x: p / 2}, HALVES),
    "a single row at 0": (Small, {"positions": lambda p, x: p if len(p) > 1 else 0 * p}, HALVES),
    "positions in bfloat16": (Small, {"positions": lambda p, x: p.bfloat16()}, HALVES),
    "positions in float16": (Small, {"positions": lambda p, x: p.half()}, HALVES),
    "positions in the dtype": (Small, {"positions": lambda p, x: p.to(x.dtype), "dtype": bf16}, HALVES),
    "positions in bfloat16, consecutive": (Consecutive, {"positions": lambda p, x: p.bfloat16()}, HALVES),
    "angles in bfloat16": (Small, {"angles": lambda p, w: angles(p, w).bfloat16().float()}, HALVES),
    "angles in float16": (Small, {"angles": lambda p, w: angles(p, w).half().float()}, HALVES),
    "frequencies in bfloat16": (Small, {"frequencies": frequencies().bfloat16()}, HALVES),
    "frequencies in float16": (Small, {"frequencies": frequencies().half()}, HALVES),
    "frequencies in bfloat16, bfloat16": (Small, {"frequencies": frequencies().bfloat16(), "dtype": bf16}, HALVES),
    "frequencies in reverse": (Small, {"frequencies": frequencies().flip(0)}, HALVES),
    "frequencies / 8": (Small, {"frequencies": frequencies() / 8}, HALVES), "NaN": (Small, {"frequencies": NAN}, HALVES),
    "linear is lost": (Small, {}, Rotary(D, scaling={"rope_type": "linear", "factor": 4.0})),
    "llama3 is lost": (Small, {}, LLAMA3),
    "yarn without its factor": (Small, {"frequencies": of(YARN)}, YARN),
    "yarn with its factor twice": (Small, {"frequencies": of(YARN), "rotate": yarn(0, YARN.attention_scaling**2)}, YARN),
    "yarn, keys without the factor": (Small, {"frequencies": of(YARN), "rotate": yarn(0), "rotate_keys": halves}, YARN),
    "cosines and sines times 2": (Small, {"rotate": lambda x, a: 2 * halves(x, a)}, HALVES),
    "keys times 1.01": (Small, {"rotate_keys": lambda x, a: 1.01 * halves(x, a)}, HALVES),
    "other columns are 0": (Small, {"rotate": lambda x, a: torch.cat([halves(x[..., :16], a), 0 * x[..., 16:]], -1),
                                    "frequencies": frequencies(d=16)}, HALF),
    "a cosine too large": (Small, {"rotate": lambda x, a: halves(x, a) + torch.cat(
        [0 * x[..., :16], 0.009 * x[..., 16:] * a.cos()], -1)}, HALVES),
    "absolute values": (Small, {"before": torch.abs}, HALVES), "reflected": (Small, {"rotate": lambda x, a: torch.cat([
        x[..., :16] * a.cos() + x[..., 16:] * a.sin(), x[..., 16:] * a.cos() + x[..., :16] * a.sin()], -1)}, HALVES),
    "a mix of layouts": (Small, {"rotate": lambda x, a: x * a.cos().repeat_interleave(2, -1) + torch.cat(
        [-x[..., 16:], x[..., :16]], -1) * a.sin().repeat_interleave(2, -1)}, HALVES),
    "a short table": (Small, from_table(300), config(4096)),
    "a clamped table": (Small, from_table(300, lambda p, n: p.clamp(max=n - 1)), config(4096)),
    "a table of another base": (Small, from_table(4096, base=5e3), config(4096)),
    "a table in bfloat16": (Small, from_table(4096, dtype=bf16), config(4096)),
    "axes exchanged": (Axes, {"axis": [1] * 8 + [0] * 8}, AXES), "one axis": (Axes, {"axis": [0] * 16}, AXES),
    "heads differ": (Small, {"rotate": lambda x, a: torch.cat([halves(x[:, :1], a), x[:, 1:]], 1)}, HALVES),
}
NEITHER = {         # no rotation, or one that posenc does not know: neither right nor wrong
    "no positions": (Small, {"rotate": lambda x, a: x}, {"model_type": "bert", "hidden_size": 64, "num_attention_heads": 2}),
    "learned positions": (Small, {"rotate": lambda x, a: x, "table": 2**17}, {
        "model_type": "bert", "hidden_size": 64, "num_attention_heads": 2}),
    "no configuration": (Small, {}, None),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right(name):
    kind, options, expected = RIGHT[name]
    report = check_rotary(kind(**options), expected)
    assert report.ok and report, report


@pytest.mark.parametrize("name", WRONG)
def test_wrong(name):
    kind, options, expected = WRONG[name]
    report = check_rotary(kind(**options), expected)
    is_known = name != "one layer is not rotated"        # perhaps it should not be, so its verdict is "not checked"
    assert not report.ok and ("wrong" in [row.verdict for row in report]) == is_known, report


@pytest.mark.parametrize("name", NEITHER)
def test_neither(name):
    kind, options, expected = NEITHER[name]
    report = check_rotary(kind(**options), expected)
    assert not report.ok and {row.verdict for row in report} <= {"not checked", "no rotation"}, report
