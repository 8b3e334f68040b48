"""Keywords, scaling, configurations, tables and rotations of Rotary.

test_rotate.py tests the bits of rotated values.
"""

import copy
import functools
import json
import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal  # noqa: F401  the calls in MISTAKES use it
from fractions import Fraction
from importlib.util import find_spec

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, bits_of
from posenc import Rotary
from reference import Reference

POSITIONS = [0, 1, 7, -300, 4095, 10**6 + 1, -(10**9) - 7, 2**53 + 1, 2**63 - 1, -(2**63)]
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 4096}
DYNAMIC = {"type": "dynamic", "factor": 8, "max_position_embeddings": 8}
TINY = {"type": "linear", "factor": 1e-300}
LLAMA3 = {
    "rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192, "rope_theta": 500000.0,
}
LONGROPE = {
    "type": "su", "short_factor": [1.0, 1.5, 2.0, 4.0], "long_factor": [2.0, 3.0, 4.0, 8.0],
    "original_max_position_embeddings": 4096, "max_position_embeddings": 131072,
}
AXES = [2, 0, 1, 1, 0, 2]
EXAMPLES = [
    Rotary(64), Rotary(64, base=5e5, layout="interleaved", rotary_dim=16, scale=0.5),
    Rotary(8, scaling=LONGROPE), Rotary(64, scaling=YARN), Rotary(128, scaling=LLAMA3),
    Rotary(6, frequencies=[1.0, -0.5, 0.0]), Rotary(12, axes=[0, 1, 1, 2, 0, 2]), Rotary(0),
]


# ---- the specification -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rotary", EXAMPLES, ids=repr)
def test_round_trips(rotary):
    for same in (
        pickle.loads(pickle.dumps(rotary)), copy.deepcopy(rotary),
        Rotary.from_dict(json.loads(json.dumps(rotary.to_dict()))), rotary.replace(), rotary.__replace__(),
    ):
        assert same == rotary and hash(same) == hash(rotary) and repr(same) == repr(rotary)
    assert rotary.to_dict()["version"] == posenc.__version__


def test_attributes():
    rotary = Rotary(128, scaling=LLAMA3, rotary_dim=np.int64(64))
    assert (rotary.head_dim, rotary.rotary_dim, rotary.base, rotary.layout) == (128, 64, 500000.0, "halves")
    assert rotary.scaling == {key: value for key, value in LLAMA3.items() if key != "rope_theta"}
    assert (rotary.scale, rotary.frequency_scale, rotary.axes, rotary.attention_scaling) == (1.0, 1.0, None, 1.0)
    assert rotary.frequencies.shape == (32,) and rotary.frequencies.dtype == np.float64
    with pytest.raises(ValueError, match="read-only"):
        rotary.frequencies[0] = 2


def test_instances_are_immutable():
    rotary = Rotary(8, scaling={"rope_type": "linear", "factor": 2})
    for name in ("base", "head_dim", "scaling", "new"):
        with pytest.raises(AttributeError):
            setattr(rotary, name, 1)
        with pytest.raises(AttributeError):
            delattr(rotary, name)
    rotary.scaling["factor"] = 3.0          # a copy
    assert rotary.scaling["factor"] == 2.0


def test_equal_specifications_are_equal():
    linear = {"rope_type": "linear", "factor": 2}
    assert len({
        Rotary(64, base=5e5, scaling=linear),
        Rotary(64, scaling={"factor": 2.0, "type": "linear", "rope_theta": 500000, "beta_fast": None}),
        Rotary(64, base=5e5, rotary_dim=64, scaling=linear | {"partial_rotary_factor": 1.0}),
    }) == 1
    assert Rotary(64, scaling={"rope_type": "default"}) == Rotary(64, scaling={}) == Rotary(64, axes=[0] * 32) == Rotary(64)
    assert Rotary(64) != Rotary(64, base=5.0) and Rotary(64) != 64
    assert repr(Rotary(64, scaling={"type": "linear", "factor": 2})) == (
        "Rotary(64, scaling={'rope_type': 'linear', 'factor': 2.0})"
    )
    assert repr(Rotary(64, frequencies=range(32))) == "Rotary(64, frequencies=<32 numbers from 0.0 to 31.0>)"


def test_replace():
    assert Rotary(64).replace(head_dim=32, layout="interleaved") == Rotary(32, layout="interleaved")
    assert Rotary(8, base=7.0, scaling=YARN).replace(frequencies=[1, 2, 3, 4]) == Rotary(8, frequencies=[1, 2, 3, 4])
    assert Rotary(8, scaling=YARN).replace(scaling=None) == Rotary(8)


# ---- scaling -----------------------------------------------------------------------------------------------


def test_yarn_by_hand():
    """The ramp of YaRN, with and without truncation.

    d = 8, base 10000, L = 4096: the index of the pair with r rotations is 8 ln(4096 / (2 pi r)) / (2 ln
    10000), which is 8 * ln(20.37183) / 18.420681 = 8 * 3.014153 / 18.420681 = 1.309030 for r = 32, and 8 *
    ln(651.8986) / 18.420681 = 8 * 6.479889 / 18.420681 = 2.814180 for r = 1.  The frequencies are 1, 0.1,
    0.01, 0.001, the factor is 4.

    Truncation gives 1 and 3.  In pairs 1, 2 and 3, the frequency divided by 4 has the weight 0, 1/2 and 1, so
    the results are 0.1, 0.01 (1/2 + 1/8) = 0.00625 and 0.00025.  Without truncation, its weight in pair 2 is
    (2 - 1.309030) / 1.505150 = 0.459070, and the result is 0.01 (1 - 0.459070 * 3/4) = 0.006556975.

    For L = 200000, the indices are 2.997696 and 4.502779.  Truncation gives 2 and 5, beyond the last pair,
    but below d - 1. The weight in pair 3 is 1/3, and the result is 0.001 (1 - 1/3 * 3/4) = 0.00075.
    """
    assert Rotary(8, scaling=YARN).frequencies.tolist() == [1.0, 0.1, 0.00625, 0.00025]
    real = Rotary(8, scaling=YARN | {"truncate": False}).frequencies
    np.testing.assert_allclose(real, [1.0, 0.1, 0.006556975, 0.00025], rtol=1e-6)
    late = Rotary(8, scaling=YARN | {"original_max_position_embeddings": 200_000}).frequencies
    np.testing.assert_allclose(late, [1.0, 0.1, 0.01, 0.00075], rtol=1e-15)


@pytest.mark.parametrize("keys, expected", [
    ({}, 1.3688879454113936),                                       # 1 + 0.1 ln 40
    ({"mscale": 1.0, "mscale_all_dim": 1.0}, 1.0),                  # DeepSeek-V3
    ({"mscale": 0.707, "mscale_all_dim": 0.707}, 1.0),              # DeepSeek-V2
    # 1.3688879454 / 1.1844439727, 1 + 0.05 ln 40
    ({"mscale": 1.0, "mscale_all_dim": 0.5}, 1.15572199),
    ({"mscale": 1.0}, 1.3688879454113936),                          # mscale requires mscale_all_dim
    ({"mscale": 1.0, "mscale_all_dim": 0.0}, 1.3688879454113936),
    ({"attention_factor": 1.25, "mscale": 2.0, "mscale_all_dim": 1.0}, 1.25),
])
def test_attention_factor_of_yarn_by_hand(keys, expected):
    rotary = Rotary(64, scaling=YARN | {"factor": 40.0} | keys)
    assert rotary.attention_scaling == pytest.approx(expected, rel=1e-8)
    cos, sin = rotary.tables(1, dtype="float64")
    assert cos[0].tolist() == [rotary.attention_scaling] * 32 and not sin.any()


def test_longrope_by_hand():
    """Frequencies 1, 0.1, 0.01, 0.001, divided by the list.

    The factor is sqrt(1 + ln 32 / ln 4096) = sqrt(1 + 5/12).
    """
    short, long = (Rotary(8, scaling=LONGROPE | {"length": length}) for length in (4096, 4097))
    np.testing.assert_allclose(short.frequencies, [1, 0.1 / 1.5, 0.005, 0.00025], rtol=1e-15)
    np.testing.assert_allclose(long.frequencies, [0.5, 0.1 / 3, 0.0025, 0.000125], rtol=1e-15)
    assert short.attention_scaling == long.attention_scaling == math.sqrt(17 / 12)
    assert Rotary(8, scaling=LONGROPE) == short.replace(scaling=LONGROPE)
    scales = LONGROPE | {"short_mscale": 1.25, "long_mscale": 1.5}      # Phi-3.5-MoE
    assert [Rotary(8, scaling=scales | {"length": n}).attention_scaling for n in (1, 5000)] == [1.25, 1.5]
    without = {k: v for k, v in scales.items() if k not in ("factor", "max_position_embeddings")}
    assert Rotary(8, scaling=without).attention_scaling == 1.25


def test_llama3_by_hand():
    """The pairs make 100, 10, 1, 0.1 rotations.

    For low 1 and high 19, pair 1 keeps (10 - 1) / 18 = 1/2 of its frequency.
    """
    rotary = Rotary(8, frequency_scale=2 * math.pi * 100 / 628, scaling={
        "rope_type": "llama3", "factor": 4.0, "low_freq_factor": 1.0, "high_freq_factor": 19.0,
        "original_max_position_embeddings": 628,
    })
    first = 2 * math.pi / 6.28
    expected = [first, first / 10 * (0.5 + 0.125), first / 400, first / 4000]
    np.testing.assert_allclose(rotary.frequencies, expected, rtol=1e-15)


@pytest.mark.parametrize("rotary, keywords", [
    (Rotary(8, scaling={"rope_type": "linear", "factor": 3}), {"frequency_scale": Fraction(1, 3)}),
    (Rotary(8, base=500.0, frequency_scale=0.3, scale=0.7),
     {"base": 500.0, "frequency_scale": 0.3, "scale": 0.7}),
    # 16**(-i / 4) * 8**(-i / 3) = 4**-i = 256**(-i / 4); the growth is 8 * 15 / 8 - 7 = 8
    (Rotary(8, base=16.0, scaling=DYNAMIC | {"length": 15}), {"base": 256.0}),
    (Rotary(8, base=16.0, scaling={"type": "dynamic", "alpha": 8.0, "factor": 1.0, "beta_fast": 32}),
     {"base": 256.0}),
    (Rotary(8, scaling=DYNAMIC | {"length": 8}), {}),
    (Rotary(8, scaling=YARN | {"attention_factor": 1.25}),
     {"frequencies": [1.0, 0.1, 0.00625, 0.00025], "scale": 1.25}),
    (Rotary(8, frequencies=[2.0, -0.1, 0.0, 1e-9]), {"frequencies": [2.0, -0.1, 0.0, 1e-9]}),
    (Rotary(80, layout="interleaved", rotary_dim=8), {}),
])
@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_tables_equal_the_reference(rotary, keywords, dtype):
    reference = Reference(8, order="cos", layout="halves", **keywords)
    cos, sin = rotary.tables(POSITIONS, dtype=dtype)
    assert_same_bits(bits_of(np.concatenate([cos, sin], -1)), reference.table(POSITIONS, dtype))


def test_frequencies_beyond_the_range_of_float64():
    for sign in (1, -1):
        rotary = Rotary(8, frequency_scale=sign * 1.7e308, scaling={"rope_type": "linear", "factor": 0.001})
        assert (sign * rotary.frequencies).tolist() == [np.inf, np.inf, np.inf, 1.7e308]


def test_proportional_by_hand():
    """Only int(0.3 * 16 // 2) = 2 of the 8 pairs are rotated; their exponents are those for 8 pairs."""
    scaling = {"rope_type": "proportional", "partial_rotary_factor": 0.3, "rope_theta": 2.0**16}
    rotary = Rotary(16, scaling=scaling)
    assert rotary.frequencies.tolist() == [1.0, 0.25, 0, 0, 0, 0, 0, 0]
    assert rotary.rotary_dim == 16 and rotary.scaling["partial_rotary_factor"] == 0.3
    assert Rotary(16, scaling=scaling | {"factor": 4}).frequencies.tolist()[:3] == [0.25, 0.0625, 0]


def test_sections_become_axes():
    assert Rotary(16, scaling={"type": "mrope", "mrope_section": [2, 3, 3]}).axes == (0, 0, 1, 1, 1, 2, 2, 2)
    interleaved = Rotary(16, scaling={"mrope_section": [4, 2, 2], "mrope_interleaved": True})
    assert interleaved.axes == (0, 1, 2, 0, 1, 2, 0, 0) and interleaved.scaling is None


# ---- configurations of models ------------------------------------------------------------------------------


LLAMA = {"model_type": "llama", "hidden_size": 4096, "num_attention_heads": 32, "rope_theta": 500000.0}
GEMMA3 = {"model_type": "gemma3_text", "head_dim": 256, "rope_theta": 1e6, "rope_local_base_freq": 1e4,
          "rope_scaling": {"rope_type": "linear", "factor": 8.0}}
QWEN = {"model_type": "qwen", "hidden_size": 4096, "num_attention_heads": 32, "rotary_emb_base": 10000,
        "rotary_pct": 1.0, "seq_length": 8192, "use_dynamic_ntk": False}
NOMIC = {"model_type": "nomic_bert", "n_embd": 768, "n_head": 12, "n_positions": 8192,
         "max_trained_positions": 2048, "rotary_emb_base": 1000, "rotary_emb_fraction": 1.0,
         "rotary_emb_interleaved": False, "rotary_emb_scale_base": None, "rotary_scaling_factor": None}
DEEPSEEK_V4 = {"model_type": "deepseek_v4", "head_dim": 512, "qk_rope_head_dim": 64, "rope_theta": 10000,
               "compress_rope_theta": 160000, "max_position_embeddings": 1048576, "rope_scaling": {
                   "type": "yarn", "factor": 16, "original_max_position_embeddings": 65536, "beta_fast": 32,
                   "beta_slow": 1}}
MIMO = {"model_type": "mimo_v2_flash", "head_dim": 192, "rope_theta": 5000000, "swa_rope_theta": 10000,
        "partial_rotary_factor": 0.334}
MROPE = {"type": "mrope", "mrope_section": [2, 3, 3]}
PHI3 = {"model_type": "phi3", "hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 131072,
        "original_max_position_embeddings": 4096, "rope_theta": 10000.0,
        "rope_scaling": {"type": "longrope", "short_factor": [1, 1.5, 2, 4], "long_factor": [2, 3, 4, 8],
                         "original_max_position_embeddings": 17}}


@pytest.mark.parametrize("config, options, expected", [
    (LLAMA, {}, Rotary(128, base=500000.0)),
    (LLAMA | {"rope_scaling": LLAMA3}, {"length": 9}, Rotary(128, scaling=LLAMA3)),
    (LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 8.0}, "max_position_embeddings": 8},
     {"length": 15}, Rotary(128, base=500000.0, scaling=DYNAMIC | {"length": 15})),
    (LLAMA | {"rope_scaling": {"type": "yarn", "factor": 4.0}, "max_position_embeddings": 4096}, {},
     Rotary(128, base=500000.0, scaling=YARN)),
    (PHI3, {}, Rotary(8, scaling=LONGROPE)),
    (PHI3, {"length": 4097}, Rotary(8, scaling=LONGROPE | {"length": 4097})),
    ({"model_type": "gemma4_text", "head_dim": 16, "global_head_dim": 32, "rope_parameters": {
        "full_attention": {"rope_type": "proportional", "rope_theta": 1e6, "partial_rotary_factor": 0.25},
        "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}}, {"layer_type": "full_attention"},
     Rotary(32, base=1e6, scaling={"rope_type": "proportional", "partial_rotary_factor": 0.25})),
    ({"model_type": "zamba2", "attention_head_dim": 160, "kv_channels": 80, "use_mem_rope": True}, {},
     Rotary(160)),
    ({"model_type": "gptj", "head_dim": 128, "rotary_dim": None}, {}, Rotary(128, layout="interleaved")),
    ({"model_type": "gptj", "n_embd": 1024, "n_head": 8}, {}, Rotary(128, rotary_dim=64, layout="interleaved")),
    (LLAMA | {"model_type": "phi", "rotary_emb_fraction": 0.25, "rotary_emb_interleaved": True}, {},
     Rotary(128, base=500000.0, rotary_dim=32, layout="interleaved")),
    (LLAMA | {"rope_parameters": {}, "rope_scaling": LLAMA3}, {}, Rotary(128, scaling=LLAMA3)),
    (LLAMA | {"rope_scaling": LLAMA3 | {"original_max_position_embeddings": 8192.0}}, {},
     Rotary(128, scaling=LLAMA3)),
    (LLAMA | {"model_type": "phi", "hidden_size": 2560}, {}, Rotary(80, base=500000.0, rotary_dim=40)),
    (GEMMA3 | {"rope_local_base_freq": None}, {"layer_type": "sliding_attention"}, Rotary(256)),
    *[({"model_type": "of the future", name: LLAMA}, {}, Rotary(128, base=500000.0))
      for name in ("text_config", "llm_config", "language_config")],
    (LLAMA | {"model_type": "of the future"}, {"layout": "interleaved"},
     Rotary(128, base=500000.0, layout="interleaved")),
    ({"model_type": "of the future", "head_dim": 16, "rope_theta": 1e4, "rope_scaling": MROPE},
     {"layout": "halves", "axes": [0, 1, 2, 0, 1, 2, 0, 1]}, Rotary(16, axes=[0, 1, 2, 0, 1, 2, 0, 1])),
    (QWEN, {"layout": "halves"}, Rotary(128)),
    ({"model_type": "qwen4_exp_text", "head_dim": 128, "rope_theta": 5e6, "rope_scaling": {"mrope_section": [24, 20, 20]}}, {},
     Rotary.preset("qwen3-vl", 128)),
])
def test_configurations(config, options, expected):
    before = copy.deepcopy(config)
    assert Rotary.from_config(config, **options) == expected
    assert config == before
    if find_spec("omegaconf"):
        from omegaconf import OmegaConf
        assert Rotary.from_config(OmegaConf.create(config), **options) == expected


@pytest.mark.parametrize("config, options, lowest, layout", [
    (DEEPSEEK_V4, {"layer_type": "main"}, 1.3335e-4, "interleaved"),
    (DEEPSEEK_V4, {"layer_type": "compress"}, 5.6805e-7, "interleaved"),
    (MIMO, {"layer_type": "full_attention"}, 5e6 ** (-62 / 64), "halves"),
    (MIMO, {"layer_type": "sliding_attention"}, 1e4 ** (-62 / 64), "halves"),
    ({"model_type": "dots3_note", "qk_rope_head_dim": 64, "swa_rope_theta": 99},
     {"layer_type": "sliding_attention"}, 99 ** (-62 / 64), "interleaved"),
    (NOMIC, {}, 1000 ** (-62 / 64), "halves"),
    ({"model_type": "wav2vec2-conformer", "head_dim": 64, "position_embeddings_type": "rotary", "rotary_embedding_base": 9}, {},
     9 ** (-62 / 64), "halves"),
])
def test_bases_of_configurations(config, options, lowest, layout):
    rotary = Rotary.from_config(config, **options)
    assert rotary.frequencies[-1] == pytest.approx(lowest, rel=4e-5)
    assert rotary.attention_scaling == 1 and rotary.layout == layout


# ---- tables ------------------------------------------------------------------------------------------------


def test_tables_are_views_of_one_encoding():
    rotary = Rotary(64, base=500.0)
    table = posenc.encode(range(5, 90), 64, base=500.0, order="cos", layout="halves", dtype="float16")
    out = np.zeros((85, 70), np.float16)[:, 3:67]
    cos, sin = rotary.tables(range(5, 90), dtype="float16", out=out, threads=2)
    assert cos.base is not None and np.shares_memory(cos, out) and np.shares_memory(sin, out)
    assert_same_bits(np.concatenate([cos, sin], 1), table)
    assert rotary.tables(np.array([[1, 2], [3, 4]]))[0].shape == (2, 2, 32)
    assert rotary.tables(7)[1].shape == (7, 32)


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 0)])
def test_tables_with_several_axes(dtype, shape, monkeypatch):
    monkeypatch.setattr(posenc._axes.axis_columns, "BLOCK_BYTES", 1)
    rotary, positions = Rotary(12, axes=AXES), np.random.default_rng(0).integers(-9999, 9999, (3, *shape))
    each = [Rotary(12).tables(np.array(p), dtype=dtype) for p in positions]
    cos, sin = rotary.tables(positions, dtype=dtype)
    assert cos.shape == sin.shape == (*shape, 6)
    for pair, axis in enumerate(AXES):
        assert_same_bits(cos[..., pair], each[axis][0][..., pair])
        assert_same_bits(sin[..., pair], each[axis][1][..., pair])
    bits = np.zeros((*shape, 12), np.uint16)
    if dtype == "bfloat16":
        rotary.tables(positions, dtype=dtype, out=bits)
        assert_same_bits(bits[..., :6], bits_of(np.ascontiguousarray(cos)))


def test_tables_whose_memory_holds_the_positions():
    rotary, positions = Rotary(12, axes=AXES), np.arange(6.0).reshape(3, 2)
    expected = rotary.tables(positions.copy(), dtype="float64")
    memory = np.zeros((2, 12))
    memory.reshape(-1)[:6] = positions.reshape(-1)
    got = rotary.tables(memory.reshape(-1)[:6].reshape(3, 2), dtype="float64", out=memory)
    assert_same_bits(got[0], expected[0])
    assert_same_bits(got[1], expected[1])


# ---- rotation ----------------------------------------------------------------------------------------------


def random(shape, dtype=np.float32):
    return np.random.default_rng(0).standard_normal(shape).astype(dtype)


ROTARIES = [
    Rotary(16), Rotary(16, layout="interleaved"), Rotary(16, rotary_dim=6, scaling=YARN),
    Rotary(16, layout="interleaved", rotary_dim=10), Rotary(16, axes=[2, 0, 1, 1, 0, 2, 2, 0]),
]


@pytest.mark.parametrize("rotary", ROTARIES, ids=repr)
@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_every_form_of_positions_and_out(rotary, dtype):
    """test_rotate.py compares the bits with the reference."""
    x, rows = random((2, 3, 40, 16), dtype), np.arange(40)
    forms = rows, None, 40, range(40), list(range(40)), rows.astype(float), rows.astype(np.uint8)[None, None]
    if rotary.axes is not None:
        rows = np.random.default_rng(1).integers(-50, 50, (3, 40))
        forms = rows, rows.astype(float)[:, None, None]
    expected = rotary.rotate(x.copy(), rows)
    assert_same_bits(expected[..., rotary.rotary_dim :], x[..., rotary.rotary_dim :])
    for positions in forms:
        out, mine = np.empty_like(x), x.copy()
        assert rotary.rotate(x, positions, out=out) is out
        assert_same_bits(out, expected)
        assert rotary.rotate(mine, positions, out=mine[:], threads=2).base is mine          # the same memory
        assert_same_bits(mine, expected)


# ---- rotations at given positions --------------------------------------------------------------------------


@functools.cache
def rotaries():
    """Return rotations with all layouts, scales without a fast path, and one or several axes."""
    kinds = [{}, {"base": 5e5, "rotary_dim": 20}, {"scale": 0.75}, {"scale": 2.0**-70},
             {"axes": [0, 1, 2, 2, 1, 0] * 2}]
    return [Rotary(24, layout=layout, **kind) for kind in kinds for layout in ("halves", "interleaved")] + [Rotary(68)]


def random_selection(rng, shape):
    """Return a random index of slices, integers, an ellipsis and None."""
    lengths = [(n, *np.sort(rng.integers(0, n + 1, 2)).tolist()) for n in shape]
    choices = [(slice(a, b), slice(None, None, -1), slice(None, None, 2), int(rng.integers(-n, n)))
               for n, a, b in lengths]
    key = tuple(each[rng.integers(len(each))] for each in choices)
    key = key[: rng.integers(len(key) + 1)]
    return key + ((...,) if rng.random() < 0.5 else ()) + ((None,) if rng.random() < 0.2 else ())


def compare_at_with_rotate(rng):
    rotary = rotaries()[rng.integers(len(rotaries()))]
    dtype = (np.float32, np.float16, ml_dtypes.bfloat16)[rng.integers(3)]
    shape = tuple(rng.integers(1, 9, rng.integers(1, 4)).tolist())
    axes = () if rotary.axes is None else (3,)
    positions = rng.integers(-(2**63), 2**63 - 1, axes + shape) >> int(rng.integers(64))
    if rng.random() < 0.3:                  # evenly spaced, enough for an offset table
        shape = (shape[0], 70)
        positions = np.broadcast_to(np.arange(70) * int(rng.integers(1, 9)),
                                    axes + shape) + int(rng.integers(2**40))
    inverse = bool(rng.integers(2))
    at = rotary.at(positions, inverse=inverse)
    for _ in range(2):
        key = random_selection(rng, shape)
        part = at[key]
        assert np.array_equal(part.positions, positions[(slice(None),) * len(axes) + key])
        heads = rng.integers(1, 4, rng.integers(2) if part.shape else 0)
        x = rng.standard_normal((*heads, *part.shape, rotary.head_dim)).astype(dtype)
        if len(heads) and len(part.shape) > 1:
            part = part[None]
        threads = int(rng.integers(1, 3))
        expected = rotary.rotate(x.copy(), part.positions, inverse=inverse)
        out = np.zeros_like(x)
        assert part.rotate(x, out=out, threads=threads) is out
        assert_same_bits(out, expected)
        assert part.rotate(x, threads=threads) is x
        assert_same_bits(x, expected)


@pytest.mark.parametrize("calls", [40, pytest.param(25_000, marks=pytest.mark.long)])
def test_at_has_the_bits_of_rotate(isa, calls):
    rng = np.random.default_rng(20)
    for _ in range(calls):
        compare_at_with_rotate(rng)


def test_memory_of_at_is_stated_and_shared():
    at = Rotary(96).at(np.arange(3000).reshape(3, 1000))
    # 48 pairs take the memory of 64
    positions, form = 3000 * 8, 3000 * 64 * 16
    assert at.nbytes == positions
    part = at[1, 10:20]
    part.rotate(np.ones((10, 96), np.float32))
    assert at.nbytes == part.nbytes == positions + form
    at.rotate(np.ones((3, 1000, 96), np.float32))
    assert at.nbytes == positions + form
    for forms, dtype in ((2, np.float16), (3, ml_dtypes.bfloat16)):
        part[:1].rotate(np.ones((1, 96), dtype))
        assert at.nbytes == positions + forms * form
    assert np.shares_memory(part.positions, at.positions)
    with pytest.raises(MemoryError):
        Rotary(128).at(10**15)


def test_at_is_immutable_and_has_copies():
    rotary = Rotary(64, axes=[0, 1] * 16)
    at = rotary.at(np.arange(20).reshape(2, 10), inverse=True)[2:5]
    assert (at.rotary, at.inverse, at.shape, at.positions.tolist()) == (rotary, True, (3,), [[2, 3, 4], [12, 13, 14]])
    assert repr(at) == f"<{rotary!r} at positions of shape (2, 3), 2 to 14, inverse>"
    assert repr(Rotary(8).at(0)) == "<Rotary(8) at positions of shape (0,)>"
    for change in (lambda: setattr(at, "inverse", False), lambda: delattr(at, "rotary"),
                   lambda: setattr(at, "new", 1)):
        with pytest.raises(AttributeError, match=r"cannot (assign to|delete) field"):
            change()
    with pytest.raises(ValueError, match="read-only"):
        at.positions[0] = 1
    with pytest.raises(ValueError, match="WRITEABLE"):
        at.positions.flags.writeable = True
    given = np.arange(3)
    kept = Rotary(8).at(given)
    given[:] = 7
    assert kept.positions.tolist() == [0, 1, 2]
    x = np.random.default_rng(23).standard_normal((3, 64), np.float32)
    for same in (pickle.loads(pickle.dumps(at)), copy.deepcopy(at)):
        assert repr(same) == repr(at) and same.nbytes == 2 * 3 * 8
        assert_same_bits(same.rotate(x.copy()), at.rotate(x.copy()))


@pytest.mark.parametrize("dtype", ["float32", "float64", "bfloat16"])
def test_tables_of_at(dtype):
    for rotary, positions in ((Rotary(8, scale=0.5), [0, 7, -300, 10**12]),
                              (EXAMPLES[6], np.arange(12).reshape(3, 4))):
        positions = np.array(positions)
        for inverse in (False, True):
            tables = rotary.at(positions, inverse=inverse).tables(dtype=dtype)
            for mine, expected in zip(tables, rotary.tables(-positions if inverse else positions, dtype=dtype), strict=True):
                assert_same_bits(mine, expected)


def test_threads_share_at():
    rotary = Rotary(64)
    x = np.random.default_rng(24).standard_normal((4, 500, 64), np.float32)
    expected = rotary.rotate(x.copy())
    for _ in range(300):                # each time, several threads compute the factors
        at = rotary.at(500)
        with ThreadPoolExecutor(4) as pool:
            for result in pool.map(at.rotate, [x.copy() for _ in range(8)]):
                assert_same_bits(result, expected)


# ---- errors ------------------------------------------------------------------------------------------------

# A call, its error (default: ValueError), and a fragment of the message that names the argument.
# test_mistakes.py tries every argument.
MISTAKES = """
Rotary(7)  head_dim is 7, expected an even number
Rotary(64, scaling=YARN | {"beta": 1})  scaling has 'beta'
Rotary(64, scaling={"rope_type": "linear", "type": "yarn", "factor": 2})  scaling has rope_type
Rotary(64, base=0.5, scaling=YARN)  base is 0.5
Rotary(64, base=3.0, scaling=LLAMA3)  base and scaling['rope_theta']
Rotary(64, base=10000.0, scaling={"rope_theta": 1e6})  base and scaling['rope_theta']
Rotary.from_dict({"head_dim": 64, "rotary": {"base": 1e4, "scaling": LLAMA3}})  base and scaling['rope_theta']
Rotary.preset("stable-audio", 64, scaling={"rope_theta": 1e6})  base and scaling['rope_theta']
Rotary(64, scaling={"mrope_interleaved": True})  mrope_section has length 0
Rotary(64, scaling={"type": "dynamic", "alpha": 2, "factor": 2})  scaling['alpha'] and scaling['factor']
Rotary(128, scaling=LLAMA3 | {"low_freq_factor": 4.0})  scaling['low_freq_factor'] is 4
Rotary(64, scaling=LONGROPE)  scaling['short_factor'] has length 4
Rotary(8, scaling=LONGROPE | {"short_mscale": 1.0})  lacks the key 'long_mscale'
Rotary(8, scaling=LONGROPE | {"max_position_embeddings": None})  lacks the key 'factor'
Rotary(8, scaling=LONGROPE | {"long_factor": [1, 2, 3, -4]})  scaling['long_factor'][3] is -4
Rotary(8, scaling=YARN, frequencies=[1] * 4)  frequencies and scaling
Rotary(8, base=10000.0, frequencies=[1] * 4)  frequencies and base
Rotary.preset("pixtral", 8, base=10000.0, frequencies=[1] * 4)  frequencies and base
Rotary.preset("llama", 64)  'stable-audio'); for a language model, see Rotary.from_config
Rotary(8, scale=1e308, scaling=YARN | {"attention_factor": 10.0})  scale is 1e+308
Rotary(64, base=1e-300, frequency_scale=1e300, scaling=TINY)  frequencies range from 2**
Rotary(8, frequency_scale=-1e308, scaling=YARN | {"factor": 1e-9})  frequency -inf
from_config(YARN)  config has model_type None
from_config({"model_type": "llama", "rope_theta": 1e4})  config lacks head_dim
from_config(LLAMA | {"model_type": "bert"})  has no rotary embeddings
from_config(LLAMA | {"model_type": "x"})  pass layout='halves' or layout
from_config({"head_dim": 64, "rope_theta": 1e4})  config has model_type None
from_config(LLAMA | {"model_type": "x", "rope_scaling": MROPE}, layout="halves")  pass axes=
from_config({"rope_theta": 1e4, "text_config": LLAMA | {"rope_theta": None}})  config has rope_theta beside
from_config(LLAMA | {"swa_rope_theta": 1e4})  config has swa_rope_theta 10000.0
from_config(LLAMA | {"rotary_emb_base": 1e4})  config has rotary_emb_base 10000.0
from_config(LLAMA | {"rotary_pct": 0.5})  config has rotary_pct 0.5, but models of type 'llama' rotate
from_config(LLAMA | {"rotary_pct": Decimal("sNaN")})  rotary_pct is Decimal('sNaN'), expected a finite number
from_config(LLAMA | {"rope_scaling": Decimal("sNaN")})  TypeError  config.rope_parameters or config.rope_scaling is D
from_config(LLAMA | {"rotary_emb_scale_base": 512})  config has rotary_emb_scale_base 512
from_config(LLAMA | {"use_rope": False})  config has use_rope False
from_config(LLAMA | {"model_type": "mimo_v2_flash", "rope_scaling": YARN})  with a dict for each type of layers
from_config(LLAMA | {"model_type": "step3p5"})  with a dict for each type of layers
from_config(LLAMA | {"model_type": "mamba"})  config has model_type 'mamba'
from_config(LLAMA | {"model_type": "pixtral"})  positions have several axes
from_config(LLAMA | {"model_type": "falcon", "alibi": True})  config has alibi True
from_config(LLAMA | {"hidden_size": 65, "num_attention_heads": 4})  config has hidden_size 65
from_config({"model_type": "glm4v_text", "head_dim": 128, "rope_theta": 1e4})  axes has length 32, expected 64
from_config(LLAMA | {"layer_rope_theta": [0, 500000.0, 10000.0]})  config has layer_rope_theta with 10000.0
from_config(LLAMA | {"rope_ratio": 50})  config has rope_ratio 50
from_config({"model_type": "gpt_neox", "head_dim": 15, "rotary_ndims": 3})  rotary_dim is 3, expected an even number
from_config(LLAMA | {"use_dynamic_ntk": True}, length=9)  config has use_dynamic_ntk True
from_config(LLAMA | {"rotary_scaling_factor": 2})  config has rotary_scaling_factor 2
from_config(LLAMA | {"rope_interleave": "no"})  TypeError  rope_interleave is 'no'
from_config(LLAMA | {"model_type": "zamba2"})  config has use_mem_rope False
from_config(LLAMA | {"rope_scaling": {"type": "dynamic", "factor": 2.0}})  lacks the key 'max_position_embeddings'
from_config(LLAMA | {"rope_parameters": LLAMA3, "rope_scaling": YARN})  both rope_parameters and rope_scaling
from_config(LLAMA | {"rope_parameters": {"main": {"rope_theta": 1.0}}})  layer_type is None, expected 'main'
from_config(LLAMA | {"rope_parameters": {"main": None, "x": {}}}, "main")  layer_type is 'main', expected 'x'
from_config(GEMMA3)  layer_type is None, expected 'full_
from_config({"model_type": "gpt_oss", "head_dim": 64})  config lacks rope_parameters
from_config(LLAMA, layer_type="full_attention")  layer_type is 'full_attention'
from_config(LLAMA | {"per_layer_config": {"0": {"head_dim": 8}}})  config has per_layer_config; pass an object
SEVERAL.tables(7, out=out)  positions is range(0, 7)
SEVERAL.tables(np.zeros((2, 4), int), out=out)  positions is of shape (2, 4)
SEVERAL.tables(np.array([[2**63] * 4, [0] * 4, [0] * 4], "u8"), out=out)  positions has 9223372036854775808
SEVERAL.tables(np.zeros((3, 5), int), out=out)  out has shape (4, 12)
SEVERAL.rotate(out, None)  positions is None
SEVERAL.rotate(out, np.arange(4))  positions is of shape (4,)
SEVERAL.rotate(out, np.zeros((3, 5), int))  positions has shape (3, 5)
Rotary(12).rotate(out, [[0, 1, 2, 3]])  positions has shape (1, 4)
Rotary(12).rotate(random((3, 12)), out=out)  out has shape (4, 12)
Rotary(12).rotate(out.astype("f2"), out=out)  out has dtype float32
Rotary(12).rotate(out[:3], out=out[1:])  memory ranges of out and x overlap
SEVERAL.at(5)  positions is 5
Rotary(12).at(3)[3]  IndexError  index 3
Rotary(12).at(3)[0, 0]  IndexError  too many indices
Rotary(12).at(3).rotate(out)  positions has shape (3,)
Rotary(12).at(3)[:1].rotate(out)  positions has shape (1,)
Rotary(12).at(4).rotate(out[:, :6])  x has shape (4, 6)
Rotary(12).at(4).rotate(random((4, 12)), out=out[:, :11])  out has shape (4, 11)
"""


@pytest.mark.parametrize("line", MISTAKES.strip().split("\n"))
def test_mistakes_write_nothing(line):
    call, kind, fragment = re.fullmatch(r"(.*?)  (?:(\w+Error)  )?(.*)", line).groups()
    out, several = np.full((4, 12), 7, np.float32), Rotary(12, axes=AXES)
    with pytest.raises(Exception, match=re.escape(fragment)) as error:
        eval(call, globals() | {"out": out, "from_config": Rotary.from_config, "SEVERAL": several})
    assert error.type.__name__ == (kind or "ValueError") and (out == 7).all()
