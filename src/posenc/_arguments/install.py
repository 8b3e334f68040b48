"""The error for an optional package that is not installed, and a command that installs it."""

import os
import sys
from importlib.util import find_spec


def command(module: str) -> str:
    """Return a command that installs the package of a module, with an installer that works in this environment.

    Environments created by uv lack pip.  When pipx rebuilds an environment, packages installed by pip are lost.
    """
    package = module.partition(".")[0]
    python = f'"{sys.executable}"' if " " in sys.executable else sys.executable or "python"
    if os.path.exists(os.path.join(sys.prefix, "pipx_metadata.json")):
        return f"pipx inject posenc {package}"
    if find_spec("pip"):
        return f"{python} -m pip install {package}"
    return f"uv pip install --python {python} {package}"


def not_installed(what: str, extra: str, error: ModuleNotFoundError) -> ModuleNotFoundError:
    """Return an error that names the missing package, the extra of posenc that contains it, and the command."""
    message = f"{what} needs {error.name}, included in posenc[{extra}]; to install it: {command(str(error.name))}"
    return ModuleNotFoundError(message, name=error.name)
