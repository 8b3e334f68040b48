"""The largest errors of posenc, common recipes and two peers, compared with MPFR, as a Markdown table.

From each start, all candidates encode the same 61 consecutive positions.  If a candidate accepts only a number of positions,
`arange` or `range` is replaced in its module during the call; this does not change the candidate's arithmetic.  The exact
values follow the candidate's convention: the NumPy recipe has an exponent per column, Marian puts sines before cosines.
"""

import builtins
import importlib
import sys
from functools import partial
from pathlib import Path
from unittest import mock

import gmpy2
import numpy as np
from rivals import numpy_float32_recipe, numpy_recipe, torch_recipe

import posenc

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from reference import Reference

STARTS = {"1e2": 10**2, "1e4": 10**4, "1e6": 10**6, "1e9": 10**9, "1.7e18": 17 * 10**17}
COUNT, WIDTH = 61, 512
BITS = 200                              # precision of the exact values and the errors
EXACT = gmpy2.context(precision=BITS)
HALVES = np.r_[0:WIDTH:2, 1:WIDTH:2]    # interleaved columns in the order of layout="halves"


def positions_from(start):
    return np.arange(start, start + COUNT, dtype=np.int64)


def exact_values(start, exponents):
    """Return the exact values of a table, rounded to `BITS` bits."""
    reference = Reference(WIDTH, exponents=exponents)
    return [[reference.value(p, c, BITS) for c in range(WIDTH)] for p in range(start, start + COUNT)]


def largest_error(values, exact):
    pairs = zip(np.asarray(values, np.float64).ravel().tolist(), (v for row in exact for v in row), strict=True)
    return float(max(abs(EXACT.sub(gmpy2.mpfr(value), true)) for value, true in pairs))


# ---- candidates: functions from positions to interleaved values ------------------------------------------------------


def ours(positions, dtype):
    return posenc.encode(positions, WIDTH, dtype=dtype)


def recipe_in_torch(torch, positions):
    return torch_recipe(torch, torch.from_numpy(positions), WIDTH).numpy()


def positional_encodings(module, positions):
    torch = importlib.import_module("torch")
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


def peer(name, module, table):
    """Return a dict with the candidate; it is empty if the module of the candidate cannot be imported."""
    try:
        return {name: ("pair", partial(table, importlib.import_module(module)))}
    except ImportError:
        print(f"skipped: {module} cannot be imported", file=sys.stderr)
        return {}


def candidates():
    """Return, for each name, the keyword `exponents` and the function of the candidate."""
    return {
        "posenc, float32": ("pair", partial(ours, dtype="float32")),
        "NumPy recipe (float32 positions, float64 angles)": ("column", partial(numpy_recipe, d_model=WIDTH)),
        "NumPy float32 recipe": ("pair", partial(numpy_float32_recipe, d_model=WIDTH)),
        **peer("torch recipe", "torch", recipe_in_torch),
        **peer("positional-encodings", "positional_encodings.torch_encodings", positional_encodings),
        **peer("transformers, Marian", "transformers.models.marian.modeling_marian", marian),
        "posenc, float64": ("pair", partial(ours, dtype="float64")),
        "NumPy recipe, float64 throughout": ("column", partial(numpy_recipe, d_model=WIDTH, dtype=np.float64)),
    }


def main():
    rows = {name: [] for name in candidates()}
    for start in STARTS.values():
        exact = {exponents: exact_values(start, exponents) for exponents in ("pair", "column")}
        for name, (exponents, table) in candidates().items():
            rows[name].append(largest_error(table(positions_from(start)), exact[exponents]))
    print("| largest error from position |", " | ".join(STARTS), "|")
    print("|---|" + "---:|" * len(STARTS))
    for name, errors in rows.items():
        print(f"| {name} |", " | ".join(f"{error:.1e}" for error in errors), "|")


if __name__ == "__main__":
    main()
