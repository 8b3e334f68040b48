"""The specification of a table, from which the table can be recomputed."""

from __future__ import annotations

from typing import Any, NamedTuple

from posenc._arguments import arrays, checks
from posenc._arguments.arrays import DTYPES
from posenc._encoding.encoding import Encoding, check_encoding


class Specification(NamedTuple):
    """The positions of the rows, the encoding, and the dtype of the values; a file may store the bits of bfloat16 as uint16."""

    positions: range
    encoding: Encoding
    dtype: str

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.positions), self.encoding.d_model

    @property
    def nbytes(self) -> int:
        return len(self.positions) * self.encoding.d_model * itemsize(self.dtype)

    def document(self) -> dict[str, Any]:
        """Return the specification as a dict for JSON: `Encoding.to_dict`, with the positions and the dtype.

        >>> from posenc import Encoding
        >>> from posenc._files.specification import Specification, described
        >>> specification = Specification(range(10, 50), Encoding(64, base=500.0), "float32")
        >>> described(specification.document(), (40, 64)) == specification
        True
        """
        positions = {"start": self.positions.start, "stop": self.positions.stop, "step": self.positions.step}
        return self.encoding.to_dict() | {"positions": positions, "dtype": self.dtype}


def itemsize(dtype: str) -> int:
    return int(DTYPES[dtype].stored[2:])


def checked(positions: Any, encoding: Any, dtype: Any) -> Specification:
    """Return the specification of a table to write; raise every error that `encode` would raise."""
    check_encoding(encoding)
    positions = checks.range_of(positions, encoding.position_offset)
    return Specification(positions, encoding, arrays.dtype(dtype)[0])


def described(document: Any, shape: tuple[int, ...]) -> Specification | None:
    """Return the specification in a document, and check that it fits `shape`; return None for None."""
    if document is None:
        return None
    try:
        positions = range(*(document["positions"][name] for name in ("start", "stop", "step")))
        expected = len(positions), document["d_model"]
        # compare the shape first: a wrong d_model may be huge, and an Encoding takes memory for each column
        if shape == expected:
            return checked(positions, Encoding.from_dict(document), document["dtype"])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"not a posenc specification: {type(error).__name__}: {error}") from error
    raise ValueError(f"shape {shape}, expected {expected} from the specification in the file")
