"""How an Encoding shows itself: as text, and as a table in a notebook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from posenc._encoding import Encoding

MOST = 8        # frequencies that are written out


def text(encoding: Encoding) -> str:
    """``Encoding(...)`` with the convention's departures from the default; an expression, but for many frequencies."""
    changes = "".join(f", {name}={_shown(value)}" for name, value in encoding._changes().items())
    return f"Encoding({encoding.d_model}{changes})"


def html(encoding: Encoding) -> str:
    """The whole convention as an HTML table, with its departures from the default in bold."""
    from html import escape

    changes = encoding._changes()
    rows = [_row("d_model", str(encoding.d_model), True)]
    rows += [_row(name, escape(_shown(value)), name in changes) for name, value in encoding._convention.items()]
    return f"<table><caption><code>{escape(text(encoding))}</code></caption><tbody>{''.join(rows)}</tbody></table>"


def _shown(value: object) -> str:
    if isinstance(value, tuple) and len(value) > MOST:
        return f"<{len(value)} numbers from {value[0]} to {value[-1]}>"
    return repr(value)


def _row(name: str, value: str, bold: bool) -> str:
    return f'<tr><th scope="row">{name}</th><td>{f"<b>{value}</b>" if bold else value}</td></tr>'
