"""The cases that `performance.py` measures: calls of posenc, and other code.

A case is a function of the number of threads, a pool of as many threads, and keywords.  It returns a function
that restores the input of the calls, and {name: call}.  The first word of a name is its kind:

posenc    the call of posenc.
pasted    code as people paste it.
exact     code in float64, whose result is then cast, or code that adds rows of a table that was computed so
          before: most of its values are correctly rounded.
fast      the fastest code that we could write, usually in float32.  It keeps every buffer between calls, and
          everything else but the values of the result.
roof      the time to write as much memory.

A call returns its result, so that `performance.py` can measure the error.
"""

import importlib
import itertools
import math
from functools import partial

import ml_dtypes
import numpy as np
import torch

import posenc
from posenc._cli.bench import memset

# rows of temporaries of 512 columns that stay in the cache; torch starts its threads for each call
BLOCK, TORCH_BLOCK = 128, 1024


def frequencies(d_model):
    return 10000.0 ** (-np.arange(0, d_model, 2) / d_model)


def nothing():
    pass


def once(threads, calls):
    """Return calls that always use one thread, if `threads` is 1, and else an empty dict."""
    return calls if threads == 1 else {}


# ---- tables ------------------------------------------------------------------------------------------------


def numpy_recipe(n, d_model, dtype=np.float32):
    """Return the table of the common NumPy recipe, with angles in float64."""
    position = np.arange(n)[:, None]
    angles = position * np.exp(np.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = np.zeros((n, d_model), dtype)
    pe[:, 0::2] = np.sin(angles)
    pe[:, 1::2] = np.cos(angles)
    return pe


def torch_recipe(positions, d_model):
    """Return the table of the PyTorch tutorial, with angles in float32."""
    position = positions.unsqueeze(1)
    angles = position * torch.exp(torch.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = torch.zeros(len(positions), d_model)
    pe[:, 0::2] = torch.sin(angles)
    pe[:, 1::2] = torch.cos(angles)
    return pe


def numpy_sin_cos(d_model, dtype, positions):
    """Return a function that fills a table with sines and cosines, computed in `dtype`."""
    positions, rates = positions.astype(dtype)[:, None], frequencies(d_model).astype(dtype)
    rows = min(BLOCK * 512 // d_model, TORCH_BLOCK, len(positions))
    angles, values = np.empty((2, rows, d_model // 2), dtype)

    def fill(pe):
        for i in range(0, len(pe), rows):
            block = pe[i : i + rows]
            np.multiply(positions[i : i + rows], rates, out=angles[: len(block)])
            for first, function in enumerate((np.sin, np.cos)):
                if dtype == np.float32:     # faster than a copy
                    function(angles[: len(block)], out=block[:, first::2])
                else:
                    block[:, first::2] = function(angles[: len(block)], out=values[: len(block)])

    return fill


def torch_sin(positions, d_model, dtype):
    """The cosine of an angle is the sine of the angle + pi/2, so one operation computes all columns."""
    positions = positions.to(dtype)[:, None]
    rates = torch.from_numpy(frequencies(d_model).repeat(2)).to(dtype)
    phases = torch.tensor([0, math.pi / 2], dtype=dtype).repeat(d_model // 2)
    angles = torch.empty(TORCH_BLOCK, d_model, dtype=dtype)

    def fill(pe):
        for i in range(0, len(positions), TORCH_BLOCK):
            block = torch.from_numpy(pe[i : i + TORCH_BLOCK])
            values = block if dtype == torch.float32 else angles[: len(block)]
            torch.addcmul(phases, positions[i : i + TORCH_BLOCK], rates, out=values).sin_()
            if values is not block:
                block.copy_(values)

    def compiled():
        function = torch.compile(lambda p, rates, phases, pe: pe.copy_(torch.sin(p * rates + phases)),
                                 dynamic=False)
        return lambda pe: function(positions, rates, phases, torch.from_numpy(pe))

    return fill, compiled


def angle_addition(library, n, d_model, first=0, dtype=np.complex64):
    """Return a function that fills a float32 table of n rows by angle addition, with NumPy or torch.

    sin(a) + i cos(a) is i exp(-ia).  A table is therefore one complex product of exponentials for the first
    row of each block and exponentials for the rows of a block.  All exponentials are computed here, once.
    The error is below 2e-7; products of float64 numbers, which are then cast, are as good as their sines.
    """
    rows = max(rows for rows in range(1, BLOCK + 1) if n % rows == 0)
    positions = np.arange(first, first + n, rows), np.arange(rows)
    anchors, offsets = (np.exp(-1j * p[:, None] * frequencies(d_model)) for p in positions)
    anchors, offsets = (library.asarray(factor.astype(dtype)) for factor in (1j * anchors[:, None], offsets))
    products = library.asarray(np.empty((512 // rows, rows, d_model // 2), dtype))

    def fill(out):
        if dtype == np.complex64:
            pairs = out.view(dtype).reshape(-1, rows, d_model // 2)
            library.multiply(anchors, offsets, out=library.asarray(pairs))
            return
        values = library.asarray(out.reshape(-1, rows, d_model // 2, 2))
        for i in range(0, len(anchors), len(products)):
            part = products[: len(anchors[i : i + len(products)])]
            library.multiply(anchors[i : i + len(products)], offsets, out=part)
            values[i : i + len(products)] = (
                torch.view_as_real(part) if library is torch
                else part.view(np.float64).reshape(*part.shape, 2))

    return fill


def in_parts(make, n, threads, pool):
    """Fill each part of a table in a thread of its own; NumPy releases the interpreter's lock."""
    edges = [n * i // threads for i in range(threads + 1)]
    fills = [make(first=a, stop=b) for a, b in itertools.pairwise(edges)]
    return lambda pe: list(pool.map(lambda fill, a, b: fill(pe[a:b]), fills, edges[:-1], edges[1:]))


def table(threads, pool, *, n, d_model, new):
    out = np.ones((n, d_model), np.float32)
    filled = {
        "exact, NumPy float64": in_parts(
            lambda first, stop: numpy_sin_cos(d_model, np.float64, np.arange(first, stop)), n, threads, pool),
        "exact, torch float64": torch_sin(torch.arange(n), d_model, torch.float64)[0],
        "exact, NumPy float64 angle addition": in_parts(
            lambda first, stop: angle_addition(np, stop - first, d_model, first, np.complex128), n, threads,
            pool),
        "exact, torch float64 angle addition": angle_addition(torch, n, d_model, dtype=np.complex128),
        "fast, NumPy sin and cos": in_parts(
            lambda first, stop: numpy_sin_cos(d_model, np.float32, np.arange(first, stop)), n, threads, pool),
        "fast, NumPy angle addition": in_parts(
            lambda first, stop: angle_addition(np, stop - first, d_model, first), n, threads, pool),
        "fast, torch sin": torch_sin(torch.arange(n), d_model, torch.float32)[0],
        "fast, torch.compile sin": torch_sin(torch.arange(n), d_model, torch.float32)[1](),
        "fast, torch angle addition": angle_addition(torch, n, d_model),
    }
    output = partial(np.empty_like, out) if new else lambda: out

    def filling(fill):
        pe = output()
        fill(pe)
        return pe

    return nothing, {
        "posenc": partial(posenc.encode, n, d_model, out=None if new else out),
        "pasted, torch": partial(torch_recipe, torch.arange(n), d_model),
        **once(threads if n < 10_000 else None, {"exact, NumPy recipe": partial(numpy_recipe, n, d_model)}),
        **{name: partial(filling, fill) for name, fill in filled.items()},
        "roof, memset": lambda: memset(out, new, threads, pool),
    }


# ---- scattered positions -----------------------------------------------------------------------------------


def timesteps(threads, pool, *, n, d_model):
    """Encode timesteps of diffusion models below 1,000, as Stable Diffusion does: cosines, then sines."""
    t = np.random.default_rng(0).integers(0, 1000, n)
    steps, rates = torch.from_numpy(t), torch.from_numpy(frequencies(d_model))
    options = {"flip_sin_to_cos": True, "downscale_freq_shift": 0}
    encoding = posenc.preset("diffusers-timestep", d_model, **options)
    rows = encoding.encode(1000)
    diffusers = importlib.import_module("diffusers.models.embeddings")

    def in_torch(dtype):
        angles = steps[:, None].to(dtype) * rates.to(dtype)
        return torch.cat([angles.cos(), angles.sin()], -1).float()

    def in_numpy():
        angles = t[:, None] * frequencies(d_model)
        return np.concatenate([np.cos(angles), np.sin(angles)], -1, dtype=np.float32, casting="same_kind")

    tensor = torch.from_numpy(rows)

    def table_in_call():
        length = int(steps.max()) + 1
        angles = (torch.arange(0, length, 32)[:, None] * rates, torch.arange(32)[:, None] * rates)
        anchors, offsets = (torch.polar(torch.ones_like(angle), angle) for angle in angles)
        products = (anchors[:, None] * offsets).reshape(-1, d_model // 2)
        return torch.embedding(torch.cat([products.real, products.imag], -1).float(), steps)

    return nothing, {
        "posenc": partial(encoding.encode, t),
        "exact, torch.embedding from a float64 table": table_in_call,
        "pasted, diffusers": partial(diffusers.get_timestep_embedding, steps, d_model, **options),
        "exact, torch float64": partial(in_torch, torch.float64),
        "fast, torch float32": partial(in_torch, torch.float32),
        **once(threads, {"exact, NumPy float64": in_numpy,
                         "fast, np.take from a table": partial(np.take, rows, t, axis=0)}),
        "fast, torch.embedding from a table": partial(torch.embedding, tensor, steps),
    }


def scattered(threads, pool, *, n, d_model, limit):
    """Encode integers at random below `limit`, into a buffer."""
    p, out = np.random.default_rng(0).integers(0, limit, n), np.ones((n, d_model), np.float32)
    steps, rows = torch.from_numpy(p), posenc.encode(limit, d_model)

    def take(first, stop):
        return lambda pe: np.take(rows, p[first:stop], axis=0, out=pe, mode="clip")

    def sin_cos(dtype):
        return lambda first, stop: numpy_sin_cos(d_model, dtype, p[first:stop])

    digits = np.arange(512)[:, None] * frequencies(d_model)
    lower, upper = np.exp(-1j * digits), 1j * np.exp(-512j * digits[: limit // 512])

    def products(first, stop):
        a, b = np.empty((2, BLOCK // 2, d_model // 2), complex)

        def fill(pe):
            for i in range(0, len(pe), len(a)):
                part = p[first + i : min(first + i + len(a), stop)]
                np.take(lower, part % 512, axis=0, out=a[: len(part)], mode="clip")
                np.take(upper, part // 512, axis=0, out=b[: len(part)], mode="clip")
                np.multiply(a, b, out=a)
                pe[i : i + len(part)] = a[: len(part)].view(float)
        return fill

    def filling(fill):
        fill(out)
        return out

    filled = {
        "exact, NumPy float64": in_parts(sin_cos(np.float64), n, threads, pool),
        "exact, torch float64": torch_sin(steps, d_model, torch.float64)[0],
        "exact, NumPy float64 digits": in_parts(products, n, threads, pool),
        "fast, NumPy sin and cos": in_parts(sin_cos(np.float32), n, threads, pool),
        "fast, torch sin": torch_sin(steps, d_model, torch.float32)[0],
        "fast, np.take from a table": in_parts(take, n, threads, pool),
    }
    return nothing, {
        "posenc": partial(posenc.Encoding(d_model).encode, p, out=out),
        "pasted, torch": partial(torch_recipe, steps, d_model),
        **{name: partial(filling, fill) for name, fill in filled.items()},
    }


def timestamps(threads, pool, *, n):
    """Encode times in nanoseconds by their hour, day, week and year: 8 columns."""
    t = np.random.default_rng(0).integers(1_700_000_000 * 10**9, 1_760_000_000 * 10**9, n)
    periods = [seconds * 10**9 for seconds in (3600, 86_400, 7 * 86_400, 31_556_952)]
    encoding, times = posenc.Encoding(periods=["1h", "1D", "7D", "31556952s"]), t.view("datetime64[ns]")

    def pasted():
        return np.stack([f(2 * np.pi * t / period) for period in periods for f in (np.sin, np.cos)], axis=-1)

    def blocks(dtype, times, out):
        for i in range(0, len(times), 16_384):
            part, rows = times[i : i + 16_384], out[i : i + 16_384]
            for k, period in enumerate(periods):
                angles = (part % period).astype(dtype) * dtype(2 * np.pi / period)
                np.sin(angles, out=rows[:, 2 * k])
                np.cos(angles, out=rows[:, 2 * k + 1])

    def in_blocks(dtype):
        out = np.empty((n, 8), np.float32) if dtype == np.float32 else np.empty((n, 8))
        list(pool.map(partial(blocks, dtype), np.array_split(t, threads), np.array_split(out, threads)))
        return out.astype(np.float32, copy=False)

    phases, angles = torch.tensor([0, math.pi / 2] * 4, dtype=torch.float64), torch.empty(65_536, 8, dtype=torch.float64)

    def in_torch():
        out, tensor = torch.empty(n, 8), torch.from_numpy(t)
        for i in range(0, n, len(angles)):
            part = tensor[i : i + len(angles)]
            for k, period in enumerate(periods):
                quotient = (part.double() * (1 / period)).floor_().long()
                angles[: len(part), 2 * k : 2 * k + 2] = (part - quotient * period).double().mul_(
                    2 * math.pi / period)[:, None]
            out[i : i + len(part)] = (angles[: len(part)] + phases).sin_()
        return out

    return nothing, {
        "posenc": partial(encoding.encode, times),
        **once(threads, {"pasted, NumPy": pasted}),
        "exact, NumPy float64": partial(in_blocks, np.float64),
        "exact, torch float64": in_torch,
        "fast, NumPy float32": partial(in_blocks, np.float32),
    }


# ---- batches -----------------------------------------------------------------------------------------------


def padded(threads, pool, *, shape):
    """Add encodings to a batch that is padded on the right, with the positions of fairseq, M2M100 and others.

    All rivals add rows of a table that was computed before.
    """
    batch, n, d_model = shape
    lengths = np.random.default_rng(0).integers(n // 2, n + 1, batch)
    mask, x = np.arange(n) < lengths[:, None], np.zeros(shape, np.float32)
    encoding = posenc.preset("fairseq", d_model)
    rows, tensor, masks = encoding.encode(n + 2), torch.from_numpy(x), torch.from_numpy(mask)
    rows_of_torch = torch.from_numpy(rows)

    def ours(**options):
        return encoding.add_to(x, posenc.positions_from_mask(mask, padding_idx=1), **options)

    def pasted():
        positions = (torch.cumsum(masks, 1) * masks).long() + 1
        return tensor + rows_of_torch.index_select(0, positions.view(-1)).view(batch, n, -1)

    def take():
        x.__iadd__(np.take(rows, np.where(mask, np.cumsum(mask, 1) + 1, 1), axis=0))
        return x

    def add(part, ends):
        for row, end in zip(part, ends, strict=True):
            row[:end] += rows[2 : 2 + end]

    def slices():
        list(pool.map(add, np.array_split(x, threads), np.array_split(lengths, threads)))
        return x

    return partial(x.fill, 0), {
        "posenc": ours, "pasted, fairseq": pasted, "exact, row[:n] += table[:n]": slices,
        **once(threads, {"exact, x += np.take(table, positions)": take}),
    }


def addition(library, n, d_model):
    """Return a function that adds a table of n rows to a batch, in blocks that keep a part of it cached."""
    table = posenc.encode(n, d_model).reshape(-1, math.gcd(n, BLOCK) * d_model)
    table = table if library is np else library.from_numpy(table)

    def add(x):
        x = (x if library is np else library.from_numpy(x)).reshape(len(x), *table.shape)
        for i in range(len(table)):
            library.add(x[:, i], table[i], out=x[:, i])

    return add


def adding(threads, pool, *, shape):
    """Add encodings to a batch; all rivals add a table that was computed before."""
    x = np.zeros(shape, np.float32)
    encoding, rows, tensor = posenc.Encoding(shape[-1]), posenc.encode(*shape[1:]), torch.from_numpy(x)
    rows_of_torch = torch.from_numpy(rows)

    def calling(function, *args):
        function(*args)
        return x

    blocks = addition(np, *shape[1:])
    return partial(x.fill, 0), {
        "posenc": partial(encoding.add_to, x),
        "pasted, tensor + table": lambda: tensor + rows_of_torch,
        **once(threads, {"exact, x += table": partial(calling, x.__iadd__, rows)}),
        "exact, tensor += table": partial(calling, tensor.add_, rows_of_torch),
        "exact, NumPy in blocks": lambda: calling(lambda: list(pool.map(blocks, np.array_split(x, threads)))),
        "exact, torch in blocks": partial(calling, addition(torch, *shape[1:]), x),
    }


# ---- rotations of (batch, heads, n, head_dim), with halves, by cosines and sines computed before ------------


def transformers_recipe(x, positions, base):
    """Return a function that calls transformers as its models do; the result is a new tensor."""
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(head_dim=x.shape[-1],
                               rope_parameters={"rope_type": "default", "rope_theta": base})
    cos, sin = llama.LlamaRotaryEmbedding(config)(x, positions)
    return lambda: llama.apply_rotary_pos_emb(x, x[:, :0], cos, sin)[0]     # k has no heads


def parts_of(x, cos, sin):
    """Return the halves of blocks of each head, with their cosines and sines, which stay in the cache."""
    half, heads = x.shape[-1] // 2, [(x[i, j], cos[i], sin[i]) for i in range(len(x))
                                     for j in range(x.shape[1])]
    if x.shape[2] == 1:                 # decoding: one block
        heads = [(x, cos[:, None], sin[:, None])]
    return [(y[..., i : i + TORCH_BLOCK, :half], y[..., i : i + TORCH_BLOCK, half:],
             c[..., i : i + TORCH_BLOCK, :],
             s[..., i : i + TORCH_BLOCK, :]) for i in range(0, x.shape[2], TORCH_BLOCK) for y, c, s in heads]


def torch_float64(x, cos, sin):
    """Rotate blocks of float64 numbers, and round each result."""
    parts = parts_of(x, cos, sin)
    first, second, product = (torch.empty(parts[0][0].shape, dtype=torch.float64) for _ in range(3))

    def rotate():
        for a, b, c, s in parts:
            first.copy_(a)
            second.copy_(b)
            torch.mul(first, s, out=product)
            a.copy_(first.mul_(c).addcmul_(second, s, value=-1))
            b.copy_(second.mul_(c).add_(product))
        return x

    return rotate


def torch_in_place(x, cos, sin):
    """Rotate blocks in place; their temporaries stay in the cache."""
    parts = parts_of(x, cos, sin)
    product = torch.empty_like(parts[0][0])

    def rotate():
        for a, b, c, s in parts:
            torch.mul(a, s, out=product)
            a.mul_(c).addcmul_(b, s, value=-1)
            b.mul_(c).add_(product)
        return x

    return rotate


def torch_compiled(x, cos, sin):
    """Rotate in place; the halves have storages of their own: the compiler copies tensors that share one."""
    y, axis = (x, 1) if x.is_contiguous() else (x.transpose(1, 2), 2)
    cos, sin = cos.unsqueeze(axis), sin.unsqueeze(axis)
    bits, half = y.view(torch.int16 if x.itemsize == 2 else torch.int32).numpy(), x.shape[-1] // 2
    halves = [torch.from_numpy(part).view(x.dtype) for part in (bits[..., :half], bits[..., half:])]

    def rotate(a, b, cos, sin):
        left, right = a * cos - b * sin, b * cos + a * sin
        a.copy_(left)
        b.copy_(right)

    compiled = partial(torch.compile(rotate, dynamic=False), *halves, cos.contiguous(), sin.contiguous())
    return lambda: (compiled(), x)[1]


def onnxruntime(x, cos, sin, threads):
    """Run the operator RotaryEmbedding in place, with arrays as inputs and outputs; it has no bfloat16."""
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
    return lambda: (session.run_with_iobinding(binding), x)[1]


def rotation(threads, pool, *, shape, dtype, by_position=False, base=500_000.0):
    """Rotate positions of heads, stored by head or by position, or the last positions of a batch."""
    generator = torch.Generator().manual_seed(0)
    start = torch.randn(shape, generator=generator).to(dtype)
    start = start.transpose(1, 2).contiguous().transpose(1, 2) if by_position else start
    x, (batch, _, n, head_dim) = start.clone(), shape
    positions = torch.arange(n)[None] if n > 1 else torch.randint(0, 100_000, (batch, 1), generator=generator)
    rotary = posenc.Rotary(head_dim, base=base)
    array = x.numpy() if dtype == torch.float32 else x.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    # (batch, n, head_dim / 2)
    factors = [torch.from_numpy(f) for f in rotary.tables(positions.numpy(), dtype="float64")]
    single = [factor.float().contiguous() for factor in factors]
    rounded = [factor.to(dtype) for factor in factors]
    cases = {
        "posenc": partial(rotary.at(positions.numpy()[:, None]).rotate, array),
        "pasted, transformers": transformers_recipe(x, positions, base),
        "exact, torch float64": torch_float64(x, *factors),
        "exact, torch.compile float64": torch_compiled(x, *(factor.contiguous() for factor in factors)),
        "fast, torch in place": torch_in_place(x, *rounded),
        "fast, torch.compile": torch_compiled(x, *single),
    }
    if dtype == torch.float32:
        cases["fast, onnxruntime"] = onnxruntime(x, *single, threads)
    return lambda: x.copy_(start), cases


CASES = {
    "512 x 512, reused": partial(table, n=512, d_model=512, new=False),
    "5,000 x 512, new": partial(table, n=5000, d_model=512, new=True),
    "5,000 x 512, reused": partial(table, n=5000, d_model=512, new=False),
    "65,536 x 512, reused": partial(table, n=65_536, d_model=512, new=False),
    "timesteps, 4,096 x 320": partial(timesteps, n=4096, d_model=320),
    "scattered, 8,192 x 512": partial(scattered, n=8192, d_model=512, limit=131_072),
    "timestamps, 400,000 x 8": partial(timestamps, n=400_000),
    "padded batch, 64 x 512 x 512": partial(padded, shape=(64, 512, 512)),
    "add_to, 32 x 2,048 x 512": partial(adding, shape=(32, 2048, 512)),
    "add_to, 64 x 197 x 768": partial(adding, shape=(64, 197, 768)),
    "rotation, float32, 32 x 4,096 x 128": partial(rotation, shape=(1, 32, 4096, 128), dtype=torch.float32),
    "rotation, float32, 4,096 x 32 x 128": partial(rotation, shape=(1, 32, 4096, 128), dtype=torch.float32,
                                                   by_position=True),
    "rotation, bfloat16, 32 x 4,096 x 128": partial(rotation, shape=(1, 32, 4096, 128), dtype=torch.bfloat16),
    "rotation, float32, batch of 64, 1 position": partial(rotation, shape=(64, 32, 1, 128),
                                                          dtype=torch.float32),
}
