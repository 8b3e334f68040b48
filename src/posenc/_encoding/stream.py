"""The iterator that `stream` returns, and the type of its items, Chunk."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any, Generic, NamedTuple

from numpy.typing import NDArray

from posenc._arguments import checks
from posenc._arguments.checks import BEYOND
from posenc._arguments.types import ScalarT
from posenc._core import kernel

CHUNK_BYTES = 1 << 22


class Chunk(NamedTuple, Generic[ScalarT]):  # numpydoc ignore=PR01
    """A chunk of a stream: its positions and their encodings.

    Attributes
    ----------
    positions : range
        The positions of the rows.
    values : ndarray, shape (len(positions), d_model)
        The encodings of the positions, in the requested dtype.

    See Also
    --------
    stream : Yield chunks.

    Examples
    --------
    >>> import posenc
    >>> positions, values = next(posenc.stream(range(10, 16), 8, chunk_rows=4))
    >>> positions, values.shape
    (range(10, 14), (4, 8))
    """

    positions: range
    values: NDArray[ScalarT]


def chunks_of(
    encode: Callable[..., NDArray[Any]], d_model: int, offset: float,
    positions: Any, chunk_rows: Any, dtype: Any, out: Any, threads: Any,
) -> Iterator[Chunk[Any]]:
    """Check the arguments of `stream`, and return an iterator that calls `encode` for each chunk."""
    name, element = checks.output_dtype(dtype, out)
    threads = checks.threads(threads)
    if positions is None:
        positions = range(BEYOND - max(0, math.floor(offset)))     # up to the end of the domain
    positions = checks.range_of(positions, "an integer, a range or None")
    checks.check_domain(positions, offset)
    if out is not None:
        kernel.check_out(out, name)
        if out.ndim != 2 or out.shape[1] != d_model or len(out) == 0:
            raise ValueError(f"out has shape {out.shape}, expected (chunk_rows, {d_model}) with at least one row")
        if chunk_rows is not None and checks.integer("chunk_rows", chunk_rows, 1) != len(out):
            raise ValueError(f"chunk_rows is {chunk_rows}, expected {len(out)}, the number of rows of out")
        chunk_rows = len(out)
    elif chunk_rows is None:
        chunk_rows = max(1, CHUNK_BYTES // max(1, d_model * element.itemsize))
    else:
        chunk_rows = checks.integer("chunk_rows", chunk_rows, 1)

    def generate(remaining: range) -> Iterator[Chunk[Any]]:
        while remaining:
            part, remaining = remaining[:chunk_rows], remaining[chunk_rows:]
            buffer = None if out is None else out[: len(part)]
            yield Chunk(part, encode(part, dtype=name, out=buffer, threads=threads))

    return generate(positions)
