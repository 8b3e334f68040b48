"""The examples of the README, of docs/, of the docstrings and of --help run; where a package is absent they are skipped."""

import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import posenc

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```(sh|console)\n(.*?)```", re.DOTALL)
IMPORTED = re.compile(r"^\s*(?:import|from) (\w+)", re.MULTILINE)
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]    # docs/recipes/: test_recipes.py
DOCUMENTS = [path for path in PAGES if BLOCK.search(path.read_text())]
# module: the package that it needs
MODULES = {
    "posenc._encoding": "numpy",
    "posenc._grid": "numpy",
    "posenc._identify": "numpy",
    "posenc._positions": "numpy",
    "posenc._presets": "numpy",
    "posenc._runtime": "numpy",
    "posenc._specification": "numpy",
    "posenc.dask": "dask",
    "posenc.plot": "matplotlib",
    "posenc.torch": "torch",
}
COMMAND_PAGES = ["README.md", "docs/cli.md", "docs/scale-out.md"]
INSTALLS = "pip install"        # needs a package index: .ci/run does what the README says
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX shell")


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents(path, tmp_path, monkeypatch):
    """The blocks of a document run in one namespace, from above to below, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(path.read_text())
    for package in sorted(set(IMPORTED.findall("\n".join(blocks)))):
        pytest.importorskip(package)
    names = {}
    for block in blocks:
        exec(compile(block, str(path), "exec"), names)


def test_there_are_documents():
    assert {"README.md", "conventions.md", "padding.md", "scale-out.md", "torch.md"} <= {path.name for path in DOCUMENTS}


def test_every_preset_is_in_the_table_of_models():
    table = (ROOT / "docs/conventions.md").read_text().split("## By model")[1].split("\n## ")[0]
    assert {name for row in table.splitlines() for name in re.findall(r"`([^`]*)`", "".join(row.split("|")[2:3]))} == {
        preset.name for preset in posenc.presets()
    }


@pytest.mark.thread_unsafe          # doctest changes a module while it runs
@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name):
    pytest.importorskip(MODULES[name])
    result = doctest.testmod(importlib.import_module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


# ---- the command line -----------------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path):
    """Runs a line of bash in a folder of its own, with this Python and the program first in its path: exit code, all output."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, words in (("python", ""), ("posenc", " -m posenc")):
        (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
        (programs / name).chmod(0o755)
    folder = tmp_path / "here"
    folder.mkdir()
    path = os.pathsep.join([str(programs), os.environ["PATH"]])

    def run(line):
        environment = os.environ | {"PATH": path}
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, **output)
        return done.returncode, done.stdout

    return run


def commands(text):
    """The lines for a shell in a document, each with the output shown below it, None where none can be."""
    for kind, block in SHELL.findall(text):
        if kind == "sh":
            yield from ((line, None) for line in block.splitlines() if line)
        else:
            for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, output = example.partition("\n")
                yield line, output


def check(shell, line, output):
    if ".zarr" in line:
        pytest.importorskip("zarr")
    if "posenc plot" in line:
        pytest.importorskip("matplotlib")
    code, found = shell(line)
    assert code == 0, f"{line}: {code}\n{found}"
    if output is not None:
        assert doctest.OutputChecker().check_output(output, found, doctest.ELLIPSIS), f"{line}\n{found}"


@POSIX
@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_commands(page, shell):
    """In one folder, from above to below."""
    lines = list(commands((ROOT / page).read_text()))
    runnable = [(line, output) for line, output in lines if INSTALLS not in line]
    assert lines and (runnable or page == "README.md")
    if page == "docs/scale-out.md":
        pytest.importorskip("zarr")     # what the Python above it writes
        shell("posenc generate 1_000_000 64 -o pe.zarr")
    for line, output in runnable:
        check(shell, line, output)


@POSIX
def test_examples_of_help(shell):
    """But for those of bench, which takes its time."""
    ran = 0
    for command in ("generate", "verify", "identify", "info", "plot"):
        examples = shell(f"posenc {command} --help")[1].split("examples:\n")[1]
        for line in examples.strip().splitlines():
            check(shell, line.strip(), None)
            ran += 1
    assert ran >= 10


@POSIX
def test_a_wrong_example_is_found(shell):
    """The mechanism can fail."""
    text = "```console\n$ echo 1...\n1...\n$ posenc verify absent.npy\n```\n```sh\necho x\n```"
    (first, _), (second, output), (third, none) = commands(text)
    assert (first, second, output, third, none) == ("echo 1...", "posenc verify absent.npy", "", "echo x", None)
    for line, wanted in ((second, output), ("posenc --version", "posenc 9.9\n"), ("echo 1", "")):
        with pytest.raises(AssertionError):
            check(shell, line, wanted)
