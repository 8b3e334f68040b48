"""The command that installs an optional package."""

import os
import sys
from importlib.util import find_spec


def command(package: str) -> str:
    """Return a command that installs a package in this environment, with the installer that created the environment.

    uv creates environments without pip.  pipx would lose a package that pip installs when it rebuilds the environment.
    """
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable or "python"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject posenc {package}"
    if find_spec("pip"):
        return f"{python} -m pip install {package}"
    return f"uv pip install --python {python} {package}"
