"""Parses C statements with pycparser, and numbers."""

import re
from fractions import Fraction

from pycparser import CParser

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
