"""`identify` recognises every preset and the tables of other libraries, and matches no tables without a convention."""

import functools
import json
import math

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import posenc
from posenc import _cli
from posenc._cli.check import NO_MATCH
from posenc.check import identify
from posenc.check.conventions import changes_of

RNG = np.random.default_rng
ROWS = 200
NAMES = list(posenc.presets())
COORDINATES = {"nerf", "tiny-cuda-nn", "pi0", "depthcharge"}       # presets for positions in [0, 1)


@functools.cache
def identified(table, shape, dtype, coordinates):
    """Return the matches of a table; they are cached because several presets may have the same table."""
    positions = np.arange(ROWS) / 256 if coordinates else None
    return identify(np.frombuffer(table, dtype).reshape(shape), positions)


def has_table(name, d_model):
    try:
        return bool(posenc.preset(name, d_model))
    except ValueError:
        return False


@pytest.mark.parametrize("name, d_model, kind", [case for case in (
    *((name, *size) for name in NAMES for size in ((7, "float16"), (64, "float32"))),
    *(pytest.param(name, d_model, kind, marks=pytest.mark.long)
      for name in NAMES for d_model in (7, 8, 15, 64, 100, 512) for kind in ("float32", "float16")),
) if has_table(*getattr(case, "values", case)[:2])])
def test_every_preset_is_identified(name, d_model, kind):
    encoding = posenc.preset(name, d_model)
    coordinates = name in COORDINATES
    positions = np.arange(ROWS) / 256 if coordinates else range(ROWS)
    table = encoding.encode(positions, dtype=kind)
    matches = identified(table.tobytes(), table.shape, table.dtype, coordinates)
    assert name in matches[0].presets
    best = matches[0]
    assert np.array_equal(best.positions, positions)
    assert np.array_equal(best.encoding.encode(positions), encoding.encode(positions))
    assert best.reason == "every value correctly rounded" and best.difference == 0


@pytest.mark.parametrize("kind, stop", [("float32", 800), ("float32", 34), ("float64", 11),
                                        pytest.param("float16", 800, marks=pytest.mark.long)])
@pytest.mark.parametrize("convention", [
    {"base": 20000.0}, {"scale": 2.0}, {"base": 500.0, "layout": "halves", "order": "cos"},
    {"base": 16.9, "spacing": "endpoint"},
    {"base": 500000.0, "scale": 0.125}, {"frequency_scale": 0.01, "layout": "halves"}, {"frequency_scale": math.pi / 4},
    {"base": 0.0001, "frequency_scale": 0.0001},     # growing frequencies
], ids=str)
def test_parameters_without_a_preset_are_identified(convention, kind, stop):
    best = identify(posenc.Encoding(64, **convention).encode(range(3, stop), dtype=kind))[0]
    assert best.presets == () and best.positions == range(3, stop)
    assert changes_of(best.encoding) == convention


def numpy_table(d_model, scale, rows=1000, dtype="float32"):
    """Return sines and cosines of float64 angles, rounded to a dtype."""
    angles = np.arange(rows)[:, None] * (scale * 10000.0 ** (-np.arange(d_model // 2) / (d_model // 2)))
    return np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(dtype)


@pytest.mark.parametrize("d_model, scale", [
    (64, 1 / 3), (512, math.pi / 180), (64, math.tau), (512, math.pi), (32, 0.02604528764013331),
])
def test_a_frequency_scale_has_all_its_digits(d_model, scale):
    """Its name, or all digits that the values determine, with the default base; the last ones are not float32 angles."""
    best = identify(numpy_table(d_model, scale))[0]
    assert best.encoding.frequency_scale == pytest.approx(scale, rel=1e-15 if scale in (1 / 3, math.pi) else 1e-8)
    assert best.encoding == posenc.Encoding(d_model, layout="halves", frequency_scale=best.encoding.frequency_scale)
    assert best.reason in ("rounding", "every value correctly rounded")


@pytest.mark.parametrize("rows, d_model, scale", [(500, 2, 2.5), (3, 2, math.sqrt(2)), (3, 4, 2.0)])
def test_equivalent_conventions_are_listed_once(rows, d_model, scale):
    """Base, spacing and layout have no effect on two columns; base=100, spacing="endpoint" is the default for four."""
    encoding = posenc.Encoding(d_model, scale=scale)
    for positions in (None, np.arange(float(rows))):
        only, = identify(encoding.encode(rows), positions)
        assert (only.encoding, list(only.positions), only.difference) == (encoding, list(range(rows)), 0)


@pytest.mark.parametrize("convention, positions", [
    *(({"base": 500.0}, positions) for positions in (
        2000, range(1, 4001, 2), range(10**18, 10**18 + 600), RNG(0).uniform(0, 300, 60),
        10**18 + np.cumsum(RNG(0).integers(1, 30, 60)))),
    *(({"layout": "halves", "spacing": "endpoint"}, positions) for positions in (
        50, range(10**9, 10**9 + 50), np.linspace(0, 999, 50), RNG(0).integers(-(2**62), 2**62, 50))),
], ids=lambda value: type(value).__name__)
def test_known_positions_are_used(convention, positions):
    encoding = posenc.Encoding(64, **convention)
    table = encoding.encode(positions)
    best, *others = identify(table, positions)
    assert not others and (best.encoding, best.difference) == (encoding, 0)
    wrong = 1 + (np.arange(positions) if isinstance(positions, int) else np.asarray(positions))
    assert identify(table, wrong) == []


@settings(max_examples=6, deadline=None)
@given(pairs=st.integers(3, 48), base=st.floats(10, 1e5), scale=st.sampled_from([1.0, 0.05, 3.7, 22.6]),
       start=st.integers(0, 1000), layout=st.sampled_from(["interleaved", "halves"]),
       order=st.sampled_from(["sin", "cos"]), spacing=st.sampled_from(["paper", "endpoint"]))
def test_random_conventions_are_identified(pairs, base, scale, start, layout, order, spacing):
    encoding = posenc.Encoding(2 * pairs, base=base, scale=scale, layout=layout, order=order, spacing=spacing)
    positions = range(start, start + 300)
    best = identify(encoding.encode(positions))[0]
    # a preset with an offset, such as opennmt-tf, has the same table at positions that start lower
    assert [p + best.encoding.position_offset for p in best.positions] == list(positions)
    assert (best.encoding.layout, best.encoding.order) == (layout, order)
    # base and spacing are ambiguous (the shorter number is preferred), so compare the frequencies
    np.testing.assert_allclose(best.encoding.frequencies, encoding.frequencies, rtol=1e-3)
    assert best.difference <= 1e-4 * scale


# ---- tables without a convention ---------------------------------------------------------------------------

WITHOUT = {
    "normal": lambda: RNG(0).normal(size=(512, 64)),
    "initialised small": lambda: RNG(0).normal(0, 0.02, (512, 512)),
    "uniform": lambda: RNG(0).uniform(-1, 1, (512, 64)),
    "orthogonal": lambda: np.linalg.qr(RNG(0).normal(size=(512, 64)))[0],
    "pairs of random angles": lambda: posenc.encode(RNG(0).uniform(0, 7, 300 * 32), 2).reshape(300, 64),
    "rows shuffled": lambda: RNG(0).permutation(posenc.encode(60, 8)),
    "columns shuffled": lambda: RNG(0).permutation(posenc.encode(500, 64), axis=1),
    "columns of another table": lambda: np.hstack([posenc.encode(99, 32), posenc.encode(99, 32, layout="halves", order="cos")]),
    "zeros": lambda: np.zeros((10, 8)), "ones": lambda: np.ones((10, 8)),
    "all NaN": lambda: np.full((10, 8), np.nan), "no rows": lambda: np.ones((0, 8)),
    "no columns": lambda: np.ones((8, 0)),
    "steps": lambda: np.tile(np.arange(50.0)[:, None] / 50, (1, 8)),
}


SLOW = ("orthogonal", "pairs of random angles", "rows shuffled", "columns shuffled")


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.long) if name in SLOW else name for name in WITHOUT])
def test_tables_without_a_convention_have_no_match(name):
    assert identify(WITHOUT[name]().astype(np.float32)) == []


@pytest.mark.parametrize("shape", [(1, 2), (2, 2), (3, 3), (1, 8), *(
    pytest.param(shape, marks=pytest.mark.long) for shape in [(1, 1), (1, 4), (2, 8), (5, 1), (6, 2)])])
def test_small_random_tables_have_no_match(shape):
    """If positions and parameters are unknown, a few numbers could match by chance."""
    assert identify(RNG(0).normal(size=shape).astype(np.float32)) == []
    angle = RNG(0).uniform(0, 7, shape[0])
    if shape[1] == 2 and shape[0] > 1:
        assert identify(np.stack([np.sin(angle), np.cos(angle)], 1).astype(np.float32)) == []
    for dtype in (np.float16, np.float32):              # for any angle, some position has the same sine to a few digits
        assert identify(np.sin(angle[:1, None]).astype(dtype)) == []


@pytest.mark.parametrize("d_model", [8, 16, 64])
def test_random_tables_have_no_match_at_known_positions(d_model):
    """With 16-bit arithmetic, high-frequency columns could have any value after a few rows; they are no evidence."""
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    for seed in range(2):
        for dtype in (bfloat16, np.float16):
            assert identify(RNG(seed).normal(size=(100, d_model)).astype(dtype), 100) == []
            assert identify(RNG(seed).uniform(-1, 1, (100, d_model)).astype(dtype), 100) == []


def test_tables_that_are_almost_those_of_a_convention_have_no_match():
    """Noise is not rounding; the exponents belong to columns; all rows are at one position, or most are NaN."""
    table, noise = posenc.encode(300, 64, base=500.0, dtype="float64"), RNG(0).normal(size=(300, 64))
    columns = posenc.Encoding(116, base=500.0, frequency_scale=math.pi / 180, scale=0.02, exponents="column")
    unfinished = np.where((np.arange(300) < 3)[:, None], table, np.nan)
    for wrong, positions in ((table + 1e-3 * noise, 300), (table + 0.02 * noise, 300), (unfinished, None),
                             (columns.encode(52, dtype="float64"), None), (table[[7] * 30], np.full(30, 7.0))):
        assert identify(wrong, positions) == []


# ---- tables of other libraries -----------------------------------------------------------------------------


def recipe(rows, d_model, dtype):
    """Return the table from the PyTorch tutorial, computed in `dtype`."""
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, dtype)
    position = torch.arange(rows, dtype=dtype)[:, None]
    rates = torch.exp(torch.arange(0, d_model, 2, dtype=dtype) * (-math.log(10000.0) / d_model))
    table = torch.zeros(rows, d_model, dtype=dtype)
    table[:, 0::2], table[:, 1::2] = torch.sin(position * rates), torch.cos(position * rates)
    return table


def test_the_arithmetic_is_identified():
    best = identify(recipe(1000, 64, "float32").bfloat16().float().numpy())[0]
    assert best.reason == "rounding, stored as bfloat16" and 1e-3 < best.difference < 2.1e-3
    best = identify(numpy_table(64, 1.0, 2000, "float64"))[0]
    assert "marian" in best.presets and best.reason == "float64 angles" and 0 < best.difference < 1e-11
    best, *others = identify(recipe(5000, 64, "float32").numpy())
    assert not others and "vaswani" in best.presets and best.positions == range(5000)
    assert best.reason == "float32 angles" and 1e-4 < best.difference < 1e-3


def test_scaled_tables_are_identified():
    """A table that is rounded, multiplied and rounded again differs by rounding, not by float32 angles."""
    table = posenc.encode(300, 64)
    assert "nemo-fixed" in identify(table * np.float32(1 / 8))[0].presets
    assert identify(table * np.float32(2))[0].encoding == posenc.Encoding(64, scale=2.0)
    best = identify(posenc.encode(50, 8) * 3)[0]
    assert (best.encoding, best.reason) == (posenc.Encoding(8, scale=3.0), "rounding")


# ---- shapes, dtypes, rows ----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16", "bits", ">f4"])
def test_every_dtype_is_accepted(dtype):
    table = posenc.encode(300, 64, dtype={"bits": "bfloat16", ">f4": "float32"}.get(dtype, dtype))
    table = table.view(np.uint16) if dtype == "bits" else table.astype(dtype) if dtype == ">f4" else table
    best = identify(table)[0]
    assert "vaswani" in best.presets and best.positions == range(300) and best.difference == 0


@pytest.mark.parametrize("positions", [
    range(1), range(5, 6), range(5, 7), range(50, 450), range(4096, 4136)], ids=str)
def test_the_first_position_is_identified(positions):
    table = posenc.encode(positions, 64)
    assert any(m.positions == positions and "vaswani" in m.presets and m.difference == 0 for m in identify(table))
    if len(positions) > 1:
        assert identify(table)[0].positions == positions


@pytest.mark.parametrize("padding_idx", [0, 1])
def test_a_padding_row_is_identified(padding_idx):
    encoding = posenc.preset("fairseq", 64, padding_idx=padding_idx)
    best = identify(encoding.encode(100))[0]
    assert "fairseq" in best.presets and best.positions == range(100) and best.difference == 0
    assert best.encoding == posenc.Encoding(64, layout="halves", spacing="endpoint", padding_idx=padding_idx)


@pytest.mark.parametrize("d_model, start, rows, scale", [
    (64, 1, 1000, 0.01), (16, 2, 100, 0.01), (512, 1, 3000, 1 / 64), (64, 3000, 2000, 0.001)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_slow_columns_are_placed_by_all_rows(d_model, start, rows, scale, dtype):
    encoding = posenc.Encoding(d_model, frequency_scale=scale)
    best = identify(encoding.encode(range(start, start + rows), dtype=dtype))[0]
    assert (best.positions, best.difference) == (range(start, start + rows), 0)


@pytest.mark.parametrize("convention", [
    {"d_model": 512, "base": 5e5}, {"d_model": 256, "base": 1e6, "frequency_scale": 0.25, "scale": 22.6},
    {"d_model": 512, "base": 1234.5, "spacing": "endpoint", "scale": 0.1}, {"d_model": 512, "base": 20.0},
    {"d_model": 128, "base": 12345.678, "frequency_scale": 1 / 3, "layout": "halves", "spacing": "endpoint"},
    {"d_model": 256, "frequency_scale": 0.25, "scale": 0.5},
])
@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16"])
def test_exact_tables_have_no_other_reason(convention, dtype):
    encoding = posenc.Encoding(**convention)
    best = identify(encoding.encode(range(1, 1501), dtype=dtype))[0]
    if dtype == "bfloat16" and encoding.base == 12345.678:      # shorter bases explain the table, too
        assert best.encoding != encoding and best.reason == "rounding"
    else:
        assert best[:1] + best[3:] == (encoding, 0, "every value correctly rounded")


def test_a_row_of_zeros_at_a_fractional_position_is_not_a_padding_row():
    positions = np.arange(40) + 0.5
    table = posenc.encode(positions, 64)
    table[7] = 0
    best = identify(table, positions)[0]
    assert best.encoding == posenc.Encoding(64) and best.reason.endswith("; rows of zeros: 1")


def test_all_conventions_that_agree_on_the_rows_are_listed():
    assert len({m.encoding for m in identify(posenc.encode(1, 64))}) > 1
    only, = identify(posenc.encode(50, 2))
    assert {"vaswani", "whisper", "marian"} <= set(only.presets)
    matches = identify(posenc.preset("opennmt-tf", 64).encode(50))
    assert {(m.positions.start, m.presets[0]) for m in matches} == {(0, "opennmt-tf"), (1, "tensor2tensor")}
    matches = identify(posenc.preset("fairseq", 64).encode(range(2, 50)))
    assert {(m.positions.start, m.presets[0]) for m in matches} == {(1, "opennmt-tf"), (2, "tensor2tensor")}
    assert any("fairseq" in m.presets for m in matches)


def test_every_row_must_match():
    table = posenc.encode(2000, 64)
    table[1600:] = 0
    assert identify(table)[0].reason == "every value correctly rounded; rows of zeros: 400"
    for wrong in (0.5, np.nan, np.inf):
        table[1321, 5] = wrong                          # this row is not in the sample that is examined first
        assert identify(table) == []


def test_identify_takes_bounded_memory(tmp_path):
    tracemalloc = pytest.importorskip("tracemalloc")
    table = np.lib.format.open_memmap(tmp_path / "t.npy", "w+", np.float32, (30_000, 512))
    posenc.encode(30_000, 512, out=table)
    tracemalloc.start()
    assert identify(table)[0].difference == 0
    assert tracemalloc.get_traced_memory()[1] < 45e6 < table.nbytes
    tracemalloc.stop()


# ---- command line ------------------------------------------------------------------------------------------


@pytest.fixture
def call(tmp_path, capsys):
    """Return a function that saves an array, runs the command on the file, and returns its exit code, stdout and stderr."""
    def call(table, *options):
        np.save(tmp_path / "table.npy", table)
        code = _cli.main(["identify", str(tmp_path / "table.npy"), *options])
        return code, *capsys.readouterr()
    return call


def test_the_command_identifies_a_file(call):
    code, out, err = call(posenc.preset("musicgen", 64).encode(100))
    assert (code, err) == (0, "") and out.startswith("Encoding(64, ") and "; presets musicgen; " in out and out.count("\n") == 1
    assert call(posenc.encode(range(100, 200), 64)[None], "--start", "100")[0] == 0
    assert call(posenc.encode(range(100, 200, 2), 64)[:, None], "--start", "100", "--step", "2")[0] == 0
    assert call(posenc.encode(9, 64, dtype="bfloat16").view(np.uint16))[0] == 0
    assert call(posenc.encode(9, 64, dtype=ml_dtypes.bfloat16))[0] == 0


@pytest.mark.parametrize("suffix", [".npy", ".safetensors", ".zarr"])
@pytest.mark.parametrize("shape", [(300, 64), (300, 1, 64)], ids=str)
def test_identify_and_verify_read_every_format(tmp_path, capsys, suffix, shape):
    path, table = tmp_path / f"model{suffix}", posenc.encode(300, 64, layout="halves").reshape(shape)
    if suffix == ".npy":
        np.save(path, table)
    elif suffix == ".safetensors":
        pytest.importorskip("safetensors.numpy").save_file({"other": np.zeros(3, np.int8), "pe": table}, path)
    else:
        pytest.importorskip("zarr").create_array(path, data=table, chunks=(64, *table.shape[1:]))
    key = ["--key", "pe"] if suffix == ".safetensors" else []
    assert _cli.main(["identify", str(path), *key, "--json"]) == 0
    match, = json.loads(capsys.readouterr().out)["matches"]
    assert match["convention"] == {"layout": "halves"} and match["difference"] == 0
    assert _cli.main(["verify", str(path), *key, "--layout", "halves"]) == 0
    assert _cli.main(["verify", str(path), *key]) == 1


def test_an_empty_answer_says_why(call):
    assert call(RNG(0).normal(size=(100, 64))) == (1, f"{NO_MATCH}\n", "")
    assert call(posenc.encode(100, 64), "--start", "70")[:2] == (1, f"{NO_MATCH}\n")
    assert json.loads(call(posenc.encode(50, 8) * (np.arange(8) != 3), "--json")[1])["matches"] == []


def test_the_command_writes_json(call):
    code, out, _ = call(posenc.encode(100, 64, base=500.0), "--json")
    assert code == 0 and json.loads(out)["matches"] == [{
        "presets": [], "convention": {"base": 500.0}, "start": 0, "step": 1, "difference": 0.0,
        "reason": "every value correctly rounded"}]


def test_the_command_refuses_unsupported_files(call):
    code, out, err = call(np.array([{"a": 1}], object))
    assert code == 1 and out == "" and "dtype object" in err
    assert call(np.ones((2, 4)), "--step", "2")[0] == 1
