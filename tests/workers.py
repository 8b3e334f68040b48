"""What DataLoader workers run in tests: a started process imports it by this name, which pytest's modules do not have there."""

import os
from pathlib import Path

import torch

from posenc.torch import ChunkDataset


def tasks():
    """The threads of this process, where the system tells."""
    return len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 0


class CountingThreads(ChunkDataset):
    """Yields with each chunk how many threads were started to make it."""

    def __iter__(self):
        chunks = super().__iter__()
        before = tasks()
        for chunk in chunks:
            yield *chunk, tasks() - before
            before = tasks()


def use_two_threads(worker):
    """Undoes what the DataLoader sets, and what the default number of threads would follow."""
    torch.set_num_threads(2)
