"""Parses the part of C that the headers use in arithmetic."""

import re
from fractions import Fraction

TOKEN = re.compile(
    r"\s*(0x[0-9a-fA-F]*\.?[0-9a-fA-F]*p[+-]?\d+f?|0x[0-9a-fA-F]+[uUlL]*|\d+\.\d*|\d+[uUlL]*|[A-Za-z_]\w*"
    r"|->|\+\+|--|<<=?|>>=?|[-+*/|&^<>=!]=|&&|\|\||\S)"
)
BINARY = [["||"], ["&&"], ["|"], ["^"], ["&"], ["==", "!="], ["<", ">", "<=", ">="], ["<<", ">>"], ["+", "-"], ["*", "/", "%"]]
TYPES = {"vf64", "vdd", "vf32", "vu64", "double", "float", "int", "uint32_t", "uint64_t", "phase_t", "symmetry_t"}


class ProofError(Exception):
    """The sources do not have the form that a script of proofs/ requires."""


def number_of(text):
    """Return the exact value of a number in C."""
    if text.startswith("-"):
        return -number_of(text[1:])
    text = text.rstrip("uUlL") if "p" not in text else text.rstrip("f")
    if "p" not in text:
        return Fraction(text) if "." in text else int(text, 0)
    mantissa, exponent = text[2:].split("p")
    whole, _, fraction = mantissa.partition(".")
    return Fraction(int(whole + fraction, 16), 16 ** len(fraction)) * Fraction(2) ** int(exponent)


class Parser:
    """Parses C text into nested tuples: ("call", name, arguments), ("name", path), ("number", x), and so on."""

    def __init__(self, text):
        self.tokens = TOKEN.findall(re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL))
        self.at = 0

    def peek(self, offset=0):
        return self.tokens[self.at + offset] if self.at + offset < len(self.tokens) else ""

    def take(self, expected=None):
        token = self.peek()
        if expected and token != expected:
            before = " ".join(self.tokens[max(0, self.at - 8):self.at])
            raise ProofError(f"found {token!r} after {before!r}, expected {expected!r}")
        self.at += 1
        return token

    def accept(self, token):
        if self.peek() == token:
            self.at += 1
            return True
        return False

    def statements(self, end=""):
        result = []
        while self.peek() != end:
            result.append(self.statement())
        return result

    def statement(self):
        if self.accept("{"):
            body = self.statements("}")
            self.take("}")
            return ("block", body)
        if self.accept("for"):
            return self.loop()
        if self.accept("if"):
            self.take("(")
            condition = self.expression()
            self.take(")")
            then = self.statement()
            return ("if", condition, then, self.statement() if self.accept("else") else ("block", []))
        if self.accept("return"):
            value = self.expression()
            self.take(";")
            return ("return", value)
        self.accept("const")
        if self.peek() in TYPES and re.match(r"\w|\*", self.peek(1)):
            self.take()
            return self.declaration()
        return self.simple(";")

    def loop(self):
        self.take("(")
        self.take("int")
        start = self.declaration()
        condition = self.expression()
        self.take(";")
        step = self.simple(")")
        return ("for", start, condition, step, self.statement())

    def declaration(self):
        items = []
        while True:
            name = self.take()
            while self.accept("["):
                self.expression()
                self.take("]")
            items.append(("assign", ("name", name), self.initialiser() if self.accept("=") else None))
            if not self.accept(","):
                break
        self.take(";")
        return ("block", items)

    def initialiser(self):
        return ("struct", self.arguments("}")) if self.accept("{") else self.expression()

    def simple(self, end):
        target = self.expression()
        operator = self.take()
        if operator in ("++", "--"):
            result = ("assign", target, (operator[0], target, ("number", 1)))
        elif operator == "=":
            value = self.expression()
            if self.accept("="):                    # a = b = c
                second = ("assign", value, self.expression())
                self.take(end)
                return ("block", [second, ("assign", target, value)])
            result = ("assign", target, value)
        elif operator == "+=":
            result = ("assign", target, ("+", target, self.expression()))
        elif operator == end:
            return ("expression", target)
        else:
            raise ProofError(f"unknown statement with {operator!r}")
        if self.peek() == "," and end == ";":
            self.take()
            return ("block", [result, self.simple(";")])
        self.take(end)
        return result

    def expression(self, level=-1):
        if level == -1:
            condition = self.expression(0)
            if not self.accept("?"):
                return condition
            then = self.expression()
            self.take(":")
            return ("?", condition, then, self.expression())
        if level == len(BINARY):
            return self.unary()
        left = self.expression(level + 1)
        while self.peek() in BINARY[level]:
            left = (self.take(), left, self.expression(level + 1))
        return left

    def unary(self):
        if self.peek() in ("-", "*", "&", "!", "~"):
            return ("unary", self.take(), self.unary())
        if self.peek() == "(" and self.peek(1) in TYPES:
            self.take()
            kind = self.take()
            self.take(")")
            if not self.accept("{"):
                return ("cast", kind, self.unary())
            members = self.arguments("}")
            return ("struct", members)
        return self.postfix()

    def arguments(self, end):
        result = []
        while not self.accept(end):
            result.append(self.expression())
            self.accept(",")
        return result

    def postfix(self):
        if self.accept("("):
            value = self.expression()
            self.take(")")
        elif re.match(r"\d", self.peek()):
            value = ("number", number_of(self.take()))
        else:
            value = ("name", self.take())
        while True:
            if self.accept("("):
                value = ("call", value[1], self.arguments(")"))
            elif self.accept("["):
                value = ("index", value, self.expression())
                self.take("]")
            elif self.peek() in (".", "->"):
                self.take()
                value = ("member", value, self.take())
            else:
                return value
