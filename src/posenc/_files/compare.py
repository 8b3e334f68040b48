"""Compare the bits of a table with the encodings of its positions."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from posenc._arguments.dtypes import values_of
from posenc._encoding.encoding import Encoding
from posenc._files.table import Readable, refuse_outside, row_buffer


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

    def from_assumed(self, encoding: Encoding) -> str:
        """Return a message that states the assumed encoding, for a file that stores no encoding."""
        return f"stores no encoding, and differs from {encoding!r} at {self}"


def first_mismatch(
    table: Readable, encoding: Encoding, positions: range, samples: int, threads: int | None, progress: Callable[[int], object]
) -> Mismatch | None:
    """Compare `samples` rows of the table with the encodings, and return the first difference, or None."""
    refuse_outside(encoding, positions, threads)
    buffer = row_buffer(len(positions), encoding.d_model, table.dtype)
    if not buffer.size:
        return None
    for rows in parts(len(positions), samples, len(buffer)):
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


def parts(rows: int, samples: int, most: int) -> Iterator[range]:
    """Return an iterator over the rows to compare: all rows in ranges of at most `most`, or a sample of single rows."""
    if samples == rows:
        return (range(first, min(first + most, rows)) for first in range(0, rows, most))
    return (range(row, row + 1) for row in sampled(rows, samples))


def sampled(rows: int, samples: int) -> Iterator[int]:
    """Yield one row of each of `samples` parts: the first row, random rows, and the last row.  For one part, yield the last."""
    rng = random.Random(0)
    for k in range(samples):
        first, last = k * rows // samples, (k + 1) * rows // samples - 1
        if k == samples - 1:
            yield last
        else:
            yield rng.randint(first, last) if k else first


def value_of(bits: Any, dtype: str) -> float | str:
    """Return the value of bits as a number, or as a string if it is not finite, because JSON has only finite numbers."""
    value = values_of(bits, dtype)
    # str() gives the shortest decimal that is unique in the value's dtype; float(value) would have more digits
    return float(str(value)) if math.isfinite(value) else str(value)
