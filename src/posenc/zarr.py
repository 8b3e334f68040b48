"""Zarr stores written in parts, by any number of processes, and marked as complete when every chunk exists.

The processes share only the store, whose specification determines the values of every chunk.
"""

from posenc._files.zarr import create, finish, missing, write

__all__ = ["create", "finish", "missing", "write"]
