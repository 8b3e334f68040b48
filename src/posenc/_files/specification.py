"""The specification of a table, from which the table can be recomputed."""

from typing import Any

from posenc._arguments import checks
from posenc._encoding.encoding import Encoding


def specification(encoding: Encoding, positions: range, dtype: str) -> dict[str, Any]:
    """Return the specification of a table as a dict for JSON: `Encoding.to_dict`, with the positions and the dtype.

    For bfloat16, the dtype in the dict is "bfloat16" even if the file stores the bits as uint16.

    >>> from posenc import Encoding
    >>> from posenc._files.specification import described, specification
    >>> document = specification(Encoding(64, base=500.0), range(10, 50), "float32")
    >>> described(document, (40, 64))
    (Encoding(64, base=500.0), range(10, 50))
    """
    return encoding.to_dict() | {
        "positions": {"start": positions.start, "stop": positions.stop, "step": positions.step},
        "dtype": dtype,
    }


def described(document: Any, shape: tuple[int, ...]) -> tuple[Encoding, range] | None:
    """Return the encoding and positions in a specification, and check that they fit `shape`; return None for None."""
    if document is None:
        return None
    try:
        positions = range(*(document["positions"][name] for name in ("start", "stop", "step")))
        expected = len(positions), document["d_model"]
        # compare the shape first: a wrong d_model may be huge, and an Encoding takes memory for each column
        encoding = Encoding.from_dict(document) if shape == expected else None
        if encoding:
            checks.check_domain(positions, encoding.position_offset)
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"not a posenc specification: {type(error).__name__}: {error}") from error
    if encoding is None:
        raise ValueError(f"shape {shape}, expected {expected} from the specification in the file")
    return encoding, positions
