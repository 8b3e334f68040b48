"""Loops for rivals.py, compiled by numba: they compute in the precision of the factors.

The number of pairs of columns is a constant of each function, which makes it faster.
"""

from functools import cache

import numba
import numpy as np

compiled = numba.njit(parallel=True, fastmath={"contract"})


@cache
def addition(pairs, step=2, sine=0, cosine=1, parallel=True, rows=512):
    """Return functions that fill a table, in blocks of rows or at positions, by angle addition.

    The columns `k * step + sine` and `k * step + cosine` form a pair: see `factors` in rivals.py.  At
    positions, c and s have as many `rows`.
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
    def fill_at(positions, p, q, c, s, out):
        for row in numba.prange(len(positions)):
            position = np.uint64(positions[row])
            i, j = position // np.uint64(rows), position % np.uint64(rows)
            for k in range(pairs):
                out[row, k * step + sine] = p[i, k] * c[j, k] + q[i, k] * s[j, k]
                out[row, k * step + cosine] = q[i, k] * c[j, k] - p[i, k] * s[j, k]

    return fill, fill_at


def next_step(evaluate, coefficient):
    return numba.njit(fastmath={"contract"})(lambda square: evaluate(square) * square + coefficient)


@cache
def polynomial(pairs, together, turns, dtype, coefficients, step=2, sine=0, cosine=1):
    """Return a function that computes angles in turns in one dtype, and sines and cosines of them in another.

    The columns are as in `addition`, but each row of `out` has the pairs of several positions together.
    """
    to_integer = turns({np.float32: 1.5 * 2**23, np.float64: 1.5 * 2**52}[turns])
    quarter, (highest, *others) = dtype(0.25), map(dtype, coefficients)
    evaluate = numba.njit(lambda square: highest)
    for coefficient in others:
        evaluate = next_step(evaluate, coefficient)

    @compiled
    def fill(positions, middle, rates, phases, out):
        for row in numba.prange(len(out)):
            for k in range(together * pairs):
                within = np.uint64(k) // np.uint64(pairs) if together > 1 else 0
                angle = turns(positions[row * together + within] - middle) * rates[k] + phases[k]
                part = dtype(angle - ((angle + to_integer) - to_integer))
                c = quarter - abs(part)
                s = np.copysign(quarter - abs(abs(part) - quarter), part)
                out[row, k * step + sine] = s * evaluate(s * s)
                out[row, k * step + cosine] = c * evaluate(c * c)

    return fill


@compiled
def take(rows, at, out):
    for i in numba.prange(len(at)):
        for k in range(out.shape[1]):
            out[i, k] = rows[at[i], k]


@compiled
def is_regular(times, unit):
    others = 0
    for i in numba.prange(len(times) - 1):
        others += times[i + 1] - times[i] != unit
    return others == 0


@cache
def repeating(columns, cycle, unit):
    """Return a function that copies the rows of a table, which repeat, to times that are multiples of `unit`."""
    @compiled
    def fill(rows, times, first, out):
        for i in numba.prange(len(times)):
            row = np.uint64(times[i] - first) // np.uint64(unit) % np.uint64(cycle)
            for k in range(columns):
                out[i, k] = rows[row, k]

    return fill


@cache
def grid(half):
    """Return a function that copies a table for each axis to the cells of a grid."""
    @compiled
    def fill(out, rows, columns):
        for i in numba.prange(len(rows)):
            for j in range(len(columns)):
                for k in range(half):
                    out[i, j, k] = rows[i, k]
                for k in range(half):
                    out[i, j, half + k] = columns[j, k]

    return fill


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
def adding(read=same, write=same):
    """Return a function that adds the first rows of a table to a part of each entry of a batch."""
    @compiled
    def add(x, rows, first, last):
        parts = 16 if len(x) == 1 else 1
        for block in numba.prange(parts * len(x)):
            i, part = block // parts, block % parts
            count = last[i] - first[i]
            for j in range(first[i] + part * count // parts, first[i] + (part + 1) * count // parts):
                for k in range(x.shape[2]):
                    x[i, j, k] = write(read(x[i, j, k]) + read(rows[j - first[i], k]))

    return add


@cache
def sums(parallel):
    """Return a function that writes the sums of a batch and rows of a table."""
    compiled = numba.njit(parallel=parallel)

    @compiled
    def add(x, rows, at, out):
        for i in numba.prange(len(x)):
            for j in range(x.shape[1]):
                row = np.uint64(at[i, j])
                for k in range(x.shape[2]):
                    out[i, j, k] = x[i, j, k] + rows[row, k]

    return add


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
            i, part = block // blocks, block % blocks
            for j in range(part * second // blocks, (part + 1) * second // blocks):
                row = at[j] if is_second else at[i]
                for k in range(pairs):
                    a, b = read(x[i, j, k * step]), read(x[i, j, k * step + offset])
                    out[i, j, k * step] = write(a * cos[row, k] - b * sin[row, k])
                    out[i, j, k * step + offset] = write(b * cos[row, k] + a * sin[row, k])

    return rotate
