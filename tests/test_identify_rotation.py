"""`identify_rotary` finds random rotations, names each fault, and blames no rotation that is right."""

import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

import posenc
from posenc import Rotary, identify_rotary
from posenc._identify.arithmetic import rounded

RNG = np.random.default_rng
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192}
CONFIG = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
ROTARY = Rotary(64, base=500000.0)


def columns(rotary):
    """Return the columns of the first and of the second member of all pairs."""
    half = rotary.rotary_dim // 2
    if rotary.layout == "halves":
        return np.s_[..., :half], np.s_[..., half : 2 * half]
    return np.s_[..., 0 : 2 * half : 2], np.s_[..., 1 : 2 * half : 2]


def rotation(rotary, tables=None):
    """Return a function that rotates the columns of x with the tables of a rotation, or of a function of positions."""
    one, two = columns(rotary)

    def function(x, positions):
        cos, sin = (tables or rotary.tables)(positions)
        result = x.astype(np.result_type(x, cos))
        result[one] = x[one] * cos - x[two] * sin
        result[two] = x[two] * cos + x[one] * sin
        return result

    return function


def float32_tables(rotary, positions, jitter=0):
    """Compute tables in float32, with frequencies that differ from the exact ones by up to `jitter` half ulps."""
    frequencies = (rotary.frequencies * (1 + jitter * 2.0**-24)).astype(np.float32)
    angles = positions[:, None].astype(np.float32) * frequencies
    scale = np.float32(rotary.scale * rotary.attention_scaling)
    return np.cos(angles) * scale, np.sin(angles) * scale


# ---- random rotations -----------------------------------------------------------------------------------------------


def random_scaling(rng, pairs):
    factor, length = float(rng.choice([2, 4, 8, 16, 32, 40])), int(rng.choice([2048, 4096, 8192, 32768]))
    short, long = (np.round(rng.uniform(1, most, pairs), 3).tolist() for most in (2, 20))
    return [
        {"rope_type": "linear", "factor": factor},
        {"rope_type": "dynamic", "factor": factor, "max_position_embeddings": length, "length": int(length * factor)},
        {"rope_type": "ntk_alpha", "alpha": factor},
        {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length},
        {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length, "beta_fast": 16.0, "truncate": False},
        LLAMA3 | {"factor": factor, "original_max_position_embeddings": length},
        {"rope_type": "longrope", "short_factor": short, "long_factor": long, "original_max_position_embeddings": length,
         "factor": factor, "length": int(rng.choice([1, 2 * length]))},
        {"rope_type": "proportional", "partial_rotary_factor": float(rng.choice([0.25, 0.5, 0.75]))},
    ][rng.integers(8)]


def random_rotary(rng):
    head_dim = int(rng.choice([16, 32, 64, 80, 96, 128, 256]))
    keywords = {"layout": str(rng.choice(["halves", "interleaved"]))}
    if rng.random() < 0.3:
        keywords["rotary_dim"] = int(2 * rng.integers(2, head_dim // 2 + 1))
    pairs = keywords.get("rotary_dim", head_dim) // 2
    if rng.random() < 0.2:
        keywords["scale"] = float(rng.choice([0.5, 1.2, 2.0, 0.7071]))
    if rng.random() < 0.1:
        return Rotary(head_dim, **keywords, frequencies=np.exp(-rng.uniform(0, 12, pairs)))
    any_base = 10 ** rng.uniform(1.5, 7)
    keywords["base"] = float(rng.choice([10000, 500000, 1e6, 5e6, 100, float(f"{any_base:.3g}"), any_base]))
    if rng.random() < 0.15:
        keywords["frequency_scale"] = float(rng.choice([0.5, 0.125, 1 / 3, math.pi / 180, 1.5, round(rng.uniform(0.01, 2), 3)]))
    elif rng.random() < 0.7:
        keywords["scaling"] = random_scaling(rng, pairs)
    return Rotary(head_dim, **keywords)


def padded(rotary, pairs):
    """Return a rotation with further pairs of frequency 0, which a function does not show."""
    frequencies = np.append(rotary.frequencies, np.zeros(pairs - len(rotary.frequencies)))
    return rotary.replace(rotary_dim=2 * pairs, frequencies=frequencies, scale=rotary.scale * rotary.attention_scaling)


TOLERANCES = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10, "function": 2.0**-23, "inv_freq": 3e-6}


def check_is_found(seed, kind):
    """The rotation that was found gives the same values, within the precision of those from which it was found."""
    rng = RNG(seed)
    rotary, rows = random_rotary(rng), int(rng.choice([64, 300, 2048, 4096]))
    given = {"function": lambda: rotation(rotary), "inv_freq": lambda: rotary.frequencies.astype(np.float32)}.get(
        kind, lambda: rotary.tables(rows, dtype=kind))()
    match, = identify_rotary(given, head_dim=rotary.head_dim)
    found = match.rotary
    if kind == "inv_freq":
        np.testing.assert_allclose(found.frequencies, rotary.frequencies, rtol=TOLERANCES[kind], atol=0)
        return
    positions = np.arange(0, 100_000, 97) if kind == "function" else np.arange(rows)
    if len(found.frequencies) < len(rotary.frequencies):
        found = padded(found, len(rotary.frequencies))
    size = rotary.scale * rotary.attention_scaling
    tolerance = size * TOLERANCES[kind] * (1e5 if kind == "function" else 1)     # float32 angles are possible
    for a, b in zip(found.tables(positions, dtype="float64"), rotary.tables(positions, dtype="float64"), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance, err_msg=f"{found} for {rotary}")
    assert match.faults == () and (kind != "function" or found.layout == rotary.layout)


@pytest.mark.parametrize("kind", TOLERANCES)
def test_random_rotations_are_found(kind):
    for seed in range(8):
        check_is_found(seed, kind)


@pytest.mark.long
@pytest.mark.parametrize("kind", TOLERANCES)
def test_a_thousand_random_rotations_are_found(kind):
    for seed in range(1000, 1200):
        check_is_found(seed, kind)


def forms(rotary, rng):
    """Yield the forms in which others compute a rotation."""
    jitter = rng.integers(-2, 3, len(rotary.frequencies))
    positions = np.arange(int(rng.choice([16, 64, 300, 4096, 5000])))
    cos, sin = float32_tables(rotary, positions, jitter)
    repeat = np.tile if rotary.layout == "halves" else lambda table, times: np.repeat(table, times[1], 1)
    yield rotary.frequencies
    yield (rotary.frequencies * (1 + jitter * 2.0**-24)).astype(np.float32)
    yield from (rotary.tables(len(positions), dtype=dtype) for dtype in ("float64", "float32", "float16", "bfloat16"))
    yield cos, sin
    yield cos.astype(ml_dtypes.bfloat16), sin.astype(ml_dtypes.bfloat16)
    yield repeat(cos, (1, 2)), repeat(sin, (1, 2))
    yield cos + 1j * sin
    yield np.concatenate([cos, sin], 1)
    yield rotation(rotary)
    yield rotation(rotary, lambda positions: float32_tables(rotary, positions, jitter))


def check_is_not_blamed(seed):
    rng = RNG(seed)
    rotary = random_rotary(rng)
    for given in forms(rotary, rng):
        match = identify_rotary(given, expect=rotary)[0]
        assert match.faults == () and match.rotary is not None, (seed, rotary, match.reason)


def test_rotations_that_are_right_are_not_blamed():
    for seed in range(5):
        check_is_not_blamed(seed)


@pytest.mark.long
def test_many_rotations_that_are_right_are_not_blamed():
    for seed in range(100, 300):
        check_is_not_blamed(seed)
