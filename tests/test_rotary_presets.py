"""Compare the presets of Rotary with the code of the models, at every position and axis."""

import numpy as np
import pytest

from peers import FLOAT32, timm_sincos
from posenc import Rotary

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings("ignore")      # warnings from diffusers and timm
LATENTS = (3, 10, 14)           # frames, rows and columns of patches


def grid(*shape):
    return np.indices(shape).reshape(len(shape), -1)


def diffusers(name):
    return pytest.importorskip(f"diffusers.models.{name}")


def transformer(name):
    return diffusers(f"transformers.transformer_{name}")


# name: the preset, and a function that returns the cosines and sines of a model's own code, and positions
MODELS = {}


def model(preset, head_dim, name=None, **changes):
    def add(tables):
        MODELS[name or preset] = Rotary.preset(preset, head_dim, **changes), tables
        return tables

    return add


def embedded(module, *patch):
    """Return the tables of a module that takes latents, and their positions."""
    sizes = [size * each for size, each in zip(LATENTS[-len(patch) :], patch, strict=True)]
    return module(torch.zeros(1, 1, *sizes)), grid(*LATENTS[-len(patch) :])


@model("flux", 128)
def flux():
    ids = np.concatenate([grid(1, *LATENTS[1:]), [[1], [1000], [9999]]], 1)
    return transformer("flux").FluxPosEmbed(10000, (16, 56, 56))(torch.from_numpy(ids.T)), ids


@model("flux2", 128)
def flux2():
    ids = np.concatenate([grid(2, 10, 14, 1), grid(1, 1, 1, 512)], 1)
    return transformer("flux2").Flux2PosEmbed(2000, (32, 32, 32, 32))(torch.from_numpy(ids.T)), ids


@model("qwen-image", 128)
def qwen_image():
    """The rows and columns are centred."""
    height, width = LATENTS[1:]
    module = transformer("qwenimage").QwenEmbedRope(10000, [16, 56, 56], scale_rope=True)
    image, text = module([LATENTS], device=torch.device("cpu"), max_txt_seq_len=5)
    ids = grid(*LATENTS) - [[0], [height - height // 2], [width - width // 2]]
    ids = np.concatenate([ids, np.tile(np.arange(5) + width // 2, (3, 1))], 1)
    table = torch.cat([image, text]).repeat_interleave(2, -1)
    return (table.real, table.imag), ids


@model("z-image", 128)
def z_image():
    ids = grid(*LATENTS)
    table = transformer("z_image").RopeEmbedder(256.0, (32, 48, 48), (64, 128, 128))(torch.from_numpy(ids.T))
    table = table.repeat_interleave(2, -1)
    return (table.real, table.imag), ids


@model("lumina2", 96)
def lumina2():
    ids = grid(*LATENTS)
    module = transformer("lumina2").Lumina2RotaryPosEmbed(10000, [32, 32, 32])
    table = module._get_freqs_cis(torch.from_numpy(ids.T)[None])[0].repeat_interleave(2, -1)
    return (table.real, table.imag), ids


model("hunyuan-image", 128)(lambda: embedded(
    transformer("hunyuanimage").HunyuanImageRotaryPosEmbed((1, 1), (64, 64)), 1, 1))
model("hunyuan-video", 128)(lambda: embedded(
    transformer("hunyuan_video").HunyuanVideoRotaryPosEmbed(2, 1, [16, 56, 56]), 1, 2, 2))
model("wan", 128)(lambda: embedded(transformer("wan").WanRotaryPosEmbed(128, (1, 2, 2), 1024), 1, 2, 2))


@model("cogvideox", 64)
def cogvideox():
    frames, height, width = LATENTS
    return diffusers("embeddings").get_3d_rotary_pos_embed(
        64, None, (height, width), frames, grid_type="slice", max_size=(30, 45)), grid(*LATENTS)


@model("cogvideox", 64, "cogvideox, resized")
def cogvideox_resized():
    """The rows and columns are fractions of those at the size of training."""
    frames, height, width = LATENTS
    (top, left), (bottom, right) = (2, 1), (28, 44)
    ids = np.stack(np.meshgrid(
        np.arange(frames), np.linspace(top, bottom * (height - 1) / height, height, dtype=np.float32),
        np.linspace(left, right * (width - 1) / width, width, dtype=np.float32),
        indexing="ij")).reshape(3, -1)
    return diffusers("embeddings").get_3d_rotary_pos_embed(64, ((top, left), (bottom, right)), (height, width), frames), ids


@model("ltx-video", 2048)
def ltx_video():
    """Positions are seconds over 20, and pixels over 2048, from -1 to 1.

    The rotation is that of all heads.
    """
    scale = np.array([8 / 25, 32, 32]) / [20, 2048, 2048]
    module = transformer("ltx").LTXVideoRotaryPosEmbed(2048)
    tables = module(torch.zeros(1), *LATENTS, rope_interpolation_scale=(8 / 25, 32, 32))
    return tables, 2 * grid(*LATENTS) * scale[:, None] - 1


@model("stable-audio", 64)
def stable_audio():
    tables = diffusers("embeddings").get_1d_rotary_pos_embed(32, 1024, use_real=True,
                                                             repeat_interleave_real=False)
    return tables, np.arange(1024)


@model("eva02", 64)
def eva02():
    """timm divides positions by the size of the grid and multiplies them by that of the grid of training."""
    height, width = 12, 20
    module = timm_sincos().RotaryEmbeddingCat(64, in_pixels=False, feat_shape=[height, width],
                                              ref_feat_shape=[16, 16])
    return module.get_embed().chunk(2, -1)[::-1], grid(height, width) * [[16 / height], [16 / width]]


# ---- transformers: text models with several axes, and vision models ----------------------------------------


AXES_3 = np.random.default_rng(0).integers(0, 60, (3, 9))
AXES_2 = np.random.default_rng(1).integers(0, 30, (2, 9))


def code_of(name):
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def configuration(name, kind, **options):
    return getattr(pytest.importorskip(f"transformers.models.{name}"), kind)(**options)


def text_model(preset, name, prefix, sections):
    """Add the tables of a module for three axes; the configuration gives the preset."""
    def tables():
        rope = {"rope_type": "default", "rope_theta": 1e4, "mrope_section": sections}
        sizes = {"hidden_size": 256, "num_attention_heads": 2, "head_dim": 128}
        config = configuration(name, f"{prefix.removesuffix('Text')}TextConfig", **sizes,
                               rope_parameters=rope)
        assert Rotary.from_config(config) == Rotary.preset(preset, 128, base=1e4)
        module = getattr(code_of(name), f"{prefix}RotaryEmbedding")
        return module(config)(torch.zeros(1), torch.from_numpy(AXES_3[:, None])), AXES_3

    model(preset, 128, base=1e4)(tables)


text_model("qwen2-vl", "qwen2_vl", "Qwen2VL", [16, 24, 24])
text_model("qwen3-vl", "qwen3_vl", "Qwen3VLText", [24, 20, 20])
text_model("ernie-vl", "ernie4_5_vl_moe", "Ernie4_5_VLMoeText", [22, 22, 20])


def vision_model(name, prefix, config=None, **options):
    module = getattr(code_of(name), f"{prefix}RotaryEmbedding")
    config = configuration(name, config or f"{prefix}Config", **options)
    return module(config)(torch.zeros(1), torch.from_numpy(AXES_2.T)), AXES_2


model("qwen2-vl-vision", 64)(lambda: vision_model(
    "qwen2_vl", "Qwen2VLVision", embed_dim=128, num_heads=2, hidden_size=128))
model("pixtral", 64)(lambda: vision_model(
    "pixtral", "PixtralVision", hidden_size=128, num_attention_heads=2, head_dim=64))
model("sam2", 256)(lambda: vision_model("sam2_video", "Sam2VideoVision", "Sam2VideoConfig"))


@model("dinov3", 64)
def dinov3():
    height, width = 4, 7
    module = code_of("dinov3_vit").DINOv3ViTRopePositionEmbedding
    config = configuration("dinov3_vit", "DINOv3ViTConfig", hidden_size=128, num_attention_heads=2,
                           patch_size=16)
    rows, columns = grid(height, width)
    positions = np.stack([(2 * rows + 1) / height - 1, (2 * columns + 1) / width - 1])
    return module(config).eval()(torch.zeros(1, 3, 16 * height, 16 * width)), positions


# ---- comparison --------------------------------------------------------------------------------------------

def tables_of(model):
    """Return the cosines and sines of a model's own code and of its preset, and the angles, one column for
    each pair.
    """
    rotary, tables = MODELS[model]
    (cos, sin), positions = tables()
    pairs = len(rotary.frequencies)
    columns = slice(None, pairs) if rotary.layout == "halves" else slice(None, None, 2)
    theirs = [np.asarray(t.squeeze(), np.float64) for t in (cos, sin)]
    for table in theirs:
        assert np.array_equal(table, np.tile(table[:, columns], 2) if rotary.layout == "halves" else
                              table[:, columns].repeat(2, -1))
    each = positions[None] if rotary.axes is None else positions
    angles = each[list(rotary.axes or [0] * pairs)].T * rotary.frequencies
    return [table[:, columns] for table in theirs], rotary.tables(positions, dtype="float64"), angles


@pytest.mark.parametrize("model", MODELS)
def test_presets_differ_from_the_models_by_float32_rounding(model):
    theirs, ours, angles = tables_of(model)
    # frequencies are powers of rounded exponents, and positions 2 x - 1 cancel
    tolerance = FLOAT32 + FLOAT32 * (16 * abs(angles).max(0) if model == "ltx-video" else 4 * abs(angles))
    for a, b in zip(theirs, ours, strict=True):
        assert (abs(a - b) <= tolerance).all()


@pytest.mark.parametrize("model", ["flux", "hunyuan-video", "wan", "stable-audio"])
def test_rotations_of_the_models(model):
    """The layout is that of the model's attention."""
    rotary = MODELS[model][0]
    tables, positions = MODELS[model][1]()
    x = torch.randn(1, 2, positions.shape[-1], rotary.head_dim, generator=torch.Generator().manual_seed(0))
    ours = rotary.rotate(x.numpy().copy(), positions)
    if model == "stable-audio":
        theirs = diffusers("attention_processor").StableAudioAttnProcessor2_0().apply_partial_rotary_emb(x, tables)
    else:
        theirs = diffusers("embeddings").apply_rotary_emb(x, [table.squeeze() for table in tables])
    np.testing.assert_allclose(ours, theirs, atol=2e-3 if model in ("flux", "stable-audio") else 5e-5)


def test_vjepa2():
    """The code multiplies both columns of a pair by cosines and sines of different frequencies, so it does
    not rotate.
    """
    module = pytest.importorskip("transformers.models.vjepa2.modeling_vjepa2")
    rotary = Rotary.preset("vjepa2", 64)
    assert rotary.rotary_dim == 60 and rotary.axes == (0,) * 10 + (1,) * 10 + (2,) * 10
    positions = grid(*LATENTS)
    cos, sin = (table.reshape(-1, 3, 10) for table in rotary.tables(positions))
    x = np.random.default_rng(0).standard_normal((positions.shape[1], 3, 20), np.float32)
    swapped = np.stack([-x[..., 1::2], x[..., ::2]], -1).reshape(x.shape)
    ours = x * np.tile(cos, 2) + swapped * np.tile(sin, 2)
    for axis in range(3):
        theirs = module.rotate_queries_or_keys(torch.from_numpy(x[None, None, :, axis]),
                                               torch.from_numpy(positions[axis]))
        np.testing.assert_allclose(ours[:, axis], theirs[0, 0], atol=1e-5)


def test_rotation_of_sam2():
    module = code_of("sam2_video")
    (cos, sin), positions = MODELS["sam2"][1]()
    x = torch.randn(1, 1, 9, cos.shape[-1], generator=torch.Generator().manual_seed(0))
    ours = Rotary.preset("sam2", x.shape[-1]).rotate(x.numpy().copy(), positions)
    np.testing.assert_allclose(x * cos + module.rotate_pairwise(x) * sin, ours, atol=2e-5)


def test_rotation_of_gemma4():
    """Each half of a head is a row of its own."""
    module = code_of("gemma4")
    config = configuration("gemma4", "Gemma4VisionConfig", hidden_size=128, num_attention_heads=2,
                           head_dim=64)
    positions = torch.from_numpy(AXES_2.T.copy())[None]
    x = torch.randn(1, 9, 2, 64, generator=torch.Generator().manual_seed(0))
    cos, sin = module.Gemma4VisionRotaryEmbedding(config)(x, positions)
    theirs = module.apply_multidimensional_rope(x, cos, sin, positions).numpy().reshape(1, 9, 2, 2, 32)
    rotary = Rotary.preset("gemma4-vision", 32)
    assert rotary.base == config.rope_parameters["rope_theta"]
    ours = rotary.rotate(x.numpy().reshape(theirs.shape).copy(), AXES_2.T[None, :, None, :])
    np.testing.assert_allclose(theirs, ours, atol=1e-5)
