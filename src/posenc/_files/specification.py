"""What a file says of itself: the specification, from which its table can be made again."""

from typing import Any

from posenc import _arguments
from posenc._encoding import Encoding, keywords_of
from posenc._version import __version__


def specification(encoding: Encoding, positions: range, dtype: str) -> dict[str, Any]:
    """The specification of a table, as a dict that JSON can hold.

    Parameters
    ----------
    encoding : Encoding
    positions : range
    dtype : str
        Name of the values' dtype, also where their bits are stored under another one.

    Returns
    -------
    dict
        The convention is whole, its defaults included: a file outlives them.

    Examples
    --------
    >>> from posenc import Encoding
    >>> from posenc._files.specification import described, specification
    >>> document = specification(Encoding(64, base=500.0), range(10, 50), "float32")
    >>> described(document, (40, 64))
    (Encoding(64, base=500.0), range(10, 50))
    """
    return {
        "version": __version__,
        "positions": {"start": positions.start, "stop": positions.stop, "step": positions.step},
        "d_model": encoding.d_model,
        "dtype": dtype,
        "convention": keywords_of(encoding),
    }


def described(document: Any, shape: tuple[int, ...]) -> tuple[Encoding, range]:
    """The encoding and the positions of a specification that a file of that shape holds.

    Raises
    ------
    ValueError
        Where it is none, or one of another table.
    """
    try:
        positions = range(*(document["positions"][name] for name in ("start", "stop", "step")))
        expected = len(positions), document["d_model"]
        # an encoding is made for columns that the file has, not for those that it claims
        encoding = Encoding(expected[1], **document["convention"]) if shape == expected else None
        if encoding:
            _arguments.check_domain(positions, keywords_of(encoding)["position_offset"])
    except (KeyError, OverflowError, TypeError, ValueError) as error:
        raise ValueError(f"not a specification of posenc: {type(error).__name__}: {error}") from error
    if encoding is None:
        raise ValueError(f"shape {shape}, expected {expected} from the specification beside it")
    return encoding, positions
