"""Name the differences of a rotation from the expected one, and the arithmetic that computed the rotation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posenc._arguments.types import Layout
from posenc._identify.rotation.arithmetic import NARROW, Arithmetic
from posenc._identify.table.sample import PRECISION
from posenc._identify.wording import number, pairs
from posenc._rotary import Rotary


def differences(found: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return a sentence for each difference between the frequencies of a rotation and the expected ones."""
    if expected is None:
        return ()
    faults = []
    own, wanted = found.scaling, expected.scaling
    if _is_explicit(found):
        return _explicit_differences(found, expected)
    if found.base != expected.base and not _is_explicit(expected):
        faults.append(f"base is {number(found.base)}, {source} {number(expected.base)}")
    if found.frequency_scale != expected.frequency_scale and not _is_explicit(expected):
        own_scale, wanted_scale = number(found.frequency_scale), number(expected.frequency_scale)
        faults.append(f"frequency_scale is {own_scale}, {source} {wanted_scale}")
    if _is_explicit(expected):
        faults.append(f"the frequencies are those of base {number(found.base)}, expected others")
    if own != wanted:
        if own is None:
            assert wanted is not None
            faults.append(f"the scaling {wanted['rope_type']} is not applied")
        else:
            instead = f"{source} {wanted['rope_type'] if wanted is not None else 'none'}"
            if wanted is None or wanted["rope_type"] != own["rope_type"]:
                factor = f" with factor {number(own['factor'])}" if "factor" in own else ""
                faults.append(f"the scaling {own['rope_type']}{factor} is applied, {instead}")
            else:
                if wanted["rope_type"] == "yarn":
                    own, wanted = _at_one_length(own, wanted, math.log(found.base) / len(found.frequencies))
                keys = [key for key in {**own, **wanted} if own.get(key) != wanted.get(key) and key != "attention_factor"]
                name = own["rope_type"]
                faults += [f"{key} of the scaling {name} is {own.get(key)}, {source} {wanted.get(key)}" for key in keys]
    return tuple(faults)


def _at_one_length(
    own: dict[str, Any], wanted: dict[str, Any], step: float
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Convert `own` to the original length of `wanted`, and add betas to `wanted`, if the betas of `own` are fitted.

    Both are scalings of type yarn.  Each beta affects the frequencies only through a pair number, which is rounded and depends
    on the length divided by beta.  `step` is the difference between the logarithms of the frequencies of adjacent pairs.
    """
    if "beta_fast" not in own:
        return own, wanted
    wanted = {"beta_fast": 32.0, "beta_slow": 1.0} | wanted
    length = "original_max_position_embeddings"
    ratio, own = wanted[length] / own[length], own | {length: wanted[length]}
    for key, rounding in (("beta_fast", math.floor), ("beta_slow", math.ceil)):
        beta = ratio * own[key]
        found, expected = (rounding(math.log(wanted[length] / (math.tau * each)) / step) for each in (beta, wanted[key]))
        own[key] = wanted[key] if found == expected else float(f"{beta:.2g}")
    return own, wanted


def _is_explicit(rotary: Rotary) -> bool:
    return rotary.to_dict()["rotary"]["frequencies"] is not None


def _explicit_differences(found: Rotary, expected: Rotary) -> tuple[str, ...]:
    """Return sentences for the differences of frequencies that follow no formula."""
    f, w = expected.frequencies, found.frequencies
    differ = np.flatnonzero(np.abs(w - f) > 1e-3 * np.abs(f))
    if not len(differ):
        return ("the frequencies differ slightly from the expected ones",)
    still = differ[w[differ] == 0]
    faults = [not_rotated(still.tolist())] if len(still) else []
    others = differ[w[differ] != 0]
    if len(others):
        k, which = others[0], pairs(others.tolist())
        formula = "follow no known formula" if len(others) > len(f) / 2 else "differ"
        values = f"{w[k]:.6g}, expected {f[k]:.6g}"
        several = f"the frequencies of {which} {formula}: pair {k} has {values}"
        faults.append(several if len(others) > 1 else f"the frequency of {which} is {values}")
    return tuple(faults)


def not_rotated(values: Sequence[int]) -> str:
    return f"{pairs(values)} {'are' if len(values) > 1 else 'is'} not rotated"


def of_layout(
    shown: Layout | None, repeated: Layout | None, expected: Rotary | None, source: str
) -> tuple[tuple[str, ...], tuple[str, ...], Layout]:
    """Return the faults, the remarks and the layout of a rotation.

    `shown` is the layout of the pairs, if the rotation shows it; `repeated` is the layout of tables that contain each column
    twice.
    """
    wanted: Layout = "halves" if expected is None else expected.layout
    layout = shown or (repeated if expected is None else None) or wanted
    if expected is None:
        return (), (), layout
    if layout != wanted:
        return (f"layout is {layout}, {source} {wanted}",), (), layout
    if shown is None and repeated not in (None, wanted):
        if repeated == "interleaved":
            text = "the tables have each column twice in succession, as for layout interleaved"
            return (f"{text}, {source} {wanted}",), (), layout
        return (), ("the tables have their columns twice, as halves, and do not show the layout of the rotation",), layout
    return (), (), layout


def of_scale(found: Rotary, expected: Rotary | None, source: str) -> tuple[str, ...]:
    """Return the fault if the scale of cosines and sines is wrong."""
    if expected is None:
        return ()
    scale, attention = found.scale * found.attention_scaling, expected.attention_scaling
    wanted = expected.scale * attention
    if math.isclose(scale, wanted, rel_tol=1e-6):
        return ()
    for factor, words in ((1.0, "is missing"), (attention**2, "is applied twice"), (1 / attention, "is inverted")):
        if not math.isclose(attention, 1) and math.isclose(scale, expected.scale * factor, rel_tol=1e-3):
            return (f"attention_scaling {attention:.4g} {words}",)
    return (f"cosines and sines are multiplied by {number(scale)}, {source} {number(wanted)}",)


def of_arithmetic(
    arithmetic: Arithmetic, narrower: bool, errors: Mapping[int, float], exactly: bool
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the faults and remarks about an arithmetic; `narrower` is True if tables were rounded to too few bits."""
    faults = []
    if arithmetic.frequencies in NARROW:
        faults.append(f"inv_freq was rounded to {arithmetic.frequencies}")
    if arithmetic.positions in NARROW:
        above = 2 ** PRECISION[arithmetic.positions]
        faults.append(f"positions were rounded to {arithmetic.positions} above {above:,}")
    if arithmetic.angles in NARROW:
        faults.append(f"angles were rounded to {arithmetic.angles}")
    if narrower:
        faults.append(f"tables were rounded to {arithmetic.table}")
    if faults:
        return tuple(faults), ()
    if arithmetic.angles == "float32":
        position, error = max(errors.items())
        return (), (f"float32 angles: the error is {error:.1g} at position {position:,}",)
    return (), ("float64 angles" if arithmetic.angles else "every value correctly rounded" if exactly else "rounding",)
