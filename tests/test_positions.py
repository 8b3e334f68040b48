"""Tests of padding_idx, and of the positions of padded and packed batches."""

import numpy as np
import pytest

import posenc
from conftest import assert_same_bits, bits_of
from reference import Reference

LOWEST, BEYOND = -(2**63), 2**63

# ---- padding_idx -------------------------------------------------------------------------------------------

# rows at the ends of blocks and inside them; 1,200 rows are more than two blocks
INSIDE = [0, 1, 2, 31, 32, 69, 511, 512, 700, 1199]


def with_zero_row(table, positions, padding_idx):
    """Return a copy of the table with zeros in the rows whose position is padding_idx."""
    table = table.copy()
    table[np.array([p == padding_idx for p in positions], bool)] = 0
    return table


@pytest.mark.parametrize("positions, padding_idx", [
    (range(-5, 6), 1), (range(6, -6, -1), 0), (range(-7, 40, 3), 2), (range(BEYOND - 9, BEYOND), BEYOND - 1),
    (range(LOWEST, LOWEST + 40), LOWEST), (range(LOWEST, BEYOND, 2**60), 0),
    (np.array([3, -1, LOWEST, -1]), -1), (np.array([0.5, -0.0, 1e-300, np.nan, np.inf]), 0),
    (np.array([1.0, 2.0**53, 2.0**53 + 2]), 2**53), (np.array([2.0**53, 2.0**53 + 2]), 2**53 + 1),
    (np.array([2.0**63 - 1024, -(2.0**63)]), BEYOND - 1),
])
def test_tables_with_padding_match_the_reference(isa, dtype, positions, padding_idx):
    for convention in ({}, {"layout": "halves", "scale": -2.0}, {"odd": "zero", "spacing": "endpoint"},
                       {"scale": 1e300}):
        convention["padding_idx"] = padding_idx
        expected = Reference(7, **convention).table(list(positions), dtype)
        np.testing.assert_array_equal(bits_of(posenc.encode(positions, 7, dtype=dtype, **convention)),
                                      expected)


@pytest.mark.parametrize("rows, d_model, step", [
    (1200, 33, 1), (1200, 64, 3), (1200, 64, -1), (1200, 33, -7), (1200, 33, 2**49 + 1),
    *((rows, 10, 1) for rows in (1, 2, 3, 5, 31, 40, 70)),
])
def test_padding_in_ranges(isa, dtype, rows, d_model, step):
    start = -(rows // 2) * step
    positions = range(start, start + rows * step, step)
    plain = posenc.encode(positions, d_model, dtype=dtype)
    x = np.random.default_rng(0).standard_normal((2, *plain.shape)).astype(plain.dtype)
    outside = [positions[0] - step, positions[-1] + step, *([positions[9] + 1] if abs(step) > 1 else [])]
    for padding_idx in [positions[i] for i in INSIDE if i < rows] + outside:
        expected = with_zero_row(plain, positions, padding_idx)
        assert_same_bits(posenc.encode(positions, d_model, dtype=dtype, padding_idx=padding_idx), expected)
        added = posenc.add_to(x.copy(), positions, x_scale=0.3, padding_idx=padding_idx)
        assert_same_bits(added, x * np.array(0.3).astype(x.dtype) + expected)


def test_padding_in_arrays_streams_and_strided_out(isa, dtype):
    positions = range(-20, 130)
    convention = {"padding_idx": 45, "position_offset": 3.5}           # compared before the offset
    expected = posenc.encode(positions, 34, dtype=dtype, **convention)
    assert not bits_of(expected[65]).any()
    assert bits_of(expected).any(axis=1).sum() == len(positions) - 1
    rows = np.array(positions)
    for array in (rows, rows.astype(np.int16), rows.astype(np.float64), rows.astype(np.float16),
                  rows.reshape(3, 50)):
        assert_same_bits(posenc.encode(array, 34, dtype=dtype, **convention).reshape(expected.shape),
                         expected)
    assert_same_bits(posenc.encode(np.array(45), 34, dtype=dtype, **convention), expected[65])
    assert_same_bits(posenc.encode(positions[::-1], 34, dtype=dtype, **convention), expected[::-1])
    for chunk in (1, 7, 66, 1000):
        chunks = [c.values for c in posenc.stream(positions, 34, chunk_rows=chunk, dtype=dtype, **convention)]
        assert_same_bits(np.concatenate(chunks), expected)
    out = np.empty((len(positions), 40), expected.dtype)[::-1, 3:37]
    assert_same_bits(np.ascontiguousarray(posenc.encode(positions, 34, dtype=dtype, out=out, **convention)),
                     expected)


# ---- positions of batches ----------------------------------------------------------------------------------

MASKS = {
    "full": np.ones((2, 5), bool),
    "left and right": np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 1, 1, 1]], bool),
    "all padding": np.zeros((2, 3), bool), "holes": np.array([[1, 0, 1, 0, 0, 1], [0, 1, 0, 0, 1, 0]], bool),
    "random": np.random.default_rng(0).random((20, 60)) < 0.7, "no rows": np.zeros((0, 5), bool),
    "no columns": np.zeros((3, 0), bool),
}


def counted(mask, padding_idx, start):
    """Count positions token by token."""
    positions = np.full(mask.shape, padding_idx, np.int64)
    for row in np.ndindex(mask.shape[:-1]):
        next_position = np.broadcast_to(start, mask.shape[:-1])[row]
        for i in np.flatnonzero(mask[row]):
            positions[(*row, i)] = next_position
            next_position += 1
    return positions


def assert_positions(positions, expected):
    __tracebackhide__ = True
    assert positions.dtype == np.int64
    assert positions.flags.writeable
    np.testing.assert_array_equal(positions, expected)
    assert positions.shape == np.shape(expected)


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
@pytest.mark.parametrize("padding_idx", [-1, 0, 1, 5])
def test_positions_of_masks(mask, padding_idx):
    expected = counted(mask, padding_idx, padding_idx + 1)
    real = () if mask.size and not mask.any() else (np.float16, np.float64)     # a real mask must contain a 1
    for dtype in (bool, np.int8, np.uint64, np.int64, *real):
        assert_positions(posenc.positions_from_mask(mask.astype(dtype), padding_idx=padding_idx), expected)
    mirrored = counted(mask[:, ::-1], padding_idx, padding_idx + 1)
    assert_positions(posenc.positions_from_mask(mask[:, ::-1], padding_idx=padding_idx), mirrored)
    starts = np.arange(len(mask), dtype=np.uint8) * 10
    at_starts = counted(mask, padding_idx, starts)
    assert_positions(posenc.positions_from_mask(mask, padding_idx=padding_idx, start=starts), at_starts)
    deep = np.stack([mask, mask])
    assert_positions(posenc.positions_from_mask(deep, start=starts), counted(deep, -1, starts))
    if len(mask):
        assert_positions(posenc.positions_from_mask(mask[0].tolist()), counted(mask[0], -1, 0))


@pytest.mark.parametrize("padding_idx", [0, 1, 2])
@pytest.mark.parametrize("past", [0, 7])
def test_masks_match_transformers(padding_idx, past):
    """Compare with the code of transformers, which comes from fairseq."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    m2m = transformers.models.m2m_100.modeling_m2m_100.M2M100SinusoidalPositionalEmbedding
    nllb = transformers.models.nllb_moe.modeling_nllb_moe.NllbMoeSinusoidalPositionalEmbedding
    speech = transformers.models.speech_to_text.modeling_speech_to_text.Speech2TextSinusoidalPositionalEmbedding
    for mask in MASKS.values():
        tokens = torch.from_numpy(np.where(mask, 9, padding_idx))
        positions = posenc.positions_from_mask(tokens.ne(padding_idx), padding_idx=padding_idx,
                                               start=padding_idx + 1 + past)
        for peer in (m2m, nllb):
            assert_positions(positions,
                             peer.create_position_ids_from_input_ids(tokens, padding_idx, past).numpy())
        assert_positions(positions,
                         speech.create_position_ids_from_input_ids(None, tokens, padding_idx, past).numpy())


LENGTH_LISTS = [[], [0], [4], [3, 0, 2, 5], [0, 0, 1, 0], [0, 0, 0], [0, 7],
                np.random.default_rng(1).integers(0, 40, 50)]


@pytest.mark.parametrize("lengths", LENGTH_LISTS, ids=len)
def test_positions_of_lengths(lengths):
    expected = [p for n in lengths for p in range(n)]
    assert_positions(posenc.positions_from_lengths(lengths), expected)
    assert_positions(posenc.positions_from_lengths(lengths, start=-3), [p - 3 for p in expected])
    starts = np.arange(len(lengths)) * 1000 + LOWEST
    with_starts = [int(s) + p for s, n in zip(starts, lengths, strict=True) for p in range(n)]
    assert_positions(posenc.positions_from_lengths(np.array(lengths, np.int32), start=starts), with_starts)
    cu_seqlens = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
    assert_positions(posenc.positions_from_lengths(np.diff(cu_seqlens)), expected)
    segment_ids = np.repeat(np.arange(len(lengths)), lengths)
    assert_positions(posenc.positions_from_segments(segment_ids), expected)
    for dtype in ("float32", "bfloat16"):
        packed = posenc.encode(posenc.positions_from_lengths(lengths), 12, dtype=dtype)
        each = [posenc.encode(int(n), 12, dtype=dtype) for n in (*lengths, 0)]
        assert_same_bits(packed, np.concatenate(each))


def test_lengths_beyond_the_memory_are_refused():
    for lengths in ([10**15], [2**60], [2**62, 2**62], [2**62] * 4 + [1]):
        with pytest.raises((MemoryError, ValueError), match=rf"lengths needs an array of shape \({sum(lengths)},\)"):
            posenc.positions_from_lengths(lengths)


@pytest.mark.parametrize("cu_seqlens", [[0, 3, 5], [0, 0, 1], np.array([0, 4, 4, 9], np.int32)], ids=str)
def test_cumulative_lengths_are_refused(cu_seqlens):
    with pytest.raises(ValueError, match=r"lengths begins with 0, .* pass numpy\.diff\(lengths\)"):
        posenc.positions_from_lengths(cu_seqlens)


@pytest.mark.parametrize("n", [0, 1, 2, 50])
def test_positions_of_segments(n):
    ids = np.random.default_rng(n).integers(0, 3, (2, 6, n)).astype(np.int16)
    expected = np.zeros(ids.shape, np.int64)
    for *row, i in np.ndindex(ids.shape):
        if i and ids[(*row, i)] == ids[(*row, i - 1)]:
            expected[(*row, i)] = expected[(*row, i - 1)] + 1
    assert_positions(posenc.positions_from_segments(ids), expected)
    with_padding = np.where(ids == 1, 4, expected + 5)
    assert_positions(posenc.positions_from_segments(ids, padding_segment=1, padding_idx=4), with_padding)
    starts = np.arange(6) * 7
    assert_positions(posenc.positions_from_segments(ids, start=starts), expected + starts[:, None])


def test_arguments_may_be_tensors():
    torch = pytest.importorskip("torch")
    mask = torch.tensor([[False, True, True], [True, True, False]])
    with pytest.raises(TypeError, match=r"mask is of type Tensor, expected .*; posenc.torch accepts it"):
        posenc.positions_from_mask(mask.bfloat16())
    for tensor in (mask, mask.int(), mask.float()):
        assert_positions(posenc.positions_from_mask(tensor, start=torch.tensor([5, 9])),
                         [[-1, 5, 6], [9, 10, -1]])
    assert_positions(posenc.positions_from_segments(mask.int(), padding_segment=0), [[-1, 0, 1], [0, 1, -1]])
    assert_positions(posenc.positions_from_lengths(torch.tensor([2, 1])), [0, 1, 0])


def test_positions_reach_the_limits_of_int64():
    assert_positions(posenc.positions_from_mask([0, 1, 1], start=BEYOND - 3), [-1, BEYOND - 3, BEYOND - 2])
    assert_positions(posenc.positions_from_mask([1, 0, 1], start=LOWEST), [LOWEST, -1, LOWEST + 1])
    last = [BEYOND - 2, BEYOND - 1]
    assert_positions(posenc.positions_from_lengths([2, 1], start=last), [*last, BEYOND - 1])
    assert_positions(posenc.positions_from_segments([3, 3], padding_idx=LOWEST), [LOWEST + 1, LOWEST + 2])


