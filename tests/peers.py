"""Tables from other libraries, computed with their installed code or, for some, with their formulas.

Each function takes d_model and returns the table of one library, with a row for each position.  A test is
skipped if its library is not installed.  The group `peers` in pyproject.toml and the file peers.txt list the
tested versions.
"""

import ast
import functools
import importlib
import importlib.util
import math
import sys
import types
import typing
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, SimpleNamespace
from typing import NamedTuple

import numpy as np
import pytest

N = 64
POSITIONS = np.arange(N)
TIMES = np.linspace(0.0, 1.0, 64, dtype=np.float32)
TIMESTEPS = np.linspace(0.0, 63.0, 101, dtype=np.float32)           # fractional
EVEN = (2, 16, 512)
EVEN_FROM_4 = (4, 16, 512)
ANY = (1, 2, 3, 16, 33, 512)
FROM_4 = (4, 5, 16, 33, 512)
FLOAT32, FLOAT64 = 2.0**-24, 2.0**-53                               # unit roundoffs


class Peer(NamedTuple):
    preset: str
    table: Callable[[int], np.ndarray]
    d_models: tuple = EVEN
    unit: float = FLOAT32               # the unit roundoff of the library's arithmetic
    positions: np.ndarray = POSITIONS
    changes: Mapping = MappingProxyType({})


PEERS = []


def peer(preset, **fields):
    def add(table):
        PEERS.append(Peer(preset, table, **fields))
        return table

    return add


def transformers(model):
    return pytest.importorskip(f"transformers.models.{model}.modeling_{model}")


def diffusers_embeddings():
    return pytest.importorskip("diffusers.models.embeddings")


def installed_class(package, path, name, **names):
    """Return a class from a package without importing the package, whose requirements may be missing."""
    spec = importlib.util.find_spec(package)
    if spec is None:
        pytest.skip(f"{package} is not installed")
    torch = pytest.importorskip("torch")
    source = Path(spec.submodule_search_locations[0], path).read_text()
    node = next(node for node in ast.parse(source).body if getattr(node, "name", None) == name)
    names = {"math": math, "np": np, "torch": torch, "nn": torch.nn, "Tensor": torch.Tensor, **vars(typing),
             **names}
    exec(compile(ast.Module([node], []), path, "exec"), names)
    return names[name]


def timm_sincos():
    """Import one module of timm without the rest of the package, which would import torchvision."""
    pytest.importorskip("torch")
    spec = importlib.util.find_spec("timm")
    if spec is None:
        pytest.skip("timm is not installed")
    package = types.ModuleType("timm_layers")
    package.__path__ = [str(Path(spec.origin).parent / "layers")]
    sys.modules["timm_layers"] = package
    return importlib.import_module("timm_layers.pos_embed_sincos")


# ---- transformers ------------------------------------------------------------------------------------------


def of_model(preset, model, table, **fields):
    """Add a table that the module of a model computes."""
    peer(preset, **fields)(lambda d: table(transformers(model), d).numpy())


of_model("marian", "marian", lambda m, d: m.MarianSinusoidalPositionalEmbedding(N, d).create_weight(),
         d_models=ANY, unit=FLOAT64)
of_model("roformer", "roformer", lambda m, d: m.RoFormerSinusoidalPositionalEmbedding(N, d).create_weight(),
         d_models=ANY, unit=FLOAT64)
of_model("xlm", "xlm", lambda m, d: m.create_sinusoidal_embeddings(N, d, m.torch.empty(N, d)), d_models=ANY,
         unit=FLOAT64)
of_model("m2m100", "m2m_100", lambda m, d: m.M2M100SinusoidalPositionalEmbedding.get_embedding(N, d, padding_idx=1),
         d_models=FROM_4)
of_model("speech2text", "speech_to_text", d_models=FROM_4,
         table=lambda m, d: m.Speech2TextSinusoidalPositionalEmbedding.get_embedding(N, d, padding_idx=1))
of_model("musicgen", "musicgen", lambda m, d: m.MusicgenSinusoidalPositionalEmbedding.get_embedding(N, d),
         d_models=FROM_4)
of_model("whisper", "whisper", lambda m, d: m.sinusoids(N, d), d_models=EVEN_FROM_4)
of_model("whisper", "whisper", lambda m, d: m.sinusoids(N, d, max_timescale=500),
         d_models=EVEN_FROM_4, changes={"max_timescale": 500})
of_model("ctrl", "ctrl", lambda m, d: m.positional_encoding(N, d, m.torch.float), d_models=ANY)
of_model("gptj", "gptj", lambda m, d: m.create_sinusoidal_positions(N, d))
# frequencies as in relative_positional_encoding
of_model("xlnet", "xlnet", lambda m, d: m.XLNetModel.positional_embedding(
    m.torch.arange(43, -21, -1.0), 1 / m.torch.pow(10000, m.torch.arange(0, d, 2.0) / d))[:, 0],
    positions=POSITIONS[::-1] - 20)
of_model("pegasus-x", "pegasus_x",
         lambda m, d: m.PegasusXSinusoidalPositionalEmbedding(d)(m.torch.zeros(1, N, d))[0],
         d_models=EVEN_FROM_4)
of_model("speecht5", "speecht5", lambda m, d: m.SpeechT5ScaledPositionalEncoding(0.0, d, N).pe[0])
for timescales in ({}, {"min_timescale": 2, "max_timescale": 100}):
    of_model("timesfm", "timesfm", lambda m, d, timescales=timescales: m.TimesFmPositionalEmbedding(
        m.TimesFmConfig(hidden_size=d, **timescales))(N)[0], changes=timescales)


@peer("pi0", positions=TIMES, d_models=EVEN)
def pi0(d_model):
    torch = pytest.importorskip("torch")
    config = SimpleNamespace(dit_config=SimpleNamespace(hidden_size=d_model), min_period=4e-3, max_period=4.0)
    return transformers("pi0").PI0TimestepEmbeddings(config)(torch.from_numpy(TIMES)).numpy()


# ---- other installed libraries -----------------------------------------------------------------------------


def timestep(d_model, positions=TIMESTEPS, **parameters):
    torch = pytest.importorskip("torch")
    return diffusers_embeddings().get_timestep_embedding(torch.from_numpy(positions), d_model, **parameters).numpy()

for parameters in (
    {}, {"flip_sin_to_cos": True, "downscale_freq_shift": 0},
    {"scale": 0.25, "max_period": 500, "downscale_freq_shift": 0.5},
):
    peer("diffusers-timestep", d_models=FROM_4, positions=TIMESTEPS, changes=parameters)(
        functools.partial(timestep, **parameters)
    )


@peer("diffusers")
def diffusers(d_model):
    return diffusers_embeddings().SinusoidalPositionalEmbedding(d_model, N).pe[0].numpy()


@peer("positional-encodings", d_models=ANY)
def positional_encodings(d_model):
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("positional_encodings.torch_encodings").PositionalEncoding1D(d_model)
    return module(torch.zeros(1, N, d_model))[0].numpy()


@peer("x-transformers")
def x_transformers(d_model):
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("x_transformers.x_transformers").ScaledSinusoidalEmbedding(d_model)
    return module(torch.zeros(1, N, d_model)).detach().numpy()


def keras_hub(d_model, **parameters):
    torch = pytest.importorskip("torch")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KERAS_BACKEND", "torch")
        layer = pytest.importorskip("keras_hub").layers.SinePositionEncoding(**parameters)
    return layer(torch.zeros(1, N, d_model))[0].cpu().numpy()


peer("keras-hub", d_models=ANY)(keras_hub)
peer("keras-hub", d_models=ANY, changes={"max_wavelength": 700})(functools.partial(keras_hub, max_wavelength=700))
def mlx(d_model, **parameters):
    mx = pytest.importorskip("mlx.core")
    module = pytest.importorskip("mlx.nn").SinusoidalPositionalEncoding(d_model, **parameters)
    return np.array(module(mx.arange(N)))


for parameters in ({}, {"cos_first": True, "scale": 1.0}, {"min_freq": 0.01, "max_freq": 0.5, "full_turns": True}):
    peer("mlx", changes=parameters)(functools.partial(mlx, **parameters))


def pyg(d_model, **parameters):
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("torch_geometric.nn").PositionalEncoding(d_model, **parameters)
    return module(torch.from_numpy(POSITIONS)).numpy()


peer("pyg", d_models=EVEN_FROM_4)(pyg)
peer("pyg", d_models=EVEN_FROM_4, changes={"base_freq": 0.01, "granularity": 4.0})(
    functools.partial(pyg, base_freq=0.01, granularity=4.0)
)


@peer("fairseq", d_models=FROM_4)
def fairseq(d_model):
    module = installed_class("fairseq", "modules/sinusoidal_positional_embedding.py",
                             "SinusoidalPositionalEmbedding")
    return module.get_embedding(N, d_model, padding_idx=1).numpy()


@peer("espnet")
def espnet(d_model):
    path = "nets/pytorch_backend/transformer/embedding.py"
    hook = installed_class("espnet", path, "_pre_hook")
    return installed_class("espnet", path, "PositionalEncoding", _pre_hook=hook)(d_model, 0.0, N).pe[0].numpy()
@peer("nemo")
def nemo(d_model):
    torch = pytest.importorskip("torch")
    path = "collections/asr/parts/submodules/multi_head_attention.py"
    module = installed_class("nemo", path, "PositionalEncoding", INF_VAL=10000.0)(d_model, 0.0)
    module.extend_pe(N, "cpu", torch.float32)
    return module.pe[0].numpy()


@peer("nemo-fixed")
def nemo_fixed(d_model):
    path = "collections/asr/modules/transformer/transformer_modules.py"
    return installed_class("nemo", path, "FixedPositionalEncoding")(d_model, N).pos_enc.numpy()


def opennmt_py(d_model, kind):
    module = installed_class("onmt", "modules/embeddings.py", "PositionalEncoding")
    return module(d_model, kind, N).pe[:, 0].numpy()


peer("opennmt-py")(functools.partial(opennmt_py, kind="SinusoidalInterleaved"))
peer("opennmt-py-concat", d_models=EVEN_FROM_4)(functools.partial(opennmt_py, kind="SinusoidalConcat"))


@peer("d2l")
def d2l(d_model):
    torch = pytest.importorskip("torch")
    module = installed_class("d2l", "torch.py", "PositionalEncoding", d2l=torch)
    return module(d_model, 0.0, N).P[0].numpy()


# ---- formulas (in float64) from publications, and from libraries whose code is not run ---------------------


def halves(angles, d_model):
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1)
    return np.pad(table, ((0, 0), (0, d_model - table.shape[1])))


def interleaved(angles):
    return np.stack([np.sin(angles), np.cos(angles)], axis=2).reshape(len(angles), -1)


def timing_signal(d_model, smallest=1.0, largest=1e4, start=0):
    count = d_model // 2
    increment = math.log(largest / smallest) / max(count - 1, 1)
    return halves(np.outer(POSITIONS + start, smallest * np.exp(np.arange(count) * -increment)), d_model)


peer("tensor2tensor", d_models=ANY[1:], unit=FLOAT64)(timing_signal)
peer(
    "tensor2tensor", d_models=ANY[1:], unit=FLOAT64,
    changes={"min_timescale": 0.5, "max_timescale": 99, "start_index": 7},
)(functools.partial(timing_signal, smallest=0.5, largest=99.0, start=7))
peer("opennmt-tf", d_models=EVEN_FROM_4, unit=FLOAT64)(functools.partial(timing_signal, start=1))
peer("flax", d_models=FROM_4, unit=FLOAT64)(timing_signal)


@peer("vaswani", d_models=ANY, unit=FLOAT64)
def vaswani(d_model):
    column = np.arange(d_model)
    angles = POSITIONS[:, None] / 10000 ** (2 * (column // 2) / d_model)
    return np.where(column % 2, np.cos(angles), np.sin(angles))


peer("trax", unit=FLOAT64)(vaswani)


@peer("nerf", d_models=(2, 8, 20), unit=FLOAT64, positions=TIMES)
def nerf(d_model):
    return interleaved(np.outer(TIMES, 2.0 ** np.arange(d_model // 2)))


@peer("tiny-cuda-nn", d_models=(2, 8, 24), unit=FLOAT64, positions=TIMES)
def tiny_cuda_nn(d_model):
    return interleaved(np.outer(TIMES, 2.0 ** np.arange(d_model // 2)) * math.pi)


def float_encoder(d_model, shortest, longest, positions):
    wavelengths = shortest * (longest / shortest) ** (np.arange(d_model // 2) / (d_model // 2 - 1))
    return halves(np.outer(positions, 2 * math.pi / wavelengths), d_model)


peer("depthcharge", d_models=EVEN_FROM_4, positions=TIMES)(
    functools.partial(float_encoder, shortest=1e-3, longest=1e4, positions=TIMES))
peer("depthcharge", d_models=EVEN_FROM_4, changes={"min_wavelength": 1.0, "max_wavelength": 1e5})(
    functools.partial(float_encoder, shortest=1.0, longest=1e5, positions=POSITIONS))


@peer("notebook-columns", d_models=ANY, unit=FLOAT64)
def notebook_columns(d_model):
    column = np.arange(d_model)
    angles = POSITIONS[:, None] / 10000 ** (column / d_model)
    return np.where(column % 2, np.cos(angles), np.sin(angles))


@peer("notebook-slip", unit=FLOAT64, d_models=(2, 12, 60))
def notebook_slip(d_model):
    return interleaved(POSITIONS[:, None] / 10000 ** (np.arange(d_model // 2) - 2 / d_model))


@peer("double-exponents", unit=FLOAT64)
def double_exponents(d_model):
    column = np.arange(d_model)
    angles = POSITIONS[:, None] / 10000 ** (2 * column / d_model)
    return np.where(column % 2, np.cos(angles), np.sin(angles))
