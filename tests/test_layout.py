"""Imports follow the map in CONTRIBUTING.md, files and functions are short, and private names stay in their modules."""

import ast
import graphlib
import re
from pathlib import Path

import pytest

import posenc

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "posenc"
MODULES = {
    re.sub(r"/__init__$", "", path.with_suffix("").relative_to(PACKAGE.parent).as_posix()).replace("/", "."): path
    for pattern in ("**/*.py", "**/*.pyx") for path in PACKAGE.glob(pattern)
}
pytestmark = pytest.mark.skipif(not MODULES, reason="requires the source tree")


def syntax_nodes(path):
    """Return the syntax nodes of a module; for a Cython module, only those of its import lines."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".pyx":
        text = "\n".join(re.findall(r"^ *((?:from \S+ )?import [^(\n]+)$", text, re.MULTILINE))
    return ast.walk(ast.parse(text))


def imports(path):
    """Yield the modules of posenc that a module imports, including imports inside functions and for annotations."""
    for node in syntax_nodes(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in MODULES else node.module


GRAPH = {name: set(imports(path)) for name, path in MODULES.items()}


def test_imports_have_no_cycles():
    assert len(GRAPH) > 30 and sum(map(len, GRAPH.values())) > 100
    graphlib.TopologicalSorter(GRAPH).prepare()


def test_imports_run_downward():
    """A module may import from its own row of the map and from the rows below it."""
    table = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").split("\n## Map\n")[1].split("\n## ")[0]
    rows = [re.findall(r"`([\w.]+?)(?:\.pyx?|/)`", line.split("|")[1]) for line in table.splitlines() if line.startswith("| `")]
    level = {name: number for number, names in enumerate(rows) for name in names}

    def level_of(module):
        name = module.removeprefix("posenc").removeprefix(".").partition(".")[0]
        return level[name or "__init__"]

    assert level.keys() == {name.split(".")[1] if "." in name else "__init__" for name in GRAPH}
    assert [(name, other) for name, others in GRAPH.items() for other in others if level_of(other) < level_of(name)] == []


def test_included_files_use_only_those_before_them():
    """The files of the kernel's module share one namespace, so only this test guards their order."""
    core = PACKAGE / "_core"
    parts = re.split(r'^include "(.+)"$', (core / "kernel.pyx").read_text(encoding="utf-8"), flags=re.MULTILINE)
    files = [(name, (core / name).read_text(encoding="utf-8") if name.endswith(".pxi") else name) for name in parts]
    assert sorted(name for name, _ in files if name.endswith(".pxi")) == sorted(path.name for path in core.glob("*.pxi"))
    later = set()
    for name, text in reversed(files):
        code = re.sub(r'(?s:""".*?""")|#.*', "", text)
        patterns = (r"^cdef (?:struct|class) (\w+)", r"^cdef (?!struct|class|enum)[^(=\n]*?\b(\w+)\(", r"^    ([A-Z_]+) = ")
        own = {defined for pattern in patterns for defined in re.findall(pattern, code, re.MULTILINE)}
        assert set(re.findall(r"\w+", code)) & later - own == set(), name
        later |= own


def test_private_names_of_specifications_stay_in_their_modules():
    classes = (*posenc.Encoding.__mro__, *posenc.Rotary.__mro__)
    private = {name for kind in classes for name in vars(kind) if re.match("_[a-z]", name)} - {"_repr_html_"}
    assert {"_columns", "_keywords", "_rotation"} <= private
    read = [
        (name, node.lineno, node.attr)
        for name, path in MODULES.items() if name not in {kind.__module__ for kind in classes}
        for node in syntax_nodes(path) if isinstance(node, ast.Attribute) and node.attr in private
        if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "posenc"))
    ]
    assert read == []


def python_functions(text):
    """Yield the name and the number of lines of each function, without its docstring."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = node.end_lineno - node.lineno + 1
            if ast.get_docstring(node) is not None:
                lines -= node.body[0].end_lineno - node.body[0].lineno + 1
            yield node.name, lines


def indented_functions(text, header):
    """Yield the same for Cython and C: a function has a header, the lines with a larger indent, and closing brackets."""
    lines = re.sub(r'(?s)\n *""".*?"""', "", text).splitlines()
    indents = [len(line) - len(line.lstrip()) if line.strip() else 1000 for line in lines]
    for first, line in enumerate(lines):
        if match := re.match(header, line):
            last = first
            while last + 1 < len(lines) and (indents[last + 1] > indents[first] or lines[last + 1].lstrip()[0] in ")}"):
                last += 1
            yield match[1], len("\n".join(lines[first : last + 1]).rstrip().splitlines())


CYTHON, C = r" *(?:def|cdef|cpdef) [^=]*?(\w+)\(", r"(?:#define |\w[^=;]*?)\b(\w+)\("
LANGUAGES = {".py": None, ".pyx": CYTHON, ".pxi": CYTHON, ".pxd": CYTHON, ".c": C, ".h": C}


def test_files_have_at_most_500_lines_and_functions_60():
    paths = [path for path in PACKAGE.rglob("*") if path.suffix in LANGUAGES]
    texts = {path.relative_to(PACKAGE): path.read_text(encoding="utf-8") for path in paths}
    texts = {path: text for path, text in texts.items() if "Generated by Cython" not in text[:100]}
    found = set()
    for path, text in texts.items():
        header = LANGUAGES[path.suffix]
        found |= {(str(path), *rest) for rest in (indented_functions(text, header) if header else python_functions(text))}
    assert {"advance_rows_double", "execute_table", "settings_of", "FOR_ORDER"} <= {name for _, name, _ in found}
    assert {path: lines for path, text in texts.items() if (lines := text.count("\n")) > 500} == {}
    assert {function for function in found if function[-1] > 60} == set()


@pytest.mark.parametrize("isa", ["baseline", "avx2", "avx512", "neon"])
def test_each_instruction_set_defines_every_primitive(isa):
    """A compiler sees only the header of its own processor."""
    name = r"((?:[fu](?:32|64)|b?f16|mask(?:32|64))_\w+)"
    folder = PACKAGE / "_core" / "c"
    others = "".join(path.read_text("utf-8") for path in sorted(folder.rglob("*.h")) if not path.name.startswith("simd_"))
    header = (folder / "isa" / f"simd_{isa}.h").read_text("utf-8")
    definition = rf"^(?:static|INLINE|NOINLINE|DEFINE_\w+)\b[^\n(]*?\(?{name}[(,]"
    used, defined = set(re.findall(rf"\b{name}\(", others)), set(re.findall(definition, header + others, re.MULTILINE))
    assert len(used) > 40 and used - defined == set()
