"""Which convention a given table has."""

from posenc._identify.judge import Match, identify, identify_file

__all__ = ["Match", "identify", "identify_file"]
