"""Run the Python program on every page in docs/recipes/.

Each program runs in a separate process, because the libraries it imports start threads and servers and
register fork handlers.
"""

import itertools
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from code_blocks import BLOCK, program, run

RECIPES = Path(__file__).parent.parent / "docs/recipes"
PAGES = sorted(path for path in RECIPES.glob("*.md") if path.name != "README.md")
IMPORTED = re.compile(r"^(?:import|from) (\w+)", re.MULTILINE)


def missing_packages(code):
    packages = sorted(set(IMPORTED.findall(code)))
    missing = [package for package in packages if find_spec(package) is None]
    return [*missing, "java"] if "pyspark" in packages and shutil.which("java") is None else missing


@pytest.mark.long
@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_recipes_run(page, tmp_path):
    """A block that imports a missing package is left out.

    No other block depends on it, unless it is the first block.
    """
    text = page.read_text()
    assert "import posenc\n" in program(text) and "assert " in program(text)
    omitted = {block: missing for block in BLOCK.findall(text) if (missing := missing_packages(block))}
    skipped = f"not installed: {', '.join(sorted(set(itertools.chain(*omitted.values()))))}"
    if BLOCK.search(text)[1] in omitted:
        pytest.skip(skipped)
    done = run(text, tmp_path, omitted)
    assert done.returncode == 0, done.stderr
    if omitted:
        pytest.skip(skipped)


def test_the_list_of_recipes_is_complete():
    listed = re.findall(r"^\| \[(.*?)\]\((.*?)\)", (RECIPES / "README.md").read_text(), re.MULTILINE)
    assert sorted(listed) == [(page.name, page.name) for page in PAGES]
