"""The columns of a table, computed from the checked keywords of a convention, for the kernel."""

import functools
import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._core import frequencies as core
from posenc._core import kernel
from posenc._core.exact import ExactColumns

Keywords: TypeAlias = Mapping[str, Any]         # all keywords of a convention, checked

# largest d_model; for each column, a new Encoding needs 200 bytes, and a call for a long table 1.3 kB
MAX_COLUMNS = 2**24
SIGN_BIT, ALL_BITS = np.uint64(1 << 63), ~np.uint64(0)


def checked_width(name: str, value: Any) -> int:
    """Check a number of columns."""
    number = checks.integer(name, value, 0)
    if number > MAX_COLUMNS:
        raise ValueError(f"{name} is {checks.shown(number)}, expected at most {MAX_COLUMNS}")
    return number

# d: number of columns; c: keywords of the convention


def zero_columns(d: int, c: Keywords) -> int:
    return d % 2 if c["odd"] == "zero" else 0


def count_and_divisor(d: int, c: Keywords) -> tuple[int, Fraction]:
    """Return the number of frequencies and the divisor in ``base**(-i / divisor)``."""
    half = Fraction(d - zero_columns(d, c), 2)
    # column j has the exponent -j / (2 D), where D = half - shift
    count, per_frequency = (d, 2) if c["exponents"] == "column" else (math.ceil(half), 1)
    divisor = per_frequency * (half - Fraction(c["shift"] or 0))
    if c["spacing"] == "endpoint":
        divisor = Fraction(count - 1)
    if count > 1 and divisor == 0:
        raise ValueError(f"shift is {c['shift']}, expected a number other than {half}, to avoid a divisor of 0")
    return count, divisor


def width_from_frequencies(c: Keywords) -> int:
    """Return the number of columns that the frequencies or periods determine."""
    given = c["periods"] if c["frequencies"] is None else c["frequencies"]
    if given is None:
        raise TypeError("d_model is missing, expected an integer, or frequencies= or periods=")
    return len(given) * (1 if c["exponents"] == "column" else 2)


def has_durations(c: Keywords) -> bool:
    """Return whether the periods are durations, so that the positions are datetimes or durations, too."""
    return bool(c["periods"]) and isinstance(c["periods"][0], str)


def turns_of_convention(d: int, c: Keywords, unit: int = checks.SECOND) -> core.ComputeTurns:
    """Return a function that computes each frequency times position_scale, in turns per position."""
    count, divisor = count_and_divisor(d, c)
    for name in ("frequencies", "periods"):
        if c[name] is not None:
            checks.check_length(name, c[name], count, " for this convention")
    if c["periods"] is not None:
        # positions for durations count `unit` attoseconds
        is_duration, scale = has_durations(c), Fraction(c["position_scale"])
        lengths = ((checks.attoseconds("periods", p), unit) if is_duration else (p,) for p in c["periods"])
        return core.RationalTurns([scale / Fraction(*length) for length in lengths])
    if c["frequencies"] is not None:
        return functools.partial(core.explicit_turns, c["frequencies"], c["position_scale"])
    scales = c["frequency_scale"], c["position_scale"]
    return functools.partial(core.spaced_turns, count, ((c["base"], divisor),), scales)


def float64_frequencies(d: int, c: Keywords) -> NDArray[np.float64]:
    """Return the frequencies in radians per position or second, without `position_scale`."""
    scale = c["position_scale"] or 1.0
    with kernel.default_environment():
        return core.radians_of(turns_of_convention(d, {**c, "position_scale": scale}), scale)


def arrangement(d: int, c: Keywords) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """Return for each column the index of its frequency, or d if it is zero, and whether it is a cosine."""
    interleaved = np.arange(d)
    frequency = interleaved if c["exponents"] == "column" else interleaved // 2
    cosine = interleaved % 2 == (c["order"] == "sin")
    order = np.argsort(interleaved % 2, kind="stable") if c["layout"] == "halves" else interleaved
    if zero_columns(d, c):
        order = np.append(order[order != d - 1], d - 1)
        frequency[-1] = d
        cosine[-1] = False
    return frequency[order], cosine[order]


def columns_of_convention(d: int, c: Keywords, unit: int = checks.SECOND) -> kernel.Columns:
    """Return the columns of a convention for the kernel; `unit` is that of durations."""
    compute_turns, is_nan = turns_of_convention(d, c, unit), has_durations(c)
    order = 3 if c["layout"] == "halves" else 1 if c["order"] == "sin" else 2
    if c["exponents"] != "pair" or zero_columns(d, c):
        order = 0
    return kernel_columns(
        compute_turns, *arrangement(d, c), order, c["scale"] + 0.0, c["position_offset"],       # -0.0 is 0
        checks.LOWEST if is_nan else c["padding_idx"], is_nan,              # NaT is the lowest integer
    )


def kernel_columns(
    compute_turns: core.ComputeTurns, frequency: NDArray[np.intp], cosine: NDArray[np.bool_], order: int,
    scale: float, position_offset: float = 0.0, padding_idx: int | None = None, padding_is_nan: bool = False,
) -> kernel.Columns:
    """Return columns for the kernel: each is the cosine or sine of a frequency that `compute_turns` returns.

    The class `kernel.Columns` describes the other arguments.
    """
    turns, d = compute_turns(core.SIGNIFICANT_BITS), len(frequency)
    columns = np.arange(kernel.pitched(d) if d else 0)
    repeated, quarter = frequency.take(columns, mode="wrap"), cosine.take(columns, mode="wrap") * ALL_BITS
    limbs, is_negative = (x.take(repeated, 0, mode="clip") for x in (turns.limbs, turns.is_negative))
    fraction_limbs = turns.fraction_bits // core.LIMB_BITS
    rational = compute_turns if isinstance(compute_turns, core.RationalTurns) else None
    return kernel.Columns(
        d, limbs.T[::-1].tobytes(), limbs.shape[1] - fraction_limbs, fraction_limbs,
        (is_negative * SIGN_BIT).tobytes(), quarter.tobytes(), order, scale, position_offset,
        padding_idx, padding_is_nan,
        rational.phase_bits() if rational else None, rational.zeros() if rational else 0.0,
        ExactColumns(compute_turns, frequency, cosine, scale),
    )
