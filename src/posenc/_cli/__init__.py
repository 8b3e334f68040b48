"""The command ``posenc``."""

from posenc._cli.entry_point import main

__all__ = ["main"]
