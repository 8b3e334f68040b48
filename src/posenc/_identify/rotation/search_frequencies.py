"""Find the rotation that matches given frequencies, such as `inv_freq`, and name the faults of these frequencies."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from posenc._arguments.dtypes import DTYPES
from posenc._identify.rotation.arithmetic import NARROW, Arithmetic, errors_of, rounded
from posenc._identify.rotation.candidates import Estimate
from posenc._identify.rotation.faults import differences
from posenc._identify.rotation.fits import explicit
from posenc._identify.rotation.read_arrays import Reading
from posenc._identify.rotation.search_values import Found, checked_size, near_candidates, targets
from posenc._identify.table.sample import PRECISION, narrowest
from posenc._rotary import Rotary


def search_frequencies(reading: Reading, expected: Rotary | None, source: str, head_dim: int | None) -> Found:
    """Find the rotation that matches the frequencies of a reading."""
    w = reading.frequencies
    assert w is not None
    if not len(w):
        return Found(expected, 0.0) if expected is not None and not expected.rotary_dim else Found(
            None, math.inf, ("there are no frequencies",))
    bad = np.count_nonzero(~np.isfinite(w))
    if bad or not w.any():
        what = f"{bad} of {len(w)} elements are not finite" if bad else f"all {len(w)} elements are 0"
        return Found(None, math.inf, (f"{what}, so inv_freq is probably uninitialized",))
    results = [
        _found(w, target, source, checked_size(head_dim, len(w)), faults, narrowest(w, reading.dtype))
        for target, faults in targets(expected, len(w), source)
    ]
    return min(results, key=lambda found: len(found.faults))


def _found(
    given: NDArray[np.float64], target: Rotary | None, source: str, size: int, faults: tuple[str, ...], own: str
) -> Found:
    w, axes = given, None if target is None else target.axes
    if target is not None and (given * target.frequencies < 0).all():
        faults = (*faults, "the signs of the frequencies are reversed")
        w = -given
    for narrow in ("", own) if own in NARROW else ("",):
        relative = 2.0 ** -PRECISION[narrow] if narrow else 2.0**-50
        smallest = 2.0 ** DTYPES[narrow].smallest if narrow else 0.0
        estimate = Estimate(w, (relative * np.abs(w) + smallest) / 8, np.ones(len(w), bool))
        for candidate in near_candidates(estimate, target, source, size, axes):
            rotary = candidate.rotary
            if narrow and not (rounded(rotary.frequencies, narrow) == w).mean() > 0.9:
                continue
            more = candidate.faults if candidate.faults is not None else differences(rotary, target, source)
            if narrow:
                more = (*more, f"inv_freq was rounded to {narrow}")
            distance = np.abs(w - rotary.frequencies).max()
            dtype = "float64" if distance < 1e-13 else "float32"
            errors = errors_of(rotary, Arithmetic("float32", dtype), w)
            remark = f"{narrow or dtype} frequencies: the error is {errors[1_000_000]:.1g} at position 1,000,000"
            distance = np.abs(given - rotary.frequencies).max()
            return Found(rotary, float(distance), (*faults, *more), (remark,), errors)
    found = explicit(Estimate(w, np.zeros(len(w)), np.ones(len(w), bool)), size, axes)
    if target is None:
        return Found(found, 0.0, (), ("the frequencies follow no known formula",))
    errors = errors_of(found, Arithmetic("float32", "float32"))
    return Found(found, float(np.abs(given - w).max()), (*faults, *differences(found, target, source)), (), errors)
