"""The command ``posenc``."""

from posenc._cli.program import main

__all__ = ["main"]
