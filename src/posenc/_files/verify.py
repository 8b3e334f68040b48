"""Compare the bits of a table with the encodings of its positions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from posenc._arguments import checks
from posenc._arguments.arrays import values_of
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
    rows, buffer = len(positions), row_buffer(table.block_rows, encoding.d_model, table.dtype)
    count = max(1, len(buffer))
    starts: Iterable[int] = range(0, rows, count)
    if samples is not None and samples < rows:          # the last row of each of as many parts
        starts, count = ((k + 1) * rows // samples - 1 for k in range(samples)), 1
    for first in starts if buffer.size else ():
        part = positions[first : first + count]
        values = table.read(first, len(part))
        expected = encoding.encode(part, dtype=table.dtype, out=buffer[: len(part)], threads=threads).view(values.dtype)
        if not np.array_equal(values, expected):
            row, column = np.argwhere(values != expected)[0].tolist()
            bits, expected_bits = values[row, column], expected[row, column]
            numbers = value_of(bits, table.dtype), value_of(expected_bits, table.dtype)
            return Mismatch(part[row], first + row, column, *numbers, f"{bits:#x}", f"{expected_bits:#x}")
        progress(values.nbytes)
    return None


def value_of(bits: Any, dtype: str) -> float | str:
    """Return the value of bits as a number, or as a string if it is not finite, because JSON has only finite numbers."""
    value = values_of(bits, dtype)
    # str() gives the shortest decimal that is unique in the value's dtype; float(value) would have more digits
    return float(str(value)) if math.isfinite(value) else str(value)
