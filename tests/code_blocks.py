"""Run the Python program on a page of the documentation."""

import os
import re
import subprocess
import sys
from pathlib import Path

BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
OFFLINE = {"HF_HUB_OFFLINE": "1", "TQDM_DISABLE": "1", "RAY_USAGE_STATS_ENABLED": "0",
           "PYSPARK_PYTHON": sys.executable}


def program(text, omitted=()):
    """Return the Python code on a page without the omitted blocks; blank lines replace all other lines."""
    lines, end = [], 0
    for match in BLOCK.finditer(text):
        code = "\n" * match[1].count("\n") if match[1] in omitted else match[1]
        lines += [*[""] * (text.count("\n", end, match.start()) + 1), *code.splitlines()]
        end = match.end() - 3
    return "\n".join(lines) + "\n"


def run(text, folder, omitted=()):
    """Run the program on a page in `folder`, with a command ``posenc`` on PATH."""
    script = folder / "program.py"
    script.write_text(program(text, omitted))
    environment = environment_with_commands(folder / "bin") | OFFLINE | {"HF_HOME": str(folder / "cache")}
    return subprocess.run([sys.executable, script], cwd=folder, env=environment, capture_output=True,
                          text=True, timeout=300)


def environment_with_commands(folder):
    """Create the commands ``python`` and ``posenc``; return an environment in which both are on PATH."""
    folder.mkdir(exist_ok=True)
    for name, arguments in (("python", ""), ("posenc", "-m posenc")):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" {arguments} "$@"\n')
        (folder / name).chmod(0o755)
    paths = {"PATH": str(folder), "PYTHONPATH": str(Path(__file__).parent)}
    return os.environ | {name: os.pathsep.join(filter(None, [path, os.environ.get(name)]))
                         for name, path in paths.items()}
