"""Functions and a class for DataLoader workers: a spawned process can import this module, but not a test
module.
"""

import os
from pathlib import Path

import torch

from posenc.torch import ChunkDataset


def tasks():
    """Return the number of threads of this process, or 0 on a system without /proc."""
    return len(os.listdir("/proc/self/task")) if Path("/proc/self/task").exists() else 0


class CountingThreads(ChunkDataset):
    """Yield each chunk and the number of threads started while it was computed."""

    def __iter__(self):
        chunks = super().__iter__()
        before = tasks()
        for chunk in chunks:
            yield *chunk, tasks() - before
            before = tasks()


def use_two_threads(worker):
    """Override the number of threads in a worker, which DataLoader sets to 1."""
    torch.set_num_threads(2)
