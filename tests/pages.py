"""Run the Python program on a page of the documentation, in a process that imports only the packages that the page has named.

A package is named by ``pip install`` or by an extra such as ``posenc[torch]``, before the end of the block that needs it.
"""

import builtins
import functools
import os
import re
import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
INSTALLED = re.compile(r"pip install ([^`\n&]*)|(posenc\[[\w,]+\])")
REQUIREMENT = re.compile(r"(?:^|(?<=[\s'\"]))(\.|[A-Za-z][\w.-]*)(?:\[([\w,]*)\])?")
PACKAGES = {"sklearn": "scikit-learn"}          # module: its package, if the names differ
ALWAYS = {"numpy", "nulls", "pages", "posenc", *sys.stdlib_module_names}
TIMEOUT = 300
OFFLINE = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "RAY_USAGE_STATS_ENABLED": "0", "PYSPARK_PYTHON": sys.executable}

# ---- in the process of the page -------------------------------------------------------------------------------------

import_module = builtins.__import__


def normal(name):
    return PACKAGES.get(name, name).replace("_", "-").lower()


def allow_only(packages):
    """Let the page and posenc import only these packages, NumPy and the standard library; other libraries import anything."""
    def import_named(name, *arguments, **keywords):
        scope = arguments[0] if arguments else keywords.get("globals")
        module, importer = name.partition(".")[0], (scope or {}).get("__name__", "").partition(".")[0]
        if importer in ("__main__", "posenc") and module not in ALWAYS and normal(module) not in packages:
            raise ModuleNotFoundError(f"the page has not named {module!r}", name=module)
        return import_module(name, *arguments, **keywords)

    builtins.__import__ = import_named


# ---- in the process of the tests ------------------------------------------------------------------------------------


def named(text):
    """Return the names of the packages that a text names, and of all packages that pip installs with them, sorted."""
    packages = set()
    for arguments, extra in INSTALLED.findall(text):
        for name, extras in REQUIREMENT.findall(extra or arguments):
            packages |= closure("posenc" if name == "." else name, extras)
    return sorted(packages)


@functools.cache
def closure(name, extras=""):
    """Return the name of a package and the names of all packages that it requires, according to the installed metadata."""
    from packaging.requirements import Requirement

    found, pending = set(), [(name, frozenset(filter(None, extras.split(","))))]
    seen = set()
    while pending:
        seen.add(package := pending.pop())
        name, wanted = package
        found.add(normal(name))
        try:
            requirements = map(Requirement, metadata.requires(name) or ())
        except metadata.PackageNotFoundError:
            continue
        for required in requirements:
            if required.marker is None or any(required.marker.evaluate({"extra": extra}) for extra in wanted | {""}):
                pending.extend({(required.name, frozenset(required.extras))} - seen)
    return found


def program(text, omitted=()):
    """Return the Python code on a page without the omitted blocks; line numbers do not change.

    Blank lines replace all other lines, and a call of `allow_only` replaces the line above each block.
    """
    lines, end = [], 0
    for match in BLOCK.finditer(text):
        lines += [""] * text.count("\n", end, match.start())
        end = match.end()
        if match[1] in omitted:
            lines += [""] * match[0].count("\n")
        else:
            lines += [f"import pages; pages.allow_only({named(text[:end])})", *match[1].splitlines()]
    return "\n".join(lines) + "\n"


def run(text, folder, then="", omitted=()):
    """Run the program on a page and then the code `then`, in `folder`, with a command ``posenc`` on PATH."""
    script = folder / "program.py"
    script.write_text(program(text, omitted) + then)
    environment = environment_with_commands(folder / "bin", named(text)) | OFFLINE | {"HF_HOME": str(folder / "cache")}
    return subprocess.run(
        [sys.executable, script], cwd=folder, env=environment, capture_output=True, text=True, timeout=TIMEOUT
    )


def environment_with_commands(folder, packages=None):
    """Create the commands ``python`` and ``posenc``, which imports only these packages; return an environment with both."""
    posenc = "-m posenc"
    if packages is not None:
        code = f"import pages, sys; pages.allow_only({packages}); from posenc._cli import main; sys.exit(main())"
        posenc = f"-c {shlex.quote(code)}"
    folder.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("posenc", posenc)):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    paths = {"PATH": str(folder), "PYTHONPATH": str(Path(__file__).parent)}
    return os.environ | {name: os.pathsep.join(filter(None, [path, os.environ.get(name)])) for name, path in paths.items()}
