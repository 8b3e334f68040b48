"""Functions for paths that may be URLs."""

from __future__ import annotations

import os

LOCAL = ("file://", "local://")


def is_url(path: object) -> bool:
    """Return whether a path is the URL of a store, such as ``s3://bucket/pe.zarr``; the URL of a local file does not count."""
    text = os.fspath(path) if isinstance(path, (str, os.PathLike)) else None
    # "::" chains the protocols of fsspec, as in simplecache::s3://bucket/pe.zarr
    return isinstance(text, str) and "://" in text and not text.startswith(LOCAL)


def local_path(path: str | os.PathLike[str]) -> str:
    """Return a path as text, without ``file://`` or ``local://`` at its start and without slashes at its end."""
    text = os.fsdecode(path)
    for protocol in LOCAL:
        text = text.removeprefix(protocol)
    return text.rstrip(os.sep)
