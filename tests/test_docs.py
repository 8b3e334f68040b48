"""The examples of the README, of docs/, of the docstrings and of --help run, and every public name has a whole docstring.

Where a package is absent its tests are skipped.
"""

import doctest
import importlib
import inspect
import os
import re
import subprocess
import sys
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import posenc

ROOT = Path(__file__).parent.parent
BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
SHELL = re.compile(r"```(sh|console)\n(.*?)```", re.DOTALL)
IMPORTED = re.compile(r"^\s*(?:import|from) (posenc\.\w+|\w+)", re.MULTILINE)
MARKDOWN = [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/[!_]*.md")), *sorted(ROOT.glob("docs/[!_]*/**/*.md"))]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]    # docs/recipes/: test_recipes.py
DOCUMENTS = [path for path in PAGES if BLOCK.search(path.read_text())]
# module with public names: the packages that its examples need
PUBLIC = {"posenc": (), "posenc.dask": ("dask", "zarr"), "posenc.plot": ("matplotlib",), "posenc.torch": ("torch",)}
# and those in which they are defined
MODULES = PUBLIC | {
    "posenc._api": (),
    "posenc._encoding": (),
    "posenc._files.specification": (),
    "posenc._grid": (),
    "posenc._identify.judge": (),
    "posenc._padding": (),
    "posenc._presets": (),
    "posenc._runtime": (),
    "posenc.torch._data": ("torch",),
    "posenc.torch._functions": ("torch",),
    "posenc.torch._modules": ("torch",),
}
OF_TORCH = "extra_repr"         # overrides a method that PyTorch documents
SECTION = re.compile(r"^([A-Z][A-Za-z ]+)\n-+\n", re.MULTILINE)
COMMAND_PAGES = ["README.md", "docs/cli.md", "docs/guide.md", "docs/scale-out.md"]
INSTALLS = "pip install"        # needs a package index: .ci/run does what the README says
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX shell")


def packages_of(code):
    return {package for name in IMPORTED.findall(code) for package in PUBLIC.get(name, (name,))}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_documents(path, tmp_path, monkeypatch):
    """The blocks of a document run in one namespace, from above to below, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    blocks = BLOCK.findall(path.read_text())
    if path.name == "README.md":        # its block for torch is left out where torch is absent: no other block needs it
        blocks = [block for block in blocks if all(map(find_spec, packages_of(block)))]
    for package in sorted(packages_of("\n".join(blocks))):
        pytest.importorskip(package)
    names = {}
    for block in blocks:
        exec(compile(block, str(path), "exec"), names)


def test_there_are_documents():
    names = {path.name for path in DOCUMENTS}
    assert {"README.md", "conventions.md", "guide.md", "index.md", "migration.md", "scale-out.md", "torch.md"} <= names


def test_every_preset_is_in_the_table_of_models():
    table = (ROOT / "docs/conventions.md").read_text().split("## By model")[1].split("\n## ")[0]
    assert {name for row in table.splitlines() for name in re.findall(r"`([^`]*)`", "".join(row.split("|")[2:3]))} == {
        preset.name for preset in posenc.presets()
    }


# ---- Markdown -------------------------------------------------------------------------------------------------------


def prose(path):
    """A page without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*|`[^`]*`", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_markdown(path):
    """A power in prose would make what follows bold; a relative link leads to a file."""
    assert re.findall(r"\w+\*\*[-(\w]+", prose(path)) == []
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose(path))
    assert [link for link in links if not (path.parent / link).exists()] == []


# ---- docstrings -----------------------------------------------------------------------------------------------------


def module(name):
    for package in MODULES[name]:
        pytest.importorskip(package)
    return importlib.import_module(name)


@pytest.mark.thread_unsafe          # doctest changes a module while it runs
@pytest.mark.parametrize("name", [name for name in MODULES if name != "posenc"])
def test_docstrings(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = doctest.testmod(module(name), optionflags=doctest.NORMALIZE_WHITESPACE)
    assert result.attempted > 0
    assert result.failed == 0


def public(name):
    """The public names of a module, and the methods and properties that its classes define, each with its object."""
    found = module(name)
    for member in found.__all__:
        thing = getattr(found, member)
        yield f"{name}.{member}", thing
        for key, value in vars(thing).items() if inspect.isclass(thing) else ():
            if not key.startswith("_") and key != OF_TORCH and (inspect.isfunction(value) or isinstance(value, property)):
                yield f"{name}.{member}.{key}", value


def lacks(thing):
    """The sections that a docstring should have and has not, or has without content."""
    pieces = SECTION.split(inspect.getdoc(thing) or "")
    sections = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    wanted = {"See Also", "Examples"}
    if hasattr(thing, "_fields"):
        wanted |= {"Attributes"}
    elif callable(thing):
        takes = set(inspect.signature(thing).parameters) - {"self"}
        wanted |= {"Parameters", "Raises"} if takes else set()
        wanted |= set() if inspect.isclass(thing) else {"Returns"}
    lacking = {section for section in wanted if not sections.get(section, "").strip()}
    return lacking | ({"Examples"} if ">>> " not in sections.get("Examples", "") else set())


def whole(name):
    """The public things but the methods that a function of the same name describes: those have one sentence, which names it."""
    functions = set(module(name).__all__)
    for key, thing in public(name):
        method = key.removeprefix(f"{name}.").partition(".")[2]
        if method not in functions:
            yield key, thing
        else:
            assert re.fullmatch(rf"[^.\n]+: see `{name}\.{method}`\.", inspect.getdoc(thing)), key


@pytest.mark.parametrize("name", PUBLIC)
def test_sections(name):
    things = dict(whole(name))
    assert len(things) >= 3
    assert {key: lacking for key, thing in things.items() if (lacking := lacks(thing))} == {}
    # the examples of all of them are run
    assert {value.__module__ for value in dict(public(name)).values() if hasattr(value, "__module__")} <= set(MODULES)


@pytest.mark.parametrize("name", PUBLIC)
def test_numpydoc(name):
    """Parameters are those of the signature, in its order, each with type and description; and the style of numpydoc."""
    validation = pytest.importorskip("numpydoc.validate")
    with open(ROOT / "pyproject.toml", "rb") as file:
        checks = validation.get_validation_checks(set(tomllib.load(file)["tool"]["numpydoc_validation"]["checks"]))
    found = [(key, *error) for key, _ in whole(name) for error in validation.validate(key)["errors"] if error[0] in checks]
    assert found == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name):
    page = (ROOT / f"docs/api/{name.split('.')[-1]}.md").read_text()
    tables = re.split(r"currentmodule:: ", (ROOT / "docs/api.md").read_text())
    (table,) = (table for table in tables if table.startswith(f"{name}\n"))
    names = sorted(module(name).__all__)
    assert sorted(re.findall(r"\.\. auto(?:function|class):: (\w+)", page)) == names
    assert sorted(re.findall(r"^    (\w+)$", table, re.MULTILINE)) == names


@pytest.mark.thread_unsafe
def test_a_wrong_docstring_is_found(capsys):
    """The mechanism can fail."""

    def function(x):
        """Double a number.

        Parameters
        ----------
        x : int

        Examples
        --------
        >>> 1 + 1
        3
        """

    assert lacks(function) == {"Raises", "Returns", "See Also"}
    (test,) = doctest.DocTestFinder().find(function, "function", globs={})
    assert doctest.DocTestRunner().run(test).failed == 1
    with pytest.raises(AssertionError):
        exec(compile(BLOCK.findall("```python\nassert 1 + 1 == 3\n```\n")[0], "page", "exec"), {})


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
