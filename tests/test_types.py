"""Annotations: mypy accepts user code and the package, and stubtest accepts the stub of the extension."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import posenc
from posenc._arguments.types import Convention
from posenc._encoding import convention
from posenc._rotary import keywords as rotary

ROOT = Path(__file__).parents[1]


def run(module, *arguments):
    pytest.importorskip("mypy")
    result = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("specification, keywords", [(posenc.Encoding, convention.KEYWORDS), (posenc.Rotary, rotary.KEYWORDS)])
def test_each_list_of_keywords_agrees_with_the_table(specification, keywords):
    """Types and documentation need the keywords written out."""
    size, *parameters = inspect.signature(specification).parameters.values()
    assert {p.name: p.default for p in parameters} == {name: keyword.default for name, keyword in keywords.items()}
    described = inspect.getdoc(specification).split("Parameters\n")[1].split("\n\n")[0]
    assert ", ".join(re.findall(r"^(\w.*) : ", described, re.MULTILINE)).split(", ") == [size.name, *keywords]
    attributes = [name for name in specification.__annotations__ if not name.startswith("_")]
    assert [name for name in attributes if name in keywords] == [name for name in keywords if name in attributes]
    assert all(hasattr(specification, name) for name in keywords)
    hints = get_type_hints(specification.__init__)
    choices = {name: keyword.check for name, keyword in keywords.items() if isinstance(keyword.check, tuple)}
    assert {name: get_args(hints[name]) for name in choices} == choices


def test_convention_has_the_keywords_of_encoding():
    hints = get_type_hints(posenc.Encoding.__init__)
    del hints["d_model"], hints["return"]
    assert list(get_type_hints(Convention).items()) == list(hints.items())


@pytest.mark.parametrize("name", [name for name in posenc.__all__ if not isinstance(getattr(posenc, name), type)])
def test_annotations_can_be_evaluated(name):
    assert "return" in get_type_hints(getattr(posenc, name))


def test_types_of_user_code():
    run("mypy", "tests/typed.py")


def test_the_stub_of_the_extension_is_correct():
    run("mypy.stubtest", "posenc._core.kernel", "--allowlist=tests/stubtest.txt", "--ignore-unused-allowlist")


@pytest.mark.long
def test_types_of_the_package():
    run("mypy")


@pytest.mark.long
def test_stubs_match_every_module():
    for extra in ("dask", "matplotlib", "torch", "zarr"):
        pytest.importorskip(extra)
    run("mypy.stubtest", "posenc", "--mypy-config-file=pyproject.toml", "--allowlist=tests/stubtest.txt")
