"""Least-squares fit of geometric frequencies, whose logarithms lie on a line, to the columns of a table."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from posenc._identify.table.sample import PRECISION, Sample


class Line(NamedTuple):
    """Frequency k is exp(intercept - slope * k) radians per row or position; all columns have the same amplitude."""

    intercept: float
    slope: float
    amplitude: float
    intercept_error: float
    slope_error: float
    amplitude_error: float


def line_of(q: NDArray[np.float64], sample: Sample, columns: NDArray[np.intp], first: int = 0) -> Line | None:
    """Fit the line to the first rows, then refine it with rows farther away; return None if this fails.

    The fit ignores the columns before `first`, whose frequencies may exceed half a turn per row.
    """
    beyond = 256
    reaches = [sample.rows < beyond]
    while beyond < sample.total:
        beyond *= 8
        reaches.append(sample.rows < beyond)
    numbers = [first + k for k in (*range(4), *_sparse(4, len(columns))) if first + k < len(columns)]
    line = None
    for reach in reaches:
        chosen = np.flatnonzero(reach)
        chosen = chosen[np.unique(np.linspace(0, len(chosen) - 1, 256).astype(int))]
        if len(chosen) < 5:
            return None
        at, values = q[chosen] - q[chosen].mean(), sample.values[chosen][:, columns]
        span = np.ptp(at)
        points = []
        for k in numbers:
            if line is not None and (k > first + 1 or reach is not reaches[0]):
                w = math.exp(np.clip(line.intercept - line.slope * k, -100, 100))
            elif k > first + 1:
                break
            else:
                coarse = _coarse(at, values[:, k])
                if coarse is None:
                    return None
                w = coarse
            if w * span < 0.1:
                continue
            point = _refined(at, values[:, k], w, sample.stored)
            if point is None:
                return None
            if point[1] < 0.05:
                points.append((k, *point))
            if points and len(points) >= min(2, len(columns)):
                line = straight(np.array(points), len(columns)) or line
    return line


def _sparse(first: int, beyond: int) -> Iterator[int]:
    """Yield integers with gaps of about a quarter of their value."""
    while first < beyond:
        yield first
        first += max(1, first // 4)


def _coarse(q: NDArray[np.float64], x: NDArray[np.float64]) -> float | None:
    """Search a grid of frequencies for the sinusoid that explains x best; return None if all positions are equal."""
    span = np.ptp(q)
    if span == 0:
        return None
    count = min(span / np.diff(np.unique(q)).min(), 4096)
    top = math.pi * count / span
    grid = np.concatenate([np.geomspace(0.1 / span, top, 200), np.linspace(top / (4 * count), top, int(4 * count))])
    cos, sin = np.cos(np.outer(grid, q)), np.sin(np.outer(grid, q))
    cc, ss, cs, xc, xs = (cos**2).sum(1), (sin**2).sum(1), (cos * sin).sum(1), cos @ x, sin @ x
    determinant = cc * ss - cs**2
    explained = (ss * xc**2 - 2 * cs * xc * xs + cc * xs**2) / determinant
    return float(grid[np.argmax(np.where(determinant > 1e-9 * cc * ss, explained, 0))])


def _refined(
    q: NDArray[np.float64], x: NDArray[np.float64], w: float, stored: str
) -> tuple[float, float, float] | None:
    """Fit a sinusoid of frequency near w (Gauss-Newton); return (log w, its error, amplitude), or None if the fit is poor."""
    limit = 0.5 / np.ptp(q)
    for _ in range(12):
        cos, sin = np.cos(w * q), np.sin(w * q)
        a, b = np.linalg.lstsq(np.stack([cos, sin], 1), x)[0]
        basis = np.stack([cos, sin, q * (b * cos - a * sin)], 1)
        solution = np.linalg.lstsq(basis, x)[0]
        step = float(np.clip(solution[2], -limit, limit))
        w = abs(w + step)
        if abs(step) < 1e-15 * w:
            break
    residual = np.sqrt(np.mean((basis @ solution - x) ** 2))
    amplitude = math.hypot(a, b)
    if not residual < 0.3 * amplitude or w == 0:
        return None
    residual = max(residual, amplitude * 2.0 ** -PRECISION[stored])
    error = residual * math.sqrt(np.linalg.pinv(basis.T @ basis)[2, 2])
    return math.log(w), max(error / w, 2.0 ** -min(PRECISION[stored], 50)), amplitude


def straight(points: NDArray[np.float64], count: int) -> Line:
    """Fit the line to points (number, logarithm of the frequency, its error, amplitude)."""
    k, y, error, amplitude = points.T
    near = np.median(amplitude)
    amplitude_error = np.sqrt(np.mean((amplitude - near) ** 2) / len(amplitude))
    if count == 1:
        return Line(y[0], 0.0, near, error[0], 0.0, amplitude_error)
    basis = np.stack([np.ones_like(k), -k], 1) / error[:, None]
    solution = np.linalg.lstsq(basis, y / error)[0]
    scatter = max(1.0, np.sqrt(np.sum((basis @ solution - y / error) ** 2) / max(1, len(k) - 2)))
    errors = scatter * np.sqrt(np.diag(np.linalg.pinv(basis.T @ basis)))
    (intercept, slope), (intercept_error, slope_error) = solution.tolist(), errors.tolist()
    return Line(intercept, slope, near, intercept_error, slope_error, amplitude_error)
