"""The columns of a table, computed from the checked keywords of a convention, for the kernel."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.checks import SECOND, shown
from posenc._core import kernel
from posenc._core.exact import ExactColumns, Turns
from posenc._core.frequencies import RationalTurns, explicit_turns, limbs_of, spaced_float64, spaced_turns

Keywords: TypeAlias = Mapping[str, Any]         # all keywords of a convention, checked

WIDEST = 2**24          # largest d_model; for each column, a new Encoding needs 200 bytes, and a call for a long table 1.3 kB
SIGN_BIT = np.uint64(1 << 63)


def checked_width(name: str, value: Any) -> int:
    """Check a number of columns."""
    number = checks.integer(name, value, 0)
    if number > WIDEST:
        raise ValueError(f"{name} is {shown(number)}, expected at most {WIDEST}")
    return number

# d: number of columns; c: keywords of the convention


def spacing(d: int, c: Keywords) -> tuple[int, Fraction]:
    """Return the number of frequencies and the divisor in ``base**(-i / divisor)``."""
    zero_column = c["odd"] == "zero" and d % 2
    pairs = d // 2 if zero_column else -(-d // 2)
    count = d if c["exponents"] == "column" else pairs
    per_frequency = 2 if c["exponents"] == "column" else 1      # column j has exponent -j / (2 D), where D = half - shift
    half = Fraction(d // 2) if zero_column else Fraction(d, 2)
    if c["spacing"] == "endpoint":
        divisor = Fraction(count - 1)
    else:
        divisor = per_frequency * (half - Fraction(c["shift"] or 0))
    if count > 1 and divisor == 0:
        raise ValueError(f"shift is {c['shift']}, expected a number other than {half}, to avoid a division by zero")
    return count, divisor


def width_of(c: Keywords) -> int:
    """Return the number of columns that the frequencies or periods determine."""
    given = c["periods"] if c["frequencies"] is None else c["frequencies"]
    if given is None:
        raise TypeError("d_model is missing, expected an integer, or frequencies= or periods=")
    return len(given) * (1 if c["exponents"] == "column" else 2)


def has_durations(c: Keywords) -> bool:
    """Return whether the periods are durations, so that the positions are datetimes or durations, too."""
    return bool(c["periods"]) and isinstance(c["periods"][0], str)


def turns_of_periods(c: Keywords, scale: float, unit: int) -> RationalTurns:
    """Return ``scale / period`` in turns per position.  Positions for durations count `unit` attoseconds."""
    lengths = (Fraction(checks.attoseconds("periods", p), unit) if isinstance(p, str) else Fraction(p) for p in c["periods"])
    return RationalTurns([Fraction(scale) / length for length in lengths])


def turns_of_convention(d: int, c: Keywords, unit: int = SECOND) -> Turns:
    """Return a function that computes each frequency times position_scale, in turns per position; `unit`: see above."""
    count, divisor = spacing(d, c)
    for name in ("frequencies", "periods"):
        if c[name] is not None and len(c[name]) != count:
            raise ValueError(f"{name} has length {len(c[name])}, expected {count} for this convention")
    if c["periods"] is not None:
        return turns_of_periods(c, c["position_scale"], unit)
    if c["frequencies"] is not None:
        return functools.partial(explicit_turns, c["frequencies"], c["position_scale"])
    scales = c["frequency_scale"], c["position_scale"]
    return functools.partial(spaced_turns, count, ((c["base"], divisor),), scales)


def float64_frequencies(d: int, c: Keywords) -> NDArray[np.float64]:
    """Return the frequencies in radians per position, or per second for durations, without `position_scale`."""
    if c["frequencies"] is not None:
        return np.array(c["frequencies"], np.float64)
    if c["periods"] is not None:
        return np.array(turns_of_periods(c, 1, SECOND).radians(), np.float64)
    with kernel.default_environment():
        count, divisor = spacing(d, c)
        return spaced_float64(count, ((c["base"], divisor),), c["frequency_scale"])


def arrangement(d: int, c: Keywords, count: int) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return for each column the index of its frequency, or `count` if the column is zero, and whether it is a cosine."""
    interleaved = np.arange(d)
    frequency = interleaved if c["exponents"] == "column" else interleaved // 2
    cosine = interleaved % 2 == (c["order"] == "sin")
    order = np.argsort(interleaved % 2, kind="stable") if c["layout"] == "halves" else interleaved
    if c["odd"] == "zero" and d % 2:
        order = np.append(order[order != d - 1], d - 1)
        frequency[-1] = count                                   # the index of the zero that `kernel_columns` appends
        cosine[-1] = False
    return frequency[order], cosine[order]


def kernel_columns(d: int, c: Keywords, compute_turns: Turns | None = None) -> kernel.Columns:
    """Return the columns in their final order, for the kernel; `compute_turns` replaces the frequencies of the convention."""
    compute_turns = compute_turns or turns_of_convention(d, c)
    turns, fraction_bits = compute_turns()
    frequency, cosine = arrangement(d, c, len(turns))
    pitch = kernel.pitched(d)
    repeated = np.arange(pitch) % d if d else np.empty(0, np.intp)
    frequency, cosine = frequency[repeated], cosine[repeated]
    quarter = np.where(cosine, ~np.uint64(0), np.uint64(0))
    sign = np.array([t < 0 for t in turns] + [False])[frequency] * SIGN_BIT
    limbs, integer_limbs = limbs_of([*turns, 0], fraction_bits)
    is_nan = has_durations(c)
    padding = checks.LOWEST if is_nan else c["padding_idx"]     # NaT is the lowest integer
    phase_bits = compute_turns.phase_bits() if isinstance(compute_turns, RationalTurns) else None
    return kernel.Columns(
        d, limbs.take(frequency, 1).tobytes(), integer_limbs, len(limbs) - integer_limbs, sign.tobytes(),
        quarter.tobytes(), _kernel_order(d, c), c["scale"], c["position_offset"], padding, is_nan,
        phase_bits, ExactColumns(compute_turns, frequency, cosine, c["scale"]),
    )


def _kernel_order(d: int, c: Keywords) -> int:
    """Return `order_t` of kernel.h: 1 if columns 2 i and 2 i + 1 are sin and cos of frequency i, 2 if cos and sin, else 0."""
    if c["layout"] != "interleaved" or c["exponents"] != "pair" or c["odd"] == "zero" and d % 2:
        return 0
    return 1 if c["order"] == "sin" else 2
