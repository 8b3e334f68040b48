"""Identify the convention of a table."""

from posenc._identify.match import Match, identify, identify_file

__all__ = ["Match", "identify", "identify_file"]
