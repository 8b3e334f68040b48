"""Annotations: mypy accepts user code and the package, and stubtest accepts the stub of the extension."""

import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import get_args, get_type_hints

import pytest

import posenc
from keywords import INVALID, VALID
from posenc._encoding.encoding import Convention

ROOT = Path(__file__).parents[1]


def run(module, *arguments):
    pytest.importorskip("mypy")
    result = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True,
                            text=True)
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.parametrize("specification", [posenc.Encoding, posenc.Rotary])
def test_the_documentation_and_the_choices_agree_with_the_parameters(specification):
    described = inspect.getdoc(specification).split("Parameters\n")[1].split("\n\nAttributes\n")[0]
    fields = specification._parameters
    assert ", ".join(re.findall(r"^(\w.*) : ", described, re.MULTILINE)).split(", ") == list(fields)
    hints = get_type_hints(specification)
    for name, keyword in fields.items():
        if isinstance(keyword.check, tuple):
            assert [get_args(choices) for choices in get_args(hints[name])] == [keyword.check] * 2


def test_convention_has_the_keywords_of_encoding():
    hints, given = get_type_hints(posenc.Encoding), get_type_hints(Convention)
    assert given == {name: get_args(hints[name])[0] for name in posenc.Encoding._keywords}


def test_every_keyword_has_examples():
    assert VALID.keys() == INVALID.keys() == posenc.Encoding._keywords.keys()


@pytest.mark.parametrize("name", [n for n in posenc.__all__ if not isinstance(getattr(posenc, n), type)])
def test_annotations_can_be_evaluated(name):
    assert "return" in get_type_hints(getattr(posenc, name))


@pytest.mark.parametrize("files", [["tests/typed.py"], pytest.param([], marks=pytest.mark.long)],
                         ids=["user code", "package"])
def test_types(files):
    run("mypy", *files)


def test_the_stub_of_the_extension_is_correct():
    run("mypy.stubtest", "posenc._core.kernel", "--allowlist=tests/stubtest.txt", "--ignore-unused-allowlist")


@pytest.mark.long
def test_stubs_match_every_module():
    for extra in ("dask", "matplotlib", "torch", "zarr"):
        pytest.importorskip(extra)
    run("mypy.stubtest", "posenc", "--mypy-config-file=pyproject.toml", "--allowlist=tests/stubtest.txt")
