"""Results: the match of a rotation, and a report with a row for each rotation of a model or of a file."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple, TypeAlias

from posenc import Rotary

GUIDE = "see docs/check.md"
Verdict: TypeAlias = Literal["right", "float32 angles", "wrong", "no rotation", "not checked"]


class RotaryMatch(NamedTuple):  # numpydoc ignore=PR01
    """A rotation that reproduces the given one, and its differences from the expected rotation.

    Attributes
    ----------
    rotary : Rotary or None
        The rotation with the frequencies, scale and layout of the given one, or None if no rotation gives its
        values.  A `Rotary` cannot express some faults, such as exchanged cosines and sines, positions from 1,
        or rounded positions.
    difference : float
        Largest absolute difference from the cosines and sines, or frequencies, of ``rotary``.  If ``rotary``
        is None, this is the difference from the nearest rotation.
    reason : str
        The faults, then remarks such as "float32 angles: the estimated error is 0.07 at position 1,000,000".
    faults : tuple of str
        The differences from the expected rotation; empty if the given rotation agrees with the expected one
        within the precision of its arithmetic, or if no rotation is expected.
    errors : mapping of int to float
        Estimates of the largest absolute errors of cosines and sines near the positions 1,000, 100,000 and
        1,000,000: the errors of exact frequencies with the arithmetic that was found, at each of these and at
        the seven positions before it.  For a shorter table, the last key is its last position.  Empty if the
        arithmetic is unknown, if cosines and sines have other signs or are exchanged, or if positions start
        elsewhere, or if only some values are wrong.
    verdict : {"right", "float32 angles", "wrong"}
        As in `RotaryRow`.  Without an expected rotation, "wrong" means that no rotation gives all values.

    See Also
    --------
    identify_rotary : Return the matches of a rotation.

    Examples
    --------
    >>> import posenc
    >>> tables = posenc.Rotary(64).tables(100)
    >>> match = posenc.check.identify_rotary(tables, expect=posenc.Rotary(64, base=500000.0))[0]
    >>> match.rotary, match.faults
    (Rotary(64), ('base is 10000, expected 500000',))
    """

    rotary: Rotary | None
    difference: float
    reason: str
    faults: tuple[str, ...] = ()
    errors: Mapping[int, float] = MappingProxyType({})
    verdict: Verdict = "wrong"


class RotaryRow(NamedTuple):  # numpydoc ignore=PR01
    """A rotation that was found in a model or in a file, compared with the configuration.

    Attributes
    ----------
    module : str
        Name of the attention or tensor.  If several rotate alike, the name of the first and the number of the
        others.
    found : Rotary or None
        The rotation that was found, or None if posenc does not recognize it.
    expected : Rotary or None
        The rotation in the configuration, or None if the configuration has none.
    verdict : {"right", "float32 angles", "wrong", "no rotation", "not checked"}
        "float32 angles" means right, but with an error that grows with the position.  "no rotation" means
        that the queries and keys do not depend on the position, as the configuration states.
    faults : tuple of str
        A sentence for each fault; or, if the rotation was not checked, the reason.
    errors : mapping of int to float
        As for `RotaryMatch`.
    compared : str
        What was compared, such as "queries and keys" or "tables"; an empty string if nothing was.

    See Also
    --------
    check_rotary : Return the rows of a model.

    Examples
    --------
    >>> import posenc, torch
    >>> row = posenc.check.check_rotary(torch.nn.Embedding(9, 4))[0]
    >>> row.module, row.verdict, row.faults[0][:22]
    ('model', 'not checked', 'no attention was found')
    """

    module: str
    found: Rotary | None
    expected: Rotary | None
    verdict: Verdict
    faults: tuple[str, ...]
    errors: Mapping[int, float] = MappingProxyType({})
    compared: str = ""


def row_of(name: str, match: RotaryMatch, expected: Rotary | None, label: str) -> RotaryRow:
    """Return the row of a rotation that was compared; `label` describes what was, such as "tables"."""
    verdict: Verdict = "wrong" if match.faults else match.verdict
    return RotaryRow(name, match.rotary, expected, verdict, match.faults, match.errors, label)


def unchecked_row(name: str, expected: Rotary | None, reason: str) -> RotaryRow:
    """Return the row of a rotation that was not checked."""
    return RotaryRow(name, None, expected, "not checked", (reason,))


class RotaryReport(tuple[RotaryRow, ...]):
    """The rows of a check, with a text for `print`.

    Parameters
    ----------
    iterable : iterable of RotaryRow
        The rows.

    Attributes
    ----------
    ok : bool
        Whether at least one rotation was compared, and all are right.  The first line of the printed report
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
    >>> import posenc
    >>> posenc.check.RotaryReport([]).ok
    False
    """

    __slots__ = ()

    @property
    def ok(self) -> bool:
        """Whether at least one rotation was compared, and all are right.

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
        return verdicts <= {"right", "float32 angles", "no rotation"} and bool(verdicts - {"no rotation"})

    def __repr__(self) -> str:
        kinds = list(dict.fromkeys(row.compared for row in self if row.compared))
        lines = [f"compared: {'; '.join(kinds)}" if kinds else "nothing was compared"]
        for row in self:
            errors = [f"{error:.1g} at {at:,}" for at, error in row.errors.items()]
            faults = [("fault" if row.verdict == "wrong" else "reason", fault) for fault in row.faults]
            details = [("found", row.found), ("expected", row.expected), *faults, ("errors", ", ".join(errors))]
            lines.append(f"{row.module}: {row.verdict}")
            lines += [f"    {name:<9} {value}" for name, value in details if value]
        return "\n".join(lines if self.ok else [*lines, GUIDE])
