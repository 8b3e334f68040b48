"""Quotations, constants and functions of the C sources."""

import re
from fractions import Fraction

from c_parser import Parser, ProofError, number_of


class Headers:
    """The C sources, by their path below src/posenc/_core/c, and other sources, by their path below src/posenc."""

    def __init__(self, folder, change=None):
        self.package = folder.parents[1]
        self.texts = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.[ch]"))}
        self.known = {}
        if change:
            path, old, new = change
            self.texts[path], count = replaced(self.source(path), old, new)
            if count != 1:
                raise ProofError(f"{path} contains {old!r} {count} times, expected once")

    def source(self, path):
        if path not in self.texts and (self.package / path).is_file():
            self.texts[path] = (self.package / path).read_text("utf-8")
        return self.texts[path]

    def find(self, path, text):
        """Refuse a quotation that does not occur exactly once; white space and comments do not matter."""
        source = plain(self.source(path))
        if source.count(plain(text)) != 1:
            raise ProofError(f"{path} contains the following text {source.count(plain(text))} times, expected once:\n{text}")

    def capture(self, path, text):
        """Return the number at {} in a quotation, which must occur exactly once; {_} stands for any number."""
        number = r"\s*(-?0x[\da-fA-F.]+(?:p[+-]?\d+)?[uUlL]*|-?\d[\d.]*[uUlL]*)(?![\w.])\s*"
        other = number.replace("(-?", "(?:-?", 1)
        parts = [other.join(re.escape(plain(piece)) for piece in part.split("{_}")) for part in text.split("{}")]
        found = re.findall(number.join(parts), plain(self.source(path)))
        if len(found) != 1:
            raise ProofError(f"{path} contains {text!r} {len(found)} times, expected once")
        return number_of(found[0])

    def constant(self, name):
        """Return the value of a #define, an enum constant or an array of numbers, or None if there is none."""
        if not name.isupper():
            return None
        if name not in self.known:
            self.known[name] = self.search(name)
        return self.known[name]

    def search(self, name):
        for text in self.texts.values():
            text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
            if found := re.search(rf"#define {name} (0x[\w.]+p[+-]?\d+|\d+)", text):
                return number_of(found[1])
            if found := re.search(rf"enum {{[^}}]*\b{name} = (\d+)", text):
                return int(found[1])
            if found := re.search(rf"(?:double|uint32_t) {name}\[.*?\] = ({{.*?}});", text, flags=re.DOTALL):
                return self.array(Parser(found[1]))
        return None

    def array(self, parser):
        if not parser.accept("{"):
            sign = -1 if parser.accept("-") else 1
            return sign * Fraction(number_of(parser.take()))
        items = []
        while not parser.accept("}"):
            items.append(self.array(parser))
            parser.accept(",")
        return items

    def function(self, name):
        """Return the names of the parameters of an inline function, and its body."""
        for text in self.texts.values():
            found = re.search(rf"(?ms)^[A-Za-z][\w ]* \*?{name}\(([^)]*)\) {{(?:([^\n]+) }}$|(.*?)^}})", text)
            if found:
                return [re.search(r"(\w+)(\[[^]]*\])*$", p.strip())[1] for p in found[1].split(",")], found[2] or found[3]
        raise ProofError(f"the sources have no function {name}")


def replaced(text, old, new, between=r"\s+"):
    """Replace `old` in a text; white space matches any white space.  Return the text and the number of occurrences."""
    return re.subn(between.join(map(re.escape, old.split())), lambda _: new, text)


def plain(text):
    """Return C text without comments, with single spaces."""
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).split())
