"""Constants, functions and statements of the C sources, parsed with pycparser."""

import re
from fractions import Fraction

from pycparser import CParser, c_ast

# the head of a loop or a condition
HEAD = r"(?:for|if|while|switch) \((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\) ?"
NAME_IN_BRACES = r"{([A-Z]\w*)}"
TYPE = re.compile(r"\b(?:\w+_t|vdd|v[fu]\d\d)\b")


class ProofError(Exception):
    """The sources do not have the form that a script of proofs/ requires."""


def number_of(text):
    """Return the exact value of a number in C."""
    if "p" in text:
        return Fraction(float.fromhex(text.rstrip("f")))
    text = text.rstrip("uUlL")
    return Fraction(text) if "." in text else int(text, 0)


def parse(text):
    """Return the statements in a text."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    types = "".join(f"typedef int {name}; " for name in sorted(set(TYPE.findall(text))))
    try:
        function = CParser().parse(f"{types}void f(void) {{ {text} }}").ext[-1]
    except Exception as error:          # pycparser has moved its ParseError between versions
        raise ProofError(f"{error} in {text}") from error
    return function.body.block_items or []


class Headers:
    """The C sources, by their path below src/posenc/_core/c, and others, by that below src/posenc."""

    def __init__(self, folder, change=None):
        self.package = folder.parents[1]
        self.texts = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.[ch]"))}
        self.known, self.origin = {}, {}        # constants, and the files that define them
        if change:              # (path below the root, old text, new text)
            path = re.sub("^src/posenc/(_core/c/)?", "", change[0])
            path = path if path in self.texts else change[0].removeprefix("src/posenc/")
            self.texts[path] = replaced(self.source(path), *change[1:])[0]

    def source(self, path):
        if path not in self.texts and (self.package / path).is_file():
            self.texts[path] = (self.package / path).read_text("utf-8")
        return self.texts[path]

    def capture(self, path, text):
        """Return the numbers at the names in braces in a text, which must occur exactly once."""
        number = r"\s*(-?0x[\da-fA-F.]+(?:p[+-]?\d+)?[uUlL]*|-?\d[\d.]*[uUlL]*)(?![\w.])\s*"
        parts = re.split(NAME_IN_BRACES, text)
        found = [*re.finditer(number.join(re.escape(plain(part)) for part in parts[::2]), plain(self.source(path)))]
        if len(found) != 1:
            raise ProofError(f"{path} contains {text!r} {len(found)} times, expected once")
        return dict(zip(parts[1::2], map(number_of, found[0].groups()), strict=True))

    def constant(self, name):
        """Return the value of a #define, an enum constant or an array of numbers, or None."""
        if name not in self.known:
            values = ((path, self.search(name, text)) for path, text in self.texts.items() if name.isupper())
            self.origin[name], self.known[name] = next((found for found in values if found[1] is not None), (None, None))
        return self.known[name]

    def search(self, name, text):
        text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
        if found := re.search(rf"#define {name} (0x[\w.]+p[+-]?\d+|\d+)|enum {{[^}}]*\b{name} = (\d+)", text):
            return number_of(found[1] or found[2])
        if found := re.search(rf"(?:double|uint32_t) {name}\[.*?\] = ({{.*?}});", text, flags=re.DOTALL):
            return array(parse(f"int a[] = {found[1]};")[0].init)
        return None

    def statements(self, function, *names):
        """Return statements of a function: all of them, or those that assign the names.

        FIRST..LAST are the statements from the first that assigns FIRST to the last that assigns LAST;
        loop:NAME is the body of a loop that assigns NAME.
        """
        body = self.function(function)[1]
        found = [(statement, assigned_names(statement)) for statement in split(plain(body))]
        result = []
        for text in names:
            name = text.removeprefix("loop:")
            first, _, last = name.partition("..")
            at = [k for k, (statement, assigned) in enumerate(found)
                  if assigned & {first, last} and (name == text or statement.startswith("for "))]
            if not at:
                raise ProofError(f"{function} assigns no {name}")
            chosen = [found[k][0] for k in (range(at[0], at[-1] + 1) if last else at)]
            result += chosen if name == text else [re.sub(HEAD, "", statement) for statement in chosen]
        return "\n".join(result) if names else body

    def function(self, name):
        """Return the names of the parameters of an inline function, and its body."""
        for text in self.texts.values():
            found = re.search(rf"(?ms)^[A-Za-z][\w ]* \*?{name}\(([^)]*)\) {{(?:([^\n]+) }}$|(.*?)^}})", text)
            if found:
                return [re.search(r"(\w+)(\[[^]]*\])*$", p.strip())[1] for p in found[1].split(",")], found[2] or found[3]
        raise ProofError(f"the sources have no function {name}")


def array(node):
    """Return the numbers of an initialiser."""
    if isinstance(node, c_ast.InitList):
        return [array(item) for item in node.exprs]
    return -array(node.expr) if isinstance(node, c_ast.UnaryOp) else Fraction(number_of(node.value))


def split(body):
    """Return the statements in the body of a function, without the heads of blocks."""
    result, depth, start = [], 0, 0
    for i, character in enumerate(body):
        before = body[start:i].strip()
        is_block = not depth and (not before.endswith(("=", ")")) or re.match(rf"{HEAD}$|(else|do)$", before) is not None)
        if character == "(" or character == "{" and not is_block:
            depth += 1
        elif character == ")" or character == "}" and depth:
            depth -= 1
        elif character in "{}" or character == ";" and not depth:
            if character == ";":
                result.append(f"{before};")
            start = i + 1
    return result


def assigned_names(statement):
    """Return the names to which a statement assigns, with "_" for "->" and "." and without indices."""
    text = re.sub(rf"^(else )?({HEAD})*|\w \*(const )?\w+ =.*", "", statement)         # no pointers
    if stored := re.match(r"f(?:32|64)_store\(([\w>.-]+)", text):
        return {re.sub(r"->|\.", "_", stored[1])}
    while re.search(r"\([^()]*\)|{[^{}]*}", text):
        text = re.sub(r"\([^()]*\)|{[^{}]*}", "", text)
    return {re.sub(r"->|\.", "_", name) for name in re.findall(r"([\w>.-]+)(?:\[[^]]*\])* [+-]?=(?!=)", text)}


def replaced(text, old, new):
    """Replace `old` in a text; white space matches any white space.  Return the text and their number."""
    return re.subn(r"\s+".join(map(re.escape, old.split())), lambda _: new, text)


def plain(text):
    """Return C text without comments, with single spaces."""
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).split())
