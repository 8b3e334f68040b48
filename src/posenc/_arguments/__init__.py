"""Checks and conversions of arguments; this package imports nothing else of posenc."""
