"""Numbers in messages."""

from collections.abc import Sequence


def number(x: float) -> str:
    """Return a number as text: integers in full, others with six digits."""
    return f"{x:.0f}" if float(x).is_integer() and abs(x) < 1e15 else f"{x:.6g}"


def numbers(values: Sequence[int]) -> str:
    """Return sorted integers as text: "3", "0 to 7", "1, 5, 9 ..."."""
    if len(values) > 1 and values[-1] - values[0] == len(values) - 1:
        return f"{values[0]} to {values[-1]}"
    return ", ".join(map(str, values[:4])) + (" ..." if len(values) > 4 else "")


def pairs(values: Sequence[int]) -> str:
    """Return pairs of columns as text: "pair 3", "pairs 0 to 7"."""
    return f"pair{'s' if len(values) > 1 else ''} {numbers(values)}"
