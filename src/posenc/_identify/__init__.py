"""Identify the convention of a table, or a rotation."""

from posenc._identify.match import Match, identify, identify_file
from posenc._identify.rotary_match import RotaryMatch, identify_rotary

__all__ = ["Match", "RotaryMatch", "identify", "identify_file", "identify_rotary"]
