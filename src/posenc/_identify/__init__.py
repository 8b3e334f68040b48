"""Identify the convention of a table, or a rotary embedding."""

from posenc._identify.rotation.identify_rotary import RotaryMatch, identify_rotary
from posenc._identify.table.identify import Match, identify, identify_file

__all__ = ["Match", "RotaryMatch", "identify", "identify_file", "identify_rotary"]
