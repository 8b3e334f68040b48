"""Every value of encode has the bits of the reference."""

from fractions import Fraction
from functools import cache

import numpy as np
import pytest

import posenc
from adversarial import halfway, zeros
from conftest import DTYPES, HERE, assert_same_bits, bits_of, instruction_set
from constructed import cases, tight_scale
from keywords import VALID, drawn_convention, single_keywords
from posenc._core import kernel
from reference import FORMATS, NAN, Reference, reference_of

LOWEST, BEYOND = -(2**63), 2**63

# from the whole domain, including both ends
INTEGERS = [0, 1, -1, 2, 7, -300, 4095, 10**6 + 1, -(10**9) - 7, 2**53 + 1, 10**18 + 9, BEYOND - 1, LOWEST]
FRACTIONS = [0.5, 0.1, -2.75, 1e-5, -1e-300, 5e-324, 355 / 113, 1e6 + 1 / 3, -(2**52) - 0.5, 1e15 + 0.125]


@cache  # shared by all instruction sets
def expected(d_model, dtype, positions, columns, convention):
    return reference_of(d_model, convention).table(positions, dtype, columns)


def assert_correct(positions, d_model, dtype, columns=None, **convention):
    """Assert that the values at `positions` (a range or an array) and `columns` (default: all) have the
    reference's bits.
    """
    __tracebackhide__ = True
    columns = tuple(range(d_model)) if columns is None else tuple(columns)
    exact = tuple(positions if isinstance(positions, range) else positions.ravel().tolist())
    correct = expected(d_model, dtype, exact, columns, tuple(convention.items()))
    values = posenc.encode(positions, d_model, dtype=dtype, **convention)
    assert values.dtype.name == dtype
    actual = bits_of(values).reshape(len(exact), d_model)[:, columns]
    wrong = np.argwhere(actual != correct)
    if len(wrong):
        row, column = wrong[0]
        pytest.fail(
            f"{len(wrong)} of {actual.size} values are wrong; first at position {exact[row]!r}, "
            f"column {columns[column]}: {actual[row, column]:#x}, expected {correct[row, column]:#x}"
        )


def some_columns(rng, d_model, count):
    """Return the first two columns, the last two and random ones."""
    ends = {0, 1, d_model - 2, d_model - 1} & set(range(d_model))
    return sorted(ends | set(rng.integers(0, d_model, count).tolist()))


# --- integer positions ----------------------------------------------------------------------------

SIZES = [1, 2, 3, 6, 11, 64, 510, 512, 4096]
BASES = [2.0, 10000.0, 500000.0, 1e8]


@pytest.mark.parametrize("d_model, base, rows", [
    *[(d_model, 10000.0, 64) for d_model in SIZES], *[(512, base, 64) for base in BASES if base != 10000.0],
    *[pytest.param(d_model, base, 2500, marks=pytest.mark.long) for d_model in SIZES for base in BASES],
])
def test_random_positions_are_correct(isa, dtype, d_model, base, rows):
    rng = np.random.default_rng([d_model, int(base), rows])
    assert_correct(rng.integers(LOWEST, BEYOND, rows), d_model, dtype, some_columns(rng, d_model, 8),
                   base=base)


@pytest.mark.parametrize("start, step", [
    (0, 1), (-137, 1), (10**12 + 7, 1), (LOWEST, 1), (BEYOND - 600, 1), (10**9, -3), (-(2**62), 2**53 + 1),
    (0, 1000), (0, 2), (9, -7), (0, 10**9),
])
def test_ranges_are_correct(isa, dtype, start, step):
    positions = range(start, start + 600 * step, step)
    assert_correct(positions, 70, dtype, [0, 1, 2, 31, 32, 33, 64, 69])


@pytest.mark.parametrize("d_model, last", [(3, 300), (64, 40)])
def test_small_positions_are_correct(isa, dtype, d_model, last):
    assert_correct(range(-20, last + 1), d_model, dtype)


def test_powers_of_two_and_neighbours_are_correct(isa, dtype):
    positions = {sign * (2**k + d) for k in range(64) for d in (-1, 0, 1) for sign in (1, -1)}
    assert_correct(np.array(sorted(p for p in positions if LOWEST <= p < BEYOND)), 16, dtype,
                   [0, 1, 6, 7, 14, 15])


@pytest.mark.exhaustive
@pytest.mark.parametrize("first", range(0, 2**20, 2**16))
@pytest.mark.parametrize("d_model, base", [(2, 10000.0), (6, 10000.0), (11, 10000.0), (8, 500000.0), (16, 1e8)])
def test_every_position_below_a_million_is_correct(d_model, base, first):
    """With all positions, columns and dtypes, these are 180 million values."""
    positions = range(first, first + 2**16)
    for column in range(d_model):
        reference = Reference(d_model, base=base)           # one for each column, because it keeps its values
        for dtype in DTYPES:
            correct = reference.table(positions, dtype, [column])
            for name in HERE:
                with instruction_set(name):
                    values = posenc.encode(positions, d_model, dtype=dtype, base=base)[:, [column]]
                assert_same_bits(bits_of(values), correct)


# --- fractional positions -------------------------------------------------------------------------

def test_fractions_are_correct(isa, dtype):
    rng = np.random.default_rng(0)
    magnitudes = np.append(10.0 ** rng.uniform(-320, 18.9, 150), FRACTIONS)
    positions = np.concatenate([rng.uniform(-1, 1, 50), rng.uniform(-1e6, 1e6, 100), magnitudes, -magnitudes])
    assert_correct(positions, 64, dtype, [0, 1, 2, 3, 30, 31, 62, 63])


def test_tiny_angles_next_to_a_tie_are_correct(isa, dtype):
    """3 * position is half-way between two values, of which the upper one is even.

    The lower one is correct, as sin x < x.
    """
    precision, smallest, _ = FORMATS[dtype]
    odd = next(m for m in range(2**precision + 1, 2**precision + 20, 2) if m % 3 == 0 and m % 4 == 3)
    assert odd // 3 < 2**53
    exponents = np.array([precision + 14, precision + 40, 200, 1000, precision - smallest - 1])
    positions = np.ldexp(float(odd // 3), -exponents[exponents < 1074])
    assert_correct(np.concatenate([positions, -positions]), 2, dtype, position_scale=3.0)


@pytest.mark.parametrize("position_scale", [0.25, 0.5, 0.75, 1.0, 1.5, 2.5])
def test_smallest_subnormals_are_correct(isa, dtype, position_scale):
    smallest = np.ldexp(1.0, FORMATS[dtype][1])
    positions = smallest * np.array([0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4])
    if dtype != "float64":
        positions = np.concatenate([positions, np.nextafter(positions, 0), np.nextafter(positions, 1)])
    assert_correct(np.concatenate([positions, -positions]), 3, dtype, position_scale=position_scale)


@pytest.mark.parametrize("convention", [
    {"frequencies": tuple(np.ldexp(np.pi, range(-5, 1)))}, {"frequencies": tuple(np.ldexp(np.pi, range(-19, 1)))},
    {"base": 1e12},
])
def test_values_near_zero_are_correct(isa, dtype, convention):
    """At many positions, angles are near multiples of pi / 2, or small: in float16, values are subnormal or 0."""
    d_model = 2 * len(convention.get("frequencies", range(20)))
    fractions = np.random.default_rng(0).integers(-(2**12), 2**12, 200) / 256
    for positions in (range(-150, 200), np.arange(200)[::-1] ** 2, fractions):
        assert_correct(positions, d_model, dtype, **convention)


@pytest.mark.parametrize("halves", [1, 515])
@pytest.mark.parametrize("side", [0, np.inf])
def test_subnormal_values_of_columns_without_a_frequency_are_correct(isa, dtype, halves, side):
    """All values are `scale` or 0.

    `scale` is next to a half-way point, to which rounding to float32 would move it.
    """
    scale = float(np.ldexp(np.nextafter(halves / 2, side), FORMATS[dtype][1]))
    assert_correct(range(64), 2, dtype, scale=scale, frequencies=(0.0,))


# --- conventions ----------------------------------------------------------------------------------

FREQUENCIES = VALID["frequencies"]
CONVENTIONS = [
    *[
        {"odd": odd, "layout": layout, "order": order}
        for odd in ("truncate", "zero") for layout in ("interleaved", "halves") for order in ("sin", "cos")
    ],
    *single_keywords(), {"spacing": "endpoint", "odd": "zero"},
    {"spacing": "endpoint", "exponents": "column"},
    {"spacing": "endpoint", "exponents": "column", "odd": "zero"},
    {"spacing": "endpoint", "layout": "halves", "order": "cos", "base": 0.5},
    {"shift": 0.5, "odd": "zero"}, {"shift": -3.25, "exponents": "column"},
    {"exponents": "column", "layout": "halves"}, {"exponents": "column", "order": "cos"},
    {"frequencies": FREQUENCIES[0] + FREQUENCIES[1], "exponents": "column"},
    {"periods": VALID["periods"][0][:5], "odd": "zero", "layout": "halves"},
    *[{"periods": VALID["periods"][1], "scale": scale}
      for scale in (1 + 3 * 2.0**-24, 1 + 2.0**-8, 5e-324, -1e-310, 0.0)],
    *[{"periods": VALID["periods"][1], "position_scale": scale} for scale in (-0.25, 1 / 3, 1e-300, 0.0)],
    {"periods": VALID["periods"][1], "position_offset": 0.25, "padding_idx": 3},
    {"frequencies": FREQUENCIES[0][:5], "odd": "zero"},
    {"frequencies": FREQUENCIES[0] + FREQUENCIES[1][:5], "exponents": "column", "odd": "zero"},
    {"position_offset": 0.1, "position_scale": 1 / 3, "frequency_scale": 1.1, "base": 20.0},
]


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
def test_every_convention_is_correct(isa, dtype, convention):
    # position + offset must stay in the domain
    offset = Fraction(convention.get("position_offset", 0))
    inside = [p for p in INTEGERS if LOWEST <= p + offset < BEYOND]
    widths = {5: (11,), 6: (11, 12), 11: (11,), 12: (12,)}  # number of frequencies: values of d_model
    for d_model in widths[len(convention.get("frequencies", convention.get("periods", range(6))))]:
        assert_correct(np.array(inside), d_model, dtype, **convention)
        assert_correct(np.array(FRACTIONS), d_model, dtype, **convention)
        assert_correct(range(-20, 20), d_model, dtype, [0, 5, 10], **convention)


def test_a_single_frequency_has_exponent_zero(isa, dtype):
    """With spacing="endpoint", the exponent would be 0 / 0, and is defined as 0."""
    for d_model in (1, 2):
        for convention in ({"spacing": "endpoint"}, {"shift": d_model / 2}, {"spacing": "paper"}):
            assert_correct(np.array(INTEGERS), d_model, dtype, frequency_scale=0.7, **convention)


def test_a_scale_of_minus_zero_is_zero(isa, dtype):
    assert not bits_of(posenc.encode([366, -850, 10**15], 12, scale=-0.0, dtype=dtype)).any()


def random_convention(seed):
    rng = np.random.default_rng(seed)
    d_model = int(rng.integers(1, 40))
    convention = drawn_convention(d_model, lambda values: values[rng.integers(len(values))], share=0.4)
    small, large = rng.integers(-1000, 1000, 4), rng.integers(-(2**62) + 2**61, 2**62, 4)
    return d_model, convention, np.concatenate([small, large]), np.concatenate([small / 7, large * 2.0**-40])


@pytest.mark.parametrize("seeds", [range(20), pytest.param(range(20, 1000), marks=pytest.mark.long)], ids=str)
def test_random_conventions_are_correct(isa, dtype, seeds):
    for seed in seeds:
        d_model, convention, integers, fractions = random_convention(seed)
        columns = some_columns(np.random.default_rng(seed), d_model, 5)
        assert_correct(integers, d_model, dtype, columns, **convention)
        assert_correct(fractions, d_model, dtype, columns, **convention)


# --- adversarial positions ------------------------------------------------------------------------

# d_model, base, frequency index
HARD = [(2, 10000.0, 0), (512, 10000.0, 100), (4096, 1e8, 990), (512, 10000.0, 255), (64, 2.0, 7)]


def assert_correct_in_arrays_and_ranges(positions, d_model, dtype, column, **convention):
    assert_correct(np.array(positions), d_model, dtype, [column], **convention)
    for p in positions[:4]:
        assert_correct(range(p, p + 1), d_model, dtype, [column], **convention)
        assert_correct(range(max(p - 37, LOWEST), min(p + 3, BEYOND)), d_model, dtype, [column], **convention)


@pytest.mark.parametrize("function", ["sin", "cos"])
@pytest.mark.parametrize("d_model, base, frequency", HARD)
def test_positions_next_to_a_zero_are_correct(isa, dtype, d_model, base, frequency, function):
    nearest = zeros(frequency, Reference(d_model, base=base), function, count=12)
    assert nearest[0][1] < 1e-17
    positions = [p for p, _ in nearest] + [-p for p, _ in nearest]
    assert_correct_in_arrays_and_ranges(positions, d_model, dtype, 2 * frequency + (function == "cos"),
                                        base=base)


def test_a_position_that_needs_long_frequencies_is_correct(isa, dtype):
    """Fractions of a turn with 192 bits and an error of a unit in the last place would not be sufficient."""
    assert_correct_in_arrays_and_ranges([3619187061762545281], 4096, dtype, 1980, base=1e8)


@cache  # shared by all instruction sets
def near_ties(d_model, base, frequency, column, dtype, tries):
    return [p for p, _ in halfway(Reference(d_model, base=base), column, dtype, frequency, tries)]


@pytest.mark.parametrize("function", ["sin", "cos"])
@pytest.mark.parametrize(
    "d_model, base, frequency, tries",
    [*((*case, 2**16) for case in HARD[:3]),
     *(pytest.param(*case, 2**21, marks=pytest.mark.long) for case in HARD)],
)
def test_positions_next_to_a_tie_are_correct(isa, dtype, d_model, base, frequency, tries, function):
    column = 2 * frequency + (function == "cos")
    positions = near_ties(d_model, base, frequency, column, dtype, tries)
    assert_correct_in_arrays_and_ranges(positions, d_model, dtype, column, base=base)


# --- types of positions ---------------------------------------------------------------------------

def test_positions_of_every_shape_are_correct(isa, dtype):
    numbers = np.random.default_rng(0).integers(LOWEST, BEYOND, 24)
    shapes = [numbers.reshape(shape) for shape in [(2, 3, 4), (24, 1), (1, 1, 24)]]
    for positions in (*shapes, numbers[::-3], numbers.reshape(4, 6).T, np.array(7), np.empty((0, 3))):
        assert posenc.encode(positions, 6, dtype=dtype).shape == (*positions.shape, 6)
        assert_correct(positions, 6, dtype)

@pytest.mark.parametrize("kind", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", ">i8", ">f8"])
def test_every_dtype_of_positions_is_correct(isa, dtype, kind):
    info = np.iinfo(kind) if kind[-2] in "iu" else None
    ends = [max(info.min, LOWEST), min(info.max, BEYOND - 1)] if info else [-2047, 2047]
    assert_correct(np.array([0, 1, 2, 100, *ends], kind), 6, dtype)
    if kind == "f8":
        assert_correct(np.array([-7, 2**53, 2**60 + 2**20, -(2**63), 2**63 - 1024], kind), 6, dtype)


def test_positions_that_are_not_finite_give_nan(isa, dtype):
    """Their rows contain the canonical NaN, and other rows are not affected."""
    among_integers = np.where(np.arange(100) == 50, np.inf, np.arange(100.0))
    for positions in (np.array([3.5, np.nan, 7.0, np.inf, -np.inf, -np.nan, 1e9]), among_integers):
        for convention in ({}, {"scale": -2.0}, {"odd": "zero"}, {"position_scale": 0.0}):
            assert_correct(positions, 7, dtype, **convention)
    assert (bits_of(posenc.encode([np.inf], 4, dtype=dtype)) == NAN[dtype]).all()


# --- values next to half-way points ---------------------------------------------------------------

@pytest.mark.parametrize("position, column", [(2307380, 176), (2855391, 90), (2903015, 102), (3848808, 341)])
def test_values_next_to_a_boundary_are_correct(isa, position, column):
    """Of 2**31 float32 values, 11 differ with and without the rounding test; these are four of them."""
    # the first row of the table in which the value differed
    first = 10**6 + (position - 10**6) // 2**15 * 2**15
    correct = Reference(512).bits(position, column, "float32")
    assert bits_of(posenc.encode(range(first, first + 2**15), 512))[position - first, column] == correct


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_the_error_bound_covers_negative_sines_of_offsets(isa, dtype):
    """The first row and its anchor are close to zeros of the sine; the sines of all offsets are negative."""
    convention, first, rng = {"frequencies": (4 * np.pi - np.pi / 31.5,)}, 63_000, np.random.default_rng(0)
    reference = Reference(2, **convention)
    scales = {row: tight_scale(rng, reference.value(first + row, 0, 400), dtype) for row in range(1, 63, 2)}
    scales = {row: scale for row, scale in scales.items() if scale is not None}
    assert len(scales) >= 20
    for row, scale in scales.items():
        values = posenc.encode(range(first, first + 200), 2, dtype=dtype, scale=scale, **convention)
        assert bits_of(values)[row, 0] == Reference(2, scale=scale, **convention).bits(first + row, 0, dtype)


def test_values_that_a_scale_brings_next_to_a_half_way_point(isa, dtype):
    """Compute each value directly, by rotation, and as a product of tables for digits.

    Many float64 values are within 2**-105 (relative) of a half-way point.
    """
    scattered = np.random.default_rng(0).integers(-(2**62), 2**62, 400)
    for position, column, convention in cases("ordinary_values", dtype, 0, 100):
        correct = Reference(2, **convention).bits(position, column, dtype)
        # in narrow rows, digits are not used
        wide = convention | {"frequencies": convention["frequencies"] * 32}
        scattered[100] = position
        for positions in (scattered[100:101], range(position - 100, position + 100), scattered):
            values = posenc.encode(positions, 64, dtype=dtype, **wide)[len(positions) > 1 and 100]
            assert (bits_of(values)[column::2] == correct).all()


def test_the_slow_paths_are_rare(isa, dtype):
    posenc.encode(100, 512, dtype=dtype)
    kernel.counters()
    posenc.encode(range(10**6, 10**6 + 8192), 512, dtype=dtype)
    counted = kernel.counters()
    rows_of_tiles = 8192 * 512 // 32
    # float16: subnormal numbers
    assert counted["uncertain"] < rows_of_tiles * (0.005 if dtype == "float16" else 0.0002)
    assert counted["exact"] < 4
    for convention in ({"base": 1e12}, {"position_scale": np.pi}) if dtype != "float64" else ():
        posenc.encode(8192, 512, dtype=dtype, **convention)
        assert kernel.counters()["exact"] < 4
