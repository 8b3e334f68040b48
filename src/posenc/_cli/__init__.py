"""The command ``posenc``."""

from posenc._cli.main import main

__all__ = ["main"]
