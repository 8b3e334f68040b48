"""Rotations fitted to frequencies, without an expected rotation."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posenc._identify.rotation.candidates import BASES, LENGTHS, Estimate, fitted_line
from posenc._identify.rotation.phases import FLOAT32
from posenc._identify.table.candidates import TURNS, short
from posenc._rotary import Rotary

DIGITS = (64.0, 8.0, 1.0, 0.1)      # parameters are rounded to short decimals within these multiples of the error


def fits(estimate: Estimate, head_dim: int, axes: Any = None) -> Iterator[Rotary]:
    """Yield rotations whose frequencies are near the estimates: geometric series, then the scaling types llama3 and yarn."""
    w = estimate.frequency
    count, dim = len(w), 2 * len(w)
    common: dict[str, Any] = {"rotary_dim": dim, "axes": axes}
    turning = np.flatnonzero(estimate.known & (w > 0))
    if not len(turning):
        return
    geometric = turning[-1] + 1
    for conventions in (
        _geometric(estimate, turning, count), _llama3(estimate, turning, count), _yarn(estimate, turning, count)
    ):
        for keywords in conventions:
            if geometric < count and "scaling" not in keywords:
                share = {"rope_type": "proportional", "partial_rotary_factor": geometric / count}
                keywords["scaling"] = share
            try:
                yield Rotary(head_dim, **common, **keywords)
            except ValueError:
                continue


def explicit(estimate: Estimate, head_dim: int, axes: Any = None) -> Rotary:
    """Return a rotation with the estimated frequencies."""
    values = np.where(np.abs(estimate.frequency) > estimate.error, estimate.frequency, 0.0)
    return Rotary(head_dim, rotary_dim=2 * len(values), axes=axes, frequencies=values)


def _geometric(estimate: Estimate, turning: NDArray[np.intp], count: int) -> Iterator[dict[str, Any]]:
    """Yield the keywords of geometric frequencies: first with a base from `BASES`, then with bases of more and more digits."""
    w, error = estimate.frequency, estimate.error
    if len(turning) == 1:
        yield {"frequency_scale": short(float(w[turning[0]]), float(8 * error[turning[0]] / w[turning[0]]), TURNS, 8)}
        return
    line = fitted_line(turning, w[turning], error[turning] / w[turning])
    if abs(line.slope) * count > 300:
        return
    base = math.exp(line.slope * count)
    scale = math.exp(line.intercept)
    least = count * max(line.slope_error, 2.0**-52)
    for found in BASES:
        if abs(math.log(found / base)) < 4 * least + 64 * FLOAT32:
            yield {"base": found, "frequency_scale": short(scale, 4 * line.intercept_error + 64 * FLOAT32, TURNS, 8)}
    for errors in DIGITS:
        within = errors * least + 2.0**-52
        if within < 0.1:
            scaled = short(scale, errors * line.intercept_error + 2.0**-52, TURNS, 8)
            yield {"base": short(base, within), "frequency_scale": scaled}


def _fast(estimate: Estimate, turning: NDArray[np.intp], count: int) -> Iterator[tuple[float, NDArray[np.float64]]]:
    """Yield possible bases and their unscaled frequencies, fitted to the first pairs, whose frequencies are not scaled."""
    w, error = estimate.frequency, estimate.error
    if len(turning) < 4 or abs(w[0] - 1) > 8 * error[0] + 64 * FLOAT32:
        return
    few = turning[: max(3, len(turning) // 8)]
    line = fitted_line(few, w[few], error[few] / w[few])
    base, relative = math.exp(min(line.slope * count, 300.0)), count * line.slope_error + 2.0**-52
    near = [b for b in BASES if abs(math.log(b / base)) < 4 * relative + 0.02]
    fitted = [short(base, errors * relative) for errors in DIGITS if errors * relative < 0.5]
    for found in dict.fromkeys((*near, *fitted)):
        yield found, found ** (-np.arange(count) / count)


def _scaled(estimate: Estimate, unscaled: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]] | None:
    """Return the factor of a scaling and its share in each frequency, or None.

    The share is 0 for an unscaled frequency, and 1 for a frequency that is divided by the factor.
    """
    ratio = estimate.frequency / unscaled
    relative = float(8 * estimate.error[-1] / abs(estimate.frequency[-1])) + 64 * FLOAT32
    if not (estimate.known.all() and 0 < ratio[-1] < 0.99 and relative < 0.05):
        return None
    factor = short(float(1 / ratio[-1]), relative)
    share = (1 - ratio) / (1 - 1 / factor)
    return (factor, share) if (share > -0.05).all() and (share < 1.05).all() else None


def _llama3(estimate: Estimate, turning: NDArray[np.intp], count: int) -> Iterator[dict[str, Any]]:
    for base, unscaled in _fast(estimate, turning, count):
        found = _scaled(estimate, unscaled)
        if found is None:
            continue
        factor, share = found
        inside = np.flatnonzero((share > 0.02) & (share < 0.98))
        lengths, pairs = list(LENGTHS), [(1.0, 4.0)]
        if len(inside) > 1:         # rotations = unscaled * length / (2 pi); share = (high - rotations) / (high - low)
            slope, at_zero = np.polyfit(unscaled[inside], share[inside], 1)
            if slope < 0 < at_zero - 1:
                high = short(float(at_zero / (at_zero - 1)), 1e-3)
                pairs = [(1.0, high)]
                lengths = [round(-slope * (high - 1) * math.tau), *lengths]
        for low, high in pairs:
            for length in dict.fromkeys(lengths):
                rotations = unscaled * length / math.tau
                expected = np.clip((high - rotations) / (high - low), 0, 1) if high > low else share + 1
                if np.abs(expected - share).max() < 0.02:
                    yield {"base": base, "scaling": {
                        "rope_type": "llama3", "factor": factor, "low_freq_factor": low, "high_freq_factor": high,
                        "original_max_position_embeddings": length}}


def _yarn(estimate: Estimate, turning: NDArray[np.intp], count: int) -> Iterator[dict[str, Any]]:
    i = np.arange(count)
    for base, unscaled in _fast(estimate, turning, count):
        found = _scaled(estimate, unscaled)
        if found is None or base <= 1:
            continue
        factor, share = found
        inside = np.flatnonzero((share > 0.02) & (share < 0.98))
        if not len(inside):
            continue
        if len(inside) > 1:
            slope, at_zero = np.polyfit(i[inside], share[inside], 1)
        else:
            slope, at_zero = 0.5, float(share[inside[0]]) - 0.5 * inside[0]
        if slope <= 0:
            continue
        low, high = -at_zero / slope, (1 - at_zero) / slope
        for length in LENGTHS:
            for truncate in (True, False):
                at = [count * math.log(length / (beta * math.tau)) / math.log(base) for beta in (32.0, 1.0)]
                if truncate:
                    at = [math.floor(at[0]), math.ceil(at[1])]
                if abs(max(at[0], 0) - low) < 0.1 and abs(at[1] - high) < 0.1:
                    options = {} if truncate else {"truncate": False}
                    yield {"base": base, "scaling": {
                        "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length, **options}}
        length = 4096
        betas = {name: short(length / (math.tau * base ** (at / count)), 1e-6) for name, at in
                 (("beta_fast", round(low) + 0.5), ("beta_slow", round(high) - 0.5))}
        yield {"base": base, "scaling": {
            "rope_type": "yarn", "factor": factor, "original_max_position_embeddings": length, **betas}}
