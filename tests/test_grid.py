"""Compare the bits of grids with encode and the reference, and the calls in docs/grids.md with the libraries
listed there.
"""

import math
import re
import sys
import types
import warnings
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, bits_of, peak_of
from peers import timm_sincos

GUIDE = (Path(__file__).parent.parent / "docs" / "grids.md").read_text()

# ---- columns -----------------------------------------------------------------------------------------------

# sort key of a column for each of the six orders, also for unequal widths
SORTED_BY = {
    ("axis", "halves"): lambda axis, frequency, function: (axis, function, frequency),
    ("axis", "interleaved"): lambda axis, frequency, function: (axis, frequency, function),
    ("function", "halves"): lambda axis, frequency, function: (function, axis, frequency),
    ("function", "interleaved"): lambda axis, frequency, function: (function, frequency, axis),
    ("frequency", "halves"): lambda axis, frequency, function: (frequency, function, axis),
    ("frequency", "interleaved"): lambda axis, frequency, function: (frequency, axis, function),
}


@pytest.mark.parametrize("group, layout", SORTED_BY)
@pytest.mark.parametrize("include_input", [None, "first", "last"])
def test_columns_are_those_of_points(group, layout, include_input, dtype, isa):
    """test_points.py compares points with the reference."""
    coordinates = [range(4), np.linspace(-2.0, 3.0, 5), range(7, 1, -1)]
    cells = np.stack(np.meshgrid(*coordinates, indexing="ij"), axis=-1)
    for axes, widths, odd, extra in (
        ((0, 1, 2), (8, 8, 8), "error", 0), ((2, 0, 1), (2, 12, 6), "error", 0),
        ((1, 2, 0), (6, 6, 6), "truncate", -3), ((0, 2, 1), (6, 0, 4), "zero", 3),
    ):
        arguments = {"d_model": sum(widths) + (3 if include_input else 0) + extra, "axes": axes,
                     "widths": widths, "odd": odd, "group": group, "layout": layout,
                     "include_input": include_input, "dtype": dtype, "base": (100, 1000, 2), "order": "cos"}
        assert_same_bits(posenc.grid(coordinates, **arguments), posenc.points(cells, **arguments))


def test_column_orders_match_the_guide():
    rows = re.findall(r'^\| `"(\w+)"` \| `"(\w+)"` \| `([^`]*)`', GUIDE, re.MULTILINE)
    assert {row[:2] for row in rows} == set(SORTED_BY)
    angles = {"h": 3.0, "w": 5.0}
    for group, layout, picture in rows:
        row = posenc.grid(([3], [5]), 8, group=group, layout=layout, frequencies=[1.0, 0.25],
                          dtype="float64")[0, 0]
        function = {"s": math.sin, "c": math.cos}
        expected = [function[f](angles[axis] * (1.0, 0.25)[int(i)]) for f, axis, i in picture.split()]
        assert np.allclose(row, expected, rtol=0, atol=1e-15)


# ---- encodings ---------------------------------------------------------------------------------------------

BANDS = [posenc.Encoding(16, frequencies=np.linspace(1, end, 8), position_scale=math.pi, layout="halves")
         for end in (3, 4.5)]
# name: (d_model, the encoding of each axis)
GIVEN = {
    "preset": (posenc.preset("whisper", 6), [posenc.preset("whisper", 6)] * 2),
    "dependent on d_model": (posenc.preset("nerf", 20), [posenc.preset("nerf", 20)] * 2),
    "one for each axis": ([posenc.Encoding(4, base=7), posenc.Encoding(8)],
                          [posenc.Encoding(4, base=7), posenc.Encoding(8)]),
    "frequencies": (tuple(BANDS), BANDS),
}


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("include_input", [None, "first"])
def test_d_model_may_be_the_encoding_of_each_axis(name, include_input):
    d_model, encodings = GIVEN[name]
    h, w = [0, 3, 5], [-1.5, 0.25]
    expected = np.stack([
        np.concatenate([([i, j] if include_input else []),
                        *(e.encode([p])[0] for e, p in zip(encodings, (i, j), strict=True))])
        for i in h for j in w
    ]).astype(np.float32)
    assert_same_bits(posenc.grid((h, w), d_model, include_input=include_input).reshape(6, -1), expected)
    cells = np.array([(i, j) for i in h for j in w])
    assert_same_bits(posenc.points(cells, d_model, include_input=include_input), expected)


# ---- coordinates -------------------------------------------------------------------------------------------


FORMULAS = {
    "index": lambda m, n, start: m,
    "normalized": lambda m, n, start: m / (start + n - 1 + Fraction(1, 10**6)),
    "centered": lambda m, n, start: (2 * m + 1) / Fraction(n) - 1,
    (0, 1): lambda m, n, start: m / Fraction(max(n - 1, 1)),
    (-0.1, 7): lambda m, n, start: Fraction(-0.1) + m * (7 - Fraction(-0.1)) / max(n - 1, 1),
}


@pytest.mark.parametrize("start", [0, 1, -3, 0.1])
@pytest.mark.parametrize("coordinates", FORMULAS, ids=str)
def test_coordinates_are_rounded_once(coordinates, start):
    for n in (1, 2, 7, 100):
        exactly = [FORMULAS[coordinates](k + Fraction(start), n, Fraction(start)) for k in range(n)]
        expected = np.array([float(x) for x in exactly])            # float rounds a Fraction to nearest
        table = posenc.grid(
            (n, 2), 6, start=(start, 0), coordinates=coordinates, include_input="last", dtype="float64",
            channel_first=True
        )
        assert_same_bits(np.ascontiguousarray(table[4, :, 0]), expected)
        assert_same_bits(np.ascontiguousarray(table[:2, :, 0].T), posenc.encode(expected, 2, dtype="float64"))


def test_large_integers_are_exact():
    start = 2**62 + 1
    table = posenc.grid((3, 2), 8, start=(start, 0))
    assert_same_bits(np.ascontiguousarray(table[:, 0, :4]), posenc.encode(range(start, start + 3), 4))
    assert_same_bits(posenc.grid((3, 2), 8, start=(np.int64(start), False + 0.0)), table)
    assert_same_bits(posenc.grid(3, 4, coordinates=np.array([-1.0, 1.0])), posenc.grid(3, 4, coordinates=(-1, 1)))
    assert_same_bits(posenc.grid((range(-(2**63), -(2**63) + 3),), 4),
                     posenc.encode(range(-(2**63), -(2**63) + 3), 4))


# ---- shapes and out ----------------------------------------------------------------------------------------


def test_grids_have_the_expected_shapes():
    assert posenc.grid((3, 4), 8).shape == (3, 4, 8)
    assert posenc.grid([np.int64(3), 4, 5], 12, extra_tokens=2).shape == (62, 12)
    assert posenc.grid(7, 8).shape == posenc.grid((7,), 8).shape == (7, 8)
    assert posenc.grid(np.array([3, 4]), 8, channel_first=True).shape == (8, 3, 4)
    assert posenc.grid((3, 4), 8, channel_first=True, extra_tokens=1).shape == (8, 13)
    assert posenc.grid((0, 4), 8).shape == (0, 4, 8)
    assert posenc.grid((0, 2**40), 8, coordinates="centered").shape == (0, 2**40, 8)
    assert (posenc.grid((3, 0), 8, extra_tokens=2) == np.zeros((2, 8))).all()
    assert posenc.grid((3, 4), 0).shape == (3, 4, 0)
    assert posenc.grid((1, 1), 4).tolist() == [[[0, 1, 0, 1]]]
    assert_same_bits(posenc.grid(7, 8), posenc.encode(7, 8))


@pytest.mark.parametrize("group, layout", SORTED_BY)
def test_every_output_layout_holds_the_same_values(group, layout, monkeypatch):
    convention = {"group": group, "layout": layout, "start": 1}
    table = posenc.grid((5, 6, 7), 12, **convention)
    flat = table.reshape(-1, 12)
    for block_bytes in (posenc._axes.axis_columns.BLOCK_BYTES, 3 * 48):
        monkeypatch.setattr(posenc._axes.axis_columns, "BLOCK_BYTES", block_bytes)
        outs = [np.full((5, 6, 7, 12), np.nan, np.float32),
                np.full((5, 6, 14, 20), np.nan, np.float32)[::-1, :, ::2, 3:15]]
        for out in outs:
            assert posenc.grid((5, 6, 7), 12, out=out, **convention) is out
            assert_same_bits(np.ascontiguousarray(out), table)
        first = posenc.grid((5, 6, 7), 12, channel_first=True, **convention)
        assert_same_bits(np.ascontiguousarray(np.moveaxis(first, 0, -1)), table)
        assert first.flags.c_contiguous
        out = np.full((424, 20), np.nan, np.float32)[::2, 3:15]
        posenc.grid((5, 6, 7), 12, extra_tokens=2, out=out, **convention)
        assert (bits_of(out[:2]) == 0).all()
        assert_same_bits(np.ascontiguousarray(out[2:]), flat)
        both = posenc.grid((5, 6, 7), 12, extra_tokens=2, channel_first=True, **convention)
        assert_same_bits(np.ascontiguousarray(both.T), np.ascontiguousarray(out))


def test_bfloat16_bits_are_written_to_uint16():
    table, out = posenc.grid((3, 4), 10, dtype="bfloat16", include_input="first"), np.zeros((3, 4, 10), np.uint16)
    posenc.grid((3, 4), 10, dtype="bfloat16", include_input="first", out=out)
    assert (out == bits_of(table)).all()
    posenc.points(np.indices((3, 4)).transpose(1, 2, 0), 10, dtype="bfloat16", include_input="first", out=out)
    assert (out == bits_of(table)).all()


def test_nan_affects_only_the_columns_of_its_axis():
    table = posenc.grid(([0.0, np.nan], 3), 8)
    assert (bits_of(table[1, :, :4]) == 0x7FC00000).all()
    assert_same_bits(table[1, :, 4:].copy(), posenc.encode(3, 4))


@pytest.mark.parametrize("shape, d_model, arguments", [
    ((256, 256), 256, {}), ((256, 256), 256, {"channel_first": True}),
    ((16, 64, 64), 258, {"include_input": "last", "coordinates": "centered", "group": "frequency", "odd": "zero"}),
    ((1, 65536), 256, {"coordinates": (-1, 1)}), ((65536, 1), 256, {"extra_tokens": 1}),
    ((1024, 1200), 68, {"dtype": "float16"}),
], ids=str)
def test_a_grid_takes_constant_extra_memory(shape, d_model, arguments):
    out = posenc.grid(shape, d_model, **arguments)
    assert out.nbytes >= 2**26
    assert peak_of(lambda: posenc.grid(shape, d_model, out=out, **arguments)) < 2**23


# ---- errors ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("arguments, name", [      # test_mistakes.py tries every argument
    ({"shape": (2, [0.0, 1.0, 2.0**63])}, "shape"), ({"shape": (2, [[1, 2, 3]])}, "shape"),
    ({"shape": (2, [0, 1, 2**62]), "position_offset": 2.0**62}, "position_offset"),
    ({"shape": (2, [0, 1, 2]), "start": 1}, "start"), ({"start": 2.0**63}, "start"),
    ({"start": (0, 0, 0)}, "start"),
    ({"shape": (2, [0, 1, 2]), "coordinates": "centered"}, r"with shape\[1\]"), ({"axes": (0, 2)}, "axes"),
    ({"start": 2.0**62, "position_offset": (0, 2.0**62)}, "position_offset"),
    ({"coordinates": (0, math.inf)}, "coordinates"), ({"widths": (4, 2)}, "widths"),
    ({"d_model": 6}, "d_model"),
    ({"d_model": [posenc.Encoding(4), 4]}, "d_model"), ({"d_model": posenc.Encoding(4), "base": 7}, "base"),
    ({"coordinates": (0.0, 1e300), "start": 1e9}, "shape"), ({"base": (1, 2, 3)}, "base"),
    ({"frequencies": [[1.0, 2.0], [1.0]]}, "frequencies"),
], ids=str)
def test_nothing_is_written_if_an_argument_is_wrong(arguments, name, monkeypatch):
    # one cell: a late error would come after a write
    monkeypatch.setattr(posenc._axes.axis_columns, "BLOCK_BYTES", 32)
    out = np.full((2, 3, 8), 7, np.float32)
    with pytest.raises((TypeError, ValueError), match=name):
        posenc.grid(**{"shape": (2, 3), "d_model": 8, "out": out} | arguments)
    assert (out == 7).all()


# ---- other libraries ---------------------------------------------------------------------------------------


def imported(name):
    """Import a module; skip the test if it is not installed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name)


# Formulas, in float64, from libraries that these tests do not import.


def posemb_sincos_2d(h, w, dim):
    """SimpleViT, vit_pytorch/simple_vit.py."""
    y, x = np.mgrid[:h, :w]
    omega = 1.0 / 10000 ** (np.arange(dim // 4) / (dim // 4 - 1))
    y, x = y.reshape(-1, 1) * omega, x.reshape(-1, 1) * omega
    return np.concatenate([np.sin(x), np.cos(x), np.sin(y), np.cos(y)], axis=1)


def add_timing_signal_nd(x):
    """tensor2tensor, layers/common_attention.py."""
    *shape, channels = x.shape
    timescales = channels // (2 * len(shape))
    rates = np.exp(np.arange(timescales) * -(math.log(1e4) / (timescales - 1)))
    for dim, length in enumerate(shape):
        time = np.arange(length)[:, None] * rates
        signal = np.zeros((length, channels))
        signal[:, 2 * dim * timescales : 2 * (dim + 1) * timescales] = np.concatenate([np.sin(time), np.cos(time)], axis=1)
        x = x + signal.reshape([length if k == dim else 1 for k in range(len(shape))] + [channels])
    return x


def points(*shape):
    return np.stack(np.meshgrid(*[np.linspace(-1, 1, n) for n in shape], indexing="ij"), axis=-1)


class Embedder:
    """NeRF, run_nerf_helpers.py."""

    def __init__(self, multires):
        self.frequencies = 2.0 ** np.linspace(0, multires - 1, multires)

    def embed(self, x):
        return np.concatenate([x] + [f(x * w) for w in self.frequencies for f in (np.sin, np.cos)], axis=-1)


def pos_enc(x, min_deg, max_deg):
    """mip-NeRF, internal/mip.py, with cos instead of sin(. + pi / 2)."""
    scales = 2.0 ** np.arange(min_deg, max_deg)
    xb = (x[..., None, :] * scales[:, None]).reshape(*x.shape[:-1], -1)
    return np.concatenate([x, np.sin(xb), np.cos(xb)], axis=-1)


class HarmonicEmbedding:
    """PyTorch3D, renderer/implicit/harmonic_embedding.py."""

    def __init__(self, n, omega_0=1.0, logspace=True, append_input=True):
        self.frequencies = omega_0 * (2.0 ** np.arange(n) if logspace else np.linspace(1, 2.0 ** (n - 1), n))
        self.append_input = append_input

    def __call__(self, x, diag_cov=None):
        flat = (*x.shape[:-1], -1)
        embed = (x[..., None] * self.frequencies).reshape(flat)
        parts = [np.sin(embed), np.cos(embed)]
        if diag_cov is not None:
            damping = np.exp(-0.5 * diag_cov[..., None] * self.frequencies**2).reshape(flat)
            parts = [part * damping for part in parts]
        return np.concatenate(parts + [x] * self.append_input, axis=-1)


class Frequency:
    """tiny-cuda-nn, encodings/frequency.h."""

    def __init__(self, n):
        self.n = n

    def __call__(self, x):
        j = np.arange(x.shape[-1] * 2 * self.n)
        angle = np.pi * 2.0 ** (j // 2 % self.n) * x[..., j // (2 * self.n)]
        return np.where(j % 2, np.cos(angle), np.sin(angle))


def here():
    return globals()


def module(name):
    return lambda: vars(imported(name))


# library: (function that returns the namespace for its calls, precision)
HUGGING_FACE = "transformers.models."
LIBRARIES = {
    "ViT-MAE": (module(HUGGING_FACE + "vit_mae.modeling_vit_mae"), "float64"),
    "RT-DETR": (module(HUGGING_FACE + "rt_detr.modeling_rt_detr"), "float64"),
    "DETR": (module(HUGGING_FACE + "detr.modeling_detr"), "float32"),
    "timm": (lambda: vars(timm_sincos()), "float32"),
    "diffusers 2-D": (module("diffusers.models.embeddings"), "float64"),
    # scales positions in float32
    "diffusers 2-D, scaled": (module("diffusers.models.embeddings"), "float32"),
    "diffusers 3-D": (module("diffusers.models.embeddings"), "float64"),
    "SimpleViT": (here, "float64"), "tensor2tensor": (here, "float64"),
    "positional-encodings 2-D": (module("positional_encodings.torch_encodings"), "float32"),
    "positional-encodings 3-D": (module("positional_encodings.torch_encodings"), "float32"),
    "Perceiver": (module(HUGGING_FACE + "perceiver.modeling_perceiver"), "float32"),
    "NeRF": (here, "float64"), "mip-NeRF": (here, "float64"), "PyTorch3D": (here, "float64"),
    "tiny-cuda-nn": (here, "float64"),
}
NUMBERS = {"h": 6, "w": 9, "t": 5, "n": 7, "d": 48, "np": np, "posenc": posenc}
LINES = {line[0]: line[1:]
         for line in re.findall(r"^\| ([^`|]+) \| `([^`]+)` \| `(posenc[^`]+)` \|$", GUIDE, re.MULTILINE)}


def evaluated(library, call):
    names, arithmetic = LIBRARIES.get(library) or LIBRARIES[library.split(",")[0]]
    table = eval(call, {**names(), **NUMBERS,
                        **({"torch": sys.modules["torch"]} if "torch" in sys.modules else {})})
    return np.asarray(table), arithmetic


def ours(call, dtype):
    """Evaluate a call of posenc.grid from the guide, with `dtype` as an additional argument."""
    table = types.SimpleNamespace(grid=lambda *args, **kwargs: posenc.grid(*args, dtype=dtype, **kwargs))
    return eval(call, NUMBERS | {"posenc": table})


def test_every_line_of_the_guide_is_read():
    assert len(LINES) >= 20
    assert {line.split(",")[0] for line in LINES} == {library.split(",")[0] for library in LIBRARIES}
    assert GUIDE.count("| `posenc.grid(") == len(LINES)


@pytest.mark.parametrize("line", LINES)
def test_lines_of_the_guide_match_the_libraries(line):
    """Angles of up to 2,000 have float32 errors of 1e-4; another convention gives differences above 0.05."""
    theirs, call = LINES[line]
    expected, arithmetic = evaluated(line, theirs)
    table = ours(call, "float64")
    assert table.size == expected.size
    tolerance = 1e-11 if arithmetic == "float64" and expected.dtype == np.float64 else 1e-7 if arithmetic == "float64" else 1e-4
    assert abs(table - expected.reshape(table.shape)).max() <= tolerance


@pytest.mark.parametrize("threads", [None, 2])
@pytest.mark.parametrize("options", [{}, {"channel_first": True}, {"extra_tokens": 2}, {"group": "function"}])
@pytest.mark.parametrize("shape", [(5, 7), (70, 40), (3, 4, 5), (range(9, 2, -1), [3, 2, 4]), ([0, 10**6], 6)])
def test_wide_axes_have_the_values_of_points(shape, options, threads):
    """Consecutive integers are encoded for each cell if an axis has more than 32 columns."""
    d_model = 40 * len(shape)
    coordinates = np.stack(np.meshgrid(*(np.arange(n) if isinstance(n, int) else np.array(n) for n in shape),
                                       indexing="ij"), -1)
    group = {name: value for name, value in options.items() if name == "group"}
    expected = posenc.points(coordinates, d_model, **group)
    result = posenc.grid(shape, d_model, threads=threads, **options)
    if "channel_first" in options:
        result = np.moveaxis(result, 0, -1)
    if "extra_tokens" in options:
        assert not result[:2].any()
        result = result[2:].reshape(expected.shape)
    assert_same_bits(np.ascontiguousarray(result), expected)
