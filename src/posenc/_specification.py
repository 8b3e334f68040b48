"""Code shared by Encoding and Rotary: immutability, display as text and HTML, and checks of dicts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

from posenc import _arguments

MOST_SHOWN = 8          # repr abbreviates longer lists of numbers


class Immutable:
    """A base class whose instances cannot be changed; a constructor sets attributes with ``object.__setattr__``."""

    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be set; use replace({name}=...)")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{type(self).__name__} is immutable: {name} cannot be deleted")


def rebuild(kind: Any, size: int, keywords: Mapping[str, Any]) -> Any:
    """Call a constructor; pickled objects refer to this function by name."""
    return kind(size, **keywords)


def listed(names: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, names)))


def abbreviated(value: object) -> str:
    """Return ``repr(value)``, with long tuples and lists abbreviated."""
    if isinstance(value, (tuple, list)) and len(value) > MOST_SHOWN:
        return f"<{len(value)} numbers from {value[0]} to {value[-1]}>"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key!r}: {abbreviated(item)}' for key, item in value.items())}}}"
    return repr(value)


def call(kind: str, size: int, changes: Mapping[str, Any]) -> str:
    """Return a constructor call as text."""
    return f"{kind}({size}{''.join(f', {name}={abbreviated(value)}' for name, value in changes.items())})"


def html_table(caption: str, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> str:
    """Return values as an HTML table in which those that differ from the default are bold."""
    from html import escape

    rows = []
    for name, value in values.items():
        text = escape(abbreviated(value))
        rows.append(f'<tr><th scope="row">{name}</th><td>{f"<b>{text}</b>" if value != defaults.get(name) else text}</td></tr>')
    return f"<table><caption><code>{escape(caption)}</code></caption><tbody>{''.join(rows)}</tbody></table>"


def check_document(
    document: Any, kind: str, size: str, keywords: str, known: Iterable[str], also: Iterable[str] = ()
) -> None:
    """Check that a dict from to_dict has the keys `size` and `keywords`, and no others except version and those in `also`."""
    if not isinstance(document, Mapping):
        raise _arguments.wrong_type("document", document, f"a dict from {kind}.to_dict")
    missing = {size, keywords} - document.keys()
    unknown = document.keys() - {"version", size, keywords, *also}
    if missing or unknown:
        what = f"lacks {listed(missing)}" if missing else f"has {listed(unknown)}"
        raise ValueError(f"document {what}, expected version, {size} and {keywords}")
    if not isinstance(document[keywords], Mapping):
        raise _arguments.wrong_type(keywords, document[keywords], f"a dict of keywords of {kind}")
    if unknown := document[keywords].keys() - set(known):
        raise ValueError(f"{keywords} has {listed(unknown)}, expected keywords of {kind}")
