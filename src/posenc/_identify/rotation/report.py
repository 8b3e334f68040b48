"""The result of a check of rotations: a row for each rotation, printed as a table."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from posenc._identify.rotation.identify_rotary import SOURCE, RotaryMatch, matches
from posenc._rotary import Rotary

POSITIONS = (1_000, 100_000, 1_000_000)

Verdict = Literal["right", "float32 angles", "wrong", "not checked"]


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
        The result.  "float32 angles" means right, but with an error that grows with the position.
    faults : tuple of str
        A sentence for each fault; or, if the rotation was not checked, the reason.
    errors : mapping of int to float
        The largest error of a rotated unit vector, or of a cosine or sine, near each of the positions 1,000, 100,000 and
        1,000,000; None if it is unknown.
    remedy : str
        The proposed change, or an empty string.

    See Also
    --------
    check_rotary : Return the rows of a model.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> model = torch.nn.ModuleDict({"rotary_emb": posenc.torch.RotaryEmbedding(posenc.Rotary(64))})
    >>> row = posenc.torch.check_rotary(model, posenc.Rotary(64))[0]
    >>> row.module, row.verdict
    ('rotary_emb', 'right')
    """

    module: str
    found: Rotary | None
    expected: Rotary | None
    verdict: Verdict
    faults: tuple[str, ...]
    errors: Mapping[int, float | None]
    remedy: str


NAMES = re.compile(
    r"(?:\w+_)?inv_freqs?|cos_sin_cache|freqs_cis|rope_cache|(?:cos|sin)(?:_cached|_cache|_table|_emb)?|freqs_(?:cos|sin)"
)


def is_rotary(name: str) -> bool:
    """Return whether the name of a tensor is one that projects give to the tables or frequencies of a rotation."""
    return NAMES.fullmatch(name) is not None


def compared(name: str, rotation: Any, expected: Mapping[str | None, Rotary]) -> RotaryRow:
    """Compare tables or frequencies with each expected rotation; return the row for the best agreement."""
    rows = []
    for rotary in expected.values():
        try:
            match = best_match(each_once(rotation), rotary.replace(axes=None), SOURCE)
        except (TypeError, ValueError) as error:
            rows.append(new_row(name, None, rotary, unchecked=str(error)))
        else:
            assert match is not None
            errors = errors_of(rotation, match, rotary)
            rows.append(new_row(name, match.rotary, rotary, errors, match.faults, match.reason))
    return min(rows, key=lambda row: (row.verdict == "wrong", len(row.faults)))


def best_match(rotation: Any, expected: Rotary | None, source: str, head_dim: int | None = None) -> RotaryMatch | None:
    found = matches(rotation, expected, source, head_dim=None if expected else head_dim)
    return found[0] if found else None


def errors_of(rotation: Any, match: RotaryMatch, expected: Rotary | None) -> dict[int, float | None]:
    """Return the largest errors at POSITIONS: those of the arithmetic, or the total errors if there are faults."""
    if expected is None or not match.faults:
        return dict.fromkeys(POSITIONS) | dict(match.errors)
    rotate = rotation if callable(rotation) else match.rotary and match.rotary.rotate
    return {position: _difference(rotate, expected, position) for position in POSITIONS}


def _difference(rotate: Any, expected: Rotary, position: int) -> float | None:
    """Return the largest difference of rotated unit vectors, or of cosines and sines, from the expected values.

    If the rotation has several axes of positions, the position is the same on each axis.
    """
    expected = expected.replace(axes=None)
    unit = np.eye(expected.head_dim, dtype=np.float32)
    positions = np.full(len(unit), position)
    try:
        found = rotate(unit.copy(), positions)
    except Exception:  # noqa: BLE001  (no rotation, a rotation of another size, or a table that ends before the position)
        return None
    wanted = expected.tables(positions) if isinstance(found, tuple) else (expected.rotate(unit, positions),)
    parts = found if isinstance(found, tuple) else (found,)
    if any(part.shape != other.shape for part, other in zip(parts, wanted, strict=True)):
        return None
    difference = max(float(np.abs(np.float64(part) - other).max()) for part, other in zip(parts, wanted, strict=True))
    return difference if np.isfinite(difference) else None


def each_once(rotation: Any) -> Any:
    """Return tables without repeated columns, because the order of such columns may differ from the layout of the pairs."""
    return tuple(map(_once, rotation)) if isinstance(rotation, tuple) else rotation


def _once(table: NDArray[Any]) -> NDArray[Any]:
    half = table.shape[-1] // 2
    if table.shape[-1] % 2 == 0 and half > 1:
        for one, other in ((table[..., :half], table[..., half:]), (table[..., ::2], table[..., 1::2])):
            if one.tobytes() == other.tobytes():
                return one
    return table


def new_row(
    module: str, found: Rotary | None, expected: Rotary | None, errors: Mapping[int, float | None] | None = None,
    faults: tuple[str, ...] = (), reason: str = "", remedy: str = "", *, unchecked: str = "",
) -> RotaryRow:
    """Return the row for a rotation; `unchecked` is the reason if the rotation was not checked."""
    if expected is None and not unchecked:
        unchecked = "no configuration was given; pass config="
    every = MappingProxyType(dict.fromkeys(POSITIONS) | dict(errors or {}))
    if unchecked:
        return RotaryRow(module, found, expected, "not checked", (unchecked,), every, remedy)
    verdict: Verdict = "wrong" if faults else "float32 angles" if "float32 angles" in reason else "right"
    return RotaryRow(module, found, expected, verdict, faults, every, remedy)


class RotaryReport(tuple[RotaryRow, ...]):
    """The rows of a check; `print` shows them as a table.

    Parameters
    ----------
    rows : iterable of RotaryRow
        The rows.

    Attributes
    ----------
    ok : bool
        Whether at least one rotation was checked, and none is wrong.

    Raises
    ------
    TypeError
        If `rows` is not iterable.

    See Also
    --------
    check_rotary : Return the report of a model.

    Examples
    --------
    >>> import torch, posenc.torch
    >>> model = torch.nn.ModuleDict({"rotary_emb": posenc.torch.RotaryEmbedding(posenc.Rotary(64))})
    >>> posenc.torch.check_rotary(model, posenc.Rotary(64, base=500.0)).ok
    False
    """

    __slots__ = ()

    def __new__(cls, rows: Iterable[RotaryRow] = ()) -> Self:
        return super().__new__(cls, rows)

    @property
    def ok(self) -> bool:
        """Whether at least one rotation was checked, and none is wrong.

        See Also
        --------
        RotaryRow : The rows, with their verdicts.

        Examples
        --------
        >>> import torch, posenc.torch
        >>> posenc.torch.check_rotary(torch.nn.Linear(2, 2)).ok
        False
        """
        verdicts = {row.verdict for row in self}
        return "wrong" not in verdicts and verdicts != {"not checked"} and bool(verdicts)

    def __str__(self) -> str:
        if not self:
            return "no rotary embedding was found"
        heads = ["module", "verdict", *(f"{'error at ' if p == POSITIONS[0] else ''}{p:,}" for p in POSITIONS)]
        cells = [[row.module, row.verdict, *map(shown_error, row.errors.values())] for row in self]
        widths = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
        lines = [_line(heads, widths)]
        for row, its in zip(self, cells, strict=True):
            lines.append(_line(its, widths))
            lines += [f"    {name:<9} {text}" for name, text in _details(row)]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return str(self)


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(cell.ljust(width) for cell, width in zip(cells, widths, strict=True)).rstrip()


def _details(row: RotaryRow) -> Iterable[tuple[str, str]]:
    if row.found is not None:
        yield "found", repr(row.found)
    if row.expected is not None:
        yield "expected", repr(row.expected)
    for fault in row.faults:
        yield ("reason" if row.verdict == "not checked" else "fault"), fault
    if row.remedy:
        yield "remedy", row.remedy


def shown_error(error: float | None) -> str:
    return "" if error is None else f"{error:.1g}"
