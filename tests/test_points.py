"""Tests of posenc.points: its bits match the reference and posenc.encode.

Examples in docs/grids.md match other libraries.
"""

import functools
import math
import re
from types import SimpleNamespace

import ml_dtypes
import numpy as np
import pytest

import posenc
from conftest import DTYPES, assert_same_bits, bits_of, peak_of
from peers import transformers
from reference import Reference, round_to
from test_grid import GUIDE, SORTED_BY, HarmonicEmbedding

# ---- values ------------------------------------------------------------------------------------------------

LARGE = 2**62 + 2**38 + 1
COORDINATES = {
    "reals": np.array([[0.25, -3.0, 1e9 + 1 / 3], [np.pi, 1e-300, -(2.0**63)], [0.0, 65520.0, 7.7]]),
    "integers": np.array([[LARGE, -5, 2**63 - 1], [-(2**63), 0, 2**53 + 1], [1, -LARGE, 3]]),
}


def mantissa_and_exponent(x):
    numerator, denominator = x.as_integer_ratio()
    return numerator, 1 - denominator.bit_length()


@pytest.mark.parametrize("kind", COORDINATES)
@pytest.mark.parametrize("group, layout", SORTED_BY)
@pytest.mark.parametrize("axes, widths", [((2, 0, 1), (4, 2, 6)), ((1, 2, 0), (4, 4, 4))],
                         ids=["unequal", "equal"])
def test_points_match_the_reference(kind, group, layout, axes, widths, dtype):
    scales, bases = (1.5, math.pi, 1.0), (50, 1e4, 1e6)
    table = posenc.points(
        COORDINATES[kind], 15, axes=axes, widths=widths, group=group, layout=layout, include_input="last",
        order="cos", position_scale=scales, base=bases, dtype=dtype,
    )
    references = [
        Reference(width, position_scale=scale, base=base, order="cos")
        for width, scale, base in zip(widths, scales, bases, strict=True)
    ]
    keys = [(rank, j // 2, j % 2) for rank, k in enumerate(axes) for j in range(widths[k])]
    keys.sort(key=lambda key: SORTED_BY[group, layout](*key))
    for point, row in zip(COORDINATES[kind].tolist(), bits_of(table), strict=True):
        expected = [references[axes[rank]].bits(point[axes[rank]], 2 * i + f, dtype) for rank, i, f in keys]
        assert row.tolist() == expected + [round_to(*mantissa_and_exponent(point[k]), dtype) for k in axes]


@pytest.mark.parametrize("dtype", DTYPES)
def test_inputs_are_rounded_once(dtype):
    rng = np.random.default_rng(1)
    # half-way points of each smaller dtype and their neighbours in float64, from subnormal numbers to 2**61
    ties = [s * (2 * n + 1) * 2.0**(e + k) for s in (1, -1) for bits, e in ((11, -25), (8, -134), (24, -150))
            for n in rng.integers(1, 2**bits, 8).tolist() for k in (0, 1, 9, 60 - e - bits, -e)]
    reals = np.array(ties + [np.nextafter(x, end) for x in ties for end in (-np.inf, np.inf)] + [1e-320, 65519.99, 65520.0])
    near_ties = [(2 * n + 1 << k) + d for n in (2**8, 2**11 + 6, 2**24 + 5) for k in (20, 37)
                 for d in (-1, 0, 1)]
    integers = np.append(rng.integers(-(2**63), 2**63 - 1, 200) >> rng.integers(0, 62, 200), near_ties)
    for coordinates in (reals[abs(reals) < 2.0**63], integers):
        table = posenc.points(coordinates[:, None], 1, include_input="first", dtype=dtype)
        expected = [round_to(*mantissa_and_exponent(x), dtype) for x in coordinates.tolist()]
        assert bits_of(table[:, 0]).tolist() == expected


def test_columns_without_values_are_zero():
    coordinates = np.random.default_rng(2).normal(size=(5, 3))
    out = np.full((5, 26), np.nan)
    table = posenc.points(coordinates, 26, odd="zero", include_input="last", dtype="float64", out=out)
    assert (bits_of(table[:, 18:23]) == 0).all()
    assert_same_bits(table[:, 23:].copy(), coordinates)
    for k in range(3):
        assert_same_bits(table[:, 6 * k : 6 * k + 6].copy(),
                         posenc.encode(coordinates[:, k], 6, dtype="float64"))
    table = posenc.points(coordinates, 20, odd="truncate", dtype="float64")
    assert_same_bits(table[:, 16:].copy(), posenc.encode(coordinates[:, 2], 8, dtype="float64")[:, :4].copy())


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_input_column_of_nan_is_canonical(dtype):
    table = bits_of(posenc.points([[np.nan], [-np.nan]], 3, include_input="first", dtype=dtype))
    assert (table[:, 0] == table[0, 1]).all()


# ---- shapes and arrays -------------------------------------------------------------------------------------


def test_points_have_the_expected_shapes():
    assert posenc.points([3, 4], 8).shape == (8,)
    assert posenc.points([[3], [4]], 8).shape == (2, 8)
    assert posenc.points(np.zeros((2, 3, 4, 2)), 8).shape == (2, 3, 4, 8)
    assert posenc.points(np.zeros((2, 0, 2)), 8).shape == (2, 0, 8)
    assert posenc.points(np.zeros((5, 2)), 0).shape == (5, 0)
    assert_same_bits(posenc.points([3, 4], 8),
                     np.concatenate([posenc.encode([3], 4)[0], posenc.encode([4], 4)[0]]))


@pytest.mark.parametrize("block_bytes", [1, 200, posenc._axes.axis_columns.BLOCK_BYTES])
@pytest.mark.parametrize("group", ["axis", "function"])
def test_every_output_holds_the_same_values(group, block_bytes, monkeypatch):
    monkeypatch.setattr(posenc._axes.axis_columns, "BLOCK_BYTES", block_bytes)
    coordinates = np.random.default_rng(3).normal(size=(2, 3, 5, 7))[..., 1:6:2].transpose(1, 2, 0, 3)
    halves = [posenc.encode(coordinates[..., k], 4, layout="halves") for k in range(3)]
    parts = [h[..., :2] for h in halves] + [h[..., 2:] for h in halves] if group == "function" else halves
    expected = np.concatenate(parts, axis=-1)
    whole, wide = np.full((3, 5, 2, 12), np.nan, np.float32), np.full((5, 6, 2, 20), np.nan, np.float32)
    for out in (whole, wide[:, ::-2, :, 3:15].swapaxes(0, 1)):
        assert posenc.points(coordinates, 12, group=group, layout="halves", out=out) is out
        assert_same_bits(out.copy(), expected)
    assert np.isnan(wide[:, ::2]).all() and np.isnan(wide[..., :3]).all() and np.isnan(wide[..., 15:]).all()


@pytest.mark.parametrize("call", [
    lambda memory, out: posenc.points(memory[:10].reshape(10, 1), 4, dtype="float64", out=out.reshape(10, 4)),
    lambda memory, out: posenc.points(memory[:20].reshape(10, 2), 4, dtype="float64", out=out.reshape(10, 4)),
    lambda memory, out: posenc.grid((memory[:2], memory[:5]), 4, dtype="float64", out=out.reshape(2, 5, 4)),
], ids=["one axis", "two axes", "grid"])
def test_coordinates_may_overlap_out(call, monkeypatch):
    # a row is written before the next is computed
    monkeypatch.setattr(posenc._axes.axis_columns, "BLOCK_BYTES", 1)
    memory = np.arange(40.0)
    assert_same_bits(call(memory, memory), call(np.arange(40.0), np.empty(40)))


def test_coordinates_of_other_dtypes_are_exact():
    for dtype in (np.float16, np.float32, ml_dtypes.bfloat16, np.uint8, np.uint64):
        coordinates = np.array([[1.5, 3], [2, 100]]).astype(dtype)
        assert_same_bits(posenc.points(coordinates, 8), posenc.points(coordinates.astype(np.float64), 8))
    assert_same_bits(posenc.points([[2**60 + 1, 2]], 4, dtype="float64")[:, :2].copy(),
                     posenc.encode([2**60 + 1], 2, dtype="float64"))


@pytest.mark.parametrize("group", ["axis", "function"])
def test_points_needs_little_extra_memory(group):
    coordinates = np.random.default_rng(4).uniform(-1, 1, (1 << 16, 3))
    call = functools.partial(posenc.points, coordinates, 195, group=group, include_input="first")
    out = call()
    assert out.nbytes > 2**25
    assert peak_of(lambda: call(out=out)) < 2 * coordinates.nbytes + 2**23


# ---- errors ------------------------------------------------------------------------------------------------


def test_nothing_is_written_if_an_argument_is_wrong(monkeypatch):
    """Only the last coordinate is out of range, and each block has one row.

    test_mistakes.py tests the messages.
    """
    monkeypatch.setattr(posenc._axes.axis_columns, "BLOCK_BYTES", 1)
    out = np.full((9, 8), 7, np.float32)
    coordinates = np.zeros((9, 2))
    coordinates[-1, -1] = 2.0**63
    with pytest.raises(ValueError, match=r"coordinates has 9.22"):
        posenc.points(coordinates, 8, out=out)
    with pytest.raises(ValueError, match=r"coordinates\[..., 1\] has 4.6.* with position_offset 4.6"):
        posenc.points(coordinates / 2, 8, out=out, position_offset=(0, 2.0**62))
    assert (out == 7).all()


# ---- other libraries ---------------------------------------------------------------------------------------


def example(library):
    """Run the example for a library in docs/grids.md, and return the example's variables."""
    names = {"np": np, "posenc": posenc}
    section = GUIDE.split("\n## Points\n")[1]
    pattern = rf"^This call is equivalent to\s`[^`]*` in {library}.*?```python\n(.*?)```"
    exec(re.search(pattern, section, re.MULTILINE | re.DOTALL)[1], names)
    return SimpleNamespace(**names)


def assert_close(table, expected, largest_angle, unit):
    """Check that errors are at most a few roundings of the largest angle, plus one rounding each of the value
    and the sum.
    """
    assert table.shape == expected.shape
    assert abs(table.astype(np.float64) - expected).max() <= (6 * largest_angle + 4) * unit


def test_the_example_matches_pytorch3d():
    names = example("PyTorch3D")
    assert_close(names.table, HarmonicEmbedding(10)(names.xyz), 512, 2.0**-24)


def test_the_example_matches_detr():
    names, torch = example("DETR"), pytest.importorskip("torch")
    embedding = transformers("detr").DetrSinePositionEmbedding(128, normalize=True)
    expected = embedding((len(names.mask), 3, *names.mask.shape[1:]), "cpu", torch.float32,
                         torch.from_numpy(names.mask))
    assert not names.mask.all(axis=(1, 2)).any() and names.mask.any(axis=(1, 2)).all()
    assert_close(names.table, expected.numpy(), 2 * math.pi, 2.0**-24)
