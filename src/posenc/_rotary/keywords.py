"""Check the keywords of `Rotary` together, and compute the frequencies."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from posenc._arguments import checks
from posenc._arguments.arrays import as_array
from posenc._arguments.checks import shown
from posenc._arguments.specification import Keyword
from posenc._core import kernel
from posenc._rotary import pair_axes
from posenc._rotary.scaling import SHARED, Frequencies, explicit_frequencies, scaled_frequencies


def axis_of_each_pair(name: str, value: Any) -> tuple[int, ...]:
    array = as_array(name, value)
    if array.ndim != 1:
        raise ValueError(f"{name} has shape {array.shape}, expected one dimension")
    axes = tuple(checks.integer(name, axis, 0) for axis in array.tolist())
    count = len(set(axes))
    if set(axes) != set(range(count)) or count > kernel.MOST_AXES:
        raise ValueError(f"{name} is {shown(axes)}, expected integers from 0 without gaps, below {kernel.MOST_AXES}")
    return axes


def resolved(head_dim: int, c: dict[str, Any], keywords: Mapping[str, Keyword[Any, Any]]) -> dict[str, Any]:
    """Check the keywords together and return them, with the values that `scaling` has for other keywords."""
    scaling = dict(c["scaling"] or {"rope_type": "default"})
    shared = set(SHARED) - ({"partial_rotary_factor"} if scaling["rope_type"] == "proportional" else set())
    meanings = _meanings({key: scaling.pop(key) for key in shared & scaling.keys()}, head_dim)
    for key, (name, value) in meanings.items():
        if c[name] not in (keywords[name].default, value):
            raise checks.both_given(name, f"scaling[{key!r}]")
        c[name] = value
    c["scaling"] = None if scaling == {"rope_type": "default"} else scaling
    rotary_dim = head_dim if c["rotary_dim"] is None else c["rotary_dim"]
    c["rotary_dim"] = None if rotary_dim == head_dim else rotary_dim
    if rotary_dim % 2 or rotary_dim > head_dim:
        name, limit = ("head_dim", "") if rotary_dim == head_dim else ("rotary_dim", f" of at most head_dim, {head_dim}")
        raise ValueError(f"{name} is {rotary_dim}, expected an even number{limit}")
    for name in ("axes", "frequencies"):
        if c[name] is not None and len(c[name]) != rotary_dim // 2:
            raise ValueError(f"{name} has length {len(c[name])}, expected {rotary_dim // 2}, the number of pairs")
    if not any(c["axes"] or ()):            # a single axis
        c["axes"] = None
    return c


def _meanings(shared: Mapping[str, Any], head_dim: int) -> dict[str, tuple[str, Any]]:
    """Return the keywords of `Rotary`, with their values, that keys of a scaling mean."""
    meanings: dict[str, tuple[str, Any]] = {}
    if "rope_theta" in shared:
        meanings["rope_theta"] = "base", shared["rope_theta"]
    if "partial_rotary_factor" in shared:
        share = shared["partial_rotary_factor"]
        if head_dim and head_dim * share < 2:
            raise ValueError(f"scaling['partial_rotary_factor'] is {share}, expected at least {2 / head_dim}, for one pair")
        meanings["partial_rotary_factor"] = "rotary_dim", int(head_dim * share)
    if "mrope_section" in shared or shared.get("mrope_interleaved"):
        axes_of = pair_axes.interleaved if shared.get("mrope_interleaved") else pair_axes.blocks
        axes = axis_of_each_pair("scaling['mrope_section']", axes_of(shared.get("mrope_section", ())))
        meanings["mrope_section"] = "axes", axes
    return meanings


def frequencies_of(rotary_dim: int, c: Mapping[str, Any]) -> Frequencies:
    if c["frequencies"] is not None:
        frequencies = explicit_frequencies(c["frequencies"])
    else:
        scaling = c["scaling"] or {"rope_type": "default"}
        frequencies = scaled_frequencies(rotary_dim, c["base"], c["frequency_scale"], scaling)
    frequencies.turns()                                             # refuses frequencies beyond the range of the kernel
    if not np.isfinite(c["scale"] * frequencies.attention_factor):
        limit = f"a number whose product with {frequencies.attention_factor} is finite"
        raise ValueError(f"scale is {c['scale']}, expected {limit}")
    return frequencies._replace(values=np.frombuffer(frequencies.values.tobytes()))     # a view of bytes is always read-only
