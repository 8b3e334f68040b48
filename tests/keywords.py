"""Examples of every keyword of a convention, from which the tests of values, arguments, files and the command
line are derived.

The first valid value is the one that golden.csv and the command line use.  A keyword with choices needs no row
here.
"""

from contextlib import suppress
from decimal import Decimal
from fractions import Fraction
from math import isfinite, pi

import numpy as np

import posenc
from conftest import Tensor
from posenc._arguments.specification import changed
from posenc._encoding.encoding import KEYWORDS

# scales beyond the range of the narrow dtypes, scales at ties, and scales so small that all values are
# subnormal
SCALES = [
    22.6, -1.0, 0.0, -0.0, 1e-5, 3e-8, 1e-40, -1e-40, 1e-46, 1e-310, 5e-324, 1e5, 1e39, 1e200, 1e300,
    1.7976931348623157e308, 1 + 2.0**-24, 1 + 3 * 2.0**-24, 1 + 3 * 2.0**-11, 1 + 3 * 2.0**-8, 65520.0,
    2.0**128 - 2.0**103,
]
# keyword: valid values, and invalid ones for d_model 64
EXAMPLES = {
    "base": ([2.5, 1.0, 1.0000000000000002, 1e-300, 1e300, 5e-324, 1e8, 2, 10**4],
             [0, -1.0, "10000", [10000], True, 1j, None, np.complex128(1 + 1j), np.array("100"),
              np.array("100", object), np.nan, np.array(True), np.timedelta64(5, "s"), np.datetime64(5, "s"),
              memoryview(b"100"), Tensor("torch.bool", 1), np.inf, Tensor("torch.complex64", 1), 10**400,
              10**5000, 2**53 + 1, Fraction(1, 3), Decimal("0.1"), Decimal("sNaN")]),
    "frequency_scale": ([-100.0, 2 * pi, -1e-300, 1e300, 0.0], ["1", float("inf")]),
    "position_offset": ([0.1, 1.0, -300.0, 2.0**40, 2.0**60, -1 / 3, 1e-10, 1e-300, -5e-324],
                        [2.0**63, "1", np.array(2**53 + 1), np.int64(2**53 + 1), float("nan")]),
    "position_scale": ([1 / 3, 0.5, -1.0, 0.0, 1e-300, 5e-324, 1e300, 2 * pi], ["1", float("inf")]),
    "padding_idx": ([5, 0, -1, -(2**63), 2**63 - 1],
                    [1.0, 2**63, -(2**63) - 1, 10**5000, True, [1], Tensor("torch.bool", 1)]),
    "scale": (SCALES, ["2", None, float("nan")]),
    "shift": ([1.0, 0.0, -3.25, 0.25], [float("nan"), "1"]),
    "frequencies": (
        [                               # six, for d_model 11 or 12
            (1.0, -1.5, 1 / 3, 1e300, 0.0, 5e-324), (1e-20, 7.5, -1.0, 1e300, 5e-324, 0.0),
            (1.0, 2.0, 4.0, 8.0, 16.0, 32.0),
            (2 * pi, pi, 2.0**-1022, -1e300, 1.7976931348623157e308, 1e-160),
        ],
        [[1.0, float("nan")], np.eye(2), "1", ["a", "b"], [True], np.full(32, 1j), [1.0], [[1.0], [2.0, 3.0]],
         np.ma.array([1, 2], mask=[True, False]), [True] + [0.5] * 31, [2**53 + 1] * 32, [2**53 + 1] + [0.5] * 31,
         range(10**30)],
    ),
    "periods": (
        [(24, 0.1, 10**9, 31_556_952 * 10**12, 2.5, 7), (1, 2, 3, 4, 12, 365.2425),
         (5e-324, 1e300, 2**64 + 1, 1 / 3, 2.0**-60, 1e-5)],
        [[0] * 32, [-1.0] * 32, [float("nan")] * 32, [10**5000] * 32, [True] * 32, [1j] * 32,
         [None] * 32, np.eye(2), 5, "1D", [1.0], [1, "1D"] * 16, ["1M"] * 32, ["1Y"] * 32,
         ["-1D"] * 32, ["0s"] * 32, ["1 day"] * 32, [np.timedelta64(1, "M")] * 32,
         [np.timedelta64("NaT", "s")] * 32, [np.datetime64(5, "s")] * 32,
         np.ma.array([1, 2], mask=[True, False]), [np.ma.array(5, mask=True)] * 32],
    ),
} | {name: (list(keyword.check), ["other", 1]) for name, keyword in KEYWORDS.items()
     if isinstance(keyword.check, tuple)}
VALID, INVALID = ({name: values[which] for name, values in EXAMPLES.items()} for which in (0, 1))
SEQUENCES = [name for name, values in VALID.items() if isinstance(values[0], tuple)]


def single_keywords(most=None):
    """Return conventions of one keyword, with at most `most` values of each keyword, without its default."""
    return [{name: value} for name, keyword in KEYWORDS.items()
            for value in [v for v in VALID[name] if v not in (keyword.default, "error")][:most]]


def count_of_frequencies(d_model, convention):
    pairs = d_model // 2 if convention.get("odd") == "zero" else -(-d_model // 2)
    return d_model if convention.get("exponents") == "column" else pairs


def drawn_convention(d_model, sample, share):
    """Draw keywords that are valid together, each with a probability of `share`.

    sample(values) returns one of the values.
    """
    while True:
        convention = {}
        for name in (name for name in KEYWORDS if sample(range(20)) < 20 * share):
            value = sample([v for v in VALID[name] if v != "error"])
            if name in SEQUENCES:
                numbers = [x for values in VALID[name] for x in values]
                value = tuple(sample(numbers) for _ in range(count_of_frequencies(d_model, convention)))
            elif isinstance(value, float) and isfinite(2 * value):
                value *= sample([1.0, 1.0, 1.1, 4 / 3, 1.9])
            convention = changed(convention, {name: value}, KEYWORDS)
        with suppress(ValueError):      # frequencies beyond the range, or a shift by half of d_model
            posenc.Encoding(d_model, **convention)
            return convention


def options_of(convention):
    """Return the options of the command line for a convention."""
    texts = {name: ",".join(map(str, value)) if isinstance(value, tuple) else value
             for name, value in convention.items()}
    return [f"--{name.replace('_', '-')}={text}" for name, text in texts.items()]

