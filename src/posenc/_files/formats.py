"""The formats of table files, by suffix; the module for a format is imported on first use."""

from __future__ import annotations

import importlib
import os
from contextlib import AbstractContextManager
from types import ModuleType
from typing import TYPE_CHECKING, Any, NamedTuple

from posenc import _install
from posenc._as_array import shown

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
OPTIONS = tuple(option for format_ in FORMATS.values() for option in format_.options)


def suffix_of(path: str) -> str:
    """Return the suffix of a path; the path of a folder may end in a slash."""
    return os.path.splitext(path.rstrip("/" + os.sep))[1]


def format_of(path: str) -> Format:
    """Return the format of a path; a file with an unknown suffix must be in .npy format."""
    return FORMATS.get(suffix_of(path), FORMATS[".npy"])


def module_of(path: str) -> ModuleType:
    """Import the module for the format of a path.

    Raises
    ------
    ModuleNotFoundError
        If a package that the format needs is not installed.
    """
    try:
        return importlib.import_module(format_of(path).module)
    except ModuleNotFoundError as error:
        suffix = suffix_of(path)
        raise _install.not_installed(suffix, suffix[1:], error) from error


def checked_options(path: str, **options: Any) -> dict[str, Any]:
    """Return the options that are not None; raise a ValueError if one does not apply to the format of the path."""
    given = {name: value for name, value in options.items() if value is not None}
    for name, value in given.items():
        if name not in format_of(path).options:
            raise ValueError(f"{name} is {shown(value)}, expected None: it does not apply to {path!r}")
    return given


def opened(
    path: str, *, key: str | None = None, storage_options: dict[str, Any] | None = None
) -> AbstractContextManager[Readable]:
    """Open a file of any format as a table.

    Raises
    ------
    ValueError
        If the file is not a complete table; the message begins with the path.
    ModuleNotFoundError
        If a package that the format needs is not installed.
    """
    options = checked_options(path, key=key, storage_options=storage_options)
    table: AbstractContextManager[Readable] = module_of(path).opened(path, **options)
    return table
