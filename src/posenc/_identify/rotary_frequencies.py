"""Search for the rotation that has given frequencies, such as `inv_freq`, and name its faults."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.dtypes import DTYPES
from posenc._identify.arithmetic import NARROW, Arithmetic, errors_of, rounded
from posenc._identify.rotary_candidates import Candidate, Estimate
from posenc._identify.rotary_faults import differences
from posenc._identify.rotary_fits import explicit
from posenc._identify.rotary_search import Found, checked_size, near_candidates, with_pairs
from posenc._identify.rotation import Reading
from posenc._identify.sample import PRECISION, narrowest
from posenc._rotary import Rotary


def search_frequencies(reading: Reading, expected: Rotary | None, source: str, head_dim: int | None) -> Found:
    """Find the rotation of frequencies such as `inv_freq`."""
    w = reading.frequencies
    assert w is not None
    if not len(w):
        return Found(expected, 0.0) if expected is not None and not expected.rotary_dim else Found(
            None, math.inf, ("there are no frequencies",))
    bad = np.count_nonzero(~np.isfinite(w))
    if bad or not w.any():
        what = f"{bad} of {len(w)} elements are not finite" if bad else f"all {len(w)} elements are 0"
        return Found(None, math.inf, (f"inv_freq is not a geometric series, and {what}: probably uninitialised",))
    target, faults = (None, ()) if expected is None else with_pairs(expected, len(w), source)
    if target is not None and (w * target.frequencies < 0).all():
        faults = (*faults, "the signs of the frequencies are reversed")
        w = -w
    own = narrowest(w, reading.dtype)
    size, axes = checked_size(head_dim, len(w)), None if target is None else target.axes
    for narrow in ("", own) if own in NARROW else ("",):
        relative = 2.0 ** -PRECISION[narrow] if narrow else 2.0**-50
        smallest = 2.0 ** DTYPES[narrow].smallest if narrow else 0.0
        estimate = Estimate(w, (relative * np.abs(w) + smallest) / 8, np.ones(len(w), bool))
        for candidate in near_candidates(estimate, target, source, size, axes):
            f = candidate.rotary.frequencies
            if narrow and not (rounded(f, narrow) == w).mean() > 0.9:
                continue
            return _result_of_frequencies(w, narrow, candidate, target, source, faults)
    found = explicit(Estimate(w, np.zeros(len(w)), np.ones(len(w), bool)), size, axes)
    if target is None:
        return Found(found, 0.0, (), ("the frequencies follow no known formula",))
    errors = errors_of(found, Arithmetic("float32", "float32"))
    return Found(found, 0.0, (*faults, *differences(found, target, source)), (), errors)


def _result_of_frequencies(
    w: NDArray[np.float64], narrow: str, candidate: Candidate, target: Rotary | None, source: str, faults: tuple[str, ...]
) -> Found:
    rotary = candidate.rotary
    more = candidate.faults if candidate.faults is not None else differences(rotary, target, source)
    if narrow:
        more = (*more, f"inv_freq was rounded to {narrow}")
    distance = float(np.abs(w - rotary.frequencies).max())
    dtype = next(name for name in ("float64", "float32") if name == "float32" or distance < 1e-13)
    errors = errors_of(rotary, Arithmetic("float32", dtype), w)
    remark = f"{narrow or dtype} frequencies: the error is {errors[1_000_000]:.1g} at position 1,000,000"
    return Found(rotary, distance, (*faults, *more), (remark,), errors)
