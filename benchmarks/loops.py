"""Loops for rivals.py, compiled by numba: they compute in the precision of the factors."""

import numba

compiled = numba.njit(parallel=True, fastmath={"contract"})


@compiled
def fill(p, q, c, s, out):
    """Fill a table, in blocks of rows, by angle addition: see `factors` in rivals.py."""
    blocks, rows, columns = out.shape
    for i in numba.prange(blocks):
        for j in range(rows):
            for k in range(columns):
                out[i, j, k] = p[i, k] * c[j, k] + q[i, k] * s[j, k]


@compiled
def fill_at(positions, p, q, c, s, out):
    for row in numba.prange(len(positions)):
        i, j = positions[row] // len(c), positions[row] % len(c)
        for k in range(out.shape[1]):
            out[row, k] = p[i, k] * c[j, k] + q[i, k] * s[j, k]


@compiled
def add(x, rows, lengths):
    """Add the first rows of a table to each entry of a batch."""
    for i in numba.prange(len(x)):
        for j in range(lengths[i]):
            for k in range(x.shape[2]):
                x[i, j, k] += rows[j, k]


def rotation(step, offset):
    """Return a function that rotates the columns k * step and k * step + offset of each row.

    The rows of the factors belong to the second axis of x, or to the first.
    """
    @compiled
    def rotate(x, cos, sin, is_second):
        first, second, _ = x.shape
        blocks = 16 if is_second else 1             # rows of the factors that stay in the cache
        for block in numba.prange(blocks * first):
            part, i = block // first, block % first
            for j in range(part * second // blocks, (part + 1) * second // blocks):
                row = j if is_second else i
                for k in range(cos.shape[1]):
                    a, b = x[i, j, k * step], x[i, j, k * step + offset]
                    x[i, j, k * step] = a * cos[row, k] - b * sin[row, k]
                    x[i, j, k * step + offset] = b * cos[row, k] + a * sin[row, k]

    return rotate
