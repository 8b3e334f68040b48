"""Find the convention that is nearest to a table without a match, and the columns that differ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._encoding.encoding import Encoding
from posenc._identify.table.candidates import fits, preset_encodings
from posenc._identify.table.sample import PRECISION, Sample, positions_at
from posenc._identify.wording import numbers


def nearest_to(sample: Sample) -> tuple[Encoding, range | NDArray[Any], tuple[str, ...], float, str] | None:
    """Return encoding, positions, presets, difference and reason of the nearest convention; None if most columns differ.

    If the positions are unknown, ranges from 0 and from 1 are tried.
    """
    d_model = sample.values.shape[1]
    starts = (range(sample.total), range(1, sample.total + 1)) if sample.positions is None else (sample.positions,)
    named = [(encoding, names) for encoding, names in preset_encodings(d_model).values()]
    fitted: list[tuple[Encoding, Any]] = [(encodings[-1], ()) for encodings in fits(sample)]
    best, least = None, 0.5
    for encoding, names in (*named, *fitted):
        for positions in starts:
            at = positions_at(positions, sample.rows)
            error = np.abs(sample.values - encoding.encode(at, dtype="float64"))
            angles = np.abs(at.astype(np.float64)[:, None]) * np.max(np.abs(encoding.frequencies), initial=0.0)
            size = abs(encoding.scale)
            bound = size * (40 * 2.0**-24 * angles + 2.0 ** -min(PRECISION[sample.stored], 20))
            good = ((error <= bound) & (bound < size)).mean(axis=0) > 0.9
            if good.mean() > least:
                least = float(good.mean())
                best = encoding, positions, names, error, np.flatnonzero(~good)
    if best is None:
        return None
    encoding, positions, names, error, columns = best
    largest = float(np.nan_to_num(error[:, columns], nan=math.inf).max(initial=0.0))
    listed = numbers(columns.tolist())
    which = f"column {listed} differs" if len(columns) == 1 else f"columns {listed} differ"
    return encoding, positions, tuple(name for name, _ in names), largest, f"no match: {which} by up to {largest:.2g}"
