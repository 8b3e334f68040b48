"""Times and errors of rotary embeddings: posenc's rotation beside an in-place pass, NumPy and, if installed, torch.

    python benchmarks/rotation.py [NAME ...]

Each case and its comparisons alternate in one run.  `passes` is the time in units of one in-place pass over the same bytes
(np.negative), with one thread.
"""

import functools
import importlib
from fractions import Fraction
from statistics import median

import numpy as np
from common import main, report, times_of

from posenc import _frequencies, _rotation

HEAD_DIM, LENGTH, BASE = 128, 4096, 500000.0
Q, K = (1, 32, LENGTH, HEAD_DIM), (1, 8, LENGTH, HEAD_DIM)


def rotation(interleaved=False):
    pairs = HEAD_DIM // 2
    turns = functools.partial(_frequencies.spaced_turns, pairs, ((BASE, Fraction(pairs)),), (1.0, 1.0))
    return _rotation.rotation(turns, pairs, interleaved=interleaved)


def dtypes():
    """Return the dtypes that can be measured here, with integers of the same size for the in-place pass."""
    result = {"float32": (np.float32, np.int32), "float16": (np.float16, np.int16)}
    try:
        import ml_dtypes
    except ImportError:
        return result
    return result | {"bfloat16": (ml_dtypes.bfloat16, np.int16)}


def array(shape, dtype):
    return np.random.default_rng(0).standard_normal(shape, np.float32).astype(dtype)


def milliseconds(cases, **options):
    return [1e3 * median(seconds) for seconds in times_of(cases, **options)]


def prefill():
    """q and k of a long prompt, contiguous and as transposed views, with one and two threads."""
    for interleaved in (False, True):
        turn = rotation(interleaved)
        for name, (dtype, integer) in dtypes().items():
            for what, shape in (("q", Q), ("k", K)):
                x = array(shape, dtype)
                y = np.ascontiguousarray(x.swapaxes(1, 2)).swapaxes(1, 2)
                bits = np.ones(shape, integer)              # a separate array: negated bits are unusual numbers
                cases = [functools.partial(np.negative, bits, out=bits)]
                cases += [functools.partial(turn.rotate, a, None, False, None, t) for t in (1, 2) for a in (x, y)]
                one_pass, *times = milliseconds(cases)
                layout = "interleaved" if interleaved else "halves"
                shown = [f"{t:7.2f} ms {t / one_pass:5.2f} passes" for t in times]
                report(f"{what} {name}, {layout}: pass {one_pass:.2f} ms", "; ".join(shown))
    report("", "order: contiguous and transposed with one thread, then with two")


def decode():
    """One position of each of several sequences: q and k together."""
    turn = rotation()
    for name, (dtype, _) in dtypes().items():
        for batch in (1, 8, 64):
            q, k = array((batch, 32, 1, HEAD_DIM), dtype), array((batch, 8, 1, HEAD_DIM), dtype)
            positions = np.random.default_rng(1).integers(0, 10**5, (batch, 1, 1))

            def both(q=q, k=k, positions=positions):
                turn.rotate(q, positions, False, None, None)
                turn.rotate(k, positions, False, None, None)

            report(f"decode {name}, batch {batch}", f"{1e3 * milliseconds([both], number=50)[0]:7.1f} us for q and k")


def numpy_recipe():
    """The usual recipe in NumPy, with tables in float32."""
    x = array(Q, np.float32)
    half = HEAD_DIM // 2
    angles = np.arange(LENGTH)[:, None] * BASE ** (-np.arange(half) / half)
    cos, sin = (np.concatenate([f(angles)] * 2, axis=-1).astype(np.float32) for f in (np.cos, np.sin))

    def recipe():
        return x * cos + np.concatenate([-x[..., half:], x[..., :half]], axis=-1) * sin

    turn = rotation()
    ours, theirs = milliseconds([functools.partial(turn.rotate, x, None, False, None, 1), recipe], rounds=5)
    report("q float32: posenc, NumPy", f"{ours:.1f} ms, {theirs:.1f} ms")


def torch_eager():
    """The function apply_rotary_pos_emb as transformers has it, eager and compiled, with and without making tables."""
    try:
        import torch
    except ImportError:
        report("torch", "is not installed")
        return

    def tables(positions, dtype):
        inverse = BASE ** (-torch.arange(0, HEAD_DIM, 2, dtype=torch.float32) / HEAD_DIM)
        angles = (inverse[None, :, None] @ positions[:, None, :].float()).transpose(1, 2)
        angles = torch.cat((angles, angles), dim=-1)
        return angles.cos().to(dtype), angles.sin().to(dtype)

    def rotate_half(x):
        half = x.shape[-1] // 2
        return torch.cat((-x[..., half:], x[..., :half]), dim=-1)

    def apply(q, k, cos, sin):
        cos, sin = cos.unsqueeze(1), sin.unsqueeze(1)
        return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin

    turn = rotation()
    for name, (dtype, _) in dtypes().items():
        if name == "float16":
            continue
        kind = getattr(torch, name)
        for label, length, batch in (("prefill", LENGTH, 1), ("decode", 1, 8)):
            shapes = (batch, 32, length, HEAD_DIM), (batch, 8, length, HEAD_DIM)
            q, k = (torch.randn(shape).to(kind) for shape in shapes)
            ours = [array(shape, dtype) for shape in shapes]
            positions = torch.arange(length)[None].expand(batch, -1) + (0 if length > 1 else 77777)
            integers = positions[:, None].numpy().copy()
            cos, sin = tables(positions, kind)

            def rotate_ours(ours=ours, integers=integers):
                for x in ours:
                    turn.rotate(x, integers, False, None, None)

            cases = {"posenc": rotate_ours}
            for mode, function in (("eager", apply), ("compiled", torch.compile(apply, dynamic=False))):
                try:
                    function(q, k, cos, sin)
                except Exception as error:      # noqa: BLE001  torch.compile needs a C++ compiler
                    report(f"torch, {mode}", f"fails: {type(error).__name__}")
                    continue
                cases[mode] = functools.partial(function, q, k, cos, sin)
                cases[f"{mode} with tables"] = lambda f=function, q=q, k=k, p=positions, t=kind: f(q, k, *tables(p, t))
            times = milliseconds(list(cases.values()), rounds=7, number=1 if length > 1 else 50)
            shown = [f"{case} {t:.3f} ms" for case, t in zip(cases, times, strict=True)]
            report(f"q and k {name}, {label}, torch {torch.get_num_threads()} threads", ", ".join(shown))


def errors():
    """The errors in docs/rotary.md, compared with float64 angles.  Libraries that are not installed are omitted."""
    import torch

    import posenc.torch

    half, n = HEAD_DIM // 2, 64
    x = torch.randn(1, 32, n, HEAD_DIM, generator=torch.Generator().manual_seed(0)).bfloat16()
    positions = torch.arange(10**6, 10**6 + n)
    rotary = posenc.Rotary(HEAD_DIM, base=BASE)
    angles = positions.numpy()[:, None] * BASE ** (-np.arange(half) / half)
    pairs = x.double().numpy()
    pairs = (pairs[..., :half] + 1j * pairs[..., half:]) * np.exp(1j * angles)
    exact = np.concatenate([pairs.real, pairs.imag], axis=-1)
    lengths = np.tile(abs(pairs), 2)

    def transformers(replace):
        llama = importlib.import_module("transformers.models.llama.modeling_llama")
        parameters = {"rope_type": "default", "rope_theta": BASE}
        module = llama.LlamaRotaryEmbedding(llama.LlamaConfig(head_dim=HEAD_DIM, rope_parameters=parameters))
        module = posenc.torch.RotaryEmbedding(rotary) if replace else module
        return llama.apply_rotary_pos_emb(x, x, *module(x, positions[None]))[0]

    def interleaved(rotate):
        y = rotate(torch.stack([x[..., :half], x[..., half:]], dim=-1).flatten(-2))
        return torch.cat([y[..., 0::2], y[..., 1::2]], dim=-1)

    def torchtune():
        module = importlib.import_module("torchtune.modules.position_embeddings").RotaryPositionalEmbeddings
        module = module(HEAD_DIM, max_seq_len=10**6 + n, base=int(BASE))
        return interleaved(lambda y: module(y.transpose(1, 2), input_pos=positions[None]).transpose(1, 2))

    def rotary_embedding_torch():
        module = importlib.import_module("rotary_embedding_torch").RotaryEmbedding(HEAD_DIM, theta=BASE)
        return interleaved(lambda y: module.rotate_queries_or_keys(y, offset=10**6))

    for name, function in {
        "posenc.torch.rotate": lambda: posenc.torch.rotate(x, range(10**6, 10**6 + n), rotary=rotary),
        "transformers": functools.partial(transformers, False),
        "transformers, posenc.torch.RotaryEmbedding": functools.partial(transformers, True),
        "torchtune": torchtune,
        "rotary-embedding-torch": rotary_embedding_torch,
    }.items():
        try:
            values = function()
        except ImportError as error:
            report(name, f"cannot be imported: {error}")
            continue
        largest = (abs(values.double().numpy() - exact) / lengths).max()
        correct = (values == torch.from_numpy(exact).bfloat16()).float().mean()
        report(f"{name}, bfloat16", f"largest error {largest:.1e}, correctly rounded {correct:.1%}")


if __name__ == "__main__":
    main(__doc__, prefill, decode, numpy_recipe, torch_eager, errors)
