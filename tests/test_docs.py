"""The examples of the README, of docs/ and of the docstrings run; where a package is absent they are skipped."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
IMPORTED = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
DOCUMENTS = [ROOT / "README.md", *(path for path in sorted(ROOT.glob("docs/**/*.md")) if BLOCK.search(path.read_text()))]
# module: the package that it needs
MODULES = {"posenc._encoding": "numpy", "posenc._runtime": "numpy", "posenc.torch": "torch"}


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
    assert {"README.md", "torch.md"} <= {path.name for path in DOCUMENTS}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    pytest.importorskip(MODULES[name])
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0
