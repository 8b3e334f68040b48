"""The examples of the README, of docs/ and of the docstrings run."""

import doctest
import importlib
import re
from pathlib import Path

import pytest

import posenc

ROOT = Path(__file__).parent.parent
PAGES = ["README.md", "docs/conventions.md", "docs/identify.md"]
MODULES = ["posenc._encoding", "posenc._identify", "posenc._presets", "posenc._runtime"]


@pytest.mark.parametrize("page", PAGES)
def test_page(page):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.DOTALL)
    assert len(blocks) >= 2
    names = {}
    for block in blocks:
        exec(compile(block, page, "exec"), names)


def test_every_preset_is_in_the_table_of_models():
    table = (ROOT / "docs/conventions.md").read_text().split("## By model")[1].split("\n## ")[0]
    assert {name for row in table.splitlines() for name in re.findall(r"`([^`]*)`", "".join(row.split("|")[2:3]))} == {
        preset.name for preset in posenc.presets()
    }


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0
