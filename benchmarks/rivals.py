"""The cases that `performance.py` measures: calls of posenc, and other code.

A case is a function of the number of threads, a pool of as many threads, and keywords.  It returns a function
that restores the input of the calls, and {name: call}.  The words before the comma of a name are its kinds:

posenc    the call of posenc.
pasted    code as people paste it.
exact     code in float64 (for 16 bits, in float32), whose result is then cast, or code that adds rows of a
          table that was computed so before: most of its values are correctly rounded.
fast      other fast code, usually in float32.
roof      the time to write as much memory.

All calls of a case write into the same array, or all return new ones.  Code that is exact or fast keeps
everything else between calls but the values of the result.  Its factors begin on a cache line, and the arrays
that both write begin where NumPy puts them.  Only the fastest code that we know is here: sines and cosines of
all angles of a table, angle addition in tiles of columns, additions in blocks, times by `torch.compile`, and
rotations by onnxruntime took longer, and so did torch or NumPy where they are not here.

A call returns its result, so that `performance.py` can measure the error.
"""

import importlib
import math
from functools import partial

import loops
import ml_dtypes
import numpy as np
import torch

import posenc
from posenc import torch as posenc_torch
from posenc._cli.bench import memset

DAY = 86_400                            # seconds
BLOCK = 512                             # rows
TIMES = np.random.default_rng(0).integers(1_700_000_000 * 10**9, 1_760_000_000 * 10**9, 400_000)
HOURS = (np.datetime64("2000-01-01", "h") + np.arange(8760)).astype("datetime64[ns]").view(np.int64)


def frequencies(d_model):
    return 10000.0 ** (-np.arange(0, d_model, 2) / d_model)


def compiled(function, *tensors):
    """Return a compiled function that is called with these tensors, and others if it has more arguments.

    `fullgraph` raises an error where a part would not be compiled.
    """
    return partial(torch.compile(function, dynamic=False, fullgraph=True), *tensors)


def copied(values, offset=16, unit=64):
    """Return a copy that begins 16 bytes after a cache line, as most large arrays of NumPy do; or elsewhere."""
    buffer = np.empty(values.nbytes + unit, np.uint8)
    start = (offset - buffer.ctypes.data) % unit
    copy = buffer[start : start + values.nbytes].view(values.dtype).reshape(values.shape)
    copy[...] = values
    return copy


def coefficients(degree):
    """Return the coefficients, highest first, of a polynomial P: q P(q**2) is sin(2 pi q) if |q| <= 1/4."""
    polynomial, chebyshev = np.polynomial.Polynomial, np.polynomial.Chebyshev
    fit = chebyshev.interpolate(lambda u: 2 * np.pi * np.sinc(2 * np.sqrt(u)), degree, [0, 1 / 16])
    return tuple(fit.convert(kind=polynomial).coef[::-1].tolist())


COEFFICIENTS = {np.float32: coefficients(4), np.float64: coefficients(6)}


def polynomial(rates, dtype, positions, turns=np.float64, middle=0, phases=0, **columns):
    """Return a function that computes sines and cosines in a dtype, of `(positions - middle) * rates + phases` turns.

    If one position has too few pairs for whole vectors, several are computed together.
    """
    pairs, lanes = len(rates), 64 // np.dtype(dtype).itemsize
    together = math.gcd(len(positions), lanes // math.gcd(pairs, lanes))
    fill = loops.polynomial(pairs, together, turns, dtype, COEFFICIENTS[dtype], **columns)
    rates, phases = (np.tile(each, together).astype(turns) for each in (rates, phases + 0 * rates))

    def filled(out):
        fill(positions, middle, rates, phases, out.reshape(-1, 2 * pairs * together))
        return out

    return filled


def nothing():
    pass


def once(threads, calls):
    """Return calls that always use one thread, if `threads` is 1, and else an empty dict."""
    return calls if threads == 1 else {}


# ---- tables ------------------------------------------------------------------------------------------------


def numpy_recipe(n, d_model, dtype):
    """Return the table of the common NumPy recipe, with angles in float64."""
    position = np.arange(n)[:, None]
    angles = position * np.exp(np.arange(0, d_model, 2) * (-math.log(10000.0) / d_model))
    pe = np.zeros((n, d_model), dtype)
    pe[:, 0::2] = np.sin(angles)
    pe[:, 1::2] = np.cos(angles)
    return pe


def torch_recipe(positions, d_model, pe=None):
    """Return the table of the PyTorch tutorial, in `pe` if it is given; angles have its dtype."""
    pe = torch.zeros(len(positions), d_model) if pe is None else pe
    position, even = positions.unsqueeze(1), torch.arange(0, d_model, 2, dtype=pe.dtype)
    angles = position * torch.exp(even * (-math.log(10000.0) / d_model))
    pe[:, 0::2] = torch.sin(angles)
    pe[:, 1::2] = torch.cos(angles)
    return pe


def numpy_recipe_into(pe):
    """Fill a table by the recipe, with angles in its dtype."""
    n, d_model = pe.shape
    frequency = np.exp(np.arange(0, d_model, 2, dtype=pe.dtype) * (-math.log(10000.0) / d_model))
    angles = np.einsum("i,j->ij", np.arange(n, dtype=pe.dtype), frequency)
    pe[:, 0::2] = np.sin(angles)
    pe[:, 1::2] = np.cos(angles)
    return pe


def rows_of_blocks(n, limit):
    return max(rows for rows in range(1, limit + 1) if n % rows == 0)


def converted(arrays, dtype):
    """Return contiguous arrays that begin on a cache line, as tensors do."""
    return [torch.tensor(array, dtype=dtype).numpy() for array in arrays]


def factors(anchors, offsets, rates):
    """Return P, Q, C and S in float64, and in float32.

    At the position anchors[i] + offsets[j], which may depend on the column, sines are
    P[i] * C[j] + Q[i] * S[j], and cosines Q[i] * C[j] - P[i] * S[j].
    """
    angles, turns = anchors * rates, offsets * rates
    arrays = np.sin(angles), np.cos(angles), np.cos(turns), np.sin(turns)
    return converted(arrays, torch.float64), converted(arrays, torch.float32)


def in_blocks(n, rates, together, starts=0, parallel=True):
    """Return functions that fill a table of n rows by angle addition in float64, and in float32.

    `together` rows are filled as a wide one.
    """
    pairs = len(rates)
    size = 2**16 if n * pairs >= 2**20 else 2**14          # pairs; the other size takes longer
    block = rows_of_blocks(n // together, size // (together * pairs))
    offsets = np.arange(block * together).reshape(block, together).repeat(pairs, axis=1)
    anchors = np.arange(0, n, block * together)[:, None] + np.tile(starts + 0 * rates, together)
    fill, _ = loops.addition(together * pairs, parallel=parallel)

    def filled(factors, out):
        fill(*factors, out.reshape(-1, block, 2 * together * pairs))
        return out

    return [partial(filled, each) for each in factors(anchors, offsets, np.tile(rates, together))]


def angle_addition(n, d_model):
    """Return a function that fills a float32 table of n rows by angle addition in float32.

    sin(a) + i cos(a) is i exp(-ia).  A table is therefore one complex product of exponentials for the first
    row of each block and exponentials for the rows of a block.
    """
    rows = rows_of_blocks(n, BLOCK)
    anchors, offsets = (torch.from_numpy(np.exp(-1j * p[:, None] * frequencies(d_model)))
                        for p in (np.arange(0, n, rows), np.arange(rows)))
    anchors, offsets = (1j * anchors[:, None]).to(torch.complex64), offsets.to(torch.complex64)

    def fill(out):
        pairs = torch.from_numpy(out.view(np.complex64)).view(-1, rows, d_model // 2)
        torch.mul(anchors, offsets, out=pairs)

    return fill


def table(threads, pool, *, n, d_model, new=False, dtype=np.float32):
    out, copy = copied(np.ones((n, d_model), dtype)), torch.tensor(posenc.encode(n, d_model, dtype=dtype))
    output, positions = partial(np.empty_like, out) if new else lambda: out, torch.arange(n, dtype=copy.dtype)
    rows, together = copy.numpy(), max(1, 512 // d_model)
    double, single = in_blocks(n, frequencies(d_model), together, parallel=threads > 1)

    def filling(fill):
        pe = output()
        fill(pe)
        return pe

    calls = {
        "posenc": partial(posenc.encode, n, d_model, dtype=dtype, out=None if new else out),
        "pasted, torch": partial(torch_recipe, positions, d_model, None if new else torch.from_numpy(out)),
        **once(threads, {f"pasted, NumPy {out.dtype}": partial(filling, numpy_recipe_into)}),
        "exact, numba float64": partial(filling, double),
        "fast, a copy by NumPy": rows.copy if new else lambda: (np.copyto(out, rows), out)[1],
        "fast, a copy by torch": partial(filling, lambda out: torch.from_numpy(out).copy_(copy)),
        "roof, memset": lambda: memset(out, new, threads, pool),
    }
    if dtype == np.float32:
        calls["fast, numba float32"] = partial(filling, single)
        calls["fast, torch angle addition"] = partial(filling, angle_addition(n, d_model))
    return partial(out.fill, 0), calls


# ---- positions in arrays -----------------------------------------------------------------------------------


def stable_diffusion(timesteps, d_model):
    """Encode timesteps by the code of the latent diffusion models, DiT and others."""
    rates = torch.exp(-math.log(10_000) * torch.arange(d_model // 2, dtype=torch.float32) / (d_model // 2))
    angles = timesteps[:, None].float() * rates
    return torch.cat([torch.cos(angles), torch.sin(angles)], dim=-1)


def timesteps(threads, pool, *, n, d_model):
    """Encode timesteps of diffusion models below 1,000, as Stable Diffusion does: cosines, then sines."""
    t = np.random.default_rng(0).integers(0, 1000, n)
    steps, rates = torch.from_numpy(t), frequencies(d_model)
    options = {"flip_sin_to_cos": True, "downscale_freq_shift": 0}
    encoding = posenc.preset("diffusers-timestep", d_model, **options)
    rows = encoding.encode(1000)
    diffusers = importlib.import_module("diffusers.models.embeddings")
    factors_of_rows = factors(32 * np.arange(32)[:, None], np.arange(32)[:, None], rates)
    _, fill_at = loops.addition(d_model // 2, step=1, sine=d_model // 2, cosine=0, rows=32)

    def in_numpy():
        angles = t[:, None] * rates
        return np.concatenate([np.cos(angles), np.sin(angles)], -1, dtype=np.float32, casting="same_kind")

    def in_numba(fill, *arguments):
        out = np.empty((n, d_model), np.float32)
        fill(*arguments, out)
        return out

    double, single = (partial(in_numba, fill_at, t, *each) for each in factors_of_rows)

    return nothing, {
        "posenc": partial(encoding.encode, t),
        "pasted, diffusers": partial(diffusers.get_timestep_embedding, steps, d_model, **options),
        "pasted, Stable Diffusion": partial(stable_diffusion, steps, d_model),
        "pasted exact, F.embedding": partial(torch.nn.functional.embedding, steps, torch.tensor(rows)),
        "exact, numba float64": double,
        "fast, numba float32": single,
        **once(threads, {"exact, NumPy float64": in_numpy,
                         "fast, np.take from a table": partial(np.take, rows, t, axis=0)}),
        "fast, numba from a table": partial(in_numba, loops.take, rows, t),
    }


def scattered(threads, pool, *, n, d_model, limit, dtype=np.float32):
    """Encode integers at random below `limit`, into a buffer."""
    positions = np.random.default_rng(0).integers(0, limit, n)
    out = copied(np.ones((n, d_model), dtype))
    steps, rows = torch.from_numpy(positions), torch.tensor(posenc.encode(limit, d_model, dtype=dtype))
    double, single = factors(512 * np.arange(limit // 512)[:, None], np.arange(512)[:, None],
                             frequencies(d_model))
    _, fill_at = loops.addition(d_model // 2)
    return partial(out.fill, 0), {
        "posenc": partial(posenc.Encoding(d_model).encode, positions, out=out),
        "pasted, torch": partial(torch_recipe, steps, d_model, torch.from_numpy(out)),
        "exact, numba float64": lambda: (fill_at(positions, *double, out), out)[1],
        **({"fast, numba float32": lambda: (fill_at(positions, *single, out), out)[1]}
           if dtype == np.float32 else {}),
        "pasted exact, torch.index_select": lambda: (
            torch.index_select(rows, 0, steps, out=torch.from_numpy(out)), out)[1],
    }


def timestamps(threads, pool, *, t, seconds=(3600, DAY, 7 * DAY, 31_556_952), unit=None, dtype=np.float32):
    """Encode times in nanoseconds by periods in seconds, by default by their hour, day, week and year.

    `unit` is the difference between neighbours, if all are equal.
    """
    periods, real = [each * 10**9 for each in seconds], torch.from_numpy(np.empty(0, dtype)).dtype
    encoding = posenc.Encoding(periods=[np.timedelta64(each, "s") for each in seconds])
    times = t.view("datetime64[ns]")
    middle = (int(t.min()) + int(t.max())) // 2        # t - middle is nearly exact in float64
    rates, phases = np.array([(1 / period, middle % period / period) for period in periods]).T

    def pasted():
        return np.stack([f(2 * np.pi * t / period) for period in periods for f in (np.sin, np.cos)], axis=-1)

    whole, turns = torch.tensor(periods), torch.tensor([2 * np.pi / period for period in periods]).to(real)

    def remainders():
        angles = (t[:, None] % whole.numpy()).astype(dtype) * turns.numpy()
        return np.stack([np.sin(angles), np.cos(angles)], axis=-1).reshape(len(t), -1)

    def remainders_in_torch():
        angles = (torch.from_numpy(t)[:, None] % whole).to(real) * turns
        return torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)

    def in_numba(fill, *arguments):
        out = np.empty((len(t), 2 * len(periods)), dtype)
        fill(*arguments, out)
        return out

    double, single = (partial(in_numba, polynomial(rates, each, t, middle=middle, phases=phases))
                      for each in (np.float64, np.float32))
    calls = {"exact, numba float64, polynomial": double, "fast, numba float32, polynomial": single}
    if unit:
        begin = t[0]
        starts = np.array([begin % period / unit for period in periods])
        double, single = in_blocks(len(t), 2 * np.pi * unit / np.array(periods), math.gcd(len(t), 64), starts)

        def regular(fill, out):
            assert loops.is_regular(t, unit)
            fill(out)

        calls["exact, numba float64"] = partial(in_numba, regular, double)
        calls["fast, numba float32"] = partial(in_numba, regular, single)
        cycle = math.lcm(*periods) // unit
        if cycle < len(t):                          # the rows repeat
            rows = np.stack([f(2 * np.pi * (t[:cycle] % period / period)) for period in periods for f in (np.sin, np.cos)],
                            axis=-1).astype(dtype)
            calls["exact, numba from a table"] = partial(
                in_numba, loops.repeating(2 * len(periods), cycle, unit), rows, t, begin)
    if dtype == np.float64:
        calls = {name: call for name, call in calls.items() if name.startswith("exact")}
    return nothing, {
        "posenc": partial(encoding.encode, times, dtype=dtype),
        **once(threads, {"pasted, NumPy": pasted, "pasted, `t % period`": remainders}),
        "pasted, `t % period` in torch": remainders_in_torch,
        **calls,
    }


def grid(threads, pool, *, shape, d_model, reused=False):
    """Encode the cells of a grid, rows then columns, in the layout of vision transformers."""
    out, half = copied(np.ones((*shape, d_model), np.float32)), d_model // 2
    output = (lambda: out) if reused else partial(np.empty_like, out)
    kept = [posenc.encode(n, half, layout="halves") for n in shape]
    tensors, fill = [torch.tensor(each) for each in kept], loops.grid(half)
    rates = torch.tensor(frequencies(half), dtype=torch.float32)

    def recipe():
        angles = [torch.arange(n)[:, None] * rates for n in shape]
        return copies(torch.from_numpy(output()), *(torch.cat([each.sin(), each.cos()], -1) for each in angles))

    def copies(table, rows, columns):
        table[..., :half] = rows[:, None]
        table[..., half:] = columns
        return table

    def filled(fill):
        table = output()
        fill(table)
        return table

    return nothing, {
        "posenc": partial(posenc.grid, shape, d_model, layout="halves", out=out if reused else None),
        "pasted, torch": recipe,
        **once(threads, {"exact, NumPy from two tables": partial(filled, lambda table: copies(table, *kept))}),
        "exact, torch from two tables": partial(filled, lambda table: copies(torch.from_numpy(table), *tensors)),
        "exact, numba from two tables": partial(filled, lambda table: fill(table, *kept)),
    }


# ---- batches -----------------------------------------------------------------------------------------------


def padded(threads, pool, *, shape):
    """Add encodings to a batch that is padded on the right, with the positions of fairseq, M2M100 and others.

    All rivals add rows of a table that was computed before.
    """
    batch, n, d_model = shape
    lengths = np.random.default_rng(0).integers(n // 2, n + 1, batch)
    mask, x = np.arange(n) < lengths[:, None], copied(np.zeros(shape, np.float32))
    encoding = posenc.preset("fairseq", d_model)
    rows, tensor, masks = encoding.encode(n + 2), torch.from_numpy(x), torch.from_numpy(mask)
    rows_of_torch = torch.tensor(rows)

    def ours(**options):
        return encoding.add_to(x, posenc.positions_from_mask(mask, padding_idx=1), **options)

    def pasted():
        positions = (torch.cumsum(masks, 1) * masks).long() + 1
        return tensor.add_(rows_of_torch.index_select(0, positions.view(-1)).view(batch, n, -1))

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
        "posenc": partial(ours), "pasted, fairseq": pasted, "exact, row[:n] += table[:n]": slices,
        "exact, numba": lambda: (loops.adding()(x, rows[2:], 0 * lengths, lengths), x)[1],
        **once(threads, {"exact, x += np.take(table, positions)": take}),
    }


def module(threads, pool, *, shape):
    """Add encodings to a batch that is padded on the left, or to a token of each sequence, into a new tensor."""
    batch, n, d_model = shape
    before = np.random.default_rng(0).integers(0, n // 2 if n > 1 else 2000, (batch, 1))
    positions = torch.from_numpy(np.maximum(np.arange(n) - before, -1) if n > 1 else before)
    x, encoding = torch.zeros(shape), posenc_torch.PositionalEncoding(d_model, padding_idx=-1)
    rows = torch.cat([torch.zeros(1, d_model), torch.tensor(posenc.encode(4096, d_model))])
    add = loops.sums(parallel=threads > 1)

    def in_numba():
        out = torch.empty_like(x)
        add(x.numpy(), rows.numpy(), positions.numpy() + 1, out.numpy())
        return out

    return nothing, {
        "posenc": lambda threads=None: encoding(x, positions=positions),
        "exact, numba": in_numba,
        "pasted exact, x + F.embedding":
            lambda: x + torch.nn.functional.embedding(positions + 1, rows),
    }


def adding(threads, pool, *, shape, new=False, x_scale=None, dtype=torch.float32, axes=(0, 1, 2)):
    """Add encodings to a batch; all rivals add a table that was computed before.  `axes` is the order in memory."""
    x, rows = copied(np.zeros(shape, np.float32).transpose(axes)).transpose(axes), posenc.encode(*shape[1:])
    tensor, rows_of_torch = torch.from_numpy(x), torch.tensor(rows)
    lengths = np.full(len(x), shape[1])
    if dtype.itemsize == 2:
        bits, is_bfloat16 = copied(np.zeros(shape, np.uint16)), dtype == torch.bfloat16
        tensor, rows_of_torch = torch.from_numpy(bits).view(dtype), rows_of_torch.to(dtype)
        bits_of_rows = rows_of_torch.view(torch.uint16).numpy()
        loop = loops.adding(loops.read_bfloat16, loops.round_to_bfloat16)       # numba has no float16
        return partial(bits.fill, 0), {
            "posenc": partial(posenc.Encoding(shape[-1]).add_to,
                              bits.view(ml_dtypes.bfloat16 if is_bfloat16 else np.float16)),
            "pasted exact, tensor += table": partial(tensor.add_, rows_of_torch),
            **({"exact, numba": lambda: (loop(bits, bits_of_rows, 0 * lengths, lengths), tensor)[1]}
               if is_bfloat16 else {})}
    if new:
        module = posenc_torch.PositionalEncoding(shape[-1], x_scale=x_scale)
        return nothing, {"posenc": lambda threads=None: module(tensor), **(
            {"pasted exact, tensor + table": partial(torch.add, tensor, rows_of_torch)} if x_scale is None else
            {"pasted exact, (tensor * scale).add_(table)": lambda: (tensor * x_scale).add_(rows_of_torch),
             "exact, torch.add(table, tensor, alpha=scale)": partial(torch.add, rows_of_torch, tensor, alpha=x_scale)})}

    def plain(threads):
        each = map if threads == 1 else pool.map
        list(each(lambda part: part.__iadd__(rows), np.array_split(x, threads)))
        return x

    return partial(x.fill, 0), {
        "posenc": partial(posenc.Encoding(shape[-1]).add_to, x),
        "pasted, x += table": partial(plain, 1),
        "exact, x += table": partial(plain, threads),
        "pasted exact, tensor += table": lambda: (tensor.add_(rows_of_torch), x)[1],
        "exact, numba": lambda: (loops.adding()(x, rows, 0 * lengths, lengths), x)[1],
    }


# ---- rotations of (batch, heads, n, head_dim), in halves, by cosines and sines computed before -------------


def transformers_recipe(x, positions, base):
    """Return a function that calls transformers as its models do; the result is a new tensor."""
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    config = llama.LlamaConfig(head_dim=x.shape[-1],
                               rope_parameters={"rope_type": "default", "rope_theta": base})
    cos, sin = llama.LlamaRotaryEmbedding(config)(x, positions)
    return lambda: llama.apply_rotary_pos_emb(x, x[:, :0], cos, sin)[0]     # k has no heads


BITS = {2: torch.int16, 4: torch.int32}         # for dtypes that NumPy does not have


def torch_compiled(x, cos, sin, new):
    """Rotate heads in one call.

    In place, the compiler copies tensors that share a storage, so each has its own.  It makes large temporary
    arrays if it can merge axes of the halves, so positions are split.
    """
    def rotated(x, cos, sin):
        a, b = x.chunk(2, -1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)

    if new:
        return compiled(rotated, x, *(each.view(len(x), 1, x.shape[-2], -1) for each in (cos, sin)))
    bits, middle, half = x.view(BITS[x.itemsize]).numpy()[0], x.shape[-2] // 2, x.shape[-1] // 2
    blocks = [[*(torch.from_numpy(bits[:, rows, columns]).view(x.dtype)
                 for columns in (slice(half), slice(half, None))), cos[rows], sin[rows]]
              for rows in (slice(middle), slice(middle, None))]

    def rotate(*blocks):
        for a, b, cos, sin in blocks:
            left, right = a * cos - b * sin, b * cos + a * sin
            a.copy_(left)
            b.copy_(right)

    function = compiled(rotate, *blocks)
    return lambda: (function(), x)[1]


def rotation(threads, pool, *, shape, dtype=torch.float32, scattered=0, new=False, base=500_000.0):
    """Rotate positions of heads, or the last positions of a batch.

    If `scattered` limits random positions, posenc computes their cosines and sines in each call; rivals also do,
    or, for a batch, read a row of a table for each entry.  `new` makes new tensors; else, code rotates in place.
    """
    generator, (batch, _, n, head_dim) = torch.Generator().manual_seed(0), shape
    start = torch.randn(shape, generator=generator).to(dtype)
    stored = copied(start.view(BITS[dtype.itemsize]).numpy())
    x = torch.from_numpy(stored).view(dtype)
    count = max(batch, n)
    positions = torch.randint(0, scattered, (count,), generator=generator) if scattered else torch.arange(n)
    by_batch = positions.view(batch, -1)
    is_float32 = dtype == torch.float32
    rotary, at = posenc.Rotary(head_dim, base=base), by_batch.numpy()[:, None]
    array = stored.view(ml_dtypes.bfloat16) if dtype == torch.bfloat16 else x.numpy()
    computes, reads_rows = scattered and n > 1, scattered and n == 1
    tables = [table.reshape(-1, head_dim // 2)
              for table in rotary.tables(scattered if reads_rows else positions.numpy(), dtype="float64")]
    double, single = converted(tables, torch.float64), converted(tables, torch.float32)
    rows_of_factors = positions.numpy() if reads_rows else np.arange(count) * (2 if computes else 1)
    turns = rotary.frequencies / (2 * np.pi)
    fill = {dtype: polynomial(turns, dtype, positions.numpy(), step=1, cosine=head_dim // 2)
            for dtype in COEFFICIENTS}
    functions = () if is_float32 else (loops.read_bfloat16, loops.round_to_bfloat16)
    loop = loops.rotation(head_dim // 2, 1, head_dim // 2, *functions)

    def in_numba(factors):
        if computes:
            rows = fill[factors[0].dtype.type](np.empty((2 * n, head_dim // 2), factors[0].dtype))
            factors = rows[1:], rows        # sines and cosines alternate
        result = np.empty_like(stored) if new else stored
        arrays = (each.view(np.float32 if is_float32 else np.uint16).squeeze() for each in (stored, result))
        loop(*arrays, rows_of_factors, *factors, n > 1)
        return torch.from_numpy(result).view(dtype) if new else x

    def in_torch(factors):
        if not computes:
            return torch_compiled(x, *map(torch.from_numpy, factors), new)
        rows = np.empty((2 * n, head_dim // 2), factors[0].dtype)
        rotate = torch_compiled(x, *(torch.from_numpy(rows[i::2]) for i in (1, 0)), new)
        return lambda: (fill[rows.dtype.type](rows), rotate())[1]

    kept = None if scattered else rotary.at(at)
    calls = {"posenc": partial(rotary.rotate, array, at) if scattered else partial(kept.rotate, array)}
    if new:
        calls = {"posenc": lambda threads=None: posenc_torch.rotate(x, kept),
                 "pasted, transformers": transformers_recipe(x, by_batch, base)}
    for kind, factors in (("exact", double), ("fast", single)) if is_float32 else (("exact", single),):
        name = factors[0].dtype.name
        if dtype != torch.float16:                  # numba has no float16
            calls[f"{kind}, numba {name}"] = partial(in_numba, factors)
        if n > 1:
            calls[f"{kind}, torch.compile {name}"] = in_torch(factors)
    return lambda: x.copy_(start), calls


def interleaved_rotation(threads, pool, *, shape, base=10_000.0):
    """Rotate positions of heads whose pairs are adjacent columns, in torch as complex numbers."""
    start = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    x, rotary = copied(start.numpy()), posenc.Rotary(shape[-1], base=base, layout="interleaved")
    pairs, loop = torch.from_numpy(x.view(np.complex64)), loops.rotation(shape[-1] // 2, 2, 1)
    cos, sin = converted(rotary.tables(shape[-2], dtype="float64"), torch.float64)
    single = torch.from_numpy(cos + 1j * sin).to(torch.complex64)
    return lambda: torch.from_numpy(x).copy_(start), {
        "posenc": partial(rotary.at(shape[-2]).rotate, x),
        "exact, numba float64": lambda: (loop(x[0], x[0], np.arange(len(cos)), cos, sin, True), x)[1],
        "pasted fast, torch complex64": lambda: (pairs.mul_(single), x)[1],
    }


YEAR = {"t": HOURS, "unit": 3600 * 10**9,
        "seconds": [*(DAY // k for k in (1, 2, 3, 4, 6, 8, 12, 24)), *(7 * DAY // k for k in (1, 2, 3))]}
HEADS = {"shape": (1, 32, 4096, 128)}
CASES = {
    "16 x 512, reused": partial(table, n=16, d_model=512),
    "512 x 512, reused": partial(table, n=512, d_model=512),
    "5,000 x 512, new": partial(table, n=5000, d_model=512, new=True),
    "5,000 x 512, reused": partial(table, n=5000, d_model=512),
    "5,000 x 512, float64, reused": partial(table, n=5000, d_model=512, dtype=np.float64),
    "4,096 x 1,024, reused": partial(table, n=4096, d_model=1024),
    "65,536 x 512, reused": partial(table, n=65_536, d_model=512),
    "400,000 x 8, reused": partial(table, n=400_000, d_model=8),
    "24,000 x 20, reused": partial(table, n=24_000, d_model=20),
    "timesteps, 4,096 x 320": partial(timesteps, n=4096, d_model=320),
    "scattered, 8,192 x 512": partial(scattered, n=8192, d_model=512, limit=131_072),
    "scattered, 8,192 x 512, float64": partial(scattered, n=8192, d_model=512, limit=131_072, dtype=np.float64),
    "timestamps, 400,000 x 8": partial(timestamps, t=TIMES),
    "timestamps, 400,000 x 8, float64": partial(timestamps, t=TIMES, dtype=np.float64),
    "hours of a year, 8,760 x 22": partial(timestamps, **YEAR),
    "hours of a year, 8,760 x 22, float64": partial(timestamps, **YEAR, dtype=np.float64),
    "grid, 14 x 14 x 768": partial(grid, shape=(14, 14), d_model=768),
    "grid, 256 x 256 x 256, reused": partial(grid, shape=(256, 256), d_model=256, reused=True),
    "padded batch, 64 x 512 x 512": partial(padded, shape=(64, 512, 512)),
    "module, 8 x 128 x 512, padded": partial(module, shape=(8, 128, 512)),
    "module, 64 x 1 x 512": partial(module, shape=(64, 1, 512)),
    "add_to, 8 x 128 x 512": partial(adding, shape=(8, 128, 512)),
    "add_to, 32 x 2,048 x 512": partial(adding, shape=(32, 2048, 512)),
    "add_to, 32 x 2,048 x 512, positions first": partial(adding, shape=(32, 2048, 512), axes=(1, 0, 2)),
    "add_to, 65,536 x 4 x 64": partial(adding, shape=(65_536, 4, 64)),
    "add_to, 1 x 2,048 x 512": partial(adding, shape=(1, 2048, 512)),
    "add_to, 32 x 2,048 x 512, bfloat16": partial(adding, shape=(32, 2048, 512), dtype=torch.bfloat16),
    "add_to, 32 x 2,048 x 512, float16": partial(adding, shape=(32, 2048, 512), dtype=torch.float16),
    "new sum, 32 x 2,048 x 512": partial(adding, shape=(32, 2048, 512), new=True),
    "new sum, 32 x 2,048 x 512, scaled": partial(adding, shape=(32, 2048, 512), new=True, x_scale=512**0.5),
    "rotation, 32 x 4,096 x 128": partial(rotation, **HEADS),
    "rotation, 32 x 4,096 x 128, new tensor": partial(rotation, **HEADS, new=True),
    "rotation, 32 x 4,096 x 128, scattered positions": partial(rotation, **HEADS, scattered=131_072),
    "rotation, 32 x 4,096 x 128, interleaved": partial(interleaved_rotation, **HEADS),
    "rotation, 8 x 512 x 64, interleaved": partial(interleaved_rotation, shape=(1, 8, 512, 64)),
    "rotation, 32 x 4,096 x 128, bfloat16": partial(rotation, **HEADS, dtype=torch.bfloat16),
    "rotation, 32 x 4,096 x 128, float16": partial(rotation, **HEADS, dtype=torch.float16),
    "rotation, 32 x 4,096 x 128, bfloat16, new tensor": partial(rotation, **HEADS, dtype=torch.bfloat16,
                                                                new=True),
    "rotation, 32 x 512 x 128": partial(rotation, shape=(1, 32, 512, 128)),
    "rotation, 64 x 4,096 x 64": partial(rotation, shape=(1, 64, 4096, 64)),
    "rotation, 48 x 4,096 x 80, bfloat16": partial(rotation, shape=(1, 48, 4096, 80), dtype=torch.bfloat16),
    "rotation, batch of 64, 1 new position": partial(rotation, shape=(64, 32, 1, 128), scattered=131_072),
}
