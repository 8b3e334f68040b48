"""Optional packages: the error for one that is not installed, and the command that installs it."""

import os
import sys
from importlib.util import find_spec


def command(module: str) -> str:
    """Return a command that installs the package of a module, with an installer that works in this environment.

    uv creates environments without pip.  pipx would lose a package that pip installs when it rebuilds the environment.
    """
    package = module.partition(".")[0]
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable or "python"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject posenc {package}"
    if find_spec("pip"):
        return f"{python} -m pip install {package}"
    return f"uv pip install --python {python} {package}"


def not_installed(what: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that names the extra of posenc and the command."""
    message = f"{what} needs {error.name}, as in the extra posenc[{extra}]: {command(str(error.name))}"
    return ModuleNotFoundError(message, name=error.name)
