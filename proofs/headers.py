"""Quotations, constants and functions of the C sources."""

import re
from fractions import Fraction

from c_parser import Parser, ProofError, number_of


class Headers:
    """The C sources, by their path below src/posenc/_core/c."""

    def __init__(self, folder, changes=None):
        self.texts = {path.relative_to(folder).as_posix(): path.read_text("utf-8") for path in sorted(folder.rglob("*.[ch]"))}
        for path, old, new in changes or []:
            if self.texts[path].count(old) != 1:
                raise ProofError(f"{path} has {self.texts[path].count(old)} times {old!r}, expected once")
            self.texts[path] = self.texts[path].replace(old, new)
        self.known = {}

    def find(self, path, text):
        """Return the position after a quotation, which must occur exactly once; white space and comments do not matter."""
        source = plain(self.texts[path])
        if source.count(plain(text)) != 1:
            raise ProofError(f"{path} no longer has exactly once:\n{text}")

    def capture(self, path, text):
        """Return the number at {} in a quotation, which must occur exactly once; {_} stands for any number."""
        number = r"\s*(-?0x[\da-fA-F.]+(?:p[+-]?\d+)?[uUlL]*|-?\d[\d.]*[uUlL]*)(?![\w.])\s*"
        other = number.replace("(-?", "(?:-?", 1)
        parts = [other.join(re.escape(plain(piece)) for piece in part.split("{_}")) for part in text.split("{}")]
        found = re.findall(number.join(parts), plain(self.texts[path]))
        if len(found) != 1:
            raise ProofError(f"{path} has {len(found)} times {text!r}, expected once")
        return number_of(found[0])

    def constant(self, name):
        """Return a #define, an enum constant or an array of numbers, or None."""
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
            found = re.search(rf"(?ms)^(?:INLINE|NOINLINE|static)[\w ]* \*?{name}\(([^)]*)\) {{(.*?)(?:^}}| }}$)", text)
            if found:
                return [re.search(r"(\w+)(\[[^]]*\])*$", p.strip())[1] for p in found[1].split(",")], found[2]
        raise ProofError(f"no function {name}")


def plain(text):
    """Return C text without comments, with single spaces."""
    return " ".join(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL).split())
