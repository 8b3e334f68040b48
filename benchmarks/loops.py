"""Loops for rivals.py, compiled by numba: they compute in the precision of the factors.

The number of pairs of columns is a constant of each function, which makes it faster.
"""

from functools import cache

import numba
import numpy as np

compiled = numba.njit(parallel=True, fastmath={"contract"})


@cache
def addition(pairs, step=2, sine=0, cosine=1, parallel=True):
    """Return functions that fill a table, in blocks of rows or at positions, by angle addition.

    The columns `k * step + sine` and `k * step + cosine` form a pair: see `factors` in rivals.py.
    """
    compiled = numba.njit(parallel=parallel, fastmath={"contract"})

    @compiled
    def fill(p, q, c, s, out):
        for i in numba.prange(len(p)):
            for j in range(len(c)):
                for k in range(pairs):
                    out[i, j, k * step + sine] = p[i, k] * c[j, k] + q[i, k] * s[j, k]
                    out[i, j, k * step + cosine] = q[i, k] * c[j, k] - p[i, k] * s[j, k]

    @compiled
    def fill_at(positions, first, unit, p, q, c, s, out):
        for row in numba.prange(len(positions)):
            position, rows = np.uint64(positions[row] - first) // np.uint64(unit), np.uint64(len(c))
            i = position // rows
            j = position - i * rows
            for k in range(pairs):
                out[row, k * step + sine] = p[i, k] * c[j, k] + q[i, k] * s[j, k]
                out[row, k * step + cosine] = q[i, k] * c[j, k] - p[i, k] * s[j, k]

    return fill, fill_at


def next_step(evaluate, coefficient):
    return numba.njit(fastmath={"contract"})(lambda square: evaluate(square) * square + coefficient)


def polynomial(pairs, dtype, coefficients):
    """Return a function that computes angles in turns, and sines and cosines, in a dtype."""
    to_integer = dtype({np.float32: 1.5 * 2**23, np.float64: 1.5 * 2**52}[dtype])
    quarter, (highest, *others) = dtype(0.25), map(dtype, coefficients)
    evaluate = numba.njit(lambda square: highest)
    for coefficient in others:
        evaluate = next_step(evaluate, coefficient)

    @compiled
    def fill(positions, rates, out):
        for row in numba.prange(len(positions)):
            position = dtype(positions[row])
            for k in range(pairs):
                turns = position * rates[k]
                part = turns - ((turns + to_integer) - to_integer)
                cosine = quarter - abs(part)
                sine = np.copysign(quarter - abs(abs(part) - quarter), part)
                out[row, 2 * k] = sine * evaluate(sine * sine)
                out[row, 2 * k + 1] = cosine * evaluate(cosine * cosine)

    return fill


@compiled
def add(x, rows, first, last):
    """Add the first rows of a table to a part of each entry of a batch."""
    for i in numba.prange(len(x)):
        for j in range(first[i], last[i]):
            for k in range(x.shape[2]):
                x[i, j, k] += rows[j - first[i], k]


@numba.njit
def same(value):
    return value


@numba.njit
def read_bfloat16(bits):
    return np.uint32(np.uint32(bits) << np.uint32(16)).view(np.float32)


@numba.njit
def round_to_bfloat16(value):
    bits = np.float32(value).view(np.uint32)
    is_odd = np.uint32(np.uint32(bits >> np.uint32(16)) & np.uint32(1))
    return np.uint16(np.uint32(bits + np.uint32(0x7FFF) + is_odd) >> np.uint32(16))


@cache
def rotation(pairs, step, offset, read=same, write=same):
    """Return a function that rotates the columns k * step and k * step + offset of each row of x into `out`.

    `out` may be x.  `at` has the row of the factors for each entry of the second axis of x, or of the first.
    """
    @compiled
    def rotate(x, out, at, cos, sin, is_second):
        first, second, _ = x.shape
        blocks = 16 if is_second else 1             # rows of the factors that stay in the cache
        for block in numba.prange(blocks * first):
            part, i = block // first, block % first
            for j in range(part * second // blocks, (part + 1) * second // blocks):
                row = at[j] if is_second else at[i]
                for k in range(pairs):
                    a, b = read(x[i, j, k * step]), read(x[i, j, k * step + offset])
                    out[i, j, k * step] = write(a * cos[row, k] - b * sin[row, k])
                    out[i, j, k * step + offset] = write(b * cos[row, k] + a * sin[row, k])

    return rotate
