"""The command ``posenc``."""

from posenc._cli.main import main as main
