"""Annotations: mypy accepts user code and the package, and stubtest accepts the stub of the extension."""

import subprocess
import sys
from pathlib import Path
from typing import get_type_hints

import pytest

import posenc
from posenc._arguments.types import Convention
from posenc._encoding.convention import DEFAULTS

ROOT = Path(__file__).parents[1]


def run(module, *arguments):
    pytest.importorskip("mypy")
    result = subprocess.run([sys.executable, "-m", module, *arguments], cwd=ROOT, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_convention_has_the_keywords_of_encoding():
    keywords = get_type_hints(posenc.Encoding.__init__)
    del keywords["d_model"], keywords["return"]
    assert get_type_hints(Convention) == keywords
    assert Convention.__annotations__.keys() == DEFAULTS.keys()


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
