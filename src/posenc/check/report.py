"""Report: a row for each rotation of a model or of a file, printed as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import numpy as np

from posenc import Rotary
from posenc.check.match import ERRORS_AT
from posenc.check.reading import is_pair
from posenc.check.rotations import SOURCE, matched

Verdict = Literal["right", "float32 angles", "wrong", "not checked"]
# the first words of the lines of "What to do about a fault" in docs/check.md
GUIDE = ("base is", "the scaling", "attention_scaling", "layout is", "the exponents", "frequency_scale is", "cos and sin",
         "the signs", "values are", "columns", "keys", "inv_freq was", "positions were", "positions are", "the table ends",
         "the table has", "the values depend", "the result has", "no known rotation")


NAMES = re.compile(
    r"(?:\w+_)?inv_freqs?|cos_sin_cache|freqs_cis|rope_cache|(?:cos|sin)(?:_cached|_cache|_table|_emb)?|freqs_(?:cos|sin)")


class RotaryRow(NamedTuple):  # numpydoc ignore=PR01
    """A rotation that was found in a model or in a file, compared with the configuration.

    Attributes
    ----------
    module : str
        Name of the module or tensor.  If several have equal values, the name of the first and the number of the others.
    found : Rotary or None
        The rotation that was found, or None if posenc does not recognize it.
    expected : Rotary or None
        The rotation in the configuration, or None if the configuration has none.
    verdict : {"right", "float32 angles", "wrong", "not checked"}
        The result for what was compared.  "float32 angles" means right, but with an error that grows with the position.
    faults : tuple of str
        A sentence for each fault; or, if the rotation was not checked, the reason.
    errors : mapping of int to float
        The largest error of a cosine or sine near each of the positions 1,000, 100,000 and 1,000,000; None if it is unknown, or
        if a stored table does not have this position.
    remedy : str
        The line of docs/check.md that describes the fault.
    compared : str
        What was compared, such as "tables" or "tables and apply_rotary_pos_emb"; an empty string if nothing was.

    See Also
    --------
    check_rotary : Return the rows of a model.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> model = torch.nn.ModuleDict({"rotary_emb": posenc.torch.RotaryEmbedding(posenc.Rotary(64))})
    >>> row = posenc.check.check_rotary(model, posenc.Rotary(64))[0]
    >>> row.module, row.verdict, row.compared
    ('rotary_emb', 'right', 'tables')
    """

    module: str
    found: Rotary | None
    expected: Rotary | None
    verdict: Verdict
    faults: tuple[str, ...]
    errors: Mapping[int, float | None]
    remedy: str = ""
    compared: str = ""


def row_of(name: str, rotation: Any, expected: Rotary, label: str, source: str = SOURCE, computes_in: str = "") -> RotaryRow:
    """Compare a rotation with the expected one; return a row that is not checked if the rotation cannot be read.

    `label` describes the rotation, such as "tables"; tables may be rounded to the dtype `computes_in`.
    """
    try:
        match, _ = matched(rotation, expected, source, computes_in=computes_in)
    except Exception as error:  # noqa: BLE001  (the code of a model may raise any error)
        return unchecked_row(name, expected, str(error))
    errors = MappingProxyType({position: match.errors.get(position) for position in ERRORS_AT})
    verdict: Verdict = "float32 angles" if "float32 angles" in match.reason else "right"
    remedy = 'for long sequences: see "float32 angles" in docs/check.md' if verdict == "float32 angles" else ""
    row = RotaryRow(name, match.rotary, expected, verdict, (), errors, remedy, label)
    return with_faults(row, match.faults or ((match.reason,) if match.rotary is None else ()))


def unchecked_row(name: str, expected: Rotary | None, reason: str) -> RotaryRow:
    """Return the row of a rotation that was not checked."""
    return RotaryRow(name, None, expected, "not checked", (reason,), MappingProxyType(dict.fromkeys(ERRORS_AT)), "", "")


def with_faults(row: RotaryRow, faults: tuple[str, ...]) -> RotaryRow:
    """Return a checked row with other faults, and with the verdict and the remedy for them."""
    return row._replace(faults=faults, verdict="wrong" if faults else row.verdict, remedy=guide(faults) or row.remedy)


def best_of(rows: Iterable[RotaryRow]) -> RotaryRow:
    """Return the row with the best agreement."""
    return min(rows, key=lambda row: (row.verdict == "wrong", len(row.faults)))


def guide(faults: Sequence[str]) -> str:
    """Return the line of the guide that describes the first fault that it describes."""
    line = next((line for fault in faults for line in GUIDE if fault.startswith(line)), "What to do about a fault")
    return f'see "{line} ..." in docs/check.md' if faults else ""


def is_rotary(name: str) -> bool:
    """Return whether the name of a tensor is one that projects give to the tables or frequencies of a rotation."""
    return NAMES.fullmatch(name) is not None


def compared(name: str, rotation: Any, expected: Mapping[str | None, Rotary]) -> RotaryRow:
    """Compare tables or frequencies with each expected rotation; return the row with the best agreement."""
    label = "frequencies" if not is_pair(rotation) and np.ndim(rotation) == 1 else "tables"
    rows = (row_of(name, rotation, rotary.replace(axes=None), label)._replace(expected=rotary) for rotary in expected.values())
    return best_of(rows)


class RotaryReport(tuple[RotaryRow, ...]):
    """The rows of a check; `print` shows them as a table.

    Parameters
    ----------
    iterable : iterable of RotaryRow
        The rows.

    Attributes
    ----------
    ok : bool
        Whether at least one rotation was compared, and all that was compared is right.  The first line of the printed report
        states what was compared.

    Raises
    ------
    TypeError
        If the argument is not iterable.

    See Also
    --------
    check_rotary : Return the report of a model.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> model = torch.nn.ModuleDict({"rotary_emb": posenc.torch.RotaryEmbedding(posenc.Rotary(64))})
    >>> posenc.check.check_rotary(model, posenc.Rotary(64, base=500.0)).ok
    False
    """

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """Whether at least one rotation was compared, and all that was compared is right.

        See Also
        --------
        RotaryRow : The rows, with their verdicts.

        Examples
        --------
        >>> import torch, posenc.torch
        >>> posenc.check.check_rotary(torch.nn.Linear(2, 2)).ok
        False
        """
        verdicts = {row.verdict for row in self}
        return "wrong" not in verdicts and bool(verdicts - {"not checked"})

    def __str__(self) -> str:
        kinds = list(dict.fromkeys(row.compared for row in self if row.compared))
        summary = f"compared: {'; '.join(kinds)}" if kinds else "nothing was compared"
        heads = ["module", "verdict", *(f"{'error at ' if p == ERRORS_AT[0] else ''}{p:,}" for p in ERRORS_AT)]
        cells = [[row.module, row.verdict, *("" if e is None else f"{e:.1g}" for e in row.errors.values())] for row in self]
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        lines_of_cells = ["  ".join(map(str.ljust, texts, widths)).rstrip() for texts in (heads, *cells)]
        summary += "; not compared: the calls in the attention and their positions" if {*kinds} - {"frequencies"} else ""
        lines = [summary, lines_of_cells[0]]
        for row, line in zip(self, lines_of_cells[1:], strict=True):
            kind = "reason" if row.verdict == "not checked" else "fault"
            details = [("found", row.found), ("expected", row.expected), *((kind, fault) for fault in row.faults),
                       ("remedy", row.remedy)]
            lines += [line, *(f"    {name:<9} {value}" for name, value in details if value)]
        return "\n".join(lines)

    __repr__ = __str__
