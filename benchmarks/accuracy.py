"""Measure the largest errors of posenc, the usual recipe and two peers, compared with MPFR.  ``python benchmarks/accuracy.py``

Writes docs/data/accuracy.json and updates the tables and plots.  Requires gmpy2, torch and matplotlib; a peer that is not
installed is omitted.  For each last position in POSITIONS, all candidates encode the 61 positions that end there, or all
positions from 0 if there are fewer.  If a candidate accepts only a number of positions, `arange` or `range` is replaced in its
module during the call; this does not change the candidate's arithmetic.
"""

import builtins
import importlib
import sys
from contextlib import contextmanager
from functools import partial
from importlib.metadata import version
from pathlib import Path
from unittest import mock

import gmpy2
import numpy as np
import pages
import plots
import torch
from common import save, versions

import posenc
from posenc._cli.bench import recipe

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from reference import Reference

POSITIONS = [k * 10**n for n in range(18) for k in (1, 3)] + [10**18, 17 * 10**17]
COUNT, WIDTH = 61, 512
BITS = 200                              # precision of the exact values and the errors
EXACT = gmpy2.context(precision=BITS)
HALVES = np.r_[0:WIDTH:2, 1:WIDTH:2]    # interleaved columns in the order of layout="halves"


def largest_error(values, exact):
    pairs = zip(np.asarray(values, np.float64).ravel().tolist(), (v for row in exact for v in row), strict=True)
    return float(max(abs(EXACT.sub(gmpy2.mpfr(value), true)) for value, true in pairs))


# ---- candidates: functions from positions to interleaved values ------------------------------------------------------


def ours(positions, dtype):
    return posenc.encode(positions, WIDTH, dtype=dtype)


def numpy_recipe(positions):
    table = np.empty((len(positions), WIDTH))
    with replaced_arange(np, positions):
        recipe(np, table, False)
    return table


def torch_recipe(positions, dtype):
    """Run the recipe with this default dtype, as in a model of this dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        table = torch.empty(len(positions), WIDTH)
        with replaced_arange(torch, torch.from_numpy(positions)):
            recipe(torch, table, False)
    finally:
        torch.set_default_dtype(before)
    return table.double().numpy()


@contextmanager
def replaced_arange(library, positions):
    """Make `arange(n)` return the positions; calls with more arguments, which compute frequencies, are unchanged."""
    arange = library.arange
    with mock.patch.object(library, "arange", lambda *args: arange(*args) if args[1:] else positions):
        yield


def positional_encodings(module, positions):
    encoding = module.PositionalEncoding1D(WIDTH)
    tensor = torch.from_numpy(positions)
    with mock.patch.object(torch, "arange", lambda n, *, device, dtype: tensor.to(device, dtype)):
        return encoding(torch.zeros(1, len(positions), WIDTH))[0].numpy()


def marian(module, positions):
    embedding = module.MarianSinusoidalPositionalEmbedding(len(positions), WIDTH)
    ranges = {len(positions): positions.tolist()}
    with mock.patch.object(module, "range", lambda n: ranges.get(n) or builtins.range(n), create=True):
        halves = embedding.create_weight().numpy()
    interleaved = np.empty_like(halves)
    interleaved[:, HALVES] = halves
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


def main():
    reference = Reference(WIDTH)
    errors = {name: {} for name in CANDIDATES}
    for last in POSITIONS:
        positions = np.arange(max(0, last - COUNT + 1), last + 1)
        exact = [[reference.value(p, c, BITS) for c in range(WIDTH)] for p in positions.tolist()]
        for name, table in CANDIDATES.items():
            errors[name][last] = float(f"{largest_error(table(positions), exact):.3g}")
        print(f"{last:.1e}", *(f"{name} {error[last]:.1e}" for name, error in errors.items()), sep="  ", flush=True)
    save("accuracy", {"versions": versions("torch"), "errors": errors})
    pages.update()
    plots.draw()


if __name__ == "__main__":
    main()
