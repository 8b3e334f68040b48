"""The formats of table files, by suffix."""

from __future__ import annotations

import os
from typing import Any, TypeGuard

from posenc._arguments import checks
from posenc._arguments.checks import shown

# suffix: the options that only this format has
FORMATS: dict[str, tuple[str, ...]] = {".npy": (), ".safetensors": ("key",), ".zarr": ("chunk_rows", "storage_options")}
LOCAL = "file://"


def name_of(path: Any, argument: str = "path") -> str:
    """Return a path as text."""
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise checks.wrong_type(argument, path, "a path such as 'pe.npy'")
    name = os.fsdecode(path)
    if "\0" in name:
        raise ValueError(f"{argument} is {name!r}, expected a path without a null character")
    return name


def suffix_of(path: str) -> str:
    """Return the suffix of a path; the path of a folder may end in a slash."""
    return os.path.splitext(path.rstrip("/" + os.sep))[1]


def is_url(path: object) -> TypeGuard[str]:
    """Return whether a path is the URL of a store, such as ``s3://bucket/pe.zarr``; the URL of a local file does not count."""
    # "::" chains the protocols of fsspec, as in simplecache::s3://bucket/pe.zarr
    return isinstance(path, str) and "://" in path and not path.startswith(LOCAL)


def format_of(path: str, **options: Any) -> str:
    """Return the suffix of the format of a path: for an unknown suffix, .zarr for a folder or URL, else .npy.

    Raise a ValueError for a URL that a table cannot have, and for an option that is not None but does not apply to the format.
    """
    if options.get("key") is not None and not isinstance(options["key"], str):
        raise checks.wrong_type("key", options["key"], "a str")
    suffix = suffix_of(path)
    if suffix not in FORMATS:
        suffix = ".zarr" if is_url(path) or os.path.isdir(path) else ".npy"
    if is_url(path) and suffix != ".zarr":
        raise ValueError(f"path is {path!r}, expected a local path; only a store with the suffix .zarr can be at a URL")
    for option, value in options.items():
        if value is not None and option not in FORMATS[suffix]:
            raise ValueError(f"{option} is {shown(value)}, expected None, because {option} does not apply to {path!r}")
    return suffix
