"""C statements as nested tuples, from pycparser: ("call", name, arguments), ("name", path), ("number", x), and so on."""

import re
from fractions import Fraction

from pycparser import CParser, c_ast

TYPE = re.compile(r"\b(?:\w+_t|vdd|v[fu]\d\d)\b")


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


def parse(text):
    """Return the statements in a text."""
    text = re.sub(r"/\*.*?\*/", " ", text, flags=re.DOTALL)
    types = "".join(f"typedef int {name}; " for name in sorted(set(TYPE.findall(text))))
    try:
        function = CParser().parse(f"{types}void f(void) {{ {text} }}").ext[-1]
    except Exception as error:          # pycparser has moved its ParseError between versions
        raise ProofError(f"{error} in {text}") from error
    return [statement(node) for node in function.body.block_items or []]


def statement(node):
    match node:
        case c_ast.Compound():
            return ("block", [statement(item) for item in node.block_items or []])
        case c_ast.DeclList():
            return ("block", [statement(item) for item in node.decls])
        case c_ast.ExprList():
            return ("block", [statement(item) for item in node.exprs])
        case c_ast.Decl():
            return ("assign", ("name", node.name), node.init and expression(node.init))
        case c_ast.For():
            return ("for", statement(node.init), expression(node.cond), statement(node.next), statement(node.stmt))
        case c_ast.If():
            return ("if", expression(node.cond), statement(node.iftrue), statement(node.iffalse or c_ast.Compound([])))
        case c_ast.Return():
            return ("return", expression(node.expr))
        case c_ast.Assignment(rvalue=c_ast.Assignment()):       # a = b = c
            return ("block", [statement(node.rvalue), ("assign", expression(node.lvalue), expression(node.rvalue.rvalue))])
        case c_ast.Assignment():
            target, value = expression(node.lvalue), expression(node.rvalue)
            return ("assign", target, value if node.op == "=" else (node.op[:-1], target, value))
        case c_ast.UnaryOp(op="p++" | "++" | "p--" | "--"):
            target = expression(node.expr)
            return ("assign", target, (node.op[-1], target, ("number", 1)))
    return ("expression", expression(node))


def expression(node):
    match node:
        case c_ast.Constant():
            return ("number", number_of(node.value))
        case c_ast.ID():
            return ("name", node.name)
        case c_ast.FuncCall():
            return ("call", node.name.name, [expression(argument) for argument in (node.args.exprs if node.args else [])])
        case c_ast.ArrayRef():
            return ("index", expression(node.name), expression(node.subscript))
        case c_ast.StructRef():
            return ("member", expression(node.name), node.field.name)
        case c_ast.Cast():
            return ("cast", node.to_type.type.type.names[0], expression(node.expr))
        case c_ast.CompoundLiteral():
            return expression(node.init)
        case c_ast.InitList():
            return ("struct", [expression(item) for item in node.exprs])
        case c_ast.TernaryOp():
            return ("?", expression(node.cond), expression(node.iftrue), expression(node.iffalse))
        case c_ast.UnaryOp():
            return ("unary", node.op, expression(node.expr))
        case c_ast.BinaryOp():
            return (node.op, expression(node.left), expression(node.right))
    raise ProofError(f"{type(node).__name__} is not translated")
