"""The formats of table files, by suffix; the module for a format is imported on first use."""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc._arguments import install
from posenc._arguments.as_array import shown
from posenc._files.urls import is_url

if TYPE_CHECKING:
    from posenc._files.table import Readable


class Format(NamedTuple):
    """The module that writes and reads a format, and the options that only this format has."""

    module: str
    options: tuple[str, ...] = ()


FORMATS = {
    ".npy": Format("posenc._files.npy"),
    ".safetensors": Format("posenc._files.safetensors", ("key",)),
    ".zarr": Format("posenc._files.zarr", ("chunk_rows", "storage_options")),
}
# the functions that read files of other formats, by suffix
READERS = {".npz": "numpy.load", ".pt": "torch.load", ".pth": "torch.load", ".ckpt": "torch.load", ".bin": "torch.load"}
OPTIONS = tuple(option for format_ in FORMATS.values() for option in format_.options)


def suffix_of(path: str) -> str:
    """Return the suffix of a path; the path of a folder may end in a slash."""
    return os.path.splitext(path.rstrip("/" + os.sep))[1]


def format_of(path: str) -> Format:
    """Return the format of a path; for an unknown suffix, the format is .zarr for a folder or URL, else .npy."""
    return FORMATS.get(suffix_of(path)) or FORMATS[".zarr" if is_url(path) or os.path.isdir(path) else ".npy"]


def check_name(path: str, name: str = "path") -> None:
    """Raise a ValueError for a path that a table cannot have."""
    suffix = suffix_of(path)
    if "\0" in path:
        raise ValueError(f"{name} is {path!r}, expected a path without a null character")
    if suffix in READERS:
        hint = f"{READERS[suffix]} reads {suffix} files, and posenc.check.identify takes their arrays"
        raise ValueError(f"{name} is {path!r}, expected a name with the suffix {', '.join(FORMATS)}; {hint}")
    if "://" in path and format_of(path) != FORMATS[".zarr"]:
        raise ValueError(f"{name} is {path!r}, expected a local path; only a store with the suffix .zarr can be at a URL")


def module_of(path: str) -> ModuleType:
    """Import the module for the format of a path."""
    try:
        return importlib.import_module(format_of(path).module)
    except ModuleNotFoundError as error:
        suffix = next(suffix for suffix, format_ in FORMATS.items() if format_ == format_of(path))
        raise install.not_installed(suffix, suffix[1:], error) from error


def checked_options(path: str, **options: Any) -> dict[str, Any]:
    """Return the options that are not None; raise a ValueError if one does not apply to the format of the path."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in format_of(path).options:
            raise ValueError(f"{name} is {shown(value)}, expected None, because {name} does not apply to {path!r}")
    return given


def opened(
    path: str, *, key: str | None = None, storage_options: dict[str, Any] | None = None
) -> AbstractContextManager[Readable]:
    """Open a file of any format as a table; the message of a ValueError about the file's content begins with the path."""
    check_name(path)
    options = checked_options(path, key=key, storage_options=storage_options)
    table: AbstractContextManager[Readable] = module_of(path).opened(path, **options)
    return table
