"""Run the examples in the README, docs/, docstrings and --help; check measured figures, and that public names
are documented.

A test is skipped if a package that it needs is not installed.
"""

import contextlib
import doctest
import hashlib
import importlib
import inspect
import io
import json
import os
import re
import runpy
import subprocess
import tomllib
from importlib.util import find_spec
from pathlib import Path

import pytest

import code_blocks
import posenc
from code_blocks import BLOCK
from posenc import _cli

ROOT = Path(__file__).parent.parent
SHELL = re.compile(r"```(sh|console)\n(.*?)```", re.DOTALL)
IMPORTED = re.compile(r"^\s*(?:import|from) (posenc\.\w+|\w+)", re.MULTILINE)
MARKDOWN = [*ROOT.glob("*.md"), *sorted(ROOT.glob("docs/[!_]*.md")), *sorted(ROOT.glob("docs/[!_]*/**/*.md"))]
PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]    # docs/recipes/: test_recipes.py
DOCUMENTS = [path for path in PAGES if BLOCK.search(path.read_text())]
# public module: the packages that its examples need
PUBLIC = {
    "posenc": ("safetensors", "zarr"), "posenc.check": ("torch",), "posenc.dask": ("dask",),
    "posenc.plot": ("matplotlib",), "posenc.torch": ("torch",),
}
OVERRIDE = "extra_repr"         # overrides a method that PyTorch documents
COMMAND_PAGES = ["README.md", *(f"docs/{page}.md" for page in ("check", "cli", "identify"))]
INSTALLS = "pip install"        # needs a package index; .ci/run tests the command of the README
PLAIN = re.compile(r"posenc [\w .,=/+-]+")        # a command without characters that are special to a shell
POSIX = pytest.mark.skipif(os.name != "posix", reason="POSIX shell")


def programs():
    """Return the programs of docs/scale-out.md for schedulers; tests/test_cluster.py runs them."""
    text = (ROOT / "docs/scale-out.md").read_text()
    engines = re.compile("^from distributed|^import ray|^from pyspark", re.MULTILINE)
    return [block for block in BLOCK.findall(text) if engines.search(block)]


def packages_of(code):
    return {package for name in IMPORTED.findall(code) for package in PUBLIC.get(name, (name,))}


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: path.name)
def test_examples_of_documents_run(path, tmp_path):
    """Run the code blocks of a document in order, in one process and in an empty folder."""
    text = path.read_text()
    blocks = BLOCK.findall(text)
    omitted = set(programs()) if path.name == "scale-out.md" else set()
    # no block depends on a block that imports transformers or, in the README, torch
    optional = {"transformers", "torch"} if path.name == "README.md" else {"transformers"}
    omitted |= {block for block in blocks if not all(map(find_spec, packages_of(block) & optional))}
    for package in sorted(packages_of("\n".join(block for block in blocks if block not in omitted))):
        pytest.importorskip(package)
    done = code_blocks.run(text, tmp_path, omitted=omitted)
    assert (done.returncode, done.stderr) == (0, "")
    if path.name == "README.md":            # its comments are the output
        assert done.stdout and [line for line in done.stdout.splitlines() if f"# {line}\n" not in text] == []


def test_every_preset_is_in_the_table_of_models():
    table = (ROOT / "docs/conventions.md").read_text().split("## By model")[1].split("\n## ")[0]
    names = {name for row in table.splitlines() for name in re.findall(r"`([^`]*)`", "".join(row.split("|")[2:3]))}
    assert names == set(posenc.presets())


# ---- Markdown ----------------------------------------------------------------------------------------------


def prose(path):
    """Return the text of a page without its code."""
    text = re.sub(r"^```.*?^```", "", path.read_text(), flags=re.DOTALL | re.MULTILINE)
    return re.sub(r"^ {4}.*|`[^`]*`", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize("path", MARKDOWN, ids=lambda path: str(path.relative_to(ROOT)))
def test_markdown_has_no_broken_powers_or_links(path):
    """A power outside of code would make the following text bold.

    The target of a relative link must exist.
    """
    assert re.findall(r"\w+\*\*[-(\w]+", prose(path)) == []
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", prose(path))
    assert [link for link in links if not (path.parent / link).exists()] == []


# ---- measured figures --------------------------------------------------------------------------------------


def data(name):
    return json.loads((ROOT / f"docs/data/{name}.json").read_text())


@pytest.mark.parametrize("name", ["accuracy", "positions"])
def test_plots_are_drawn_from_the_data(name):
    digest = hashlib.sha256(json.dumps(data(name)).encode()).hexdigest()
    assert digest in (ROOT / f"docs/images/{name}.svg").read_text(), "run benchmarks/plots.py"


def test_tables_and_signatures_are_up_to_date():
    script = ROOT / "benchmarks/pages.py"
    if not script.exists():
        pytest.skip("requires the source tree")
    for name in PUBLIC:
        module(name)
    names = runpy.run_path(str(script))
    texts = {page: page.read_text() for page in (*names["PAGES"], names["API"])}
    assert [page.name for page, text in texts.items() if names["updated"](text) != text] == [], "run benchmarks/pages.py"
    assert sum(text.count("<!-- table: ") for text in texts.values()) >= 8


# ---- docstrings --------------------------------------------------------------------------------------------


def module(name):
    for package in PUBLIC[name]:
        pytest.importorskip(package)
    return importlib.import_module(name)


@pytest.mark.thread_unsafe          # doctest replaces sys.stdout while it runs
@pytest.mark.parametrize("name", PUBLIC)
def test_examples_of_docstrings_run(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE)
    for key, value in ((name, module(name)), *documented(name)):
        examples, = finder.find(value, key, globs={})
        assert key == name or examples.examples, key
        assert runner.run(examples).failed == 0, key


def public(name):
    """Yield (name, object) for the public names of a module and for the public methods and properties of its
    classes.
    """
    for member in module(name).__all__:
        value = getattr(module(name), member)
        yield f"{name}.{member}", value
        for key, attribute in vars(value).items() if inspect.isclass(value) else ():
            if key[0] != "_" and key != OVERRIDE and (inspect.isfunction(attribute) or isinstance(attribute, property)):
                yield f"{name}.{member}.{key}", attribute


def documented(name):
    """Yield (name, object) for the public names that must have a complete docstring.

    If a method has the same name as a function, its docstring must be one sentence that refers to the
    function.
    """
    functions = set(module(name).__all__)
    for key, value in public(name):
        method = key.removeprefix(f"{name}.").partition(".")[2]
        if isinstance(value, property):         # a description is enough
            assert inspect.getdoc(value), key
        elif method not in functions:
            yield key, value
        else:
            assert re.fullmatch(rf"[^.\n]+: see `{name}\.{method}`\.", inspect.getdoc(value)), key


@pytest.mark.parametrize("name", PUBLIC)
def test_docstrings_follow_numpydoc(name):
    """The sections are complete, and the parameters match the signature and have types and descriptions."""
    validation = pytest.importorskip("numpydoc.validate")
    with open(ROOT / "pyproject.toml", "rb") as file:
        checks = validation.get_validation_checks(set(tomllib.load(file)["tool"]["numpydoc_validation"]["checks"]))
    errors = ((key, *error) for key, _ in documented(name) for error in validation.validate(key)["errors"])
    assert [error for error in errors if error[1] in checks] == []


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_is_in_the_reference(name):
    """docs/api.md shows its signature; from docs/reference.rst, Sphinx generates a page for it."""
    shown = re.findall(rf"<!-- reference: {re.escape(name)}: (.*?) -->", (ROOT / "docs/api.md").read_text())
    pages = (ROOT / "docs/reference.rst").read_text().split(f".. module:: {name}\n")[1].split(".. module:: ")[0]
    for names in (" ".join(shown).split(), re.findall(r"^    (\w+)$", pages, re.MULTILINE)):
        assert sorted(names) == sorted(module(name).__all__)


# ---- the command line --------------------------------------------------------------------------------------


@pytest.fixture
def shell(tmp_path):
    """Return a function that runs a bash command in a new folder.

    A plain call of posenc runs in this process.
    """
    folder = tmp_path / "here"
    folder.mkdir()

    def run(line):
        if PLAIN.fullmatch(line):
            text = io.StringIO()
            with contextlib.chdir(folder), contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                return _cli.main(line.split()[1:]), text.getvalue()
        environment = code_blocks.environment_with_commands(tmp_path / "bin")
        output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        done = subprocess.run(["bash", "-c", line], cwd=folder, env=environment, **output)
        return done.returncode, done.stdout

    return run


def commands(text):
    """Yield (command, output) for the shell commands in a document.  In ``sh`` blocks, the output is None."""
    for kind, block in SHELL.findall(text):
        if kind == "sh":
            yield from ((line, None) for line in block.splitlines() if line)
        else:
            for example in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
                line, _, output = example.partition("\n")
                yield line, output


def check(shell, line, output):
    code, actual = shell(line)
    assert code == 0, f"{line}: {code}\n{actual}"
    if output is not None:
        assert doctest.OutputChecker().check_output(output, actual, doctest.ELLIPSIS), f"{line}\n{actual}"


@POSIX
@pytest.mark.parametrize("page", COMMAND_PAGES)
def test_shell_commands_of_documents_run(page, shell):
    """Run the commands on a page in order, in one folder."""
    lines = list(commands((ROOT / page).read_text()))
    runnable = [line for line in lines if INSTALLS not in line[0]]
    assert lines and (runnable or page == "README.md")
    for line, output in runnable:
        check(shell, line, output)


@POSIX
@pytest.mark.long
def test_examples_of_help_run(shell):
    """Run the examples of all commands except bench, which is slow, and check, for which test_check.py has
    checkpoints.
    """
    ran = 0
    for command in ("generate", "verify", "identify", "presets", "info", "plot"):
        examples = shell(f"posenc {command} --help")[1].split("examples:\n")[1].split("\n\n")[0]
        for line in examples.splitlines():
            check(shell, line.strip(), None)
            ran += 1
    assert ran >= 10
