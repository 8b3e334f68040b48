"""Identify the convention of a table or a rotation, and check the rotary embeddings of functions and models.

>>> import posenc
>>> posenc.check.identify(posenc.preset("whisper", 64).encode(100))[0].encoding
Encoding(64, spacing='endpoint', layout='halves')
"""

from typing import TYPE_CHECKING, Any

from posenc._arguments import checks
from posenc.check.conventions import Match, identify
from posenc.check.report import RotaryMatch, RotaryReport, RotaryRow
from posenc.check.rotations import assert_rotary, identify_rotary

if TYPE_CHECKING:
    from posenc.check.models import check_rotary

__all__ = ["Match", "RotaryMatch", "RotaryReport", "RotaryRow", "assert_rotary", "check_rotary", "identify",
           "identify_rotary"]


def __getattr__(name: str) -> Any:
    """Import `check_rotary` on first use, because it needs PyTorch."""
    if name != "check_rotary":
        raise AttributeError(f"module 'posenc.check' has no attribute {name!r}")
    with checks.importing_for("posenc.check.check_rotary"):
        from posenc.check.models import check_rotary
    return check_rotary
