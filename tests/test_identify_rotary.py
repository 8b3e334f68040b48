"""`identify_rotary` finds random rotations, names each fault, and blames no rotation that is right."""

import math
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest

from posenc import Rotary
from posenc.check import assert_rotary, identify_rotary
from posenc.check.match import rounded
from posenc.check.rotations import of_frequencies

RNG = np.random.default_rng
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
YARN = {"rope_type": "yarn", "factor": 16.0, "original_max_position_embeddings": 8192}
BF16 = ml_dtypes.bfloat16
CONFIG = {"model_type": "llama", "head_dim": 64, "rope_theta": 500000.0}
ROTARY = Rotary(64, base=500000.0)
PARTIAL = Rotary(80, rotary_dim=32)


def rotation(rotary, tables=None):
    """Return a function that rotates the columns of x with the tables of a rotation, or of a function of positions."""
    columns = np.arange(rotary.rotary_dim)
    one, two = columns.reshape(2, -1) if rotary.layout == "halves" else columns.reshape(-1, 2).T

    def function(x, positions):
        cos, sin = (tables or rotary.tables)(positions)
        result = x.astype(np.result_type(x, cos))
        result[:, one] = x[:, one] * cos - x[:, two] * sin
        result[:, two] = x[:, two] * cos + x[:, one] * sin
        return result

    return function


def float32_tables(rotary, positions, jitter=0):
    """Compute tables in float32, with frequencies that differ from the exact ones by up to `jitter` half ulps."""
    frequencies = (rotary.frequencies * (1 + jitter * 2.0**-24)).astype(np.float32)
    angles = positions[:, None].astype(np.float32) * frequencies
    scale = np.float32(rotary.scale * rotary.attention_scaling)
    return np.cos(angles) * scale, np.sin(angles) * scale


# ---- random rotations --------------------------------------------------------------------------------------


def random_scaling(rng, pairs):
    factor, length = float(rng.choice([2, 4, 8, 16, 32, 40])), int(rng.choice([2048, 4096, 8192, 32768]))
    short, long = (np.round(rng.uniform(1, most, pairs), 3).tolist() for most in (2, 20))
    return [
        {"rope_type": "linear", "factor": factor},
        {"rope_type": "dynamic", "factor": factor, "max_position_embeddings": length, "length": int(length * factor)},
        {"rope_type": "ntk_alpha", "alpha": factor},
        {"rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length},
        YARN | {"factor": factor, "original_max_position_embeddings": length, "beta_fast": 16.0, "truncate": False},
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


TOLERANCES = {"float32": 2.0**-23, "bfloat16": 2.0**-7, "float16": 2.0**-10}


@pytest.mark.parametrize("seeds", [(*range(6), 1060), pytest.param(range(1000, 1200), marks=pytest.mark.long)])
@pytest.mark.parametrize("kind", TOLERANCES)
def test_random_rotations_are_found(kind, seeds):
    """The rotation that was found gives the same values, within the precision of those from which it was found."""
    for seed in seeds:
        rng = RNG(seed)
        rotary, rows = random_rotary(rng), int(rng.choice([64, 300, 2048, 4096]))
        match, = identify_rotary(rotary.tables(rows, dtype=kind), head_dim=rotary.head_dim)
        tolerance = rotary.scale * rotary.attention_scaling * TOLERANCES[kind]
        for tables in zip(*(each.tables(rows, dtype="float64") for each in (match.rotary, rotary)), strict=True):
            np.testing.assert_allclose(*tables, rtol=0, atol=tolerance, err_msg=f"{match.rotary} for {rotary}")

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
    yield cos.astype(BF16), sin.astype(BF16)
    yield repeat(cos, (1, 2)), repeat(sin, (1, 2))
    yield cos + 1j * sin
    yield np.concatenate([cos, sin], 1)
    yield [cos, sin]
    yield cos[None, None], sin[None, None]
    yield np.tile(cos, 2), np.concatenate([-sin, sin], 1)
    yield cos.astype(">f4"), sin.astype(">f4")
    yield rotation(rotary)
    yield rotation(rotary, lambda positions: float32_tables(rotary, positions, jitter))


@pytest.mark.parametrize("seeds", [(0, 1, 172), pytest.param(range(100, 300), marks=pytest.mark.long)])
def test_rotations_that_are_right_are_not_blamed(seeds):
    for seed in seeds:
        rng = RNG(seed)
        rotary = random_rotary(rng)
        for given in forms(rotary, rng):
            match = identify_rotary(given, expect=rotary)[0]
            assert match.faults == () and match.rotary is not None, (seed, rotary, match.reason)


# ---- faults ------------------------------------------------------------------------------------------------


@np.errstate(over="ignore", invalid="ignore")
def float16_angles(positions):
    angles = (positions[:, None] * PARTIAL.frequencies).astype(np.float16).astype(np.float32)
    return np.cos(angles), np.sin(angles)


def powers(divisor):
    return (500000.0 ** (-np.arange(32) / divisor)).astype(np.float32)


INV_FREQ = ROTARY.frequencies.astype(np.float32)
COS, SIN = ROTARY.tables(5000)
BASE = "base is 10000, expected 500000"
RISING = Rotary(64, frequencies=np.linspace(0.1, 1, 32))


def scaled(scaling, **changes):
    return ROTARY.replace(scaling=scaling | changes)


def of_both(function):
    return function(COS), function(SIN)

# what is given, the sentences, and the expected rotation if it is not ROTARY; models with other faults stand in
# rotary_models_small.py
FAULTS = [
    # frequencies
    (Rotary(64).frequencies, [BASE]),
    (Rotary(64, base=12345.0).tables(300), ["base is 12345, expected 500000"]),
    ((COS, SIN), ["the scaling yarn is not applied", "cosines and sines are multiplied by 1, expected 1.27725887"],
     scaled(YARN)),
    (Rotary(64).tables(3000), [BASE, "the scaling llama3 is not applied"], scaled(LLAMA3)),
    (Rotary(64, scaling=LLAMA3).frequencies, [BASE], scaled(LLAMA3)),
    (scaled(LLAMA3).frequencies, ["the frequencies of pairs 15 to 31 differ; the first is 0.00137189, expected 0.00213112"]),
    (powers(31), ["base is 763498, expected 500000"]),
    (INV_FREQ * (1 + 1e-5 * np.sin(np.arange(32))), ["the frequencies differ slightly from the expected ones"]),
    (tuple(t[:, :20] for t in RISING.tables(300)), ["40 columns are rotated, expected 64"]),
    (np.where(np.arange(32) == 3, 0.5, INV_FREQ), ["the frequencies of pair 3 differ; the first is 0.5, expected 0.292228"]),
    (np.where(np.arange(32) < 12, np.nan, INV_FREQ), ["no value is finite"]),
    (np.zeros(32), ["pairs 0 to 31 are not rotated"]),
    # columns
    ((np.repeat(COS, 2, 1), np.repeat(SIN, 2, 1)), ["layout is interleaved, expected halves"]),
    # cosines and sines
    (of_both(lambda t: 0 * t), ["cosines and sines are multiplied by 0, expected 1"]),
    (of_both(lambda t: np.where(np.arange(32) == 5, 0, t)), [
        "no known rotation gives these values; those of pair 5 differ from the expected ones by up to 1"]),
    # positions
    (of_both(lambda t: np.tile(t[:3000], (2, 1))), ["the values at 3000 of 6000 positions differ, the first at 3,000"]),
    (of_both(lambda t: np.where(np.arange(5000)[:, None] == 0, 0.5, t)),
     ["the values at 1 of 5000 positions differ, the first at 0"]),
    # arithmetic
    (rounded(Rotary(64).frequencies, "bfloat16"), [BASE, "inv_freq was rounded to bfloat16"]),
    (rotation(PARTIAL, float16_angles),
     ["angles were rounded to float16"], PARTIAL),
]


@pytest.mark.parametrize("given, faults, expected", [(*case, ROTARY)[:3] for case in FAULTS], ids=lambda x: x[0] if isinstance(
    x, list) else "")
def test_faults_are_named(given, faults, expected):
    match = identify_rotary(given, expect=expected)[0]
    assert list(match.faults) == faults and match.reason.startswith("; ".join(faults))


def test_a_base_is_shown_with_the_digits_that_differ():
    faults = of_frequencies(Rotary(64, base=3846223.03), Rotary(64, base=3846223.5))
    assert [*faults] == ["base is 3846223.03, expected 3846223.5"]


def test_a_single_pair_and_no_rotation():
    angles = 0.3 * np.arange(100)[:, None]
    for given in (np.array([0.3]), (np.cos(angles), np.sin(angles))):
        assert identify_rotary(given)[0].rotary == Rotary(2, frequency_scale=0.3)


def test_tables_with_columns_twice_do_not_show_the_layout():
    given = tuple(np.tile(table, 2) for table in (COS[:300], SIN[:300]))
    assert identify_rotary(given, expect=ROTARY.replace(layout="interleaved"))[0].faults == ()


@pytest.mark.parametrize("name, head_dim", [("qwen2-vl", 128), ("qwen3-vl", 64), ("pixtral", 64), ("ltx-video", 64)])
def test_several_axes(name, head_dim):
    rotary = Rotary.preset(name, head_dim)
    count = 1 + max(rotary.axes)
    positions = RNG(0).integers(0, 60, (count, 300))
    with pytest.raises(ValueError, match=rf"positions has shape \({count}, 300\), expected \(300,\)"):
        identify_rotary(rotary.tables(positions), expect=rotary, positions=positions)
    match = identify_rotary(rotation(rotary), expect=rotary)[0]
    assert (match.rotary, match.faults) == (rotary, ())


# ---- forms and errors --------------------------------------------------------------------------------------


def test_tensors_are_read():
    torch = pytest.importorskip("torch")
    inv_freq = torch.tensor(INV_FREQ)
    angles = torch.outer(torch.arange(3000.0), inv_freq)
    cis = torch.polar(torch.ones(3000, 32), angles)

    def rotate(x, positions):
        a = torch.outer(positions.float(), inv_freq)
        return torch.cat([x[:, :32] * a.cos() - x[:, 32:] * a.sin(), x[:, 32:] * a.cos() + x[:, :32] * a.sin()], 1)
    tables = tuple(torch.cat([part, part], -1)[None].bfloat16() for part in (cis.real, cis.imag))
    for given in (rotate, inv_freq, tables, cis, inv_freq.requires_grad_(True)):
        match = identify_rotary(given, expect=CONFIG)[0]
        assert (match.rotary, match.faults) == (ROTARY, ()), match.reason
    assert identify_rotary(rotate, expect=CONFIG)[0].reason.startswith("float32 angles: the estimated error is 0.0")
    with pytest.raises(ValueError, match="rotation is on the meta device, expected a tensor with values"):
        identify_rotary(torch.zeros(32, device="meta"), expect=CONFIG)


def test_errors_of_the_arithmetic_are_reported():
    """They grow with the position, and are below the rounding of the tables if every value is correctly rounded."""
    exact = identify_rotary(ROTARY.tables(300), expect=ROTARY)[0]
    assert set(exact.errors) == {299} and max(exact.errors.values()) < 1e-7
    near, far, farthest = identify_rotary(INV_FREQ, expect=ROTARY)[0].errors.values()
    assert 1e-5 < near < 1e-4 < 1e-3 < far < 1e-2 < farthest < 1e-1
    match = identify_rotary(float32_tables(ROTARY, np.arange(5000)), expect=ROTARY)[0]
    assert 1_000 in match.errors
    assert match.reason == f"float32 angles: the estimated error is {match.errors[4_999]:.1g} at position 4,999"

def test_values_that_do_not_determine_a_rotation():
    with pytest.raises(ValueError, match="rotation has values at a single position, expected values at several positions"):
        identify_rotary(Rotary(64).tables(1), expect=ROTARY)
    noise = identify_rotary(tuple(RNG(0).normal(size=(2, 100, 32))), expect=ROTARY)[0]
    assert noise.rotary is None and noise.reason.startswith("no known rotation gives these values; those of pairs 0 to 31")
    assert identify_rotary(tuple(RNG(0).normal(size=(2, 100, 32)))) == []


def test_a_rotation_without_frequencies():
    still = Rotary(8, frequencies=[0, 0, 0, 0])
    assert identify_rotary(lambda x, positions: x, expect=still)[0].faults == ()
    assert identify_rotary(rotation(Rotary(8)), expect=still)[0].faults
    one = Rotary(2)
    assert identify_rotary(rotation(one), expect=one)[0].rotary == one


def test_positions_are_those_given():
    for positions in (range(1000, 1300), range(0, 3000, 10), np.linspace(0, 50, 300), range(10**18, 10**18 + 300)):
        assert identify_rotary(ROTARY.tables(positions), expect=ROTARY, positions=positions)[0].rotary == ROTARY
        assert identify_rotary(Rotary(64).tables(positions), expect=ROTARY, positions=positions)[0].faults == (BASE,)
    far = np.arange(10**7, 10**7 + 300)
    assert identify_rotary(float32_tables(ROTARY, far), expect=ROTARY, positions=far)[0].faults == ()
    calls = []
    identify_rotary(lambda x, p: calls.extend(p) or ROTARY.rotate(x, p), expect=ROTARY, positions=[3, 4, 5, 900])
    assert set(calls) == {3, 4, 5, 900}


def test_a_function_with_a_short_table():
    def function(x, positions):
        return rotation(ROTARY, lambda positions: tuple(table[positions] for table in (COS[:3000], SIN[:3000])))(x, positions)

    match = identify_rotary(function, expect=ROTARY)[0]
    assert match.faults == () and "a call with positions up to 4,095 raises IndexError" in match.reason


@pytest.mark.parametrize("arguments, keywords, message", [
    ((5,), {}, "rotation has dtype int64, expected float64, float32, float16 or bfloat16"),
    (((COS, SIN[:9]),), {}, r"sin has shape \(9, 32\) and dtype float32, expected the shape and dtype of cos, \(5000, 32\)"),
    ((np.zeros((2, 9, 8)),), {}, r"cos has shape \(2, 9, 4\), expected \(n, columns\), with or without axes of length 1"),
    ((lambda x, p: x,), {"head_dim": 8, "positions": [[5, 6]]}, r"positions has shape \(1, 2\), expected \(2,\)"),
    (((COS[:1], SIN[:1]),), {"positions": [np.nan]}, "positions has nan, expected finite numbers"),
    ((INV_FREQ,), {"head_dim": 32}, "rotary_dim is 64, expected an even number of at most 32"),
    ((INV_FREQ,), {"head_dim": 32, "expect": ROTARY}, "head_dim is 32, but expect has 64; omit head_dim"),
    ((INV_FREQ,), {"expect": "llama"}, "expect is 'llama' of type str, expected a posenc.Rotary, or a configuration"),
    ((lambda x, p: x,), {}, "rotation is a function, so identify_rotary needs expect or head_dim"),
    ((lambda x, p: 1 / 0,), {"head_dim": 8}, r"to 1 raises ZeroDivisionError: .*; a call with tensors .* \(n, 8\)"),
    ((lambda x, p: x.sum(),), {"head_dim": 8}, r": the function returned an array of shape \(\), expected .* \(2, 8\)"),
    ((lambda x, p: x + COS[p[-1:] + 4999],), {"head_dim": 32, "positions": 9}, "with positions up to 8 raises IndexError"),
])
def test_errors_name_the_argument(arguments, keywords, message):
    with pytest.raises((TypeError, ValueError), match=message):
        identify_rotary(*arguments, **keywords)


def test_pytorch_is_not_imported():
    code = """import sys, posenc
posenc.check.identify_rotary(lambda x, p: x, head_dim=8)
assert "torch" not in sys.modules
sys.modules["torch"] = None
posenc.check.check_rotary"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith("posenc.check.check_rotary needs torch; to install it: pip install torch\n")


# ---- true verdicts -----------------------------------------------------------------------------------------


def test_a_function_may_return_queries_and_keys():
    right, other = rotation(ROTARY), rotation(Rotary(64))
    match, = identify_rotary(lambda x, p: (right(x, p), right(x, p)), expect=ROTARY)
    assert (match.rotary, match.faults) == (ROTARY, ())
    match, = identify_rotary(lambda x, p: (right(x, p), other(x, p)), expect=ROTARY)
    assert match.faults == (f"keys: {BASE}",)
    inexact = rotation(ROTARY, lambda positions: float32_tables(ROTARY, positions))
    match, = identify_rotary(lambda x, p: (right(x, p), inexact(x, p)), expect=ROTARY)
    assert (match.verdict, match.faults) == ("float32 angles", ())
    assert match.reason.startswith("float32 angles: the estimated error is ")


def test_another_order_of_columns_is_a_fault():
    def function(x, positions):
        return rotation(ROTARY)(x, positions)[..., np.arange(64).reshape(2, 32).T.ravel()]

    match, = identify_rotary(function, expect=ROTARY)
    fault, = match.faults
    assert "columns in another order" in fault and match.rotary == ROTARY


# ---- assert_rotary -----------------------------------------------------------------------------------------


def test_right_rotations_pass():
    for expect in (CONFIG, ROTARY):
        assert_rotary(rotation(ROTARY, lambda positions: float32_tables(ROTARY, positions)), expect)
    assert_rotary(ROTARY.rotate, CONFIG)
    assert_rotary(INV_FREQ, CONFIG)


def test_wrong_functions_fail():
    wrong = rotation(ROTARY, lambda positions: float32_tables(ROTARY, positions.astype(np.float16)))
    with pytest.raises(AssertionError, match="positions were rounded to float16"):
        assert_rotary(wrong, CONFIG, up_to=30_000)


@pytest.mark.parametrize("expect, up_to, last", [
    (Rotary(64), 5000, 5000), (Rotary(64), None, 131_071),
    (Rotary(64, scaling={"rope_type": "dynamic", "factor": 4.0, "max_position_embeddings": 2048}), None, 2047),
    (CONFIG | {"rope_theta": 1e4, "max_position_embeddings": 4096}, None, 4095),
    (CONFIG | {"rope_theta": 1e4}, None, 131_071),
])
def test_up_to_is_the_largest_position(expect, up_to, last):
    seen = []
    assert_rotary(lambda x, positions: seen.extend(positions.tolist()) or Rotary(64).rotate(x, positions), expect, up_to)
    assert max(seen) == last and {0, 1, 2, 255, 256, 257, 1023, 1024, 1025} <= {*seen}


@pytest.mark.parametrize("function, expect, up_to, error, message", [
    (ROTARY.rotate, ROTARY, 0, ValueError, "up_to is 0"), (ROTARY.rotate, ROTARY, 2**63, ValueError, "up_to has"),
    (ROTARY.rotate, ROTARY, "a", TypeError, "up_to is"), (ROTARY.rotate, None, 9, TypeError, "expect is None"),
    (rotation(ROTARY, lambda positions: (COS[positions], SIN[positions])), ROTARY, None, ValueError,
     r"up to 131,071 raises IndexError: .* up_to=N - 1"),
])
def test_wrong_arguments_of_assert_rotary(function, expect, up_to, error, message):
    with pytest.raises(error, match=message):
        assert_rotary(function, expect, up_to=up_to)


def test_positions_without_a_correct_digit_are_refused():
    function = rotation(ROTARY, lambda positions: float32_tables(ROTARY, positions))
    assert_rotary(function, ROTARY, up_to=100_000)
    with pytest.raises(AssertionError, match=r"near position 1,000,000,000, the error is \d.*, more than largest_error, 0.1"):
        assert_rotary(function, ROTARY, up_to=10**9)
    assert_rotary(function, ROTARY, up_to=10**9, largest_error=3)
    with pytest.raises(ValueError, match="largest_error is 0"):
        assert_rotary(function, ROTARY, largest_error=0)
