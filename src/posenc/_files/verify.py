"""Compare the bits of a table with the encodings of its positions."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from posenc._arguments import checks
from posenc._arguments.dtypes import values_of
from posenc._encoding.encoding import Encoding
from posenc._files.table import Table, row_buffer


class Mismatch(NamedTuple):
    """A value of a table that differs from the encoding."""

    position: int
    row: int
    column: int
    found: float | str
    expected: float | str
    found_bits: str
    expected_bits: str

    def __str__(self) -> str:
        return (
            f"position {self.position}, column {self.column}: found {self.found} ({self.found_bits}), "
            f"expected {self.expected} ({self.expected_bits})"
        )


def first_mismatch(
    table: Table, encoding: Encoding, positions: range, samples: int | None, threads: int | None,
    progress: Callable[[int], object],
) -> Mismatch | None:
    """Compare every row of the table, or `samples` rows, with the encodings, and return the first difference, or None."""
    checks.range_of(positions, encoding.position_offset)
    buffer = row_buffer(table.block_rows, encoding.d_model, table.dtype)
    for rows in parts(len(positions), samples, len(buffer)) if buffer.size else ():
        found = table.read(rows.start, len(rows))
        part, out = positions[rows.start : rows.stop], buffer[: len(rows)]
        expected = encoding.encode(part, dtype=table.dtype, out=out, threads=threads).view(found.dtype)
        if not np.array_equal(found, expected):
            row, column = np.argwhere(found != expected)[0].tolist()
            bits, right = found[row, column], expected[row, column]
            values = value_of(bits, table.dtype), value_of(right, table.dtype)
            return Mismatch(part[row], rows.start + row, column, *values, f"{bits:#x}", f"{right:#x}")
        progress(found.nbytes)
    return None


def parts(rows: int, samples: int | None, most: int) -> Iterable[range]:
    """Return the ranges of rows to compare: all rows, in ranges of at most `most`, or a sample of single rows."""
    if samples is not None and samples < rows:
        return (range(row, row + 1) for row in sampled(rows, samples))
    return (range(first, min(first + most, rows)) for first in range(0, rows, most))


def sampled(rows: int, samples: int) -> Iterable[int]:
    """Return the first row, a random row of each of the other parts, and the last row; for one sample, only the last row."""
    rng = random.Random(0)
    inner = (rng.randrange(k * rows // samples, (k + 1) * rows // samples) for k in range(1, samples - 1))
    return itertools.chain([0] * (samples > 1), inner, [rows - 1])


def value_of(bits: Any, dtype: str) -> float | str:
    """Return the value of bits as a number, or as a string if it is not finite, because JSON has only finite numbers."""
    value = values_of(bits, dtype)
    # str() gives the shortest decimal that is unique in the value's dtype; float(value) would have more digits
    return float(str(value)) if math.isfinite(value) else str(value)
