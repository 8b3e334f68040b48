"""The examples of the README, of docs/ and of the docstrings run; where a package is absent they are skipped."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import posenc

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
IMPORTED = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
DOCUMENTS = [path for path in PAGES if BLOCK.search(path.read_text())]
# module: the package that it needs
MODULES = {
    "posenc._encoding": "numpy",
    "posenc._grid": "numpy",
    "posenc._identify": "numpy",
    "posenc._positions": "numpy",
    "posenc._presets": "numpy",
    "posenc._runtime": "numpy",
}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents(path):
    """The blocks of a document run in one namespace, from above to below."""
    blocks = BLOCK.findall(path.read_text())
    for package in sorted(set(IMPORTED.findall("\n".join(blocks)))):
        pytest.importorskip(package)
    names = {}
    for block in blocks:
        exec(compile(block, str(path), "exec"), names)


def test_there_are_documents():
    assert {"README.md", "conventions.md", "padding.md"} <= {path.name for path in DOCUMENTS}


def test_every_preset_is_in_the_table_of_models():
    table = (ROOT / "docs/conventions.md").read_text().split("## By model")[1].split("\n## ")[0]
    assert {name for row in table.splitlines() for name in re.findall(r"`([^`]*)`", "".join(row.split("|")[2:3]))} == {
        preset.name for preset in posenc.presets()
    }


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    pytest.importorskip(MODULES[name])
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0
