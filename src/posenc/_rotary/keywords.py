"""Check the keywords of `Rotary` together, and compute the frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from posenc._arguments import checks
from posenc._arguments.as_array import as_array, shown
from posenc._arguments.base_class import Keyword, abbreviated
from posenc._core import kernel
from posenc._encoding.columns import WIDEST
from posenc._rotary import pair_axes
from posenc._rotary.scaling import SHARED, Frequencies, explicit_frequencies, scaled_frequencies


def axis_of_each_pair(name: str, value: Any) -> tuple[int, ...]:
    array = as_array(name, value)
    if array.dtype.kind not in "iu" and array.size:
        raise TypeError(f"{name} has dtype {array.dtype}, expected integers")
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    axes = tuple(map(int, array.tolist()))
    if axes and min(axes) < 0:
        raise ValueError(f"{name} has {min(axes)}, expected integers from 0")
    if axes and max(axes) >= kernel.MOST_AXES:
        raise ValueError(f"{name} has {max(axes)}, expected integers below {kernel.MOST_AXES}")
    for axis in range(max(axes, default=-1)):
        if axis not in axes:
            raise ValueError(f"{name} has {max(axes)} but not {axis}, expected at least one pair for each axis")
    return axes


def width(name: str, value: Any) -> int:
    number = checks.integer(name, value, 0)
    if number > WIDEST:
        raise ValueError(f"{name} is {shown(number)}, expected at most {WIDEST}")
    return number


def resolved(head_dim: int, c: dict[str, Any], keywords: Mapping[str, Keyword[Any, Any]]) -> dict[str, Any]:
    """Check the keywords together and return them, with the values that `scaling` has for other keywords.

    If a key of the scaling has the same meaning as a keyword, such as ``rope_theta`` and base, the keyword replaces the key.
    """
    given, c["scaling"] = c["scaling"] or {}, None
    axes_are_scaling = "mrope_section" in given
    if given:
        shared = {key: given.pop(key) for key in SHARED if key in given}
        if given["rope_type"] == "proportional" and "partial_rotary_factor" in shared:
            given["partial_rotary_factor"] = shared.pop("partial_rotary_factor")
        _move(c, keywords["base"], "rope_theta", shared.get("rope_theta"))
        share = shared.get("partial_rotary_factor")
        if share is not None and head_dim and head_dim * share < 2:
            raise ValueError(f"scaling['partial_rotary_factor'] is {share}, expected at least {2 / head_dim}, for one pair")
        _move(c, keywords["rotary_dim"], "partial_rotary_factor", None if share is None else int(head_dim * share))
        if shared.get("mrope_interleaved") and len(shared.get("mrope_section", ())) != 3:
            raise ValueError("scaling has mrope_interleaved, expected mrope_section with three numbers")
        if "mrope_section" in shared:
            axes_of = pair_axes.interleaved if shared.get("mrope_interleaved") else pair_axes.blocks
            axes = axis_of_each_pair("scaling['mrope_section']", axes_of(shared["mrope_section"]))
            _move(c, keywords["axes"], "mrope_section", axes)
        c["scaling"] = None if given == {"rope_type": "default"} else given
    rotary_dim = head_dim if c["rotary_dim"] is None else c["rotary_dim"]
    c["rotary_dim"] = None if rotary_dim == head_dim else rotary_dim
    if rotary_dim % 2 or rotary_dim > head_dim:
        name = "head_dim" if rotary_dim == head_dim else "rotary_dim"
        most = "" if rotary_dim == head_dim else f", at most head_dim, {head_dim}"
        raise ValueError(f"{name} is {rotary_dim}, expected an even number of columns{most}")
    for name in ("axes", "frequencies"):
        if c[name] is not None and len(c[name]) != rotary_dim // 2:
            given_as = "scaling['mrope_section'] has the sum" if name == "axes" and axes_are_scaling else f"{name} has length"
            raise ValueError(f"{given_as} {len(c[name])}, expected {rotary_dim // 2}, the number of pairs")
    if not any(c["axes"] or ()):            # a single axis
        c["axes"] = None
    return c


def _move(c: dict[str, Any], keyword: Keyword[Any, Any], key: str, value: Any) -> None:
    """Set a keyword to the value of a key of the scaling; raise an error if the keyword was given another value."""
    name = keyword.name
    if value is not None:
        if c[name] not in (keyword.default, value):
            raise ValueError(
                f"{name} is {abbreviated(c[name])} and scaling[{key!r}] means {abbreviated(value)}, "
                "expected only one of them"
            )
        c[name] = value


def frequencies_of(rotary_dim: int, c: Mapping[str, Any]) -> Frequencies:
    if c["frequencies"] is not None:
        found = explicit_frequencies(c["frequencies"])
    else:
        found = scaled_frequencies(rotary_dim, c["base"], c["frequency_scale"], c["scaling"] or {"rope_type": "default"})
    found.turns()                                                   # refuses frequencies beyond the range of the kernel
    if not np.isfinite(c["scale"] * found.attention_factor):
        raise ValueError(f"scale is {c['scale']}, expected a number whose product with {found.attention_factor} is finite")
    values = np.frombuffer(found.values.tobytes())                  # setflags cannot undo the read-only flag of a view of bytes
    return found._replace(values=values)
