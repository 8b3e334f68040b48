"""The class ChunkDataset, which yields the chunks of a table to a DataLoader."""

from collections.abc import Iterator
from typing import SupportsIndex, Unpack

import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from posenc._arguments import checks
from posenc._arguments.specification import Convention
from posenc._encoding.encoding import Encoding, rows_of_chunk, without_durations
from posenc.torch._encode import encoding_of, encodings_on_cpu
from posenc.torch._tensor_arguments import as_positions, check_dtype, constant, integer


class ChunkDataset(IterableDataset[tuple[Tensor, Tensor]]):
    """A dataset that yields a table of any length in chunks.

    Each item is a pair of tensors: positions of shape (k,) and dtype int64, and their encodings of shape (k,
    d_model). Because an item is already a batch, pass ``batch_size=None`` to the DataLoader.

    Parameters
    ----------
    positions : int or range
        The positions of the rows; an integer n means ``range(n)``.
    d_model : int or posenc.Encoding
        Number of columns; or an encoding, which replaces d_model and the keywords of a convention.
    chunk_rows : int, optional
        Number of positions in a chunk; by default, as many as fit in 4 MiB.
    dtype : torch.dtype, optional
        One of float32, float64, float16 and bfloat16.
    **convention
        See `posenc.Encoding`.

    Raises
    ------
    TypeError, ValueError
        If an argument has a wrong type or value.

    See Also
    --------
    posenc.stream : Yield chunks as arrays, in one process.

    Notes
    -----
    Worker w of W computes chunks w, w + W, w + 2 W, ... with one thread.  A DataLoader takes one chunk from
    each worker in turn, so the chunks arrive in the order of the positions, with any number of workers.

    Examples
    --------
    >>> from torch.utils.data import DataLoader
    >>> from posenc.torch import ChunkDataset
    >>> loader = DataLoader(ChunkDataset(10, 8, chunk_rows=4), batch_size=None)
    >>> [(positions.tolist(), tuple(values.shape)) for positions, values in loader]
    [([0, 1, 2, 3], (4, 8)), ([4, 5, 6, 7], (4, 8)), ([8, 9], (2, 8))]
    """

    def __init__(
        self, positions: SupportsIndex | range, d_model: SupportsIndex | Encoding, *,
        chunk_rows: SupportsIndex | None = None, dtype: torch.dtype = torch.float32, **convention: Unpack[Convention],
    ) -> None:
        check_dtype("dtype is", dtype)
        self.encoding = without_durations(encoding_of(d_model, convention), "ChunkDataset")
        self.positions = checks.range_of(constant("positions", positions), self.encoding.position_offset)
        self.dtype = dtype
        default = rows_of_chunk(self.encoding.d_model, dtype.itemsize)
        self.chunk_rows = default if chunk_rows is None else integer("chunk_rows", chunk_rows, 1)

    def __len__(self) -> int:
        return len(self.positions[:: self.chunk_rows])

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        worker = get_worker_info()
        first, step, threads = (0, 1, None) if worker is None else (worker.id, worker.num_workers, 1)
        for chunk in range(first, len(self), step):
            positions = self.positions[chunk * self.chunk_rows : (chunk + 1) * self.chunk_rows]
            values = encodings_on_cpu(positions, self.encoding, self.dtype, threads)
            yield as_positions(positions, values.device), values
