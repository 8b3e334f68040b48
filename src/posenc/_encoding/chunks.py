"""The chunks of a stream."""

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from numpy.typing import NDArray

from posenc._arguments import arrays, checks
from posenc._arguments.checks import BEYOND
from posenc._core import kernel

STREAM_CHUNK_BYTES = 1 << 22                   # size of a chunk by default


class Chunk(NamedTuple):  # numpydoc ignore=PR01
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
    values: NDArray[Any]


def chunks_of(encoding: Any, positions: Any, chunk_rows: Any, dtype: Any, out: Any, threads: Any) -> Iterator[Chunk]:
    """Check the arguments of `stream`, and return an iterator that calls `encoding.encode` for each chunk."""
    name, element = arrays.output_dtype(dtype, out)
    threads = checks.threads(threads)
    d_model, offset = encoding.d_model, encoding.position_offset
    if positions is None:
        positions = range(BEYOND - max(0, math.floor(offset)))     # up to the end of the domain
    else:
        positions = checks.range_of(positions, offset, expected="an integer, a range or None")
    if chunk_rows is not None:
        chunk_rows = checks.integer("chunk_rows", chunk_rows, 1)
    if out is not None:
        kernel.check_out(out, name)
        if out.ndim != 2 or out.shape[1] != d_model or len(out) == 0:
            raise ValueError(f"out has shape {out.shape}, expected (chunk_rows, {d_model}) with at least one row")
        if chunk_rows not in (None, len(out)):
            raise ValueError(f"chunk_rows is {chunk_rows}, expected {len(out)}, the number of rows of out")
        chunk_rows = len(out)
    rows = chunk_rows or max(1, STREAM_CHUNK_BYTES // max(1, d_model * element.itemsize))

    def generate(rows_to_come: range) -> Iterator[Chunk]:
        while rows_to_come:
            chunk_positions, rows_to_come = rows_to_come[:rows], rows_to_come[rows:]
            buffer = None if out is None else out[: len(chunk_positions)]
            yield Chunk(chunk_positions, encoding.encode(chunk_positions, dtype=name, out=buffer, threads=threads))

    return generate(positions)
