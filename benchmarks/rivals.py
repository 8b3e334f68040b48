"""The code with which `performance.py` compares posenc: recipes as people paste them, and the fastest code that we could write.

The rivals keep every buffer between calls, and everything else but the values of the table.  Those of `encode` compute a sine
or a cosine for each value, or add angles: one complex product for each pair of values.
"""

import importlib
import math
from functools import partial

import numpy as np
import torch

from posenc._cli.bench import addition, angle_addition

BLOCK, TORCH_BLOCK = 128, 1024          # rows of temporaries that stay in the cache; torch starts its threads for each call


# ---- tables: recipes return a new table; the other functions return a function that fills an array ----------------------


def numpy_recipe(n, d_model, dtype=np.float32):
    """Return the table of the common NumPy recipe, with angles in float64."""
    position = np.arange(n)[:, None]
    angles = position * np.exp(np.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = np.zeros((n, d_model), dtype)
    pe[:, 0::2] = np.sin(angles)
    pe[:, 1::2] = np.cos(angles)
    return pe


def torch_recipe(n, d_model):
    """Return the table of the PyTorch tutorial, with angles in float32."""
    position = torch.arange(n).unsqueeze(1)
    angles = position * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = torch.zeros(n, d_model)
    pe[:, 0::2] = torch.sin(angles)
    pe[:, 1::2] = torch.cos(angles)
    return pe


def factors(library, n, d_model, dtype=np.float32, first=0):
    """Return positions and frequencies, whose products are the angles."""
    arrays = np.arange(first, first + n, dtype=dtype)[:, None], (10000.0 ** (-np.arange(0, d_model, 2) / d_model)).astype(dtype)
    return arrays if library is np else map(torch.from_numpy, arrays)


def numpy_sin_cos(n, d_model, dtype, first=0):
    position, rates = factors(np, n, d_model, dtype, first)
    angles, values = np.empty((2, min(n, BLOCK), d_model // 2), dtype)

    def fill(pe):
        for i in range(0, n, BLOCK):
            block = pe[i : i + BLOCK]
            np.multiply(position[i : i + BLOCK], rates, out=angles)
            if dtype == np.float32:         # faster than a copy
                np.sin(angles, out=block[:, 0::2])
                np.cos(angles, out=block[:, 1::2])
            else:
                block[:, 0::2] = np.sin(angles, out=values)
                block[:, 1::2] = np.cos(angles, out=values)

    return fill


def phases(n, d_model):
    """Return positions, frequencies and phases for all columns: the cosine of an angle is the sine of the angle + pi/2."""
    position, rates = factors(np, n, d_model)
    return tuple(map(torch.from_numpy, (position, rates.repeat(2), np.tile(np.float32([0, np.pi / 2]), d_model // 2))))


def torch_sin(n, d_model):
    position, rates, phase = phases(n, d_model)

    def fill(pe):
        for i in range(0, n, TORCH_BLOCK):
            block = torch.from_numpy(pe[i : i + TORCH_BLOCK])
            torch.addcmul(phase, position[i : i + TORCH_BLOCK], rates, out=block).sin_()

    return fill


def torch_compile(n, d_model):
    compiled = torch.compile(lambda position, rates, phase, pe: pe.copy_(torch.sin(position * rates + phase)), dynamic=False)
    arrays = phases(n, d_model)
    return lambda pe: compiled(*arrays, torch.from_numpy(pe))


def torch_polar(n, d_model):
    """sin(a) + i cos(a) is the number of length 1 with the angle pi/2 - a."""
    position, rates = factors(torch, n, d_model)
    angles, quarter, length = torch.empty(n, d_model // 2), torch.tensor(math.pi / 2), torch.ones(1, 1).expand(n, d_model // 2)

    def fill(pe):
        torch.addcmul(quarter, position, rates, value=-1, out=angles)
        torch.polar(length, angles, out=torch.from_numpy(pe.view(np.complex64)))

    return fill


def in_threads(make, n, d_model, threads, pool, **options):
    """Fill each part of a table in a thread of its own; NumPy releases the interpreter's lock."""
    fills = [make(n // threads, d_model, first=first, **options) for first in range(0, n, n // threads)]
    if threads == 1:
        return fills[0]
    return lambda pe: list(pool.map(lambda fill, part: fill(part), fills, np.split(pe, threads)))


def tables(n, d_model, threads, pool, only_fast=False):
    """Return {name: function that fills an array}, with this number of threads; only the fastest, or all."""
    torch.set_num_threads(threads)
    torch.compiler.reset()              # compiled code has a fixed number of threads
    fast = {
        "NumPy float32, sin and cos": in_threads(numpy_sin_cos, n, d_model, threads, pool, dtype=np.float32),
        "NumPy, angle addition": in_threads(partial(angle_addition, np), n, d_model, threads, pool),
        "torch, sin and cos": torch_sin(n, d_model),
        "torch.compile, sin and cos": torch_compile(n, d_model),
        "torch, angle addition": angle_addition(torch, n, d_model),
    }
    return fast if only_fast else fast | {
        "NumPy float64, sin and cos": in_threads(numpy_sin_cos, n, d_model, threads, pool, dtype=np.float64),
        "torch.polar, sin and cos": torch_polar(n, d_model),
    }


def additions(shape, threads, pool):
    """Return {name: function that adds a table to a batch}, with this number of threads."""
    torch.set_num_threads(threads)
    add = addition(np, *shape[1:])
    run = map if threads == 1 else pool.map
    return {"NumPy, a table": lambda x: list(run(add, np.split(x, threads))), "torch, a table": addition(torch, *shape[1:])}


# ---- rotations of tensors of shape (batch, heads, n, head_dim), with halves; cosines and sines are computed before ------


def transformers_recipe(x, positions, base):
    """Return a function that calls transformers as its models do; the result is a new tensor."""
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(head_dim=x.shape[-1], rope_parameters={"rope_type": "default", "rope_theta": base})
    cos, sin = llama.LlamaRotaryEmbedding(config)(x, positions)
    return lambda: llama.apply_rotary_pos_emb(x, x[:, :0], cos, sin)     # k has no heads


def torch_in_place(x, cos, sin):
    """Rotate blocks in place; their temporaries stay in the cache."""
    half, heads = x.shape[-1] // 2, [(x[i, j], cos[i], sin[i]) for i in range(len(x)) for j in range(x.shape[1])]
    if x.shape[2] == 1:                 # decoding: one block
        heads = [(x, cos[:, None], sin[:, None])]
    parts = [(y[..., i : i + TORCH_BLOCK, :half], y[..., i : i + TORCH_BLOCK, half:], c[..., i : i + TORCH_BLOCK, :],
              s[..., i : i + TORCH_BLOCK, :]) for y, c, s in heads for i in range(0, x.shape[2], TORCH_BLOCK)]
    product = torch.empty_like(parts[0][0])

    def rotate():
        for a, b, c, s in parts:
            torch.mul(a, s, out=product)
            a.mul_(c).addcmul_(b, s, value=-1)
            b.mul_(c).add_(product)

    return rotate


def torch_into_second(x, cos, sin):
    """Rotate into a second tensor, with three operations: faster than in place for a single position."""
    out, half = torch.empty_like(x), x.shape[-1] // 2
    cos, sin = torch.cat([cos, cos], -1)[:, None], sin[:, None]

    def rotate():
        torch.mul(x, cos, out=out)
        out[..., :half].addcmul_(x[..., half:], sin, value=-1)
        out[..., half:].addcmul_(x[..., :half], sin)

    return rotate


def torch_compiled(x, cos, sin):
    """Rotate in place; the halves have storages of their own, because the compiler copies tensors that share one."""
    if not x.is_contiguous():
        x, cos, sin = x.transpose(1, 2), cos[:, :, None], sin[:, :, None]
    else:
        cos, sin = cos[:, None], sin[:, None]
    bits, half = x.view(torch.int16 if x.itemsize == 2 else torch.int32).numpy(), x.shape[-1] // 2
    halves = [torch.from_numpy(part).view(x.dtype) for part in (bits[..., :half], bits[..., half:])]

    def rotate(a, b, cos, sin):
        left, right = a * cos - b * sin, b * cos + a * sin
        a.copy_(left)
        b.copy_(right)

    torch.compiler.reset()
    return partial(torch.compile(rotate, dynamic=False), *halves, cos.contiguous(), sin.contiguous())


def onnxruntime(x, cos, sin, threads):
    """Run the operator RotaryEmbedding in place, with inputs and outputs bound to arrays; it has no bfloat16 on the CPU."""
    helper, runtime = importlib.import_module("onnx.helper"), importlib.import_module("onnxruntime")
    info = partial(helper.make_tensor_value_info, elem_type=1, shape=None)
    heads, out = {}, x.numpy()
    if not x.is_contiguous():           # shape (batch, n, heads * head_dim)
        heads, out = {"num_heads": x.shape[1]}, out.swapaxes(1, 2).reshape(x.shape[0], x.shape[2], -1)
    node = helper.make_node("RotaryEmbedding", ["x", "cos", "sin"], ["y"], **heads)
    graph = helper.make_graph([node], "rotation", list(map(info, ("x", "cos", "sin"))), [info("y")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)], ir_version=10)
    options = runtime.SessionOptions()
    options.intra_op_num_threads = threads
    session = runtime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for name, value in {"x": out, "cos": cos.numpy(), "sin": sin.numpy()}.items():
        binding.bind_ortvalue_input(name, runtime.OrtValue.ortvalue_from_numpy(value))
    binding.bind_ortvalue_output("y", runtime.OrtValue.ortvalue_from_numpy(out))
    return partial(session.run_with_iobinding, binding)


def rotations(x, positions, rotary, threads):
    """Return {name: function} for a tensor, and positions of shape (batch, n)."""
    torch.set_num_threads(threads)
    exact = rotary.tables(positions.numpy(), dtype="float64")
    factors = [torch.from_numpy(array[..., : x.shape[-1] // 2]).float() for array in exact]     # (batch, n, head_dim / 2)
    rounded = [factor.to(x.dtype) for factor in factors]
    cases = {"transformers": transformers_recipe(x, positions, rotary.base),
             "torch in place": torch_in_place(x, *rounded), "torch.compile": torch_compiled(x, *factors)}
    if x.shape[2] == 1:
        cases["torch, second tensor"] = torch_into_second(x, *rounded)
    if x.dtype == torch.float32:
        cases["onnxruntime"] = onnxruntime(x, *(factor.contiguous() for factor in factors), threads)
    return cases
