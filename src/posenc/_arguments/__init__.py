"""Checks and conversions of arguments; this package imports nothing else of posenc."""

__version__ = "0.1.0"           # pyproject.toml reads it
