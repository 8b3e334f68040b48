"""Compare each preset with its library; peers.py has the tables of the libraries."""

import functools
import pickle

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits
from peers import FLOAT32, FLOAT64, PEERS

PRESETS = posenc.presets()
CASES = [
    pytest.param(peer, d, id="-".join([peer.preset, str(d), *(f"{k}={v}" for k, v in peer.changes.items())]))
    for peer in PEERS
    for d in peer.d_models
]


@functools.cache
def table(name, d_model, positions, dtype="float64", changes=()):
    """Return the table of a preset, or None if the preset refuses d_model."""
    try:
        encoding = posenc.preset(name, d_model, **dict(changes))
    except ValueError:
        return None
    return encoding.encode(np.frombuffer(positions[1], positions[0]), dtype=dtype)


def error_bound(peer, d_model, dtype):
    """Return the error bound for the table of a library, to first order in the library's unit roundoff u.

    A library computes a frequency as exp or pow of an exponent with at most four roundings.  If the
    frequencies span a factor of exp(L), the exponent is at most L, and its error adds 4 L u to the relative
    error of the frequency.  exp or pow (2 u), a reciprocal and a factor add 4 u.  The scaled position and its
    product with the frequency add 2 u to the error of the angle. sin or cos adds an ulp (2 u), the scale 2 u,
    and storage in float32 half an ulp of a value below the scale.
    """
    preset = PRESETS[peer.preset]
    changes = {name: value for name, value in peer.changes.items() if name in preset.parameters}
    convention = preset.convention(d_model, **changes) | {k: v for k, v in peer.changes.items()
                                                          if k not in changes}
    frequencies = posenc.preset(peer.preset, d_model, **peer.changes).frequencies * convention.get("position_scale", 1)
    span = np.log(frequencies.max() / frequencies.min())
    column = np.arange(d_model)
    if convention.get("layout") == "halves":
        column = column % len(frequencies)
    elif convention.get("exponents") != "column":
        column = column // 2
    angles = np.abs(np.outer(peer.positions + convention.get("position_offset", 0), frequencies[column]))
    stored = FLOAT32 / 2 if dtype == np.float32 else 0.0
    return convention.get("scale", 1) * ((4 * span + 6) * peer.unit * angles + 4 * peer.unit + stored)


def agrees(values, expected, bound):
    return values is not None and values.shape == expected.shape and bool((abs(values - expected) <= bound).all())


def key(peer):
    return peer.positions.dtype.str, peer.positions.tobytes()


@pytest.mark.filterwarnings("ignore")           # from other libraries
@pytest.mark.parametrize("peer, d_model", CASES)
def test_presets_match_their_library(peer, d_model):
    expected = peer.table(d_model)
    bound = error_bound(peer, d_model, expected.dtype)
    values = table(peer.preset, d_model, key(peer), changes=tuple(peer.changes.items()))
    assert np.isfinite(expected).all()
    assert agrees(values, expected, bound), f"error of {np.max(abs(values - expected) / bound)} times the bound"
    if peer.unit == FLOAT64:            # both are rounded to float32 once
        exact = table(peer.preset, d_model, key(peer), dtype="float32", changes=tuple(peer.changes.items()))
        assert_same_bits(exact, expected.astype(np.float32))
    for name in PRESETS:
        wrong = table(name, d_model, key(peer))
        if wrong is None or not (wrong == values).all():
            assert not agrees(wrong, expected, bound), f"the preset {name} is not distinguishable"


def test_every_preset_is_compared_with_a_library():
    assert {peer.preset for peer in PEERS} == set(PRESETS)


@pytest.mark.parametrize("name", PRESETS)
def test_two_columns_are_finite_and_distinguishable(name):
    values = posenc.preset(name, 2, padding_idx=None).encode(64, dtype="float64")
    assert np.isfinite(values).all()
    assert (values[1:] != values[0]).any(axis=1).all()


# ---- names, changes, errors --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_encodings_of_their_convention(name):
    encoding = posenc.preset(name, 16)
    assert pickle.loads(pickle.dumps(encoding)) == encoding == posenc.Encoding(16, **PRESETS[name].convention(16))
    if name in ("mlx", "x-transformers"):       # their formulas divide by d_model
        with pytest.raises(ValueError, match=f"{name} has d_model 0 .* expected no zero divisor"):
            posenc.preset(name, 0)
    else:
        assert posenc.preset(name, 0).encode(3).shape == (3, 0)
    assert PRESETS[name].summary and PRESETS[name].source
    for d_model in (1, 3, 7):
        try:
            assert posenc.preset(name, d_model).encode(3).shape == (3, d_model)
        except ValueError as error:
            assert str(error) == f"d_model is {d_model}, expected an even number with odd='error'"


def test_presets_of_the_paper_equal_the_default():
    assert repr(PRESETS["whisper"]).endswith("parameters={'max_timescale': 10000.0})")
    for name in ("vaswani", "xlm", "keras-hub", "positional-encodings"):
        assert posenc.preset(name, 512) == posenc.Encoding(512)


@pytest.mark.parametrize("name, changes, convention", [
    ("fairseq", {"padding_idx": None}, {"layout": "halves", "spacing": "endpoint", "odd": "zero"}),
    ("whisper", {"base": 500}, {"layout": "halves", "spacing": "endpoint", "odd": "error", "base": 500}),
    ("whisper", {"shift": 0.5}, {"layout": "halves", "shift": 0.5, "odd": "error"}),
    ("whisper", {"shift": 1, "spacing": "paper"}, {"layout": "halves", "shift": 1, "odd": "error"}),
    ("diffusers-timestep", {"spacing": "endpoint"},
     {"layout": "halves", "spacing": "endpoint", "odd": "zero"}),
    ("diffusers-timestep", {"scale": 1000},
     {"layout": "halves", "shift": 1, "odd": "zero", "position_scale": 1000}),
    ("nemo-fixed", {"scale": 1}, {"odd": "error"}),
    ("nerf", {"frequencies": [1, 3, 9]}, {"frequencies": [1, 3, 9], "odd": "error"}),
    ("pyg", {"granularity": 4},
     {"position_scale": 0.25, "layout": "halves", "spacing": "endpoint", "odd": "error"}),
    ("x-transformers", {"theta": 9, "scale": 3}, {"base": 9, "scale": 3, "layout": "halves", "odd": "error"}),
])
def test_parameters_change_a_preset(name, changes, convention):
    assert posenc.preset(name, 6, **changes) == posenc.Encoding(6, **convention)


@pytest.mark.parametrize("arguments, changes, error, message", [
    (("whisperer", 4), {}, ValueError, r"name is 'whisperer', expected one of \('vaswani', .*conventions.md"),
    (("x-transformers", -4), {}, ValueError, "d_model is -4, expected at least 0"),
    (("whisper", 8), {"shift": 1, "spacing": "endpoint"}, ValueError, "spacing and shift are both given"),
    (("diffusers-timestep", 8), {"flip_sin_to_cos": 1}, TypeError, "flip_sin_to_cos is 1 of type int"),
    (("diffusers-timestep", 8), {"max_period": "1"}, TypeError, "max_period is '1' of type str"),
    (("diffusers-timestep", 8), {"downscale_freq_shift": 4}, ValueError,
     "shift is 4.0, expected a number other than 4"),
    (("mlx", 8), {"min_freq": -1}, ValueError, "mlx has {'min_freq': -1.0}: base is -1.0, expected a pos"),
    (("whisper", 8), {"max_timescale": 0}, ValueError, "whisper has {'max_timescale': 0.0}: base is 0.0"),
    (("x-transformers", 8), {"theta": 1e4, "base": 1e4}, ValueError, "theta and base are both given"),
    (("diffusers-timestep", 8), {"flip_sin_to_cos": True, "order": "sin"}, ValueError, "flip_sin_to_cos and order are"),
    (("diffusers-timestep", 8), {"downscale_freq_shift": 1, "spacing": "endpoint"}, ValueError, "shift and spacing are"),
    (("whisper", 8), {"max_timescale": 5, "frequencies": range(4)}, ValueError, "timescale and frequencies are both"),
    *[((name, 8), {key: 0.5, "frequency_scale": 3}, ValueError, f"{key} and frequency_scale are both")
      for name, key in (("mlx", "min_freq"), ("mlx", "max_freq"), ("flax", "max_scale"), ("pi0", "max_period"))],
    (("tensor2tensor", 2), {"start_index": 2**53 + 1}, ValueError, "start_index is 9007199254740993"),
])
def test_invalid_presets_are_refused(arguments, changes, error, message):
    with pytest.raises(error, match=message):
        posenc.preset(*arguments, **changes)
