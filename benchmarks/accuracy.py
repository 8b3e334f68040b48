"""Measure the largest errors of posenc, the usual recipe and other libraries, compared with MPFR.

    python benchmarks/accuracy.py

Writes docs/data/accuracy.json and updates the tables and plots.  Requires gmpy2, torch, numba,
pytest and matplotlib; libraries that are not installed are omitted.  For each last position in POSITIONS,
all candidates encode the 61 positions that end there, or all positions from 0 if there are fewer; rotations
turn a row of normally distributed random numbers of each head at each position.  If a candidate takes the number of
positions instead of the positions, `arange` or `range` is replaced during the call; this does not change its
arithmetic.
"""

import builtins
import importlib
import sys
from collections import defaultdict
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import gmpy2
import numpy as np
import plots
import pytest
import rivals
import torch
from common import recorded

import posenc
import posenc.torch

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from peers import installed_class
from reference import Reference

POSITIONS = sorted([k * 10**n for n in range(18) for k in (1, 3)] + [512, 8192, 131_072, 10**18, 17 * 10**17])
COUNT, WIDTH = 61, 512
HEADS, HEAD_DIM, ROTARY_BASE = 8, 128, 500_000
BITS = 200                              # precision of the exact values and the errors
EXACT = gmpy2.context(precision=BITS)
ROUND = {torch.float32: gmpy2.context(precision=24), torch.bfloat16: gmpy2.context(precision=8)}


def halves(width):
    """Return the indices of interleaved columns in the order of layout="halves"."""
    return np.r_[0:width:2, 1:width:2]


def largest_error(values, exact):
    pairs = zip(np.asarray(values, np.float64).ravel().tolist(), (v for row in exact for v in row),
                strict=True)
    return float(max(abs(EXACT.sub(gmpy2.mpfr(value), true)) for value, true in pairs))


# ---- candidates: functions from positions to interleaved values --------------------------------------------


def ours(positions, dtype):
    return posenc.encode(positions, WIDTH, dtype=dtype)


def numpy_recipe(positions):
    with replaced_arange(np, positions):
        return rivals.numpy_recipe(len(positions), WIDTH, np.float64)


def torch_recipe(positions, dtype):
    """Run the recipe with this default dtype, as in a model of this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with replaced_arange(torch, torch.from_numpy(positions)):
            return rivals.torch_recipe(torch.arange(len(positions)), WIDTH).double().numpy()
    finally:
        torch.set_default_dtype(before)


@contextmanager
def replaced_arange(library, positions):
    """Make `arange(n)` return the positions; calls with more arguments, which compute frequencies, are
    unchanged.
    """
    arange = library.arange

    def replaced(*args, **options):
        if args[1:]:
            return arange(*args, **options)
        return positions.to(**options) if options else positions

    with mock.patch.object(library, "arange", replaced):
        yield


def positional_encodings(module, positions):
    encoding = module.PositionalEncoding1D(WIDTH)
    with replaced_arange(torch, torch.from_numpy(positions)):
        return encoding(torch.zeros(1, len(positions), WIDTH))[0].numpy()


def marian(module, positions):
    embedding = module.MarianSinusoidalPositionalEmbedding(len(positions), WIDTH)
    ranges = {len(positions): positions.tolist()}
    with mock.patch.object(module, "range", lambda n: ranges.get(n) or builtins.range(n), create=True):
        table = embedding.create_weight().numpy()
    interleaved = np.empty_like(table)
    interleaved[:, halves(WIDTH)] = table
    return interleaved


def peer(package, name, module, table):
    """Return {name: candidate}, or an empty dict if the module of the candidate cannot be imported."""
    try:
        return {f"{package} {version(package)}{name}": partial(table, importlib.import_module(module))}
    except ImportError:
        print(f"skipped: {module} cannot be imported", file=sys.stderr)
        return {}


CANDIDATES = {
    **{f"posenc, {dtype}": partial(ours, dtype=dtype) for dtype in ("float32", "bfloat16", "float64")},
    "torch recipe, float32": partial(torch_recipe, dtype=torch.float32),
    "torch recipe, bfloat16": partial(torch_recipe, dtype=torch.bfloat16),
    "NumPy recipe, float64": numpy_recipe,
    **peer("positional-encodings", "", "positional_encodings.torch_encodings", positional_encodings),
    **peer("transformers", ", Marian", "transformers.models.marian.modeling_marian", marian),
}


# ---- rotations: functions from x of shape (n, HEAD_DIM), and positions, to rotated rows --------------------


def ours_rotated(x, positions):
    return posenc.torch.rotate(x, torch.from_numpy(positions), rotary=ROTARY)


def llama(module, x, positions, embedding=None):
    config = module.LlamaConfig(head_dim=HEAD_DIM,
                                rope_parameters={"rope_type": "default", "rope_theta": ROTARY_BASE})
    cos, sin = (embedding or module.LlamaRotaryEmbedding)(config)(x, torch.from_numpy(positions)[None])
    return module.apply_rotary_pos_emb(x[None, None], x[None, None], cos, sin)[0][0, 0]


def torchtune(module, x, positions):
    with replaced_arange(torch, torch.from_numpy(positions)):
        rotate = module(HEAD_DIM, len(positions), ROTARY_BASE)
    return rotate(x[None, :, None])[0, :, 0]


def rotary_embedding_torch(module, x, positions):
    embedding = module.RotaryEmbedding(HEAD_DIM, theta=ROTARY_BASE, cache_if_possible=False)
    return embedding.rotate_queries_or_keys(x[None], offset=int(positions[0]))[0].detach()


def torchtune_class():
    try:
        module = installed_class("torchtune", "modules/position_embeddings.py", "RotaryPositionalEmbeddings")
    except pytest.skip.Exception as error:
        print(f"skipped: {error}", file=sys.stderr)
        return {}
    return {f"torchtune {version('torchtune')}": partial(torchtune, module)}


ROTARY = posenc.Rotary(HEAD_DIM, base=ROTARY_BASE)
LLAMA = "transformers.models.llama.modeling_llama"
# IN_HALVES pairs columns i and i + HEAD_DIM / 2, INTERLEAVED adjacent columns
IN_HALVES = {
    "posenc": ours_rotated,
    **peer("transformers", ", Llama", LLAMA, llama),
    **peer("transformers", ", Llama, with posenc's tables", LLAMA,
           partial(llama, embedding=posenc.torch.RotaryEmbedding)),
}
INTERLEAVED = torchtune_class() | peer("rotary-embedding-torch", "", "rotary_embedding_torch",
                                       rotary_embedding_torch)


def exact_rotation(x, angles, positions):
    """Return the exact values of rotated rows with interleaved pairs, and the length of the pair of each
    value.
    """
    values, lengths = [], []
    with gmpy2.context(EXACT):
        for position, row in zip(positions.tolist(), x.tolist(), strict=True):
            for i in range(0, HEAD_DIM, 2):
                a, b = map(gmpy2.mpfr, row[i : i + 2])
                c, s = (angles.value(position, column, BITS) for column in (i, i + 1))
                values += [a * c - b * s, b * c + a * s]
                lengths += [gmpy2.hypot(a, b)] * 2
    return values, lengths


def rotated(positions, angles, head):
    """Yield the name of each rotation and dtype, the largest error relative to the length of the pair, and
    the share of values that are correctly rounded, for random numbers of a head.
    """
    rows = torch.randn(len(positions), HEAD_DIM, generator=torch.Generator().manual_seed(head))
    order = halves(HEAD_DIM)
    for dtype, rounding in ROUND.items():
        x = rows.to(dtype)
        exact, lengths = exact_rotation(x, angles, positions)
        for name, rotate in (IN_HALVES | INTERLEAVED).items():
            result = torch.empty_like(x)
            if name in IN_HALVES:
                result[:, order] = rotate(x[:, order], positions)
            else:
                result[:] = rotate(x, positions)
            values = list(map(gmpy2.mpfr, result.double().flatten().tolist()))
            error = max(abs(EXACT.sub(v, true)) / length for v, true,
                        length in zip(values, exact, lengths, strict=True))
            right = sum(v == rounding.plus(true) for v, true in zip(values, exact, strict=True))
            yield f"{name}, {str(dtype)[6:]}", float(f"{error:.3g}"), right / len(values)


def main():
    reference, angles = Reference(WIDTH), Reference(HEAD_DIM, base=ROTARY_BASE, order="cos")
    errors, rotations, shares = {name: {} for name in CANDIDATES}, defaultdict(dict), defaultdict(dict)
    with recorded("accuracy") as document:
        document |= {"errors": errors, "rotation errors": rotations, "correctly rounded": shares}
        for last in POSITIONS:
            positions = np.arange(max(0, last - COUNT + 1), last + 1)
            exact = [[reference.value(p, c, BITS) for c in range(WIDTH)] for p in positions.tolist()]
            for name, table in CANDIDATES.items():
                errors[name][last] = float(f"{largest_error(table(positions), exact):.3g}")
            print(f"{last:.1e}", *(f"{name} {error[last]:.1e}" for name, error in errors.items()), sep="  ",
                  flush=True)
            for name, error, share in (each for head in range(HEADS) for each in rotated(positions, angles, head)):
                rotations[name][last] = max(error, rotations[name].get(last, 0))
                shares[name][last] = float(f"{shares[name].get(last, 0) + share / HEADS:.4g}")
    plots.draw(plots.accuracy)


if __name__ == "__main__":
    main()
